#include "naive_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum state { WAITING, LATENCY, FLOWING, RUNNING, DONE } state_t;

typedef struct instance {
    int32_t task, step;
    state_t state;
    int64_t start, end; /* end: of latency or run */
    int64_t called;     /* start, but that exclusive links may make it wait */
    double left, speed, full;
    int64_t since;
    int32_t turn; /* fifo: when it became ready */
} instance_t;

typedef struct naive {
    const esp_deployment_t *d;
    esp_sim_opts_t opts;
    const int64_t *ns;
    int32_t steps, n;
    instance_t *all; /* step after step, by position */
    int64_t *link_free;
    int64_t now;
    int64_t *owed; /* per class: compute time that movements took, for its next task */
    int32_t turns;
    int64_t *peak;
} naive_t;

static instance_t *find(const naive_t *s, int32_t task, int32_t step)
{
    return &s->all[step * s->d->n_tasks + s->d->position[task]];
}

static const esp_pattern_t *pattern_of(const naive_t *s, const instance_t *i)
{
    return s->d->comm_pattern[s->d->task_comm[i->task]];
}

static bool is_move(const naive_t *s, const instance_t *i)
{
    return s->d->task_comm[i->task] >= 0;
}

static bool is_collective(const naive_t *s, const instance_t *i)
{
    return is_move(s, i) && s->d->comm_collective[s->d->task_comm[i->task]];
}

static bool takes_part(const naive_t *s, const instance_t *i, int32_t k)
{
    int32_t comm = s->d->task_comm[i->task];
    for (int32_t c = s->d->comm_class_offset[comm]; c < s->d->comm_class_offset[comm + 1]; ++c)
        if (s->d->comm_class[c] == k)
            return true;
    return false;
}

static bool is_ready(const naive_t *s, const instance_t *i)
{
    const esp_deployment_t *d = s->d;
    for (int32_t t = 0; t < d->n_tasks; ++t)
        for (int32_t e = d->successor_offset[t]; e < d->successor_offset[t + 1]; ++e)
            if (d->successor[e] == i->task && find(s, t, i->step)->state != DONE)
                return false;
    for (int32_t e = 0; i->step > 0 && e < d->n_cross; ++e)
        if (d->cross_after[e] == i->task && find(s, d->cross_before[e], i->step - 1)->state != DONE)
            return false;
    return true;
}

/* ---- memory: what is alive now, from scratch ------------------------------------------------- */

static bool uses(const int32_t *offset, const int32_t *buffer, int32_t task, const int32_t *root,
                 int32_t wanted)
{
    for (int32_t i = offset[task]; i < offset[task + 1]; ++i)
        if (buffer[i] >= 0 && root[buffer[i]] == wanted)
            return true;
    return false;
}

static bool has_started(const naive_t *s, const instance_t *i)
{
    return i->state != WAITING && i->start <= s->now;
}

static int64_t live_buffers(const naive_t *s, int32_t k)
{
    const esp_deployment_t *d = s->d;
    int64_t live = 0;
    for (int32_t b = 0; b < d->n_buffers; ++b) {
        if (d->buffer_class[b] != k || d->buffer_root[b] != b || d->buffer_resident[b])
            continue;
        bool written = false, wanted = false;
        for (int32_t t = 0; t < d->n_tasks; ++t) {
            const instance_t *i = find(s, t, s->steps - 1);
            bool writes = uses(d->write_offset, d->write_buffer, t, d->buffer_root, b);
            written |= writes && has_started(s, i);
            wanted |= i->state != DONE &&
                      (writes || uses(d->read_offset, d->read_buffer, t, d->buffer_root, b));
        }
        live += written && wanted ? d->buffer_bytes[b] : 0;
    }
    return live;
}

