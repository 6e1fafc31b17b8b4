/* Checks and local extents that several kinds share. */
#include "graph/kinds/operand.h"

#include <stdio.h>

void esp_i_operand_text(const esp_i_shape_t *shape, char out[96])
{
    size_t used = 0;
    out[used++] = '[';
    for (int32_t i = 0; i < shape->rank && used < 72; i++)
        used += (size_t)snprintf(out + used, 96 - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)shape->dims[i]);
    (void)snprintf(out + used, 96 - used, "]");
}

esp_status_t esp_i_operand_float(const esp_i_op_t *op, int32_t input, const char *what,
                                 esp_diag_t *diag)
{
    if (esp_dtype_is_float(op->in[input].dtype))
        return ESP_OK;
    return esp_i_fail(diag, ESP_ERR_INVALID, "%s is of type %s where a float type is needed", what,
                      esp_dtype_name(op->in[input].dtype));
}

esp_status_t esp_i_operand_integer(const esp_i_op_t *op, int32_t input, const char *what,
                                   esp_diag_t *diag)
{
    esp_dtype_t dtype = op->in[input].dtype;
    if (!esp_dtype_is_float(dtype) && dtype != ESP_DTYPE_BOOL)
        return ESP_OK;
    return esp_i_fail(diag, ESP_ERR_INVALID, "%s is of type %s where an integer type is needed",
                      what, esp_dtype_name(dtype));
}

esp_status_t esp_i_operand_shape(const esp_i_op_t *op, int32_t input, const char *what,
                                 int32_t rank, const int64_t *dims, esp_diag_t *diag)
{
    const esp_i_shape_t *shape = &op->in[input];
    bool same = shape->rank == rank;
    for (int32_t i = 0; same && i < rank; i++)
        same = shape->dims[i] == dims[i];
    if (same)
        return ESP_OK;
    esp_i_shape_t wanted = {.rank = rank};
    for (int32_t i = 0; i < rank; i++)
        wanted.dims[i] = dims[i];
    char have[96], want[96];
    esp_i_operand_text(shape, have);
    esp_i_operand_text(&wanted, want);
    return esp_i_fail(diag, ESP_ERR_INVALID, "%s has shape %s where %s is needed", what, have,
                      want);
}

esp_status_t esp_i_operand_axis(const esp_i_shape_t *x, int32_t axis, bool or_end, esp_diag_t *diag)
{
    if (axis >= 0 && axis < x->rank + (or_end ? 1 : 0))
        return ESP_OK;
    return esp_i_fail(diag, ESP_ERR_INVALID, "axis %d of a tensor of rank %d", (int)axis,
                      (int)x->rank);
}

esp_status_t esp_i_operand_attr_shape(const esp_i_op_t *op, esp_diag_t *diag)
{
    const int32_t rank = op->attr->shape.rank;
    const esp_dtype_t dtype = op->attr->shape.dtype;
    if (rank < 0 || rank > ESP_MAX_RANK)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "rank %d is not in [0, %d]", (int)rank,
                          ESP_MAX_RANK);
    if ((int)dtype < 0 || dtype >= ESP_DTYPE_COUNT)
        return esp_i_fail(diag, ESP_ERR_INVALID, "dtype %d does not exist", (int)dtype);
    op->out[0].dtype = dtype;
    op->out[0].rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        op->out[0].dims[i] = op->attr->shape.dims[i];
        if (op->out[0].dims[i] < 0)
            return esp_i_fail(diag, ESP_ERR_INVALID, "axis %d has extent %lld", (int)i,
                              (long long)op->out[0].dims[i]);
    }
    return ESP_OK;
}

void esp_i_operand_all(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    esp_i_dims_open(dims, esp_i_shape_elements(&op->out[0]), 1);
    for (int32_t i = 0; i < op->n_in + op->n_out; i++)
        esp_i_dims_bind(dims, i, ESP_BIND_CARRY, 1, 1);
}

int32_t esp_i_operand_linear_first(const esp_i_op_t *op, uint64_t masks_out[4])
{
    (void)op;
    masks_out[0] = 1;
    return 1;
}

esp_dtype_t esp_i_operand_sum_dtype(esp_dtype_t dtype)
{
    return dtype == ESP_DTYPE_F16 || dtype == ESP_DTYPE_BF16 ? ESP_DTYPE_F32 : dtype;
}

int64_t esp_i_operand_span(const esp_i_buffer_t *buffer, int32_t from, int32_t to)
{
    int64_t before = 1, span = 1, after = 1;
    for (int32_t i = 0; i < buffer->global_rank; i++)
        *(i < from ? &before : i < to ? &span : &after) *= buffer->global[i];
    const esp_view_t *view = &buffer->view;
    if (view->extent <= 0 || before * span * after == 0)
        return span;
    /* A view of extent 1 fits more than one span; its share is all or nothing. */
    if (view->outer % before != 0 || view->inner % after != 0)
        return span;
    return span / view->extent * buffer->share;
}
