/*
 * Collectives of the communication library: one call per tensor, all of them started in one stage,
 * in the order of the pairs. Whether a movement is left to the library depends on what
 * all devices know alike: the deployment, and costs.
 */
#include "exec/schedule.h"

/* The pieces of a split value lie one after the other in the tensor, in the order of its mesh. */
static bool in_order(const esp_i_move_t *m, int32_t value, int32_t n)
{
    int64_t end = 0, extent = 0;
    for (int32_t k = 0; k < n; k++) {
        const esp_i_rows_t rows = esp_i_rows_of(m->d, value, k);
        extent = rows.view.extent;
        if (rows.view.outer != 1 || rows.offset != end)
            return false;
        end += rows.share;
    }
    return end == extent && extent > 0;
}

static bool is_alias(const esp_i_move_t *m, int32_t src, int32_t dst)
{
    const esp_deployment_t *d = m->d;
    const int32_t n = d->mesh_class_offset[m->from + 1] - d->mesh_class_offset[m->from];
    for (int32_t slot = 0; slot < n; slot++)
        if (d->buffer_root[d->value_buffer[src] + slot] ==
            d->buffer_root[d->value_buffer[dst] + slot])
            return true;
    return false;
}

static bool suits(const esp_i_move_t *m, int32_t n)
{
    const esp_deployment_t *d = m->d;
    bool fine =
        n > 1 && m->from == m->to && (m->dtype == ESP_DTYPE_F32 || m->dtype == ESP_DTYPE_F64);
    for (int32_t p = 0; p < m->n_pairs && fine; p++) {
        fine = d->graph->tensor_elements[d->value_tensor[m->src[p]]] <= INT32_MAX;
        if (m->kind == ESP_COMM_REDUCE_SCATTER)
            fine = fine && in_order(m, m->dst[p], n) && !is_alias(m, m->src[p], m->dst[p]);
        else if (m->kind == ESP_COMM_ALL_GATHER)
            fine = fine && in_order(m, m->src[p], n);
    }
    return fine;
}

/* Messages carry a bucket at once; the library is called for each tensor. */
static bool is_faster(const esp_i_move_t *m, int32_t n)
{
    const esp_costs_t *costs = m->lists->library.costs;
    const esp_graph_t *g = m->d->graph;
    int64_t bytes = 0;
    double ns = 0;
    for (int32_t p = 0; p < m->n_pairs; p++) {
        const int64_t size = g->tensor_elements[m->d->value_tensor[m->src[p]]] * m->size;
        const double one = esp_costs_collective_ns(costs, m->kind, "mpi", n, size);
        if (one < 0)
            return false;
        ns += one;
        bytes += size;
    }
    return ns < esp_costs_collective_ns(costs, m->kind, "own", n, bytes);
}

static void extent_push(esp_i_move_t *m, int64_t place, int64_t elements)
{
    const esp_i_extent_t extent = {place, elements * m->size};
    if (!esp_vec_push(&m->lists->alloc, &m->lists->extent, extent))
        m->lists->fine = false;
}

/* The pieces in the whole tensor, which lies at `place`. */
static void pieces_push(esp_i_move_t *m, int32_t value, int32_t n, int64_t place)
{
    for (int32_t k = 0; k < n; k++) {
        const int64_t elements = esp_i_rows_of(m->d, value, k).elements;
        extent_push(m, place, elements);
        place += elements * m->size;
    }
}

static void call_push(esp_i_move_t *m, int32_t pair, int32_t n)
{
    esp_i_lists_t *lists = m->lists;
    esp_i_transfer_t call = {.peer = ESP_NONE,
                             .first = lists->extent.count,
                             .mesh = m->from,
                             .kind = m->kind,
                             .dtype = m->dtype};
    if (m->kind == ESP_COMM_ALLREDUCE) {
        extent_push(m, m->target[pair].place, m->target[pair].elements);
    } else if (m->kind == ESP_COMM_ALL_GATHER) {
        pieces_push(m, m->src[pair], n, m->target[pair].place);
    } else {
        pieces_push(m, m->dst[pair], n, m->source[pair].place);
        extent_push(m, m->target[pair].place, m->target[pair].elements);
    }
    call.n = lists->extent.count - call.first;
    if (!esp_vec_push(&lists->alloc, &lists->transfer, call))
        lists->fine = false;
}

bool esp_i_schedule_library(esp_i_move_t *m)
{
    const int32_t n = m->d->mesh_offset[m->from + 1] - m->d->mesh_offset[m->from];
    if (!suits(m, n) || (m->lists->library.costs && !is_faster(m, n)))
        return false;
    if (m->kind != ESP_COMM_REDUCE_SCATTER) { /* those work in the memory of the result */
        esp_i_stage_begin(m);
        esp_i_copy(m, esp_i_span_of(m, m->source), m->source, m->target);
        esp_i_stage_end(m);
    }
    esp_i_stage_begin(m);
    for (int32_t p = 0; p < m->n_pairs; p++)
        call_push(m, p, n);
    esp_i_stage_end(m);
    return true;
}
