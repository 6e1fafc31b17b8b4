/* Lowering: the driver and the ways in which one op becomes tasks. See lowerer.h for the outline.
 */
#include "deploy/lowerer.h"

#include <string.h>

static const esp_view_t no_view = {0, 0, 0};

/* ---- every device computes the whole
 * -------------------------------------------------------------- */

static esp_status_t lower_whole(esp_lowerer_t *lw, esp_op_id_t op, int32_t mesh, esp_diag_t *diag)
{
    const esp_graph_t *g = lw->graph;
    int32_t *in = lw->operand_scratch, n_in = g->input_offset[op + 1] - g->input_offset[op];
    int32_t *out = in + n_in, n_out = g->output_offset[op + 1] - g->output_offset[op];
    esp_i_want_t want = {ESP_NONE, mesh, ESP_FORM_REPLICATED, ESP_SHARE_BATCH, no_view};
    for (int32_t i = 0; i < n_in; i++) {
        want.root = lw->facts.in[g->input_offset[op] + i].root;
        in[i] = ESP_NONE;
        if (want.root != ESP_NONE)
            ESP_TRY(esp_i_need(lw, &want, op, &in[i], diag));
    }
    for (int32_t i = 0; i < n_out; i++) {
        want.root = lw->facts.out[g->output_offset[op] + i].root;
        out[i] = esp_i_output_new(lw, &want);
    }
    esp_i_compute(lw, &(esp_i_compute_t){op, mesh, ESP_MODE_WHOLE, in, out});
    return ESP_OK;
}

/* ---- split by a factor
 * ------------------------------------------------------------------------------ */

static esp_form_t form_of_input(const esp_lowerer_t *lw, esp_bind_t bind)
{
    if (bind == ESP_BIND_CARRY)
        return ESP_FORM_SPLIT;
    bool addend = bind == ESP_BIND_LOCAL && !lw->strategy->sync_batchnorm;
    return addend ? ESP_FORM_PARTIAL : ESP_FORM_REPLICATED;
}

static esp_form_t form_of_output(esp_bind_t bind)
{
    if (bind == ESP_BIND_CARRY)
        return ESP_FORM_SPLIT;
    return bind == ESP_BIND_SUM ? ESP_FORM_PARTIAL : ESP_FORM_REPLICATED;
}

/* operands: how each operand is bound, inputs first. */
static esp_status_t lower_split(esp_lowerer_t *lw, esp_op_id_t op, int32_t mesh, esp_mode_t mode,
                                const esp_i_operand_t *inputs, const esp_i_operand_t *outputs,
                                esp_diag_t *diag)
{
    const esp_graph_t *g = lw->graph;
    esp_share_t share = mode == ESP_MODE_SHARD ? ESP_SHARE_EVEN : ESP_SHARE_BATCH;
    int32_t *in = lw->operand_scratch, n_in = g->input_offset[op + 1] - g->input_offset[op];
    int32_t *out = in + n_in, n_out = g->output_offset[op + 1] - g->output_offset[op];
    for (int32_t i = 0; i < n_in; i++) {
        esp_form_t form = form_of_input(lw, (esp_bind_t)inputs[i].bind);
        esp_i_want_t want = {inputs[i].root, mesh, form, share, inputs[i].view};
        in[i] = ESP_NONE;
        if (want.root != ESP_NONE)
            ESP_TRY(esp_i_need(lw, &want, op, &in[i], diag));
    }
    for (int32_t i = 0; i < n_out; i++) {
        esp_form_t form = form_of_output((esp_bind_t)outputs[i].bind);
        esp_i_want_t want = {outputs[i].root, mesh, form, share, outputs[i].view};
        out[i] = esp_i_output_new(lw, &want);
    }
    esp_i_compute(lw, &(esp_i_compute_t){op, mesh, mode, in, out});
    return ESP_OK;
}

static bool can_shard(const esp_lowerer_t *lw, esp_op_id_t op, int32_t mesh)
{
    if (!lw->facts.op_shards[op])
        return false;
    esp_tensor_id_t root = lw->facts.in[lw->graph->input_offset[op]].root;
    int32_t n = esp_i_mesh_of(lw, mesh)->n;
    return n > 1 && lw->graph->tensor_elements[root] >= n;
}

