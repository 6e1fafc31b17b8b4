/*
 * Executes deployments beside their interpreter (deploy_interp.h): ranks in this process, in
 * double, from the same values and inputs.
 */
#ifndef ESP_TESTS_EXEC_BESIDE_H
#define ESP_TESTS_EXEC_BESIDE_H

#include "deployments.h"
#include "espalier/exec.h"

/* A packed deployment of a plan, synchronised where its local sums would lie elsewhere. */
void beside_lower(bench_t *bench, plan_of_t *plan, const esp_deployment_t **deployment_out);

/* The inputs of the interpreter, as a feed. Context: a beside_t. */
typedef struct beside {
    const esp_graph_t *graph;
    uint64_t seed;
    const char *what; /* in messages */
} beside_t;
esp_exec_feed_t beside_feed(beside_t *beside);

/* Gives the executor what the interpreter starts with. */
void beside_set(const beside_t *beside, esp_exec_t *exec);
/* Values as doubles. */
void beside_get(const beside_t *beside, esp_exec_t *exec, esp_tensor_id_t tensor, double *values);
/*
 * Runs `steps` steps of both, in runs of one and of the rest, and compares losses and everything
 * that lives between steps. `exec` is new, with the seed of `beside`, and wide.
 */
void beside_compare(beside_t *beside, const esp_deployment_t *deployment, esp_exec_t *exec,
                    int32_t steps);

#endif
