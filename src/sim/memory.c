/*
 * What is kept of the last step: memory per device of a class, and, if asked for, start and end of
 * every task. A buffer is allocated when the first task that writes it starts, and freed when the
 * last task that reads or writes it has ended. An alias is a use of its root.
 *
 * A compute stream runs its tasks in a known order. The first write and the last use of memory are
 * found beforehand, and what a task takes and gives back is one number each. Movements come at any
 * time: their uses are counted down, and when they are the first to write memory that is still to
 * come, or the last to use it, the numbers of the tasks are changed. Where compute tasks come at
 * any time too (fifo), or memory is told by role (timeline), uses of all tasks are counted down.
 *
 * A stretch of a compute stream is one event, but its tasks take and free memory one by one. The
 * buffers of a task lie on the classes that take part in it, so only movements of the same class
 * see when: the tasks of a stretch are recorded when it ends, and before such a movement starts or
 * ends.
 */
#include "sim/sim.h"

#include <math.h>
#include <string.h>

/* first_write of memory that was allocated by a task whose place is not known. */
#define TAKEN (-2)

/* It lives within the step. */
static bool is_transient(const esp_deployment_t *d, int32_t root)
{
    return !d->buffer_resident[root] && d->buffer_bytes[root] > 0;
}

static int32_t role_of(const esp_sim_t *sim, int32_t buffer)
{
    const esp_deployment_t *d = sim->d;
    return sim->opts.timeline ? d->graph->tensor_role[d->value_tensor[d->buffer_value[buffer]]] : 0;
}

static void grow(esp_sim_t *sim, int32_t owner, int32_t role, int64_t bytes)
{
    int64_t live = sim->live[owner] += bytes;
    if (sim->opts.timeline)
        sim->live_role[owner * ESP_ROLE_COUNT + role] += bytes;
    if (live <= sim->peak[owner])
        return;
    sim->peak[owner] = live;
    for (int32_t r = 0; sim->opts.timeline && r < ESP_ROLE_COUNT; ++r)
        sim->peak_role[owner * ESP_ROLE_COUNT + r] = sim->live_role[owner * ESP_ROLE_COUNT + r];
}

/* ---- scratch ----------------------------------------------------------------------------- */

/* Units of the batch on a mesh; kept for the run. */
static int64_t mesh_total(esp_sim_t *sim, int32_t mesh)
{
    const esp_deployment_t *d = sim->d;
    int64_t total = sim->mesh_total[mesh];
    if (total > 0)
        return total;
    for (int32_t i = d->mesh_offset[mesh]; i < d->mesh_offset[mesh + 1]; ++i)
        total += d->mesh_units[i];
    return sim->mesh_total[mesh] = total;
}

/* Share of the whole op that a batch-split or micro-batched task does. */
static double task_part(esp_sim_t *sim, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    double part = 1.0 / d->micro_batches;
    if (d->task_mode[task] != ESP_MODE_BATCH || d->write_offset[task] == d->write_offset[task + 1])
        return part;
    int32_t mesh = d->value_mesh[d->buffer_value[d->write_buffer[d->write_offset[task]]]];
    int64_t units = mesh_total(sim, mesh), own = 0;
    for (int32_t i = d->mesh_class_offset[mesh]; i < d->mesh_class_offset[mesh + 1]; ++i)
        if (d->mesh_class[i] == d->task_class[task])
            own = d->mesh_class_units[i];
    return units > 0 ? part * (double)own / (double)units : part;
}

__attribute__((noinline)) static int64_t scale_workspace(esp_sim_t *sim, int32_t task)
{
    const esp_cost_t *cost = sim->d->cost;
    int32_t op = sim->d->task_op[task];
    return (int64_t)ceil(cost->op_workspace_bytes[op] * task_part(sim, task) +
                         cost->op_workspace_whole_bytes[op]);
}

