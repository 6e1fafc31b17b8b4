/* Base groups and op groups: what is tied, what is not, and that all is divided. */
#include "searches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static esp_space_t *space_of(const esp_cost_t *cost, int32_t max_groups, uint64_t seed)
{
    esp_space_opts_t opts = esp_space_opts_default();
    esp_space_t *space;
    esp_diag_t diag = {0};
    opts.max_groups = max_groups;
    opts.seed = seed;
    test_assert_ok(esp_space_create(cost, &opts, NULL, &space, &diag), &diag);
    return space;
}

/* ---- a naive twin: labels that spread along ties until none changes ---------------------------
 */

typedef struct twin {
    const esp_graph_t *g;
    int32_t *label; /* per op; ESP_NONE: of the whole step */
    bool changed;
} twin_t;

static void twin_tie(twin_t *t, esp_op_id_t a, esp_op_id_t b)
{
    int32_t least = t->label[a] < t->label[b] ? t->label[a] : t->label[b];
    if (t->label[a] == t->label[b])
        return;
    t->label[a] = t->label[b] = least;
    t->changed = true;
}

static bool is_view(const esp_graph_t *g, esp_op_id_t op)
{
    switch (g->op_kind[op]) {
    case ESP_KIND_RESHAPE:
    case ESP_KIND_TRANSPOSE:
    case ESP_KIND_SLICE:
    case ESP_KIND_EXPAND:
    case ESP_KIND_PAD:
        return g->op_phase[op] == ESP_PHASE_FORWARD;
    default:
        return false;
    }
}

/* The step counter, and what makes one factor of all gradients. */
static bool is_stepwide(const esp_graph_t *g, esp_op_id_t op)
{
    return g->op_phase[op] == ESP_PHASE_UPDATE &&
           (strncmp(g->op_name[op], "clip/", 5) == 0 || strncmp(g->op_name[op], "step/", 5) == 0);
}

static void tie_view(twin_t *t, esp_op_id_t op)
{
    const esp_graph_t *g = t->g;
    esp_tensor_id_t x = g->input_tensor[g->input_offset[op]];
    esp_tensor_id_t y = g->output_tensor[g->output_offset[op]];
    if (g->tensor_producer[x] != ESP_NONE)
        twin_tie(t, op, g->tensor_producer[x]);
    else if (g->consumer_offset[y] < g->consumer_offset[y + 1])
        twin_tie(t, op, g->consumer_op[g->consumer_offset[y]]);
}

/* Whoever reads the sums of a batch normalisation. */
static void tie_statistics(twin_t *t, esp_op_id_t op)
{
    const esp_graph_t *g = t->g;
    for (int32_t i = g->input_offset[op]; i < g->input_offset[op + 1]; i++) {
        esp_tensor_id_t x = g->input_tensor[i];
        esp_op_id_t from = x == ESP_NONE ? ESP_NONE : g->tensor_producer[x];
        if (from != ESP_NONE &&
            (g->op_kind[from] == ESP_KIND_BN_STATS || g->op_kind[from] == ESP_KIND_BN_GRAD_STATS) &&
            (g->op_kind[op] == ESP_KIND_BN_NORM || g->op_kind[op] == ESP_KIND_BN_GRAD))
            twin_tie(t, op, from);
    }
}

/* Running statistics go with what makes them. What reads one gradient is told to `tie_updates`. */
static void tie_update_phase(twin_t *t, esp_op_id_t op)
{
    const esp_graph_t *g = t->g;
    int32_t i = g->input_offset[op] + (g->op_kind[op] == ESP_KIND_UPDATE);
    esp_op_id_t from = g->tensor_producer[g->input_tensor[i]];
    if (from != ESP_NONE &&
        (g->op_phase[from] == ESP_PHASE_UPDATE || g->op_kind[from] == ESP_KIND_BN_NORM))
        twin_tie(t, op, from);
}

