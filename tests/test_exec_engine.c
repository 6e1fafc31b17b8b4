/*
 * Random deployments, executed on up to eight ranks of this process, equal their interpreter; with
 * delays at random places, whatever the threads do first. Failures end all ranks.
 */
#include "exec/session.h"
#include "exec_beside.h"
#include "strategies.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- backends that dawdle or fail -------------------------------------------------------- */

typedef struct trouble {
    const esp_i_kernels_type_t *kernels_type;
    const esp_i_comm_type_t *comm_type;
    esp_i_kernels_type_t slow_kernels;
    esp_i_comm_type_t slow_comm;
    uint64_t seed;
    _Atomic uint64_t calls;
    const void *culprit; /* kernels or comm that fail ... */
    uint64_t step;       /* ... in this step (kernels) */
    _Atomic int32_t starts_left;
} trouble_t;

static trouble_t trouble; /* wrapped functions have no context */

/* A pause for one call in six. */
static void dawdle(void)
{
    const uint64_t call = atomic_fetch_add(&trouble.calls, 1);
    const uint32_t draw = esp_i_philox(trouble.seed, 0, 0, call);
    const struct timespec sleep = {.tv_nsec = (long)(draw % 64) * 1000};
    if (draw % 6 == 0)
        (void)nanosleep(&sleep, NULL);
    else if (draw % 3 == 0)
        (void)sched_yield();
}

static esp_status_t slow_run(esp_i_kernels_t *self, void *kernel, const esp_i_moment_t *moment,
                             esp_diag_t *diag)
{
    dawdle();
    if (self == trouble.culprit && moment->step == trouble.step)
        return esp_i_fail(diag, ESP_ERR_INTERNAL, "the sum is not finite");
    return trouble.kernels_type->run(self, kernel, moment, diag);
}

static esp_status_t slow_start(esp_i_comm_t *self, esp_i_message_t *message, esp_diag_t *diag)
{
    dawdle();
    if (self == trouble.culprit && atomic_fetch_sub(&trouble.starts_left, 1) <= 0)
        return esp_i_fail(diag, ESP_ERR_IO, "the cable is out");
    return trouble.comm_type->start(self, message, diag);
}

static esp_status_t slow_test(esp_i_comm_t *self, int32_t n, esp_i_message_t *const *message,
                              bool *done, bool *progress_out, esp_diag_t *diag)
{
    dawdle();
    return trouble.comm_type->test(self, n, message, done, progress_out, diag);
}

/* `polled`: the backend does not wake. */
static void make_trouble(esp_exec_t *exec, uint64_t seed, bool polled)
{
    trouble = (trouble_t){.kernels_type = exec->rank[0].kernels->type,
                          .comm_type = exec->rank[0].comm->type,
                          .seed = seed};
    trouble.slow_kernels = *trouble.kernels_type;
    trouble.slow_kernels.run = slow_run;
    trouble.slow_comm = *trouble.comm_type;
    trouble.slow_comm.start = slow_start;
    trouble.slow_comm.test = slow_test;
    for (int32_t r = 0; r < exec->n_ranks; r++) {
        exec->rank[r].kernels->type = &trouble.slow_kernels;
        exec->rank[r].comm->type = &trouble.slow_comm;
        exec->rank[r].comm->wakes = !polled;
    }
}

/* ---- equality ---------------------------------------------------------------------------- */

static esp_exec_t *make_exec(const esp_deployment_t *d, const esp_exec_opts_t *opts,
                             const char *what)
{
    esp_exec_t *exec = NULL;
    esp_diag_t diag = {0};
    if (esp_exec_create(d, opts, NULL, &exec, &diag) != ESP_OK)
        fail_msg("%s: %s", what, diag.text);
    return exec;
}

static esp_exec_opts_t reference(uint64_t seed)
{
    esp_exec_opts_t opts = esp_exec_opts_default();
    opts.backend = "reference";
    opts.wide = 1;
    opts.seed = seed;
    return opts;
}

