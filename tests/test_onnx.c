/* Importing ONNX files: where the batch is, symbolic dimensions, weights, functions, branches. */
#include "graph_build.h"
#include "onnx_writer.h"
#include "support.h"

#include <string.h>

static void assert_shape(const esp_graph_t *graph, esp_tensor_id_t tensor, const char *shape)
{
    int64_t dims[ESP_MAX_RANK];
    int32_t rank = gb_numbers(shape, dims);
    assert_int_equal(graph->tensor_rank[tensor], rank);
    for (int32_t d = 0; d < rank; d++)
        assert_int_equal(graph->tensor_dims[tensor][d], dims[d]);
}

static void assert_output(const esp_graph_t *graph, const char *shape)
{
    assert_int_equal(graph->n_outputs, 1);
    assert_shape(graph, graph->output[0], shape);
}

static esp_onnx_opts_t with_batch(int64_t batch)
{
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    opts.batch = batch;
    return opts;
}

/* ---- the batch ------------------------------------------------------------------------------- */

/* x [dims] through one dense layer on the last axis. */
static void dense_model(onnx_model_t *m, const char *dims)
{
    om_init(m, 17);
    om_input(m, "x", OM_FLOAT, dims);
    om_weight(m, "w", "6 4");
    om_node(m, "MatMul", "x w", "y", "");
    om_output(m, "y");
}

static void test_symbolic_batch(void **state)
{
    (void)state;
    onnx_model_t m;
    dense_model(&m, "N 6");
    esp_graph_t *graph = om_graph(&m, NULL);
    assert_int_equal(graph->batch, ESP_ONNX_DEFAULT_BATCH);
    assert_output(graph, "32 4");
    gb_assert_batch(graph, graph->output[0], 1, 32, 4);
    esp_graph_destroy(graph);

    esp_onnx_opts_t opts = with_batch(5);
    dense_model(&m, "N 6");
    graph = om_graph(&m, &opts);
    assert_output(graph, "5 4");
    esp_graph_destroy(graph);
}

static void test_batch_on_another_axis(void **state)
{
    (void)state;
    onnx_model_t m;
    dense_model(&m, "7 N 6");
    esp_onnx_opts_t opts = with_batch(3);
    esp_graph_t *graph = om_graph(&m, &opts);
    gb_assert_batch(graph, graph->output[0], 7, 3, 4);
    esp_graph_destroy(graph);
}

/* The symbol that two of three inputs have wins over one that comes first. */
static void test_shared_symbol(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "a", OM_FLOAT, "T N");
    om_input(&m, "b", OM_FLOAT, "N");
    om_node(&m, "Add", "a b", "y", "");
    om_output(&m, "y");
    esp_onnx_opts_t opts = with_batch(4);
    opts.dims = "T=3";
    esp_graph_t *graph = om_graph(&m, &opts);
    gb_assert_batch(graph, graph->output[0], 3, 4, 1);
    esp_graph_destroy(graph);
}

static void test_batch_dim_option(void **state)
{
    (void)state;
    onnx_model_t m;
    dense_model(&m, "7 5 6");
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    opts.batch_dim = "x=1";
    esp_graph_t *graph = om_graph(&m, &opts);
    gb_assert_batch(graph, graph->output[0], 7, 5, 4);
    esp_graph_destroy(graph);

    opts.batch_dim = "x=none";
    dense_model(&m, "7 5 6");
    graph = om_graph(&m, &opts);
    gb_assert_batch(graph, graph->output[0], 0, 0, 0);
    esp_graph_destroy(graph);
}

