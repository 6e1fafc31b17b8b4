/* Which times were measured, and which are estimates. */
#include "report/run.h"

#include "report/model.h"

esp_i_coverage_t esp_i_task_coverage(const esp_deployment_t *d)
{
    esp_i_coverage_t c = {0};
    for (int32_t t = 0; d != NULL && t < d->n_tasks; t++) {
        if (d->task_kind[t] != ESP_TASK_COMPUTE)
            continue;
        int32_t device = d->class_device[d->class_offset[d->task_class[t]]];
        c.all++;
        c.measured += esp_cost_measured(d->cost, d->task_op[t], d->cluster->device_type[device]);
    }
    return c;
}

esp_status_t esp_i_op_coverage(const esp_graph_t *graph, const esp_costs_type_t *type,
                               const esp_allocator_t *alloc, esp_i_coverage_t *out,
                               esp_diag_t *diag)
{
    *out = (esp_i_coverage_t){0};
    for (esp_op_id_t op = 0; op < graph->n_ops; op++) {
        char *signature;
        if (graph->op_family[op] == ESP_FAMILY_FREE)
            continue;
        if (esp_op_signature(graph, op, alloc, &signature) != ESP_OK)
            return esp_i_nomem(diag);
        out->all++;
        out->measured += esp_costs_find_curve(type, signature) != NULL;
        esp_i_free(alloc, signature);
    }
    return ESP_OK;
}
