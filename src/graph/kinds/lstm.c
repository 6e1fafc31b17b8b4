/*
 * A long short-term memory layer. The gate units of one sample are four blocks of h: input i,
 * output o, forget f, cell candidate a.
 *
 *   i, o, f = sigmoid(w x + r h + b),  a = tanh(w x + r h + b);   h, c: of the step before
 *   c' = f c + i a;   h' = o tanh(c')
 *
 * Saved for the gradient: gates[t, b, 4h] as above, and cells[t, b, h], the c'.
 */
#include "graph/kinds/recurrent.h"

#include <math.h>

enum { R = ESP_I_REC_R, H0 = ESP_I_REC_H0, C0 };                  /* inputs of lstm */
enum { Y, H_LAST, C_LAST, GATES, CELLS };                         /* outputs of lstm */
enum { G_R, G_GATES, G_CELLS, G_C0, G_DY, G_DH_LAST, G_DC_LAST }; /* inputs of lstm_grad */

/* ---- inference and factors --------------------------------------------------------------- */

static esp_status_t lstm_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(esp_i_rec_infer(op, 4, diag));
    op->out[C_LAST] = op->out[H_LAST];
    op->out[GATES] = esp_i_rec_sequence(&op->out[H_LAST], op->in[0].dims[0], 4);
    op->out[CELLS] = op->out[Y];
    return ESP_OK;
}

static esp_status_t grad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    esp_i_shape_t state;
    ESP_TRY(esp_i_rec_infer_grad(op, 4, 4, "gates", &state, diag));
    const esp_i_shape_t cells = esp_i_rec_sequence(&state, op->in[G_GATES].dims[0], 1);
    ESP_TRY(esp_i_rec_optional(op, G_CELLS, "cells", &cells, diag));
    ESP_TRY(esp_i_rec_optional(op, G_C0, "c0", &state, diag));
    ESP_TRY(esp_i_rec_optional(op, G_DY, "dy", &cells, diag));
    ESP_TRY(esp_i_rec_optional(op, G_DH_LAST, "dhT", &state, diag));
    ESP_TRY(esp_i_rec_optional(op, G_DC_LAST, "dcT", &state, diag));
    op->out[0] = op->in[G_GATES];
    op->out[1] = state;
    op->out[2] = state;
    return ESP_OK;
}

static int32_t grad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    return esp_i_rec_grad_linear(op, G_DY, masks_out);
}

/* Per hidden unit and step: three sigmoids, two hyperbolic tangents and 4 more. */
static double lstm_flops(const esp_i_op_t *op)
{
    return esp_i_rec_matrix_flops(&op->out[GATES], op->in[0].dims[2] + op->in[R].dims[1]) +
           70 * (double)esp_i_shape_elements(&op->out[Y]);
}

static double grad_flops(const esp_i_op_t *op)
{
    return esp_i_rec_matrix_flops(&op->in[G_GATES], op->in[G_R].dims[1]) +
           40 * (double)esp_i_shape_elements(&op->in[G_CELLS]);
}

/* ---- gradient ---------------------------------------------------------------------------- */

static esp_status_t lstm_gradient(const esp_i_grad_t *grad)
{
    const esp_i_op_t *op = grad->op;
    bool needed;
    ESP_TRY(esp_i_rec_grad_needed(grad, GATES, &needed));
    if (!needed)
        return ESP_OK;
    const esp_tensor_id_t inputs[7] = {
        grad->in[R],      grad->out[GATES],
        grad->out[CELLS], esp_i_op_has(op, C0) ? grad->in[C0] : ESP_NONE,
        grad->dy[Y],      grad->dy[H_LAST],
        grad->dy[C_LAST]};
    esp_tensor_id_t d[3], before;
    ESP_TRY(esp_i_make(grad->builder, ESP_KIND_LSTM_GRAD, op->attr, 7, inputs, grad->name, d,
                       grad->diag));
    ESP_TRY(esp_i_rec_grad_inputs(grad, d[0], d[0]));
    if (grad->need[R]) {
        ESP_TRY(esp_i_rec_before(grad, &before));
        ESP_TRY(esp_i_rec_grad_r(grad, d[0], before, &grad->dx[R]));
    }
    if (esp_i_op_has(op, H0))
        grad->dx[H0] = d[1];
    if (esp_i_op_has(op, C0))
        grad->dx[C0] = d[2];
    return ESP_OK;
}

/* ---- kernels ----------------------------------------------------------------------------- */

