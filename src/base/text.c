/* Growing text, figures for people, hashing. */
#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void esp_i_text_init(esp_i_text_t *text, const esp_allocator_t *alloc_or_null)
{
    *text = (esp_i_text_t){.alloc = esp_i_allocator(alloc_or_null)};
}

void esp_i_text_fini(esp_i_text_t *text)
{
    esp_i_free(&text->alloc, text->data);
    *text = (esp_i_text_t){.alloc = text->alloc};
}

/* Room for `more` bytes and the terminator. */
static bool reserve(esp_i_text_t *text, size_t more)
{
    if (text->failed)
        return false;
    if (more < text->capacity - text->length)
        return true;
    size_t need, capacity = text->capacity < 128 ? 256 : text->capacity * 2;
    text->failed = __builtin_add_overflow(text->length, more, &need) || need >= PTRDIFF_MAX / 2;
    if (text->failed)
        return false;
    if (capacity <= need)
        capacity = need + 1;
    char *data = esp_i_alloc(&text->alloc, capacity);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    if (text->data != NULL)
        memcpy(data, text->data, text->length);
    esp_i_free(&text->alloc, text->data);
    text->data = data;
    text->capacity = capacity;
    return true;
}

void esp_i_text_add_bytes(esp_i_text_t *text, const char *bytes, size_t length)
{
    if (!reserve(text, length))
        return;
    if (length > 0)
        memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void esp_i_text_add(esp_i_text_t *text, const char *bytes)
{
    esp_i_text_add_bytes(text, bytes, strlen(bytes));
}

void esp_i_text_addf(esp_i_text_t *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        text->failed = true;
    if (!reserve(text, length < 0 ? 0 : (size_t)length))
        return;
    va_start(arguments, format);
    (void)vsnprintf(text->data + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)length;
}

int32_t esp_i_utf8_length(const char *bytes, size_t length)
{
    const unsigned char *b = (const unsigned char *)bytes;
    if (length > 0 && b[0] < 0x80)
        return 1;
    if (length < 2 || b[0] < 0xc2 || b[0] > 0xf4)
        return 0;
    /* The second byte excludes overlong forms, surrogates and what is above U+10FFFF. */
    unsigned least = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    unsigned most = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
    int32_t need = b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    if (length < (size_t)need || b[1] < least || b[1] > most)
        return 0;
    for (int32_t i = 2; i < need; i++)
        if ((b[i] & 0xc0) != 0x80)
            return 0;
    return need;
}

/* Three significant digits of value >= 0 that is below 1000 (or 1024, as four digits). */
static void format_three_digits(double value, const char *unit, char out[32])
{
    /* 9.995 and more would round to "10.00": a digit less is needed from there on. */
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    (void)snprintf(out, 32, "%.*f %s", digits, value, unit);
}

void esp_i_format_bytes(int64_t bytes, char out[32])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    const char *sign = bytes < 0 ? "-" : "";
    double value = fabs((double)bytes);
    if (value < 1024) {
        (void)snprintf(out, 32, "%lld B", (long long)bytes);
        return;
    }
    size_t unit = 0;
    for (value /= 1024; value >= 1023.5 && unit < 5; unit++)
        value /= 1024;
    char text[32];
    format_three_digits(value, units[unit], text);
    (void)snprintf(out, 32, "%s%.24s", sign, text);
}

void esp_i_format_ns(int64_t ns, char out[32])
{
    static const char *const units[] = {"us", "ms", "s"};
    const char *sign = ns < 0 ? "-" : "";
    double value = fabs((double)ns);
    if (value < 1000) {
        (void)snprintf(out, 32, "%lld ns", (long long)ns);
        return;
    }
    size_t unit = 0;
    for (value /= 1000; value >= 999.5 && unit < 2; unit++)
        value /= 1000;
    char text[32];
    format_three_digits(value, units[unit], text);
    (void)snprintf(out, 32, "%s%.24s", sign, text);
}

uint64_t esp_i_hash_bytes(uint64_t seed, const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ seed;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}
