/* The search as a whole: repeatable with any number of threads, within its budgets, complete. */
#include "searches.h"

#include "espalier/plan.h"

#include <stdlib.h>
#include <string.h>

static esp_search_opts_t opts_of(int32_t evaluations, int32_t threads, uint64_t seed)
{
    esp_search_opts_t opts = esp_search_opts_default();
    opts.evaluations = evaluations;
    opts.threads = threads;
    opts.seed = seed;
    opts.max_groups = 8;
    return opts;
}

static esp_search_result_t *search(const bench_t *bench, const esp_search_opts_t *opts,
                                   esp_status_t expected)
{
    esp_search_result_t *result = NULL;
    esp_diag_t diag = {0};
    esp_status_t status = esp_search(bench->cost, opts, NULL, &result, &diag);
    if (status != expected)
        fail_msg("status %d, not %d: %s", (int)status, (int)expected, diag.text);
    search_result_check(bench, result);
    return result;
}

/* ---- repeatability --------------------------------------------------------------------------- */

static char *plan_text(const bench_t *bench, const esp_search_opts_t *opts,
                       const esp_search_result_t *result)
{
    char path[TEST_PATH_MAX], *text = NULL;
    const esp_training_opts_t training = esp_training_opts_default();
    const esp_plan_source_t source = {.model_path = test_source_path("models/README.md", path),
                                      .training = &training,
                                      .cost = bench->cost,
                                      .opts = opts,
                                      .result = result};
    esp_plan_t *plan = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(esp_plan_create(&source, NULL, &plan, &diag), &diag);
    test_assert_ok(esp_plan_to_json(plan, NULL, NULL, &text, &diag), &diag);
    esp_plan_destroy(plan);
    return text;
}

static void check_same(const bench_t *bench, const esp_search_result_t *a,
                       const esp_search_result_t *b)
{
    size_t n_ops = (size_t)bench->graph->n_ops, n_groups = (size_t)a->space->n_groups;
    assert_int_equal(a->best.outcome.step_time_ns, b->best.outcome.step_time_ns);
    assert_int_equal(a->best.outcome.slack_bytes, b->best.outcome.slack_bytes);
    assert_int_equal(a->evaluations, b->evaluations);
    assert_int_equal(a->from_baseline, b->from_baseline);
    assert_int_equal(a->lower_bound_ns, b->lower_bound_ns);
    assert_int_equal(a->best.strategy.micro_batches, b->best.strategy.micro_batches);
    assert_int_equal(a->best.strategy.bucket_bytes, b->best.strategy.bucket_bytes);
    assert_memory_equal(a->best.op_mesh, b->best.op_mesh, n_ops * sizeof *a->best.op_mesh);
    assert_memory_equal(a->best.op_mode, b->best.op_mode, n_ops);
    assert_memory_equal(a->best.group_action, b->best.group_action,
                        n_groups * sizeof *a->best.group_action);
    for (int32_t i = 0; i < ESP_BASELINE_COUNT; i++)
        assert_int_equal(a->baseline[i].outcome.step_time_ns, b->baseline[i].outcome.step_time_ns);
}

/* The graph and the cluster become the function's. */
static void check_repeats(esp_graph_t *graph, esp_cluster_t *cluster, int32_t evaluations)
{
    static const int32_t threads[] = {1, 1, 2, 3};
    bench_t bench;
    char *first_text = NULL;
    esp_search_result_t *first = NULL;
    bench_init(&bench, graph, cluster);
    for (int32_t i = 0; i < 4; i++) {
        esp_search_opts_t opts = opts_of(evaluations, threads[i], 7);
        esp_search_result_t *r = search(&bench, &opts, ESP_OK);
        char *text = plan_text(&bench, &opts, r);
        if (i == 0) {
            first = r;
            first_text = text;
            continue;
        }
        check_same(&bench, first, r);
        assert_string_equal(first_text, text);
        esp_search_result_destroy(r);
        free(text);
    }
    esp_search_result_destroy(first);
    free(first_text);
    bench_fini(&bench);
}

static void test_repeats(void **state)
{
    (void)state;
    check_repeats(deploy_graph(3, 8), cluster_mixed(), 100);
    check_repeats(deploy_graph(1, 8), cluster_three(), 60);
}

/* The space is enumerated. */
static void test_repeats_small(void **state)
{
    (void)state;
    check_repeats(deploy_graph(5, 7), cluster_uniform(1), 300);
}

