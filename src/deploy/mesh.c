/* Meshes (interned) and device classes (found anew for each strategy). */
#include "deploy/lowerer.h"

#include <string.h>

static uint64_t mesh_hash(int32_t n, const int32_t *device, const int64_t *units)
{
    uint64_t hash = esp_i_hash_bytes(14695981039346656037u, device, (size_t)n * sizeof *device);
    return esp_i_hash_bytes(hash, units, (size_t)n * sizeof *units);
}

static bool mesh_equal(const esp_i_mesh_t *mesh, int32_t n, const int32_t *device,
                       const int64_t *units)
{
    return mesh->n == n && memcmp(mesh->device, device, (size_t)n * sizeof *device) == 0 &&
           memcmp(mesh->units, units, (size_t)n * sizeof *units) == 0;
}

/* Room for one more mesh in the table of slots, which is kept at most half full. */
static esp_status_t mesh_table_grow(esp_lowerer_t *lw)
{
    if (2 * (lw->meshes.count + 1) <= lw->mesh_slot_count)
        return ESP_OK;
    int32_t count = lw->mesh_slot_count ? 2 * lw->mesh_slot_count : 64;
    int32_t *slots = esp_i_alloc_array(&lw->alloc, count, sizeof *slots);
    if (!slots)
        return ESP_ERR_NOMEM;
    for (int32_t i = 0; i < count; i++)
        slots[i] = ESP_NONE;
    for (int32_t m = 0; m < lw->meshes.count; m++) {
        uint64_t at = lw->meshes.data[m].hash & (uint64_t)(count - 1);
        while (slots[at] != ESP_NONE)
            at = (at + 1) & (uint64_t)(count - 1);
        slots[at] = m;
    }
    esp_i_free(&lw->alloc, lw->mesh_slots);
    lw->mesh_slots = slots;
    lw->mesh_slot_count = count;
    return ESP_OK;
}

/* Copies device list and shares into the arena, with the fractions that patterns are asked with. */
static esp_status_t mesh_make(esp_lowerer_t *lw, int32_t n, const int32_t *device,
                              const int64_t *units, esp_i_mesh_t *mesh)
{
    int32_t *devices = esp_i_arena_alloc(&lw->arena, n, sizeof *devices);
    int64_t *shares = esp_i_arena_alloc(&lw->arena, n, sizeof *shares);
    double *batch = esp_i_arena_alloc(&lw->arena, n, sizeof *batch);
    double *even = esp_i_arena_alloc(&lw->arena, n, sizeof *even);
    if (!devices || !shares || !batch || !even)
        return ESP_ERR_NOMEM;
    int64_t total = 0;
    for (int32_t k = 0; k < n; k++)
        total += units[k];
    for (int32_t k = 0; k < n; k++) {
        devices[k] = device[k];
        shares[k] = units[k];
        batch[k] = (double)units[k] / (double)total;
        even[k] = 1.0 / n;
    }
    *mesh = (esp_i_mesh_t){.n = n,
                           .device = devices,
                           .units = shares,
                           .batch_fraction = batch,
                           .even_fraction = even,
                           .hash = mesh_hash(n, device, units)};
    return ESP_OK;
}

static esp_status_t mesh_intern(esp_lowerer_t *lw, int32_t n, const int32_t *device,
                                const int64_t *units, int32_t *mesh_out)
{
    ESP_TRY(mesh_table_grow(lw));
    uint64_t mask = (uint64_t)(lw->mesh_slot_count - 1);
    uint64_t at = mesh_hash(n, device, units) & mask;
    for (; lw->mesh_slots[at] != ESP_NONE; at = (at + 1) & mask)
        if (mesh_equal(&lw->meshes.data[lw->mesh_slots[at]], n, device, units)) {
            *mesh_out = lw->mesh_slots[at];
            return ESP_OK;
        }
    esp_i_mesh_t mesh;
    ESP_TRY(mesh_make(lw, n, device, units, &mesh));
    if (!esp_vec_push(&lw->alloc, &lw->meshes, mesh))
        return ESP_ERR_NOMEM;
    lw->mesh_slots[at] = *mesh_out = lw->meshes.count - 1;
    return ESP_OK;
}

/* ---- the meshes of one strategy -------------------------------------------------------------- */

