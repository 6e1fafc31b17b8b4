/* Profiling: what is in the tables; never how long anything takes. */
#include "deployments.h"
#include "strategies.h"

#include "espalier/profile.h"

#include <stdlib.h>
#include <string.h>

static esp_profile_opts_t quick(void)
{
    esp_profile_opts_t opts = esp_profile_opts_default();
    opts.backend = "reference";
    opts.seconds = 0;
    opts.runs = 2;
    opts.shares = 3;
    return opts;
}

static void check_curve(const esp_cost_curve_t *curve, double units)
{
    bool whole = false;
    for (int32_t i = 0; i < curve->n; i++) {
        assert_true(curve->point[i].ns > 0 && curve->point[i].spread_ns >= 0);
        assert_true(curve->point[i].runs >= 2);
        whole = whole || curve->point[i].units == units;
    }
    assert_true(whole);
}

/* Every op is there for the whole batch, and for halves and quarters where it is split. */
static void every_op_is_measured(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++) {
        esp_graph_t *g = deploy_graph(model, 8);
        esp_profile_opts_t opts = quick();
        esp_costs_t *costs;
        esp_diag_t diag = {0};
        int32_t split = 0;
        test_assert_ok(esp_profile_ops(g, "here", &opts, NULL, &costs, &diag), &diag);
        assert_int_equal(costs->n_types, 1);
        assert_int_equal(costs->precision, ESP_PRECISION_FP32);
        const esp_costs_type_t *type = &costs->type[0];
        assert_string_equal(type->name, "here");
        assert_true(type->launch_ns > 0 && type->copy_ns_per_byte > 0);
        assert_true(type->comm_compute_s_per_byte < 0 && costs->n_links == 0);
        for (esp_op_id_t op = 0; op < g->n_ops; op++) {
            char *signature;
            if (g->op_family[op] == ESP_FAMILY_FREE)
                continue;
            assert_int_equal(esp_op_signature(g, op, NULL, &signature), ESP_OK);
            const esp_cost_curve_t *curve = esp_costs_find_curve(type, signature);
            if (!curve)
                fail_msg("%s: %s", g->op_name[op], signature);
            free(signature);
            esp_factor_t factor = esp_op_unit_factor(g, op);
            check_curve(curve, factor.dim == ESP_NONE ? 1 : (double)factor.b);
            if (g->op_batch[op].dim == ESP_NONE)
                continue;
            check_curve(curve, (double)factor.b / 2);
            check_curve(curve, (double)factor.b / 4);
            split++;
        }
        assert_true(split > 3);
        esp_costs_destroy(costs);
        esp_graph_destroy(g);
    }
}

/* A model of another batch finds its ops in the table, and all tasks of a plan are measured. */
static void tables_serve_other_batches(void **state)
{
    (void)state;
    esp_graph_t *g = deploy_graph(5, 8), *other = deploy_graph(5, 32);
    esp_cluster_t *cluster = cluster_uniform(2);
    esp_profile_opts_t opts = quick();
    esp_costs_t *costs;
    esp_cost_t *cost;
    esp_diag_t diag = {0};
    test_assert_ok(esp_profile_ops(g, cluster->types[0].name, &opts, NULL, &costs, &diag), &diag);
    test_assert_ok(
        esp_cost_create_measured(other, cluster, ESP_PRECISION_FP32, costs, NULL, &cost, &diag),
        &diag);
    for (esp_op_id_t op = 0; op < other->n_ops; op++)
        if (other->op_family[op] != ESP_FAMILY_FREE)
            assert_int_equal(esp_cost_measured(cost, op, 0), 1);
    esp_cost_destroy(cost);
    esp_costs_destroy(costs);
    esp_cluster_destroy(cluster);
    esp_graph_destroy(g);
    esp_graph_destroy(other);
}

