/*
 * Patterns of fused kinds that exporters write out: activations, softmax and its loss,
 * normalisation of rows. Numbers are in attributes by now: see pattern_simple.c.
 */
#include "graph/rewrite.h"

#include <math.h>
#include <string.h>

static esp_status_t emit_elt(esp_i_rewrite_t *rewrite, esp_eltwise_t code, esp_tensor_id_t x,
                             esp_tensor_id_t *out)
{
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    attr.eltwise.code = code;
    return esp_i_rewrite_emit(rewrite, ESP_KIND_ELTWISE, &attr, 1, &x, out);
}

static bool is_pair(const esp_i_rewrite_t *rewrite, esp_op_id_t op, esp_eltwise_t code)
{
    return esp_i_rewrite_is_elt(rewrite, op, code) && esp_i_rewrite_n_inputs(rewrite, op) == 2;
}

/* ---- activations -------------------------------------------------------------------------- */

/* x * sigmoid(x) */
esp_status_t esp_i_pattern_silu(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    if (!is_pair(rewrite, rewrite->root, ESP_ELT_MUL))
        return ESP_OK;
    for (int32_t i = 0; i < 2; i++) {
        esp_tensor_id_t x = esp_i_rewrite_input(rewrite, rewrite->root, i);
        esp_op_id_t sigmoid = esp_i_rewrite_made_by_elt(
            rewrite, esp_i_rewrite_input(rewrite, rewrite->root, 1 - i), ESP_ELT_SIGMOID);
        if (sigmoid == ESP_NONE || esp_i_rewrite_input(rewrite, sigmoid, 0) != x)
            continue;
        esp_i_rewrite_inside(rewrite, sigmoid);
        if (esp_i_rewrite_closed(rewrite))
            return emit_elt(rewrite, ESP_ELT_SILU, x, out);
    }
    return ESP_OK;
}

/* The product that the root is, up to a factor; ESP_NONE if it is none. */
static esp_op_id_t product_of(esp_i_rewrite_t *rewrite, double *factor)
{
    esp_op_id_t root = rewrite->root;
    const esp_attr_t *attr = &rewrite->graph->op_attr[root];
    *factor = 1;
    if (esp_i_rewrite_is_elt(rewrite, root, ESP_ELT_AFFINE) && attr->eltwise.beta == 0) {
        esp_tensor_id_t rest =
            esp_i_rewrite_unscale(rewrite, esp_i_rewrite_input(rewrite, root, 0), factor);
        *factor *= attr->eltwise.alpha;
        root = esp_i_rewrite_made_by_elt(rewrite, rest, ESP_ELT_MUL);
        if (root != ESP_NONE)
            esp_i_rewrite_inside(rewrite, root);
    }
    return is_pair(rewrite, root, ESP_ELT_MUL) ? root : ESP_NONE;
}

/* gate = half (1 + f(u)): returns u, notes what it goes through. */
static esp_tensor_id_t gate_of(esp_i_rewrite_t *rewrite, esp_tensor_id_t gate, esp_eltwise_t f,
                               double *half)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t sum = esp_i_rewrite_made_by_elt(rewrite, gate, ESP_ELT_AFFINE);
    if (sum == ESP_NONE || graph->op_attr[sum].eltwise.alpha != graph->op_attr[sum].eltwise.beta)
        return ESP_NONE;
    esp_op_id_t inner = esp_i_rewrite_made_by_elt(rewrite, esp_i_rewrite_input(rewrite, sum, 0), f);
    if (inner == ESP_NONE)
        return ESP_NONE;
    *half = graph->op_attr[sum].eltwise.alpha;
    esp_i_rewrite_inside(rewrite, sum);
    esp_i_rewrite_inside(rewrite, inner);
    return esp_i_rewrite_input(rewrite, inner, 0);
}

