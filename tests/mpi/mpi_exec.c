/*
 * Executes deployments as one rank of an MPI job. The first argument says what:
 *
 * - same: a dozen plans: results, losses and times equal those of ranks in one process, bit for bit
 * - kernel: an op fails on rank 2 in step 1
 * - library: the same, with the collectives of MPI
 * - options: rank 1 has another seed
 * - whose: rank 1 has collectives of its own, the others MPI's
 * - plan: rank 3 has another plan
 * - wait: rank 1 gives up between runs
 * - killed: rank 2 dies in step 1; argument 2 is the status file
 */
#include "exec/session.h"
#include "exec_beside.h"
#include "strategies.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, STEPS = 5, PLANS = 12 };

typedef struct setting {
    const char *what, *path;
    int32_t me;
    bench_t bench;
    plan_of_t plan;
    const esp_deployment_t *d;
    esp_exec_opts_t opts;
} setting_t;

static const esp_i_kernels_type_t *true_kernels;
static esp_i_kernels_type_t bad_kernels;
static bool dies;

static esp_status_t bad_run(esp_i_kernels_t *self, void *kernel, const esp_i_moment_t *moment,
                            esp_diag_t *diag)
{
    if (moment->step == 1 && dies)
        (void)raise(SIGKILL);
    if (moment->step == 1)
        return esp_i_fail(diag, ESP_ERR_INTERNAL, "the sum is not finite");
    return true_kernels->run(self, kernel, moment, diag);
}

/* Plan number i for four devices: data parallel in three ways, then at random. */
static void lower(setting_t *s, int32_t i)
{
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, (uint64_t)i);
    bench_init(&s->bench, deploy_graph(i % DEPLOY_MODELS, 8), cluster_uniform(RANKS));
    if (i < 3)
        plan_data_parallel(&s->plan, &s->bench, i == 1 ? ESP_MODE_SHARD : ESP_MODE_BATCH, 1);
    else
        plan_random(&s->plan, &s->bench, &rng);
    beside_lower(&s->bench, &s->plan, &s->d);
}

static void forget(setting_t *s)
{
    plan_fini(&s->plan);
    bench_fini(&s->bench);
}

static int32_t users(const esp_deployment_t *d)
{
    int32_t n = 0;
    for (int32_t device = 0; device < d->cluster->n_devices; device++)
        n += d->device_class[device] != ESP_NONE;
    return n;
}

static void give_up(const esp_diag_t *diag)
{
    char text[800];
    (void)esp_diag_format(diag, text, sizeof text);
    printf("failed: %s\n", text);
    (void)fflush(stdout);
}

/* ---- equality ---------------------------------------------------------------------------- */

static void check_times(esp_exec_t *exec)
{
    esp_exec_timeline_t t;
    esp_diag_t diag = {0};
    int64_t parts = 0;
    test_assert_ok(esp_exec_timeline(exec, &t, &diag), &diag);
    assert_int_equal(t.n_ranks, RANKS);
    assert_int_equal(t.steps, STEPS);
    for (int64_t s = 1; s < t.steps; s++)
        assert_true(t.step_end_ns[s - 1] <= t.step_end_ns[s]);
    for (int64_t i = 0; i < (int64_t)t.n_ranks * t.n_tasks; i++) {
        assert_true(t.start_ns[i] <= t.end_ns[i]);
        parts += t.end_ns[i] > 0;
    }
    assert_true(parts >= t.n_tasks);
}

static void check_values(const setting_t *s, esp_exec_t *mine, esp_exec_t *twin)
{
    const esp_graph_t *g = s->bench.graph;
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        esp_diag_t diag = {0};
        if (g->tensor_next[t] == ESP_NONE)
            continue;
        const size_t bytes = (size_t)g->tensor_elements[t] * sizeof(double);
        char *a = calloc(bytes, 1), *b = calloc(bytes, 1);
        test_assert_ok(esp_exec_get(mine, t, a, &diag), &diag);
        test_assert_ok(esp_exec_get(twin, t, b, &diag), &diag);
        if (memcmp(a, b, bytes) != 0)
            fail_msg("%s differs on rank %d", g->tensor_name[t], s->me);
        free(a);
        free(b);
    }
}

