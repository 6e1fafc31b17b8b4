/*
 * What LSTM, GRU and plain recurrent layers share, as graph/kinds/recurrent.h has it: sequences are
 * [t, b, width], weights [units, width], states [b, h]. The product of all inputs with w is one,
 * before the steps; each step multiplies a state with r. Results are computed where they are saved.
 */
#ifndef ESP_EXEC_CPU_RECURRENT_H
#define ESP_EXEC_CPU_RECURRENT_H

#include "exec/cpu/fast.h"
#include "graph/kinds/recurrent.h"

typedef struct esp_i_cpu_rec {
    int64_t steps, batch, hidden; /* batch: of this share */
    bool reverse;
} esp_i_cpu_rec_t;

/* Fills kernel->state, from operand `r` and some sequence of the call. */
esp_status_t esp_i_cpu_rec_prepare(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, int32_t r,
                                   int32_t sequence, esp_diag_t *diag);
/* Input i if it is there, else NULL. */
static inline float *esp_i_cpu_rec_input(const esp_i_cpu_kernel_t *kernel, int32_t i)
{
    return i < kernel->call->n_in ? esp_i_cpu_data(kernel, i) : NULL;
}

/* Where the rows of the element that is visited at `step` are in a sequence of that width. */
static inline float *esp_i_cpu_rec_at(const esp_i_cpu_rec_t *rec, float *sequence, int64_t step,
                                      int64_t width)
{
    return sequence + (rec->reverse ? rec->steps - 1 - step : step) * rec->batch * width;
}
/* The state before `step`: rows of `sequence`, or `initial`; NULL: zeros. */
const float *esp_i_cpu_rec_before(const esp_i_cpu_rec_t *rec, const float *sequence,
                                  const float *initial, int64_t step);
/*
 * gates[t, b, units] = w x + b, and b of the second half of the bias for the first `both` units, of
 * the inputs of a forward call.
 */
void esp_i_cpu_rec_enter(const esp_i_cpu_kernel_t *kernel, float *gates, int64_t units,
                         int64_t both);
/* out[b, units] (rows of `width`) += state r^T; r: rows of the units. A NULL state adds nothing. */
void esp_i_cpu_rec_step(const esp_i_cpu_rec_t *rec, const float *state, const float *r,
                        int64_t units, float *out, int64_t width);
/* dh[b, h] (rows of `lead`) = beta dh + d r, of d[b, units] with rows of `width` */
void esp_i_cpu_rec_back(const esp_i_cpu_rec_t *rec, const float *d, int64_t width, const float *r,
                        int64_t units, float beta, float *dh, int64_t lead);
/* Copies the rows of the last step into [b, h]. */
void esp_i_cpu_rec_last(const esp_i_cpu_rec_t *rec, const float *sequence, float *state);
/* Running gradient [b, h] = the gradient of the last state, or zeros; then += dy at a step if it is
 * there. */
void esp_i_cpu_rec_start(const esp_i_cpu_rec_t *rec, const float *last, float *running);
void esp_i_cpu_rec_add(const esp_i_cpu_rec_t *rec, float *dy, int64_t step, float *running);

#endif
