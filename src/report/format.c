/* Numbers and sentences for people, and the options of every report. */
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

esp_report_opts_t esp_report_opts_default(void)
{
    return (esp_report_opts_t){.struct_size = sizeof(esp_report_opts_t)};
}

esp_status_t esp_i_report_check(const esp_report_opts_t *opts, esp_diag_t *diag)
{
    if (opts->struct_size != sizeof *opts)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "options of an unknown version");
    if (opts->form != ESP_REPORT_TEXT && opts->form != ESP_REPORT_JSON)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "unknown form %d", (int)opts->form);
    return ESP_OK;
}

/* 9.995 and more would round to "10.00": a digit less is needed from there on. */
static int decimals(double value)
{
    return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

void esp_i_report_si(double value, const char *unit, char out[32])
{
    static const char prefixes[] = " kMGTPE";
    size_t prefix = 0;
    double size = fabs(value);
    while (size >= 999.5 && prefix < sizeof prefixes - 2) {
        size /= 1000;
        prefix++;
    }
    int digits = prefix == 0 && size == floor(size) ? 0 : decimals(size);
    char name[16];
    (void)snprintf(name, sizeof name, "%.*s%.12s", prefix > 0, prefixes + prefix, unit);
    (void)snprintf(out, 32, "%s%.*f%s%s", value < 0 ? "-" : "", digits, size,
                   name[0] != '\0' ? " " : "", name);
}

void esp_i_report_percent(double share, char out[32])
{
    double percent = 100 * share;
    if (percent > 0 && percent < 0.005)
        (void)snprintf(out, 32, "<0.01 %%"); /* "0 %" is nothing */
    else if (!(percent >= 0.005))
        (void)snprintf(out, 32, "0 %%");
    else if (percent >= 99.95 && percent < 100)
        (void)snprintf(out, 32, "99.9 %%"); /* "100 %" is all of it */
    else
        (void)snprintf(out, 32, "%.*f %%", decimals(percent), percent);
}

size_t esp_i_report_line(const char *words, size_t room)
{
    size_t length = strlen(words);
    if (length <= room)
        return length;
    for (length = room; length > 0 && words[length] != ' ';)
        length--;
    return length > 0 ? length : strcspn(words, " ");
}

void esp_i_report_wrap(esp_i_text_t *text, int32_t indent, const char *words)
{
    for (bool first = true; *words != '\0'; first = false) {
        int32_t blanks = first ? 0 : indent;
        size_t length = esp_i_report_line(words, (size_t)(ESP_I_REPORT_WIDTH - blanks));
        esp_i_text_addf(text, "%*s%.*s\n", (int)blanks, "", (int)length, words);
        words += length;
        words += strspn(words, " ");
    }
}

esp_status_t esp_i_report_finish(esp_i_text_t *text, char **text_out, esp_diag_t *diag)
{
    if (text->failed || text->data == NULL) {
        esp_i_text_fini(text);
        return esp_i_nomem(diag);
    }
    *text_out = text->data;
    *text = (esp_i_text_t){0};
    return ESP_OK;
}
