/* Scratch memory of a simulation: sized once for the largest deployment, filled for each run. */
#include "sim/sim.h"

#include <string.h>

/* Room for n elements; what was there is lost. */
static bool reserve(esp_sim_t *sim, void *array, int32_t *capacity, int64_t n, size_t size)
{
    void **data = array;
    if (n <= *capacity)
        return true;
    if (n > INT32_MAX)
        return false;
    esp_i_free(&sim->alloc, *data);
    *capacity = 0;
    *data = esp_i_alloc_array(&sim->alloc, n, size);
    if (!*data)
        return false;
    *capacity = (int32_t)n;
    return true;
}
#define RESERVE(name, n) reserve(sim, &sim->name, &sim->capacity.name, (n) + 1, sizeof *sim->name)

static bool reserve_tasks(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    int64_t tasks = d->n_tasks, instances = tasks * sim->steps;
    int64_t moves = (int64_t)d->n_comms * sim->steps;
    int64_t waiting = sim->opts.fifo ? instances : moves;
    int64_t members = d->n_comms > 0 ? d->comm_class_offset[d->n_comms] : 0;
    int64_t queued = 2 * moves + 2 * (int64_t)d->n_classes;
    int64_t neighbours = 2 * (int64_t)d->n_comms * ((d->n_classes + 63) / 64);
    return RESERVE(pending, instances) && RESERVE(edge_end, tasks) &&
           RESERVE(edge, d->n_tasks > 0 ? d->successor_offset[d->n_tasks] : 0) &&
           RESERVE(cross_first, tasks) && RESERVE(cross_next, d->n_cross) && RESERVE(ties, tasks) &&
           RESERVE(neighbour, neighbours) && RESERVE(mark, tasks) && RESERVE(move, tasks) &&
           RESERVE(first, 2 * (int64_t)d->n_classes) && RESERVE(change, tasks) &&
           RESERVE(run, tasks + members) && RESERVE(stream, 2 * (int64_t)d->n_classes) &&
           RESERVE(stream_task, tasks + members) && RESERVE(place, tasks) &&
           RESERVE(dirty, 2 * (int64_t)d->n_classes) && RESERVE(heap, queued) &&
           RESERVE(ready, waiting) && (!sim->opts.fifo || RESERVE(fifo_next, instances)) &&
           (!sim->opts.timeline || (RESERVE(start_ns, tasks) && RESERVE(end_ns, tasks)));
}

static bool reserve_taken(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    return RESERVE(class_time, d->n_classes) &&
           RESERVE(move_start, (int64_t)d->n_comms * sim->steps) &&
           RESERVE(move_before, (int64_t)d->comm_class_offset[d->n_comms] * sim->steps);
}

static bool reserve_rest(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    int64_t links = d->cluster->n_links, classes = d->n_classes;
    bool fair = sim->opts.links == ESP_LINK_FAIR;
    return RESERVE(last_use, d->n_buffers) && RESERVE(first_write, d->n_buffers) &&
           RESERVE(uses, d->n_buffers) && RESERVE(scratch, d->n_tasks) &&
           RESERVE(mesh_total, d->n_meshes) && RESERVE(live, classes) && RESERVE(peak, classes) &&
           RESERVE(busy_ns, classes) && RESERVE(collective_ns, classes) &&
           RESERVE(link_busy_ns, links) && (!sim->moves_take || reserve_taken(sim)) &&
           (fair || RESERVE(link_free, links)) &&
           (!fair ||
            (RESERVE(flow, (int64_t)d->n_comms * sim->steps) && RESERVE(bundle, d->n_comms) &&
             RESERVE(comm_bundle, d->n_comms) && RESERVE(active, d->n_comms) &&
             RESERVE(link_flows, links) && RESERVE(link_slot, links) && RESERVE(meet, links) &&
             RESERVE(set, ESP_I_SET_SLOTS) && RESERVE(rate, ESP_I_RATES))) &&
           (!sim->opts.timeline || (RESERVE(live_role, classes * ESP_ROLE_COUNT) &&
                                    RESERVE(peak_role, classes * ESP_ROLE_COUNT)));
}

