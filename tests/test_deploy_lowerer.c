/* The lowerer as such: bad strategies, memory that runs out, and that history does not matter. */
#include "gate.h"
#include "models.h"
#include "support.h"

#include <string.h>

static esp_graph_t *small_model(void)
{
    esp_training_opts_t opts = train_with(ESP_LOSS_XENT, ESP_OPTIMIZER_ADAM);
    opts.clip_norm = 0.1;
    return model_tied(8, &opts);
}

/* ---- bad strategies ---------------------------------------------------------------------- */

static void refused(gate_t *gate, strategy_t *strategy, const char *part)
{
    const esp_deployment_t *deployment = NULL;
    esp_diag_t diag = {0};
    test_assert_fails(esp_lower(gate->lowerer[0], &strategy->strategy, &deployment, &diag), &diag,
                      ESP_ERR_ARGUMENT, part);
    assert_null(deployment);
    strategy_fini(strategy);
    /* the lowerer is as good as before */
    strategy_data_parallel(strategy, gate->graph, 2, NULL);
    assert_non_null(gate_lower(gate, strategy, 0));
    strategy_fini(strategy);
    strategy_data_parallel(strategy, gate->graph, 3, NULL);
}

static void test_bad_strategies(void **state)
{
    (void)state;
    gate_t gate;
    strategy_t s;
    gate_init(&gate, small_model());
    strategy_data_parallel(&s, gate.graph, 3, NULL);
    s.op_mesh[1] = 1;
    refused(&gate, &s, "mesh 1");
    s.op_mesh[1] = -1;
    refused(&gate, &s, "mesh -1");
    s.op_mode[1] = 3;
    refused(&gate, &s, "mode 3");
    s.strategy.n_meshes = 0;
    refused(&gate, &s, "no mesh");
    s.mesh[0].n = 0;
    refused(&gate, &s, "0 devices");
    s.mesh[0].n = 5;
    refused(&gate, &s, "5 devices");
    s.device[0][2] = 4;
    refused(&gate, &s, "device 4");
    s.device[0][0] = -1;
    refused(&gate, &s, "device -1");
    s.device[0][1] = 0;
    refused(&gate, &s, "device 0");
    s.weight[0][1] = 0;
    refused(&gate, &s, "weight of device 1");
    s.weight[0][1] = -1;
    refused(&gate, &s, "weight of device 1");
    s.strategy.micro_batches = 0;
    refused(&gate, &s, "0 micro-batches");
    s.strategy.micro_batches = 3;
    refused(&gate, &s, "3 micro-batches");
    strategy_fini(&s);
    gate_fini(&gate);
}

/* A mesh that no op uses may say anything. */
static void test_unused_mesh(void **state)
{
    (void)state;
    gate_t gate;
    strategy_t s;
    gate_init(&gate, small_model());
    strategy_data_parallel(&s, gate.graph, 2, NULL);
    (void)strategy_mesh(&s, 4, (const int32_t[]){0, 1, 2, 3}, (const double[]){1, 2, 3, 4});
    s.mesh[1].n = 0;
    const esp_deployment_t *d = gate_lower(&gate, &s, 1);
    assert_int_equal(d->n_classes, 1);
    assert_int_equal(d->device_class[3], ESP_NONE);
    gate_same_step(&gate, &s);
    gate_fini(&gate);
}

/* The next version of w is made in its memory; a later op that still reads w is refused. */
static void test_old_version(void **state)
{
    (void)state;
    esp_builder_t *b;
    esp_graph_t *graph;
    esp_cost_t *cost;
    esp_lowerer_t *lowerer = NULL;
    esp_diag_t diag = {0};
    esp_tensor_id_t w, next, late;
    const esp_attr_t half = {.eltwise = {ESP_ELT_AFFINE, 0.5, 0}};
    test_assert_ok(esp_builder_create("old", NULL, &b), NULL);
    test_assert_ok(esp_builder_tensor(b, "w", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 1,
                                      (const int64_t[]){4}, NULL, &w, &diag),
                   &diag);
    esp_builder_phase(b, ESP_PHASE_UPDATE, ESP_NONE);
    test_assert_ok(esp_builder_op(b, ESP_KIND_ELTWISE, &half, 1, &w, "make", &next, &diag), &diag);
    test_assert_ok(esp_builder_next(b, w, next, &diag), &diag);
    test_assert_ok(esp_builder_op(b, ESP_KIND_ELTWISE, &half, 1, &w, "late", &late, &diag), &diag);
    test_assert_ok(esp_builder_output(b, late), &diag);
    test_assert_ok(esp_builder_freeze(b, &graph, &diag), &diag);
    esp_cluster_t *cluster = cluster_uniform(2);
    test_assert_ok(esp_cost_create(graph, cluster, ESP_PRECISION_FP32, NULL, &cost, &diag), &diag);
    test_assert_fails(esp_lowerer_create(cost, NULL, &lowerer, &diag), &diag, ESP_ERR_UNSUPPORTED,
                      "late reads w after op make");
    assert_null(lowerer);
    esp_cost_destroy(cost);
    esp_cluster_destroy(cluster);
    esp_graph_destroy(graph);
    esp_builder_destroy(b);
}

