/*
 * Gather and its gradient.
 *
 * gather:      x[before, n, after], indices[k] -> y[before, k, after]
 * scatter_add: dy[before, k, after], indices[k] -> dx[before, n, after]
 *
 * k stands for all axes of the indices. Negative indices count from the end; an index that is still
 * outside gives zeros in gather and is left out by scatter_add, so one is the adjoint of the other.
 * The gathered axis n is no loop dimension: which rows are touched is not known before the step.
 */
#include "graph/kinds/operand.h"

#include <string.h>

/* ---- gather ------------------------------------------------------------------------------ */

static esp_status_t gather_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0], *indices = &op->in[1];
    const int32_t axis = op->attr->axis.axis;
    ESP_TRY(esp_i_operand_axis(x, axis, false, diag));
    ESP_TRY(esp_i_operand_integer(op, 1, "indices", diag));
    const int32_t rank = x->rank - 1 + indices->rank;
    if (rank > ESP_MAX_RANK)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "the result has %d axes, the limit is %d", (int)rank,
                          ESP_MAX_RANK);
    esp_i_shape_t *y = &op->out[0];
    y->dtype = x->dtype;
    y->rank = 0;
    for (int32_t i = 0; i < axis; i++)
        y->dims[y->rank++] = x->dims[i];
    for (int32_t i = 0; i < indices->rank; i++)
        y->dims[y->rank++] = indices->dims[i];
    for (int32_t i = axis + 1; i < x->rank; i++)
        y->dims[y->rank++] = x->dims[i];
    return ESP_OK;
}

/*
 * Dimensions of both kinds. `rows` is the operand [before, n, after] and `taken` the operand
 * [before, k, after]; k is carried by `taken` and the indices and bound as `k_rows` on rows.
 */
static void declare(esp_i_dims_t *dims, const esp_i_shape_t *shape, int32_t axis, int64_t k,
                    int32_t rows, int32_t taken, esp_bind_t k_rows)
{
    const int64_t before = esp_i_shape_product(shape, 0, axis);
    const int64_t after = esp_i_shape_product(shape, axis + 1, shape->rank);
    const int64_t n = shape->dims[axis];
    esp_i_dims_open(dims, before, 1);
    esp_i_dims_bind(dims, rows, ESP_BIND_CARRY, 1, n * after);
    esp_i_dims_bind(dims, taken, ESP_BIND_CARRY, 1, k * after);
    esp_i_dims_open(dims, k, 1);
    esp_i_dims_bind(dims, taken, ESP_BIND_CARRY, before, after);
    esp_i_dims_bind(dims, 1, ESP_BIND_CARRY, 1, 1);
    if (k_rows != ESP_BIND_ABSENT)
        esp_i_dims_bind(dims, rows, k_rows, 1, 1);
    esp_i_dims_open(dims, after, 1);
    esp_i_dims_bind(dims, rows, ESP_BIND_CARRY, before * n, 1);
    esp_i_dims_bind(dims, taken, ESP_BIND_CARRY, before * k, 1);
}

static void gather_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(dims, &op->in[0], op->attr->axis.axis, esp_i_shape_elements(&op->in[1]), 0, 2,
            ESP_BIND_ABSENT);
}

static esp_status_t gather_gradient(const esp_i_grad_t *grad)
{
    if (grad->dy[0] == ESP_NONE || !grad->need[0])
        return ESP_OK;
    const int32_t axis = grad->op->attr->axis.axis;
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    attr.axis.axis = axis;
    attr.axis.extent = grad->op->in[0].dims[axis];
    const esp_tensor_id_t inputs[2] = {grad->dy[0], grad->in[1]};
    return esp_i_make(grad->builder, ESP_KIND_SCATTER_ADD, &attr, 2, inputs, grad->name,
                      &grad->dx[0], grad->diag);
}

/* The row an index means, or -1. */
static int64_t row_of(double index, int64_t n)
{
    if (!(index >= (double)-n && index < (double)n))
        return -1;
    int64_t row = (int64_t)index;
    return row < 0 ? row + n : row;
}

static void gather_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *x = &kernel->in[0], *indices = &kernel->in[1], *y = &kernel->out[0];
    const int32_t axis = kernel->attr->axis.axis;
    const int64_t before = esp_i_operand_span(x, 0, axis);
    const int64_t after = esp_i_operand_span(x, axis + 1, x->global_rank);
    const int64_t n = x->global[axis], k = esp_i_buffer_elements(indices);
    for (int64_t b = 0; b < before; b++) {
        for (int64_t i = 0; i < k; i++) {
            const int64_t row = row_of(indices->data[i], n);
            double *to = y->data + (b * k + i) * after;
            const double *from = x->data + (b * n + (row < 0 ? 0 : row)) * after;
            for (int64_t j = 0; j < after; j++)
                to[j] = row < 0 ? 0 : from[j];
        }
    }
}

