/* From the result of a search to its plan: filled from temporaries, then cloned. */
#include "plan/plan.h"

/* What the fields of the plan point at until it is cloned. */
typedef struct draft {
    const esp_plan_source_t *source;
    esp_i_arena_t arena;
    esp_plan_t plan;
    char model_sha256[65], cluster_sha256[65], graph_sha256[65], costs_sha256[65];
    char *cluster_text;
    esp_diag_t *diag;
} draft_t;

/* ---- provenance and prediction ------------------------------------------------------------- */

static esp_status_t provenance(draft_t *d)
{
    const esp_plan_source_t *source = d->source;
    const esp_cost_t *cost = source->cost;
    const esp_allocator_t *alloc = &d->arena.alloc;
    esp_plan_t *p = &d->plan;
    ESP_TRY(esp_plan_hash_file(source->model_path, d->model_sha256, d->diag));
    if (source->costs_path)
        ESP_TRY(esp_plan_hash_file(source->costs_path, d->costs_sha256, d->diag));
    ESP_TRY(esp_cluster_hash(cost->cluster, alloc, d->cluster_sha256, d->diag));
    ESP_TRY(esp_cluster_dump(cost->cluster, alloc, &d->cluster_text, d->diag));
    ESP_TRY(esp_graph_hash(cost->graph, d->graph_sha256));
    p->version = esp_version();
    p->model_path = source->model_path;
    p->model_sha256 = d->model_sha256;
    p->batch_dim = source->batch_dim ? source->batch_dim : "";
    p->dims = source->dims ? source->dims : "";
    p->cluster_path = source->cluster_path ? source->cluster_path : "";
    p->cluster_sha256 = d->cluster_sha256;
    p->cluster_text = d->cluster_text;
    p->graph_sha256 = d->graph_sha256;
    p->costs_path = source->costs_path ? source->costs_path : "";
    p->costs_sha256 = source->costs_path ? d->costs_sha256 : "";
    p->batch = cost->graph->batch;
    p->precision = cost->precision;
    p->training = *source->training;
    return ESP_OK;
}

static esp_status_t devices(draft_t *d, const esp_sim_result_t *sim)
{
    const esp_deployment_t *deployment = d->source->result->deployment;
    const esp_cluster_t *cluster = d->source->cost->cluster;
    esp_plan_device_t *device = esp_i_arena_alloc(&d->arena, cluster->n_devices, sizeof *device);
    if (!device)
        return esp_i_nomem(d->diag);
    for (int32_t i = 0; i < cluster->n_devices; i++) {
        int32_t c = deployment->device_class[i];
        device[i].name = cluster->vertex_name[i];
        device[i].capacity_bytes = cluster->device_memory_bytes[i];
        if (c == ESP_NONE)
            continue;
        device[i].peak_bytes = sim->class_peak_bytes[c];
        device[i].arena_bytes = deployment->class_arena_bytes[c];
        device[i].busy_ns = sim->class_busy_ns[c];
    }
    d->plan.n_devices = cluster->n_devices;
    d->plan.device = device;
    return ESP_OK;
}

static esp_status_t prediction(draft_t *d)
{
    const esp_search_result_t *result = d->source->result;
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_sim_result_t run;
    esp_sim_t *sim;
    opts.links = d->source->opts->links;
    opts.barrier = d->source->opts->barrier;
    ESP_TRY(esp_sim_create(&d->arena.alloc, &sim));
    esp_status_t status = esp_sim_run(sim, result->deployment, &opts, &run, d->diag);
    if (status == ESP_OK)
        status = devices(d, &run);
    d->plan.links = opts.links;
    d->plan.barrier = opts.barrier;
    d->plan.step_time_ns = result->best.outcome.step_time_ns;
    d->plan.makespan_ns = status == ESP_OK ? run.makespan_ns : 0;
    d->plan.lower_bound_ns = result->lower_bound_ns;
    esp_sim_destroy(sim);
    return status;
}

static esp_status_t effort(draft_t *d)
{
    const esp_search_result_t *result = d->source->result;
    esp_plan_baseline_t *baseline =
        esp_i_arena_alloc(&d->arena, ESP_BASELINE_COUNT, sizeof *baseline);
    if (!baseline)
        return esp_i_nomem(d->diag);
    for (int32_t i = 0; i < ESP_BASELINE_COUNT; i++) {
        const esp_choice_t *choice = &result->baseline[i];
        baseline[i].name = esp_baseline_name((esp_baseline_t)i);
        baseline[i].step_time_ns = choice->op_mesh ? choice->outcome.step_time_ns : 0;
        baseline[i].fits = choice->op_mesh && choice->outcome.feasible;
    }
    d->plan.seed = (int64_t)(d->source->opts->seed & INT64_MAX);
    d->plan.evaluations = result->evaluations;
    d->plan.n_baselines = ESP_BASELINE_COUNT;
    d->plan.baseline = baseline;
    return ESP_OK;
}

