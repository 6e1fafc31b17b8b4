/*
 * SLICE, PAD and CONCAT: a window of a large tensor is a small one. All three are chains: one link
 * per axis or part of an axis. Axes that are not touched can be split; of a touched axis the part
 * can be that is moved as a whole: slicing one of three equal pieces out of a fused projection, any
 * part inside of a piece.
 */
#include "graph/kinds/nest.h"

/* ---- SLICE: y is the small one
 * ------------------------------------------------------------------------ */

static esp_status_t slice_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0];
    esp_i_shape_t *y = &op->out[0];
    *y = *x;
    for (int32_t a = 0; a < x->rank; a++) {
        int64_t start = op->attr->slice.start[a], step = op->attr->slice.step[a];
        int64_t count = op->attr->slice.count[a], reach = 0;
        bool fits = count >= 0 && step != 0;
        if (fits && count > 0)
            fits = esp_i_mul_i64(count - 1, step, &reach) && esp_i_add_i64(start, reach, &reach) &&
                   start >= 0 && start < x->dims[a] && reach >= 0 && reach < x->dims[a];
        if (!fits)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "%lld elements from %lld with step %lld are not in axis %d of extent "
                              "%lld",
                              (long long)count, (long long)start, (long long)step, (int)a,
                              (long long)x->dims[a]);
        y->dims[a] = count;
    }
    return ESP_OK;
}

static void slice_chain(const esp_attr_t *attr, int32_t rank, const int64_t *dims,
                        esp_i_chain_t *chain_out)
{
    *chain_out = (esp_i_chain_t){0};
    for (int32_t a = 0; a < rank; a++) {
        int64_t count = attr->slice.count[a]; /* start and step of one element or none are free */
        esp_i_chain_axis(chain_out, count, dims[a], count > 0 ? attr->slice.start[a] : 0,
                         count > 1 ? attr->slice.step[a] : 1);
    }
}

static void slice_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    esp_i_chain_t chain;
    if (esp_i_op_empty(op))
        return;
    slice_chain(op->attr, op->in[0].rank, op->in[0].dims, &chain);
    esp_i_chain_dims(&chain, 1, 0, dims);
}

/* Backward steps are undone first, by a slice that turns the axes around; then padding is left. */
static esp_status_t slice_gradient(const esp_i_grad_t *grad)
{
    const esp_i_shape_t *x = &grad->op->in[0];
    const esp_attr_t *slice = grad->op->attr;
    esp_attr_t turn = {0}, pad = {0};
    esp_tensor_id_t dy = grad->dy[0];
    bool turned = false;
    if (!grad->need[0])
        return ESP_OK;
    for (int32_t a = 0; a < x->rank; a++) {
        int64_t count = slice->slice.count[a], start = slice->slice.start[a];
        int64_t step = slice->slice.step[a];
        bool back = step < 0 && count > 1;
        turned = turned || back;
        turn.slice.count[a] = count;
        turn.slice.start[a] = back ? count - 1 : 0;
        turn.slice.step[a] = back ? -1 : 1;
        int64_t lowest = back ? start + (count - 1) * step : start;
        int64_t spread = count > 1 ? (step < 0 ? -step : step) : 1;
        pad.pad.lo[a] = count > 0 ? lowest : x->dims[a];
        pad.pad.between[a] = spread - 1;
        pad.pad.hi[a] = count > 0 ? x->dims[a] - 1 - lowest - (count - 1) * spread : 0;
    }
    if (turned)
        ESP_TRY(esp_i_make(grad->builder, ESP_KIND_SLICE, &turn, 1, grad->dy, grad->name, &dy,
                           grad->diag));
    return esp_i_make(grad->builder, ESP_KIND_PAD, &pad, 1, &dy, grad->name, &grad->dx[0],
                      grad->diag);
}

static void slice_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *x = &kernel->in[0], *y = &kernel->out[0];
    esp_i_chain_t chain;
    esp_i_walk_t walk;
    slice_chain(kernel->attr, x->global_rank, x->global, &chain);
    esp_i_chain_split(&chain, true, x);
    esp_i_chain_walk(&chain, &walk);
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk))
        y->data[walk.offset[0]] = x->data[walk.offset[1]];
}

/* ---- PAD: x is the small one
 * ----------------------------------------------------------------------------- */

