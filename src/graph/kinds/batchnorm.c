/*
 * Batch normalisation of x[n, c, s] (s: all spatial axes) as statistics and normalisation, each
 * with its gradient:
 *
 *   bn_stats:      x -> sum[c], sumsq[c]
 *   bn_norm:       x, sum, sumsq, gamma, beta -> y, mean[c], variance[c]
 *   bn_grad_stats: x, sum, sumsq, dy -> dbeta[c] = sum dy, dgamma[c] = sum dy * xhat
 *   bn_grad:       x, sum, sumsq, gamma, dy, dbeta, dgamma -> dx
 *
 * Splitting n makes sums partial. Their readers bind them LOCAL: in sync mode they get the reduced
 * sums and divide by attr.norm.count, the elements per channel of the whole batch; in local mode
 * (kernel->local_batchnorm) they get the addend of their own device and divide by the elements per
 * channel of their own x: each share is a ghost batch.
 *
 * Running statistics. mean and variance of bn_norm are what the running values move towards: the
 * mean and the unbiased variance, each times (local elements / count) and SUM over n. In sync mode
 * every device knows the statistics of the whole batch and the shares add up to exactly them; in
 * local mode the sum is the share-weighted average over the ghost batches. They sit here and not in
 * bn_stats because only here the reduced sums and the local extent are known together, so the
 * variance is exact in sync mode. No gradient flows through them.
 */
#include "graph/kinds/operand.h"

#include <math.h>
#include <string.h>

typedef struct extents {
    int64_t n, c, s;
} extents_t;

/* ---- inference --------------------------------------------------------------------------- */

static const char *const operand_names[4][7] = {
    {"x"},
    {"x", "sum", "sumsq", "gamma", "beta"},
    {"x", "sum", "sumsq", "dy"},
    {"x", "sum", "sumsq", "gamma", "dy", "dbeta", "dgamma"},
};

/* Every operand is of x's shape, where its name is x or dy, or a value per channel. */
static esp_status_t check(const esp_i_op_t *op, const char *const *names, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0];
    if (x->rank < 2)
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "x has rank %d, batch normalisation needs [n, c, ..]", (int)x->rank);
    for (int32_t i = 0; i < op->n_in; i++) {
        ESP_TRY(esp_i_operand_float(op, i, names[i], diag));
        if (strcmp(names[i], "x") == 0 || strcmp(names[i], "dy") == 0)
            ESP_TRY(esp_i_operand_shape(op, i, names[i], x->rank, x->dims, diag));
        else
            ESP_TRY(esp_i_operand_shape(op, i, names[i], 1, &x->dims[1], diag));
    }
    const int64_t count = x->dims[0] * esp_i_shape_product(x, 2, x->rank);
    if (op->attr->norm.count != count)
        return esp_i_fail(diag, ESP_ERR_INVALID, "count is %lld, x has %lld elements per channel",
                          (long long)op->attr->norm.count, (long long)count);
    return ESP_OK;
}

static void per_channel(const esp_i_op_t *op, int32_t output)
{
    op->out[output].dtype = esp_i_operand_sum_dtype(op->in[0].dtype);
    op->out[output].rank = 1;
    op->out[output].dims[0] = op->in[0].dims[1];
}

static esp_status_t stats_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(check(op, operand_names[0], diag));
    per_channel(op, 0);
    per_channel(op, 1);
    return ESP_OK;
}

static esp_status_t norm_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(check(op, operand_names[1], diag));
    op->out[0] = op->in[0];
    per_channel(op, 1);
    per_channel(op, 2);
    return ESP_OK;
}

static esp_status_t grad_stats_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(check(op, operand_names[2], diag));
    per_channel(op, 0);
    per_channel(op, 1);
    return ESP_OK;
}

static esp_status_t grad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(check(op, operand_names[3], diag));
    op->out[0] = op->in[0];
    return ESP_OK;
}

/* ---- factors ----------------------------------------------------------------------------- */

static extents_t extents_of(const esp_i_op_t *op)
{
    const esp_i_shape_t *x = &op->in[0];
    return (extents_t){x->dims[0], x->dims[1], esp_i_shape_product(x, 2, x->rank)};
}

