#include "searches.h"
#include "espalier/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

esp_graph_t *shipped_graph(const char *name, int64_t batch)
{
    char file[TEST_PATH_MAX], path[TEST_PATH_MAX];
    const esp_training_opts_t opts = esp_training_opts_default();
    esp_onnx_opts_t load = esp_onnx_opts_default();
    esp_graph_t *model, *canonical, *graph;
    esp_diag_t diag = {0};
    load.batch = batch;
    (void)snprintf(file, sizeof file, "models/%s.onnx", name);
    test_assert_ok(esp_onnx_load(test_source_path(file, path), &load, NULL, &model, &diag), &diag);
    test_assert_ok(esp_graph_canonicalise(model, NULL, &canonical, &diag), &diag);
    test_assert_ok(esp_training_graph(canonical, &opts, NULL, &graph, &diag), &diag);
    esp_graph_destroy(model);
    esp_graph_destroy(canonical);
    return graph;
}

/* ---- clusters ------------------------------------------------------------------------------ */

esp_cluster_t *cluster_of_text(const char *text)
{
    esp_diag_t diag = {0};
    esp_cluster_t *cluster = NULL;
    test_assert_ok(esp_cluster_parse(text, strlen(text), "test", NULL, &cluster, &diag), &diag);
    return cluster;
}

esp_cluster_t *cluster_equal(int32_t n, const char *memory, int64_t launch_ns)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "name: equal\n"
                   "types:\n"
                   "  toy: {fp32: 4 TFLOP/s, memory: 1 TiB, memory_bandwidth: 100 GB/s,\n"
                   "        launch: %lld ns}\n"
                   "nodes:\n"
                   "  - name: n\n"
                   "    devices: [{type: toy, count: %d, memory: %s}]\n"
                   "    intra: {kind: nvswitch, bandwidth: 50 GB/s, latency: 1 us}\n",
                   (long long)launch_ns, n, memory);
    return cluster_of_text(text);
}

esp_cluster_t *cluster_three(void)
{
    return cluster_of_text("name: three\n"
                           "nodes:\n"
                           "  - name: a\n"
                           "    devices: [{type: rtx3090}]\n"
                           "    host: {bandwidth: 25 GB/s, latency: 1 us}\n"
                           "  - name: b\n"
                           "    devices: [{type: rtx2080ti}]\n"
                           "    host: {bandwidth: 12 GB/s, latency: 1 us}\n"
                           "  - name: c\n"
                           "    devices: [{type: gtx1080ti}]\n"
                           "    host: {bandwidth: 12 GB/s, latency: 1 us}\n"
                           "network: {kind: switch, bandwidth: 5 GB/s, latency: 1 us}\n");
}

esp_cluster_t *cluster_pair_and_one(void)
{
    return cluster_of_text("name: pair\n"
                           "groups:\n"
                           "  - {name: v100, type: v100-sxm-32, count: 2, memory: 30 GiB,\n"
                           "     intra: {bandwidth: 8000 MB/s, latency: 2 us}}\n"
                           "  - {name: p100, type: p100-pcie-12, count: 1, memory: 10 GiB}\n"
                           "inter: {bandwidth: 2810 MB/s, latency: 2 us}\n");
}

/* ---- points of the space ------------------------------------------------------------------- */

void prober_init(prober_t *prober, const bench_t *bench, int32_t max_groups)
{
    esp_space_opts_t opts = esp_space_opts_default();
    *prober = (prober_t){.bench = bench, .links = ESP_LINK_EXCLUSIVE};
    opts.max_groups = max_groups;
    opts.seed = 1;
    test_assert_ok(esp_space_create(bench->cost, &opts, NULL, &prober->space, &prober->diag),
                   &prober->diag);
    assert_int_equal(esp_sim_create(NULL, &prober->sim), ESP_OK);
    prober->action = calloc((size_t)prober->space->n_groups, sizeof *prober->action);
    prober->op_mesh = calloc((size_t)bench->graph->n_ops, sizeof *prober->op_mesh);
    prober->op_mode = calloc((size_t)bench->graph->n_ops, sizeof *prober->op_mode);
    assert_true(prober->action && prober->op_mesh && prober->op_mode);
}

void prober_fini(prober_t *prober)
{
    free(prober->action);
    free(prober->op_mesh);
    free(prober->op_mode);
    esp_sim_destroy(prober->sim);
    esp_space_destroy(prober->space);
}

void prober_fill(prober_t *prober, int32_t action)
{
    for (int32_t g = 0; g < prober->space->n_groups; g++)
        prober->action[g] = action;
}

esp_strategy_t prober_strategy(prober_t *prober, int32_t micro, int64_t bucket, int32_t sync_bn)
{
    esp_strategy_t strategy;
    const esp_decisions_t decisions = {.action = prober->action,
                                       .micro_batches = micro,
                                       .bucket_bytes = bucket,
                                       .sync_batchnorm = sync_bn};
    assert_int_equal(
        esp_space_strategy(prober->space, &decisions, prober->op_mesh, prober->op_mode, &strategy),
        ESP_OK);
    return strategy;
}

