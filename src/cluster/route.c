/*
 * Routes: from each device, a breadth-first search over the links in which every vertex keeps its
 * widest entry among those of the fewest hops, and among equals the link of the lowest id.
 *
 * Width may be settled level by level: the widest shortest path to a vertex enters it from the
 * level before, and narrowing there by a fixed link can only profit from a wider prefix.
 */
#include "cluster/cluster.h"

#include <math.h>
#include <string.h>

typedef struct router {
    const esp_cluster_t *cluster;
    int32_t *out_offset, *out_link; /* links by source, ascending ids: CSR over vertices */
    int32_t *hops, *entry;          /* per vertex: links from the source (-1: unseen), last link */
    double *width;                  /* per vertex: bottleneck so far */
    int32_t *queue;
    ESP_VEC(int32_t) route_link;
    esp_i_arena_t scratch;
} router_t;

static bool router_init(router_t *r, const esp_cluster_t *c, const esp_allocator_t *alloc)
{
    esp_i_arena_init(&r->scratch, alloc);
    r->cluster = c;
    r->out_offset = esp_i_arena_alloc(&r->scratch, c->n_vertices + 1, sizeof *r->out_offset);
    r->out_link = esp_i_arena_alloc(&r->scratch, c->n_links, sizeof *r->out_link);
    r->hops = esp_i_arena_alloc(&r->scratch, c->n_vertices, sizeof *r->hops);
    r->entry = esp_i_arena_alloc(&r->scratch, c->n_vertices, sizeof *r->entry);
    r->width = esp_i_arena_alloc(&r->scratch, c->n_vertices, sizeof *r->width);
    r->queue = esp_i_arena_alloc(&r->scratch, c->n_vertices, sizeof *r->queue);
    if (r->out_offset == NULL || r->out_link == NULL || r->hops == NULL || r->entry == NULL ||
        r->width == NULL || r->queue == NULL)
        return false;
    /* Counting sort by source, backwards so that ids ascend within a vertex. */
    for (int32_t l = 0; l < c->n_links; l++)
        r->out_offset[c->link_src[l]]++;
    for (int32_t v = 1; v <= c->n_vertices; v++)
        r->out_offset[v] += r->out_offset[v - 1];
    for (int32_t l = c->n_links - 1; l >= 0; l--)
        r->out_link[--r->out_offset[c->link_src[l]]] = l;
    return true;
}

/* Follows link l out of v; returns whether its end was seen for the first time. */
static bool relax(router_t *r, int32_t v, int32_t l)
{
    int32_t w = r->cluster->link_dst[l];
    double width = fmin(r->width[v], r->cluster->link_bytes_per_s[l]);
    bool fresh = r->hops[w] < 0;
    if (!fresh && (r->hops[w] != r->hops[v] + 1 || width < r->width[w] ||
                   (width == r->width[w] && l > r->entry[w])))
        return false;
    r->hops[w] = r->hops[v] + 1;
    r->width[w] = width;
    r->entry[w] = l;
    return fresh;
}

static void search_from(router_t *r, int32_t src)
{
    const esp_cluster_t *c = r->cluster;
    int32_t head = 0, tail = 0, hub = c->device_hub[src];
    for (int32_t v = 0; v < c->n_vertices; v++)
        r->hops[v] = -1;
    r->queue[tail++] = src;
    if (hub >= 0)
        r->queue[tail++] = hub;
    for (int32_t i = 0; i < tail; i++) {
        r->hops[r->queue[i]] = 0;
        r->width[r->queue[i]] = INFINITY;
        r->entry[r->queue[i]] = -1;
    }
    while (head < tail) {
        int32_t v = r->queue[head++];
        if (!c->vertex_forwards[v] && v != src && v != hub)
            continue;
        for (int32_t k = r->out_offset[v]; k < r->out_offset[v + 1]; k++)
            if (relax(r, v, r->out_link[k]))
                r->queue[tail++] = c->link_dst[r->out_link[k]];
    }
}

/* The vertex at which transfers to dst best end: itself or its hub; -1 if neither is reached. */
static int32_t best_end(const router_t *r, int32_t src, int32_t dst)
{
    const esp_cluster_t *c = r->cluster;
    int32_t hub = c->device_hub[dst];
    bool own = r->hops[dst] >= 0;
    /* Inside a common hub there is nothing to travel on. */
    bool through_hub = hub >= 0 && hub != c->device_hub[src] && r->hops[hub] >= 0;
    if (!own || !through_hub)
        return own ? dst : (through_hub ? hub : -1);
    if (r->hops[hub] != r->hops[dst])
        return r->hops[hub] < r->hops[dst] ? hub : dst;
    if (r->width[hub] != r->width[dst])
        return r->width[hub] > r->width[dst] ? hub : dst;
    return r->entry[hub] < r->entry[dst] ? hub : dst;
}

