/* Actions and their expansion: counts, meshes, and what each synchronisation means. */
#include "searches.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what every space holds ------------------------------------------------------------------ */

static void check_mesh(const esp_space_t *space, const esp_mesh_spec_t *mesh)
{
    const esp_cluster_t *cluster = space->cost->cluster;
    assert_in_range(mesh->n, 1, cluster->n_devices);
    for (int32_t k = 0; k < mesh->n; k++) {
        assert_in_range(mesh->device[k], 0, cluster->n_devices - 1);
        assert_true(k == 0 || mesh->device[k] > mesh->device[k - 1]);
        assert_true(mesh->weight[k] > 0 && isfinite(mesh->weight[k]));
    }
}

/* The same devices with the same shares. */
static bool mesh_same(const esp_mesh_spec_t *a, const esp_mesh_spec_t *b)
{
    if (a->n != b->n)
        return false;
    for (int32_t k = 0; k < a->n; k++)
        if (a->device[k] != b->device[k] ||
            fabs(a->weight[k] / a->weight[0] - b->weight[k] / b->weight[0]) > 1e-9)
            return false;
    return true;
}

static void check_meshes(const esp_space_t *space)
{
    for (int32_t m = 0; m < space->n_meshes; m++)
        check_mesh(space, &space->mesh[m]);
    for (int32_t d = 0; d < space->cost->cluster->n_devices; d++) {
        assert_int_equal(space->mesh[d].n, 1);
        assert_int_equal(space->mesh[d].device[0], d);
    }
    for (int32_t a = 0; a < space->n_meshes; a++)
        for (int32_t b = 0; b < a; b++)
            if (mesh_same(&space->mesh[a], &space->mesh[b]))
                fail_msg("meshes %d and %d are one", b, a);
}

/* The mesh of an action: all devices of its groups, with its shares. */
static void check_action(const esp_space_t *space, const esp_action_t *action)
{
    const esp_cluster_t *cluster = space->cost->cluster;
    const esp_mesh_spec_t *mesh = &space->mesh[action->mesh];
    int32_t k = 0;
    assert_in_range(action->mesh, 0, space->n_meshes - 1);
    if (action->device != ESP_NONE) {
        assert_int_equal(action->groups, 0);
        assert_int_equal(action->mesh, action->device);
        return;
    }
    assert_true(mesh->n > 1);
    for (int32_t d = 0; d < cluster->n_devices; d++) {
        bool in = (action->groups >> cluster->device_group[d] & 1) != 0;
        assert_int_equal(in, k < mesh->n && mesh->device[k] == d);
        if (!in)
            continue;
        double ratio = mesh->weight[k] / mesh->weight[0];
        if (action->shares == ESP_SHARES_PROPORTIONAL)
            ratio *= space->device_ns[d] / space->device_ns[mesh->device[0]];
        assert_true(fabs(ratio - 1) < 1e-9);
        k++;
    }
    assert_int_equal(k, mesh->n);
}

static void check_actions(const esp_space_t *space)
{
    char text[256];
    for (int32_t a = 0; a < space->n_actions; a++) {
        const esp_action_t *action = &space->action[a];
        check_action(space, action);
        assert_int_equal(esp_space_find_action(space, action->groups, action->device,
                                               action->shares, action->sync),
                         a); /* the first such: no duplicates */
        for (int32_t b = 0; b < a; b++)
            assert_false(space->action[b].mesh == action->mesh &&
                         space->action[b].sync == action->sync);
        esp_action_text(space, a, text, sizeof text);
        assert_true(strlen(text) > 3 && strlen(text) < sizeof text - 1);
        for (size_t capacity = 1; capacity < 20; capacity++) {
            esp_action_text(space, a, text, capacity);
            assert_true(strlen(text) < capacity);
        }
    }
    assert_int_equal(
        esp_space_find_action(space, UINT64_MAX, 0, ESP_SHARES_EQUAL, ESP_SYNC_ALLREDUCE),
        ESP_NONE);
}

