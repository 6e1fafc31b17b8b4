/*
 * Batch normalisation of x[n, c, s]. What is needed per channel is worked out for a tile of
 * channels at a time; where s is 1, loops run over the channels of a row instead of over s.
 */
#include "exec/cpu/fast.h"
#include "exec/cpu/sums.h"
#include "graph/kinds/operand.h"

#include <math.h>
#include <string.h>

enum { TILE = 256 };

typedef struct plan {
    int64_t n, c, s;
    double count; /* elements per channel that the sums at hand run over */
} plan_t;

/* y = a dy + b (x - mean) + shift, per channel of a tile */
typedef struct tile {
    float mean[TILE], a[TILE], b[TILE], shift[TILE];
} tile_t;

static esp_status_t make_plan(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_buffer_t x = esp_i_cpu_buffer(kernel, 0);
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(plan_t), diag));
    plan_t *plan = kernel->state;
    *plan = (plan_t){.n = esp_i_operand_span(&x, 0, 1),
                     .c = esp_i_operand_span(&x, 1, 2),
                     .s = esp_i_operand_span(&x, 2, x.global_rank)};
    plan->count = kernel->call->local_batchnorm ? (double)(plan->n * plan->s)
                                                : (double)kernel->call->attr->norm.count;
    return ESP_OK;
}

typedef struct moments {
    double mean, variance, rstd;
} moments_t;

static moments_t moments_of(const esp_i_cpu_kernel_t *kernel, int64_t channel)
{
    const plan_t *plan = kernel->state;
    const float *sum = esp_i_cpu_data(kernel, 1), *sumsq = esp_i_cpu_data(kernel, 2);
    const double mean = (double)sum[channel] / plan->count;
    const double variance = fmax(0, (double)sumsq[channel] / plan->count - mean * mean);
    return (moments_t){mean, variance, 1 / sqrt(variance + kernel->call->attr->norm.epsilon)};
}

/* ---- sums over x, or over dy and x --------------------------------------------------------- */

/* Sums of one channel: (x, x^2), or (dy, dy (x - mean)) if there is dy. */
static void sum_channel(const plan_t *plan, int64_t channel, const float *x, const float *dy,
                        float mean, double sum_out[2])
{
    enum { PIECE = 2048 }; /* is near when it is summed up the second time */
    sum_out[0] = sum_out[1] = 0;
    for (int64_t n = 0; n < plan->n; n++) {
        const int64_t row = (n * plan->c + channel) * plan->s;
        for (int64_t at = 0; at < plan->s; at += PIECE) {
            const int64_t m = esp_i_min_i64(plan->s - at, PIECE), i = row + at;
            sum_out[0] += esp_i_cpu_sum(m, dy != NULL ? dy + i : x + i);
            sum_out[1] += dy != NULL ? esp_i_cpu_shifted_dot(m, x + i, mean, dy + i)
                                     : esp_i_cpu_sum_squares(m, x + i);
        }
    }
}

ESP_I_VECTOR static void add_grad_row(int64_t n, const float *x, const float *dy, const float *mean,
                                      double *sum, double *product)
{
    for (int64_t i = 0; i < n; i++) {
        sum[i] += (double)dy[i];
        product[i] += (double)dy[i] * (double)(x[i] - mean[i]);
    }
}

/* The same of m channels from `first` where s is 1. */
static void sum_tile(const plan_t *plan, int64_t first, int64_t m, const float *x, const float *dy,
                     const float *mean, double *sum, double *product)
{
    memset(sum, 0, (size_t)m * sizeof *sum);
    memset(product, 0, (size_t)m * sizeof *product);
    for (int64_t n = 0; n < plan->n; n++) {
        const int64_t row = n * plan->c + first;
        if (dy != NULL)
            add_grad_row(m, x + row, dy + row, mean, sum, product);
        else
            esp_i_cpu_sum_columns(m, x + row, sum, product);
    }
}

static void sums_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const int32_t n_in = kernel->call->n_in;
    const float *x = esp_i_cpu_data(kernel, 0);
    const float *dy = n_in > 1 ? esp_i_cpu_data(kernel, 3) : NULL;
    float *first_out = esp_i_cpu_data(kernel, n_in), *second_out = esp_i_cpu_data(kernel, n_in + 1);
    float mean[TILE] = {0};
    double rstd[TILE], sum[TILE], product[TILE];
    (void)moment;
    for (int64_t first = 0; first < plan->c; first += TILE) {
        const int64_t m = esp_i_min_i64(plan->c - first, TILE);
        for (int64_t i = 0; i < m; i++) {
            const moments_t moments =
                dy != NULL ? moments_of(kernel, first + i) : (moments_t){.rstd = 1};
            mean[i] = (float)moments.mean;
            rstd[i] = moments.rstd;
        }
        if (plan->s == 1)
            sum_tile(plan, first, m, x, dy, mean, sum, product);
        for (int64_t i = 0; i < m; i++) {
            double of_channel[2] = {sum[i], product[i]};
            if (plan->s != 1)
                sum_channel(plan, first + i, x, dy, mean[i], of_channel);
            first_out[first + i] = (float)of_channel[0];
            /* of nothing: 0, whatever the deviation */
            second_out[first + i] = plan->n * plan->s == 0 ? 0 : (float)(of_channel[1] * rstd[i]);
        }
    }
}

