/* The deployment checker: what lowering makes passes, and every kind of corruption is caught. */
#include "deployments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what lowering makes ------------------------------------------------------------------- */

static void test_data_parallel(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++) {
        bench_t bench;
        bench_init(&bench, deploy_graph(model, 32), bench_cluster("testbed"));
        for (int32_t update = ESP_MODE_WHOLE; update <= ESP_MODE_SHARD; update++) {
            plan_of_t plan;
            const esp_deployment_t *d;
            plan_data_parallel(&plan, &bench, (esp_mode_t)update, 1);
            test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
            test_assert_ok(esp_deployment_check(d, &bench.diag), &bench.diag);
            test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
            test_assert_ok(esp_deployment_check(d, &bench.diag), &bench.diag);
            plan_fini(&plan);
        }
        bench_fini(&bench);
    }
}

/* Strategies that lowering refuses (addends on other meshes) are left out. */
static void test_random(void **state)
{
    (void)state;
    static const char *const clusters[] = {"lab", "testbed", "cpu4"};
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 5);
    int32_t lowered = 0;
    for (int32_t trial = 0; trial < 12; trial++) {
        bench_t bench;
        bench_init(&bench, deploy_graph(trial % 9, 16), bench_cluster(clusters[trial % 3]));
        for (int32_t i = 0; i < 12; i++) {
            plan_of_t plan;
            const esp_deployment_t *d;
            plan_random(&plan, &bench, &rng);
            esp_diag_t diag = {0};
            esp_status_t status = esp_lower(bench.lowerer, &plan.strategy, &d, &diag);
            assert_true(status == ESP_OK || status == ESP_ERR_ARGUMENT);
            if (status == ESP_OK) {
                lowered++;
                test_assert_ok(esp_deployment_check(d, &diag), &diag);
                test_assert_ok(esp_deployment_pack(bench.lowerer, &diag), &diag);
                test_assert_ok(esp_deployment_check(d, &diag), &diag);
            }
            plan_fini(&plan);
        }
        bench_fini(&bench);
    }
    assert_true(lowered > 70);
}

/* ---- clones -------------------------------------------------------------------------------- */

/* A clone outlives the lowerer and says the same. */
static void test_clone(void **state)
{
    (void)state;
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
    esp_deployment_t *clone;
    test_memory_t memory;
    test_memory_init(&memory);
    bench_init(&bench, deploy_graph(1, 16), bench_cluster("lab"));
    plan_data_parallel(&plan, &bench, ESP_MODE_WHOLE, 1);
    test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
    test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
    assert_int_equal(esp_deployment_clone(d, &memory.alloc, &clone), ESP_OK);
    assert_ptr_not_equal(clone->comm_pattern[0], d->comm_pattern[0]);
    assert_memory_equal(clone->order, d->order, (size_t)d->n_tasks * sizeof *d->order);
    assert_memory_equal(clone->buffer_offset, d->buffer_offset,
                        (size_t)d->n_buffers * sizeof *d->buffer_offset);
    esp_lowerer_destroy(bench.lowerer);
    bench.lowerer = NULL;
    test_assert_ok(esp_deployment_check(clone, &bench.diag), &bench.diag);
    esp_deployment_destroy(clone);
    esp_deployment_destroy(NULL);
    test_memory_check(&memory);
    plan_fini(&plan);
    bench_fini(&bench);
}

static esp_status_t clone_attempt(const esp_allocator_t *alloc, void *context)
{
    esp_deployment_t *clone;
    ESP_TRY(esp_deployment_clone(context, alloc, &clone));
    esp_deployment_destroy(clone);
    return ESP_OK;
}

static void test_clone_without_memory(void **state)
{
    (void)state;
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
    bench_init(&bench, deploy_graph(0, 16), bench_cluster("lab"));
    plan_data_parallel(&plan, &bench, ESP_MODE_SHARD, 2);
    test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
    test_sweep_allocations(clone_attempt, (void *)(uintptr_t)d, 1);
    plan_fini(&plan);
    bench_fini(&bench);
}

/* ---- corruption ---------------------------------------------------------------------------- */

/* A clone whose arrays may be written. */
#define PUT(d, array, index, value)                                                                \
    do {                                                                                           \
        const __typeof__((d)->array[0]) put_ = (value);                                            \
        memcpy((void *)(uintptr_t) & (d)->array[index], &put_, sizeof put_);                       \
    } while (0)

