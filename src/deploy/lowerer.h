/* Inside of lowering: what a lowerer keeps between calls and what it builds during one. */
#ifndef ESP_DEPLOY_LOWERER_H
#define ESP_DEPLOY_LOWERER_H

#include "base/base.h"
#include "espalier/deploy.h"

#include <string.h>

/*
 * Outline of a call (lower.c): intern the meshes of the strategy, find the device classes, create
 * the homes of parameters, lower the ops that are the same for all micro-batches, then the body
 * once per micro-batch, accumulate, reduce the gradients in buckets, lower the updates; then
 * depend.c derives dependencies and order.c the global order.
 *
 * Capacity is reserved for several ops at once (a bound on what they can emit), so that emitting
 * never fails.
 */

/* ---- meshes: interned for the lifetime of the lowerer ------------------------------------------
 */

typedef struct esp_i_mesh {
    int32_t n;
    const int32_t *device;                        /* ascending */
    const int64_t *units;                         /* batch shares of one micro-batch */
    const double *batch_fraction, *even_fraction; /* per device */
    uint64_t hash;
} esp_i_mesh_t;

/* ---- static facts about the graph
 * ---------------------------------------------------------------- */

enum {
    ESP_I_OP_SKIP,  /* no task: RESHAPE */
    ESP_I_OP_ONCE,  /* before the body: does not depend on the batch, or a sum over it of inputs
                       alone */
    ESP_I_OP_BODY,  /* once per micro-batch */
    ESP_I_OP_AFTER, /* after the body, before the updates: reads sums over the whole batch only */
    ESP_I_OP_UPDATE /* after the body */
};

/* How one operand is seen by the op's own batch factor. */
typedef struct esp_i_operand {
    esp_tensor_id_t root; /* ESP_NONE: absent */
    int32_t bind;
    esp_view_t view;
} esp_i_operand_t;

typedef struct esp_i_facts {
    uint8_t *op_stage;
    esp_i_operand_t *in, *out; /* parallel to input_tensor and output_tensor of the graph */
    uint8_t
        *op_once; /* lowered before the body (too, if its stage is BODY and the body reads it) */
    uint8_t *op_is_add; /* n-ary element-wise sum */
    uint8_t *op_shards; /* its elements can be split evenly: every operand CARRY, ABSENT or SUM */
    esp_factor_t *op_shard_factor;
    uint8_t *tensor_accumulates; /* made by the body, read after it */
    uint8_t *tensor_free;        /* input or literal: appears anywhere in any form */
    uint8_t *tensor_body;
    uint8_t *tensor_read_once; /* root tensor: one op reads it, once */
    esp_tensor_id_t *updated;  /* tensors with a next version, in id order */
    int32_t n_updated;
    esp_tensor_id_t *accumulated;
    int32_t n_accumulated;
    esp_op_id_t *reduction; /* UPDATE ops, by production of what they fold in */
    int32_t n_reductions;
    esp_tensor_id_t
        *previous; /* root tensor of a new version -> the tensor it replaces; ESP_NONE */
    int32_t max_operands;
    bool has_local; /* BatchNorm: ops that want the addend of their own device, or the sum */
    esp_op_id_t micro_obstacle; /* the op that forbids micro-batches; ESP_NONE: none */
} esp_i_facts_t;

/* ---- growing arrays
 * ------------------------------------------------------------------------------- */

#define ESP_I_TASK_ARRAYS(X)                                                                       \
    X(uint8_t, kind)                                                                               \
    X(uint8_t, mode)                                                                               \
    X(int32_t, class_)                                                                             \
    X(int32_t, op)                                                                                 \
    X(int16_t, micro)                                                                              \
    X(int64_t, ns) X(int32_t, comm) X(int32_t, read_offset) X(int32_t, write_offset)
/* maker: the first of the tasks of an op that make the buffers, one each, in memory of their own;
 * else ESP_NONE. */
