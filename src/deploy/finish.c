/* After lowering: dependencies, and the deployment that points at it all. */
#include "deploy/lowerer.h"

#include <string.h>

static void offsets_close(esp_lowerer_t *lw)
{
    int32_t n = lw->tasks.n;
    lw->tasks.read_offset[n] = lw->reads.count;
    lw->tasks.write_offset[n] = lw->writes.count;
    lw->comms.pair_offset[lw->comms.n] = lw->pair_src.count;
    lw->comms.class_offset[lw->comms.n] = lw->comm_classes.count;
}

/* The mesh arrays as the deployment shows them. */
static bool meshes_publish(esp_lowerer_t *lw)
{
    int32_t n = lw->local.count;
    int64_t total = 0, at = 0;
    for (int32_t m = 0; m < n; m++)
        total += esp_i_mesh_of(lw, m)->n;
    if (!esp_i_resize(&lw->alloc, &lw->d_mesh_offset, 0, n + 1, sizeof(int32_t)) ||
        !esp_i_resize(&lw->alloc, &lw->d_mesh_class_offset, 0, n + 1, sizeof(int32_t)) ||
        !esp_i_resize(&lw->alloc, &lw->d_mesh_device, 0, total, sizeof(int32_t)) ||
        !esp_i_resize(&lw->alloc, &lw->d_mesh_units, 0, total, sizeof(int64_t)))
        return false;
    for (int32_t m = 0; m < n; m++) {
        const esp_i_mesh_t *mesh = esp_i_mesh_of(lw, m);
        lw->d_mesh_offset[m] = (int32_t)at;
        lw->d_mesh_class_offset[m] = lw->local.data[m].class_first;
        for (int32_t k = 0; k < mesh->n; k++, at++) {
            lw->d_mesh_device[at] = mesh->device[k];
            lw->d_mesh_units[at] = mesh->units[k];
        }
    }
    lw->d_mesh_offset[n] = (int32_t)at;
    lw->d_mesh_class_offset[n] = lw->mesh_class.count;
    return true;
}

static void publish_plan(esp_lowerer_t *lw)
{
    esp_deployment_t *d = &lw->d;
    d->graph = lw->graph;
    d->cluster = lw->cluster;
    d->cost = lw->cost;
    d->micro_batches = lw->strategy->micro_batches;
    d->sync_batchnorm = lw->strategy->sync_batchnorm;
    d->bucket_bytes = lw->strategy->bucket_bytes;
    d->n_classes = lw->n_classes;
    d->class_offset = lw->class_offset;
    d->class_device = lw->class_device;
    d->device_class = lw->device_class;
    d->n_meshes = lw->local.count;
    d->mesh_offset = lw->d_mesh_offset;
    d->mesh_device = lw->d_mesh_device;
    d->mesh_units = lw->d_mesh_units;
    d->mesh_class_offset = lw->d_mesh_class_offset;
    d->mesh_class = lw->mesh_class.data;
    d->mesh_class_units = lw->mesh_class_units.data;
    d->class_resident_bytes = lw->class_resident;
    d->class_arena_bytes = NULL;
    d->n_values = lw->values.n;
    d->value_tensor = lw->values.tensor;
    d->value_mesh = lw->values.mesh;
    d->value_form = lw->values.form;
    d->value_share = lw->values.share;
    d->value_view = lw->values.view;
    d->value_micro = lw->values.micro;
    d->value_buffer = lw->values.buffer;
    d->n_buffers = lw->buffers.n;
    d->buffer_value = lw->buffers.value;
    d->buffer_class = lw->buffers.class_;
    d->buffer_bytes = lw->buffers.bytes;
    d->buffer_root = lw->buffers.root;
    d->buffer_producer = lw->buffers.producer;
    d->buffer_resident = lw->buffers.resident;
    d->buffer_offset = d->task_scratch_offset = d->comm_scratch_offset = NULL;
}

static void publish_tasks(esp_lowerer_t *lw)
{
    esp_deployment_t *d = &lw->d;
    d->n_tasks = lw->tasks.n;
    d->task_kind = lw->tasks.kind;
    d->task_mode = lw->tasks.mode;
    d->task_class = lw->tasks.class_;
    d->task_op = lw->tasks.op;
    d->task_micro = lw->tasks.micro;
    d->task_ns = lw->tasks.ns;
    d->task_comm = lw->tasks.comm;
    d->read_offset = lw->tasks.read_offset;
    d->read_buffer = lw->reads.data;
    d->write_offset = lw->tasks.write_offset;
    d->write_buffer = lw->writes.data;
    d->n_comms = lw->comms.n;
    d->comm_kind = lw->comms.kind;
    d->comm_pattern = lw->comms.pattern;
    d->comm_bytes = lw->comms.bytes;
    d->comm_collective = lw->comms.collective;
    d->comm_pair_offset = lw->comms.pair_offset;
    d->comm_src = lw->pair_src.data;
    d->comm_dst = lw->pair_dst.data;
    d->comm_class_offset = lw->comms.class_offset;
    d->comm_class = lw->comm_classes.data;
    d->comm_class_ns = lw->comm_class_ns.data;
    d->n_extra = lw->extra_before.count;
    d->extra_before = lw->extra_before.data;
    d->extra_after = lw->extra_after.data;
    d->n_cross = lw->cross_before.count;
    d->cross_before = lw->cross_before.data;
    d->cross_after = lw->cross_after.data;
    d->successor_offset = lw->successor_offset;
    d->successor = lw->successor;
    d->n_predecessors = lw->n_predecessors;
    d->order = lw->order_ids;
    d->position = lw->position;
}

esp_status_t esp_i_finish(esp_lowerer_t *lw, esp_diag_t *diag)
{
    if (!esp_i_reserve(lw, 1, 1, 1, 1))
        return esp_i_nomem(diag);
    offsets_close(lw);
    if (!esp_i_depend(lw) || !meshes_publish(lw))
        return esp_i_nomem(diag);
    publish_plan(lw);
    publish_tasks(lw);
    return ESP_OK;
}
