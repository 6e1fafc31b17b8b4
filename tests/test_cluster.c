/* Clusters: the shipped files, what the forms mean, groups, texts, builder, memory. */
#include "support.h"
#include "espalier/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const shipped[] = {"testbed", "a100x8", "cloud", "lab", "h100x64", "cpu4"};
enum { N_SHIPPED = sizeof shipped / sizeof shipped[0] };

static esp_cluster_t *load(const char *name)
{
    char file[64], path[TEST_PATH_MAX];
    esp_cluster_t *c = NULL;
    esp_diag_t diag = {0};
    (void)snprintf(file, sizeof file, "clusters/%s.yaml", name);
    test_assert_ok(esp_cluster_load(test_source_path(file, path), NULL, &c, &diag), &diag);
    test_assert_ok(esp_cluster_check(c, &diag), &diag);
    return c;
}

static esp_cluster_t *parse(const char *text)
{
    esp_cluster_t *c = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(esp_cluster_parse(text, strlen(text), "f", NULL, &c, &diag), &diag);
    test_assert_ok(esp_cluster_check(c, &diag), &diag);
    return c;
}

static int32_t device(const esp_cluster_t *c, const char *name)
{
    int32_t d = esp_cluster_find_vertex(c, name);
    if (d < 0 || d >= c->n_devices)
        fail_msg("no device '%s'", name);
    return d;
}

/* The names of the route's links, joined by blanks. */
static void check_route(const esp_cluster_t *c, const char *src, const char *dst,
                        const char *expected)
{
    const int32_t *links;
    char text[1024] = "";
    int32_t n = esp_cluster_route(c, device(c, src), device(c, dst), &links);
    for (int32_t i = 0; i < n; i++) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? " " : "",
                       c->link_name[links[i]]);
    }
    assert_string_equal(text, expected);
}

/* "name:size name:size ..." */
static void check_groups(const esp_cluster_t *c, const char *expected)
{
    char text[1024] = "";
    for (int32_t g = 0; g < c->n_groups; g++) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%s:%d", g > 0 ? " " : "",
                       c->group_name[g], (int)(c->group_offset[g + 1] - c->group_offset[g]));
    }
    assert_string_equal(text, expected);
}

/* ---- the catalogue ------------------------------------------------------------------------- */

static void test_catalogue(void **state)
{
    (void)state;
    static const char *const wanted[] = {
        "p100-pcie-16", "p100-sxm-16", "v100-pcie-16", "v100-sxm-32", "t4",         "gtx1080ti",
        "rtx2080ti",    "rtx3090",     "rtx4090",      "a10",         "a40",        "l4",
        "a100-pcie-40", "a100-sxm-40", "a100-pcie-80", "a100-sxm-80", "l40s",       "h200",
        "h100-pcie-80", "h100-sxm-80", "b200",         "mi210",       "mi250x-gcd", "mi300x",
        "xeon-core",    "epyc-core"};
    esp_catalogue_t *all;
    esp_diag_t diag = {0};
    test_assert_ok(esp_catalogue_create(NULL, &all, &diag), &diag);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        assert_non_null(esp_catalogue_find(all, wanted[i]));
    assert_null(esp_catalogue_find(all, "abacus"));
    for (int32_t i = 0; i < all->n_types; i++) {
        const esp_device_type_t *t = &all->types[i];
        bool cpu = strcmp(t->kind, "cpu") == 0;
        assert_true(strlen(t->source) > 8);
        assert_ptr_equal(esp_catalogue_find(all, t->name), t);
        assert_true(t->peak_flops[ESP_PRECISION_FP32] >= (cpu ? 1e10 : 1e12));
        assert_true(t->launch_ns > 0);
        assert_int_equal(t->comm_compute_s_per_byte > 0, cpu);
        for (int32_t p = 0; p < ESP_PRECISION_COUNT; p++)
            assert_true(esp_device_type_flops(t, (esp_precision_t)p) >=
                        t->peak_flops[ESP_PRECISION_FP32]);
        /* A figure "with sparsity" or a slipped unit shows in the ratio of speed to bandwidth. */
        double intensity = esp_device_type_flops(t, ESP_PRECISION_FP16) / t->memory_bytes_per_s;
        assert_true(intensity > 10 && intensity < 500);
    }
    const esp_device_type_t *v100 = esp_catalogue_find(all, "v100-sxm-32");
    assert_true(esp_device_type_flops(v100, ESP_PRECISION_FP16) == 125e12);
    assert_true(esp_device_type_flops(v100, ESP_PRECISION_BF16) == 15.7e12);
    esp_catalogue_destroy(all);
    esp_catalogue_destroy(NULL);
    assert_string_equal(esp_precision_name(ESP_PRECISION_BF16), "bf16");
    assert_string_equal(esp_precision_name((esp_precision_t)99), "?");
    assert_string_equal(esp_vertex_kind_name(ESP_VERTEX_NIC), "nic");
    assert_string_equal(esp_vertex_kind_name((esp_vertex_kind_t)-1), "?");
}