#define ESP_I_VALUE_ARRAYS(X)                                                                      \
    X(esp_tensor_id_t, tensor)                                                                     \
    X(int32_t, mesh)                                                                               \
    X(uint8_t, form)                                                                               \
    X(uint8_t, share)                                                                              \
    X(esp_view_t, view)                                                                            \
    X(int16_t, micro) X(int32_t, buffer) X(int32_t, next) X(int32_t, maker)
/* resident, shared: 0 from n on. */
#define ESP_I_BUFFER_ARRAYS(X)                                                                     \
    X(int32_t, value)                                                                              \
    X(int32_t, class_)                                                                             \
    X(int64_t, bytes) X(int32_t, root) X(int32_t, producer) X(uint8_t, resident) X(uint8_t, shared)
#define ESP_I_COMM_ARRAYS(X)                                                                       \
    X(uint8_t, kind)                                                                               \
    X(const esp_pattern_t *, pattern)                                                              \
    X(int64_t, bytes)                                                                              \
    X(uint8_t, collective) X(int32_t, pair_offset) X(int32_t, class_offset) X(int32_t, task)

#define ESP_I_FIELD(type, name) type *name;
typedef struct esp_i_tasks {
    int32_t n, capacity;
    ESP_I_TASK_ARRAYS(ESP_I_FIELD)
} esp_i_tasks_t;
typedef struct esp_i_values {
    int32_t n, capacity;
    ESP_I_VALUE_ARRAYS(ESP_I_FIELD)
} esp_i_values_t;
typedef struct esp_i_buffers {
    int32_t n, capacity;
    ESP_I_BUFFER_ARRAYS(ESP_I_FIELD)
} esp_i_buffers_t;
typedef struct esp_i_comms {
    int32_t n, capacity;
    ESP_I_COMM_ARRAYS(ESP_I_FIELD)
} esp_i_comms_t;
#undef ESP_I_FIELD

typedef ESP_VEC(int32_t) esp_i_ids_t;

/*
 * A row: one element per class of a mesh, at the end of an array. Rows are written in whole blocks,
 * which leaves no rest to the compiler's vectors; what is written beyond a row is not in use yet,
 * and there is always room for one block more.
 */
enum { ESP_I_BLOCK = 8 };

/* n, rounded up. */
static inline uint32_t esp_i_blocks(int32_t n)
{
    return ((uint32_t)n + ESP_I_BLOCK - 1) & ~(uint32_t)(ESP_I_BLOCK - 1);
}

static inline void esp_i_row_fill(int32_t *row, int32_t n, int32_t value)
{
    for (uint32_t k = 0, end = esp_i_blocks(n); k != end; k++)
        row[k] = value;
}

static inline void esp_i_row_count(int32_t *row, int32_t n, int32_t first, int32_t step)
{
    for (uint32_t k = 0, end = esp_i_blocks(n); k != end; k++, first += step)
        row[k] = first;
}

static inline void esp_i_row_copy(int32_t *restrict row, int32_t n, const int32_t *restrict from)
{
    for (uint32_t k = 0, end = esp_i_blocks(n); k != end; k++)
        row[k] = from[k];
}

static inline void esp_i_row_mark(uint8_t *row, int32_t n, uint8_t value)
{
    for (uint32_t k = 0, end = esp_i_blocks(n); k != end; k += ESP_I_BLOCK)
        memset(row + k, value, ESP_I_BLOCK);
}

/* Mesh as the current call uses it. */
typedef struct esp_i_local_mesh {
    int32_t mesh;                   /* interned id */
    int32_t n;                      /* devices */
    int32_t class_first, n_classes; /* in mesh_class */
    uint64_t places; /* mesh, and the interned mesh of the first device of each of its classes */
} esp_i_local_mesh_t;

/* What the durations of the tasks of an op depend on. */
typedef struct esp_i_duration_key {
    uint64_t places; /* of the local mesh */
    uint64_t way;    /* micro-batches, mode, in the body or not; never 0 */
} esp_i_duration_key_t;
enum { ESP_I_KNOWN_CLASSES = 16 };

