/* Programs: their rules, and what they compute, beside the interpreter of deployments. */
#include "deploy_interp.h"
#include "deploy_builder.h"
#include "deployments.h"
#include "espalier/sim.h"
#include "program_run.h"
#include "strategies.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rules -------------------------------------------------------------------------------------
 */

static void check_waits(const esp_i_program_t *program, int32_t i)
{
    const esp_i_instr_t *instr = &program->instr[i];
    for (int32_t w = 0; w < instr->n_wait; w++)
        assert_true(program->waits[instr->wait + w] < i);
    for (int32_t w = 0; w < instr->n_previous; w++)
        assert_in_range(program->waits[instr->previous + w], 0, program->n_instrs - 1);
}

/* Every task of the device once, in the global order. */
static void check_instrs(const esp_i_program_t *program)
{
    const esp_deployment_t *d = program->deployment;
    const int32_t class_ = d->device_class[program->device];
    int32_t i = 0;
    for (int32_t p = 0; p < d->n_tasks; p++) {
        const int32_t task = d->order[p], comm = d->task_comm[task];
        bool mine = class_ != ESP_NONE && d->task_class[task] == class_;
        for (int32_t k = comm == ESP_NONE ? 0 : d->comm_class_offset[comm];
             comm != ESP_NONE && k < d->comm_class_offset[comm + 1]; k++)
            mine = mine || d->comm_class[k] == class_;
        if (!mine)
            continue;
        assert_true(i < program->n_instrs);
        assert_int_equal(program->instr[i].task, task);
        assert_int_equal(program->instr[i].comm, comm);
        check_waits(program, i++);
    }
    assert_int_equal(i, program->n_instrs);
}

static void check_place(const esp_i_program_t *program, int64_t place, int64_t bytes)
{
    assert_true(place >= 0 && bytes >= 0 && place + bytes <= program->arena_bytes);
}

/* Shapes and rows are those that the mode of the task and the factor of its op give. */
static void check_operands(const esp_i_program_t *program, const esp_i_instr_t *instr)
{
    const esp_i_call_t *call = &program->call[instr->call];
    kernel_call_t should;
    deploy_interp_call(program->deployment, instr->task, program->device, &should);
    assert_int_equal(call->n_in, should.kernel.n_in);
    assert_int_equal(call->n_out, should.kernel.n_out);
    for (int32_t i = 0; i < should.n_operands; i++) {
        const esp_i_local_t *a = &call->operand[i];
        const esp_i_buffer_t *b = &should.operand[i];
        assert_int_equal(a->rank, b->rank);
        assert_int_equal(a->global_rank, b->global_rank);
        if (b->rank < 0)
            continue;
        assert_memory_equal(a->dims, b->dims, (size_t)b->rank * sizeof *b->dims);
        assert_memory_equal(a->global, b->global, (size_t)b->global_rank * sizeof *b->global);
        assert_memory_equal(&a->view, &b->view, sizeof b->view);
        assert_true(a->offset == b->offset && a->share == b->share);
        assert_int_equal(a->elements, esp_i_buffer_elements(b));
        assert_int_equal(a->dtype, esp_i_stored_dtype(should.dtype[i], program->wide));
    }
    kernel_call_fini(&should);
}

static void check_places(const esp_i_program_t *program)
{
    for (int32_t c = 0; c < program->n_calls; c++) {
        const esp_i_call_t *call = &program->call[c];
        for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
            const esp_i_local_t *at = &call->operand[i];
            if (at->place >= 0)
                check_place(program, at->place, at->elements * esp_dtype_bytes(at->dtype));
        }
        check_place(program, call->scratch_place, call->scratch_bytes);
    }
}

static void check_rules(const program_run_t *run, const esp_deployment_t *d)
{
    for (int32_t device = 0; device < d->cluster->n_devices; device++) {
        const esp_i_program_t *program = program_run_of(run, device);
        check_instrs(program);
        check_places(program);
        for (int32_t i = 0; i < program->n_instrs; i++)
            if (program->instr[i].kind == ESP_TASK_COMPUTE)
                check_operands(program, &program->instr[i]);
    }
}

