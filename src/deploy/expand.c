/* Decisions per op group -> mesh and mode per op. */
#include "deploy/partition.h"
#include "deploy/space.h"

/* Model parallelism: base groups of an op group, in topological order, go to its devices in turn.
 */
typedef struct division {
    double done_ns, total_ns, weight_sum;
} division_t;

static int32_t division_device(const esp_space_t *space, const esp_mesh_spec_t *mesh,
                               division_t *part, double ns)
{
    double middle = part->total_ns > 0 ? (part->done_ns + ns / 2) / part->total_ns : 0, reached = 0;
    part->done_ns += ns;
    for (int32_t k = 0; k < mesh->n; k++) {
        reached += 1.0 / space->device_ns[mesh->device[k]] / part->weight_sum;
        if (middle < reached)
            return mesh->device[k];
    }
    return mesh->device[mesh->n - 1];
}

typedef struct expansion {
    const esp_i_space_t *s;
    const esp_decisions_t *decisions;
    int32_t *base_mesh;   /* per base group: mesh */
    double *device_bytes; /* parameter bytes at home, per device */
    division_t *division; /* per op group */
} expansion_t;

static const esp_action_t *action_of(const expansion_t *e, int32_t group)
{
    return &e->s->space.action[e->decisions->action[group]];
}

static void bases_place(expansion_t *e)
{
    const esp_space_t *space = &e->s->space;
    for (int32_t b = 0; b < space->n_base; b++)
        e->division[e->s->base_group[b]].total_ns += e->s->space.base_ns[b];
    for (int32_t g = 0; g < space->n_groups; g++) {
        const esp_mesh_spec_t *mesh = &space->mesh[action_of(e, g)->mesh];
        for (int32_t k = 0; k < mesh->n; k++)
            e->division[g].weight_sum += 1.0 / space->device_ns[mesh->device[k]];
    }
    for (int32_t b = 0; b < space->n_base; b++) {
        int32_t g = e->s->base_group[b];
        const esp_action_t *action = action_of(e, g);
        e->base_mesh[b] = action->mesh;
        if (action->sync == ESP_SYNC_MODEL_PARALLEL) /* mesh of one device: its own index */
            e->base_mesh[b] = division_device(space, &space->mesh[action->mesh], &e->division[g],
                                              e->s->space.base_ns[b]);
    }
}

/* The device of the mesh with the fewest parameter bytes so far, ties to the lower. */
static int32_t server_choose(expansion_t *e, const esp_mesh_spec_t *mesh, double bytes)
{
    int32_t best = mesh->device[0];
    for (int32_t k = 1; k < mesh->n; k++)
        if (e->device_bytes[mesh->device[k]] < e->device_bytes[best])
            best = mesh->device[k];
    e->device_bytes[best] += bytes;
    return best;
}

static void op_decide(expansion_t *e, esp_op_id_t op, int32_t *mesh, uint8_t *mode)
{
    const esp_space_t *space = &e->s->space;
    const esp_graph_t *g = space->cost->graph;
    int32_t base = space->op_base[op];
    if (base == ESP_NONE) {
        *mesh = ESP_NONE;
        *mode = ESP_MODE_WHOLE;
        return;
    }
    const esp_action_t *action = action_of(e, space->op_group[op]);
    *mesh = e->base_mesh[base];
    bool whole = action->sync == ESP_SYNC_DUPLICATE ||
                 (e->decisions->op_whole && e->decisions->op_whole[op]);
    *mode = whole ? ESP_MODE_WHOLE : ESP_MODE_BATCH;
    if (g->op_kind[op] != ESP_KIND_UPDATE)
        return;
    *mode = action->sync == ESP_SYNC_SHARDED ? ESP_MODE_SHARD : ESP_MODE_WHOLE;
    if (action->sync == ESP_SYNC_PS) {
        esp_tensor_id_t w = g->input_tensor[g->input_offset[op]];
        *mesh = server_choose(e, &space->mesh[action->mesh], space->cost->tensor_bytes[w]);
    }
}