static void test_open_dimension_has_a_name(void **state)
{
    (void)state;
    onnx_model_t m;
    esp_diag_t diag = {0};
    esp_graph_t *graph = NULL;
    dense_model(&m, "N T 6");
    test_assert_fails(om_parse(&m, NULL, &graph, &diag), &diag, ESP_ERR_INVALID, "'T'");
    dense_model(&m, "N ? 6");
    test_assert_fails(om_parse(&m, NULL, &graph, &diag), &diag, ESP_ERR_INVALID, "'x.1'");
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    opts.dims = "x.1=9";
    dense_model(&m, "N ? 6");
    graph = om_graph(&m, &opts);
    assert_output(graph, "32 9 4");
    esp_graph_destroy(graph);
}

/* ---- another batch than the file's ----------------------------------------------------------- */

/* x reshaped to a constant target, then through w. */
static esp_graph_t *reshaped(const char *dims, const char *rank, const char *target,
                             const esp_onnx_opts_t *opts)
{
    onnx_model_t m;
    om_init(&m, 13);
    om_input(&m, "x", OM_FLOAT, dims);
    om_ints(&m, "target", rank, target);
    om_node(&m, "Reshape", "x target", "r", "");
    om_node(&m, "Relu", "r", "y", "");
    om_output(&m, "y");
    return om_graph(&m, opts);
}

static void test_rebind_reshape(void **state)
{
    (void)state;
    static const struct {
        const char *dims, *rank, *target, *result;
    } cases[] = {
        {"1 8 2 2", "2", "1 32", "6 32"},     {"1 8 2 2", "2", "1 -1", "6 32"},
        {"1 8 2 2", "2", "-1 32", "6 32"},    {"1 8 2 2", "2", "0 -1", "6 32"},
        {"2 4 8", "2", "8 8", "24 8"},        {"2 4 8", "3", "2 8 4", "6 8 4"},
        {"2 8 4 3", "3", "16 4 3", "48 4 3"}, {"1 8 4 3", "3", "8 4 3", "48 4 3"},
        {"1 4 8", "2", "-1 8", "24 8"},       {"1 4 8", "4", "1 1 4 8", "6 1 4 8"},
        {"2 2 2", "3", "2 2 2", "6 2 2"},     {"1 1", "2", "1 1", "6 1"},
    };
    esp_onnx_opts_t opts = with_batch(6);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        esp_graph_t *graph = reshaped(cases[c].dims, cases[c].rank, cases[c].target, &opts);
        assert_output(graph, cases[c].result);
        assert_int_equal(graph->batch, 6);
        assert_true(gb_is_split(graph, graph->output[0]));
        esp_graph_destroy(graph);
    }
}

/* Sequence first with a batch of 1: what the target does to its right says which side takes it. */
static void test_rebind_between_axes(void **state)
{
    (void)state;
    static const struct {
        const char *dims, *rank, *target, *result;
    } cases[] = {
        {"4 1 8", "2", "4 8", "24 8"},        {"4 1 8", "3", "4 2 4", "4 12 4"},
        {"4 1 8", "4", "4 1 2 4", "4 6 2 4"}, {"4 2 8", "3", "4 4 4", "4 12 4"},
        {"4 2 8", "2", "8 8", "24 8"},        {"4 1 8", "3", "2 2 8", "2 12 8"},
    };
    esp_onnx_opts_t opts = with_batch(6);
    opts.batch_dim = "x=1";
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        esp_graph_t *graph = reshaped(cases[c].dims, cases[c].rank, cases[c].target, &opts);
        assert_output(graph, cases[c].result);
        esp_graph_destroy(graph);
    }
    opts.batch = 1; /* down to 1: the batch still has its own axis */
    esp_graph_t *graph = reshaped("4 2 8", "4", "4 2 2 4", &opts);
    assert_output(graph, "4 1 2 4");
    esp_graph_destroy(graph);
}

