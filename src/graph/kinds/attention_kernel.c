/* The reference kernels of attention: row by row, every score computed each time it is needed. */
#include "graph/kinds/attention.h"

#include <math.h>

enum { Q = ESP_I_ATT_Q, K, V, MASK, Y, ROW, LAYOUTS };
enum { QUERY = ESP_I_ATT_QUERY, KEY, DEPTH, WIDTH, RUNS };
enum { MASK_IN = ESP_I_ATT_MASK_IN };
enum { G_Y = ESP_I_ATT_G_Y, G_TOP, G_SUM, G_DY, G_MASK };

/* ---- where things are -------------------------------------------------------------------- */

/* A split of run `run` in which this share has `local` of its extent. */
static void shrink(esp_i_att_t *att, int32_t run, int64_t local)
{
    const int64_t extent = att->extent[run];
    for (int32_t layout = 0; layout < LAYOUTS; layout++) {
        const int64_t inner = att->stride[run][layout];
        for (int32_t i = 0; inner > 0 && i < att->n; i++)
            if (att->stride[i][layout] >= extent * inner)
                att->stride[i][layout] = att->stride[i][layout] / extent * local;
    }
    att->extent[run] = local;
}

/* The run that the split of q falls on: part (a, b, c) of it. */
static void apply_split(esp_i_att_t *att, const esp_i_buffer_t *q)
{
    const esp_view_t *view = &q->view;
    if (view->extent == 0)
        return;
    const int64_t elements = esp_i_att_elements(att, Q);
    for (int32_t run = RUNS; run < att->n; run++) {
        const int64_t extent = att->extent[run], inner = att->stride[run][Q];
        const int64_t outer = elements / (extent * inner);
        if (view->outer % outer != 0 || view->inner % inner != 0)
            continue;
        const int64_t a = view->outer / outer, c = view->inner / inner;
        if (a * view->extent * c != extent)
            continue;
        shrink(att, run, a * q->share * c);
        return;
    }
}

esp_i_att_t esp_i_att_of(const esp_i_kernel_t *kernel, int32_t mask)
{
    const esp_i_buffer_t *in = kernel->in;
    const bool masked = mask < kernel->n_in && in[mask].data != NULL;
    const esp_i_att_shapes_t shapes = {
        .rank = {in[Q].global_rank, in[K].global_rank, in[V].global_rank,
                 masked ? in[mask].global_rank : -1},
        .dims = {in[Q].global, in[K].global, in[V].global, masked ? in[mask].global : NULL}};
    esp_i_att_t att;
    const esp_status_t status = esp_i_att_axes(kernel->attr, &shapes, &att, NULL);
    esp_assert(status == ESP_OK); /* infer has accepted it */
    esp_i_att_runs(kernel->attr, &shapes, &att);
    apply_split(&att, &in[Q]);
    return att;
}

int64_t esp_i_att_heads(const esp_i_att_t *att)
{
    int64_t heads = 1;
    for (int32_t run = RUNS; run < att->n; run++)
        heads *= att->extent[run];
    return heads;
}

/* One row of scores: a head and a query. */
typedef struct row {
    const esp_i_kernel_t *kernel;
    const esp_i_att_t *att;
    int64_t at[LAYOUTS]; /* element of each layout, at key, depth and width 0 */
    int64_t first;       /* its first element among all scores of the whole op */
    const double *mask;  /* NULL: none */
    bool boolean;
} row_t;

static row_t row_of(const esp_i_kernel_t *kernel, const esp_i_att_t *att, int32_t mask,
                    int64_t head, int64_t query)
{
    const bool masked = mask < kernel->n_in && kernel->in[mask].data != NULL;
    row_t row = {.kernel = kernel,
                 .att = att,
                 .mask = masked ? kernel->in[mask].data : NULL,
                 .boolean = masked && kernel->in_dtype[mask] == ESP_DTYPE_BOOL};
    for (int32_t layout = 0; layout < LAYOUTS; layout++)
        row.at[layout] = query * att->stride[QUERY][layout];
    for (int32_t run = att->n - 1; run >= RUNS; run--) {
        for (int32_t layout = 0; layout < LAYOUTS; layout++)
            row.at[layout] += head % att->extent[run] * att->stride[run][layout];
        head /= att->extent[run];
    }
    /* the saved numbers of a row lie like the scores, of which each row has as many as keys */
    const esp_i_buffer_t *saved = mask == MASK_IN ? &kernel->out[1] : &kernel->in[G_TOP];
    row.first = esp_i_buffer_global_index(saved, row.at[ROW]) * att->extent[KEY];
    return row;
}

/* ---- one row ----------------------------------------------------------------------------- */

static bool hides(const row_t *row, int64_t key)
{
    const int64_t at = row->at[MASK] + key * row->att->stride[KEY][MASK];
    return row->boolean && (row->mask[at] != 0) == (row->kernel->attr->attention.hidden != 0);
}

static double score(const row_t *row, int64_t key)
{
    const esp_i_att_t *att = row->att;
    const double *q = row->kernel->in[Q].data + row->at[Q];
    const double *k = row->kernel->in[K].data + row->at[K] + key * att->stride[KEY][K];
    double sum = 0;
    for (int64_t d = 0; d < att->extent[DEPTH]; d++)
        sum += q[d * att->stride[DEPTH][Q]] * k[d * att->stride[DEPTH][K]];
    sum *= row->kernel->attr->attention.scale;
    if (hides(row, key))
        return row->kernel->attr->attention.fill;
    return row->mask && !row->boolean
               ? sum + row->mask[row->at[MASK] + key * att->stride[KEY][MASK]]
               : sum;
}

