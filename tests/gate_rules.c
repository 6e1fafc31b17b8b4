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

/* Whether two tasks share a stream: the compute stream, or the collective stream of a class. */
static bool share_stream(const esp_deployment_t *d, int32_t a, int32_t b)
{
    if (d->task_class[a] != ESP_NONE || d->task_class[b] != ESP_NONE)
        return d->task_class[a] == d->task_class[b];
    const int32_t x = d->task_comm[a], y = d->task_comm[b];
    if (!d->comm_collective[x] || !d->comm_collective[y])
        return false;
    for (int32_t i = d->comm_class_offset[x]; i < d->comm_class_offset[x + 1]; i++)
        for (int32_t j = d->comm_class_offset[y]; j < d->comm_class_offset[y + 1]; j++)
            if (d->comm_class[i] == d->comm_class[j])
                return true;
    return false;
}

static void order_all(const closure_t *c)
{
    const esp_deployment_t *d = c->d;
    for (int32_t i = 0; i < 2 * c->n; i++) { /* in the global order: predecessors are complete */
        const int32_t step = i / c->n, task = d->order[i % c->n], node = step * c->n + task;
        for (int32_t j = 0; j < i; j++) {
            const int32_t other = d->order[j % c->n];
            if (share_stream(d, other, task))
                order(c, j / c->n * c->n + other, node);
        }
        for (int32_t e = 0; e < d->n_cross && step == 1; e++)
            if (d->cross_after[e] == task)
                order(c, d->cross_before[e], node);
        for (int32_t e = 0; e < d->n_extra; e++)
            if (d->extra_after[e] == task)
                order(c, step * c->n + d->extra_before[e], node);
        for (int32_t other = 0; other < c->n; other++)
            for (int32_t e = d->successor_offset[other]; e < d->successor_offset[other + 1]; e++)
                if (d->successor[e] == task)
                    order(c, step * c->n + other, node);
    }
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