/* Of the workspace of an op, what the first device of the class needs for its part of the batch. */
static int64_t workspace(const esp_deployment_t *d, int32_t task)
{
    if (d->task_kind[task] != ESP_TASK_COMPUTE)
        return 0;
    double bytes = d->cost->op_workspace_bytes[d->task_op[task]] / d->micro_batches;
    int32_t device = d->class_device[d->class_offset[d->task_class[task]]];
    if (d->task_mode[task] == ESP_MODE_BATCH && d->write_offset[task] < d->write_offset[task + 1]) {
        int32_t mesh = d->value_mesh[d->buffer_value[d->write_buffer[d->write_offset[task]]]];
        double units = 0, own = 0;
        for (int32_t i = d->mesh_offset[mesh]; i < d->mesh_offset[mesh + 1]; ++i) {
            units += (double)d->mesh_units[i];
            own += d->mesh_device[i] == device ? (double)d->mesh_units[i] : 0;
        }
        bytes *= own / units;
    }
    return (int64_t)ceil(bytes + d->cost->op_workspace_whole_bytes[d->task_op[task]] - 1e-6);
}

static void note_memory(naive_t *s)
{
    const esp_deployment_t *d = s->d;
    for (int32_t k = 0; k < d->n_classes; ++k) {
        int64_t live = d->class_resident_bytes[k] + live_buffers(s, k);
        for (int32_t t = 0; t < d->n_tasks; ++t) {
            const instance_t *i = find(s, t, s->steps - 1);
            if (!has_started(s, i) || i->state == DONE)
                continue;
            if (!is_move(s, i) && d->task_class[t] == k)
                live += workspace(d, t);
            else if (is_move(s, i) && takes_part(s, i, k))
                live += (int64_t)ceil(pattern_of(s, i)->staging *
                                      (double)d->comm_bytes[d->task_comm[t]]);
        }
        s->peak[k] = live > s->peak[k] ? live : s->peak[k];
    }
}

/* ---- fair links
 * ---------------------------------------------------------------------------------- */

static double tight_load(const esp_cluster_t *cluster, const esp_pattern_t *p)
{
    int32_t best = 0;
    for (int32_t i = 1; i < p->n_links; ++i)
        if (p->load[i] / cluster->link_bytes_per_s[p->link[i]] >
            p->load[best] / cluster->link_bytes_per_s[p->link[best]])
            best = i;
    return p->n_links > 0 ? p->load[best] : 0;
}

static double load_on(const esp_pattern_t *p, int32_t link)
{
    for (int32_t i = 0; i < p->n_links; ++i)
        if (p->link[i] == link)
            return p->load[i];
    return 0;
}

/* The rate that the open movements on a link can have; *users_out: movements on it in all. */
static long double link_level(const esp_cluster_t *cluster, int32_t n, const naive_flow_t *flows,
                              const bool *fixed, int32_t link, int32_t *users_out)
{
    long double room = (long double)cluster->link_bytes_per_s[link] * 1e-9L, weight = 0;
    int32_t users = 0, open = 0;
    for (int32_t i = 0; i < n; ++i) {
        double load = load_on(flows[i].pattern, link);
        if (!(load > 0))
            continue;
        long double share = (long double)load / tight_load(cluster, flows[i].pattern);
        users++;
        if (fixed[i]) {
            room -= share * flows[i].speed * flows[i].full;
        } else {
            weight += share;
            open++;
        }
    }
    *users_out = users;
    return users > 1 && open > 0 ? fmaxl(room, 0) / weight : INFINITY;
}

void naive_share(const esp_cluster_t *cluster, int32_t n, naive_flow_t *flows)
{
    bool *fixed = calloc((size_t)n + 1, sizeof *fixed);
    for (int32_t left = n; left > 0; --left) {
        long double lowest = INFINITY;
        int32_t which = -1, users;
        for (int32_t i = 0; i < n; ++i) {
            if (fixed[i])
                continue;
            long double level = flows[i].full;
            for (int32_t l = 0; l < flows[i].pattern->n_links; ++l)
                level = fminl(
                    level, link_level(cluster, n, flows, fixed, flows[i].pattern->link[l], &users));
            if (level < lowest) {
                lowest = level;
                which = i;
            }
        }
        fixed[which] = true;
        flows[which].speed = (double)(lowest / flows[which].full);
        if (flows[which].speed > 1 - 1e-12)
            flows[which].speed = 1;
    }
    free(fixed);
}

