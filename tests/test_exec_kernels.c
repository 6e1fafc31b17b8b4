/*
 * The kernels of the CPU backend that are bound by memory, against the reference kernels in double.
 * Errors are relative to the norm of an output: 1e-5; integers and booleans are equal. And what all
 * backends share: dtypes, sums, copies, random bits; the reference backend in float32.
 */
#include "fast_harness.h"
#include "interp.h"
#include "support.h"

#include "exec/values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-5

#define IN(r, ...)                                                                                 \
    {                                                                                              \
        .rank = r, .dims = { __VA_ARGS__ }                                                         \
    }

/* Kinds with tests of their own: test_exec_fast.c; RESHAPE is no task. */
static bool is_here(esp_op_kind_t kind)
{
    switch (kind) {
    case ESP_KIND_ELTWISE:
    case ESP_KIND_REDUCE:
    case ESP_KIND_TRANSPOSE:
    case ESP_KIND_SLICE:
    case ESP_KIND_PAD:
    case ESP_KIND_CONCAT:
    case ESP_KIND_EXPAND:
    case ESP_KIND_GATHER:
    case ESP_KIND_SCATTER_ADD:
    case ESP_KIND_CAST:
    case ESP_KIND_FILL:
    case ESP_KIND_RANGE:
    case ESP_KIND_RANDOM:
    case ESP_KIND_DROPOUT:
    case ESP_KIND_BN_STATS:
    case ESP_KIND_BN_NORM:
    case ESP_KIND_BN_GRAD_STATS:
    case ESP_KIND_BN_GRAD:
    case ESP_KIND_LAYERNORM:
    case ESP_KIND_LAYERNORM_GRAD:
    case ESP_KIND_SOFTMAX:
    case ESP_KIND_SOFTMAX_GRAD:
    case ESP_KIND_XENT:
    case ESP_KIND_XENT_GRAD:
    case ESP_KIND_UPDATE:
        return true;
    case ESP_KIND_CONTRACT:
    case ESP_KIND_CONV:
    case ESP_KIND_CONV_DX:
    case ESP_KIND_CONV_DW:
    case ESP_KIND_POOL:
    case ESP_KIND_POOL_GRAD:
    case ESP_KIND_RESHAPE:
    case ESP_KIND_ATTENTION:
    case ESP_KIND_ATTENTION_GRAD:
    case ESP_KIND_LSTM:
    case ESP_KIND_LSTM_GRAD:
    case ESP_KIND_GRU:
    case ESP_KIND_GRU_GRAD:
    case ESP_KIND_RNN:
    case ESP_KIND_RNN_GRAD:
    case ESP_KIND_COUNT:
        break;
    }
    return false;
}

static void check(const kind_example_t *example)
{
    fast_check(example, esp_i_cpu_prepare(example->kind), FAST_SCRATCH_NONE, TOLERANCE);
}

/* ---- the registry's examples ----------------------------------------------------------------- */

static void test_examples(void **state)
{
    (void)state;
    const kind_examples_t lists[] = {kind_examples_a(), kind_examples_b(), kind_examples_c()};
    for (int32_t l = 0; l < 3; l++) {
        for (int32_t i = 0; i < lists[l].count; i++) {
            const kind_example_t *example = &lists[l].data[i];
            if (!is_here(example->kind))
                continue;
            check(example);
            fast_check_split(example, esp_i_cpu_prepare(example->kind), FAST_SCRATCH_NONE,
                             TOLERANCE);
        }
    }
}

/* ---- element-wise codes ------------------------------------------------------------------------
 */

static int32_t arity_of(esp_eltwise_t code)
{
    static const int32_t arity[ESP_ELT_COUNT] = {
#define ESP_ELT(name, text, n, flop) [ESP_ELT_##name] = n,
#include "espalier/eltwise.def"
#undef ESP_ELT
    };
    return arity[code] == 0 ? 2 : arity[code];
}

