/* Sums over many floats. */
#include "exec/cpu/sums.h"
#include "exec/vector.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { LANES = 16, BLOCK = 2048 };
typedef float lanes_t __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define AT(x, i) (*(const lanes_t *)(const void *)((x) + (i)))

/* One block: the term of 2 * LANES elements from i, and of each that is left over. */
#define SUM(name, parameters, term, rest_term)                                                     \
    ESP_I_VECTOR double name parameters                                                            \
    {                                                                                              \
        double sum = 0;                                                                            \
        for (int64_t at = 0; at < n; at += BLOCK) {                                                \
            const int64_t end = n - at < BLOCK ? n : at + BLOCK;                                   \
            lanes_t low = {0}, high = {0};                                                         \
            float lane[LANES];                                                                     \
            int64_t i = at, j = at + LANES;                                                        \
            for (; i + 2 * LANES <= end; i += 2 * LANES, j += 2 * LANES) {                         \
                low += term(i);                                                                    \
                high += term(j);                                                                   \
            }                                                                                      \
            low += high;                                                                           \
            memcpy(lane, &low, sizeof lane);                                                       \
            for (; i < end; i++)                                                                   \
                sum += (double)rest_term(i);                                                       \
            for (int32_t l = 0; l < LANES; l++)                                                    \
                sum += (double)lane[l];                                                            \
        }                                                                                          \
        return sum;                                                                                \
    }

#define PLAIN(i)    AT(x, i)
#define PLAIN1(i)   x[i]
#define SQUARE(i)   (AT(x, i) * AT(x, i))
#define SQUARE1(i)  (x[i] * x[i])
#define PRODUCT(i)  (AT(x, i) * AT(y, i))
#define PRODUCT1(i) (x[i] * y[i])
#define SHIFTED(i)  ((AT(x, i) - shift) * (AT(x, i) - shift))
#define SHIFTED1(i) ((x[i] - shift) * (x[i] - shift))
#define WITH_Y(i)   ((AT(x, i) - shift) * AT(y, i))
#define WITH_Y1(i)  ((x[i] - shift) * y[i])
#define WITH_YZ(i)  ((AT(x, i) - shift) * AT(y, i) * AT(z, i))
#define WITH_YZ1(i) ((x[i] - shift) * y[i] * z[i])

SUM(esp_i_cpu_sum, (int64_t n, const float *x), PLAIN, PLAIN1)
SUM(esp_i_cpu_sum_squares, (int64_t n, const float *x), SQUARE, SQUARE1)
SUM(esp_i_cpu_dot, (int64_t n, const float *x, const float *y), PRODUCT, PRODUCT1)
SUM(esp_i_cpu_shifted_squares, (int64_t n, const float *x, float shift), SHIFTED, SHIFTED1)
SUM(esp_i_cpu_shifted_dot, (int64_t n, const float *x, float shift, const float *y), WITH_Y,
    WITH_Y1)
SUM(esp_i_cpu_shifted_dot3,
    (int64_t n, const float *x, float shift, const float *y, const float *z), WITH_YZ, WITH_YZ1)

ESP_I_VECTOR void esp_i_cpu_sum_columns(int64_t n, const float *x, double *sum, double *square)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)x[i];
    for (int64_t i = 0; i < n && square != NULL; i++)
        square[i] += (double)x[i] * (double)x[i];
}

ESP_I_VECTOR float esp_i_cpu_largest(int64_t n, const float *x)
{
    float lane[4 * LANES], top = -INFINITY;
    int64_t i = 0;
    for (int32_t l = 0; l < 4 * LANES; l++)
        lane[l] = -INFINITY;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int32_t l = 0; l < 4 * LANES; l++) /* a NaN in a lane stays */
            lane[l] = lane[l] >= x[i + l] || lane[l] != lane[l] ? lane[l] : x[i + l];
    for (; i < n; i++)
        top = top >= x[i] || top != top ? top : x[i];
    for (int32_t l = 0; l < 4 * LANES; l++)
        top = top >= lane[l] || top != top ? top : lane[l];
    return top;
}
