/* Packing: arenas without overlaps, as small as the order allows, and what reused memory depends
 * on. */
#include "deployments.h"

#include "espalier/sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- the naive twin: who is alive at which position --------------------------------------------
 */

typedef struct life {
    int32_t first, last; /* positions of the first and last task that touch it; first < 0: none */
} life_t;

/* Without what a movement takes to end: no packing keeps memory for a shorter time. */
static void lives_find(const esp_deployment_t *d, life_t *life)
{
    for (int32_t b = 0; b < d->n_buffers; b++)
        life[b] = (life_t){-1, -1};
    for (int32_t p = 0; p < d->n_tasks; p++) {
        int32_t t = d->order[p];
        for (int32_t k = 0; k < 2; k++) {
            const int32_t *offset = k ? d->write_offset : d->read_offset;
            const int32_t *buffer = k ? d->write_buffer : d->read_buffer;
            for (int32_t i = offset[t]; i < offset[t + 1]; i++) {
                life_t *l = buffer[i] < 0 ? NULL : &life[d->buffer_root[buffer[i]]];
                if (l) {
                    l->first = l->first < 0 ? p : l->first;
                    l->last = p;
                }
            }
        }
    }
}

static bool is_transient(const esp_deployment_t *d, const life_t *life, int32_t b)
{
    return d->buffer_root[b] == b && !d->buffer_resident[b] && d->buffer_bytes[b] > 0 &&
           life[b].first >= 0;
}

static int64_t live_peak(const esp_deployment_t *d, const life_t *life, int32_t class_)
{
    int64_t peak = 0;
    for (int32_t p = 0; p < d->n_tasks; p++) {
        int64_t live = 0;
        for (int32_t b = 0; b < d->n_buffers; b++)
            if (d->buffer_class[b] == class_ && is_transient(d, life, b) && life[b].first <= p &&
                p <= life[b].last)
                live += d->buffer_bytes[b];
        peak = esp_i_max_i64(peak, live);
    }
    return peak;
}

/* No two that are alive at one time share a byte; aliases lie with their memory. */
static void assert_no_overlap(const esp_deployment_t *d, const life_t *life)
{
    for (int32_t a = 0; a < d->n_buffers; a++) {
        int64_t low = d->buffer_offset[a], high = low + d->buffer_bytes[a];
        assert_true(low >= 0 && high <= d->class_arena_bytes[d->buffer_class[a]] + 16);
        assert_int_equal(low, d->buffer_offset[d->buffer_root[a]]);
        assert_int_equal(low % 64, 0);
        if (!is_transient(d, life, a))
            continue;
        for (int32_t b = 0; b < a; b++)
            if (d->buffer_class[a] == d->buffer_class[b] && is_transient(d, life, b) &&
                life[a].first <= life[b].last && life[b].first <= life[a].last)
                assert_true(d->buffer_offset[b] >= high ||
                            d->buffer_offset[b] + d->buffer_bytes[b] <= low);
    }
}

/* Successors and predecessors say the same, and follow the order. */
static void assert_edges(const esp_deployment_t *d)
{
    int32_t *into = calloc((size_t)d->n_tasks, sizeof *into);
    assert_non_null(into);
    for (int32_t t = 0; t < d->n_tasks; t++)
        for (int32_t s = d->successor_offset[t]; s < d->successor_offset[t + 1]; s++) {
            assert_true(d->position[t] < d->position[d->successor[s]]);
            into[d->successor[s]]++;
        }
    assert_memory_equal(into, d->n_predecessors, (size_t)d->n_tasks * sizeof *into);
    free(into);
}

static void test_random(void **state)
{
    (void)state;
    static const char *const clusters[] = {"lab", "testbed", "cpu4"};
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 21);
    int32_t packed = 0;
    for (int32_t trial = 0; trial < 9; trial++) {
        bench_t bench;
        bench_init(&bench, deploy_graph(trial, 16), bench_cluster(clusters[trial % 3]));
        for (int32_t i = 0; i < 5; i++) {
            plan_of_t plan;
            const esp_deployment_t *d;
            esp_diag_t diag = {0};
            plan_random(&plan, &bench, &rng);
            esp_status_t status = esp_lower(bench.lowerer, &plan.strategy, &d, &diag);
            plan_fini(&plan);
            if (status != ESP_OK)
                continue;
            int32_t extra = d->n_extra;
            test_assert_ok(esp_deployment_pack(bench.lowerer, &diag), &diag);
            life_t *life = calloc((size_t)d->n_buffers, sizeof *life);
            assert_non_null(life);
            lives_find(d, life);
            assert_no_overlap(d, life);
            assert_edges(d);
            for (int32_t c = 0; c < d->n_classes; c++)
                assert_true(d->class_arena_bytes[c] >=
                            d->class_resident_bytes[c] + live_peak(d, life, c));
            free(life);
            assert_true(d->n_extra >= extra);
            test_assert_ok(esp_deployment_check(d, &diag), &diag);
            packed++;
        }
        bench_fini(&bench);
    }
    assert_true(packed > 20);
}