/* Of a compute task: mostly none. */
static inline int64_t find_workspace(esp_sim_t *sim, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    int32_t op = d->task_op[task];
    if (d->task_kind[task] != ESP_TASK_COMPUTE ||
        !(d->cost->op_workspace_bytes[op] + d->cost->op_workspace_whole_bytes[op] > 0))
        return 0;
    return scale_workspace(sim, task);
}

static bool has_workspaces(const esp_deployment_t *d)
{
    const double *split = d->cost->op_workspace_bytes, *whole = d->cost->op_workspace_whole_bytes;
    for (esp_op_id_t op = 0; op < d->graph->n_ops; ++op)
        if (split[op] + whole[op] > 0)
            return true;
    return false;
}

static int64_t find_scratch(esp_sim_t *sim, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    int32_t comm = d->task_comm[task];
    if (comm < 0)
        return find_workspace(sim, task);
    return (int64_t)ceil(d->comm_pattern[comm]->staging * (double)d->comm_bytes[comm]);
}

/* Allocates (sign 1) or frees (sign -1) it on every class that takes part. */
static void scratch(esp_sim_t *sim, int32_t task, int64_t sign)
{
    const esp_deployment_t *d = sim->d;
    int64_t bytes = sign * sim->scratch[task];
    int32_t comm = d->task_comm[task];
    if (bytes == 0)
        return;
    if (comm < 0) {
        grow(sim, d->task_class[task], ESP_ROLE_ACTIVATION, bytes);
        return;
    }
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i)
        grow(sim, d->comm_class[i], ESP_ROLE_ACTIVATION, bytes);
}

/* ---- memory of tasks whose place is not known ------------------------------------------------ */

static void count_uses(esp_sim_t *sim, const int32_t *buffer, int32_t n)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t i = 0; i < n; ++i) {
        int32_t root = buffer[i] < 0 ? ESP_NONE : d->buffer_root[buffer[i]];
        if (root >= 0 && is_transient(d, root))
            sim->uses[root]++;
    }
}

/* A task that writes it starts. If it is the first, the stream need not take the memory later. */
static void take_root(esp_sim_t *sim, int32_t root)
{
    const esp_deployment_t *d = sim->d;
    int32_t owner = d->buffer_class[root], first = sim->first_write[root];
    int64_t bytes = d->buffer_bytes[root];
    if (first != ESP_NONE && first < sim->stream[owner].started)
        return;
    if (first >= 0)
        sim->change[first].take -= bytes;
    sim->first_write[root] = TAKEN;
    grow(sim, owner, role_of(sim, root), bytes);
}

/* Nothing is left to count; its stream may still use it. */
static void give_root(esp_sim_t *sim, int32_t root)
{
    const esp_deployment_t *d = sim->d;
    int32_t owner = d->buffer_class[root], last = sim->last_use[root];
    int64_t bytes = d->buffer_bytes[root];
    if (sim->first_write[root] == ESP_NONE) /* nothing writes it */
        return;
    if (last >= sim->stream[owner].ended) {
        sim->change[last].give += bytes;
        return;
    }
    sim->live[owner] -= bytes;
    if (sim->opts.timeline)
        sim->live_role[owner * ESP_ROLE_COUNT + role_of(sim, root)] -= bytes;
}

static void take_written(esp_sim_t *sim, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t i = d->write_offset[task]; i < d->write_offset[task + 1]; ++i) {
        int32_t root = d->write_buffer[i] < 0 ? ESP_NONE : d->buffer_root[d->write_buffer[i]];
        if (root >= 0 && sim->uses[root] > 0)
            take_root(sim, root);
    }
}

static void give_used(esp_sim_t *sim, const int32_t *buffer, int32_t n)
{
    for (int32_t i = 0; i < n; ++i) {
        int32_t root = buffer[i] < 0 ? ESP_NONE : sim->d->buffer_root[buffer[i]];
        if (root >= 0 && sim->uses[root] > 0 && --sim->uses[root] == 0)
            give_root(sim, root);
    }
}

/* ---- memory of compute streams --------------------------------------------------------------- */

