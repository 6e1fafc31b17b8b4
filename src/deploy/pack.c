/*
 * Packing: where in the arena of its device each buffer lies.
 *
 * Residents come first. A transient buffer lives from the first task that writes its memory to the
 * last that touches it, in positions of the global order. A movement does not hold up the compute
 * stream, so the tasks after it run while it is on its way: what it touches stays alive until the
 * position at which, by a given timeline or a schedule without contention, it has ended. The same
 * holds for scratch memory: the workspace of an op while it runs, the receive buffers of a movement
 * until it ends. Estimates decide only how good the packing is: a task that takes over memory waits
 * for those that used it, by dependencies (pack_order.c).
 */
#include "deploy/pack.h"

#include <math.h>
#include <string.h>

/* ---- memory of the packer -------------------------------------------------------------------- */

static bool resize_tasks(esp_lowerer_t *lw, int64_t n)
{
    const esp_allocator_t *alloc = &lw->alloc;
    esp_i_pack_t *p = lw->pack;
    return esp_i_resize(alloc, &p->ready_ns, 0, n, sizeof(int64_t)) &&
           esp_i_resize(alloc, &p->latest_ns, 0, n, sizeof(int64_t)) &&
           esp_i_resize(alloc, &p->task_scratch, 0, n, sizeof(int64_t)) &&
           esp_i_resize(alloc, &p->known, 0, n, sizeof(esp_i_known_t)) &&
           esp_i_resize(alloc, &p->fresh, 0, n + 1, sizeof(int32_t));
}

static bool pack_grow(esp_lowerer_t *lw)
{
    const esp_allocator_t *alloc = &lw->alloc;
    if (!lw->pack && !(lw->pack = esp_i_alloc_array(alloc, 1, sizeof *lw->pack)))
        return false;
    esp_i_pack_t *p = lw->pack;
    int64_t tasks = lw->d.n_tasks, buffers = lw->d.n_buffers;
    int64_t slots = lw->d.comm_class_offset[lw->d.n_comms];
    if (tasks > p->task_capacity) {
        if (!resize_tasks(lw, 2 * tasks))
            return false;
        p->task_capacity = (int32_t)(2 * tasks);
    }
    if (slots > p->slot_capacity || !p->comm_scratch) {
        if (!esp_i_resize(alloc, &p->comm_scratch, 0, 2 * slots, sizeof(int64_t)) ||
            !esp_i_resize(alloc, &p->release, 0, 2 * slots, sizeof(int32_t)))
            return false;
        p->slot_capacity = (int32_t)(2 * slots);
    }
    if (buffers <= p->buffer_capacity)
        return true;
    if (!esp_i_resize(alloc, &p->first, 0, 2 * buffers, sizeof(int32_t)) ||
        !esp_i_resize(alloc, &p->last, 0, 2 * buffers, sizeof(int32_t)) ||
        !esp_i_resize(alloc, &p->last_compute, 0, 2 * buffers, sizeof(int32_t)) ||
        !esp_i_resize(alloc, &p->moved_offset, 0, 2 * buffers + 2, sizeof(int32_t)) ||
        !esp_i_resize(alloc, &lw->buffer_offset, 0, 2 * buffers, sizeof(int64_t)))
        return false;
    p->buffer_capacity = (int32_t)(2 * buffers);
    return true;
}

void esp_i_pack_destroy(esp_lowerer_t *lw)
{
    esp_i_pack_t *p = lw->pack;
    const esp_allocator_t *alloc = &lw->alloc;
    if (!p)
        return;
    void *blocks[] = {p->ready_ns,     p->latest_ns, p->release, p->task_scratch,
                      p->comm_scratch, p->first,     p->last,    p->last_compute,
                      p->moved_offset, p->known,     p->fresh};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        esp_i_free(alloc, blocks[i]);
    esp_vec_free(alloc, &p->moved);
    esp_vec_free(alloc, &p->items);
    esp_vec_free(alloc, &p->by);
    esp_vec_free(alloc, &p->heap);
    esp_vec_free(alloc, &p->map);
    esp_vec_free(alloc, &p->begin);
    esp_vec_free(alloc, &p->trial);
    esp_i_free(alloc, p);
}

