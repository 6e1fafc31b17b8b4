/* The plan file of a search. */
#include "cli.h"

int cli_plan_write(const cli_args_t *args, const cli_search_t *search)
{
    esp_plan_source_t source = {
        .model_path = args->operand,
        .batch_dim = args->batch_dim,
        .dims = args->dim,
        .cluster_path = args->cluster,
        .costs_path = args->costs,
        .training = &search->model.training,
        .cost = search->cost,
        .opts = &search->opts,
        .result = search->result,
    };
    esp_plan_t *plan;
    esp_diag_t diag = {0};
    esp_status_t status = esp_plan_create(&source, NULL, &plan, &diag);
    if (status != ESP_OK)
        return cli_fail(status, &diag);
    status = esp_plan_write(plan, args->output, &diag);
    esp_plan_destroy(plan);
    return status == ESP_OK ? CLI_DONE : cli_fail(status, &diag);
}
