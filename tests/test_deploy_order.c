/*
 * The global order against a naive list scheduler, which looks at every task for every decision: on
 * random deployments as they are and with other durations (none, ties, as unequal as can be), other
 * classes and other collectives than lowering chose.
 */
#include "deployments.h"

#include "deploy/lowerer.h"

#include <stdlib.h>
#include <string.h>

/* ---- the naive twin ------------------------------------------------------------------------ */

typedef struct naive {
    const esp_deployment_t *d;
    int64_t *rank, *end; /* per task; end: of those that have started */
    int32_t *waiting;    /* per task: predecessors left */
    bool *started, *ended;
    int64_t *collective_free; /* per class */
    int32_t *order, n;
    int32_t together, at_once; /* ends at one instant; ends with a start at the same instant */
} naive_t;

static void *zeros(int64_t n, size_t size)
{
    void *block = calloc((size_t)n + 1, size);
    assert_non_null(block);
    return block;
}

static bool is_update(const esp_deployment_t *d, int32_t t)
{
    return d->task_op[t] != ESP_NONE && d->graph->op_phase[d->task_op[t]] == ESP_PHASE_UPDATE;
}

/* Longest remaining path; leaf: leads to nothing but updates. */
static void paths_find(const esp_deployment_t *d, int64_t *rank, bool *leaf)
{
    for (int32_t t = d->n_tasks - 1; t >= 0; t--) {
        leaf[t] = true;
        for (int32_t e = d->successor_offset[t]; e < d->successor_offset[t + 1]; e++) {
            rank[t] = esp_i_max_i64(rank[t], rank[d->successor[e]]);
            leaf[t] = leaf[t] && leaf[d->successor[e]];
        }
        rank[t] += d->task_ns[t];
        leaf[t] = leaf[t] || is_update(d, t);
    }
}

/* Leaves follow what remains after the last of their predecessors. */
static void leaves_raise(const esp_deployment_t *d, int64_t *rank, const bool *leaf)
{
    int64_t *after = zeros(d->n_tasks, sizeof *after);
    for (int32_t t = 0; t < d->n_tasks; t++)
        after[t] = -1;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        if (leaf[t] && !is_update(d, t) && after[t] >= 0)
            rank[t] = esp_i_max_i64(rank[t], after[t] - 1);
        for (int32_t e = d->successor_offset[t]; e < d->successor_offset[t + 1]; e++) {
            int64_t *of = &after[d->successor[e]], left = rank[t] - d->task_ns[t];
            *of = *of < 0 || left < *of ? left : *of;
        }
    }
    free(after);
}

/* Earlier micro-batches first, what runs once before them, updates last. */
static void micro_batches_rank(const esp_deployment_t *d, int64_t *rank)
{
    int64_t above = 1, n_micro = d->micro_batches;
    for (int32_t t = 0; t < d->n_tasks; t++)
        above = esp_i_max_i64(above, rank[t] + 1);
    above = esp_i_min_i64(above, INT64_MAX / (n_micro + 2));
    for (int32_t t = 0; t < d->n_tasks && n_micro > 1; t++)
        if (d->task_micro[t] != ESP_NONE)
            rank[t] += above * (n_micro - d->task_micro[t]);
        else if (!is_update(d, t))
            rank[t] += above * (n_micro + 1);
}

static naive_t naive_init(const esp_deployment_t *d)
{
    const int64_t n = d->n_tasks;
    naive_t s = {.d = d};
    bool *leaf = zeros(n, sizeof *leaf);
    s.rank = zeros(n, sizeof *s.rank);
    s.end = zeros(n, sizeof *s.end);
    s.waiting = zeros(n, sizeof *s.waiting);
    s.started = zeros(n, sizeof *s.started);
    s.ended = zeros(n, sizeof *s.ended);
    s.collective_free = zeros(d->n_classes, sizeof *s.collective_free);
    s.order = zeros(n, sizeof *s.order);
    memcpy(s.waiting, d->n_predecessors, (size_t)n * sizeof *s.waiting);
    paths_find(d, s.rank, leaf);
    leaves_raise(d, s.rank, leaf);
    micro_batches_rank(d, s.rank);
    free(leaf);
    return s;
}

