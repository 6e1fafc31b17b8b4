/* espalier inspect: what is in a model. */
#include "cli.h"

static int print_kinds(const cli_args_t *args)
{
    esp_report_opts_t opts = cli_report_opts(args);
    esp_diag_t diag = {0};
    char *text = NULL;
    esp_status_t status = esp_report_kinds(&opts, NULL, &text, &diag);
    return cli_print_report(status, text, &diag);
}

static int print_model(const cli_args_t *args, const cli_model_t *model)
{
    esp_report_opts_t opts = cli_report_opts(args);
    esp_diag_t diag = {0};
    char *text = NULL;
    esp_costs_t *costs = NULL;
    esp_report_model_args_t subject = {
        .file = args->operand,
        .model = model->model,
        .step = model->step,
        .training = &model->training,
        .precision = (esp_precision_t)args->precision,
    };
    if (args->quiet && !args->json && !args->dump)
        return CLI_DONE;
    esp_status_t status = ESP_OK;
    if (args->costs != NULL)
        status = esp_costs_read(args->costs, NULL, &costs, &diag);
    if (status != ESP_OK)
        return cli_fail(status, &diag);
    subject.costs = costs;
    status = args->dump ? esp_graph_dump(model->step != NULL ? model->step : model->model, NULL,
                                         &text, &diag)
                        : esp_report_model(&subject, &opts, NULL, &text, &diag);
    esp_costs_destroy(costs);
    return cli_print_report(status, text, &diag);
}

static int run(const cli_args_t *args)
{
    cli_model_t model;
    if (args->dump && args->json) {
        cli_error("--dump and --json exclude each other");
        return CLI_USAGE;
    }
    if (args->ops)
        return print_kinds(args);
    int result = cli_model_load(args, args->forward, &model);
    if (result == CLI_DONE)
        result = print_model(args, &model);
    cli_model_fini(&model);
    return result;
}

const cli_command_t cli_inspect = {
    .name = "inspect",
    .bit = CLI_INSPECT,
    .operand = "MODEL",
    .help = "what is in a model: ops, FLOPs, parameters, memory",
    .about = "Reads an ONNX model, derives the training step and says what is in it: inputs and\n"
             "outputs, where the batch is, ops by kind, FLOPs, parameters, memory of one replica,\n"
             "and which ops the batch does not split.",
    .example = "espalier inspect models/resnet50.onnx --batch 64 --optimizer adam",
    .run = run,
};
