/*
 * The execution matrix: every model of matrix_models.h, under every kind of strategy, on up to
 * eight ranks, equals the undistributed run:
 *
 *   float32, CPU backend     one device: gradients of the first step, losses, values after ten
 * steps double, reference        the interpreter of the graph: losses and all that lives between
 * steps memory                   arenas are as planned, and close to the live peak replicas equal
 * bit for bit
 *
 * Local BatchNorm is compared with the graph that normalises the same slices of the batch apart.
 */
#include "exec/session.h"
#include "exec/values.h"
#include "exec_beside.h"
#include "interp.h"
#include "live_peak.h"
#include "matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GRADIENT_TOLERANCE 1e-5 /* float32, of the largest element of the tensor */
#define VALUE_TOLERANCE    1e-4
#define NEGLIGIBLE         1e-6 /* of the largest gradient: such tensors are compared with that */
#define WIDE_TOLERANCE     1e-10
#define WIDE_NOISE         1e-13
#define PEAK_RATIO         1.1

enum { STEPS = 10, WIDE_STEPS = 4, SEED = 5, CHECK_STRIDE = 6, SCRATCH = 1024 };

/* Worst errors relative to what they are compared with. */
typedef struct worst {
    int32_t cases;
    double gradient, value, loss, wide;
} worst_t;

/* What is found over all combinations. */
static struct {
    bool executed[ESP_KIND_COUNT];
    worst_t plan[64];
    int32_t cases, negligible;
} found;

static double *doubles(int64_t n)
{
    double *values = calloc((size_t)n + 1, sizeof *values);
    assert_non_null(values);
    return values;
}

static double norm(const double *values, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(values[i]));
    return largest;
}

/* NaN counts as infinite. */
static double distance(const double *a, const double *b, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fabs(a[i] - b[i]) <= largest ? largest
                  : isnan(a[i] - b[i])         ? HUGE_VAL
                                               : fabs(a[i] - b[i]);
    return largest;
}

static void raise_to(double *most, double value)
{
    *most = fmax(*most, value);
}

static esp_tensor_id_t twin_of(const esp_graph_t *graph, const char *name)
{
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++)
        if (strcmp(graph->tensor_name[t], name) == 0)
            return t;
    fail_msg("no tensor is called %s", name);
    return ESP_NONE;
}

/* ---- what a run leaves ------------------------------------------------------------------- */

typedef struct outcome {
    const esp_graph_t *graph;
    double loss[STEPS];
    double **gradient; /* per tensor: of parameters; NULL */
    double **value;    /* per tensor: of what lives between steps; NULL */
} outcome_t;

static void outcome_init(outcome_t *o, const esp_graph_t *graph)
{
    *o = (outcome_t){.graph = graph};
    o->gradient = calloc((size_t)graph->n_tensors, sizeof *o->gradient);
    o->value = calloc((size_t)graph->n_tensors, sizeof *o->value);
    assert_true(o->gradient && o->value);
}

static void outcome_fini(outcome_t *o)
{
    for (esp_tensor_id_t t = 0; t < o->graph->n_tensors; t++) {
        free(o->gradient[t]);
        free(o->value[t]);
    }
    free(o->gradient);
    free(o->value);
}

/* ---- executors --------------------------------------------------------------------------- */

static esp_exec_t *make_exec(const matrix_case_t *c, bool wide)
{
    esp_exec_t *exec = NULL;
    esp_diag_t diag = {0};
    esp_exec_opts_t opts = esp_exec_opts_default();
    opts.backend = wide ? "reference" : "cpu";
    opts.wide = wide;
    opts.seed = SEED;
    if (esp_exec_create(c->deployment, &opts, NULL, &exec, &diag) != ESP_OK)
        fail_msg("%s: %s", c->what, diag.text);
    assert_int_equal(esp_exec_ranks(exec), c->ranks);
    for (int32_t r = 0; r < exec->n_ranks; r++) {
        const int32_t class_ = c->deployment->device_class[exec->device[r]];
        assert_int_equal(esp_exec_arena_bytes(exec, r),
                         (wide ? 2 : 1) * c->deployment->class_arena_bytes[class_]);
        for (int32_t i = 0; i < exec->rank[r].program->n_calls; i++)
            found.executed[exec->rank[r].program->call[i].kind] = true;
    }
    return exec;
}

