/* Strategies and clusters for tests of deployments. */
#include "strategies.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void strategy_init(strategy_t *strategy, const esp_graph_t *graph)
{
    memset(strategy, 0, sizeof *strategy);
    strategy->graph = graph;
    strategy->op_mesh = calloc((size_t)graph->n_ops + 1, sizeof *strategy->op_mesh);
    strategy->op_mode = calloc((size_t)graph->n_ops + 1, sizeof *strategy->op_mode);
    assert_non_null(strategy->op_mesh);
    assert_non_null(strategy->op_mode);
    strategy->strategy = (esp_strategy_t){.mesh = strategy->mesh,
                                          .op_mesh = strategy->op_mesh,
                                          .op_mode = strategy->op_mode,
                                          .micro_batches = 1,
                                          .bucket_bytes = 256,
                                          .sync_batchnorm = 1};
}

void strategy_fini(strategy_t *strategy)
{
    free(strategy->op_mesh);
    free(strategy->op_mode);
}

int32_t strategy_mesh(strategy_t *strategy, int32_t n, const int32_t *device, const double *weight)
{
    const int32_t mesh = strategy->strategy.n_meshes++;
    assert_true(mesh < STRATEGY_MAX_MESHES && n <= STRATEGY_MAX_DEVICES);
    for (int32_t k = 0; k < n; k++) {
        strategy->device[mesh][k] = device[k];
        strategy->weight[mesh][k] = weight ? weight[k] : 1;
    }
    strategy->mesh[mesh] = (esp_mesh_spec_t){n, strategy->device[mesh], strategy->weight[mesh]};
    return mesh;
}

void strategy_op(strategy_t *strategy, esp_op_id_t op, int32_t mesh, esp_mode_t mode)
{
    strategy->op_mesh[op] = mesh;
    strategy->op_mode[op] = (uint8_t)mode;
}

void strategy_updates(strategy_t *strategy, int32_t mesh, esp_mode_t mode)
{
    for (esp_op_id_t op = 0; op < strategy->graph->n_ops; op++)
        if (strategy->graph->op_phase[op] == ESP_PHASE_UPDATE)
            strategy_op(strategy, op, mesh, mode);
}

void strategy_update(strategy_t *strategy, int32_t i, int32_t mesh, esp_mode_t mode)
{
    const esp_graph_t *g = strategy->graph;
    const esp_tensor_id_t gradient = g->gradient[i];
    strategy_op(strategy, g->update[i], mesh, mode);
    for (int32_t c = g->consumer_offset[gradient]; c < g->consumer_offset[gradient + 1]; c++)
        if (g->op_phase[g->consumer_op[c]] == ESP_PHASE_UPDATE &&
            g->op_kind[g->consumer_op[c]] != ESP_KIND_UPDATE)
            strategy_op(strategy, g->consumer_op[c], mesh, mode);
}

void strategy_named(strategy_t *strategy, const char *part, int32_t mesh, esp_mode_t mode)
{
    int32_t found = 0;
    for (esp_op_id_t op = 0; op < strategy->graph->n_ops; op++)
        if (strstr(strategy->graph->op_name[op], part)) {
            strategy_op(strategy, op, mesh, mode);
            found++;
        }
    if (!found)
        fail_msg("no op is named like %s", part);
}

void strategy_stages(strategy_t *strategy, int32_t n, const int32_t *mesh, esp_mode_t mode)
{
    const esp_graph_t *g = strategy->graph;
    int32_t model = 1; /* ops of the model graph */
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        if (g->op_origin[op] >= model)
            model = g->op_origin[op] + 1;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        const int32_t origin = g->op_origin[op] == ESP_NONE ? model - 1 : g->op_origin[op];
        strategy_op(strategy, op, mesh[origin * n / model], mode);
    }
}

/* ---- whole strategies -------------------------------------------------------------------- */

static const int32_t first_devices[STRATEGY_MAX_DEVICES] = {0, 1, 2, 3, 4, 5, 6, 7};

void strategy_single(strategy_t *strategy, const esp_graph_t *graph, int32_t device)
{
    strategy_init(strategy, graph);
    strategy_mesh(strategy, 1, &device, NULL);
}

void strategy_data_parallel(strategy_t *strategy, const esp_graph_t *graph, int32_t n,
                            const double *weight)
{
    strategy_init(strategy, graph);
    strategy_mesh(strategy, n, first_devices, weight);
}

void strategy_parameter_server(strategy_t *strategy, const esp_graph_t *graph, int32_t n,
                               const double *weight, int32_t server)
{
    strategy_data_parallel(strategy, graph, n, weight);
    strategy_updates(strategy, strategy_mesh(strategy, 1, &server, NULL), ESP_MODE_WHOLE);
}

void strategy_sharded(strategy_t *strategy, const esp_graph_t *graph, int32_t n,
                      const double *weight)
{
    strategy_data_parallel(strategy, graph, n, weight);
    strategy_updates(strategy, 0, ESP_MODE_SHARD);
}

void strategy_mixed(strategy_t *strategy, const esp_graph_t *graph, int32_t n, const double *weight)
{
    strategy_data_parallel(strategy, graph, n, weight);
    const int32_t server = n - 1;
    const int32_t alone = strategy_mesh(strategy, 1, &server, NULL);
    const int32_t two = strategy_mesh(strategy, 2, first_devices, NULL);
    for (int32_t i = 0; i < graph->n_parameters; i++) {
        if (i % 4 == 0)
            strategy_update(strategy, i, 0, ESP_MODE_BATCH);
        else if (i % 4 == 1)
            strategy_update(strategy, i, alone, ESP_MODE_WHOLE);
        else
            strategy_update(strategy, i, i % 4 == 2 ? 0 : two, ESP_MODE_SHARD);
    }
}

/* ---- clusters ---------------------------------------------------------------------------- */

static esp_cluster_t *parse(const char *text)
{
    esp_diag_t diag = {0};
    esp_cluster_t *cluster = NULL;
    test_assert_ok(esp_cluster_parse(text, strlen(text), "test", NULL, &cluster, &diag), &diag);
    return cluster;
}

esp_cluster_t *cluster_mixed(void)
{
    return parse("name: mixed\n"
                 "nodes:\n"
                 "  - name: a\n"
                 "    devices: [{type: a100-sxm-40, count: 2}]\n"
                 "    intra: {kind: nvswitch, bandwidth: 300 GB/s, latency: 1 us}\n"
                 "    host: {bandwidth: 25 GB/s, latency: 2 us}\n"
                 "    nics: {bandwidth: 25 Gbit/s, latency: 12 us}\n"
                 "  - name: t\n"
                 "    devices: [{type: t4, count: 2}]\n"
                 "    intra: {kind: pcie, bandwidth: 12 GB/s, latency: 3 us}\n"
                 "    nics: {bandwidth: 25 Gbit/s, latency: 12 us}\n"
                 "network: {kind: switch, name: net}\n");
}

esp_cluster_t *cluster_uniform(int32_t n)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "name: uniform\n"
                   "nodes:\n"
                   "  - name: n\n"
                   "    devices: [{type: t4, count: %d}]\n"
                   "    intra: {kind: pcie, bandwidth: 12 GB/s, latency: 3 us}\n",
                   n);
    return parse(text);
}
