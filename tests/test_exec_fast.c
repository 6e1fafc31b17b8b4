/*
 * The fast kernels of the CPU backend against the reference kernels, in double: contraction,
 * windows, attention, recurrent layers; without scratch, with what is planned, with plenty. Errors
 * are relative to the norm of an output: 1e-5 (sums of up to some thousand terms).
 */
#include "fast_harness.h"
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOLERANCE 1e-5

static esp_i_cpu_prepare_fn *const prepare[ESP_KIND_COUNT] = {
    [ESP_KIND_CONTRACT] = esp_i_cpu_CONTRACT,
    [ESP_KIND_CONV] = esp_i_cpu_CONV,
    [ESP_KIND_CONV_DX] = esp_i_cpu_CONV_DX,
    [ESP_KIND_CONV_DW] = esp_i_cpu_CONV_DW,
    [ESP_KIND_ATTENTION] = esp_i_cpu_ATTENTION,
    [ESP_KIND_ATTENTION_GRAD] = esp_i_cpu_ATTENTION_GRAD,
    [ESP_KIND_LSTM] = esp_i_cpu_LSTM,
    [ESP_KIND_LSTM_GRAD] = esp_i_cpu_LSTM_GRAD,
    [ESP_KIND_GRU] = esp_i_cpu_GRU,
    [ESP_KIND_GRU_GRAD] = esp_i_cpu_GRU_GRAD,
    [ESP_KIND_RNN] = esp_i_cpu_RNN,
    [ESP_KIND_RNN_GRAD] = esp_i_cpu_RNN_GRAD,
    [ESP_KIND_POOL] = esp_i_cpu_POOL,
    [ESP_KIND_POOL_GRAD] = esp_i_cpu_POOL_GRAD,
};

/* The examples of the registry, whole and split in every way. */
static void test_examples(void **state)
{
    (void)state;
    const kind_examples_t lists[] = {kind_examples_a(), kind_examples_c()};
    for (int32_t l = 0; l < 2; l++) {
        for (int32_t i = 0; i < lists[l].count; i++) {
            const kind_example_t *example = &lists[l].data[i];
            if (!prepare[example->kind])
                continue;
            for (fast_scratch_t s = FAST_SCRATCH_NONE; s <= FAST_SCRATCH_AMPLE; s++)
                fast_check(example, prepare[example->kind], s, TOLERANCE);
            fast_check_split(example, prepare[example->kind], FAST_SCRATCH_PLANNED, TOLERANCE);
        }
    }
}

/* ---- contraction ------------------------------------------------------------------------- */

/* Draws an einsum: every label in a set of operands that a contraction may have, in any order. */
static void draw_contract(esp_i_rng_t *rng, int32_t labels, int64_t most, kind_example_t *example)
{
    static const int32_t sets[7] = {5, 6, 3, 7, 1, 2, 5}; /* bits: a, b, y */
    int8_t *list[3] = {example->attr.contract.a, example->attr.contract.b,
                       example->attr.contract.y};
    int64_t extent[32];
    int32_t n[3] = {0};
    for (int32_t l = 0; l < labels; l++) {
        const int32_t set = sets[esp_i_rng_below(rng, 7)];
        extent[l] = 1 + esp_i_rng_below(rng, most);
        for (int32_t o = 0; o < 3; o++) {
            if (!(set >> o & 1))
                continue;
            const int64_t at = esp_i_rng_below(rng, n[o] + 1);
            memmove(list[o] + at + 1, list[o] + at, (size_t)(n[o]++ - at));
            list[o][at] = (int8_t)('a' + l);
        }
    }
    example->n_in = 2;
    for (int32_t o = 0; o < 2; o++) {
        example->in[o].rank = n[o];
        example->in[o].lo = -0.5; /* a sum of very many does not cancel */
        example->in[o].hi = 1;
        for (int32_t a = 0; a < n[o]; a++)
            example->in[o].dims[a] = extent[list[o][a] - 'a'];
    }
}

