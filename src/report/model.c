/* esp_report_model as text. */
#include "report/model.h"

#include <stdio.h>

enum { HEAD = 8 }; /* entries of a list unless all are wanted */

static void shape_text(const esp_graph_t *graph, esp_tensor_id_t tensor, char out[128])
{
    int length =
        snprintf(out, 128, "%s [", esp_dtype_name((esp_dtype_t)graph->tensor_dtype[tensor]));
    for (int32_t axis = 0; axis < graph->tensor_rank[tensor] && length < 100; axis++)
        length += snprintf(out + length, 128 - (size_t)length, "%s%lld", axis > 0 ? ", " : "",
                           (long long)graph->tensor_dims[tensor][axis]);
    (void)snprintf(out + length, 128 - (size_t)length, "]");
}

static void put_tensor(const esp_graph_t *graph, esp_tensor_id_t tensor, const char *what,
                       esp_i_table_t *table)
{
    char shape[128], where[48] = "no batch";
    int32_t axis = esp_i_batch_axis(graph, tensor);
    shape_text(graph, tensor, shape);
    if (axis != ESP_NONE)
        (void)snprintf(where, sizeof where, "batch on axis %d", (int)axis);
    else if (graph->tensor_batch[tensor].extent > 0)
        (void)snprintf(where, sizeof where, "batch inside an axis");
    esp_i_table_cell(table, "%s", what);
    esp_i_table_cell(table, "%s", graph->tensor_name[tensor]);
    esp_i_table_cell(table, "%s", shape);
    esp_i_table_cell(table, "%s", where);
}

static void put_interface(const esp_report_model_args_t *subject, const esp_graph_t *graph,
                          const esp_allocator_t *alloc, esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {
        {"", ESP_I_LEFT}, {"tensor", ESP_I_LEFT}, {"shape", ESP_I_LEFT}, {"batch", ESP_I_LEFT}};
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 4, columns);
    for (int32_t i = 0; i < graph->n_inputs; i++)
        put_tensor(graph, graph->input[i], "input", &table);
    for (int32_t i = 0; i < subject->model->n_outputs; i++)
        put_tensor(subject->model, subject->model->output[i], "output", &table);
    esp_i_table_print(&table, 0, text);
}

static void put_loss(const esp_report_model_args_t *subject, esp_i_text_t *text)
{
    static const char *const optimizers[] = {"sgd", "momentum", "adam", "adamw", "statistic"};
    const esp_training_opts_t *training = subject->training;
    const esp_graph_t *model = subject->model;
    esp_loss_t loss = training->loss;
    if (model->n_outputs < 1)
        return;
    if (loss == ESP_LOSS_AUTO)
        loss = model->tensor_elements[model->output[0]] == 1 ? ESP_LOSS_OUTPUT : ESP_LOSS_XENT;
    esp_i_text_addf(text, "loss: %s %s; optimizer: %s\n",
                    loss == ESP_LOSS_XENT  ? "softmax cross-entropy of"
                    : loss == ESP_LOSS_MSE ? "mean squared error of"
                                           : "the output",
                    model->tensor_name[model->output[0]], optimizers[training->optimizer]);
}

/* ---- ops ---------------------------------------------------------------------------------- */

static double kind_flop(const esp_i_model_facts_t *facts, int32_t kind)
{
    return facts->flop[kind][0] + facts->flop[kind][1] + facts->flop[kind][2];
}

static int32_t kind_ops(const esp_i_model_facts_t *facts, int32_t kind)
{
    return facts->ops[kind][0] + facts->ops[kind][1] + facts->ops[kind][2];
}

/* Kinds that occur, most FLOPs first, then in the order of the registry. */
static int32_t sort_kinds(const esp_i_model_facts_t *facts, int32_t order[ESP_KIND_COUNT])
{
    int32_t n = 0;
    for (int32_t kind = 0; kind < ESP_KIND_COUNT; kind++) {
        int32_t at = n;
        if (kind_ops(facts, kind) == 0)
            continue;
        for (; at > 0 && kind_flop(facts, order[at - 1]) < kind_flop(facts, kind); at--)
            order[at] = order[at - 1];
        order[at] = kind;
        n++;
    }
    return n;
}

