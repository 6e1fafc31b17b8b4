/* Cost tables: files, curves, merging; the cost models and clusters that use them. */
#include "deploy_builder.h"
#include "deployments.h"
#include "strategies.h"

#include "espalier/costs.h"
#include "espalier/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- curves -------------------------------------------------------------------------------- */

/* By the definition, step by step. */
static double naive_curve(const esp_cost_curve_t *c, double launch, double units)
{
    double u[256], ns[256];
    int32_t n = 0;
    double least = launch < 0 ? 0 : launch;
    double origin = least;
    assert_true(c->n < 255);
    if (c->n > 1) {
        double slope = (c->point[1].ns - c->point[0].ns) / (c->point[1].units - c->point[0].units);
        origin = slope > 0 ? c->point[0].ns - slope * c->point[0].units : c->point[0].ns;
        if (origin < least)
            origin = least;
    }
    for (int32_t i = 0; i < c->n; i++)
        origin = c->point[i].ns < origin ? c->point[i].ns : origin;
    u[n] = 0;
    ns[n++] = origin;
    for (int32_t i = 0; i < c->n; i++) {
        u[n] = c->point[i].units;
        ns[n++] = c->point[i].ns;
    }
    for (int32_t i = 1; i < n; i++)
        if (units <= u[i])
            return ns[i - 1] + (ns[i] - ns[i - 1]) * (units - u[i - 1]) / (u[i] - u[i - 1]);
    int32_t a = n > 2 ? n - 2 : 0;
    double slope = (ns[n - 1] - ns[a]) / (u[n - 1] - u[a]);
    return ns[n - 1] + (slope > 0 ? slope : 0) * (units - u[n - 1]);
}

static void random_points(esp_i_rng_t *rng, int32_t n, esp_cost_point_t *point)
{
    double units = 0;
    for (int32_t i = 0; i < n; i++) {
        units += 0.5 + 8 * esp_i_rng_unit(rng);
        point[i] = (esp_cost_point_t){units, 1000 * esp_i_rng_unit(rng) + 50 * units, 1, 3};
    }
}

static void curves_equal_twin(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 3);
    for (int32_t k = 0; k < 300; k++) {
        esp_cost_point_t point[16];
        esp_cost_curve_t c = {"x", 1 + (int32_t)esp_i_rng_below(&rng, 16), point};
        double launch = esp_i_rng_unit(&rng) * 1500 - 300;
        random_points(&rng, c.n, point);
        for (int32_t i = 0; i < 40; i++) {
            double units = i < c.n ? point[i].units : 150 * esp_i_rng_unit(&rng);
            double ns = esp_cost_curve_ns(&c, launch, units);
            assert_true(fabs(ns - naive_curve(&c, launch, units)) < 1e-6 * (1 + ns));
        }
        double origin = esp_cost_curve_ns(&c, launch, 0);
        assert_true(origin >= 0 && origin <= point[0].ns);
        assert_true(esp_cost_curve_ns(&c, launch, 1e6) >= point[c.n - 1].ns);
    }
}

static void curves_by_hand(void **state)
{
    (void)state;
    const esp_cost_point_t point[] = {{2, 30, 0, 1}, {4, 50, 0, 1}, {8, 50, 0, 1}, {16, 90, 0, 1}};
    esp_cost_curve_t c = {"x", 4, point};
    assert_true(esp_cost_curve_ns(&c, -1, 0) == 10); /* on the line of the first two */
    assert_true(esp_cost_curve_ns(&c, 5, 1) == 20);
    assert_true(esp_cost_curve_ns(&c, 20, 0) == 20); /* not below the launch */
    assert_true(esp_cost_curve_ns(&c, 900, 0) == 30);
    assert_true(esp_cost_curve_ns(&c, 5, 3) == 40);
    assert_true(esp_cost_curve_ns(&c, 5, 6) == 50);
    assert_true(esp_cost_curve_ns(&c, 5, 32) == 170);
    c.n = 1;
    assert_true(esp_cost_curve_ns(&c, 10, 0) == 10 && esp_cost_curve_ns(&c, 10, 1) == 20);
    assert_true(esp_cost_curve_ns(&c, 10, 4) == 50);
}

/* ---- signatures ------------------------------------------------------------------------------ */

static char *signature(const esp_graph_t *graph, esp_op_id_t op)
{
    char *text = NULL;
    assert_int_equal(esp_op_signature(graph, op, NULL, &text), ESP_OK);
    return text;
}