/* The root as x / 2 (1 + f(u)), wherever its factors are. Returns x, and u. */
static esp_tensor_id_t gated(esp_i_rewrite_t *rewrite, esp_eltwise_t f, esp_tensor_id_t *u)
{
    double factor, scale[2], half;
    esp_op_id_t product = product_of(rewrite, &factor);
    int32_t noted = rewrite->n_inside;
    for (int32_t i = 0; product != ESP_NONE && i < 2; i++) {
        esp_tensor_id_t x =
            esp_i_rewrite_unscale(rewrite, esp_i_rewrite_input(rewrite, product, i), &scale[0]);
        esp_tensor_id_t gate =
            esp_i_rewrite_unscale(rewrite, esp_i_rewrite_input(rewrite, product, 1 - i), &scale[1]);
        *u = gate_of(rewrite, gate, f, &half);
        if (*u != ESP_NONE && esp_i_rewrite_near(factor * scale[0] * scale[1] * half, 0.5))
            return x;
        rewrite->n_inside = noted;
    }
    return ESP_NONE;
}

/* x / 2 (1 + erf(x / sqrt 2)) */
esp_status_t esp_i_pattern_gelu(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    double scale;
    esp_tensor_id_t u, x = gated(rewrite, ESP_ELT_ERF, &u);
    if (x == ESP_NONE || esp_i_rewrite_unscale(rewrite, u, &scale) != x ||
        !esp_i_rewrite_near(scale, 0.70710678118654752) || !esp_i_rewrite_closed(rewrite))
        return ESP_OK;
    return emit_elt(rewrite, ESP_ELT_GELU, x, out);
}

/* Whether tensor = x^n, n 2 or 3, written as a power or as products. */
static bool is_power(esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor, esp_tensor_id_t x, int n)
{
    int32_t noted = rewrite->n_inside;
    esp_op_id_t op = esp_i_rewrite_made_by_elt(rewrite, tensor, ESP_ELT_POWC);
    if (n == 1)
        return tensor == x;
    if (op != ESP_NONE) {
        esp_i_rewrite_inside(rewrite, op);
        return rewrite->graph->op_attr[op].eltwise.alpha == n &&
               esp_i_rewrite_input(rewrite, op, 0) == x;
    }
    op = esp_i_rewrite_made_by_elt(rewrite, tensor, ESP_ELT_MUL);
    for (int32_t i = 0; op != ESP_NONE && i < 2; i++) {
        esp_i_rewrite_inside(rewrite, op);
        if (esp_i_rewrite_input(rewrite, op, i) == x &&
            is_power(rewrite, esp_i_rewrite_input(rewrite, op, 1 - i), x, n - 1))
            return true;
        rewrite->n_inside = noted;
    }
    return false;
}

/* x + 0.044715 x^3, also as x (1 + 0.044715 x^2) */
static bool is_cubic(esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor, esp_tensor_id_t x)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t op = graph->tensor_producer[tensor];
    int32_t noted = rewrite->n_inside;
    for (int32_t i = 0;
         i < 2 && (is_pair(rewrite, op, ESP_ELT_ADD) || is_pair(rewrite, op, ESP_ELT_MUL)); i++) {
        bool sum = is_pair(rewrite, op, ESP_ELT_ADD);
        esp_tensor_id_t other = esp_i_rewrite_input(rewrite, op, 1 - i);
        double scale = 0;
        rewrite->n_inside = noted;
        esp_i_rewrite_inside(rewrite, op);
        if (esp_i_rewrite_input(rewrite, op, i) != x)
            continue;
        esp_op_id_t square = esp_i_rewrite_made_by_elt(rewrite, other, ESP_ELT_AFFINE);
        if (sum) {
            other = esp_i_rewrite_unscale(rewrite, other, &scale);
        } else if (square != ESP_NONE && graph->op_attr[square].eltwise.beta == 1) {
            scale = graph->op_attr[square].eltwise.alpha;
            other = esp_i_rewrite_input(rewrite, square, 0);
            esp_i_rewrite_inside(rewrite, square);
        }
        if (esp_i_rewrite_near(scale, 0.044715) && is_power(rewrite, other, x, sum ? 3 : 2))
            return true;
    }
    return false;
}

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
esp_status_t esp_i_pattern_gelu_tanh(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    double scale;
    esp_tensor_id_t u, x = gated(rewrite, ESP_ELT_TANH, &u);
    if (x == ESP_NONE)
        return ESP_OK;
    u = esp_i_rewrite_unscale(rewrite, u, &scale);
    if (!esp_i_rewrite_near(scale, 0.79788456080286536) || !is_cubic(rewrite, u, x) ||
        !esp_i_rewrite_closed(rewrite))
        return ESP_OK;
    return emit_elt(rewrite, ESP_ELT_GELU_TANH, x, out);
}

