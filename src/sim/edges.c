/*
 * What a run waits for. A compute stream runs its tasks in the global order, step after step, which
 * implies most edges of a deployment. They are dropped once, instead of being counted down in every
 * step; then long stretches of a stream have nothing to do with others, and become one event.
 */
#include "sim/sim.h"

#include <string.h>

static bool is_move(const esp_deployment_t *d, int32_t task)
{
    return d->task_class[task] < 0;
}

static void keep_edge(esp_sim_t *sim, int32_t before, int32_t after)
{
    sim->edge[sim->edge_end[before]++] = after;
    sim->pending[after]++;
    sim->ties[before] |= ESP_I_TELLS;
    sim->ties[after] |= ESP_I_WAITS;
}

/* ---- between movements and classes: bits by movement, side and class ------------------------- */

typedef enum side {
    BEFORE, /* a compute task of the class leads to the movement */
    AFTER   /* one waits for it */
} side_t;

static uint64_t *neighbour_word(const esp_sim_t *sim, int32_t move, side_t side, int32_t class_)
{
    int64_t row = 2 * (int64_t)sim->d->task_comm[move] + (int64_t)side;
    return &sim->neighbour[row * ((sim->d->n_classes + 63) / 64) + class_ / 64];
}

static void set_neighbour(esp_sim_t *sim, int32_t move, side_t side, int32_t class_)
{
    *neighbour_word(sim, move, side, class_) |= UINT64_C(1) << (class_ % 64);
}

static bool is_neighbour(const esp_sim_t *sim, int32_t move, side_t side, int32_t class_)
{
    return *neighbour_word(sim, move, side, class_) >> (class_ % 64) & 1;
}

static void clear_neighbours(esp_sim_t *sim)
{
    size_t words = 2 * (size_t)sim->d->n_comms * (((size_t)sim->d->n_classes + 63) / 64);
    memset(sim->neighbour, 0, words * sizeof *sim->neighbour);
}

/* ---- edges of the step ----------------------------------------------------------------------- */

__attribute__((noinline)) static void leave_stream(esp_sim_t *sim, int32_t k, int32_t before,
                                                   int32_t after)
{
    if (is_move(sim->d, after)) {
        sim->mark[after] = k;
        set_neighbour(sim, after, BEFORE, k);
    }
    keep_edge(sim, before, after);
}

/*
 * Edges of the compute tasks of a class. Its stream runs them in order, so an edge within it says
 * nothing new, and of those that lead to a movement the last says it all. Last first, therefore;
 * mark is k for the later tasks and where they lead.
 */
static void keep_compute_edges(esp_sim_t *sim, int32_t k)
{
    const int32_t *offset = sim->d->successor_offset, *successor = sim->d->successor;
    const int32_t *first = sim->stream_task + sim->stream[k].begin;
    int32_t *mark = sim->mark;
    for (const int32_t *task = sim->stream_task + sim->stream[k].end; task-- > first;) {
        int32_t end = offset[*task + 1];
        mark[*task] = k;
        for (int32_t e = offset[*task]; e < end; ++e)
            if (mark[successor[e]] != k)
                leave_stream(sim, k, *task, successor[e]);
    }
}

/*
 * Edges of a movement: of the tasks of a class that wait for it, the first says it all.
 * first[class] is that task, or ESP_NONE.
 */