/* Same model, another batch: the same ops, with other units. */
static void signatures_do_not_know_the_batch(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++) {
        esp_graph_t *a = deploy_graph(model, 8), *b = deploy_graph(model, 24);
        assert_int_equal(a->n_ops, b->n_ops);
        int32_t scaled = 0;
        for (esp_op_id_t op = 0; op < a->n_ops; op++) {
            char *x = signature(a, op), *y = signature(b, op);
            if (strcmp(x, y) != 0)
                fail_msg("%s\n%s", x, y);
            esp_factor_t f = esp_op_unit_factor(a, op), g = esp_op_unit_factor(b, op);
            assert_int_equal(f.dim, g.dim);
            assert_true(f.dim == ESP_NONE || g.b == f.b || g.b == 3 * f.b);
            scaled += f.dim != ESP_NONE && g.b == 3 * f.b;
            free(x);
            free(y);
        }
        assert_true(scaled > a->n_ops / 4);
        esp_graph_destroy(a);
        esp_graph_destroy(b);
    }
}

/* Updates of any parameter are one curve over elements. */
static void updates_are_one_curve(void **state)
{
    (void)state;
    esp_graph_t *g = deploy_graph(0, 8);
    char *first = NULL;
    for (int32_t p = 0; p < g->n_parameters; p++) {
        char *text = signature(g, g->update[p]);
        esp_factor_t factor = esp_op_unit_factor(g, g->update[p]);
        assert_int_equal(factor.b, g->tensor_elements[g->parameter[p]]);
        if (first)
            assert_string_equal(first, text);
        else
            first = strdup(text);
        free(text);
    }
    free(first);
    esp_graph_destroy(g);
}

/* ---- tables ------------------------------------------------------------------------------------
 */

/* A table for a graph and one type: random times for every `every`-th op. */
typedef struct table {
    esp_costs_t costs;
    esp_costs_type_t type;
    esp_cost_curve_t *curve;
    esp_cost_point_t (*point)[4];
    char **text;
    int32_t n;
} table_t;

static void table_fill(table_t *t, const esp_graph_t *g, const char *type, int32_t every,
                       uint64_t seed)
{
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, seed);
    memset(t, 0, sizeof *t);
    t->curve = calloc((size_t)g->n_ops, sizeof *t->curve);
    t->point = calloc((size_t)g->n_ops, sizeof *t->point);
    t->text = calloc((size_t)g->n_ops, sizeof *t->text);
    for (esp_op_id_t op = 0; op < g->n_ops; op += every) {
        t->text[t->n] = signature(g, op);
        t->curve[t->n] = (esp_cost_curve_t){t->text[t->n], 1 + (int32_t)esp_i_rng_below(&rng, 4),
                                            t->point[t->n]};
        random_points(&rng, 4, t->point[t->n]);
        t->n++;
    }
    t->type = (esp_costs_type_t){type, 200, 0.5, -1, t->n, t->curve};
    t->costs = (esp_costs_t){"0.1", ESP_PRECISION_FP32, 1, &t->type, 0, NULL, 0, NULL};
}

static void table_free(table_t *t)
{
    for (int32_t i = 0; i < t->n; i++)
        free(t->text[i]);
    free(t->curve);
    free(t->point);
    free(t->text);
}

/* Sorted, each op once. */
static esp_costs_t *sorted(const esp_costs_t *costs)
{
    const esp_costs_t nothing = {"0.1", costs->precision, 0, NULL, 0, NULL, 0, NULL};
    esp_costs_t *out;
    esp_diag_t diag = {0};
    test_assert_ok(esp_costs_merge(&nothing, costs, NULL, &out, &diag), &diag);
    return out;
}

