/*
 * Elementary functions of float32 for loops that become vectors: no branches, no calls, within a
 * few units in the last place (far tails of erfc apart). Polynomials are minimax fits of our own;
 * infinities, NaN and subnormal results come out as they should.
 */
#ifndef ESP_EXEC_CPU_FUNCTIONS_H
#define ESP_EXEC_CPU_FUNCTIONS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t esp_i_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float esp_i_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* exp(r) - 1 - r for |r| <= ln 2 / 2 */
static inline float esp_i_exp_rest(float r)
{
    float p = 1.395297013e-03f;
    p = p * r + 8.370321568e-03f;
    p = p * r + 4.166616799e-02f;
    p = p * r + 1.666650670e-01f;
    p = p * r + 5.000000107e-01f;
    return p * r * r;
}

/* exp(x) = 2^n exp(r); 2^n in two factors, as either may be out of range alone. */
static inline float esp_i_exp(float x)
{
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: adding it rounds */
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    const float shifted = x * 1.44269504f + to_integer, n = shifted - to_integer;
    const float r = x - n * 0.693145752f - n * 1.42860677e-06f;
    const int32_t k = (int32_t)esp_i_bits(shifted) - 0x4b400000, half = k >> 1;
    const float low = esp_i_from_bits((uint32_t)(half + 127) << 23);
    const float high = esp_i_from_bits((uint32_t)(k - half + 127) << 23);
    return (1 + (r + esp_i_exp_rest(r))) * low * high;
}

/* exp(x) for x <= 0, or NaN: 0 where the result is below the least normal number. */
static inline float esp_i_exp_below(float x)
{
    const float to_integer = 12582912.0f;
    const float from = x < -87.0f ? -87.0f : x;
    const float shifted = from * 1.44269504f + to_integer, n = shifted - to_integer;
    const float r = from - n * 0.693145752f - n * 1.42860677e-06f;
    const float scale = esp_i_from_bits((esp_i_bits(shifted) << 23) + 0x3f800000u);
    const float y = (1 + (r + esp_i_exp_rest(r))) * scale;
    return x < -87.0f ? 0 : y;
}

static inline float esp_i_expm1(float x)
{
    const float near = x + esp_i_exp_rest(x), far = esp_i_exp(x) - 1;
    return fabsf(x) < 0.34f ? near : far;
}

/* log(x) = k ln 2 + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)) */
static inline float esp_i_log(float x)
{
    const float small = x < 1.17549435e-38f ? 8388608.0f : 1.0f;
    const float normal = x * small;
    const uint32_t bits = esp_i_bits(normal) - 0x3f3504f3u; /* of sqrt(1/2) */
    const int32_t k = ((int32_t)bits >> 23) - (x < 1.17549435e-38f ? 23 : 0);
    const float f = esp_i_from_bits((bits & 0x7fffffu) + 0x3f3504f3u) - 1;
    float p = -7.634429908e-02f;
    p = p * f + 1.276155036e-01f;
    p = p * f - 1.316019505e-01f;
    p = p * f + 1.420176247e-01f;
    p = p * f - 1.662335648e-01f;
    p = p * f + 2.000122667e-01f;
    p = p * f - 2.500082106e-01f;
    p = p * f + 3.333333171e-01f;
    const float square = f * f, e = (float)k;
    float y = f + (p * f * square - 0.5f * square + e * 1.42860677e-06f) + e * 0.693145752f;
    y = x == INFINITY ? x : y;
    y = x == 0 ? -INFINITY : y;
    return x >= 0 ? y : NAN; /* also for NaN */
}

/* log(1 + e) for e in [0, 1] */
static inline float esp_i_log1p_unit(float e)
{
    float p = -3.338730880e-03f;
    p = p * e + 2.027777047e-02f;
    p = p * e - 5.775914481e-02f;
    p = p * e + 1.068453727e-01f;
    p = p * e - 1.535327791e-01f;
    p = p * e + 1.969245488e-01f;
    p = p * e - 2.495734715e-01f;
    p = p * e + 3.333027567e-01f;
    p = p * e - 4.999991418e-01f;
    p = p * e + 1.0f;
    return p * e;
}

static inline float esp_i_sigmoid(float x)
{
    const float e = esp_i_exp_below(-fabsf(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}

static inline float esp_i_softplus(float x)
{
    const float rest = esp_i_log1p_unit(esp_i_exp_below(-fabsf(x)));
    return (x < 0 ? 0 : x) + rest;
}

static inline float esp_i_tanh(float x)
{
    const float size = fabsf(x), square = x * x;
    float p = -5.717036561e-03f;
    p = p * square + 2.065057900e-02f;
    p = p * square - 5.374349526e-02f;
    p = p * square + 1.333149125e-01f;
    p = p * square - 3.333328392e-01f;
    const float near = x + x * square * p;
    const float e = esp_i_exp_below(-2 * size), far = (1 - e) / (1 + e);
    return size < 0.625f ? near : copysignf(far, x);
}

/* erfc(z) for z >= 0, where `gauss` is exp(-z^2). */
static inline float esp_i_erfc_of(float z, float gauss)
{
    const float t = 1 / (1 + 0.4f * z);
    float p = 4.143543341e-02f;
    p = p * t - 1.412131139e-01f;
    p = p * t + 8.584971584e-02f;
    p = p * t + 8.581529439e-02f;
    p = p * t + 8.125436148e-02f;
    p = p * t + 1.927493096e-01f;
    p = p * t + 2.020538397e-01f;
    p = p * t + 2.264195990e-01f;
    p = p * t + 2.256356230e-01f;
    return p * t * gauss;
}

static inline float esp_i_erf(float x)
{
    const float size = fabsf(x), square = x * x;
    float p = 7.889119278e-05f;
    p = p * square - 8.020841204e-04f;
    p = p * square + 5.189535331e-03f;
    p = p * square - 2.685444459e-02f;
    p = p * square + 1.128360018e-01f;
    p = p * square - 3.761262714e-01f;
    p = p * square + 1.128379166e+00f;
    const float far = 1 - esp_i_erfc_of(size, esp_i_exp_below(-square));
    return size < 1 ? x * p : copysignf(far, x);
}

/* The probability that a normal number is below x, where `gauss` is exp(-x^2 / 2). */
static inline float esp_i_normal_below(float x, float gauss)
{
    const float tail = 0.5f * esp_i_erfc_of(fabsf(x) * 0.70710678f, gauss);
    return x < 0 ? tail : 1 - tail;
}

#endif