static void shard_operands(const esp_lowerer_t *lw, esp_op_id_t op, esp_i_operand_t *operands)
{
    const esp_graph_t *g = lw->graph;
    int32_t n_in = g->input_offset[op + 1] - g->input_offset[op];
    int32_t n_out = g->output_offset[op + 1] - g->output_offset[op];
    for (int32_t i = 0; i < n_in + n_out; i++) {
        operands[i] = i < n_in ? lw->facts.in[g->input_offset[op] + i]
                               : lw->facts.out[g->output_offset[op] + i - n_in];
        operands[i].view = no_view;
        operands[i].bind =
            (int32_t)esp_graph_bind(g, op, lw->facts.op_shard_factor[op], i, &operands[i].view);
    }
}

/* ---- partials through linear ops
 * -------------------------------------------------------------------------- */

/*
 * If all partial inputs lie on one mesh and make up a whole linear set (*partial_out, a bit per
 * input), the op runs on each addend: returns where; else ESP_NONE.
 */
static int32_t linear_mesh(const esp_lowerer_t *lw, esp_op_id_t op, int32_t mesh,
                           uint64_t *partial_out)
{
    const esp_graph_t *g = lw->graph;
    uint64_t partial = 0;
    int32_t at = ESP_NONE, n = g->input_offset[op + 1] - g->input_offset[op];
    for (int32_t i = 0; i < n && g->linear_offset[op] < g->linear_offset[op + 1]; i++) {
        esp_tensor_id_t root = lw->facts.in[g->input_offset[op] + i].root;
        if (root == ESP_NONE || esp_i_is_there(lw, root, mesh))
            continue;
        int32_t v = lw->tensor_value[root];
        while (v != ESP_NONE && lw->values.form[v] != ESP_FORM_PARTIAL)
            v = lw->values.next[v];
        if (v == ESP_NONE)
            continue;
        if ((at != ESP_NONE && at != lw->values.mesh[v]) || i > 62)
            return ESP_NONE;
        at = lw->values.mesh[v];
        partial |= (uint64_t)1 << i;
    }
    *partial_out = partial;
    uint64_t all = n > 63 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
    for (int32_t l = g->linear_offset[op]; l < g->linear_offset[op + 1] && partial; l++)
        if ((g->linear_mask[l] & all) == partial)
            return at;
    return ESP_NONE;
}

static esp_status_t lower_linear(esp_lowerer_t *lw, esp_op_id_t op, int32_t at, uint64_t partial,
                                 esp_diag_t *diag)
{
    const esp_graph_t *g = lw->graph;
    int32_t *in = lw->operand_scratch, n_in = g->input_offset[op + 1] - g->input_offset[op];
    int32_t *out = in + n_in, n_out = g->output_offset[op + 1] - g->output_offset[op];
    for (int32_t i = 0; i < n_in; i++) {
        esp_tensor_id_t root = lw->facts.in[g->input_offset[op] + i].root;
        in[i] = ESP_NONE;
        if (root == ESP_NONE)
            continue;
        bool addend = i < 63 && (partial >> i & 1);
        esp_i_want_t want = {root, at, addend ? ESP_FORM_PARTIAL : ESP_FORM_REPLICATED,
                             ESP_SHARE_BATCH, no_view};
        ESP_TRY(esp_i_need(lw, &want, op, &in[i], diag));
    }
    for (int32_t i = 0; i < n_out; i++) {
        esp_tensor_id_t root = lw->facts.out[g->output_offset[op] + i].root;
        out[i] = esp_i_output_new(
            lw, &(esp_i_want_t){root, at, ESP_FORM_PARTIAL, ESP_SHARE_BATCH, no_view});
    }
    esp_i_compute(lw, &(esp_i_compute_t){op, at, ESP_MODE_WHOLE, in, out});
    return ESP_OK;
}

/* ---- one op
 * ---------------------------------------------------------------------------------------------------
 */

