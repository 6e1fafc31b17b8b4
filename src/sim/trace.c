/*
 * Chrome traces. A process per device class (predicted) or rank (measured) with its compute and
 * collective streams, and for a rank its other movements; one process for the links, with a track
 * per link. Where spans overlap on a track it gets more lanes.
 */
#include "sim/trace.h"

#include <stdlib.h>

enum { COMPUTE, COLLECTIVES, TRANSFERS }; /* tracks of a row; TRANSFERS and beyond: lanes */

/* ---- events ------------------------------------------------------------------------------ */

void esp_i_trace_open(esp_i_trace_t *t, const char *phase, int32_t pid, int32_t tid,
                      const char *name)
{
    esp_i_json_next_flat(&t->out);
    esp_i_json_open_object(&t->out, NULL);
    esp_i_json_put_string(&t->out, "ph", phase);
    esp_i_json_put_int(&t->out, "pid", pid);
    esp_i_json_put_int(&t->out, "tid", tid);
    esp_i_json_put_string(&t->out, "name", name);
}

static void put_label(esp_i_trace_t *t, const char *what, int32_t pid, int32_t tid,
                      const char *label)
{
    esp_i_trace_open(t, "M", pid, tid, what);
    esp_i_json_open_object(&t->out, "args");
    esp_i_json_put_string(&t->out, "name", label);
    esp_i_json_close(&t->out);
    esp_i_json_close(&t->out);
}

/* "all-reduce of grad/w1", "add for relu3". */
static void name_task(esp_i_trace_t *t, int32_t task)
{
    const esp_deployment_t *d = t->d;
    const esp_graph_t *graph = d->graph;
    int32_t comm = d->task_comm[task];
    esp_i_text_t *name = &t->name;
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

static void put_task(esp_i_trace_t *t, int32_t task, int64_t start, int64_t end, int32_t pid,
                     int32_t tid)
{
    const esp_deployment_t *d = t->d;
    int32_t comm = d->task_comm[task];
    name_task(t, task);
    esp_i_trace_open(t, "X", pid, tid, t->name.failed ? "" : t->name.data);
    esp_i_json_put_real(&t->out, "ts", esp_i_trace_us(start + t->shift_ns));
    esp_i_json_put_real(&t->out, "dur", esp_i_trace_us(end - start));
    esp_i_json_open_object(&t->out, "args");
    esp_i_json_put_int(&t->out, "task", task);
    if (t->step != ESP_NONE)
        esp_i_json_put_int(&t->out, "step", t->step);
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

/* ---- who takes part when ------------------------------------------------------------------ */

static int32_t class_of(const esp_i_trace_t *t, int32_t row)
{
    return t->row_class ? t->row_class[row] : row;
}

bool esp_i_takes_part(const esp_deployment_t *d, int32_t class_, int32_t task)
{
    int32_t comm = d->task_comm[task];
    if (comm < 0)
        return d->task_class[task] == class_;
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i)
        if (d->comm_class[i] == class_)
            return true;
    return false;
}

static bool joint_span(const esp_i_trace_t *t, int32_t task, int64_t *start_out, int64_t *end_out)
{
    int64_t start, end;
    *start_out = *end_out = -1;
    for (int32_t row = 0; row < t->n_rows; ++row)
        if (esp_i_trace_span(t, row, task, &start, &end)) {
            *start_out = esp_i_max_i64(*start_out, start);
            *end_out = esp_i_max_i64(*end_out, end);
        }
    return *start_out >= 0;
}

bool esp_i_trace_span(const esp_i_trace_t *t, int32_t row, int32_t task, int64_t *start_out,
                      int64_t *end_out)
{
    if (row == ESP_NONE && t->by_row)
        return joint_span(t, task, start_out, end_out);
    int64_t at = t->by_row ? (int64_t)row * t->d->n_tasks + task : task;
    if (row != ESP_NONE && !esp_i_takes_part(t->d, class_of(t, row), task))
        return false;
    *start_out = t->start[at];
    *end_out = t->end[at];
    return *start_out >= 0;
}

/* ---- streams ----------------------------------------------------------------------------- */

static void name_row(esp_i_trace_t *t, int32_t row)
{
    const esp_deployment_t *d = t->d;
    int32_t own = class_of(t, row);
    t->name.length = 0;
    if (t->row_device) {
        esp_i_text_add(&t->name, d->cluster->vertex_name[t->row_device[row]]);
        return;
    }
    for (int32_t i = d->class_offset[own]; i < d->class_offset[own + 1]; ++i)
        esp_i_text_addf(&t->name, "%s%s", i > d->class_offset[own] ? ", " : "",
                        d->cluster->vertex_name[d->class_device[i]]);
}

static void put_labels(esp_i_trace_t *t)
{
    for (int32_t row = 0; row < t->n_rows; ++row) {
        name_row(t, row);
        put_label(t, "process_name", row + 1, 0, t->name.failed ? "" : t->name.data);
        put_label(t, "thread_name", row + 1, COMPUTE, "compute");
        put_label(t, "thread_name", row + 1, COLLECTIVES, "collectives");
    }
    put_label(t, "process_name", t->n_rows + 1, 0, "links");
}

static void put_streams(esp_i_trace_t *t)
{
    const esp_deployment_t *d = t->d;
    int64_t start, end;
    for (int32_t p = 0; p < d->n_tasks; ++p) {
        int32_t task = d->order[p], comm = d->task_comm[task];
        bool streamed = comm < 0 || d->comm_collective[comm];
        for (int32_t row = 0; streamed && row < t->n_rows; ++row)
            if (esp_i_trace_span(t, row, task, &start, &end))
                put_task(t, task, start, end, row + 1, comm < 0 ? COMPUTE : COLLECTIVES);
    }
}

/* ---- tracks with lanes --------------------------------------------------------------------- */

typedef struct span {
    int32_t track, task; /* track: a link, or a row */
    int64_t start, end;
} span_t;
typedef ESP_VEC(span_t) spans_t;
typedef ESP_VEC(int64_t) lanes_t; /* when each lane of a track is free again */

static int compare_spans(const void *a, const void *b)
{
    const span_t *x = a, *y = b;
    if (x->track != y->track)
        return x->track < y->track ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->task > y->task) - (x->task < y->task);
}

