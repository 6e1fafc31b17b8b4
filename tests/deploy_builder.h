/*
 * Deployments put together by hand, and small clusters to run them on.
 *
 * Each class is one device unless said otherwise; each buffer is a value of its own. Memory is from
 * malloc; running out of it ends the test.
 */
#ifndef ESP_TESTS_DEPLOY_BUILDER_H
#define ESP_TESTS_DEPLOY_BUILDER_H

#include "support.h"

#include "espalier/sim.h"

/* ---- clusters -------------------------------------------------------------------------------- */

typedef struct lab_link {
    double bytes_per_s;
    int64_t latency_ns;
} lab_link_t;

/*
 * `nodes` machines of `per_node` devices (counts[k] devices where counts is not NULL), each device
 * on a cable to the host of its node, each host on a cable to one switch. One node has no switch.
 */
esp_cluster_t *lab_cluster(int32_t nodes, int32_t per_node, const int32_t *counts,
                           lab_link_t inside, lab_link_t between);
/* Random sizes and speeds. */
esp_cluster_t *lab_random_cluster(esp_i_rng_t *rng, int32_t max_nodes, int32_t max_per_node);

/* ---- deployments ------------------------------------------------------------------------------
 */

typedef struct deploy deploy_t; /* opaque; deploy_get gives the deployment */

/* Class k is the k-th device of the cluster. */
deploy_t *deploy_new(const esp_cluster_t *cluster, int32_t n_classes);
void deploy_free(deploy_t *deploy);

/* A transient buffer of a class, or a resident one. */
int32_t deploy_buffer(deploy_t *deploy, int32_t owner, int64_t bytes, bool resident,
                      esp_role_t role);
/* Another name of the memory of `root`. */
int32_t deploy_alias(deploy_t *deploy, int32_t root);

int32_t deploy_compute(deploy_t *deploy, int32_t owner, int64_t ns);
/* The pattern is copied, with its arrays. Duration: that of the pattern for the bytes. */
int32_t deploy_comm(deploy_t *deploy, const esp_pattern_t *pattern, int64_t bytes, bool collective,
                    int32_t n, const int32_t *classes);
/* A transfer between two classes along the route of the cluster, direct. */
int32_t deploy_transfer(deploy_t *deploy, int32_t from, int32_t to, int64_t bytes);
void deploy_set_ns(deploy_t *deploy, int32_t task, int64_t ns);
/* Scratch memory of a compute task while it runs. */
void deploy_set_workspace(deploy_t *deploy, int32_t task, double bytes, double whole);

void deploy_read(deploy_t *deploy, int32_t task, int32_t buffer);
void deploy_write(deploy_t *deploy, int32_t task, int32_t buffer);
void deploy_edge(deploy_t *deploy, int32_t before, int32_t after);
void deploy_cross(deploy_t *deploy, int32_t before, int32_t after);

/*
 * The finished deployment: dependencies are the edges given and writer before reader. `order` is
 * copied; NULL: the order of ids.
 */
const esp_deployment_t *deploy_get(deploy_t *deploy, const int32_t *order);

/*
 * A random deployment with buffers, collectives, transfers and cross edges. Coarse: durations are
 * whole microseconds, so that much happens at the same instants.
 */
deploy_t *deploy_random(esp_i_rng_t *rng, const esp_cluster_t *cluster, int32_t n_tasks,
                        bool coarse);

#endif
