/* Bad ONNX files and bad options: one clear line each, with the place; memory that runs out. */
#include "onnx_writer.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ----------------------------------------------------------------------------------- */

static void assert_bytes_fail(const void *bytes, size_t length, esp_status_t status,
                              const char *part)
{
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    test_assert_fails(esp_onnx_parse(bytes, length, NULL, NULL, &graph, &diag), &diag, status,
                      part);
    assert_null(graph);
    assert_string_equal(diag.file, "onnx");
}

static void test_not_onnx(void **state)
{
    (void)state;
    assert_bytes_fail("", 0, ESP_ERR_SYNTAX, "has no graph");
    assert_bytes_fail("hello, world", 12, ESP_ERR_SYNTAX, "byte 2: this is not an ONNX model");
    assert_bytes_fail("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, ESP_ERR_SYNTAX,
                      "byte 1: this is not an ONNX model: a length reaches past");
    assert_bytes_fail("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, ESP_ERR_SYNTAX,
                      "more than ten bytes");
    assert_bytes_fail("\x0b\x0c", 2, ESP_ERR_SYNTAX, "wire type");
    assert_bytes_fail("\x3a\x00", 2, ESP_ERR_INVALID, "no nodes");
}

static onnx_model_t one_node(const char *type, const char *inputs, const char *attributes)
{
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 4 6 6");
    om_input(&m, "labels", OM_INT64, "N");
    om_weight(&m, "w", "8 4 3 3");
    om_weight(&m, "v", "6 5");
    om_ints(&m, "two", "1", "2");
    om_floats(&m, "half", "", "0.5");
    om_node(&m, type, inputs, "y", attributes);
    om_output(&m, "y");
    return m;
}

/* Every prefix of a file is an error, and none reads past its end. */
static void test_truncated(void **state)
{
    (void)state;
    onnx_model_t m = one_node("Conv", "x w", "pads=[1,1,1,1]");
    message_t file = om_finish(&m);
    om_free(&m);
    for (size_t length = 0; length < file.length; length++) {
        uint8_t *prefix = malloc(length + 1);
        esp_graph_t *graph = NULL;
        esp_diag_t diag = {0};
        assert_non_null(prefix);
        memcpy(prefix, file.data, length);
        assert_int_not_equal(esp_onnx_parse(prefix, length, NULL, NULL, &graph, &diag), ESP_OK);
        assert_true(diag.text[0] != '\0');
        free(prefix);
    }
    message_free(&file);
}

