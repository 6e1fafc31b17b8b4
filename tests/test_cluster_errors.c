/* Cluster files that are wrong: each error with its status, its line and column, and what it says.
 */
#include "support.h"
#include "espalier/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One wrong text. The file is `head` + text, where head is a sound beginning. */
typedef struct wrong {
    const char *text;
    esp_status_t status;
    int64_t line, column;
    const char *place; /* NULL: not checked */
    const char *part;  /* of the message */
} wrong_t;

static void check_wrong(const wrong_t *w)
{
    esp_cluster_t *cluster = (esp_cluster_t *)0x1;
    esp_diag_t diag = {0};
    esp_status_t status =
        esp_cluster_parse(w->text, strlen(w->text), "c.yaml", NULL, &cluster, &diag);
    bool right = status == w->status && diag.status == w->status && diag.line == w->line &&
                 diag.column == w->column && strstr(diag.text, w->part) != NULL &&
                 strcmp(diag.file, "c.yaml") == 0 &&
                 (w->place == NULL || strcmp(diag.place, w->place) == 0);
    if (!right) {
        char text[1024];
        esp_diag_format(&diag, text, sizeof text);
        if (status == ESP_OK)
            esp_cluster_destroy(cluster);
        fail_msg("status %d instead of %d at %d:%d (%s): %s\n%s", (int)status, (int)w->status,
                 (int)w->line, (int)w->column, w->place != NULL ? w->place : "", text, w->text);
    }
    assert_ptr_equal(cluster, (esp_cluster_t *)0x1); /* outputs are written on success only */
}

#define CHECK_ALL(table)                                                                           \
    for (size_t i = 0; i < sizeof(table) / sizeof(table)[0]; i++)                                  \
    check_wrong(&(table)[i])

/* ---- YAML itself --------------------------------------------------------------------------- */

static void test_yaml(void **state)
{
    (void)state;
    static const wrong_t table[] = {
        {"", ESP_ERR_INVALID, 1, 1, "", "empty"},
        {"# nothing\n", ESP_ERR_INVALID, 1, 1, "", "empty"},
        {"- a\n- b\n", ESP_ERR_INVALID, 1, 1, "", "must be a mapping"},
        {"name: [a\n", ESP_ERR_SYNTAX, 2, 1, "", "not YAML"},
        {"name: a\n  nodes: b\n", ESP_ERR_SYNTAX, 2, 8, "", "not YAML"},
        {"name: a\n\tnodes: b\n", ESP_ERR_SYNTAX, 2, 1, "", "not YAML"},
        {"name: &x a\n", ESP_ERR_UNSUPPORTED, 1, 7, "", "anchors"},
        {"name: a\nlist: &x [1]\n", ESP_ERR_UNSUPPORTED, 2, 7, "", "anchors"},
        {"name: a\nmap: &x {a: 1}\n", ESP_ERR_UNSUPPORTED, 2, 6, "", "anchors"},
        {"name: *x\n", ESP_ERR_UNSUPPORTED, 1, 7, "", "aliases"},
        {"*x : 1\n", ESP_ERR_UNSUPPORTED, 1, 1, "", "aliases"},
        {"name: !!str a\n", ESP_ERR_UNSUPPORTED, 1, 7, "", "tags"},
        {"name: a\n---\nname: b\n", ESP_ERR_UNSUPPORTED, 2, 1, "", "second document"},
        {"name: a\nname: b\n", ESP_ERR_INVALID, 2, 1, "", "'name' is given twice"},
        {"name: \"a\\tb\"\n", ESP_ERR_INVALID, 1, 7, "", "control character"},
        {"name: \"a\\0b\"\n", ESP_ERR_INVALID, 1, 7, "", "control character"},
        {"name: |\n  a\n  b\n", ESP_ERR_INVALID, 1, 7, "", "line break"},
        {"[a, b]: 1\n", ESP_ERR_INVALID, 1, 1, "", "a key must be"},
        {"? {a: 1}\n: 1\n", ESP_ERR_INVALID, 1, 3, "", "a key must be"},
        {"a: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n", ESP_ERR_LIMIT, 1, 19, "", "16 deep"},
    };
    CHECK_ALL(table);
}

