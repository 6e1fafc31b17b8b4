/*
 * The program of one device: its part of a deployment, in the global order.
 *
 * Instructions of two streams: compute (COMPUTE, ADD, SLICE) and communication (COMM). An
 * instruction of step s may start when those in its `wait` list have ended in step s and those in
 * its `wait_previous` list in step s - 1; compute instructions start in order, collectives start in
 * order among themselves, other movements whenever they are ready.
 *
 * A movement is a list of stages, one after the other. The messages of a stage start together; when
 * all have ended, its local work is done in order. Messages are matched by (sender, receiver, tag =
 * index of the movement) in order; so both sides list the messages between them in the same order.
 */
#ifndef ESP_EXEC_PROGRAM_H
#define ESP_EXEC_PROGRAM_H

#include "espalier/costs.h"
#include "espalier/deploy.h"
#include "exec/kernels.h"

typedef struct esp_i_extent {
    int64_t place, bytes;
} esp_i_extent_t;

typedef struct esp_i_transfer {
    int32_t peer; /* device; ESP_NONE for a collective */
    bool send;
    int32_t first, n; /* in extent */
    /*
     * A collective of the communication library among the devices of a mesh, or ESP_NONE. Extents:
     * one per device, its piece, in the order of the mesh; all-reduce: the whole; reduce-scatter:
     * at the end also where the own piece of the sum goes.
     */
    int32_t mesh;
    esp_comm_t kind;
    esp_dtype_t dtype;
} esp_i_transfer_t;

/* ADD: dst = sum of src[0..n_src), n elements; COPY: bytes from src[0] to dst. */
typedef struct esp_i_work {
    bool add;
    esp_dtype_t dtype;
    int64_t n; /* elements (ADD) or bytes (COPY) */
    int64_t dst;
    int32_t first_src, n_src; /* in work_src */
} esp_i_work_t;

typedef struct esp_i_stage {
    int32_t first_transfer, n_transfers, first_work, n_work;
} esp_i_stage_t;

typedef struct esp_i_instr {
    int32_t task;
    esp_task_kind_t kind;
    bool collective;      /* COMM */
    int32_t call;         /* COMPUTE: in call; else ESP_NONE */
    int32_t comm;         /* COMM: index of the movement: the tag; else ESP_NONE */
    int32_t first, n;     /* COMM: in stage; ADD, SLICE: in work */
    int32_t wait, n_wait; /* in waits: instructions of this program */
    int32_t previous, n_previous;
} esp_i_instr_t;

/* A tensor that this device holds between steps, or fills from outside: inputs, parameters, state,
 * statistics, literals. */
typedef struct esp_i_resident {
    esp_tensor_id_t tensor; /* root */
    int32_t value;          /* of the deployment */
    esp_i_local_t local;
} esp_i_resident_t;

typedef struct esp_i_program {
    esp_allocator_t alloc;
    esp_i_arena_t memory; /* all arrays below */
    const esp_deployment_t *deployment;
    int32_t device;
    bool wide;           /* floats are float64: every place and size is twice the deployment's */
    int64_t arena_bytes; /* class_arena_bytes, doubled if wide */
    int32_t n_instrs;
    esp_i_instr_t *instr; /* in the global order */
    int32_t *waits;
    esp_i_call_t *call;
    int32_t n_calls;
    esp_i_stage_t *stage;
    esp_i_transfer_t *transfer;
    esp_i_extent_t *extent;
    esp_i_work_t *work;
    int64_t *work_src;
    int32_t n_residents;
    esp_i_resident_t *resident;
    /* the loss: where this device's addend of it (or all of it: addend false) is after loss_instr
     */
    int32_t loss_instr; /* ESP_NONE: not on this device, or there from the start */
    int64_t loss_place; /* -1: not on this device */
    bool loss_counts;   /* this device's part is to be added up over the ranks */
} esp_i_program_t;

/* Which collectives are left to the communication library, of those that it can carry out. */
typedef struct esp_i_library {
    bool used;
    const esp_costs_t *costs; /* NULL: all; otherwise where it is faster by these */
} esp_i_library_t;

/*
 * Compiles. `deployment` must be packed and outlive the program. A device that does nothing has an
 * empty program. Errors: ESP_ERR_ARGUMENT (not packed), ESP_ERR_UNSUPPORTED (a tensor of two-byte
 * floats, which no backend stores), ESP_ERR_NOMEM. O(tasks + operands + pieces of movements).
 */
esp_status_t esp_i_program_create(const esp_deployment_t *deployment, int32_t device, bool wide,
                                  esp_i_library_t library, const esp_allocator_t *alloc,
                                  esp_i_program_t **program_out, esp_diag_t *diag);
void esp_i_program_destroy(esp_i_program_t *program);

/* Shape and place of what a device holds of a buffer of its class (local.c). */
esp_i_local_t esp_i_local_of(const esp_deployment_t *deployment, int32_t buffer, int32_t device,
                             bool wide);

/*
 * Growing lists while a program is compiled; schedule*.c append the stages of one movement as
 * `device` carries it out. False in `fine`: memory ran out.
 */
typedef struct esp_i_lists {
    const esp_deployment_t *deployment;
    int32_t device;
    bool wide, fine;
    esp_i_library_t library;
    esp_allocator_t alloc;
    /* per root buffer: positions of the last two tasks that read its memory, -1 where there is
     * none; NULL: nothing but movements reads */
    const int32_t *last_reader, *other_reader;
    ESP_VEC(esp_i_stage_t) stage;
    ESP_VEC(esp_i_transfer_t) transfer;
    ESP_VEC(esp_i_extent_t) extent;
    ESP_VEC(esp_i_work_t) work;
    ESP_VEC(int64_t) work_src;
} esp_i_lists_t;

/*
 * The stages of the movement of `task` on lists->device, by the algorithm of its pattern, in the
 * order of devices that the pattern was priced with. scratch_place: its receive buffers, of
 * esp_deployment_scratch_bytes. A source that another task reads, too, is left as it is.
 */
void esp_i_schedule(esp_i_lists_t *lists, int32_t task, int64_t scratch_place);

#endif