static void put_row(const char *name, const int32_t ops[ESP_I_PHASES],
                    const double flop[ESP_I_PHASES], double total, esp_i_table_t *table)
{
    char number[32];
    double sum = flop[0] + flop[1] + flop[2];
    esp_i_table_cell(table, "%s", name);
    for (int32_t phase = 0; phase < ESP_I_PHASES; phase++)
        esp_i_table_cell(table, "%d", (int)ops[phase]);
    esp_i_report_si(flop[0], "", number);
    esp_i_table_cell(table, "%s", number);
    esp_i_report_si(sum, "", number);
    esp_i_table_cell(table, "%s", number);
    esp_i_report_percent(total > 0 ? sum / total : 0, number);
    esp_i_table_cell(table, "%s", number);
}

static void put_ops(const esp_i_model_facts_t *facts, const esp_allocator_t *alloc,
                    esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {
        {"ops", ESP_I_LEFT},     {"forward", ESP_I_RIGHT},       {"backward", ESP_I_RIGHT},
        {"update", ESP_I_RIGHT}, {"forward FLOPs", ESP_I_RIGHT}, {"step FLOPs", ESP_I_RIGHT},
        {"share", ESP_I_RIGHT}};
    int32_t order[ESP_KIND_COUNT], n = sort_kinds(facts, order);
    double total = facts->phase_flop[0] + facts->phase_flop[1] + facts->phase_flop[2];
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 7, columns);
    for (int32_t i = 0; i < n; i++)
        put_row(esp_kind_name((esp_op_kind_t)order[i]), facts->ops[order[i]], facts->flop[order[i]],
                total, &table);
    put_row("total", facts->phase_ops, facts->phase_flop, total, &table);
    esp_i_table_print(&table, 0, text);
}

static void put_names(const esp_graph_t *graph, int32_t n, const esp_op_id_t *ops, bool verbose,
                      esp_i_text_t *text)
{
    int32_t shown = verbose || n <= HEAD ? n : HEAD;
    for (int32_t i = 0; i < shown; i++)
        esp_i_text_addf(text, "  %s (%s)\n", graph->op_name[ops[i]],
                        esp_kind_name((esp_op_kind_t)graph->op_kind[ops[i]]));
    if (shown < n)
        esp_i_text_addf(text, "  and %d more (--verbose)\n", (int)(n - shown));
}

static void put_batch(const esp_i_model_facts_t *facts, bool verbose, esp_i_text_t *text)
{
    double total = facts->split_flop + facts->unsplit_flop;
    char share[32];
    esp_i_report_percent(total > 0 ? facts->split_flop / total : 0, share);
    esp_i_text_addf(text, "batch: %s of the FLOPs of forward and backward pass can be split\n",
                    share);
    if (facts->unsplit.count > 0) {
        esp_i_text_addf(text, "ops that read samples and are not split: %d\n",
                        (int)facts->unsplit.count);
        put_names(facts->graph, facts->unsplit.count, facts->unsplit.data, verbose, text);
    }
    if (facts->opaque.count > 0) {
        esp_i_text_addf(text, "opaque ops, which run on one device: %d\n",
                        (int)facts->opaque.count);
        put_names(facts->graph, facts->opaque.count, facts->opaque.data, verbose, text);
    }
}

/* ---- memory ------------------------------------------------------------------------------- */

static void put_weights(const char *name, const esp_i_weights_t *weights, esp_i_table_t *table)
{
    char elements[32], bytes[32];
    if (weights->count == 0)
        return;
    esp_i_report_si((double)weights->elements, "", elements);
    esp_i_format_bytes(weights->bytes, bytes);
    esp_i_table_cell(table, "%s", name);
    esp_i_table_cell(table, "%d", (int)weights->count);
    esp_i_table_cell(table, "%s", elements);
    esp_i_table_cell(table, "%s", bytes);
}

static void put_memory(const esp_report_model_args_t *subject, const esp_i_model_facts_t *facts,
                       const esp_allocator_t *alloc, esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {{"memory of one replica", ESP_I_LEFT},
                                             {"tensors", ESP_I_RIGHT},
                                             {"elements", ESP_I_RIGHT},
                                             {"bytes", ESP_I_RIGHT}};
    char bytes[32];
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 4, columns);
    put_weights(subject->step != NULL ? "trained parameters" : "parameters", &facts->trained,
                &table);
    put_weights("frozen weights", &facts->frozen, &table);
    put_weights("running statistics", &facts->statistic, &table);
    put_weights("gradients", &facts->gradient, &table);
    put_weights("optimizer state", &facts->state, &table);
    if (subject->step != NULL) {
        esp_i_format_bytes(facts->kept_bytes, bytes);
        if (facts->graph->batch > 0)
            esp_i_table_cell(&table, "activations kept for backward, batch %lld",
                             (long long)facts->graph->batch);
        else
            esp_i_table_cell(&table, "activations kept for backward");
        esp_i_table_cell(&table, "%s", "");
        esp_i_table_cell(&table, "%s", "");
        esp_i_table_cell(&table, "%s", bytes);
    }
    esp_i_table_print(&table, 0, text);
}

