/* Memory decides: what fits in one way only is found, what cannot fit is said to be so. */
#include "searches.h"

#include "espalier/plan.h"

#include <stdio.h>

/* x[b, 256] -> 4 layers of 256 -> 16 classes: activations and their gradients by the batch. */
static esp_graph_t *model_deep(int64_t batch, int64_t width, esp_optimizer_t optimizer)
{
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, optimizer);
    char name[16];
    net_t net;
    net_init(&net, "deep");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 256), 0);
    for (int32_t i = 0; i < 4; i++) {
        (void)snprintf(name, sizeof name, "layer%d", i);
        x = net_unary(&net, ESP_ELT_RELU, net_dense(&net, name, x, width));
    }
    return net_train(&net, net_dense(&net, "head", x, 16), &opts);
}

static esp_cluster_t *cluster_with(int32_t n, int64_t memory_bytes)
{
    char memory[32];
    (void)snprintf(memory, sizeof memory, "%lld B", (long long)memory_bytes);
    return cluster_equal(n, memory, 1000);
}

/* The most live memory of a device under one action for all, with so many micro-batches. */
static int64_t peak_of(prober_t *prober, esp_sync_t sync, int32_t micro)
{
    const esp_deployment_t *deployment;
    esp_sim_result_t result;
    int64_t most = 0;
    int32_t a = prober->bench->cluster->n_devices == 1
                    ? 0
                    : esp_space_find_action(prober->space, 1, ESP_NONE, ESP_SHARES_EQUAL, sync);
    assert_int_not_equal(a, ESP_NONE);
    prober_fill(prober, a);
    esp_strategy_t strategy = prober_strategy(prober, micro, 0, 0);
    esp_diag_t *diag = &prober->diag;
    test_assert_ok(esp_lower(prober->bench->lowerer, &strategy, &deployment, diag), diag);
    test_assert_ok(esp_sim_run(prober->sim, deployment, NULL, &result, diag), diag);
    for (int32_t c = 0; c < deployment->n_classes; c++)
        most = result.class_peak_bytes[c] > most ? result.class_peak_bytes[c] : most;
    return most;
}

/* The same on a cluster of `n` devices with room for everything. */
static int64_t peak_with(esp_graph_t *graph, int32_t n, esp_sync_t sync, int32_t micro)
{
    bench_t bench;
    prober_t prober;
    bench_init(&bench, graph, cluster_with(n, INT64_C(1) << 39));
    prober_init(&prober, &bench, 8);
    int64_t bytes = peak_of(&prober, sync, micro);
    prober_fini(&prober);
    bench_fini(&bench);
    return bytes;
}

static esp_search_result_t *search(const bench_t *bench, int32_t evaluations)
{
    esp_search_opts_t opts = esp_search_opts_default();
    esp_search_result_t *r = NULL;
    esp_diag_t diag = {0};
    opts.evaluations = evaluations;
    opts.max_groups = 8;
    test_assert_ok(esp_search(bench->cost, &opts, NULL, &r, &diag), &diag);
    search_result_check(bench, r);
    return r;
}

/* ---- what fits in one way only --------------------------------------------------------------- */

static void test_micro_batches(void **state)
{
    (void)state;
    int64_t one = peak_with(model_deep(8192, 256, ESP_OPTIMIZER_SGD), 1, ESP_SYNC_ALLREDUCE, 1);
    int64_t four = peak_with(model_deep(8192, 256, ESP_OPTIMIZER_SGD), 1, ESP_SYNC_ALLREDUCE, 4);
    bench_t bench;
    assert_true(four < one);
    bench_init(&bench, model_deep(8192, 256, ESP_OPTIMIZER_SGD), cluster_with(1, (one + four) / 2));
    esp_search_result_t *r = search(&bench, 40);
    assert_int_equal(r->best.outcome.feasible, 1);
    assert_true(r->best.strategy.micro_batches > 1);
    assert_int_equal(r->proven_infeasible, 0);
    assert_int_equal(r->baseline[ESP_BASELINE_SINGLE].outcome.feasible, 0);
    assert_true(r->baseline[ESP_BASELINE_SINGLE].outcome.slack_bytes < 0);
    esp_search_result_destroy(r);
    bench_fini(&bench);
}

/* Neither one device nor replicas have room, but the search finds what fits. */
static void check_found(esp_graph_t *graph, int64_t memory)
{
    bench_t bench;
    bench_init(&bench, graph, cluster_with(4, memory));
    esp_search_result_t *r = search(&bench, 150);
    assert_int_equal(r->best.outcome.feasible, 1);
    assert_int_equal(r->proven_infeasible, 0);
    assert_int_equal(r->baseline[ESP_BASELINE_SINGLE].outcome.feasible, 0);
    assert_int_equal(r->baseline[ESP_BASELINE_DP_ALLREDUCE].outcome.feasible, 0);
    esp_search_result_destroy(r);
    bench_fini(&bench);
}

/* Weights and two moments of every weight, which sharding divides. */
static void test_sharded(void **state)
{
    (void)state;
    int64_t sharded = peak_with(model_deep(64, 1024, ESP_OPTIMIZER_ADAM), 4, ESP_SYNC_SHARDED, 1);
    int64_t whole = peak_with(model_deep(64, 1024, ESP_OPTIMIZER_ADAM), 4, ESP_SYNC_ALLREDUCE, 1);
    assert_true(1.1 * (double)sharded < (double)whole);
    check_found(model_deep(64, 1024, ESP_OPTIMIZER_ADAM), sharded + sharded / 10);
}

