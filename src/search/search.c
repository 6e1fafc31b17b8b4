/* The search: baselines, sweep, tree, polishing; then the best is packed, checked and measured. */
#include "search/search.h"

#include <string.h>

esp_search_opts_t esp_search_opts_default(void)
{
    return (esp_search_opts_t){.struct_size = sizeof(esp_search_opts_t),
                               .seed = 1,
                               .evaluations = 2000,
                               .threads = 1,
                               .max_groups = 40,
                               .links = ESP_LINK_FAIR,
                               .baseline = ESP_NONE};
}

static esp_status_t opts_check(const esp_search_opts_t *opts, esp_diag_t *diag)
{
    if (opts->struct_size != sizeof *opts)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "search options of another version");
    if (opts->evaluations < 0)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "evaluations is %d; it must not be negative",
                          opts->evaluations);
    if (opts->threads < 1 || opts->threads > 64)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "threads is %d; it must be in [1, 64]",
                          opts->threads);
    if (!(opts->time_s >= 0))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "time_s is %g; it must not be negative",
                          opts->time_s);
    if (opts->links != ESP_LINK_EXCLUSIVE && opts->links != ESP_LINK_FAIR)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "unknown link mode %d", (int)opts->links);
    if (opts->baseline < ESP_NONE || opts->baseline >= ESP_BASELINE_COUNT)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "unknown baseline %d", (int)opts->baseline);
    return ESP_OK;
}

typedef struct run {
    esp_allocator_t alloc;
    const esp_search_opts_t *opts;
    esp_search_result_t *result;
    esp_i_evaluator_t e;
    int32_t *starts; /* points near baselines that are no points */
    int32_t n_starts;
    bool stopped;
    esp_diag_t *diag;
} run_t;

/* ---- choosing the best
 * ---------------------------------------------------------------------------- */

static esp_status_t best_alloc(run_t *r)
{
    esp_choice_t *best = &r->result->best;
    int32_t n_ops = r->result->space->cost->graph->n_ops;
    best->op_mesh = esp_i_alloc_array(&r->alloc, n_ops, sizeof *best->op_mesh);
    best->op_mode = esp_i_alloc_array(&r->alloc, n_ops, sizeof *best->op_mode);
    best->group_action =
        esp_i_alloc_array(&r->alloc, r->result->space->n_groups, sizeof *best->group_action);
    return best->op_mesh && best->op_mode && best->group_action ? ESP_OK : esp_i_nomem(r->diag);
}

/* Copies a baseline (or the best point, baseline == ESP_NONE) into result->best. */
static esp_status_t best_take(run_t *r, int32_t baseline)
{
    esp_choice_t *best = &r->result->best;
    const esp_space_t *space = r->result->space;
    size_t n_ops = (size_t)space->cost->graph->n_ops, n_groups = (size_t)space->n_groups;
    r->result->from_baseline = baseline;
    if (baseline == ESP_NONE) {
        esp_i_worker_t *w = &r->e.worker[0];
        if (esp_i_point_strategy(&r->e, w, r->e.best_choice, &best->strategy) != ESP_OK)
            return esp_i_nomem(r->diag);
        memcpy(best->group_action, r->e.best_choice, n_groups * sizeof *best->group_action);
        best->outcome = r->e.best;
    } else {
        const esp_choice_t *from = &r->result->baseline[baseline];
        best->strategy = from->strategy;
        memcpy(best->group_action, from->group_action, n_groups * sizeof *best->group_action);
        best->outcome = from->outcome;
    }
    memcpy(best->op_mesh, best->strategy.op_mesh, n_ops * sizeof *best->op_mesh);
    memcpy(best->op_mode, best->strategy.op_mode, n_ops * sizeof *best->op_mode);
    best->strategy.op_mesh = best->op_mesh;
    best->strategy.op_mode = best->op_mode;
    return ESP_OK;
}

/* ---- measuring
 * ------------------------------------------------------------------------------------- */

