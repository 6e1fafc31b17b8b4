/*
 * After lowering: anti-dependencies, dependencies between steps, CSR of successors, and the
 * deployment that points at it all.
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
 * What reading a buffer implies beyond the edge from the task that made it. PLAIN: nothing, unless
 * a movement reads it: the memory is the buffer's own, and one task at most writes it in a step,
 * which is no movement. Else it depends on the root: UNREAD until a task reads it after the last
 * write, then READ. A buffer that is no root is READ too.
 */
typedef enum memory { PLAIN, UNREAD, READ } memory_t;

/*
 * Tasks that write memory again, in id order. again[root]: the first of them, as an index of
 * lw->overwriters; the next ones follow in `next`. ESP_NONE: nobody does, and who makes the root is
 * its only writer.
 */
typedef struct overwriting {
    int32_t *again, *next;
    int32_t *last;   /* per first one: the last of the same memory */
    int32_t *before; /* per edge that a read implies: its tail */
    uint8_t *memory; /* memory_t per buffer */
} overwriting_t;

static int32_t overwriter(const esp_lowerer_t *lw, int32_t i)
{
    return lw->overwriters.data[2 * i + 1];
}

static void overwriting_index(const esp_lowerer_t *lw, overwriting_t *o)
{
    memset(o->again, 0xff, (size_t)lw->buffers.n * sizeof *o->again);
    for (int32_t i = lw->overwriters.count / 2 - 1; i >= 0; i--) {
        int32_t *first = &o->again[lw->overwriters.data[2 * i]];
        o->last[i] = *first == ESP_NONE ? overwriter(lw, i) : o->last[*first];
        o->next[i] = *first;
        *first = i;
    }
}

static void memory_find(const esp_lowerer_t *lw, uint8_t *memory)
{
    const int32_t *root = lw->buffers.root, n = lw->buffers.n;
    memset(memory, PLAIN, (size_t)n);
    for (int32_t i = 0; i < lw->overwriters.count; i += 2)
        memory[lw->overwriters.data[i]] = UNREAD;
    for (int32_t comm = 0; comm < lw->comms.n; comm++) {
        const int32_t *offset = lw->tasks.write_offset + lw->comms.task[comm];
        for (int32_t w = offset[0]; w < offset[1]; w++)
            memory[lw->writes.data[w]] = UNREAD;
    }
    for (int32_t b = 0; b < n; b++)
        memory[b] = root[b] == b ? memory[b] : READ;
}

/* Compute streams run step after step: only movements need an edge from one step to the next. */
static bool cross_push(esp_lowerer_t *lw, int32_t before, int32_t after)
{
    if (lw->tasks.kind[before] != ESP_TASK_COMM && lw->tasks.kind[after] != ESP_TASK_COMM)
        return true;
    return pair_push(lw, &lw->cross_before, &lw->cross_after, before, after);
}

/* First and last task that write the memory of a root buffer; ESP_NONE: no task does. */
static int32_t first_writer(const esp_lowerer_t *lw, const overwriting_t *o, int32_t root)
{
    int32_t made = lw->buffers.producer[root], i = o->again[root];
    return made != ESP_NONE || i == ESP_NONE ? made : overwriter(lw, i);
}

static int32_t last_writer(const esp_lowerer_t *lw, const overwriting_t *o, int32_t root)
{
    int32_t i = o->again[root];
    return i == ESP_NONE ? lw->buffers.producer[root] : o->last[i];
}

/* A reader of memory comes before the next task that writes it again. */
static bool anti_dependency(esp_lowerer_t *lw, const overwriting_t *o, int32_t task, int32_t root)
{
    int32_t i = o->again[root];
    while (i != ESP_NONE && overwriter(lw, i) < task)
        i = o->next[i];
    int32_t writer = i == ESP_NONE ? task : overwriter(lw, i);
    return writer == task || pair_push(lw, &lw->extra_before, &lw->extra_after, task, writer);
}

/*
 * Between steps, per memory: what is read before the first write waits for the last write of the
 * step before; the first write waits for the readers of the last one, and for it if there are none.
 * Everything in between is ordered within the step.
 */
static bool cross_dependency(esp_lowerer_t *lw, const overwriting_t *o, int32_t task, int32_t root)
{
    int32_t first = first_writer(lw, o, root), last = last_writer(lw, o, root);
    if (first == ESP_NONE)
        return true;
    if (task < first && !cross_push(lw, last, task))
        return false;
    if (task <= last)
        return true;
    o->memory[root] = READ;
    return cross_push(lw, task, first);
}

static bool memory_read(esp_lowerer_t *lw, const overwriting_t *o, int32_t task, int32_t root)
{
    return anti_dependency(lw, o, task, root) && cross_dependency(lw, o, task, root);
}

/* All that a read implies. successor_offset[t + 2] counts the edges that leave task t, and
 * n_predecessors[t] those that end there. */
