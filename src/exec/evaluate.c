/* Evaluation: a deployment and an executor of their own for the graph that only looks. */
#include "exec/tensors.h"

#include <string.h>

struct esp_evaluator {
    esp_allocator_t alloc;
    const esp_graph_t *graph;
    esp_train_job_t job;
    esp_cost_t *cost;
    esp_lowerer_t *lowerer;
    esp_exec_t *exec;
    esp_tensor_id_t correct, counted; /* ESP_NONE: no labels */
};

static esp_tensor_id_t find(const esp_graph_t *graph, const char *name)
{
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++)
        if (graph->tensor_producer[i] == ESP_NONE && strcmp(graph->tensor_name[i], name) == 0)
            return i;
    return ESP_NONE;
}

/* ---- the deployment -------------------------------------------------------------------------- */

/* Shares as in a mesh of the training deployment that has all devices, even ones otherwise. */
static void weigh(const esp_deployment_t *training, int32_t n, double *weight)
{
    for (int32_t k = 0; k < n; k++)
        weight[k] = 1;
    for (int32_t m = 0; m < training->n_meshes; m++) {
        int32_t first = training->mesh_offset[m];
        if (training->mesh_offset[m + 1] - first != n)
            continue;
        for (int32_t k = 0; k < n; k++)
            weight[k] = (double)training->mesh_units[first + k];
        return;
    }
}

/* Samples are split over all devices; what is counted is added up and kept on each. */
static esp_status_t lower(esp_evaluator_t *e, const esp_deployment_t *training,
                          const esp_deployment_t **deployment_out, esp_diag_t *diag)
{
    const esp_graph_t *graph = e->graph;
    esp_i_arena_t arena;
    esp_mesh_spec_t mesh = {0};
    esp_strategy_t strategy = {.n_meshes = 1, .mesh = &mesh, .micro_batches = 1};
    esp_i_arena_init(&arena, &e->alloc);
    int32_t *device = esp_i_arena_alloc(&arena, training->cluster->n_devices, sizeof *device);
    double *weight = esp_i_arena_alloc(&arena, training->cluster->n_devices, sizeof *weight);
    int32_t *op_mesh = esp_i_arena_alloc(&arena, graph->n_ops, sizeof *op_mesh);
    uint8_t *op_mode = esp_i_arena_alloc(&arena, graph->n_ops, sizeof *op_mode);
    esp_status_t status = device && weight && op_mesh && op_mode ? ESP_OK : esp_i_nomem(diag);
    if (status == ESP_OK) {
        for (int32_t d = 0; d < training->cluster->n_devices; d++)
            if (training->device_class[d] != ESP_NONE)
                device[mesh.n++] = d;
        weigh(training, mesh.n, weight);
        mesh.device = device;
        mesh.weight = weight;
        for (esp_op_id_t op = 0; op < graph->n_ops; op++)
            op_mode[op] = graph->op_phase[op] == ESP_PHASE_UPDATE ? ESP_MODE_WHOLE : ESP_MODE_BATCH;
        strategy.op_mesh = op_mesh;
        strategy.op_mode = op_mode;
        status = esp_lower(e->lowerer, &strategy, deployment_out, diag);
    }
    esp_i_arena_fini(&arena);
    return status;
}

/* A device that has no sample would be no rank of this executor, and is one of the other. */
static esp_status_t check_shares(const esp_deployment_t *training,
                                 const esp_deployment_t *deployment, esp_diag_t *diag)
{
    for (int32_t d = 0; d < training->cluster->n_devices; d++)
        if (training->device_class[d] != ESP_NONE && deployment->device_class[d] == ESP_NONE)
            return esp_i_fail(diag, ESP_ERR_UNSUPPORTED,
                              "a batch of %lld samples cannot be evaluated on every device of the "
                              "plan: %s has none",
                              (long long)deployment->graph->batch,
                              training->cluster->vertex_name[d]);
    return ESP_OK;
}

static esp_status_t create(esp_evaluator_t *e, const esp_deployment_t *training,
                           const esp_exec_opts_t *opts, esp_diag_t *diag)
{
    const esp_deployment_t *deployment;
    esp_exec_opts_t own = *opts;
    own.timeline = 0;
    own.status_path = NULL;
    ESP_TRY(esp_cost_create(e->graph, training->cluster, training->cost->precision, &e->alloc,
                            &e->cost, diag));
    ESP_TRY(esp_lowerer_create(e->cost, &e->alloc, &e->lowerer, diag));
    ESP_TRY(lower(e, training, &deployment, diag));
    ESP_TRY(check_shares(training, deployment, diag));
    ESP_TRY(esp_deployment_pack(e->lowerer, diag));
    ESP_TRY(esp_deployment_check(deployment, diag));
    return esp_exec_create(deployment, &own, &e->alloc, &e->exec, diag);
}

