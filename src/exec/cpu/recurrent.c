/* What LSTM, GRU and plain recurrent layers share. */
#include "exec/cpu/recurrent.h"
#include "exec/vector.h"

#include <string.h>

enum { X = ESP_I_REC_X, W, R, BIAS };

esp_status_t esp_i_cpu_rec_prepare(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, int32_t r,
                                   int32_t sequence, esp_diag_t *diag)
{
    ESP_TRY(esp_i_cpu_float32(kernel, 0, diag));
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(esp_i_cpu_rec_t), diag));
    const esp_i_local_t *x = esp_i_cpu_in(kernel, sequence);
    *(esp_i_cpu_rec_t *)kernel->state =
        (esp_i_cpu_rec_t){.steps = x->global[0],
                          .batch = x->elements / (x->global[0] * x->global[2]),
                          .hidden = esp_i_cpu_in(kernel, r)->global[1],
                          .reverse = kernel->call->attr->recurrent.reverse != 0};
    return ESP_OK;
}

const float *esp_i_cpu_rec_before(const esp_i_cpu_rec_t *rec, const float *sequence,
                                  const float *initial, int64_t step)
{
    if (step == 0)
        return initial;
    const int64_t time = rec->reverse ? rec->steps - step : step - 1;
    return sequence + time * rec->batch * rec->hidden;
}

void esp_i_cpu_rec_enter(const esp_i_cpu_kernel_t *kernel, float *gates, int64_t units,
                         int64_t both)
{
    const esp_i_cpu_rec_t *rec = kernel->state;
    const float *bias = esp_i_cpu_rec_input(kernel, BIAS);
    const int64_t rows = rec->steps * rec->batch, inputs = esp_i_cpu_in(kernel, X)->global[2];
    for (int64_t row = 0; bias && row < rows; row++)
        for (int64_t unit = 0; unit < units; unit++)
            gates[row * units + unit] = bias[unit] + (unit < both ? bias[units + unit] : 0);
    esp_i_cpu_gemm(false, true, rows, units, inputs, 1, esp_i_cpu_data(kernel, X), inputs,
                   esp_i_cpu_data(kernel, W), inputs, bias != NULL, gates, units);
}

void esp_i_cpu_rec_step(const esp_i_cpu_rec_t *rec, const float *state, const float *r,
                        int64_t units, float *out, int64_t width)
{
    if (state)
        esp_i_cpu_gemm(false, true, rec->batch, units, rec->hidden, 1, state, rec->hidden, r,
                       rec->hidden, 1, out, width);
}

void esp_i_cpu_rec_back(const esp_i_cpu_rec_t *rec, const float *d, int64_t width, const float *r,
                        int64_t units, float beta, float *dh, int64_t lead)
{
    esp_i_cpu_gemm(false, false, rec->batch, rec->hidden, units, 1, d, width, r, rec->hidden, beta,
                   dh, lead);
}

void esp_i_cpu_rec_last(const esp_i_cpu_rec_t *rec, const float *sequence, float *state)
{
    const int64_t n = rec->batch * rec->hidden;
    memcpy(state, sequence + (rec->reverse ? 0 : rec->steps - 1) * n, (size_t)n * sizeof *state);
}

void esp_i_cpu_rec_start(const esp_i_cpu_rec_t *rec, const float *last, float *running)
{
    const size_t bytes = (size_t)(rec->batch * rec->hidden) * sizeof *running;
    if (last)
        memcpy(running, last, bytes);
    else
        memset(running, 0, bytes);
}

ESP_I_VECTOR static void add(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

void esp_i_cpu_rec_add(const esp_i_cpu_rec_t *rec, float *dy, int64_t step, float *running)
{
    if (dy)
        add(rec->batch * rec->hidden, esp_i_cpu_rec_at(rec, dy, step, rec->hidden), running);
}
