/*
 * What lowering knows of a graph before any strategy: which ops repeat per micro-batch, how the
 * batch factor binds each operand, which updates can be sharded.
 */
#include "deploy/lowerer.h"

#define FOREACH_INPUT(g, op, i)                                                                    \
    for (int32_t i = (g)->input_offset[op]; i < (g)->input_offset[(op) + 1]; i++)
#define FOREACH_OUTPUT(g, op, i)                                                                   \
    for (int32_t i = (g)->output_offset[op]; i < (g)->output_offset[(op) + 1]; i++)

typedef struct taint {
    uint8_t *batch;     /* the value depends on which samples are in the micro-batch */
    uint8_t *parameter; /* ... on parameters, state or random numbers */
    uint8_t *once;      /* op: is wanted by an op that runs once */
} taint_t;

static bool facts_alloc(esp_lowerer_t *lw)
{
    const esp_graph_t *g = lw->graph;
    esp_i_facts_t *f = &lw->facts;
    esp_i_arena_t *arena = &lw->arena;
    return (f->op_stage = esp_i_arena_alloc(arena, g->n_ops, 1)) &&
           (f->op_is_add = esp_i_arena_alloc(arena, g->n_ops, 1)) &&
           (f->op_shards = esp_i_arena_alloc(arena, g->n_ops, 1)) &&
           (f->op_shard_factor = esp_i_arena_alloc(arena, g->n_ops, sizeof *f->op_shard_factor)) &&
           (f->in = esp_i_arena_alloc(arena, g->input_offset[g->n_ops], sizeof *f->in)) &&
           (f->out = esp_i_arena_alloc(arena, g->output_offset[g->n_ops], sizeof *f->out)) &&
           (f->tensor_accumulates = esp_i_arena_alloc(arena, g->n_tensors, 1)) &&
           (f->tensor_free = esp_i_arena_alloc(arena, g->n_tensors, 1)) &&
           (f->tensor_body = esp_i_arena_alloc(arena, g->n_tensors, 1)) &&
           (f->tensor_read_once = esp_i_arena_alloc(arena, g->n_tensors, 1)) &&
           (f->updated = esp_i_arena_alloc(arena, g->n_tensors, sizeof *f->updated)) &&
           (f->accumulated = esp_i_arena_alloc(arena, g->n_tensors, sizeof *f->accumulated)) &&
           (f->reduction = esp_i_arena_alloc(arena, g->n_ops, sizeof *f->reduction)) &&
           (f->previous = esp_i_arena_alloc(arena, g->n_tensors, sizeof *f->previous));
}

/* ---- operands
 * ------------------------------------------------------------------------------------- */

static void operands_find(const esp_graph_t *g, esp_i_facts_t *f, esp_op_id_t op)
{
    int32_t n_in = g->input_offset[op + 1] - g->input_offset[op];
    FOREACH_INPUT(g, op, i)
    {
        esp_tensor_id_t t = g->input_tensor[i];
        f->in[i] = (esp_i_operand_t){.root = t == ESP_NONE ? ESP_NONE : g->tensor_root[t]};
        if (t != ESP_NONE && g->op_batch[op].dim != ESP_NONE)
            f->in[i].bind = (int32_t)esp_graph_bind(g, op, g->op_batch[op], i - g->input_offset[op],
                                                    &f->in[i].view);
    }
    FOREACH_OUTPUT(g, op, i)
    {
        f->out[i] = (esp_i_operand_t){.root = g->tensor_root[g->output_tensor[i]]};
        if (g->op_batch[op].dim != ESP_NONE)
            f->out[i].bind = (int32_t)esp_graph_bind(
                g, op, g->op_batch[op], n_in + i - g->output_offset[op], &f->out[i].view);
    }
}

/* An op shards if its elements can be split flat: dimension of all elements of operand 0. */
static void shard_find(const esp_graph_t *g, esp_i_facts_t *f, esp_op_id_t op)
{
    f->op_shard_factor[op].dim = ESP_NONE;
    if (g->op_phase[op] != ESP_PHASE_UPDATE || g->input_offset[op] == g->input_offset[op + 1])
        return;
    esp_tensor_id_t t = g->input_tensor[g->input_offset[op]];
    if (t == ESP_NONE || g->tensor_elements[t] < 2)
        return;
    esp_view_t flat = {1, g->tensor_elements[t], 1};
    if (esp_graph_factor(g, op, 0, flat, &f->op_shard_factor[op]))
        f->op_shards[op] = 1;
}

