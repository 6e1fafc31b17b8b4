/* What a device holds of a buffer: shape, rows and place in its arena. */
#include "exec/schedule.h"

#include <string.h>

int32_t esp_i_mesh_index(const esp_deployment_t *d, int32_t mesh, int32_t device)
{
    const int32_t first = d->mesh_offset[mesh];
    int32_t low = first, high = d->mesh_offset[mesh + 1];
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (d->mesh_device[middle] < device)
            low = middle + 1;
        else
            high = middle;
    }
    return low < d->mesh_offset[mesh + 1] && d->mesh_device[low] == device ? low - first : ESP_NONE;
}

int32_t esp_i_buffer_on(const esp_deployment_t *d, int32_t value, int32_t class_)
{
    const int32_t mesh = d->value_mesh[value], first = d->mesh_class_offset[mesh];
    for (int32_t i = first; i < d->mesh_class_offset[mesh + 1]; i++)
        if (d->mesh_class[i] == class_)
            return d->value_buffer[value] + (i - first);
    return ESP_NONE;
}

esp_i_rows_t esp_i_rows_of(const esp_deployment_t *d, int32_t value, int32_t k)
{
    esp_i_rows_t rows = {.place = -1};
    esp_deployment_share(d, value, k, &rows.view, &rows.offset, &rows.share);
    rows.elements = rows.view.extent ? rows.view.outer * rows.share * rows.view.inner
                                     : d->graph->tensor_elements[d->value_tensor[value]];
    return rows;
}

/* First element within the whole tensor, of rows that are one piece of it. */
static int64_t start_of(const esp_i_rows_t *rows)
{
    return rows->view.extent ? rows->offset * rows->view.inner : 0;
}

int64_t esp_i_place_of(const esp_deployment_t *d, int32_t buffer, int32_t device,
                       const esp_i_rows_t *rows, bool wide)
{
    const int32_t root = d->buffer_root[buffer];
    const esp_tensor_id_t tensor = d->value_tensor[d->buffer_value[buffer]];
    const esp_dtype_t dtype = esp_i_stored_dtype((esp_dtype_t)d->graph->tensor_dtype[tensor], wide);
    const int64_t place = d->buffer_offset[root] * (wide ? 2 : 1);
    if (root == buffer)
        return place;
    const int32_t value = d->buffer_value[root];
    const esp_i_rows_t whole =
        esp_i_rows_of(d, value, esp_i_mesh_index(d, d->value_mesh[value], device));
    if (whole.elements == rows->elements)
        return place;
    return place + (start_of(rows) - start_of(&whole)) * esp_dtype_bytes(dtype);
}

esp_i_local_t esp_i_local_of(const esp_deployment_t *d, int32_t buffer, int32_t device, bool wide)
{
    const int32_t value = d->buffer_value[buffer];
    const int32_t k = esp_i_mesh_index(d, d->value_mesh[value], device);
    const esp_i_rows_t rows = esp_i_rows_of(d, value, k);
    const esp_tensor_id_t tensor = d->value_tensor[value];
    esp_i_local_t local = {
        .dtype = esp_i_stored_dtype((esp_dtype_t)d->graph->tensor_dtype[tensor], wide),
        .view = rows.view,
        .offset = rows.offset,
        .share = rows.share,
        .elements = rows.elements,
        .place = esp_i_place_of(d, buffer, device, &rows, wide)};
    esp_i_local_shape(&local, d->graph, tensor);
    return local;
}

void esp_i_local_shape(esp_i_local_t *local, const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    local->rank = local->global_rank = graph->tensor_rank[tensor];
    memcpy(local->global, graph->tensor_dims[tensor], sizeof local->global);
    memcpy(local->dims, local->global, sizeof local->dims);
    if (local->view.extent)
        local->rank = esp_view_local_dims(local->global_rank, local->global, local->view,
                                          local->share, local->dims);
}
