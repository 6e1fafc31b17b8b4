/* Movements: hand-computed cases, conservation of bytes, a ring played step by step, limits. */
#include "deploy_builder.h"

#include "cost/pattern.h"
#include "espalier/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP ESP_I_STEP_NS
static const lab_link_t inside = {8e9, 500}, between = {2e9, 2000};

typedef struct found {
    esp_pattern_t pattern[ESP_PATTERN_MAX];
    int32_t count;
} found_t;

static found_t find(const esp_cluster_t *c, esp_comm_t comm, const esp_place_t *from,
                    const esp_place_t *to)
{
    found_t f = {0};
    assert_int_equal(esp_pattern_find(c, comm, from, to, NULL, f.pattern, &f.count), ESP_OK);
    assert_in_range(f.count, 1, ESP_PATTERN_MAX);
    return f;
}

static void release(found_t *f)
{
    for (int32_t i = 0; i < f->count; ++i)
        esp_pattern_release(&f->pattern[i], NULL);
}

static const esp_pattern_t *with(const found_t *f, esp_algorithm_t algorithm)
{
    for (int32_t i = 0; i < f->count; ++i)
        if (f->pattern[i].algorithm == algorithm)
            return &f->pattern[i];
    return NULL;
}

static double load_of(const esp_cluster_t *c, const esp_pattern_t *p, const char *src,
                      const char *dst)
{
    int32_t s = esp_cluster_find_vertex(c, src), d = esp_cluster_find_vertex(c, dst);
    for (int32_t i = 0; i < p->n_links; ++i)
        if (c->link_src[p->link[i]] == s && c->link_dst[p->link[i]] == d)
            return p->load[i];
    return 0;
}

/* Bytes that enter (or leave) a vertex, per byte of the tensor. */
static double flow_at(const esp_cluster_t *c, const esp_pattern_t *p, int32_t vertex, bool enters)
{
    double sum = 0;
    for (int32_t i = 0; i < p->n_links; ++i)
        if ((enters ? c->link_dst : c->link_src)[p->link[i]] == vertex)
            sum += p->load[i];
    return sum;
}

#define assert_near(a, b) assert_true(fabs((a) - (b)) < 1e-9)

static const int32_t first8[] = {0, 1, 2, 3, 4, 5, 6, 7};

/* ---- hand-computed ------------------------------------------------------------------------------
 */

static void ring_on_one_node(void **state)
{
    (void)state;
    esp_cluster_t *c = lab_cluster(1, 4, NULL, inside, between);
    esp_place_t all = {4, first8, NULL};
    found_t f = find(c, ESP_COMM_ALLREDUCE, &all, &all);
    const esp_pattern_t *p = &f.pattern[0];
    assert_int_equal(p->algorithm, ESP_ALGORITHM_RING);
    assert_int_equal(p->n_links, 8);                       /* a device's cable, both ways */
    assert_near(load_of(c, p, "n0/gpu0", "n0/host"), 1.5); /* 2 * 3 / 4 */
    assert_near(p->ns_per_byte, 1.5 / 8);
    assert_near(p->total_load, 8 * 1.5);
    assert_int_equal(p->latency_ns, 6 * (2 * 500 + STEP));
    assert_near(p->staging, 0.25);
    p = with(&f, ESP_ALGORITHM_TREE);
    assert_non_null(p); /* up in 2 rounds, down in 2: S each */
    assert_int_equal(p->latency_ns, 4 * (2 * 500 + STEP));
    assert_near(p->ns_per_byte, 4.0 / 8);
    assert_null(with(&f, ESP_ALGORITHM_TWO_LEVEL));
    release(&f);
    esp_cluster_destroy(c);
}

static void two_levels(void **state)
{
    (void)state;
    esp_cluster_t *c = lab_cluster(2, 4, NULL, inside, between);
    esp_place_t all = {8, first8, NULL};
    found_t f = find(c, ESP_COMM_ALLREDUCE, &all, &all);
    const esp_pattern_t *p = with(&f, ESP_ALGORITHM_RING);
    assert_near(load_of(c, p, "n0/host", "switch"), 1.75); /* the ring leaves each node once */
    assert_near(p->ns_per_byte, 1.75 / 2);
    p = with(&f, ESP_ALGORITHM_TWO_LEVEL);
    assert_non_null(p);
    /* inside: 3/4 out, then 3/4 in; across: 4 rings of two, a quarter of the tensor each */
    assert_near(load_of(c, p, "n0/host", "switch"), 1.0);
    assert_near(load_of(c, p, "n1/gpu2", "n1/host"), 1.5 + 0.25);
    assert_near(p->ns_per_byte, 1.5 / 8 + 1.0 / 2);
    assert_int_equal(p->latency_ns, 6 * (1000 + STEP) + 2 * (5000 + STEP));
    release(&f);
    esp_cluster_destroy(c);
}

