/*
 * What a run waits for. A compute stream runs its tasks in the global order, step after step, which
 * implies most edges of a deployment. They are dropped once, instead of being counted down in every
 * step; then long stretches of a stream have nothing to do with others, and become one event.
 */
#include "sim/sim.h"

#include <string.h>

static bool is_move(const esp_deployment_t *d, int32_t task)
{
    return d->task_comm[task] >= 0;
}

static void keep_edge(esp_sim_t *sim, int32_t before, int32_t after)
{
    sim->edge[sim->edge_end[before]++] = after;
    sim->pending[after]++;
}

/*
 * Edges of the compute tasks of a class. Its stream runs them in order, so an edge within it says
 * nothing new, and of those that lead to a movement the last says it all: also to that movement in
 * the next step. Last first, therefore; mark is k for the later tasks and where they lead.
 */
static void keep_compute_edges(esp_sim_t *sim, int32_t k)
{
    const esp_deployment_t *d = sim->d;
    const int32_t *task_class = d->task_class, *successor = d->successor;
    int32_t *mark = sim->mark;
    for (int32_t i = sim->stream[k].end - 1; i >= sim->stream[k].begin; --i) {
        int32_t t = sim->stream_task[i], end = d->successor_offset[t + 1];
        mark[t] = k;
        for (int32_t e = d->successor_offset[t]; e < end; ++e) {
            int32_t after = successor[e];
            if (mark[after] == k)
                continue;
            if (task_class[after] < 0)
                mark[after] = k;
            keep_edge(sim, t, after);
        }
    }
    for (int32_t i = sim->stream[k].begin; i < sim->stream[k].end; ++i) {
        int32_t t = sim->stream_task[i], from = sim->cross_offset[t], end = sim->cross_end[t];
        int32_t kept = from;
        for (int32_t e = from; e < end; ++e) {
            int32_t after = sim->cross_after[e], to = task_class[after];
            if (to < 0 ? mark[after] != k : to != k)
                sim->cross_after[kept++] = after;
        }
        sim->cross_end[t] = kept;
    }
}

/*
 * Edges of a movement: of the tasks of a class that wait for it, the first says it all, also for
 * the next step. first[class] is that task, or ESP_NONE.
 */
static void keep_move_edges(esp_sim_t *sim, int32_t t)
{
    const esp_deployment_t *d = sim->d;
    int32_t begin = d->successor_offset[t], end = d->successor_offset[t + 1], *first = sim->first;
    for (int32_t e = begin; e < end; ++e) {
        int32_t after = d->successor[e], k = d->task_class[after];
        if (!is_move(d, after) && (first[k] < 0 || d->position[after] < d->position[first[k]]))
            first[k] = after;
    }
    for (int32_t e = begin; e < end; ++e) {
        int32_t after = d->successor[e];
        if (is_move(d, after) || first[d->task_class[after]] == after)
            keep_edge(sim, t, after);
    }
    int32_t from = sim->cross_offset[t], to = sim->cross_end[t];
    sim->cross_end[t] = from;
    for (int32_t e = from; e < to; ++e) {
        int32_t after = sim->cross_after[e];
        if (is_move(d, after) || first[d->task_class[after]] < 0)
            sim->cross_after[sim->cross_end[t]++] = after;
    }
    for (int32_t e = begin; e < end; ++e)
        if (!is_move(d, d->successor[e]))
            first[d->task_class[d->successor[e]]] = ESP_NONE;
}

/* All edges count where streams take tasks as they become ready. */
static void keep_all_edges(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t t = 0; t < d->n_tasks; ++t)
        for (int32_t e = d->successor_offset[t]; e < d->successor_offset[t + 1]; ++e)
            keep_edge(sim, t, d->successor[e]);
}

/* The edges that count, and per instance how many of them it waits for. */
void esp_i_edges_fill(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    size_t bytes = (size_t)d->n_tasks * sizeof(int32_t);
    memset(sim->pending, 0, bytes);
    memset(sim->mark, 0xff, bytes); /* no class */
    memset(sim->first, 0xff, (size_t)d->n_classes * sizeof *sim->first);
    memcpy(sim->edge_end, d->successor_offset, bytes);
    memcpy(sim->cross_end, sim->cross_offset + 1, bytes);
    if (sim->opts.fifo)
        keep_all_edges(sim);
    for (int32_t k = 0; !sim->opts.fifo && k < d->n_classes; ++k)
        keep_compute_edges(sim, k);
    for (int32_t t = 0; !sim->opts.fifo && t < d->n_tasks; ++t)
        if (is_move(d, t))
            keep_move_edges(sim, t);
    for (int32_t s = 1; s < sim->steps; ++s) {
        int32_t *pending = sim->pending + (int64_t)s * d->n_tasks;
        if (s > 1) {
            memcpy(pending, pending - d->n_tasks, bytes);
            continue;
        }
        memcpy(pending, sim->pending, bytes);
        for (int32_t t = 0; t < d->n_tasks; ++t)
            for (int32_t e = sim->cross_offset[t]; e < sim->cross_end[t]; ++e)
                pending[sim->cross_after[e]]++;
    }
}

/*
 * Runs: tasks that follow each other on a compute stream and have nothing to do with others in
 * between. They are one event; memory.c takes them apart again for the last step. What begins a run
 * or goes on without one is where no edge tells; a task without duration is alone, as it makes a
 * round of its own.
 */
void esp_i_runs_fill(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    const int32_t *waits = sim->pending + (int64_t)sim->last * d->n_tasks;
    if (sim->opts.fifo)
        return;
    for (int32_t k = 0; k < d->n_classes; ++k) {
        const esp_i_stream_t *stream = &sim->stream[k];
        for (int32_t i = stream->end - 1; i >= stream->begin; --i) {
            int32_t t = sim->stream_task[i], next = sim->stream_task[i + 1];
            esp_i_run_t *run = &sim->run[i];
            *run = (esp_i_run_t){sim->ns[t], 1};
            if (i + 1 == stream->end || waits[next] > 0 || sim->ns[t] == 0 || sim->ns[next] == 0 ||
                sim->edge_end[t] > d->successor_offset[t] ||
                sim->cross_end[t] > sim->cross_offset[t])
                continue;
            run->ns += run[1].ns;
            run->length += run[1].length;
        }
    }
}