static bool of_bool(esp_eltwise_t code)
{
    return code == ESP_ELT_AND || code == ESP_ELT_OR || code == ESP_ELT_XOR || code == ESP_ELT_NOT;
}

static bool of_positive(esp_eltwise_t code)
{
    return code == ESP_ELT_LOG || code == ESP_ELT_SQRT || code == ESP_ELT_RSQRT ||
           code == ESP_ELT_POW || code == ESP_ELT_POWC;
}

/* Every code with numbers from [lo, hi), and shapes that broadcast in every way. */
static void check_code(esp_eltwise_t code, double lo, double hi)
{
    static const kind_input_t shapes[][3] = {
        {IN(2, 3, 701), IN(2, 3, 701), IN(2, 3, 701)}, {IN(2, 5, 130), IN(1, 130), IN(2, 5, 1)},
        {IN(3, 7, 3, 49), IN(2, 3, 1), IN(1, 49)},     {IN(2, 2, 1300), IN(2, 2, 1), IN(0, 0)},
        {IN(0, 0), IN(2, 9, 1), IN(2, 1, 700)},        {IN(3, 5, 1, 1), IN(3, 1, 6, 1), IN(1, 7)},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        kind_example_t example = {.name = "element-wise", .kind = ESP_KIND_ELTWISE};
        char name[64];
        (void)snprintf(name, sizeof name, "code %d on [%g, %g), shapes %d", (int)code, lo, hi,
                       (int)s);
        example.name = name;
        example.attr.eltwise.code = code;
        example.attr.eltwise.alpha = code == ESP_ELT_CLIP || code == ESP_ELT_CLIP_GRAD ? -0.4 : 0.3;
        example.attr.eltwise.beta = 0.6;
        example.n_in = arity_of(code);
        for (int32_t i = 0; i < example.n_in; i++) {
            example.in[i] = shapes[s][i];
            example.in[i].lo = of_positive(code) && lo < 0 ? 0.01 : lo;
            example.in[i].hi = hi;
            if (of_bool(code) || (code == ESP_ELT_WHERE && i == 0))
                example.in[i] = (kind_input_t){
                    .dtype = ESP_DTYPE_BOOL,
                    .rank = shapes[s][i].rank,
                    .dims = {shapes[s][i].dims[0], shapes[s][i].dims[1], shapes[s][i].dims[2]}};
        }
        check(&example);
    }
}

static void test_codes(void **state)
{
    (void)state;
    for (int32_t code = 0; code < ESP_ELT_COUNT; code++) {
        check_code((esp_eltwise_t)code, -1, 1);
        check_code((esp_eltwise_t)code, -9, 9);
        if (code != ESP_ELT_SIN && code != ESP_ELT_COS && code != ESP_ELT_EXP &&
            code != ESP_ELT_POW)
            check_code((esp_eltwise_t)code, -60, 60);
    }
}

static void test_powers(void **state)
{
    (void)state;
    const double alphas[] = {2, 3, 0.5, -0.5, -1, 1, 0, 1.7, -2};
    for (int32_t i = 0; i < 9; i++) {
        kind_example_t example = {.name = "power",
                                  .kind = ESP_KIND_ELTWISE,
                                  .attr.eltwise = {.code = ESP_ELT_POWC, .alpha = alphas[i]},
                                  .n_in = 1,
                                  .in = {{.rank = 1, .dims = {701}, .lo = 0.1, .hi = 3}}};
        check(&example);
    }
}

