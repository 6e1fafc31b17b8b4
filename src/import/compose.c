/* Core kinds over values: evaluated on the host where everything is known, else appended. */
#include "import/import.h"

#include <math.h>
#include <string.h>

int64_t esp_i_im_extent(const esp_i_value_t *v, int32_t from, int32_t to)
{
    int64_t product = 1;
    for (int32_t d = from; d < to; d++)
        product *= v->dims[d]; /* a part of a checked number of elements, or 0 */
    return product;
}

/* ---- values ---------------------------------------------------------------------------------- */

esp_i_value_t *esp_i_im_value_new(esp_i_import_t *im, const char *name)
{
    esp_i_value_t *v = esp_i_arena_alloc(&im->arena, 1, sizeof *v);
    if (v != NULL)
        *v = (esp_i_value_t){.name = name, .tensor = ESP_NONE, .role = ESP_ROLE_CONSTANT};
    return v;
}

static esp_status_t known_value(esp_i_node_t *node, const esp_i_konst_t *k,
                                const esp_i_konst_t *baked, esp_i_value_t **out)
{
    esp_i_value_t *v = esp_i_im_value_new(node->im, node->name);
    if (v == NULL)
        return esp_i_nomem(node->diag);
    v->dtype = k->dtype;
    v->rank = k->rank;
    memcpy(v->dims, k->dims, sizeof v->dims);
    v->known = k;
    v->baked = baked;
    *out = v;
    return ESP_OK;
}

esp_status_t esp_i_im_value_known(esp_i_node_t *node, const esp_i_konst_t *k, esp_i_value_t **out)
{
    return known_value(node, k, node->batch_ints ? NULL : k, out);
}

esp_status_t esp_i_im_scalar(esp_i_node_t *node, esp_dtype_t dtype, double value,
                             esp_i_value_t **out)
{
    esp_i_konst_t *k;
    ESP_TRY(esp_i_im_konst_new(node->im, dtype, 0, NULL, &k));
    if (k == NULL)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "too many constants");
    esp_i_im_konst_set(k, 0, value);
    return esp_i_im_value_known(node, k, out);
}

esp_status_t esp_i_im_int_vector(esp_i_node_t *node, int64_t n, const int64_t *ints,
                                 esp_i_value_t **out)
{
    esp_i_konst_t *k;
    ESP_TRY(esp_i_im_konst_new(node->im, ESP_DTYPE_I64, 1, &n, &k));
    if (k == NULL)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "too many constants");
    memcpy(k->i, ints, (size_t)n * sizeof *ints);
    return esp_i_im_value_known(node, k, out);
}

void esp_i_im_not_trained(esp_i_value_t *v)
{
    if (v == NULL || v->tensor != ESP_NONE || v->role != ESP_ROLE_PARAMETER)
        return;
    bool inside = v->literal != NULL && !v->external;
    v->role = inside ? ESP_ROLE_CONSTANT : ESP_ROLE_FROZEN;
}

/* ---- into the builder ------------------------------------------------------------------------ */

esp_status_t esp_i_im_append(esp_i_import_t *im, esp_op_kind_t kind, const esp_attr_t *attr,
                             int32_t n, const esp_tensor_id_t *inputs, const char *name,
                             esp_tensor_id_t *outputs)
{
    ESP_TRY(esp_builder_op(im->builder, kind, attr, n, inputs, name, outputs, im->diag));
    im->n_ops++;
    return ESP_OK;
}

