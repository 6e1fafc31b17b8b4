/*
 * The model x cluster table: plans every shipped model onto every shipped cluster at three batch
 * sizes and writes docs/results.md.
 *
 *     results [--source DIR] [--out FILE] [--evaluations N] [--middle]
 *
 * --middle: the middle batch only. Progress goes to stderr. Exit status 1 if a plan is worse than a
 * feasible baseline or refused by the checker. What tools/measure_table wrote into FILE, from a
 * line that starts with KEEP, stays.
 */
#include "espalier/onnx.h"
#include "espalier/search.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP "<!-- What follows is written by tools/measure_table"

typedef struct model {
    const char *name;
    int64_t batch[3];
    esp_optimizer_t optimizer;
} model_t;

static const model_t models[] = {
    {"vgg19", {32, 128, 512}, ESP_OPTIMIZER_MOMENTUM},
    {"resnet50", {64, 256, 1024}, ESP_OPTIMIZER_MOMENTUM},
    {"resnet101", {64, 256, 1024}, ESP_OPTIMIZER_MOMENTUM},
    {"inception_v3", {64, 256, 1024}, ESP_OPTIMIZER_MOMENTUM},
    {"transformer", {64, 256, 1024}, ESP_OPTIMIZER_ADAM},
    {"bert_large", {16, 64, 256}, ESP_OPTIMIZER_ADAM},
    {"gpt2_small", {16, 64, 256}, ESP_OPTIMIZER_ADAM},
    {"vit_b16", {64, 256, 1024}, ESP_OPTIMIZER_ADAM},
    {"lstm_lm", {64, 256, 1024}, ESP_OPTIMIZER_ADAM},
};
enum { N_MODELS = sizeof models / sizeof *models };

typedef struct cluster {
    const char *name, *what;
    int mixed;
} cluster_t;

static const cluster_t clusters[] = {
    {"testbed", "4 V100 + 8 1080 Ti + 4 P100", 1},
    {"cloud", "4 A100 + 4 T4, 25 Gbit/s", 1},
    {"lab", "3090 + 2080 Ti + 1080 Ti, 1 Gbit/s", 1},
    {"a100x8", "8 A100, NVSwitch", 0},
    {"cpu4", "4 CPU nodes", 0},
    {"h100x64", "64 H100, fat tree", 0},
};
enum { N_CLUSTERS = sizeof clusters / sizeof *clusters };

typedef struct row {
    const model_t *model;
    const cluster_t *cluster;
    int64_t batch;
    int which; /* of the three batches */
    int feasible, baseline_feasible, proven;
    double best_ms, baseline_ms, allreduce_ms, bound_ms, search_s;
    esp_baseline_t baseline;
    int micro;
    long long evaluations;
} row_t;

typedef struct job {
    const char *source;
    char *kept; /* the end of the document, or NULL */
    esp_search_opts_t opts;
    esp_diag_t diag;
} job_t;

static esp_status_t load_step(job_t *job, const model_t *model, int64_t batch,
                              esp_graph_t **step_out)
{
    char path[1024];
    esp_onnx_opts_t onnx = esp_onnx_opts_default();
    esp_training_opts_t training = esp_training_opts_default();
    esp_graph_t *file = NULL, *clean = NULL;
    onnx.batch = batch;
    training.optimizer = model->optimizer;
    snprintf(path, sizeof path, "%s/models/%s.onnx", job->source, model->name);
    esp_status_t status = esp_onnx_load(path, &onnx, NULL, &file, &job->diag);
    if (status == ESP_OK)
        status = esp_graph_canonicalise(file, NULL, &clean, &job->diag);
    if (status == ESP_OK)
        status = esp_training_graph(clean, &training, NULL, step_out, &job->diag);
    esp_graph_destroy(file);
    esp_graph_destroy(clean);
    return status;
}

