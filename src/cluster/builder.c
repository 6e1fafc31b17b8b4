/* The builder: collects types, nodes, vertices and links, and refuses whatever is out of range. */
#include "cluster/cluster.h"

#include <math.h>
#include <string.h>

esp_status_t esp_cluster_builder_create(const char *name, const esp_allocator_t *allocator,
                                        esp_cluster_builder_t **builder_out, esp_diag_t *diag)
{
    ESP_TRY(esp_i_name_check("cluster", name, ESP_CLUSTER_MAX_NAME, diag));
    esp_allocator_t alloc = esp_i_allocator(allocator);
    esp_cluster_builder_t *builder = esp_i_alloc_array(&alloc, 1, sizeof *builder);
    if (builder == NULL)
        return esp_i_nomem(diag);
    esp_i_arena_init(&builder->arena, &alloc);
    esp_i_names_init(&builder->type_names, &builder->arena);
    esp_i_names_init(&builder->node_names, &builder->arena);
    esp_i_names_init(&builder->vertex_names, &builder->arena);
    esp_i_names_init(&builder->link_names, &builder->arena);
    esp_i_names_init(&builder->group_names, &builder->arena);
    esp_i_names_init(&builder->pair_names, &builder->arena);
    builder->name = esp_i_arena_strdup(&builder->arena, name);
    if (builder->name == NULL) {
        esp_cluster_builder_destroy(builder);
        return esp_i_nomem(diag);
    }
    *builder_out = builder;
    return ESP_OK;
}

void esp_cluster_builder_destroy(esp_cluster_builder_t *builder)
{
    if (builder == NULL)
        return;
    esp_allocator_t alloc = builder->arena.alloc;
    esp_catalogue_destroy(builder->catalogue);
    esp_vec_free(&alloc, &builder->types);
    esp_vec_free(&alloc, &builder->vertices);
    esp_vec_free(&alloc, &builder->links);
    esp_vec_free(&alloc, &builder->pair_count);
    esp_i_names_fini(&builder->type_names);
    esp_i_names_fini(&builder->node_names);
    esp_i_names_fini(&builder->vertex_names);
    esp_i_names_fini(&builder->link_names);
    esp_i_names_fini(&builder->group_names);
    esp_i_names_fini(&builder->pair_names);
    esp_i_arena_fini(&builder->arena);
    esp_i_free(&alloc, builder);
}

/* Adds a new name to a table; the id is its index. The table's arena owns the copy. */
static esp_status_t take_name(esp_i_names_t *names, const char *what, const char *name,
                              int32_t limit, esp_diag_t *diag)
{
    ESP_TRY(esp_i_name_check(what, name, limit, diag));
    if (esp_i_names_find(names, name, strlen(name)) >= 0)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the %s '%.100s' exists already", what, name);
    if (esp_i_names_add(names, name, strlen(name)) < 0)
        return esp_i_nomem(diag);
    return ESP_OK;
}

static esp_status_t too_many(const char *what, int32_t limit, esp_diag_t *diag)
{
    return esp_i_fail(diag, ESP_ERR_LIMIT, "more than %d %s", (int)limit, what);
}

/* ---- types --------------------------------------------------------------------------------- */

esp_status_t esp_cluster_builder_add_type(esp_cluster_builder_t *builder,
                                          const esp_device_type_t *type, int32_t *id_out,
                                          esp_diag_t *diag)
{
    ESP_TRY(esp_i_device_type_check(type, diag));
    if (builder->types.count >= ESP_CLUSTER_MAX_TYPES)
        return too_many("device types", ESP_CLUSTER_MAX_TYPES, diag);
    esp_device_type_t copy = *type;
    copy.kind = strcmp(type->kind, "cpu") == 0 ? "cpu" : "gpu";
    copy.comm_compute_s_per_byte = round(type->comm_compute_s_per_byte * 1e18) / 1e18;
    copy.source = esp_i_arena_strdup(&builder->arena, type->source);
    if (copy.source == NULL || !esp_vec_extend(&builder->arena.alloc, &builder->types, 1))
        return esp_i_nomem(diag);
    builder->types.count--;
    ESP_TRY(take_name(&builder->type_names, "device type", type->name, ESP_CLUSTER_MAX_NAME, diag));
    int32_t id = builder->types.count++;
    copy.name = builder->type_names.names[id];
    builder->types.data[id] = copy;
    *id_out = id;
    return ESP_OK;
}