static esp_status_t lower_batch(esp_lowerer_t *lw, esp_op_id_t op, int32_t mesh, esp_diag_t *diag)
{
    const esp_graph_t *g = lw->graph;
    if (g->op_batch[op].dim != ESP_NONE) {
        if (esp_i_mesh_of(lw, mesh)->n == 1)
            return lower_whole(lw, op, mesh, diag);
        return lower_split(lw, op, mesh, ESP_MODE_BATCH, lw->facts.in + g->input_offset[op],
                           lw->facts.out + g->output_offset[op], diag);
    }
    uint64_t partial;
    int32_t at = linear_mesh(lw, op, mesh, &partial);
    return at != ESP_NONE ? lower_linear(lw, op, at, partial, diag)
                          : lower_whole(lw, op, mesh, diag);
}

/* Room for all that the ops [first, end) can emit: each operand may take three moves. */
static bool ops_reserve(esp_lowerer_t *lw, esp_op_id_t first, esp_op_id_t end)
{
    const esp_graph_t *g = lw->graph;
    int64_t ops = end - first, classes = lw->n_classes;
    int64_t operands = ops + g->input_offset[end] - g->input_offset[first] + g->output_offset[end] -
                       g->output_offset[first];
    return esp_i_reserve(lw, operands * (3 + 3 * classes) + 2 * classes * ops, 3 * operands,
                         4 * operands + 4 * ops, operands * (6 + 14 * classes));
}

static esp_status_t lower_op(esp_lowerer_t *lw, esp_op_id_t op, esp_diag_t *diag)
{
    int32_t mesh = esp_i_op_mesh(lw, op);
    esp_mode_t mode = (esp_mode_t)lw->strategy->op_mode[op];
    if (lw->facts.op_is_add[op] && lw->graph->op_batch[op].dim == ESP_NONE) {
        bool done;
        ESP_TRY(esp_i_lower_sum(lw, op, mesh, mode, &done, diag));
        if (done)
            return ESP_OK;
    }
    if (mode == ESP_MODE_SHARD && can_shard(lw, op, mesh)) {
        esp_i_operand_t *operand = lw->shard_scratch;
        shard_operands(lw, op, operand);
        int32_t n_in = lw->graph->input_offset[op + 1] - lw->graph->input_offset[op];
        return lower_split(lw, op, mesh, ESP_MODE_SHARD, operand, operand + n_in, diag);
    }
    if (mode == ESP_MODE_BATCH)
        return lower_batch(lw, op, mesh, diag);
    return lower_whole(lw, op, mesh, diag);
}

/* ---- the step
 * --------------------------------------------------------------------------------------------------
 */

/* How the op that makes a next version splits its inputs; NULL: it computes the whole. */
static const esp_i_operand_t *split_operands(esp_lowerer_t *lw, esp_op_id_t op, int32_t mesh,
                                             esp_share_t *share_out)
{
    esp_mode_t mode = (esp_mode_t)lw->strategy->op_mode[op];
    *share_out = mode == ESP_MODE_SHARD ? ESP_SHARE_EVEN : ESP_SHARE_BATCH;
    if (mode == ESP_MODE_SHARD && can_shard(lw, op, mesh)) {
        shard_operands(lw, op, lw->shard_scratch);
        return lw->shard_scratch;
    }
    if (mode == ESP_MODE_BATCH && lw->graph->op_batch[op].dim != ESP_NONE)
        return lw->facts.in + lw->graph->input_offset[op];
    return NULL;
}

/* A parameter and its state live where and as their update computes them. */
static esp_status_t homes_make(esp_lowerer_t *lw, esp_diag_t *diag)
{
    const esp_graph_t *g = lw->graph;
    if (!esp_i_reserve(lw, 0, 0, lw->facts.n_updated, 0))
        return esp_i_nomem(diag);
    for (int32_t i = 0; i < lw->facts.n_updated; i++) {
        esp_tensor_id_t t = lw->facts.updated[i];
        esp_op_id_t op = g->tensor_producer[g->tensor_root[g->tensor_next[t]]];
        int32_t mesh = esp_i_op_mesh(lw, op);
        esp_i_want_t home = {t, mesh, ESP_FORM_REPLICATED, ESP_SHARE_BATCH, no_view};
        esp_share_t share;
        const esp_i_operand_t *in = split_operands(lw, op, mesh, &share);
        for (int32_t k = 0; in && k < g->input_offset[op + 1] - g->input_offset[op]; k++)
            if (in[k].root == t && in[k].bind == ESP_BIND_CARRY) {
                home.form = ESP_FORM_SPLIT;
                home.share = share;
                home.view = in[k].view;
            }
        int32_t value = esp_i_output_new(lw, &home);
        esp_i_value_settle(lw, value);
    }
    return ESP_OK;
}

