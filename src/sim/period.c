/*
 * A step cannot repeat faster than its busiest resource allows: compute streams, collective
 * streams, links. The last of the simulated steps has no successor that competes for links, so the
 * difference of the last two ends alone may be too short where transfers of one step run into the
 * next.
 */
#include "sim/sim.h"

#include <string.h>

static void add_links(esp_sim_t *sim, int32_t comm, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    const esp_pattern_t *pattern = d->comm_pattern[comm];
    bool exclusive = sim->opts.links == ESP_LINK_EXCLUSIVE;
    double bytes = (double)d->comm_bytes[comm];
    for (int32_t i = 0; i < pattern->n_links; ++i) {
        int32_t link = pattern->link[i];
        sim->link_busy_ns[link] +=
            exclusive ? (double)sim->ns[task]
                      : bytes * pattern->load[i] / d->cluster->link_bytes_per_s[link] * 1e9;
    }
}

static void add_classes(esp_sim_t *sim, int32_t comm, int32_t task)
{
    const esp_deployment_t *d = sim->d;
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; ++i)
        if (d->comm_collective[comm])
            sim->collective_ns[d->comm_class[i]] += sim->ns[task];
}

int64_t esp_i_least_period(esp_sim_t *sim)
{
    const esp_deployment_t *d = sim->d;
    int64_t least = 0;
    double busiest = 0;
    memset(sim->collective_ns, 0, (size_t)d->n_classes * sizeof *sim->collective_ns);
    memset(sim->link_busy_ns, 0, (size_t)d->cluster->n_links * sizeof *sim->link_busy_ns);
    for (int32_t i = 0; i < sim->n_moves; ++i) {
        int32_t t = sim->move[i];
        add_classes(sim, d->task_comm[t], t);
        /* a measured movement says nothing of each of its links */
        if (!sim->opts.task_ns && sim->opts.links != ESP_LINK_FREE)
            add_links(sim, d->task_comm[t], t);
    }
    for (int32_t c = 0; c < d->n_classes; ++c) {
        least = esp_i_max_i64(least, sim->busy_ns[c]);
        least = esp_i_max_i64(least, sim->collective_ns[c]);
    }
    for (int32_t link = 0; link < d->cluster->n_links; ++link)
        busiest = sim->link_busy_ns[link] > busiest ? sim->link_busy_ns[link] : busiest;
    return esp_i_max_i64(least, (int64_t)busiest);
}
