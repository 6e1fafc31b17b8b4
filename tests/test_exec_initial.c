/* Initial values: what they are by use, dtype and role, and what they depend on. */
#include "graph_build.h"
#include "models.h"
#include "support.h"

#include "espalier/exec.h"
#include "exec/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 5, STEP = 3 };

typedef struct numbers {
    int64_t n;
    double least, most, mean, deviation;
    double *value;
} numbers_t;

static double *doubles(const esp_graph_t *graph, esp_tensor_id_t tensor, uint64_t seed,
                       uint64_t step)
{
    const int64_t n = graph->tensor_elements[tensor];
    void *stored = calloc((size_t)n + 1, 8);
    double *value = calloc((size_t)n + 1, sizeof *value);
    assert_true(stored && value);
    esp_exec_initial(graph, tensor, seed, step, 0, stored);
    esp_i_values_load((esp_dtype_t)graph->tensor_dtype[tensor], n, stored, value);
    free(stored);
    return value;
}

static numbers_t numbers_of(const esp_graph_t *graph, const char *name)
{
    const esp_tensor_id_t tensor = gb_find(graph, name);
    numbers_t x = {.n = graph->tensor_elements[tensor],
                   .value = doubles(graph, tensor, SEED, STEP)};
    x.least = x.most = x.value[0];
    for (int64_t i = 0; i < x.n; i++) {
        x.least = fmin(x.least, x.value[i]);
        x.most = fmax(x.most, x.value[i]);
        x.mean += x.value[i] / (double)x.n;
    }
    for (int64_t i = 0; i < x.n; i++)
        x.deviation += (x.value[i] - x.mean) * (x.value[i] - x.mean) / (double)x.n;
    x.deviation = sqrt(x.deviation);
    return x;
}

/* Uniform in +-width, as far as its least, largest, mean and deviation tell. */
static void check_uniform(const esp_graph_t *graph, const char *name, double width)
{
    const numbers_t x = numbers_of(graph, name);
    const double noise = 4 / sqrt((double)x.n);
    if (x.least < -width * (1 + 1e-6) || x.most > width * (1 + 1e-6) ||
        x.least > -width * (1 - noise) || x.most < width * (1 - noise) ||
        fabs(x.mean) > width * noise || fabs(x.deviation * sqrt(3) / width - 1) > noise)
        fail_msg("%s: in [%g, %g], mean %g, deviation %g; expected uniform in +-%g", name, x.least,
                 x.most, x.mean, x.deviation, width);
    free(x.value);
}

static void check_all(const esp_graph_t *graph, const char *name, double value)
{
    const numbers_t x = numbers_of(graph, name);
    if (x.least != value || x.most != value)
        fail_msg("%s: in [%g, %g]; expected %g", name, x.least, x.most, value);
    free(x.value);
}

/* Every integer of [0, bound) and no other. */
static void check_integers(const esp_graph_t *graph, const char *name, int64_t bound)
{
    const numbers_t x = numbers_of(graph, name);
    if (x.least != 0 || x.most != (double)bound - 1)
        fail_msg("%s: in [%g, %g]; expected [0, %lld)", name, x.least, x.most, (long long)bound);
    for (int64_t i = 0; i < x.n; i++)
        assert_true(x.value[i] == floor(x.value[i]));
    free(x.value);
}

/* ---- weights -----------------------------------------------------------------------------------
 */

