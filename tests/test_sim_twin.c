/* The simulator against its naive twin, on random deployments. */
#include "deploy_builder.h"
#include "gate.h"
#include "models.h"
#include "naive_sim.h"

#include "espalier/cluster.h"

#include <math.h>
#include <stdlib.h>

/* Equal, but for rounding on fair links: a nanosecond here or there per speed change. */
static void assert_close(int64_t a, int64_t b, bool fair)
{
    double slack = fair ? 1e-9 * (double)a + 4 : 0;
    if (fabs((double)(a - b)) > slack)
        fail_msg("%lld differs from the twin's %lld", (long long)a, (long long)b);
}

static esp_status_t run_beside(const esp_deployment_t *d, const esp_sim_opts_t *opts,
                               esp_sim_t *sim, const naive_result_t *twin)
{
    esp_sim_result_t r;
    esp_diag_t diag = {0};
    esp_status_t status = esp_sim_run(sim, d, opts, &r, &diag);
    bool fair = opts->links == ESP_LINK_FAIR;
    assert_int_equal(status == ESP_ERR_INTERNAL, twin->deadlock);
    if (status != ESP_OK)
        return status;
    assert_close(r.step_time_ns, twin->step_time_ns, fair);
    assert_close(r.makespan_ns, twin->makespan_ns, fair);
    for (int32_t t = 0; opts->timeline && t < d->n_tasks; ++t) {
        assert_close(r.start_ns[t], twin->start_ns[t], fair);
        assert_close(r.end_ns[t], twin->end_ns[t], fair);
    }
    for (int32_t k = 0; k < d->n_classes; ++k)
        assert_int_equal(r.class_peak_bytes[k], twin->peak_bytes[k]);
    return ESP_OK;
}

/*
 * With and without a timeline: memory is accounted for in another way then. Whether the deployment
 * could be simulated, and not both refuse it.
 */
static bool compare(const esp_deployment_t *d, const esp_sim_opts_t *opts, esp_sim_t *sim)
{
    esp_sim_opts_t other = *opts;
    naive_result_t twin = naive_run(d, opts);
    esp_status_t status = run_beside(d, opts, sim, &twin);
    other.timeline = !opts->timeline;
    assert_int_equal(run_beside(d, &other, sim, &twin), status);
    naive_free(&twin);
    return status == ESP_OK;
}

/* What movements take of the compute time of their classes: sometimes nothing at all. */
static int64_t *random_taken(esp_i_rng_t *rng, const esp_deployment_t *d)
{
    const int32_t n = d->n_comms > 0 ? d->comm_class_offset[d->n_comms] : 0;
    int64_t *taken = calloc((size_t)n + 1, sizeof *taken);
    assert_non_null(taken);
    for (int32_t i = 0; i < n; ++i)
        taken[i] = esp_i_rng_below(rng, 3) * esp_i_rng_below(rng, 300);
    return taken;
}

/* Now and then an order that is not topological: it may deadlock, and must say so. */
static void shuffle(esp_i_rng_t *rng, int32_t n, int32_t *order)
{
    for (int32_t p = 0; p < n; ++p)
        order[p] = p;
    for (int32_t k = 0; k < 2; ++k) {
        int32_t a = (int32_t)esp_i_rng_below(rng, n), b = (int32_t)esp_i_rng_below(rng, n);
        int32_t swap = order[a];
        order[a] = order[b];
        order[b] = swap;
    }
}

static void run_twins(esp_link_mode_t links, int32_t fifo, uint64_t seed, int32_t rounds)
{
    esp_sim_t *sim;
    esp_i_rng_t rng;
    int32_t done = 0;
    esp_i_rng_seed(&rng, seed);
    assert_int_equal(esp_sim_create(NULL, &sim), ESP_OK);
    for (int32_t k = 0; k < rounds; ++k) {
        int32_t n = 2 + (int32_t)esp_i_rng_below(&rng, 30);
        esp_cluster_t *cluster = lab_random_cluster(&rng, 3, 3);
        bool coarse = links != ESP_LINK_FAIR && esp_i_rng_below(&rng, 2);
        deploy_t *deploy = deploy_random(&rng, cluster, n, coarse);
        int32_t order[32];
        shuffle(&rng, n, order);
        esp_sim_opts_t opts = esp_sim_opts_default();
        opts.links = links;
        opts.fifo = fifo;
        opts.timeline = 1;
        opts.steps = 1 + (int32_t)esp_i_rng_below(&rng, 4);
        esp_deployment_t d = *deploy_get(deploy, esp_i_rng_below(&rng, 4) ? NULL : order);
        int64_t *taken = esp_i_rng_below(&rng, 2) ? random_taken(&rng, &d) : NULL;
        d.comm_class_ns = taken;
        done += compare(&d, &opts, sim);
        free(taken);
        deploy_free(deploy);
        esp_cluster_destroy(cluster);
    }
    esp_sim_destroy(sim);
    assert_true(done > rounds / 2);
}

static void exclusive_equals_twin(void **state)
{
    (void)state;
    run_twins(ESP_LINK_EXCLUSIVE, 0, 1, 3000);
}

static void fair_equals_twin(void **state)
{
    (void)state;
    run_twins(ESP_LINK_FAIR, 0, 2, 200);
}