/* Shares of the batch by weight; devices without a share leave. */
static esp_status_t spec_intern(esp_lowerer_t *lw, const esp_mesh_spec_t *spec, int32_t index,
                                int32_t *mesh_out, esp_diag_t *diag)
{
    int32_t n_devices = lw->cluster->n_devices;
    if (spec->n < 1 || spec->n > n_devices)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "mesh %d has %d devices, the cluster %d", index,
                          spec->n, n_devices);
    int32_t *device = lw->device_scratch;
    int64_t *units = lw->units_scratch;
    for (int32_t k = 0; k < spec->n; k++) {
        bool ascending = k == 0 || spec->device[k] > spec->device[k - 1];
        if (spec->device[k] < 0 || spec->device[k] >= n_devices || !ascending)
            return esp_i_fail(diag, ESP_ERR_ARGUMENT, "mesh %d: device %d is out of range or order",
                              index, spec->device[k]);
        if (!(spec->weight[k] > 0 && spec->weight[k] < 1e300))
            return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                              "mesh %d: weight of device %d is not positive", index,
                              spec->device[k]);
    }
    int64_t batch = esp_i_max_i64(lw->graph->batch, 1) / lw->strategy->micro_batches;
    esp_i_apportion(batch, 1, spec->n, spec->weight, units);
    int32_t n = 0;
    for (int32_t k = 0; k < spec->n; k++)
        if (units[k] > 0) {
            device[n] = spec->device[k];
            units[n++] = units[k];
        }
    return mesh_intern(lw, n, device, units, mesh_out) == ESP_OK ? ESP_OK : esp_i_nomem(diag);
}

/*
 * Splits classes so that every mesh is a union of classes with equal units inside each. One pair
 * (old class, units) of a mesh becomes one new class, unless it is the whole old class.
 */
static void classes_refine(esp_lowerer_t *lw, const esp_i_mesh_t *mesh, int32_t *pair_class,
                           int64_t *pair_units, int32_t *pair_new)
{
    int32_t pairs = 0;
    for (int32_t k = 0; k < mesh->n; k++) {
        int32_t device = mesh->device[k], old = lw->device_class[device], p = 0;
        while (p < pairs && (pair_class[p] != old || pair_units[p] != mesh->units[k]))
            p++;
        if (p == pairs) {
            pair_class[p] = old;
            pair_units[p] = mesh->units[k];
            pair_new[p] = lw->n_classes + pairs;
            pairs++;
        }
        lw->device_class[device] = pair_new[p];
    }
    lw->n_classes += pairs;
}

/* Renumbers classes by first device, drops empty ones, lists members. Idle devices have none. */
static void classes_compact(esp_lowerer_t *lw, const uint8_t *used, int32_t *rename)
{
    int32_t n = 0, n_devices = lw->cluster->n_devices;
    for (int32_t c = 0; c < lw->n_classes; c++)
        rename[c] = ESP_NONE;
    memset(lw->class_size, 0, (size_t)n_devices * sizeof *lw->class_size);
    for (int32_t device = 0; device < n_devices; device++) {
        if (!used[device]) {
            lw->device_class[device] = ESP_NONE;
            continue;
        }
        int32_t *name = &rename[lw->device_class[device]];
        if (*name == ESP_NONE) {
            *name = n++;
            lw->class_type[*name] = lw->cluster->device_type[device];
        }
        lw->device_class[device] = *name;
        lw->class_size[*name]++;
    }
    lw->n_classes = n;
    lw->class_offset[0] = 0;
    for (int32_t c = 0; c < n; c++)
        lw->class_offset[c + 1] = lw->class_offset[c] + lw->class_size[c];
    for (int32_t device = n_devices - 1; device >= 0; device--)
        if (used[device]) {
            int32_t c = lw->device_class[device];
            lw->class_device[lw->class_offset[c] + --lw->class_size[c]] = device;
        }
    for (int32_t c = 0; c < n; c++)
        lw->class_size[c] = lw->class_offset[c + 1] - lw->class_offset[c];
}

/* Starts from one class per (type, usable memory). */
static void classes_initial(esp_lowerer_t *lw)
{
    const esp_cluster_t *cluster = lw->cluster;
    lw->n_classes = 0;
    for (int32_t device = 0; device < cluster->n_devices; device++) {
        int32_t like = 0;
        while (like < device &&
               (cluster->device_type[like] != cluster->device_type[device] ||
                cluster->device_memory_bytes[like] != cluster->device_memory_bytes[device]))
            like++;
        lw->device_class[device] = like < device ? lw->device_class[like] : lw->n_classes++;
    }
}

/* The row of a local mesh in the table of slots: no class has one yet. NULL: no memory. */
static int32_t *slots_new(esp_lowerer_t *lw, int32_t local)
{
    int64_t before = (int64_t)local * lw->n_classes, need = before + lw->n_classes;
    if (need > lw->mesh_slot_capacity) {
        int64_t capacity = 2 * need + 64;
        if (!esp_i_resize(&lw->alloc, &lw->mesh_slot_of, before, capacity,
                          sizeof *lw->mesh_slot_of))
            return NULL;
        lw->mesh_slot_capacity = (int32_t)capacity;
    }
    int32_t *slots = lw->mesh_slot_of + before;
    for (int32_t c = 0; c < lw->n_classes; c++)
        slots[c] = ESP_NONE;
    return slots;
}

