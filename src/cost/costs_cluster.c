/*
 * A cluster with measured figures. The topology stays: what is measured between two devices becomes
 * figures of the links between them, so that transfers that share a link go on sharing it.
 */
#include "cost/costs.h"
#include "cost/pattern.h"

#include <math.h>
#include <string.h>

enum { SWEEPS = 200 };

/* New figures of the links. */
typedef struct figures {
    const esp_cluster_t *cluster;
    double *bytes_per_s; /* per link; 0: not measured */
    double *latency_ns;
} figures_t;

/* ---- links ------------------------------------------------------------------------------------
 */

/* The route of a measured pair; 0 links where the cluster lacks one of the devices. */
static int32_t route_of(const esp_cluster_t *cluster, const esp_costs_link_t *pair,
                        const int32_t **route)
{
    int32_t src = esp_cluster_find_vertex(cluster, pair->src);
    int32_t dst = esp_cluster_find_vertex(cluster, pair->dst);
    if (src < 0 || dst < 0 || src >= cluster->n_devices || dst >= cluster->n_devices)
        return 0;
    return esp_cluster_route(cluster, src, dst, route);
}

/* A link is at least as wide as the fastest transfer that went over it. */
static void find_widths(figures_t *f, const esp_costs_t *costs)
{
    const int32_t *route;
    for (int32_t i = 0; i < costs->n_links; i++) {
        int32_t n = route_of(f->cluster, &costs->link[i], &route);
        for (int32_t k = 0; k < n; k++)
            f->bytes_per_s[route[k]] = fmax(f->bytes_per_s[route[k]], costs->link[i].bytes_per_s);
    }
}

/*
 * Latencies along each route, and what a pattern adds to each step, make up what was measured. Each
 * pair in turn spreads what is missing evenly over its links (Kaczmarz): if the pairs agree, this
 * ends at the solution nearest to the declared latencies.
 */
static double sweep(figures_t *f, const esp_costs_t *costs)
{
    const int32_t *route;
    double largest = 0;
    for (int32_t i = 0; i < costs->n_links; i++) {
        int32_t n = route_of(f->cluster, &costs->link[i], &route);
        double missing = fmax(costs->link[i].latency_ns - ESP_I_STEP_NS, 0);
        for (int32_t k = 0; k < n; k++)
            missing -= f->latency_ns[route[k]];
        for (int32_t k = 0; k < n; k++)
            f->latency_ns[route[k]] = fmax(f->latency_ns[route[k]] + missing / n, 0);
        largest = fmax(largest, n > 0 ? fabs(missing) : 0);
    }
    return largest;
}

static bool figures_find(figures_t *f, const esp_costs_t *costs, esp_i_arena_t *arena)
{
    int32_t n = f->cluster->n_links;
    f->bytes_per_s = esp_i_arena_alloc(arena, n, sizeof *f->bytes_per_s);
    f->latency_ns = esp_i_arena_alloc(arena, n, sizeof *f->latency_ns);
    if (!f->bytes_per_s || !f->latency_ns)
        return false;
    for (int32_t link = 0; link < n; link++)
        f->latency_ns[link] = (double)f->cluster->link_latency_ns[link];
    find_widths(f, costs);
    for (int32_t i = 0; i < SWEEPS && sweep(f, costs) > 0.5; i++)
        ;
    return true;
}

/* ---- the copy ---------------------------------------------------------------------------------
 */

typedef struct copy {
    const esp_cluster_t *from;
    const esp_costs_t *costs;
    figures_t figures;
    esp_cluster_builder_t *builder;
    int32_t *type, *node, *vertex; /* ids in the builder */
    esp_diag_t *diag;
} copy_t;

static esp_status_t copy_types(copy_t *c)
{
    for (int32_t t = 0; t < c->from->n_types; t++) {
        esp_device_type_t type = c->from->types[t];
        const esp_costs_type_t *measured = esp_costs_find_type(c->costs, type.name);
        if (measured && measured->launch_ns >= 0)
            type.launch_ns = llround(measured->launch_ns);
        if (measured && measured->comm_compute_s_per_byte >= 0)
            type.comm_compute_s_per_byte = measured->comm_compute_s_per_byte;
        ESP_TRY(esp_cluster_builder_add_type(c->builder, &type, &c->type[t], c->diag));
    }
    for (int32_t n = 0; n < c->from->n_nodes; n++)
        ESP_TRY(
            esp_cluster_builder_add_node(c->builder, c->from->node_name[n], &c->node[n], c->diag));
    return ESP_OK;
}

