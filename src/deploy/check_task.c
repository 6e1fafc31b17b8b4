/* What tasks read and write: forms of operands by the factors of ops, ends of movements. */
#include "deploy/check.h"

/* ---- operands ------------------------------------------------------------------------------ */

/* One operand of a compute task: inputs first, then outputs. */
typedef struct operand {
    int32_t index, buffer, value;
    bool is_input;
} operand_t;

static const char *const form_text[] = {"replicated", "split", "partial"};

/* The operand that reads or writes nothing has buffer and value ESP_NONE. */
static operand_t operand_of(const esp_deployment_t *d, int32_t task, int32_t index)
{
    int32_t n_in = d->read_offset[task + 1] - d->read_offset[task];
    operand_t o = {.index = index, .is_input = index < n_in};
    o.buffer = o.is_input ? d->read_buffer[d->read_offset[task] + index]
                          : d->write_buffer[d->write_offset[task] + index - n_in];
    o.value = o.buffer == ESP_NONE ? ESP_NONE : d->buffer_value[o.buffer];
    return o;
}

static esp_status_t operand_fail(esp_i_check_t *check, int32_t task, operand_t o, const char *text)
{
    const esp_deployment_t *d = check->d;
    int32_t n_in = d->read_offset[task + 1] - d->read_offset[task];
    return esp_i_check_task_fail(
        check, task, "%s %d (%s, %s on mesh %d) %s", o.is_input ? "input" : "output",
        o.is_input ? o.index : o.index - n_in, check->g->tensor_name[d->value_tensor[o.value]],
        form_text[d->value_form[o.value]], d->value_mesh[o.value], text);
}

/* The micro-batches of what a task reads and writes are those of the task. */
static esp_status_t check_micro(esp_i_check_t *check, int32_t task, operand_t o)
{
    const esp_deployment_t *d = check->d;
    int32_t micro = d->value_micro[o.value], own = d->task_micro[task];
    int32_t writer = check->writer[o.buffer];
    if (micro == own) {
        bool summed = own == ESP_NONE ? writer != ESP_NONE && d->task_micro[writer] != ESP_NONE &&
                                            check->value_sums[o.value] != d->micro_batches
                                      : o.is_input && check->value_sums[o.value] > 0;
        return summed ? operand_fail(check, task, o, "does not hold the micro-batches it should")
                      : ESP_OK;
    }
    bool any =
        o.is_input && micro == ESP_NONE && !check->g->tensor_batch[d->value_tensor[o.value]].extent;
    return any ? ESP_OK : operand_fail(check, task, o, "is of another micro-batch");
}

static esp_status_t check_operand(esp_i_check_t *check, int32_t task, operand_t o,
                                  esp_tensor_id_t tensor, int32_t mesh)
{
    const esp_deployment_t *d = check->d;
    if (tensor == ESP_NONE || o.buffer == ESP_NONE)
        return tensor == ESP_NONE && o.buffer == ESP_NONE
                   ? ESP_OK
                   : esp_i_check_task_fail(check, task, "operand %d is %s", o.index,
                                           tensor == ESP_NONE ? "none of the op's" : "missing");
    if (d->buffer_class[o.buffer] != d->task_class[task])
        return operand_fail(check, task, o, "is on another device class");
    if (d->value_tensor[o.value] != check->g->tensor_root[tensor])
        return operand_fail(check, task, o, "is another tensor than the op's");
    if (d->value_mesh[o.value] != mesh)
        return operand_fail(check, task, o, "is on another mesh than the op");
    if (o.is_input && check->value_terms[o.value])
        return operand_fail(check, task, o, "is a sum that lacks addends");
    return check_micro(check, task, o);
}

/* ---- forms --------------------------------------------------------------------------------- */

