/*
 * The gate: a deployment computes the same step as the undistributed graph, per tensor, ten steps
 * in double. Here: what is split and how it is synchronised.
 */
#include "gate.h"
#include "models.h"
#include "support.h"

static const double uneven2[] = {5, 2}, uneven3[] = {3, 1, 2}, uneven4[] = {4, 1, 2, 2};
static const double *const weights[] = {NULL, NULL, uneven2, uneven3, uneven4};

/* Data parallel on 2, 3 and 4 devices, with equal and unequal shares. */
static void data_parallel(gate_t *gate)
{
    strategy_t strategy;
    for (int32_t n = 2; n <= 4; n++) {
        strategy_data_parallel(&strategy, gate->graph, n, NULL);
        gate_same_step(gate, &strategy);
        strategy_data_parallel(&strategy, gate->graph, n, weights[n]);
        gate_same_step(gate, &strategy);
    }
}

/* Where parameters live: everywhere, at a server inside or outside of the mesh, in pieces. */
static void homes(gate_t *gate)
{
    strategy_t strategy;
    for (int32_t n = 2; n <= 4; n++) {
        strategy_data_parallel(&strategy, gate->graph, n, weights[n]);
        gate_same_step(gate, &strategy);
        strategy_parameter_server(&strategy, gate->graph, n, weights[n], 0);
        gate_same_step(gate, &strategy);
        strategy_parameter_server(&strategy, gate->graph, n, weights[n], 3);
        gate_same_step(gate, &strategy);
        strategy_sharded(&strategy, gate->graph, n, weights[n]);
        gate_same_step(gate, &strategy);
        strategy_mixed(&strategy, gate->graph, n, weights[n]);
        gate_same_step(gate, &strategy);
    }
}

static void gate_mlp(gate_t *gate, int64_t batch, double dropout, esp_loss_t loss,
                     esp_optimizer_t optimizer)
{
    const esp_training_opts_t opts = train_with(loss, optimizer);
    gate_init(gate, model_mlp(batch, dropout, &opts));
}

/* ---- splitting --------------------------------------------------------------------------- */

static void test_single_device(void **state)
{
    (void)state;
    gate_t gate;
    gate_mlp(&gate, 6, 0, ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    for (int32_t device = 0; device < 4; device++) {
        strategy_t strategy;
        strategy_single(&strategy, gate.graph, device);
        gate_same_step(&gate, &strategy);
    }
    gate_fini(&gate);
}

static void test_unequal_shares(void **state)
{
    (void)state;
    gate_t gate;
    gate_mlp(&gate, 7, 0, ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    data_parallel(&gate);
    gate_fini(&gate);
    gate_mlp(&gate, 9, 0, ESP_LOSS_MSE, ESP_OPTIMIZER_MOMENTUM);
    data_parallel(&gate);
    gate_fini(&gate);
}

/* Five samples by these weights are 3, 0, 1, 1: the second device leaves. */
static void test_zero_share(void **state)
{
    (void)state;
    const double shares[] = {6, 0.5, 2, 2};
    gate_t gate;
    strategy_t strategy;
    gate_mlp(&gate, 5, 0, ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    strategy_data_parallel(&strategy, gate.graph, 4, shares);
    const esp_deployment_t *d = gate_lower(&gate, &strategy, 0);
    assert_int_equal(d->device_class[1], ESP_NONE);
    assert_int_equal(d->mesh_offset[1] - d->mesh_offset[0], 3);
    gate_same_step(&gate, &strategy);
    strategy_sharded(&strategy, gate.graph, 4, shares);
    gate_same_step(&gate, &strategy);
    gate_fini(&gate);
}

static void test_masked_mean(void **state)
{
    (void)state;
    const double some[] = {1, -100, 4, 0, -100, -100, 2},
                 none[] = {-100, -100, -100, -100, -100, -100, -100};
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    opts.ignore_label = -100;
    opts.decay = 0;
    gate_t gate;
    gate_init(&gate, model_mlp(7, 0, &opts));
    gate.given = gate_tensor(gate.graph, "labels");
    gate.values = some;
    data_parallel(&gate);
    homes(&gate);
    assert_true(gate.last_loss > 0);
    gate.values = none;
    data_parallel(&gate);
    assert_true(gate.last_loss == 0);
    gate_fini(&gate);
}

static void test_tied_weight(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    gate_t gate;
    gate_init(&gate, model_tied(5, &opts));
    data_parallel(&gate);
    homes(&gate);
    gate_fini(&gate);
}

static void test_dropout(void **state)
{
    (void)state;
    gate_t gate;
    gate_mlp(&gate, 7, 0.3, ESP_LOSS_MSE, ESP_OPTIMIZER_SGD);
    data_parallel(&gate);
    gate_fini(&gate);
}

static void test_merged_batch(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_MOMENTUM);
    for (int32_t sequence_first = 0; sequence_first < 2; sequence_first++) {
        gate_t gate;
        gate_init(&gate, model_sequence(5, sequence_first, &opts));
        data_parallel(&gate);
        homes(&gate);
        gate_fini(&gate);
    }
}

static void test_transformer(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAMW);
    gate_t gate;
    gate_init(&gate, model_transformer(5, 1, 0.2, &opts));
    gate.steps = 4;
    data_parallel(&gate);
    homes(&gate);
    gate_fini(&gate);
}

/* One tensor in several splits: by rows, by columns, by shares of the batch, evenly. */
static void test_per_sample_parameters(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_MSE, ESP_OPTIMIZER_ADAM);
    gate_t gate;
    gate_init(&gate, model_per_sample(6, &opts));
    gate.steps = 4;
    data_parallel(&gate);
    homes(&gate);
    gate_fini(&gate);
}

