/*
 * The search against brute force: on instances whose points can all be evaluated it finds the best
 * of them, and with any budget it is no worse than the baselines.
 */
#include "searches.h"

#include <stdio.h>

/* What the search chooses among for a whole plan. */
static const int32_t micros[] = {1, 2, 4, 8};
static const int64_t buckets[] = {INT64_C(25) << 20, INT64_C(4) << 20, INT64_C(100) << 20, 0};

/* The next combination of actions; false after the last. */
static bool next(prober_t *prober)
{
    for (int32_t g = 0; g < prober->space->n_groups; g++) {
        if (++prober->action[g] < prober->space->n_actions)
            return true;
        prober->action[g] = 0;
    }
    return false;
}

/*
 * The shortest step of all points, packed. A point takes no less time packed than before, so only
 * those that are shorter than the best so far need be packed. Returns how many points there are.
 */
static int32_t brute_force(prober_t *prober, int64_t *least_ns_out)
{
    int32_t n = 0;
    *least_ns_out = INT64_MAX;
    for (int32_t m = 0; m < 4; m++)
        for (int32_t b = 0; b < 4 && prober_micro_allowed(prober, micros[m]); b++) {
            prober_fill(prober, 0);
            do {
                esp_strategy_t strategy = prober_strategy(prober, micros[m], buckets[b], 0);
                n++;
                if (prober_time(prober, &strategy, false) >= *least_ns_out)
                    continue;
                int64_t ns = prober_packed_time(prober, &strategy);
                *least_ns_out = ns < *least_ns_out ? ns : *least_ns_out;
            } while (next(prober));
        }
    return n;
}

static esp_search_result_t *search(const bench_t *bench, int32_t max_groups, int32_t evaluations,
                                   uint64_t seed)
{
    esp_search_opts_t opts = esp_search_opts_default();
    esp_search_result_t *result = NULL;
    esp_diag_t diag = {0};
    opts.max_groups = max_groups;
    opts.evaluations = evaluations;
    opts.links = ESP_LINK_EXCLUSIVE;
    opts.seed = seed;
    test_assert_ok(esp_search(bench->cost, &opts, NULL, &result, &diag), &diag);
    return result;
}

/* The step time of the best that a search with this budget finds. */
static int64_t found(const bench_t *bench, int32_t max_groups, int32_t evaluations)
{
    esp_search_result_t *r = search(bench, max_groups, evaluations, 1);
    search_result_check(bench, r);
    int64_t ns = r->best.outcome.step_time_ns;
    esp_search_result_destroy(r);
    return ns;
}

/*
 * The graph and the cluster become the function's. What a search takes in the end is the best once
 * packed, and of two that differ by less than packing costs that may be the second. With a third of
 * the evaluations that all points would take, the best may be missed, but not by much.
 */
static void check(esp_graph_t *graph, esp_cluster_t *cluster, int32_t max_groups)
{
    bench_t bench;
    prober_t prober;
    int64_t least_ns;
    bench_init(&bench, graph, cluster);
    prober_init(&prober, &bench, max_groups);
    int32_t n = brute_force(&prober, &least_ns);
    int64_t all_ns = found(&bench, max_groups, n), some_ns = found(&bench, max_groups, n / 3);
    if ((double)all_ns > 1.001 * (double)least_ns || (double)some_ns > 1.02 * (double)least_ns)
        fail_msg("%s on %s: the best of %d points takes %lld ns; found %lld, with a third %lld",
                 graph->name, cluster->name, n, (long long)least_ns, (long long)all_ns,
                 (long long)some_ns);
    prober_fini(&prober);
    bench_fini(&bench);
}

/* x[b, 1024] -> 2048 -> 512: enough work to be worth dividing. */
static esp_graph_t *model_wide(int64_t batch)
{
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    net_t net;
    net_init(&net, "wide");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 1024), 0);
    x = net_unary(&net, ESP_ELT_RELU, net_dense(&net, "a", x, 2048));
    return net_train(&net, net_dense(&net, "b", x, 512), &opts);
}

static void test_two_groups(void **state)
{
    (void)state;
    check(deploy_graph(0, 8), cluster_uniform(2), 2);
    check(deploy_graph(2, 8), cluster_three(), 1);
    check(model_wide(255), cluster_pair_and_one(), 2);
}

static void test_three_groups(void **state)
{
    (void)state;
    check(deploy_graph(0, 5), cluster_uniform(2), 3);
    check(model_wide(4095), cluster_equal(2, "1 GiB", 1000), 3);
    check(deploy_graph(5, 7), cluster_equal(3, "1 GiB", 1000), 2);
}

static void test_small_budgets(void **state)
{
    (void)state;
    for (int32_t evaluations = 0; evaluations <= 40; evaluations += 20)
        for (int32_t model = 0; model < DEPLOY_MODELS; model++) {
            bench_t bench;
            bench_init(&bench, deploy_graph(model, 8),
                       model % 2 ? cluster_mixed() : cluster_pair_and_one());
            esp_search_result_t *r = search(&bench, 40, evaluations, 3);
            search_result_check(&bench, r);
            esp_search_result_destroy(r);
            bench_fini(&bench);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_groups),
        cmocka_unit_test(test_three_groups),
        cmocka_unit_test(test_small_budgets),
    };
    return cmocka_run_group_tests_name("search_optimum", tests, NULL, NULL);
}