/* Room for the classes of one more mesh of n devices. */
static bool classes_reserve(esp_lowerer_t *lw, int32_t n)
{
    const esp_allocator_t *alloc = &lw->alloc;
    int64_t need = (int64_t)lw->mesh_class.count + n + ESP_I_BLOCK;
    return esp_i_grow(alloc, &lw->mesh_class.data, &lw->mesh_class.capacity, need,
                      sizeof *lw->mesh_class.data) &&
           esp_i_grow(alloc, &lw->mesh_class_units.data, &lw->mesh_class_units.capacity, need,
                      sizeof *lw->mesh_class_units.data) &&
           esp_i_grow(alloc, &lw->mesh_class_part.data, &lw->mesh_class_part.capacity, need,
                      sizeof *lw->mesh_class_part.data);
}

/* Classes of a local mesh and the slot table row. */
static esp_status_t local_index(esp_lowerer_t *lw, int32_t local)
{
    const esp_i_mesh_t mesh = *esp_i_mesh_of(lw, local);
    esp_i_local_mesh_t *entry = &lw->local.data[local];
    int32_t *slots = slots_new(lw, local), *member = lw->device_scratch, n = 0;
    if (!slots || !classes_reserve(lw, mesh.n))
        return ESP_ERR_NOMEM;
    int32_t *class_ = lw->mesh_class.data + lw->mesh_class.count;
    int64_t *units = lw->mesh_class_units.data + lw->mesh_class.count;
    double *part = lw->mesh_class_part.data + lw->mesh_class.count;
    for (int32_t k = 0; k < mesh.n; k++) {
        int32_t c = lw->device_class[mesh.device[k]];
        if (slots[c] != ESP_NONE)
            continue;
        class_[n] = c;
        units[n] = mesh.units[k];
        part[n] = mesh.batch_fraction[k];
        member[n] = mesh.device[k];
        slots[c] = n++;
    }
    entry->class_first = lw->mesh_class.count;
    entry->n_classes = n;
    lw->mesh_class.count = lw->mesh_class_units.count = lw->mesh_class_part.count += n;
    int32_t members;
    ESP_TRY(mesh_intern(lw, n, member, units, &members));
    entry->places = (uint64_t)(uint32_t)entry->mesh << 32 | (uint32_t)members;
    return ESP_OK;
}

/* Marks the meshes that ops use; the others neither split classes nor count. */
static esp_status_t meshes_used(const esp_lowerer_t *lw, uint8_t *mesh_used, esp_diag_t *diag)
{
    const esp_strategy_t *strategy = lw->strategy;
    for (esp_op_id_t op = 0; op < lw->graph->n_ops; op++) {
        if (lw->facts.op_stage[op] == ESP_I_OP_SKIP)
            continue;
        int32_t mesh = strategy->op_mesh[op];
        if (mesh == ESP_NONE && strategy->op_mode[op] == ESP_MODE_WHOLE)
            continue;
        if (mesh < 0 || mesh >= strategy->n_meshes || strategy->op_mode[op] > ESP_MODE_SHARD)
            return esp_i_fail(diag, ESP_ERR_ARGUMENT, "op %s: mesh %d or mode %d is out of range",
                              lw->graph->op_name[op], mesh, strategy->op_mode[op]);
        mesh_used[mesh] = 1;
    }
    return ESP_OK;
}

/* Local meshes are distinct: specs that come to the same devices and shares share one. */
static esp_status_t local_add(esp_lowerer_t *lw, int32_t mesh, int32_t *local_out)
{
    for (int32_t m = 0; m < lw->local.count; m++)
        if (lw->local.data[m].mesh == mesh) {
            *local_out = m;
            return ESP_OK;
        }
    esp_i_local_mesh_t local = {.mesh = mesh, .n = lw->meshes.data[mesh].n};
    if (!esp_vec_push(&lw->alloc, &lw->local, local))
        return ESP_ERR_NOMEM;
    *local_out = lw->local.count - 1;
    return ESP_OK;
}

static esp_status_t meshes_intern(esp_lowerer_t *lw, const uint8_t *mesh_used, uint8_t *device_used,
                                  void *scratch, esp_diag_t *diag)
{
    int32_t n_devices = lw->cluster->n_devices;
    int64_t *pair_units = scratch;
    int32_t *pair_class = (int32_t *)(void *)(pair_units + n_devices);
    int32_t *pair_new = pair_class + n_devices;
    classes_initial(lw);
    for (int32_t m = 0; m < lw->strategy->n_meshes; m++) {
        int32_t mesh;
        if (!mesh_used[m])
            continue;
        ESP_TRY(spec_intern(lw, &lw->strategy->mesh[m], m, &mesh, diag));
        int32_t before = lw->local.count;
        if (local_add(lw, mesh, &lw->spec_local[m]) != ESP_OK)
            return esp_i_nomem(diag);
        if (lw->local.count == before)
            continue;
        for (int32_t k = 0; k < lw->meshes.data[mesh].n; k++)
            device_used[lw->meshes.data[mesh].device[k]] = 1;
        classes_refine(lw, &lw->meshes.data[mesh], pair_class, pair_units, pair_new);
    }
    return ESP_OK;
}

