/* Dropout and random numbers. */
#include "import/rules.h"

#include <string.h>

/* Active where the file says it trains, and before opset 12, which does not say. */
esp_status_t esp_i_rule_dropout(esp_i_node_t *node)
{
    double ratio = 0.5, training = node->opset < 12;
    int32_t count;
    esp_attr_t attr = {0};
    ESP_TRY(esp_i_im_need_inputs(node, 1, 3));
    if (node->opset < 12) {
        ESP_TRY(esp_i_im_attr_float(node, "ratio", 0.5, &ratio));
    } else {
        ESP_TRY(esp_i_im_input_floats(node, 1, 1, &ratio, &count));
        ESP_TRY(esp_i_im_input_floats(node, 2, 1, &training, &count));
    }
    if (!(ratio >= 0 && ratio < 1))
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "a ratio of %g", ratio);
    node->out[0] = node->in[0];
    if (training == 0 || ratio == 0)
        return ESP_OK;
    attr.dropout.p = ratio;
    esp_tensor_id_t x; /* what is read may have to become ops first: the stream is this op's id */
    ESP_TRY(esp_i_im_tensor(node->im, node->in[0], &x));
    attr.dropout.stream = node->im->n_ops;
    return esp_i_im_emit(node, ESP_KIND_DROPOUT, &attr, 1, node->in, &node->out[0]);
}

/* Normal (mean, scale) or uniform [low, high) of a shape. code: 1 normal, 0 uniform */
static esp_status_t draw(esp_i_node_t *node, int32_t rank, const int64_t *dims, esp_dtype_t absent)
{
    esp_attr_t attr = {0};
    double a, b;
    int64_t type;
    bool normal = node->op->code == 1;
    ESP_TRY(esp_i_im_attr_float(node, normal ? "mean" : "low", 0, &a));
    ESP_TRY(esp_i_im_attr_float(node, normal ? "scale" : "high", 1, &b));
    ESP_TRY(esp_i_im_attr_int(node, "dtype", 0, &type));
    attr.shape.dtype = absent;
    if (type != 0 && !esp_i_pb_dtype(type, &attr.shape.dtype))
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED, "random numbers of type %s",
                          esp_i_pb_type_name(type));
    attr.shape.rank = rank;
    memcpy(attr.shape.dims, dims, (size_t)rank * sizeof *dims);
    attr.shape.law = normal ? ESP_RANDOM_NORMAL : ESP_RANDOM_UNIFORM;
    attr.shape.value = a;
    attr.shape.step = normal ? b : b - a;
    attr.shape.stream = node->im->n_ops;
    return esp_i_im_emit(node, ESP_KIND_RANDOM, &attr, 0, NULL, &node->out[0]);
}

esp_status_t esp_i_rule_random_like(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    return draw(node, node->in[0]->rank, node->in[0]->dims, node->in[0]->dtype);
}

esp_status_t esp_i_rule_random(esp_i_node_t *node)
{
    int64_t dims[ESP_MAX_RANK];
    int32_t rank;
    ESP_TRY(esp_i_im_need_inputs(node, 0, 0));
    ESP_TRY(esp_i_im_attr_ints(node, "shape", ESP_MAX_RANK, dims, &rank));
    for (int32_t d = 0; d < rank; d++)
        if (dims[d] < 0)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "a negative extent");
    if (rank < 0)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "no shape");
    return draw(node, rank, dims, ESP_DTYPE_F32);
}

/* 1 with probability x: a uniform number below x */
esp_status_t esp_i_rule_bernoulli(esp_i_node_t *node)
{
    int64_t type;
    esp_attr_t attr = {0};
    esp_i_value_t *u, *below;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_int(node, "dtype", 0, &type));
    esp_i_value_t *x = node->in[0];
    esp_dtype_t dtype = x->dtype;
    if (type != 0 && !esp_i_pb_dtype(type, &dtype))
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED, "random numbers of type %s",
                          esp_i_pb_type_name(type));
    attr.shape.rank = x->rank;
    memcpy(attr.shape.dims, x->dims, sizeof x->dims);
    attr.shape.dtype = x->dtype;
    attr.shape.law = ESP_RANDOM_UNIFORM;
    attr.shape.step = 1;
    attr.shape.stream = node->im->n_ops;
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_RANDOM, &attr, 0, NULL, &u));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_LESS, u, x, &below));
    return esp_i_im_cast(node, below, dtype, &node->out[0]);
}