static void run_steps(const matrix_case_t *c, esp_exec_t *exec, int32_t steps,
                      const esp_exec_feed_t *feed, double *losses)
{
    esp_diag_t diag = {0};
    if (esp_exec_run(exec, steps, feed, losses, &diag) != ESP_OK)
        fail_msg("%s: %s", c->what, diag.text);
}

/* Every whole copy of a tensor that ranks keep between steps is the same. */
static void check_replicas(const matrix_case_t *c, esp_exec_t *exec)
{
    const esp_graph_t *g = c->bench.graph;
    const char **first = calloc((size_t)g->n_tensors, sizeof *first);
    assert_non_null(first);
    for (int32_t r = 0; r < exec->n_ranks; r++)
        for (int32_t i = 0; i < exec->rank[r].program->n_residents; i++) {
            const esp_i_resident_t *resident = &exec->rank[r].program->resident[i];
            const esp_i_local_t *local = &resident->local;
            const char *bytes = esp_i_at(exec->rank[r].kernels, local->place);
            if (local->view.extent > 0 || g->tensor_role[resident->tensor] == ESP_ROLE_INPUT)
                continue;
            if (!first[resident->tensor])
                first[resident->tensor] = bytes;
            else if (memcmp(first[resident->tensor], bytes,
                            (size_t)(local->elements * esp_dtype_bytes(local->dtype))) != 0)
                fail_msg("%s: rank %d holds another %s", c->what, r,
                         g->tensor_name[resident->tensor]);
        }
    free(first);
}

/* ---- float32 ----------------------------------------------------------------------------- */

static double *read_floats(esp_exec_t *exec, const esp_graph_t *g, esp_tensor_id_t t, void *stored)
{
    esp_diag_t diag = {0};
    double *values = doubles(g->tensor_elements[t]);
    test_assert_ok(esp_exec_get(exec, t, stored, &diag), &diag);
    esp_i_values_load((esp_dtype_t)g->tensor_dtype[t], g->tensor_elements[t], stored, values);
    return values;
}

/* What an update adds the gradient to and starts at 0: the first moment; without one, ESP_NONE. */
static esp_tensor_id_t moment_of(const esp_graph_t *g, int32_t parameter)
{
    const esp_op_id_t op = g->update[parameter];
    return g->op_attr[op].update.optimizer == ESP_OPTIMIZER_SGD
               ? ESP_NONE
               : g->input_tensor[g->input_offset[op] + 3];
}

static double large_rate(void *context, uint64_t step)
{
    (void)context, (void)step;
    return 0x1p20; /* the step is all gradient */
}

/*
 * Gradients of step 0, but for a factor: the first moments after it; with plain SGD the step that a
 * large rate makes. Leaves everything as it was.
 */
static void first_gradients(const matrix_case_t *c, esp_exec_t *exec, outcome_t *o)
{
    const esp_graph_t *g = c->bench.graph;
    const esp_exec_feed_t feed = {.rate = large_rate};
    void **start = calloc((size_t)g->n_tensors, sizeof *start);
    double scratch[SCRATCH];
    esp_diag_t diag = {0};
    assert_non_null(start);
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++)
        if (g->tensor_next[t] != ESP_NONE) {
            start[t] = doubles(g->tensor_elements[t]);
            free(read_floats(exec, g, t, start[t]));
        }
    run_steps(c, exec, 1, &feed, NULL);
    for (int32_t i = 0; i < g->n_parameters; i++) {
        const esp_tensor_id_t p = g->parameter[i], moment = moment_of(g, i);
        const esp_tensor_id_t from = moment == ESP_NONE ? p : moment;
        double *values = o->gradient[p] = read_floats(exec, g, from, scratch);
        for (int64_t k = 0; k < g->tensor_elements[p] && moment == ESP_NONE; k++)
            values[k] = (double)((const float *)start[p])[k] - values[k];
    }
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        if (start[t])
            test_assert_ok(esp_exec_set(exec, t, start[t], &diag), &diag);
        free(start[t]);
    }
    free(start);
    esp_exec_set_step(exec, 0);
}

