/*
 * Milliseconds per training step on one device, and which kinds of ops they go to.
 *
 *     bench_exec [--out FILE] [--backend NAME] [--steps N] [--model FILE --batch N]...
 *
 * Without --model: the shipped ResNet-50 and LSTM language model. SGD; the fastest step after the
 * first counts. tools/bench_torch.py compares. A line of --out:
 * {"exec_<model>_b<batch>_ms": .., "exec_<model>_b<batch>_<kind>_ms": .., ..}
 */
#include "common.h"

#include "espalier/exec.h"
#include "espalier/onnx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MODELS = 8, SHOWN = 12, MAX_STEPS = 1000 };

typedef struct bench_model {
    const char *path;
    int64_t batch;
} bench_model_t;

typedef struct bench {
    FILE *json;
    const char *backend;
    int64_t steps;
    int32_t n_models;
    bench_model_t model[MAX_MODELS];
    esp_diag_t diag;
} bench_t;

/* A model on one core, lowered and packed. */
typedef struct place {
    esp_graph_t *graph;
    esp_cluster_t *cluster;
    esp_cost_t *cost;
    esp_lowerer_t *lowerer;
    const esp_deployment_t *deployment;
} place_t;

static void open_graph(bench_t *b, const bench_model_t *m, place_t *p)
{
    esp_onnx_opts_t import = esp_onnx_opts_default();
    esp_training_opts_t training = esp_training_opts_default();
    esp_graph_t *imported, *model;
    import.batch = m->batch;
    bench_check(esp_onnx_load(m->path, &import, NULL, &imported, &b->diag), &b->diag);
    bench_check(esp_graph_canonicalise(imported, NULL, &model, &b->diag), &b->diag);
    bench_check(esp_training_graph(model, &training, NULL, &p->graph, &b->diag), &b->diag);
    esp_graph_destroy(imported);
    esp_graph_destroy(model);
}

static void lower(bench_t *b, place_t *p)
{
    static const char text[] =
        "name: one\nnodes: [{name: n, devices: [{type: xeon-core, memory: 64 GiB}]}]\n";
    const int32_t device = 0;
    const double weight = 1;
    const esp_mesh_spec_t mesh = {1, &device, &weight};
    int32_t *op_mesh = calloc((size_t)p->graph->n_ops, sizeof *op_mesh);
    uint8_t *op_mode = calloc((size_t)p->graph->n_ops, sizeof *op_mode);
    const esp_strategy_t strategy = {
        .n_meshes = 1, .mesh = &mesh, .op_mesh = op_mesh, .op_mode = op_mode, .micro_batches = 1};
    if (!op_mesh || !op_mode)
        exit(1);
    bench_check(esp_cluster_parse(text, sizeof text - 1, NULL, NULL, &p->cluster, &b->diag),
                &b->diag);
    bench_check(esp_cost_create(p->graph, p->cluster, ESP_PRECISION_FP32, NULL, &p->cost, &b->diag),
                &b->diag);
    bench_check(esp_lowerer_create(p->cost, NULL, &p->lowerer, &b->diag), &b->diag);
    bench_check(esp_lower(p->lowerer, &strategy, &p->deployment, &b->diag), &b->diag);
    bench_check(esp_deployment_pack(p->lowerer, &b->diag), &b->diag);
    free(op_mesh);
    free(op_mode);
}

static void close_place(place_t *p)
{
    esp_lowerer_destroy(p->lowerer);
    esp_cost_destroy(p->cost);
    esp_cluster_destroy(p->cluster);
    esp_graph_destroy(p->graph);
}

/* ---- measuring --------------------------------------------------------------------------- */

typedef struct share {
    double ms;
    int32_t kind, tasks;
} share_t;

static int by_time(const void *a, const void *b)
{
    const double x = ((const share_t *)a)->ms, y = ((const share_t *)b)->ms;
    return (x < y) - (x > y);
}

/* Times of the last step by kind of op, the longest first. */
static void by_kind(const place_t *p, const esp_exec_timeline_t *t, share_t share[ESP_KIND_COUNT])
{
    for (int32_t kind = 0; kind < ESP_KIND_COUNT; kind++)
        share[kind] = (share_t){.kind = kind};
    for (int32_t task = 0; task < t->n_tasks; task++)
        if (p->deployment->task_kind[task] == ESP_TASK_COMPUTE && t->start_ns[task] >= 0) {
            share_t *s = &share[p->graph->op_kind[p->deployment->task_op[task]]];
            s->ms += 1e-6 * (double)(t->end_ns[task] - t->start_ns[task]);
            s->tasks++;
        }
    qsort(share, ESP_KIND_COUNT, sizeof *share, by_time);
}

