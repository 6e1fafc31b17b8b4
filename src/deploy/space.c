/* The decision space: meshes, actions, and the expansion of decisions to a strategy. */
#include "deploy/space.h"

#include <stdio.h>
#include <string.h>

/* More device groups than this: not all masks, only runs of groups in order of speed. */
#define ALL_MASKS_UP_TO 4
/* More devices than this: explicit single devices only as first of their group. */
#define ALL_DEVICES_UP_TO 16

const char *esp_sync_name(esp_sync_t sync)
{
    switch (sync) {
#define NAME(name, text, help)                                                                     \
    case ESP_SYNC_##name:                                                                          \
        return text;
        ESP_SYNC_MAP(NAME)
#undef NAME
    case ESP_SYNC_COUNT:
        break;
    }
    return "?";
}

esp_space_opts_t esp_space_opts_default(void)
{
    return (esp_space_opts_t){.struct_size = sizeof(esp_space_opts_t), .max_groups = 40};
}

/* ---- meshes ---------------------------------------------------------------------------------- */

typedef struct making {
    esp_i_space_t *s;
    ESP_VEC(esp_mesh_spec_t) meshes;
    ESP_VEC(esp_action_t) actions;
} making_t;

static uint64_t group_bit(const esp_cluster_t *cluster, int32_t group)
{
    return cluster->n_groups > 64 ? 1 : (uint64_t)1 << group;
}

static bool mesh_same(const esp_mesh_spec_t *a, const esp_mesh_spec_t *b)
{
    if (a->n != b->n)
        return false;
    for (int32_t k = 0; k < a->n; k++)
        if (a->device[k] != b->device[k] || a->weight[k] != b->weight[k])
            return false;
    return true;
}

/* The mesh of the devices whose group is in the mask; an equal one that exists is used again. */
static esp_status_t mesh_add(making_t *m, uint64_t mask, esp_shares_t shares, int32_t *mesh_out)
{
    esp_i_space_t *s = m->s;
    const esp_cluster_t *cluster = s->space.cost->cluster;
    int32_t *device = esp_i_arena_alloc(&s->arena, cluster->n_devices, sizeof *device);
    double *weight = esp_i_arena_alloc(&s->arena, cluster->n_devices, sizeof *weight);
    if (!device || !weight)
        return ESP_ERR_NOMEM;
    esp_mesh_spec_t mesh = {.n = 0, .device = device, .weight = weight};
    bool alike = true;
    for (int32_t d = 0; d < cluster->n_devices; d++)
        if (mask & group_bit(cluster, cluster->device_group[d])) {
            device[mesh.n] = d;
            weight[mesh.n++] = shares == ESP_SHARES_EQUAL ? 1.0 : 1e9 / s->space.device_ns[d];
            alike = alike && cluster->device_type[d] == cluster->device_type[device[0]];
        }
    for (int32_t k = 0; k < mesh.n && alike; k++)
        weight[k] = 1.0;
    for (int32_t i = 0; i < m->meshes.count; i++)
        if (mesh_same(&m->meshes.data[i], &mesh)) {
            *mesh_out = i;
            return ESP_OK;
        }
    *mesh_out = m->meshes.count;
    return esp_vec_push(&s->alloc, &m->meshes, mesh) ? ESP_OK : ESP_ERR_NOMEM;
}

static esp_status_t singles_add(making_t *m)
{
    esp_i_space_t *s = m->s;
    int32_t n = s->space.cost->cluster->n_devices;
    int32_t *device = esp_i_arena_alloc(&s->arena, n, sizeof *device);
    double *weight = esp_i_arena_alloc(&s->arena, n, sizeof *weight);
    if (!device || !weight)
        return ESP_ERR_NOMEM;
    for (int32_t d = 0; d < n; d++) {
        device[d] = d;
        weight[d] = 1.0;
        esp_mesh_spec_t mesh = {1, device + d, weight + d};
        if (!esp_vec_push(&s->alloc, &m->meshes, mesh))
            return ESP_ERR_NOMEM;
    }
    return ESP_OK;
}

