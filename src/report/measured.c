/* esp_report_measured: a prediction beside what was measured. */
#include "report/report.h"

#include <math.h>
#include <stdlib.h>

/* ---- the facts ------------------------------------------------------------------------------ */

/* Kinds of tasks: ops, movements, local sums and slices. */
enum {
    COMMS = ESP_KIND_COUNT,
    ADD = COMMS + ESP_COMM_COUNT,
    SLICE,
    ROWS,
};

typedef struct row {
    int32_t tasks;
    double predicted_ns, measured_ns; /* sums */
    int32_t worst;                    /* the task that is furthest off */
    double worst_ns;                  /* measured - predicted of it */
} row_t;

typedef struct facts {
    const esp_measured_t *m;
    int64_t predicted_step_ns;
    double step_ns;                 /* mean of the recorded steps */
    double replay_ns;               /* mean of their replays */
    double replay_worst;            /* largest |replay / step - 1| */
    double *predicted, *task;       /* per task: predicted, and mean measured */
    double *rank_busy, *class_busy; /* measured, predicted compute time */
    row_t row[ROWS];
} facts_t;

static int32_t row_of(const esp_deployment_t *d, int32_t task)
{
    switch ((esp_task_kind_t)d->task_kind[task]) {
    case ESP_TASK_COMPUTE:
        return d->graph->op_kind[d->task_op[task]];
    case ESP_TASK_ADD:
        return ADD;
    case ESP_TASK_SLICE:
        return SLICE;
    case ESP_TASK_COMM:
        break;
    }
    return COMMS + d->comm_kind[d->task_comm[task]];
}

static const char *row_name(int32_t row)
{
    if (row < COMMS)
        return esp_kind_name((esp_op_kind_t)row);
    if (row < ADD)
        return esp_comm_name((esp_comm_t)(row - COMMS));
    return row == ADD ? "local sum" : "local slice";
}

static const char *task_name(const esp_deployment_t *d, int32_t task)
{
    int32_t comm = d->task_comm[task];
    if (comm < 0)
        return d->task_op[task] >= 0 ? d->graph->op_name[d->task_op[task]] : "-";
    if (d->comm_pair_offset[comm] == d->comm_pair_offset[comm + 1])
        return "-";
    return d->graph->tensor_name[d->value_tensor[d->comm_src[d->comm_pair_offset[comm]]]];
}

static void sum_rows(facts_t *f)
{
    const esp_deployment_t *d = f->m->deployment;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        row_t *row = &f->row[row_of(d, t)];
        double off = f->task[t] - f->predicted[t];
        if (row->tasks++ == 0 || fabs(off) > fabs(row->worst_ns)) {
            row->worst = t;
            row->worst_ns = off;
        }
        row->predicted_ns += f->predicted[t];
        row->measured_ns += f->task[t];
    }
}

/* Compute time of each rank and class, of one step. */
static void sum_busy(facts_t *f)
{
    const esp_measured_t *m = f->m;
    const esp_deployment_t *d = m->deployment;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        if (d->task_comm[t] >= 0)
            continue;
        f->class_busy[d->task_class[t]] += f->predicted[t];
        for (int32_t r = 0; r < m->n_ranks; r++)
            for (int32_t s = 0; s < m->n_steps; s++) {
                int64_t at = ((int64_t)s * m->n_ranks + r) * d->n_tasks + t;
                if (m->start_ns[at] >= 0)
                    f->rank_busy[r] += (double)(m->end_ns[at] - m->start_ns[at]) / m->n_steps;
            }
    }
}

static esp_status_t predict(facts_t *f, esp_sim_t *sim, esp_sim_opts_t *opts, esp_diag_t *diag)
{
    const esp_deployment_t *d = f->m->deployment;
    esp_sim_result_t r;
    opts->timeline = 1;
    ESP_TRY(esp_sim_run(sim, d, opts, &r, diag));
    f->predicted_step_ns = r.step_time_ns;
    for (int32_t t = 0; t < d->n_tasks; t++)
        f->predicted[t] = (double)(r.end_ns[t] - r.start_ns[t]);
    return ESP_OK;
}

