/* The builder's refusals, what it leaves behind, and random clusters. */
#include "support.h"
#include "espalier/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the builder --------------------------------------------------------------------------- */

typedef struct fixture {
    esp_cluster_builder_t *b;
    int32_t node, type, hub, device;
    esp_diag_t diag;
} fixture_t;

static fixture_t make(void)
{
    fixture_t f = {0};
    esp_cluster_device_t d = {.name = "d", .memory_bytes = 1, .hub = -1};
    test_assert_ok(esp_cluster_builder_create("c", NULL, &f.b, &f.diag), &f.diag);
    test_assert_ok(esp_cluster_builder_add_node(f.b, "n", &f.node, &f.diag), &f.diag);
    test_assert_ok(esp_cluster_builder_use_type(f.b, "t4", &f.type, &f.diag), &f.diag);
    test_assert_ok(
        esp_cluster_builder_add_vertex(f.b, ESP_VERTEX_HUB, "h", f.node, &f.hub, &f.diag), &f.diag);
    d.node = f.node;
    d.type = f.type;
    test_assert_ok(esp_cluster_builder_add_device(f.b, &d, &f.device, &f.diag), &f.diag);
    return f;
}

/* A refused call leaves the builder as it was: it still makes the one-device cluster. */
static void finish(fixture_t *f)
{
    esp_cluster_t *c;
    test_assert_ok(esp_cluster_builder_freeze(f->b, 0, &c, &f->diag), &f->diag);
    test_assert_ok(esp_cluster_check(c, &f->diag), &f->diag);
    assert_int_equal(c->n_devices, 1);
    assert_int_equal(c->n_vertices, 2);
    assert_int_equal(c->n_links, 0);
    assert_int_equal(c->n_types, 1);
    assert_string_equal(c->vertex_name[0], "d"); /* devices come first, whenever they were added */
    esp_cluster_destroy(c);
    esp_cluster_builder_destroy(f->b);
}

static void test_names(void **state)
{
    (void)state;
    fixture_t f = make();
    char name[ESP_CLUSTER_MAX_NAME + 2];
    int32_t id;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    esp_cluster_builder_t *none;
    test_assert_fails(esp_cluster_builder_create(name, NULL, &none, &f.diag), &f.diag,
                      ESP_ERR_INVALID, "1 to 95");
    test_assert_fails(esp_cluster_builder_create("", NULL, &none, &f.diag), &f.diag,
                      ESP_ERR_INVALID, "1 to 95");
    test_assert_fails(esp_cluster_builder_create(NULL, NULL, &none, &f.diag), &f.diag,
                      ESP_ERR_INVALID, "cannot name a cluster");
    test_assert_fails(esp_cluster_builder_add_node(f.b, "a\"b", &id, &f.diag), &f.diag,
                      ESP_ERR_INVALID, "cannot name a node");
    test_assert_fails(esp_cluster_builder_add_node(f.b, "n", &id, &f.diag), &f.diag,
                      ESP_ERR_INVALID, "exists already");
    test_assert_fails(
        esp_cluster_builder_add_vertex(f.b, ESP_VERTEX_NIC, "d", f.node, &id, &f.diag), &f.diag,
        ESP_ERR_INVALID, "the nic 'd' exists already");
    test_assert_fails(
        esp_cluster_builder_add_vertex(f.b, ESP_VERTEX_DEVICE, "e", f.node, &id, &f.diag), &f.diag,
        ESP_ERR_INVALID, "cannot be added");
    test_assert_fails(esp_cluster_builder_add_vertex(f.b, ESP_VERTEX_NIC, "e", 5, &id, &f.diag),
                      &f.diag, ESP_ERR_INVALID, "no known node");
    finish(&f);
}

static void test_devices(void **state)
{
    (void)state;
    fixture_t f = make();
    int32_t id;
    const esp_cluster_device_t good = {
        .name = "e", .type = f.type, .node = f.node, .memory_bytes = 1, .hub = f.hub};
    esp_cluster_device_t d = good;
#define REFUSED(part)                                                                              \
    test_assert_fails(esp_cluster_builder_add_device(f.b, &d, &id, &f.diag), &f.diag,              \
                      ESP_ERR_INVALID, part);                                                      \
    d = good
    d.type = 1;
    REFUSED("no known type");
    d.node = -1;
    REFUSED("no known node");
    d.node = 1;
    REFUSED("no known node");
    d.hub = f.device;
    REFUSED("not a hub");
    d.hub = 7;
    REFUSED("not a hub");
    d.memory_bytes = 0;
    REFUSED("out of range");
    d.memory_bytes = INT64_C(17) << 30;
    REFUSED("a t4 has 16");
    d.name = "d";
    REFUSED("exists already");
    finish(&f);
}