/* ---- actions ------------------------------------------------------------------------------------
 */

static esp_status_t action_add(making_t *m, uint64_t mask, int32_t mesh, esp_shares_t shares,
                               esp_sync_t sync)
{
    esp_action_t action = {mask, ESP_NONE, mesh, shares, sync};
    return esp_vec_push(&m->s->alloc, &m->actions, action) ? ESP_OK : ESP_ERR_NOMEM;
}

static esp_status_t mask_add(making_t *m, uint64_t mask)
{
    int32_t equal, proportional;
    ESP_TRY(mesh_add(m, mask, ESP_SHARES_EQUAL, &equal));
    if (m->meshes.data[equal].n == 1)
        return ESP_OK; /* an explicit device */
    ESP_TRY(mesh_add(m, mask, ESP_SHARES_PROPORTIONAL, &proportional));
    for (int32_t shares = 0; shares < (equal == proportional ? 1 : 2); shares++)
        for (int32_t sync = 0; sync <= ESP_SYNC_SHARDED; sync++)
            ESP_TRY(action_add(m, mask, shares ? proportional : equal, (esp_shares_t)shares,
                               (esp_sync_t)sync));
    ESP_TRY(action_add(m, mask, equal, ESP_SHARES_EQUAL, ESP_SYNC_DUPLICATE));
    return action_add(m, mask, equal, ESP_SHARES_EQUAL, ESP_SYNC_MODEL_PARALLEL);
}

/* Device groups from the fastest device to the slowest, ties by id. */
static void groups_by_speed(const esp_i_space_t *s, int32_t *order)
{
    const esp_cluster_t *cluster = s->space.cost->cluster;
    for (int32_t g = 0; g < cluster->n_groups; g++) {
        double ns = s->space.device_ns[cluster->group_device[cluster->group_offset[g]]];
        int32_t at = g;
        for (; at > 0; at--) {
            int32_t before = order[at - 1];
            if (s->space.device_ns[cluster->group_device[cluster->group_offset[before]]] <= ns)
                break;
            order[at] = before;
        }
        order[at] = g;
    }
}

static esp_status_t masks_add(making_t *m)
{
    const esp_cluster_t *cluster = m->s->space.cost->cluster;
    int32_t n = cluster->n_groups, order[64];
    if (n > 64)
        return mask_add(m, 1);
    if (n <= ALL_MASKS_UP_TO) {
        for (uint64_t mask = 1; mask < (uint64_t)1 << n; mask++)
            ESP_TRY(mask_add(m, mask));
        return ESP_OK;
    }
    groups_by_speed(m->s, order);
    for (int32_t first = 0; first < n; first++) {
        uint64_t mask = 0;
        for (int32_t last = first; last < n; last++) {
            mask |= (uint64_t)1 << order[last];
            ESP_TRY(mask_add(m, mask));
        }
    }
    return ESP_OK;
}

static esp_status_t devices_add(making_t *m)
{
    const esp_cluster_t *cluster = m->s->space.cost->cluster;
    for (int32_t d = 0; d < cluster->n_devices; d++) {
        int32_t group = cluster->device_group[d];
        if (cluster->n_devices > ALL_DEVICES_UP_TO &&
            cluster->group_device[cluster->group_offset[group]] != d)
            continue;
        esp_action_t action = {0, d, d, ESP_SHARES_EQUAL, ESP_SYNC_ALLREDUCE};
        if (!esp_vec_push(&m->s->alloc, &m->actions, action))
            return ESP_ERR_NOMEM;
    }
    return ESP_OK;
}

