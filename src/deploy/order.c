/*
 * The global total order: list scheduling by longest remaining path, ties by id.
 *
 * Every class has a compute stream and a collective stream; other movements start when they are
 * ready. Links are taken as free: contention is the simulator's business, and it follows this
 * order. A task gets its position when it starts; it starts only after its predecessors have ended,
 * so the order is topological.
 */
#include "deploy/lowerer.h"

#include <string.h>

typedef struct event {
    int64_t time;
    int32_t task;
} event_t;

struct esp_i_order {
    int64_t *rank;          /* longest remaining path, ns; of leaves: what they follow */
    int64_t *ready_at_rank; /* least rank that remains after a predecessor */
    uint8_t *leaf;
    int32_t *waiting; /* predecessors left */
    event_t *running; /* min-heap on (time, task) */
    int32_t *ready;   /* per class a max-heap on (rank, -task): a segment of class_tasks entries */
    int32_t *ready_first, *ready_count;
    int64_t *collective_free; /* per class */
    uint8_t *busy;            /* per class: the compute stream */
    uint64_t *touched;        /* bit per class: it may be able to start something */
    int32_t capacity, n_running, n_positions;
};

esp_status_t esp_i_order_init(esp_lowerer_t *lw)
{
    const esp_allocator_t *alloc = &lw->alloc;
    int64_t devices = lw->cluster->n_devices;
    struct esp_i_order *o = lw->order = esp_i_alloc_array(alloc, 1, sizeof *o);
    bool fine = o && (o->ready_first = esp_i_alloc_array(alloc, devices + 1, sizeof(int32_t))) &&
                (o->ready_count = esp_i_alloc_array(alloc, devices, sizeof(int32_t))) &&
                (o->collective_free = esp_i_alloc_array(alloc, devices, sizeof(int64_t))) &&
                (o->busy = esp_i_alloc_array(alloc, devices, 1)) &&
                (o->touched = esp_i_alloc_array(alloc, (devices + 63) / 64, sizeof(uint64_t)));
    return fine ? ESP_OK : ESP_ERR_NOMEM;
}

void esp_i_order_fini(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    if (!o)
        return;
    void *blocks[] = {o->ready_at_rank,   o->leaf,  o->rank,        o->waiting,
                      o->running,         o->ready, o->ready_first, o->ready_count,
                      o->collective_free, o->busy,  o->touched,     o};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        esp_i_free(&lw->alloc, blocks[i]);
}

/* ---- heaps -------------------------------------------------------------------------------------
 */

static bool sooner(event_t a, event_t b)
{
    return a.time < b.time || (a.time == b.time && a.task < b.task);
}

static void running_push(struct esp_i_order *o, event_t event)
{
    int32_t at = o->n_running++;
    for (; at > 0 && sooner(event, o->running[(at - 1) / 2]); at = (at - 1) / 2)
        o->running[at] = o->running[(at - 1) / 2];
    o->running[at] = event;
}

static event_t running_pop(struct esp_i_order *o)
{
    event_t top = o->running[0], last = o->running[--o->n_running];
    int32_t at = 0, n = o->n_running;
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && sooner(o->running[child + 1], o->running[child]))
            child++;
        if (!sooner(o->running[child], last))
            break;
        o->running[at] = o->running[child];
    }
    o->running[at] = last;
    return top;
}

static bool more_urgent(const struct esp_i_order *o, int32_t a, int32_t b)
{
    return o->rank[a] > o->rank[b] || (o->rank[a] == o->rank[b] && a < b);
}

