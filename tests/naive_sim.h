/*
 * A simulator that is written to be obviously right, not fast: every round looks at every instance
 * of every task. The twin of esp_sim_run.
 */
#ifndef ESP_TESTS_NAIVE_SIM_H
#define ESP_TESTS_NAIVE_SIM_H

#include "support.h"

#include "espalier/sim.h"

typedef struct naive_result {
    bool deadlock;
    int64_t step_time_ns, makespan_ns;
    int64_t *start_ns, *end_ns; /* per task, of the last step, from its first start */
    int64_t *peak_bytes;        /* per class */
} naive_result_t;

/* Release with naive_free. Timeline always. */
naive_result_t naive_run(const esp_deployment_t *d, const esp_sim_opts_t *opts);
void naive_free(naive_result_t *result);

/* A movement for the max-min solver: uses per link at full speed, rate on its tightest link. */
typedef struct naive_flow {
    const esp_pattern_t *pattern;
    double full;  /* rate of the tightest link at full speed, bytes per ns */
    double speed; /* result */
} naive_flow_t;
/* Link by link: the link that fills first holds back all movements on it. */
void naive_share(const esp_cluster_t *cluster, int32_t n, naive_flow_t *flows);

#endif