static void threads_stand_for_devices(void **state)
{
    (void)state;
    esp_graph_t *g = deploy_graph(0, 8);
    esp_cluster_t *cluster = cluster_mixed();
    esp_profile_opts_t opts = quick();
    esp_costs_t *costs;
    esp_diag_t diag = {0};
    int32_t rank = 7;
    opts.shares = 1;
    opts.seconds = 0.004;
    test_assert_ok(esp_profile_cluster(g, cluster, 1, &opts, NULL, &costs, &rank, &diag), &diag);
    assert_int_equal(rank, 0);
    assert_int_equal(costs->n_types, cluster->n_types);
    for (int32_t t = 0; t < cluster->n_types; t++) {
        const esp_costs_type_t *type = esp_costs_find_type(costs, cluster->types[t].name);
        assert_true(type->n_curves > 3 && type->comm_compute_s_per_byte >= 0);
    }
    assert_int_equal(costs->n_links, cluster->n_devices * (cluster->n_devices - 1));
    for (int32_t i = 0; i < costs->n_links; i++)
        assert_true(costs->link[i].latency_ns >= 0 && costs->link[i].bytes_per_s > 1000);
    esp_cluster_t *measured;
    test_assert_ok(esp_costs_cluster(costs, cluster, NULL, &measured, &diag), &diag);
    esp_cluster_destroy(measured);
    esp_costs_destroy(costs);
    esp_cluster_destroy(cluster);
    esp_graph_destroy(g);
}

static int stop_late(void *context, double fraction, const char *what)
{
    int32_t *left = context;
    (void)what;
    assert_true(fraction >= 0 && fraction <= 1);
    return --*left < 0;
}

/* Stopped at any time, nothing is left. */
static void stopping(void **state)
{
    (void)state;
    esp_graph_t *g = deploy_graph(0, 8);
    esp_cluster_t *cluster = cluster_uniform(2);
    for (int32_t after = 0;; after++) {
        int32_t left = after;
        esp_profile_opts_t opts = quick();
        esp_costs_t *costs;
        esp_diag_t diag = {0};
        opts.progress = stop_late;
        opts.progress_context = &left;
        esp_status_t status = esp_profile_cluster(g, cluster, 1, &opts, NULL, &costs, NULL, &diag);
        if (status == ESP_OK) {
            esp_costs_destroy(costs);
            assert_true(after > 4);
            break;
        }
        assert_int_equal(status, ESP_STOPPED);
    }
    esp_cluster_destroy(cluster);
    esp_graph_destroy(g);
}

static void errors(void **state)
{
    (void)state;
    esp_graph_t *g = deploy_graph(0, 8);
    esp_costs_t *costs;
    esp_diag_t diag = {0};
    static const struct {
        const char *backend;
        double seconds;
        int32_t runs, shares;
        const char *message;
    } cases[] = {{"abacus", 0, 1, 1, "abacus"},
                 {NULL, -1, 1, 1, "seconds"},
                 {NULL, 0, 0, 1, "runs"},
                 {NULL, 0, 1, 9, "shares"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        esp_profile_opts_t opts = esp_profile_opts_default();
        opts.backend = cases[i].backend;
        opts.seconds = cases[i].seconds;
        opts.runs = cases[i].runs;
        opts.shares = cases[i].shares;
        test_assert_fails(esp_profile_ops(g, "x", &opts, NULL, &costs, &diag), &diag,
                          ESP_ERR_ARGUMENT, cases[i].message);
    }
    esp_profile_opts_t opts = quick();
    opts.struct_size = 3;
    test_assert_fails(esp_profile_ops(g, "x", &opts, NULL, &costs, &diag), &diag, ESP_ERR_ARGUMENT,
                      "version");
    esp_graph_destroy(g);
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    esp_costs_t *costs;
    esp_profile_opts_t opts = quick();
    opts.runs = 1;
    opts.shares = 2;
    ESP_TRY(esp_profile_ops(context, "x", &opts, alloc, &costs, NULL));
    esp_costs_destroy(costs);
    return ESP_OK;
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    esp_graph_t *g = deploy_graph(0, 8);
    test_sweep_allocations(attempt, g, 7);
    esp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_is_measured),
        cmocka_unit_test(tables_serve_other_batches),
        cmocka_unit_test(threads_stand_for_devices),
        cmocka_unit_test(stopping),
        cmocka_unit_test(errors),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