static void body_values_clear(esp_lowerer_t *lw)
{
    for (esp_tensor_id_t t = 0; t < lw->graph->n_tensors; t++)
        if (lw->facts.tensor_body[t])
            lw->tensor_value[t] = ESP_NONE;
}

enum { OPS_AT_ONCE = 16 }; /* for which room is made together */

static esp_status_t
lower_stage(esp_lowerer_t *lw, bool (*wanted)(const esp_lowerer_t *, esp_op_id_t), esp_diag_t *diag)
{
    int32_t n = lw->graph->n_ops;
    for (esp_op_id_t first = 0, end; first < n; first = end) {
        end = first + OPS_AT_ONCE < n ? first + OPS_AT_ONCE : n;
        if (!ops_reserve(lw, first, end))
            return esp_i_nomem(diag);
        for (esp_op_id_t op = first; op < end; op++)
            if (wanted(lw, op))
                ESP_TRY(lower_op(lw, op, diag));
    }
    return ESP_OK;
}

static bool op_is_before_update(const esp_lowerer_t *lw, esp_op_id_t op)
{
    uint8_t stage = lw->facts.op_stage[op];
    return stage == ESP_I_OP_BODY || stage == ESP_I_OP_ONCE || stage == ESP_I_OP_AFTER;
}

static bool op_runs_once(const esp_lowerer_t *lw, esp_op_id_t op)
{
    return lw->facts.op_stage[op] == ESP_I_OP_ONCE ||
           (lw->facts.op_stage[op] == ESP_I_OP_BODY && lw->facts.op_once[op]);
}

static bool op_is_body(const esp_lowerer_t *lw, esp_op_id_t op)
{
    return lw->facts.op_stage[op] == ESP_I_OP_BODY;
}

static bool op_is_after(const esp_lowerer_t *lw, esp_op_id_t op)
{
    return lw->facts.op_stage[op] == ESP_I_OP_AFTER;
}

static bool op_is_update(const esp_lowerer_t *lw, esp_op_id_t op)
{
    return lw->facts.op_stage[op] == ESP_I_OP_UPDATE;
}

static esp_status_t lower_body(esp_lowerer_t *lw, esp_diag_t *diag)
{
    if (lw->strategy->micro_batches == 1)
        return lower_stage(lw, op_is_before_update, diag);
    ESP_TRY(lower_stage(lw, op_runs_once, diag));
    for (lw->micro = 0; lw->micro < lw->strategy->micro_batches; lw->micro++) {
        body_values_clear(lw);
        ESP_TRY(lower_stage(lw, op_is_body, diag));
        ESP_TRY(esp_i_sums_add(lw, diag));
    }
    lw->micro = ESP_NONE;
    body_values_clear(lw);
    esp_i_sums_publish(lw);
    return lower_stage(lw, op_is_after, diag);
}

static esp_status_t strategy_check(const esp_lowerer_t *lw, const esp_strategy_t *strategy,
                                   esp_diag_t *diag)
{
    const esp_graph_t *g = lw->graph;
    int32_t m = strategy->micro_batches;
    if (m < 1 || m > INT16_MAX || (m > 1 && g->batch % m != 0))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "%d micro-batches do not divide the batch of %lld", m,
                          (long long)g->batch);
    if (m > 1 && lw->facts.micro_obstacle != ESP_NONE)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "micro-batches are not exact: op %s couples the samples of a batch",
                          g->op_name[lw->facts.micro_obstacle]);
    if (m > 1 && strategy->sync_batchnorm && lw->facts.has_local)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "synchronised BatchNorm cannot see all micro-batches at once");
    if (strategy->n_meshes < 1)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "the strategy has no mesh");
    return ESP_OK;
}

