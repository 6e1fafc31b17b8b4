/* esp_report_cluster: devices, kinds of links, routes between groups. */
#include "report/report.h"

#include <math.h>
#include <stdio.h>

enum { MATRIX = 8, LINK_ROWS = 16 }; /* columns of a matrix; kinds of links unless all are wanted */

/* ---- links that are alike ----------------------------------------------------------------- */

typedef struct link_kind {
    esp_vertex_kind_t a, b; /* either direction, the lower kind first */
    double bytes_per_s;
    int64_t latency_ns;
    int32_t count;
} link_kind_t;
typedef ESP_VEC(link_kind_t) link_kinds_t;

static bool count_link(const esp_cluster_t *cluster, int32_t link, const esp_allocator_t *alloc,
                       link_kinds_t *kinds)
{
    esp_vertex_kind_t a = cluster->vertex_kind[cluster->link_src[link]];
    esp_vertex_kind_t b = cluster->vertex_kind[cluster->link_dst[link]];
    link_kind_t kind = {a < b ? a : b, a < b ? b : a, cluster->link_bytes_per_s[link],
                        cluster->link_latency_ns[link], 1};
    for (int32_t i = 0; i < kinds->count; i++) {
        link_kind_t *k = &kinds->data[i];
        if (k->a == kind.a && k->b == kind.b && !(k->bytes_per_s < kind.bytes_per_s) &&
            !(k->bytes_per_s > kind.bytes_per_s) && k->latency_ns == kind.latency_ns) {
            k->count++;
            return true;
        }
    }
    return esp_vec_push(alloc, kinds, kind);
}

static void put_links(const esp_cluster_t *cluster, const esp_allocator_t *alloc, bool verbose,
                      esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {{"links", ESP_I_RIGHT},
                                             {"between", ESP_I_LEFT},
                                             {"bandwidth", ESP_I_RIGHT},
                                             {"latency", ESP_I_RIGHT}};
    link_kinds_t kinds = {0};
    for (int32_t link = 0; link < cluster->n_links; link++)
        if (!count_link(cluster, link, alloc, &kinds)) {
            text->failed = true;
            break;
        }
    int32_t shown = verbose || kinds.count <= LINK_ROWS ? kinds.count : LINK_ROWS;
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 4, columns);
    for (int32_t i = 0; i < shown; i++) {
        const link_kind_t *kind = &kinds.data[i];
        char bandwidth[32], latency[32];
        esp_i_report_si(kind->bytes_per_s, "B/s", bandwidth);
        esp_i_format_ns(kind->latency_ns, latency);
        esp_i_table_cell(&table, "%d", (int)kind->count);
        esp_i_table_cell(&table, "%s - %s", esp_vertex_kind_name(kind->a),
                         esp_vertex_kind_name(kind->b));
        esp_i_table_cell(&table, "%s", bandwidth);
        esp_i_table_cell(&table, "%s", latency);
    }
    esp_i_table_print(&table, 0, text);
    if (shown < kinds.count)
        esp_i_text_addf(text, "and %d more kinds of links (--verbose)\n",
                        (int)(kinds.count - shown));
    esp_vec_free(alloc, &kinds);
}

/* ---- devices ------------------------------------------------------------------------------ */

static const esp_device_type_t *group_type(const esp_cluster_t *cluster, int32_t group)
{
    int32_t device = cluster->group_device[cluster->group_offset[group]];
    return &cluster->types[cluster->device_type[device]];
}

static int32_t group_size(const esp_cluster_t *cluster, int32_t group)
{
    return cluster->group_offset[group + 1] - cluster->group_offset[group];
}

static void put_devices(const esp_cluster_t *cluster, const esp_allocator_t *alloc,
                        esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {
        {"", ESP_I_RIGHT},           {"group", ESP_I_LEFT},         {"devices", ESP_I_RIGHT},
        {"type", ESP_I_LEFT},        {"fp32", ESP_I_RIGHT},         {"fp16", ESP_I_RIGHT},
        {"memory B/s", ESP_I_RIGHT}, {"usable memory", ESP_I_RIGHT}};
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 8, columns);
    for (int32_t group = 0; group < cluster->n_groups; group++) {
        const esp_device_type_t *type = group_type(cluster, group);
        int32_t first = cluster->group_device[cluster->group_offset[group]];
        char text_of[32];
        esp_i_table_cell(&table, "[%d]", (int)group);
        esp_i_table_cell(&table, "%s", cluster->group_name[group]);
        esp_i_table_cell(&table, "%d", (int)group_size(cluster, group));
        esp_i_table_cell(&table, "%s", type->name);
        esp_i_report_si(esp_device_type_flops(type, ESP_PRECISION_FP32), "FLOP/s", text_of);
        esp_i_table_cell(&table, "%s", text_of);
        esp_i_report_si(esp_device_type_flops(type, ESP_PRECISION_FP16), "FLOP/s", text_of);
        esp_i_table_cell(&table, "%s", text_of);
        esp_i_report_si(type->memory_bytes_per_s, "B/s", text_of);
        esp_i_table_cell(&table, "%s", text_of);
        esp_i_format_bytes(cluster->device_memory_bytes[first], text_of);
        esp_i_table_cell(&table, "%s", text_of);
    }
    esp_i_table_print(&table, 0, text);
}

