/* esp_evaluation_graph: what the loss and the counts are, and what it leaves out of the model. */
#include "deployments.h"
#include "interp.h"

#include "espalier/onnx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 6, CLASSES = 5 };

static esp_tensor_id_t find(const esp_graph_t *graph, const char *name)
{
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++)
        if (strcmp(graph->tensor_name[i], name) == 0)
            return i;
    fail_msg("no tensor %s in graph %s", name, graph->name);
    return ESP_NONE;
}

static esp_graph_t *freeze(net_t *net, esp_tensor_id_t output)
{
    esp_graph_t *model;
    assert_int_equal(esp_builder_output(net->builder, output), ESP_OK);
    test_assert_ok(esp_builder_freeze(net->builder, &model, &net->diag), &net->diag);
    esp_builder_destroy(net->builder);
    return model;
}

static esp_graph_t *evaluation(const esp_graph_t *model, const esp_training_opts_t *opts)
{
    esp_graph_t *graph;
    esp_diag_t diag = {0};
    test_assert_ok(esp_evaluation_graph(model, opts, NULL, &graph, &diag), &diag);
    test_assert_ok(esp_graph_check(graph, &diag), &diag);
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++)
        assert_true(graph->tensor_role[i] != ESP_ROLE_PARAMETER &&
                    graph->tensor_role[i] != ESP_ROLE_STATISTIC);
    return graph;
}

static esp_graph_t *classifier(void)
{
    net_t net;
    net_init(&net, "classifier");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(BATCH, 4), 0);
    x = net_dropout(&net, x, 0.5, 3);
    return freeze(&net, net_dense(&net, "out", x, CLASSES));
}

/* Counts and the sum of the losses, over two batches, by hand. */
static void test_counts(void **state)
{
    static const double labels[BATCH] = {0, 1, 2, 3, 4, 2};
    esp_graph_t *model = classifier();
    esp_training_opts_t opts = esp_training_opts_default();
    (void)state;
    for (int ignored = -1; ignored < CLASSES; ignored++) {
        opts.ignore_label = ignored < 0 ? INT64_MIN : ignored;
        esp_graph_t *graph = evaluation(model, &opts);
        interp_t *interp = interp_new(graph, 11);
        double loss = 0, correct = 0, counted = 0, sum = 0;
        interp_set(interp, find(graph, "labels"), labels);
        for (int step = 0; step < 2; step++) {
            interp_step(interp);
            sum += interp_get(interp, graph->loss)[0];
            const double *x = interp_get(interp, find(graph, "x"));
            const double *w = interp_get(interp, find(graph, "out/w"));
            const double *b = interp_get(interp, find(graph, "out/b"));
            for (int i = 0; i < BATCH; i++) {
                double y[CLASSES], total = 0;
                int label = (int)labels[i], best = 0;
                for (int k = 0; k < CLASSES; k++) {
                    y[k] = b[k];
                    for (int j = 0; j < 4; j++)
                        y[k] += x[4 * i + j] * w[CLASSES * j + k];
                    total += exp(y[k]);
                    best = y[k] > y[best] ? k : best;
                }
                if (label == ignored)
                    continue;
                loss += log(total) - y[label];
                correct += best == label;
                counted += 1;
            }
        }
        assert_true(fabs(sum - loss) < 1e-9);
        assert_true(interp_get(interp, find(graph, ESP_EVAL_CORRECT))[0] == correct);
        assert_true(interp_get(interp, find(graph, ESP_EVAL_COUNTED))[0] == counted);
        interp_free(interp);
        esp_graph_destroy(graph);
    }
    esp_graph_destroy(model);
}