/* All elements alike, or an arithmetic progression along the one axis longer than 1. */
static bool is_progression(const esp_i_konst_t *k, int32_t *axis_out, double *step_out)
{
    const double exact = 9007199254740992.0; /* integers beyond are not exact as double */
    int32_t axis = 0, long_axes = 0;
    for (int32_t d = 0; d < k->rank; d++)
        if (k->dims[d] > 1) {
            axis = d;
            long_axes++;
        }
    if (k->count < 2)
        return false;
    double first = esp_i_im_konst_at(k, 0), step = esp_i_im_konst_at(k, 1) - first;
    bool integers = k->i != NULL;
    for (int64_t e = 0; e < k->count; e++) {
        double value = esp_i_im_konst_at(k, e);
        if (value != first + (double)e * step || (integers && fabs(value) > exact))
            return false;
    }
    *axis_out = axis;
    *step_out = step;
    return step == 0 || (long_axes == 1 && integers && k->dtype != ESP_DTYPE_BOOL && k->count > 2);
}

static esp_status_t put_literal(esp_i_import_t *im, esp_i_value_t *v)
{
    int64_t bytes = 0;
    bool small = esp_i_mul_i64(v->known->count, esp_dtype_bytes(v->dtype), &bytes);
    void *data = small ? esp_i_alloc_array(&im->alloc, bytes, 1) : NULL;
    if (data == NULL)
        return esp_i_nomem(im->diag);
    esp_i_im_konst_encode(v->known, data);
    esp_status_t status = esp_builder_tensor(im->builder, v->name, ESP_ROLE_CONSTANT, v->dtype,
                                             v->rank, v->dims, data, &v->tensor, im->diag);
    esp_i_free(&im->alloc, data);
    return status;
}

static esp_status_t put_known(esp_i_import_t *im, esp_i_value_t *v)
{
    esp_attr_t attr = {0};
    int32_t axis;
    double step;
    if (!is_progression(v->known, &axis, &step))
        return put_literal(im, v);
    attr.shape.rank = v->rank;
    memcpy(attr.shape.dims, v->dims, sizeof v->dims);
    attr.shape.dtype = v->dtype;
    attr.shape.value = esp_i_im_konst_at(v->known, 0);
    attr.shape.step = step;
    attr.shape.axis = axis;
    return esp_i_im_append(im, step == 0 ? ESP_KIND_FILL : ESP_KIND_RANGE, &attr, 0, NULL, v->name,
                           &v->tensor);
}

/*
 * The data of constants that are too large to be evaluated but small enough to keep; weights keep
 * none.
 */
static esp_status_t literal_data(esp_i_import_t *im, const esp_i_value_t *v, const void **out)
{
    esp_i_pb_tensor_t t;
    int64_t count = esp_i_im_extent(v, 0, v->rank);
    *out = NULL;
    if (v->role != ESP_ROLE_CONSTANT || v->literal == NULL || v->external ||
        count > ESP_ONNX_MAX_LITERAL)
        return ESP_OK;
    ESP_TRY(esp_i_im_literal_read(im, v, &t));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ /* as the file is */
    if (t.has_raw && t.raw.end - t.raw.at == count * esp_dtype_bytes(v->dtype))
        *out = t.raw.at;
#endif
    return ESP_OK;
}

esp_status_t esp_i_im_tensor(esp_i_import_t *im, esp_i_value_t *v, esp_tensor_id_t *out)
{
    const esp_i_konst_t *known = v->known;
    if (v->tensor == ESP_NONE && v->grid != NULL) {
        ESP_TRY(esp_i_im_grid_put(im, v));
    } else if (v->tensor == ESP_NONE) {
        if (v->role == ESP_ROLE_CONSTANT)
            ESP_TRY(esp_i_im_known(im, v, &known));
        if (v->role == ESP_ROLE_CONSTANT && known != NULL)
            ESP_TRY(put_known(im, v));
        else {
            const void *data;
            ESP_TRY(literal_data(im, v, &data));
            ESP_TRY(esp_builder_tensor(im->builder, v->name, v->role, v->dtype, v->rank, v->dims,
                                       data, &v->tensor, im->diag));
        }
    }
    *out = v->tensor;
    return ESP_OK;
}

/* ---- emission -------------------------------------------------------------------------------- */

