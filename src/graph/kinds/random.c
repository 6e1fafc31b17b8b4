/*
 * Random numbers and dropout. Element i of the *global* tensor draws Philox(seed, step, stream, i),
 * so any split, duplication or second drawing gives the same numbers.
 */
#include "graph/kinds/operand.h"

#include <math.h>

#define UNIT 0x1p-32 /* one step of a 32-bit draw in [0, 1) */

static double draw(const esp_i_kernel_t *kernel, int64_t stream, int64_t element)
{
    return esp_i_philox(kernel->seed, kernel->step, (uint64_t)stream, (uint64_t)element) * UNIT;
}

/* ---- random ------------------------------------------------------------------------------ */

static esp_status_t random_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(esp_i_operand_attr_shape(op, diag));
    const double value = op->attr->shape.value;
    switch (op->attr->shape.law) {
    case ESP_RANDOM_BERNOULLI:
        if (!(value >= 0 && value <= 1))
            return esp_i_fail(diag, ESP_ERR_INVALID, "probability %g is not in [0, 1]", value);
        return ESP_OK;
    case ESP_RANDOM_UNIFORM:
    case ESP_RANDOM_NORMAL:
        if (!esp_dtype_is_float(op->out[0].dtype))
            return esp_i_fail(diag, ESP_ERR_INVALID, "uniform or normal numbers of type %s",
                              esp_dtype_name(op->out[0].dtype));
        return ESP_OK;
    }
    return esp_i_fail(diag, ESP_ERR_INVALID, "law %d does not exist", (int)op->attr->shape.law);
}

static double random_flops(const esp_i_op_t *op)
{
    const double per_element = op->attr->shape.law == ESP_RANDOM_NORMAL ? 40 : 2;
    return per_element * (double)esp_i_shape_elements(&op->out[0]);
}

/* Box-Muller takes elements 2i and 2i + 1 of the stream; the first is moved off zero. */
static double normal(const esp_i_kernel_t *kernel, int64_t stream, int64_t element)
{
    const double radius = sqrt(-2 * log(draw(kernel, stream, 2 * element) + UNIT / 2));
    return radius * cos(6.283185307179586 * draw(kernel, stream, 2 * element + 1));
}

static void random_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *y = &kernel->out[0];
    const double value = kernel->attr->shape.value, step = kernel->attr->shape.step;
    const int64_t stream = kernel->attr->shape.stream, n = esp_i_buffer_elements(y);
    for (int64_t i = 0; i < n; i++) {
        const int64_t element = esp_i_buffer_global_index(y, i);
        switch (kernel->attr->shape.law) {
        case ESP_RANDOM_UNIFORM:
            y->data[i] = value + step * draw(kernel, stream, element);
            break;
        case ESP_RANDOM_NORMAL:
            y->data[i] = value + step * normal(kernel, stream, element);
            break;
        case ESP_RANDOM_BERNOULLI:
            y->data[i] = draw(kernel, stream, element) < value;
            break;
        }
    }
}

const esp_i_kind_t esp_i_kind_RANDOM = {
    .name = "random",
    .min_in = 0,
    .max_in = 0,
    .n_out = 1,
    .flags = ESP_I_KIND_RANDOM,
    .family = ESP_FAMILY_MEMORY,
    .infer = random_infer,
    .dims = esp_i_operand_all,
    .flops = random_flops,
    .kernel = random_kernel,
};

/* ---- dropout ----------------------------------------------------------------------------- */

static esp_status_t dropout_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(esp_i_operand_float(op, 0, "x", diag));
    if (!(op->attr->dropout.p >= 0 && op->attr->dropout.p < 1))
        return esp_i_fail(diag, ESP_ERR_INVALID, "dropout probability %g is not in [0, 1)",
                          op->attr->dropout.p);
    op->out[0] = op->in[0];
    return ESP_OK;
}

static double dropout_flops(const esp_i_op_t *op)
{
    return 2 * (double)esp_i_shape_elements(&op->out[0]);
}

/* The same stream: the gradient draws the mask again instead of keeping it. */
static esp_status_t dropout_gradient(const esp_i_grad_t *grad)
{
    if (grad->dy[0] == ESP_NONE || !grad->need[0])
        return ESP_OK;
    return esp_i_make(grad->builder, ESP_KIND_DROPOUT, grad->op->attr, 1, &grad->dy[0], grad->name,
                      &grad->dx[0], grad->diag);
}

static void dropout_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *x = &kernel->in[0], *y = &kernel->out[0];
    const double p = kernel->attr->dropout.p;
    const int64_t n = esp_i_buffer_elements(y);
    for (int64_t i = 0; i < n; i++) {
        const int64_t element = esp_i_buffer_global_index(y, i);
        const bool keep = draw(kernel, kernel->attr->dropout.stream, element) >= p;
        y->data[i] = keep ? x->data[i] / (1 - p) : 0;
    }
}

const esp_i_kind_t esp_i_kind_DROPOUT = {
    .name = "dropout",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .flags = ESP_I_KIND_RANDOM,
    .family = ESP_FAMILY_MEMORY,
    .infer = dropout_infer,
    .dims = esp_i_operand_all,
    .linear = esp_i_operand_linear_first,
    .flops = dropout_flops,
    .gradient = dropout_gradient,
    .kernel = dropout_kernel,
};