/* The cluster becomes the function's. */
static void check_cluster(esp_cluster_t *cluster, int32_t n_actions)
{
    bench_t bench;
    prober_t prober;
    bench_init(&bench, deploy_graph(0, 8), cluster);
    prober_init(&prober, &bench, 40);
    check_meshes(prober.space);
    check_actions(prober.space);
    if (prober.space->n_actions != n_actions)
        fail_msg("%s: %d actions, not %d", cluster->name, prober.space->n_actions, n_actions);
    prober_fini(&prober);
    bench_fini(&bench);
}

/*
 * One device: one action. A set of like devices has three reductions, duplication and model
 * parallelism; unlike ones the three reductions twice. Explicit devices on top, on clusters of more
 * than 16 devices one per group.
 */
static void test_counts(void **state)
{
    (void)state;
    check_cluster(cluster_uniform(1), 1);
    check_cluster(cluster_uniform(4), 5 + 4);
    check_cluster(cluster_mixed(), 5 + 5 + 8 + 4);
    check_cluster(cluster_three(), 4 * 8 + 3);        /* three pairs, one triple */
    check_cluster(cluster_pair_and_one(), 5 + 8 + 3); /* a group of one is a device */
    check_cluster(bench_cluster("testbed"), 3 * 5 + 4 * 8 + 16);
    check_cluster(bench_cluster("cpu4"), 15 * 5 + 16);   /* four groups: all 15 masks */
    check_cluster(bench_cluster("h100x64"), 36 * 5 + 8); /* eight groups: 36 runs */
    check_cluster(bench_cluster("a100x8"), 5 + 8);
}

/* More than four groups: runs in order of speed, not of number. */
static void test_runs_by_speed(void **state)
{
    (void)state;
    static const char *const text = "name: five\n"
                                    "groups:\n"
                                    "  - {name: a, type: t4, count: 2,\n"
                                    "     intra: {bandwidth: 5 GB/s, latency: 1 us}}\n"
                                    "  - {name: b, type: a100-sxm-80, count: 1}\n"
                                    "  - {name: c, type: gtx1080ti, count: 1}\n"
                                    "  - {name: d, type: v100-sxm-32, count: 1}\n"
                                    "  - {name: e, type: h100-sxm-80, count: 1}\n"
                                    "inter: {bandwidth: 5 GB/s, latency: 1 us}\n";
    bench_t bench;
    prober_t prober;
    bench_init(&bench, shipped_graph("transformer_2layer", 8), cluster_of_text(text));
    prober_init(&prober, &bench, 8);
    const esp_space_t *space = prober.space;
    check_meshes(space);
    check_actions(space);
    /* 15 runs, five of one group, one of which has two devices */
    assert_int_equal(space->n_actions, 10 * 8 + 5 + 6);
    for (int32_t a = 0; a < space->n_actions; a++)
        for (int32_t d = 0; d < bench.cluster->n_devices && space->action[a].groups; d++) {
            const esp_mesh_spec_t *mesh = &space->mesh[space->action[a].mesh];
            double fast = INFINITY, slow = 0;
            bool in = false;
            for (int32_t k = 0; k < mesh->n; k++) {
                in = in || mesh->device[k] == d;
                fast = fmin(fast, space->device_ns[mesh->device[k]]);
                slow = fmax(slow, space->device_ns[mesh->device[k]]);
            }
            assert_true(in || space->device_ns[d] <= fast || space->device_ns[d] >= slow);
        }
    prober_fini(&prober);
    bench_fini(&bench);
}

/* ---- what a synchronisation means ------------------------------------------------------------ */

typedef struct expansion {
    bench_t bench;
    prober_t prober;
    uint64_t all;
} expansion_t;

static void expansion_init(expansion_t *e, esp_graph_t *graph, esp_cluster_t *cluster)
{
    bench_init(&e->bench, graph, cluster);
    prober_init(&e->prober, &e->bench, 4);
    e->all = ((uint64_t)1 << cluster->n_groups) - 1;
}