static void test_random_contract(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 1);
    for (int32_t round = 0; round < 400; round++) {
        kind_example_t example = {.name = "random contraction", .kind = ESP_KIND_CONTRACT};
        const int32_t labels = 1 + (int32_t)esp_i_rng_below(&rng, 6);
        draw_contract(&rng, labels, labels <= 3 ? 40 : 6, &example);
        if (example.in[0].rank > ESP_MAX_RANK - 1 || example.in[1].rank > ESP_MAX_RANK - 1)
            continue;
        fast_check(&example, esp_i_cpu_CONTRACT, FAST_SCRATCH_NONE, TOLERANCE);
        if (round % 8 == 0 && labels > 3)
            fast_check_split(&example, esp_i_cpu_CONTRACT, FAST_SCRATCH_NONE, TOLERANCE);
    }
}

/* Matrix products in every layout: one letter of each list moves to the front of it. */
static void test_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b, *y; /* "mnkstu" of extents 17, 23, 31, 1, 3, 2 */
    } sums[] = {{"mk", "kn", "mn"},     {"tmk", "tkn", "tmn"},  {"tmk", "kn", "tmn"},
                {"mtk", "tkn", "mn"},   {"tmku", "ukn", "mnt"}, {"smk", "skn", "smn"},
                {"k", "kn", "n"},       {"mk", "k", "m"},       {"m", "n", "mn"},
                {"mk", "sk", "ms"},     {"mk", "mk", "m"},      {"tmk", "n", "tn"},
                {"ktm", "unk", "nutm"}, {"mnk", "mnk", "nm"},   {"k", "k", ""}};
    static const int64_t extent[6] = {17, 23, 31, 1, 3, 2};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        const char *const text[3] = {sums[i].a, sums[i].b, sums[i].y};
        for (int32_t way = 0; way < 64; way++) {
            kind_example_t example = {.name = sums[i].a, .kind = ESP_KIND_CONTRACT, .n_in = 2};
            int8_t *const list[3] = {example.attr.contract.a, example.attr.contract.b,
                                     example.attr.contract.y};
            for (int32_t o = 0; o < 3; o++) {
                const int32_t n = (int32_t)strlen(text[o]), front = way >> 2 * o & 3;
                if (front >= n && front > 0)
                    break;
                for (int32_t a = 0; a < n; a++)
                    list[o][a] = (int8_t)text[o][a == 0 ? front : a <= front ? a - 1 : a];
                if (o < 2)
                    example.in[o].rank = n;
                for (int32_t a = 0; a < n && o < 2; a++)
                    example.in[o].dims[a] = extent[strchr("mnkstu", list[o][a]) - "mnkstu"];
                if (o == 2)
                    fast_check(&example, esp_i_cpu_CONTRACT, FAST_SCRATCH_NONE, TOLERANCE);
            }
        }
    }
}

/* More rows, columns and sums than a tile has, with neighbours in memory nowhere in common. */
static void test_tiles(void **state)
{
    (void)state;
    const kind_example_t example = {
        .name = "tiles",
        .kind = ESP_KIND_CONTRACT,
        .attr.contract = {.a = "mxk", .b = "nky", .y = "ynxm"},
        .n_in = 2,
        .in = {{.rank = 3, .dims = {20, 9, 300}}, {.rank = 3, .dims = {30, 300, 11}}}};
    fast_check(&example, esp_i_cpu_CONTRACT, FAST_SCRATCH_NONE, TOLERANCE);
}

/* ---- windows ----------------------------------------------------------------------------- */

/* A convolution of n images, g groups of c and k channels, `rank` spatial dimensions. */
typedef struct conv {
    int32_t rank;
    int64_t n, g, c, k;
    int64_t large[ESP_MAX_SPATIAL];
    esp_window_t window;
} conv_t;

