/*
 * Where the batch is: propagation of views over ops, on identities of dimensions.
 *
 * Equal extents mean nothing here: a view says which part of a buffer is the batch, the op's loop
 * dimensions say which part of its other operands that is.
 */
#include "graph/build.h"

typedef struct batch {
    const esp_graph_t *graph;
    esp_view_t *tensor;
    esp_factor_t *op;
} batch_t;

static int32_t n_inputs(const esp_graph_t *graph, esp_op_id_t op)
{
    return graph->input_offset[op + 1] - graph->input_offset[op];
}

static bool factor_equal(esp_factor_t x, esp_factor_t y)
{
    return x.dim == y.dim && x.a == y.a && x.b == y.b && x.c == y.c;
}

static bool has_batch(const batch_t *batch, esp_tensor_id_t tensor)
{
    return tensor != ESP_NONE && batch->tensor[tensor].extent > 0;
}

/* Gives the outputs that carry the batch their views. */
static void mark_outputs(batch_t *batch, esp_op_id_t op)
{
    const esp_graph_t *graph = batch->graph;
    int32_t operand = n_inputs(graph, op);
    for (int32_t i = graph->output_offset[op]; i < graph->output_offset[op + 1]; i++, operand++) {
        esp_tensor_id_t tensor = graph->output_tensor[i];
        esp_view_t view;
        if (esp_graph_bind(graph, op, batch->op[op], operand, &view) == ESP_BIND_CARRY)
            batch->tensor[tensor] = view;
    }
}

/*
 * Forward: every input that has the batch asks for the factor that shows it so. One answer from
 * all: the op carries the batch. None, or two different ones (X X^T): it is not split.
 */
static void reach(batch_t *batch, esp_op_id_t op)
{
    const esp_graph_t *graph = batch->graph;
    esp_factor_t agreed = {.dim = ESP_NONE};
    for (int32_t i = 0; i < n_inputs(graph, op); i++) {
        esp_tensor_id_t tensor = graph->input_tensor[graph->input_offset[op] + i];
        esp_factor_t factor;
        if (!has_batch(batch, tensor))
            continue;
        if (!esp_graph_factor(graph, op, i, batch->tensor[tensor], &factor))
            return;
        if (agreed.dim != ESP_NONE && !factor_equal(agreed, factor))
            return;
        agreed = factor;
    }
    if (agreed.dim == ESP_NONE)
        return;
    batch->op[op] = agreed;
    mark_outputs(batch, op);
}

/* How consumer `op` wants `tensor` to be split: one view at all places where it reads it, or none.
 */
static bool consumer_wants(const batch_t *batch, esp_op_id_t op, esp_tensor_id_t tensor,
                           esp_view_t *view_out)
{
    const esp_graph_t *graph = batch->graph;
    bool found = false;
    if (batch->op[op].dim == ESP_NONE)
        return false;
    for (int32_t i = 0; i < n_inputs(graph, op); i++) {
        esp_view_t view;
        if (graph->input_tensor[graph->input_offset[op] + i] != tensor)
            continue;
        if (esp_graph_bind(graph, op, batch->op[op], i, &view) != ESP_BIND_CARRY ||
            (found && !esp_i_view_equal(*view_out, view)))
            return false;
        *view_out = view;
        found = true;
    }
    return found;
}

static bool consumers_want(const batch_t *batch, esp_tensor_id_t tensor, esp_view_t *view_out)
{
    const esp_graph_t *graph = batch->graph;
    int32_t first = graph->consumer_offset[tensor], end = graph->consumer_offset[tensor + 1];
    for (int32_t i = first; i < end; i++) {
        esp_view_t view;
        if (!consumer_wants(batch, graph->consumer_op[i], tensor, &view) ||
            (i > first && !esp_i_view_equal(*view_out, view)))
            return false;
        *view_out = view;
    }
    return end > first;
}

/* The factor under which every output that is read is what all its readers want. */
static bool wanted_factor(const batch_t *batch, esp_op_id_t op, esp_factor_t *factor_out)
{
    const esp_graph_t *graph = batch->graph;
    int32_t operand = n_inputs(graph, op);
    bool found = false;
    for (int32_t i = graph->output_offset[op]; i < graph->output_offset[op + 1]; i++, operand++) {
        esp_tensor_id_t tensor = graph->output_tensor[i];
        esp_view_t view;
        esp_factor_t factor;
        if (graph->consumer_offset[tensor] == graph->consumer_offset[tensor + 1])
            continue;
        if (!consumers_want(batch, tensor, &view) ||
            !esp_graph_factor(graph, op, operand, view, &factor) ||
            (found && !factor_equal(*factor_out, factor)))
            return false;
        *factor_out = factor;
        found = true;
    }
    return found;
}

/*
 * Backward: an op that no batch reached (a mask drawn, a constant filled or expanded) takes the
 * factor that its readers want, so that each device makes only its own rows.
 */
static void adopt(batch_t *batch, esp_op_id_t op)
{
    const esp_graph_t *graph = batch->graph;
    esp_factor_t factor;
    esp_view_t view;
    if (batch->op[op].dim != ESP_NONE)
        return;
    for (int32_t i = 0; i < n_inputs(graph, op); i++)
        if (has_batch(batch, graph->input_tensor[graph->input_offset[op] + i]))
            return;
    if (!wanted_factor(batch, op, &factor))
        return;
    for (int32_t i = 0; i < n_inputs(graph, op); i++) {
        esp_bind_t bind = esp_graph_bind(graph, op, factor, i, &view);
        if (bind != ESP_BIND_ABSENT && bind != ESP_BIND_CARRY)
            return;
    }
    batch->op[op] = factor;
    mark_outputs(batch, op);
}

void esp_i_batch_propagate(const esp_graph_t *graph, esp_view_t *tensor_batch,
                           esp_factor_t *op_batch)
{
    batch_t batch = {graph, tensor_batch, op_batch};
    for (esp_op_id_t op = 0; op < graph->n_ops; op++) {
        op_batch[op] = (esp_factor_t){.dim = ESP_NONE};
        reach(&batch, op);
    }
    /* Readers come after what they read, so one pass in reverse is the fixed point. */
    for (esp_op_id_t op = graph->n_ops - 1; op >= 0; op--)
        adopt(&batch, op);
}
