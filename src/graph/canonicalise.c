/*
 * esp_graph_canonicalise: rounds of rebuilding. A round drops what nobody needs and lets every op
 * be replaced by the first pattern that recognises it; it matches on the old graph and appends to
 * the new one, so patterns do not see each other's work until the next round. Done when a round
 * changes nothing.
 */
#include "graph/rewrite.h"

static const esp_i_pattern_fn patterns[] = {
    esp_i_pattern_identity,
    esp_i_pattern_view_of_view,
    esp_i_pattern_transpose_of_ones,
    esp_i_pattern_transpose_with_ones,
    esp_i_pattern_unary_of_view,
    esp_i_pattern_slice_of_transpose,
    esp_i_pattern_split_of_transpose,
    esp_i_pattern_scalar_operand,
    esp_i_pattern_affine_chain,
    esp_i_pattern_contract_of_transpose,
    esp_i_pattern_transpose_of_contract,
    esp_i_pattern_silu,
    esp_i_pattern_gelu,
    esp_i_pattern_gelu_tanh,
    esp_i_pattern_log_softmax,
    esp_i_pattern_xent,
    esp_i_pattern_layernorm,
    esp_i_pattern_attention,
};
/* The last patterns are tried once the others find nothing more: they would hide from them what
 * they match. */
#define N_PATTERNS ((int32_t)(sizeof patterns / sizeof *patterns))
#define N_LATE     1

/* Every pattern makes the graph smaller or moves numbers into attributes; this is for the case that
 * two undo each other. */
#define MAX_ROUNDS 64

typedef struct pass {
    const esp_allocator_t *alloc;
    esp_i_rewrite_t rewrite;
    bool *live;         /* per op of the old graph */
    bool *read;         /* per tensor of the old graph: an op that lives reads it */
    esp_op_id_t *op_to; /* per op of the old graph: its op in the new one, ESP_NONE */
    int32_t n_patterns; /* that are tried */
    bool changed;
} pass_t;

/* ---- what is needed ----------------------------------------------------------------------- */

/* Tensors that have to stay by themselves: results, next versions, gradients, the loss. */
static bool mark_kept(pass_t *pass)
{
    const esp_graph_t *graph = pass->rewrite.graph;
    bool any = false;
    for (int32_t i = 0; i < graph->n_outputs; i++)
        any = pass->rewrite.kept[graph->output[i]] = true;
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++) {
        if (graph->tensor_next[i] != ESP_NONE)
            any = pass->rewrite.kept[graph->tensor_next[i]] = true;
        if (graph->tensor_role[i] == ESP_ROLE_LOSS)
            any = pass->rewrite.kept[i] = true;
    }
    return any;
}

/* Ops that lead to a tensor that is kept. A graph without any result is left whole. */
static void mark_live(pass_t *pass)
{
    const esp_graph_t *graph = pass->rewrite.graph;
    bool any = mark_kept(pass);
    for (esp_op_id_t op = graph->n_ops - 1; op >= 0; op--) {
        bool live = !any;
        for (int32_t i = graph->output_offset[op]; i < graph->output_offset[op + 1]; i++)
            live = live || pass->rewrite.kept[graph->output_tensor[i]] ||
                   pass->read[graph->output_tensor[i]];
        pass->live[op] = live;
        for (int32_t i = graph->input_offset[op]; live && i < graph->input_offset[op + 1]; i++)
            if (graph->input_tensor[i] != ESP_NONE)
                pass->read[graph->input_tensor[i]] = true;
    }
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++)
        if (graph->tensor_role[i] == ESP_ROLE_GRADIENT)
            pass->rewrite.kept[i] = true;
}

/* ---- one op ------------------------------------------------------------------------------- */

