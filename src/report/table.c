/* Aligned tables of at most ESP_I_REPORT_WIDTH columns. */
#include "report/report.h"

#include <stdio.h>
#include <string.h>

enum { GAP = 2, NARROWEST = 8, WRAPPED = 20 };

void esp_i_table_init(esp_i_table_t *table, const esp_allocator_t *alloc, int32_t n,
                      const esp_i_column_t *column)
{
    esp_assert(n <= ESP_I_REPORT_COLUMNS);
    *table = (esp_i_table_t){.column = column, .n_columns = n};
    esp_i_arena_init(&table->arena, alloc);
}

void esp_i_table_cell(esp_i_table_t *table, const char *format, ...)
{
    char buffer[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    const char *copy = esp_i_arena_strdup(&table->arena, buffer);
    if (copy == NULL || !esp_vec_push(&table->arena.alloc, &table->cell, copy))
        table->failed = true;
}

/* Characters of UTF-8 text: its bytes without those that continue a character. */
static int32_t characters(const char *text)
{
    int32_t count = 0;
    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static void measure(const esp_i_table_t *table, int32_t indent, int32_t width[ESP_I_REPORT_COLUMNS])
{
    int32_t n = table->n_columns, total = indent - GAP;
    for (int32_t c = 0; c < n; c++)
        width[c] = characters(table->column[c].header);
    for (int32_t i = 0; i < table->cell.count; i++) {
        int32_t length = characters(table->cell.data[i]);
        if (length > width[i % n])
            width[i % n] = length;
    }
    for (int32_t c = 0; c < n; c++)
        total += width[c] + GAP;
    if (total > ESP_I_REPORT_WIDTH && table->column[n - 1].align == ESP_I_WRAP) {
        int32_t room = width[n - 1] - (total - ESP_I_REPORT_WIDTH);
        width[n - 1] = room > WRAPPED ? room : WRAPPED;
        return;
    }
    for (; total > ESP_I_REPORT_WIDTH; total--) {
        int32_t widest = ESP_NONE;
        for (int32_t c = 0; c < n; c++)
            if (table->column[c].align != ESP_I_RIGHT && width[c] > NARROWEST &&
                (widest == ESP_NONE || width[c] > width[widest]))
                widest = c;
        if (widest == ESP_NONE)
            return;
        width[widest]--;
    }
}

/* Byte offset of character `index`. */
static size_t byte_of(const char *text, int32_t index)
{
    size_t at = 0;
    for (; text[at] != '\0'; at++)
        if (((unsigned char)text[at] & 0xc0) != 0x80 && index-- == 0)
            break;
    return at;
}

static void print_cell(const char *cell, int32_t width, bool right, bool last, esp_i_text_t *text)
{
    int32_t length = characters(cell);
    int32_t pad = length < width ? width - length : 0;
    if (right && pad > 0)
        esp_i_text_addf(text, "%*s", (int)pad, "");
    if (length <= width) {
        esp_i_text_add(text, cell);
    } else { /* names differ at their ends more often than in their middle */
        int32_t head = (width - 2) / 2;
        esp_i_text_add_bytes(text, cell, byte_of(cell, head));
        esp_i_text_add(text, "..");
        esp_i_text_add(text, cell + byte_of(cell, length - (width - 2 - head)));
    }
    if (!last)
        esp_i_text_addf(text, "%*s", (int)(GAP + (right ? 0 : pad)), "");
}

static void print_wrapped(const char *words, int32_t width, int32_t indent, esp_i_text_t *text)
{
    for (bool first = true; first || *words != '\0'; first = false) {
        size_t length = esp_i_report_line(words, (size_t)width);
        esp_i_text_addf(text, "%s%*s%.*s", first ? "" : "\n", first ? 0 : (int)indent, "",
                        (int)length, words);
        words += length;
        words += strspn(words, " ");
    }
}

/* Blanks at the end of a line are left out: the last cells of a row may be empty. */
static void end_line(esp_i_text_t *text)
{
    while (!text->failed && text->length > 0 && text->data[text->length - 1] == ' ')
        text->data[--text->length] = '\0';
    esp_i_text_add(text, "\n");
}

void esp_i_table_print(esp_i_table_t *table, int32_t indent, esp_i_text_t *text)
{
    int32_t width[ESP_I_REPORT_COLUMNS];
    int32_t n = table->n_columns, last = indent;
    esp_assert(n > 0);
    text->failed |= table->failed;
    measure(table, indent, width);
    for (int32_t c = 0; c < n - 1; c++)
        last += width[c] + GAP;
    for (int32_t i = -n; i < table->cell.count && !text->failed; i++) {
        int32_t c = (i + n) % n;
        const char *cell = i < 0 ? table->column[c].header : table->cell.data[i];
        if (c == 0)
            esp_i_text_addf(text, "%*s", (int)indent, "");
        if (table->column[c].align == ESP_I_WRAP)
            print_wrapped(cell, width[c], last, text);
        else
            print_cell(cell, width[c], table->column[c].align == ESP_I_RIGHT, c == n - 1, text);
        if (c == n - 1)
            end_line(text);
    }
    esp_vec_free(&table->arena.alloc, &table->cell);
    esp_i_arena_fini(&table->arena);
}