/* ---- the same step
 * ------------------------------------------------------------------------------- */

static void check_tensor(const program_run_t *run, const deploy_interp_t *interp,
                         const esp_graph_t *graph, esp_tensor_id_t tensor, const char *what)
{
    const int64_t n = graph->tensor_elements[tensor];
    double *is = calloc((size_t)n, sizeof *is), *should = calloc((size_t)n, sizeof *is),
           largest = 1e-3;
    assert_true(is && should);
    program_run_read(run, tensor, is);
    deploy_interp_read(interp, tensor, should);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(should[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(is[i] - should[i]) <= 1e-12 * largest))
            fail_msg("%s: %s[%lld] is %.17g, not %.17g", what, graph->tensor_name[tensor],
                     (long long)i, is[i], should[i]);
    free(is);
    free(should);
}

static void check_same(const esp_deployment_t *d, uint64_t seed, const char *what)
{
    enum { STEPS = 2 };
    deploy_interp_t *interp = deploy_interp_new(d, seed);
    program_run_t *run = program_run_new(d, seed);
    check_rules(run, d);
    program_run_steps(run, STEPS);
    for (int32_t step = 0; step < STEPS; step++)
        deploy_interp_step(interp);
    const double is = program_run_loss(run), should = deploy_interp_loss(interp);
    if (!(fabs(is - should) <= 1e-12 * fmax(1, fabs(should))))
        fail_msg("%s: loss %.17g, not %.17g", what, is, should);
    for (esp_tensor_id_t t = 0; t < d->graph->n_tensors; t++)
        if (d->graph->tensor_next[t] != ESP_NONE)
            check_tensor(run, interp, d->graph, t, what);
    program_run_free(run);
    deploy_interp_free(interp);
}

/* Packed by order, or (timed) by a simulated timeline. */
static bool check_strategy(bench_t *bench, const esp_strategy_t *strategy, bool timed,
                           uint64_t seed, const char *what)
{
    const esp_deployment_t *d;
    const esp_status_t status = esp_lower(bench->lowerer, strategy, &d, &bench->diag);
    if (status != ESP_OK) {
        assert_int_equal(status, ESP_ERR_ARGUMENT);
        return false;
    }
    if (timed) {
        esp_sim_t *sim;
        esp_sim_result_t result;
        esp_sim_opts_t opts = esp_sim_opts_default();
        opts.timeline = 1;
        assert_int_equal(esp_sim_create(NULL, &sim), ESP_OK);
        test_assert_ok(esp_sim_run(sim, d, &opts, &result, &bench->diag), &bench->diag);
        test_assert_ok(esp_deployment_pack_timed(bench->lowerer, result.start_ns, result.end_ns,
                                                 result.step_time_ns, &bench->diag),
                       &bench->diag);
        esp_sim_destroy(sim);
    } else {
        test_assert_ok(esp_deployment_pack(bench->lowerer, &bench->diag), &bench->diag);
    }
    check_same(d, seed, what);
    return true;
}

enum { PLANS = 150 };

static void test_random(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    int32_t ran = 0;
    const char *more = getenv("ESP_SEEDS");
    const int64_t plans = more ? strtoll(more, NULL, 10) : PLANS;
    for (int64_t seed = 0; seed < plans; seed++) {
        char what[32];
        (void)snprintf(what, sizeof what, "seed %d", (int)seed);
        esp_i_rng_seed(&rng, (uint64_t)seed);
        bench_t bench;
        bench_init(&bench, deploy_graph((int32_t)(seed % (DEPLOY_MODELS + 4)), 8),
                   lab_random_cluster(&rng, 3, 3));
        plan_of_t plan;
        plan_random(&plan, &bench, &rng);
        ran += check_strategy(&bench, &plan.strategy, seed % 2, (uint64_t)seed, what);
        plan_fini(&plan);
        bench_fini(&bench);
    }
    assert_true(ran >= plans * 3 / 4);
}