/* ---- stages
 * ---------------------------------------------------------------------------------------- */

static void taint_op(const esp_graph_t *g, esp_op_id_t op, taint_t *taint)
{
    bool batch = false, parameter = false;
    FOREACH_INPUT(g, op, i)
    if (g->input_tensor[i] != ESP_NONE) {
        batch = batch || taint->batch[g->input_tensor[i]];
        parameter = parameter || taint->parameter[g->input_tensor[i]];
    }
    parameter =
        parameter || g->op_kind[op] == ESP_KIND_RANDOM || g->op_kind[op] == ESP_KIND_DROPOUT;
    FOREACH_OUTPUT(g, op, i)
    {
        esp_tensor_id_t t = g->output_tensor[i];
        taint->batch[t] = batch || g->tensor_batch[t].extent > 0;
        taint->parameter[t] = parameter;
    }
}

/* A sum over the batch of inputs alone (the count of a masked mean) is the same for all
 * micro-batches. */
static bool sums_inputs(const esp_graph_t *g, const esp_i_facts_t *f, esp_op_id_t op,
                        const taint_t *taint)
{
    if (g->op_phase[op] == ESP_PHASE_UPDATE || g->op_batch[op].dim == ESP_NONE)
        return false;
    FOREACH_OUTPUT(g, op, i)
    if (f->out[i].bind != ESP_BIND_SUM || taint->parameter[g->output_tensor[i]])
        return false;
    return true;
}

static void stages_find(const esp_graph_t *g, esp_i_facts_t *f, taint_t *taint)
{
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        taint->batch[t] = g->tensor_batch[t].extent > 0;
        taint->parameter[t] = g->tensor_role[t] != ESP_ROLE_INPUT &&
                              g->tensor_role[t] != ESP_ROLE_CONSTANT &&
                              g->tensor_producer[t] == ESP_NONE;
    }
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        taint_op(g, op, taint);
        if (!sums_inputs(g, f, op, taint))
            continue;
        taint->once[op] = 1; /* and what follows it starts clean */
        FOREACH_OUTPUT(g, op, i)
        taint->batch[g->output_tensor[i]] = 0;
    }
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        bool body = false;
        FOREACH_INPUT(g, op, i)
        body = body || (g->input_tensor[i] != ESP_NONE && taint->batch[g->input_tensor[i]]);
        FOREACH_OUTPUT(g, op, i)
        body = body || taint->batch[g->output_tensor[i]];
        f->op_stage[op] = ESP_I_OP_ONCE;
        if (g->op_kind[op] == ESP_KIND_RESHAPE)
            f->op_stage[op] = ESP_I_OP_SKIP;
        else if (g->op_phase[op] == ESP_PHASE_UPDATE)
            f->op_stage[op] = ESP_I_OP_UPDATE;
        else if (body && !taint->once[op])
            f->op_stage[op] = ESP_I_OP_BODY;
    }
}

/*
 * What an op that runs once reads runs once too. Such an ancestor depends on inputs alone; if the
 * body reads it as well it is lowered in both places, which `op_once` of the facts records.
 */
static void once_spread(const esp_graph_t *g, taint_t *taint)
{
    for (esp_op_id_t op = g->n_ops - 1; op >= 0; op--) {
        if (!taint->once[op])
            continue;
        FOREACH_INPUT(g, op, i)
        {
            esp_tensor_id_t t = g->input_tensor[i];
            if (t != ESP_NONE && g->tensor_producer[t] != ESP_NONE)
                taint->once[g->tensor_producer[t]] = 1;
        }
    }
}

/*
 * An op that the batch does not split and that reads sums over it may run once, after the body, if
 * nothing in the body waits for it: on the sums over the whole batch it is exact whatever it
 * computes. RESHAPE is as late as its readers.
 */
