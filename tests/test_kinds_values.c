/*
 * Loop-nest kinds against numbers worked out by hand and against plainer formulations, the tie
 * rules of their gradients, their costs, and particular factors.
 */
#include "interp.h"
#include "kind_harness.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_values(const kind_example_t *example, const double *expected, int64_t n)
{
    double value[256];
    assert_true(n <= 256);
    kind_compute(example, 0, 0, value, n);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(value[i] - expected[i]) <= 1e-12))
            fail_msg("%s: element %lld is %.17g, expected %.17g", example->name, (long long)i,
                     value[i], expected[i]);
}
#define CHECK_VALUES(example, ...)                                                                 \
    check_values(&example, (const double[]){__VA_ARGS__},                                          \
                 sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static const double counting[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

/* ---- by hand ------------------------------------------------------------------------------------
 */

static void test_contract(void **state)
{
    kind_example_t product = {
        .name = "product",
        .kind = ESP_KIND_CONTRACT,
        .attr.contract = {.a = "mk", .b = "kn", .y = "mn"},
        .n_in = 2,
        .in = {{.rank = 2, .dims = {2, 2}, .values = counting},
               {.rank = 2, .dims = {2, 3}, .values = counting}},
    };
    (void)state;
    CHECK_VALUES(product, 9, 12, 15, 19, 26, 33);
    memcpy(product.attr.contract.y, "nm", 2);
    CHECK_VALUES(product, 9, 19, 12, 26, 15, 33);
    product.attr.contract.y[1] = 0; /* m is summed too */
    CHECK_VALUES(product, 28, 38, 48);
}

static void test_conv(void **state)
{
    const double kernel[] = {1, 0, -1};
    kind_example_t conv = {
        .name = "conv",
        .kind = ESP_KIND_CONV,
        .attr.conv = {.window = {.rank = 1,
                                 .kernel = {3},
                                 .stride = {2},
                                 .dilation = {1},
                                 .pad_lo = {1},
                                 .pad_hi = {1}},
                      .groups = 1},
        .n_in = 2,
        .in = {{.rank = 3, .dims = {1, 1, 5}, .values = counting},
               {.rank = 3, .dims = {1, 1, 3}, .values = kernel}},
    };
    (void)state;
    CHECK_VALUES(conv, -2, -2, 4);
    conv.kind = ESP_KIND_CONV_DX;
    conv.attr.conv.target[0] = 5;
    conv.in[0].dims[2] = 3;
    CHECK_VALUES(conv, 0, 1, 0, 1, 0); /* y[i] adds itself to x[2i-1], takes itself from x[2i+1] */
    conv.kind = ESP_KIND_CONV_DW;
    conv.in[0].dims[2] = 5;
    conv.in[1].values = counting;
    CHECK_VALUES(conv, 2 * 2 + 4 * 3, 1 * 1 + 3 * 2 + 5 * 3, 2 * 1 + 4 * 2);
}

static void test_pool(void **state)
{
    kind_example_t pool = {
        .name = "pool",
        .kind = ESP_KIND_POOL,
        .attr.pool = {.window = {.rank = 2,
                                 .kernel = {2, 2},
                                 .stride = {2, 2},
                                 .dilation = {1, 1},
                                 .pad_hi = {1, 1}}},
        .n_in = 1,
        .in = {{.rank = 4, .dims = {1, 1, 3, 3}, .values = counting}},
    };
    (void)state;
    CHECK_VALUES(pool, 3, 4.5, 7.5, 9);
    pool.attr.pool.count_padding = 1;
    CHECK_VALUES(pool, 3, 2.25, 3.75, 2.25);
    pool.attr.pool.is_max = 1;
    CHECK_VALUES(pool, 5, 6, 8, 9);
    const double negative[] = {-1, -2, -3, -4, -5, -6, -7, -8, -9};
    pool.in[0].values = negative;
    CHECK_VALUES(pool, -1, -3, -7, -9); /* padding is no candidate */
}

static void test_reduce(void **state)
{
    kind_example_t reduce = {
        .name = "reduce",
        .kind = ESP_KIND_REDUCE,
        .attr.reduce = {.axes = 2},
        .n_in = 1,
        .in = {{.rank = 2, .dims = {2, 3}, .values = counting}},
    };
    (void)state;
    CHECK_VALUES(reduce, 6, 15);
    reduce.attr.reduce.code = ESP_REDUCE_MAX;
    CHECK_VALUES(reduce, 3, 6);
    reduce.attr.reduce.code = ESP_REDUCE_MIN;
    CHECK_VALUES(reduce, 1, 4);
    reduce.attr.reduce.code = ESP_REDUCE_PROD;
    CHECK_VALUES(reduce, 6, 120);
    reduce.attr.reduce.code = ESP_REDUCE_SUMSQ;
    CHECK_VALUES(reduce, 14, 77);
    kind_check_split(&reduce);
    reduce.attr = (esp_attr_t){.reduce = {.code = ESP_REDUCE_PROD, .axes = 1}};
    CHECK_VALUES(reduce, 4, 10, 18);
    kind_check_infer(&reduce);
    kind_check_split(&reduce);
    kind_check_linear(&reduce);
}

static void test_views(void **state)
{
    kind_example_t view = {.name = "view",
                           .kind = ESP_KIND_TRANSPOSE,
                           .attr.transpose = {.perm = {1, 0}},
                           .n_in = 1,
                           .in = {{.rank = 2, .dims = {2, 3}, .values = counting}}};
    (void)state;
    CHECK_VALUES(view, 1, 4, 2, 5, 3, 6);
    view.kind = ESP_KIND_SLICE;
    view.attr = (esp_attr_t){.slice = {.start = {1, 2}, .step = {-1, -2}, .count = {2, 2}}};
    CHECK_VALUES(view, 6, 4, 3, 1);
    view.kind = ESP_KIND_PAD;
    view.attr = (esp_attr_t){.pad = {.lo = {0, 1}, .hi = {1, 0}, .between = {1, 0}, .value = 9}};
    CHECK_VALUES(view, 9, 1, 2, 3, 9, 9, 9, 9, 9, 4, 5, 6, 9, 9, 9, 9);
    view.kind = ESP_KIND_EXPAND;
    view.attr = (esp_attr_t){.shape = {.rank = 3, .dims = {2, 2, 2}}};
    view.in[0].dims[1] = 1;
    CHECK_VALUES(view, 1, 1, 2, 2, 1, 1, 2, 2);
    view.kind = ESP_KIND_CONCAT;
    view.attr = (esp_attr_t){.axis = {.axis = 1}};
    view.n_in = 2;
    view.in[1] = (kind_input_t){.rank = 2, .dims = {2, 2}, .values = counting + 6};
    CHECK_VALUES(view, 1, 7, 8, 2, 9, 10);
}

/* ---- a plainer convolution
 * ------------------------------------------------------------------------ */

/* x[2,4,5,6] w[6,2,3,2], two groups, padded explicitly, then correlated. */
static void plain_conv(const double *x, const double *w, double *y)
{
    static double padded[2][4][6][7];
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 4; c++)
            for (int i = 0; i < 6; i++)
                for (int j = 0; j < 7; j++)
                    padded[n][c][i][j] = i >= 1 && j < 6 ? x[((n * 4 + c) * 5 + i - 1) * 6 + j] : 0;
    for (int n = 0; n < 2; n++)
        for (int k = 0; k < 6; k++)
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 5; j++) {
                    double sum = 0;
                    for (int c = 0; c < 2; c++)
                        for (int p = 0; p < 3; p++)
                            for (int q = 0; q < 2; q++)
                                sum += padded[n][k / 3 * 2 + c][2 * i + p][j + 2 * q] *
                                       w[((k * 2 + c) * 3 + p) * 2 + q];
                    y[((n * 6 + k) * 2 + i) * 5 + j] = sum;
                }
}

