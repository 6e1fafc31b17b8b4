/* The event loop. */
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- event queue: a binary heap on (time, kind) -------------------------------------------- */

void esp_i_sim_push(esp_sim_t *sim, int64_t time, esp_i_event_kind_t kind, int32_t task,
                    int32_t step)
{
    esp_i_event_t event = {time * 4 + (int64_t)kind, task, step};
    esp_i_event_t *heap = sim->heap;
    int32_t i = sim->n_heap++;
    while (i > 0 && heap[(i - 1) / 2].key > event.key) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = event;
}

static esp_i_event_t pop(esp_sim_t *sim)
{
    esp_i_event_t *heap = sim->heap;
    esp_i_event_t top = heap[0], last = heap[--sim->n_heap];
    int32_t n = sim->n_heap, i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n)
            break;
        child += child + 1 < n && heap[child + 1].key < heap[child].key;
        if (heap[child].key >= last.key)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

static int64_t next_time(const esp_sim_t *sim)
{
    int64_t time = sim->n_heap > 0 ? sim->heap[0].key >> 2 : INT64_MAX;
    return esp_i_min_i64(time, sim->flow_next);
}

/* ---- readiness ----------------------------------------------------------------------------- */

static void touch(esp_sim_t *sim, int32_t stream)
{
    if (sim->stream[stream].dirty)
        return;
    sim->stream[stream].dirty = true;
    sim->dirty[sim->n_dirty++] = stream;
}

static void touch_collective(esp_sim_t *sim, int32_t comm)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i)
        touch(sim, d->n_classes + d->comm_class[i]);
}

static void add_ready(esp_sim_t *sim, int32_t task, int32_t step)
{
    int64_t key = (int64_t)sim->d->position[task] * 16 + step;
    sim->ready[sim->n_ready++] = (esp_i_ready_t){key, task, step};
}

/* All that the task waits for is done. */
static void become_ready(esp_sim_t *sim, int32_t task, int32_t step)
{
    const esp_deployment_t *d = sim->d;
    int32_t comm = d->task_comm[task];
    if (comm < 0 && !sim->opts.fifo)
        touch(sim, d->task_class[task]);
    else if (comm >= 0 && d->comm_collective[comm])
        touch_collective(sim, comm);
    else
        add_ready(sim, task, step);
}

static void complete(esp_sim_t *sim, int32_t task, int32_t step)
{
    const esp_deployment_t *d = sim->d;
    int32_t comm = d->task_comm[task];
    sim->events++;
    sim->step_end[step] = sim->now;
    if (step == sim->last)
        esp_i_record_end(sim, task);
    if (comm >= 0 && sim->moves_take)
        esp_i_taken_end(sim, comm, step);
    if (comm < 0) {
        sim->stream[d->task_class[task]].busy = false;
        touch(sim, d->task_class[task]);
    } else if (d->comm_collective[comm]) {
        for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i)
            sim->stream[d->n_classes + d->comm_class[i]].busy = false;
        touch_collective(sim, comm);
    }
    int32_t *pending = sim->pending + (int64_t)step * d->n_tasks;
    for (int32_t i = d->successor_offset[task]; i < sim->edge_end[task]; ++i)
        if (--pending[sim->edge[i]] == 0)
            become_ready(sim, sim->edge[i], step);
    if (step == sim->last)
        return;
    pending += d->n_tasks;
    for (int32_t i = sim->cross_first[task]; i >= 0; i = sim->cross_next[i])
        if (--pending[d->cross_after[i]] == 0)
            become_ready(sim, d->cross_after[i], step + 1);
}

/* ---- starting ------------------------------------------------------------------------------ */

static void start_compute(esp_sim_t *sim, esp_i_stream_t *stream, int32_t task, int32_t step)
{
    stream->busy = true;
    if (step == sim->last)
        esp_i_record_start(sim, task);
    const int64_t end = sim->moves_take ? esp_i_taken_compute(sim, task) : sim->now + sim->ns[task];
    esp_i_sim_push(sim, end, ESP_I_EVENT_END, task, step);
}

