/* From a model file to the graph of one training step. */
#include "cli.h"

#include "espalier/onnx.h"

static esp_training_opts_t training_opts(const cli_args_t *args)
{
    esp_training_opts_t opts = esp_training_opts_default();
    opts.loss = (esp_loss_t)args->loss;
    opts.ignore_label = args->ignore_label;
    opts.optimizer = (esp_optimizer_t)args->optimizer;
    opts.rate = args->lr;
    opts.momentum = args->momentum;
    opts.beta1 = args->beta1;
    opts.beta2 = args->beta2;
    opts.epsilon = args->epsilon;
    opts.decay = args->weight_decay;
    opts.clip_norm = args->clip_norm;
    opts.train_regex = args->train;
    opts.freeze_regex = args->freeze;
    opts.no_decay_regex = args->no_decay;
    return opts;
}

static esp_status_t load(const cli_args_t *args, bool forward_only, cli_model_t *model,
                         esp_diag_t *diag)
{
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    esp_graph_t *imported;
    opts.batch = args->batch;
    opts.batch_dim = args->batch_dim;
    opts.dims = args->dim;
    esp_status_t status = esp_onnx_load(args->operand, &opts, NULL, &imported, diag);
    if (status != ESP_OK)
        return status;
    status = esp_graph_canonicalise(imported, NULL, &model->model, diag);
    esp_graph_destroy(imported);
    if (status != ESP_OK || forward_only)
        return status;
    return esp_training_graph(model->model, &model->training, NULL, &model->step, diag);
}

int cli_model_load(const cli_args_t *args, bool forward_only, cli_model_t *model)
{
    esp_diag_t diag = {0};
    *model = (cli_model_t){.training = training_opts(args)};
    esp_status_t status = load(args, forward_only, model, &diag);
    if (status == ESP_OK)
        return CLI_DONE;
    /* A fault in the graph is one of the file, whichever pass finds it. */
    return status == ESP_ERR_ARGUMENT ? cli_fail(status, &diag)
                                      : cli_fail_in(args->operand, status, &diag);
}

void cli_model_fini(cli_model_t *model)
{
    esp_graph_destroy(model->model);
    esp_graph_destroy(model->step);
}
