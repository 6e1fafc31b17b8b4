/* What one op makes: values, and tasks, one per class of its mesh. */
#include "deploy/lowerer.h"

/* ---- outputs -----------------------------------------------------------------------------------
 */

/* A new version lives in the memory of the old one. */
static void version_in_place(esp_lowerer_t *lw, int32_t value, const esp_i_want_t *want)
{
    esp_tensor_id_t old = lw->facts.previous[want->root];
    if (old == ESP_NONE)
        return;
    esp_i_want_t home = *want;
    home.root = old;
    int32_t from = esp_i_find(lw, &home);
    if (from == ESP_NONE)
        return;
    int32_t n = lw->local.data[home.mesh].n_classes;
    for (int32_t slot = 0; slot < n; slot++) {
        int32_t b = lw->values.buffer[value] + slot, h = lw->values.buffer[from] + slot;
        lw->buffers.root[b] = lw->buffers.root[h];
        lw->buffers.resident[b] = lw->buffers.resident[h];
    }
}

/* Brings *want to its normal form. */
int32_t esp_i_output_new(esp_lowerer_t *lw, esp_i_want_t *want)
{
    esp_i_want_normalise(lw, want);
    int32_t value = esp_i_value_new(lw, want);
    version_in_place(lw, value, want);
    return value;
}

/* ---- durations -------------------------------------------------------------------------------
 */

static double op_part(const esp_lowerer_t *lw, const esp_i_compute_t *low, int32_t slot)
{
    const esp_i_local_mesh_t *local = &lw->local.data[low->mesh];
    if (low->mode == ESP_MODE_SHARD)
        return 1.0 / local->n;
    if (low->mode == ESP_MODE_BATCH) {
        double units = (double)lw->mesh_class_units.data[local->class_first + slot];
        double micro = lw->micro == ESP_NONE ? lw->strategy->micro_batches : 1;
        return units * micro / (double)lw->graph->batch;
    }
    bool rows = lw->micro != ESP_NONE && lw->graph->op_batch[low->op].dim != ESP_NONE;
    return rows ? 1.0 / lw->strategy->micro_batches : 1.0;
}

static void durations_find(const esp_lowerer_t *lw, const esp_i_compute_t *low, int64_t *ns)
{
    const esp_i_local_mesh_t *local = &lw->local.data[low->mesh];
    const int32_t *classes = lw->mesh_class.data + local->class_first;
    for (int32_t slot = 0; slot < local->n_classes; slot++)
        ns[slot] = esp_cost_op_ns(lw->cost, low->op, lw->class_type[classes[slot]],
                                  op_part(lw, low, slot), low->mode == ESP_MODE_SHARD);
}

/* From one strategy to the next most ops stay on their devices: the last durations are kept. */
static void durations_emit(esp_lowerer_t *lw, const esp_i_compute_t *low, int64_t *ns)
{
    const esp_i_local_mesh_t *local = &lw->local.data[low->mesh];
    size_t bytes = (size_t)local->n_classes * sizeof *ns;
    uint64_t way = (uint64_t)lw->strategy->micro_batches << 32 | (uint64_t)low->mode << 1;
    esp_i_duration_key_t key = {local->places, way | (lw->micro != ESP_NONE)};
    esp_i_duration_key_t *known = &lw->duration_key[low->op];
    int64_t *known_ns = lw->duration_ns + (int64_t)low->op * ESP_I_KNOWN_CLASSES;
    if (known->places == key.places && known->way == key.way) {
        memcpy(ns, known_ns, bytes);
        return;
    }
    durations_find(lw, low, ns);
    if (local->n_classes > ESP_I_KNOWN_CLASSES)
        return;
    *known = key;
    memcpy(known_ns, ns, bytes);
}

/* ---- tasks -----------------------------------------------------------------------------------
 */