/* Of equal logits the first counts; what is no number is never right. */
static void test_ties(void **state)
{
    static const double labels[BATCH] = {0, 1, 0, 3, 0, 2}, zeros[4 * CLASSES] = {0};
    double bad[CLASSES] = {(double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN};
    esp_graph_t *model = classifier();
    esp_graph_t *graph = evaluation(model, NULL);
    interp_t *interp = interp_new(graph, 11);
    (void)state;
    interp_set(interp, find(graph, "labels"), labels);
    interp_set(interp, find(graph, "out/w"), zeros);
    interp_set(interp, find(graph, "out/b"), zeros);
    interp_step(interp);
    assert_true(interp_get(interp, find(graph, ESP_EVAL_CORRECT))[0] == 3);
    interp_set(interp, find(graph, "out/b"), bad);
    interp_step(interp);
    assert_true(interp_get(interp, find(graph, ESP_EVAL_CORRECT))[0] == 3);
    interp_free(interp);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

/* With the statistics of a batch as the running ones, evaluating it gives the loss of training. */
static void test_batchnorm(void **state)
{
    esp_graph_t *step, *graph;
    esp_training_opts_t opts = esp_training_opts_default();
    esp_diag_t diag = {0};
    net_t net;
    (void)state;
    net_init(&net, "norm");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 4, NET_DIMS(BATCH, 3, 2, 2), 0);
    x = net_batchnorm(&net, "bn", x, 0, NULL);
    x = net_reshape(&net, x, 2, NET_DIMS(BATCH, 12));
    esp_graph_t *model = freeze(&net, net_dense(&net, "out", x, CLASSES));
    test_assert_ok(esp_training_graph(model, &opts, NULL, &step, &diag), &diag);
    graph = evaluation(model, &opts);
    interp_t *train = interp_new(step, 5), *eval = interp_new(graph, 5);
    interp_run(train);
    for (int32_t i = 0; i < step->n_parameters; i++)
        interp_set(eval, find(graph, step->tensor_name[step->parameter[i]]),
                   interp_get(train, step->parameter[i]));
    for (esp_op_id_t op = 0; op < step->n_ops; op++) {
        if (step->op_kind[op] != ESP_KIND_UPDATE ||
            step->op_attr[op].update.optimizer != ESP_OPTIMIZER_STATISTIC)
            continue;
        esp_tensor_id_t running = step->input_tensor[step->input_offset[op]];
        esp_tensor_id_t fresh = step->input_tensor[step->input_offset[op] + 1];
        double values[3], n = BATCH * 4;
        bool variance =
            step->output_tensor[step->output_offset[step->tensor_producer[fresh]] + 2] == fresh;
        for (int c = 0; c < 3; c++) /* the running one is unbiased, the batch's own is not */
            values[c] = interp_get(train, fresh)[c] * (variance ? (n - 1) / n : 1);
        interp_set(eval, find(graph, step->tensor_name[running]), values);
    }
    interp_step(eval);
    double mean = interp_get(eval, graph->loss)[0] / BATCH;
    assert_true(fabs(mean - interp_get(train, step->loss)[0]) < 1e-9);
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        assert_true(graph->op_kind[op] != ESP_KIND_BN_STATS);
    interp_free(train);
    interp_free(eval);
    esp_graph_destroy(graph);
    esp_graph_destroy(step);
    esp_graph_destroy(model);
}

/* Every bundled model can be evaluated; split by samples, no activation travels. */
static void test_models(void **state)
{
    static const char *const names[] = {"resnet50",           "bert_large", "gpt2_small",
                                        "inception_v3",       "lstm_lm",    "transformer",
                                        "transformer_2layer", "vgg19",      "vit_b16"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[64], path[TEST_PATH_MAX];
        esp_graph_t *imported, *model;
        esp_onnx_opts_t opts = esp_onnx_opts_default();
        const esp_deployment_t *deployment;
        esp_diag_t diag = {0};
        bench_t bench;
        plan_of_t plan;
        int64_t bytes;
        opts.batch = 16;
        (void)snprintf(file, sizeof file, "models/%s.onnx", names[i]);
        test_assert_ok(esp_onnx_load(test_source_path(file, path), &opts, NULL, &imported, &diag),
                       &diag);
        test_assert_ok(esp_graph_canonicalise(imported, NULL, &model, &diag), &diag);
        bench_init(&bench, evaluation(model, NULL), bench_cluster("cpu4"));
        for (esp_op_id_t op = 0; op < bench.graph->n_ops; op++)
            assert_true(bench.graph->op_kind[op] != ESP_KIND_DROPOUT &&
                        bench.graph->op_kind[op] != ESP_KIND_BN_STATS);
        plan_data_parallel(&plan, &bench, ESP_MODE_WHOLE, 1);
        test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &deployment, &diag), &diag);
        test_assert_ok(esp_deployment_pack(bench.lowerer, &diag), &diag);
        test_assert_ok(esp_deployment_check(deployment, &diag), &diag);
        if (esp_deployment_activation_moves(deployment, &bytes) != 0)
            fail_msg("%s moves %lld bytes of activations", names[i], (long long)bytes);
        plan_fini(&plan);
        bench_fini(&bench);
        esp_graph_destroy(model);
        esp_graph_destroy(imported);
    }
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    esp_graph_t *graph;
    esp_diag_t diag = {0};
    ESP_TRY(esp_evaluation_graph(context, NULL, alloc, &graph, &diag));
    esp_graph_destroy(graph);
    return ESP_OK;
}

static void test_refuses(void **state)
{
    esp_graph_t *model = classifier(), *graph, *again;
    esp_training_opts_t opts = esp_training_opts_default();
    esp_diag_t diag = {0};
    (void)state;
    opts.loss = ESP_LOSS_OUTPUT;
    test_assert_fails(esp_evaluation_graph(model, &opts, NULL, &graph, &diag), &diag,
                      ESP_ERR_INVALID, "not a scalar");
    opts.momentum = 2;
    test_assert_fails(esp_evaluation_graph(model, &opts, NULL, &graph, &diag), &diag,
                      ESP_ERR_ARGUMENT, "momentum");
    graph = evaluation(model, NULL);
    test_assert_fails(esp_evaluation_graph(graph, NULL, NULL, &again, &diag), &diag,
                      ESP_ERR_ARGUMENT, "already");
    test_sweep_allocations(attempt, model, 7);
    esp_graph_destroy(graph);
    esp_graph_destroy(model);
}

/* Decay is 0 in the updates of the parameters that the pattern names, and nowhere else. */
static void test_no_decay(void **state)
{
    esp_graph_t *model = classifier(), *step;
    esp_training_opts_t opts = esp_training_opts_default();
    esp_diag_t diag = {0};
    int32_t seen = 0;
    (void)state;
    opts.decay = 0.125;
    opts.no_decay_regex = "/b$";
    test_assert_ok(esp_training_graph(model, &opts, NULL, &step, &diag), &diag);
    for (int32_t i = 0; i < step->n_parameters; i++) {
        bool bias = strcmp(step->tensor_name[step->parameter[i]], "out/b") == 0;
        seen += 1 + bias;
        assert_true(step->op_attr[step->update[i]].update.decay == (bias ? 0 : 0.125));
    }
    assert_int_equal(seen, 3);
    esp_graph_destroy(step);
    opts.no_decay_regex = "(";
    test_assert_fails(esp_training_graph(model, &opts, NULL, &step, &diag), &diag, ESP_ERR_ARGUMENT,
                      "no_decay");
    esp_graph_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),    cmocka_unit_test(test_ties),
        cmocka_unit_test(test_batchnorm), cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_no_decay),  cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
