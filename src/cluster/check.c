/* Verifies every invariant that the public header states, trusting nothing but array lengths. */
#include "cluster/cluster.h"

#include <math.h>
#include <string.h>

static esp_status_t wrong(esp_diag_t *diag, const char *what, int32_t index)
{
    return esp_i_fail(diag, ESP_ERR_INVALID, "the cluster is inconsistent: %s %d", what,
                      (int)index);
}

static bool in(int32_t value, int32_t low, int32_t high)
{
    return value >= low && value < high;
}

/* Names are valid and differ from each other. */
static esp_status_t check_names(const char *what, const char *const *names, int32_t n,
                                int32_t limit, esp_diag_t *diag)
{
    esp_i_arena_t arena;
    esp_i_names_t table;
    esp_i_arena_init(&arena, NULL);
    esp_i_names_init(&table, &arena);
    esp_status_t status = ESP_OK;
    for (int32_t i = 0; i < n && status == ESP_OK; i++) {
        status = esp_i_name_check(what, names[i], limit, diag);
        int32_t id = status == ESP_OK ? esp_i_names_add(&table, names[i], SIZE_MAX) : i;
        if (id < 0)
            status = esp_i_nomem(diag);
        else if (id != i)
            status =
                esp_i_fail(diag, ESP_ERR_INVALID, "two have the %s name '%.100s'", what, names[i]);
    }
    esp_i_names_fini(&table);
    esp_i_arena_fini(&arena);
    return status;
}

static esp_status_t check_counts(const esp_cluster_t *c, esp_diag_t *diag)
{
    ESP_TRY(esp_i_name_check("cluster", c->name, ESP_CLUSTER_MAX_NAME, diag));
    if (!in(c->n_devices, 1, ESP_CLUSTER_MAX_DEVICES + 1))
        return wrong(diag, "number of devices", c->n_devices);
    if (!in(c->n_vertices, c->n_devices, ESP_CLUSTER_MAX_VERTICES + 1))
        return wrong(diag, "number of vertices", c->n_vertices);
    if (!in(c->n_types, 1, ESP_CLUSTER_MAX_TYPES + 1))
        return wrong(diag, "number of types", c->n_types);
    if (!in(c->n_nodes, 1, ESP_CLUSTER_MAX_VERTICES + 1))
        return wrong(diag, "number of nodes", c->n_nodes);
    if (!in(c->n_links, 0, ESP_CLUSTER_MAX_LINKS + 1))
        return wrong(diag, "number of links", c->n_links);
    if (!in(c->n_groups, 1, c->n_devices + 1))
        return wrong(diag, "number of groups", c->n_groups);
    if (c->device_node != c->vertex_node)
        return wrong(diag, "device_node is not the head of vertex_node:", 0);
    return ESP_OK;
}

static esp_status_t check_vertices(const esp_cluster_t *c, esp_diag_t *diag)
{
    for (int32_t v = 0; v < c->n_vertices; v++) {
        bool device = v < c->n_devices;
        if (!in((int32_t)c->vertex_kind[v], 0, ESP_VERTEX_KIND_COUNT) ||
            (c->vertex_kind[v] == ESP_VERTEX_DEVICE) != device)
            return wrong(diag, "kind of vertex", v);
        if (!in(c->vertex_node[v], device ? 0 : -1, c->n_nodes))
            return wrong(diag, "node of vertex", v);
        if (c->vertex_forwards[v] > 1 ||
            (!device && c->vertex_forwards[v] != esp_i_vertex_kind_forwards(c->vertex_kind[v])))
            return wrong(diag, "forwarding of vertex", v);
    }
    return ESP_OK;
}

static esp_status_t check_devices(const esp_cluster_t *c, esp_diag_t *diag)
{
    for (int32_t d = 0; d < c->n_devices; d++) {
        if (!in(c->device_type[d], 0, c->n_types))
            return wrong(diag, "type of device", d);
        if (!in(c->device_group[d], 0, c->n_groups))
            return wrong(diag, "group of device", d);
        if (c->device_memory_bytes[d] < 1 ||
            c->device_memory_bytes[d] > ESP_CLUSTER_MAX_MEMORY_BYTES)
            return wrong(diag, "memory of device", d);
        int32_t hub = c->device_hub[d];
        if (hub != -1 && (!in(hub, 0, c->n_vertices) || c->vertex_kind[hub] != ESP_VERTEX_HUB))
            return wrong(diag, "hub of device", d);
    }
    return ESP_OK;
}