/* ---- history ----------------------------------------------------------------------------- */

#define SAME(field, n) assert_memory_equal(a->field, b->field, (size_t)(n) * sizeof *a->field)

static void check_same(const esp_deployment_t *a, const esp_deployment_t *b)
{
    assert_int_equal(a->n_tasks, b->n_tasks);
    assert_int_equal(a->n_values, b->n_values);
    assert_int_equal(a->n_buffers, b->n_buffers);
    assert_int_equal(a->n_comms, b->n_comms);
    assert_int_equal(a->n_extra, b->n_extra);
    assert_int_equal(a->n_cross, b->n_cross);
    SAME(task_kind, a->n_tasks);
    SAME(task_op, a->n_tasks);
    SAME(task_class, a->n_tasks);
    SAME(task_ns, a->n_tasks);
    SAME(order, a->n_tasks);
    SAME(value_tensor, a->n_values);
    SAME(value_form, a->n_values);
    SAME(value_mesh, a->n_values);
    SAME(buffer_bytes, a->n_buffers);
    SAME(buffer_root, a->n_buffers);
    SAME(buffer_resident, a->n_buffers);
    SAME(read_buffer, a->read_offset[a->n_tasks]);
    SAME(write_buffer, a->write_offset[a->n_tasks]);
    SAME(comm_kind, a->n_comms);
    SAME(comm_bytes, a->n_comms);
    SAME(cross_before, a->n_cross);
    SAME(cross_after, a->n_cross);
}

static void strategy_number(strategy_t *s, const esp_graph_t *graph, int32_t i)
{
    static const double weight[] = {1, 3, 2, 2};
    if (i == 0)
        strategy_mixed(s, graph, 4, weight);
    else if (i == 1)
        strategy_parameter_server(s, graph, 3, weight, 3);
    else if (i == 2)
        strategy_sharded(s, graph, 4, NULL);
    else
        strategy_single(s, graph, 1);
    s->strategy.micro_batches = i == 2 ? 2 : 1;
}

static void test_history(void **state)
{
    (void)state;
    gate_t old, fresh;
    gate_init(&old, small_model());
    for (int32_t round = 0; round < 2; round++)
        for (int32_t i = 0; i < 4; i++) {
            strategy_t a, b;
            gate_init(&fresh, small_model());
            strategy_number(&a, old.graph, i);
            strategy_number(&b, fresh.graph, i);
            check_same(gate_lower(&old, &a, 0), gate_lower(&fresh, &b, 0));
            strategy_fini(&a);
            strategy_fini(&b);
            gate_fini(&fresh);
        }
    gate_fini(&old);
}

/* ---- memory ------------------------------------------------------------------------------ */

typedef struct attempt {
    const esp_cost_t *cost;
    const esp_strategy_t *strategy;
} attempt_t;

static esp_status_t lower_once(const esp_allocator_t *alloc, void *context)
{
    const attempt_t *attempt = context;
    const esp_deployment_t *deployment;
    esp_lowerer_t *lowerer;
    esp_diag_t diag = {0};
    esp_status_t status = esp_lowerer_create(attempt->cost, alloc, &lowerer, &diag);
    if (status != ESP_OK)
        return status;
    status = esp_lower(lowerer, attempt->strategy, &deployment, &diag);
    if (status == ESP_OK)
        status = esp_lower(lowerer, attempt->strategy, &deployment, &diag);
    esp_lowerer_destroy(lowerer);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    gate_t gate;
    gate_init(&gate, small_model());
    for (int32_t i = 0; i < 3; i++) {
        strategy_t s;
        strategy_number(&s, gate.graph, i);
        attempt_t attempt = {gate.cost[0], &s.strategy};
        test_sweep_allocations(lower_once, &attempt, 1);
        strategy_fini(&s);
    }
    gate_fini(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_strategies), cmocka_unit_test(test_unused_mesh),
        cmocka_unit_test(test_old_version),    cmocka_unit_test(test_history),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("deploy_lowerer", tests, NULL, NULL);
}
