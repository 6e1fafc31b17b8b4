/* The evaluator: strategy -> step time and memory; cached, in parallel, deterministic. */
#include "search/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const int32_t esp_i_micro_choice[ESP_I_MICRO_CHOICES] = {1, 2, 4, 8};
const int64_t esp_i_bucket_choice[ESP_I_BUCKET_CHOICES] = {INT64_C(25) << 20, INT64_C(4) << 20,
                                                           INT64_C(100) << 20, 0};

double esp_i_now_s(void)
{
    return 1e-9 * (double)esp_i_now_ns();
}

/* ---- life cycle --------------------------------------------------------------------------------
 */

static esp_status_t worker_init(esp_i_evaluator_t *e, esp_i_worker_t *w, esp_diag_t *diag)
{
    int32_t n = e->space->cost->graph->n_ops;
    w->op_mesh = esp_i_alloc_array(&e->alloc, n, sizeof *w->op_mesh);
    w->op_mode = esp_i_alloc_array(&e->alloc, n, sizeof *w->op_mode);
    if (!w->op_mesh || !w->op_mode)
        return esp_i_nomem(diag);
    ESP_TRY(esp_lowerer_create(e->space->cost, &e->alloc, &w->lowerer, diag));
    return esp_sim_create(&e->alloc, &w->sim) == ESP_OK ? ESP_OK : esp_i_nomem(diag);
}

esp_status_t esp_i_evaluator_init(esp_i_evaluator_t *e, const esp_space_t *space,
                                  const esp_search_opts_t *opts, const esp_allocator_t *alloc,
                                  esp_diag_t *diag)
{
    *e = (esp_i_evaluator_t){.alloc = *alloc, .space = space, .opts = opts};
    e->n_workers = opts->threads;
    e->n_choices = space->n_groups + 2;
    e->started_s = esp_i_now_s();
    esp_i_arena_init(&e->keys, alloc);
    e->worker = esp_i_alloc_array(alloc, e->n_workers, sizeof *e->worker);
    e->best_choice = esp_i_alloc_array(alloc, e->n_choices, sizeof *e->best_choice);
    if (!e->worker || !e->best_choice)
        return esp_i_nomem(diag);
    for (int32_t i = 0; i < e->n_workers; i++)
        ESP_TRY(worker_init(e, &e->worker[i], diag));
    return esp_i_pool_create(alloc, e->n_workers, &e->pool) == ESP_OK ? ESP_OK : esp_i_nomem(diag);
}

void esp_i_evaluator_fini(esp_i_evaluator_t *e)
{
    esp_i_pool_destroy(e->pool);
    for (int32_t i = 0; i < e->n_workers && e->worker; i++) {
        esp_lowerer_destroy(e->worker[i].lowerer);
        esp_sim_destroy(e->worker[i].sim);
        esp_i_free(&e->alloc, e->worker[i].op_mesh);
        esp_i_free(&e->alloc, e->worker[i].op_mode);
    }
    esp_i_free(&e->alloc, e->worker);
    esp_i_free(&e->alloc, e->best_choice);
    esp_i_free(&e->alloc, e->cache);
    esp_i_arena_fini(&e->keys);
}

/* ---- one evaluation
 * ------------------------------------------------------------------------------- */

/* The device that has least memory left under live peaks per class. */
static void outcome_memory(const esp_deployment_t *d, const int64_t *class_bytes,
                           esp_outcome_t *outcome)
{
    int64_t least = INT64_MAX;
    for (int32_t device = 0; device < d->cluster->n_devices; device++) {
        int32_t c = d->device_class[device];
        if (c == ESP_NONE)
            continue;
        int64_t left = d->cluster->device_memory_bytes[device] - class_bytes[c];
        if (left < least) {
            least = left;
            outcome->worst_device = device;
        }
    }
    outcome->slack_bytes = least;
    outcome->feasible = least >= 0;
}

static esp_status_t strategy_evaluate(const esp_i_evaluator_t *e, esp_i_worker_t *w,
                                      const esp_strategy_t *strategy, esp_outcome_t *outcome)
{
    const esp_deployment_t *deployment;
    esp_sim_result_t sim;
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.links = e->opts->links;
    opts.barrier = e->opts->barrier;
    ESP_TRY(esp_lower(w->lowerer, strategy, &deployment, &w->diag));
    ESP_TRY(esp_sim_run(w->sim, deployment, &opts, &sim, &w->diag));
    *outcome = (esp_outcome_t){.step_time_ns = sim.step_time_ns};
    outcome_memory(deployment, sim.class_peak_bytes, outcome);
    return ESP_OK;
}

