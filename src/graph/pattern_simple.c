/* Patterns of one or two ops: identities, and operands that are numbers. */
#include "graph/rewrite.h"

#include <math.h>
#include <string.h>

/* ---- identities --------------------------------------------------------------------------- */

static bool is_still(const esp_graph_t *graph, esp_op_id_t op, esp_tensor_id_t x)
{
    const esp_attr_t *attr = &graph->op_attr[op];
    bool still = true;
    if (graph->op_kind[op] == ESP_KIND_TRANSPOSE) {
        for (int32_t i = 0; i < graph->tensor_rank[x]; i++)
            still = still && attr->transpose.perm[i] == i;
        return still;
    }
    if (graph->op_kind[op] == ESP_KIND_SLICE) {
        for (int32_t i = 0; i < graph->tensor_rank[x]; i++)
            still = still && attr->slice.start[i] == 0 &&
                    (attr->slice.step[i] == 1 || graph->tensor_dims[x][i] <= 1);
        return still;
    }
    if (graph->op_kind[op] == ESP_KIND_DROPOUT)
        return attr->dropout.p == 0;
    if (graph->op_kind[op] != ESP_KIND_ELTWISE)
        return graph->op_kind[op] == ESP_KIND_RESHAPE || graph->op_kind[op] == ESP_KIND_EXPAND ||
               graph->op_kind[op] == ESP_KIND_CAST || graph->op_kind[op] == ESP_KIND_PAD ||
               graph->op_kind[op] == ESP_KIND_CONCAT;
    if (attr->eltwise.code == ESP_ELT_AFFINE)
        return attr->eltwise.alpha == 1 && attr->eltwise.beta == 0;
    return attr->eltwise.code == ESP_ELT_ADD ||
           (attr->eltwise.code == ESP_ELT_POWC && attr->eltwise.alpha == 1);
}

/* One input, and an output of its shape and type that has its elements at their places. */
esp_status_t esp_i_pattern_identity(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    esp_op_id_t op = rewrite->root;
    if (esp_i_rewrite_n_inputs(rewrite, op) != 1)
        return ESP_OK;
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, op, 0);
    if (!esp_i_rewrite_same_shape(rewrite, x, esp_i_rewrite_output(rewrite, op)) ||
        !is_still(rewrite->graph, op, x))
        return ESP_OK;
    return esp_i_rewrite_alias(rewrite, x, out);
}

/* ---- numbers ------------------------------------------------------------------------------ */

/* code(x, value), or code(value, x) if `first`, as one element-wise op on x; false: there is none.
 */
static bool with_number(esp_eltwise_t code, bool first, double value, esp_attr_t *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->eltwise.code = code == ESP_ELT_POW ? ESP_ELT_POWC : ESP_ELT_AFFINE;
    attr->eltwise.alpha = 1;
    if (code == ESP_ELT_ADD)
        attr->eltwise.beta = value;
    else if (code == ESP_ELT_SUB)
        attr->eltwise.beta = first ? value : -value;
    else if (code == ESP_ELT_MUL)
        attr->eltwise.alpha = value;
    else if (code == ESP_ELT_DIV && !first && value != 0)
        attr->eltwise.alpha = 1 / value;
    else if (code == ESP_ELT_POW && !first)
        attr->eltwise.alpha = value;
    else
        return false;
    if (code == ESP_ELT_SUB && first)
        attr->eltwise.alpha = -1;
    return isfinite(attr->eltwise.alpha) && isfinite(attr->eltwise.beta);
}

/* An operand that is one number goes into the attributes. */
esp_status_t esp_i_pattern_scalar_operand(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t op = rewrite->root;
    esp_tensor_id_t y = esp_i_rewrite_output(rewrite, op);
    if (graph->op_kind[op] != ESP_KIND_ELTWISE || esp_i_rewrite_n_inputs(rewrite, op) != 2 ||
        !esp_dtype_is_float((esp_dtype_t)graph->tensor_dtype[y]))
        return ESP_OK;
    for (int32_t i = 0; i < 2; i++) {
        esp_tensor_id_t x = esp_i_rewrite_input(rewrite, op, 1 - i);
        esp_attr_t attr;
        double value;
        if (esp_i_rewrite_same_shape(rewrite, x, y) &&
            esp_i_rewrite_scalar(rewrite, esp_i_rewrite_input(rewrite, op, i), &value) &&
            with_number(graph->op_attr[op].eltwise.code, i == 0, value, &attr))
            return esp_i_rewrite_emit(rewrite, ESP_KIND_ELTWISE, &attr, 1, &x, out);
    }
    return ESP_OK;
}

/* c (a x + b) + d = (c a) x + (c b + d) */
esp_status_t esp_i_pattern_affine_chain(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    if (!esp_i_rewrite_is_elt(rewrite, rewrite->root, ESP_ELT_AFFINE))
        return ESP_OK;
    esp_tensor_id_t middle = esp_i_rewrite_input(rewrite, rewrite->root, 0);
    esp_op_id_t first = esp_i_rewrite_made_by_elt(rewrite, middle, ESP_ELT_AFFINE);
    if (first == ESP_NONE)
        return ESP_OK;
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, first, 0);
    esp_attr_t attr = graph->op_attr[rewrite->root];
    const esp_attr_t *inner = &graph->op_attr[first];
    attr.eltwise.beta += attr.eltwise.alpha * inner->eltwise.beta;
    attr.eltwise.alpha *= inner->eltwise.alpha;
    esp_i_rewrite_inside(rewrite, first);
    if (!esp_i_rewrite_closed(rewrite) || !isfinite(attr.eltwise.alpha) ||
        !isfinite(attr.eltwise.beta))
        return ESP_OK;
    return esp_i_rewrite_emit(rewrite, ESP_KIND_ELTWISE, &attr, 1, &x, out);
}
