/* espalier simulate: the predicted timeline of a plan. */
#include "cli.h"

#include "espalier/onnx.h"

#include <string.h>

/* Everything between the plan file and the report. */
typedef struct run {
    esp_plan_t *plan;
    esp_cluster_t *cluster;
    esp_graph_t *step;
    esp_cost_t *cost;
    esp_lowerer_t *lowerer;
    const esp_deployment_t *deployment;
    esp_sim_t *sim;
    esp_sim_result_t result;
    esp_sim_opts_t opts;
} run_t;

static void run_fini(run_t *run)
{
    esp_sim_destroy(run->sim);
    esp_lowerer_destroy(run->lowerer);
    esp_cost_destroy(run->cost);
    esp_graph_destroy(run->step);
    esp_cluster_destroy(run->cluster);
    esp_plan_destroy(run->plan);
}

static esp_status_t load_step(run_t *run, esp_diag_t *diag)
{
    const esp_plan_t *plan = run->plan;
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    esp_graph_t *imported, *model;
    opts.batch = plan->batch;
    opts.batch_dim = plan->batch_dim[0] != '\0' ? plan->batch_dim : NULL;
    opts.dims = plan->dims[0] != '\0' ? plan->dims : NULL;
    esp_status_t status = esp_onnx_load(plan->model_path, &opts, NULL, &imported, diag);
    if (status != ESP_OK)
        return status;
    status = esp_graph_canonicalise(imported, NULL, &model, diag);
    esp_graph_destroy(imported);
    if (status != ESP_OK)
        return status;
    status = esp_training_graph(model, &plan->training, NULL, &run->step, diag);
    esp_graph_destroy(model);
    return status;
}

static esp_status_t load(const cli_args_t *args, run_t *run, esp_diag_t *diag)
{
    esp_status_t status = esp_plan_read(args->operand, NULL, &run->plan, diag);
    if (status == ESP_OK)
        status = esp_cluster_parse(run->plan->cluster_text, strlen(run->plan->cluster_text),
                                   args->operand, NULL, &run->cluster, diag);
    if (status == ESP_OK)
        status = load_step(run, diag);
    if (status == ESP_OK)
        status = esp_plan_check(run->plan, run->step, run->cluster, diag);
    return status;
}

/* As the search settled the plan: its memory is packed by the timeline that the plan predicts. */
static esp_status_t lower(run_t *run, esp_diag_t *diag)
{
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.links = run->plan->links;
    opts.barrier = run->plan->barrier;
    opts.timeline = 1;
    esp_status_t status =
        esp_cost_create(run->step, run->cluster, run->plan->precision, NULL, &run->cost, diag);
    if (status == ESP_OK)
        status = esp_lowerer_create(run->cost, NULL, &run->lowerer, diag);
    if (status == ESP_OK)
        status = esp_lower(run->lowerer, &run->plan->strategy, &run->deployment, diag);
    if (status == ESP_OK)
        status = esp_sim_run(run->sim, run->deployment, &opts, &run->result, diag);
    if (status == ESP_OK)
        status = esp_deployment_pack_timed(run->lowerer, run->result.start_ns, run->result.end_ns,
                                           run->result.step_time_ns, diag);
    return status == ESP_OK ? esp_deployment_check(run->deployment, diag) : status;
}

static esp_status_t simulate(const cli_args_t *args, run_t *run, esp_diag_t *diag)
{
    run->opts = esp_sim_opts_default();
    run->opts.timeline = 1;
    run->opts.links = args->links_given ? (esp_link_mode_t)args->links : run->plan->links;
    run->opts.barrier = args->barrier || run->plan->barrier;
    esp_status_t status = esp_sim_create(NULL, &run->sim);
    if (status == ESP_OK)
        status = lower(run, diag);
    return status == ESP_OK ? esp_sim_run(run->sim, run->deployment, &run->opts, &run->result, diag)
                            : status;
}

static int print(const cli_args_t *args, const run_t *run)
{
    esp_report_opts_t opts = cli_report_opts(args);
    esp_diag_t diag = {0};
    char *text = NULL;
    esp_report_run_args_t subject = {
        .model = run->plan->model_path,
        .deployment = run->deployment,
        .strategy = &run->plan->strategy,
        .sim = &run->result,
        .links = run->opts.links,
        .barrier = run->opts.barrier,
        .plan = run->plan,
    };
    if (args->quiet && !args->json)
        return CLI_DONE;
    esp_status_t status = esp_report_run(&subject, &opts, NULL, &text, &diag);
    return cli_print_report(status, text, &diag);
}

static int run_plan(const cli_args_t *args, run_t *run)
{
    esp_diag_t diag = {0};
    esp_status_t status = load(args, run, &diag);
    if (status == ESP_OK)
        status = simulate(args, run, &diag);
    if (status != ESP_OK) {
        /* Options come from the file here: what is wrong with them is wrong with the plan. */
        int result = cli_fail_in(args->operand, status, &diag);
        return result == CLI_USAGE ? CLI_BAD_INPUT : result;
    }
    int result = args->trace != NULL ? cli_trace_write(run->sim, args->trace) : CLI_DONE;
    return result == CLI_DONE ? print(args, run) : result;
}

static int run_command(const cli_args_t *args)
{
    run_t run = {0};
    int result = cli_check_outputs(args);
    if (result == CLI_DONE)
        result = run_plan(args, &run);
    run_fini(&run);
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
    .run = run_command,
};
