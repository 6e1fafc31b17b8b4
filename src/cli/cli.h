/* What the commands share: arguments, exit statuses, output, progress, the model pipeline. */
#ifndef ESP_CLI_H
#define ESP_CLI_H

#include "espalier/report.h"
#include "espalier/train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses. */
enum {
    CLI_DONE = 0,
    CLI_BAD_INPUT = 1, /* model, cluster or plan; or a file that cannot be read or written */
    CLI_USAGE = 2,
    CLI_NO_PLAN = 3, /* nothing fits the memory of the devices */
    CLI_FAULT = 4,
};

/* ---- arguments ------------------------------------------------------------------------------ */

/* The values of every option of every command, with the defaults of the library. */
typedef struct cli_args {
    const char *operand; /* MODEL, FILE or PLAN */
    /* output */
    int64_t seed;
    bool json, quiet, verbose, help, version;
    /* model and training */
    int64_t batch, ignore_label;
    char *batch_dim, *dim; /* owned: repeated options are joined by commas */
    const char *train, *freeze, *no_decay;
    int64_t loss, optimizer, precision; /* enum values */
    double lr, momentum, beta1, beta2, epsilon, weight_decay, clip_norm;
    /* inspect, cluster */
    bool ops, forward, dump, dot;
    /* plan, compare, simulate */
    const char *cluster, *output, *trace, *measured, *costs;
    int64_t evaluations, threads, groups, links, batchnorm, strategy;
    double time_s;
    bool barrier;
    bool links_given, barrier_given;
    /* run */
    int64_t steps, epochs, evaluate_every, warmup, decay_every, checkpoint_every, schedule, backend;
    int64_t collectives;
    double min_rate, decay_factor;
    char *data, *eval_data, *map; /* owned lists */
    const char *weights, *log, *checkpoint, *resume, *status_file;
    bool wide, in_order, log_times, steps_given;
    /* profile */
    const char *type;
    int64_t runs, shares;
    double seconds;
    bool measure_links, type_given;
} cli_args_t;

/* One bit for each command, for masks. */
enum {
    CLI_INSPECT = 1,
    CLI_CLUSTER = 2,
    CLI_PLAN = 4,
    CLI_COMPARE = 8,
    CLI_SIMULATE = 16,
    CLI_RUN = 32,
    CLI_PROFILE = 64,
    CLI_MEASURED = 128, /* compare --measured */
    CLI_ALL = 255,
};

typedef struct cli_command {
    const char *name;
    uint32_t bit;
    const char *operand; /* "MODEL", for the help */
    const char *help;    /* one line */
    const char *about;   /* a few lines */
    const char *example;
    int (*run)(const cli_args_t *args);
} cli_command_t;

extern const cli_command_t cli_inspect, cli_cluster, cli_plan, cli_compare, cli_simulate, cli_run,
    cli_profile;

/*
 * Reads argv[2..argc) for a command. CLI_DONE, or CLI_USAGE after having said what is wrong.
 * cli_args_fini releases what it made, in either case.
 */
int cli_args_parse(const cli_command_t *command, int argc, char **argv, cli_args_t *args);
void cli_args_fini(cli_args_t *args);
/* Prints the options of a command, with defaults and bounds. */
void cli_options_help(const cli_command_t *command);
/* The name nearest to `word`, or NULL if none is near. */
const char *cli_nearest(const char *word, const char *const *names);

/* ---- output --------------------------------------------------------------------------------- */

/* Whether errors are not printed from now on, as this is not the first rank. */
void cli_errors_off(bool off);
/* One line on stderr: "espalier: ...". */
void cli_error(const char *format, ...) ESP_PRINTF(1, 2);
/* Says what went wrong; the exit status for it. */
int cli_fail(esp_status_t status, const esp_diag_t *diag);
/* The same; the fault is in that file unless the diagnostic names another one. */
int cli_fail_in(const char *file, esp_status_t status, esp_diag_t *diag);
/* Writes to stdout; all of it or an error. CLI_DONE or CLI_BAD_INPUT. */
int cli_print(const char *text);
/* Prints a report and releases it, unless `status` says that there is none. */
int cli_print_report(esp_status_t status, char *text, const esp_diag_t *diag);
esp_report_opts_t cli_report_opts(const cli_args_t *args);

