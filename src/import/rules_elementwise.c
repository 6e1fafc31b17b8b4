/* Element-wise ops, casts and activations. */
#include "import/rules.h"

#include <math.h>
#include <string.h>

/* ---- helpers --------------------------------------------------------------------------------- */

/* A float constant of one element that does not raise the rank of the result. */
static esp_status_t scalar_of(esp_i_node_t *node, esp_i_value_t *v, const esp_i_value_t *other,
                              bool *is_scalar_out, double *value_out)
{
    const esp_i_konst_t *k = NULL;
    *is_scalar_out = false;
    if (v->role != ESP_ROLE_CONSTANT || !esp_dtype_is_float(v->dtype) || v->rank > other->rank ||
        esp_i_im_extent(v, 0, v->rank) != 1)
        return ESP_OK;
    ESP_TRY(esp_i_im_known(node->im, v, &k));
    if (k != NULL) {
        *is_scalar_out = true;
        *value_out = esp_i_im_konst_at(k, 0);
    }
    return ESP_OK;
}

/* Float operands of these ops are data, not weights to be trained. */
static void not_weights(esp_i_node_t *node)
{
    for (int32_t k = 0; k < node->n_in; k++)
        esp_i_im_not_trained(node->in[k]);
}

/* ONNX names are bound to one dtype per op; a mixture is refused here, with the names of the types.
 */
static esp_status_t same_dtype(esp_i_node_t *node, int32_t from)
{
    for (int32_t k = from + 1; k < node->n_in; k++)
        if (node->in[k]->dtype != node->in[from]->dtype)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "input %d is of type %s, input %d of %s",
                              from, esp_dtype_name(node->in[from]->dtype), k,
                              esp_dtype_name(node->in[k]->dtype));
    return ESP_OK;
}

/*
 * An operand that an Expand stretched to the batch of the file, beside one that carries the new
 * batch: one row of it is enough, it stretches again here.
 */
