/*
 * espalier/deploy.h: strategies, forms, and the deployment that lowering makes of them.
 *
 * (training graph, cluster, cost model) -> esp_lowerer_t; (strategy) -> esp_deployment_t: what
 * every device and link does in one step, in one global order. The simulator and the executor
 * consume the same deployment. docs/deploy.md has the rules.
 *
 * Every device does everything, on equal shares:
 *
 *     esp_mesh_spec_t all = {n_devices, device, weight};
 *     esp_strategy_t strategy = {.n_meshes = 1, .mesh = &all, .op_mesh = zeros, .op_mode = zeros,
 *                                .micro_batches = 1};
 *     const esp_deployment_t *d;
 *     if (esp_lowerer_create(cost, NULL, &lowerer, &diag) == ESP_OK &&
 *         esp_lower(lowerer, &strategy, &d, &diag) == ESP_OK &&
 *         esp_deployment_pack(lowerer, &diag) == ESP_OK)
 *         ... esp_sim_run(sim, d, NULL, &result, &diag) ...
 *     esp_lowerer_destroy(lowerer);
 *
 * Errors: every function with a status writes its outputs on success only, and fills `diag` (which
 * may be NULL) on failure.
 */
#ifndef ESPALIER_DEPLOY_H
#define ESPALIER_DEPLOY_H

#include "espalier/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- strategies ------------------------------------------------------------------------------ */

/*
 * How one op runs on its mesh.
 *
 * - BATCH splits the batch factor over the devices by the shares of the mesh. An op that the batch
 *   does not reach passes partial inputs through if it is linear in them; else every device
 *   computes it.
 * - WHOLE: every device of the mesh computes the whole op (duplicated work, a single device, a
 *   parameter server).
 * - SHARD: an element-wise op (an optimizer update) splits its elements evenly (sharded optimizer).
 */
typedef enum esp_mode { ESP_MODE_BATCH, ESP_MODE_WHOLE, ESP_MODE_SHARD } esp_mode_t;

/*
 * A mesh as a strategy names it: devices, ascending, and the weight of each (> 0) in the batch;
 * shares of b units are the largest-remainder apportionment of b by weight. A device whose share is
 * 0 leaves the mesh.
 */
typedef struct esp_mesh_spec {
    int32_t n;
    const int32_t *device;
    const double *weight;
} esp_mesh_spec_t;

/*
 * The decisions for every op. Owned by the caller; read during the call only. op_mesh and op_mode
 * have as many elements as the graph has ops; esp_space_strategy makes both of decisions for groups
 * of ops.
 */
typedef struct esp_strategy {
    int32_t n_meshes;
    const esp_mesh_spec_t *mesh;
    const int32_t *op_mesh; /* per op: index into mesh; ESP_NONE, with WHOLE: wherever others are */
    const uint8_t *op_mode; /* per op: esp_mode_t */
    int32_t micro_batches;  /* >= 1; must divide the batch */
    int64_t bucket_bytes;   /* gradients are reduced together up to this size; 0: each alone */
    int32_t sync_batchnorm; /* reduce BatchNorm statistics (exact) or not (the custom) */
} esp_strategy_t;

/* ---- deployments ----------------------------------------------------------------------------- */

/*
 * How a tensor lies on a mesh: whole on each device; cut along a view, each device with its rows;
 * or as addends whose sum it is. A form has one entry per mesh level; this version makes one level.
 */
#define ESP_MESH_LEVELS 2
typedef enum esp_form { ESP_FORM_REPLICATED, ESP_FORM_SPLIT, ESP_FORM_PARTIAL } esp_form_t;

/* Shares of a split: the batch shares of the mesh, or as even as possible (sharded optimizer). */
typedef enum esp_share { ESP_SHARE_BATCH, ESP_SHARE_EVEN } esp_share_t;

/* What a task does. */
typedef enum esp_task_kind {
    ESP_TASK_COMPUTE, /* one op on one device class */
    ESP_TASK_ADD,     /* local sum of buffers: reads[1..] are added to reads[0] into writes[0] */
    ESP_TASK_SLICE,   /* local rows of a replicated buffer: reads[0] -> writes[0] */
    ESP_TASK_COMM     /* a movement between values (esp_comm_t) */
} esp_task_kind_t;

/*
 * A deployment. Read only; lives until the next lowering by its lowerer, or, if cloned, until
 * esp_deployment_destroy.
 *
 * Devices that behave alike are one *class*: a compute task of a class stands for one task on each
 * of its devices, with equal shares, sizes and durations.
 *
 * CSR pairs as in esp_graph_t: the list of element i is [offset[i], offset[i + 1]). The reads of a
 * task, for example:
 *
 *     for (int32_t i = d->read_offset[task]; i < d->read_offset[task + 1]; i++)
 *         ... d->read_buffer[i] ...
 */
