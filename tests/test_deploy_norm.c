/*
 * The gate: batch normalisation. Synchronised, it equals the undistributed graph; local, the graph
 * with ghost batches of the same shares, running statistics included.
 */
#include "gate.h"
#include "models.h"
#include "support.h"

static const double uneven[] = {4, 1, 2};

static void test_synchronised(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_MOMENTUM);
    gate_t gate;
    gate_init(&gate, model_convnet(7, 0, NULL, &opts));
    gate.steps = 5;
    for (int32_t n = 1; n <= 3; n++) {
        strategy_t strategy;
        strategy_data_parallel(&strategy, gate.graph, n, uneven);
        gate_same_step(&gate, &strategy);
        strategy_parameter_server(&strategy, gate.graph, n, uneven, 3);
        gate_same_step(&gate, &strategy);
        strategy_sharded(&strategy, gate.graph, n, uneven);
        gate_same_step(&gate, &strategy);
        strategy_mixed(&strategy, gate.graph, n, uneven);
        gate_same_step(&gate, &strategy);
    }
    gate_fini(&gate);
}

static void local(gate_t *gate, strategy_t *strategy, int32_t micro_batches)
{
    strategy->strategy.sync_batchnorm = 0;
    strategy->strategy.micro_batches = micro_batches;
    gate_same_step(gate, strategy);
}

/* The ghosts are the shares of the devices, in every micro-batch. */
static void check_ghosts(int64_t batch, int32_t n, const double *weight, int32_t micro_batches,
                         int32_t ghosts, const int64_t *share)
{
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_MOMENTUM);
    gate_t gate;
    strategy_t strategy;
    gate_init(&gate, model_convnet(batch, 0, NULL, &opts));
    gate.steps = 5;
    gate_reference(&gate, model_convnet(batch, ghosts, share, &opts));
    strategy_data_parallel(&strategy, gate.graph, n, weight);
    local(&gate, &strategy, micro_batches);
    strategy_parameter_server(&strategy, gate.graph, n, weight, 3);
    local(&gate, &strategy, micro_batches);
    strategy_sharded(&strategy, gate.graph, n, weight);
    local(&gate, &strategy, micro_batches);
    strategy_mixed(&strategy, gate.graph, n, weight);
    local(&gate, &strategy, micro_batches);
    gate_fini(&gate);
}

static void test_local(void **state)
{
    (void)state;
    check_ghosts(7, 2, uneven, 1, 2, (const int64_t[]){6, 1}); /* by largest remainder */
    check_ghosts(7, 3, uneven, 1, 3, (const int64_t[]){4, 1, 2});
    check_ghosts(8, 4, NULL, 1, 4, (const int64_t[]){2, 2, 2, 2});
    check_ghosts(6, 1, NULL, 1, 1, (const int64_t[]){6});
    /* the second device has no share and leaves */
    check_ghosts(5, 3, (const double[]){3, 0.1, 2}, 1, 2, (const int64_t[]){3, 2});
}

static void test_local_micro_batches(void **state)
{
    (void)state;
    check_ghosts(6, 1, NULL, 2, 2, (const int64_t[]){3, 3});
    check_ghosts(8, 2, NULL, 2, 4, (const int64_t[]){2, 2, 2, 2});
    check_ghosts(12, 3, uneven, 2, 6, (const int64_t[]){3, 1, 2, 3, 1, 2});
    check_ghosts(12, 2, uneven, 4, 8, (const int64_t[]){2, 1, 2, 1, 2, 1, 2, 1});
}

/* Normalisation that does not run where its statistics are made has no addends of its own. */
static void test_local_elsewhere(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    const esp_deployment_t *deployment;
    esp_diag_t diag = {0};
    gate_t gate;
    strategy_t strategy;
    gate_init(&gate, model_convnet(6, 0, NULL, &opts));
    strategy_data_parallel(&strategy, gate.graph, 2, NULL);
    strategy.strategy.sync_batchnorm = 0;
    const int32_t other = strategy_mesh(&strategy, 2, (const int32_t[]){1, 2}, NULL);
    for (esp_op_id_t op = 0; op < gate.graph->n_ops; op++)
        if (gate.graph->op_kind[op] == ESP_KIND_BN_NORM)
            strategy_op(&strategy, op, other, ESP_MODE_BATCH);
    test_assert_fails(esp_lower(gate.lowerer[0], &strategy.strategy, &deployment, &diag), &diag,
                      ESP_ERR_ARGUMENT, "needs the addends of");
    strategy_fini(&strategy);
    strategy_data_parallel(&strategy, gate.graph, 2, NULL);
    strategy.strategy.micro_batches = 2;
    test_assert_fails(esp_lower(gate.lowerer[0], &strategy.strategy, &deployment, &diag), &diag,
                      ESP_ERR_ARGUMENT, "synchronised BatchNorm");
    strategy_fini(&strategy);
    gate_fini(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synchronised),
        cmocka_unit_test(test_local),
        cmocka_unit_test(test_local_micro_batches),
        cmocka_unit_test(test_local_elsewhere),
    };
    return cmocka_run_group_tests_name("deploy_norm", tests, NULL, NULL);
}
