/* Classes, meshes, values and their buffers: what lies where, and how large it is. */
#include "deploy/check.h"

#include <math.h>

/* ---- classes and meshes -------------------------------------------------------------------- */

static esp_status_t check_class(esp_i_check_t *check, int32_t class_, int32_t *seen)
{
    const esp_deployment_t *d = check->d;
    const esp_cluster_t *cluster = d->cluster;
    const int32_t *device = d->class_device + d->class_offset[class_];
    int32_t n = d->class_offset[class_ + 1] - d->class_offset[class_];
    for (int32_t k = 0; k < n; k++) {
        const char *name = cluster->vertex_name[device[k]];
        if (k > 0 && device[k] <= device[k - 1])
            return esp_i_check_fail(check, "class %d: its devices are not ascending at %s", class_,
                                    name);
        if (d->device_class[device[k]] != class_)
            return esp_i_check_fail(check, "class %d has device %s, whose class is %d", class_,
                                    name, d->device_class[device[k]]);
        if (cluster->device_type[device[k]] != cluster->device_type[device[0]] ||
            cluster->device_memory_bytes[device[k]] != cluster->device_memory_bytes[device[0]])
            return esp_i_check_fail(check, "class %d: device %s is not like %s", class_, name,
                                    cluster->vertex_name[device[0]]);
        ++*seen;
    }
    return ESP_OK;
}

static esp_status_t check_classes(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    int32_t used = 0, seen = 0;
    for (int32_t device = 0; device < d->cluster->n_devices; device++)
        used += d->device_class[device] != ESP_NONE;
    for (int32_t c = 0; c < d->n_classes; c++)
        ESP_TRY(check_class(check, c, &seen));
    if (seen != used)
        return esp_i_check_fail(check, "%d devices have a class, the classes have %d", used, seen);
    return ESP_OK;
}

/* The classes of a mesh, each wholly inside it with one share per device. */
static esp_status_t check_mesh_classes(esp_i_check_t *check, int32_t mesh)
{
    const esp_deployment_t *d = check->d;
    int32_t first = d->mesh_class_offset[mesh], end = d->mesh_class_offset[mesh + 1], members = 0;
    for (int32_t k = first; k < end; k++) {
        int32_t class_ = d->mesh_class[k];
        members += d->class_offset[class_ + 1] - d->class_offset[class_];
        for (int32_t j = first; j < k; j++)
            if (d->mesh_class[j] == class_)
                return esp_i_check_fail(check, "mesh %d has class %d twice", mesh, class_);
    }
    if (members != esp_i_check_devices(d, mesh))
        return esp_i_check_fail(check, "mesh %d has %d devices, its classes have %d", mesh,
                                esp_i_check_devices(d, mesh), members);
    int32_t next = first; /* classes come in the order of their first devices */
    for (int32_t i = d->mesh_offset[mesh]; i < d->mesh_offset[mesh + 1]; i++) {
        int32_t class_ = d->device_class[d->mesh_device[i]], k = first;
        while (k < next && d->mesh_class[k] != class_)
            k++;
        if (k == next && (next == end || d->mesh_class[next++] != class_))
            return esp_i_check_fail(check, "mesh %d: class %d of device %s is not where it belongs",
                                    mesh, class_, d->cluster->vertex_name[d->mesh_device[i]]);
        if (d->mesh_class_units[k] != d->mesh_units[i])
            return esp_i_check_fail(check, "mesh %d: device %s has %lld units, its class %lld",
                                    mesh, d->cluster->vertex_name[d->mesh_device[i]],
                                    (long long)d->mesh_units[i], (long long)d->mesh_class_units[k]);
    }
    return ESP_OK;
}

