/*
 * One evaluation: decisions -> strategy -> deployment -> three simulated steps with fair links, as
 * the search does it. Real models with the kinds of strategies that a search meets; evaluation
 * again after one op group changed; what 64 devices cost more than 8 of the same share; a DAG of
 * 3,001 ops; a graph of 26,000 tasks.
 *
 *     bench_eval [--out FILE] [--rounds N]
 *
 * The fastest of the rounds counts; several strategies of one kind are summed. A line of --out:
 * {"eval_<what>_ms": .., "eval_<what>_ns_per_task": .., "eval_<what>_per_s": .., "tasks": ..}
 */
#include "common.h"

#include "espalier/onnx.h"
#include "espalier/search.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANDOM = 8, EIGHT = 8, LAYERS = 10 };

/* What does not change between evaluations: one graph on one cluster. */
typedef struct place {
    esp_graph_t *graph;
    esp_cluster_t *cluster;
    esp_cost_t *cost;
    esp_space_t *space;
    esp_lowerer_t *lowerer;
    esp_sim_t *sim;
    int32_t *action, *op_mesh;
    uint8_t *op_mode;
} place_t;

typedef struct bench {
    FILE *json;
    int32_t rounds;
    uint64_t random;
    esp_diag_t diag;
} bench_t;

typedef struct sample {
    double seconds;
    int64_t tasks, evaluations;
} sample_t;

/* xorshift: the same strategies in every run. */
static int32_t below(bench_t *b, int32_t n)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return (int32_t)(b->random % (uint64_t)n);
}

/* ---- graphs and clusters ------------------------------------------------------------------- */

static void open_place(bench_t *b, place_t *p, esp_graph_t *model, const char *cluster)
{
    char path[1024];
    esp_training_opts_t training = esp_training_opts_default();
    esp_space_opts_t space = esp_space_opts_default();
    (void)snprintf(path, sizeof path, ESP_SOURCE_DIR "/clusters/%s.yaml", cluster);
    bench_check(esp_training_graph(model, &training, NULL, &p->graph, &b->diag), &b->diag);
    esp_graph_destroy(model);
    bench_check(esp_cluster_load(path, NULL, &p->cluster, &b->diag), &b->diag);
    bench_check(esp_cost_create(p->graph, p->cluster, ESP_PRECISION_FP32, NULL, &p->cost, &b->diag),
                &b->diag);
    bench_check(esp_space_create(p->cost, &space, NULL, &p->space, &b->diag), &b->diag);
    bench_check(esp_lowerer_create(p->cost, NULL, &p->lowerer, &b->diag), &b->diag);
    bench_check(esp_sim_create(NULL, &p->sim), &b->diag);
    p->action = calloc((size_t)p->space->n_groups, sizeof *p->action);
    p->op_mesh = calloc((size_t)p->graph->n_ops, sizeof *p->op_mesh);
    p->op_mode = calloc((size_t)p->graph->n_ops, sizeof *p->op_mode);
    if (!p->action || !p->op_mesh || !p->op_mode)
        exit(1);
}

static void close_place(place_t *p)
{
    free(p->action);
    free(p->op_mesh);
    free(p->op_mode);
    esp_sim_destroy(p->sim);
    esp_lowerer_destroy(p->lowerer);
    esp_space_destroy(p->space);
    esp_cost_destroy(p->cost);
    esp_cluster_destroy(p->cluster);
    esp_graph_destroy(p->graph);
}

static esp_graph_t *load_model(bench_t *b, const char *name, int64_t batch)
{
    char path[1024];
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    esp_graph_t *raw, *model;
    opts.batch = batch;
    (void)snprintf(path, sizeof path, ESP_SOURCE_DIR "/models/%s.onnx", name);
    bench_check(esp_onnx_load(path, &opts, NULL, &raw, &b->diag), &b->diag);
    bench_check(esp_graph_canonicalise(raw, NULL, &model, &b->diag), &b->diag);
    esp_graph_destroy(raw);
    return model;
}

/* ---- measuring ----------------------------------------------------------------------------- */

static int64_t evaluate(bench_t *b, place_t *p, const esp_strategy_t *strategy)
{
    const esp_deployment_t *d;
    esp_sim_result_t result;
    bench_check(esp_lower(p->lowerer, strategy, &d, &b->diag), &b->diag);
    bench_check(esp_sim_run(p->sim, d, NULL, &result, &b->diag), &b->diag);
    return d->n_tasks;
}

static void add_sample(sample_t *total, sample_t more)
{
    total->seconds += more.seconds;
    total->tasks += more.tasks;
    total->evaluations += more.evaluations;
}

/* The fastest evaluation of the strategy. */
static void add_strategy(bench_t *b, place_t *p, const esp_strategy_t *strategy, sample_t *sample)
{
    double best = 1e9;
    int64_t tasks = 0;
    for (int32_t i = 0; i < b->rounds; ++i) {
        double before = bench_seconds();
        tasks = evaluate(b, p, strategy);
        double took = bench_seconds() - before;
        best = took < best ? took : best;
    }
    add_sample(sample, (sample_t){best, tasks, 1});
}

