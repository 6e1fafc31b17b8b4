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
 * Movements of one pattern load the same links in the same way, so all of them that do not reach
 * full speed have the same rate. They form a *bundle*: it has one rate and one clock, the bytes
 * `served` to each of them, and a heap of the values of the clock at which they end. A change of
 * rates costs O(links) per bundle, however many movements there are in it. Movements at full speed
 * stand beside the heap with a finish time each.
 *
 * Rates of movements that share nothing with what changed come out bit for bit as before and their
 * finish times are left alone.
 */
#include "sim/sim.h"

#include <math.h>
#include <string.h>

/* Finish times are rounded up, but not for the rounding noise of a speed. */
#define ROUNDING_NS 1e-6
/* Links whose levels differ by less than this (relative) fill at the same time. */
#define LEVEL_TOLERANCE 1e-12

/* fmin, fmax and ceil are calls; these are not. */
static inline double min_of(double a, double b)
{
    return a < b ? a : b;
}

static inline double max_of(double a, double b)
{
    return a > b ? a : b;
}

static inline int64_t whole_ns(double ns)
{
    double left = max_of(ns - ROUNDING_NS, 0);
    int64_t whole = (int64_t)left;
    return whole + ((double)whole < left);
}

static int64_t latency_of(const esp_sim_t *sim, int32_t task)
{
    const esp_pattern_t *pattern = sim->d->comm_pattern[sim->d->task_comm[task]];
    return esp_i_min_i64(pattern->latency_ns, sim->ns[task]);
}

void esp_i_fair_start(esp_sim_t *sim, int32_t task, int32_t step)
{
    esp_i_sim_push(sim, sim->now + latency_of(sim, task), ESP_I_EVENT_LATENCY, task, step);
}

/* ---- a bundle: a heap on `end`, then the movements at full speed ---------------------------- */

static void sift_up(esp_i_flow_t *heap, int32_t i)
{
    esp_i_flow_t flow = heap[i];
    while (i > 0 && heap[(i - 1) / 2].end > flow.end) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = flow;
}

static void sift_down(esp_i_flow_t *heap, int32_t n, int32_t i)
{
    esp_i_flow_t flow = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && heap[child + 1].end < heap[child].end;
        if (heap[child].end >= flow.end)
            break;
        heap[i] = heap[child];
    }
    heap[i] = flow;
}

/* Brings the clock to the present. */
static void serve(const esp_sim_t *sim, esp_i_bundle_t *b)
{
    b->served = b->n_slow > 0 ? b->served + b->level * (double)(sim->now - b->since) : 0;
    b->since = sim->now;
}

static int64_t slow_finish(const esp_i_bundle_t *b, const esp_i_flow_t *flow)
{
    return b->since + whole_ns((flow->end - b->served) / b->level);
}

static void find_finish(const esp_sim_t *sim, esp_i_bundle_t *b)
{
    const esp_i_flow_t *flow = sim->flow + b->first_flow;
    b->finish = b->n_slow > 0 ? slow_finish(b, flow) : INT64_MAX;
    for (int32_t i = b->n_slow; i < b->n; ++i)
        b->finish = esp_i_min_i64(b->finish, flow[i].finish);
}

static void find_least(const esp_sim_t *sim, esp_i_bundle_t *b)
{
    const esp_i_flow_t *flow = sim->flow + b->first_flow;
    b->least_full = INFINITY;
    for (int32_t i = 0; i < b->n; ++i)
        b->least_full = min_of(b->least_full, flow[i].full);
}

static void slow_down(const esp_sim_t *sim, esp_i_bundle_t *b, int32_t i)
{
    esp_i_flow_t *heap = sim->flow + b->first_flow, flow = heap[i];
    serve(sim, b);
    flow.end = b->served + max_of(flow.left - (double)(sim->now - flow.since), 0) * flow.full;
    heap[i] = heap[b->n_slow];
    heap[b->n_slow] = flow;
    sift_up(heap, b->n_slow++);
}

