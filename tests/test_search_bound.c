/* The lower bound: below everything, and close where it can be. */
#include "searches.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t bound_of(const bench_t *bench)
{
    int64_t bound_ns = 0;
    assert_int_equal(esp_lower_bound(bench->cost, NULL, &bound_ns), ESP_OK);
    return bound_ns;
}

static int64_t time_of(const bench_t *bench, const esp_strategy_t *strategy)
{
    const esp_deployment_t *deployment;
    esp_sim_result_t result;
    esp_sim_t *sim;
    esp_diag_t diag = {0};
    test_assert_ok(esp_lower(bench->lowerer, strategy, &deployment, &diag), &diag);
    test_assert_ok(esp_deployment_check(deployment, &diag), &diag);
    assert_int_equal(esp_sim_create(NULL, &sim), ESP_OK);
    test_assert_ok(esp_sim_run(sim, deployment, NULL, &result, &diag), &diag);
    esp_sim_destroy(sim);
    return result.step_time_ns;
}

/* Devices that move data at next to no cost. */
static esp_cluster_t *cluster_close(int32_t n, int64_t launch_ns)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "name: close\n"
                   "types:\n"
                   "  toy: {fp32: 4 TFLOP/s, memory: 64 GiB, memory_bandwidth: 20 TB/s,\n"
                   "        launch: %lld ns}\n"
                   "nodes:\n"
                   "  - name: n\n"
                   "    devices: [{type: toy, count: %d}]\n"
                   "    intra: {kind: nvswitch, bandwidth: 20 TB/s, latency: 0 ns}\n",
                   (long long)launch_ns, n);
    return cluster_of_text(text);
}

/* ---- where it is close ----------------------------------------------------------------------- */

/* On one device: all work, one launch per op. */
static void test_one_device(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++)
        for (int64_t launch_ns = 0; launch_ns <= 5000; launch_ns += 5000) {
            bench_t bench;
            prober_t prober;
            double work = 0, overhead = 0;
            bench_init(&bench, deploy_graph(model, 8), cluster_equal(1, "1 GiB", launch_ns));
            prober_init(&prober, &bench, 4);
            for (esp_op_id_t op = 0; op < bench.graph->n_ops; op++) {
                bool sum = bench.graph->op_kind[op] == ESP_KIND_ELTWISE &&
                           bench.graph->op_attr[op].eltwise.code == ESP_ELT_ADD &&
                           bench.graph->op_batch[op].dim == ESP_NONE;
                work += sum ? 0 : esp_cost_divisible_ns(bench.cost, op, 0);
                overhead += sum ? (double)esp_cost_op_ns(bench.cost, op, 0, 1.0, 0)
                                : (double)esp_cost_op_ns(bench.cost, op, 0, 1.0, 0) -
                                      esp_cost_divisible_ns(bench.cost, op, 0);
            }
            esp_strategy_t strategy = prober_strategy(&prober, 1, 0, 0);
            double ns = (double)prober_time(&prober, &strategy, false);
            double bound = (double)bound_of(&bench);
            assert_true(bound >= floor(work) && bound <= ns && ns <= work + overhead + 1);
            if (!(ns <= 1.5 * bound))
                fail_msg("%s: %g ns on one device, the bound is %g", bench.graph->name, ns, bound);
            prober_fini(&prober);
            bench_fini(&bench);
        }
}

/* x[b, 64] -> 64: work without end, hardly any parameters. */
static esp_graph_t *model_parallel_work(int64_t batch)
{
    esp_training_opts_t opts = train_with(ESP_LOSS_MSE, ESP_OPTIMIZER_SGD);
    net_t net;
    net_init(&net, "work");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 64), 0);
    return net_train(&net, net_dense(&net, "a", x, 64), &opts);
}

