/*
 * The global total order: list scheduling by longest remaining path, ties by id.
 *
 * Every class has a compute stream and a collective stream; other movements start when they are
 * ready. Links are taken as free: contention is the simulator's business, and it follows this
 * order. A task gets its position when it starts; it starts only after its predecessors have ended,
 * so the order is topological.
 *
 * Tasks that take no time make several rounds at one instant. In a round first everything ends that
 * is due, task by task, together with movements of no duration that start meanwhile; then, class by
 * class, streams that run nothing start their most urgent ready task. What ends at the instant at
 * which it started ends in the next round.
 *
 * Classes wait for each other through movements only. So, until the first movement ends, of those
 * on their way (known) or yet to start (no sooner than the shortest of all takes), every class can
 * run on alone: that is a window. It yields the same starts as round after round over all classes
 * would, class by class; movements that have become ready start at its end, in the order of the
 * ends that made them ready. order_sort.c brings all starts in order: by time and round, movements
 * before compute tasks, these by class.
 */
#include "deploy/order.h"

#define NEVER ESP_I_NEVER

/* ---- memory ------------------------------------------------------------------------------------
 */

esp_status_t esp_i_order_init(esp_lowerer_t *lw)
{
    const esp_allocator_t *alloc = &lw->alloc;
    int64_t devices = lw->cluster->n_devices;
    struct esp_i_order *o = lw->order = esp_i_alloc_array(alloc, 1, sizeof *o);
    bool fine =
        o && (o->list = esp_i_alloc_array(alloc, devices, sizeof *o->list)) &&
        (o->stream = esp_i_alloc_array(alloc, devices, sizeof *o->stream)) &&
        (o->due = esp_i_alloc_array(alloc, devices, sizeof *o->due)) &&
        (o->collective_free = esp_i_alloc_array(alloc, devices, sizeof *o->collective_free)) &&
        (o->count = esp_i_alloc_array(alloc, 1 << ESP_I_DIGIT_BITS, sizeof *o->count));
    return fine ? ESP_OK : ESP_ERR_NOMEM;
}

void esp_i_order_fini(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    if (!o)
        return;
    void *blocks[] = {o->rank,  o->follows, o->waiting,         o->heap,
                      o->after, o->latest,  o->pending.event,   o->moving.event,
                      o->list,  o->stream,  o->collective_free, o->due,
                      o->start, o->spare,   o->count,           o};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        esp_i_free(&lw->alloc, blocks[i]);
}

#define GROW(array) esp_i_resize(&lw->alloc, &o->array, 0, need, sizeof *o->array)
static bool tasks_grow(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    int64_t need = 2 * (int64_t)lw->tasks.n;
    if (lw->tasks.n <= o->capacity)
        return true;
    if (!GROW(rank) || !GROW(follows) || !GROW(waiting) || !GROW(heap) || !GROW(after) ||
        !GROW(start) || !GROW(spare))
        return false;
    o->capacity = (int32_t)need;
    return true;
}

static bool moves_grow(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    int64_t need = 2 * (int64_t)lw->comms.n;
    if (lw->comms.n <= o->move_capacity)
        return true;
    if (!GROW(latest) || !GROW(pending.event) || !GROW(moving.event))
        return false;
    o->move_capacity = (int32_t)need;
    return true;
}
#undef GROW

/* ---- ranks -------------------------------------------------------------------------------------
 */

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

/* ---- movements ---------------------------------------------------------------------------------
 */

#define MOVES INT32_MIN /* so that what compute tasks wait for is positive, movements negative */

static bool sooner(esp_i_order_event_t a, esp_i_order_event_t b)
{
    return (a.time < b.time) | ((a.time == b.time) & (a.at < b.at));
}

static void events_push(esp_i_order_events_t *events, esp_i_order_event_t event)
{
    int32_t at = events->n++;
    for (; at > 0 && sooner(event, events->event[(at - 1) / 2]); at = (at - 1) / 2)
        events->event[at] = events->event[(at - 1) / 2];
    events->event[at] = event;
}

static esp_i_order_event_t events_pop(esp_i_order_events_t *events)
{
    esp_i_order_event_t *event = events->event, top = event[0], last = event[--events->n];
    int32_t at = 0, n = events->n;
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && sooner(event[child + 1], event[child]);
        if (!sooner(event[child], last))
            break;
        event[at] = event[child];
    }
    event[at] = last;
    return top;
}

static int64_t events_next(const esp_i_order_events_t *events)
{
    return events->n ? events->event[0].time : NEVER;
}

static void move_start(esp_lowerer_t *lw, esp_i_order_event_t ready)
{
    struct esp_i_order *o = lw->order;
    int32_t comm = lw->tasks.comm[ready.task];
    int64_t start = ready.time, ns = lw->tasks.ns[ready.task];
    if (lw->comms.collective[comm]) {
        int32_t first = lw->comms.class_offset[comm], end = lw->comms.class_offset[comm + 1];
        for (int32_t i = first; i < end; i++)
            start = esp_i_max_i64(start, o->collective_free[lw->comm_classes.data[i]]);
        for (int32_t i = first; i < end; i++)
            o->collective_free[lw->comm_classes.data[i]] = start + ns;
    }
    esp_i_order_start_t *first = &o->start[o->n_starts++];
    *first = (esp_i_order_start_t){2 * (uint64_t)(ready.time - o->base), (int32_t)(ready.at >> 32),
                                   ready.task};
    o->keys |= first->key;
    o->n_moves++;
    events_push(&o->moving, (esp_i_order_event_t){start + ns, (uint64_t)ready.task, ready.task});
}