static void test_missing_file(void **state)
{
    (void)state;
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    test_assert_fails(esp_onnx_load("/nonexistent.onnx", NULL, NULL, &graph, &diag), &diag,
                      ESP_ERR_IO, "/nonexistent.onnx");
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void test_nodes(void **state)
{
    (void)state;
    static const struct {
        const char *type, *inputs, *attributes;
        esp_status_t status;
        const char *part;
    } cases[] = {
        {"NoSuchOp", "x", "", ESP_ERR_UNSUPPORTED, "y (NoSuchOp): this op is not supported"},
        {"Gelu", "x", "", ESP_ERR_UNSUPPORTED, "not supported at opset 17 (20 to"},
        {"Loop", "x", "", ESP_ERR_UNSUPPORTED, "unrolled"},
        {"Relu", "nobody", "", ESP_ERR_INVALID, "input 0 is 'nobody', which nothing defines"},
        {"Add", "x", "", ESP_ERR_INVALID, "input 1 is missing"},
        {"Relu", "x w", "", ESP_ERR_INVALID, "2 inputs where at most 1"},
        {"Add", "x labels", "", ESP_ERR_INVALID, "float32"},
        {"MatMul", "x v w", "", ESP_ERR_INVALID, "3 inputs"},
        {"Gemm", "x v", "", ESP_ERR_INVALID, "operands of 4 and 2 axes"},
        {"MatMul", "v v", "", ESP_ERR_INVALID, "5 and 6"},
        {"Conv", "x w", "strides=[0,1]", ESP_ERR_INVALID, "strides has the entry 0"},
        {"Conv", "x w", "pads=[1,1]", ESP_ERR_INVALID, "pads has 2 entries instead of 4"},
        {"Conv", "x w", "kernel_shape=[9,9]", ESP_ERR_INVALID, "kernel"},
        {"Conv", "x w", "group=3", ESP_ERR_INVALID, "(Conv)"},
        {"Conv", "x w", "group=text", ESP_ERR_INVALID, "attribute group has type 3"},
        {"Conv", "x w", "auto_pad=MIDDLE", ESP_ERR_INVALID, "auto_pad"},
        {"MaxPool", "x", "kernel_shape=[9,9]", ESP_ERR_INVALID, "window"},
        {"Transpose", "x", "perm=[0,1,2,2]", ESP_ERR_INVALID, "not a permutation"},
        {"Softmax", "x", "axis=4", ESP_ERR_INVALID, "axis 4 of a tensor of 4 axes"},
        {"Concat", "x v", "axis=0", ESP_ERR_INVALID, "4 and of 2 axes"},
        {"Reshape", "x labels", "", ESP_ERR_UNSUPPORTED, "input 1 ('labels') must be known"},
        {"Reshape", "x half", "", ESP_ERR_INVALID, "integers"},
        {"Reshape", "x two", "", ESP_ERR_INVALID, "do not fit into shape [2]"},
        {"Squeeze", "x two", "", ESP_ERR_INVALID, "axis 2 has extent 6"},
        {"Expand", "x two", "", ESP_ERR_INVALID, "does not stretch"},
        {"Gather", "v half", "", ESP_ERR_INVALID, "(Gather)"},
        {"Dropout", "x half half", "", ESP_OK, ""},
        {"Split", "x two", "axis=1", ESP_ERR_INVALID, "the parts do not sum"},
        {"Pad", "x two", "", ESP_ERR_INVALID, "1 pads for 4 axes"},
        {"Cast", "x", "to=8", ESP_ERR_UNSUPPORTED, "string"},
        {"Einsum", "x v", "equation=nchw,wv->nchv", ESP_OK, ""},
        {"Einsum", "x v", "equation=nchw,wwv->nchv", ESP_ERR_UNSUPPORTED, "diagonal"},
        {"Einsum", "x v", "equation=nchw", ESP_ERR_INVALID, "too few operands"},
        {"NonZero", "x", "", ESP_ERR_UNSUPPORTED, "depends on data"},
        {"If", "x", "", ESP_ERR_UNSUPPORTED, "the condition 'x' depends on data"},
        {"Where", "x x x", "", ESP_ERR_INVALID, "not bool"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        onnx_model_t m = one_node(cases[c].type, cases[c].inputs, cases[c].attributes);
        esp_graph_t *graph = NULL;
        esp_diag_t diag = {0};
        esp_status_t status = om_parse(&m, NULL, &graph, &diag);
        if (cases[c].status == ESP_OK)
            test_assert_ok(status, &diag);
        else
            test_assert_fails(status, &diag, cases[c].status, cases[c].part);
        esp_graph_destroy(graph);
    }
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void assert_model_fails(onnx_model_t *m, esp_status_t status, const char *part)
{
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    test_assert_fails(om_parse(m, NULL, &graph, &diag), &diag, status, part);
}

static void test_cycle(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 4");
    om_node(&m, "Add", "x c", "a", "");
    om_node(&m, "Relu", "a", "b", "");
    om_node(&m, "Tanh", "b", "c", "");
    om_output(&m, "c");
    assert_model_fails(&m, ESP_ERR_INVALID, "cycle");
}

static void test_two_values_of_one_name(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 4");
    om_node(&m, "Relu", "x", "y", "");
    om_node(&m, "Tanh", "x", "y", "");
    om_output(&m, "y");
    assert_model_fails(&m, ESP_ERR_INVALID, "two values are named 'y'");

    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 4");
    om_input(&m, "x", OM_FLOAT, "N 4");
    om_node(&m, "Relu", "x", "y", "");
    om_output(&m, "y");
    assert_model_fails(&m, ESP_ERR_INVALID, "two values are named 'x'");
}

static void test_no_outputs(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 4");
    om_node(&m, "Relu", "x", "y", "");
    assert_model_fails(&m, ESP_ERR_INVALID, "no outputs");
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 4");
    om_node(&m, "Relu", "x", "y", "");
    om_output(&m, "z");
    assert_model_fails(&m, ESP_ERR_INVALID, "output 'z': nothing computes it");
}

static void test_opsets(void **state)
{
    (void)state;
    for (int64_t opset = 0; opset < 40; opset++) {
        onnx_model_t m;
        esp_graph_t *graph = NULL;
        esp_diag_t diag = {0};
        om_init(&m, opset);
        om_input(&m, "x", OM_FLOAT, "N 4");
        om_node(&m, "Relu", "x", "y", "");
        om_output(&m, "y");
        esp_status_t status = om_parse(&m, NULL, &graph, &diag);
        bool supported = opset >= ESP_ONNX_MIN_OPSET && opset <= ESP_ONNX_MAX_OPSET;
        assert_int_equal(status == ESP_OK, supported);
        if (!supported)
            assert_non_null(strstr(diag.text, opset == 0 ? "no opset" : "is not supported"));
        esp_graph_destroy(graph);
    }
}

static void test_inputs(void **state)
{
    (void)state;
    static const struct {
        int32_t type;
        const char *dims, *part;
        esp_status_t status;
    } cases[] = {
        {OM_STRING, "N 4", "input 'x': its elements are of type string", ESP_ERR_UNSUPPORTED},
        {99, "N 4", "are of type unknown (99)", ESP_ERR_UNSUPPORTED},
        {OM_FLOAT, NULL, "input 'x': it has no shape", ESP_ERR_INVALID},
        {OM_FLOAT, "N -4", "axis 1 has extent -4", ESP_ERR_INVALID},
        {OM_FLOAT, "1 2 3 4 5 6 7 8 9", "more than 8 axes", ESP_ERR_LIMIT},
        {OM_FLOAT, "N 4000000000000000000", "axis 1 has extent", ESP_ERR_INVALID},
        {OM_FLOAT, "N 9000000000 9000000000", "too many elements", ESP_ERR_LIMIT},
        {OM_FLOAT, "0 4", "its batch, axis 0, has extent 0", ESP_ERR_INVALID},
        {OM_FLOAT, "N 0", "axis 1 has extent 0", ESP_ERR_INVALID},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        onnx_model_t m;
        om_init(&m, 17);
        om_input(&m, "x", cases[c].type, cases[c].dims);
        om_node(&m, "Relu", "x", "y", "");
        om_output(&m, "y");
        assert_model_fails(&m, cases[c].status, cases[c].part);
    }
}

static void test_weights(void **state)
{
    (void)state;
    static const struct {
        const char *dims, *part;
        esp_status_t status;
    } cases[] = {
        {"4 -1", "tensor 'w' has a negative extent", ESP_ERR_INVALID},
        {"4000000000 4000000000", "too many elements", ESP_ERR_LIMIT},
        {"1 1 1 1 1 1 1 1 1", "more than 8 axes", ESP_ERR_LIMIT},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        onnx_model_t m;
        om_init(&m, 17);
        om_input(&m, "x", OM_FLOAT, "N 4");
        om_weight(&m, "w", cases[c].dims);
        om_node(&m, "MatMul", "x w", "y", "");
        om_output(&m, "y");
        assert_model_fails(&m, cases[c].status, cases[c].part);
    }
    onnx_model_t m; /* data that is shorter than the shape */
    om_init(&m, 17);
    om_input(&m, "x", OM_FLOAT, "N 4");
    om_ints(&m, "shape", "3", "1 2");
    om_node(&m, "Reshape", "x shape", "y", "");
    om_output(&m, "y");
    assert_model_fails(&m, ESP_ERR_INVALID, "data of another size than its shape");
}

/* f calls f: inlining ends at a depth, not at the end of the stack. */
static void test_endless_function(void **state)
{
    (void)state;
    onnx_model_t m;
    message_t f = {0}, opset = {0};
    om_init(&m, 17);
    message_text(&f, 1, "f");
    message_text(&f, 10, "mine");
    message_text(&f, 4, "x");
    message_text(&f, 5, "y");
    for (int32_t k = 0; k < 2; k++) {
        message_t node = om_node_message("f", k == 0 ? "x" : "h", k == 0 ? "h" : "y", "");
        message_text(&node, 7, "mine");
        message_part(&f, 7, &node);
    }
    message_text(&opset, 1, "mine");
    message_varint(&opset, 2, 1);
    message_part(&f, 9, &opset);
    message_part(&m.functions, 25, &f);
    om_input(&m, "x", OM_FLOAT, "N 4");
    message_t node = om_node_message("f", "x", "y", "");
    message_text(&node, 7, "mine");
    message_part(&m.graph, 1, &node);
    om_output(&m, "y");
    assert_model_fails(&m, ESP_ERR_LIMIT, "nested more than");
}

typedef struct peak {
    size_t now, most;
} peak_t;

static void *peak_alloc(void *context, size_t bytes)
{
    peak_t *peak = context;
    size_t *block = malloc(bytes + sizeof(max_align_t));
    if (block == NULL)
        return NULL;
    *block = bytes;
    peak->now += bytes;
    peak->most = peak->now > peak->most ? peak->now : peak->most;
    return (char *)block + sizeof(max_align_t);
}

static void peak_release(void *context, void *memory)
{
    peak_t *peak = context;
    if (memory == NULL)
        return;
    size_t *block = (size_t *)(void *)((char *)memory - sizeof(max_align_t));
    peak->now -= *block;
    free(block);
}

/* However small the parts of a file are, memory stays within a fixed multiple of it. */
static void test_memory_is_proportional(void **state)
{
    (void)state;
    enum { PARTS = 40000, MULTIPLE = 48 };
    for (int32_t kind = 0; kind < 3; kind++) {
        onnx_model_t m = one_node("Relu", "x", "");
        for (int32_t k = 0; k < PARTS; k++) {
            char name[16];
            snprintf(name, sizeof name, "%x", (unsigned)k);
            message_t part = {0};
            if (kind == 0) /* an initializer */
                part = om_tensor(name, OM_INT64, "", NULL);
            else if (kind == 1) /* a node that nobody needs */
                part = om_node_message("A", "", name, "");
            if (kind == 2) /* nothing at all */
                message_raw(&part, "", 0);
            message_part(&m.graph, kind == 0 ? 5 : 1, &part);
        }
        peak_t peak = {0};
        const esp_allocator_t alloc = {&peak, peak_alloc, peak_release};
        message_t file = om_finish(&m);
        esp_graph_t *graph = NULL;
        esp_status_t status = esp_onnx_parse(file.data, file.length, NULL, &alloc, &graph, NULL);
        assert_int_equal(status, kind == 2 ? ESP_ERR_INVALID : ESP_OK);
        if (peak.most > MULTIPLE * file.length)
            fail_msg("kind %d: %zu bytes for a file of %zu", (int)kind, peak.most, file.length);
        esp_graph_destroy(graph);
        assert_int_equal(peak.now, 0);
        message_free(&file);
        om_free(&m);
    }
}

/* Messages inside messages, a million deep: they are skipped, not followed. */
static void test_deep_nesting(void **state)
{
    (void)state;
    message_t deep = {0};
    for (int32_t depth = 0; depth < 300; depth++) {
        message_t outer = {0};
        message_part(&outer, 6, &deep);
        deep = outer;
    }
    onnx_model_t m = one_node("If", "x", "");
    message_t attribute = {0}, node = om_node_message("If", "two", "z", "");
    message_text(&attribute, 1, "then_branch");
    message_part(&attribute, 6, &deep);
    message_part(&node, 5, &attribute);
    message_part(&m.graph, 1, &node);
    om_output(&m, "z");
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    assert_int_not_equal(om_parse(&m, NULL, &graph, &diag), ESP_OK);
}

/* ---- options --------------------------------------------------------------------------------- */

static void test_options(void **state)
{
    (void)state;
    static const struct {
        int64_t batch;
        const char *batch_dim, *dims, *part;
    } cases[] = {
        {-1, NULL, NULL, "a batch of -1"},
        {0, "nobody=0", NULL, "no input 'nobody'"},
        {0, "x=4", NULL, "with that many axes"},
        {0, "x", NULL, "is not NAME=NUMBER"},
        {0, "x=1,", NULL, ""},
        {0, NULL, "N=many", "is not NAME=NUMBER"},
        {0, NULL, "=3", "is not NAME=NUMBER"},
        {8, NULL, "N=9", "8 by one option and 9 by another"},
        {8, "x=none,labels=none", NULL, "no input has a batch"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        onnx_model_t m = one_node("Relu", "x", "");
        esp_onnx_opts_t opts = esp_onnx_opts_default();
        esp_graph_t *graph = NULL;
        esp_diag_t diag = {0};
        opts.batch = cases[c].batch;
        opts.batch_dim = cases[c].batch_dim;
        opts.dims = cases[c].dims;
        esp_status_t status = om_parse(&m, &opts, &graph, &diag);
        if (cases[c].part[0] != '\0')
            test_assert_fails(status, &diag, ESP_ERR_ARGUMENT, cases[c].part);
        esp_graph_destroy(graph);
    }
    esp_onnx_opts_t other = {.struct_size = 1};
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    test_assert_fails(esp_onnx_parse("", 0, &other, NULL, &graph, &diag), &diag, ESP_ERR_ARGUMENT,
                      "options");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    const message_t *file = context;
    esp_graph_t *graph = NULL;
    esp_status_t status = esp_onnx_parse(file->data, file->length, NULL, alloc, &graph, NULL);
    if (status == ESP_OK)
        esp_graph_destroy(graph);
    return status;
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    onnx_model_t m;
    om_init(&m, 13);
    om_input(&m, "x", OM_FLOAT, "N 4 6 6");
    om_weight(&m, "w", "8 4 3 3");
    om_weight(&m, "scale", "8");
    om_weight(&m, "bias", "8");
    om_weight(&m, "mean", "8");
    om_weight(&m, "variance", "8");
    om_ints(&m, "rest", "2", "0 -1");
    om_ints(&m, "pick", "3", "5 1 2");
    om_node(&m, "Conv", "x w", "c", "pads=[1,1,1,1]");
    om_node(&m, "BatchNormalization", "c scale bias mean variance", "b", "");
    om_node(&m, "Reshape", "b rest", "r", "");
    om_node(&m, "Gather", "r pick", "g", "axis=1");
    om_node(&m, "Concat", "g g g g g g g g g g g g g g g g g g", "y", "axis=1");
    om_output(&m, "y");
    message_t file = om_finish(&m);
    om_free(&m);
    test_sweep_allocations(attempt, &file, 1);
    message_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_onnx),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_missing_file),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_cycle),
        cmocka_unit_test(test_two_values_of_one_name),
        cmocka_unit_test(test_no_outputs),
        cmocka_unit_test(test_opsets),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_endless_function),
        cmocka_unit_test(test_memory_is_proportional),
        cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