static void unequal_nodes(void **state)
{
    (void)state;
    const int32_t counts[] = {3, 1};
    esp_cluster_t *c = lab_cluster(2, 0, counts, inside, between);
    esp_place_t all = {4, first8, NULL};
    found_t f = find(c, ESP_COMM_ALLREDUCE, &all, &all);
    const esp_pattern_t *p = with(&f, ESP_ALGORITHM_TWO_LEVEL);
    assert_non_null(p); /* chain of two hops to the leader, ring of two leaders, chain back */
    assert_near(load_of(c, p, "n0/host", "switch"), 1.0);
    assert_near(load_of(c, p, "n0/gpu2", "n0/host"), 1.0);
    assert_near(load_of(c, p, "n0/gpu0", "n0/host"), 2.0);
    assert_near(p->ns_per_byte, 1.0 / 8 + 1.0 / 2 + 1.0 / 8);
    assert_int_equal(p->latency_ns, 4 * (1000 + STEP) + 2 * (5000 + STEP));
    release(&f);
    esp_cluster_destroy(c);
}

static void reduce_to_a_root(void **state)
{
    (void)state;
    esp_cluster_t *c = lab_cluster(2, 2, NULL, inside, between);
    const int32_t root = 0;
    esp_place_t all = {4, first8, NULL}, one = {1, &root, NULL};
    found_t f = find(c, ESP_COMM_REDUCE, &all, &one);
    const esp_pattern_t *p = with(&f, ESP_ALGORITHM_DIRECT);
    assert_near(load_of(c, p, "n0/host", "n0/gpu0"), 3.0);
    assert_near(load_of(c, p, "switch", "n0/host"), 2.0);
    /* NIC 2 / 2 GB/s; then 4 addends are read, one sum is written at 0.75 TB/s */
    assert_near(p->ns_per_byte, 1.0 + 5 / 750.0);
    assert_near(p->staging, 2);
    p = with(&f, ESP_ALGORITHM_TWO_LEVEL);
    assert_non_null(p);
    assert_near(load_of(c, p, "switch", "n0/host"), 1.0); /* once per node */
    assert_near(p->ns_per_byte, 1.0 / 8 + 3 / 750.0 + 1.0 / 2 + 4 / 750.0);
    release(&f);
    esp_cluster_destroy(c);
}

