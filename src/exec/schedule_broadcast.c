/*
 * Broadcast: those who lack the tensor get it from those who have it. `missing` are the former, in
 * the order of the circle; in each of their nodes a head hands it out, which is a holder in that
 * node, or the first device that lacks it, fed by the holder with the best route.
 */
#include "exec/schedule.h"

typedef struct hop {
    int32_t round, from, to;
} hop_t;

typedef struct broadcast {
    esp_i_circle_t missing;
    int32_t *head, *feed; /* per node; equal: a holder */
    hop_t *hop;
    int32_t n_hops;
} broadcast_t;

int32_t esp_i_source_of(const esp_i_move_t *m, int32_t mesh, const int32_t *uses, int32_t device)
{
    const esp_cluster_t *cluster = m->d->cluster;
    const int32_t first = m->d->mesh_offset[mesh], n = m->d->mesh_offset[mesh + 1] - first;
    int32_t best = 0;
    double best_width = -1;
    int64_t best_ns = 0;
    for (int32_t k = 0; k < n; k++) {
        const int32_t from = m->d->mesh_device[first + k];
        const double width = esp_cluster_route_bytes_per_s(cluster, from, device) / (uses[k] + 1);
        const int64_t ns = esp_cluster_route_latency_ns(cluster, from, device);
        if (width > best_width || (width == best_width && ns < best_ns)) {
            best = k;
            best_width = width;
            best_ns = ns;
        }
    }
    return best;
}

static int32_t holder_in(const esp_i_move_t *m, int32_t node)
{
    for (int32_t i = m->d->mesh_offset[m->from]; i < m->d->mesh_offset[m->from + 1]; i++)
        if (m->d->cluster->device_node[m->d->mesh_device[i]] == node)
            return m->d->mesh_device[i];
    return ESP_NONE;
}

static void heads_choose(esp_i_move_t *m, broadcast_t *b, int32_t *uses)
{
    for (int32_t k = 0; k < b->missing.n_nodes; k++) {
        const int32_t entry = b->missing.device[b->missing.offset[k]];
        const int32_t holder = holder_in(m, m->d->cluster->device_node[entry]);
        b->head[k] = b->feed[k] = holder;
        if (holder != ESP_NONE)
            continue;
        const int32_t source = esp_i_source_of(m, m->from, uses, entry);
        uses[source]++;
        b->head[k] = entry;
        b->feed[k] = m->d->mesh_device[m->d->mesh_offset[m->from] + source];
    }
}

static void hop_add(broadcast_t *b, int32_t round, int32_t from, int32_t to)
{
    if (from != to)
        b->hop[b->n_hops++] = (hop_t){round, from, to};
}

static void star_hops(broadcast_t *b)
{
    const esp_i_circle_t *missing = &b->missing;
    for (int32_t k = 0; k < missing->n_nodes; k++)
        hop_add(b, 0, b->feed[k], b->head[k]);
    for (int32_t k = 0; k < missing->n_nodes; k++)
        for (int32_t i = missing->offset[k]; i < missing->offset[k + 1]; i++)
            hop_add(b, 1, b->head[k], missing->device[i]);
}

/* Through each node that has a holder; through all other nodes, one after the other. */
static void chain_hops(broadcast_t *b)
{
    const esp_i_circle_t *missing = &b->missing;
    int32_t tail = ESP_NONE;
    for (int32_t k = 0; k < missing->n_nodes; k++) {
        const bool local = b->feed[k] == b->head[k];
        int32_t last = local || tail == ESP_NONE ? b->feed[k] : tail;
        for (int32_t i = missing->offset[k]; i < missing->offset[k + 1]; i++) {
            hop_add(b, 0, last, missing->device[i]);
            last = missing->device[i];
        }
        tail = local ? tail : last;
    }
}

/* Round r of a binomial tree over (root, list[0], list[1], ...): members [0, 2^r) send on. */
static void tree_hops(broadcast_t *b, int32_t round, int32_t distance, int32_t root, int32_t n,
                      const int32_t *list)
{
    for (int32_t k = 0; k < distance && k + distance <= n; k++)
        hop_add(b, round, k == 0 ? root : list[k - 1], list[k + distance - 1]);
}