/* ---- the shipped files ----------------------------------------------------------------------- */

static void test_testbed(void **state)
{
    (void)state;
    esp_cluster_t *c = load("testbed");
    assert_string_equal(c->name, "testbed");
    check_groups(c, "v100:4 gtx1080ti:8 p100:4");
    /* A private link for each ordered pair inside a group, one per ordered pair of groups. */
    assert_int_equal(c->n_links, 4 * 3 + 8 * 7 + 4 * 3 + 3 * 2);
    assert_int_equal(c->device_memory_bytes[device(c, "gtx1080ti/gpu7")], INT64_C(9) << 30);
    for (int32_t s = 0; s < 16; s++)
        for (int32_t d = 0; d < 16; d++) {
            const int32_t *links;
            int32_t n = esp_cluster_route(c, s, d, &links);
            assert_int_equal(n, s != d);
            if (s == d)
                continue;
            double expected = c->device_group[s] != c->device_group[d] ? 2810e6
                              : c->device_group[s] == 0                ? 8000e6
                                                                       : 3000e6;
            assert_true(esp_cluster_route_bytes_per_s(c, s, d) == expected);
            assert_int_equal(esp_cluster_route_latency_ns(c, s, d), 12000);
        }
    check_route(c, "v100/gpu3", "p100/gpu2", "v100/hub->p100/hub");
    check_route(c, "p100/gpu0", "v100/gpu1", "p100/hub->v100/hub");
    check_route(c, "p100/gpu0", "p100/gpu1", "p100/gpu0->p100/gpu1");
    esp_cluster_destroy(c);
}

static void test_shipped(void **state)
{
    (void)state;
    esp_cluster_t *c = load("a100x8");
    check_groups(c, "dgx:8");
    check_route(c, "dgx/gpu0", "dgx/gpu7", "dgx/gpu0->dgx/nvswitch dgx/nvswitch->dgx/gpu7");
    assert_true(esp_cluster_route_bytes_per_s(c, 0, 7) == 300e9);
    assert_int_equal(c->device_memory_bytes[0], INT64_C(79) << 30);
    esp_cluster_destroy(c);

    c = load("cloud");
    check_groups(c, "a100:4 t4:4");
    check_route(c, "a100/gpu0", "t4/gpu3",
                "a100/gpu0->a100/host a100/host->a100/nic0 a100/nic0->vpc vpc->t4/nic0 "
                "t4/nic0->t4/host t4/host->t4/gpu3");
    assert_true(esp_cluster_route_bytes_per_s(c, 0, 4) == 25e9 / 8);
    esp_cluster_destroy(c);

    c = load("lab");
    check_groups(c, "ampere:1 turing:1 pascal:1");
    assert_int_equal(c->device_memory_bytes[0], INT64_C(45) << 29);
    assert_int_equal(esp_cluster_route_latency_ns(c, 0, 2), 60000);
    esp_cluster_destroy(c);

    c = load("cpu4");
    check_groups(c, "node0:4 node1:4 node2:4 node3:4");
    assert_int_equal(c->device_memory_bytes[0], INT64_C(4) << 30);
    assert_true(c->types[0].comm_compute_s_per_byte == 1e-10);
    esp_cluster_destroy(c);
}