static void share_links(naive_t *s)
{
    naive_flow_t *flows = calloc((size_t)s->n + 1, sizeof *flows);
    instance_t **owner = calloc((size_t)s->n + 1, sizeof *owner);
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; ++i) {
        if (s->all[i].state != FLOWING)
            continue;
        owner[n] = &s->all[i];
        flows[n++] = (naive_flow_t){pattern_of(s, &s->all[i]), s->all[i].full, 0};
    }
    naive_share(s->d->cluster, n, flows);
    for (int32_t i = 0; i < n; ++i) {
        instance_t *o = owner[i];
        if (fabs(flows[i].speed - o->speed) <= 1e-13)
            continue;
        o->left = fmax(o->left - o->speed * (double)(s->now - o->since), 0);
        o->since = s->now;
        o->speed = flows[i].speed;
        o->end = s->now + (int64_t)ceil(fmax(o->left / o->speed - 1e-6, 0));
    }
    free(flows);
    free(owner);
}

/* ---- rounds
 * ---------------------------------------------------------------------------------------- */

static void begin_flow(naive_t *s, instance_t *i)
{
    const esp_pattern_t *p = pattern_of(s, i);
    int64_t work = s->ns[i->task] - esp_i_min_i64(p->latency_ns, s->ns[i->task]);
    i->state = work > 0 ? FLOWING : DONE;
    if (work <= 0)
        return;
    i->left = (double)work;
    i->since = s->now;
    i->speed = 1;
    i->end = s->now + work;
    i->full = tight_load(s->d->cluster, p) * (double)s->d->comm_bytes[s->d->task_comm[i->task]] /
              (double)work;
}

/* How long tasks of the class ran from `start` to now. */
static int64_t compute_beside(const naive_t *s, int32_t k, int64_t start)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < s->n; ++i) {
        const instance_t *o = &s->all[i];
        if (o->state == WAITING || is_move(s, o) || s->d->task_class[o->task] != k)
            continue;
        int64_t from = esp_i_max_i64(o->start, start), to = esp_i_min_i64(o->end, s->now);
        sum += esp_i_max_i64(to - from, 0);
    }
    return sum;
}

/* A movement ends: its classes owe the part of its compute time in which they computed. */
static void owe(naive_t *s, const instance_t *i)
{
    const esp_deployment_t *d = s->d;
    if (!is_move(s, i) || !d->comm_class_ns || s->opts.task_ns || s->now == i->called)
        return;
    int32_t comm = d->task_comm[i->task];
    for (int32_t c = d->comm_class_offset[comm]; c < d->comm_class_offset[comm + 1]; ++c)
        s->owed[d->comm_class[c]] +=
            (int64_t)((double)d->comm_class_ns[c] *
                      (double)compute_beside(s, d->comm_class[c], i->called) /
                      (double)(s->now - i->called));
}

static void end_what_ends(naive_t *s)
{
    for (int32_t i = 0; i < s->n; ++i) {
        instance_t *o = &s->all[i];
        if (o->state == WAITING || o->state == DONE || o->end != s->now)
            continue;
        if (o->state == LATENCY)
            begin_flow(s, o);
        else
            o->state = DONE;
        if (o->state == DONE)
            owe(s, o);
    }
}

