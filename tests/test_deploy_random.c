/*
 * The gate: random strategies. Every op on a mesh and in a mode of its own, on random graphs, with
 * and without micro-batches. The seed is in every message; ESP_SEEDS in the environment asks for
 * more of them.
 */
#include "gate.h"
#include "models.h"
#include "support.h"

#include <stdlib.h>

enum { SEEDS = 240 };

static double random_weight(esp_i_rng_t *rng)
{
    static const double weights[] = {1, 1, 2, 3, 0.01}; /* the last one leaves */
    return weights[esp_i_rng_below(rng, 5)];
}

static void random_meshes(strategy_t *strategy, esp_i_rng_t *rng, int32_t n)
{
    for (int32_t m = 0; m < n; m++) {
        int32_t device[4], count = 0;
        double weight[4];
        const int64_t set = 1 + esp_i_rng_below(rng, 15);
        for (int32_t d = 0; d < 4; d++)
            if (set >> d & 1) {
                weight[count] = random_weight(rng);
                device[count++] = d;
            }
        (void)strategy_mesh(strategy, count, device, weight);
    }
}

static esp_mode_t random_mode(esp_i_rng_t *rng)
{
    const int64_t draw = esp_i_rng_below(rng, 8);
    return draw < 5 ? ESP_MODE_BATCH : draw < 7 ? ESP_MODE_SHARD : ESP_MODE_WHOLE;
}

/* From all ops alike to each op for itself. */
static void random_ops(strategy_t *strategy, esp_i_rng_t *rng, int32_t meshes)
{
    const int64_t change = 1 + esp_i_rng_below(rng, 100); /* in percent */
    int32_t mesh = 0;
    for (esp_op_id_t op = 0; op < strategy->graph->n_ops; op++) {
        if (esp_i_rng_below(rng, 100) < change)
            mesh = (int32_t)esp_i_rng_below(rng, meshes);
        strategy_op(strategy, op, mesh,
                    esp_i_rng_below(rng, 100) < change ? random_mode(rng) : ESP_MODE_BATCH);
    }
}

static esp_training_opts_t random_opts(esp_i_rng_t *rng)
{
    static const esp_optimizer_t optimizers[] = {ESP_OPTIMIZER_SGD, ESP_OPTIMIZER_MOMENTUM,
                                                 ESP_OPTIMIZER_ADAM};
    const bool mse = esp_i_rng_below(rng, 2) == 0;
    esp_training_opts_t opts =
        train_with(mse ? ESP_LOSS_MSE : ESP_LOSS_XENT, optimizers[esp_i_rng_below(rng, 3)]);
    if (!mse && esp_i_rng_below(rng, 2) == 0)
        opts.ignore_label = 1;
    if (esp_i_rng_below(rng, 2) == 0)
        opts.clip_norm = 0.2;
    return opts;
}

static void check_seed(uint64_t seed)
{
    static const int32_t micro[] = {1, 1, 1, 2, 4};
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, seed);
    const esp_training_opts_t opts = random_opts(&rng);
    const int64_t batch = 4 * (1 + esp_i_rng_below(&rng, 2));
    gate_t gate;
    gate_init(&gate, model_random(seed, batch, &opts));
    gate.seed = seed;
    gate.steps = 2;
    for (int32_t i = 0; i < 2; i++) {
        strategy_t strategy;
        strategy_init(&strategy, gate.graph);
        const int32_t meshes = 1 + (int32_t)esp_i_rng_below(&rng, 5);
        random_meshes(&strategy, &rng, meshes);
        random_ops(&strategy, &rng, meshes);
        strategy.strategy.micro_batches = micro[esp_i_rng_below(&rng, 5)];
        strategy.strategy.bucket_bytes = 64 * esp_i_rng_below(&rng, 4);
        gate_same_step(&gate, &strategy);
    }
    gate_fini(&gate);
}

static void test_random(void **state)
{
    (void)state;
    const char *wanted = getenv("ESP_SEEDS");
    const uint64_t seeds = wanted ? strtoull(wanted, NULL, 10) : SEEDS;
    for (uint64_t seed = 0; seed < seeds; seed++)
        check_seed(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests_name("deploy_random", tests, NULL, NULL);
}