/* Known operands of an op; false if one is not known. */
static esp_status_t all_known(esp_i_node_t *node, int32_t n, esp_i_value_t *const *in,
                              const esp_i_konst_t **known, bool *all_out)
{
    *all_out = true;
    for (int32_t k = 0; k < n && *all_out; k++) {
        *all_out = in[k] != NULL && in[k]->role == ESP_ROLE_CONSTANT && in[k]->grid == NULL;
        if (*all_out)
            ESP_TRY(esp_i_im_known(node->im, in[k], &known[k]));
        *all_out = *all_out && known[k] != NULL;
    }
    return ESP_OK;
}

/* The value at the batch of the file: NULL if that cannot be told. */
static esp_status_t eval_baked(esp_i_node_t *node, esp_op_kind_t kind, const esp_attr_t *attr,
                               int32_t n, esp_i_value_t *const *in, const esp_i_konst_t **known,
                               const esp_i_konst_t *y, const esp_i_konst_t **out)
{
    bool differs = false;
    *out = NULL;
    for (int32_t k = 0; k < n; k++) {
        if (in[k]->baked == NULL)
            return ESP_OK;
        differs = differs || in[k]->baked != in[k]->known;
        known[k] = in[k]->baked;
    }
    *out = node->batch_ints ? NULL : y;
    if (!differs || node->batch_ints)
        return ESP_OK;
    ESP_TRY(esp_i_im_host_eval(node->im, kind, attr, n, known, out));
    if (*out != NULL && esp_i_im_konst_equal(*out, y))
        *out = y;
    return ESP_OK;
}

/* What grows with the batch stays an op: that can be split, a literal cannot. */
static bool inflates(const esp_i_node_t *node, esp_op_kind_t kind, const esp_attr_t *attr,
                     int32_t n, esp_i_value_t *const *in)
{
    enum { SMALL = 1024 };
    int64_t count = 1;
    bool by_batch = node->batch_ints;
    if (kind != ESP_KIND_EXPAND && kind != ESP_KIND_FILL && kind != ESP_KIND_RANGE)
        return false;
    for (int32_t k = 0; k < n; k++)
        by_batch = by_batch || in[k]->baked != in[k]->known;
    for (int32_t d = 0; d < attr->shape.rank; d++)
        if (!esp_i_mul_i64(count, attr->shape.dims[d], &count))
            return true;
    return by_batch && count > SMALL;
}

static esp_status_t try_host(esp_i_node_t *node, esp_op_kind_t kind, const esp_attr_t *attr,
                             int32_t n, esp_i_value_t *const *in, esp_i_value_t **out)
{
    const esp_i_konst_t *few[8], **known = few, *y = NULL, *baked = NULL;
    bool all;
    if (n > (int32_t)(sizeof few / sizeof *few)) {
        known = esp_i_alloc_array(&node->im->alloc, n, sizeof *known);
        if (known == NULL)
            return esp_i_nomem(node->diag);
    }
    esp_status_t status = all_known(node, n, in, known, &all);
    if (status == ESP_OK && all && !inflates(node, kind, attr, n, in))
        status = esp_i_im_host_eval(node->im, kind, attr, n, known, &y);
    if (status == ESP_OK && y != NULL)
        status = eval_baked(node, kind, attr, n, in, known, y, &baked);
    if (status == ESP_OK && y != NULL)
        status = known_value(node, y, baked, out);
    if (known != few)
        esp_i_free(&node->im->alloc, known);
    return status;
}

enum { MAX_OUTPUTS = 5 };

static int32_t outputs_of(esp_op_kind_t kind)
{
    if (kind == ESP_KIND_BN_STATS)
        return 2;
    if (kind == ESP_KIND_LSTM || kind == ESP_KIND_GRU || kind == ESP_KIND_RNN)
        return kind == ESP_KIND_LSTM ? 5 : kind == ESP_KIND_GRU ? 4 : 2;
    return kind == ESP_KIND_BN_NORM || kind == ESP_KIND_LAYERNORM ? 3 : 1;
}

