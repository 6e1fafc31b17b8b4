/* Base groups and op groups. */
#include "deploy/partition.h"
#include "deploy/space.h"

#include <string.h>

/* ---- base groups: union-find over ops, the smaller id leads -------------------------------------
 */

static esp_op_id_t leader_of(esp_op_id_t *leader, esp_op_id_t op)
{
    while (leader[op] != op) {
        leader[op] = leader[leader[op]];
        op = leader[op];
    }
    return op;
}

static void tie(esp_op_id_t *leader, esp_op_id_t a, esp_op_id_t b)
{
    if (a == ESP_NONE || b == ESP_NONE)
        return;
    a = leader_of(leader, a);
    b = leader_of(leader, b);
    if (a < b)
        leader[b] = a;
    else
        leader[a] = b;
}

static bool is_view(esp_op_kind_t kind)
{
    return kind == ESP_KIND_RESHAPE || kind == ESP_KIND_TRANSPOSE || kind == ESP_KIND_SLICE ||
           kind == ESP_KIND_EXPAND || kind == ESP_KIND_PAD;
}

/* A view goes with what it views, or, of a parameter or input, with its first user. */
static void tie_view(const esp_graph_t *g, esp_op_id_t *leader, esp_op_id_t op)
{
    esp_tensor_id_t x = g->input_tensor[g->input_offset[op]];
    esp_tensor_id_t y = g->output_tensor[g->output_offset[op]];
    if (g->tensor_producer[x] != ESP_NONE)
        tie(leader, op, g->tensor_producer[x]);
    else if (g->consumer_offset[y] < g->consumer_offset[y + 1])
        tie(leader, op, g->consumer_op[g->consumer_offset[y]]);
}

/* Statistics that stay where they are made tie their readers to their maker. */
static void tie_local(const esp_graph_t *g, esp_op_id_t *leader, esp_op_id_t op)
{
    esp_view_t view;
    for (int32_t i = g->input_offset[op]; i < g->input_offset[op + 1]; i++)
        if (g->input_tensor[i] != ESP_NONE && g->op_batch[op].dim != ESP_NONE &&
            esp_graph_bind(g, op, g->op_batch[op], i - g->input_offset[op], &view) ==
                ESP_BIND_LOCAL)
            tie(leader, op, g->tensor_producer[g->input_tensor[i]]);
}

/* Ops that belong to the step as a whole: step counter, global norm. */
static bool is_stepwide(const esp_graph_t *g, esp_op_id_t op)
{
    return g->op_phase[op] == ESP_PHASE_UPDATE && g->op_origin[op] == op &&
           g->op_kind[op] != ESP_KIND_UPDATE;
}

static int32_t base_number(const esp_graph_t *g, esp_op_id_t *leader, int32_t *op_base)
{
    int32_t n = 0;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        if (is_stepwide(g, op)) {
            op_base[op] = ESP_NONE;
            continue;
        }
        esp_op_id_t first = leader_of(leader, op);
        op_base[op] = first == op ? n++ : op_base[first];
    }
    return n;
}

static esp_status_t base_find(esp_i_space_t *s)
{
    const esp_graph_t *g = s->space.cost->graph;
    esp_op_id_t *leader = esp_i_alloc_array(&s->alloc, g->n_ops, sizeof *leader);
    int32_t *op_base = esp_i_arena_alloc(&s->arena, g->n_ops, sizeof *op_base);
    if (!leader || !op_base) {
        esp_i_free(&s->alloc, leader);
        return ESP_ERR_NOMEM;
    }
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        leader[op] = op;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        if (is_stepwide(g, op))
            continue;
        if (g->op_phase[op] != ESP_PHASE_FORWARD)
            tie(leader, op, g->op_origin[op]);
        if (is_view((esp_op_kind_t)g->op_kind[op]) && g->op_phase[op] == ESP_PHASE_FORWARD)
            tie_view(g, leader, op);
        tie_local(g, leader, op);
    }
    s->space.n_base = base_number(g, leader, op_base);
    s->space.op_base = op_base;
    esp_i_free(&s->alloc, leader);
    return ESP_OK;
}

