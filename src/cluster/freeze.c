/* From builder to frozen cluster: renumbers vertices (devices first), copies, then routes, groups.
 */
#include "cluster/cluster.h"

#include <string.h>

/* The arrays under construction; the frozen struct holds them as const. */
typedef struct freezer {
    const esp_cluster_builder_t *builder;
    esp_i_cluster_t *cluster;
    int32_t *new_vertex; /* builder's vertex -> frozen vertex */
    int32_t *new_type;   /* builder's type -> frozen type, -1: unused */
    int32_t *declared;   /* frozen device -> declared group or -1 */
    esp_i_arena_t scratch;
} freezer_t;

#define NEW_ARRAY(arena, n, pointer)                                                               \
    ((pointer) = esp_i_arena_alloc((arena), (n), sizeof *(pointer)))

static esp_status_t number(freezer_t *f)
{
    const esp_cluster_builder_t *b = f->builder;
    int32_t n = b->vertices.count, device = 0, other = b->n_devices;
    if (NEW_ARRAY(&f->scratch, n, f->new_vertex) == NULL ||
        NEW_ARRAY(&f->scratch, b->types.count, f->new_type) == NULL ||
        NEW_ARRAY(&f->scratch, b->n_devices, f->declared) == NULL)
        return ESP_ERR_NOMEM;
    for (int32_t t = 0; t < b->types.count; t++)
        f->new_type[t] = -1;
    for (int32_t v = 0; v < n; v++) {
        const esp_i_vertex_t *vertex = &b->vertices.data[v];
        bool is_device = vertex->kind == ESP_VERTEX_DEVICE;
        f->new_vertex[v] = is_device ? device++ : other++;
        if (is_device) {
            f->new_type[vertex->type] = 0;
            f->declared[f->new_vertex[v]] = vertex->group;
        }
    }
    esp_assert(device == b->n_devices && other == n);
    int32_t used = 0;
    for (int32_t t = 0; t < b->types.count; t++)
        if (f->new_type[t] == 0)
            f->new_type[t] = used++;
    f->cluster->pub.n_types = used;
    return ESP_OK;
}

static esp_status_t copy_types(freezer_t *f)
{
    esp_i_arena_t *arena = &f->cluster->arena;
    esp_device_type_t *types;
    if (NEW_ARRAY(arena, f->cluster->pub.n_types, types) == NULL)
        return ESP_ERR_NOMEM;
    for (int32_t t = 0; t < f->builder->types.count; t++) {
        if (f->new_type[t] < 0)
            continue;
        esp_device_type_t *type = &types[f->new_type[t]];
        *type = f->builder->types.data[t];
        type->name = esp_i_arena_strdup(arena, type->name);
        type->source = esp_i_arena_strdup(arena, type->source);
        if (type->name == NULL || type->source == NULL)
            return ESP_ERR_NOMEM;
    }
    f->cluster->pub.types = types;
    return ESP_OK;
}

static esp_status_t copy_nodes(freezer_t *f)
{
    esp_i_arena_t *arena = &f->cluster->arena;
    int32_t n = f->builder->node_names.count;
    const char **names;
    if (NEW_ARRAY(arena, n, names) == NULL)
        return ESP_ERR_NOMEM;
    for (int32_t i = 0; i < n; i++)
        if ((names[i] = esp_i_arena_strdup(arena, f->builder->node_names.names[i])) == NULL)
            return ESP_ERR_NOMEM;
    f->cluster->pub.n_nodes = n;
    f->cluster->pub.node_name = names;
    return ESP_OK;
}

static esp_status_t copy_vertices(freezer_t *f)
{
    esp_i_arena_t *arena = &f->cluster->arena;
    esp_cluster_t *pub = &f->cluster->pub;
    int32_t n = f->builder->vertices.count;
    const char **names;
    esp_vertex_kind_t *kinds;
    int32_t *nodes;
    uint8_t *forwards;
    if (NEW_ARRAY(arena, n, names) == NULL || NEW_ARRAY(arena, n, kinds) == NULL ||
        NEW_ARRAY(arena, n, nodes) == NULL || NEW_ARRAY(arena, n, forwards) == NULL)
        return ESP_ERR_NOMEM;
    for (int32_t i = 0; i < n; i++) {
        const esp_i_vertex_t *vertex = &f->builder->vertices.data[i];
        int32_t v = f->new_vertex[i];
        if ((names[v] = esp_i_arena_strdup(arena, vertex->name)) == NULL)
            return ESP_ERR_NOMEM;
        kinds[v] = vertex->kind;
        nodes[v] = vertex->node;
        forwards[v] = vertex->forwards;
    }
    pub->n_vertices = n;
    pub->vertex_name = names;
    pub->vertex_kind = kinds;
    pub->vertex_node = nodes;
    pub->vertex_forwards = forwards;
    pub->device_node = nodes;
    return ESP_OK;
}