static void put_device_names(const esp_cluster_t *cluster, esp_i_text_t *text)
{
    for (int32_t group = 0; group < cluster->n_groups; group++) {
        esp_i_text_addf(text, "\ndevices of group %s:\n", cluster->group_name[group]);
        for (int32_t i = cluster->group_offset[group]; i < cluster->group_offset[group + 1]; i++)
            esp_i_text_addf(text, "  %s\n", cluster->vertex_name[cluster->group_device[i]]);
    }
}

/* ---- routes ------------------------------------------------------------------------------- */

typedef struct route_facts {
    bool any; /* a group of one device has no route in itself */
    double bytes_per_s;
    int64_t latency_ns;
    int32_t hops;
} route_facts_t;

/* The worst over all pairs of devices. */
static route_facts_t group_routes(const esp_cluster_t *cluster, int32_t from, int32_t to)
{
    route_facts_t facts = {.bytes_per_s = INFINITY};
    for (int32_t i = cluster->group_offset[from]; i < cluster->group_offset[from + 1]; i++)
        for (int32_t j = cluster->group_offset[to]; j < cluster->group_offset[to + 1]; j++) {
            int32_t src = cluster->group_device[i], dst = cluster->group_device[j];
            const int32_t *links;
            int32_t hops = esp_cluster_route(cluster, src, dst, &links);
            if (hops == 0)
                continue;
            facts.any = true;
            facts.bytes_per_s =
                fmin(facts.bytes_per_s, esp_cluster_route_bytes_per_s(cluster, src, dst));
            facts.latency_ns =
                esp_i_max_i64(facts.latency_ns, esp_cluster_route_latency_ns(cluster, src, dst));
            facts.hops = hops > facts.hops ? hops : facts.hops;
        }
    return facts;
}

typedef enum matrix { MATRIX_BANDWIDTH, MATRIX_LATENCY } matrix_t;

static void put_matrix(const esp_cluster_t *cluster, matrix_t what, int32_t begin,
                       const esp_allocator_t *alloc, esp_i_text_t *text)
{
    esp_i_column_t columns[MATRIX + 1] = {
        {what == MATRIX_BANDWIDTH ? "bandwidth" : "latency", ESP_I_LEFT}};
    char header[MATRIX][16], value[32];
    int32_t end = begin + MATRIX < cluster->n_groups ? begin + MATRIX : cluster->n_groups;
    for (int32_t to = begin; to < end; to++) {
        (void)snprintf(header[to - begin], sizeof header[0], "[%d]", (int)to);
        columns[to - begin + 1] = (esp_i_column_t){header[to - begin], ESP_I_RIGHT};
    }
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, end - begin + 1, columns);
    for (int32_t from = 0; from < cluster->n_groups; from++) {
        esp_i_table_cell(&table, "[%d] %s", (int)from, cluster->group_name[from]);
        for (int32_t to = begin; to < end; to++) {
            route_facts_t facts = group_routes(cluster, from, to);
            if (what == MATRIX_BANDWIDTH)
                esp_i_report_si(facts.bytes_per_s, "B/s", value);
            else
                esp_i_format_ns(facts.latency_ns, value);
            esp_i_table_cell(&table, "%s", facts.any ? value : "-");
        }
    }
    esp_i_table_print(&table, 0, text);
}

