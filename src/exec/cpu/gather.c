/*
 * GATHER and SCATTER_ADD: rows of `after` elements between x[before, n, after] and y[before, k,
 * after]. Indices outside give zeros and take nothing, as in the reference.
 */
#include "exec/cpu/fast.h"
#include "exec/values.h"
#include "exec/vector.h"
#include "graph/kinds/operand.h"

#include <string.h>

enum { TILE = 512 }; /* indices that are read at a time */

typedef struct plan {
    int64_t before, n, after, k;
} plan_t;

/* `rows` is the number of the operand [before, n, after]. */
static esp_status_t make_plan(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, int32_t rows,
                              esp_diag_t *diag)
{
    const esp_i_buffer_t x = esp_i_cpu_buffer(kernel, rows);
    const int32_t axis = kernel->call->attr->axis.axis;
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(plan_t), diag));
    *(plan_t *)kernel->state = (plan_t){.before = esp_i_operand_span(&x, 0, axis),
                                        .n = x.global[axis],
                                        .after = esp_i_operand_span(&x, axis + 1, x.global_rank),
                                        .k = esp_i_cpu_in(kernel, 1)->elements};
    return ESP_OK;
}

/* The rows that indices [at, at + m) mean; -1: none. */
static void rows_of(const esp_i_cpu_kernel_t *kernel, int64_t at, int64_t m, int64_t *row_out)
{
    const plan_t *plan = kernel->state;
    const esp_dtype_t dtype = esp_i_cpu_in(kernel, 1)->dtype;
    const char *indices = esp_i_cpu_data(kernel, 1);
    double value[TILE];
    esp_i_values_load(dtype, m, indices + at * esp_dtype_bytes(dtype), value);
    for (int64_t i = 0; i < m; i++) {
        const bool inside = value[i] >= -(double)plan->n && value[i] < (double)plan->n;
        const int64_t row = inside ? (int64_t)value[i] : -1;
        row_out[i] = inside && row < 0 ? row + plan->n : row;
    }
}

static void gather_rows(const plan_t *plan, int64_t size, int64_t m, const int64_t *row,
                        const char *x, char *y)
{
    const size_t bytes = (size_t)(plan->after * size);
    if (bytes == 4) {
        for (int64_t i = 0; i < m; i++)
            memcpy(y + i * 4, row[i] < 0 ? "\0\0\0" : x + row[i] * 4, 4);
        return;
    }
    for (int64_t i = 0; i < m; i++) {
        char *to = y + (size_t)i * bytes;
        if (row[i] < 0)
            memset(to, 0, bytes);
        else
            memcpy(to, x + (size_t)row[i] * bytes, bytes);
    }
}

static void gather_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const int64_t size = esp_dtype_bytes(esp_i_cpu_out(kernel, 0)->dtype);
    const char *x = esp_i_cpu_data(kernel, 0);
    char *y = esp_i_cpu_data(kernel, 2);
    int64_t row[TILE];
    (void)moment;
    for (int64_t at = 0; at < plan->k; at += TILE) {
        const int64_t m = esp_i_min_i64(plan->k - at, TILE);
        rows_of(kernel, at, m, row);
        for (int64_t b = 0; b < plan->before; b++)
            gather_rows(plan, size, m, row, x + b * plan->n * plan->after * size,
                        y + (b * plan->k + at) * plan->after * size);
    }
}

esp_status_t esp_i_cpu_GATHER(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = gather_run;
    return make_plan(cpu, kernel, 0, diag);
}

ESP_I_VECTOR static void add_row(int64_t n, const float *from, float *to)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void scatter_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const float *dy = esp_i_cpu_data(kernel, 0);
    float *dx = esp_i_cpu_data(kernel, 2);
    int64_t row[TILE];
    (void)moment;
    memset(dx, 0, (size_t)(plan->before * plan->n * plan->after) * sizeof *dx);
    for (int64_t at = 0; at < plan->k; at += TILE) {
        const int64_t m = esp_i_min_i64(plan->k - at, TILE);
        rows_of(kernel, at, m, row);
        for (int64_t b = 0; b < plan->before; b++)
            for (int64_t i = 0; i < m; i++)
                if (row[i] >= 0)
                    add_row(plan->after, dy + (b * plan->k + at + i) * plan->after,
                            dx + (b * plan->n + row[i]) * plan->after);
    }
}

esp_status_t esp_i_cpu_SCATTER_ADD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = scatter_run;
    return make_plan(cpu, kernel, 2, diag);
}
