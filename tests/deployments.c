#include "deployments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

esp_graph_t *deploy_graph(int32_t model, int64_t batch)
{
    esp_training_opts_t momentum = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_MOMENTUM);
    esp_training_opts_t adam = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    esp_training_opts_t own = train_with(ESP_LOSS_OUTPUT, ESP_OPTIMIZER_SGD);
    adam.clip_norm = 1;
    switch (model) {
    case 0:
        return model_mlp(batch, 0.1, &momentum);
    case 1:
        return model_convnet(batch, 0, NULL, &momentum);
    case 2:
        return model_tied(batch, &adam);
    case 3:
        return model_transformer(batch, 3, 0, &adam);
    case 4:
        return model_penalty(batch, &own);
    case 5:
        return model_branches(batch, &momentum);
    default:
        return model_random((uint64_t)model, batch, &adam);
    }
}

/* ---- benches ------------------------------------------------------------------------------- */

esp_cluster_t *bench_cluster(const char *name)
{
    char file[TEST_PATH_MAX], path[TEST_PATH_MAX];
    esp_cluster_t *cluster = NULL;
    esp_diag_t diag = {0};
    (void)snprintf(file, sizeof file, "clusters/%s.yaml", name);
    test_assert_ok(esp_cluster_load(test_source_path(file, path), NULL, &cluster, &diag), &diag);
    return cluster;
}

void bench_init(bench_t *bench, esp_graph_t *graph, esp_cluster_t *cluster)
{
    *bench = (bench_t){.graph = graph, .cluster = cluster};
    test_assert_ok(
        esp_cost_create(graph, cluster, ESP_PRECISION_FP32, NULL, &bench->cost, &bench->diag),
        &bench->diag);
    test_assert_ok(esp_lowerer_create(bench->cost, NULL, &bench->lowerer, &bench->diag),
                   &bench->diag);
}

void bench_fini(bench_t *bench)
{
    esp_lowerer_destroy(bench->lowerer);
    esp_cost_destroy(bench->cost);
    esp_cluster_destroy(bench->cluster);
    esp_graph_destroy(bench->graph);
}

/* ---- strategies ---------------------------------------------------------------------------- */

static void plan_init(plan_of_t *plan, const bench_t *bench, int32_t n_meshes)
{
    memset(plan, 0, sizeof *plan);
    plan->op_mesh = calloc((size_t)bench->graph->n_ops, sizeof *plan->op_mesh);
    plan->op_mode = calloc((size_t)bench->graph->n_ops, sizeof *plan->op_mode);
    assert_true(plan->op_mesh && plan->op_mode && bench->cluster->n_devices <= 64);
    for (int32_t m = 0; m < n_meshes; m++)
        plan->mesh[m] = (esp_mesh_spec_t){0, plan->device[m], plan->weight[m]};
    plan->strategy = (esp_strategy_t){.n_meshes = n_meshes,
                                      .mesh = plan->mesh,
                                      .op_mesh = plan->op_mesh,
                                      .op_mode = plan->op_mode,
                                      .micro_batches = 1};
}

void plan_fini(plan_of_t *plan)
{
    free(plan->op_mesh);
    free(plan->op_mode);
}

void plan_data_parallel(plan_of_t *plan, const bench_t *bench, esp_mode_t update, int32_t micro)
{
    plan_init(plan, bench, 1);
    plan->mesh[0].n = bench->cluster->n_devices;
    for (int32_t k = 0; k < plan->mesh[0].n; k++) {
        plan->device[0][k] = k;
        plan->weight[0][k] = 1;
    }
    for (esp_op_id_t op = 0; op < bench->graph->n_ops; op++)
        if (bench->graph->op_phase[op] == ESP_PHASE_UPDATE)
            plan->op_mode[op] = (uint8_t)update;
    plan->strategy.micro_batches = micro;
    plan->strategy.bucket_bytes = 4000;
}

static void mesh_random(plan_of_t *plan, int32_t m, const bench_t *bench, esp_i_rng_t *rng)
{
    int32_t n = bench->cluster->n_devices, keep = 1 + (int32_t)esp_i_rng_below(rng, n);
    bool even = esp_i_rng_below(rng, 2) == 0;
    for (int32_t k = 0; k < n; k++)
        if (esp_i_rng_below(rng, n) < keep || (k == n - 1 && plan->mesh[m].n == 0)) {
            plan->device[m][plan->mesh[m].n] = k;
            plan->weight[m][plan->mesh[m].n++] = even ? 1 : 0.2 + esp_i_rng_unit(rng);
        }
}

void plan_random(plan_of_t *plan, const bench_t *bench, esp_i_rng_t *rng)
{
    const esp_graph_t *g = bench->graph;
    int32_t n_meshes = 1 + (int32_t)esp_i_rng_below(rng, 4);
    plan_init(plan, bench, n_meshes);
    for (int32_t m = 0; m < n_meshes; m++)
        mesh_random(plan, m, bench, rng);
    bool micro = esp_lowerer_micro_obstacle(bench->lowerer) == ESP_NONE && g->batch % 4 == 0;
    plan->strategy.micro_batches = micro ? 1 << esp_i_rng_below(rng, 3) : 1;
    plan->strategy.bucket_bytes = esp_i_rng_below(rng, 3) * 2000;
    plan->strategy.sync_batchnorm =
        plan->strategy.micro_batches == 1 && esp_i_rng_below(rng, 2) == 0;
    int32_t mesh = 0, run = 1 + (int32_t)esp_i_rng_below(rng, 30), mode = ESP_MODE_BATCH;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        if (esp_i_rng_below(rng, run) == 0) {
            mesh = (int32_t)esp_i_rng_below(rng, n_meshes);
            mode = esp_i_rng_below(rng, 4) > 0 ? ESP_MODE_BATCH : ESP_MODE_WHOLE;
        }
        plan->op_mesh[op] = mesh;
        plan->op_mode[op] = (uint8_t)mode;
        if (g->op_phase[op] == ESP_PHASE_UPDATE)
            plan->op_mode[op] =
                (uint8_t)(esp_i_rng_below(rng, 2) == 0 ? ESP_MODE_SHARD : ESP_MODE_WHOLE);
    }
}
