/* esp_evaluation_graph: the model as it is used rather than trained, its loss, and counts. */
#include "graph/training.h"

/* ---- the model without what belongs to training ---------------------------------------------- */

typedef struct pass {
    const esp_graph_t *model;
    esp_builder_t *builder;
    esp_tensor_id_t *map; /* per tensor of the model; ESP_NONE: left out */
    esp_diag_t *diag;
} pass_t;

static esp_tensor_id_t operand(const pass_t *pass, esp_op_id_t op, int32_t i)
{
    return pass->model->input_tensor[pass->model->input_offset[op] + i];
}

/* The running statistic that output 1 or 2 of a BN_NORM is folded into; ESP_NONE. */
static esp_tensor_id_t running_of(const pass_t *pass, esp_op_id_t op, int32_t output)
{
    const esp_graph_t *model = pass->model;
    esp_tensor_id_t fresh = model->output_tensor[model->output_offset[op] + output];
    for (int32_t i = model->consumer_offset[fresh]; i < model->consumer_offset[fresh + 1]; i++) {
        esp_op_id_t user = model->consumer_op[i];
        if (model->op_kind[user] == ESP_KIND_UPDATE &&
            model->op_attr[user].update.optimizer == ESP_OPTIMIZER_STATISTIC &&
            operand(pass, user, 1) == fresh)
            return operand(pass, user, 0);
    }
    return ESP_NONE;
}

/* One number per channel, in a shape that broadcasts over the axes after the channels. */
static esp_status_t per_channel(const pass_t *pass, esp_tensor_id_t x, int32_t rank,
                                const char *name, esp_tensor_id_t *out)
{
    int64_t dims[ESP_MAX_RANK] = {pass->builder->tensors.data[x].shape.dims[0]};
    for (int32_t d = 1; d < rank - 1; d++)
        dims[d] = 1;
    *out = x;
    return rank == 2 ? ESP_OK
                     : esp_i_make_reshape(pass->builder, x, rank - 1, dims, name, out, pass->diag);
}

/* (x - mean) * (gamma / sqrt(variance + epsilon)) + beta */
static esp_status_t normalise(pass_t *pass, esp_op_id_t op, esp_tensor_id_t mean,
                              esp_tensor_id_t variance)
{
    enum { X, SUM, SUMSQ, GAMMA, BETA };
    const esp_graph_t *model = pass->model;
    esp_builder_t *b = pass->builder;
    const char *name = model->op_name[op];
    int32_t rank = model->tensor_rank[operand(pass, op, X)];
    esp_tensor_id_t scale, shift, y = pass->map[operand(pass, op, X)];
    ESP_TRY(esp_i_make_affine(b, pass->map[variance], 1, model->op_attr[op].norm.epsilon, name,
                              &scale, pass->diag));
    ESP_TRY(esp_i_make_unary(b, ESP_ELT_RSQRT, scale, name, &scale, pass->diag));
    ESP_TRY(esp_i_make_binary(b, ESP_ELT_MUL, scale, pass->map[operand(pass, op, GAMMA)], name,
                              &scale, pass->diag));
    ESP_TRY(per_channel(pass, pass->map[mean], rank, name, &shift));
    ESP_TRY(esp_i_make_binary(b, ESP_ELT_SUB, y, shift, name, &y, pass->diag));
    ESP_TRY(per_channel(pass, scale, rank, name, &scale));
    ESP_TRY(esp_i_make_binary(b, ESP_ELT_MUL, y, scale, name, &y, pass->diag));
    ESP_TRY(per_channel(pass, pass->map[operand(pass, op, BETA)], rank, name, &shift));
    return esp_i_make_binary(b, ESP_ELT_ADD, y, shift, name,
                             &pass->map[model->output_tensor[model->output_offset[op]]],
                             pass->diag);
}

static esp_status_t copy_op(pass_t *pass, esp_op_id_t op)
{
    const esp_graph_t *model = pass->model;
    const esp_tensor_id_t *outputs = model->output_tensor + model->output_offset[op];
    int32_t n_in = model->input_offset[op + 1] - model->input_offset[op];
    esp_attr_t attr = model->op_attr[op];
    const char *names[ESP_I_MAX_OUT] = {NULL};
    esp_tensor_id_t made[ESP_I_MAX_OUT];
    ESP_VEC(esp_tensor_id_t) inputs = {0};
    const esp_allocator_t *alloc = &pass->builder->arena.alloc;
    if (model->op_kind[op] == ESP_KIND_ATTENTION)
        attr.attention.p = 0;
    if (!esp_vec_extend(alloc, &inputs, n_in))
        return esp_i_nomem(pass->diag);
    for (int32_t i = 0; i < n_in; i++) {
        esp_tensor_id_t input = operand(pass, op, i);
        inputs.data[i] = input != ESP_NONE ? pass->map[input] : ESP_NONE;
    }
    int32_t n_out = model->output_offset[op + 1] - model->output_offset[op];
    for (int32_t i = 0; i < n_out; i++)
        names[i] = model->tensor_name[outputs[i]];
    esp_status_t status =
        esp_i_builder_op(pass->builder, (esp_op_kind_t)model->op_kind[op], &attr, n_in, inputs.data,
                         model->op_name[op], names, made, pass->diag);
    for (int32_t i = 0; i < n_out && status == ESP_OK; i++)
        pass->map[outputs[i]] = made[i];
    esp_vec_free(alloc, &inputs);
    return status;
}