/* Without an identity there is nothing to go by, however equal the extents are. */
static void test_rebind_goes_by_identity(void **state)
{
    (void)state;
    onnx_model_t m;
    esp_onnx_opts_t opts = with_batch(6);
    om_init(&m, 13);
    om_input(&m, "x", OM_FLOAT, "2 4");
    om_weight(&m, "w", "2 4");
    om_ints(&m, "target", "1", "8");
    om_node(&m, "Reshape", "w target", "r", "");
    om_ints(&m, "back", "2", "4 2");
    om_node(&m, "Reshape", "r back", "v", "");
    om_node(&m, "MatMul", "x v", "y", "");
    om_output(&m, "y");
    esp_graph_t *graph = om_graph(&m, &opts);
    assert_output(graph, "6 2");
    esp_graph_destroy(graph);
}

/* A target that follows the batch by itself, through a merged dimension. */
static void test_rebind_computed_target(void **state)
{
    (void)state;
    onnx_model_t m;
    esp_onnx_opts_t opts = with_batch(6);
    opts.batch_dim = "x=1";
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "4 2 8");
    om_ints(&m, "zero", "", "0");
    om_ints(&m, "one", "1", "1");
    om_ints(&m, "axis", "1", "0");
    om_ints(&m, "heads", "1", "4");
    om_ints(&m, "four", "1", "4");
    om_ints(&m, "rest", "1", "2");
    om_node(&m, "Shape", "x", "s", "");
    om_node(&m, "Gather", "s one", "b", "axis=0");
    om_node(&m, "Mul", "b heads", "bh", "");
    om_node(&m, "Concat", "four bh rest", "target", "axis=0");
    om_node(&m, "Reshape", "x target", "split", "");
    om_node(&m, "Transpose", "split", "y", "perm=[1,0,2]");
    om_output(&m, "y");
    esp_graph_t *graph = om_graph(&m, &opts);
    assert_output(graph, "24 4 2");
    gb_assert_batch(graph, graph->output[0], 1, 6, 32);
    esp_graph_destroy(graph);
}

static void test_rebind_slice_and_token(void **state)
{
    (void)state;
    onnx_model_t m;
    esp_onnx_opts_t opts = with_batch(6);
    om_init(&m, 13);
    om_input(&m, "x", OM_FLOAT, "1 4 8");
    om_weight(&m, "token", "1 1 8");
    om_ints(&m, "shape", "3", "1 1 8");
    om_ints(&m, "starts", "2", "0 0");
    om_ints(&m, "ends", "2", "1 2");
    om_ints(&m, "axes", "2", "0 1");
    om_node(&m, "Expand", "token shape", "t", "");
    om_node(&m, "Concat", "t x", "c", "axis=1");
    om_node(&m, "Slice", "c starts ends axes", "y", "");
    om_output(&m, "y");
    esp_graph_t *graph = om_graph(&m, &opts);
    assert_output(graph, "6 2 8");
    gb_assert_batch(graph, graph->output[0], 1, 6, 16);
    esp_graph_destroy(graph);
}

/* ---- weights --------------------------------------------------------------------------------- */

static void test_roles(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 9);
    om_input(&m, "x", OM_FLOAT, "N 3 8 8");
    om_ints(&m, "w_shape", "4", "4 3 3 3");
    om_floats(&m, "mean", "3", "0.5 0.5 0.5");
    om_floats(&m, "half", "1", "0.5");
    om_weight(&m, "scale", "4");
    om_weight(&m, "bias", "4");
    om_weight(&m, "running_mean", "4");
    om_weight(&m, "running_var", "4");
    om_node(&m, "ConstantOfShape", "w_shape", "w", "");
    om_node(&m, "Sub", "x mean3", "centred", "");
    om_node(&m, "Unsqueeze", "mean", "mean3", "axes=[1,2]");
    om_node(&m, "Mul", "centred half", "scaled", "");
    om_node(&m, "Conv", "scaled w", "c", "");
    om_node(&m, "BatchNormalization", "c scale bias running_mean running_var", "y", "");
    om_output(&m, "y");
    esp_graph_t *graph = om_graph(&m, NULL);
    assert_int_equal(graph->tensor_role[gb_find(graph, "scale")], ESP_ROLE_PARAMETER);
    assert_int_equal(graph->tensor_role[gb_find(graph, "bias")], ESP_ROLE_PARAMETER);
    assert_int_equal(graph->tensor_role[gb_find(graph, "running_mean")], ESP_ROLE_STATISTIC);
    esp_tensor_id_t variance = gb_find(graph, "running_var");
    assert_int_equal(graph->tensor_role[variance], ESP_ROLE_STATISTIC);
    assert_int_not_equal(graph->tensor_next[variance], ESP_NONE);
    assert_int_equal(graph->tensor_role[gb_find(graph, "w")], ESP_ROLE_PARAMETER);
    assert_int_equal(gb_count(graph, ESP_KIND_BN_NORM), 1);
    assert_int_equal(gb_count(graph, ESP_KIND_UPDATE), 2);
    /* one number is an attribute, not a tensor */
    int32_t affine = 0;
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        affine += graph->op_kind[op] == ESP_KIND_ELTWISE &&
                  graph->op_attr[op].eltwise.code == ESP_ELT_AFFINE;
    assert_int_equal(affine, 1);
    esp_graph_destroy(graph);
}

