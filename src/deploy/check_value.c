/*
 * How each value is made: by one op, by a movement, as rows, as a sum, as an alias, or by nobody
 * because it is there before the step. A value is made of values with lower ids.
 */
#include "deploy/check.h"

/* The tasks that write the buffers of a value. */
typedef struct makers {
    int32_t compute, sum, slice, comm; /* buffers written by each kind */
    int32_t none;                      /* not written */
    int32_t task;                      /* one of the writers; ESP_NONE */
} makers_t;

static makers_t makers_of(const esp_i_check_t *check, int32_t value)
{
    const esp_deployment_t *d = check->d;
    makers_t makers = {.task = ESP_NONE};
    for (int32_t k = 0; k < esp_i_check_slots(d, value); k++) {
        int32_t task = check->writer[d->value_buffer[value] + k];
        if (task == ESP_NONE) {
            makers.none++;
            continue;
        }
        makers.task = task;
        switch ((esp_task_kind_t)d->task_kind[task]) {
        case ESP_TASK_COMPUTE:
            makers.compute++;
            break;
        case ESP_TASK_ADD:
            makers.sum++;
            break;
        case ESP_TASK_SLICE:
            makers.slice++;
            break;
        case ESP_TASK_COMM:
            makers.comm++;
            break;
        }
    }
    return makers;
}

/* The op that computed a value counts once for the micro-batch. */
static esp_status_t executed(esp_i_check_t *check, int32_t value, esp_op_id_t op, int32_t micro)
{
    uint8_t *times = &check->executed[(int64_t)op * (check->d->micro_batches + 1) + micro + 1];
    if (++*times > 1)
        return esp_i_check_value_fail(check, value, "op %s is carried out twice for micro-batch %d",
                                      check->g->op_name[op], micro);
    return ESP_OK;
}

static esp_status_t check_computed(esp_i_check_t *check, int32_t value, const makers_t *makers)
{
    const esp_deployment_t *d = check->d;
    const esp_graph_t *g = check->g;
    int32_t n = esp_i_check_slots(d, value), first = makers->task;
    esp_tensor_id_t t = d->value_tensor[value];
    esp_op_id_t op = g->tensor_producer[t];
    if (makers->compute != n)
        return esp_i_check_value_fail(check, value,
                                      "op %s computes it on %d device classes of the mesh's %d",
                                      g->op_name[d->task_op[first]], makers->compute, n);
    for (int32_t k = 0; k < n; k++) {
        int32_t task = check->writer[d->value_buffer[value] + k];
        if (d->task_op[task] != op)
            return esp_i_check_task_fail(check, task, "computes %s, which is of op %s",
                                         g->tensor_name[t],
                                         op == ESP_NONE ? "none" : g->op_name[op]);
        if (d->task_mode[task] != d->task_mode[first] ||
            d->task_micro[task] != d->task_micro[first])
            return esp_i_check_task_fail(check, task,
                                         "mode or micro-batch differ from those of task %d", first);
    }
    return t == g->output_tensor[g->output_offset[op]]
               ? executed(check, value, op, d->task_micro[first])
               : ESP_OK;
}

static bool same_micro(const esp_deployment_t *d, int32_t a, int32_t b)
{
    return d->value_micro[a] == d->value_micro[b];
}

/* dst is written by the movement, or, in a broadcast, is there already. */
static esp_status_t check_brought(esp_i_check_t *check, int32_t value)
{
    const esp_deployment_t *d = check->d;
    int32_t src = check->value_source[value], task = ESP_NONE;
    for (int32_t k = 0; k < esp_i_check_slots(d, value); k++) {
        int32_t b = d->value_buffer[value] + k, writer = check->writer[b];
        int32_t from = esp_i_check_buffer(d, src, d->buffer_class[b]);
        if (writer == ESP_NONE) {
            if (from == ESP_NONE || !esp_i_check_same_content(d, from, b))
                return esp_i_check_value_fail(check, value, "nothing brings it to class %d",
                                              d->buffer_class[b]);
            continue;
        }
        if (d->task_kind[writer] != ESP_TASK_COMM || (task != ESP_NONE && writer != task))
            return esp_i_check_value_fail(check, value, "tasks %d and %d both make it", task,
                                          writer);
        task = writer;
    }
    if (src >= value)
        return esp_i_check_value_fail(check, value, "it is made of value %d, a later one", src);
    if (d->value_tensor[src] != d->value_tensor[value] || !same_micro(d, src, value))
        return esp_i_check_value_fail(check, value, "it is brought from %s, micro-batch %d",
                                      check->g->tensor_name[d->value_tensor[src]],
                                      d->value_micro[src]);
    check->value_terms[value] = check->value_terms[src];
    return ESP_OK;
}

