/* Attention and recurrent layers: what holds for every kind, their numbers, refusals. */
#include "kind_harness.h"
#include "support.h"

#include <math.h>
#include <string.h>

#define EPSILON 1e-12

static void test_every_example(void **state)
{
    (void)state;
    const kind_examples_t list = kind_examples_c();
    for (int32_t i = 0; i < list.count; i++)
        kind_check(&list.data[i]);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void check_numbers(const double *actual, const double *expected, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (!(fabs(actual[i] - expected[i]) <= EPSILON))
            fail_msg("number %d is %.17g, expected %.17g", (int)i, actual[i], expected[i]);
    }
}

/* ---- numbers: one sample, one input, one hidden unit, two elements ------------------------- */

static const double x[2] = {0.5, -2}, w[4] = {0.3, -0.7, 1.1, 0.9}, r[4] = {-0.4, 0.8, 0.2, 0.6};
static const double bias[8] = {0.1, 0.2, 0.3, 0.4, -0.5, 0.6, -0.7, 0.8}, h0 = 0.25, c0 = -0.75;

static kind_example_t layer(esp_op_kind_t kind, int64_t gates)
{
    return (kind_example_t){.name = "layer",
                            .kind = kind,
                            .n_in = 5,
                            .in = {{.rank = 3, .dims = {2, 1, 1}, .values = x},
                                   {.rank = 2, .dims = {gates, 1}, .values = w},
                                   {.rank = 2, .dims = {gates, 1}, .values = r},
                                   {.rank = 1, .dims = {2 * gates}, .values = bias},
                                   {.rank = 2, .dims = {1, 1}, .values = &h0}}};
}

static double enters(int32_t gate, int32_t gates, double element, double h)
{
    return w[gate] * element + bias[gate] + r[gate] * h + bias[gates + gate];
}

/* Gates in the order of ONNX: input, output, forget, cell. */
static void test_lstm_numbers(void **state)
{
    (void)state;
    for (int32_t reverse = 0; reverse < 2; reverse++) {
        kind_example_t op = layer(ESP_KIND_LSTM, 4);
        op.attr.recurrent.reverse = reverse;
        op.n_in = 6;
        op.in[5] = (kind_input_t){.rank = 2, .dims = {1, 1}, .values = &c0};
        double y[2], h = h0, c = c0, actual[14];
        for (int32_t step = 0; step < 2; step++) {
            const int32_t t = reverse ? 1 - step : step;
            const double i = sigmoid(enters(0, 4, x[t], h)), o = sigmoid(enters(1, 4, x[t], h));
            const double f = sigmoid(enters(2, 4, x[t], h)), a = tanh(enters(3, 4, x[t], h));
            c = f * c + i * a;
            y[t] = h = o * tanh(c);
        }
        kind_compute(&op, 0, 0, actual, 14);
        check_numbers(actual, (const double[]){y[0], y[1], h, c}, 4);
    }
}

/* Gates in the order of ONNX: update, reset, hidden. */
static void test_gru_numbers(void **state)
{
    (void)state;
    for (int32_t linear = 0; linear < 2; linear++) {
        kind_example_t op = layer(ESP_KIND_GRU, 3);
        op.attr.recurrent.linear_before_reset = linear;
        double y[2], h = h0, actual[11];
        for (int32_t t = 0; t < 2; t++) {
            const double z = sigmoid(enters(0, 3, x[t], h)), s = sigmoid(enters(1, 3, x[t], h));
            const double n = tanh(w[2] * x[t] + bias[2] +
                                  (linear ? s * (r[2] * h + bias[5]) : r[2] * s * h + bias[5]));
            y[t] = h = (1 - z) * n + z * h;
        }
        kind_compute(&op, 0, 0, actual, 11);
        check_numbers(actual, (const double[]){y[0], y[1], h}, 3);
    }
}

