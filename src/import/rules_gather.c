/* Gathering by indices; ops that become comparisons with positions. */
#include "import/rules.h"

#include <string.h>

/* Known indices count from the end where they are negative; here they never are. */
static esp_status_t positive_indices(esp_i_node_t *node, esp_i_value_t **indices, int64_t extent)
{
    const esp_i_konst_t *k;
    esp_i_konst_t *fixed;
    bool negative = false;
    if ((*indices)->rank > 0 && esp_dtype_is_float((*indices)->dtype))
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "the indices are of type %s",
                          esp_dtype_name((*indices)->dtype));
    ESP_TRY(esp_i_im_known(node->im, *indices, &k));
    for (int64_t e = 0; k != NULL && k->i != NULL && e < k->count; e++) {
        int64_t row = k->i[e];
        if (row < -extent || row >= extent)
            return esp_i_fail(node->diag, ESP_ERR_INVALID,
                              "index %lld is outside an axis of extent %lld", (long long)row,
                              (long long)extent);
        negative = negative || row < 0;
    }
    if (!negative)
        return ESP_OK;
    node->batch_ints = node->batch_ints || (*indices)->baked != (*indices)->known;
    ESP_TRY(esp_i_im_konst_new(node->im, k->dtype, k->rank, k->dims, &fixed));
    if (fixed == NULL)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "too many constants");
    for (int64_t e = 0; e < k->count; e++)
        fixed->i[e] = k->i[e] + (k->i[e] < 0 ? extent : 0);
    return esp_i_im_value_known(node, fixed, indices);
}

/* Rows start, start + step, .. : a slice. */
static bool is_run(const esp_i_konst_t *k, int64_t *start, int64_t *step)
{
    if (k == NULL || k->i == NULL || k->rank > 1 || k->count < 1)
        return false;
    *start = k->i[0];
    *step = k->count > 1 ? k->i[1] - k->i[0] : 1;
    for (int64_t e = 1; e < k->count; e++)
        if (k->i[e] != *start + e * *step)
            return false;
    return *step > 0;
}

/* Drops the sliced axis where the index was a scalar. */
static esp_status_t gather_by_slice(esp_i_node_t *node, esp_i_value_t *x, int32_t axis,
                                    const esp_i_konst_t *k, int64_t start, int64_t step)
{
    int64_t dims[ESP_MAX_RANK];
    int32_t rank = 0;
    esp_i_value_t *y;
    ESP_TRY(esp_i_im_slice(node, x, axis, start, step, k->count, &y));
    for (int32_t d = 0; d < y->rank; d++)
        if (d != axis || k->rank == 1)
            dims[rank++] = y->dims[d];
    return esp_i_im_reshape(node, y, rank, dims, &node->out[0]);
}

esp_status_t esp_i_rule_gather(esp_i_node_t *node)
{
    int32_t axis;
    int64_t start, step;
    const esp_i_konst_t *k, *x_known = NULL;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    esp_i_value_t *x = node->in[0], *indices = node->in[1];
    ESP_TRY(esp_i_im_attr_axis(node, 0, x->rank, &axis));
    ESP_TRY(positive_indices(node, &indices, x->dims[axis]));
    ESP_TRY(esp_i_im_known(node->im, indices, &k));
    if (x->role == ESP_ROLE_CONSTANT)
        ESP_TRY(esp_i_im_known(node->im, x, &x_known));
    if (x_known == NULL && is_run(k, &start, &step))
        return gather_by_slice(node, x, axis, k, start, step);
    return esp_i_im_gather(node, x, indices, axis, &node->out[0]);
}

/* ---- gathers of elements --------------------------------------------------------------------- */

/* step * position along `axis`, in the shape dims with 1 everywhere else, of dtype int64 */
static esp_status_t positions(esp_i_node_t *node, int32_t rank, int32_t axis, int64_t extent,
                              int64_t step, esp_dtype_t dtype, esp_i_value_t **out)
{
    esp_attr_t attr = {0};
    attr.shape.rank = rank;
    attr.shape.dtype = dtype;
    attr.shape.step = (double)step;
    attr.shape.axis = axis;
    for (int32_t d = 0; d < rank; d++)
        attr.shape.dims[d] = d == axis ? extent : 1;
    return esp_i_im_emit(node, ESP_KIND_RANGE, &attr, 0, NULL, out);
}

