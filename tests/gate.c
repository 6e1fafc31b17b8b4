/* Runs deployments beside the undistributed graph. */
#include "gate.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-10 /* relative to the largest element of a tensor */
#define NOISE     1e-14 /* absolute: of what is zero in exact arithmetic */

void gate_init(gate_t *gate, esp_graph_t *graph)
{
    esp_diag_t diag = {0};
    memset(gate, 0, sizeof *gate);
    gate->graph = graph;
    gate->reference = graph;
    gate->steps = 10;
    gate->seed = 7;
    gate->given = ESP_NONE;
    gate->what = graph->name;
    gate->cluster[0] = cluster_mixed();
    gate->cluster[1] = cluster_uniform(4);
    test_assert_ok(esp_sim_create(NULL, &gate->sim), NULL);
    for (int32_t i = 0; i < GATE_CLUSTERS; i++) {
        test_assert_ok(esp_cost_create(graph, gate->cluster[i], ESP_PRECISION_FP32, NULL,
                                       &gate->cost[i], &diag),
                       &diag);
        test_assert_ok(esp_lowerer_create(gate->cost[i], NULL, &gate->lowerer[i], &diag), &diag);
    }
}

void gate_fini(gate_t *gate)
{
    for (int32_t i = 0; i < GATE_CLUSTERS; i++) {
        esp_lowerer_destroy(gate->lowerer[i]);
        esp_cost_destroy(gate->cost[i]);
        esp_cluster_destroy(gate->cluster[i]);
    }
    esp_sim_destroy(gate->sim);
    esp_graph_destroy(gate->graph);
    esp_graph_destroy(gate->owned_reference);
}

void gate_reference(gate_t *gate, esp_graph_t *reference)
{
    esp_graph_destroy(gate->owned_reference);
    gate->owned_reference = reference;
    gate->reference = reference;
}

esp_tensor_id_t gate_tensor(const esp_graph_t *graph, const char *name)
{
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++)
        if (strcmp(graph->tensor_name[t], name) == 0)
            return t;
    fail_msg("no tensor is called %s", name);
    return ESP_NONE;
}

/* ---- comparing --------------------------------------------------------------------------- */

static double norm(const double *values, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(values[i]));
    return largest;
}

static void compare(const gate_t *gate, const deploy_interp_t *deployed, const interp_t *whole,
                    esp_tensor_id_t tensor, int32_t step)
{
    const esp_graph_t *g = gate->graph;
    const int64_t n = g->tensor_elements[tensor];
    const esp_tensor_id_t twin = gate_tensor(gate->reference, g->tensor_name[tensor]);
    const double *expected = interp_get(whole, twin);
    double *actual = calloc((size_t)n + 1, sizeof *actual);
    assert_non_null(actual);
    assert_int_equal(gate->reference->tensor_elements[twin], n);
    deploy_interp_read(deployed, tensor, actual);
    const double allowed = TOLERANCE * norm(expected, n) + NOISE;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(actual[i] - expected[i]) <= allowed))
            fail_msg("%s, seed %llu: %s[%lld] is %.17g after step %d, not %.17g", gate->what,
                     (unsigned long long)gate->seed, g->tensor_name[tensor], (long long)i,
                     actual[i], step, expected[i]);
    free(actual);
}

static void run(gate_t *gate, const esp_deployment_t *deployment)
{
    const esp_graph_t *g = gate->graph;
    deploy_interp_t *deployed = deploy_interp_new(deployment, gate->seed);
    interp_t *whole = interp_new(gate->reference, gate->seed);
    if (gate->given != ESP_NONE) {
        deploy_interp_set(deployed, gate->given, gate->values);
        interp_set(whole, gate_tensor(gate->reference, g->tensor_name[gate->given]), gate->values);
    }
    for (int32_t step = 1; step <= gate->steps; step++) {
        deploy_interp_step(deployed);
        interp_step(whole);
        for (esp_tensor_id_t t = 0; t < g->n_tensors; t++)
            if (g->tensor_next[t] != ESP_NONE)
                compare(gate, deployed, whole, t, step);
        const double expected = interp_get(whole, gate->reference->loss)[0];
        gate->last_loss = deploy_interp_loss(deployed);
        if (!(fabs(gate->last_loss - expected) <= TOLERANCE * fabs(expected) + NOISE))
            fail_msg("%s, seed %llu: the loss of step %d is %.17g, not %.17g", gate->what,
                     (unsigned long long)gate->seed, step, gate->last_loss, expected);
    }
    interp_free(whole);
    deploy_interp_free(deployed);
}

const esp_deployment_t *gate_lower(gate_t *gate, const strategy_t *strategy, int32_t i)
{
    const esp_deployment_t *deployment = NULL;
    esp_diag_t diag = {0};
    const esp_status_t status =
        esp_lower(gate->lowerer[i], &strategy->strategy, &deployment, &diag);
    gate->was_refused = status == ESP_ERR_ARGUMENT && gate->refused && gate->refused(&diag);
    if (gate->was_refused)
        return NULL;
    if (status != ESP_OK)
        fail_msg("%s, seed %llu: %s", gate->what, (unsigned long long)gate->seed, diag.text);
    return deployment;
}

/* Whatever the links do, the order does not deadlock. */
static void simulate(const gate_t *gate, const esp_deployment_t *deployment)
{
    for (int32_t mode = ESP_LINK_EXCLUSIVE; mode <= ESP_LINK_FAIR; mode++) {
        esp_sim_opts_t opts = esp_sim_opts_default();
        esp_sim_result_t result;
        esp_diag_t diag = {0};
        opts.links = (esp_link_mode_t)mode;
        test_assert_ok(esp_sim_run(gate->sim, deployment, &opts, &result, &diag), &diag);
        assert_int_equal(result.events, (int64_t)opts.steps * deployment->n_tasks);
        assert_true(result.step_time_ns > 0);
    }
}

static void judge(gate_t *gate, const esp_deployment_t *deployment)
{
    esp_diag_t diag = {0};
    test_assert_ok(esp_deployment_check(deployment, &diag), &diag);
    gate_check_rules(deployment, gate->what);
    simulate(gate, deployment);
    run(gate, deployment);
}

void gate_same_step(gate_t *gate, strategy_t *strategy)
{
    for (int32_t i = 0; i < GATE_CLUSTERS; i++) {
        const esp_deployment_t *deployment = gate_lower(gate, strategy, i);
        esp_diag_t diag = {0};
        if (!deployment)
            break;
        judge(gate, deployment);
        test_assert_ok(esp_deployment_pack(gate->lowerer[i], &diag), &diag);
        assert_non_null(deployment->buffer_offset);
        judge(gate, deployment);
    }
    strategy_fini(strategy);
}
