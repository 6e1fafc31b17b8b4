/* Conversion between stored elements and doubles. */
#include "exec/values.h"
#include "exec/vector.h"

#include <math.h>
#include <string.h>

/* ---- two-byte floats ----------------------------------------------------------------------- */

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static uint16_t half_bits(double value)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const double size = fabs(value);
    if (isnan(value))
        return 0x7e00;
    if (size >= 65520) /* halfway to the first number that is not there */
        return sign | 0x7c00;
    int exponent;
    (void)frexp(size, &exponent);
    exponent = size < 0x1p-14 ? -13 : exponent; /* of subnormal numbers and 0 */
    const int fraction = (int)nearbyint(ldexp(size, 11 - exponent));
    /* the leading bit of a normal number, or one more of rounding, counts up the exponent */
    return (uint16_t)(sign | ((exponent + 13) * 1024 + fraction));
}

static double bfloat_value(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

static uint16_t bfloat_bits(double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- to and from double -------------------------------------------------------------------- */

#define LOAD(type, expression)                                                                     \
    do {                                                                                           \
        const type *from = data;                                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            values_out[i] = (double)(expression);                                                  \
    } while (0)

ESP_I_VECTOR void esp_i_values_load(esp_dtype_t dtype, int64_t n, const void *data,
                                    double *values_out)
{
    switch (dtype) {
    case ESP_DTYPE_F32:
        LOAD(float, from[i]);
        return;
    case ESP_DTYPE_F64:
        memmove(values_out, data, (size_t)n * sizeof *values_out);
        return;
    case ESP_DTYPE_F16:
        LOAD(uint16_t, half_value(from[i]));
        return;
    case ESP_DTYPE_BF16:
        LOAD(uint16_t, bfloat_value(from[i]));
        return;
    case ESP_DTYPE_I8:
        LOAD(int8_t, from[i]);
        return;
    case ESP_DTYPE_U8:
        LOAD(uint8_t, from[i]);
        return;
    case ESP_DTYPE_I16:
        LOAD(int16_t, from[i]);
        return;
    case ESP_DTYPE_I32:
        LOAD(int32_t, from[i]);
        return;
    case ESP_DTYPE_I64:
        LOAD(int64_t, from[i]);
        return;
    case ESP_DTYPE_BOOL:
        LOAD(uint8_t, from[i] != 0);
        return;
    case ESP_DTYPE_COUNT:
        break;
    }
    esp_assert(dtype < ESP_DTYPE_COUNT);
}

/* Toward zero; what 64 bits do not hold becomes the nearest that they do. */
static int64_t whole(double value)
{
    if (isnan(value))
        return 0;
    if (value >= 0x1p63)
        return INT64_MAX;
    return value < -0x1p63 ? INT64_MIN : (int64_t)value;
}

#define STORE(type, expression)                                                                    \
    do {                                                                                           \
        type *to = data_out;                                                                       \
        for (int64_t i = 0; i < n; i++)                                                            \
            to[i] = (type)(expression);                                                            \
    } while (0)

ESP_I_VECTOR void esp_i_values_store(esp_dtype_t dtype, int64_t n, const double *values,
                                     void *data_out)
{
    switch (dtype) {
    case ESP_DTYPE_F32:
        STORE(float, values[i]);
        return;
    case ESP_DTYPE_F64:
        memmove(data_out, values, (size_t)n * sizeof *values);
        return;
    case ESP_DTYPE_F16:
        STORE(uint16_t, half_bits(values[i]));
        return;
    case ESP_DTYPE_BF16:
        STORE(uint16_t, bfloat_bits(values[i]));
        return;
    case ESP_DTYPE_I8:
        STORE(int8_t, whole(values[i]));
        return;
    case ESP_DTYPE_U8:
        STORE(uint8_t, whole(values[i]));
        return;
    case ESP_DTYPE_I16:
        STORE(int16_t, whole(values[i]));
        return;
    case ESP_DTYPE_I32:
        STORE(int32_t, whole(values[i]));
        return;
    case ESP_DTYPE_I64:
        STORE(int64_t, whole(values[i]));
        return;
    case ESP_DTYPE_BOOL:
        STORE(uint8_t, values[i] != 0);
        return;
    case ESP_DTYPE_COUNT:
        break;
    }
    esp_assert(dtype < ESP_DTYPE_COUNT);
}
