/*
 * Layer normalisation over the trailing axes [axis, rank): x[r, d] -> y[r, d], mean[r], rstd[r]; r
 * stands for all leading axes. RMS normalisation is the same without the mean, which is then 0.
 * Rows are independent of each other; d is normalised over, so no device may hold a part of it.
 *
 *   xhat = (x - mean) rstd;   y = xhat gamma + beta
 */
#include "graph/kinds/operand.h"

#include <math.h>
#include <string.h>

enum { X, GAMMA, BETA };                     /* inputs of layernorm */
enum { G_X, G_GAMMA, G_MEAN, G_RSTD, G_DY }; /* inputs of layernorm_grad */

/* ---- inference and factors --------------------------------------------------------------- */

static esp_status_t check_x(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[X];
    const int32_t axis = op->attr->norm.axis;
    ESP_TRY(esp_i_operand_float(op, X, "x", diag));
    ESP_TRY(esp_i_operand_axis(x, axis, false, diag));
    ESP_TRY(esp_i_operand_float(op, GAMMA, "gamma", diag));
    return esp_i_operand_shape(op, GAMMA, "gamma", x->rank - axis, x->dims + axis, diag);
}

static void per_row(const esp_i_op_t *op, int32_t output)
{
    op->out[output] = op->in[X];
    op->out[output].rank = op->attr->norm.axis;
    op->out[output].dtype = esp_i_operand_sum_dtype(op->in[X].dtype);
}

static esp_status_t norm_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[X];
    const int32_t axis = op->attr->norm.axis;
    ESP_TRY(check_x(op, diag));
    if (esp_i_op_has(op, BETA)) {
        ESP_TRY(esp_i_operand_float(op, BETA, "beta", diag));
        ESP_TRY(esp_i_operand_shape(op, BETA, "beta", x->rank - axis, x->dims + axis, diag));
    }
    op->out[0] = *x;
    per_row(op, 1);
    per_row(op, 2);
    return ESP_OK;
}

static esp_status_t grad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[X];
    ESP_TRY(check_x(op, diag));
    static const char *const names[] = {"x", "gamma", "mean", "rstd", "dy"};
    for (int32_t i = G_MEAN; i <= G_DY; i++) {
        const int32_t rank = i == G_DY ? x->rank : op->attr->norm.axis;
        ESP_TRY(esp_i_operand_float(op, i, names[i], diag));
        ESP_TRY(esp_i_operand_shape(op, i, names[i], rank, x->dims, diag));
    }
    op->out[0] = *x;
    op->out[1] = op->in[G_GAMMA];
    op->out[1].dtype = esp_i_operand_sum_dtype(op->in[G_GAMMA].dtype);
    op->out[2] = op->out[1];
    return ESP_OK;
}

/* Opens the rows; operands in the bit set `wide` are [r, d], those in `narrow` are [r]. */
static void open_rows(const esp_i_op_t *op, esp_i_dims_t *dims, uint32_t wide, uint32_t narrow)
{
    const esp_i_shape_t *x = &op->in[X];
    const int32_t axis = op->attr->norm.axis;
    const int64_t d = esp_i_shape_product(x, axis, x->rank);
    esp_i_dims_open(dims, esp_i_shape_product(x, 0, axis), 1);
    for (int32_t i = 0; i < op->n_in + op->n_out; i++) {
        if ((wide | narrow) >> i & 1)
            esp_i_dims_bind(dims, i, ESP_BIND_CARRY, 1, wide >> i & 1 ? d : 1);
    }
}

static void norm_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    const int32_t y = op->n_in;
    open_rows(op, dims, 1u << X | 1u << y, 3u << (y + 1));
}

static void grad_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    const int32_t dx = op->n_in;
    open_rows(op, dims, 1u << G_X | 1u << G_DY | 1u << dx, 1u << G_MEAN | 1u << G_RSTD);
    esp_i_dims_bind(dims, dx + 1, ESP_BIND_SUM, 1, 1);
    esp_i_dims_bind(dims, dx + 2, ESP_BIND_SUM, 1, 1);
}

static int32_t grad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    (void)op;
    masks_out[0] = 1u << G_DY;
    return 1;
}

static double norm_flops(const esp_i_op_t *op)
{
    return 8 * (double)esp_i_shape_elements(&op->in[X]);
}

static double grad_flops(const esp_i_op_t *op)
{
    return 14 * (double)esp_i_shape_elements(&op->in[X]);
}

/* ---- gradient ---------------------------------------------------------------------------- */

