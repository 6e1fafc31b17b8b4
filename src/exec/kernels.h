/*
 * Kernel backends: what runs the compute tasks of one device.
 *
 * A backend is one esp_i_kernels_type_t. It owns the memory of the device (the arena), turns each
 * compute task into a prepared kernel once, and runs prepared kernels after that; running allocates
 * nothing. All memory that a kernel touches is in the arena: its operands, and scratch_bytes at
 * scratch_place, as the deployment planned them.
 *
 * Places are bytes from the start of the arena. Two threads use one backend: one calls `run`, the
 * other `add`, `copy`, `read` and `write` at the same time, on memory that does not overlap.
 */
#ifndef ESP_EXEC_KERNELS_H
#define ESP_EXEC_KERNELS_H

#include "base/base.h"
#include "espalier/graph.h"

/*
 * One operand of a task as the device holds it: a dense row-major buffer of shape `dims`, which is
 * rows [offset, offset + share) of `view` of the global tensor; view.extent 0: all of it.
 */
typedef struct esp_i_local {
    esp_dtype_t dtype; /* as stored: floats of a wide program are float64 */
    int32_t rank, global_rank;
    int64_t dims[ESP_MAX_RANK], global[ESP_MAX_RANK];
    esp_view_t view;
    int64_t offset, share;
    int64_t elements; /* product of dims */
    int64_t place;    /* -1: an absent optional input, of rank -1 */
} esp_i_local_t;

/* A compute task of one device. */
typedef struct esp_i_call {
    esp_op_id_t op;
    const char *name; /* of the op, for messages */
    esp_op_kind_t kind;
    const esp_attr_t *attr; /* of the global op */
    int32_t n_in, n_out;
    const esp_i_local_t *operand; /* inputs in order, then outputs */
    bool local_batchnorm;         /* LOCAL inputs hold this device's addend: count local elements */
    int64_t scratch_place, scratch_bytes;
} esp_i_call_t;

/* What changes from step to step. */
typedef struct esp_i_moment {
    uint64_t seed, step; /* of random ops */
    double rate;         /* factor of the learning rate of updates */
} esp_i_moment_t;

typedef struct esp_i_kernels esp_i_kernels_t; /* begins with its type */

typedef struct esp_i_kernels_type {
    const char *name; /* as `--backend` takes it */
    /* `wide`: floats are float64. Errors: ESP_ERR_UNSUPPORTED, ESP_ERR_NOMEM. */
    esp_status_t (*create)(const esp_allocator_t *alloc, bool wide, esp_i_kernels_t **out,
                           esp_diag_t *diag);
    void (*destroy)(esp_i_kernels_t *self); /* and all that it prepared, and the arena */
    /* Allocates the arena, zeroed and aligned to 64 bytes; once. */
    esp_status_t (*arena)(esp_i_kernels_t *self, int64_t bytes, char **arena_out);
    /* After `arena`. The call and what it points at outlive the kernel. Errors name the op:
     * ESP_ERR_UNSUPPORTED, ESP_ERR_NOMEM. */
    esp_status_t (*prepare)(esp_i_kernels_t *self, const esp_i_call_t *call, void **kernel_out,
                            esp_diag_t *diag);
    /* Returns when the outputs are there. */
    esp_status_t (*run)(esp_i_kernels_t *self, void *kernel, const esp_i_moment_t *moment,
                        esp_diag_t *diag);
    /* dst[i] = sum over s of src[s][i], added in the order of the sources; dst may be one of them.
     * Floats and integers; n elements. */
    void (*add)(esp_i_kernels_t *self, esp_dtype_t dtype, int64_t n, int64_t dst, int32_t n_src,
                const int64_t *src);
    void (*copy)(esp_i_kernels_t *self, int64_t bytes, int64_t dst, int64_t src);
    /* Between the arena and memory of the host. */
    void (*write)(esp_i_kernels_t *self, int64_t bytes, int64_t dst, const void *src);
    void (*read)(esp_i_kernels_t *self, int64_t bytes, void *dst, int64_t src);
} esp_i_kernels_type_t;

struct esp_i_kernels {
    const esp_i_kernels_type_t *type;
    esp_allocator_t alloc;
    bool wide;
    char *memory; /* the arena, for backends in the memory of the host and for communication */
    void *block;  /* as the allocator gave it: what `memory` lies in */
    int64_t bytes;
};

/* The backends of this build, NULL-terminated; the first is the default. */
extern const esp_i_kernels_type_t *const esp_i_kernels_types[];
extern const esp_i_kernels_type_t esp_i_kernels_reference, esp_i_kernels_cpu;
/* NULL: none of that name. */
const esp_i_kernels_type_t *esp_i_kernels_find(const char *name);

/* For backends in the memory of the host (kernels_host.c): what they do with the arena. */
esp_status_t esp_i_host_arena(esp_i_kernels_t *self, int64_t bytes, char **arena_out);
void esp_i_host_add(esp_i_kernels_t *self, esp_dtype_t dtype, int64_t n, int64_t dst, int32_t n_src,
                    const int64_t *src);
void esp_i_host_copy(esp_i_kernels_t *self, int64_t bytes, int64_t dst, int64_t src);
void esp_i_host_write(esp_i_kernels_t *self, int64_t bytes, int64_t dst, const void *src);
void esp_i_host_read(esp_i_kernels_t *self, int64_t bytes, void *dst, int64_t src);

/* Bytes of an element as stored, and the stored dtype of a graph's dtype. */
static inline esp_dtype_t esp_i_stored_dtype(esp_dtype_t dtype, bool wide)
{
    return wide && dtype == ESP_DTYPE_F32 ? ESP_DTYPE_F64 : dtype;
}
static inline char *esp_i_at(const esp_i_kernels_t *kernels, int64_t place)
{
    return kernels->memory + place;
}

#endif
