/*
 * The packed arena: what lies in one place is never alive at one time. A part of the arena belongs
 * to one buffer, or to the scratch memory of one task, after the other: each takes it over only
 * when all tasks of the one before are certain to have ended, in the same step and from the last of
 * a step to the first of the next.
 */
#include "deploy/check.h"

#include <string.h>

typedef struct tenant {
    int64_t low, high;
    int32_t begin;  /* position of the first task */
    int32_t buffer; /* root; ESP_NONE: scratch */
    int32_t task;
} tenant_t;

typedef struct part {
    int64_t low, high;
    const tenant_t *had;
} part_t;

typedef struct arena {
    tenant_t *tenant;
    part_t *part, *opened; /* by whom last, ascending; by whom first, in time */
    int32_t n, n_parts, n_opened;
} arena_t;

/* ---- tenants ------------------------------------------------------------------------------- */

static int32_t first_task(const esp_i_check_t *check, int32_t root)
{
    int32_t first = ESP_NONE;
    for (int32_t i = check->member_offset[root]; i < check->member_offset[root + 1]; i++) {
        int32_t task = check->writer[check->member[i]];
        if (task != ESP_NONE &&
            (first == ESP_NONE || check->d->position[task] < check->d->position[first]))
            first = task;
    }
    return first;
}

static esp_status_t enter(esp_i_check_t *check, arena_t *arena, int32_t class_, tenant_t tenant)
{
    const esp_deployment_t *d = check->d;
    if (tenant.low < d->class_resident_bytes[class_] || tenant.high > d->class_arena_bytes[class_])
        return esp_i_check_task_fail(check, tenant.task,
                                     "uses bytes %lld to %lld of class %d, whose transient memory "
                                     "is %lld to %lld",
                                     (long long)tenant.low, (long long)tenant.high, class_,
                                     (long long)d->class_resident_bytes[class_],
                                     (long long)d->class_arena_bytes[class_]);
    arena->tenant[arena->n++] = tenant;
    return ESP_OK;
}

static esp_status_t enter_scratch(esp_i_check_t *check, arena_t *arena, int32_t class_)
{
    const esp_deployment_t *d = check->d;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        int32_t comm = d->task_comm[t];
        int64_t bytes = esp_deployment_scratch_bytes(d, t), low = 0;
        bool here = comm == ESP_NONE && d->task_class[t] == class_;
        if (here)
            low = d->task_scratch_offset[t];
        for (int32_t i = comm == ESP_NONE ? 0 : d->comm_class_offset[comm];
             comm != ESP_NONE && i < d->comm_class_offset[comm + 1]; i++)
            if (d->comm_class[i] == class_) {
                here = true;
                low = d->comm_scratch_offset[i];
            }
        if (here && bytes > 0)
            ESP_TRY(enter(check, arena, class_,
                          (tenant_t){low, low + bytes, d->position[t], ESP_NONE, t}));
    }
    return ESP_OK;
}

static esp_status_t enter_buffers(esp_i_check_t *check, arena_t *arena, int32_t class_)
{
    const esp_deployment_t *d = check->d;
    for (int32_t b = 0; b < d->n_buffers; b++) {
        if (d->buffer_class[b] != class_)
            continue;
        if (d->buffer_offset[b] != d->buffer_offset[d->buffer_root[b]])
            return esp_i_check_value_fail(check, d->buffer_value[b],
                                          "buffer %d does not lie where its memory is", b);
        if (d->buffer_offset[b] % 8 != 0)
            return esp_i_check_value_fail(check, d->buffer_value[b], "buffer %d is not aligned", b);
        if (d->buffer_root[b] != b || d->buffer_resident[b] || d->buffer_bytes[b] == 0)
            continue;
        int32_t task = first_task(check, b);
        if (task != ESP_NONE)
            ESP_TRY(enter(check, arena, class_,
                          (tenant_t){d->buffer_offset[b], d->buffer_offset[b] + d->buffer_bytes[b],
                                     d->position[task], b, task}));
    }
    return ESP_OK;
}

/* Residents lie behind each other, below everything that is transient. */
static esp_status_t check_residents(esp_i_check_t *check, int32_t *by_offset)
{
    const esp_deployment_t *d = check->d;
    for (int32_t c = 0; c < d->n_classes; c++) {
        int64_t end = 0;
        int32_t n = 0;
        for (int32_t b = 0; b < d->n_buffers; b++)
            if (d->buffer_class[b] == c && d->buffer_resident[b] && d->buffer_root[b] == b &&
                d->buffer_bytes[b] > 0)
                by_offset[n++] = b;
        for (int32_t i = 0; i < n; i++) { /* in the order of ids, which is that of offsets */
            int64_t low = d->buffer_offset[by_offset[i]];
            if (low < end)
                return esp_i_check_value_fail(check, d->buffer_value[by_offset[i]],
                                              "buffer %d lies in another one that is kept",
                                              by_offset[i]);
            end = low + d->buffer_bytes[by_offset[i]];
        }
        if (end > d->class_arena_bytes[c])
            return esp_i_check_fail(check, "class %d: the arena is too small for what is kept", c);
    }
    return ESP_OK;
}

/* ---- taking over --------------------------------------------------------------------------- */

