/* Plans in memory: copies, and whether one is for a graph and a cluster. */
#include "plan/plan.h"

#include <string.h>

/* ---- copies -------------------------------------------------------------------------------- */

/* Replaces the array that the pointer at `at` points to by a copy; false: no memory. */
static bool own(esp_i_arena_t *arena, void *at, int64_t n, size_t size)
{
    void *from, *fresh = esp_i_arena_alloc(arena, n, size);
    memcpy(&from, at, sizeof from);
    if (!fresh)
        return false;
    if (n > 0)
        memcpy(fresh, from, (size_t)n * size);
    memcpy(at, &fresh, sizeof fresh);
    return true;
}

/* Replaces *text, unless it is NULL. */
static bool own_text(esp_i_arena_t *arena, const char **text)
{
    return !*text || (*text = esp_i_arena_strdup(arena, *text)) != NULL;
}

static bool own_texts(esp_i_arena_t *arena, esp_plan_t *p)
{
    const char **texts[] = {&p->version,
                            &p->model_path,
                            &p->model_sha256,
                            &p->batch_dim,
                            &p->dims,
                            &p->cluster_path,
                            &p->cluster_sha256,
                            &p->cluster_text,
                            &p->graph_sha256,
                            &p->costs_path,
                            &p->costs_sha256,
                            &p->training.train_regex,
                            &p->training.freeze_regex,
                            &p->training.no_decay_regex};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!own_text(arena, texts[i]))
            return false;
    return true;
}

static bool own_strategy(esp_i_arena_t *arena, esp_strategy_t *s, int32_t n_ops)
{
    esp_mesh_spec_t *mesh = esp_i_arena_alloc(arena, s->n_meshes, sizeof *mesh);
    if (!mesh || !own(arena, &s->op_mesh, n_ops, sizeof *s->op_mesh) ||
        !own(arena, &s->op_mode, n_ops, sizeof *s->op_mode))
        return false;
    for (int32_t m = 0; m < s->n_meshes; m++) {
        mesh[m] = s->mesh[m];
        if (!own(arena, &mesh[m].device, mesh[m].n, sizeof *mesh[m].device) ||
            !own(arena, &mesh[m].weight, mesh[m].n, sizeof *mesh[m].weight))
            return false;
    }
    s->mesh = mesh;
    return true;
}

/* An array of structs whose first member is a name. */
static bool own_named(esp_i_arena_t *arena, void *at, int32_t n, size_t size)
{
    char *item;
    if (!own(arena, at, n, size))
        return false;
    memcpy(&item, at, sizeof item);
    for (int32_t i = 0; i < n; i++, item += size)
        if (!own_text(arena, (const char **)(void *)item))
            return false;
    return true;
}

esp_status_t esp_plan_clone(const esp_plan_t *plan, const esp_allocator_t *alloc,
                            esp_plan_t **clone_out, esp_diag_t *diag)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    ESP_TRY(esp_i_plan_validate(plan, ESP_ERR_ARGUMENT, &from, diag));
    esp_i_plan_t *owned = esp_i_alloc_array(&from, 1, sizeof *owned);
    if (!owned)
        return esp_i_nomem(diag);
    esp_i_arena_t *arena = &owned->arena;
    esp_plan_t *p = &owned->pub;
    esp_i_arena_init(arena, &from);
    *p = *plan;
    if (!own_texts(arena, p) || !own_strategy(arena, &p->strategy, p->n_ops) ||
        !own(arena, &p->op_group, p->n_ops, sizeof *p->op_group) ||
        !own_named(arena, &p->op_name, p->n_ops, sizeof *p->op_name) ||
        !own_named(arena, &p->device, p->n_devices, sizeof *p->device) ||
        !own_named(arena, &p->group, p->n_groups, sizeof *p->group) ||
        !own_named(arena, &p->baseline, p->n_baselines, sizeof *p->baseline)) {
        esp_plan_destroy(p);
        return esp_i_nomem(diag);
    }
    *clone_out = p;
    return ESP_OK;
}

void esp_plan_destroy(esp_plan_t *plan)
{
    if (!plan)
        return;
    esp_i_plan_t *owned = (esp_i_plan_t *)(void *)plan;
    esp_allocator_t alloc = owned->arena.alloc;
    esp_i_arena_fini(&owned->arena);
    esp_i_free(&alloc, owned);
}

/* ---- is it for these? ---------------------------------------------------------------------- */

static esp_status_t check_cluster(const esp_plan_t *plan, const esp_cluster_t *cluster,
                                  esp_diag_t *diag)
{
    char hash[65];
    if (plan->n_devices != cluster->n_devices)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the plan is for %d devices, the cluster has %d",
                          plan->n_devices, cluster->n_devices);
    for (int32_t i = 0; i < plan->n_devices; i++) {
        const esp_plan_device_t *device = &plan->device[i];
        if (strcmp(device->name, cluster->vertex_name[i]) != 0)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "device %d of the plan is %s, of the cluster %s", i, device->name,
                              cluster->vertex_name[i]);
        if (device->capacity_bytes != cluster->device_memory_bytes[i])
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "device %s has %lld bytes in the plan, %lld in the cluster",
                              device->name, (long long)device->capacity_bytes,
                              (long long)cluster->device_memory_bytes[i]);
    }
    ESP_TRY(esp_cluster_hash(cluster, NULL, hash, diag));
    if (strcmp(hash, plan->cluster_sha256) != 0)
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "the cluster has changed since it was planned for: its hash is %.12s.., "
                          "in the plan %.12s..",
                          hash, plan->cluster_sha256);
    return ESP_OK;
}

static esp_status_t check_graph(const esp_plan_t *plan, const esp_graph_t *graph, esp_diag_t *diag)
{
    char hash[65];
    if (plan->batch != graph->batch)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the batch of the plan is %lld, of the graph %lld",
                          (long long)plan->batch, (long long)graph->batch);
    if (plan->n_ops != graph->n_ops)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the plan has %d ops, the graph %d", plan->n_ops,
                          graph->n_ops);
    for (int32_t i = 0; i < plan->n_ops; i++)
        if (strcmp(plan->op_name[i], graph->op_name[i]) != 0)
            return esp_i_fail(diag, ESP_ERR_INVALID, "op %d of the plan is %s, of the graph %s", i,
                              plan->op_name[i], graph->op_name[i]);
    if (esp_graph_hash(graph, hash) != ESP_OK)
        return esp_i_nomem(diag);
    if (strcmp(hash, plan->graph_sha256) != 0)
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "the training graph has changed since it was planned: its hash is "
                          "%.12s.., in the plan %.12s..",
                          hash, plan->graph_sha256);
    return ESP_OK;
}

esp_status_t esp_plan_check(const esp_plan_t *plan, const esp_graph_t *graph,
                            const esp_cluster_t *cluster, esp_diag_t *diag)
{
    ESP_TRY(esp_i_plan_validate(plan, ESP_ERR_INVALID, NULL, diag));
    ESP_TRY(check_cluster(plan, cluster, diag));
    return check_graph(plan, graph, diag);
}

esp_status_t esp_plan_hash_file(const char *path, char hex_out[65], esp_diag_t *diag)
{
    char *data;
    int64_t length;
    ESP_TRY(esp_i_file_read(&esp_i_malloc, path, INT64_C(2) << 30, &data, &length, diag));
    esp_i_sha256(data, (size_t)length, hex_out);
    esp_i_free(&esp_i_malloc, data);
    return ESP_OK;
}
