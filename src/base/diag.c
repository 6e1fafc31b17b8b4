/* Filling and formatting diagnostics. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A program that has found itself wrong must stop; this is the only place of the library that
 * writes to the terminal or ends the process.
 */
void esp_i_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "espalier: %s:%d: assertion failed: %s\n", file, line, expression);
    abort();
}

/* A line of text: control characters of hostile input would corrupt a terminal or a log. */
static void make_one_line(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
}

/* Keeps both ends of a long name: the end of a path says most, its beginning where it starts. */
static void copy_middle_cut(char *out, size_t capacity, const char *text)
{
    static const char gap[] = "...";
    size_t length = strlen(text);
    if (length < capacity) {
        memcpy(out, text, length + 1);
    } else {
        size_t keep = capacity - sizeof gap;
        size_t front = keep / 3, back = keep - front;
        memcpy(out, text, front);
        memcpy(out + front, gap, sizeof gap - 1);
        memcpy(out + front + sizeof gap - 1, text + length - back, back + 1);
    }
    make_one_line(out);
}

#ifdef __clang_analyzer__
#undef esp_i_fail
#undef esp_i_nomem
#endif

esp_status_t esp_i_fail(esp_diag_t *diag, esp_status_t status, const char *format, ...)
{
    if (diag == NULL)
        return status;
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(diag->text, sizeof diag->text, format, arguments) < 0)
        diag->text[0] = '\0';
    va_end(arguments);
    make_one_line(diag->text);
    diag->status = status;
    return status;
}

esp_status_t esp_i_nomem(esp_diag_t *diag)
{
    return esp_i_fail(diag, ESP_ERR_NOMEM, "out of memory");
}

void esp_i_diag_file(esp_diag_t *diag, const char *file)
{
    if (diag != NULL)
        copy_middle_cut(diag->file, sizeof diag->file, file);
}

void esp_i_diag_place(esp_diag_t *diag, const char *format, ...)
{
    if (diag == NULL)
        return;
    /* Names in models can be long; what does not fit here loses its end, the rest its middle. */
    char text[4 * sizeof diag->place];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) < 0)
        text[0] = '\0';
    va_end(arguments);
    copy_middle_cut(diag->place, sizeof diag->place, text);
}

void esp_i_diag_line(esp_diag_t *diag, int64_t line, int64_t column)
{
    if (diag == NULL)
        return;
    diag->line = line;
    diag->column = column;
}

void esp_i_diag_byte(esp_diag_t *diag, int64_t byte)
{
    if (diag == NULL)
        return;
    diag->byte = byte;
    diag->has_byte = 1;
}

/* "file:line:column", "file: byte 17", "line 3:4", "byte 17", "file" or "". */
static void format_location(const esp_diag_t *diag, char *out, size_t capacity)
{
    char where[64] = "";
    bool has_file = diag->file[0] != '\0';
    if (diag->line > 0 && diag->column > 0)
        (void)snprintf(where, sizeof where, "%s%lld:%lld", has_file ? ":" : "line ",
                       (long long)diag->line, (long long)diag->column);
    else if (diag->line > 0)
        (void)snprintf(where, sizeof where, "%s%lld", has_file ? ":" : "line ",
                       (long long)diag->line);
    else if (diag->has_byte)
        (void)snprintf(where, sizeof where, "%sbyte %lld", has_file ? ": " : "",
                       (long long)diag->byte);
    (void)snprintf(out, capacity, "%s%s", diag->file, where);
}

size_t esp_diag_format(const esp_diag_t *diag, char *buffer, size_t capacity)
{
    char location[sizeof diag->file + 64];
    format_location(diag, location, sizeof location);
    const char *text = diag->text[0] != '\0' ? diag->text : esp_status_text(diag->status);
    int length = snprintf(buffer, capacity, "%s%s%s%s%s", location, location[0] != '\0' ? ": " : "",
                          diag->place, diag->place[0] != '\0' ? ": " : "", text);
    return length < 0 ? 0 : (size_t)length;
}