static esp_graph_t *graph_of(uint64_t seed)
{
    static const esp_optimizer_t optimizers[] = {ESP_OPTIMIZER_SGD, ESP_OPTIMIZER_MOMENTUM,
                                                 ESP_OPTIMIZER_ADAM};
    const int64_t batch = 4 * (1 + (int64_t)(seed % 2));
    esp_training_opts_t opts =
        train_with(seed % 2 ? ESP_LOSS_MSE : ESP_LOSS_XENT, optimizers[seed / 2 % 3]);
    opts.clip_norm = seed % 4 < 2 ? 0.2 : 0;
    return seed % 3 == 0 ? deploy_graph((int32_t)(seed / 3 % DEPLOY_MODELS), batch)
                         : model_random(seed, batch, &opts);
}

static void check_deployment(bench_t *bench, const esp_deployment_t *d, uint64_t seed)
{
    beside_t beside = {bench->graph, seed, bench->graph->name};
    esp_exec_opts_t opts = reference(seed);
    opts.timeline = seed % 4 == 0;
    esp_exec_t *exec = make_exec(d, &opts, bench->graph->name);
    make_trouble(exec, seed, seed % 5 == 0);
    beside_compare(&beside, d, exec, 3);
    esp_exec_destroy(exec);
}

static void check_seed(uint64_t seed)
{
    esp_i_rng_t rng;
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
    esp_i_rng_seed(&rng, seed);
    bench_init(&bench, graph_of(seed),
               seed % 2 ? cluster_uniform(1 + (int32_t)(seed / 2 % 8)) : cluster_mixed());
    plan_random(&plan, &bench, &rng);
    beside_lower(&bench, &plan, &d);
    check_deployment(&bench, d, seed);
    plan_fini(&plan);
    bench_fini(&bench);
}

static void test_random(void **state)
{
    (void)state;
    const char *wanted = getenv("ESP_SEEDS");
    const uint64_t seeds = wanted ? strtoull(wanted, NULL, 10) : getenv("ESP_FULL") ? 1000 : 200;
    for (uint64_t seed = 0; seed < seeds; seed++)
        check_seed(seed);
}

/* ---- failures ---------------------------------------------------------------------------- */

/* A deployment that keeps four devices busy. */
typedef struct four {
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
} four_t;

static void four_init(four_t *four, int32_t model)
{
    bench_init(&four->bench, deploy_graph(model, 8), cluster_uniform(4));
    plan_data_parallel(&four->plan, &four->bench, ESP_MODE_BATCH, 1);
    beside_lower(&four->bench, &four->plan, &four->d);
}

static void four_fini(four_t *four)
{
    plan_fini(&four->plan);
    bench_fini(&four->bench);
}

/* An executor whose rank `culprit` will fail; now and for ever. */
static void check_failure(const four_t *four, esp_exec_t *exec, const esp_exec_feed_t *feed,
                          esp_status_t status, const char *place, const char *text)
{
    for (int32_t i = 0; i < 2; i++) {
        esp_diag_t diag = {0};
        assert_int_equal(esp_exec_run(exec, 20, feed, NULL, &diag), status);
        assert_int_equal(diag.status, status);
        assert_string_equal(diag.place, place);
        if (!strstr(diag.text, text))
            fail_msg("%s: \"%s\" is not in \"%s\"", four->bench.graph->name, text, diag.text);
        for (int32_t r = 0; r < exec->n_ranks; r++)
            assert_int_equal(exec->rank[r].status, status);
    }
    assert_int_equal(esp_exec_step(exec), 0);
    esp_exec_destroy(exec);
}

static void test_kernel_fails(void **state)
{
    (void)state;
    for (int32_t seed = 0; seed < 12; seed++) {
        four_t four;
        char place[64], text[64];
        const esp_exec_opts_t opts = reference((uint64_t)seed);
        four_init(&four, seed % DEPLOY_MODELS);
        esp_exec_t *exec = make_exec(four.d, &opts, "kernel");
        make_trouble(exec, (uint64_t)seed, seed % 2);
        trouble.culprit = exec->rank[seed % 4].kernels;
        trouble.step = (uint64_t)(seed / 4);
        (void)snprintf(place, sizeof place, "rank %d (n/gpu%d)", seed % 4, seed % 4);
        (void)snprintf(text, sizeof text, "step %d, op %s: the sum is not finite", seed / 4,
                       exec->rank[0].program->call[0].name);
        check_failure(&four, exec, NULL, ESP_ERR_IO, place, text);
        four_fini(&four);
    }
}

