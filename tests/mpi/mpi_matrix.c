/*
 * Combinations of the execution matrix that keep four devices busy, on the CPU backend, as one rank
 * of an MPI job: losses and all that lives between steps equal those of four ranks in one process,
 * bit for bit, since both add up in the same order.
 */
#include "exec/session.h"
#include "matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, STEPS = 5, CASES = 20, STRIDE = 7 };

static esp_exec_t *make_exec(const matrix_case_t *c, int32_t mpi)
{
    esp_exec_t *exec = NULL;
    esp_exec_opts_t opts = esp_exec_opts_default();
    esp_diag_t diag = {0};
    opts.mpi = mpi;
    opts.seed = 5;
    if (esp_exec_create(c->deployment, &opts, NULL, &exec, &diag) != ESP_OK)
        fail_msg("%s: %s", c->what, diag.text);
    return exec;
}

static void check_values(const matrix_case_t *c, esp_exec_t *mine, esp_exec_t *twin)
{
    const esp_graph_t *g = c->bench.graph;
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        esp_diag_t diag = {0};
        const size_t bytes = (size_t)g->tensor_bytes[t];
        if (g->tensor_next[t] == ESP_NONE)
            continue;
        char *a = calloc(bytes, 1), *b = calloc(bytes, 1);
        test_assert_ok(esp_exec_get(mine, t, a, &diag), &diag);
        test_assert_ok(esp_exec_get(twin, t, b, &diag), &diag);
        if (memcmp(a, b, bytes) != 0)
            fail_msg("%s: %s differs", c->what, g->tensor_name[t]);
        free(a);
        free(b);
    }
}

static void check_case(const matrix_case_t *c)
{
    double loss[STEPS], twin_loss[STEPS];
    esp_diag_t diag = {0};
    esp_exec_t *mine = make_exec(c, 1), *twin = make_exec(c, 0);
    for (int32_t r = 0; r < RANKS; r++)
        assert_int_equal(esp_exec_arena_bytes(mine, r),
                         r == esp_exec_rank(mine) ? esp_exec_arena_bytes(twin, r) : 0);
    test_assert_ok(esp_exec_run(mine, STEPS, NULL, loss, &diag), &diag);
    test_assert_ok(esp_exec_run(twin, STEPS, NULL, twin_loss, &diag), &diag);
    assert_memory_equal(loss, twin_loss, sizeof loss);
    check_values(c, mine, twin);
    esp_exec_destroy(mine);
    esp_exec_destroy(twin);
}

/* The next combinations in steps of STRIDE through the matrix. */
static int32_t run_cases(void)
{
    const int32_t all = matrix_n_models * matrix_n_plans;
    int32_t n = 0;
    for (int32_t i = 0; i < all && n < CASES; i++) {
        const int32_t at = i * STRIDE % all;
        const matrix_model_t *model = &matrix_models[at % matrix_n_models];
        const matrix_plan_t *plan = &matrix_plans[at / matrix_n_models];
        matrix_case_t c;
        if (plan->devices < RANKS || !matrix_fits(plan, model))
            continue;
        matrix_open(&c, model, plan);
        if (c.ranks == RANKS) {
            check_case(&c);
            n++;
        }
        matrix_close(&c);
    }
    return n;
}

int main(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    esp_i_comm_t *holder; /* of MPI, between executors */
    esp_diag_t diag = {0};
    test_assert_ok(esp_i_comm_mpi_create(NULL, &holder, &diag), &diag);
    const int32_t n = run_cases();
    if (rank && strcmp(rank, "0") == 0)
        printf("matrix: %d combinations\n", n);
    holder->type->destroy(holder);
    return n == CASES ? 0 : 1;
}
