/* Gather, scatter, exchange and all-to-all. */
#include "exec/schedule.h"

static int32_t size_of(const esp_i_move_t *m, int32_t mesh)
{
    return m->d->mesh_offset[mesh + 1] - m->d->mesh_offset[mesh];
}

static int32_t device_of(const esp_i_move_t *m, int32_t mesh, int32_t k)
{
    return m->d->mesh_device[m->d->mesh_offset[mesh] + k];
}

/* ---- gather: all pieces to one device of each node, then along the node -----------------------
 */

/* Rows at the source on every device from position `me` of the circle to the next. */
static const esp_i_rows_t *held_by(esp_i_move_t *m, int32_t device)
{
    const int32_t k = esp_i_mesh_index(m->d, m->from, device);
    return k == ESP_NONE ? NULL : esp_i_rows_on(m, m->src, k);
}

static void entry_chain(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me)
{
    const int32_t node = esp_i_circle_node(circle, me);
    const int32_t down = me + 1 < circle->offset[node + 1] ? circle->device[me + 1] : ESP_NONE;
    const esp_i_rows_t *held = down == ESP_NONE ? NULL : held_by(m, down);
    const esp_i_link_t link = {.up = me > circle->offset[node] ? circle->device[me - 1] : ESP_NONE,
                               .n_down = down == ESP_NONE ? 0 : 1,
                               .down = &down,
                               .held = m->source,
                               .down_held = held ? &held : NULL};
    esp_i_chain(m, &link, esp_i_span_of(m, m->target), m->target);
}

static void entry_gather(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me)
{
    const esp_i_span_t own = esp_i_span_of(m, m->source);
    const bool entry = me != ESP_NONE && me == circle->offset[esp_i_circle_node(circle, me)];
    esp_i_stage_begin(m);
    for (int32_t k = 0; k < circle->n_nodes && m->source; k++)
        if (circle->device[circle->offset[k]] != m->me)
            esp_i_send(m, circle->device[circle->offset[k]], own, m->source);
    for (int32_t k = 0; k < size_of(m, m->from) && entry; k++)
        if (k != m->from_index)
            esp_i_receive(m, device_of(m, m->from, k),
                          esp_i_span_of(m, esp_i_rows_on(m, m->src, k)), m->target);
    if (m->source && m->target)
        esp_i_copy(m, own, m->source, m->target);
    esp_i_stage_end(m);
    if (me != ESP_NONE)
        entry_chain(m, circle, me);
}

/* ---- gather: every piece is dealt out over a node, whose devices gather among themselves ------
 */

/* This device's piece, to every node of the targets. */
static void deal(esp_i_move_t *m, const esp_i_circle_t *circle, esp_i_span_t *part)
{
    const esp_i_span_t own = esp_i_span_of(m, m->source);
    for (int32_t node = 0; node < circle->n_nodes; node++) {
        const int32_t first = circle->offset[node], ranks = circle->offset[node + 1] - first;
        esp_i_span_cut(m, own, ranks, part);
        for (int32_t r = 0; r < ranks; r++) {
            if (circle->device[first + r] == m->me)
                esp_i_copy(m, part[r], m->source, m->target);
            else
                esp_i_send(m, circle->device[first + r], part[r], m->source);
        }
    }
}

static void dealt_gather(esp_i_move_t *m, const esp_i_circle_t *circle, int32_t me)
{
    const int32_t n = size_of(m, m->from), node = me < 0 ? 0 : esp_i_circle_node(circle, me);
    const int32_t first = circle->offset[node], ranks = circle->offset[node + 1] - first;
    esp_i_span_t *part = esp_i_move_alloc(m, (int64_t)n * circle->n, sizeof *part);
    esp_i_span_t *piece = esp_i_move_alloc(m, ranks, sizeof *piece);
    if (!part || !piece)
        return;
    esp_i_stage_begin(m);
    if (m->source)
        deal(m, circle, part);
    for (int32_t k = 0; k < n && me != ESP_NONE; k++) {
        esp_i_span_cut(m, esp_i_span_of(m, esp_i_rows_on(m, m->src, k)), ranks, part + k * ranks);
        if (k != m->from_index)
            esp_i_receive(m, device_of(m, m->from, k), part[k * ranks + me - first], m->target);
    }
    esp_i_stage_end(m);
    if (me == ESP_NONE)
        return;
    for (int32_t r = 0; r < ranks; r++)
        piece[r] = esp_i_span_join(m, n, part + r, ranks);
    const esp_i_ring_part_t ring = {
        .n = ranks, .me = me - first, .device = circle->device + first, .piece = piece};
    esp_i_ring_steps(m, &ring, false, m->target);
}

void esp_i_schedule_gather(esp_i_move_t *m)
{
    esp_i_circle_t circle;
    if (!esp_i_circle_make(m, size_of(m, m->to), m->d->mesh_device + m->d->mesh_offset[m->to],
                           &circle))
        return;
    const int32_t me = esp_i_circle_find(&circle, m->me);
    if (m->algorithm == ESP_ALGORITHM_TWO_LEVEL)
        dealt_gather(m, &circle, me);
    else
        entry_gather(m, &circle, me);
}

/* ---- in one stage -------------------------------------------------------------------------------
 */

/* To number l of the targets from number k of the sources: the rows of the target. */
static void scatter_one(esp_i_move_t *m, int32_t k, int32_t l)
{
    const int32_t from = device_of(m, m->from, k), to = device_of(m, m->to, l);
    if (from != m->me && to != m->me)
        return;
    const esp_i_span_t span = esp_i_span_of(m, esp_i_rows_on(m, m->dst, l));
    if (from == to)
        esp_i_copy(m, span, m->source, m->target);
    else if (from == m->me)
        esp_i_send(m, to, span, m->source);
    else
        esp_i_receive(m, from, span, m->target);
}

void esp_i_schedule_scatter(esp_i_move_t *m)
{
    int32_t *uses = esp_i_move_alloc(m, size_of(m, m->from), sizeof *uses);
    esp_i_stage_begin(m);
    for (int32_t l = 0; l < size_of(m, m->to) && uses; l++) {
        const int32_t device = device_of(m, m->to, l);
        int32_t k = esp_i_mesh_index(m->d, m->from, device);
        if (k == ESP_NONE) {
            k = esp_i_source_of(m, m->from, uses, device);
            uses[k]++;
        }
        scatter_one(m, k, l);
    }
    esp_i_stage_end(m);
}

/* Each source sends each target what both have; both sides list it in the order of the tensor. */
void esp_i_schedule_exchange(esp_i_move_t *m)
{
    const esp_i_span_t had = esp_i_span_of(m, m->source), wanted = esp_i_span_of(m, m->target);
    esp_i_stage_begin(m);
    for (int32_t l = 0; l < size_of(m, m->to) && m->source; l++) {
        const esp_i_span_t span = esp_i_span_sift(m, had, esp_i_rows_on(m, m->dst, l), true);
        if (l == m->to_index)
            esp_i_copy(m, span, m->source, m->target);
        else
            esp_i_send(m, device_of(m, m->to, l), span, m->source);
    }
    for (int32_t k = 0; k < size_of(m, m->from) && m->target; k++)
        if (k != m->from_index)
            esp_i_receive(m, device_of(m, m->from, k),
                          esp_i_span_sift(m, wanted, esp_i_rows_on(m, m->src, k), true), m->target);
    esp_i_stage_end(m);
}