/* All that are slowed but need not be: rare, so the heap is made anew. False: there are none. */
static bool speed_up(const esp_sim_t *sim, esp_i_bundle_t *b)
{
    esp_i_flow_t *heap = sim->flow + b->first_flow;
    int32_t first = 0;
    while (first < b->n_slow && heap[first].full > b->cap)
        ++first;
    if (first == b->n_slow)
        return false;
    serve(sim, b);
    for (int32_t i = first; i < b->n_slow;) {
        esp_i_flow_t flow = heap[i];
        if (flow.full > b->cap) {
            ++i;
            continue;
        }
        flow.left = max_of(flow.end - b->served, 0) / flow.full;
        flow.since = sim->now;
        flow.finish = sim->now + whole_ns(flow.left);
        heap[i] = heap[--b->n_slow];
        heap[b->n_slow] = flow;
    }
    for (int32_t i = b->n_slow / 2 - 1; i >= 0; --i)
        sift_down(heap, b->n_slow, i);
    return true;
}

/* ---- movements come and go ------------------------------------------------------------------ */

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

static void prepare_weights(esp_sim_t *sim, esp_i_bundle_t *b)
{
    b->tight = tightest_load(sim, b->pattern);
    for (int32_t l = 0; l < b->pattern->n_links; ++l)
        sim->weight[b->first_weight + l] = b->pattern->load[l] / b->tight;
}

bool esp_i_fair_join(esp_sim_t *sim, int32_t task, int32_t step)
{
    int32_t comm = sim->d->task_comm[task];
    esp_i_bundle_t *b = &sim->bundle[sim->comm_bundle[comm]];
    int64_t work = sim->ns[task] - latency_of(sim, task);
    if (work <= 0)
        return false;
    if (b->tight < 0)
        prepare_weights(sim, b);
    if (b->n == 0) {
        sim->active[sim->n_active++] = sim->comm_bundle[comm];
        b->finish = INT64_MAX;
        b->least_full = INFINITY;
    }
    double full = b->tight * (double)sim->d->comm_bytes[comm] / (double)work;
    sim->flow[b->first_flow + b->n++] = (esp_i_flow_t){.full = full,
                                                       .left = (double)work,
                                                       .since = sim->now,
                                                       .finish = sim->now + work,
                                                       .task = task,
                                                       .step = step};
    b->least_full = min_of(b->least_full, full);
    b->finish = esp_i_min_i64(b->finish, sim->now + work);
    for (int32_t i = 0; i < b->pattern->n_links; ++i)
        if (sim->link_flows[b->pattern->link[i]]++ > 0)
            sim->flows_changed = true;
    sim->flow_next = esp_i_min_i64(sim->flow_next, b->finish);
    return true;
}

static void find_next(esp_sim_t *sim)
{
    int64_t next = INT64_MAX;
    for (int32_t a = 0; a < sim->n_active; ++a)
        next = esp_i_min_i64(next, sim->bundle[sim->active[a]].finish);
    sim->flow_next = next;
}

/* Takes movement i out of active bundle number a. */
static void leave(esp_sim_t *sim, int32_t a, int32_t i)
{
    esp_i_bundle_t *b = &sim->bundle[sim->active[a]];
    esp_i_flow_t *flow = sim->flow + b->first_flow;
    double full = flow[i].full;
    for (int32_t l = 0; l < b->pattern->n_links; ++l)
        if (--sim->link_flows[b->pattern->link[l]] > 0)
            sim->flows_changed = true;
    if (i < b->n_slow) { /* the first of the heap */
        flow[0] = flow[--b->n_slow];
        sift_down(flow, b->n_slow, 0);
        i = b->n_slow;
    }
    flow[i] = flow[--b->n];
    if (b->n == 0) { /* keeps the order of arrival */
        sim->n_active--;
        memmove(&sim->active[a], &sim->active[a + 1],
                (size_t)(sim->n_active - a) * sizeof *sim->active);
        return;
    }
    if (full == b->least_full)
        find_least(sim, b);
    find_finish(sim, b);
}

bool esp_i_fair_take(esp_sim_t *sim, int32_t *task_out, int32_t *step_out)
{
    for (int32_t a = 0; a < sim->n_active; ++a) {
        const esp_i_bundle_t *b = &sim->bundle[sim->active[a]];
        const esp_i_flow_t *flow = sim->flow + b->first_flow;
        if (b->finish > sim->now)
            continue;
        int32_t i = 0;
        if (b->n_slow == 0 || slow_finish(b, flow) > sim->now)
            for (i = b->n_slow; flow[i].finish > sim->now;)
                ++i;
        *task_out = flow[i].task;
        *step_out = flow[i].step;
        leave(sim, a, i);
        return true;
    }
    find_next(sim);
    return false;
}

