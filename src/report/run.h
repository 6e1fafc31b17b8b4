/* What reports on plans share: rows of the comparison, use of devices, movements, sentences. */
#ifndef ESP_REPORT_RUN_H
#define ESP_REPORT_RUN_H

#include "report/report.h"

/* ---- one simulated step (usage.c) --------------------------------------------------------- */

/* Where one step goes on a device: the three sum up to the step time. */
typedef struct esp_i_usage {
    int64_t compute_ns;
    int64_t exposed_ns; /* a movement of the device is under way and it computes nothing */
    int64_t idle_ns;
} esp_i_usage_t;

/*
 * The use of each device class, from a run with a timeline; usage_out has n_classes elements. The
 * last step is folded into one period, since neighbouring steps overlap. O(tasks log tasks).
 */
esp_status_t esp_i_usage(const esp_deployment_t *deployment, const esp_sim_result_t *sim,
                         const esp_allocator_t *alloc, esp_i_usage_t *usage_out, esp_diag_t *diag);
/* A device that has no part in the deployment is idle. */
esp_i_usage_t esp_i_device_usage(const esp_deployment_t *deployment, const esp_i_usage_t *usage,
                                 int64_t step_ns, int32_t device);
/* Table of devices: those of a class in one row; means of the groups if there are many, unless
 * verbose. */
void esp_i_put_usage(const esp_deployment_t *deployment, const esp_sim_result_t *sim,
                     const esp_i_usage_t *usage, bool verbose, const esp_allocator_t *alloc,
                     esp_i_text_t *text);

/* ---- movements (moves.c) ------------------------------------------------------------------ */

/* The movements that take longest, alike ones together. */
void esp_i_put_moves(const esp_deployment_t *deployment, const esp_sim_result_t *sim,
                     const esp_allocator_t *alloc, esp_i_text_t *text);

/* ---- what each device group does (duties.c) ----------------------------------------------- */

typedef enum esp_i_home {
    ESP_I_HOME_ALONE,      /* gradient and update on the same one device */
    ESP_I_HOME_ALLREDUCED, /* replicas, summed gradients */
    ESP_I_HOME_SERVED,     /* replicas elsewhere too, update on one device */
    ESP_I_HOME_SHARDED,    /* update split over the devices */
    ESP_I_HOME_DUPLICATED, /* every device computes gradient and update */
    ESP_I_HOME_COUNT
} esp_i_home_t;

typedef struct esp_i_duty {
    double work;                  /* share of all FLOPs that are carried out */
    int64_t units_min, units_max; /* samples of one device in ops that split the batch; 0: none */
    int32_t split_ops, whole_ops; /* of forward and backward pass */
    int64_t home_bytes[ESP_I_HOME_COUNT]; /* parameters by synchronisation */
} esp_i_duty_t;
/* One for each device group of the cluster. O(tasks * devices of a mesh + operands). */
void esp_i_duties(const esp_deployment_t *deployment, const esp_strategy_t *strategy,
                  esp_i_duty_t *duty_out);
void esp_i_put_duties(const esp_deployment_t *deployment, const esp_i_duty_t *duty,
                      esp_i_text_t *text);

/* BatchNorm ops whose statistics each device keeps to itself: they train another function. */
int32_t esp_i_ghost_ops(const esp_graph_t *graph, const esp_strategy_t *strategy);

/* ---- rows of a comparison (rows.c) -------------------------------------------------------- */

enum { ESP_I_ROWS = ESP_BASELINE_COUNT + 1 };

typedef struct esp_i_row {
    const char *name;
    const esp_choice_t *choice;    /* NULL: the planner found no deployment */
    int64_t *peak_bytes, *busy_ns; /* per device */
    esp_outcome_t outcome;         /* of the packed deployment */
    int32_t ghost_ops;
} esp_i_row_t;

/* Row 0 is the best, then the baselines. Lowers and simulates them; memory in the arena. */
esp_status_t esp_i_rows_make(const esp_report_search_args_t *subject, esp_i_arena_t *arena,
                             const esp_allocator_t *alloc, esp_i_row_t rows_out[ESP_I_ROWS],
                             esp_diag_t *diag);
/* The table, with remarks below it. */
void esp_i_put_rows(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                    const esp_allocator_t *alloc, esp_i_text_t *text);
/* "resnet50 on lab: 3 devices, batch 32, fp32, fair links" */
void esp_i_put_heading(const char *model, const esp_cost_t *cost, esp_link_mode_t links,
                       int32_t barrier, esp_i_text_t *text);
/* Lower bound, evaluations, time. */
void esp_i_put_effort(const esp_report_search_args_t *subject, esp_i_text_t *text);

/* Members of an object that is open: what both JSON documents and each row have. */
void esp_i_json_row(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                    const esp_i_row_t *row, esp_i_json_out_t *out);
void esp_i_json_heading(const esp_report_search_args_t *subject, esp_i_json_out_t *out);

#endif
