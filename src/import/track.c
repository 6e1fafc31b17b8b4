/*
 * Where the batch lies in each tensor while a model is imported with another batch than its own.
 *
 * The graph finds the batch of every tensor by itself when it is frozen; this is the little that
 * the rules need before: which axis of a reshape target, a slice or a concatenation is the batch.
 * It follows identities from the inputs on, through every core kind that rules emit; where a kind
 * is not listed, or mixes the batch with something else, the trace ends.
 */
#include "import/import.h"

#include <string.h>

static const esp_i_track_t nowhere = {ESP_NONE, 1, 1};

esp_i_track_t esp_i_im_track_of(const esp_i_import_t *im, const esp_i_value_t *v)
{
    return v->tensor != ESP_NONE && v->tensor < im->tracks.count ? im->tracks.data[v->tensor]
                                                                 : nowhere;
}

esp_status_t esp_i_im_track_set(esp_i_import_t *im, esp_tensor_id_t tensor, esp_i_track_t track)
{
    while (im->tracks.count <= tensor)
        if (!esp_vec_push(&im->alloc, &im->tracks, nowhere))
            return esp_i_nomem(im->diag);
    im->tracks.data[tensor] = track;
    return ESP_OK;
}

void esp_i_im_track_file_dims(const esp_i_import_t *im, const esp_i_value_t *v, int64_t *dims_out)
{
    memcpy(dims_out, v->dims, sizeof v->dims);
    esp_i_track_t track = esp_i_im_track_of(im, v);
    if (track.axis != ESP_NONE)
        dims_out[track.axis] = track.before * im->other_batch * track.after;
}

/* The same buffer under dims[0..rank): the axis whose part is the batch [outer][batch][inner]. */
static esp_i_track_t locate(int32_t rank, const int64_t *dims, int64_t batch, int64_t inner)
{
    int64_t stride = 1;
    if (inner == 0) /* an empty tensor */
        return nowhere;
    for (int32_t d = rank - 1; d >= 0; stride *= dims[d], d--) {
        if (dims[d] == 0)
            return nowhere;
        if (inner % stride != 0 || stride * dims[d] <= inner)
            continue;
        int64_t after = inner / stride;
        if (dims[d] % after != 0 || dims[d] / after % batch != 0)
            return nowhere;
        return (esp_i_track_t){d, dims[d] / after / batch, after};
    }
    return nowhere;
}

static int64_t inner_of(const esp_i_value_t *v, esp_i_track_t track)
{
    return esp_i_im_extent(v, track.axis + 1, v->rank) * track.after;
}

static esp_i_track_t track_contract(const esp_attr_t *attr, int32_t operand, esp_i_track_t from,
                                    int32_t rank)
{
    int8_t label = (operand == 0 ? attr->contract.a : attr->contract.b)[from.axis];
    for (int32_t d = 0; d < rank; d++)
        if (attr->contract.y[d] == label)
            return (esp_i_track_t){d, from.before, from.after};
    return nowhere;
}

static esp_i_track_t track_reduce(const esp_attr_t *attr, esp_i_track_t from)
{
    if (attr->reduce.axes >> from.axis & 1)
        return nowhere;
    for (int32_t d = from.axis - 1; d >= 0 && !attr->reduce.keep; d--)
        from.axis -= (int32_t)(attr->reduce.axes >> d & 1);
    return from;
}

/* Operand 0 is the table, operand 1 the indices. */
static esp_i_track_t track_gather(const esp_attr_t *attr, int32_t operand, esp_i_track_t from,
                                  int32_t indices_rank)
{
    if (operand == 1)
        from.axis += attr->axis.axis;
    else if (from.axis == attr->axis.axis)
        return nowhere;
    else if (from.axis > attr->axis.axis)
        from.axis += indices_rank - 1;
    return from;
}

