/* run --trace: what was measured of the steps. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

enum {
    RUN_STEPS = 5,       /* of which the first fills the pipeline and the last is recorded */
    WARM_UP_RUNS = 2,    /* that do not count */
    MOST_EVENTS = 200000 /* of a trace: some 30 MB */
};

esp_status_t run_trace_begin(run_t *run, esp_train_opts_t *opts, esp_diag_t *diag)
{
    esp_exec_timeline_t timeline;
    if (run->args->trace == NULL)
        return ESP_OK;
    esp_status_t status = esp_exec_timeline(run->job.exec, &timeline, diag);
    if (status != ESP_OK)
        return status;
    opts->ran = run_trace;
    opts->run_steps = RUN_STEPS;
    return esp_measured_create(run->plan.deployment, timeline.n_ranks, timeline.device, NULL,
                               &run->measured, diag);
}

/* Whether another step fits the trace. */
static bool has_room(const run_t *run)
{
    int64_t events = (int64_t)run->measured->n_ranks * run->plan.deployment->n_tasks;
    return run->measured->n_steps == 0 || (run->measured->n_steps < ESP_MEASURED_MAX_STEPS &&
                                           events * (run->measured->n_steps + 1) <= MOST_EVENTS);
}

esp_status_t run_trace(void *context, int64_t steps, esp_diag_t *diag)
{
    run_t *run = context;
    esp_exec_timeline_t timeline;
    if (run->runs++ < WARM_UP_RUNS || steps < 2)
        return ESP_OK;
    esp_status_t status = esp_exec_timeline(run->job.exec, &timeline, diag);
    if (status != ESP_OK)
        return status;
    bool recorded = has_room(run);
    return esp_measured_add(run->measured, recorded ? timeline.start_ns : NULL,
                            recorded ? timeline.end_ns : NULL, timeline.steps, timeline.step_end_ns,
                            diag);
}

int run_trace_end(run_t *run)
{
    esp_diag_t diag = {0};
    char *text;
    int result = CLI_DONE;
    if (run->measured != NULL && run->first) {
        esp_status_t status = esp_measured_trace(run->measured, NULL, &text, &diag);
        if (status == ESP_OK) {
            status = esp_file_write(run->args->trace, text, strlen(text), &diag);
            free(text);
        }
        result = status == ESP_OK ? CLI_DONE : cli_fail(status, &diag);
        if (result == CLI_DONE && run->measured->n_steps == 0)
            cli_error("%s: no step was recorded; that takes at least %d steps", run->args->trace,
                      WARM_UP_RUNS * RUN_STEPS + 2);
    }
    return result;
}