/* ---- quality ------------------------------------------------------------------------------- */

/* Against the simulator's live peak, which counts bytes that are not rounded up to whole lines. */
static void test_close_to_the_peak(void **state)
{
    (void)state;
    esp_sim_t *sim;
    assert_int_equal(esp_sim_create(NULL, &sim), ESP_OK);
    for (int32_t micro = 1; micro <= 2; micro++)
        for (int32_t update = ESP_MODE_WHOLE; update <= ESP_MODE_SHARD; update++) {
            bench_t bench;
            plan_of_t plan;
            const esp_deployment_t *d;
            esp_sim_opts_t opts = esp_sim_opts_default();
            esp_sim_result_t result;
            bench_init(&bench, deploy_graph(3, 2048), bench_cluster("testbed"));
            plan_data_parallel(&plan, &bench, (esp_mode_t)update, micro);
            test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
            test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
            test_assert_ok(esp_sim_run(sim, d, &opts, &result, &bench.diag), &bench.diag);
            for (int32_t c = 0; c < d->n_classes; c++)
                assert_true((double)d->class_arena_bytes[c] <=
                            1.1 * (double)result.class_peak_bytes[c] + 64.0 * d->n_buffers);
            plan_fini(&plan);
            bench_fini(&bench);
        }
    esp_sim_destroy(sim);
}

/* ---- repetition, failure ------------------------------------------------------------------- */

static void test_twice(void **state)
{
    (void)state;
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
    esp_deployment_t *first;
    bench_init(&bench, deploy_graph(1, 16), bench_cluster("testbed"));
    plan_data_parallel(&plan, &bench, ESP_MODE_WHOLE, 1);
    test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
    assert_null(d->buffer_offset);
    assert_null(d->class_arena_bytes);
    test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
    assert_int_equal(esp_deployment_clone(d, NULL, &first), ESP_OK);
    test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
    assert_int_equal(d->n_extra, first->n_extra);
    test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
    assert_null(d->buffer_offset);
    assert_null(d->task_scratch_offset);
    test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
    assert_int_equal(d->n_extra, first->n_extra);
    assert_int_equal(d->n_cross, first->n_cross);
    assert_memory_equal(d->buffer_offset, first->buffer_offset,
                        (size_t)d->n_buffers * sizeof *d->buffer_offset);
    assert_memory_equal(d->successor, first->successor,
                        (size_t)d->successor_offset[d->n_tasks] * sizeof *d->successor);
    esp_deployment_destroy(first);
    plan_fini(&plan);
    bench_fini(&bench);
}

typedef struct attempt {
    bench_t *bench;
    plan_of_t *plan;
} attempt_t;

static esp_status_t attempt_pack(const esp_allocator_t *alloc, void *context)
{
    const attempt_t *attempt = context;
    esp_lowerer_t *lowerer;
    const esp_deployment_t *d;
    esp_diag_t diag = {0};
    ESP_TRY(esp_lowerer_create(attempt->bench->cost, alloc, &lowerer, &diag));
    esp_status_t status = esp_lower(lowerer, &attempt->plan->strategy, &d, &diag);
    if (status == ESP_OK) {
        int32_t extra = d->n_extra, cross = d->n_cross;
        status = esp_deployment_pack(lowerer, &diag);
        if (status != ESP_OK) { /* as it was */
            assert_null(d->buffer_offset);
            assert_int_equal(d->n_extra, extra);
            assert_int_equal(d->n_cross, cross);
            assert_int_equal(esp_deployment_check(d, NULL), ESP_OK);
        }
    }
    esp_lowerer_destroy(lowerer);
    return status;
}

static void test_without_memory(void **state)
{
    (void)state;
    bench_t bench;
    plan_of_t plan;
    bench_init(&bench, deploy_graph(0, 16), bench_cluster("lab"));
    plan_data_parallel(&plan, &bench, ESP_MODE_WHOLE, 1);
    attempt_t attempt = {&bench, &plan};
    test_sweep_allocations(attempt_pack, &attempt, 1);
    plan_fini(&plan);
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_close_to_the_peak),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