/* ---- lifetimes ----------------------------------------------------------------------------- */

/* Start times without contention, streams in the global order; stream_ns: two per class. */
static void schedule(esp_lowerer_t *lw, int64_t *stream_ns)
{
    const esp_deployment_t *d = &lw->d;
    int64_t *ready = lw->pack->ready_ns;
    memset(ready, 0, (size_t)d->n_tasks * sizeof *ready);
    memset(stream_ns, 0, 2 * (size_t)d->n_classes * sizeof *stream_ns);
    for (int32_t p = 0; p < d->n_tasks; p++) {
        int32_t t = d->order[p], comm = d->task_comm[t];
        int32_t first = comm == ESP_NONE ? 0 : d->comm_class_offset[comm];
        int32_t end =
            comm == ESP_NONE || !d->comm_collective[comm] ? first : d->comm_class_offset[comm + 1];
        if (comm == ESP_NONE)
            ready[t] = esp_i_max_i64(ready[t], stream_ns[2 * d->task_class[t]]);
        for (int32_t i = first; i < end; i++)
            ready[t] = esp_i_max_i64(ready[t], stream_ns[2 * d->comm_class[i] + 1]);
        int64_t done = ready[t] + d->task_ns[t];
        if (comm == ESP_NONE)
            stream_ns[2 * d->task_class[t]] = done;
        for (int32_t i = first; i < end; i++)
            stream_ns[2 * d->comm_class[i] + 1] = done;
        for (int32_t s = d->successor_offset[t]; s < d->successor_offset[t + 1]; s++)
            ready[d->successor[s]] = esp_i_max_i64(ready[d->successor[s]], done);
    }
}

/* Latest start of a compute task of the class up to each position. Returns its first start. Classes
 * are not in step with one another, and a movement may have waited for links long after its
 * position: only the compute stream of the class tells when its memory is wanted. */
static int64_t latest_find(esp_lowerer_t *lw, int32_t class_)
{
    const esp_deployment_t *d = &lw->d;
    int64_t latest = INT64_MIN, first = INT64_MAX;
    for (int32_t p = 0; p < d->n_tasks; p++) {
        if (d->task_class[d->order[p]] == class_) {
            latest = esp_i_max_i64(latest, lw->pack->ready_ns[d->order[p]]);
            first = esp_i_min_i64(first, latest);
        }
        lw->pack->latest_ns[p] = latest;
    }
    return first == INT64_MAX ? 0 : first;
}

/* The last position before something starts after `done`, at least `low`. */
static int32_t position_before(const esp_lowerer_t *lw, int32_t low, int64_t done)
{
    int32_t high = lw->d.n_tasks;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (lw->pack->latest_ns[middle] < done)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/*
 * The last position at which each movement may still run, as its classes see it: the last before
 * they start something after its end. Beyond the last position: it is still on its way when the
 * class has begun the next step, so its memory is nobody else's in the whole step.
 */
static void releases_find(esp_lowerer_t *lw, const int64_t *end_ns, int64_t period_ns)
{
    const esp_deployment_t *d = &lw->d;
    for (int32_t class_ = 0; class_ < d->n_classes; class_++) {
        int64_t begins = latest_find(lw, class_);
        for (int32_t comm = 0; comm < d->n_comms; comm++) {
            int32_t t = lw->comms.task[comm];
            for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; i++) {
                if (d->comm_class[i] != class_)
                    continue;
                int64_t done = end_ns ? end_ns[t] : lw->pack->ready_ns[t] + d->task_ns[t];
                bool wraps = end_ns && done > begins + period_ns;
                lw->pack->release[i] =
                    wraps ? d->n_tasks : position_before(lw, d->position[t], done);
            }
        }
    }
}