static void arena_outcome(const esp_deployment_t *d, int64_t step_time_ns, esp_outcome_t *outcome)
{
    outcome->step_time_ns = step_time_ns;
    outcome->slack_bytes = INT64_MAX;
    for (int32_t device = 0; device < d->cluster->n_devices; device++) {
        int32_t c = d->device_class[device];
        if (c == ESP_NONE)
            continue;
        int64_t left = d->cluster->device_memory_bytes[device] - d->class_arena_bytes[c];
        if (left < outcome->slack_bytes) {
            outcome->slack_bytes = left;
            outcome->worst_device = device;
        }
    }
    outcome->feasible = outcome->slack_bytes >= 0;
}

/*
 * A strategy as it would run: arenas packed by the simulated timeline, then simulated again with
 * the dependencies that the reuse of memory adds.
 */
static esp_status_t measure(run_t *r, const esp_strategy_t *strategy, esp_outcome_t *outcome,
                            const esp_deployment_t **deployment_out, esp_sim_result_t *sim_out)
{
    esp_i_worker_t *w = &r->e.worker[0];
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.links = r->opts->links;
    opts.barrier = r->opts->barrier;
    opts.timeline = 1;
    ESP_TRY(esp_lower(w->lowerer, strategy, deployment_out, r->diag));
    ESP_TRY(esp_sim_run(w->sim, *deployment_out, &opts, sim_out, r->diag));
    ESP_TRY(esp_deployment_pack_timed(w->lowerer, sim_out->start_ns, sim_out->end_ns,
                                      sim_out->step_time_ns, r->diag));
    ESP_TRY(esp_sim_run(w->sim, *deployment_out, &opts, sim_out, r->diag));
    arena_outcome(*deployment_out, sim_out->step_time_ns, outcome);
    return ESP_OK;
}

static esp_status_t baselines_measure(run_t *r)
{
    const esp_deployment_t *deployment;
    esp_sim_result_t sim;
    for (int32_t b = 0; b < ESP_BASELINE_COUNT; b++) {
        esp_choice_t *baseline = &r->result->baseline[b];
        if (baseline->op_mesh)
            ESP_TRY(measure(r, &baseline->strategy, &baseline->outcome, &deployment, &sim));
    }
    return ESP_OK;
}

/*
 * While searching, memory is the live peak; a plan is judged by its packed arenas, which may be
 * larger and make it slower. So the best point is measured, again and again, until it stays the
 * best.
 */
enum { PACKING_TRIES = 32 };

static esp_status_t point_measure(run_t *r, const int32_t *choice, esp_outcome_t *outcome_out)
{
    const esp_deployment_t *deployment;
    esp_sim_result_t sim;
    memmove(r->e.best_choice, choice, (size_t)r->e.n_choices * sizeof *choice);
    ESP_TRY(best_take(r, ESP_NONE));
    return measure(r, &r->result->best.strategy, outcome_out, &deployment, &sim);
}

static esp_status_t point_settle(run_t *r)
{
    esp_i_cached_t *best = esp_i_best_cached(&r->e, false);
    if (!best) /* nothing fits: the least lacking */
        return point_measure(r, r->e.best_choice, &r->e.best);
    for (int32_t i = 0; i < PACKING_TRIES && best && !best->measured; i++) {
        ESP_TRY(point_measure(r, best->choice, &best->outcome));
        best->measured = true;
        r->e.best = best->outcome;
        best = esp_i_best_cached(&r->e, false);
    }
    best = esp_i_best_cached(&r->e, true);
    if (best) {
        r->e.best = best->outcome;
        memmove(r->e.best_choice, best->choice, (size_t)r->e.n_choices * sizeof *best->choice);
    }
    return ESP_OK;
}

/* The point, unless a baseline is as good. */
static int32_t best_of_all(const run_t *r)
{
    int32_t chosen = ESP_NONE;
    const esp_outcome_t *best = &r->e.best;
    for (int32_t b = 0; b < ESP_BASELINE_COUNT; b++) {
        const esp_choice_t *baseline = &r->result->baseline[b];
        bool better = esp_i_outcome_better(&baseline->outcome, best);
        bool worse = esp_i_outcome_better(best, &baseline->outcome);
        if (!baseline->op_mesh || worse || (chosen != ESP_NONE && !better))
            continue;
        chosen = b;
        best = &baseline->outcome;
    }
    return chosen;
}