static void expansion_fini(expansion_t *e)
{
    prober_fini(&e->prober);
    bench_fini(&e->bench);
}

static const esp_action_t *expand_all(expansion_t *e, esp_shares_t shares, esp_sync_t sync)
{
    int32_t a = esp_space_find_action(e->prober.space, e->all, ESP_NONE, shares, sync);
    assert_int_not_equal(a, ESP_NONE);
    prober_fill(&e->prober, a);
    esp_strategy_t strategy = prober_strategy(&e->prober, 2, 12345, 1);
    assert_int_equal(strategy.micro_batches, 2);
    assert_int_equal(strategy.bucket_bytes, 12345);
    assert_int_equal(strategy.sync_batchnorm, 1);
    assert_ptr_equal(strategy.op_mesh, e->prober.op_mesh);
    assert_ptr_equal(strategy.mesh, e->prober.space->mesh);
    return &e->prober.space->action[a];
}

static bool in_update(const esp_graph_t *g, esp_op_id_t op)
{
    return g->op_kind[op] == ESP_KIND_UPDATE;
}

static void test_replicas(void **state)
{
    (void)state;
    static const esp_sync_t syncs[] = {ESP_SYNC_ALLREDUCE, ESP_SYNC_SHARDED, ESP_SYNC_DUPLICATE};
    static const esp_mode_t body[] = {ESP_MODE_BATCH, ESP_MODE_BATCH, ESP_MODE_WHOLE};
    static const esp_mode_t update[] = {ESP_MODE_WHOLE, ESP_MODE_SHARD, ESP_MODE_WHOLE};
    expansion_t e;
    expansion_init(&e, deploy_graph(2, 8), cluster_mixed()); /* adam, clipped */
    const esp_graph_t *g = e.bench.graph;
    for (int32_t i = 0; i < 3; i++) {
        const esp_action_t *action = expand_all(&e, ESP_SHARES_EQUAL, syncs[i]);
        for (esp_op_id_t op = 0; op < g->n_ops; op++) {
            esp_op_id_t of = e.prober.space->op_update[op];
            if (e.prober.space->op_base[op] == ESP_NONE) {
                assert_int_equal(e.prober.op_mesh[op], ESP_NONE);
                assert_int_equal(e.prober.op_mode[op], ESP_MODE_WHOLE);
                continue;
            }
            assert_int_equal(e.prober.op_mesh[op], action->mesh);
            if (in_update(g, op))
                assert_int_equal(e.prober.op_mode[op], update[i]);
            else if (of == ESP_NONE)
                assert_int_equal(e.prober.op_mode[op], body[i]);
            else if (g->op_kind[op] == ESP_KIND_REDUCE) /* sum of squares: as its update */
                assert_int_equal(e.prober.op_mode[op], update[i]);
        }
    }
    expansion_fini(&e);
}

/* Homes at one device each; the devices' bytes differ by no more than the largest parameter. */
static void test_parameter_server(void **state)
{
    (void)state;
    expansion_t e;
    expansion_init(&e, deploy_graph(3, 8), cluster_mixed());
    const esp_graph_t *g = e.bench.graph;
    const esp_action_t *action = expand_all(&e, ESP_SHARES_PROPORTIONAL, ESP_SYNC_PS);
    double bytes[4] = {0}, largest = 0, least = INFINITY, most = 0;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        if (e.prober.space->op_base[op] == ESP_NONE)
            continue;
        esp_op_id_t of = e.prober.space->op_update[op];
        if (of != ESP_NONE) {
            assert_in_range(e.prober.op_mesh[op], 0, 3); /* a mesh of one device */
            assert_int_equal(e.prober.op_mesh[op], e.prober.op_mesh[of]);
        } else
            assert_int_equal(e.prober.op_mesh[op], action->mesh);
        assert_int_equal(e.prober.op_mode[op],
                         in_update(g, op) || (of != ESP_NONE && g->op_kind[op] == ESP_KIND_REDUCE)
                             ? ESP_MODE_WHOLE
                             : ESP_MODE_BATCH);
    }
    for (int32_t p = 0; p < g->n_parameters; p++) {
        double size = e.bench.cost->tensor_bytes[g->parameter[p]];
        bytes[e.prober.op_mesh[g->update[p]]] += size;
        largest = fmax(largest, size);
    }
    for (int32_t d = 0; d < 4; d++) {
        least = fmin(least, bytes[d]);
        most = fmax(most, bytes[d]);
    }
    assert_true(most - least <= largest);
    expansion_fini(&e);
}

