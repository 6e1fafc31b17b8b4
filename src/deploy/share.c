/* What each device of a value's mesh holds. */
#include "base/base.h"
#include "espalier/deploy.h"

static void even_share(int64_t extent, int64_t n, int64_t k, int64_t *offset_out,
                       int64_t *share_out)
{
    /* floor((k+1) e / n) - floor(k e / n) without overflow */
    int64_t whole = extent / n, rest = extent % n;
    *offset_out = k * whole + k * rest / n;
    *share_out = (k + 1) * whole + (k + 1) * rest / n - *offset_out;
}

void esp_deployment_share(const esp_deployment_t *d, int32_t value, int32_t k, esp_view_t *view_out,
                          int64_t *offset_out, int64_t *share_out)
{
    int32_t mesh = d->value_mesh[value], first = d->mesh_offset[mesh];
    int32_t n = d->mesh_offset[mesh + 1] - first, micro = d->value_micro[value];
    esp_view_t batch = d->graph->tensor_batch[d->value_tensor[value]];
    int64_t rows = d->graph->batch / d->micro_batches;
    if (d->value_form[value] != ESP_FORM_SPLIT) {
        bool part = micro != ESP_NONE && batch.extent && d->micro_batches > 1;
        *view_out = part ? batch : (esp_view_t){0, 0, 0};
        *offset_out = part ? micro * rows : 0;
        *share_out = part ? rows : 0;
        return;
    }
    *view_out = d->value_view[value];
    if (d->value_share[value] == ESP_SHARE_EVEN) {
        even_share(view_out->extent, n, k, offset_out, share_out);
        return;
    }
    int64_t scale = micro == ESP_NONE ? d->micro_batches : 1;
    *offset_out = micro == ESP_NONE ? 0 : micro * rows;
    for (int32_t i = 0; i < k; i++)
        *offset_out += d->mesh_units[first + i] * scale;
    *share_out = d->mesh_units[first + k] * scale;
}

int32_t esp_deployment_activation_moves(const esp_deployment_t *d, int64_t *bytes_out)
{
    const esp_graph_t *g = d->graph;
    int32_t moves = 0;
    *bytes_out = 0;
    for (int32_t c = 0; c < d->n_comms; c++)
        for (int32_t p = d->comm_pair_offset[c]; p < d->comm_pair_offset[c + 1]; p++) {
            esp_tensor_id_t t = d->value_tensor[d->comm_src[p]];
            if (g->tensor_elements[t] > 1 && g->tensor_batch[t].extent) {
                moves++;
                *bytes_out += (int64_t)d->cost->tensor_bytes[t];
            }
        }
    return moves;
}