static void call_reset(esp_lowerer_t *lw, const esp_strategy_t *strategy)
{
    lw->strategy = strategy;
    lw->micro = ESP_NONE;
    if (lw->buffers.n > 0) {
        memset(lw->buffers.resident, 0, (size_t)lw->buffers.n);
        memset(lw->buffers.shared, 0, (size_t)lw->buffers.n);
    }
    lw->tasks.n = lw->values.n = lw->buffers.n = lw->comms.n = 0;
    lw->reads.count = lw->writes.count = lw->pair_src.count = lw->pair_dst.count = 0;
    lw->comm_classes.count = lw->comm_class_ns.count = lw->overwriters.count = 0;
    lw->extra_before.count = lw->extra_after.count = 0;
    lw->cross_before.count = lw->cross_after.count = 0;
    memset(lw->tensor_value, 0xff, (size_t)lw->graph->n_tensors * sizeof *lw->tensor_value);
    memset(lw->tensor_sum, 0xff, (size_t)lw->graph->n_tensors * sizeof *lw->tensor_sum);
    memset(lw->class_resident, 0, (size_t)lw->cluster->n_devices * sizeof *lw->class_resident);
}

esp_status_t esp_lower(esp_lowerer_t *lw, const esp_strategy_t *strategy,
                       const esp_deployment_t **deployment_out, esp_diag_t *diag)
{
    ESP_TRY(strategy_check(lw, strategy, diag));
    call_reset(lw, strategy);
    ESP_TRY(esp_i_mesh_prepare(lw, diag));
    ESP_TRY(homes_make(lw, diag));
    ESP_TRY(lower_body(lw, diag));
    ESP_TRY(esp_i_reduce_gradients(lw, diag));
    ESP_TRY(lower_stage(lw, op_is_update, diag));
    if (!esp_i_micro_limit(lw))
        return esp_i_nomem(diag);
    ESP_TRY(esp_i_finish(lw, diag));
    ESP_TRY(esp_i_order(lw, diag));
    *deployment_out = &lw->d;
    return ESP_OK;
}

/* ---- life cycle
 * ---------------------------------------------------------------------------------------------------
 */

static bool lowerer_alloc(esp_lowerer_t *lw)
{
    const esp_allocator_t *alloc = &lw->alloc;
    int64_t devices = lw->cluster->n_devices, tensors = lw->graph->n_tensors;
    int64_t ops = lw->graph->n_ops;
    return (lw->device_class = esp_i_alloc_array(alloc, devices, sizeof *lw->device_class)) &&
           (lw->class_type = esp_i_alloc_array(alloc, devices, sizeof *lw->class_type)) &&
           (lw->class_size = esp_i_alloc_array(alloc, devices, sizeof *lw->class_size)) &&
           (lw->class_offset = esp_i_alloc_array(alloc, devices + 1, sizeof *lw->class_offset)) &&
           (lw->class_device = esp_i_alloc_array(alloc, devices, sizeof *lw->class_device)) &&
           (lw->class_resident = esp_i_alloc_array(alloc, devices, sizeof *lw->class_resident)) &&
           (lw->class_arena = esp_i_alloc_array(alloc, devices, sizeof *lw->class_arena)) &&
           (lw->device_scratch = esp_i_alloc_array(alloc, devices, sizeof *lw->device_scratch)) &&
           (lw->units_scratch = esp_i_alloc_array(alloc, devices, sizeof *lw->units_scratch)) &&
           (lw->duration_key = esp_i_alloc_array(alloc, ops, sizeof *lw->duration_key)) &&
           (lw->duration_ns =
                esp_i_alloc_array(alloc, ops * ESP_I_KNOWN_CLASSES, sizeof *lw->duration_ns)) &&
           (lw->tensor_value = esp_i_alloc_array(alloc, tensors, sizeof *lw->tensor_value)) &&
           (lw->tensor_sum = esp_i_alloc_array(alloc, tensors, sizeof *lw->tensor_sum)) &&
           (lw->operand_scratch = esp_i_alloc_array(alloc, 2 * (int64_t)lw->facts.max_operands + 4,
                                                    sizeof *lw->operand_scratch)) &&
           (lw->shard_scratch =
                esp_i_alloc_array(alloc, lw->facts.max_operands + 1, sizeof *lw->shard_scratch));
}

