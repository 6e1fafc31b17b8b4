/* From a plan file to the deployment that it stands for: what simulate, compare and run share. */
#include "cli.h"

#include "espalier/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static esp_status_t load_step(cli_deployment_t *d, const cli_file_t *file, esp_diag_t *diag)
{
    const esp_plan_t *plan = d->plan;
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    esp_graph_t *imported;
    opts.batch = plan->batch;
    opts.batch_dim = plan->batch_dim[0] != '\0' ? plan->batch_dim : NULL;
    opts.dims = plan->dims[0] != '\0' ? plan->dims : NULL;
    opts.file = plan->model_path;
    esp_status_t status =
        file->data != NULL
            ? esp_onnx_parse(file->data, (size_t)file->length, &opts, NULL, &imported, diag)
            : esp_onnx_load(plan->model_path, &opts, NULL, &imported, diag);
    if (status != ESP_OK)
        return status;
    status = esp_graph_canonicalise(imported, NULL, &d->model, diag);
    esp_graph_destroy(imported);
    if (status != ESP_OK)
        return status;
    return esp_training_graph(d->model, &plan->training, NULL, &d->step, diag);
}

/* files: plan and model. */
static esp_status_t load(const char *path, const cli_file_t files[2], cli_deployment_t *d,
                         esp_diag_t *diag)
{
    esp_status_t status =
        files[0].data != NULL
            ? esp_plan_parse(files[0].data, (size_t)files[0].length, path, NULL, &d->plan, diag)
            : esp_plan_read(path, NULL, &d->plan, diag);
    if (status == ESP_OK)
        status = esp_cluster_parse(d->plan->cluster_text, strlen(d->plan->cluster_text), path, NULL,
                                   &d->cluster, diag);
    if (status == ESP_OK)
        status = load_step(d, &files[1], diag);
    if (status == ESP_OK)
        status = esp_plan_check(d->plan, d->step, d->cluster, diag);
    return status;
}

/* As the search settled the plan: its memory is packed by the timeline that the plan predicts. */
static esp_status_t lower(cli_deployment_t *d, esp_diag_t *diag)
{
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_sim_result_t result;
    opts.links = d->plan->links;
    opts.barrier = d->plan->barrier;
    opts.timeline = 1;
    esp_status_t status = esp_sim_create(NULL, &d->sim);
    if (status == ESP_OK)
        status = esp_lowerer_create(d->cost, NULL, &d->lowerer, diag);
    if (status == ESP_OK)
        status = esp_lower(d->lowerer, &d->plan->strategy, &d->deployment, diag);
    if (status == ESP_OK)
        status = esp_sim_run(d->sim, d->deployment, &opts, &result, diag);
    if (status == ESP_OK)
        status = esp_deployment_pack_timed(d->lowerer, result.start_ns, result.end_ns,
                                           result.step_time_ns, diag);
    return status == ESP_OK ? esp_deployment_check(d->deployment, diag) : status;
}

int cli_deployment_fail(const cli_args_t *args, esp_status_t status, esp_diag_t *diag)
{
    int result = cli_fail_in(args->operand, status, diag);
    return result == CLI_USAGE ? CLI_BAD_INPUT : result;
}

/* ---- for ranks that do not see the files ---------------------------------------------------- */

static int read_whole(const char *path, cli_file_t *out)
{
    FILE *file = fopen(path, "rb");
    int fine = file != NULL && fseeko(file, 0, SEEK_END) == 0;
    out->length = fine ? (int64_t)ftello(file) : -1;
    fine = out->length >= 0 && fseeko(file, 0, SEEK_SET) == 0;
    out->data = fine ? malloc((size_t)out->length + 1) : NULL;
    fine =
        out->data != NULL && fread(out->data, 1, (size_t)out->length, file) == (size_t)out->length;
    if (file != NULL)
        (void)fclose(file);
    return fine;
}

static esp_status_t fail(esp_status_t status, const char *path, esp_diag_t *diag)
{
    diag->status = status;
    (void)snprintf(diag->file, sizeof diag->file, "%s", path);
    (void)snprintf(diag->text, sizeof diag->text, "cannot be sent to the other ranks");
    return status;
}

/* The file of rank 0 on every rank; `path` matters there only. */
static esp_status_t share(esp_launch_t *launch, const char *path, cli_file_t *file,
                          esp_diag_t *diag)
{
    esp_status_t status = ESP_OK;
    if (esp_launch_rank(launch) == 0 && !read_whole(path, file))
        status = fail(ESP_ERR_IO, path, diag);
    status = esp_launch_agree(launch, status, diag);
    if (status == ESP_OK)
        status = esp_launch_share(launch, &file->length, sizeof file->length, diag);
    if (status == ESP_OK && file->data == NULL)
        file->data = malloc((size_t)file->length + 1);
    if (status == ESP_OK)
        status = esp_launch_agree(launch, file->data != NULL ? ESP_OK : ESP_ERR_NOMEM, diag);
    return status == ESP_OK ? esp_launch_share(launch, file->data, file->length, diag) : status;
}