/* The fastest step after the first. */
static double step_ms(const esp_exec_timeline_t *t)
{
    int64_t best = INT64_MAX;
    for (int64_t i = 1; i < t->steps; i++) {
        const int64_t took = t->step_end_ns[i] - t->step_end_ns[i - 1];
        best = took < best ? took : best;
    }
    return 1e-6 * (double)best;
}

static void report(bench_t *b, const bench_model_t *m, const place_t *p,
                   const esp_exec_timeline_t *t)
{
    char name[64];
    share_t share[ESP_KIND_COUNT];
    const char *file = strrchr(m->path, '/') ? strrchr(m->path, '/') + 1 : m->path;
    const int length = (int)strcspn(file, ".");
    (void)snprintf(name, sizeof name, "%.*s_b%" PRId64, length, file, m->batch);
    printf("%-20s %9.2f ms a step\n", name, step_ms(t));
    by_kind(p, t, share);
    for (int32_t i = 0; i < SHOWN && share[i].tasks > 0; i++)
        printf("  %-18s %9.2f ms %5" PRId32 " tasks\n", esp_kind_name((esp_op_kind_t)share[i].kind),
               share[i].ms, share[i].tasks);
    if (!b->json)
        return;
    fprintf(b->json, "{\"exec_%s_ms\": %.3f", name, step_ms(t));
    for (int32_t i = 0; i < ESP_KIND_COUNT && share[i].tasks > 0; i++)
        fprintf(b->json, ", \"exec_%s_%s_ms\": %.3f", name,
                esp_kind_name((esp_op_kind_t)share[i].kind), share[i].ms);
    fprintf(b->json, "}\n");
}

static void measure(bench_t *b, const bench_model_t *m)
{
    place_t place = {0};
    esp_exec_opts_t opts = esp_exec_opts_default();
    esp_exec_timeline_t timeline;
    esp_exec_t *exec;
    opts.timeline = 1;
    if (b->backend)
        opts.backend = b->backend;
    open_graph(b, m, &place);
    lower(b, &place);
    bench_check(esp_exec_create(place.deployment, &opts, NULL, &exec, &b->diag), &b->diag);
    bench_check(esp_exec_run(exec, b->steps + 1, NULL, NULL, &b->diag), &b->diag);
    bench_check(esp_exec_timeline(exec, &timeline, &b->diag), &b->diag);
    report(b, m, &place, &timeline);
    esp_exec_destroy(exec);
    close_place(&place);
}

/* ---- the command ------------------------------------------------------------------------- */

static void usage(void)
{
    fprintf(stderr, "usage: bench_exec [--out FILE] [--backend NAME] [--steps N] "
                    "[--model FILE --batch N]...\n");
    exit(2);
}

static void parse(bench_t *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value)
            usage();
        if (strcmp(argv[i], "--out") == 0)
            b->json = fopen(value, "a");
        else if (strcmp(argv[i], "--backend") == 0)
            b->backend = value;
        else if (strcmp(argv[i], "--steps") == 0)
            b->steps = atoi(value);
        else if (strcmp(argv[i], "--model") == 0 && b->n_models < MAX_MODELS)
            b->model[b->n_models++] = (bench_model_t){value, 8};
        else if (strcmp(argv[i], "--batch") == 0 && b->n_models > 0)
            b->model[b->n_models - 1].batch = atoi(value);
        else
            usage();
    }
    if (b->steps < 1 || b->steps > MAX_STEPS)
        usage();
    if (b->n_models > 0)
        return;
    b->model[b->n_models++] = (bench_model_t){ESP_SOURCE_DIR "/models/resnet50.onnx", 8};
    b->model[b->n_models++] = (bench_model_t){ESP_SOURCE_DIR "/models/lstm_lm.onnx", 20};
}

int main(int argc, char **argv)
{
    bench_t b = {.steps = 5};
    parse(&b, argc, argv);
    for (int32_t i = 0; i < b.n_models; i++)
        measure(&b, &b.model[i]);
    if (b.json)
        (void)fclose(b.json);
    return 0;
}
