/* Layer and RMS normalisation, row by row. */
#include "exec/cpu/fast.h"
#include "exec/cpu/sums.h"
#include "graph/kinds/operand.h"

#include <math.h>
#include <string.h>

enum { X, GAMMA, BETA };
enum { G_X, G_GAMMA, G_MEAN, G_RSTD, G_DY };

typedef struct plan {
    int64_t rows, d;
} plan_t;

static esp_status_t make_plan(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_buffer_t x = esp_i_cpu_buffer(kernel, X);
    const int32_t axis = kernel->call->attr->norm.axis;
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(plan_t), diag));
    *(plan_t *)kernel->state =
        (plan_t){esp_i_operand_span(&x, 0, axis), esp_i_operand_span(&x, axis, x.global_rank)};
    return ESP_OK;
}

ESP_I_VECTOR static void norm_row(int64_t n, const float *x, float mean, float rstd,
                                  const float *gamma, const float *beta, float *y)
{
    if (beta == NULL) {
        ESP_I_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * gamma[i];
    } else {
        ESP_I_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
    }
}

static void norm_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const esp_attr_t *attr = kernel->call->attr;
    const int32_t n_in = kernel->call->n_in;
    const float *gamma = esp_i_cpu_data(kernel, GAMMA);
    const float *beta = n_in > BETA ? esp_i_cpu_data(kernel, BETA) : NULL;
    float *mean_out = esp_i_cpu_data(kernel, n_in + 1);
    float *rstd_out = esp_i_cpu_data(kernel, n_in + 2);
    const double d = (double)plan->d;
    (void)moment;
    for (int64_t r = 0; r < plan->rows; r++) {
        const float *x = (const float *)esp_i_cpu_data(kernel, X) + r * plan->d;
        float *y = (float *)esp_i_cpu_data(kernel, n_in) + r * plan->d;
        const float mean = attr->norm.rms ? 0 : (float)(esp_i_cpu_sum(plan->d, x) / d);
        const double variance = esp_i_cpu_shifted_squares(plan->d, x, mean) / d;
        const double rstd = 1 / sqrt(variance + attr->norm.epsilon);
        norm_row(plan->d, x, mean, (float)rstd, gamma, beta, y);
        mean_out[r] = mean;
        rstd_out[r] = (float)rstd;
    }
}

esp_status_t esp_i_cpu_LAYERNORM(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = norm_run;
    return make_plan(cpu, kernel, diag);
}

/* ---- gradient ------------------------------------------------------------------------------ */

/* dx = a dy gamma + b (x - mean) + shift */
ESP_I_VECTOR static void grad_row(int64_t n, const float *x, const float *dy, const float *gamma,
                                  float mean, float a, float b, float shift, float *dx)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = a * (dy[i] * gamma[i]) + ((x[i] - mean) * b + shift);
}

ESP_I_VECTOR static void add_columns(int64_t n, const float *x, const float *dy, float mean,
                                     float rstd, float *dgamma, float *dbeta)
{
    for (int64_t i = 0; i < n; i++) {
        dgamma[i] += dy[i] * ((x[i] - mean) * rstd);
        dbeta[i] += dy[i];
    }
}

static void grad_x(const esp_i_cpu_kernel_t *kernel, int64_t r)
{
    const plan_t *plan = kernel->state;
    const int64_t d = plan->d;
    const float *x = (const float *)esp_i_cpu_data(kernel, G_X) + r * d;
    const float *dy = (const float *)esp_i_cpu_data(kernel, G_DY) + r * d;
    const float *gamma = esp_i_cpu_data(kernel, G_GAMMA);
    const float mean = ((const float *)esp_i_cpu_data(kernel, G_MEAN))[r];
    const double rstd = (double)((const float *)esp_i_cpu_data(kernel, G_RSTD))[r];
    const double mean_g =
        kernel->call->attr->norm.rms ? 0 : esp_i_cpu_dot(d, dy, gamma) / (double)d;
    const double mean_gx = rstd * esp_i_cpu_shifted_dot3(d, x, mean, dy, gamma) / (double)d;
    grad_row(d, x, dy, gamma, mean, (float)rstd, (float)(-rstd * rstd * mean_gx),
             (float)(-rstd * mean_g), (float *)esp_i_cpu_data(kernel, 5) + r * d);
}

/* Adds what rows [from, to) give to dgamma and dbeta: in float over the rows of a block, blocks
 * one after the other. */
static void grad_gamma(const esp_i_cpu_kernel_t *kernel, int64_t from, int64_t to)
{
    enum { TILE = 512 };
    const plan_t *plan = kernel->state;
    const float *x = esp_i_cpu_data(kernel, G_X), *dy = esp_i_cpu_data(kernel, G_DY);
    const float *mean = esp_i_cpu_data(kernel, G_MEAN), *rstd = esp_i_cpu_data(kernel, G_RSTD);
    float *dgamma = esp_i_cpu_data(kernel, 6), *dbeta = esp_i_cpu_data(kernel, 7);
    float gamma_tile[TILE], beta_tile[TILE];
    for (int64_t at = 0; at < plan->d; at += TILE) {
        const int64_t m = esp_i_min_i64(plan->d - at, TILE);
        memset(gamma_tile, 0, sizeof gamma_tile);
        memset(beta_tile, 0, sizeof beta_tile);
        for (int64_t r = from; r < to; r++)
            add_columns(m, x + r * plan->d + at, dy + r * plan->d + at, mean[r], rstd[r],
                        gamma_tile, beta_tile);
        for (int64_t i = 0; i < m; i++) {
            dgamma[at + i] += gamma_tile[i];
            dbeta[at + i] += beta_tile[i];
        }
    }
}

static void grad_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    enum { ROWS = 32 }; /* of a block: they are still near when they are read again */
    const plan_t *plan = kernel->state;
    (void)moment;
    memset(esp_i_cpu_data(kernel, 6), 0, (size_t)plan->d * sizeof(float));
    memset(esp_i_cpu_data(kernel, 7), 0, (size_t)plan->d * sizeof(float));
    for (int64_t from = 0; from < plan->rows; from += ROWS) {
        const int64_t to = esp_i_min_i64(plan->rows, from + ROWS);
        for (int64_t r = from; r < to; r++)
            grad_x(kernel, r);
        grad_gamma(kernel, from, to);
    }
}

esp_status_t esp_i_cpu_LAYERNORM_GRAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel,
                                      esp_diag_t *diag)
{
    kernel->run = grad_run;
    return make_plan(cpu, kernel, diag);
}