/* Statistics start as in another graph: whose they are shows there only. */
static void set_statistics(esp_exec_t *exec, const esp_graph_t *g, const esp_graph_t *start)
{
    double scratch[SCRATCH];
    esp_diag_t diag = {0};
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        if (g->tensor_role[t] != ESP_ROLE_STATISTIC || g->tensor_next[t] == ESP_NONE)
            continue;
        esp_exec_initial(start, twin_of(start, g->tensor_name[t]), SEED, 0, 0, scratch);
        test_assert_ok(esp_exec_set(exec, t, scratch, &diag), &diag);
    }
}

/* `start`: the graph that says how everything starts. */
static void train_floats(const matrix_case_t *c, const esp_graph_t *start, outcome_t *o)
{
    const esp_graph_t *g = c->bench.graph;
    double scratch[SCRATCH];
    outcome_init(o, g);
    esp_exec_t *exec = make_exec(c, false);
    set_statistics(exec, g, start);
    first_gradients(c, exec, o);
    run_steps(c, exec, STEPS, NULL, o->loss);
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++)
        if (g->tensor_next[t] != ESP_NONE && g->tensor_role[t] != ESP_ROLE_STATE)
            o->value[t] = read_floats(exec, g, t, scratch);
    check_replicas(c, exec);
    esp_exec_destroy(exec);
}

static double largest_of(const outcome_t *o, double *const *values)
{
    double largest = 0;
    for (esp_tensor_id_t t = 0; t < o->graph->n_tensors; t++)
        if (values[t])
            raise_to(&largest, norm(values[t], o->graph->tensor_elements[t]));
    return largest;
}

/* Of statistics: a mean may be near 0 beside the spread of what it is the mean of. */
static double largest_of_role(const outcome_t *o, esp_role_t role)
{
    double largest = 0;
    for (esp_tensor_id_t t = 0; t < o->graph->n_tensors; t++)
        if (o->value[t] && o->graph->tensor_role[t] == role)
            raise_to(&largest, norm(o->value[t], o->graph->tensor_elements[t]));
    return largest;
}

/* Fails unless |a - b| <= tolerance * scale; the ratio of both. */
static double check_close(const matrix_case_t *c, const char *tensor, const char *what,
                          double difference, double scale, double tolerance)
{
    if (!(difference <= tolerance * scale))
        fail_msg("%s: %s of %s differs by %g of %g", c->what, what, tensor, difference, scale);
    return scale > 0 ? difference / scale : 0;
}

/* What sizes a tensor is compared with. */
typedef struct sizes {
    double gradient, value, statistic; /* the largest */
} sizes_t;

static bool is_negligible(const outcome_t *o, esp_tensor_id_t t, const sizes_t *sizes)
{
    return o->gradient[t] &&
           norm(o->gradient[t], o->graph->tensor_elements[t]) < NEGLIGIBLE * sizes->gradient;
}

static void compare_gradient(const matrix_case_t *c, const double *actual,
                             const outcome_t *expected, esp_tensor_id_t twin, const sizes_t *sizes,
                             worst_t *worst)
{
    const char *name = expected->graph->tensor_name[twin];
    const int64_t n = expected->graph->tensor_elements[twin];
    const double difference = distance(actual, expected->gradient[twin], n);
    if (is_negligible(expected, twin, sizes)) {
        (void)check_close(c, name, "gradient near 0", difference, sizes->gradient, NEGLIGIBLE);
        found.negligible++;
    } else {
        raise_to(&worst->gradient,
                 check_close(c, name, "gradient", difference, norm(expected->gradient[twin], n),
                             GRADIENT_TOLERANCE));
    }
}

static void compare_floats(const matrix_case_t *c, const outcome_t *actual,
                           const outcome_t *expected, worst_t *worst)
{
    const esp_graph_t *g = actual->graph;
    const sizes_t sizes = {largest_of(expected, expected->gradient),
                           largest_of(expected, expected->value),
                           largest_of_role(expected, ESP_ROLE_STATISTIC)};
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        if (!actual->value[t])
            continue;
        const int64_t n = g->tensor_elements[t];
        const esp_tensor_id_t twin = twin_of(expected->graph, g->tensor_name[t]);
        double size = norm(expected->value[twin], n);
        if (g->tensor_role[t] == ESP_ROLE_STATISTIC)
            size = sizes.statistic;
        else if (is_negligible(expected, twin, &sizes))
            size = sizes.value;
        if (actual->gradient[t])
            compare_gradient(c, actual->gradient[t], expected, twin, &sizes, worst);
        raise_to(&worst->value, check_close(c, g->tensor_name[t], "value",
                                            distance(actual->value[t], expected->value[twin], n),
                                            size, VALUE_TOLERANCE));
    }
    for (int32_t s = 0; s < STEPS; s++)
        raise_to(&worst->loss,
                 check_close(c, "step", "loss", fabs(actual->loss[s] - expected->loss[s]),
                             fabs(expected->loss[s]), GRADIENT_TOLERANCE));
}