typedef struct esp_deployment {
    const esp_graph_t *graph;
    const esp_cluster_t *cluster;
    const esp_cost_t *cost;
    int32_t micro_batches, sync_batchnorm;
    int64_t bucket_bytes;

    /* device classes */
    int32_t n_classes;
    const int32_t *class_offset, *class_device; /* members, ascending */
    const int32_t *device_class;                /* ESP_NONE: the device does nothing */

    /* meshes: devices ascending; units: batch shares of one micro-batch, > 0 */
    int32_t n_meshes;
    const int32_t *mesh_offset, *mesh_device;
    const int64_t *mesh_units;
    const int32_t *mesh_class_offset, *mesh_class; /* classes of a mesh, by first device */
    const int64_t *mesh_class_units;               /* units of each member of that class */

    /* values: a tensor in a form on a mesh */
    int32_t n_values;
    const esp_tensor_id_t *value_tensor;
    const int32_t *value_mesh;
    const uint8_t *value_form;    /* esp_form_t of level 0; the other level is REPLICATED */
    const uint8_t *value_share;   /* esp_share_t, for SPLIT */
    const esp_view_t *value_view; /* for SPLIT: of the whole tensor, all micro-batches */
    const int16_t *value_micro;   /* micro-batch; ESP_NONE: the same for all */
    const int32_t *value_buffer;  /* first buffer: one per class of the mesh, in mesh_class order */

    /* buffers, per device of the class */
    int32_t n_buffers;
    const int32_t *buffer_value, *buffer_class;
    const int64_t *buffer_bytes;
    const int32_t *buffer_root;     /* the buffer whose memory this is; self otherwise */
    const int32_t *buffer_producer; /* task; ESP_NONE: there before the step */
    /* lives between steps: parameters at home, state, literals, inputs */
    const uint8_t *buffer_resident;
    const int64_t *buffer_offset; /* in the arena of the device; NULL before packing */
    /* Scratch memory (esp_deployment_scratch_bytes), likewise: of compute tasks, and of movements
     * on each class that takes part, parallel to comm_class. */
    const int64_t *task_scratch_offset, *comm_scratch_offset;

    /* tasks; ids are a topological order until packing, whose extra edges follow `order` only */
    int32_t n_tasks;
    const uint8_t *task_kind;  /* esp_task_kind_t */
    const uint8_t *task_mode;  /* COMPUTE: esp_mode_t that was carried out: BATCH with a factor,
                                  SHARD, or WHOLE */
    const int32_t *task_class; /* ESP_NONE for COMM */
    const int32_t *task_op;    /* COMPUTE; else the op whose input asked for it */
    const int16_t *task_micro;
    const int64_t *task_ns;   /* alone, without contention */
    const int32_t *task_comm; /* COMM: index into comms; else ESP_NONE */
    const int32_t *read_offset,
        *read_buffer; /* CSR; COMPUTE: in the op's input order, ESP_NONE where absent */
    const int32_t *write_offset, *write_buffer;

    /* movements */
    int32_t n_comms;
    const uint8_t *comm_kind; /* esp_comm_t */
    const esp_pattern_t *const *comm_pattern;
    const int64_t *comm_bytes;          /* what the pattern is scaled by */
    const uint8_t *comm_collective;     /* occupies the collective stream of its classes */
    const int32_t *comm_pair_offset;    /* CSR: the values it moves (more than one: a bucket) */
    const int32_t *comm_src, *comm_dst; /* values */
    const int32_t *comm_class_offset, *comm_class; /* classes that take part */
    /* compute time that it takes of each device of the class, if that computes while it is under
     * way (CPU ranks); docs/sim.md */
    const int64_t *comm_class_ns;

    /* order: dependencies through buffers are implied by read/write; these are the others */
    int32_t n_extra;
    const int32_t *extra_before, *extra_after; /* anti-dependencies within the step */
    int32_t n_cross;
    const int32_t *cross_before,
        *cross_after; /* `after` of step k+1 waits for `before` of step k */
    const int32_t *successor_offset, *successor; /* CSR over tasks: all dependencies of the step */
    const int32_t *n_predecessors;
    const int32_t *order;    /* the global total order: task ids */
    const int32_t *position; /* its inverse */

    const int64_t *class_resident_bytes; /* per class: resident buffers */
    const int64_t *class_arena_bytes;    /* NULL before packing: resident + packed transient */
} esp_deployment_t;