static void models_use_the_table(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++) {
        esp_graph_t *g = deploy_graph(model, 8);
        esp_cluster_t *cluster = cluster_mixed();
        const char *name = cluster->types[1].name;
        table_t t;
        esp_cost_t *plain, *cost;
        esp_diag_t diag = {0};
        table_fill(&t, g, name, 2, (uint64_t)model);
        esp_costs_t *costs = sorted(&t.costs);
        test_assert_ok(esp_cost_create(g, cluster, ESP_PRECISION_FP32, NULL, &plain, &diag), &diag);
        test_assert_ok(
            esp_cost_create_measured(g, cluster, ESP_PRECISION_FP32, costs, NULL, &cost, &diag),
            &diag);
        const esp_costs_type_t *type = esp_costs_find_type(costs, name);
        int32_t measured = 0;
        for (esp_op_id_t op = 0; op < g->n_ops; op++) {
            char *text = signature(g, op);
            const esp_cost_curve_t *curve = esp_costs_find_curve(type, text);
            bool free_op = g->op_family[op] == ESP_FAMILY_FREE;
            esp_factor_t factor = esp_op_unit_factor(g, op);
            double units = factor.dim == ESP_NONE ? 1 : (double)factor.b;
            assert_int_equal(esp_cost_measured(cost, op, 0), 0);
            assert_int_equal(esp_cost_measured(cost, op, 1), curve && !free_op);
            assert_true(esp_cost_op_ns(cost, op, 0, 0.5, 0) ==
                        esp_cost_op_ns(plain, op, 0, 0.5, 0));
            for (int32_t k = 1; k <= 4 && curve && !free_op; k++) {
                double ns = naive_curve(curve, 200, units * k / 4);
                assert_true(fabs((double)esp_cost_op_ns(cost, op, 1, k / 4.0, 0) - ns) < 1.001);
                measured++;
            }
            if (!curve)
                assert_true(esp_cost_op_ns(cost, op, 1, 0.5, 0) ==
                            esp_cost_op_ns(plain, op, 1, 0.5, 0));
            free(text);
        }
        assert_true(measured > 0);
        assert_int_equal(esp_cost_copy_ns(cost, 1, 1000), 700);
        assert_int_equal(esp_cost_copy_ns(cost, 0, 1000), esp_cost_copy_ns(plain, 0, 1000));
        esp_cost_destroy(plain);
        esp_cost_destroy(cost);
        esp_costs_destroy(costs);
        table_free(&t);
        esp_cluster_destroy(cluster);
        esp_graph_destroy(g);
    }
}

/* What bounds rest on: a share takes at least what divides, in proportion, and a launch. */
static void divisible_time_is_a_lower_bound(void **state)
{
    (void)state;
    esp_graph_t *g = deploy_graph(5, 8);
    esp_cluster_t *cluster = cluster_uniform(2);
    for (uint64_t seed = 0; seed < 20; seed++) {
        table_t t;
        esp_cost_t *cost;
        table_fill(&t, g, cluster->types[0].name, 1, seed);
        esp_costs_t *costs = sorted(&t.costs);
        assert_int_equal(
            esp_cost_create_measured(g, cluster, ESP_PRECISION_FP32, costs, NULL, &cost, NULL),
            ESP_OK);
        double sum = 0;
        for (esp_op_id_t op = 0; op < g->n_ops; op++) {
            double whole = esp_cost_divisible_ns(cost, op, 0);
            double launch = fmax(0, (double)esp_cost_op_ns(cost, op, 0, 1e-12, 1) - 1);
            for (int32_t k = 1; k <= 64; k++)
                assert_true((double)esp_cost_op_ns(cost, op, 0, k / 64.0, 0) >=
                            whole * k / 64 + launch - 1e-6 * (1 + whole));
            sum += whole;
        }
        assert_true(sum > 0);
        esp_cost_destroy(cost);
        esp_costs_destroy(costs);
        table_free(&t);
    }
    esp_cluster_destroy(cluster);
    esp_graph_destroy(g);
}

static void bounds_hold_with_tables(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++) {
        esp_graph_t *g = deploy_graph(model, 8);
        esp_cluster_t *cluster = cluster_mixed();
        table_t t;
        esp_cost_t *cost;
        esp_search_result_t *result;
        esp_diag_t diag = {0};
        int64_t bound;
        table_fill(&t, g, cluster->types[0].name, 1, 77);
        esp_costs_t *costs = sorted(&t.costs);
        test_assert_ok(
            esp_cost_create_measured(g, cluster, ESP_PRECISION_FP32, costs, NULL, &cost, &diag),
            &diag);
        esp_search_opts_t opts = esp_search_opts_default();
        opts.evaluations = 60;
        test_assert_ok(esp_search(cost, &opts, NULL, &result, &diag), &diag);
        assert_int_equal(esp_lower_bound(cost, NULL, &bound), ESP_OK);
        assert_true(bound > 0 && bound <= result->best.outcome.step_time_ns);
        esp_search_result_destroy(result);
        esp_cost_destroy(cost);
        esp_costs_destroy(costs);
        table_free(&t);
        esp_cluster_destroy(cluster);
        esp_graph_destroy(g);
    }
}

