/* POOL and POOL_GRAD: maximum or average over the elements of a sliding window. */
#include "graph/kinds/window.h"

#include <float.h>

static esp_status_t pool_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_window_t *window = &op->attr->pool.window;
    const esp_i_shape_t *x = &op->in[0];
    ESP_TRY(esp_i_check_number(op, 0, diag));
    ESP_TRY(esp_i_window_check(window, x->rank, diag));
    esp_i_shape_t *y = &op->out[0];
    *y = (esp_i_shape_t){.dtype = x->dtype, .rank = x->rank, .dims = {x->dims[0], x->dims[1]}};
    ESP_TRY(esp_i_window_small(window, x, y, diag));
    for (int32_t d = 0; d < window->rank && op->attr->pool.is_max; d++) {
        int64_t reach = (window->kernel[d] - 1) * window->dilation[d];
        if (window->pad_lo[d] > reach || window->pad_hi[d] > reach)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "a window of dimension %d has nothing but padding: no maximum",
                              (int)d);
    }
    return esp_i_check_shape(y, diag);
}

static esp_status_t pool_grad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_window_t *window = &op->attr->pool.window;
    int32_t last = op->attr->pool.is_max ? 2 : 0;
    if (op->n_in != last + 1)
        return esp_i_fail(diag, ESP_ERR_INVALID, "%d inputs where %d are expected", (int)op->n_in,
                          (int)last + 1);
    const esp_i_shape_t *dy = &op->in[last];
    ESP_TRY(esp_i_check_dtypes(op, 0, op->n_in, diag));
    ESP_TRY(esp_i_check_number(op, 0, diag));
    ESP_TRY(esp_i_window_check(window, op->in[0].rank, diag));
    esp_i_shape_t *dx = &op->out[0];
    if (op->attr->pool.is_max) {
        ESP_TRY(esp_i_check_equal(&op->in[1], "input 1", dy, "input 2", diag));
        *dx = op->in[0];
        if (dx->rank != dy->rank || dx->dims[0] != dy->dims[0] || dx->dims[1] != dy->dims[1])
            return esp_i_check_equal(dx, "input 0", dy, "input 2", diag);
    } else {
        *dx = (esp_i_shape_t){
            .dtype = dy->dtype, .rank = dy->rank, .dims = {dy->dims[0], dy->dims[1]}};
        for (int32_t d = 0; d < window->rank; d++) {
            if (op->attr->pool.target[d] < 0)
                return esp_i_fail(diag, ESP_ERR_INVALID, "negative target extent in dimension %d",
                                  (int)d);
            dx->dims[d + 2] = op->attr->pool.target[d];
        }
    }
    ESP_TRY(esp_i_check_shape(dx, diag));
    return esp_i_window_fits(window, dx, dy, "dy", diag);
}

/* Images and channels are one dimension: every plane stands alone. */
static void pool_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    int64_t planes = op->in[0].dims[0] * op->in[0].dims[1];
    if (planes <= 1 || esp_i_op_empty(op))
        return;
    esp_i_dims_open(dims, planes, 1);
    for (int32_t o = 0; o <= op->n_in; o++) {
        const esp_i_shape_t *shape = o < op->n_in ? &op->in[o] : &op->out[0];
        esp_i_dims_bind(dims, o, ESP_BIND_CARRY, 1, esp_i_shape_product(shape, 2, shape->rank));
    }
}

static int32_t pool_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    masks_out[0] = 1;
    return op->attr->pool.is_max ? 0 : 1;
}

static int32_t pool_grad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    masks_out[0] = op->attr->pool.is_max ? 4 : 1; /* dy */
    return 1;
}

static double pool_flops(const esp_i_op_t *op)
{
    return (double)esp_i_shape_elements(&op->out[0]) * esp_i_window_taps(&op->attr->pool.window);
}

static double pool_grad_flops(const esp_i_op_t *op)
{
    const esp_i_shape_t *dy = &op->in[op->n_in - 1];
    return (double)esp_i_shape_elements(dy) * esp_i_window_taps(&op->attr->pool.window);
}

static esp_status_t pool_gradient(const esp_i_grad_t *grad)
{
    if (!grad->need[0])
        return ESP_OK;
    esp_attr_t attr = *grad->op->attr;
    const esp_tensor_id_t maximum[3] = {grad->in[0], grad->out[0], grad->dy[0]};
    for (int32_t d = 0; d < attr.pool.window.rank; d++)
        attr.pool.target[d] = grad->op->in[0].dims[d + 2];
    bool is_max = attr.pool.is_max;
    return esp_i_make(grad->builder, ESP_KIND_POOL_GRAD, &attr, is_max ? 3 : 1,
                      is_max ? maximum : grad->dy, grad->name, &grad->dx[0], grad->diag);
}

