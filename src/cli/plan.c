/* espalier plan: find the best deployment, show it, write it. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* ---- files -------------------------------------------------------------------------------- */

int cli_trace_write(const esp_sim_t *sim, const char *path)
{
    esp_diag_t diag = {0};
    char *text;
    esp_status_t status = esp_sim_trace(sim, NULL, &text, &diag);
    if (status != ESP_OK)
        return cli_fail(status, &diag);
    status = esp_file_write(path, text, strlen(text), &diag);
    free(text);
    return status == ESP_OK ? CLI_DONE : cli_fail(status, &diag);
}

static int write_trace(const cli_args_t *args, const cli_search_t *search)
{
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_sim_result_t result;
    esp_diag_t diag = {0};
    esp_sim_t *sim;
    opts.links = search->opts.links;
    opts.barrier = search->opts.barrier;
    opts.timeline = 1;
    esp_status_t status = esp_sim_create(NULL, &sim);
    if (status != ESP_OK)
        return cli_fail(status, &diag);
    status = esp_sim_run(sim, search->result->deployment, &opts, &result, &diag);
    int written = status == ESP_OK ? cli_trace_write(sim, args->trace) : cli_fail(status, &diag);
    esp_sim_destroy(sim);
    return written;
}

/* ---- the command -------------------------------------------------------------------------- */

static int print(const cli_args_t *args, const cli_search_t *search)
{
    esp_report_search_args_t subject = {args->operand, search->cost, &search->opts, search->result};
    esp_report_opts_t opts = cli_report_opts(args);
    esp_diag_t diag = {0};
    char *text = NULL;
    if (args->quiet && !args->json)
        return CLI_DONE;
    esp_status_t status = esp_report_plan(&subject, &opts, NULL, &text, &diag);
    return cli_print_report(status, text, &diag);
}

/* Files are written for plans that fit only; the report is for all. */
static int finish(const cli_args_t *args, const cli_search_t *search)
{
    bool fits = search->result->best.outcome.feasible != 0;
    int result = CLI_DONE;
    if (fits && args->output != NULL)
        result = cli_plan_write(args, search);
    if (result == CLI_DONE && fits && args->trace != NULL)
        result = write_trace(args, search);
    if (result == CLI_DONE)
        result = print(args, search);
    return result == CLI_DONE ? cli_search_verdict(search) : result;
}

static int run(const cli_args_t *args)
{
    cli_search_t search;
    int result = cli_check_outputs(args);
    if (result != CLI_DONE)
        return result;
    result = cli_search_run(args, &search);
    if (result == CLI_DONE)
        result = finish(args, &search);
    cli_search_fini(&search);
    return result;
}

const cli_command_t cli_plan = {
    .name = "plan",
    .bit = CLI_PLAN,
    .operand = "MODEL",
    .help = "find the best deployment of a model on a cluster",
    .about = "Searches for the deployment with the shortest training step: which operation runs\n"
             "where, how the batch is split, how gradients are synchronised. Shows it beside the\n"
             "baselines and writes it to a plan file. Ctrl-C stops the search and keeps its best.",
    .example = "espalier plan models/resnet50.onnx -c clusters/lab.yaml -o plan.json",
    .run = run,
};
