/* The reference interpreter: default values, versions, shares, and that training trains. */
#include "interp.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct model {
    esp_builder_t *builder;
    esp_graph_t *graph;
    esp_diag_t diag;
} model_t;

static void model_init(model_t *model)
{
    *model = (model_t){0};
    test_assert_ok(esp_builder_create("model", NULL, &model->builder), &model->diag);
}

static void model_freeze(model_t *model)
{
    test_assert_ok(esp_builder_freeze(model->builder, &model->graph, &model->diag), &model->diag);
}

static void model_fini(model_t *model)
{
    esp_graph_destroy(model->graph);
    esp_builder_destroy(model->builder);
}

static esp_tensor_id_t tensor(model_t *model, const char *name, esp_role_t role, esp_dtype_t dtype,
                              int32_t rank, const int64_t *dims, const void *data)
{
    esp_tensor_id_t id;
    test_assert_ok(
        esp_builder_tensor(model->builder, name, role, dtype, rank, dims, data, &id, &model->diag),
        &model->diag);
    return id;
}

static esp_tensor_id_t op(model_t *model, esp_op_kind_t kind, const esp_attr_t *attr, int32_t n,
                          const esp_tensor_id_t *inputs)
{
    esp_tensor_id_t out[8];
    test_assert_ok(esp_builder_op(model->builder, kind, attr, n, inputs, "op", out, &model->diag),
                   &model->diag);
    return out[0];
}

/* ---- values ------------------------------------------------------------------------------ */

static void check_literal(esp_dtype_t dtype, const void *data, int64_t n, const double *expected)
{
    model_t model;
    model_init(&model);
    const esp_tensor_id_t t = tensor(&model, "literal", ESP_ROLE_CONSTANT, dtype, 1, &n, data);
    model_freeze(&model);
    interp_t *interp = interp_new(model.graph, 0);
    for (int64_t i = 0; i < n; i++)
        assert_true(interp_get(interp, t)[i] == expected[i]);
    interp_free(interp);
    model_fini(&model);
}

static void test_literals(void **state)
{
    (void)state;
    check_literal(ESP_DTYPE_F32, (const float[]){1.5F, -2}, 2, (const double[]){1.5, -2});
    check_literal(ESP_DTYPE_F64, (const double[]){0.1}, 1, (const double[]){0.1});
    check_literal(ESP_DTYPE_F16, (const uint16_t[]){0x3c00, 0xc100, 0x0001, 0xfc00}, 4,
                  (const double[]){1, -2.5, 0x1p-24, -INFINITY});
    check_literal(ESP_DTYPE_BF16, (const uint16_t[]){0x3f80, 0xc020}, 2, (const double[]){1, -2.5});
    check_literal(ESP_DTYPE_I8, (const int8_t[]){-5}, 1, (const double[]){-5});
    check_literal(ESP_DTYPE_U8, (const uint8_t[]){250}, 1, (const double[]){250});
    check_literal(ESP_DTYPE_BOOL, (const uint8_t[]){1, 0}, 2, (const double[]){1, 0});
    check_literal(ESP_DTYPE_I16, (const int16_t[]){-300}, 1, (const double[]){-300});
    check_literal(ESP_DTYPE_I32, (const int32_t[]){-70000}, 1, (const double[]){-70000});
    check_literal(ESP_DTYPE_I64, (const int64_t[]){INT64_C(1) << 40}, 1, (const double[]){0x1p40});
}

/* Equal names start from equal numbers, whatever else is in the graph; seeds and names matter. */
static void test_defaults(void **state)
{
    (void)state;
    enum { N = 64 };
    const int64_t dims[2] = {8, 8};
    double a[N], b[N];
    model_t one, two;
    model_init(&one);
    model_init(&two);
    const esp_tensor_id_t w1 = tensor(&one, "w", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 2, dims, NULL);
    const esp_tensor_id_t v2 = tensor(&two, "v", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 2, dims, NULL);
    const esp_tensor_id_t w2 = tensor(&two, "w", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 2, dims, NULL);
    const esp_tensor_id_t x2 = tensor(&two, "x", ESP_ROLE_INPUT, ESP_DTYPE_F32, 2, dims, NULL);
    const esp_tensor_id_t m2 = tensor(&two, "m", ESP_ROLE_STATE, ESP_DTYPE_F32, 2, dims, NULL);
    const esp_tensor_id_t s2 = tensor(&two, "s", ESP_ROLE_STATISTIC, ESP_DTYPE_F32, 2, dims, NULL);
    model_freeze(&one);
    model_freeze(&two);
    interp_default(one.graph, w1, 1, 0, a);
    interp_default(two.graph, w2, 1, 5, b); /* weights do not depend on the step */
    assert_memory_equal(a, b, sizeof a);
    interp_default(two.graph, v2, 1, 0, b);
    assert_memory_not_equal(a, b, sizeof a);
    interp_default(two.graph, w2, 2, 0, b);
    assert_memory_not_equal(a, b, sizeof a);
    interp_default(two.graph, x2, 1, 0, a);
    interp_default(two.graph, x2, 1, 1, b); /* inputs do */
    assert_memory_not_equal(a, b, sizeof a);
    interp_default(two.graph, m2, 1, 0, a);
    interp_default(two.graph, s2, 1, 0, b);
    for (int32_t i = 0; i < N; i++)
        assert_true(a[i] == 0 && b[i] > 0);
    model_fini(&one);
    model_fini(&two);
}

