/* Importing recurrent layers. */
#include "graph_build.h"
#include "interp.h"
#include "onnx_writer.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* T = 3 elements, B = 4 samples, I = 2, H = 5 */
enum { STEPS = 3, SAMPLES = 4, HIDDEN = 5 };

/*
 * One recurrent node over x. `inputs` follow x, w, r; as a text with blanks. All outputs of the
 * node are outputs of the model.
 */
static void layer(onnx_model_t *m, const char *type, int32_t gates, int32_t directions,
                  const char *inputs, const char *attributes)
{
    char text[64], operands[128];
    const bool lstm = strcmp(type, "LSTM") == 0;
    om_init(m, 14);
    om_input(m, "x", OM_FLOAT, "3 4 2");
    (void)snprintf(text, sizeof text, "%d %d 2", (int)directions, (int)(gates * HIDDEN));
    om_weight(m, "w", text);
    (void)snprintf(text, sizeof text, "%d %d 5", (int)directions, (int)(gates * HIDDEN));
    om_weight(m, "r", text);
    (void)snprintf(text, sizeof text, "%d %d", (int)directions, (int)(2 * gates * HIDDEN));
    om_weight(m, "b", text);
    (void)snprintf(text, sizeof text, "%d 4 5", (int)directions);
    om_input(m, "h", OM_FLOAT, text);
    om_input(m, "c", OM_FLOAT, text);
    (void)snprintf(operands, sizeof operands, "x w r %s", inputs);
    om_node(m, type, operands, lstm ? "y yh yc" : "y yh", attributes);
    om_output(m, "y");
    om_output(m, "yh");
    if (lstm)
        om_output(m, "yc");
}

static esp_graph_t *load(const char *type, int32_t gates, int32_t directions, const char *inputs,
                         const char *attributes)
{
    onnx_model_t m;
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    opts.batch_dim = "x=1,h=1,c=1";
    layer(&m, type, gates, directions, inputs, attributes);
    return om_graph(&m, &opts);
}

static void assert_shape(const esp_graph_t *graph, int32_t output, const char *shape)
{
    int64_t dims[ESP_MAX_RANK];
    const esp_tensor_id_t tensor = graph->output[output];
    const int32_t rank = gb_numbers(shape, dims);
    assert_int_equal(graph->tensor_rank[tensor], rank);
    for (int32_t d = 0; d < rank; d++)
        assert_int_equal(graph->tensor_dims[tensor][d], dims[d]);
}

