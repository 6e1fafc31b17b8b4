/*
 * Compute time that movements take. Where ranks are processes, the processor that computes also
 * carries messages: a movement slows the tasks that run beside it. All of what it takes falls on
 * them if tasks run all the time while it is under way, none if the stream is idle, else its share.
 * How much that is shows when the movement ends, and the next task of the class is longer by it.
 * Measured durations have it in them.
 */
#include "sim/sim.h"

#include <string.h>

bool esp_i_taken_any(const esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    const int32_t n = d->n_comms ? d->comm_class_offset[d->n_comms] : 0;
    if (sim->opts.task_ns || !d->comm_class_ns)
        return false;
    for (int32_t i = 0; i < n; ++i)
        if (d->comm_class_ns[i] > 0)
            return true;
    return false;
}

void esp_i_taken_reset(esp_sim_t *sim)
{
    memset(sim->class_time, 0, (size_t)sim->d->n_classes * sizeof *sim->class_time);
}

static int64_t *before_of(esp_sim_t *sim, int32_t comm, int32_t step)
{
    const esp_deployment_t *d = sim->d;
    return sim->move_before + (int64_t)step * d->comm_class_offset[d->n_comms] +
           d->comm_class_offset[comm];
}

/* Time in which the class has run tasks, up to now. */
static int64_t computed(const esp_sim_t *sim, int32_t class_)
{
    const esp_i_class_time_t *time = &sim->class_time[class_];
    return time->computed - esp_i_max_i64(time->end - sim->now, 0);
}

int64_t esp_i_taken_compute(esp_sim_t *sim, int32_t task)
{
    esp_i_class_time_t *time = &sim->class_time[sim->d->task_class[task]];
    const int64_t ns = sim->ns[task] + time->owed;
    time->owed = 0;
    time->computed += ns;
    time->end = sim->now + ns;
    return time->end;
}

void esp_i_taken_start(esp_sim_t *sim, int32_t comm, int32_t step)
{
    const esp_deployment_t *d = sim->d;
    const int32_t first = d->comm_class_offset[comm], n = d->comm_class_offset[comm + 1] - first;
    int64_t *before = before_of(sim, comm, step);
    sim->move_start[(int64_t)step * d->n_comms + comm] = sim->now;
    for (int32_t i = 0; i < n; ++i)
        before[i] = computed(sim, d->comm_class[first + i]);
}

void esp_i_taken_end(esp_sim_t *sim, int32_t comm, int32_t step)
{
    const esp_deployment_t *d = sim->d;
    const int32_t first = d->comm_class_offset[comm], n = d->comm_class_offset[comm + 1] - first;
    const int64_t *before = before_of(sim, comm, step);
    const int64_t ns = sim->now - sim->move_start[(int64_t)step * d->n_comms + comm];
    for (int32_t i = 0; ns > 0 && i < n; ++i) {
        const int32_t class_ = d->comm_class[first + i];
        const int64_t beside = computed(sim, class_) - before[i];
        sim->class_time[class_].owed +=
            (int64_t)((double)d->comm_class_ns[first + i] * (double)beside / (double)ns);
    }
}