static void free_equals_twin(void **state)
{
    (void)state;
    run_twins(ESP_LINK_FREE, 0, 6, 1000);
}

static void fifo_equals_twin(void **state)
{
    (void)state;
    run_twins(ESP_LINK_EXCLUSIVE, 1, 3, 60);
    run_twins(ESP_LINK_FAIR, 1, 4, 40);
}

static void compare_two_steps(deploy_t *deploy, esp_sim_t *sim)
{
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.timeline = 1;
    opts.steps = 2;
    assert_true(compare(deploy_get(deploy, NULL), &opts, sim));
}

/*
 * Many transfers of a few patterns at once, of all sizes, in a replay where some take far longer
 * than the model says: a bundle of which some are at full speed and some are not, again and again.
 */
static void crowds_equal_twin(void **state)
{
    (void)state;
    esp_sim_t *sim;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 5);
    assert_int_equal(esp_sim_create(NULL, &sim), ESP_OK);
    for (int32_t k = 0; k < 60; ++k) {
        const lab_link_t link = {1e9, 1000};
        esp_cluster_t *cluster = lab_cluster(1, 3, NULL, link, link);
        deploy_t *deploy = deploy_new(cluster, 3);
        int32_t before = deploy_compute(deploy, 0, 1000), count = 10 + k / 2;
        for (int32_t i = 0; i < count; ++i) {
            int32_t to = 1 + (int32_t)esp_i_rng_below(&rng, 2);
            int64_t bytes = 1 + esp_i_rng_below(&rng, esp_i_rng_below(&rng, 2) ? 20 : 200000);
            int32_t move = deploy_transfer(deploy, 0, to, bytes);
            if (k % 2 && esp_i_rng_below(&rng, 3) == 0)
                deploy_set_ns(deploy, move, 1000 + bytes * (1 + esp_i_rng_below(&rng, 9)));
            deploy_edge(deploy, before, move);
            if (esp_i_rng_below(&rng, 3) == 0)
                before = deploy_compute(deploy, 0, esp_i_rng_below(&rng, 100000));
        }
        compare_two_steps(deploy, sim);
        deploy_free(deploy);
        esp_cluster_destroy(cluster);
    }
    esp_sim_destroy(sim);
}

/*
 * The same transfers set out together again and again, in a replay where some take far longer than
 * the model says: the set of what is in flight is the same, what is at full speed is not.
 */
static void waves_equal_twin(void **state)
{
    (void)state;
    enum { DEVICES = 6, WAVES = 6 };
    const lab_link_t link = {1e9, 1000};
    esp_cluster_t *cluster = lab_cluster(1, DEVICES, NULL, link, link);
    esp_sim_t *sim;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 7);
    assert_int_equal(esp_sim_create(NULL, &sim), ESP_OK);
    for (int32_t k = 0; k < 20; ++k) {
        deploy_t *deploy = deploy_new(cluster, DEVICES);
        for (int32_t wave = 0; wave < WAVES; ++wave) {
            int32_t before = deploy_compute(deploy, 0, 10000000);
            for (int32_t to = 1; to < DEVICES; ++to) {
                int64_t bytes = 1 + esp_i_rng_below(&rng, 200000);
                int32_t move = deploy_transfer(deploy, 0, to, bytes);
                if (esp_i_rng_below(&rng, 4) == 0)
                    deploy_set_ns(deploy, move, 1000 + bytes * (1 + esp_i_rng_below(&rng, 9)));
                deploy_edge(deploy, before, move);
            }
        }
        compare_two_steps(deploy, sim);
        deploy_free(deploy);
    }
    esp_sim_destroy(sim);
    esp_cluster_destroy(cluster);
}

/* What lowering makes of small models, on a mixed and a uniform cluster. */
static void compare_lowered(gate_t *gate, const strategy_t *strategy)
{
    esp_sim_t *sim;
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.timeline = 1;
    opts.steps = 2;
    assert_int_equal(esp_sim_create(NULL, &sim), ESP_OK);
    for (int32_t i = 0; i < GATE_CLUSTERS; ++i) {
        const esp_deployment_t *d = gate_lower(gate, strategy, i);
        for (int32_t links = 0; links < 2; ++links) {
            opts.links = (esp_link_mode_t)links;
            assert_true(compare(d, &opts, sim));
        }
    }
    esp_sim_destroy(sim);
}

static void lowered_models_equal_twin(void **state)
{
    (void)state;
    const double uneven[] = {3, 1, 2};
    const esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    for (int32_t k = 0; k < 2; ++k) {
        gate_t gate;
        strategy_t strategy;
        gate_init(&gate, k == 0 ? model_mlp(6, 0.5, &opts) : model_convnet(6, 0, NULL, &opts));
        if (k == 0)
            strategy_mixed(&strategy, gate.graph, 3, uneven);
        else
            strategy_data_parallel(&strategy, gate.graph, 3, uneven);
        compare_lowered(&gate, &strategy);
        strategy_fini(&strategy);
        gate_fini(&gate);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exclusive_equals_twin),     cmocka_unit_test(fair_equals_twin),
        cmocka_unit_test(fifo_equals_twin),          cmocka_unit_test(crowds_equal_twin),
        cmocka_unit_test(lowered_models_equal_twin), cmocka_unit_test(free_equals_twin),
        cmocka_unit_test(waves_equal_twin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
