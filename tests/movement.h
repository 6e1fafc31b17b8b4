/*
 * A deployment of one movement, between random devices of a random cluster, and all devices
 * carrying it out in step, without buffers between them. What arrives must be what a naive movement
 * makes, and memory that is nobody's business must stay as it is.
 */
#ifndef ESP_TESTS_MOVEMENT_H
#define ESP_TESTS_MOVEMENT_H

#include "support.h"

#include "exec/program.h"

enum { MOVEMENT_PAIRS = 4, MOVEMENT_DEVICES = 16 };

/* What is drawn. */
typedef struct draw {
    esp_i_rng_t rng;
    bool exact;  /* sizes that divide: links carry exactly what the pattern says */
    bool wide;   /* doubles; else float32 and integers, of whole numbers */
    bool shared; /* others read the sources, too */
    esp_comm_t kind;
} draw_t;

typedef struct side {
    int32_t n;
    int32_t device[MOVEMENT_DEVICES];
    double fraction[MOVEMENT_DEVICES];
    int64_t units[MOVEMENT_DEVICES];
} side_t;

typedef struct movement {
    esp_deployment_t d; /* values 2p and 2p + 1 are the ends of pair p */
    esp_graph_t graph;
    esp_cost_t cost;
    esp_i_arena_t arena;
    esp_cluster_t *cluster;
    side_t side[2];
    int32_t n_pairs;
    int64_t arena_bytes[MOVEMENT_DEVICES];
    double *whole[MOVEMENT_PAIRS];                    /* what is moved, or the sum of: */
    double *addend[MOVEMENT_PAIRS][MOVEMENT_DEVICES]; /* by number in the source */
    char *memory[MOVEMENT_DEVICES], *before[MOVEMENT_DEVICES];
    bool *mine[MOVEMENT_DEVICES]; /* bytes that may change */
    esp_i_lists_t lists[MOVEMENT_DEVICES];
    double *carried; /* bytes, per link */
} movement_t;

/* Cluster, devices, tensors, forms, buffers and values. */
void movement_make(movement_t *movement, draw_t *draw);
void movement_free(movement_t *movement);
esp_place_t movement_place(movement_t *movement, int32_t side);
/* Carries it out by that algorithm and checks everything; exact: the bytes on links, too. */
void movement_run(movement_t *movement, draw_t *draw, const esp_pattern_t *pattern);

/* For the parts of this helper. */
void *movement_memory(movement_t *movement, int64_t n, size_t size); /* zeroed */
void movement_data(movement_t *movement, draw_t *draw);
bool movement_adds(esp_comm_t kind);
static inline int64_t movement_align(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif
