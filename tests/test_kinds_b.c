/* Gather, random, normalisations, losses, updates: what holds for every kind, and their numbers. */
#include "interp.h"
#include "kind_harness.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-12

static void check_numbers(const double *actual, const double *expected, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (!(fabs(actual[i] - expected[i]) <= EPSILON * fmax(1, fabs(expected[i]))))
            fail_msg("number %d is %.17g, expected %.17g", (int)i, actual[i], expected[i]);
    }
}

static void test_every_example(void **state)
{
    (void)state;
    const kind_examples_t list = kind_examples_b();
    for (int32_t i = 0; i < list.count; i++)
        kind_check(&list.data[i]);
}

/* ---- gather ------------------------------------------------------------------------------ */

static void test_gather_numbers(void **state)
{
    (void)state;
    static const double x[6] = {1, 2, 3, 4, 5, 6}, indices[4] = {2, -3, 3, -4};
    const kind_example_t gather = {
        .name = "gather",
        .kind = ESP_KIND_GATHER,
        .n_in = 2,
        .in = {{.rank = 2, .dims = {3, 2}, .values = x},
               {.dtype = ESP_DTYPE_I64, .rank = 1, .dims = {4}, .values = indices}}};
    double y[8];
    kind_compute(&gather, 0, 0, y, 8);
    check_numbers(y, (const double[]){5, 6, 1, 2, 0, 0, 0, 0}, 8);
}

static void test_gather_refusals(void **state)
{
    (void)state;
    kind_example_t op = {.name = "gather",
                         .kind = ESP_KIND_GATHER,
                         .attr.axis = {.axis = 2},
                         .n_in = 2,
                         .in = {{.rank = 2, .dims = {3, 2}}, {.dtype = ESP_DTYPE_I64}}};
    kind_check_refused(&op, ESP_ERR_INVALID, "axis 2 of a tensor of rank 2");
    op.attr.axis.axis = 1;
    op.in[1].dtype = ESP_DTYPE_F32;
    kind_check_refused(&op, ESP_ERR_INVALID, "indices is of type float32");
    op.in[1].dtype = ESP_DTYPE_I64;
    op.in[1].rank = ESP_MAX_RANK;
    kind_check_refused(&op, ESP_ERR_LIMIT, "9 axes");

    op.kind = ESP_KIND_SCATTER_ADD;
    op.in[1].rank = 1;
    op.in[1].dims[0] = 3;
    kind_check_refused(&op, ESP_ERR_INVALID, "dy [3, 2] does not hold the indices' shape [3]");
    op.attr.axis.axis = 0;
    op.attr.axis.extent = -1;
    kind_check_refused(&op, ESP_ERR_INVALID, "extent -1");
    op.attr.axis.axis = 2;
    kind_check_refused(&op, ESP_ERR_INVALID, "a result of rank 2");
}

/* ---- casts, constants, random numbers ---------------------------------------------------- */

static void test_cast_numbers(void **state)
{
    (void)state;
    static const double x[6] = {-1.7, 1.7, 300, -300, NAN, 0};
    kind_example_t cast = {.name = "cast",
                           .kind = ESP_KIND_CAST,
                           .attr.cast = {.dtype = ESP_DTYPE_I8},
                           .n_in = 1,
                           .in = {{.rank = 1, .dims = {6}, .values = x}}};
    double y[6];
    kind_compute(&cast, 0, 0, y, 6);
    check_numbers(y, (const double[]){-1, 1, 127, -128, 0, 0}, 6);
    cast.attr.cast.dtype = ESP_DTYPE_U8;
    kind_compute(&cast, 0, 0, y, 6);
    check_numbers(y, (const double[]){0, 1, 255, 0, 0, 0}, 6);
    cast.attr.cast.dtype = ESP_DTYPE_BOOL;
    kind_compute(&cast, 0, 0, y, 6);
    check_numbers(y, (const double[]){1, 1, 1, 1, 1, 0}, 6);
    cast.attr.cast.dtype = ESP_DTYPE_COUNT;
    kind_check_refused(&cast, ESP_ERR_INVALID, "dtype");
}

