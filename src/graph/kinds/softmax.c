/*
 * Softmax or log-softmax of x[before, n, after] along n. `before` and `after` are loop dimensions;
 * n is not, as every element depends on all of it.
 */
#include "graph/kinds/operand.h"

#include <math.h>

static esp_status_t softmax_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(esp_i_operand_float(op, 0, "x", diag));
    ESP_TRY(esp_i_operand_axis(&op->in[0], op->attr->axis.axis, false, diag));
    op->out[0] = op->in[0];
    return ESP_OK;
}

static esp_status_t grad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *y = &op->in[0];
    ESP_TRY(esp_i_operand_float(op, 0, "y", diag));
    ESP_TRY(esp_i_operand_float(op, 1, "dy", diag));
    ESP_TRY(esp_i_operand_shape(op, 1, "dy", y->rank, y->dims, diag));
    ESP_TRY(esp_i_operand_axis(y, op->attr->axis.axis, false, diag));
    op->out[0] = *y;
    return ESP_OK;
}

static void softmax_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    const esp_i_shape_t *x = &op->in[0];
    const int32_t axis = op->attr->axis.axis;
    const int64_t before = esp_i_shape_product(x, 0, axis), n = x->dims[axis];
    const int64_t after = esp_i_shape_product(x, axis + 1, x->rank);
    esp_i_dims_open(dims, before, 1);
    for (int32_t i = 0; i < op->n_in + op->n_out; i++)
        esp_i_dims_bind(dims, i, ESP_BIND_CARRY, 1, n * after);
    esp_i_dims_open(dims, after, 1);
    for (int32_t i = 0; i < op->n_in + op->n_out; i++)
        esp_i_dims_bind(dims, i, ESP_BIND_CARRY, before * n, 1);
}

static int32_t grad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    (void)op;
    masks_out[0] = 2; /* dy */
    return 1;
}

static double softmax_flops(const esp_i_op_t *op)
{
    return 14 * (double)esp_i_shape_elements(&op->in[0]);
}

static double grad_flops(const esp_i_op_t *op)
{
    return (op->attr->axis.log ? 13 : 4) * (double)esp_i_shape_elements(&op->in[0]);
}

static esp_status_t softmax_gradient(const esp_i_grad_t *grad)
{
    if (grad->dy[0] == ESP_NONE || !grad->need[0])
        return ESP_OK;
    const esp_tensor_id_t inputs[2] = {grad->out[0], grad->dy[0]};
    return esp_i_make(grad->builder, ESP_KIND_SOFTMAX_GRAD, grad->op->attr, 2, inputs, grad->name,
                      &grad->dx[0], grad->diag);
}

/* One line of n elements, `stride` apart. */
static void softmax_line(const double *x, double *y, int64_t n, int64_t stride, bool log_form)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, x[i * stride]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i * stride] - top);
    for (int64_t i = 0; i < n; i++) {
        const double shifted = x[i * stride] - top;
        y[i * stride] = log_form ? shifted - log(sum) : exp(shifted) / sum;
    }
}

/* dx = y (dy - sum dy y); of the logarithm: dx = dy - exp(y) sum dy. */
static void grad_line(const double *y, const double *dy, double *dx, int64_t n, int64_t stride,
                      bool log_form)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += log_form ? dy[i * stride] : dy[i * stride] * y[i * stride];
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = i * stride;
        dx[j] = log_form ? dy[j] - exp(y[j]) * sum : y[j] * (dy[j] - sum);
    }
}

static void softmax_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *x = &kernel->in[0];
    const int32_t axis = kernel->attr->axis.axis;
    const int64_t before = esp_i_operand_span(x, 0, axis), n = x->global[axis];
    const int64_t after = esp_i_operand_span(x, axis + 1, x->global_rank);
    for (int64_t b = 0; b < before; b++) {
        for (int64_t a = 0; a < after; a++) {
            const int64_t at = b * n * after + a;
            softmax_line(x->data + at, kernel->out[0].data + at, n, after, kernel->attr->axis.log);
        }
    }
}

static void grad_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *y = &kernel->in[0];
    const int32_t axis = kernel->attr->axis.axis;
    const int64_t before = esp_i_operand_span(y, 0, axis), n = y->global[axis];
    const int64_t after = esp_i_operand_span(y, axis + 1, y->global_rank);
    for (int64_t b = 0; b < before; b++) {
        for (int64_t a = 0; a < after; a++) {
            const int64_t at = b * n * after + a;
            grad_line(y->data + at, kernel->in[1].data + at, kernel->out[0].data + at, n, after,
                      kernel->attr->axis.log);
        }
    }
}

const esp_i_kind_t esp_i_kind_SOFTMAX = {
    .name = "softmax",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = softmax_infer,
    .dims = softmax_dims,
    .flops = softmax_flops,
    .gradient = softmax_gradient,
    .kernel = softmax_kernel,
};

const esp_i_kind_t esp_i_kind_SOFTMAX_GRAD = {
    .name = "softmax_grad",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = grad_infer,
    .dims = softmax_dims,
    .linear = grad_linear,
    .flops = grad_flops,
    .kernel = grad_kernel,
};
