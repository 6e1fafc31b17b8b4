/* espalier compare: every baseline and the search side by side, or a plan and its measurement. */
#include "cli.h"

#include <stdlib.h>

static int print_search(const cli_args_t *args, const cli_search_t *search)
{
    esp_report_opts_t opts = cli_report_opts(args);
    esp_diag_t diag = {0};
    char *text = NULL;
    esp_report_search_args_t subject = {args->operand, search->cost, &search->opts, search->result};
    if (args->quiet && !args->json)
        return CLI_DONE;
    esp_status_t status = esp_report_compare(&subject, &opts, NULL, &text, &diag);
    return cli_print_report(status, text, &diag);
}

static int compare_baselines(const cli_args_t *args)
{
    cli_search_t search;
    int result = cli_search_run(args, &search);
    if (result == CLI_DONE)
        result = print_search(args, &search);
    if (result == CLI_DONE)
        result = cli_search_verdict(&search);
    cli_search_fini(&search);
    return result;
}

static int print_measured(const cli_args_t *args, const cli_deployment_t *d)
{
    esp_report_opts_t opts = cli_report_opts(args);
    esp_measured_t *measured;
    esp_diag_t diag = {0};
    char *text = NULL;
    esp_status_t status = esp_measured_read(args->measured, d->deployment, NULL, &measured, &diag);
    if (status != ESP_OK)
        return cli_fail_in(args->measured, status, &diag);
    esp_report_measured_args_t subject = {
        .model = d->plan->model_path,
        .measured = measured,
        .links = args->links_given ? (esp_link_mode_t)args->links : d->plan->links,
    };
    status = esp_report_measured(&subject, &opts, NULL, &text, &diag);
    esp_measured_destroy(measured);
    if (status != ESP_OK)
        return cli_fail_in(args->measured, status, &diag) == CLI_FAULT ? CLI_FAULT : CLI_BAD_INPUT;
    int result = args->quiet && !args->json ? CLI_DONE : cli_print(text);
    free(text);
    return result;
}

static int compare_measured(const cli_args_t *args)
{
    cli_deployment_t deployment;
    int result = cli_deployment_load(args, &deployment);
    if (result == CLI_DONE)
        result = print_measured(args, &deployment);
    cli_deployment_fini(&deployment);
    return result;
}

static int run(const cli_args_t *args)
{
    return args->measured != NULL ? compare_measured(args) : compare_baselines(args);
}

const cli_command_t cli_compare = {
    .name = "compare",
    .bit = CLI_COMPARE,
    .operand = "MODEL",
    .help = "every baseline and the search side by side",
    .about = "Predicts step time and memory of every baseline (one device, data parallelism with\n"
             "all-reduce or parameter servers, model parallelism, pipelining) and of the search.\n"
             "With --measured, the operand is a plan: its prediction beside a trace of its run.",
    .example = "espalier compare models/vgg19.onnx -c clusters/testbed.yaml --batch 96\n"
               "  espalier compare --measured trace.json plan.json",
    .run = run,
};
