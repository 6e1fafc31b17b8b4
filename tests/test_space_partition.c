/* Graph partitioning: it covers, repeats itself, keeps the sizes and is silent. */
#include "deploy/partition.h"
#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_VERTICES = 512, MAX_EDGES = 4096, MAX_PARTS = 64 };

typedef struct problem {
    int32_t n, n_edges;
    double weight[MAX_VERTICES];
    esp_i_edge_t edge[MAX_EDGES];
    int32_t part[MAX_VERTICES];
} problem_t;

static void edge_add(problem_t *p, int32_t a, int32_t b, double weight)
{
    assert_true(p->n_edges < MAX_EDGES);
    p->edge[p->n_edges++] = (esp_i_edge_t){a, b, weight};
}

static void vertices(problem_t *p, int32_t n, double weight)
{
    *p = (problem_t){.n = n};
    for (int32_t v = 0; v < n; v++)
        p->weight[v] = weight;
}

static void grid(problem_t *p, int32_t side)
{
    vertices(p, side * side, 1);
    for (int32_t v = 0; v < p->n; v++) {
        if (v % side + 1 < side)
            edge_add(p, v, v + 1, 1);
        if (v + side < p->n)
            edge_add(p, v, v + side, 1);
    }
}

/* Heavy-tailed weights, some zero; edges that repeat, and loops. */
static void random_graph(problem_t *p, uint64_t seed)
{
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, seed);
    vertices(p, (int32_t)esp_i_rng_below(&rng, 60), 1);
    for (int32_t v = 0; v < p->n; v++) {
        double u = esp_i_rng_unit(&rng);
        p->weight[v] = u < 0.2 ? 0 : 1 / (1.0001 - u) / (1.0001 - u);
    }
    for (int64_t e = p->n ? esp_i_rng_below(&rng, 4 * p->n) : 0; e > 0; e--)
        edge_add(p, (int32_t)esp_i_rng_below(&rng, p->n), (int32_t)esp_i_rng_below(&rng, p->n),
                 esp_i_rng_unit(&rng) * 1e9);
}

/* Leaves the edges of the problem as they are. */
static esp_status_t solve(const problem_t *p, const esp_allocator_t *alloc, int32_t parts,
                          const double *size, uint64_t seed, int32_t *part_out)
{
    esp_i_edge_t *edges = malloc(sizeof p->edge);
    assert_non_null(edges);
    memcpy(edges, p->edge, sizeof p->edge);
    const esp_i_partition_t problem = {.n = p->n,
                                       .vertex_weight = p->weight,
                                       .n_edges = p->n_edges,
                                       .edges = edges,
                                       .parts = parts,
                                       .part_weight = size,
                                       .seed = seed};
    esp_status_t status = esp_i_partition(alloc, &problem, part_out);
    free(edges);
    return status;
}

/* Solves twice: every vertex has a part, and the same one again. */
static void run(problem_t *p, int32_t parts, const double *size, uint64_t seed)
{
    int32_t again[MAX_VERTICES];
    memset(p->part, -1, sizeof p->part);
    memset(again, -1, sizeof again);
    assert_int_equal(solve(p, &esp_i_malloc, parts, size, seed, p->part), ESP_OK);
    assert_int_equal(solve(p, &esp_i_malloc, parts, size, seed, again), ESP_OK);
    for (int32_t v = 0; v < p->n; v++)
        assert_in_range(p->part[v], 0, parts - 1);
    assert_memory_equal(p->part, again, sizeof again);
}

static void sizes_of(const problem_t *p, int32_t parts, double *size)
{
    memset(size, 0, (size_t)parts * sizeof *size);
    for (int32_t v = 0; v < p->n; v++)
        size[p->part[v]] += p->weight[v];
}

static double cut_of(const problem_t *p)
{
    double cut = 0;
    for (int32_t e = 0; e < p->n_edges; e++)
        if (p->part[p->edge[e].a] != p->part[p->edge[e].b])
            cut += p->edge[e].weight;
    return cut;
}

