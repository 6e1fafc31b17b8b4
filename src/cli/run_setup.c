/* From the arguments of `espalier run` to an executor with data and weights. */
#include "run.h"

#include "espalier/onnx.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static esp_status_t usage(esp_diag_t *diag, const char *format, ...) ESP_PRINTF(2, 3);
static esp_status_t usage(esp_diag_t *diag, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(diag->text, sizeof diag->text, format, arguments);
    va_end(arguments);
    diag->status = ESP_ERR_ARGUMENT;
    return ESP_ERR_ARGUMENT;
}

/* ---- the executor ---------------------------------------------------------------------------- */

/* A device by its name. */
static int32_t find_device(const esp_cluster_t *cluster, const char *name, size_t length)
{
    for (int32_t d = 0; d < cluster->n_devices; d++)
        if (strlen(cluster->vertex_name[d]) == length &&
            memcmp(cluster->vertex_name[d], name, length) == 0)
            return d;
    return ESP_NONE;
}

static esp_status_t read_map(run_t *run, esp_diag_t *diag)
{
    const esp_cluster_t *cluster = run->plan.cluster;
    const char *at = run->args->map;
    int32_t n = 0;
    run->map = malloc((strlen(at) + 1) * sizeof *run->map);
    if (run->map == NULL)
        return ESP_ERR_NOMEM;
    while (*at != '\0') {
        size_t length = strcspn(at, ",");
        run->map[n] = find_device(cluster, at, length);
        if (run->map[n++] == ESP_NONE)
            return usage(diag, "--map: \"%.*s\" is no device of the plan", (int)length, at);
        at += length + (at[length] == ',');
    }
    run->exec_opts.map = run->map;
    run->exec_opts.n_map = n;
    return ESP_OK;
}

esp_status_t run_create_exec(run_t *run, esp_diag_t *diag)
{
    static const char *const backends[] = {"cpu", "reference"};
    const cli_args_t *args = run->args;
    run->exec_opts = esp_exec_opts_default();
    run->exec_opts.backend = backends[args->backend];
    run->exec_opts.wide = args->wide;
    run->exec_opts.mpi = run->launch != NULL;
    run->exec_opts.seed = (uint64_t)args->seed;
    run->exec_opts.collectives = (int32_t)args->collectives;
    run->exec_opts.costs = run->plan.costs;
    run->exec_opts.timeline = args->trace != NULL;
    run->exec_opts.status_path = args->status_file;
    esp_status_t status = args->map != NULL ? read_map(run, diag) : ESP_OK;
    status = esp_launch_agree(run->launch, status, diag);
    if (status != ESP_OK)
        return status;
    run->job = (esp_train_job_t){.graph = run->plan.step,
                                 .seed = (uint64_t)args->seed,
                                 .wide = args->wide,
                                 .launch = run->launch};
    return esp_exec_create(run->plan.deployment, &run->exec_opts, NULL, &run->job.exec, diag);
}

/* ---- data and evaluation ----------------------------------------------------------------------
 */

static esp_status_t open_rows(run_t *run, const char *spec, bool shuffle, const esp_graph_t *graph,
                              esp_data_t **data, esp_diag_t *diag)
{
    esp_data_opts_t opts = esp_data_opts_default();
    opts.seed = (uint64_t)run->args->seed;
    opts.shuffle = shuffle;
    opts.wide = run->args->wide;
    esp_status_t status = esp_data_open(graph, spec, &opts, NULL, data, diag);
    return esp_launch_agree(run->launch, status, diag);
}

esp_status_t run_open_data(run_t *run, esp_diag_t *diag)
{
    const cli_args_t *args = run->args;
    return args->data != NULL
               ? open_rows(run, args->data, !args->in_order, run->plan.step, &run->data, diag)
               : ESP_OK;
}

esp_status_t run_create_evaluator(run_t *run, esp_diag_t *diag)
{
    const cli_args_t *args = run->args;
    if (args->eval_data == NULL && args->evaluate_every > 0)
        return usage(diag, "--eval needs rows to evaluate on: --eval-data NAME=FILE");
    if (args->eval_data == NULL)
        return ESP_OK;
    esp_status_t status = esp_evaluation_graph(run->plan.model, &run->plan.plan->training, NULL,
                                               &run->evaluation, diag);
    status = esp_launch_agree(run->launch, status, diag);
    if (status == ESP_OK)
        status = open_rows(run, args->eval_data, false, run->evaluation, &run->eval_data, diag);
    return status == ESP_OK ? esp_evaluator_create(run->evaluation, run->plan.deployment,
                                                   &run->exec_opts, NULL, &run->evaluator, diag)
                            : status;
}