static void advance(esp_i_stream_t *stream, int32_t n)
{
    stream->next += n;
    if (stream->next == stream->end) {
        stream->next = stream->begin;
        stream->step++;
    }
}

/* The next task of an idle stream; false: nothing left. */
static bool head_of(const esp_sim_t *sim, const esp_i_stream_t *stream, int32_t *task_out)
{
    if (stream->busy || stream->step >= sim->steps)
        return false;
    *task_out = sim->stream_task[stream->next];
    return true;
}

static bool is_ready(const esp_sim_t *sim, int32_t task, int32_t step)
{
    return sim->pending[(int64_t)step * sim->d->n_tasks + task] == 0;
}

/* A stretch of tasks is one event. */
static void start_run(esp_sim_t *sim, esp_i_stream_t *stream, int32_t task, int32_t step)
{
    esp_i_run_t run = sim->run[stream->next];
    int32_t final = stream->next + run.length - 1;
    stream->busy = true;
    if (step == sim->last) {
        esp_i_record_start(sim, task);
        stream->final = final;
        stream->until = sim->now + run.ns;
    }
    advance(stream, run.length);
    sim->events += run.length - 1;
    esp_i_sim_push(sim, sim->now + run.ns, ESP_I_EVENT_END, sim->stream_task[final], step);
}

static void try_compute(esp_sim_t *sim, esp_i_stream_t *stream)
{
    int32_t task, step = stream->step;
    if (!head_of(sim, stream, &task) || !is_ready(sim, task, step))
        return;
    if (!sim->moves_take) {
        start_run(sim, stream, task, step);
        return;
    }
    advance(stream, 1);
    start_compute(sim, stream, task, step);
}

/* A collective starts when it heads the streams of all its classes. */
static void try_collective(esp_sim_t *sim, esp_i_stream_t *stream)
{
    const esp_deployment_t *d = sim->d;
    int32_t task, other;
    if (!head_of(sim, stream, &task) || !is_ready(sim, task, stream->step))
        return;
    int32_t comm = d->task_comm[task], step = stream->step;
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i) {
        const esp_i_stream_t *peer = &sim->stream[d->n_classes + d->comm_class[i]];
        if (!head_of(sim, peer, &other) || other != task || peer->step != step)
            return;
    }
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i) {
        esp_i_stream_t *peer = &sim->stream[d->n_classes + d->comm_class[i]];
        peer->busy = true;
        advance(peer, 1);
    }
    add_ready(sim, task, step);
}

/* The movement is committed now, for when all its links are free; free links always are. */
static void commit(esp_sim_t *sim, int32_t task, int32_t step)
{
    const esp_pattern_t *pattern = sim->d->comm_pattern[sim->d->task_comm[task]];
    int32_t n = sim->opts.links == ESP_LINK_EXCLUSIVE ? pattern->n_links : 0;
    int64_t start = sim->now;
    for (int32_t i = 0; i < n; ++i)
        start = esp_i_max_i64(start, sim->link_free[pattern->link[i]]);
    int64_t end = start + sim->ns[task];
    for (int32_t i = 0; i < n; ++i)
        sim->link_free[pattern->link[i]] = end;
    bool later = step == sim->last && start > sim->now, whole = later && end == start;
    if (step == sim->last && !later)
        esp_i_record_start(sim, task);
    else if (later && !whole)
        esp_i_sim_push(sim, start, ESP_I_EVENT_MEMORY, task, step);
    esp_i_sim_push(sim, end, whole ? ESP_I_EVENT_WHOLE : ESP_I_EVENT_END, task, step);
}

static void start_move(esp_sim_t *sim, int32_t task, int32_t step)
{
    if (sim->moves_take)
        esp_i_taken_start(sim, sim->d->task_comm[task], step);
    if (sim->opts.links != ESP_LINK_FAIR) {
        commit(sim, task, step);
        return;
    }
    if (step == sim->last)
        esp_i_record_start(sim, task);
    esp_i_fair_start(sim, task, step);
}

