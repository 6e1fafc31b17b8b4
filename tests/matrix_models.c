/* The models of the execution matrix. */
#include "matrix_models.h"
#include "support.h"

enum { B = MATRIX_BATCH, S = 3, H = 4 }; /* samples, positions, width */

static esp_tensor_id_t add(net_t *net, esp_tensor_id_t x, esp_tensor_id_t y)
{
    return net_binary(net, ESP_ELT_ADD, x, y);
}

static esp_tensor_id_t gather(net_t *net, const char *name, int32_t axis, esp_tensor_id_t table,
                              esp_tensor_id_t indices)
{
    const esp_attr_t attr = {.axis = {.axis = axis}};
    return net_op(net, name, ESP_KIND_GATHER, &attr, 2, (esp_tensor_id_t[]){table, indices});
}

static esp_tensor_id_t concat(net_t *net, int32_t axis, int32_t n, const esp_tensor_id_t *x)
{
    const esp_attr_t attr = {.axis = {.axis = axis}};
    return net_op(net, "concat", ESP_KIND_CONCAT, &attr, n, x);
}

static esp_tensor_id_t literal(net_t *net, const char *name, int64_t n, const int64_t *values)
{
    esp_tensor_id_t id;
    test_assert_ok(esp_builder_tensor(net->builder, name, ESP_ROLE_CONSTANT, ESP_DTYPE_I64, 1, &n,
                                      values, &id, &net->diag),
                   &net->diag);
    return id;
}

/* ---- convolutions ------------------------------------------------------------------------ */

static esp_graph_t *convnet(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    return model_convnet(B, ghosts, share, opts);
}

static esp_tensor_id_t conv(net_t *net, const char *name, esp_tensor_id_t x, const int64_t *dims,
                            int64_t groups, int64_t stride, int64_t dilation)
{
    const int64_t pad = dilation * (dims[2] / 2);
    const esp_attr_t attr = {.conv = {.window = {.rank = 2,
                                                 .kernel = {dims[2], dims[3]},
                                                 .stride = {stride, stride},
                                                 .dilation = {dilation, dilation},
                                                 .pad_lo = {pad, pad},
                                                 .pad_hi = {pad, pad}},
                                      .groups = groups}};
    const esp_tensor_id_t w = net_param(net, name, 4, dims);
    return net_op(net, name, ESP_KIND_CONV, &attr, 2, (esp_tensor_id_t[]){x, w});
}

/* Windows of 3 by 3 that overlap. */
static esp_tensor_id_t pool(net_t *net, esp_tensor_id_t x, int32_t is_max)
{
    const esp_attr_t attr = {.pool = {.window = {.rank = 2,
                                                 .kernel = {3, 3},
                                                 .stride = {2, 2},
                                                 .dilation = {1, 1},
                                                 .pad_lo = {1, 1},
                                                 .pad_hi = {1, 1}},
                                      .is_max = is_max,
                                      .count_padding = 1}};
    return net_op(net, "pool", ESP_KIND_POOL, &attr, 1, &x);
}

/* Grouped, depthwise, dilated, strided, with biases. */
static esp_graph_t *grouped(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    net_t net;
    (void)ghosts, (void)share;
    net_init(&net, "grouped");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 4, NET_DIMS(B, 4, 6, 6), 0);
    x = conv(&net, "grouped", x, NET_DIMS(6, 2, 3, 3), 2, 1, 1);
    x = net_unary(&net, ESP_ELT_SILU, add(&net, x, net_param(&net, "bias", 3, NET_DIMS(6, 1, 1))));
    x = conv(&net, "depthwise", x, NET_DIMS(6, 1, 3, 3), 6, 1, 2);
    x = pool(&net, x, 1);
    x = net_unary(&net, ESP_ELT_GELU, conv(&net, "strided", x, NET_DIMS(4, 6, 3, 3), 1, 2, 1));
    x = net_dropout(&net, pool(&net, x, 0), 0.2, 5);
    return net_train(&net, net_dense(&net, "head", net_reshape(&net, x, 2, NET_DIMS(B, 4)), 5),
                     opts);
}

