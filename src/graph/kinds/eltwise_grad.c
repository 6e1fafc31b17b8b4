/*
 * Gradients of the element-wise codes. Each rule works in the shape of y and the result is summed
 * down to the shape of the input, so that operands broadcast and nothing is expanded.
 *
 * Where an expression has a kink the first input wins: of MAX and MIN it gets the whole gradient of
 * a tie; ABS and RELU have slope 0 at 0. Steps (sign, floor, comparisons) let nothing flow.
 */
#include "graph/kinds/eltwise.h"

#include <math.h>

/* What a rule sees; it writes gradients in the shape of y to dx. */
typedef struct rule {
    const esp_i_grad_t *grad;
    esp_tensor_id_t a, b, y, dy;
    double alpha, beta;
    const bool *need;
    esp_tensor_id_t dx[3]; /* ESP_NONE: nothing flows */
    esp_eltwise_t code;
} rule_t;

/* ---- shorthands that make one op
 * ------------------------------------------------------------------ */

static esp_status_t unary(const rule_t *r, esp_eltwise_t code, esp_tensor_id_t x,
                          esp_tensor_id_t *y)
{
    return esp_i_make_unary(r->grad->builder, code, x, r->grad->name, y, r->grad->diag);
}

static esp_status_t binary(const rule_t *r, esp_eltwise_t code, esp_tensor_id_t x0,
                           esp_tensor_id_t x1, esp_tensor_id_t *y)
{
    return esp_i_make_binary(r->grad->builder, code, x0, x1, r->grad->name, y, r->grad->diag);
}

static esp_status_t affine(const rule_t *r, esp_tensor_id_t x, double alpha, double beta,
                           esp_tensor_id_t *y)
{
    return esp_i_make_affine(r->grad->builder, x, alpha, beta, r->grad->name, y, r->grad->diag);
}

static esp_status_t powc(const rule_t *r, esp_tensor_id_t x, double exponent, esp_tensor_id_t *y)
{
    return esp_i_make_elt(r->grad->builder, ESP_ELT_POWC, exponent, 0, 1, &x, r->grad->name, y,
                          r->grad->diag);
}

/* code(x, dy) with the attributes of the forward op */
static esp_status_t slope(rule_t *r, esp_eltwise_t code, esp_tensor_id_t x)
{
    const esp_tensor_id_t inputs[2] = {x, r->dy};
    return esp_i_make_elt(r->grad->builder, code, r->alpha, r->beta, 2, inputs, r->grad->name,
                          &r->dx[0], r->grad->diag);
}

/* dy * x */
static esp_status_t times(rule_t *r, esp_tensor_id_t x, int32_t input)
{
    return binary(r, ESP_ELT_MUL, r->dy, x, &r->dx[input]);
}

/* ---- arithmetic
 * ---------------------------------------------------------------------------------- */

static esp_status_t grad_sub(rule_t *r)
{
    r->dx[0] = r->dy;
    return r->need[1] ? unary(r, ESP_ELT_NEG, r->dy, &r->dx[1]) : ESP_OK;
}

static esp_status_t grad_mul(rule_t *r)
{
    if (r->need[0])
        ESP_TRY(times(r, r->b, 0));
    return r->need[1] ? times(r, r->a, 1) : ESP_OK;
}

/* y = a / b: da = dy / b, db = -da y; DIV_NO_NAN divides as the forward op does */
static esp_status_t grad_div(rule_t *r)
{
    esp_tensor_id_t share, product;
    ESP_TRY(binary(r, r->code, r->dy, r->b, &share));
    r->dx[0] = share;
    if (!r->need[1])
        return ESP_OK;
    ESP_TRY(binary(r, ESP_ELT_MUL, share, r->y, &product));
    return unary(r, ESP_ELT_NEG, product, &r->dx[1]);
}

static esp_status_t grad_affine(rule_t *r)
{
    return affine(r, r->dy, r->alpha, 0, &r->dx[0]);
}

/*
 * y = a ^ b: da = dy b a^(b-1), db = dy y log a. The logarithm is kept finite at a = 0, where y is
 * 0 as well; a negative base has no derivative to its exponent.
 */