static void test_repeats_shipped(void **state)
{
    (void)state;
    check_repeats(shipped_graph("transformer_2layer", 16), bench_cluster("cloud"), 40);
}

static void test_seeds(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, deploy_graph(3, 8), cluster_mixed());
    for (uint64_t seed = 0; seed < 3; seed++) {
        esp_search_opts_t opts = opts_of(60, 1, seed ? UINT64_MAX - seed : 0);
        esp_search_result_destroy(search(&bench, &opts, ESP_OK));
    }
    bench_fini(&bench);
}

/* ---- budgets --------------------------------------------------------------------------------- */

/* Nothing is evaluated beyond the baselines; the best is one of them. */
static void test_no_evaluations(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, deploy_graph(3, 8), cluster_mixed());
    esp_search_opts_t opts = opts_of(0, 1, 1);
    esp_search_result_t *none = search(&bench, &opts, ESP_OK);
    int64_t least = INT64_MAX;
    for (int32_t b = 0; b < ESP_BASELINE_COUNT; b++)
        if (none->baseline[b].outcome.feasible && none->baseline[b].outcome.step_time_ns < least)
            least = none->baseline[b].outcome.step_time_ns;
    assert_int_equal(none->best.outcome.step_time_ns, least);
    for (int32_t evaluations = 1; evaluations <= 100; evaluations *= 10) {
        opts.evaluations = evaluations;
        esp_search_result_t *some = search(&bench, &opts, ESP_OK);
        assert_true(some->best.outcome.step_time_ns <= least);
        assert_true(some->evaluations >= none->evaluations);
        assert_true(some->evaluations <= none->evaluations + evaluations + 15);
        esp_search_result_destroy(some);
    }
    esp_search_result_destroy(none);
    bench_fini(&bench);
}

static void test_time_limit(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, deploy_graph(3, 8), bench_cluster("testbed"));
    esp_search_opts_t opts = opts_of(INT32_MAX, 2, 1);
    opts.time_s = 0.2;
    esp_search_result_t *r = search(&bench, &opts, ESP_OK);
    assert_true(r->evaluations < INT32_MAX / 2);
    assert_true(r->search_time_s >= 0.2);
    esp_search_result_destroy(r);
    opts.time_s = 1e-9; /* over before it begins */
    esp_search_result_destroy(search(&bench, &opts, ESP_OK));
    bench_fini(&bench);
}

typedef struct watcher {
    int32_t calls, stop_at;
    double last;
} watcher_t;

static int watch(void *context, double fraction, const char *what)
{
    watcher_t *w = context;
    assert_true(fraction >= w->last && fraction <= 1);
    assert_true(strlen(what) > 3);
    w->last = fraction;
    return ++w->calls == w->stop_at;
}

static void test_progress(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, deploy_graph(3, 8), cluster_mixed());
    esp_search_opts_t opts = opts_of(120, 1, 1);
    watcher_t all = {0};
    opts.progress = watch;
    opts.progress_context = &all;
    esp_search_result_t *r = search(&bench, &opts, ESP_OK);
    assert_true(all.calls >= 8);
    for (int32_t stop_at = 1; stop_at < all.calls; stop_at += 4) {
        watcher_t some = {.stop_at = stop_at};
        opts.progress_context = &some;
        esp_search_result_t *stopped = search(&bench, &opts, ESP_STOPPED);
        assert_int_equal(some.calls, stop_at); /* never asked again */
        assert_true(stopped->evaluations < r->evaluations);
        esp_search_result_destroy(stopped);
    }
    esp_search_result_destroy(r);
    bench_fini(&bench);
}

/* One isolated step is longer than the period, or as long. */
static void test_barrier(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, deploy_graph(0, 8), cluster_mixed());
    esp_search_opts_t opts = opts_of(50, 1, 1);
    esp_search_result_t *period = search(&bench, &opts, ESP_OK);
    opts.barrier = 1;
    esp_search_result_t *makespan = search(&bench, &opts, ESP_OK);
    assert_true(period->best.outcome.step_time_ns <= makespan->best.outcome.step_time_ns);
    esp_search_result_destroy(period);
    esp_search_result_destroy(makespan);
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeats),         cmocka_unit_test(test_repeats_small),
        cmocka_unit_test(test_repeats_shipped), cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_no_evaluations),  cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_progress),        cmocka_unit_test(test_barrier),
    };
    return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}
