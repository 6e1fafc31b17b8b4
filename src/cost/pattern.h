/*
 * What the pattern builders share: a ledger of the bytes on each link, filled stage by stage.
 *
 * A stage is a set of hops that happen at the same time. Its duration per byte of the tensor is
 * that of its busiest link; a movement's is the sum over its stages. Hops go along the cluster's
 * routes.
 */
#ifndef ESP_COST_PATTERN_H
#define ESP_COST_PATTERN_H

#include "base/base.h"
#include "espalier/cost.h"

/* What software adds to each step: posting, matching, waking up. */
#define ESP_I_STEP_NS 3000

typedef struct esp_i_ledger {
    const esp_cluster_t *cluster;
    esp_allocator_t alloc;
    double *load;     /* per link: bytes per byte of the tensor, all stages so far */
    double *stage;    /* per link: this stage only */
    double *step;     /* per link: one step of an uneven ring; zero in between */
    int32_t *touched; /* links of this stage */
    int32_t n_touched;
    int64_t hop_latency_ns; /* longest of this stage */
    double ns_per_byte;
    int64_t latency_ns;
    double staging;
} esp_i_ledger_t;

esp_status_t esp_i_ledger_init(esp_i_ledger_t *ledger, const esp_cluster_t *cluster,
                               const esp_allocator_t *alloc);
void esp_i_ledger_fini(esp_i_ledger_t *ledger);

/* `bytes` per byte of the tensor travel from src to dst in this stage; none if src == dst. */
void esp_i_ledger_hop(esp_i_ledger_t *ledger, int32_t src, int32_t dst, double bytes);
/* Ends the stage: `steps` hops follow each other; it takes at least floor_ns_per_byte. */
void esp_i_ledger_stage(esp_i_ledger_t *ledger, int32_t steps, double floor_ns_per_byte);
/* Writes the pattern and empties the ledger. */
esp_status_t esp_i_ledger_finish(esp_i_ledger_t *ledger, esp_comm_t comm, esp_algorithm_t algorithm,
                                 esp_pattern_t *pattern_out);

/*
 * Devices in ring order (by node, then id: the order that leaves each node once) and where each
 * node's begin: node k has device[offset[k] .. offset[k + 1]).
 */
typedef struct esp_i_ring {
    int32_t n, n_nodes;
    int32_t *device, *offset;
    double *piece; /* fraction of the tensor that belongs to each; 1 / n where none is given */
    bool even;     /* all nodes have equally many */
} esp_i_ring_t;

esp_status_t esp_i_ring_init(esp_i_ring_t *ring, const esp_cluster_t *cluster, int32_t n,
                             const int32_t *device, const double *fraction,
                             const esp_allocator_t *alloc);
void esp_i_ring_fini(esp_i_ring_t *ring, const esp_allocator_t *alloc);

/*
 * The time of the ring's steps one after the other: n - 1 of them, each as long as its busiest
 * link. `scatter`: the pieces of a reduce-scatter, which end where they belong; else of an
 * all-gather, which start there. Uses no stage. O(1) for equal pieces, else O(n^2 hops).
 */
void esp_i_ring_gather(esp_i_ledger_t *ledger, int32_t n, const int32_t *device,
                       const double *piece, bool scatter);

/* What a builder gets: ledger, both ends, and where patterns go. */
typedef struct esp_i_find {
    esp_i_ledger_t ledger;
    esp_comm_t comm;
    const esp_place_t *from, *to;
    esp_pattern_t *out;
    int32_t count;
} esp_i_find_t;

/* Finishes the pattern in the ledger and counts it. */
esp_status_t esp_i_find_add(esp_i_find_t *find, esp_algorithm_t algorithm);

esp_status_t esp_i_find_collective(esp_i_find_t *find); /* ALLREDUCE, REDUCE_SCATTER, ALL_GATHER */
esp_status_t esp_i_find_reduce(esp_i_find_t *find);
esp_status_t esp_i_find_broadcast(esp_i_find_t *find);
esp_status_t esp_i_find_gather(esp_i_find_t *find);
esp_status_t esp_i_find_pieces(esp_i_find_t *find); /* EXCHANGE, SCATTER, ALL_TO_ALL */

/* Position of `device` in an ascending list, or -1. O(log n). */
int32_t esp_i_place_find(const esp_place_t *place, int32_t device);
/* Fraction of the tensor on number k of a split. */
static inline double esp_i_place_fraction(const esp_place_t *place, int32_t k)
{
    return place->fraction ? place->fraction[k] : 1.0 / place->n;
}
/*
 * The number in `place` of the holder that device `dst` best receives from: the widest route
 * divided by the uses so far (uses[k] + 1), then the shortest latency, then the lowest number.
 */
int32_t esp_i_place_source(const esp_cluster_t *cluster, const esp_place_t *place,
                           const int32_t *uses, int32_t dst);

#endif