/* Appends the route to dst, last link first found, hence filled from its end. */
static esp_status_t append_route(router_t *r, int32_t src, int32_t dst, esp_diag_t *diag)
{
    const esp_cluster_t *c = r->cluster;
    int32_t end = best_end(r, src, dst);
    if (end < 0 || r->hops[end] > ESP_CLUSTER_MAX_HOPS) {
        esp_i_diag_place(diag, "%s -> %s", c->vertex_name[src], c->vertex_name[dst]);
        if (end >= 0)
            return esp_i_fail(diag, ESP_ERR_LIMIT,
                              "the route from '%s' to '%s' has %d links; %d"
                              " are allowed",
                              c->vertex_name[src], c->vertex_name[dst], (int)r->hops[end],
                              (int)ESP_CLUSTER_MAX_HOPS);
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "no links lead from '%s' to '%s': every device must reach every other",
                          c->vertex_name[src], c->vertex_name[dst]);
    }
    int32_t n = r->hops[end];
    if (!esp_vec_extend(&r->scratch.alloc, &r->route_link, n))
        return esp_i_nomem(diag);
    for (int32_t k = 1, v = end; k <= n; k++) {
        r->route_link.data[r->route_link.count - k] = r->entry[v];
        v = c->link_src[r->entry[v]];
        esp_dcheck(r->hops[v] == n - k);
    }
    return ESP_OK;
}

static esp_status_t route_from_all(router_t *r, int32_t *offset, esp_diag_t *diag)
{
    int32_t n = r->cluster->n_devices;
    for (int32_t s = 0; s < n; s++) {
        search_from(r, s);
        for (int32_t d = 0; d < n; d++) {
            if (d != s)
                ESP_TRY(append_route(r, s, d, diag));
            offset[s * n + d + 1] = r->route_link.count;
        }
    }
    return ESP_OK;
}

esp_status_t esp_i_cluster_route_all(esp_i_cluster_t *cluster, esp_diag_t *diag)
{
    esp_cluster_t *pub = &cluster->pub;
    router_t r = {0};
    esp_status_t status = ESP_ERR_NOMEM;
    int32_t *offset = esp_i_arena_alloc(
        &cluster->arena, (int64_t)pub->n_devices * pub->n_devices + 1, sizeof *offset);
    if (!router_init(&r, pub, &cluster->arena.alloc) || offset == NULL) {
        status = esp_i_nomem(diag);
        goto fini;
    }
    status = route_from_all(&r, offset, diag);
    if (status != ESP_OK)
        goto fini;
    int32_t *links = esp_i_arena_alloc(&cluster->arena, r.route_link.count, sizeof *links);
    if (links == NULL) {
        status = esp_i_nomem(diag);
        goto fini;
    }
    for (int32_t i = 0; i < r.route_link.count; i++)
        links[i] = r.route_link.data[i];
    pub->route_offset = offset;
    pub->route_link = links;
fini:
    esp_vec_free(&r.scratch.alloc, &r.route_link);
    esp_i_arena_fini(&r.scratch);
    return status;
}

/* ---- questions ------------------------------------------------------------------------------- */

int32_t esp_cluster_route(const esp_cluster_t *cluster, int32_t src, int32_t dst,
                          const int32_t **links_out)
{
    int32_t n = cluster->n_devices;
    esp_assert(src >= 0 && src < n && dst >= 0 && dst < n);
    const int32_t *offset = &cluster->route_offset[src * n + dst];
    *links_out = &cluster->route_link[offset[0]];
    return offset[1] - offset[0];
}

double esp_cluster_route_bytes_per_s(const esp_cluster_t *cluster, int32_t src, int32_t dst)
{
    const int32_t *links;
    int32_t n = esp_cluster_route(cluster, src, dst, &links);
    double narrowest = INFINITY;
    for (int32_t i = 0; i < n; i++)
        narrowest = fmin(narrowest, cluster->link_bytes_per_s[links[i]]);
    return narrowest;
}

int64_t esp_cluster_route_latency_ns(const esp_cluster_t *cluster, int32_t src, int32_t dst)
{
    const int32_t *links;
    int32_t n = esp_cluster_route(cluster, src, dst, &links);
    int64_t sum = 0; /* <= ESP_CLUSTER_MAX_HOPS * ESP_CLUSTER_MAX_LATENCY_NS, far from overflow */
    for (int32_t i = 0; i < n; i++)
        sum += cluster->link_latency_ns[links[i]];
    return sum;
}

int32_t esp_cluster_find_vertex(const esp_cluster_t *cluster, const char *name)
{
    for (int32_t v = 0; v < cluster->n_vertices; v++)
        if (strcmp(cluster->vertex_name[v], name) == 0)
            return v;
    return -1;
}