static esp_graph_t *batchnorm_mlp(const esp_training_opts_t *opts, int32_t ghosts,
                                  const int64_t *share)
{
    net_t net;
    net_init(&net, "batchnorm_mlp");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(B, 5), 0);
    x = net_batchnorm(&net, "bn", net_dense(&net, "one", x, 6), ghosts, share);
    return net_train(&net, net_dense(&net, "two", net_unary(&net, ESP_ELT_TANH, x), 3), opts);
}

/* ---- attention --------------------------------------------------------------------------- */

/* Two heads over x, [b, s, h] or [s, b, h]. */
static esp_tensor_id_t attend(net_t *net, esp_tensor_id_t x, bool sequence_first, double dropout,
                              esp_tensor_id_t mask)
{
    static const char *const names[] = {"query", "key", "value"};
    const int64_t first = sequence_first ? S : B, second = sequence_first ? B : S;
    const esp_attr_t samples = {.attention = {.q = "bihd",
                                              .k = "bjhd",
                                              .v = "bjhe",
                                              .y = "bihe",
                                              .s = "bhij",
                                              .scale = 0.7,
                                              .fill = -1e4,
                                              .p = dropout,
                                              .stream = 40}};
    const esp_attr_t sequence = {.attention = {.q = "ibhd",
                                               .k = "jbhd",
                                               .v = "jbhe",
                                               .y = "ibhe",
                                               .s = "bhij",
                                               .scale = 0.7,
                                               .p = dropout,
                                               .stream = 41}};
    esp_tensor_id_t part[4], out[4];
    for (int32_t i = 0; i < 3; i++)
        part[i] =
            net_reshape(net, net_dense(net, names[i], x, H), 4, NET_DIMS(first, second, 2, H / 2));
    part[3] = mask;
    net_outputs(net, "attention", ESP_KIND_ATTENTION, sequence_first ? &sequence : &samples, 4,
                part, out);
    return net_dense(net, "mix", net_reshape(net, out[0], 3, NET_DIMS(first, second, H)), H);
}

static esp_tensor_id_t feed_forward(net_t *net, esp_tensor_id_t x, double dropout)
{
    x = add(net, x, net_dropout(net, net_dense(net, "up", x, H), dropout, 42));
    return net_layernorm(net, "norm", net_unary(net, ESP_ELT_GELU_TANH, x));
}

/* Encoder over tokens, with a mask of keys per sample and one for all heads. */
static esp_graph_t *encoder(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    net_t net;
    (void)ghosts, (void)share;
    net_init(&net, "encoder");
    const esp_tensor_id_t ids = net_input(&net, "ids", ESP_DTYPE_I64, 2, NET_DIMS(B, S), 0);
    const esp_tensor_id_t mask =
        net_input(&net, "mask", ESP_DTYPE_BOOL, 4, NET_DIMS(B, 1, 1, S), 0);
    esp_tensor_id_t x = gather(&net, "embed", 0, net_param(&net, "table", 2, NET_DIMS(9, H)), ids);
    x = add(&net, x, net_param(&net, "position", 2, NET_DIMS(S, H)));
    x = net_layernorm(&net, "embedded", x);
    x = add(&net, x, net_dropout(&net, attend(&net, x, false, 0.2, mask), 0.1, 43));
    return net_train(&net, net_dense(&net, "head", feed_forward(&net, x, 0.1), 5), opts);
}

/* Sequence first, with a mask that is learnt. */
static esp_graph_t *sequence_first(const esp_training_opts_t *opts, int32_t ghosts,
                                   const int64_t *share)
{
    net_t net;
    (void)ghosts, (void)share;
    net_init(&net, "sequence_first");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 3, NET_DIMS(S, B, H), 1);
    const esp_tensor_id_t mask = net_param(&net, "bias", 2, NET_DIMS(S, S));
    x = add(&net, x, attend(&net, x, true, 0, mask));
    x = feed_forward(&net, x, 0);
    return net_train(&net, net_dense(&net, "head", net_reduce(&net, ESP_REDUCE_SUM, x, 1), 3),
                     opts);
}

/* Attention of products and softmax, tied output weights. */
static esp_graph_t *decoder(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    (void)ghosts, (void)share;
    return model_transformer(B, 1, 0.1, opts);
}