/* One sample at one step: gates, then cell and h of every unit. */
static void lstm_cell(const esp_i_rec_t *rec, int64_t step, int64_t sample, double *gate,
                      const double *c, double *c_next)
{
    const int64_t h = rec->hidden, time = esp_i_rec_time(rec, step);
    const double *before = esp_i_rec_previous(rec, rec->y, rec->h0, step, sample);
    double *y = esp_i_rec_row(rec, rec->y, time, sample, h);
    for (int64_t unit = 0; unit < 4 * h; unit++) {
        const double z =
            esp_i_rec_from_x(rec, unit, time, sample) + esp_i_rec_from_h(rec, 4 * h, unit, before);
        gate[unit] = unit < 3 * h ? esp_i_rec_sigmoid(z) : tanh(z);
    }
    for (int64_t j = 0; j < h; j++) {
        c_next[j] = gate[2 * h + j] * (c ? c[j] : 0) + gate[j] * gate[3 * h + j];
        y[j] = gate[h + j] * tanh(c_next[j]);
    }
}

static void lstm_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_rec_t rec = esp_i_rec_of(kernel);
    const double *c0 = kernel->n_in > C0 ? kernel->in[C0].data : NULL;
    double *gates = kernel->out[GATES].data, *cells = kernel->out[CELLS].data;
    for (int64_t step = 0; step < rec.steps; step++) {
        for (int64_t b = 0; b < rec.batch; b++) {
            const int64_t time = esp_i_rec_time(&rec, step);
            lstm_cell(&rec, step, b, esp_i_rec_row(&rec, gates, time, b, 4 * rec.hidden),
                      esp_i_rec_previous(&rec, cells, c0, step, b),
                      esp_i_rec_row(&rec, cells, time, b, rec.hidden));
        }
    }
    esp_i_rec_last(&rec, rec.y, kernel->out[H_LAST].data);
    esp_i_rec_last(&rec, cells, kernel->out[C_LAST].data);
}

/*
 * One sample at one step: d of what enters the gates from the running dh and dc, which become
 * those of the step before.
 */
static void grad_cell(const esp_i_rec_t *rec, const double *gate, const double *c,
                      const double *c_next, double *d, double *dh, double *dc)
{
    const int64_t h = rec->hidden;
    for (int64_t j = 0; j < h; j++) {
        const double i = gate[j], o = gate[h + j], f = gate[2 * h + j], a = gate[3 * h + j];
        const double squashed = tanh(c_next[j]);
        const double dcell = dc[j] + dh[j] * o * (1 - squashed * squashed);
        d[j] = dcell * a * i * (1 - i);
        d[h + j] = dh[j] * squashed * o * (1 - o);
        d[2 * h + j] = dcell * (c ? c[j] : 0) * f * (1 - f);
        d[3 * h + j] = dcell * i * (1 - a * a);
        dc[j] = dcell * f;
    }
    for (int64_t j = 0; j < h; j++)
        dh[j] = esp_i_rec_back(rec, d, 4 * h, j);
}

static void grad_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_rec_t rec = esp_i_rec_grad_of(kernel, G_GATES, 4);
    const esp_i_buffer_t *in = kernel->in;
    const int64_t h = rec.hidden;
    const double *c0 = kernel->n_in > G_C0 ? in[G_C0].data : NULL;
    const double *dy = kernel->n_in > G_DY ? in[G_DY].data : NULL;
    double *dh = kernel->out[1].data, *dc = kernel->out[2].data;
    esp_i_rec_grad_start(&rec, kernel->n_in > G_DH_LAST ? in[G_DH_LAST].data : NULL, dh);
    esp_i_rec_grad_start(&rec, kernel->n_in > G_DC_LAST ? in[G_DC_LAST].data : NULL, dc);
    for (int64_t step = rec.steps - 1; step >= 0; step--) {
        for (int64_t b = 0; b < rec.batch; b++) {
            const int64_t row = esp_i_rec_time(&rec, step) * rec.batch + b;
            for (int64_t j = 0; dy && j < h; j++)
                dh[b * h + j] += dy[row * h + j];
            grad_cell(&rec, in[G_GATES].data + row * 4 * h,
                      esp_i_rec_previous(&rec, in[G_CELLS].data, c0, step, b),
                      in[G_CELLS].data + row * h, kernel->out[0].data + row * 4 * h, dh + b * h,
                      dc + b * h);
        }
    }
}

const esp_i_kind_t esp_i_kind_LSTM = {
    .name = "lstm",
    .min_in = 3,
    .max_in = 6,
    .n_out = 5,
    .family = ESP_FAMILY_RECURRENT,
    .infer = lstm_infer,
    .dims = esp_i_rec_dims,
    .flops = lstm_flops,
    .gradient = lstm_gradient,
    .kernel = lstm_kernel,
};

const esp_i_kind_t esp_i_kind_LSTM_GRAD = {
    .name = "lstm_grad",
    .min_in = 3,
    .max_in = 7,
    .n_out = 3,
    .family = ESP_FAMILY_RECURRENT,
    .infer = grad_infer,
    .dims = esp_i_rec_grad_dims,
    .linear = grad_linear,
    .flops = grad_flops,
    .kernel = grad_kernel,
};