/* Weights and gradients without state: a whole copy of both is too much, however it is made. */
static void test_model_parallel(void **state)
{
    (void)state;
    int64_t sharded = peak_with(model_deep(64, 1024, ESP_OPTIMIZER_SGD), 4, ESP_SYNC_SHARDED, 1);
    int64_t whole = peak_with(model_deep(64, 1024, ESP_OPTIMIZER_SGD), 4, ESP_SYNC_ALLREDUCE, 1);
    int64_t memory = (int64_t)(0.6 * (double)(sharded < whole ? sharded : whole));
    check_found(model_deep(64, 1024, ESP_OPTIMIZER_SGD), memory);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

static void check_refused(const bench_t *bench, const esp_search_result_t *r)
{
    const esp_outcome_t *best = &r->best.outcome;
    const esp_training_opts_t training = esp_training_opts_default();
    char path[TEST_PATH_MAX];
    esp_plan_t *plan = NULL;
    esp_diag_t diag = {0};
    const esp_plan_source_t source = {.model_path = test_source_path("models/README.md", path),
                                      .training = &training,
                                      .cost = bench->cost,
                                      .result = r};
    assert_int_equal(best->feasible, 0);
    assert_true(best->slack_bytes < 0);
    assert_in_range(best->worst_device, 0, bench->cluster->n_devices - 1);
    assert_true(best->step_time_ns > 0);
    test_assert_fails(esp_plan_create(&source, NULL, &plan, &diag), &diag, ESP_ERR_INFEASIBLE,
                      "does not fit");
}

/* Parameters and state are more than all devices have. */
static void test_proven(void **state)
{
    (void)state;
    bench_t bench;
    double needed = 0;
    bench_init(&bench, model_deep(64, 512, ESP_OPTIMIZER_ADAM), cluster_with(2, 1 << 20));
    const esp_graph_t *g = bench.graph;
    for (int32_t p = 0; p < g->n_parameters; p++)
        needed += 3 * bench.cost->tensor_bytes[g->parameter[p]];
    esp_search_result_t *r = search(&bench, 30);
    check_refused(&bench, r);
    assert_int_equal(r->proven_infeasible, 1);
    assert_true((double)r->memory_needed_bytes >= needed &&
                (double)r->memory_needed_bytes <= needed + 64);
    assert_int_equal(r->memory_there_bytes, 2 << 20);
    esp_search_result_destroy(r);
    bench_fini(&bench);
}

/* They would fit; the activations of a sample do not. */
static void test_not_proven(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, model_deep(INT64_C(1) << 20, 64, ESP_OPTIMIZER_SGD),
               cluster_with(2, 4 << 20));
    esp_search_result_t *r = search(&bench, 60);
    check_refused(&bench, r);
    assert_int_equal(r->proven_infeasible, 0);
    assert_true(r->memory_needed_bytes < r->memory_there_bytes);
    esp_search_result_destroy(r);
    bench_fini(&bench);
}

/* ---- the verdict is that of the arenas --------------------------------------------------------
 */

/*
 * From too little to plenty: the verdict holds for the packed arenas (search_result_check), more
 * memory never makes it worse, and a step never longer by more than packing costs.
 */
static void test_growing_memory(void **state)
{
    (void)state;
    int64_t whole = peak_with(deploy_graph(3, 16), 2, ESP_SYNC_ALLREDUCE, 1), last_ns = INT64_MAX;
    int32_t fits = 0;
    for (int64_t memory = whole / 4; memory <= whole * 5 / 4; memory += whole / 9) {
        bench_t bench;
        bench_init(&bench, deploy_graph(3, 16), cluster_with(2, memory));
        esp_search_result_t *r = search(&bench, 60);
        if (fits && !r->best.outcome.feasible)
            fail_msg("%lld bytes are too few, but fewer were enough", (long long)memory);
        if (r->best.outcome.feasible) {
            assert_true((double)r->best.outcome.step_time_ns <= 1.05 * (double)last_ns);
            last_ns = r->best.outcome.step_time_ns;
        }
        fits = r->best.outcome.feasible;
        esp_search_result_destroy(r);
        bench_fini(&bench);
    }
    assert_int_equal(fits, 1);
}

/* Memory of exactly the live peak, where packing needs more, and of exactly the arena. */
static void test_exact_memory(void **state)
{
    (void)state;
    int64_t live = peak_with(deploy_graph(3, 7), 1, ESP_SYNC_ALLREDUCE, 1), arena = 0;
    for (int32_t i = 0; i < 3; i++) {
        int64_t memory = i == 0 ? 1 << 30 : i == 1 ? live : arena;
        bench_t bench;
        bench_init(&bench, deploy_graph(3, 7), cluster_with(1, memory));
        esp_search_result_t *r = search(&bench, 20);
        arena = i == 0 ? r->device_peak_bytes[0] : arena;
        assert_true(arena >= live);
        assert_int_equal(r->best.outcome.feasible, r->device_peak_bytes[0] <= memory);
        if (i == 2)
            assert_int_equal(r->best.outcome.slack_bytes, 0);
        esp_search_result_destroy(r);
        bench_fini(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro_batches),  cmocka_unit_test(test_sharded),
        cmocka_unit_test(test_model_parallel), cmocka_unit_test(test_proven),
        cmocka_unit_test(test_not_proven),     cmocka_unit_test(test_growing_memory),
        cmocka_unit_test(test_exact_memory),
    };
    return cmocka_run_group_tests_name("search_memory", tests, NULL, NULL);
}