static void row_fill(row_t *row, const esp_search_result_t *result)
{
    row->feasible = result->best.outcome.feasible;
    row->proven = result->proven_infeasible;
    row->best_ms = (double)result->best.outcome.step_time_ns / 1e6;
    row->bound_ms = (double)result->lower_bound_ns / 1e6;
    row->search_s = result->search_time_s;
    row->micro = result->best.strategy.micro_batches;
    row->evaluations = (long long)result->evaluations;
    for (int b = 0; b < ESP_BASELINE_COUNT; b++) {
        const esp_outcome_t *outcome = &result->baseline[b].outcome;
        double ms = (double)outcome->step_time_ns / 1e6;
        if (!result->baseline[b].op_mesh || !outcome->feasible)
            continue;
        if (b == ESP_BASELINE_DP_ALLREDUCE)
            row->allreduce_ms = ms;
        if (!row->baseline_feasible || ms < row->baseline_ms) {
            row->baseline_feasible = 1;
            row->baseline_ms = ms;
            row->baseline = (esp_baseline_t)b;
        }
    }
}

static esp_status_t run_row(job_t *job, row_t *row)
{
    char path[1024];
    esp_graph_t *step = NULL;
    esp_cluster_t *cluster = NULL;
    esp_cost_t *cost = NULL;
    esp_search_result_t *result = NULL;
    snprintf(path, sizeof path, "%s/clusters/%s.yaml", job->source, row->cluster->name);
    esp_status_t status = load_step(job, row->model, row->batch, &step);
    if (status == ESP_OK)
        status = esp_cluster_load(path, NULL, &cluster, &job->diag);
    if (status == ESP_OK)
        status = esp_cost_create(step, cluster, ESP_PRECISION_FP32, NULL, &cost, &job->diag);
    if (status == ESP_OK)
        status = esp_search(cost, &job->opts, NULL, &result, &job->diag);
    if (status == ESP_OK)
        row_fill(row, result);
    esp_search_result_destroy(result);
    esp_cost_destroy(cost);
    esp_cluster_destroy(cluster);
    esp_graph_destroy(step);
    return status;
}

/* ---- writing
 * ------------------------------------------------------------------------------------- */

static void put_ms(FILE *out, int there, double ms)
{
    if (there)
        fprintf(out, " %.4g |", ms);
    else
        fputs(" - |", out);
}

static void put_row(FILE *out, const row_t *row)
{
    fprintf(out, "| %s | %lld |", row->model->name, (long long)row->batch);
    if (!row->feasible) {
        fprintf(out, " - | %s | - | - | - | - | - |\n",
                row->proven ? "no plan fits: proven" : "none found");
        return;
    }
    put_ms(out, 1, row->best_ms);
    put_ms(out, row->baseline_feasible, row->baseline_ms);
    fprintf(out, " %s |", row->baseline_feasible ? esp_baseline_name(row->baseline) : "none fits");
    if (row->baseline_feasible)
        fprintf(out, " %.1f %% |", 100.0 * (1.0 - row->best_ms / row->baseline_ms));
    else
        fputs(" - |", out);
    if (row->allreduce_ms > 0)
        fprintf(out, " %.2f |", row->allreduce_ms / row->best_ms);
    else
        fputs(" - |", out);
    fprintf(out, " %.2f | %d |\n", row->bound_ms / row->best_ms, row->micro);
}

typedef struct tally {
    int cases, better, bounded, no_baseline, worse;
} tally_t;

/* The aim: 5 % better than the best baseline, or within 10 % of a bound, on mixed clusters. */
static void tally_row(tally_t *tally, const row_t *row)
{
    if (row->feasible && row->baseline_feasible && row->best_ms > row->baseline_ms * (1 + 1e-9))
        tally->worse++;
    if (!row->cluster->mixed || row->which != 1)
        return;
    tally->cases++;
    if (row->feasible && !row->baseline_feasible)
        tally->no_baseline++;
    else if (row->feasible && row->best_ms <= 0.95 * row->baseline_ms)
        tally->better++;
    else if (row->feasible && row->bound_ms >= 0.9 * row->best_ms)
        tally->bounded++;
}