/* The same from the actions per op group, expansion included. */
static void add_actions(bench_t *b, place_t *p, sample_t *sample)
{
    double best = 1e9;
    int64_t tasks = 0;
    esp_decisions_t decisions = {
        .action = p->action, .micro_batches = 1, .bucket_bytes = INT64_C(25) << 20};
    for (int32_t i = 0; i < b->rounds; ++i) {
        esp_strategy_t strategy;
        double before = bench_seconds();
        bench_check(esp_space_strategy(p->space, &decisions, p->op_mesh, p->op_mode, &strategy),
                    &b->diag);
        tasks = evaluate(b, p, &strategy);
        double took = bench_seconds() - before;
        best = took < best ? took : best;
    }
    add_sample(sample, (sample_t){best, tasks, 1});
}

static double report(bench_t *b, const char *what, const char *how, sample_t s)
{
    double ms = s.seconds * 1e3 / (double)s.evaluations;
    double ns = s.seconds * 1e9 / (double)s.tasks;
    int64_t tasks = s.tasks / s.evaluations;
    printf("%-26s %-12s %7" PRId64 " tasks  %8.3f ms  %7.0f per s  %6.1f ns/task\n", what, how,
           tasks, ms, 1e3 / ms, ns);
    if (b->json)
        fprintf(b->json,
                "{\"eval_%s_%s_ms\": %.4f, \"eval_%s_%s_ns_per_task\": %.1f, "
                "\"eval_%s_%s_per_s\": %.0f, \"tasks\": %" PRId64 "}\n",
                what, how, ms, what, how, ns, what, how, 1e3 / ms, tasks);
    return ms;
}

/* ---- real models --------------------------------------------------------------------------- */

/* The action with this synchronisation on all devices, with equal shares. */
static int32_t find_action(const place_t *p, esp_sync_t sync)
{
    uint64_t all = (UINT64_C(1) << p->cluster->n_groups) - 1;
    int32_t action = esp_space_find_action(p->space, all, ESP_NONE, ESP_SHARES_EQUAL, sync);
    return action == ESP_NONE ? 0 : action;
}

static void fill(place_t *p, int32_t even, int32_t odd)
{
    for (int32_t g = 0; g < p->space->n_groups; ++g)
        p->action[g] = g % 2 ? odd : even;
}

static void one_kind(bench_t *b, place_t *p, const char *what, const char *how, esp_sync_t even,
                     esp_sync_t odd, sample_t *total)
{
    sample_t sample = {0};
    fill(p, find_action(p, even), find_action(p, odd));
    add_actions(b, p, &sample);
    (void)report(b, what, how, sample);
    add_sample(total, sample);
}

static void real_model(bench_t *b, const char *model, const char *cluster)
{
    place_t p;
    sample_t total = {0}, random = {0}, changed = {0};
    char what[64];
    (void)snprintf(what, sizeof what, "%s_%s", model, cluster);
    open_place(b, &p, load_model(b, model, 0), cluster);
    one_kind(b, &p, what, "dp", ESP_SYNC_ALLREDUCE, ESP_SYNC_ALLREDUCE, &total);
    one_kind(b, &p, what, "ps", ESP_SYNC_PS, ESP_SYNC_PS, &total);
    one_kind(b, &p, what, "sharded", ESP_SYNC_SHARDED, ESP_SYNC_SHARDED, &total);
    one_kind(b, &p, what, "hybrid", ESP_SYNC_ALLREDUCE, ESP_SYNC_MODEL_PARALLEL, &total);
    b->random = UINT64_C(88172645463325252);
    for (int32_t i = 0; i < RANDOM; ++i) {
        for (int32_t g = 0; g < p.space->n_groups; ++g)
            p.action[g] = below(b, p.space->n_actions);
        add_actions(b, &p, &random);
    }
    (void)report(b, what, "random", random);
    add_sample(&total, random);
    (void)report(b, what, "mean", total);
    fill(&p, find_action(&p, ESP_SYNC_ALLREDUCE), find_action(&p, ESP_SYNC_ALLREDUCE));
    for (int32_t i = 0; i < RANDOM; ++i) { /* a walk: each step changes one group */
        p.action[below(b, p.space->n_groups)] = below(b, p.space->n_actions);
        add_actions(b, &p, &changed);
    }
    (void)report(b, what, "one_changed", changed);
    close_place(&p);
}

/* ---- many devices, many ops ---------------------------------------------------------------- */