static esp_status_t need_form(esp_i_check_t *check, int32_t task, operand_t o, esp_form_t form)
{
    if (o.value == ESP_NONE || check->d->value_form[o.value] == form)
        return ESP_OK;
    static const char *const needs[] = {"must be replicated", "must be split", "must be partial"};
    return operand_fail(check, task, o, needs[form]);
}

static esp_status_t check_bound(esp_i_check_t *check, int32_t task, operand_t o,
                                esp_factor_t factor, esp_share_t share)
{
    const esp_deployment_t *d = check->d;
    esp_view_t view = {0, 0, 0};
    switch (esp_graph_bind(check->g, d->task_op[task], factor, o.index, &view)) {
    case ESP_BIND_CARRY:
        ESP_TRY(need_form(check, task, o, ESP_FORM_SPLIT));
        if (o.value != ESP_NONE && !esp_i_check_same_view(d->value_view[o.value], view))
            return operand_fail(check, task, o, "is split by another view than the op's factor");
        if (o.value != ESP_NONE && d->value_share[o.value] != share)
            return operand_fail(check, task, o, "has other shares than the op");
        return ESP_OK;
    case ESP_BIND_LOCAL:
        return need_form(check, task, o,
                         d->sync_batchnorm ? ESP_FORM_REPLICATED : ESP_FORM_PARTIAL);
    case ESP_BIND_SUM:
        return need_form(check, task, o, ESP_FORM_PARTIAL);
    case ESP_BIND_ABSENT:
        return need_form(check, task, o, ESP_FORM_REPLICATED);
    }
    return ESP_OK;
}

/* Split by a factor: the batch, or all elements of the first operand. */
static esp_status_t check_factor(esp_i_check_t *check, int32_t task, int32_t n_operands)
{
    const esp_deployment_t *d = check->d;
    const esp_graph_t *g = check->g;
    esp_op_id_t op = d->task_op[task];
    esp_factor_t factor = g->op_batch[op];
    esp_share_t share = ESP_SHARE_BATCH;
    if (d->task_mode[task] == ESP_MODE_SHARD) {
        esp_tensor_id_t t = g->input_tensor[g->input_offset[op]];
        esp_view_t flat = {1, t == ESP_NONE ? 0 : g->tensor_elements[t], 1};
        share = ESP_SHARE_EVEN;
        if (g->op_phase[op] != ESP_PHASE_UPDATE || flat.extent == 0 ||
            !esp_graph_factor(g, op, 0, flat, &factor))
            return esp_i_check_task_fail(check, task, "the elements of this op cannot be split");
    } else if (factor.dim == ESP_NONE) {
        return esp_i_check_task_fail(check, task, "the batch does not split this op");
    }
    for (int32_t i = 0; i < n_operands; i++)
        ESP_TRY(check_bound(check, task, operand_of(d, task, i), factor, share));
    return ESP_OK;
}

/* Every device computes the whole, or the addends of a linear set pass through. */
static esp_status_t check_whole(esp_i_check_t *check, int32_t task, int32_t n_in, int32_t n_out)
{
    const esp_deployment_t *d = check->d;
    const esp_graph_t *g = check->g;
    esp_op_id_t op = d->task_op[task];
    uint64_t partial = 0, present = 0;
    for (int32_t i = 0; i < n_in; i++) {
        operand_t o = operand_of(d, task, i);
        uint64_t bit = (uint64_t)1 << (i < 63 ? i : 63);
        if (o.value == ESP_NONE)
            continue;
        present |= bit;
        if (d->value_form[o.value] == ESP_FORM_PARTIAL)
            partial |= bit;
        else
            ESP_TRY(need_form(check, task, o, ESP_FORM_REPLICATED));
    }
    bool linear = false;
    for (int32_t l = g->linear_offset[op]; l < g->linear_offset[op + 1]; l++)
        linear = linear || (g->linear_mask[l] & present) == partial;
    if (partial && !linear)
        return esp_i_check_task_fail(check, task,
                                     "its partial inputs are not a set in which it is linear");
    for (int32_t i = 0; i < n_out; i++)
        ESP_TRY(need_form(check, task, operand_of(d, task, n_in + i),
                          partial ? ESP_FORM_PARTIAL : ESP_FORM_REPLICATED));
    return ESP_OK;
}

