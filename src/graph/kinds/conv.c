/*
 * CONV and its two gradients: the same seven loops over x[n,c,..], w[k,c/g,..] and y[n,k,..], where
 * one of the three is the result.
 */
#include "graph/kinds/window.h"

enum { X, W, Y }; /* the tensors of a convolution, whatever their role in the op */

/* Which operand each tensor is; operand 2 is the output. */
static const int32_t conv_operands[3] = {[X] = 0, [W] = 1, [Y] = 2};
static const int32_t conv_dx_operands[3] = {[Y] = 0, [W] = 1, [X] = 2};
static const int32_t conv_dw_operands[3] = {[X] = 0, [Y] = 1, [W] = 2};

static const esp_i_shape_t *shape_of(const esp_i_op_t *op, int32_t operand)
{
    return operand == 2 ? &op->out[0] : &op->in[operand];
}

/* ---- shapes ------------------------------------------------------------------------------------
 */

static esp_status_t check_common(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(esp_i_check_dtypes(op, 0, 2, diag));
    ESP_TRY(esp_i_check_number(op, 0, diag));
    ESP_TRY(esp_i_window_check(&op->attr->conv.window, op->in[0].rank, diag));
    if (op->in[1].rank != op->in[0].rank)
        return esp_i_fail(diag, ESP_ERR_INVALID, "input 0 has %d axes and input 1 has %d",
                          (int)op->in[0].rank, (int)op->in[1].rank);
    if (op->attr->conv.groups < 1)
        return esp_i_fail(diag, ESP_ERR_INVALID, "%lld groups", (long long)op->attr->conv.groups);
    return ESP_OK;
}

static esp_status_t check_channels(int64_t channels, int64_t groups, const char *what,
                                   esp_diag_t *diag)
{
    if (channels % groups != 0)
        return esp_i_fail(diag, ESP_ERR_INVALID, "%lld %s in %lld groups", (long long)channels,
                          what, (long long)groups);
    return ESP_OK;
}

/* The kernel of the window is that of the weight. */
static esp_status_t check_weight(const esp_window_t *window, const esp_i_shape_t *w,
                                 esp_diag_t *diag)
{
    for (int32_t d = 0; d < window->rank; d++)
        if (w->dims[d + 2] != window->kernel[d])
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "axis %d of the weight has %lld where the kernel has %lld",
                              (int)d + 2, (long long)w->dims[d + 2], (long long)window->kernel[d]);
    return ESP_OK;
}

static esp_status_t conv_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_window_t *window = &op->attr->conv.window;
    const esp_i_shape_t *x = &op->in[0], *w = &op->in[1];
    int64_t groups = op->attr->conv.groups;
    ESP_TRY(check_common(op, diag));
    ESP_TRY(check_weight(window, w, diag));
    ESP_TRY(check_channels(x->dims[1], groups, "input channels", diag));
    ESP_TRY(check_channels(w->dims[0], groups, "output channels", diag));
    if (x->dims[1] / groups != w->dims[1])
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "input 0 has %lld channels in %lld groups and the weight has %lld per "
                          "group",
                          (long long)x->dims[1], (long long)groups, (long long)w->dims[1]);
    esp_i_shape_t *y = &op->out[0];
    *y = (esp_i_shape_t){.dtype = x->dtype, .rank = x->rank, .dims = {x->dims[0], w->dims[0]}};
    ESP_TRY(esp_i_window_small(window, x, y, diag));
    return esp_i_check_shape(y, diag);
}

