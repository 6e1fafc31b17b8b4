/*
 * What a lowerer and a simulator have done before does not matter: on random walks through
 * strategies every array is the one that fresh ones make, and so is every result.
 */
#include "deployments.h"

#include "espalier/sim.h"

#include <string.h>

enum { STEPS = 24 };

/* ---- equality ------------------------------------------------------------------------------ */

static void same_array(const void *a, const void *b, int64_t n, size_t size, const char *name)
{
    if (n > 0 && memcmp(a, b, (size_t)n * size) != 0)
        fail_msg("%s differs", name);
}
#define SAME(array, n)    same_array(a->array, b->array, (n), sizeof *a->array, #array)
#define SAME_COUNT(count) assert_int_equal(a->count, b->count)

static void same_places(const esp_deployment_t *a, const esp_deployment_t *b)
{
    SAME_COUNT(n_classes);
    SAME_COUNT(n_meshes);
    SAME(class_offset, a->n_classes + 1);
    SAME(class_device, a->class_offset[a->n_classes]);
    SAME(device_class, a->cluster->n_devices);
    SAME(class_resident_bytes, a->n_classes);
    SAME(mesh_offset, a->n_meshes + 1);
    SAME(mesh_device, a->mesh_offset[a->n_meshes]);
    SAME(mesh_units, a->mesh_offset[a->n_meshes]);
    SAME(mesh_class_offset, a->n_meshes + 1);
    SAME(mesh_class, a->mesh_class_offset[a->n_meshes]);
    SAME(mesh_class_units, a->mesh_class_offset[a->n_meshes]);
}

static void same_values(const esp_deployment_t *a, const esp_deployment_t *b)
{
    SAME_COUNT(n_values);
    SAME_COUNT(n_buffers);
    SAME(value_tensor, a->n_values);
    SAME(value_mesh, a->n_values);
    SAME(value_form, a->n_values);
    SAME(value_share, a->n_values);
    SAME(value_view, a->n_values);
    SAME(value_micro, a->n_values);
    SAME(value_buffer, a->n_values);
    SAME(buffer_value, a->n_buffers);
    SAME(buffer_class, a->n_buffers);
    SAME(buffer_bytes, a->n_buffers);
    SAME(buffer_root, a->n_buffers);
    SAME(buffer_producer, a->n_buffers);
    SAME(buffer_resident, a->n_buffers);
}

static void same_tasks(const esp_deployment_t *a, const esp_deployment_t *b)
{
    int32_t n = a->n_tasks;
    SAME_COUNT(n_tasks);
    SAME(task_kind, n);
    SAME(task_mode, n);
    SAME(task_class, n);
    SAME(task_op, n);
    SAME(task_micro, n);
    SAME(task_ns, n);
    SAME(task_comm, n);
    SAME(read_offset, n + 1);
    SAME(read_buffer, a->read_offset[n]);
    SAME(write_offset, n + 1);
    SAME(write_buffer, a->write_offset[n]);
}

static void same_comms(const esp_deployment_t *a, const esp_deployment_t *b)
{
    int32_t n = a->n_comms;
    SAME_COUNT(n_comms);
    SAME(comm_kind, n);
    SAME(comm_bytes, n);
    SAME(comm_collective, n);
    SAME(comm_pair_offset, n + 1);
    SAME(comm_src, a->comm_pair_offset[n]);
    SAME(comm_dst, a->comm_pair_offset[n]);
    SAME(comm_class_offset, n + 1);
    SAME(comm_class, a->comm_class_offset[n]);
    SAME(comm_class_ns, a->comm_class_offset[n]);
    for (int32_t c = 0; c < n; c++) {
        const esp_pattern_t *p = a->comm_pattern[c], *q = b->comm_pattern[c];
        assert_int_equal(p->algorithm, q->algorithm);
        assert_int_equal(p->latency_ns, q->latency_ns);
        assert_int_equal(p->n_links, q->n_links);
        same_array(p->link, q->link, p->n_links, sizeof *p->link, "link");
        same_array(p->load, q->load, p->n_links, sizeof *p->load, "load");
    }
}

static void same_order(const esp_deployment_t *a, const esp_deployment_t *b)
{
    int32_t n = a->n_tasks;
    SAME_COUNT(n_extra);
    SAME_COUNT(n_cross);
    SAME(extra_before, a->n_extra);
    SAME(extra_after, a->n_extra);
    SAME(cross_before, a->n_cross);
    SAME(cross_after, a->n_cross);
    SAME(successor_offset, n + 1);
    SAME(successor, a->successor_offset[n]);
    SAME(n_predecessors, n);
    SAME(order, n);
    SAME(position, n);
}