static void check_same(setting_t *s)
{
    esp_exec_t *mine = NULL, *twin = NULL;
    esp_diag_t diag = {0};
    double loss[STEPS], twin_loss[STEPS];
    esp_exec_opts_t opts = s->opts;
    test_assert_ok(esp_exec_create(s->d, &opts, NULL, &mine, &diag), &diag);
    opts.mpi = 0;
    test_assert_ok(esp_exec_create(s->d, &opts, NULL, &twin, &diag), &diag);
    assert_int_equal(esp_exec_rank(mine), s->me);
    for (int32_t run = 0; run < 2; run++) {
        test_assert_ok(esp_exec_run(mine, STEPS, NULL, loss, &diag), &diag);
        test_assert_ok(esp_exec_run(twin, STEPS, NULL, twin_loss, &diag), &diag);
        assert_memory_equal(loss, twin_loss, sizeof loss);
        check_values(s, mine, twin);
        check_times(mine);
        check_times(twin);
    }
    esp_exec_destroy(mine);
    esp_exec_destroy(twin);
}

/* Several executors one after the other, as something else holds MPI. */
static int run_same(setting_t *s)
{
    esp_i_comm_t *holder;
    esp_diag_t diag = {0};
    int32_t n = 0;
    test_assert_ok(esp_i_comm_mpi_create(NULL, &holder, &diag), &diag);
    for (int32_t i = 0; i < PLANS; i++) {
        lower(s, i);
        if (users(s->d) == RANKS) {
            check_same(s);
            n++;
        }
        forget(s);
    }
    if (s->me == 0)
        printf("same: %d plans\n", n);
    holder->type->destroy(holder);
    return 0;
}

/* ---- failures ---------------------------------------------------------------------------- */

static void fail_rank(setting_t *s, esp_exec_t *exec)
{
    if (s->me != 2)
        return;
    true_kernels = exec->rank[0].kernels->type;
    bad_kernels = *true_kernels;
    bad_kernels.run = bad_run;
    dies = strcmp(s->what, "killed") == 0;
    exec->rank[0].kernels->type = &bad_kernels;
}

/* Says why, then ends the job. */
static int run_until_failure(setting_t *s)
{
    esp_exec_t *exec = NULL;
    esp_diag_t diag = {0};
    if (esp_exec_create(s->d, &s->opts, NULL, &exec, &diag) != ESP_OK) {
        give_up(&diag);
        return 1;
    }
    if (strcmp(s->what, "wait") != 0)
        fail_rank(s, exec);
    esp_status_t status = esp_exec_run(exec, 1, NULL, NULL, &diag);
    if (strcmp(s->what, "wait") == 0 && s->me == 1)
        status = esp_i_exec_settle(exec, ESP_ERR_NOMEM, &(esp_diag_t){.text = "no more"}, &diag);
    if (status == ESP_OK)
        status = esp_exec_run(exec, 100, NULL, NULL, &diag);
    if (status != ESP_OK)
        give_up(&diag);
    esp_exec_destroy(exec);
    return status == ESP_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    setting_t s = {.what = argc > 1 ? argv[1] : "same", .path = argc > 2 ? argv[2] : NULL};
    s.me = number ? (int32_t)strtol(number, NULL, 10) : 0;
    s.opts = esp_exec_opts_default();
    s.opts.backend = "reference";
    s.opts.wide = s.opts.mpi = s.opts.timeline = 1;
    s.opts.seed = strcmp(s.what, "options") == 0 && s.me == 1 ? 8 : 7;
    s.opts.status_path = s.path;
    if (strcmp(s.what, "library") == 0 || (strcmp(s.what, "whose") == 0 && s.me != 1))
        s.opts.collectives = ESP_COLLECTIVES_MPI;
    if (strcmp(s.what, "same") == 0)
        return run_same(&s);
    lower(&s, strcmp(s.what, "plan") == 0 && s.me == 3 ? 1 : 0);
    const int result = run_until_failure(&s);
    forget(&s);
    return result;
}
