/* Movements: the ledger of bytes per link, and the entry point that picks the builder. */
#include "cost/pattern.h"

#include <math.h>

static const char *const comm_names[] = {
#define COMM_NAME(name, text) [ESP_COMM_##name] = text,
    ESP_COMM_MAP(COMM_NAME)
#undef COMM_NAME
};
_Static_assert(sizeof comm_names / sizeof *comm_names == ESP_COMM_COUNT, "a name per movement");

const char *esp_comm_name(esp_comm_t comm)
{
    return (uint32_t)comm < ESP_COMM_COUNT ? comm_names[comm] : "?";
}

/* ---- ledger ------------------------------------------------------------------------------ */

esp_status_t esp_i_ledger_init(esp_i_ledger_t *ledger, const esp_cluster_t *cluster,
                               const esp_allocator_t *alloc)
{
    *ledger = (esp_i_ledger_t){.cluster = cluster, .alloc = *alloc};
    int64_t links = cluster->n_links + 1;
    ledger->load = esp_i_alloc_array(alloc, links, sizeof *ledger->load);
    ledger->stage = esp_i_alloc_array(alloc, links, sizeof *ledger->stage);
    ledger->step = esp_i_alloc_array(alloc, links, sizeof *ledger->step);
    ledger->touched = esp_i_alloc_array(alloc, links, sizeof *ledger->touched);
    if (ledger->load && ledger->stage && ledger->step && ledger->touched)
        return ESP_OK;
    esp_i_ledger_fini(ledger);
    return ESP_ERR_NOMEM;
}

void esp_i_ledger_fini(esp_i_ledger_t *ledger)
{
    esp_i_free(&ledger->alloc, ledger->load);
    esp_i_free(&ledger->alloc, ledger->stage);
    esp_i_free(&ledger->alloc, ledger->step);
    esp_i_free(&ledger->alloc, ledger->touched);
}

void esp_i_ledger_hop(esp_i_ledger_t *ledger, int32_t src, int32_t dst, double bytes)
{
    if (src == dst || !(bytes > 0))
        return;
    const int32_t *route;
    int32_t hops = esp_cluster_route(ledger->cluster, src, dst, &route);
    int64_t latency_ns = 0;
    for (int32_t i = 0; i < hops; ++i) {
        if (ledger->stage[route[i]] == 0)
            ledger->touched[ledger->n_touched++] = route[i];
        ledger->stage[route[i]] += bytes;
        latency_ns += ledger->cluster->link_latency_ns[route[i]];
    }
    ledger->hop_latency_ns = esp_i_max_i64(ledger->hop_latency_ns, latency_ns);
}

void esp_i_ledger_stage(esp_i_ledger_t *ledger, int32_t steps, double floor_ns_per_byte)
{
    if (ledger->n_touched == 0)
        return;
    double slowest = floor_ns_per_byte;
    for (int32_t i = 0; i < ledger->n_touched; ++i) {
        int32_t link = ledger->touched[i];
        slowest =
            fmax(slowest, ledger->stage[link] * 1e9 / ledger->cluster->link_bytes_per_s[link]);
        ledger->load[link] += ledger->stage[link];
        ledger->stage[link] = 0;
    }
    ledger->ns_per_byte += slowest;
    ledger->latency_ns += steps * (ledger->hop_latency_ns + ESP_I_STEP_NS);
    ledger->n_touched = 0;
    ledger->hop_latency_ns = 0;
}

esp_status_t esp_i_ledger_finish(esp_i_ledger_t *ledger, esp_comm_t comm, esp_algorithm_t algorithm,
                                 esp_pattern_t *pattern_out)
{
    const esp_cluster_t *cluster = ledger->cluster;
    int32_t n = 0;
    for (int32_t link = 0; link < cluster->n_links; ++link)
        n += ledger->load[link] > 0;
    esp_pattern_t pattern = {.comm = comm, .algorithm = algorithm};
    if (n > 0) {
        /* one block: loads, then ids */
        double *load = esp_i_alloc_array(&ledger->alloc, n, sizeof(double) + sizeof(int32_t));
        if (!load)
            return ESP_ERR_NOMEM;
        int32_t *id = (int32_t *)(load + n);
        for (int32_t link = 0; link < cluster->n_links; ++link) {
            if (!(ledger->load[link] > 0))
                continue;
            id[pattern.n_links] = link;
            load[pattern.n_links++] = ledger->load[link];
            pattern.total_load += ledger->load[link];
            ledger->load[link] = 0;
        }
        pattern.link = id;
        pattern.load = load;
        pattern.ns_per_byte = ledger->ns_per_byte;
        pattern.latency_ns = ledger->latency_ns;
        pattern.staging = ledger->staging;
    }
    ledger->ns_per_byte = ledger->staging = 0;
    ledger->latency_ns = 0;
    *pattern_out = pattern;
    return ESP_OK;
}