static esp_status_t rebuild_op(pass_t *pass, esp_op_id_t op)
{
    const esp_graph_t *model = pass->model;
    esp_tensor_id_t mean, variance;
    if (model->op_phase[op] == ESP_PHASE_UPDATE)
        return ESP_OK;
    if (model->op_kind[op] == ESP_KIND_DROPOUT) {
        pass->map[model->output_tensor[model->output_offset[op]]] = pass->map[operand(pass, op, 0)];
        return ESP_OK;
    }
    if (model->op_kind[op] != ESP_KIND_BN_NORM)
        return copy_op(pass, op);
    mean = running_of(pass, op, 1);
    variance = running_of(pass, op, 2);
    return mean != ESP_NONE && variance != ESP_NONE ? normalise(pass, op, mean, variance)
                                                    : copy_op(pass, op);
}

/* Tensors come in the order of the model: one without producer before the ops that follow it. */
static esp_status_t rebuild(pass_t *pass)
{
    const esp_graph_t *model = pass->model;
    for (esp_tensor_id_t tensor = 0; tensor < model->n_tensors; tensor++) {
        pass->map[tensor] = ESP_NONE;
        if (model->tensor_producer[tensor] == ESP_NONE)
            ESP_TRY(esp_i_builder_copy_tensor(pass->builder, model, tensor, &pass->map[tensor],
                                              pass->diag));
    }
    for (esp_op_id_t op = 0; op < model->n_ops; op++)
        ESP_TRY(rebuild_op(pass, op));
    return esp_builder_output(pass->builder, pass->map[model->output[0]]);
}