static void late_find(const esp_graph_t *g, esp_i_facts_t *f, uint8_t *late)
{
    for (esp_op_id_t op = g->n_ops - 1; op >= 0; op--) {
        uint8_t stage = f->op_stage[op];
        bool all =
            stage == ESP_I_OP_SKIP || (stage == ESP_I_OP_BODY && g->op_batch[op].dim == ESP_NONE);
        FOREACH_OUTPUT(g, op, i)
        {
            esp_tensor_id_t t = g->output_tensor[i];
            for (int32_t c = g->consumer_offset[t]; c < g->consumer_offset[t + 1]; c++)
                all = all && late[g->consumer_op[c]];
        }
        late[op] = all || stage == ESP_I_OP_UPDATE;
        if (all && stage == ESP_I_OP_BODY)
            f->op_stage[op] = ESP_I_OP_AFTER;
    }
}

/*
 * Micro-batches are exact only if nothing but sums couples them: a body op is split by the batch,
 * it needs no sum over the batch whole, and what it reads by rows is made anew per micro-batch.
 */
static bool op_allows_micro(const esp_graph_t *g, const esp_i_facts_t *f, esp_op_id_t op,
                            const taint_t *taint)
{
    if (g->op_batch[op].dim == ESP_NONE)
        return false;
    FOREACH_INPUT(g, op, i)
    {
        esp_tensor_id_t t = g->input_tensor[i];
        if (t == ESP_NONE)
            continue;
        if (f->in[i].bind == ESP_BIND_ABSENT && taint->batch[t])
            return false;
        if (f->in[i].bind == ESP_BIND_CARRY && !f->tensor_body[f->in[i].root])
            return false;
    }
    return true;
}

/* A sum of tensors of one shape: addends may be anywhere. */
static bool is_plain_sum(const esp_graph_t *g, esp_op_id_t op)
{
    if (g->op_kind[op] != ESP_KIND_ELTWISE || g->op_attr[op].eltwise.code != ESP_ELT_ADD)
        return false;
    int64_t elements = g->tensor_elements[g->output_tensor[g->output_offset[op]]];
    FOREACH_INPUT(g, op, i)
    if (g->tensor_elements[g->input_tensor[i]] != elements)
        return false;
    return true;
}

/* ---- the whole
 * --------------------------------------------------------------------------------------- */

static void tensors_find(const esp_graph_t *g, esp_i_facts_t *f)
{
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++)
        f->previous[t] = ESP_NONE;
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        esp_op_id_t producer = g->tensor_producer[g->tensor_root[t]];
        f->tensor_body[t] = producer != ESP_NONE ? f->op_stage[producer] == ESP_I_OP_BODY
                                                 : g->tensor_batch[t].extent > 0;
        uint8_t role = g->tensor_role[t];
        f->tensor_free[t] =
            producer == ESP_NONE && (role == ESP_ROLE_INPUT || role == ESP_ROLE_CONSTANT ||
                                     role == ESP_ROLE_FROZEN || g->tensor_next[t] == ESP_NONE);
        if (g->tensor_next[t] != ESP_NONE) {
            f->updated[f->n_updated++] = t;
            f->previous[g->tensor_root[g->tensor_next[t]]] = t;
        }
    }
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        if (f->op_stage[op] == ESP_I_OP_UPDATE || f->op_stage[op] == ESP_I_OP_AFTER)
            FOREACH_INPUT(g, op, i)
    if (f->in[i].root != ESP_NONE && f->tensor_body[f->in[i].root] &&
        g->tensor_producer[f->in[i].root] != ESP_NONE)
        f->tensor_accumulates[f->in[i].root] = 1;
    if (g->loss != ESP_NONE && f->tensor_body[g->tensor_root[g->loss]])
        f->tensor_accumulates[g->tensor_root[g->loss]] = 1;
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++)
        if (f->tensor_accumulates[t])
            f->accumulated[f->n_accumulated++] = t;
}

static esp_op_id_t reduced_by(const esp_graph_t *g, const esp_i_facts_t *f, esp_op_id_t update)
{
    return g->tensor_producer[f->in[g->input_offset[update] + 1].root];
}

/* Updates in the order in which backward makes what they fold in, for buckets. Shell sort: the list
 * is nearly reversed, and ties keep the order of ids. */