static esp_status_t pad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0];
    esp_i_shape_t *y = &op->out[0];
    *y = *x;
    for (int32_t a = 0; a < x->rank; a++) {
        int64_t lo = op->attr->pad.lo[a], hi = op->attr->pad.hi[a];
        int64_t between = op->attr->pad.between[a], gaps, extent;
        if (lo < 0 || hi < 0 || between < 0)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "negative padding of axis %d: %lld before, %lld after, %lld between",
                              (int)a, (long long)lo, (long long)hi, (long long)between);
        if (!esp_i_mul_i64(between, esp_i_max_i64(x->dims[a] - 1, 0), &gaps) ||
            !esp_i_add_i64(x->dims[a], gaps, &extent) || !esp_i_add_i64(extent, lo, &extent) ||
            !esp_i_add_i64(extent, hi, &extent))
            return esp_i_fail(diag, ESP_ERR_LIMIT, "the padding of axis %d is too large", (int)a);
        y->dims[a] = extent;
    }
    return esp_i_check_shape(y, diag);
}

static void pad_chain(const esp_attr_t *attr, int32_t rank, const int64_t *dims,
                      esp_i_chain_t *chain_out)
{
    *chain_out = (esp_i_chain_t){0};
    for (int32_t a = 0; a < rank; a++) {
        int64_t step = dims[a] > 1 ? attr->pad.between[a] + 1 : 1;
        int64_t reach = dims[a] > 0 ? (dims[a] - 1) * step + 1 : 0;
        esp_i_chain_axis(chain_out, dims[a], attr->pad.lo[a] + reach + attr->pad.hi[a],
                         attr->pad.lo[a], step);
    }
}

static void pad_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    esp_i_chain_t chain;
    if (esp_i_op_empty(op))
        return;
    pad_chain(op->attr, op->in[0].rank, op->in[0].dims, &chain);
    esp_i_chain_dims(&chain, 0, 1, dims);
}

static int32_t pad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    masks_out[0] = 1;
    return op->attr->pad.value == 0 ? 1 : 0;
}

static esp_status_t pad_gradient(const esp_i_grad_t *grad)
{
    const esp_i_shape_t *x = &grad->op->in[0];
    esp_attr_t attr = {0};
    if (!grad->need[0])
        return ESP_OK;
    for (int32_t a = 0; a < x->rank; a++) {
        attr.slice.start[a] = grad->op->attr->pad.lo[a];
        attr.slice.step[a] = grad->op->attr->pad.between[a] + 1;
        attr.slice.count[a] = x->dims[a];
    }
    return esp_i_make(grad->builder, ESP_KIND_SLICE, &attr, 1, grad->dy, grad->name, &grad->dx[0],
                      grad->diag);
}

static void pad_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *x = &kernel->in[0], *y = &kernel->out[0];
    int64_t n = esp_i_buffer_elements(y);
    esp_i_chain_t chain;
    esp_i_walk_t walk;
    for (int64_t i = 0; i < n; i++)
        y->data[i] = kernel->attr->pad.value;
    pad_chain(kernel->attr, x->global_rank, x->global, &chain);
    esp_i_chain_split(&chain, false, x);
    esp_i_chain_walk(&chain, &walk);
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk))
        y->data[walk.offset[1]] = x->data[walk.offset[0]];
}

/* ---- CONCAT: each input is a small one
 * ------------------------------------------------------------------------ */

static esp_status_t concat_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[0];
    int32_t axis = op->attr->axis.axis;
    ESP_TRY(esp_i_operand_axis(x, axis, false, diag));
    ESP_TRY(esp_i_check_dtypes(op, 0, op->n_in, diag));
    esp_i_shape_t *y = &op->out[0];
    *y = *x;
    for (int32_t i = 1; i < op->n_in; i++) {
        const esp_i_shape_t *piece = &op->in[i];
        if (piece->rank != x->rank)
            return esp_i_fail(diag, ESP_ERR_INVALID, "input 0 has %d axes and input %d has %d",
                              (int)x->rank, (int)i, (int)piece->rank);
        for (int32_t a = 0; a < x->rank; a++)
            if (a != axis && piece->dims[a] != x->dims[a])
                return esp_i_fail(diag, ESP_ERR_INVALID,
                                  "axis %d has %lld in input 0 and %lld in input %d", (int)a,
                                  (long long)x->dims[a], (long long)piece->dims[a], (int)i);
        if (!esp_i_add_i64(y->dims[axis], piece->dims[axis], &y->dims[axis]))
            return esp_i_fail(diag, ESP_ERR_LIMIT, "axis %d gets too large", (int)axis);
    }
    return esp_i_check_shape(y, diag);
}