/* Like-numbered GPUs of different nodes share a rail; others go through the spine. */
static void test_rails(void **state)
{
    (void)state;
    esp_cluster_t *c = load("h100x64");
    check_groups(c, "dgx0:8 dgx1:8 dgx2:8 dgx3:8 dgx4:8 dgx5:8 dgx6:8 dgx7:8");
    check_route(c, "dgx0/gpu3", "dgx7/gpu3",
                "dgx0/gpu3->dgx0/nic3 dgx0/nic3->ndr/leaf3 ndr/leaf3->dgx7/nic3 "
                "dgx7/nic3->dgx7/gpu3");
    check_route(c, "dgx0/gpu3", "dgx1/gpu5",
                "dgx0/gpu3->dgx0/nic3 dgx0/nic3->ndr/leaf3 ndr/leaf3->ndr/spine "
                "ndr/spine->ndr/leaf5 ndr/leaf5->dgx1/nic5 dgx1/nic5->dgx1/gpu5");
    int32_t spine = esp_cluster_find_vertex(c, "ndr/spine"), uplinks = 0;
    for (int32_t l = 0; l < c->n_links; l++)
        if (c->link_dst[l] == spine) {
            assert_true(c->link_bytes_per_s[l] == 8 * 50e9);
            uplinks++;
        }
    assert_int_equal(uplinks, 8);
    esp_cluster_destroy(c);
}

/* ---- forms ----------------------------------------------------------------------------------- */

static void test_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double bytes_per_s;
    } table[] = {
        {"1 B/s", 1},
        {"8 bit/s", 1},
        {"1.5 kB/s", 1500},
        {"25 Gbit/s", 3125e6},
        {"25Gbit/s", 3125e6},
        {"300 GB/s", 300e9},
        {"0.5 TB/s", 500e9},
        {"1 KiB/s", 1024},
        {"2 MiB/s", 2097152},
        {".5 GiB/s", 536870912},
        {"1 TiB/s", 1099511627776},
        {"+1 MB/s", 1e6},
        {"1. Mbit/s", 125000},
        {"12 bit/s", 2},
        {"11 bit/s", 1},
        {"00012 kbit/s", 1500},
        {"0.8 Tbit/s", 100e9},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
                       "name: c\nnodes: [{name: a, devices: [{type: t4, count: 2}], intra: "
                       "{kind: mesh, bandwidth: %s, latency: 0 ns}}]\n",
                       table[i].text);
        esp_cluster_t *c = parse(text);
        assert_int_equal((int64_t)c->link_bytes_per_s[0], (int64_t)table[i].bytes_per_s);
        esp_cluster_destroy(c);
    }
}

static void test_devices_of_a_node(void **state)
{
    (void)state;
    esp_cluster_t *c = parse("name: c\n"
                             "reserve: 2 GiB\n"
                             "types:\n"
                             "  mine: {fp32: 1 TFLOP/s, memory: 8 GiB, memory_bandwidth: 1 GB/s}\n"
                             "  t4: {kind: cpu, fp32: 1 GFLOP/s, memory: 3 GiB,\n"
                             "       memory_bandwidth: 1 GB/s, source: a \"b\" \\ c}\n"
                             "nodes:\n"
                             "  - name: a\n"
                             "    reserve: 1 GiB\n"
                             "    devices:\n"
                             "      - {type: mine, count: 2}\n"
                             "      - {type: mine, memory: 5 GiB, forward: true}\n"
                             "      - {type: t4, reserve: 512 MiB}\n"
                             "      - {type: rtx3090}\n"
                             "    intra: {kind: pcie, bandwidth: 1 GB/s, latency: 1 us}\n");
    assert_int_equal(c->n_types, 3);
    assert_string_equal(c->types[0].name, "mine");
    assert_int_equal(c->types[0].launch_ns, 5000);
    assert_int_equal(c->types[1].launch_ns, 1000); /* the file's t4, not the catalogue's */
    assert_string_equal(c->types[1].source, "a \"b\" \\ c");
    assert_string_equal(c->vertex_name[2], "a/gpu2");
    assert_string_equal(c->vertex_name[3], "a/cpu0");
    assert_string_equal(c->vertex_name[4], "a/gpu3");
    assert_string_equal(c->vertex_name[5], "a/host");
    static const int64_t memory_mib[] = {7168, 7168, 5120, 2560, 23552};
    for (int32_t d = 0; d < 5; d++) {
        assert_int_equal(c->device_memory_bytes[d] >> 20, memory_mib[d]);
        assert_int_equal(c->vertex_forwards[d], d == 2);
    }
    check_groups(c, "a/mine:2 a/mine#2:1 a/t4:1 a/rtx3090:1");
    esp_cluster_destroy(c);
}