static void test_weights(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    const esp_tensor_id_t x = gb_input(&gb, "x", "64 50", 0);
    esp_tensor_id_t y = gb_einsum(&gb, "ab,bc->ac", x, gb_parameter(&gb, "dense", "50 40"));
    y = gb_einsum(&gb, "ab,cb->ac", y, gb_parameter(&gb, "turned", "30 40"));
    y = gb_binary(&gb, ESP_ELT_ADD, y, gb_parameter(&gb, "bias", "30"));
    y = gb_binary(&gb, ESP_ELT_ADD, y, gb_parameter(&gb, "place", "64 30"));
    y = gb_binary(&gb, ESP_ELT_MUL, y, gb_parameter(&gb, "factor", "1 30"));
    const esp_tensor_id_t heads = gb_reshape(&gb, gb_parameter(&gb, "heads", "30 24"), "30 4 6");
    y = gb_einsum(&gb, "ab,bhd->had", y, heads);
    const esp_tensor_id_t back = gb_parameter(&gb, "joined", "24 30");
    y = gb_einsum(&gb, "had,hdo->ao", y, gb_reshape(&gb, back, "4 6 30"));
    gb_output(&gb, y);
    esp_graph_t *graph = gb_freeze(&gb);
    check_uniform(graph, "dense", sqrt(3.0 / 50));
    check_uniform(graph, "turned", sqrt(3.0 / 40));
    check_uniform(graph, "heads", sqrt(3.0 / 30));
    check_uniform(graph, "joined", sqrt(3.0 / 24));
    check_uniform(graph, "place", 0.02 * sqrt(3));
    check_all(graph, "bias", 0);
    check_all(graph, "factor", 1);
    check_uniform(graph, "x", 1);
    esp_graph_destroy(graph);
}

static void test_convolutions(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    const esp_attr_t groups = {.conv = {.window = {.rank = 2,
                                                   .kernel = {3, 3},
                                                   .stride = {1, 1},
                                                   .dilation = {1, 1},
                                                   .pad_lo = {1, 1},
                                                   .pad_hi = {1, 1}},
                                        .groups = 4,
                                        .target = {9, 9}}};
    const esp_tensor_id_t x = gb_input(&gb, "x", "2 8 9 9", 0);
    esp_tensor_id_t y = gb_conv(&gb, x, gb_parameter(&gb, "filter", "16 8 3 3"));
    y = gb_op(&gb, ESP_KIND_CONV, &groups, 2,
              (esp_tensor_id_t[]){y, gb_parameter(&gb, "grouped", "32 4 3 3")});
    y = gb_op(&gb, ESP_KIND_CONV_DX, &groups, 2,
              (esp_tensor_id_t[]){y, gb_parameter(&gb, "transposed", "32 5 3 3")});
    gb_output(&gb, gb_binary(&gb, ESP_ELT_ADD, y, gb_parameter(&gb, "bias", "20 1 1")));
    esp_graph_t *graph = gb_freeze(&gb);
    check_uniform(graph, "filter", sqrt(3.0 / (8 * 9)));
    check_uniform(graph, "grouped", sqrt(3.0 / (4 * 9)));
    check_uniform(graph, "transposed", sqrt(3.0 / (8 * 9)));
    check_all(graph, "bias", 0);
    esp_graph_destroy(graph);
}

/* A table that is also the last product's weight is a table; recurrent weights. */
static void test_tables(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    const esp_tensor_id_t ids = gb_tensor(&gb, "ids", ESP_ROLE_INPUT, ESP_DTYPE_I64, "100 7");
    const esp_tensor_id_t table = gb_parameter(&gb, "table", "90 16");
    esp_attr_t attr = {0};
    const esp_tensor_id_t rows =
        gb_op(&gb, ESP_KIND_GATHER, &attr, 2, (esp_tensor_id_t[]){table, ids});
    const esp_tensor_id_t lstm[4] = {rows, gb_parameter(&gb, "w", "48 16"),
                                     gb_parameter(&gb, "r", "48 12"), gb_parameter(&gb, "b", "96")};
    const esp_tensor_id_t y = gb_op(&gb, ESP_KIND_LSTM, &attr, 4, lstm);
    gb_output(&gb, gb_einsum(&gb, "tbh,hi->tbi", y, gb_parameter(&gb, "up", "12 16")));
    gb_output(&gb, gb_einsum(&gb, "tbh,vh->tbv", rows, table));
    esp_graph_t *graph = gb_freeze(&gb);
    check_uniform(graph, "table", 0.02 * sqrt(3));
    check_uniform(graph, "w", sqrt(3.0 / 16));
    check_uniform(graph, "r", sqrt(3.0 / 12));
    check_all(graph, "b", 0);
    check_integers(graph, "ids", 90);
    esp_graph_destroy(graph);
}

