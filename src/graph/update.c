/* The update phase: clipping to a global norm, optimizer state, one optimizer op per parameter. */
#include "graph/training.h"

typedef struct update {
    esp_i_training_t *training;
    esp_tensor_id_t step, scale; /* scalars that all updates read; ESP_NONE */
} update_t;

static bool has_momentum(esp_optimizer_t optimizer)
{
    return optimizer != ESP_OPTIMIZER_SGD && optimizer != ESP_OPTIMIZER_STATISTIC;
}

static bool is_adam(esp_optimizer_t optimizer)
{
    return optimizer == ESP_OPTIMIZER_ADAM || optimizer == ESP_OPTIMIZER_ADAMW;
}

static void at_parameter(esp_i_training_t *training, esp_tensor_id_t parameter)
{
    esp_op_id_t user = training->first_user[parameter];
    esp_builder_phase(training->builder, ESP_PHASE_UPDATE,
                      training->builder->ops.data[user].origin);
}

/* ---- clipping ----------------------------------------------------------------------------- */

/* Sum of the squares of one gradient, in `dtype`. */
static esp_status_t square_sum(esp_i_training_t *training, esp_tensor_id_t parameter,
                               esp_dtype_t dtype, esp_tensor_id_t *sum_out)
{
    esp_builder_t *builder = training->builder;
    esp_attr_t attr = {.cast = {.dtype = dtype}};
    uint32_t axes = (1U << training->model->tensor_rank[parameter]) - 1;
    esp_tensor_id_t sum;
    const char *name =
        esp_i_training_name(training, training->model->tensor_name[parameter], "/sumsq");
    if (name == NULL)
        return ESP_ERR_NOMEM;
    at_parameter(training, parameter);
    ESP_TRY(esp_i_make_reduce(builder, ESP_REDUCE_SUMSQ, training->gradient[parameter], axes, false,
                              name, &sum, training->diag));
    *sum_out = sum;
    if (builder->tensors.data[sum].shape.dtype == dtype)
        return ESP_OK;
    return esp_i_make(builder, ESP_KIND_CAST, &attr, 1, &sum, name, sum_out, training->diag);
}

/* min(1, clip / (norm + 1e-6)) */
static esp_status_t scale_of(update_t *update, int32_t n, const esp_tensor_id_t *sums)
{
    esp_i_training_t *training = update->training;
    esp_builder_t *builder = training->builder;
    esp_tensor_id_t x;
    esp_builder_phase(builder, ESP_PHASE_UPDATE, ESP_NONE);
    ESP_TRY(
        esp_i_make_elt(builder, ESP_ELT_ADD, 0.0, 0.0, n, sums, "clip/sumsq", &x, training->diag));
    ESP_TRY(esp_i_make_unary(builder, ESP_ELT_SQRT, x, "clip/norm", &x, training->diag));
    ESP_TRY(esp_i_make_affine(builder, x, 1.0, 1e-6, "clip/divisor", &x, training->diag));
    ESP_TRY(
        esp_i_make_unary(builder, ESP_ELT_RECIPROCAL, x, "clip/reciprocal", &x, training->diag));
    ESP_TRY(esp_i_make_affine(builder, x, training->opts->clip_norm, 0.0, "clip/ratio", &x,
                              training->diag));
    return esp_i_make_elt(builder, ESP_ELT_CLIP, 0.0, 1.0, 1, &x, "clip/scale", &update->scale,
                          training->diag);
}

static esp_status_t add_clipping(update_t *update)
{
    esp_i_training_t *training = update->training;
    const esp_graph_t *model = training->model;
    ESP_VEC(esp_tensor_id_t) sums = {0};
    esp_status_t status = ESP_OK;
    for (int32_t i = 0; i < model->n_parameters && status == ESP_OK; i++) {
        esp_tensor_id_t sum;
        if (training->gradient[model->parameter[i]] == ESP_NONE)
            continue;
        status = square_sum(training, model->parameter[i], ESP_DTYPE_F32, &sum);
        if (status == ESP_OK && !esp_vec_push(training->alloc, &sums, sum))
            status = ESP_ERR_NOMEM;
    }
    if (status == ESP_OK)
        status = scale_of(update, sums.count, sums.data);
    esp_vec_free(training->alloc, &sums);
    return status;
}

