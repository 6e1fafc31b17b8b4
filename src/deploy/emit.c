/* Emitting values, buffers and tasks into the growing arrays of a lowerer. */
#include "deploy/lowerer.h"

#include <math.h>
#include <string.h>

bool esp_i_resize(const esp_allocator_t *alloc, void *array, int64_t keep, int64_t need,
                  size_t size)
{
    void *old;
    memcpy(&old, array, sizeof old);
    void *fresh = esp_i_alloc_array(alloc, esp_i_max_i64(need, 1), size);
    if (!fresh)
        return false;
    if (old && keep > 0)
        memcpy(fresh, old, (size_t)keep * size);
    esp_i_free(alloc, old);
    memcpy(array, &fresh, sizeof fresh);
    return true;
}

#define GROW(name)                                                                                 \
    static bool name##_grow(esp_lowerer_t *lw, int64_t more)                                       \
    {                                                                                              \
        int64_t need = lw->name.n + more + ESP_I_BLOCK;                                            \
        if (need <= lw->name.capacity)                                                             \
            return true;                                                                           \
        int64_t capacity = esp_i_max_i64(need, 2 * (int64_t)lw->name.capacity + 256);              \
        if (capacity > INT32_MAX)                                                                  \
            return false;                                                                          \
        const int64_t keep = lw->name.capacity;                                                    \
        FIELDS(lw->name)                                                                           \
        lw->name.capacity = (int32_t)capacity;                                                     \
        return true;                                                                               \
    }
#define RESIZE(type, field)                                                                        \
    if (!esp_i_resize(&lw->alloc, &family->field, keep, capacity, sizeof(type)))                   \
        return false;

#define FIELDS(x)                                                                                  \
    esp_i_tasks_t *family = &x;                                                                    \
    ESP_I_TASK_ARRAYS(RESIZE)
GROW(tasks)
#undef FIELDS
#define FIELDS(x)                                                                                  \
    esp_i_values_t *family = &x;                                                                   \
    ESP_I_VALUE_ARRAYS(RESIZE)
GROW(values)
#undef FIELDS
#define FIELDS(x)                                                                                  \
    esp_i_buffers_t *family = &x;                                                                  \
    ESP_I_BUFFER_ARRAYS(RESIZE)
GROW(buffers)
#undef FIELDS
#define FIELDS(x)                                                                                  \
    esp_i_comms_t *family = &x;                                                                    \
    ESP_I_COMM_ARRAYS(RESIZE)
GROW(comms)
#undef FIELDS

static bool ids_grow(esp_lowerer_t *lw, esp_i_ids_t *ids, int64_t more)
{
    int64_t need = ids->count + more + ESP_I_BLOCK;
    return need <= ids->capacity ||
           esp_i_grow(&lw->alloc, &ids->data, &ids->capacity, need, sizeof *ids->data);
}

static bool times_grow(esp_lowerer_t *lw, int64_t more)
{
    int64_t need = lw->comm_class_ns.count + more;
    return need <= lw->comm_class_ns.capacity ||
           esp_i_grow(&lw->alloc, &lw->comm_class_ns.data, &lw->comm_class_ns.capacity, need,
                      sizeof(int64_t));
}

bool esp_i_reserve(esp_lowerer_t *lw, int64_t tasks, int64_t moves, int64_t values,
                   int64_t operands)
{
    int64_t classes = lw->n_classes;
    return tasks_grow(lw, tasks) && values_grow(lw, values) && buffers_grow(lw, values * classes) &&
           comms_grow(lw, moves) && ids_grow(lw, &lw->reads, operands) &&
           ids_grow(lw, &lw->writes, operands) && ids_grow(lw, &lw->pair_src, moves) &&
           ids_grow(lw, &lw->pair_dst, moves) && ids_grow(lw, &lw->comm_classes, moves * classes) &&
           times_grow(lw, moves * classes) && ids_grow(lw, &lw->overwriters, 2 * operands);
}

int64_t esp_i_tensor_bytes(const esp_lowerer_t *lw, esp_tensor_id_t root)
{
    double bytes = lw->cost->tensor_bytes[root];
    if (lw->micro != ESP_NONE && lw->graph->tensor_batch[root].extent)
        bytes /= lw->strategy->micro_batches;
    return (int64_t)bytes;
}

