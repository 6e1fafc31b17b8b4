/* espalier simulate: the predicted timeline of a plan. */
#include "cli.h"

static esp_sim_opts_t sim_opts(const cli_args_t *args, const esp_plan_t *plan)
{
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.timeline = 1;
    opts.links = args->links_given ? (esp_link_mode_t)args->links : plan->links;
    opts.barrier = args->barrier || plan->barrier;
    return opts;
}

static int print(const cli_args_t *args, const cli_deployment_t *d, const esp_sim_opts_t *sim,
                 const esp_sim_result_t *result)
{
    esp_report_opts_t opts = cli_report_opts(args);
    esp_diag_t diag = {0};
    char *text = NULL;
    esp_report_run_args_t subject = {
        .model = d->plan->model_path,
        .deployment = d->deployment,
        .strategy = &d->plan->strategy,
        .sim = result,
        .links = sim->links,
        .barrier = sim->barrier,
        .plan = d->plan,
    };
    if (args->quiet && !args->json)
        return CLI_DONE;
    esp_status_t status = esp_report_run(&subject, &opts, NULL, &text, &diag);
    return cli_print_report(status, text, &diag);
}

static int simulate(const cli_args_t *args, cli_deployment_t *d)
{
    esp_diag_t diag = {0};
    esp_sim_result_t result;
    esp_sim_opts_t opts = sim_opts(args, d->plan);
    esp_status_t status = esp_sim_run(d->sim, d->deployment, &opts, &result, &diag);
    if (status != ESP_OK)
        return cli_deployment_fail(args, status, &diag);
    int written = args->trace != NULL ? cli_trace_write(d->sim, args->trace) : CLI_DONE;
    return written == CLI_DONE ? print(args, d, &opts, &result) : written;
}

static int run(const cli_args_t *args)
{
    cli_deployment_t deployment;
    int result = cli_check_outputs(args);
    if (result != CLI_DONE)
        return result;
    result = cli_deployment_load(args, &deployment);
    if (result == CLI_DONE)
        result = simulate(args, &deployment);
    cli_deployment_fini(&deployment);
    return result;
}

const cli_command_t cli_simulate = {
    .name = "simulate",
    .bit = CLI_SIMULATE,
    .operand = "PLAN",
    .help = "the predicted timeline of a plan",
    .about = "Reads a plan file, checks that its model is still the one that was planned for (the\n"
             "cluster is in the plan), lowers and simulates it. --trace writes every task and\n"
             "transfer of one step for Perfetto (ui.perfetto.dev) or chrome://tracing.",
    .example = "espalier simulate plan.json --trace trace.json",
    .run = run,
};
