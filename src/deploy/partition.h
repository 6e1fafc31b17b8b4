/* Graph partitioning, behind which METIS stands. */
#ifndef ESP_DEPLOY_PARTITION_H
#define ESP_DEPLOY_PARTITION_H

#include "base/base.h"

typedef struct esp_i_edge {
    int32_t a, b;
    double weight;
} esp_i_edge_t;

typedef struct esp_i_partition {
    int32_t n;
    const double *vertex_weight;
    int32_t n_edges;
    esp_i_edge_t
        *edges; /* undirected; may repeat (they add up); loops are ignored; sorted in place */
    int32_t parts;
    const double *part_weight; /* wanted size of each part, relative; NULL: equal, and parts are
                                  numbered without gaps in order of appearance */
    uint64_t seed;
} esp_i_partition_t;

/*
 * Divides the vertices into parts of about the wanted weight that cut little edge weight. The same
 * input and seed give the same parts. part_out: n entries. O((n + edges) log parts).
 */
esp_status_t esp_i_partition(const esp_allocator_t *alloc, const esp_i_partition_t *problem,
                             int32_t *part_out);

#endif
