/*
 * espalier/measured.h: measured timelines of a deployment: collecting them, trace files, durations
 * for a replay.
 *
 * A measurement holds steps that were recorded on every rank, and how long the other steps took.
 * After a run of the executor:
 *
 *     esp_measured_t *m;
 *     if (esp_measured_create(deployment, timeline.n_ranks, timeline.device, NULL, &m, &diag) ==
 *             ESP_OK &&
 *         esp_measured_add(m, timeline.start_ns, timeline.end_ns, timeline.steps,
 *                          timeline.step_end_ns, &diag) == ESP_OK)
 *         ... esp_measured_trace(m, NULL, &text, &diag) ...
 *     esp_measured_destroy(m);
 *
 * Errors: every function with a status writes its outputs on success only, and fills `diag` (which
 * may be NULL) on failure.
 */
#ifndef ESPALIER_MEASURED_H
#define ESPALIER_MEASURED_H

#include "espalier/sim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a trace: more recorded steps are refused. */
#define ESP_MEASURED_MAX_STEPS 64

typedef struct esp_measured {
    const esp_deployment_t *deployment; /* must outlive it */
    int32_t n_ranks;
    const int32_t *device; /* per rank */
    int32_t n_steps;       /* recorded */
    /* [step][rank][task], from the first start of that step; -1 where the rank has no part */
    const int64_t *start_ns, *end_ns;
    /* of each recorded step: its end after that of the step before; isolated: its makespan */
    const int64_t *step_ns;
    int32_t isolated;               /* 1: no recorded step overlaps with another one */
    int64_t periods;                /* steps behind the mean: all but the first of each run */
    double mean_step_ns, spread_ns; /* standard deviation */
    /* of the first 10,000 of them: what a step takes where nothing holds it up */
    double median_step_ns;
} esp_measured_t;

/* An empty measurement. Errors: ESP_ERR_ARGUMENT (a device that does nothing or is there twice),
 * ESP_ERR_NOMEM. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_measured_create(const esp_deployment_t *deployment,
                                                          int32_t n_ranks, const int32_t *device,
                                                          const esp_allocator_t *alloc,
                                                          esp_measured_t **measured_out,
                                                          esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_measured_destroy(esp_measured_t *measured);

/*
 * Adds a run of `steps` >= 1 steps of which the last was recorded: times by rank and task (both
 * NULL: it was not), and when each step ended, from the start of the run. The first step of a run
 * fills the pipeline and counts only where it is alone. Runs are of one step, all of them, or none.
 * Errors: ESP_ERR_ARGUMENT (that, times that run backwards, a task without time on a rank that
 * takes part), ESP_ERR_LIMIT, ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_measured_add(esp_measured_t *measured,
                                                       const int64_t *start_ns,
                                                       const int64_t *end_ns, int64_t steps,
                                                       const int64_t *step_end_ns,
                                                       esp_diag_t *diag);

/*
 * Chrome trace of the recorded steps, one after the other, with the names and task ids of
 * esp_sim_trace: a process for each rank, one for the links. What esp_measured_read needs is in it.
 * *text_out: as esp_sim_trace. Errors: ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_measured_trace(const esp_measured_t *measured,
                                                         const esp_allocator_t *alloc,
                                                         char **text_out, esp_diag_t *diag);

/*
 * Reads such a trace. It must be of this deployment: tasks, devices and hash of the training graph
 * are compared. Errors: ESP_ERR_IO, ESP_ERR_SYNTAX, ESP_ERR_INVALID (with file and JSON path),
 * ESP_ERR_LIMIT, ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_measured_read(const char *path,
                                                        const esp_deployment_t *deployment,
                                                        const esp_allocator_t *alloc,
                                                        esp_measured_t **measured_out,
                                                        esp_diag_t *diag);
/* The same for a text of `length` bytes; `file` is for messages, may be NULL. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_measured_parse(
    const char *text, size_t length, const char *file, const esp_deployment_t *deployment,
    const esp_allocator_t *alloc, esp_measured_t **measured_out, esp_diag_t *diag);

/*
 * Durations of one recorded step, by task, for esp_sim_opts_t.task_ns. Of a compute task: the mean
 * over the devices of its class. Of a movement: from when all that take part had started it until
 * all had ended. ns_out: n_tasks numbers.
 */
ESP_PUBLIC void esp_measured_durations(const esp_measured_t *measured, int32_t step,
                                       int64_t *ns_out);

#ifdef __cplusplus
}
#endif
#endif
