/* Convolution and pooling. */
#include "import/rules.h"

#include <string.h>

enum { MAX_PADS = 2 * ESP_MAX_SPATIAL, MAX_ENTRY = 1 << 16 /* products stay below 2^63 */ };

/* The attributes that all windowed ops share, before padding is known. */
typedef struct window_attrs {
    esp_window_t window;
    int64_t pads[MAX_PADS];
    esp_i_str_t auto_pad;
    bool ceil;
    int64_t ceil_added[ESP_MAX_SPATIAL]; /* to pad_hi */
} window_attrs_t;

static esp_status_t read_list(esp_i_node_t *node, const char *name, int32_t rank, int64_t least,
                              int64_t *out)
{
    int32_t count;
    ESP_TRY(esp_i_im_attr_ints(node, name, MAX_PADS, out, &count));
    if (count >= 0 && count != rank)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%s has %d entries instead of %d", name,
                          count, rank);
    for (int32_t d = 0; d < count; d++)
        if (out[d] < least || out[d] > MAX_ENTRY)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "%s has the entry %lld", name,
                              (long long)out[d]);
    return ESP_OK;
}

/* `kernel`: from the weight, or NULL where the attribute must say it. */
static esp_status_t read_window(esp_i_node_t *node, int32_t x_rank, const int64_t *kernel,
                                window_attrs_t *out)
{
    int64_t list[MAX_PADS] = {0}, ceil_mode;
    int32_t rank = x_rank - 2;
    *out = (window_attrs_t){.window.rank = rank};
    if (rank < 1 || rank > ESP_MAX_SPATIAL)
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                          "%d spatial dimensions (1 to %d are supported)", rank, ESP_MAX_SPATIAL);
    for (int32_t d = 0; d < MAX_PADS; d++)
        list[d] = kernel != NULL && d < rank ? kernel[d] : 0;
    ESP_TRY(read_list(node, "kernel_shape", rank, 1, list));
    memcpy(out->window.kernel, list, sizeof out->window.kernel);
    for (int32_t d = 0; d < rank; d++)
        if (list[d] < 1 || (kernel != NULL && kernel[d] != list[d]))
            return esp_i_fail(node->diag, ESP_ERR_INVALID,
                              "the kernel has extent %lld in dimension %d", (long long)list[d], d);
    for (int32_t d = 0; d < MAX_PADS; d++)
        list[d] = 1;
    ESP_TRY(read_list(node, "strides", rank, 1, list));
    memcpy(out->window.stride, list, sizeof out->window.stride);
    for (int32_t d = 0; d < MAX_PADS; d++)
        list[d] = 1;
    ESP_TRY(read_list(node, "dilations", rank, 1, list));
    memcpy(out->window.dilation, list, sizeof out->window.dilation);
    ESP_TRY(read_list(node, "pads", 2 * rank, 0, out->pads));
    ESP_TRY(esp_i_im_attr_int(node, "ceil_mode", 0, &ceil_mode));
    out->ceil = ceil_mode != 0;
    return esp_i_im_attr_text(node, "auto_pad", "NOTSET", &out->auto_pad);
}

static int64_t reach_of(const esp_window_t *w, int32_t d)
{
    return (w->kernel[d] - 1) * w->dilation[d] + 1;
}

/* Padding of a forward window over `extent`. */
static esp_status_t resolve_pads(esp_i_node_t *node, window_attrs_t *attrs, const int64_t *extent)
{
    esp_window_t *w = &attrs->window;
    bool upper = esp_i_str_is(attrs->auto_pad, "SAME_UPPER");
    bool same = upper || esp_i_str_is(attrs->auto_pad, "SAME_LOWER");
    bool given = attrs->auto_pad.length == 0 || esp_i_str_is(attrs->auto_pad, "NOTSET");
    if (!same && !given && !esp_i_str_is(attrs->auto_pad, "VALID"))
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "auto_pad is '%.*s'",
                          (int)esp_i_min_i64(attrs->auto_pad.length, 40), attrs->auto_pad.data);
    for (int32_t d = 0; d < w->rank; d++) {
        int64_t reach = reach_of(w, d);
        w->pad_lo[d] = given ? attrs->pads[d] : 0;
        w->pad_hi[d] = given ? attrs->pads[d + w->rank] : 0;
        if (same) {
            int64_t windows = esp_i_ceil_div(extent[d], w->stride[d]);
            int64_t total = esp_i_max_i64((windows - 1) * w->stride[d] + reach - extent[d], 0);
            w->pad_lo[d] = upper ? total / 2 : total - total / 2;
            w->pad_hi[d] = total - w->pad_lo[d];
        }
        int64_t room = extent[d] + w->pad_lo[d] + w->pad_hi[d] - reach;
        if (room < 0)
            return esp_i_fail(
                node->diag, ESP_ERR_INVALID, "the window reaches over %lld, dimension %d has %lld",
                (long long)reach, d, (long long)(extent[d] + w->pad_lo[d] + w->pad_hi[d]));
        int64_t rest = room % w->stride[d];
        /* one window more, if it starts before the padding at the end */
        if (attrs->ceil && rest > 0 &&
            (room / w->stride[d] + 1) * w->stride[d] < extent[d] + w->pad_lo[d])
            attrs->ceil_added[d] = w->stride[d] - rest;
        w->pad_hi[d] += attrs->ceil_added[d];
    }
    return ESP_OK;
}