/* The last position at which a task may still use memory of the class. */
static int32_t release_of(const esp_lowerer_t *lw, int32_t task, int32_t class_)
{
    const esp_deployment_t *d = &lw->d;
    int32_t comm = d->task_comm[task];
    if (comm == ESP_NONE)
        return d->position[task];
    int32_t slot = d->comm_class_offset[comm];
    while (d->comm_class[slot] != class_)
        slot++;
    return lw->pack->release[slot];
}

/* Extends the life of a buffer's memory by a task that touches it. */
static void touch(esp_lowerer_t *lw, int32_t buffer, int32_t task)
{
    const esp_deployment_t *d = &lw->d;
    esp_i_pack_t *p = lw->pack;
    if (buffer == ESP_NONE || d->buffer_resident[buffer])
        return;
    int32_t root = d->buffer_root[buffer], last = p->last_compute[root];
    if (d->position[task] < p->first[root])
        p->first[root] = d->position[task];
    int32_t release = release_of(lw, task, d->buffer_class[buffer]);
    if (release > p->last[root])
        p->last[root] = release;
    if (d->task_comm[task] != ESP_NONE)
        p->moved_offset[root + 1]++;
    else if (last == ESP_NONE || d->position[last] < d->position[task])
        p->last_compute[root] = task;
}

/* Movements by the memory that they touch; one that touches it twice is there twice. */
static bool moved_index(esp_lowerer_t *lw)
{
    const esp_deployment_t *d = &lw->d;
    esp_i_pack_t *p = lw->pack;
    for (int32_t b = 0; b < d->n_buffers; b++)
        p->moved_offset[b + 1] += p->moved_offset[b];
    p->moved.count = 0;
    if (!esp_vec_extend(&lw->alloc, &p->moved, p->moved_offset[d->n_buffers]))
        return false;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        if (d->task_comm[t] == ESP_NONE)
            continue;
        for (int32_t r = d->read_offset[t]; r < d->read_offset[t + 1]; r++)
            if (d->read_buffer[r] != ESP_NONE && !d->buffer_resident[d->read_buffer[r]])
                p->moved.data[p->moved_offset[d->buffer_root[d->read_buffer[r]]]++] = t;
        for (int32_t w = d->write_offset[t]; w < d->write_offset[t + 1]; w++)
            if (!d->buffer_resident[d->write_buffer[w]])
                p->moved.data[p->moved_offset[d->buffer_root[d->write_buffer[w]]]++] = t;
    }
    for (int32_t b = d->n_buffers; b > 0; b--)
        p->moved_offset[b] = p->moved_offset[b - 1];
    p->moved_offset[0] = 0;
    return true;
}

/* What the step returns is read when it is over: its memory is nobody else's. */
static void results_keep(esp_lowerer_t *lw)
{
    const esp_deployment_t *d = &lw->d;
    const esp_graph_t *g = lw->graph;
    for (int32_t v = 0; v < d->n_values; v++) {
        int32_t classes =
            d->mesh_class_offset[d->value_mesh[v] + 1] - d->mesh_class_offset[d->value_mesh[v]];
        bool result = g->loss != ESP_NONE && g->tensor_root[g->loss] == d->value_tensor[v];
        for (int32_t i = 0; i < g->n_outputs && !result; i++)
            result = g->tensor_root[g->output[i]] == d->value_tensor[v];
        for (int32_t slot = 0; slot < classes && result; slot++) {
            int32_t root = d->buffer_root[d->value_buffer[v] + slot];
            if (lw->pack->last[root] == ESP_NONE)
                continue;
            lw->pack->first[root] = 0;
            lw->pack->last[root] = d->n_tasks - 1;
        }
    }
}

static bool lifetimes_find(esp_lowerer_t *lw)
{
    const esp_deployment_t *d = &lw->d;
    esp_i_pack_t *p = lw->pack;
    memset(p->moved_offset, 0, ((size_t)d->n_buffers + 1) * sizeof *p->moved_offset);
    for (int32_t b = 0; b < d->n_buffers; b++) {
        p->first[b] = INT32_MAX;
        p->last[b] = p->last_compute[b] = ESP_NONE;
    }
    for (int32_t t = 0; t < d->n_tasks; t++) {
        for (int32_t r = d->read_offset[t]; r < d->read_offset[t + 1]; r++)
            touch(lw, d->read_buffer[r], t);
        for (int32_t w = d->write_offset[t]; w < d->write_offset[t + 1]; w++)
            touch(lw, d->write_buffer[w], t);
    }
    results_keep(lw);
    return moved_index(lw);
}