/* ---- weights
 * --------------------------------------------------------------------------------------- */

static esp_status_t times_find(esp_i_space_t *s)
{
    const esp_cost_t *cost = s->space.cost;
    const esp_cluster_t *cluster = cost->cluster;
    double *device_ns = esp_i_arena_alloc(&s->arena, cluster->n_devices, sizeof *device_ns);
    double *type_ns = esp_i_alloc_array(&s->alloc, cluster->n_types, sizeof *type_ns);
    double *base_ns = esp_i_arena_alloc(&s->arena, s->space.n_base, sizeof *base_ns);
    s->space.base_ns = base_ns;
    if (!device_ns || !type_ns || !base_ns) {
        esp_i_free(&s->alloc, type_ns);
        return ESP_ERR_NOMEM;
    }
    int32_t *of_type = esp_i_alloc_array(&s->alloc, cluster->n_types, sizeof *of_type);
    for (int32_t d = 0; of_type && d < cluster->n_devices; d++)
        of_type[cluster->device_type[d]]++;
    for (esp_op_id_t op = 0; of_type && op < cost->graph->n_ops; op++)
        for (int32_t type = 0; type < cluster->n_types; type++) {
            double ns = (double)esp_cost_op_ns(cost, op, type, 1.0, 0);
            type_ns[type] += ns;
            if (s->space.op_base[op] != ESP_NONE)
                base_ns[s->space.op_base[op]] += ns * of_type[type] / cluster->n_devices;
        }
    for (int32_t d = 0; d < cluster->n_devices; d++)
        device_ns[d] = type_ns[cluster->device_type[d]] + 1;
    s->space.device_ns = device_ns;
    bool fine = of_type != NULL;
    esp_i_free(&s->alloc, of_type);
    esp_i_free(&s->alloc, type_ns);
    return fine ? ESP_OK : ESP_ERR_NOMEM;
}

/* ---- op groups
 * ---------------------------------------------------------------------------------------- */

esp_i_edge_t *esp_i_base_edges(const esp_i_space_t *s, int32_t *n_out)
{
    const esp_graph_t *g = s->space.cost->graph;
    const int32_t *base = s->space.op_base;
    esp_i_edge_t *edges = esp_i_alloc_array(&s->alloc, g->input_offset[g->n_ops], sizeof *edges);
    *n_out = 0;
    for (esp_op_id_t op = 0; op < g->n_ops && edges; op++)
        for (int32_t i = g->input_offset[op]; i < g->input_offset[op + 1]; i++) {
            esp_tensor_id_t t = g->input_tensor[i];
            esp_op_id_t from = t == ESP_NONE ? ESP_NONE : g->tensor_producer[t];
            if (from != ESP_NONE && base[from] != ESP_NONE && base[op] != ESP_NONE &&
                base[from] != base[op])
                edges[(*n_out)++] =
                    (esp_i_edge_t){base[from], base[op], s->space.cost->tensor_bytes[t]};
        }
    return edges;
}

/* Renumbers groups by decreasing time, ties by number. */
static esp_status_t groups_sort(esp_i_space_t *s, const double *group_ns)
{
    int32_t n = s->space.n_groups;
    int32_t *name = esp_i_alloc_array(&s->alloc, n, sizeof *name);
    double *sorted = esp_i_arena_alloc(&s->arena, n, sizeof *sorted);
    if (!name || !sorted) {
        esp_i_free(&s->alloc, name);
        return ESP_ERR_NOMEM;
    }
    for (int32_t a = 0; a < n; a++) {
        for (int32_t b = 0; b < n; b++)
            name[a] += group_ns[b] > group_ns[a] || (group_ns[b] == group_ns[a] && b < a);
        sorted[name[a]] = group_ns[a];
    }
    for (int32_t b = 0; b < s->space.n_base; b++)
        s->base_group[b] = name[s->base_group[b]];
    s->space.group_ns = sorted;
    esp_i_free(&s->alloc, name);
    return ESP_OK;
}

