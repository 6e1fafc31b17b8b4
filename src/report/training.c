/* esp_report_training: what became of a run. */
#include "report/report.h"

#include <math.h>
#include <stdio.h>

/* Of language models: e to the mean loss of a token. */
static bool has_perplexity(const esp_report_training_args_t *subject)
{
    const esp_evaluation_t *e = &subject->result->evaluation;
    return e->labels > e->steps * subject->deployment->graph->batch;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void put_heading(const esp_report_training_args_t *subject, esp_i_text_t *text)
{
    const esp_deployment_t *d = subject->deployment;
    int32_t n = 0;
    for (int32_t i = 0; i < d->cluster->n_devices; i++)
        n += d->device_class[i] != ESP_NONE;
    esp_i_text_addf(text, "%s on %d %s of %s, batch %lld, %s backend%s\n",
                    subject->model != NULL ? subject->model : d->graph->name, (int)n,
                    n == 1 ? "device" : "devices", d->cluster->name, (long long)d->graph->batch,
                    subject->exec->backend, subject->exec->wide != 0 ? " in double" : "");
    esp_i_text_addf(text, "weights from %s\n", subject->weights);
    if (subject->data == NULL) {
        esp_i_text_add(text, "data made up from the seed\n");
        return;
    }
    int64_t rows = esp_data_rows(subject->data), steps = esp_data_epoch_steps(subject->data);
    esp_i_text_addf(text, "%lld rows of data, %lld %s an epoch", (long long)rows, (long long)steps,
                    steps == 1 ? "step" : "steps");
    if (rows > steps * d->graph->batch)
        esp_i_text_addf(text, " (%lld left over)", (long long)(rows - steps * d->graph->batch));
    esp_i_text_add(text, "\n");
}

static void put_text(const esp_report_training_args_t *subject, esp_i_text_t *text)
{
    const esp_train_result_t *result = subject->result;
    const esp_evaluation_t *e = &result->evaluation;
    char rate[32], accuracy[32];
    put_heading(subject, text);
    esp_i_text_addf(text, "%lld %s", (long long)result->steps,
                    result->steps == 1 ? "step" : "steps");
    if (result->steps < subject->step)
        esp_i_text_addf(text, " (%lld in all)", (long long)subject->step);
    esp_i_report_si(result->samples_per_s, "", rate);
    if (result->steps > 0)
        esp_i_text_addf(text, ": loss %.6g to %.6g, %s samples/s", result->first_loss, result->loss,
                        rate);
    esp_i_text_add(text, result->stopped != 0 ? "; stopped\n" : "\n");
    if (result->evaluated != 0) {
        esp_i_text_addf(text, "evaluation: loss %.6g", e->loss);
        if (has_perplexity(subject))
            esp_i_text_addf(text, ", perplexity %.6g", exp(e->loss));
        esp_i_report_percent(e->accuracy, accuracy);
        if (e->accuracy >= 0)
            esp_i_text_addf(text, ", %s of %lld labels", accuracy, (long long)e->labels);
        esp_i_text_add(text, "\n");
    }
    if (subject->checkpoint != NULL)
        esp_i_text_addf(text, "checkpoint in %s\n", subject->checkpoint);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_ranks(const esp_report_training_args_t *subject, esp_i_json_out_t *out)
{
    const esp_deployment_t *d = subject->deployment;
    const esp_exec_opts_t *exec = subject->exec;
    int32_t rank = 0;
    esp_i_json_open_array(out, "ranks");
    for (int32_t i = 0; i < d->cluster->n_devices; i++) {
        int32_t device = i;
        if (d->device_class[i] == ESP_NONE)
            continue;
        if (exec->map != NULL && rank < exec->n_map)
            device = exec->map[rank];
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_int(out, "rank", rank++);
        esp_i_json_put_string(out, "device", d->cluster->vertex_name[device]);
        esp_i_json_put_int(out, "arena_bytes",
                           d->class_arena_bytes[d->device_class[device]] * (exec->wide + 1));
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_evaluation(const esp_report_training_args_t *subject, esp_i_json_out_t *out)
{
    const esp_evaluation_t *e = &subject->result->evaluation;
    esp_i_json_open_object(out, "evaluation");
    esp_i_json_put_real(out, "loss", e->loss);
    if (has_perplexity(subject))
        esp_i_json_put_real(out, "perplexity", exp(e->loss));
    if (e->accuracy >= 0) {
        esp_i_json_put_real(out, "accuracy", e->accuracy);
        esp_i_json_put_int(out, "labels", e->labels);
    }
    esp_i_json_close(out);
}

static void put_json(const esp_report_training_args_t *subject, esp_i_text_t *text)
{
    const esp_deployment_t *d = subject->deployment;
    const esp_train_result_t *result = subject->result;
    esp_i_json_out_t out;
    esp_i_json_out_init(&out, text);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_put_string(&out, "model", subject->model != NULL ? subject->model : d->graph->name);
    esp_i_json_put_string(&out, "cluster", d->cluster->name);
    esp_i_json_put_int(&out, "batch", d->graph->batch);
    esp_i_json_put_string(&out, "backend", subject->exec->backend);
    esp_i_json_put_bool(&out, "double", subject->exec->wide != 0);
    esp_i_json_put_string(&out, "weights", subject->weights);
    esp_i_json_put_int(&out, "rows", subject->data != NULL ? esp_data_rows(subject->data) : 0);
    esp_i_json_put_int(&out, "steps", result->steps);
    esp_i_json_put_int(&out, "steps_in_all", subject->step);
    if (result->steps > 0) {
        esp_i_json_put_real(&out, "loss_first", result->first_loss);
        esp_i_json_put_real(&out, "loss_last", result->loss);
        esp_i_json_put_real(&out, "samples_per_s", result->samples_per_s);
    }
    esp_i_json_put_bool(&out, "stopped", result->stopped != 0);
    if (result->evaluated != 0)
        put_evaluation(subject, &out);
    put_ranks(subject, &out);
    esp_i_json_close(&out);
}

esp_status_t esp_report_training(const esp_report_training_args_t *subject,
                                 const esp_report_opts_t *opts, const esp_allocator_t *alloc,
                                 char **text_out, esp_diag_t *diag)
{
    esp_i_text_t text;
    ESP_TRY(esp_i_report_check(opts, diag));
    if (subject->deployment == NULL || subject->deployment->class_arena_bytes == NULL ||
        subject->exec == NULL || subject->result == NULL || subject->weights == NULL)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "no packed deployment, options or result");
    esp_i_text_init(&text, alloc);
    if (opts->form == ESP_REPORT_JSON)
        put_json(subject, &text);
    else
        put_text(subject, &text);
    return esp_i_report_finish(&text, text_out, diag);
}