/* Of a training graph: gradients read weights, too, which changes nothing. */
static void test_training(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    esp_graph_t *graph = model_convnet(8, 0, NULL, &opts);
    int32_t states = 0, statistics = 0, ones = 0, filters = 0;
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++) {
        const esp_role_t role = (esp_role_t)graph->tensor_role[t];
        if (graph->tensor_producer[t] != ESP_NONE || graph->tensor_elements[t] == 0 ||
            graph->tensor_data[t])
            continue;
        double *value = doubles(graph, t, SEED, 0);
        double sum = 0;
        for (int64_t i = 0; i < graph->tensor_elements[t]; i++) {
            assert_true(isfinite(value[i]));
            assert_true(role != ESP_ROLE_STATE || value[i] == 0);
            assert_true(role != ESP_ROLE_STATISTIC || value[i] == value[0]);
            sum += fabs(value[i]);
        }
        states += role == ESP_ROLE_STATE;
        statistics += role == ESP_ROLE_STATISTIC;
        ones += role == ESP_ROLE_STATISTIC && value[0] == 1;
        if (role == ESP_ROLE_PARAMETER && graph->tensor_rank[t] == 4) {
            const int64_t *dims = graph->tensor_dims[t];
            check_uniform(graph, graph->tensor_name[t],
                          sqrt(3.0 / (double)(dims[1] * dims[2] * dims[3])));
            filters++;
        } else if (role == ESP_ROLE_PARAMETER && graph->tensor_rank[t] > 1) {
            assert_true(sum > 0);
        }
        free(value);
    }
    assert_true(states > 0 && statistics > 0 && filters > 0);
    assert_int_equal(2 * ones, statistics); /* variances 1, means 0 */
    esp_graph_destroy(graph);
}

/* The gradient of x sums over the other axis of w. */
static void test_backward_uses(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    net_t net;
    net_init(&net, "widening");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(8, 4), 0);
    x = net_dense(&net, "first", x, 6);
    esp_graph_t *graph = net_train(&net, net_dense(&net, "second", x, 200), &opts);
    check_uniform(graph, "second/w", sqrt(3.0 / 6));
    esp_graph_destroy(graph);
}

/* ---- inputs and literals ------------------------------------------------------------------------
 */

static void test_inputs(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    esp_graph_t *graph = model_mlp(200, 0, &opts);
    check_uniform(graph, "x", 1);
    check_integers(graph, "labels", 5);
    const esp_tensor_id_t labels = gb_find(graph, "labels");
    double *first = doubles(graph, labels, SEED, 0), *next = doubles(graph, labels, SEED, 1);
    assert_memory_not_equal(first, next, 200 * sizeof *first);
    free(first);
    free(next);
    esp_graph_destroy(graph);
}