static esp_status_t making_publish(making_t *m)
{
    esp_assert(m->meshes.count > 0 && m->actions.count > 0); /* there is a device */
    esp_i_space_t *s = m->s;
    esp_mesh_spec_t *mesh = esp_i_arena_alloc(&s->arena, m->meshes.count, sizeof *mesh);
    esp_action_t *action = esp_i_arena_alloc(&s->arena, m->actions.count, sizeof *action);
    if (!mesh || !action)
        return ESP_ERR_NOMEM;
    memcpy(mesh, m->meshes.data, (size_t)m->meshes.count * sizeof *mesh);
    memcpy(action, m->actions.data, (size_t)m->actions.count * sizeof *action);
    s->space.n_meshes = m->meshes.count;
    s->space.mesh = mesh;
    s->space.n_actions = m->actions.count;
    s->space.action = action;
    return ESP_OK;
}

esp_status_t esp_i_actions_make(esp_i_space_t *s, esp_diag_t *diag)
{
    making_t m = {.s = s};
    esp_status_t status = singles_add(&m);
    if (status == ESP_OK)
        status = masks_add(&m);
    if (status == ESP_OK)
        status = devices_add(&m);
    if (status == ESP_OK)
        status = making_publish(&m);
    esp_vec_free(&s->alloc, &m.meshes);
    esp_vec_free(&s->alloc, &m.actions);
    return status == ESP_OK ? ESP_OK : esp_i_nomem(diag);
}

/* ---- the space
 * ----------------------------------------------------------------------------------- */

esp_status_t esp_space_create(const esp_cost_t *cost, const esp_space_opts_t *opts_or_null,
                              const esp_allocator_t *alloc_or_null, esp_space_t **space_out,
                              esp_diag_t *diag)
{
    esp_space_opts_t opts = opts_or_null ? *opts_or_null : esp_space_opts_default();
    if (opts.struct_size != sizeof opts)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "space options of another version");
    if (opts.max_groups < 1 || opts.max_groups > 4096)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "max_groups is %d; it must be in [1, 4096]",
                          opts.max_groups);
    esp_allocator_t alloc = esp_i_allocator(alloc_or_null);
    esp_i_space_t *s = esp_i_alloc_array(&alloc, 1, sizeof *s);
    if (!s)
        return esp_i_nomem(diag);
    s->alloc = alloc;
    s->space.cost = cost;
    esp_i_arena_init(&s->arena, &alloc);
    esp_status_t status = esp_i_groups_find(s, &opts, diag);
    if (status == ESP_OK)
        status = esp_i_actions_make(s, diag);
    if (status != ESP_OK) {
        esp_space_destroy(&s->space);
        return status;
    }
    *space_out = &s->space;
    return ESP_OK;
}

void esp_space_destroy(esp_space_t *space)
{
    if (!space)
        return;
    esp_i_space_t *s = (esp_i_space_t *)space;
    esp_allocator_t alloc = s->alloc;
    esp_i_arena_fini(&s->arena);
    esp_i_free(&alloc, s);
}

int32_t esp_space_find_action(const esp_space_t *space, uint64_t groups, int32_t device,
                              esp_shares_t shares, esp_sync_t sync)
{
    for (int32_t a = 0; a < space->n_actions; a++) {
        const esp_action_t *action = &space->action[a];
        if (action->groups == groups && action->device == device && action->shares == shares &&
            action->sync == sync)
            return a;
    }
    return ESP_NONE;
}

void esp_action_text(const esp_space_t *space, int32_t action, char *text_out, size_t capacity)
{
    const esp_action_t *a = &space->action[action];
    const esp_cluster_t *cluster = space->cost->cluster;
    if (a->device != ESP_NONE) {
        snprintf(text_out, capacity, "on %s", cluster->vertex_name[a->device]);
        return;
    }
    int n = snprintf(text_out, capacity, "%s on ", esp_sync_name(a->sync));
    bool first = true;
    for (int32_t g = 0; g < cluster->n_groups && n >= 0 && (size_t)n < capacity; g++)
        if (a->groups & group_bit(cluster, g)) {
            n += snprintf(text_out + n, capacity - (size_t)n, "%s%s", first ? "" : " + ",
                          cluster->group_name[g]);
            first = false;
        }
    if (a->shares == ESP_SHARES_PROPORTIONAL && n >= 0 && (size_t)n < capacity)
        snprintf(text_out + n, capacity - (size_t)n, ", proportional shares");
}