static esp_status_t copy_op(pass_t *pass, esp_op_id_t op)
{
    esp_i_rewrite_t *rewrite = &pass->rewrite;
    const esp_graph_t *graph = rewrite->graph;
    int32_t n_in = esp_i_rewrite_n_inputs(rewrite, op);
    int32_t n_out = graph->output_offset[op + 1] - graph->output_offset[op];
    const char *names[ESP_I_MAX_OUT] = {NULL};
    esp_tensor_id_t made[ESP_I_MAX_OUT];
    ESP_VEC(esp_tensor_id_t) inputs = {0};
    if (!esp_vec_extend(pass->alloc, &inputs, n_in))
        return esp_i_nomem(rewrite->diag);
    for (int32_t i = 0; i < n_in; i++) {
        esp_tensor_id_t x = esp_i_rewrite_input(rewrite, op, i);
        inputs.data[i] = x != ESP_NONE ? rewrite->map[x] : ESP_NONE;
    }
    for (int32_t i = 0; i < n_out; i++)
        names[i] = graph->tensor_name[graph->output_tensor[graph->output_offset[op] + i]];
    esp_status_t status =
        esp_i_builder_op(rewrite->builder, (esp_op_kind_t)graph->op_kind[op], &graph->op_attr[op],
                         n_in, inputs.data, graph->op_name[op], names, made, rewrite->diag);
    esp_vec_free(pass->alloc, &inputs);
    for (int32_t i = 0; status == ESP_OK && i < n_out; i++)
        rewrite->map[graph->output_tensor[graph->output_offset[op] + i]] = made[i];
    return status;
}

/* Patterns replace output 0 only: an op with further outputs that someone needs stays. */
static bool is_single(const pass_t *pass, esp_op_id_t op)
{
    const esp_graph_t *graph = pass->rewrite.graph;
    for (int32_t i = graph->output_offset[op] + 1; i < graph->output_offset[op + 1]; i++)
        if (pass->read[graph->output_tensor[i]] || pass->rewrite.kept[graph->output_tensor[i]])
            return false;
    return true;
}

static esp_status_t rebuild_op(pass_t *pass, esp_op_id_t op)
{
    esp_i_rewrite_t *rewrite = &pass->rewrite;
    const esp_graph_t *graph = rewrite->graph;
    esp_op_id_t origin = graph->op_origin[op];
    esp_tensor_id_t made = ESP_NONE, output = esp_i_rewrite_output(rewrite, op);
    int32_t count = rewrite->builder->ops.count;
    /* The origin of an op whose origin went is the op itself. */
    esp_builder_phase(rewrite->builder, (esp_phase_t)graph->op_phase[op],
                      origin != op ? pass->op_to[origin] : ESP_NONE);
    rewrite->root = op;
    for (int32_t i = 0; i < pass->n_patterns && made == ESP_NONE; i++) {
        rewrite->n_inside = 0;
        if (is_single(pass, op))
            ESP_TRY(patterns[i](rewrite, &made));
    }
    if (made == ESP_NONE)
        ESP_TRY(copy_op(pass, op));
    else
        rewrite->map[output] = made;
    pass->changed = pass->changed || made != ESP_NONE;
    if (rewrite->builder->ops.count == count)
        return ESP_OK; /* the output is another tensor */
    pass->op_to[op] = rewrite->builder->ops.count - 1;
    return esp_builder_role(rewrite->builder, rewrite->map[output],
                            (esp_role_t)graph->tensor_role[output]);
}

/* ---- the graph ---------------------------------------------------------------------------- */

static esp_status_t rebuild_all(pass_t *pass)
{
    esp_i_rewrite_t *rewrite = &pass->rewrite;
    const esp_graph_t *graph = rewrite->graph;
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++) {
        esp_op_id_t op = graph->tensor_producer[i];
        if (op != ESP_NONE) {
            if (esp_i_rewrite_output(rewrite, op) != i)
                continue;
            pass->changed = pass->changed || !pass->live[op];
            if (pass->live[op])
                ESP_TRY(rebuild_op(pass, op));
        } else if (graph->tensor_role[i] != ESP_ROLE_CONSTANT || pass->read[i] ||
                   rewrite->kept[i]) {
            ESP_TRY(esp_i_builder_copy_tensor(rewrite->builder, graph, i, &rewrite->map[i],
                                              rewrite->diag));
        } else {
            pass->changed = true;
        }
    }
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++)
        if (graph->tensor_next[i] != ESP_NONE)
            ESP_TRY(esp_builder_next(rewrite->builder, rewrite->map[i],
                                     rewrite->map[graph->tensor_next[i]], rewrite->diag));
    for (int32_t i = 0; i < graph->n_outputs; i++)
        ESP_TRY(esp_builder_output(rewrite->builder, rewrite->map[graph->output[i]]));
    return ESP_OK;
}