static void naive_fini(naive_t *s)
{
    void *blocks[] = {s->rank,  s->end,   s->waiting,        s->started,
                      s->ended, s->order, s->collective_free};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

static void start(naive_t *s, int32_t task, int64_t now)
{
    s->started[task] = true;
    s->end[task] = now + s->d->task_ns[task];
    s->order[s->n++] = task;
    s->at_once += s->d->task_ns[task] == 0;
}

/* A movement; a collective waits for the collective streams of all its classes. */
static void move(naive_t *s, int32_t task, int64_t now)
{
    const esp_deployment_t *d = s->d;
    int32_t comm = d->task_comm[task];
    int32_t first = d->comm_class_offset[comm], end = d->comm_class_offset[comm + 1];
    for (int32_t i = first; i < end && d->comm_collective[comm]; i++)
        now = esp_i_max_i64(now, s->collective_free[d->comm_class[i]]);
    start(s, task, now);
    for (int32_t i = first; i < end && d->comm_collective[comm]; i++)
        s->collective_free[d->comm_class[i]] = s->end[task];
}

/* Every class that runs nothing takes the ready task with the longest path, the first of equals. */
static void classes_start(naive_t *s, int64_t now)
{
    const esp_deployment_t *d = s->d;
    int32_t *best = zeros(d->n_classes, sizeof *best);
    bool *busy = zeros(d->n_classes, sizeof *busy);
    for (int32_t c = 0; c < d->n_classes; c++)
        best[c] = ESP_NONE;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        int32_t c = d->task_class[t];
        if (c == ESP_NONE || s->waiting[t] > 0)
            continue;
        busy[c] |= s->started[t] && !s->ended[t];
        if (!s->started[t] && (best[c] == ESP_NONE || s->rank[t] > s->rank[best[c]]))
            best[c] = t;
    }
    for (int32_t c = 0; c < d->n_classes; c++)
        if (!busy[c] && best[c] != ESP_NONE)
            start(s, best[c], now);
    free(best);
    free(busy);
}

/* The first task that ends at that time. */
static int32_t first_end(const naive_t *s, int64_t time)
{
    for (int32_t t = 0; t < s->d->n_tasks; t++)
        if (s->started[t] && !s->ended[t] && s->end[t] == time)
            return t;
    return ESP_NONE;
}

static int64_t next_time(const naive_t *s)
{
    int64_t time = INT64_MAX;
    for (int32_t t = 0; t < s->d->n_tasks; t++)
        if (s->started[t] && !s->ended[t])
            time = esp_i_min_i64(time, s->end[t]);
    return time;
}

static void end(naive_t *s, int32_t task, int64_t now)
{
    const esp_deployment_t *d = s->d;
    s->ended[task] = true;
    for (int32_t e = d->successor_offset[task]; e < d->successor_offset[task + 1]; e++)
        if (--s->waiting[d->successor[e]] == 0 && d->task_class[d->successor[e]] == ESP_NONE)
            move(s, d->successor[e], now);
}

/* What ends at an instant ends task by task, and so do movements of no duration that start there;
 * then the classes start what is ready. */
static void naive_order(naive_t *s)
{
    const esp_deployment_t *d = s->d;
    for (int32_t t = 0; t < d->n_tasks; t++)
        if (s->waiting[t] == 0 && d->task_class[t] == ESP_NONE)
            move(s, t, 0);
    classes_start(s, 0);
    for (int64_t now; (now = next_time(s)) != INT64_MAX;) {
        int32_t n = 0;
        for (int32_t task; (task = first_end(s, now)) != ESP_NONE; n++)
            end(s, task, now);
        s->together += n > 1;
        classes_start(s, now);
    }
}

/* ---- other deployments ---------------------------------------------------------------------- */

enum { AS_COSTED, NONE, FEW, SPARSE, UNEQUAL, DURATIONS };

static int64_t duration(int32_t kind, int64_t costed, esp_i_rng_t *rng)
{
    switch (kind) {
    case NONE:
        return 0;
    case FEW:
        return esp_i_rng_below(rng, 4);
    case SPARSE:
        return esp_i_rng_below(rng, 3) ? 0 : 5;
    case UNEQUAL:
        return esp_i_rng_below(rng, INT64_C(1) << esp_i_rng_below(rng, 45));
    default:
        return costed;
    }
}

