/*
 * Chrome trace of the last run. A process per device class with its compute and collective streams
 * and a memory counter; one process for the links, with a track per link (several where movements
 * overlap on it).
 */
#include "base/json.h"
#include "sim/sim.h"

#include <stdlib.h>

typedef struct trace {
    const esp_sim_t *sim;
    const esp_deployment_t *d;
    esp_allocator_t alloc;
    esp_i_text_t text;
    esp_i_json_out_t out;
} trace_t;

/* ---- events ------------------------------------------------------------------------------ */

/* Trace times are microseconds. */
static double us(int64_t ns)
{
    return (double)ns / 1000.0;
}

static void open_event(trace_t *t, const char *phase, int32_t pid, int32_t tid, const char *name)
{
    esp_i_json_next_flat(&t->out);
    esp_i_json_open_object(&t->out, NULL);
    esp_i_json_put_string(&t->out, "ph", phase);
    esp_i_json_put_int(&t->out, "pid", pid);
    esp_i_json_put_int(&t->out, "tid", tid);
    esp_i_json_put_string(&t->out, "name", name);
}

static void put_label(trace_t *t, const char *what, int32_t pid, int32_t tid, const char *label)
{
    open_event(t, "M", pid, tid, what);
    esp_i_json_open_object(&t->out, "args");
    esp_i_json_put_string(&t->out, "name", label);
    esp_i_json_close(&t->out);
    esp_i_json_close(&t->out);
}

/* "all-reduce of grad/w1", "add for relu3": in a buffer of the caller. */
static void name_task(const trace_t *t, int32_t task, esp_i_text_t *name)
{
    const esp_deployment_t *d = t->d;
    const esp_graph_t *graph = d->graph;
    int32_t comm = d->task_comm[task];
    name->length = 0;
    if (comm >= 0) {
        esp_i_text_add(name, esp_comm_name((esp_comm_t)d->comm_pattern[comm]->comm));
        if (d->comm_pair_offset && d->comm_pair_offset[comm] < d->comm_pair_offset[comm + 1])
            esp_i_text_addf(
                name, " of %s",
                graph->tensor_name[d->value_tensor[d->comm_src[d->comm_pair_offset[comm]]]]);
        return;
    }
    if (d->task_kind[task] != ESP_TASK_COMPUTE)
        esp_i_text_add(name, d->task_kind[task] == ESP_TASK_ADD ? "add for " : "slice for ");
    if (graph->op_name && d->task_op[task] >= 0)
        esp_i_text_add(name, graph->op_name[d->task_op[task]]);
    else
        esp_i_text_addf(name, "task %d", task);
}

static const char *algorithm_name(esp_algorithm_t algorithm)
{
    switch (algorithm) {
    case ESP_ALGORITHM_DIRECT:
        return "direct";
    case ESP_ALGORITHM_RING:
        return "ring";
    case ESP_ALGORITHM_TREE:
        return "tree";
    case ESP_ALGORITHM_TWO_LEVEL:
        return "two-level";
    }
    return "?";
}

static void put_task(trace_t *t, int32_t task, int32_t pid, int32_t tid, esp_i_text_t *name)
{
    const esp_deployment_t *d = t->d;
    const esp_sim_t *sim = t->sim;
    int32_t comm = d->task_comm[task];
    name_task(t, task, name);
    open_event(t, "X", pid, tid, name->failed ? "" : name->data);
    esp_i_json_put_real(&t->out, "ts", us(sim->start_ns[task]));
    esp_i_json_put_real(&t->out, "dur", us(sim->end_ns[task] - sim->start_ns[task]));
    esp_i_json_open_object(&t->out, "args");
    esp_i_json_put_int(&t->out, "task", task);
    if (comm >= 0) {
        esp_i_json_put_int(&t->out, "bytes", d->comm_bytes[comm]);
        esp_i_json_put_string(&t->out, "algorithm",
                              algorithm_name(d->comm_pattern[comm]->algorithm));
    }
    if (d->task_micro && d->micro_batches > 1 && d->task_micro[task] >= 0)
        esp_i_json_put_int(&t->out, "micro_batch", d->task_micro[task]);
    esp_i_json_close(&t->out);
    esp_i_json_close(&t->out);
}

