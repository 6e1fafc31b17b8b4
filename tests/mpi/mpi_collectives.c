/*
 * The execution matrix with MPI's collectives, as one rank of an MPI job of as many ranks as the
 * combinations have: losses and all that lives between steps are those of the executor's own
 * schedules, in double by the reference and in float32 by the CPU backend, but for the order of
 * sums; and they are the same when run again.
 */
#include "exec/profile.h"
#include "exec/session.h"
#include "matrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, MODELS = 2, STRIDE = 5 };
#define LEAST 0.1

/* What was left to MPI, over all devices of all combinations. */
typedef struct found {
    int32_t cases;
    int32_t calls[ESP_COMM_COUNT];
    int32_t buckets; /* several calls in one stage */
    int32_t fewer;   /* among some of the ranks only */
    int32_t uneven;  /* pieces of different sizes */
} found_t;

static esp_exec_t *make_exec(const matrix_case_t *c, int32_t mpi, int32_t wide)
{
    esp_exec_t *exec = NULL;
    esp_exec_opts_t opts = esp_exec_opts_default();
    esp_diag_t diag = {0};
    opts.mpi = mpi;
    opts.collectives = mpi ? ESP_COLLECTIVES_MPI : ESP_COLLECTIVES_OWN;
    opts.wide = wide;
    opts.backend = wide ? "reference" : "cpu";
    opts.seed = 5;
    if (esp_exec_create(c->deployment, &opts, NULL, &exec, &diag) != ESP_OK)
        fail_msg("%s: %s", c->what, diag.text);
    return exec;
}

/* ---- what is left to MPI ------------------------------------------------------------------- */

static void look_at(const esp_i_program_t *p, const esp_i_transfer_t *t, int32_t ranks,
                    found_t *found)
{
    const esp_deployment_t *d = p->deployment;
    const int32_t n = d->mesh_offset[t->mesh + 1] - d->mesh_offset[t->mesh];
    found->calls[t->kind]++;
    found->fewer += n < ranks;
    for (int32_t k = 1; k < n && k < t->n; k++)
        if (p->extent[t->first + k].bytes != p->extent[t->first].bytes) {
            found->uneven++;
            return;
        }
}

static void look(const matrix_case_t *c, int32_t wide, found_t *found)
{
    for (int32_t device = 0; device < c->bench.cluster->n_devices; device++) {
        esp_i_program_t *p = NULL;
        esp_diag_t diag = {0};
        test_assert_ok(esp_i_program_create(c->deployment, device, wide != 0,
                                            (esp_i_library_t){.used = true}, NULL, &p, &diag),
                       &diag);
        for (int32_t i = 0; i < p->n_instrs; i++)
            for (int32_t s = 0; p->instr[i].kind == ESP_TASK_COMM && s < p->instr[i].n; s++) {
                const esp_i_stage_t *stage = &p->stage[p->instr[i].first + s];
                const esp_i_transfer_t *t = p->transfer + stage->first_transfer;
                found->buckets +=
                    stage->n_transfers > 1 && t->mesh != ESP_NONE && t[1].mesh != ESP_NONE;
                for (int32_t k = 0; k < stage->n_transfers; k++)
                    if (t[k].mesh != ESP_NONE)
                        look_at(p, &t[k], c->ranks, found);
            }
        esp_i_program_destroy(p);
    }
    found->cases++;
}

/* ---- equality ------------------------------------------------------------------------------ */

static double value(const char *values, int32_t wide, int64_t i)
{
    double d;
    float f;
    memcpy(&d, values + i * (wide ? 8 : 4), wide ? sizeof d : 0);
    memcpy(&f, values + i * (wide ? 8 : 4), wide ? 0 : sizeof f);
    return wide ? d : (double)f;
}

/* Within `bound` of the largest element; what is 0 but for rounding is measured by LEAST. */
static void check_near(const matrix_case_t *c, esp_tensor_id_t t, int32_t wide, const char *a,
                       const char *b, double bound)
{
    const esp_graph_t *g = c->bench.graph;
    double most = 0, off = 0;
    for (int64_t i = 0; i < g->tensor_elements[t]; i++) {
        most = fmax(most, fabs(value(b, wide, i)));
        off = fmax(off, fabs(value(a, wide, i) - value(b, wide, i)));
    }
    if (!(off <= bound * fmax(most, LEAST)))
        fail_msg("%s: %s is off by %g of %g", c->what, g->tensor_name[t], off, most);
}

