/*
 * Random deployments, executed on up to eight ranks of this process, equal their interpreter; with
 * delays at random places, whatever the threads do first. Failures end all ranks.
 */
#include "exec/session.h"
#include "exec_beside.h"
#include "strategies.h"

#include <sched.h>
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
    esp_status_t status = esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag);
    if (status == ESP_ERR_ARGUMENT && strstr(bench.diag.text, "where they are made")) {
        plan.strategy.sync_batchnorm = 1; /* local sums of ops that lie elsewhere */
        plan.strategy.micro_batches = 1;
        status = esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag);
    }
    if (status != ESP_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, bench.diag.text);
    test_assert_ok(esp_deployment_pack(bench.lowerer, &bench.diag), &bench.diag);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests_name("exec_engine", tests, NULL, NULL);
}
