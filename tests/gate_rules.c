/* Order and memory hazards of deployments, by transitive closure over two steps. */
#include "gate.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TASKS = 1500 }; /* the closure is quadratic; larger deployments are only ordered */

typedef struct closure {
    const esp_deployment_t *d;
    int32_t n;         /* tasks of one step; node step * n + task */
    int64_t words;     /* per node */
    uint64_t *reached; /* [node]: nodes that come before it */
} closure_t;

static bool before(const closure_t *c, int32_t a, int32_t b)
{
    return c->reached[b * c->words + a / 64] >> (a % 64) & 1;
}

static void order(const closure_t *c, int32_t a, int32_t b)
{
    if (a == b || before(c, a, b))
        return;
    for (int64_t w = 0; w < c->words; w++)
        c->reached[b * c->words + w] |= c->reached[a * c->words + w];
    c->reached[b * c->words + a / 64] |= UINT64_C(1) << (a % 64);
}

/* Edges by their head: those of task t are [offset[t], offset[t + 1]). */
typedef struct edges {
    int32_t *offset, *tail;
} edges_t;

static edges_t edges_new(int32_t n, int32_t count, const int32_t *before_, const int32_t *after)
{
    edges_t edges = {calloc((size_t)n + 2, sizeof(int32_t)),
                     calloc((size_t)count + 1, sizeof(int32_t))};
    assert_non_null(edges.offset);
    assert_non_null(edges.tail);
    for (int32_t e = 0; e < count; e++)
        edges.offset[after[e] + 2]++;
    for (int32_t t = 0; t < n; t++)
        edges.offset[t + 2] += edges.offset[t + 1];
    for (int32_t e = 0; e < count; e++)
        edges.tail[edges.offset[after[e] + 1]++] = before_[e];
    return edges;
}

static void edges_free(edges_t *edges)
{
    free(edges->offset);
    free(edges->tail);
}

static void order_edges(const closure_t *c, const edges_t *edges, int32_t from_step, int32_t step,
                        int32_t task)
{
    for (int32_t e = edges->offset[task]; e < edges->offset[task + 1]; e++)
        order(c, from_step * c->n + edges->tail[e], step * c->n + task);
}

/* After the last task of each stream that the task occupies; last[2 * class + collective]. */
static void order_streams(const closure_t *c, int32_t *last, int32_t step, int32_t task)
{
    const esp_deployment_t *d = c->d;
    const int32_t comm = d->task_comm[task], node = step * c->n + task;
    const bool moves = comm != ESP_NONE;
    if (moves && !d->comm_collective[comm])
        return;
    const int32_t begin = moves ? d->comm_class_offset[comm] : 0;
    const int32_t end = moves ? d->comm_class_offset[comm + 1] : 1;
    for (int32_t i = begin; i < end; i++) {
        int32_t *stream = &last[2 * (moves ? d->comm_class[i] : d->task_class[task]) + moves];
        if (*stream != ESP_NONE)
            order(c, *stream, node);
        *stream = node;
    }
}

/* All dependencies of a step, with those that packing added. */
static edges_t step_edges(const esp_deployment_t *d)
{
    const int32_t n = d->successor_offset[d->n_tasks] + d->n_extra;
    int32_t *tail = calloc(2 * (size_t)n + 1, sizeof *tail), *head = tail + n, count = 0;
    assert_non_null(tail);
    for (int32_t t = 0; t < d->n_tasks; t++)
        for (int32_t e = d->successor_offset[t]; e < d->successor_offset[t + 1]; e++) {
            tail[count] = t;
            head[count++] = d->successor[e];
        }
    for (int32_t e = 0; e < d->n_extra; e++) {
        tail[count] = d->extra_before[e];
        head[count++] = d->extra_after[e];
    }
    const edges_t edges = edges_new(d->n_tasks, count, tail, head);
    free(tail);
    return edges;
}