static esp_status_t copy_devices(freezer_t *f)
{
    esp_i_arena_t *arena = &f->cluster->arena;
    esp_cluster_t *pub = &f->cluster->pub;
    int32_t n = f->builder->n_devices;
    int32_t *types, *hubs;
    int64_t *memory;
    if (NEW_ARRAY(arena, n, types) == NULL || NEW_ARRAY(arena, n, hubs) == NULL ||
        NEW_ARRAY(arena, n, memory) == NULL)
        return ESP_ERR_NOMEM;
    for (int32_t i = 0; i < f->builder->vertices.count; i++) {
        const esp_i_vertex_t *vertex = &f->builder->vertices.data[i];
        int32_t d = f->new_vertex[i];
        if (vertex->kind != ESP_VERTEX_DEVICE)
            continue;
        types[d] = f->new_type[vertex->type];
        hubs[d] = vertex->hub >= 0 ? f->new_vertex[vertex->hub] : -1;
        memory[d] = vertex->memory_bytes;
    }
    pub->n_devices = n;
    pub->device_type = types;
    pub->device_hub = hubs;
    pub->device_memory_bytes = memory;
    return ESP_OK;
}

static esp_status_t copy_links(freezer_t *f)
{
    esp_i_arena_t *arena = &f->cluster->arena;
    esp_cluster_t *pub = &f->cluster->pub;
    int32_t n = f->builder->links.count;
    int32_t *src, *dst;
    double *bandwidth;
    int64_t *latency;
    const char **names;
    if (NEW_ARRAY(arena, n, src) == NULL || NEW_ARRAY(arena, n, dst) == NULL ||
        NEW_ARRAY(arena, n, bandwidth) == NULL || NEW_ARRAY(arena, n, latency) == NULL ||
        NEW_ARRAY(arena, n, names) == NULL)
        return ESP_ERR_NOMEM;
    for (int32_t l = 0; l < n; l++) {
        const esp_i_link_t *link = &f->builder->links.data[l];
        src[l] = f->new_vertex[link->src];
        dst[l] = f->new_vertex[link->dst];
        bandwidth[l] = (double)link->bytes_per_s;
        latency[l] = link->latency_ns;
        if ((names[l] = esp_i_arena_strdup(arena, link->name)) == NULL)
            return ESP_ERR_NOMEM;
    }
    pub->n_links = n;
    pub->link_src = src;
    pub->link_dst = dst;
    pub->link_bytes_per_s = bandwidth;
    pub->link_latency_ns = latency;
    pub->link_name = names;
    return ESP_OK;
}

static esp_status_t copy_all(freezer_t *f, esp_diag_t *diag)
{
    esp_cluster_t *pub = &f->cluster->pub;
    pub->name = esp_i_arena_strdup(&f->cluster->arena, f->builder->name);
    if (pub->name == NULL || number(f) != ESP_OK || copy_types(f) != ESP_OK ||
        copy_nodes(f) != ESP_OK || copy_vertices(f) != ESP_OK || copy_devices(f) != ESP_OK ||
        copy_links(f) != ESP_OK)
        return esp_i_nomem(diag);
    return ESP_OK;
}

/* Groups are declared for all devices or for none. */
static esp_status_t check_declared(const freezer_t *f, esp_diag_t *diag)
{
    if (f->builder->group_names.count == 0)
        return ESP_OK;
    for (int32_t d = 0; d < f->builder->n_devices; d++)
        if (f->declared[d] < 0)
            return esp_i_fail(diag, ESP_ERR_INVALID, "'%s' is in no group, but others are",
                              f->cluster->pub.vertex_name[d]);
    return ESP_OK;
}

esp_status_t esp_cluster_builder_freeze(const esp_cluster_builder_t *builder, int32_t max_groups,
                                        esp_cluster_t **cluster_out, esp_diag_t *diag)
{
    if (max_groups < 0)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "max_groups is negative");
    if (builder->n_devices == 0)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the cluster has no devices");
    esp_allocator_t alloc = builder->arena.alloc;
    freezer_t f = {.builder = builder};
    f.cluster = esp_i_alloc_array(&alloc, 1, sizeof *f.cluster);
    if (f.cluster == NULL)
        return esp_i_nomem(diag);
    esp_i_arena_init(&f.cluster->arena, &alloc);
    esp_i_arena_init(&f.scratch, &alloc);
    esp_status_t status = copy_all(&f, diag);
    if (status == ESP_OK)
        status = check_declared(&f, diag);
    if (status == ESP_OK)
        status = esp_i_cluster_route_all(f.cluster, diag);
    if (status == ESP_OK)
        status = esp_i_cluster_group_all(
            f.cluster, f.declared, builder->group_names.names,
            max_groups == 0 ? ESP_CLUSTER_DEFAULT_MAX_GROUPS : max_groups, diag);
    esp_i_arena_fini(&f.scratch);
#ifdef ESP_DEBUG
    if (status == ESP_OK) {
        status = esp_cluster_check(&f.cluster->pub, diag);
        esp_assert(status == ESP_OK || status == ESP_ERR_NOMEM);
    }
#endif
    if (status != ESP_OK) {
        esp_cluster_destroy(&f.cluster->pub);
        return status;
    }
    *cluster_out = &f.cluster->pub;
    return ESP_OK;
}

void esp_cluster_destroy(esp_cluster_t *cluster)
{
    if (cluster == NULL)
        return;
    esp_i_cluster_t *whole = (esp_i_cluster_t *)cluster; /* pub is its first member */
    esp_allocator_t alloc = whole->arena.alloc;
    esp_i_arena_fini(&whole->arena);
    esp_i_free(&alloc, whole);
}