static void test_comm_fails(void **state)
{
    (void)state;
    for (int32_t seed = 0; seed < 12; seed++) {
        four_t four;
        char place[64];
        const esp_exec_opts_t opts = reference((uint64_t)seed);
        four_init(&four, seed % DEPLOY_MODELS);
        esp_exec_t *exec = make_exec(four.d, &opts, "comm");
        make_trouble(exec, (uint64_t)seed, seed % 2);
        trouble.culprit = exec->rank[seed % 4].comm;
        trouble.starts_left = 2 * seed; /* of 40 at least */
        (void)snprintf(place, sizeof place, "rank %d (n/gpu%d)", seed % 4, seed % 4);
        check_failure(&four, exec, NULL, ESP_ERR_IO, place, ": the cable is out");
        four_fini(&four);
    }
}

/* Fails where the last rows are asked for, in step 2. */
static esp_status_t bad_feed(void *context, uint64_t step, esp_tensor_id_t tensor, esp_view_t view,
                             int64_t offset, int64_t share, void *values_out, esp_diag_t *diag)
{
    const esp_exec_feed_t good = beside_feed(context);
    if (step == 2 && offset + share == view.extent)
        return esp_i_fail(diag, ESP_ERR_SYNTAX, "record 7 is cut off");
    return good.input(context, step, tensor, view, offset, share, values_out, diag);
}

static void test_feed_fails(void **state)
{
    (void)state;
    four_t four;
    const esp_exec_opts_t opts = reference(3);
    four_init(&four, 0);
    beside_t beside = {four.bench.graph, 3, "feed"};
    const esp_exec_feed_t feed = {.context = &beside, .input = bad_feed};
    esp_exec_t *exec = make_exec(four.d, &opts, "feed");
    check_failure(&four, exec, &feed, ESP_ERR_SYNTAX, "rank 3 (n/gpu3)",
                  "step 2, input x: record 7 is cut off");
    four_fini(&four);
}

/* ---- the executor ------------------------------------------------------------------------ */

static void test_refusals(void **state)
{
    (void)state;
    four_t four;
    esp_exec_t *exec = NULL;
    esp_diag_t diag = {0};
    four_init(&four, 0);
    esp_exec_opts_t opts = reference(3);
    opts.backend = "abacus";
    test_assert_fails(esp_exec_create(four.d, &opts, NULL, &exec, &diag), &diag, ESP_ERR_ARGUMENT,
                      "no kernel backend is called abacus");
    opts = reference(3);
    opts.collectives = ESP_COLLECTIVES_MPI;
    test_assert_fails(esp_exec_create(four.d, &opts, NULL, &exec, &diag), &diag, ESP_ERR_ARGUMENT,
                      "ranks in one process have no collectives of MPI");
    opts.collectives = ESP_COLLECTIVES_AUTO;
    test_assert_fails(esp_exec_create(four.d, &opts, NULL, &exec, &diag), &diag, ESP_ERR_ARGUMENT,
                      "no measured collectives to choose by");
    opts.collectives = 7;
    test_assert_fails(esp_exec_create(four.d, &opts, NULL, &exec, &diag), &diag, ESP_ERR_ARGUMENT,
                      "no kind of collectives has number 7");
    opts = reference(3);
    opts.struct_size--;
    test_assert_fails(esp_exec_create(four.d, &opts, NULL, &exec, &diag), &diag, ESP_ERR_ARGUMENT,
                      "another version");
    static const struct {
        int32_t n, map[4];
        const char *text;
    } maps[] = {{3, {0, 1, 2}, "the map has 3 devices, the plan uses 4"},
                {4, {0, 1, 2, 4}, "rank 3 device 4, which the plan does not use"},
                {4, {0, 1, 2, -1}, "rank 3 device -1, which"},
                {4, {2, 0, 1, 2}, "gives n/gpu2 to ranks 0 and 3"}};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        opts = reference(3);
        opts.map = maps[i].map;
        opts.n_map = maps[i].n;
        test_assert_fails(esp_exec_create(four.d, &opts, NULL, &exec, &diag), &diag,
                          ESP_ERR_ARGUMENT, maps[i].text);
    }
    opts = reference(3);
    opts.status_path = "/nowhere/at/all";
    test_assert_fails(esp_exec_create(four.d, &opts, NULL, &exec, &diag), &diag, ESP_ERR_IO,
                      "open the status file");
    assert_null(exec);
    four_fini(&four);
}