static void reductions_sort(const esp_graph_t *g, esp_i_facts_t *f)
{
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        if (g->op_kind[op] == ESP_KIND_UPDATE)
            f->reduction[f->n_reductions++] = op;
    for (int32_t gap = f->n_reductions / 2; gap > 0; gap /= 2)
        for (int32_t i = gap; i < f->n_reductions; i++) {
            esp_op_id_t op = f->reduction[i], made = reduced_by(g, f, op);
            int32_t j = i;
            for (; j >= gap; j -= gap) {
                esp_op_id_t other = reduced_by(g, f, f->reduction[j - gap]);
                if (other < made || (other == made && f->reduction[j - gap] < op))
                    break;
                f->reduction[j] = f->reduction[j - gap];
            }
            f->reduction[j] = op;
        }
}

static esp_op_id_t micro_obstacle(const esp_graph_t *g, const esp_i_facts_t *f,
                                  const taint_t *taint)
{
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        if (f->op_stage[op] == ESP_I_OP_BODY && !op_allows_micro(g, f, op, taint))
            return op;
    for (int32_t i = 0; i < f->n_accumulated; i++)
        if (g->tensor_batch[f->accumulated[i]].extent) /* read after the body, but no sum over it */
            return g->tensor_producer[f->accumulated[i]];
    return ESP_NONE;
}

static void ops_find(const esp_graph_t *g, esp_i_facts_t *f)
{
    uint8_t *once = f->tensor_read_once;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        operands_find(g, f, op);
        shard_find(g, f, op);
        f->op_is_add[op] = is_plain_sum(g, op);
        int32_t operands = g->input_offset[op + 1] - g->input_offset[op] +
                           g->output_offset[op + 1] - g->output_offset[op];
        f->max_operands = operands > f->max_operands ? operands : f->max_operands;
        FOREACH_INPUT(g, op, i)
        {
            f->has_local = f->has_local || f->in[i].bind == ESP_BIND_LOCAL;
            if (f->in[i].root == ESP_NONE || g->op_kind[op] == ESP_KIND_RESHAPE)
                continue;
            uint8_t *reads = &once[f->in[i].root];
            *reads = (uint8_t)(*reads < 2 ? *reads + 1 : 2);
        }
    }
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++)
        once[t] = once[t] == 1;
}

/* The new version takes the memory of the old one, so nothing may read the old one later. */
static esp_status_t versions_check(const esp_graph_t *g, const esp_i_facts_t *f, esp_diag_t *diag)
{
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        FOREACH_INPUT(g, op, i)
        {
            esp_tensor_id_t t = f->in[i].root;
            if (t == ESP_NONE || g->tensor_next[t] == ESP_NONE ||
                f->op_stage[op] != ESP_I_OP_UPDATE)
                continue;
            esp_op_id_t update = g->tensor_producer[g->tensor_root[g->tensor_next[t]]];
            if (op > update)
                return esp_i_fail(diag, ESP_ERR_UNSUPPORTED,
                                  "op %s reads %s after op %s has made its next version",
                                  g->op_name[op], g->tensor_name[t], g->op_name[update]);
        }
    return ESP_OK;
}

esp_status_t esp_i_facts_find(esp_lowerer_t *lw, esp_diag_t *diag)
{
    const esp_graph_t *g = lw->graph;
    esp_i_facts_t *f = &lw->facts;
    taint_t taint = {.batch = esp_i_arena_alloc(&lw->arena, g->n_tensors, 1),
                     .parameter = esp_i_arena_alloc(&lw->arena, g->n_tensors, 1),
                     .once = esp_i_arena_alloc(&lw->arena, g->n_ops, 1)};
    uint8_t *late = esp_i_arena_alloc(&lw->arena, g->n_ops, 1);
    if (!facts_alloc(lw) || !taint.batch || !taint.parameter || !taint.once || !late)
        return esp_i_nomem(diag);
    ops_find(g, f);
    stages_find(g, f, &taint);
    late_find(g, f, late);
    once_spread(g, &taint);
    f->op_once = taint.once;
    tensors_find(g, f);
    f->micro_obstacle = micro_obstacle(g, f, &taint);
    reductions_sort(g, f);
    return versions_check(g, f, diag);
}