static const esp_attr_t *attr_of(const esp_graph_t *graph, esp_op_kind_t kind, int32_t nth)
{
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        if (graph->op_kind[op] == kind && nth-- == 0)
            return &graph->op_attr[op];
    fail_msg("no op of kind %s", esp_kind_name(kind));
    return NULL;
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void test_directions(void **state)
{
    (void)state;
    esp_graph_t *graph = load("LSTM", 4, 1, "b _ h c", "hidden_size=5");
    assert_shape(graph, 0, "3 1 4 5");
    assert_shape(graph, 1, "1 4 5");
    assert_shape(graph, 2, "1 4 5");
    gb_assert_batch(graph, graph->output[0], STEPS, SAMPLES, HIDDEN);
    gb_assert_batch(graph, graph->output[1], 1, SAMPLES, HIDDEN);
    gb_assert_batch(graph, graph->output[2], 1, SAMPLES, HIDDEN);
    assert_int_equal(gb_count(graph, ESP_KIND_LSTM), 1);
    assert_int_equal(gb_count(graph, ESP_KIND_SLICE), 0);
    assert_int_equal(attr_of(graph, ESP_KIND_LSTM, 0)->recurrent.reverse, 0);
    esp_graph_destroy(graph);

    graph = load("LSTM", 4, 1, "", "hidden_size=5 direction=reverse");
    assert_int_equal(attr_of(graph, ESP_KIND_LSTM, 0)->recurrent.reverse, 1);
    esp_graph_destroy(graph);

    graph = load("GRU", 3, 2, "b _ h", "hidden_size=5 direction=bidirectional");
    assert_shape(graph, 0, "3 2 4 5");
    assert_shape(graph, 1, "2 4 5");
    gb_assert_batch(graph, graph->output[0], 2 * STEPS, SAMPLES, HIDDEN);
    gb_assert_batch(graph, graph->output[1], 2, SAMPLES, HIDDEN);
    assert_int_equal(gb_count(graph, ESP_KIND_GRU), 2);
    assert_int_equal(attr_of(graph, ESP_KIND_GRU, 0)->recurrent.reverse, 0);
    assert_int_equal(attr_of(graph, ESP_KIND_GRU, 1)->recurrent.reverse, 1);
    esp_graph_destroy(graph);
}

static void test_variants(void **state)
{
    (void)state;
    esp_graph_t *graph =
        load("GRU", 3, 1, "b", "linear_before_reset=1 activations=[Sigmoid,Tanh] layout=0");
    assert_int_equal(attr_of(graph, ESP_KIND_GRU, 0)->recurrent.linear_before_reset, 1);
    esp_graph_destroy(graph);

    graph = load("LSTM", 4, 1, "b _ _ c", "activations=[Sigmoid,Tanh,Tanh]");
    esp_graph_destroy(graph);

    graph = load("RNN", 1, 2, "b _ h", "direction=bidirectional activations=[Tanh,Relu]");
    assert_int_equal(attr_of(graph, ESP_KIND_RNN, 0)->recurrent.relu, 0);
    assert_int_equal(attr_of(graph, ESP_KIND_RNN, 1)->recurrent.relu, 1);
    assert_int_equal(attr_of(graph, ESP_KIND_RNN, 1)->recurrent.reverse, 1);
    esp_graph_destroy(graph);
}

/* Another batch than the file's reaches the results through x. */
static void test_other_batch(void **state)
{
    (void)state;
    onnx_model_t m;
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    opts.batch_dim = "x=1,h=1,c=1";
    opts.batch = 7;
    layer(&m, "GRU", 3, 2, "b _ h", "direction=bidirectional");
    om_ints(&m, "flat", "2", "24 5");
    om_node(&m, "Reshape", "y flat", "rows", "");
    om_output(&m, "rows");
    esp_graph_t *graph = om_graph(&m, &opts);
    assert_shape(graph, 0, "3 2 7 5");
    assert_shape(graph, 1, "2 7 5");
    assert_int_equal(graph->tensor_dims[gb_find(graph, "rows")][0], 2 * STEPS * 7);
    esp_graph_destroy(graph);
}

/* ---- what is computed ------------------------------------------------------------------------ */

static double *values_of(const interp_t *interp, const esp_graph_t *graph, int32_t output)
{
    const esp_tensor_id_t tensor = graph->output[output];
    const size_t n = (size_t)graph->tensor_elements[tensor];
    double *copy = calloc(n, sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, interp_get(interp, tensor), n * sizeof *copy);
    return copy;
}

/* Sets a tensor of one direction to its half of the same tensor of both. */
static void set_half(interp_t *one, const esp_graph_t *graph, const interp_t *both,
                     const esp_graph_t *of_both, const char *name, int32_t direction)
{
    const esp_tensor_id_t to = gb_find(graph, name);
    const double *from = interp_get(both, gb_find(of_both, name));
    interp_set(one, to, from + direction * graph->tensor_elements[to]);
}

/* Each half of a bidirectional layer is the layer of that direction. */
static void test_bidirectional_values(void **state)
{
    (void)state;
    static const char *const names[] = {"w", "r", "b", "h", "c"};
    static const char *const attributes[] = {"direction=forward", "direction=reverse"};
    esp_graph_t *graph = load("LSTM", 4, 2, "b _ h c", "direction=bidirectional");
    interp_t *both = interp_new(graph, 3);
    interp_run(both);
    double *y = values_of(both, graph, 0);
    double *c = values_of(both, graph, 2);
    const int64_t half = SAMPLES * HIDDEN;
    for (int32_t direction = 0; direction < 2; direction++) {
        esp_graph_t *single = load("LSTM", 4, 1, "b _ h c", attributes[direction]);
        interp_t *one = interp_new(single, 3);
        for (int32_t i = 0; i < 5; i++)
            set_half(one, single, both, graph, names[i], direction);
        interp_run(one);
        const double *expected = interp_get(one, single->output[0]);
        for (int64_t t = 0; t < STEPS; t++)
            assert_memory_equal(y + (2 * t + direction) * half, expected + t * half,
                                (size_t)half * sizeof *y);
        assert_memory_equal(c + direction * half, interp_get(one, single->output[2]),
                            (size_t)half * sizeof *c);
        interp_free(one);
        esp_graph_destroy(single);
    }
    free(c);
    free(y);
    interp_free(both);
    esp_graph_destroy(graph);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(const char *type, int32_t gates, const char *inputs, const char *attributes,
                    esp_status_t status, const char *part)
{
    onnx_model_t m;
    esp_diag_t diag = {0};
    esp_graph_t *graph = NULL;
    layer(&m, type, gates, 1, inputs, attributes);
    test_assert_fails(om_parse(&m, NULL, &graph, &diag), &diag, status, part);
}

static void test_refusals(void **state)
{
    (void)state;
    refused("LSTM", 4, "b", "clip=0.5", ESP_ERR_UNSUPPORTED, "clip");
    refused("LSTM", 4, "b", "layout=1", ESP_ERR_UNSUPPORTED, "layout 1");
    refused("LSTM", 4, "b", "input_forget=1", ESP_ERR_UNSUPPORTED, "input_forget");
    refused("LSTM", 4, "b c", "", ESP_ERR_UNSUPPORTED, "sequence_lens");
    refused("LSTM", 4, "b _ h c b", "", ESP_ERR_UNSUPPORTED, "peepholes");
    refused("LSTM", 4, "b", "direction=sideways", ESP_ERR_INVALID, "direction is 'sideways'");
    refused("LSTM", 4, "b", "direction=bidirectional", ESP_ERR_INVALID,
            "axis 0 of input 1 is not 2 directions");
    refused("LSTM", 4, "b", "activations=[Sigmoid,Relu,Tanh]", ESP_ERR_UNSUPPORTED,
            "activation 1 is 'Relu': Tanh is supported");
    refused("GRU", 3, "b", "activations=[Tanh,Tanh]", ESP_ERR_UNSUPPORTED,
            "activation 0 is 'Tanh': Sigmoid is supported");
    refused("GRU", 3, "b", "activations=[Sigmoid,Tanh,Tanh]", ESP_ERR_INVALID,
            "more than 2 activations");
    refused("GRU", 3, "b", "activations=[Sigmoid]", ESP_ERR_INVALID, "1 activations instead of 2");
    refused("RNN", 1, "b", "activations=[Softsign]", ESP_ERR_UNSUPPORTED, "Tanh or Relu");
    refused("GRU", 3, "b", "hidden_size=4", ESP_ERR_INVALID, "hidden_size is 4, R has 5");
    refused("GRU", 4, "b", "", ESP_ERR_INVALID, "r has shape [20, 5]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directions),           cmocka_unit_test(test_variants),
        cmocka_unit_test(test_other_batch),          cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bidirectional_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
