/* esp_report_model as JSON. */
#include "report/model.h"

static void put_tensors(const esp_graph_t *graph, int32_t n, const esp_tensor_id_t *tensors,
                        const char *key, esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, key);
    for (int32_t i = 0; i < n; i++) {
        int32_t axis = esp_i_batch_axis(graph, tensors[i]);
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", graph->tensor_name[tensors[i]]);
        esp_i_json_put_string(out, "dtype",
                              esp_dtype_name((esp_dtype_t)graph->tensor_dtype[tensors[i]]));
        esp_i_json_open_array(out, "shape");
        for (int32_t k = 0; k < graph->tensor_rank[tensors[i]]; k++)
            esp_i_json_put_int(out, NULL, graph->tensor_dims[tensors[i]][k]);
        esp_i_json_close(out);
        if (axis == ESP_NONE)
            esp_i_json_put_null(out, "batch_axis");
        else
            esp_i_json_put_int(out, "batch_axis", axis);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_phases(const esp_i_model_facts_t *facts, esp_i_json_out_t *out)
{
    static const char *const names[] = {"forward", "backward", "update"};
    esp_i_json_open_object(out, "ops");
    for (int32_t phase = 0; phase < ESP_I_PHASES; phase++)
        esp_i_json_put_int(out, names[phase], facts->phase_ops[phase]);
    esp_i_json_close(out);
    esp_i_json_open_object(out, "flop");
    for (int32_t phase = 0; phase < ESP_I_PHASES; phase++)
        esp_i_json_put_real(out, names[phase], facts->phase_flop[phase]);
    esp_i_json_put_real(out, "step",
                        facts->phase_flop[0] + facts->phase_flop[1] + facts->phase_flop[2]);
    esp_i_json_close(out);
    esp_i_json_open_array(out, "kinds");
    for (int32_t kind = 0; kind < ESP_KIND_COUNT; kind++) {
        if (facts->ops[kind][0] + facts->ops[kind][1] + facts->ops[kind][2] == 0)
            continue;
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "kind", esp_kind_name((esp_op_kind_t)kind));
        for (int32_t phase = 0; phase < ESP_I_PHASES; phase++)
            esp_i_json_put_int(out, names[phase], facts->ops[kind][phase]);
        esp_i_json_put_real(out, "flop",
                            facts->flop[kind][0] + facts->flop[kind][1] + facts->flop[kind][2]);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_weights(const char *key, const esp_i_weights_t *weights, esp_i_json_out_t *out)
{
    esp_i_json_next_flat(out);
    esp_i_json_open_object(out, key);
    esp_i_json_put_int(out, "tensors", weights->count);
    esp_i_json_put_int(out, "elements", weights->elements);
    esp_i_json_put_int(out, "bytes", weights->bytes);
    esp_i_json_close(out);
}

static void put_ops(const esp_graph_t *graph, const char *key, int32_t n, const esp_op_id_t *ops,
                    esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, key);
    for (int32_t i = 0; i < n; i++) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "op", graph->op_name[ops[i]]);
        esp_i_json_put_string(out, "kind", esp_kind_name((esp_op_kind_t)graph->op_kind[ops[i]]));
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_weight_names(const esp_graph_t *graph, esp_role_t role, const char *key,
                             esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, key);
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++)
        if (esp_i_is_weight(graph, t, role))
            esp_i_json_put_string(out, NULL, graph->tensor_name[t]);
    esp_i_json_close(out);
}

static void put_coverage(const esp_costs_t *costs, const esp_i_coverage_t *coverage,
                         esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, "costs");
    for (int32_t t = 0; t < costs->n_types; t++) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "type", costs->type[t].name);
        esp_i_json_put_int(out, "measured_ops", coverage[t].measured);
        esp_i_json_put_int(out, "ops", coverage[t].all);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

void esp_i_model_json(const esp_report_model_args_t *subject, const esp_i_model_facts_t *facts,
                      const esp_i_coverage_t *coverage, bool verbose, esp_i_text_t *text)
{
    const esp_graph_t *graph = facts->graph;
    double total = facts->split_flop + facts->unsplit_flop;
    esp_i_json_out_t out;
    esp_i_json_out_init(&out, text);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_put_string(&out, "model", graph->name);
    esp_i_json_put_string(&out, "file", subject->file);
    esp_i_json_put_int(&out, "batch", graph->batch);
    put_tensors(graph, graph->n_inputs, graph->input, "inputs", &out);
    put_tensors(subject->model, subject->model->n_outputs, subject->model->output, "outputs", &out);
    esp_i_json_put_string(&out, "loss",
                          graph->loss == ESP_NONE ? NULL : graph->tensor_name[graph->loss]);
    put_phases(facts, &out);
    put_weights("trained", &facts->trained, &out);
    put_weights("frozen", &facts->frozen, &out);
    put_weights("statistics", &facts->statistic, &out);
    put_weights("gradients", &facts->gradient, &out);
    put_weights("state", &facts->state, &out);
    esp_i_json_put_int(&out, "activation_bytes", facts->kept_bytes);
    esp_i_json_put_real(&out, "split_share", total > 0 ? facts->split_flop / total : 0);
    if (subject->costs != NULL)
        put_coverage(subject->costs, coverage, &out);
    put_ops(graph, "unsplit", facts->unsplit.count, facts->unsplit.data, &out);
    put_ops(graph, "opaque", facts->opaque.count, facts->opaque.data, &out);
    if (verbose) {
        put_weight_names(graph, ESP_ROLE_PARAMETER, "trained_names", &out);
        put_weight_names(graph, ESP_ROLE_FROZEN, "frozen_names", &out);
    }
    esp_i_json_close(&out);
}