/* Rank 0 reads; the others read what it sends. What is bad is bad for rank 0 first. */
static esp_status_t load_shared(const cli_args_t *args, esp_launch_t *launch, cli_deployment_t *d,
                                esp_diag_t *diag)
{
    cli_file_t files[2] = {{0}};
    bool first = esp_launch_rank(launch) == 0;
    esp_status_t status = first ? load(args->operand, files, d, diag) : ESP_OK;
    status = esp_launch_agree(launch, status, diag);
    if (status == ESP_OK)
        status = share(launch, args->operand, &files[0], diag);
    if (status == ESP_OK)
        status = share(launch, first ? d->plan->model_path : "", &files[1], diag);
    if (status == ESP_OK && !first)
        status = load(args->operand, files, d, diag);
    free(files[0].data);
    free(files[1].data);
    return status;
}

/* The costs of the plan must be those that it was made with; the user may give others. */
static int check_costs(const char *path, const cli_deployment_t *d)
{
    esp_diag_t diag = {0};
    char hash[65];
    esp_status_t status = esp_plan_hash_file(path, hash, &diag);
    if (status != ESP_OK)
        return cli_fail_in(path, status, &diag);
    if (strcmp(hash, d->plan->costs_sha256) == 0)
        return CLI_DONE;
    cli_error("%s: the costs have changed since they were planned with; --costs %s takes them all "
              "the same",
              path, path);
    return CLI_BAD_INPUT;
}

static int load_costs(const cli_args_t *args, esp_launch_t *launch, cli_deployment_t *d)
{
    const char *path = args->costs;
    cli_file_t file = {0};
    esp_diag_t diag = {0};
    int32_t result = CLI_DONE;
    if (path == NULL && d->plan->costs_path[0] != '\0') {
        path = d->plan->costs_path;
        result = esp_launch_rank(launch) == 0 ? check_costs(path, d) : CLI_DONE;
    }
    esp_status_t status = esp_launch_share(launch, &result, sizeof result, &diag);
    if (status == ESP_OK && result == CLI_DONE && path != NULL && esp_launch_ranks(launch) > 1)
        status = share(launch, path, &file, &diag);
    file.path = path;
    if (status != ESP_OK)
        result = cli_fail(status, &diag);
    else if (result == CLI_DONE)
        result =
            cli_cost_create(file, d->step, d->plan->precision, &d->cluster, &d->cost, &d->costs);
    free(file.data);
    return result;
}

/* The files that the plan names are inputs, too. */
static int check_outputs(const cli_args_t *args, esp_launch_t *launch, const esp_plan_t *plan)
{
    esp_diag_t diag = {0};
    int32_t result = CLI_DONE;
    if (esp_launch_rank(launch) == 0)
        result = cli_check_outputs_beside(args, plan->model_path);
    if (esp_launch_rank(launch) == 0 && result == CLI_DONE && plan->costs_path[0] != '\0')
        result = cli_check_outputs_beside(args, plan->costs_path);
    esp_status_t status = esp_launch_share(launch, &result, sizeof result, &diag);
    return status == ESP_OK ? result : cli_fail(status, &diag);
}

int cli_deployment_load_on(const cli_args_t *args, esp_launch_t *launch,
                           cli_deployment_t *deployment)
{
    const cli_file_t none[2] = {{0}};
    esp_diag_t diag = {0};
    *deployment = (cli_deployment_t){0};
    esp_status_t status = esp_launch_ranks(launch) > 1
                              ? load_shared(args, launch, deployment, &diag)
                              : load(args->operand, none, deployment, &diag);
    status = esp_launch_agree(launch, status, &diag);
    if (status != ESP_OK)
        return cli_deployment_fail(args, status, &diag);
    int32_t result = check_outputs(args, launch, deployment->plan);
    if (result != CLI_DONE)
        return result;
    result = load_costs(args, launch, deployment);
    if (result != CLI_DONE)
        return result == CLI_USAGE ? CLI_BAD_INPUT : result;
    status = esp_launch_agree(launch, lower(deployment, &diag), &diag);
    return status == ESP_OK ? CLI_DONE : cli_deployment_fail(args, status, &diag);
}

int cli_deployment_load(const cli_args_t *args, cli_deployment_t *deployment)
{
    return cli_deployment_load_on(args, NULL, deployment);
}

void cli_deployment_fini(cli_deployment_t *deployment)
{
    esp_sim_destroy(deployment->sim);
    esp_lowerer_destroy(deployment->lowerer);
    esp_cost_destroy(deployment->cost);
    esp_costs_destroy(deployment->costs);
    esp_graph_destroy(deployment->step);
    esp_graph_destroy(deployment->model);
    esp_cluster_destroy(deployment->cluster);
    esp_plan_destroy(deployment->plan);
}
