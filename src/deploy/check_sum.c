/*
 * Sums: every addend is in the sum exactly once on every device that has it.
 *
 * A sum of an op adds its inputs where they lie. It may lack some, as long as only the same op
 * reads it, which adds the others. An accumulation adds the result of a micro-batch to the sum of
 * those before it.
 */
#include "deploy/check.h"

static bool is_plain_sum(const esp_graph_t *g, esp_op_id_t op)
{
    if (op == ESP_NONE || g->op_kind[op] != ESP_KIND_ELTWISE ||
        g->op_attr[op].eltwise.code != ESP_ELT_ADD)
        return false;
    for (int32_t i = g->input_offset[op]; i < g->input_offset[op + 1]; i++)
        if (g->tensor_elements[g->input_tensor[i]] !=
            g->tensor_elements[g->output_tensor[g->output_offset[op]]])
            return false;
    return true;
}

/* How often `addend` goes into the buffer of `sum` in slot k: once if that is the addend itself. */
static int32_t times_in(const esp_i_check_t *check, int32_t sum, int32_t k, int32_t addend)
{
    const esp_deployment_t *d = check->d;
    int32_t b = d->value_buffer[sum] + k, task = check->writer[b], times = 0;
    int32_t from = esp_i_check_buffer(d, addend, d->buffer_class[b]);
    if (from == ESP_NONE)
        return 0;
    if (task == ESP_NONE)
        return esp_i_check_same_content(d, from, b);
    for (int32_t r = d->read_offset[task]; r < d->read_offset[task + 1]; r++)
        times += d->read_buffer[r] == from;
    return times;
}

/* A sum on a mesh adds what is partial, or whole on one device; a sum of whole tensors whole ones.
 */
static bool may_add(const esp_deployment_t *d, int32_t sum, int32_t addend)
{
    bool single = esp_i_check_devices(d, d->value_mesh[addend]) == 1;
    bool same_mesh = d->value_mesh[sum] == d->value_mesh[addend];
    if (addend >= sum)
        return false;
    switch ((esp_form_t)d->value_form[sum]) {
    case ESP_FORM_PARTIAL:
        return single || d->value_form[addend] == ESP_FORM_PARTIAL;
    case ESP_FORM_REPLICATED:
        return same_mesh && d->value_form[addend] == ESP_FORM_REPLICATED;
    case ESP_FORM_SPLIT:
        return same_mesh && d->value_form[addend] == ESP_FORM_SPLIT &&
               d->value_share[sum] == d->value_share[addend] &&
               esp_i_check_same_view(d->value_view[sum], d->value_view[addend]);
    }
    return false;
}

/*
 * Whether `addend` is in the sum `times` times on each of its devices, all of which belong to the
 * sum's mesh. Returns the number of buffers in question, 0 if not.
 */
static int32_t addend_slots(const esp_i_check_t *check, int32_t sum, int32_t addend, int32_t times)
{
    const esp_deployment_t *d = check->d;
    int32_t slots = 0;
    if (!may_add(d, sum, addend))
        return 0;
    for (int32_t k = 0; k < esp_i_check_slots(d, sum); k++) {
        int32_t class_ = d->buffer_class[d->value_buffer[sum] + k];
        if (esp_i_check_buffer(d, addend, class_) == ESP_NONE)
            continue;
        if (times_in(check, sum, k, addend) != times)
            return 0;
        slots++;
    }
    return slots == esp_i_check_slots(d, addend) ? slots : 0;
}

/* Addends that the tasks of a sum read; a buffer without task is its one addend. */
static int64_t addends_read(const esp_i_check_t *check, int32_t sum)
{
    const esp_deployment_t *d = check->d;
    int64_t n = 0;
    for (int32_t k = 0; k < esp_i_check_slots(d, sum); k++) {
        int32_t task = check->writer[d->value_buffer[sum] + k];
        n += task == ESP_NONE ? 1 : d->read_offset[task + 1] - d->read_offset[task];
    }
    return n;
}

/* ---- accumulation -----------------------------------------------------------------------------
 */

/* The tasks of a sum add values of its own tensor only. */
static bool is_accumulation(const esp_i_check_t *check, int32_t sum)
{
    const esp_deployment_t *d = check->d;
    bool any = false;
    for (int32_t k = 0; k < esp_i_check_slots(d, sum); k++) {
        int32_t task = check->writer[d->value_buffer[sum] + k];
        for (int32_t r = task == ESP_NONE ? 0 : d->read_offset[task];
             task != ESP_NONE && r < d->read_offset[task + 1]; r++) {
            int32_t b = d->read_buffer[r];
            any = true;
            if (b == ESP_NONE || d->value_tensor[d->buffer_value[b]] != d->value_tensor[sum])
                return false;
        }
    }
    return any;
}