esp_status_t esp_i_cpu_BN_STATS(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = sums_run;
    return make_plan(cpu, kernel, diag);
}

esp_status_t esp_i_cpu_BN_GRAD_STATS(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = sums_run;
    return make_plan(cpu, kernel, diag);
}

/* ---- y and dx ------------------------------------------------------------------------------ */

ESP_I_VECTOR static void norm_row(int64_t n, const float *x, float mean, float b, float shift,
                                  float *y)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * b + shift;
}

ESP_I_VECTOR static void grad_row(int64_t n, const float *x, const float *dy, float mean, float a,
                                  float b, float shift, float *y)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = a * dy[i] + ((x[i] - mean) * b + shift);
}

/* One element of each channel; dy NULL: none. */
ESP_I_VECTOR static void channels_row(int64_t n, const tile_t *tile, const float *x,
                                      const float *dy, float *y)
{
    if (dy == NULL) {
        ESP_I_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - tile->mean[i]) * tile->b[i] + tile->shift[i];
    } else {
        ESP_I_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            y[i] = tile->a[i] * dy[i] + ((x[i] - tile->mean[i]) * tile->b[i] + tile->shift[i]);
    }
}

/* m channels from `first`. */
static void apply(const plan_t *plan, int64_t first, int64_t m, const tile_t *tile, const float *x,
                  const float *dy, float *y)
{
    for (int64_t n = 0; n < plan->n; n++) {
        int64_t at = (n * plan->c + first) * plan->s;
        if (plan->s == 1) {
            channels_row(m, tile, x + at, dy != NULL ? dy + at : NULL, y + at);
            continue;
        }
        for (int64_t i = 0; i < m; i++, at += plan->s) {
            if (dy == NULL)
                norm_row(plan->s, x + at, tile->mean[i], tile->b[i], tile->shift[i], y + at);
            else
                grad_row(plan->s, x + at, dy + at, tile->mean[i], tile->a[i], tile->b[i],
                         tile->shift[i], y + at);
        }
    }
}

/* x, sum, sumsq, gamma, beta -> y, mean, variance */
static void norm_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const float *gamma = esp_i_cpu_data(kernel, 3), *beta = esp_i_cpu_data(kernel, 4);
    float *mean_out = esp_i_cpu_data(kernel, 6), *variance_out = esp_i_cpu_data(kernel, 7);
    const double part = (double)(plan->n * plan->s);
    const double share = part / (double)kernel->call->attr->norm.count;
    const double unbias = plan->count > 1 ? plan->count / (plan->count - 1) : 1;
    tile_t tile;
    (void)moment;
    for (int64_t first = 0; first < plan->c; first += TILE) {
        const int64_t m = esp_i_min_i64(plan->c - first, TILE);
        for (int64_t i = 0; i < m; i++) {
            const moments_t moments = moments_of(kernel, first + i);
            mean_out[first + i] = part > 0 ? (float)(share * moments.mean) : 0;
            variance_out[first + i] = part > 0 ? (float)(share * moments.variance * unbias) : 0;
            tile.mean[i] = (float)moments.mean;
            tile.b[i] = (float)((double)gamma[first + i] * moments.rstd);
            tile.shift[i] = beta[first + i];
        }
        apply(plan, first, m, &tile, esp_i_cpu_data(kernel, 0), NULL, esp_i_cpu_data(kernel, 5));
    }
}

esp_status_t esp_i_cpu_BN_NORM(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = norm_run;
    return make_plan(cpu, kernel, diag);
}

/* x, sum, sumsq, gamma, dy, dbeta, dgamma -> dx */
static void grad_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const float *gamma = esp_i_cpu_data(kernel, 3);
    const float *dbeta = esp_i_cpu_data(kernel, 5), *dgamma = esp_i_cpu_data(kernel, 6);
    tile_t tile;
    (void)moment;
    for (int64_t first = 0; first < plan->c; first += TILE) {
        const int64_t m = esp_i_min_i64(plan->c - first, TILE);
        for (int64_t i = 0; i < m; i++) {
            const moments_t moments = moments_of(kernel, first + i);
            const double scale = (double)gamma[first + i] * moments.rstd;
            tile.mean[i] = (float)moments.mean;
            tile.a[i] = (float)scale;
            tile.b[i] = (float)(-scale * moments.rstd * (double)dgamma[first + i] / plan->count);
            tile.shift[i] = (float)(-scale * (double)dbeta[first + i] / plan->count);
        }
        apply(plan, first, m, &tile, esp_i_cpu_data(kernel, 0), esp_i_cpu_data(kernel, 4),
              esp_i_cpu_data(kernel, 7));
    }
}

esp_status_t esp_i_cpu_BN_GRAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = grad_run;
    return make_plan(cpu, kernel, diag);
}