static esp_status_t used_model(const esp_graph_t *model, const esp_allocator_t *alloc,
                               esp_graph_t **out, esp_diag_t *diag)
{
    pass_t pass = {.model = model, .diag = diag};
    esp_graph_t *frozen = NULL;
    esp_status_t status = esp_builder_create(model->name, alloc, &pass.builder);
    pass.map = esp_i_alloc_array(alloc, model->n_tensors, sizeof *pass.map);
    if (status == ESP_OK)
        status = pass.map != NULL ? rebuild(&pass) : esp_i_nomem(diag);
    if (status == ESP_OK)
        status = esp_builder_freeze(pass.builder, &frozen, diag);
    if (status == ESP_OK) /* drops what only training needed */
        status = esp_graph_canonicalise(frozen, alloc, out, diag);
    esp_graph_destroy(frozen);
    esp_i_free(alloc, pass.map);
    esp_builder_destroy(pass.builder);
    return status;
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* The position of the largest logit of each row, the first of equal ones; NaN: none. */
static esp_status_t arg_max(esp_i_training_t *training, esp_tensor_id_t logits,
                            esp_tensor_id_t *out)
{
    esp_builder_t *b = training->builder;
    esp_i_shape_t shape = b->tensors.data[logits].shape;
    int32_t axis = shape.rank - 1;
    esp_attr_t attr = {
        .shape = {.rank = 1, .dims = {shape.dims[axis]}, .dtype = ESP_DTYPE_I64, .step = 1}};
    esp_tensor_id_t in[3], top;
    ESP_TRY(esp_i_make_reduce(b, ESP_REDUCE_MAX, logits, 1U << axis, true, "eval/top", &top,
                              training->diag));
    ESP_TRY(esp_i_make_binary(b, ESP_ELT_GREATER_EQUAL, logits, top, "eval/is_top", &in[0],
                              training->diag));
    ESP_TRY(esp_i_make(b, ESP_KIND_RANGE, &attr, 0, NULL, "eval/class", &in[1], training->diag));
    attr = (esp_attr_t){.shape = {.dtype = ESP_DTYPE_I64, .value = (double)shape.dims[axis]}};
    ESP_TRY(esp_i_make(b, ESP_KIND_FILL, &attr, 0, NULL, "eval/no_class", &in[2], training->diag));
    ESP_TRY(esp_i_make_elt(b, ESP_ELT_WHERE, 0, 0, 3, in, "eval/place", &top, training->diag));
    return esp_i_make_reduce(b, ESP_REDUCE_MIN, top, 1U << axis, false, "eval/guess", out,
                             training->diag);
}

/* A state that grows by how often `is` is true. */
static esp_status_t count(esp_i_training_t *training, esp_tensor_id_t is, const char *name)
{
    esp_builder_t *b = training->builder;
    esp_attr_t attr = {.cast = {.dtype = ESP_DTYPE_F32}};
    uint32_t axes = (1U << b->tensors.data[is].shape.rank) - 1;
    esp_tensor_id_t before, number, after;
    ESP_TRY(esp_builder_tensor(b, name, ESP_ROLE_STATE, ESP_DTYPE_F32, 0, NULL, NULL, &before,
                               training->diag));
    ESP_TRY(esp_i_make(b, ESP_KIND_CAST, &attr, 1, &is, name, &number, training->diag));
    if (axes != 0)
        ESP_TRY(esp_i_make_reduce(b, ESP_REDUCE_SUM, number, axes, false, name, &number,
                                  training->diag));
    esp_builder_phase(b, ESP_PHASE_UPDATE, ESP_NONE);
    ESP_TRY(esp_i_make_binary(b, ESP_ELT_ADD, before, number, name, &after, training->diag));
    esp_builder_phase(b, ESP_PHASE_FORWARD, ESP_NONE);
    return esp_builder_next(b, before, after, training->diag);
}

esp_status_t esp_i_evaluation_counts(esp_i_training_t *training, esp_tensor_id_t logits,
                                     esp_tensor_id_t labels)
{
    esp_builder_t *b = training->builder;
    int64_t ignore = training->opts->ignore_label;
    esp_tensor_id_t literal, guess, counted, correct;
    ESP_TRY(esp_builder_tensor(b, "eval/ignore", ESP_ROLE_CONSTANT, ESP_DTYPE_I64, 0, NULL, &ignore,
                               &literal, training->diag));
    ESP_TRY(esp_i_make_binary(b, ESP_ELT_NOT_EQUAL, labels, literal, "eval/counts", &counted,
                              training->diag));
    ESP_TRY(arg_max(training, logits, &guess));
    ESP_TRY(
        esp_i_make_binary(b, ESP_ELT_EQUAL, guess, labels, "eval/hit", &correct, training->diag));
    ESP_TRY(
        esp_i_make_binary(b, ESP_ELT_AND, correct, counted, "eval/hits", &correct, training->diag));
    ESP_TRY(count(training, correct, ESP_EVAL_CORRECT));
    return count(training, counted, ESP_EVAL_COUNTED);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static esp_status_t append(esp_i_training_t *training)
{
    esp_builder_t *b = training->builder;
    ESP_TRY(esp_i_builder_copy(b, training->model, training->diag));
    for (esp_tensor_id_t i = 0; i < training->model->n_tensors; i++) {
        esp_role_t role = (esp_role_t)training->model->tensor_role[i];
        if (role == ESP_ROLE_PARAMETER || role == ESP_ROLE_STATISTIC)
            ESP_TRY(esp_builder_role(b, i, ESP_ROLE_FROZEN));
    }
    ESP_TRY(esp_i_training_loss(training));
    b->outputs.count = 0;
    return esp_builder_output(b, training->loss);
}

esp_status_t esp_evaluation_graph(const esp_graph_t *model, const esp_training_opts_t *opts,
                                  const esp_allocator_t *alloc, esp_graph_t **graph_out,
                                  esp_diag_t *diag)
{
    const esp_training_opts_t defaults = esp_training_opts_default();
    const esp_allocator_t from = esp_i_allocator(alloc);
    esp_graph_t *used = NULL;
    esp_i_training_t training = {.opts = opts != NULL ? opts : &defaults,
                                 .alloc = &from,
                                 .diag = diag,
                                 .loss = ESP_NONE,
                                 .evaluation = true};
    ESP_TRY(esp_i_training_check(model, training.opts, diag));
    esp_status_t status = used_model(model, &from, &used, diag);
    training.model = used;
    if (status == ESP_OK)
        status = esp_builder_create(model->name, &from, &training.builder);
    if (status == ESP_OK)
        status = append(&training);
    if (status == ESP_OK)
        status = esp_builder_freeze(training.builder, graph_out, diag);
    if (status == ESP_ERR_NOMEM)
        status = esp_i_nomem(diag);
    esp_builder_destroy(training.builder);
    esp_graph_destroy(used);
    return status;
}