/* Through one operand that carries the batch. */
static esp_i_track_t track_operand(const esp_i_import_t *im, esp_op_kind_t kind,
                                   const esp_attr_t *attr, int32_t operand,
                                   esp_i_value_t *const *in, const esp_i_value_t *out)
{
    esp_i_track_t from = esp_i_im_track_of(im, in[operand]);
    switch ((int)kind) {
    case ESP_KIND_RESHAPE: {
        /* With the batch moving within runs of extent 1 several axes fit; the leftmost is taken. */
        int64_t inner = inner_of(in[operand], from);
        return locate(out->rank, out->dims, im->batch, inner);
    }
    case ESP_KIND_TRANSPOSE:
        for (int32_t d = 0; d < out->rank; d++)
            if (attr->transpose.perm[d] == from.axis)
                return (esp_i_track_t){d, from.before, from.after};
        return nowhere;
    case ESP_KIND_CONTRACT:
        return track_contract(attr, operand, from, out->rank);
    case ESP_KIND_REDUCE:
        return track_reduce(attr, from);
    case ESP_KIND_GATHER:
        return track_gather(attr, operand, from, in[1]->rank);
    case ESP_KIND_ELTWISE:
    case ESP_KIND_EXPAND:
        from.axis += out->rank - in[operand]->rank;
        return from;
    case ESP_KIND_XENT:
    case ESP_KIND_SLICE:
    case ESP_KIND_PAD:
    case ESP_KIND_CONCAT:
    case ESP_KIND_CAST:
    case ESP_KIND_DROPOUT:
    case ESP_KIND_SOFTMAX:
    case ESP_KIND_LAYERNORM:
    case ESP_KIND_BN_NORM:
    case ESP_KIND_CONV:
    case ESP_KIND_CONV_DX:
    case ESP_KIND_POOL:
        return from;
    default:
        return nowhere;
    }
}

esp_i_track_t esp_i_im_track_op(const esp_i_import_t *im, esp_op_kind_t kind,
                                const esp_attr_t *attr, int32_t n, esp_i_value_t *const *in,
                                const esp_i_value_t *out)
{
    for (int32_t k = 0; k < n; k++) {
        if (in[k] == NULL || esp_i_im_track_of(im, in[k]).axis == ESP_NONE)
            continue;
        esp_i_track_t track = track_operand(im, kind, attr, k, in, out);
        bool fits = track.axis >= 0 && track.axis < out->rank &&
                    out->dims[track.axis] == track.before * im->batch * track.after;
        if (fits)
            return track;
    }
    return nowhere;
}

/* Axes longer than 1 in dims[from, rank), and the part `after` of the axis before them. */
static int32_t parts_after(int32_t rank, const int64_t *dims, int32_t from, int64_t after)
{
    int32_t parts = after > 1;
    for (int32_t d = from; d < rank; d++)
        parts += dims[d] > 1;
    return parts;
}

/*
 * The axis of a target at the file's batch that takes the batch, which lies before `inner`
 * elements. Where the file's batch is 1 the axes on both sides may take it: [s, b, h] to [s, h]
 * merges it to the left, as [s b, h]; to [s, heads, d], where the right is split, to the right, as
 * [s, b heads, d].
 */
static int32_t batch_axis(int32_t rank, const int64_t *target, int64_t batch, int64_t inner,
                          int32_t parts_before)
{
    int32_t exact = ESP_NONE, left = ESP_NONE, right = ESP_NONE;
    int64_t stride = 1;
    for (int32_t d = rank - 1; d >= 0; stride *= target[d], d--) {
        if (target[d] == 0)
            return ESP_NONE;
        if (stride == inner && target[d] == batch)
            exact = d;
        if (inner % stride != 0 || target[d] % (inner / stride) != 0 ||
            target[d] / (inner / stride) % batch != 0)
            continue;
        if (stride == inner && target[d] != batch)
            left = d;
        else if (stride < inner)
            right = d;
    }
    if (exact != ESP_NONE)
        return exact;
    if (left == ESP_NONE || right == ESP_NONE)
        return left == ESP_NONE ? right : left;
    return parts_after(rank, target, right, 1) > parts_before ? right : left;
}

bool esp_i_im_track_rebind(const esp_i_import_t *im, const esp_i_value_t *v, int32_t rank,
                           int64_t *target, esp_i_track_t *track_out)
{
    esp_i_track_t track = esp_i_im_track_of(im, v);
    *track_out = nowhere;
    if (track.axis == ESP_NONE || esp_i_im_extent(v, 0, v->rank) == 0)
        return true;
    int64_t inner = inner_of(v, track), stride = 1;
    int32_t parts = parts_after(v->rank, v->dims, track.axis + 1, track.after);
    int32_t axis = batch_axis(rank, target, im->file_batch, inner, parts);
    if (axis == ESP_NONE)
        return false;
    for (int32_t d = axis + 1; d < rank; d++)
        stride *= target[d];
    int64_t after = inner / stride;
    *track_out = (esp_i_track_t){axis, target[axis] / after / im->file_batch, after};
    return esp_i_mul_i64(target[axis] / im->file_batch, im->batch, &target[axis]);
}
