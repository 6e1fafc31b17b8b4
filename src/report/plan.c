/* esp_report_plan and esp_report_compare. */
#include "report/run.h"

#include <stdio.h>

static esp_status_t check(const esp_report_search_args_t *subject, const esp_report_opts_t *opts,
                          esp_diag_t *diag)
{
    ESP_TRY(esp_i_report_check(opts, diag));
    if (subject->cost == NULL || subject->opts == NULL || subject->result == NULL)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "no search to report on");
    return ESP_OK;
}

/* ---- the best deployment in detail -------------------------------------------------------- */

typedef struct detail {
    esp_sim_t *sim;
    esp_sim_result_t run;
    esp_i_usage_t *usage; /* per class */
    esp_i_duty_t *duty;   /* per device group */
} detail_t;

static esp_status_t detail_make(const esp_report_search_args_t *subject, esp_i_arena_t *arena,
                                const esp_allocator_t *alloc, detail_t *detail, esp_diag_t *diag)
{
    const esp_deployment_t *d = subject->result->deployment;
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.links = subject->opts->links;
    opts.barrier = subject->opts->barrier;
    opts.timeline = 1;
    detail->usage = esp_i_arena_alloc(arena, d->n_classes, sizeof *detail->usage);
    detail->duty = esp_i_arena_alloc(arena, d->cluster->n_groups, sizeof *detail->duty);
    if (detail->usage == NULL || detail->duty == NULL)
        return esp_i_nomem(diag);
    ESP_TRY(esp_sim_create(alloc, &detail->sim));
    ESP_TRY(esp_sim_run(detail->sim, d, &opts, &detail->run, diag));
    ESP_TRY(esp_i_usage(d, &detail->run, alloc, detail->usage, diag));
    esp_i_duties(d, &subject->result->best.strategy, detail->duty);
    return ESP_OK;
}

static void put_detail(const esp_report_search_args_t *subject, const detail_t *detail,
                       bool verbose, const esp_allocator_t *alloc, esp_i_text_t *text)
{
    const esp_deployment_t *d = subject->result->deployment;
    const esp_strategy_t *strategy = &subject->result->best.strategy;
    esp_i_text_add(text, "\nwhat each device group does:\n");
    esp_i_put_duties(d, detail->duty, text);
    if (strategy->micro_batches > 1)
        esp_i_text_addf(text, "The batch is cut into %d micro-batches.\n",
                        (int)strategy->micro_batches);
    esp_i_text_add(text, "\nwhere the step goes:\n");
    esp_i_put_usage(d, &detail->run, detail->usage, verbose, alloc, text);
    esp_i_text_add(text, "\n");
    esp_i_put_moves(d, &detail->run, alloc, text);
}

