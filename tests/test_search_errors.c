/* What a search refuses, and that it survives a lack of memory. */
#include "searches.h"

#include <math.h>

static esp_search_opts_t opts_of(int32_t evaluations)
{
    esp_search_opts_t opts = esp_search_opts_default();
    opts.evaluations = evaluations;
    opts.max_groups = 2;
    return opts;
}

static void check_refused(const bench_t *bench, esp_search_opts_t opts, const char *part)
{
    esp_search_result_t *result = NULL;
    esp_diag_t diag = {0};
    test_assert_fails(esp_search(bench->cost, &opts, NULL, &result, &diag), &diag, ESP_ERR_ARGUMENT,
                      part);
    assert_null(result);
}

static void test_options(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, deploy_graph(0, 8), cluster_uniform(2));
    const esp_search_opts_t good = opts_of(5);
    esp_search_opts_t opts = good;
    opts.struct_size--;
    check_refused(&bench, opts, "version");
    opts = good;
    opts.evaluations = -1;
    check_refused(&bench, opts, "evaluations is -1");
    for (int32_t i = 0; i < 3; i++) {
        opts = good;
        opts.threads = i == 0 ? 0 : i == 1 ? -1 : 65;
        check_refused(&bench, opts, "threads is");
        opts = good;
        opts.max_groups = i == 0 ? 0 : i == 1 ? -1 : 4097;
        check_refused(&bench, opts, "max_groups is");
    }
    opts = good;
    opts.time_s = -0.5;
    check_refused(&bench, opts, "time_s is -0.5");
    opts.time_s = NAN;
    check_refused(&bench, opts, "time_s is");
    opts = good;
    opts.links = (esp_link_mode_t)7;
    check_refused(&bench, opts, "link mode 7");
    bench_fini(&bench);
}

/* A graph without parameters or loss cannot be trained. */
static void test_model_graph(void **state)
{
    (void)state;
    net_t net;
    esp_graph_t *graph = NULL;
    net_init(&net, "plain");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(8, 4), 0);
    x = net_dense(&net, "a", x, 3);
    test_assert_ok(esp_builder_output(net.builder, x), &net.diag);
    test_assert_ok(esp_builder_freeze(net.builder, &graph, &net.diag), &net.diag);
    esp_cost_t *cost;
    esp_search_result_t *result = NULL;
    esp_cluster_t *cluster = cluster_uniform(1);
    test_assert_ok(esp_cost_create(graph, cluster, ESP_PRECISION_FP32, NULL, &cost, &net.diag),
                   &net.diag);
    test_assert_fails(esp_search(cost, NULL, NULL, &result, &net.diag), &net.diag, ESP_ERR_ARGUMENT,
                      "not a training graph");
    esp_builder_destroy(net.builder);
    esp_cost_destroy(cost);
    esp_cluster_destroy(cluster);
    esp_graph_destroy(graph);
    esp_search_result_destroy(NULL);
}

typedef struct attempt {
    const esp_cost_t *cost;
    esp_search_opts_t opts;
} attempt_t;

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    const attempt_t *a = context;
    esp_search_result_t *result = NULL;
    esp_status_t status = esp_search(a->cost, &a->opts, alloc, &result, NULL);
    esp_search_result_destroy(result);
    return status;
}

static esp_status_t attempt_bound(const esp_allocator_t *alloc, void *context)
{
    const attempt_t *a = context;
    int64_t bound;
    return esp_lower_bound(a->cost, alloc, &bound);
}

static void test_memory(void **state)
{
    (void)state;
    esp_training_opts_t training = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    bench_t bench;
    bench_init(&bench, model_mlp(2, 0, &training), cluster_uniform(2));
    attempt_t a = {bench.cost, opts_of(3)};
    test_sweep_allocations(attempt, &a, 1);
    test_sweep_allocations(attempt_bound, &a, 1);
    a.opts.threads = 2;
    a.opts.evaluations = 20; /* the tree and polishing too */
    test_sweep_allocations(attempt, &a, 29);
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_model_graph),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("search_errors", tests, NULL, NULL);
}
