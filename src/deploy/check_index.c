/* Who uses what: the indices that the rules are checked with. */
#include "deploy/check.h"

/*
 * A counting sort: `offset` becomes the CSR of n lists over `list`, which holds i in list key[i]
 * for 0 <= i < count, ascending. Keys that are ESP_NONE are left out.
 */
static bool group_by(esp_i_arena_t *arena, int32_t n, const int32_t *key, int32_t count,
                     int32_t **offset_out, int32_t **list_out)
{
    int32_t *offset = esp_i_arena_alloc(arena, (int64_t)n + 2, sizeof *offset);
    int32_t *list = esp_i_arena_alloc(arena, count, sizeof *list);
    if (!offset || !list)
        return false;
    for (int32_t i = 0; i < count; i++)
        if (key[i] != ESP_NONE)
            offset[key[i] + 2]++;
    for (int32_t i = 0; i < n; i++)
        offset[i + 2] += offset[i + 1];
    for (int32_t i = 0; i < count; i++)
        if (key[i] != ESP_NONE)
            list[offset[key[i] + 1]++] = i;
    *offset_out = offset;
    *list_out = list;
    return true;
}

/* Readers: grouped by buffer, each entry of the reads replaced by its task. */
static bool index_readers(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    int32_t reads = d->read_offset[d->n_tasks];
    int32_t *task = esp_i_arena_alloc(&check->arena, reads, sizeof *task);
    if (!task || !group_by(&check->arena, d->n_buffers, d->read_buffer, reads,
                           &check->reader_offset, &check->reader))
        return false;
    for (int32_t t = 0; t < d->n_tasks; t++)
        for (int32_t r = d->read_offset[t]; r < d->read_offset[t + 1]; r++)
            task[r] = t;
    for (int32_t i = 0; i < check->reader_offset[d->n_buffers]; i++)
        check->reader[i] = task[check->reader[i]];
    return true;
}

static esp_status_t index_writers(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    check->writer = esp_i_arena_alloc(&check->arena, d->n_buffers, sizeof *check->writer);
    if (!check->writer)
        return esp_i_nomem(check->diag);
    for (int32_t b = 0; b < d->n_buffers; b++)
        check->writer[b] = ESP_NONE;
    for (int32_t t = 0; t < d->n_tasks; t++)
        for (int32_t w = d->write_offset[t]; w < d->write_offset[t + 1]; w++) {
            int32_t b = d->write_buffer[w];
            if (check->writer[b] != ESP_NONE)
                return esp_i_check_task_fail(check, t, "buffer %d is written by task %d too", b,
                                             check->writer[b]);
            if (d->buffer_producer[b] != t)
                return esp_i_check_task_fail(check, t,
                                             "writes buffer %d, which is said to be of task %d", b,
                                             d->buffer_producer[b]);
            check->writer[b] = t;
        }
    return ESP_OK;
}

static esp_status_t index_comms(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    check->value_source = esp_i_arena_alloc(&check->arena, d->n_values, sizeof(int32_t));
    check->comm_task = esp_i_arena_alloc(&check->arena, d->n_comms, sizeof(int32_t));
    if (!check->value_source || !check->comm_task)
        return esp_i_nomem(check->diag);
    for (int32_t v = 0; v < d->n_values; v++)
        check->value_source[v] = ESP_NONE;
    for (int32_t k = 0; k < d->n_comms; k++)
        check->comm_task[k] = ESP_NONE;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        int32_t comm = d->task_comm[t];
        if (comm == ESP_NONE)
            continue;
        if (check->comm_task[comm] != ESP_NONE)
            return esp_i_check_task_fail(check, t, "movement %d is that of task %d too", comm,
                                         check->comm_task[comm]);
        check->comm_task[comm] = t;
        for (int32_t p = d->comm_pair_offset[comm]; p < d->comm_pair_offset[comm + 1]; p++) {
            if (check->value_source[d->comm_dst[p]] != ESP_NONE)
                return esp_i_check_task_fail(check, t, "value %d is brought twice", d->comm_dst[p]);
            check->value_source[d->comm_dst[p]] = d->comm_src[p];
        }
    }
    for (int32_t k = 0; k < d->n_comms; k++)
        if (check->comm_task[k] == ESP_NONE)
            return esp_i_check_fail(check, "no task carries out movement %d", k);
    return ESP_OK;
}

static bool index_alloc(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    esp_i_arena_t *arena = &check->arena;
    int64_t executed = (int64_t)check->g->n_ops * (d->micro_batches + 1);
    return (check->value_terms = esp_i_arena_alloc(arena, d->n_values, sizeof(uint8_t *))) &&
           (check->value_sums = esp_i_arena_alloc(arena, d->n_values, sizeof(int32_t))) &&
           (check->executed = esp_i_arena_alloc(arena, executed, 1)) &&
           (check->mark = esp_i_arena_alloc(arena, 2 * (int64_t)d->n_tasks, sizeof(int32_t))) &&
           (check->queue = esp_i_arena_alloc(arena, 2 * (int64_t)d->n_tasks, sizeof(int32_t)));
}

/* What each task is followed by in the next step, and follows: cross edges by tail and by head. */
static bool index_cross(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    if (!group_by(&check->arena, d->n_tasks, d->cross_before, d->n_cross, &check->cross_offset,
                  &check->cross) ||
        !group_by(&check->arena, d->n_tasks, d->cross_after, d->n_cross, &check->back_offset,
                  &check->back))
        return false;
    for (int32_t i = 0; i < d->n_cross; i++) {
        check->cross[i] = d->cross_after[check->cross[i]];
        check->back[i] = d->cross_before[check->back[i]];
    }
    return true;
}

esp_status_t esp_i_check_index(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    ESP_TRY(index_writers(check));
    ESP_TRY(index_comms(check));
    if (!index_alloc(check) || !index_readers(check) || !index_cross(check) ||
        !group_by(&check->arena, d->n_buffers, d->buffer_root, d->n_buffers, &check->member_offset,
                  &check->member) ||
        !group_by(&check->arena, check->g->n_tensors, d->value_tensor, d->n_values,
                  &check->value_of_offset, &check->value_of))
        return esp_i_nomem(check->diag);
    return ESP_OK;
}
