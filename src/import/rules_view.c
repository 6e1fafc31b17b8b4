/* Ops that move elements without computing: shapes, axes, slices, joins. */
#include "import/rules.h"

#include <stdio.h>
#include <string.h>

/* ---- Reshape --------------------------------------------------------------------------------- */

/* Resolves 0 (copy) and -1 (the rest) against a shape. False: it does not fit. */
static bool resolve_target(int32_t x_rank, const int64_t *x_dims, bool allow_zero, int32_t rank,
                           int64_t *target)
{
    int64_t elements = 1, rest = 1;
    int32_t open = ESP_NONE;
    for (int32_t d = 0; d < x_rank; d++)
        elements *= x_dims[d];
    for (int32_t d = 0; d < rank; d++) {
        if (target[d] == 0 && !allow_zero) {
            if (d >= x_rank)
                return false;
            target[d] = x_dims[d];
        }
        if (target[d] < -1 || (target[d] == -1 && open != ESP_NONE))
            return false;
        if (target[d] == -1)
            open = d;
        else if (!esp_i_mul_i64(rest, target[d], &rest))
            return false;
    }
    if (open == ESP_NONE)
        return rest == elements;
    if (rest == 0 || elements % rest != 0)
        return false;
    target[open] = elements / rest;
    return true;
}

/* The target frozen at export, moved to the batch of this import. */
static bool rebind_target(esp_i_node_t *node, const esp_i_konst_t *frozen, bool allow_zero,
                          int64_t *target, esp_i_track_t *track)
{
    int64_t file_dims[ESP_MAX_RANK];
    const esp_i_value_t *x = node->in[0];
    int32_t rank = (int32_t)frozen->count;
    memcpy(target, frozen->i, (size_t)rank * sizeof *target);
    esp_i_im_track_file_dims(node->im, x, file_dims);
    return resolve_target(x->rank, file_dims, allow_zero, rank, target) &&
           esp_i_im_track_rebind(node->im, x, rank, target, track);
}

static bool has_hole(const esp_i_konst_t *k)
{
    for (int64_t e = 0; e < k->count; e++)
        if (k->i[e] <= 0)
            return true;
    return false;
}

/* While the batch is being replaced a target that does not follow it (a constant) is rebound. */
static bool must_rebind(const esp_i_node_t *node)
{
    const esp_i_value_t *shape = node->in[1];
    return node->im->file_batch > 0 && shape->baked != NULL && shape->baked->i != NULL &&
           shape->baked->count <= ESP_MAX_RANK &&
           esp_i_im_track_of(node->im, node->in[0]).axis != ESP_NONE &&
           (shape->baked == shape->known || has_hole(shape->baked));
}

static esp_status_t bad_target(esp_i_node_t *node, int32_t rank, const int64_t *target)
{
    char text[256];
    size_t at = 0;
    for (int32_t d = 0; d < rank; d++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%lld", d > 0 ? "," : "",
                               (long long)target[d]);
    text[at] = '\0';
    return esp_i_fail(node->diag, ESP_ERR_INVALID, "%lld elements do not fit into shape [%s]",
                      (long long)esp_i_im_extent(node->in[0], 0, node->in[0]->rank), text);
}

esp_status_t esp_i_rule_reshape(esp_i_node_t *node)
{
    int64_t target[ESP_MAX_RANK], asked[ESP_MAX_RANK], allow_zero;
    int32_t rank;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    ESP_TRY(esp_i_im_attr_int(node, "allowzero", 0, &allow_zero));
    ESP_TRY(esp_i_im_input_ints(node, 1, ESP_MAX_RANK, target, &rank));
    node->batch_ints = false; /* the values themselves do not depend on the target */
    memcpy(asked, target, sizeof asked);
    esp_i_value_t *x = node->in[0];
    esp_i_track_t track = {ESP_NONE, 1, 1};
    bool rebind = must_rebind(node);
    bool fits = rebind ? rebind_target(node, node->in[1]->baked, allow_zero != 0, target, &track)
                       : resolve_target(x->rank, x->dims, allow_zero != 0, rank, target);
    if (!fits && rebind) {
        rebind = false;
        memcpy(target, asked, sizeof target);
        fits = resolve_target(x->rank, x->dims, allow_zero != 0, rank, target);
    }
    if (!fits)
        return bad_target(node, rank, asked);
    ESP_TRY(esp_i_im_reshape(node, x, rank, target, &node->out[0]));
    if (rebind && node->out[0] != x && node->out[0]->tensor != ESP_NONE)
        return esp_i_im_track_set(node->im, node->out[0]->tensor, track);
    return ESP_OK;
}

