/*
 * espalier/cost.h: how long an op takes on a device, and a transfer or collective on the links.
 *
 * Times are integer nanoseconds. A cost model belongs to one graph, one cluster and one precision;
 * it is immutable and may be used by any number of threads. It describes time and memory for
 * planning; docs/cost.md says where each figure comes from and how far it is to be trusted.
 *
 *     esp_cost_t *cost;
 *     if (esp_cost_create(graph, cluster, ESP_PRECISION_FP32, NULL, &cost, &diag) == ESP_OK)
 *         ... esp_cost_op_ns(cost, op, cluster->device_type[device], 1.0, 0) ...
 *     esp_cost_destroy(cost);
 */
#ifndef ESPALIER_COST_H
#define ESPALIER_COST_H

#include "espalier/cluster.h"
#include "espalier/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ops ------------------------------------------------------------------------------------- */

/*
 * Roofline: launch + ramp + max(flops / (peak * e_family), bytes / (bandwidth * e_memory)), with
 * the efficiencies of docs/cost.md. bytes: every operand read or written once, at its stored size.
 *
 * Storage by precision: fp32 and tf32 store everything as in the graph; fp16 and bf16 store float32
 * activations, their gradients and a working copy of parameters in two bytes, parameters (master
 * copy), their gradients and optimizer state in four. tensor_bytes is the master copy; the working
 * copy lies beside it and is what ops other than the update read.
 */
typedef struct esp_cost {
    const esp_graph_t *graph;
    const esp_cluster_t *cluster;
    esp_precision_t precision;

    /* Per op. Under its own factor (op_batch for a batch split) a share w of b units takes
     * flops * w / b and split_bytes * w / b + whole_bytes. */
    const double *op_flops;
    const double *op_split_bytes; /* operands that carry op_batch */
    const double *op_whole_bytes; /* the others; all of them if op_batch is NONE */
    /* scratch memory while a part of the op runs: workspace * w / b + workspace_whole */
    const double *op_workspace_bytes, *op_workspace_whole_bytes;
    const double *tensor_bytes; /* stored size under the precision */
    /* beside it: working copy of a parameter in two bytes; else 0 */
    const double *tensor_working_bytes;

    /* Per (device type, family): nanoseconds per flop and per byte, and the constant part. Index
     * type * ESP_FAMILY_COUNT + family. */
    const double *ns_per_flop, *ns_per_byte;
    const double *constant_ns;
} esp_cost_t;

/*
 * Prices every op of a graph on every device type of a cluster. *cost_out is the caller's, for
 * esp_cost_destroy; graph and cluster must outlive it. Errors: ESP_ERR_ARGUMENT (no graph, cluster
 * or precision), ESP_ERR_NOMEM. O(ops + operands + types).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_cost_create(const esp_graph_t *graph,
                                                      const esp_cluster_t *cluster,
                                                      esp_precision_t precision,
                                                      const esp_allocator_t *alloc,
                                                      esp_cost_t **cost_out, esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_cost_destroy(esp_cost_t *cost);

/*
 * Nanoseconds of `op` on a device of type `type` when it does `part` of the whole (0 < part <= 1)
 * of its flops and split bytes; `whole_split`: every operand is split (sharded optimizer). >= 1,
 * except 0 for ops without a task (family FREE). O(1).
 */
ESP_PUBLIC int64_t esp_cost_op_ns(const esp_cost_t *cost, esp_op_id_t op, int32_t type, double part,
                                  int whole_split);
/*
 * Nanoseconds of the whole op without what does not shrink when it is divided (launch, ramp): a
 * share w of b units takes at least w / b of it. 0 for family FREE. O(1).
 */
ESP_PUBLIC double esp_cost_divisible_ns(const esp_cost_t *cost, esp_op_id_t op, int32_t type);
/* A memory-bound step (local sum, slice, copy) that moves `bytes` in all. O(1). */
ESP_PUBLIC int64_t esp_cost_copy_ns(const esp_cost_t *cost, int32_t type, double bytes);

/* ---- transfers and collectives --------------------------------------------------------------- */

