/*
 * What is kept of the last step: memory per device of a class, and, if asked for, start and end of
 * every task. A buffer is allocated when the first task that writes it starts, and freed when the
 * last task that reads or writes it has ended. Counts are kept per root, so an alias keeps its
 * memory alive.
 *
 * A stretch of a compute stream is one event, but its tasks take and free memory one by one. The
 * buffers of a task lie on the classes that take part in it, so only movements of the same class
 * see when: the tasks of a stretch are recorded when it ends, and before such a movement starts or
 * ends.
 */
#include "sim/sim.h"

#include <math.h>
#include <string.h>

/* Resident buffers are in the peak from the start; others count from their first write. */
static void set_resident_roles(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t b = 0; b < d->n_buffers; ++b) {
        if (!d->buffer_resident[b] || d->buffer_root[b] != b || d->buffer_bytes[b] <= 0)
            continue;
        int32_t role = d->graph->tensor_role[d->value_tensor[d->buffer_value[b]]];
        sim->live_role[d->buffer_class[b] * ESP_ROLE_COUNT + role] += d->buffer_bytes[b];
    }
}

static void count_uses(esp_i_hold_t *hold, const int32_t *root, const int32_t *buffer, int32_t n)
{
    for (int32_t i = 0; i < n; ++i)
        if (buffer[i] >= 0)
            hold[root[buffer[i]]].uses++;
}

void esp_i_memory_reset(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t b = 0; b < d->n_buffers; ++b) {
        bool counted = !d->buffer_resident[b] && d->buffer_root[b] == b && d->buffer_bytes[b] > 0;
        sim->hold[b] =
            (esp_i_hold_t){.bytes = counted ? d->buffer_bytes[b] : 0, .owner = d->buffer_class[b]};
    }
    count_uses(sim->hold, d->buffer_root, d->read_buffer, d->read_offset[d->n_tasks]);
    count_uses(sim->hold, d->buffer_root, d->write_buffer, d->write_offset[d->n_tasks]);
    memset(sim->mesh_total, 0, (size_t)d->n_meshes * sizeof *sim->mesh_total);
    for (int32_t k = 0; k < d->n_classes; ++k) {
        sim->live[k] = d->class_resident_bytes[k];
        sim->peak[k] = d->class_resident_bytes[k];
    }
    if (!sim->opts.timeline)
        return;
    for (int32_t i = 0; i < d->n_classes * ESP_ROLE_COUNT; ++i)
        sim->live_role[i] = 0;
    set_resident_roles(sim);
    for (int32_t i = 0; i < d->n_classes * ESP_ROLE_COUNT; ++i)
        sim->peak_role[i] = sim->live_role[i];
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

static int32_t role_of(const esp_deployment_t *d, int32_t buffer)
{
    return d->graph->tensor_role[d->value_tensor[d->buffer_value[buffer]]];
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

static int64_t find_scratch(esp_sim_t *sim, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    int32_t comm = d->task_comm[task];
    if (comm >= 0)
        return (int64_t)ceil(d->comm_pattern[comm]->staging * (double)d->comm_bytes[comm]);
    if (d->task_kind[task] != ESP_TASK_COMPUTE)
        return 0;
    const double split = d->cost->op_workspace_bytes[d->task_op[task]];
    const double whole = d->cost->op_workspace_whole_bytes[d->task_op[task]];
    return split + whole > 0 ? (int64_t)ceil(split * task_part(sim, task) + whole) : 0;
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

/* ---- tasks ------------------------------------------------------------------------------- */

static void memory_start(esp_sim_t *sim, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    const int32_t *buffer = d->write_buffer, end = d->write_offset[task + 1];
    for (int32_t i = d->write_offset[task]; i < end; ++i) {
        if (buffer[i] < 0)
            continue;
        int32_t root = d->buffer_root[buffer[i]];
        esp_i_hold_t *hold = &sim->hold[root];
        if (hold->bytes <= 0)
            continue;
        grow(sim, hold->owner, sim->opts.timeline ? role_of(d, root) : 0, hold->bytes);
        hold->bytes = -hold->bytes;
    }
    sim->scratch[task] = find_scratch(sim, task);
    scratch(sim, task, 1);
}

static void release(esp_sim_t *sim, const int32_t *buffer, int32_t n)
{
    const int32_t *root_of = sim->d->buffer_root;
    for (int32_t i = 0; i < n; ++i) {
        if (buffer[i] < 0)
            continue;
        int32_t root = root_of[buffer[i]];
        esp_i_hold_t *hold = &sim->hold[root];
        if (--hold->uses > 0 || hold->bytes >= 0) /* nothing may have written it */
            continue;
        sim->live[hold->owner] += hold->bytes;
        if (sim->opts.timeline)
            sim->live_role[hold->owner * ESP_ROLE_COUNT + role_of(sim->d, root)] += hold->bytes;
    }
}

static void memory_end(esp_sim_t *sim, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    int32_t read = d->read_offset[task], write = d->write_offset[task];
    scratch(sim, task, -1);
    release(sim, d->read_buffer + read, d->read_offset[task + 1] - read);
    release(sim, d->write_buffer + write, d->write_offset[task + 1] - write);
}

/* ---- the last step ------------------------------------------------------------------------- */

/* The tasks of the stretch on this class that start up to then. */
static void follow(esp_sim_t *sim, int32_t class_, int64_t until)
{
    esp_i_stream_t *stream = &sim->stream[class_];
    while (stream->at < stream->final && stream->at_end <= until) {
        int32_t task = sim->stream_task[stream->at++], next = sim->stream_task[stream->at];
        memory_end(sim, task);
        memory_start(sim, next);
        if (sim->opts.timeline)
            sim->end_ns[task] = sim->start_ns[next] = stream->at_end;
        stream->at_end += sim->ns[next];
    }
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
