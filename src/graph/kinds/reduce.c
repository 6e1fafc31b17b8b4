/* REDUCE: sum, maximum, minimum, product or sum of squares over axes. */
#include "graph/kinds/nest.h"
#include "graph/kinds/reduce.h"

static bool reduced(const esp_attr_t *attr, int32_t axis)
{
    return (attr->reduce.axes >> axis & 1) != 0;
}

static esp_status_t reduce_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0];
    const esp_attr_t *attr = op->attr;
    int64_t code = (int64_t)attr->reduce.code;
    if (code < 0 || code > ESP_REDUCE_SUMSQ)
        return esp_i_fail(diag, ESP_ERR_INVALID, "no reduction %lld", (long long)code);
    if (attr->reduce.axes >> x->rank != 0)
        return esp_i_fail(diag, ESP_ERR_INVALID, "axes %#x of a tensor of %d axes",
                          (unsigned)attr->reduce.axes, (int)x->rank);
    ESP_TRY(esp_i_check_number(op, 0, diag));
    esp_i_shape_t *y = &op->out[0];
    *y = (esp_i_shape_t){.dtype = x->dtype};
    bool choice = code == ESP_REDUCE_MAX || code == ESP_REDUCE_MIN;
    for (int32_t a = 0; a < x->rank; a++) {
        if (!reduced(attr, a))
            y->dims[y->rank++] = x->dims[a];
        else if (choice && x->dims[a] == 0)
            return esp_i_fail(diag, ESP_ERR_INVALID, "axis %d is empty: nothing to choose from",
                              (int)a);
        else if (attr->reduce.keep)
            y->dims[y->rank++] = 1;
    }
    return ESP_OK;
}

/* Operand 0 is x, 1 is y. */
static void reduce_nest(const esp_attr_t *attr, int32_t rank, const int64_t *dims,
                        esp_i_nest_t *nest_out)
{
    *nest_out = (esp_i_nest_t){.n_operands = 2};
    for (int32_t a = 0; a < rank; a++) {
        int32_t loop = esp_i_nest_loop(nest_out, dims[a]);
        esp_i_nest_axis(nest_out, 0, loop);
        if (!reduced(attr, a))
            esp_i_nest_axis(nest_out, 1, loop);
    }
    esp_i_nest_merge(nest_out);
}

/* Partial maxima, minima and products do not add up: only sums offer the axes that they reduce. */
static void reduce_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    esp_reduce_t code = op->attr->reduce.code;
    esp_i_nest_t nest;
    if (esp_i_op_empty(op))
        return;
    reduce_nest(op->attr, op->in[0].rank, op->in[0].dims, &nest);
    esp_i_nest_dims(&nest, 1, code == ESP_REDUCE_SUM || code == ESP_REDUCE_SUMSQ, dims);
}

static int32_t reduce_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    masks_out[0] = 1;
    return op->attr->reduce.code == ESP_REDUCE_SUM ? 1 : 0;
}

static double reduce_flops(const esp_i_op_t *op)
{
    double per_element = op->attr->reduce.code == ESP_REDUCE_SUMSQ ? 2 : 1;
    return per_element * (double)esp_i_shape_elements(&op->in[0]);
}

/* ---- gradient
 * -------------------------------------------------------------------------------------- */

/* y or dy with the reduced axes as extent 1, so that it broadcasts over x. */
static esp_status_t keep_axes(const esp_i_grad_t *grad, esp_tensor_id_t tensor,
                              esp_tensor_id_t *kept_out)
{
    const esp_i_shape_t *x = &grad->op->in[0];
    int64_t dims[ESP_MAX_RANK] = {0};
    *kept_out = tensor;
    if (grad->op->out[0].rank == x->rank)
        return ESP_OK;
    for (int32_t a = 0; a < x->rank; a++)
        dims[a] = reduced(grad->op->attr, a) ? 1 : x->dims[a];
    return esp_i_make_reshape(grad->builder, tensor, x->rank, dims, grad->name, kept_out,
                              grad->diag);
}

