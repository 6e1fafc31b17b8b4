/* The search and the baselines side by side. */
#include "report/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- measuring ---------------------------------------------------------------------------- */

typedef struct bench {
    esp_lowerer_t *lowerer;
    esp_sim_t *sim;
    esp_sim_opts_t opts;
} bench_t;

/* As the search settles a plan: packed by its timeline, then run with what that adds. */
static esp_status_t measure(bench_t *bench, const esp_strategy_t *strategy, esp_i_row_t *row,
                            esp_diag_t *diag)
{
    const esp_deployment_t *d;
    esp_sim_result_t sim;
    ESP_TRY(esp_lower(bench->lowerer, strategy, &d, diag));
    ESP_TRY(esp_sim_run(bench->sim, d, &bench->opts, &sim, diag));
    ESP_TRY(esp_deployment_pack_timed(bench->lowerer, sim.start_ns, sim.end_ns, sim.step_time_ns,
                                      diag));
    ESP_TRY(esp_sim_run(bench->sim, d, &bench->opts, &sim, diag));
    for (int32_t device = 0; device < d->cluster->n_devices; device++) {
        int32_t class = d->device_class[device];
        row->peak_bytes[device] = class == ESP_NONE ? 0 : d->class_arena_bytes[class];
        row->busy_ns[device] = class == ESP_NONE ? 0 : sim.class_busy_ns[class];
    }
    return ESP_OK;
}

static esp_status_t make_row(const esp_report_search_args_t *subject, bench_t *bench, int32_t index,
                             esp_i_arena_t *arena, esp_i_row_t *row, esp_diag_t *diag)
{
    const esp_search_result_t *result = subject->result;
    const esp_cluster_t *cluster = subject->cost->cluster;
    const esp_choice_t *choice = index == 0 ? &result->best : &result->baseline[index - 1];
    *row = (esp_i_row_t){
        .name = index > 0                      ? esp_baseline_name((esp_baseline_t)(index - 1))
                : subject->opts->baseline >= 0 ? "planned"
                                               : "search",
        .choice = choice->op_mesh != NULL ? choice : NULL,
        .peak_bytes = esp_i_arena_alloc(arena, cluster->n_devices, sizeof *row->peak_bytes),
        .busy_ns = esp_i_arena_alloc(arena, cluster->n_devices, sizeof *row->busy_ns),
    };
    if (row->peak_bytes == NULL || row->busy_ns == NULL)
        return esp_i_nomem(diag);
    if (row->choice == NULL)
        return ESP_OK;
    row->outcome = choice->outcome;
    size_t bytes = (size_t)cluster->n_devices * sizeof(int64_t);
    if (index == 0) {
        memcpy(row->peak_bytes, result->device_peak_bytes, bytes);
        memcpy(row->busy_ns, result->device_busy_ns, bytes);
    } else {
        ESP_TRY(measure(bench, &choice->strategy, row, diag));
    }
    row->ghost_ops = esp_i_ghost_ops(subject->cost->graph, &choice->strategy);
    return ESP_OK;
}

esp_status_t esp_i_rows_make(const esp_report_search_args_t *subject, esp_i_arena_t *arena,
                             const esp_allocator_t *alloc, esp_i_row_t rows_out[ESP_I_ROWS],
                             esp_diag_t *diag)
{
    bench_t bench = {.opts = esp_sim_opts_default()};
    bench.opts.links = subject->opts->links;
    bench.opts.barrier = subject->opts->barrier;
    bench.opts.timeline = 1;
    esp_status_t status = esp_lowerer_create(subject->cost, alloc, &bench.lowerer, diag);
    if (status == ESP_OK)
        status = esp_sim_create(alloc, &bench.sim);
    for (int32_t i = 0; i < ESP_I_ROWS && status == ESP_OK; i++)
        status = make_row(subject, &bench, i, arena, &rows_out[i], diag);
    esp_sim_destroy(bench.sim);
    esp_lowerer_destroy(bench.lowerer);
    return status;
}

/* ---- text --------------------------------------------------------------------------------- */

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

/* Rows are compared with the best that fits. */
static int64_t best_ns(const esp_i_row_t *rows)
{
    return rows[0].outcome.feasible ? rows[0].outcome.step_time_ns : 0;
}

