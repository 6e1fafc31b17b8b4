/*
 * The engine of one rank: carries out a program, step after step, with two threads.
 *
 * The compute stream runs COMPUTE, ADD and SLICE in order, in a thread of the engine. The movement
 * stream runs COMM, in the thread that calls esp_i_engine_run, which is the only one that touches
 * the communication backend. done[i] counts the steps that instruction i has completed; its own
 * stream writes it, the other reads it. A stream that has nothing to do sleeps until the other has
 * completed something that it may wait for.
 *
 * Steps are counted from the creation of the engine here; a run has a number of its own for its
 * first step, which random numbers and the feed see.
 */
#ifndef ESP_EXEC_ENGINE_H
#define ESP_EXEC_ENGINE_H

#include "espalier/exec.h"
#include "exec/comm.h"
#include "exec/program.h"
#include "exec/status.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ESP_I_WINDOW = 4 }; /* steps that may be under way at once on a device */

typedef struct esp_i_engine_spec {
    const esp_i_program_t *program; /* everything outlives the engine */
    esp_i_kernels_t *kernels;       /* without arena yet */
    esp_i_comm_t *comm;
    const int32_t *rank_of; /* device -> rank */
    uint64_t seed;
    bool timeline;
    esp_i_status_file_t *status; /* may be NULL */
} esp_i_engine_spec_t;

typedef struct esp_i_engine_run {
    uint64_t first;              /* number of its first step */
    int64_t steps;               /* >= 0 */
    const esp_exec_feed_t *feed; /* may be NULL */
    double *loss;                /* per step: what this device has of it; may be NULL */
    int64_t *step_end_ns;        /* per step, by the monotonic clock; may be NULL */
} esp_i_engine_run_t;

/* A movement of the program. Belongs to the movement stream. */
typedef struct esp_i_movement {
    int32_t instr;
    int32_t collective;           /* number among the collectives; ESP_NONE */
    int64_t step;                 /* under way, or else the next */
    int32_t stage, left;          /* under way: its stage and the messages that have not ended */
    struct esp_i_movement *watch; /* next in the list that it waits in */
} esp_i_movement_t;

typedef struct esp_i_engine {
    esp_i_engine_spec_t spec;
    const esp_i_program_t *program;
    esp_allocator_t alloc;
    esp_i_arena_t memory;
    void **kernel;               /* per call */
    esp_i_message_t **message;   /* per transfer */
    int32_t n_compute, *compute; /* instructions of the compute stream */
    bool *tells;                 /* per instruction: a movement waits for it */
    const esp_i_local_t **input; /* residents that the feed fills */
    esp_tensor_id_t *input_tensor;
    int32_t n_inputs;
    char *whole; /* room for a whole input, where nobody feeds */

    /* progress */
    _Atomic int64_t *done;      /* per instruction */
    _Atomic int64_t n_computed; /* instructions that the compute stream has completed, in all */
    _Atomic int64_t computed_steps;
    _Atomic int64_t finished; /* steps of which everything is done; by the movement stream */
    atomic_bool failed;

    /* threads; under `mutex` */
    pthread_mutex_t mutex;
    pthread_cond_t for_compute, for_moves;
    uint64_t events;      /* counts what the movement stream may want to know */
    bool computing, quit; /* computing: the compute stream has a run to do */
    bool has_thread;
    pthread_t thread;
    esp_status_t status; /* of what failed first */
    esp_diag_t why;

    /* the run: written by the movement stream while the compute stream rests */
    esp_i_engine_run_t run;
    int64_t base, end; /* its steps */

    /* of the movement stream */
    int32_t n_moves, n_collectives, collective; /* the one that is next or under way */
    esp_i_movement_t *move;
    esp_i_movement_t **collectives;
    esp_i_movement_t **watchers; /* per instruction: movements that wait for it */
    esp_i_movement_t *far;       /* those that wait for a step to be finished */
    esp_i_movement_t **ready;    /* by (step, instruction), the first last */
    int32_t n_ready;
    int32_t n_under_way;
    esp_i_message_t **under_way; /* messages, with their movements and whether they have ended */
    esp_i_movement_t **mover;
    bool *ended;
    esp_i_movement_t **through; /* movements whose stage has ended */
    int64_t seen;               /* of n_computed */
    int32_t left[ESP_I_WINDOW]; /* movements of step s to complete, at s % window */

    /* timeline of the last step, per instruction; NULL without */
    int64_t *start_ns, *end_ns;
} esp_i_engine_t;