/* The three passes, with as much scratch as each of the three ways gives. */
static void check_conv(const conv_t *conv)
{
    const esp_window_t *window = &conv->window;
    kind_example_t example = {.name = "conv", .n_in = 2};
    example.attr.conv.window = *window;
    example.attr.conv.groups = conv->g;
    kind_input_t x = {.rank = conv->rank + 2, .dims = {conv->n, conv->g * conv->c}},
                 w = {.rank = conv->rank + 2, .dims = {conv->g * conv->k, conv->c}},
                 y = {.rank = conv->rank + 2, .dims = {conv->n, conv->g * conv->k}};
    for (int32_t d = 0; d < conv->rank; d++) {
        const int64_t padded = conv->large[d] + window->pad_lo[d] + window->pad_hi[d],
                      reach = (window->kernel[d] - 1) * window->dilation[d] + 1;
        if (padded < reach)
            return;
        x.dims[d + 2] = example.attr.conv.target[d] = conv->large[d];
        w.dims[d + 2] = window->kernel[d];
        y.dims[d + 2] = (padded - reach) / window->stride[d] + 1;
    }
    const kind_input_t in[3][2] = {{x, w}, {y, w}, {x, y}};
    static const esp_op_kind_t kinds[3] = {ESP_KIND_CONV, ESP_KIND_CONV_DX, ESP_KIND_CONV_DW};
    static const char *const names[3] = {"conv", "conv_dx", "conv_dw"};
    for (int32_t i = 0; i < 3; i++) {
        example.name = names[i];
        example.kind = kinds[i];
        memcpy(example.in, in[i], sizeof in[i]);
        if (kinds[i] != ESP_KIND_CONV_DX)
            memset(example.attr.conv.target, 0, sizeof example.attr.conv.target);
        else
            for (int32_t d = 0; d < conv->rank; d++)
                example.attr.conv.target[d] = conv->large[d];
        for (fast_scratch_t s = FAST_SCRATCH_NONE; s <= FAST_SCRATCH_AMPLE; s++)
            fast_check(&example, prepare[kinds[i]], s, TOLERANCE);
    }
}

static conv_t square(int64_t n, int64_t c, int64_t k, int64_t side, int64_t kernel, int64_t stride,
                     int64_t pad)
{
    conv_t conv = {.rank = 2, .n = n, .g = 1, .c = c, .k = k, .large = {side, side}};
    conv.window.rank = 2;
    for (int32_t d = 0; d < 2; d++) {
        conv.window.kernel[d] = kernel;
        conv.window.stride[d] = stride;
        conv.window.dilation[d] = 1;
        conv.window.pad_lo[d] = conv.window.pad_hi[d] = pad;
    }
    return conv;
}

static void test_usual_convs(void **state)
{
    (void)state;
    const conv_t convs[] = {
        square(2, 3, 16, 20, 7, 2, 3), square(1, 16, 24, 9, 3, 1, 1), square(3, 20, 17, 8, 1, 1, 0),
        square(2, 16, 16, 9, 1, 2, 0), square(6, 32, 16, 7, 3, 2, 1), square(1, 5, 7, 11, 5, 1, 2),
        square(4, 17, 33, 1, 1, 1, 0), square(5, 3, 8, 4, 3, 1, 1),
    };
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
        check_conv(&convs[i]);
    conv_t depthwise = square(2, 1, 1, 9, 3, 1, 1), grouped = square(2, 8, 16, 6, 3, 1, 1);
    depthwise.g = 12;
    grouped.g = 3;
    check_conv(&depthwise);
    check_conv(&grouped);
}