/* The first task of a kind; of compute tasks, of a mode too. */
static int32_t task_of(const esp_deployment_t *d, esp_task_kind_t kind, int32_t mode)
{
    for (int32_t t = 0; t < d->n_tasks; t++)
        if (d->task_kind[t] == kind && (kind != ESP_TASK_COMPUTE || d->task_mode[t] == mode) &&
            d->read_offset[t] < d->read_offset[t + 1] && d->read_buffer[d->read_offset[t]] >= 0)
            return t;
    fail_msg("there is no such task");
    return ESP_NONE;
}

static int32_t comm_of(const esp_deployment_t *d, esp_comm_t kind)
{
    for (int32_t k = 0; k < d->n_comms; k++)
        if (d->comm_kind[k] == kind)
            return k;
    fail_msg("there is no such movement");
    return ESP_NONE;
}

static int32_t value_of(const esp_deployment_t *d, esp_form_t form)
{
    for (int32_t v = 0; v < d->n_values; v++)
        if (d->value_form[v] == form && d->mesh_offset[1] > 1)
            return v;
    return ESP_NONE;
}

static int32_t root_of(const esp_deployment_t *d, int resident)
{
    for (int32_t b = 0; b < d->n_buffers; b++)
        if (d->buffer_root[b] == b && d->buffer_resident[b] == resident &&
            d->buffer_producer[b] != (resident ? 0 : ESP_NONE))
            return b;
    return ESP_NONE;
}