/* In the global order: what comes before a task is complete when it is reached. */
static void order_all(const closure_t *c)
{
    const esp_deployment_t *d = c->d;
    edges_t within = step_edges(d);
    edges_t across = edges_new(c->n, d->n_cross, d->cross_before, d->cross_after);
    int32_t *last = calloc(2 * (size_t)d->n_classes + 1, sizeof *last);
    assert_non_null(last);
    for (int32_t i = 0; i < 2 * d->n_classes; i++)
        last[i] = ESP_NONE;
    for (int32_t i = 0; i < 2 * c->n; i++) {
        const int32_t step = i / c->n, task = d->order[i % c->n];
        order_streams(c, last, step, task);
        order_edges(c, &within, step, step, task);
        if (step == 1)
            order_edges(c, &across, 0, 1, task);
    }
    free(last);
    edges_free(&across);
    edges_free(&within);
}

/*
 * An access to the memory of a root buffer: its bytes in the arena of a class, or, before packing,
 * one unit of an address space in which every root is apart.
 */
typedef struct access {
    int32_t task, root, class_;
    bool writes;
    int64_t start, end;
} access_t;

static int compare_accesses(const void *a, const void *b)
{
    const access_t *x = a, *y = b;
    const int by_class = (x->class_ > y->class_) - (x->class_ < y->class_);
    return by_class ? by_class : (x->start > y->start) - (x->start < y->start);
}

static access_t access_of(const esp_deployment_t *d, int32_t task, int32_t buffer, bool writes)
{
    const int32_t root = d->buffer_root[buffer];
    const int64_t start = d->buffer_offset ? d->buffer_offset[root] : root;
    return (access_t){.task = task,
                      .root = root,
                      .class_ = d->buffer_class[root],
                      .writes = writes,
                      .start = start,
                      .end = start + (d->buffer_offset ? d->buffer_bytes[root] : 1)};
}

static int32_t accesses(const esp_deployment_t *d, access_t *out)
{
    int32_t n = 0;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        for (int32_t r = d->read_offset[t]; r < d->read_offset[t + 1]; r++)
            if (d->read_buffer[r] != ESP_NONE)
                out[n++] = access_of(d, t, d->read_buffer[r], false);
        for (int32_t w = d->write_offset[t]; w < d->write_offset[t + 1]; w++)
            out[n++] = access_of(d, t, d->write_buffer[w], true);
    }
    return n;
}

static const char *task_name(const esp_deployment_t *d, int32_t task)
{
    return d->task_op[task] == ESP_NONE ? "?" : d->graph->op_name[d->task_op[task]];
}

static const char *root_name(const esp_deployment_t *d, int32_t root)
{
    return d->graph->tensor_name[d->value_tensor[d->buffer_value[root]]];
}

/* The same memory: in the order of ids, which is what the values mean. Memory that two roots share
 * in turn: in the global order. */
static void check_pair(const closure_t *c, access_t a, access_t b, const char *what)
{
    const esp_deployment_t *d = c->d;
    if (!(a.writes || b.writes))
        return;
    const bool in_order =
        a.root == b.root ? a.task < b.task : d->position[a.task] < d->position[b.task];
    const int32_t first = in_order ? a.task : b.task, second = in_order ? b.task : a.task;
    const bool here = first == second || before(c, first, second);
    if (here && before(c, first, c->n + second) && before(c, second, c->n + first))
        return;
    fail_msg("%s: tasks %d (kind %d, of %s) and %d (kind %d, of %s) are not ordered %s: memory of "
             "%s and %s",
             what, first, d->task_kind[first], task_name(d, first), second, d->task_kind[second],
             task_name(d, second), here ? "from step to step" : "within a step",
             root_name(d, a.root), root_name(d, b.root));
}