static void test_parallel_work(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 8; n *= 2) {
        bench_t bench;
        esp_search_opts_t opts = esp_search_opts_default();
        esp_search_result_t *r = NULL;
        opts.evaluations = 0;
        bench_init(&bench, model_parallel_work(INT64_C(1) << 24), cluster_close(n, 1000));
        test_assert_ok(esp_search(bench.cost, &opts, NULL, &r, &bench.diag), &bench.diag);
        search_result_check(&bench, r);
        double ratio = (double)r->best.outcome.step_time_ns / (double)r->lower_bound_ns;
        if (!(ratio >= 1 && ratio < 1.02))
            fail_msg("%d devices: the best is %g of the bound", n, ratio);
        esp_search_result_destroy(r);
        bench_fini(&bench);
    }
}

/* ---- two kinds of devices: the relaxation solved exactly ------------------------------------- */

typedef struct work {
    double first, second; /* of one op on a device of either type */
} work_t;

static int compare_ratio(const void *left, const void *right)
{
    const work_t *a = left, *b = right;
    double x = a->first * b->second, y = b->first * a->second;
    return (x > y) - (x < y);
}

/*
 * Ops in the order of their advantage on the first type; the first type takes a prefix, one op is
 * divided, the other type takes the rest: least T with load1 <= n1 T, load2 <= n2 T.
 */
static double relaxed_time(const esp_cost_t *cost, int32_t n1, int32_t n2)
{
    int32_t n = cost->graph->n_ops;
    work_t *w = calloc((size_t)n, sizeof *w);
    assert_non_null(w);
    double load1 = 0, load2 = 0, t = 0;
    for (esp_op_id_t op = 0; op < n; op++) {
        w[op] = (work_t){esp_cost_divisible_ns(cost, op, 0), esp_cost_divisible_ns(cost, op, 1)};
        load2 += w[op].second;
    }
    qsort(w, (size_t)n, sizeof *w, compare_ratio);
    for (int32_t i = 0; i < n && t == 0; i++) {
        /* part p of op i on the first type: (load1 + p first) / n1 = (load2 - p second) / n2 */
        double p = (load2 * n1 - load1 * n2) / (w[i].first * n2 + w[i].second * n1);
        if (p <= 1)
            t = (load1 + p * w[i].first) / n1;
        load1 += w[i].first;
        load2 -= w[i].second;
    }
    free(w);
    return t;
}

static void test_two_types(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, shipped_graph("resnet50", 256), bench_cluster("cloud"));
    double exact = relaxed_time(bench.cost, 4, 4), bound = (double)bound_of(&bench);
    if (!(bound >= 0.98 * exact && bound <= 1.05 * exact)) /* launches on top */
        fail_msg("the bound is %g ns, the relaxation takes %g ns", bound, exact);
    bench_fini(&bench);
}

/* ---- below everything ------------------------------------------------------------------------ */

/* One op with nearly all of the work, then a chain of launches. */
static esp_graph_t *model_chain(int64_t batch)
{
    esp_training_opts_t opts = train_with(ESP_LOSS_MSE, ESP_OPTIMIZER_SGD);
    char name[16];
    net_t net;
    net_init(&net, "chain");
    esp_tensor_id_t x = net_input(&net, "x", ESP_DTYPE_F32, 2, NET_DIMS(batch, 8192), 0);
    x = net_einsum(&net, "big", "bi,ij->bj", x, net_param(&net, "big/w", 2, NET_DIMS(8192, 2)));
    for (int32_t i = 0; i < 12; i++) {
        (void)snprintf(name, sizeof name, "small/%d", i);
        esp_tensor_id_t w = net_param(&net, name, 2, NET_DIMS(2, 2));
        (void)snprintf(name, sizeof name, "small/op%d", i);
        x = net_einsum(&net, name, "bi,ij->bj", x, w);
    }
    return net_train(&net, x, &opts);
}