/* Parts without wanted sizes are numbered without gaps, in order of appearance. */
static int32_t check_numbers(const problem_t *p)
{
    int32_t next = 0;
    for (int32_t v = 0; v < p->n; v++) {
        assert_true(p->part[v] <= next);
        next += p->part[v] == next;
    }
    return next;
}

/* ---- what it finds ------------------------------------------------------------------------- */

static void test_equal_sizes(void **state)
{
    (void)state;
    problem_t p;
    double size[MAX_PARTS];
    grid(&p, 20);
    for (int32_t parts = 1; parts <= 40; parts += 3) {
        run(&p, parts, NULL, 7);
        assert_int_equal(check_numbers(&p), parts);
        sizes_of(&p, parts, size);
        for (int32_t i = 0; i < parts; i++)
            if (size[i] < 0.4 * p.n / parts || size[i] > 2.0 * p.n / parts)
                fail_msg("%d parts: part %d has %g of %d", parts, i, size[i], p.n);
    }
}

/* Every cut may leave one side a fifth more than it wanted; the other side has what is left. */
static void test_wanted_sizes(void **state)
{
    (void)state;
    static const double wanted[] = {3, 1, 0.5, 2};
    problem_t p;
    double size[4];
    grid(&p, 20);
    run(&p, 4, wanted, 1);
    sizes_of(&p, 4, size);
    for (int32_t i = 0; i < 4; i++)
        if (size[i] < 1 || size[i] > 1.5 * wanted[i] / 6.5 * p.n)
            fail_msg("part %d has %g of %d", i, size[i], p.n);
}

/* Two cliques and one edge between them, whatever the order of the edges. */
static void test_cut(void **state)
{
    (void)state;
    problem_t p;
    int32_t part[MAX_VERTICES];
    vertices(&p, 20, 1);
    for (int32_t a = 0; a < 20; a++)
        for (int32_t b = a + 2; b < 20; b += 2)
            edge_add(&p, a, b, 10);
    edge_add(&p, 4, 5, 1);
    run(&p, 2, NULL, 3);
    assert_int_equal((int)cut_of(&p), 1);
    memcpy(part, p.part, sizeof part);
    for (int32_t e = 0; e < p.n_edges / 2; e++) {
        esp_i_edge_t last = p.edge[p.n_edges - 1 - e];
        p.edge[p.n_edges - 1 - e] = p.edge[e];
        p.edge[e] = (esp_i_edge_t){last.b, last.a, last.weight};
    }
    run(&p, 2, NULL, 3);
    assert_memory_equal(part, p.part, sizeof part);
}

/* An edge that repeats counts as often. */
static void test_repeated_edges(void **state)
{
    (void)state;
    problem_t p;
    vertices(&p, 4, 1);
    for (int32_t i = 0; i < 10; i++) {
        edge_add(&p, 0, 3, 1);
        edge_add(&p, 2, 1, 1);
    }
    edge_add(&p, 0, 1, 8);
    edge_add(&p, 2, 3, 8);
    edge_add(&p, 2, 2, 1000);
    run(&p, 2, NULL, 0);
    assert_int_equal(p.part[0], p.part[3]);
    assert_int_equal(p.part[1], p.part[2]);
    assert_int_not_equal(p.part[0], p.part[1]);
}

/* ---- edges of the domain ------------------------------------------------------------------- */

static void test_degenerate(void **state)
{
    (void)state;
    problem_t p;
    for (int32_t parts = 1; parts <= 40; parts += 13) {
        vertices(&p, 0, 1);
        run(&p, parts, NULL, 0);
        vertices(&p, 1, 1);
        run(&p, parts, NULL, 0);
        vertices(&p, 1, 0);
        edge_add(&p, 0, 0, 5);
        run(&p, parts, NULL, 0);
        vertices(&p, 5, 0); /* no weights at all */
        run(&p, parts, NULL, 0);
        assert_int_equal(check_numbers(&p), parts < 5 ? parts : 5);
        vertices(&p, 50, 1); /* no edges */
        run(&p, parts, NULL, 0);
        assert_int_equal(check_numbers(&p), parts);
    }
}

