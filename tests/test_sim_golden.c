/*
 * Published runs of another simulator (FIFO streams, exclusive links, a transfer per edge):
 * makespans within 0.6 %, the order of ties being its own.
 */
#include "deploy_builder.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 16, LINKS_MAX = 256 };

typedef struct golden {
    esp_i_json_t root, nodes;
    int64_t devices, latency_us;
    esp_i_arena_t arena;
    esp_i_names_t names;   /* of nodes, in file order */
    esp_cluster_t cluster; /* links only: what the simulator looks at */
    double width[LINKS_MAX];
    int32_t path_offset[DEVICES_MAX * DEVICES_MAX + 1], path[LINKS_MAX * 4];
} golden_t;

static esp_i_json_t member(esp_i_json_t object, const char *key, esp_i_json_kind_t kind)
{
    esp_i_json_t value;
    assert_int_equal(esp_i_json_get(object, key, kind, &value, NULL), ESP_OK);
    return value;
}

static int64_t integer(esp_i_json_t value)
{
    int64_t out = 0;
    assert_int_equal(esp_i_json_as_int(value, 0, INT64_MAX / 1000, &out, NULL), ESP_OK);
    return out;
}

static int64_t field(esp_i_json_t object, const char *key)
{
    return integer(member(object, key, ESP_I_JSON_INT));
}

static void read_golden(esp_i_json_t root, golden_t *g)
{
    memset(g, 0, sizeof *g);
    esp_i_arena_init(&g->arena, NULL);
    esp_i_names_init(&g->names, &g->arena);
    g->root = root;
    g->devices = field(root, "devices");
    g->latency_us = field(root, "grpc_latency_us");
    g->nodes = member(root, "nodes", ESP_I_JSON_ARRAY);
    esp_i_json_t links = member(root, "links_bytes_per_us", ESP_I_JSON_ARRAY);
    esp_i_json_t paths = member(root, "paths", ESP_I_JSON_ARRAY);
    assert_true(g->devices <= DEVICES_MAX && esp_i_json_count(links) <= LINKS_MAX);
    g->cluster.n_devices = (int32_t)g->devices;
    g->cluster.n_links = esp_i_json_count(links);
    g->cluster.link_bytes_per_s = g->width;
    for (int32_t i = 0; i < g->cluster.n_links; ++i)
        g->width[i] = 1e6 * (double)integer(esp_i_json_item(links, i));
    for (int32_t i = 0; i < esp_i_json_count(g->nodes); ++i) {
        const char *name;
        esp_i_json_t node = esp_i_json_item(g->nodes, i);
        assert_int_equal(esp_i_json_get_string(node, "name", &name, NULL), ESP_OK);
        assert_int_equal(esp_i_names_add(&g->names, name, strlen(name)), i);
    }
    for (int32_t i = 0, n = 0; i < esp_i_json_count(paths); ++i) {
        esp_i_json_t path = esp_i_json_item(paths, i);
        for (int32_t k = 0; k < esp_i_json_count(path); ++k)
            g->path[n++] = (int32_t)integer(esp_i_json_item(path, k));
        g->path_offset[i + 1] = n;
    }
}

/* bytes / narrowest link, rounded down, and a constant; in whole microseconds. */
static int32_t add_transfer(deploy_t *deploy, const golden_t *g, int32_t from, int32_t to,
                            int64_t bytes)
{
    int32_t at = from * (int32_t)g->devices + to, classes[2] = {from, to};
    const int32_t *path = g->path + g->path_offset[at];
    const double ones[LINKS_MAX] = {1, 1, 1, 1};
    esp_pattern_t pattern = {.n_links = g->path_offset[at + 1] - g->path_offset[at], .link = path};
    assert_true(pattern.n_links <= 4);
    pattern.load = ones;
    double width = INFINITY;
    for (int32_t i = 0; i < pattern.n_links; ++i)
        width = fmin(width, g->width[path[i]]);
    int32_t task = deploy_comm(deploy, &pattern, bytes, false, 2, classes);
    int64_t us = from == to ? 0 : bytes / (int64_t)(width / 1e6) + g->latency_us;
    deploy_set_ns(deploy, task, us * 1000);
    return task;
}

