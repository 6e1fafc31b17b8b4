/*
 * CAST, FILL, RANGE, RANDOM, DROPOUT: an element depends on its own position at most. Positions are
 * those in the global tensor, so a part holds the same numbers as the whole.
 */
#include "exec/cpu/copy.h"
#include "exec/values.h"
#include "exec/vector.h"

#include <math.h>
#include <string.h>

enum { TILE = 512 };

/* A part of a buffer whose elements are next to each other in the global tensor, too. */
typedef struct span {
    int64_t at, global, n;
} span_t;

/* Calls `make` for each span of output 0, at most TILE elements long. */
static void each_span(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment,
                      void (*make)(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment,
                                   span_t span))
{
    const esp_i_local_t *y = esp_i_cpu_out(kernel, 0);
    const bool split = y->view.extent > 0;
    const int64_t rows = split ? y->view.outer : 1;
    const int64_t n = split ? y->share * y->view.inner : y->elements;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t global = split ? (r * y->view.extent + y->offset) * y->view.inner : 0;
        for (int64_t at = 0; at < n; at += TILE)
            make(kernel, moment, (span_t){r * n + at, global + at, esp_i_min_i64(n - at, TILE)});
    }
}

static void store(const esp_i_cpu_kernel_t *kernel, span_t span, const double *value)
{
    const esp_dtype_t dtype = esp_i_cpu_out(kernel, 0)->dtype;
    char *y = esp_i_cpu_data(kernel, kernel->call->n_in);
    esp_i_values_store(dtype, span.n, value, y + span.at * esp_dtype_bytes(dtype));
}

/* ---- cast ---------------------------------------------------------------------------------- */

static double limit(double x, double low, double high)
{
    return isnan(x) ? 0 : fmin(fmax(trunc(x), low), high);
}

/* Integers: toward zero, the nearest there is. */
static void saturate(esp_dtype_t dtype, int64_t n, double *value)
{
    static const double low[ESP_DTYPE_COUNT] = {[ESP_DTYPE_I8] = -128,
                                                [ESP_DTYPE_I16] = -32768,
                                                [ESP_DTYPE_I32] = -0x1p31,
                                                [ESP_DTYPE_I64] = -0x1p53};
    static const double high[ESP_DTYPE_COUNT] = {[ESP_DTYPE_I8] = 127,
                                                 [ESP_DTYPE_U8] = 255,
                                                 [ESP_DTYPE_I16] = 32767,
                                                 [ESP_DTYPE_I32] = 0x1p31 - 1,
                                                 [ESP_DTYPE_I64] = 0x1p53};
    if (high[dtype] == 0)
        return;
    for (int64_t i = 0; i < n; i++)
        value[i] = limit(value[i], low[dtype], high[dtype]);
}

static void cast_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const esp_i_local_t *x = esp_i_cpu_in(kernel, 0), *y = esp_i_cpu_out(kernel, 0);
    const int64_t from_size = esp_dtype_bytes(x->dtype), to_size = esp_dtype_bytes(y->dtype);
    const char *from = esp_i_cpu_data(kernel, 0);
    char *to = esp_i_cpu_data(kernel, 1);
    double value[TILE];
    (void)moment;
    if (x->dtype == y->dtype) {
        memmove(to, from, (size_t)(y->elements * to_size));
        return;
    }
    for (int64_t at = 0; at < y->elements; at += TILE) {
        const int64_t n = esp_i_min_i64(y->elements - at, TILE);
        esp_i_values_load(x->dtype, n, from + at * from_size, value);
        saturate(y->dtype, n, value);
        esp_i_values_store(y->dtype, n, value, to + at * to_size);
    }
}

esp_status_t esp_i_cpu_CAST(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    (void)cpu;
    (void)diag;
    kernel->run = cast_run;
    return ESP_OK;
}

/* ---- fill and range ------------------------------------------------------------------------ */

static void fill_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const esp_i_local_t *y = esp_i_cpu_out(kernel, 0);
    (void)moment;
    esp_i_cpu_fill(y->dtype, y->elements, kernel->call->attr->shape.value,
                   esp_i_cpu_data(kernel, 0));
}