static void broadcast_to_nodes(void **state)
{
    (void)state;
    esp_cluster_t *c = lab_cluster(3, 3, NULL, inside, between);
    const int32_t src = 1, devices[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    esp_place_t from = {1, &src, NULL}, to = {9, devices, NULL};
    found_t f = find(c, ESP_COMM_BROADCAST, &from, &to);
    assert_int_equal(f.count, 3);
    for (int32_t i = 0; i < f.count; ++i) {
        const esp_pattern_t *p = &f.pattern[i];
        for (int32_t d = 0; d < 9; ++d) /* each gets it once, the source never */
            assert_near(flow_at(c, p, d, true), d == src ? 0.0 : 1.0);
        assert_near(load_of(c, p, "switch", "n1/host"), 1.0);
        assert_near(load_of(c, p, "switch", "n2/host"), 1.0);
        assert_near(load_of(c, p, "switch", "n0/host"), 0.0);
    }
    const esp_pattern_t *p = with(&f, ESP_ALGORITHM_RING);
    assert_near(p->ns_per_byte, 1.0 / 2);
    assert_int_equal(p->latency_ns, 6 * (5000 + STEP)); /* 1 -> 3 -> 4 -> 5 -> 6 -> 7 -> 8 */
    p = with(&f, ESP_ALGORITHM_TREE);
    assert_int_equal(p->latency_ns, 2 * (5000 + STEP) + 2 * (1000 + STEP));
    release(&f);
    esp_cluster_destroy(c);
}

static void pieces(void **state)
{
    (void)state;
    esp_cluster_t *c = lab_cluster(1, 3, NULL, inside, between);
    const double a[] = {0.5, 0.25, 0.25}, b[] = {0.25, 0.25, 0.5};
    esp_place_t from = {3, first8, a}, to = {3, first8, b};
    found_t f = find(c, ESP_COMM_EXCHANGE, &from, &to);
    const esp_pattern_t *p = &f.pattern[0]; /* 0 -> 1: [1/4, 1/2); 1 -> 2: [1/2, 3/4) */
    assert_near(load_of(c, p, "n0/gpu0", "n0/host"), 0.25);
    assert_near(load_of(c, p, "n0/gpu1", "n0/host"), 0.25);
    assert_near(load_of(c, p, "n0/gpu2", "n0/host"), 0.0);
    assert_near(p->ns_per_byte, 0.25 / 8);
    assert_int_equal(p->latency_ns, 1000 + STEP);
    release(&f);
    f = find(c, ESP_COMM_ALL_TO_ALL, &from, &to);
    assert_near(load_of(c, &f.pattern[0], "n0/gpu0", "n0/host"), 0.5 * 0.75);
    assert_near(load_of(c, &f.pattern[0], "n0/host", "n0/gpu2"), 0.5 * 0.75);
    release(&f);
    esp_place_t holders = {1, first8, NULL};
    f = find(c, ESP_COMM_SCATTER, &holders, &to);
    assert_near(load_of(c, &f.pattern[0], "n0/gpu0", "n0/host"), 0.75);
    assert_near(load_of(c, &f.pattern[0], "n0/host", "n0/gpu2"), 0.5);
    release(&f);
    const int32_t last = 2;
    esp_place_t one = {1, &last, NULL};
    f = find(c, ESP_COMM_GATHER, &from, &one);
    assert_int_equal(f.count, 1);
    assert_near(load_of(c, &f.pattern[0], "n0/host", "n0/gpu2"), 0.75);
    release(&f);
    esp_cluster_destroy(c);
}

static void nothing_to_move(void **state)
{
    (void)state;
    esp_cluster_t *c = lab_cluster(2, 2, NULL, inside, between);
    const int32_t root = 0;
    const double half[] = {0.5, 0.5};
    esp_place_t one = {1, &root, NULL}, two = {2, first8, half}, all = {4, first8, NULL};
    struct {
        esp_comm_t comm;
        const esp_place_t *from, *to;
    } cases[] = {
        {ESP_COMM_ALLREDUCE, &one, &one},  {ESP_COMM_REDUCE_SCATTER, &one, &one},
        {ESP_COMM_ALL_GATHER, &one, NULL}, {ESP_COMM_REDUCE, &one, &one},
        {ESP_COMM_BROADCAST, &all, &two},  {ESP_COMM_EXCHANGE, &two, &two},
        {ESP_COMM_GATHER, &one, &one},     {ESP_COMM_SCATTER, &all, &two},
        {ESP_COMM_ALL_TO_ALL, &one, &one},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        found_t f = find(c, cases[i].comm, cases[i].from, cases[i].to);
        assert_int_equal(f.count, 1);
        assert_int_equal(f.pattern[0].n_links, 0);
        assert_int_equal(f.pattern[0].latency_ns, 0);
        assert_true(f.pattern[0].ns_per_byte == 0 && f.pattern[0].total_load == 0);
        release(&f);
    }
    esp_cluster_destroy(c);
}

/* ---- conservation on random clusters
 * --------------------------------------------------------------- */

static void random_place(esp_i_rng_t *rng, const esp_cluster_t *c, int32_t *device,
                         double *fraction, esp_place_t *place)
{
    double sum = 0;
    int32_t n = 0;
    while (n == 0)
        for (int32_t d = 0; d < c->n_devices; ++d)
            if (esp_i_rng_below(rng, 2))
                device[n++] = d;
    for (int32_t k = 0; k < n; ++k)
        sum += fraction[k] = 1.0 + (double)esp_i_rng_below(rng, 5);
    for (int32_t k = 0; k < n; ++k)
        fraction[k] /= sum;
    *place = (esp_place_t){n, device, fraction};
}

static double held(const esp_place_t *place, int32_t device)
{
    int32_t k = esp_i_place_find(place, device);
    return k < 0 ? 0 : place->fraction[k];
}

/* What must enter each device, whatever the algorithm. */
static void check_entering(const esp_cluster_t *c, const esp_pattern_t *p, const esp_place_t *from,
                           const esp_place_t *to)
{
    double enters = 0, leaves = 0;
    for (int32_t d = 0; d < c->n_devices; ++d) {
        double in = flow_at(c, p, d, true);
        bool source = esp_i_place_find(from, d) >= 0, target = esp_i_place_find(to, d) >= 0;
        enters += in;
        leaves += flow_at(c, p, d, false);
        if (p->comm == ESP_COMM_ALL_GATHER)
            assert_near(in, source ? 1 - held(from, d) : 0);
        if (p->comm == ESP_COMM_REDUCE_SCATTER)
            assert_true(in > (source && from->n > 1 ? held(from, d) - 1e-9 : -1e-9));
        if (p->comm == ESP_COMM_BROADCAST)
            assert_near(in, target && !source ? 1 : 0);
        if (p->comm == ESP_COMM_SCATTER)
            assert_near(in, target && !source ? held(to, d) : 0);
        if (p->comm == ESP_COMM_GATHER)
            assert_true(!target ? in == 0 : in > 1 - held(from, d) - 1e-9);
        if (p->comm == ESP_COMM_ALL_TO_ALL)
            assert_near(in, held(to, d) * (1 - held(from, d)));
    }
    assert_near(enters, leaves);
}

static void check_pattern(const esp_cluster_t *c, const esp_pattern_t *p)
{
    double busiest = 0, total = 0;
    for (int32_t i = 0; i < p->n_links; ++i) {
        assert_true(p->load[i] > 0 && (i == 0 || p->link[i - 1] < p->link[i]));
        busiest = fmax(busiest, p->load[i] * 1e9 / c->link_bytes_per_s[p->link[i]]);
        total += p->load[i];
    }
    assert_near(total, p->total_load);
    assert_true(p->ns_per_byte >= busiest * (1 - 1e-12));
    assert_int_equal(p->n_links > 0, p->latency_ns > 0);
}

static void bytes_are_conserved(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 7);
    for (int32_t k = 0; k < 200; ++k) {
        esp_cluster_t *c = lab_random_cluster(&rng, 4, 4);
        int32_t da[16], db[16];
        double fa[16], fb[16];
        esp_place_t a, b;
        random_place(&rng, c, da, fa, &a);
        random_place(&rng, c, db, fb, &b);
        for (int32_t comm = 0; comm < ESP_COMM_COUNT; ++comm) {
            bool same = comm <= ESP_COMM_ALL_GATHER;
            esp_place_t root = {1, db, fb};
            const esp_place_t *to = same ? &a : comm == ESP_COMM_REDUCE ? &root : &b;
            found_t f = find(c, (esp_comm_t)comm, &a, to);
            for (int32_t i = 0; i < f.count; ++i) {
                assert_int_equal(f.pattern[i].comm, comm);
                check_pattern(c, &f.pattern[i]);
                check_entering(c, &f.pattern[i], &a, to);
            }
            release(&f);
        }
        esp_cluster_destroy(c);
    }
}