static void same_result(const esp_deployment_t *d, const esp_sim_result_t *a,
                        const esp_sim_result_t *b)
{
    SAME_COUNT(step_time_ns);
    SAME_COUNT(makespan_ns);
    SAME_COUNT(events);
    SAME(class_busy_ns, d->n_classes);
    SAME(class_peak_bytes, d->n_classes);
    SAME(class_peak_role_bytes, d->n_classes * ESP_ROLE_COUNT);
    SAME(start_ns, d->n_tasks);
    SAME(end_ns, d->n_tasks);
}

/* ---- walks --------------------------------------------------------------------------------- */

/* Lowers and simulates with what has a history and with what has none; false: both refuse. */
static bool compare(bench_t *bench, esp_sim_t *sim, const esp_strategy_t *strategy)
{
    const esp_deployment_t *a, *b;
    esp_sim_result_t x, y;
    esp_sim_t *fresh_sim;
    esp_lowerer_t *fresh;
    esp_sim_opts_t opts = esp_sim_opts_default();
    opts.timeline = 1;
    test_assert_ok(esp_lowerer_create(bench->cost, NULL, &fresh, &bench->diag), &bench->diag);
    test_assert_ok(esp_sim_create(NULL, &fresh_sim), NULL);
    esp_status_t status = esp_lower(bench->lowerer, strategy, &a, &bench->diag);
    assert_int_equal(esp_lower(fresh, strategy, &b, &bench->diag), status);
    if (status == ESP_OK) {
        same_places(a, b);
        same_values(a, b);
        same_tasks(a, b);
        same_comms(a, b);
        same_order(a, b);
        test_assert_ok(esp_sim_run(sim, a, &opts, &x, &bench->diag), &bench->diag);
        test_assert_ok(esp_sim_run(fresh_sim, b, &opts, &y, &bench->diag), &bench->diag);
        same_result(a, &x, &y);
    }
    esp_sim_destroy(fresh_sim);
    esp_lowerer_destroy(fresh);
    return status == ESP_OK;
}

/* Statistics of BatchNorm are reduced where they can be: else most changes are refused. */
static void begin(plan_of_t *plan, const bench_t *bench, esp_i_rng_t *rng)
{
    plan_random(plan, bench, rng);
    plan->strategy.sync_batchnorm = plan->strategy.micro_batches == 1;
}

/* Another mesh and mode for the ops of one origin: a forward op and what follows from it. */
static void change_group(plan_of_t *plan, const esp_graph_t *g, esp_i_rng_t *rng)
{
    int32_t origin = g->op_origin[esp_i_rng_below(rng, g->n_ops)];
    int32_t mesh = (int32_t)esp_i_rng_below(rng, plan->strategy.n_meshes);
    uint8_t mode = esp_i_rng_below(rng, 2) ? ESP_MODE_BATCH : ESP_MODE_WHOLE;
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        if (g->op_origin[op] == origin) {
            plan->op_mesh[op] = mesh;
            plan->op_mode[op] = mode;
        }
}

static void change(plan_of_t *plan, const bench_t *bench, esp_i_rng_t *rng)
{
    switch (esp_i_rng_below(rng, 8)) {
    case 0: /* everything */
        plan_fini(plan);
        begin(plan, bench, rng);
        break;
    case 1:
        plan->weight[0][0] = 0.2 + esp_i_rng_unit(rng); /* shares, hence classes */
        break;
    case 2:
        if (esp_lowerer_micro_obstacle(bench->lowerer) == ESP_NONE &&
            !plan->strategy.sync_batchnorm)
            plan->strategy.micro_batches = 1 << esp_i_rng_below(rng, 3);
        break;
    case 3:
        plan->strategy.bucket_bytes = esp_i_rng_below(rng, 3) * 2000;
        break;
    default:
        change_group(plan, bench->graph, rng);
    }
}

static void walk(int32_t model, int64_t batch, const char *cluster)
{
    bench_t bench;
    plan_of_t plan;
    esp_i_rng_t rng;
    esp_sim_t *sim;
    esp_i_rng_seed(&rng, 100 + (uint64_t)model);
    bench_init(&bench, deploy_graph(model, batch), bench_cluster(cluster));
    test_assert_ok(esp_sim_create(NULL, &sim), NULL);
    begin(&plan, &bench, &rng);
    int32_t done = 0;
    for (int32_t i = 0; i < STEPS; i++) {
        done += compare(&bench, sim, &plan.strategy);
        change(&plan, &bench, &rng);
    }
    assert_true(done > STEPS / 2);
    plan_fini(&plan);
    esp_sim_destroy(sim);
    bench_fini(&bench);
}

static void history_does_not_matter(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++)
        walk(model, 8, "testbed");
}

/* More classes than a lowerer keeps the durations of. */
static void nor_on_many_devices(void **state)
{
    (void)state;
    walk(3, 256, "h100x64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(history_does_not_matter),
                                       cmocka_unit_test(nor_on_many_devices)};
    return cmocka_run_group_tests_name("deploy_walk", tests, NULL, NULL);
}
