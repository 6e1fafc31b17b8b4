/*
 * espalier/plan.h: the plan file: strategy, prediction and provenance of a deployment.
 *
 * A plan says how one model trains on one cluster and what that is expected to cost. The file
 * (JSON, docs/plan.md) is relocatable (the model's path is relative to the plan file when it lies
 * beside or below it, the cluster is embedded), versioned and hashed, and holds no time of day:
 * the same plan is the same bytes. What the deployment looks like in detail is not in it, because
 * lowering finds it again:
 *
 *     esp_plan_read -> esp_cluster_parse(plan->cluster_text) -> esp_onnx_load(plan->model_path)
 *     -> esp_training_graph(&plan->training) -> esp_plan_check -> esp_lower(&plan->strategy)
 *
 * The struct is transparent: fill it by hand and write it, or read it from a file. Texts are
 * NUL-terminated UTF-8 and never NULL unless a comment says so.
 */
#ifndef ESPALIER_PLAN_H
#define ESPALIER_PLAN_H

#include "espalier/search.h"
#include "espalier/sim.h"
#include "espalier/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the file format that this library writes, and the only one that it reads. */
#define ESP_PLAN_FORMAT 1

/* Of a plan file: more is ESP_ERR_LIMIT. */
#define ESP_PLAN_MAX_BYTES (INT64_C(64) << 20)

/*
 * What the search decided for one op group. The decisions per op in `strategy` are what counts;
 * where they differ from those of their group (a gradient op that is duplicated, say), the op is an
 * exception to its group.
 */
typedef struct esp_plan_group {
    const char *name;
    int32_t mesh; /* index into strategy.mesh; ESP_NONE: its ops were decided one by one */
    esp_sync_t sync;
    esp_shares_t shares;
} esp_plan_group_t;

/* What is predicted for one device. */
typedef struct esp_plan_device {
    const char *name;
    int64_t peak_bytes;     /* most memory in use at one time */
    int64_t arena_bytes;    /* what it allocates: resident and packed transient memory */
    int64_t capacity_bytes; /* usable memory of the device */
    int64_t busy_ns;        /* compute stream, of one step */
} esp_plan_device_t;

/* Another planner's result for the same model and cluster. */
typedef struct esp_plan_baseline {
    const char *name;
    int64_t step_time_ns; /* 0: it found no deployment */
    int32_t fits;         /* 1: within the memory of every device */
} esp_plan_baseline_t;

typedef struct esp_plan {
    /* provenance */
    const char *version;        /* of the library that made it: esp_version() */
    const char *model_path;     /* opens from the working directory, or is absolute */
    const char *model_sha256;   /* of the file: 64 hex digits; esp_plan_hash_file */
    const char *batch_dim;      /* import options, as in esp_onnx_opts_t; "": none */
    const char *dims;           /* ditto */
    const char *cluster_path;   /* for people: where cluster_text came from; "": made otherwise */
    const char *cluster_sha256; /* esp_cluster_hash */
    const char *cluster_text;   /* esp_cluster_dump */
    const char *graph_sha256;   /* of the training graph: esp_graph_hash */
    /* Measured costs that it was made with (the cluster has their links in it already); both NULL
     * or "": none. The path as model_path; the hash is of the file. */
    const char *costs_path, *costs_sha256;

    /* the step */
    int64_t batch;                /* samples; >= 1 */
    esp_precision_t precision;    /* of the cost model */
    esp_training_opts_t training; /* loss and optimizer; the regular expressions may be NULL */

    /* devices of the cluster, in its order: what device ids below mean */
    int32_t n_devices;
    const esp_plan_device_t *device;

    /* the strategy, ready for esp_lower; op_mesh and op_mode have n_ops elements */
    esp_strategy_t strategy;
    int32_t n_ops;
    const char *const *op_name;
    const int32_t *op_group; /* ESP_NONE: decided alone */
    int32_t n_groups;
    const esp_plan_group_t *group;

    /* the prediction */
    esp_link_mode_t links;  /* how the simulator shared links */
    int32_t barrier;        /* of one isolated step, not of the steady state */
    int64_t step_time_ns;   /* steady-state period; >= 0 */
    int64_t makespan_ns;    /* of one isolated step */
    int64_t lower_bound_ns; /* no deployment is shorter; 0: not known */

    /* how it was found */
    int64_t seed;        /* >= 0 */
    int64_t evaluations; /* strategies that were simulated */
    int32_t n_baselines;
    const esp_plan_baseline_t *baseline;
} esp_plan_t;