static void test_use(void **state)
{
    (void)state;
    four_t four;
    esp_diag_t diag = {0};
    double values[8];
    esp_exec_timeline_t times;
    esp_exec_opts_t opts = reference(3);
    four_init(&four, 0);
    const esp_tensor_id_t input = four.bench.graph->input[0];
    esp_exec_t *exec = make_exec(four.d, &opts, "use");
    assert_int_equal(esp_exec_ranks(exec), 4);
    assert_int_equal(esp_exec_rank(exec), 0);
    assert_int_equal(esp_exec_arena_bytes(exec, 1), 2 * four.d->class_arena_bytes[0]);
    assert_int_equal(esp_exec_arena_bytes(exec, 4), 0);
    test_assert_fails(esp_exec_run(exec, -1, NULL, NULL, &diag), &diag, ESP_ERR_ARGUMENT, "-1");
    test_assert_ok(esp_exec_run(exec, 0, NULL, NULL, &diag), &diag);
    test_assert_fails(esp_exec_get(exec, input, values, &diag), &diag, ESP_ERR_ARGUMENT, "x");
    test_assert_fails(esp_exec_get(exec, -1, values, &diag), &diag, ESP_ERR_ARGUMENT, "-1");
    test_assert_fails(esp_exec_set(exec, four.bench.graph->n_tensors, values, &diag), &diag,
                      ESP_ERR_ARGUMENT, "no tensor");
    test_assert_fails(esp_exec_timeline(exec, &times, &diag), &diag, ESP_ERR_ARGUMENT,
                      "without timeline");
    esp_exec_destroy(exec);
    four_fini(&four);
}

/* A run of two steps that goes on from another is the same as one of four: step numbers count. */
static void test_goes_on(void **state)
{
    (void)state;
    four_t four;
    esp_diag_t diag = {0};
    double whole[4], part[4];
    const esp_exec_opts_t opts = reference(3);
    four_init(&four, 0); /* with dropout */
    esp_exec_t *one = make_exec(four.d, &opts, "whole"), *two = make_exec(four.d, &opts, "parts");
    const esp_tensor_id_t p = four.bench.graph->parameter[0];
    double *values = calloc((size_t)four.bench.graph->tensor_elements[p], sizeof *values);
    test_assert_ok(esp_exec_run(one, 4, NULL, whole, &diag), &diag);
    test_assert_ok(esp_exec_run(two, 2, NULL, part, &diag), &diag);
    test_assert_ok(esp_exec_get(two, p, values, &diag), &diag);
    test_assert_ok(esp_exec_set(two, p, values, &diag), &diag);
    esp_exec_set_step(two, 2);
    test_assert_ok(esp_exec_run(two, 2, NULL, part + 2, &diag), &diag);
    assert_memory_equal(whole, part, sizeof whole);
    esp_exec_destroy(one);
    esp_exec_destroy(two);
    free(values);
    four_fini(&four);
}

/* ---- times and status -------------------------------------------------------------------- */

/* Every instruction of the last step starts after those that it waits for. */
static void check_times(const esp_exec_t *exec, const esp_exec_timeline_t *times)
{
    for (int32_t r = 0; r < times->n_ranks; r++) {
        const esp_i_program_t *p = exec->rank[r].program;
        const int64_t *start = times->start_ns + (int64_t)r * times->n_tasks;
        const int64_t *end = times->end_ns + (int64_t)r * times->n_tasks;
        int64_t computed = 0;
        for (int32_t i = 0; i < p->n_instrs; i++) {
            const esp_i_instr_t *in = &p->instr[i];
            assert_true(start[in->task] > 0 && end[in->task] >= start[in->task]);
            for (int32_t w = 0; w < in->n_wait; w++)
                assert_true(start[in->task] >= end[p->instr[p->waits[in->wait + w]].task]);
            if (in->kind == ESP_TASK_COMM)
                continue;
            assert_true(start[in->task] >= computed);
            computed = end[in->task];
        }
    }
}