static esp_status_t follows(esp_i_check_t *check, int32_t old, const tenant_t *fresh, bool next)
{
    bool certain = next ? esp_i_check_before_next(check, old, fresh->task)
                        : esp_i_check_before(check, old, fresh->task);
    return certain
               ? ESP_OK
               : esp_i_check_task_fail(check, fresh->task,
                                       "takes over memory at byte %lld %swhile task %d may "
                                       "still use it",
                                       (long long)fresh->low, next ? "in the next step " : "", old);
}

static esp_status_t takes_over(esp_i_check_t *check, const tenant_t *old, const tenant_t *fresh,
                               bool next)
{
    if (old == fresh)
        return ESP_OK; /* the same memory step after step: check_memory.c */
    if (old->buffer == ESP_NONE)
        return follows(check, old->task, fresh, next);
    for (int32_t i = check->member_offset[old->buffer]; i < check->member_offset[old->buffer + 1];
         i++) {
        int32_t b = check->member[i];
        if (check->writer[b] != ESP_NONE)
            ESP_TRY(follows(check, check->writer[b], fresh, next));
        for (int32_t r = check->reader_offset[b]; r < check->reader_offset[b + 1]; r++)
            ESP_TRY(follows(check, check->reader[r], fresh, next));
    }
    return ESP_OK;
}

static void open_part(arena_t *arena, int64_t low, int64_t high, const tenant_t *tenant)
{
    if (low < high)
        arena->opened[arena->n_opened++] = (part_t){low, high, tenant};
}

/* Cuts what others had in [low, high) and puts the tenant there. */
static esp_status_t settle(esp_i_check_t *check, arena_t *arena, const tenant_t *fresh)
{
    int32_t at = 0, end, n = 0;
    int64_t free_from = fresh->low;
    part_t put[3];
    while (at < arena->n_parts && arena->part[at].high <= fresh->low)
        at++;
    for (end = at; end < arena->n_parts && arena->part[end].low < fresh->high; end++) {
        ESP_TRY(takes_over(check, arena->part[end].had, fresh, false));
        open_part(arena, free_from, arena->part[end].low, fresh);
        free_from = arena->part[end].high;
    }
    open_part(arena, free_from, fresh->high, fresh);
    if (end > at && arena->part[at].low < fresh->low)
        put[n++] = (part_t){arena->part[at].low, fresh->low, arena->part[at].had};
    put[n++] = (part_t){fresh->low, fresh->high, fresh};
    if (end > at && arena->part[end - 1].high > fresh->high)
        put[n++] = (part_t){fresh->high, arena->part[end - 1].high, arena->part[end - 1].had};
    memmove(arena->part + at + n, arena->part + end,
            (size_t)(arena->n_parts - end) * sizeof *arena->part);
    memcpy(arena->part + at, put, (size_t)n * sizeof *put);
    arena->n_parts += n - (end - at);
    return ESP_OK;
}

static void sort_by_begin(tenant_t *tenant, int32_t n) /* heap sort */
{
    for (int32_t size = n, start = n / 2; size > 1;) {
        tenant_t moved;
        if (start > 0) {
            moved = tenant[--start];
        } else {
            moved = tenant[--size];
            tenant[size] = tenant[0];
        }
        int32_t at = start;
        for (int32_t child; (child = 2 * at + 1) < size; at = child) {
            if (child + 1 < size && tenant[child + 1].begin > tenant[child].begin)
                child++;
            if (tenant[child].begin <= moved.begin)
                break;
            tenant[at] = tenant[child];
        }
        tenant[at] = moved;
    }
}

static esp_status_t check_class(esp_i_check_t *check, arena_t *arena, int32_t class_)
{
    arena->n = arena->n_parts = arena->n_opened = 0;
    ESP_TRY(enter_buffers(check, arena, class_));
    ESP_TRY(enter_scratch(check, arena, class_));
    sort_by_begin(arena->tenant, arena->n);
    for (int32_t i = 0; i < arena->n; i++)
        ESP_TRY(settle(check, arena, &arena->tenant[i]));
    for (int32_t i = 0; i < arena->n_opened; i++)
        for (int32_t k = 0; k < arena->n_parts; k++)
            if (arena->part[k].low < arena->opened[i].high &&
                arena->opened[i].low < arena->part[k].high)
                ESP_TRY(takes_over(check, arena->part[k].had, arena->opened[i].had, true));
    return ESP_OK;
}

esp_status_t esp_i_check_arena(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    if (!d->buffer_offset)
        return ESP_OK;
    if (!d->class_arena_bytes || !d->task_scratch_offset ||
        (!d->comm_scratch_offset && d->n_comms > 0))
        return esp_i_check_fail(check, "the deployment is packed in part only");
    int64_t most = (int64_t)d->n_buffers + d->n_tasks + d->comm_class_offset[d->n_comms] + 1;
    arena_t arena = {.tenant = esp_i_arena_alloc(&check->arena, most, sizeof *arena.tenant),
                     .part = esp_i_arena_alloc(&check->arena, 2 * most, sizeof *arena.part),
                     .opened = esp_i_arena_alloc(&check->arena, 3 * most, sizeof *arena.opened)};
    int32_t *by_offset = esp_i_arena_alloc(&check->arena, most, sizeof *by_offset);
    if (!arena.tenant || !arena.part || !arena.opened || !by_offset)
        return esp_i_nomem(check->diag);
    ESP_TRY(check_residents(check, by_offset));
    for (int32_t c = 0; c < d->n_classes; c++)
        ESP_TRY(check_class(check, &arena, c));
    return ESP_OK;
}