static void test_bytes_that_are_no_text(void **state)
{
    (void)state;
    static const char text[] = "name: \xff\xfe\n";
    esp_cluster_t *cluster;
    esp_diag_t diag = {0};
    test_assert_fails(esp_cluster_parse(text, sizeof text - 1, NULL, NULL, &cluster, &diag), &diag,
                      ESP_ERR_SYNTAX, "not YAML");
    assert_int_equal(diag.has_byte, 1);
    assert_int_equal(diag.byte, 6);
}

static void test_size_limits(void **state)
{
    (void)state;
    esp_cluster_t *cluster;
    esp_diag_t diag = {0};
    size_t size = ((size_t)16 << 20) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, ' ', size);
    test_assert_fails(esp_cluster_parse(text, size, "c.yaml", NULL, &cluster, &diag), &diag,
                      ESP_ERR_LIMIT, "16 MiB");
    memset(text, 'a', 6000);
    memcpy(text, "name: ", 6);
    test_assert_fails(esp_cluster_parse(text, 6000, NULL, NULL, &cluster, &diag), &diag,
                      ESP_ERR_LIMIT, "4096 bytes");
    size_t n = (size_t)snprintf(text, size, "a: [");
    for (int32_t i = 0; i < (1 << 20) + 1; i++, n += 2)
        memcpy(text + n, "1,", 2);
    memcpy(text + n, "]\n", 2);
    test_assert_fails(esp_cluster_parse(text, n + 2, NULL, NULL, &cluster, &diag), &diag,
                      ESP_ERR_LIMIT, "1048576 values");
    n = 0;
    for (int32_t i = 0; i < 513; i++)
        n += (size_t)snprintf(text + n, size - n, "k%d: 1\n", (int)i);
    test_assert_fails(esp_cluster_parse(text, n, NULL, NULL, &cluster, &diag), &diag, ESP_ERR_LIMIT,
                      "512 keys");
    assert_int_equal(diag.line, 513);
    free(text);
}

static void test_files(void **state)
{
    (void)state;
    esp_cluster_t *cluster;
    esp_diag_t diag = {0};
    test_assert_fails(esp_cluster_load("/nonexistent/c.yaml", NULL, &cluster, &diag), &diag,
                      ESP_ERR_IO, "/nonexistent/c.yaml");
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    test_dir_make(&dir);
    test_dir_file(&dir, "c.yaml", path);
    test_write_file(path, "nodes: 1\n", 9);
    memset(&diag, 0, sizeof diag);
    test_assert_fails(esp_cluster_load(path, NULL, &cluster, &diag), &diag, ESP_ERR_INVALID,
                      "c.yaml:1:1: the key 'name' is missing");
    memset(&diag, 0, sizeof diag);
    test_assert_fails(esp_cluster_load(dir.path, NULL, &cluster, &diag), &diag, ESP_ERR_IO,
                      dir.path);
    assert_int_equal(esp_cluster_load(path, NULL, &cluster, NULL), ESP_ERR_INVALID);
    test_dir_remove(&dir);
}

/* ---- keys and values ------------------------------------------------------------------------- */

/* A node of two GPUs in five lines; the device list is line 3, intra line 5. */
#define NODE "name: c\nnodes:\n  - name: a\n    devices: [{type: t4, count: 2}]\n    intra: "