/* An update goes with the first op that uses its parameter, and its sum of squares with it. */
static void tie_updates(twin_t *t)
{
    const esp_graph_t *g = t->g;
    for (int32_t p = 0; p < g->n_parameters; p++) {
        esp_tensor_id_t w = g->parameter[p], dw = g->gradient[p];
        esp_op_id_t first = g->consumer_op[g->consumer_offset[w]];
        for (int32_t c = g->consumer_offset[w]; c < g->consumer_offset[w + 1]; c++)
            first = g->consumer_op[c] < first ? g->consumer_op[c] : first;
        twin_tie(t, g->update[p], first);
        for (int32_t c = g->consumer_offset[dw]; c < g->consumer_offset[dw + 1]; c++)
            if (g->op_phase[g->consumer_op[c]] == ESP_PHASE_UPDATE)
                twin_tie(t, g->update[p], g->consumer_op[c]);
    }
}

static void twin_pass(twin_t *t)
{
    const esp_graph_t *g = t->g;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        if (t->label[op] == ESP_NONE)
            continue;
        if (g->op_phase[op] == ESP_PHASE_BACKWARD)
            twin_tie(t, op, g->op_origin[op]);
        if (g->op_phase[op] == ESP_PHASE_UPDATE)
            tie_update_phase(t, op);
        if (is_view(g, op))
            tie_view(t, op);
        tie_statistics(t, op);
    }
    tie_updates(t);
}

/* The labels, made into numbers in order of the first op. Returns how many. */
static int32_t twin_find(const esp_graph_t *g, int32_t *label)
{
    twin_t t = {.g = g, .label = label, .changed = true};
    int32_t n = 0;
    int32_t *name = calloc((size_t)g->n_ops, sizeof *name);
    assert_non_null(name);
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        label[op] = is_stepwide(g, op) ? ESP_NONE : op;
    while (t.changed) {
        t.changed = false;
        twin_pass(&t);
    }
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        if (label[op] == ESP_NONE)
            continue;
        if (!name[label[op]])
            name[label[op]] = ++n;
        label[op] = name[label[op]] - 1;
    }
    free(name);
    return n;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void check_base_groups(const esp_space_t *space)
{
    const esp_graph_t *g = space->cost->graph;
    int32_t *label = calloc((size_t)g->n_ops, sizeof *label);
    assert_non_null(label);
    int32_t n = twin_find(g, label);
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        if (label[op] != space->op_base[op])
            fail_msg("%s: op %s is in base group %d, not %d", g->name, g->op_name[op],
                     space->op_base[op], label[op]);
    assert_int_equal(n, space->n_base);
    free(label);
}

/* Op groups are unions of base groups, named without gaps from the dearest to the cheapest. */
static void check_op_groups(const esp_space_t *space, int32_t max_groups)
{
    const esp_graph_t *g = space->cost->graph;
    double *sum = calloc((size_t)space->n_groups, sizeof *sum);
    int32_t *group = malloc((size_t)space->n_base * sizeof *group);
    assert_true(sum && group);
    assert_in_range(space->n_groups, 1, max_groups < space->n_base ? max_groups : space->n_base);
    memset(group, -1, (size_t)space->n_base * sizeof *group);
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        int32_t base = space->op_base[op];
        if (base == ESP_NONE) {
            assert_int_equal(space->op_group[op], ESP_NONE);
            continue;
        }
        assert_in_range(space->op_group[op], 0, space->n_groups - 1);
        if (group[base] == ESP_NONE)
            sum[space->op_group[op]] += space->base_ns[base];
        assert_true(group[base] == ESP_NONE || group[base] == space->op_group[op]);
        group[base] = space->op_group[op];
    }
    for (int32_t i = 0; i < space->n_groups; i++) {
        assert_true(sum[i] > 0 || space->group_ns[i] == 0);
        assert_true(i == 0 || space->group_ns[i] <= space->group_ns[i - 1]);
        assert_true(sum[i] <= 1.000001 * space->group_ns[i] + 1e-6);
        assert_true(sum[i] >= 0.999999 * space->group_ns[i] - 1e-6);
    }
    free(sum);
    free(group);
}

