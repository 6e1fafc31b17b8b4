/* Numbers of one dtype as another. */
#include "exec/files.h"

#include <math.h>
#include <string.h>

bool esp_i_converts(esp_dtype_t to, esp_dtype_t from)
{
    if (to == ESP_DTYPE_F16 || to == ESP_DTYPE_BF16)
        return to == from;
    return esp_dtype_is_float(to) != 0 || esp_dtype_is_float(from) == 0;
}

static double half(uint16_t bits)
{
    int exponent = (bits >> 10) & 31;
    double fraction = bits & 1023;
    double value = exponent == 31  ? (fraction > 0 ? (double)NAN : (double)INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -value : value;
}

static double bfloat(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

/* Element at `src`, of an integer dtype. */
static int64_t integer_at(esp_dtype_t dtype, const char *src)
{
    int64_t bits = 0;
    int64_t size = esp_dtype_bytes(dtype);
    memcpy(&bits, src, (size_t)size);
    if (dtype == ESP_DTYPE_BOOL)
        return bits != 0;
    if (dtype == ESP_DTYPE_U8 || size == 8)
        return bits;
    int shift = 64 - 8 * (int)size;
    return (int64_t)((uint64_t)bits << shift) >> shift;
}

static double real_at(esp_dtype_t dtype, const char *src)
{
    float single;
    double value;
    uint16_t bits;
    if (dtype == ESP_DTYPE_F32) {
        memcpy(&single, src, sizeof single);
        return (double)single;
    }
    if (dtype == ESP_DTYPE_F64) {
        memcpy(&value, src, sizeof value);
        return value;
    }
    if (dtype == ESP_DTYPE_F16 || dtype == ESP_DTYPE_BF16) {
        memcpy(&bits, src, sizeof bits);
        return dtype == ESP_DTYPE_F16 ? half(bits) : bfloat(bits);
    }
    return (double)integer_at(dtype, src);
}

static bool fits(esp_dtype_t dtype, int64_t value)
{
    int64_t size = esp_dtype_bytes(dtype);
    if (dtype == ESP_DTYPE_BOOL)
        return value == 0 || value == 1;
    if (dtype == ESP_DTYPE_U8)
        return value >= 0 && value <= UINT8_MAX;
    if (size == 8)
        return true;
    int64_t most = (INT64_C(1) << (8 * size - 1)) - 1;
    return value >= -most - 1 && value <= most;
}

bool esp_i_convert(esp_dtype_t to, void *dst, esp_dtype_t from, const void *src, int64_t n,
                   int64_t *bad_out)
{
    size_t size = (size_t)esp_dtype_bytes(to), step = (size_t)esp_dtype_bytes(from);
    char *at = dst;
    const char *source = src;
    *bad_out = -1;
    if (to == from) {
        if (n > 0)
            memcpy(dst, src, (size_t)n * size);
        return true;
    }
    if (!esp_i_converts(to, from))
        return false;
    for (int64_t i = 0; i < n; i++, at += size, source += step) {
        if (esp_dtype_is_float(to) != 0) {
            double value = real_at(from, source);
            float single = (float)value;
            memcpy(at, to == ESP_DTYPE_F64 ? (const void *)&value : (const void *)&single, size);
            continue;
        }
        int64_t value = integer_at(from, source);
        if (!fits(to, value)) {
            *bad_out = i;
            return false;
        }
        memcpy(at, &value, size); /* little endian: the low bytes */
    }
    return true;
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "files of tensors are little endian, and so must be the machine"
#endif