static void test_types(void **state)
{
    (void)state;
    fixture_t f = make();
    const esp_device_type_t good = {.name = "x",
                                    .kind = "gpu",
                                    .peak_flops = {1},
                                    .source = "",
                                    .memory_bytes = 1,
                                    .memory_bytes_per_s = 1};
    esp_device_type_t t = good;
    int32_t id;
#define REFUSED_TYPE(part)                                                                         \
    test_assert_fails(esp_cluster_builder_add_type(f.b, &t, &id, &f.diag), &f.diag,                \
                      ESP_ERR_INVALID, part);                                                      \
    t = good
    t.kind = "tpu";
    REFUSED_TYPE("neither gpu nor cpu");
    t.peak_flops[ESP_PRECISION_FP32] = 0;
    REFUSED_TYPE("a peak");
    t.peak_flops[ESP_PRECISION_BF16] = 0.5;
    REFUSED_TYPE("a peak");
    t.peak_flops[ESP_PRECISION_BF16] = NAN;
    REFUSED_TYPE("a peak");
    t.memory_bytes = 0;
    REFUSED_TYPE("the memory is");
    t.memory_bytes_per_s = INFINITY;
    REFUSED_TYPE("memory bandwidth");
    t.launch_ns = -1;
    REFUSED_TYPE("launch");
    t.comm_compute_s_per_byte = NAN;
    REFUSED_TYPE("comm_compute");
    t.source = "a\nb";
    REFUSED_TYPE("control character");
    t.source = NULL;
    REFUSED_TYPE("control character");
    t.name = "t4";
    REFUSED_TYPE("exists already");
    char name[16];
    for (int32_t i = 1; i < ESP_CLUSTER_MAX_TYPES; i++) {
        (void)snprintf(name, sizeof name, "x%d", (int)i);
        t.name = name;
        test_assert_ok(esp_cluster_builder_add_type(f.b, &t, &id, &f.diag), &f.diag);
    }
    t = good;
    test_assert_fails(esp_cluster_builder_add_type(f.b, &t, &id, &f.diag), &f.diag, ESP_ERR_LIMIT,
                      "more than 256 device types");
    finish(&f); /* types that no device uses are left out */
}

static void test_links(void **state)
{
    (void)state;
    fixture_t f = make();
    const esp_cluster_link_t good = {.src = 0, .dst = 1, .bytes_per_s = 1};
    esp_cluster_link_t l = good;
#define REFUSED_LINK(part)                                                                         \
    test_assert_fails(esp_cluster_builder_add_link(f.b, &l, NULL, &f.diag), &f.diag,               \
                      ESP_ERR_INVALID, part);                                                      \
    test_assert_fails(esp_cluster_builder_add_cable(f.b, &l, &f.diag), &f.diag, ESP_ERR_INVALID,   \
                      part);                                                                       \
    l = good
    l.src = 2;
    REFUSED_LINK("does not exist");
    l.dst = -1;
    REFUSED_LINK("does not exist");
    l.dst = 0;
    REFUSED_LINK("starts and ends at 'h'");
    l.bytes_per_s = 0;
    REFUSED_LINK("bandwidth");
    l.bytes_per_s = NAN;
    REFUSED_LINK("bandwidth");
    l.bytes_per_s = 1.5;
    REFUSED_LINK("bandwidth");
    l.bytes_per_s = 2e15;
    REFUSED_LINK("bandwidth");
    l.latency_ns = -1;
    REFUSED_LINK("latency");
    l.name = "";
    REFUSED_LINK("cannot name a link");
    finish(&f);

    f = make();
    int32_t id;
    l.name = "x<"; /* the way back of a cable that is to be called x */
    test_assert_ok(esp_cluster_builder_add_link(f.b, &l, &id, &f.diag), &f.diag);
    l.name = "x";
    test_assert_fails(esp_cluster_builder_add_cable(f.b, &l, &f.diag), &f.diag, ESP_ERR_INVALID,
                      "'x<' exists already");
    l.name = NULL;
    for (int32_t i = 1; i + 1 < ESP_CLUSTER_MAX_LINKS; i++)
        test_assert_ok(esp_cluster_builder_add_link(f.b, &l, &id, &f.diag), &f.diag);
    test_assert_fails(esp_cluster_builder_add_cable(f.b, &l, &f.diag), &f.diag, ESP_ERR_LIMIT,
                      "more than 65536 directed links");
    test_assert_ok(esp_cluster_builder_add_link(f.b, &l, &id, &f.diag), &f.diag);
    test_assert_fails(esp_cluster_builder_add_link(f.b, &l, &id, &f.diag), &f.diag, ESP_ERR_LIMIT,
                      "more than 65536 directed links");
    assert_int_equal(id, ESP_CLUSTER_MAX_LINKS - 1);
    esp_cluster_builder_destroy(f.b);
    esp_cluster_builder_destroy(NULL);
}

