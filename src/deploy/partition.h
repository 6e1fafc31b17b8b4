/* Graph partitioning, behind which METIS stands. */
#ifndef ESP_DEPLOY_PARTITION_H
#define ESP_DEPLOY_PARTITION_H

#include "base/base.h"

typedef struct esp_i_edge {
    int32_t a, b;
    double weight;
} esp_i_edge_t;

/*
 * Divides n vertices into at most `parts` parts of about equal weight that cut little edge weight.
 * Edges may repeat (they add up) and are undirected; loops are ignored. The same input and seed
 * give the same parts. part_out: n entries, numbered from 0 without gaps. O((n + edges) log parts).
 */
esp_status_t esp_i_partition(const esp_allocator_t *alloc, int32_t n, const double *vertex_weight,
                             int32_t n_edges, esp_i_edge_t *edges, int32_t parts, uint64_t seed,
                             int32_t *part_out);

#endif