static esp_graph_t *tied(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    (void)ghosts, (void)share;
    return model_tied(B, opts);
}

/* ---- recurrent layers -------------------------------------------------------------------- */

/* Hidden states of a layer of `gates` gates, 3 wide; `state`: at first, may be ESP_NONE. */
static esp_tensor_id_t recur(net_t *net, esp_op_kind_t kind, const char *name, int64_t gates,
                             esp_tensor_id_t x, const esp_attr_t *attr, esp_tensor_id_t state)
{
    esp_dtype_t dtype;
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    esp_tensor_id_t out[8];
    esp_builder_shape(net->builder, x, &dtype, &rank, dims);
    const esp_tensor_id_t in[] = {x, net_param(net, name, 2, NET_DIMS(3 * gates, dims[2])),
                                  net_param(net, name, 2, NET_DIMS(3 * gates, 3)),
                                  net_param(net, name, 1, NET_DIMS(6 * gates)), state};
    net_outputs(net, name, kind, attr, 5, in, out);
    return out[0];
}

/* In both directions. */
static esp_graph_t *lstm(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    const esp_attr_t forth = {0}, back = {.recurrent = {.reverse = 1}};
    net_t net;
    (void)ghosts, (void)share;
    net_init(&net, "lstm");
    const esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 3, NET_DIMS(S, B, H), 1);
    const esp_tensor_id_t y[] = {recur(&net, ESP_KIND_LSTM, "forth", 4, x, &forth, ESP_NONE),
                                 recur(&net, ESP_KIND_LSTM, "back", 4, x, &back, ESP_NONE)};
    return net_train(&net, net_dense(&net, "head", concat(&net, 2, 2, y), 5), opts);
}

/* Two layers, from a state that is given. */
static esp_graph_t *gru(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    const esp_attr_t plain = {0}, linear = {.recurrent = {.linear_before_reset = 1}};
    net_t net;
    (void)ghosts, (void)share;
    net_init(&net, "gru");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 3, NET_DIMS(S, B, H), 1);
    const esp_tensor_id_t state = net_input(&net, "state", ESP_DTYPE_F32, 2, NET_DIMS(B, 3), 0);
    x = recur(&net, ESP_KIND_GRU, "one", 3, x, &plain, state);
    x = recur(&net, ESP_KIND_GRU, "two", 3, x, &linear, ESP_NONE);
    return net_train(&net, net_dense(&net, "head", x, 2), opts);
}

static esp_graph_t *rnn(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    const esp_attr_t attr = {0};
    net_t net;
    (void)ghosts, (void)share;
    net_init(&net, "rnn");
    const esp_tensor_id_t ids = net_input(&net, "ids", ESP_DTYPE_I64, 2, NET_DIMS(S, B), 1);
    esp_tensor_id_t x = gather(&net, "embed", 0, net_param(&net, "table", 2, NET_DIMS(7, H)), ids);
    x = recur(&net, ESP_KIND_RNN, "rnn", 1, x, &attr, ESP_NONE);
    return net_train(&net, net_dense(&net, "head", x, 4), opts);
}

/* ---- dense layers ------------------------------------------------------------------------ */

static esp_graph_t *dense(const char *name, double p, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, name);
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(B, 10), 0);
    x = net_unary(&net, ESP_ELT_RELU, net_dense(&net, "one", x, 20));
    x = net_dropout(&net, x, p, 3);
    x = net_unary(&net, ESP_ELT_TANH, net_dense(&net, "two", x, 16));
    return net_train(&net, net_dense(&net, "three", x, 12), opts);
}

static esp_graph_t *mlp(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    (void)ghosts, (void)share;
    return dense("mlp", 0, opts);
}

static esp_graph_t *dropout(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    (void)ghosts, (void)share;
    return dense("dropout", 0.3, opts);
}