/* Each recorded step with its own durations. */
static esp_status_t replay(facts_t *f, esp_sim_t *sim, esp_sim_opts_t *opts, int64_t *ns,
                           esp_diag_t *diag)
{
    const esp_measured_t *m = f->m;
    esp_sim_result_t r;
    opts->timeline = 0;
    opts->links = ESP_LINK_FREE;
    opts->task_ns = ns;
    for (int32_t s = 0; s < m->n_steps; s++) {
        esp_measured_durations(m, s, ns);
        ESP_TRY(esp_sim_run(sim, m->deployment, opts, &r, diag));
        double step = (double)m->step_ns[s], again = (double)r.step_time_ns;
        f->step_ns += step / m->n_steps;
        f->replay_ns += again / m->n_steps;
        f->replay_worst = fmax(f->replay_worst, step > 0 ? fabs(again / step - 1) : 0);
        for (int32_t t = 0; t < m->deployment->n_tasks; t++)
            f->task[t] += (double)ns[t] / m->n_steps;
    }
    return ESP_OK;
}

static esp_status_t find_facts(const esp_report_measured_args_t *subject, esp_i_arena_t *arena,
                               facts_t *f, esp_diag_t *diag)
{
    const esp_deployment_t *d = subject->measured->deployment;
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_sim_t *sim;
    int64_t *ns = esp_i_arena_alloc(arena, d->n_tasks, sizeof *ns);
    f->m = subject->measured;
    f->predicted = esp_i_arena_alloc(arena, d->n_tasks, sizeof *f->predicted);
    f->task = esp_i_arena_alloc(arena, d->n_tasks, sizeof *f->task);
    f->rank_busy = esp_i_arena_alloc(arena, f->m->n_ranks, sizeof *f->rank_busy);
    f->class_busy = esp_i_arena_alloc(arena, d->n_classes, sizeof *f->class_busy);
    if (!ns || !f->predicted || !f->task || !f->rank_busy || !f->class_busy)
        return esp_i_nomem(diag);
    opts.links = subject->links;
    opts.barrier = f->m->isolated;
    ESP_TRY(esp_sim_create(&arena->alloc, &sim));
    esp_status_t status = predict(f, sim, &opts, diag);
    if (status == ESP_OK)
        status = replay(f, sim, &opts, ns, diag);
    esp_sim_destroy(sim);
    sum_rows(f);
    sum_busy(f);
    return status;
}

/* Rows with tasks, the most measured time first. */
static int32_t sort_rows(const facts_t *f, int32_t order[ROWS])
{
    int32_t n = 0;
    for (int32_t i = 0; i < ROWS; i++) {
        int32_t at = n;
        if (f->row[i].tasks == 0)
            continue;
        for (; at > 0 && f->row[order[at - 1]].measured_ns < f->row[i].measured_ns; at--)
            order[at] = order[at - 1];
        order[at] = i;
        n++;
    }
    return n;
}

/* ---- text ------------------------------------------------------------------------------------ */

static double error_of(double value, double truth)
{
    return truth > 0 ? value / truth - 1 : 0;
}

static void time_text(double ns, char out[32])
{
    esp_i_format_ns(llround(ns), out);
}

