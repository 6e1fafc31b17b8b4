/* Examples of recurrent kinds: sequences of 3 elements, 4 samples, 2 hidden units. */
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

static const kind_example_t examples[] = {
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
