/* espalier profile: measure what ops and messages cost here. */
#include "cli.h"

#include "espalier/profile.h"
#include "espalier/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static esp_profile_opts_t profile_opts(const cli_args_t *args, cli_progress_t *progress)
{
    static const char *const backends[] = {"cpu", "reference"};
    esp_profile_opts_t opts = esp_profile_opts_default();
    opts.backend = backends[args->backend];
    opts.seconds = args->seconds;
    opts.runs = (int32_t)args->runs;
    opts.shares = (int32_t)args->shares;
    opts.seed = (uint64_t)args->seed;
    opts.progress = cli_progress_update;
    opts.progress_context = progress;
    return opts;
}

static esp_status_t measure(const cli_args_t *args, const esp_graph_t *step,
                            const esp_cluster_t *cluster, esp_costs_t **costs, esp_diag_t *diag)
{
    cli_progress_t progress;
    cli_progress_init(&progress, args);
    esp_profile_opts_t opts = profile_opts(args, &progress);
    esp_status_t status = cluster != NULL
                              ? esp_profile_cluster(step, cluster, args->measure_links, &opts, NULL,
                                                    costs, NULL, diag)
                              : esp_profile_ops(step, args->type, &opts, NULL, costs, diag);
    cli_progress_fini(&progress);
    return status;
}

/* ---- results ------------------------------------------------------------------------------ */

