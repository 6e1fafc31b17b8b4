/* Tiny training graphs. */
#include "models.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

/* ---- building ---------------------------------------------------------------------------- */

void net_init(net_t *net, const char *name)
{
    memset(net, 0, sizeof *net);
    test_assert_ok(esp_builder_create(name, NULL, &net->builder), &net->diag);
}

static esp_tensor_id_t source(net_t *net, const char *name, esp_role_t role, esp_dtype_t dtype,
                              int32_t rank, const int64_t *dims)
{
    esp_tensor_id_t id;
    test_assert_ok(
        esp_builder_tensor(net->builder, name, role, dtype, rank, dims, NULL, &id, &net->diag),
        &net->diag);
    return id;
}

esp_tensor_id_t net_input(net_t *net, const char *name, esp_dtype_t dtype, int32_t rank,
                          const int64_t *dims, int32_t batch_axis)
{
    const esp_tensor_id_t id = source(net, name, ESP_ROLE_INPUT, dtype, rank, dims);
    if (batch_axis < 0)
        return id;
    esp_view_t view = {1, dims[batch_axis], 1};
    for (int32_t i = 0; i < rank; i++) {
        view.outer *= i < batch_axis ? dims[i] : 1;
        view.inner *= i > batch_axis ? dims[i] : 1;
    }
    test_assert_ok(esp_builder_batch(net->builder, id, view, &net->diag), &net->diag);
    return id;
}

esp_tensor_id_t net_param(net_t *net, const char *name, int32_t rank, const int64_t *dims)
{
    return source(net, name, ESP_ROLE_PARAMETER, ESP_DTYPE_F32, rank, dims);
}

void net_outputs(net_t *net, const char *name, esp_op_kind_t kind, const esp_attr_t *attr,
                 int32_t n, const esp_tensor_id_t *inputs, esp_tensor_id_t *outputs)
{
    test_assert_ok(esp_builder_op(net->builder, kind, attr, n, inputs, name, outputs, &net->diag),
                   &net->diag);
}

esp_tensor_id_t net_op(net_t *net, const char *name, esp_op_kind_t kind, const esp_attr_t *attr,
                       int32_t n, const esp_tensor_id_t *inputs)
{
    esp_tensor_id_t outputs[4];
    net_outputs(net, name, kind, attr, n, inputs, outputs);
    return outputs[0];
}

static void labels_of(const char **at, int8_t *labels)
{
    while (**at && **at != ',' && **at != '-')
        *labels++ = (int8_t) * (*at)++;
    if (**at)
        *at += **at == ',' ? 1 : 2;
}

esp_tensor_id_t net_einsum(net_t *net, const char *name, const char *labels, esp_tensor_id_t x,
                           esp_tensor_id_t y)
{
    esp_attr_t attr = {0};
    labels_of(&labels, attr.contract.a);
    labels_of(&labels, attr.contract.b);
    labels_of(&labels, attr.contract.y);
    return net_op(net, name, ESP_KIND_CONTRACT, &attr, 2, (esp_tensor_id_t[]){x, y});
}

esp_tensor_id_t net_unary(net_t *net, esp_eltwise_t code, esp_tensor_id_t x)
{
    const esp_attr_t attr = {.eltwise = {.code = code}};
    return net_op(net, "unary", ESP_KIND_ELTWISE, &attr, 1, &x);
}

esp_tensor_id_t net_binary(net_t *net, esp_eltwise_t code, esp_tensor_id_t x, esp_tensor_id_t y)
{
    const esp_attr_t attr = {.eltwise = {.code = code}};
    return net_op(net, "binary", ESP_KIND_ELTWISE, &attr, 2, (esp_tensor_id_t[]){x, y});
}

static esp_tensor_id_t affine(net_t *net, esp_tensor_id_t x, double alpha)
{
    const esp_attr_t attr = {.eltwise = {ESP_ELT_AFFINE, alpha, 0}};
    return net_op(net, "scale", ESP_KIND_ELTWISE, &attr, 1, &x);
}

esp_tensor_id_t net_reshape(net_t *net, esp_tensor_id_t x, int32_t rank, const int64_t *dims)
{
    esp_attr_t attr = {0};
    attr.shape.rank = rank;
    memcpy(attr.shape.dims, dims, (size_t)rank * sizeof *dims);
    return net_op(net, "reshape", ESP_KIND_RESHAPE, &attr, 1, &x);
}