/* What the plan of a search is made from. */
typedef struct esp_plan_source {
    const char *model_path; /* the file: it is hashed */
    const char *batch_dim;  /* import options, as in esp_onnx_opts_t; may be NULL */
    const char *dims;
    const char *cluster_path; /* may be NULL */
    const char *costs_path;   /* the cost file that `cost` uses: it is hashed; may be NULL */
    const esp_training_opts_t *training;
    const esp_cost_t *cost; /* of the training graph and the cluster */
    const esp_search_opts_t *opts;
    const esp_search_result_t *result;
} esp_plan_source_t;

/*
 * The plan of the best deployment that a search found. On success *plan_out is the caller's, for
 * esp_plan_destroy; it does not need the source any longer. Errors: ESP_ERR_IO and ESP_ERR_LIMIT
 * (the model file), ESP_ERR_INFEASIBLE (the best does not fit), ESP_ERR_NOMEM. O(size of the plan).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_plan_create(const esp_plan_source_t *source,
                                                      const esp_allocator_t *alloc,
                                                      esp_plan_t **plan_out, esp_diag_t *diag);

/*
 * The text of a plan file. `directory`: of the file it is for; the model's path is written relative
 * to it when it lies in it, absolute otherwise. NULL: as it stands in the plan. *text_out is
 * NUL-terminated and the caller's: released with the allocator's `release` (NULL: free). A plan
 * that no reader would accept is not written. Errors: ESP_ERR_ARGUMENT (diag->place is the JSON
 * path of what makes no sense), ESP_ERR_NOMEM. O(size of the plan).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_plan_to_json(const esp_plan_t *plan,
                                                       const char *directory,
                                                       const esp_allocator_t *alloc,
                                                       char **text_out, esp_diag_t *diag);

/*
 * Writes a plan file, atomically: on failure nothing is left and an old file is untouched. Errors:
 * as esp_plan_to_json, and ESP_ERR_IO.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_plan_write(const esp_plan_t *plan, const char *path,
                                                     esp_diag_t *diag);

/*
 * Reads a plan file. On success *plan_out is the caller's, for esp_plan_destroy, and a relative
 * model_path has become one that opens from the working directory. Nothing is taken on trust:
 * unknown, missing and repeated keys, values out of range, names that do not exist and indices
 * beyond their list are errors. Errors: ESP_ERR_IO, ESP_ERR_SYNTAX (with line and column),
 * ESP_ERR_INVALID (diag->file and diag->place, a JSON path), ESP_ERR_UNSUPPORTED (another format
 * version), ESP_ERR_LIMIT, ESP_ERR_NOMEM. O(size of the file).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_plan_read(const char *path, const esp_allocator_t *alloc,
                                                    esp_plan_t **plan_out, esp_diag_t *diag);

/*
 * The same for a text of `length` bytes in memory (no NUL needed, not kept). `file` is for messages
 * and for the directory of relative paths; NULL: paths are kept as they are.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_plan_parse(const char *text, size_t length,
                                                     const char *file, const esp_allocator_t *alloc,
                                                     esp_plan_t **plan_out, esp_diag_t *diag);

/*
 * A deep copy in one arena, for whoever fills a plan from temporaries. Errors: ESP_ERR_ARGUMENT as
 * esp_plan_to_json, ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_plan_clone(const esp_plan_t *plan,
                                                     const esp_allocator_t *alloc,
                                                     esp_plan_t **clone_out, esp_diag_t *diag);

/* Releases a plan that was read or cloned. Accepts NULL. */
ESP_PUBLIC void esp_plan_destroy(esp_plan_t *plan);

/*
 * Whether a plan is for this training graph and this cluster: hashes, batch, names of ops and
 * devices, memory of the devices. Call it before lowering: a model or cluster that has changed
 * since is ESP_ERR_INVALID, and diag names what differs. Errors also: ESP_ERR_NOMEM. O(graph +
 * cluster).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_plan_check(const esp_plan_t *plan,
                                                     const esp_graph_t *graph,
                                                     const esp_cluster_t *cluster,
                                                     esp_diag_t *diag);

/*
 * SHA-256 of a file's bytes as 64 hex digits and a NUL: what model_sha256 holds. Errors:
 * ESP_ERR_IO, ESP_ERR_LIMIT (more than 2 GiB), ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_plan_hash_file(const char *path, char hex_out[65],
                                                         esp_diag_t *diag);

#ifdef __cplusplus
}
#endif
#endif