static void test_other_dtypes(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    static const float literal[3] = {1.5f, -2, 1e-40f};
    const uint16_t half[2] = {0x3c00, 0xc000};
    esp_tensor_id_t t;
    gb_tensor(&gb, "flags", ESP_ROLE_INPUT, ESP_DTYPE_BOOL, "64");
    gb_tensor(&gb, "bytes", ESP_ROLE_INPUT, ESP_DTYPE_U8, "64"); /* that nothing uses */
    gb_tensor(&gb, "whole", ESP_ROLE_STATE, ESP_DTYPE_I64, "3");
    gb_tensor(&gb, "halves", ESP_ROLE_INPUT, ESP_DTYPE_F16, "4000");
    gb_tensor(&gb, "nothing", ESP_ROLE_INPUT, ESP_DTYPE_F32, "0 3");
    test_assert_ok(esp_builder_tensor(gb.builder, "literal", ESP_ROLE_CONSTANT, ESP_DTYPE_F32, 1,
                                      (int64_t[]){3}, literal, &t, &gb.diag),
                   &gb.diag);
    test_assert_ok(esp_builder_tensor(gb.builder, "half", ESP_ROLE_CONSTANT, ESP_DTYPE_F16, 1,
                                      (int64_t[]){2}, half, &t, &gb.diag),
                   &gb.diag);
    esp_graph_t *graph = gb_freeze(&gb);
    check_integers(graph, "flags", 2);
    check_integers(graph, "bytes", 2);
    check_all(graph, "whole", 0);
    check_uniform(graph, "halves", 1);
    float same[3];
    double wide[3];
    esp_exec_initial(graph, gb_find(graph, "literal"), 1, 2, 0, same);
    assert_memory_equal(same, literal, sizeof literal);
    esp_exec_initial(graph, gb_find(graph, "literal"), 1, 2, 1, wide);
    assert_true(wide[0] == 1.5 && wide[1] == -2 && wide[2] == (double)1e-40f);
    uint16_t kept[2];
    esp_exec_initial(graph, gb_find(graph, "half"), 1, 2, 1, kept);
    assert_memory_equal(kept, half, sizeof half);
    esp_exec_initial(graph, gb_find(graph, "nothing"), 1, 2, 0, same);
    esp_graph_destroy(graph);
}

/* ---- what values depend on ----------------------------------------------------------------------
 */

/* The name, the seed, and nothing else of the graph; floats are the rounded doubles. */
static void test_dependence(void **state)
{
    (void)state;
    const esp_training_opts_t sgd = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_SGD);
    const esp_training_opts_t adam = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    esp_graph_t *one = model_mlp(8, 0, &sgd), *other = model_mlp(24, 0.5, &adam);
    int32_t differ = 0, matrices = 0;
    for (int32_t i = 0; i < one->n_parameters; i++) {
        const esp_tensor_id_t t = one->parameter[i];
        const esp_tensor_id_t same = gb_find(other, one->tensor_name[t]);
        const int64_t n = one->tensor_elements[t];
        double *a = doubles(one, t, SEED, 0), *b = doubles(other, same, SEED, 9);
        double *c = doubles(one, t, SEED + 1, 0), *wide = calloc((size_t)n, sizeof *wide);
        assert_non_null(wide);
        esp_exec_initial(one, t, SEED, 0, 1, wide);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
        for (int64_t j = 0; j < n; j++)
            assert_true(a[j] == (double)(float)wide[j]);
        matrices += one->tensor_rank[t] > 1;
        differ += memcmp(a, c, (size_t)n * sizeof *a) != 0;
        free(a);
        free(b);
        free(c);
        free(wide);
    }
    assert_true(matrices > 1);
    assert_int_equal(differ, matrices); /* biases are 0 whatever the seed */
    esp_graph_destroy(one);
    esp_graph_destroy(other);
}

/* Uses that double from op to op end after a while. */
static void test_many_uses(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_parameter(&gb, "w", "2 2");
    for (int32_t i = 0; i < 40; i++) {
        const esp_attr_t join = {.axis.axis = 0};
        const esp_tensor_id_t two[2] = {gb_transpose(&gb, x, "1 0"), gb_transpose(&gb, x, "1 0")};
        const esp_attr_t half = {.slice = {.step = {1, 1}, .count = {2, 2}}};
        const esp_tensor_id_t joined = gb_op(&gb, ESP_KIND_CONCAT, &join, 2, two);
        x = gb_op(&gb, ESP_KIND_SLICE, &half, 1, &joined);
    }
    gb_output(&gb, gb_einsum(&gb, "ab,bc->ac", x, gb_input(&gb, "x", "2 3", -1)));
    esp_graph_t *graph = gb_freeze(&gb);
    const numbers_t w = numbers_of(graph, "w");
    for (int32_t i = 0; i < 4; i++)
        assert_true(isfinite(w.value[i]));
    free(w.value);
    esp_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),       cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_tables),        cmocka_unit_test(test_training),
        cmocka_unit_test(test_backward_uses), cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_other_dtypes),  cmocka_unit_test(test_dependence),
        cmocka_unit_test(test_many_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
