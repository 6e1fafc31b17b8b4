/*
 * Deployments whose device 0 does a given share of the batch: its program has the local shapes, the
 * memory and the order that such a share has in any data-parallel deployment. The other devices
 * exist on paper only; what would come from them is never waited for.
 */
#include "exec/profile.h"

#include <string.h>

static esp_status_t add_devices(esp_cluster_builder_t *builder, int32_t n, esp_diag_t *diag)
{
    const esp_device_type_t type = {
        .name = "profiled",
        .kind = "cpu",
        .peak_flops = {[ESP_PRECISION_FP32] = 1e11},
        .memory_bytes = ESP_CLUSTER_MAX_MEMORY_BYTES,
        .memory_bytes_per_s = 1e10,
        .launch_ns = 1000,
        .source = "",
    };
    int32_t type_id, node, hub, vertex;
    ESP_TRY(esp_cluster_builder_add_type(builder, &type, &type_id, diag));
    ESP_TRY(esp_cluster_builder_add_node(builder, "node", &node, diag));
    ESP_TRY(esp_cluster_builder_add_vertex(builder, ESP_VERTEX_SWITCH, "switch", node, &hub, diag));
    for (int32_t i = 0; i < n; i++) {
        char name[32] = "device00";
        name[6] = (char)('0' + i / 10);
        name[7] = (char)('0' + i % 10);
        const esp_cluster_device_t device = {
            .name = name,
            .type = type_id,
            .node = node,
            .memory_bytes = ESP_CLUSTER_MAX_MEMORY_BYTES,
            .hub = -1,
        };
        ESP_TRY(esp_cluster_builder_add_device(builder, &device, &vertex, diag));
        const esp_cluster_link_t link = {NULL, vertex, hub, 1e9, 1000};
        ESP_TRY(esp_cluster_builder_add_cable(builder, &link, diag));
    }
    return ESP_OK;
}

static esp_status_t make_cluster(int32_t n, const esp_allocator_t *alloc,
                                 esp_cluster_t **cluster_out, esp_diag_t *diag)
{
    esp_cluster_builder_t *builder;
    ESP_TRY(esp_cluster_builder_create("profile", alloc, &builder, diag));
    esp_status_t status = add_devices(builder, n, diag);
    if (status == ESP_OK)
        status = esp_cluster_builder_freeze(builder, 0, cluster_out, diag);
    esp_cluster_builder_destroy(builder);
    return status;
}

/* Body: the batch split between devices 0 and 1. Optimizer updates: split into shards. */
static esp_status_t lower(const esp_graph_t *g, int64_t share, int32_t shards,
                          const esp_allocator_t *alloc, esp_i_profile_share_t *out,
                          esp_diag_t *diag)
{
    int32_t device[ESP_I_PROFILE_SHARDS];
    double even[ESP_I_PROFILE_SHARDS], body[2] = {(double)share, (double)(g->batch - share)};
    for (int32_t i = 0; i < ESP_I_PROFILE_SHARDS; i++) {
        device[i] = i;
        even[i] = 1;
    }
    const esp_mesh_spec_t mesh[] = {{share < g->batch ? 2 : 1, device, body},
                                    {shards, device, even}};
    int32_t *op_mesh = esp_i_alloc_array(alloc, g->n_ops, sizeof *op_mesh);
    uint8_t *op_mode = esp_i_alloc_array(alloc, g->n_ops, sizeof *op_mode);
    esp_status_t status = op_mesh && op_mode ? ESP_OK : esp_i_nomem(diag);
    for (esp_op_id_t op = 0; status == ESP_OK && op < g->n_ops; op++)
        if (g->op_kind[op] == ESP_KIND_UPDATE && shards > 1 &&
            g->op_attr[op].update.optimizer != ESP_OPTIMIZER_STATISTIC) {
            op_mesh[op] = 1;
            op_mode[op] = ESP_MODE_SHARD;
        }
    const esp_strategy_t strategy = {
        .n_meshes = 2, .mesh = mesh, .op_mesh = op_mesh, .op_mode = op_mode, .micro_batches = 1};
    if (status == ESP_OK)
        status = esp_lower(out->lowerer, &strategy, &out->deployment, diag);
    esp_i_free(alloc, op_mesh);
    esp_i_free(alloc, op_mode);
    return status;
}

esp_status_t esp_i_profile_share_create(const esp_graph_t *graph, int64_t share, int32_t shards,
                                        const esp_allocator_t *alloc, esp_i_profile_share_t *out,
                                        esp_diag_t *diag)
{
    *out = (esp_i_profile_share_t){0};
    int32_t n = shards > 2 ? shards : 2;
    esp_status_t status = make_cluster(n, alloc, &out->cluster, diag);
    if (status == ESP_OK)
        status = esp_cost_create(graph, out->cluster, ESP_PRECISION_FP32, alloc, &out->cost, diag);
    if (status == ESP_OK)
        status = esp_lowerer_create(out->cost, alloc, &out->lowerer, diag);
    if (status == ESP_OK)
        status = lower(graph, share, shards, alloc, out, diag);
    if (status == ESP_OK)
        status = esp_deployment_pack(out->lowerer, diag);
    if (status == ESP_OK)
        status = esp_i_program_create(out->deployment, 0, false, (esp_i_library_t){0}, alloc,
                                      &out->program, diag);
    if (status != ESP_OK)
        esp_i_profile_share_fini(out);
    return status;
}

void esp_i_profile_share_fini(esp_i_profile_share_t *share)
{
    if (share->program)
        esp_i_program_destroy(share->program);
    esp_lowerer_destroy(share->lowerer);
    esp_cost_destroy(share->cost);
    esp_cluster_destroy(share->cluster);
    *share = (esp_i_profile_share_t){0};
}
