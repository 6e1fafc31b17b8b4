/* Recurrent layers: what holds for every kind, their numbers, refusals. */
#include "kind_harness.h"
#include "support.h"

#include <math.h>

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

/* ---- refusals ---------------------------------------------------------------------------- */

static void test_refusals(void **state)
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
        cmocka_unit_test(test_every_example), cmocka_unit_test(test_lstm_numbers),
        cmocka_unit_test(test_gru_numbers),   cmocka_unit_test(test_rnn_numbers),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