/* Default reserves: a GiB, an eighth of a small GPU, nothing on a CPU. */
static void test_default_reserve(void **state)
{
    (void)state;
    esp_cluster_t *c =
        parse("name: c\n"
              "types:\n"
              "  small: {fp32: 1 TFLOP/s, memory: 4 GiB, memory_bandwidth: 1 GB/s}\n"
              "nodes:\n"
              "  - name: a\n"
              "    devices: [{type: small}, {type: a100-sxm-80}, {type: xeon-core}]\n"
              "    host: {bandwidth: 1 GB/s, latency: 1 us}\n");
    assert_int_equal(c->device_memory_bytes[0] >> 20, 3584);
    assert_int_equal(c->device_memory_bytes[1] >> 30, 79);
    assert_int_equal(c->device_memory_bytes[2] >> 30, 4);
    esp_cluster_destroy(c);
}

static void test_network_forms(void **state)
{
    (void)state;
    /* Two NICs at a host are one of their joint speed; a second network joins by its own links. */
    esp_cluster_t *c =
        parse("name: c\n"
              "nodes:\n"
              "  - name: a\n"
              "    count: 2\n"
              "    devices: [{type: t4, count: 4}]\n"
              "    intra: {kind: pcie, bandwidth: 12 GB/s, latency: 1 us}\n"
              "    nics: {count: 2, at: host, bandwidth: 10 Gbit/s, latency: 2 us}\n"
              "  - name: b\n"
              "    devices: [{type: t4, count: 4}]\n"
              "    intra: {kind: nvlink, bandwidth: 50 GB/s, latency: 1 us}\n"
              "    nics: {count: 2, bandwidth: 10 Gbit/s, latency: 2 us,\n"
              "           bus: {bandwidth: 6 GB/s, latency: 3 us}}\n"
              "network:\n"
              "  - {kind: switch, name: left, nodes: [a]}\n"
              "  - {kind: switch, name: right, nodes: [b]}\n"
              "switches: [core]\n"
              "links:\n"
              "  - {from: left, to: core, bandwidth: 40 Gbit/s, latency: 5 us, name: west}\n"
              "  - {from: core, to: right, bandwidth: 40 Gbit/s, latency: 5 us}\n"
              "  - {from: core, to: right, bandwidth: 40 Gbit/s, latency: 5 us}\n");
    check_route(c, "a0/gpu1", "a1/gpu2",
                "a0/gpu1->a0/host a0/host->a0/nic0 a0/nic0->left left->a1/nic0 a1/nic0->a1/host "
                "a1/host->a1/gpu2");
    assert_true(esp_cluster_route_bytes_per_s(c, device(c, "a0/gpu1"), device(c, "a1/gpu2")) ==
                2.5e9);
    /* GPUs 0 and 1 of b are served by its first NIC, 2 and 3 by the second. */
    check_route(c, "b/gpu3", "a0/gpu0",
                "b/gpu3->b/nic1 b/nic1->right right->core west< left->a0/nic0 a0/nic0->a0/host "
                "a0/host->a0/gpu0");
    check_route(c, "b/gpu0", "b/gpu3", "b/gpu0->b/gpu3");
    assert_string_equal(c->link_name[c->n_links - 2], "core->right#2");
    esp_cluster_destroy(c);
}

