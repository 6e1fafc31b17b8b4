/* RESHAPE, TRANSPOSE and EXPAND: the elements of x under another shape, order or multiplicity. */
#include "graph/kinds/nest.h"

/* The shape that an attribute asks for, with the dtype of x. */
static esp_status_t asked_shape(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(esp_i_operand_attr_shape(op, diag));
    op->out[0].dtype = op->in[0].dtype;
    return esp_i_check_shape(&op->out[0], diag);
}

/* ---- RESHAPE
 * ----------------------------------------------------------------------------------------- */

static esp_status_t reshape_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(asked_shape(op, diag));
    if (esp_i_shape_elements(&op->in[0]) != esp_i_shape_elements(&op->out[0])) {
        char from[96], to[96];
        esp_i_operand_text(&op->in[0], from);
        esp_i_operand_text(&op->out[0], to);
        return esp_i_fail(diag, ESP_ERR_INVALID, "%s has %lld elements and %s has %lld", from,
                          (long long)esp_i_shape_elements(&op->in[0]), to,
                          (long long)esp_i_shape_elements(&op->out[0]));
    }
    return ESP_OK;
}

static esp_status_t reshape_gradient(const esp_i_grad_t *grad)
{
    const esp_i_shape_t *x = &grad->op->in[0];
    if (!grad->need[0])
        return ESP_OK;
    return esp_i_make_reshape(grad->builder, grad->dy[0], x->rank, x->dims, grad->name,
                              &grad->dx[0], grad->diag);
}

static void reshape_kernel(const esp_i_kernel_t *kernel)
{
    int64_t n = esp_i_buffer_elements(&kernel->out[0]);
    for (int64_t i = 0; i < n; i++)
        kernel->out[0].data[i] = kernel->in[0].data[i];
}

/* ---- TRANSPOSE
 * ------------------------------------------------------------------------------------------ */

static esp_status_t transpose_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0];
    esp_i_shape_t *y = &op->out[0];
    uint32_t seen = 0;
    *y = *x;
    for (int32_t a = 0; a < x->rank; a++) {
        int32_t from = op->attr->transpose.perm[a];
        if (from < 0 || from >= x->rank || (seen >> from & 1) != 0)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "axis %d of the output is axis %d of the input: not a permutation of "
                              "%d axes",
                              (int)a, (int)from, (int)x->rank);
        seen |= (uint32_t)1 << from;
        y->dims[a] = x->dims[from];
    }
    return ESP_OK;
}

static void transpose_nest(const esp_attr_t *attr, int32_t rank, const int64_t *dims,
                           esp_i_nest_t *nest_out)
{
    *nest_out = (esp_i_nest_t){.n_operands = 2};
    for (int32_t a = 0; a < rank; a++)
        esp_i_nest_axis(nest_out, 0, esp_i_nest_loop(nest_out, dims[a]));
    for (int32_t a = 0; a < rank; a++)
        esp_i_nest_axis(nest_out, 1, attr->transpose.perm[a]); /* loop i runs over axis i of x */
    esp_i_nest_merge(nest_out);
}

static void transpose_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    esp_i_nest_t nest;
    if (esp_i_op_empty(op))
        return;
    transpose_nest(op->attr, op->in[0].rank, op->in[0].dims, &nest);
    esp_i_nest_dims(&nest, 1, false, dims);
}

static esp_status_t transpose_gradient(const esp_i_grad_t *grad)
{
    esp_attr_t attr = {0};
    if (!grad->need[0])
        return ESP_OK;
    for (int32_t a = 0; a < grad->op->in[0].rank; a++)
        attr.transpose.perm[grad->op->attr->transpose.perm[a]] = a;
    return esp_i_make(grad->builder, ESP_KIND_TRANSPOSE, &attr, 1, grad->dy, grad->name,
                      &grad->dx[0], grad->diag);
}