static bool reserve(pass_t *pass)
{
    const esp_graph_t *graph = pass->rewrite.graph;
    pass->rewrite.map = esp_i_alloc_array(pass->alloc, graph->n_tensors, sizeof(esp_tensor_id_t));
    pass->rewrite.kept = esp_i_alloc_array(pass->alloc, graph->n_tensors, sizeof(bool));
    pass->rewrite.gone = esp_i_alloc_array(pass->alloc, graph->n_ops, sizeof(bool));
    pass->rewrite.reread = esp_i_alloc_array(pass->alloc, graph->n_tensors, sizeof(bool));
    pass->read = esp_i_alloc_array(pass->alloc, graph->n_tensors, sizeof(bool));
    pass->live = esp_i_alloc_array(pass->alloc, graph->n_ops, sizeof(bool));
    pass->op_to = esp_i_alloc_array(pass->alloc, graph->n_ops, sizeof(esp_op_id_t));
    if (pass->rewrite.map == NULL || pass->rewrite.kept == NULL || pass->rewrite.gone == NULL ||
        pass->rewrite.reread == NULL || pass->read == NULL || pass->live == NULL ||
        pass->op_to == NULL)
        return false;
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++)
        pass->rewrite.map[i] = ESP_NONE;
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        pass->op_to[op] = ESP_NONE;
    return esp_builder_create(graph->name, pass->alloc, &pass->rewrite.builder) == ESP_OK;
}

static void release(pass_t *pass)
{
    esp_builder_destroy(pass->rewrite.builder);
    esp_i_free(pass->alloc, pass->rewrite.map);
    esp_i_free(pass->alloc, pass->rewrite.kept);
    esp_i_free(pass->alloc, pass->rewrite.gone);
    esp_i_free(pass->alloc, pass->rewrite.reread);
    esp_i_free(pass->alloc, pass->read);
    esp_i_free(pass->alloc, pass->live);
    esp_i_free(pass->alloc, pass->op_to);
}

static esp_status_t round_of(const esp_graph_t *graph, int32_t n_patterns,
                             const esp_allocator_t *alloc, esp_graph_t **graph_out,
                             bool *changed_out, esp_diag_t *diag)
{
    pass_t pass = {
        .alloc = alloc, .rewrite = {.graph = graph, .diag = diag}, .n_patterns = n_patterns};
    esp_status_t status = ESP_ERR_NOMEM;
    if (reserve(&pass)) {
        mark_live(&pass);
        status = rebuild_all(&pass);
    }
    if (status == ESP_OK)
        status = esp_builder_freeze(pass.rewrite.builder, graph_out, diag);
    else if (status == ESP_ERR_NOMEM)
        status = esp_i_nomem(diag);
    *changed_out = pass.changed;
    release(&pass);
    return status;
}

esp_status_t esp_graph_canonicalise(const esp_graph_t *graph, const esp_allocator_t *alloc,
                                    esp_graph_t **graph_out, esp_diag_t *diag)
{
    const esp_allocator_t from = esp_i_allocator(alloc);
    esp_graph_t *last = NULL, *made = NULL;
    bool changed = true;
    for (int32_t late = 0, i = 0; i < MAX_ROUNDS && (changed || late == 0); i++) {
        late = changed ? late : N_LATE;
        esp_status_t status = round_of(last != NULL ? last : graph, N_PATTERNS - N_LATE + late,
                                       &from, &made, &changed, diag);
        esp_graph_destroy(last);
        if (status != ESP_OK)
            return status;
        last = made;
    }
    *graph_out = last;
    return ESP_OK;
}