static void test_conv_plain(void **state)
{
    static double x[2 * 4 * 5 * 6], w[6 * 2 * 3 * 2], y[2 * 6 * 2 * 5];
    esp_i_rng_t rng;
    (void)state;
    esp_i_rng_seed(&rng, 1);
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = esp_i_rng_unit(&rng) - 0.5;
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++)
        w[i] = esp_i_rng_unit(&rng) - 0.5;
    const kind_example_t conv = {
        .name = "conv",
        .kind = ESP_KIND_CONV,
        .attr.conv = {.window = {.rank = 2,
                                 .kernel = {3, 2},
                                 .stride = {2, 1},
                                 .dilation = {1, 2},
                                 .pad_lo = {1, 0},
                                 .pad_hi = {0, 1}},
                      .groups = 2},
        .n_in = 2,
        .in = {{.rank = 4, .dims = {2, 4, 5, 6}, .values = x},
               {.rank = 4, .dims = {6, 2, 3, 2}, .values = w}},
    };
    plain_conv(x, w, y);
    check_values(&conv, y, 2 * 6 * 2 * 5);
}

/* ---- tie rules
 * ------------------------------------------------------------------------------------- */

/* Gradients of op(x[0], x[1]) of float64 vectors for dy = 1, 10, 100, ...; *dx_out[i] has n
 * elements. */