static void test_rnn_numbers(void **state)
{
    (void)state;
    for (int32_t relu = 0; relu < 2; relu++) {
        kind_example_t op = layer(ESP_KIND_RNN, 1);
        op.attr.recurrent.relu = relu;
        double y[2], h = h0, actual[3];
        for (int32_t t = 0; t < 2; t++) {
            const double z = enters(0, 1, x[t], h);
            y[t] = h = relu ? fmax(z, 0) : tanh(z);
        }
        kind_compute(&op, 0, 0, actual, 3);
        check_numbers(actual, (const double[]){y[0], y[1], h}, 3);
    }
}

/* ---- attention: one sample, one head, two queries, three keys, depth 1 --------------------- */

static const double att_q[2] = {1, -0.5}, att_k[3] = {0.2, 0.9, -1}, att_v[3] = {3, 5, -7};

static kind_example_t attention(void)
{
    return (kind_example_t){
        .name = "attention",
        .kind = ESP_KIND_ATTENTION,
        .attr.attention = {.q = "id", .k = "jd", .v = "je", .y = "ie", .s = "ij", .scale = 2},
        .n_in = 3,
        .in = {{.rank = 2, .dims = {2, 1}, .values = att_q},
               {.rank = 2, .dims = {3, 1}, .values = att_k},
               {.rank = 2, .dims = {3, 1}, .values = att_v}}};
}

/* y, the largest score and the sum of exp(score - largest), from scores of both rows */
static void attend(const double scores[6], const double factor[6], double out[6])
{
    for (int32_t i = 0; i < 2; i++) {
        double top = -INFINITY, sum = 0, y = 0;
        for (int32_t j = 0; j < 3; j++)
            top = fmax(top, scores[3 * i + j]);
        for (int32_t j = 0; j < 3; j++) {
            sum += exp(scores[3 * i + j] - top);
            y += exp(scores[3 * i + j] - top) * factor[3 * i + j] * att_v[j];
        }
        out[i] = y / sum;
        out[2 + i] = top;
        out[4 + i] = sum;
    }
}

static void test_attention_numbers(void **state)
{
    (void)state;
    static const double ones[6] = {1, 1, 1, 1, 1, 1}, added[3] = {0, -1, 1}, shown[3] = {1, 0, 1};
    double scores[6], with[6], actual[6], expected[6];
    kind_example_t op = attention();
    for (int32_t i = 0; i < 6; i++)
        scores[i] = 2 * att_q[i / 3] * att_k[i % 3];
    attend(scores, ones, expected);
    kind_compute(&op, 0, 0, actual, 6);
    check_numbers(actual, expected, 6);

    op.n_in = 4;
    op.in[3] = (kind_input_t){.rank = 1, .dims = {3}, .values = added};
    for (int32_t i = 0; i < 6; i++)
        with[i] = scores[i] + added[i % 3];
    attend(with, ones, expected);
    kind_compute(&op, 0, 0, actual, 6);
    check_numbers(actual, expected, 6);

    op.in[3] = (kind_input_t){.dtype = ESP_DTYPE_BOOL, .rank = 1, .dims = {3}, .values = shown};
    op.attr.attention.fill = -9;
    for (int32_t i = 0; i < 6; i++)
        with[i] = shown[i % 3] != 0 ? scores[i] : -9;
    attend(with, ones, expected);
    kind_compute(&op, 0, 0, actual, 6);
    check_numbers(actual, expected, 6);
}

/* The same elements of the same stream as dropout of the weights. */
static void test_attention_dropout(void **state)
{
    (void)state;
    static const double ones[6] = {1, 1, 1, 1, 1, 1};
    double scores[6], factor[6], actual[6], expected[6];
    const kind_example_t dropout = {.name = "dropout",
                                    .kind = ESP_KIND_DROPOUT,
                                    .attr.dropout = {.p = 0.4, .stream = 3},
                                    .n_in = 1,
                                    .in = {{.rank = 2, .dims = {2, 3}, .values = ones}}};
    kind_example_t op = attention();
    op.attr.attention.p = 0.4;
    op.attr.attention.stream = 3;
    for (int32_t i = 0; i < 6; i++)
        scores[i] = 2 * att_q[i / 3] * att_k[i % 3];
    for (uint64_t step = 0; step < 4; step++) {
        kind_compute(&dropout, 8, step, factor, 6);
        attend(scores, factor, expected);
        kind_compute(&op, 8, step, actual, 6);
        check_numbers(actual, expected, 6);
    }
}

