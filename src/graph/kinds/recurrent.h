/*
 * What LSTM, GRU and plain recurrent layers share.
 *
 * One op is a whole sequence in one direction: x[t, b, i], w[g, i], r[g, h], bias[2 g], h0[b, h] ->
 * y[t, b, h], hT[b, h], and what its gradient reads. g is the number of gate units: 4 h, 3 h or h.
 * Gate units and the two halves of the bias are in the order of ONNX. Only the samples b are a loop
 * dimension: a step reads all hidden units of the step before, and a sequence has an order.
 *
 * The op of the gradient goes back through the sequence and gives the gradients of what enters the
 * gates, dgates[t, b, g], and of the initial state. All others are contractions of dgates, here.
 */
#ifndef ESP_GRAPH_KINDS_RECURRENT_H
#define ESP_GRAPH_KINDS_RECURRENT_H

#include "graph/kinds/operand.h"

/* Inputs of the forward ops. Output 0 is y, output 1 the last h. */
enum { ESP_I_REC_X, ESP_I_REC_W, ESP_I_REC_R, ESP_I_REC_BIAS, ESP_I_REC_H0, ESP_I_REC_C0 };

/* Checks x to h0, and c0 if there is one; fills outputs 0 and 1. `gates`: per hidden unit. */
esp_status_t esp_i_rec_infer(const esp_i_op_t *op, int32_t gates, esp_diag_t *diag);
/* An optional input of a gradient op: absent, or x's dtype and this shape. */
esp_status_t esp_i_rec_optional(const esp_i_op_t *op, int32_t input, const char *what,
                                const esp_i_shape_t *shape, esp_diag_t *diag);
/* Input 0 of a gradient op is r[gates h, h], input 1 is [t, b, units h]; *state_out is [b, h]. */
esp_status_t esp_i_rec_infer_grad(const esp_i_op_t *op, int32_t gates, int32_t units,
                                  const char *what, esp_i_shape_t *state_out, esp_diag_t *diag);
/* [t, b, units h], where `state` is [b, h] */
esp_i_shape_t esp_i_rec_sequence(const esp_i_shape_t *state, int64_t steps, int64_t units);

/* The samples: axis 1 of every sequence, axis 0 of every state. For the kinds and gradients. */
void esp_i_rec_dims(const esp_i_op_t *op, esp_i_dims_t *dims);
void esp_i_rec_grad_dims(const esp_i_op_t *op, esp_i_dims_t *dims);
/* The linear set of a gradient op: its inputs from `first` on, as far as they are there. */
int32_t esp_i_rec_grad_linear(const esp_i_op_t *op, int32_t first, uint64_t masks_out[4]);
/* 2 t b g (columns of the weights), of the matrices that the op multiplies with */
double esp_i_rec_matrix_flops(const esp_i_shape_t *gates, int64_t columns);

/* ---- gradients ----------------------------------------------------------------------------- */

/* Whether the rule has anything to do; an error if a gradient reaches outputs from `saved` on. */
esp_status_t esp_i_rec_grad_needed(const esp_i_grad_t *grad, int32_t saved, bool *needed_out);
/* Where time goes backward the state before element t is at t + 1. *out: h before each element. */
esp_status_t esp_i_rec_before(const esp_i_grad_t *grad, esp_tensor_id_t *out);
/* Gradients of x, w, bias. drecurrent: of what r h + b of the bias's second half enters. */
esp_status_t esp_i_rec_grad_inputs(const esp_i_grad_t *grad, esp_tensor_id_t dgates,
                                   esp_tensor_id_t drecurrent);
/* The gradient of r, as dgates^T before, summed over elements and samples. */
esp_status_t esp_i_rec_grad_r(const esp_i_grad_t *grad, esp_tensor_id_t dgates,
                              esp_tensor_id_t before, esp_tensor_id_t *dr_out);

/* ---- kernels ------------------------------------------------------------------------------- */

typedef struct esp_i_rec {
    int64_t steps, batch, inputs, hidden; /* batch: of this share */
    bool reverse;
    const double *x, *w, *r, *bias, *h0;
    double *y;
} esp_i_rec_t;

/* Of a forward kernel. */
esp_i_rec_t esp_i_rec_of(const esp_i_kernel_t *kernel);
/* Element that is visited at `step`. */
static inline int64_t esp_i_rec_time(const esp_i_rec_t *rec, int64_t step)
{
    return rec->reverse ? rec->steps - 1 - step : step;
}
/* Row of a [t, b, width] sequence. */
static inline double *esp_i_rec_row(const esp_i_rec_t *rec, double *sequence, int64_t time,
                                    int64_t sample, int64_t width)
{
    return sequence + (time * rec->batch + sample) * width;
}
/* Row of `sequence` one step earlier; before the first, of `initial`; NULL: zeros. */
const double *esp_i_rec_previous(const esp_i_rec_t *rec, const double *sequence,
                                 const double *initial, int64_t step, int64_t sample);
/* w x + b of one gate unit, and r h + b of it. h: NULL is zeros. */
double esp_i_rec_from_x(const esp_i_rec_t *rec, int64_t unit, int64_t time, int64_t sample);
double esp_i_rec_from_h(const esp_i_rec_t *rec, int64_t units, int64_t unit, const double *h);
/* Copies the rows of the last step into [b, h]. */
void esp_i_rec_last(const esp_i_rec_t *rec, const double *sequence, double *state);

/* Of a gradient kernel: input `sequence` is [t, b, units h]. */
esp_i_rec_t esp_i_rec_grad_of(const esp_i_kernel_t *kernel, int32_t sequence, int64_t units);
/* Sets a running gradient [b, h] to the gradient of the last state; NULL: to zeros. */
void esp_i_rec_grad_start(const esp_i_rec_t *rec, const double *last, double *running);
/* sum of d[unit] r[unit, column] over the first `units` units */
double esp_i_rec_back(const esp_i_rec_t *rec, const double *d, int64_t units, int64_t column);

double esp_i_rec_sigmoid(double x);

#endif