static esp_status_t check_compute(esp_i_check_t *check, int32_t task)
{
    const esp_deployment_t *d = check->d;
    const esp_graph_t *g = check->g;
    esp_op_id_t op = d->task_op[task];
    int32_t n_in = g->input_offset[op + 1] - g->input_offset[op];
    int32_t n_out = g->output_offset[op + 1] - g->output_offset[op];
    if (g->op_kind[op] == ESP_KIND_RESHAPE)
        return esp_i_check_task_fail(check, task, "a reshape is an alias, not a task");
    if (d->read_offset[task + 1] - d->read_offset[task] != n_in ||
        d->write_offset[task + 1] - d->write_offset[task] != n_out || n_out == 0)
        return esp_i_check_task_fail(check, task, "the op has %d inputs and %d outputs", n_in,
                                     n_out);
    int32_t mesh = d->value_mesh[d->buffer_value[d->write_buffer[d->write_offset[task]]]];
    for (int32_t i = 0; i < n_in; i++)
        ESP_TRY(check_operand(check, task, operand_of(d, task, i),
                              g->input_tensor[g->input_offset[op] + i], mesh));
    for (int32_t i = 0; i < n_out; i++)
        ESP_TRY(check_operand(check, task, operand_of(d, task, n_in + i),
                              g->output_tensor[g->output_offset[op] + i], mesh));
    if (d->task_mode[task] == ESP_MODE_WHOLE)
        return check_whole(check, task, n_in, n_out);
    if (esp_i_check_devices(d, mesh) == 1)
        return esp_i_check_task_fail(check, task, "is split over one device");
    return check_factor(check, task, n_in + n_out);
}

/* ---- sums and rows ------------------------------------------------------------------------- */

static esp_status_t check_local(esp_i_check_t *check, int32_t task)
{
    const esp_deployment_t *d = check->d;
    if (d->write_offset[task + 1] - d->write_offset[task] != 1)
        return esp_i_check_task_fail(check, task, "writes %d buffers, not one",
                                     d->write_offset[task + 1] - d->write_offset[task]);
    int32_t out = d->write_buffer[d->write_offset[task]];
    if (d->buffer_class[out] != d->task_class[task])
        return esp_i_check_task_fail(check, task, "writes to another device class");
    for (int32_t r = d->read_offset[task]; r < d->read_offset[task + 1]; r++) {
        int32_t b = d->read_buffer[r];
        if (b == ESP_NONE || d->buffer_class[b] != d->task_class[task])
            return esp_i_check_task_fail(check, task, "reads from another device class");
        if (r > d->read_offset[task] && d->buffer_root[b] == d->buffer_root[out])
            return esp_i_check_task_fail(check, task, "destroys addend %d before it is read",
                                         r - d->read_offset[task]);
    }
    return ESP_OK;
}

/* ---- movements ----------------------------------------------------------------------------- */

