/* LSTM and LSTM_GRAD; graph/kinds/lstm.c has the equations. */
#include "exec/cpu/functions.h"
#include "exec/cpu/recurrent.h"
#include "exec/vector.h"

enum { R = ESP_I_REC_R, H0 = ESP_I_REC_H0, C0 };                  /* inputs of lstm */
enum { Y, H_LAST, C_LAST, GATES, CELLS };                         /* outputs of lstm */
enum { G_R, G_GATES, G_CELLS, G_C0, G_DY, G_DH_LAST, G_DC_LAST }; /* inputs of lstm_grad */
enum { D_GATES, D_H0, D_C0 };                                     /* outputs of lstm_grad */

/* One sample: what enters the gates becomes the gates; c: NULL is zeros. */
ESP_I_VECTOR static void cell(int64_t h, float *gate, const float *c, float *c_next, float *y)
{
    float *in = gate, *out = gate + h, *forget = gate + 2 * h, *candidate = gate + 3 * h;
    ESP_I_INDEPENDENT
    for (int64_t j = 0; j < h; j++) {
        const float i = esp_i_sigmoid(in[j]), o = esp_i_sigmoid(out[j]),
                    f = esp_i_sigmoid(forget[j]), a = esp_i_tanh(candidate[j]);
        const float next = (c ? f * c[j] : 0) + i * a;
        in[j] = i;
        out[j] = o;
        forget[j] = f;
        candidate[j] = a;
        c_next[j] = next;
        y[j] = o * esp_i_tanh(next);
    }
}

static void run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const esp_i_cpu_rec_t *rec = kernel->state;
    const int32_t out = kernel->call->n_in;
    const int64_t h = rec->hidden;
    const float *r = esp_i_cpu_data(kernel, R), *h0 = esp_i_cpu_rec_input(kernel, H0),
                *c0 = esp_i_cpu_rec_input(kernel, C0);
    float *y = esp_i_cpu_data(kernel, out + Y), *gates = esp_i_cpu_data(kernel, out + GATES),
          *cells = esp_i_cpu_data(kernel, out + CELLS);
    esp_i_cpu_rec_enter(kernel, gates, 4 * h, 4 * h);
    for (int64_t step = 0; step < rec->steps; step++) {
        float *gate = esp_i_cpu_rec_at(rec, gates, step, 4 * h);
        const float *c = esp_i_cpu_rec_before(rec, cells, c0, step);
        float *c_next = esp_i_cpu_rec_at(rec, cells, step, h),
              *y_next = esp_i_cpu_rec_at(rec, y, step, h);
        esp_i_cpu_rec_step(rec, esp_i_cpu_rec_before(rec, y, h0, step), r, 4 * h, gate, 4 * h);
        for (int64_t b = 0; b < rec->batch; b++)
            cell(h, gate + b * 4 * h, c ? c + b * h : NULL, c_next + b * h, y_next + b * h);
    }
    esp_i_cpu_rec_last(rec, y, esp_i_cpu_data(kernel, out + H_LAST));
    esp_i_cpu_rec_last(rec, cells, esp_i_cpu_data(kernel, out + C_LAST));
}

/* One sample: d of what enters the gates from dh and dc, which becomes that of the step before. */
ESP_I_VECTOR static void cell_back(int64_t h, const float *gate, const float *c,
                                   const float *c_next, const float *dh, float *d, float *dc)
{
    ESP_I_INDEPENDENT
    for (int64_t j = 0; j < h; j++) {
        const float i = gate[j], o = gate[h + j], f = gate[2 * h + j], a = gate[3 * h + j];
        const float squashed = esp_i_tanh(c_next[j]);
        const float dcell = dc[j] + dh[j] * o * (1 - squashed * squashed);
        d[j] = dcell * a * i * (1 - i);
        d[h + j] = dh[j] * squashed * o * (1 - o);
        d[2 * h + j] = dcell * (c ? c[j] : 0) * f * (1 - f);
        d[3 * h + j] = dcell * i * (1 - a * a);
        dc[j] = dcell * f;
    }
}

static void run_grad(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const esp_i_cpu_rec_t *rec = kernel->state;
    const int32_t out = kernel->call->n_in;
    const int64_t h = rec->hidden;
    const float *r = esp_i_cpu_data(kernel, G_R), *c0 = esp_i_cpu_rec_input(kernel, G_C0);
    float *gates = esp_i_cpu_data(kernel, G_GATES), *cells = esp_i_cpu_data(kernel, G_CELLS),
          *dy = esp_i_cpu_rec_input(kernel, G_DY), *dgates = esp_i_cpu_data(kernel, out + D_GATES),
          *dh = esp_i_cpu_data(kernel, out + D_H0), *dc = esp_i_cpu_data(kernel, out + D_C0);
    esp_i_cpu_rec_start(rec, esp_i_cpu_rec_input(kernel, G_DH_LAST), dh);
    esp_i_cpu_rec_start(rec, esp_i_cpu_rec_input(kernel, G_DC_LAST), dc);
    for (int64_t step = rec->steps - 1; step >= 0; step--) {
        const float *gate = esp_i_cpu_rec_at(rec, gates, step, 4 * h),
                    *c = esp_i_cpu_rec_before(rec, cells, c0, step),
                    *c_next = esp_i_cpu_rec_at(rec, cells, step, h);
        float *d = esp_i_cpu_rec_at(rec, dgates, step, 4 * h);
        esp_i_cpu_rec_add(rec, dy, step, dh);
        for (int64_t b = 0; b < rec->batch; b++)
            cell_back(h, gate + b * 4 * h, c ? c + b * h : NULL, c_next + b * h, dh + b * h,
                      d + b * 4 * h, dc + b * h);
        esp_i_cpu_rec_back(rec, d, 4 * h, r, 4 * h, 0, dh, h);
    }
}

esp_status_t esp_i_cpu_LSTM(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = run;
    return esp_i_cpu_rec_prepare(cpu, kernel, R, ESP_I_REC_X, diag);
}

esp_status_t esp_i_cpu_LSTM_GRAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = run_grad;
    return esp_i_cpu_rec_prepare(cpu, kernel, G_R, G_GATES, diag);
}
