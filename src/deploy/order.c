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

/* A task that is ready, on the list of its class. The more urgent of two is the greater. */
__extension__ typedef unsigned __int128 ready_t;

/* Ready tasks of a class. While backward runs, hundreds of updates wait in the heap: the few tasks
 * that come next are kept apart from them. */
enum { NEAR = 8 };
typedef struct list {
    ready_t *heap; /* the most urgent first */
    int32_t n, n_near;
    ready_t near[1 + NEAR]; /* from 1: more urgent than the heap, the most urgent last; 0: heap[0],
                               or 0 */
} list_t;

struct esp_i_order {
    int64_t *rank;    /* longest remaining path, ns; of leaves that are ready: what they follow */
    int64_t *follows; /* NO_LEAF, UPDATE, or least rank that remains after a predecessor */
    int32_t *waiting; /* predecessors left */
    list_t *list;     /* per class */
    ready_t *ready;   /* the heaps of the lists: room for as many tasks as the class has */
    /* What the compute streams run, and until when (idle: NEVER), in a tree: node n_leaves + class
     * is a stream, and above is the first of those below to end. Node 1 is the root. */
    int64_t *end;
    uint32_t *running;        /* in the tree: TIED if another one below ends then, too */
    int32_t *due;             /* what ends now, the least task last */
    event_t *moving;          /* movements on their way: min-heap on (time, task) */
    int64_t moving_next;      /* when the first of them ends; NEVER: there is none */
    int64_t *collective_free; /* per class */
    uint64_t *touched;        /* bit per class: it may be able to start something */
    bool any_touched;
    int32_t capacity, n_leaves, n_moving, n_due, n_positions;
};

#define NEVER INT64_MAX
#define TIED  (UINT32_C(1) << 31)

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
                (o->end = esp_i_alloc_array(alloc, 2 * leaves, sizeof *o->end)) &&
                (o->running = esp_i_alloc_array(alloc, 2 * leaves, sizeof *o->running)) &&
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
    void *blocks[] = {o->rank,    o->follows, o->waiting, o->ready,           o->list,    o->end,
                      o->running, o->due,     o->moving,  o->collective_free, o->touched, o};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        esp_i_free(&lw->alloc, blocks[i]);
}

/* ---- what runs ---------------------------------------------------------------------------------
 */

static bool sooner(event_t a, event_t b)
{
    return (a.time < b.time) | ((a.time == b.time) & (a.task < b.task));
}

static size_t leaf_of(const struct esp_i_order *o, int32_t class_)
{
    return (size_t)(o->n_leaves + class_);
}

/* What is above comes from registers, not from what was just stored: this is on the path from event
 * to event. */