static void test_random_convs(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 2);
    for (int32_t round = 0; round < 150; round++) {
        conv_t conv = {.rank = 1 + (int32_t)esp_i_rng_below(&rng, 3),
                       .n = 1 + esp_i_rng_below(&rng, 4),
                       .g = 1 + esp_i_rng_below(&rng, 3) / 2 * esp_i_rng_below(&rng, 4),
                       .c = 1 + esp_i_rng_below(&rng, 20),
                       .k = 1 + esp_i_rng_below(&rng, 20)};
        conv.window.rank = conv.rank;
        for (int32_t d = 0; d < conv.rank; d++) {
            conv.large[d] = 1 + esp_i_rng_below(&rng, conv.rank == 3 ? 6 : 12);
            conv.window.kernel[d] = 1 + esp_i_rng_below(&rng, 4);
            conv.window.stride[d] = 1 + esp_i_rng_below(&rng, 3);
            conv.window.dilation[d] = 1 + esp_i_rng_below(&rng, 3);
            conv.window.pad_lo[d] = esp_i_rng_below(&rng, 3);
            conv.window.pad_hi[d] = esp_i_rng_below(&rng, 3);
        }
        check_conv(&conv);
    }
}

/* Both passes over one window; maxima of few different numbers, so that there are ties. */
static void check_pool(const esp_window_t *window, const int64_t *large, int64_t planes)
{
    kind_input_t x = {.rank = window->rank + 2, .dims = {1, planes}}, y = x;
    kind_example_t example = {.attr.pool.window = *window};
    bool empty = false;
    double ties[4096];
    for (int32_t i = 0; i < 4096; i++)
        ties[i] = (double)(i * i % 31 % 4 - 2);
    for (int32_t d = 0; d < window->rank; d++) {
        const int64_t padded = large[d] + window->pad_lo[d] + window->pad_hi[d],
                      reach = (window->kernel[d] - 1) * window->dilation[d];
        if (padded <= reach)
            return;
        empty = empty || window->pad_lo[d] > 0 || window->pad_hi[d] > 0;
        empty = empty &&
                (window->dilation[d] > 1 || window->pad_lo[d] > reach || window->pad_hi[d] > reach);
        x.dims[d + 2] = large[d];
        y.dims[d + 2] = (padded - reach - 1) / window->stride[d] + 1;
    }
    for (int32_t way = 0; way < 3; way++) {
        example.attr.pool.is_max = way == 0;
        example.attr.pool.count_padding = way == 1;
        if (way == 0 && empty)
            continue; /* a window may have nothing but padding: there is no maximum */
        example.kind = ESP_KIND_POOL;
        example.name = "pool";
        example.n_in = 1;
        example.in[0] = x;
        example.in[0].values = way == 0 ? ties : NULL;
        fast_check(&example, prepare[example.kind], FAST_SCRATCH_NONE, TOLERANCE);
        example.kind = ESP_KIND_POOL_GRAD;
        example.name = "pool_grad";
        example.n_in = way == 0 ? 3 : 1;
        if (way == 0)
            example.in[1] = example.in[2] = y;
        else
            example.in[0] = y;
        for (int32_t d = 0; d < window->rank; d++)
            example.attr.pool.target[d] = way == 0 ? 0 : large[d];
        fast_check(&example, prepare[example.kind], FAST_SCRATCH_NONE, TOLERANCE);
        memset(example.attr.pool.target, 0, sizeof example.attr.pool.target);
    }
}

static void test_pools(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 3);
    for (int32_t round = 0; round < 300; round++) {
        esp_window_t window = {.rank = 1 + (int32_t)esp_i_rng_below(&rng, 3)};
        int64_t large[ESP_MAX_SPATIAL];
        for (int32_t d = 0; d < window.rank; d++) {
            large[d] = 1 + esp_i_rng_below(&rng, window.rank == 1 ? 600 : 9);
            window.kernel[d] = 1 + esp_i_rng_below(&rng, 4);
            window.stride[d] = 1 + esp_i_rng_below(&rng, 3);
            window.dilation[d] = 1 + esp_i_rng_below(&rng, 3) / 2;
            window.pad_lo[d] = esp_i_rng_below(&rng, window.kernel[d]);
            window.pad_hi[d] = esp_i_rng_below(&rng, window.kernel[d]);
        }
        check_pool(&window, large, 1 + esp_i_rng_below(&rng, 3));
    }
}

