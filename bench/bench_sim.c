/*
 * Simulated tasks per second, memory accounting included, on the training graph of a real model:
 * data-parallel on devices of ten speeds (ten classes), and spread over devices layer by layer,
 * which makes many transfers that meet on links.
 *
 *     bench_sim [--out FILE] [--model FILE] [--cluster FILE] [--rounds N]
 */
#include "common.h"

#include "espalier/cluster.h"
#include "espalier/onnx.h"
#include "espalier/sim.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shares of 2, 4, 6, .. samples: a class per device, and 26,000 tasks of BERT-large. */
enum { DEVICES = 10 };

typedef struct bench {
    const char *out, *model, *cluster;
    int32_t rounds;
    esp_graph_t *forward, *graph;
    esp_cluster_t *machines;
    esp_cost_t *cost;
    esp_lowerer_t *lowerer;
    esp_sim_t *sim;
    FILE *json;
    esp_diag_t diag;
} bench_t;

static void load(bench_t *b)
{
    esp_onnx_opts_t onnx = esp_onnx_opts_default();
    esp_training_opts_t training = esp_training_opts_default();
    onnx.batch = DEVICES * (DEVICES + 1);
    bench_check(esp_onnx_load(b->model, &onnx, NULL, &b->forward, &b->diag), &b->diag);
    bench_check(esp_training_graph(b->forward, &training, NULL, &b->graph, &b->diag), &b->diag);
    bench_check(esp_cluster_load(b->cluster, NULL, &b->machines, &b->diag), &b->diag);
    bench_check(
        esp_cost_create(b->graph, b->machines, ESP_PRECISION_FP32, NULL, &b->cost, &b->diag),
        &b->diag);
    bench_check(esp_lowerer_create(b->cost, NULL, &b->lowerer, &b->diag), &b->diag);
    bench_check(esp_sim_create(NULL, &b->sim), &b->diag);
}

/* Simulates `rounds` times and reports the fastest. */
static void measure(bench_t *b, const esp_deployment_t *d, esp_link_mode_t links, const char *what)
{
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_sim_result_t r;
    double best = 1e9;
    opts.links = links;
    for (int32_t i = 0; i < b->rounds; ++i) {
        double before = bench_seconds();
        bench_check(esp_sim_run(b->sim, d, &opts, &r, &b->diag), &b->diag);
        double took = bench_seconds() - before;
        best = took < best ? took : best;
    }
    printf("%-26s %7" PRId32 " tasks %5" PRId32 " movements  step %9.3f ms  run %7.3f ms  "
           "%6.1f ns/task\n",
           what, d->n_tasks, d->n_comms, (double)r.step_time_ns / 1e6, best * 1e3,
           best * 1e9 / (double)r.events);
    if (b->json)
        fprintf(b->json, "{\"sim_%s_tasks_per_s\": %.0f, \"sim_%s_tasks\": %" PRId32 "}\n", what,
                (double)r.events / best, what, d->n_tasks);
}

/* All devices, number k with weight k + 1 (or all alike), every op split by the batch. */
static void data_parallel(bench_t *b, bool classes)
{
    int32_t n = b->machines->n_devices < DEVICES ? b->machines->n_devices : DEVICES,
            device[DEVICES];
    double weight[DEVICES];
    for (int32_t k = 0; k < n; ++k) {
        device[k] = k;
        weight[k] = classes ? k + 1 : 1;
    }
    esp_mesh_spec_t mesh = {n, device, weight};
    size_t ops = (size_t)b->graph->n_ops;
    int32_t *op_mesh = calloc(ops, sizeof *op_mesh);
    uint8_t *op_mode = calloc(ops, sizeof *op_mode);
    for (size_t op = 0; op_mesh && op_mode && op < ops; ++op)
        op_mode[op] = b->graph->op_phase[op] == ESP_PHASE_UPDATE ? ESP_MODE_WHOLE : ESP_MODE_BATCH;
    esp_strategy_t strategy = {
        .n_meshes = 1, .mesh = &mesh, .op_mesh = op_mesh, .op_mode = op_mode, .micro_batches = 1};
    const esp_deployment_t *d;
    bench_check(esp_lower(b->lowerer, &strategy, &d, &b->diag), &b->diag);
    measure(b, d, ESP_LINK_EXCLUSIVE, classes ? "exclusive" : "exclusive_one_class");
    measure(b, d, ESP_LINK_FAIR, classes ? "fair" : "fair_one_class");
    free(op_mesh);
    free(op_mode);
}

/* Every op whole on one device, in blocks of consecutive model ops. */
static void spread(bench_t *b)
{
    int32_t n = b->machines->n_devices < DEVICES ? b->machines->n_devices : DEVICES,
            device[DEVICES];
    double weight = 1;
    esp_mesh_spec_t mesh[DEVICES];
    for (int32_t k = 0; k < n; ++k) {
        device[k] = k;
        mesh[k] = (esp_mesh_spec_t){1, &device[k], &weight};
    }
    size_t ops = (size_t)b->graph->n_ops;
    int32_t *op_mesh = calloc(ops, sizeof *op_mesh);
    uint8_t *op_mode = calloc(ops, sizeof *op_mode);
    for (size_t op = 0; op_mesh && op_mode && op < ops; ++op) {
        op_mode[op] = ESP_MODE_WHOLE;
        op_mesh[op] = b->graph->op_origin[op] / 3 % n;
    }
    esp_strategy_t strategy = {
        .n_meshes = n, .mesh = mesh, .op_mesh = op_mesh, .op_mode = op_mode, .micro_batches = 1};
    const esp_deployment_t *d;
    bench_check(esp_lower(b->lowerer, &strategy, &d, &b->diag), &b->diag);
    measure(b, d, ESP_LINK_EXCLUSIVE, "exclusive_spread");
    measure(b, d, ESP_LINK_FAIR, "fair_spread");
    free(op_mesh);
    free(op_mode);
}

static void parse(bench_t *b, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--out") == 0)
            b->out = argv[i + 1];
        else if (strcmp(argv[i], "--model") == 0)
            b->model = argv[i + 1];
        else if (strcmp(argv[i], "--cluster") == 0)
            b->cluster = argv[i + 1];
        else if (strcmp(argv[i], "--rounds") == 0)
            b->rounds = atoi(argv[i + 1]);
    }
    b->json = b->out ? fopen(b->out, "a") : NULL;
}

int main(int argc, char **argv)
{
    bench_t b = {.model = ESP_SOURCE_DIR "/models/bert_large.onnx",
                 .cluster = ESP_SOURCE_DIR "/clusters/h100x64.yaml",
                 .rounds = 20};
    parse(&b, argc, argv);
    load(&b);
    data_parallel(&b, true);
    data_parallel(&b, false);
    spread(&b);
    esp_sim_destroy(b.sim);
    esp_lowerer_destroy(b.lowerer);
    esp_cost_destroy(b.cost);
    esp_cluster_destroy(b.machines);
    esp_graph_destroy(b.graph);
    esp_graph_destroy(b.forward);
    if (b.json)
        (void)fclose(b.json);
    return 0;
}