static void json_groups(const esp_report_search_args_t *subject, const detail_t *detail,
                        esp_i_json_out_t *out)
{
    static const char *const homes[ESP_I_HOME_COUNT] = {
        [ESP_I_HOME_ALONE] = "alone_bytes",           [ESP_I_HOME_ALLREDUCED] = "all_reduced_bytes",
        [ESP_I_HOME_SERVED] = "served_bytes",         [ESP_I_HOME_SHARDED] = "sharded_bytes",
        [ESP_I_HOME_DUPLICATED] = "duplicated_bytes",
    };
    const esp_cluster_t *cluster = subject->cost->cluster;
    esp_i_json_open_array(out, "groups");
    for (int32_t group = 0; group < cluster->n_groups; group++) {
        const esp_i_duty_t *duty = &detail->duty[group];
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", cluster->group_name[group]);
        esp_i_json_put_real(out, "work_share", duty->work);
        esp_i_json_put_int(out, "samples_min", duty->units_min);
        esp_i_json_put_int(out, "samples_max", duty->units_max);
        esp_i_json_put_int(out, "split_ops", duty->split_ops);
        esp_i_json_put_int(out, "whole_ops", duty->whole_ops);
        for (int32_t home = 0; home < ESP_I_HOME_COUNT; home++)
            esp_i_json_put_int(out, homes[home], duty->home_bytes[home]);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void json_usage(const esp_report_search_args_t *subject, const detail_t *detail,
                       esp_i_json_out_t *out)
{
    const esp_deployment_t *d = subject->result->deployment;
    esp_i_json_open_array(out, "usage");
    for (int32_t device = 0; device < d->cluster->n_devices; device++) {
        esp_i_usage_t usage =
            esp_i_device_usage(d, detail->usage, detail->run.step_time_ns, device);
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", d->cluster->vertex_name[device]);
        esp_i_json_put_real(out, "compute_s", (double)usage.compute_ns / 1e9);
        esp_i_json_put_real(out, "exposed_s", (double)usage.exposed_ns / 1e9);
        esp_i_json_put_real(out, "idle_s", (double)usage.idle_ns / 1e9);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

/* ---- the two reports ---------------------------------------------------------------------- */

static void plan_json(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                      const detail_t *detail, esp_i_text_t *text)
{
    esp_i_json_out_t out;
    esp_i_json_out_init(&out, text);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_heading(subject, &out);
    esp_i_json_row(subject, rows, &rows[0], &out);
    json_usage(subject, detail, &out);
    json_groups(subject, detail, &out);
    esp_i_json_close(&out);
}

static void plan_text(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                      const detail_t *detail, bool verbose, const esp_allocator_t *alloc,
                      esp_i_text_t *text)
{
    esp_i_put_heading(subject->model, subject->cost, subject->opts->links, subject->opts->barrier,
                      text);
    esp_i_put_rows(subject, rows, alloc, text);
    esp_i_text_add(text, "\n");
    esp_i_put_effort(subject, text);
    put_detail(subject, detail, verbose, alloc, text);
}

esp_status_t esp_report_plan(const esp_report_search_args_t *subject, const esp_report_opts_t *opts,
                             const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    esp_allocator_t memory = esp_i_allocator(alloc);
    esp_i_row_t rows[ESP_I_ROWS];
    detail_t detail = {0};
    esp_i_arena_t arena;
    esp_i_text_t text;
    ESP_TRY(check(subject, opts, diag));
    esp_i_arena_init(&arena, alloc);
    esp_status_t status = esp_i_rows_make(subject, &arena, &memory, rows, diag);
    if (status == ESP_OK)
        status = detail_make(subject, &arena, &memory, &detail, diag);
    if (status == ESP_OK) {
        esp_i_text_init(&text, &memory);
        if (opts->form == ESP_REPORT_JSON)
            plan_json(subject, rows, &detail, &text);
        else
            plan_text(subject, rows, &detail, opts->verbose != 0, &memory, &text);
        status = esp_i_report_finish(&text, text_out, diag);
    }
    esp_sim_destroy(detail.sim);
    esp_i_arena_fini(&arena);
    return status;
}

static void compare_json(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                         esp_i_text_t *text)
{
    esp_i_json_out_t out;
    esp_i_json_out_init(&out, text);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_heading(subject, &out);
    esp_i_json_row(subject, rows, &rows[0], &out);
    esp_i_json_open_array(&out, "rows");
    for (int32_t i = 0; i < ESP_I_ROWS; i++) {
        esp_i_json_open_object(&out, NULL);
        esp_i_json_put_string(&out, "name", rows[i].name);
        esp_i_json_row(subject, rows, &rows[i], &out);
        esp_i_json_close(&out);
    }
    esp_i_json_close(&out);
    esp_i_json_close(&out);
}

static void compare_text(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                         const esp_allocator_t *alloc, esp_i_text_t *text)
{
    esp_i_put_heading(subject->model, subject->cost, subject->opts->links, subject->opts->barrier,
                      text);
    esp_i_put_rows(subject, rows, alloc, text);
    esp_i_text_add(text, "\n");
    esp_i_put_effort(subject, text);
}

esp_status_t esp_report_compare(const esp_report_search_args_t *subject,
                                const esp_report_opts_t *opts, const esp_allocator_t *alloc,
                                char **text_out, esp_diag_t *diag)
{
    esp_allocator_t memory = esp_i_allocator(alloc);
    esp_i_row_t rows[ESP_I_ROWS];
    esp_i_arena_t arena;
    esp_i_text_t text;
    ESP_TRY(check(subject, opts, diag));
    esp_i_arena_init(&arena, alloc);
    esp_status_t status = esp_i_rows_make(subject, &arena, &memory, rows, diag);
    if (status == ESP_OK) {
        esp_i_text_init(&text, &memory);
        if (opts->form == ESP_REPORT_JSON)
            compare_json(subject, rows, &text);
        else
            compare_text(subject, rows, &memory, &text);
        status = esp_i_report_finish(&text, text_out, diag);
    }
    esp_i_arena_fini(&arena);
    return status;
}

void esp_report_infeasible(const esp_report_search_args_t *subject, char *text_out, size_t capacity)
{
    const esp_search_result_t *result = subject->result;
    const esp_outcome_t *best = &result->best.outcome;
    const char *device = subject->cost->cluster->vertex_name[best->worst_device];
    char excess[32], needed[32], there[32];
    esp_i_format_bytes(-best->slack_bytes, excess);
    esp_i_format_bytes(result->memory_needed_bytes, needed);
    esp_i_format_bytes(result->memory_there_bytes, there);
    if (result->proven_infeasible)
        (void)snprintf(text_out, capacity,
                       "no plan fits: parameters and optimizer state take %s, and all devices "
                       "together have %s; in the nearest plan %s lacks %s",
                       needed, there, device, excess);
    else
        (void)snprintf(text_out, capacity,
                       "no feasible plan was found in %lld evaluations; in the nearest one %s "
                       "lacks %s of memory",
                       (long long)result->evaluations, device, excess);
}