/* Infinities, NaN, zeros and large and tiny numbers come out as in the reference. */
static void test_special_numbers(void **state)
{
    (void)state;
    static const double special[12] = {(double)INFINITY,
                                       -(double)INFINITY,
                                       (double)NAN,
                                       0,
                                       -0.0,
                                       1,
                                       -1,
                                       1e15,
                                       -1e15,
                                       1e-30,
                                       -1e-30,
                                       0.5};
    double first[144], second[144];
    for (int32_t i = 0; i < 144; i++) {
        first[i] = special[i / 12];
        second[i] = special[i % 12];
    }
    for (int32_t code = 0; code < ESP_ELT_COUNT; code++) {
        /* what overflows on the way in float32 only; of 1e15; powers of -infinity */
        if (of_bool((esp_eltwise_t)code) || code == ESP_ELT_ADD || code == ESP_ELT_SUB ||
            code == ESP_ELT_SIN || code == ESP_ELT_COS || code == ESP_ELT_POWC ||
            arity_of((esp_eltwise_t)code) == 3)
            continue;
        kind_example_t example = {.name = "special numbers",
                                  .kind = ESP_KIND_ELTWISE,
                                  .attr.eltwise = {.code = (esp_eltwise_t)code, .alpha = -0.5},
                                  .n_in = arity_of((esp_eltwise_t)code)};
        char name[64];
        (void)snprintf(name, sizeof name, "code %d, special numbers", (int)code);
        example.name = name;
        example.in[0] = (kind_input_t){.rank = 1, .dims = {144}, .values = first};
        example.in[1] = (kind_input_t){.rank = 1, .dims = {144}, .values = second};
        check(&example);
    }
}

static void test_integers(void **state)
{
    (void)state;
    const esp_dtype_t dtypes[] = {ESP_DTYPE_I8, ESP_DTYPE_U8, ESP_DTYPE_I16, ESP_DTYPE_I32,
                                  ESP_DTYPE_I64};
    const esp_eltwise_t codes[] = {ESP_ELT_ADD, ESP_ELT_SUB,   ESP_ELT_MUL,  ESP_ELT_DIV_NO_NAN,
                                   ESP_ELT_MAX, ESP_ELT_EQUAL, ESP_ELT_LESS, ESP_ELT_MOD};
    for (int32_t d = 0; d < 5; d++) {
        for (int32_t c = 0; c < 8; c++) {
            kind_example_t example = {.name = "integers",
                                      .kind = ESP_KIND_ELTWISE,
                                      .attr.eltwise = {.code = codes[c], .alpha = 1},
                                      .n_in = 2,
                                      .in = {IN(2, 40, 30), IN(1, 30)}};
            for (int32_t i = 0; i < 2; i++) {
                example.in[i].dtype = dtypes[d];
                example.in[i].lo = codes[c] == ESP_ELT_SUB ? 0 : 1;
                example.in[i].hi = codes[c] == ESP_ELT_SUB && dtypes[d] == ESP_DTYPE_U8 ? 1 : 11;
            }
            check(&example);
        }
    }
}

static void test_many_addends(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= KIND_MAX_IN; n++) {
        for (int32_t integers = 0; integers < 2; integers++) {
            kind_example_t example = {.name = "sum of many",
                                      .kind = ESP_KIND_ELTWISE,
                                      .attr.eltwise = {.code = ESP_ELT_ADD},
                                      .n_in = n};
            for (int32_t i = 0; i < n; i++) {
                example.in[i] = i % 3 == 1 ? (kind_input_t)IN(1, 33) : (kind_input_t)IN(2, 21, 33);
                example.in[i].dtype = integers ? ESP_DTYPE_I32 : ESP_DTYPE_F32;
            }
            check(&example);
        }
    }
}

/* ---- larger shapes: tiles, rows and columns that do not fit evenly -----------------------------
 */