esp_tensor_id_t net_transpose(net_t *net, esp_tensor_id_t x, int32_t rank, const int64_t *perm)
{
    esp_attr_t attr = {0};
    for (int32_t i = 0; i < rank; i++)
        attr.transpose.perm[i] = (int32_t)perm[i];
    return net_op(net, "transpose", ESP_KIND_TRANSPOSE, &attr, 1, &x);
}

esp_tensor_id_t net_reduce(net_t *net, esp_reduce_t code, esp_tensor_id_t x, uint32_t axes)
{
    const esp_attr_t attr = {.reduce = {code, axes, 0}};
    return net_op(net, "reduce", ESP_KIND_REDUCE, &attr, 1, &x);
}

esp_tensor_id_t net_dropout(net_t *net, esp_tensor_id_t x, double p, int64_t stream)
{
    const esp_attr_t attr = {.dropout = {p, stream}};
    return p > 0 ? net_op(net, "dropout", ESP_KIND_DROPOUT, &attr, 1, &x) : x;
}

/* "<name>/<part>", good until the next four calls. */
static const char *part_name(const char *name, const char *part, char buffer[64])
{
    (void)snprintf(buffer, 64, "%s/%s", name, part);
    return buffer;
}

static void shape(net_t *net, esp_tensor_id_t x, int32_t *rank_out, int64_t *dims_out)
{
    esp_dtype_t dtype;
    esp_builder_shape(net->builder, x, &dtype, rank_out, dims_out);
}

esp_tensor_id_t net_layernorm(net_t *net, const char *name, esp_tensor_id_t x)
{
    char text[64];
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    shape(net, x, &rank, dims);
    const esp_attr_t attr = {.norm = {.epsilon = 1e-3, .axis = rank - 1}};
    const esp_tensor_id_t in[] = {
        x, net_param(net, part_name(name, "gamma", text), 1, &dims[rank - 1]),
        net_param(net, part_name(name, "beta", text), 1, &dims[rank - 1])};
    return net_op(net, name, ESP_KIND_LAYERNORM, &attr, 3, in);
}

typedef struct bn {
    esp_tensor_id_t gamma, beta, y, mean, variance;
} bn_t;

static void normalise(net_t *net, const char *name, esp_tensor_id_t x, bn_t *bn)
{
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    shape(net, x, &rank, dims);
    esp_attr_t attr = {.norm = {.epsilon = 1e-3, .count = dims[0]}};
    for (int32_t i = 2; i < rank; i++)
        attr.norm.count *= dims[i];
    esp_tensor_id_t in[5] = {x, 0, 0, bn->gamma, bn->beta}, out[3];
    net_outputs(net, name, ESP_KIND_BN_STATS, &attr, 1, &x, &in[1]);
    net_outputs(net, name, ESP_KIND_BN_NORM, &attr, 5, in, out);
    bn->y = out[0];
    bn->mean = out[1];
    bn->variance = out[2];
}

/* Slices of axis 0, each normalised on its own; the statistics are weighted by the shares. */
static void normalise_ghosts(net_t *net, const char *name, esp_tensor_id_t x, int32_t ghosts,
                             const int64_t *share, bn_t *bn)
{
    enum { MAX_GHOSTS = 16 };
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    esp_tensor_id_t y[MAX_GHOSTS], mean[MAX_GHOSTS], variance[MAX_GHOSTS];
    assert_true(ghosts <= MAX_GHOSTS);
    shape(net, x, &rank, dims);
    int64_t at = 0;
    for (int32_t i = 0; i < ghosts; i++, at += share[i - 1]) {
        esp_attr_t cut = {0};
        for (int32_t a = 0; a < rank; a++) {
            cut.slice.step[a] = 1;
            cut.slice.count[a] = dims[a];
        }
        cut.slice.start[0] = at;
        cut.slice.count[0] = share[i];
        bn_t ghost = *bn;
        normalise(net, name, net_op(net, "ghost", ESP_KIND_SLICE, &cut, 1, &x), &ghost);
        y[i] = ghost.y;
        mean[i] = affine(net, ghost.mean, (double)share[i] / (double)dims[0]);
        variance[i] = affine(net, ghost.variance, (double)share[i] / (double)dims[0]);
    }
    assert_int_equal(at, dims[0]);
    const esp_attr_t axis = {.axis = {.axis = 0}}, sum = {.eltwise = {.code = ESP_ELT_ADD}};
    bn->y = net_op(net, "join", ESP_KIND_CONCAT, &axis, ghosts, y);
    bn->mean = net_op(net, "mean", ESP_KIND_ELTWISE, &sum, ghosts, mean);
    bn->variance = net_op(net, "variance", ESP_KIND_ELTWISE, &sum, ghosts, variance);
}