/* ---- softmax ------------------------------------------------------------------------------ */

/* log(softmax(x)) */
esp_status_t esp_i_pattern_log_softmax(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    if (!esp_i_rewrite_is_elt(rewrite, rewrite->root, ESP_ELT_LOG))
        return ESP_OK;
    esp_op_id_t softmax = esp_i_rewrite_made_by(
        rewrite, esp_i_rewrite_input(rewrite, rewrite->root, 0), ESP_KIND_SOFTMAX);
    if (softmax == ESP_NONE || rewrite->graph->op_attr[softmax].axis.log)
        return ESP_OK;
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, softmax, 0);
    esp_attr_t attr = rewrite->graph->op_attr[softmax];
    attr.axis.log = 1;
    esp_i_rewrite_inside(rewrite, softmax);
    if (!esp_i_rewrite_closed(rewrite))
        return ESP_OK;
    return esp_i_rewrite_emit(rewrite, ESP_KIND_SOFTMAX, &attr, 1, &x, out);
}

/* The cross-entropy of logarithms of probabilities is that of what they were made from. */
esp_status_t esp_i_pattern_xent(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    if (graph->op_kind[rewrite->root] != ESP_KIND_XENT)
        return ESP_OK;
    esp_tensor_id_t inputs[2] = {esp_i_rewrite_input(rewrite, rewrite->root, 0),
                                 esp_i_rewrite_input(rewrite, rewrite->root, 1)};
    esp_op_id_t softmax = esp_i_rewrite_made_by(rewrite, inputs[0], ESP_KIND_SOFTMAX);
    if (softmax == ESP_NONE || !graph->op_attr[softmax].axis.log ||
        graph->op_attr[softmax].axis.axis != graph->tensor_rank[inputs[0]] - 1)
        return ESP_OK;
    inputs[0] = esp_i_rewrite_input(rewrite, softmax, 0);
    return esp_i_rewrite_emit(rewrite, ESP_KIND_XENT, &graph->op_attr[rewrite->root], 2, inputs,
                              out);
}

/* ---- normalisation of rows ---------------------------------------------------------------- */

typedef struct row_norm {
    esp_tensor_id_t x;
    double epsilon;
    uint32_t axes;
    bool rms;
} row_norm_t;

/* tensor = alpha * sum of x over axes (kept) + beta, alpha = 1 / number of elements of a row. */
static esp_op_id_t mean_of(esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor, uint32_t *axes,
                           double *beta)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t affine = esp_i_rewrite_made_by_elt(rewrite, tensor, ESP_ELT_AFFINE);
    if (affine == ESP_NONE)
        return ESP_NONE;
    esp_op_id_t sum =
        esp_i_rewrite_made_by(rewrite, esp_i_rewrite_input(rewrite, affine, 0), ESP_KIND_REDUCE);
    if (sum == ESP_NONE || !graph->op_attr[sum].reduce.keep)
        return ESP_NONE;
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, sum, 0);
    double n = (double)graph->tensor_elements[x] /
               (double)esp_i_max_i64(graph->tensor_elements[esp_i_rewrite_output(rewrite, sum)], 1);
    if (!esp_i_rewrite_near(graph->op_attr[affine].eltwise.alpha * n, 1))
        return ESP_NONE;
    *axes = graph->op_attr[sum].reduce.axes;
    *beta = graph->op_attr[affine].eltwise.beta;
    esp_i_rewrite_inside(rewrite, affine);
    esp_i_rewrite_inside(rewrite, sum);
    return sum;
}