static esp_status_t shrink_frozen(esp_i_node_t *node)
{
    for (int32_t c = 0; c < node->n_in && node->im->file_batch > 0; c++) {
        esp_i_track_t track = esp_i_im_track_of(node->im, node->in[c]);
        if (track.axis == ESP_NONE || track.before * track.after != 1)
            continue;
        for (int32_t k = 0; k < node->n_in; k++) {
            int32_t own = track.axis + node->in[k]->rank - node->in[c]->rank;
            if (own >= 0 && node->in[k]->stretched >> own & 1 &&
                node->in[k]->dims[own] == node->im->file_batch)
                ESP_TRY(esp_i_im_slice(node, node->in[k], own, 0, 1, 1, &node->in[k]));
        }
        break;
    }
    return ESP_OK;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* x op c -> alpha * x + beta; false: not a case of it. */
static bool affine_of(esp_eltwise_t code, bool right, double c, double *alpha, double *beta)
{
    *alpha = 1;
    *beta = 0;
    if (code == ESP_ELT_ADD)
        *beta = c;
    else if (code == ESP_ELT_SUB && right)
        *beta = -c;
    else if (code == ESP_ELT_SUB) {
        *alpha = -1;
        *beta = c;
    } else if (code == ESP_ELT_MUL)
        *alpha = c;
    else if (code == ESP_ELT_DIV && right && c != 0)
        *alpha = 1 / c;
    else
        return false;
    return true;
}

/* An operand that is one known number becomes an attribute; *out stays NULL where none is. */
static esp_status_t with_number(esp_i_node_t *node, esp_eltwise_t code, esp_i_value_t **out)
{
    esp_i_value_t *a = node->in[0], *b = node->in[1];
    bool left = false, right = false;
    double c = 0, alpha, beta;
    ESP_TRY(scalar_of(node, b, a, &right, &c));
    if (right && code == ESP_ELT_POW)
        return esp_i_im_elt(node, ESP_ELT_POWC, c, 0, 1, &a, out);
    if (!right)
        ESP_TRY(scalar_of(node, a, b, &left, &c));
    if (!left && !right)
        return ESP_OK;
    if (left && code == ESP_ELT_DIV && c == 1)
        return esp_i_im_unary(node, ESP_ELT_RECIPROCAL, b, out);
    if (left && code == ESP_ELT_DIV) {
        ESP_TRY(esp_i_im_unary(node, ESP_ELT_RECIPROCAL, b, out));
        return esp_i_im_affine(node, *out, c, 0, out);
    }
    if (!affine_of(code, right, c, &alpha, &beta))
        return ESP_OK;
    return esp_i_im_affine(node, right ? a : b, alpha, beta, out);
}

/* code: esp_eltwise_t */
esp_status_t esp_i_rule_binary(esp_i_node_t *node)
{
    esp_eltwise_t code = (esp_eltwise_t)node->op->code;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    if (code != ESP_ELT_ADD && code != ESP_ELT_MUL)
        not_weights(node);
    if (code == ESP_ELT_POW && node->in[0]->dtype != node->in[1]->dtype)
        ESP_TRY(esp_i_im_cast(node, node->in[1], node->in[0]->dtype, &node->in[1]));
    ESP_TRY(same_dtype(node, 0));
    ESP_TRY(shrink_frozen(node));
    ESP_TRY(with_number(node, code, &node->out[0]));
    if (node->out[0] != NULL)
        return ESP_OK;
    return esp_i_im_binary(node, code, node->in[0], node->in[1], &node->out[0]);
}

esp_status_t esp_i_rule_mod(esp_i_node_t *node)
{
    int64_t fmod_rule;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    ESP_TRY(same_dtype(node, 0));
    ESP_TRY(esp_i_im_attr_int(node, "fmod", 0, &fmod_rule));
    return esp_i_im_elt(node, ESP_ELT_MOD, (double)(fmod_rule != 0), 0, 2, node->in, &node->out[0]);
}

/* Sum, Mean, Max, Min over any number of inputs; code: esp_eltwise_t, AFFINE for Mean. */
esp_status_t esp_i_rule_variadic(esp_i_node_t *node)
{
    esp_eltwise_t code = (esp_eltwise_t)node->op->code;
    ESP_TRY(esp_i_im_need_inputs(node, node->n_in > 0 ? node->n_in : 1, -1));
    ESP_TRY(same_dtype(node, 0));
    if (code == ESP_ELT_MAX || code == ESP_ELT_MIN) {
        esp_i_value_t *y = node->in[0];
        not_weights(node);
        for (int32_t k = 1; k < node->n_in; k++)
            ESP_TRY(esp_i_im_binary(node, code, y, node->in[k], &y));
        node->out[0] = y;
        return ESP_OK;
    }
    esp_i_value_t *sum = node->in[0];
    if (node->n_in > 1)
        ESP_TRY(esp_i_im_elt(node, ESP_ELT_ADD, 0, 0, node->n_in, node->in, &sum));
    double scale = code == ESP_ELT_AFFINE ? 1.0 / (double)node->n_in : 1;
    return esp_i_im_affine(node, sum, scale, 0, &node->out[0]);
}

/* ---- functions of one variable --------------------------------------------------------------- */

/* code: esp_eltwise_t without parameters */
esp_status_t esp_i_rule_unary(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    return esp_i_im_unary(node, (esp_eltwise_t)node->op->code, node->in[0], &node->out[0]);
}

/* alpha (and beta) are attributes; code: esp_eltwise_t */
esp_status_t esp_i_rule_alpha(esp_i_node_t *node)
{
    esp_eltwise_t code = (esp_eltwise_t)node->op->code;
    double alpha, beta;
    bool hard = code == ESP_ELT_HARD_SIGMOID, leaky = code == ESP_ELT_LEAKY_RELU;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_float(node, "alpha", hard ? 0.2 : leaky ? 0.01 : 1, &alpha));
    ESP_TRY(esp_i_im_attr_float(node, "beta", 0.5, &beta));
    return esp_i_im_elt(node, code, alpha, beta, 1, node->in, &node->out[0]);
}

esp_status_t esp_i_rule_gelu(esp_i_node_t *node)
{
    esp_i_str_t approximate;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_text(node, "approximate", "none", &approximate));
    bool tanh_form = esp_i_str_is(approximate, "tanh");
    return esp_i_im_unary(node, tanh_form ? ESP_ELT_GELU_TANH : ESP_ELT_GELU, node->in[0],
                          &node->out[0]);
}