/* ---- progress and interruption -------------------------------------------------------------- */

typedef struct cli_progress {
    bool shown; /* stderr is a terminal, and not --quiet */
    int64_t next_ns;
} cli_progress_t;
void cli_progress_init(cli_progress_t *progress, const cli_args_t *args);
/* SIGTERM and SIGUSR1 (which mpirun passes on) are taken for Ctrl-C from now on. */
void cli_catch_signals(void);
/* esp_progress_fn: shows fraction and text, and stops after Ctrl-C. */
int cli_progress_update(void *context, double fraction, const char *what);
/* Whether Ctrl-C was pressed since. */
bool cli_interrupted(void);
/* Erases the line. */
void cli_progress_fini(cli_progress_t *progress);

/* A file, and what is in it where it was sent by the first rank. */
typedef struct cli_file {
    const char *path;
    char *data; /* NULL: to be read */
    int64_t length;
} cli_file_t;

/* ---- models --------------------------------------------------------------------------------- */

typedef struct cli_model {
    esp_training_opts_t training;
    esp_graph_t *model; /* canonical */
    esp_graph_t *step;  /* NULL: forward only */
} cli_model_t;
/* Zero-initialises, reads and derives. An exit status. Release in either case. */
int cli_model_load(const cli_args_t *args, bool forward_only, cli_model_t *model);
void cli_model_fini(cli_model_t *model);

/* ---- measured costs ------------------------------------------------------------------------- */

/*
 * Puts measured links into a cluster (*cluster is replaced), and makes the cost model. A path that
 * is NULL: no measured costs. *costs_out (may be NULL): the table, or NULL. An exit status, after
 * having said what is wrong.
 */
int cli_cost_create(cli_file_t file, const esp_graph_t *step, esp_precision_t precision,
                    esp_cluster_t **cluster, esp_cost_t **cost_out, esp_costs_t **costs_out);

/* ---- plans ---------------------------------------------------------------------------------- */

/* From model and cluster to the result of a search. */
typedef struct cli_search {
    cli_model_t model;
    esp_cluster_t *cluster;
    esp_cost_t *cost;
    esp_search_opts_t opts;
    esp_search_result_t *result;
} cli_search_t;
/* As cli_model_load. CLI_DONE also if nothing feasible was found. */
int cli_search_run(const cli_args_t *args, cli_search_t *search);
void cli_search_fini(cli_search_t *search);
/* The exit status of a search; CLI_NO_PLAN after having said why. */
int cli_search_verdict(const cli_search_t *search);

/* From a plan file to its deployment, packed as the plan predicts it. */
typedef struct cli_deployment {
    esp_plan_t *plan;
    esp_cluster_t *cluster;
    esp_graph_t *model; /* canonical */
    esp_graph_t *step;
    esp_cost_t *cost;
    esp_costs_t *costs; /* measured; NULL: none */
    esp_lowerer_t *lowerer;
    const esp_deployment_t *deployment; /* of the lowerer */
    esp_sim_t *sim;                     /* for further use */
} cli_deployment_t;
/* Zero-initialises, reads args->operand and lowers. An exit status. Release in either case. */
int cli_deployment_load(const cli_args_t *args, cli_deployment_t *deployment);
/* The same on all ranks, of which only the first needs to see plan and model. */
int cli_deployment_load_on(const cli_args_t *args, esp_launch_t *launch,
                           cli_deployment_t *deployment);
void cli_deployment_fini(cli_deployment_t *deployment);
/* Says what went wrong. Options come from the file here: what is wrong with them is wrong with it.
 */
int cli_deployment_fail(const cli_args_t *args, esp_status_t status, esp_diag_t *diag);

/* Writes the plan file of a search. */
int cli_plan_write(const cli_args_t *args, const cli_search_t *search);
/*
 * Whether all that is to be written could be, and takes the place of nothing that is read or also
 * written: fails before the work rather than after it. The second: of a file that another names.
 */
int cli_check_outputs(const cli_args_t *args);
int cli_check_outputs_beside(const cli_args_t *args, const char *input);
/* Writes the trace of the last run of `sim`. */
int cli_trace_write(const esp_sim_t *sim, const char *path);

#endif