static esp_status_t append_values(esp_i_node_t *node, esp_op_kind_t kind, const esp_attr_t *attr,
                                  int32_t n, esp_i_value_t *const *in, esp_tensor_id_t *ids,
                                  esp_i_value_t **out)
{
    esp_i_import_t *im = node->im;
    esp_tensor_id_t outputs[MAX_OUTPUTS];
    for (int32_t k = 0; k < n; k++) {
        ids[k] = ESP_NONE;
        if (in[k] != NULL)
            ESP_TRY(esp_i_im_tensor(im, in[k], &ids[k]));
    }
    ESP_TRY(esp_i_im_append(im, kind, attr, n, ids, node->name, outputs));
    for (int32_t k = 0; k < outputs_of(kind); k++) {
        esp_i_value_t *v = esp_i_im_value_new(im, node->name);
        if (v == NULL)
            return esp_i_nomem(im->diag);
        v->tensor = outputs[k];
        v->role = ESP_ROLE_ACTIVATION;
        esp_builder_shape(im->builder, v->tensor, &v->dtype, &v->rank, v->dims);
        if (im->batch > 0 && k == 0)
            ESP_TRY(esp_i_im_track_set(im, v->tensor, esp_i_im_track_op(im, kind, attr, n, in, v)));
        out[k] = v;
    }
    return ESP_OK;
}

esp_status_t esp_i_im_emit(esp_i_node_t *node, esp_op_kind_t kind, const esp_attr_t *attr,
                           int32_t n, esp_i_value_t *const *in, esp_i_value_t **out)
{
    esp_tensor_id_t few[16], *ids = few;
    esp_i_value_t *host = NULL;
    ESP_TRY(try_host(node, kind, attr, n, in, &host));
    if (host == NULL)
        ESP_TRY(esp_i_im_grid_eval(node, kind, attr, n, in, &host));
    if (host != NULL) {
        *out = host;
        return ESP_OK;
    }
    if (n > (int32_t)(sizeof few / sizeof *few)) {
        ids = esp_i_alloc_array(&node->im->alloc, n, sizeof *ids);
        if (ids == NULL)
            return esp_i_nomem(node->diag);
    }
    esp_status_t status = append_values(node, kind, attr, n, in, ids, out);
    if (ids != few)
        esp_i_free(&node->im->alloc, ids);
    return status;
}

/* ---- single kinds ---------------------------------------------------------------------------- */

esp_status_t esp_i_im_elt(esp_i_node_t *node, esp_eltwise_t code, double alpha, double beta,
                          int32_t n, esp_i_value_t *const *in, esp_i_value_t **out)
{
    esp_attr_t attr = {0};
    attr.eltwise.code = code;
    attr.eltwise.alpha = alpha;
    attr.eltwise.beta = beta;
    return esp_i_im_emit(node, ESP_KIND_ELTWISE, &attr, n, in, out);
}

esp_status_t esp_i_im_unary(esp_i_node_t *node, esp_eltwise_t code, esp_i_value_t *x,
                            esp_i_value_t **out)
{
    return esp_i_im_elt(node, code, 0, 0, 1, &x, out);
}

esp_status_t esp_i_im_binary(esp_i_node_t *node, esp_eltwise_t code, esp_i_value_t *a,
                             esp_i_value_t *b, esp_i_value_t **out)
{
    esp_i_value_t *in[2] = {a, b};
    return esp_i_im_elt(node, code, 0, 0, 2, in, out);
}

esp_status_t esp_i_im_affine(esp_i_node_t *node, esp_i_value_t *x, double alpha, double beta,
                             esp_i_value_t **out)
{
    if (alpha == 1 && beta == 0) {
        *out = x;
        return ESP_OK;
    }
    return esp_i_im_elt(node, ESP_ELT_AFFINE, alpha, beta, 1, &x, out);
}