static void tie_gradients(esp_op_kind_t kind, const esp_attr_t *attr, int32_t n_in, int32_t rank,
                          const int64_t *dims, const double *const *x, int64_t n,
                          double dx_out[2][8])
{
    esp_diag_t diag = {0};
    esp_builder_t *builder;
    esp_graph_t *graph;
    esp_tensor_id_t in[2], y, dy, dx[2] = {ESP_NONE, ESP_NONE};
    const bool need[2] = {true, true};
    double ones[8] = {1, 10, 100, 1000, 10000};
    esp_i_shape_t shape[2], out = {.dtype = ESP_DTYPE_F64};
    test_assert_ok(esp_builder_create("ties", NULL, &builder), &diag);
    for (int32_t i = 0; i < n_in; i++) {
        shape[i] = (esp_i_shape_t){.dtype = ESP_DTYPE_F64, .rank = rank};
        memcpy(shape[i].dims, dims, (size_t)rank * sizeof *dims);
        test_assert_ok(esp_builder_tensor(builder, "x", ESP_ROLE_INPUT, ESP_DTYPE_F64, rank, dims,
                                          x[i], &in[i], &diag),
                       &diag);
    }
    test_assert_ok(esp_builder_op(builder, kind, attr, n_in, in, "y", &y, &diag), &diag);
    esp_builder_shape(builder, y, &out.dtype, &out.rank, out.dims);
    test_assert_ok(esp_builder_tensor(builder, "dy", ESP_ROLE_INPUT, ESP_DTYPE_F64, out.rank,
                                      out.dims, ones, &dy, &diag),
                   &diag);
    const esp_i_op_t op = {
        .kind = kind, .attr = attr, .n_in = n_in, .n_out = 1, .in = shape, .out = &out};
    const esp_i_grad_t grad = {.builder = builder,
                               .op = &op,
                               .in = in,
                               .out = &y,
                               .dy = &dy,
                               .need = need,
                               .dx = dx,
                               .name = "gradient",
                               .diag = &diag};
    test_assert_ok(esp_i_kind(kind)->gradient(&grad), &diag);
    test_assert_ok(esp_builder_freeze(builder, &graph, &diag), &diag);
    interp_t *interp = interp_new(graph, 0);
    interp_run(interp);
    for (int32_t i = 0; i < n_in; i++)
        for (int64_t j = 0; j < n; j++)
            dx_out[i][j] = interp_get(interp, dx[i])[j];
    interp_free(interp);
    esp_graph_destroy(graph);
    esp_builder_destroy(builder);
}

