/* One `espalier run`: what is made from the arguments, in the order in which it is made. */
#ifndef ESP_CLI_RUN_H
#define ESP_CLI_RUN_H

#include "cli.h"

#include <stdio.h>

typedef struct run {
    const cli_args_t *args;
    esp_launch_t *launch; /* NULL: not started by mpirun */
    bool first;           /* this is rank 0, which prints and writes */
    cli_deployment_t plan;
    int32_t *map; /* owned; NULL: none */
    esp_exec_opts_t exec_opts;
    esp_train_job_t job; /* with the executor */
    esp_data_t *data, *eval_data;
    esp_graph_t *evaluation;
    esp_evaluator_t *evaluator;
    esp_schedule_opts_t schedule;
    int64_t until;
    char weights[512]; /* where they came from */
    FILE *log;
    int log_error; /* errno of the first write that failed */
    cli_progress_t progress;
    esp_measured_t *measured; /* NULL: no trace is wanted */
    int64_t runs;             /* of the executor, so far */
} run_t;

/* run_setup.c: each leaves the run good for run_fini. All are collective. */
esp_status_t run_create_exec(run_t *run, esp_diag_t *diag);
esp_status_t run_open_data(run_t *run, esp_diag_t *diag);
esp_status_t run_create_evaluator(run_t *run, esp_diag_t *diag);
/* --steps or --epochs, and the schedule that follows from them. */
esp_status_t run_plan_steps(run_t *run, esp_diag_t *diag);
/* Initial weights, or the state of a checkpoint. */
esp_status_t run_fill(run_t *run, esp_diag_t *diag);

/*
 * run_trace.c: before, after each run of the executor and after training, on every rank. The last
 * gives an exit status.
 */
esp_status_t run_trace_begin(run_t *run, esp_train_opts_t *opts, esp_diag_t *diag);
esp_status_t run_trace(void *context, int64_t steps, esp_diag_t *diag);
int run_trace_end(run_t *run);

/* run_log.c */
int run_log_open(run_t *run);
int run_log_close(run_t *run); /* an exit status; CLI_BAD_INPUT if a line could not be written */
/* Callbacks of esp_train, whose context is the run. */
void run_step(void *context, const esp_train_step_t *step);
int run_stop(void *context);

#endif
