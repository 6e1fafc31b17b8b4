/*
 * After lowering: anti-dependencies, dependencies between steps, CSR of successors, resident
 * memory, and the deployment that points at it all.
 */
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

static bool pair_push(esp_lowerer_t *lw, esp_i_ids_t *before, esp_i_ids_t *after, int32_t a,
                      int32_t b)
{
    return esp_vec_push(&lw->alloc, before, a) && esp_vec_push(&lw->alloc, after, b);
}

/*
 * overwriter_of[root]: first task, in id order, that writes the memory of root again; the next ones
 * follow in `chain`. Roots that nobody writes twice are ESP_NONE.
 */
typedef struct overwriting {
    int32_t *first, *last, *chain; /* per buffer, per buffer, per overwriter */
} overwriting_t;

static void overwriting_index(const esp_lowerer_t *lw, overwriting_t *o)
{
    for (int32_t b = 0; b < lw->buffers.n; b++)
        o->first[b] = ESP_NONE;
    for (int32_t i = 0; 2 * i < lw->overwriters.count; i++) {
        int32_t root = lw->overwriters.data[2 * i];
        o->chain[i] = ESP_NONE;
        if (o->first[root] == ESP_NONE)
            o->first[root] = i;
        else
            o->chain[o->last[root]] = i;
        o->last[root] = i;
    }
}

/* Every reader of memory comes before the next task that writes it again. */
static bool anti_dependencies(esp_lowerer_t *lw, const overwriting_t *o)
{
    const esp_i_tasks_t *tasks = &lw->tasks;
    for (int32_t t = 0; t < tasks->n; t++)
        for (int32_t r = tasks->read_offset[t]; r < tasks->read_offset[t + 1]; r++) {
            int32_t b = lw->reads.data[r];
            if (b == ESP_NONE)
                continue;
            int32_t i = o->first[lw->buffers.root[b]];
            while (i != ESP_NONE && lw->overwriters.data[2 * i + 1] < t)
                i = o->chain[i];
            int32_t writer = i == ESP_NONE ? t : lw->overwriters.data[2 * i + 1];
            if (writer != t && !pair_push(lw, &lw->extra_before, &lw->extra_after, t, writer))
                return false;
        }
    return true;
}

/* First and last task that write the memory of a root buffer; ESP_NONE: no task does. */
static int32_t first_writer(const esp_lowerer_t *lw, const overwriting_t *o, int32_t root)
{
    int32_t made = lw->buffers.producer[root], i = o->first[root];
    return made != ESP_NONE || i == ESP_NONE ? made : lw->overwriters.data[2 * i + 1];
}

static int32_t last_writer(const esp_lowerer_t *lw, const overwriting_t *o, int32_t root)
{
    return o->first[root] == ESP_NONE ? lw->buffers.producer[root]
                                      : lw->overwriters.data[2 * o->last[root] + 1];
}

/* Compute streams run step after step: only movements need an edge from one step to the next. */
static bool cross_push(esp_lowerer_t *lw, int32_t before, int32_t after)
{
    if (lw->tasks.kind[before] != ESP_TASK_COMM && lw->tasks.kind[after] != ESP_TASK_COMM)
        return true;
    return pair_push(lw, &lw->cross_before, &lw->cross_after, before, after);
}

/*
 * Between steps, per memory: what is read before the first write waits for the last write of the
 * step before; the first write waits for the readers of the last one, and for it if there are none.
 * Everything in between is ordered within the step.
 */
static bool cross_dependencies(esp_lowerer_t *lw, const overwriting_t *o, uint8_t *is_read)
{
    const esp_i_tasks_t *tasks = &lw->tasks;
    for (int32_t t = 0; t < tasks->n; t++)
        for (int32_t r = tasks->read_offset[t]; r < tasks->read_offset[t + 1]; r++) {
            int32_t b = lw->reads.data[r];
            int32_t root = b == ESP_NONE ? ESP_NONE : lw->buffers.root[b];
            int32_t first = b == ESP_NONE ? ESP_NONE : first_writer(lw, o, root);
            if (first == ESP_NONE)
                continue;
            int32_t last = last_writer(lw, o, root);
            if (t < first && !cross_push(lw, last, t))
                return false;
            if (t <= last)
                continue;
            is_read[root] = 1;
            if (!cross_push(lw, t, first))
                return false;
        }
    for (int32_t b = 0; b < lw->buffers.n; b++) {
        int32_t first = lw->buffers.root[b] == b ? first_writer(lw, o, b) : ESP_NONE;
        if (first != ESP_NONE && !is_read[b] && !cross_push(lw, last_writer(lw, o, b), first))
            return false;
    }
    return true;
}