static void assert_vector(const double *actual, const double *expected, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (actual[i] != expected[i])
            fail_msg("element %d is %g, expected %g", (int)i, actual[i], expected[i]);
}

static void test_ties(void **state)
{
    const double a[] = {1, 2, 3}, b[] = {3, 2, 1}, flat[] = {2, 2, 1, 2, 2};
    const double *const pair[] = {a, b}, *const one[] = {flat};
    double dx[2][8];
    (void)state;
    const esp_attr_t maximum = {.eltwise = {.code = ESP_ELT_MAX}};
    tie_gradients(ESP_KIND_ELTWISE, &maximum, 2, 1, (const int64_t[]){3}, pair, 3, dx);
    assert_vector(dx[0], (const double[]){0, 10, 100}, 3); /* the first input wins */
    assert_vector(dx[1], (const double[]){1, 0, 0}, 3);
    const esp_attr_t minimum = {.eltwise = {.code = ESP_ELT_MIN}};
    tie_gradients(ESP_KIND_ELTWISE, &minimum, 2, 1, (const int64_t[]){3}, pair, 3, dx);
    assert_vector(dx[0], (const double[]){1, 10, 0}, 3);
    assert_vector(dx[1], (const double[]){0, 0, 100}, 3);
    const esp_attr_t reduce = {.reduce = {.code = ESP_REDUCE_MAX, .axes = 1}};
    tie_gradients(ESP_KIND_REDUCE, &reduce, 1, 1, (const int64_t[]){5}, one, 5, dx);
    assert_vector(dx[0], (const double[]){0.25, 0.25, 0, 0.25, 0.25}, 5); /* all extremes share */
    const esp_attr_t pool = {
        .pool = {.window = {.rank = 1, .kernel = {3}, .stride = {1}, .dilation = {1}},
                 .is_max = 1}};
    tie_gradients(ESP_KIND_POOL, &pool, 1, 3, (const int64_t[]){1, 1, 5}, one, 5, dx);
    assert_vector(dx[0], (const double[]){1, 10, 0, 100, 0}, 5); /* the first of the window */
}

/* ---- cost
 * --------------------------------------------------------------------------------------------- */

/* The frozen graph of one op on float32 inputs. */
static esp_graph_t *graph_of(const kind_example_t *example)
{
    esp_diag_t diag = {0};
    esp_builder_t *builder;
    esp_graph_t *graph;
    esp_tensor_id_t in[KIND_MAX_IN], out;
    test_assert_ok(esp_builder_create("op", NULL, &builder), &diag);
    for (int32_t i = 0; i < example->n_in; i++)
        test_assert_ok(esp_builder_tensor(builder, "x", ESP_ROLE_INPUT, example->in[i].dtype,
                                          example->in[i].rank, example->in[i].dims, NULL, &in[i],
                                          &diag),
                       &diag);
    test_assert_ok(esp_builder_op(builder, example->kind, &example->attr, example->n_in, in, "op",
                                  &out, &diag),
                   &diag);
    test_assert_ok(esp_builder_freeze(builder, &graph, &diag), &diag);
    esp_builder_destroy(builder);
    return graph;
}

static void check_flops(const kind_example_t *example, double flops)
{
    esp_graph_t *graph = graph_of(example);
    if (graph->op_flops[0] != flops)
        fail_msg("%s: %g flops, expected %g", example->name, graph->op_flops[0], flops);
    esp_graph_destroy(graph);
}