/* ---- convolution ----------------------------------------------------------------------------- */

static esp_status_t add_bias(esp_i_node_t *node, esp_i_value_t *y, esp_i_value_t *bias)
{
    if (bias != NULL) {
        ESP_TRY(esp_i_im_per_channel(node, bias, y->rank, &bias));
        ESP_TRY(esp_i_im_binary(node, ESP_ELT_ADD, y, bias, &y));
    }
    node->out[0] = y;
    return ESP_OK;
}

static esp_status_t check_operands(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 2, 3));
    if (node->in[0]->rank != node->in[1]->rank)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "input of %d axes, weight of %d",
                          node->in[0]->rank, node->in[1]->rank);
    return ESP_OK;
}

esp_status_t esp_i_rule_conv(esp_i_node_t *node)
{
    window_attrs_t attrs;
    esp_attr_t attr = {0};
    esp_i_value_t *y;
    ESP_TRY(check_operands(node));
    ESP_TRY(read_window(node, node->in[0]->rank, node->in[1]->dims + 2, &attrs));
    ESP_TRY(resolve_pads(node, &attrs, node->in[0]->dims + 2));
    ESP_TRY(esp_i_im_attr_int(node, "group", 1, &attr.conv.groups));
    attr.conv.window = attrs.window;
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_CONV, &attr, 2, node->in, &y));
    return add_bias(node, y, esp_i_im_in(node, 2));
}

/* Extents of the result of a transposed convolution, and its padding. */
static esp_status_t transposed_extents(esp_i_node_t *node, window_attrs_t *attrs, int64_t *target)
{
    esp_window_t *w = &attrs->window;
    int64_t extra[MAX_PADS] = {0}, shape[MAX_PADS];
    int32_t count;
    ESP_TRY(read_list(node, "output_padding", w->rank, 0, extra));
    ESP_TRY(esp_i_im_attr_ints(node, "output_shape", MAX_PADS, shape, &count));
    if (count >= 0 && count != w->rank)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "output_shape has %d entries", count);
    bool upper = esp_i_str_is(attrs->auto_pad, "SAME_UPPER");
    bool same = upper || esp_i_str_is(attrs->auto_pad, "SAME_LOWER");
    for (int32_t d = 0; d < w->rank; d++) {
        int64_t x = node->in[0]->dims[d + 2];
        int64_t full = (x - 1) * w->stride[d] + reach_of(w, d) + extra[d];
        w->pad_lo[d] = attrs->pads[d];
        w->pad_hi[d] = attrs->pads[d + w->rank];
        target[d] = full - w->pad_lo[d] - w->pad_hi[d];
        if (same || count >= 0) {
            target[d] = count >= 0 ? shape[d] : x * w->stride[d];
            int64_t total = esp_i_max_i64(full - target[d], 0);
            w->pad_lo[d] = upper ? total / 2 : total - total / 2;
            w->pad_hi[d] = total - w->pad_lo[d];
        }
        if (x < 1 || target[d] < 1)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "the result is empty in dimension %d",
                              d);
    }
    return ESP_OK;
}

/* x [n, c, ..], w [c, m / groups, ..]: the gradient of a convolution to its input. */
esp_status_t esp_i_rule_conv_transpose(esp_i_node_t *node)
{
    window_attrs_t attrs;
    esp_attr_t attr = {0};
    esp_i_value_t *y;
    ESP_TRY(check_operands(node));
    ESP_TRY(read_window(node, node->in[0]->rank, node->in[1]->dims + 2, &attrs));
    ESP_TRY(transposed_extents(node, &attrs, attr.conv.target));
    ESP_TRY(esp_i_im_attr_int(node, "group", 1, &attr.conv.groups));
    attr.conv.window = attrs.window;
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_CONV_DX, &attr, 2, node->in, &y));
    return add_bias(node, y, esp_i_im_in(node, 2));
}

