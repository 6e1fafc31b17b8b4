/* The baselines: strategies that people use, and starting points of the search. */
#include "search/search.h"

#include <string.h>

const char *esp_baseline_name(esp_baseline_t baseline)
{
    switch (baseline) {
#define NAME(name, text)                                                                           \
    case ESP_BASELINE_##name:                                                                      \
        return text;
        ESP_BASELINE_MAP(NAME)
#undef NAME
    case ESP_BASELINE_COUNT:
        break;
    }
    return "?";
}

typedef struct context {
    esp_i_evaluator_t *e;
    esp_search_result_t *result;
    int32_t *point; /* scratch: one point */
    int32_t *starts, n_starts;
    esp_diag_t *diag;
} context_t;

/* ---- keeping ------------------------------------------------------------------------------------
 */

static esp_status_t choice_alloc(context_t *c, esp_choice_t *choice)
{
    int32_t n_ops = c->e->space->cost->graph->n_ops, n_groups = c->e->space->n_groups;
    if (choice->op_mesh)
        return ESP_OK;
    choice->op_mesh = esp_i_alloc_array(&c->e->alloc, n_ops, sizeof *choice->op_mesh);
    choice->op_mode = esp_i_alloc_array(&c->e->alloc, n_ops, sizeof *choice->op_mode);
    choice->group_action = esp_i_alloc_array(&c->e->alloc, n_groups, sizeof *choice->group_action);
    return choice->op_mesh && choice->op_mode && choice->group_action ? ESP_OK
                                                                      : esp_i_nomem(c->diag);
}

/* Keeps a strategy as the baseline if it is the first or better than the one kept. */
static esp_status_t keep(context_t *c, esp_baseline_t baseline, const esp_strategy_t *strategy,
                         const int32_t *group_action, const esp_outcome_t *outcome)
{
    esp_choice_t *choice = &c->result->baseline[baseline];
    const esp_space_t *space = c->e->space;
    size_t n_ops = (size_t)space->cost->graph->n_ops;
    if (choice->op_mesh && !esp_i_outcome_better(outcome, &choice->outcome))
        return ESP_OK;
    ESP_TRY(choice_alloc(c, choice));
    memcpy(choice->op_mesh, strategy->op_mesh, n_ops * sizeof *choice->op_mesh);
    memcpy(choice->op_mode, strategy->op_mode, n_ops * sizeof *choice->op_mode);
    for (int32_t g = 0; g < space->n_groups; g++)
        choice->group_action[g] = group_action ? group_action[g] : ESP_NONE;
    choice->strategy = *strategy;
    choice->strategy.op_mesh = choice->op_mesh;
    choice->strategy.op_mode = choice->op_mode;
    choice->outcome = *outcome;
    return ESP_OK;
}

static void start_add(context_t *c, const int32_t *point)
{
    memcpy(c->starts + (int64_t)c->n_starts++ * c->e->n_choices, point,
           (size_t)c->e->n_choices * sizeof *point);
}

/* The point with the same action for all groups, plan-wide choices 0. */
static void point_fill(context_t *c, int32_t action)
{
    for (int32_t g = 0; g < c->e->space->n_groups; g++)
        c->point[g] = action;
    c->point[c->e->space->n_groups] = c->point[c->e->space->n_groups + 1] = 0;
}

/* Evaluates one action for everything. */
static esp_status_t try_action(context_t *c, esp_baseline_t baseline, int32_t action)
{
    esp_outcome_t outcome;
    esp_strategy_t strategy;
    if (action == ESP_NONE)
        return ESP_OK;
    point_fill(c, action);
    ESP_TRY(esp_i_evaluate(c->e, 1, c->point, &outcome, c->diag));
    ESP_TRY(esp_i_point_strategy(c->e, &c->e->worker[0], c->point, &strategy));
    return keep(c, baseline, &strategy, c->point, &outcome);
}

/* ---- data parallel
 * -------------------------------------------------------------------------------- */

static int32_t device_action(const esp_space_t *space, int32_t device)
{
    return esp_space_find_action(space, 0, device, ESP_SHARES_EQUAL, ESP_SYNC_ALLREDUCE);
}

static uint64_t all_groups(const esp_cluster_t *cluster)
{
    if (cluster->n_groups > 64)
        return 1;
    return cluster->n_groups == 64 ? ~(uint64_t)0 : ((uint64_t)1 << cluster->n_groups) - 1;
}

