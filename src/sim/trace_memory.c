/* Memory counters of a trace: live bytes per class over the predicted step. */
#include "sim/trace.h"

#include <stdlib.h>

typedef struct change {
    int32_t owner;
    int64_t time, bytes;
} change_t;
typedef ESP_VEC(change_t) changes_t;

static int compare_changes(const void *a, const void *b)
{
    const change_t *x = a, *y = b;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool add_change(const esp_i_trace_t *t, changes_t *changes, int32_t owner, int64_t start,
                       int64_t end, int64_t bytes)
{
    return bytes == 0 || (esp_vec_push(&t->alloc, changes, ((change_t){owner, start, bytes})) &&
                          esp_vec_push(&t->alloc, changes, ((change_t){owner, end, -bytes})));
}

/* From the first write to the end of the last use. */
static void find_lifetimes(const esp_i_trace_t *t, int64_t *born, int64_t *dead)
{
    const esp_deployment_t *d = t->d;
    for (int32_t b = 0; b < d->n_buffers; ++b)
        born[b] = INT64_MAX;
    for (int32_t task = 0; task < d->n_tasks; ++task) {
        for (int32_t i = d->write_offset[task]; i < d->write_offset[task + 1]; ++i) {
            if (d->write_buffer[i] < 0)
                continue;
            int32_t root = d->buffer_root[d->write_buffer[i]];
            born[root] = esp_i_min_i64(born[root], t->start[task]);
            dead[root] = esp_i_max_i64(dead[root], t->end[task]);
        }
        for (int32_t i = d->read_offset[task]; i < d->read_offset[task + 1]; ++i) {
            if (d->read_buffer[i] < 0)
                continue;
            int32_t root = d->buffer_root[d->read_buffer[i]];
            dead[root] = esp_i_max_i64(dead[root], t->end[task]);
        }
    }
}

static bool collect_scratch(const esp_i_trace_t *t, const int64_t *scratch, changes_t *changes)
{
    const esp_deployment_t *d = t->d;
    for (int32_t task = 0; task < d->n_tasks; ++task) {
        int64_t bytes = scratch[task];
        int64_t start = t->start[task], end = t->end[task];
        int32_t comm = d->task_comm[task];
        if (comm < 0 && !add_change(t, changes, d->task_class[task], start, end, bytes))
            return false;
        for (int32_t i = comm < 0 ? 0 : d->comm_class_offset[comm];
             comm >= 0 && i < d->comm_class_offset[comm + 1]; ++i)
            if (!add_change(t, changes, d->comm_class[i], start, end, bytes))
                return false;
    }
    return true;
}

static bool collect_changes(const esp_i_trace_t *t, const int64_t *scratch, changes_t *changes)
{
    const esp_deployment_t *d = t->d;
    int64_t *born = esp_i_alloc_array(&t->alloc, 2 * (int64_t)d->n_buffers + 1, sizeof *born);
    if (!born)
        return false;
    find_lifetimes(t, born, born + d->n_buffers);
    bool ok = true;
    for (int32_t b = 0; ok && b < d->n_buffers; ++b) {
        bool counted = !d->buffer_resident[b] && d->buffer_root[b] == b && d->buffer_bytes[b] > 0;
        if (counted && born[b] != INT64_MAX)
            ok = add_change(t, changes, d->buffer_class[b], born[b], born[d->n_buffers + b],
                            d->buffer_bytes[b]);
    }
    esp_i_free(&t->alloc, born);
    ok = ok && collect_scratch(t, scratch, changes);
    if (ok && changes->count > 1)
        qsort(changes->data, (size_t)changes->count, sizeof *changes->data, compare_changes);
    return ok;
}

static void put_counter(esp_i_trace_t *t, int32_t owner, int64_t time, int64_t bytes)
{
    esp_i_trace_open(t, "C", owner + 1, 0, "memory");
    esp_i_json_put_real(&t->out, "ts", esp_i_trace_us(time));
    esp_i_json_open_object(&t->out, "args");
    esp_i_json_put_int(&t->out, "bytes", bytes);
    esp_i_json_close(&t->out);
    esp_i_json_close(&t->out);
}

/* Frees of an instant come first; one counter per instant. */
bool esp_i_trace_memory(esp_i_trace_t *t, const int64_t *scratch)
{
    changes_t changes = {0};
    bool ok = collect_changes(t, scratch, &changes);
    int64_t live = 0;
    for (int32_t i = 0; ok && i < changes.count; ++i) {
        const change_t *c = &changes.data[i];
        if (i == 0 || c->owner != c[-1].owner)
            live = t->d->class_resident_bytes[c->owner];
        live += c->bytes;
        if (i + 1 == changes.count || c[1].owner != c->owner || c[1].time != c->time)
            put_counter(t, c->owner, c->time, live);
    }
    esp_vec_free(&t->alloc, &changes);
    return ok;
}