static esp_status_t check_meshes(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    int64_t rows = esp_i_max_i64(check->g->batch, 1) / d->micro_batches;
    check->mesh_splits = esp_i_arena_alloc(&check->arena, d->n_meshes, 1);
    if (!check->mesh_splits)
        return esp_i_nomem(check->diag);
    for (int32_t m = 0; m < d->n_meshes; m++) {
        int64_t total = 0;
        bool ones = true;
        for (int32_t i = d->mesh_offset[m]; i < d->mesh_offset[m + 1]; i++) {
            if (i > d->mesh_offset[m] && d->mesh_device[i] <= d->mesh_device[i - 1])
                return esp_i_check_fail(check, "mesh %d: its devices are not ascending", m);
            if (d->device_class[d->mesh_device[i]] == ESP_NONE)
                return esp_i_check_fail(check, "mesh %d has device %s, which has no class", m,
                                        d->cluster->vertex_name[d->mesh_device[i]]);
            if (!esp_i_add_i64(total, d->mesh_units[i], &total))
                return esp_i_check_fail(check, "mesh %d: its units overflow", m);
            ones = ones && d->mesh_units[i] == 1;
        }
        check->mesh_splits[m] = total == rows;
        if (total != rows && !ones) /* unions of meshes carry no shares: one unit each */
            return esp_i_check_fail(check, "mesh %d: its units sum to %lld, a micro-batch is %lld",
                                    m, (long long)total, (long long)rows);
        ESP_TRY(check_mesh_classes(check, m));
    }
    return ESP_OK;
}

/* ---- values -------------------------------------------------------------------------------- */

static esp_status_t check_split(esp_i_check_t *check, int32_t value)
{
    const esp_deployment_t *d = check->d;
    esp_view_t view = d->value_view[value];
    int32_t mesh = d->value_mesh[value];
    int64_t product;
    if (view.outer < 1 || view.extent < 1 || view.inner < 1 ||
        !esp_i_mul_i64(view.outer, view.extent, &product) ||
        !esp_i_mul_i64(product, view.inner, &product) ||
        product != check->g->tensor_elements[d->value_tensor[value]])
        return esp_i_check_value_fail(check, value, "the view is not one of the tensor");
    if (d->value_share[value] == ESP_SHARE_EVEN && view.extent < esp_i_check_devices(d, mesh))
        return esp_i_check_value_fail(check, value, "%lld units are too few for %d devices",
                                      (long long)view.extent, esp_i_check_devices(d, mesh));
    if (d->value_share[value] == ESP_SHARE_BATCH &&
        (view.extent != check->g->batch || !check->mesh_splits[mesh]))
        return esp_i_check_value_fail(check, value, "%lld units are not split as the batch of %lld",
                                      (long long)view.extent, (long long)check->g->batch);
    return ESP_OK;
}

/* Bytes that a device of slot `slot` needs at most. */
static double bytes_needed(const esp_deployment_t *d, int32_t value, int32_t slot)
{
    esp_tensor_id_t t = d->value_tensor[value];
    int32_t mesh = d->value_mesh[value];
    double bytes = d->cost->tensor_bytes[t];
    double element = bytes / (double)esp_i_max_i64(d->graph->tensor_elements[t], 1);
    esp_view_t view = d->value_view[value];
    if (d->value_form[value] != ESP_FORM_SPLIT)
        return d->value_micro[value] != ESP_NONE && d->graph->tensor_batch[t].extent
                   ? bytes / d->micro_batches
                   : bytes;
    int64_t units = esp_i_ceil_div(view.extent, esp_i_check_devices(d, mesh));
    if (d->value_share[value] == ESP_SHARE_BATCH) {
        units = d->mesh_class_units[d->mesh_class_offset[mesh] + slot];
        units *= d->value_micro[value] == ESP_NONE ? d->micro_batches : 1;
    }
    return element * (double)view.outer * (double)view.inner * (double)units;
}

