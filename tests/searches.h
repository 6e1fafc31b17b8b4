/* Subjects of a search: shipped models, small clusters, decisions of the space evaluated alone. */
#ifndef ESP_TESTS_SEARCHES_H
#define ESP_TESTS_SEARCHES_H

#include "deployments.h"
#include "espalier/search.h"
#include "strategies.h"

/* The training graph of a shipped model ("bert_large"), with default options. */
esp_graph_t *shipped_graph(const char *name, int64_t batch);

/* A cluster from the text of a file. */
esp_cluster_t *cluster_of_text(const char *text);
/* `n` devices of one node, 4 TFLOP/s, 100 GB/s and launches of `launch_ns`, with `memory` (as in a
 * cluster file) each. */
esp_cluster_t *cluster_equal(int32_t n, const char *memory, int64_t launch_ns);
/* Three devices of three speeds in three nodes. */
esp_cluster_t *cluster_three(void);
/* A group of two fast devices and a slow one alone, in the notation of the papers. */
esp_cluster_t *cluster_pair_and_one(void);

/* A space and what it takes to evaluate its points one by one. */
typedef struct prober {
    const bench_t *bench;
    esp_space_t *space;
    esp_sim_t *sim;
    esp_link_mode_t links;
    int32_t *action; /* per op group */
    int32_t *op_mesh;
    uint8_t *op_mode;
    esp_diag_t diag;
} prober_t;
void prober_init(prober_t *prober, const bench_t *bench, int32_t max_groups);
void prober_fini(prober_t *prober);
/* The same action for all groups. */
void prober_fill(prober_t *prober, int32_t action);
/* prober->action as a strategy; it lives until the next one. */
esp_strategy_t prober_strategy(prober_t *prober, int32_t micro, int64_t bucket, int32_t sync_bn);
/* Lowers and simulates; `check`: also by the rules of the deployment. The step time. */
int64_t prober_time(prober_t *prober, const esp_strategy_t *strategy, bool check);
/* The same once arenas are packed, as a plan is judged: memory that is used again adds waits. */
int64_t prober_packed_time(prober_t *prober, const esp_strategy_t *strategy);
/* Whether so many micro-batches are exact and divide the batch. */
bool prober_micro_allowed(const prober_t *prober, int32_t micro);

/*
 * A result is complete and agrees with itself: strategy, deployment (by the rules), memory per
 * device, verdict, bound; and no baseline that fits is better.
 */
void search_result_check(const bench_t *bench, const esp_search_result_t *result);

#endif