static void put_row(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                    const esp_i_row_t *row, esp_i_table_t *table)
{
    const esp_cluster_t *cluster = subject->cost->cluster;
    char value[32];
    esp_i_table_cell(table, "%s%s", row->name, row->ghost_ops > 0 ? " *" : "");
    if (row->outcome.step_time_ns <= 0) {
        for (int32_t i = 0; i < 4; i++)
            esp_i_table_cell(table, "-");
        esp_i_table_cell(table, "no deployment of this kind");
        return;
    }
    const esp_outcome_t *outcome = &row->outcome;
    esp_i_format_ns(outcome->step_time_ns, value);
    esp_i_table_cell(table, "%s", value);
    esp_i_report_si((double)subject->cost->graph->batch / seconds(outcome->step_time_ns), "",
                    value);
    esp_i_table_cell(table, "%s", subject->cost->graph->batch > 0 ? value : "-");
    if (best_ns(rows) > 0)
        esp_i_table_cell(table, "%.2f x", (double)outcome->step_time_ns / (double)best_ns(rows));
    else
        esp_i_table_cell(table, "-");
    int64_t peak = 0;
    for (int32_t d = 0; d < cluster->n_devices; d++)
        peak = esp_i_max_i64(peak, row->peak_bytes[d]);
    esp_i_format_bytes(peak, value);
    esp_i_table_cell(table, "%s", value);
    esp_i_format_bytes(-outcome->slack_bytes, value);
    if (outcome->feasible)
        esp_i_table_cell(table, "yes");
    else
        esp_i_table_cell(table, "no: %s lacks %s", cluster->vertex_name[outcome->worst_device],
                         value);
}

static void put_remarks(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                        esp_i_text_t *text)
{
    const esp_search_result_t *result = subject->result;
    int32_t ghosts = 0;
    char line[512];
    for (int32_t i = 0; i < ESP_I_ROWS; i++)
        ghosts = rows[i].ghost_ops > ghosts ? rows[i].ghost_ops : ghosts;
    if (ghosts > 0) {
        (void)snprintf(line, sizeof line,
                       "* trains another function than one device does: the %d BatchNorm ops take "
                       "their statistics from each device's samples alone (ghost batches). "
                       "--batchnorm sync reduces the statistics and is exact.",
                       (int)ghosts);
        esp_i_report_wrap(text, 2, line);
    }
    if (result->from_baseline != ESP_NONE)
        esp_i_text_addf(text,
                        subject->opts->baseline >= 0 ? "planned as %s, without a search\n"
                                                     : "the search found nothing better than %s\n",
                        esp_baseline_name((esp_baseline_t)result->from_baseline));
}

void esp_i_put_rows(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                    const esp_allocator_t *alloc, esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {
        {"strategy", ESP_I_LEFT}, {"step time", ESP_I_RIGHT},   {"samples/s", ESP_I_RIGHT},
        {"vs best", ESP_I_RIGHT}, {"peak memory", ESP_I_RIGHT}, {"fits", ESP_I_LEFT}};
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 6, columns);
    for (int32_t i = 0; i < ESP_I_ROWS; i++)
        put_row(subject, rows, &rows[i], &table);
    esp_i_table_print(&table, 0, text);
    put_remarks(subject, rows, text);
}

void esp_i_put_heading(const char *model, const esp_cost_t *cost, esp_link_mode_t links,
                       int32_t barrier, esp_i_text_t *text)
{
    char line[1024], batch[32] = "no batch";
    if (cost->graph->batch > 0)
        (void)snprintf(batch, sizeof batch, "batch %lld", (long long)cost->graph->batch);
    (void)snprintf(
        line, sizeof line, "%.512s on %s: %d %s, %s, %s, %s links%s",
        model != NULL ? model : cost->graph->name, cost->cluster->name,
        (int)cost->cluster->n_devices, cost->cluster->n_devices == 1 ? "device" : "devices", batch,
        esp_precision_name(cost->precision), links == ESP_LINK_FAIR ? "fair" : "exclusive",
        barrier ? ", one isolated step" : "");
    esp_i_report_wrap(text, 2, line);
    esp_i_text_add(text, "\n");
}