/* The task at this place uses the buffers. */
static inline void see_uses(esp_sim_t *sim, const int32_t *buffer, const int32_t *end, int32_t at)
{
    const int32_t *root_of = sim->d->buffer_root;
    int32_t *last_use = sim->last_use;
    for (; buffer < end; ++buffer) {
        if (*buffer < 0)
            continue;
        int32_t *last = &last_use[root_of[*buffer]];
        *last = *last < at ? at : *last;
    }
}

static inline void see_writes(esp_sim_t *sim, const int32_t *buffer, const int32_t *end, int32_t at)
{
    const int32_t *root_of = sim->d->buffer_root;
    int32_t *last_use = sim->last_use, *first_write = sim->first_write;
    for (; buffer < end; ++buffer) {
        if (*buffer < 0)
            continue;
        int32_t *last = &last_use[root_of[*buffer]], *first = &first_write[root_of[*buffer]];
        *last = *last < at ? at : *last;
        *first = (uint32_t)at < (uint32_t)*first ? at : *first; /* ESP_NONE is more than all */
    }
}

/* What movements use too is given back by the last of all uses: see give_root. */
static void find_changes(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t b = 0; b < d->n_buffers; ++b) {
        if (sim->first_write[b] < 0 || !is_transient(d, b))
            continue;
        sim->change[sim->first_write[b]].take += d->buffer_bytes[b];
        if (sim->uses[b] == 0)
            sim->change[sim->last_use[b]].give += d->buffer_bytes[b];
    }
}

/* ---- before a run ---------------------------------------------------------------------------- */

/* Resident buffers are in the peak from the start; others count from their first write. */
static void set_resident_roles(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t b = 0; b < d->n_buffers; ++b) {
        if (!d->buffer_resident[b] || d->buffer_root[b] != b || d->buffer_bytes[b] <= 0)
            continue;
        sim->live_role[d->buffer_class[b] * ESP_ROLE_COUNT + role_of(sim, b)] += d->buffer_bytes[b];
    }
}

static void reset_roles(esp_sim_t *sim)
{
    size_t bytes = (size_t)sim->d->n_classes * ESP_ROLE_COUNT * sizeof *sim->live_role;
    memset(sim->live_role, 0, bytes);
    set_resident_roles(sim);
    memcpy(sim->peak_role, sim->live_role, bytes);
}

/* By task id: their buffers lie side by side. */
static void find_uses(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    const int32_t *read = d->read_buffer, *write = d->write_buffer;
    bool workspaces = has_workspaces(d);
    for (int32_t t = 0, n = d->n_tasks; t < n; ++t) {
        const int32_t *end_read = d->read_buffer + d->read_offset[t + 1];
        const int32_t *end_write = d->write_buffer + d->write_offset[t + 1];
        int32_t at = sim->place[t];
        if (at < 0) {
            count_uses(sim, read, (int32_t)(end_read - read));
            count_uses(sim, write, (int32_t)(end_write - write));
        } else {
            int64_t workspace = workspaces ? find_workspace(sim, t) : 0;
            sim->change[at] = (esp_i_change_t){workspace, workspace};
            see_uses(sim, read, end_read, at);
            see_writes(sim, write, end_write, at);
        }
        read = end_read;
        write = end_write;
    }
    find_changes(sim);
}

static void count_all_uses(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    count_uses(sim, d->read_buffer, d->read_offset[d->n_tasks]);
    count_uses(sim, d->write_buffer, d->write_offset[d->n_tasks]);
    memset(sim->change, 0, (size_t)d->n_tasks * sizeof *sim->change);
}

void esp_i_memory_reset(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    size_t bytes = (size_t)d->n_buffers * sizeof(int32_t);
    sim->counts_all = sim->opts.fifo || sim->opts.timeline;
    memset(sim->mesh_total, 0, (size_t)d->n_meshes * sizeof *sim->mesh_total);
    for (int32_t k = 0; k < d->n_classes; ++k)
        sim->live[k] = sim->peak[k] = d->class_resident_bytes[k];
    if (sim->opts.timeline)
        reset_roles(sim);
    memset(sim->last_use, 0xff, bytes);
    memset(sim->first_write, 0xff, bytes);
    memset(sim->uses, 0, bytes);
    if (sim->counts_all)
        count_all_uses(sim);
    else
        find_uses(sim);
}