/* ---- homes ------------------------------------------------------------------------------- */

static void test_optimizers(void **state)
{
    (void)state;
    static const esp_optimizer_t optimizers[] = {ESP_OPTIMIZER_SGD, ESP_OPTIMIZER_MOMENTUM,
                                                 ESP_OPTIMIZER_ADAM, ESP_OPTIMIZER_ADAMW};
    for (int32_t i = 0; i < 4; i++) {
        gate_t gate;
        gate_mlp(&gate, 6, 0, ESP_LOSS_XENT, optimizers[i]);
        homes(&gate);
        gate_fini(&gate);
    }
}

static void test_clipping(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    opts.clip_norm = 0.05;
    gate_t gate;
    gate_init(&gate, model_mlp(6, 0, &opts));
    homes(&gate);
    gate_fini(&gate);
    gate_init(&gate, model_tied(6, &opts));
    homes(&gate);
    gate_fini(&gate);
}

static void test_buckets(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 64, 1 << 20};
    gate_t gate;
    gate_mlp(&gate, 6, 0, ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    for (int32_t i = 0; i < 3; i++) {
        strategy_t strategy;
        strategy_data_parallel(&strategy, gate.graph, 3, uneven3);
        strategy.strategy.bucket_bytes = sizes[i];
        gate_same_step(&gate, &strategy);
        strategy_sharded(&strategy, gate.graph, 3, uneven3);
        strategy.strategy.bucket_bytes = sizes[i];
        gate_same_step(&gate, &strategy);
        strategy_mixed(&strategy, gate.graph, 3, uneven3);
        strategy.strategy.bucket_bytes = sizes[i];
        gate_same_step(&gate, &strategy);
    }
    gate_fini(&gate);
}

/* The ops that make weight gradients, on the whole batch everywhere: the factors travel. */
static void test_duplicated_gradient(void **state)
{
    (void)state;
    gate_t gate;
    gate_mlp(&gate, 6, 0, ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    for (int32_t all = 0; all < 2; all++) {
        strategy_t strategy;
        strategy_data_parallel(&strategy, gate.graph, 3, uneven3);
        const esp_graph_t *g = gate.graph;
        for (int32_t i = 0; i < g->n_parameters; i += all ? 1 : 2)
            strategy_op(&strategy, g->tensor_producer[g->tensor_root[g->gradient[i]]], 0,
                        ESP_MODE_WHOLE);
        gate_same_step(&gate, &strategy);
    }
    gate_fini(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_device),
        cmocka_unit_test(test_unequal_shares),
        cmocka_unit_test(test_zero_share),
        cmocka_unit_test(test_masked_mean),
        cmocka_unit_test(test_tied_weight),
        cmocka_unit_test(test_per_sample_parameters),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_merged_batch),
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_duplicated_gradient),
    };
    return cmocka_run_group_tests_name("deploy", tests, NULL, NULL);
}