/* Layer and RMS normalisation, a gate. */
static esp_graph_t *norms(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    const esp_attr_t rms = {.norm = {.epsilon = 1e-3, .axis = 1, .rms = 1}};
    net_t net;
    (void)ghosts, (void)share;
    net_init(&net, "norms");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(B, 5), 0);
    x = net_layernorm(&net, "norm", net_dense(&net, "one", x, 6));
    x = net_binary(&net, ESP_ELT_MUL,
                   net_unary(&net, ESP_ELT_SIGMOID, net_dense(&net, "gate", x, 6)), x);
    const esp_tensor_id_t in[] = {x, net_param(&net, "scale", 1, NET_DIMS(6))};
    x = net_op(&net, "rms", ESP_KIND_LAYERNORM, &rms, 2, in);
    return net_train(&net, net_dense(&net, "two", x, 4), opts);
}

/* The loss is the model's own: mean square plus the squared norm of the weights. */
static esp_graph_t *penalty(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    const esp_attr_t mean = {.eltwise = {ESP_ELT_AFFINE, 1.0 / (B * 12), 0}};
    const esp_attr_t little = {.eltwise = {ESP_ELT_AFFINE, 0.01, 0}};
    net_t net;
    (void)ghosts, (void)share;
    net_init(&net, "penalty");
    const esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(B, 16), 0);
    const esp_tensor_id_t w = net_param(&net, "w", 2, NET_DIMS(16, 12));
    esp_tensor_id_t y = net_unary(&net, ESP_ELT_TANH, net_einsum(&net, "y", "bi,ij->bj", x, w));
    esp_tensor_id_t size = net_reduce(&net, ESP_REDUCE_SUMSQ, w, 3);
    y = net_reduce(&net, ESP_REDUCE_SUMSQ, y, 3);
    y = net_op(&net, "mean", ESP_KIND_ELTWISE, &mean, 1, &y);
    size = net_op(&net, "little", ESP_KIND_ELTWISE, &little, 1, &size);
    return net_train(&net, add(&net, y, size), opts);
}

static esp_graph_t *per_sample(const esp_training_opts_t *opts, int32_t ghosts,
                               const int64_t *share)
{
    (void)ghosts, (void)share;
    return model_per_sample(B, opts);
}

static esp_graph_t *shared(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    (void)ghosts, (void)share;
    return model_branches(B, opts);
}

/* ---- what moves elements ----------------------------------------------------------------- */

static esp_tensor_id_t made(net_t *net, const char *name, esp_op_kind_t kind,
                            const esp_attr_t *attr)
{
    return net_op(net, name, kind, attr, 0, NULL);
}

/* Embedded positions, [B, S, H], and what is drawn for each sample. */
static esp_tensor_id_t positions(net_t *net)
{
    const esp_attr_t count = {
        .shape = {.rank = 1, .dims = {S}, .dtype = ESP_DTYPE_I64, .value = 1, .step = 1}};
    const esp_attr_t wide = {.shape = {.rank = 3, .dims = {B, S, H}}};
    const esp_attr_t noise = {
        .shape = {
            .rank = 3, .dims = {B, S, H}, .step = 0.3, .law = ESP_RANDOM_NORMAL, .stream = 50}};
    const esp_attr_t half = {.shape = {.rank = 2, .dims = {S, H}, .value = 0.5}};
    const esp_tensor_id_t table = net_param(net, "positions", 2, NET_DIMS(5, H));
    esp_tensor_id_t x = gather(net, "at", 0, table, made(net, "range", ESP_KIND_RANGE, &count));
    x = net_binary(net, ESP_ELT_MUL, x, made(net, "half", ESP_KIND_FILL, &half));
    x = net_op(net, "expand", ESP_KIND_EXPAND, &wide, 1, &x);
    return add(net, x, made(net, "noise", ESP_KIND_RANDOM, &noise));
}

/* Zeros around the positions, then every second one; twice as wide by a transpose. */
static esp_tensor_id_t rearranged(net_t *net, esp_tensor_id_t x)
{
    const esp_attr_t pad = {.pad = {.lo = {0, 1}, .hi = {0, 2}, .value = 0.25}};
    const esp_attr_t cut = {.slice = {.start = {0, 1}, .step = {1, 2, 1}, .count = {B, 3, H}}};
    static const int64_t order[] = {3, 0, 2, 2};
    x = net_op(net, "pad", ESP_KIND_PAD, &pad, 1, &x);
    x = net_op(net, "cut", ESP_KIND_SLICE, &cut, 1, &x);
    const esp_tensor_id_t both[] = {
        net_transpose(net, x, 3, NET_DIMS(0, 2, 1)),
        net_transpose(net, net_unary(net, ESP_ELT_TANH, x), 3, NET_DIMS(0, 2, 1))};
    x = concat(net, 2, 2, both);
    return gather(net, "shuffle", 1, x, literal(net, "order", 4, order));
}