typedef struct esp_i_pattern_entry {
    uint64_t key[2];
    int32_t count; /* 0: empty slot */
    esp_pattern_t pattern[ESP_PATTERN_MAX];
} esp_i_pattern_entry_t;

struct esp_lowerer {
    esp_allocator_t alloc;
    esp_i_arena_t arena; /* meshes and facts */
    const esp_cost_t *cost;
    const esp_graph_t *graph;
    const esp_cluster_t *cluster;
    esp_i_facts_t facts;

    ESP_VEC(esp_i_mesh_t) meshes;
    int32_t *mesh_slots; /* open addressing over meshes */
    int32_t mesh_slot_count;
    esp_i_pattern_entry_t **patterns; /* open addressing; entries are stable */
    int32_t pattern_slots, pattern_count;
    esp_i_duration_key_t *duration_key; /* per op: of the last durations */
    int64_t *duration_ns;               /* [op][ESP_I_KNOWN_CLASSES] */

    /* of the current call */
    const esp_strategy_t *strategy;
    int32_t micro; /* ESP_NONE outside the body */
    int32_t n_classes;
    int32_t *device_class, *class_type, *class_size;
    int32_t *class_offset, *class_device;
    ESP_VEC(esp_i_local_mesh_t) local; /* distinct meshes of the strategy, then unions */
    int32_t *spec_local;               /* per mesh of the strategy */
    int32_t everywhere;                /* local mesh of all devices in use */
    esp_i_ids_t mesh_class;
    ESP_VEC(int64_t) mesh_class_units;
    ESP_VEC(double) mesh_class_part; /* of each member, in one micro-batch */
    int32_t *mesh_slot_of;           /* [local mesh][class] -> slot or ESP_NONE; grows with local */
    int32_t mesh_slot_capacity;
    int32_t *tensor_value; /* head of the list of values, per root tensor */
    int32_t *tensor_sum;   /* accumulated value over micro-batches */
    esp_i_tasks_t tasks;
    esp_i_values_t values;
    esp_i_buffers_t buffers;
    esp_i_comms_t comms;
    esp_i_ids_t reads, writes, pair_src, pair_dst, comm_classes;
    ESP_VEC(int64_t) comm_class_ns; /* parallel to comm_classes */
    esp_i_ids_t extra_before, extra_after, cross_before, cross_after;
    esp_i_ids_t overwriters; /* (root buffer, task) pairs, ascending task */
    int32_t *device_scratch; /* per device */
    int64_t *units_scratch;
    int32_t *operand_scratch;
    esp_i_operand_t *shard_scratch;
    struct esp_i_order *order;
    struct esp_i_pack *pack; /* NULL until the first packing */
    esp_deployment_t d;
    /* views of the deployment that are rebuilt per call */
    int32_t *d_mesh_offset, *d_mesh_device, *d_mesh_class_offset;
    int64_t *d_mesh_units, *class_resident, *class_arena, *buffer_offset;
    int32_t *successor_offset, *successor, *n_predecessors, *order_ids, *position;
    int32_t successor_capacity, task_scratch_capacity;
};

/* facts.c */
esp_status_t esp_i_facts_find(esp_lowerer_t *lw, esp_diag_t *diag);

/* mesh.c */
esp_status_t esp_i_mesh_prepare(esp_lowerer_t *lw,
                                esp_diag_t *diag); /* strategy meshes and classes */
/* Union of two local meshes (for partials); -1: no memory. */
int32_t esp_i_mesh_union(esp_lowerer_t *lw, int32_t a, int32_t b);
bool esp_i_mesh_contains(const esp_lowerer_t *lw, int32_t outer, int32_t inner);
static inline const esp_i_mesh_t *esp_i_mesh_of(const esp_lowerer_t *lw, int32_t local)
{
    return &lw->meshes.data[lw->local.data[local].mesh];
}
static inline int32_t esp_i_op_mesh(const esp_lowerer_t *lw, esp_op_id_t op)
{
    int32_t spec = lw->strategy->op_mesh[op];
    return spec == ESP_NONE ? lw->everywhere : lw->spec_local[spec];
}
static inline int32_t esp_i_mesh_slot(const esp_lowerer_t *lw, int32_t local, int32_t class_)
{
    return lw->mesh_slot_of[(int64_t)local * lw->n_classes + class_];
}