static void test_integer_bounds(void **state)
{
    (void)state;
    model_t model;
    model_init(&model);
    const int64_t n[1] = {6}, table[2] = {5, 3}, logits[2] = {6, 9};
    const esp_tensor_id_t indices =
        tensor(&model, "indices", ESP_ROLE_INPUT, ESP_DTYPE_I64, 1, n, NULL);
    const esp_tensor_id_t labels =
        tensor(&model, "labels", ESP_ROLE_INPUT, ESP_DTYPE_I32, 1, n, NULL);
    const esp_tensor_id_t free_one =
        tensor(&model, "mask", ESP_ROLE_INPUT, ESP_DTYPE_I64, 1, n, NULL);
    const esp_tensor_id_t rows =
        tensor(&model, "rows", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 2, table, NULL);
    const esp_tensor_id_t x = tensor(&model, "x", ESP_ROLE_INPUT, ESP_DTYPE_F32, 2, logits, NULL);
    const esp_attr_t two_axes = {.shape = {.rank = 2, .dims = {2, 3}}}, zero = {0};
    const esp_attr_t wide = {.cast = {.dtype = ESP_DTYPE_I64}};
    const esp_tensor_id_t reshaped = op(&model, ESP_KIND_RESHAPE, &two_axes, 1, &indices);
    (void)op(&model, ESP_KIND_GATHER, &zero, 2, (const esp_tensor_id_t[]){rows, reshaped});
    const esp_tensor_id_t cast = op(&model, ESP_KIND_CAST, &wide, 1, &labels);
    (void)op(&model, ESP_KIND_XENT, &zero, 2, (const esp_tensor_id_t[]){x, cast});
    model_freeze(&model);
    assert_int_equal(interp_bound(model.graph, indices), 5);
    assert_int_equal(interp_bound(model.graph, labels), 9);
    assert_int_equal(interp_bound(model.graph, free_one), 2);
    double drawn[6];
    interp_default(model.graph, indices, 3, 0, drawn);
    for (int32_t i = 0; i < 6; i++)
        assert_true(drawn[i] >= 0 && drawn[i] < 5 && drawn[i] == floor(drawn[i]));
    /* A reshape shows the buffer of its input. */
    interp_t *interp = interp_new(model.graph, 3);
    assert_ptr_equal(interp_get(interp, indices), interp_get(interp, reshaped));
    interp_run(interp);
    interp_free(interp);
    model_fini(&model);
}

/* ---- versions ---------------------------------------------------------------------------- */

static void test_versions_move(void **state)
{
    (void)state;
    model_t model;
    model_init(&model);
    const esp_tensor_id_t running =
        tensor(&model, "running", ESP_ROLE_STATISTIC, ESP_DTYPE_F32, 0, NULL, NULL);
    const esp_tensor_id_t x = tensor(&model, "x", ESP_ROLE_INPUT, ESP_DTYPE_F32, 0, NULL, NULL);
    test_assert_ok(esp_builder_statistic(model.builder, running, x, 0.5, &model.diag), &model.diag);
    model_freeze(&model);
    interp_t *interp = interp_new(model.graph, 3);
    const double eight = 8, zero = 0;
    interp_set(interp, running, &zero);
    interp_set(interp, x, &eight);
    interp_run(interp);
    assert_true(interp_get(interp, running)[0] == 0);
    interp_step(interp);
    assert_true(interp_get(interp, running)[0] == 4);
    interp_step(interp);
    assert_true(interp_get(interp, running)[0] == 6);
    interp_free(interp);
    model_fini(&model);
}

/* ---- shares ------------------------------------------------------------------------------ */