/* ---- attention --------------------------------------------------------------------------- */

enum { B, H, I, J, D, E, AXES }; /* samples, heads, queries, keys, depths */

/* The labels in any order, the last `fixed` at the end; extents follow. */
static void draw_layout(esp_i_rng_t *rng, const char *labels, int32_t fixed,
                        const int64_t extent[AXES], int8_t *list_out, kind_input_t *input)
{
    const int32_t n = (int32_t)strlen(labels);
    memset(list_out, 0, ESP_MAX_RANK);
    for (int32_t i = 0; i < n; i++) {
        const int64_t at = i < n - fixed ? esp_i_rng_below(rng, i + 1) : i;
        memmove(list_out + at + 1, list_out + at, (size_t)(i - at));
        list_out[at] = (int8_t)labels[i];
    }
    *input = (kind_input_t){.rank = n};
    for (int32_t a = 0; a < n; a++)
        input->dims[a] = extent[strchr("bhijde", list_out[a]) - "bhijde"];
}

/* None, or one that lacks some axes and is 1 along others; half of them boolean. */
static kind_input_t draw_mask(esp_i_rng_t *rng, const kind_input_t *scores)
{
    kind_input_t mask = {.rank = (int32_t)esp_i_rng_below(rng, 6) - 1};
    if (esp_i_rng_below(rng, 2) == 0)
        mask.dtype = ESP_DTYPE_BOOL;
    for (int32_t a = 0; a < mask.rank; a++)
        mask.dims[a] = esp_i_rng_below(rng, 3) > 0 ? scores->dims[scores->rank - mask.rank + a] : 1;
    return mask;
}

static void check_attention(esp_i_rng_t *rng, const int64_t extent[AXES], bool plain)
{
    kind_example_t forward = {.name = "attention", .kind = ESP_KIND_ATTENTION, .n_in = 4};
    kind_input_t y, scores;
    const int32_t free = plain ? 3 : 0; /* axes at the end that stay there */
    draw_layout(rng, "bhid", free, extent, forward.attr.attention.q, &forward.in[0]);
    draw_layout(rng, "bhjd", free, extent, forward.attr.attention.k, &forward.in[1]);
    draw_layout(rng, "bhje", free, extent, forward.attr.attention.v, &forward.in[2]);
    draw_layout(rng, "bhie", free, extent, forward.attr.attention.y, &y);
    draw_layout(rng, "bhij", plain ? 3 : 1, extent, forward.attr.attention.s, &scores);
    forward.in[3] = draw_mask(rng, &scores);
    forward.attr.attention.scale = 0.5;
    forward.attr.attention.fill = -3;
    forward.attr.attention.hidden = (int32_t)esp_i_rng_below(rng, 2);
    forward.attr.attention.p = esp_i_rng_below(rng, 2) ? 0.3 : 0;
    fast_check(&forward, prepare[forward.kind], FAST_SCRATCH_NONE, TOLERANCE);
    kind_example_t grad = {
        .name = "attention_grad", .kind = ESP_KIND_ATTENTION_GRAD, .attr = forward.attr, .n_in = 8};
    grad.attr.attention.dmask =
        forward.in[3].rank >= 0 && forward.in[3].dtype == ESP_DTYPE_F32 && esp_i_rng_below(rng, 2);
    kind_input_t row = scores;
    row.rank--;
    row.lo = 0.5;
    row.hi = 2;
    const kind_input_t in[8] = {forward.in[0], forward.in[1], forward.in[2], y, row, row, y,
                                forward.in[3]};
    memcpy(grad.in, in, sizeof in);
    fast_check(&grad, prepare[grad.kind], FAST_SCRATCH_NONE, TOLERANCE);
}

