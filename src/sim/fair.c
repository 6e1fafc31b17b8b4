/*
 * Fair links: max-min sharing between the movements in flight.
 *
 * A movement progresses at a speed in (0, 1] of what it does alone. At full speed it puts
 * bytes * load / work on each of its links (bytes per nanosecond). Shared links slow it down: the
 * *rate* that is shared out fairly is that on its tightest link, the one with the largest load /
 * bandwidth, so that a transfer and a collective that meet on a link which limits both get half of
 * it each. On other links it takes load / load(tightest) of the rate. Weighted progressive filling:
 * all rates rise together; a movement stops rising when a link of its own is full, or at full
 * speed.
 *
 * Speeds of movements that share nothing with what changed come out bit for bit as before and their
 * finish times are left alone.
 */
#include "sim/sim.h"

#include <math.h>
#include <string.h>

/* Finish times are rounded up, but not for the rounding noise of a speed. */
#define ROUNDING_NS 1e-6
/* Links whose levels differ by less than this (relative) fill at the same time. */
#define LEVEL_TOLERANCE 1e-12

static int64_t latency_of(const esp_sim_t *sim, int32_t task)
{
    const esp_pattern_t *pattern = sim->d->comm_pattern[sim->d->task_comm[task]];
    return esp_i_min_i64(pattern->latency_ns, sim->ns[task]);
}

void esp_i_fair_start(esp_sim_t *sim, int32_t task, int32_t step)
{
    esp_i_sim_push(sim, sim->now + latency_of(sim, task), ESP_I_EVENT_LATENCY, task, step);
}

static double tightest_load(const esp_sim_t *sim, const esp_pattern_t *pattern)
{
    const double *width = sim->d->cluster->link_bytes_per_s;
    double tight = 0, most = -1;
    for (int32_t i = 0; i < pattern->n_links; ++i) {
        double use = pattern->load[i] / width[pattern->link[i]];
        if (use > most) {
            most = use;
            tight = pattern->load[i];
        }
    }
    return tight;
}

bool esp_i_fair_join(esp_sim_t *sim, int32_t task, int32_t step)
{
    int32_t comm = sim->d->task_comm[task];
    const esp_pattern_t *pattern = sim->d->comm_pattern[comm];
    int64_t work = sim->ns[task] - latency_of(sim, task);
    if (work <= 0)
        return false;
    esp_i_flow_t *flow = &sim->flow[sim->n_flows++];
    *flow = (esp_i_flow_t){.left = (double)work,
                           .speed = 1,
                           .since = sim->now,
                           .finish = sim->now + work,
                           .pattern = pattern,
                           .task = task,
                           .step = step};
    flow->tight = tightest_load(sim, pattern);
    flow->full = flow->tight * (double)sim->d->comm_bytes[comm] / (double)work;
    for (int32_t i = 0; i < pattern->n_links; ++i)
        if (sim->link_flows[pattern->link[i]]++ > 0)
            sim->flows_changed = true;
    sim->flow_next = esp_i_min_i64(sim->flow_next, flow->finish);
    return true;
}

static void find_next(esp_sim_t *sim)
{
    int64_t next = INT64_MAX;
    for (int32_t i = 0; i < sim->n_flows; ++i)
        next = esp_i_min_i64(next, sim->flow[i].finish);
    sim->flow_next = next;
}

void esp_i_fair_leave(esp_sim_t *sim, int32_t i)
{
    const esp_pattern_t *pattern = sim->flow[i].pattern;
    for (int32_t l = 0; l < pattern->n_links; ++l)
        if (--sim->link_flows[pattern->link[l]] > 0)
            sim->flows_changed = true;
    sim->n_flows--; /* keeps the order of arrival */
    memmove(&sim->flow[i], &sim->flow[i + 1], (size_t)(sim->n_flows - i) * sizeof *sim->flow);
    find_next(sim);
}

/* ---- progressive filling ------------------------------------------------------------------- */

/* Sets the weight of all flows on each link in use. */
static void open_links(esp_sim_t *sim)
{
    int32_t n = 0;
    for (int32_t i = 0; i < sim->n_flows; ++i) {
        esp_i_flow_t *flow = &sim->flow[i];
        flow->frozen = false;
        for (int32_t l = 0; l < flow->pattern->n_links; ++l) {
            int32_t link = flow->pattern->link[l];
            if (sim->link_flows[link] > 0) { /* negative: listed */
                sim->link_flows[link] = -sim->link_flows[link];
                sim->link_weight[link] = sim->link_used[link] = 0;
                sim->link_list[n++] = link;
            }
            sim->link_weight[link] += flow->pattern->load[l] / flow->tight;
        }
    }
    for (int32_t i = 0; i < n; ++i)
        sim->link_flows[sim->link_list[i]] = -sim->link_flows[sim->link_list[i]];
}

/*
 * The rate at which this flow stops rising: that of its fullest link, or full speed. A link with no
 * other movement does not count: full speed takes it into account, and knows better in a replay.
 */
static double level_of(const esp_sim_t *sim, const esp_i_flow_t *flow)
{
    double level = flow->full;
    for (int32_t l = 0; l < flow->pattern->n_links; ++l) {
        int32_t link = flow->pattern->link[l];
        if (sim->link_flows[link] < 2)
            continue;
        double free_rate = sim->d->cluster->link_bytes_per_s[link] * 1e-9 - sim->link_used[link];
        level = fmin(level, fmax(free_rate, 0) / sim->link_weight[link]);
    }
    return level;
}

static void freeze(esp_sim_t *sim, esp_i_flow_t *flow)
{
    flow->frozen = true;
    for (int32_t l = 0; l < flow->pattern->n_links; ++l) {
        int32_t link = flow->pattern->link[l];
        double weight = flow->pattern->load[l] / flow->tight;
        sim->link_weight[link] -= weight;
        sim->link_used[link] += weight * flow->level;
    }
}

/* Sets the level of every flow. */
static void fill(esp_sim_t *sim)
{
    open_links(sim);
    int32_t rising = sim->n_flows;
    while (rising > 0) {
        double lowest = INFINITY;
        for (int32_t i = 0; i < sim->n_flows; ++i) {
            esp_i_flow_t *flow = &sim->flow[i];
            if (flow->frozen)
                continue;
            flow->level = level_of(sim, flow);
            lowest = fmin(lowest, flow->level);
        }
        double until = lowest * (1 + LEVEL_TOLERANCE);
        for (int32_t i = 0; i < sim->n_flows; ++i) {
            if (sim->flow[i].frozen || sim->flow[i].level > until)
                continue;
            freeze(sim, &sim->flow[i]);
            rising--;
        }
    }
}

static void set_speed(const esp_sim_t *sim, esp_i_flow_t *flow)
{
    double speed = flow->level / flow->full;
    if (speed > 1 - LEVEL_TOLERANCE)
        speed = 1;
    if (speed == flow->speed)
        return;
    flow->left = fmax(flow->left - flow->speed * (double)(sim->now - flow->since), 0);
    flow->since = sim->now;
    flow->speed = speed;
    flow->finish = sim->now + (int64_t)ceil(fmax(flow->left / speed - ROUNDING_NS, 0));
}

void esp_i_fair_solve(esp_sim_t *sim)
{
    if (!sim->flows_changed)
        return;
    sim->flows_changed = false;
    fill(sim);
    for (int32_t i = 0; i < sim->n_flows; ++i)
        set_speed(sim, &sim->flow[i]);
    find_next(sim);
}