static bool like_x(const esp_i_op_t *op, int32_t operand)
{
    const esp_i_shape_t *shape =
        operand < op->n_in ? &op->in[operand] : &op->out[operand - op->n_in];
    return shape->rank == op->in[0].rank;
}

/*
 * n: carried by all that is shaped like x, summed over by outputs per channel; inputs per channel
 * are LOCAL, except gamma and beta (bits of `whole`), which are needed as they are. c: carried by
 * all.
 */
static void declare(const esp_i_op_t *op, esp_i_dims_t *dims, uint32_t whole)
{
    const extents_t e = extents_of(op);
    const int32_t n = op->n_in + op->n_out;
    esp_i_dims_open(dims, e.n, 1);
    for (int32_t i = 0; i < n; i++) {
        if (like_x(op, i))
            esp_i_dims_bind(dims, i, ESP_BIND_CARRY, 1, e.c * e.s);
        else if (i >= op->n_in)
            esp_i_dims_bind(dims, i, ESP_BIND_SUM, 1, 1);
        else if (!(whole >> i & 1))
            esp_i_dims_bind(dims, i, ESP_BIND_LOCAL, 1, 1);
    }
    esp_i_dims_open(dims, e.c, 1);
    for (int32_t i = 0; i < n; i++) {
        if (like_x(op, i))
            esp_i_dims_bind(dims, i, ESP_BIND_CARRY, e.n, e.s);
        else
            esp_i_dims_bind(dims, i, ESP_BIND_CARRY, 1, 1);
    }
}

static void stats_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(op, dims, 0);
}

static void norm_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(op, dims, 1u << 3 | 1u << 4);
}

static void grad_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(op, dims, 1u << 3);
}

static int32_t grad_stats_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    (void)op;
    masks_out[0] = 1u << 3; /* dy */
    return 1;
}

static int32_t grad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    (void)op;
    masks_out[0] = 1u << 4 | 1u << 5 | 1u << 6; /* dy, dbeta, dgamma together */
    return 1;
}

static double stats_flops(const esp_i_op_t *op)
{
    return 3 * (double)esp_i_shape_elements(&op->in[0]);
}

static double norm_flops(const esp_i_op_t *op)
{
    return 2 * (double)esp_i_shape_elements(&op->in[0]);
}

static double grad_flops(const esp_i_op_t *op)
{
    return 5 * (double)esp_i_shape_elements(&op->in[0]);
}

/* ---- gradients --------------------------------------------------------------------------- */

/* d[c] as a tensor that broadcasts over x[n, c, ..]. */
static esp_status_t across(const esp_i_grad_t *grad, esp_tensor_id_t d, esp_tensor_id_t *out)
{
    const esp_i_shape_t *x = &grad->op->in[0];
    int64_t dims[ESP_MAX_RANK];
    for (int32_t i = 0; i < x->rank; i++)
        dims[i] = i == 1 ? x->dims[1] : 1;
    return esp_i_make_reshape(grad->builder, d, x->rank, dims, grad->name, out, grad->diag);
}

/* dx = dsum + 2 x dsumsq. Not on the path of bn_norm, whose own gradient covers its statistics. */
static esp_status_t stats_gradient(const esp_i_grad_t *grad)
{
    const esp_i_shape_t *x = &grad->op->in[0];
    if (!grad->need[0])
        return ESP_OK;
    esp_tensor_id_t terms[2];
    int32_t n = 0;
    if (grad->dy[1] != ESP_NONE) {
        esp_tensor_id_t d, product;
        ESP_TRY(across(grad, grad->dy[1], &d));
        ESP_TRY(esp_i_make_binary(grad->builder, ESP_ELT_MUL, grad->in[0], d, grad->name, &product,
                                  grad->diag));
        ESP_TRY(
            esp_i_make_affine(grad->builder, product, 2, 0, grad->name, &terms[n++], grad->diag));
    }
    if (grad->dy[0] != ESP_NONE) {
        esp_tensor_id_t d;
        esp_attr_t attr;
        memset(&attr, 0, sizeof attr);
        attr.shape.rank = x->rank;
        memcpy(attr.shape.dims, x->dims, sizeof attr.shape.dims);
        ESP_TRY(across(grad, grad->dy[0], &d));
        ESP_TRY(esp_i_make(grad->builder, ESP_KIND_EXPAND, &attr, 1, &d, grad->name, &terms[n++],
                           grad->diag));
    }
    if (n == 1)
        grad->dx[0] = terms[0];
    if (n == 2)
        return esp_i_make_binary(grad->builder, ESP_ELT_ADD, terms[0], terms[1], grad->name,
                                 &grad->dx[0], grad->diag);
    return ESP_OK;
}

