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

/* A task that is ready, on the list of its class. */
typedef struct ready {
    int64_t rank;
    int32_t task;
} ready_t;

/* When a compute stream is free; idle: NEVER. In the tree over them: the first of those below. */
typedef struct stream {
    int64_t end;
    int32_t class_;
} stream_t;

/* Ready tasks of a class. While backward runs, hundreds of updates wait in the heap: the few tasks
 * that come next are kept apart from them. */
enum { NEAR = 8 };
typedef struct list {
    int32_t n_near, first, n; /* heap: ready[first .. first + n), the most urgent on top */
    ready_t near[NEAR];       /* more urgent than the heap; the most urgent is the last */
} list_t;

/* What the schedule asks of a task, side by side. */
typedef struct node {
    int64_t rank; /* longest remaining path, ns; of leaves: what they follow */
    int64_t ns;
    int32_t waiting; /* predecessors left */
    int32_t class_;  /* ESP_NONE: a movement */
} node_t;

struct esp_i_order {
    node_t *node;
    int64_t *ready_at_rank; /* least rank that remains after a predecessor */
    uint8_t *leaf;
    list_t *list;     /* per class */
    ready_t *ready;   /* the heaps of the lists: room for as many tasks as the class has */
    stream_t *stream; /* tree over the classes: node 1 is the root, n_leaves + class a leaf */
    int32_t *running; /* per class */
    int32_t *due;     /* what ends now, the least task last */
    int32_t n_leaves;
    event_t *moving;          /* movements on their way: min-heap on (time, task) */
    int64_t *collective_free; /* per class */
    uint64_t *touched;        /* bit per class: it may be able to start something */
    int32_t capacity, n_moving, n_due, n_positions;
};

#define NEVER INT64_MAX

static int32_t leaves_of(int32_t n_classes)
{
    int32_t leaves = 1;
    while (leaves < n_classes)
        leaves *= 2;
    return leaves;
}

esp_status_t esp_i_order_init(esp_lowerer_t *lw)
{
    const esp_allocator_t *alloc = &lw->alloc;
    int64_t devices = lw->cluster->n_devices, leaves = leaves_of(lw->cluster->n_devices);
    struct esp_i_order *o = lw->order = esp_i_alloc_array(alloc, 1, sizeof *o);
    bool fine = o && (o->list = esp_i_alloc_array(alloc, devices, sizeof *o->list)) &&
                (o->stream = esp_i_alloc_array(alloc, 2 * leaves, sizeof *o->stream)) &&
                (o->running = esp_i_alloc_array(alloc, leaves, sizeof(int32_t))) &&
                (o->due = esp_i_alloc_array(alloc, leaves, sizeof(int32_t))) &&
                (o->collective_free = esp_i_alloc_array(alloc, devices, sizeof(int64_t))) &&
                (o->touched = esp_i_alloc_array(alloc, (devices + 63) / 64, sizeof(uint64_t)));
    return fine ? ESP_OK : ESP_ERR_NOMEM;
}

void esp_i_order_fini(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    if (!o)
        return;
    void *blocks[] = {o->node,   o->ready_at_rank,   o->leaf,    o->ready,
                      o->list,   o->stream,          o->running, o->due,
                      o->moving, o->collective_free, o->touched, o};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        esp_i_free(&lw->alloc, blocks[i]);
}

/* ---- what runs ---------------------------------------------------------------------------------
 */

static bool sooner(event_t a, event_t b)
{
    return (a.time < b.time) | ((a.time == b.time) & (a.task < b.task));
}

static uint32_t leaf_of(const struct esp_i_order *o, int32_t class_)
{
    return (uint32_t)(o->n_leaves + class_);
}

/* What is above comes from registers, not from what was just stored: this is on the path from event
 * to event. */
static void stream_set(struct esp_i_order *o, int32_t class_, int64_t end)
{
    stream_t *stream = o->stream;
    uint32_t at = leaf_of(o, class_);
    stream[at].end = end;
    for (; at > 1; at /= 2) {
        int64_t other = stream[at ^ 1].end;
        int32_t its = stream[at ^ 1].class_;
        class_ = other < end ? its : class_;
        end = other < end ? other : end;
        stream[at / 2].end = end;
        stream[at / 2].class_ = class_;
    }
}

