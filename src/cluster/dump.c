/* Canonical YAML and its hash. All numbers are whole and in base units, so nothing is rounded. */
#include "cluster/cluster.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_quoted(esp_i_text_t *text, const char *value)
{
    esp_i_text_add(text, "\"");
    for (const char *c = value; *c != '\0'; c++)
        esp_i_text_addf(text, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    esp_i_text_add(text, "\"");
}

static void write_types(const esp_cluster_t *c, bool with_sources, esp_i_text_t *text)
{
    esp_i_text_add(text, "types:\n");
    for (int32_t t = 0; t < c->n_types; t++) {
        const esp_device_type_t *type = &c->types[t];
        esp_i_text_addf(text, "  \"%s\":\n    kind: %s\n", type->name, type->kind);
        for (int32_t p = 0; p < ESP_PRECISION_COUNT; p++)
            esp_i_text_addf(text, "    %s: %" PRId64 " FLOP/s\n",
                            esp_precision_name((esp_precision_t)p), (int64_t)type->peak_flops[p]);
        esp_i_text_addf(text, "    memory: %" PRId64 " B\n", type->memory_bytes);
        esp_i_text_addf(text, "    memory_bandwidth: %" PRId64 " B/s\n",
                        (int64_t)type->memory_bytes_per_s);
        esp_i_text_addf(text, "    launch: %" PRId64 " ns\n", type->launch_ns);
        esp_i_text_addf(text, "    comm_compute: %" PRId64 " as/B\n",
                        (int64_t)llround(type->comm_compute_s_per_byte * 1e18));
        if (with_sources) {
            esp_i_text_add(text, "    source: ");
            add_quoted(text, type->source);
            esp_i_text_add(text, "\n");
        }
    }
}

static void write_vertices(const esp_cluster_t *c, esp_i_text_t *text)
{
    esp_i_text_add(text, "  nodes:\n");
    for (int32_t i = 0; i < c->n_nodes; i++)
        esp_i_text_addf(text, "    - \"%s\"\n", c->node_name[i]);
    if (c->n_vertices > c->n_devices)
        esp_i_text_add(text, "  vertices:\n");
    for (int32_t v = c->n_devices; v < c->n_vertices; v++) {
        esp_i_text_addf(text, "    - {name: \"%s\", kind: %s", c->vertex_name[v],
                        esp_vertex_kind_name(c->vertex_kind[v]));
        if (c->vertex_node[v] >= 0)
            esp_i_text_addf(text, ", node: \"%s\"", c->node_name[c->vertex_node[v]]);
        esp_i_text_add(text, "}\n");
    }
    esp_i_text_add(text, "  devices:\n");
    for (int32_t d = 0; d < c->n_devices; d++) {
        esp_i_text_addf(text,
                        "    - {name: \"%s\", type: \"%s\", node: \"%s\", memory: %" PRId64 " B",
                        c->vertex_name[d], c->types[c->device_type[d]].name,
                        c->node_name[c->device_node[d]], c->device_memory_bytes[d]);
        if (c->device_hub[d] >= 0)
            esp_i_text_addf(text, ", hub: \"%s\"", c->vertex_name[c->device_hub[d]]);
        if (c->vertex_forwards[d])
            esp_i_text_add(text, ", forward: true");
        esp_i_text_add(text, "}\n");
    }
}

static void write_links(const esp_cluster_t *c, esp_i_text_t *text)
{
    if (c->n_links > 0)
        esp_i_text_add(text, "  links:\n");
    for (int32_t l = 0; l < c->n_links; l++)
        esp_i_text_addf(text,
                        "    - {name: \"%s\", from: \"%s\", to: \"%s\", bandwidth: %" PRId64
                        " B/s, latency: %" PRId64 " ns}\n",
                        c->link_name[l], c->vertex_name[c->link_src[l]],
                        c->vertex_name[c->link_dst[l]], (int64_t)c->link_bytes_per_s[l],
                        c->link_latency_ns[l]);
}

static void write_groups(const esp_cluster_t *c, esp_i_text_t *text)
{
    esp_i_text_add(text, "  groups:\n");
    for (int32_t g = 0; g < c->n_groups; g++) {
        esp_i_text_addf(text, "    - {name: \"%s\", devices: [", c->group_name[g]);
        for (int32_t i = c->group_offset[g]; i < c->group_offset[g + 1]; i++)
            esp_i_text_addf(text, "%s\"%s\"", i > c->group_offset[g] ? ", " : "",
                            c->vertex_name[c->group_device[i]]);
        esp_i_text_add(text, "]}\n");
    }
}

void esp_i_cluster_write(const esp_cluster_t *cluster, bool with_sources, esp_i_text_t *text)
{
    esp_i_text_addf(text, "name: \"%s\"\n", cluster->name);
    write_types(cluster, with_sources, text);
    esp_i_text_add(text, "graph:\n");
    write_vertices(cluster, text);
    write_links(cluster, text);
    write_groups(cluster, text);
}

esp_status_t esp_cluster_dump(const esp_cluster_t *cluster, const esp_allocator_t *allocator,
                              char **text_out, esp_diag_t *diag)
{
    esp_i_text_t text;
    esp_i_text_init(&text, allocator);
    esp_i_cluster_write(cluster, true, &text);
    if (text.failed) {
        esp_i_text_fini(&text);
        return esp_i_nomem(diag);
    }
    *text_out = text.data; /* the caller's from here on */
    return ESP_OK;
}

esp_status_t esp_cluster_hash(const esp_cluster_t *cluster, const esp_allocator_t *allocator,
                              char hex_out[65], esp_diag_t *diag)
{
    esp_i_text_t text;
    esp_i_text_init(&text, allocator);
    esp_i_cluster_write(cluster, false, &text);
    bool failed = text.failed;
    if (!failed)
        esp_i_sha256(text.data, text.length, hex_out);
    esp_i_text_fini(&text);
    return failed ? esp_i_nomem(diag) : ESP_OK;
}
