/* The JSON writer. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void esp_i_json_out_init(esp_i_json_out_t *out, esp_i_text_t *text)
{
    *out = (esp_i_json_out_t){.text = text, .empty = true};
}

static bool is_flat(const esp_i_json_out_t *out)
{
    return out->flat_depth > 0 && out->depth >= out->flat_depth;
}

static void new_line(esp_i_json_out_t *out)
{
    static const char spaces[2 * ESP_I_JSON_MAX_DEPTH + 1] =
        "                                                                "
        "                                                                ";
    esp_i_text_add(out->text, "\n");
    esp_i_text_add_bytes(out->text, spaces, 2 * (size_t)out->depth);
}

static void write_escaped(esp_i_text_t *text, unsigned char byte)
{
    static const char *const names[0x20] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f", ['\r'] = "\\r"};
    if (byte == '"' || byte == '\\')
        esp_i_text_addf(text, "\\%c", byte);
    else if (byte >= 0x80)
        esp_i_text_add(text, "\\ufffd");
    else if (names[byte] != NULL)
        esp_i_text_add(text, names[byte]);
    else
        esp_i_text_addf(text, "\\u%04x", byte);
}

static void write_string(esp_i_text_t *text, const char *string)
{
    esp_i_text_add(text, "\"");
    const char *end = string + strlen(string);
    while (string < end) {
        /* As much as needs no escape, at once. */
        const char *plain = string;
        for (int32_t size;
             string < end && (unsigned char)*string >= 0x20 && *string != '"' && *string != '\\';
             string += size)
            if ((size = esp_i_utf8_length(string, (size_t)(end - string))) == 0)
                break;
        esp_i_text_add_bytes(text, plain, (size_t)(string - plain));
        if (string < end)
            write_escaped(text, (unsigned char)*string++);
    }
    esp_i_text_add(text, "\"");
}

/* Separator, line break and key: all that comes before a value. */
static void begin_value(esp_i_json_out_t *out, const char *key)
{
    bool in_object = out->depth > 0 && (out->is_array >> (out->depth - 1) & 1) == 0;
    esp_assert((key != NULL) == in_object);
    if (!out->empty)
        esp_i_text_add(out->text, is_flat(out) ? ", " : ",");
    if (out->depth > 0 && !is_flat(out))
        new_line(out);
    if (key != NULL) {
        write_string(out->text, key);
        esp_i_text_add(out->text, ": ");
    }
    out->empty = false;
}

static void open_container(esp_i_json_out_t *out, const char *key, bool is_array)
{
    esp_assert(out->depth < ESP_I_JSON_MAX_DEPTH);
    begin_value(out, key);
    esp_i_text_add(out->text, is_array ? "[" : "{");
    uint64_t bit = UINT64_C(1) << out->depth;
    out->is_array = is_array ? out->is_array | bit : out->is_array & ~bit;
    out->depth++;
    if (out->next_flat && out->flat_depth == 0)
        out->flat_depth = out->depth;
    out->next_flat = false;
    out->empty = true;
}

void esp_i_json_open_object(esp_i_json_out_t *out, const char *key)
{
    open_container(out, key, false);
}

void esp_i_json_open_array(esp_i_json_out_t *out, const char *key)
{
    open_container(out, key, true);
}

void esp_i_json_close(esp_i_json_out_t *out)
{
    esp_assert(out->depth > 0);
    bool flat = is_flat(out), is_array = (out->is_array >> (out->depth - 1) & 1) != 0;
    if (out->depth == out->flat_depth)
        out->flat_depth = 0;
    out->depth--;
    if (!flat && !out->empty)
        new_line(out);
    esp_i_text_add(out->text, is_array ? "]" : "}");
    out->empty = false;
    if (out->depth == 0)
        esp_i_text_add(out->text, "\n");
}

void esp_i_json_next_flat(esp_i_json_out_t *out)
{
    out->next_flat = true;
}

void esp_i_json_put_string(esp_i_json_out_t *out, const char *key, const char *value)
{
    begin_value(out, key);
    if (value != NULL)
        write_string(out->text, value);
    else
        esp_i_text_add(out->text, "null");
}

void esp_i_json_put_int(esp_i_json_out_t *out, const char *key, int64_t value)
{
    begin_value(out, key);
    esp_i_text_addf(out->text, "%lld", (long long)value);
}

/*
 * 15 digits suffice for every double that was a decimal of at most 15, and %g drops trailing zeros,
 * so the search for the shortest starts there; only subnormals can need less.
 */
static void format_real(double value, char out[40])
{
    for (int digits = isnormal(value) ? 15 : 1; digits <= 17; digits++) {
        (void)snprintf(out, 40, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    /* The host program may have set a locale with another decimal point. */
    char *point = out + strspn(out, "-0123456789");
    size_t foreign = strcspn(point, "+-0123456789e");
    if (foreign > 0) {
        memmove(point + 1, point + foreign, strlen(point + foreign) + 1);
        *point = '.';
    } else if (*point == '\0') {
        memcpy(point, ".0", sizeof ".0");
    }
}

void esp_i_json_put_real(esp_i_json_out_t *out, const char *key, double value)
{
    char text[40] = "null";
    if (isfinite(value))
        format_real(value, text);
    begin_value(out, key);
    esp_i_text_add(out->text, text);
}

void esp_i_json_put_bool(esp_i_json_out_t *out, const char *key, bool value)
{
    begin_value(out, key);
    esp_i_text_add(out->text, value ? "true" : "false");
}

void esp_i_json_put_null(esp_i_json_out_t *out, const char *key)
{
    begin_value(out, key);
    esp_i_text_add(out->text, "null");
}