static esp_status_t check_links(const esp_cluster_t *c, esp_diag_t *diag)
{
    for (int32_t l = 0; l < c->n_links; l++) {
        if (!in(c->link_src[l], 0, c->n_vertices) || !in(c->link_dst[l], 0, c->n_vertices) ||
            c->link_src[l] == c->link_dst[l])
            return wrong(diag, "ends of link", l);
        double width = c->link_bytes_per_s[l];
        if (!(width >= 1 && width <= ESP_CLUSTER_MAX_BYTES_PER_S) || width != floor(width))
            return wrong(diag, "bandwidth of link", l);
        if (c->link_latency_ns[l] < 0 || c->link_latency_ns[l] > ESP_CLUSTER_MAX_LATENCY_NS)
            return wrong(diag, "latency of link", l);
    }
    return ESP_OK;
}

static esp_status_t check_groups(const esp_cluster_t *c, esp_diag_t *diag)
{
    int32_t first = -1;
    if (c->group_offset[0] != 0 || c->group_offset[c->n_groups] != c->n_devices)
        return wrong(diag, "extent of the group offsets:", c->group_offset[c->n_groups]);
    for (int32_t g = 0; g < c->n_groups; g++) {
        int32_t begin = c->group_offset[g], end = c->group_offset[g + 1];
        if (end <= begin || end > c->n_devices)
            return wrong(diag, "offsets of group", g);
        for (int32_t i = begin; i < end; i++) {
            int32_t d = c->group_device[i], head = c->group_device[begin];
            if (!in(d, 0, c->n_devices) || (i > begin && d <= c->group_device[i - 1]) ||
                c->device_group[d] != g)
                return wrong(diag, "members of group", g);
            if (c->device_type[d] != c->device_type[head] ||
                c->device_memory_bytes[d] != c->device_memory_bytes[head])
                return wrong(diag, "unlike devices in group", g);
        }
        if (c->group_device[begin] <= first)
            return wrong(diag, "order of group", g);
        first = c->group_device[begin];
    }
    return ESP_OK;
}

/* A route is a walk from s (or its hub) to d (or its hub) over vertices that forward. */
static bool route_valid(const esp_cluster_t *c, int32_t s, int32_t d)
{
    const int32_t *offset = &c->route_offset[s * c->n_devices + d];
    if (s == d)
        return offset[0] == offset[1];
    if (offset[1] - offset[0] < 1 || offset[1] - offset[0] > ESP_CLUSTER_MAX_HOPS)
        return false;
    int32_t at = -1;
    for (int32_t i = offset[0]; i < offset[1]; i++) {
        int32_t l = c->route_link[i];
        if (!in(l, 0, c->n_links))
            return false;
        int32_t from = c->link_src[l];
        bool starts = i == offset[0] && (from == s || from == c->device_hub[s]);
        bool goes_on = i > offset[0] && from == at && c->vertex_forwards[from];
        if (!starts && !goes_on)
            return false;
        at = c->link_dst[l];
    }
    return at == d || at == c->device_hub[d];
}

static esp_status_t check_routes(const esp_cluster_t *c, esp_diag_t *diag)
{
    int32_t n = c->n_devices;
    if (c->route_offset[0] != 0)
        return wrong(diag, "first route offset", c->route_offset[0]);
    for (int32_t pair = 0; pair < n * n; pair++)
        if (c->route_offset[pair + 1] < c->route_offset[pair])
            return wrong(diag, "route offset", pair + 1);
    for (int32_t pair = 0; pair < n * n; pair++)
        if (!route_valid(c, pair / n, pair % n))
            return wrong(diag, "route of pair", pair);
    return ESP_OK;
}

static esp_status_t check_types(const esp_cluster_t *c, esp_diag_t *diag)
{
    for (int32_t t = 0; t < c->n_types; t++) {
        ESP_TRY(esp_i_device_type_check(&c->types[t], diag));
        for (int32_t u = 0; u < t; u++)
            if (strcmp(c->types[t].name, c->types[u].name) == 0)
                return wrong(diag, "name of type", t);
    }
    return ESP_OK;
}

esp_status_t esp_cluster_check(const esp_cluster_t *cluster, esp_diag_t *diag)
{
    const esp_cluster_t *c = cluster;
    ESP_TRY(check_counts(c, diag));
    ESP_TRY(check_types(c, diag));
    ESP_TRY(check_vertices(c, diag));
    ESP_TRY(check_devices(c, diag));
    ESP_TRY(check_links(c, diag));
    ESP_TRY(check_groups(c, diag));
    ESP_TRY(check_routes(c, diag));
    ESP_TRY(check_names("vertex", c->vertex_name, c->n_vertices, ESP_CLUSTER_MAX_NAME, diag));
    ESP_TRY(check_names("node", c->node_name, c->n_nodes, ESP_CLUSTER_MAX_NAME, diag));
    ESP_TRY(check_names("group", c->group_name, c->n_groups, ESP_CLUSTER_MAX_LONG_NAME, diag));
    return check_names("link", c->link_name, c->n_links, ESP_CLUSTER_MAX_LONG_NAME, diag);
}