static void test_fat_tree(void **state)
{
    (void)state;
    static const char nodes[] =
        "name: c\n"
        "nodes:\n"
        "  - name: n\n"
        "    count: 5\n"
        "    devices: [{type: t4}]\n"
        "    host: {bandwidth: 12 GB/s, latency: 1 us}\n"
        "network: {kind: fat_tree, bandwidth: 10 Gbit/s, latency: 1 us, nodes_per_leaf: 2, ";
    char text[1024];
    (void)snprintf(text, sizeof text, "%s%s", nodes,
                   "spines: 2, uplink: {bandwidth: 4 Gbit/s, latency: 1 us}}\n");
    esp_cluster_t *c = parse(text);
    assert_int_equal(c->n_vertices, 5 + 5 + 4);
    check_route(c, "n0/gpu0", "n1/gpu0",
                "n0/gpu0->n0/host n0/host->net/leaf0 net/leaf0->n1/host n1/host->n1/gpu0");
    assert_true(esp_cluster_route_bytes_per_s(c, 0, 4) == 1e9); /* two spines at once */
    assert_true(esp_cluster_route_bytes_per_s(c, 0, 1) == 1.25e9);
    esp_cluster_destroy(c);
    (void)snprintf(text, sizeof text, "%s%s", nodes,
                   "uplink: {oversubscription: 2.5, latency: 1 us}}\n");
    c = parse(text);
    assert_true(esp_cluster_route_bytes_per_s(c, 0, 3) == 1e9); /* 2 * 1.25 GB/s / 2.5 */
    assert_true(esp_cluster_route_bytes_per_s(c, 0, 4) == 0.5e9);
    esp_cluster_destroy(c);
}

static void test_matrix_form(void **state)
{
    (void)state;
    esp_cluster_t *c = parse("name: c\n"
                             "groups:\n"
                             "  - {name: a, type: t4}\n"
                             "  - {name: b, type: t4, count: 2,\n"
                             "     intra: {bandwidth: 8 GB/s, latency: 1 us}}\n"
                             "  - {name: c, type: t4, memory: 2 GiB}\n"
                             "inter:\n"
                             "  bandwidth: [['-', 1 GB/s, 2 GB/s], [1 GB/s, '-', 3 GB/s],\n"
                             "              [2 GB/s, 3 GB/s, '-']]\n"
                             "  latency: 7 us\n");
    check_groups(c, "a:1 b:2 c:1");
    assert_true(esp_cluster_route_bytes_per_s(c, 0, 2) == 1e9);
    assert_true(esp_cluster_route_bytes_per_s(c, 3, 0) == 2e9);
    assert_true(esp_cluster_route_bytes_per_s(c, 1, 3) == 3e9);
    assert_int_equal(esp_cluster_route_latency_ns(c, 1, 3), 7000);
    esp_cluster_destroy(c);
    c = parse("\xef\xbb\xbfname: c\ngroups: [{name: a, type: t4}]\n"); /* a byte order mark */
    assert_int_equal(c->n_devices, 1);
    esp_cluster_destroy(c);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static esp_cluster_t *nodes_cluster(int32_t nodes, int32_t devices, int32_t per_leaf,
                                    int32_t max_groups)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "name: c\nmax_groups: %d\nnodes:\n  - name: n\n    count: %d\n"
                   "    devices: [{type: t4, count: %d}]\n"
                   "    host: {bandwidth: 12 GB/s, latency: 1 us}\n"
                   "  - name: big\n    devices: [{type: t4, count: 8}]\n"
                   "    host: {bandwidth: 12 GB/s, latency: 1 us}\n"
                   "network: {kind: fat_tree, bandwidth: 1 GB/s, latency: 1 us,\n"
                   "  nodes_per_leaf: %d, uplink: {latency: 1 us, oversubscription: 1}}\n",
                   (int)max_groups, (int)nodes, (int)devices, (int)per_leaf);
    return parse(text);
}