static bool successors_alloc(esp_lowerer_t *lw)
{
    int32_t n = lw->tasks.n, edges = lw->reads.count + lw->extra_before.count;
    if (n + 1 > lw->task_scratch_capacity) {
        int64_t need = 2 * (int64_t)n + 64;
        if (!esp_i_resize(&lw->alloc, &lw->successor_offset, 0, need, sizeof(int32_t)) ||
            !esp_i_resize(&lw->alloc, &lw->n_predecessors, 0, need, sizeof(int32_t)) ||
            !esp_i_resize(&lw->alloc, &lw->order_ids, 0, need, sizeof(int32_t)) ||
            !esp_i_resize(&lw->alloc, &lw->position, 0, need, sizeof(int32_t)))
            return false;
        lw->task_scratch_capacity = (int32_t)need;
    }
    if (edges > lw->successor_capacity) {
        if (!esp_i_resize(&lw->alloc, &lw->successor, 0, 2 * (int64_t)edges, sizeof(int32_t)))
            return false;
        lw->successor_capacity = 2 * edges;
    }
    return true;
}

/* Counting sort of all edges by their tail. */
static void successors_fill(esp_lowerer_t *lw)
{
    const esp_i_tasks_t *tasks = &lw->tasks;
    int32_t n = tasks->n, *offset = lw->successor_offset, *pred = lw->n_predecessors;
    memset(offset, 0, ((size_t)n + 1) * sizeof *offset);
    memset(pred, 0, ((size_t)n + 1) * sizeof *pred);
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t t = 0; t < n; t++)
            for (int32_t r = tasks->read_offset[t]; r < tasks->read_offset[t + 1]; r++) {
                int32_t b = lw->reads.data[r],
                        made = b == ESP_NONE ? ESP_NONE : lw->buffers.producer[b];
                if (made == ESP_NONE || made == t)
                    continue;
                if (pass == 0) {
                    offset[made + 1]++;
                    pred[t]++;
                } else {
                    lw->successor[offset[made]++] = t;
                }
            }
        for (int32_t e = 0; e < lw->extra_before.count; e++) {
            if (pass == 0) {
                offset[lw->extra_before.data[e] + 1]++;
                pred[lw->extra_after.data[e]]++;
            } else {
                lw->successor[offset[lw->extra_before.data[e]]++] = lw->extra_after.data[e];
            }
        }
        if (pass == 0)
            for (int32_t t = 0; t < n; t++)
                offset[t + 1] += offset[t];
    }
    for (int32_t t = n; t > 0; t--)
        offset[t] = offset[t - 1];
    offset[0] = 0;
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

static void residents_count(esp_lowerer_t *lw)
{
    memset(lw->class_resident, 0, (size_t)lw->n_classes * sizeof *lw->class_resident);
    for (int32_t b = 0; b < lw->buffers.n; b++)
        if (lw->buffers.resident[b] && lw->buffers.root[b] == b)
            lw->class_resident[lw->buffers.class_[b]] += lw->buffers.bytes[b];
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
    if (!esp_i_reserve(lw, 1, 1, 1))
        return esp_i_nomem(diag);
    offsets_close(lw);
    int64_t buffers = lw->buffers.n + 1, writers = lw->overwriters.count / 2 + 1;
    int32_t *scratch = esp_i_alloc(&lw->alloc, (size_t)(2 * buffers + writers) * sizeof *scratch +
                                                   (size_t)buffers);
    if (!scratch)
        return esp_i_nomem(diag);
    overwriting_t o = {scratch, scratch + buffers, scratch + 2 * buffers};
    uint8_t *is_read = (uint8_t *)(scratch + 2 * buffers + writers);
    memset(is_read, 0, (size_t)buffers);
    overwriting_index(lw, &o);
    bool fine = anti_dependencies(lw, &o) && cross_dependencies(lw, &o, is_read) &&
                meshes_publish(lw) && successors_alloc(lw);
    esp_i_free(&lw->alloc, scratch);
    if (!fine)
        return esp_i_nomem(diag);
    successors_fill(lw);
    residents_count(lw);
    publish_plan(lw);
    publish_tasks(lw);
    return ESP_OK;
}
