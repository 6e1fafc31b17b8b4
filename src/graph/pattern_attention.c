/*
 * Attention as exporters write it: two contractions with a softmax in between, and what may lie on
 * the way: factors on q, k or the scores, a mask that is added or chosen by, dropout. Transposes
 * have gone into the labels of the contractions by now, so that any order of axes is recognised.
 */
#include "graph/rewrite.h"

#include <string.h>

enum { Q, K, V, MASK, INPUTS };

typedef struct match {
    esp_attr_t attr;
    esp_tensor_id_t in[INPUTS], like[INPUTS]; /* like: what has the shape that is read */
    esp_tensor_id_t weights;                  /* any tensor of the shape of the scores */
    int32_t rank;                             /* of the scores */
} match_t;

/* Axes of the scores are called 'a', 'b', ..; the depth and the width come after them. */
static int8_t name_of_axis(int32_t axis)
{
    return (int8_t)('a' + axis);
}

/* Labels of a contraction's operand in those names. `known` are labels of the scores' axes. */
static void rename_labels(const int8_t *list, const int8_t *known, int32_t rank, int8_t other,
                          int8_t *out)
{
    for (int32_t i = 0; i < ESP_MAX_RANK; i++) {
        int8_t name = list[i] > 0 ? other : 0;
        for (int32_t axis = 0; axis < rank; axis++)
            if (list[i] > 0 && list[i] == known[axis])
                name = name_of_axis(axis);
        out[i] = name;
    }
}

static bool has_label(const int8_t *list, int8_t label)
{
    for (int32_t i = 0; i < ESP_MAX_RANK; i++)
        if (list[i] == label)
            return true;
    return false;
}

/* ---- scores ------------------------------------------------------------------------------- */

/* scale q k */
static bool match_product(esp_i_rewrite_t *rewrite, match_t *match, esp_tensor_id_t tensor)
{
    const esp_graph_t *graph = rewrite->graph;
    double scale;
    tensor = esp_i_rewrite_unscale(rewrite, tensor, &scale);
    esp_op_id_t op = esp_i_rewrite_made_by(rewrite, tensor, ESP_KIND_CONTRACT);
    if (op == ESP_NONE || !esp_i_rewrite_same_shape(rewrite, tensor, match->weights))
        return false;
    const esp_attr_t *attr = &graph->op_attr[op];
    const int8_t *known = attr->contract.y, depth = name_of_axis(match->rank);
    const bool first = has_label(attr->contract.a, known[match->rank - 1]);
    esp_i_rewrite_inside(rewrite, op);
    match->attr.attention.scale = scale;
    rename_labels(first ? attr->contract.b : attr->contract.a, known, match->rank, depth,
                  match->attr.attention.q);
    rename_labels(first ? attr->contract.a : attr->contract.b, known, match->rank, depth,
                  match->attr.attention.k);
    match->in[Q] = esp_i_rewrite_input(rewrite, op, first ? 1 : 0);
    match->in[K] = esp_i_rewrite_input(rewrite, op, first ? 0 : 1);
    return true;
}

/* scale q k + mask, or where(mask, scale q k, fill), or the two the other way round */
static bool match_scores(esp_i_rewrite_t *rewrite, match_t *match, esp_tensor_id_t tensor)
{
    const int32_t noted = rewrite->n_inside;
    esp_op_id_t op = esp_i_rewrite_made_by(rewrite, tensor, ESP_KIND_ELTWISE);
    const bool sum =
        esp_i_rewrite_is_elt(rewrite, op, ESP_ELT_ADD) && esp_i_rewrite_n_inputs(rewrite, op) == 2;
    const bool choice = esp_i_rewrite_is_elt(rewrite, op, ESP_ELT_WHERE);
    if (!sum && !choice)
        return match_product(rewrite, match, tensor);
    for (int32_t i = 0; i < 2; i++) {
        esp_tensor_id_t scores = esp_i_rewrite_input(rewrite, op, choice ? 1 + i : i);
        esp_tensor_id_t other = esp_i_rewrite_input(rewrite, op, choice ? 2 - i : 1 - i);
        rewrite->n_inside = noted;
        esp_i_rewrite_inside(rewrite, op);
        if (choice && !esp_i_rewrite_scalar(rewrite, other, &match->attr.attention.fill))
            continue;
        match->attr.attention.hidden = choice && i == 1;
        match->in[MASK] = choice ? esp_i_rewrite_input(rewrite, op, 0) : other;
        if (match_product(rewrite, match, scores))
            return true;
    }
    return false;
}

