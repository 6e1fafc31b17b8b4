/*
 * Deployments for tests of their parts: training graphs, lowerers, strategies drawn at random.
 */
#ifndef ESP_TESTS_DEPLOYMENTS_H
#define ESP_TESTS_DEPLOYMENTS_H

#include "espalier/deploy.h"
#include "models.h"
#include "support.h"

/* Training graphs (models.h); each needs another corner of the rules. */
enum { DEPLOY_MODELS = 7 };
esp_graph_t *deploy_graph(int32_t model, int64_t batch);

/* Everything that lowering needs; owned. */
typedef struct bench {
    esp_graph_t *graph;
    esp_cluster_t *cluster;
    esp_cost_t *cost;
    esp_lowerer_t *lowerer;
    esp_diag_t diag;
} bench_t;
/* Takes the graph and the cluster. */
void bench_init(bench_t *bench, esp_graph_t *graph, esp_cluster_t *cluster);
void bench_fini(bench_t *bench);
/* A cluster of the source tree. */
esp_cluster_t *bench_cluster(const char *name);

/* A strategy with memory of its own. */
typedef struct plan_of {
    esp_strategy_t strategy;
    esp_mesh_spec_t mesh[8];
    int32_t device[8][64];
    double weight[8][64];
    int32_t *op_mesh;
    uint8_t *op_mode;
} plan_of_t;
/* All devices, equal shares; updates in `update`. */
void plan_data_parallel(plan_of_t *plan, const bench_t *bench, esp_mode_t update, int32_t micro);
/* Anything: random meshes, runs of ops on one of them, random modes. */
void plan_random(plan_of_t *plan, const bench_t *bench, esp_i_rng_t *rng);
void plan_fini(plan_of_t *plan);

#endif