/* ---- steps ------------------------------------------------------------------------------------
 */

esp_status_t run_plan_steps(run_t *run, esp_diag_t *diag)
{
    const cli_args_t *args = run->args;
    double rate = run->plan.plan->training.rate;
    run->until = args->steps;
    if (args->epochs > 0 && args->steps_given)
        return usage(diag, "--steps and --epochs say the same thing twice");
    if (args->epochs > 0 && run->data == NULL)
        return usage(diag, "--epochs needs data: --data NAME=FILE");
    if (args->epochs > 0 && args->epochs > INT64_MAX / 1000 / esp_data_epoch_steps(run->data))
        return usage(diag, "--epochs %lld: too many steps", (long long)args->epochs);
    if (args->epochs > 0)
        run->until = args->epochs * esp_data_epoch_steps(run->data);
    if (args->checkpoint_every > 0 && args->checkpoint == NULL)
        return usage(diag, "--checkpoint-every needs a file: --checkpoint FILE");
    if (args->min_rate > rate)
        return usage(diag, "--min-rate %g is above the rate of the plan, %g", args->min_rate, rate);
    run->schedule = esp_schedule_opts_default();
    run->schedule.kind = (esp_schedule_t)args->schedule;
    run->schedule.warmup = args->warmup;
    run->schedule.total = run->until;
    run->schedule.every = args->decay_every;
    run->schedule.gamma = args->decay_factor;
    run->schedule.least = rate > 0 ? args->min_rate / rate : 0;
    return ESP_OK;
}

/* ---- weights -----------------------------------------------------------------------------------
 */

static void note(void *context, const char *name, int in_file)
{
    const run_t *run = context;
    if (run->args->verbose && !run->args->json && !run->args->quiet)
        (void)fprintf(stderr,
                      in_file ? "espalier: %s is in the file only\n"
                              : "espalier: %s keeps its value: it is not in the file\n",
                      name);
}

static esp_status_t load_weights(run_t *run, const char *path, esp_diag_t *diag)
{
    esp_weights_opts_t opts = esp_weights_opts_default();
    esp_weights_result_t result;
    char rest[64] = "";
    opts.unmatched = note;
    opts.context = run;
    esp_status_t status = esp_weights_load(&run->job, path, &opts, &result, diag);
    if (status != ESP_OK)
        return status;
    if (result.missing > 0)
        (void)snprintf(rest, sizeof rest, " (%d), the rest (%d) from the seed", (int)result.loaded,
                       (int)result.missing);
    (void)snprintf(run->weights, sizeof run->weights, "%.440s%s", path, rest);
    return ESP_OK;
}

/* Whether the model file carries the data of weights; many leave it out. */
static esp_status_t model_has_weights(run_t *run, int32_t *has, esp_diag_t *diag)
{
    esp_onnx_weights_t *weights = NULL;
    esp_status_t status = ESP_OK;
    *has = 0;
    if (run->first)
        status = esp_onnx_weights_open(run->plan.plan->model_path, NULL, &weights, diag);
    for (int32_t i = 0; weights != NULL && i < weights->n; i++)
        *has |= weights->weight[i].there && weights->weight[i].elements > 1 &&
                esp_dtype_is_float(weights->weight[i].dtype);
    esp_onnx_weights_close(weights);
    status = esp_launch_agree(run->launch, status, diag);
    return status == ESP_OK ? esp_launch_share(run->launch, has, sizeof *has, diag) : status;
}

esp_status_t run_fill(run_t *run, esp_diag_t *diag)
{
    const cli_args_t *args = run->args;
    int32_t has = 0;
    if (args->resume != NULL && args->weights != NULL)
        return usage(diag, "--resume and --weights both set the weights");
    if (args->resume != NULL) {
        (void)snprintf(run->weights, sizeof run->weights, "%.500s", args->resume);
        return esp_checkpoint_load(&run->job, run->data, args->resume, diag);
    }
    (void)snprintf(run->weights, sizeof run->weights, "the seed");
    if (args->weights != NULL)
        return strcmp(args->weights, "seed") == 0 ? ESP_OK : load_weights(run, args->weights, diag);
    esp_status_t status = model_has_weights(run, &has, diag);
    return status == ESP_OK && has != 0 ? load_weights(run, run->plan.plan->model_path, diag)
                                        : status;
}