/* patterns.c: the cheapest way to move `bytes`; NULL: no memory */
const esp_pattern_t *esp_i_pattern_for(esp_lowerer_t *lw, esp_comm_t comm, int32_t from, int32_t to,
                                       esp_share_t from_share, esp_share_t to_share, int64_t bytes);
int64_t esp_i_pattern_ns(const esp_pattern_t *pattern, int64_t bytes);

/* A value: one that is wanted, or one to be made. */
typedef struct esp_i_want {
    esp_tensor_id_t root;
    int32_t mesh;
    esp_form_t form;
    esp_share_t share;
    esp_view_t view;
} esp_i_want_t;
/* On one device every form is the same: the tensor. Only a split has a view. */
static inline void esp_i_want_normalise(const esp_lowerer_t *lw, esp_i_want_t *want)
{
    if (lw->local.data[want->mesh].n == 1)
        want->form = ESP_FORM_REPLICATED;
    if (want->form != ESP_FORM_SPLIT)
        want->view = (esp_view_t){0, 0, 0};
}

/* emit.c */
/* Room for tasks of which some are movements, for values, and for what the tasks read and write. */
bool esp_i_reserve(esp_lowerer_t *lw, int64_t tasks, int64_t moves, int64_t values,
                   int64_t operands);
int32_t esp_i_value_new(esp_lowerer_t *lw, const esp_i_want_t *want);
int64_t esp_i_tensor_bytes(const esp_lowerer_t *lw,
                           esp_tensor_id_t root); /* of one micro-batch in the body */
void esp_i_value_settle(esp_lowerer_t *lw, int32_t value);
int64_t esp_i_value_total_bytes(const esp_lowerer_t *lw, int32_t value);
/* The buffers [buffer, buffer + n) are written, one after the other, by tasks `step` apart. */
void esp_i_row_write(esp_lowerer_t *lw, int32_t n, int32_t buffer, int32_t task, int32_t step);
static inline int32_t esp_i_task_new(esp_lowerer_t *lw, esp_task_kind_t kind, esp_mode_t mode,
                                     int32_t class_, int32_t op, int64_t ns)
{
    esp_i_tasks_t *tasks = &lw->tasks;
    int32_t task = tasks->n++;
    tasks->kind[task] = (uint8_t)kind;
    tasks->mode[task] = (uint8_t)mode;
    tasks->class_[task] = class_;
    tasks->op[task] = op;
    tasks->micro[task] = (int16_t)lw->micro;
    tasks->ns[task] = ns;
    tasks->comm[task] = ESP_NONE;
    tasks->read_offset[task] = lw->reads.count;
    tasks->write_offset[task] = lw->writes.count;
    return task;
}

static inline void esp_i_task_read(esp_lowerer_t *lw, int32_t buffer)
{
    esp_dcheck(lw->reads.count < lw->reads.capacity);
    lw->reads.data[lw->reads.count++] = buffer;
}

/* Writing memory that another task made (in-place update, accumulation) is noted for
 * anti-dependencies. */
static inline void esp_i_task_write(esp_lowerer_t *lw, int32_t task, int32_t buffer)
{
    esp_dcheck(lw->writes.count < lw->writes.capacity);
    lw->writes.data[lw->writes.count++] = buffer;
    lw->buffers.producer[buffer] = task;
    int32_t *overwriter = lw->overwriters.data + lw->overwriters.count;
    overwriter[0] = lw->buffers.root[buffer];
    overwriter[1] = task;
    lw->overwriters.count += overwriter[0] != buffer ? 2 : 0;
}

