/*
 * The matrix form: `groups:` of like devices and the bandwidths between them (`inter:`). Inside a
 * group every ordered pair of devices has a link of its own; between two groups there is one link
 * in each direction, which all pairs of their devices share: it runs between the hubs of the
 * groups.
 */
#include "cluster/read.h"

#include <string.h>

typedef struct matrix_group {
    const esp_i_yaml_node_t *node;
    const char *name;
    int32_t count, hub, first; /* devices are vertices first .. first + count - 1 */
} matrix_group_t;

/* ---- groups ---------------------------------------------------------------------------------- */

static esp_status_t read_intra(esp_i_reader_t *r, const matrix_group_t *group)
{
    static const char *const keys[] = {"bandwidth", "latency", NULL};
    const esp_i_yaml_node_t *intra = esp_i_yaml_get(group->node, "intra");
    esp_i_speed_t speed;
    if (intra == NULL && group->count == 1)
        return ESP_OK;
    ESP_TRY(esp_i_yaml_need(&r->yaml, group->node, "intra", &intra));
    ESP_TRY(esp_i_yaml_keys(&r->yaml, intra, keys));
    ESP_TRY(esp_i_read_speed(&r->yaml, intra, &speed));
    for (int32_t i = 0; i < group->count; i++)
        for (int32_t j = i + 1; j < group->count; j++)
            ESP_TRY(esp_i_read_cable(r, intra, group->first + i, group->first + j, speed));
    return ESP_OK;
}

static esp_status_t declare_group(esp_i_reader_t *r, const matrix_group_t *group)
{
    int32_t *devices = esp_i_arena_alloc(&r->arena, group->count, sizeof *devices);
    if (devices == NULL)
        return esp_i_nomem(r->yaml.diag);
    for (int32_t i = 0; i < group->count; i++)
        devices[i] = group->first + i;
    return esp_i_yaml_at(&r->yaml, group->node,
                         esp_cluster_builder_add_group(r->builder, group->name, group->count,
                                                       devices, r->yaml.diag));
}

static esp_status_t add_devices(esp_i_reader_t *r, matrix_group_t *group)
{
    const esp_i_yaml_t *yaml = &r->yaml;
    esp_cluster_device_t device;
    ESP_TRY(esp_i_read_device(r, group->node, r->reserve_bytes, &device));
    ESP_TRY(esp_i_yaml_at(
        yaml, group->node,
        esp_cluster_builder_add_node(r->builder, group->name, &device.node, yaml->diag)));
    const char *hub = esp_i_arena_printf(&r->arena, "%s/hub", group->name);
    if (hub == NULL)
        return esp_i_nomem(yaml->diag);
    ESP_TRY(esp_i_yaml_at(yaml, group->node,
                          esp_cluster_builder_add_vertex(r->builder, ESP_VERTEX_HUB, hub,
                                                         device.node, &group->hub, yaml->diag)));
    device.hub = group->hub;
    for (int32_t i = 0; i < group->count; i++) {
        int32_t vertex;
        ESP_TRY(esp_i_read_add_device(r, group->node, group->name, i, &device, &vertex));
        if (i == 0)
            group->first = vertex;
    }
    return ESP_OK;
}

static esp_status_t read_group(esp_i_reader_t *r, const esp_i_yaml_node_t *node,
                               matrix_group_t *group)
{
    static const char *const keys[] = {"name", "type", "count", "memory", "reserve", "intra", NULL};
    group->node = node;
    group->count = 1;
    ESP_TRY(esp_i_yaml_keys(&r->yaml, node, keys));
    ESP_TRY(esp_i_read_name(&r->yaml, node, &group->name));
    const esp_i_yaml_node_t *count = esp_i_yaml_get(node, "count");
    if (count != NULL)
        ESP_TRY(esp_i_yaml_int(&r->yaml, count, 1, ESP_CLUSTER_MAX_DEVICES, &group->count));
    ESP_TRY(add_devices(r, group));
    ESP_TRY(read_intra(r, group));
    return declare_group(r, group);
}

/* ---- between groups -------------------------------------------------------------------------- */

typedef esp_status_t (*read_value_fn)(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                                      int64_t *value_out);