/* What stands between a gradient and its update (its sum of squares) is computed at home. */
static void op_follow(const esp_space_t *space, esp_op_id_t op, int32_t *op_mesh, uint8_t *op_mode)
{
    esp_op_id_t update = space->op_update[op];
    if (update == ESP_NONE || update == op)
        return;
    op_mesh[op] = op_mesh[update];
    op_mode[op] = op_mode[update];
    if (space->cost->graph->op_kind[op] != ESP_KIND_REDUCE)
        op_mode[op] = ESP_MODE_BATCH; /* on the addends of a sharded sum, or on the one sum */
}

esp_status_t esp_space_strategy(const esp_space_t *space, const esp_decisions_t *decisions,
                                int32_t *op_mesh_out, uint8_t *op_mode_out,
                                esp_strategy_t *strategy_out)
{
    const esp_i_space_t *s = (const esp_i_space_t *)space;
    const esp_graph_t *g = space->cost->graph;
    for (int32_t i = 0; i < space->n_groups; i++)
        if (decisions->action[i] < 0 || decisions->action[i] >= space->n_actions)
            return ESP_ERR_ARGUMENT;
    size_t bytes = (size_t)space->n_groups * sizeof(division_t) +
                   (size_t)space->cost->cluster->n_devices * sizeof(double) +
                   (size_t)space->n_base * sizeof(int32_t);
    char *memory = esp_i_alloc_array(&s->alloc, 1, bytes);
    if (!memory)
        return ESP_ERR_NOMEM;
    expansion_t e = {.s = s, .decisions = decisions};
    e.division = (division_t *)(void *)memory;
    e.device_bytes = (double *)(void *)(e.division + space->n_groups);
    e.base_mesh = (int32_t *)(void *)(e.device_bytes + space->cost->cluster->n_devices);
    bases_place(&e);
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        op_decide(&e, op, &op_mesh_out[op], &op_mode_out[op]);
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        op_follow(space, op, op_mesh_out, op_mode_out);
    esp_i_free(&s->alloc, memory);
    *strategy_out = (esp_strategy_t){.n_meshes = space->n_meshes,
                                     .mesh = space->mesh,
                                     .op_mesh = op_mesh_out,
                                     .op_mode = op_mode_out,
                                     .micro_batches = decisions->micro_batches,
                                     .bucket_bytes = decisions->bucket_bytes,
                                     .sync_batchnorm = decisions->sync_batchnorm};
    return ESP_OK;
}

void esp_space_divide(const esp_space_t *space, int32_t *base_device_out)
{
    const esp_cluster_t *cluster = space->cost->cluster;
    division_t part = {0};
    for (int32_t b = 0; b < space->n_base; b++)
        part.total_ns += space->base_ns[b];
    for (int32_t d = 0; d < cluster->n_devices; d++)
        part.weight_sum += 1.0 / space->device_ns[d];
    double reached = 1.0 / space->device_ns[0] / part.weight_sum;
    for (int32_t b = 0, d = 0; b < space->n_base; b++) {
        double middle = (part.done_ns + space->base_ns[b] / 2) / part.total_ns;
        part.done_ns += space->base_ns[b];
        while (d + 1 < cluster->n_devices && middle >= reached)
            reached += 1.0 / space->device_ns[++d] / part.weight_sum;
        base_device_out[b] = d;
    }
}

esp_status_t esp_space_partition(const esp_space_t *space, uint64_t seed, int32_t *base_device_out)
{
    const esp_i_space_t *s = (const esp_i_space_t *)space;
    const esp_cluster_t *cluster = space->cost->cluster;
    int32_t n_edges;
    double *weight = esp_i_alloc_array(&s->alloc, cluster->n_devices, sizeof *weight);
    esp_i_edge_t *edges = esp_i_base_edges(s, &n_edges);
    esp_status_t status = ESP_ERR_NOMEM;
    for (int32_t d = 0; weight && d < cluster->n_devices; d++)
        weight[d] = 1.0 / space->device_ns[d];
    if (weight && edges)
        status = esp_i_partition(&s->alloc,
                                 &(esp_i_partition_t){.n = space->n_base,
                                                      .vertex_weight = space->base_ns,
                                                      .n_edges = n_edges,
                                                      .edges = edges,
                                                      .parts = cluster->n_devices,
                                                      .part_weight = weight,
                                                      .seed = seed},
                                 base_device_out);
    esp_i_free(&s->alloc, weight);
    esp_i_free(&s->alloc, edges);
    return status;
}