static void due_add(struct esp_i_order *o, int32_t task)
{
    int32_t at = o->n_due++;
    for (; at > 0 && o->due[at - 1] < task; at--)
        o->due[at] = o->due[at - 1];
    o->due[at] = task;
}

/* What ends at that time on the streams below a node. */
static void due_below(struct esp_i_order *o, int32_t at, int64_t time)
{
    if (o->stream[at].end != time)
        return;
    if (at >= o->n_leaves) {
        due_add(o, o->running[o->stream[at].class_]);
        return;
    }
    due_below(o, 2 * at, time);
    due_below(o, 2 * at + 1, time);
}

/* What ends at that time on the streams, to be taken by task. Mostly it is one task, which is
 * returned instead; ESP_NONE: the list, if anything. */
static int32_t due_find(struct esp_i_order *o, int64_t time)
{
    stream_t first = o->stream[1];
    bool more = o->n_moving && o->moving[0].time == time;
    if (first.end != time)
        return ESP_NONE;
    for (uint32_t at = leaf_of(o, first.class_); at > 1; at /= 2)
        more |= o->stream[at ^ 1].end == time;
    if (!more)
        return o->running[first.class_];
    due_below(o, 1, time);
    return ESP_NONE;
}

static void streams_reset(struct esp_i_order *o, int32_t n_classes)
{
    o->n_leaves = leaves_of(n_classes);
    for (int32_t at = 2 * o->n_leaves - 1; at > 0; at--)
        o->stream[at] = (stream_t){NEVER, at < o->n_leaves ? 0 : at - o->n_leaves};
}

static void moving_push(struct esp_i_order *o, event_t event)
{
    int32_t at = o->n_moving++;
    for (; at > 0 && sooner(event, o->moving[(at - 1) / 2]); at = (at - 1) / 2)
        o->moving[at] = o->moving[(at - 1) / 2];
    o->moving[at] = event;
}

static event_t moving_pop(struct esp_i_order *o)
{
    event_t top = o->moving[0], last = o->moving[--o->n_moving];
    int32_t at = 0, n = o->n_moving;
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && sooner(o->moving[child + 1], o->moving[child]);
        if (!sooner(o->moving[child], last))
            break;
        o->moving[at] = o->moving[child];
    }
    o->moving[at] = last;
    return top;
}

/* When something ends next. */
static int64_t time_next(const struct esp_i_order *o)
{
    int64_t end = o->stream[1].end;
    return o->n_moving ? esp_i_min_i64(o->moving[0].time, end) : end;
}

/* The least task of those that end now; ESP_NONE: there is none left. */
static int32_t due_take(struct esp_i_order *o, int64_t now)
{
    bool moving = o->n_moving && o->moving[0].time == now;
    if (o->n_due && (!moving || o->due[o->n_due - 1] < o->moving[0].task))
        return o->due[--o->n_due];
    return moving ? moving_pop(o).task : ESP_NONE;
}

/* ---- what is ready -----------------------------------------------------------------------------
 */

static inline bool more_urgent(ready_t a, ready_t b)
{
    return (a.rank > b.rank) | ((a.rank == b.rank) & (a.task < b.task));
}

