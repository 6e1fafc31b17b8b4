/*
 * CONTRACT: y = sum of a b over strided loops (esp_i_contract_walk). Three ways, of which the one
 * that is estimated to be fastest is taken:
 *
 *   product  one loop of a and y, one of b and y, one of a and b are a matrix product in place;
 *            all other loops are around it
 *   vector   one loop is a dot product or an element-wise product; all others are around it
 *   tiles    loops of the same operands are one; tiles of a and b are packed on the stack,
 *            multiplied there, and the result is scattered into y
 */
#include "exec/cpu/contract.h"

#include <math.h>
#include <string.h>

enum { A, B, Y };

typedef struct loop {
    int64_t extent, stride[3];
} loop_t;

/* The operands that have a loop, as bits. */
enum { IN_A = 1, IN_B = 2, IN_Y = 4 };
enum { ROWS = IN_A | IN_Y, COLUMNS = IN_B | IN_Y, SUMS = IN_A | IN_B, BATCH = IN_A | IN_B | IN_Y };

typedef struct contract {
    esp_i_walk_t outer; /* the loops around */
    bool clear;         /* y is added to: starts at 0 */
    /* product: rows are of operand `first`. vector: rows is the loop. */
    int32_t first;
    loop_t rows, columns, sums;
    esp_i_tiles_t tiles;
} contract_t;

static int32_t members(const esp_i_walk_t *walk, int32_t level)
{
    int32_t set = 0;
    for (int32_t o = A; o <= Y; o++)
        set |= walk->stride[level][o] > 0 ? 1 << o : 0;
    return set;
}

static loop_t loop_at(const esp_i_walk_t *walk, int32_t level)
{
    loop_t loop = {.extent = 1};
    if (level < 0)
        return loop;
    loop.extent = walk->extent[level];
    memcpy(loop.stride, walk->stride[level], sizeof loop.stride);
    return loop;
}

/* The walk without these levels, and without those of extent 1; whether one of the rest sums. */
static esp_i_walk_t around(const esp_i_walk_t *walk, const int32_t level[3], bool *sums_out)
{
    esp_i_walk_t outer = {0};
    *sums_out = false;
    for (int32_t l = 0; l < walk->n; l++) {
        if (walk->extent[l] == 1 || l == level[0] || l == level[1] || l == level[2])
            continue;
        outer.extent[outer.n] = walk->extent[l];
        memcpy(outer.stride[outer.n++], walk->stride[l], sizeof walk->stride[l]);
        *sums_out = *sums_out || walk->stride[l][Y] == 0;
    }
    return outer;
}

static double rounds(const esp_i_walk_t *walk)
{
    double n = 1;
    for (int32_t l = 0; l < walk->n; l++)
        n *= (double)walk->extent[l];
    return n;
}

/* ---- product ----------------------------------------------------------------------------- */

/* A matrix in place: rows and columns, and whether it is stored the other way round. */
typedef struct matrix {
    bool fits, transposed;
    int64_t lead;
} matrix_t;

static matrix_t matrix_of(const loop_t *rows, const loop_t *columns, int32_t operand)
{
    int64_t by_row = rows->extent > 1 ? rows->stride[operand] : columns->extent;
    int64_t by_column = columns->extent > 1 ? columns->stride[operand] : rows->extent;
    matrix_t matrix = {.fits = true};
    if (columns->extent == 1 || columns->stride[operand] == 1) {
        matrix.lead = by_row;
    } else {
        matrix.fits = rows->extent == 1 || rows->stride[operand] == 1;
        matrix.transposed = true;
        matrix.lead = by_column;
    }
    int64_t width = matrix.transposed ? rows->extent : columns->extent;
    matrix.fits = matrix.fits && matrix.lead >= width && matrix.lead <= INT32_MAX;
    return matrix;
}

/* ns of one matrix product: 100 GFLOP/s, less where an extent is small. */
static double product_ns(double m, double n, double k)
{
    if (m == 1 || n == 1)
        return 100 + 0.3 * m * n * k;
    return 150 + 0.02 * (m + 6) * (n + 12) * (k + 16);
}