/* ---- scratch memory ------------------------------------------------------------------------ */

/* Share of the whole op that a compute task does. */
static double task_part(const esp_deployment_t *d, int32_t task)
{
    const esp_graph_t *g = d->graph;
    int32_t value = d->buffer_value[d->write_buffer[d->write_offset[task]]];
    int32_t mesh = d->value_mesh[value], micro = d->task_micro[task];
    esp_op_id_t op = d->task_op[task];
    if (d->task_mode[task] == ESP_MODE_SHARD)
        return 1.0 / (d->mesh_offset[mesh + 1] - d->mesh_offset[mesh]);
    double rows = micro != ESP_NONE && g->op_batch[op].dim != ESP_NONE ? d->micro_batches : 1;
    if (d->task_mode[task] != ESP_MODE_BATCH)
        return 1.0 / rows;
    for (int32_t k = d->mesh_class_offset[mesh]; k < d->mesh_class_offset[mesh + 1]; k++)
        if (d->mesh_class[k] == d->task_class[task])
            return (double)d->mesh_class_units[k] * (d->micro_batches / rows) /
                   (double)esp_i_max_i64(g->batch, 1);
    return 1;
}

int64_t esp_deployment_scratch_bytes(const esp_deployment_t *d, int32_t task)
{
    int32_t comm = d->task_comm[task];
    if (comm != ESP_NONE)
        return (int64_t)ceil(d->comm_pattern[comm]->staging * (double)d->comm_bytes[comm]);
    if (d->task_kind[task] != ESP_TASK_COMPUTE)
        return 0;
    const double split = d->cost->op_workspace_bytes[d->task_op[task]];
    const double whole = d->cost->op_workspace_whole_bytes[d->task_op[task]];
    return split + whole > 0 ? (int64_t)ceil(split * task_part(d, task) + whole) : 0;
}

/* ---- one class ----------------------------------------------------------------------------- */

static int64_t aligned(int64_t bytes)
{
    return esp_i_ceil_div(bytes, ESP_I_PACK_ALIGN) * ESP_I_PACK_ALIGN;
}

static bool item_push(esp_lowerer_t *lw, int32_t buffer, int32_t task, int32_t slot, int64_t bytes)
{
    esp_i_pack_t *p = lw->pack;
    esp_i_item_t item = {.bytes = aligned(bytes), .buffer = buffer, .task = task, .slot = slot};
    item.first = buffer == ESP_NONE ? lw->d.position[task] : p->first[buffer];
    item.last = buffer != ESP_NONE ? p->last[buffer]
                : slot != ESP_NONE ? p->release[slot]
                                   : lw->d.position[task];
    if (item.last == lw->d.n_tasks) {
        item.first = 0;
        item.last = lw->d.n_tasks - 1;
    }
    return esp_vec_push(&lw->alloc, &p->items, item);
}

/* Items in the order of their first tasks: `order` walks through all tasks once per class. */
static bool items_find(esp_lowerer_t *lw, int32_t class_, const int32_t *offset,
                       const int32_t *buffers, const int32_t *task_offset, const int32_t *tasks)
{
    const esp_deployment_t *d = &lw->d;
    lw->pack->items.count = 0;
    for (int32_t i = offset[class_]; i < offset[class_ + 1]; i++) {
        int32_t b = buffers[i];
        if (!item_push(lw, b, d->order[lw->pack->first[b]], ESP_NONE, d->buffer_bytes[b]))
            return false;
    }
    for (int32_t i = task_offset[class_]; i < task_offset[class_ + 1]; i++) {
        int32_t t = tasks[i], comm = d->task_comm[t], slot = ESP_NONE;
        if (comm != ESP_NONE)
            for (slot = d->comm_class_offset[comm]; d->comm_class[slot] != class_;)
                slot++;
        if (!item_push(lw, ESP_NONE, t, slot, esp_deployment_scratch_bytes(d, t)))
            return false;
    }
    return true;
}

