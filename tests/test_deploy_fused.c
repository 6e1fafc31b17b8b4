/* The gate over fused kinds that keep state of their own: recurrent layers and attention. */
#include "gate.h"
#include "models.h"
#include "support.h"

static const double uneven[] = {3, 1, 2};

/* A recurrent layer over x[3, b, in] with `hidden` units; all its outputs. */
static void layer(net_t *net, const char *const names[3], esp_op_kind_t kind,
                  const esp_attr_t *attr, esp_tensor_id_t x, int64_t in, int64_t hidden,
                  esp_tensor_id_t h0, esp_tensor_id_t out[5])
{
    const int64_t gates = kind == ESP_KIND_LSTM ? 4 : kind == ESP_KIND_GRU ? 3 : 1;
    const esp_tensor_id_t inputs[5] = {
        x, net_param(net, names[0], 2, NET_DIMS(gates * hidden, in)),
        net_param(net, names[1], 2, NET_DIMS(gates * hidden, hidden)),
        net_param(net, names[2], 1, NET_DIMS(2 * gates * hidden)), h0};
    net_outputs(net, names[0], kind, attr, 5, inputs, out);
}

/* Three layers, one on the other; the first state of the last is the last of the first. */
static esp_graph_t *model_recurrent(int64_t batch, const esp_training_opts_t *opts)
{
    static const char *const names[3][3] = {
        {"lstm/w", "lstm/r", "lstm/b"}, {"gru/w", "gru/r", "gru/b"}, {"rnn/w", "rnn/r", "rnn/b"}};
    const esp_attr_t forward = {0}, backward = {.recurrent = {.reverse = 1}};
    const esp_attr_t linear = {.recurrent = {.linear_before_reset = 1}};
    esp_tensor_id_t lstm[5], gru[5], rnn[5];
    net_t net;
    net_init(&net, "recurrent");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 3, NET_DIMS(3, batch, 4), 1);
    layer(&net, names[0], ESP_KIND_LSTM, &forward, x, 4, 3, ESP_NONE, lstm);
    layer(&net, names[1], ESP_KIND_GRU, &linear, lstm[0], 3, 3, lstm[1], gru);
    layer(&net, names[2], ESP_KIND_RNN, &backward, gru[0], 3, 3, lstm[2], rnn);
    return net_train(&net, net_dense(&net, "head", rnn[1], 3), opts);
}

/* Keys of x attend to a learned bias of each head, with dropout; a second layer hides keys. */
static esp_graph_t *model_attention(int64_t batch, const esp_training_opts_t *opts)
{
    enum { S = 3, HEADS = 2, DEPTH = 2, WIDTH = HEADS * DEPTH };
    static const char *const names[2][3] = {{"q0", "k0", "v0"}, {"q1", "k1", "v1"}};
    net_t net;
    net_init(&net, "attention");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 3, NET_DIMS(batch, S, WIDTH), 0);
    const esp_tensor_id_t mask[2] = {
        net_param(&net, "bias", 3, NET_DIMS(HEADS, S, S)),
        net_input(&net, "hidden", ESP_DTYPE_BOOL, 4, NET_DIMS(batch, 1, 1, S), 0)};
    for (int32_t i = 0; i < 2; i++) {
        const esp_attr_t attr = {.attention = {.q = "bihd",
                                               .k = "bjhd",
                                               .v = "bjhe",
                                               .y = "bihe",
                                               .s = "bhij",
                                               .scale = 0.7,
                                               .fill = -4,
                                               .hidden = 1,
                                               .p = 0.2,
                                               .stream = 40 + i}};
        esp_tensor_id_t in[4], out[3];
        for (int32_t j = 0; j < 3; j++)
            in[j] = net_reshape(&net, net_dense(&net, names[i][j], x, WIDTH), 4,
                                NET_DIMS(batch, S, HEADS, DEPTH));
        in[3] = mask[i];
        net_outputs(&net, i == 0 ? "first" : "second", ESP_KIND_ATTENTION, &attr, 4, in, out);
        x = net_reshape(&net, out[0], 3, NET_DIMS(batch, S, WIDTH));
    }
    return net_train(&net, net_dense(&net, "head", x, 5), opts);
}

/* Data parallel, updates elsewhere or in pieces, and one device after the other. */
static void check(esp_graph_t *graph)
{
    gate_t gate;
    strategy_t strategy;
    gate_init(&gate, graph);
    gate.steps = 3;
    strategy_single(&strategy, graph, 1);
    gate_same_step(&gate, &strategy);
    for (int32_t n = 2; n <= 3; n++) {
        strategy_data_parallel(&strategy, graph, n, n == 3 ? uneven : NULL);
        gate_same_step(&gate, &strategy);
        strategy_parameter_server(&strategy, graph, n, uneven, 3);
        gate_same_step(&gate, &strategy);
        strategy_sharded(&strategy, graph, n, uneven);
        gate_same_step(&gate, &strategy);
    }
    for (int32_t mode = ESP_MODE_BATCH; mode <= ESP_MODE_SHARD; mode++) {
        const int32_t devices[] = {0, 1, 3};
        strategy_init(&strategy, graph);
        const int32_t mesh[2] = {strategy_mesh(&strategy, 3, devices, uneven),
                                 strategy_mesh(&strategy, 2, devices + 1, NULL)};
        strategy_stages(&strategy, 2, mesh, (esp_mode_t)mode);
        gate_same_step(&gate, &strategy);
    }
    gate_fini(&gate);
}

static void test_recurrent(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    check(model_recurrent(5, &opts));
}

static void test_attention(void **state)
{
    (void)state;
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_MOMENTUM);
    check(model_attention(5, &opts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
