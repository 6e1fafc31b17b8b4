/*
 * GRU and GRU_GRAD; graph/kinds/gru.c has the equations. "Linear": the reset gate acts on r h + b',
 * not on h.
 */
#include "exec/cpu/functions.h"
#include "exec/cpu/recurrent.h"
#include "exec/vector.h"

#include <string.h>

enum { R = ESP_I_REC_R, BIAS, H0 };                         /* inputs of gru */
enum { Y, H_LAST, GATES, RESET };                           /* outputs of gru */
enum { G_R, G_GATES, G_RESET, G_Y, G_H0, G_DY, G_DH_LAST }; /* inputs of gru_grad */
enum { D_GATES, D_H0, D_RECURRENT };                        /* outputs of gru_grad */

/* ---- forward ----------------------------------------------------------------------------- */

/* One sample. z and s, and s h (not linear) in `reset`; before: NULL is zeros. */
ESP_I_VECTOR static void open_gates(int64_t h, bool linear, float *gate, const float *before,
                                    float *reset)
{
    for (int64_t j = 0; j < 2 * h; j++)
        gate[j] = esp_i_sigmoid(gate[j]);
    for (int64_t j = 0; j < h && !linear; j++)
        reset[j] = before ? gate[h + j] * before[j] : 0;
}

/* One sample: n and h'; linear: `reset` is r h + b'. */
ESP_I_VECTOR static void cell(int64_t h, bool linear, float *gate, const float *before,
                              const float *reset, float *y)
{
    ESP_I_INDEPENDENT
    for (int64_t j = 0; j < h; j++) {
        const float z = gate[j], entering = linear ? gate[h + j] * reset[j] : 0;
        const float n = esp_i_tanh(gate[2 * h + j] + entering);
        gate[2 * h + j] = n;
        y[j] = (1 - z) * n + (before ? z * before[j] : 0);
    }
}

/* Rows of the second half of the bias of n, or zeros. */
static void enter_reset(const esp_i_cpu_rec_t *rec, const float *bias, float *reset)
{
    const int64_t h = rec->hidden;
    for (int64_t b = 0; b < rec->batch; b++, reset += h) {
        if (bias)
            memcpy(reset, bias + 5 * h, (size_t)h * sizeof *reset);
        else
            memset(reset, 0, (size_t)h * sizeof *reset);
    }
}

static void run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const esp_i_cpu_rec_t *rec = kernel->state;
    const int32_t out = kernel->call->n_in;
    const int64_t h = rec->hidden;
    const bool linear = kernel->call->attr->recurrent.linear_before_reset != 0;
    const float *r = esp_i_cpu_data(kernel, R), *r_n = r + 2 * h * h,
                *bias = esp_i_cpu_rec_input(kernel, BIAS), *h0 = esp_i_cpu_rec_input(kernel, H0);
    float *y = esp_i_cpu_data(kernel, out + Y), *gates = esp_i_cpu_data(kernel, out + GATES),
          *resets = esp_i_cpu_data(kernel, out + RESET);
    esp_i_cpu_rec_enter(kernel, gates, 3 * h, linear ? 2 * h : 3 * h);
    for (int64_t step = 0; step < rec->steps; step++) {
        float *gate = esp_i_cpu_rec_at(rec, gates, step, 3 * h),
              *reset = esp_i_cpu_rec_at(rec, resets, step, h),
              *y_next = esp_i_cpu_rec_at(rec, y, step, h);
        const float *before = esp_i_cpu_rec_before(rec, y, h0, step);
        esp_i_cpu_rec_step(rec, before, r, 2 * h, gate, 3 * h);
        if (linear)
            enter_reset(rec, bias, reset);
        for (int64_t b = 0; b < rec->batch; b++)
            open_gates(h, linear, gate + b * 3 * h, before ? before + b * h : NULL, reset + b * h);
        if (linear)
            esp_i_cpu_rec_step(rec, before, r_n, h, reset, h);
        else
            esp_i_cpu_rec_step(rec, reset, r_n, h, gate + 2 * h, 3 * h);
        for (int64_t b = 0; b < rec->batch; b++)
            cell(h, linear, gate + b * 3 * h, before ? before + b * h : NULL, reset + b * h,
                 y_next + b * h);
    }
    esp_i_cpu_rec_last(rec, y, esp_i_cpu_data(kernel, out + H_LAST));
}

/* ---- gradient ---------------------------------------------------------------------------- */

/* One sample: d of what enters z and n. */
ESP_I_VECTOR static void candidate_back(int64_t h, const float *gate, const float *before,
                                        const float *dh, float *d)
{
    ESP_I_INDEPENDENT
    for (int64_t j = 0; j < h; j++) {
        const float z = gate[j], n = gate[2 * h + j], old = before ? before[j] : 0;
        d[j] = dh[j] * (old - n) * z * (1 - z);
        d[2 * h + j] = dh[j] * (1 - z) * (1 - n * n);
    }
}