static esp_status_t grad_pow(rule_t *r)
{
    esp_tensor_id_t t, u;
    if (r->need[0]) {
        ESP_TRY(affine(r, r->b, 1, -1, &t));
        ESP_TRY(binary(r, ESP_ELT_POW, r->a, t, &u));
        ESP_TRY(binary(r, ESP_ELT_MUL, u, r->b, &t));
        ESP_TRY(times(r, t, 0));
    }
    if (!r->need[1])
        return ESP_OK;
    const double least = 1e-37; /* a normal number in float32 */
    ESP_TRY(esp_i_make_elt(r->grad->builder, ESP_ELT_CLIP, least, INFINITY, 1, &r->a, r->grad->name,
                           &t, r->grad->diag));
    ESP_TRY(unary(r, ESP_ELT_LOG, t, &u));
    ESP_TRY(binary(r, ESP_ELT_MUL, r->y, u, &t));
    return times(r, t, 1);
}

static esp_status_t grad_powc(rule_t *r)
{
    esp_tensor_id_t t = r->a, u;
    if (r->alpha == 0 || r->alpha == 1)
        return affine(r, r->dy, r->alpha, 0, &r->dx[0]);
    if (r->alpha != 2)
        ESP_TRY(powc(r, r->a, r->alpha - 1, &t));
    ESP_TRY(times(r, t, 0));
    u = r->dx[0];
    return affine(r, u, r->alpha, 0, &r->dx[0]);
}

/* The second input gets dy where it is beyond the first, the first gets what is left. */
static esp_status_t choose(rule_t *r, esp_tensor_id_t beyond, esp_tensor_id_t within)
{
    esp_tensor_id_t gap, second;
    ESP_TRY(binary(r, ESP_ELT_SUB, beyond, within, &gap));
    ESP_TRY(binary(r, ESP_ELT_RELU_GRAD, gap, r->dy, &second));
    r->dx[1] = second;
    return r->need[0] ? binary(r, ESP_ELT_SUB, r->dy, second, &r->dx[0]) : ESP_OK;
}

static esp_status_t grad_max(rule_t *r)
{
    return choose(r, r->b, r->a);
}

static esp_status_t grad_min(rule_t *r)
{
    return choose(r, r->a, r->b);
}

/* y = a - q b with a whole q, which does not move: da = dy, db = -q dy = dy (y - a) / b */
static esp_status_t grad_mod(rule_t *r)
{
    esp_tensor_id_t t, u;
    r->dx[0] = r->dy;
    if (!r->need[1])
        return ESP_OK;
    ESP_TRY(binary(r, ESP_ELT_SUB, r->y, r->a, &t));
    ESP_TRY(binary(r, ESP_ELT_DIV, t, r->b, &u));
    return times(r, u, 1);
}

/* ---- functions of one input
 * ------------------------------------------------------------------------ */

static esp_status_t grad_neg(rule_t *r)
{
    return unary(r, ESP_ELT_NEG, r->dy, &r->dx[0]);
}

static esp_status_t grad_abs(rule_t *r)
{
    esp_tensor_id_t sign;
    ESP_TRY(unary(r, ESP_ELT_SIGN, r->a, &sign));
    return times(r, sign, 0);
}

static esp_status_t grad_exp(rule_t *r)
{
    return times(r, r->y, 0);
}

static esp_status_t grad_log(rule_t *r)
{
    return binary(r, ESP_ELT_DIV, r->dy, r->a, &r->dx[0]);
}

static esp_status_t grad_sqrt(rule_t *r)
{
    esp_tensor_id_t t;
    ESP_TRY(binary(r, ESP_ELT_DIV, r->dy, r->y, &t));
    return affine(r, t, 0.5, 0, &r->dx[0]);
}

/* dy * scale * y^exponent: reciprocal and rsqrt */
static esp_status_t power_of_y(rule_t *r, double scale, double exponent)
{
    esp_tensor_id_t t, u;
    ESP_TRY(powc(r, r->y, exponent, &t));
    ESP_TRY(binary(r, ESP_ELT_MUL, r->dy, t, &u));
    return affine(r, u, scale, 0, &r->dx[0]);
}

static esp_status_t grad_rsqrt(rule_t *r)
{
    return power_of_y(r, -0.5, 3);
}

static esp_status_t grad_reciprocal(rule_t *r)
{
    return power_of_y(r, -1, 2);
}