/* ---- state -------------------------------------------------------------------------------- */

/* The number of the step that is being taken, shared by all updates; the state holds the last one.
 */
static esp_status_t add_step(update_t *update)
{
    esp_i_training_t *training = update->training;
    esp_builder_t *builder = training->builder;
    esp_tensor_id_t before;
    ESP_TRY(esp_builder_tensor(builder, "step", ESP_ROLE_STATE, ESP_DTYPE_F32, 0, NULL, NULL,
                               &before, training->diag));
    esp_builder_phase(builder, ESP_PHASE_UPDATE, ESP_NONE);
    ESP_TRY(
        esp_i_make_affine(builder, before, 1.0, 1.0, "step/next", &update->step, training->diag));
    return esp_builder_next(builder, before, update->step, training->diag);
}

/* Moments of half-precision weights are kept in float32. */
static esp_status_t add_moment(esp_i_training_t *training, esp_tensor_id_t parameter,
                               const char *suffix, esp_tensor_id_t *moment_out)
{
    const esp_graph_t *model = training->model;
    esp_dtype_t dtype = (esp_dtype_t)model->tensor_dtype[parameter];
    const char *name = esp_i_training_name(training, model->tensor_name[parameter], suffix);
    if (name == NULL)
        return ESP_ERR_NOMEM;
    return esp_builder_tensor(training->builder, name, ESP_ROLE_STATE,
                              dtype == ESP_DTYPE_F64 ? ESP_DTYPE_F64 : ESP_DTYPE_F32,
                              model->tensor_rank[parameter], model->tensor_dims[parameter], NULL,
                              moment_out, training->diag);
}

/* ---- updates ------------------------------------------------------------------------------ */

static esp_status_t add_update(update_t *update, esp_tensor_id_t parameter)
{
    enum { W, G, STEP, M, V, SCALE, INPUTS };
    esp_i_training_t *training = update->training;
    esp_builder_t *builder = training->builder;
    const esp_training_opts_t *opts = training->opts;
    esp_tensor_id_t in[INPUTS] = {
        parameter, training->gradient[parameter], update->step, ESP_NONE, ESP_NONE, update->scale};
    esp_tensor_id_t out[ESP_I_MAX_OUT];
    esp_attr_t attr = {.update = {opts->optimizer, opts->rate, opts->momentum, opts->beta1,
                                  opts->beta2, opts->epsilon,
                                  training->decays[parameter] ? opts->decay : 0}};
    const char *name =
        esp_i_training_name(training, training->model->tensor_name[parameter], "/update");
    if (name == NULL)
        return ESP_ERR_NOMEM;
    if (has_momentum(opts->optimizer))
        ESP_TRY(add_moment(training, parameter, "/m", &in[M]));
    if (is_adam(opts->optimizer))
        ESP_TRY(add_moment(training, parameter, "/v", &in[V]));
    at_parameter(training, parameter);
    ESP_TRY(esp_builder_op(builder, ESP_KIND_UPDATE, &attr, INPUTS, in, name, out, training->diag));
    ESP_TRY(esp_builder_next(builder, parameter, out[0], training->diag));
    if (in[M] != ESP_NONE)
        ESP_TRY(esp_builder_next(builder, in[M], out[1], training->diag));
    if (in[V] != ESP_NONE)
        ESP_TRY(esp_builder_next(builder, in[V], out[2], training->diag));
    return ESP_OK;
}

esp_status_t esp_i_training_update(esp_i_training_t *training)
{
    const esp_graph_t *model = training->model;
    update_t update = {training, ESP_NONE, ESP_NONE};
    if (training->opts->clip_norm > 0)
        ESP_TRY(add_clipping(&update));
    if (is_adam(training->opts->optimizer))
        ESP_TRY(add_step(&update));
    for (int32_t i = 0; i < model->n_parameters; i++)
        if (training->gradient[model->parameter[i]] != ESP_NONE)
            ESP_TRY(add_update(&update, model->parameter[i]));
    esp_builder_phase(training->builder, ESP_PHASE_FORWARD, ESP_NONE);
    return ESP_OK;
}