/* ---- a ring, step by step
 * ----------------------------------------------------------------------------- */

/* An all-gather in which every device forwards, in step, the piece it got last. */
static double play_ring(const esp_cluster_t *c, int32_t n, const int32_t *device,
                        const double *piece, double *load)
{
    int32_t holds[16];
    double total = 0;
    for (int32_t k = 0; k < n; ++k)
        holds[k] = k;
    for (int32_t t = 0; t + 1 < n; ++t) {
        int32_t next[16];
        double *step = calloc((size_t)c->n_links, sizeof *step), slowest = 0;
        for (int32_t k = 0; k < n; ++k) {
            const int32_t *route;
            int32_t hops = esp_cluster_route(c, device[k], device[(k + 1) % n], &route);
            for (int32_t i = 0; i < hops; ++i)
                step[route[i]] += piece[holds[k]];
            next[(k + 1) % n] = holds[k];
        }
        for (int32_t l = 0; l < c->n_links; ++l) {
            slowest = fmax(slowest, step[l] * 1e9 / c->link_bytes_per_s[l]);
            load[l] += step[l];
        }
        memcpy(holds, next, sizeof next);
        total += slowest;
        free(step);
    }
    return total;
}

static void ring_equals_its_steps(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 8);
    for (int32_t k = 0; k < 100; ++k) {
        esp_cluster_t *c = lab_random_cluster(&rng, 4, 4);
        int32_t device[16];
        double fraction[16], *load = calloc((size_t)c->n_links, sizeof *load);
        esp_place_t a;
        random_place(&rng, c, device, fraction, &a);
        found_t f = find(c, ESP_COMM_ALL_GATHER, &a, &a);
        const esp_pattern_t *p = with(&f, ESP_ALGORITHM_RING);
        double expected = play_ring(c, a.n, a.device, a.fraction, load);
        assert_true(fabs(p->ns_per_byte - expected) <= 1e-9 * expected);
        for (int32_t i = 0; i < p->n_links; ++i)
            assert_near(p->load[i], load[p->link[i]]);
        free(load);
        release(&f);
        esp_cluster_destroy(c);
    }
}