/*
 * Base groups in topological order over the devices in turn, each device with time in proportion to
 * its speed, give or take a base group.
 */
static void check_division(const esp_space_t *space, const int32_t *base_device)
{
    const esp_cluster_t *cluster = space->cost->cluster;
    double all = 0, speeds = 0, largest = 0, part[64] = {0};
    for (int32_t b = 0; b < space->n_base; b++) {
        assert_in_range(base_device[b], 0, cluster->n_devices - 1);
        assert_true(b == 0 || base_device[b] >= base_device[b - 1]);
        part[base_device[b]] += space->base_ns[b];
        all += space->base_ns[b];
        largest = fmax(largest, space->base_ns[b]);
    }
    for (int32_t d = 0; d < cluster->n_devices; d++)
        speeds += 1 / space->device_ns[d];
    for (int32_t d = 0; d < cluster->n_devices; d++)
        assert_true(fabs(part[d] - all / space->device_ns[d] / speeds) <= 1.0001 * largest);
}

static void test_model_parallel(void **state)
{
    (void)state;
    bench_t bench;
    prober_t prober;
    bench_init(&bench, shipped_graph("transformer_2layer", 8), bench_cluster("cloud"));
    prober_init(&prober, &bench, 1);
    const esp_space_t *space = prober.space;
    int32_t *base_device = calloc((size_t)space->n_base, sizeof *base_device);
    int32_t action =
        esp_space_find_action(space, 3, ESP_NONE, ESP_SHARES_EQUAL, ESP_SYNC_MODEL_PARALLEL);
    assert_non_null(base_device);
    assert_int_not_equal(action, ESP_NONE);
    prober_fill(&prober, action);
    (void)prober_strategy(&prober, 1, 0, 0);
    for (esp_op_id_t op = 0; op < bench.graph->n_ops; op++)
        if (space->op_base[op] != ESP_NONE) {
            base_device[space->op_base[op]] = prober.op_mesh[op];
            assert_int_equal(prober.op_mode[op],
                             in_update(bench.graph, op) ? ESP_MODE_WHOLE : ESP_MODE_BATCH);
        }
    check_division(space, base_device); /* all devices, since there is one op group */
    for (esp_op_id_t op = 0; op < bench.graph->n_ops; op++)
        if (space->op_base[op] != ESP_NONE) /* a base group is never divided */
            assert_int_equal(prober.op_mesh[op], base_device[space->op_base[op]]);
    esp_space_divide(space, base_device);
    check_division(space, base_device);
    prober_fini(&prober);
    free(base_device);
    bench_fini(&bench);
}

/* Over part of the devices. */
static void test_model_parallel_subset(void **state)
{
    (void)state;
    expansion_t e;
    expansion_init(&e, deploy_graph(3, 8), cluster_mixed());
    e.all = 2;
    (void)expand_all(&e, ESP_SHARES_EQUAL, ESP_SYNC_MODEL_PARALLEL);
    for (esp_op_id_t op = 0; op < e.bench.graph->n_ops; op++)
        if (e.prober.space->op_base[op] != ESP_NONE)
            assert_in_range(e.prober.op_mesh[op], 2, 3);
    expansion_fini(&e);
}

