/* esp_training_graph: what is trained, and the order of the three parts. */
#include "graph/training.h"

#include <math.h>
#include <regex.h>
#include <stddef.h>

esp_training_opts_t esp_training_opts_default(void)
{
    return (esp_training_opts_t){
        .struct_size = sizeof(esp_training_opts_t),
        .loss = ESP_LOSS_AUTO,
        .ignore_label = INT64_MIN,
        .optimizer = ESP_OPTIMIZER_SGD,
        .rate = 0.01,
        .momentum = 0.9,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .epsilon = 1e-8,
    };
}

/* ---- options ------------------------------------------------------------------------------ */

esp_status_t esp_i_training_check(const esp_graph_t *model, const esp_training_opts_t *opts,
                                  esp_diag_t *diag)
{
    const struct {
        const char *name;
        double value, below; /* 0 <= value < below */
    } bounds[] = {
        {"rate", opts->rate, INFINITY},
        {"momentum", opts->momentum, 1},
        {"beta1", opts->beta1, 1},
        {"beta2", opts->beta2, 1},
        {"epsilon", opts->epsilon, INFINITY},
        {"decay", opts->decay, INFINITY},
        {"clip_norm", opts->clip_norm, INFINITY},
    };
    if (opts->struct_size != sizeof *opts)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "options of an unknown version");
    if (opts->loss < ESP_LOSS_AUTO || opts->loss > ESP_LOSS_OUTPUT)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "unknown loss %d", (int)opts->loss);
    if (opts->optimizer < ESP_OPTIMIZER_SGD || opts->optimizer > ESP_OPTIMIZER_ADAMW)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "unknown optimizer %d", (int)opts->optimizer);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (!(bounds[i].value >= 0 && bounds[i].value < bounds[i].below))
            return esp_i_fail(diag, ESP_ERR_ARGUMENT, "%s is %g; it must be in [0, %g)",
                              bounds[i].name, bounds[i].value, bounds[i].below);
    if (model->loss != ESP_NONE)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "graph %s is a training graph already",
                          model->name);
    if (model->n_outputs == 0)
        return esp_i_fail(diag, ESP_ERR_INVALID, "graph %s has no output to train", model->name);
    return ESP_OK;
}

/* ---- what is trained ---------------------------------------------------------------------- */

static esp_status_t compile_regex(const char *pattern, const char *option, regex_t *regex,
                                  esp_diag_t *diag)
{
    int code = regcomp(regex, pattern, REG_EXTENDED | REG_NOSUB);
    char text[128];
    if (code == 0)
        return ESP_OK;
    if (code == REG_ESPACE)
        return esp_i_nomem(diag);
    (void)regerror(code, regex, text, sizeof text);
    return esp_i_fail(diag, ESP_ERR_ARGUMENT, "%s \"%s\": %s", option, pattern, text);
}

/* Clears the flag of parameters whose name matches (or does not match) the pattern. */
static esp_status_t exclude(const esp_i_training_t *training, bool *flag, const char *pattern,
                            const char *option, bool where_matches)
{
    const esp_graph_t *model = training->model;
    regex_t regex;
    if (pattern == NULL)
        return ESP_OK;
    ESP_TRY(compile_regex(pattern, option, &regex, training->diag));
    for (int32_t i = 0; i < model->n_parameters; i++) {
        esp_tensor_id_t tensor = model->parameter[i];
        if ((regexec(&regex, model->tensor_name[tensor], 0, NULL, 0) == 0) == where_matches)
            flag[tensor] = false;
    }
    regfree(&regex);
    return ESP_OK;
}

static esp_status_t choose_trainable(esp_i_training_t *training)
{
    const esp_graph_t *model = training->model;
    for (int32_t i = 0; i < model->n_parameters; i++) {
        esp_tensor_id_t tensor = model->parameter[i];
        training->decays[tensor] = true;
        training->trainable[tensor] =
            esp_dtype_is_float((esp_dtype_t)model->tensor_dtype[tensor]) &&
            model->tensor_rank[tensor] >= 1;
    }
    const esp_training_opts_t *opts = training->opts;
    ESP_TRY(exclude(training, training->trainable, opts->train_regex, "train", false));
    ESP_TRY(exclude(training, training->trainable, opts->freeze_regex, "freeze", true));
    return exclude(training, training->decays, opts->no_decay_regex, "no_decay", true);
}