/* Time of a base group: of its ops, mean over the devices. */
static void check_times(const esp_space_t *space)
{
    const esp_cost_t *cost = space->cost;
    double all = 0, bases = 0, devices = 0;
    for (esp_op_id_t op = 0; op < cost->graph->n_ops; op++)
        for (int32_t d = 0; d < cost->cluster->n_devices; d++) {
            double ns = (double)esp_cost_op_ns(cost, op, cost->cluster->device_type[d], 1.0, 0);
            devices += ns;
            all += space->op_base[op] == ESP_NONE ? 0 : ns;
        }
    for (int32_t b = 0; b < space->n_base; b++)
        bases += space->base_ns[b];
    bases *= cost->cluster->n_devices;
    assert_true(bases < 1.000001 * all && bases > 0.999999 * all);
    for (int32_t d = 0; d < cost->cluster->n_devices; d++)
        devices -= space->device_ns[d];
    assert_true(devices < 1 && devices > -cost->cluster->n_devices - 1);
}

static void check_space(const esp_cost_t *cost, int32_t max_groups)
{
    esp_space_t *space = space_of(cost, max_groups, 1);
    check_op_groups(space, max_groups);
    if (max_groups == 40) {
        check_base_groups(space);
        check_times(space);
    }
    esp_space_destroy(space);
}

static void check_graph(esp_graph_t *graph)
{
    static const int32_t max_groups[] = {40, 1, 2, 3, 4096};
    bench_t bench;
    bench_init(&bench, graph, bench_cluster("testbed"));
    for (size_t i = 0; i < sizeof max_groups / sizeof *max_groups; i++)
        check_space(bench.cost, max_groups[i]);
    bench_fini(&bench);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_small_models(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_MSE, ESP_OPTIMIZER_ADAM);
    opts.clip_norm = 1;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++)
        check_graph(deploy_graph(model, 8));
    check_graph(model_sum_of_weights(8, &opts));
    check_graph(model_per_sample(8, &opts));
    check_graph(model_sequence(8, true, &opts));
    for (uint64_t seed = 100; seed < 110; seed++)
        check_graph(model_random(seed, 8, &opts));
}

/* What sync batch normalisation would tie further is not tied: one group per layer. */
static void test_convnet_layers(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_MOMENTUM);
    bench_t bench;
    bench_init(&bench, model_convnet(8, 0, NULL, &opts), cluster_uniform(2));
    esp_space_t *space = space_of(bench.cost, 40, 1);
    int32_t bn = 0;
    for (esp_op_id_t op = 0; op < bench.graph->n_ops; op++)
        bn += bench.graph->op_kind[op] == ESP_KIND_BN_STATS;
    assert_int_equal(bn, 2);
    assert_true(space->n_base > 6);
    esp_space_destroy(space);
    bench_fini(&bench);
}

/* Clip norm and step counter belong to no group; everything else does. */
static void test_stepwide(void **state)
{
    (void)state;
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    int32_t alone = 0, sums = 0;
    opts.clip_norm = 1;
    bench_t bench;
    bench_init(&bench, model_mlp(8, 0, &opts), cluster_uniform(2));
    esp_space_t *space = space_of(bench.cost, 40, 1);
    for (esp_op_id_t op = 0; op < bench.graph->n_ops; op++) {
        const char *name = bench.graph->op_name[op];
        alone += space->op_base[op] == ESP_NONE;
        if (!strstr(name, "/sumsq") || is_stepwide(bench.graph, op))
            continue;
        assert_int_not_equal(space->op_update[op], ESP_NONE);
        assert_int_equal(space->op_base[op], space->op_base[space->op_update[op]]);
        sums++;
    }
    assert_int_equal(alone, 7); /* sum, norm, divisor, reciprocal, ratio, scale; step */
    assert_int_equal(sums, bench.graph->n_parameters);
    for (int32_t p = 0; p < bench.graph->n_parameters; p++)
        assert_int_equal(space->op_update[bench.graph->update[p]], bench.graph->update[p]);
    esp_space_destroy(space);
    bench_fini(&bench);
}