static void running(net_t *net, const char *name, int64_t channels, esp_tensor_id_t value)
{
    const esp_tensor_id_t statistic =
        source(net, name, ESP_ROLE_STATISTIC, ESP_DTYPE_F32, 1, &channels);
    test_assert_ok(esp_builder_statistic(net->builder, statistic, value, 0.1, &net->diag),
                   &net->diag);
}

esp_tensor_id_t net_batchnorm(net_t *net, const char *name, esp_tensor_id_t x, int32_t ghosts,
                              const int64_t *share)
{
    char text[64];
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    shape(net, x, &rank, dims);
    bn_t bn = {.gamma = net_param(net, part_name(name, "gamma", text), 1, &dims[1]),
               .beta = net_param(net, part_name(name, "beta", text), 1, &dims[1])};
    if (ghosts > 0)
        normalise_ghosts(net, name, x, ghosts, share, &bn);
    else
        normalise(net, name, x, &bn);
    running(net, part_name(name, "running_mean", text), dims[1], bn.mean);
    running(net, part_name(name, "running_variance", text), dims[1], bn.variance);
    return bn.y;
}

esp_tensor_id_t net_dense(net_t *net, const char *name, esp_tensor_id_t x, int64_t out)
{
    static const char *const labels[] = {"", "k,kn->n", "mk,kn->mn", "mlk,kn->mln"};
    char text[64];
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    shape(net, x, &rank, dims);
    const esp_tensor_id_t w =
        net_param(net, part_name(name, "w", text), 2, NET_DIMS(dims[rank - 1], out));
    const esp_tensor_id_t b = net_param(net, part_name(name, "b", text), 1, &out);
    return net_binary(net, ESP_ELT_ADD, net_einsum(net, name, labels[rank], x, w), b);
}

esp_graph_t *net_train(net_t *net, esp_tensor_id_t output, const esp_training_opts_t *opts)
{
    esp_graph_t *model, *training;
    test_assert_ok(esp_builder_output(net->builder, output), &net->diag);
    test_assert_ok(esp_builder_freeze(net->builder, &model, &net->diag), &net->diag);
    test_assert_ok(esp_training_graph(model, opts, NULL, &training, &net->diag), &net->diag);
    esp_graph_destroy(model);
    esp_builder_destroy(net->builder);
    return training;
}

esp_training_opts_t train_with(esp_loss_t loss, esp_optimizer_t optimizer)
{
    esp_training_opts_t opts = esp_training_opts_default();
    opts.loss = loss;
    opts.optimizer = optimizer;
    opts.rate = 0.05;
    opts.epsilon = 1e-3;
    opts.decay = 0.01;
    return opts;
}

/* ---- models ------------------------------------------------------------------------------ */

esp_graph_t *model_mlp(int64_t batch, double dropout, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "mlp");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 6), 0);
    x = net_unary(&net, ESP_ELT_RELU, net_dense(&net, "one", x, 7));
    x = net_dropout(&net, x, dropout, 3);
    x = net_unary(&net, ESP_ELT_TANH, net_dense(&net, "two", x, 4));
    return net_train(&net, net_dense(&net, "three", x, 5), opts);
}

static esp_tensor_id_t embed(net_t *net, esp_tensor_id_t table, esp_tensor_id_t ids)
{
    const esp_attr_t attr = {.axis = {.axis = 0}};
    return net_op(net, "embed", ESP_KIND_GATHER, &attr, 2, (esp_tensor_id_t[]){table, ids});
}

esp_graph_t *model_tied(int64_t batch, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "tied");
    const esp_tensor_id_t ids = net_input(&net, "ids", ESP_DTYPE_I64, 2, NET_DIMS(batch, 3), 0);
    const esp_tensor_id_t table = net_param(&net, "table", 2, NET_DIMS(11, 4));
    esp_tensor_id_t x = embed(&net, table, ids);
    x = net_unary(&net, ESP_ELT_GELU, net_dense(&net, "middle", x, 4));
    return net_train(&net, net_einsum(&net, "logits", "bsh,vh->bsv", x, table), opts);
}

