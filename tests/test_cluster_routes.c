/* Routes against a naive twin: all simple paths of small random graphs, judged by the rule itself.
 */
#include "support.h"
#include "espalier/cluster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 5, MOST_VERTICES = 9, MOST_LINKS = 24 };

/* ---- the twin ------------------------------------------------------------------------------ */

/* Looks at every simple path from a source (a device or its hub) to one vertex. */
typedef struct twin {
    const esp_cluster_t *c;
    int32_t src, end;
    bool on_path[MOST_VERTICES];
    int32_t hops, last; /* of the best path so far; hops 0: none */
    double width;
} twin_t;

static bool may_leave(const twin_t *t, int32_t v)
{
    return v == t->src || v == t->c->device_hub[t->src] || t->c->vertex_forwards[v];
}

static void walk(twin_t *t, int32_t at, int32_t hops, double width, int32_t last)
{
    if (at == t->end) {
        bool better =
            t->hops == 0 || hops < t->hops ||
            (hops == t->hops && (width > t->width || (!(width < t->width) && last < t->last)));
        if (better) {
            t->hops = hops;
            t->width = width;
            t->last = last;
        }
        return;
    }
    if (!may_leave(t, at))
        return;
    t->on_path[at] = true;
    for (int32_t l = 0; l < t->c->n_links; l++)
        if (t->c->link_src[l] == at && !t->on_path[t->c->link_dst[l]])
            walk(t, t->c->link_dst[l], hops + 1, fmin(width, t->c->link_bytes_per_s[l]), l);
    t->on_path[at] = false;
}

/* The best way from device src to the vertex `end`: its length, width and last link. */
static void look(twin_t *t, const esp_cluster_t *c, int32_t src, int32_t end)
{
    *t = (twin_t){.c = c, .src = src, .end = end, .last = -1};
    int32_t hub = c->device_hub[src];
    if (hub >= 0)
        t->on_path[hub] = true; /* starting there anew is never longer */
    walk(t, src, 0, INFINITY, -1);
    if (hub >= 0) {
        memset(t->on_path, 0, sizeof t->on_path);
        t->on_path[src] = true;
        walk(t, hub, 0, INFINITY, -1);
    }
}

/* The route by the rule: the best last link, and before it the route to where that link begins. */
static int32_t twin_route(const esp_cluster_t *c, int32_t src, int32_t dst, int32_t *links)
{
    twin_t own, hub;
    look(&own, c, src, dst);
    bool use_hub = c->device_hub[dst] >= 0 && c->device_hub[dst] != c->device_hub[src];
    if (use_hub) {
        look(&hub, c, src, c->device_hub[dst]);
        use_hub = hub.hops > 0 &&
                  (own.hops == 0 || hub.hops < own.hops ||
                   (hub.hops == own.hops &&
                    (hub.width > own.width || (!(hub.width < own.width) && hub.last < own.last))));
    }
    int32_t last = use_hub ? hub.last : own.last, n = use_hub ? hub.hops : own.hops;
    for (int32_t k = n - 1; k >= 0; k--) {
        twin_t before;
        links[k] = last;
        look(&before, c, src, c->link_src[last]);
        last = before.last;
    }
    return n;
}

/* ---- random graphs --------------------------------------------------------------------------- */

static void add_vertices(esp_cluster_builder_t *b, esp_i_rng_t *rng, int32_t n_devices,
                         int32_t n_others)
{
    esp_diag_t diag = {0};
    char name[16];
    int32_t node, type, id, hub = -1;
    test_assert_ok(esp_cluster_builder_add_node(b, "n", &node, &diag), &diag);
    test_assert_ok(esp_cluster_builder_use_type(b, "t4", &type, &diag), &diag);
    for (int32_t i = 0; i < n_others; i++) {
        bool is_hub = i < 2 && esp_i_rng_below(rng, 3) == 0;
        (void)snprintf(name, sizeof name, "v%d", (int)i);
        test_assert_ok(
            esp_cluster_builder_add_vertex(b, is_hub ? ESP_VERTEX_HUB : ESP_VERTEX_SWITCH, name,
                                           esp_i_rng_below(rng, 2) == 0 ? node : -1, &id, &diag),
            &diag);
        hub = is_hub ? id : hub;
    }
    for (int32_t i = 0; i < n_devices; i++) {
        (void)snprintf(name, sizeof name, "d%d", (int)i);
        esp_cluster_device_t d = {.name = name,
                                  .type = type,
                                  .node = node,
                                  .memory_bytes = 1,
                                  .hub = esp_i_rng_below(rng, 2) == 0 ? hub : -1,
                                  .forwards = esp_i_rng_below(rng, 3) == 0};
        test_assert_ok(esp_cluster_builder_add_device(b, &d, &id, &diag), &diag);
    }
}

/* A small graph with few different bandwidths, so that ties of every sort occur; NULL: it fell
 * apart. */
