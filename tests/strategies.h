/* Strategies and clusters for tests of deployments. */
#ifndef ESP_TESTS_STRATEGIES_H
#define ESP_TESTS_STRATEGIES_H

#include "espalier/deploy.h"

enum { STRATEGY_MAX_MESHES = 24, STRATEGY_MAX_DEVICES = 8 };

/* An esp_strategy_t with room for what it points at. Must not be copied. */
typedef struct strategy {
    esp_strategy_t strategy;
    const esp_graph_t *graph;
    esp_mesh_spec_t mesh[STRATEGY_MAX_MESHES];
    int32_t device[STRATEGY_MAX_MESHES][STRATEGY_MAX_DEVICES];
    double weight[STRATEGY_MAX_MESHES][STRATEGY_MAX_DEVICES];
    int32_t *op_mesh;
    uint8_t *op_mode;
} strategy_t;

/* No mesh yet; every op on mesh 0 in batch mode; buckets of 256 bytes, synchronised BatchNorm. */
void strategy_init(strategy_t *strategy, const esp_graph_t *graph);
void strategy_fini(strategy_t *strategy);
/* weight NULL: equal. The index of the mesh. */
int32_t strategy_mesh(strategy_t *strategy, int32_t n, const int32_t *device, const double *weight);
void strategy_op(strategy_t *strategy, esp_op_id_t op, int32_t mesh, esp_mode_t mode);
/* All ops of the update phase. */
void strategy_updates(strategy_t *strategy, int32_t mesh, esp_mode_t mode);
/* The update of parameter number i, and what else reads its gradient after backward. */
void strategy_update(strategy_t *strategy, int32_t i, int32_t mesh, esp_mode_t mode);
/* All ops whose name contains `part`. At least one must. */
void strategy_named(strategy_t *strategy, const char *part, int32_t mesh, esp_mode_t mode);
/*
 * Model parallel: the ops of the model, in order, in n equal parts; part i on mesh[i], with the
 * gradient ops and updates that belong to it.
 */
void strategy_stages(strategy_t *strategy, int32_t n, const int32_t *mesh, esp_mode_t mode);

/* Whole strategies on devices [0, n), with these weights. */
void strategy_single(strategy_t *strategy, const esp_graph_t *graph, int32_t device);
void strategy_data_parallel(strategy_t *strategy, const esp_graph_t *graph, int32_t n,
                            const double *weight);
/* The updates on one device, which may be among them. */
void strategy_parameter_server(strategy_t *strategy, const esp_graph_t *graph, int32_t n,
                               const double *weight, int32_t server);
void strategy_sharded(strategy_t *strategy, const esp_graph_t *graph, int32_t n,
                      const double *weight);
/* Parameters in turn: all-reduced, at a server, sharded, sharded over the first two devices. */
void strategy_mixed(strategy_t *strategy, const esp_graph_t *graph, int32_t n,
                    const double *weight);

/* Four devices: two of one type in one node, two of another in another node. */
esp_cluster_t *cluster_mixed(void);
/* `n` equal devices in one node. */
esp_cluster_t *cluster_uniform(int32_t n);

#endif