static esp_graph_t *views(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share)
{
    const esp_attr_t to_float = {.cast = {.dtype = ESP_DTYPE_F32}};
    net_t net;
    (void)ghosts, (void)share;
    net_init(&net, "views");
    const esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 3, NET_DIMS(B, S, H), 0);
    esp_tensor_id_t keep = net_input(&net, "keep", ESP_DTYPE_BOOL, 3, NET_DIMS(B, S, 1), 0);
    keep = net_op(&net, "cast", ESP_KIND_CAST, &to_float, 1, &keep);
    esp_tensor_id_t y = net_binary(&net, ESP_ELT_MUL, net_dense(&net, "one", x, H), keep);
    y = rearranged(&net, add(&net, y, positions(&net)));
    const esp_tensor_id_t largest = net_reduce(&net, ESP_REDUCE_MAX, y, 4);
    return net_train(&net,
                     add(&net, net_dense(&net, "two", net_reduce(&net, ESP_REDUCE_SUM, y, 4), 3),
                         net_dense(&net, "three", largest, 3)),
                     opts);
}

/* ---- all of them ------------------------------------------------------------------------- */

#define XENT ESP_LOSS_XENT
#define MSE  ESP_LOSS_MSE
#define NONE INT64_MIN
const matrix_model_t matrix_models[] = {
    {"convnet", XENT, ESP_OPTIMIZER_MOMENTUM, 0.5, NONE, convnet, true, false},
    {"batchnorm_mlp", MSE, ESP_OPTIMIZER_ADAM, 0, NONE, batchnorm_mlp, true, false},
    {"grouped", XENT, ESP_OPTIMIZER_ADAM, 0, NONE, grouped, false, false},
    {"encoder", XENT, ESP_OPTIMIZER_ADAMW, 0.2, NONE, encoder, false, false},
    {"sequence_first", XENT, ESP_OPTIMIZER_ADAM, 0, NONE, sequence_first, false, false},
    {"decoder", XENT, ESP_OPTIMIZER_MOMENTUM, 0, 2, decoder, false, false},
    {"tied", XENT, ESP_OPTIMIZER_ADAM, 0.1, 0, tied, false, false},
    {"lstm", XENT, ESP_OPTIMIZER_MOMENTUM, 0, NONE, lstm, false, false},
    {"gru", MSE, ESP_OPTIMIZER_ADAM, 0, NONE, gru, false, false},
    {"rnn", XENT, ESP_OPTIMIZER_SGD, 0, NONE, rnn, false, false},
    {"mlp", MSE, ESP_OPTIMIZER_SGD, 0, NONE, mlp, false, false},
    {"dropout", XENT, ESP_OPTIMIZER_MOMENTUM, 0.2, NONE, dropout, false, false},
    {"norms", XENT, ESP_OPTIMIZER_ADAMW, 0, NONE, norms, false, false},
    {"views", MSE, ESP_OPTIMIZER_ADAM, 0, NONE, views, false, false},
    {"penalty", ESP_LOSS_OUTPUT, ESP_OPTIMIZER_SGD, 0.3, NONE, penalty, false, false},
    {"per_sample", MSE, ESP_OPTIMIZER_MOMENTUM, 0, NONE, per_sample, false, true},
    {"shared", XENT, ESP_OPTIMIZER_ADAM, 0.1, NONE, shared, false, false},
};
const int32_t matrix_n_models = sizeof matrix_models / sizeof *matrix_models;

esp_graph_t *matrix_graph(const matrix_model_t *model, int32_t ghosts, const int64_t *share)
{
    esp_training_opts_t opts = train_with(model->loss, model->optimizer);
    opts.clip_norm = model->clip_norm;
    opts.ignore_label = model->ignore;
    opts.no_decay_regex = "bias|/b$|gamma|beta";
    return model->make(&opts, ghosts, share);
}
