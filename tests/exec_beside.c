#include "exec_beside.h"

#include "deploy_interp.h"
#include "exec/kernels.h"
#include "exec/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-10 /* relative to the largest element */
#define NOISE     1e-13

enum { MOST_STEPS = 8 };

static double *doubles(int64_t n)
{
    double *values = calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    return values;
}

void beside_lower(bench_t *bench, plan_of_t *plan, const esp_deployment_t **deployment_out)
{
    esp_diag_t *diag = &bench->diag;
    esp_status_t status = esp_lower(bench->lowerer, &plan->strategy, deployment_out, diag);
    if (status == ESP_ERR_ARGUMENT && strstr(diag->text, "where they are made")) {
        plan->strategy.sync_batchnorm = 1;
        plan->strategy.micro_batches = 1;
        status = esp_lower(bench->lowerer, &plan->strategy, deployment_out, diag);
    }
    test_assert_ok(status, diag);
    test_assert_ok(esp_deployment_pack(bench->lowerer, diag), diag);
}

static esp_status_t feed_input(void *context, uint64_t step, esp_tensor_id_t tensor,
                               esp_view_t view, int64_t offset, int64_t share, void *values_out,
                               esp_diag_t *diag)
{
    const beside_t *beside = context;
    const esp_graph_t *g = beside->graph;
    const esp_dtype_t dtype = esp_i_stored_dtype((esp_dtype_t)g->tensor_dtype[tensor], true);
    esp_i_buffer_t rows = buffer_of(g, tensor, view, offset, share);
    double *whole = doubles(g->tensor_elements[tensor]);
    (void)diag;
    rows.data = buffer_alloc(&rows);
    interp_default(g, tensor, beside->seed, step, whole);
    buffer_take(&rows, whole);
    esp_i_values_store(dtype, esp_i_buffer_elements(&rows), rows.data, values_out);
    free(rows.data);
    free(whole);
    return ESP_OK;
}

esp_exec_feed_t beside_feed(beside_t *beside)
{
    return (esp_exec_feed_t){.context = beside, .input = feed_input};
}

void beside_set(const beside_t *beside, esp_exec_t *exec)
{
    const esp_graph_t *g = beside->graph;
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        if (g->tensor_next[t] == ESP_NONE && g->tensor_role[t] != ESP_ROLE_FROZEN)
            continue;
        const int64_t n = g->tensor_elements[t];
        double *values = doubles(n), *stored = doubles(n);
        esp_diag_t diag = {0};
        interp_default(g, t, beside->seed, 0, values);
        esp_i_values_store(esp_i_stored_dtype((esp_dtype_t)g->tensor_dtype[t], true), n, values,
                           stored);
        test_assert_ok(esp_exec_set(exec, t, stored, &diag), &diag);
        free(values);
        free(stored);
    }
}

void beside_get(const beside_t *beside, esp_exec_t *exec, esp_tensor_id_t tensor, double *values)
{
    const esp_graph_t *g = beside->graph;
    double *stored = doubles(g->tensor_elements[tensor]);
    esp_diag_t diag = {0};
    test_assert_ok(esp_exec_get(exec, tensor, stored, &diag), &diag);
    esp_i_values_load(esp_i_stored_dtype((esp_dtype_t)g->tensor_dtype[tensor], true),
                      g->tensor_elements[tensor], stored, values);
    free(stored);
}

static void compare(const beside_t *beside, esp_exec_t *exec, const deploy_interp_t *interp,
                    esp_tensor_id_t tensor, int32_t step)
{
    const esp_graph_t *g = beside->graph;
    const int64_t n = g->tensor_elements[tensor];
    double *expected = doubles(n), *actual = doubles(n), largest = 0;
    deploy_interp_read(interp, tensor, expected);
    beside_get(beside, exec, tensor, actual);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(actual[i] - expected[i]) <= TOLERANCE * largest + NOISE))
            fail_msg("%s, seed %llu: %s[%lld] is %.17g after step %d, not %.17g", beside->what,
                     (unsigned long long)beside->seed, g->tensor_name[tensor], (long long)i,
                     actual[i], step, expected[i]);
    free(expected);
    free(actual);
}

void beside_compare(beside_t *beside, const esp_deployment_t *deployment, esp_exec_t *exec,
                    int32_t steps)
{
    const esp_graph_t *g = beside->graph;
    const esp_exec_feed_t feed = beside_feed(beside);
    deploy_interp_t *interp = deploy_interp_new(deployment, beside->seed);
    double loss[MOST_STEPS];
    esp_diag_t diag = {0};
    assert_true(steps > 0 && steps <= MOST_STEPS);
    beside_set(beside, exec);
    test_assert_ok(esp_exec_run(exec, 1, &feed, loss, &diag), &diag);
    test_assert_ok(esp_exec_run(exec, steps - 1, &feed, loss + 1, &diag), &diag);
    assert_int_equal(esp_exec_step(exec), steps);
    for (int32_t step = 0; step < steps; step++) {
        deploy_interp_step(interp);
        const double expected = deploy_interp_loss(interp);
        if (!(fabs(loss[step] - expected) <= TOLERANCE * fabs(expected) + NOISE))
            fail_msg("%s, seed %llu: the loss of step %d is %.17g, not %.17g", beside->what,
                     (unsigned long long)beside->seed, step, loss[step], expected);
    }
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++)
        if (g->tensor_next[t] != ESP_NONE)
            compare(beside, exec, interp, t, steps);
    deploy_interp_free(interp);
}