/* An earlier task of the same stream has not ended, or fifo: one that was ready before. */
static bool stream_is_taken(const naive_t *s, const instance_t *i, int32_t k, bool collective)
{
    for (int32_t j = 0; j < s->n; ++j) {
        const instance_t *o = &s->all[j];
        bool same = collective ? is_collective(s, o) && takes_part(s, o, k)
                               : !is_move(s, o) && s->d->task_class[o->task] == k;
        if (!same || o == i || o->state == DONE)
            continue;
        if (o->state != WAITING)
            return true;
        if (s->opts.fifo && !collective ? o->turn >= 0 && o->turn < i->turn : o < i)
            return true;
    }
    return false;
}

static bool may_start(const naive_t *s, const instance_t *i)
{
    if (i->state != WAITING || !is_ready(s, i))
        return false;
    if (!is_move(s, i))
        return !stream_is_taken(s, i, s->d->task_class[i->task], false);
    for (int32_t k = 0; is_collective(s, i) && k < s->d->n_classes; ++k)
        if (takes_part(s, i, k) && stream_is_taken(s, i, k, true))
            return false;
    return true;
}

static void start(naive_t *s, instance_t *i)
{
    i->start = i->called = s->now;
    i->state = RUNNING;
    if (is_move(s, i)) {
        const esp_pattern_t *p = pattern_of(s, i);
        for (int32_t l = 0; s->opts.links == ESP_LINK_EXCLUSIVE && l < p->n_links; ++l)
            i->start = esp_i_max_i64(i->start, s->link_free[p->link[l]]);
        i->end = i->start + s->ns[i->task];
        for (int32_t l = 0; s->opts.links == ESP_LINK_EXCLUSIVE && l < p->n_links; ++l)
            s->link_free[p->link[l]] = i->end;
        if (s->opts.links == ESP_LINK_FAIR) {
            i->state = LATENCY;
            i->end = s->now + esp_i_min_i64(p->latency_ns, s->ns[i->task]);
        }
    } else {
        int64_t *owed = &s->owed[s->d->task_class[i->task]];
        i->end = s->now + s->ns[i->task] + *owed;
        *owed = 0;
    }
}

/* Everything that may start, decided before any starts, in the order (position, step). */
static void start_what_may(naive_t *s)
{
    instance_t **list = calloc((size_t)s->n + 1, sizeof *list);
    int32_t n = 0;
    for (int32_t p = 0; p < s->d->n_tasks; ++p) {
        for (int32_t k = 0; k < s->steps; ++k) {
            instance_t *i = &s->all[k * s->d->n_tasks + p];
            if (i->state == WAITING && i->turn < 0 && is_ready(s, i))
                i->turn = s->turns++;
        }
    }
    for (int32_t p = 0; p < s->d->n_tasks; ++p)
        for (int32_t k = 0; k < s->steps; ++k)
            if (may_start(s, &s->all[k * s->d->n_tasks + p]))
                list[n++] = &s->all[k * s->d->n_tasks + p];
    for (int32_t i = 0; i < n; ++i)
        start(s, list[i]);
    free(list);
}

static bool next_instant(naive_t *s)
{
    int64_t next = INT64_MAX;
    for (int32_t i = 0; i < s->n; ++i)
        if (s->all[i].state != WAITING && s->all[i].state != DONE) {
            next = esp_i_min_i64(next, s->all[i].end);
            if (s->all[i].start > s->now) /* memory of a committed movement */
                next = esp_i_min_i64(next, s->all[i].start);
        }
    if (next == INT64_MAX)
        return false;
    s->now = next;
    return true;
}

static naive_t begin(const esp_deployment_t *d, const esp_sim_opts_t *opts)
{
    naive_t s = {.d = d, .opts = *opts, .ns = opts->task_ns ? opts->task_ns : d->task_ns};
    s.steps = opts->barrier ? 1 : opts->steps;
    s.n = s.steps * d->n_tasks;
    s.all = calloc((size_t)s.n + 1, sizeof *s.all);
    s.link_free = calloc((size_t)d->cluster->n_links + 1, sizeof *s.link_free);
    s.peak = calloc((size_t)d->n_classes + 1, sizeof *s.peak);
    s.owed = calloc((size_t)d->n_classes + 1, sizeof *s.owed);
    for (int32_t k = 0; k < s.steps; ++k)
        for (int32_t p = 0; p < d->n_tasks; ++p)
            s.all[k * d->n_tasks + p] = (instance_t){.task = d->order[p], .step = k, .turn = -1};
    return s;
}