/* Names the type nearest to one that is not known. */
static esp_status_t unknown_type(const esp_cluster_builder_t *builder, const char *name,
                                 esp_diag_t *diag)
{
    const char *candidates[2] = {NULL, NULL};
    int32_t n = 0;
    candidates[n] = esp_i_nearest(name, builder->type_names.names, builder->type_names.count);
    n += candidates[n] != NULL;
    const char *best = NULL;
    for (int32_t i = 0; i < builder->catalogue->n_types; i++) {
        const char *pair[2] = {best, builder->catalogue->types[i].name};
        best = best != NULL ? esp_i_nearest(name, pair, 2) : esp_i_nearest(name, &pair[1], 1);
    }
    candidates[n] = best;
    n += best != NULL;
    const char *nearest = n > 0 ? esp_i_nearest(name, candidates, n) : NULL;
    if (nearest == NULL)
        return esp_i_fail(diag, ESP_ERR_INVALID, "no device type '%.95s' is known", name);
    return esp_i_fail(diag, ESP_ERR_INVALID, "no device type '%.95s' is known; is '%s' meant?",
                      name, nearest);
}

esp_status_t esp_cluster_builder_use_type(esp_cluster_builder_t *builder, const char *name,
                                          int32_t *id_out, esp_diag_t *diag)
{
    int32_t id = esp_i_names_find(&builder->type_names, name, strlen(name));
    if (id >= 0) {
        *id_out = id;
        return ESP_OK;
    }
    if (builder->catalogue == NULL)
        ESP_TRY(esp_catalogue_create(&builder->arena.alloc, &builder->catalogue, diag));
    const esp_device_type_t *type = esp_catalogue_find(builder->catalogue, name);
    if (type == NULL)
        return unknown_type(builder, name, diag);
    return esp_cluster_builder_add_type(builder, type, id_out, diag);
}

/* ---- nodes and vertices ---------------------------------------------------------------------- */

esp_status_t esp_cluster_builder_add_node(esp_cluster_builder_t *builder, const char *name,
                                          int32_t *id_out, esp_diag_t *diag)
{
    if (builder->node_names.count >= ESP_CLUSTER_MAX_VERTICES)
        return too_many("nodes", ESP_CLUSTER_MAX_VERTICES, diag);
    ESP_TRY(take_name(&builder->node_names, "node", name, ESP_CLUSTER_MAX_NAME, diag));
    *id_out = builder->node_names.count - 1;
    return ESP_OK;
}

static esp_status_t add_vertex(esp_cluster_builder_t *builder, const char *name,
                               const esp_i_vertex_t *vertex, int32_t *vertex_out, esp_diag_t *diag)
{
    if (builder->vertices.count >= ESP_CLUSTER_MAX_VERTICES)
        return too_many("devices, hosts, NICs and switches", ESP_CLUSTER_MAX_VERTICES, diag);
    if (vertex->node < -1 || vertex->node >= builder->node_names.count)
        return esp_i_fail(diag, ESP_ERR_INVALID, "'%.95s' is in no known node", name);
    if (!esp_vec_extend(&builder->arena.alloc, &builder->vertices, 1))
        return esp_i_nomem(diag);
    builder->vertices.count--;
    ESP_TRY(take_name(&builder->vertex_names, esp_vertex_kind_name(vertex->kind), name,
                      ESP_CLUSTER_MAX_NAME, diag));
    int32_t id = builder->vertices.count++;
    builder->vertices.data[id] = *vertex;
    builder->vertices.data[id].name = builder->vertex_names.names[id];
    *vertex_out = id;
    return ESP_OK;
}