/* ---- limits
 * ---------------------------------------------------------------------------------------------- */

static void many_devices(void **state)
{
    (void)state;
    esp_cluster_t *c = lab_cluster(8, 8, NULL, inside, between);
    int32_t device[64];
    for (int32_t d = 0; d < 64; ++d)
        device[d] = d;
    esp_place_t all = {64, device, NULL};
    for (int32_t comm = 0; comm < ESP_COMM_COUNT; ++comm) {
        esp_place_t one = {1, device, NULL};
        found_t f = find(c, (esp_comm_t)comm, &all, comm == ESP_COMM_REDUCE ? &one : &all);
        for (int32_t i = 0; i < f.count; ++i)
            check_pattern(c, &f.pattern[i]);
        release(&f);
    }
    found_t f = find(c, ESP_COMM_ALLREDUCE, &all, &all);
    const esp_pattern_t *p = with(&f, ESP_ALGORITHM_TWO_LEVEL);
    for (int32_t i = 1; i < 64; ++i) /* a symmetric cluster is used evenly */
        assert_near(flow_at(c, p, i, true), flow_at(c, p, 0, true));
    release(&f);
    esp_cluster_destroy(c);
}

static void refuses_bad_places(void **state)
{
    (void)state;
    esp_cluster_t *c = lab_cluster(1, 2, NULL, inside, between);
    const int32_t twice[] = {0, 0}, far[] = {0, 2};
    esp_place_t none = {0, twice, NULL}, repeated = {2, twice, NULL}, outside = {2, far, NULL},
                both = {2, first8, NULL};
    esp_pattern_t out[ESP_PATTERN_MAX];
    int32_t count;
    const esp_place_t *bad[] = {&none, &repeated, &outside};
    for (size_t i = 0; i < 3; ++i)
        assert_int_equal(esp_pattern_find(c, ESP_COMM_BROADCAST, &both, bad[i], NULL, out, &count),
                         ESP_ERR_ARGUMENT);
    assert_int_equal(esp_pattern_find(c, ESP_COMM_REDUCE, &both, &both, NULL, out, &count),
                     ESP_ERR_ARGUMENT);
    assert_int_equal(esp_pattern_find(c, ESP_COMM_COUNT, &both, &both, NULL, out, &count),
                     ESP_ERR_ARGUMENT);
    esp_pattern_release(NULL, NULL);
    esp_cluster_destroy(c);
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    const esp_cluster_t *c = context;
    for (int32_t comm = 0; comm < ESP_COMM_COUNT; ++comm) {
        esp_pattern_t out[ESP_PATTERN_MAX];
        int32_t count;
        esp_place_t from = {4, first8, NULL}, to = {3, first8 + 3, NULL}, one = {1, first8, NULL};
        const esp_place_t *end = comm <= ESP_COMM_ALL_GATHER ? &from
                                 : comm == ESP_COMM_REDUCE   ? &one
                                                             : &to;
        ESP_TRY(esp_pattern_find(c, (esp_comm_t)comm, &from, end, alloc, out, &count));
        for (int32_t i = 0; i < count; ++i)
            esp_pattern_release(&out[i], alloc);
    }
    return ESP_OK;
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    esp_cluster_t *c = lab_cluster(2, 3, NULL, inside, between);
    test_sweep_allocations(attempt, c, 1);
    esp_cluster_destroy(c);
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(esp_comm_name(ESP_COMM_ALL_TO_ALL), "all-to-all");
    assert_string_equal(esp_comm_name(ESP_COMM_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_on_one_node),
        cmocka_unit_test(two_levels),
        cmocka_unit_test(unequal_nodes),
        cmocka_unit_test(reduce_to_a_root),
        cmocka_unit_test(broadcast_to_nodes),
        cmocka_unit_test(pieces),
        cmocka_unit_test(nothing_to_move),
        cmocka_unit_test(bytes_are_conserved),
        cmocka_unit_test(ring_equals_its_steps),
        cmocka_unit_test(many_devices),
        cmocka_unit_test(refuses_bad_places),
        cmocka_unit_test(survives_failing_allocations),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