static void test_buffers(void **state)
{
    (void)state;
    model_t model;
    model_init(&model);
    const int64_t dims[3] = {2, 6, 2};
    const esp_tensor_id_t t = tensor(&model, "t", ESP_ROLE_INPUT, ESP_DTYPE_F32, 3, dims, NULL);
    model_freeze(&model);
    double whole[24], joined[24] = {0};
    for (int32_t i = 0; i < 24; i++)
        whole[i] = i;
    /* The middle axis as [3][2]: rows of its 3. */
    const esp_view_t view = {2, 3, 4};
    for (int64_t k = 0; k < 2; k++) {
        esp_i_buffer_t local = buffer_of(model.graph, t, view, k == 0 ? 0 : 2, k == 0 ? 2 : 1);
        local.data = buffer_alloc(&local);
        assert_int_equal(esp_i_buffer_elements(&local), k == 0 ? 16 : 8);
        buffer_take(&local, whole);
        for (int64_t i = 0; i < esp_i_buffer_elements(&local); i++)
            assert_true(local.data[i] == (double)esp_i_buffer_global_index(&local, i));
        buffer_put(&local, joined);
        buffer_add(&local, joined);
        free(local.data);
    }
    for (int32_t i = 0; i < 24; i++)
        assert_true(joined[i] == 2 * i);
    model_fini(&model);
}

/* ---- training ---------------------------------------------------------------------------- */

/* Two layers over 12 samples and three classes. */
static void build_network(model_t *model)
{
    const int64_t x_dims[2] = {12, 5}, w_dims[2] = {5, 8}, v_dims[2] = {8, 3}, b_dims[1] = {8};
    const esp_tensor_id_t x = tensor(model, "x", ESP_ROLE_INPUT, ESP_DTYPE_F32, 2, x_dims, NULL);
    const esp_tensor_id_t w =
        tensor(model, "w", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 2, w_dims, NULL);
    const esp_tensor_id_t b =
        tensor(model, "b", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 1, b_dims, NULL);
    const esp_tensor_id_t v =
        tensor(model, "v", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 2, v_dims, NULL);
    esp_tensor_id_t y;
    esp_diag_t *diag = &model->diag;
    test_assert_ok(esp_i_make_einsum(model->builder, "nc,ck->nk", x, w, "h", &y, diag), diag);
    test_assert_ok(esp_i_make_binary(model->builder, ESP_ELT_ADD, y, b, "h", &y, diag), diag);
    test_assert_ok(esp_i_make_unary(model->builder, ESP_ELT_TANH, y, "h", &y, diag), diag);
    test_assert_ok(esp_i_make_einsum(model->builder, "nc,ck->nk", y, v, "y", &y, diag), diag);
    test_assert_ok(esp_builder_output(model->builder, y), diag);
    test_assert_ok(esp_builder_batch(model->builder, x, (esp_view_t){1, 12, 5}, diag), diag);
    model_freeze(model);
}

static void train(const model_t *model, esp_optimizer_t optimizer, double rate)
{
    esp_training_opts_t opts = esp_training_opts_default();
    esp_diag_t diag = {0};
    esp_graph_t *step;
    opts.loss = ESP_LOSS_XENT;
    opts.optimizer = optimizer;
    opts.rate = rate;
    test_assert_ok(esp_training_graph(model->graph, &opts, NULL, &step, &diag), &diag);
    interp_t *interp = interp_new(step, 1);
    for (int32_t i = 0; i < step->n_inputs; i++) { /* the same samples in every step */
        const esp_tensor_id_t input = step->input[i];
        double *values = calloc((size_t)step->tensor_elements[input], sizeof *values);
        assert_non_null(values);
        interp_default(step, input, 1, 0, values);
        interp_set(interp, input, values);
        free(values);
    }
    interp_step(interp);
    const double before = interp_get(interp, step->loss)[0];
    for (int32_t i = 0; i < 200; i++)
        interp_step(interp);
    const double after = interp_get(interp, step->loss)[0];
    if (!(before > 0.9 && before < 1.4 && after < 0.5 * before))
        fail_msg("optimizer %d: loss %g became %g", (int)optimizer, before, after);
    interp_free(interp);
    esp_graph_destroy(step);
}

static void test_training_trains(void **state)
{
    (void)state;
    model_t model;
    model_init(&model);
    build_network(&model);
    train(&model, ESP_OPTIMIZER_SGD, 0.5);
    train(&model, ESP_OPTIMIZER_MOMENTUM, 0.1);
    train(&model, ESP_OPTIMIZER_ADAM, 0.02);
    train(&model, ESP_OPTIMIZER_ADAMW, 0.02);
    model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literals),       cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_integer_bounds), cmocka_unit_test(test_versions_move),
        cmocka_unit_test(test_buffers),        cmocka_unit_test(test_training_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
