/*
 * espalier/sim.h: the event simulator: deployment -> timeline, step time, memory.
 *
 * Per device class one compute stream and one collective stream, both exclusive and in the global
 * order of the deployment; other transfers occupy only the links of their route, and start when
 * they are ready. Links are `exclusive` (one movement at a time, committed in order of readiness,
 * as TAG's simulator does) or `fair` (max-min sharing). Events are ordered by (time, position in
 * the global order, step): the same input gives the same result. Finish times are rounded up to
 * whole nanoseconds.
 *
 *     esp_sim_opts_t opts = esp_sim_opts_default();
 *     esp_sim_result_t result;
 *     opts.timeline = 1;
 *     if (esp_sim_create(NULL, &sim) == ESP_OK &&
 *         esp_sim_run(sim, deployment, &opts, &result, &diag) == ESP_OK)
 *         ... result.step_time_ns, result.start_ns[task] ...
 *     esp_sim_destroy(sim);
 */
#ifndef ESPALIER_SIM_H
#define ESPALIER_SIM_H

#include "espalier/deploy.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * How movements that are in flight together share a link. FREE: not at all, each takes its duration
 * from when it is ready: for a replay of measured durations, which have contention in them.
 */
typedef enum esp_link_mode { ESP_LINK_EXCLUSIVE, ESP_LINK_FAIR, ESP_LINK_FREE } esp_link_mode_t;

/* More steps than this tell nothing new: the step time repeats. */
#define ESP_SIM_STEPS_MAX 8

/* Start from esp_sim_opts_default: struct_size tells later versions apart. */
typedef struct esp_sim_opts {
    size_t struct_size;
    esp_link_mode_t links; /* default fair */
    int32_t steps;         /* 1 .. ESP_SIM_STEPS_MAX; default 3: step_time = end(3) - end(2) */
    int32_t barrier;       /* 1: one isolated step; step_time is its makespan */
    /* 1: keep start and end of every task of the last step, and idle/exposed times */
    int32_t timeline;
    const int64_t *task_ns; /* NULL, or durations that replace those of the deployment (replay) */
    int32_t fifo; /* 1: compute streams take tasks as they become ready, not in the global order */
} esp_sim_opts_t;
/* The defaults that the fields state; flags are 0, task_ns is NULL. */
ESP_PUBLIC esp_sim_opts_t esp_sim_opts_default(void);

/* Arrays belong to the simulator and live until its next run. */
typedef struct esp_sim_result {
    int64_t step_time_ns; /* end of the last step - end of the one before, and not less than the
                             busiest stream or link needs for one step; barrier: the makespan */
    int64_t makespan_ns;  /* of the first step */
    int64_t events;       /* completed tasks */
    const int64_t *class_busy_ns;    /* compute stream, of one step */
    const int64_t *class_peak_bytes; /* live peak per device of the class: resident + transient */
    const int64_t *class_peak_role_bytes; /* timeline only: [class][esp_role_t] at the peak */
    const int64_t *start_ns,
        *end_ns; /* timeline only: per task, of the last step, from its first start */
} esp_sim_result_t;

/* Scratch memory that grows to the largest deployment seen. Not thread-safe: one per thread. */
typedef struct esp_sim esp_sim_t;
/* An empty simulator, for any deployments. Errors: ESP_ERR_NOMEM. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_sim_create(const esp_allocator_t *alloc,
                                                     esp_sim_t **sim_out);
/* Accepts NULL. The arrays of its results go with it. */
ESP_PUBLIC void esp_sim_destroy(esp_sim_t *sim);

/*
 * Simulates. Allocates only when the deployment is larger than any before; nothing per event.
 * O(events log(streams + transfers in flight)); fair: one max-min solve per change of the set of
 * movements in flight. opts NULL: the defaults. Errors: ESP_ERR_ARGUMENT (an option out of range);
 * ESP_ERR_NOMEM; ESP_ERR_INTERNAL if the deployment deadlocks (a checked one cannot).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_sim_run(esp_sim_t *sim,
                                                  const esp_deployment_t *deployment,
                                                  const esp_sim_opts_t *opts,
                                                  esp_sim_result_t *result_out, esp_diag_t *diag);

/*
 * Chrome trace JSON (chrome://tracing, Perfetto) of the last run with a timeline: one track per
 * device stream and per link, memory counters. *text_out is NUL-terminated and the caller's:
 * released with the allocator's `release`, or free() if it is NULL. The deployment must still be
 * there. Errors: ESP_ERR_ARGUMENT (the last run kept no timeline), ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_sim_trace(const esp_sim_t *sim,
                                                    const esp_allocator_t *alloc, char **text_out,
                                                    esp_diag_t *diag);

#ifdef __cplusplus
}
#endif
#endif