static esp_status_t conv_dx_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_window_t *window = &op->attr->conv.window;
    const esp_i_shape_t *dy = &op->in[0], *w = &op->in[1];
    int64_t groups = op->attr->conv.groups, channels;
    ESP_TRY(check_common(op, diag));
    ESP_TRY(check_weight(window, w, diag));
    ESP_TRY(check_channels(w->dims[0], groups, "output channels", diag));
    if (dy->dims[1] != w->dims[0])
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "axis 1 has %lld in input 0 and axis 0 has %lld in input 1",
                          (long long)dy->dims[1], (long long)w->dims[0]);
    if (!esp_i_mul_i64(w->dims[1], groups, &channels))
        return esp_i_fail(diag, ESP_ERR_LIMIT, "%lld groups are too many", (long long)groups);
    esp_i_shape_t *dx = &op->out[0];
    *dx = (esp_i_shape_t){.dtype = dy->dtype, .rank = dy->rank, .dims = {dy->dims[0], channels}};
    for (int32_t d = 0; d < window->rank; d++) {
        if (op->attr->conv.target[d] < 0)
            return esp_i_fail(diag, ESP_ERR_INVALID, "negative target extent in dimension %d",
                              (int)d);
        dx->dims[d + 2] = op->attr->conv.target[d];
    }
    ESP_TRY(esp_i_check_shape(dx, diag));
    return esp_i_window_fits(window, dx, dy, "input 0", diag);
}

static esp_status_t conv_dw_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_window_t *window = &op->attr->conv.window;
    const esp_i_shape_t *x = &op->in[0], *dy = &op->in[1];
    int64_t groups = op->attr->conv.groups;
    ESP_TRY(check_common(op, diag));
    ESP_TRY(check_channels(x->dims[1], groups, "input channels", diag));
    ESP_TRY(check_channels(dy->dims[1], groups, "output channels", diag));
    if (x->dims[0] != dy->dims[0])
        return esp_i_fail(diag, ESP_ERR_INVALID, "axis 0 has %lld in input 0 and %lld in input 1",
                          (long long)x->dims[0], (long long)dy->dims[0]);
    ESP_TRY(esp_i_window_fits(window, x, dy, "input 1", diag));
    esp_i_shape_t *dw = &op->out[0];
    *dw = (esp_i_shape_t){
        .dtype = x->dtype, .rank = x->rank, .dims = {dy->dims[1], x->dims[1] / groups}};
    for (int32_t d = 0; d < window->rank; d++)
        dw->dims[d + 2] = window->kernel[d];
    return esp_i_check_shape(dw, diag);
}

/* ---- factors, linear sets, cost
 * ------------------------------------------------------------------ */

/* Binds a tensor whose buffer is [outer][extent][inner]; absent from an output means summed over.
 */
static void bind(const esp_i_op_t *op, const int32_t operands[3], int32_t tensor, int64_t extent,
                 int64_t outer, esp_i_dims_t *dims)
{
    int64_t elements = esp_i_shape_elements(shape_of(op, operands[tensor]));
    esp_i_dims_bind(dims, operands[tensor], ESP_BIND_CARRY, outer, elements / (outer * extent));
}

static void leave_out(const int32_t operands[3], int32_t tensor, esp_i_dims_t *dims)
{
    if (operands[tensor] == 2)
        esp_i_dims_bind(dims, 2, ESP_BIND_SUM, 0, 0);
}

/*
 * The loops n, g, k (output channels of a group) and c (input channels of a group). Spatial
 * dimensions carry no factor: their neighbours overlap.
 */
static void declare(const esp_i_op_t *op, const int32_t operands[3], esp_i_dims_t *dims)
{
    int64_t g = op->attr->conv.groups, n = shape_of(op, operands[X])->dims[0];
    int64_t k = shape_of(op, operands[W])->dims[0] / g, c = shape_of(op, operands[W])->dims[1];
    if (esp_i_op_empty(op))
        return;
    if (n > 1) {
        esp_i_dims_open(dims, n, 1);
        bind(op, operands, X, n, 1, dims);
        bind(op, operands, Y, n, 1, dims);
        leave_out(operands, W, dims);
    }
    if (g > 1) {
        esp_i_dims_open(dims, g, 1);
        bind(op, operands, X, g, n, dims);
        bind(op, operands, W, g, 1, dims);
        bind(op, operands, Y, g, n, dims);
    }
    if (k > 1) {
        esp_i_dims_open(dims, k, 1);
        bind(op, operands, W, k, g, dims);
        bind(op, operands, Y, k, n * g, dims);
        leave_out(operands, X, dims);
    }
    if (c > 1) {
        esp_i_dims_open(dims, c, 1);
        bind(op, operands, X, c, n * g, dims);
        bind(op, operands, W, c, g * k, dims);
        leave_out(operands, Y, dims);
    }
}