static void other_precisions_are_refused(void **state)
{
    (void)state;
    esp_graph_t *g = deploy_graph(0, 8);
    esp_cluster_t *cluster = cluster_uniform(1);
    const esp_costs_t fp32 = {"0.1", ESP_PRECISION_FP32, 0, NULL, 0, NULL, 0, NULL};
    const esp_costs_t fp16 = {"0.1", ESP_PRECISION_FP16, 0, NULL, 0, NULL, 0, NULL};
    esp_cost_t *cost;
    esp_costs_t *costs;
    esp_diag_t diag = {0};
    test_assert_fails(
        esp_cost_create_measured(g, cluster, ESP_PRECISION_BF16, &fp32, NULL, &cost, &diag), &diag,
        ESP_ERR_ARGUMENT, "fp32");
    test_assert_fails(esp_costs_merge(&fp32, &fp16, NULL, &costs, &diag), &diag, ESP_ERR_ARGUMENT,
                      "do not mix");
    esp_cluster_destroy(cluster);
    esp_graph_destroy(g);
}

/* ---- merging ------------------------------------------------------------------------------------
 */

static void newer_figures_count(void **state)
{
    (void)state;
    const esp_cost_point_t old_point[] = {{1, 10, 1, 5}, {2, 20, 1, 5}},
                           new_point[] = {{2, 25, 2, 6}, {4, 44, 2, 6}};
    const esp_cost_point_t other_point[] = {{1, 7, 0, 1}};
    const esp_cost_curve_t old_curve[] = {{"b", 2, old_point}, {"a", 1, other_point}};
    const esp_cost_curve_t new_curve[] = {{"b", 2, new_point}};
    const esp_costs_type_t old_type[] = {{"y", 5, -1, 1e-9, 2, old_curve}};
    const esp_costs_type_t new_type[] = {{"y", -1, 3, -1, 1, new_curve}, {"x", 1, 1, 1, 0, NULL}};
    const esp_costs_link_t old_link[] = {{"q", "p", 1, 10}, {"p", "q", 2, 20}};
    const esp_costs_link_t new_link[] = {{"q", "p", 3, 30}};
    const esp_comm_t all = ESP_COMM_ALLREDUCE;
    const esp_costs_collective_t old_collective[] = {{all, "own", 4, 100, 1},
                                                     {all, "mpi", 4, 9, 2}};
    const esp_costs_collective_t new_collective[] = {{all, "own", 4, 100, 3},
                                                     {all, "own", 4, 50, 4}};
    const esp_costs_t older = {"0", ESP_PRECISION_FP32, 1, old_type,
                               2,   old_link,           2, old_collective};
    const esp_costs_t newer = {"1", ESP_PRECISION_FP32, 2, new_type,
                               1,   new_link,           2, new_collective};
    esp_costs_t *m;
    esp_diag_t diag = {0};
    test_assert_ok(esp_costs_merge(&older, &newer, NULL, &m, &diag), &diag);
    assert_string_equal(m->version, "1");
    assert_int_equal(m->n_types, 2);
    const esp_costs_type_t *y = esp_costs_find_type(m, "y");
    assert_true(y->launch_ns == 5 && y->copy_ns_per_byte == 3);
    assert_true(y->comm_compute_s_per_byte == 1e-9);
    assert_int_equal(y->n_curves, 2);
    const esp_cost_curve_t *b = esp_costs_find_curve(y, "b");
    assert_int_equal(b->n, 3);
    assert_true(b->point[0].ns == 10 && b->point[1].ns == 25 && b->point[2].ns == 44);
    assert_int_equal(esp_costs_find_curve(y, "a")->n, 1);
    assert_null(esp_costs_find_curve(y, "c"));
    assert_null(esp_costs_find_type(m, "z"));
    assert_int_equal(m->n_links, 2);
    assert_true(strcmp(m->link[0].src, "p") == 0 && m->link[0].bytes_per_s == 20);
    assert_true(strcmp(m->link[1].src, "q") == 0 && m->link[1].bytes_per_s == 30);
    assert_int_equal(m->n_collectives, 3);
    assert_true(strcmp(m->collective[0].algorithm, "mpi") == 0 && m->collective[0].ns == 2);
    assert_true(m->collective[1].bytes == 50 && m->collective[1].ns == 4);
    assert_true(m->collective[2].bytes == 100 && m->collective[2].ns == 3);
    esp_costs_destroy(m);
    esp_costs_destroy(NULL);
}

