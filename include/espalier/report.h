/*
 * espalier/report.h: what the library found, as text for people or as JSON for programs.
 *
 * Every report is one text: for people ASCII of at most 100 columns with numbers of three
 * significant digits (names from files may be longer or hold other characters), or one JSON
 * document. The same input gives the same bytes; only the time that a search took varies.
 *
 *     esp_report_opts_t opts = esp_report_opts_default();
 *     char *text;
 *     if (esp_report_cluster(cluster, &opts, NULL, &text, &diag) == ESP_OK) {
 *         fputs(text, stdout);
 *         free(text);
 *     }
 *
 * Errors of every function with a status: ESP_ERR_NOMEM; ESP_ERR_ARGUMENT for options of another
 * version or a subject that lacks what the function needs. *text_out is NUL-terminated and the
 * caller's: released with the allocator's `release`, or free() if it is NULL.
 */
#ifndef ESPALIER_REPORT_H
#define ESPALIER_REPORT_H

#include "espalier/costs.h"
#include "espalier/measured.h"
#include "espalier/plan.h"
#include "espalier/search.h"
#include "espalier/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For people, or for programs. */
typedef enum esp_report_form { ESP_REPORT_TEXT, ESP_REPORT_JSON } esp_report_form_t;

/* Start from esp_report_opts_default: struct_size tells later versions apart. */
typedef struct esp_report_opts {
    size_t struct_size;
    esp_report_form_t form; /* default text */
    int32_t verbose;        /* 1: whole lists (parameters, ops, links); default 0: their heads */
} esp_report_opts_t;
/* The defaults that the fields state. */
ESP_PUBLIC esp_report_opts_t esp_report_opts_default(void);

/* A model and the training step that was derived from it. */
typedef struct esp_report_model_args {
    const char *file;                    /* for the heading; may be NULL */
    const esp_graph_t *model;            /* required */
    const esp_graph_t *step;             /* esp_training_graph of it; NULL: forward only */
    const esp_training_opts_t *training; /* that made `step`; required with it */
    esp_precision_t precision;           /* fp16 and bf16 keep float32 activations in two bytes */
    const esp_costs_t *costs;            /* say which ops these tell the time of; may be NULL */
} esp_report_model_args_t;

/*
 * Inputs and outputs, the batch, ops by kind, FLOPs, parameters, memory of one replica, and what
 * the batch does not split. O(graph).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_report_model(const esp_report_model_args_t *subject,
                                                       const esp_report_opts_t *opts,
                                                       const esp_allocator_t *alloc,
                                                       char **text_out, esp_diag_t *diag);

/* Devices by group, kinds of links, routes between groups. O(devices^2 * hops). */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_report_cluster(const esp_cluster_t *cluster,
                                                         const esp_report_opts_t *opts,
                                                         const esp_allocator_t *alloc,
                                                         char **text_out, esp_diag_t *diag);

/* The op kinds of the library with what each supports, and the ONNX ops that become them. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_report_kinds(const esp_report_opts_t *opts,
                                                       const esp_allocator_t *alloc,
                                                       char **text_out, esp_diag_t *diag);

/* A search and what it was made with. */
typedef struct esp_report_search_args {
    const char *model; /* what to call it; NULL: the name of the graph */
    const esp_cost_t *cost;
    const esp_search_opts_t *opts;
    const esp_search_result_t *result;
} esp_report_search_args_t;

/*
 * The best deployment: table against the baselines, bound, where the step goes on each device,
 * largest movements, what each device group does. Simulates `result->deployment` once.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_report_plan(const esp_report_search_args_t *subject,
                                                      const esp_report_opts_t *opts,
                                                      const esp_allocator_t *alloc, char **text_out,
                                                      esp_diag_t *diag);

/* Every baseline and the search side by side. Lowers and simulates each once. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_report_compare(const esp_report_search_args_t *subject,
                                                         const esp_report_opts_t *opts,
                                                         const esp_allocator_t *alloc,
                                                         char **text_out, esp_diag_t *diag);

/*
 * Why nothing feasible was found, as one sentence: which device runs out of memory and by how much,
 * with the proof or the number of evaluations. Cut at capacity. For results whose best is not
 * feasible.
 */
ESP_PUBLIC void esp_report_infeasible(const esp_report_search_args_t *subject, char *text_out,
                                      size_t capacity);

/* A deployment and its last simulated run, which kept a timeline. */
typedef struct esp_report_run_args {
    const char *model;                  /* what to call it; NULL: the name of the graph */
    const esp_deployment_t *deployment; /* packed */
    const esp_strategy_t *strategy;     /* that it was lowered from */
    const esp_sim_result_t *sim;
    esp_link_mode_t links;
    int32_t barrier;
    const esp_plan_t *plan; /* whose prediction to compare with; may be NULL */
} esp_report_run_args_t;

/* Step time, where the step goes on each device, memory, largest movements. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_report_run(const esp_report_run_args_t *subject,
                                                     const esp_report_opts_t *opts,
                                                     const esp_allocator_t *alloc, char **text_out,
                                                     esp_diag_t *diag);

/* A measurement of a deployment. */
typedef struct esp_report_measured_args {
    const char *model;              /* what to call it; NULL: the name of the graph */
    const esp_measured_t *measured; /* at least one recorded step */
    esp_link_mode_t links;          /* of the prediction */
} esp_report_measured_args_t;

/*
 * Predicted against measured: the step, its replay (the simulator with measured durations), compute
 * time of each rank, tasks by kind. Simulates the deployment once, and once for each recorded step.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_report_measured(const esp_report_measured_args_t *subject,
                                                          const esp_report_opts_t *opts,
                                                          const esp_allocator_t *alloc,
                                                          char **text_out, esp_diag_t *diag);

/* A run of training. */
typedef struct esp_report_training_args {
    const char *model; /* what to call it; NULL: the name of the graph */
    const esp_deployment_t *deployment;
    const esp_exec_opts_t *exec;
    const char *weights;    /* where they came from: "the seed", a file */
    const esp_data_t *data; /* NULL: made up */
    const esp_train_result_t *result;
    int64_t step;           /* steps since step 0, those of earlier runs included */
    const char *checkpoint; /* NULL: none */
} esp_report_training_args_t;

/* Losses, speed, evaluation, and in JSON the arena of each rank. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_report_training(const esp_report_training_args_t *subject,
                                                          const esp_report_opts_t *opts,
                                                          const esp_allocator_t *alloc,
                                                          char **text_out, esp_diag_t *diag);

#ifdef __cplusplus
}
#endif
#endif
