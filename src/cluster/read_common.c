/* Pieces that the forms of a cluster file share: speeds, names, devices, cables. */
#include "cluster/read.h"

#include <string.h>

esp_status_t esp_i_read_bandwidth(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                                  int64_t *bytes_per_s_out)
{
    return esp_i_yaml_quantity(yaml, node, ESP_I_BANDWIDTH, 1, (int64_t)ESP_CLUSTER_MAX_BYTES_PER_S,
                               bytes_per_s_out);
}

esp_status_t esp_i_read_latency(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                                int64_t *latency_ns_out)
{
    return esp_i_yaml_quantity(yaml, node, ESP_I_TIME, 0, ESP_CLUSTER_MAX_LATENCY_NS,
                               latency_ns_out);
}

esp_status_t esp_i_read_speed(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *map,
                              esp_i_speed_t *speed_out)
{
    const esp_i_yaml_node_t *bandwidth, *latency;
    ESP_TRY(esp_i_yaml_need(yaml, map, "bandwidth", &bandwidth));
    ESP_TRY(esp_i_yaml_need(yaml, map, "latency", &latency));
    ESP_TRY(esp_i_read_bandwidth(yaml, bandwidth, &speed_out->bytes_per_s));
    return esp_i_read_latency(yaml, latency, &speed_out->latency_ns);
}

esp_status_t esp_i_read_size(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node, int64_t low,
                             int64_t *bytes_out)
{
    return esp_i_yaml_quantity(yaml, node, ESP_I_SIZE, low, ESP_CLUSTER_MAX_MEMORY_BYTES,
                               bytes_out);
}

esp_status_t esp_i_read_name(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *map,
                             const char **name_out)
{
    const esp_i_yaml_node_t *node;
    ESP_TRY(esp_i_yaml_need(yaml, map, "name", &node));
    return esp_i_yaml_text(yaml, node, name_out);
}

/* What a device of this type keeps for itself if nobody says otherwise. */
static int64_t default_reserve(const esp_device_type_t *type)
{
    if (strcmp(type->kind, "cpu") == 0)
        return 0;
    return esp_i_min_i64(ESP_CLUSTER_DEFAULT_RESERVE_BYTES, type->memory_bytes / 8);
}

esp_status_t esp_i_read_device(esp_i_reader_t *r, const esp_i_yaml_node_t *entry, int64_t reserve,
                               esp_cluster_device_t *device_out)
{
    const esp_i_yaml_t *yaml = &r->yaml;
    const esp_i_yaml_node_t *node, *memory = esp_i_yaml_get(entry, "memory");
    const esp_i_yaml_node_t *own_reserve = esp_i_yaml_get(entry, "reserve");
    const char *name;
    *device_out = (esp_cluster_device_t){.hub = -1};
    ESP_TRY(esp_i_yaml_need(yaml, entry, "type", &node));
    ESP_TRY(esp_i_yaml_text(yaml, node, &name));
    ESP_TRY(esp_i_yaml_at(
        yaml, node, esp_cluster_builder_use_type(r->builder, name, &device_out->type, yaml->diag)));
    if (memory != NULL && own_reserve != NULL)
        return esp_i_yaml_fail(yaml, own_reserve, ESP_ERR_INVALID,
                               "'memory' states what is usable; 'reserve' beside it says it twice");
    if (memory != NULL)
        return esp_i_read_size(yaml, memory, 1, &device_out->memory_bytes);
    if (own_reserve != NULL)
        ESP_TRY(esp_i_read_size(yaml, own_reserve, 0, &reserve));
    const esp_device_type_t *type = &r->builder->types.data[device_out->type];
    if (reserve < 0)
        reserve = default_reserve(type);
    if (reserve >= type->memory_bytes)
        return esp_i_yaml_fail(yaml, own_reserve != NULL ? own_reserve : entry, ESP_ERR_INVALID,
                               "the reserve leaves nothing of the memory of a '%s'", type->name);
    device_out->memory_bytes = type->memory_bytes - reserve;
    return ESP_OK;
}

esp_status_t esp_i_read_add_device(esp_i_reader_t *r, const esp_i_yaml_node_t *entry,
                                   const char *owner, int32_t index, esp_cluster_device_t *device,
                                   int32_t *vertex_out)
{
    const char *kind = r->builder->types.data[device->type].kind;
    device->name = esp_i_arena_printf(&r->arena, "%s/%s%d", owner, kind, (int)index);
    if (device->name == NULL)
        return esp_i_nomem(r->yaml.diag);
    return esp_i_yaml_at(
        &r->yaml, entry,
        esp_cluster_builder_add_device(r->builder, device, vertex_out, r->yaml.diag));
}

esp_status_t esp_i_read_cable(esp_i_reader_t *r, const esp_i_yaml_node_t *where, int32_t a,
                              int32_t b, esp_i_speed_t speed)
{
    esp_cluster_link_t link = {.src = a,
                               .dst = b,
                               .bytes_per_s = (double)speed.bytes_per_s,
                               .latency_ns = speed.latency_ns};
    return esp_i_yaml_at(&r->yaml, where,
                         esp_cluster_builder_add_cable(r->builder, &link, r->yaml.diag));
}