/* dropout(softmax(scores)) */
static bool match_weights(esp_i_rewrite_t *rewrite, match_t *match)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_tensor_id_t tensor = match->weights;
    esp_op_id_t dropout = esp_i_rewrite_made_by(rewrite, tensor, ESP_KIND_DROPOUT);
    if (dropout != ESP_NONE) {
        match->attr.attention.p = graph->op_attr[dropout].dropout.p;
        match->attr.attention.stream = graph->op_attr[dropout].dropout.stream;
        esp_i_rewrite_inside(rewrite, dropout);
        tensor = esp_i_rewrite_input(rewrite, dropout, 0);
    }
    esp_op_id_t softmax = esp_i_rewrite_made_by(rewrite, tensor, ESP_KIND_SOFTMAX);
    if (softmax == ESP_NONE || graph->op_attr[softmax].axis.log ||
        graph->op_attr[softmax].axis.axis != match->rank - 1)
        return false;
    esp_i_rewrite_inside(rewrite, softmax);
    return match_scores(rewrite, match, esp_i_rewrite_input(rewrite, softmax, 0));
}

/* ---- the whole ---------------------------------------------------------------------------- */

/* The factor of q or k, which may be before a reshape, goes to the others: if nobody else reads
 * what has it. */
static void strip_factor(esp_i_rewrite_t *rewrite, match_t *match, int32_t input)
{
    const int32_t noted = rewrite->n_inside;
    esp_tensor_id_t x = match->in[input];
    esp_op_id_t reshape = esp_i_rewrite_made_by(rewrite, x, ESP_KIND_RESHAPE);
    double scale;
    if (reshape != ESP_NONE) {
        esp_i_rewrite_inside(rewrite, reshape);
        x = esp_i_rewrite_input(rewrite, reshape, 0);
    }
    esp_tensor_id_t bare = esp_i_rewrite_unscale(rewrite, x, &scale);
    if (bare == x || !esp_i_rewrite_closed(rewrite)) {
        rewrite->n_inside = noted;
        return;
    }
    match->in[input] = bare;
    match->attr.attention.scale *= scale;
}

/* What infer of the kind says: labels, extents and types are those of an attention. */
static bool is_attention(const esp_graph_t *graph, const match_t *match)
{
    esp_i_shape_t in[INPUTS], out[3];
    for (int32_t i = 0; i < INPUTS; i++) {
        const esp_tensor_id_t like = match->like[i];
        in[i].rank = -1;
        if (like == ESP_NONE)
            continue;
        in[i].dtype = (esp_dtype_t)graph->tensor_dtype[like];
        in[i].rank = graph->tensor_rank[like];
        memcpy(in[i].dims, graph->tensor_dims[like], sizeof in[i].dims);
    }
    const esp_i_op_t op = {.kind = ESP_KIND_ATTENTION,
                           .attr = &match->attr,
                           .n_in = INPUTS,
                           .n_out = 3,
                           .in = in,
                           .out = out};
    return esp_i_kind(ESP_KIND_ATTENTION)->infer(&op, NULL) == ESP_OK;
}

/* The root contracts weights, its operand `side`, with v. */
static bool match_side(esp_i_rewrite_t *rewrite, int32_t side, match_t *match)
{
    const esp_graph_t *graph = rewrite->graph;
    const esp_attr_t *attr = &graph->op_attr[rewrite->root];
    const int8_t *known = side == 0 ? attr->contract.a : attr->contract.b;
    *match = (match_t){.weights = esp_i_rewrite_input(rewrite, rewrite->root, side),
                       .in = {ESP_NONE, ESP_NONE, ESP_NONE, ESP_NONE}};
    memset(&match->attr, 0, sizeof match->attr);
    match->in[V] = esp_i_rewrite_input(rewrite, rewrite->root, 1 - side);
    match->rank = graph->tensor_rank[match->weights];
    if (match->rank < 2)
        return false;
    const int8_t width = name_of_axis(match->rank + 1);
    rename_labels(known, known, match->rank, 0, match->attr.attention.s);
    rename_labels(side == 0 ? attr->contract.b : attr->contract.a, known, match->rank, width,
                  match->attr.attention.v);
    rename_labels(attr->contract.y, known, match->rank, width, match->attr.attention.y);
    if (!match_weights(rewrite, match))
        return false;
    memcpy(match->like, match->in, sizeof match->like);
    return is_attention(graph, match) && esp_i_rewrite_closed(rewrite);
}

/* dropout(softmax(scale q k + mask)) v */
esp_status_t esp_i_pattern_attention(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    match_t match;
    if (rewrite->graph->op_kind[rewrite->root] != ESP_KIND_CONTRACT)
        return ESP_OK;
    for (int32_t side = 0; side < 2; side++) {
        rewrite->n_inside = 0;
        if (!match_side(rewrite, side, &match))
            continue;
        strip_factor(rewrite, &match, Q);
        strip_factor(rewrite, &match, K);
        return esp_i_rewrite_emit_as(rewrite, ESP_KIND_ATTENTION, &match.attr,
                                     match.in[MASK] != ESP_NONE ? 4 : 3, match.in, match.like, out);
    }
    return ESP_OK;
}
