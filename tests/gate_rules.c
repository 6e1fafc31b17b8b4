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
        for (int32_t other = 0; other < c->n; other++)
            for (int32_t e = d->successor_offset[other]; e < d->successor_offset[other + 1]; e++)
                if (d->successor[e] == task)
                    order(c, step * c->n + other, node);
    }
}

typedef struct access {
    int32_t task, buffer;
    bool writes;
} access_t;

static int compare_accesses(const void *a, const void *b)
{
    const access_t *x = a, *y = b;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static int32_t accesses(const esp_deployment_t *d, access_t *out)
{
    int32_t n = 0;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        for (int32_t r = d->read_offset[t]; r < d->read_offset[t + 1]; r++)
            if (d->read_buffer[r] != ESP_NONE)
                out[n++] = (access_t){t, d->buffer_root[d->read_buffer[r]], false};
        for (int32_t w = d->write_offset[t]; w < d->write_offset[t + 1]; w++)
            out[n++] = (access_t){t, d->buffer_root[d->write_buffer[w]], true};
    }
    return n;
}

static const char *task_name(const esp_deployment_t *d, int32_t task)
{
    return d->task_op[task] == ESP_NONE ? "?" : d->graph->op_name[d->task_op[task]];
}

static void check_pair(const closure_t *c, access_t a, access_t b, const char *what)
{
    const esp_deployment_t *d = c->d;
    if (!(a.writes || b.writes))
        return;
    const int32_t first = a.task < b.task ? a.task : b.task, second = a.task + b.task - first;
    const char *tensor = d->graph->tensor_name[d->value_tensor[d->buffer_value[a.buffer]]];
    if (first != second && !before(c, first, second))
        fail_msg("%s: tasks %d (kind %d, of %s) and %d (kind %d, of %s) are not ordered: memory "
                 "of %s",
                 what, first, d->task_kind[first], task_name(d, first), second,
                 d->task_kind[second], task_name(d, second), tensor);
    if (!before(c, first, c->n + second) || !before(c, second, c->n + first))
        fail_msg("%s: tasks %d (kind %d, of %s) and %d (kind %d, of %s) are not ordered from step "
                 "to step: memory of %s",
                 what, first, d->task_kind[first], task_name(d, first), second,
                 d->task_kind[second], task_name(d, second), tensor);
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
        for (int32_t j = i; j < n && access[j].buffer == access[i].buffer; j++)
            check_pair(&c, access[i], access[j], what);
    free(access);
    free(c.reached);
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
            assert_true(d->successor[e] > i);
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
    if (d->n_tasks <= MAX_TASKS)
        check_hazards(d, what);
}