static esp_cluster_t *random_graph(uint64_t seed)
{
    esp_i_rng_t rng;
    esp_diag_t diag = {0};
    esp_cluster_builder_t *b;
    esp_cluster_t *c = NULL;
    esp_i_rng_seed(&rng, seed);
    int32_t devices = 1 + (int32_t)esp_i_rng_below(&rng, MOST_DEVICES);
    int32_t others = (int32_t)esp_i_rng_below(&rng, MOST_VERTICES - MOST_DEVICES + 1);
    test_assert_ok(esp_cluster_builder_create("c", NULL, &b, &diag), &diag);
    add_vertices(b, &rng, devices, others);
    int32_t n = devices + others, links = (int32_t)esp_i_rng_below(&rng, MOST_LINKS / 2) + n;
    for (int32_t i = 0; i < links && n > 1; i++) {
        esp_cluster_link_t link = {.src = (int32_t)esp_i_rng_below(&rng, n),
                                   .bytes_per_s = (double)(1 + esp_i_rng_below(&rng, 3)),
                                   .latency_ns = esp_i_rng_below(&rng, 5)};
        link.dst = (link.src + 1 + (int32_t)esp_i_rng_below(&rng, n - 1)) % n;
        esp_status_t status = esp_i_rng_below(&rng, 3) == 0
                                  ? esp_cluster_builder_add_link(b, &link, NULL, &diag)
                                  : esp_cluster_builder_add_cable(b, &link, &diag);
        test_assert_ok(status, &diag);
    }
    esp_status_t status = esp_cluster_builder_freeze(b, 0, &c, &diag);
    if (status != ESP_OK)
        assert_non_null(strstr(diag.text, "no links lead"));
    esp_cluster_builder_destroy(b);
    return status == ESP_OK ? c : NULL;
}

static void check_graph(const esp_cluster_t *c)
{
    esp_diag_t diag = {0};
    test_assert_ok(esp_cluster_check(c, &diag), &diag);
    for (int32_t s = 0; s < c->n_devices; s++)
        for (int32_t d = 0; d < c->n_devices; d++) {
            int32_t expected[MOST_VERTICES + 1];
            const int32_t *links;
            int32_t n = esp_cluster_route(c, s, d, &links);
            if (s == d) {
                assert_int_equal(n, 0);
                continue;
            }
            assert_int_equal(n, twin_route(c, s, d, expected));
            assert_memory_equal(links, expected, (size_t)n * sizeof *links);
        }
}

static void test_twin(void **state)
{
    (void)state;
    int32_t whole = 0, longest = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        esp_cluster_t *c = random_graph(seed);
        if (c == NULL)
            continue;
        whole++;
        check_graph(c);
        for (int32_t p = 0; p < c->n_devices * c->n_devices; p++)
            if (c->route_offset[p + 1] - c->route_offset[p] > longest)
                longest = c->route_offset[p + 1] - c->route_offset[p];
        esp_cluster_destroy(c);
    }
    assert_true(whole > 800); /* the test looks at something */
    assert_true(longest >= 4);
}

/* A graph that falls apart really does: the pair that is named has no path. */
static void test_disconnected(void **state)
{
    (void)state;
    esp_diag_t diag = {0};
    esp_cluster_t *c;
    static const char text[] =
        "name: c\n"
        "nodes:\n"
        "  - {name: a, count: 2, devices: [{type: t4}], host: {bandwidth: 1 GB/s, latency: 1 us}}\n"
        "  - {name: b, devices: [{type: t4}], host: {bandwidth: 1 GB/s, latency: 1 us}}\n"
        "links: [{from: a0, to: a1, bandwidth: 1 GB/s, latency: 1 us}]\n";
    test_assert_fails(esp_cluster_parse(text, sizeof text - 1, "f", NULL, &c, &diag), &diag,
                      ESP_ERR_INVALID, "no links lead from 'a0/gpu0' to 'b/gpu0'");
}

/* Devices in a row: traffic passes through them only if they are told to forward. */
static esp_status_t make_row(int32_t n, bool forward, esp_cluster_t **out, esp_diag_t *diag)
{
    esp_cluster_builder_t *b;
    int32_t node, type;
    test_assert_ok(esp_cluster_builder_create("row", NULL, &b, diag), diag);
    test_assert_ok(esp_cluster_builder_add_node(b, "n", &node, diag), diag);
    test_assert_ok(esp_cluster_builder_use_type(b, "t4", &type, diag), diag);
    for (int32_t i = 0; i < n; i++) {
        char name[16];
        int32_t id;
        (void)snprintf(name, sizeof name, "d%d", (int)i);
        esp_cluster_device_t d = {.name = name,
                                  .type = type,
                                  .node = node,
                                  .memory_bytes = 1,
                                  .hub = -1,
                                  .forwards = forward};
        test_assert_ok(esp_cluster_builder_add_device(b, &d, &id, diag), diag);
        esp_cluster_link_t link = {.src = i - 1, .dst = i, .bytes_per_s = 100 - i, .latency_ns = i};
        if (i > 0)
            test_assert_ok(esp_cluster_builder_add_cable(b, &link, diag), diag);
    }
    esp_status_t status = esp_cluster_builder_freeze(b, 0, out, diag);
    esp_cluster_builder_destroy(b);
    return status;
}

static void test_row(void **state)
{
    (void)state;
    esp_diag_t diag = {0};
    esp_cluster_t *c;
    test_assert_ok(make_row(33, true, &c, &diag), &diag);
    assert_int_equal(esp_cluster_route_latency_ns(c, 0, 32), 32 * 33 / 2);
    assert_true(esp_cluster_route_bytes_per_s(c, 0, 32) == 68);
    assert_true(isinf(esp_cluster_route_bytes_per_s(c, 3, 3)));
    assert_int_equal(esp_cluster_route_latency_ns(c, 3, 3), 0);
    esp_cluster_destroy(c);
    test_assert_fails(make_row(34, true, &c, &diag), &diag, ESP_ERR_LIMIT, "has 33 links");
    test_assert_fails(make_row(3, false, &c, &diag), &diag, ESP_ERR_INVALID, "from 'd0' to 'd2'");
    assert_string_equal(diag.place, "d0 -> d2");
    test_assert_ok(make_row(1, false, &c, &diag), &diag);
    assert_int_equal(c->n_groups, 1);
    esp_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_disconnected),
        cmocka_unit_test(test_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