/* Binds every piece that is not empty, and y. Buffers are [lead][piece / unit][unit * tail]. */
static void concat_bind(const esp_i_op_t *op, int64_t lead, int64_t unit, bool inner,
                        esp_i_dims_t *dims)
{
    int32_t axis = op->attr->axis.axis;
    for (int32_t o = 0; o <= op->n_in; o++) {
        const esp_i_shape_t *shape = o < op->n_in ? &op->in[o] : &op->out[0];
        int64_t elements = esp_i_shape_elements(shape);
        if (elements > 0 && inner)
            esp_i_dims_bind(dims, o, ESP_BIND_CARRY, lead * (shape->dims[axis] / unit), 1);
        else if (elements > 0)
            esp_i_dims_bind(dims, o, ESP_BIND_CARRY, 1, elements / lead);
    }
}

/* What lies before the axis, and what is inside of the largest unit that divides all pieces. */
static void concat_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    const esp_i_shape_t *y = &op->out[0];
    int32_t axis = op->attr->axis.axis;
    int64_t unit = 0, lead = esp_i_shape_product(y, 0, axis);
    int64_t tail = esp_i_shape_product(y, axis + 1, y->rank);
    if (esp_i_shape_elements(y) == 0)
        return;
    for (int32_t i = 0; i < op->n_in; i++)
        unit = esp_i_gcd(unit, op->in[i].dims[axis]);
    if (lead > 1) {
        esp_i_dims_open(dims, lead, 1);
        concat_bind(op, lead, unit, false, dims);
    }
    if (unit * tail > 1) {
        esp_i_dims_open(dims, unit * tail, 1);
        concat_bind(op, lead, unit, true, dims);
    }
}

static int32_t concat_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    masks_out[0] = op->n_in >= 64 ? UINT64_MAX : ((uint64_t)1 << op->n_in) - 1;
    return 1;
}

static esp_status_t concat_gradient(const esp_i_grad_t *grad)
{
    const esp_i_shape_t *y = &grad->op->out[0];
    int32_t axis = grad->op->attr->axis.axis;
    esp_attr_t attr = {0};
    for (int32_t a = 0; a < y->rank; a++) {
        attr.slice.step[a] = 1;
        attr.slice.count[a] = y->dims[a];
    }
    for (int32_t i = 0; i < grad->op->n_in; i++) {
        attr.slice.count[axis] = grad->op->in[i].dims[axis];
        if (grad->need[i])
            ESP_TRY(esp_i_make(grad->builder, ESP_KIND_SLICE, &attr, 1, grad->dy, grad->name,
                               &grad->dx[i], grad->diag));
        attr.slice.start[axis] += attr.slice.count[axis];
    }
    return ESP_OK;
}

static void concat_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *y = &kernel->out[0];
    int32_t axis = kernel->attr->axis.axis;
    int64_t unit = 0, start = 0;
    for (int32_t i = 0; i < kernel->n_in; i++)
        unit = esp_i_gcd(unit, kernel->in[i].global[axis]);
    for (int32_t i = 0; i < kernel->n_in; i++) {
        const esp_i_buffer_t *x = &kernel->in[i];
        esp_i_chain_t chain = {0};
        esp_i_walk_t walk;
        for (int32_t a = 0; a < x->global_rank; a++) {
            if (a == axis)
                esp_i_chain_units(&chain, x->global[a], y->global[a], start, unit);
            else
                esp_i_chain_carry(&chain, x->global[a]);
        }
        esp_i_chain_split(&chain, false, x);
        esp_i_chain_walk(&chain, &walk);
        for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk))
            y->data[walk.offset[1]] = x->data[walk.offset[0]];
        start += x->global[axis];
    }
}

const esp_i_kind_t esp_i_kind_SLICE = {
    .name = "slice",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = slice_infer,
    .dims = slice_dims,
    .linear = esp_i_operand_linear_first,
    .gradient = slice_gradient,
    .kernel = slice_kernel,
};

const esp_i_kind_t esp_i_kind_PAD = {
    .name = "pad",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = pad_infer,
    .dims = pad_dims,
    .linear = pad_linear,
    .gradient = pad_gradient,
    .kernel = pad_kernel,
};

const esp_i_kind_t esp_i_kind_CONCAT = {
    .name = "concat",
    .min_in = 1,
    .max_in = INT32_MAX,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = concat_infer,
    .dims = concat_dims,
    .linear = concat_linear,
    .gradient = concat_gradient,
    .kernel = concat_kernel,
};
