/*
 * espalier/search.h: finding a deployment: evaluator, baselines, MCTS, polishing, bounds.
 *
 * Budgets count evaluations (a lowering and a simulation of one strategy); a strategy that was met
 * before costs nothing. The same seed and evaluation budget give the same result with any number of
 * threads; a time limit, which is looked at between batches of evaluations, does not.
 *
 *     esp_search_opts_t opts = esp_search_opts_default();
 *     esp_search_result_t *result;
 *     opts.threads = 8;
 *     if (esp_search(cost, &opts, NULL, &result, &diag) == ESP_OK && result->best.outcome.feasible)
 *         ... result->best.strategy, result->deployment ...
 *     esp_search_result_destroy(result);
 */
#ifndef ESPALIER_SEARCH_H
#define ESPALIER_SEARCH_H

#include "espalier/sim.h"
#include "espalier/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The baselines, in this order; each is also a starting point of the search.
 * single           the fastest device that fits
 * dp-allreduce     every device, equal shares, gradients all-reduced in 25 MB buckets
 * dp-proportional  the same with shares in proportion to speed
 * dp-ps            every device, equal shares, parameter servers round robin
 * mp-metis         METIS over all base groups, one part per device, by speed
 * mp-pipeline      contiguous stages, one per device, by speed; the best number of micro-batches
 * dp-subset        dp-allreduce on the best set of like devices
 */
#define ESP_BASELINE_MAP(X)                                                                        \
    X(SINGLE, "single")                                                                            \
    X(DP_ALLREDUCE, "dp-allreduce")                                                                \
    X(DP_PROPORTIONAL, "dp-proportional")                                                          \
    X(DP_PS, "dp-ps")                                                                              \
    X(MP_METIS, "mp-metis")                                                                        \
    X(MP_PIPELINE, "mp-pipeline")                                                                  \
    X(DP_SUBSET, "dp-subset")
typedef enum esp_baseline {
#define ESP_BASELINE_ENUM(name, text) ESP_BASELINE_##name,
    ESP_BASELINE_MAP(ESP_BASELINE_ENUM)
#undef ESP_BASELINE_ENUM
        ESP_BASELINE_COUNT
} esp_baseline_t;
/* "dp-allreduce" ... Never NULL, static. */
ESP_PUBLIC const char *esp_baseline_name(esp_baseline_t baseline);

/* Start from esp_search_opts_default: struct_size tells later versions apart. */
typedef struct esp_search_opts {
    size_t struct_size;
    uint64_t seed; /* default 1 */
    /* >= 0: strategies beyond the baselines; default 2000; 0: baselines only */
    int32_t evaluations;
    double time_s;          /* > 0: stop after about that long; default 0: no limit */
    int32_t threads;        /* 1 .. 64; default 1 */
    int32_t max_groups;     /* op groups; default 40 */
    esp_link_mode_t links;  /* default ESP_LINK_FAIR */
    int32_t sync_batchnorm; /* default 0: statistics are not reduced */
    int32_t barrier;        /* default 0; 1: minimise the makespan of one isolated step */
    int32_t baseline;       /* esp_baseline_t: take that one, search nothing; default ESP_NONE */
    /* Called between batches by the thread that called esp_search; default NULL: never. */
    esp_progress_fn progress;
    void *progress_context;
} esp_search_opts_t;
/* The defaults that the fields state. */
ESP_PUBLIC esp_search_opts_t esp_search_opts_default(void);

/* What became of one strategy. */
typedef struct esp_outcome {
    int64_t step_time_ns;
    int32_t feasible;     /* 1: the arena of every device fits its memory */
    int32_t worst_device; /* the device with the least memory left */
    int64_t slack_bytes;  /* memory that device has left; negative: what it lacks */
} esp_outcome_t;

/* A strategy with its own memory, and what it is made of. */
typedef struct esp_choice {
    esp_strategy_t strategy; /* over the meshes of the space */
    int32_t *op_mesh;        /* strategy.op_mesh */
    uint8_t *op_mode;        /* strategy.op_mode */
    int32_t *group_action;   /* per op group: action; ESP_NONE: per-op decisions (mp-*) */
    esp_outcome_t outcome;
} esp_choice_t;

/*
 * What a search found. Everything it points at is part of it and goes with it; graph, cluster and
 * cost model stay the caller's and must outlive it.
 */
typedef struct esp_search_result {
    const esp_space_t *space; /* owned */
    esp_choice_t best;        /* least step time among the feasible; if none: least excess */
    esp_choice_t baseline[ESP_BASELINE_COUNT];
    int32_t from_baseline;  /* esp_baseline_t if the best is a baseline as it is; ESP_NONE */
    int64_t lower_bound_ns; /* no deployment of this space's kind can have a shorter step */
    int64_t evaluations;    /* done, baselines included */
    double search_time_s;
    int32_t proven_infeasible; /* no plan can fit: memory_needed exceeds memory_there */
    int64_t memory_needed_bytes,
        memory_there_bytes; /* parameters and state; all devices together */

    esp_deployment_t *deployment; /* of the best, packed and checked; owned */
    int64_t *device_peak_bytes;   /* per device: arena */
    int64_t *device_busy_ns;      /* per device: compute stream, per step */
} esp_search_result_t;

/*
 * Searches. opts NULL: the defaults. On ESP_OK or ESP_STOPPED (by the progress callback)
 * *result_out is the caller's, also if nothing feasible was found (best.outcome.feasible == 0).
 * Starts opts->threads threads, which end before it returns. Errors: ESP_ERR_ARGUMENT (an option
 * out of range, named; a graph that is no training graph), ESP_ERR_INFEASIBLE (there is no
 * deployment of the kind of opts->baseline), ESP_ERR_NOMEM, ESP_ERR_INTERNAL. O(evaluations)
 * lowerings and simulations.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_search(const esp_cost_t *cost,
                                                 const esp_search_opts_t *opts,
                                                 const esp_allocator_t *alloc,
                                                 esp_search_result_t **result_out,
                                                 esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_search_result_destroy(esp_search_result_t *result);

/*
 * A bound that every deployment obeys: the least over the number of micro-batches of the larger of
 * the total work and launches over the total speed (a fractional relaxation over devices, solved in
 * its dual), and the longest path with every op as fast as it can be. Errors: ESP_ERR_NOMEM.
 * O(iterations * ops * device types + divisors of the batch * ops).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_lower_bound(const esp_cost_t *cost,
                                                      const esp_allocator_t *alloc,
                                                      int64_t *bound_ns_out);

#ifdef __cplusplus
}
#endif
#endif