/* The forms of both ends of a movement (esp_comm_t), and what else has to hold. */
static const char *ends_problem(const esp_deployment_t *d, esp_comm_t kind, int32_t src,
                                int32_t dst)
{
    esp_form_t from = (esp_form_t)d->value_form[src], to = (esp_form_t)d->value_form[dst];
    bool same_mesh = d->value_mesh[src] == d->value_mesh[dst];
    bool same_view = esp_i_check_same_view(d->value_view[src], d->value_view[dst]);
    const esp_form_t whole = ESP_FORM_REPLICATED, rows = ESP_FORM_SPLIT, sum = ESP_FORM_PARTIAL;
    switch (kind) {
    case ESP_COMM_ALLREDUCE:
        return from == sum && to == whole && same_mesh ? NULL : "partial to replicated on one mesh";
    case ESP_COMM_REDUCE_SCATTER:
        return from == sum && to == rows && same_mesh ? NULL : "partial to split on one mesh";
    case ESP_COMM_ALL_GATHER:
        return from == rows && to == whole && same_mesh ? NULL : "split to replicated on one mesh";
    case ESP_COMM_REDUCE:
        return from == sum && to == whole && esp_i_check_devices(d, d->value_mesh[dst]) == 1
                   ? NULL
                   : "partial to one device";
    case ESP_COMM_BROADCAST:
        return from == whole && to == whole ? NULL : "replicated to replicated";
    case ESP_COMM_EXCHANGE:
        return from == rows && to == rows && same_view ? NULL : "split to split by one view";
    case ESP_COMM_GATHER:
        return from == rows && to == whole ? NULL : "split to replicated";
    case ESP_COMM_SCATTER:
        return from == whole && to == rows ? NULL : "replicated to split";
    case ESP_COMM_ALL_TO_ALL:
        return from == rows && to == rows && !same_view ? NULL : "split to split by another view";
    case ESP_COMM_COUNT:
        break;
    }
    return "a movement";
}

static esp_status_t check_pair(esp_i_check_t *check, int32_t task, int32_t pair)
{
    const esp_deployment_t *d = check->d;
    int32_t comm = d->task_comm[task], first = d->comm_pair_offset[comm];
    int32_t src = d->comm_src[pair], dst = d->comm_dst[pair];
    const char *problem = ends_problem(d, (esp_comm_t)d->comm_kind[comm], src, dst);
    if (problem)
        return esp_i_check_task_fail(check, task,
                                     "moves %s, %s on mesh %d to %s on mesh %d; it is "
                                     "from %s",
                                     check->g->tensor_name[d->value_tensor[src]],
                                     form_text[d->value_form[src]], d->value_mesh[src],
                                     form_text[d->value_form[dst]], d->value_mesh[dst], problem);
    if (d->value_mesh[src] != d->value_mesh[d->comm_src[first]] ||
        d->value_mesh[dst] != d->value_mesh[d->comm_dst[first]])
        return esp_i_check_task_fail(check, task, "moves values between different meshes at once");
    bool body =
        d->value_micro[src] != d->task_micro[task] &&
        (d->value_micro[src] != ESP_NONE || check->g->tensor_batch[d->value_tensor[src]].extent);
    if (body)
        return esp_i_check_task_fail(check, task, "moves %s of micro-batch %d",
                                     check->g->tensor_name[d->value_tensor[src]],
                                     d->value_micro[src]);
    return ESP_OK;
}

/* Reads the buffers of its sources in order; writes those of its destinations, or leaves what a
 * broadcast finds there. */
static esp_status_t check_moved(esp_i_check_t *check, int32_t task)
{
    const esp_deployment_t *d = check->d;
    int32_t comm = d->task_comm[task], r = d->read_offset[task], w = d->write_offset[task];
    for (int32_t p = d->comm_pair_offset[comm]; p < d->comm_pair_offset[comm + 1]; p++) {
        int32_t src = d->comm_src[p], dst = d->comm_dst[p];
        for (int32_t k = 0; k < esp_i_check_slots(d, src); k++, r++)
            if (r >= d->read_offset[task + 1] || d->read_buffer[r] != d->value_buffer[src] + k)
                return esp_i_check_task_fail(check, task, "does not read all of value %d", src);
        for (int32_t k = 0; k < esp_i_check_slots(d, dst); k++) {
            int32_t b = d->value_buffer[dst] + k;
            if (w < d->write_offset[task + 1] && d->write_buffer[w] == b)
                w++;
            else if (d->comm_kind[comm] != ESP_COMM_BROADCAST || check->writer[b] != ESP_NONE)
                return esp_i_check_task_fail(check, task, "does not write all of value %d", dst);
        }
    }
    if (r != d->read_offset[task + 1] || w != d->write_offset[task + 1])
        return esp_i_check_task_fail(check, task, "reads or writes more than it moves");
    return ESP_OK;
}