static void copy(const esp_i_kernel_t *kernel, const esp_i_nest_t *nest)
{
    esp_i_walk_t walk;
    esp_i_nest_walk(nest, &walk);
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk))
        kernel->out[0].data[walk.offset[1]] = kernel->in[0].data[walk.offset[0]];
}

static void transpose_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *x = &kernel->in[0];
    esp_i_nest_t nest;
    transpose_nest(kernel->attr, x->global_rank, x->global, &nest);
    esp_i_nest_split(&nest, 0, x);
    copy(kernel, &nest);
}

/* ---- EXPAND
 * ------------------------------------------------------------------------------------------------
 */

static esp_status_t expand_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0], *y = &op->out[0];
    ESP_TRY(asked_shape(op, diag));
    int32_t shift = y->rank - x->rank;
    bool fits = shift >= 0;
    for (int32_t a = 0; fits && a < x->rank; a++)
        fits = x->dims[a] == 1 || x->dims[a] == y->dims[a + shift];
    if (fits)
        return ESP_OK;
    char from[96], to[96];
    esp_i_operand_text(x, from);
    esp_i_operand_text(y, to);
    return esp_i_fail(diag, ESP_ERR_INVALID, "%s does not stretch to %s", from, to);
}

/* x is aligned with y at the last axis; where it has extent 1 it does not have the loop. */
static void expand_nest(int32_t x_rank, const int64_t *x_dims, int32_t y_rank,
                        const int64_t *y_dims, esp_i_nest_t *nest_out)
{
    *nest_out = (esp_i_nest_t){.n_operands = 2};
    for (int32_t a = 0; a < y_rank; a++) {
        int32_t loop = esp_i_nest_loop(nest_out, y_dims[a]), own = a - y_rank + x_rank;
        if (own >= 0 && x_dims[own] == y_dims[a])
            esp_i_nest_axis(nest_out, 0, loop);
        esp_i_nest_axis(nest_out, 1, loop);
    }
    esp_i_nest_merge(nest_out);
}

static void expand_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    const esp_i_shape_t *x = &op->in[0], *y = &op->out[0];
    esp_i_nest_t nest;
    if (esp_i_op_empty(op))
        return;
    expand_nest(x->rank, x->dims, y->rank, y->dims, &nest);
    esp_i_nest_dims(&nest, 1, false, dims);
}

static esp_status_t expand_gradient(const esp_i_grad_t *grad)
{
    const esp_i_shape_t *x = &grad->op->in[0];
    if (!grad->need[0])
        return ESP_OK;
    return esp_i_make_sum_to(grad->builder, grad->dy[0], x->rank, x->dims, grad->name, &grad->dx[0],
                             grad->diag);
}

static void expand_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *x = &kernel->in[0], *y = &kernel->out[0];
    esp_i_nest_t nest;
    expand_nest(x->global_rank, x->global, y->global_rank, y->global, &nest);
    esp_i_nest_split(&nest, 1, y);
    copy(kernel, &nest);
}

const esp_i_kind_t esp_i_kind_RESHAPE = {
    .name = "reshape",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .flags = ESP_I_KIND_ALIAS,
    .family = ESP_FAMILY_FREE,
    .infer = reshape_infer,
    .dims = esp_i_operand_all, /* the buffer stays as it is, so any view of it does */
    .linear = esp_i_operand_linear_first,
    .gradient = reshape_gradient,
    .kernel = reshape_kernel,
};

const esp_i_kind_t esp_i_kind_TRANSPOSE = {
    .name = "transpose",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = transpose_infer,
    .dims = transpose_dims,
    .linear = esp_i_operand_linear_first,
    .gradient = transpose_gradient,
    .kernel = transpose_kernel,
};

const esp_i_kind_t esp_i_kind_EXPAND = {
    .name = "expand",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = expand_infer,
    .dims = expand_dims,
    .linear = esp_i_operand_linear_first,
    .gradient = expand_gradient,
    .kernel = expand_kernel,
};
