/* Examples of gather, random, normalisation, loss and update kinds. */
#include "kind_harness.h"

/* Batch normalisation is differentiated as a whole: inputs x, gamma, beta; attr of bn_norm. */
static esp_status_t build_batchnorm(esp_builder_t *builder, const esp_attr_t *attr,
                                    const esp_tensor_id_t *in, esp_tensor_id_t *y_out,
                                    esp_diag_t *diag)
{
    enum { X, SUM, SUMSQ, GAMMA, BETA };
    esp_tensor_id_t stats[2], out[3];
    esp_status_t status =
        esp_builder_op(builder, ESP_KIND_BN_STATS, attr, 1, &in[X], "stats", stats, diag);
    if (status != ESP_OK)
        return status;
    const esp_tensor_id_t inputs[5] = {in[X], stats[0], stats[1], in[GAMMA], in[BETA]};
    status = esp_builder_op(builder, ESP_KIND_BN_NORM, attr, 5, inputs, "norm", out, diag);
    *y_out = out[0];
    return status;
}

static const double some_indices[6] = {0, 3, -1, 3, 7, -4}; /* of 5 rows: 7 is outside */

#define BN_X                                                                                       \
    {                                                                                              \
        .rank = 4, .dims = { 4, 3, 2, 2 }                                                          \
    }
#define BN_CHANNEL                                                                                 \
    {                                                                                              \
        .rank = 1, .dims = { 3 }                                                                   \
    }
#define BN_SUM                                                                                     \
    {                                                                                              \
        .rank = 1, .dims = {3}, .lo = -4, .hi = 4                                                  \
    }
#define BN_SUMSQ                                                                                   \
    {                                                                                              \
        .rank = 1, .dims = {3}, .lo = 10, .hi = 20                                                 \
    }
#define BN_ATTR                                                                                    \
    {                                                                                              \
        .epsilon = 1e-3, .count = 16                                                               \
    }

static const double some_labels[6] = {0, 3, -100, 4, 9, -1}; /* of 5; -100 ignored, two invalid */

#define UP_ATTR                                                                                    \
    .rate = 0.1, .momentum = 0.9, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.01
#define UP_W                                                                                       \
    {                                                                                              \
        .rank = 2, .dims = { 3, 4 }                                                                \
    }
#define UP_V                                                                                       \
    {                                                                                              \
        .rank = 2, .dims = {3, 4}, .lo = 0, .hi = 1                                                \
    }
#define UP_STEP                                                                                    \
    {                                                                                              \
        .dtype = ESP_DTYPE_I64, .rank = 0, .lo = 3, .hi = 4                                        \
    }
#define UP_SCALE                                                                                   \
    {                                                                                              \
        .rank = 0, .lo = 0.2, .hi = 0.9                                                            \
    }
#define UP_ABSENT                                                                                  \
    {                                                                                              \
        .rank = -1                                                                                 \
    }