/* ---- streams ----------------------------------------------------------------------------- */

/* Adds 1 to n[stream] for each stream that a collective occupies. */
static void count_collective(const esp_sim_t *sim, int32_t comm, int32_t *n)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i)
        n[d->n_classes + d->comm_class[i]]++;
}

/* Tasks per stream; and which tasks are movements. */
static void count_streams(esp_sim_t *sim, int32_t *n)
{
    const esp_deployment_t *d = sim->d;
    const int32_t *task_class = d->task_class, n_tasks = d->n_tasks;
    sim->n_moves = 0;
    memset(n, 0, 2 * (size_t)d->n_classes * sizeof *n);
    for (int32_t t = 0; t < n_tasks; ++t) {
        if (task_class[t] >= 0) {
            n[task_class[t]]++;
            continue;
        }
        sim->move[sim->n_moves++] = t;
        sim->place[t] = ESP_NONE;
    }
    for (int32_t c = 0; c < d->n_comms; ++c)
        if (d->comm_collective[c])
            count_collective(sim, c, n);
}

/* Each stream has its part of stream_task. n: from how many to where they begin. */
static void divide_streams(esp_sim_t *sim, int32_t *n)
{
    int32_t from = 0;
    for (int32_t k = 0; k < 2 * sim->d->n_classes; ++k) {
        sim->stream[k] =
            (esp_i_stream_t){.begin = from,
                             .end = from + n[k],
                             .next = from,
                             .step = n[k] > 0 ? 0 : sim->steps, /* or nothing to do, ever */
                             .fifo_head = -1,
                             .fifo_tail = -1,
                             .started = from,
                             .ended = from,
                             .final = -1};
        from += n[k];
        n[k] = sim->stream[k].begin;
    }
}

static void fill_streams(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    const int32_t *order = d->order, *task_class = d->task_class, n_tasks = d->n_tasks;
    int32_t *next = sim->first, *stream_task = sim->stream_task, *place = sim->place;
    count_streams(sim, next);
    divide_streams(sim, next);
    for (int32_t p = 0; p < n_tasks; ++p) {
        int32_t t = order[p], k = task_class[t];
        if (k >= 0) {
            place[t] = next[k];
            stream_task[next[k]++] = t;
            continue;
        }
        int32_t comm = d->task_comm[t];
        if (!d->comm_collective[comm])
            continue;
        for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i)
            stream_task[next[d->n_classes + d->comm_class[i]]++] = t;
    }
}

/* ---- links ------------------------------------------------------------------------------- */