esp_status_t esp_i_point_strategy(esp_i_evaluator_t *e, esp_i_worker_t *w, const int32_t *choice,
                                  esp_strategy_t *strategy_out)
{
    int32_t n = e->space->n_groups;
    esp_decisions_t decisions = {.action = (int32_t *)(uintptr_t)choice,
                                 .micro_batches = esp_i_micro_choice[choice[n]],
                                 .bucket_bytes = esp_i_bucket_choice[choice[n + 1]],
                                 .sync_batchnorm = e->opts->sync_batchnorm};
    return esp_space_strategy(e->space, &decisions, w->op_mesh, w->op_mode, strategy_out);
}

bool esp_i_micro_allowed(const esp_i_evaluator_t *e, int32_t micro)
{
    int64_t batch = e->space->cost->graph->batch;
    int32_t m = esp_i_micro_choice[micro];
    return m == 1 || (batch >= m && batch % m == 0 && !e->opts->sync_batchnorm &&
                      esp_lowerer_micro_obstacle(e->worker[0].lowerer) == ESP_NONE);
}

esp_status_t esp_i_evaluate_strategy(esp_i_evaluator_t *e, const esp_strategy_t *strategy,
                                     esp_outcome_t *outcome_out, esp_diag_t *diag)
{
    esp_status_t status = strategy_evaluate(e, &e->worker[0], strategy, outcome_out);
    e->evaluations++;
    if (status != ESP_OK && diag)
        *diag = e->worker[0].diag;
    return status;
}

/* ---- the cache
 * -------------------------------------------------------------------------------------- */

static bool cache_grow(esp_i_evaluator_t *e, int32_t more)
{
    if (2 * (e->cache_count + more) < e->cache_slots)
        return true;
    int32_t slots = e->cache_slots ? 2 * e->cache_slots : 1024;
    esp_i_cached_t *cache = esp_i_alloc_array(&e->alloc, slots, sizeof *cache);
    if (!cache)
        return false;
    for (int32_t i = 0; i < e->cache_slots; i++) {
        if (!e->cache[i].choice)
            continue;
        uint64_t at = e->cache[i].hash & (uint64_t)(slots - 1);
        while (cache[at].choice)
            at = (at + 1) & (uint64_t)(slots - 1);
        cache[at] = e->cache[i];
    }
    esp_i_free(&e->alloc, e->cache);
    e->cache = cache;
    e->cache_slots = slots;
    return true;
}

/* The slot of a point: its own, or the empty one where it goes. */
static esp_i_cached_t *cache_slot(const esp_i_evaluator_t *e, const int32_t *choice, uint64_t hash)
{
    size_t bytes = (size_t)e->n_choices * sizeof *choice;
    uint64_t at = hash & (uint64_t)(e->cache_slots - 1);
    while (e->cache[at].choice &&
           (e->cache[at].hash != hash || memcmp(e->cache[at].choice, choice, bytes) != 0))
        at = (at + 1) & (uint64_t)(e->cache_slots - 1);
    return &e->cache[at];
}

/* ---- batches
 * ------------------------------------------------------------------------------------------- */

typedef struct batch {
    esp_i_evaluator_t *e;
    const int32_t *choice[ESP_I_BATCH];
    esp_outcome_t outcome[ESP_I_BATCH];
} batch_t;

static void batch_one(void *context, int32_t index, int32_t worker)
{
    batch_t *batch = context;
    esp_i_worker_t *w = &batch->e->worker[worker];
    esp_strategy_t strategy;
    if (w->status != ESP_OK)
        return;
    w->status = esp_i_point_strategy(batch->e, w, batch->choice[index], &strategy);
    if (w->status == ESP_OK)
        w->status = strategy_evaluate(batch->e, w, &strategy, &batch->outcome[index]);
}

bool esp_i_outcome_better(const esp_outcome_t *a, const esp_outcome_t *b)
{
    if (a->feasible != b->feasible)
        return a->feasible;
    return a->feasible ? a->step_time_ns < b->step_time_ns : a->slack_bytes > b->slack_bytes;
}

static void best_update(esp_i_evaluator_t *e, const int32_t *choice, const esp_outcome_t *outcome)
{
    if (e->has_best && !esp_i_outcome_better(outcome, &e->best))
        return;
    e->has_best = true;
    e->best = *outcome;
    memcpy(e->best_choice, choice, (size_t)e->n_choices * sizeof *choice);
}