static void put_weight_names(const esp_graph_t *graph, esp_role_t role, const char *heading,
                             esp_i_text_t *text)
{
    bool any = false;
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++) {
        char shape[128];
        if (!esp_i_is_weight(graph, t, role))
            continue;
        shape_text(graph, t, shape);
        esp_i_text_addf(text, "%s%s%s  %s  %s\n", any ? "" : "\n", any ? "" : heading,
                        any ? "" : ":\n", graph->tensor_name[t], shape);
        any = true;
    }
}

static void put_text(const esp_report_model_args_t *subject, const esp_i_model_facts_t *facts,
                     const esp_i_coverage_t *coverage, const esp_report_opts_t *opts,
                     const esp_allocator_t *alloc, esp_i_text_t *text)
{
    bool verbose = opts->verbose != 0;
    esp_i_text_add(text, subject->file != NULL ? subject->file : facts->graph->name);
    if (facts->graph->batch > 0)
        esp_i_text_addf(text, ", batch %lld\n\n", (long long)facts->graph->batch);
    else
        esp_i_text_add(text, ", no batch\n\n");
    put_interface(subject, facts->graph, alloc, text);
    if (subject->step != NULL)
        put_loss(subject, text);
    esp_i_text_add(text, "\n");
    put_ops(facts, alloc, text);
    esp_i_text_add(text, "\n");
    put_memory(subject, facts, alloc, text);
    esp_i_text_add(text, "\n");
    put_batch(facts, verbose, text);
    for (int32_t t = 0; subject->costs != NULL && t < subject->costs->n_types; t++)
        esp_i_text_addf(text, "measured on %s: the times of %d of %d ops\n",
                        subject->costs->type[t].name, (int)coverage[t].measured,
                        (int)coverage[t].all);
    if (verbose) {
        put_weight_names(facts->graph, ESP_ROLE_PARAMETER,
                         subject->step != NULL ? "trained parameters" : "parameters", text);
        put_weight_names(facts->graph, ESP_ROLE_FROZEN, "frozen weights", text);
    }
}

static esp_status_t coverage_find(const esp_report_model_args_t *subject, const esp_graph_t *graph,
                                  const esp_allocator_t *alloc, esp_i_coverage_t **out,
                                  esp_diag_t *diag)
{
    const esp_costs_t *costs = subject->costs;
    *out = NULL;
    if (costs == NULL)
        return ESP_OK;
    *out = esp_i_alloc_array(alloc, costs->n_types, sizeof **out);
    if (*out == NULL)
        return esp_i_nomem(diag);
    for (int32_t t = 0; t < costs->n_types; t++)
        ESP_TRY(esp_i_op_coverage(graph, &costs->type[t], alloc, &(*out)[t], diag));
    return ESP_OK;
}

esp_status_t esp_report_model(const esp_report_model_args_t *subject, const esp_report_opts_t *opts,
                              const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    esp_allocator_t memory = esp_i_allocator(alloc);
    esp_i_model_facts_t facts;
    esp_i_text_t text;
    ESP_TRY(esp_i_report_check(opts, diag));
    if (subject->model == NULL || (subject->step != NULL && subject->training == NULL))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "no model, or a step without its options");
    ESP_TRY(esp_i_model_facts(subject, &memory, &facts, diag));
    esp_i_coverage_t *coverage;
    esp_status_t status = coverage_find(subject, facts.graph, &memory, &coverage, diag);
    if (status == ESP_OK) {
        esp_i_text_init(&text, &memory);
        if (opts->form == ESP_REPORT_JSON)
            esp_i_model_json(subject, &facts, coverage, opts->verbose != 0, &text);
        else
            put_text(subject, &facts, coverage, opts, &memory, &text);
        status = esp_i_report_finish(&text, text_out, diag);
    }
    esp_i_free(&memory, coverage);
    esp_i_model_facts_fini(&facts, &memory);
    return status;
}
