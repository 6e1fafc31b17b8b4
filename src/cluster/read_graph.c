/* The `graph:` form, which esp_cluster_dump writes: every vertex, directed link and group. */
#include "cluster/read.h"

#include <string.h>

/* The id of the name under a key; `what` for the message. */
static esp_status_t look_up(esp_i_reader_t *r, const esp_i_names_t *names,
                            const esp_i_yaml_node_t *node, const char *what, int32_t *id_out)
{
    const char *name;
    ESP_TRY(esp_i_yaml_text(&r->yaml, node, &name));
    *id_out = esp_i_names_find(names, name, strlen(name));
    if (*id_out < 0)
        return esp_i_yaml_fail(&r->yaml, node, ESP_ERR_INVALID, "there is no %s '%.95s'", what,
                               name);
    return ESP_OK;
}

static esp_status_t read_node(esp_i_reader_t *r, const esp_i_yaml_node_t *node)
{
    const char *name;
    int32_t id;
    ESP_TRY(esp_i_yaml_text(&r->yaml, node, &name));
    return esp_i_yaml_at(&r->yaml, node,
                         esp_cluster_builder_add_node(r->builder, name, &id, r->yaml.diag));
}

static esp_status_t read_vertex(esp_i_reader_t *r, const esp_i_yaml_node_t *map)
{
    static const char *const keys[] = {"name", "kind", "node", NULL};
    const char *kinds[ESP_VERTEX_KIND_COUNT - 1]; /* all but devices */
    const esp_i_yaml_node_t *node;
    const char *name;
    int32_t kind, owner = -1, vertex;
    for (int32_t k = 1; k < ESP_VERTEX_KIND_COUNT; k++)
        kinds[k - 1] = esp_vertex_kind_name((esp_vertex_kind_t)k);
    ESP_TRY(esp_i_yaml_keys(&r->yaml, map, keys));
    ESP_TRY(esp_i_read_name(&r->yaml, map, &name));
    ESP_TRY(esp_i_yaml_need(&r->yaml, map, "kind", &node));
    ESP_TRY(esp_i_yaml_word(&r->yaml, node, kinds, ESP_VERTEX_KIND_COUNT - 1, &kind));
    node = esp_i_yaml_get(map, "node");
    if (node != NULL)
        ESP_TRY(look_up(r, &r->builder->node_names, node, "node", &owner));
    return esp_i_yaml_at(&r->yaml, map,
                         esp_cluster_builder_add_vertex(r->builder, (esp_vertex_kind_t)(kind + 1),
                                                        name, owner, &vertex, r->yaml.diag));
}

static esp_status_t read_device(esp_i_reader_t *r, const esp_i_yaml_node_t *map)
{
    static const char *const keys[] = {"name", "type", "node", "memory", "hub", "forward", NULL};
    const esp_i_yaml_node_t *node;
    esp_cluster_device_t device;
    bool forward = false;
    int32_t vertex;
    ESP_TRY(esp_i_yaml_keys(&r->yaml, map, keys));
    ESP_TRY(esp_i_yaml_need(&r->yaml, map, "memory", &node));
    ESP_TRY(esp_i_read_device(r, map, -1, &device));
    ESP_TRY(esp_i_read_name(&r->yaml, map, &device.name));
    ESP_TRY(esp_i_yaml_need(&r->yaml, map, "node", &node));
    ESP_TRY(look_up(r, &r->builder->node_names, node, "node", &device.node));
    node = esp_i_yaml_get(map, "hub");
    if (node != NULL)
        ESP_TRY(look_up(r, &r->builder->vertex_names, node, "hub", &device.hub));
    node = esp_i_yaml_get(map, "forward");
    if (node != NULL)
        ESP_TRY(esp_i_yaml_bool(&r->yaml, node, &forward));
    device.forwards = forward;
    return esp_i_yaml_at(
        &r->yaml, map, esp_cluster_builder_add_device(r->builder, &device, &vertex, r->yaml.diag));
}

