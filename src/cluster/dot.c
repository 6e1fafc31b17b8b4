/* Graphviz: a box per node, an edge per link or per pair of equal opposite links. */
#include "cluster/cluster.h"

#include <inttypes.h>
#include <string.h>

static const char *const vertex_style[] = {
    [ESP_VERTEX_DEVICE] = "shape=box, style=\"filled,rounded\", fillcolor=\"#cfe8cf\"",
    [ESP_VERTEX_HOST] = "shape=box, style=filled, fillcolor=\"#eeeeee\"",
    [ESP_VERTEX_NIC] = "shape=ellipse, style=filled, fillcolor=\"#d6e4f5\"",
    [ESP_VERTEX_SWITCH] = "shape=hexagon, style=filled, fillcolor=\"#f5e3c8\"",
    [ESP_VERTEX_HUB] = "shape=point",
};
_Static_assert(sizeof vertex_style / sizeof vertex_style[0] == ESP_VERTEX_KIND_COUNT,
               "one style per kind");

/* The name without "node/" in front, inside that node's box. */
static const char *short_name(const esp_cluster_t *c, int32_t v)
{
    const char *name = c->vertex_name[v];
    if (c->vertex_node[v] < 0)
        return name;
    const char *node = c->node_name[c->vertex_node[v]];
    size_t n = strlen(node);
    return strncmp(name, node, n) == 0 && name[n] == '/' && name[n + 1] != '\0' ? name + n + 1
                                                                                : name;
}

static void write_vertex(const esp_cluster_t *c, int32_t v, const char *indent, esp_i_text_t *text)
{
    esp_i_text_addf(text, "%sv%d [label=\"%s", indent, (int)v, short_name(c, v));
    if (v < c->n_devices) {
        char memory[32];
        esp_i_format_bytes(c->device_memory_bytes[v], memory);
        esp_i_text_addf(text, "\\n%s\\n%s", c->types[c->device_type[v]].name, memory);
    }
    esp_i_text_addf(text, "\", %s];\n", vertex_style[c->vertex_kind[v]]);
}

static void write_boxes(const esp_cluster_t *c, esp_i_text_t *text)
{
    for (int32_t node = 0; node < c->n_nodes; node++) {
        esp_i_text_addf(text, "  subgraph cluster_%d {\n    label=\"%s\";\n", (int)node,
                        c->node_name[node]);
        for (int32_t v = 0; v < c->n_vertices; v++)
            if (c->vertex_node[v] == node)
                write_vertex(c, v, "    ", text);
        esp_i_text_add(text, "  }\n");
    }
    for (int32_t v = 0; v < c->n_vertices; v++)
        if (c->vertex_node[v] < 0)
            write_vertex(c, v, "  ", text);
}

/* Both directions of a cable are neighbours in every form of file; others are drawn one by one. */
static bool is_cable(const esp_cluster_t *c, int32_t l)
{
    return l + 1 < c->n_links && c->link_src[l] == c->link_dst[l + 1] &&
           c->link_dst[l] == c->link_src[l + 1] &&
           c->link_bytes_per_s[l] >= c->link_bytes_per_s[l + 1] &&
           c->link_bytes_per_s[l] <= c->link_bytes_per_s[l + 1] &&
           c->link_latency_ns[l] == c->link_latency_ns[l + 1];
}

/* "12.5 GB/s": at most one decimal, without floating-point formatting. */
static void write_bandwidth(double bytes_per_s, esp_i_text_t *text)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    int64_t value = (int64_t)bytes_per_s, unit = 1;
    int32_t u = 0;
    for (; value / unit >= 1000 && u < 4; u++)
        unit *= 1000;
    int64_t whole = value / unit, tenth = u > 0 ? value % unit / (unit / 10) : 0;
    if (tenth > 0)
        esp_i_text_addf(text, "%" PRId64 ".%" PRId64 " %s", whole, tenth, units[u]);
    else
        esp_i_text_addf(text, "%" PRId64 " %s", whole, units[u]);
}

static void write_edges(const esp_cluster_t *c, esp_i_text_t *text)
{
    for (int32_t l = 0; l < c->n_links; l++) {
        char latency[32];
        bool cable = is_cable(c, l);
        esp_i_format_ns(c->link_latency_ns[l], latency);
        esp_i_text_addf(text, "  v%d -> v%d [label=\"", (int)c->link_src[l], (int)c->link_dst[l]);
        write_bandwidth(c->link_bytes_per_s[l], text);
        esp_i_text_addf(text, "\\n%s\"%s];\n", latency, cable ? ", dir=both" : "");
        l += cable;
    }
}

esp_status_t esp_cluster_dot(const esp_cluster_t *cluster, const esp_allocator_t *allocator,
                             char **text_out, esp_diag_t *diag)
{
    esp_i_text_t text;
    esp_i_text_init(&text, allocator);
    esp_i_text_addf(&text, "digraph \"%s\" {\n  node [fontname=\"sans-serif\", fontsize=10];\n",
                    cluster->name);
    esp_i_text_add(&text, "  edge [fontname=\"sans-serif\", fontsize=8];\n");
    write_boxes(cluster, &text);
    write_edges(cluster, &text);
    esp_i_text_add(&text, "}\n");
    if (text.failed) {
        esp_i_text_fini(&text);
        return esp_i_nomem(diag);
    }
    *text_out = text.data; /* the caller's from here on */
    return ESP_OK;
}