static void test_attention(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 4);
    for (int32_t round = 0; round < 60; round++) {
        const bool large = round % 6 == 0, deep = round % 6 == 1;
        const int64_t extent[AXES] = {1 + esp_i_rng_below(&rng, 3),
                                      1 + esp_i_rng_below(&rng, 3),
                                      1 + esp_i_rng_below(&rng, large ? 150 : 20),
                                      1 + esp_i_rng_below(&rng, large ? 600 : 20),
                                      1 + esp_i_rng_below(&rng, deep ? 600 : 12),
                                      1 + esp_i_rng_below(&rng, deep ? 600 : 12)};
        check_attention(&rng, extent, round % 3 == 0);
    }
}

/* Infinitely hidden: some keys of each row, more than the first tile of them, all but one. */
static void test_hidden_keys(void **state)
{
    (void)state;
    double values[2 * 600];
    for (int32_t i = 0; i < 600; i++) {
        values[i] = i < 300 || i % 3 == 0 ? -INFINITY : 0.1 * i;
        values[600 + i] = i == 17 ? -1e30 : -INFINITY;
    }
    const kind_example_t example = {
        .name = "hidden keys",
        .kind = ESP_KIND_ATTENTION,
        .attr
            .attention = {.q = "bid", .k = "bjd", .v = "bje", .y = "bie", .s = "bij", .scale = 0.3},
        .n_in = 4,
        .in = {{.rank = 3, .dims = {2, 3, 5}},
               {.rank = 3, .dims = {2, 600, 5}},
               {.rank = 3, .dims = {2, 600, 4}},
               {.rank = 3, .dims = {2, 1, 600}, .values = values}}};
    fast_check(&example, esp_i_cpu_ATTENTION, FAST_SCRATCH_NONE, TOLERANCE);
}

/* ---- recurrent layers -------------------------------------------------------------------- */

/* The optional inputs from `first` on are there or not. */
static void drop_inputs(esp_i_rng_t *rng, int32_t first, kind_example_t *example)
{
    for (int32_t i = first; i < example->n_in; i++)
        if (esp_i_rng_below(rng, 3) == 0)
            example->in[i] = (kind_input_t){.rank = -1};
}

static void check_recurrent(esp_i_rng_t *rng, int32_t gates, const int64_t extent[4])
{
    const int64_t t = extent[0], b = extent[1], i = extent[2], h = extent[3], g = gates * h;
    const esp_op_kind_t kind = gates == 4   ? ESP_KIND_LSTM
                               : gates == 3 ? ESP_KIND_GRU
                                            : ESP_KIND_RNN;
    const kind_input_t state = {.rank = 2, .dims = {b, h}},
                       sequence = {.rank = 3, .dims = {t, b, h}},
                       r = {.rank = 2, .dims = {g, h}, .lo = -0.3, .hi = 0.3},
                       saved = {.rank = 3, .dims = {t, b, g}, .lo = 0.1, .hi = 0.9};
    kind_example_t forward = {.name = "recurrent",
                              .kind = kind,
                              .n_in = gates == 4 ? 6 : 5,
                              .in = {{.rank = 3, .dims = {t, b, i}},
                                     {.rank = 2, .dims = {g, i}, .lo = -0.3, .hi = 0.3},
                                     r,
                                     {.rank = 1, .dims = {2 * g}},
                                     state,
                                     state}};
    forward.attr.recurrent.reverse = (int32_t)esp_i_rng_below(rng, 2);
    forward.attr.recurrent.linear_before_reset = gates == 3 && esp_i_rng_below(rng, 2);
    forward.attr.recurrent.relu = gates == 1 && esp_i_rng_below(rng, 2);
    kind_example_t grad = {.name = "recurrent gradient", .attr = forward.attr};
    const kind_input_t lstm[7] = {r, saved, sequence, state, sequence, state, state},
                       gru[7] = {r, saved, sequence, sequence, state, sequence, state},
                       rnn[4] = {r, sequence, sequence, state};
    grad.kind = gates == 4   ? ESP_KIND_LSTM_GRAD
                : gates == 3 ? ESP_KIND_GRU_GRAD
                             : ESP_KIND_RNN_GRAD;
    grad.n_in = gates == 1 ? 4 : 7;
    memcpy(grad.in,
           gates == 4   ? lstm
           : gates == 3 ? gru
                        : rnn,
           (size_t)grad.n_in * sizeof grad.in[0]);
    drop_inputs(rng, 3, &forward);
    drop_inputs(rng, gates == 4 ? 3 : gates == 3 ? 4 : 2, &grad);
    fast_check(&forward, prepare[forward.kind], FAST_SCRATCH_NONE, TOLERANCE);
    fast_check(&grad, prepare[grad.kind], FAST_SCRATCH_NONE, TOLERANCE);
}