/* One row of a matrix: n values, '-' on the diagonal. */
static esp_status_t read_row(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *row, int32_t i,
                             int32_t n, read_value_fn read_value, int64_t *values)
{
    if (row->kind != ESP_I_YAML_LIST || row->n_children != n)
        return esp_i_yaml_fail(yaml, row, ESP_ERR_INVALID,
                               "a row of the matrix is a list of %d values, one per group", (int)n);
    int32_t j = 0;
    for (const esp_i_yaml_node_t *value = row->first; value != NULL; value = value->next, j++) {
        if (i == j) {
            if (value->kind != ESP_I_YAML_SCALAR || strcmp(value->text, "-") != 0)
                return esp_i_yaml_fail(yaml, value, ESP_ERR_INVALID,
                                       "the diagonal of the matrix is written '-'; inside a group, "
                                       "'intra' counts");
            continue;
        }
        ESP_TRY(read_value(yaml, value, &values[i * n + j]));
        if (j < i && values[i * n + j] != values[j * n + i])
            return esp_i_yaml_fail(yaml, value, ESP_ERR_INVALID,
                                   "the matrix is not symmetric: '%.40s' here, another value in "
                                   "row %d, column %d",
                                   value->text, (int)j + 1, (int)i + 1);
    }
    return ESP_OK;
}

/* A matrix of rows, or one value for all pairs, into values[n * n]. */
static esp_status_t read_values(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *map,
                                const char *key, int32_t n, read_value_fn read_value,
                                int64_t *values)
{
    const esp_i_yaml_node_t *node;
    ESP_TRY(esp_i_yaml_need(yaml, map, key, &node));
    if (node->kind == ESP_I_YAML_SCALAR) {
        int64_t value;
        ESP_TRY(read_value(yaml, node, &value));
        for (int32_t k = 0; k < n * n; k++)
            values[k] = value;
        return ESP_OK;
    }
    if (node->kind != ESP_I_YAML_LIST || node->n_children != n)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID,
                               "one value, or a list of %d rows, one per group, is needed here",
                               (int)n);
    int32_t i = 0;
    for (const esp_i_yaml_node_t *row = node->first; row != NULL; row = row->next, i++)
        ESP_TRY(read_row(yaml, row, i, n, read_value, values));
    return ESP_OK;
}

static esp_status_t read_inter(esp_i_reader_t *r, const esp_i_yaml_node_t *inter,
                               const matrix_group_t *groups, int32_t n)
{
    static const char *const keys[] = {"bandwidth", "latency", NULL};
    int64_t *bandwidth = esp_i_arena_alloc(&r->arena, (int64_t)n * n, sizeof *bandwidth);
    int64_t *latency = esp_i_arena_alloc(&r->arena, (int64_t)n * n, sizeof *latency);
    if (bandwidth == NULL || latency == NULL)
        return esp_i_nomem(r->yaml.diag);
    ESP_TRY(esp_i_yaml_keys(&r->yaml, inter, keys));
    ESP_TRY(read_values(&r->yaml, inter, "bandwidth", n, esp_i_read_bandwidth, bandwidth));
    ESP_TRY(read_values(&r->yaml, inter, "latency", n, esp_i_read_latency, latency));
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = i + 1; j < n; j++) {
            esp_i_speed_t speed = {bandwidth[i * n + j], latency[i * n + j]};
            ESP_TRY(esp_i_read_cable(r, inter, groups[i].hub, groups[j].hub, speed));
        }
    return ESP_OK;
}

esp_status_t esp_i_read_matrix(esp_i_reader_t *r, const esp_i_yaml_node_t *groups,
                               const esp_i_yaml_node_t *inter)
{
    ESP_TRY(esp_i_yaml_list(&r->yaml, groups, "groups"));
    int32_t n = groups->n_children, i = 0;
    if (n > ESP_CLUSTER_MAX_DEVICES)
        return esp_i_yaml_fail(&r->yaml, groups, ESP_ERR_LIMIT, "more than %d groups",
                               (int)ESP_CLUSTER_MAX_DEVICES);
    matrix_group_t *all = esp_i_arena_alloc(&r->arena, n, sizeof *all);
    if (all == NULL)
        return esp_i_nomem(r->yaml.diag);
    for (const esp_i_yaml_node_t *node = groups->first; node != NULL; node = node->next)
        ESP_TRY(read_group(r, node, &all[i++]));
    if (inter != NULL)
        return read_inter(r, inter, all, n);
    if (n > 1)
        return esp_i_yaml_fail(&r->yaml, r->yaml.root, ESP_ERR_INVALID,
                               "the key 'inter' is missing: the bandwidth between the groups");
    return ESP_OK;
}
