/* Sums: of addends that lie anywhere, and over micro-batches. */
#include "deploy/lowerer.h"

static const esp_view_t no_view = {0, 0, 0};

/* The value of a tensor whose addends can be summed where they are: a partial, or one on one
 * device. */
static int32_t addend_value(const esp_lowerer_t *lw, esp_tensor_id_t root)
{
    for (int32_t v = lw->tensor_value[root]; v != ESP_NONE; v = lw->values.next[v])
        if (lw->values.form[v] == ESP_FORM_PARTIAL || esp_i_mesh_of(lw, lw->values.mesh[v])->n == 1)
            return v;
    return ESP_NONE;
}

bool esp_i_is_there(const esp_lowerer_t *lw, esp_tensor_id_t root, int32_t mesh)
{
    if (lw->facts.tensor_free[root])
        return true;
    for (int32_t v = lw->tensor_value[root]; v != ESP_NONE; v = lw->values.next[v])
        if (lw->values.form[v] == ESP_FORM_REPLICATED &&
            esp_i_mesh_contains(lw, lw->values.mesh[v], mesh))
            return true;
    return false;
}

static int32_t buffer_on(const esp_lowerer_t *lw, int32_t value, int32_t class_)
{
    return value == ESP_NONE
               ? ESP_NONE
               : lw->values.buffer[value] + esp_i_mesh_slot(lw, lw->values.mesh[value], class_);
}

/* Adds values on each class of `mesh`; a class with one addend keeps it (an alias). */
static void emit_sum(esp_lowerer_t *lw, esp_op_id_t op, int32_t n, const int32_t *addend,
                     int32_t sum)
{
    const esp_i_local_mesh_t local = lw->local.data[lw->values.mesh[sum]];
    for (int32_t slot = 0; slot < local.n_classes; slot++) {
        int32_t class_ = lw->mesh_class.data[local.class_first + slot], count = 0, only = ESP_NONE;
        int32_t b = lw->values.buffer[sum] + slot;
        for (int32_t i = 0; i < n; i++)
            if (esp_i_mesh_slot(lw, lw->values.mesh[addend[i]], class_) != ESP_NONE) {
                only = buffer_on(lw, addend[i], class_);
                count++;
            }
        if (count == 1) {
            lw->buffers.root[b] = lw->buffers.root[only];
            lw->buffers.producer[b] = lw->buffers.producer[only];
            lw->buffers.resident[b] = lw->buffers.resident[only];
            if (!lw->facts.tensor_read_once[lw->values.tensor[lw->buffers.value[only]]])
                lw->buffers.shared[lw->buffers.root[b]] = 1;
            continue;
        }
        int64_t ns = esp_cost_copy_ns(lw->cost, lw->class_type[class_],
                                      (double)(count + 1) * (double)lw->buffers.bytes[b]);
        int32_t task = esp_i_task_new(lw, ESP_TASK_ADD, ESP_MODE_WHOLE, class_, op, ns);
        for (int32_t i = 0; i < n; i++)
            if (esp_i_mesh_slot(lw, lw->values.mesh[addend[i]], class_) != ESP_NONE)
                esp_i_task_read(lw, buffer_on(lw, addend[i], class_));
        esp_i_task_write(lw, task, b);
    }
}

/* P on D1 plus P on D2 is P on their union. *sum_out: the value, of the op's output. */
static esp_status_t sum_in_place(esp_lowerer_t *lw, esp_op_id_t op, int32_t n,
                                 const int32_t *addend, int32_t *sum_out, esp_diag_t *diag)
{
    int32_t mesh = lw->values.mesh[addend[0]];
    for (int32_t i = 1; i < n; i++)
        if ((mesh = esp_i_mesh_union(lw, mesh, lw->values.mesh[addend[i]])) == ESP_NONE)
            return esp_i_nomem(diag);
    esp_tensor_id_t root = lw->facts.out[lw->graph->output_offset[op]].root;
    *sum_out = esp_i_output_new(
        lw, &(esp_i_want_t){root, mesh, ESP_FORM_PARTIAL, ESP_SHARE_BATCH, no_view});
    emit_sum(lw, op, n, addend, *sum_out);
    return ESP_OK;
}

/*
 * An n-ary sum that the batch does not split: gradients of a parameter with several uses, norms.
 * What is whole on `mesh` already is kept apart from the addends elsewhere, which are summed where
 * they are and resolved once.
 */