static void run_product(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const contract_t *contract = kernel->state;
    const loop_t *m = &contract->rows, *n = &contract->columns, *k = &contract->sums;
    const int32_t p = contract->first, q = 1 - p;
    const matrix_t left = matrix_of(m, k, p), right = matrix_of(k, n, q), y = matrix_of(m, n, Y);
    float *out = esp_i_cpu_data(kernel, Y);
    const float *in[2] = {esp_i_cpu_data(kernel, A), esp_i_cpu_data(kernel, B)};
    if (contract->clear)
        memset(out, 0, (size_t)esp_i_cpu_out(kernel, 0)->elements * sizeof *out);
    esp_i_walk_t walk = contract->outer;
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk))
        esp_i_cpu_gemm(left.transposed, right.transposed, m->extent, n->extent, k->extent, 1,
                       in[p] + walk.offset[p], left.lead, in[q] + walk.offset[q], right.lead,
                       contract->clear ? 1 : 0, out + walk.offset[Y], y.lead);
}

/* Takes these levels (-1: none) as rows, columns and sums if they fit and are better. */
static double try_product(const esp_i_walk_t *walk, const int32_t level[3], int32_t first,
                          double best, contract_t *contract)
{
    const loop_t m = loop_at(walk, level[0]), n = loop_at(walk, level[1]),
                 k = loop_at(walk, level[2]);
    const matrix_t y = matrix_of(&m, &n, Y);
    if (!matrix_of(&m, &k, first).fits || !matrix_of(&k, &n, 1 - first).fits || !y.fits ||
        y.transposed)
        return best;
    bool sums;
    const esp_i_walk_t outer = around(walk, level, &sums);
    const double ns =
        rounds(&outer) * product_ns((double)m.extent, (double)n.extent, (double)k.extent);
    if (ns >= best)
        return best;
    contract->outer = outer;
    contract->clear = sums;
    contract->first = first;
    contract->rows = m;
    contract->columns = n;
    contract->sums = k;
    return ns;
}

static double plan_product(const esp_i_walk_t *walk, double best, contract_t *contract)
{
    for (int32_t first = A; first <= B; first++)
        for (int32_t m = -1; m < walk->n; m++)
            for (int32_t n = -1; n < walk->n; n++)
                for (int32_t k = -1; k < walk->n; k++)
                    if ((m < 0 || members(walk, m) == (first == A ? ROWS : COLUMNS)) &&
                        (n < 0 || members(walk, n) == (first == A ? COLUMNS : ROWS)) &&
                        (k < 0 || members(walk, k) == SUMS))
                        best = try_product(walk, (int32_t[3]){m, n, k}, first, best, contract);
    return best;
}

/* ---- vector ------------------------------------------------------------------------------ */

enum { LANES = 16 };

ESP_I_VECTOR static float dot(int64_t n, const float *a, int64_t a_step, const float *b,
                              int64_t b_step)
{
    float lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    if (a_step == 1 && b_step == 1)
        for (; i + LANES <= n; i += LANES)
            for (int32_t l = 0; l < LANES; l++)
                lane[l] += a[i + l] * b[i + l];
    else if (a_step + b_step == 1) /* one of them is a number */
        for (const float *x = a_step ? a : b; i + LANES <= n; i += LANES)
            for (int32_t l = 0; l < LANES; l++)
                lane[l] += x[i + l];
    if (i > 0 && a_step + b_step == 1)
        for (int32_t l = 0; l < LANES; l++)
            lane[l] *= a_step ? *b : *a;
    for (; i < n; i++)
        lane[i % LANES] += a[i * a_step] * b[i * b_step];
    for (int32_t l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

/* y += a b, element by element */
ESP_I_VECTOR static void multiply(const loop_t *loop, const float *a, const float *b, float *y)
{
    const int64_t n = loop->extent, sa = loop->stride[A], sb = loop->stride[B],
                  sy = loop->stride[Y];
    if (sy == 1 && sa == 1 && sb == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] += a[i] * b[i];
    else if (sy == 1 && sa + sb == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] += sa ? a[i] * *b : *a * b[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i * sy] += a[i * sa] * b[i * sb];
}

static void run_vector(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const contract_t *contract = kernel->state;
    const loop_t *loop = &contract->rows;
    const float *a = esp_i_cpu_data(kernel, A), *b = esp_i_cpu_data(kernel, B);
    float *y = esp_i_cpu_data(kernel, Y);
    memset(y, 0, (size_t)esp_i_cpu_out(kernel, 0)->elements * sizeof *y);
    esp_i_walk_t walk = contract->outer;
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk)) {
        const float *at_a = a + walk.offset[A], *at_b = b + walk.offset[B];
        if (loop->stride[Y] == 0)
            y[walk.offset[Y]] += dot(loop->extent, at_a, loop->stride[A], at_b, loop->stride[B]);
        else
            multiply(loop, at_a, at_b, y + walk.offset[Y]);
    }
}