/* ---- files --------------------------------------------------------------------------------------
 */

static const char sample[] =
    "{\"format\": \"espalier-costs\", \"format_version\": 1, \"espalier\": \"0.1.0\",\n"
    " \"precision\": \"fp32\",\n"
    " \"types\": [{\"name\": \"a\", \"launch_ns\": 100, \"copy_ns_per_byte\": 0.25, \"ops\": [\n"
    "   {\"op\": \"p\", \"points\": [[1, 10.5, 0.5, 3], [2, 20, 1, 4]]},\n"
    "   {\"op\": \"q\", \"points\": [[1, 10, 0, 1]]}]},\n"
    "  {\"name\": \"b\", \"comm_compute_s_per_byte\": 1e-10, \"ops\": []}],\n"
    " \"links\": [{\"from\": \"d0\", \"to\": \"d1\", \"latency_ns\": 5000, \"bytes_per_s\": "
    "1e9}],\n"
    " \"collectives\": [\n"
    "  {\"kind\": \"all-reduce\", \"algorithm\": \"mpi\", \"ranks\": 4, \"bytes\": 64, \"ns\": "
    "700},\n"
    "  {\"kind\": \"all-reduce\", \"algorithm\": \"own\", \"ranks\": 4, \"bytes\": 64, \"ns\": "
    "800},\n"
    "  {\"kind\": \"all-reduce\", \"algorithm\": \"own\", \"ranks\": 4, \"bytes\": 96, \"ns\": "
    "960},\n"
    "  {\"kind\": \"all-reduce\", \"algorithm\": \"own\", \"ranks\": 4, \"bytes\": 128, \"ns\": "
    "900}]}";

static void files_read_back(void **state)
{
    (void)state;
    esp_costs_t *costs, *again;
    esp_diag_t diag = {0};
    char *text, *second;
    test_assert_ok(esp_costs_parse(sample, strlen(sample), "c.json", NULL, &costs, &diag), &diag);
    assert_int_equal(costs->n_types, 2);
    assert_true(costs->type[0].comm_compute_s_per_byte < 0 && costs->type[1].launch_ns < 0);
    assert_true(costs->type[0].curve[0].point[0].ns == 10.5);
    assert_int_equal(costs->type[0].curve[0].point[1].runs, 4);
    assert_true(costs->link[0].bytes_per_s == 1e9);
    assert_int_equal(costs->n_collectives, 4);
    assert_true(costs->collective[1].bytes == 64 && costs->collective[1].ns == 800);
    test_assert_ok(esp_costs_to_json(costs, NULL, &text, &diag), &diag);
    test_assert_ok(esp_costs_parse(text, strlen(text), NULL, NULL, &again, &diag), &diag);
    test_assert_ok(esp_costs_to_json(again, NULL, &second, &diag), &diag);
    assert_string_equal(text, second);
    free(text);
    free(second);
    esp_costs_destroy(costs);
    esp_costs_destroy(again);
    test_assert_fails(esp_costs_read("/nonexistent/c.json", NULL, &costs, &diag), &diag, ESP_ERR_IO,
                      "");
}

static void collectives_between_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *algorithm;
        int32_t ranks;
        int64_t bytes;
        double ns;
    } cases[] = {
        {"own", 4, 64, 800}, {"own", 4, 80, 880},  {"own", 4, 96, 960}, {"own", 4, 112, 930},
        {"own", 4, 1, 800},  {"own", 4, 999, 900}, {"mpi", 4, 32, 700}, {"mpi", 4, 128, 1400},
        {"own", 3, 64, -1},  {"abacus", 4, 1, -1},
    };
    esp_costs_t *costs;
    esp_diag_t diag = {0};
    test_assert_ok(esp_costs_parse(sample, strlen(sample), NULL, NULL, &costs, &diag), &diag);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(esp_costs_collective_ns(costs, ESP_COMM_ALLREDUCE, cases[i].algorithm,
                                            cases[i].ranks, cases[i].bytes) == cases[i].ns);
    assert_true(esp_costs_collective_ns(costs, ESP_COMM_ALL_GATHER, "own", 4, 64) < 0);
    esp_costs_destroy(costs);
}