static void items_publish(esp_lowerer_t *lw, int64_t base)
{
    esp_i_pack_t *p = lw->pack;
    for (int32_t i = 0; i < p->items.count; i++) {
        const esp_i_item_t *item = &p->items.data[i];
        if (item->buffer != ESP_NONE)
            lw->buffer_offset[item->buffer] = base + item->offset;
        else if (item->slot != ESP_NONE)
            p->comm_scratch[item->slot] = base + item->offset;
        else
            p->task_scratch[item->task] = base + item->offset;
    }
}

/* ---- all classes --------------------------------------------------------------------------- */

/* Lists by class: transient roots, tasks with scratch memory. */
typedef struct lists {
    int32_t *offset, *buffer, *task_offset, *task;
} lists_t;

static bool is_item(const esp_lowerer_t *lw, int32_t b)
{
    const esp_deployment_t *d = &lw->d;
    return d->buffer_root[b] == b && !d->buffer_resident[b] && d->buffer_bytes[b] > 0 &&
           lw->pack->last[b] != ESP_NONE;
}

/* Calls for each class of a task that has scratch memory: counts, or places in the lists. */
static void scratch_each(const esp_deployment_t *d, int32_t *offset, int32_t *list)
{
    for (int32_t t = 0; t < d->n_tasks; t++) {
        int32_t comm = d->task_comm[t];
        if (esp_deployment_scratch_bytes(d, t) == 0)
            continue;
        int32_t first = comm == ESP_NONE ? 0 : d->comm_class_offset[comm];
        int32_t end = comm == ESP_NONE ? 1 : d->comm_class_offset[comm + 1];
        for (int32_t i = first; i < end; i++) {
            int32_t class_ = comm == ESP_NONE ? d->task_class[t] : d->comm_class[i];
            if (list)
                list[offset[class_]++] = t;
            else
                offset[class_ + 1]++;
        }
    }
}

static void offsets_sum(int32_t *offset, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        offset[i + 1] += offset[i];
}

static void offsets_back(int32_t *offset, int32_t n)
{
    for (int32_t i = n; i > 0; i--)
        offset[i] = offset[i - 1];
    offset[0] = 0;
}

static bool lists_make(esp_lowerer_t *lw, esp_i_arena_t *arena, lists_t *lists)
{
    const esp_deployment_t *d = &lw->d;
    const int32_t n = d->n_classes;
    lists->offset = esp_i_arena_alloc(arena, n + 1, sizeof(int32_t));
    lists->task_offset = esp_i_arena_alloc(arena, n + 1, sizeof(int32_t));
    lists->buffer = esp_i_arena_alloc(arena, d->n_buffers, sizeof(int32_t));
    if (!lists->offset || !lists->task_offset || !lists->buffer)
        return false;
    for (int32_t b = 0; b < d->n_buffers; b++)
        if (is_item(lw, b))
            lists->offset[d->buffer_class[b] + 1]++;
    offsets_sum(lists->offset, n);
    for (int32_t b = 0; b < d->n_buffers; b++)
        if (is_item(lw, b))
            lists->buffer[lists->offset[d->buffer_class[b]]++] = b;
    offsets_back(lists->offset, n);
    scratch_each(d, lists->task_offset, NULL);
    offsets_sum(lists->task_offset, n);
    if (!(lists->task = esp_i_arena_alloc(arena, lists->task_offset[n], sizeof(int32_t))))
        return false;
    scratch_each(d, lists->task_offset, lists->task);
    offsets_back(lists->task_offset, n);
    return true;
}

