/*
 * A layer of gated recurrent units. The gate units of one sample are three blocks of h: update z,
 * reset s, candidate n.
 *
 *   z, s = sigmoid(w x + r h + b);                h: of the step before
 *   n = tanh(w x + b + r (s h) + b')              or, linear before reset,
 *   n = tanh(w x + b + s (r h + b'))
 *   h' = (1 - z) n + z h
 *
 * Saved for the gradient: gates[t, b, 3h] as above, and reset[t, b, h], which is s h, or r h + b'.
 */
#include "graph/kinds/recurrent.h"

#include <math.h>
#include <string.h>

enum { R = ESP_I_REC_R, H0 = ESP_I_REC_H0 };                /* inputs of gru */
enum { Y, H_LAST, GATES, RESET };                           /* outputs of gru */
enum { G_R, G_GATES, G_RESET, G_Y, G_H0, G_DY, G_DH_LAST }; /* inputs of gru_grad */

/* ---- inference and factors --------------------------------------------------------------- */

static esp_status_t gru_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    ESP_TRY(esp_i_rec_infer(op, 3, diag));
    op->out[GATES] = esp_i_rec_sequence(&op->out[H_LAST], op->in[0].dims[0], 3);
    op->out[RESET] = op->out[Y];
    return ESP_OK;
}

/* Linear before reset, what enters from r h is not what enters from w x. */
static int32_t grad_outputs(const esp_attr_t *attr)
{
    return attr->recurrent.linear_before_reset ? 3 : 2;
}

static esp_status_t grad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    esp_i_shape_t state;
    ESP_TRY(esp_i_rec_infer_grad(op, 3, 3, "gates", &state, diag));
    const esp_i_shape_t y = esp_i_rec_sequence(&state, op->in[G_GATES].dims[0], 1);
    ESP_TRY(esp_i_rec_optional(op, G_RESET, "reset", &y, diag));
    ESP_TRY(esp_i_rec_optional(op, G_Y, "y", &y, diag));
    ESP_TRY(esp_i_rec_optional(op, G_H0, "h0", &state, diag));
    ESP_TRY(esp_i_rec_optional(op, G_DY, "dy", &y, diag));
    ESP_TRY(esp_i_rec_optional(op, G_DH_LAST, "dhT", &state, diag));
    op->out[0] = op->in[G_GATES];
    op->out[1] = state;
    if (op->attr->recurrent.linear_before_reset)
        op->out[2] = op->in[G_GATES];
    return ESP_OK;
}

static int32_t grad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    return esp_i_rec_grad_linear(op, G_DY, masks_out);
}

/* Per hidden unit and step: two sigmoids, one hyperbolic tangent and 7 more. */
static double gru_flops(const esp_i_op_t *op)
{
    return esp_i_rec_matrix_flops(&op->out[GATES], op->in[0].dims[2] + op->in[R].dims[1]) +
           46 * (double)esp_i_shape_elements(&op->out[Y]);
}

static double grad_flops(const esp_i_op_t *op)
{
    return esp_i_rec_matrix_flops(&op->in[G_GATES], op->in[G_R].dims[1]) +
           20 * (double)esp_i_shape_elements(&op->in[G_Y]);
}

/* ---- gradient ---------------------------------------------------------------------------- */

/* Rows [start, start + count) of the last axis of a sequence. */
static esp_status_t units(const esp_i_grad_t *grad, esp_tensor_id_t x, int64_t start, int64_t count,
                          esp_tensor_id_t *out)
{
    const esp_i_shape_t *y = &grad->op->out[0];
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    attr.slice.start[2] = start;
    for (int32_t i = 0; i < 3; i++) {
        attr.slice.step[i] = 1;
        attr.slice.count[i] = i < 2 ? y->dims[i] : count;
    }
    return esp_i_make(grad->builder, ESP_KIND_SLICE, &attr, 1, &x, grad->name, out, grad->diag);
}

/* The candidate's part of r multiplies s h, the others h: two contractions, one upon the other. */
static esp_status_t grad_r_after_reset(const esp_i_grad_t *grad, esp_tensor_id_t dgates,
                                       esp_tensor_id_t before)
{
    const int64_t h = grad->op->out[0].dims[2];
    esp_tensor_id_t part[2];
    ESP_TRY(units(grad, dgates, 0, 2 * h, &part[0]));
    ESP_TRY(units(grad, dgates, 2 * h, h, &part[1]));
    ESP_TRY(esp_i_rec_grad_r(grad, part[0], before, &part[0]));
    ESP_TRY(esp_i_rec_grad_r(grad, part[1], grad->out[RESET], &part[1]));
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    return esp_i_make(grad->builder, ESP_KIND_CONCAT, &attr, 2, part, grad->name, &grad->dx[R],
                      grad->diag);
}