static void hostile_files(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
        esp_status_t status;
    } cases[] = {
        {"espalier-costs", "espalier-plan", "no costs", ESP_ERR_INVALID},
        {"\"format_version\": 1", "\"format_version\": 9", "version 9", ESP_ERR_UNSUPPORTED},
        {"\"fp32\"", "\"fp99\"", "no precision", ESP_ERR_INVALID},
        {"\"0.1.0\"", "\"\"", "$.espalier", ESP_ERR_INVALID},
        {"\"links\"", "\"link\"", "unknown key", ESP_ERR_INVALID},
        {"\"name\": \"b\"", "\"name\": \"a\"", "$.types[1].name", ESP_ERR_INVALID},
        {"\"name\": \"b\"", "\"nam\": \"b\"", "$.types[1]", ESP_ERR_INVALID},
        {"\"launch_ns\": 100", "\"launch_ns\": -1", "$.types[0].launch_ns", ESP_ERR_INVALID},
        {"\"launch_ns\": 100", "\"launch_ns\": 1e14", "must be a time", ESP_ERR_INVALID},
        {"0.25", "1e14", "time per byte", ESP_ERR_INVALID},
        {"1e-10", "2", "time per byte", ESP_ERR_INVALID},
        {"\"op\": \"q\"", "\"op\": \"p\"", "$.types[0].ops[1].op", ESP_ERR_INVALID},
        {"\"op\": \"q\"", "\"op\": 3", "$.types[0].ops[1].op", ESP_ERR_INVALID},
        {"[[1, 10, 0, 1]]", "[]", "there must be a point", ESP_ERR_INVALID},
        {"[1, 10, 0, 1]", "[1, 10, 0]", "[units, ns, spread_ns, runs]", ESP_ERR_INVALID},
        {"[1, 10, 0, 1]", "[0, 10, 0, 1]", "$.types[0].ops[1].points[0]", ESP_ERR_INVALID},
        {"[1, 10, 0, 1]", "[1, -10, 0, 1]", "points[0][1]", ESP_ERR_INVALID},
        {"[1, 10, 0, 1]", "[1, 10, 0, 0]", "points[0][3]", ESP_ERR_INVALID},
        {"[1, 10, 0, 1]", "[1, 10, 0, 1.5]", "points[0][3]", ESP_ERR_INVALID},
        {"[1, 10, 0, 1]", "7", "points[0]", ESP_ERR_INVALID},
        {"[2, 20", "[1, 20", "units must ascend", ESP_ERR_INVALID},
        {"\"to\": \"d1\"", "\"to\": \"d0\"", "between two devices", ESP_ERR_INVALID},
        {"5000", "-5", "latency_ns", ESP_ERR_INVALID},
        {"1e9", "0", "bytes_per_s", ESP_ERR_INVALID},
        {"1e9", "\"fast\"", "$.links[0].bytes_per_s", ESP_ERR_INVALID},
        {"\"types\": [", "\"types\": {", "", ESP_ERR_SYNTAX},
        {"all-reduce", "reduce", "$.collectives[0].kind", ESP_ERR_INVALID},
        {"all-reduce", "none", "$.collectives[0].kind", ESP_ERR_INVALID},
        {"\"mpi\"", "\"\"", "$.collectives[0].algorithm", ESP_ERR_INVALID},
        {"\"mpi\"", "\"own\"", "collectives must ascend", ESP_ERR_INVALID},
        {"\"ranks\": 4", "\"ranks\": 1", "$.collectives[0].ranks", ESP_ERR_INVALID},
        {"\"bytes\": 64", "\"bytes\": 0", "$.collectives[0].bytes", ESP_ERR_INVALID},
        {"\"ns\": 700", "\"ns\": -1", "$.collectives[0].ns", ESP_ERR_INVALID},
        {"\"ns\": 700", "\"us\": 1", "$.collectives[0]", ESP_ERR_INVALID},
        {"\"collectives\": [", "\"collectives\": 3, \"x\": [", "", ESP_ERR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        esp_costs_t *costs;
        esp_diag_t diag = {0};
        const char *at = strstr(sample, cases[i].from);
        assert_non_null(at);
        (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - sample), sample, cases[i].to,
                       at + strlen(cases[i].from));
        test_assert_fails(esp_costs_parse(text, strlen(text), "c.json", NULL, &costs, &diag), &diag,
                          cases[i].status, cases[i].message);
        assert_string_equal(diag.file, "c.json");
    }
    for (size_t length = 0; length < strlen(sample); length += 7) { /* cut short */
        esp_costs_t *costs;
        assert_int_equal(esp_costs_parse(sample, length, NULL, NULL, &costs, NULL), ESP_ERR_SYNTAX);
    }
}