static void test_flops(void **state)
{
    const esp_window_t window = {.rank = 2, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}};
    const kind_example_t product = {
        .name = "product",
        .kind = ESP_KIND_CONTRACT,
        .attr.contract = {.a = "bmk", .b = "kn", .y = "bmn"},
        .n_in = 2,
        .in = {{.rank = 3, .dims = {2, 3, 4}}, {.rank = 2, .dims = {4, 5}}}};
    kind_example_t conv = {
        .name = "conv",
        .kind = ESP_KIND_CONV,
        .attr.conv = {.window = window, .groups = 2, .target = {6, 6}},
        .n_in = 2,
        .in = {{.rank = 4, .dims = {2, 4, 6, 6}}, {.rank = 4, .dims = {8, 2, 3, 3}}}};
    kind_example_t sum = {.name = "sum",
                          .kind = ESP_KIND_ELTWISE,
                          .n_in = 3,
                          .in = {{.rank = 1, .dims = {10}}, {.rank = 1, .dims = {10}}}};
    const double taps = 2.0 * 2 * 8 * 4 * 4 * 2 * 9; /* n k h w c/g taps */
    (void)state;
    check_flops(&product, 2 * 2 * 3 * 4 * 5);
    check_flops(&conv, taps);
    conv.kind = ESP_KIND_CONV_DX;
    conv.in[0] = (kind_input_t){.rank = 4, .dims = {2, 8, 4, 4}};
    check_flops(&conv, taps);
    conv.kind = ESP_KIND_CONV_DW;
    conv.in[0] = (kind_input_t){.rank = 4, .dims = {2, 4, 6, 6}};
    conv.in[1] = (kind_input_t){.rank = 4, .dims = {2, 8, 4, 4}};
    check_flops(&conv, taps);
    check_flops(&sum, 20);
    sum.attr.eltwise.code = ESP_ELT_GELU;
    sum.n_in = 1;
    check_flops(&sum, 250);
    sum.kind = ESP_KIND_REDUCE;
    sum.attr = (esp_attr_t){.reduce = {.code = ESP_REDUCE_SUMSQ, .axes = 1}};
    check_flops(&sum, 20);
    const kind_example_t pool = {.name = "pool",
                                 .kind = ESP_KIND_POOL,
                                 .attr.pool = {.window = window},
                                 .n_in = 1,
                                 .in = {{.rank = 4, .dims = {2, 4, 6, 6}}}};
    check_flops(&pool, 2 * 4 * 4 * 4 * 9);
}

/* ---- factors that matter
 * ---------------------------------------------------------------------------------- */

/* The binding of an output under the factor that views input 0 as `view`. */
static esp_bind_t bind_under(const kind_example_t *example, esp_view_t view, esp_view_t *y_view)
{
    esp_graph_t *graph = graph_of(example);
    esp_factor_t factor;
    *y_view = (esp_view_t){0};
    if (!esp_graph_factor(graph, 0, 0, view, &factor))
        fail_msg("%s: no factor for (%lld,%lld,%lld)", example->name, (long long)view.outer,
                 (long long)view.extent, (long long)view.inner);
    esp_bind_t bind = esp_graph_bind(graph, 0, factor, example->n_in, y_view);
    esp_graph_destroy(graph);
    return bind;
}

static void assert_view(esp_view_t view, int64_t outer, int64_t extent, int64_t inner)
{
    assert_int_equal(view.outer, outer);
    assert_int_equal(view.extent, extent);
    assert_int_equal(view.inner, inner);
}

