/*
 * espalier/strategy.h: the space of decisions: op groups, actions, and how decisions become a
 * strategy.
 *
 * A base group is what must be decided together (parameter, state, update, first user with
 * its gradient ops; an op and its gradient ops; view ops with their producer; ops tied by the
 * statistics of BatchNorm). Op groups are at most max_groups sets of base groups, found by METIS
 * (edges: bytes, vertices: time). An action says for one op group: devices, shares,
 * synchronisation.
 *
 * The same action for every group:
 *
 *     int32_t action[space->n_groups] = all the same;
 *     esp_decisions_t decisions = {.action = action, .micro_batches = 1};
 *     if (esp_space_strategy(space, &decisions, op_mesh, op_mode, &strategy) == ESP_OK)
 *         ... esp_lower(lowerer, &strategy, &deployment, &diag) ...
 */
#ifndef ESPALIER_STRATEGY_H
#define ESPALIER_STRATEGY_H

#include "espalier/deploy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the gradients of a group travel, or what replaces that. */
#define ESP_SYNC_MAP(X)                                                                            \
    X(ALLREDUCE, "all-reduce", "replicas, gradients all-reduced")                                  \
    X(PS, "parameter-server", "replicas, each parameter at home on one device in turn")            \
    X(SHARDED, "sharded", "replicas, parameters and optimizer state split evenly")                 \
    X(DUPLICATE, "duplicate", "every device computes the whole batch")                             \
    X(MODEL_PARALLEL, "model-parallel", "ops divided over the devices, each whole on one")
typedef enum esp_sync {
#define ESP_SYNC_ENUM(name, text, help) ESP_SYNC_##name,
    ESP_SYNC_MAP(ESP_SYNC_ENUM)
#undef ESP_SYNC_ENUM
        ESP_SYNC_COUNT
} esp_sync_t;
/* "all-reduce" ..., as in plan files. Never NULL, static. */
ESP_PUBLIC const char *esp_sync_name(esp_sync_t sync);

/* How the batch is divided over the devices of an action. */
typedef enum esp_shares { ESP_SHARES_EQUAL, ESP_SHARES_PROPORTIONAL } esp_shares_t;

/* One choice for an op group. Equal actions are in a space once. */
typedef struct esp_action {
    uint64_t groups; /* mask of device groups whose devices all take part; 0: one explicit device */
    int32_t device;  /* the explicit device; ESP_NONE */
    int32_t mesh;    /* index into the meshes of the space */
    esp_shares_t shares; /* proportional: to 1 / (time of the whole graph on the device alone) */
    esp_sync_t sync;
} esp_action_t;

/* Start from esp_space_opts_default: struct_size tells later versions apart. */
typedef struct esp_space_opts {
    size_t struct_size;
    int32_t max_groups; /* op groups; default 40 */
    uint64_t seed;      /* of METIS */
} esp_space_opts_t;
/* The defaults that the fields state. */
ESP_PUBLIC esp_space_opts_t esp_space_opts_default(void);

/*
 * The space of decisions for one cost model. Read only, for any number of threads; everything lives
 * in one arena until esp_space_destroy. Arrays by op have as many elements as the graph has ops.
 */
typedef struct esp_space {
    const esp_cost_t *cost;
    int32_t n_base;
    const double *base_ns;  /* whole batch, mean over the devices; in order of first op */
    const int32_t *op_base; /* base group per op; ESP_NONE: step-wide (step counter, norm) */

    int32_t n_groups;         /* op groups, by decreasing time: 0 is the most expensive */
    const int32_t *op_group;  /* ESP_NONE as op_base */
    const double *group_ns;   /* whole batch, mean over the devices */
    const int32_t *op_update; /* the UPDATE whose decision an update-phase op follows; ESP_NONE */
    const double *device_ns;  /* whole graph and batch on each device alone */

    /* Meshes: one per device, by id; then the distinct ones of the actions. */
    int32_t n_meshes;
    const esp_mesh_spec_t *mesh;

    int32_t n_actions;
    const esp_action_t *action;
} esp_space_t;

/*
 * Finds base groups, op groups and actions. opts NULL: the defaults. The same cost model and
 * options give the same space. *space_out is the caller's; the cost model must outlive it. Errors:
 * ESP_ERR_ARGUMENT (an option out of range, named), ESP_ERR_NOMEM, ESP_ERR_INTERNAL (METIS). METIS
 * serves one caller at a time: calls of several threads wait for each other.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_space_create(const esp_cost_t *cost,
                                                       const esp_space_opts_t *opts,
                                                       const esp_allocator_t *alloc,
                                                       esp_space_t **space_out, esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_space_destroy(esp_space_t *space);

/* The index of the action with these properties, or ESP_NONE. O(actions). */
ESP_PUBLIC int32_t esp_space_find_action(const esp_space_t *space, uint64_t groups, int32_t device,
                                         esp_shares_t shares, esp_sync_t sync);
/* "all-reduce on v100 + p100, proportional shares": for people. Cut at capacity. */
ESP_PUBLIC void esp_action_text(const esp_space_t *space, int32_t action, char *text_out,
                                size_t capacity);

/*
 * The decisions for all groups, and those of the whole plan, which are as in esp_strategy_t. The
 * arrays are the caller's.
 */
typedef struct esp_decisions {
    int32_t *action; /* per op group: index into the actions of the space */
    int32_t micro_batches;
    int64_t bucket_bytes;
    int32_t sync_batchnorm;
    /* per op, or NULL: 1 runs a BATCH op WHOLE (sufficient factor broadcasting) */
    const uint8_t *op_whole;
} esp_decisions_t;

/*
 * Expands decisions to a strategy in caller memory: op_mesh_out, op_mode_out: one per op. The
 * strategy points at the space and at these arrays. O(ops). Model-parallel groups are divided
 * contiguously, in topological order, by time in proportion to device speed; parameter-server homes
 * go round robin over the devices of the mesh, by bytes. Errors: ESP_ERR_ARGUMENT (a number that is
 * no action), ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_space_strategy(const esp_space_t *space,
                                                         const esp_decisions_t *decisions,
                                                         int32_t *op_mesh_out, uint8_t *op_mode_out,
                                                         esp_strategy_t *strategy_out);

/*
 * A device for each base group (base_device_out: n_base entries): contiguous stages in topological
 * order, one per device, by time in proportion to speed.
 */
ESP_PUBLIC void esp_space_divide(const esp_space_t *space, int32_t *base_device_out);
/*
 * The same by METIS: parts of a size in proportion to speed that cut few bytes. Errors:
 * ESP_ERR_NOMEM, ESP_ERR_INTERNAL (METIS).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_space_partition(const esp_space_t *space, uint64_t seed,
                                                          int32_t *base_device_out);

#ifdef __cplusplus
}
#endif
#endif