static void test_constants(void **state)
{
    (void)state;
    kind_example_t op = {
        .name = "range",
        .kind = ESP_KIND_RANGE,
        .attr.shape = {.rank = 2, .dims = {2, 3}, .value = 1, .step = 2, .axis = 0}};
    double y[6];
    kind_compute(&op, 0, 0, y, 6);
    check_numbers(y, (const double[]){1, 1, 1, 3, 3, 3}, 6);
    op.attr.shape.axis = 1;
    kind_compute(&op, 0, 0, y, 6);
    check_numbers(y, (const double[]){1, 3, 5, 1, 3, 5}, 6);
    op.attr.shape.axis = 2;
    kind_check_refused(&op, ESP_ERR_INVALID, "axis 2");
    op.kind = ESP_KIND_FILL;
    kind_compute(&op, 0, 0, y, 6);
    check_numbers(y, (const double[]){1, 1, 1, 1, 1, 1}, 6);
    op.attr.shape.dims[1] = -1;
    kind_check_refused(&op, ESP_ERR_INVALID, "axis 1 has extent -1");
    op.attr.shape.rank = ESP_MAX_RANK + 1;
    kind_check_refused(&op, ESP_ERR_LIMIT, "rank 9");
    op.attr.shape.rank = 1;
    op.attr.shape.dtype = ESP_DTYPE_COUNT;
    kind_check_refused(&op, ESP_ERR_INVALID, "dtype");
}

enum { DRAWS = 20000 };

/* Moments of DRAWS numbers; the bounds are about five standard errors. */
static void test_random_laws(void **state)
{
    (void)state;
    static double y[DRAWS], other[DRAWS];
    kind_example_t op = {
        .name = "random",
        .kind = ESP_KIND_RANDOM,
        .attr.shape = {.rank = 1, .dims = {DRAWS}, .value = 2, .step = 3, .stream = 4}};
    static const double mean[] = {3.5, 2, 0.25}, variance[] = {0.75, 9, 0.1875};
    for (int32_t law = 0; law < 3; law++) {
        op.attr.shape.law = (esp_random_t)law;
        op.attr.shape.value = law == ESP_RANDOM_BERNOULLI ? 0.25 : 2;
        kind_compute(&op, 1, 0, y, DRAWS);
        double sum = 0, sumsq = 0;
        for (int32_t i = 0; i < DRAWS; i++) {
            sum += y[i];
            sumsq += (y[i] - mean[law]) * (y[i] - mean[law]);
            if (law == ESP_RANDOM_UNIFORM)
                assert_true(y[i] >= 2 && y[i] < 5);
        }
        assert_true(fabs(sum / DRAWS - mean[law]) < 5 * sqrt(variance[law] / DRAWS));
        assert_true(fabs(sumsq / DRAWS - variance[law]) < 0.05 * variance[law]);
    }
    /* Seed, step and stream each give other numbers; the same three give the same. */
    op.attr.shape.law = ESP_RANDOM_UNIFORM;
    kind_compute(&op, 1, 0, y, DRAWS);
    kind_compute(&op, 1, 0, other, DRAWS);
    assert_memory_equal(y, other, sizeof y);
    kind_compute(&op, 2, 0, other, DRAWS);
    assert_memory_not_equal(y, other, sizeof y);
    kind_compute(&op, 1, 1, other, DRAWS);
    assert_memory_not_equal(y, other, sizeof y);
    op.attr.shape.stream = 5;
    kind_compute(&op, 1, 0, other, DRAWS);
    assert_memory_not_equal(y, other, sizeof y);
}

static void test_random_refusals(void **state)
{
    (void)state;
    kind_example_t op = {.name = "random",
                         .kind = ESP_KIND_RANDOM,
                         .attr.shape = {.dtype = ESP_DTYPE_I32, .law = ESP_RANDOM_NORMAL}};
    kind_check_refused(&op, ESP_ERR_INVALID, "int32");
    op.attr.shape.law = ESP_RANDOM_BERNOULLI;
    op.attr.shape.value = 1.5;
    kind_check_refused(&op, ESP_ERR_INVALID, "probability 1.5");
    kind_example_t dropout = {
        .name = "dropout", .kind = ESP_KIND_DROPOUT, .attr.dropout = {.p = 1}, .n_in = 1};
    kind_check_refused(&dropout, ESP_ERR_INVALID, "probability 1 ");
    dropout.attr.dropout.p = NAN;
    kind_check_refused(&dropout, ESP_ERR_INVALID, "probability");
}

