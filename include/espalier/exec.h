/*
 * espalier/exec.h: executing a deployment.
 *
 * An executor holds the ranks of one run: either one rank per device, all in this process
 * (threads), or this process as one rank of an MPI job. Each rank has one device, its program (its
 * part of the deployment in the global order) and exactly the arena that the deployment planned.
 * Every function is collective: each process of an MPI job calls it with the same arguments.
 *
 *     esp_exec_opts_t opts = esp_exec_opts_default();
 *     esp_exec_t *exec;
 *     if (esp_exec_create(deployment, &opts, NULL, &exec, &diag) == ESP_OK &&
 *         esp_exec_run(exec, 100, NULL, NULL, losses, &diag) == ESP_OK)
 *         ... esp_exec_get(exec, tensor, values, &diag) ...
 *     esp_exec_destroy(exec);
 *
 * Values outside of an executor are whole tensors, row-major, of the tensor's own dtype; in double
 * (opts.wide) floats are double.
 */
#ifndef ESPALIER_EXEC_H
#define ESPALIER_EXEC_H

#include "espalier/costs.h"
#include "espalier/deploy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Who carries out all-reduces, reduce-scatters and all-gathers. */
typedef enum esp_collectives {
    ESP_COLLECTIVES_OWN, /* messages, as the deployment priced them; sums in a fixed order */
    ESP_COLLECTIVES_MPI, /* MPI, which chooses how; float tensors whose pieces lie in order */
    ESP_COLLECTIVES_AUTO /* MPI where `costs` say that it is faster, own ones in one process */
} esp_collectives_t;

typedef struct esp_exec_opts {
    size_t struct_size;
    const char *backend; /* of kernels: "cpu" (default), "reference" */
    int32_t wide;        /* 1: floats are double; reference backend only */
    int32_t mpi;         /* 1: this process is one rank of an MPI job */
    /* rank -> device; NULL: the devices that have something to do, ascending. Every such device is
     * there once. */
    const int32_t *map;
    int32_t n_map;
    uint64_t seed;            /* of initial values and of random ops */
    int32_t timeline;         /* 1: keep start and end of every task of the last step that ran */
    const char *status_path;  /* NULL, or a file with one line per rank: its step, task and op */
    int32_t collectives;      /* esp_collectives_t; MPI's only with `mpi` */
    const esp_costs_t *costs; /* of collectives, for AUTO; not needed after creation */
} esp_exec_opts_t;
ESP_PUBLIC esp_exec_opts_t esp_exec_opts_default(void);

typedef struct esp_exec esp_exec_t;

/*
 * Compiles the programs, allocates the arenas, prepares the kernels, fills what lives between steps
 * (esp_exec_initial). The deployment must be packed and outlive the executor. Errors:
 * ESP_ERR_ARGUMENT (options, not packed), ESP_ERR_UNSUPPORTED (an op the backend cannot run, which
 * the diag names), ESP_ERR_IO, ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_exec_create(const esp_deployment_t *deployment,
                                                      const esp_exec_opts_t *opts,
                                                      const esp_allocator_t *alloc,
                                                      esp_exec_t **exec_out, esp_diag_t *diag);
/*
 * Accepts NULL. Under MPI: after an error of this process in a run the other processes wait for it;
 * this call then ends the whole job (MPI_Abort) and does not return. Say what happened before.
 */
ESP_PUBLIC void esp_exec_destroy(esp_exec_t *exec);

/* 1: under MPI, this process failed where the others wait for it; destroying ends the job. */
ESP_PUBLIC int esp_exec_broken(const esp_exec_t *exec);

/* This process's first rank (0 without MPI), and ranks in all. */
ESP_PUBLIC int32_t esp_exec_rank(const esp_exec_t *exec);
ESP_PUBLIC int32_t esp_exec_ranks(const esp_exec_t *exec);
/* Bytes of the arena of rank r; 0 if that rank is in another process. */
ESP_PUBLIC int64_t esp_exec_arena_bytes(const esp_exec_t *exec, int32_t rank);

/*
 * The value that a tensor without producer has at first: a pure function of (seed, name of the
 * tensor, element): the same whatever the deployment. Weights are uniform by fan-in, scales of
 * normalisations 1, biases and state 0, running variances 1; inputs depend on the step, too:
 * uniform numbers, or valid indices (synthetic data). values_out: elements of the tensor's dtype
 * (double if wide).
 */
ESP_PUBLIC void esp_exec_initial(const esp_graph_t *graph, esp_tensor_id_t tensor, uint64_t seed,
                                 uint64_t step, int32_t wide, void *values_out);

/* Sets a parameter, state or statistic, between runs. Errors: ESP_ERR_ARGUMENT (no such tensor). */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_exec_set(esp_exec_t *exec, esp_tensor_id_t tensor,
                                                   const void *values, esp_diag_t *diag);
/* Reads one from its home; on every process. Errors: ESP_ERR_ARGUMENT, ESP_ERR_IO. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_exec_get(esp_exec_t *exec, esp_tensor_id_t tensor,
                                                   void *values_out, esp_diag_t *diag);

/*
 * What the caller supplies for each step.
 *
 * - input: rows of an input of the graph. Called by each rank, from its compute thread, for each
 *   part of an input that its device holds: rows [offset, offset + share) of `view` of the tensor
 *   (extent 0: all), dense, into values_out. Must be thread-safe and a function of its arguments.
 *   NULL: esp_exec_initial.
 * - rate: the factor of the learning rate of that step. NULL: 1.
 */
typedef struct esp_exec_feed {
    void *context;
    esp_status_t (*input)(void *context, uint64_t step, esp_tensor_id_t tensor, esp_view_t view,
                          int64_t offset, int64_t share, void *values_out, esp_diag_t *diag);
    double (*rate)(void *context, uint64_t step);
} esp_exec_feed_t;

/*
 * Runs `steps` more steps; steps overlap as the deployment allows. losses_out (may be NULL): the
 * loss of each, on every process. Errors: ESP_ERR_IO (a rank failed: the diag names rank, device
 * and op), those of the feed.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_exec_run(esp_exec_t *exec, int64_t steps,
                                                   const esp_exec_feed_t *feed, double *losses_out,
                                                   esp_diag_t *diag);
/* Steps that have run; what the next is numbered. Setting it goes on with another run. */
ESP_PUBLIC uint64_t esp_exec_step(const esp_exec_t *exec);
ESP_PUBLIC void esp_exec_set_step(esp_exec_t *exec, uint64_t step);

/*
 * Measured times, with opts.timeline: start and end in ns of every task of the last step, on each
 * rank: [rank][task], -1 where the rank has no part; rank clocks are aligned at a barrier. On every
 * process. And the wall time of each step of the last run as rank 0 saw it end.
 */
typedef struct esp_exec_timeline {
    int32_t n_ranks, n_tasks;
    const int32_t *device; /* per rank */
    const int64_t *start_ns, *end_ns;
    int64_t steps;
    const int64_t *step_end_ns; /* from the start of the run */
} esp_exec_timeline_t;
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_exec_timeline(esp_exec_t *exec,
                                                        esp_exec_timeline_t *timeline_out,
                                                        esp_diag_t *diag);

#ifdef __cplusplus
}
#endif
#endif