/* Parameters that got no gradient are frozen: the graph says what is trained and nothing else. */
static esp_status_t freeze_rest(esp_i_training_t *training)
{
    const esp_graph_t *model = training->model;
    int32_t trained = 0;
    for (int32_t i = 0; i < model->n_parameters; i++) {
        esp_tensor_id_t tensor = model->parameter[i];
        if (training->gradient[tensor] != ESP_NONE)
            trained++;
        else
            ESP_TRY(esp_builder_role(training->builder, tensor, ESP_ROLE_FROZEN));
    }
    if (trained == 0)
        return esp_i_fail(training->diag, ESP_ERR_INVALID,
                          "the loss depends on no trainable parameter");
    return ESP_OK;
}

/* ---- the whole ---------------------------------------------------------------------------- */

const char *esp_i_training_name(esp_i_training_t *training, const char *name, const char *suffix)
{
    return esp_i_arena_printf(&training->builder->arena, "%s%s", name, suffix);
}

static esp_status_t append_all(esp_i_training_t *training)
{
    esp_builder_t *builder = training->builder;
    ESP_TRY(esp_i_builder_copy(builder, training->model, training->diag));
    ESP_TRY(choose_trainable(training));
    ESP_TRY(esp_i_training_loss(training));
    ESP_TRY(esp_i_training_backward(training));
    ESP_TRY(freeze_rest(training));
    ESP_TRY(esp_i_training_update(training));
    builder->outputs.count = 0; /* a step returns its loss and nothing else */
    return esp_builder_output(builder, training->loss);
}

static bool reserve(esp_i_training_t *training)
{
    const esp_graph_t *model = training->model;
    int64_t n = model->n_tensors;
    training->trainable = esp_i_alloc_array(training->alloc, n, sizeof *training->trainable);
    training->decays = esp_i_alloc_array(training->alloc, n, sizeof *training->decays);
    training->first_user = esp_i_alloc_array(training->alloc, n, sizeof *training->first_user);
    training->gradient = esp_i_alloc_array(training->alloc, n, sizeof *training->gradient);
    if (training->trainable == NULL || training->decays == NULL || training->first_user == NULL ||
        training->gradient == NULL)
        return false;
    for (esp_tensor_id_t i = 0; i < n; i++) {
        int32_t first = model->consumer_offset[i];
        training->gradient[i] = ESP_NONE;
        training->first_user[i] =
            first < model->consumer_offset[i + 1] ? model->consumer_op[first] : ESP_NONE;
    }
    return true;
}

esp_status_t esp_training_graph(const esp_graph_t *model, const esp_training_opts_t *opts,
                                const esp_allocator_t *alloc, esp_graph_t **graph_out,
                                esp_diag_t *diag)
{
    const esp_training_opts_t defaults = esp_training_opts_default();
    const esp_allocator_t from = esp_i_allocator(alloc);
    esp_i_training_t training = {.model = model,
                                 .opts = opts != NULL ? opts : &defaults,
                                 .alloc = &from,
                                 .diag = diag,
                                 .loss = ESP_NONE};
    ESP_TRY(esp_i_training_check(model, training.opts, diag));
    esp_status_t status = esp_builder_create(model->name, &from, &training.builder);
    if (status != ESP_OK)
        return esp_i_nomem(diag);
    status = reserve(&training) ? append_all(&training) : esp_i_nomem(diag);
    if (status == ESP_OK)
        status = esp_builder_freeze(training.builder, graph_out, diag);
    else if (status == ESP_ERR_NOMEM)
        status = esp_i_nomem(diag);
    esp_i_free(&from, training.trainable);
    esp_i_free(&from, training.decays);
    esp_i_free(&from, training.first_user);
    esp_i_free(&from, training.gradient);
    esp_builder_destroy(training.builder);
    return status;
}
