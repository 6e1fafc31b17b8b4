/* One step of an optimizer: w, g, [step], [m], [v], [scale] -> w', [m'], [v'], often in place. */
#include "exec/cpu/fast.h"
#include "exec/values.h"

#include <math.h>

enum { W, G, STEP, M, V, SCALE };

/* The numbers of a rule as the loops take them. */
typedef struct rule {
    float rate, momentum, decay, scale; /* of the gradient */
    float beta1, rest1, beta2, rest2;   /* rest: 1 - beta */
    float correct1, correct2;           /* 1 / (1 - beta^t) */
    float epsilon, outside;             /* decay that goes past the moments */
} rule_t;

ESP_I_VECTOR static void sgd(int64_t n, const rule_t *rule, const float *w, const float *g,
                             float *w_out)
{
    const rule_t p = *rule;
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        w_out[i] = w[i] - p.rate * (g[i] * p.scale + p.decay * w[i]);
}

ESP_I_VECTOR static void momentum(int64_t n, const rule_t *rule, const float *w, const float *g,
                                  const float *m, float *w_out, float *m_out)
{
    const rule_t p = *rule;
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float next = p.momentum * m[i] + g[i] * p.scale + p.decay * w[i];
        w_out[i] = w[i] - p.rate * next;
        m_out[i] = next;
    }
}

ESP_I_VECTOR static void adam(int64_t n, const rule_t *rule, const float *const *in,
                              float *const *out)
{
    const float *w = in[W], *g = in[G], *m = in[M], *v = in[V];
    float *w_out = out[0], *m_out = out[1], *v_out = out[2];
    const rule_t p = *rule;
    esp_dcheck(m && v && m_out && v_out);
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float h = g[i] * p.scale + p.decay * w[i];
        const float first = p.beta1 * m[i] + p.rest1 * h;
        const float second = p.beta2 * v[i] + p.rest2 * h * h;
        const float size = sqrtf(second * p.correct2) + p.epsilon;
        w_out[i] = w[i] - p.rate * (first * p.correct1 / size + p.outside * w[i]);
        m_out[i] = first;
        v_out[i] = second;
    }
}

ESP_I_VECTOR static void statistic(int64_t n, float weight, const float *w, const float *g,
                                   float *w_out)
{
    const float rest = 1 - weight;
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        w_out[i] = rest * w[i] + weight * g[i];
}

/* A scalar of any dtype; `otherwise` where the input is absent. */
static double scalar(const esp_i_cpu_kernel_t *kernel, int32_t input, double otherwise)
{
    double value = otherwise;
    if (input < kernel->call->n_in && esp_i_cpu_in(kernel, input)->place >= 0)
        esp_i_values_load(esp_i_cpu_in(kernel, input)->dtype, 1, esp_i_cpu_data(kernel, input),
                          &value);
    return value;
}

static rule_t rule_of(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const esp_attr_t *attr = kernel->call->attr;
    const double t = scalar(kernel, STEP, 1);
    const double beta1 = attr->update.beta1, beta2 = attr->update.beta2;
    const bool outside = attr->update.optimizer == ESP_OPTIMIZER_ADAMW;
    return (rule_t){.rate = (float)(attr->update.rate * moment->rate),
                    .momentum = (float)attr->update.momentum,
                    .decay = outside ? 0 : (float)attr->update.decay,
                    .scale = (float)scalar(kernel, SCALE, 1),
                    .beta1 = (float)beta1,
                    .rest1 = (float)(1 - beta1),
                    .beta2 = (float)beta2,
                    .rest2 = (float)(1 - beta2),
                    .correct1 = (float)(1 / (1 - pow(beta1, t))),
                    .correct2 = (float)(1 / (1 - pow(beta2, t))),
                    .epsilon = (float)attr->update.epsilon,
                    .outside = outside ? (float)attr->update.decay : 0};
}

static void update_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const int32_t n_in = kernel->call->n_in, n_out = kernel->call->n_out;
    const int64_t n = esp_i_cpu_out(kernel, 0)->elements;
    const float *in[SCALE + 1] = {NULL};
    float *out[3] = {NULL};
    for (int32_t i = 0; i < n_in; i++)
        in[i] = esp_i_cpu_data(kernel, i);
    for (int32_t i = 0; i < n_out; i++)
        out[i] = esp_i_cpu_data(kernel, n_in + i);
    const rule_t rule = rule_of(kernel, moment);
    esp_dcheck(in[W] && in[G] && out[0]);
    switch (kernel->call->attr->update.optimizer) {
    case ESP_OPTIMIZER_SGD:
        sgd(n, &rule, in[W], in[G], out[0]);
        return;
    case ESP_OPTIMIZER_MOMENTUM:
        esp_dcheck(in[M] && out[1]);
        momentum(n, &rule, in[W], in[G], in[M], out[0], out[1]);
        return;
    case ESP_OPTIMIZER_ADAM:
    case ESP_OPTIMIZER_ADAMW:
        adam(n, &rule, in, out);
        return;
    case ESP_OPTIMIZER_STATISTIC:
        statistic(n, rule.momentum, in[W], in[G], out[0]);
        return;
    }
}

esp_status_t esp_i_cpu_UPDATE(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    (void)cpu;
    (void)diag;
    kernel->run = update_run;
    return ESP_OK;
}