esp_status_t esp_i_lower_sum(esp_lowerer_t *lw, esp_op_id_t op, int32_t mesh, esp_mode_t mode,
                             bool *done_out, esp_diag_t *diag)
{
    const esp_graph_t *g = lw->graph;
    int32_t n = g->input_offset[op + 1] - g->input_offset[op], apart = 0, there = 0;
    int32_t *addend = lw->operand_scratch, *whole = addend + n;
    for (int32_t i = 0; i < n; i++) {
        esp_tensor_id_t root = lw->facts.in[g->input_offset[op] + i].root;
        int32_t value = esp_i_is_there(lw, root, mesh) ? ESP_NONE : addend_value(lw, root);
        if (value != ESP_NONE)
            addend[apart++] = value;
        else
            whole[there++] = root;
    }
    *done_out = apart > 0 && (apart > 1 || (there == 0 && mode == ESP_MODE_BATCH));
    if (!*done_out)
        return ESP_OK;
    int32_t sum;
    ESP_TRY(sum_in_place(lw, op, apart, addend, &sum, diag));
    if (there == 0 && mode == ESP_MODE_BATCH)
        return ESP_OK;
    esp_tensor_id_t out = lw->facts.out[g->output_offset[op]].root;
    esp_i_want_t want = {out, mesh, ESP_FORM_REPLICATED, ESP_SHARE_BATCH, no_view};
    ESP_TRY(esp_i_need(lw, &want, op, &sum, diag));
    if (there == 0)
        return ESP_OK;
    for (int32_t i = 0; i < there; i++) {
        want.root = whole[i];
        ESP_TRY(esp_i_need(lw, &want, op, &whole[i], diag));
    }
    whole[there] = sum;
    lw->tensor_value[out] = ESP_NONE; /* the partial sums are no value of the output */
    want.root = out;
    int32_t total = esp_i_output_new(lw, &want);
    emit_sum(lw, op, there + 1, whole, total);
    return ESP_OK;
}

/* ---- over micro-batches ------------------------------------------------------------------------
 */

/* Adds what this micro-batch made of each accumulated tensor to the sum so far, in its memory. */
esp_status_t esp_i_sums_add(esp_lowerer_t *lw, esp_diag_t *diag)
{
    int64_t n = lw->facts.n_accumulated, classes = lw->n_classes;
    if (!esp_i_reserve(lw, n * classes, 0, n, 4 * n * classes))
        return esp_i_nomem(diag);
    for (int32_t i = 0; i < lw->facts.n_accumulated; i++) {
        esp_tensor_id_t t = lw->facts.accumulated[i];
        int32_t made = lw->tensor_value[t], sum = lw->tensor_sum[t];
        while (made != ESP_NONE && lw->values.next[made] != ESP_NONE)
            made = lw->values.next[made]; /* the first value: as the op made it */
        if (made == ESP_NONE)
            continue;
        if (lw->micro == 0) {
            lw->tensor_sum[t] = made;
            continue;
        }
        esp_i_want_t as = {t, lw->values.mesh[sum], (esp_form_t)lw->values.form[sum],
                           (esp_share_t)lw->values.share[sum], lw->values.view[sum]};
        int32_t total = esp_i_value_new(lw, &as);
        for (int32_t slot = 0; slot < lw->local.data[lw->values.mesh[sum]].n_classes; slot++)
            lw->buffers.root[lw->values.buffer[total] + slot] =
                lw->buffers.root[lw->values.buffer[sum] + slot];
        int32_t addend[2] = {sum, made};
        emit_sum(lw, lw->graph->tensor_producer[t], 2, addend, total);
        lw->tensor_sum[t] = total;
    }
    return ESP_OK;
}

/* After the last micro-batch an accumulated tensor is its sum. */
void esp_i_sums_publish(esp_lowerer_t *lw)
{
    for (int32_t i = 0; i < lw->facts.n_accumulated; i++) {
        esp_tensor_id_t t = lw->facts.accumulated[i];
        if ((lw->tensor_value[t] = lw->tensor_sum[t]) == ESP_NONE)
            continue;
        lw->values.next[lw->tensor_sum[t]] = ESP_NONE;
        lw->values.micro[lw->tensor_sum[t]] = ESP_NONE;
    }
}