/* One device per type: the others of a type are no faster, but may have more memory. */
static esp_status_t try_singles(context_t *c)
{
    const esp_space_t *space = c->e->space;
    for (int32_t a = 0; a < space->n_actions; a++) {
        const esp_action_t *action = &space->action[a];
        bool seen = false;
        for (int32_t b = 0; b < a && action->device != ESP_NONE; b++) {
            const esp_action_t *other = &space->action[b];
            const esp_cluster_t *cluster = space->cost->cluster;
            seen = seen ||
                   (other->device != ESP_NONE &&
                    cluster->device_type[other->device] == cluster->device_type[action->device] &&
                    cluster->device_memory_bytes[other->device] ==
                        cluster->device_memory_bytes[action->device]);
        }
        if (action->device != ESP_NONE && !seen)
            ESP_TRY(try_action(c, ESP_BASELINE_SINGLE, a));
    }
    return ESP_OK;
}

static bool action_is_alike(const esp_space_t *space, const esp_action_t *action)
{
    const esp_mesh_spec_t *mesh = &space->mesh[action->mesh];
    const esp_cluster_t *cluster = space->cost->cluster;
    for (int32_t k = 1; k < mesh->n; k++)
        if (cluster->device_type[mesh->device[k]] != cluster->device_type[mesh->device[0]])
            return false;
    return true;
}

static esp_status_t try_subsets(context_t *c)
{
    const esp_space_t *space = c->e->space;
    for (int32_t a = 0; a < space->n_actions; a++) {
        const esp_action_t *action = &space->action[a];
        if (action->shares == ESP_SHARES_EQUAL && action->sync == ESP_SYNC_ALLREDUCE &&
            action_is_alike(space, action))
            ESP_TRY(try_action(c, ESP_BASELINE_DP_SUBSET, a));
    }
    return ESP_OK;
}

static esp_status_t try_data_parallel(context_t *c)
{
    const esp_space_t *space = c->e->space;
    uint64_t all = all_groups(space->cost->cluster);
    int32_t reduce =
        esp_space_find_action(space, all, ESP_NONE, ESP_SHARES_EQUAL, ESP_SYNC_ALLREDUCE);
    int32_t speed =
        esp_space_find_action(space, all, ESP_NONE, ESP_SHARES_PROPORTIONAL, ESP_SYNC_ALLREDUCE);
    int32_t server = esp_space_find_action(space, all, ESP_NONE, ESP_SHARES_EQUAL, ESP_SYNC_PS);
    if (reduce == ESP_NONE) /* a cluster of one device */
        reduce = server = device_action(space, 0);
    ESP_TRY(try_action(c, ESP_BASELINE_DP_ALLREDUCE, reduce));
    ESP_TRY(try_action(c, ESP_BASELINE_DP_PROPORTIONAL, speed == ESP_NONE ? reduce : speed));
    return try_action(c, ESP_BASELINE_DP_PS, server);
}

/* ---- model parallel
 * --------------------------------------------------------------------------------- */

/* Per-op strategy of single-device meshes from a device per base group. */
static void bases_strategy(const context_t *c, const int32_t *base_device, int32_t micro,
                           esp_i_worker_t *w, esp_strategy_t *strategy)
{
    const esp_space_t *space = c->e->space;
    const esp_graph_t *g = space->cost->graph;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        int32_t base = space->op_base[op];
        w->op_mesh[op] = base == ESP_NONE ? ESP_NONE : base_device[base];
        bool update = base == ESP_NONE || g->op_kind[op] == ESP_KIND_UPDATE;
        w->op_mode[op] = update ? ESP_MODE_WHOLE : ESP_MODE_BATCH;
    }
    *strategy = (esp_strategy_t){.n_meshes = space->n_meshes,
                                 .mesh = space->mesh,
                                 .op_mesh = w->op_mesh,
                                 .op_mode = w->op_mode,
                                 .micro_batches = esp_i_micro_choice[micro],
                                 .bucket_bytes = esp_i_bucket_choice[0],
                                 .sync_batchnorm = c->e->opts->sync_batchnorm};
}

/* The point nearest to a device per base group: each op group on the device with most of its time.
 */