/* Movements may take none, or all so long that classes run on for a while. */
static void change_durations(esp_lowerer_t *lw, int32_t kind, bool long_moves, esp_i_rng_t *rng)
{
    for (int32_t t = 0; t < lw->tasks.n; t++) {
        lw->tasks.ns[t] = duration(kind, lw->tasks.ns[t], rng);
        if (long_moves && lw->tasks.class_[t] == ESP_NONE)
            lw->tasks.ns[t] += kind == UNEQUAL ? INT64_C(1) << 42 : 1 + esp_i_rng_below(rng, 20);
    }
}

/* Not what lowering would emit, but nothing that the order could not handle. */
static void change_streams(esp_lowerer_t *lw, esp_i_rng_t *rng)
{
    int32_t n = 1 + (int32_t)esp_i_rng_below(rng, lw->n_classes);
    int32_t *other = zeros(lw->n_classes, sizeof *other);
    for (int32_t c = 0; c < lw->n_classes; c++)
        other[c] = (int32_t)esp_i_rng_below(rng, n);
    for (int32_t t = 0; t < lw->tasks.n; t++)
        if (lw->tasks.class_[t] != ESP_NONE)
            lw->tasks.class_[t] = other[lw->tasks.class_[t]];
    free(other);
    for (int32_t c = 0; c < lw->comms.n; c++)
        lw->comms.collective[c] = esp_i_rng_below(rng, 2) == 0;
}

typedef struct seen {
    int32_t compared, together, at_once, micro_batched, most_classes, most_tasks;
} seen_t;

static void compare(bench_t *bench, const esp_deployment_t *d, seen_t *seen)
{
    test_assert_ok(esp_i_order(bench->lowerer, &bench->diag), &bench->diag);
    naive_t twin = naive_init(d);
    naive_order(&twin);
    assert_int_equal(twin.n, d->n_tasks);
    for (int32_t p = 0; p < d->n_tasks; p++) {
        if (d->order[p] != twin.order[p])
            fail_msg("task %d is at %d, not task %d", d->order[p], p, twin.order[p]);
        assert_int_equal(d->position[d->order[p]], p);
    }
    seen->compared++;
    seen->together += twin.together;
    seen->at_once += twin.at_once;
    seen->micro_batched += d->micro_batches > 1;
    seen->most_classes = d->n_classes > seen->most_classes ? d->n_classes : seen->most_classes;
    seen->most_tasks = d->n_tasks > seen->most_tasks ? d->n_tasks : seen->most_tasks;
    naive_fini(&twin);
}

static void one_plan(bench_t *bench, esp_i_rng_t *rng, seen_t *seen)
{
    plan_of_t plan;
    const esp_deployment_t *d;
    plan_random(&plan, bench, rng);
    if (esp_lower(bench->lowerer, &plan.strategy, &d, &bench->diag) == ESP_OK)
        for (int32_t kind = 0; kind < 2 * DURATIONS; kind++) {
            change_durations(bench->lowerer, kind / 2, kind % 2 == 1, rng);
            compare(bench, d, seen);
            if (kind == 2 * NONE || kind == 2 * FEW)
                change_streams(bench->lowerer, rng);
        }
    plan_fini(&plan);
}

static void test_twin(void **state)
{
    (void)state;
    static const struct {
        const char *cluster;
        int32_t batch, models, plans;
    } on[] = {
        {"testbed", 8, DEPLOY_MODELS, 6}, {"cpu4", 8, DEPLOY_MODELS, 6}, {"h100x64", 2048, 2, 8}};
    seen_t seen = {0};
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 7);
    for (size_t i = 0; i < sizeof on / sizeof *on; i++)
        for (int32_t model = 0; model < on[i].models; model++) {
            bench_t bench;
            bench_init(&bench, deploy_graph(model, on[i].batch), bench_cluster(on[i].cluster));
            for (int32_t plan = 0; plan < on[i].plans; plan++)
                one_plan(&bench, &rng, &seen);
            bench_fini(&bench);
        }
    assert_true(seen.compared > 200 && seen.together > 1000 && seen.at_once > 1000);
    assert_true(seen.micro_batched > 20 && seen.most_classes > 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin)};
    return cmocka_run_group_tests_name("deploy_order", tests, NULL, NULL);
}
