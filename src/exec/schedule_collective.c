/*
 * All-reduce, reduce-scatter and all-gather: ring, two-level, leaders, tree.
 *
 * What is added up lies in the memory of the result (all-reduce) or of the addends
 * (reduce-scatter). Each element is added up in one place and in one order, and copied from there:
 * replicas are equal bit for bit.
 */
#include "exec/schedule.h"

/* ---- ring, and two levels of rings --------------------------------------------------------------
 *
 * Two levels: device (node k, local rank j) has piece k * ranks + j. Inside a node the ring moves
 * the pieces of rank j on all nodes together; across the nodes there is a ring per local rank. The
 * ring is the case of one node.
 */
typedef struct levels {
    int32_t nodes, ranks, node, rank;
    const esp_i_circle_t *circle;
    const esp_i_span_t *piece; /* in the order of the circle */
    const esp_i_rows_t *rows;
} levels_t;

static void inside(esp_i_move_t *m, const levels_t *l, bool scatter)
{
    esp_i_span_t *piece = esp_i_move_alloc(m, l->ranks, sizeof *piece);
    for (int32_t j = 0; piece && j < l->ranks; j++)
        piece[j] = esp_i_span_join(m, l->nodes, l->piece + j, l->ranks);
    const esp_i_ring_part_t ring = {.n = l->ranks,
                                    .me = l->rank,
                                    .device = l->circle->device + l->node * l->ranks,
                                    .piece = piece};
    if (piece)
        esp_i_ring_steps(m, &ring, scatter, l->rows);
}

static void across(esp_i_move_t *m, const levels_t *l, bool scatter)
{
    esp_i_span_t *piece = esp_i_move_alloc(m, l->nodes, sizeof *piece);
    int32_t *device = esp_i_move_alloc(m, l->nodes, sizeof *device);
    if (!piece || !device)
        return;
    for (int32_t k = 0; k < l->nodes; k++) {
        piece[k] = l->piece[k * l->ranks + l->rank];
        device[k] = l->circle->device[k * l->ranks + l->rank];
    }
    const esp_i_ring_part_t ring = {.n = l->nodes, .me = l->node, .device = device, .piece = piece};
    esp_i_ring_steps(m, &ring, scatter, l->rows);
}

static void rings(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me,
                  const esp_i_span_t *piece, const esp_i_rows_t *rows)
{
    levels_t levels = {.nodes = 1, .circle = circle, .piece = piece, .rows = rows};
    if (m->algorithm == ESP_ALGORITHM_TWO_LEVEL)
        levels.nodes = circle->n_nodes;
    levels.ranks = circle->n / levels.nodes;
    levels.node = me / levels.ranks;
    levels.rank = me % levels.ranks;
    if (m->kind != ESP_COMM_ALL_GATHER) {
        inside(m, &levels, true);
        across(m, &levels, true);
    }
    if (m->kind != ESP_COMM_REDUCE_SCATTER) {
        across(m, &levels, false);
        inside(m, &levels, false);
    }
}

/* Even pieces in the order of the circle. Those of one local rank lie together. */
static void even_pieces(esp_i_move_t *m, const esp_i_circle_t *circle, esp_i_span_t span,
                        esp_i_span_t *piece_out)
{
    const int32_t nodes = m->algorithm == ESP_ALGORITHM_TWO_LEVEL ? circle->n_nodes : 1;
    const int32_t ranks = circle->n / nodes;
    esp_i_span_t *part = esp_i_move_alloc(m, circle->n, sizeof *part);
    if (!part)
        return;
    esp_i_span_cut(m, span, circle->n, part);
    for (int32_t k = 0; k < circle->n; k++)
        piece_out[k] = part[k % ranks * nodes + k / ranks];
}

/* ---- leaders: nodes of unequal size -----------------------------------------------------------
 */

/* Along the devices of a node: towards its first one, adding, or away from it. */
static void node_chain(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me, bool towards,
                       esp_i_span_t span)
{
    const int32_t node = esp_i_circle_node(circle, me);
    const int32_t before = me > circle->offset[node] ? circle->device[me - 1] : ESP_NONE;
    const int32_t after = me + 1 < circle->offset[node + 1] ? circle->device[me + 1] : ESP_NONE;
    const int32_t down = towards ? before : after;
    const esp_i_link_t link = {.up = towards ? after : before,
                               .n_down = down == ESP_NONE ? 0 : 1,
                               .down = &down,
                               .add = towards};
    esp_i_chain(m, &link, span, m->target);
}

static void leaders(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me, esp_i_span_t span)
{
    const int32_t node = esp_i_circle_node(circle, me);
    node_chain(m, circle, me, true, span);
    esp_i_span_t *piece = esp_i_move_alloc(m, circle->n_nodes, sizeof *piece);
    int32_t *device = esp_i_move_alloc(m, circle->n_nodes, sizeof *device);
    if (piece && device && me == circle->offset[node]) {
        esp_i_span_cut(m, span, circle->n_nodes, piece);
        for (int32_t k = 0; k < circle->n_nodes; k++)
            device[k] = circle->device[circle->offset[k]];
        const esp_i_ring_part_t ring = {
            .n = circle->n_nodes, .me = node, .device = device, .piece = piece};
        esp_i_ring_steps(m, &ring, true, m->target);
        esp_i_ring_steps(m, &ring, false, m->target);
    }
    node_chain(m, circle, me, false, span);
}