/* What a device says about itself, without its name. */
static esp_status_t check_device(const esp_cluster_builder_t *builder,
                                 const esp_cluster_device_t *device, esp_diag_t *diag)
{
    if (builder->n_devices >= ESP_CLUSTER_MAX_DEVICES)
        return too_many("devices", ESP_CLUSTER_MAX_DEVICES, diag);
    if (device->type < 0 || device->type >= builder->types.count)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the device has no known type");
    if (device->node < 0)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the device is in no known node");
    if (device->hub != -1 && (device->hub < 0 || device->hub >= builder->vertices.count ||
                              builder->vertices.data[device->hub].kind != ESP_VERTEX_HUB))
        return esp_i_fail(diag, ESP_ERR_INVALID, "the device's hub is not a hub");
    const esp_device_type_t *type = &builder->types.data[device->type];
    if (device->memory_bytes < 1 || device->memory_bytes > ESP_CLUSTER_MAX_MEMORY_BYTES)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the usable memory is out of range");
    /* A processor's share of its node's memory is a choice, a GPU's memory is built in. */
    if (strcmp(type->kind, "gpu") == 0 && device->memory_bytes > type->memory_bytes) {
        char wanted[32], built[32];
        esp_i_format_bytes(device->memory_bytes, wanted);
        esp_i_format_bytes(type->memory_bytes, built);
        return esp_i_fail(diag, ESP_ERR_INVALID, "%s of usable memory, but a %s has %s", wanted,
                          type->name, built);
    }
    return ESP_OK;
}

esp_status_t esp_cluster_builder_add_device(esp_cluster_builder_t *builder,
                                            const esp_cluster_device_t *device, int32_t *vertex_out,
                                            esp_diag_t *diag)
{
    ESP_TRY(check_device(builder, device, diag));
    esp_i_vertex_t vertex = {.kind = ESP_VERTEX_DEVICE,
                             .node = device->node,
                             .forwards = device->forwards != 0,
                             .type = device->type,
                             .hub = device->hub,
                             .group = -1,
                             .memory_bytes = device->memory_bytes};
    ESP_TRY(add_vertex(builder, device->name, &vertex, vertex_out, diag));
    builder->n_devices++;
    return ESP_OK;
}

esp_status_t esp_cluster_builder_add_vertex(esp_cluster_builder_t *builder, esp_vertex_kind_t kind,
                                            const char *name, int32_t node, int32_t *vertex_out,
                                            esp_diag_t *diag)
{
    if ((int32_t)kind <= ESP_VERTEX_DEVICE || (int32_t)kind >= ESP_VERTEX_KIND_COUNT)
        return esp_i_fail(diag, ESP_ERR_INVALID, "this kind of vertex cannot be added");
    esp_i_vertex_t vertex = {.kind = kind,
                             .node = node,
                             .forwards = esp_i_vertex_kind_forwards(kind),
                             .type = -1,
                             .hub = -1,
                             .group = -1};
    return add_vertex(builder, name, &vertex, vertex_out, diag);
}

/* ---- links ----------------------------------------------------------------------------------- */

static esp_status_t check_link(const esp_cluster_builder_t *builder, const esp_cluster_link_t *link,
                               esp_diag_t *diag)
{
    int32_t n = builder->vertices.count;
    if (link->src < 0 || link->src >= n || link->dst < 0 || link->dst >= n)
        return esp_i_fail(diag, ESP_ERR_INVALID, "an end of the link does not exist");
    if (link->src == link->dst)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the link starts and ends at '%s'",
                          builder->vertices.data[link->src].name);
    if (!(link->bytes_per_s >= 1 && link->bytes_per_s <= ESP_CLUSTER_MAX_BYTES_PER_S) ||
        link->bytes_per_s != floor(link->bytes_per_s))
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "the bandwidth is not a whole number of bytes per second from 1 to 1e15");
    if (link->latency_ns < 0 || link->latency_ns > ESP_CLUSTER_MAX_LATENCY_NS)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the latency is not from 0 to 1000 s");
    if (builder->links.count >= ESP_CLUSTER_MAX_LINKS)
        return too_many("directed links", ESP_CLUSTER_MAX_LINKS, diag);
    return ESP_OK;
}

/* The default name: "src->dst", from the second parallel link on "src->dst#2" and so on. */
static const char *default_name(esp_cluster_builder_t *builder, const esp_cluster_link_t *link)
{
    const esp_allocator_t *alloc = &builder->arena.alloc;
    const char *pair =
        esp_i_arena_printf(&builder->arena, "%s->%s", builder->vertices.data[link->src].name,
                           builder->vertices.data[link->dst].name);
    if (pair == NULL || !esp_vec_extend(alloc, &builder->pair_count, 1))
        return NULL;
    builder->pair_count.count--;
    int32_t id = esp_i_names_add(&builder->pair_names, pair, strlen(pair));
    if (id < 0)
        return NULL;
    if (id == builder->pair_count.count)
        builder->pair_count.data[builder->pair_count.count++] = 0;
    int32_t k = ++builder->pair_count.data[id];
    return k == 1 ? pair : esp_i_arena_printf(&builder->arena, "%s#%d", pair, (int)k);
}