static void test_freeze(void **state)
{
    (void)state;
    esp_cluster_builder_t *b;
    esp_cluster_t *c;
    esp_diag_t diag = {0};
    test_assert_ok(esp_cluster_builder_create("c", NULL, &b, &diag), &diag);
    test_assert_fails(esp_cluster_builder_freeze(b, 0, &c, &diag), &diag, ESP_ERR_INVALID,
                      "no devices");
    test_assert_fails(esp_cluster_builder_freeze(b, -1, &c, &diag), &diag, ESP_ERR_ARGUMENT,
                      "max_groups");
    int32_t none = 0;
    test_assert_fails(esp_cluster_builder_add_group(b, "g", 0, &none, &diag), &diag,
                      ESP_ERR_INVALID, "no devices");
    test_assert_fails(esp_cluster_builder_add_group(b, "g", 1, &none, &diag), &diag,
                      ESP_ERR_INVALID, "not a device");
    int32_t id;
    for (int32_t i = 0; i < ESP_CLUSTER_MAX_VERTICES; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "v%d", (int)i);
        test_assert_ok(esp_cluster_builder_add_vertex(b, ESP_VERTEX_SWITCH, name, -1, &id, &diag),
                       &diag);
        test_assert_ok(esp_cluster_builder_add_node(b, name, &id, &diag), &diag);
    }
    test_assert_fails(esp_cluster_builder_add_vertex(b, ESP_VERTEX_SWITCH, "w", -1, &id, &diag),
                      &diag, ESP_ERR_LIMIT, "more than 8192 devices, hosts");
    test_assert_fails(esp_cluster_builder_add_node(b, "w", &id, &diag), &diag, ESP_ERR_LIMIT,
                      "more than 8192 nodes");
    esp_cluster_builder_destroy(b);
}

/* ---- random clusters ------------------------------------------------------------------------- */

static esp_cluster_t *draw(const esp_cluster_random_opts_t *opts)
{
    esp_cluster_t *c = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(esp_cluster_random(opts, NULL, &c, &diag), &diag);
    test_assert_ok(esp_cluster_check(c, &diag), &diag);
    return c;
}

static void check_inter(const esp_cluster_t *c)
{
    for (int32_t s = 0; s < c->n_devices; s++)
        for (int32_t d = 0; d < c->n_devices; d++) {
            double width = esp_cluster_route_bytes_per_s(c, s, d);
            if (s != d && c->device_group[s] == c->device_group[d])
                assert_true(width == 8e9 || width == 20e9);
            else if (s != d)
                assert_true(width == 5e9 || width == 2.81e9);
        }
}

