/*
 * POOL and POOL_GRAD. A block of positions in a row of y is folded over the taps of the window:
 * each tap is a run of x, bounded so that it is not in the padding.
 *
 * The gradient of a maximum goes to the first element, in row-major order, that holds it; it is
 * found again in x.
 */
#include "exec/cpu/fast.h"
#include "exec/vector.h"
#include "graph/kinds/window.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LAST = ESP_MAX_SPATIAL - 1, BLOCK = 128 };

typedef struct range {
    int64_t from, to;
} range_t;

typedef struct pool {
    esp_i_geometry_t space;
    int64_t planes;
    bool is_max, count_padding;
    range_t *row; /* per tap of the last dimension: positions at which it is not in the padding */
} pool_t;

/* A block of positions of one row, and the taps of the other dimensions that are inside x there. */
typedef struct block {
    int64_t first, n;     /* along the last dimension */
    range_t tap[LAST];    /* of dimensions 0 and 1 */
    int64_t origin;       /* element of x under tap 0 of position 0 */
    float value[BLOCK];   /* maximum, sum, or what each tap of the gradient gets */
    int32_t at[BLOCK];    /* of the maximum, from the tap 0 of its position on; -1: none */
    int32_t count[BLOCK]; /* taps that are not in the padding, of the last dimension */
} block_t;

/* ---- runs -------------------------------------------------------------------------------- */

/* Ties go to the tap that came first. */
ESP_I_VECTOR static void run_top(int64_t n, const float *x, int64_t step, int32_t offset,
                                 float *value, int32_t *at)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i * step];
        const bool better = (v > value[i]) | (at[i] < 0);
        value[i] = better ? v : value[i];
        at[i] = better ? offset : at[i];
    }
}

ESP_I_VECTOR static void run_sum(int64_t n, const float *x, int64_t step, float *value)
{
    for (int64_t i = 0; i < n; i++)
        value[i] += x[i * step];
}

