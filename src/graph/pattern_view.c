/* Patterns of views: reshapes, transposes, slices, and how contractions take transposes in. */
#include "graph/rewrite.h"

#include <string.h>

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
 * A transpose of a tensor with axes of extent 1: they are put in and out by reshapes, which then
 * meet the reshapes around them.
 */
esp_status_t esp_i_pattern_transpose_with_ones(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    if (graph->op_kind[rewrite->root] != ESP_KIND_TRANSPOSE)
        return ESP_OK;
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, rewrite->root, 0);
    const int32_t *perm = graph->op_attr[rewrite->root].transpose.perm;
    int32_t rank = graph->tensor_rank[x], place[ESP_MAX_RANK], n = 0;
    esp_i_step_t steps[3] = {
        {.kind = ESP_KIND_RESHAPE}, {.kind = ESP_KIND_TRANSPOSE}, {.kind = ESP_KIND_RESHAPE}};
    memset(&steps[0].attr, 0, sizeof steps[0].attr);
    memset(&steps[1].attr, 0, sizeof steps[1].attr);
    for (int32_t axis = 0; axis < rank; axis++)
        if (graph->tensor_dims[x][axis] != 1) {
            steps[0].attr.shape.dims[n] = graph->tensor_dims[x][axis];
            place[axis] = n++;
        }
    if (n == rank)
        return ESP_OK;
    steps[0].attr.shape.rank = n;
    for (int32_t i = 0, to = 0; i < rank; i++)
        if (graph->tensor_dims[x][perm[i]] != 1)
            steps[1].attr.transpose.perm[to++] = place[perm[i]];
    steps[2].attr = shape_of(graph, esp_i_rewrite_output(rewrite, rewrite->root));
    return esp_i_rewrite_emit_chain(rewrite, x, 3, steps, out);
}

/*
 * An element-wise op of one input between a view and contractions: the op first, so that the view
 * meets the contractions. Attention scales its operands there.
 */
esp_status_t esp_i_pattern_unary_of_view(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t root = rewrite->root;
    esp_tensor_id_t y = esp_i_rewrite_output(rewrite, root);
    if (graph->op_kind[root] != ESP_KIND_ELTWISE || esp_i_rewrite_n_inputs(rewrite, root) != 1 ||
        !esp_i_rewrite_read_by(rewrite, y, ESP_KIND_CONTRACT))
        return ESP_OK;
    /* transpose, or a reshape of one */
    esp_tensor_id_t x = esp_i_rewrite_input(rewrite, root, 0);
    esp_op_id_t reshape = esp_i_rewrite_made_by(rewrite, x, ESP_KIND_RESHAPE);
    if (reshape != ESP_NONE) {
        esp_i_rewrite_inside(rewrite, reshape);
        x = esp_i_rewrite_input(rewrite, reshape, 0);
    }
    esp_op_id_t transpose = esp_i_rewrite_made_by(rewrite, x, ESP_KIND_TRANSPOSE);
    if (transpose == ESP_NONE)
        return ESP_OK;
    esp_i_rewrite_inside(rewrite, transpose);
    if (!esp_i_rewrite_closed(rewrite))
        return ESP_OK;
    const esp_i_step_t steps[3] = {{ESP_KIND_ELTWISE, graph->op_attr[root]},
                                   {ESP_KIND_TRANSPOSE, graph->op_attr[transpose]},
                                   {ESP_KIND_RESHAPE, shape_of(graph, y)}};
    return esp_i_rewrite_emit_chain(rewrite, esp_i_rewrite_input(rewrite, transpose, 0),
                                    reshape != ESP_NONE ? 3 : 2, steps, out);
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
    const esp_i_step_t steps[2] = {{ESP_KIND_SLICE, attr}, {ESP_KIND_RESHAPE, shape}};
    return esp_i_rewrite_emit_chain(rewrite, x, 2, steps, out);
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
    int32_t from[ESP_MAX_RANK] = {0}, n = 0;
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
    const esp_i_step_t steps[2] = {{ESP_KIND_RESHAPE, shape}, {ESP_KIND_TRANSPOSE, attr}};
    return esp_i_rewrite_emit_chain(rewrite, esp_i_rewrite_input(rewrite, transpose, 0), 2, steps,
                                    out);
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