/* A real model does not collapse: base groups are many and small. */
static void check_shipped(const char *name, int32_t at_least, double largest_share)
{
    bench_t bench;
    bench_init(&bench, shipped_graph(name, 8), bench_cluster("testbed"));
    esp_space_t *space = space_of(bench.cost, 40, 1);
    double all = 0, largest = 0;
    for (int32_t b = 0; b < space->n_base; b++) {
        all += space->base_ns[b];
        largest = space->base_ns[b] > largest ? space->base_ns[b] : largest;
    }
    if (space->n_base < at_least || largest > largest_share * all)
        fail_msg("%s: %d base groups, the largest with %g of the time", name, space->n_base,
                 largest / all);
    check_base_groups(space);
    check_op_groups(space, 40);
    assert_int_equal(space->n_groups, 40);
    if (space->group_ns[0] > 0.1 * all)
        fail_msg("%s: an op group has %g of the time", name, space->group_ns[0] / all);
    print_message("%s: %d base groups, largest %g\n", name, space->n_base, largest / all);
    esp_space_destroy(space);
    bench_fini(&bench);
}

static void test_bert(void **state)
{
    (void)state;
    check_shipped("bert_large", 300, 0.1);
}

static void test_resnet50(void **state)
{
    (void)state;
    check_shipped("resnet50", 100, 0.1);
}

/* The same seed, the same groups. */
static void test_repeats(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, deploy_graph(3, 8), bench_cluster("testbed"));
    esp_space_t *a = space_of(bench.cost, 7, 5), *b = space_of(bench.cost, 7, 5);
    esp_space_t *c = space_of(bench.cost, 7, 6);
    assert_memory_equal(a->op_group, b->op_group, (size_t)bench.graph->n_ops * sizeof(int32_t));
    assert_memory_equal(a->op_base, c->op_base, (size_t)bench.graph->n_ops * sizeof(int32_t));
    esp_space_destroy(a);
    esp_space_destroy(b);
    esp_space_destroy(c);
    bench_fini(&bench);
}

static void test_options(void **state)
{
    (void)state;
    bench_t bench;
    esp_space_t *space = NULL;
    esp_diag_t diag = {0};
    esp_space_opts_t opts = esp_space_opts_default();
    bench_init(&bench, deploy_graph(0, 8), cluster_uniform(2));
    for (int32_t i = 0; i < 3; i++) {
        opts.max_groups = i == 0 ? 0 : i == 1 ? -5 : 4097;
        test_assert_fails(esp_space_create(bench.cost, &opts, NULL, &space, &diag), &diag,
                          ESP_ERR_ARGUMENT, "max_groups");
    }
    opts = esp_space_opts_default();
    opts.struct_size--;
    test_assert_fails(esp_space_create(bench.cost, &opts, NULL, &space, &diag), &diag,
                      ESP_ERR_ARGUMENT, "version");
    assert_null(space);
    esp_space_destroy(NULL);
    bench_fini(&bench);
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    const bench_t *bench = context;
    esp_space_t *space = NULL;
    esp_status_t status = esp_space_create(bench->cost, NULL, alloc, &space, NULL);
    esp_space_destroy(space);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    bench_t bench;
    bench_init(&bench, deploy_graph(0, 8), bench_cluster("testbed"));
    test_sweep_allocations(attempt, &bench, 1);
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_models), cmocka_unit_test(test_convnet_layers),
        cmocka_unit_test(test_stepwide),     cmocka_unit_test(test_bert),
        cmocka_unit_test(test_resnet50),     cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_options),      cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("space_groups", tests, NULL, NULL);
}