static void test_views(void **state)
{
    (void)state;
    static const kind_example_t examples[] = {
        {.name = "transposed matrix",
         .kind = ESP_KIND_TRANSPOSE,
         .attr.transpose.perm = {1, 0},
         .n_in = 1,
         .in = {IN(2, 83, 47)}},
        {.name = "heads outside",
         .kind = ESP_KIND_TRANSPOSE,
         .attr.transpose.perm = {0, 2, 1, 3},
         .n_in = 1,
         .in = {IN(4, 2, 17, 3, 20)}},
        {.name = "channels last",
         .kind = ESP_KIND_TRANSPOSE,
         .attr.transpose.perm = {0, 2, 3, 1},
         .n_in = 1,
         .in = {IN(4, 2, 19, 5, 7)}},
        {.name = "turned around",
         .kind = ESP_KIND_TRANSPOSE,
         .attr.transpose.perm = {3, 2, 1, 0},
         .n_in = 1,
         .in = {IN(4, 5, 18, 3, 33)}},
        {.name = "backwards",
         .kind = ESP_KIND_SLICE,
         .attr.slice = {.start = {9, 1}, .step = {-2, 3}, .count = {4, 33}},
         .n_in = 1,
         .in = {IN(2, 10, 100)}},
        {.name = "padded",
         .kind = ESP_KIND_PAD,
         .attr.pad = {.lo = {1, 2}, .hi = {3, 1}, .between = {2, 1}, .value = 0.5},
         .n_in = 1,
         .in = {IN(2, 7, 31)}},
        {.name = "stretched",
         .kind = ESP_KIND_EXPAND,
         .attr.shape = {.rank = 3, .dims = {4, 9, 300}},
         .n_in = 1,
         .in = {IN(2, 9, 1)}},
    };
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        kind_example_t example = examples[i];
        const esp_dtype_t dtypes[] = {ESP_DTYPE_F32, ESP_DTYPE_BOOL, ESP_DTYPE_I16, ESP_DTYPE_I64};
        for (int32_t d = 0; d < 4; d++) {
            example.in[0].dtype = dtypes[d];
            check(&example);
        }
    }
}

static void test_reductions(void **state)
{
    (void)state;
    const struct {
        kind_input_t in;
        uint32_t axes;
    } cases[] = {{IN(2, 70, 301), 1},   {IN(2, 30, 701), 2}, {IN(3, 5, 300, 9), 5},
                 {IN(3, 6, 30, 70), 2}, {IN(1, 9000), 1},    {IN(4, 3, 4, 5, 6), 10},
                 {IN(2, 0, 5), 1},      {IN(0, 0), 0},       {IN(2, 4, 5), 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int32_t code = ESP_REDUCE_SUM; code <= ESP_REDUCE_SUMSQ; code++) {
            for (int32_t integers = 0; integers < 2; integers++) {
                kind_example_t example = {
                    .name = "reduction",
                    .kind = ESP_KIND_REDUCE,
                    .attr.reduce = {.code = (esp_reduce_t)code, .axes = cases[i].axes},
                    .n_in = 1,
                    .in = {cases[i].in}};
                example.in[0].dtype = integers ? ESP_DTYPE_I64 : ESP_DTYPE_F32;
                example.in[0].lo = code == ESP_REDUCE_PROD ? 0.99 : -0.5;
                example.in[0].hi = code == ESP_REDUCE_PROD ? 1.01 : 1;
                if (integers) {
                    example.in[0].lo = code == ESP_REDUCE_PROD ? 1 : -3;
                    example.in[0].hi = code == ESP_REDUCE_PROD ? 2 : 9;
                }
                if (cases[i].in.rank == 2 && cases[i].in.dims[0] == 0 &&
                    (code == ESP_REDUCE_MAX || code == ESP_REDUCE_MIN))
                    continue;
                check(&example);
            }
        }
    }
}