static void test_more_parts_than_vertices(void **state)
{
    (void)state;
    static const double wanted[] = {1, 5, 1, 1, 2, 8, 1};
    problem_t p;
    grid(&p, 2);
    run(&p, 64, NULL, 5);
    assert_int_equal(check_numbers(&p), 4); /* each vertex alone */
    run(&p, 7, wanted, 5);
    for (int32_t v = 0; v < 4; v++)
        for (int32_t u = 0; u < v; u++)
            assert_int_not_equal(p.part[u], p.part[v]);
}

/* Nothing sits beside a vertex that outweighs all others. */
static void test_huge_vertex(void **state)
{
    (void)state;
    problem_t p;
    for (int32_t at = 0; at < 100; at += 33) {
        grid(&p, 10);
        p.weight[at] = 1e12;
        run(&p, 2, NULL, 1);
        run(&p, 8, NULL, 1);
        p.weight[at] = 1e300;
        run(&p, 8, NULL, 1);
    }
}

static void test_skewed_sizes(void **state)
{
    (void)state;
    static const double wanted[] = {1e-9, 1, 1e-6, 1e6};
    problem_t p;
    grid(&p, 8);
    run(&p, 4, wanted, 1);
}

/* ---- silence ------------------------------------------------------------------------------- */

typedef struct capture {
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    int saved[2];
} capture_t;

/* From now on standard output and errors go to a file. */
static void capture_begin(capture_t *c)
{
    test_dir_make(&c->dir);
    (void)fflush(NULL);
    int fd = open(test_dir_file(&c->dir, "out", c->path), O_CREAT | O_WRONLY | O_APPEND, 0600);
    assert_true(fd >= 0);
    for (int i = 0; i < 2; i++) {
        c->saved[i] = dup(i + 1);
        (void)dup2(fd, i + 1);
    }
    (void)close(fd);
}

static void capture_end(capture_t *c)
{
    size_t length;
    (void)fflush(NULL);
    for (int i = 0; i < 2; i++) {
        (void)dup2(c->saved[i], i + 1);
        (void)close(c->saved[i]);
    }
    char *text = test_read_file(c->path, &length);
    test_dir_remove(&c->dir);
    if (length)
        fail_msg("partitioning prints: %.200s", text);
    free(text);
}

static void test_silence(void **state)
{
    (void)state;
    static problem_t p[200];
    esp_status_t status = ESP_OK;
    capture_t capture;
    double wanted[MAX_PARTS];
    for (uint64_t seed = 0; seed < 200; seed++)
        random_graph(&p[seed], seed);
    for (int32_t i = 0; i < MAX_PARTS; i++)
        wanted[i] = 1.0 / (1 + i % 9);
    capture_begin(&capture);
    for (int32_t i = 0; i < 200 && status == ESP_OK; i++)
        status = solve(&p[i], &esp_i_malloc, 1 + i % 50, i % 3 ? NULL : wanted, 1, p[i].part);
    capture_end(&capture);
    assert_int_equal(status, ESP_OK);
}

/* Random graphs: covered, repeatable, for several seeds. */
static void test_random(void **state)
{
    (void)state;
    problem_t p;
    for (uint64_t seed = 0; seed < 60; seed++) {
        random_graph(&p, seed);
        run(&p, 1 + (int32_t)(seed % 9), NULL, UINT64_MAX - seed);
        (void)check_numbers(&p);
    }
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    problem_t *p = context;
    return solve(p, alloc, 5, NULL, 1, p->part);
}

static void test_memory(void **state)
{
    (void)state;
    problem_t p;
    grid(&p, 6);
    test_sweep_allocations(attempt, &p, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_sizes), cmocka_unit_test(test_wanted_sizes),
        cmocka_unit_test(test_cut),         cmocka_unit_test(test_repeated_edges),
        cmocka_unit_test(test_degenerate),  cmocka_unit_test(test_more_parts_than_vertices),
        cmocka_unit_test(test_huge_vertex), cmocka_unit_test(test_skewed_sizes),
        cmocka_unit_test(test_silence),     cmocka_unit_test(test_random),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("space_partition", tests, NULL, NULL);
}