/* Parts of METIS: every device has some of a large model. */
static void test_metis_parts(void **state)
{
    (void)state;
    bench_t bench;
    prober_t prober;
    double part[16] = {0}, all = 0;
    bench_init(&bench, shipped_graph("resnet50", 8), bench_cluster("testbed"));
    prober_init(&prober, &bench, 8);
    int32_t *device = calloc((size_t)prober.space->n_base, sizeof *device);
    int32_t *again = calloc((size_t)prober.space->n_base, sizeof *again);
    assert_true(device && again);
    assert_int_equal(esp_space_partition(prober.space, 9, device), ESP_OK);
    assert_int_equal(esp_space_partition(prober.space, 9, again), ESP_OK);
    for (int32_t b = 0; b < prober.space->n_base; b++) {
        assert_in_range(device[b], 0, 15);
        assert_int_equal(device[b], again[b]);
        part[device[b]] += prober.space->base_ns[b];
        all += prober.space->base_ns[b];
    }
    for (int32_t d = 0; d < 16; d++)
        assert_true(part[d] > 0.1 * all / 16 && part[d] < 4 * all / 16);
    free(device);
    free(again);
    prober_fini(&prober);
    bench_fini(&bench);
}

/* Chosen ops are computed whole, whatever their action says of the batch. */
static void test_op_whole(void **state)
{
    (void)state;
    expansion_t e;
    esp_strategy_t strategy;
    expansion_init(&e, deploy_graph(0, 8), cluster_mixed());
    const esp_graph_t *g = e.bench.graph;
    uint8_t *whole = calloc((size_t)g->n_ops, 1);
    assert_non_null(whole);
    for (esp_op_id_t op = 0; op < g->n_ops; op += 3)
        whole[op] = 1;
    (void)expand_all(&e, ESP_SHARES_EQUAL, ESP_SYNC_SHARDED);
    const esp_decisions_t decisions = {
        .action = e.prober.action, .micro_batches = 1, .op_whole = whole};
    assert_int_equal(esp_space_strategy(e.prober.space, &decisions, e.prober.op_mesh,
                                        e.prober.op_mode, &strategy),
                     ESP_OK);
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        if (e.prober.space->op_update[op] == ESP_NONE && e.prober.space->op_base[op] != ESP_NONE)
            assert_int_equal(e.prober.op_mode[op], whole[op] ? ESP_MODE_WHOLE : ESP_MODE_BATCH);
        else if (in_update(g, op))
            assert_int_equal(e.prober.op_mode[op], ESP_MODE_SHARD);
    free(whole);
    expansion_fini(&e);
}

static void test_unknown_action(void **state)
{
    (void)state;
    expansion_t e;
    esp_strategy_t strategy;
    expansion_init(&e, deploy_graph(0, 8), cluster_mixed());
    for (int32_t i = 0; i < 2; i++) {
        prober_fill(&e.prober, 0);
        e.prober.action[0] = i ? -1 : e.prober.space->n_actions;
        const esp_decisions_t decisions = {.action = e.prober.action, .micro_batches = 1};
        assert_int_equal(esp_space_strategy(e.prober.space, &decisions, e.prober.op_mesh,
                                            e.prober.op_mode, &strategy),
                         ESP_ERR_ARGUMENT);
    }
    for (int32_t sync = 0; sync < ESP_SYNC_COUNT; sync++)
        assert_true(strlen(esp_sync_name((esp_sync_t)sync)) > 3);
    assert_string_equal(esp_sync_name(ESP_SYNC_COUNT), "?");
    expansion_fini(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),         cmocka_unit_test(test_runs_by_speed),
        cmocka_unit_test(test_replicas),       cmocka_unit_test(test_parameter_server),
        cmocka_unit_test(test_model_parallel), cmocka_unit_test(test_model_parallel_subset),
        cmocka_unit_test(test_metis_parts),    cmocka_unit_test(test_op_whole),
        cmocka_unit_test(test_unknown_action),
    };
    return cmocka_run_group_tests_name("space_actions", tests, NULL, NULL);
}