/* ---- fifo: a compute stream takes its tasks as they become ready --------------------------- */

static void enqueue(esp_sim_t *sim, int32_t task, int32_t step)
{
    esp_i_stream_t *stream = &sim->stream[sim->d->task_class[task]];
    int32_t instance = step * sim->d->n_tasks + task;
    sim->fifo_next[instance] = -1;
    if (stream->fifo_head < 0)
        stream->fifo_head = instance;
    else
        sim->fifo_next[stream->fifo_tail] = instance;
    stream->fifo_tail = instance;
    touch(sim, sim->d->task_class[task]);
}

static void try_fifo(esp_sim_t *sim, esp_i_stream_t *stream)
{
    int32_t instance = stream->fifo_head;
    if (stream->busy || instance < 0)
        return;
    stream->fifo_head = sim->fifo_next[instance];
    start_compute(sim, stream, instance % sim->d->n_tasks, instance / sim->d->n_tasks);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int compare_ready(const void *a, const void *b)
{
    int64_t x = ((const esp_i_ready_t *)a)->key, y = ((const esp_i_ready_t *)b)->key;
    return (x > y) - (x < y);
}

static void sort_ready(esp_sim_t *sim)
{
    if (sim->n_ready > 1)
        qsort(sim->ready, (size_t)sim->n_ready, sizeof *sim->ready, compare_ready);
}

static void visit_streams(esp_sim_t *sim)
{
    for (int32_t i = 0; i < sim->n_dirty; ++i) {
        int32_t k = sim->dirty[i];
        esp_i_stream_t *stream = &sim->stream[k];
        stream->dirty = false;
        if (k >= sim->d->n_classes)
            try_collective(sim, stream);
        else if (sim->opts.fifo)
            try_fifo(sim, stream);
        else
            try_compute(sim, stream);
    }
    sim->n_dirty = 0;
}

static void start_all(esp_sim_t *sim)
{
    if (sim->opts.fifo) { /* queue what became ready before the streams choose */
        int32_t moves = 0;
        sort_ready(sim);
        for (int32_t i = 0; i < sim->n_ready; ++i) {
            if (sim->d->task_comm[sim->ready[i].task] >= 0)
                sim->ready[moves++] = sim->ready[i];
            else
                enqueue(sim, sim->ready[i].task, sim->ready[i].step);
        }
        sim->n_ready = moves;
    }
    visit_streams(sim);
    if (sim->n_ready == 0)
        return;
    sort_ready(sim);
    for (int32_t i = 0; i < sim->n_ready; ++i)
        start_move(sim, sim->ready[i].task, sim->ready[i].step);
    sim->n_ready = 0;
}

static void finish_flows(esp_sim_t *sim)
{
    int32_t task, step;
    while (esp_i_fair_take(sim, &task, &step))
        complete(sim, task, step);
}

static void handle(esp_sim_t *sim, esp_i_event_t event)
{
    switch ((esp_i_event_kind_t)(event.key & 3)) {
    case ESP_I_EVENT_END:
        complete(sim, event.task, event.step);
        break;
    case ESP_I_EVENT_LATENCY:
        if (!esp_i_fair_join(sim, event.task, event.step))
            complete(sim, event.task, event.step);
        break;
    case ESP_I_EVENT_MEMORY:
        esp_i_record_start(sim, event.task);
        break;
    case ESP_I_EVENT_WHOLE:
        esp_i_record_start(sim, event.task);
        complete(sim, event.task, event.step);
        break;
    }
}

/* What waits for nothing. */
static void start_first(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t k = 0; k < 2 * d->n_classes; ++k)
        touch(sim, k);
    for (int32_t i = 0, n = sim->opts.fifo ? d->n_tasks : sim->n_moves; i < n; ++i) {
        int32_t t = sim->opts.fifo ? i : sim->move[i], comm = d->task_comm[t];
        bool queued = comm < 0 || !d->comm_collective[comm];
        for (int32_t s = 0; queued && s < sim->steps; ++s)
            if (is_ready(sim, t, s))
                add_ready(sim, t, s);
    }
    start_all(sim);
}

