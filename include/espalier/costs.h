/*
 * espalier/costs.h: measured costs: files, and cost models and clusters that use them.
 *
 * A cost table says how long ops took on device types, and messages between devices
 * (docs/cost.md, "Measured costs"). What it knows replaces the roofline and the cluster's figures;
 * what it does not know stays as it was.
 *
 *     if (esp_costs_read("costs.json", NULL, &costs, &diag) == ESP_OK &&
 *         esp_costs_cluster(costs, declared, NULL, &cluster, &diag) == ESP_OK)
 *         status = esp_cost_create_measured(graph, cluster, ESP_PRECISION_FP32, costs, NULL,
 *                                           &cost, &diag);
 *
 * The structs are transparent: fill them by hand and write them, or read them from a file. Errors:
 * every function with a status writes its outputs on success only, and fills `diag` (which may be
 * NULL) on failure.
 */
#ifndef ESPALIER_COSTS_H
#define ESPALIER_COSTS_H

#include "espalier/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the file format. */
#define ESP_COSTS_FORMAT 1

/* How long an op took for so many units of its factor (esp_op_unit_factor). */
typedef struct esp_cost_point {
    double units;     /* > 0 */
    double ns;        /* mean; >= 0 */
    double spread_ns; /* standard deviation of one run; >= 0 */
    int64_t runs;     /* behind the mean; >= 1 */
} esp_cost_point_t;

typedef struct esp_cost_curve {
    const char *op;                /* esp_op_signature */
    int32_t n;                     /* >= 1 */
    const esp_cost_point_t *point; /* ascending in units */
} esp_cost_curve_t;

/* One device type. Figures that were not measured are negative. */
typedef struct esp_costs_type {
    const char *name;
    double launch_ns;               /* of an op of next to no work */
    double copy_ns_per_byte;        /* of a local sum, slice or copy, beside the launch */
    double comm_compute_s_per_byte; /* as in esp_device_type_t */
    int32_t n_curves;
    const esp_cost_curve_t *curve; /* ascending by op (strcmp) */
} esp_costs_type_t;

/* One message of S bytes takes latency_ns + S / bytes_per_s; latency holds all that a step needs.
 */
typedef struct esp_costs_link {
    const char *src, *dst; /* names of devices */
    double latency_ns;     /* >= 0 */
    double bytes_per_s;    /* > 0 */
} esp_costs_link_t;

/* A collective on a tensor of so many bytes, among ranks of which each is a device. */
typedef struct esp_costs_collective {
    esp_comm_t kind;       /* all-reduce, reduce-scatter, all-gather */
    const char *algorithm; /* "own": a ring of messages; "mpi" */
    int32_t ranks;         /* >= 2 */
    int64_t bytes;         /* >= 1 */
    double ns;             /* mean; >= 0 */
} esp_costs_collective_t;

typedef struct esp_costs {
    const char *version;       /* of the library that made it */
    esp_precision_t precision; /* of the ops */
    int32_t n_types;
    const esp_costs_type_t *type; /* ascending by name */
    int32_t n_links;
    const esp_costs_link_t *link; /* ascending by src, then dst */
    int32_t n_collectives;
    const esp_costs_collective_t *collective; /* ascending by kind, algorithm, ranks, bytes */
} esp_costs_t;

/*
 * Reads a cost file. On success *costs_out is the caller's, for esp_costs_destroy. Nothing is taken
 * on trust. Errors: ESP_ERR_IO, ESP_ERR_SYNTAX (with line and column), ESP_ERR_INVALID (diag->file
 * and diag->place, a JSON path), ESP_ERR_UNSUPPORTED (another format version), ESP_ERR_LIMIT,
 * ESP_ERR_NOMEM. O(size of the file).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_costs_read(const char *path, const esp_allocator_t *alloc,
                                                     esp_costs_t **costs_out, esp_diag_t *diag);
/* The same for a text of `length` bytes; `file` is for messages, may be NULL. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_costs_parse(const char *text, size_t length,
                                                      const char *file,
                                                      const esp_allocator_t *alloc,
                                                      esp_costs_t **costs_out, esp_diag_t *diag);
/* Accepts NULL. Only for what was read or merged. */
ESP_PUBLIC void esp_costs_destroy(esp_costs_t *costs);

