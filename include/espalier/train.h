/*
 * espalier/train.h: training with an executor: data, initial weights, learning-rate schedules,
 * checkpoints, evaluation, and the loop around them.
 *
 *     esp_train_job_t job = {.exec = exec, .graph = deployment->graph, .seed = 1};
 *     esp_train_opts_t opts = esp_train_opts_default();
 *     opts.until = 1000;
 *     opts.data = data;                    esp_data_open; NULL: synthetic data
 *     opts.checkpoint = "run.safetensors";
 *     if (esp_train(&job, &opts, &result, &diag) == ESP_OK)
 *         ... result.loss ...
 *
 * As an executor's, the functions here that take a job or a launch are collective: every process of
 * an MPI job calls them with the same arguments. What they print or write, they do on rank 0 only.
 * Whatever the deployment, the same job computes the same numbers up to the order of sums; on the
 * same deployment, the same bits.
 */
#ifndef ESPALIER_TRAIN_H
#define ESPALIER_TRAIN_H

#include "espalier/exec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- processes ------------------------------------------------------------------------------- */

/* The processes of this run: one, or those that mpirun started. */
typedef struct esp_launch esp_launch_t;
/* Whether mpirun started this process as one of several: then there is a launch to join. */
ESP_PUBLIC int esp_launch_by_mpi(void);
/*
 * Joins the processes that mpirun started, or stands for this one alone. Errors: ESP_ERR_IO,
 * ESP_ERR_UNSUPPORTED (started by mpirun, built without MPI).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_launch_create(const esp_allocator_t *alloc,
                                                        esp_launch_t **launch_out,
                                                        esp_diag_t *diag);
/* Accepts NULL. After the executors. */
ESP_PUBLIC void esp_launch_destroy(esp_launch_t *launch);
/* 0 and 1 for NULL. */
ESP_PUBLIC int32_t esp_launch_rank(const esp_launch_t *launch);
ESP_PUBLIC int32_t esp_launch_ranks(const esp_launch_t *launch);
/* The bytes of rank 0 on every rank. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_launch_share(esp_launch_t *launch, void *data,
                                                       int64_t bytes, esp_diag_t *diag);
/*
 * Whether all are well: the status of the first rank that has a bad one, on every rank, its text in
 * diag. `diag` holds this rank's own before.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_launch_agree(esp_launch_t *launch, esp_status_t status,
                                                       esp_diag_t *diag);

/* ---- data ------------------------------------------------------------------------------------ */

typedef struct esp_data_opts {
    size_t struct_size;
    uint64_t seed;   /* of the order */
    int32_t shuffle; /* 1 (default): another order in each epoch */
    int32_t wide;    /* of the executor */
} esp_data_opts_t;
ESP_PUBLIC esp_data_opts_t esp_data_opts_default(void);

/*
 * Rows for the inputs of a graph. A step takes as many rows as the batch has samples; the rows that
 * are left over at the end of an epoch are dropped (others each time, when shuffled).
 */
typedef struct esp_data esp_data_t;
/*
 * `spec`: "NAME=FILE.npy[,NAME=FILE.npy..]", each input of the graph once. The first axis of an
 * array counts the rows, the others are those of the input without its batch; axes of extent 1 do
 * not matter. An input without a batch takes an array of its own shape. Numbers are converted as
 * they are read. Files are mapped, not read, and must stay as they are. Errors: those of the files;
 * ESP_ERR_ARGUMENT (the spec), ESP_ERR_INVALID (shapes, dtypes, numbers of rows).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_data_open(const esp_graph_t *graph, const char *spec,
                                                    const esp_data_opts_t *opts,
                                                    const esp_allocator_t *alloc,
                                                    esp_data_t **data_out, esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_data_close(esp_data_t *data);
ESP_PUBLIC int64_t esp_data_rows(const esp_data_t *data);
ESP_PUBLIC int64_t esp_data_epoch_steps(const esp_data_t *data); /* >= 1 */
/* The row that is sample number `position` of a step. O(1). */
ESP_PUBLIC int64_t esp_data_row(const esp_data_t *data, uint64_t step, int64_t position);
/*
 * esp_exec_feed_t.input with the data as context. Thread-safe. Errors: ESP_ERR_INVALID (a number
 * that does not fit the dtype of the input, an index or label out of range: names file and row).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_data_read(void *data, uint64_t step,
                                                    esp_tensor_id_t tensor, esp_view_t view,
                                                    int64_t offset, int64_t share, void *values_out,
                                                    esp_diag_t *diag);

/* ---- learning rate --------------------------------------------------------------------------- */