static void tables_that_make_no_sense_are_not_written(void **state)
{
    (void)state;
    const esp_cost_point_t nan_point[] = {{1, (double)NAN, 0, 1}};
    const esp_cost_curve_t curve[] = {{"a", 1, nan_point}};
    const esp_costs_type_t type[] = {{"t", -1, -1, -1, 1, curve}};
    const esp_costs_t costs = {"0.1", ESP_PRECISION_FP32, 1, type, 0, NULL, 0, NULL};
    esp_diag_t diag = {0};
    char *text;
    test_assert_fails(esp_costs_to_json(&costs, NULL, &text, &diag), &diag, ESP_ERR_ARGUMENT,
                      "$.types[0].ops[0].points[0]");
}

/* ---- clusters -----------------------------------------------------------------------------------
 */

static void same_cluster(const esp_cluster_t *a, const esp_cluster_t *b)
{
    char x[65], y[65];
    assert_int_equal(esp_cluster_hash(a, NULL, x, NULL), ESP_OK);
    assert_int_equal(esp_cluster_hash(b, NULL, y, NULL), ESP_OK);
    assert_string_equal(x, y);
}

/* Without measurements the copy is the same cluster. */
static void nothing_measured_changes_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"lab", "testbed", "cloud"};
    const esp_costs_t nothing = {"0.1", ESP_PRECISION_FP32, 0, NULL, 0, NULL, 0, NULL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        esp_cluster_t *cluster = bench_cluster(names[i]), *copy;
        esp_diag_t diag = {0};
        test_assert_ok(esp_costs_cluster(&nothing, cluster, NULL, &copy, &diag), &diag);
        same_cluster(cluster, copy);
        esp_cluster_destroy(cluster);
        esp_cluster_destroy(copy);
    }
    for (uint64_t seed = 0; seed < 20; seed++) { /* the matrix form, with hubs */
        esp_cluster_random_opts_t opts = esp_cluster_random_opts_default();
        esp_cluster_t *cluster, *copy;
        opts.seed = seed;
        opts.model_bytes = 1 << 30;
        assert_int_equal(esp_cluster_random(&opts, NULL, &cluster, NULL), ESP_OK);
        assert_int_equal(esp_costs_cluster(&nothing, cluster, NULL, &copy, NULL), ESP_OK);
        same_cluster(cluster, copy);
        esp_cluster_destroy(cluster);
        esp_cluster_destroy(copy);
    }
}

/* Pairs are measured on a cluster with other figures; then the declared one predicts the same. */
static void measured_pairs_are_reproduced(void **state)
{
    (void)state;
    const lab_link_t in_declared = {1e10, 2000}, out_declared = {1e9, 10000};
    const lab_link_t in_true = {6e9, 5000}, out_true = {4e8, 21000};
    esp_cluster_t *declared = lab_cluster(2, 2, NULL, in_declared, out_declared);
    esp_cluster_t *truth = lab_cluster(2, 2, NULL, in_true, out_true), *cluster;
    esp_costs_link_t link[12];
    int32_t n = 0;
    for (int32_t s = 0; s < 4; s++)
        for (int32_t d = 0; d < 4; d++)
            if (s != d)
                link[n++] =
                    (esp_costs_link_t){truth->vertex_name[s], truth->vertex_name[d],
                                       3000 + (double)esp_cluster_route_latency_ns(truth, s, d),
                                       esp_cluster_route_bytes_per_s(truth, s, d)};
    const esp_costs_type_t type = {declared->types[0].name, 77, -1, 2e-10, 0, NULL};
    const esp_costs_t costs = {"0.1", ESP_PRECISION_FP32, 1, &type, n, link, 0, NULL};
    esp_diag_t diag = {0};
    test_assert_ok(esp_costs_cluster(&costs, declared, NULL, &cluster, &diag), &diag);
    for (int32_t s = 0; s < 4; s++)
        for (int32_t d = 0; d < 4; d++) {
            assert_true(esp_cluster_route_bytes_per_s(cluster, s, d) ==
                        esp_cluster_route_bytes_per_s(truth, s, d));
            assert_true(llabs((long long)(esp_cluster_route_latency_ns(cluster, s, d) -
                                          esp_cluster_route_latency_ns(truth, s, d))) <= 4);
        }
    assert_int_equal(cluster->types[0].launch_ns, 77);
    assert_true(cluster->types[0].comm_compute_s_per_byte == 2e-10);
    esp_cluster_destroy(declared);
    esp_cluster_destroy(truth);
    esp_cluster_destroy(cluster);
}