/* ---- strategies with names
 * ----------------------------------------------------------------------- */

static void check_named(bench_t *bench, strategy_t *strategy, int32_t micro, const char *what)
{
    static const int64_t buckets[] = {0, 100, 1 << 20};
    strategy->strategy.micro_batches = micro;
    for (int32_t i = 0; i < 3; i++) {
        strategy->strategy.bucket_bytes = buckets[i];
        strategy->strategy.sync_batchnorm = micro == 1 && i != 1;
        assert_true(check_strategy(bench, &strategy->strategy, i % 2, (uint64_t)i, what));
    }
    strategy_fini(strategy);
}

static void check_model(esp_graph_t *graph, esp_cluster_t *cluster)
{
    static const double uneven[] = {3, 1, 2, 1};
    strategy_t s;
    bench_t bench;
    bench_init(&bench, graph, cluster);
    const bool couples = esp_lowerer_micro_obstacle(bench.lowerer) != ESP_NONE;
    for (int32_t micro = 1; micro <= (couples ? 1 : 2); micro++)
        for (int32_t i = 0; i < 2; i++) {
            const double *weight = i ? uneven : NULL;
            strategy_data_parallel(&s, graph, 4, weight);
            check_named(&bench, &s, micro, "data parallel");
            strategy_parameter_server(&s, graph, 4, weight, 1);
            check_named(&bench, &s, micro, "parameter server");
            strategy_sharded(&s, graph, 4, weight);
            check_named(&bench, &s, micro, "sharded");
            strategy_mixed(&s, graph, 4, weight);
            check_named(&bench, &s, micro, "mixed");
        }
    strategy_single(&s, graph, 2); /* the others do nothing */
    check_named(&bench, &s, 1, "single");
    bench_fini(&bench);
}

static void test_named(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++)
        check_model(deploy_graph(model, model % 2 ? 14 : 8),
                    model % 3 ? cluster_mixed() : cluster_uniform(4));
}

/* ---- errors
 * -------------------------------------------------------------------------------------- */

static const esp_deployment_t *data_parallel(bench_t *bench, bool packed)
{
    const esp_deployment_t *d;
    plan_of_t plan;
    plan_data_parallel(&plan, bench, ESP_MODE_SHARD, 1);
    test_assert_ok(esp_lower(bench->lowerer, &plan.strategy, &d, &bench->diag), &bench->diag);
    if (packed)
        test_assert_ok(esp_deployment_pack(bench->lowerer, &bench->diag), &bench->diag);
    plan_fini(&plan);
    return d;
}

static void test_errors(void **state)
{
    (void)state;
    bench_t bench;
    esp_i_program_t *program = NULL;
    bench_init(&bench, deploy_graph(0, 8), cluster_uniform(2));
    const esp_deployment_t *d = data_parallel(&bench, false);
    test_assert_fails(
        esp_i_program_create(d, 0, false, (esp_i_library_t){0}, NULL, &program, &bench.diag),
        &bench.diag, ESP_ERR_ARGUMENT, "packed");
    d = data_parallel(&bench, true);
    test_assert_fails(
        esp_i_program_create(d, 2, false, (esp_i_library_t){0}, NULL, &program, &bench.diag),
        &bench.diag, ESP_ERR_ARGUMENT, "device");
    assert_null(program);
    esp_i_program_destroy(program);
    bench_fini(&bench);
}

/* Plans of two-byte floats are refused, and the tensor is named. */
static void test_half(void **state)
{
    (void)state;
    esp_diag_t diag = {0};
    esp_i_program_t *program = NULL;
    bench_t bench;
    bench_init(&bench, deploy_graph(0, 8), cluster_uniform(2));
    esp_lowerer_destroy(bench.lowerer);
    esp_cost_destroy(bench.cost);
    test_assert_ok(
        esp_cost_create(bench.graph, bench.cluster, ESP_PRECISION_BF16, NULL, &bench.cost, &diag),
        &diag);
    test_assert_ok(esp_lowerer_create(bench.cost, NULL, &bench.lowerer, &diag), &diag);
    const esp_deployment_t *d = data_parallel(&bench, true);
    test_assert_fails(
        esp_i_program_create(d, 0, false, (esp_i_library_t){0}, NULL, &program, &diag), &diag,
        ESP_ERR_UNSUPPORTED, "two bytes");
    bench_fini(&bench);
}