/* One number is a weight where weights are read, through views too; else a constant. */
static void test_numbers(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 6 3");
    om_weight(&m, "w", "3 1");
    om_floats(&m, "bias", "1", "0.5");
    om_floats(&m, "slope", "1", "0.25");
    om_floats(&m, "half", "1", "0.5");
    om_floats(&m, "single", "1 1", "2");
    om_floats(&m, "scalar", "", "2");
    om_ints(&m, "axes", "1", "1");
    om_node(&m, "MatMul", "x w", "product", "");
    om_node(&m, "Add", "bias product", "sum", "");
    om_node(&m, "Unsqueeze", "slope axes", "slopes", "");
    om_node(&m, "PRelu", "sum slopes", "rectified", "");
    om_node(&m, "Mul", "rectified half", "scaled", "");
    om_node(&m, "Add", "scaled half", "shifted", "");
    om_node(&m, "PRelu", "shifted scalar", "bent", "");
    om_node(&m, "Transpose", "single", "turned", "");
    om_node(&m, "MatMul", "bent turned", "y", "");
    om_output(&m, "y");
    esp_graph_t *graph = om_graph(&m, NULL);
    assert_int_equal(graph->n_parameters, 4);
    const char *const names[] = {"w", "bias", "slope", "single"};
    for (int32_t k = 0; k < 4; k++)
        assert_int_equal(graph->tensor_role[gb_find(graph, names[k])], ESP_ROLE_PARAMETER);
    assert_null(graph->tensor_data[gb_find(graph, "bias")]);
    esp_graph_destroy(graph);
}

/* Weights have no data here, constants do. */
static void test_literals(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 3");
    om_floats(&m, "w", "3 3", "1 2 3 4 5 6 7 8 9");
    om_ints(&m, "pick", "2", "2 0");
    om_node(&m, "MatMul", "x w", "h", "");
    om_node(&m, "Gather", "h pick", "y", "axis=1");
    om_output(&m, "y");
    esp_graph_t *graph = om_graph(&m, NULL);
    assert_null(graph->tensor_data[gb_find(graph, "w")]);
    const int64_t *pick = graph->tensor_data[gb_find(graph, "pick")];
    assert_non_null(pick);
    assert_int_equal(pick[0], 2);
    assert_int_equal(pick[1], 0);
    esp_graph_destroy(graph);
}

/* ---- order, names, dead nodes ---------------------------------------------------------------- */

static void test_any_order_and_dead_nodes(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    om_node(&m, "Relu", "b", "y", "");
    om_node(&m, "NoSuchOp", "b", "unused", "");
    om_node(&m, "Tanh", "a", "b", "");
    om_node(&m, "Sigmoid", "x", "a", "");
    om_input(&m, "x", OM_FLOAT, "N 6");
    om_output(&m, "y");
    esp_graph_t *graph = om_graph(&m, NULL);
    assert_int_equal(graph->n_ops, 3);
    assert_int_equal(graph->op_attr[0].eltwise.code, ESP_ELT_SIGMOID);
    assert_int_equal(graph->op_attr[2].eltwise.code, ESP_ELT_RELU);
    esp_graph_destroy(graph);
}