static void conv_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(op, conv_operands, dims);
}

static void conv_dx_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(op, conv_dx_operands, dims);
}

static void conv_dw_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(op, conv_dw_operands, dims);
}

static int32_t conv_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    (void)op;
    masks_out[0] = 1;
    masks_out[1] = 2;
    return 2;
}

/* Two operations per element of y, tap and input channel of the group; padding counts. */
static double flops(const esp_i_op_t *op, const int32_t operands[3])
{
    const esp_i_shape_t *y = shape_of(op, operands[Y]), *w = shape_of(op, operands[W]);
    return 2 * (double)esp_i_shape_elements(y) * (double)w->dims[1] *
           esp_i_window_taps(&op->attr->conv.window);
}

static double conv_flops(const esp_i_op_t *op)
{
    return flops(op, conv_operands);
}

static double conv_dx_flops(const esp_i_op_t *op)
{
    return flops(op, conv_dx_operands);
}

static double conv_dw_flops(const esp_i_op_t *op)
{
    return flops(op, conv_dw_operands);
}

/* ---- gradients
 * ------------------------------------------------------------------------------------ */

static esp_status_t make(const esp_i_grad_t *grad, esp_op_kind_t kind, esp_tensor_id_t first,
                         esp_tensor_id_t second, const esp_i_shape_t *target, int32_t input)
{
    if (!grad->need[input])
        return ESP_OK;
    esp_attr_t attr = *grad->op->attr;
    for (int32_t d = 0; d < ESP_MAX_SPATIAL; d++) {
        bool have = target && d < attr.conv.window.rank;
        attr.conv.target[d] = have ? target->dims[d + 2] : 0;
    }
    const esp_tensor_id_t inputs[2] = {first, second};
    return esp_i_make(grad->builder, kind, &attr, 2, inputs, grad->name, &grad->dx[input],
                      grad->diag);
}

static esp_status_t conv_gradient(const esp_i_grad_t *grad)
{
    esp_tensor_id_t x = grad->in[0], w = grad->in[1], dy = grad->dy[0];
    ESP_TRY(make(grad, ESP_KIND_CONV_DX, dy, w, &grad->op->in[0], 0));
    return make(grad, ESP_KIND_CONV_DW, x, dy, NULL, 1);
}

/* dx = conv_dx(dy, w): with g flowing into dx, dy gets conv(g, w) and w gets conv_dw(g, dy). */
static esp_status_t conv_dx_gradient(const esp_i_grad_t *grad)
{
    esp_tensor_id_t dy = grad->in[0], w = grad->in[1], g = grad->dy[0];
    ESP_TRY(make(grad, ESP_KIND_CONV, g, w, NULL, 0));
    return make(grad, ESP_KIND_CONV_DW, g, dy, NULL, 1);
}

/* dw = conv_dw(x, dy): with g flowing into dw, x gets conv_dx(dy, g) and dy gets conv(x, g). */
static esp_status_t conv_dw_gradient(const esp_i_grad_t *grad)
{
    esp_tensor_id_t x = grad->in[0], dy = grad->in[1], g = grad->dy[0];
    ESP_TRY(make(grad, ESP_KIND_CONV_DX, dy, g, &grad->op->in[0], 0));
    return make(grad, ESP_KIND_CONV, x, g, NULL, 1);
}