/* The text of a cost file. *text_out: as esp_graph_dump. Errors: ESP_ERR_ARGUMENT (a table that no
 * reader would accept; the diag says what), ESP_ERR_NOMEM. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_costs_to_json(const esp_costs_t *costs,
                                                        const esp_allocator_t *alloc,
                                                        char **text_out, esp_diag_t *diag);
/*
 * Both tables in one; of what both have, that of `newer` counts, point by point. Need not be
 * sorted, nor names be there once (of equals the last counts). Errors: ESP_ERR_ARGUMENT (different
 * precisions, or no valid table), ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_costs_merge(const esp_costs_t *older,
                                                      const esp_costs_t *newer,
                                                      const esp_allocator_t *alloc,
                                                      esp_costs_t **costs_out, esp_diag_t *diag);

/* The type of that name, or NULL. O(log types). */
ESP_PUBLIC const esp_costs_type_t *esp_costs_find_type(const esp_costs_t *costs, const char *name);
/* The curve of that op, or NULL. O(log curves). */
ESP_PUBLIC const esp_cost_curve_t *esp_costs_find_curve(const esp_costs_type_t *type,
                                                        const char *op);
/*
 * What a collective of `bytes` took: linear between the sizes that were measured, below them as the
 * smallest, beyond as between the last two, never falling. Negative: none was measured with that
 * algorithm and number of ranks. O(collectives).
 */
ESP_PUBLIC double esp_costs_collective_ns(const esp_costs_t *costs, esp_comm_t kind,
                                          const char *algorithm, int32_t ranks, int64_t bytes);
/*
 * The curve at `units` >= 0: linear between the points, and beyond them as between the two nearest,
 * never falling; at 0 at least `launch_ns` (which counts as 0 if negative), but no more than any
 * point. O(log points), O(points) before the second.
 */
ESP_PUBLIC double esp_cost_curve_ns(const esp_cost_curve_t *curve, double launch_ns, double units);

/*
 * The cluster with measured figures instead of its own: launch_ns and comm_compute_s_per_byte of
 * device types; bandwidths and latencies of links such that the routes between devices take what
 * was measured between them. A link is as wide as the fastest pair that was measured over it; its
 * latency changes as little as the pairs over it demand. Links that no measured pair uses stay as
 * they are, and names of devices that the cluster does not have are ignored. Errors: those of
 * esp_cluster_builder_freeze. O(cluster + pairs * hops).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_costs_cluster(const esp_costs_t *costs,
                                                        const esp_cluster_t *cluster,
                                                        const esp_allocator_t *alloc,
                                                        esp_cluster_t **cluster_out,
                                                        esp_diag_t *diag);

/*
 * A cost model that takes the time of an op from the table where it has the op, of local steps
 * where it has the type; the roofline fills the gaps. `costs` may be NULL and is not needed
 * afterwards. Errors: those of esp_cost_create; ESP_ERR_ARGUMENT (a table of another precision).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t
esp_cost_create_measured(const esp_graph_t *graph, const esp_cluster_t *cluster,
                         esp_precision_t precision, const esp_costs_t *costs,
                         const esp_allocator_t *alloc, esp_cost_t **cost_out, esp_diag_t *diag);
/* 1 if the time of `op` on devices of that type was measured, 0 if it is an estimate. O(1). */
ESP_PUBLIC int esp_cost_measured(const esp_cost_t *cost, esp_op_id_t op, int32_t type);

#ifdef __cplusplus
}
#endif
#endif