typedef enum esp_schedule {
    ESP_SCHEDULE_CONSTANT,
    ESP_SCHEDULE_STEP,   /* times `gamma` after every `every` steps */
    ESP_SCHEDULE_COSINE, /* half a cosine from 1 to `least` at step `total` */
    ESP_SCHEDULE_LINEAR  /* a line from 1 to `least` at step `total` */
} esp_schedule_t;

/* Factors of the learning rate of the plan. */
typedef struct esp_schedule_opts {
    size_t struct_size;
    esp_schedule_t kind; /* default CONSTANT */
    int64_t warmup; /* first a line: step t has the factor (t + 1) / warmup while that is < 1 */
    int64_t total;  /* COSINE, LINEAR: steps of the run, warm-up included */
    int64_t every;  /* STEP, counted after the warm-up; default 1000 */
    double gamma;   /* STEP; default 0.1 */
    double least;   /* the factor never falls below, warm-up aside; default 0 */
} esp_schedule_opts_t;
ESP_PUBLIC esp_schedule_opts_t esp_schedule_opts_default(void);
/* The factor of step 0, 1, ..; a pure function. */
ESP_PUBLIC double esp_schedule_factor(const esp_schedule_opts_t *opts, uint64_t step);

/* ---- the job --------------------------------------------------------------------------------- */

/* What weights, checkpoints, evaluation and training work on; filled by the caller. */
typedef struct esp_train_job {
    esp_exec_t *exec;
    const esp_graph_t *graph; /* of the deployment that exec runs */
    uint64_t seed;            /* as in the options of exec */
    int32_t wide;             /* ditto */
    esp_launch_t *launch;     /* NULL: one process */
} esp_train_job_t;

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct esp_weights_opts {
    size_t struct_size;
    /* Called on rank 0 for each tensor of the graph that the file does not have (in_file 0), and
     * each of the file that the graph does not have (1). NULL: not called. */
    void (*unmatched)(void *context, const char *name, int in_file);
    void *context;
} esp_weights_opts_t;
ESP_PUBLIC esp_weights_opts_t esp_weights_opts_default(void);
typedef struct esp_weights_result {
    int32_t loaded, missing, unused; /* tensors set; not in the file; only in the file */
} esp_weights_result_t;
/*
 * Sets parameters, frozen weights and statistics to the tensors of the same name in a safetensors
 * or ONNX (name ends in .onnx) file, converted where dtypes differ; the others keep their values.
 * Rank 0 reads. Errors: those of the file; ESP_ERR_INVALID (a shape that differs, no name that
 * matches).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_weights_load(const esp_train_job_t *job, const char *path,
                                                       const esp_weights_opts_t *opts,
                                                       esp_weights_result_t *result_out,
                                                       esp_diag_t *diag);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/*
 * A safetensors file with every parameter, state and statistic under its name in the graph, and in
 * its metadata the step, the seed, the hash of the graph and the number of rows. Rank 0 writes,
 * atomically, tensor by tensor. `data` may be NULL. Errors: ESP_ERR_IO.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_checkpoint_save(const esp_train_job_t *job,
                                                          const esp_data_t *data, const char *path,
                                                          esp_diag_t *diag);
/*
 * Makes the executor what it was when the checkpoint was written: what follows is what would have
 * followed. Rank 0 reads. Errors: ESP_ERR_INVALID (no checkpoint; of another graph, seed, data, or
 * kind of floats; the diag says which), those of the file.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_checkpoint_load(const esp_train_job_t *job,
                                                          const esp_data_t *data, const char *path,
                                                          esp_diag_t *diag);

/* ---- evaluation ------------------------------------------------------------------------------ */