/* ---- streams ----------------------------------------------------------------------------- */

static void put_class_labels(trace_t *t, esp_i_text_t *name)
{
    const esp_deployment_t *d = t->d;
    for (int32_t k = 0; k < d->n_classes; ++k) {
        name->length = 0;
        for (int32_t i = d->class_offset[k]; i < d->class_offset[k + 1]; ++i)
            esp_i_text_addf(name, "%s%s", i > d->class_offset[k] ? ", " : "",
                            d->cluster->vertex_name[d->class_device[i]]);
        put_label(t, "process_name", k + 1, 0, name->failed ? "" : name->data);
        put_label(t, "thread_name", k + 1, 0, "compute");
        put_label(t, "thread_name", k + 1, 1, "collectives");
    }
    put_label(t, "process_name", d->n_classes + 1, 0, "links");
}

static void put_streams(trace_t *t, esp_i_text_t *name)
{
    const esp_deployment_t *d = t->d;
    for (int32_t p = 0; p < d->n_tasks; ++p) {
        int32_t task = d->order[p], comm = d->task_comm[task];
        if (comm < 0)
            put_task(t, task, d->task_class[task] + 1, 0, name);
        else if (d->comm_collective[comm])
            for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i)
                put_task(t, task, d->comm_class[i] + 1, 1, name);
    }
}

/* ---- links ------------------------------------------------------------------------------- */

typedef struct span {
    int32_t link, task;
    int64_t start, end;
} span_t;
typedef ESP_VEC(span_t) spans_t;
typedef ESP_VEC(int64_t) lanes_t; /* when each track of a link is free again */

static int compare_spans(const void *a, const void *b)
{
    const span_t *x = a, *y = b;
    if (x->link != y->link)
        return x->link < y->link ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->task > y->task) - (x->task < y->task);
}

static bool collect_spans(const trace_t *t, spans_t *spans)
{
    const esp_deployment_t *d = t->d;
    for (int32_t task = 0; task < d->n_tasks; ++task) {
        if (d->task_comm[task] < 0)
            continue;
        const esp_pattern_t *pattern = d->comm_pattern[d->task_comm[task]];
        for (int32_t i = 0; i < pattern->n_links; ++i) {
            span_t span = {pattern->link[i], task, t->sim->start_ns[task], t->sim->end_ns[task]};
            if (!esp_vec_push(&t->alloc, spans, span))
                return false;
        }
    }
    if (spans->count > 1)
        qsort(spans->data, (size_t)spans->count, sizeof *spans->data, compare_spans);
    return true;
}

/* The first track of the link that is free at the start; a new one where none is. */
static bool take_lane(trace_t *t, lanes_t *lanes, const span_t *span, int32_t first,
                      int32_t *lane_out)
{
    int32_t lane = 0;
    while (lane < lanes->count && lanes->data[lane] > span->start)
        lane++;
    if (lane == lanes->count) {
        if (!esp_vec_push(&t->alloc, lanes, 0))
            return false;
        put_label(t, "thread_name", t->d->n_classes + 1, first + lane,
                  t->d->cluster->link_name[span->link]);
    }
    lanes->data[lane] = span->end;
    *lane_out = lane;
    return true;
}

static bool put_links(trace_t *t, esp_i_text_t *name)
{
    spans_t spans = {0};
    lanes_t lanes = {0};
    int32_t first = 0, lane = 0; /* track ids count up over all links */
    bool ok = collect_spans(t, &spans);
    for (int32_t i = 0; ok && i < spans.count; ++i) {
        if (i > 0 && spans.data[i].link != spans.data[i - 1].link) {
            first += lanes.count;
            lanes.count = 0;
        }
        ok = take_lane(t, &lanes, &spans.data[i], first, &lane);
        if (ok)
            put_task(t, spans.data[i].task, t->d->n_classes + 1, first + lane, name);
    }
    esp_vec_free(&t->alloc, &spans);
    esp_vec_free(&t->alloc, &lanes);
    return ok;
}