esp_graph_t *model_branches(int64_t batch, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "branches");
    const esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 5), 0);
    const esp_tensor_id_t w = net_param(&net, "w", 2, NET_DIMS(5, 5));
    esp_tensor_id_t left = net_einsum(&net, "left/product", "bi,ij->bj", x, w);
    esp_tensor_id_t right = net_einsum(&net, "right/product", "bi,ji->bj", x, w);
    left = net_dense(&net, "left/dense", net_unary(&net, ESP_ELT_TANH, left), 4);
    right = net_dense(&net, "right/dense", net_unary(&net, ESP_ELT_SIGMOID, right), 4);
    return net_train(&net, net_binary(&net, ESP_ELT_ADD, left, right), opts);
}

esp_graph_t *model_sum_of_weights(int64_t batch, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "sum_of_weights");
    const esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 4), 0);
    const esp_tensor_id_t a = net_param(&net, "a", 2, NET_DIMS(4, 4));
    const esp_tensor_id_t b = net_param(&net, "b", 2, NET_DIMS(4, 4));
    const esp_tensor_id_t sum = net_binary(&net, ESP_ELT_ADD, a, b);
    esp_tensor_id_t y = net_unary(&net, ESP_ELT_TANH, net_einsum(&net, "one", "bi,ij->bj", x, sum));
    y = net_unary(&net, ESP_ELT_SIGMOID, net_einsum(&net, "two", "bi,ij->bj", y, a));
    return net_train(&net, y, opts);
}

esp_graph_t *model_sequence(int64_t batch, bool sequence_first, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "sequence");
    const int64_t first = sequence_first ? 3 : batch, second = sequence_first ? batch : 3;
    esp_tensor_id_t x =
        net_input(&net, "x", ESP_DTYPE_F32, 3, NET_DIMS(first, second, 4), sequence_first ? 1 : 0);
    x = net_reshape(&net, x, 2, NET_DIMS(first * second, 4));
    x = net_unary(&net, ESP_ELT_SILU, net_dense(&net, "merged", x, 6));
    x = net_layernorm(&net, "norm", x);
    x = net_reshape(&net, x, 3, NET_DIMS(first, second, 6));
    x = affine(&net, net_reduce(&net, ESP_REDUCE_SUM, x, sequence_first ? 1 : 2), 1.0 / 3);
    return net_train(&net, net_dense(&net, "head", x, 3), opts);
}

static esp_tensor_id_t conv(net_t *net, const char *name, esp_tensor_id_t x, int64_t in,
                            int64_t out)
{
    const esp_attr_t attr = {.conv = {.window = {.rank = 2,
                                                 .kernel = {3, 3},
                                                 .stride = {1, 1},
                                                 .dilation = {1, 1},
                                                 .pad_lo = {1, 1},
                                                 .pad_hi = {1, 1}},
                                      .groups = 1}};
    char text[64];
    const esp_tensor_id_t w =
        net_param(net, part_name(name, "w", text), 4, NET_DIMS(out, in, 3, 3));
    return net_op(net, name, ESP_KIND_CONV, &attr, 2, (esp_tensor_id_t[]){x, w});
}

static esp_tensor_id_t pool(net_t *net, const char *name, esp_tensor_id_t x, int32_t is_max)
{
    const esp_attr_t attr = {
        .pool = {.window = {.rank = 2, .kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}},
                 .is_max = is_max}};
    return net_op(net, name, ESP_KIND_POOL, &attr, 1, &x);
}

esp_graph_t *model_convnet(int64_t batch, int32_t ghosts, const int64_t *share,
                           const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "convnet");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 4, NET_DIMS(batch, 2, 4, 4), 0);
    x = net_batchnorm(&net, "bn1", conv(&net, "conv1", x, 2, 3), ghosts, share);
    x = pool(&net, "pool1", net_unary(&net, ESP_ELT_RELU, x), 1);
    esp_tensor_id_t y = net_batchnorm(&net, "bn2", conv(&net, "conv2", x, 3, 3), ghosts, share);
    x = net_unary(&net, ESP_ELT_RELU, net_binary(&net, ESP_ELT_ADD, x, y));
    x = net_reshape(&net, pool(&net, "pool2", x, 0), 2, NET_DIMS(batch, 3));
    return net_train(&net, net_dense(&net, "head", x, 4), opts);
}