static void test_groups(void **state)
{
    (void)state;
    static const struct {
        int32_t nodes, devices, per_leaf, max_groups;
        const char *expected;
    } table[] = {
        {3, 2, 2, 8, "n0:2 n1:2 n2:2 big:8"},
        {3, 2, 2, 4, "n0:2 n1:2 n2:2 big:8"},
        /* Nodes under one leaf merge first; sizes stay apart while that is enough. */
        {3, 2, 2, 3, "n0..n1:4 n2:2 big:8"},
        {3, 2, 2, 2, "n0..n2:6 big:8"},
        {3, 2, 2, 1, "n0..big:14"},
        /* Even pieces, by the least number that suffices. */
        {6, 1, 8, 4, "n0..n1:2 n2..n3:2 n4..n5:2 big:8"},
        {5, 1, 8, 4, "n0..n1:2 n2..n3:2 n4:1 big:8"},
        {7, 1, 8, 3, "n0..n3:4 n4..n6:3 big:8"},
        {4, 8, 8, 5, "n0:8 n1:8 n2:8 n3:8 big:8"},
        {4, 8, 8, 2, "n0..n2:24 n3..big:16"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        esp_cluster_t *c =
            nodes_cluster(table[i].nodes, table[i].devices, table[i].per_leaf, table[i].max_groups);
        check_groups(c, table[i].expected);
        esp_cluster_destroy(c);
    }
}

/* Unlike devices stay apart even where that makes more groups than asked for. */
static void test_groups_unlike(void **state)
{
    (void)state;
    esp_cluster_t *c = parse("name: c\n"
                             "max_groups: 1\n"
                             "nodes:\n"
                             "  - name: a\n"
                             "    count: 2\n"
                             "    devices: [{type: t4, count: 2}, {type: l4}]\n"
                             "    host: {bandwidth: 1 GB/s, latency: 1 us}\n"
                             "network: {kind: switch, bandwidth: 1 GB/s, latency: 1 us}\n");
    check_groups(c, "a0..a1/t4:4 a0..a1/l4:2");
    static const int32_t expected[] = {0, 0, 1, 0, 0, 1};
    assert_memory_equal(c->device_group, expected, sizeof expected);
    esp_cluster_destroy(c);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static char *dump(const esp_cluster_t *c)
{
    char *text = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(esp_cluster_dump(c, NULL, &text, &diag), &diag);
    return text;
}

/* A dump loads to a cluster that dumps, hashes and routes alike. */
static void check_round_trip(const esp_cluster_t *c)
{
    esp_diag_t diag = {0};
    char *first = dump(c), hash[65], hash_again[65];
    esp_cluster_t *again = parse(first);
    char *second = dump(again);
    assert_string_equal(first, second);
    test_assert_ok(esp_cluster_hash(c, NULL, hash, &diag), &diag);
    test_assert_ok(esp_cluster_hash(again, NULL, hash_again, &diag), &diag);
    assert_string_equal(hash, hash_again);
    assert_int_equal(strlen(hash), 64);
    size_t pairs = (size_t)c->n_devices * (size_t)c->n_devices;
    assert_memory_equal(c->route_offset, again->route_offset, (pairs + 1) * sizeof(int32_t));
    assert_memory_equal(c->route_link, again->route_link,
                        (size_t)c->route_offset[pairs] * sizeof(int32_t));
    assert_memory_equal(c->device_group, again->device_group,
                        (size_t)c->n_devices * sizeof(int32_t));
    esp_cluster_destroy(again);
    free(first);
    free(second);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_SHIPPED; i++) {
        esp_cluster_t *c = load(shipped[i]);
        check_round_trip(c);
        esp_cluster_destroy(c);
    }
    esp_cluster_t *c = parse("name: c\n"
                             "types:\n"
                             "  x: {fp32: 1 TFLOP/s, memory: 8 GiB, memory_bandwidth: 1 GB/s,\n"
                             "      comm_compute: 123 fs/B, launch: 0 ns, source: 'a \"b\" \\ é'}\n"
                             "nodes:\n"
                             "  - name: a\n"
                             "    devices: [{type: x}, {type: x, forward: true}, {type: x}]\n"
                             "links:\n"
                             "  - {from: a/gpu0, to: a/gpu1, bandwidth: 9 bit/s, latency: 0 ns}\n"
                             "  - {from: a/gpu2, to: a/gpu1, bandwidth: 1000 TB/s, latency: 1 s}\n"
                             "  - {from: a/gpu2, to: a/gpu1, bandwidth: 7 B/s, latency: 1 s,\n"
                             "     oneway: true}\n");
    check_round_trip(c);
    esp_cluster_destroy(c);
}

/* The hash follows the facts: not the sources of figures, not the form. */
static void test_hash(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "name: c\nnodes: [{name: a, devices: [{type: t4, memory: 1 GiB}]}]\n",
        "# other words\nname: c\nnodes:\n- devices: [{memory: 1024 MiB, type: t4}]\n  name: a\n",
        "name: c\nnodes: [{name: a, devices: [{type: t4, memory: 1 GB}]}]\n",
        "name: d\nnodes: [{name: a, devices: [{type: t4, memory: 1 GiB}]}]\n",
    };
    char hash[4][65];
    for (int32_t i = 0; i < 4; i++) {
        esp_cluster_t *c = parse(texts[i]);
        esp_diag_t diag = {0};
        test_assert_ok(esp_cluster_hash(c, NULL, hash[i], &diag), &diag);
        esp_cluster_destroy(c);
    }
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[0], hash[2]);
    assert_string_not_equal(hash[0], hash[3]);
}