/* The root of what, if the tensor is its square root (1) or the reciprocal of that (-1)? */
static esp_tensor_id_t root_of(esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor, int sign)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t op = esp_i_rewrite_made_by(rewrite, tensor, ESP_KIND_ELTWISE);
    if (op == ESP_NONE)
        return ESP_NONE;
    esp_eltwise_t code = graph->op_attr[op].eltwise.code;
    double power = code == ESP_ELT_SQRT    ? 0.5
                   : code == ESP_ELT_RSQRT ? -0.5
                   : code == ESP_ELT_POWC  ? graph->op_attr[op].eltwise.alpha
                                           : 0;
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, op, 0);
    if (code == ESP_ELT_RECIPROCAL && sign < 0) {
        esp_i_rewrite_inside(rewrite, op);
        return root_of(rewrite, x, 1);
    }
    if (power != 0.5 * sign)
        return ESP_NONE;
    esp_i_rewrite_inside(rewrite, op);
    return x;
}

/* Whether `sum` adds up the squares of `c`. */
static bool sums_squares(esp_i_rewrite_t *rewrite, esp_op_id_t sum, esp_tensor_id_t c)
{
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, sum, 0);
    esp_reduce_t code = rewrite->graph->op_attr[sum].reduce.code;
    return (code == ESP_REDUCE_SUMSQ && x == c) ||
           (code == ESP_REDUCE_SUM && is_power(rewrite, x, c, 2));
}

/* c / sqrt(mean(c^2) + epsilon), c = x - mean(x) or x itself. `c` and `deviation` are candidates.
 */
static bool normalised(esp_i_rewrite_t *rewrite, esp_tensor_id_t c, esp_tensor_id_t deviation,
                       int sign, row_norm_t *norm)
{
    uint32_t axes;
    double zero;
    esp_tensor_id_t variance = root_of(rewrite, deviation, sign);
    if (variance == ESP_NONE)
        return false;
    esp_op_id_t sum = mean_of(rewrite, variance, &norm->axes, &norm->epsilon);
    if (sum == ESP_NONE || !sums_squares(rewrite, sum, c) || norm->epsilon < 0)
        return false;
    norm->x = c;
    norm->rms = true;
    esp_op_id_t difference = esp_i_rewrite_made_by_elt(rewrite, c, ESP_ELT_SUB);
    int32_t noted = rewrite->n_inside;
    if (difference == ESP_NONE)
        return true;
    esp_op_id_t mean = mean_of(rewrite, esp_i_rewrite_input(rewrite, difference, 1), &axes, &zero);
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, difference, 0);
    if (mean != ESP_NONE && axes == norm->axes && zero == 0 &&
        rewrite->graph->op_attr[mean].reduce.code == ESP_REDUCE_SUM &&
        esp_i_rewrite_input(rewrite, mean, 0) == x) {
        norm->x = x;
        norm->rms = false;
        esp_i_rewrite_inside(rewrite, difference);
    } else {
        rewrite->n_inside = noted;
    }
    return true;
}