static bool reads_visit(esp_lowerer_t *lw, const overwriting_t *o)
{
    const int32_t *producer = lw->buffers.producer, n = lw->tasks.n;
    int32_t *edge = o->before, *n_successors = lw->successor_offset + 2;
    for (int32_t t = 0; t < n; t++) {
        const int32_t *read = lw->reads.data + lw->tasks.read_offset[t], *first_edge = edge;
        const int32_t *end = lw->reads.data + lw->tasks.read_offset[t + 1];
        bool moves = lw->tasks.kind[t] == ESP_TASK_COMM;
        for (; read < end; read++) {
            int32_t b = *read;
            if (b == ESP_NONE)
                continue;
            if ((moves || o->memory[b] != PLAIN) && !memory_read(lw, o, t, lw->buffers.root[b]))
                return false;
            int32_t made = producer[b];
            if (made == ESP_NONE || made == t)
                continue;
            n_successors[made]++;
            *edge++ = made;
        }
        lw->n_predecessors[t] = (int32_t)(edge - first_edge);
    }
    return true;
}

/* Memory that nothing reads: the first write waits for the last one. */
static bool unread_cross(esp_lowerer_t *lw, const overwriting_t *o)
{
    const uint8_t *end = o->memory + lw->buffers.n;
    for (const uint8_t *at = o->memory; (at = memchr(at, UNREAD, (size_t)(end - at))); at++) {
        int32_t root = (int32_t)(at - o->memory), first = first_writer(lw, o, root);
        if (first != ESP_NONE && !cross_push(lw, last_writer(lw, o, root), first))
            return false;
    }
    return true;
}

static bool tasks_reserve(esp_lowerer_t *lw)
{
    int32_t n = lw->tasks.n;
    if (n + 2 > lw->task_scratch_capacity) {
        int64_t need = 2 * (int64_t)n + 64;
        if (!esp_i_resize(&lw->alloc, &lw->successor_offset, 0, need, sizeof(int32_t)) ||
            !esp_i_resize(&lw->alloc, &lw->n_predecessors, 0, need, sizeof(int32_t)) ||
            !esp_i_resize(&lw->alloc, &lw->order_ids, 0, need, sizeof(int32_t)) ||
            !esp_i_resize(&lw->alloc, &lw->position, 0, need, sizeof(int32_t)))
            return false;
        lw->task_scratch_capacity = (int32_t)need;
    }
    memset(lw->successor_offset, 0, ((size_t)n + 2) * sizeof *lw->successor_offset);
    return true;
}

/* Counting sort of all edges by their tail: those of reads by reader, then the extra ones. */
static bool successors_fill(esp_lowerer_t *lw, const int32_t *before)
{
    int32_t n = lw->tasks.n, *offset = lw->successor_offset, *pred = lw->n_predecessors;
    int32_t edges = lw->reads.count + lw->extra_before.count;
    if (edges > lw->successor_capacity) {
        if (!esp_i_resize(&lw->alloc, &lw->successor, 0, 2 * (int64_t)edges, sizeof(int32_t)))
            return false;
        lw->successor_capacity = 2 * edges;
    }
    for (int32_t e = 0; e < lw->extra_before.count; e++)
        offset[lw->extra_before.data[e] + 2]++;
    for (int32_t t = 0; t < n; t++)
        offset[t + 2] += offset[t + 1];
    for (int32_t t = 0; t < n; t++)
        for (int32_t e = 0; e < pred[t]; e++)
            lw->successor[offset[*before++ + 1]++] = t;
    for (int32_t e = 0; e < lw->extra_before.count; e++) {
        lw->successor[offset[lw->extra_before.data[e] + 1]++] = lw->extra_after.data[e];
        pred[lw->extra_after.data[e]]++;
    }
    return true;
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
    size_t buffers = (size_t)lw->buffers.n + 1, writers = (size_t)lw->overwriters.count / 2 + 1;
    size_t ids = buffers + 2 * writers + (size_t)lw->reads.count;
    int32_t *scratch = esp_i_alloc(&lw->alloc, ids * sizeof *scratch + buffers);
    if (!scratch)
        return esp_i_nomem(diag);
    overwriting_t o = {.again = scratch, .next = scratch + buffers};
    o.last = o.next + writers;
    o.before = o.last + writers;
    o.memory = (uint8_t *)(scratch + ids);
    overwriting_index(lw, &o);
    memory_find(lw, o.memory);
    bool fine = tasks_reserve(lw) && reads_visit(lw, &o) && unread_cross(lw, &o) &&
                meshes_publish(lw) && successors_fill(lw, o.before);
    esp_i_free(&lw->alloc, scratch);
    if (!fine)
        return esp_i_nomem(diag);
    publish_plan(lw);
    publish_tasks(lw);
    return ESP_OK;
}
