/*
 * Softmax cross-entropy with integer labels: x[r, v], labels[r] -> loss[r]; r stands for all axes
 * but the last. With smoothing e the target of a row is (1 - e) at its label plus e / v everywhere.
 *
 * A row whose label is attr.xent.ignore, or is no class at all, is left out: loss and gradient 0.
 * How many rows count is not known here: the normaliser of a mean is computed from the labels.
 */
#include "graph/kinds/operand.h"

#include <math.h>

static esp_status_t check(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0];
    ESP_TRY(esp_i_operand_float(op, 0, "x", diag));
    if (x->rank < 1 || x->dims[x->rank - 1] < 1)
        return esp_i_fail(diag, ESP_ERR_INVALID, "x has no axis of classes");
    ESP_TRY(esp_i_operand_integer(op, 1, "labels", diag));
    ESP_TRY(esp_i_operand_shape(op, 1, "labels", x->rank - 1, x->dims, diag));
    if (!(op->attr->xent.smoothing >= 0 && op->attr->xent.smoothing <= 1))
        return esp_i_fail(diag, ESP_ERR_INVALID, "label smoothing %g is not in [0, 1]",
                          op->attr->xent.smoothing);
    return ESP_OK;
}

static esp_status_t xent_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(check(op, diag));
    op->out[0] = op->in[0];
    op->out[0].rank--;
    op->out[0].dtype = esp_i_operand_sum_dtype(op->in[0].dtype);
    return ESP_OK;
}

static esp_status_t grad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0];
    ESP_TRY(check(op, diag));
    ESP_TRY(esp_i_operand_float(op, 2, "dloss", diag));
    ESP_TRY(esp_i_operand_shape(op, 2, "dloss", x->rank - 1, x->dims, diag));
    op->out[0] = *x;
    return ESP_OK;
}

static void xent_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    const esp_i_shape_t *x = &op->in[0];
    const int64_t v = x->dims[x->rank - 1];
    esp_i_dims_open(dims, esp_i_shape_product(x, 0, x->rank - 1), 1);
    for (int32_t i = 0; i < op->n_in + op->n_out; i++) {
        const esp_i_shape_t *shape = i < op->n_in ? &op->in[i] : &op->out[i - op->n_in];
        esp_i_dims_bind(dims, i, ESP_BIND_CARRY, 1, shape->rank == x->rank ? v : 1);
    }
}

static int32_t grad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    (void)op;
    masks_out[0] = 4; /* dloss */
    return 1;
}

static double xent_flops(const esp_i_op_t *op)
{
    return 13 * (double)esp_i_shape_elements(&op->in[0]);
}

static double grad_flops(const esp_i_op_t *op)
{
    return 16 * (double)esp_i_shape_elements(&op->in[0]);
}

static esp_status_t xent_gradient(const esp_i_grad_t *grad)
{
    if (grad->dy[0] == ESP_NONE || !grad->need[0])
        return ESP_OK;
    const esp_tensor_id_t inputs[3] = {grad->in[0], grad->in[1], grad->dy[0]};
    return esp_i_make(grad->builder, ESP_KIND_XENT_GRAD, grad->op->attr, 3, inputs, grad->name,
                      &grad->dx[0], grad->diag);
}

/* The class a label means, or -1. */
static int64_t class_of(const esp_i_kernel_t *kernel, int64_t row, int64_t v)
{
    const double label = kernel->in[1].data[row];
    if (label == (double)kernel->attr->xent.ignore || !(label >= 0 && label < (double)v))
        return -1;
    return (int64_t)label;
}

/* log sum exp of a row. */
static double log_sum(const double *x, int64_t v)
{
    double top = x[0], sum = 0;
    for (int64_t i = 1; i < v; i++)
        top = fmax(top, x[i]);
    for (int64_t i = 0; i < v; i++)
        sum += exp(x[i] - top);
    return top + log(sum);
}

static int64_t class_count(const esp_i_buffer_t *x)
{
    return x->global[x->global_rank - 1];
}

static void xent_kernel(const esp_i_kernel_t *kernel)
{
    const int64_t v = class_count(&kernel->in[0]), rows = esp_i_buffer_elements(&kernel->out[0]);
    const double e = kernel->attr->xent.smoothing;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t label = class_of(kernel, r, v);
        kernel->out[0].data[r] = 0;
        if (label < 0)
            continue;
        const double *x = kernel->in[0].data + r * v;
        const double total = log_sum(x, v);
        double mean = 0;
        for (int64_t i = 0; i < v; i++)
            mean += (total - x[i]) / (double)v;
        kernel->out[0].data[r] = (1 - e) * (total - x[label]) + e * mean;
    }
}

/* dx = dloss (softmax(x) - target) */
static void grad_kernel(const esp_i_kernel_t *kernel)
{
    const int64_t v = class_count(&kernel->in[0]), rows = esp_i_buffer_elements(&kernel->in[2]);
    const double e = kernel->attr->xent.smoothing;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t label = class_of(kernel, r, v);
        const double *x = kernel->in[0].data + r * v;
        double *dx = kernel->out[0].data + r * v;
        const double total = label < 0 ? 0 : log_sum(x, v);
        for (int64_t i = 0; i < v; i++) {
            const double target = (i == label ? 1 - e : 0) + e / (double)v;
            dx[i] = label < 0 ? 0 : kernel->in[2].data[r] * (exp(x[i] - total) - target);
        }
    }
}

const esp_i_kind_t esp_i_kind_XENT = {
    .name = "xent",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = xent_infer,
    .dims = xent_dims,
    .flops = xent_flops,
    .gradient = xent_gradient,
    .kernel = xent_kernel,
};

const esp_i_kind_t esp_i_kind_XENT_GRAD = {
    .name = "xent_grad",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = grad_infer,
    .dims = xent_dims,
    .linear = grad_linear,
    .flops = grad_flops,
    .kernel = grad_kernel,
};