static esp_status_t groups_publish(esp_i_space_t *s)
{
    const esp_graph_t *g = s->space.cost->graph;
    int32_t *op_group = esp_i_arena_alloc(&s->arena, g->n_ops, sizeof *op_group), n = 0;
    if (!op_group)
        return ESP_ERR_NOMEM;
    for (int32_t b = 0; b < s->space.n_base; b++)
        n = s->base_group[b] >= n ? s->base_group[b] + 1 : n;
    s->space.n_groups = n;
    double *group_ns = esp_i_alloc_array(&s->alloc, n, sizeof *group_ns);
    if (!group_ns)
        return ESP_ERR_NOMEM;
    for (int32_t b = 0; b < s->space.n_base; b++)
        group_ns[s->base_group[b]] += s->space.base_ns[b];
    esp_status_t status = groups_sort(s, group_ns);
    esp_i_free(&s->alloc, group_ns);
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        op_group[op] =
            s->space.op_base[op] == ESP_NONE ? ESP_NONE : s->base_group[s->space.op_base[op]];
    s->space.op_group = op_group;
    return status;
}

/* The UPDATE that folds in a gradient, for ops between the two (its sum of squares). */
static esp_status_t updates_find(esp_i_space_t *s)
{
    const esp_graph_t *g = s->space.cost->graph;
    esp_op_id_t *op_update = esp_i_arena_alloc(&s->arena, g->n_ops, sizeof *op_update);
    esp_op_id_t *tensor_update = esp_i_alloc_array(&s->alloc, g->n_tensors, sizeof *tensor_update);
    if (!op_update || !tensor_update) {
        esp_i_free(&s->alloc, tensor_update);
        return ESP_ERR_NOMEM;
    }
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++)
        tensor_update[t] = ESP_NONE;
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        if (g->op_kind[op] == ESP_KIND_UPDATE)
            tensor_update[g->tensor_root[g->input_tensor[g->input_offset[op] + 1]]] = op;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        op_update[op] = g->op_kind[op] == ESP_KIND_UPDATE ? op : ESP_NONE;
        if (g->op_phase[op] != ESP_PHASE_UPDATE || g->op_kind[op] == ESP_KIND_UPDATE ||
            is_stepwide(g, op) || g->input_offset[op] == g->input_offset[op + 1])
            continue;
        esp_tensor_id_t x = g->tensor_root[g->input_tensor[g->input_offset[op]]];
        esp_op_id_t from = g->tensor_producer[x];
        op_update[op] = tensor_update[x] != ESP_NONE ? tensor_update[x]
                        : from != ESP_NONE           ? op_update[from]
                                                     : ESP_NONE;
    }
    s->space.op_update = op_update;
    esp_i_free(&s->alloc, tensor_update);
    return ESP_OK;
}

esp_status_t esp_i_groups_find(esp_i_space_t *s, const esp_space_opts_t *opts, esp_diag_t *diag)
{
    int32_t n_edges;
    esp_status_t status = base_find(s);
    if (status == ESP_OK)
        status = times_find(s);
    if (status != ESP_OK ||
        !(s->base_group = esp_i_arena_alloc(&s->arena, s->space.n_base, sizeof *s->base_group)))
        return esp_i_nomem(diag);
    esp_i_edge_t *edges = esp_i_base_edges(s, &n_edges);
    if (!edges)
        return esp_i_nomem(diag);
    status = esp_i_partition(&s->alloc,
                             &(esp_i_partition_t){.n = s->space.n_base,
                                                  .vertex_weight = s->space.base_ns,
                                                  .n_edges = n_edges,
                                                  .edges = edges,
                                                  .parts = opts->max_groups,
                                                  .seed = opts->seed},
                             s->base_group);
    esp_i_free(&s->alloc, edges);
    if (status == ESP_ERR_INTERNAL)
        return esp_i_fail(diag, status, "METIS failed to partition %d base groups",
                          s->space.n_base);
    if (status != ESP_OK || groups_publish(s) != ESP_OK || updates_find(s) != ESP_OK)
        return esp_i_nomem(diag);
    return ESP_OK;
}