const esp_i_kind_t esp_i_kind_GATHER = {
    .name = "gather",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .family = ESP_FAMILY_GATHER,
    .infer = gather_infer,
    .dims = gather_dims,
    .linear = esp_i_operand_linear_first,
    .gradient = gather_gradient,
    .kernel = gather_kernel,
};

/* ---- scatter_add ------------------------------------------------------------------------- */

static esp_status_t scatter_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *dy = &op->in[0], *indices = &op->in[1];
    const int32_t axis = op->attr->axis.axis, rank = dy->rank - indices->rank + 1;
    ESP_TRY(esp_i_operand_float(op, 0, "dy", diag));
    ESP_TRY(esp_i_operand_integer(op, 1, "indices", diag));
    if (axis < 0 || axis >= rank)
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "axis %d: dy of rank %d and indices of rank %d give a result of rank %d",
                          (int)axis, (int)dy->rank, (int)indices->rank, (int)rank);
    if (rank > ESP_MAX_RANK)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "the result has %d axes, the limit is %d", (int)rank,
                          ESP_MAX_RANK);
    if (op->attr->axis.extent < 0)
        return esp_i_fail(diag, ESP_ERR_INVALID, "extent %lld is negative",
                          (long long)op->attr->axis.extent);
    for (int32_t i = 0; i < indices->rank; i++) {
        if (dy->dims[axis + i] == indices->dims[i])
            continue;
        char have[96], want[96];
        esp_i_operand_text(dy, have);
        esp_i_operand_text(indices, want);
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "dy %s does not hold the indices' shape %s at axis %d", have, want,
                          (int)axis);
    }
    esp_i_shape_t *dx = &op->out[0];
    dx->dtype = dy->dtype;
    dx->rank = rank;
    for (int32_t i = 0; i < rank; i++)
        dx->dims[i] = i < axis ? dy->dims[i] : dy->dims[i + indices->rank - 1 + (i == axis)];
    dx->dims[axis] = op->attr->axis.extent;
    return ESP_OK;
}

static void scatter_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(dims, &op->out[0], op->attr->axis.axis, esp_i_shape_elements(&op->in[1]), 2, 0,
            ESP_BIND_SUM);
}

static double scatter_flops(const esp_i_op_t *op)
{
    return (double)esp_i_shape_elements(&op->in[0]);
}

static esp_status_t scatter_gradient(const esp_i_grad_t *grad)
{
    if (grad->dy[0] == ESP_NONE || !grad->need[0])
        return ESP_OK;
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    attr.axis.axis = grad->op->attr->axis.axis;
    const esp_tensor_id_t inputs[2] = {grad->dy[0], grad->in[1]};
    return esp_i_make(grad->builder, ESP_KIND_GATHER, &attr, 2, inputs, grad->name, &grad->dx[0],
                      grad->diag);
}

static void scatter_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *dy = &kernel->in[0], *indices = &kernel->in[1], *dx = &kernel->out[0];
    const int32_t axis = kernel->attr->axis.axis;
    const int64_t before = esp_i_operand_span(dx, 0, axis);
    const int64_t after = esp_i_operand_span(dx, axis + 1, dx->global_rank);
    const int64_t n = dx->global[axis], k = esp_i_buffer_elements(indices);
    for (int64_t i = 0; i < before * n * after; i++)
        dx->data[i] = 0;
    for (int64_t b = 0; b < before; b++) {
        for (int64_t i = 0; i < k; i++) {
            const int64_t row = row_of(indices->data[i], n);
            if (row < 0)
                continue;
            double *to = dx->data + (b * n + row) * after;
            const double *from = dy->data + (b * k + i) * after;
            for (int64_t j = 0; j < after; j++)
                to[j] += from[j];
        }
    }
}

const esp_i_kind_t esp_i_kind_SCATTER_ADD = {
    .name = "scatter_add",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .family = ESP_FAMILY_GATHER,
    .infer = scatter_infer,
    .dims = scatter_dims,
    .linear = esp_i_operand_linear_first,
    .flops = scatter_flops,
    .gradient = scatter_gradient,
    .kernel = scatter_kernel,
};