/* 2 / sqrt(pi) exp(-x^2) */
static esp_status_t grad_erf(rule_t *r)
{
    const double two_over_sqrt_pi = 1.12837916709551257390;
    esp_tensor_id_t t, u;
    ESP_TRY(binary(r, ESP_ELT_MUL, r->a, r->a, &t));
    ESP_TRY(unary(r, ESP_ELT_NEG, t, &u));
    ESP_TRY(unary(r, ESP_ELT_EXP, u, &t));
    ESP_TRY(affine(r, t, two_over_sqrt_pi, 0, &u));
    return times(r, u, 0);
}

static esp_status_t grad_sin(rule_t *r)
{
    esp_tensor_id_t t;
    ESP_TRY(unary(r, ESP_ELT_COS, r->a, &t));
    return times(r, t, 0);
}

static esp_status_t grad_cos(rule_t *r)
{
    esp_tensor_id_t t, u;
    ESP_TRY(unary(r, ESP_ELT_SIN, r->a, &t));
    ESP_TRY(unary(r, ESP_ELT_NEG, t, &u));
    return times(r, u, 0);
}

static esp_status_t grad_softplus(rule_t *r)
{
    esp_tensor_id_t t;
    ESP_TRY(unary(r, ESP_ELT_SIGMOID, r->a, &t));
    return times(r, t, 0);
}

static esp_status_t grad_relu(rule_t *r)
{
    return slope(r, ESP_ELT_RELU_GRAD, r->y);
}

static esp_status_t grad_leaky_relu(rule_t *r)
{
    return slope(r, ESP_ELT_LEAKY_RELU_GRAD, r->a);
}

static esp_status_t grad_clip(rule_t *r)
{
    return slope(r, ESP_ELT_CLIP_GRAD, r->a);
}

static esp_status_t grad_sigmoid(rule_t *r)
{
    return slope(r, ESP_ELT_SIGMOID_GRAD, r->y);
}

static esp_status_t grad_tanh(rule_t *r)
{
    return slope(r, ESP_ELT_TANH_GRAD, r->y);
}

static esp_status_t grad_silu(rule_t *r)
{
    return slope(r, ESP_ELT_SILU_GRAD, r->a);
}

static esp_status_t grad_gelu(rule_t *r)
{
    return slope(r, ESP_ELT_GELU_GRAD, r->a);
}

static esp_status_t grad_gelu_tanh(rule_t *r)
{
    return slope(r, ESP_ELT_GELU_TANH_GRAD, r->a);
}

static esp_status_t grad_hard_sigmoid(rule_t *r)
{
    return slope(r, ESP_ELT_HARD_SIGMOID_GRAD, r->a);
}

static esp_status_t grad_hard_swish(rule_t *r)
{
    return slope(r, ESP_ELT_HARD_SWISH_GRAD, r->a);
}

static esp_status_t grad_elu(rule_t *r)
{
    return slope(r, ESP_ELT_ELU_GRAD, r->a);
}

/* ---- the rest
 * ---------------------------------------------------------------------------------------- */

/* The _GRAD codes: linear in dy, input 1; a curved one would need a second derivative. */
static esp_status_t through_slope(rule_t *r)
{
    const esp_tensor_id_t inputs[2] = {r->a, r->dy};
    return r->need[1] ? esp_i_make_elt(r->grad->builder, r->code, r->alpha, r->beta, 2, inputs,
                                       r->grad->name, &r->dx[1], r->grad->diag)
                      : ESP_OK;
}

static esp_status_t through_curve(rule_t *r)
{
    if (r->need[0])
        return esp_i_fail(r->grad->diag, ESP_ERR_UNSUPPORTED,
                          "second derivatives of activation functions are not supported");
    return through_slope(r);
}

/* dy * condition, dy * not condition: masks have the shape of the condition, which is often small
 */
static esp_status_t grad_where(rule_t *r)
{
    esp_attr_t attr = {0};
    attr.cast.dtype = r->grad->op->out[0].dtype;
    for (int32_t input = 1; input < 3; input++) {
        esp_tensor_id_t condition = r->grad->in[0], mask;
        if (!r->need[input])
            continue;
        if (input == 2)
            ESP_TRY(unary(r, ESP_ELT_NOT, r->grad->in[0], &condition));
        ESP_TRY(esp_i_make(r->grad->builder, ESP_KIND_CAST, &attr, 1, &condition, r->grad->name,
                           &mask, r->grad->diag));
        ESP_TRY(times(r, mask, input));
    }
    return ESP_OK;
}

