/* Softmax of x[before, n, after] along n: row by row where after is 1, else a tile of columns. */
#include "exec/cpu/fast.h"
#include "exec/cpu/functions.h"
#include "exec/cpu/sums.h"
#include "graph/kinds/operand.h"

enum { TILE = 256 };

typedef struct plan {
    int64_t before, n, after;
    bool log;
} plan_t;

static esp_status_t make_plan(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_buffer_t x = esp_i_cpu_buffer(kernel, 0);
    const int32_t axis = kernel->call->attr->axis.axis;
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(plan_t), diag));
    *(plan_t *)kernel->state = (plan_t){.before = esp_i_operand_span(&x, 0, axis),
                                        .n = x.global[axis],
                                        .after = esp_i_operand_span(&x, axis + 1, x.global_rank),
                                        .log = kernel->call->attr->axis.log != 0};
    return ESP_OK;
}

/* ---- rows ---------------------------------------------------------------------------------- */

ESP_I_VECTOR static void exp_row(int64_t n, const float *x, float top, float *y)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = esp_i_exp_below(x[i] - top);
}

ESP_I_VECTOR static void scale_row(int64_t n, float factor, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] *= factor;
}

ESP_I_VECTOR static void shift_row(int64_t n, const float *x, float top, float shift, float *y)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - top) - shift;
}

ESP_I_VECTOR static void grad_row(int64_t n, const float *y, const float *dy, float sum, float *dx)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] * (dy[i] - sum);
}

ESP_I_VECTOR static void log_grad_row(int64_t n, const float *y, const float *dy, float sum,
                                      float *dx)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] - esp_i_exp_below(y[i]) * sum;
}

static void softmax_row(const plan_t *plan, const float *x, float *y)
{
    const float top = esp_i_cpu_largest(plan->n, x);
    exp_row(plan->n, x, top, y);
    const double sum = esp_i_cpu_sum(plan->n, y);
    if (plan->log)
        shift_row(plan->n, x, top, (float)log(sum), y);
    else
        scale_row(plan->n, (float)(1 / sum), y);
}

static void softmax_grad_row(const plan_t *plan, const float *y, const float *dy, float *dx)
{
    if (plan->log)
        log_grad_row(plan->n, y, dy, (float)esp_i_cpu_sum(plan->n, dy), dx);
    else
        grad_row(plan->n, y, dy, (float)esp_i_cpu_dot(plan->n, y, dy), dx);
}

/* ---- columns: m of them, each `plan->after` apart from element to element ----------------------
 */

ESP_I_VECTOR static void softmax_columns(const plan_t *plan, int64_t m, const float *x, float *y)
{
    float top[TILE], sum[TILE];
    for (int64_t j = 0; j < m; j++) {
        top[j] = -INFINITY;
        sum[j] = 0;
    }
    for (int64_t i = 0; i < plan->n; i++)
        for (int64_t j = 0; j < m; j++) {
            const float value = x[i * plan->after + j];
            top[j] = top[j] >= value || top[j] != top[j] ? top[j] : value;
        }
    for (int64_t i = 0; i < plan->n; i++)
        for (int64_t j = 0; j < m; j++) {
            const float e = esp_i_exp_below(x[i * plan->after + j] - top[j]);
            y[i * plan->after + j] = e;
            sum[j] += e;
        }
    for (int64_t j = 0; j < m; j++)
        sum[j] = plan->log ? esp_i_log(sum[j]) : 1 / sum[j];
    for (int64_t i = 0; i < plan->n; i++) {
        const float *from = x + i * plan->after;
        float *to = y + i * plan->after;
        for (int64_t j = 0; j < m; j++)
            to[j] = plan->log ? (from[j] - top[j]) - sum[j] : to[j] * sum[j];
    }
}

ESP_I_VECTOR static void grad_columns(const plan_t *plan, int64_t m, const float *y,
                                      const float *dy, float *dx)
{
    float sum[TILE];
    for (int64_t j = 0; j < m; j++)
        sum[j] = 0;
    for (int64_t i = 0; i < plan->n; i++)
        for (int64_t j = 0; j < m; j++) {
            const int64_t at = i * plan->after + j;
            sum[j] += plan->log ? dy[at] : dy[at] * y[at];
        }
    for (int64_t i = 0; i < plan->n; i++) {
        const int64_t at = i * plan->after;
        if (plan->log) {
            ESP_I_INDEPENDENT
            for (int64_t j = 0; j < m; j++)
                dx[at + j] = dy[at + j] - esp_i_exp_below(y[at + j]) * sum[j];
        } else {
            ESP_I_INDEPENDENT
            for (int64_t j = 0; j < m; j++)
                dx[at + j] = y[at + j] * (dy[at + j] - sum[j]);
        }
    }
}

/* ---- the kinds ----------------------------------------------------------------------------- */

static void softmax_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const float *x = esp_i_cpu_data(kernel, 0);
    float *y = esp_i_cpu_data(kernel, 1);
    (void)moment;
    for (int64_t b = 0; b < plan->before; b++) {
        const int64_t at = b * plan->n * plan->after;
        if (plan->after == 1)
            softmax_row(plan, x + at, y + at);
        for (int64_t a = 0; plan->after > 1 && a < plan->after; a += TILE)
            softmax_columns(plan, esp_i_min_i64(plan->after - a, TILE), x + at + a, y + at + a);
    }
}

static void grad_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const float *y = esp_i_cpu_data(kernel, 0), *dy = esp_i_cpu_data(kernel, 1);
    float *dx = esp_i_cpu_data(kernel, 2);
    (void)moment;
    for (int64_t b = 0; b < plan->before; b++) {
        const int64_t at = b * plan->n * plan->after;
        if (plan->after == 1)
            softmax_grad_row(plan, y + at, dy + at, dx + at);
        for (int64_t a = at; plan->after > 1 && a < at + plan->after; a += TILE)
            grad_columns(plan, esp_i_min_i64(at + plan->after - a, TILE), y + a, dy + a, dx + a);
    }
}

esp_status_t esp_i_cpu_SOFTMAX(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = softmax_run;
    return make_plan(cpu, kernel, diag);
}

esp_status_t esp_i_cpu_SOFTMAX_GRAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = grad_run;
    return make_plan(cpu, kernel, diag);
}