/* Says which gradients are 0 in exact arithmetic, or nearly so. */
static void list_negligible(const matrix_case_t *c, const outcome_t *o)
{
    const sizes_t sizes = {.gradient = largest_of(o, o->gradient)};
    for (esp_tensor_id_t t = 0; t < o->graph->n_tensors; t++)
        if (is_negligible(o, t, &sizes))
            print_message("%s: the gradient of %s is near 0\n", c->model->name,
                          o->graph->tensor_name[t]);
}

/* ---- double ------------------------------------------------------------------------------ */

static void interpret(const esp_graph_t *graph, outcome_t *o)
{
    interp_t *interp = interp_new(graph, SEED);
    outcome_init(o, graph);
    for (int32_t s = 0; s < WIDE_STEPS; s++) {
        interp_step(interp);
        o->loss[s] = interp_get(interp, graph->loss)[0];
    }
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensor_next[t] == ESP_NONE)
            continue;
        o->value[t] = doubles(graph->tensor_elements[t]);
        memcpy(o->value[t], interp_get(interp, t),
               (size_t)graph->tensor_elements[t] * sizeof *o->value[t]);
    }
    interp_free(interp);
}

static void compare_wide(const matrix_case_t *c, const outcome_t *expected, worst_t *worst)
{
    const esp_graph_t *g = c->bench.graph;
    beside_t beside = {g, SEED, c->what};
    const esp_exec_feed_t feed = beside_feed(&beside);
    double loss[WIDE_STEPS];
    esp_exec_t *exec = make_exec(c, true);
    beside_set(&beside, exec);
    run_steps(c, exec, WIDE_STEPS, &feed, loss);
    for (int32_t s = 0; s < WIDE_STEPS; s++)
        raise_to(&worst->wide,
                 check_close(c, "step", "loss in double", fabs(loss[s] - expected->loss[s]),
                             fabs(expected->loss[s]), WIDE_TOLERANCE));
    for (esp_tensor_id_t t = 0; t < g->n_tensors; t++) {
        if (g->tensor_next[t] == ESP_NONE)
            continue;
        const int64_t n = g->tensor_elements[t];
        const double *twin = expected->value[twin_of(expected->graph, g->tensor_name[t])];
        double *values = doubles(n);
        beside_get(&beside, exec, t, values);
        raise_to(&worst->wide,
                 check_close(c, g->tensor_name[t], "value in double", distance(values, twin, n),
                             norm(twin, n) + WIDE_NOISE / WIDE_TOLERANCE, WIDE_TOLERANCE));
        free(values);
    }
    check_replicas(c, exec);
    esp_exec_destroy(exec);
}

/* ---- memory ------------------------------------------------------------------------------ */

/* Arenas of all devices / live peaks of all devices. */
static double arena_to_peak(const matrix_case_t *c)
{
    const esp_deployment_t *d = c->deployment;
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_sim_t *sim;
    esp_sim_result_t result;
    esp_diag_t diag = {0};
    int64_t arena = 0, peak = 0, *peaks = calloc((size_t)d->n_classes, sizeof *peaks);
    assert_non_null(peaks);
    opts.timeline = 1;
    test_assert_ok(esp_sim_create(NULL, &sim), NULL);
    test_assert_ok(esp_sim_run(sim, d, &opts, &result, &diag), &diag);
    live_peaks(d, &result, peaks);
    for (int32_t k = 0; k < d->n_classes; k++) {
        const int64_t devices = d->class_offset[k + 1] - d->class_offset[k];
        arena += devices * d->class_arena_bytes[k];
        peak += devices * peaks[k];
    }
    esp_sim_destroy(sim);
    free(peaks);
    return (double)arena / (double)peak;
}

/* ---- the matrix -------------------------------------------------------------------------- */

/* What a case must equal. */
typedef struct truth {
    matrix_case_t single;
    outcome_t floats, wide;
} truth_t;