static esp_status_t gru_gradient(const esp_i_grad_t *grad)
{
    const esp_i_op_t *op = grad->op;
    const bool linear = op->attr->recurrent.linear_before_reset != 0;
    bool needed;
    ESP_TRY(esp_i_rec_grad_needed(grad, GATES, &needed));
    if (!needed)
        return ESP_OK;
    const esp_tensor_id_t inputs[7] = {grad->in[R],
                                       grad->out[GATES],
                                       grad->out[RESET],
                                       grad->out[Y],
                                       esp_i_op_has(op, H0) ? grad->in[H0] : ESP_NONE,
                                       grad->dy[Y],
                                       grad->dy[H_LAST]};
    esp_tensor_id_t d[3], before;
    ESP_TRY(esp_i_make(grad->builder, ESP_KIND_GRU_GRAD, op->attr, 7, inputs, grad->name, d,
                       grad->diag));
    const esp_tensor_id_t drecurrent = linear ? d[2] : d[0];
    ESP_TRY(esp_i_rec_grad_inputs(grad, d[0], drecurrent));
    if (grad->need[R]) {
        ESP_TRY(esp_i_rec_before(grad, &before));
        if (linear)
            ESP_TRY(esp_i_rec_grad_r(grad, drecurrent, before, &grad->dx[R]));
        else
            ESP_TRY(grad_r_after_reset(grad, d[0], before));
    }
    if (esp_i_op_has(op, H0))
        grad->dx[H0] = d[1];
    return ESP_OK;
}

/* ---- kernels ----------------------------------------------------------------------------- */

/* One sample at one step. */
static void gru_cell(const esp_i_rec_t *rec, bool linear, int64_t step, int64_t sample,
                     double *gate, double *reset)
{
    const int64_t h = rec->hidden, time = esp_i_rec_time(rec, step);
    const double *before = esp_i_rec_previous(rec, rec->y, rec->h0, step, sample);
    double *y = esp_i_rec_row(rec, rec->y, time, sample, h);
    for (int64_t unit = 0; unit < 2 * h; unit++)
        gate[unit] = esp_i_rec_sigmoid(esp_i_rec_from_x(rec, unit, time, sample) +
                                       esp_i_rec_from_h(rec, 3 * h, unit, before));
    for (int64_t j = 0; j < h; j++)
        reset[j] = linear ? esp_i_rec_from_h(rec, 3 * h, 2 * h + j, before)
                          : gate[h + j] * (before ? before[j] : 0);
    for (int64_t j = 0; j < h; j++) {
        const double entering =
            linear ? gate[h + j] * reset[j] : esp_i_rec_from_h(rec, 3 * h, 2 * h + j, reset);
        const double z = gate[j],
                     n = tanh(esp_i_rec_from_x(rec, 2 * h + j, time, sample) + entering);
        gate[2 * h + j] = n;
        y[j] = (1 - z) * n + z * (before ? before[j] : 0);
    }
}

static void gru_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_rec_t rec = esp_i_rec_of(kernel);
    const bool linear = kernel->attr->recurrent.linear_before_reset != 0;
    for (int64_t step = 0; step < rec.steps; step++) {
        for (int64_t b = 0; b < rec.batch; b++) {
            const int64_t time = esp_i_rec_time(&rec, step);
            gru_cell(&rec, linear, step, b,
                     esp_i_rec_row(&rec, kernel->out[GATES].data, time, b, 3 * rec.hidden),
                     esp_i_rec_row(&rec, kernel->out[RESET].data, time, b, rec.hidden));
        }
    }
    esp_i_rec_last(&rec, rec.y, kernel->out[H_LAST].data);
}

/* What one sample has at one step of the gradient. */
typedef struct cell {
    const double *gate, *reset, *before; /* before: NULL is zeros */
    double *d, *dh;                      /* d: of what enters the gates from w x */
    double *d_recurrent;                 /* from r h; NULL: not linear before reset */
} cell_t;

