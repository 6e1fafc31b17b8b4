/* esp_report_run: one simulated deployment. */
#include "report/run.h"

static void put_text(const esp_report_run_args_t *subject, const esp_i_usage_t *usage,
                     const esp_i_duty_t *duty, bool verbose, const esp_allocator_t *alloc,
                     esp_i_text_t *text)
{
    const esp_deployment_t *d = subject->deployment;
    const esp_sim_result_t *sim = subject->sim;
    char step[32], makespan[32], rate[32];
    esp_i_put_heading(subject->model, d->cost, subject->links, subject->barrier, text);
    esp_i_format_ns(sim->step_time_ns, step);
    esp_i_format_ns(sim->makespan_ns, makespan);
    esp_i_report_si(1e9 * (double)d->graph->batch / (double)sim->step_time_ns, "", rate);
    esp_i_text_addf(text, "step time %s", step);
    if (d->graph->batch > 0)
        esp_i_text_addf(text, " (%s samples/s)", rate);
    if (!subject->barrier)
        esp_i_text_addf(text, "; one step alone %s", makespan);
    esp_i_text_add(text, "\n");
    if (subject->plan != NULL && subject->plan->step_time_ns > 0) {
        esp_i_format_ns(subject->plan->step_time_ns, step);
        esp_i_text_addf(text, "the plan predicts %s\n", step);
    }
    esp_i_text_add(text, "\n");
    esp_i_put_duties(d, duty, text);
    esp_i_text_add(text, "\n");
    esp_i_put_usage(d, sim, usage, verbose, alloc, text);
    esp_i_text_add(text, "\n");
    esp_i_put_moves(d, sim, alloc, text);
}

static void put_json(const esp_report_run_args_t *subject, const esp_i_usage_t *usage,
                     esp_i_text_t *text)
{
    const esp_deployment_t *d = subject->deployment;
    const esp_sim_result_t *sim = subject->sim;
    const esp_cluster_t *cluster = d->cluster;
    esp_i_json_out_t out;
    esp_i_json_out_init(&out, text);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_put_string(&out, "model", subject->model != NULL ? subject->model : d->graph->name);
    esp_i_json_put_string(&out, "cluster", cluster->name);
    esp_i_json_put_int(&out, "batch", d->graph->batch);
    esp_i_json_put_string(&out, "links", subject->links == ESP_LINK_FAIR ? "fair" : "exclusive");
    esp_i_json_put_bool(&out, "barrier", subject->barrier != 0);
    esp_i_json_put_real(&out, "step_time_s", (double)sim->step_time_ns / 1e9);
    esp_i_json_put_real(&out, "makespan_s", (double)sim->makespan_ns / 1e9);
    esp_i_json_put_int(&out, "tasks", d->n_tasks);
    if (subject->plan != NULL)
        esp_i_json_put_real(&out, "plan_step_time_s", (double)subject->plan->step_time_ns / 1e9);
    esp_i_json_open_array(&out, "devices");
    for (int32_t device = 0; device < cluster->n_devices; device++) {
        int32_t class = d->device_class[device];
        esp_i_usage_t use = esp_i_device_usage(d, usage, sim->step_time_ns, device);
        esp_i_json_next_flat(&out);
        esp_i_json_open_object(&out, NULL);
        esp_i_json_put_string(&out, "name", cluster->vertex_name[device]);
        esp_i_json_put_string(&out, "type", cluster->types[cluster->device_type[device]].name);
        esp_i_json_put_int(&out, "peak_memory_bytes",
                           class == ESP_NONE ? 0 : d->class_arena_bytes[class]);
        esp_i_json_put_int(&out, "memory_bytes", cluster->device_memory_bytes[device]);
        esp_i_json_put_real(&out, "busy_s", (double)use.compute_ns / 1e9);
        esp_i_json_put_real(&out, "exposed_s", (double)use.exposed_ns / 1e9);
        esp_i_json_put_real(&out, "idle_s", (double)use.idle_ns / 1e9);
        esp_i_json_close(&out);
    }
    esp_i_json_close(&out);
    esp_i_json_close(&out);
}

esp_status_t esp_report_run(const esp_report_run_args_t *subject, const esp_report_opts_t *opts,
                            const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    esp_allocator_t memory = esp_i_allocator(alloc);
    const esp_deployment_t *d = subject->deployment;
    esp_i_arena_t arena;
    esp_i_text_t text;
    ESP_TRY(esp_i_report_check(opts, diag));
    if (d == NULL || d->class_arena_bytes == NULL || subject->strategy == NULL ||
        subject->sim == NULL || subject->sim->start_ns == NULL)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "no packed deployment with a timeline");
    esp_i_arena_init(&arena, alloc);
    esp_i_usage_t *usage = esp_i_arena_alloc(&arena, d->n_classes, sizeof *usage);
    esp_i_duty_t *duty = esp_i_arena_alloc(&arena, d->cluster->n_groups, sizeof *duty);
    esp_status_t status = usage == NULL || duty == NULL
                              ? esp_i_nomem(diag)
                              : esp_i_usage(d, subject->sim, &memory, usage, diag);
    if (status == ESP_OK) {
        esp_i_text_init(&text, &memory);
        esp_i_duties(d, subject->strategy, duty);
        if (opts->form == ESP_REPORT_JSON)
            put_json(subject, usage, &text);
        else
            put_text(subject, usage, duty, opts->verbose != 0, &memory, &text);
        status = esp_i_report_finish(&text, text_out, diag);
    }
    esp_i_arena_fini(&arena);
    return status;
}
