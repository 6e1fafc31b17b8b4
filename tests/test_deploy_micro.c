/* The gate: micro-batches. The body repeats on rows of the batch; the step is the same. */
#include "gate.h"
#include "models.h"
#include "support.h"

static const double uneven[] = {3, 1, 2, 1};

static void split(gate_t *gate, strategy_t *strategy, int32_t micro_batches)
{
    strategy->strategy.micro_batches = micro_batches;
    gate_same_step(gate, strategy);
}

/* The graph becomes the gate's. Batches are multiples of 4. */
static void check_gate(gate_t *gate)
{
    for (int32_t micro = 2; micro <= 4; micro += 2)
        for (int32_t n = 1; n <= 3; n++) {
            strategy_t strategy;
            strategy_data_parallel(&strategy, gate->graph, n, uneven);
            split(gate, &strategy, micro);
            strategy_parameter_server(&strategy, gate->graph, n, uneven, 2);
            split(gate, &strategy, micro);
            strategy_sharded(&strategy, gate->graph, n, uneven);
            split(gate, &strategy, micro);
            strategy_mixed(&strategy, gate->graph, n, uneven);
            split(gate, &strategy, micro);
            /* a pipeline, the second part on several devices */
            strategy_init(&strategy, gate->graph);
            const int32_t mesh[] = {
                strategy_mesh(&strategy, 1, (const int32_t[]){3}, NULL),
                strategy_mesh(&strategy, n, (const int32_t[]){0, 1, 2}, uneven)};
            strategy_stages(&strategy, 2, mesh, ESP_MODE_BATCH);
            split(gate, &strategy, micro);
        }
}

static void check(esp_graph_t *graph)
{
    gate_t gate;
    gate_init(&gate, graph);
    gate.steps = 3;
    check_gate(&gate);
    gate_fini(&gate);
}

static void test_mlp(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    check(model_mlp(12, 0.3, &opts));
    opts.clip_norm = 0.1;
    check(model_mlp(16, 0, &opts));
    opts = train_with(ESP_LOSS_MSE, ESP_OPTIMIZER_MOMENTUM);
    check(model_mlp(12, 0.3, &opts));
}

/* The labels that count are those of the whole batch; some micro-batches have none. */
static void test_masked(void **state)
{
    (void)state;
    const double labels[] = {1, -100, 4, 0, -100, -100, -100, -100, 2, 0, -100, 3};
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    opts.ignore_label = -100;
    gate_t gate;
    gate_init(&gate, model_mlp(12, 0.1, &opts));
    gate.steps = 3;
    gate.given = gate_tensor(gate.graph, "labels");
    gate.values = labels;
    check_gate(&gate);
    gate_fini(&gate);
}

static void test_tied_weight(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    opts.clip_norm = 0.1;
    check(model_tied(8, &opts));
    check(model_sum_of_weights(8, &opts));
}

static void test_sequences(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    check(model_sequence(8, false, &opts));
    check(model_sequence(8, true, &opts));
}

/* What is no sum over the batch is added once, not once per micro-batch. */
static void test_penalty(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_OUTPUT, ESP_OPTIMIZER_SGD);
    check(model_penalty(8, &opts));
    check(model_offset(8, &opts));
}

static void test_transformer(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAMW);
    check(model_transformer(4, 1, 0.1, &opts));
}

/* ---- what has no micro-batches ----------------------------------------------------------- */

/* x minus its mean over the batch. */
static esp_graph_t *model_coupled(int64_t batch, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "coupled");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 4), 0);
    x = net_dense(&net, "one", x, 4);
    x = net_binary(&net, ESP_ELT_SUB, x, net_reduce(&net, ESP_REDUCE_SUM, x, 1));
    return net_train(&net, net_dense(&net, "two", x, 3), opts);
}

static void test_coupled(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_MSE, ESP_OPTIMIZER_SGD);
    const esp_deployment_t *deployment;
    esp_diag_t diag = {0};
    gate_t gate;
    strategy_t strategy;
    gate_init(&gate, model_coupled(6, &opts));
    strategy_data_parallel(&strategy, gate.graph, 2, NULL);
    strategy.strategy.micro_batches = 2;
    test_assert_fails(esp_lower(gate.lowerer[0], &strategy.strategy, &deployment, &diag), &diag,
                      ESP_ERR_ARGUMENT, "couples the samples");
    strategy.strategy.micro_batches = 4;
    test_assert_fails(esp_lower(gate.lowerer[0], &strategy.strategy, &deployment, &diag), &diag,
                      ESP_ERR_ARGUMENT, "do not divide");
    strategy.strategy.micro_batches = 1;
    gate_same_step(&gate, &strategy);
    gate_fini(&gate);
    /* rows of a parameter would have to change from one micro-batch to the next */
    gate_init(&gate, model_per_sample(6, &opts));
    strategy_data_parallel(&strategy, gate.graph, 2, NULL);
    strategy.strategy.micro_batches = 2;
    test_assert_fails(esp_lower(gate.lowerer[0], &strategy.strategy, &deployment, &diag), &diag,
                      ESP_ERR_ARGUMENT, "couples the samples");
    strategy_fini(&strategy);
    gate_fini(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),         cmocka_unit_test(test_masked),
        cmocka_unit_test(test_tied_weight), cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_penalty),     cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_coupled),
    };
    return cmocka_run_group_tests_name("deploy_micro", tests, NULL, NULL);
}