static void test_timeline(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++) {
        four_t four;
        esp_diag_t diag = {0};
        esp_exec_timeline_t times;
        esp_exec_opts_t opts = reference(3);
        opts.timeline = 1;
        opts.map = (const int32_t[]){2, 0, 3, 1};
        opts.n_map = 4;
        four_init(&four, model);
        esp_exec_t *exec = make_exec(four.d, &opts, "times");
        make_trouble(exec, (uint64_t)model, false);
        test_assert_ok(esp_exec_run(exec, 3, NULL, NULL, &diag), &diag);
        test_assert_ok(esp_exec_timeline(exec, &times, &diag), &diag);
        assert_int_equal(times.n_tasks, four.d->n_tasks);
        assert_memory_equal(times.device, opts.map, 4 * sizeof *opts.map);
        assert_int_equal(times.steps, 3);
        assert_true(times.step_end_ns[0] > 0 && times.step_end_ns[1] > times.step_end_ns[0]);
        check_times(exec, &times);
        esp_exec_destroy(exec);
        four_fini(&four);
    }
}

static void test_status(void **state)
{
    (void)state;
    four_t four;
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    size_t length;
    esp_exec_opts_t opts = reference(3);
    test_dir_make(&dir);
    opts.status_path = test_dir_file(&dir, "status", path);
    four_init(&four, 0);
    esp_exec_t *exec = make_exec(four.d, &opts, "status");
    make_trouble(exec, 1, false);
    trouble.culprit = exec->rank[2].kernels;
    trouble.step = 11;
    assert_int_equal(esp_exec_run(exec, 12, NULL, NULL, &diag), ESP_ERR_IO);
    char *text = test_read_file(path, &length);
    assert_int_equal(length, 4 * ESP_I_STATUS_WIDTH);
    for (int32_t r = 0; r < 4; r++)
        assert_int_equal(text[(r + 1) * ESP_I_STATUS_WIDTH - 1], '\n');
    const char *expected = "rank 2 n/gpu2 idle "; /* it has returned */
    assert_memory_equal(text + 2 * ESP_I_STATUS_WIDTH, expected, strlen(expected));
    esp_i_status_task(exec->status, 3, "n/gpu3", 12, 345, "compute", "conv1/dw");
    free(text);
    text = test_read_file(path, NULL);
    expected = "rank 3 n/gpu3 step 12 task 345 compute conv1/dw ";
    assert_memory_equal(text + 3 * ESP_I_STATUS_WIDTH, expected, strlen(expected));
    free(text);
    esp_exec_destroy(exec);
    four_fini(&four);
    test_dir_remove(&dir);
}

/* ---- memory ------------------------------------------------------------------------------ */

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    const four_t *four = context;
    esp_exec_t *exec;
    esp_exec_opts_t opts = reference(3);
    esp_exec_timeline_t times;
    const esp_tensor_id_t p = four->bench.graph->parameter[0];
    double *values = calloc((size_t)four->bench.graph->tensor_elements[p], sizeof *values);
    opts.timeline = 1;
    esp_status_t status = esp_exec_create(four->d, &opts, alloc, &exec, NULL);
    if (status == ESP_OK) {
        status = esp_exec_run(exec, 2, NULL, NULL, NULL);
        if (status == ESP_OK)
            status = esp_exec_get(exec, p, values, NULL);
        if (status == ESP_OK)
            status = esp_exec_set(exec, p, values, NULL);
        if (status == ESP_OK)
            status = esp_exec_timeline(exec, &times, NULL);
        esp_exec_destroy(exec);
    }
    free(values);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    four_t four;
    four_init(&four, 0);
    test_sweep_allocations(attempt, &four, 7);
    four_fini(&four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),     cmocka_unit_test(test_kernel_fails),
        cmocka_unit_test(test_comm_fails), cmocka_unit_test(test_feed_fails),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_use),
        cmocka_unit_test(test_goes_on),    cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_status),     cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("exec_engine", tests, NULL, NULL);
}
