/* Inside of programs: what a device holds of a value, and movements in the making. */
#ifndef ESP_EXEC_SCHEDULE_H
#define ESP_EXEC_SCHEDULE_H

#include "exec/program.h"

/* ---- local.c ------------------------------------------------------------------------------- */

/* Rows of a tensor, dense, at a place of the arena. view.extent 0: all of it. */
typedef struct esp_i_rows {
    esp_view_t view;
    int64_t offset, share, elements;
    int64_t place; /* -1: on another device */
} esp_i_rows_t;

/* Number of a device in a mesh; ESP_NONE: not in it. O(log n). */
int32_t esp_i_mesh_index(const esp_deployment_t *d, int32_t mesh, int32_t device);
/* The buffer of a value for a class; ESP_NONE: none. */
int32_t esp_i_buffer_on(const esp_deployment_t *d, int32_t value, int32_t class_);
/* What number k of the mesh of a value holds of it; without a place. */
esp_i_rows_t esp_i_rows_of(const esp_deployment_t *d, int32_t value, int32_t k);
/* Where a buffer with those rows lies on a device. */
int64_t esp_i_place_of(const esp_deployment_t *d, int32_t buffer, int32_t device,
                       const esp_i_rows_t *rows, bool wide);
/* Fills rank and dims, local and global, of rows of `tensor`. */
void esp_i_local_shape(esp_i_local_t *local, const esp_graph_t *graph, esp_tensor_id_t tensor);

/* program_waits.c: fills the lists of what instructions wait for. instr_of: per task, or ESP_NONE.
 * False: no memory. */
bool esp_i_waits_find(esp_i_program_t *program, const int32_t *instr_of);

/* ---- movements: schedule_part.c ---------------------------------------------------------------
 *
 * What a message carries is a *span*: runs of elements of the flat tensors of the pairs of the
 * movement. Spans are made from rows, cut, sifted by what others hold, and turned into places at
 * the very end; so any view may meet any other. They live in the arena of the movement.
 */
typedef struct esp_i_run {
    int32_t pair;
    int64_t begin, end;
} esp_i_run_t;

typedef struct esp_i_span {
    const esp_i_run_t *run;
    int32_t n;
    int64_t elements;
} esp_i_span_t;

typedef struct esp_i_move {
    esp_i_lists_t *lists;
    const esp_deployment_t *d;
    esp_i_arena_t arena;
    ESP_VEC(esp_i_run_t) run; /* a span in the making */
    esp_comm_t kind;
    esp_algorithm_t algorithm;
    int32_t me;                    /* device */
    int32_t n_pairs;               /* all of one dtype */
    const int32_t *src, *dst;      /* values, per pair */
    int32_t from, to;              /* meshes */
    int32_t from_index, to_index;  /* this device in them; ESP_NONE */
    esp_i_rows_t *source, *target; /* per pair: what this device holds; NULL: not in that mesh */
    esp_dtype_t dtype;
    int64_t size;         /* bytes of an element as stored */
    int64_t staging;      /* place of the receive buffers */
    int64_t room;         /* elements in them */
    bool private_sources; /* may be overwritten */
    bool adds_in_chains;  /* segments must fit in the receive buffers */
    int32_t first_extent; /* of the transfer in the making */
} esp_i_move_t;

/* Rows of each pair on number k of the mesh of `values` (m->src or m->dst). */
const esp_i_rows_t *esp_i_rows_on(esp_i_move_t *m, const int32_t *values, int32_t k);
/* All elements of those rows, in the order of the flat tensors. */
esp_i_span_t esp_i_span_of(esp_i_move_t *m, const esp_i_rows_t *rows);
/* Those of the span that are (inside) or are not in the rows. */
esp_i_span_t esp_i_span_sift(esp_i_move_t *m, esp_i_span_t span, const esp_i_rows_t *rows,
                             bool inside);
/* span[0], span[stride], ...: n of them. */
esp_i_span_t esp_i_span_join(esp_i_move_t *m, int32_t n, const esp_i_span_t *span, int32_t stride);

/* Takes spans off the front of a span, one after the other. */
typedef struct esp_i_cursor {
    esp_i_span_t span;
    int32_t run;
    int64_t done; /* of that run */
} esp_i_cursor_t;
esp_i_span_t esp_i_take(esp_i_move_t *m, esp_i_cursor_t *cursor, int64_t elements);
/* Cuts into n parts, as even as possible. */
void esp_i_span_cut(esp_i_move_t *m, esp_i_span_t span, int32_t n, esp_i_span_t *part_out);