static void test_dropout_numbers(void **state)
{
    (void)state;
    static double y[DRAWS];
    kind_example_t op = {.name = "dropout",
                         .kind = ESP_KIND_DROPOUT,
                         .attr.dropout = {.p = 0.2},
                         .n_in = 1,
                         .in = {{.rank = 1, .dims = {DRAWS}, .lo = 1, .hi = 1.0000001}}};
    kind_compute(&op, 3, 0, y, DRAWS);
    int32_t dropped = 0;
    for (int32_t i = 0; i < DRAWS; i++) {
        dropped += y[i] == 0;
        assert_true(y[i] == 0 || fabs(y[i] - 1.25) < 1e-6);
    }
    assert_in_range(dropped, DRAWS / 5 - 300, DRAWS / 5 + 300);
}

/* ---- normalisations ---------------------------------------------------------------------- */

/* x[4, 1, 1]: mean 2.5, biased variance 1.25, unbiased 5/3. */
static void test_batchnorm_numbers(void **state)
{
    (void)state;
    static const double x[4] = {1, 2, 3, 4}, sum[1] = {10}, sumsq[1] = {30}, two[1] = {2};
    const kind_input_t channel = {.rank = 1, .dims = {1}};
    kind_example_t op = {
        .name = "bn_norm",
        .kind = ESP_KIND_BN_NORM,
        .attr.norm = {.count = 4},
        .n_in = 5,
        .in = {{.rank = 3, .dims = {4, 1, 1}, .values = x}, channel, channel, channel, channel}};
    op.in[1].values = sum;
    op.in[2].values = sumsq;
    op.in[3].values = op.in[4].values = two;
    double y[6];
    kind_compute(&op, 0, 0, y, 6);
    const double unit = 2 / sqrt(1.25);
    check_numbers(y,
                  (const double[]){2 - 1.5 * unit, 2 - 0.5 * unit, 2 + 0.5 * unit, 2 + 1.5 * unit,
                                   2.5, 5.0 / 3},
                  6);
    op.attr.norm.count = 5;
    kind_check_refused(&op, ESP_ERR_INVALID, "count is 5, x has 4 elements per channel");
    op.in[0].rank = 1;
    kind_check_refused(&op, ESP_ERR_INVALID, "[n, c, ..]");
}

/* Graph of one op with these inputs, for tests that call kernels on shares themselves. */
static esp_graph_t *one_op(const kind_example_t *example)
{
    esp_diag_t diag = {0};
    esp_builder_t *builder;
    esp_graph_t *graph;
    esp_tensor_id_t in[KIND_MAX_IN], out[8];
    test_assert_ok(esp_builder_create("one", NULL, &builder), &diag);
    for (int32_t i = 0; i < example->n_in; i++)
        test_assert_ok(esp_builder_tensor(builder, "in", ESP_ROLE_INPUT, example->in[i].dtype,
                                          example->in[i].rank, example->in[i].dims, NULL, &in[i],
                                          &diag),
                       &diag);
    test_assert_ok(
        esp_builder_op(builder, example->kind, &example->attr, example->n_in, in, "op", out, &diag),
        &diag);
    test_assert_ok(esp_builder_freeze(builder, &graph, &diag), &diag);
    esp_builder_destroy(builder);
    return graph;
}

/* Sums of x[n, 2, 3] per channel. */
static void sums_of(const double *x, int32_t n, double sum[2], double sumsq[2])
{
    for (int32_t c = 0; c < 2; c++) {
        sum[c] = sumsq[c] = 0;
        for (int32_t i = 0; i < n; i++) {
            for (int32_t s = 0; s < 3; s++) {
                sum[c] += x[(i * 2 + c) * 3 + s];
                sumsq[c] += x[(i * 2 + c) * 3 + s] * x[(i * 2 + c) * 3 + s];
            }
        }
    }
}

enum { GHOST_N = 5, GHOST_SHARE = 2, GHOST_ROW = 6, GHOST_MAX = 32 };

/* A batch normalisation op over n rows of [2, 3]; bit i of `wide`: input i is shaped like x. */
static kind_example_t ghost_op(esp_op_kind_t kind, int32_t n_in, double *const *values,
                               uint32_t wide, int64_t n)
{
    kind_example_t op = {.name = "batchnorm",
                         .kind = kind,
                         .attr.norm = {.count = 3 * n, .epsilon = 1e-5},
                         .n_in = n_in};
    for (int32_t i = 0; i < n_in; i++) {
        op.in[i].rank = wide >> i & 1 ? 3 : 1;
        op.in[i].dims[0] = wide >> i & 1 ? n : 2;
        op.in[i].dims[1] = 2;
        op.in[i].dims[2] = 3;
        op.in[i].values = values[i];
    }
    return op;
}

/*
 * Local batch normalisation of a share is the undistributed op on that share alone; running
 * statistics are then weighted by the share.
 */
