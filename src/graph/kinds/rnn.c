/*
 * A plain recurrent layer: h' = tanh(w x + b + r h + b'), or relu. Its gradient reads y alone.
 */
#include "graph/kinds/recurrent.h"

#include <math.h>

enum { R = ESP_I_REC_R, H0 = ESP_I_REC_H0 }; /* inputs of rnn */
enum { Y, H_LAST };                          /* outputs of rnn */
enum { G_R, G_Y, G_DY, G_DH_LAST };          /* inputs of rnn_grad */

/* ---- inference and factors --------------------------------------------------------------- */

static esp_status_t rnn_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    return esp_i_rec_infer(op, 1, diag);
}

static esp_status_t grad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    esp_i_shape_t state;
    ESP_TRY(esp_i_rec_infer_grad(op, 1, 1, "y", &state, diag));
    ESP_TRY(esp_i_rec_optional(op, G_DY, "dy", &op->in[G_Y], diag));
    ESP_TRY(esp_i_rec_optional(op, G_DH_LAST, "dhT", &state, diag));
    op->out[0] = op->in[G_Y];
    op->out[1] = state;
    return ESP_OK;
}

static int32_t grad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    return esp_i_rec_grad_linear(op, G_DY, masks_out);
}

static double rnn_flops(const esp_i_op_t *op)
{
    return esp_i_rec_matrix_flops(&op->out[Y], op->in[0].dims[2] + op->in[R].dims[1]) +
           (op->attr->recurrent.relu ? 4 : 18) * (double)esp_i_shape_elements(&op->out[Y]);
}

static double grad_flops(const esp_i_op_t *op)
{
    return esp_i_rec_matrix_flops(&op->in[G_Y], op->in[G_R].dims[1]) +
           4 * (double)esp_i_shape_elements(&op->in[G_Y]);
}

/* ---- gradient ---------------------------------------------------------------------------- */

static esp_status_t rnn_gradient(const esp_i_grad_t *grad)
{
    bool needed;
    ESP_TRY(esp_i_rec_grad_needed(grad, H_LAST + 1, &needed));
    if (!needed)
        return ESP_OK;
    const esp_tensor_id_t inputs[4] = {grad->in[R], grad->out[Y], grad->dy[Y], grad->dy[H_LAST]};
    esp_tensor_id_t d[2], before;
    ESP_TRY(esp_i_make(grad->builder, ESP_KIND_RNN_GRAD, grad->op->attr, 4, inputs, grad->name, d,
                       grad->diag));
    ESP_TRY(esp_i_rec_grad_inputs(grad, d[0], d[0]));
    if (grad->need[R]) {
        ESP_TRY(esp_i_rec_before(grad, &before));
        ESP_TRY(esp_i_rec_grad_r(grad, d[0], before, &grad->dx[R]));
    }
    if (esp_i_op_has(grad->op, H0))
        grad->dx[H0] = d[1];
    return ESP_OK;
}

/* ---- kernels ----------------------------------------------------------------------------- */

static void rnn_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_rec_t rec = esp_i_rec_of(kernel);
    for (int64_t step = 0; step < rec.steps; step++) {
        const int64_t time = esp_i_rec_time(&rec, step);
        for (int64_t b = 0; b < rec.batch; b++) {
            const double *before = esp_i_rec_previous(&rec, rec.y, rec.h0, step, b);
            double *y = esp_i_rec_row(&rec, rec.y, time, b, rec.hidden);
            for (int64_t j = 0; j < rec.hidden; j++) {
                const double z = esp_i_rec_from_x(&rec, j, time, b) +
                                 esp_i_rec_from_h(&rec, rec.hidden, j, before);
                y[j] = kernel->attr->recurrent.relu ? fmax(z, 0) : tanh(z);
            }
        }
    }
    esp_i_rec_last(&rec, rec.y, kernel->out[H_LAST].data);
}

static void grad_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_rec_t rec = esp_i_rec_grad_of(kernel, G_Y, 1);
    const esp_i_buffer_t *in = kernel->in;
    const int64_t h = rec.hidden;
    const double *dy = kernel->n_in > G_DY ? in[G_DY].data : NULL;
    esp_i_rec_grad_start(&rec, kernel->n_in > G_DH_LAST ? in[G_DH_LAST].data : NULL,
                         kernel->out[1].data);
    for (int64_t step = rec.steps - 1; step >= 0; step--) {
        for (int64_t b = 0; b < rec.batch; b++) {
            const int64_t row = esp_i_rec_time(&rec, step) * rec.batch + b;
            const double *y = in[G_Y].data + row * h;
            double *d = kernel->out[0].data + row * h, *dh = kernel->out[1].data + b * h;
            for (int64_t j = 0; j < h; j++) {
                const double slope = kernel->attr->recurrent.relu ? y[j] > 0 : 1 - y[j] * y[j];
                d[j] = (dh[j] + (dy ? dy[row * h + j] : 0)) * slope;
            }
            for (int64_t j = 0; j < h; j++)
                dh[j] = esp_i_rec_back(&rec, d, h, j);
        }
    }
}

const esp_i_kind_t esp_i_kind_RNN = {
    .name = "rnn",
    .min_in = 3,
    .max_in = 5,
    .n_out = 2,
    .family = ESP_FAMILY_RECURRENT,
    .infer = rnn_infer,
    .dims = esp_i_rec_dims,
    .flops = rnn_flops,
    .gradient = rnn_gradient,
    .kernel = rnn_kernel,
};

const esp_i_kind_t esp_i_kind_RNN_GRAD = {
    .name = "rnn_grad",
    .min_in = 2,
    .max_in = 4,
    .n_out = 2,
    .family = ESP_FAMILY_RECURRENT,
    .infer = grad_infer,
    .dims = esp_i_rec_grad_dims,
    .linear = grad_linear,
    .flops = grad_flops,
    .kernel = grad_kernel,
};