/* Multi-head attention over x[b, s, h] with two heads of h / 2. */
static esp_tensor_id_t attention(net_t *net, const char *name, esp_tensor_id_t x, int64_t b,
                                 int64_t s, int64_t h)
{
    char text[64];
    const esp_attr_t softmax = {.axis = {.axis = 3}};
    esp_tensor_id_t part[3];
    for (int32_t i = 0; i < 3; i++) {
        static const char *const names[] = {"q", "k", "v"};
        part[i] = net_dense(net, part_name(name, names[i], text), x, h);
        part[i] = net_reshape(net, part[i], 4, NET_DIMS(b, s, 2, h / 2));
        part[i] = net_transpose(net, part[i], 4, NET_DIMS(0, 2, 1, 3));
    }
    esp_tensor_id_t scores =
        net_einsum(net, part_name(name, "scores", text), "bnqd,bnkd->bnqk", part[0], part[1]);
    scores = net_op(net, "softmax", ESP_KIND_SOFTMAX, &softmax, 1, &scores);
    x = net_einsum(net, part_name(name, "mix", text), "bnqk,bnkd->bnqd", scores, part[2]);
    x = net_reshape(net, net_transpose(net, x, 4, NET_DIMS(0, 2, 1, 3)), 3, NET_DIMS(b, s, h));
    return net_dense(net, part_name(name, "out", text), x, h);
}

esp_graph_t *model_transformer(int64_t batch, int32_t layers, double dropout,
                               const esp_training_opts_t *opts)
{
    enum { S = 3, H = 4, V = 9 };
    net_t net;
    net_init(&net, "transformer");
    const esp_tensor_id_t ids = net_input(&net, "ids", ESP_DTYPE_I64, 2, NET_DIMS(batch, S), 0);
    const esp_tensor_id_t table = net_param(&net, "table", 2, NET_DIMS(V, H));
    const esp_tensor_id_t position = net_param(&net, "position", 2, NET_DIMS(S, H));
    esp_tensor_id_t x = net_binary(&net, ESP_ELT_ADD, embed(&net, table, ids), position);
    for (int32_t i = 0; i < layers; i++) {
        char name[32], text[64];
        (void)snprintf(name, sizeof name, "block%d", i);
        esp_tensor_id_t y = net_layernorm(&net, part_name(name, "norm1", text), x);
        y = attention(&net, name, y, batch, S, H);
        x = net_binary(&net, ESP_ELT_ADD, x, net_dropout(&net, y, dropout, 2 * i));
        y = net_layernorm(&net, part_name(name, "norm2", text), x);
        y = net_unary(&net, ESP_ELT_GELU, net_dense(&net, part_name(name, "up", text), y, 2 * H));
        y = net_dense(&net, part_name(name, "down", text), y, H);
        x = net_binary(&net, ESP_ELT_ADD, x, net_dropout(&net, y, dropout, 2 * i + 1));
    }
    x = net_layernorm(&net, "norm", x);
    return net_train(&net, net_einsum(&net, "logits", "bsh,vh->bsv", x, table), opts);
}

esp_graph_t *model_penalty(int64_t batch, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "penalty");
    const esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 4), 0);
    const esp_tensor_id_t w = net_param(&net, "w", 2, NET_DIMS(4, 3));
    esp_tensor_id_t y = net_unary(&net, ESP_ELT_TANH, net_einsum(&net, "y", "bi,ij->bj", x, w));
    y = affine(&net, net_reduce(&net, ESP_REDUCE_SUMSQ, y, 3), 1.0 / (double)batch);
    const esp_tensor_id_t norm = affine(&net, net_reduce(&net, ESP_REDUCE_SUMSQ, w, 3), 0.1);
    return net_train(&net, net_binary(&net, ESP_ELT_ADD, y, norm), opts);
}

