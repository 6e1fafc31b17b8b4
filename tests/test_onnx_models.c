/* The shipped models, and public ones of another exporter: they load, with the weights they are
 * known to have, and the batch reaches all the work. */
#include "onnx_writer.h"
#include "support.h"

#include <stdlib.h>

typedef struct model_case {
    const char *path;
    int64_t parameters; /* elements of all weights that are trained */
    double gflop;       /* of a sample, forward, rounded */
    const char *shape;  /* of the first output, with the batch as N */
} model_case_t;

static const model_case_t shipped[] = {
    {"models/resnet50.onnx", 25557032, 8.3, "N 1000"},
    {"models/resnet101.onnx", 44549160, 15.7, "N 1000"},
    {"models/vgg19.onnx", 143667240, 39.3, "N 1000"},
    {"models/inception_v3.onnx", 27161264, 11.5, "N 1000"},
    {"models/vit_b16.onnx", 86567656, 35.5, "N 1000"},
    {"models/transformer_2layer.onnx", 63898880, 4.0, "64 N 32000"},
    {"models/transformer.onnx", 93324544, 7.9, "64 N 32000"},
    {"models/bert_large.onnx", 335174458, 87.8, "N 128 30522"},
    {"models/gpt2_small.onnx", 124439808, 66.3, "N 256 50257"},
};

/* Fixed batch of 1, opset 9, weights as constants of a shape. */
static const model_case_t light[] = {
    {"data/onnx-light/densenet121.onnx", 8062504, 5.8, "N 1000 1 1"},
    {"data/onnx-light/inception_v1.onnx", 6998552, 2.9, "N 1000"},
    {"data/onnx-light/resnet50.onnx", 25557032, 8.3, "N 1000"},
    {"data/onnx-light/vgg19.onnx", 143667240, 39.3, "N 1000"},
};

static int64_t trained_elements(const esp_graph_t *graph)
{
    int64_t elements = 0;
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++)
        if (graph->tensor_role[t] == ESP_ROLE_PARAMETER)
            elements += graph->tensor_elements[t];
    return elements;
}

static void check_work(const esp_graph_t *graph, const model_case_t *model, int64_t batch)
{
    double all = 0, split = 0;
    for (esp_op_id_t op = 0; op < graph->n_ops; op++) {
        all += graph->op_flops[op];
        split += graph->op_batch[op].dim != ESP_NONE ? graph->op_flops[op] : 0;
    }
    double gflop = all / 1e9 / (double)batch;
    if (gflop < 0.98 * model->gflop || gflop > 1.02 * model->gflop)
        fail_msg("%s: %.2f GFLOP per sample", model->path, gflop);
    if (batch > 1 && split < 0.99 * all)
        fail_msg("%s: only %.1f %% of the work is split", model->path, 100 * split / all);
}

static void check_output(const esp_graph_t *graph, const char *shape, int64_t batch)
{
    esp_tensor_id_t y = graph->output[0];
    for (int32_t d = 0; d < graph->tensor_rank[y]; d++) {
        bool is_batch = *shape == 'N';
        int64_t extent = is_batch ? batch : strtoll(shape, (char **)&shape, 10);
        assert_int_equal(graph->tensor_dims[y][d], extent);
        shape += is_batch ? 2 : 1;
    }
    if (batch > 1)
        assert_int_equal(graph->tensor_batch[y].extent, batch);
}

static void check_model(const char *path, const model_case_t *model, int64_t ask, int64_t batch)
{
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    opts.batch = ask;
    test_assert_ok(esp_onnx_load(path, &opts, NULL, &graph, &diag), &diag);
    test_assert_ok(esp_graph_check(graph, &diag), &diag);
    assert_int_equal(graph->batch, batch);
    assert_int_equal(trained_elements(graph), model->parameters);
    check_work(graph, model, batch);
    check_output(graph, model->shape, batch);
    esp_graph_destroy(graph);
}

static void test_shipped(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof shipped / sizeof *shipped; k++) {
        char path[TEST_PATH_MAX];
        test_source_path(shipped[k].path, path);
        check_model(path, &shipped[k], 0, ESP_ONNX_DEFAULT_BATCH);
        check_model(path, &shipped[k], 6, 6);
    }
}

static void test_light(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof light / sizeof *light; k++) {
        char path[TEST_PATH_MAX];
        test_shared_path(light[k].path, path);
        check_model(path, &light[k], 0, 1);
        check_model(path, &light[k], 32, 32);
    }
}

/* No op of a shape or a mask survives: data enters through inputs and weights only. */
static void test_constants_are_small(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    test_source_path("models/transformer_2layer.onnx", path);
    test_assert_ok(esp_onnx_load(path, NULL, NULL, &graph, &diag), &diag);
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensor_role[t] == ESP_ROLE_CONSTANT)
            assert_true(graph->tensor_elements[t] <= 64 * 64); /* the causal mask */
        if (graph->tensor_role[t] == ESP_ROLE_INPUT)
            continue;
        assert_true(esp_dtype_is_float((esp_dtype_t)graph->tensor_dtype[t]));
    }
    esp_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped),
        cmocka_unit_test(test_light),
        cmocka_unit_test(test_constants_are_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