static esp_status_t expand(const esp_i_grad_t *grad, esp_tensor_id_t dy)
{
    const esp_i_shape_t *x = &grad->op->in[0];
    esp_attr_t attr = {0};
    attr.shape.rank = x->rank;
    for (int32_t a = 0; a < x->rank; a++)
        attr.shape.dims[a] = x->dims[a];
    return esp_i_make(grad->builder, ESP_KIND_EXPAND, &attr, 1, &dy, grad->name, &grad->dx[0],
                      grad->diag);
}

/* (x == y) * dy / n: the n equal extremes share the gradient. NaN: there is none. */
static esp_status_t choose(const esp_i_grad_t *grad, esp_tensor_id_t dy)
{
    esp_tensor_id_t y, equal, mask, count, share;
    esp_attr_t attr = {0};
    attr.cast.dtype = grad->op->in[0].dtype;
    ESP_TRY(keep_axes(grad, grad->out[0], &y));
    ESP_TRY(esp_i_make_binary(grad->builder, ESP_ELT_EQUAL, grad->in[0], y, grad->name, &equal,
                              grad->diag));
    ESP_TRY(
        esp_i_make(grad->builder, ESP_KIND_CAST, &attr, 1, &equal, grad->name, &mask, grad->diag));
    ESP_TRY(esp_i_make_reduce(grad->builder, ESP_REDUCE_SUM, mask, grad->op->attr->reduce.axes,
                              true, grad->name, &count, grad->diag));
    ESP_TRY(esp_i_make_binary(grad->builder, ESP_ELT_DIV_NO_NAN, dy, count, grad->name, &share,
                              grad->diag));
    return esp_i_make_binary(grad->builder, ESP_ELT_MUL, mask, share, grad->name, &grad->dx[0],
                             grad->diag);
}

static esp_status_t reduce_gradient(const esp_i_grad_t *grad)
{
    esp_tensor_id_t dy, twice;
    if (!grad->need[0])
        return ESP_OK;
    if (grad->op->attr->reduce.code == ESP_REDUCE_PROD)
        return esp_i_fail(grad->diag, ESP_ERR_UNSUPPORTED,
                          "the gradient of a product over axes is not supported");
    ESP_TRY(keep_axes(grad, grad->dy[0], &dy));
    switch (grad->op->attr->reduce.code) {
    case ESP_REDUCE_SUM:
        return expand(grad, dy);
    case ESP_REDUCE_MAX:
    case ESP_REDUCE_MIN:
        return choose(grad, dy);
    case ESP_REDUCE_SUMSQ:
        ESP_TRY(esp_i_make_affine(grad->builder, dy, 2, 0, grad->name, &twice, grad->diag));
        return esp_i_make_binary(grad->builder, ESP_ELT_MUL, grad->in[0], twice, grad->name,
                                 &grad->dx[0], grad->diag);
    case ESP_REDUCE_PROD:
        break;
    }
    return ESP_ERR_INTERNAL;
}

/* ---- kernel
 * --------------------------------------------------------------------------------------- */

static void reduce_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *x = &kernel->in[0], *y = &kernel->out[0];
    esp_reduce_t code = kernel->attr->reduce.code;
    esp_i_nest_t nest;
    esp_i_walk_t walk;
    reduce_nest(kernel->attr, x->global_rank, x->global, &nest);
    esp_i_nest_split(&nest, 0, x);
    esp_i_nest_walk(&nest, &walk);
    int64_t n = esp_i_buffer_elements(y);
    for (int64_t i = 0; i < n; i++)
        y->data[i] = esp_i_reduce_start(code);
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk)) {
        double *to = &y->data[walk.offset[1]];
        *to = esp_i_reduce_step(code, *to, x->data[walk.offset[0]]);
    }
}

const esp_i_kind_t esp_i_kind_REDUCE = {
    .name = "reduce",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = reduce_infer,
    .dims = reduce_dims,
    .linear = reduce_linear,
    .flops = reduce_flops,
    .gradient = reduce_gradient,
    .kernel = reduce_kernel,
};
