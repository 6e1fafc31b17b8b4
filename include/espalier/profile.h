/*
 * espalier/profile.h: measuring what ops and messages cost on the machines at hand.
 *
 * Ops are timed as they run in a step: all ops of the training graph in order, with the kernels,
 * the memory and the local shapes of a deployment, at several shares of the batch. Messages are
 * timed between each two devices. The result is a table of measured costs (espalier/costs.h).
 *
 *     esp_profile_opts_t opts = esp_profile_opts_default();
 *     if (esp_profile_ops(graph, "desktop", &opts, NULL, &costs, &diag) == ESP_OK)
 *         ... esp_costs_to_json(costs, NULL, &text, &diag) ...
 *     esp_costs_destroy(costs);
 */
#ifndef ESPALIER_PROFILE_H
#define ESPALIER_PROFILE_H

#include "espalier/costs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Start from esp_profile_opts_default: struct_size tells later versions apart. */
typedef struct esp_profile_opts {
    size_t struct_size;
    const char *backend; /* of kernels, as in esp_exec_opts_t; default NULL */
    /* For each share of the batch, at least so long and so many steps, after one that does not
     * count. The mean of a time that a quota interrupts needs many of the quota's periods. */
    double seconds;           /* >= 0; default 1 */
    int32_t runs;             /* >= 1; default 5 */
    int32_t shares;           /* 1 .. 8: the batch, a half, a quarter, ... of it; default 5 */
    uint64_t seed;            /* of the values that are computed with */
    esp_progress_fn progress; /* default NULL; where it stops, the result is ESP_STOPPED */
    void *progress_context;
} esp_profile_opts_t;
ESP_PUBLIC esp_profile_opts_t esp_profile_opts_default(void);

/*
 * Times the ops of a training graph on this machine, as those of device type `type`; launch and
 * local steps, too. Errors: ESP_ERR_ARGUMENT (an option, no batch), ESP_ERR_UNSUPPORTED (an op that
 * the backend cannot run), ESP_ERR_NOMEM, ESP_STOPPED.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_profile_ops(const esp_graph_t *graph, const char *type,
                                                      const esp_profile_opts_t *opts,
                                                      const esp_allocator_t *alloc,
                                                      esp_costs_t **costs_out, esp_diag_t *diag);

/*
 * Measures a cluster. As one process of an MPI job with a rank per device (rank r is device r):
 * each type is timed on its first device while the others do the same; collective, with the same
 * result everywhere, and the rank in *rank_out (may be NULL). Otherwise the devices are threads of
 * this process, and what is timed on this machine stands for all types. `graph` NULL: no ops.
 * `links`: 1: messages between each two devices, and what they take of the compute time of both; in
 * an MPI job also all-reduces over all, as a ring of messages and by MPI.
 * Errors: as esp_profile_ops; ESP_ERR_ARGUMENT (the job has another number of processes),
 * ESP_ERR_IO.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t
esp_profile_cluster(const esp_graph_t *graph, const esp_cluster_t *cluster, int32_t links,
                    const esp_profile_opts_t *opts, const esp_allocator_t *alloc,
                    esp_costs_t **costs_out, int32_t *rank_out, esp_diag_t *diag);

#ifdef __cplusplus
}
#endif
#endif