/* ---- progressive filling ------------------------------------------------------------------- */

/*
 * Lists the links on which movements meet, and who uses them how much. A link with one movement
 * does not count: full speed takes it into account, and knows better in a replay.
 */
static int32_t open_links(esp_sim_t *sim)
{
    const double *width = sim->d->cluster->link_bytes_per_s;
    const int32_t *link_flows = sim->link_flows;
    int32_t n = 0, *link_slot = sim->link_slot;
    esp_i_use_t *use = sim->use;
    for (int32_t a = 0; a < sim->n_active; ++a) {
        esp_i_bundle_t *b = &sim->bundle[sim->active[a]];
        const double *weight = sim->weight + b->first_weight, count = b->n;
        const int32_t *link = b->pattern->link, n_links = b->pattern->n_links;
        b->use = use;
        for (int32_t l = 0; l < n_links; ++l) {
            if (link_flows[link[l]] < 2)
                continue;
            int32_t slot = link_slot[link[l]];
            if (slot < 0) {
                slot = link_slot[link[l]] = n++;
                sim->meet[slot] = (esp_i_meet_t){.link = link[l], .room = width[link[l]] * 1e-9};
            }
            sim->meet[slot].weight += count * weight[l];
            *use++ = (esp_i_use_t){weight[l], slot};
        }
        b->n_uses = (int32_t)(use - b->use);
        b->rising = b->n_uses > 0 ? b->n : 0;
        b->cap = b->rising > 0 ? -1 : INFINITY;
        b->next_cap = b->least_full;
        b->next_level = b->level;
    }
    for (int32_t i = 0; i < n; ++i)
        link_slot[sim->meet[i].link] = -1;
    return n;
}

/* The rate at which each rising bundle is stopped by its links; returns the least, or least cap. */
static double find_levels(esp_sim_t *sim, int32_t n_meets)
{
    double lowest = INFINITY;
    esp_i_meet_t *meet = sim->meet;
    for (int32_t i = 0; i < n_meets; ++i)
        meet[i].level = max_of(meet[i].room, 0) / meet[i].weight;
    for (int32_t a = 0; a < sim->n_active; ++a) {
        esp_i_bundle_t *b = &sim->bundle[sim->active[a]];
        if (b->rising == 0)
            continue;
        double level = INFINITY;
        for (int32_t u = 0, n = b->n_uses; u < n; ++u)
            level = min_of(level, meet[b->use[u].slot].level);
        b->next_level = level;
        lowest = min_of(lowest, min_of(level, b->next_cap));
    }
    return lowest;
}

/* n of the bundle stop rising, with this rate in all. */
static void freeze(esp_sim_t *sim, esp_i_bundle_t *b, int32_t n, double rate)
{
    const esp_i_use_t *use = b->use, *end = use + b->n_uses;
    double count = n;
    b->rising -= n;
    for (; use < end; ++use) {
        esp_i_meet_t *meet = &sim->meet[use->slot];
        meet->weight -= count * use->weight;
        meet->room -= rate * use->weight;
    }
}

/* Those that are at full speed at this level. */
static void freeze_capped(esp_sim_t *sim, esp_i_bundle_t *b, double until)
{
    const esp_i_flow_t *flow = sim->flow + b->first_flow;
    int32_t n = 0;
    double rate = 0, next = INFINITY;
    for (int32_t i = 0; i < b->n; ++i) {
        if (flow[i].full > until) {
            next = min_of(next, flow[i].full);
        } else if (flow[i].full > b->cap) {
            rate += flow[i].full;
            n++;
        }
    }
    b->next_cap = next;
    freeze(sim, b, n, rate);
}

/* Sets next_level of every bundle, and cap: who needs no more than that is at full speed. */
static void fill(esp_sim_t *sim)
{
    int32_t n_meets = open_links(sim);
    double bound = 0;
    for (int32_t rising = 1; rising > 0;) {
        double until = find_levels(sim, n_meets) * (1 + LEVEL_TOLERANCE);
        bound = max_of(bound, until);
        rising = 0;
        for (int32_t a = 0; a < sim->n_active; ++a) {
            esp_i_bundle_t *b = &sim->bundle[sim->active[a]];
            if (b->rising == 0)
                continue;
            if (b->next_level <= until)
                freeze(sim, b, b->rising, b->rising * b->next_level);
            else if (b->next_cap <= until)
                freeze_capped(sim, b, until);
            else {
                rising += b->rising;
                continue;
            }
            rising += b->rising;
            b->cap = max_of(b->cap, until);
            b->bound = bound;
        }
    }
}