/* The mesh of ops that run wherever others do; only the list of devices counts. */
static esp_status_t everywhere_add(esp_lowerer_t *lw, const uint8_t *device_used)
{
    int32_t n = 0, mesh;
    for (int32_t d = 0; d < lw->cluster->n_devices; d++)
        if (device_used[d]) {
            lw->device_scratch[n] = d;
            lw->units_scratch[n++] = 1;
        }
    lw->everywhere = ESP_NONE;
    if (n == 0)
        return ESP_OK;
    ESP_TRY(mesh_intern(lw, n, lw->device_scratch, lw->units_scratch, &mesh));
    return local_add(lw, mesh, &lw->everywhere);
}

esp_status_t esp_i_mesh_prepare(esp_lowerer_t *lw, esp_diag_t *diag)
{
    int32_t n_devices = lw->cluster->n_devices, n_meshes = lw->strategy->n_meshes;
    lw->local.count = 0;
    lw->mesh_class.count = lw->mesh_class_units.count = lw->mesh_class_part.count = 0;
    if (!esp_i_resize(&lw->alloc, &lw->spec_local, 0, n_meshes, sizeof *lw->spec_local))
        return esp_i_nomem(diag);
    size_t per_device = sizeof(int64_t) + 2 * sizeof(int32_t);
    int32_t *rename = NULL;
    char *scratch =
        esp_i_alloc_array(&lw->alloc, 1, (size_t)n_devices * (per_device + 1) + (size_t)n_meshes);
    if (!scratch)
        return esp_i_nomem(diag);
    uint8_t *device_used = (uint8_t *)scratch + (size_t)n_devices * per_device;
    uint8_t *mesh_used = device_used + n_devices;
    esp_status_t status = meshes_used(lw, mesh_used, diag);
    if (status == ESP_OK)
        status = meshes_intern(lw, mesh_used, device_used, scratch, diag);
    if (status == ESP_OK &&
        !(rename = esp_i_alloc_array(&lw->alloc, lw->n_classes, sizeof *rename)))
        status = esp_i_nomem(diag);
    if (status == ESP_OK && everywhere_add(lw, device_used) != ESP_OK)
        status = esp_i_nomem(diag);
    if (status == ESP_OK)
        classes_compact(lw, device_used, rename);
    for (int32_t m = 0; m < lw->local.count && status == ESP_OK; m++)
        if (local_index(lw, m) != ESP_OK)
            status = esp_i_nomem(diag);
    esp_i_free(&lw->alloc, rename);
    esp_i_free(&lw->alloc, scratch);
    return status;
}

bool esp_i_mesh_contains(const esp_lowerer_t *lw, int32_t outer, int32_t inner)
{
    const esp_i_local_mesh_t *entry = &lw->local.data[inner];
    if (outer == inner)
        return true;
    for (int32_t i = 0; i < entry->n_classes; i++)
        if (esp_i_mesh_slot(lw, outer, lw->mesh_class.data[entry->class_first + i]) == ESP_NONE)
            return false;
    return true;
}

int32_t esp_i_mesh_union(esp_lowerer_t *lw, int32_t a, int32_t b)
{
    if (esp_i_mesh_contains(lw, a, b))
        return a;
    if (esp_i_mesh_contains(lw, b, a))
        return b;
    const esp_i_mesh_t *x = esp_i_mesh_of(lw, a), *y = esp_i_mesh_of(lw, b);
    int32_t *device = lw->device_scratch, n = 0, i = 0, j = 0;
    int64_t *units = lw->units_scratch;
    while (i < x->n || j < y->n) {
        bool left = j == y->n || (i < x->n && x->device[i] <= y->device[j]);
        if (left && j < y->n && x->device[i] == y->device[j])
            j++;
        units[n] = 1; /* a union carries partials only: it has no shares */
        device[n++] = left ? x->device[i++] : y->device[j++];
    }
    int32_t mesh;
    if (mesh_intern(lw, n, device, units, &mesh) != ESP_OK)
        return ESP_NONE;
    int32_t before = lw->local.count, found;
    if (local_add(lw, mesh, &found) != ESP_OK ||
        (lw->local.count > before && local_index(lw, found) != ESP_OK))
        return ESP_NONE;
    return found;
}