/* Rows of a value that is replicated on the class. */
static esp_status_t check_rows(esp_i_check_t *check, int32_t value, const makers_t *makers)
{
    const esp_deployment_t *d = check->d;
    if (makers->slice != esp_i_check_slots(d, value) || d->value_form[value] != ESP_FORM_SPLIT)
        return esp_i_check_value_fail(check, value, "rows are taken, but not all of it is rows");
    for (int32_t k = 0; k < makers->slice; k++) {
        int32_t task = check->writer[d->value_buffer[value] + k];
        if (d->read_offset[task + 1] - d->read_offset[task] != 1 ||
            d->write_offset[task + 1] - d->write_offset[task] != 1 ||
            d->read_buffer[d->read_offset[task]] == ESP_NONE)
            return esp_i_check_task_fail(check, task, "rows are taken from one buffer to another");
        int32_t src = d->buffer_value[d->read_buffer[d->read_offset[task]]];
        if (src >= value || d->value_tensor[src] != d->value_tensor[value] ||
            !same_micro(d, src, value) || d->value_form[src] != ESP_FORM_REPLICATED)
            return esp_i_check_task_fail(check, task,
                                         "takes rows of %s, micro-batch %d, which is not the "
                                         "replicated %s",
                                         check->g->tensor_name[d->value_tensor[src]],
                                         d->value_micro[src],
                                         check->g->tensor_name[d->value_tensor[value]]);
        check->value_terms[value] = check->value_terms[src];
    }
    return ESP_OK;
}

/* Whether `value` is `src` on the same devices, or rows of it that lie together. */
static bool aliases(const esp_deployment_t *d, int32_t src, int32_t value)
{
    bool rows = d->value_form[value] == ESP_FORM_SPLIT;
    if (src >= value || d->value_tensor[src] != d->value_tensor[value] ||
        !same_micro(d, src, value) || d->value_form[src] != ESP_FORM_REPLICATED ||
        d->value_form[value] == ESP_FORM_PARTIAL || (rows && d->value_view[value].outer != 1))
        return false;
    for (int32_t k = 0; k < esp_i_check_slots(d, value); k++) {
        int32_t b = d->value_buffer[value] + k;
        int32_t from = esp_i_check_buffer(d, src, d->buffer_class[b]);
        if (from == ESP_NONE || !esp_i_check_same_content(d, from, b))
            return false;
    }
    return true;
}

static bool is_free(const esp_graph_t *g, esp_tensor_id_t t)
{
    return g->tensor_producer[t] == ESP_NONE && g->tensor_next[t] == ESP_NONE;
}

/* A sum that lacks nothing carries out its op. */
static esp_status_t check_summed(esp_i_check_t *check, int32_t value, int32_t micro)
{
    ESP_TRY(esp_i_check_sum(check, value));
    if (check->value_terms[value] || check->value_sums[value])
        return ESP_OK;
    return executed(check, value, check->g->tensor_producer[check->d->value_tensor[value]], micro);
}

/* No task writes it: it is kept from step to step, or an alias. */
static esp_status_t check_unwritten(esp_i_check_t *check, int32_t value)
{
    const esp_deployment_t *d = check->d;
    esp_tensor_id_t t = d->value_tensor[value];
    int32_t n = esp_i_check_slots(d, value), own = 0;
    for (int32_t k = 0; k < n; k++) {
        int32_t b = d->value_buffer[value] + k;
        own += d->buffer_root[b] == b && d->buffer_resident[b] && d->buffer_producer[b] == ESP_NONE;
    }
    bool there = own == n && check->g->tensor_producer[t] == ESP_NONE;
    if (there && d->value_form[value] != ESP_FORM_PARTIAL)
        return ESP_OK; /* one of a tensor with a next version is its home: see check_cover.c */
    for (int32_t i = check->value_of_offset[t]; i < check->value_of_offset[t + 1]; i++)
        if (aliases(d, check->value_of[i], value)) {
            check->value_terms[value] = check->value_terms[check->value_of[i]];
            return ESP_OK;
        }
    if (check->g->tensor_producer[t] == ESP_NONE)
        return esp_i_check_value_fail(check, value,
                                      is_free(check->g, t)
                                          ? "it is neither there before the step nor an alias"
                                          : "it is neither the home of the parameter nor a copy");
    return check_summed(check, value, d->value_micro[value]);
}

static esp_status_t check_value(esp_i_check_t *check, int32_t value)
{
    const esp_deployment_t *d = check->d;
    makers_t makers = makers_of(check, value);
    if (makers.comm > 0 || check->value_source[value] != ESP_NONE)
        return check->value_source[value] == ESP_NONE
                   ? esp_i_check_value_fail(check, value,
                                            "a movement writes it that does not bring it")
                   : check_brought(check, value);
    if (makers.compute > 0)
        return check_computed(check, value, &makers);
    if (makers.slice > 0)
        return check_rows(check, value, &makers);
    if (makers.sum == 0)
        return check_unwritten(check, value);
    return check_summed(check, value, d->task_micro[makers.task]);
}

esp_status_t esp_i_check_values(esp_i_check_t *check)
{
    for (int32_t v = 0; v < check->d->n_values; v++)
        ESP_TRY(check_value(check, v));
    return ESP_OK;
}