static void run(esp_sim_t *sim)
{
    start_first(sim);
    for (;;) {
        int64_t time = next_time(sim);
        if (time == INT64_MAX)
            return;
        sim->again = time == sim->now;
        sim->now = time;
        if (sim->flow_next == time)
            finish_flows(sim);
        while (sim->n_heap > 0 && sim->heap[0].key >> 2 == time)
            handle(sim, pop(sim));
        start_all(sim);
        if (sim->n_heap == 0 || sim->heap[0].key >> 2 > time) /* else another round, now */
            esp_i_fair_solve(sim);
    }
}

/* ---- entry ----------------------------------------------------------------------------------- */

esp_sim_opts_t esp_sim_opts_default(void)
{
    return (esp_sim_opts_t){
        .struct_size = sizeof(esp_sim_opts_t), .links = ESP_LINK_FAIR, .steps = 3};
}

static esp_status_t check_opts(const esp_sim_opts_t *opts, esp_diag_t *diag)
{
    if (opts->struct_size != sizeof *opts)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "simulator options of another version");
    if (opts->steps < 1 || opts->steps > ESP_SIM_STEPS_MAX)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "%d steps; 1 to %d can be simulated", opts->steps,
                          ESP_SIM_STEPS_MAX);
    if ((uint32_t)opts->links > ESP_LINK_FREE)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "unknown link mode %d", (int)opts->links);
    return ESP_OK;
}

/* Names the first task in the global order that never ran. */
static esp_status_t fail_deadlock(const esp_sim_t *sim, esp_diag_t *diag)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t s = 0; s < sim->steps; ++s) {
        for (int32_t p = 0; p < d->n_tasks; ++p) {
            int32_t waits = sim->pending[(int64_t)s * d->n_tasks + d->order[p]];
            if (waits > 0)
                return esp_i_fail(
                    diag, ESP_ERR_INTERNAL,
                    "the deployment deadlocks: task %d of step %d waits for %d others", d->order[p],
                    s, waits);
        }
    }
    return esp_i_fail(diag, ESP_ERR_INTERNAL, "the deployment deadlocks: the streams disagree");
}

static void rebase_timeline(esp_sim_t *sim)
{
    int64_t first = INT64_MAX;
    for (int32_t t = 0; t < sim->d->n_tasks; ++t)
        first = esp_i_min_i64(first, sim->start_ns[t]);
    for (int32_t t = 0; t < sim->d->n_tasks; ++t) {
        sim->start_ns[t] -= first;
        sim->end_ns[t] -= first;
    }
    sim->has_timeline = true;
}

esp_status_t esp_sim_run(esp_sim_t *sim, const esp_deployment_t *deployment,
                         const esp_sim_opts_t *opts, esp_sim_result_t *result_out, esp_diag_t *diag)
{
    esp_sim_opts_t defaults = esp_sim_opts_default();
    if (!opts)
        opts = &defaults;
    ESP_TRY(check_opts(opts, diag));
    if (esp_i_sim_setup(sim, deployment, opts) != ESP_OK)
        return esp_i_nomem(diag);
    run(sim);
    if (sim->events != (int64_t)sim->steps * deployment->n_tasks)
        return fail_deadlock(sim, diag);
    if (sim->opts.timeline)
        rebase_timeline(sim);
    int64_t step_ns = sim->step_end[sim->last];
    if (sim->last > 0)
        step_ns = esp_i_max_i64(step_ns - sim->step_end[sim->last - 1], esp_i_least_period(sim));
    *result_out = (esp_sim_result_t){
        .step_time_ns = step_ns,
        .makespan_ns = sim->step_end[0],
        .events = sim->events,
        .class_busy_ns = sim->busy_ns,
        .class_peak_bytes = sim->peak,
        .class_peak_role_bytes = sim->opts.timeline ? sim->peak_role : NULL,
        .start_ns = sim->opts.timeline ? sim->start_ns : NULL,
        .end_ns = sim->opts.timeline ? sim->end_ns : NULL,
    };
    return ESP_OK;
}