/* Enters the points that are new into the cache (their outcome follows) and into the batch. */
static esp_status_t batch_collect(esp_i_evaluator_t *e, int32_t n, const int32_t *choices,
                                  esp_i_cached_t **slot, batch_t *batch, int32_t *fresh_out)
{
    size_t bytes = (size_t)e->n_choices * sizeof *choices;
    *fresh_out = 0;
    if (!cache_grow(e, n))
        return ESP_ERR_NOMEM;
    for (int32_t i = 0; i < n; i++) {
        const int32_t *choice = choices + (int64_t)i * e->n_choices;
        uint64_t hash = esp_i_hash_bytes(1469598103934665603u, choice, bytes);
        slot[i] = cache_slot(e, choice, hash);
        if (slot[i]->choice)
            continue;
        int32_t *key = esp_i_arena_alloc(&e->keys, e->n_choices, sizeof *key);
        if (!key)
            return ESP_ERR_NOMEM;
        memcpy(key, choice, bytes);
        *slot[i] = (esp_i_cached_t){.hash = hash, .choice = key};
        e->cache_count++;
        batch->choice[(*fresh_out)++] = key;
    }
    return ESP_OK;
}

static esp_status_t workers_status(esp_i_evaluator_t *e, esp_diag_t *diag)
{
    for (int32_t i = 0; i < e->n_workers; i++)
        if (e->worker[i].status != ESP_OK) {
            if (diag)
                *diag = e->worker[i].diag;
            return e->worker[i].status;
        }
    return ESP_OK;
}

esp_status_t esp_i_evaluate(esp_i_evaluator_t *e, int32_t n, const int32_t *choices,
                            esp_outcome_t *outcomes_out, esp_diag_t *diag)
{
    esp_i_cached_t *slot[ESP_I_BATCH];
    batch_t batch = {.e = e};
    int32_t fresh;
    esp_assert(n <= ESP_I_BATCH);
    if (batch_collect(e, n, choices, slot, &batch, &fresh) != ESP_OK)
        return esp_i_nomem(diag);
    esp_i_pool_run(e->pool, fresh, batch_one, &batch);
    ESP_TRY(workers_status(e, diag));
    e->evaluations += fresh;
    for (int32_t i = 0, f = 0; i < n; i++) {
        if (f < fresh && batch.choice[f] == slot[i]->choice)
            slot[i]->outcome = batch.outcome[f++];
        outcomes_out[i] = slot[i]->outcome;
        best_update(e, slot[i]->choice, &slot[i]->outcome);
    }
    return ESP_OK;
}

esp_i_cached_t *esp_i_best_cached(esp_i_evaluator_t *e, bool measured)
{
    esp_i_cached_t *best = NULL;
    for (int32_t i = 0; i < e->cache_slots; i++) {
        esp_i_cached_t *at = &e->cache[i];
        if (!at->choice || !at->outcome.feasible || (measured && !at->measured))
            continue;
        int64_t later = best ? at->outcome.step_time_ns - best->outcome.step_time_ns : -1;
        for (int32_t c = 0; later == 0 && c < e->n_choices; c++)
            later = at->choice[c] - best->choice[c];
        best = later < 0 ? at : best;
    }
    return best;
}

bool esp_i_evaluator_go_on(esp_i_evaluator_t *e, int64_t budget, const char *what, bool *stopped)
{
    if (*stopped || e->evaluations >= budget)
        return false;
    double elapsed = esp_i_now_s() - e->started_s, limit = e->opts->time_s;
    double fraction = (double)e->evaluations / (double)esp_i_max_i64(e->opts->evaluations, 1);
    if (limit > 0 && elapsed / limit > fraction)
        fraction = elapsed / limit;
    char text[64], best[32] = "none fits yet";
    if (e->best.feasible)
        esp_i_format_ns(e->best.step_time_ns, best);
    (void)snprintf(text, sizeof text, "%s; best step time: %s", what, best);
    if (e->opts->progress &&
        e->opts->progress(e->opts->progress_context, fraction < 1 ? fraction : 1, text) != 0)
        *stopped = true;
    return !*stopped && (limit <= 0 || elapsed < limit);
}

double esp_i_reward(const esp_outcome_t *outcome, int64_t base_ns)
{
    if (!outcome->feasible)
        return -1.0;
    double value = (double)base_ns / (double)esp_i_max_i64(outcome->step_time_ns, 1) - 1.0;
    return value > 1.0 ? sqrt(sqrt(value)) : value;
}