static void test_dot(void **state)
{
    (void)state;
    esp_cluster_t *c = load("lab");
    esp_diag_t diag = {0};
    char *text;
    test_assert_ok(esp_cluster_dot(c, NULL, &text, &diag), &diag);
    test_golden("cluster_lab.dot", text);
    free(text);
    esp_cluster_destroy(c);
}

/* ---- the checker ----------------------------------------------------------------------------- */

/* One element of one array is another value: the checker says what is wrong. */
#define DAMAGE_ELEMENT(field, count, index, value, part)                                           \
    do {                                                                                           \
        esp_cluster_t c = *whole;                                                                  \
        size_t bytes = (size_t)(count) * sizeof c.field[0];                                        \
        void *copy = malloc(bytes);                                                                \
        assert_non_null(copy);                                                                     \
        memcpy(copy, c.field, bytes);                                                              \
        c.field = copy;                                                                            \
        const __typeof__(c.field[0]) wrong = (value);                                              \
        memcpy((char *)copy + (size_t)(index) * sizeof wrong, &wrong, sizeof wrong);               \
        test_assert_fails(esp_cluster_check(&c, &diag), &diag, ESP_ERR_INVALID, part);             \
        free(copy);                                                                                \
    } while (0)

/* A field of the struct itself is another value. */
#define DAMAGE_FIELD(field, value, part)                                                           \
    do {                                                                                           \
        esp_cluster_t c = *whole;                                                                  \
        c.field = (value);                                                                         \
        test_assert_fails(esp_cluster_check(&c, &diag), &diag, ESP_ERR_INVALID, part);             \
    } while (0)

static void test_check_fields(void **state)
{
    (void)state;
    esp_cluster_t *whole = load("cloud");
    esp_diag_t diag = {0};
    int32_t node[64] = {0};
    DAMAGE_FIELD(name, "a b", "cannot name a cluster");
    DAMAGE_FIELD(n_devices, 0, "number of devices 0");
    DAMAGE_FIELD(n_devices, 1025, "number of devices 1025");
    DAMAGE_FIELD(n_vertices, 7, "number of vertices 7");
    DAMAGE_FIELD(n_types, 0, "number of types 0");
    DAMAGE_FIELD(n_nodes, 0, "number of nodes 0");
    DAMAGE_FIELD(n_links, -1, "number of links -1");
    DAMAGE_FIELD(n_groups, 9, "number of groups 9");
    DAMAGE_FIELD(device_node, node, "device_node");
    esp_cluster_destroy(whole);
    esp_cluster_destroy(NULL);
}

