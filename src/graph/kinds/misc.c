/*
 * Casts, constants and ranges. An element depends on its own position at most, so all elements of
 * the result are one loop dimension.
 */
#include "graph/kinds/operand.h"

#include <math.h>
#include <string.h>

/* ---- cast -------------------------------------------------------------------------------- */

static esp_status_t cast_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_dtype_t dtype = op->attr->cast.dtype;
    if ((int)dtype < 0 || dtype >= ESP_DTYPE_COUNT)
        return esp_i_fail(diag, ESP_ERR_INVALID, "dtype %d does not exist", (int)dtype);
    op->out[0] = op->in[0];
    op->out[0].dtype = dtype;
    return ESP_OK;
}

/* Between integers and floats a cast truncates: not linear. */
static int32_t cast_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    masks_out[0] = 1;
    return esp_dtype_is_float(op->in[0].dtype) && esp_dtype_is_float(op->out[0].dtype);
}

static esp_status_t cast_gradient(const esp_i_grad_t *grad)
{
    const esp_dtype_t from = grad->op->in[0].dtype;
    if (grad->dy[0] == ESP_NONE || !grad->need[0] || !esp_dtype_is_float(from))
        return ESP_OK;
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    attr.cast.dtype = from;
    return esp_i_make(grad->builder, ESP_KIND_CAST, &attr, 1, &grad->dy[0], grad->name,
                      &grad->dx[0], grad->diag);
}

/* Towards zero and saturating, as a float that leaves the integer range would be undefined in C. */
static double to_integer(double x, double low, double high)
{
    if (isnan(x))
        return 0;
    return fmin(fmax(trunc(x), low), high);
}

static double cast_value(double x, esp_dtype_t dtype)
{
    switch (dtype) {
    case ESP_DTYPE_I8:
        return to_integer(x, -128, 127);
    case ESP_DTYPE_U8:
        return to_integer(x, 0, 255);
    case ESP_DTYPE_I16:
        return to_integer(x, -32768, 32767);
    case ESP_DTYPE_I32:
        return to_integer(x, -2147483648.0, 2147483647.0);
    case ESP_DTYPE_I64: /* all that a double holds exactly */
        return to_integer(x, -9007199254740992.0, 9007199254740992.0);
    case ESP_DTYPE_BOOL:
        return x != 0;
    case ESP_DTYPE_F32: /* the reference computes in double throughout */
    case ESP_DTYPE_F64:
    case ESP_DTYPE_F16:
    case ESP_DTYPE_BF16:
    case ESP_DTYPE_COUNT:
        break;
    }
    return x;
}

static void cast_kernel(const esp_i_kernel_t *kernel)
{
    const int64_t n = esp_i_buffer_elements(&kernel->out[0]);
    for (int64_t i = 0; i < n; i++)
        kernel->out[0].data[i] = cast_value(kernel->in[0].data[i], kernel->out_dtype[0]);
}

const esp_i_kind_t esp_i_kind_CAST = {
    .name = "cast",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = cast_infer,
    .dims = esp_i_operand_all,
    .linear = cast_linear,
    .gradient = cast_gradient,
    .kernel = cast_kernel,
};

/* ---- fill and range ---------------------------------------------------------------------- */

static void fill_kernel(const esp_i_kernel_t *kernel)
{
    const int64_t n = esp_i_buffer_elements(&kernel->out[0]);
    for (int64_t i = 0; i < n; i++)
        kernel->out[0].data[i] = kernel->attr->shape.value;
}

const esp_i_kind_t esp_i_kind_FILL = {
    .name = "fill",
    .min_in = 0,
    .max_in = 0,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = esp_i_operand_attr_shape,
    .dims = esp_i_operand_all,
    .kernel = fill_kernel,
};

static esp_status_t range_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(esp_i_operand_attr_shape(op, diag));
    return esp_i_operand_axis(&op->out[0], op->attr->shape.axis, false, diag);
}

static void range_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *y = &kernel->out[0];
    const int32_t axis = kernel->attr->shape.axis;
    const int64_t n = esp_i_buffer_elements(y);
    int64_t after = 1;
    for (int32_t i = axis + 1; i < y->global_rank; i++)
        after *= y->global[i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t position = esp_i_buffer_global_index(y, i) / after % y->global[axis];
        y->data[i] = kernel->attr->shape.value + kernel->attr->shape.step * (double)position;
    }
}

const esp_i_kind_t esp_i_kind_RANGE = {
    .name = "range",
    .min_in = 0,
    .max_in = 0,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = range_infer,
    .dims = esp_i_operand_all,
    .kernel = range_kernel,
};