/* ---- memory ------------------------------------------------------------------------------ */

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

static bool add_change(const trace_t *t, changes_t *changes, int32_t owner, int64_t start,
                       int64_t end, int64_t bytes)
{
    return bytes == 0 || (esp_vec_push(&t->alloc, changes, ((change_t){owner, start, bytes})) &&
                          esp_vec_push(&t->alloc, changes, ((change_t){owner, end, -bytes})));
}

/* From the first write to the end of the last use. */
static void find_lifetimes(const trace_t *t, int64_t *born, int64_t *dead)
{
    const esp_deployment_t *d = t->d;
    for (int32_t b = 0; b < d->n_buffers; ++b)
        born[b] = INT64_MAX;
    for (int32_t task = 0; task < d->n_tasks; ++task) {
        for (int32_t i = d->write_offset[task]; i < d->write_offset[task + 1]; ++i) {
            if (d->write_buffer[i] < 0)
                continue;
            int32_t root = d->buffer_root[d->write_buffer[i]];
            born[root] = esp_i_min_i64(born[root], t->sim->start_ns[task]);
            dead[root] = esp_i_max_i64(dead[root], t->sim->end_ns[task]);
        }
        for (int32_t i = d->read_offset[task]; i < d->read_offset[task + 1]; ++i) {
            if (d->read_buffer[i] < 0)
                continue;
            int32_t root = d->buffer_root[d->read_buffer[i]];
            dead[root] = esp_i_max_i64(dead[root], t->sim->end_ns[task]);
        }
    }
}

static bool collect_scratch(const trace_t *t, changes_t *changes)
{
    const esp_deployment_t *d = t->d;
    for (int32_t task = 0; task < d->n_tasks; ++task) {
        int64_t bytes = t->sim->scratch[task];
        int64_t start = t->sim->start_ns[task], end = t->sim->end_ns[task];
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

static bool collect_changes(const trace_t *t, changes_t *changes)
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
    ok = ok && collect_scratch(t, changes);
    if (ok && changes->count > 1)
        qsort(changes->data, (size_t)changes->count, sizeof *changes->data, compare_changes);
    return ok;
}

static void put_counter(trace_t *t, int32_t owner, int64_t time, int64_t bytes)
{
    open_event(t, "C", owner + 1, 0, "memory");
    esp_i_json_put_real(&t->out, "ts", us(time));
    esp_i_json_open_object(&t->out, "args");
    esp_i_json_put_int(&t->out, "bytes", bytes);
    esp_i_json_close(&t->out);
    esp_i_json_close(&t->out);
}

/* Frees of an instant come first; one counter per instant. */
static bool put_memory(trace_t *t)
{
    changes_t changes = {0};
    bool ok = collect_changes(t, &changes);
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

/* ---- entry ------------------------------------------------------------------------------- */

esp_status_t esp_sim_trace(const esp_sim_t *sim, const esp_allocator_t *alloc, char **text_out,
                           esp_diag_t *diag)
{
    if (!sim->has_timeline)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "the last simulation kept no timeline");
    trace_t t = {.sim = sim, .d = sim->d, .alloc = esp_i_allocator(alloc)};
    esp_i_text_t name;
    esp_i_text_init(&name, &t.alloc);
    esp_i_text_init(&t.text, &t.alloc);
    esp_i_json_out_init(&t.out, &t.text);
    esp_i_json_open_object(&t.out, NULL);
    esp_i_json_put_string(&t.out, "displayTimeUnit", "ns");
    esp_i_json_open_array(&t.out, "traceEvents");
    put_class_labels(&t, &name);
    put_streams(&t, &name);
    bool ok = put_links(&t, &name) && put_memory(&t);
    esp_i_json_close(&t.out);
    esp_i_json_close(&t.out);
    ok = ok && !t.text.failed && !name.failed;
    esp_i_text_fini(&name);
    if (!ok) {
        esp_i_text_fini(&t.text);
        return esp_i_nomem(diag);
    }
    *text_out = t.text.data;
    return ESP_OK;
}