static void other_devices_and_instant_links(void **state)
{
    (void)state;
    const lab_link_t in = {1e10, 2000};
    esp_cluster_t *declared = lab_cluster(1, 2, NULL, in, in), *cluster;
    const esp_costs_link_t link[] = {{declared->vertex_name[0], declared->vertex_name[1], 0, 5e9},
                                     {"elsewhere", declared->vertex_name[1], 9e9, 1}};
    const esp_costs_t costs = {"0.1", ESP_PRECISION_FP32, 0, NULL, 2, link, 0, NULL};
    assert_int_equal(esp_costs_cluster(&costs, declared, NULL, &cluster, NULL), ESP_OK);
    assert_int_equal(esp_cluster_route_latency_ns(cluster, 0, 1), 0); /* less than a step has */
    assert_int_equal(esp_cluster_route_latency_ns(cluster, 1, 0), 4000);
    assert_true(esp_cluster_route_bytes_per_s(cluster, 0, 1) == 5e9);
    assert_true(esp_cluster_route_bytes_per_s(cluster, 1, 0) == 1e10);
    esp_cluster_destroy(declared);
    esp_cluster_destroy(cluster);
}

/* ---- memory -------------------------------------------------------------------------------------
 */

typedef struct subject {
    esp_graph_t *graph;
    esp_cluster_t *cluster;
} subject_t;

static esp_status_t use(const esp_allocator_t *alloc, const subject_t *s, const esp_costs_t *costs)
{
    esp_cost_t *cost;
    esp_cluster_t *cluster;
    char *text;
    ESP_TRY(esp_cost_create_measured(s->graph, s->cluster, ESP_PRECISION_FP32, costs, alloc, &cost,
                                     NULL));
    esp_cost_destroy(cost);
    ESP_TRY(esp_costs_cluster(costs, s->cluster, alloc, &cluster, NULL));
    esp_cluster_destroy(cluster);
    ESP_TRY(esp_costs_to_json(costs, alloc, &text, NULL));
    alloc->release(alloc->context, text);
    return ESP_OK;
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    const subject_t *s = context;
    table_t t;
    esp_costs_t *costs, *parsed;
    table_fill(&t, s->graph, s->cluster->types[0].name, 3, 1);
    esp_costs_link_t link = {s->cluster->vertex_name[0], s->cluster->vertex_name[1], 5000, 1e9};
    t.costs.n_links = 1;
    t.costs.link = &link;
    const esp_costs_t nothing = {"0.1", ESP_PRECISION_FP32, 0, NULL, 0, NULL, 0, NULL};
    esp_status_t status = esp_costs_merge(&nothing, &t.costs, alloc, &costs, NULL);
    table_free(&t);
    if (status != ESP_OK)
        return status;
    status = use(alloc, s, costs);
    esp_costs_destroy(costs);
    if (status == ESP_OK)
        status = esp_costs_parse(sample, strlen(sample), "c", alloc, &parsed, NULL);
    if (status == ESP_OK)
        esp_costs_destroy(parsed);
    return status;
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    subject_t s = {deploy_graph(0, 8), cluster_uniform(2)};
    test_sweep_allocations(attempt, &s, 1);
    esp_graph_destroy(s.graph);
    esp_cluster_destroy(s.cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_equal_twin),
        cmocka_unit_test(curves_by_hand),
        cmocka_unit_test(signatures_do_not_know_the_batch),
        cmocka_unit_test(updates_are_one_curve),
        cmocka_unit_test(models_use_the_table),
        cmocka_unit_test(divisible_time_is_a_lower_bound),
        cmocka_unit_test(bounds_hold_with_tables),
        cmocka_unit_test(other_precisions_are_refused),
        cmocka_unit_test(newer_figures_count),
        cmocka_unit_test(files_read_back),
        cmocka_unit_test(collectives_between_sizes),
        cmocka_unit_test(hostile_files),
        cmocka_unit_test(tables_that_make_no_sense_are_not_written),
        cmocka_unit_test(nothing_measured_changes_nothing),
        cmocka_unit_test(measured_pairs_are_reproduced),
        cmocka_unit_test(other_devices_and_instant_links),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
