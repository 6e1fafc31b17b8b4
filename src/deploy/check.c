/* The deployment checker: its outline, and how it says where something is wrong. */
#include "deploy/check.h"

#include <stdio.h>

static esp_status_t fail_here(esp_i_check_t *check, const char *format, va_list arguments)
{
    char text[sizeof((esp_diag_t *)NULL)->text];
    (void)vsnprintf(text, sizeof text, format, arguments);
    return esp_i_fail(check->diag, ESP_ERR_INVALID, "%s", text);
}

esp_status_t esp_i_check_fail(esp_i_check_t *check, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    esp_status_t status = fail_here(check, format, arguments);
    va_end(arguments);
    return status;
}

static const char *class_device_name(const esp_deployment_t *d, int32_t class_)
{
    return d->cluster->vertex_name[d->class_device[d->class_offset[class_]]];
}

/* "task 12: conv1 on class 0 (pc0/gpu0 ..)" */
static void place_task(const esp_i_check_t *check, int32_t task)
{
    const esp_deployment_t *d = check->d;
    int32_t class_ = d->task_class[task];
    const char *op = check->g->op_name[d->task_op[task]];
    if (d->task_kind[task] == ESP_TASK_COMM)
        esp_i_diag_place(check->diag, "task %d: %s for %s", task,
                         esp_comm_name((esp_comm_t)d->comm_kind[d->task_comm[task]]), op);
    else
        esp_i_diag_place(check->diag, "task %d: %s on class %d (%s%s)", task, op, class_,
                         class_device_name(d, class_),
                         d->class_offset[class_ + 1] - d->class_offset[class_] > 1 ? " .." : "");
}

esp_status_t esp_i_check_task_fail(esp_i_check_t *check, int32_t task, const char *format, ...)
{
    va_list arguments;
    place_task(check, task);
    va_start(arguments, format);
    esp_status_t status = fail_here(check, format, arguments);
    va_end(arguments);
    return status;
}

esp_status_t esp_i_check_value_fail(esp_i_check_t *check, int32_t value, const char *format, ...)
{
    const esp_deployment_t *d = check->d;
    va_list arguments;
    esp_i_diag_place(check->diag, "value %d: %s on mesh %d (%s..)", value,
                     check->g->tensor_name[d->value_tensor[value]], d->value_mesh[value],
                     d->cluster->vertex_name[d->mesh_device[d->mesh_offset[d->value_mesh[value]]]]);
    va_start(arguments, format);
    esp_status_t status = fail_here(check, format, arguments);
    va_end(arguments);
    return status;
}

esp_status_t esp_deployment_check(const esp_deployment_t *deployment, esp_diag_t *diag)
{
    esp_i_check_t check = {.d = deployment, .g = deployment->graph, .diag = diag};
    esp_i_arena_init(&check.arena, NULL);
    static esp_status_t (*const stages[])(esp_i_check_t *) = {
        esp_i_check_ranges, esp_i_check_layout, esp_i_check_index,
        esp_i_check_values, esp_i_check_tasks,  esp_i_check_cover,
        esp_i_check_order,  esp_i_check_memory, esp_i_check_arena};
    esp_status_t status = ESP_OK;
    for (size_t i = 0; i < sizeof stages / sizeof *stages && status == ESP_OK; i++)
        status = stages[i](&check);
    esp_i_arena_fini(&check.arena);
    return status;
}