static void check_hazards(const esp_deployment_t *d, const char *what)
{
    closure_t c = {.d = d, .n = d->n_tasks, .words = (2 * d->n_tasks + 63) / 64};
    c.reached = calloc((size_t)(2 * c.n * c.words) + 1, sizeof *c.reached);
    access_t *access =
        calloc((size_t)(d->read_offset[c.n] + d->write_offset[c.n]) + 1, sizeof *access);
    assert_non_null(c.reached);
    assert_non_null(access);
    order_all(&c);
    const int32_t n = accesses(d, access);
    qsort(access, (size_t)n, sizeof *access, compare_accesses);
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = i;
             j < n && access[j].class_ == access[i].class_ && access[j].start < access[i].end; j++)
            check_pair(&c, access[i], access[j], what);
    free(access);
    free(c.reached);
}

/* Memory is used by one root after the other: no access to one lies between two of another. */
static void check_lifetimes(const esp_deployment_t *d)
{
    int32_t *begin = calloc(2 * (size_t)d->n_buffers + 1, sizeof *begin), *end;
    assert_non_null(begin);
    end = begin + d->n_buffers;
    access_t *access = calloc(
        (size_t)(d->read_offset[d->n_tasks] + d->write_offset[d->n_tasks]) + 1, sizeof *access);
    assert_non_null(access);
    for (int32_t b = 0; b < d->n_buffers; b++)
        begin[b] = d->n_tasks;
    const int32_t n = accesses(d, access);
    for (int32_t i = 0; i < n; i++) {
        const int32_t root = access[i].root, at = d->position[access[i].task];
        begin[root] = at < begin[root] ? at : begin[root];
        end[root] = at > end[root] ? at : end[root];
        if (d->buffer_resident[root]) {
            begin[root] = 0;
            end[root] = d->n_tasks;
        }
    }
    qsort(access, (size_t)n, sizeof *access, compare_accesses);
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = i;
             j < n && access[j].class_ == access[i].class_ && access[j].start < access[i].end;
             j++) {
            const int32_t a = access[i].root, b = access[j].root;
            if (a != b && begin[a] <= end[b] && begin[b] <= end[a])
                fail_msg("%s and %s share memory at the same time", root_name(d, a),
                         root_name(d, b));
        }
    free(access);
    free(begin);
}

/* ---- order ------------------------------------------------------------------------------- */

static void check_order(const esp_deployment_t *d)
{
    int32_t *predecessors = calloc((size_t)d->n_tasks + 1, sizeof *predecessors);
    assert_non_null(predecessors);
    for (int32_t i = 0; i < d->n_tasks; i++) {
        assert_in_range(d->order[i], 0, d->n_tasks - 1);
        assert_int_equal(d->position[d->order[i]], i);
        for (int32_t e = d->successor_offset[i]; e < d->successor_offset[i + 1]; e++) {
            assert_true(d->buffer_offset || d->successor[e] > i); /* packing follows the order */
            assert_true(d->position[d->successor[e]] > d->position[i]);
            predecessors[d->successor[e]]++;
        }
    }
    for (int32_t i = 0; i < d->n_tasks; i++)
        assert_int_equal(predecessors[i], d->n_predecessors[i]);
    free(predecessors);
}

/* One writer per buffer, which is its producer unless the buffer is an alias. */
static void check_writers(const esp_deployment_t *d)
{
    int32_t *writer = calloc((size_t)d->n_buffers + 1, sizeof *writer);
    assert_non_null(writer);
    for (int32_t t = 0; t < d->n_tasks; t++)
        for (int32_t w = d->write_offset[t]; w < d->write_offset[t + 1]; w++) {
            assert_int_equal(writer[d->write_buffer[w]], 0);
            writer[d->write_buffer[w]] = t + 1;
            assert_int_equal(d->buffer_producer[d->write_buffer[w]], t);
        }
    for (int32_t b = 0; b < d->n_buffers; b++) {
        assert_int_equal(d->buffer_root[d->buffer_root[b]], d->buffer_root[b]);
        assert_int_equal(d->buffer_class[d->buffer_root[b]], d->buffer_class[b]);
    }
    free(writer);
}

void gate_check_rules(const esp_deployment_t *d, const char *what)
{
    check_order(d);
    check_writers(d);
    check_lifetimes(d);
    if (d->n_tasks <= MAX_TASKS)
        check_hazards(d, what);
}
