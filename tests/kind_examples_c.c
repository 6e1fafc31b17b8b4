/*
 * Examples of attention and of recurrent kinds: sequences of 3 elements, 4 samples, 2 hidden units.
 */
#include "kind_harness.h"

#define REC_SEQUENCE(width)                                                                        \
    {                                                                                              \
        .rank = 3, .dims = { 3, 4, width }                                                         \
    }
#define REC_GATE(width)                                                                            \
    {                                                                                              \
        .rank = 3, .dims = {3, 4, width}, .lo = 0.1, .hi = 0.9                                     \
    }
#define REC_MATRIX(rows, columns)                                                                  \
    {                                                                                              \
        .rank = 2, .dims = { rows, columns }                                                       \
    }
#define REC_VECTOR(n)                                                                              \
    {                                                                                              \
        .rank = 1, .dims = { n }                                                                   \
    }
#define REC_STATE                                                                                  \
    {                                                                                              \
        .rank = 2, .dims = { 4, 2 }                                                                \
    }
#define REC_ABSENT                                                                                 \
    {                                                                                              \
        .rank = -1                                                                                 \
    }

/* Samples b, heads h, queries i, keys j: 2, 3, 2, 4; depths d and e: 3, 2. */
#define ATT_PLAIN .q = "bhid", .k = "bhjd", .v = "bhje", .y = "bhie", .s = "bhij", .scale = 0.7
#define ATT_Q                                                                                      \
    {                                                                                              \
        .rank = 4, .dims = { 2, 3, 2, 3 }                                                          \
    }
#define ATT_K                                                                                      \
    {                                                                                              \
        .rank = 4, .dims = { 2, 3, 4, 3 }                                                          \
    }
#define ATT_V                                                                                      \
    {                                                                                              \
        .rank = 4, .dims = { 2, 3, 4, 2 }                                                          \
    }
#define ATT_Y                                                                                      \
    {                                                                                              \
        .rank = 4, .dims = { 2, 3, 2, 2 }                                                          \
    }
#define ATT_ROW                                                                                    \
    {                                                                                              \
        .rank = 3, .dims = {2, 3, 2}, .lo = 1, .hi = 2                                             \
    }
/* The same, sequence first; heads side by side: [i, b, h, d] */
#define ATT_SEQUENCE .q = "ibhd", .k = "jbhd", .v = "jbhe", .y = "ibhe", .s = "bhij", .scale = 0.7
#define ATT_SEQUENCE_IN                                                                            \
    {.rank = 4, .dims = {2, 2, 3, 3}}, {.rank = 4, .dims = {4, 2, 3, 3}},                          \
    {                                                                                              \
        .rank = 4, .dims = { 4, 2, 3, 2 }                                                          \
    }