static bool same_shape(const esp_i_value_t *x, int32_t rank, const int64_t *dims)
{
    return x->rank == rank && memcmp(x->dims, dims, (size_t)rank * sizeof *dims) == 0;
}

esp_status_t esp_i_im_reshape(esp_i_node_t *node, esp_i_value_t *x, int32_t rank,
                              const int64_t *dims, esp_i_value_t **out)
{
    if (same_shape(x, rank, dims)) {
        *out = x;
        return ESP_OK;
    }
    if (rank > ESP_MAX_RANK)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "more than %d axes", ESP_MAX_RANK);
    esp_attr_t attr = {0};
    attr.shape.rank = rank;
    memcpy(attr.shape.dims, dims, (size_t)rank * sizeof *dims);
    return esp_i_im_emit(node, ESP_KIND_RESHAPE, &attr, 1, &x, out);
}

esp_status_t esp_i_im_transpose(esp_i_node_t *node, esp_i_value_t *x, const int32_t *perm,
                                esp_i_value_t **out)
{
    esp_attr_t attr = {0};
    bool identity = true;
    for (int32_t d = 0; d < x->rank; d++) {
        attr.transpose.perm[d] = perm[d];
        identity = identity && perm[d] == d;
    }
    if (identity) {
        *out = x;
        return ESP_OK;
    }
    return esp_i_im_emit(node, ESP_KIND_TRANSPOSE, &attr, 1, &x, out);
}

esp_status_t esp_i_im_expand(esp_i_node_t *node, esp_i_value_t *x, int32_t rank,
                             const int64_t *dims, esp_i_value_t **out)
{
    int64_t padded[ESP_MAX_RANK];
    if (rank > ESP_MAX_RANK)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "more than %d axes", ESP_MAX_RANK);
    for (int32_t d = 0; d < rank; d++)
        padded[d] = d < rank - x->rank ? 1 : x->dims[d - (rank - x->rank)];
    ESP_TRY(esp_i_im_reshape(node, x, rank, padded, &x));
    if (same_shape(x, rank, dims)) {
        *out = x;
        return ESP_OK;
    }
    esp_attr_t attr = {0};
    attr.shape.rank = rank;
    memcpy(attr.shape.dims, dims, (size_t)rank * sizeof *dims);
    return esp_i_im_emit(node, ESP_KIND_EXPAND, &attr, 1, &x, out);
}

esp_status_t esp_i_im_slice(esp_i_node_t *node, esp_i_value_t *x, int32_t axis, int64_t start,
                            int64_t step, int64_t count, esp_i_value_t **out)
{
    if (start == 0 && step == 1 && count == x->dims[axis]) {
        *out = x;
        return ESP_OK;
    }
    esp_attr_t attr = {0};
    for (int32_t d = 0; d < x->rank; d++) {
        attr.slice.step[d] = 1;
        attr.slice.count[d] = x->dims[d];
    }
    attr.slice.start[axis] = start;
    attr.slice.step[axis] = step;
    attr.slice.count[axis] = count;
    return esp_i_im_emit(node, ESP_KIND_SLICE, &attr, 1, &x, out);
}

esp_status_t esp_i_im_cast(esp_i_node_t *node, esp_i_value_t *x, esp_dtype_t dtype,
                           esp_i_value_t **out)
{
    esp_attr_t attr = {0};
    attr.cast.dtype = dtype;
    if (x->dtype == dtype) {
        *out = x;
        return ESP_OK;
    }
    return esp_i_im_emit(node, ESP_KIND_CAST, &attr, 1, &x, out);
}

esp_status_t esp_i_im_reduce(esp_i_node_t *node, esp_reduce_t code, esp_i_value_t *x, uint32_t axes,
                             bool keep, esp_i_value_t **out)
{
    esp_attr_t attr = {0};
    attr.reduce.code = code;
    attr.reduce.axes = axes;
    attr.reduce.keep = keep;
    if (axes == 0 && code != ESP_REDUCE_SUMSQ) {
        *out = x;
        return ESP_OK;
    }
    return esp_i_im_emit(node, ESP_KIND_REDUCE, &attr, 1, &x, out);
}