static void put_step(const facts_t *f, esp_i_text_t *text)
{
    char predicted[32], measured[32], spread[32], again[32], step[32];
    time_text((double)f->predicted_step_ns, predicted);
    time_text(f->m->mean_step_ns, measured);
    time_text(f->m->spread_ns, spread);
    time_text(f->replay_ns, again);
    time_text(f->step_ns, step);
    esp_i_text_addf(text, "step time: predicted %s, measured %s +- %s over %lld %s: %+.1f %%\n",
                    predicted, measured, spread, (long long)f->m->periods,
                    f->m->isolated ? "steps one by one" : "steps",
                    100 * error_of((double)f->predicted_step_ns, f->m->mean_step_ns));
    esp_i_text_addf(text,
                    "replay: %s for %d recorded %s of %s: %+.1f %% (at most %.1f %% of a step)\n",
                    again, (int)f->m->n_steps, f->m->n_steps == 1 ? "step" : "steps", step,
                    100 * error_of(f->replay_ns, f->step_ns), 100 * f->replay_worst);
}

static void put_times(esp_i_table_t *table, double predicted, double measured)
{
    char value[32];
    time_text(predicted, value);
    esp_i_table_cell(table, "%s", value);
    time_text(measured, value);
    esp_i_table_cell(table, "%s", value);
    if (measured > 0)
        esp_i_table_cell(table, "%.2f", predicted / measured);
    else
        esp_i_table_cell(table, "-");
}

static void put_ranks(const facts_t *f, const esp_allocator_t *alloc, esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {{"computing", ESP_I_LEFT},
                                             {"predicted", ESP_I_RIGHT},
                                             {"measured", ESP_I_RIGHT},
                                             {"ratio", ESP_I_RIGHT}};
    const esp_deployment_t *d = f->m->deployment;
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 4, columns);
    for (int32_t r = 0; r < f->m->n_ranks; r++) {
        int32_t device = f->m->device[r];
        esp_i_table_cell(&table, "%s", d->cluster->vertex_name[device]);
        put_times(&table, f->class_busy[d->device_class[device]], f->rank_busy[r]);
    }
    esp_i_table_print(&table, 0, text);
}

static void put_kinds(const facts_t *f, const esp_allocator_t *alloc, esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {
        {"tasks", ESP_I_LEFT},       {"times", ESP_I_RIGHT}, {"predicted", ESP_I_RIGHT},
        {"measured", ESP_I_RIGHT},   {"ratio", ESP_I_RIGHT}, {"off by", ESP_I_RIGHT},
        {"at most, of", ESP_I_LEFT},
    };
    int32_t order[ROWS], n = sort_rows(f, order);
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 7, columns);
    for (int32_t i = 0; i < n; i++) {
        const row_t *row = &f->row[order[i]];
        char off[32];
        time_text(fabs(row->worst_ns), off);
        esp_i_table_cell(&table, "%s", row_name(order[i]));
        esp_i_table_cell(&table, "%d", (int)row->tasks);
        put_times(&table, row->predicted_ns, row->measured_ns);
        esp_i_table_cell(&table, "%s%s", row->worst_ns < 0 ? "-" : "+", off);
        esp_i_table_cell(&table, "%s", task_name(f->m->deployment, row->worst));
    }
    esp_i_table_print(&table, 0, text);
}