esp_graph_t *model_per_sample(int64_t batch, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "per_sample");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 4), 0);
    const esp_tensor_id_t p = net_param(&net, "p", 2, NET_DIMS(batch, 1));
    const esp_tensor_id_t c = net_param(&net, "c", 2, NET_DIMS(batch, batch));
    x = net_dense(&net, "dense", net_binary(&net, ESP_ELT_MUL, x, p), batch);
    const esp_tensor_id_t turned = net_transpose(&net, x, 2, NET_DIMS(1, 0));
    const esp_tensor_id_t rows = net_unary(&net, ESP_ELT_TANH, net_binary(&net, ESP_ELT_MUL, x, c));
    const esp_tensor_id_t columns =
        net_unary(&net, ESP_ELT_SIGMOID, net_binary(&net, ESP_ELT_ADD, turned, c));
    return net_train(&net,
                     net_binary(&net, ESP_ELT_ADD, net_reduce(&net, ESP_REDUCE_SUM, rows, 2),
                                net_reduce(&net, ESP_REDUCE_SUM, columns, 1)),
                     opts);
}

esp_graph_t *model_offset(int64_t batch, const esp_training_opts_t *opts)
{
    net_t net;
    net_init(&net, "offset");
    const esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 4), 0);
    const esp_tensor_id_t y = net_unary(&net, ESP_ELT_TANH, net_dense(&net, "dense", x, 3));
    const esp_tensor_id_t loss =
        affine(&net, net_reduce(&net, ESP_REDUCE_SUMSQ, y, 3), 1.0 / (double)batch);
    return net_train(
        &net, net_binary(&net, ESP_ELT_ADD, loss, net_reduce(&net, ESP_REDUCE_MAX, x, 3)), opts);
}

/* ---- random models ----------------------------------------------------------------------- */

typedef struct pool_of {
    esp_tensor_id_t tensor[32]; /* all of shape [batch, 4] */
    int32_t n;
} pool_of_t;

static esp_tensor_id_t pick(const pool_of_t *pool, esp_i_rng_t *rng)
{
    /* recent ones twice as often */
    const int64_t at = esp_i_rng_below(rng, 2 * pool->n);
    return pool->tensor[at < pool->n ? at : pool->n - 1 - (at - pool->n) / 2];
}

static esp_tensor_id_t random_layer(net_t *net, const pool_of_t *pool, esp_i_rng_t *rng,
                                    esp_tensor_id_t shared, int32_t i)
{
    static const esp_eltwise_t unary[] = {ESP_ELT_TANH, ESP_ELT_SIGMOID, ESP_ELT_GELU,
                                          ESP_ELT_SILU};
    const esp_tensor_id_t x = pick(pool, rng), y = pick(pool, rng);
    char name[32];
    (void)snprintf(name, sizeof name, "layer%d", i);
    switch (esp_i_rng_below(rng, 8)) {
    case 0:
    case 1:
        return net_dense(net, name, x, 4);
    case 2:
        return net_einsum(net, name, "bi,ij->bj", x, shared);
    case 3:
        return net_unary(net, unary[esp_i_rng_below(rng, 4)], x);
    case 4:
        return net_binary(net, ESP_ELT_ADD, x, y);
    case 5:
        return net_binary(net, ESP_ELT_MUL, net_unary(net, ESP_ELT_TANH, x), y);
    case 6:
        return net_layernorm(net, name, x);
    default:
        return net_dropout(net, x, 0.25, i);
    }
}

esp_graph_t *model_random(uint64_t seed, int64_t batch, const esp_training_opts_t *opts)
{
    net_t net;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, seed);
    net_init(&net, "random");
    pool_of_t pool = {.n = 1};
    pool.tensor[0] = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 4), 0);
    esp_tensor_id_t shared = net_param(&net, "shared", 2, NET_DIMS(4, 4));
    if (esp_i_rng_below(&rng, 3) == 0)
        shared = net_binary(&net, ESP_ELT_ADD, shared, net_param(&net, "other", 2, NET_DIMS(4, 4)));
    const int32_t layers = 3 + (int32_t)esp_i_rng_below(&rng, 8);
    for (int32_t i = 0; i < layers; i++)
        pool.tensor[pool.n++] = random_layer(&net, &pool, &rng, shared, i);
    esp_tensor_id_t y = net_einsum(&net, "last", "bi,ij->bj", pool.tensor[pool.n - 1], shared);
    return net_train(&net, net_binary(&net, ESP_ELT_ADD, y, pool.tensor[pool.n - 1]), opts);
}