static void check_ghost(esp_op_kind_t kind, int32_t n_in, double *const *values, uint32_t wide)
{
    const kind_example_t ghost = ghost_op(kind, n_in, values, wide, GHOST_SHARE);
    const kind_example_t whole = ghost_op(kind, n_in, values, wide, GHOST_N);
    double expected[GHOST_MAX];
    kind_compute(&ghost, 0, 0, expected, GHOST_MAX);

    esp_graph_t *graph = one_op(&whole);
    const esp_view_t batch = {1, GHOST_N, GHOST_ROW};
    esp_factor_t factor;
    kernel_call_t call;
    assert_true(esp_graph_factor(graph, 0, 0, batch, &factor));
    kernel_local(graph, 0, factor, 0, GHOST_SHARE, &call);
    call.kernel.local_batchnorm = true;
    for (int32_t i = 0; i < n_in; i++)
        call.operand[i].data = values[i];
    for (int32_t i = n_in; i < call.n_operands; i++)
        call.operand[i].data = buffer_alloc(&call.operand[i]);
    kernel_call_run(graph, 0, &call);
    const double *next = expected;
    for (int32_t i = n_in; i < call.n_operands; i++) {
        const int32_t n = (int32_t)esp_i_buffer_elements(&call.operand[i]);
        const bool running = kind == ESP_KIND_BN_NORM && i > n_in;
        for (int32_t j = 0; j < n && running; j++)
            call.operand[i].data[j] *= (double)GHOST_N / GHOST_SHARE;
        check_numbers(call.operand[i].data, next, n);
        next += n;
        free(call.operand[i].data);
    }
    kernel_call_fini(&call);
    esp_graph_destroy(graph);
}

static void test_local_batchnorm(void **state)
{
    (void)state;
    double x[GHOST_SHARE * GHOST_ROW], dy[GHOST_SHARE * GHOST_ROW], sum[2], sumsq[2];
    double gamma[2] = {1.5, -2}, beta[2] = {0.5, 3}, dbeta[2] = {0.3, 1}, dgamma[2] = {-1, 0.7};
    for (int32_t i = 0; i < GHOST_SHARE * GHOST_ROW; i++) {
        x[i] = sin(i * i);
        dy[i] = cos(i * i);
    }
    sums_of(x, GHOST_SHARE, sum, sumsq);
    check_ghost(ESP_KIND_BN_NORM, 5, (double *const[]){x, sum, sumsq, gamma, beta}, 1);
    check_ghost(ESP_KIND_BN_GRAD_STATS, 4, (double *const[]){x, sum, sumsq, dy}, 1 | 8);
    check_ghost(ESP_KIND_BN_GRAD, 7, (double *const[]){x, sum, sumsq, gamma, dy, dbeta, dgamma},
                1 | 16);
}

/* The batch of x reaches every op of a batch normalisation; sums per channel hold none of it. */
static void test_batchnorm_carries_the_batch(void **state)
{
    (void)state;
    esp_diag_t diag = {0};
    esp_builder_t *builder;
    esp_graph_t *graph;
    const int64_t x_dims[3] = {4, 2, 3}, c_dims[1] = {2};
    const esp_attr_t attr = {.norm = {.count = 12, .epsilon = 1e-5}};
    esp_tensor_id_t x, gamma, beta, running, stats[2], y[3];
    test_assert_ok(esp_builder_create("batchnorm", NULL, &builder), &diag);
    test_assert_ok(
        esp_builder_tensor(builder, "x", ESP_ROLE_INPUT, ESP_DTYPE_F32, 3, x_dims, NULL, &x, &diag),
        &diag);
    test_assert_ok(esp_builder_tensor(builder, "gamma", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 1,
                                      c_dims, NULL, &gamma, &diag),
                   &diag);
    test_assert_ok(esp_builder_tensor(builder, "beta", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 1, c_dims,
                                      NULL, &beta, &diag),
                   &diag);
    test_assert_ok(esp_builder_tensor(builder, "running", ESP_ROLE_STATISTIC, ESP_DTYPE_F32, 1,
                                      c_dims, NULL, &running, &diag),
                   &diag);
    test_assert_ok(esp_builder_batch(builder, x, (esp_view_t){1, 4, 6}, &diag), &diag);
    test_assert_ok(esp_i_make(builder, ESP_KIND_BN_STATS, &attr, 1, &x, "stats", stats, &diag),
                   &diag);
    const esp_tensor_id_t in[5] = {x, stats[0], stats[1], gamma, beta};
    test_assert_ok(esp_i_make(builder, ESP_KIND_BN_NORM, &attr, 5, in, "norm", y, &diag), &diag);
    test_assert_ok(esp_builder_statistic(builder, running, y[2], 0.1, &diag), &diag);
    test_assert_ok(esp_builder_freeze(builder, &graph, &diag), &diag);
    for (esp_op_id_t op = 0; op < 2; op++)
        assert_int_equal(graph->op_batch[op].b, 4);
    assert_int_equal(graph->op_batch[2].dim, ESP_NONE);
    assert_int_equal(graph->tensor_batch[y[0]].extent, 4);
    assert_int_equal(graph->tensor_batch[stats[0]].extent, 0);
    assert_int_equal(graph->tensor_batch[y[2]].extent, 0);
    esp_graph_destroy(graph);
    esp_builder_destroy(builder);
}