/* x * sigmoid(alpha * x) */
esp_status_t esp_i_rule_swish(esp_i_node_t *node)
{
    double alpha;
    esp_i_value_t *s;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_float(node, "alpha", 1, &alpha));
    if (alpha == 1)
        return esp_i_im_unary(node, ESP_ELT_SILU, node->in[0], &node->out[0]);
    ESP_TRY(esp_i_im_affine(node, node->in[0], alpha, 0, &s));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_SIGMOID, s, &s));
    return esp_i_im_binary(node, ESP_ELT_MUL, node->in[0], s, &node->out[0]);
}

/* x * tanh(softplus(x)) */
esp_status_t esp_i_rule_mish(esp_i_node_t *node)
{
    esp_i_value_t *s;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_SOFTPLUS, node->in[0], &s));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_TANH, s, &s));
    return esp_i_im_binary(node, ESP_ELT_MUL, node->in[0], s, &node->out[0]);
}

/* gamma * elu(x, alpha) */
esp_status_t esp_i_rule_selu(esp_i_node_t *node)
{
    double alpha, gamma;
    esp_i_value_t *y;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_float(node, "alpha", 1.67326319217681884765625, &alpha));
    ESP_TRY(esp_i_im_attr_float(node, "gamma", 1.05070102214813232421875, &gamma));
    ESP_TRY(esp_i_im_elt(node, ESP_ELT_ELU, alpha, 0, 1, node->in, &y));
    return esp_i_im_affine(node, y, gamma, 0, &node->out[0]);
}

/* alpha * elu(x / alpha, 1), which is the same as max(0, x) + min(0, alpha (exp(x / alpha) - 1)) */
esp_status_t esp_i_rule_celu(esp_i_node_t *node)
{
    double alpha;
    esp_i_value_t *y;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_float(node, "alpha", 1, &alpha));
    if (!(alpha > 0))
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED, "alpha must be positive");
    ESP_TRY(esp_i_im_affine(node, node->in[0], 1 / alpha, 0, &y));
    ESP_TRY(esp_i_im_elt(node, ESP_ELT_ELU, 1, 0, 1, &y, &y));
    return esp_i_im_affine(node, y, alpha, 0, &node->out[0]);
}

/* x / (1 + |x|) */
esp_status_t esp_i_rule_softsign(esp_i_node_t *node)
{
    esp_i_value_t *y;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_ABS, node->in[0], &y));
    ESP_TRY(esp_i_im_affine(node, y, 1, 1, &y));
    return esp_i_im_binary(node, ESP_ELT_DIV, node->in[0], y, &node->out[0]);
}

esp_status_t esp_i_rule_tan(esp_i_node_t *node)
{
    esp_i_value_t *s, *c;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_SIN, node->in[0], &s));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_COS, node->in[0], &c));
    return esp_i_im_binary(node, ESP_ELT_DIV, s, c, &node->out[0]);
}

/* relu(x) + slope * (x - relu(x)) */
esp_status_t esp_i_rule_prelu(esp_i_node_t *node)
{
    esp_i_value_t *up, *down;
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_RELU, node->in[0], &up));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_SUB, node->in[0], up, &down));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_MUL, down, node->in[1], &down));
    return esp_i_im_binary(node, ESP_ELT_ADD, up, down, &node->out[0]);
}

/* x where x > alpha, else 0 */
esp_status_t esp_i_rule_thresholded_relu(esp_i_node_t *node)
{
    double alpha;
    esp_i_value_t *limit, *above;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_float(node, "alpha", 1, &alpha));
    ESP_TRY(esp_i_im_scalar(node, node->in[0]->dtype, alpha, &limit));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_GREATER, node->in[0], limit, &above));
    ESP_TRY(esp_i_im_cast(node, above, node->in[0]->dtype, &above));
    return esp_i_im_binary(node, ESP_ELT_MUL, node->in[0], above, &node->out[0]);
}