static esp_status_t scaled(esp_i_node_t *node, esp_i_value_t *x, int64_t factor,
                           esp_i_value_t **out)
{
    esp_i_value_t *number;
    if (factor == 1) {
        *out = x;
        return ESP_OK;
    }
    ESP_TRY(esp_i_im_scalar(node, x->dtype, (double)factor, &number));
    return esp_i_im_binary(node, ESP_ELT_MUL, x, number, out);
}

/* y[i][j] = x[i][indices[i][j]]: a gather from the flat x at indices * stride + position elsewhere.
 */
esp_status_t esp_i_rule_gather_elements(esp_i_node_t *node)
{
    int32_t axis;
    esp_i_value_t *at, *offset, *flat;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    esp_i_value_t *x = node->in[0], *indices = node->in[1];
    if (indices->rank != x->rank)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "indices of %d axes for data of %d",
                          indices->rank, x->rank);
    ESP_TRY(esp_i_im_attr_axis(node, 0, x->rank, &axis));
    ESP_TRY(positive_indices(node, &indices, x->dims[axis]));
    ESP_TRY(scaled(node, indices, esp_i_im_extent(x, axis + 1, x->rank), &at));
    for (int32_t d = 0; d < x->rank; d++) {
        if (d == axis || indices->dims[d] == 1)
            continue;
        ESP_TRY(positions(node, x->rank, d, indices->dims[d], esp_i_im_extent(x, d + 1, x->rank),
                          indices->dtype, &offset));
        ESP_TRY(esp_i_im_binary(node, ESP_ELT_ADD, at, offset, &at));
    }
    const int64_t all = esp_i_im_extent(x, 0, x->rank);
    ESP_TRY(esp_i_im_reshape(node, x, 1, &all, &flat));
    return esp_i_im_gather(node, flat, at, 0, &node->out[0]);
}

/* indices [.., m]: each row of m numbers is a position in x after its first `batch` axes. */
esp_status_t esp_i_rule_gather_nd(esp_i_node_t *node)
{
    int64_t batch_in, dims[ESP_MAX_RANK];
    esp_i_value_t *at = NULL, *part, *flat;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    ESP_TRY(esp_i_im_attr_int(node, "batch_dims", 0, &batch_in));
    esp_i_value_t *x = node->in[0], *indices = node->in[1];
    int32_t last = indices->rank - 1, batch = (int32_t)esp_i_max_i64(0, batch_in);
    bool fits = last >= 0 && batch_in >= 0 && batch_in <= last && batch < x->rank &&
                indices->dims[last] >= 1 && indices->dims[last] <= x->rank - batch;
    for (int32_t d = 0; fits && d < batch; d++)
        fits = indices->dims[d] == x->dims[d];
    if (!fits)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "indices of %d axes, batch_dims %lld",
                          indices->rank, (long long)batch_in);
    int32_t m = batch + (int32_t)indices->dims[last];
    for (int32_t k = 0; k < m; k++) {
        int64_t step = esp_i_im_extent(x, k + 1, m);
        if (k < batch) {
            ESP_TRY(positions(node, last, k, x->dims[k], step, indices->dtype, &part));
        } else {
            ESP_TRY(esp_i_im_slice(node, indices, last, k - batch, 1, 1, &part));
            ESP_TRY(esp_i_im_reshape(node, part, last, indices->dims, &part));
            ESP_TRY(positive_indices(node, &part, x->dims[k]));
            ESP_TRY(scaled(node, part, step, &part));
        }
        if (at != NULL)
            ESP_TRY(esp_i_im_binary(node, ESP_ELT_ADD, at, part, &part));
        at = part;
    }
    dims[0] = esp_i_im_extent(x, 0, m);
    for (int32_t d = m; d < x->rank; d++)
        dims[d - m + 1] = x->dims[d];
    ESP_TRY(esp_i_im_reshape(node, x, x->rank - m + 1, dims, &flat));
    return esp_i_im_gather(node, flat, at, 0, &node->out[0]);
}

/* ---- comparisons with positions -------------------------------------------------------------- */