static void test_input_with_initializer(void **state)
{
    (void)state;
    onnx_model_t m;
    dense_model(&m, "N 6");
    om_input(&m, "w", OM_FLOAT, "6 4");
    esp_graph_t *graph = om_graph(&m, NULL);
    assert_int_equal(graph->n_inputs, 1);
    esp_graph_destroy(graph);
}

/* ---- functions and branches ------------------------------------------------------------------ */

/* double_it(x, [bias]) = x * factor + bias, factor an attribute with a default. */
static void add_function(onnx_model_t *m)
{
    message_t f = {0}, opset = {0};
    message_text(&f, 1, "double_it");
    message_text(&f, 10, "mine");
    message_text(&f, 4, "x");
    message_text(&f, 4, "bias");
    message_text(&f, 5, "y");
    message_t constant = om_node_message("Constant", "", "factor", "");
    message_t attribute = {0};
    message_text(&attribute, 1, "value_float");
    message_text(&attribute, 21, "factor");
    message_varint(&attribute, 20, 1);
    message_part(&constant, 5, &attribute);
    message_part(&f, 7, &constant);
    message_t mul = om_node_message("Mul", "x factor", "scaled", "");
    message_part(&f, 7, &mul);
    message_t clip = om_node_message("Clip", "scaled bias", "y", "");
    message_part(&f, 7, &clip);
    message_text(&opset, 1, "");
    message_varint(&opset, 2, 17);
    message_part(&f, 9, &opset);
    message_t fallback = {0};
    message_text(&fallback, 1, "factor");
    message_float(&fallback, 2, 2);
    message_varint(&fallback, 20, 1);
    message_part(&f, 11, &fallback);
    message_part(&m->functions, 25, &f);
}

static void call(onnx_model_t *m, const char *inputs, const char *outputs, const char *attributes)
{
    message_t node = om_node_message("double_it", inputs, outputs, attributes);
    message_text(&node, 7, "mine");
    message_part(&m->graph, 1, &node);
}

static void test_function(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    add_function(&m);
    om_input(&m, "x", OM_FLOAT, "N 6");
    call(&m, "x", "a", "");
    call(&m, "a _", "y", "factor=3.5");
    om_output(&m, "y");
    esp_graph_t *graph = om_graph(&m, NULL);
    assert_int_equal(graph->n_ops, 4);
    assert_true(graph->op_attr[0].eltwise.alpha == 2);
    assert_true(graph->op_attr[2].eltwise.alpha == 3.5);
    esp_graph_destroy(graph);
}

/* A branch that computes `type` of a name from around. */
static message_t branch(const char *type, const char *input)
{
    message_t graph = {0};
    message_t node = om_node_message(type, input, "inside", "");
    message_part(&graph, 1, &node);
    message_t out = {0};
    message_text(&out, 1, "inside");
    message_part(&graph, 12, &out);
    return graph;
}

static void add_if(onnx_model_t *m, const char *condition, const char *output, const char *input)
{
    message_t node = om_node_message("If", condition, output, "");
    for (int32_t b = 0; b < 2; b++) {
        message_t attribute = {0}, graph = branch(b == 0 ? "Tanh" : "Relu", input);
        message_text(&attribute, 1, b == 0 ? "then_branch" : "else_branch");
        message_part(&attribute, 6, &graph);
        message_varint(&attribute, 20, 5);
        message_part(&node, 5, &attribute);
    }
    message_part(&m->graph, 1, &node);
}