esp_status_t esp_i_rule_flatten(esp_i_node_t *node)
{
    int64_t axis;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_int(node, "axis", 1, &axis));
    esp_i_value_t *x = node->in[0];
    if (axis < -x->rank || axis > x->rank)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %lld of a tensor of %d axes",
                          (long long)axis, x->rank);
    int32_t at = (int32_t)(axis < 0 ? axis + x->rank : axis);
    const int64_t dims[2] = {esp_i_im_extent(x, 0, at), esp_i_im_extent(x, at, x->rank)};
    return esp_i_im_reshape(node, x, 2, dims, &node->out[0]);
}

esp_status_t esp_i_rule_squeeze(esp_i_node_t *node)
{
    uint32_t axes;
    bool given;
    int64_t dims[ESP_MAX_RANK];
    int32_t rank = 0;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 2));
    esp_i_value_t *x = node->in[0];
    ESP_TRY(esp_i_im_param_axes(node, "axes", 1, x->rank, &axes, &given));
    for (int32_t d = 0; d < x->rank; d++) {
        bool drop = given ? axes >> d & 1 : x->dims[d] == 1;
        if (drop && x->dims[d] != 1)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d has extent %lld, not 1", d,
                              (long long)x->dims[d]);
        if (!drop)
            dims[rank++] = x->dims[d];
    }
    return esp_i_im_reshape(node, x, rank, dims, &node->out[0]);
}

esp_status_t esp_i_rule_unsqueeze(esp_i_node_t *node)
{
    int64_t list[ESP_MAX_RANK], dims[ESP_MAX_RANK];
    int32_t count, from = 0;
    uint32_t axes;
    bool given;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 2));
    esp_i_value_t *x = node->in[0];
    ESP_TRY(esp_i_im_param_ints(node, "axes", 1, ESP_MAX_RANK, list, &count));
    if (count < 0 || x->rank + count > ESP_MAX_RANK)
        return esp_i_fail(node->diag, count < 0 ? ESP_ERR_INVALID : ESP_ERR_LIMIT,
                          count < 0 ? "no axes" : "too many axes");
    int32_t rank = x->rank + count;
    ESP_TRY(esp_i_im_param_axes(node, "axes", 1, rank, &axes, &given));
    for (int32_t d = 0; d < rank; d++)
        dims[d] = axes >> d & 1 ? 1 : x->dims[from++];
    return esp_i_im_reshape(node, x, rank, dims, &node->out[0]);
}

esp_status_t esp_i_rule_transpose(esp_i_node_t *node)
{
    int64_t list[ESP_MAX_RANK];
    int32_t perm[ESP_MAX_RANK] = {0}, count;
    uint32_t seen = 0;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    esp_i_value_t *x = node->in[0];
    ESP_TRY(esp_i_im_attr_ints(node, "perm", ESP_MAX_RANK, list, &count));
    for (int32_t d = 0; d < x->rank; d++) {
        if (count < 0)
            perm[d] = x->rank - 1 - d;
        else if (count == x->rank)
            ESP_TRY(esp_i_im_axis(node, list[d], x->rank, &perm[d]));
        seen |= 1u << perm[d];
    }
    if (seen != (1u << x->rank) - 1 || (count >= 0 && count != x->rank))
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "perm is not a permutation of %d axes",
                          x->rank);
    return esp_i_im_transpose(node, x, perm, &node->out[0]);
}

/* ---- broadcasting ---------------------------------------------------------------------------- */