static void put_document(FILE *out, const row_t *rows, int n, const job_t *job,
                         const tally_t *tally)
{
    fputs("# Results\n\n", out);
    fprintf(
        out,
        "Predicted step times of the plans that the search finds, written by `make results`: %d\n"
        "evaluations, seed %llu, fair links, fp32, SGD with momentum for convolutional networks "
        "and "
        "Adam for the\nothers, local BatchNorm. Milliseconds. *gain*: over the best feasible "
        "baseline. "
        "*x dp*: speed-up over\n`dp-allreduce`. *bound*: lower bound / step time. *M*: "
        "micro-batches.\n\n",
        job->opts.evaluations, (unsigned long long)job->opts.seed);
    fprintf(out,
            "Mixed clusters at the middle batch: %d of %d cases at least 5 %% better than the best "
            "baseline, %d more\nwhere no baseline fits the memory, %d more within 10 %% of the "
            "bound. Plans "
            "worse than a feasible\nbaseline anywhere: %d.\n",
            tally->better, tally->cases, tally->no_baseline, tally->bounded, tally->worse);
    for (int c = 0; c < N_CLUSTERS; c++) {
        fprintf(out, "\n## %s: %s\n\n", clusters[c].name, clusters[c].what);
        fputs("| model | batch | plan | best baseline | which | gain | x dp | bound | M |\n"
              "|---|---|---|---|---|---|---|---|---|\n",
              out);
        for (int i = 0; i < n; i++)
            if (rows[i].cluster == &clusters[c])
                put_row(out, &rows[i]);
    }
    if (job->kept)
        fprintf(out, "\n%s", job->kept);
}

/* The document from KEEP on; NULL if there is none. */
static char *read_kept(const char *path)
{
    char *text = NULL, *kept = NULL;
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    rewind(file);
    if (size >= 0)
        text = calloc((size_t)size + 1, 1);
    if (text && fread(text, 1, (size_t)size, file) == (size_t)size)
        kept = strstr(text, KEEP);
    if (kept)
        memmove(text, kept, strlen(kept) + 1);
    fclose(file);
    if (kept)
        return text;
    free(text);
    return NULL;
}

static int write_document(const char *path, const row_t *rows, int n, const job_t *job)
{
    tally_t tally = {0};
    for (int i = 0; i < n; i++)
        tally_row(&tally, &rows[i]);
    FILE *out = fopen(path, "w");
    if (!out) {
        perror(path);
        return 1;
    }
    put_document(out, rows, n, job, &tally);
    if (fclose(out) != 0) {
        perror(path);
        return 1;
    }
    return tally.worse > 0;
}

/* The document is written anew after every row: a run that is stopped leaves what it has. */
static int run_all(job_t *job, row_t *rows, int middle, const char *out, int *n_out)
{
    char text[1024];
    for (int c = 0; c < N_CLUSTERS; c++)
        for (int m = 0; m < N_MODELS; m++)
            for (int b = middle; b < (middle ? 2 : 3); b++) {
                row_t *row = &rows[(*n_out)++];
                *row = (row_t){.model = &models[m],
                               .cluster = &clusters[c],
                               .batch = models[m].batch[b],
                               .which = b};
                if (run_row(job, row) != ESP_OK) {
                    esp_diag_format(&job->diag, text, sizeof text);
                    fprintf(stderr, "%s on %s: %s\n", row->model->name, row->cluster->name, text);
                    return 1;
                }
                fprintf(stderr, "%-8s %-13s %5lld  %10.3f ms  baseline %10.3f  %6lld in %.1f s\n",
                        row->cluster->name, row->model->name, (long long)row->batch,
                        row->feasible ? row->best_ms : -1.0,
                        row->baseline_feasible ? row->baseline_ms : -1.0, row->evaluations,
                        row->search_s);
                (void)write_document(out, rows, *n_out, job);
            }
    return 0;
}

int main(int argc, char **argv)
{
    static row_t rows[N_MODELS * N_CLUSTERS * 3];
    job_t job = {.source = ".", .opts = esp_search_opts_default()};
    const char *out = "docs/results.md";
    int middle = 0, n = 0;
    job.opts.threads = 2;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--middle") == 0)
            middle = 1;
        else if (strcmp(argv[i], "--source") == 0 && i + 1 < argc)
            job.source = argv[++i];
        else if (strcmp(argv[i], "--out") == 0 && i + 1 < argc)
            out = argv[++i];
        else if (strcmp(argv[i], "--evaluations") == 0 && i + 1 < argc)
            job.opts.evaluations = atoi(argv[++i]);
        else {
            fprintf(stderr,
                    "usage: results [--source DIR] [--out FILE] [--evaluations N] [--middle]\n");
            return 2;
        }
    }
    job.kept = read_kept(out);
    int failed = run_all(&job, rows, middle, out, &n) || write_document(out, rows, n, &job);
    free(job.kept);
    return failed;
}
