/* Reductions, running sums, arg max. */
#include "import/rules.h"

#include <string.h>

/* Axes to reduce over; without any: all, or none where the node says so. */
static esp_status_t reduced_axes(esp_i_node_t *node, uint32_t *axes, bool *keep)
{
    int64_t keepdims, noop;
    bool given;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 2));
    int32_t rank = node->in[0]->rank;
    ESP_TRY(esp_i_im_param_axes(node, "axes", 1, rank, axes, &given));
    ESP_TRY(esp_i_im_attr_int(node, "keepdims", 1, &keepdims));
    ESP_TRY(esp_i_im_attr_int(node, "noop_with_empty_axes", 0, &noop));
    if (*axes == 0 && noop == 0)
        *axes = (1u << rank) - 1;
    *keep = keepdims != 0;
    return ESP_OK;
}

/* code: esp_reduce_t */
esp_status_t esp_i_rule_reduce(esp_i_node_t *node)
{
    uint32_t axes;
    bool keep;
    ESP_TRY(reduced_axes(node, &axes, &keep));
    return esp_i_im_reduce(node, (esp_reduce_t)node->op->code, node->in[0], axes, keep,
                           &node->out[0]);
}

esp_status_t esp_i_rule_reduce_mean(esp_i_node_t *node)
{
    uint32_t axes;
    bool keep;
    ESP_TRY(reduced_axes(node, &axes, &keep));
    return esp_i_im_mean(node, node->in[0], axes, keep, &node->out[0]);
}

/* code: 1 sum |x|, 2 sqrt(sum x^2), 3 log(sum x) */
esp_status_t esp_i_rule_reduce_norm(esp_i_node_t *node)
{
    uint32_t axes;
    bool keep;
    ESP_TRY(reduced_axes(node, &axes, &keep));
    esp_i_value_t *x = node->in[0];
    if (node->op->code == 1) {
        ESP_TRY(esp_i_im_unary(node, ESP_ELT_ABS, x, &x));
        return esp_i_im_reduce(node, ESP_REDUCE_SUM, x, axes, keep, &node->out[0]);
    }
    bool root = node->op->code == 2;
    ESP_TRY(esp_i_im_reduce(node, root ? ESP_REDUCE_SUMSQ : ESP_REDUCE_SUM, x, axes, keep, &x));
    return esp_i_im_unary(node, root ? ESP_ELT_SQRT : ESP_ELT_LOG, x, &node->out[0]);
}

/* log(sum exp(x - max)) + max */
esp_status_t esp_i_rule_reduce_log_sum_exp(esp_i_node_t *node)
{
    uint32_t axes;
    bool keep;
    esp_i_value_t *top, *y, *shape;
    ESP_TRY(reduced_axes(node, &axes, &keep));
    ESP_TRY(esp_i_im_reduce(node, ESP_REDUCE_MAX, node->in[0], axes, true, &top));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_SUB, node->in[0], top, &y));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_EXP, y, &y));
    ESP_TRY(esp_i_im_reduce(node, ESP_REDUCE_SUM, y, axes, true, &y));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_LOG, y, &y));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_ADD, y, top, &y));
    if (keep) {
        node->out[0] = y;
        return ESP_OK;
    }
    shape = y;
    int64_t dims[ESP_MAX_RANK];
    int32_t rank = 0;
    for (int32_t d = 0; d < shape->rank; d++)
        if (!(axes >> d & 1))
            dims[rank++] = shape->dims[d];
    return esp_i_im_reshape(node, y, rank, dims, &node->out[0]);
}

/* ---- running sums ---------------------------------------------------------------------------- */

enum { MAX_CUMSUM = 512 }; /* so that the matrix is evaluated on the host */

/* A sum over all positions before: a triangular matrix along the axis, its entries 0 and 1. */
esp_status_t esp_i_rule_cumsum(esp_i_node_t *node)
{
    int64_t axis_in = 0, exclusive, reverse;
    int32_t axis, count;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    ESP_TRY(esp_i_im_input_ints(node, 1, 1, &axis_in, &count));
    esp_i_value_t *x = node->in[0], *matrix, *y;
    ESP_TRY(esp_i_im_axis(node, axis_in, x->rank, &axis));
    ESP_TRY(esp_i_im_attr_int(node, "exclusive", 0, &exclusive));
    ESP_TRY(esp_i_im_attr_int(node, "reverse", 0, &reverse));
    int64_t n = x->dims[axis];
    if (n > MAX_CUMSUM)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT,
                          "a running sum over %lld elements (up to %d are supported)", (long long)n,
                          MAX_CUMSUM);
    esp_dtype_t number = esp_dtype_is_float(x->dtype) ? x->dtype : ESP_DTYPE_F32;
    esp_i_konst_t *k;
    const int64_t dims[2] = {n, n};
    ESP_TRY(esp_i_im_konst_new(node->im, number, 2, dims, &k));
    if (k == NULL)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "too many constants");
    for (int64_t to = 0; to < n; to++)
        for (int64_t from = 0; from < n; from++) {
            int64_t ahead = reverse != 0 ? from - to : to - from;
            esp_i_im_konst_set(k, to * n + from, ahead > 0 || (ahead == 0 && exclusive == 0));
        }
    ESP_TRY(esp_i_im_value_known(node, k, &matrix));
    ESP_TRY(esp_i_im_cast(node, x, number, &y));
    ESP_TRY(esp_i_im_apply_matrix(node, y, axis, matrix, &y));
    return esp_i_im_cast(node, y, x->dtype, &node->out[0]);
}