static void pending_start(esp_lowerer_t *lw)
{
    while (lw->order->pending.n > 0)
        move_start(lw, events_pop(&lw->order->pending));
}

/* A predecessor of a movement has ended, by edge e. In a window that is not always the last of
 * those that ended so far. Rare, and kept out of the loop over successors. */
__attribute__((noinline)) static void move_count(esp_lowerer_t *lw, int32_t task, int64_t now,
                                                 int32_t round, int32_t e)
{
    struct esp_i_order *o = lw->order;
    esp_i_order_event_t *latest = &o->latest[lw->tasks.comm[task]];
    esp_i_order_event_t this = {now, (uint64_t)round << 32 | (uint32_t)e, task};
    if (!sooner(this, *latest))
        *latest = this;
    if (o->waiting[task] == MOVES) {
        o->rank[task] = esp_i_max_i64(o->rank[task], o->follows[task] - 1);
        events_push(&o->pending, *latest);
    }
}

/* ---- the schedule ------------------------------------------------------------------------------
 */

static inline void task_ready(esp_lowerer_t *lw, esp_i_ready_list_t *list, int32_t task)
{
    esp_i_ready_push(list, esp_i_ready_of(level_of(lw, task), lw->order->rank[task], task));
}

/* Who waited for a task is on lists[0], which is that of its class, or, after a movement, any. */
static inline void task_end(esp_lowerer_t *lw, int32_t task, int64_t now, int32_t round,
                            esp_i_ready_list_t *lists, bool any)
{
    const int32_t *successor = lw->successor, end = lw->successor_offset[task + 1];
    int32_t *waiting = lw->order->waiting;
    int64_t *rank = lw->order->rank, *follows = lw->order->follows;
    int64_t left = rank[task] - lw->tasks.ns[task];
    for (int32_t e = lw->successor_offset[task]; e < end; e++) {
        int32_t next = successor[e];
        int64_t least = esp_i_min_i64(follows[next], left);
        follows[next] = least;
        int32_t more = --waiting[next];
        if (more > 0)
            continue;
        if (more < 0) {
            move_count(lw, next, now, round, e);
            continue;
        }
        esp_dcheck(any || lw->tasks.class_[next] == lw->tasks.class_[task]);
        rank[next] = esp_i_max_i64(rank[next], least - 1);
        task_ready(lw, any ? &lists[lw->tasks.class_[next]] : lists, next);
    }
}

/* A stream that runs nothing takes the most urgent ready task of its class; idle: NEVER. */
static inline esp_i_order_stream_t stream_start(const esp_lowerer_t *lw, esp_i_ready_list_t *list,
                                                int64_t now, int32_t round,
                                                esp_i_order_start_t *start)
{
    int32_t task = esp_i_ready_pop(list);
    if (task == ESP_NONE)
        return (esp_i_order_stream_t){.end = NEVER};
    int64_t ns = lw->tasks.ns[task];
    start->key = 2 * (uint64_t)(now - lw->order->base) + 1;
    start->round = round;
    start->task = task;
    return (esp_i_order_stream_t){now + ns, ns == 0 ? round + 1 : 0, task};
}

/* A class runs on alone; a function of its own, as its state then stays in registers. */
__attribute__((noinline)) static void class_run(esp_lowerer_t *lw, int32_t class_, int64_t until)
{
    struct esp_i_order *o = lw->order;
    esp_i_ready_list_t *list = &o->list[class_];
    esp_i_order_stream_t s = o->stream[class_];
    esp_i_order_start_t *start = o->start + o->n_starts;
    int32_t rounds = 0;
    do {
        task_end(lw, s.task, s.end, s.round, list, false);
        rounds |= s.round;
        s = stream_start(lw, list, s.end, s.round, start);
        start += s.end != NEVER;
    } while (s.end < until);
    if (start > o->start)
        o->keys |= start[-1].key;
    o->rounds |= rounds;
    o->stream[class_] = s;
    o->n_starts = (int32_t)(start - o->start);
}

static void window_run(esp_lowerer_t *lw, int64_t until)
{
    struct esp_i_order *o = lw->order;
    o->next = NEVER;
    for (int32_t c = 0; c < lw->n_classes; c++) {
        if (o->stream[c].end < until)
            class_run(lw, c, until);
        o->next = esp_i_min_i64(o->next, o->stream[c].end);
    }
    pending_start(lw);
}