static void test_layernorm_numbers(void **state)
{
    (void)state;
    static const double x[2] = {3, 4}, gamma[2] = {2, 1}, beta[2] = {0, 1};
    kind_example_t op = {.name = "layernorm",
                         .kind = ESP_KIND_LAYERNORM,
                         .attr.norm = {.axis = 0},
                         .n_in = 3,
                         .in = {{.rank = 1, .dims = {2}, .values = x},
                                {.rank = 1, .dims = {2}, .values = gamma},
                                {.rank = 1, .dims = {2}, .values = beta}}};
    double y[4];
    kind_compute(&op, 0, 0, y, 4); /* y, mean, rstd */
    check_numbers(y, (const double[]){-2, 2, 3.5, 2}, 4);
    op.attr.norm.rms = 1;
    op.n_in = 2;
    kind_compute(&op, 0, 0, y, 4);
    const double rstd = 1 / sqrt(12.5);
    check_numbers(y, (const double[]){6 * rstd, 4 * rstd, 0, rstd}, 4);
    op.in[1].dims[0] = 3;
    kind_check_refused(&op, ESP_ERR_INVALID, "gamma has shape [3] where [2] is needed");
    op.attr.norm.axis = 1;
    kind_check_refused(&op, ESP_ERR_INVALID, "axis 1");
}

static void test_softmax_is_stable(void **state)
{
    (void)state;
    static const double x[2] = {1000, 1000 + 0.6931471805599453};
    kind_example_t op = {.name = "softmax",
                         .kind = ESP_KIND_SOFTMAX,
                         .n_in = 1,
                         .in = {{.rank = 1, .dims = {2}, .values = x}}};
    double y[2];
    kind_compute(&op, 0, 0, y, 2);
    assert_true(fabs(y[0] - 1.0 / 3) < 1e-10 && fabs(y[1] - 2.0 / 3) < 1e-10);
    op.attr.axis.log = 1;
    kind_compute(&op, 0, 0, y, 2);
    assert_true(fabs(y[0] - log(1.0 / 3)) < 1e-10);
    op.in[0].dtype = ESP_DTYPE_I32;
    kind_check_refused(&op, ESP_ERR_INVALID, "x is of type int32");
}

/* ---- losses and updates ------------------------------------------------------------------ */

static void test_xent_numbers(void **state)
{
    (void)state;
    static const double x[12] = {0}, labels[4] = {0, 1, 3, -1};
    kind_example_t op = {
        .name = "xent",
        .kind = ESP_KIND_XENT,
        .attr.xent = {.ignore = 1},
        .n_in = 2,
        .in = {{.rank = 2, .dims = {4, 3}, .values = x},
               {.dtype = ESP_DTYPE_I64, .rank = 1, .dims = {4}, .values = labels}}};
    double loss[4];
    kind_compute(&op, 0, 0, loss, 4);
    check_numbers(loss, (const double[]){log(3), 0, 0, 0}, 4);
    op.attr.xent.smoothing = 2;
    kind_check_refused(&op, ESP_ERR_INVALID, "smoothing 2");
    op.in[1].dims[0] = 5;
    kind_check_refused(&op, ESP_ERR_INVALID, "labels has shape [5] where [4] is needed");
    op.in[0].dims[1] = 0;
    kind_check_refused(&op, ESP_ERR_INVALID, "no axis of classes");
}

/* One element: w 2, g 0.5, step 2, m 0.1, v 0.04, scale 0.5; so h = 0.25. */
static const double update_values[6] = {2, 0.5, 2, 0.1, 0.04, 0.5};