/* Devices come last, since they name their hubs; freeze puts them first. */
static esp_status_t copy_vertices(copy_t *c)
{
    const esp_cluster_t *from = c->from;
    for (int32_t v = from->n_devices; v < from->n_vertices; v++) {
        int32_t node = from->vertex_node[v];
        ESP_TRY(esp_cluster_builder_add_vertex(c->builder, from->vertex_kind[v],
                                               from->vertex_name[v], node < 0 ? -1 : c->node[node],
                                               &c->vertex[v], c->diag));
    }
    for (int32_t v = 0; v < from->n_devices; v++) {
        int32_t hub = from->device_hub[v];
        esp_cluster_device_t device = {
            .name = from->vertex_name[v],
            .type = c->type[from->device_type[v]],
            .node = c->node[from->device_node[v]],
            .memory_bytes = from->device_memory_bytes[v],
            .hub = hub < 0 ? -1 : c->vertex[hub],
            .forwards = from->vertex_forwards[v],
        };
        ESP_TRY(esp_cluster_builder_add_device(c->builder, &device, &c->vertex[v], c->diag));
    }
    return ESP_OK;
}

static esp_status_t copy_links(copy_t *c)
{
    const esp_cluster_t *from = c->from;
    for (int32_t l = 0; l < from->n_links; l++) {
        double width = c->figures.bytes_per_s[l];
        esp_cluster_link_t link = {
            .name = from->link_name[l],
            .src = c->vertex[from->link_src[l]],
            .dst = c->vertex[from->link_dst[l]],
            .bytes_per_s = width > 0 ? fmax(round(width), 1) : from->link_bytes_per_s[l],
            .latency_ns = llround(c->figures.latency_ns[l]),
        };
        ESP_TRY(esp_cluster_builder_add_link(c->builder, &link, NULL, c->diag));
    }
    return ESP_OK;
}

static esp_status_t copy_groups(copy_t *c, int32_t *member)
{
    const esp_cluster_t *from = c->from;
    for (int32_t g = 0; g < from->n_groups; g++) {
        int32_t n = 0;
        for (int32_t i = from->group_offset[g]; i < from->group_offset[g + 1]; i++)
            member[n++] = c->vertex[from->group_device[i]];
        ESP_TRY(esp_cluster_builder_add_group(c->builder, from->group_name[g], n, member, c->diag));
    }
    return ESP_OK;
}

static esp_status_t copy_all(copy_t *c, esp_i_arena_t *arena, esp_cluster_t **cluster_out)
{
    const esp_cluster_t *from = c->from;
    int32_t *member = esp_i_arena_alloc(arena, from->n_devices, sizeof *member);
    c->type = esp_i_arena_alloc(arena, from->n_types, sizeof *c->type);
    c->node = esp_i_arena_alloc(arena, from->n_nodes, sizeof *c->node);
    c->vertex = esp_i_arena_alloc(arena, from->n_vertices, sizeof *c->vertex);
    if (!member || !c->type || !c->node || !c->vertex)
        return esp_i_nomem(c->diag);
    ESP_TRY(copy_types(c));
    ESP_TRY(copy_vertices(c));
    ESP_TRY(copy_links(c));
    ESP_TRY(copy_groups(c, member));
    return esp_cluster_builder_freeze(c->builder, 0, cluster_out, c->diag);
}

esp_status_t esp_costs_cluster(const esp_costs_t *costs, const esp_cluster_t *cluster,
                               const esp_allocator_t *alloc, esp_cluster_t **cluster_out,
                               esp_diag_t *diag)
{
    copy_t c = {.from = cluster, .costs = costs, .figures = {.cluster = cluster}, .diag = diag};
    esp_i_arena_t arena;
    ESP_TRY(esp_cluster_builder_create(cluster->name, alloc, &c.builder, diag));
    esp_i_arena_init(&arena, alloc);
    esp_status_t status = figures_find(&c.figures, costs, &arena) ? ESP_OK : esp_i_nomem(diag);
    if (status == ESP_OK)
        status = copy_all(&c, &arena, cluster_out);
    esp_i_arena_fini(&arena);
    esp_cluster_builder_destroy(c.builder);
    return status;
}
