/* From a plan file to the deployment that it stands for: what simulate, compare and run share. */
#include "cli.h"

#include "espalier/onnx.h"

#include <string.h>

static esp_status_t load_step(cli_deployment_t *d, esp_diag_t *diag)
{
    const esp_plan_t *plan = d->plan;
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
    status = esp_training_graph(model, &plan->training, NULL, &d->step, diag);
    esp_graph_destroy(model);
    return status;
}

static esp_status_t load(const char *path, cli_deployment_t *d, esp_diag_t *diag)
{
    esp_status_t status = esp_plan_read(path, NULL, &d->plan, diag);
    if (status == ESP_OK)
        status = esp_cluster_parse(d->plan->cluster_text, strlen(d->plan->cluster_text), path, NULL,
                                   &d->cluster, diag);
    if (status == ESP_OK)
        status = load_step(d, diag);
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

/* The costs of the plan must be those that it was made with; the user may give others. */
static int load_costs(const cli_args_t *args, cli_deployment_t *d)
{
    const char *path = args->costs;
    esp_diag_t diag = {0};
    char hash[65];
    if (path == NULL && d->plan->costs_path[0] != '\0') {
        path = d->plan->costs_path;
        esp_status_t status = esp_plan_hash_file(path, hash, &diag);
        if (status != ESP_OK)
            return cli_fail_in(path, status, &diag);
        if (strcmp(hash, d->plan->costs_sha256) != 0) {
            cli_error("%s: the costs have changed since they were planned with; --costs %s takes "
                      "them all the same",
                      path, path);
            return CLI_BAD_INPUT;
        }
    }
    return cli_cost_create(path, d->step, d->plan->precision, &d->cluster, &d->cost);
}

int cli_deployment_load(const cli_args_t *args, cli_deployment_t *deployment)
{
    esp_diag_t diag = {0};
    *deployment = (cli_deployment_t){0};
    esp_status_t status = load(args->operand, deployment, &diag);
    if (status != ESP_OK)
        return cli_deployment_fail(args, status, &diag);
    int result = load_costs(args, deployment);
    if (result != CLI_DONE)
        return result == CLI_USAGE ? CLI_BAD_INPUT : result;
    status = lower(deployment, &diag);
    return status == ESP_OK ? CLI_DONE : cli_deployment_fail(args, status, &diag);
}

void cli_deployment_fini(cli_deployment_t *deployment)
{
    esp_sim_destroy(deployment->sim);
    esp_lowerer_destroy(deployment->lowerer);
    esp_cost_destroy(deployment->cost);
    esp_graph_destroy(deployment->step);
    esp_cluster_destroy(deployment->cluster);
    esp_plan_destroy(deployment->plan);
}
