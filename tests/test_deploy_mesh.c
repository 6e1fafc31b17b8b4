/*
 * The gate: ops on different sets of devices: model parallel, branches, sums of partials of
 * different meshes.
 */
#include "gate.h"
#include "models.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

/* Meshes over the four devices of the gate's clusters. */
typedef struct spec {
    int32_t n, device[4];
    double weight[4];
} spec_t;

static const spec_t single0 = {1, {0}, {1}}, single3 = {1, {3}, {1}};
static const spec_t first = {2, {0, 1}, {2, 1}}, middle = {2, {1, 2}, {1, 4}};
static const spec_t last = {2, {2, 3}, {1, 1}}, outer = {3, {0, 1, 3}, {1, 2, 2}};
static const spec_t all = {4, {0, 1, 2, 3}, {2, 1, 1, 1}}, few = {3, {1, 2, 3}, {3, 1, 1}};

static int32_t add(strategy_t *strategy, const spec_t *spec)
{
    return strategy_mesh(strategy, spec->n, spec->device, spec->weight);
}

/* ---- stages ------------------------------------------------------------------------------ */

static void stages(gate_t *gate, int32_t n, const spec_t *const *specs, esp_mode_t mode)
{
    strategy_t strategy;
    int32_t mesh[8];
    strategy_init(&strategy, gate->graph);
    for (int32_t i = 0; i < n; i++)
        mesh[i] = add(&strategy, specs[i]);
    strategy_stages(&strategy, n, mesh, mode);
    gate_same_step(gate, &strategy);
}

static void all_stages(gate_t *gate)
{
    for (int32_t mode = ESP_MODE_BATCH; mode <= ESP_MODE_SHARD; mode++) {
        const esp_mode_t m = (esp_mode_t)mode;
        stages(gate, 2, (const spec_t *const[]){&single0, &single3}, m);
        stages(gate, 2, (const spec_t *const[]){&first, &middle}, m);
        stages(gate, 2, (const spec_t *const[]){&middle, &last}, m);
        stages(gate, 3, (const spec_t *const[]){&single0, &all, &single0}, m);
        stages(gate, 3, (const spec_t *const[]){&first, &single3, &outer}, m);
        stages(gate, 3, (const spec_t *const[]){&outer, &few, &all}, m);
        stages(gate, 4, (const spec_t *const[]){&all, &first, &last, &few}, m);
    }
}

static void test_stages(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    gate_t gate;
    gate_init(&gate, model_mlp(7, 0.2, &opts));
    gate.steps = 4;
    all_stages(&gate);
    gate_fini(&gate);
}

static void test_stages_of_sequences(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    for (int32_t sequence_first = 0; sequence_first < 2; sequence_first++) {
        gate_t gate;
        gate_init(&gate, model_sequence(6, sequence_first, &opts));
        gate.steps = 4;
        all_stages(&gate);
        gate_fini(&gate);
    }
}

static void test_stages_of_a_transformer(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    opts.clip_norm = 0.1;
    gate_t gate;
    gate_init(&gate, model_transformer(5, 1, 0.1, &opts));
    gate.steps = 2;
    all_stages(&gate);
    gate_fini(&gate);
}

static void test_stages_of_per_sample_parameters(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_MSE, ESP_OPTIMIZER_ADAM);
    gate_t gate;
    gate_init(&gate, model_per_sample(5, &opts));
    gate.steps = 3;
    all_stages(&gate);
    gate_fini(&gate);
}

/* ---- branches ---------------------------------------------------------------------------- */

static void branches(gate_t *gate, const spec_t *left, const spec_t *right, const spec_t *sum,
                     esp_mode_t sum_mode)
{
    strategy_t strategy;
    strategy_init(&strategy, gate->graph);
    const int32_t rest = add(&strategy, sum);
    for (esp_op_id_t op = 0; op < gate->graph->n_ops; op++)
        strategy_op(&strategy, op, rest, sum_mode);
    strategy_named(&strategy, "left", add(&strategy, left), ESP_MODE_BATCH);
    strategy_named(&strategy, "right", add(&strategy, right), ESP_MODE_BATCH);
    gate_same_step(gate, &strategy);
}

/* The gradient of the shared weight is a sum of partials of two device sets. */
static void test_partials_of_two_meshes(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_MSE, ESP_OPTIMIZER_MOMENTUM);
    for (int32_t clip = 0; clip < 2; clip++) {
        opts.clip_norm = 0.1 * clip;
        gate_t gate;
        gate_init(&gate, model_branches(7, &opts));
        gate.steps = 4;
        for (int32_t mode = ESP_MODE_BATCH; mode <= ESP_MODE_SHARD; mode++) {
            const esp_mode_t m = (esp_mode_t)mode;
            branches(&gate, &first, &last, &all, m);     /* disjoint */
            branches(&gate, &first, &middle, &all, m);   /* overlapping */
            branches(&gate, &all, &middle, &first, m);   /* one inside the other */
            branches(&gate, &first, &last, &single3, m); /* summed at one of them */
            branches(&gate, &first, &single3, &first, m);
            branches(&gate, &single0, &single3, &middle, m);
            branches(&gate, &outer, &few, &all, m);
        }
        gate_fini(&gate);
    }
}

/*
 * a + b is one weight, and a is one more: the gradient of b is an addend of that of a. Whatever
 * works in place must not spoil it.
 */
static void test_shared_addends(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_MSE, ESP_OPTIMIZER_ADAM);
    const spec_t *const specs[] = {&first, &middle, &last, &all, &single0, &outer};
    gate_t gate;
    gate_init(&gate, model_sum_of_weights(6, &opts));
    gate.steps = 3;
    for (int32_t i = 0; i < 36 * 8; i++) {
        strategy_t strategy;
        strategy_init(&strategy, gate.graph);
        const int32_t base = add(&strategy, &all);
        strategy_named(&strategy, "one", add(&strategy, specs[i % 6]), ESP_MODE_BATCH);
        strategy_named(&strategy, "two", add(&strategy, specs[i / 6 % 6]), ESP_MODE_BATCH);
        const int32_t third = add(&strategy, specs[i / 7 % 6]);
        strategy_update(&strategy, 0, i / 36 & 1 ? third : base, ESP_MODE_BATCH);
        strategy_update(&strategy, 1, i / 36 & 2 ? third : base,
                        i / 36 & 4 ? ESP_MODE_SHARD : ESP_MODE_BATCH);
        gate_same_step(&gate, &strategy);
    }
    gate_fini(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_stages_of_sequences),
        cmocka_unit_test(test_stages_of_a_transformer),
        cmocka_unit_test(test_stages_of_per_sample_parameters),
        cmocka_unit_test(test_partials_of_two_meshes),
        cmocka_unit_test(test_shared_addends),
    };
    return cmocka_run_group_tests_name("deploy_mesh", tests, NULL, NULL);
}
