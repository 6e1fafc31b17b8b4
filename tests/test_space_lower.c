/*
 * Every point of the space is a deployment: it lowers, holds the rules, simulates, and takes no
 * less than the lower bound. All actions alike, with all micro-batches; then random actions per
 * group.
 */
#include "searches.h"

#include <stdio.h>

enum { CLUSTERS = 6 };

static esp_cluster_t *cluster_number(int32_t i)
{
    switch (i) {
    case 0:
        return cluster_uniform(1);
    case 1:
        return cluster_uniform(3);
    case 2:
        return cluster_mixed();
    case 3:
        return cluster_three();
    case 4:
        return cluster_pair_and_one();
    default:
        return cluster_equal(4, "1 GiB", 0);
    }
}

static void judge(prober_t *prober, const esp_strategy_t *strategy, int64_t bound)
{
    int64_t ns = prober_time(prober, strategy, true);
    if (ns < bound)
        fail_msg("%s on %s: %d micro-batches take %lld ns, the bound is %lld",
                 prober->bench->graph->name, prober->bench->cluster->name, strategy->micro_batches,
                 (long long)ns, (long long)bound);
}

static void judge_uniform(prober_t *prober, int64_t bound)
{
    for (int32_t a = 0; a < prober->space->n_actions; a++)
        for (int32_t micro = 1; micro <= 8; micro *= 2) {
            if (!prober_micro_allowed(prober, micro))
                continue;
            prober_fill(prober, a);
            esp_strategy_t strategy = prober_strategy(prober, micro, a % 2 ? 300 : 0, 0);
            judge(prober, &strategy, bound);
        }
}

static void judge_random(prober_t *prober, int64_t bound, uint64_t seed, int32_t times)
{
    const esp_space_t *space = prober->space;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, seed);
    for (int32_t i = 0; i < times; i++) {
        for (int32_t g = 0; g < space->n_groups; g++)
            prober->action[g] = g && esp_i_rng_below(&rng, 2)
                                    ? prober->action[g - 1]
                                    : (int32_t)esp_i_rng_below(&rng, space->n_actions);
        int32_t micro = 1 << esp_i_rng_below(&rng, 4);
        micro = prober_micro_allowed(prober, micro) ? micro : 1;
        esp_strategy_t strategy = prober_strategy(prober, micro, esp_i_rng_below(&rng, 3) * 500,
                                                  micro == 1 && esp_i_rng_below(&rng, 2) == 0);
        prober->links = i % 2 ? ESP_LINK_FAIR : ESP_LINK_EXCLUSIVE;
        judge(prober, &strategy, bound);
    }
}

/* The graph becomes the function's. */
static void check(esp_graph_t *graph, int32_t cluster, uint64_t seed, int32_t times)
{
    bench_t bench;
    prober_t prober;
    int64_t bound;
    bench_init(&bench, graph, cluster_number(cluster));
    prober_init(&prober, &bench, 6);
    assert_int_equal(esp_lower_bound(bench.cost, NULL, &bound), ESP_OK);
    assert_true(bound > 0);
    judge_uniform(&prober, bound);
    judge_random(&prober, bound, seed, times);
    prober_fini(&prober);
    bench_fini(&bench);
}

static void test_models(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++)
        for (int32_t cluster = model % 2; cluster < CLUSTERS; cluster += 2)
            check(deploy_graph(model, 8), cluster, (uint64_t)(10 * model + cluster), 12);
}

static void test_random_models(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    for (uint64_t seed = 50; seed < 56; seed++)
        check(model_random(seed, 16, &opts), (int32_t)(seed % CLUSTERS), seed, 30);
}

/* Shares that leave devices without samples. */
static void test_small_batches(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++)
        for (int64_t batch = 1; batch <= 2; batch++)
            check(deploy_graph(model, batch), 3 - (int32_t)batch, (uint64_t)batch, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_random_models),
        cmocka_unit_test(test_small_batches),
    };
    return cmocka_run_group_tests_name("space_lower", tests, NULL, NULL);
}
