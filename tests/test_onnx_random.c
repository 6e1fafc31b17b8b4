/* Dropout and random numbers of ONNX files: laws, shapes, streams, and what is refused. */
#include "onnx_writer.h"
#include "support.h"

/* A file of one input x[N, 3] and one node, whose result goes through a ReLU. */
static void one_node(onnx_model_t *m, int64_t opset, const char *type, const char *inputs,
                     const char *attributes)
{
    om_init(m, opset);
    om_input(m, "x", OM_FLOAT, "N 3");
    om_floats(m, "half", "", "0.5");
    om_ints(m, "one", "", "1");
    om_node(m, type, inputs, "r", attributes);
    om_node(m, "Relu", "r", "y", "");
    om_output(m, "y");
}

/* The only op of this kind, or ESP_NONE. */
static esp_op_id_t op_of(const esp_graph_t *graph, esp_op_kind_t kind)
{
    esp_op_id_t found = ESP_NONE;
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        if (graph->op_kind[op] == kind) {
            assert_int_equal(found, ESP_NONE);
            found = op;
        }
    return found;
}

typedef struct law {
    const char *type, *inputs, *attributes;
    esp_random_t law;
    double value, step;
    int32_t rank;
    int64_t dims[2];
} law_t;

static void test_laws(void **state)
{
    static const law_t laws[] = {
        {"RandomNormal",
         "",
         "shape=[2,4] mean=1.5 scale=2.0",
         ESP_RANDOM_NORMAL,
         1.5,
         2,
         2,
         {2, 4}},
        {"RandomUniform", "", "shape=[5] low=1.0 high=4.0", ESP_RANDOM_UNIFORM, 1, 3, 1, {5}},
        {"RandomNormalLike", "x", "", ESP_RANDOM_NORMAL, 0, 1, 2, {32, 3}},
        {"RandomUniformLike", "x", "high=0.5 dtype=1", ESP_RANDOM_UNIFORM, 0, 0.5, 2, {32, 3}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof laws / sizeof *laws; i++) {
        onnx_model_t m;
        one_node(&m, 15, laws[i].type, laws[i].inputs, laws[i].attributes);
        esp_graph_t *graph = om_graph(&m, NULL);
        esp_op_id_t op = op_of(graph, ESP_KIND_RANDOM);
        assert_int_not_equal(op, ESP_NONE);
        const esp_attr_t *attr = &graph->op_attr[op];
        assert_int_equal(attr->shape.law, laws[i].law);
        assert_true(attr->shape.value == laws[i].value && attr->shape.step == laws[i].step);
        assert_int_equal(attr->shape.stream, op);
        assert_int_equal(attr->shape.rank, laws[i].rank);
        for (int32_t d = 0; d < laws[i].rank; d++)
            assert_int_equal(attr->shape.dims[d], laws[i].dims[d]);
        esp_graph_destroy(graph);
    }
}

static void test_bernoulli(void **state)
{
    (void)state;
    onnx_model_t m;
    one_node(&m, 15, "Bernoulli", "x", "");
    esp_graph_t *graph = om_graph(&m, NULL);
    esp_op_id_t op = op_of(graph, ESP_KIND_RANDOM);
    assert_int_equal(graph->op_attr[op].shape.law, ESP_RANDOM_UNIFORM);
    assert_int_not_equal(op_of(graph, ESP_KIND_CAST), ESP_NONE); /* of a comparison */
    assert_int_equal(graph->tensor_dtype[graph->output[0]], ESP_DTYPE_F32);
    esp_graph_destroy(graph);
}

/* Before opset 12 the file does not say whether it trains; later it must. */
static void test_dropout(void **state)
{
    static const struct {
        int64_t opset;
        const char *inputs, *attributes;
        double p; /* 0: no op */
    } cases[] = {
        {10, "x", "ratio=0.25", 0.25}, {10, "x", "ratio=0.0", 0}, {13, "x half one", "", 0.5},
        {13, "x _ one", "", 0.5},      {13, "x half", "", 0},     {13, "x", "", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_model_t m;
        one_node(&m, cases[i].opset, "Dropout", cases[i].inputs, cases[i].attributes);
        esp_graph_t *graph = om_graph(&m, NULL);
        esp_op_id_t op = op_of(graph, ESP_KIND_DROPOUT);
        assert_int_equal(op != ESP_NONE, cases[i].p > 0);
        if (op != ESP_NONE) {
            assert_true(graph->op_attr[op].dropout.p == cases[i].p);
            assert_int_equal(graph->op_attr[op].dropout.stream, op);
        }
        esp_graph_destroy(graph);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *type, *inputs, *attributes;
        esp_status_t status;
        const char *text;
    } cases[] = {
        {"RandomNormal", "", "", ESP_ERR_INVALID, "no shape"},
        {"RandomNormal", "", "shape=[2,-1]", ESP_ERR_INVALID, "negative extent"},
        {"RandomUniform", "", "shape=[2] dtype=8", ESP_ERR_UNSUPPORTED, "string"},
        {"Bernoulli", "x", "dtype=8", ESP_ERR_UNSUPPORTED, "string"},
        {"RandomNormal", "x", "shape=[2]", ESP_ERR_INVALID, "input"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_model_t m;
        esp_diag_t diag = {0};
        esp_graph_t *graph = NULL;
        one_node(&m, 15, cases[i].type, cases[i].inputs, cases[i].attributes);
        test_assert_fails(om_parse(&m, NULL, &graph, &diag), &diag, cases[i].status, cases[i].text);
    }
    onnx_model_t m;
    esp_diag_t diag = {0};
    esp_graph_t *graph = NULL;
    one_node(&m, 10, "Dropout", "x", "ratio=1.0");
    test_assert_fails(om_parse(&m, NULL, &graph, &diag), &diag, ESP_ERR_INVALID, "a ratio of 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_laws),
        cmocka_unit_test(test_bernoulli),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