static void test_normalisations(void **state)
{
    (void)state;
    const double lo = -3, hi = 9; /* a mean that is not near 0 */
    for (int32_t rms = 0; rms < 2; rms++) {
        kind_example_t example = {.name = "layer normalisation",
                                  .kind = ESP_KIND_LAYERNORM,
                                  .attr.norm = {.epsilon = 1e-5, .axis = 1, .rms = rms},
                                  .n_in = 3,
                                  .in = {IN(2, 70, 701), IN(1, 701), IN(1, 701)}};
        example.in[0].lo = lo;
        example.in[0].hi = hi;
        check(&example);
        example.n_in = 2;
        check(&example);
        example.in[2].rank = -1;
        example.n_in = 3;
        check(&example);
        kind_example_t gradient = {
            .name = "layer normalisation's gradient",
            .kind = ESP_KIND_LAYERNORM_GRAD,
            .attr.norm = {.epsilon = 1e-5, .axis = 1, .rms = rms},
            .n_in = 5,
            .in = {IN(2, 70, 701), IN(1, 701), IN(1, 70), IN(1, 70), IN(2, 70, 701)}};
        check(&gradient);
    }
    const kind_input_t shapes[] = {IN(2, 70, 300), IN(4, 3, 5, 60, 70), IN(3, 6, 259, 3),
                                   IN(4, 2, 3, 1, 1)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t c = shapes[i].dims[1];
        int64_t count = shapes[i].dims[0];
        for (int32_t a = 2; a < shapes[i].rank; a++)
            count *= shapes[i].dims[a];
        kind_input_t x = shapes[i], channel = IN(1, c), sum = IN(1, c), sumsq = IN(1, c);
        x.lo = lo;
        x.hi = hi;
        sum.lo = 2 * (double)count;
        sum.hi = 4 * (double)count;
        sumsq.lo = 20 * (double)count;
        sumsq.hi = 30 * (double)count;
        const kind_example_t examples[] = {
            {.kind = ESP_KIND_BN_STATS, .n_in = 1, .in = {x}},
            {.kind = ESP_KIND_BN_NORM, .n_in = 5, .in = {x, sum, sumsq, channel, channel}},
            {.kind = ESP_KIND_BN_GRAD_STATS, .n_in = 4, .in = {x, sum, sumsq, shapes[i]}},
            {.kind = ESP_KIND_BN_GRAD,
             .n_in = 7,
             .in = {x, sum, sumsq, channel, shapes[i], channel, channel}}};
        for (int32_t e = 0; e < 4; e++) {
            kind_example_t example = examples[e];
            example.name = "batch normalisation";
            example.attr.norm.epsilon = 1e-5;
            example.attr.norm.count = count;
            check(&example);
        }
    }
}

/* Large, tiny, equal and infinite logits. */
static void test_losses(void **state)
{
    (void)state;
    const double ranges[][2] = {{-1, 1}, {-1e4, 1e4}, {1e30, 3e30}, {-1e-30, 1e-30}, {5, 5.0001}};
    for (int32_t r = 0; r < 5; r++) {
        for (int32_t log_form = 0; log_form < 2; log_form++) {
            for (int32_t axis = 0; axis < 2; axis++) {
                kind_example_t example = {.name = "softmax",
                                          .kind = ESP_KIND_SOFTMAX,
                                          .attr.axis = {.axis = axis, .log = log_form},
                                          .n_in = 1,
                                          .in = {IN(2, 37, 613)}};
                example.in[0].lo = ranges[r][0];
                example.in[0].hi = ranges[r][1];
                check(&example);
                example.kind = ESP_KIND_SOFTMAX_GRAD;
                example.n_in = 2;
                example.in[0] = (kind_input_t){.rank = 2, .dims = {37, 613}, .lo = -3, .hi = 0};
                example.in[1] = example.in[0];
                check(&example);
            }
        }
        for (int32_t smooth = 0; smooth < 2; smooth++) {
            kind_example_t example = {
                .name = "cross-entropy",
                .kind = ESP_KIND_XENT,
                .attr.xent = {.ignore = 2, .smoothing = smooth ? 0.1 : 0},
                .n_in = 2,
                .in = {IN(2, 37, 613), {.dtype = ESP_DTYPE_I64, .rank = 1, .dims = {37}}}};
            example.in[0].lo = ranges[r][0];
            example.in[0].hi = ranges[r][1];
            example.in[1].lo = -2;
            example.in[1].hi = 620;
            check(&example);
            example.kind = ESP_KIND_XENT_GRAD;
            example.n_in = 3;
            example.in[2] = (kind_input_t)IN(1, 37);
            check(&example);
        }
    }
}