static void test_recurrent(void **state)
{
    (void)state;
    static const int32_t gates[3] = {1, 3, 4};
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 5);
    for (int32_t round = 0; round < 120; round++) {
        const int64_t extent[4] = {1 + esp_i_rng_below(&rng, 6), 1 + esp_i_rng_below(&rng, 5),
                                   1 + esp_i_rng_below(&rng, 40), 1 + esp_i_rng_below(&rng, 40)};
        check_recurrent(&rng, gates[round % 3], extent);
    }
}

/* ---- the backend ------------------------------------------------------------------------- */

/* A convolution of two images x[2,16,6,6], w[16,16,3,3] and its scratch. */
typedef struct bed {
    esp_attr_t attr;
    esp_i_local_t operand[3];
    esp_i_call_t call;
    int64_t bytes;
} bed_t;

static void bed_init(bed_t *bed)
{
    *bed = (bed_t){.attr.conv = {.window = square(2, 16, 16, 6, 3, 1, 1).window, .groups = 1}};
    const int64_t dims[3][4] = {{2, 16, 6, 6}, {16, 16, 3, 3}, {2, 16, 6, 6}};
    for (int32_t i = 0; i < 3; i++) {
        esp_i_local_t *local = &bed->operand[i];
        *local = (esp_i_local_t){.rank = 4, .global_rank = 4, .elements = 1, .place = bed->bytes};
        for (int32_t a = 0; a < 4; a++)
            local->elements *= local->dims[a] = local->global[a] = dims[i][a];
        bed->bytes += local->elements * 4;
    }
    bed->call = (esp_i_call_t){.name = "bed",
                               .kind = ESP_KIND_CONV,
                               .attr = &bed->attr,
                               .n_in = 2,
                               .n_out = 1,
                               .operand = bed->operand,
                               .scratch_place = bed->bytes,
                               .scratch_bytes = 1 << 16};
    bed->bytes += 1 << 16;
}

static esp_status_t prepare_bed(const esp_allocator_t *alloc, void *context)
{
    bed_t *bed = context;
    esp_i_kernels_t *kernels;
    char *memory;
    void *kernel;
    ESP_TRY(esp_i_kernels_cpu.create(alloc, false, &kernels, NULL));
    esp_status_t status = kernels->type->arena(kernels, bed->bytes, &memory);
    if (status == ESP_OK)
        status = kernels->type->prepare(kernels, &bed->call, &kernel, NULL);
    kernels->type->destroy(kernels);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    bed_t bed;
    bed_init(&bed);
    test_sweep_allocations(prepare_bed, &bed, 1);
}

static void test_other_dtypes(void **state)
{
    (void)state;
    bed_t bed;
    esp_diag_t diag = {0};
    esp_i_cpu_t cpu = {0};
    esp_i_cpu_kernel_t kernel = {.call = &bed.call};
    bed_init(&bed);
    bed.operand[1].dtype = ESP_DTYPE_I32;
    assert_int_equal(esp_i_cpu_CONV(&cpu, &kernel, &diag), ESP_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "bed"));
    assert_non_null(strstr(diag.text, "int32"));
}

/* Workers, each with a backend of its own, compute the same at the same time. */
typedef struct crowd {
    bed_t bed;
    float sum[64];
    bool fine[64];
} crowd_t;

