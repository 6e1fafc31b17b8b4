/*
 * Movements as one device carries them out.
 *
 * Every device works out the same picture from the deployment: who sends what to whom in which
 * step of the algorithm; and keeps its own part. Each message has a step, which is the same at both
 * of its ends, and a device's stages are in the order of steps, one stage for all messages of a
 * step. So nothing deadlocks: the messages of a step have all been started as soon as those of the
 * steps before have ended, by induction over steps. Two messages of one step between the same
 * devices in the same direction do not exist, hence messages are matched as meant.
 */
#include "exec/schedule.h"

/* The memory may be overwritten: nobody but the movement reads it once it is made. */
static bool is_private(const esp_i_lists_t *lists, int32_t task, int32_t buffer)
{
    const esp_deployment_t *d = lists->deployment;
    const esp_graph_t *g = d->graph;
    const int32_t root = d->buffer_root[buffer], made = d->buffer_producer[buffer];
    const esp_tensor_id_t tensor = d->value_tensor[d->buffer_value[buffer]];
    if (!lists->last_reader)
        return true;
    if (d->buffer_resident[root] || made == ESP_NONE)
        return false;
    if (g->loss != ESP_NONE && g->tensor_root[g->loss] == tensor)
        return false;
    for (int32_t i = 0; i < g->n_outputs; i++)
        if (g->tensor_root[g->output[i]] == tensor)
            return false;
    return lists->last_reader[root] == d->position[task] &&
           lists->other_reader[root] <= d->position[made];
}

static bool sources_are_private(const esp_i_move_t *m, int32_t task)
{
    const esp_deployment_t *d = m->d;
    const int32_t classes = d->mesh_class_offset[m->from + 1] - d->mesh_class_offset[m->from];
    for (int32_t p = 0; p < m->n_pairs; p++)
        for (int32_t slot = 0; slot < classes; slot++)
            if (!is_private(m->lists, task, d->value_buffer[m->src[p]] + slot))
                return false;
    return true;
}

/* What this device has of the pairs on one side; NULL: nothing. */
static esp_i_rows_t *own_rows(esp_i_move_t *m, const int32_t *values, int32_t k)
{
    if (k == ESP_NONE)
        return NULL;
    esp_i_rows_t *rows = esp_i_move_alloc(m, m->n_pairs, sizeof *rows);
    for (int32_t p = 0; rows && p < m->n_pairs; p++) {
        rows[p] = esp_i_rows_of(m->d, values[p], k);
        const int32_t buffer = esp_i_buffer_on(m->d, values[p], m->d->device_class[m->me]);
        rows[p].place = esp_i_place_of(m->d, buffer, m->me, &rows[p], m->lists->wide);
    }
    return rows;
}

static void dispatch(esp_i_move_t *m)
{
    switch (m->kind) {
    case ESP_COMM_ALLREDUCE:
    case ESP_COMM_REDUCE_SCATTER:
    case ESP_COMM_ALL_GATHER:
        esp_i_schedule_collective(m);
        break;
    case ESP_COMM_REDUCE:
        esp_i_schedule_reduce(m);
        break;
    case ESP_COMM_BROADCAST:
        esp_i_schedule_broadcast(m);
        break;
    case ESP_COMM_GATHER:
        esp_i_schedule_gather(m);
        break;
    case ESP_COMM_SCATTER:
        esp_i_schedule_scatter(m);
        break;
    case ESP_COMM_EXCHANGE:
    case ESP_COMM_ALL_TO_ALL:
        esp_i_schedule_exchange(m);
        break;
    case ESP_COMM_COUNT:
        break;
    }
}

static esp_dtype_t dtype_of(const esp_deployment_t *d, int32_t value, bool wide)
{
    return esp_i_stored_dtype((esp_dtype_t)d->graph->tensor_dtype[d->value_tensor[value]], wide);
}

/*
 * Pairs of one dtype, one after the other, as if they were one tensor. The receive buffers are
 * packed at multiples of 64 bytes; the last element of the largest piece may need what follows the
 * planned bytes, up to a multiple of 8.
 */
static void move_pairs(esp_i_lists_t *lists, int32_t task, int32_t first, int32_t n,
                       int64_t scratch_place)
{
    const esp_deployment_t *d = lists->deployment;
    const int32_t comm = d->task_comm[task];
    esp_i_move_t m = {.lists = lists,
                      .d = d,
                      .kind = (esp_comm_t)d->comm_kind[comm],
                      .algorithm = d->comm_pattern[comm]->algorithm,
                      .me = lists->device,
                      .n_pairs = n,
                      .src = d->comm_src + first,
                      .dst = d->comm_dst + first,
                      .dtype = dtype_of(d, d->comm_src[first], lists->wide),
                      .staging = scratch_place};
    esp_i_arena_init(&m.arena, &lists->alloc);
    m.size = esp_dtype_bytes(m.dtype);
    const int64_t words = esp_i_ceil_div(esp_deployment_scratch_bytes(d, task), 8);
    m.room = esp_i_max_i64(words * (lists->wide ? 16 : 8) / m.size, 1);
    m.from = d->value_mesh[m.src[0]];
    m.to = d->value_mesh[m.dst[0]];
    m.from_index = esp_i_mesh_index(d, m.from, m.me);
    m.to_index = esp_i_mesh_index(d, m.to, m.me);
    m.source = own_rows(&m, m.src, m.from_index);
    m.target = own_rows(&m, m.dst, m.to_index);
    if (m.kind == ESP_COMM_REDUCE_SCATTER)
        m.private_sources = sources_are_private(&m, task);
    if (lists->fine && (m.source || m.target))
        dispatch(&m);
    esp_vec_free(&lists->alloc, &m.run);
    esp_i_arena_fini(&m.arena);
}

void esp_i_schedule(esp_i_lists_t *lists, int32_t task, int64_t scratch_place)
{
    const esp_deployment_t *d = lists->deployment;
    const int32_t comm = d->task_comm[task], end = d->comm_pair_offset[comm + 1];
    for (int32_t first = d->comm_pair_offset[comm], next; first < end && lists->fine;
         first = next) {
        const esp_dtype_t dtype = dtype_of(d, d->comm_src[first], lists->wide);
        for (next = first + 1; next < end; next++)
            if (dtype_of(d, d->comm_src[next], lists->wide) != dtype)
                break;
        move_pairs(lists, task, first, next - first, scratch_place);
    }
}
