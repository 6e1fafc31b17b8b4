/* Counts what a model report states. */
#include "report/model.h"

int32_t esp_i_batch_axis(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    esp_view_t view = graph->tensor_batch[tensor];
    int64_t outer = 1;
    if (view.extent == 0)
        return ESP_NONE;
    for (int32_t axis = 0; axis < graph->tensor_rank[tensor]; axis++) {
        int64_t extent = graph->tensor_dims[tensor][axis];
        if (outer == view.outer && extent == view.extent)
            return axis;
        outer *= extent;
    }
    return ESP_NONE;
}

static esp_role_t role_of(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    return (esp_role_t)graph->tensor_role[tensor];
}

bool esp_i_is_weight(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_role_t role)
{
    return role_of(graph, tensor) == role && graph->tensor_producer[tensor] == ESP_NONE;
}

static void count_weight(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_i_weights_t *weights)
{
    weights->count++;
    weights->elements += graph->tensor_elements[tensor];
    weights->bytes += graph->tensor_bytes[tensor];
}

static void count_weights(const esp_graph_t *graph, esp_i_model_facts_t *facts)
{
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++) {
        if (esp_i_is_weight(graph, t, ESP_ROLE_PARAMETER))
            count_weight(graph, t, &facts->trained);
        else if (esp_i_is_weight(graph, t, ESP_ROLE_FROZEN))
            count_weight(graph, t, &facts->frozen);
        else if (esp_i_is_weight(graph, t, ESP_ROLE_STATE))
            count_weight(graph, t, &facts->state);
        else if (esp_i_is_weight(graph, t, ESP_ROLE_STATISTIC))
            count_weight(graph, t, &facts->statistic);
    }
    for (int32_t p = 0; p < graph->n_parameters; p++)
        if (graph->gradient[p] != ESP_NONE)
            count_weight(graph, graph->gradient[p], &facts->gradient);
}

static bool reads_batch(const esp_graph_t *graph, esp_op_id_t op)
{
    for (int32_t i = graph->input_offset[op]; i < graph->input_offset[op + 1]; i++)
        if (graph->input_tensor[i] != ESP_NONE &&
            graph->tensor_batch[graph->input_tensor[i]].extent > 1)
            return true;
    return false;
}

static bool count_op(const esp_graph_t *graph, esp_op_id_t op, const esp_allocator_t *alloc,
                     esp_i_model_facts_t *facts)
{
    esp_op_kind_t kind = (esp_op_kind_t)graph->op_kind[op];
    int32_t phase = graph->op_phase[op];
    facts->ops[kind][phase]++;
    facts->flop[kind][phase] += graph->op_flops[op];
    facts->phase_ops[phase]++;
    facts->phase_flop[phase] += graph->op_flops[op];
    if (!esp_kind_facts(kind).has_factors && !esp_vec_push(alloc, &facts->opaque, op))
        return false;
    if (phase == ESP_PHASE_UPDATE)
        return true;
    if (graph->op_batch[op].dim != ESP_NONE) {
        facts->split_flop += graph->op_flops[op];
        return true;
    }
    facts->unsplit_flop += graph->op_flops[op];
    return !reads_batch(graph, op) || esp_vec_push(alloc, &facts->unsplit, op);
}

/* Buffers made by the forward pass and read by a later one; each once, however it is viewed. */
static int64_t kept_bytes(const esp_graph_t *graph, bool halves, bool *seen)
{
    int64_t bytes = 0;
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++) {
        esp_tensor_id_t root = graph->tensor_root[t];
        esp_op_id_t producer = graph->tensor_producer[root];
        if (seen[root] || producer == ESP_NONE || graph->op_phase[producer] != ESP_PHASE_FORWARD ||
            graph->tensor_role[root] != ESP_ROLE_ACTIVATION)
            continue;
        for (int32_t i = graph->consumer_offset[t]; i < graph->consumer_offset[t + 1]; i++)
            seen[root] |= graph->op_phase[graph->consumer_op[i]] == ESP_PHASE_BACKWARD;
        if (seen[root])
            bytes += graph->tensor_bytes[root] /
                     (halves && graph->tensor_dtype[root] == ESP_DTYPE_F32 ? 2 : 1);
    }
    return bytes;
}

esp_status_t esp_i_model_facts(const esp_report_model_args_t *subject, const esp_allocator_t *alloc,
                               esp_i_model_facts_t *facts_out, esp_diag_t *diag)
{
    const esp_graph_t *graph = subject->step != NULL ? subject->step : subject->model;
    esp_i_model_facts_t facts = {.graph = graph};
    bool *seen = esp_i_alloc_array(alloc, graph->n_tensors, sizeof *seen);
    if (seen == NULL)
        return esp_i_nomem(diag);
    count_weights(graph, &facts);
    facts.kept_bytes = kept_bytes(
        graph, subject->precision == ESP_PRECISION_FP16 || subject->precision == ESP_PRECISION_BF16,
        seen);
    esp_i_free(alloc, seen);
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        if (!count_op(graph, op, alloc, &facts)) {
            esp_i_model_facts_fini(&facts, alloc);
            return esp_i_nomem(diag);
        }
    *facts_out = facts;
    return ESP_OK;
}

void esp_i_model_facts_fini(esp_i_model_facts_t *facts, const esp_allocator_t *alloc)
{
    esp_vec_free(alloc, &facts->unsplit);
    esp_vec_free(alloc, &facts->opaque);
}