/* The same model, equal shares: a class of 64 devices and one of 8. */
static void many_devices(bench_t *b)
{
    static const char *const cluster[] = {"a100x8", "h100x64"};
    double ms[2];
    for (int32_t i = 0; i < 2; ++i) {
        place_t p;
        sample_t sample = {0};
        open_place(b, &p, load_model(b, "resnet50", 256), cluster[i]);
        fill(&p, find_action(&p, ESP_SYNC_ALLREDUCE), find_action(&p, ESP_SYNC_ALLREDUCE));
        add_actions(b, &p, &sample);
        ms[i] = report(b, cluster[i], "equal_shares", sample);
        close_place(&p);
    }
    printf("64 devices cost %.2f times what 8 cost\n", ms[1] / ms[0]);
    if (b->json)
        fprintf(b->json, "{\"eval_64_devices_over_8_ratio\": %.3f}\n", ms[1] / ms[0]);
}

/* Eight stages of consecutive layers, one device each. */
static void dag(bench_t *b)
{
    place_t p;
    sample_t sample = {0};
    char what[32];
    esp_mesh_spec_t mesh[EIGHT];
    const int32_t device[EIGHT] = {0, 1, 2, 3, 4, 5, 6, 7};
    const double weight = 1;
    int32_t forward = 0;
    open_place(b, &p, bench_perceptron(333, 72, 512), "a100x8");
    for (int32_t i = 0; i < EIGHT; ++i)
        mesh[i] = (esp_mesh_spec_t){1, &device[i], &weight};
    for (esp_op_id_t op = 0; op < p.graph->n_ops; ++op)
        forward = p.graph->op_origin[op] > forward ? p.graph->op_origin[op] : forward;
    for (esp_op_id_t op = 0; op < p.graph->n_ops; ++op)
        p.op_mesh[op] = (int32_t)((int64_t)p.graph->op_origin[op] * EIGHT / (forward + 1));
    const esp_strategy_t strategy = {.n_meshes = EIGHT,
                                     .mesh = mesh,
                                     .op_mesh = p.op_mesh,
                                     .op_mode = p.op_mode,
                                     .micro_batches = 1};
    add_strategy(b, &p, &strategy, &sample);
    (void)snprintf(what, sizeof what, "dag_%" PRId32 "_ops", p.graph->n_ops);
    (void)report(b, what, "8_devices", sample);
    close_place(&p);
}

/* Data-parallel on eight devices; then with the ops of one layer, here and there in the network,
 * whole on every device, and back. */
static void many_tasks(bench_t *b, const char *how, const char *how_changed, const double *weight)
{
    static const int32_t device[EIGHT] = {0, 1, 2, 3, 4, 5, 6, 7};
    const esp_mesh_spec_t mesh = {EIGHT, device, weight};
    place_t p;
    sample_t full = {0}, changed = {0};
    open_place(b, &p, bench_perceptron(366, 72, 512), "a100x8");
    const esp_strategy_t strategy = {.n_meshes = 1,
                                     .mesh = &mesh,
                                     .op_mesh = p.op_mesh,
                                     .op_mode = p.op_mode,
                                     .micro_batches = 1,
                                     .bucket_bytes = INT64_C(25) << 20};
    add_strategy(b, &p, &strategy, &full);
    (void)report(b, "many_tasks", how, full);
    sample_t fastest[2 * LAYERS] = {0};
    const int32_t rounds = b->rounds;
    b->rounds = 1; /* each evaluation is of another strategy than the one before */
    for (int32_t i = 0; i < rounds * 2 * LAYERS; ++i) {
        const int32_t layer = i / 2 % LAYERS * 36;
        for (esp_op_id_t op = 0; op < p.graph->n_ops; ++op)
            p.op_mode[op] =
                i % 2 == 0 && p.graph->op_origin[op] / 3 == layer ? ESP_MODE_WHOLE : ESP_MODE_BATCH;
        sample_t one = {0}, *best = &fastest[i % (2 * LAYERS)];
        add_strategy(b, &p, &strategy, &one);
        if (best->evaluations == 0 || one.seconds < best->seconds)
            *best = one;
    }
    b->rounds = rounds;
    for (int32_t i = 0; i < 2 * LAYERS; ++i)
        add_sample(&changed, fastest[i]);
    (void)report(b, "many_tasks", how_changed, changed);
    close_place(&p);
}

int main(int argc, char **argv)
{
    static const double equal[EIGHT] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const double uneven[EIGHT] = {1, 2, 3, 4, 5, 6, 7, 8};
    bench_t b = {.rounds = 10};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--out") == 0 && !(b.json = fopen(argv[i + 1], "a"))) {
            perror(argv[i + 1]);
            return 1;
        }
        if (strcmp(argv[i], "--rounds") == 0)
            b.rounds = (int32_t)strtol(argv[i + 1], NULL, 10);
    }
    if (b.rounds < 1)
        b.rounds = 1;
    real_model(&b, "resnet50", "a100x8");
    real_model(&b, "resnet50", "testbed");
    real_model(&b, "bert_large", "testbed");
    many_devices(&b);
    dag(&b);
    many_tasks(&b, "1_class", "1_class_one_changed", equal);
    many_tasks(&b, "8_classes", "one_changed", uneven);
    return b.json && fclose(b.json) != 0;
}
