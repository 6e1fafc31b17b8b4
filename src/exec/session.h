/* What the files of the executor share (exec.c, exec_*.c, timeline.c). */
#ifndef ESP_EXEC_SESSION_H
#define ESP_EXEC_SESSION_H

#include "exec/engine.h"

/* A rank of this process. */
typedef struct esp_i_rank {
    esp_i_program_t *program;
    esp_i_kernels_t *kernels;
    esp_i_comm_t *comm;
    esp_i_engine_t *engine;
    double *loss; /* of the run under way */
    esp_status_t status;
    esp_diag_t diag;
} esp_i_rank_t;

struct esp_exec {
    esp_allocator_t alloc;
    const esp_deployment_t *deployment;
    const esp_i_kernels_type_t *backend;
    bool wide, mpi, timeline;
    esp_i_library_t library;
    bool broken; /* under MPI: the job is to end */
    uint64_t seed, step;
    int32_t n_ranks, first, n_here; /* ranks of the job; those of this process */
    int32_t *device;                /* per rank */
    int32_t *rank_of;               /* per device; ESP_NONE */
    esp_i_rank_t *rank;             /* of this process */
    esp_i_pool_t *pool;             /* one worker per rank; NULL under MPI */
    esp_i_status_file_t *status;

    /* the last run */
    int64_t steps, start_ns;
    int64_t *step_end_ns;
    /* what esp_exec_timeline returned last */
    int64_t *timeline_ns; /* starts, ends: [rank][task] */
    int64_t *timeline_step_ns;
};

/* The rank, if it is of this process; or NULL. */
static inline esp_i_rank_t *esp_i_rank_here(const esp_exec_t *exec, int32_t rank)
{
    const int32_t i = rank - exec->first;
    return i >= 0 && i < exec->n_here ? &exec->rank[i] : NULL;
}

/* exec_values.c: fills what lives between steps. */
esp_status_t esp_i_exec_fill(esp_exec_t *exec, esp_diag_t *diag);
/*
 * exec_agree.c, under MPI: whether every rank could set up and all have the same plan, options and
 * library. `mine`: how far this rank came; collective, with one result on all ranks.
 */
esp_status_t esp_i_exec_agree(esp_exec_t *exec, const esp_exec_opts_t *opts, esp_status_t mine,
                              esp_diag_t *diag);
/*
 * How a collective call of this executor ends: with `status`, for which `why` gives the cause.
 * Under MPI the other ranks would wait for one that failed, so an error ends the job (when the
 * executor is destroyed).
 */
esp_status_t esp_i_exec_settle(esp_exec_t *exec, esp_status_t status, const esp_diag_t *why,
                               esp_diag_t *diag);

/* Tags of messages outside of runs. */
enum { ESP_I_TAG_AGREE = 1, ESP_I_TAG_LOSS, ESP_I_TAG_VALUE, ESP_I_TAG_CLOCK, ESP_I_TAG_TIMES };

#endif