/* Linear: d of what enters s; `recurrent` is d of r h + b; dh becomes what goes around the gates.
 */
ESP_I_VECTOR static void reset_back_linear(int64_t h, const float *gate, const float *reset,
                                           float *d, float *recurrent, float *dh)
{
    ESP_I_INDEPENDENT
    for (int64_t j = 0; j < h; j++) {
        const float s = gate[h + j], dn = d[2 * h + j], ds = dn * reset[j] * s * (1 - s);
        d[h + j] = ds;
        recurrent[j] = d[j];
        recurrent[h + j] = ds;
        recurrent[2 * h + j] = dn * s;
        dh[j] *= gate[j];
    }
}

/* Not linear: d of s h is where d of what enters s will be. */
ESP_I_VECTOR static void reset_back(int64_t h, const float *gate, const float *before, float *d,
                                    float *dh)
{
    ESP_I_INDEPENDENT
    for (int64_t j = 0; j < h; j++) {
        const float s = gate[h + j], after = d[h + j];
        d[h + j] = after * (before ? before[j] : 0) * s * (1 - s);
        dh[j] = dh[j] * gate[j] + after * s;
    }
}

typedef struct step {
    const float *r, *gate, *reset, *before;
    float *d, *recurrent, *dh;
} step_t;

static void step_back(const esp_i_cpu_rec_t *rec, const step_t *at)
{
    const int64_t h = rec->hidden;
    for (int64_t b = 0; b < rec->batch; b++)
        candidate_back(h, at->gate + b * 3 * h, at->before ? at->before + b * h : NULL,
                       at->dh + b * h, at->d + b * 3 * h);
    if (!at->recurrent)
        esp_i_cpu_rec_back(rec, at->d + 2 * h, 3 * h, at->r + 2 * h * h, h, 0, at->d + h, 3 * h);
    for (int64_t b = 0; b < rec->batch; b++) {
        const float *gate = at->gate + b * 3 * h;
        float *d = at->d + b * 3 * h, *dh = at->dh + b * h;
        if (at->recurrent)
            reset_back_linear(h, gate, at->reset + b * h, d, at->recurrent + b * 3 * h, dh);
        else
            reset_back(h, gate, at->before ? at->before + b * h : NULL, d, dh);
    }
    if (at->recurrent)
        esp_i_cpu_rec_back(rec, at->recurrent, 3 * h, at->r, 3 * h, 1, at->dh, h);
    else
        esp_i_cpu_rec_back(rec, at->d, 3 * h, at->r, 2 * h, 1, at->dh, h);
}

static void run_grad(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const esp_i_cpu_rec_t *rec = kernel->state;
    const int32_t out = kernel->call->n_in;
    const int64_t h = rec->hidden;
    const float *h0 = esp_i_cpu_rec_input(kernel, G_H0);
    float *gates = esp_i_cpu_data(kernel, G_GATES), *resets = esp_i_cpu_data(kernel, G_RESET),
          *y = esp_i_cpu_data(kernel, G_Y), *dy = esp_i_cpu_rec_input(kernel, G_DY),
          *dgates = esp_i_cpu_data(kernel, out + D_GATES), *dh = esp_i_cpu_data(kernel, out + D_H0),
          *recurrent =
              kernel->call->n_out > D_RECURRENT ? esp_i_cpu_data(kernel, out + D_RECURRENT) : NULL;
    esp_i_cpu_rec_start(rec, esp_i_cpu_rec_input(kernel, G_DH_LAST), dh);
    for (int64_t step = rec->steps - 1; step >= 0; step--) {
        const step_t at = {.r = esp_i_cpu_data(kernel, G_R),
                           .gate = esp_i_cpu_rec_at(rec, gates, step, 3 * h),
                           .reset = esp_i_cpu_rec_at(rec, resets, step, h),
                           .before = esp_i_cpu_rec_before(rec, y, h0, step),
                           .d = esp_i_cpu_rec_at(rec, dgates, step, 3 * h),
                           .recurrent =
                               recurrent ? esp_i_cpu_rec_at(rec, recurrent, step, 3 * h) : NULL,
                           .dh = dh};
        esp_i_cpu_rec_add(rec, dy, step, dh);
        step_back(rec, &at);
    }
}

esp_status_t esp_i_cpu_GRU(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = run;
    return esp_i_cpu_rec_prepare(cpu, kernel, R, ESP_I_REC_X, diag);
}

esp_status_t esp_i_cpu_GRU_GRAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = run_grad;
    return esp_i_cpu_rec_prepare(cpu, kernel, G_R, G_GATES, diag);
}