/* What was found, or the baseline that was asked for. */
static esp_status_t best_choose(run_t *r)
{
    int32_t wanted = r->opts->baseline;
    ESP_TRY(baselines_measure(r));
    if (wanted != ESP_NONE && !r->result->baseline[wanted].op_mesh)
        return esp_i_fail(r->diag, ESP_ERR_INFEASIBLE, "there is no deployment of the kind %s",
                          esp_baseline_name((esp_baseline_t)wanted));
    if (wanted != ESP_NONE)
        return best_take(r, wanted);
    ESP_TRY(point_settle(r));
    return best_take(r, best_of_all(r));
}

static esp_status_t best_settle(run_t *r)
{
    const esp_deployment_t *d;
    esp_sim_result_t sim;
    ESP_TRY(best_choose(r));
    ESP_TRY(measure(r, &r->result->best.strategy, &r->result->best.outcome, &d, &sim));
    for (int32_t device = 0; device < d->cluster->n_devices; device++) {
        int32_t c = d->device_class[device];
        r->result->device_peak_bytes[device] = c == ESP_NONE ? 0 : d->class_arena_bytes[c];
        r->result->device_busy_ns[device] = c == ESP_NONE ? 0 : sim.class_busy_ns[c];
    }
    ESP_TRY(esp_deployment_check(d, r->diag));
    return esp_deployment_clone(d, &r->alloc, &r->result->deployment) == ESP_OK
               ? ESP_OK
               : esp_i_nomem(r->diag);
}

/* ---- proofs
 * --------------------------------------------------------------------------------------------- */

/* Parameters, state and statistics have a home somewhere in every plan. */
static void memory_prove(esp_search_result_t *result)
{
    const esp_cost_t *cost = result->space->cost;
    double needed = 0;
    for (esp_tensor_id_t t = 0; t < cost->graph->n_tensors; t++)
        if (cost->graph->tensor_next[t] != ESP_NONE)
            needed += cost->tensor_bytes[t];
    result->memory_needed_bytes = (int64_t)needed;
    result->memory_there_bytes = 0;
    for (int32_t d = 0; d < cost->cluster->n_devices; d++)
        result->memory_there_bytes += cost->cluster->device_memory_bytes[d];
    result->proven_infeasible = result->memory_needed_bytes > result->memory_there_bytes;
}

/* ---- the whole
 * ------------------------------------------------------------------------------------------- */

static esp_status_t starts_evaluate(run_t *r)
{
    esp_outcome_t outcome;
    for (int32_t i = 0; i < r->n_starts; i++)
        ESP_TRY(
            esp_i_evaluate(&r->e, 1, r->starts + (int64_t)i * r->e.n_choices, &outcome, r->diag));
    return ESP_OK;
}

static esp_status_t run_search(run_t *r)
{
    int64_t budget = 0;
    ESP_TRY(esp_i_baselines(&r->e, r->result, r->starts, &r->n_starts, r->diag));
    budget = r->e.evaluations;
    r->result->evaluations = budget;
    if (r->opts->baseline != ESP_NONE)
        return best_settle(r);
    if (r->opts->evaluations > 0)
        ESP_TRY(starts_evaluate(r));
    const esp_choice_t *base = &r->result->baseline[ESP_BASELINE_DP_ALLREDUCE];
    int64_t base_ns = base->outcome.feasible ? base->outcome.step_time_ns : r->e.best.step_time_ns;
    int64_t half = budget + r->opts->evaluations / 2, all = budget + r->opts->evaluations;
    if (esp_i_point_count(&r->e) <= r->opts->evaluations) {
        ESP_TRY(esp_i_enumerate(&r->e, all, &r->stopped, r->diag));
    } else {
        ESP_TRY(esp_i_sweep(&r->e, half, &r->stopped, r->diag));
        ESP_TRY(esp_i_stages(&r->e, half, &r->stopped, r->diag));
        ESP_TRY(esp_i_mcts(&r->e, half, base_ns, &r->stopped, r->diag));
        ESP_TRY(esp_i_polish(&r->e, all, &r->stopped, r->diag));
    }
    r->result->evaluations = r->e.evaluations;
    return best_settle(r);
}