/* d of (s h)[j], which r multiplies */
static double after_reset(const esp_i_rec_t *rec, const double *d, int64_t j)
{
    const int64_t h = rec->hidden;
    double sum = 0;
    for (int64_t unit = 2 * h; unit < 3 * h; unit++)
        sum += d[unit] * rec->r[unit * h + j];
    return sum;
}

/* dh of h' gives d of what enters the gates. */
static void grad_gates(const esp_i_rec_t *rec, const cell_t *cell)
{
    const int64_t h = rec->hidden;
    const double *gate = cell->gate;
    double *d = cell->d;
    for (int64_t j = 0; j < h; j++) {
        const double z = gate[j], n = gate[2 * h + j], old = cell->before ? cell->before[j] : 0;
        d[j] = cell->dh[j] * (old - n) * z * (1 - z);
        d[2 * h + j] = cell->dh[j] * (1 - z) * (1 - n * n);
    }
    for (int64_t j = 0; j < h; j++) {
        const double s = gate[h + j], old = cell->before ? cell->before[j] : 0;
        const double ds =
            cell->d_recurrent ? d[2 * h + j] * cell->reset[j] : after_reset(rec, d, j) * old;
        d[h + j] = ds * s * (1 - s);
    }
    for (int64_t unit = 0; cell->d_recurrent && unit < 3 * h; unit++)
        cell->d_recurrent[unit] = d[unit] * (unit < 2 * h ? 1 : gate[unit - h]);
}

/* dh of h' becomes dh of h. */
static void grad_state(const esp_i_rec_t *rec, const cell_t *cell)
{
    const int64_t h = rec->hidden;
    for (int64_t j = 0; j < h; j++) {
        cell->dh[j] *= cell->gate[j];
        if (cell->d_recurrent)
            cell->dh[j] += esp_i_rec_back(rec, cell->d_recurrent, 3 * h, j);
        else
            cell->dh[j] += esp_i_rec_back(rec, cell->d, 2 * h, j) +
                           after_reset(rec, cell->d, j) * cell->gate[h + j];
    }
}

static void grad_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_rec_t rec = esp_i_rec_grad_of(kernel, G_GATES, 3);
    const esp_i_buffer_t *in = kernel->in;
    const int64_t h = rec.hidden;
    const double *h0 = kernel->n_in > G_H0 ? in[G_H0].data : NULL;
    const double *dy = kernel->n_in > G_DY ? in[G_DY].data : NULL;
    double *dh = kernel->out[1].data;
    esp_i_rec_grad_start(&rec, kernel->n_in > G_DH_LAST ? in[G_DH_LAST].data : NULL, dh);
    for (int64_t step = rec.steps - 1; step >= 0; step--) {
        for (int64_t b = 0; b < rec.batch; b++) {
            const int64_t row = esp_i_rec_time(&rec, step) * rec.batch + b;
            const cell_t cell = {.gate = in[G_GATES].data + row * 3 * h,
                                 .reset = in[G_RESET].data + row * h,
                                 .before = esp_i_rec_previous(&rec, in[G_Y].data, h0, step, b),
                                 .d = kernel->out[0].data + row * 3 * h,
                                 .dh = dh + b * h,
                                 .d_recurrent =
                                     kernel->n_out > 2 ? kernel->out[2].data + row * 3 * h : NULL};
            for (int64_t j = 0; dy && j < h; j++)
                cell.dh[j] += dy[row * h + j];
            grad_gates(&rec, &cell);
            grad_state(&rec, &cell);
        }
    }
}

const esp_i_kind_t esp_i_kind_GRU = {
    .name = "gru",
    .min_in = 3,
    .max_in = 5,
    .n_out = 4,
    .family = ESP_FAMILY_RECURRENT,
    .infer = gru_infer,
    .dims = esp_i_rec_dims,
    .flops = gru_flops,
    .gradient = gru_gradient,
    .kernel = gru_kernel,
};

const esp_i_kind_t esp_i_kind_GRU_GRAD = {
    .name = "gru_grad",
    .min_in = 4,
    .max_in = 7,
    .n_out = 3,
    .family = ESP_FAMILY_RECURRENT,
    .outputs = grad_outputs,
    .infer = grad_infer,
    .dims = esp_i_rec_grad_dims,
    .linear = grad_linear,
    .flops = grad_flops,
    .kernel = grad_kernel,
};