static esp_status_t norm_gradient(const esp_i_grad_t *grad)
{
    const bool need_beta = esp_i_op_has(grad->op, BETA) && grad->need[BETA];
    if (grad->dy[1] != ESP_NONE || grad->dy[2] != ESP_NONE)
        return esp_i_fail(grad->diag, ESP_ERR_UNSUPPORTED,
                          "the loss depends on the saved mean or deviation of a normalisation");
    if (grad->dy[0] == ESP_NONE || !(grad->need[X] || grad->need[GAMMA] || need_beta))
        return ESP_OK;
    const esp_tensor_id_t inputs[5] = {grad->in[X], grad->in[GAMMA], grad->out[1], grad->out[2],
                                       grad->dy[0]};
    esp_tensor_id_t d[3];
    ESP_TRY(esp_i_make(grad->builder, ESP_KIND_LAYERNORM_GRAD, grad->op->attr, 5, inputs,
                       grad->name, d, grad->diag));
    if (grad->need[X])
        grad->dx[X] = d[0];
    if (grad->need[GAMMA])
        grad->dx[GAMMA] = d[1];
    if (need_beta)
        grad->dx[BETA] = d[2];
    return ESP_OK;
}

/* ---- kernels ----------------------------------------------------------------------------- */

static int64_t row_length(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *x = &kernel->in[X];
    return esp_i_operand_span(x, kernel->attr->norm.axis, x->global_rank);
}

static int64_t row_count(const esp_i_kernel_t *kernel)
{
    return esp_i_operand_span(&kernel->in[X], 0, kernel->attr->norm.axis);
}

static void norm_kernel(const esp_i_kernel_t *kernel)
{
    const int64_t rows = row_count(kernel), d = row_length(kernel);
    const double *gamma = kernel->in[GAMMA].data;
    const double *beta = kernel->n_in > BETA ? kernel->in[BETA].data : NULL;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = kernel->in[X].data + r * d;
        double *y = kernel->out[0].data + r * d;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < d && !kernel->attr->norm.rms; i++)
            mean += x[i] / (double)d;
        for (int64_t i = 0; i < d; i++)
            variance += (x[i] - mean) * (x[i] - mean) / (double)d;
        const double rstd = 1 / sqrt(variance + kernel->attr->norm.epsilon);
        for (int64_t i = 0; i < d; i++)
            y[i] = (x[i] - mean) * rstd * gamma[i] + (beta ? beta[i] : 0);
        kernel->out[1].data[r] = mean;
        kernel->out[2].data[r] = rstd;
    }
}

/*
 * With g = dy gamma:  dx = rstd (g - mean(g) - xhat mean(g xhat)); RMS has no mean to subtract, so
 * no mean(g).
 */
static void grad_kernel(const esp_i_kernel_t *kernel)
{
    const int64_t rows = row_count(kernel), d = row_length(kernel);
    const double *gamma = kernel->in[G_GAMMA].data;
    double *dgamma = kernel->out[1].data, *dbeta = kernel->out[2].data;
    for (int64_t i = 0; i < d; i++)
        dgamma[i] = dbeta[i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = kernel->in[G_X].data + r * d, *dy = kernel->in[G_DY].data + r * d;
        const double mean = kernel->in[G_MEAN].data[r], rstd = kernel->in[G_RSTD].data[r];
        double *dx = kernel->out[0].data + r * d;
        double mean_g = 0, mean_gx = 0;
        for (int64_t i = 0; i < d; i++) {
            const double xhat = (x[i] - mean) * rstd;
            mean_g += dy[i] * gamma[i] / (double)d;
            mean_gx += dy[i] * gamma[i] * xhat / (double)d;
            dgamma[i] += dy[i] * xhat;
            dbeta[i] += dy[i];
        }
        if (kernel->attr->norm.rms)
            mean_g = 0;
        for (int64_t i = 0; i < d; i++)
            dx[i] = rstd * (dy[i] * gamma[i] - mean_g - (x[i] - mean) * rstd * mean_gx);
    }
}

const esp_i_kind_t esp_i_kind_LAYERNORM = {
    .name = "layernorm",
    .min_in = 2,
    .max_in = 3,
    .n_out = 3,
    .family = ESP_FAMILY_MEMORY,
    .infer = norm_infer,
    .dims = norm_dims,
    .flops = norm_flops,
    .gradient = norm_gradient,
    .kernel = norm_kernel,
};

const esp_i_kind_t esp_i_kind_LAYERNORM_GRAD = {
    .name = "layernorm_grad",
    .min_in = 5,
    .max_in = 5,
    .n_out = 3,
    .family = ESP_FAMILY_MEMORY,
    .infer = grad_infer,
    .dims = grad_dims,
    .linear = grad_linear,
    .flops = grad_flops,
    .kernel = grad_kernel,
};