/*
 * What moves. D and E are lists of devices; shares are fractions of the tensor per device.
 * ALLREDUCE       partial on D -> replicated on D
 * REDUCE_SCATTER  partial on D -> split on D by shares
 * ALL_GATHER      split on D by shares -> replicated on D
 * REDUCE          partial on D -> on the one device of E
 * BROADCAST       replicated on D -> replicated on E
 * EXCHANGE        split on D by shares -> split on E by other shares, same view
 * GATHER          split on D by shares -> replicated on E
 * SCATTER         replicated on D -> split on E by shares
 * ALL_TO_ALL      split on D by one view -> split on E by another
 */
#define ESP_COMM_MAP(X)                                                                            \
    X(ALLREDUCE, "all-reduce")                                                                     \
    X(REDUCE_SCATTER, "reduce-scatter")                                                            \
    X(ALL_GATHER, "all-gather")                                                                    \
    X(REDUCE, "reduce")                                                                            \
    X(BROADCAST, "broadcast")                                                                      \
    X(EXCHANGE, "exchange")                                                                        \
    X(GATHER, "gather")                                                                            \
    X(SCATTER, "scatter")                                                                          \
    X(ALL_TO_ALL, "all-to-all")
typedef enum esp_comm {
#define ESP_COMM_ENUM(name, text) ESP_COMM_##name,
    ESP_COMM_MAP(ESP_COMM_ENUM)
#undef ESP_COMM_ENUM
        ESP_COMM_COUNT
} esp_comm_t;
/* "all-reduce" ..., as in reports and plan files. Never NULL, static. */
ESP_PUBLIC const char *esp_comm_name(esp_comm_t comm);

/*
 * How a movement is carried out. DIRECT: each source sends to each destination over the routes of
 * the cluster; RING: pieces go round all members; TREE: through members that pass it on; TWO_LEVEL:
 * inside each node first, then between nodes.
 */
typedef enum esp_algorithm {
    ESP_ALGORITHM_DIRECT,
    ESP_ALGORITHM_RING,
    ESP_ALGORITHM_TREE,
    ESP_ALGORITHM_TWO_LEVEL
} esp_algorithm_t;

/* Where one side of a movement lies. The arrays are the caller's and read during a call only. */
typedef struct esp_place {
    int32_t n;
    const int32_t *device;  /* ascending */
    const double *fraction; /* of the tensor that each holds; NULL where replicated or partial */
} esp_place_t;

/*
 * One way to carry out a movement: how many bytes each link carries per byte of the tensor, and
 * what does not depend on the size. The movement of S bytes alone takes latency_ns + S *
 * ns_per_byte. Each byte crosses a boundary between device groups once per destination group.
 */
typedef struct esp_pattern {
    esp_comm_t comm;
    esp_algorithm_t algorithm;
    int32_t n_links;
    const int32_t *link; /* ascending */
    const double *load;  /* bytes on the link per byte of the tensor, > 0 */
    double ns_per_byte;  /* max over links of load / bandwidth, or of the ring's slowest step */
    int64_t latency_ns;
    double total_load; /* sum of loads: bytes on all links per byte of the tensor */
    double staging;    /* receive buffer per byte of the tensor on a member, beyond the result */
} esp_pattern_t;

/*
 * The ways to do `comm` from D to E, at least one: the first *count_out elements of patterns_out,
 * each the caller's, for esp_pattern_release with the same allocator. `to` may be NULL where E is D
 * (ALLREDUCE, REDUCE_SCATTER, ALL_GATHER). The cheapest for a size is found by latency_ns + S *
 * ns_per_byte, ties to the earlier one. Errors: ESP_ERR_ARGUMENT (a place that is empty, not
 * ascending or not of this cluster; REDUCE to more than one device), ESP_ERR_NOMEM.
 */
#define ESP_PATTERN_MAX 4
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_pattern_find(
    const esp_cluster_t *cluster, esp_comm_t comm, const esp_place_t *from, const esp_place_t *to,
    const esp_allocator_t *alloc, esp_pattern_t patterns_out[ESP_PATTERN_MAX], int32_t *count_out);
/* Accepts NULL; a pattern that was released may be released again. */
ESP_PUBLIC void esp_pattern_release(esp_pattern_t *pattern, const esp_allocator_t *alloc);

#ifdef __cplusplus
}
#endif
#endif