esp_status_t esp_evaluator_create(const esp_graph_t *graph, const esp_deployment_t *training,
                                  const esp_exec_opts_t *opts, const esp_allocator_t *alloc,
                                  esp_evaluator_t **evaluator_out, esp_diag_t *diag)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    esp_evaluator_t *e = esp_i_alloc_array(&from, 1, sizeof *e);
    if (e == NULL)
        return esp_i_nomem(diag);
    e->alloc = from;
    e->graph = graph;
    e->correct = find(graph, ESP_EVAL_CORRECT);
    e->counted = find(graph, ESP_EVAL_COUNTED);
    esp_status_t status = create(e, training, opts, diag);
    if (status == ESP_OK)
        *evaluator_out = e;
    else
        esp_evaluator_destroy(e);
    return status;
}

void esp_evaluator_destroy(esp_evaluator_t *evaluator)
{
    if (evaluator == NULL)
        return;
    esp_allocator_t alloc = evaluator->alloc;
    esp_exec_destroy(evaluator->exec);
    esp_lowerer_destroy(evaluator->lowerer);
    esp_cost_destroy(evaluator->cost);
    esp_i_free(&alloc, evaluator);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Weights and statistics of the training executor, by name. */
static esp_status_t copy_weights(esp_evaluator_t *e, const esp_train_job_t *job, esp_diag_t *diag)
{
    void *values = esp_i_staging(job);
    esp_status_t status = values != NULL ? ESP_OK : esp_i_nomem(diag);
    for (esp_tensor_id_t i = 0; i < e->graph->n_tensors && status == ESP_OK; i++) {
        if (!esp_i_is_kept(e->graph, i) || e->graph->tensor_role[i] == ESP_ROLE_STATE)
            continue;
        esp_tensor_id_t tensor = find(job->graph, e->graph->tensor_name[i]);
        if (tensor == ESP_NONE)
            continue;
        status = esp_exec_get(job->exec, tensor, values, diag);
        if (status == ESP_OK)
            status = esp_exec_set(e->exec, i, values, diag);
    }
    esp_i_free(&esp_i_malloc, values);
    return status;
}

/* Reads a count and sets it back to 0. */
static esp_status_t take_count(esp_evaluator_t *e, const esp_train_job_t *job,
                               esp_tensor_id_t tensor, int64_t *sum, esp_diag_t *diag)
{
    double wide = 0;
    float single = 0;
    void *value = job->wide != 0 ? (void *)&wide : (void *)&single;
    if (tensor == ESP_NONE)
        return ESP_OK;
    ESP_TRY(esp_exec_get(e->exec, tensor, value, diag));
    *sum += (int64_t)(job->wide != 0 ? wide : (double)single);
    wide = 0;
    single = 0;
    return esp_exec_set(e->exec, tensor, value, diag);
}

/* Counts are floats: between two readings they must stay exact. */
static int64_t steps_at_once(const esp_graph_t *graph)
{
    int64_t most = 1;
    for (int32_t i = 0; i < graph->n_inputs; i++)
        most = esp_i_max_i64(most, graph->tensor_elements[graph->input[i]]);
    return esp_i_min_i64(esp_i_max_i64((INT64_C(1) << 24) / most, 1), 256);
}

esp_status_t esp_evaluator_run(esp_evaluator_t *e, const esp_train_job_t *job, esp_data_t *data,
                               esp_evaluation_t *evaluation_out, esp_diag_t *diag)
{
    esp_exec_feed_t feed = {.context = data, .input = esp_data_read};
    int64_t steps = esp_data_epoch_steps(data), correct = 0, counted = 0;
    int64_t chunk = steps_at_once(e->graph);
    double loss[256], sum = 0;
    ESP_TRY(copy_weights(e, job, diag));
    esp_exec_set_step(e->exec, 0);
    for (int64_t done = 0; done < steps;) {
        int64_t n = esp_i_min_i64(chunk, steps - done);
        ESP_TRY(esp_exec_run(e->exec, n, &feed, loss, diag));
        for (int64_t i = 0; i < n; i++)
            sum += loss[i];
        done += n;
        ESP_TRY(take_count(e, job, e->correct, &correct, diag));
        ESP_TRY(take_count(e, job, e->counted, &counted, diag));
    }
    *evaluation_out = (esp_evaluation_t){.accuracy = -1, .steps = steps};
    if (e->counted == ESP_NONE) {
        evaluation_out->loss = sum / (double)steps;
        return ESP_OK;
    }
    evaluation_out->labels = counted;
    evaluation_out->loss = counted > 0 ? sum / (double)counted : 0;
    evaluation_out->accuracy = counted > 0 ? (double)correct / (double)counted : 0;
    return ESP_OK;
}