/* ---- kernels
 * -------------------------------------------------------------------------------------- */

/* The local extents and buffers of one convolution. */
typedef struct conv {
    esp_i_geometry_t space;
    int64_t n, g, k, c; /* k and c: of one group */
    double *data[3];
    int32_t result; /* the tensor that is accumulated into */
} conv_t;

/* All taps of one image, one output channel and one input channel. */
static void accumulate_plane(const conv_t *conv, double *x, double *w, double *y)
{
    const esp_i_geometry_t *space = &conv->space;
    for (int64_t at = 0; at < space->small_elements; at++) {
        for (int64_t tap = 0; tap < space->kernel_elements; tap++) {
            int64_t from = esp_i_geometry_tap(space, at, tap);
            if (from < 0)
                continue;
            if (conv->result == Y)
                y[at] += x[from] * w[tap];
            else if (conv->result == X)
                x[from] += y[at] * w[tap];
            else
                w[tap] += x[from] * y[at];
        }
    }
}

static void accumulate(const esp_i_kernel_t *kernel, const int32_t operands[3], int32_t result)
{
    const esp_i_buffer_t *tensor[3];
    conv_t conv = {.result = result};
    for (int32_t t = 0; t < 3; t++) {
        tensor[t] = operands[t] == 2 ? &kernel->out[0] : &kernel->in[operands[t]];
        conv.data[t] = tensor[t]->data;
    }
    esp_i_zero(tensor[result]);
    conv.n = tensor[X]->dims[0];
    conv.c = tensor[W]->dims[1];
    if (conv.n == 0 || conv.c == 0 || tensor[X]->dims[1] == 0)
        return;
    conv.g = tensor[X]->dims[1] / conv.c; /* groups may be split: what the shapes say counts */
    conv.k = tensor[Y]->dims[1] / conv.g;
    esp_i_geometry(&kernel->attr->conv.window, tensor[X]->rank, tensor[X]->dims, tensor[Y]->dims,
                   &conv.space);
    int64_t taps = conv.space.kernel_elements;
    for (int64_t n = 0; n < conv.n; n++)
        for (int64_t k = 0; k < conv.g * conv.k; k++)
            for (int64_t c = 0; c < conv.c; c++) {
                int64_t g = k / conv.k;
                int64_t plane = (n * conv.g + g) * conv.c + c;
                accumulate_plane(&conv, conv.data[X] + plane * conv.space.large_elements,
                                 conv.data[W] + (k * conv.c + c) * taps,
                                 conv.data[Y] +
                                     (n * conv.g * conv.k + k) * conv.space.small_elements);
            }
}

static void conv_kernel(const esp_i_kernel_t *kernel)
{
    accumulate(kernel, conv_operands, Y);
}

static void conv_dx_kernel(const esp_i_kernel_t *kernel)
{
    accumulate(kernel, conv_dx_operands, X);
}

static void conv_dw_kernel(const esp_i_kernel_t *kernel)
{
    accumulate(kernel, conv_dw_operands, W);
}

#define CONV_KIND(symbol, text, prefix)                                                            \
    const esp_i_kind_t esp_i_kind_##symbol = {                                                     \
        .name = text,                                                                              \
        .min_in = 2,                                                                               \
        .max_in = 2,                                                                               \
        .n_out = 1,                                                                                \
        .family = ESP_FAMILY_CONV,                                                                 \
        .infer = prefix##_infer,                                                                   \
        .dims = prefix##_dims,                                                                     \
        .linear = conv_linear,                                                                     \
        .flops = prefix##_flops,                                                                   \
        .gradient = prefix##_gradient,                                                             \
        .kernel = prefix##_kernel,                                                                 \
    }

CONV_KIND(CONV, "conv", conv);
CONV_KIND(CONV_DX, "conv_dx", conv_dx);
CONV_KIND(CONV_DW, "conv_dw", conv_dw);
