/* Softmax cross-entropy of rows x[r, v] with integer labels. */
#include "exec/cpu/fast.h"
#include "exec/cpu/functions.h"
#include "exec/cpu/sums.h"
#include "exec/values.h"

#include <string.h>

enum { TILE = 512 };

ESP_I_VECTOR static void exp_row(int64_t n, const float *x, float top, float *y)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = esp_i_exp_below(x[i] - top);
}

ESP_I_VECTOR static void affine_row(int64_t n, float factor, float shift, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] * factor + shift;
}

static int64_t classes_of(const esp_i_cpu_kernel_t *kernel)
{
    const esp_i_local_t *x = esp_i_cpu_in(kernel, 0);
    return x->global[x->global_rank - 1];
}

/* The class that the label of a row means, or -1. */
static int64_t class_of(const esp_i_cpu_kernel_t *kernel, int64_t row, int64_t v)
{
    const esp_dtype_t dtype = esp_i_cpu_in(kernel, 1)->dtype;
    const char *labels = esp_i_cpu_data(kernel, 1);
    double label;
    esp_i_values_load(dtype, 1, labels + row * esp_dtype_bytes(dtype), &label);
    if (label == (double)kernel->call->attr->xent.ignore || !(label >= 0 && label < (double)v))
        return -1;
    return (int64_t)label;
}

static double exp_sum(int64_t v, const float *x, float top)
{
    float tile[TILE];
    double sum = 0;
    for (int64_t at = 0; at < v; at += TILE) {
        const int64_t m = esp_i_min_i64(v - at, TILE);
        exp_row(m, x + at, top, tile);
        sum += esp_i_cpu_sum(m, tile);
    }
    return sum;
}

static void xent_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const int64_t v = classes_of(kernel), rows = esp_i_cpu_out(kernel, 0)->elements;
    const double e = kernel->call->attr->xent.smoothing;
    float *loss = esp_i_cpu_data(kernel, 2);
    (void)moment;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t label = class_of(kernel, r, v);
        const float *x = (const float *)esp_i_cpu_data(kernel, 0) + r * v;
        loss[r] = 0;
        if (label < 0)
            continue;
        const float top = esp_i_cpu_largest(v, x);
        const double total = (double)top + log(exp_sum(v, x, top));
        double value = (1 - e) * (total - (double)x[label]);
        if (e > 0)
            value += e * (total - esp_i_cpu_sum(v, x) / (double)v);
        loss[r] = (float)value;
    }
}

/* dx = dloss (softmax(x) - target) */
static void grad_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const int64_t v = classes_of(kernel), rows = esp_i_cpu_in(kernel, 2)->elements;
    const double e = kernel->call->attr->xent.smoothing;
    const float *dloss = esp_i_cpu_data(kernel, 2);
    (void)moment;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t label = class_of(kernel, r, v);
        const float *x = (const float *)esp_i_cpu_data(kernel, 0) + r * v;
        float *dx = (float *)esp_i_cpu_data(kernel, 3) + r * v;
        if (label < 0) {
            memset(dx, 0, (size_t)v * sizeof *dx);
            continue;
        }
        exp_row(v, x, esp_i_cpu_largest(v, x), dx);
        const double scale = (double)dloss[r], sum = esp_i_cpu_sum(v, dx);
        const double at_label = (double)dx[label] / sum - (1 - e) - e / (double)v;
        affine_row(v, (float)(scale / sum), (float)(-scale * e / (double)v), dx);
        dx[label] = (float)(scale * at_label);
    }
}

esp_status_t esp_i_cpu_XENT(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    (void)cpu;
    (void)diag;
    kernel->run = xent_run;
    return ESP_OK;
}

esp_status_t esp_i_cpu_XENT_GRAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    (void)cpu;
    (void)diag;
    kernel->run = grad_run;
    return ESP_OK;
}