/* Residents lie one after the other; *end: per class, where they end. */
static void residents_place(esp_lowerer_t *lw)
{
    const esp_deployment_t *d = &lw->d;
    memset(lw->class_arena, 0, (size_t)d->n_classes * sizeof *lw->class_arena);
    memset(lw->buffer_offset, 0, (size_t)d->n_buffers * sizeof *lw->buffer_offset);
    for (int32_t b = 0; b < d->n_buffers; b++)
        if (d->buffer_resident[b] && d->buffer_root[b] == b) {
            lw->buffer_offset[b] = lw->class_arena[d->buffer_class[b]];
            lw->class_arena[d->buffer_class[b]] += aligned(d->buffer_bytes[b]);
        }
}

static esp_status_t pack_all(esp_lowerer_t *lw, const int64_t *start_ns, const int64_t *end_ns,
                             int64_t period_ns, esp_i_arena_t *arena)
{
    const esp_deployment_t *d = &lw->d;
    lists_t lists;
    int64_t *stream_ns = esp_i_arena_alloc(arena, 2 * (int64_t)d->n_classes, sizeof *stream_ns);
    if (!stream_ns)
        return ESP_ERR_NOMEM;
    if (start_ns)
        memcpy(lw->pack->ready_ns, start_ns, (size_t)d->n_tasks * sizeof *start_ns);
    else
        schedule(lw, stream_ns);
    releases_find(lw, start_ns ? end_ns : NULL, period_ns);
    if (!lifetimes_find(lw) || !lists_make(lw, arena, &lists))
        return ESP_ERR_NOMEM;
    residents_place(lw);
    memset(lw->pack->task_scratch, 0, (size_t)d->n_tasks * sizeof(int64_t));
    if (d->n_comms > 0)
        memset(lw->pack->comm_scratch, 0,
               (size_t)d->comm_class_offset[d->n_comms] * sizeof(int64_t));
    for (int32_t t = 0; t < d->n_tasks; t++)
        lw->pack->known[t].class_ = ESP_NONE;
    for (int32_t c = 0; c < d->n_classes; c++) {
        int64_t top;
        if (!items_find(lw, c, lists.offset, lists.buffer, lists.task_offset, lists.task))
            return ESP_ERR_NOMEM;
        ESP_TRY(esp_i_pack_place(lw, lw->class_arena[c], &top));
        ESP_TRY(esp_i_pack_order(lw, c));
        items_publish(lw, lw->class_arena[c]);
        lw->class_arena[c] += top;
    }
    for (int32_t b = 0; b < d->n_buffers; b++)
        lw->buffer_offset[b] = lw->buffer_offset[d->buffer_root[b]];
    return ESP_OK;
}

esp_status_t esp_deployment_pack(esp_lowerer_t *lowerer, esp_diag_t *diag)
{
    return esp_deployment_pack_timed(lowerer, NULL, NULL, 0, diag);
}

esp_status_t esp_deployment_pack_timed(esp_lowerer_t *lw, const int64_t *start_ns,
                                       const int64_t *end_ns, int64_t period_ns, esp_diag_t *diag)
{
    if (lw->d.buffer_offset)
        return ESP_OK;
    int32_t extra = lw->extra_before.count, cross = lw->cross_before.count;
    esp_i_arena_t arena;
    esp_i_arena_init(&arena, &lw->alloc);
    esp_status_t status =
        pack_grow(lw) ? pack_all(lw, start_ns, end_ns, period_ns, &arena) : ESP_ERR_NOMEM;
    esp_i_arena_fini(&arena);
    if (status == ESP_OK)
        status = esp_i_pack_merge(lw, extra);
    if (status != ESP_OK) { /* as before: the dependencies added so far belong to no packing */
        lw->extra_before.count = lw->extra_after.count = extra;
        lw->cross_before.count = lw->cross_after.count = cross;
        esp_i_pack_publish(lw);
        return esp_i_nomem(diag);
    }
    lw->d.buffer_offset = lw->buffer_offset;
    lw->d.task_scratch_offset = lw->pack->task_scratch;
    lw->d.comm_scratch_offset = lw->pack->comm_scratch;
    lw->d.class_arena_bytes = lw->class_arena;
    return ESP_OK;
}