static void test_infinite_logits(void **state)
{
    (void)state;
    double x[4 * 40], label[4] = {0, 1, 2, 3};
    for (int32_t i = 0; i < 160; i++)
        x[i] = i % 40 > 20 || i >= 120 ? -(double)INFINITY : 0.25 * (i % 7);
    for (int32_t log_form = 0; log_form < 2; log_form++) {
        kind_example_t example = {.name = "hidden logits",
                                  .kind = ESP_KIND_SOFTMAX,
                                  .attr.axis = {.axis = 1, .log = log_form},
                                  .n_in = 1,
                                  .in = {{.rank = 2, .dims = {4, 40}, .values = x}}};
        check(&example);
    }
    for (int32_t i = 120; i < 160; i++)
        x[i] = 3;
    kind_example_t example = {
        .name = "hidden classes",
        .kind = ESP_KIND_XENT_GRAD,
        .attr.xent = {.ignore = INT64_MIN},
        .n_in = 3,
        .in = {{.rank = 2, .dims = {4, 40}, .values = x},
               {.dtype = ESP_DTYPE_I32, .rank = 1, .dims = {4}, .values = label},
               IN(1, 4)}};
    check(&example);
}

static void test_random(void **state)
{
    (void)state;
    kind_example_t dropout = {.name = "dropout",
                              .kind = ESP_KIND_DROPOUT,
                              .attr.dropout = {.p = 0.3, .stream = ((int64_t)5 << 32) + 3},
                              .n_in = 1,
                              .in = {IN(2, 9, 803)}};
    check(&dropout);
    dropout.attr.dropout.p = 0;
    check(&dropout);
    dropout.attr.dropout.p = 1 - 0x1p-40;
    check(&dropout);
    for (int32_t law = ESP_RANDOM_UNIFORM; law <= ESP_RANDOM_BERNOULLI; law++) {
        kind_example_t example = {.name = "random numbers",
                                  .kind = ESP_KIND_RANDOM,
                                  .attr.shape = {.rank = 1,
                                                 .dims = {3001},
                                                 .law = (esp_random_t)law,
                                                 .value = 0.25,
                                                 .step = 2,
                                                 .stream = 9}};
        check(&example);
    }
}

static void test_gathers(void **state)
{
    (void)state;
    for (int64_t after = 1; after <= 40; after += 13) {
        for (int32_t axis = 0; axis < 2; axis++) {
            const kind_input_t indices = {
                .dtype = ESP_DTYPE_I64, .rank = 2, .dims = {30, 30}, .lo = -14, .hi = 14};
            kind_example_t example = {.name = "gather",
                                      .kind = ESP_KIND_GATHER,
                                      .attr.axis = {.axis = axis, .extent = 11},
                                      .n_in = 2,
                                      .in = {IN(3, 11, 11, after), indices}};
            check(&example);
            example.kind = ESP_KIND_SCATTER_ADD;
            example.in[0] = axis == 0 ? (kind_input_t)IN(4, 30, 30, 11, after)
                                      : (kind_input_t)IN(4, 11, 30, 30, after);
            check(&example);
        }
    }
}

/* Sums over very many elements stay as exact as short ones. */
static void test_long_sums(void **state)
{
    (void)state;
    const int64_t rows = 60000;
    kind_example_t examples[] = {
        {.name = "long columns",
         .kind = ESP_KIND_REDUCE,
         .attr.reduce.axes = 1,
         .n_in = 1,
         .in = {IN(2, rows, 5)}},
        {.name = "long row",
         .kind = ESP_KIND_REDUCE,
         .attr.reduce = {.code = ESP_REDUCE_SUMSQ, .axes = 3},
         .n_in = 1,
         .in = {IN(2, rows, 5)}},
        {.name = "many rows of few",
         .kind = ESP_KIND_SCATTER_ADD,
         .attr.axis.extent = 3,
         .n_in = 2,
         .in = {IN(2, rows, 5), {.dtype = ESP_DTYPE_I32, .rank = 1, .dims = {rows}, .hi = 3}}},
        {.name = "many rows",
         .kind = ESP_KIND_LAYERNORM_GRAD,
         .attr.norm = {.epsilon = 1e-5, .axis = 1},
         .n_in = 5,
         .in = {IN(2, rows, 5), IN(1, 5), IN(1, rows), IN(1, rows), IN(2, rows, 5)}},
        {.name = "many samples",
         .kind = ESP_KIND_BN_STATS,
         .attr.norm.count = rows,
         .n_in = 1,
         .in = {IN(2, rows, 5)}},
        {.name = "long lines",
         .kind = ESP_KIND_SOFTMAX,
         .attr.axis.axis = 0,
         .n_in = 1,
         .in = {IN(2, rows, 5)}},
    };
    for (size_t e = 0; e < sizeof examples / sizeof *examples; e++) {
        for (int32_t i = 0; i < examples[e].n_in; i++)
            if (examples[e].in[i].dtype == ESP_DTYPE_F32) {
                examples[e].in[i].lo = 0.25;
                examples[e].in[i].hi = 1;
            }
        fast_check(&examples[e], esp_i_cpu_prepare(examples[e].kind), FAST_SCRATCH_NONE, 2e-6);
    }
}

