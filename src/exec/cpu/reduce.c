/*
 * REDUCE. Loops that stay are outside, those that are reduced inside. Where the innermost loop of x
 * is reduced, each result is a sum of rows; else rows are added up, a tile of columns at a time.
 * Accumulators are double.
 */
#include "exec/cpu/fast.h"
#include "exec/cpu/sums.h"
#include "exec/values.h"
#include "graph/kinds/nest.h"
#include "graph/kinds/reduce.h"

#include <string.h>

enum { X, Y, TILE = 256 };

typedef struct plan {
    esp_i_walk_t kept, reduced; /* the innermost loop of x is in neither */
    int64_t row;                /* its extent */
    bool by_rows;               /* it is reduced */
    bool empty;                 /* y has no element */
} plan_t;

/* to[i] = combined with element i of a row. */
static void add_row(esp_reduce_t code, esp_dtype_t dtype, int64_t n, const void *row, double *to)
{
    double value[TILE];
    if (dtype == ESP_DTYPE_F32 && code == ESP_REDUCE_SUM) {
        esp_i_cpu_sum_columns(n, row, to, NULL);
        return;
    }
    esp_i_values_load(dtype, n, row, value);
    for (int64_t i = 0; i < n; i++)
        to[i] = esp_i_reduce_step(code, to[i], value[i]);
}

/* `sum` combined with a whole row. */
static double add_up(esp_reduce_t code, esp_dtype_t dtype, int64_t n, const char *row, double sum)
{
    double value[TILE];
    const int64_t size = esp_dtype_bytes(dtype);
    if (dtype == ESP_DTYPE_F32 && code == ESP_REDUCE_SUM)
        return sum + esp_i_cpu_sum(n, (const float *)(const void *)row);
    if (dtype == ESP_DTYPE_F32 && code == ESP_REDUCE_SUMSQ)
        return sum + esp_i_cpu_sum_squares(n, (const float *)(const void *)row);
    if (dtype == ESP_DTYPE_F32 && code == ESP_REDUCE_MAX)
        return esp_i_reduce_step(code, sum,
                                 (double)esp_i_cpu_largest(n, (const float *)(const void *)row));
    for (int64_t at = 0; at < n; at += TILE) {
        const int64_t m = esp_i_min_i64(n - at, TILE);
        esp_i_values_load(dtype, m, row + at * size, value);
        for (int64_t i = 0; i < m; i++)
            sum = esp_i_reduce_step(code, sum, value[i]);
    }
    return sum;
}

/* What x[at ..] is reduced to, at most TILE elements of it. */
static void reduce_tile(const esp_i_cpu_kernel_t *kernel, int64_t at, int64_t n, double *to)
{
    const plan_t *plan = kernel->state;
    const esp_reduce_t code = kernel->call->attr->reduce.code;
    const esp_dtype_t dtype = esp_i_cpu_in(kernel, 0)->dtype;
    const char *x = (const char *)esp_i_cpu_data(kernel, 0) + at * esp_dtype_bytes(dtype);
    esp_i_walk_t walk = plan->reduced;
    for (int64_t i = 0; i < n; i++)
        to[i] = esp_i_reduce_start(code);
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk)) {
        const char *row = x + walk.offset[X] * esp_dtype_bytes(dtype);
        if (plan->by_rows)
            to[0] = add_up(code, dtype, plan->row, row, to[0]);
        else
            add_row(code, dtype, n, row, to);
    }
}

static void reduce_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const esp_dtype_t dtype = esp_i_cpu_out(kernel, 0)->dtype;
    const int64_t columns = plan->by_rows ? 1 : plan->row;
    char *y = esp_i_cpu_data(kernel, 1);
    double tile[TILE];
    esp_i_walk_t walk = plan->kept;
    (void)moment;
    if (plan->empty)
        return;
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk)) {
        for (int64_t at = 0; at < columns; at += TILE) {
            const int64_t n = esp_i_min_i64(columns - at, TILE);
            reduce_tile(kernel, walk.offset[X] + at, n, tile);
            esp_i_values_store(dtype, n, tile, y + (walk.offset[Y] + at) * esp_dtype_bytes(dtype));
        }
    }
}

static void push_level(esp_i_walk_t *walk, const esp_i_walk_t *from, int32_t level)
{
    walk->extent[walk->n] = from->extent[level];
    memcpy(walk->stride[walk->n], from->stride[level], sizeof from->stride[level]);
    walk->n++;
}

esp_status_t esp_i_cpu_REDUCE(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_local_t *x = esp_i_cpu_in(kernel, 0);
    const esp_i_buffer_t split = esp_i_cpu_buffer(kernel, 0);
    esp_i_nest_t nest = {.n_operands = 2};
    esp_i_walk_t all;
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(plan_t), diag));
    plan_t *plan = kernel->state;
    for (int32_t a = 0; a < x->global_rank; a++) {
        const int32_t loop = esp_i_nest_loop(&nest, x->global[a]);
        esp_i_nest_axis(&nest, X, loop);
        if (!(kernel->call->attr->reduce.axes >> a & 1))
            esp_i_nest_axis(&nest, Y, loop);
    }
    esp_i_nest_merge(&nest);
    esp_i_nest_split(&nest, X, &split);
    esp_i_nest_walk(&nest, &all);
    const int32_t last = all.n - 1;
    plan->row = last < 0 ? 1 : all.extent[last];
    plan->by_rows = last >= 0 && all.stride[last][Y] == 0;
    for (int32_t l = 0; l < last; l++)
        push_level(all.stride[l][Y] == 0 ? &plan->reduced : &plan->kept, &all, l);
    plan->empty = esp_i_cpu_out(kernel, 0)->elements == 0;
    kernel->run = reduce_run;
    return ESP_OK;
}
