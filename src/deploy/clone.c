/* A copy of a deployment in one arena. */
#include "base/base.h"
#include "espalier/deploy.h"

#include <string.h>

/* The handle is the address of the first member. */
typedef struct owned {
    esp_deployment_t pub;
    esp_i_arena_t arena;
} owned_t;

/* A copy of n elements of `size` bytes; NULL stays NULL. */
static bool copy(esp_i_arena_t *arena, const void *from, int64_t n, size_t size, void *to)
{
    void *fresh = NULL;
    if (from != NULL) {
        if ((fresh = esp_i_arena_alloc(arena, n, size)) == NULL)
            return false;
        if (n > 0)
            memcpy(fresh, from, (size_t)n * size);
    }
    memcpy(to, &fresh, sizeof fresh);
    return true;
}

/* Replaces the array by a copy of n elements. */
#define OWN(array, n) copy(arena, d->array, (n), sizeof *d->array, &d->array)

static bool own_classes(esp_i_arena_t *arena, esp_deployment_t *d)
{
    return OWN(class_device, d->class_offset[d->n_classes]) &&
           OWN(class_offset, d->n_classes + 1) && OWN(device_class, d->cluster->n_devices) &&
           OWN(class_resident_bytes, d->n_classes) && OWN(class_arena_bytes, d->n_classes);
}

static bool own_meshes(esp_i_arena_t *arena, esp_deployment_t *d)
{
    int32_t devices = d->mesh_offset[d->n_meshes], classes = d->mesh_class_offset[d->n_meshes];
    return OWN(mesh_device, devices) && OWN(mesh_units, devices) && OWN(mesh_class, classes) &&
           OWN(mesh_class_units, classes) && OWN(mesh_offset, d->n_meshes + 1) &&
           OWN(mesh_class_offset, d->n_meshes + 1);
}

static bool own_values(esp_i_arena_t *arena, esp_deployment_t *d)
{
    return OWN(value_tensor, d->n_values) && OWN(value_mesh, d->n_values) &&
           OWN(value_form, d->n_values) && OWN(value_share, d->n_values) &&
           OWN(value_view, d->n_values) && OWN(value_micro, d->n_values) &&
           OWN(value_buffer, d->n_values) && OWN(buffer_value, d->n_buffers) &&
           OWN(buffer_class, d->n_buffers) && OWN(buffer_bytes, d->n_buffers) &&
           OWN(buffer_root, d->n_buffers) && OWN(buffer_producer, d->n_buffers) &&
           OWN(buffer_resident, d->n_buffers) && OWN(buffer_offset, d->n_buffers);
}

static bool own_tasks(esp_i_arena_t *arena, esp_deployment_t *d)
{
    int32_t n = d->n_tasks;
    return OWN(task_kind, n) && OWN(task_mode, n) && OWN(task_class, n) && OWN(task_op, n) &&
           OWN(task_micro, n) && OWN(task_ns, n) && OWN(task_comm, n) &&
           OWN(task_scratch_offset, n) && OWN(read_buffer, d->read_offset[n]) &&
           OWN(read_offset, n + 1) && OWN(write_buffer, d->write_offset[n]) &&
           OWN(write_offset, n + 1);
}

/* Movements share patterns: one copy of each distinct one. A pattern follows its last copy often,
 * so the search starts there. */
static bool own_patterns(esp_i_arena_t *arena, esp_deployment_t *d)
{
    const esp_pattern_t *const *from = d->comm_pattern;
    const esp_pattern_t **to = esp_i_arena_alloc(arena, d->n_comms, sizeof *to);
    const esp_pattern_t **seen = esp_i_arena_alloc(arena, d->n_comms, sizeof *seen);
    const esp_pattern_t **twin = esp_i_arena_alloc(arena, d->n_comms, sizeof *twin);
    if (!to || !seen || !twin)
        return false;
    int32_t n = 0;
    for (int32_t c = 0; c < d->n_comms; c++) {
        int32_t k = n - 1;
        while (k >= 0 && seen[k] != from[c])
            k--;
        if (k < 0) {
            esp_pattern_t *fresh = esp_i_arena_alloc(arena, 1, sizeof *fresh);
            if (!fresh)
                return false;
            *fresh = *from[c];
            if (!copy(arena, fresh->link, fresh->n_links, sizeof *fresh->link, &fresh->link) ||
                !copy(arena, fresh->load, fresh->n_links, sizeof *fresh->load, &fresh->load))
                return false;
            seen[k = n++] = from[c];
            twin[k] = fresh;
        }
        to[c] = twin[k];
    }
    d->comm_pattern = to;
    return true;
}

static bool own_comms(esp_i_arena_t *arena, esp_deployment_t *d)
{
    int32_t n = d->n_comms;
    return own_patterns(arena, d) && OWN(comm_kind, n) && OWN(comm_bytes, n) &&
           OWN(comm_collective, n) && OWN(comm_src, d->comm_pair_offset[n]) &&
           OWN(comm_dst, d->comm_pair_offset[n]) && OWN(comm_pair_offset, n + 1) &&
           OWN(comm_class, d->comm_class_offset[n]) &&
           OWN(comm_class_ns, d->comm_class_offset[n]) &&
           OWN(comm_scratch_offset, d->comm_class_offset[n]) && OWN(comm_class_offset, n + 1);
}

static bool own_order(esp_i_arena_t *arena, esp_deployment_t *d)
{
    int32_t n = d->n_tasks;
    return OWN(extra_before, d->n_extra) && OWN(extra_after, d->n_extra) &&
           OWN(cross_before, d->n_cross) && OWN(cross_after, d->n_cross) &&
           OWN(successor, d->successor_offset[n]) && OWN(successor_offset, n + 1) &&
           OWN(n_predecessors, n) && OWN(order, n) && OWN(position, n);
}

esp_status_t esp_deployment_clone(const esp_deployment_t *deployment, const esp_allocator_t *alloc,
                                  esp_deployment_t **clone_out)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    owned_t *owned = esp_i_alloc_array(&from, 1, sizeof *owned);
    if (!owned)
        return ESP_ERR_NOMEM;
    esp_i_arena_init(&owned->arena, &from);
    owned->pub = *deployment;
    esp_i_arena_t *arena = &owned->arena;
    esp_deployment_t *d = &owned->pub;
    if (!own_classes(arena, d) || !own_meshes(arena, d) || !own_values(arena, d) ||
        !own_tasks(arena, d) || !own_comms(arena, d) || !own_order(arena, d)) {
        esp_deployment_destroy(d);
        return ESP_ERR_NOMEM;
    }
    *clone_out = d;
    return ESP_OK;
}

void esp_deployment_destroy(esp_deployment_t *clone)
{
    if (!clone)
        return;
    owned_t *owned = (owned_t *)(void *)clone;
    esp_allocator_t alloc = owned->arena.alloc;
    esp_i_arena_fini(&owned->arena);
    esp_i_free(&alloc, owned);
}