static void test_casts(void **state)
{
    (void)state;
    for (int32_t from = 0; from < ESP_DTYPE_COUNT; from++) {
        for (int32_t to = 0; to < ESP_DTYPE_COUNT; to++) {
            if (from == ESP_DTYPE_F16 || from == ESP_DTYPE_BF16 || to == ESP_DTYPE_F16 ||
                to == ESP_DTYPE_BF16)
                continue;
            kind_example_t example = {
                .name = "cast",
                .kind = ESP_KIND_CAST,
                .attr.cast.dtype = (esp_dtype_t)to,
                .n_in = 1,
                .in = {{.dtype = (esp_dtype_t)from,
                        .rank = 1,
                        .dims = {1100},
                        .lo = from == ESP_DTYPE_U8 || from == ESP_DTYPE_BOOL ? 0 : -120,
                        .hi = from == ESP_DTYPE_BOOL ? 2 : 120}}};
            check(&example);
        }
    }
}

/* ---- updates: the factor of the rate, in place --------------------------------------------------
 */

static void test_updates(void **state)
{
    (void)state;
    for (int32_t rule = ESP_OPTIMIZER_SGD; rule <= ESP_OPTIMIZER_STATISTIC; rule++) {
        kind_example_t example = {
            .name = "update",
            .kind = ESP_KIND_UPDATE,
            .attr.update = {.optimizer = (esp_optimizer_t)rule,
                            .rate = 0.1,
                            .momentum = 0.9,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .epsilon = 1e-8,
                            .decay = 0.01},
            .n_in = 6,
            .in = {
                IN(1, 1301), IN(1, 1301), {.rank = -1}, {.rank = -1}, {.rank = -1}, {.rank = -1}}};
        const bool adam = rule == ESP_OPTIMIZER_ADAM || rule == ESP_OPTIMIZER_ADAMW;
        if (adam) {
            static const double step = 3;
            example.in[2] = (kind_input_t){.dtype = ESP_DTYPE_I64, .values = &step};
            example.in[4] = (kind_input_t){.rank = 1, .dims = {1301}, .lo = 0.01, .hi = 1};
        }
        if (adam || rule == ESP_OPTIMIZER_MOMENTUM)
            example.in[3] = (kind_input_t)IN(1, 1301);
        check(&example);
        if (rule == ESP_OPTIMIZER_STATISTIC)
            continue;
        example.in[5] = (kind_input_t){.lo = 0.3, .hi = 0.4};
        check(&example);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_powers),          cmocka_unit_test(test_special_numbers),
        cmocka_unit_test(test_integers),        cmocka_unit_test(test_many_addends),
        cmocka_unit_test(test_views),           cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_normalisations),  cmocka_unit_test(test_losses),
        cmocka_unit_test(test_infinite_logits), cmocka_unit_test(test_random),
        cmocka_unit_test(test_gathers),         cmocka_unit_test(test_casts),
        cmocka_unit_test(test_long_sums),       cmocka_unit_test(test_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
