/* Moving whole tensors between files and executors. */
#ifndef ESP_EXEC_TENSORS_H
#define ESP_EXEC_TENSORS_H

#include "espalier/train.h"
#include "exec/files.h"
#include "exec/kernels.h"

/* What lives from step to step, or is set once: parameters, state, statistics, frozen weights. */
bool esp_i_is_kept(const esp_graph_t *graph, esp_tensor_id_t tensor);
/* Dtype and bytes of a whole tensor outside of an executor. */
static inline esp_dtype_t esp_i_outside_dtype(const esp_train_job_t *job, esp_tensor_id_t tensor)
{
    return esp_i_stored_dtype((esp_dtype_t)job->graph->tensor_dtype[tensor], job->wide != 0);
}
int64_t esp_i_outside_bytes(const esp_train_job_t *job, esp_tensor_id_t tensor);
/* Room for any tensor that is kept; NULL: no memory. Released with esp_i_malloc. */
void *esp_i_staging(const esp_train_job_t *job);
/* Rank 0's status and diag on every rank. */
esp_status_t esp_i_share_status(esp_launch_t *launch, esp_status_t status, esp_diag_t *diag);

#endif