ESP_I_VECTOR static void run_spread(int64_t n, const float *value, int64_t step, float *dx)
{
    if (step == 1)
        for (int64_t i = 0; i < n; i++)
            dx[i] += value[i];
    else
        for (int64_t i = 0; i < n; i++)
            dx[i * step] += value[i];
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* Taps of dimension d that are inside at position `at`. */
static range_t taps_at(const esp_i_geometry_t *space, int32_t d, int64_t at)
{
    const int64_t start = at * space->stride[d] - space->pad_lo[d], step = space->dilation[d];
    const int64_t from = start >= 0 ? 0 : esp_i_ceil_div(-start, step);
    const int64_t past = start >= space->large[d] ? 0 : (space->large[d] - 1 - start) / step + 1;
    return (range_t){from, esp_i_min_i64(past, space->kernel[d])};
}

/* Positions along dimension d at which tap `tap` is inside. */
static range_t positions_of(const esp_i_geometry_t *space, int32_t d, int64_t tap)
{
    const int64_t shift = tap * space->dilation[d] - space->pad_lo[d], step = space->stride[d];
    const int64_t from = shift >= 0 ? 0 : esp_i_ceil_div(-shift, step);
    const int64_t past = shift >= space->large[d] ? 0 : (space->large[d] - 1 - shift) / step + 1;
    return (range_t){from, esp_i_min_i64(past, space->small[d])};
}

static void block_begin(const pool_t *pool, int64_t i, int64_t j, int64_t first, block_t *block)
{
    const esp_i_geometry_t *space = &pool->space;
    block->first = first;
    block->n = esp_i_min_i64(BLOCK, space->small[LAST] - first);
    block->tap[0] = taps_at(space, 0, i);
    block->tap[1] = taps_at(space, 1, j);
    block->origin = ((i * space->stride[0] - space->pad_lo[0]) * space->large[1] +
                     j * space->stride[1] - space->pad_lo[1]) *
                        space->large[LAST] -
                    space->pad_lo[LAST];
    memset(block->count, 0, sizeof block->count);
    for (int64_t tap = 0; tap < space->kernel[LAST]; tap++)
        for (int64_t k = esp_i_max_i64(pool->row[tap].from - first, 0);
             k < esp_i_min_i64(pool->row[tap].to - first, block->n); k++)
            block->count[k]++;
}

typedef enum fold { TOP, SUM, SPREAD } fold_t;

/* All taps of a block, in row-major order. x: of the plane; SPREAD adds to it. */
static void block_fold(const pool_t *pool, fold_t fold, float *x, block_t *block)
{
    const esp_i_geometry_t *space = &pool->space;
    const int64_t step = space->stride[LAST];
    for (int64_t t = block->tap[0].from; t < block->tap[0].to; t++)
        for (int64_t u = block->tap[1].from; u < block->tap[1].to; u++)
            for (int64_t v = 0; v < space->kernel[LAST]; v++) {
                const int64_t from = esp_i_max_i64(pool->row[v].from - block->first, 0);
                const int64_t n = esp_i_min_i64(pool->row[v].to - block->first, block->n) - from;
                const int64_t offset =
                    (t * space->dilation[0] * space->large[1] + u * space->dilation[1]) *
                        space->large[LAST] +
                    v * space->dilation[LAST];
                if (n <= 0)
                    continue;
                float *run = x + block->origin + offset + (block->first + from) * step;
                if (fold == TOP)
                    run_top(n, run, step, (int32_t)offset, block->value + from, block->at + from);
                else if (fold == SUM)
                    run_sum(n, run, step, block->value + from);
                else
                    run_spread(n, block->value + from, step, run);
            }
}

/* What an average at position k of the block is divided by. */
static float divisor(const pool_t *pool, const block_t *block, int64_t k)
{
    const int64_t rows = esp_i_max_i64(block->tap[0].to - block->tap[0].from, 0) *
                         esp_i_max_i64(block->tap[1].to - block->tap[1].from, 0);
    const int64_t n = pool->count_padding ? pool->space.kernel_elements : rows * block->count[k];
    return n > 0 ? (float)n : 1;
}

static void block_top(const pool_t *pool, const float *x, block_t *block)
{
    for (int64_t k = 0; k < block->n; k++) {
        block->value[k] = -FLT_MAX;
        block->at[k] = -1;
    }
    block_fold(pool, TOP, (float *)(uintptr_t)x, block); /* reads only */
}

static void pool_block(const pool_t *pool, const float *x, float *y, block_t *block)
{
    if (pool->is_max) {
        block_top(pool, x, block);
    } else {
        memset(block->value, 0, sizeof block->value);
        block_fold(pool, SUM, (float *)(uintptr_t)x, block); /* reads only */
        for (int64_t k = 0; k < block->n; k++)
            block->value[k] /= divisor(pool, block, k);
    }
    memcpy(y, block->value, (size_t)block->n * sizeof *y);
}

static void grad_block(const pool_t *pool, const float *x, const float *dy, float *dx,
                       block_t *block)
{
    const int64_t step = pool->space.stride[LAST];
    if (pool->is_max) {
        block_top(pool, x, block);
        for (int64_t k = 0; k < block->n; k++)
            if (block->at[k] >= 0)
                dx[block->origin + block->at[k] + (block->first + k) * step] += dy[k];
        return;
    }
    for (int64_t k = 0; k < block->n; k++)
        block->value[k] = dy[k] / divisor(pool, block, k);
    block_fold(pool, SPREAD, dx, block);
}

/* ---- planes ------------------------------------------------------------------------------ */

/* dx is NULL: POOL. x is NULL: the gradient of an average. */
static void plane(const pool_t *pool, const float *x, float *y, const float *dy, float *dx)
{
    const int64_t *small = pool->space.small;
    block_t block;
    for (int64_t i = 0; i < small[0]; i++)
        for (int64_t j = 0; j < small[1]; j++)
            for (int64_t k = 0; k < small[LAST]; k += BLOCK) {
                const int64_t at = (i * small[1] + j) * small[LAST] + k;
                block_begin(pool, i, j, k, &block);
                if (dx)
                    grad_block(pool, x, dy + at, dx, &block);
                else
                    pool_block(pool, x, y + at, &block);
            }
}

static void run_pool(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const pool_t *pool = kernel->state;
    const float *x = esp_i_cpu_data(kernel, 0);
    float *y = esp_i_cpu_data(kernel, 1);
    for (int64_t p = 0; p < pool->planes; p++)
        plane(pool, x + p * pool->space.large_elements, y + p * pool->space.small_elements, NULL,
              NULL);
}

static void run_grad(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const pool_t *pool = kernel->state;
    const int64_t large = pool->space.large_elements, small = pool->space.small_elements;
    const int32_t last = kernel->call->n_in - 1;
    const float *x = pool->is_max ? esp_i_cpu_data(kernel, 0) : NULL;
    const float *dy = esp_i_cpu_data(kernel, last);
    float *dx = esp_i_cpu_data(kernel, last + 1);
    memset(dx, 0, (size_t)(pool->planes * large) * sizeof *dx);
    for (int64_t p = 0; p < pool->planes; p++)
        plane(pool, x ? x + p * large : NULL, NULL, dy + p * small, dx + p * large);
}

/* ---- preparing --------------------------------------------------------------------------- */

static esp_status_t prepare(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel,
                            const esp_i_local_t *large, const esp_i_local_t *small,
                            esp_diag_t *diag)
{
    const esp_attr_t *attr = kernel->call->attr;
    ESP_TRY(esp_i_cpu_float32(kernel, 0, diag));
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(pool_t), diag));
    pool_t *pool = kernel->state;
    pool->is_max = attr->pool.is_max != 0;
    pool->count_padding = attr->pool.count_padding != 0;
    /* spatial extents are never split */
    esp_i_geometry(&attr->pool.window, large->global_rank, large->global, small->global,
                   &pool->space);
    if (pool->space.large_elements > INT32_MAX)
        return esp_i_fail(diag, ESP_ERR_UNSUPPORTED, "op %s: planes of %lld elements",
                          kernel->call->name, (long long)pool->space.large_elements);
    if (pool->space.large_elements > 0)
        pool->planes = large->elements / pool->space.large_elements;
    pool->row = esp_i_arena_alloc(&cpu->state, pool->space.kernel[LAST], sizeof *pool->row);
    if (!pool->row)
        return esp_i_nomem(diag);
    for (int64_t tap = 0; tap < pool->space.kernel[LAST]; tap++)
        pool->row[tap] = positions_of(&pool->space, LAST, tap);
    return ESP_OK;
}

esp_status_t esp_i_cpu_POOL(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = run_pool;
    return prepare(cpu, kernel, esp_i_cpu_in(kernel, 0), esp_i_cpu_out(kernel, 0), diag);
}

esp_status_t esp_i_cpu_POOL_GRAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = run_grad;
    return prepare(cpu, kernel, esp_i_cpu_out(kernel, 0),
                   esp_i_cpu_in(kernel, kernel->call->n_in - 1), diag);
}