static void put_routes(const esp_cluster_t *cluster, const esp_allocator_t *alloc,
                       esp_i_text_t *text)
{
    for (matrix_t what = MATRIX_BANDWIDTH; what <= MATRIX_LATENCY; what++)
        for (int32_t begin = 0; begin < cluster->n_groups; begin += MATRIX) {
            esp_i_text_add(text, "\n");
            put_matrix(cluster, what, begin, alloc, text);
        }
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void json_groups(const esp_cluster_t *cluster, esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, "groups");
    for (int32_t group = 0; group < cluster->n_groups; group++) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", cluster->group_name[group]);
        esp_i_json_put_string(out, "type", group_type(cluster, group)->name);
        esp_i_json_open_array(out, "devices");
        for (int32_t i = cluster->group_offset[group]; i < cluster->group_offset[group + 1]; i++)
            esp_i_json_put_string(out, NULL, cluster->vertex_name[cluster->group_device[i]]);
        esp_i_json_close(out);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void json_devices(const esp_cluster_t *cluster, esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, "devices");
    for (int32_t d = 0; d < cluster->n_devices; d++) {
        const esp_device_type_t *type = &cluster->types[cluster->device_type[d]];
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", cluster->vertex_name[d]);
        esp_i_json_put_string(out, "type", type->name);
        esp_i_json_put_string(out, "node", cluster->node_name[cluster->device_node[d]]);
        esp_i_json_put_string(out, "group", cluster->group_name[cluster->device_group[d]]);
        esp_i_json_put_int(out, "memory_bytes", cluster->device_memory_bytes[d]);
        for (int32_t p = 0; p < ESP_PRECISION_COUNT; p++)
            esp_i_json_put_real(out, esp_precision_name((esp_precision_t)p),
                                esp_device_type_flops(type, (esp_precision_t)p));
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void json_links(const esp_cluster_t *cluster, esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, "links");
    for (int32_t link = 0; link < cluster->n_links; link++) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", cluster->link_name[link]);
        esp_i_json_put_string(out, "src", cluster->vertex_name[cluster->link_src[link]]);
        esp_i_json_put_string(out, "dst", cluster->vertex_name[cluster->link_dst[link]]);
        esp_i_json_put_real(out, "bytes_per_s", cluster->link_bytes_per_s[link]);
        esp_i_json_put_int(out, "latency_ns", cluster->link_latency_ns[link]);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void json_routes(const esp_cluster_t *cluster, esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, "routes");
    for (int32_t from = 0; from < cluster->n_groups; from++)
        for (int32_t to = 0; to < cluster->n_groups; to++) {
            route_facts_t facts = group_routes(cluster, from, to);
            if (!facts.any)
                continue;
            esp_i_json_next_flat(out);
            esp_i_json_open_object(out, NULL);
            esp_i_json_put_string(out, "from", cluster->group_name[from]);
            esp_i_json_put_string(out, "to", cluster->group_name[to]);
            esp_i_json_put_real(out, "bytes_per_s", facts.bytes_per_s);
            esp_i_json_put_int(out, "latency_ns", facts.latency_ns);
            esp_i_json_put_int(out, "hops", facts.hops);
            esp_i_json_close(out);
        }
    esp_i_json_close(out);
}

static void put_json(const esp_cluster_t *cluster, const char *hash, esp_i_text_t *text)
{
    esp_i_json_out_t out;
    esp_i_json_out_init(&out, text);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_put_string(&out, "cluster", cluster->name);
    esp_i_json_put_string(&out, "sha256", hash);
    json_groups(cluster, &out);
    json_devices(cluster, &out);
    json_links(cluster, &out);
    json_routes(cluster, &out);
    esp_i_json_close(&out);
}

static void put_text(const esp_cluster_t *cluster, bool verbose, const esp_allocator_t *alloc,
                     esp_i_text_t *text)
{
    esp_i_text_addf(text, "%s: %d %s in %d %s, %d %s\n\n", cluster->name, (int)cluster->n_devices,
                    cluster->n_devices == 1 ? "device" : "devices", (int)cluster->n_nodes,
                    cluster->n_nodes == 1 ? "node" : "nodes", (int)cluster->n_groups,
                    cluster->n_groups == 1 ? "group" : "groups");
    put_devices(cluster, alloc, text);
    if (cluster->n_links > 0) {
        esp_i_text_add(text, "\n");
        put_links(cluster, alloc, verbose, text);
        put_routes(cluster, alloc, text);
    }
    if (verbose)
        put_device_names(cluster, text);
}

esp_status_t esp_report_cluster(const esp_cluster_t *cluster, const esp_report_opts_t *opts,
                                const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    esp_allocator_t memory = esp_i_allocator(alloc);
    char hash[65];
    esp_i_text_t text;
    ESP_TRY(esp_i_report_check(opts, diag));
    ESP_TRY(esp_cluster_hash(cluster, alloc, hash, diag));
    esp_i_text_init(&text, &memory);
    if (opts->form == ESP_REPORT_JSON)
        put_json(cluster, hash, &text);
    else
        put_text(cluster, opts->verbose != 0, &memory, &text);
    return esp_i_report_finish(&text, text_out, diag);
}