static void compute(void *context, int32_t index, int32_t worker)
{
    crowd_t *crowd = context;
    const esp_i_moment_t moment = {.rate = 1};
    esp_i_kernels_t *kernels;
    char *memory;
    void *kernel;
    (void)worker;
    if (esp_i_kernels_cpu.create(NULL, false, &kernels, NULL) != ESP_OK)
        return;
    if (kernels->type->arena(kernels, crowd->bed.bytes, &memory) == ESP_OK &&
        kernels->type->prepare(kernels, &crowd->bed.call, &kernel, NULL) == ESP_OK) {
        float *data = (float *)(void *)memory;
        const esp_i_local_t *y = &crowd->bed.operand[2];
        for (int64_t i = 0; i < y->place / 4; i++)
            data[i] = (float)(i % 13) - 6;
        crowd->fine[index] = kernels->type->run(kernels, kernel, &moment, NULL) == ESP_OK;
        float product[32 * 32] = {0};
        for (int32_t round = 0; round < 50; round++)
            esp_i_cpu_gemm(false, true, 32, 32, 32, 0.01f, data, 32, data + y->place / 4, 32, 0.5f,
                           product, 32);
        for (int64_t i = 0; i < 32 * 32; i++)
            crowd->sum[index] += product[i];
    }
    kernels->type->destroy(kernels);
}

static void test_many_threads(void **state)
{
    (void)state;
    crowd_t crowd = {0};
    bed_init(&crowd.bed);
    esp_i_pool_t *pool;
    assert_int_equal(esp_i_pool_create(NULL, 4, &pool), ESP_OK);
    esp_i_pool_run(pool, 64, compute, &crowd);
    esp_i_pool_destroy(pool);
    assert_true(crowd.sum[0] != 0);
    for (int32_t i = 0; i < 64; i++) {
        assert_true(crowd.fine[i]);
        assert_true(crowd.sum[i] == crowd.sum[0]);
    }
}

/* Products that are too small for oneDNN, of whole numbers, each worker with other ones. */
static void multiply(void *context, int32_t index, int32_t worker)
{
    enum { M = 5, N = 7, K = 9, ROUNDS = 20000 };
    float a[M * K], b[K * N], y[M * N], product[M * N];
    bool *fine = context;
    (void)worker;
    for (int32_t i = 0; i < M * K; i++)
        a[i] = (float)((i * (index + 3)) % 7 - 3);
    for (int32_t i = 0; i < K * N; i++)
        b[i] = (float)((i * (index + 5)) % 5 - 2);
    memset(product, 0, sizeof product);
    for (int32_t i = 0; i < M * N; i++)
        for (int32_t k = 0; k < K; k++)
            product[i] += a[i / N * K + k] * b[k * N + i % N];
    fine[index] = true;
    for (int32_t round = 0; round < ROUNDS; round++) {
        esp_i_cpu_gemm(false, false, M, N, K, 1, a, K, b, N, 0, y, N);
        for (int32_t i = 0; i < M * N; i++)
            fine[index] &= y[i] == product[i];
    }
}

static void test_small_products(void **state)
{
    (void)state;
    bool fine[16] = {false};
    esp_i_pool_t *pool;
    assert_int_equal(esp_i_pool_create(NULL, 8, &pool), ESP_OK);
    esp_i_pool_run(pool, 16, multiply, fine);
    esp_i_pool_destroy(pool);
    for (int32_t i = 0; i < 16; i++)
        assert_true(fine[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_products),  cmocka_unit_test(test_examples),
        cmocka_unit_test(test_random_contract), cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_usual_convs),     cmocka_unit_test(test_random_convs),
        cmocka_unit_test(test_pools),           cmocka_unit_test(test_attention),
        cmocka_unit_test(test_hidden_keys),     cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_layouts),         cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_other_dtypes),    cmocka_unit_test(test_many_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