static const kind_example_t examples[] = {
    /* ---- attention */
    {.name = "attention",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_PLAIN},
     .n_in = 3,
     .in = {ATT_Q, ATT_K, ATT_V},
     .extents = {6},
     .constant_out = 6},
    {.name = "attention of one head per sample",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention =
         {.q = "aik", .k = "ajk", .v = "ajd", .y = "aid", .s = "aij", .scale = 0.5, .p = 0.4},
     .n_in = 3,
     .in = {{.rank = 3, .dims = {4, 2, 3}},
            {.rank = 3, .dims = {4, 3, 3}},
            {.rank = 3, .dims = {4, 3, 2}}},
     .extents = {4},
     .constant_out = 6},
    {.name = "attention, sequence first, dropout",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_SEQUENCE, .p = 0.3, .stream = 5},
     .n_in = 3,
     .in = {ATT_SEQUENCE_IN},
     .extents = {6},
     .constant_out = 6},
    {.name = "attention, samples first, heads after the sequence",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {.q = "bihd",
                        .k = "bjhd",
                        .v = "bjhe",
                        .y = "bihe",
                        .s = "bhij",
                        .scale = 1,
                        .p = 0.3,
                        .stream = 6},
     .n_in = 3,
     .in = {{.rank = 4, .dims = {4, 2, 6, 1}},
            {.rank = 4, .dims = {4, 3, 6, 1}},
            {.rank = 4, .dims = {4, 3, 6, 1}}},
     .extents = {4, 6},
     .constant_out = 6},
    {.name = "attention, a mask of keys per sample",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_PLAIN},
     .n_in = 4,
     .in = {ATT_Q, ATT_K, ATT_V, {.rank = 4, .dims = {2, 1, 1, 4}}},
     .extents = {2, 3},
     .constant_out = 6},
    {.name = "attention, a mask for all, with sequence first",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_SEQUENCE},
     .n_in = 4,
     .in = {ATT_SEQUENCE_IN, {.rank = 2, .dims = {2, 4}}},
     .extents = {6},
     .constant_out = 6},
    {.name = "attention, a mask per head",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_PLAIN},
     .n_in = 4,
     .in = {ATT_Q, ATT_K, ATT_V, {.rank = 4, .dims = {1, 3, 2, 4}}},
     .extents = {2, 3},
     .constant_out = 6},
    {.name = "attention, a mask of all scores",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_PLAIN, .p = 0.2},
     .n_in = 4,
     .in = {ATT_Q, ATT_K, ATT_V, {.rank = 4, .dims = {2, 3, 2, 4}}},
     .extents = {6},
     .constant_out = 6},
    {.name = "attention, keys hidden by a boolean",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_PLAIN, .fill = -3.4e38},
     .n_in = 4,
     .in = {ATT_Q, ATT_K, ATT_V, {.dtype = ESP_DTYPE_BOOL, .rank = 4, .dims = {2, 1, 2, 4}}},
     .extents = {2, 3},
     .constant_out = 6},
    {.name = "attention, keys hidden where true",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_PLAIN, .fill = -2, .hidden = 1, .p = 0.2},
     .n_in = 4,
     .in = {ATT_Q, ATT_K, ATT_V, {.dtype = ESP_DTYPE_BOOL, .rank = 1, .dims = {4}}},
     .extents = {6},
     .constant_out = 6},
    {.name = "attention of no queries",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_PLAIN},
     .n_in = 3,
     .in = {{.rank = 4, .dims = {2, 3, 0, 3}}, ATT_K, ATT_V},
     .constant_out = 6},
    {.name = "attention without depth",
     .kind = ESP_KIND_ATTENTION,
     .attr.attention = {ATT_PLAIN},
     .n_in = 3,
     .in = {{.rank = 4, .dims = {2, 3, 2, 0}}, {.rank = 4, .dims = {2, 3, 4, 0}}, ATT_V},
     .constant_out = 6},
    {.name = "lstm of no samples",
     .kind = ESP_KIND_LSTM,
     .n_in = 3,
     .in = {{.rank = 3, .dims = {3, 0, 3}}, REC_MATRIX(8, 3), REC_MATRIX(8, 2)},
     .constant_out = 3u << 3},
    {.name = "attention_grad",
     .kind = ESP_KIND_ATTENTION_GRAD,
     .attr.attention = {ATT_PLAIN, .p = 0.3},
     .n_in = 7,
     .in = {ATT_Q, ATT_K, ATT_V, ATT_Y, ATT_ROW, ATT_ROW, ATT_Y},
     .extents = {6}},
    {.name = "attention_grad of a mask",
     .kind = ESP_KIND_ATTENTION_GRAD,
     .attr.attention = {ATT_PLAIN, .dmask = 1},
     .n_in = 8,
     .in = {ATT_Q, ATT_K, ATT_V, ATT_Y, ATT_ROW, ATT_ROW, ATT_Y, {.rank = 3, .dims = {3, 1, 4}}},
     .extents = {2, 3}},
    {.name = "attention_grad behind a boolean mask",
     .kind = ESP_KIND_ATTENTION_GRAD,
     .attr.attention = {ATT_PLAIN, .fill = -5},
     .n_in = 8,
     .in = {ATT_Q,
            ATT_K,
            ATT_V,
            ATT_Y,
            ATT_ROW,
            ATT_ROW,
            ATT_Y,
            {.dtype = ESP_DTYPE_BOOL, .rank = 4, .dims = {2, 1, 1, 4}}},
     .extents = {2, 3}},
    /* ---- recurrent layers */
    {.name = "lstm",
     .kind = ESP_KIND_LSTM,
     .n_in = 6,
     .in = {REC_SEQUENCE(3), REC_MATRIX(8, 3), REC_MATRIX(8, 2), REC_VECTOR(16), REC_STATE,
            REC_STATE},
     .extents = {4},
     .constant_out = 3u << 3},
    {.name = "lstm backward in time",
     .kind = ESP_KIND_LSTM,
     .attr.recurrent = {.reverse = 1},
     .n_in = 6,
     .in = {REC_SEQUENCE(3), REC_MATRIX(8, 3), REC_MATRIX(8, 2), REC_VECTOR(16), REC_STATE,
            REC_STATE},
     .extents = {4},
     .constant_out = 3u << 3},
    {.name = "lstm from nothing",
     .kind = ESP_KIND_LSTM,
     .n_in = 3,
     .in = {REC_SEQUENCE(3), REC_MATRIX(8, 3), REC_MATRIX(8, 2)},
     .extents = {4},
     .constant_out = 3u << 3},
    {.name = "lstm from a cell alone",
     .kind = ESP_KIND_LSTM,
     .attr.recurrent = {.reverse = 1},
     .n_in = 6,
     .in = {REC_SEQUENCE(3), REC_MATRIX(8, 3), REC_MATRIX(8, 2), REC_ABSENT, REC_ABSENT, REC_STATE},
     .extents = {4},
     .constant_out = 3u << 3},
    {.name = "lstm of one element",
     .kind = ESP_KIND_LSTM,
     .n_in = 3,
     .in = {{.rank = 3, .dims = {1, 4, 3}}, REC_MATRIX(8, 3), REC_MATRIX(8, 2)},
     .extents = {4},
     .constant_out = 3u << 3},
    {.name = "lstm_grad",
     .kind = ESP_KIND_LSTM_GRAD,
     .n_in = 7,
     .in = {REC_MATRIX(8, 2), REC_GATE(8), REC_SEQUENCE(2), REC_STATE, REC_SEQUENCE(2), REC_STATE,
            REC_STATE},
     .extents = {4}},
    {.name = "lstm_grad of the last states",
     .kind = ESP_KIND_LSTM_GRAD,
     .attr.recurrent = {.reverse = 1},
     .n_in = 7,
     .in = {REC_MATRIX(8, 2), REC_GATE(8), REC_SEQUENCE(2), REC_ABSENT, REC_ABSENT, REC_STATE,
            REC_STATE},
     .extents = {4}},
    {.name = "gru",
     .kind = ESP_KIND_GRU,
     .n_in = 5,
     .in = {REC_SEQUENCE(3), REC_MATRIX(6, 3), REC_MATRIX(6, 2), REC_VECTOR(12), REC_STATE},
     .extents = {4},
     .constant_out = 3u << 2},
    {.name = "gru linear before reset",
     .kind = ESP_KIND_GRU,
     .attr.recurrent = {.linear_before_reset = 1},
     .n_in = 5,
     .in = {REC_SEQUENCE(3), REC_MATRIX(6, 3), REC_MATRIX(6, 2), REC_VECTOR(12), REC_STATE},
     .extents = {4},
     .constant_out = 3u << 2},
    {.name = "gru backward in time",
     .kind = ESP_KIND_GRU,
     .attr.recurrent = {.reverse = 1},
     .n_in = 5,
     .in = {REC_SEQUENCE(3), REC_MATRIX(6, 3), REC_MATRIX(6, 2), REC_VECTOR(12), REC_STATE},
     .extents = {4},
     .constant_out = 3u << 2},
    {.name = "gru linear before reset, backward in time",
     .kind = ESP_KIND_GRU,
     .attr.recurrent = {.reverse = 1, .linear_before_reset = 1},
     .n_in = 4,
     .in = {REC_SEQUENCE(3), REC_MATRIX(6, 3), REC_MATRIX(6, 2), REC_VECTOR(12)},
     .extents = {4},
     .constant_out = 3u << 2},
    {.name = "gru from nothing",
     .kind = ESP_KIND_GRU,
     .n_in = 3,
     .in = {REC_SEQUENCE(3), REC_MATRIX(6, 3), REC_MATRIX(6, 2)},
     .extents = {4},
     .constant_out = 3u << 2},
    {.name = "gru_grad",
     .kind = ESP_KIND_GRU_GRAD,
     .n_in = 7,
     .in = {REC_MATRIX(6, 2), REC_GATE(6), REC_SEQUENCE(2), REC_SEQUENCE(2), REC_STATE,
            REC_SEQUENCE(2), REC_STATE},
     .extents = {4}},
    {.name = "gru_grad linear before reset",
     .kind = ESP_KIND_GRU_GRAD,
     .attr.recurrent = {.linear_before_reset = 1},
     .n_in = 6,
     .in = {REC_MATRIX(6, 2), REC_GATE(6), REC_SEQUENCE(2), REC_SEQUENCE(2), REC_ABSENT,
            REC_SEQUENCE(2)},
     .extents = {4}},
    {.name = "gru_grad of the last state",
     .kind = ESP_KIND_GRU_GRAD,
     .attr.recurrent = {.reverse = 1},
     .n_in = 7,
     .in = {REC_MATRIX(6, 2), REC_GATE(6), REC_SEQUENCE(2), REC_SEQUENCE(2), REC_ABSENT, REC_ABSENT,
            REC_STATE},
     .extents = {4}},
    {.name = "rnn",
     .kind = ESP_KIND_RNN,
     .n_in = 5,
     .in = {REC_SEQUENCE(3), REC_MATRIX(2, 3), REC_MATRIX(2, 2), REC_VECTOR(4), REC_STATE},
     .extents = {4}},
    {.name = "rnn backward in time",
     .kind = ESP_KIND_RNN,
     .attr.recurrent = {.reverse = 1},
     .n_in = 3,
     .in = {REC_SEQUENCE(3), REC_MATRIX(2, 3), REC_MATRIX(2, 2)},
     .extents = {4}},
    {.name = "rnn with relu",
     .kind = ESP_KIND_RNN,
     .attr.recurrent = {.relu = 1},
     .n_in = 5,
     .in = {REC_SEQUENCE(3), REC_MATRIX(2, 3), REC_MATRIX(2, 2), REC_VECTOR(4), REC_STATE},
     .extents = {4}},
    {.name = "rnn_grad",
     .kind = ESP_KIND_RNN_GRAD,
     .n_in = 4,
     .in = {REC_MATRIX(2, 2), REC_SEQUENCE(2), REC_SEQUENCE(2), REC_STATE},
     .extents = {4}},
    {.name = "rnn_grad with relu",
     .kind = ESP_KIND_RNN_GRAD,
     .attr.recurrent = {.reverse = 1, .relu = 1},
     .n_in = 3,
     .in = {REC_MATRIX(2, 2), REC_SEQUENCE(2), REC_SEQUENCE(2)},
     .extents = {4}},
};

kind_examples_t kind_examples_c(void)
{
    return (kind_examples_t){examples, (int32_t)(sizeof examples / sizeof *examples)};
}