/* The buffer of each class of the op's mesh in one input, every `stride` elements. */
static void input_emit(const esp_lowerer_t *lw, const esp_i_local_mesh_t *local, int32_t value,
                       int32_t *read, int32_t stride)
{
    const int32_t *classes = lw->mesh_class.data + local->class_first;
    int32_t first = lw->values.buffer[value], mesh = lw->values.mesh[value], n = local->n_classes;
    if (&lw->local.data[mesh] == local)
        for (int32_t slot = 0; slot < n; slot++)
            read[slot * stride] = first + slot;
    else
        for (int32_t slot = 0; slot < n; slot++)
            read[slot * stride] = first + esp_i_mesh_slot(lw, mesh, classes[slot]);
}

/* Each task of the op reads the buffer of its class of each input; reads are by task, then input.
 */
static void reads_emit(esp_lowerer_t *lw, const esp_i_compute_t *low, int32_t n_in)
{
    const esp_i_local_mesh_t *local = &lw->local.data[low->mesh];
    int32_t *read = lw->reads.data + lw->reads.count, n = local->n_classes;
    lw->reads.count += n * n_in;
    esp_dcheck(lw->reads.count <= lw->reads.capacity);
    for (int32_t i = 0; i < n_in; i++)
        if (low->in[i] != ESP_NONE)
            input_emit(lw, local, low->in[i], read + i, n_in);
        else
            for (int32_t slot = 0; slot < n; slot++)
                read[slot * n_in + i] = ESP_NONE;
}

/* Outputs lie on the mesh of the op; writes are by task, then output. */
static void writes_emit(esp_lowerer_t *lw, const esp_i_compute_t *low, int32_t n_out, int32_t task)
{
    int32_t n = lw->local.data[low->mesh].n_classes, first = lw->values.buffer[low->out[0]];
    for (int32_t i = 0; i < n_out; i++)
        if (lw->facts.previous[lw->values.tensor[low->out[i]]] == ESP_NONE)
            lw->values.maker[low->out[i]] = task;
    if (n_out == 1 && lw->values.maker[low->out[0]] == task) { /* the last value there is */
        esp_i_row_count(lw->writes.data + lw->writes.count, n, first, 1);
        esp_i_row_count(lw->buffers.producer + first, n, task, 1);
        lw->writes.count += n;
        return;
    }
    if (n_out == 1) {
        esp_i_row_write(lw, n, first, task, 1);
        return;
    }
    for (int32_t slot = 0; slot < n; slot++)
        for (int32_t i = 0; i < n_out; i++)
            esp_i_task_write(lw, task + slot, lw->values.buffer[low->out[i]] + slot);
}

static void micro_emit(const esp_lowerer_t *lw, int16_t *row, int32_t n)
{
    for (uint32_t k = 0, end = esp_i_blocks(n); k != end; k++)
        row[k] = (int16_t)lw->micro;
}

void esp_i_compute(esp_lowerer_t *lw, const esp_i_compute_t *low)
{
    const esp_graph_t *g = lw->graph;
    const esp_i_local_mesh_t *local = &lw->local.data[low->mesh];
    const esp_i_tasks_t *tasks = &lw->tasks;
    int32_t n_in = g->input_offset[low->op + 1] - g->input_offset[low->op];
    int32_t n_out = g->output_offset[low->op + 1] - g->output_offset[low->op];
    int32_t n = local->n_classes, first = tasks->n;
    esp_i_row_mark(tasks->kind + first, n, ESP_TASK_COMPUTE);
    esp_i_row_mark(tasks->mode + first, n, (uint8_t)low->mode);
    esp_i_row_copy(tasks->class_ + first, n, lw->mesh_class.data + local->class_first);
    esp_i_row_fill(tasks->op + first, n, low->op);
    micro_emit(lw, tasks->micro + first, n);
    esp_i_row_fill(tasks->comm + first, n, ESP_NONE);
    esp_i_row_count(tasks->read_offset + first, n, lw->reads.count, n_in);
    esp_i_row_count(tasks->write_offset + first, n, lw->writes.count, n_out);
    durations_emit(lw, low, tasks->ns + first);
    lw->tasks.n += n;
    reads_emit(lw, low, n_in);
    writes_emit(lw, low, n_out, first);
}