static void unit_more(esp_deployment_t *d)
{
    PUT(d, mesh_units, 0, d->mesh_units[0] + 1);
}
static void unit_none(esp_deployment_t *d)
{
    PUT(d, mesh_units, 0, 0);
}
static void mesh_descends(esp_deployment_t *d)
{
    int32_t first = d->mesh_device[0];
    PUT(d, mesh_device, 0, d->mesh_device[1]);
    PUT(d, mesh_device, 1, first);
}
static void class_wrong(esp_deployment_t *d)
{
    PUT(d, device_class, d->class_device[0], ESP_NONE);
}
static void class_units(esp_deployment_t *d)
{
    PUT(d, mesh_class_units, 0, d->mesh_class_units[0] + 1);
}
static void view_wrong(esp_deployment_t *d)
{
    int32_t v = value_of(d, ESP_FORM_SPLIT);
    esp_view_t view = d->value_view[v];
    view.inner += 1;
    PUT(d, value_view, v, view);
}
static void split_replicated(esp_deployment_t *d)
{
    PUT(d, value_form, value_of(d, ESP_FORM_SPLIT), ESP_FORM_REPLICATED);
}
static void partial_replicated(esp_deployment_t *d)
{
    PUT(d, value_form, value_of(d, ESP_FORM_PARTIAL), ESP_FORM_REPLICATED);
}
static void tensor_wrong(esp_deployment_t *d)
{
    int32_t t = task_of(d, ESP_TASK_COMPUTE, ESP_MODE_BATCH);
    int32_t v = d->buffer_value[d->read_buffer[d->read_offset[t]]];
    PUT(d, value_tensor, v, (d->value_tensor[v] + 1) % d->graph->n_tensors);
}
static void bytes_less(esp_deployment_t *d)
{
    int32_t b = root_of(d, 0);
    PUT(d, buffer_bytes, b, d->buffer_bytes[b] / 2);
}
static void resident_lost(esp_deployment_t *d)
{
    PUT(d, buffer_resident, root_of(d, 1), 0);
}
static void root_wrong(esp_deployment_t *d)
{
    int32_t b = root_of(d, 0);
    PUT(d, buffer_root, b, root_of(d, 1));
}
static void producer_wrong(esp_deployment_t *d)
{
    int32_t b = root_of(d, 0);
    PUT(d, buffer_producer, b, (d->buffer_producer[b] + 1) % d->n_tasks);
}
static void out_of_range(esp_deployment_t *d)
{
    PUT(d, read_buffer, 0, d->n_buffers);
}
static void offsets_back(esp_deployment_t *d)
{
    PUT(d, read_offset, 1, -1);
}
static void kind_wrong(esp_deployment_t *d)
{
    PUT(d, task_kind, task_of(d, ESP_TASK_COMPUTE, ESP_MODE_BATCH), ESP_TASK_ADD);
}
static void mode_whole(esp_deployment_t *d)
{
    PUT(d, task_mode, task_of(d, ESP_TASK_COMPUTE, ESP_MODE_BATCH), ESP_MODE_WHOLE);
}
static void mode_shard(esp_deployment_t *d)
{
    PUT(d, task_mode, task_of(d, ESP_TASK_COMPUTE, ESP_MODE_BATCH), ESP_MODE_SHARD);
}
static void op_wrong(esp_deployment_t *d)
{
    int32_t t = task_of(d, ESP_TASK_COMPUTE, ESP_MODE_BATCH);
    PUT(d, task_op, t, (d->task_op[t] + 1) % d->graph->n_ops);
}
static void class_other(esp_deployment_t *d)
{
    int32_t t = task_of(d, ESP_TASK_COMPUTE, ESP_MODE_BATCH);
    PUT(d, task_class, t, (d->task_class[t] + 1) % d->n_classes);
}
static void input_missing(esp_deployment_t *d)
{
    PUT(d, read_buffer, d->read_offset[task_of(d, ESP_TASK_COMPUTE, ESP_MODE_BATCH)], ESP_NONE);
}
static void written_twice(esp_deployment_t *d)
{
    PUT(d, write_buffer, d->write_offset[1], d->write_buffer[d->write_offset[0]]);
}
static void comm_other(esp_deployment_t *d)
{
    int32_t k = comm_of(d, ESP_COMM_ALLREDUCE);
    esp_pattern_t *pattern = (esp_pattern_t *)(uintptr_t)d->comm_pattern[k];
    pattern->comm = ESP_COMM_ALL_GATHER;
    for (int32_t i = 0; i < d->n_comms; i++)
        if (d->comm_pattern[i] == pattern)
            PUT(d, comm_kind, i, ESP_COMM_ALL_GATHER);
}
static void comm_pattern(esp_deployment_t *d)
{
    PUT(d, comm_kind, comm_of(d, ESP_COMM_ALLREDUCE), ESP_COMM_REDUCE);
}
static void comm_bytes(esp_deployment_t *d)
{
    PUT(d, comm_bytes, 0, d->comm_bytes[0] / 2);
}
static void comm_stream(esp_deployment_t *d)
{
    PUT(d, comm_collective, comm_of(d, ESP_COMM_ALLREDUCE), 0);
}
static void comm_member(esp_deployment_t *d)
{
    PUT(d, comm_class, 0, d->comm_class[1]);
}
static void comm_source(esp_deployment_t *d)
{
    PUT(d, comm_src, 0, d->comm_src[d->comm_pair_offset[d->n_comms] - 1]);
}
static void edge_lost(esp_deployment_t *d)
{
    d->n_extra--;
}
static void edge_moved(esp_deployment_t *d)
{
    PUT(d, successor, d->successor_offset[0], d->n_tasks - 1);
}
static void predecessors(esp_deployment_t *d)
{
    PUT(d, n_predecessors, d->n_tasks - 1, d->n_predecessors[d->n_tasks - 1] + 1);
}
static void order_swapped(esp_deployment_t *d)
{
    int32_t a = d->order[0], b = d->order[d->n_tasks - 1];
    PUT(d, order, 0, b);
    PUT(d, order, d->n_tasks - 1, a);
    PUT(d, position, a, d->n_tasks - 1);
    PUT(d, position, b, 0);
}
static void order_twice(esp_deployment_t *d)
{
    PUT(d, order, 0, d->order[1]);
}
static void cross_lost(esp_deployment_t *d)
{
    d->n_cross = 0;
}
static void resident_bytes(esp_deployment_t *d)
{
    PUT(d, class_resident_bytes, 0, d->class_resident_bytes[0] + 1);
}
static void micro_wrong(esp_deployment_t *d)
{
    int32_t t = task_of(d, ESP_TASK_COMPUTE, ESP_MODE_BATCH);
    while (d->task_micro[t] != 1)
        t++;
    PUT(d, task_micro, t, 0);
}
static void micro_value(esp_deployment_t *d)
{
    for (int32_t v = 0; v < d->n_values; v++)
        if (d->value_micro[v] == 1 && d->value_form[v] == ESP_FORM_SPLIT) {
            PUT(d, value_micro, v, 0);
            return;
        }
}
static void micro_sum(esp_deployment_t *d) /* micro-batch 0 is added again */
{
    int32_t t = task_of(d, ESP_TASK_ADD, 0);
    PUT(d, read_buffer, d->read_offset[t] + 1, d->read_buffer[d->read_offset[t]]);
}
static void arena_small(esp_deployment_t *d)
{
    PUT(d, class_arena_bytes, 0, d->class_resident_bytes[0]);
}
static void arena_overlap(esp_deployment_t *d) /* everything transient at one place */
{
    for (int32_t b = 0; b < d->n_buffers; b++)
        if (!d->buffer_resident[b])
            PUT(d, buffer_offset, b, (d->class_resident_bytes[d->buffer_class[b]] + 63) / 64 * 64);
}
static void arena_resident(esp_deployment_t *d)
{
    int32_t b = root_of(d, 1);
    PUT(d, buffer_offset, b, d->buffer_offset[b] + 64);
    for (int32_t a = 0; a < d->n_buffers; a++)
        PUT(d, buffer_offset, a, d->buffer_offset[d->buffer_root[a]]);
}