static esp_status_t run_prepare(run_t *r, const esp_cost_t *cost)
{
    esp_space_opts_t space_opts = esp_space_opts_default();
    esp_space_t *space;
    space_opts.max_groups = r->opts->max_groups;
    space_opts.seed = r->opts->seed;
    ESP_TRY(esp_space_create(cost, &space_opts, &r->alloc, &space, r->diag));
    r->result->space = space;
    ESP_TRY(esp_i_evaluator_init(&r->e, space, r->opts, &r->alloc, r->diag));
    int64_t devices = cost->cluster->n_devices;
    r->starts = esp_i_alloc_array(&r->alloc, (int64_t)4 * r->e.n_choices, sizeof *r->starts);
    r->result->device_peak_bytes = esp_i_alloc_array(&r->alloc, devices, sizeof(int64_t));
    r->result->device_busy_ns = esp_i_alloc_array(&r->alloc, devices, sizeof(int64_t));
    if (!r->starts || !r->result->device_peak_bytes || !r->result->device_busy_ns)
        return esp_i_nomem(r->diag);
    if (esp_lower_bound(cost, &r->alloc, &r->result->lower_bound_ns) != ESP_OK)
        return esp_i_nomem(r->diag);
    return best_alloc(r);
}

/* A result carries its allocator in front of it. */
typedef struct owned_result {
    esp_search_result_t result;
    esp_allocator_t alloc;
} owned_result_t;

esp_status_t esp_search(const esp_cost_t *cost, const esp_search_opts_t *opts_or_null,
                        const esp_allocator_t *alloc_or_null, esp_search_result_t **result_out,
                        esp_diag_t *diag)
{
    esp_search_opts_t opts = opts_or_null ? *opts_or_null : esp_search_opts_default();
    ESP_TRY(opts_check(&opts, diag));
    if (cost->graph->n_parameters == 0 || cost->graph->loss == ESP_NONE)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "graph %s is not a training graph",
                          cost->graph->name);
    run_t r = {.alloc = esp_i_allocator(alloc_or_null), .opts = &opts, .diag = diag};
    owned_result_t *owned = esp_i_alloc_array(&r.alloc, 1, sizeof *owned);
    if (!owned)
        return esp_i_nomem(diag);
    owned->alloc = r.alloc;
    r.result = &owned->result;
    esp_status_t status = run_prepare(&r, cost);
    if (status == ESP_OK)
        status = run_search(&r);
    if (status == ESP_OK) {
        memory_prove(r.result);
        r.result->search_time_s = esp_i_now_s() - r.e.started_s;
    }
    if (r.e.space)
        esp_i_evaluator_fini(&r.e);
    esp_i_free(&r.alloc, r.starts);
    if (status != ESP_OK) {
        esp_search_result_destroy(r.result);
        return status;
    }
    *result_out = r.result;
    return r.stopped ? ESP_STOPPED : ESP_OK;
}

static void choice_free(const esp_allocator_t *alloc, esp_choice_t *choice)
{
    esp_i_free(alloc, choice->op_mesh);
    esp_i_free(alloc, choice->op_mode);
    esp_i_free(alloc, choice->group_action);
}

void esp_search_result_destroy(esp_search_result_t *result)
{
    if (!result)
        return;
    owned_result_t *owned = (owned_result_t *)result;
    esp_allocator_t alloc = owned->alloc;
    choice_free(&alloc, &result->best);
    for (int32_t b = 0; b < ESP_BASELINE_COUNT; b++)
        choice_free(&alloc, &result->baseline[b]);
    esp_deployment_destroy(result->deployment);
    esp_i_free(&alloc, result->device_peak_bytes);
    esp_i_free(&alloc, result->device_busy_ns);
    esp_space_destroy((esp_space_t *)(uintptr_t)result->space);
    esp_i_free(&alloc, owned);
}