static double plan_vector(const esp_i_walk_t *walk, double best, contract_t *contract)
{
    for (int32_t l = -1; l < walk->n; l++) {
        const loop_t loop = loop_at(walk, l);
        bool sums, even = true;
        for (int32_t o = A; o <= Y; o++)
            even = even && loop.stride[o] <= 1;
        const esp_i_walk_t outer = around(walk, (int32_t[3]){l, -1, -1}, &sums);
        const double ns = rounds(&outer) * (10 + (double)loop.extent * (even ? 0.2 : 1));
        if (ns >= best)
            continue;
        best = ns;
        contract->outer = outer;
        contract->rows = loop;
    }
    return best;
}

/* ---- tiles ------------------------------------------------------------------------------- */

static void run_tiles(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const contract_t *contract = kernel->state;
    esp_i_walk_t walk = contract->outer;
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk))
        esp_i_cpu_tiles(&contract->tiles, (const float *)esp_i_cpu_data(kernel, A) + walk.offset[A],
                        (const float *)esp_i_cpu_data(kernel, B) + walk.offset[B],
                        (float *)esp_i_cpu_data(kernel, Y) + walk.offset[Y]);
}

static double plan_tiles(const esp_i_walk_t *walk, double best, contract_t *contract)
{
    esp_i_tiles_t tiles = {0};
    esp_i_walk_t batch = {0};
    for (int32_t l = 0; l < walk->n; l++) {
        if (walk->extent[l] == 1)
            continue;
        const int32_t set = members(walk, l);
        esp_i_walk_t *to = set == BATCH     ? &batch
                           : set == ROWS    ? &tiles.rows
                           : set == COLUMNS ? &tiles.columns
                                            : &tiles.sums;
        to->extent[to->n] = walk->extent[l];
        memcpy(to->stride[to->n++], walk->stride[l], sizeof walk->stride[l]);
    }
    const double m = rounds(&tiles.rows), n = rounds(&tiles.columns), k = rounds(&tiles.sums);
    const double moved = m * k * ceil(n / ESP_I_TILE_COLUMNS) + k * n * ceil(m / ESP_I_TILE_ROWS);
    const double ns = rounds(&batch) * (500 + product_ns(m, n, k) + moved + 2 * (m + n + k));
    if (ns >= best)
        return best;
    contract->outer = batch;
    contract->tiles = tiles;
    return ns;
}

/* ---- preparing --------------------------------------------------------------------------- */

static void run_nothing(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const esp_i_local_t *y = esp_i_cpu_out(kernel, 0);
    if (y->elements > 0)
        memset(esp_i_cpu_data(kernel, Y), 0, (size_t)y->elements * sizeof(float));
}

esp_status_t esp_i_cpu_CONTRACT(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    ESP_TRY(esp_i_cpu_float32(kernel, 0, diag));
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(contract_t), diag));
    const esp_i_buffer_t a = esp_i_cpu_buffer(kernel, A), b = esp_i_cpu_buffer(kernel, B);
    esp_i_walk_t walk;
    esp_i_contract_walk(kernel->call->attr, &a, &b, &walk);
    kernel->run = run_nothing;
    if (!esp_i_walk_begin(&walk))
        return ESP_OK;
    contract_t *contract = kernel->state;
    const double product = plan_product(&walk, INFINITY, contract);
    const double vector = plan_vector(&walk, product, contract);
    const double tiles = plan_tiles(&walk, vector, contract);
    kernel->run = tiles < vector ? run_tiles : vector < product ? run_vector : run_product;
    return ESP_OK;
}