static void ready_push(struct esp_i_order *o, int32_t class_, int32_t task)
{
    int32_t *heap = o->ready + o->ready_first[class_], at = o->ready_count[class_]++;
    for (; at > 0 && more_urgent(o, task, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = task;
}

static int32_t ready_pop(struct esp_i_order *o, int32_t class_)
{
    int32_t *heap = o->ready + o->ready_first[class_], n = --o->ready_count[class_];
    int32_t top = heap[0], last = heap[n], at = 0;
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && more_urgent(o, heap[child + 1], heap[child]))
            child++;
        if (!more_urgent(o, heap[child], last))
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

/* ---- the schedule
 * --------------------------------------------------------------------------------- */

static bool order_grow(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    int64_t n = lw->tasks.n;
    if (n <= o->capacity)
        return true;
    int64_t need = 2 * n;
    if (!esp_i_resize(&lw->alloc, &o->rank, 0, need, sizeof *o->rank) ||
        !esp_i_resize(&lw->alloc, &o->ready_at_rank, 0, need, sizeof *o->ready_at_rank) ||
        !esp_i_resize(&lw->alloc, &o->leaf, 0, need, sizeof *o->leaf) ||
        !esp_i_resize(&lw->alloc, &o->waiting, 0, need, sizeof *o->waiting) ||
        !esp_i_resize(&lw->alloc, &o->running, 0, need, sizeof *o->running) ||
        !esp_i_resize(&lw->alloc, &o->ready, 0, need, sizeof *o->ready))
        return false;
    o->capacity = (int32_t)need;
    return true;
}

/* Longest remaining paths, and which tasks lead to nothing but updates. */
static void ranks_find(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    for (int32_t t = lw->tasks.n - 1; t >= 0; t--) {
        int64_t longest = 0;
        bool leaf = true;
        for (int32_t e = lw->successor_offset[t]; e < lw->successor_offset[t + 1]; e++) {
            int32_t next = lw->successor[e];
            longest = esp_i_max_i64(longest, o->rank[next]);
            leaf = leaf && o->leaf[next];
        }
        o->rank[t] = longest + lw->tasks.ns[t];
        int32_t op = lw->tasks.op[t];
        o->leaf[t] = leaf || (op != ESP_NONE && lw->graph->op_phase[op] == ESP_PHASE_UPDATE);
        o->ready_at_rank[t] = INT64_MAX;
    }
}

/*
 * The weight gradients of a layer are on no long path: by path alone they would wait until the
 * whole backward chain is through, keep its activations alive and start their reductions too late.
 * They follow the task of the chain that becomes ready with them: just below the rank that remained
 * after the last of their predecessors.
 */
static void leaves_raise(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    for (int32_t t = 0; t < lw->tasks.n; t++) {
        int32_t op = lw->tasks.op[t];
        bool update = op != ESP_NONE && lw->graph->op_phase[op] == ESP_PHASE_UPDATE;
        if (o->leaf[t] && !update && o->ready_at_rank[t] != INT64_MAX)
            o->rank[t] = esp_i_max_i64(o->rank[t], o->ready_at_rank[t] - 1);
        int64_t left = o->rank[t] - lw->tasks.ns[t];
        for (int32_t e = lw->successor_offset[t]; e < lw->successor_offset[t + 1]; e++)
            o->ready_at_rank[lw->successor[e]] =
                esp_i_min_i64(o->ready_at_rank[lw->successor[e]], left);
    }
}

/*
 * The same op of two micro-batches has the same path ahead of it: by path alone they would run in
 * lockstep and a pipeline would not fill. So an earlier micro-batch goes before a later one, what
 * runs once before both, and updates last.
 */
static void micro_batches_rank(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    int64_t above = 1, n_micro = lw->strategy->micro_batches;
    if (n_micro == 1)
        return;
    for (int32_t t = 0; t < lw->tasks.n; t++)
        above = esp_i_max_i64(above, o->rank[t] + 1);
    above = esp_i_min_i64(above, INT64_MAX / (n_micro + 2));
    for (int32_t t = 0; t < lw->tasks.n; t++) {
        int32_t op = lw->tasks.op[t];
        bool update = op != ESP_NONE && lw->graph->op_phase[op] == ESP_PHASE_UPDATE;
        if (lw->tasks.micro[t] != ESP_NONE)
            o->rank[t] += above * (n_micro - lw->tasks.micro[t]);
        else if (!update)
            o->rank[t] += above * (n_micro + 1);
    }
}

static void order_reset(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    int32_t n = lw->tasks.n;
    o->n_running = o->n_positions = 0;
    memcpy(o->waiting, lw->n_predecessors, (size_t)n * sizeof *o->waiting);
    memset(o->ready_count, 0, (size_t)lw->n_classes * sizeof *o->ready_count);
    memset(o->collective_free, 0, (size_t)lw->n_classes * sizeof *o->collective_free);
    memset(o->busy, 0, (size_t)lw->n_classes);
    memset(o->touched, 0, ((size_t)lw->n_classes + 63) / 64 * sizeof *o->touched);
    memset(o->ready_first, 0, ((size_t)lw->n_classes + 1) * sizeof *o->ready_first);
    for (int32_t t = 0; t < n; t++)
        if (lw->tasks.class_[t] != ESP_NONE)
            o->ready_first[lw->tasks.class_[t] + 1]++;
    for (int32_t c = 0; c < lw->n_classes; c++)
        o->ready_first[c + 1] += o->ready_first[c];
    ranks_find(lw);
    leaves_raise(lw);
    micro_batches_rank(lw);
}

static void task_start(esp_lowerer_t *lw, int32_t task, int64_t start)
{
    struct esp_i_order *o = lw->order;
    lw->position[task] = o->n_positions;
    lw->order_ids[o->n_positions++] = task;
    running_push(o, (event_t){start + lw->tasks.ns[task], task});
}

static void comm_start(esp_lowerer_t *lw, int32_t task, int64_t now)
{
    struct esp_i_order *o = lw->order;
    int32_t comm = lw->tasks.comm[task];
    int64_t start = now;
    if (lw->comms.collective[comm]) {
        int32_t first = lw->comms.class_offset[comm], end = lw->comms.class_offset[comm + 1];
        for (int32_t i = first; i < end; i++)
            start = esp_i_max_i64(start, o->collective_free[lw->comm_classes.data[i]]);
        for (int32_t i = first; i < end; i++)
            o->collective_free[lw->comm_classes.data[i]] = start + lw->tasks.ns[task];
    }
    task_start(lw, task, start);
}

static void touch(struct esp_i_order *o, int32_t class_)
{
    o->touched[class_ / 64] |= UINT64_C(1) << (class_ % 64);
}

static void task_ready(esp_lowerer_t *lw, int32_t task, int64_t now)
{
    if (lw->tasks.kind[task] == ESP_TASK_COMM) {
        comm_start(lw, task, now);
        return;
    }
    ready_push(lw->order, lw->tasks.class_[task], task);
    touch(lw->order, lw->tasks.class_[task]);
}

/* Idle streams take their most urgent ready task, classes in order. */
static void streams_start(esp_lowerer_t *lw, int64_t now)
{
    struct esp_i_order *o = lw->order;
    for (int32_t word = 0; word < (lw->n_classes + 63) / 64; word++) {
        uint64_t bits = o->touched[word];
        o->touched[word] = 0;
        for (int32_t c = 64 * word; bits; c++, bits >>= 1)
            if ((bits & 1) && !o->busy[c] && o->ready_count[c]) {
                o->busy[c] = 1;
                task_start(lw, ready_pop(o, c), now);
            }
    }
}

esp_status_t esp_i_order(esp_lowerer_t *lw, esp_diag_t *diag)
{
    if (!order_grow(lw))
        return esp_i_nomem(diag);
    struct esp_i_order *o = lw->order;
    order_reset(lw);
    for (int32_t t = 0; t < lw->tasks.n; t++)
        if (o->waiting[t] == 0)
            task_ready(lw, t, 0);
    streams_start(lw, 0);
    while (o->n_running) {
        event_t event = running_pop(o);
        int32_t class_ = lw->tasks.class_[event.task];
        if (class_ != ESP_NONE) {
            o->busy[class_] = 0;
            touch(o, class_);
        }
        for (int32_t e = lw->successor_offset[event.task]; e < lw->successor_offset[event.task + 1];
             e++)
            if (--o->waiting[lw->successor[e]] == 0)
                task_ready(lw, lw->successor[e], event.time);
        if (!o->n_running || o->running[0].time > event.time)
            streams_start(lw, event.time);
    }
    if (o->n_positions != lw->tasks.n)
        return esp_i_fail(diag, ESP_ERR_INTERNAL, "the dependencies of a deployment form a cycle");
    return ESP_OK;
}