/* ---- the strategy, over the meshes that it uses -------------------------------------------- */

/* The number of a mesh in the plan; it joins when it is asked for first. */
static int32_t use_mesh(draft_t *d, int32_t *number, esp_mesh_spec_t *mesh, int32_t m)
{
    esp_strategy_t *s = &d->plan.strategy;
    if (m == ESP_NONE)
        return ESP_NONE;
    if (number[m] == ESP_NONE) {
        number[m] = s->n_meshes++;
        mesh[number[m]] = d->source->result->best.strategy.mesh[m];
    }
    return number[m];
}

static const char *group_name(const esp_space_t *space, int32_t group)
{
    for (esp_op_id_t op = 0; op < space->cost->graph->n_ops; op++)
        if (space->op_group[op] == group)
            return space->cost->graph->op_name[op];
    return "empty";
}

static void groups(draft_t *d, int32_t *number, esp_mesh_spec_t *mesh, esp_plan_group_t *group)
{
    const esp_search_result_t *result = d->source->result;
    const esp_space_t *space = result->space;
    for (int32_t g = 0; g < space->n_groups; g++) {
        int32_t a = result->best.group_action[g];
        group[g] = (esp_plan_group_t){
            .name = group_name(space, g), .mesh = ESP_NONE, .sync = ESP_SYNC_MODEL_PARALLEL};
        if (a == ESP_NONE)
            continue;
        group[g].mesh = use_mesh(d, number, mesh, space->action[a].mesh);
        group[g].sync = space->action[a].sync;
        group[g].shares = space->action[a].shares;
    }
    d->plan.n_groups = space->n_groups;
    d->plan.group = group;
}

static esp_status_t strategy(draft_t *d)
{
    const esp_search_result_t *result = d->source->result;
    const esp_strategy_t *from = &result->best.strategy;
    const esp_graph_t *graph = d->source->cost->graph;
    esp_i_arena_t *arena = &d->arena;
    int32_t *number = esp_i_arena_alloc(arena, from->n_meshes, sizeof *number);
    esp_mesh_spec_t *mesh = esp_i_arena_alloc(arena, from->n_meshes, sizeof *mesh);
    int32_t *op_mesh = esp_i_arena_alloc(arena, graph->n_ops, sizeof *op_mesh);
    esp_plan_group_t *group = esp_i_arena_alloc(arena, result->space->n_groups, sizeof *group);
    if (!number || !mesh || !op_mesh || !group)
        return esp_i_nomem(d->diag);
    for (int32_t m = 0; m < from->n_meshes; m++)
        number[m] = ESP_NONE;
    d->plan.strategy = *from;
    d->plan.strategy.n_meshes = 0;
    d->plan.strategy.mesh = mesh;
    d->plan.strategy.op_mesh = op_mesh;
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        op_mesh[op] = use_mesh(d, number, mesh, from->op_mesh[op]);
    groups(d, number, mesh, group);
    d->plan.n_ops = graph->n_ops;
    d->plan.op_name = graph->op_name;
    d->plan.op_group = result->space->op_group;
    return ESP_OK;
}

esp_status_t esp_plan_create(const esp_plan_source_t *source, const esp_allocator_t *alloc,
                             esp_plan_t **plan_out, esp_diag_t *diag)
{
    draft_t d = {.source = source, .diag = diag};
    if (!source->result->best.outcome.feasible)
        return esp_i_fail(diag, ESP_ERR_INFEASIBLE, "the best deployment does not fit");
    esp_i_arena_init(&d.arena, alloc);
    esp_status_t status = provenance(&d);
    if (status == ESP_OK)
        status = prediction(&d);
    if (status == ESP_OK)
        status = effort(&d);
    if (status == ESP_OK)
        status = strategy(&d);
    if (status == ESP_OK)
        status = esp_plan_clone(&d.plan, alloc, plan_out, diag);
    esp_i_free(&d.arena.alloc, d.cluster_text);
    esp_i_arena_fini(&d.arena);
    return status;
}
