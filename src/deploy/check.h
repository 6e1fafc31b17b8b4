/*
 * Inside of the deployment checker. It shares no code with lowering: every rule is worked out from
 * the graph, the meshes and the cost model again.
 */
#ifndef ESP_DEPLOY_CHECK_H
#define ESP_DEPLOY_CHECK_H

#include "base/base.h"
#include "espalier/deploy.h"

/*
 * Outline (check.c): ranges, so that nothing below reads out of bounds; layout of classes, meshes,
 * values and buffers; how each value is made; what each task reads and writes; that every op is
 * carried out and every parameter updated once; order of tasks and reuse of memory.
 */
typedef struct esp_i_check {
    const esp_deployment_t *d;
    const esp_graph_t *g;
    esp_diag_t *diag;
    esp_i_arena_t arena;

    uint8_t *mesh_splits; /* per mesh: its units make up a micro-batch */

    /* what uses what; filled once ranges are right */
    int32_t *writer;                     /* per buffer: the task that writes it; ESP_NONE */
    int32_t *reader_offset, *reader;     /* CSR per buffer: tasks, ascending */
    int32_t *member_offset, *member;     /* CSR per root: buffers of that memory, ascending */
    int32_t *value_of_offset, *value_of; /* CSR per tensor: values, ascending */
    int32_t *value_source;               /* per value: what a movement made it of; ESP_NONE */
    int32_t *comm_task;                  /* per movement */

    /* what values hold */
    uint8_t **value_terms; /* per value: of a sum that lacks addends, which inputs it has; NULL */
    int32_t *value_sums;   /* per value: micro-batches accumulated in it; 0: not an accumulation */
    uint8_t *executed;     /* [op][micro + 1]: times that the op was carried out, at most 2 */

    /* streams: what runs next in the same one */
    int32_t *compute_next;         /* per task; ESP_NONE */
    int32_t *compute_first;        /* per class */
    int32_t *collective_next;      /* parallel to comm_class */
    int32_t *collective_first;     /* per class */
    int32_t *cross_offset, *cross; /* CSR per task: what waits for it in the next step */
    int32_t *back_offset, *back;   /* CSR per task: what it waits for of the step before */
    int32_t
        *reach; /* [task][class]: first position of a compute task that follows; NULL: too large */
    int32_t *before_offset, *before; /* CSR per task: what it depends on */
    int32_t *mark, *queue;           /* per (step, task): scratch of the search for a path */
    int32_t stamp;
} esp_i_check_t;

/* Where an error is. Each fills the place in diag and returns ESP_ERR_INVALID. */
esp_status_t esp_i_check_fail(esp_i_check_t *check, const char *format, ...) ESP_PRINTF(2, 3);
esp_status_t esp_i_check_task_fail(esp_i_check_t *check, int32_t task, const char *format, ...)
    ESP_PRINTF(3, 4);
esp_status_t esp_i_check_value_fail(esp_i_check_t *check, int32_t value, const char *format, ...)
    ESP_PRINTF(3, 4);

/* check_ranges.c */
esp_status_t esp_i_check_ranges(esp_i_check_t *check);
/* check_layout.c */
esp_status_t esp_i_check_layout(esp_i_check_t *check);
/* check_index.c */
esp_status_t esp_i_check_index(esp_i_check_t *check);
/* check_value.c, check_sum.c */
esp_status_t esp_i_check_values(esp_i_check_t *check);
esp_status_t esp_i_check_sum(esp_i_check_t *check, int32_t value);
/* check_task.c */
esp_status_t esp_i_check_tasks(esp_i_check_t *check);
/* check_cover.c */
esp_status_t esp_i_check_cover(esp_i_check_t *check);
/* check_order.c */
esp_status_t esp_i_check_order(esp_i_check_t *check);
/* Task a has ended before task b of the same (the next) step starts, whatever tasks take. */
bool esp_i_check_before(esp_i_check_t *check, int32_t a, int32_t b);
bool esp_i_check_before_next(esp_i_check_t *check, int32_t a, int32_t b);
/* check_memory.c */
esp_status_t esp_i_check_memory(esp_i_check_t *check);
/* check_arena.c */
esp_status_t esp_i_check_arena(esp_i_check_t *check);

/* ---- short questions --------------------------------------------------------------------------
 */

static inline int32_t esp_i_check_devices(const esp_deployment_t *d, int32_t mesh)
{
    return d->mesh_offset[mesh + 1] - d->mesh_offset[mesh];
}
static inline int32_t esp_i_check_slots(const esp_deployment_t *d, int32_t value)
{
    int32_t mesh = d->value_mesh[value];
    return d->mesh_class_offset[mesh + 1] - d->mesh_class_offset[mesh];
}
/* Buffer of a value on a class; ESP_NONE: it is not there. */
static inline int32_t esp_i_check_buffer(const esp_deployment_t *d, int32_t value, int32_t class_)
{
    int32_t first = d->mesh_class_offset[d->value_mesh[value]];
    for (int32_t k = 0; k < esp_i_check_slots(d, value); k++)
        if (d->mesh_class[first + k] == class_)
            return d->value_buffer[value] + k;
    return ESP_NONE;
}
static inline bool esp_i_check_same_view(esp_view_t a, esp_view_t b)
{
    return a.outer == b.outer && a.extent == b.extent && a.inner == b.inner;
}
/* Two buffers hold the same: one memory, as one task left it. */
static inline bool esp_i_check_same_content(const esp_deployment_t *d, int32_t a, int32_t b)
{
    return d->buffer_root[a] == d->buffer_root[b] && d->buffer_producer[a] == d->buffer_producer[b];
}

#endif