static void heap_push(ready_t *heap, int32_t n, ready_t ready)
{
    uint32_t at = (uint32_t)n;
    for (; at > 0 && more_urgent(ready, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = ready;
}

/* Leaves n entries. The hole sinks to the bottom, where the last entry mostly belongs. */
static int32_t heap_pop(ready_t *heap, int32_t n)
{
    ready_t last = heap[n];
    int32_t top = heap[0].task;
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < (uint32_t)n; at = child) {
        child += more_urgent(heap[child + 1], heap[child]);
        heap[at] = heap[child];
    }
    heap_push(heap, (int32_t)at, last);
    return top;
}

static void list_push(struct esp_i_order *o, list_t *list, ready_t ready)
{
    ready_t *heap = o->ready + list->first, *near = list->near;
    if (list->n_near == NEAR) {
        heap_push(heap, list->n++, near[0]);
        memmove(near, near + 1, (size_t)--list->n_near * sizeof *near);
    }
    if (list->n > 0 && more_urgent(heap[0], ready)) {
        heap_push(heap, list->n++, ready);
        return;
    }
    int32_t at = list->n_near++;
    for (; at > 0 && more_urgent(near[at - 1], ready); at--)
        near[at] = near[at - 1];
    near[at] = ready;
}

/* The most urgent task; ESP_NONE: none is ready. */
static int32_t list_pop(struct esp_i_order *o, list_t *list)
{
    if (list->n_near > 0)
        return list->near[--list->n_near].task;
    return list->n > 0 ? heap_pop(o->ready + list->first, --list->n) : ESP_NONE;
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
    if (!esp_i_resize(&lw->alloc, &o->node, 0, need, sizeof *o->node) ||
        !esp_i_resize(&lw->alloc, &o->ready_at_rank, 0, need, sizeof *o->ready_at_rank) ||
        !esp_i_resize(&lw->alloc, &o->leaf, 0, need, sizeof *o->leaf) ||
        !esp_i_resize(&lw->alloc, &o->moving, 0, need, sizeof *o->moving) ||
        !esp_i_resize(&lw->alloc, &o->ready, 0, need, sizeof *o->ready))
        return false;
    o->capacity = (int32_t)need;
    return true;
}

static bool is_update(const esp_lowerer_t *lw, int32_t task)
{
    int32_t op = lw->tasks.op[task];
    return op != ESP_NONE && lw->graph->op_phase[op] == ESP_PHASE_UPDATE;
}

/* Longest remaining paths, and which tasks lead to nothing but updates. */
static void ranks_find(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    for (int32_t t = lw->tasks.n - 1; t >= 0; t--) {
        int64_t longest = 0, ns = lw->tasks.ns[t];
        uint8_t leaf = 1;
        for (int32_t e = lw->successor_offset[t]; e < lw->successor_offset[t + 1]; e++) {
            int32_t next = lw->successor[e];
            longest = esp_i_max_i64(longest, o->node[next].rank);
            leaf &= o->leaf[next];
        }
        o->node[t] = (node_t){longest + ns, ns, lw->n_predecessors[t], lw->tasks.class_[t]};
        o->leaf[t] = leaf || is_update(lw, t);
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
        node_t *node = &o->node[t];
        if (o->leaf[t] && o->ready_at_rank[t] != INT64_MAX && !is_update(lw, t))
            node->rank = esp_i_max_i64(node->rank, o->ready_at_rank[t] - 1);
        int64_t left = node->rank - node->ns;
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
        above = esp_i_max_i64(above, o->node[t].rank + 1);
    above = esp_i_min_i64(above, INT64_MAX / (n_micro + 2));
    for (int32_t t = 0; t < lw->tasks.n; t++) {
        if (lw->tasks.micro[t] != ESP_NONE)
            o->node[t].rank += above * (n_micro - lw->tasks.micro[t]);
        else if (!is_update(lw, t))
            o->node[t].rank += above * (n_micro + 1);
    }
}

static void lists_reset(esp_lowerer_t *lw)
{
    list_t *list = lw->order->list;
    int32_t first = 0;
    memset(list, 0, (size_t)lw->n_classes * sizeof *list);
    for (int32_t t = 0; t < lw->tasks.n; t++)
        if (lw->tasks.class_[t] != ESP_NONE)
            list[lw->tasks.class_[t]].first++;
    for (int32_t c = 0; c < lw->n_classes; c++) {
        int32_t n = list[c].first;
        list[c].first = first;
        first += n;
    }
}

static void order_reset(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    o->n_moving = o->n_due = o->n_positions = 0;
    streams_reset(o, lw->n_classes);
    memset(o->collective_free, 0, (size_t)lw->n_classes * sizeof *o->collective_free);
    memset(o->touched, 0, ((size_t)lw->n_classes + 63) / 64 * sizeof *o->touched);
    lists_reset(lw);
    ranks_find(lw);
    leaves_raise(lw);
    micro_batches_rank(lw);
}

static void position_take(esp_lowerer_t *lw, int32_t task)
{
    struct esp_i_order *o = lw->order;
    lw->position[task] = o->n_positions;
    lw->order_ids[o->n_positions++] = task;
}

static void move_start(esp_lowerer_t *lw, int32_t task, int64_t now)
{
    struct esp_i_order *o = lw->order;
    int32_t comm = lw->tasks.comm[task];
    int64_t start = now, ns = o->node[task].ns;
    if (lw->comms.collective[comm]) {
        int32_t first = lw->comms.class_offset[comm], end = lw->comms.class_offset[comm + 1];
        for (int32_t i = first; i < end; i++)
            start = esp_i_max_i64(start, o->collective_free[lw->comm_classes.data[i]]);
        for (int32_t i = first; i < end; i++)
            o->collective_free[lw->comm_classes.data[i]] = start + ns;
    }
    position_take(lw, task);
    moving_push(o, (event_t){start + ns, task});
}

static void touch(struct esp_i_order *o, int32_t class_)
{
    o->touched[(uint32_t)class_ / 64] |= UINT64_C(1) << ((uint32_t)class_ % 64);
}

static void task_ready(esp_lowerer_t *lw, int32_t task, int64_t now)
{
    const node_t *node = &lw->order->node[task];
    if (node->class_ == ESP_NONE) {
        move_start(lw, task, now);
        return;
    }
    list_push(lw->order, &lw->order->list[node->class_], (ready_t){node->rank, task});
    touch(lw->order, node->class_);
}

/* A stream that has nothing to run takes its most urgent ready task. */
static void stream_start(esp_lowerer_t *lw, int32_t class_, int64_t now)
{
    struct esp_i_order *o = lw->order;
    int64_t end = o->stream[leaf_of(o, class_)].end;
    if (end > now && end != NEVER)
        return;
    int32_t task = list_pop(o, &o->list[class_]);
    o->running[class_] = task;
    if (task == ESP_NONE) {
        stream_set(o, class_, NEVER);
        return;
    }
    stream_set(o, class_, now + o->node[task].ns);
    position_take(lw, task);
    int32_t first = lw->successor_offset[task]; /* what is asked when the task ends */
    if (first < lw->successor_offset[task + 1])
        __builtin_prefetch(&o->node[lw->successor[first]]);
}

/* Classes in order. */
static void streams_start(esp_lowerer_t *lw, int64_t now)
{
    struct esp_i_order *o = lw->order;
    for (int32_t word = 0; 64 * word < lw->n_classes; word++) {
        uint64_t bits = o->touched[word];
        o->touched[word] = 0;
        for (; bits; bits &= bits - 1)
            stream_start(lw, 64 * word + __builtin_ctzll(bits), now);
    }
}

static void task_end(esp_lowerer_t *lw, int32_t task, int64_t now)
{
    struct esp_i_order *o = lw->order;
    int32_t end = lw->successor_offset[task + 1];
    if (o->node[task].class_ != ESP_NONE)
        touch(o, o->node[task].class_);
    for (int32_t e = lw->successor_offset[task]; e < end; e++)
        if (--o->node[lw->successor[e]].waiting == 0)
            task_ready(lw, lw->successor[e], now);
}

esp_status_t esp_i_order(esp_lowerer_t *lw, esp_diag_t *diag)
{
    if (!order_grow(lw))
        return esp_i_nomem(diag);
    struct esp_i_order *o = lw->order;
    order_reset(lw);
    for (int32_t t = 0; t < lw->tasks.n; t++)
        if (lw->n_predecessors[t] == 0)
            task_ready(lw, t, 0);
    streams_start(lw, 0);
    for (int64_t now; (now = time_next(o)) != NEVER;) {
        int32_t task = due_find(o, now);
        if (task == ESP_NONE)
            task = due_take(o, now);
        for (; task != ESP_NONE; task = due_take(o, now))
            task_end(lw, task, now);
        streams_start(lw, now);
    }
    if (o->n_positions != lw->tasks.n)
        return esp_i_fail(diag, ESP_ERR_INTERNAL, "the dependencies of a deployment form a cycle");
    return ESP_OK;
}