/* The tensor is the normalised x: a quotient, or a product with the reciprocal. */
static bool is_normalised(esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor, row_norm_t *norm)
{
    int32_t noted = rewrite->n_inside;
    esp_op_id_t op = esp_i_rewrite_made_by(rewrite, tensor, ESP_KIND_ELTWISE);
    bool quotient = is_pair(rewrite, op, ESP_ELT_DIV);
    if (!quotient && !is_pair(rewrite, op, ESP_ELT_MUL))
        return false;
    for (int32_t i = 0; i < (quotient ? 1 : 2); i++) {
        rewrite->n_inside = noted;
        esp_i_rewrite_inside(rewrite, op);
        if (normalised(rewrite, esp_i_rewrite_input(rewrite, op, i),
                       esp_i_rewrite_input(rewrite, op, 1 - i), quotient ? 1 : -1, norm))
            return true;
    }
    rewrite->n_inside = noted;
    return false;
}

/* The first axis if the set is the trailing axes of x, ESP_NONE otherwise. */
static int32_t trailing(const esp_graph_t *graph, const row_norm_t *norm)
{
    int32_t axis = 0, rank = graph->tensor_rank[norm->x];
    while (axis < rank && (norm->axes >> axis & 1) == 0)
        axis++;
    return axis < rank && norm->axes == ((1U << rank) - 1) - ((1U << axis) - 1) ? axis : ESP_NONE;
}

/* Whether a tensor has the extents of the axes of x from `axis`. */
static bool is_row(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_tensor_id_t x,
                   int32_t axis)
{
    int32_t rank = graph->tensor_rank[x] - axis;
    return graph->tensor_rank[tensor] == rank &&
           graph->tensor_dtype[tensor] == graph->tensor_dtype[x] &&
           memcmp(graph->tensor_dims[tensor], graph->tensor_dims[x] + axis,
                  (size_t)rank * sizeof(int64_t)) == 0;
}

/* `product` = normalised x * gamma, and beta (ESP_NONE: none) is added to it by the root. */
static esp_status_t scaled(esp_i_rewrite_t *rewrite, esp_op_id_t product, esp_tensor_id_t beta,
                           esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    int32_t noted = rewrite->n_inside;
    row_norm_t norm;
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    for (int32_t i = 0; i < 2 && *out == ESP_NONE; i++) {
        esp_tensor_id_t gamma = esp_i_rewrite_input(rewrite, product, i);
        rewrite->n_inside = noted;
        if (!is_normalised(rewrite, esp_i_rewrite_input(rewrite, product, 1 - i), &norm))
            continue;
        int32_t axis = trailing(graph, &norm);
        if (axis == ESP_NONE || !is_row(graph, gamma, norm.x, axis) ||
            (beta != ESP_NONE && !is_row(graph, beta, norm.x, axis)) ||
            (norm.rms && beta != ESP_NONE) || !esp_i_rewrite_closed(rewrite))
            continue;
        attr.norm.axis = axis;
        attr.norm.epsilon = norm.epsilon;
        attr.norm.rms = norm.rms;
        const esp_tensor_id_t inputs[3] = {norm.x, gamma, beta};
        ESP_TRY(esp_i_rewrite_emit(rewrite, ESP_KIND_LAYERNORM, &attr, beta != ESP_NONE ? 3 : 2,
                                   inputs, out));
    }
    return ESP_OK;
}

/* gamma (x - mean) / sqrt(variance + epsilon) + beta, and the same without mean and beta. */
esp_status_t esp_i_pattern_layernorm(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    esp_op_id_t root = rewrite->root;
    if (is_pair(rewrite, root, ESP_ELT_MUL))
        return scaled(rewrite, root, ESP_NONE, out);
    if (!is_pair(rewrite, root, ESP_ELT_ADD))
        return ESP_OK;
    for (int32_t i = 0; i < 2 && *out == ESP_NONE; i++) {
        esp_op_id_t product =
            esp_i_rewrite_made_by_elt(rewrite, esp_i_rewrite_input(rewrite, root, i), ESP_ELT_MUL);
        rewrite->n_inside = 0;
        if (product == ESP_NONE)
            continue;
        esp_i_rewrite_inside(rewrite, product);
        ESP_TRY(scaled(rewrite, product, esp_i_rewrite_input(rewrite, root, 1 - i), out));
    }
    return ESP_OK;
}