static void sort_spans(spans_t *spans)
{
    if (spans->count > 1)
        qsort(spans->data, (size_t)spans->count, sizeof *spans->data, compare_spans);
}

/* Puts a span on the first lane that is free at its start; a new one where none is. */
static bool put_span(esp_i_trace_t *t, lanes_t *lanes, const span_t *span, int32_t pid,
                     int32_t first, const char *label)
{
    int32_t lane = 0;
    while (lane < lanes->count && lanes->data[lane] > span->start)
        lane++;
    if (lane == lanes->count) {
        if (!esp_vec_push(&t->alloc, lanes, 0))
            return false;
        if (t->step <= 0)
            put_label(t, "thread_name", pid, first + lane, label);
    }
    lanes->data[lane] = span->end;
    put_task(t, span->task, span->start, span->end, pid, first + lane);
    return true;
}

static bool collect_links(const esp_i_trace_t *t, spans_t *spans)
{
    const esp_deployment_t *d = t->d;
    span_t span;
    for (span.task = 0; span.task < d->n_tasks; ++span.task) {
        int32_t comm = d->task_comm[span.task];
        if (comm < 0 || !esp_i_trace_span(t, ESP_NONE, span.task, &span.start, &span.end))
            continue;
        const esp_pattern_t *pattern = d->comm_pattern[comm];
        for (int32_t i = 0; i < pattern->n_links; ++i) {
            span.track = pattern->link[i];
            if (!esp_vec_push(&t->alloc, spans, span))
                return false;
        }
    }
    sort_spans(spans);
    return true;
}