/* Bounds: attributes before opset 11, inputs since. Integers are clipped by max and min. */
esp_status_t esp_i_rule_clip(esp_i_node_t *node)
{
    double bounds[2] = {-INFINITY, INFINITY};
    static const char *const names[2] = {"min", "max"};
    esp_i_value_t *x, *y;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 3));
    x = y = node->in[0];
    bool by_tensor = false;
    for (int32_t k = 0; k < 2; k++) {
        esp_i_value_t *bound = esp_i_im_in(node, k + 1);
        const esp_i_konst_t *known = NULL;
        if (bound != NULL)
            ESP_TRY(esp_i_im_known(node->im, bound, &known));
        if (known != NULL && known->count == 1)
            bounds[k] = esp_i_im_konst_at(known, 0);
        else if (bound == NULL && node->opset < 11)
            ESP_TRY(esp_i_im_attr_float(node, names[k], bounds[k], &bounds[k]));
        by_tensor = by_tensor || (bound != NULL && known == NULL);
    }
    if (!by_tensor && esp_dtype_is_float(x->dtype))
        return esp_i_im_elt(node, ESP_ELT_CLIP, bounds[0], bounds[1], 1, &x, &node->out[0]);
    for (int32_t k = 0; k < 2; k++)
        if (esp_i_im_in(node, k + 1) != NULL)
            ESP_TRY(
                esp_i_im_binary(node, k == 0 ? ESP_ELT_MAX : ESP_ELT_MIN, y, node->in[k + 1], &y));
    node->out[0] = y;
    return ESP_OK;
}

/* ---- logic, casts ---------------------------------------------------------------------------- */

/* code: esp_eltwise_t */
esp_status_t esp_i_rule_compare(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    not_weights(node);
    ESP_TRY(same_dtype(node, 0));
    return esp_i_im_binary(node, (esp_eltwise_t)node->op->code, node->in[0], node->in[1],
                           &node->out[0]);
}

esp_status_t esp_i_rule_where(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 3, 3));
    if (node->in[0]->dtype != ESP_DTYPE_BOOL)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "the condition is of type %s, not bool",
                          esp_dtype_name(node->in[0]->dtype));
    ESP_TRY(same_dtype(node, 1));
    ESP_TRY(shrink_frozen(node));
    not_weights(node);
    return esp_i_im_elt(node, ESP_ELT_WHERE, 0, 0, 3, node->in, &node->out[0]);
}

/* NaN is the only number that differs from itself. */
esp_status_t esp_i_rule_is_nan(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    return esp_i_im_binary(node, ESP_ELT_NOT_EQUAL, node->in[0], node->in[0], &node->out[0]);
}

esp_status_t esp_i_rule_is_inf(esp_i_node_t *node)
{
    int64_t negative, positive;
    esp_i_value_t *x, *limit;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_int(node, "detect_negative", 1, &negative));
    ESP_TRY(esp_i_im_attr_int(node, "detect_positive", 1, &positive));
    x = node->in[0];
    if (negative != 0 && positive != 0)
        ESP_TRY(esp_i_im_unary(node, ESP_ELT_ABS, x, &x));
    else if (positive == 0)
        ESP_TRY(esp_i_im_unary(node, ESP_ELT_NEG, x, &x));
    ESP_TRY(esp_i_im_scalar(node, x->dtype, INFINITY, &limit));
    return esp_i_im_binary(node, ESP_ELT_EQUAL, x, limit, &node->out[0]);
}

esp_status_t esp_i_rule_cast(esp_i_node_t *node)
{
    int64_t to;
    esp_dtype_t dtype;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_attr_int(node, "to", 0, &to));
    if (!esp_i_pb_dtype(to, &dtype))
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED, "a cast to type %s (%lld)",
                          esp_i_pb_type_name(to), (long long)to);
    return esp_i_im_cast(node, node->in[0], dtype, &node->out[0]);
}

esp_status_t esp_i_rule_cast_like(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    return esp_i_im_cast(node, node->in[0], node->in[1]->dtype, &node->out[0]);
}

/* Dropout of inference, Identity: another name for the same value. */
esp_status_t esp_i_rule_identity(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    node->out[0] = node->in[0];
    return ESP_OK;
}
