/* Measured costs: --costs. */
#include "cli.h"

#include "espalier/costs.h"

static esp_status_t create(const esp_costs_t *costs, const esp_graph_t *step,
                           esp_precision_t precision, esp_cluster_t **cluster,
                           esp_cost_t **cost_out, esp_diag_t *diag)
{
    esp_cluster_t *measured;
    if (costs != NULL) {
        esp_status_t status = esp_costs_cluster(costs, *cluster, NULL, &measured, diag);
        if (status != ESP_OK)
            return status;
        esp_cluster_destroy(*cluster);
        *cluster = measured;
    }
    return esp_cost_create_measured(step, *cluster, precision, costs, NULL, cost_out, diag);
}

int cli_cost_create(cli_file_t file, const esp_graph_t *step, esp_precision_t precision,
                    esp_cluster_t **cluster, esp_cost_t **cost_out, esp_costs_t **costs_out)
{
    esp_diag_t diag = {0};
    esp_costs_t *costs = NULL;
    esp_status_t status = ESP_OK;
    if (file.data != NULL)
        status = esp_costs_parse(file.data, (size_t)file.length, file.path, NULL, &costs, &diag);
    else if (file.path != NULL)
        status = esp_costs_read(file.path, NULL, &costs, &diag);
    if (status == ESP_OK)
        status = create(costs, step, precision, cluster, cost_out, &diag);
    if (status == ESP_OK && costs_out != NULL)
        *costs_out = costs;
    else
        esp_costs_destroy(costs);
    if (status == ESP_OK)
        return CLI_DONE;
    return file.path != NULL ? cli_fail_in(file.path, status, &diag) : cli_fail(status, &diag);
}