void esp_i_put_effort(const esp_report_search_args_t *subject, esp_i_text_t *text)
{
    const esp_search_result_t *result = subject->result;
    char bound[32];
    esp_i_format_ns(result->lower_bound_ns, bound);
    if (result->lower_bound_ns > 0)
        esp_i_text_addf(text, "no deployment takes less than %s", bound);
    if (result->lower_bound_ns > 0 && result->best.outcome.feasible)
        esp_i_text_addf(text, "; the best takes %.2f x that",
                        (double)result->best.outcome.step_time_ns / (double)result->lower_bound_ns);
    esp_i_text_addf(text, "%s%lld strategies evaluated in ", result->lower_bound_ns > 0 ? "\n" : "",
                    (long long)result->evaluations);
    esp_i_text_addf(text, result->search_time_s < 999.5 ? "%.3g s" : "%.0f s",
                    result->search_time_s);
    esp_i_text_addf(text, ", seed %llu\n", (unsigned long long)subject->opts->seed);
    esp_i_coverage_t coverage = esp_i_task_coverage(result->deployment);
    if (coverage.measured > 0)
        esp_i_text_addf(text, "the times of %d of %d compute tasks were measured\n",
                        (int)coverage.measured, (int)coverage.all);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void json_outcome(const esp_i_row_t *row, int64_t batch, esp_i_json_out_t *out)
{
    const esp_outcome_t *outcome = &row->outcome;
    if (outcome->step_time_ns <= 0) {
        esp_i_json_put_null(out, "step_time_s");
        esp_i_json_put_null(out, "samples_per_s");
        esp_i_json_put_bool(out, "feasible", false);
        return;
    }
    esp_i_json_put_real(out, "step_time_s", seconds(outcome->step_time_ns));
    esp_i_json_put_real(out, "samples_per_s", (double)batch / seconds(outcome->step_time_ns));
    esp_i_json_put_bool(out, "feasible", outcome->feasible != 0);
}

static void json_baselines(const esp_i_row_t *rows, esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, "baselines");
    for (int32_t i = 1; i < ESP_I_ROWS; i++) {
        const esp_outcome_t *outcome = &rows[i].outcome;
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", rows[i].name);
        if (outcome->step_time_ns > 0)
            esp_i_json_put_real(out, "step_time_s", seconds(outcome->step_time_ns));
        else
            esp_i_json_put_null(out, "step_time_s");
        esp_i_json_put_bool(out, "feasible", outcome->feasible != 0);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void json_devices(const esp_cluster_t *cluster, const esp_i_row_t *row,
                         esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, "devices");
    for (int32_t d = 0; d < cluster->n_devices; d++) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", cluster->vertex_name[d]);
        esp_i_json_put_string(out, "type", cluster->types[cluster->device_type[d]].name);
        esp_i_json_put_int(out, "peak_memory_bytes", row->peak_bytes[d]);
        esp_i_json_put_int(out, "memory_bytes", cluster->device_memory_bytes[d]);
        esp_i_json_put_real(out, "busy_s", seconds(row->busy_ns[d]));
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

void esp_i_json_row(const esp_report_search_args_t *subject, const esp_i_row_t *rows,
                    const esp_i_row_t *row, esp_i_json_out_t *out)
{
    const esp_search_result_t *result = subject->result;
    const esp_cluster_t *cluster = subject->cost->cluster;
    json_outcome(row, subject->cost->graph->batch, out);
    if (!row->outcome.feasible && row->outcome.step_time_ns > 0) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, "out_of_memory");
        esp_i_json_put_string(out, "device", cluster->vertex_name[row->outcome.worst_device]);
        esp_i_json_put_int(out, "excess_bytes", -row->outcome.slack_bytes);
        esp_i_json_close(out);
    }
    esp_i_json_put_int(out, "micro_batches",
                       row->choice != NULL ? row->choice->strategy.micro_batches : 1);
    esp_i_json_put_bool(out, "ghost_batches", row->ghost_ops > 0);
    esp_i_json_put_real(out, "lower_bound_s", seconds(result->lower_bound_ns));
    esp_i_json_put_int(out, "evaluations", result->evaluations);
    esp_i_json_put_real(out, "search_time_s", result->search_time_s);
    esp_i_json_put_int(out, "seed", (int64_t)subject->opts->seed);
    json_devices(cluster, row, out);
    json_baselines(rows, out);
}

void esp_i_json_heading(const esp_report_search_args_t *subject, esp_i_json_out_t *out)
{
    const esp_search_result_t *result = subject->result;
    esp_i_json_put_string(out, "model",
                          subject->model != NULL ? subject->model : subject->cost->graph->name);
    esp_i_json_put_string(out, "cluster", subject->cost->cluster->name);
    esp_i_json_put_int(out, "batch", subject->cost->graph->batch);
    esp_i_json_put_string(out, "precision", esp_precision_name(subject->cost->precision));
    esp_i_json_put_string(out, "links",
                          subject->opts->links == ESP_LINK_FAIR ? "fair" : "exclusive");
    esp_i_json_put_bool(out, "barrier", subject->opts->barrier != 0);
    esp_i_coverage_t coverage = esp_i_task_coverage(result->deployment);
    esp_i_json_put_int(out, "compute_tasks", coverage.all);
    esp_i_json_put_int(out, "measured_tasks", coverage.measured);
    esp_i_json_put_string(out, "strategy",
                          result->from_baseline == ESP_NONE
                              ? "search"
                              : esp_baseline_name((esp_baseline_t)result->from_baseline));
}