/* ---- pooling --------------------------------------------------------------------------------- */

/*
 * Averages that count padding leave out what ceil_mode adds behind it. Where it added something,
 * padding becomes an op of its own, and what is left in the window is not counted.
 */
static esp_status_t pad_apart(esp_i_node_t *node, const window_attrs_t *attrs, esp_attr_t *pool,
                              esp_i_value_t **x)
{
    esp_window_t *w = &pool->pool.window;
    esp_attr_t attr = {0};
    bool added = false;
    for (int32_t d = 0; d < w->rank; d++) {
        int64_t extra = attrs->ceil_added[d];
        added = added || extra > 0;
        attr.pad.lo[d + 2] = w->pad_lo[d];
        attr.pad.hi[d + 2] = w->pad_hi[d] - extra;
    }
    if (!added)
        return ESP_OK;
    for (int32_t d = 0; d < w->rank; d++) {
        w->pad_lo[d] = 0;
        w->pad_hi[d] = attrs->ceil_added[d];
    }
    pool->pool.count_padding = 0;
    return esp_i_im_emit(node, ESP_KIND_PAD, &attr, 1, x, x);
}

/* code: 1 for max */
esp_status_t esp_i_rule_pool(esp_i_node_t *node)
{
    window_attrs_t attrs;
    esp_attr_t attr = {0};
    esp_i_value_t *x;
    int64_t count_padding;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(read_window(node, node->in[0]->rank, NULL, &attrs));
    ESP_TRY(resolve_pads(node, &attrs, node->in[0]->dims + 2));
    ESP_TRY(esp_i_im_attr_int(node, "count_include_pad", 0, &count_padding));
    attr.pool.window = attrs.window;
    attr.pool.is_max = node->op->code;
    attr.pool.count_padding = count_padding != 0;
    x = node->in[0];
    if (attr.pool.count_padding && !attr.pool.is_max)
        ESP_TRY(pad_apart(node, &attrs, &attr, &x));
    return esp_i_im_emit(node, ESP_KIND_POOL, &attr, 1, &x, &node->out[0]);
}

static uint32_t spatial_axes(const esp_i_value_t *x)
{
    return ((1u << x->rank) - 1) & ~3u;
}

/* code: 1 for max */
esp_status_t esp_i_rule_global_pool(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    esp_i_value_t *x = node->in[0];
    if (x->rank < 3)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "an input of %d axes", x->rank);
    if (node->op->code != 0)
        return esp_i_im_reduce(node, ESP_REDUCE_MAX, x, spatial_axes(x), true, &node->out[0]);
    return esp_i_im_mean(node, x, spatial_axes(x), true, &node->out[0]);
}

/*
 * x / (bias + alpha * mean of x^2 over `size` channels around)^beta. The mean is an average pool
 * over the channel axis: x^2 is seen as [n, 1, c, rest].
 */
esp_status_t esp_i_rule_lrn(esp_i_node_t *node)
{
    int64_t size;
    double alpha, beta, bias;
    esp_i_value_t *square, *scale;
    esp_attr_t attr = {0};
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_int(node, "size", 0, &size));
    ESP_TRY(esp_i_im_attr_float(node, "alpha", 1e-4, &alpha));
    ESP_TRY(esp_i_im_attr_float(node, "beta", 0.75, &beta));
    ESP_TRY(esp_i_im_attr_float(node, "bias", 1, &bias));
    esp_i_value_t *x = node->in[0];
    if (x->rank < 2 || size < 1 || size > MAX_ENTRY)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "size %lld on %d axes", (long long)size,
                          x->rank);
    const int64_t dims[4] = {x->dims[0], 1, x->dims[1], esp_i_im_extent(x, 2, x->rank)};
    attr.pool.window = (esp_window_t){.rank = 2,
                                      .kernel = {size, 1},
                                      .stride = {1, 1},
                                      .dilation = {1, 1},
                                      .pad_lo = {(size - 1) / 2, 0},
                                      .pad_hi = {size - 1 - (size - 1) / 2, 0}};
    attr.pool.count_padding = 1;
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_MUL, x, x, &square));
    ESP_TRY(esp_i_im_reshape(node, square, 4, dims, &square));
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_POOL, &attr, 1, &square, &scale));
    ESP_TRY(esp_i_im_reshape(node, scale, x->rank, x->dims, &scale));
    ESP_TRY(esp_i_im_affine(node, scale, alpha, bias, &scale));
    ESP_TRY(esp_i_im_elt(node, ESP_ELT_POWC, -beta, 0, 1, &scale, &scale));
    return esp_i_im_binary(node, ESP_ELT_MUL, x, scale, &node->out[0]);
}
