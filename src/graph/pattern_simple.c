/* Patterns of one or two ops: identities, views of views, operands that are numbers. */
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

/* ---- views of views ----------------------------------------------------------------------- */

/* Reshape of reshape is the outer one; transpose of transpose is one with both permutations. */
esp_status_t esp_i_pattern_view_of_view(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_kind_t kind = (esp_op_kind_t)graph->op_kind[rewrite->root];
    if (kind != ESP_KIND_RESHAPE && kind != ESP_KIND_TRANSPOSE)
        return ESP_OK;
    esp_tensor_id_t middle = esp_i_rewrite_input(rewrite, rewrite->root, 0);
    esp_op_id_t first = esp_i_rewrite_made_by(rewrite, middle, kind);
    if (first == ESP_NONE)
        return ESP_OK;
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, first, 0);
    esp_attr_t attr = graph->op_attr[rewrite->root];
    for (int32_t i = 0; kind == ESP_KIND_TRANSPOSE && i < graph->tensor_rank[x]; i++)
        attr.transpose.perm[i] =
            graph->op_attr[first].transpose.perm[graph->op_attr[rewrite->root].transpose.perm[i]];
    return esp_i_rewrite_emit(rewrite, kind, &attr, 1, &x, out);
}

/* Whether a transpose of a tensor of these extents leaves all elements at their places: axes of
 * extent 1 may go anywhere. */
static bool moves_nothing(int32_t rank, const int64_t *x_dims, const int32_t *perm)
{
    int32_t last = -1;
    for (int32_t i = 0; i < rank; i++) {
        if (x_dims[perm[i]] == 1)
            continue;
        if (perm[i] < last)
            return false;
        last = perm[i];
    }
    return true;
}

static esp_attr_t shape_of(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.rank = graph->tensor_rank[tensor];
    memcpy(attr.shape.dims, graph->tensor_dims[tensor],
           (size_t)attr.shape.rank * sizeof *attr.shape.dims);
    return attr;
}

/* A transpose that moves axes of extent 1 only is a reshape: no copy. */
esp_status_t esp_i_pattern_transpose_of_ones(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    if (graph->op_kind[rewrite->root] != ESP_KIND_TRANSPOSE)
        return ESP_OK;
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, rewrite->root, 0);
    if (!moves_nothing(graph->tensor_rank[x], graph->tensor_dims[x],
                       graph->op_attr[rewrite->root].transpose.perm))
        return ESP_OK;
    esp_attr_t attr = shape_of(graph, esp_i_rewrite_output(rewrite, rewrite->root));
    return esp_i_rewrite_emit(rewrite, ESP_KIND_RESHAPE, &attr, 1, &x, out);
}

/*
 * A slice of a transposed tensor, where the axes that the slice leaves are in their old order: a
 * slice of the tensor itself under another shape. Exporters cut fused projections that way.
 */
esp_status_t esp_i_pattern_slice_of_transpose(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t root = rewrite->root;
    if (graph->op_kind[root] != ESP_KIND_SLICE)
        return ESP_OK;
    esp_op_id_t transpose =
        esp_i_rewrite_made_by(rewrite, esp_i_rewrite_input(rewrite, root, 0), ESP_KIND_TRANSPOSE);
    if (transpose == ESP_NONE)
        return ESP_OK;
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, transpose, 0);
    esp_tensor_id_t y = esp_i_rewrite_output(rewrite, root);
    const int32_t *perm = graph->op_attr[transpose].transpose.perm;
    esp_attr_t attr, shape = shape_of(graph, y);
    memset(&attr, 0, sizeof attr);
    for (int32_t i = 0; i < graph->tensor_rank[x]; i++) {
        attr.slice.start[perm[i]] = graph->op_attr[root].slice.start[i];
        attr.slice.step[perm[i]] = graph->op_attr[root].slice.step[i];
        attr.slice.count[perm[i]] = graph->op_attr[root].slice.count[i];
    }
    if (!moves_nothing(graph->tensor_rank[x], attr.slice.count, perm))
        return ESP_OK;
    return esp_i_rewrite_emit_two(rewrite, ESP_KIND_SLICE, &attr, x, ESP_KIND_RESHAPE, &shape, out);
}

/* Where output axis i of a reshape begins in its input, if the reshape only splits axes; else
 * false. */
static bool splits_only(const esp_graph_t *graph, esp_tensor_id_t x, esp_tensor_id_t y,
                        int32_t from[ESP_MAX_RANK])
{
    int32_t axis = -1;
    int64_t left = 1; /* of axis `axis` of x, not yet covered by axes of y */
    for (int32_t i = 0; i < graph->tensor_rank[y]; i++) {
        int64_t extent = graph->tensor_dims[y][i];
        if (left == 1 && (extent != 1 || axis < 0)) {
            if (++axis == graph->tensor_rank[x])
                return false;
            left = graph->tensor_dims[x][axis];
        }
        if (extent == 0 || left % extent != 0)
            return false;
        left /= extent;
        from[i] = axis;
    }
    return left == 1 && axis == graph->tensor_rank[x] - 1;
}

