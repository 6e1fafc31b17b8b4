/* Moving whole tensors between files and executors. */
#include "exec/tensors.h"

/* Whether an op reads it, through views or not: what nobody reads is on no device. */
static bool is_read(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    for (int32_t i = graph->consumer_offset[tensor]; i < graph->consumer_offset[tensor + 1]; i++) {
        esp_op_id_t op = graph->consumer_op[i];
        if (graph->op_kind[op] != ESP_KIND_RESHAPE ||
            is_read(graph, graph->output_tensor[graph->output_offset[op]]))
            return true;
    }
    return false;
}

bool esp_i_is_kept(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    esp_role_t role = (esp_role_t)graph->tensor_role[tensor];
    return graph->tensor_producer[tensor] == ESP_NONE && graph->tensor_data[tensor] == NULL &&
           (role == ESP_ROLE_PARAMETER || role == ESP_ROLE_STATE || role == ESP_ROLE_STATISTIC ||
            role == ESP_ROLE_FROZEN) &&
           is_read(graph, tensor);
}

int64_t esp_i_outside_bytes(const esp_train_job_t *job, esp_tensor_id_t tensor)
{
    return job->graph->tensor_elements[tensor] * esp_dtype_bytes(esp_i_outside_dtype(job, tensor));
}

void *esp_i_staging(const esp_train_job_t *job)
{
    int64_t most = 64;
    for (esp_tensor_id_t i = 0; i < job->graph->n_tensors; i++)
        if (esp_i_is_kept(job->graph, i))
            most = esp_i_max_i64(most, esp_i_outside_bytes(job, i));
    return esp_i_alloc(&esp_i_malloc, (size_t)most);
}

esp_status_t esp_i_share_status(esp_launch_t *launch, esp_status_t status, esp_diag_t *diag)
{
    struct {
        esp_status_t status;
        esp_diag_t diag;
    } block = {.status = status};
    if (diag != NULL)
        block.diag = *diag;
    ESP_TRY(esp_launch_share(launch, &block, sizeof block, diag));
    if (block.status != ESP_OK && diag != NULL)
        *diag = block.diag;
    return block.status;
}