static void test_training_clusters(void **state)
{
    (void)state;
    esp_cluster_random_opts_t opts = esp_cluster_random_opts_default();
    int32_t by_groups[5] = {0}, most = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        opts.seed = seed;
        esp_cluster_t *c = draw(&opts);
        assert_true(c->n_groups >= 2 && c->n_groups <= 4 && c->n_devices <= 23);
        for (int32_t g = 0; g < c->n_groups; g++) {
            int32_t n = c->group_offset[g + 1] - c->group_offset[g];
            assert_true(n == 2 || n == 3 || n == 4 || n == 6 || n == 8);
        }
        check_inter(c);
        by_groups[c->n_groups]++;
        most = c->n_devices > most ? c->n_devices : most;
        esp_cluster_destroy(c);
    }
    assert_true(by_groups[2] > 150 && by_groups[3] > 60 && by_groups[4] > 30 && most > 16);
    /* A model that no cluster holds twice: only the number of devices and groups stops it. */
    opts.model_bytes = INT64_MAX;
    for (opts.seed = 0; opts.seed < 100; opts.seed++) {
        esp_cluster_t *c = draw(&opts);
        assert_true(c->n_groups == 4 || c->n_devices >= 16);
        esp_cluster_destroy(c);
    }
}

static void test_exact_clusters(void **state)
{
    (void)state;
    esp_cluster_random_opts_t opts = esp_cluster_random_opts_default();
    for (opts.exact_devices = 1; opts.exact_devices <= 16; opts.exact_devices++)
        for (opts.seed = 0; opts.seed < 20; opts.seed++) {
            esp_cluster_t *c = draw(&opts);
            assert_int_equal(c->n_devices, opts.exact_devices);
            assert_true(c->n_groups <= 4);
            check_inter(c);
            for (int32_t l = 0; l < c->n_links; l++)
                for (int32_t k = 0; k < l; k++)
                    if ((c->link_src[l] < c->n_devices) == (c->link_src[k] < c->n_devices))
                        assert_true(c->link_bytes_per_s[l] == c->link_bytes_per_s[k]);
            esp_cluster_destroy(c);
        }
}

static void test_random_is_a_function_of_the_seed(void **state)
{
    (void)state;
    char first[65], again[65], other[65];
    esp_diag_t diag = {0};
    esp_cluster_random_opts_t opts = esp_cluster_random_opts_default();
    char *out[3] = {first, again, other};
    for (int32_t i = 0; i < 3; i++) {
        opts.seed = i < 2 ? 7 : 8;
        esp_cluster_t *c = draw(&opts);
        assert_string_equal(c->name, i < 2 ? "random-7" : "random-8");
        test_assert_ok(esp_cluster_hash(c, NULL, out[i], &diag), &diag);
        esp_cluster_destroy(c);
    }
    assert_string_equal(first, again);
    assert_string_not_equal(first, other);
}

static void test_random_options(void **state)
{
    (void)state;
    esp_cluster_t *c;
    esp_diag_t diag = {0};
    const esp_cluster_random_opts_t good = esp_cluster_random_opts_default();
    esp_cluster_random_opts_t o = good;
#define REFUSED_OPTS(part)                                                                         \
    test_assert_fails(esp_cluster_random(&o, NULL, &c, &diag), &diag, ESP_ERR_ARGUMENT, part);     \
    o = good
    o.struct_size = 0;
    REFUSED_OPTS("struct_size");
    o.model_bytes = -1;
    REFUSED_OPTS("model_bytes");
    o.max_groups = 0;
    REFUSED_OPTS("max_groups");
    o.max_groups = 65;
    REFUSED_OPTS("max_groups");
    o.stop_devices = 0;
    REFUSED_OPTS("stop_devices");
    o.exact_devices = 17;
    REFUSED_OPTS("exact_devices");
    o.exact_devices = -1;
    REFUSED_OPTS("exact_devices");
}

static esp_status_t attempt_random(const esp_allocator_t *alloc, void *context)
{
    esp_cluster_t *c;
    esp_diag_t diag = {0};
    esp_status_t status = esp_cluster_random(context, alloc, &c, &diag);
    if (status == ESP_OK)
        esp_cluster_destroy(c);
    return status;
}

static void test_random_allocations(void **state)
{
    (void)state;
    esp_cluster_random_opts_t opts = esp_cluster_random_opts_default();
    opts.seed = 3;
    test_sweep_allocations(attempt_random, &opts, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_freeze),
        cmocka_unit_test(test_training_clusters),
        cmocka_unit_test(test_exact_clusters),
        cmocka_unit_test(test_random_is_a_function_of_the_seed),
        cmocka_unit_test(test_random_options),
        cmocka_unit_test(test_random_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