static const kind_example_t examples[] = {
    /* ---- gather and scatter */
    {.name = "gather embedding",
     .kind = ESP_KIND_GATHER,
     .attr.axis = {.axis = 0},
     .n_in = 2,
     .in = {{.rank = 2, .dims = {5, 4}},
            {.dtype = ESP_DTYPE_I64, .rank = 2, .dims = {2, 3}, .values = some_indices}},
     .extents = {6, 4}},
    {.name = "gather inner axis",
     .kind = ESP_KIND_GATHER,
     .attr.axis = {.axis = 2},
     .n_in = 2,
     .in = {{.rank = 4, .dims = {2, 3, 5, 4}},
            {.dtype = ESP_DTYPE_I32, .rank = 1, .dims = {6}, .values = some_indices}},
     .extents = {6, 6, 4}},
    {.name = "gather one row",
     .kind = ESP_KIND_GATHER,
     .attr.axis = {.axis = 1},
     .n_in = 2,
     .in = {{.rank = 3, .dims = {4, 5, 2}}, {.dtype = ESP_DTYPE_I64, .rank = 0, .lo = 0, .hi = 5}},
     .extents = {4, 2}},
    {.name = "gather nothing",
     .kind = ESP_KIND_GATHER,
     .attr.axis = {.axis = 0},
     .n_in = 2,
     .in = {{.rank = 2, .dims = {5, 4}}, {.dtype = ESP_DTYPE_I64, .rank = 1, .dims = {0}}}},
    {.name = "scatter_add rows",
     .kind = ESP_KIND_SCATTER_ADD,
     .attr.axis = {.axis = 0, .extent = 5},
     .n_in = 2,
     .in = {{.rank = 3, .dims = {2, 3, 4}},
            {.dtype = ESP_DTYPE_I64, .rank = 2, .dims = {2, 3}, .values = some_indices}},
     .extents = {6, 4}},
    {.name = "scatter_add inner axis",
     .kind = ESP_KIND_SCATTER_ADD,
     .attr.axis = {.axis = 1, .extent = 5},
     .n_in = 2,
     .in = {{.rank = 3, .dims = {4, 6, 4}},
            {.dtype = ESP_DTYPE_I64, .rank = 1, .dims = {6}, .values = some_indices}},
     .extents = {4, 6, 4}},
    {.name = "scatter_add one row",
     .kind = ESP_KIND_SCATTER_ADD,
     .attr.axis = {.axis = 1, .extent = 3},
     .n_in = 2,
     .in = {{.rank = 2, .dims = {4, 2}}, {.dtype = ESP_DTYPE_I64, .rank = 0, .lo = 0, .hi = 3}},
     .extents = {4, 2}},
    /* ---- casts, constants, random numbers */
    {.name = "cast of floats",
     .kind = ESP_KIND_CAST,
     .attr.cast = {.dtype = ESP_DTYPE_F16},
     .n_in = 1,
     .in = {{.rank = 2, .dims = {3, 4}}},
     .extents = {12}},
    {.name = "cast to integers",
     .kind = ESP_KIND_CAST,
     .attr.cast = {.dtype = ESP_DTYPE_I8},
     .n_in = 1,
     .in = {{.rank = 1, .dims = {6}, .lo = -300, .hi = 300}},
     .extents = {6},
     .constant_in = 1},
    {.name = "cast of booleans",
     .kind = ESP_KIND_CAST,
     .attr.cast = {.dtype = ESP_DTYPE_F32},
     .n_in = 1,
     .in = {{.dtype = ESP_DTYPE_BOOL, .rank = 1, .dims = {6}}},
     .extents = {6}},
    {.name = "fill",
     .kind = ESP_KIND_FILL,
     .attr.shape = {.rank = 2, .dims = {3, 2}, .dtype = ESP_DTYPE_F32, .value = 0.5},
     .extents = {6}},
    {.name = "range along the middle",
     .kind = ESP_KIND_RANGE,
     .attr.shape =
         {.rank = 3, .dims = {2, 4, 3}, .dtype = ESP_DTYPE_I64, .value = 5, .step = -2, .axis = 1},
     .extents = {24}},
    {.name = "random uniform",
     .kind = ESP_KIND_RANDOM,
     .attr.shape = {.rank = 2,
                    .dims = {4, 3},
                    .value = -1,
                    .step = 3,
                    .law = ESP_RANDOM_UNIFORM,
                    .stream = 11},
     .extents = {12}},
    {.name = "random normal",
     .kind = ESP_KIND_RANDOM,
     .attr.shape = {.rank = 1, .dims = {12}, .step = 1, .law = ESP_RANDOM_NORMAL},
     .extents = {12}},
    {.name = "random bits",
     .kind = ESP_KIND_RANDOM,
     .attr.shape = {.rank = 1,
                    .dims = {12},
                    .dtype = ESP_DTYPE_BOOL,
                    .value = 0.3,
                    .law = ESP_RANDOM_BERNOULLI},
     .extents = {12}},
    {.name = "dropout",
     .kind = ESP_KIND_DROPOUT,
     .attr.dropout = {.p = 0.4, .stream = 5},
     .n_in = 1,
     .in = {{.rank = 3, .dims = {2, 3, 4}}},
     .extents = {24}},
    {.name = "dropout of nothing",
     .kind = ESP_KIND_DROPOUT,
     .n_in = 1,
     .in = {{.rank = 1, .dims = {6}}},
     .extents = {6}},
    /* ---- batch normalisation */
    {.name = "bn_stats",
     .kind = ESP_KIND_BN_STATS,
     .attr.norm = BN_ATTR,
     .n_in = 1,
     .in = {BN_X},
     .extents = {4, 3}},
    {.name = "bn_norm",
     .kind = ESP_KIND_BN_NORM,
     .attr.norm = BN_ATTR,
     .n_in = 5,
     .in = {BN_X, BN_SUM, BN_SUMSQ, BN_CHANNEL, BN_CHANNEL},
     .extents = {4, 3},
     .constant_in = 1u << 1 | 1u << 2,
     .build = build_batchnorm},
    {.name = "bn_norm without spatial axes",
     .kind = ESP_KIND_BN_NORM,
     .attr.norm = {.epsilon = 1e-5, .count = 6},
     .n_in = 5,
     .in = {{.rank = 2, .dims = {6, 3}}, BN_SUM, BN_SUMSQ, BN_CHANNEL, BN_CHANNEL},
     .extents = {6, 3},
     .constant_in = 1u << 1 | 1u << 2,
     .build = build_batchnorm},
    {.name = "bn_grad_stats",
     .kind = ESP_KIND_BN_GRAD_STATS,
     .attr.norm = BN_ATTR,
     .n_in = 4,
     .in = {BN_X, BN_SUM, BN_SUMSQ, BN_X},
     .extents = {4, 3}},
    {.name = "bn_grad",
     .kind = ESP_KIND_BN_GRAD,
     .attr.norm = BN_ATTR,
     .n_in = 7,
     .in = {BN_X, BN_SUM, BN_SUMSQ, BN_CHANNEL, BN_X, BN_CHANNEL, BN_CHANNEL},
     .extents = {4, 3}},
    /* ---- rows */
    {.name = "layernorm",
     .kind = ESP_KIND_LAYERNORM,
     .attr.norm = {.epsilon = 1e-3, .axis = 2},
     .n_in = 3,
     .in = {{.rank = 3, .dims = {2, 3, 5}}, {.rank = 1, .dims = {5}}, {.rank = 1, .dims = {5}}},
     .extents = {6},
     .constant_out = 6},
    {.name = "layernorm of two axes without beta",
     .kind = ESP_KIND_LAYERNORM,
     .attr.norm = {.epsilon = 1e-3, .axis = 1},
     .n_in = 3,
     .in = {{.rank = 3, .dims = {4, 3, 2}}, {.rank = 2, .dims = {3, 2}}, {.rank = -1}},
     .extents = {4},
     .constant_out = 6},
    {.name = "rms normalisation",
     .kind = ESP_KIND_LAYERNORM,
     .attr.norm = {.epsilon = 1e-3, .axis = 1, .rms = 1},
     .n_in = 2,
     .in = {{.rank = 2, .dims = {4, 5}}, {.rank = 1, .dims = {5}}},
     .extents = {4},
     .constant_out = 6},
    {.name = "layernorm_grad",
     .kind = ESP_KIND_LAYERNORM_GRAD,
     .attr.norm = {.epsilon = 1e-3, .axis = 2},
     .n_in = 5,
     .in = {{.rank = 3, .dims = {2, 3, 5}},
            {.rank = 1, .dims = {5}},
            {.rank = 2, .dims = {2, 3}},
            {.rank = 2, .dims = {2, 3}, .lo = 0.5, .hi = 2},
            {.rank = 3, .dims = {2, 3, 5}}},
     .extents = {6}},
    {.name = "softmax",
     .kind = ESP_KIND_SOFTMAX,
     .attr.axis = {.axis = 1},
     .n_in = 1,
     .in = {{.rank = 3, .dims = {4, 3, 6}, .lo = -3, .hi = 3}},
     .extents = {4, 6}},
    {.name = "log softmax of the last axis",
     .kind = ESP_KIND_SOFTMAX,
     .attr.axis = {.axis = 2, .log = 1},
     .n_in = 1,
     .in = {{.rank = 3, .dims = {2, 3, 4}}},
     .extents = {6}},
    {.name = "softmax_grad",
     .kind = ESP_KIND_SOFTMAX_GRAD,
     .attr.axis = {.axis = 0},
     .n_in = 2,
     .in = {{.rank = 2, .dims = {3, 4}}, {.rank = 2, .dims = {3, 4}}},
     .extents = {4}},
    {.name = "softmax_grad of the logarithm",
     .kind = ESP_KIND_SOFTMAX_GRAD,
     .attr.axis = {.axis = 1, .log = 1},
     .n_in = 2,
     .in = {{.rank = 2, .dims = {4, 3}}, {.rank = 2, .dims = {4, 3}}},
     .extents = {4}},
    /* ---- losses */
    {.name = "xent",
     .kind = ESP_KIND_XENT,
     .attr.xent = {.ignore = -100},
     .n_in = 2,
     .in = {{.rank = 3, .dims = {2, 3, 5}, .lo = -3, .hi = 3},
            {.dtype = ESP_DTYPE_I64, .rank = 2, .dims = {2, 3}, .values = some_labels}},
     .extents = {6}},
    {.name = "xent with smoothing",
     .kind = ESP_KIND_XENT,
     .attr.xent = {.ignore = INT64_MIN, .smoothing = 0.1},
     .n_in = 2,
     .in = {{.rank = 2, .dims = {6, 5}},
            {.dtype = ESP_DTYPE_I32, .rank = 1, .dims = {6}, .values = some_labels}},
     .extents = {6}},
    {.name = "xent_grad",
     .kind = ESP_KIND_XENT_GRAD,
     .attr.xent = {.ignore = -100, .smoothing = 0.2},
     .n_in = 3,
     .in = {{.rank = 2, .dims = {6, 5}},
            {.dtype = ESP_DTYPE_I64, .rank = 1, .dims = {6}, .values = some_labels},
            {.rank = 1, .dims = {6}}},
     .extents = {6}},
    /* ---- updates */
    {.name = "update sgd",
     .kind = ESP_KIND_UPDATE,
     .attr.update = {.optimizer = ESP_OPTIMIZER_SGD, UP_ATTR},
     .n_in = 2,
     .in = {UP_W, UP_W},
     .extents = {12}},
    {.name = "update sgd scaled",
     .kind = ESP_KIND_UPDATE,
     .attr.update = {.optimizer = ESP_OPTIMIZER_SGD, UP_ATTR},
     .n_in = 6,
     .in = {UP_W, UP_W, UP_ABSENT, UP_ABSENT, UP_ABSENT, UP_SCALE},
     .extents = {12}},
    {.name = "update momentum",
     .kind = ESP_KIND_UPDATE,
     .attr.update = {.optimizer = ESP_OPTIMIZER_MOMENTUM, UP_ATTR},
     .n_in = 4,
     .in = {UP_W, UP_W, UP_ABSENT, UP_W},
     .extents = {12}},
    {.name = "update adam",
     .kind = ESP_KIND_UPDATE,
     .attr.update = {.optimizer = ESP_OPTIMIZER_ADAM, UP_ATTR},
     .n_in = 5,
     .in = {UP_W, UP_W, UP_STEP, UP_W, UP_V},
     .extents = {12}},
    {.name = "update adamw scaled",
     .kind = ESP_KIND_UPDATE,
     .attr.update = {.optimizer = ESP_OPTIMIZER_ADAMW, UP_ATTR},
     .n_in = 6,
     .in = {UP_W, UP_W, UP_STEP, UP_W, UP_V, UP_SCALE},
     .extents = {12}},
    {.name = "update statistic",
     .kind = ESP_KIND_UPDATE,
     .attr.update = {.optimizer = ESP_OPTIMIZER_STATISTIC, .momentum = 0.1},
     .n_in = 2,
     .in = {UP_W, UP_W},
     .extents = {12}},
};

kind_examples_t kind_examples_b(void)
{
    return (kind_examples_t){examples, (int32_t)(sizeof examples / sizeof *examples)};
}