/*
 * A reshape that splits axes of a transposed tensor, read by a contraction: split first, transpose
 * then, so that the transpose can go into the labels. Attention cuts its heads that way.
 */
esp_status_t esp_i_pattern_split_of_transpose(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t root = rewrite->root;
    int32_t from[ESP_MAX_RANK], n = 0;
    if (graph->op_kind[root] != ESP_KIND_RESHAPE)
        return ESP_OK;
    esp_tensor_id_t middle = esp_i_rewrite_input(rewrite, root, 0);
    esp_tensor_id_t y = esp_i_rewrite_output(rewrite, root);
    esp_op_id_t transpose = esp_i_rewrite_made_by(rewrite, middle, ESP_KIND_TRANSPOSE);
    if (transpose == ESP_NONE || !splits_only(graph, middle, y, from) ||
        !esp_i_rewrite_read_by(rewrite, y, ESP_KIND_CONTRACT))
        return ESP_OK;
    esp_attr_t shape = shape_of(graph, y), attr;
    const int32_t *perm = graph->op_attr[transpose].transpose.perm;
    memset(&attr, 0, sizeof attr);
    /* the pieces in the order in which the untransposed tensor has their axes */
    for (int32_t axis = 0; axis < graph->tensor_rank[middle]; axis++)
        for (int32_t i = 0; i < graph->tensor_rank[y]; i++)
            if (perm[from[i]] == axis) {
                shape.shape.dims[n] = graph->tensor_dims[y][i];
                attr.transpose.perm[i] = n++;
            }
    return esp_i_rewrite_emit_two(rewrite, ESP_KIND_RESHAPE, &shape,
                                  esp_i_rewrite_input(rewrite, transpose, 0), ESP_KIND_TRANSPOSE,
                                  &attr, out);
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

/* ---- contractions ------------------------------------------------------------------------- */

/* A contraction reads its operands in any order of axes: the permutation goes into the labels. */
esp_status_t esp_i_pattern_contract_of_transpose(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t op = rewrite->root;
    if (graph->op_kind[op] != ESP_KIND_CONTRACT)
        return ESP_OK;
    esp_attr_t attr = graph->op_attr[op];
    esp_tensor_id_t inputs[2];
    bool any = false;
    for (int32_t i = 0; i < 2; i++) {
        int8_t *labels = i == 0 ? attr.contract.a : attr.contract.b;
        int8_t before[ESP_MAX_RANK];
        inputs[i] = esp_i_rewrite_input(rewrite, op, i);
        esp_op_id_t transpose = esp_i_rewrite_made_by(rewrite, inputs[i], ESP_KIND_TRANSPOSE);
        if (transpose == ESP_NONE)
            continue;
        memcpy(before, labels, sizeof before);
        for (int32_t axis = 0; axis < graph->tensor_rank[inputs[i]]; axis++)
            labels[graph->op_attr[transpose].transpose.perm[axis]] = before[axis];
        inputs[i] = esp_i_rewrite_input(rewrite, transpose, 0);
        any = true;
    }
    return any ? esp_i_rewrite_emit(rewrite, ESP_KIND_CONTRACT, &attr, 2, inputs, out) : ESP_OK;
}

/* And it writes its result in any order. */
esp_status_t esp_i_pattern_transpose_of_contract(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    if (graph->op_kind[rewrite->root] != ESP_KIND_TRANSPOSE)
        return ESP_OK;
    esp_tensor_id_t middle = esp_i_rewrite_input(rewrite, rewrite->root, 0);
    esp_op_id_t contract = esp_i_rewrite_made_by(rewrite, middle, ESP_KIND_CONTRACT);
    if (contract == ESP_NONE)
        return ESP_OK;
    esp_i_rewrite_inside(rewrite, contract);
    if (!esp_i_rewrite_closed(rewrite))
        return ESP_OK;
    esp_attr_t attr = graph->op_attr[contract];
    for (int32_t axis = 0; axis < graph->tensor_rank[middle]; axis++)
        attr.contract.y[axis] =
            graph->op_attr[contract].contract.y[graph->op_attr[rewrite->root].transpose.perm[axis]];
    const esp_tensor_id_t inputs[2] = {esp_i_rewrite_input(rewrite, contract, 0),
                                       esp_i_rewrite_input(rewrite, contract, 1)};
    return esp_i_rewrite_emit(rewrite, ESP_KIND_CONTRACT, &attr, 2, inputs, out);
}
