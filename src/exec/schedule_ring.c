/* Rings and pipelined chains of devices. */
#include "exec/schedule.h"

/* ---- order of devices ---------------------------------------------------------------------- */

bool esp_i_circle_make(esp_i_move_t *m, int32_t n, const int32_t *device, esp_i_circle_t *out)
{
    const int32_t *node = m->d->cluster->device_node;
    esp_i_circle_t circle = {.n = n, .even = true};
    circle.device = esp_i_move_alloc(m, n, sizeof *circle.device);
    circle.number = esp_i_move_alloc(m, n, sizeof *circle.number);
    circle.offset = esp_i_move_alloc(m, (int64_t)n + 1, sizeof *circle.offset);
    if (!circle.device || !circle.number || !circle.offset)
        return false;
    for (int32_t k = 0; k < n; k++) { /* by node; devices ascend already, mostly nodes do, too */
        int32_t at = k;
        for (; at > 0 && node[circle.device[at - 1]] > node[device[k]]; at--) {
            circle.device[at] = circle.device[at - 1];
            circle.number[at] = circle.number[at - 1];
        }
        circle.device[at] = device[k];
        circle.number[at] = k;
    }
    for (int32_t k = 0; k < n; k++)
        if (k == 0 || node[circle.device[k]] != node[circle.device[k - 1]])
            circle.offset[circle.n_nodes++] = k;
    circle.offset[circle.n_nodes] = n;
    for (int32_t k = 0; k < circle.n_nodes; k++)
        if ((circle.offset[k + 1] - circle.offset[k]) * circle.n_nodes != n)
            circle.even = false;
    *out = circle;
    return true;
}

int32_t esp_i_circle_find(const esp_i_circle_t *circle, int32_t device)
{
    for (int32_t k = 0; k < circle->n; k++)
        if (circle->device[k] == device)
            return k;
    return ESP_NONE;
}

int32_t esp_i_circle_node(const esp_i_circle_t *circle, int32_t position)
{
    int32_t node = 0;
    while (circle->offset[node + 1] <= position)
        node++;
    return node;
}

/* ---- ring ---------------------------------------------------------------------------------- */

/* How often the receive buffer must be filled for the largest piece. */
static int64_t fillings(const esp_i_move_t *m, const esp_i_ring_part_t *ring)
{
    int64_t most = 0;
    for (int32_t k = 0; k < ring->n; k++)
        most = esp_i_max_i64(most, ring->piece[k].elements);
    return esp_i_ceil_div(most, m->room);
}

void esp_i_ring_steps(esp_i_move_t *m, const esp_i_ring_part_t *ring, bool scatter,
                      const esp_i_rows_t *rows)
{
    const int32_t n = ring->n, me = ring->me;
    const int32_t next = ring->device[(me + 1) % n], last = ring->device[(me + n - 1) % n];
    const int64_t steps = scatter ? fillings(m, ring) : 1;
    const int64_t elements = scatter ? m->room : INT64_MAX;
    for (int32_t t = 0; t < n - 1; t++) {
        const int32_t mine = (2 * n + me - t - (scatter ? 1 : 0)) % n;
        esp_i_cursor_t out = {.span = ring->piece[mine]};
        esp_i_cursor_t in = {.span = ring->piece[(mine + n - 1) % n]};
        for (int64_t s = 0; s < steps; s++) {
            const esp_i_span_t comes = esp_i_take(m, &in, elements);
            esp_i_stage_begin(m);
            esp_i_send(m, next, esp_i_take(m, &out, elements), rows);
            if (scatter) {
                esp_i_receive_at(m, last, comes.elements, m->staging);
                esp_i_accumulate(m, comes, rows, m->staging);
            } else {
                esp_i_receive(m, last, comes, rows);
            }
            esp_i_stage_end(m);
        }
    }
}

/* ---- chain --------------------------------------------------------------------------------- */

enum { SEGMENT_BYTES = 256 * 1024 };

static void chain_receive(esp_i_move_t *m, const esp_i_link_t *link, esp_i_span_t segment,
                          const esp_i_rows_t *rows)
{
    if (link->held)
        segment = esp_i_span_sift(m, segment, link->held, false);
    if (!link->add) {
        esp_i_receive(m, link->up, segment, rows);
        return;
    }
    esp_i_receive_at(m, link->up, segment.elements, m->staging);
    esp_i_accumulate(m, segment, rows, m->staging);
}

static void chain_send(esp_i_move_t *m, const esp_i_link_t *link, esp_i_span_t segment,
                       const esp_i_rows_t *rows)
{
    for (int32_t i = 0; i < link->n_down; i++) {
        esp_i_span_t goes = segment;
        if (link->down_held)
            goes = esp_i_span_sift(m, segment, link->down_held[i], false);
        esp_i_send(m, link->down[i], goes, rows);
    }
}

void esp_i_chain(esp_i_move_t *m, const esp_i_link_t *link, esp_i_span_t span,
                 const esp_i_rows_t *rows)
{
    int64_t elements = esp_i_max_i64(SEGMENT_BYTES / m->size, 1);
    if (m->adds_in_chains)
        elements = esp_i_min_i64(elements, m->room);
    esp_i_cursor_t in = {.span = span}, out = {.span = span};
    const bool first = link->up == ESP_NONE;
    const int64_t segments = esp_i_ceil_div(span.elements, elements);
    for (int64_t s = 0; s < segments + (first ? 0 : 1); s++) {
        esp_i_stage_begin(m);
        if (!first && s < segments)
            chain_receive(m, link, esp_i_take(m, &in, elements), rows);
        if (first || s > 0)
            chain_send(m, link, esp_i_take(m, &out, elements), rows);
        esp_i_stage_end(m);
    }
}