/* ---- the last step ------------------------------------------------------------------------- */

/* The next task of a stream starts, or ends: what is known of it beforehand. */
static void start_next(esp_sim_t *sim, int32_t class_)
{
    int64_t live = sim->live[class_] += sim->change[sim->stream[class_].started++].take;
    if (live > sim->peak[class_])
        sim->peak[class_] = live;
}

static void end_next(esp_sim_t *sim, int32_t class_)
{
    sim->live[class_] -= sim->change[sim->stream[class_].ended++].give;
}

static void memory_start(esp_sim_t *sim, int32_t task)
{
    int32_t k = sim->d->task_class[task];
    if (k >= 0)
        start_next(sim, k);
    if (k >= 0 && !sim->counts_all)
        return;
    take_written(sim, task);
    sim->scratch[task] = find_scratch(sim, task);
    scratch(sim, task, 1);
}

static void memory_end(esp_sim_t *sim, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    int32_t k = d->task_class[task], read = d->read_offset[task], write = d->write_offset[task];
    if (k >= 0)
        end_next(sim, k);
    if (k >= 0 && !sim->counts_all)
        return;
    scratch(sim, task, -1);
    give_used(sim, d->read_buffer + read, d->read_offset[task + 1] - read);
    give_used(sim, d->write_buffer + write, d->write_offset[task + 1] - write);
}

/* When the next task of a stretch starts; beyond it: never. */
static int64_t next_start(const esp_sim_t *sim, const esp_i_stream_t *stream)
{
    int32_t next = stream->started;
    return next <= stream->final ? stream->until - sim->run[next].ns : INT64_MAX;
}

/* The tasks of the stretch on this class that start up to then, one by one. */
static void follow_counting(esp_sim_t *sim, esp_i_stream_t *stream, int64_t until)
{
    for (int64_t start; (start = next_start(sim, stream)) <= until;) {
        int32_t task = sim->stream_task[stream->ended], next = sim->stream_task[stream->started];
        memory_end(sim, task);
        memory_start(sim, next);
        if (sim->opts.timeline)
            sim->end_ns[task] = sim->start_ns[next] = start;
    }
}

/* The same where all is known of them. */
static void follow(esp_sim_t *sim, int32_t class_, int64_t until)
{
    esp_i_stream_t *stream = &sim->stream[class_];
    if (sim->counts_all) {
        follow_counting(sim, stream, until);
        return;
    }
    const esp_i_run_t *run = sim->run;
    const esp_i_change_t *change = sim->change;
    int64_t live = sim->live[class_], peak = sim->peak[class_], end = stream->until;
    int32_t next = stream->started;
    for (; next <= stream->final && end - run[next].ns <= until; ++next) {
        live += change[next].take - change[next - 1].give;
        peak = esp_i_max_i64(peak, live);
    }
    if (next == stream->started)
        return;
    sim->live[class_] = live;
    sim->peak[class_] = peak;
    stream->started = next;
    stream->ended = next - 1;
}

static void follow_classes(esp_sim_t *sim, int32_t task, int64_t until)
{
    const esp_deployment_t *d = sim->d;
    int32_t comm = d->task_comm[task];
    if (comm < 0) {
        follow(sim, d->task_class[task], until);
        return;
    }
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i)
        follow(sim, d->comm_class[i], until);
}

void esp_i_record_start(esp_sim_t *sim, int32_t task)
{
    follow_classes(sim, task, sim->now);
    memory_start(sim, task);
    if (sim->opts.timeline)
        sim->start_ns[task] = sim->now;
}

/* In the first round of an instant, what ends comes before what starts. */
void esp_i_record_end(esp_sim_t *sim, int32_t task)
{
    follow_classes(sim, task, sim->again ? sim->now : sim->now - 1);
    memory_end(sim, task);
    if (sim->opts.timeline)
        sim->end_ns[task] = sim->now;
}