/* Whichever allocation fails, nothing leaks. */
static void check_no_memory(bool library)
{
    bench_t bench;
    test_memory_t memory;
    esp_i_program_t *program = NULL;
    test_memory_init(&memory);
    bench_init(&bench, deploy_graph(0, 8), cluster_mixed());
    const esp_deployment_t *d = data_parallel(&bench, true);
    esp_status_t status = ESP_ERR_NOMEM;
    for (int64_t kth = 1; status != ESP_OK; kth++) {
        test_memory_fail(&memory, kth, false);
        status = esp_i_program_create(d, 1, false, (esp_i_library_t){.used = library},
                                      &memory.alloc, &program, &bench.diag);
        assert_true(status == ESP_OK || status == ESP_ERR_NOMEM);
        if (status != ESP_OK)
            test_memory_check(&memory);
    }
    esp_i_program_destroy(program);
    test_memory_check(&memory);
    bench_fini(&bench);
}

static void test_no_memory(void **state)
{
    (void)state;
    check_no_memory(false);
    check_no_memory(true);
}

/* Costs say which all-reduces are left to the library: of single small tensors, here. */
static void check_chosen(const esp_deployment_t *d, esp_i_library_t library, int32_t found[2])
{
    esp_diag_t diag = {0};
    esp_i_program_t *program = NULL;
    test_assert_ok(esp_i_program_create(d, 0, false, library, NULL, &program, &diag), &diag);
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const esp_i_instr_t *in = &program->instr[i];
        if (in->kind != ESP_TASK_COMM || d->comm_kind[in->comm] != ESP_COMM_ALLREDUCE)
            continue;
        const int32_t first = d->comm_pair_offset[in->comm];
        const esp_tensor_id_t t = d->value_tensor[d->comm_src[first]];
        const bool theirs = d->comm_pair_offset[in->comm + 1] == first + 1 &&
                            4 * d->graph->tensor_elements[t] <= 100;
        assert_true(in->n > 0);
        const esp_i_stage_t *stage = &program->stage[in->first + in->n - 1];
        assert_int_equal(program->transfer[stage->first_transfer].mesh != ESP_NONE, theirs);
        found[theirs]++;
    }
    esp_i_program_destroy(program);
}

static void test_chosen_by_costs(void **state)
{
    (void)state;
    const esp_comm_t all = ESP_COMM_ALLREDUCE;
    const esp_costs_collective_t collective[] = {{all, "mpi", 3, 100, 15},
                                                 {all, "mpi", 3, 101, 30},
                                                 {all, "own", 3, 100, 20},
                                                 {all, "own", 3, 101, 20},
                                                 {all, "own", 4, 1, 1}};
    const esp_costs_t costs = {"0", ESP_PRECISION_FP32, 0, NULL, 0, NULL, 5, collective};
    const esp_i_library_t library = {.used = true, .costs = &costs};
    bench_t bench;
    int32_t found[2] = {0, 0};
    bench_init(&bench, deploy_graph(0, 8), cluster_uniform(3));
    for (int32_t buckets = 0; buckets < 2; buckets++) {
        const esp_deployment_t *d;
        plan_of_t plan;
        plan_data_parallel(&plan, &bench, ESP_MODE_BATCH, 1);
        plan.strategy.bucket_bytes = buckets * 1000000;
        test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
        test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
        check_chosen(d, library, found);
        plan_fini(&plan);
        assert_true(found[buckets ? 0 : 1] > 0);
    }
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),    cmocka_unit_test(test_named),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_half),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_chosen_by_costs),
    };
    return cmocka_run_group_tests_name("exec_program", tests, NULL, NULL);
}