/* The place of a pattern in the table: its own, or an empty one. */
static int32_t *find_slot(esp_sim_t *sim, const esp_pattern_t *pattern, int32_t slots)
{
    uint64_t at = ((uint64_t)(uintptr_t)pattern * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
    int32_t *slot = &sim->pattern_slot[at & (uint64_t)(slots - 1)];
    while (*slot >= 0 && sim->bundle[*slot].pattern != pattern)
        slot = slot + 1 < sim->pattern_slot + slots ? slot + 1 : sim->pattern_slot;
    return slot;
}

/* Movements with the same pattern are one bundle. Numbers go by first use: addresses do not
 * matter. */
static bool fill_bundles(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    int32_t slots = 16, flows = 0, n = 0;
    int64_t links = 0;
    while (slots < 2 * (int64_t)d->n_comms)
        slots *= 2;
    if (!RESERVE(pattern_slot, slots))
        return false;
    memset(sim->pattern_slot, 0xff, (size_t)slots * sizeof *sim->pattern_slot);
    for (int32_t c = 0; c < d->n_comms; ++c) {
        int32_t *slot = find_slot(sim, d->comm_pattern[c], slots);
        if (*slot < 0) {
            sim->bundle[n] = (esp_i_bundle_t){.pattern = d->comm_pattern[c], .tight = -1};
            sim->bundle[n].first_weight = (int32_t)links;
            links += d->comm_pattern[c]->n_links;
            *slot = n++;
        }
        sim->comm_bundle[c] = *slot;
        sim->bundle[*slot].n += sim->steps;
    }
    for (int32_t i = 0; i < n; ++i) {
        sim->bundle[i].first_flow = flows;
        flows += sim->bundle[i].n;
        sim->bundle[i].n = 0;
    }
    return RESERVE(weight, links) && RESERVE(use, links);
}

static bool clear_links(esp_sim_t *sim)
{
    size_t links = (size_t)sim->d->cluster->n_links;
    sim->n_active = 0;
    sim->flows_changed = false;
    sim->flow_next = INT64_MAX;
    if (sim->opts.links != ESP_LINK_FAIR) {
        memset(sim->link_free, 0, links * sizeof *sim->link_free);
        return true;
    }
    if (sim->n_sets > 0)
        memset(sim->set, 0, ESP_I_SET_SLOTS * sizeof *sim->set);
    sim->n_sets = sim->n_rates = 0;
    memset(sim->link_flows, 0, links * sizeof *sim->link_flows);
    memset(sim->link_slot, 0xff, links * sizeof *sim->link_slot);
    return fill_bundles(sim);
}

/* ---- entry ------------------------------------------------------------------------------- */

esp_status_t esp_i_sim_setup(esp_sim_t *sim, const esp_deployment_t *d, const esp_sim_opts_t *opts)
{
    sim->opts = *opts;
    sim->d = d;
    sim->ns = opts->task_ns ? opts->task_ns : d->task_ns;
    sim->steps = opts->barrier ? 1 : opts->steps;
    sim->last = sim->steps - 1;
    sim->now = sim->events = 0;
    sim->n_dirty = sim->n_heap = sim->n_ready = 0;
    sim->has_timeline = false;
    sim->moves_take = esp_i_taken_any(sim);
    if (!reserve_tasks(sim) || !reserve_rest(sim) || !clear_links(sim))
        return ESP_ERR_NOMEM;
    memset(sim->step_end, 0, sizeof sim->step_end);
    fill_streams(sim);
    esp_i_edges_fill(sim);
    esp_i_runs_fill(sim);
    if (sim->moves_take)
        esp_i_taken_reset(sim);
    esp_i_memory_reset(sim);
    return ESP_OK;
}

/* ---- life cycle -------------------------------------------------------------------------- */

esp_status_t esp_sim_create(const esp_allocator_t *alloc, esp_sim_t **sim_out)
{
    esp_allocator_t own = esp_i_allocator(alloc);
    esp_sim_t *sim = esp_i_alloc_array(&own, 1, sizeof *sim);
    if (!sim)
        return ESP_ERR_NOMEM;
    sim->alloc = own;
    *sim_out = sim;
    return ESP_OK;
}

void esp_sim_destroy(esp_sim_t *sim)
{
    if (!sim)
        return;
    esp_allocator_t alloc = sim->alloc;
    void *const arrays[] = {
        sim->pending,    sim->edge,        sim->edge_end,    sim->cross_first,   sim->cross_next,
        sim->ties,       sim->neighbour,   sim->mark,        sim->first,         sim->move,
        sim->run,        sim->stream,      sim->stream_task, sim->place,         sim->dirty,
        sim->fifo_next,  sim->heap,        sim->ready,       sim->collective_ns, sim->link_busy_ns,
        sim->class_time, sim->move_start,  sim->move_before, sim->link_free,     sim->flow,
        sim->bundle,     sim->comm_bundle, sim->active,      sim->pattern_slot,  sim->weight,
        sim->link_flows, sim->link_slot,   sim->meet,        sim->use,           sim->set,
        sim->rate,       sim->last_use,    sim->first_write, sim->uses,          sim->change,
        sim->scratch,    sim->mesh_total,  sim->live,        sim->peak,          sim->live_role,
        sim->peak_role,  sim->busy_ns,     sim->start_ns,    sim->end_ns,
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i)
        esp_i_free(&alloc, arrays[i]);
    esp_i_free(&alloc, sim);
}