static void test_keys(void **state)
{
    (void)state;
    static const wrong_t table[] = {
        {"name: c\n", ESP_ERR_INVALID, 1, 1, "", "describes no devices"},
        {"nodes: []\n", ESP_ERR_INVALID, 1, 1, "", "'name' is missing"},
        {"name: c\nndoes: []\n", ESP_ERR_INVALID, 2, 1, "ndoes", "is 'nodes' meant?"},
        {"name: c\nzzzzzzzzzzzz: []\n", ESP_ERR_INVALID, 2, 1, "zzzzzzzzzzzz", "for example"},
        {"name: a b\nnodes: []\n", ESP_ERR_INVALID, 1, 7, "name", "cannot name a cluster"},
        {"name:\nnodes: []\n", ESP_ERR_INVALID, 1, 6, "name", "empty"},
        {"name: [c]\nnodes: []\n", ESP_ERR_INVALID, 1, 7, "name", "a list, but a single value"},
        {"name: c\nnodes: []\n", ESP_ERR_INVALID, 2, 8, "nodes", "the list of nodes is empty"},
        {"name: c\nnodes: 7\n", ESP_ERR_INVALID, 2, 8, "nodes", "a list of nodes is needed"},
        {"name: c\nnodes: [7]\n", ESP_ERR_INVALID, 2, 9, "nodes[0]", "a mapping ('name: ...')"},
        {"name: c\nnodes: [{name: a}]\ngroups: []\n", ESP_ERR_INVALID, 3, 1, "groups",
         "'groups' is not known here"},
        {"name: c\ngroups: []\nnetwork: {}\n", ESP_ERR_INVALID, 3, 1, "network", "not known here"},
        {"name: c\nmax_groups: 0\nnodes: []\n", ESP_ERR_INVALID, 2, 13, "max_groups",
         "whole number from 1"},
        {"name: c\nmax_groups: 99999999999\nnodes: []\n", ESP_ERR_INVALID, 2, 13, "max_groups",
         "whole number from 1"},
        {"name: c\nmax_groups: 2x\nnodes: []\n", ESP_ERR_INVALID, 2, 13, "max_groups",
         "whole number from 1"},
        {NODE "{kind: pcie, bandwith: 12 GB/s, latency: 1 us}\n", ESP_ERR_INVALID, 5, 25,
         "nodes[0].intra.bandwith", "is 'bandwidth' meant?"},
        {NODE "{kind: pcie, latency: 1 us}\n", ESP_ERR_INVALID, 5, 12, "nodes[0].intra",
         "'bandwidth' is missing"},
        {NODE "{kind: pcie, bandwidth: 12 GB/s}\n", ESP_ERR_INVALID, 5, 12, "nodes[0].intra",
         "'latency' is missing"},
        {NODE "{kind: pci, bandwidth: 12 GB/s, latency: 1 us}\n", ESP_ERR_INVALID, 5, 19,
         "nodes[0].intra.kind", "'pci' is none of nvlink, xgmi,"},
        {NODE "{kind: pcie, kind: nvlink}\n", ESP_ERR_INVALID, 5, 25, "", "given twice"},
    };
    CHECK_ALL(table);
}

#define INTRA(bandwidth, latency)                                                                  \
    NODE "{kind: pcie, bandwidth: " bandwidth ", latency: " latency "}\n"