/* The chain of one micro-batch runs beside the large op of the next. */
static void test_micro_batches_overlap(void **state)
{
    (void)state;
    enum { DEVICES = 64, SMALL = 1 };
    bench_t bench;
    int32_t device[DEVICES];
    double weight[DEVICES];
    bench_init(&bench, model_chain(30720000), cluster_close(DEVICES, 20000));
    const esp_graph_t *g = bench.graph;
    int32_t *op_mesh = calloc((size_t)g->n_ops, sizeof *op_mesh);
    uint8_t *op_mode = calloc((size_t)g->n_ops, 1);
    assert_true(op_mesh && op_mode);
    for (int32_t d = 0; d < DEVICES; d++) {
        device[d] = d;
        weight[d] = 1;
    }
    const esp_mesh_spec_t mesh[2] = {{1, device, weight},
                                     {DEVICES - SMALL, device + SMALL, weight}};
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        op_mesh[op] = strncmp(g->op_name[g->op_origin[op]], "big", 3) == 0;
        op_mode[op] = g->op_kind[op] == ESP_KIND_UPDATE ? ESP_MODE_WHOLE : ESP_MODE_BATCH;
    }
    for (int32_t micro = 1; micro <= 4; micro *= 2) {
        const esp_strategy_t strategy = {.n_meshes = 2,
                                         .mesh = mesh,
                                         .op_mesh = op_mesh,
                                         .op_mode = op_mode,
                                         .micro_batches = micro,
                                         .bucket_bytes = 1 << 20};
        int64_t ns = time_of(&bench, &strategy), bound_ns = bound_of(&bench);
        if (ns < bound_ns)
            fail_msg("%d micro-batches take %lld ns, the bound is %lld", micro, (long long)ns,
                     (long long)bound_ns);
    }
    free(op_mesh);
    free(op_mode);
    bench_fini(&bench);
}

/* No baseline of a shipped model on a shipped cluster takes less. */
static void check_pair(const char *model, const char *cluster, int64_t batch)
{
    bench_t bench;
    esp_search_opts_t opts = esp_search_opts_default();
    esp_search_result_t *r = NULL;
    opts.evaluations = 0;
    opts.links = ESP_LINK_EXCLUSIVE; /* the faster simulation */
    bench_init(&bench, shipped_graph(model, batch), bench_cluster(cluster));
    test_assert_ok(esp_search(bench.cost, &opts, NULL, &r, &bench.diag), &bench.diag);
    for (int32_t b = 0; b < ESP_BASELINE_COUNT; b++)
        if (r->baseline[b].outcome.step_time_ns < r->lower_bound_ns)
            fail_msg("%s on %s: %s takes %lld ns, the bound is %lld", model, cluster,
                     esp_baseline_name((esp_baseline_t)b),
                     (long long)r->baseline[b].outcome.step_time_ns, (long long)r->lower_bound_ns);
    assert_true(r->lower_bound_ns > 0);
    esp_search_result_destroy(r);
    bench_fini(&bench);
}

/* The larger models where there are few devices. */
static void test_shipped(void **state)
{
    (void)state;
    static const char *const small[] = {"lstm_lm", "vgg19", "transformer_2layer", "gpt2_small"};
    static const char *const large[] = {"resnet50", "vit_b16", "transformer", "bert_large"};
    static const char *const clusters[] = {"lab", "cloud", "testbed", "cpu4", "a100x8", "h100x64"};
    for (int32_t m = 0; m < 4; m++)
        for (int32_t c = m % 2; c < 6; c += 1 + (m > 0))
            check_pair(small[m], clusters[c], 64);
    for (int32_t m = 0; m < 4; m++)
        check_pair(large[m], clusters[m == 2 ? 4 : m], 64);
    check_pair("inception_v3", "lab", 64);
    check_pair("resnet101", "lab", 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device), cmocka_unit_test(test_parallel_work),
        cmocka_unit_test(test_two_types),  cmocka_unit_test(test_micro_batches_overlap),
        cmocka_unit_test(test_shipped),
    };
    return cmocka_run_group_tests_name("search_bound", tests, NULL, NULL);
}