static bool put_links(esp_i_trace_t *t)
{
    spans_t spans = {0};
    lanes_t lanes = {0};
    int32_t first = 0; /* track ids count up over all links */
    bool ok = collect_links(t, &spans);
    for (int32_t i = 0; ok && i < spans.count; ++i) {
        if (i > 0 && spans.data[i].track != spans.data[i - 1].track) {
            first += lanes.count;
            lanes.count = 0;
        }
        ok = put_span(t, &lanes, &spans.data[i], t->n_rows + 1, first,
                      t->d->cluster->link_name[spans.data[i].track]);
    }
    esp_vec_free(&t->alloc, &spans);
    esp_vec_free(&t->alloc, &lanes);
    return ok;
}

/* Movements that are no collectives, as each rank saw them: measured only. */
static bool collect_transfers(const esp_i_trace_t *t, spans_t *spans)
{
    const esp_deployment_t *d = t->d;
    span_t span;
    for (span.task = 0; span.task < d->n_tasks; ++span.task) {
        int32_t comm = d->task_comm[span.task];
        if (comm < 0 || d->comm_collective[comm])
            continue;
        for (span.track = 0; span.track < t->n_rows; ++span.track)
            if (esp_i_trace_span(t, span.track, span.task, &span.start, &span.end) &&
                !esp_vec_push(&t->alloc, spans, span))
                return false;
    }
    sort_spans(spans);
    return true;
}

static bool put_transfers(esp_i_trace_t *t)
{
    spans_t spans = {0};
    lanes_t lanes = {0};
    bool ok = collect_transfers(t, &spans);
    for (int32_t i = 0; ok && i < spans.count; ++i) {
        if (i > 0 && spans.data[i].track != spans.data[i - 1].track)
            lanes.count = 0;
        ok = put_span(t, &lanes, &spans.data[i], spans.data[i].track + 1, TRANSFERS, "transfers");
    }
    esp_vec_free(&t->alloc, &spans);
    esp_vec_free(&t->alloc, &lanes);
    return ok;
}

/* ---- documents ----------------------------------------------------------------------------- */

void esp_i_trace_begin(esp_i_trace_t *t)
{
    esp_i_text_init(&t->name, &t->alloc);
    esp_i_text_init(&t->text, &t->alloc);
    esp_i_json_out_init(&t->out, &t->text);
    esp_i_json_open_object(&t->out, NULL);
    esp_i_json_put_string(&t->out, "displayTimeUnit", "ns");
    esp_i_json_open_array(&t->out, "traceEvents");
    put_labels(t);
}

bool esp_i_trace_step(esp_i_trace_t *t)
{
    put_streams(t);
    return (!t->by_row || put_transfers(t)) && put_links(t);
}

void esp_i_trace_end_events(esp_i_trace_t *t)
{
    esp_i_json_close(&t->out);
}

esp_status_t esp_i_trace_finish(esp_i_trace_t *t, bool ok, char **text_out, esp_diag_t *diag)
{
    esp_i_json_close(&t->out);
    ok = ok && !t->text.failed && !t->name.failed;
    esp_i_text_fini(&t->name);
    if (!ok) {
        esp_i_text_fini(&t->text);
        return esp_i_nomem(diag);
    }
    *text_out = t->text.data;
    return ESP_OK;
}

esp_status_t esp_sim_trace(const esp_sim_t *sim, const esp_allocator_t *alloc, char **text_out,
                           esp_diag_t *diag)
{
    if (!sim->has_timeline)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "the last simulation kept no timeline");
    esp_i_trace_t t = {
        .d = sim->d,
        .alloc = esp_i_allocator(alloc),
        .n_rows = sim->d->n_classes,
        .start = sim->start_ns,
        .end = sim->end_ns,
        .step = ESP_NONE,
    };
    esp_i_trace_begin(&t);
    bool ok = esp_i_trace_step(&t) && esp_i_trace_memory(&t, sim->scratch);
    esp_i_trace_end_events(&t);
    return esp_i_trace_finish(&t, ok, text_out, diag);
}