typedef struct mutation {
    const char *name;
    void (*corrupt)(esp_deployment_t *d);
    const char *part; /* of the message */
} mutation_t;

static const mutation_t mutations[] = {
    {"unit_more", unit_more, "units"},
    {"unit_none", unit_none, "mesh_units[0] is 0"},
    {"mesh_descends", mesh_descends, "not ascending"},
    {"class_wrong", class_wrong, "class"},
    {"class_units", class_units, "units"},
    {"view_wrong", view_wrong, "view"},
    {"split_replicated", split_replicated, "bytes"},
    {"partial_replicated", partial_replicated, ""},
    {"tensor_wrong", tensor_wrong, ""},
    {"bytes_less", bytes_less, "needs"},
    {"resident_lost", resident_lost, "between steps"},
    {"root_wrong", root_wrong, ""},
    {"producer_wrong", producer_wrong, "said to be of task"},
    {"out_of_range", out_of_range, "read_buffer[0]"},
    {"offsets_back", offsets_back, "read_offset"},
    {"kind_wrong", kind_wrong, ""},
    {"mode_whole", mode_whole, "mode or micro-batch differ"},
    {"mode_shard", mode_shard, "mode or micro-batch differ"},
    {"op_wrong", op_wrong, "computes"},
    {"class_other", class_other, "device class"},
    {"input_missing", input_missing, ""},
    {"written_twice", written_twice, "written by task"},
    {"comm_other", comm_other, "partial"},
    {"comm_pattern", comm_pattern, "its pattern"},
    {"comm_bytes", comm_bytes, "priced for"},
    {"comm_stream", comm_stream, "collective stream"},
    {"comm_member", comm_member, "takes part"},
    {"comm_source", comm_source, ""},
    {"edge_lost", edge_lost, "successors"},
    {"edge_moved", edge_moved, "successor"},
    {"predecessors", predecessors, "predecessors"},
    {"order_swapped", order_swapped, "depends on"},
    {"order_twice", order_twice, "position"},
    {"resident_bytes", resident_bytes, "between steps"},
    {"arena_small", arena_small, "class 0"},
    {"arena_overlap", arena_overlap, "takes over memory"},
    {"arena_resident", arena_resident, ""},
};

static void corrupt_and_check(const esp_deployment_t *d, const mutation_t *mutation)
{
    esp_deployment_t *clone;
    esp_diag_t diag = {0};
    char text[1200];
    assert_int_equal(esp_deployment_clone(d, NULL, &clone), ESP_OK);
    mutation->corrupt(clone);
    esp_status_t status = esp_deployment_check(clone, &diag);
    (void)esp_diag_format(&diag, text, sizeof text);
    if (status != ESP_ERR_INVALID || !strstr(text, mutation->part))
        fail_msg("%s: status %d, \"%s\"", mutation->name, (int)status, text);
    esp_deployment_destroy(clone);
}

static void test_corruption(void **state)
{
    (void)state;
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
    bench_init(&bench, deploy_graph(1, 32), bench_cluster("testbed"));
    plan_data_parallel(&plan, &bench, ESP_MODE_WHOLE, 1);
    test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
    test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
    for (size_t i = 0; i < sizeof mutations / sizeof *mutations; i++)
        corrupt_and_check(d, &mutations[i]);
    plan_fini(&plan);
    bench_fini(&bench);
}