static int32_t find_node(const golden_t *g, const char *name)
{
    int32_t node = esp_i_names_find(&g->names, name, strlen(name));
    if (node < 0)
        fail_msg("no node %s", name);
    return node;
}

static void add_inputs(deploy_t *deploy, const golden_t *g, const int64_t *device, int32_t node)
{
    esp_i_json_t inputs = member(esp_i_json_item(g->nodes, node), "inputs", ESP_I_JSON_ARRAY);
    for (int32_t k = 0; k < esp_i_json_count(inputs); ++k) {
        const char *name;
        assert_int_equal(esp_i_json_as_string(esp_i_json_item(inputs, k), &name, NULL), ESP_OK);
        int32_t producer = find_node(g, name + (name[0] == '^'));
        if (name[0] == '^') {
            deploy_edge(deploy, producer, node);
            continue;
        }
        int64_t bytes = field(esp_i_json_item(g->nodes, producer), "output_bytes");
        int32_t move =
            add_transfer(deploy, g, (int32_t)device[producer], (int32_t)device[node], bytes);
        deploy_edge(deploy, producer, move);
        deploy_edge(deploy, move, node);
    }
}

static void check_run(const golden_t *g, esp_i_json_t run)
{
    esp_i_json_t placement = member(run, "placement", ESP_I_JSON_ARRAY);
    int32_t n = esp_i_json_count(g->nodes);
    int64_t *device = calloc((size_t)n, sizeof *device);
    deploy_t *deploy = deploy_new(&g->cluster, (int32_t)g->devices);
    for (int32_t i = 0; i < n; ++i) {
        device[i] = integer(esp_i_json_item(placement, i));
        int64_t us = field(esp_i_json_item(g->nodes, i), "duration_us");
        (void)deploy_compute(deploy, (int32_t)device[i], us * 1000);
    }
    for (int32_t i = 0; i < n; ++i)
        add_inputs(deploy, g, device, i);
    esp_sim_t *sim;
    esp_sim_result_t r;
    esp_diag_t diag = {0};
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.links = ESP_LINK_EXCLUSIVE;
    opts.fifo = opts.barrier = 1;
    assert_int_equal(esp_sim_create(NULL, &sim), ESP_OK);
    test_assert_ok(esp_sim_run(sim, deploy_get(deploy, NULL), &opts, &r, &diag), &diag);
    double expected = 1000.0 * (double)field(run, "time_us");
    double error = ((double)r.makespan_ns - expected) / expected;
    print_message("  %.3f ms, published %.3f ms (%+.2f %%)\n", (double)r.makespan_ns / 1e6,
                  expected / 1e6, 100 * error);
    assert_true(fabs(error) <= 0.006);
    esp_sim_destroy(sim);
    deploy_free(deploy);
    free(device);
}

static void check_file(const char *name)
{
    char path[TEST_PATH_MAX];
    esp_i_json_doc_t *doc;
    esp_diag_t diag = {0};
    golden_t g;
    test_assert_ok(esp_i_json_read(NULL, test_shared_path(name, path), &doc, &diag), &diag);
    read_golden(esp_i_json_root(doc), &g);
    esp_i_json_t runs = member(g.root, "runs", ESP_I_JSON_ARRAY);
    for (int32_t i = 0; i < esp_i_json_count(runs); ++i)
        check_run(&g, esp_i_json_item(runs, i));
    esp_i_names_fini(&g.names);
    esp_i_arena_fini(&g.arena);
    esp_i_json_destroy(doc);
}

static void small_dag(void **state)
{
    (void)state;
    check_file("data/golden/tag-simulator/dag_300_4.json");
}

static void large_dag(void **state)
{
    (void)state;
    check_file("data/golden/tag-simulator/dag_3000_8.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_dag),
        cmocka_unit_test(large_dag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