/* The branch reads a name that nothing else needs, made by a node further down. */
static void test_constant_branch(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 6");
    om_ints(&m, "two", "", "2");
    om_node(&m, "Size", "x", "n", "");
    om_node(&m, "Greater", "n two", "condition", "");
    add_if(&m, "condition", "y", "late");
    om_node(&m, "Sigmoid", "x", "late", "");
    om_output(&m, "y");
    esp_graph_t *graph = om_graph(&m, NULL);
    assert_int_equal(graph->n_ops, 2);
    assert_int_equal(graph->op_attr[1].eltwise.code, ESP_ELT_TANH);
    esp_graph_destroy(graph);
}

/* ---- index arithmetic ------------------------------------------------------------------------ */

/* mask[:, 1:3] = updates, as exporters write it: a grid of indices over the batch. */
static void test_slice_assignment(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 5");
    om_input(&m, "u", OM_FLOAT, "N 2");
    om_ints(&m, "zero", "", "0");
    om_ints(&m, "one", "", "1");
    om_ints(&m, "three", "", "3");
    om_ints(&m, "last", "1", "-1");
    om_ints(&m, "column", "2", "-1 1");
    om_node(&m, "Shape", "x", "s", "");
    om_node(&m, "Gather", "s zero", "n", "axis=0");
    om_node(&m, "Range", "zero n one", "rows", "");
    om_node(&m, "Reshape", "rows column", "rows2", "");
    om_node(&m, "Range", "one three one", "columns", "");
    om_node(&m, "Shape", "u", "grid", "");
    om_node(&m, "Expand", "rows2 grid", "i", "");
    om_node(&m, "Expand", "columns grid", "j", "");
    om_node(&m, "Unsqueeze", "i last", "i1", "");
    om_node(&m, "Unsqueeze", "j last", "j1", "");
    om_node(&m, "Concat", "i1 j1", "indices", "axis=-1");
    om_node(&m, "ScatterND", "x indices u", "y", "");
    om_output(&m, "y");
    esp_onnx_opts_t opts = with_batch(4096);
    esp_graph_t *graph = om_graph(&m, &opts);
    assert_output(graph, "4096 5");
    assert_int_equal(gb_count(graph, ESP_KIND_CONCAT), 1);
    assert_int_equal(gb_count(graph, ESP_KIND_SLICE), 2);
    assert_int_equal(graph->n_ops, 3);
    gb_assert_batch(graph, graph->output[0], 1, 4096, 5);
    esp_graph_destroy(graph);
}

/* ---- the op list ----------------------------------------------------------------------------- */

static void test_op_list_is_sorted(void **state)
{
    (void)state;
    esp_onnx_op_t op, before = {"", "", 0, 0, ""};
    int32_t count = 0;
    for (; esp_onnx_op_at(count, &op); count++, before = op) {
        assert_true(strcmp(before.name, op.name) < 0);
        assert_true(op.since >= 1 && op.since <= op.until && op.until <= ESP_ONNX_MAX_OPSET);
        assert_true(op.becomes[0] != '\0');
    }
    assert_true(count > 100);
    assert_false(esp_onnx_op_at(-1, &op));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_symbolic_batch),
        cmocka_unit_test(test_batch_on_another_axis),
        cmocka_unit_test(test_shared_symbol),
        cmocka_unit_test(test_batch_dim_option),
        cmocka_unit_test(test_open_dimension_has_a_name),
        cmocka_unit_test(test_rebind_reshape),
        cmocka_unit_test(test_rebind_between_axes),
        cmocka_unit_test(test_rebind_goes_by_identity),
        cmocka_unit_test(test_rebind_computed_target),
        cmocka_unit_test(test_rebind_slice_and_token),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_any_order_and_dead_nodes),
        cmocka_unit_test(test_input_with_initializer),
        cmocka_unit_test(test_function),
        cmocka_unit_test(test_constant_branch),
        cmocka_unit_test(test_slice_assignment),
        cmocka_unit_test(test_op_list_is_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