/* Bytes of one device's buffer, per class of the mesh. */
static void buffers_size(const esp_lowerer_t *lw, int32_t value, int64_t *bytes_out)
{
    const esp_i_values_t *values = &lw->values;
    const esp_i_local_mesh_t *local = &lw->local.data[values->mesh[value]];
    int64_t total = esp_i_tensor_bytes(lw, values->tensor[value]), each = total;
    bool split = values->form[value] == ESP_FORM_SPLIT;
    if (split && values->share[value] == ESP_SHARE_BATCH) {
        const double *part = lw->mesh_class_part.data + local->class_first;
        for (int32_t slot = 0; slot < local->n_classes; slot++)
            bytes_out[slot] = (int64_t)((double)total * part[slot] + 0.5);
        return;
    }
    if (split) { /* whole rows: the largest share */
        int64_t extent = values->view[value].extent;
        each = esp_i_ceil_div(total, extent) * esp_i_ceil_div(extent, local->n);
    }
    for (int32_t slot = 0; slot < local->n_classes; slot++)
        bytes_out[slot] = each;
}

/* One buffer per class of the mesh. */
static void buffers_new(esp_lowerer_t *lw, int32_t value)
{
    const esp_i_local_mesh_t *local = &lw->local.data[lw->values.mesh[value]];
    const esp_i_buffers_t *buffers = &lw->buffers;
    int32_t n = local->n_classes, first = buffers->n;
    esp_i_row_fill(buffers->value + first, n, value);
    esp_i_row_copy(buffers->class_ + first, n, lw->mesh_class.data + local->class_first);
    esp_i_row_count(buffers->root + first, n, first, 1);
    esp_i_row_fill(buffers->producer + first, n, ESP_NONE);
    buffers_size(lw, value, buffers->bytes + first);
    lw->buffers.n += n;
}

int32_t esp_i_value_new(esp_lowerer_t *lw, const esp_i_want_t *want)
{
    esp_i_values_t *values = &lw->values;
    int32_t value = values->n++;
    values->tensor[value] = want->root;
    values->mesh[value] = want->mesh;
    values->form[value] = (uint8_t)want->form;
    values->share[value] = (uint8_t)want->share;
    values->view[value] = want->view;
    values->micro[value] = (int16_t)(lw->facts.tensor_body[want->root] ? lw->micro : ESP_NONE);
    values->buffer[value] = lw->buffers.n;
    values->maker[value] = ESP_NONE;
    values->next[value] = lw->tensor_value[want->root];
    lw->tensor_value[want->root] = value;
    buffers_new(lw, value);
    return value;
}

/* Memory between steps; a parameter has its working copy in half precision beside it. */
void esp_i_value_settle(esp_lowerer_t *lw, int32_t value)
{
    esp_tensor_id_t t = lw->values.tensor[value];
    double more = lw->cost->tensor_working_bytes[t] / (lw->cost->tensor_bytes[t] + 1e-9);
    int32_t end = lw->values.buffer[value] + lw->local.data[lw->values.mesh[value]].n_classes;
    for (int32_t b = lw->values.buffer[value]; b < end; b++) {
        lw->buffers.resident[b] = 1;
        if (more > 0)
            lw->buffers.bytes[b] += (int64_t)ceil(more * (double)lw->buffers.bytes[b]);
        if (lw->buffers.root[b] == b)
            lw->class_resident[lw->buffers.class_[b]] += lw->buffers.bytes[b];
    }
}

int64_t esp_i_value_total_bytes(const esp_lowerer_t *lw, int32_t value)
{
    return esp_i_tensor_bytes(lw, lw->values.tensor[value]);
}

void esp_i_row_write(esp_lowerer_t *lw, int32_t n, int32_t buffer, int32_t task, int32_t step)
{
    const int32_t *root = lw->buffers.root + buffer;
    int32_t *producer = lw->buffers.producer + buffer;
    int32_t *overwriter = lw->overwriters.data + lw->overwriters.count;
    esp_i_row_count(lw->writes.data + lw->writes.count, n, buffer, 1);
    lw->writes.count += n;
    for (int32_t slot = 0; slot < n; slot++, task += step) {
        producer[slot] = task;
        overwriter[0] = root[slot];
        overwriter[1] = task;
        overwriter += overwriter[0] != buffer + slot ? 2 : 0;
    }
    lw->overwriters.count = (int32_t)(overwriter - lw->overwriters.data);
}