typedef struct esp_evaluation {
    double loss;     /* mean over labels (XENT) or batches */
    double accuracy; /* of labels, in [0, 1]; XENT only, else -1 */
    int64_t labels;  /* that count; XENT only, else 0 */
    int64_t steps;   /* batches */
} esp_evaluation_t;

/*
 * An executor of an evaluation graph (esp_evaluation_graph), data-parallel over the devices of a
 * training deployment, which must have as many samples in a batch as devices.
 */
typedef struct esp_evaluator esp_evaluator_t;
/* `opts`: those of the training executor. The graph and the deployment must outlive it. Errors:
 * those of lowering and of esp_exec_create. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_evaluator_create(
    const esp_graph_t *graph, const esp_deployment_t *training, const esp_exec_opts_t *opts,
    const esp_allocator_t *alloc, esp_evaluator_t **evaluator_out, esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_evaluator_destroy(esp_evaluator_t *evaluator);
/*
 * Evaluates the parameters and statistics that the job has now on all whole batches of `data`
 * (opened for the evaluation graph, not shuffled). Errors: those of the executors.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_evaluator_run(esp_evaluator_t *evaluator,
                                                        const esp_train_job_t *job,
                                                        esp_data_t *data,
                                                        esp_evaluation_t *evaluation_out,
                                                        esp_diag_t *diag);

/* ---- the loop -------------------------------------------------------------------------------- */

/* What happened in a step. */
typedef struct esp_train_step {
    uint64_t step; /* its number, from 0 */
    double loss;
    double factor;                      /* of the learning rate */
    double samples_per_s;               /* of the steps around it */
    const esp_evaluation_t *evaluation; /* after this step; NULL: none */
} esp_train_step_t;

typedef struct esp_train_opts {
    size_t struct_size;
    int64_t until;                       /* goes on until so many steps have run since step 0 */
    esp_data_t *data;                    /* NULL: synthetic */
    const esp_schedule_opts_t *schedule; /* NULL: constant */
    const char *checkpoint;              /* file; NULL: none */
    int64_t checkpoint_every;            /* steps; 0: at the end only */
    esp_evaluator_t *evaluator;          /* NULL: none */
    esp_data_t *evaluation_data;
    int64_t evaluate_every; /* steps; 0: at the end only */
    /* Both on rank 0, from the calling thread, with `context`; may be NULL. `stop` is asked now and
     * then; if it returns nonzero, training ends after the steps that are under way. */
    void (*step)(void *context, const esp_train_step_t *step);
    int (*stop)(void *context);
    /* On every rank, after each run of the executor, of so many steps: for its timeline. May be
     * NULL. */
    esp_status_t (*ran)(void *context, int64_t steps, esp_diag_t *diag);
    void *context;
    int64_t run_steps; /* steps of a run; 0: what some tenths of a second hold */
} esp_train_opts_t;
ESP_PUBLIC esp_train_opts_t esp_train_opts_default(void);

typedef struct esp_train_result {
    int64_t steps;           /* that ran in this call */
    double first_loss, loss; /* of the first and the last of them */
    double samples_per_s;    /* in steps, without evaluation and checkpoints */
    int32_t stopped;         /* 1: because `stop` said so */
    int32_t evaluated;
    esp_evaluation_t evaluation; /* the last; if evaluated */
} esp_train_result_t;

/*
 * Trains. Losses reach `step` in order, some steps after they were computed. When it ends, and when
 * it is stopped, the last checkpoint is written. Errors: ESP_ERR_ARGUMENT (options), those of
 * running, evaluating and writing; steps that ran remain.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_train(const esp_train_job_t *job,
                                                const esp_train_opts_t *opts,
                                                esp_train_result_t *result_out, esp_diag_t *diag);

#ifdef __cplusplus
}
#endif
#endif
