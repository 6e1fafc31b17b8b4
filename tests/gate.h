/*
 * The judge of deployments: lowers a strategy on a mixed and on a uniform cluster, checks the rules
 * of the deployment, and runs it beside the undistributed graph.
 */
#ifndef ESP_TESTS_GATE_H
#define ESP_TESTS_GATE_H

#include "deploy_interp.h"
#include "espalier/sim.h"
#include "strategies.h"

enum { GATE_CLUSTERS = 2 };

typedef struct gate {
    esp_graph_t *graph;
    const esp_graph_t *reference; /* what the deployment must equal; graph itself by default */
    esp_graph_t *owned_reference;
    esp_cluster_t *cluster[GATE_CLUSTERS];
    esp_cost_t *cost[GATE_CLUSTERS];
    esp_lowerer_t *lowerer[GATE_CLUSTERS];
    esp_sim_t *sim;
    uint64_t seed;
    int32_t steps;                           /* default 10 */
    esp_tensor_id_t given;                   /* an input with values of its own; ESP_NONE */
    const double *values;                    /* of it */
    double last_loss;                        /* of the last run, of the deployment */
    const char *what;                        /* in messages */
    bool (*refused)(const esp_diag_t *diag); /* not NULL: such errors of lowering are accepted */
    bool was_refused;
} gate_t;

/* The graph becomes the gate's. */
void gate_init(gate_t *gate, esp_graph_t *graph);
void gate_fini(gate_t *gate);
/* Another graph with the same names of parameters and inputs; becomes the gate's. */
void gate_reference(gate_t *gate, esp_graph_t *reference);
/* The tensor of that name. */
esp_tensor_id_t gate_tensor(const esp_graph_t *graph, const char *name);

/* Lowers, checks, simulates and runs on both clusters, before and after packing; releases what the
 * strategy owns. */
void gate_same_step(gate_t *gate, strategy_t *strategy);
/* The last deployment of gate_same_step on cluster `i`; until the next lowering. */
const esp_deployment_t *gate_lower(gate_t *gate, const strategy_t *strategy, int32_t i);

/*
 * Rules that every deployment holds: ids are a topological order, so is the global order, and every
 * two tasks that touch the same memory, one of them writing, are ordered by dependencies and
 * streams, within a step and from one step to the next.
 */
void gate_check_rules(const esp_deployment_t *deployment, const char *what);

#endif
