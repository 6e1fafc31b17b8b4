/* The shipped models: canonical, as training graphs, split by their batch, there and back as text.
 */
#include "espalier/onnx.h"
#include "graph_build.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

static esp_graph_t *load(const char *name)
{
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    esp_graph_t *graph = NULL;
    esp_status_t status = esp_onnx_load(test_source_path(name, path), NULL, NULL, &graph, &diag);
    if (status == ESP_ERR_UNSUPPORTED)
        return NULL; /* tests of the importer know about those */
    test_assert_ok(status, &diag);
    return graph;
}

static esp_graph_t *canonical(const esp_graph_t *graph)
{
    esp_diag_t diag = {0};
    esp_graph_t *made = NULL;
    test_assert_ok(esp_graph_canonicalise(graph, NULL, &made, &diag), &diag);
    test_assert_ok(esp_graph_check(made, &diag), &diag);
    assert_true(made->n_ops <= graph->n_ops);
    return made;
}

static esp_graph_t *train(const esp_graph_t *model)
{
    esp_diag_t diag = {0};
    esp_graph_t *graph = NULL;
    test_assert_ok(esp_training_graph(model, NULL, NULL, &graph, &diag), &diag);
    test_assert_ok(esp_graph_check(graph, &diag), &diag);
    return graph;
}

static bool sees_batch(const esp_graph_t *graph, esp_op_id_t op)
{
    for (int32_t i = graph->input_offset[op]; i < graph->input_offset[op + 1]; i++)
        if (graph->input_tensor[i] != ESP_NONE &&
            graph->tensor_batch[graph->input_tensor[i]].extent > 0)
            return true;
    return false;
}

/* Every op that reads something of a sample is split by samples; the rest is next to no work. */
static void check_split(const esp_graph_t *graph)
{
    double all = 0, split = 0;
    for (esp_op_id_t op = 0; op < graph->n_ops; op++) {
        bool is_split = graph->op_batch[op].dim != ESP_NONE;
        if (!is_split && sees_batch(graph, op))
            fail_msg("op %s is not split", graph->op_name[op]);
        all += graph->op_phase[op] != ESP_PHASE_UPDATE ? graph->op_flops[op] : 0;
        split += is_split ? graph->op_flops[op] : 0;
    }
    assert_true(split >= 0.99 * all);
}

static void check_text(const esp_graph_t *graph)
{
    char *text = NULL, *same = NULL;
    esp_graph_t *again = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(esp_graph_dump(graph, NULL, &text, &diag), &diag);
    test_assert_ok(esp_graph_parse(text, strlen(text), "dump", NULL, &again, &diag), &diag);
    test_assert_ok(esp_graph_dump(again, NULL, &same, &diag), &diag);
    assert_int_equal(strcmp(text, same), 0);
    esp_graph_destroy(again);
    free(text);
    free(same);
}

/* `n_attention`: attentions of the model, all of which are recognised. */
static void check_model(const char *name, int32_t n_attention)
{
    esp_graph_t *model = load(name);
    if (model == NULL)
        return;
    esp_graph_t *small = canonical(model), *graph = train(small);
    assert_true(graph->batch > 0);
    assert_int_equal(gb_count(small, ESP_KIND_ATTENTION), n_attention);
    assert_int_equal(gb_count(graph, ESP_KIND_ATTENTION_GRAD), n_attention);
    assert_int_equal(gb_count(small, ESP_KIND_SOFTMAX), 0);
    check_split(graph);
    check_text(graph);
    assert_true(graph->n_parameters > 0);
    esp_graph_destroy(graph);
    esp_graph_destroy(small);
    esp_graph_destroy(model);
}

static void test_convolutional(void **state)
{
    (void)state;
    check_model("models/resnet50.onnx", 0);
    check_model("models/resnet101.onnx", 0);
    check_model("models/inception_v3.onnx", 0);
    check_model("models/vgg19.onnx", 0);
}

static void test_transformers(void **state)
{
    (void)state;
    check_model("models/bert_large.onnx", 24);
    check_model("models/gpt2_small.onnx", 12);
    check_model("models/transformer.onnx", 18);
    check_model("models/transformer_2layer.onnx", 6);
    check_model("models/vit_b16.onnx", 12);
}

static void test_recurrent(void **state)
{
    (void)state;
    check_model("models/lstm_lm.onnx", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutional),
        cmocka_unit_test(test_transformers),
        cmocka_unit_test(test_recurrent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