/* Both ways: an extent of 1 in the target keeps that of x. */
esp_status_t esp_i_rule_expand(esp_i_node_t *node)
{
    int64_t target[ESP_MAX_RANK], dims[ESP_MAX_RANK];
    int32_t count;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    ESP_TRY(esp_i_im_input_ints(node, 1, ESP_MAX_RANK, target, &count));
    esp_i_value_t *x = node->in[0];
    int32_t rank = count > x->rank ? count : x->rank;
    uint32_t stretched = 0;
    esp_i_track_t track = esp_i_im_track_of(node->im, x);
    for (int32_t d = 0; d < rank; d++) {
        int32_t own = d - (rank - x->rank), asked = d - (rank - count);
        int64_t extent = own < 0 ? 1 : x->dims[own], wanted = asked < 0 ? 1 : target[asked];
        /* the batch of the file, frozen into the target */
        bool frozen = node->im->file_batch > 0 && own >= 0 && own == track.axis &&
                      wanted == track.before * node->im->file_batch * track.after;
        if (extent != 1 && wanted != 1 && extent != wanted && !frozen)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d: %lld does not stretch to %lld",
                              d, (long long)extent, (long long)wanted);
        if (wanted < 0)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d: negative extent", d);
        dims[d] = extent == 1 ? wanted : extent;
        stretched |= extent == 1 && wanted != 1 ? 1u << d : 0;
    }
    ESP_TRY(esp_i_im_expand(node, x, rank, dims, &node->out[0]));
    if (node->out[0] != x)
        node->out[0]->stretched = (uint8_t)stretched;
    return ESP_OK;
}

/* Axis by axis: [outer, 1, rest] stretched to [outer, repeats, rest]. */
esp_status_t esp_i_rule_tile(esp_i_node_t *node)
{
    int64_t repeats[ESP_MAX_RANK], dims[ESP_MAX_RANK];
    int32_t count;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    ESP_TRY(esp_i_im_input_ints(node, 1, ESP_MAX_RANK, repeats, &count));
    esp_i_value_t *x = node->in[0];
    if (count != x->rank)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%d repeats for %d axes", count, x->rank);
    int32_t rank = x->rank;
    for (int32_t d = 0; d < rank; d++) {
        if (repeats[d] == 1)
            continue;
        memcpy(dims, x->dims, sizeof dims);
        if (repeats[d] < 0 || !esp_i_mul_i64(dims[d], repeats[d], &dims[d]))
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d is repeated %lld times", d,
                              (long long)repeats[d]);
        int64_t split[3] = {esp_i_im_extent(x, 0, d), 1, esp_i_im_extent(x, d, rank)};
        ESP_TRY(esp_i_im_reshape(node, x, 3, split, &x));
        split[1] = repeats[d];
        ESP_TRY(esp_i_im_expand(node, x, 3, split, &x));
        ESP_TRY(esp_i_im_reshape(node, x, rank, dims, &x));
    }
    node->out[0] = x;
    return ESP_OK;
}

/* ---- joins and splits ------------------------------------------------------------------------ */

/*
 * A row that was exported with the batch of the file (a class token expanded to [b, ..]) beside
 * inputs that carry the batch: it is stretched with them.
 */
static esp_status_t stretch_frozen(esp_i_node_t *node, int32_t axis, esp_i_value_t **list)
{
    int64_t dims[ESP_MAX_RANK], file_batch = node->im->file_batch;
    esp_i_track_t track = {ESP_NONE, 1, 1};
    for (int32_t k = 0; k < node->n_in && track.axis == ESP_NONE; k++)
        track = esp_i_im_track_of(node->im, list[k]);
    if (file_batch == 0 || track.axis == ESP_NONE || track.axis == axis ||
        track.before * track.after != 1)
        return ESP_OK;
    for (int32_t k = 0; k < node->n_in; k++) {
        bool row = file_batch == 1 || list[k]->stretched >> track.axis & 1;
        if (!row || list[k]->dims[track.axis] != file_batch ||
            esp_i_im_track_of(node->im, list[k]).axis != ESP_NONE)
            continue;
        ESP_TRY(esp_i_im_slice(node, list[k], track.axis, 0, 1, 1, &list[k]));
        memcpy(dims, list[k]->dims, sizeof dims);
        dims[track.axis] = node->im->batch;
        ESP_TRY(esp_i_im_expand(node, list[k], list[k]->rank, dims, &list[k]));
    }
    return ESP_OK;
}

esp_status_t esp_i_rule_concat(esp_i_node_t *node)
{
    int32_t axis;
    ESP_TRY(esp_i_im_need_inputs(node, node->n_in > 0 ? node->n_in : 1, -1));
    for (int32_t k = 1; k < node->n_in; k++)
        if (node->in[k]->rank != node->in[0]->rank)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "inputs of %d and of %d axes",
                              node->in[0]->rank, node->in[k]->rank);
    ESP_TRY(esp_i_im_attr_axis(node, 1, node->in[0]->rank, &axis));
    ESP_TRY(stretch_frozen(node, axis, node->in));
    return esp_i_im_concat(node, node->n_in, node->in, axis, &node->out[0]);
}