static esp_status_t bases_start(context_t *c, const int32_t *base_device, int32_t micro)
{
    const esp_space_t *space = c->e->space;
    int32_t n_devices = space->cost->cluster->n_devices;
    double *time =
        esp_i_alloc_array(&c->e->alloc, (int64_t)space->n_groups * n_devices, sizeof *time);
    uint8_t *seen = esp_i_alloc_array(&c->e->alloc, space->n_base, 1);
    bool fine = time && seen;
    for (esp_op_id_t op = 0; fine && op < space->cost->graph->n_ops; op++) {
        int32_t base = space->op_base[op];
        if (base == ESP_NONE || seen[base])
            continue;
        seen[base] = 1;
        time[(int64_t)space->op_group[op] * n_devices + base_device[base]] +=
            space->base_ns[base] + 1;
    }
    bool complete = fine;
    for (int32_t g = 0; complete && g < space->n_groups; g++) {
        int32_t device = 0;
        for (int32_t d = 1; d < n_devices; d++)
            if (time[(int64_t)g * n_devices + d] > time[(int64_t)g * n_devices + device])
                device = d;
        c->point[g] = device_action(space, device);
        complete = c->point[g] != ESP_NONE; /* large clusters: not every device is an action */
    }
    c->point[space->n_groups] = micro;
    c->point[space->n_groups + 1] = 0;
    if (complete)
        start_add(c, c->point);
    esp_i_free(&c->e->alloc, time);
    esp_i_free(&c->e->alloc, seen);
    return fine ? ESP_OK : esp_i_nomem(c->diag);
}

static esp_status_t try_bases(context_t *c, esp_baseline_t baseline, const int32_t *base_device,
                              int32_t micro)
{
    esp_strategy_t strategy;
    esp_outcome_t outcome;
    bases_strategy(c, base_device, micro, &c->e->worker[0], &strategy);
    ESP_TRY(esp_i_evaluate_strategy(c->e, &strategy, &outcome, c->diag));
    return keep(c, baseline, &strategy, NULL, &outcome);
}

static esp_status_t try_pipeline(context_t *c, int32_t *base_device)
{
    esp_space_divide(c->e->space, base_device);
    int32_t best = 0;
    for (int32_t micro = 0; micro < ESP_I_MICRO_CHOICES; micro++) {
        if (!esp_i_micro_allowed(c->e, micro))
            continue;
        esp_outcome_t before = c->result->baseline[ESP_BASELINE_MP_PIPELINE].outcome;
        ESP_TRY(try_bases(c, ESP_BASELINE_MP_PIPELINE, base_device, micro));
        esp_outcome_t after = c->result->baseline[ESP_BASELINE_MP_PIPELINE].outcome;
        if (after.step_time_ns != before.step_time_ns)
            best = micro;
    }
    return bases_start(c, base_device, best);
}

static esp_status_t try_model_parallel(context_t *c)
{
    const esp_space_t *space = c->e->space;
    int32_t *base_device = esp_i_alloc_array(&c->e->alloc, space->n_base, sizeof *base_device);
    if (!base_device)
        return esp_i_nomem(c->diag);
    esp_status_t status = esp_space_partition(space, c->e->opts->seed, base_device);
    if (status == ESP_OK)
        status = try_bases(c, ESP_BASELINE_MP_METIS, base_device, 0);
    if (status == ESP_OK)
        status = bases_start(c, base_device, 0);
    if (status == ESP_OK)
        status = try_pipeline(c, base_device);
    esp_i_free(&c->e->alloc, base_device);
    return status;
}

esp_status_t esp_i_baselines(esp_i_evaluator_t *e, esp_search_result_t *result, int32_t *starts,
                             int32_t *n_starts, esp_diag_t *diag)
{
    context_t c = {.e = e, .result = result, .starts = starts, .diag = diag};
    c.point = esp_i_alloc_array(&e->alloc, e->n_choices, sizeof *c.point);
    if (!c.point)
        return esp_i_nomem(diag);
    esp_status_t status = try_singles(&c);
    if (status == ESP_OK)
        status = try_data_parallel(&c);
    if (status == ESP_OK)
        status = try_subsets(&c);
    if (status == ESP_OK)
        status = try_model_parallel(&c);
    esp_i_free(&e->alloc, c.point);
    *n_starts = c.n_starts;
    return status;
}