static esp_status_t read_link(esp_i_reader_t *r, const esp_i_yaml_node_t *map)
{
    static const char *const keys[] = {"from", "to", "bandwidth", "latency", "name", NULL};
    const esp_i_yaml_node_t *from, *to, *name;
    esp_cluster_link_t link = {0};
    esp_i_speed_t speed;
    ESP_TRY(esp_i_yaml_keys(&r->yaml, map, keys));
    ESP_TRY(esp_i_yaml_need(&r->yaml, map, "from", &from));
    ESP_TRY(esp_i_yaml_need(&r->yaml, map, "to", &to));
    ESP_TRY(look_up(r, &r->builder->vertex_names, from, "vertex", &link.src));
    ESP_TRY(look_up(r, &r->builder->vertex_names, to, "vertex", &link.dst));
    ESP_TRY(esp_i_read_speed(&r->yaml, map, &speed));
    link.bytes_per_s = (double)speed.bytes_per_s;
    link.latency_ns = speed.latency_ns;
    name = esp_i_yaml_get(map, "name");
    if (name != NULL)
        ESP_TRY(esp_i_yaml_text(&r->yaml, name, &link.name));
    return esp_i_yaml_at(&r->yaml, map,
                         esp_cluster_builder_add_link(r->builder, &link, NULL, r->yaml.diag));
}

static esp_status_t read_group(esp_i_reader_t *r, const esp_i_yaml_node_t *map)
{
    static const char *const keys[] = {"name", "devices", NULL};
    const esp_i_yaml_node_t *list;
    const char *name;
    int32_t n = 0;
    ESP_TRY(esp_i_yaml_keys(&r->yaml, map, keys));
    ESP_TRY(esp_i_read_name(&r->yaml, map, &name));
    ESP_TRY(esp_i_yaml_need(&r->yaml, map, "devices", &list));
    ESP_TRY(esp_i_yaml_list(&r->yaml, list, "devices"));
    if (list->n_children > ESP_CLUSTER_MAX_DEVICES)
        return esp_i_yaml_fail(&r->yaml, list, ESP_ERR_LIMIT, "more than %d devices",
                               (int)ESP_CLUSTER_MAX_DEVICES);
    int32_t *devices = esp_i_arena_alloc(&r->arena, list->n_children, sizeof *devices);
    if (devices == NULL)
        return esp_i_nomem(r->yaml.diag);
    for (const esp_i_yaml_node_t *node = list->first; node != NULL; node = node->next)
        ESP_TRY(look_up(r, &r->builder->vertex_names, node, "device", &devices[n++]));
    return esp_i_yaml_at(&r->yaml, map,
                         esp_cluster_builder_add_group(r->builder, name, n, devices, r->yaml.diag));
}

typedef esp_status_t (*read_fn)(esp_i_reader_t *r, const esp_i_yaml_node_t *node);

/* Reads each entry of the list under a key; a missing key is an empty list unless it is needed. */
static esp_status_t read_each(esp_i_reader_t *r, const esp_i_yaml_node_t *map, const char *key,
                              bool needed, read_fn read)
{
    const esp_i_yaml_node_t *list = esp_i_yaml_get(map, key);
    if (list == NULL && !needed)
        return ESP_OK;
    ESP_TRY(esp_i_yaml_need(&r->yaml, map, key, &list));
    ESP_TRY(esp_i_yaml_list(&r->yaml, list, key));
    for (const esp_i_yaml_node_t *node = list->first; node != NULL; node = node->next)
        ESP_TRY(read(r, node));
    return ESP_OK;
}

esp_status_t esp_i_read_graph(esp_i_reader_t *r, const esp_i_yaml_node_t *node)
{
    static const char *const keys[] = {"nodes", "vertices", "devices", "links", "groups", NULL};
    ESP_TRY(esp_i_yaml_keys(&r->yaml, node, keys));
    ESP_TRY(read_each(r, node, "nodes", true, read_node));
    ESP_TRY(read_each(r, node, "vertices", false, read_vertex)); /* devices refer to hubs */
    ESP_TRY(read_each(r, node, "devices", true, read_device));
    ESP_TRY(read_each(r, node, "links", false, read_link));
    return read_each(r, node, "groups", false, read_group);
}