int64_t prober_time(prober_t *prober, const esp_strategy_t *strategy, bool check)
{
    const esp_deployment_t *deployment;
    esp_sim_result_t result;
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_diag_t *diag = &prober->diag;
    opts.links = prober->links;
    test_assert_ok(esp_lower(prober->bench->lowerer, strategy, &deployment, diag), diag);
    if (check)
        test_assert_ok(esp_deployment_check(deployment, diag), diag);
    test_assert_ok(esp_sim_run(prober->sim, deployment, &opts, &result, diag), diag);
    return result.step_time_ns;
}

int64_t prober_packed_time(prober_t *prober, const esp_strategy_t *strategy)
{
    esp_lowerer_t *lowerer = prober->bench->lowerer;
    const esp_deployment_t *deployment;
    esp_sim_result_t result;
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_diag_t *diag = &prober->diag;
    opts.links = prober->links;
    opts.timeline = 1;
    test_assert_ok(esp_lower(lowerer, strategy, &deployment, diag), diag);
    test_assert_ok(esp_sim_run(prober->sim, deployment, &opts, &result, diag), diag);
    test_assert_ok(esp_deployment_pack_timed(lowerer, result.start_ns, result.end_ns,
                                             result.step_time_ns, diag),
                   diag);
    test_assert_ok(esp_sim_run(prober->sim, deployment, &opts, &result, diag), diag);
    return result.step_time_ns;
}

bool prober_micro_allowed(const prober_t *prober, int32_t micro)
{
    return micro == 1 || (prober->bench->graph->batch % micro == 0 &&
                          esp_lowerer_micro_obstacle(prober->bench->lowerer) == ESP_NONE);
}

/* ---- results --------------------------------------------------------------------------------- */

static void choice_check(const esp_space_t *space, const esp_choice_t *choice)
{
    const esp_graph_t *g = space->cost->graph;
    assert_non_null(choice->op_mesh);
    assert_ptr_equal(choice->strategy.op_mesh, choice->op_mesh);
    assert_ptr_equal(choice->strategy.op_mode, choice->op_mode);
    assert_ptr_equal(choice->strategy.mesh, space->mesh);
    assert_true(choice->strategy.micro_batches >= 1);
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        assert_true(choice->op_mesh[op] >= ESP_NONE && choice->op_mesh[op] < space->n_meshes);
        assert_true(choice->op_mode[op] <= ESP_MODE_SHARD);
    }
    for (int32_t i = 0; i < space->n_groups; i++)
        assert_true(choice->group_action[i] >= ESP_NONE &&
                    choice->group_action[i] < space->n_actions);
}

/* The verdict is that of the packed arenas. */
static void memory_check(const bench_t *bench, const esp_search_result_t *r)
{
    const esp_deployment_t *d = r->deployment;
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < bench->cluster->n_devices; i++) {
        int32_t c = d->device_class[i];
        assert_int_equal(r->device_peak_bytes[i], c == ESP_NONE ? 0 : d->class_arena_bytes[c]);
        assert_true(r->device_busy_ns[i] >= 0);
        int64_t left = bench->cluster->device_memory_bytes[i] - r->device_peak_bytes[i];
        if (c != ESP_NONE && left < least)
            least = left;
    }
    const esp_outcome_t *best = &r->best.outcome;
    assert_int_equal(best->slack_bytes, least);
    assert_int_equal(best->feasible, least >= 0);
    assert_int_equal(bench->cluster->device_memory_bytes[best->worst_device] -
                         r->device_peak_bytes[best->worst_device],
                     least);
}

static void baseline_check(const bench_t *bench, const esp_search_result_t *r, esp_baseline_t b)
{
    const esp_outcome_t *base = &r->baseline[b].outcome, *best = &r->best.outcome;
    choice_check(r->space, &r->baseline[b]);
    bool better = base->feasible && (!best->feasible || base->step_time_ns < best->step_time_ns);
    if (!base->feasible && !best->feasible && base->slack_bytes > best->slack_bytes)
        better = true;
    if (better)
        fail_msg("%s on %s: %s takes %lld ns and leaves %lld bytes, the best %lld and %lld",
                 bench->graph->name, bench->cluster->name, esp_baseline_name(b),
                 (long long)base->step_time_ns, (long long)base->slack_bytes,
                 (long long)best->step_time_ns, (long long)best->slack_bytes);
}

void search_result_check(const bench_t *bench, const esp_search_result_t *r)
{
    esp_diag_t diag = {0};
    assert_non_null(r);
    choice_check(r->space, &r->best);
    assert_non_null(r->deployment);
    test_assert_ok(esp_deployment_check(r->deployment, &diag), &diag);
    memory_check(bench, r);
    for (int32_t b = 0; b < ESP_BASELINE_COUNT; b++)
        baseline_check(bench, r, (esp_baseline_t)b);
    if (r->from_baseline != ESP_NONE)
        assert_int_equal(r->best.outcome.step_time_ns,
                         r->baseline[r->from_baseline].outcome.step_time_ns);
    assert_true(r->lower_bound_ns > 0 && r->lower_bound_ns <= r->best.outcome.step_time_ns);
    assert_true(r->evaluations >= ESP_BASELINE_COUNT - 2 || bench->cluster->n_devices == 1);
    assert_true(r->search_time_s >= 0);
}