/* Costs that the file has already; NULL: none. */
static esp_status_t read_older(const char *path, esp_costs_t **older, esp_diag_t *diag)
{
    struct stat info;
    *older = NULL;
    if (path == NULL || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return ESP_OK;
    return esp_costs_read(path, NULL, older, diag);
}

/* Older ones stay where they were not measured again. */
static esp_status_t merge(const esp_costs_t *older, esp_costs_t **costs, esp_diag_t *diag)
{
    esp_costs_t *both;
    if (older == NULL)
        return ESP_OK;
    esp_status_t status = esp_costs_merge(older, *costs, NULL, &both, diag);
    if (status != ESP_OK)
        return status;
    esp_costs_destroy(*costs);
    *costs = both;
    return ESP_OK;
}

/*
 * Which of two ways to reduce is faster, from which size on: in the order of the file, all sizes of
 * "mpi" come before those of "own".
 */
static void say_who_is_faster(const esp_costs_t *costs)
{
    int32_t ranks = 0;
    const char *last = NULL;
    for (int32_t i = 0; i < costs->n_collectives; i++) {
        const esp_costs_collective_t *mpi = &costs->collective[i];
        double own = esp_costs_collective_ns(costs, mpi->kind, "own", mpi->ranks, mpi->bytes);
        const char *name = mpi->ns < own ? "mpi" : "own";
        if (strcmp(mpi->algorithm, "mpi") != 0 || own < 0 || (mpi->ranks == ranks && name == last))
            continue;
        (void)printf("%s among %d ranks: %s is faster from %lld bytes on (own %.0f us, mpi %.0f "
                     "us)\n",
                     esp_comm_name(mpi->kind), (int)mpi->ranks, name, (long long)mpi->bytes,
                     own / 1e3, mpi->ns / 1e3);
        ranks = mpi->ranks;
        last = name;
    }
}

static int finish(const cli_args_t *args, const esp_costs_t *older, esp_costs_t **costs)
{
    esp_diag_t diag = {0};
    char *text = NULL;
    esp_status_t status = merge(older, costs, &diag);
    if (status == ESP_OK)
        status = esp_costs_to_json(*costs, NULL, &text, &diag);
    if (status == ESP_OK && args->output != NULL)
        status = esp_file_write(args->output, text, strlen(text), &diag);
    int result = status == ESP_OK ? CLI_DONE : cli_fail(status, &diag);
    if (status == ESP_OK && (args->output == NULL || args->json))
        result = cli_print(text);
    if (status == ESP_OK && args->output != NULL && !args->json && !args->quiet) {
        say_who_is_faster(*costs);
        result = cli_print("");
    }
    free(text);
    return result;
}

/* ---- the command -------------------------------------------------------------------------- */

/* What is there before anything is measured. */
typedef struct job {
    const cli_args_t *args;
    esp_launch_t *launch; /* NULL: not started by mpirun */
    cli_model_t model;
    esp_cluster_t *cluster;
    esp_costs_t *older; /* on rank 0 */
} job_t;

static int check(const cli_args_t *args)
{
    if (args->measure_links && args->cluster == NULL) {
        cli_error("profile --links needs a cluster: -c FILE");
        return CLI_USAGE;
    }
    if (args->type_given && args->cluster != NULL) {
        cli_error("--type and --cluster exclude each other: the cluster names the types");
        return CLI_USAGE;
    }
    if (args->operand == NULL && !args->measure_links) {
        cli_error("profile needs a MODEL, or --links");
        return CLI_USAGE;
    }
    return CLI_DONE;
}

static int load(job_t *job)
{
    const cli_args_t *args = job->args;
    const bool first = esp_launch_rank(job->launch) == 0;
    esp_diag_t diag = {0};
    int result = check(args);
    if (result == CLI_DONE && first)
        result = cli_check_outputs(args);
    if (result == CLI_DONE && args->operand != NULL)
        result = cli_model_load(args, false, &job->model);
    if (result != CLI_DONE)
        return result;
    esp_status_t status = args->cluster != NULL
                              ? esp_cluster_load(args->cluster, NULL, &job->cluster, &diag)
                              : ESP_OK;
    if (status == ESP_OK && first)
        status = read_older(args->output, &job->older, &diag);
    return status == ESP_OK ? CLI_DONE : cli_fail(status, &diag);
}

/* What is bad for rank 0 is bad for all, and said once. */
static int load_on_all(job_t *job)
{
    const bool first = esp_launch_rank(job->launch) == 0;
    esp_diag_t diag = {0};
    int32_t result = first ? load(job) : CLI_DONE;
    esp_status_t status = esp_launch_share(job->launch, &result, sizeof result, &diag);
    if (status != ESP_OK || result != CLI_DONE)
        return status != ESP_OK ? cli_fail(status, &diag) : result;
    if (!first)
        result = load(job);
    status = esp_launch_agree(job->launch, result == CLI_DONE ? ESP_OK : ESP_ERR_IO, &diag);
    return status == ESP_OK ? CLI_DONE : result != CLI_DONE ? result : CLI_BAD_INPUT;
}

static int profile(const job_t *job)
{
    const bool first = esp_launch_rank(job->launch) == 0;
    esp_costs_t *costs;
    esp_diag_t diag = {0};
    cli_errors_off(!first);
    esp_status_t status = measure(job->args, job->model.step, job->cluster, &costs, &diag);
    if (status == ESP_STOPPED) {
        cli_error("interrupted; nothing is written");
        return CLI_FAULT;
    }
    if (status != ESP_OK)
        return cli_fail(status, &diag);
    int result = first ? finish(job->args, job->older, &costs) : CLI_DONE;
    esp_costs_destroy(costs);
    return result;
}

static int run(const cli_args_t *args)
{
    job_t job = {.args = args};
    esp_diag_t diag = {0};
    esp_status_t status = ESP_OK;
    if (esp_launch_by_mpi())
        status = esp_launch_create(NULL, &job.launch, &diag);
    int result = status == ESP_OK ? load_on_all(&job) : cli_fail(status, &diag);
    if (result == CLI_DONE)
        result = profile(&job);
    esp_costs_destroy(job.older);
    esp_cluster_destroy(job.cluster);
    cli_model_fini(&job.model);
    esp_launch_destroy(job.launch);
    return result;
}

const cli_command_t cli_profile = {
    .name = "profile",
    .bit = CLI_PROFILE,
    .operand = "MODEL",
    .help = "measure what ops and links cost here",
    .about = "Times every op of the training step at several shares of the batch, as it runs in a\n"
             "step on this machine, and writes the table that --costs reads. With a cluster and\n"
             "under mpirun (one rank per device, in its order) each device type is timed on its\n"
             "own device; --links times messages between each two, and all-reduces. What the\n"
             "file has already stays where it is not measured again.",
    .example = "espalier profile models/resnet50.onnx --batch 32 --type desktop -o costs.json\n"
               "  mpirun -np 4 espalier profile model.onnx -c lab.yaml --links -o costs.json",
    .run = run,
};