/* ---- places ------------------------------------------------------------------------------ */

int32_t esp_i_place_find(const esp_place_t *place, int32_t device)
{
    int32_t low = 0, high = place->n;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (place->device[mid] < device)
            low = mid + 1;
        else
            high = mid;
    }
    return low < place->n && place->device[low] == device ? low : -1;
}

int32_t esp_i_place_source(const esp_cluster_t *cluster, const esp_place_t *place,
                           const int32_t *uses, int32_t dst)
{
    int32_t best = -1;
    double best_width = 0;
    int64_t best_latency = 0;
    for (int32_t k = 0; k < place->n; ++k) {
        double width = esp_cluster_route_bytes_per_s(cluster, place->device[k], dst) /
                       ((uses ? uses[k] : 0) + 1);
        int64_t latency = esp_cluster_route_latency_ns(cluster, place->device[k], dst);
        if (best < 0 || width > best_width || (width == best_width && latency < best_latency)) {
            best = k;
            best_width = width;
            best_latency = latency;
        }
    }
    return best;
}

static bool place_is_valid(const esp_cluster_t *cluster, const esp_place_t *place)
{
    if (place->n < 1 || place->n > cluster->n_devices || !place->device)
        return false;
    for (int32_t k = 0; k < place->n; ++k) {
        int32_t least = k > 0 ? place->device[k - 1] + 1 : 0;
        if (place->device[k] < least || place->device[k] >= cluster->n_devices)
            return false;
    }
    return true;
}

/* ---- entry ------------------------------------------------------------------------------- */

esp_status_t esp_i_find_add(esp_i_find_t *find, esp_algorithm_t algorithm)
{
    esp_assert(find->count < ESP_PATTERN_MAX);
    ESP_TRY(esp_i_ledger_finish(&find->ledger, find->comm, algorithm, &find->out[find->count]));
    find->count++;
    return ESP_OK;
}

static esp_status_t build(esp_i_find_t *find)
{
    switch (find->comm) {
    case ESP_COMM_ALLREDUCE:
    case ESP_COMM_REDUCE_SCATTER:
    case ESP_COMM_ALL_GATHER:
        return esp_i_find_collective(find);
    case ESP_COMM_REDUCE:
        return esp_i_find_reduce(find);
    case ESP_COMM_BROADCAST:
        return esp_i_find_broadcast(find);
    case ESP_COMM_GATHER:
        return esp_i_find_gather(find);
    case ESP_COMM_EXCHANGE:
    case ESP_COMM_SCATTER:
    case ESP_COMM_ALL_TO_ALL:
        return esp_i_find_pieces(find);
    case ESP_COMM_COUNT:
        break;
    }
    return ESP_ERR_ARGUMENT;
}

static bool is_collective(esp_comm_t comm)
{
    return comm == ESP_COMM_ALLREDUCE || comm == ESP_COMM_REDUCE_SCATTER ||
           comm == ESP_COMM_ALL_GATHER;
}

esp_status_t esp_pattern_find(const esp_cluster_t *cluster, esp_comm_t comm,
                              const esp_place_t *from, const esp_place_t *to,
                              const esp_allocator_t *alloc,
                              esp_pattern_t patterns_out[ESP_PATTERN_MAX], int32_t *count_out)
{
    if (!to && is_collective(comm))
        to = from;
    if (!from || !to || !place_is_valid(cluster, from) || !place_is_valid(cluster, to))
        return ESP_ERR_ARGUMENT;
    if (comm == ESP_COMM_REDUCE && to->n != 1)
        return ESP_ERR_ARGUMENT;
    esp_allocator_t own = esp_i_allocator(alloc);
    esp_i_find_t find = {.comm = comm, .from = from, .to = to, .out = patterns_out};
    ESP_TRY(esp_i_ledger_init(&find.ledger, cluster, &own));
    esp_status_t status = build(&find);
    esp_i_ledger_fini(&find.ledger);
    if (status != ESP_OK) {
        for (int32_t i = 0; i < find.count; ++i)
            esp_pattern_release(&patterns_out[i], &own);
        return status;
    }
    *count_out = find.count;
    return ESP_OK;
}

void esp_pattern_release(esp_pattern_t *pattern, const esp_allocator_t *alloc)
{
    if (!pattern)
        return;
    esp_allocator_t own = esp_i_allocator(alloc);
    esp_i_free(&own, (void *)(uintptr_t)pattern->load); /* the links are in the same block */
    pattern->load = NULL;
    pattern->link = NULL;
    pattern->n_links = 0;
}
