/*
 * The cheapest test of the idea: a data-parallel deployment of a real network moves no activation,
 * and nearly all of its work is split by the batch.
 */
#include "espalier/onnx.h"
#include "gate.h"
#include "models.h"
#include "support.h"

static double flops_split(const esp_graph_t *g)
{
    double all = 0, split = 0;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        all += g->op_flops[op];
        split += g->op_batch[op].dim != ESP_NONE ? g->op_flops[op] : 0;
    }
    return split / all;
}

static int32_t count_splits(const esp_deployment_t *d)
{
    int32_t n = 0;
    for (int32_t t = 0; t < d->n_tasks; t++)
        n += d->task_kind[t] == ESP_TASK_COMPUTE && d->task_mode[t] == ESP_MODE_BATCH;
    return n;
}

/* The graph becomes the function's. `share`: of the work, at least this is split. */
static void check(esp_graph_t *graph, double share)
{
    static const double uneven[] = {2, 1, 1};
    gate_t gate;
    gate_init(&gate, graph);
    for (int32_t n = 2; n <= 3; n++)
        for (int32_t sync = 0; sync < 2; sync++) {
            strategy_t strategy;
            strategy_data_parallel(&strategy, graph, n, uneven);
            strategy.strategy.sync_batchnorm = sync;
            strategy.strategy.bucket_bytes = 25 << 20;
            const esp_deployment_t *d = gate_lower(&gate, &strategy, 0);
            esp_diag_t diag = {0};
            int64_t bytes;
            test_assert_ok(esp_deployment_check(d, &diag), &diag);
            gate_check_rules(d, graph->name);
            const int32_t moves = esp_deployment_activation_moves(d, &bytes);
            if (moves != 0)
                fail_msg("%s on %d devices moves %d activations, %lld bytes", graph->name, n, moves,
                         (long long)bytes);
            assert_int_equal(bytes, 0);
            assert_true(count_splits(d) > 0);
            strategy_fini(&strategy);
        }
    if (!(flops_split(graph) >= share))
        fail_msg("only %g of the work of %s is split by the batch", flops_split(graph),
                 graph->name);
    gate_fini(&gate);
}

static void test_small(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    opts.clip_norm = 1;
    check(model_mlp(8, 0.1, &opts), 0.5);
    check(model_sequence(8, false, &opts), 0.5);
    check(model_sequence(8, true, &opts), 0.5);
    opts.ignore_label = 0;
    check(model_convnet(8, 0, NULL, &opts), 0.5);
    check(model_transformer(8, 2, 0.1, &opts), 0.5);
}

static void check_file(const char *name)
{
    char path[TEST_PATH_MAX];
    const esp_training_opts_t opts = esp_training_opts_default();
    esp_onnx_opts_t load = esp_onnx_opts_default();
    esp_graph_t *model, *canonical, *graph;
    esp_diag_t diag = {0};
    load.batch = 8;
    test_assert_ok(esp_onnx_load(test_source_path(name, path), &load, NULL, &model, &diag), &diag);
    test_assert_ok(esp_graph_canonicalise(model, NULL, &canonical, &diag), &diag);
    test_assert_ok(esp_training_graph(canonical, &opts, NULL, &graph, &diag), &diag);
    esp_graph_destroy(model);
    esp_graph_destroy(canonical);
    check(graph, 0.99);
}

static void test_resnet50(void **state)
{
    (void)state;
    check_file("models/resnet50.onnx");
}

static void test_transformer(void **state)
{
    (void)state;
    check_file("models/transformer_2layer.onnx");
}

static void test_others(void **state)
{
    (void)state;
    static const char *const names[] = {"models/vgg19.onnx", "models/inception_v3.onnx",
                                        "models/vit_b16.onnx", "models/gpt2_small.onnx",
                                        "models/bert_large.onnx"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_file(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_resnet50),
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests_name("deploy_models", tests, NULL, NULL);
}