/* Time that one step takes of a link, or (link < 0) of one stream of a class. */
static double step_use(const naive_t *s, int32_t link, int32_t class_, bool collective)
{
    const esp_deployment_t *d = s->d;
    double use = 0;
    for (int32_t t = 0; t < d->n_tasks; ++t) {
        int32_t comm = d->task_comm[t];
        if (comm < 0 && link < 0 && !collective && d->task_class[t] == class_)
            use += (double)s->ns[t];
        for (int32_t i = comm < 0 ? 0 : d->comm_class_offset[comm];
             comm >= 0 && link < 0 && collective && i < d->comm_class_offset[comm + 1]; ++i)
            if (d->comm_collective[comm] && d->comm_class[i] == class_)
                use += (double)s->ns[t];
        for (int32_t i = 0; comm >= 0 && link >= 0 && i < d->comm_pattern[comm]->n_links; ++i)
            if (d->comm_pattern[comm]->link[i] == link)
                use += s->opts.links == ESP_LINK_EXCLUSIVE
                           ? (double)s->ns[t]
                           : (double)d->comm_bytes[comm] * d->comm_pattern[comm]->load[i] /
                                 d->cluster->link_bytes_per_s[link] * 1e9;
    }
    return use;
}

static int64_t least_period(const naive_t *s)
{
    double most = 0;
    for (int32_t c = 0; c < s->d->n_classes; ++c)
        most = fmax(most, fmax(step_use(s, -1, c, false), step_use(s, -1, c, true)));
    bool links = !s->opts.task_ns && s->opts.links != ESP_LINK_FREE;
    for (int32_t link = 0; links && link < s->d->cluster->n_links; ++link)
        most = fmax(most, step_use(s, link, -1, false));
    return (int64_t)most;
}

static naive_result_t finish(const naive_t *s)
{
    size_t n = (size_t)s->d->n_tasks + 1;
    naive_result_t r = {.peak_bytes = s->peak};
    r.start_ns = calloc(n, sizeof *r.start_ns);
    r.end_ns = calloc(n, sizeof *r.end_ns);
    int64_t end[ESP_SIM_STEPS_MAX] = {0}, first = INT64_MAX;
    for (int32_t i = 0; i < s->n; ++i) {
        r.deadlock |= s->all[i].state != DONE;
        end[s->all[i].step] = esp_i_max_i64(end[s->all[i].step], s->all[i].end);
        if (s->all[i].step == s->steps - 1)
            first = esp_i_min_i64(first, s->all[i].start);
    }
    for (int32_t t = 0; t < s->d->n_tasks; ++t) {
        r.start_ns[t] = find(s, t, s->steps - 1)->start - first;
        r.end_ns[t] = find(s, t, s->steps - 1)->end - first;
    }
    r.makespan_ns = end[0];
    r.step_time_ns = end[s->steps - 1];
    if (s->steps > 1)
        r.step_time_ns = esp_i_max_i64(r.step_time_ns - end[s->steps - 2], least_period(s));
    return r;
}

naive_result_t naive_run(const esp_deployment_t *d, const esp_sim_opts_t *opts)
{
    naive_t s = begin(d, opts);
    do {
        end_what_ends(&s);
        start_what_may(&s);
        note_memory(&s);
        if (opts->links == ESP_LINK_FAIR)
            share_links(&s);
    } while (next_instant(&s));
    naive_result_t result = finish(&s);
    free(s.all);
    free(s.link_free);
    free(s.owed);
    return result;
}

void naive_free(naive_result_t *result)
{
    free(result->start_ns);
    free(result->end_ns);
    free(result->peak_bytes);
}