esp_status_t esp_cluster_builder_add_link(esp_cluster_builder_t *builder,
                                          const esp_cluster_link_t *link, int32_t *id_out,
                                          esp_diag_t *diag)
{
    ESP_TRY(check_link(builder, link, diag));
    const char *name = link->name != NULL ? link->name : default_name(builder, link);
    if (name == NULL || !esp_vec_extend(&builder->arena.alloc, &builder->links, 1))
        return esp_i_nomem(diag);
    builder->links.count--;
    ESP_TRY(take_name(&builder->link_names, "link", name, ESP_CLUSTER_MAX_LONG_NAME, diag));
    int32_t id = builder->links.count++;
    builder->links.data[id] = (esp_i_link_t){.name = builder->link_names.names[id],
                                             .src = link->src,
                                             .dst = link->dst,
                                             .bytes_per_s = (int64_t)link->bytes_per_s,
                                             .latency_ns = link->latency_ns};
    if (id_out != NULL)
        *id_out = id;
    return ESP_OK;
}

esp_status_t esp_cluster_builder_add_cable(esp_cluster_builder_t *builder,
                                           const esp_cluster_link_t *link, esp_diag_t *diag)
{
    esp_cluster_link_t forth = *link, back = *link;
    back.src = link->dst;
    back.dst = link->src;
    if (link->name != NULL) {
        ESP_TRY(esp_i_name_check("link", link->name, ESP_CLUSTER_MAX_LONG_NAME - 1, diag));
        forth.name = esp_i_arena_printf(&builder->arena, "%s>", link->name);
        back.name = esp_i_arena_printf(&builder->arena, "%s<", link->name);
        if (forth.name == NULL || back.name == NULL)
            return esp_i_nomem(diag);
        if (esp_i_names_find(&builder->link_names, back.name, strlen(back.name)) >= 0)
            return esp_i_fail(diag, ESP_ERR_INVALID, "the link '%.100s' exists already", back.name);
    }
    if (builder->links.count + 2 > ESP_CLUSTER_MAX_LINKS)
        return too_many("directed links", ESP_CLUSTER_MAX_LINKS, diag);
    ESP_TRY(esp_cluster_builder_add_link(builder, &forth, NULL, diag));
    return esp_cluster_builder_add_link(builder, &back, NULL, diag);
}

/* ---- groups ---------------------------------------------------------------------------------- */

esp_status_t esp_cluster_builder_add_group(esp_cluster_builder_t *builder, const char *name,
                                           int32_t n, const int32_t *devices, esp_diag_t *diag)
{
    if (n < 1)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the group has no devices");
    const esp_i_vertex_t *first = NULL;
    for (int32_t i = 0; i < n; i++) {
        int32_t d = devices[i];
        const esp_i_vertex_t *v =
            d >= 0 && d < builder->vertices.count ? &builder->vertices.data[d] : NULL;
        if (v == NULL || v->kind != ESP_VERTEX_DEVICE)
            return esp_i_fail(diag, ESP_ERR_INVALID, "a member of the group is not a device");
        if (v->group >= 0)
            return esp_i_fail(diag, ESP_ERR_INVALID, "'%s' is in the group '%.100s' already",
                              v->name, builder->group_names.names[v->group]);
        for (int32_t j = 0; j < i; j++)
            if (devices[j] == d)
                return esp_i_fail(diag, ESP_ERR_INVALID, "'%s' is twice in the group", v->name);
        if (first == NULL)
            first = v;
        if (v->type != first->type || v->memory_bytes != first->memory_bytes)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "'%s' and '%s' differ in type or usable memory, so they cannot share "
                              "a group",
                              first->name, v->name);
    }
    ESP_TRY(take_name(&builder->group_names, "group", name, ESP_CLUSTER_MAX_LONG_NAME, diag));
    for (int32_t i = 0; i < n; i++)
        builder->vertices.data[devices[i]].group = builder->group_names.count - 1;
    return ESP_OK;
}
