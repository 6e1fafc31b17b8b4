/* Ranges: every id, offset and enumeration value of a deployment is one. */
#include "deploy/check.h"

/* Elements of an array of ids are in [low, high). */
static esp_status_t ids(esp_i_check_t *check, const char *what, const int32_t *id, int64_t n,
                        int32_t low, int32_t high)
{
    if (n > 0 && !id)
        return esp_i_check_fail(check, "%s: the array is missing", what);
    for (int64_t i = 0; i < n; i++)
        if (id[i] < low || id[i] >= high)
            return esp_i_check_fail(check, "%s[%lld] is %d, not in [%d, %d)", what, (long long)i,
                                    id[i], low, high);
    return ESP_OK;
}

static esp_status_t bytes_below(esp_i_check_t *check, const char *what, const uint8_t *value,
                                int64_t n, int32_t high)
{
    if (n > 0 && !value)
        return esp_i_check_fail(check, "%s: the array is missing", what);
    for (int64_t i = 0; i < n; i++)
        if (value[i] >= high)
            return esp_i_check_fail(check, "%s[%lld] is %d, not below %d", what, (long long)i,
                                    value[i], high);
    return ESP_OK;
}

static esp_status_t micros(esp_i_check_t *check, const char *what, const int16_t *micro, int64_t n)
{
    const int32_t m = check->d->micro_batches;
    for (int64_t i = 0; i < n; i++)
        if (micro[i] < ESP_NONE || micro[i] >= m || (m == 1 && micro[i] != ESP_NONE))
            return esp_i_check_fail(check, "%s[%lld] is %d, of %d micro-batches", what,
                                    (long long)i, micro[i], m);
    return ESP_OK;
}

static esp_status_t amounts(esp_i_check_t *check, const char *what, const int64_t *amount,
                            int64_t n, int64_t low)
{
    if (n > 0 && !amount)
        return esp_i_check_fail(check, "%s: the array is missing", what);
    for (int64_t i = 0; i < n; i++)
        if (amount[i] < low)
            return esp_i_check_fail(check, "%s[%lld] is %lld, less than %lld", what, (long long)i,
                                    (long long)amount[i], (long long)low);
    return ESP_OK;
}

static esp_status_t csr(esp_i_check_t *check, const char *what, const int32_t *offset, int32_t n)
{
    if (n < 0 || !offset)
        return esp_i_check_fail(check, "%s: the array is missing or its length negative", what);
    if (offset[0] < 0)
        return esp_i_check_fail(check, "%s starts at %d", what, offset[0]);
    for (int32_t i = 0; i < n; i++)
        if (offset[i + 1] < offset[i])
            return esp_i_check_fail(check, "%s[%d] is %d, less than the one before it", what, i + 1,
                                    offset[i + 1]);
    return ESP_OK;
}

#define CSR(name, n)            ESP_TRY(csr(check, #name, d->name, (n)))
#define IDS(name, n, low, high) ESP_TRY(ids(check, #name, d->name, (n), (low), (high)))
#define BELOW(name, n, high)    ESP_TRY(bytes_below(check, #name, d->name, (n), (high)))
#define AMOUNTS(name, n, low)   ESP_TRY(amounts(check, #name, d->name, (n), (low)))

static esp_status_t check_machines(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    const int32_t n_devices = d->cluster->n_devices;
    CSR(class_offset, d->n_classes);
    IDS(class_device, d->class_offset[d->n_classes], 0, n_devices);
    IDS(device_class, n_devices, ESP_NONE, d->n_classes);
    CSR(mesh_offset, d->n_meshes);
    IDS(mesh_device, d->mesh_offset[d->n_meshes], 0, n_devices);
    AMOUNTS(mesh_units, d->mesh_offset[d->n_meshes], 1);
    CSR(mesh_class_offset, d->n_meshes);
    IDS(mesh_class, d->mesh_class_offset[d->n_meshes], 0, d->n_classes);
    AMOUNTS(mesh_class_units, d->mesh_class_offset[d->n_meshes], 1);
    for (int32_t c = 0; c < d->n_classes; c++)
        if (d->class_offset[c] == d->class_offset[c + 1])
            return esp_i_check_fail(check, "class %d has no devices", c);
    for (int32_t m = 0; m < d->n_meshes; m++)
        if (d->mesh_offset[m] == d->mesh_offset[m + 1])
            return esp_i_check_fail(check, "mesh %d has no devices", m);
    AMOUNTS(class_resident_bytes, d->n_classes, 0);
    return ESP_OK;
}