/* `synchronised`: the same without ghosts; NULL: this is it. */
static void truth_init(truth_t *truth, const matrix_model_t *model, int32_t ghosts,
                       const int64_t *share, const truth_t *synchronised)
{
    matrix_open_single(&truth->single, model, ghosts, share);
    train_floats(&truth->single, (synchronised ? synchronised : truth)->single.bench.graph,
                 &truth->floats);
    interpret(truth->single.bench.graph, &truth->wide);
}

static void truth_fini(truth_t *truth)
{
    outcome_fini(&truth->floats);
    outcome_fini(&truth->wide);
    matrix_close(&truth->single);
}

static void check_case(const matrix_model_t *model, const matrix_plan_t *plan,
                       const truth_t *synchronised)
{
    worst_t *worst = &found.plan[plan - matrix_plans];
    int64_t share[MATRIX_BATCH];
    matrix_case_t c;
    outcome_t floats;
    truth_t local;
    const truth_t *truth = synchronised;
    matrix_open(&c, model, plan);
    if (plan->local_batchnorm) {
        truth_init(&local, model, matrix_ghosts(&c, share), share, synchronised);
        truth = &local;
    }
    train_floats(&c, c.bench.graph, &floats);
    compare_floats(&c, &floats, &truth->floats, worst);
    outcome_fini(&floats);
    compare_wide(&c, &truth->wide, worst);
    found.cases++;
    worst->cases++;
    if (plan->local_batchnorm)
        truth_fini(&local);
    matrix_close(&c);
}

/* All combinations, or some of each model and each kind of plan. */
static bool is_wanted(int32_t model, int32_t plan)
{
    return getenv("ESP_FULL") || (model + plan) % CHECK_STRIDE == 0;
}

static void check_model(int32_t m)
{
    const matrix_model_t *model = &matrix_models[m];
    truth_t truth;
    truth_init(&truth, model, 0, NULL, NULL);
    list_negligible(&truth.single, &truth.floats);
    for (int32_t p = 0; p < matrix_n_plans; p++)
        if (is_wanted(m, p) && matrix_fits(&matrix_plans[p], model))
            check_case(model, &matrix_plans[p], &truth);
    truth_fini(&truth);
}

static void test_matrix(void **state)
{
    (void)state;
    for (int32_t m = 0; m < matrix_n_models; m++)
        check_model(m);
    print_message("%d combinations, %d gradients near 0; worst errors:\n", found.cases,
                  found.negligible);
    for (int32_t p = 0; p < matrix_n_plans; p++)
        print_message("%-24s %3d  gradient %.1e  value %.1e  loss %.1e  double %.1e\n",
                      matrix_plans[p].name, found.plan[p].cases, found.plan[p].gradient,
                      found.plan[p].value, found.plan[p].loss, found.plan[p].wide);
    assert_true(found.cases >= (getenv("ESP_FULL") ? 200 : 40));
}

/* Arenas of all combinations, executed or not. */
static void test_memory(void **state)
{
    (void)state;
    int32_t cases = 0, close = 0;
    double most = 0;
    for (int32_t m = 0; m < matrix_n_models; m++)
        for (int32_t p = 0; p < matrix_n_plans; p++) {
            matrix_case_t c;
            if (!matrix_fits(&matrix_plans[p], &matrix_models[m]))
                continue;
            matrix_open(&c, &matrix_models[m], &matrix_plans[p]);
            const double ratio = arena_to_peak(&c);
            raise_to(&most, ratio);
            close += ratio <= PEAK_RATIO;
            cases++;
            matrix_close(&c);
        }
    print_message("arenas are within a tenth of the live peak in %d of %d combinations, at most "
                  "%.3f of it\n",
                  close, cases, most);
    assert_true(close >= 0.95 * cases);
}

/* Views are no tasks: their output is their input's memory. */
static void test_kinds(void **state)
{
    (void)state;
    for (int32_t kind = 0; kind < ESP_KIND_COUNT; kind++)
        if (!found.executed[kind] && !esp_kind_facts((esp_op_kind_t)kind).is_view)
            fail_msg("nothing executes %s", esp_kind_name((esp_op_kind_t)kind));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matrix), cmocka_unit_test(test_kinds),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests_name("exec_matrix", tests, NULL, NULL);
}