static kind_example_t update_of(esp_optimizer_t optimizer, uint32_t inputs)
{
    kind_example_t op = {.name = "update",
                         .kind = ESP_KIND_UPDATE,
                         .attr.update = {.optimizer = optimizer,
                                         .rate = 0.1,
                                         .momentum = 0.9,
                                         .beta1 = 0.9,
                                         .beta2 = 0.99,
                                         .epsilon = 1e-3,
                                         .decay = 0.2},
                         .n_in = 6};
    for (int32_t i = 0; i < 6; i++) {
        op.in[i].values = &update_values[i];
        op.in[i].rank = inputs >> i & 1 ? 0 : -1;
    }
    return op;
}

static void test_update_numbers(void **state)
{
    (void)state;
    double out[3];
    kind_example_t op = update_of(ESP_OPTIMIZER_SGD, 3);
    kind_compute(&op, 0, 0, out, 3);
    check_numbers(out, (const double[]){2 - 0.1 * (0.5 + 0.4)}, 1);
    op = update_of(ESP_OPTIMIZER_SGD, 1 | 2 | 32);
    kind_compute(&op, 0, 0, out, 3);
    check_numbers(out, (const double[]){2 - 0.1 * (0.25 + 0.4)}, 1);
    op = update_of(ESP_OPTIMIZER_STATISTIC, 3);
    kind_compute(&op, 0, 0, out, 3);
    check_numbers(out, (const double[]){0.1 * 2 + 0.9 * 0.5}, 1);
    op = update_of(ESP_OPTIMIZER_MOMENTUM, 1 | 2 | 8 | 32);
    kind_compute(&op, 0, 0, out, 3);
    const double m = 0.9 * 0.1 + 0.25 + 0.4;
    check_numbers(out, (const double[]){2 - 0.1 * m, m}, 2);

    const double plain = 0.25, decayed = 0.25 + 0.2 * 2;
    op = update_of(ESP_OPTIMIZER_ADAM, 63);
    kind_compute(&op, 0, 0, out, 3);
    double m1 = 0.09 + 0.1 * decayed, v1 = 0.99 * 0.04 + 0.01 * decayed * decayed;
    double step = m1 / (1 - 0.81) / (sqrt(v1 / (1 - 0.9801)) + 1e-3);
    check_numbers(out, (const double[]){2 - 0.1 * step, m1, v1}, 3);
    op = update_of(ESP_OPTIMIZER_ADAMW, 63);
    kind_compute(&op, 0, 0, out, 3);
    m1 = 0.09 + 0.1 * plain;
    v1 = 0.99 * 0.04 + 0.01 * plain * plain;
    step = m1 / (1 - 0.81) / (sqrt(v1 / (1 - 0.9801)) + 1e-3);
    check_numbers(out, (const double[]){2 - 0.1 * (step + 0.4), m1, v1}, 3);
}

static void test_update_refusals(void **state)
{
    (void)state;
    kind_example_t op = update_of(ESP_OPTIMIZER_ADAM, 63 & ~4u);
    kind_check_refused(&op, ESP_ERR_INVALID, "needs input step");
    op = update_of(ESP_OPTIMIZER_SGD, 1 | 2 | 8);
    kind_check_refused(&op, ESP_ERR_INVALID, "has no input m");
    op = update_of(ESP_OPTIMIZER_STATISTIC, 1 | 2 | 32);
    kind_check_refused(&op, ESP_ERR_INVALID, "has no input scale");
    op = update_of(ESP_OPTIMIZER_SGD, 3);
    op.in[1].rank = 1;
    kind_check_refused(&op, ESP_ERR_INVALID, "g has shape [0] where [] is needed");
    op.attr.update.optimizer = (esp_optimizer_t)99;
    kind_check_refused(&op, ESP_ERR_INVALID, "optimizer 99");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_example),
        cmocka_unit_test(test_gather_numbers),
        cmocka_unit_test(test_gather_refusals),
        cmocka_unit_test(test_cast_numbers),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_random_laws),
        cmocka_unit_test(test_random_refusals),
        cmocka_unit_test(test_dropout_numbers),
        cmocka_unit_test(test_batchnorm_numbers),
        cmocka_unit_test(test_local_batchnorm),
        cmocka_unit_test(test_batchnorm_carries_the_batch),
        cmocka_unit_test(test_layernorm_numbers),
        cmocka_unit_test(test_softmax_is_stable),
        cmocka_unit_test(test_xent_numbers),
        cmocka_unit_test(test_update_numbers),
        cmocka_unit_test(test_update_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