static void check_values(const matrix_case_t *c, int32_t wide, esp_exec_t *mine, esp_exec_t *again,
                         esp_exec_t *twin, double bound)
{
    const esp_graph_t *g = c->bench.graph;
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        esp_diag_t diag = {0};
        if (g->tensor_next[t] == ESP_NONE || !esp_dtype_is_float((esp_dtype_t)g->tensor_dtype[t]))
            continue;
        const size_t bytes = (size_t)g->tensor_elements[t] * sizeof(double);
        char *a = calloc(bytes, 1), *b = calloc(bytes, 1), *repeated = calloc(bytes, 1);
        test_assert_ok(esp_exec_get(mine, t, a, &diag), &diag);
        test_assert_ok(esp_exec_get(again, t, repeated, &diag), &diag);
        test_assert_ok(esp_exec_get(twin, t, b, &diag), &diag);
        assert_memory_equal(a, repeated, bytes);
        check_near(c, t, wide, a, b, bound);
        free(a);
        free(b);
        free(repeated);
    }
}

static void check_case(const matrix_case_t *c, int32_t wide)
{
    const double bound = wide ? 1e-12 : 1e-6;
    double loss[STEPS], repeated[STEPS], twin_loss[STEPS];
    esp_diag_t diag = {0};
    esp_exec_t *mine = make_exec(c, 1, wide), *again = make_exec(c, 1, wide);
    esp_exec_t *twin = make_exec(c, 0, wide);
    test_assert_ok(esp_exec_run(mine, STEPS, NULL, loss, &diag), &diag);
    test_assert_ok(esp_exec_run(again, STEPS, NULL, repeated, &diag), &diag);
    test_assert_ok(esp_exec_run(twin, STEPS, NULL, twin_loss, &diag), &diag);
    assert_memory_equal(loss, repeated, sizeof loss);
    for (int32_t s = 0; s < STEPS; s++)
        if (!(fabs(loss[s] - twin_loss[s]) <= bound * fabs(twin_loss[s])))
            fail_msg("%s: the loss of step %d is %.17g, not %.17g", c->what, s, loss[s],
                     twin_loss[s]);
    check_values(c, wide, mine, again, twin, bound);
    esp_exec_destroy(mine);
    esp_exec_destroy(again);
    esp_exec_destroy(twin);
}

/*
 * Each plan for that many ranks, with some of the models; without Adam, whose steps turn gradients
 * that are 0 but for rounding into any number.
 */
static void run_plan(const matrix_plan_t *plan, int32_t number, int32_t ranks, found_t *found)
{
    for (int32_t i = 0, n = 0; i < matrix_n_models && n < MODELS; i++) {
        const matrix_model_t *model = &matrix_models[(number + i * STRIDE) % matrix_n_models];
        matrix_case_t c;
        if (!matrix_fits(plan, model) || model->optimizer >= ESP_OPTIMIZER_ADAM)
            continue;
        matrix_open(&c, model, plan);
        if (c.ranks == ranks) {
            check_case(&c, n % 2);
            look(&c, n % 2, found);
            n++;
        }
        matrix_close(&c);
    }
}

/* The all-reduces that are timed add up: whole numbers, in any order, in pieces of any size. */
static void check_timed(esp_i_comm_t *comm)
{
    float data[41];
    esp_i_allreduce_t a;
    esp_diag_t diag = {0};
    for (int32_t n = comm->n_ranks - 1; n <= 41; n += 10)
        for (int32_t library = 0; library < 2; library++) {
            test_assert_ok(
                esp_i_allreduce_init(&a, comm, library != 0, n, data, &esp_i_malloc, &diag), &diag);
            for (int32_t run = 0; run < 3; run++) {
                for (int32_t i = 0; i < n; i++)
                    data[i] = (float)(i * (comm->rank + 1) + run);
                test_assert_ok(esp_i_allreduce_run(&a, &diag), &diag);
                const int32_t all = comm->n_ranks * (comm->n_ranks + 1) / 2;
                for (int32_t i = 0; i < n; i++)
                    assert_true(data[i] == (float)(i * all + run * comm->n_ranks));
            }
            esp_i_allreduce_fini(&a);
        }
}

int main(void)
{
    esp_i_comm_t *holder; /* of MPI, between executors */
    esp_diag_t diag = {0};
    found_t found = {0};
    test_assert_ok(esp_i_comm_mpi_create(NULL, &holder, &diag), &diag);
    check_timed(holder);
    for (int32_t p = 0; p < matrix_n_plans; p++)
        if (matrix_plans[p].devices >= holder->n_ranks)
            run_plan(&matrix_plans[p], p, holder->n_ranks, &found);
    if (holder->rank == 0)
        printf("%d combinations: %d all-reduces, %d reduce-scatters, %d all-gathers; %d in "
               "buckets, %d among some ranks, %d of uneven pieces\n",
               found.cases, found.calls[ESP_COMM_ALLREDUCE], found.calls[ESP_COMM_REDUCE_SCATTER],
               found.calls[ESP_COMM_ALL_GATHER], found.buckets, found.fewer, found.uneven);
    holder->type->destroy(holder);
    return 0;
}