static void put_text(const esp_report_measured_args_t *subject, const facts_t *f,
                     const esp_allocator_t *alloc, esp_i_text_t *text)
{
    const esp_deployment_t *d = f->m->deployment;
    esp_i_text_addf(text, "%s on %s: %d ranks, batch %lld\n",
                    subject->model != NULL ? subject->model : d->graph->name, d->cluster->name,
                    (int)f->m->n_ranks, (long long)d->graph->batch);
    put_step(f, text);
    esp_i_text_add(text, "\n");
    put_ranks(f, alloc, text);
    esp_i_text_add(text, "\n");
    put_kinds(f, alloc, text);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_kinds(const facts_t *f, esp_i_json_out_t *out)
{
    int32_t order[ROWS], n = sort_rows(f, order);
    esp_i_json_open_array(out, "tasks");
    for (int32_t i = 0; i < n; i++) {
        const row_t *row = &f->row[order[i]];
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "kind", row_name(order[i]));
        esp_i_json_put_bool(out, "moves", order[i] >= COMMS && order[i] < ADD);
        esp_i_json_put_int(out, "count", row->tasks);
        esp_i_json_put_real(out, "predicted_s", row->predicted_ns / 1e9);
        esp_i_json_put_real(out, "measured_s", row->measured_ns / 1e9);
        esp_i_json_put_int(out, "worst_task", row->worst);
        esp_i_json_put_string(out, "worst_name", task_name(f->m->deployment, row->worst));
        esp_i_json_put_real(out, "worst_predicted_s", f->predicted[row->worst] / 1e9);
        esp_i_json_put_real(out, "worst_measured_s", f->task[row->worst] / 1e9);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void json_ranks(const facts_t *f, esp_i_json_out_t *out)
{
    const esp_deployment_t *d = f->m->deployment;
    esp_i_json_open_array(out, "ranks");
    for (int32_t r = 0; r < f->m->n_ranks; r++) {
        int32_t device = f->m->device[r];
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "device", d->cluster->vertex_name[device]);
        esp_i_json_put_real(out, "predicted_busy_s", f->class_busy[d->device_class[device]] / 1e9);
        esp_i_json_put_real(out, "measured_busy_s", f->rank_busy[r] / 1e9);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_json(const esp_report_measured_args_t *subject, const facts_t *f,
                     esp_i_text_t *text)
{
    const esp_measured_t *m = f->m;
    const esp_deployment_t *d = m->deployment;
    esp_i_json_out_t out;
    esp_i_json_out_init(&out, text);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_put_string(&out, "model", subject->model != NULL ? subject->model : d->graph->name);
    esp_i_json_put_string(&out, "cluster", d->cluster->name);
    esp_i_json_put_int(&out, "batch", d->graph->batch);
    esp_i_json_put_bool(&out, "isolated", m->isolated != 0);
    esp_i_json_put_real(&out, "predicted_step_s", (double)f->predicted_step_ns / 1e9);
    esp_i_json_put_real(&out, "measured_step_s", m->mean_step_ns / 1e9);
    esp_i_json_put_real(&out, "spread_s", m->spread_ns / 1e9);
    esp_i_json_put_real(&out, "median_step_s", m->median_step_ns / 1e9);
    esp_i_json_put_int(&out, "steps", m->periods);
    esp_i_json_put_real(&out, "prediction_error",
                        error_of((double)f->predicted_step_ns, m->mean_step_ns));
    esp_i_json_put_int(&out, "recorded_steps", m->n_steps);
    esp_i_json_put_real(&out, "recorded_step_s", f->step_ns / 1e9);
    esp_i_json_put_real(&out, "replay_s", f->replay_ns / 1e9);
    esp_i_json_put_real(&out, "replay_error", error_of(f->replay_ns, f->step_ns));
    esp_i_json_put_real(&out, "replay_error_worst", f->replay_worst);
    json_ranks(f, &out);
    json_kinds(f, &out);
    esp_i_json_close(&out);
}

esp_status_t esp_report_measured(const esp_report_measured_args_t *subject,
                                 const esp_report_opts_t *opts, const esp_allocator_t *alloc,
                                 char **text_out, esp_diag_t *diag)
{
    esp_allocator_t memory = esp_i_allocator(alloc);
    facts_t facts = {0};
    esp_i_arena_t arena;
    esp_i_text_t text;
    ESP_TRY(esp_i_report_check(opts, diag));
    if (subject->measured == NULL || subject->measured->n_steps < 1)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "no step was recorded");
    esp_i_arena_init(&arena, alloc);
    esp_status_t status = find_facts(subject, &arena, &facts, diag);
    if (status == ESP_OK) {
        esp_i_text_init(&text, &memory);
        if (opts->form == ESP_REPORT_JSON)
            put_json(subject, &facts, &text);
        else
            put_text(subject, &facts, &memory, &text);
        status = esp_i_report_finish(&text, text_out, diag);
    }
    esp_i_arena_fini(&arena);
    return status;
}