/* Over the heads of nodes without holder, then inside all nodes. */
static void trees_hops(esp_i_move_t *m, broadcast_t *b)
{
    const esp_i_circle_t *missing = &b->missing;
    int32_t *entry = esp_i_move_alloc(m, missing->n_nodes, sizeof *entry);
    int32_t n = 0, root = ESP_NONE, round = 0;
    for (int32_t k = 0; entry && k < missing->n_nodes; k++) {
        if (b->feed[k] == b->head[k])
            continue;
        root = root == ESP_NONE ? b->feed[k] : root;
        entry[n++] = b->head[k];
    }
    for (int32_t distance = 1; distance <= n; distance *= 2)
        tree_hops(b, round++, distance, root, n, entry);
    for (int32_t distance = 1; distance <= missing->n; distance *= 2, round++)
        for (int32_t k = 0; k < missing->n_nodes; k++) {
            const int32_t from = missing->offset[k] + (b->feed[k] != b->head[k]);
            tree_hops(b, round, distance, b->head[k], missing->offset[k + 1] - from,
                      missing->device + from);
        }
}

/* Rows that this device sends from: holders have the tensor at the source. */
static const esp_i_rows_t *origin(const esp_i_move_t *m)
{
    return m->source ? m->source : m->target;
}

/* Hops are in the order of rounds: each is a stage. */
static void rounds(esp_i_move_t *m, const broadcast_t *b, esp_i_span_t span)
{
    for (int32_t i = 0; i < b->n_hops;) {
        const int32_t round = b->hop[i].round;
        esp_i_stage_begin(m);
        for (; i < b->n_hops && b->hop[i].round == round; i++) {
            if (b->hop[i].from == m->me)
                esp_i_send(m, b->hop[i].to, span, origin(m));
            else if (b->hop[i].to == m->me)
                esp_i_receive(m, b->hop[i].from, span, m->target);
        }
        esp_i_stage_end(m);
    }
}

static void pipelined(esp_i_move_t *m, const broadcast_t *b, esp_i_span_t span)
{
    int32_t *down = esp_i_move_alloc(m, b->n_hops, sizeof *down);
    esp_i_link_t link = {.up = ESP_NONE, .down = down};
    for (int32_t i = 0; down && i < b->n_hops; i++) {
        if (b->hop[i].to == m->me)
            link.up = b->hop[i].from;
        if (b->hop[i].from == m->me)
            down[link.n_down++] = b->hop[i].to;
    }
    if (link.up != ESP_NONE || link.n_down > 0)
        esp_i_chain(m, &link, span, origin(m));
}

static bool broadcast_make(esp_i_move_t *m, broadcast_t *b)
{
    const esp_deployment_t *d = m->d;
    const int32_t first = d->mesh_offset[m->to], n = d->mesh_offset[m->to + 1] - first;
    const int32_t n_from = d->mesh_offset[m->from + 1] - d->mesh_offset[m->from];
    int32_t *list = esp_i_move_alloc(m, n, sizeof *list), n_list = 0;
    int32_t *uses = esp_i_move_alloc(m, n_from, sizeof *uses);
    b->head = esp_i_move_alloc(m, n, sizeof *b->head);
    b->feed = esp_i_move_alloc(m, n, sizeof *b->feed);
    b->hop = esp_i_move_alloc(m, 2 * (int64_t)n + 1, sizeof *b->hop);
    if (!list || !uses || !b->head || !b->feed || !b->hop)
        return false;
    for (int32_t k = 0; k < n; k++)
        if (esp_i_mesh_index(d, m->from, d->mesh_device[first + k]) == ESP_NONE)
            list[n_list++] = d->mesh_device[first + k];
    if (!esp_i_circle_make(m, n_list, list, &b->missing))
        return false;
    heads_choose(m, b, uses);
    return true;
}

void esp_i_schedule_broadcast(esp_i_move_t *m)
{
    broadcast_t b = {0};
    if (!broadcast_make(m, &b))
        return;
    const esp_i_span_t span = esp_i_span_of(m, origin(m));
    if (m->source && m->target) { /* mostly the same memory: no work */
        esp_i_stage_begin(m);
        esp_i_copy(m, span, m->source, m->target);
        esp_i_stage_end(m);
    }
    if (m->algorithm == ESP_ALGORITHM_RING) {
        chain_hops(&b);
        pipelined(m, &b, span);
        return;
    }
    if (m->algorithm == ESP_ALGORITHM_TREE)
        trees_hops(m, &b);
    else
        star_hops(&b);
    rounds(m, &b, span);
}