/* What dropout multiplies a weight with. */
static double kept(const row_t *row, int64_t key)
{
    const esp_i_kernel_t *kernel = row->kernel;
    const double p = kernel->attr->attention.p;
    const uint64_t element = (uint64_t)(row->first + key);
    if (p == 0)
        return 1;
    const double draw = esp_i_philox(kernel->seed, kernel->step,
                                     (uint64_t)kernel->attr->attention.stream, element) *
                        0x1p-32;
    return draw >= p ? 1 / (1 - p) : 0;
}

static void attend(const row_t *row)
{
    const esp_i_att_t *att = row->att;
    const esp_i_kernel_t *kernel = row->kernel;
    double top = -INFINITY, sum = 0, *y = kernel->out[0].data + row->at[Y];
    for (int64_t key = 0; key < att->extent[KEY]; key++)
        top = fmax(top, score(row, key));
    for (int64_t key = 0; key < att->extent[KEY]; key++)
        sum += exp(score(row, key) - top);
    for (int64_t e = 0; e < att->extent[WIDTH]; e++)
        y[e * att->stride[WIDTH][Y]] = 0;
    for (int64_t key = 0; key < att->extent[KEY]; key++) {
        const double weight = exp(score(row, key) - top) / sum * kept(row, key);
        const double *v = kernel->in[V].data + row->at[V] + key * att->stride[KEY][V];
        for (int64_t e = 0; e < att->extent[WIDTH]; e++)
            y[e * att->stride[WIDTH][Y]] += weight * v[e * att->stride[WIDTH][V]];
    }
    kernel->out[1].data[row->at[ROW]] = top;
    kernel->out[2].data[row->at[ROW]] = sum;
}

void esp_i_att_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_att_t att = esp_i_att_of(kernel, MASK_IN);
    for (int64_t head = 0; head < esp_i_att_heads(&att); head++) {
        for (int64_t query = 0; query < att.extent[QUERY]; query++) {
            const row_t row = row_of(kernel, &att, MASK_IN, head, query);
            attend(&row);
        }
    }
}

/* ---- the gradient of one row ------------------------------------------------------------- */

/* sum of dy and the vector of `layout` at that key, along the width */
static double along_width(const row_t *row, const double *x, int32_t layout, int64_t at)
{
    const esp_i_att_t *att = row->att;
    const double *dy = row->kernel->in[G_DY].data + row->at[Y];
    double sum = 0;
    for (int64_t e = 0; e < att->extent[WIDTH]; e++)
        sum += dy[e * att->stride[WIDTH][Y]] * x[at + e * att->stride[WIDTH][layout]];
    return sum;
}

/* Adds what one score contributes: `weight` after the softmax, dscore before. */
static void spread(const row_t *row, int64_t key, double weight, double dscore)
{
    const esp_i_att_t *att = row->att;
    const esp_i_kernel_t *kernel = row->kernel;
    const int64_t at_k = row->at[K] + key * att->stride[KEY][K];
    double *dv = kernel->out[V].data + row->at[V] + key * att->stride[KEY][V];
    const double *dy = kernel->in[G_DY].data + row->at[Y];
    for (int64_t e = 0; e < att->extent[WIDTH]; e++)
        dv[e * att->stride[WIDTH][V]] += weight * dy[e * att->stride[WIDTH][Y]];
    for (int64_t d = 0; d < att->extent[DEPTH]; d++) {
        const int64_t q = row->at[Q] + d * att->stride[DEPTH][Q];
        const int64_t k = at_k + d * att->stride[DEPTH][K];
        const double scaled = dscore * kernel->attr->attention.scale;
        kernel->out[Q].data[q] += scaled * kernel->in[K].data[k];
        kernel->out[K].data[k] += scaled * kernel->in[Q].data[q];
    }
    if (kernel->attr->attention.dmask)
        kernel->out[3].data[row->at[MASK] + key * att->stride[KEY][MASK]] += dscore;
}

/*
 * With weights w = softmax(score) and a = w kept: dscore = w (kept da - sum of a da over the row),
 * and that sum is dy y.
 */
static void attend_back(const row_t *row)
{
    const esp_i_att_t *att = row->att;
    const esp_i_kernel_t *kernel = row->kernel;
    const double top = kernel->in[G_TOP].data[row->at[ROW]];
    const double sum = kernel->in[G_SUM].data[row->at[ROW]];
    const double inside = along_width(row, kernel->in[G_Y].data, Y, row->at[Y]);
    for (int64_t key = 0; key < att->extent[KEY]; key++) {
        const double weight = exp(score(row, key) - top) / sum, factor = kept(row, key);
        const double da =
            along_width(row, kernel->in[V].data, V, row->at[V] + key * att->stride[KEY][V]);
        spread(row, key, weight * factor, hides(row, key) ? 0 : weight * (factor * da - inside));
    }
}

void esp_i_att_grad_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_att_t att = esp_i_att_of(kernel, G_MASK);
    for (int32_t i = 0; i < kernel->n_out; i++)
        for (int64_t j = 0; j < esp_i_buffer_elements(&kernel->out[i]); j++)
            kernel->out[i].data[j] = 0;
    for (int64_t head = 0; head < esp_i_att_heads(&att); head++) {
        for (int64_t query = 0; query < att.extent[QUERY]; query++) {
            const row_t row = row_of(kernel, &att, G_MASK, head, query);
            attend_back(&row);
        }
    }
}