/* ---- tree -------------------------------------------------------------------------------------
 */

/* The whole, to or from another member, in parts that the receive buffer holds. */
static void tree_hop(esp_i_move_t *m, int32_t peer, bool send, bool add, esp_i_span_t span)
{
    esp_i_cursor_t cursor = {.span = span};
    for (int64_t left = span.elements; left > 0;) {
        const esp_i_span_t part = esp_i_take(m, &cursor, add ? m->room : left);
        if (part.elements == 0) /* no memory */
            return;
        esp_i_stage_begin(m);
        if (send) {
            esp_i_send(m, peer, part, m->target);
        } else if (add) {
            esp_i_receive_at(m, peer, part.elements, m->staging);
            esp_i_accumulate(m, part, m->target, m->staging);
        } else {
            esp_i_receive(m, peer, part, m->target);
        }
        esp_i_stage_end(m);
        left -= part.elements;
    }
}

static void tree_round(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me, int32_t distance,
                       bool up, esp_i_span_t span)
{
    const int32_t place = me % (2 * distance);
    if (place == distance)
        tree_hop(m, circle->device[me - distance], up, up, span);
    else if (place == 0 && me + distance < circle->n)
        tree_hop(m, circle->device[me + distance], !up, up, span);
}

static void tree(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me, esp_i_span_t span)
{
    int32_t distance = 1;
    for (; distance < circle->n; distance *= 2)
        tree_round(m, circle, me, distance, true, span);
    for (distance /= 2; distance >= 1; distance /= 2)
        tree_round(m, circle, me, distance, false, span);
}

/* ---- the three kinds ---------------------------------------------------------------------------
 */

static void local_copy(esp_i_move_t *m, esp_i_span_t span)
{
    esp_i_stage_begin(m);
    esp_i_copy(m, span, m->source, m->target);
    esp_i_stage_end(m);
}

static void all_reduce(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me)
{
    const esp_i_span_t span = esp_i_span_of(m, m->target);
    esp_i_span_t *piece = esp_i_move_alloc(m, circle->n, sizeof *piece);
    local_copy(m, span);
    if (m->algorithm == ESP_ALGORITHM_TREE) {
        tree(m, circle, me, span);
    } else if (m->algorithm == ESP_ALGORITHM_TWO_LEVEL && !circle->even) {
        m->adds_in_chains = true;
        leaders(m, circle, me, span);
    } else if (piece) {
        even_pieces(m, circle, span, piece);
        rings(m, circle, me, piece, m->target);
    }
}

/*
 * Reduce-scatter that leaves the addends as they are: each device sends every other its part
 * directly; one part at a time is received and added.
 */
static void pairwise(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me,
                     const esp_i_span_t *piece)
{
    const int32_t n = circle->n;
    int64_t most = 0;
    local_copy(m, piece[me]);
    for (int32_t k = 0; k < n; k++)
        most = esp_i_max_i64(most, piece[k].elements);
    for (int32_t t = 1; t < n; t++) {
        const int32_t to = (me + t) % n, from = (me + n - t) % n;
        esp_i_cursor_t out = {.span = piece[to]}, in = {.span = piece[me]};
        for (int64_t done = 0; done < most; done += m->room) {
            const esp_i_span_t comes = esp_i_take(m, &in, m->room);
            esp_i_stage_begin(m);
            esp_i_send(m, circle->device[to], esp_i_take(m, &out, m->room), m->source);
            esp_i_receive_at(m, circle->device[from], comes.elements, m->staging);
            esp_i_accumulate(m, comes, m->target, m->staging);
            esp_i_stage_end(m);
        }
    }
}

static void by_pieces(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me)
{
    const bool scatter = m->kind == ESP_COMM_REDUCE_SCATTER;
    esp_i_span_t *piece = esp_i_move_alloc(m, circle->n, sizeof *piece);
    for (int32_t k = 0; piece && k < circle->n; k++)
        piece[k] = esp_i_span_of(m, esp_i_rows_on(m, scatter ? m->dst : m->src, circle->number[k]));
    if (!piece)
        return;
    if (scatter && !m->private_sources) {
        pairwise(m, circle, me, piece);
        return;
    }
    if (!scatter)
        local_copy(m, piece[me]);
    rings(m, circle, me, piece, scatter ? m->source : m->target);
    if (scatter)
        local_copy(m, piece[me]);
}

void esp_i_schedule_collective(esp_i_move_t *m)
{
    const int32_t first = m->d->mesh_offset[m->from], n = m->d->mesh_offset[m->from + 1] - first;
    esp_i_circle_t circle;
    if (m->lists->library.used && esp_i_schedule_library(m))
        return;
    if (!esp_i_circle_make(m, n, m->d->mesh_device + first, &circle))
        return;
    const int32_t me = esp_i_circle_find(&circle, m->me);
    esp_assert(me != ESP_NONE);
    if (m->kind == ESP_COMM_ALLREDUCE)
        all_reduce(m, &circle, me);
    else
        by_pieces(m, &circle, me);
}