/*
 * dx is the whole derivative: what flows through sum and sumsq is in it, so they get none of their
 * own.
 */
static esp_status_t norm_gradient(const esp_i_grad_t *grad)
{
    enum { X, SUM, SUMSQ, GAMMA, BETA };
    if (grad->dy[1] != ESP_NONE || grad->dy[2] != ESP_NONE)
        return esp_i_fail(grad->diag, ESP_ERR_UNSUPPORTED,
                          "the loss depends on the batch's mean or variance as running statistics");
    if (grad->dy[0] == ESP_NONE || !(grad->need[X] || grad->need[GAMMA] || grad->need[BETA]))
        return ESP_OK;
    const esp_tensor_id_t stats_in[4] = {grad->in[X], grad->in[SUM], grad->in[SUMSQ], grad->dy[0]};
    esp_tensor_id_t sums[2]; /* dbeta, dgamma */
    ESP_TRY(esp_i_make(grad->builder, ESP_KIND_BN_GRAD_STATS, grad->op->attr, 4, stats_in,
                       grad->name, sums, grad->diag));
    if (grad->need[BETA])
        grad->dx[BETA] = sums[0];
    if (grad->need[GAMMA])
        grad->dx[GAMMA] = sums[1];
    if (!grad->need[X])
        return ESP_OK;
    const esp_tensor_id_t grad_in[7] = {grad->in[X],     grad->in[SUM], grad->in[SUMSQ],
                                        grad->in[GAMMA], grad->dy[0],   sums[0],
                                        sums[1]};
    return esp_i_make(grad->builder, ESP_KIND_BN_GRAD, grad->op->attr, 7, grad_in, grad->name,
                      &grad->dx[X], grad->diag);
}

/* ---- kernels ----------------------------------------------------------------------------- */

static extents_t local_extents(const esp_i_buffer_t *x)
{
    return (extents_t){esp_i_operand_span(x, 0, 1), esp_i_operand_span(x, 1, 2),
                       esp_i_operand_span(x, 2, x->global_rank)};
}

/* Elements per channel that the sums at hand run over. */
static double count_of(const esp_i_kernel_t *kernel, extents_t e)
{
    return kernel->local_batchnorm ? (double)(e.n * e.s) : (double)kernel->attr->norm.count;
}

typedef struct moments {
    double mean, variance, rstd;
} moments_t;

/* Biased; sums that cancel to a negative variance count as 0. Inputs 1 and 2 are the sums. */
static moments_t moments_of(const esp_i_kernel_t *kernel, double count, int64_t channel)
{
    const double mean = kernel->in[1].data[channel] / count;
    const double variance = fmax(0, kernel->in[2].data[channel] / count - mean * mean);
    return (moments_t){mean, variance, 1 / sqrt(variance + kernel->attr->norm.epsilon)};
}

static void stats_kernel(const esp_i_kernel_t *kernel)
{
    const extents_t e = local_extents(&kernel->in[0]);
    for (int64_t c = 0; c < e.c; c++) {
        double sum = 0, sumsq = 0;
        for (int64_t n = 0; n < e.n; n++) {
            for (int64_t s = 0; s < e.s; s++) {
                const double x = kernel->in[0].data[(n * e.c + c) * e.s + s];
                sum += x;
                sumsq += x * x;
            }
        }
        kernel->out[0].data[c] = sum;
        kernel->out[1].data[c] = sumsq;
    }
}