static void test_factors(void **state)
{
    esp_view_t y;
    (void)state;
    /* heads of 4 x 8 in one of three pieces [q k v] of a projection of [2,5,96] */
    const kind_example_t keys = {
        .name = "keys",
        .kind = ESP_KIND_SLICE,
        .attr.slice = {.start = {0, 0, 32}, .step = {1, 1, 1}, .count = {2, 5, 32}},
        .n_in = 1,
        .in = {{.rank = 3, .dims = {2, 5, 96}}}};
    assert_int_equal(bind_under(&keys, (esp_view_t){2 * 5 * 3, 4, 8}, &y), ESP_BIND_CARRY);
    assert_view(y, 2 * 5, 4, 8);
    assert_int_equal(bind_under(&keys, (esp_view_t){1, 2, 5 * 96}, &y), ESP_BIND_CARRY);
    assert_view(y, 1, 2, 5 * 32);
    /* the batch, 2, in rows [2*5] of a matrix product */
    kind_example_t product = {.name = "product",
                              .kind = ESP_KIND_CONTRACT,
                              .attr.contract = {.a = "mk", .b = "kn", .y = "mn"},
                              .n_in = 2,
                              .in = {{.rank = 2, .dims = {10, 6}}, {.rank = 2, .dims = {6, 4}}}};
    assert_int_equal(bind_under(&product, (esp_view_t){1, 2, 5 * 6}, &y), ESP_BIND_CARRY);
    assert_view(y, 1, 2, 5 * 4);
    assert_int_equal(bind_under(&product, (esp_view_t){10, 6, 1}, &y), ESP_BIND_SUM);
    /* the weight gradient sums over the batch, wherever it lies in the rows */
    product.attr = (esp_attr_t){.contract = {.a = "km", .b = "kn", .y = "mn"}};
    product.in[1].dims[0] = 10;
    assert_int_equal(bind_under(&product, (esp_view_t){5, 2, 6}, &y), ESP_BIND_SUM);
    /* images and channels are one dimension of a pool: channels alone are a part of it */
    const kind_example_t pool = {
        .name = "pool",
        .kind = ESP_KIND_POOL,
        .attr.pool = {.window = {.rank = 1, .kernel = {2}, .stride = {2}, .dilation = {1}}},
        .n_in = 1,
        .in = {{.rank = 3, .dims = {2, 3, 8}}}};
    assert_int_equal(bind_under(&pool, (esp_view_t){2, 3, 8}, &y), ESP_BIND_CARRY);
    assert_view(y, 2, 3, 4);
}

/* A share of nothing of a part of extent 1, which fits any axis: no element is touched. */
static void check_nothing(const esp_graph_t *graph, esp_factor_t factor)
{
    kernel_call_t call;
    kernel_local(graph, 0, factor, 0, 0, &call);
    for (int32_t i = 0; i < call.n_operands; i++)
        call.operand[i].data = buffer_alloc(&call.operand[i]);
    kernel_call_run(graph, 0, &call);
    for (int32_t i = 0; i < call.n_operands; i++) {
        const esp_i_buffer_t *buffer = &call.operand[i];
        for (int64_t j = 0; i >= call.kernel.n_in && j < esp_i_buffer_elements(buffer); j++)
            assert_true(buffer->data[j] == 0);
        free(call.operand[i].data);
    }
    kernel_call_fini(&call);
}

static void test_share_of_nothing(void **state)
{
    kind_examples_t examples = kind_examples_a();
    (void)state;
    for (int32_t i = 0; i < examples.count; i++) {
        esp_graph_t *graph = graph_of(&examples.data[i]);
        for (int32_t d = 0; d < graph->dim_offset[1]; d++)
            if (graph->dim_extent[d] > 1)
                check_nothing(graph, (esp_factor_t){d, graph->dim_extent[d], 1, 1});
        esp_graph_destroy(graph);
    }
}

/* 70 inputs: the mask with all bits set stands for those beyond 63. */
static void test_many_inputs(void **state)
{
    enum { N = 70 };
    static esp_i_shape_t in[N];
    esp_i_shape_t out = {.dtype = ESP_DTYPE_F32, .rank = 1, .dims = {4}};
    const esp_attr_t attr = {.eltwise = {.code = ESP_ELT_ADD}};
    const esp_i_op_t op = {.attr = &attr, .n_in = N, .n_out = 1, .in = in, .out = &out};
    uint64_t masks[4];
    (void)state;
    for (int32_t i = 0; i < N; i++)
        in[i] = out;
    assert_int_equal(esp_i_kind(ESP_KIND_ELTWISE)->linear(&op, masks), 1);
    assert_true(masks[0] == UINT64_MAX);
    assert_int_equal(esp_i_kind(ESP_KIND_CONCAT)->linear(&op, masks), 1);
    assert_true(masks[0] == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contract),
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_conv_plain),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_flops),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_many_inputs),
        cmocka_unit_test(test_share_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
