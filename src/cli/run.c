/* espalier run: trains as a plan says. */
#include "run.h"

#include <stdlib.h>

static void run_fini(run_t *run)
{
    esp_measured_destroy(run->measured);
    esp_evaluator_destroy(run->evaluator);
    esp_exec_destroy(run->job.exec);
    esp_data_close(run->eval_data);
    esp_data_close(run->data);
    esp_graph_destroy(run->evaluation);
    cli_deployment_fini(&run->plan);
    free(run->map);
    esp_launch_destroy(run->launch);
}

static int print(const run_t *run, const esp_train_result_t *result)
{
    const cli_args_t *args = run->args;
    esp_report_opts_t opts = cli_report_opts(args);
    esp_diag_t diag = {0};
    char *text = NULL;
    esp_report_training_args_t subject = {
        .model = run->plan.plan->model_path,
        .deployment = run->plan.deployment,
        .exec = &run->exec_opts,
        .weights = run->weights,
        .data = run->data,
        .result = result,
        .step = (int64_t)esp_exec_step(run->job.exec),
        .checkpoint = args->checkpoint,
    };
    if (!run->first || (args->quiet && !args->json))
        return CLI_DONE;
    esp_status_t status = esp_report_training(&subject, &opts, NULL, &text, &diag);
    return cli_print_report(status, text, &diag);
}

/* Before anything is computed: what the arguments and files ask for. */
static esp_status_t set_up(run_t *run, esp_diag_t *diag)
{
    esp_status_t status = run_create_exec(run, diag);
    if (status == ESP_OK)
        status = run_open_data(run, diag);
    if (status == ESP_OK)
        status = run_plan_steps(run, diag);
    if (status == ESP_OK)
        status = run_create_evaluator(run, diag);
    return status == ESP_OK ? run_fill(run, diag) : status;
}

static int train(run_t *run)
{
    const cli_args_t *args = run->args;
    esp_diag_t diag = {0};
    esp_train_opts_t opts = esp_train_opts_default();
    esp_train_result_t result;
    opts.until = run->until;
    opts.data = run->data;
    opts.schedule = &run->schedule;
    opts.checkpoint = args->checkpoint;
    opts.checkpoint_every = args->checkpoint_every;
    opts.evaluator = run->evaluator;
    opts.evaluation_data = run->eval_data;
    opts.evaluate_every = args->evaluate_every;
    opts.step = run_step;
    opts.stop = run_stop;
    opts.context = run;
    cli_progress_init(&run->progress, args);
    cli_catch_signals();
    esp_status_t status = run_trace_begin(run, &opts, &diag);
    if (status == ESP_OK)
        status = esp_train(&run->job, &opts, &result, &diag);
    cli_progress_fini(&run->progress);
    int logged = run_log_close(run);
    if (status != ESP_OK && esp_exec_broken(run->job.exec))
        cli_errors_off(false); /* no other rank knows of it */
    if (status != ESP_OK)
        return cli_fail_in(args->operand, status, &diag);
    int traced = run_trace_end(run);
    int printed = print(run, &result);
    return logged != CLI_DONE ? logged : traced != CLI_DONE ? traced : printed;
}

static int run_plan(run_t *run)
{
    const cli_args_t *args = run->args;
    esp_diag_t diag = {0};
    int result = cli_deployment_load_on(args, run->launch, &run->plan);
    if (result != CLI_DONE)
        return result;
    esp_status_t status = set_up(run, &diag);
    if (status != ESP_OK)
        return cli_fail_in(args->operand, status, &diag);
    result = run_log_open(run);
    status = result == CLI_DONE ? ESP_OK : ESP_ERR_IO;
    if (esp_launch_agree(run->launch, status, &diag) != ESP_OK)
        return CLI_BAD_INPUT;
    return train(run);
}

static int run_command(const cli_args_t *args)
{
    run_t run = {.args = args};
    esp_diag_t diag = {0};
    esp_status_t status = ESP_OK;
    if (esp_launch_by_mpi())
        status = esp_launch_create(NULL, &run.launch, &diag);
    if (status != ESP_OK)
        return cli_fail(status, &diag);
    run.first = esp_launch_rank(run.launch) == 0;
    if (!run.first)
        cli_errors_off(true);
    /* Only the first rank writes: the others take its word. */
    int32_t result = run.first ? cli_check_outputs(args) : CLI_DONE;
    if (esp_launch_share(run.launch, &result, sizeof result, &diag) != ESP_OK)
        result = CLI_FAULT;
    if (result == CLI_DONE)
        result = run_plan(&run);
    run_fini(&run);
    return result;
}

const cli_command_t cli_run = {
    .name = "run",
    .bit = CLI_RUN,
    .operand = "PLAN",
    .help = "train as a plan says",
    .about =
        "Trains the model of a plan file: every device of the plan is a rank, which runs its part\n"
        "of each step. Alone, all ranks are threads of this process; under mpirun each process\n"
        "is one rank. Ctrl-C ends the run after the steps that are under way, and writes the\n"
        "checkpoint. Weights come from the model file where it has them, else from the seed.",
    .example = "espalier run plan.json --data x=x.npy --data labels=y.npy --epochs 5 \\\n"
               "    --checkpoint run.safetensors --log run.jsonl\n"
               "  mpirun -np 4 espalier run plan.json --data x=x.npy,labels=y.npy",
    .run = run_command,
};