static esp_status_t check_accumulation(esp_i_check_t *check, int32_t sum)
{
    const esp_deployment_t *d = check->d;
    int32_t task = ESP_NONE;
    for (int32_t k = 0; k < esp_i_check_slots(d, sum) && task == ESP_NONE; k++)
        task = check->writer[d->value_buffer[sum] + k];
    if (d->read_offset[task + 1] - d->read_offset[task] != 2)
        return esp_i_check_task_fail(check, task, "an accumulation adds two values, not %d",
                                     d->read_offset[task + 1] - d->read_offset[task]);
    int32_t before = d->buffer_value[d->read_buffer[d->read_offset[task]]];
    int32_t made = d->buffer_value[d->read_buffer[d->read_offset[task] + 1]];
    int32_t slots_before = addend_slots(check, sum, before, 1);
    int32_t slots_made = addend_slots(check, sum, made, 1);
    if (before == made || !slots_before || !slots_made ||
        slots_before + slots_made != addends_read(check, sum))
        return esp_i_check_task_fail(check, task,
                                     "does not add values %d and %d of %s on each of their devices",
                                     before, made, check->g->tensor_name[d->value_tensor[sum]]);
    int32_t count = check->value_sums[before] > 0 ? check->value_sums[before] : 1;
    if (d->task_micro[task] != count || d->value_micro[made] != count ||
        d->value_micro[before] != count - 1 || check->value_sums[made] ||
        check->value_terms[before] || check->value_terms[made])
        return esp_i_check_task_fail(
            check, task, "micro-batch %d of %s is added to a sum of %d of them",
            d->value_micro[made], check->g->tensor_name[d->value_tensor[sum]], count);
    check->value_sums[sum] = count + 1;
    return ESP_OK;
}

/* ---- sum of an op -------------------------------------------------------------------------------
 */

static bool right_micro(const esp_i_check_t *check, int32_t sum, int32_t addend)
{
    const esp_deployment_t *d = check->d;
    return d->value_micro[addend] == d->value_micro[sum] ||
           (d->value_micro[addend] == ESP_NONE &&
            !check->g->tensor_batch[d->value_tensor[addend]].extent);
}

/* Marks the inputs of tensor t as added if a value of it is in the sum as often as the op has it.
 */
static int64_t input_added(const esp_i_check_t *check, int32_t sum, esp_op_id_t op,
                           esp_tensor_id_t t, uint8_t *terms)
{
    const esp_graph_t *g = check->g;
    int32_t times = 0, slots = 0;
    for (int32_t i = g->input_offset[op]; i < g->input_offset[op + 1]; i++)
        times += g->tensor_root[g->input_tensor[i]] == t;
    for (int32_t i = check->value_of_offset[t]; i < check->value_of_offset[t + 1] && !slots; i++) {
        int32_t addend = check->value_of[i];
        if (!check->value_terms[addend] && right_micro(check, sum, addend))
            slots = addend_slots(check, sum, addend, times);
    }
    for (int32_t i = g->input_offset[op]; i < g->input_offset[op + 1] && slots; i++)
        if (g->tensor_root[g->input_tensor[i]] == t)
            terms[i - g->input_offset[op]]++;
    return (int64_t)slots * times;
}

/* A sum of the same op that lacks addends brings those that it has. */
static int64_t part_added(const esp_i_check_t *check, int32_t sum, esp_op_id_t op, uint8_t *terms)
{
    const esp_graph_t *g = check->g;
    esp_tensor_id_t t = check->d->value_tensor[sum];
    int64_t slots = 0;
    for (int32_t i = check->value_of_offset[t]; i < check->value_of_offset[t + 1] && !slots; i++) {
        int32_t part = check->value_of[i];
        if (!check->value_terms[part] || part >= sum || !right_micro(check, sum, part) ||
            !(slots = addend_slots(check, sum, part, 1)))
            continue;
        for (int32_t k = 0; k < g->input_offset[op + 1] - g->input_offset[op]; k++)
            terms[k] = (uint8_t)(terms[k] + check->value_terms[part][k]);
    }
    return slots;
}

static esp_status_t check_op_sum(esp_i_check_t *check, int32_t sum)
{
    const esp_deployment_t *d = check->d;
    const esp_graph_t *g = check->g;
    esp_tensor_id_t t = d->value_tensor[sum];
    esp_op_id_t op = g->tensor_producer[t];
    if (!is_plain_sum(g, op))
        return esp_i_check_value_fail(check, sum, "no task makes it, and it is no sum");
    int32_t n = g->input_offset[op + 1] - g->input_offset[op], has = 0;
    uint8_t *terms = esp_i_arena_alloc(&check->arena, n, 1);
    if (!terms)
        return esp_i_nomem(check->diag);
    int64_t added = part_added(check, sum, op, terms);
    for (int32_t i = 0; i < n; i++) {
        esp_tensor_id_t input = g->tensor_root[g->input_tensor[g->input_offset[op] + i]];
        bool seen = false;
        for (int32_t j = 0; j < i; j++)
            seen = seen || g->tensor_root[g->input_tensor[g->input_offset[op] + j]] == input;
        added += seen ? 0 : input_added(check, sum, op, input, terms);
    }
    for (int32_t i = 0; i < n; i++) {
        has += terms[i] == 1;
        if (terms[i] > 1)
            return esp_i_check_value_fail(check, sum, "input %d of op %s is added twice", i,
                                          g->op_name[op]);
    }
    if (added != addends_read(check, sum) || has == 0)
        return esp_i_check_value_fail(check, sum,
                                      "%lld buffers are added, of which %lld are inputs of op %s "
                                      "that are added on each of their devices",
                                      (long long)addends_read(check, sum), (long long)added,
                                      g->op_name[op]);
    check->value_terms[sum] = has < n ? terms : NULL;
    return ESP_OK;
}

esp_status_t esp_i_check_sum(esp_i_check_t *check, int32_t value)
{
    return is_accumulation(check, value) ? check_accumulation(check, value)
                                         : check_op_sum(check, value);
}