/* Classes in order. */
static void streams_start(esp_lowerer_t *lw, int64_t now)
{
    struct esp_i_order *o = lw->order;
    o->next = NEVER;
    for (int32_t c = 0; c < lw->n_classes; c++) {
        esp_i_order_stream_t *s = &o->stream[c];
        if (s->end == now || s->end == NEVER) {
            *s = stream_start(lw, &o->list[c], now, o->round, &o->start[o->n_starts]);
            o->n_starts += s->end != NEVER;
        }
        o->next = esp_i_min_i64(o->next, s->end);
    }
}

static void due_add(struct esp_i_order *o, int32_t task)
{
    int32_t at = o->n_due++;
    for (; at > 0 && o->due[at - 1] < task; at--)
        o->due[at] = o->due[at - 1];
    o->due[at] = task;
}

/* The least task of those that end now; ESP_NONE: there is none left. */
static int32_t due_take(struct esp_i_order *o, int64_t now)
{
    bool moving = events_next(&o->moving) == now;
    if (o->n_due && (!moving || o->due[o->n_due - 1] < o->moving.event[0].task))
        return o->due[--o->n_due];
    return moving ? events_pop(&o->moving).task : ESP_NONE;
}

/* A round of all classes. */
static void round_run(esp_lowerer_t *lw, int64_t now)
{
    struct esp_i_order *o = lw->order;
    o->round = now == o->time ? o->round + 1 : 0;
    o->time = now;
    o->keys |= 2 * (uint64_t)(now - o->base);
    o->rounds |= o->round;
    for (int32_t c = 0; c < lw->n_classes; c++)
        if (o->stream[c].end == now)
            due_add(o, o->stream[c].task);
    for (int32_t task; (task = due_take(o, now)) != ESP_NONE;) {
        task_end(lw, task, now, o->round, o->list, true);
        pending_start(lw);
    }
    streams_start(lw, now);
}

/* No movement that starts now or later ends before that. */
static int64_t horizon_of(const esp_lowerer_t *lw, int64_t now)
{
    const struct esp_i_order *o = lw->order;
    bool all = o->n_moves == lw->comms.n || o->least > NEVER - now;
    return all ? NEVER : now + o->least;
}

/* ---- from the beginning ------------------------------------------------------------------------
 */

static void lists_reset(esp_lowerer_t *lw)
{
    esp_i_ready_list_t *list = lw->order->list;
    esp_i_order_ready_t *heap = lw->order->heap;
    const int32_t *class_ = lw->tasks.class_;
    memset(list, 0, (size_t)lw->n_classes * sizeof *list);
    for (int32_t t = 0, n = lw->tasks.n; t < n; t++)
        if (class_[t] != ESP_NONE)
            list[class_[t]].n++;
    for (int32_t c = 0; c < lw->n_classes; c++) {
        list[c].heap = heap;
        heap += list[c].n;
        list[c].n = 0;
        list[c].after = lw->order->after;
    }
}

static void movements_reset(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    o->pending.n = o->moving.n = o->n_moves = 0;
    o->least = NEVER;
    for (int32_t comm = 0; comm < lw->comms.n; comm++) {
        int32_t task = lw->comms.task[comm];
        o->waiting[task] += MOVES;
        o->latest[comm] = (esp_i_order_event_t){0, 0, task};
        o->least = esp_i_min_i64(o->least, lw->tasks.ns[task]);
    }
    memset(o->collective_free, 0, (size_t)lw->n_classes * sizeof *o->collective_free);
}

static void order_reset(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    o->n_due = o->n_starts = o->n_settled = o->round = o->rounds = 0;
    o->time = o->base = 0;
    o->keys = 0;
    memcpy(o->waiting, lw->n_predecessors, (size_t)lw->tasks.n * sizeof *o->waiting);
    for (int32_t c = 0; c < lw->n_classes; c++)
        o->stream[c].end = NEVER;
    lists_reset(lw);
    movements_reset(lw);
    ranks_find(lw);
}

/* Round 0 of time 0. */
static void begin(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    const int32_t *waits = lw->n_predecessors;
    for (int32_t t = 0, n = lw->tasks.n; t < n; t++) {
        if (waits[t] > 0)
            continue;
        if (lw->tasks.class_[t] == ESP_NONE)
            move_start(lw, (esp_i_order_event_t){0, 0, t});
        else
            task_ready(lw, &o->list[lw->tasks.class_[t]], t);
    }
    streams_start(lw, 0);
}

esp_status_t esp_i_order(esp_lowerer_t *lw, esp_diag_t *diag)
{
    if (!tasks_grow(lw) || !moves_grow(lw))
        return esp_i_nomem(diag);
    struct esp_i_order *o = lw->order;
    order_reset(lw);
    begin(lw);
    for (int64_t now; (now = esp_i_min_i64(o->next, events_next(&o->moving))) != NEVER;) {
        int64_t until = esp_i_min_i64(horizon_of(lw, now), events_next(&o->moving));
        if (o->n_starts >= ESP_I_MANY) {
            esp_i_order_settle(lw);
            o->base = now;
        }
        if (until > now)
            window_run(lw, until);
        else
            round_run(lw, now);
    }
    esp_i_order_settle(lw);
    if (o->n_settled != lw->tasks.n)
        return esp_i_fail(diag, ESP_ERR_INTERNAL, "the dependencies of a deployment form a cycle");
    return ESP_OK;
}