esp_status_t esp_i_rule_split(esp_i_node_t *node)
{
    int32_t axis, count;
    int64_t start = 0;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 2));
    esp_i_value_t *x = node->in[0];
    ESP_TRY(esp_i_im_attr_axis(node, 0, x->rank, &axis));
    int64_t *sizes = esp_i_arena_alloc(&node->im->arena, node->n_out, sizeof *sizes);
    if (sizes == NULL)
        return esp_i_nomem(node->diag);
    ESP_TRY(esp_i_im_param_ints(node, "split", 1, node->n_out, sizes, &count));
    int64_t chunk = esp_i_ceil_div(x->dims[axis], node->n_out); /* the last may be smaller */
    if (count >= 0 && count != node->n_out)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%d sizes for %d outputs", count,
                          node->n_out);
    for (int32_t k = 0; k < node->n_out; k++) {
        int64_t left = x->dims[axis] - start;
        int64_t size = count >= 0 ? sizes[k] : esp_i_min_i64(chunk, left);
        if (size < 0 || size > left || (k == node->n_out - 1 && size != left))
            return esp_i_fail(node->diag, ESP_ERR_INVALID,
                              "the parts do not sum to the extent %lld of axis %d",
                              (long long)x->dims[axis], axis);
        ESP_TRY(esp_i_im_slice(node, x, axis, start, 1, size, &node->out[k]));
        start += size;
    }
    return ESP_OK;
}

/* ---- Slice ----------------------------------------------------------------------------------- */

typedef struct range {
    int64_t start, end, step;
} range_t;

/* Clamps as ONNX says; the result has `count` elements. */
static void clamp(range_t *r, int64_t extent, int64_t *count_out)
{
    int64_t low = r->step > 0 ? 0 : -1, high = r->step > 0 ? extent : extent - 1;
    r->start += r->start < 0 ? extent : 0;
    r->end += r->end < 0 && r->end > INT64_MIN + extent ? extent : 0;
    r->start = esp_i_max_i64(0, esp_i_min_i64(r->start, high));
    r->end = esp_i_max_i64(low, esp_i_min_i64(r->end, high));
    int64_t span = r->step > 0 ? r->end - r->start : r->start - r->end;
    int64_t step = r->step > 0 ? r->step : -r->step;
    *count_out = span > 0 ? (span - 1) / step + 1 : 0;
}

/* The whole batch stays the whole batch, also where the file says where it ended. */
static bool covers_batch(const esp_i_node_t *node, const esp_i_value_t *x, int32_t axis, range_t r)
{
    int64_t file_dims[ESP_MAX_RANK], count;
    if (node->im->file_batch == 0 || esp_i_im_track_of(node->im, x).axis != axis)
        return false;
    esp_i_im_track_file_dims(node->im, x, file_dims);
    clamp(&r, file_dims[axis], &count);
    return r.step == 1 && count == file_dims[axis];
}

static esp_status_t slice_axis(esp_i_node_t *node, int32_t axis, range_t r, esp_attr_t *attr)
{
    const esp_i_value_t *x = node->in[0];
    int64_t extent = x->dims[axis], count;
    if (r.step == 0 || r.step == INT64_MIN)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d: step %lld", axis,
                          (long long)r.step);
    if (covers_batch(node, x, axis, r))
        return ESP_OK;
    clamp(&r, extent, &count);
    attr->slice.start[axis] = count > 0 ? r.start : 0;
    attr->slice.step[axis] = count > 1 ? r.step : 1;
    attr->slice.count[axis] = count;
    return ESP_OK;
}