/*
 * Allocates the arena, prepares kernels and messages. Errors: ESP_ERR_UNSUPPORTED (the diag names
 * the op), ESP_ERR_NOMEM, ESP_ERR_IO.
 */
esp_status_t esp_i_engine_create(const esp_i_engine_spec_t *spec, const esp_allocator_t *alloc,
                                 esp_i_engine_t **engine_out, esp_diag_t *diag);
/*
 * Prepares the collectives of the communication library, in the global order; called on all ranks,
 * after all engines could be made. Errors: ESP_ERR_UNSUPPORTED (the backend has none),
 * ESP_ERR_NOMEM, ESP_ERR_IO.
 */
esp_status_t esp_i_engine_join(esp_i_engine_t *engine, esp_diag_t *diag);
/* Not before the runs of all ranks have returned. Kernels and comm are not its own. */
void esp_i_engine_destroy(esp_i_engine_t *engine);

/*
 * Runs steps. Errors, of this or another rank: ESP_ERR_IO, or what the feed returned; the diag
 * names rank, device and op. After an error every later run fails, too.
 */
esp_status_t esp_i_engine_run(esp_i_engine_t *engine, const esp_i_engine_run_t *run,
                              esp_diag_t *diag);

/* ---- between the files of the engine ----------------------------------------------------- */

/* "node1/gpu0" */
const char *esp_i_device_name(const esp_deployment_t *deployment, int32_t device);
/* The op of a task, for messages. */
const char *esp_i_task_name(const esp_deployment_t *deployment, int32_t task);
/* Records the first failure and wakes both streams. */
void esp_i_engine_fail(esp_i_engine_t *engine, esp_status_t status, const esp_diag_t *why);
/* Says where it failed: rank and device, step, and the name of what ("op", "input"). */
void esp_i_engine_blame(const esp_i_engine_t *engine, int64_t step, const char *what,
                        const char *name, esp_diag_t *diag);
void esp_i_engine_tell_moves(esp_i_engine_t *engine);
void esp_i_engine_tell_compute(esp_i_engine_t *engine);
void esp_i_engine_compute(esp_i_engine_t *engine); /* the compute stream of one run */
void esp_i_engine_move(esp_i_engine_t *engine);    /* the movement stream of one run */
/* After instruction `instr` of step `step`: the loss, if it is there now. */
void esp_i_engine_loss(esp_i_engine_t *engine, int32_t instr, int64_t step);
/* Local sums and copies, with the add and copy of the backend. */
void esp_i_engine_work(esp_i_engine_t *engine, int32_t first, int32_t n);

/* First instruction that instruction `instr` of step `step` still waits for, or ESP_NONE. */
static inline int32_t esp_i_engine_obstacle(const esp_i_engine_t *engine, int32_t instr,
                                            int64_t step)
{
    const esp_i_instr_t *in = &engine->program->instr[instr];
    const int32_t *wait = engine->program->waits + in->wait;
    for (int32_t i = 0; i < in->n_wait; i++)
        if (atomic_load_explicit(&engine->done[wait[i]], memory_order_acquire) <= step)
            return wait[i];
    const int32_t *previous = engine->program->waits + in->previous;
    for (int32_t i = 0; i < in->n_previous; i++)
        if (atomic_load_explicit(&engine->done[previous[i]], memory_order_acquire) < step)
            return previous[i];
    return ESP_NONE;
}

/* Rows of a local buffer, out of and into a whole tensor; dtype as stored. */
void esp_i_rows_take(const esp_i_local_t *local, const char *whole, char *rows_out);
void esp_i_rows_put(const esp_i_local_t *local, const char *rows, char *whole_out);

/* ---- denormals.c --------------------------------------------------------------------------- */

/* In this thread, until the other is called with what the first returned. */
uint64_t esp_i_denormals_off(void);
void esp_i_denormals_back(uint64_t before);

#endif
