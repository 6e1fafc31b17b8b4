/*
 * Reduce: all addends to one device, directly or through one leader of each other node.
 *
 * What comes is received side by side and added up at once, in the order of the circle. The first
 * to come to the root is received where the sum goes, all others in the receive buffers.
 */
#include "exec/schedule.h"

typedef struct reduce {
    esp_i_circle_t circle;
    int32_t root;
    int64_t elements;
    int32_t n_in; /* what comes to this device, in the stage in the making */
    int32_t *in;  /* devices in order; itself: its own addend */
    int64_t *src; /* of one sum */
} reduce_t;

static esp_i_span_t whole(esp_i_move_t *m)
{
    return esp_i_span_of(m, m->source ? m->source : m->target);
}

/* Place of the addends of pair p from number i of `in`; receive buffers count up from *slot. */
static int64_t slot_place(const esp_i_move_t *m, const reduce_t *r, int32_t slot, int64_t before)
{
    return m->staging + (slot * r->elements + before) * m->size;
}

/*
 * Receives from all of r->in and adds up. dst: rows of the result, where the first to come is
 * received, too; NULL: into the first receive buffer.
 */
static void gather_in(esp_i_move_t *m, reduce_t *r, const esp_i_rows_t *dst)
{
    const esp_i_span_t span = whole(m);
    const int32_t base = dst ? -1 : 0;
    int32_t slot = base;
    for (int32_t i = 0; i < r->n_in; i++) {
        if (r->in[i] == m->me)
            continue;
        if (slot < 0)
            esp_i_receive(m, r->in[i], span, dst);
        else
            esp_i_receive_at(m, r->in[i], r->elements, slot_place(m, r, slot, 0));
        slot++;
    }
    int64_t before = 0;
    for (int32_t p = 0; p < m->n_pairs && (r->n_in > 1 || r->in[0] == m->me); p++) {
        const int64_t n = (dst ? dst : m->source)[p].elements;
        slot = base;
        for (int32_t i = 0; i < r->n_in; i++) {
            if (r->in[i] == m->me)
                r->src[i] = m->source[p].place;
            else
                r->src[i] = slot < 0 ? dst[p].place : slot_place(m, r, slot, before);
            slot += r->in[i] != m->me;
        }
        esp_i_sum(m, n, dst ? dst[p].place : slot_place(m, r, 0, before), r->n_in, r->src);
        before += n;
    }
}

/* The device of a node with the widest route to the root. */
static int32_t leader_of(const esp_i_move_t *m, const reduce_t *r, int32_t node)
{
    const esp_cluster_t *cluster = m->d->cluster;
    int32_t best = r->circle.device[r->circle.offset[node]];
    for (int32_t i = r->circle.offset[node] + 1; i < r->circle.offset[node + 1]; i++)
        if (esp_cluster_route_bytes_per_s(cluster, r->circle.device[i], r->root) >
            esp_cluster_route_bytes_per_s(cluster, best, r->root))
            best = r->circle.device[i];
    return best;
}

static bool is_local(const esp_i_move_t *m, const reduce_t *r, int32_t node)
{
    const int32_t *node_of = m->d->cluster->device_node;
    return node_of[r->circle.device[r->circle.offset[node]]] == node_of[r->root];
}

/* Members of other nodes to their leaders. True: this device has the sum of several. */
static bool to_leader(esp_i_move_t *m, reduce_t *r, int32_t me)
{
    const int32_t node = me == ESP_NONE ? 0 : esp_i_circle_node(&r->circle, me);
    if (me == ESP_NONE || is_local(m, r, node))
        return false;
    const int32_t leader = leader_of(m, r, node), first = r->circle.offset[node];
    r->n_in = r->circle.offset[node + 1] - first;
    esp_i_stage_begin(m);
    if (m->me != leader) {
        esp_i_send(m, leader, whole(m), m->source);
    } else if (r->n_in > 1) {
        for (int32_t i = 0; i < r->n_in; i++)
            r->in[i] = r->circle.device[first + i];
        gather_in(m, r, NULL);
    }
    esp_i_stage_end(m);
    return m->me == leader && r->n_in > 1;
}

/* The devices that send to the root, in order; the root itself if it has an addend. */
static void senders_find(const esp_i_move_t *m, reduce_t *r)
{
    r->n_in = 0;
    for (int32_t node = 0; node < r->circle.n_nodes; node++) {
        if (m->algorithm == ESP_ALGORITHM_TWO_LEVEL && !is_local(m, r, node)) {
            r->in[r->n_in++] = leader_of(m, r, node);
            continue;
        }
        for (int32_t i = r->circle.offset[node]; i < r->circle.offset[node + 1]; i++)
            r->in[r->n_in++] = r->circle.device[i];
    }
}

void esp_i_schedule_reduce(esp_i_move_t *m)
{
    const int32_t first = m->d->mesh_offset[m->from], n = m->d->mesh_offset[m->from + 1] - first;
    reduce_t r = {.root = m->d->mesh_device[m->d->mesh_offset[m->to]]};
    r.in = esp_i_move_alloc(m, n, sizeof *r.in);
    r.src = esp_i_move_alloc(m, n, sizeof *r.src);
    if (!r.in || !r.src || !esp_i_circle_make(m, n, m->d->mesh_device + first, &r.circle))
        return;
    r.elements = whole(m).elements;
    bool summed = false;
    if (m->algorithm == ESP_ALGORITHM_TWO_LEVEL)
        summed = to_leader(m, &r, esp_i_circle_find(&r.circle, m->me));
    senders_find(m, &r);
    esp_i_stage_begin(m);
    if (m->me == r.root)
        gather_in(m, &r, m->target);
    for (int32_t i = 0; i < r.n_in && m->me != r.root; i++) {
        if (r.in[i] == m->me && summed)
            esp_i_send_at(m, r.root, r.elements, m->staging);
        else if (r.in[i] == m->me)
            esp_i_send(m, r.root, whole(m), m->source);
    }
    esp_i_stage_end(m);
}