esp_status_t esp_i_cpu_FILL(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    (void)cpu;
    (void)diag;
    kernel->run = fill_run;
    return ESP_OK;
}

static void range_span(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment, span_t span)
{
    const esp_i_local_t *y = esp_i_cpu_out(kernel, 0);
    const esp_attr_t *attr = kernel->call->attr;
    int64_t after = 1;
    double value[TILE];
    (void)moment;
    for (int32_t a = attr->shape.axis + 1; a < y->global_rank; a++)
        after *= y->global[a];
    for (int64_t i = 0; i < span.n; i++) {
        const int64_t position = (span.global + i) / after % y->global[attr->shape.axis];
        value[i] = attr->shape.value + attr->shape.step * (double)position;
    }
    store(kernel, span, value);
}

static void range_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    each_span(kernel, moment, range_span);
}

esp_status_t esp_i_cpu_RANGE(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    (void)cpu;
    (void)diag;
    kernel->run = range_run;
    return ESP_OK;
}

/* ---- random -------------------------------------------------------------------------------- */

/* Box-Muller: elements 2i and 2i + 1 of the stream make one number. */
static void normal(const uint32_t *bits, int64_t n, double mean, double deviation, double *value)
{
    for (int64_t i = 0; i < n; i++) {
        const double radius = sqrt(-2 * log((bits[2 * i] + 0.5) * 0x1p-32));
        const double angle = 6.283185307179586 * (bits[2 * i + 1] * 0x1p-32);
        value[i] = mean + deviation * (radius * cos(angle));
    }
}

static void random_span(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment, span_t span)
{
    const esp_attr_t *attr = kernel->call->attr;
    const int64_t each = attr->shape.law == ESP_RANDOM_NORMAL ? 2 : 1;
    uint32_t bits[2 * TILE];
    double value[TILE];
    esp_i_draw(moment->seed, moment->step, (uint64_t)attr->shape.stream, span.global * each,
               span.n * each, bits);
    switch (attr->shape.law) {
    case ESP_RANDOM_UNIFORM:
        for (int64_t i = 0; i < span.n; i++)
            value[i] = attr->shape.value + attr->shape.step * (bits[i] * 0x1p-32);
        break;
    case ESP_RANDOM_NORMAL:
        normal(bits, span.n, attr->shape.value, attr->shape.step, value);
        break;
    case ESP_RANDOM_BERNOULLI:
        for (int64_t i = 0; i < span.n; i++)
            value[i] = bits[i] * 0x1p-32 < attr->shape.value;
        break;
    }
    store(kernel, span, value);
}

static void random_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    each_span(kernel, moment, random_span);
}

esp_status_t esp_i_cpu_RANDOM(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    (void)cpu;
    (void)diag;
    kernel->run = random_run;
    return ESP_OK;
}

/* ---- dropout ------------------------------------------------------------------------------- */

/* y = x * scale where the draw is at least `least`. */
ESP_I_VECTOR static void drop(int64_t n, const uint32_t *bits, uint32_t least, float scale,
                              const float *x, float *y)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = bits[i] >= least ? x[i] * scale : 0;
}

static void dropout_span(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment,
                         span_t span)
{
    const double p = kernel->call->attr->dropout.p;
    const double least = ceil(p * 0x1p32); /* exact; bits are kept from there on */
    const float *x = esp_i_cpu_data(kernel, 0);
    float *y = esp_i_cpu_data(kernel, 1);
    uint32_t bits[TILE];
    if (least >= 0x1p32) {
        memset(y + span.at, 0, (size_t)span.n * sizeof *y);
        return;
    }
    esp_i_draw(moment->seed, moment->step, (uint64_t)kernel->call->attr->dropout.stream,
               span.global, span.n, bits);
    drop(span.n, bits, (uint32_t)least, (float)(1 / (1 - p)), x + span.at, y + span.at);
}

static void dropout_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    each_span(kernel, moment, dropout_span);
}

esp_status_t esp_i_cpu_DROPOUT(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    (void)cpu;
    (void)diag;
    kernel->run = dropout_run;
    return ESP_OK;
}