static void keep_move_edges(esp_sim_t *sim, int32_t t)
{
    const esp_deployment_t *d = sim->d;
    int32_t begin = d->successor_offset[t], end = d->successor_offset[t + 1], *first = sim->first;
    for (int32_t e = begin; e < end; ++e) {
        int32_t after = d->successor[e], k = d->task_class[after];
        if (k >= 0 && (first[k] < 0 || d->position[after] < d->position[first[k]]))
            first[k] = after;
    }
    for (int32_t e = begin; e < end; ++e) {
        int32_t after = d->successor[e], k = d->task_class[after];
        if (k >= 0 && first[k] != after)
            continue;
        if (k >= 0)
            set_neighbour(sim, t, AFTER, k);
        keep_edge(sim, t, after);
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

/* ---- edges to the next step ------------------------------------------------------------------ */

/*
 * Streams run step after step. A movement that tasks of a class lead to waits for the last of them,
 * and so for all that the class did in the step before; and a class of which tasks wait for a
 * movement goes on to the next step only after it.
 */
static bool is_implied(const esp_sim_t *sim, int32_t before, int32_t after)
{
    int32_t from = sim->d->task_class[before], to = sim->d->task_class[after];
    if (from < 0)
        return to >= 0 && is_neighbour(sim, before, AFTER, to);
    return to < 0 ? is_neighbour(sim, after, BEFORE, from) : from == to;
}

/* Last first: the lists are in the order of the cross edges. */
static void keep_cross_edges(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    int32_t *pending = sim->steps > 1 ? sim->pending + d->n_tasks : NULL;
    memset(sim->cross_first, 0xff, (size_t)d->n_tasks * sizeof *sim->cross_first);
    for (int32_t i = d->n_cross - 1; i >= 0; --i) {
        int32_t before = d->cross_before[i], after = d->cross_after[i];
        if (!sim->opts.fifo && is_implied(sim, before, after))
            continue;
        sim->cross_next[i] = sim->cross_first[before];
        sim->cross_first[before] = i;
        sim->ties[before] |= ESP_I_TELLS;
        if (!pending)
            continue;
        pending[after]++;
        sim->ties[after] |= ESP_I_WAITS;
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The edges that count, and per instance how many of them it waits for. */
void esp_i_edges_fill(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    size_t tasks = (size_t)d->n_tasks, bytes = tasks * sizeof(int32_t);
    memset(sim->pending, 0, bytes);
    memset(sim->ties, 0, tasks);
    memset(sim->mark, 0xff, bytes); /* no class */
    memset(sim->first, 0xff, (size_t)d->n_classes * sizeof *sim->first);
    memcpy(sim->edge_end, d->successor_offset, bytes);
    clear_neighbours(sim);
    if (sim->opts.fifo)
        keep_all_edges(sim);
    for (int32_t k = 0; !sim->opts.fifo && k < d->n_classes; ++k)
        keep_compute_edges(sim, k);
    for (int32_t i = 0; !sim->opts.fifo && i < sim->n_moves; ++i)
        keep_move_edges(sim, sim->move[i]);
    if (sim->steps > 1)
        memcpy(sim->pending + tasks, sim->pending, bytes);
    keep_cross_edges(sim);
    for (int32_t s = 2; s < sim->steps; ++s)
        memcpy(sim->pending + (size_t)s * tasks, sim->pending + tasks, bytes);
}

/* Stretches of a compute stream, from its end; a task without duration is alone, as it makes a
 * round of its own. */
static void fill_runs(esp_sim_t *sim, int32_t k)
{
    const esp_i_stream_t *stream = &sim->stream[k];
    esp_i_run_t run = {0, 0};
    int64_t busy = 0;
    uint8_t next = ESP_I_WAITS;
    for (int32_t i = stream->end - 1; i >= stream->begin; --i) {
        int32_t t = sim->stream_task[i];
        int64_t ns = sim->ns[t];
        uint8_t ties = ns == 0 ? ESP_I_WAITS | ESP_I_TELLS : sim->ties[t];
        if ((next & ESP_I_WAITS) || (ties & ESP_I_TELLS))
            run = (esp_i_run_t){0, 0};
        run.ns += ns;
        run.length++;
        sim->run[i] = run;
        next = ties;
        busy += ns;
    }
    sim->busy_ns[k] = busy;
}

/*
 * Runs: tasks that follow each other on a compute stream and have nothing to do with others in
 * between. They are one event; memory.c takes them apart again for the last step. What begins a run
 * or goes on without one is where no edge tells.
 */
void esp_i_runs_fill(esp_sim_t *sim)
{
    for (int32_t k = 0; k < sim->d->n_classes; ++k)
        fill_runs(sim, k);
}