static void norm_kernel(const esp_i_kernel_t *kernel)
{
    const extents_t e = local_extents(&kernel->in[0]);
    const double count = count_of(kernel, e);
    const double share = (double)(e.n * e.s) / (double)kernel->attr->norm.count;
    for (int64_t c = 0; c < e.c; c++) {
        kernel->out[1].data[c] = kernel->out[2].data[c] = 0;
        if (e.n * e.s == 0)
            continue;
        const moments_t m = moments_of(kernel, count, c);
        /* A single element has no unbiased variance; the biased one, 0, stands for it. */
        const double unbias = count > 1 ? count / (count - 1) : 1;
        kernel->out[1].data[c] = share * m.mean;
        kernel->out[2].data[c] = share * m.variance * unbias;
        const double scale = kernel->in[3].data[c] * m.rstd, beta = kernel->in[4].data[c];
        for (int64_t n = 0; n < e.n; n++) {
            for (int64_t s = 0; s < e.s; s++) {
                const int64_t i = (n * e.c + c) * e.s + s;
                kernel->out[0].data[i] = (kernel->in[0].data[i] - m.mean) * scale + beta;
            }
        }
    }
}

static void grad_stats_kernel(const esp_i_kernel_t *kernel)
{
    const extents_t e = local_extents(&kernel->in[0]);
    const double count = count_of(kernel, e);
    for (int64_t c = 0; c < e.c; c++) {
        double dbeta = 0, dgamma = 0;
        for (int64_t n = 0; n < e.n; n++) {
            const moments_t m = moments_of(kernel, count, c);
            for (int64_t s = 0; s < e.s; s++) {
                const int64_t i = (n * e.c + c) * e.s + s;
                const double dy = kernel->in[3].data[i];
                dbeta += dy;
                dgamma += dy * (kernel->in[0].data[i] - m.mean) * m.rstd;
            }
        }
        kernel->out[0].data[c] = dbeta;
        kernel->out[1].data[c] = dgamma;
    }
}

/* dx = gamma rstd (dy - dbeta / count - xhat dgamma / count) */
static void grad_kernel(const esp_i_kernel_t *kernel)
{
    const extents_t e = local_extents(&kernel->in[0]);
    const double count = count_of(kernel, e);
    for (int64_t c = 0; c < e.c; c++) {
        for (int64_t n = 0; n < e.n; n++) {
            const moments_t m = moments_of(kernel, count, c);
            const double scale = kernel->in[3].data[c] * m.rstd;
            const double dbeta = kernel->in[5].data[c], dgamma = kernel->in[6].data[c];
            for (int64_t s = 0; s < e.s; s++) {
                const int64_t i = (n * e.c + c) * e.s + s;
                const double xhat = (kernel->in[0].data[i] - m.mean) * m.rstd;
                kernel->out[0].data[i] =
                    scale * (kernel->in[4].data[i] - (dbeta + xhat * dgamma) / count);
            }
        }
    }
}

/* ---- descriptors ------------------------------------------------------------------------- */

const esp_i_kind_t esp_i_kind_BN_STATS = {
    .name = "bn_stats",
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .family = ESP_FAMILY_MEMORY,
    .infer = stats_infer,
    .dims = stats_dims,
    .flops = stats_flops,
    .gradient = stats_gradient,
    .kernel = stats_kernel,
};

const esp_i_kind_t esp_i_kind_BN_NORM = {
    .name = "bn_norm",
    .min_in = 5,
    .max_in = 5,
    .n_out = 3,
    .family = ESP_FAMILY_MEMORY,
    .infer = norm_infer,
    .dims = norm_dims,
    .flops = norm_flops,
    .gradient = norm_gradient,
    .kernel = norm_kernel,
};

const esp_i_kind_t esp_i_kind_BN_GRAD_STATS = {
    .name = "bn_grad_stats",
    .min_in = 4,
    .max_in = 4,
    .n_out = 2,
    .family = ESP_FAMILY_MEMORY,
    .infer = grad_stats_infer,
    .dims = stats_dims,
    .linear = grad_stats_linear,
    .flops = grad_flops,
    .kernel = grad_stats_kernel,
};

const esp_i_kind_t esp_i_kind_BN_GRAD = {
    .name = "bn_grad",
    .min_in = 7,
    .max_in = 7,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = grad_infer,
    .dims = grad_dims,
    .linear = grad_linear,
    .flops = grad_flops,
    .kernel = grad_kernel,
};