/* Of the average only: a maximum would have to gather at the positions that it chose. */
static esp_status_t pool_grad_gradient(const esp_i_grad_t *grad)
{
    if (grad->op->attr->pool.is_max)
        return esp_i_fail(grad->diag, ESP_ERR_UNSUPPORTED,
                          "the gradient of a maximum pool has no gradient itself");
    if (!grad->need[0])
        return ESP_OK;
    return esp_i_make(grad->builder, ESP_KIND_POOL, grad->op->attr, 1, grad->dy, grad->name,
                      &grad->dx[0], grad->diag);
}

/* ---- kernels
 * -------------------------------------------------------------------------------------- */

/* What an average is divided by at a position. */
static double divisor(const esp_i_geometry_t *space, bool count_padding, int64_t at)
{
    int64_t count = 0;
    for (int64_t tap = 0; tap < space->kernel_elements; tap++)
        count += count_padding || esp_i_geometry_tap(space, at, tap) >= 0;
    return count > 0 ? (double)count : 1; /* nothing but padding: the sum is 0 */
}

/* The first element of the window, in row-major order, that holds the maximum; -1: none. */
static int64_t maximum_at(const esp_i_geometry_t *space, const double *x, int64_t at)
{
    int64_t best = -1;
    for (int64_t tap = 0; tap < space->kernel_elements; tap++) {
        int64_t from = esp_i_geometry_tap(space, at, tap);
        if (from >= 0 && (best < 0 || x[from] > x[best]))
            best = from;
    }
    return best;
}

static double average(const esp_i_geometry_t *space, bool count_padding, const double *x,
                      int64_t at)
{
    double sum = 0;
    for (int64_t tap = 0; tap < space->kernel_elements; tap++) {
        int64_t from = esp_i_geometry_tap(space, at, tap);
        sum += from < 0 ? 0 : x[from];
    }
    return sum / divisor(space, count_padding, at);
}

/* Spatial extents are never split, but axes 0 and 1 may have become one: count from the back. */
static int64_t planes_of(const esp_i_buffer_t *buffer, int64_t plane_elements)
{
    return plane_elements > 0 ? esp_i_buffer_elements(buffer) / plane_elements : 0;
}

static void pool_kernel(const esp_i_kernel_t *kernel)
{
    const esp_attr_t *attr = kernel->attr;
    const esp_i_buffer_t *x = &kernel->in[0], *y = &kernel->out[0];
    esp_i_geometry_t space;
    esp_i_geometry(&attr->pool.window, x->global_rank, x->global, y->global, &space);
    int64_t planes = planes_of(y, space.small_elements);
    for (int64_t p = 0; p < planes; p++) {
        const double *from = x->data + p * space.large_elements;
        double *to = y->data + p * space.small_elements;
        for (int64_t at = 0; at < space.small_elements; at++) {
            if (!attr->pool.is_max) {
                to[at] = average(&space, attr->pool.count_padding, from, at);
                continue;
            }
            int64_t best = maximum_at(&space, from, at);
            to[at] = best < 0 ? -DBL_MAX : from[best];
        }
    }
}

static void pool_grad_plane(const esp_attr_t *attr, const esp_i_geometry_t *space, const double *x,
                            const double *dy, double *dx)
{
    for (int64_t at = 0; at < space->small_elements; at++) {
        if (attr->pool.is_max) {
            int64_t best = maximum_at(space, x, at);
            if (best >= 0)
                dx[best] += dy[at];
            continue;
        }
        double part = dy[at] / divisor(space, attr->pool.count_padding, at);
        for (int64_t tap = 0; tap < space->kernel_elements; tap++) {
            int64_t to = esp_i_geometry_tap(space, at, tap);
            if (to >= 0)
                dx[to] += part;
        }
    }
}

static void pool_grad_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *dx = &kernel->out[0], *dy = &kernel->in[kernel->n_in - 1];
    esp_i_geometry_t space;
    esp_i_geometry(&kernel->attr->pool.window, dx->global_rank, dx->global, dy->global, &space);
    esp_i_zero(dx);
    bool is_max = kernel->attr->pool.is_max;
    int64_t planes = planes_of(dy, space.small_elements);
    for (int64_t p = 0; p < planes; p++)
        pool_grad_plane(kernel->attr, &space,
                        is_max ? kernel->in[0].data + p * space.large_elements : NULL,
                        dy->data + p * space.small_elements, dx->data + p * space.large_elements);
}

const esp_i_kind_t esp_i_kind_POOL = {
    .name = "pool",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = pool_infer,
    .dims = pool_dims,
    .linear = pool_linear,
    .flops = pool_flops,
    .gradient = pool_gradient,
    .kernel = pool_kernel,
};

const esp_i_kind_t esp_i_kind_POOL_GRAD = {
    .name = "pool_grad",
    .min_in = 1,
    .max_in = 3,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = pool_grad_infer,
    .dims = pool_dims,
    .linear = pool_grad_linear,
    .flops = pool_grad_flops,
    .gradient = pool_grad_gradient,
    .kernel = pool_grad_kernel,
};
