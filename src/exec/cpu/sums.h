/*
 * Sums over many floats: 32 accumulators side by side over blocks of 2048 elements, blocks in
 * double; the order does not depend on the machine.
 */
#ifndef ESP_EXEC_CPU_SUMS_H
#define ESP_EXEC_CPU_SUMS_H

#include <stdint.h>

double esp_i_cpu_sum(int64_t n, const float *x);
double esp_i_cpu_sum_squares(int64_t n, const float *x);
double esp_i_cpu_dot(int64_t n, const float *x, const float *y);
/* Sums of (x - shift)^2, (x - shift) y, (x - shift) y z. */
double esp_i_cpu_shifted_squares(int64_t n, const float *x, float shift);
double esp_i_cpu_shifted_dot(int64_t n, const float *x, float shift, const float *y);
double esp_i_cpu_shifted_dot3(int64_t n, const float *x, float shift, const float *y,
                              const float *z);
/* sum[i] += x[i]; square[i] += x[i]^2 (NULL: not wanted) */
void esp_i_cpu_sum_columns(int64_t n, const float *x, double *sum, double *square);
/* The largest, or NaN if there is one; -INFINITY of none. */
float esp_i_cpu_largest(int64_t n, const float *x);

#endif