static esp_status_t check_members(esp_i_check_t *check, int32_t task)
{
    const esp_deployment_t *d = check->d;
    int32_t comm = d->task_comm[task], pair = d->comm_pair_offset[comm];
    int32_t first = d->comm_class_offset[comm], end = d->comm_class_offset[comm + 1], found = 0;
    int32_t src = d->comm_src[pair], dst = d->comm_dst[pair];
    for (int32_t i = first; i < end; i++) {
        bool member = esp_i_check_buffer(d, src, d->comm_class[i]) != ESP_NONE ||
                      esp_i_check_buffer(d, dst, d->comm_class[i]) != ESP_NONE;
        for (int32_t j = first; j < i; j++)
            member = member && d->comm_class[j] != d->comm_class[i];
        if (!member)
            return esp_i_check_task_fail(check, task, "class %d takes part without cause",
                                         d->comm_class[i]);
    }
    found = esp_i_check_slots(d, src);
    for (int32_t k = 0; k < esp_i_check_slots(d, dst); k++)
        found += esp_i_check_buffer(d, src, d->buffer_class[d->value_buffer[dst] + k]) == ESP_NONE;
    if (found != end - first)
        return esp_i_check_task_fail(check, task, "%d classes take part, its ends have %d",
                                     end - first, found);
    return ESP_OK;
}

static esp_status_t check_comm(esp_i_check_t *check, int32_t task)
{
    const esp_deployment_t *d = check->d;
    int32_t comm = d->task_comm[task];
    esp_comm_t kind = (esp_comm_t)d->comm_kind[comm];
    bool collective = kind == ESP_COMM_ALLREDUCE || kind == ESP_COMM_REDUCE_SCATTER ||
                      kind == ESP_COMM_ALL_GATHER || kind == ESP_COMM_ALL_TO_ALL;
    double bytes = 0;
    if (d->comm_pair_offset[comm] == d->comm_pair_offset[comm + 1])
        return esp_i_check_task_fail(check, task, "moves nothing");
    for (int32_t p = d->comm_pair_offset[comm]; p < d->comm_pair_offset[comm + 1]; p++) {
        esp_tensor_id_t t = d->value_tensor[d->comm_src[p]];
        bool part = d->value_micro[d->comm_src[p]] != ESP_NONE && check->g->tensor_batch[t].extent;
        ESP_TRY(check_pair(check, task, p));
        bytes += d->cost->tensor_bytes[t] / (part ? d->micro_batches : 1);
    }
    double slack = d->comm_pair_offset[comm + 1] - d->comm_pair_offset[comm] + 1;
    if ((double)d->comm_bytes[comm] > bytes + slack || (double)d->comm_bytes[comm] < bytes - slack)
        return esp_i_check_task_fail(check, task, "is priced for %lld bytes and moves %.0f",
                                     (long long)d->comm_bytes[comm], bytes);
    if (d->comm_collective[comm] != collective)
        return esp_i_check_task_fail(check, task, "is %sin the collective stream",
                                     collective ? "not " : "");
    ESP_TRY(check_members(check, task));
    return check_moved(check, task);
}

esp_status_t esp_i_check_tasks(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        esp_status_t status = ESP_OK;
        switch ((esp_task_kind_t)d->task_kind[t]) {
        case ESP_TASK_COMPUTE:
            status = check_compute(check, t);
            break;
        case ESP_TASK_ADD:
        case ESP_TASK_SLICE:
            status = check_local(check, t);
            break;
        case ESP_TASK_COMM:
            status = check_comm(check, t);
            break;
        }
        ESP_TRY(status);
    }
    return ESP_OK;
}
