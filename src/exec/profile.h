/* What the files of the profiler share (profile*.c). */
#ifndef ESP_EXEC_PROFILE_H
#define ESP_EXEC_PROFILE_H

#include "espalier/profile.h"
#include "exec/comm.h"
#include "exec/program.h"

/* Mean and spread of repeated times. */
typedef struct esp_i_times {
    double sum, square;
    int64_t n;
} esp_i_times_t;
static inline void esp_i_times_add(esp_i_times_t *times, double ns)
{
    times->sum += ns;
    times->square += ns * ns;
    times->n++;
}
esp_cost_point_t esp_i_times_point(const esp_i_times_t *times, double units);

/* What one rank has measured; names are not owned. */
typedef struct esp_i_profile {
    esp_allocator_t alloc;
    const esp_profile_opts_t *opts;
    esp_i_arena_t memory;             /* signatures */
    ESP_VEC(esp_cost_curve_t) curves; /* of one point each */
    ESP_VEC(esp_costs_link_t) links;
    ESP_VEC(esp_costs_collective_t) collectives;
    double launch_ns, copy_ns_per_byte, comm_compute_s_per_byte; /* negative: not measured */
    double done, all; /* parts of the work, for the progress */
    bool silent;      /* reports no progress */
    esp_diag_t *diag;
} esp_i_profile_t;

void esp_i_profile_init(esp_i_profile_t *p, const esp_profile_opts_t *opts,
                        const esp_allocator_t *alloc, esp_diag_t *diag);
void esp_i_profile_fini(esp_i_profile_t *p);
/* A part of the work is done. ESP_STOPPED if the caller wants no more. */
esp_status_t esp_i_profile_go_on(esp_i_profile_t *p, double part, const char *what);
/* The table, sorted, as of that type. */
esp_status_t esp_i_profile_table(const esp_i_profile_t *p, const char *type,
                                 esp_costs_t **costs_out);

/* profile_ops.c: curves, launch and local steps; a part of the work per share. */
esp_status_t esp_i_profile_ops(esp_i_profile_t *p, const esp_graph_t *graph);
/*
 * profile_links.c: as rank comm->rank; all ranks call it. device: the name of each rank. Links are
 * those that leave this rank; a part of the work per pair, and one.
 */
esp_status_t esp_i_profile_links(esp_i_profile_t *p, esp_i_comm_t *comm, const char *const *device,
                                 char *data);
/*
 * profile_collectives.c: all-reduces over all ranks, as a ring of messages and by the
 * communication library, if that has them; all ranks call it, rank 0 keeps the times.
 */
esp_status_t esp_i_profile_collectives(esp_i_profile_t *p, esp_i_comm_t *comm, char *data);
/* An all-reduce of floats over all ranks. */
typedef struct esp_i_allreduce {
    esp_i_comm_t *comm;
    esp_allocator_t alloc;
    int32_t n;      /* floats */
    float *data;    /* not owned */
    float *staging; /* the ring: a piece that comes; NULL: the library's */
    esp_i_message_t **message;
    int32_t n_messages;
} esp_i_allreduce_t;
/* An error of a run is one of the communicator, for good. */
esp_status_t esp_i_allreduce_init(esp_i_allreduce_t *a, esp_i_comm_t *comm, bool library, int32_t n,
                                  float *data, const esp_allocator_t *alloc, esp_diag_t *diag);
esp_status_t esp_i_allreduce_run(esp_i_allreduce_t *a, esp_diag_t *diag);
void esp_i_allreduce_fini(esp_i_allreduce_t *a);
enum { ESP_I_PROFILE_BYTES = 4 << 20 }; /* room for messages: `data`, which outlives all ranks */

/*
 * profile_share.c: a deployment in which device 0 does `share` of the units of the batch, and
 * SHARD updates are split into `shards`. Packed; the rest of the cluster is made up.
 */
enum { ESP_I_PROFILE_SHARDS = 16 }; /* at most */
typedef struct esp_i_profile_share {
    esp_cluster_t *cluster;
    esp_cost_t *cost;
    esp_lowerer_t *lowerer;
    const esp_deployment_t *deployment;
    esp_i_program_t *program; /* of device 0 */
} esp_i_profile_share_t;
esp_status_t esp_i_profile_share_create(const esp_graph_t *graph, int64_t share, int32_t shards,
                                        const esp_allocator_t *alloc, esp_i_profile_share_t *out,
                                        esp_diag_t *diag);
void esp_i_profile_share_fini(esp_i_profile_share_t *share);

#endif