static void test_corruption_of_micro_batches(void **state)
{
    (void)state;
    static const mutation_t micro[] = {{"micro_wrong", micro_wrong, ""},
                                       {"micro_value", micro_value, ""},
                                       {"micro_sum", micro_sum, "does not add"}};
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
    bench_init(&bench, deploy_graph(0, 32), bench_cluster("testbed"));
    plan_data_parallel(&plan, &bench, ESP_MODE_WHOLE, 2);
    test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
    for (size_t i = 0; i < sizeof micro / sizeof *micro; i++)
        corrupt_and_check(d, &micro[i]);
    plan_fini(&plan);
    bench_fini(&bench);
}

/* Without the edges between steps a parameter server may read what is being updated. */
static void test_corruption_between_steps(void **state)
{
    (void)state;
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
    bench_init(&bench, deploy_graph(0, 32), bench_cluster("testbed"));
    plan_data_parallel(&plan, &bench, ESP_MODE_SHARD, 1);
    test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
    assert_true(d->n_cross > 0);
    corrupt_and_check(d, &(mutation_t){"cross_lost", cross_lost, "step"});
    plan_fini(&plan);
    bench_fini(&bench);
}

/* Any one element of any array that is off by one is an error, or does not matter; never a crash.
 */
static void flip(esp_deployment_t *d, esp_i_rng_t *rng)
{
#define FLIP(k, array, n)                                                                          \
    case k:                                                                                        \
        if ((n) > 0) {                                                                             \
            int32_t at = (int32_t)esp_i_rng_below(rng, (n));                                       \
            PUT(d, array, at,                                                                      \
                (__typeof__(*d->array))(d->array[at] + (esp_i_rng_below(rng, 2) ? 1 : -1)));       \
        }                                                                                          \
        break;
    switch (esp_i_rng_below(rng, 20)) {
        FLIP(0, value_mesh, d->n_values)
        FLIP(1, value_form, d->n_values)
        FLIP(2, value_micro, d->n_values)
        FLIP(3, value_buffer, d->n_values)
        FLIP(4, buffer_value, d->n_buffers)
        FLIP(5, buffer_class, d->n_buffers)
        FLIP(6, buffer_root, d->n_buffers)
        FLIP(7, buffer_producer, d->n_buffers)
        FLIP(8, task_kind, d->n_tasks)
        FLIP(9, task_class, d->n_tasks)
        FLIP(10, task_op, d->n_tasks)
        FLIP(11, task_comm, d->n_tasks)
        FLIP(12, read_buffer, d->read_offset[d->n_tasks])
        FLIP(13, write_buffer, d->write_offset[d->n_tasks])
        FLIP(14, comm_src, d->comm_pair_offset[d->n_comms])
        FLIP(15, comm_dst, d->comm_pair_offset[d->n_comms])
        FLIP(16, comm_class, d->comm_class_offset[d->n_comms])
        FLIP(17, successor, d->successor_offset[d->n_tasks])
        FLIP(18, order, d->n_tasks)
        FLIP(19, mesh_class, d->mesh_class_offset[d->n_meshes])
    default:
        break;
    }
#undef FLIP
}

static void test_any_element(void **state)
{
    (void)state;
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
    esp_i_rng_t rng;
    int32_t caught = 0;
    esp_i_rng_seed(&rng, 11);
    bench_init(&bench, deploy_graph(2, 16), bench_cluster("lab"));
    plan_data_parallel(&plan, &bench, ESP_MODE_SHARD, 1);
    test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
    test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
    for (int32_t i = 0; i < 600; i++) {
        esp_deployment_t *clone;
        esp_diag_t diag = {0};
        assert_int_equal(esp_deployment_clone(d, NULL, &clone), ESP_OK);
        flip(clone, &rng);
        esp_status_t status = esp_deployment_check(clone, &diag);
        assert_true(status == ESP_OK || status == ESP_ERR_INVALID);
        assert_true(status == ESP_OK || diag.text[0] != '\0');
        caught += status != ESP_OK;
        esp_deployment_destroy(clone);
    }
    assert_true(caught > 570);
    plan_fini(&plan);
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_clone),
        cmocka_unit_test(test_clone_without_memory),
        cmocka_unit_test(test_corruption),
        cmocka_unit_test(test_corruption_of_micro_batches),
        cmocka_unit_test(test_corruption_between_steps),
        cmocka_unit_test(test_any_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