esp_status_t esp_i_rule_slice(esp_i_node_t *node)
{
    int64_t starts[ESP_MAX_RANK], ends[ESP_MAX_RANK], axes[ESP_MAX_RANK], steps[ESP_MAX_RANK];
    int32_t n_starts, n_ends, n_axes, n_steps;
    esp_attr_t attr = {0};
    bool whole = true;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 5));
    esp_i_value_t *x = node->in[0];
    ESP_TRY(esp_i_im_param_ints(node, "starts", 1, ESP_MAX_RANK, starts, &n_starts));
    ESP_TRY(esp_i_im_param_ints(node, "ends", 2, ESP_MAX_RANK, ends, &n_ends));
    ESP_TRY(esp_i_im_param_ints(node, "axes", 3, ESP_MAX_RANK, axes, &n_axes));
    ESP_TRY(esp_i_im_input_ints(node, 4, ESP_MAX_RANK, steps, &n_steps));
    if (n_starts < 0 || n_ends != n_starts || (n_axes >= 0 && n_axes != n_starts) ||
        (n_steps >= 0 && n_steps != n_starts))
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%d starts, %d ends, %d axes, %d steps",
                          n_starts, n_ends, n_axes, n_steps);
    for (int32_t d = 0; d < x->rank; d++) {
        attr.slice.step[d] = 1;
        attr.slice.count[d] = x->dims[d];
    }
    for (int32_t k = 0; k < n_starts; k++) {
        int32_t axis;
        range_t r = {starts[k], ends[k], n_steps >= 0 ? steps[k] : 1};
        ESP_TRY(esp_i_im_axis(node, n_axes >= 0 ? axes[k] : k, x->rank, &axis));
        ESP_TRY(slice_axis(node, axis, r, &attr));
    }
    for (int32_t d = 0; d < x->rank; d++)
        whole = whole && attr.slice.count[d] == x->dims[d] && attr.slice.step[d] == 1;
    if (whole) {
        node->out[0] = x;
        return ESP_OK;
    }
    return esp_i_im_emit(node, ESP_KIND_SLICE, &attr, 1, &x, &node->out[0]);
}

/* ---- Pad ------------------------------------------------------------------------------------- */

typedef enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP } pad_mode_t;

/* The row of x that row `at` of the result copies, at counted from the first row of x. */
static int64_t padded_row(pad_mode_t mode, int64_t at, int64_t extent)
{
    if (mode == PAD_WRAP)
        return (at % extent + extent) % extent;
    if (mode == PAD_REFLECT)
        return at < 0 ? -at : at >= extent ? 2 * (extent - 1) - at : at;
    return esp_i_max_i64(0, esp_i_min_i64(at, extent - 1));
}

/* Rows that all modes but the constant one copy, as indices of a gather. */
static esp_status_t pad_by_gather(esp_i_node_t *node, esp_i_value_t *x, int32_t axis, int64_t lo,
                                  int64_t hi, pad_mode_t mode, esp_i_value_t **out)
{
    int64_t extent = x->dims[axis], n = lo + extent + hi;
    esp_i_konst_t *k;
    esp_i_value_t *indices;
    if (extent < 1 || (mode == PAD_REFLECT && (lo >= extent || hi >= extent)))
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d: padding beyond the extent %lld",
                          axis, (long long)extent);
    ESP_TRY(esp_i_im_konst_new(node->im, ESP_DTYPE_I64, 1, &n, &k));
    if (k == NULL)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "axis %d is too long to be padded", axis);
    for (int64_t e = 0; e < n; e++)
        k->i[e] = padded_row(mode, e - lo, extent);
    ESP_TRY(esp_i_im_value_known(node, k, &indices));
    return esp_i_im_gather(node, x, indices, axis, out);
}

/* Negative padding cuts. */
static esp_status_t cut(esp_i_node_t *node, esp_i_value_t *x, int32_t axis, int64_t *lo,
                        int64_t *hi, esp_i_value_t **out)
{
    int64_t drop_lo = esp_i_max_i64(-*lo, 0), drop_hi = esp_i_max_i64(-*hi, 0);
    *lo = esp_i_max_i64(*lo, 0);
    *hi = esp_i_max_i64(*hi, 0);
    int64_t count = x->dims[axis] - drop_lo - drop_hi;
    if (count < 0)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d: more is cut than there is", axis);
    return esp_i_im_slice(node, x, axis, count > 0 ? drop_lo : 0, 1, count, out);
}

static esp_status_t pad_all(esp_i_node_t *node, esp_i_value_t *x, const int64_t *lo,
                            const int64_t *hi, double value)
{
    esp_i_str_t mode;
    esp_attr_t attr = {0};
    bool any = false;
    ESP_TRY(esp_i_im_attr_text(node, "mode", "constant", &mode));
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    int32_t m = 0;
    while (m < 4 && !esp_i_str_is(mode, modes[m]))
        m++;
    if (m == 4)
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED, "padding of mode '%.*s'",
                          (int)esp_i_min_i64(mode.length, 40), mode.data);
    bool constant = m == PAD_CONSTANT;
    for (int32_t d = 0; d < x->rank; d++) {
        attr.pad.lo[d] = lo[d];
        attr.pad.hi[d] = hi[d];
        ESP_TRY(cut(node, x, d, &attr.pad.lo[d], &attr.pad.hi[d], &x));
        bool here = attr.pad.lo[d] > 0 || attr.pad.hi[d] > 0;
        if (here && !constant)
            ESP_TRY(pad_by_gather(node, x, d, attr.pad.lo[d], attr.pad.hi[d], (pad_mode_t)m, &x));
        any = any || here;
    }
    node->out[0] = x;
    attr.pad.value = value;
    return constant && any ? esp_i_im_emit(node, ESP_KIND_PAD, &attr, 1, &x, &node->out[0])
                           : ESP_OK;
}