/* Codes without a rule are steps: nothing flows. ADD, of any number of inputs, is below. */
static esp_status_t (*const rules[ESP_ELT_COUNT])(rule_t *) = {
    [ESP_ELT_SUB] = grad_sub,
    [ESP_ELT_MUL] = grad_mul,
    [ESP_ELT_DIV] = grad_div,
    [ESP_ELT_DIV_NO_NAN] = grad_div,
    [ESP_ELT_AFFINE] = grad_affine,
    [ESP_ELT_POW] = grad_pow,
    [ESP_ELT_POWC] = grad_powc,
    [ESP_ELT_MAX] = grad_max,
    [ESP_ELT_MIN] = grad_min,
    [ESP_ELT_MOD] = grad_mod,
    [ESP_ELT_NEG] = grad_neg,
    [ESP_ELT_ABS] = grad_abs,
    [ESP_ELT_EXP] = grad_exp,
    [ESP_ELT_LOG] = grad_log,
    [ESP_ELT_SQRT] = grad_sqrt,
    [ESP_ELT_RSQRT] = grad_rsqrt,
    [ESP_ELT_RECIPROCAL] = grad_reciprocal,
    [ESP_ELT_ERF] = grad_erf,
    [ESP_ELT_SIN] = grad_sin,
    [ESP_ELT_COS] = grad_cos,
    [ESP_ELT_RELU] = grad_relu,
    [ESP_ELT_RELU_GRAD] = through_slope,
    [ESP_ELT_LEAKY_RELU] = grad_leaky_relu,
    [ESP_ELT_LEAKY_RELU_GRAD] = through_slope,
    [ESP_ELT_CLIP] = grad_clip,
    [ESP_ELT_CLIP_GRAD] = through_slope,
    [ESP_ELT_SIGMOID] = grad_sigmoid,
    [ESP_ELT_SIGMOID_GRAD] = through_curve,
    [ESP_ELT_TANH] = grad_tanh,
    [ESP_ELT_TANH_GRAD] = through_curve,
    [ESP_ELT_SILU] = grad_silu,
    [ESP_ELT_SILU_GRAD] = through_curve,
    [ESP_ELT_GELU] = grad_gelu,
    [ESP_ELT_GELU_GRAD] = through_curve,
    [ESP_ELT_GELU_TANH] = grad_gelu_tanh,
    [ESP_ELT_GELU_TANH_GRAD] = through_curve,
    [ESP_ELT_HARD_SIGMOID] = grad_hard_sigmoid,
    [ESP_ELT_HARD_SIGMOID_GRAD] = through_slope,
    [ESP_ELT_HARD_SWISH] = grad_hard_swish,
    [ESP_ELT_HARD_SWISH_GRAD] = through_curve,
    [ESP_ELT_SOFTPLUS] = grad_softplus,
    [ESP_ELT_ELU] = grad_elu,
    [ESP_ELT_ELU_GRAD] = through_curve,
    [ESP_ELT_WHERE] = grad_where,
};

static esp_status_t sum_to_input(const esp_i_grad_t *grad, esp_tensor_id_t g, int32_t input)
{
    const esp_i_shape_t *x = &grad->op->in[input];
    return esp_i_make_sum_to(grad->builder, g, x->rank, x->dims, grad->name, &grad->dx[input],
                             grad->diag);
}

esp_status_t esp_i_elt_gradient(const esp_i_grad_t *grad)
{
    const esp_attr_t *attr = grad->op->attr;
    int32_t n = grad->op->n_in;
    if (attr->eltwise.code == ESP_ELT_ADD) {
        for (int32_t i = 0; i < n; i++)
            if (grad->need[i])
                ESP_TRY(sum_to_input(grad, grad->dy[0], i));
        return ESP_OK;
    }
    if (!rules[attr->eltwise.code])
        return ESP_OK;
    rule_t rule = {.grad = grad,
                   .a = grad->in[0],
                   .b = n > 1 ? grad->in[1] : ESP_NONE,
                   .y = grad->out[0],
                   .dy = grad->dy[0],
                   .alpha = attr->eltwise.alpha,
                   .beta = attr->eltwise.beta,
                   .need = grad->need,
                   .dx = {ESP_NONE, ESP_NONE, ESP_NONE},
                   .code = attr->eltwise.code};
    ESP_TRY(rules[attr->eltwise.code](&rule));
    for (int32_t i = 0; i < n; i++)
        if (grad->need[i] && rule.dx[i] != ESP_NONE)
            ESP_TRY(sum_to_input(grad, rule.dx[i], i));
    return ESP_OK;
}