/* indices == position along a new axis, then values[1] there and values[0] elsewhere */
esp_status_t esp_i_rule_one_hot(esp_i_node_t *node)
{
    int64_t depth = 0, dims[ESP_MAX_RANK], axis_in;
    int32_t axis, count;
    esp_i_value_t *at, *hot, *on, *off;
    ESP_TRY(esp_i_im_need_inputs(node, 3, 3));
    double depth_number = 0;
    ESP_TRY(esp_i_im_input_floats(node, 1, 1, &depth_number, &count));
    esp_i_value_t *x = node->in[0], *values = node->in[2];
    ESP_TRY(esp_i_im_attr_int(node, "axis", -1, &axis_in));
    ESP_TRY(esp_i_im_axis(node, axis_in, x->rank + 1, &axis));
    if (!(depth_number >= 0 && depth_number < 1e9) || x->rank == ESP_MAX_RANK ||
        values->rank != 1 || values->dims[0] != 2)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "depth %g, %d axes, values of %d axes",
                          depth_number, x->rank, values->rank);
    esp_i_im_not_trained(values);
    depth = (int64_t)depth_number;
    for (int32_t d = 0; d <= x->rank; d++)
        dims[d] = d == axis ? 1 : x->dims[d - (d > axis)];
    ESP_TRY(esp_i_im_reshape(node, x, x->rank + 1, dims, &x));
    ESP_TRY(positions(node, x->rank, axis, depth, 1, x->dtype, &at));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_EQUAL, x, at, &hot));
    ESP_TRY(esp_i_im_slice(node, values, 0, 0, 1, 1, &off));
    ESP_TRY(esp_i_im_slice(node, values, 0, 1, 1, 1, &on));
    esp_i_value_t *in[3] = {hot, on, off};
    return esp_i_im_elt(node, ESP_ELT_WHERE, 0, 0, 3, in, &node->out[0]);
}

/* x where column - row >= k (upper: the opposite), else 0 */
esp_status_t esp_i_rule_trilu(esp_i_node_t *node)
{
    int64_t k = 0, upper;
    int32_t count;
    esp_i_value_t *row, *column, *limit, *mask, *zero;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 2));
    ESP_TRY(esp_i_im_input_ints(node, 1, 1, &k, &count));
    ESP_TRY(esp_i_im_attr_int(node, "upper", 1, &upper));
    esp_i_value_t *x = node->in[0];
    if (x->rank < 2)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "an input of %d axes", x->rank);
    ESP_TRY(positions(node, 2, 0, x->dims[x->rank - 2], 1, ESP_DTYPE_I64, &row));
    ESP_TRY(positions(node, 2, 1, x->dims[x->rank - 1], 1, ESP_DTYPE_I64, &column));
    ESP_TRY(esp_i_im_scalar(node, ESP_DTYPE_I64, (double)k, &limit));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_ADD, row, limit, &row));
    ESP_TRY(esp_i_im_binary(node, upper != 0 ? ESP_ELT_GREATER_EQUAL : ESP_ELT_LESS_EQUAL, column,
                            row, &mask));
    if (x->dtype == ESP_DTYPE_BOOL)
        return esp_i_im_binary(node, ESP_ELT_AND, x, mask, &node->out[0]);
    ESP_TRY(esp_i_im_scalar(node, x->dtype, 0, &zero));
    esp_i_value_t *in[3] = {mask, x, zero};
    return esp_i_im_elt(node, ESP_ELT_WHERE, 0, 0, 3, in, &node->out[0]);
}

/* The matrix with ones on diagonal k, of the shape of the input. */
esp_status_t esp_i_rule_eye_like(esp_i_node_t *node)
{
    int64_t k, type;
    esp_dtype_t dtype;
    esp_i_value_t *row, *column, *limit, *mask;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_int(node, "k", 0, &k));
    ESP_TRY(esp_i_im_attr_int(node, "dtype", -1, &type));
    esp_i_value_t *x = node->in[0];
    dtype = x->dtype;
    if (x->rank != 2 || (type >= 0 && !esp_i_pb_dtype(type, &dtype)))
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "an input of %d axes, type %lld", x->rank,
                          (long long)type);
    ESP_TRY(positions(node, 2, 0, x->dims[0], 1, ESP_DTYPE_I64, &row));
    ESP_TRY(positions(node, 2, 1, x->dims[1], 1, ESP_DTYPE_I64, &column));
    ESP_TRY(esp_i_im_scalar(node, ESP_DTYPE_I64, (double)k, &limit));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_ADD, row, limit, &row));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_EQUAL, column, row, &mask));
    return esp_i_im_cast(node, mask, dtype, &node->out[0]);
}