static void test_check_elements(void **state)
{
    (void)state;
    esp_cluster_t *whole = load("cloud");
    esp_diag_t diag = {0};
    int32_t d = whole->n_devices, v = whole->n_vertices, l = whole->n_links;
    int32_t pairs = d * d, hops = whole->route_offset[pairs];
    esp_device_type_t same_name = whole->types[1];
    same_name.name = whole->types[0].name;
    DAMAGE_ELEMENT(types, whole->n_types, 1, same_name, "name of type 1");
    DAMAGE_ELEMENT(vertex_kind, v, 3, ESP_VERTEX_NIC, "kind of vertex 3");
    DAMAGE_ELEMENT(vertex_kind, v, d, ESP_VERTEX_DEVICE, "kind of vertex 8");
    DAMAGE_ELEMENT(vertex_forwards, v, d, 0, "forwarding of vertex 8");
    DAMAGE_ELEMENT(device_type, d, 2, 2, "type of device 2");
    DAMAGE_ELEMENT(device_group, d, 0, 1, "members of group 0");
    DAMAGE_ELEMENT(device_group, d, 3, 2, "group of device 3");
    DAMAGE_ELEMENT(device_memory_bytes, d, 1, 0, "memory of device 1");
    DAMAGE_ELEMENT(device_memory_bytes, d, 1, 1, "unlike devices in group 0");
    DAMAGE_ELEMENT(device_hub, d, 5, d, "hub of device 5");
    DAMAGE_ELEMENT(link_dst, l, 4, whole->link_src[4], "ends of link 4");
    DAMAGE_ELEMENT(link_bytes_per_s, l, 7, 0.5, "bandwidth of link 7");
    DAMAGE_ELEMENT(link_latency_ns, l, 7, -1, "latency of link 7");
    DAMAGE_ELEMENT(group_offset, 3, 2, 7, "extent of the group offsets");
    DAMAGE_ELEMENT(group_offset, 3, 1, 0, "offsets of group 0");
    DAMAGE_ELEMENT(group_device, d, 1, 0, "members of group 0");
    DAMAGE_ELEMENT(route_offset, pairs + 1, 0, 1, "first route offset");
    DAMAGE_ELEMENT(route_offset, pairs + 1, 3, 0, "route offset 3");
    DAMAGE_ELEMENT(route_offset, pairs + 1, 2, 3, "route of pair 1");
    DAMAGE_ELEMENT(route_link, hops, 0, l, "route of pair 1");
    DAMAGE_ELEMENT(route_link, hops, 1, whole->route_link[0], "route of pair 1");
    DAMAGE_ELEMENT(vertex_name, v, 9, whole->vertex_name[0], "two have the vertex name");
    DAMAGE_ELEMENT(node_name, 2, 1, "a b", "cannot name a node");
    DAMAGE_ELEMENT(group_name, 2, 1, whole->group_name[0], "two have the group name");
    DAMAGE_ELEMENT(link_name, l, 1, "", "cannot name a link");
    esp_cluster_destroy(whole);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static esp_status_t attempt_all(const esp_allocator_t *alloc, void *context)
{
    const char *text = context;
    esp_cluster_t *c;
    char *dumped = NULL, *dot = NULL, hash[65];
    esp_diag_t diag = {0};
    esp_status_t status = esp_cluster_parse(text, strlen(text), "f", alloc, &c, &diag);
    if (status != ESP_OK)
        return status;
    status = esp_cluster_dump(c, alloc, &dumped, &diag);
    if (status == ESP_OK)
        status = esp_cluster_dot(c, alloc, &dot, &diag);
    if (status == ESP_OK)
        status = esp_cluster_hash(c, alloc, hash, &diag);
    alloc->release(alloc->context, dumped);
    alloc->release(alloc->context, dot);
    esp_cluster_destroy(c);
    return status;
}

static void test_allocations(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    for (int32_t i = 0; i < N_SHIPPED; i++) {
        char file[64];
        (void)snprintf(file, sizeof file, "clusters/%s.yaml", shipped[i]);
        char *text = test_read_file(test_source_path(file, path), NULL);
        test_sweep_allocations(attempt_all, text, strcmp(shipped[i], "h100x64") == 0 ? 7 : 1);
        free(text);
    }
    static char merged[] =
        "name: c\nmax_groups: 2\nnodes:\n"
        "  - {name: n, count: 4, devices: [{type: t4}], host: {bandwidth: 1 GB/s, latency: 0 ns}}\n"
        "network: {kind: fat_tree, bandwidth: 1 GB/s, latency: 0 ns, nodes_per_leaf: 2,\n"
        "  uplink: {bandwidth: 1 GB/s, latency: 0 ns}}\n"
        "links: [{from: n0, to: n1, bandwidth: 1 GB/s, latency: 0 ns, name: x}]\n";
    test_sweep_allocations(attempt_all, merged, 1);
    esp_cluster_t *c = load("testbed");
    static char dumped[1 << 16];
    char *text = dump(c);
    (void)snprintf(dumped, sizeof dumped, "%s", text);
    free(text);
    esp_cluster_destroy(c);
    test_sweep_allocations(attempt_all, dumped, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalogue),
        cmocka_unit_test(test_testbed),
        cmocka_unit_test(test_shipped),
        cmocka_unit_test(test_rails),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_devices_of_a_node),
        cmocka_unit_test(test_default_reserve),
        cmocka_unit_test(test_network_forms),
        cmocka_unit_test(test_fat_tree),
        cmocka_unit_test(test_matrix_form),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_unlike),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_check_fields),
        cmocka_unit_test(test_check_elements),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