static void test_quantities(void **state)
{
    (void)state;
    static const char bw[] = "nodes[0].intra.bandwidth", lat[] = "nodes[0].intra.latency";
    static const wrong_t table[] = {
        {INTRA("12", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "'12' has no unit; write a bandwidth"},
        {INTRA("12", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "'25 Gbit/s' or '300 GB/s'"},
        {INTRA("12 gb/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "unit 'gb/s' is not known"},
        {INTRA("12 GiB", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "is a size, but a bandwidth"},
        {INTRA("12 us", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "is a time, but a bandwidth"},
        {INTRA("1 TFLOP/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "is a speed, but a bandwidth"},
        {INTRA("-1 GB/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "is negative"},
        {INTRA("0 GB/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "too small"},
        {INTRA("3 bit/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "too small"},
        {INTRA("2000 TB/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "too large"},
        {INTRA("999999999999999999 TB/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "too large"},
        {INTRA("1234567890123456789 B/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "18 digits"},
        {INTRA("0.0000000000000000001 B/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "18 digits"},
        {INTRA("fast", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "not a number with a unit"},
        {INTRA(". GB/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "not a number with a unit"},
        {INTRA("1.5.2 GB/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "unit '.2 GB/s' is not known"},
        {INTRA("1e9 B/s", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "unit 'e9 B/s' is not known"},
        {INTRA("[1]", "1 us"), ESP_ERR_INVALID, 5, 36, bw, "a single value is needed"},
        {INTRA("1 GB/s", "1"), ESP_ERR_INVALID, 5, 53, lat, "no unit; write a time such as '5 us'"},
        {INTRA("1 GB/s", "1 GB"), ESP_ERR_INVALID, 5, 53, lat, "is a size, but a time"},
        {INTRA("1 GB/s", "1 ps/B"), ESP_ERR_INVALID, 5, 53, lat, "is a time per byte, but a time"},
        {INTRA("1 GB/s", "1001 s"), ESP_ERR_INVALID, 5, 53, lat, "too large"},
        {INTRA("1 GB/s", "-1 us"), ESP_ERR_INVALID, 5, 53, lat, "is negative"},
    };
    CHECK_ALL(table);
}

/* ---- devices and nodes ----------------------------------------------------------------------- */

#define DEVICES(text) "name: c\nnodes:\n  - name: a\n    devices: " text "\n"

static void test_devices(void **state)
{
    (void)state;
    static const wrong_t table[] = {
        {DEVICES("[]"), ESP_ERR_INVALID, 4, 14, "nodes[0].devices", "list of devices is empty"},
        {"name: c\nnodes: [{name: a}]\n", ESP_ERR_INVALID, 2, 9, "nodes[0]",
         "'devices' is missing"},
        {DEVICES("[{count: 2}]"), ESP_ERR_INVALID, 4, 15, "nodes[0].devices[0]",
         "'type' is missing"},
        {DEVICES("[{type: rtx3900}]"), ESP_ERR_INVALID, 4, 22, "nodes[0].devices[0].type",
         "no device type 'rtx3900' is known; is 'rtx3090' meant?"},
        {DEVICES("[{type: zzzzzzzzzzzzzzzzz}]"), ESP_ERR_INVALID, 4, 22, NULL,
         "no device type 'zzzzzzzzzzzzzzzzz' is known"},
        {DEVICES("[{type: t4, count: 0}]"), ESP_ERR_INVALID, 4, 33, "nodes[0].devices[0].count",
         "from 1 to 1024"},
        {DEVICES("[{type: t4, count: 1024}, {type: t4}]"), ESP_ERR_LIMIT, 4, 40,
         "nodes[0].devices[1]", "more than 1024 devices"},
        {DEVICES("[{type: t4, memory: 17 GiB}]"), ESP_ERR_INVALID, 4, 15, "nodes[0].devices[0]",
         "a t4 has 16"},
        {DEVICES("[{type: t4, memory: 0 B}]"), ESP_ERR_INVALID, 4, 34, NULL, "too small"},
        {DEVICES("[{type: t4, memory: -2 GiB}]"), ESP_ERR_INVALID, 4, 34, NULL, "is negative"},
        {DEVICES("[{type: t4, memory: 2 GB/s}]"), ESP_ERR_INVALID, 4, 34, NULL,
         "is a bandwidth, but a size"},
        {DEVICES("[{type: t4, memory: 9999999 TiB}]"), ESP_ERR_INVALID, 4, 34, NULL, "too large"},
        {DEVICES("[{type: t4, memory: 1 GiB, reserve: 1 GiB}]"), ESP_ERR_INVALID, 4, 50,
         "nodes[0].devices[0].reserve", "says it twice"},
        {DEVICES("[{type: t4, reserve: 16 GiB}]"), ESP_ERR_INVALID, 4, 35,
         "nodes[0].devices[0].reserve", "leaves nothing"},
        {DEVICES("[{type: t4, forward: maybe}]"), ESP_ERR_INVALID, 4, 35, NULL,
         "'maybe' is none of false or true"},
        {DEVICES("[{type: t4}]\n  - name: a\n    devices: [{type: t4}]"), ESP_ERR_INVALID, 5, 5,
         "nodes[1]", "the node 'a' exists already"},
        {DEVICES("[{type: t4}]\n    count: 0"), ESP_ERR_INVALID, 5, 12, "nodes[0].count",
         "from 1 to 1024"},
        {DEVICES("[{type: t4, count: 2}]"), ESP_ERR_INVALID, 3, 3, "nodes",
         "no links lead from 'a/gpu0' to 'a/gpu1'"},
        {"name: c\nreserve: 20 GiB\nnodes: [{name: a, devices: [{type: t4}]}]\n", ESP_ERR_INVALID,
         3, 29, "nodes[0].devices[0]", "leaves nothing"},
    };
    CHECK_ALL(table);
}

#define TYPE(text) "name: c\ntypes:\n  x: {" text "}\nnodes: [{name: a, devices: [{type: x}]}]\n"

static void test_types(void **state)
{
    (void)state;
    static const wrong_t table[] = {
        {"name: c\ntypes: 3\nnodes: []\n", ESP_ERR_INVALID, 2, 8, "types", "a mapping from names"},
        {TYPE("memory: 1 GiB, memory_bandwidth: 1 GB/s"), ESP_ERR_INVALID, 3, 6, "types.x",
         "'fp32' is missing"},
        {TYPE("fp32: 1 TFLOP/s, memory_bandwidth: 1 GB/s"), ESP_ERR_INVALID, 3, 6, "types.x",
         "'memory' is missing"},
        {TYPE("fp32: 1 TFLOP/s, memory: 1 GiB"), ESP_ERR_INVALID, 3, 6, "types.x",
         "'memory_bandwidth' is missing"},
        {TYPE("fp32: 1 TB/s"), ESP_ERR_INVALID, 3, 13, "types.x.fp32", "a speed is needed"},
        {TYPE("fp32: 0 FLOP/s"), ESP_ERR_INVALID, 3, 13, "types.x.fp32", "too small"},
        {TYPE("fp32: 2000 PFLOP/s"), ESP_ERR_INVALID, 3, 13, "types.x.fp32", "too large"},
        {TYPE("kind: tpu"), ESP_ERR_INVALID, 3, 13, "types.x.kind", "none of gpu or cpu"},
        {TYPE("fp23: 1 TFLOP/s"), ESP_ERR_INVALID, 3, 7, "types.x.fp23", "is 'fp32' meant?"},
        {"name: c\ntypes:\n  a b: {fp32: 1 TFLOP/s, memory: 1 GB, memory_bandwidth: 1 GB/s}\n"
         "nodes: []\n",
         ESP_ERR_INVALID, 3, 8, "types.a b", "cannot name a device type"},
    };
    CHECK_ALL(table);
}

/* ---- between nodes --------------------------------------------------------------------------- */

/* Two nodes of one GPU that reach their hosts, in eight lines. */
#define TWO                                                                                        \
    "name: c\nnodes:\n  - name: pc\n    count: 2\n    devices: [{type: t4}]\n"                     \
    "    host: {bandwidth: 12 GB/s, latency: 1 us}\n"

static void test_network(void **state)
{
    (void)state;
    static const wrong_t table[] = {
        {TWO "network: 3\n", ESP_ERR_INVALID, 7, 10, "network", "a network is a mapping"},
        {TWO "network: {}\n", ESP_ERR_INVALID, 7, 10, "network", "'kind' is missing"},
        {TWO "network: {kind: torus}\n", ESP_ERR_INVALID, 7, 17, "network.kind",
         "none of switch or fat_tree"},
        {TWO "network: {kind: switch}\n", ESP_ERR_INVALID, 7, 10, "network", "has no NICs"},
        {TWO "network: {kind: switch, bandwidth: 1 Gbit/s}\n", ESP_ERR_INVALID, 7, 10, "network",
         "'latency' is missing"},
        {TWO "network: {kind: switch, rails: true}\n", ESP_ERR_INVALID, 7, 25, "network.rails",
         "not known here"},
        {TWO "network: {kind: switch, nodes: [pc7]}\n", ESP_ERR_INVALID, 7, 33, "network.nodes[0]",
         "there is no node 'pc7'"},
        {TWO "network: {kind: switch, nodes: [pc, pc1]}\n", ESP_ERR_INVALID, 7, 37,
         "network.nodes[1]", "'pc1' is twice"},
        {TWO "network: {kind: switch, name: pc0/host, bandwidth: 1 GB/s, latency: 1 us}\n",
         ESP_ERR_INVALID, 7, 10, "network", "'pc0/host' exists already"},
        {TWO "network: {kind: fat_tree, bandwidth: 1 GB/s, latency: 1 us}\n", ESP_ERR_INVALID, 7,
         10, "network", "'nodes_per_leaf' is missing"},
        {TWO "network: {kind: fat_tree, nodes_per_leaf: 1}\n", ESP_ERR_INVALID, 7, 10, "network",
         "'uplink' is missing"},
        {TWO "network: {kind: fat_tree, nodes_per_leaf: 1, uplink: {latency: 1 us}}\n",
         ESP_ERR_INVALID, 7, 54, "network.uplink", "either 'bandwidth' or 'oversubscription'"},
        {TWO "network: {kind: fat_tree, nodes_per_leaf: 1, uplink: {latency: 1 us,\n"
             "  oversubscription: 0.5}}\n",
         ESP_ERR_INVALID, 8, 21, "network.uplink.oversubscription", "not a number from 1"},
        {TWO "  - {name: b, devices: [{type: t4, count: 2}], nics: {bandwidth: 1 GB/s,\n"
             "     latency: 0 ns, count: 2, bus: {bandwidth: 1 GB/s, latency: 0 ns}}}\n"
             "network: {kind: fat_tree, bandwidth: 1 B/s, latency: 1 us, nodes_per_leaf: 1,\n"
             "  rails: true, uplink: {latency: 1 us, bandwidth: 1 GB/s}}\n",
         ESP_ERR_INVALID, 9, 10, "network", "'pc0' has 1 and 'b' has 2"},
        {TWO "network: {kind: fat_tree, bandwidth: 1 B/s, latency: 1 us, nodes_per_leaf: 1,\n"
             "  uplink: {latency: 1 us, oversubscription: 1000}}\n",
         ESP_ERR_INVALID, 7, 10, "network", "uplinks is out of range"},
        {"name: c\nnodes: [{name: a, devices: [{type: t4}]}, {name: b, devices: [{type: t4}]}]\n"
         "network: {kind: switch, bandwidth: 1 GB/s, latency: 1 us}\n",
         ESP_ERR_INVALID, 2, 9, "nodes[0]", "how the devices of 'a' reach the network"},
        {"name: c\nnodes: [{name: a, devices: [{type: t4}], nics: {bandwidth: 1 GB/s,\n"
         " latency: 1 us}}]\nnetwork: {kind: switch}\n",
         ESP_ERR_INVALID, 2, 9, "nodes[0]", "how the devices of 'a' reach the network"},
        {TWO, ESP_ERR_INVALID, 3, 3, "nodes", "no links lead from 'pc0/gpu0' to 'pc1/gpu0'"},
    };
    CHECK_ALL(table);
}

#define NICS(text) "name: c\nnodes:\n  - name: a\n    devices: [{type: t4}]\n    nics: " text "\n"

static void test_nics(void **state)
{
    (void)state;
    static const wrong_t table[] = {
        {NICS("{bandwidth: 1 GB/s}"), ESP_ERR_INVALID, 5, 11, "nodes[0].nics", "'latency' is"},
        {NICS("{bandwidth: 1 GB/s, latency: 1 us, at: cpu}"), ESP_ERR_INVALID, 5, 50,
         "nodes[0].nics.at", "none of host or device"},
        {NICS("{bandwidth: 1 GB/s, latency: 1 us, at: device}"), ESP_ERR_INVALID, 5, 11,
         "nodes[0].nics", "add 'bus', or 'host'"},
        {NICS("{bandwidth: 1 GB/s, latency: 1 us, count: 2,\n"
              "           bus: {bandwidth: 1 GB/s, latency: 0 ns}}"),
         ESP_ERR_INVALID, 5, 11, "nodes[0].nics", "2 NICs at 1 devices"},
        {NICS("{bandwidth: 1 GB/s, latency: 1 us, bus: {bandwith: 1 GB/s}}"), ESP_ERR_INVALID, 5,
         52, "nodes[0].nics.bus.bandwith", "is 'bandwidth' meant?"},
        {NICS("{bandwidth: 900 TB/s, latency: 1 us, count: 2, at: host}"), ESP_ERR_INVALID, 5, 11,
         "nodes[0].nics", "joint bandwidth"},
        {NODE "{kind: pcie, bandwidth: 1 GB/s, latency: 0 ns}\n"
              "    host: {bandwidth: 1 GB/s, latency: 0 ns}\n",
         ESP_ERR_INVALID, 6, 11, "nodes[0].host", "to the host already"},
    };
    CHECK_ALL(table);
}

static void test_links(void **state)
{
    (void)state;
    static const wrong_t table[] = {
        {TWO "links: [{from: pc0}]\n", ESP_ERR_INVALID, 7, 9, "links[0]", "'to' is missing"},
        {TWO "links: [{from: pc0, to: pc2}]\n", ESP_ERR_INVALID, 7, 25, "links[0].to",
         "there is no 'pc2'"},
        {TWO "links: [{from: pc0, to: pc0/hots}]\n", ESP_ERR_INVALID, 7, 25, "links[0].to",
         "is 'pc0/host' meant?"},
        {TWO "links: [{from: pc0, to: pc0, bandwidth: 1 GB/s, latency: 1 us}]\n", ESP_ERR_INVALID,
         7, 9, "links[0]", "starts and ends at 'pc0/host'"},
        {TWO "links: [{from: pc0, to: pc1, bandwidth: 1 GB/s, latency: 1 us, oneway: true}]\n",
         ESP_ERR_INVALID, 3, 3, "nodes", "no links lead from 'pc1/gpu0' to 'pc0/gpu0'"},
        {TWO "links:\n  - {from: pc0, to: pc1, bandwidth: 1 GB/s, latency: 1 us, name: x}\n"
             "  - {from: pc0, to: pc1, bandwidth: 1 GB/s, latency: 1 us, name: x}\n",
         ESP_ERR_INVALID, 9, 5, "links[1]", "exists already"},
        {TWO "links: [{from: pc0, to: pc1, bandwidth: 1 GB/s, latency: 1 us, name: 'a b'}]\n",
         ESP_ERR_INVALID, 7, 9, "links[0]", "cannot name a link"},
        {TWO "links: [[pc0, pc1]]\n", ESP_ERR_INVALID, 7, 9, "links[0]", "a mapping"},
        {TWO "network: [[x]]\n", ESP_ERR_INVALID, 7, 11, "network[0]", "is a mapping"},
        {TWO "switches: [a, a]\n", ESP_ERR_INVALID, 7, 15, "switches[1]", "'a' exists already"},
        {TWO "switches: [[a]]\n", ESP_ERR_INVALID, 7, 12, "switches[0]", "a single value"},
    };
    CHECK_ALL(table);
}

/* ---- matrix and graph ------------------------------------------------------------------------ */

#define GROUPS "name: c\ngroups:\n  - {name: a, type: t4}\n  - {name: b, type: t4}\n"

static void test_matrix(void **state)
{
    (void)state;
    static const wrong_t table[] = {
        {GROUPS, ESP_ERR_INVALID, 1, 1, "", "'inter' is missing"},
        {GROUPS "inter: {bandwidth: 1 GB/s}\n", ESP_ERR_INVALID, 5, 8, "inter", "'latency' is"},
        {GROUPS "inter: {bandwidth: [1 GB/s], latency: 0 ns}\n", ESP_ERR_INVALID, 5, 20,
         "inter.bandwidth", "a list of 2 rows"},
        {GROUPS "inter: {bandwidth: [1 GB/s, 2 GB/s], latency: 0 ns}\n", ESP_ERR_INVALID, 5, 21,
         "inter.bandwidth[0]", "a list of 2 values"},
        {GROUPS "inter:\n  latency: 0 ns\n  bandwidth:\n    - ['-', 1 GB/s]\n    - [2 GB/s, '-']\n",
         ESP_ERR_INVALID, 9, 8, "inter.bandwidth[1][0]", "not symmetric"},
        {GROUPS
         "inter:\n  latency: 0 ns\n  bandwidth:\n    - ['-', 1 GB/s]\n    - [1 GB/s, 1 GB/s]\n",
         ESP_ERR_INVALID, 9, 16, "inter.bandwidth[1][1]", "diagonal"},
        {GROUPS "inter:\n  latency: 0 ns\n  bandwidth:\n    - ['-', 1]\n    - [1, '-']\n",
         ESP_ERR_INVALID, 8, 13, "inter.bandwidth[0][1]", "no unit"},
        {"name: c\ngroups: [[a]]\n", ESP_ERR_INVALID, 2, 10, "groups[0]", "a mapping"},
        {GROUPS "inter: [1]\n", ESP_ERR_INVALID, 5, 8, "inter", "a mapping"},
        {"name: c\ngroups: [{name: a, type: t4, count: 2}]\n", ESP_ERR_INVALID, 2, 10, "groups[0]",
         "'intra' is missing"},
        {"name: c\ngroups: [{name: a, type: t4}, {name: a, type: t4}]\n", ESP_ERR_INVALID, 2, 31,
         "groups[1]", "the node 'a' exists already"},
    };
    CHECK_ALL(table);
}

#define GRAPH                                                                                      \
    "name: c\ngraph:\n  nodes: [n]\n  vertices: [{name: h, kind: hub, node: n}]\n"                 \
    "  devices:\n    - {name: x, type: t4, node: n, memory: 1 GiB, hub: h}\n"                      \
    "    - {name: y, type: t4, node: n, memory: 2 GiB}\n"

static void test_graph(void **state)
{
    (void)state;
    static const wrong_t table[] = {
        {GRAPH, ESP_ERR_INVALID, 3, 3, "graph", "no links lead from 'x' to 'y'"},
        {"name: c\ngraph: {devices: []}\n", ESP_ERR_INVALID, 2, 8, "graph", "'nodes' is missing"},
        {"name: c\ngraph: {nodes: [n], vertices: [[v]]}\n", ESP_ERR_INVALID, 2, 32,
         "graph.vertices[0]", "a mapping"},
        {"name: c\ngraph: {nodes: [n], devices: [d]}\n", ESP_ERR_INVALID, 2, 31, "graph.devices[0]",
         "a mapping"},
        {"name: c\ngraph: {nodes: [n]}\n", ESP_ERR_INVALID, 2, 8, "graph", "'devices' is missing"},
        {"name: c\ngraph: {nodes: [n], devices: [{name: x, type: t4, node: n}]}\n", ESP_ERR_INVALID,
         2, 31, "graph.devices[0]", "'memory' is missing"},
        {"name: c\ngraph: {nodes: [n], devices: [{name: x, type: t4, node: m, memory: 1 B}]}\n",
         ESP_ERR_INVALID, 2, 57, "graph.devices[0].node", "there is no node 'm'"},
        {"name: c\ngraph: {nodes: [n], vertices: [{name: v, kind: device}]}\n", ESP_ERR_INVALID, 2,
         48, "graph.vertices[0].kind", "none of host, nic, switch or hub"},
        {"name: c\ngraph: {nodes: [n], vertices: [{name: v, kind: nic}],\n"
         "  devices: [{name: x, type: t4, node: n, memory: 1 B, hub: v}]}\n",
         ESP_ERR_INVALID, 3, 13, "graph.devices[0]", "hub is not a hub"},
        {GRAPH "  links: [{from: x, to: z, bandwidth: 1 B/s, latency: 0 ns}]\n", ESP_ERR_INVALID, 8,
         25, "graph.links[0].to", "there is no vertex 'z'"},
        {GRAPH "  links: [[x, y]]\n", ESP_ERR_INVALID, 8, 11, "graph.links[0]", "a mapping"},
        {GRAPH "  groups: [x]\n", ESP_ERR_INVALID, 8, 12, "graph.groups[0]", "a mapping"},
        {GRAPH "  groups: [{name: g, devices: [x, y]}]\n", ESP_ERR_INVALID, 8, 12,
         "graph.groups[0]", "differ in type or usable memory"},
        {GRAPH "  groups: [{name: g, devices: [x, x]}]\n", ESP_ERR_INVALID, 8, 12,
         "graph.groups[0]", "'x' is twice"},
        {GRAPH "  groups: [{name: g, devices: [h]}]\n", ESP_ERR_INVALID, 8, 12, "graph.groups[0]",
         "not a device"},
        {GRAPH "  groups: [{name: g, devices: [x]}, {name: k, devices: [x]}]\n", ESP_ERR_INVALID, 8,
         37, "graph.groups[1]", "is in the group 'g' already"},
        {GRAPH "  groups: [{name: g, devices: [x]}]\n", ESP_ERR_INVALID, 3, 3, "graph",
         "'y' is in no group"},
    };
    CHECK_ALL(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_yaml),        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_size_limits), cmocka_unit_test(test_files),
        cmocka_unit_test(test_keys),        cmocka_unit_test(test_quantities),
        cmocka_unit_test(test_devices),     cmocka_unit_test(test_types),
        cmocka_unit_test(test_network),     cmocka_unit_test(test_nics),
        cmocka_unit_test(test_links),       cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