/* A stage without messages and work is none. */
void esp_i_stage_begin(esp_i_move_t *m);
void esp_i_stage_end(esp_i_move_t *m);
/* Messages of the stage; without elements they are left out, on both sides. */
void esp_i_send(esp_i_move_t *m, int32_t peer, esp_i_span_t span, const esp_i_rows_t *rows);
void esp_i_receive(esp_i_move_t *m, int32_t peer, esp_i_span_t span, const esp_i_rows_t *rows);
void esp_i_send_at(esp_i_move_t *m, int32_t peer, int64_t elements, int64_t place);
void esp_i_receive_at(esp_i_move_t *m, int32_t peer, int64_t elements, int64_t place);
/* Work of the stage: copies between rows; adds elements at a place to rows that have them. */
void esp_i_copy(esp_i_move_t *m, esp_i_span_t span, const esp_i_rows_t *src,
                const esp_i_rows_t *dst);
void esp_i_accumulate(esp_i_move_t *m, esp_i_span_t span, const esp_i_rows_t *rows, int64_t place);
/* dst = sum of src[0..n_src), dense. */
void esp_i_sum(esp_i_move_t *m, int64_t elements, int64_t dst, int32_t n_src, const int64_t *src);

/* For local tasks, too. False: no memory. */
bool esp_i_work_push(esp_i_lists_t *lists, esp_i_work_t work, int32_t n_src, const int64_t *src);
/* Copies elements [begin, end), which both have; goes on with the last work if that is number
 * `first` or later and the bytes follow. */
void esp_i_copy_run(esp_i_lists_t *lists, int32_t first, const esp_i_rows_t *src,
                    const esp_i_rows_t *dst, int64_t begin, int64_t end, int64_t size);

/* Zeroed memory of the movement; NULL, and the lists fail, without memory. */
void *esp_i_move_alloc(esp_i_move_t *m, int64_t n, size_t size);

/* ---- devices in order: schedule_ring.c ------------------------------------------------------- */

/* By (node, id), as patterns are priced; node k has device[offset[k] .. offset[k + 1]). */
typedef struct esp_i_circle {
    int32_t n, n_nodes;
    int32_t *device, *offset;
    int32_t *number; /* of the device in the list that was given */
    bool even;       /* all nodes have equally many */
} esp_i_circle_t;
/* False: no memory. */
bool esp_i_circle_make(esp_i_move_t *m, int32_t n, const int32_t *device, esp_i_circle_t *out);
/* Position of a device; ESP_NONE. */
int32_t esp_i_circle_find(const esp_i_circle_t *circle, int32_t device);
/* Node (of the circle) at a position. */
int32_t esp_i_circle_node(const esp_i_circle_t *circle, int32_t position);

/*
 * n - 1 steps round a ring, on its number `me`: each passes on the piece it got last. scatter: what
 * comes is added to what is in the rows, and piece k ends with device k; else it is put there, and
 * piece k starts with device k.
 */
typedef struct esp_i_ring_part {
    int32_t n, me;
    const int32_t *device;
    const esp_i_span_t *piece;
} esp_i_ring_part_t;
void esp_i_ring_steps(esp_i_move_t *m, const esp_i_ring_part_t *ring, bool scatter,
                      const esp_i_rows_t *rows);

/*
 * One device of a pipelined chain: segments of a span come from `up` (ESP_NONE: they are here) and
 * go to each of `down` one step later. `add`: what comes is added to what is here.
 */
typedef struct esp_i_link {
    int32_t up, n_down;
    const int32_t *down;
    bool add;
    const esp_i_rows_t *held;             /* does not come; NULL: all comes */
    const esp_i_rows_t *const *down_held; /* does not go to down[i]; NULL: all goes */
} esp_i_link_t;
void esp_i_chain(esp_i_move_t *m, const esp_i_link_t *link, esp_i_span_t span,
                 const esp_i_rows_t *rows);

/* ---- the kinds of movements ------------------------------------------------------------------ */

void esp_i_schedule_collective(esp_i_move_t *m); /* schedule_collective.c */
/* schedule_library.c: leaves the collective to the communication library, if that can do it. */
bool esp_i_schedule_library(esp_i_move_t *m);
void esp_i_schedule_broadcast(esp_i_move_t *m); /* schedule_broadcast.c */
void esp_i_schedule_gather(esp_i_move_t *m);    /* schedule_cross.c */
void esp_i_schedule_scatter(esp_i_move_t *m);   /* schedule_cross.c */
void esp_i_schedule_exchange(esp_i_move_t *m);  /* schedule_cross.c; all-to-all, too */
void esp_i_schedule_reduce(esp_i_move_t *m);    /* schedule_reduce.c */
/* Number, in a mesh, of the device from which `device` best receives, as priced: the widest route
 * shared with the uses so far, then the shortest latency, then the first. */
int32_t esp_i_source_of(const esp_i_move_t *m, int32_t mesh, const int32_t *uses, int32_t device);

#endif