esp_status_t esp_i_im_mean(esp_i_node_t *node, esp_i_value_t *x, uint32_t axes, bool keep,
                           esp_i_value_t **out)
{
    int64_t n = 1;
    for (int32_t d = 0; d < x->rank; d++)
        n *= axes >> d & 1 ? x->dims[d] : 1;
    if (n == 0)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "a mean over no elements");
    esp_i_value_t *sum;
    ESP_TRY(esp_i_im_reduce(node, ESP_REDUCE_SUM, x, axes, keep, &sum));
    return esp_i_im_affine(node, sum, 1.0 / (double)n, 0, out);
}

esp_status_t esp_i_im_gather(esp_i_node_t *node, esp_i_value_t *x, esp_i_value_t *indices,
                             int32_t axis, esp_i_value_t **out)
{
    esp_attr_t attr = {0};
    attr.axis.axis = axis;
    esp_i_value_t *in[2] = {x, indices};
    if (x->rank + indices->rank - 1 > ESP_MAX_RANK)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "more than %d axes", ESP_MAX_RANK);
    return esp_i_im_emit(node, ESP_KIND_GATHER, &attr, 2, in, out);
}

esp_status_t esp_i_im_concat(esp_i_node_t *node, int32_t n, esp_i_value_t *const *in, int32_t axis,
                             esp_i_value_t **out)
{
    esp_attr_t attr = {0};
    attr.axis.axis = axis;
    if (n == 1) {
        *out = in[0];
        return ESP_OK;
    }
    return esp_i_im_emit(node, ESP_KIND_CONCAT, &attr, n, in, out);
}

esp_status_t esp_i_im_contract(esp_i_node_t *node, esp_i_value_t *a, const int8_t *a_labels,
                               esp_i_value_t *b, const int8_t *b_labels, int32_t y_rank,
                               const int8_t *y_labels, esp_i_value_t **out)
{
    esp_attr_t attr = {0}; /* a label of 0 ends a list */
    for (int32_t d = 0; d < a->rank; d++)
        attr.contract.a[d] = (int8_t)('a' + a_labels[d]);
    for (int32_t d = 0; d < b->rank; d++)
        attr.contract.b[d] = (int8_t)('a' + b_labels[d]);
    for (int32_t d = 0; d < y_rank; d++)
        attr.contract.y[d] = (int8_t)('a' + y_labels[d]);
    esp_i_value_t *in[2] = {a, b};
    return esp_i_im_emit(node, ESP_KIND_CONTRACT, &attr, 2, in, out);
}

esp_status_t esp_i_im_apply_matrix(esp_i_node_t *node, esp_i_value_t *x, int32_t axis,
                                   esp_i_value_t *matrix, esp_i_value_t **out)
{
    int8_t x_labels[ESP_MAX_RANK], y_labels[ESP_MAX_RANK];
    for (int32_t d = 0; d < ESP_MAX_RANK; d++)
        x_labels[d] = y_labels[d] = (int8_t)d;
    int8_t m_labels[2] = {ESP_MAX_RANK, (int8_t)axis};
    y_labels[axis] = ESP_MAX_RANK;
    return esp_i_im_contract(node, x, x_labels, matrix, m_labels, x->rank, y_labels, out);
}

esp_status_t esp_i_im_per_channel(esp_i_node_t *node, esp_i_value_t *v, int32_t rank,
                                  esp_i_value_t **out)
{
    int64_t dims[ESP_MAX_RANK];
    if (v->rank != 1 || rank < 2)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "a parameter per channel has %d axes",
                          v->rank);
    for (int32_t d = 0; d < rank - 1; d++)
        dims[d] = d == 0 ? v->dims[0] : 1;
    return esp_i_im_reshape(node, v, rank - 1, dims, out);
}
