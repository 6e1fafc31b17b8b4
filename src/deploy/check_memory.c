/*
 * Memory: what a task reads was made before it and is not made again before it has been read, in
 * this step and across the boundary to the next.
 */
#include "deploy/check.h"

/* The tasks that write one memory, in the global order. */
typedef struct writers {
    int32_t *task;
    int32_t n;
} writers_t;

static void writers_find(const esp_i_check_t *check, int32_t root, writers_t *writers)
{
    const int32_t *position = check->d->position;
    writers->n = 0;
    for (int32_t i = check->member_offset[root]; i < check->member_offset[root + 1]; i++) {
        int32_t task = check->writer[check->member[i]], at = writers->n;
        if (task == ESP_NONE)
            continue;
        for (; at > 0 && position[writers->task[at - 1]] > position[task]; at--)
            writers->task[at] = writers->task[at - 1];
        writers->task[at] = task;
        writers->n++;
    }
}

/* Number of the writer whose content a buffer shows: -1: that from before the step; -2: none. */
static int32_t writer_of(const esp_deployment_t *d, const writers_t *writers, int32_t buffer)
{
    int32_t made = d->buffer_producer[buffer];
    if (made == ESP_NONE)
        return d->buffer_resident[buffer] ? -1 : -2;
    for (int32_t i = 0; i < writers->n; i++)
        if (writers->task[i] == made)
            return i;
    return -2;
}

static const char *tensor_of(const esp_i_check_t *check, int32_t buffer)
{
    return check->g->tensor_name[check->d->value_tensor[check->d->buffer_value[buffer]]];
}

static esp_status_t check_read(esp_i_check_t *check, const writers_t *writers, int32_t buffer,
                               int32_t task)
{
    const esp_deployment_t *d = check->d;
    int32_t made = writer_of(d, writers, buffer);
    if (made == -2)
        return esp_i_check_task_fail(check, task, "reads buffer %d (%s), which nothing has made",
                                     buffer, tensor_of(check, buffer));
    if (made >= 0 && writers->task[made] == task)
        return esp_i_check_task_fail(check, task, "reads what it writes itself: buffer %d (%s)",
                                     buffer, tensor_of(check, buffer));
    if (made >= 0 && d->position[writers->task[made]] >= d->position[task])
        return esp_i_check_task_fail(check, task, "reads buffer %d (%s) before task %d makes it",
                                     buffer, tensor_of(check, buffer), writers->task[made]);
    int32_t again = made + 1 < writers->n ? writers->task[made + 1] : ESP_NONE;
    if (again != ESP_NONE && again != task && !esp_i_check_before(check, task, again))
        return esp_i_check_task_fail(check, task,
                                     "reads buffer %d (%s); task %d may write that memory before",
                                     buffer, tensor_of(check, buffer), again);
    return ESP_OK;
}

/* Across the boundary: kept memory is read after the update of the step before; other memory is
 * made for the first time only after the step before is done with it. */
static esp_status_t check_read_next(esp_i_check_t *check, const writers_t *writers, int32_t buffer,
                                    int32_t task)
{
    if (writers->n == 0)
        return ESP_OK;
    int32_t first = writers->task[0], last = writers->task[writers->n - 1];
    if (check->d->buffer_resident[buffer] && writer_of(check->d, writers, buffer) < 0 &&
        !esp_i_check_before_next(check, last, task))
        return esp_i_check_task_fail(check, task,
                                     "reads buffer %d (%s) before task %d of the last step may "
                                     "have updated it",
                                     buffer, tensor_of(check, buffer), last);
    if (!esp_i_check_before_next(check, task, first))
        return esp_i_check_task_fail(check, task,
                                     "reads buffer %d (%s); task %d of the next step may write "
                                     "that memory before",
                                     buffer, tensor_of(check, buffer), first);
    return ESP_OK;
}

static esp_status_t check_root(esp_i_check_t *check, int32_t root, writers_t *writers)
{
    const esp_deployment_t *d = check->d;
    writers_find(check, root, writers);
    for (int32_t i = 1; i < writers->n; i++) {
        int32_t before = writers->task[i - 1], after = writers->task[i];
        if (before == after || !esp_i_check_before(check, before, after))
            return esp_i_check_task_fail(check, after,
                                         "may write the memory of buffer %d (%s) before task %d "
                                         "does",
                                         root, tensor_of(check, root), before);
    }
    if (writers->n > 0 && !d->buffer_resident[root] && check->writer[root] != writers->task[0])
        return esp_i_check_task_fail(check, writers->task[0],
                                     "writes the memory of buffer %d (%s) before its own task does",
                                     root, tensor_of(check, root));
    for (int32_t i = check->member_offset[root]; i < check->member_offset[root + 1]; i++) {
        int32_t b = check->member[i];
        if (writer_of(d, writers, b) == -2 && check->writer[b] == ESP_NONE &&
            d->buffer_producer[b] != ESP_NONE)
            return esp_i_check_task_fail(check, d->buffer_producer[b],
                                         "is said to make buffer %d (%s), which it does not write",
                                         b, tensor_of(check, b));
        for (int32_t r = check->reader_offset[b]; r < check->reader_offset[b + 1]; r++) {
            ESP_TRY(check_read(check, writers, b, check->reader[r]));
            ESP_TRY(check_read_next(check, writers, b, check->reader[r]));
        }
    }
    return ESP_OK;
}

esp_status_t esp_i_check_memory(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    int32_t most = 0;
    for (int32_t b = 0; b < d->n_buffers; b++)
        most =
            d->buffer_root[b] == b && check->member_offset[b + 1] - check->member_offset[b] > most
                ? check->member_offset[b + 1] - check->member_offset[b]
                : most;
    writers_t writers = {.task = esp_i_arena_alloc(&check->arena, most, sizeof(int32_t))};
    if (!writers.task)
        return esp_i_nomem(check->diag);
    for (int32_t b = 0; b < d->n_buffers; b++)
        if (d->buffer_root[b] == b)
            ESP_TRY(check_root(check, b, &writers));
    return ESP_OK;
}