static esp_status_t check_buffers(esp_i_check_t *check, int32_t value)
{
    const esp_deployment_t *d = check->d;
    int32_t first = d->value_buffer[value], n = esp_i_check_slots(d, value);
    if (n > d->n_buffers - first)
        return esp_i_check_value_fail(check, value, "its buffers are beyond the last one");
    for (int32_t k = 0; k < n; k++) {
        int32_t b = first + k;
        if (d->buffer_value[b] != value ||
            d->buffer_class[b] != d->mesh_class[d->mesh_class_offset[d->value_mesh[value]] + k])
            return esp_i_check_value_fail(check, value, "buffer %d is of value %d on class %d", b,
                                          d->buffer_value[b], d->buffer_class[b]);
        double need = bytes_needed(d, value, k);
        esp_tensor_id_t t = d->value_tensor[value];
        if (d->buffer_resident[b] && d->buffer_root[b] == b) /* with the working copy */
            need *= 1.0 + d->cost->tensor_working_bytes[t] / (d->cost->tensor_bytes[t] + 1e-9);
        if ((double)d->buffer_bytes[b] < floor(need) || (double)d->buffer_bytes[b] > need + 16)
            return esp_i_check_value_fail(check, value, "buffer %d has %lld bytes and needs %.0f",
                                          b, (long long)d->buffer_bytes[b], need);
    }
    return ESP_OK;
}

static esp_status_t check_value(esp_i_check_t *check, int32_t value)
{
    const esp_deployment_t *d = check->d;
    esp_tensor_id_t t = d->value_tensor[value];
    if (check->g->tensor_root[t] != t)
        return esp_i_check_value_fail(check, value, "the tensor is a view of %s",
                                      check->g->tensor_name[check->g->tensor_root[t]]);
    if (esp_i_check_devices(d, d->value_mesh[value]) == 1 &&
        d->value_form[value] != ESP_FORM_REPLICATED)
        return esp_i_check_value_fail(check, value,
                                      "on a single device a tensor is replicated, not split or "
                                      "partial");
    if (d->value_form[value] == ESP_FORM_SPLIT)
        ESP_TRY(check_split(check, value));
    return check_buffers(check, value);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static esp_status_t check_roots(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    for (int32_t b = 0; b < d->n_buffers; b++) {
        int32_t root = d->buffer_root[b], value = d->buffer_value[b];
        if (d->buffer_root[root] != root || d->buffer_class[root] != d->buffer_class[b])
            return esp_i_check_value_fail(check, value,
                                          "buffer %d has no memory of its class: root %d", b, root);
        if (d->buffer_bytes[b] > d->buffer_bytes[root] + 16)
            return esp_i_check_value_fail(check, value, "buffer %d is larger than its memory", b);
        if (d->buffer_resident[b] != d->buffer_resident[root])
            return esp_i_check_value_fail(check, value,
                                          "buffer %d is %skept between steps, its "
                                          "memory is %skept",
                                          b, d->buffer_resident[b] ? "" : "not ",
                                          d->buffer_resident[root] ? "" : "not ");
    }
    return ESP_OK;
}

static esp_status_t check_residents(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    int64_t *sum = esp_i_arena_alloc(&check->arena, d->n_classes, sizeof *sum);
    if (!sum)
        return esp_i_nomem(check->diag);
    for (int32_t b = 0; b < d->n_buffers; b++)
        if (d->buffer_resident[b] && d->buffer_root[b] == b)
            sum[d->buffer_class[b]] += d->buffer_bytes[b];
    for (int32_t c = 0; c < d->n_classes; c++)
        if (sum[c] != d->class_resident_bytes[c])
            return esp_i_check_fail(check, "class %d keeps %lld bytes between steps, not %lld", c,
                                    (long long)sum[c], (long long)d->class_resident_bytes[c]);
    return ESP_OK;
}

esp_status_t esp_i_check_layout(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    int64_t buffers = 0;
    ESP_TRY(check_classes(check));
    ESP_TRY(check_meshes(check));
    for (int32_t v = 0; v < d->n_values; v++) {
        ESP_TRY(check_value(check, v));
        buffers += esp_i_check_slots(d, v);
    }
    if (buffers != d->n_buffers)
        return esp_i_check_fail(check, "the values have %lld buffers, the deployment %d",
                                (long long)buffers, d->n_buffers);
    ESP_TRY(check_roots(check));
    return check_residents(check);
}
