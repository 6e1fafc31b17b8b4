/* RNN and RNN_GRAD; graph/kinds/rnn.c has the equations. y is where it is computed. */
#include "exec/cpu/functions.h"
#include "exec/cpu/recurrent.h"
#include "exec/vector.h"

enum { R = ESP_I_REC_R, H0 = ESP_I_REC_H0 }; /* inputs of rnn */
enum { Y, H_LAST };                          /* outputs of rnn */
enum { G_R, G_Y, G_DY, G_DH_LAST };          /* inputs of rnn_grad */
enum { D_GATES, D_H0 };                      /* outputs of rnn_grad */

ESP_I_VECTOR static void activate(int64_t n, bool relu, float *y)
{
    if (relu)
        for (int64_t i = 0; i < n; i++)
            y[i] = y[i] > 0 ? y[i] : 0;
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = esp_i_tanh(y[i]);
}

static void run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const esp_i_cpu_rec_t *rec = kernel->state;
    const int32_t out = kernel->call->n_in;
    const int64_t h = rec->hidden;
    const float *r = esp_i_cpu_data(kernel, R), *h0 = esp_i_cpu_rec_input(kernel, H0);
    float *y = esp_i_cpu_data(kernel, out + Y);
    esp_i_cpu_rec_enter(kernel, y, h, h);
    for (int64_t step = 0; step < rec->steps; step++) {
        float *at = esp_i_cpu_rec_at(rec, y, step, h);
        esp_i_cpu_rec_step(rec, esp_i_cpu_rec_before(rec, y, h0, step), r, h, at, h);
        activate(rec->batch * h, kernel->call->attr->recurrent.relu != 0, at);
    }
    esp_i_cpu_rec_last(rec, y, esp_i_cpu_data(kernel, out + H_LAST));
}

ESP_I_VECTOR static void activate_back(int64_t n, bool relu, const float *y, const float *dh,
                                       float *d)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        d[i] = dh[i] * (relu ? (y[i] > 0 ? 1.0f : 0.0f) : 1 - y[i] * y[i]);
}

static void run_grad(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const esp_i_cpu_rec_t *rec = kernel->state;
    const int32_t out = kernel->call->n_in;
    const int64_t h = rec->hidden;
    const float *r = esp_i_cpu_data(kernel, G_R);
    float *y = esp_i_cpu_data(kernel, G_Y), *dy = esp_i_cpu_rec_input(kernel, G_DY),
          *dgates = esp_i_cpu_data(kernel, out + D_GATES), *dh = esp_i_cpu_data(kernel, out + D_H0);
    esp_i_cpu_rec_start(rec, esp_i_cpu_rec_input(kernel, G_DH_LAST), dh);
    for (int64_t step = rec->steps - 1; step >= 0; step--) {
        float *d = esp_i_cpu_rec_at(rec, dgates, step, h);
        esp_i_cpu_rec_add(rec, dy, step, dh);
        activate_back(rec->batch * h, kernel->call->attr->recurrent.relu != 0,
                      esp_i_cpu_rec_at(rec, y, step, h), dh, d);
        esp_i_cpu_rec_back(rec, d, h, r, h, 0, dh, h);
    }
}

esp_status_t esp_i_cpu_RNN(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = run;
    return esp_i_cpu_rec_prepare(cpu, kernel, R, ESP_I_REC_X, diag);
}

esp_status_t esp_i_cpu_RNN_GRAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = run_grad;
    return esp_i_cpu_rec_prepare(cpu, kernel, G_R, G_Y, diag);
}