static void stream_set(struct esp_i_order *o, int32_t class_, int64_t end, int32_t task)
{
    int64_t *ends = o->end;
    uint32_t *running = o->running, first = (uint32_t)task;
    size_t at = leaf_of(o, class_);
    ends[at] = end;
    running[at] = first;
    for (; at > 1; at /= 2) {
        int64_t other = ends[at ^ 1];
        uint32_t its = running[at ^ 1];
        first |= other == end ? TIED : 0;
        first = other < end ? its : first;
        end = other < end ? other : end;
        ends[at / 2] = end;
        running[at / 2] = first;
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
    if (o->end[at] != time)
        return;
    if (at >= o->n_leaves) {
        due_add(o, (int32_t)o->running[at]);
        return;
    }
    due_below(o, 2 * at, time);
    due_below(o, 2 * at + 1, time);
}

static void streams_reset(struct esp_i_order *o, int32_t n_classes)
{
    o->n_leaves = leaves_of(n_classes);
    for (int32_t at = 2 * o->n_leaves - 1; at > 0; at--)
        o->end[at] = NEVER;
}

static void moving_push(struct esp_i_order *o, event_t event)
{
    int32_t at = o->n_moving++;
    for (; at > 0 && sooner(event, o->moving[(at - 1) / 2]); at = (at - 1) / 2)
        o->moving[at] = o->moving[(at - 1) / 2];
    o->moving[at] = event;
    o->moving_next = o->moving[0].time;
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
    o->moving_next = n ? o->moving[0].time : NEVER;
    return top;
}

/* The least task of those that end now; ESP_NONE: there is none left. */
static int32_t due_take(struct esp_i_order *o, int64_t now)
{
    bool moving = o->moving_next == now;
    if (o->n_due && (!moving || o->due[o->n_due - 1] < o->moving[0].task))
        return o->due[--o->n_due];
    return moving ? moving_pop(o).task : ESP_NONE;
}

/* ---- what is ready -----------------------------------------------------------------------------
 */

/* By level, then by rank, then by id. */
static inline ready_t ready_of(int64_t level, int64_t rank, int32_t task)
{
    return (ready_t)level << 96 | (ready_t)(uint64_t)rank << 32 | ~(uint32_t)task;
}

static inline int32_t task_of(ready_t ready)
{
    return (int32_t) ~(uint32_t)ready;
}

static void heap_push(ready_t *heap, int32_t n, ready_t ready)
{
    size_t at = (size_t)n;
    for (; at > 0 && ready > heap[(at - 1) / 2]; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = ready;
}

/* Leaves n entries. The hole sinks to the bottom, where the last entry mostly belongs. */
static void heap_pop(ready_t *heap, int32_t n)
{
    const ready_t last = heap[n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < (size_t)n; at = child) {
        child += heap[child + 1] > heap[child];
        heap[at] = heap[child];
    }
    heap_push(heap, (int32_t)at, last);
}

__attribute__((noinline)) static void list_push_far(list_t *list, ready_t ready)
{
    heap_push(list->heap, list->n++, ready);
    list->near[0] = list->heap[0];
}

/* The least urgent of the near ones joins the heap. */
__attribute__((noinline)) static void list_spill(list_t *list)
{
    list_push_far(list, list->near[1]);
    memmove(list->near + 1, list->near + 2, (size_t)--list->n_near * sizeof *list->near);
}

static inline void list_push(list_t *list, ready_t ready)
{
    if (list->n_near == NEAR)
        list_spill(list);
    if (list->near[0] > ready) {
        list_push_far(list, ready);
        return;
    }
    ready_t *at = list->near + ++list->n_near;
    for (; at[-1] > ready; at--)
        *at = at[-1];
    *at = ready;
}

__attribute__((noinline)) static int32_t list_pop_far(list_t *list)
{
    if (list->n == 0)
        return ESP_NONE;
    int32_t task = task_of(list->heap[0]);
    heap_pop(list->heap, --list->n);
    list->near[0] = list->n ? list->heap[0] : 0;
    return task;
}

/* The most urgent task; ESP_NONE: none is ready. */
static inline int32_t list_pop(list_t *list)
{
    return list->n_near ? task_of(list->near[list->n_near--]) : list_pop_far(list);
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
        !esp_i_resize(&lw->alloc, &o->follows, 0, need, sizeof *o->follows) ||
        !esp_i_resize(&lw->alloc, &o->waiting, 0, need, sizeof *o->waiting) ||
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

/*
 * Longest remaining paths, and leaves: tasks that lead to nothing but updates.
 *
 * The weight gradients of a layer are on no long path: by path alone they would wait until the
 * whole backward chain is through, keep its activations alive and start their reductions too late.
 * So leaves that are no updates follow the task of the chain that becomes ready with them: just
 * below the rank that remained after the last of their predecessors, which is known when they are
 * ready (task_end). Values of `follows` that change no rank there, as ranks are not negative:
 */
enum { NO_LEAF = 0, UPDATE = 1 };
#define LEAF INT64_MAX /* the others; UPDATE & LEAF is not 0 */

static void ranks_find(esp_lowerer_t *lw)
{
    const int32_t *offset = lw->successor_offset, *successor = lw->successor;
    const int64_t *ns = lw->tasks.ns;
    int64_t *rank = lw->order->rank, *follows = lw->order->follows;
    int32_t e = offset[lw->tasks.n];
    for (int32_t t = lw->tasks.n - 1; t >= 0; t--) {
        int64_t longest = 0, leaf = LEAF;
        for (const int32_t first = offset[t]; e > first;) {
            int32_t next = successor[--e];
            longest = esp_i_max_i64(longest, rank[next]);
            leaf &= follows[next];
        }
        rank[t] = longest + ns[t];
        follows[t] = is_update(lw, t) ? UPDATE : leaf ? LEAF : NO_LEAF;
    }
}

static void lists_reset(esp_lowerer_t *lw)
{
    list_t *list = lw->order->list;
    ready_t *heap = lw->order->ready;
    memset(list, 0, (size_t)lw->n_classes * sizeof *list);
    for (int32_t t = 0; t < lw->tasks.n; t++)
        if (lw->tasks.class_[t] != ESP_NONE)
            list[lw->tasks.class_[t]].n++;
    for (int32_t c = 0; c < lw->n_classes; c++) {
        list[c].heap = heap;
        heap += list[c].n;
        list[c].n = 0;
    }
}

static void order_reset(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    o->n_moving = o->n_due = o->n_positions = 0;
    o->moving_next = NEVER;
    streams_reset(o, lw->n_classes);
    memset(o->collective_free, 0, (size_t)lw->n_classes * sizeof *o->collective_free);
    memcpy(o->waiting, lw->n_predecessors, (size_t)lw->tasks.n * sizeof *o->waiting);
    memset(o->touched, 0, ((size_t)lw->n_classes + 63) / 64 * sizeof *o->touched);
    lists_reset(lw);
    ranks_find(lw);
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
    int64_t start = now, ns = lw->tasks.ns[task];
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
    o->any_touched = true;
}

/*
 * The same op of two micro-batches has the same path ahead of it: by path alone they would run in
 * lockstep and a pipeline would not fill. So an earlier micro-batch goes before a later one, what
 * runs once before both, and updates last.
 */
static int64_t level_of(const esp_lowerer_t *lw, int32_t task)
{
    int32_t n_micro = lw->strategy->micro_batches;
    if (n_micro == 1)
        return 0;
    if (lw->tasks.micro[task] != ESP_NONE)
        return n_micro - lw->tasks.micro[task];
    return is_update(lw, task) ? 0 : n_micro + 1;
}

static inline void task_ready(esp_lowerer_t *lw, int32_t task, int64_t now)
{
    struct esp_i_order *o = lw->order;
    int32_t class_ = lw->tasks.class_[task];
    if (class_ == ESP_NONE) {
        move_start(lw, task, now);
        return;
    }
    list_push(&o->list[class_], ready_of(level_of(lw, task), o->rank[task], task));
    if (o->end[leaf_of(o, class_)] == NEVER)
        touch(o, class_);
}

/* A stream that has nothing to run takes its most urgent ready task. */
static inline void stream_start(esp_lowerer_t *lw, int32_t class_, int64_t now)
{
    struct esp_i_order *o = lw->order;
    int32_t task = list_pop(&o->list[class_]);
    if (task == ESP_NONE) {
        stream_set(o, class_, NEVER, 0);
        return;
    }
    stream_set(o, class_, now + lw->tasks.ns[task], task);
    position_take(lw, task);
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
    o->any_touched = false;
}

static inline void task_end(esp_lowerer_t *lw, int32_t task, int64_t now)
{
    const int32_t *next = lw->successor + lw->successor_offset[task];
    const int32_t *end = lw->successor + lw->successor_offset[task + 1];
    int32_t *waiting = lw->order->waiting;
    int64_t *rank = lw->order->rank, *follows = lw->order->follows;
    int64_t left = rank[task] - lw->tasks.ns[task];
    for (; next < end; next++) {
        int64_t least = esp_i_min_i64(follows[*next], left);
        follows[*next] = least;
        if (--waiting[*next] > 0)
            continue;
        rank[*next] = esp_i_max_i64(rank[*next], least - 1);
        task_ready(lw, *next, now);
    }
}

/* What is due, task by task, and movements of no duration that start meanwhile; then the streams
 * start. */
static void round_finish(esp_lowerer_t *lw, int64_t now)
{
    struct esp_i_order *o = lw->order;
    for (int32_t task; (task = due_take(o, now)) != ESP_NONE;) {
        if (lw->tasks.class_[task] != ESP_NONE)
            touch(o, lw->tasks.class_[task]);
        task_end(lw, task, now);
    }
    streams_start(lw, now);
}

/* All that ends next, at one instant. Mostly that is one task on a stream, and then nothing but
 * this stream can start something. */
static void round_run(esp_lowerer_t *lw, int64_t now)
{
    struct esp_i_order *o = lw->order;
    uint32_t task = o->running[1];
    if (o->moving_next == now || (task & TIED)) {
        due_below(o, 1, now);
        round_finish(lw, now);
        return;
    }
    int32_t class_ = lw->tasks.class_[task];
    task_end(lw, (int32_t)task, now);
    if (!o->any_touched && o->moving_next > now) {
        stream_start(lw, class_, now);
        return;
    }
    touch(o, class_);
    round_finish(lw, now);
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
    for (int64_t now; (now = esp_i_min_i64(o->end[1], o->moving_next)) != NEVER;)
        round_run(lw, now);
    if (o->n_positions != lw->tasks.n)
        return esp_i_fail(diag, ESP_ERR_INTERNAL, "the dependencies of a deployment form a cycle");
    return ESP_OK;
}