/*
 * Turns strategies of one (graph, cluster, cost) into deployments. Not thread-safe: one per thread.
 * Keeps meshes, patterns and scratch memory between calls.
 */
typedef struct esp_lowerer esp_lowerer_t;
/*
 * Looks at the graph once. *lowerer_out is the caller's; the cost model, its graph and its cluster
 * must outlive it. Errors: ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_lowerer_create(const esp_cost_t *cost,
                                                         const esp_allocator_t *alloc,
                                                         esp_lowerer_t **lowerer_out,
                                                         esp_diag_t *diag);
/* Accepts NULL. The deployment of the last lowering goes with it; clones stay. */
ESP_PUBLIC void esp_lowerer_destroy(esp_lowerer_t *lowerer);
/* The op that makes more than one micro-batch inexact (it couples samples), or ESP_NONE. */
ESP_PUBLIC esp_op_id_t esp_lowerer_micro_obstacle(const esp_lowerer_t *lowerer);

/*
 * Lowers: finds for each op the forms of its operands, the movements that make them, classes,
 * buffers and the global order. O(ops * classes + tasks log tasks). *deployment_out belongs to the
 * lowerer and is valid until its next call of this function. Errors: ESP_ERR_ARGUMENT (a strategy
 * that makes no sense, of which the op is named; micro-batches that do not divide the batch or that
 * would not be exact), ESP_ERR_NOMEM; the deployment before is then gone all the same.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_lower(esp_lowerer_t *lowerer,
                                                const esp_strategy_t *strategy,
                                                const esp_deployment_t **deployment_out,
                                                esp_diag_t *diag);

/*
 * What device number k (0-based in the mesh) of a value holds: rows [offset, offset + share) of
 * *view_out of the whole tensor. view extent 0: the whole tensor. A value of one micro-batch that
 * is not SPLIT holds the rows of that micro-batch. O(devices of the mesh).
 */
ESP_PUBLIC void esp_deployment_share(const esp_deployment_t *deployment, int32_t value, int32_t k,
                                     esp_view_t *view_out, int64_t *offset_out, int64_t *share_out);

/*
 * Scratch memory while a task runs, on each device of each class that takes part: the workspace of
 * an op, scaled to the share that the task computes, or the receive buffers of a movement. O(1).
 */
ESP_PUBLIC int64_t esp_deployment_scratch_bytes(const esp_deployment_t *deployment, int32_t task);

/*
 * Packs the transient buffers and the scratch memory of every class into an arena, behind its
 * resident buffers (buffer_offset, task_scratch_offset, comm_scratch_offset, class_arena_bytes),
 * and adds what reused memory depends on to the extra and the cross edges. The global order stays
 * as it is. For the deployment that the lowerer made last; packing again changes nothing. O(tasks +
 * buffers log buffers + overlaps). Errors: ESP_ERR_NOMEM; the deployment stays unpacked.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_deployment_pack(esp_lowerer_t *lowerer, esp_diag_t *diag);
/*
 * The same with the start and end of every task as simulated (arrays by task, read during the
 * call), from the first start of a step, and the time between two steps. With contention on the
 * links movements end later than alone, and memory that is taken over too early makes compute wait
 * for them.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_deployment_pack_timed(esp_lowerer_t *lowerer,
                                                                const int64_t *start_ns,
                                                                const int64_t *end_ns,
                                                                int64_t period_ns,
                                                                esp_diag_t *diag);

/*
 * A copy that outlives the lowerer, packed if the original is; graph, cluster and cost are shared
 * and must outlive it. *clone_out is the caller's, for esp_deployment_destroy. Errors:
 * ESP_ERR_NOMEM. O(size of the deployment).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_deployment_clone(const esp_deployment_t *deployment,
                                                           const esp_allocator_t *alloc,
                                                           esp_deployment_t **clone_out);
/* Releases a clone; what esp_lower returned goes with its lowerer. Accepts NULL. */
ESP_PUBLIC void esp_deployment_destroy(esp_deployment_t *clone);

/*
 * Verifies a deployment against the rules without sharing code with lowering: forms of every op's
 * operands, movements, one writer per buffer, order, anti-dependencies, arena overlaps. The diag
 * names the task. O(tasks + overlaps).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_deployment_check(const esp_deployment_t *deployment,
                                                           esp_diag_t *diag);

/*
 * How many movements carry activations: neither gradients, nor parameters, nor scalars, nor
 * statistics. *bytes_out: what they carry in all. O(movements).
 */
ESP_PUBLIC int32_t esp_deployment_activation_moves(const esp_deployment_t *deployment,
                                                   int64_t *bytes_out);

#ifdef __cplusplus
}
#endif
#endif