esp_status_t esp_lowerer_create(const esp_cost_t *cost, const esp_allocator_t *alloc_or_null,
                                esp_lowerer_t **lowerer_out, esp_diag_t *diag)
{
    esp_allocator_t alloc = esp_i_allocator(alloc_or_null);
    esp_lowerer_t *lw = esp_i_alloc_array(&alloc, 1, sizeof *lw);
    if (!lw)
        return esp_i_nomem(diag);
    lw->alloc = alloc;
    lw->cost = cost;
    lw->graph = cost->graph;
    lw->cluster = cost->cluster;
    esp_i_arena_init(&lw->arena, &alloc);
    esp_status_t status = esp_i_facts_find(lw, diag);
    if (status == ESP_OK && (!lowerer_alloc(lw) || esp_i_order_init(lw) != ESP_OK))
        status = esp_i_nomem(diag);
    if (status != ESP_OK) {
        esp_lowerer_destroy(lw);
        return status;
    }
    *lowerer_out = lw;
    return ESP_OK;
}

esp_op_id_t esp_lowerer_micro_obstacle(const esp_lowerer_t *lowerer)
{
    return lowerer->facts.micro_obstacle;
}

static void families_free(esp_lowerer_t *lw)
{
    const esp_allocator_t *alloc = &lw->alloc;
#define FREE(type, field) esp_i_free(alloc, family->field);
    {
        esp_i_tasks_t *family = &lw->tasks;
        ESP_I_TASK_ARRAYS(FREE)
    }
    {
        esp_i_values_t *family = &lw->values;
        ESP_I_VALUE_ARRAYS(FREE)
    }
    {
        esp_i_buffers_t *family = &lw->buffers;
        ESP_I_BUFFER_ARRAYS(FREE)
    }
    {
        esp_i_comms_t *family = &lw->comms;
        ESP_I_COMM_ARRAYS(FREE)
    }
#undef FREE
}

void esp_lowerer_destroy(esp_lowerer_t *lw)
{
    if (!lw)
        return;
    esp_allocator_t alloc = lw->alloc;
    for (int32_t i = 0; i < lw->pattern_slots; i++)
        if (lw->patterns[i]) {
            for (int32_t k = 0; k < lw->patterns[i]->count; k++)
                esp_pattern_release(&lw->patterns[i]->pattern[k], &alloc);
            esp_i_free(&alloc, lw->patterns[i]);
        }
    families_free(lw);
    void *blocks[] = {
        lw->patterns,      lw->mesh_slots,     lw->spec_local,       lw->mesh_slot_of,
        lw->device_class,  lw->class_type,     lw->class_size,       lw->class_offset,
        lw->class_device,  lw->class_resident, lw->class_arena,      lw->device_scratch,
        lw->units_scratch, lw->tensor_value,   lw->tensor_sum,       lw->operand_scratch,
        lw->shard_scratch, lw->d_mesh_offset,  lw->d_mesh_device,    lw->d_mesh_class_offset,
        lw->d_mesh_units,  lw->buffer_offset,  lw->successor_offset, lw->successor,
        lw->duration_key,  lw->duration_ns,    lw->n_predecessors,   lw->order_ids,
        lw->position};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        esp_i_free(&alloc, blocks[i]);
    esp_i_ids_t *ids[] = {&lw->mesh_class,   &lw->reads,        &lw->writes,       &lw->pair_src,
                          &lw->pair_dst,     &lw->comm_classes, &lw->extra_before, &lw->extra_after,
                          &lw->cross_before, &lw->cross_after,  &lw->overwriters};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        esp_vec_free(&alloc, ids[i]);
    esp_vec_free(&alloc, &lw->local);
    esp_vec_free(&alloc, &lw->mesh_class_units);
    esp_vec_free(&alloc, &lw->mesh_class_part);
    esp_vec_free(&alloc, &lw->comm_class_ns);
    esp_vec_free(&alloc, &lw->meshes);
    esp_i_order_fini(lw);
    esp_i_pack_destroy(lw);
    esp_i_arena_fini(&lw->arena);
    esp_i_free(&alloc, lw);
}