/* sum.c */
/* Whether a tensor is whole on `mesh` already, or appears there. */
bool esp_i_is_there(const esp_lowerer_t *lw, esp_tensor_id_t root, int32_t mesh);
/* An n-ary sum that the batch does not split; *done_out false: it is an op like others. */
esp_status_t esp_i_lower_sum(esp_lowerer_t *lw, esp_op_id_t op, int32_t mesh, esp_mode_t mode,
                             bool *done_out, esp_diag_t *diag);
/* After each micro-batch; after the last. */
esp_status_t esp_i_sums_add(esp_lowerer_t *lw, esp_diag_t *diag);
void esp_i_sums_publish(esp_lowerer_t *lw);

/* compute.c */
/* Brings *want to its normal form. */
int32_t esp_i_output_new(esp_lowerer_t *lw, esp_i_want_t *want);
typedef struct esp_i_compute {
    esp_op_id_t op;
    int32_t mesh;      /* local */
    esp_mode_t mode;   /* as carried out */
    const int32_t *in; /* value per operand; ESP_NONE: absent */
    const int32_t *out;
} esp_i_compute_t;
void esp_i_compute(esp_lowerer_t *lw, const esp_i_compute_t *low);

/* reshard.c: all bring *want to its normal form. */
int32_t esp_i_find(const esp_lowerer_t *lw, esp_i_want_t *want); /* ESP_NONE: there is none */
/* Makes one from the cheapest that exists. */
esp_status_t esp_i_value_make(esp_lowerer_t *lw, const esp_i_want_t *want, int32_t op,
                              int32_t *value_out, esp_diag_t *diag);
/* The value of that form on that mesh: an existing one, or made. */
static inline esp_status_t esp_i_need(esp_lowerer_t *lw, esp_i_want_t *want, int32_t op,
                                      int32_t *value_out, esp_diag_t *diag)
{
    *value_out = esp_i_find(lw, want);
    return *value_out != ESP_NONE ? ESP_OK : esp_i_value_make(lw, want, op, value_out, diag);
}
/* Opens a movement of one pair; more pairs may follow by esp_i_comm_pair before esp_i_comm_close.
 */
int32_t esp_i_comm_open(esp_lowerer_t *lw, esp_comm_t kind, int32_t op);
void esp_i_comm_pair(esp_lowerer_t *lw, int32_t comm, int32_t src, int32_t dst);
esp_status_t esp_i_comm_close(esp_lowerer_t *lw, int32_t comm, esp_diag_t *diag);

/* gradients.c: buckets */
esp_status_t esp_i_reduce_gradients(esp_lowerer_t *lw, esp_diag_t *diag);

/* micro.c: false: no memory */
bool esp_i_micro_limit(esp_lowerer_t *lw);

/* depend.c: false: no memory */
bool esp_i_depend(esp_lowerer_t *lw);
bool esp_i_pairs_grow(esp_lowerer_t *lw, esp_i_ids_t *before, esp_i_ids_t *after);
/* Appends a to the one list and b to the other, which are parallel. */
static inline bool esp_i_pair_push(esp_lowerer_t *lw, esp_i_ids_t *before, esp_i_ids_t *after,
                                   int32_t a, int32_t b)
{
    int32_t n = before->count;
    if ((n >= before->capacity || n >= after->capacity) && !esp_i_pairs_grow(lw, before, after))
        return false;
    before->data[n] = a;
    after->data[n] = b;
    before->count = after->count = n + 1;
    return true;
}

/* finish.c, order.c */
esp_status_t esp_i_finish(esp_lowerer_t *lw, esp_diag_t *diag);
esp_status_t esp_i_order(esp_lowerer_t *lw, esp_diag_t *diag);
esp_status_t esp_i_order_init(esp_lowerer_t *lw);
void esp_i_order_fini(esp_lowerer_t *lw);

/* pack.c */
void esp_i_pack_destroy(esp_lowerer_t *lw);

/* Replaces *array by one of at least `need` elements (contents kept up to `keep`); false: no
 * memory. */
bool esp_i_resize(const esp_allocator_t *alloc, void *array, int64_t keep, int64_t need,
                  size_t size);

#endif
