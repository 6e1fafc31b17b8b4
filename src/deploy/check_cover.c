/* Nothing is left out: every op is carried out, every parameter updated in its home. */
#include "deploy/check.h"

/* An op runs once for the whole batch, or once for each micro-batch, or both. */
static esp_status_t check_executed(esp_i_check_t *check, esp_op_id_t op)
{
    const esp_graph_t *g = check->g;
    const int32_t m = check->d->micro_batches;
    const uint8_t *times = check->executed + (int64_t)op * (m + 1);
    int32_t parts = 0;
    for (int32_t k = 0; k < m; k++)
        parts += times[1 + k];
    if (parts > 0 && parts < m)
        return esp_i_check_fail(check, "op %s is carried out for %d of %d micro-batches",
                                g->op_name[op], parts, m);
    if (parts == 0 && times[0] == 0)
        return esp_i_check_fail(check, "op %s is not carried out", g->op_name[op]);
    if (g->op_phase[op] == ESP_PHASE_UPDATE && parts > 0)
        return esp_i_check_fail(check, "op %s of the update is carried out per micro-batch",
                                g->op_name[op]);
    return ESP_OK;
}

/* The value of t that lives between the steps; ESP_NONE and an error unless there is just one. */
static esp_status_t home_of(esp_i_check_t *check, esp_tensor_id_t t, int32_t *home_out)
{
    const esp_deployment_t *d = check->d;
    *home_out = ESP_NONE;
    for (int32_t i = check->value_of_offset[t]; i < check->value_of_offset[t + 1]; i++) {
        int32_t v = check->value_of[i], b = d->value_buffer[v];
        if (!d->buffer_resident[b] || d->buffer_root[b] != b)
            continue;
        if (*home_out != ESP_NONE)
            return esp_i_check_value_fail(check, v, "value %d is its home too", *home_out);
        *home_out = v;
    }
    if (*home_out == ESP_NONE)
        return esp_i_check_fail(check, "%s has no home", check->g->tensor_name[t]);
    return ESP_OK;
}

static bool in_place(const esp_i_check_t *check, int32_t next, int32_t home)
{
    const esp_deployment_t *d = check->d;
    bool same = d->value_mesh[next] == d->value_mesh[home] &&
                d->value_form[next] == d->value_form[home] &&
                (d->value_form[home] != ESP_FORM_SPLIT ||
                 (d->value_share[next] == d->value_share[home] &&
                  esp_i_check_same_view(d->value_view[next], d->value_view[home])));
    for (int32_t k = 0; k < esp_i_check_slots(d, next) && same; k++)
        same = d->buffer_root[d->value_buffer[next] + k] ==
                   d->buffer_root[d->value_buffer[home] + k] &&
               check->writer[d->value_buffer[next] + k] != ESP_NONE;
    return same;
}

static esp_status_t check_update(esp_i_check_t *check, esp_tensor_id_t t)
{
    const esp_graph_t *g = check->g;
    esp_tensor_id_t next = g->tensor_root[g->tensor_next[t]];
    int32_t home, updates = 0;
    ESP_TRY(home_of(check, t, &home));
    for (int32_t i = check->value_of_offset[next]; i < check->value_of_offset[next + 1]; i++)
        updates += in_place(check, check->value_of[i], home);
    if (updates != 1)
        return esp_i_check_value_fail(check, home, "it is updated %d times in its home", updates);
    return ESP_OK;
}

/* What a task may write into memory that something else had: the next version, a running sum, the
 * result of an all-reduce. Only those work element by element. */
static esp_status_t check_rewrite(esp_i_check_t *check, int32_t buffer)
{
    const esp_deployment_t *d = check->d;
    int32_t task = check->writer[buffer], value = d->buffer_value[buffer];
    int32_t root = d->buffer_root[buffer];
    esp_tensor_id_t old = d->value_tensor[d->buffer_value[root]], t = d->value_tensor[value];
    bool fine = false;
    switch ((esp_task_kind_t)d->task_kind[task]) {
    case ESP_TASK_COMPUTE:
        fine = check->g->tensor_next[old] != ESP_NONE &&
               check->g->tensor_root[check->g->tensor_next[old]] == t;
        break;
    case ESP_TASK_ADD:
        fine = check->value_sums[value] > 0 ||
               (check->g->tensor_next[old] != ESP_NONE && check->g->tensor_next[old] == t);
        break;
    case ESP_TASK_COMM: {
        int32_t src = check->value_source[value];
        int32_t from = esp_i_check_buffer(d, src, d->buffer_class[buffer]);
        fine = d->comm_kind[d->task_comm[task]] == ESP_COMM_ALLREDUCE && from != ESP_NONE &&
               d->buffer_root[from] == root;
        break;
    }
    case ESP_TASK_SLICE:
        break;
    }
    return fine ? ESP_OK
                : esp_i_check_task_fail(check, task,
                                        "writes %s into the memory of %s, which it does not "
                                        "replace",
                                        check->g->tensor_name[t], check->g->tensor_name[old]);
}

esp_status_t esp_i_check_cover(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    const esp_graph_t *g = check->g;
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        if (g->op_kind[op] != ESP_KIND_RESHAPE)
            ESP_TRY(check_executed(check, op));
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++)
        if (g->tensor_next[t] != ESP_NONE)
            ESP_TRY(check_update(check, t));
    for (int32_t b = 0; b < d->n_buffers; b++)
        if (check->writer[b] != ESP_NONE && d->buffer_root[b] != b)
            ESP_TRY(check_rewrite(check, b));
    return ESP_OK;
}