static void test_attention_refusals(void **state)
{
    (void)state;
    kind_example_t op = attention();
    (void)strcpy((char *)op.attr.attention.s, "ji");
    kind_check_refused(&op, ESP_ERR_INVALID, "are no attention");
    op = attention();
    (void)strcpy((char *)op.attr.attention.v, "jd");
    kind_check_refused(&op, ESP_ERR_INVALID, "are no attention");
    op = attention();
    op.in[1].dims[1] = 2;
    kind_check_refused(&op, ESP_ERR_INVALID, "axis 1 of k has 2 where 1 is needed");
    op = attention();
    op.in[2].rank = 3;
    kind_check_refused(&op, ESP_ERR_INVALID, "v has 3 axes and 2 labels");
    op = attention();
    op.in[1].dims[0] = op.in[2].dims[0] = 0;
    kind_check_refused(&op, ESP_ERR_INVALID, "there are no keys");
    op = attention();
    op.attr.attention.p = 1;
    kind_check_refused(&op, ESP_ERR_INVALID, "dropout probability 1 is not in [0, 1)");
    op = attention();
    op.in[1].dtype = ESP_DTYPE_F64;
    kind_check_refused(&op, ESP_ERR_INVALID, "k is of type float64 and q of type float32");
    op = attention();
    op.n_in = 4;
    op.in[3] = (kind_input_t){.rank = 2, .dims = {2, 2}};
    kind_check_refused(&op, ESP_ERR_INVALID, "axis 1 of the mask has 2 where 1 or 3 is needed");
    op.in[3] = (kind_input_t){.rank = 3, .dims = {1, 2, 3}};
    kind_check_refused(&op, ESP_ERR_INVALID, "the mask has 3 axes, the scores have 2");
    op.in[3] = (kind_input_t){.dtype = ESP_DTYPE_I64, .rank = 1, .dims = {3}};
    kind_check_refused(&op, ESP_ERR_INVALID, "the mask is of type int64, neither bool nor float32");
}

/* ---- refusals ---------------------------------------------------------------------------- */

static void test_layer_refusals(void **state)
{
    (void)state;
    kind_example_t op = layer(ESP_KIND_LSTM, 4);
    op.in[0].rank = 2;
    kind_check_refused(&op, ESP_ERR_INVALID, "x has 2 axes where a sequence of samples has 3");
    op = layer(ESP_KIND_LSTM, 4);
    op.in[0].dims[0] = 0;
    kind_check_refused(&op, ESP_ERR_INVALID, "x is a sequence of 0 elements of 1");
    op = layer(ESP_KIND_LSTM, 3);
    kind_check_refused(&op, ESP_ERR_INVALID, "r has shape [3, 1] where [4 h, h] for h hidden");
    op = layer(ESP_KIND_GRU, 3);
    op.in[1].dims[1] = 2;
    kind_check_refused(&op, ESP_ERR_INVALID, "w has shape [3, 2] where [3, 1] is needed");
    op = layer(ESP_KIND_GRU, 3);
    op.in[3].dims[0] = 3;
    kind_check_refused(&op, ESP_ERR_INVALID, "the bias has shape [3] where [6] is needed");
    op = layer(ESP_KIND_RNN, 1);
    op.in[4].dims[0] = 2;
    kind_check_refused(&op, ESP_ERR_INVALID, "h0 has shape [2, 1] where [1, 1] is needed");
    op = layer(ESP_KIND_RNN, 1);
    op.in[2].dtype = ESP_DTYPE_F64;
    kind_check_refused(&op, ESP_ERR_INVALID, "r is of type float64 among others of type float32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_example),     cmocka_unit_test(test_lstm_numbers),
        cmocka_unit_test(test_gru_numbers),       cmocka_unit_test(test_rnn_numbers),
        cmocka_unit_test(test_layer_refusals),    cmocka_unit_test(test_attention_numbers),
        cmocka_unit_test(test_attention_dropout), cmocka_unit_test(test_attention_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