/* ---- solves of before ------------------------------------------------------------------------ */

/*
 * Steps repeat, and so do the sets of movements in flight. Where a link slows every movement of a
 * set, the rates follow from the bundles, their order and how many movements each has: they are bit
 * for bit the same for any `full` beyond the rates that it was compared with.
 */
enum { FEW = 4 }; /* bundles: a solve for fewer is as fast */

/* The entry of the set in flight, or an empty one. */
static esp_i_set_t *find_set(const esp_sim_t *sim)
{
    uint64_t hash = (uint64_t)sim->n_active;
    for (int32_t a = 0; a < sim->n_active; ++a) {
        uint64_t bundle = (uint64_t)sim->active[a], n = (uint64_t)sim->bundle[bundle].n;
        hash = (hash ^ (bundle << 32 | n)) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    for (uint64_t at = hash;; ++at) {
        esp_i_set_t *set = &sim->set[at % ESP_I_SET_SLOTS];
        const esp_i_rate_t *rate = &sim->rate[set->first];
        int32_t a = 0;
        if (set->n == 0)
            return set;
        while (a < set->n && a < sim->n_active && rate[a].bundle == sim->active[a] &&
               rate[a].n == sim->bundle[sim->active[a]].n)
            ++a;
        if (a == set->n && a == sim->n_active)
            return set;
    }
}

/* Whether `full` makes no difference; an infinite bound: the bundle meets no others. */
static bool is_slowed(const esp_i_bundle_t *b, double bound)
{
    return b->least_full > bound || bound == INFINITY;
}

static bool recall(esp_sim_t *sim, const esp_i_set_t *set)
{
    const esp_i_rate_t *rate = &sim->rate[set->first];
    for (int32_t a = 0; a < set->n; ++a)
        if (!is_slowed(&sim->bundle[sim->active[a]], rate[a].bound))
            return false;
    for (int32_t a = 0; a < set->n; ++a) {
        esp_i_bundle_t *b = &sim->bundle[sim->active[a]];
        b->cap = rate[a].cap;
        b->next_level = rate[a].bound == INFINITY ? b->level : rate[a].level;
    }
    return set->n > 0;
}

static void remember(esp_sim_t *sim, esp_i_set_t *set)
{
    if (set->n > 0 || 2 * sim->n_sets == ESP_I_SET_SLOTS ||
        sim->n_rates + sim->n_active > ESP_I_RATES)
        return;
    esp_i_rate_t *rate = &sim->rate[sim->n_rates];
    for (int32_t a = 0; a < sim->n_active; ++a) {
        const esp_i_bundle_t *b = &sim->bundle[sim->active[a]];
        double bound = b->n_uses > 0 ? b->bound : INFINITY;
        if (!is_slowed(b, bound))
            return;
        rate[a] = (esp_i_rate_t){b->cap, b->next_level, bound, sim->active[a], b->n};
    }
    *set = (esp_i_set_t){sim->n_rates, sim->n_active};
    sim->n_rates += sim->n_active;
    sim->n_sets++;
}

static void set_rates(esp_sim_t *sim, esp_i_bundle_t *b)
{
    const esp_i_flow_t *flow = sim->flow + b->first_flow;
    bool changed = false;
    if (b->n_slow > 0 && b->next_level != b->level) {
        serve(sim, b);
        changed = true;
    }
    b->level = b->next_level;
    for (int32_t i = b->n_slow; i < b->n; ++i) {
        if (flow[i].full > b->cap) {
            slow_down(sim, b, i);
            changed = true;
        }
    }
    if (b->n_slow > 0 && b->cap >= b->least_full)
        changed |= speed_up(sim, b);
    if (changed)
        find_finish(sim, b);
}

void esp_i_fair_solve(esp_sim_t *sim)
{
    if (!sim->flows_changed)
        return;
    sim->flows_changed = false;
    esp_i_set_t *set = sim->n_active < FEW ? NULL : find_set(sim);
    if (!set || !recall(sim, set)) {
        fill(sim);
        if (set)
            remember(sim, set);
    }
    for (int32_t a = 0; a < sim->n_active; ++a)
        set_rates(sim, &sim->bundle[sim->active[a]]);
    find_next(sim);
}
