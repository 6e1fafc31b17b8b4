/*
 * What is kept of the last step: memory, and start and end of every task if asked for.
 *
 * A stretch of a compute stream is one event, but its tasks take and free memory one by one. The
 * buffers of a task lie on the classes that take part in it, so only movements of the same class
 * see when: the tasks of a stretch are recorded when it ends, and before such a movement starts or
 * ends.
 */
#include "sim/sim.h"

/* The tasks of the stretch on this class that start up to then. */
static void follow(esp_sim_t *sim, int32_t class_, int64_t until)
{
    esp_i_stream_t *stream = &sim->stream[class_];
    while (stream->at < stream->final && stream->at_end <= until) {
        int32_t task = sim->stream_task[stream->at++], next = sim->stream_task[stream->at];
        esp_i_memory_end(sim, task);
        esp_i_memory_start(sim, next);
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
    esp_i_memory_start(sim, task);
    if (sim->opts.timeline)
        sim->start_ns[task] = sim->now;
}

/* In the first round of an instant, what ends comes before what starts. */
void esp_i_record_end(esp_sim_t *sim, int32_t task)
{
    follow_classes(sim, task, sim->again ? sim->now : sim->now - 1);
    esp_i_memory_end(sim, task);
    if (sim->opts.timeline)
        sim->end_ns[task] = sim->now;
}
