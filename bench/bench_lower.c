/*
 * Nanoseconds per task of lowering, and of simulating what was lowered: the training graph of a
 * deep perceptron (3,300 ops), data-parallel on eight devices with eight different shares (eight
 * classes, 26,000 tasks) and with equal shares (one class), and divided over two overlapping
 * meshes.
 *
 *     bench_lower [--out FILE] [--layers N] [--rounds N]
 */
#include "common.h"

#include "espalier/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 8, BATCH = 72, WIDTH = 512 };

typedef struct bench {
    const char *out;
    int32_t layers, rounds;
    esp_graph_t *graph;
    esp_cluster_t *cluster;
    esp_cost_t *cost;
    esp_lowerer_t *lowerer;
    esp_sim_t *sim;
    int32_t *op_mesh;
    uint8_t *op_mode;
    FILE *json;
    esp_diag_t diag;
} bench_t;

/* ---- what is lowered --------------------------------------------------------------------- */

static void build(bench_t *b)
{
    esp_training_opts_t opts = esp_training_opts_default();
    esp_graph_t *model = bench_perceptron(b->layers, BATCH, WIDTH);
    opts.optimizer = ESP_OPTIMIZER_MOMENTUM;
    bench_check(esp_training_graph(model, &opts, NULL, &b->graph, &b->diag), &b->diag);
    esp_graph_destroy(model);
}

static void load(bench_t *b)
{
    static const char text[] = "name: eight\n"
                               "nodes:\n"
                               "  - name: n\n"
                               "    devices: [{type: a100-sxm-80, count: 8}]\n"
                               "    intra: {kind: nvswitch, bandwidth: 300 GB/s, latency: 1 us}\n";
    build(b);
    bench_check(esp_cluster_parse(text, sizeof text - 1, NULL, NULL, &b->cluster, &b->diag),
                &b->diag);
    bench_check(esp_cost_create(b->graph, b->cluster, ESP_PRECISION_FP32, NULL, &b->cost, &b->diag),
                &b->diag);
    bench_check(esp_lowerer_create(b->cost, NULL, &b->lowerer, &b->diag), &b->diag);
    bench_check(esp_sim_create(NULL, &b->sim), &b->diag);
    b->op_mesh = calloc((size_t)b->graph->n_ops, sizeof *b->op_mesh);
    b->op_mode = calloc((size_t)b->graph->n_ops, sizeof *b->op_mode);
    if (!b->op_mesh || !b->op_mode)
        exit(1);
}

/* ---- measuring --------------------------------------------------------------------------- */

/* The fastest of the rounds, in nanoseconds per task. */
static double lower_ns(bench_t *b, const esp_strategy_t *strategy, const esp_deployment_t **d_out)
{
    double best = 1e9;
    for (int32_t i = 0; i < b->rounds; i++) {
        double before = bench_seconds();
        bench_check(esp_lower(b->lowerer, strategy, d_out, &b->diag), &b->diag);
        double took = bench_seconds() - before;
        best = took < best ? took : best;
    }
    return best * 1e9 / (*d_out)->n_tasks;
}

static double sim_ns(bench_t *b, const esp_deployment_t *d)
{
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_sim_result_t result;
    double best = 1e9;
    opts.links = ESP_LINK_EXCLUSIVE;
    for (int32_t i = 0; i < b->rounds; i++) {
        double before = bench_seconds();
        bench_check(esp_sim_run(b->sim, d, &opts, &result, &b->diag), &b->diag);
        double took = bench_seconds() - before;
        best = took < best ? took : best;
    }
    return best * 1e9 / (double)result.events;
}

static void measure(bench_t *b, const char *name, int32_t n_meshes, const esp_mesh_spec_t *mesh)
{
    const esp_strategy_t strategy = {.n_meshes = n_meshes,
                                     .mesh = mesh,
                                     .op_mesh = b->op_mesh,
                                     .op_mode = b->op_mode,
                                     .micro_batches = 1,
                                     .bucket_bytes = 25 << 20,
                                     .sync_batchnorm = 1};
    const esp_deployment_t *d = NULL;
    double lower = lower_ns(b, &strategy, &d), sim = sim_ns(b, d);
    printf("%-14s %6" PRId32 " ops %6" PRId32 " tasks %3" PRId32 " classes  lower %7.1f ns/task "
           "(%.2f ms)  sim %7.1f ns/task\n",
           name, b->graph->n_ops, d->n_tasks, d->n_classes, lower, lower * d->n_tasks * 1e-6, sim);
    if (b->json)
        fprintf(b->json,
                "{\"lower_%s_ns_per_task\": %.1f, \"sim_%s_ns_per_task\": %.1f, \"tasks\": %" PRId32
                "}\n",
                name, lower, name, sim, d->n_tasks);
}

static void run(bench_t *b)
{
    static const int32_t device[DEVICES] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const double equal[DEVICES] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const double uneven[DEVICES] = {1, 2, 3, 4, 5, 6, 7, 8};
    const esp_mesh_spec_t eight = {DEVICES, device, uneven}, one = {DEVICES, device, equal};
    const esp_mesh_spec_t two[] = {{6, device, uneven}, {6, device + 2, uneven}};
    measure(b, "eight_classes", 1, &eight);
    measure(b, "one_class", 1, &one);
    for (esp_op_id_t op = 0; op < b->graph->n_ops; op++) /* ten stretches of layers */
        b->op_mesh[op] = b->graph->op_origin[op] / (3 * b->layers / 10 + 1) % 2;
    measure(b, "two_meshes", 2, two);
}

static void parse(bench_t *b, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--out") == 0)
            b->out = argv[i + 1];
        else if (strcmp(argv[i], "--layers") == 0)
            b->layers = (int32_t)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0)
            b->rounds = (int32_t)strtol(argv[i + 1], NULL, 10);
    }
}

int main(int argc, char **argv)
{
    bench_t b = {.layers = 366, .rounds = 20};
    parse(&b, argc, argv);
    if (b.out && !(b.json = fopen(b.out, "a"))) {
        perror(b.out);
        return 1;
    }
    load(&b);
    run(&b);
    if (b.json && fclose(b.json) != 0) {
        perror(b.out);
        return 1;
    }
    free(b.op_mesh);
    free(b.op_mode);
    esp_sim_destroy(b.sim);
    esp_lowerer_destroy(b.lowerer);
    esp_cost_destroy(b.cost);
    esp_cluster_destroy(b.cluster);
    esp_graph_destroy(b.graph);
    return 0;
}