/* pads: [lo.., hi..], of all axes or (opset 18) of those listed. */
esp_status_t esp_i_rule_pad(esp_i_node_t *node)
{
    int64_t pads[2 * ESP_MAX_RANK], axes[ESP_MAX_RANK], lo[ESP_MAX_RANK] = {0},
                                                        hi[ESP_MAX_RANK] = {0};
    int32_t n_pads, n_axes, n_value;
    double value = 0;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 4));
    esp_i_value_t *x = node->in[0];
    ESP_TRY(esp_i_im_param_ints(node, "pads", 1, 2 * ESP_MAX_RANK, pads, &n_pads));
    ESP_TRY(esp_i_im_input_floats(node, 2, 1, &value, &n_value));
    if (n_value < 1)
        ESP_TRY(esp_i_im_attr_float(node, "value", 0, &value));
    ESP_TRY(esp_i_im_input_ints(node, 3, ESP_MAX_RANK, axes, &n_axes));
    int32_t n = n_axes >= 0 ? n_axes : x->rank;
    if (n_pads != 2 * n)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%d pads for %d axes", n_pads, n);
    for (int32_t k = 0; k < n; k++) {
        int32_t axis;
        ESP_TRY(esp_i_im_axis(node, n_axes >= 0 ? axes[k] : k, x->rank, &axis));
        lo[axis] = pads[k];
        hi[axis] = pads[k + n];
        if (lo[axis] > INT32_MAX || lo[axis] < INT32_MIN || hi[axis] > INT32_MAX ||
            hi[axis] < INT32_MIN)
            return esp_i_fail(node->diag, ESP_ERR_LIMIT, "axis %d: huge padding", axis);
    }
    return pad_all(node, x, lo, hi, value);
}

/* ---- blocks of pixels ------------------------------------------------------------------------ */

/* code: 1 space to depth, 0 depth to space */
esp_status_t esp_i_rule_depth_space(esp_i_node_t *node)
{
    int64_t block;
    esp_i_str_t mode;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_int(node, "blocksize", 0, &block));
    ESP_TRY(esp_i_im_attr_text(node, "mode", "DCR", &mode));
    esp_i_value_t *x = node->in[0], *y;
    bool fits = x->rank == 4 && block > 0 && block <= INT16_MAX;
    bool to_depth = node->op->code == 1, columns = esp_i_str_is(mode, "CRD");
    if (fits)
        fits = to_depth ? x->dims[2] % block == 0 && x->dims[3] % block == 0
                        : x->dims[1] % (block * block) == 0;
    if (!fits)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "block size %lld", (long long)block);
    int64_t n = x->dims[0], c = x->dims[1], h = x->dims[2], w = x->dims[3];
    int64_t small = to_depth ? 0 : c / (block * block);
    const int64_t split_depth[6] = {n, c, h / block, block, w / block, block};
    const int64_t split_rows[6] = {n, block, block, small, h, w};
    const int64_t split_columns[6] = {n, small, block, block, h, w};
    static const int32_t perm_depth[6] = {0, 3, 5, 1, 2, 4}, perm_rows[6] = {0, 3, 4, 1, 5, 2},
                         perm_columns[6] = {0, 1, 4, 2, 5, 3};
    const int64_t deep[4] = {n, c * block * block, h / block, w / block};
    const int64_t wide[4] = {n, small, h * block, w * block};
    ESP_TRY(esp_i_im_reshape(node, x, 6,
                             to_depth  ? split_depth
                             : columns ? split_columns
                                       : split_rows,
                             &y));
    ESP_TRY(esp_i_im_transpose(node, y,
                               to_depth  ? perm_depth
                               : columns ? perm_columns
                                         : perm_rows,
                               &y));
    return esp_i_im_reshape(node, y, 4, to_depth ? deep : wide, &node->out[0]);
}