static esp_status_t check_values(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    IDS(value_tensor, d->n_values, 0, check->g->n_tensors);
    IDS(value_mesh, d->n_values, 0, d->n_meshes);
    BELOW(value_form, d->n_values, ESP_FORM_PARTIAL + 1);
    BELOW(value_share, d->n_values, ESP_SHARE_EVEN + 1);
    ESP_TRY(micros(check, "value_micro", d->value_micro, d->n_values));
    IDS(value_buffer, d->n_values, 0, d->n_buffers);
    IDS(buffer_value, d->n_buffers, 0, d->n_values);
    IDS(buffer_class, d->n_buffers, 0, d->n_classes);
    AMOUNTS(buffer_bytes, d->n_buffers, 0);
    IDS(buffer_root, d->n_buffers, 0, d->n_buffers);
    IDS(buffer_producer, d->n_buffers, ESP_NONE, d->n_tasks);
    BELOW(buffer_resident, d->n_buffers, 2);
    return ESP_OK;
}

static esp_status_t check_tasks(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    const int32_t n = d->n_tasks;
    BELOW(task_kind, n, ESP_TASK_COMM + 1);
    BELOW(task_mode, n, ESP_MODE_SHARD + 1);
    IDS(task_class, n, ESP_NONE, d->n_classes);
    IDS(task_op, n, 0, check->g->n_ops);
    ESP_TRY(micros(check, "task_micro", d->task_micro, n));
    AMOUNTS(task_ns, n, 0);
    IDS(task_comm, n, ESP_NONE, d->n_comms);
    CSR(read_offset, n);
    IDS(read_buffer, d->read_offset[n], ESP_NONE, d->n_buffers);
    CSR(write_offset, n);
    IDS(write_buffer, d->write_offset[n], 0, d->n_buffers);
    for (int32_t t = 0; t < n; t++) {
        bool moves = d->task_kind[t] == ESP_TASK_COMM;
        if (moves != (d->task_comm[t] != ESP_NONE) || moves != (d->task_class[t] == ESP_NONE))
            return esp_i_check_fail(check, "task %d has kind %d, class %d and movement %d", t,
                                    d->task_kind[t], d->task_class[t], d->task_comm[t]);
    }
    return ESP_OK;
}

static esp_status_t check_pattern(esp_i_check_t *check, int32_t comm)
{
    const esp_pattern_t *p = check->d->comm_pattern[comm];
    if (!p || (int32_t)p->comm != check->d->comm_kind[comm])
        return esp_i_check_fail(check, "movement %d is %s, its pattern another one", comm,
                                esp_comm_name((esp_comm_t)check->d->comm_kind[comm]));
    ESP_TRY(ids(check, "pattern link", p->link, p->n_links, 0, check->d->cluster->n_links));
    for (int32_t i = 0; i < p->n_links; i++)
        if ((i > 0 && p->link[i] <= p->link[i - 1]) || !(p->load[i] > 0))
            return esp_i_check_fail(check, "movement %d: link %d of its pattern is not in order",
                                    comm, i);
    if (p->latency_ns < 0 || !(p->ns_per_byte >= 0) || !(p->staging >= 0))
        return esp_i_check_fail(check, "movement %d: the prices of its pattern make no sense",
                                comm);
    return ESP_OK;
}

static esp_status_t check_comms(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    BELOW(comm_kind, d->n_comms, ESP_COMM_COUNT);
    BELOW(comm_collective, d->n_comms, 2);
    AMOUNTS(comm_bytes, d->n_comms, 0);
    CSR(comm_pair_offset, d->n_comms);
    IDS(comm_src, d->comm_pair_offset[d->n_comms], 0, d->n_values);
    IDS(comm_dst, d->comm_pair_offset[d->n_comms], 0, d->n_values);
    CSR(comm_class_offset, d->n_comms);
    IDS(comm_class, d->comm_class_offset[d->n_comms], 0, d->n_classes);
    AMOUNTS(comm_class_ns, d->comm_class_offset[d->n_comms], 0);
    for (int32_t k = 0; k < d->n_comms; k++)
        ESP_TRY(check_pattern(check, k));
    return ESP_OK;
}

static esp_status_t check_order(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    const int32_t n = d->n_tasks;
    IDS(extra_before, d->n_extra, 0, n);
    IDS(extra_after, d->n_extra, 0, n);
    IDS(cross_before, d->n_cross, 0, n);
    IDS(cross_after, d->n_cross, 0, n);
    CSR(successor_offset, n);
    IDS(successor, d->successor_offset[n], 0, n);
    IDS(n_predecessors, n, 0, INT32_MAX);
    IDS(order, n, 0, n);
    IDS(position, n, 0, n);
    return ESP_OK;
}

esp_status_t esp_i_check_ranges(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    const int32_t counts[] = {d->n_values, d->n_buffers, d->n_tasks,
                              d->n_comms,  d->n_extra,   d->n_cross};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i] < 0)
            return esp_i_check_fail(check, "a count is negative: %d", counts[i]);
    if (d->micro_batches < 1 || (d->micro_batches > 1 && check->g->batch % d->micro_batches != 0))
        return esp_i_check_fail(check, "%d micro-batches do not divide the batch of %lld",
                                d->micro_batches, (long long)check->g->batch);
    ESP_TRY(check_machines(check));
    ESP_TRY(check_values(check));
    ESP_TRY(check_tasks(check));
    ESP_TRY(check_comms(check));
    return check_order(check);
}
