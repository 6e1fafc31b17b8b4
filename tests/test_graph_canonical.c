/* Canonicalise: every pattern is recognised in its variants and computes the same values. */
#include "graph_build.h"
#include "interp.h"
#include "support.h"

#include <math.h>
#include <string.h>

static gb_t gb;
static esp_tensor_id_t x; /* [4, 6, 8], batch first */

static void begin(void)
{
    gb_init(&gb);
    x = gb_input(&gb, "x", "4 6 8", 0);
}

/* Both graphs from the same numbers: outputs are equal. */
static void check_values(const esp_graph_t *before, const esp_graph_t *after)
{
    interp_t *first = interp_new(before, 11), *second = interp_new(after, 11);
    for (esp_tensor_id_t i = 0; i < after->n_tensors; i++)
        if (after->tensor_producer[i] == ESP_NONE)
            interp_set(second, i, interp_get(first, gb_find(before, after->tensor_name[i])));
    interp_run(first);
    /* inputs are drawn by the run */
    for (int32_t i = 0; i < after->n_inputs; i++)
        interp_set(second, after->input[i],
                   interp_get(first, gb_find(before, after->tensor_name[after->input[i]])));
    interp_run(second);
    assert_int_equal(before->n_outputs, after->n_outputs);
    for (int32_t i = 0; i < before->n_outputs; i++) {
        esp_tensor_id_t y = before->output[i], z = after->output[i];
        assert_string_equal(before->tensor_name[y], after->tensor_name[z]);
        assert_int_equal(before->tensor_elements[y], after->tensor_elements[z]);
        for (int64_t j = 0; j < before->tensor_elements[y]; j++) {
            double a = interp_get(first, y)[j], b = interp_get(second, z)[j];
            if (!(fabs(a - b) <= 2e-5 * (1 + fabs(a)))) /* literals of few digits */
                fail_msg("%s[%d]: %g before, %g after", before->tensor_name[y], (int)j, a, b);
        }
    }
    interp_free(first);
    interp_free(second);
}

static esp_graph_t *canonical(const esp_graph_t *graph)
{
    esp_graph_t *after = NULL, *again = NULL;
    esp_diag_t diag = {0};
    char hash[2][65];
    test_assert_ok(esp_graph_canonicalise(graph, NULL, &after, &diag), &diag);
    test_assert_ok(esp_graph_check(after, &diag), &diag);
    test_assert_ok(esp_graph_canonicalise(after, NULL, &again, &diag), &diag);
    assert_int_equal(esp_graph_hash(after, hash[0]), ESP_OK);
    assert_int_equal(esp_graph_hash(again, hash[1]), ESP_OK);
    assert_string_equal(hash[0], hash[1]);
    esp_graph_destroy(again);
    return after;
}

/* Makes y the output; the canonical graph has that many ops, the last of that kind. Release it. */
static esp_graph_t *expect(esp_tensor_id_t y, int32_t n_ops, esp_op_kind_t kind)
{
    gb_output(&gb, y);
    esp_graph_t *before = gb_freeze(&gb), *after = canonical(before);
    check_values(before, after);
    if (after->n_ops != n_ops)
        fail_msg("%d ops where %d are expected", (int)after->n_ops, (int)n_ops);
    assert_int_equal(after->op_kind[n_ops - 1], kind);
    esp_graph_destroy(before);
    return after;
}

static void expect_elt(esp_tensor_id_t y, int32_t n_ops, esp_eltwise_t code)
{
    esp_graph_t *after = expect(y, n_ops, ESP_KIND_ELTWISE);
    assert_int_equal(after->op_attr[n_ops - 1].eltwise.code, code);
    esp_graph_destroy(after);
}

/* ---- small things ------------------------------------------------------------------------- */

static void test_identities(void **state)
{
    (void)state;
    begin();
    esp_tensor_id_t y = gb_affine(&gb, x, 1, 0);
    y = gb_transpose(&gb, y, "0 1 2");
    y = gb_reshape(&gb, y, "4 6 8");
    y = gb_expand(&gb, y, "4 6 8");
    esp_attr_t attr = {.cast = {.dtype = ESP_DTYPE_F32}};
    y = gb_op(&gb, ESP_KIND_CAST, &attr, 1, &y);
    attr = (esp_attr_t){.dropout = {.p = 0, .stream = 1}};
    y = gb_op(&gb, ESP_KIND_DROPOUT, &attr, 1, &y);
    attr = (esp_attr_t){.slice = {.step = {1, 1, 1}, .count = {4, 6, 8}}};
    y = gb_op(&gb, ESP_KIND_SLICE, &attr, 1, &y);
    expect_elt(gb_unary(&gb, ESP_ELT_RELU, y), 1, ESP_ELT_RELU);
    /* an output stays, with its name */
    begin();
    expect_elt(gb_affine(&gb, x, 1, 0), 1, ESP_ELT_AFFINE);
}

static void test_dead_ops(void **state)
{
    (void)state;
    begin();
    (void)gb_unary(&gb, ESP_ELT_EXP, gb_unary(&gb, ESP_ELT_EXP, x));
    (void)gb_literal(&gb, 3);
    (void)gb_parameter(&gb, "unused", "3");
    gb_output(&gb, gb_unary(&gb, ESP_ELT_RELU, x));
    esp_graph_t *before = gb_freeze(&gb), *after = canonical(before);
    assert_int_equal(after->n_ops, 1);
    assert_int_equal(after->n_tensors, 3); /* inputs and parameters stay */
    esp_graph_destroy(before);
    esp_graph_destroy(after);
    /* nothing is an output: nothing is dead */
    begin();
    (void)gb_unary(&gb, ESP_ELT_EXP, x);
    before = gb_freeze(&gb);
    after = canonical(before);
    assert_int_equal(after->n_ops, 1);
    esp_graph_destroy(before);
    esp_graph_destroy(after);
}

static void test_views_of_views(void **state)
{
    (void)state;
    begin();
    esp_tensor_id_t y = gb_reshape(&gb, gb_reshape(&gb, gb_reshape(&gb, x, "24 8"), "192"), "8 24");
    esp_graph_destroy(expect(y, 1, ESP_KIND_RESHAPE));
    begin();
    y = gb_transpose(&gb, gb_transpose(&gb, x, "1 2 0"), "1 0 2"); /* axes 2 1 0 */
    esp_graph_t *after = expect(y, 1, ESP_KIND_TRANSPOSE);
    assert_int_equal(after->op_attr[0].transpose.perm[0], 2);
    assert_int_equal(after->op_attr[0].transpose.perm[1], 1);
    esp_graph_destroy(after);
    begin();
    y = gb_transpose(&gb, gb_transpose(&gb, x, "1 2 0"), "2 0 1");
    expect_elt(gb_unary(&gb, ESP_ELT_RELU, y), 1, ESP_ELT_RELU);
}

static void test_numbers(void **state)
{
    (void)state;
    begin(); /* ((x * 3 - 1) / 4 + 2), then 5 - that: -0.75 x + 3.25 */
    esp_tensor_id_t y = gb_binary(&gb, ESP_ELT_MUL, gb_literal(&gb, 3), x);
    y = gb_binary(&gb, ESP_ELT_SUB, y, gb_literal(&gb, 1));
    y = gb_binary(&gb, ESP_ELT_DIV, y, gb_literal(&gb, 4));
    y = gb_binary(&gb, ESP_ELT_ADD, y, gb_expand(&gb, gb_literal(&gb, 2), "4 6 8"));
    y = gb_binary(&gb, ESP_ELT_SUB, gb_literal(&gb, 5), y);
    gb_output(&gb, y);
    esp_graph_t *before = gb_freeze(&gb), *after = canonical(before);
    check_values(before, after);
    assert_int_equal(after->n_ops, 1);
    assert_true(after->op_attr[0].eltwise.alpha == -0.75);
    assert_true(after->op_attr[0].eltwise.beta == 3.25);
    assert_int_equal(after->n_tensors, 2);
    esp_graph_destroy(before);
    esp_graph_destroy(after);
    begin();
    y = gb_unary(&gb, ESP_ELT_EXP, x);
    expect_elt(gb_binary(&gb, ESP_ELT_POW, y, gb_literal(&gb, 1.5)), 2, ESP_ELT_POWC);
    begin(); /* what broadcasts the other operand, or divides by it, stays */
    y = gb_binary(&gb, ESP_ELT_DIV, gb_literal(&gb, 2), gb_unary(&gb, ESP_ELT_EXP, x));
    expect_elt(y, 2, ESP_ELT_DIV);
}

/* ---- contractions ------------------------------------------------------------------------- */

static void test_transposes_go_into_labels(void **state)
{
    (void)state;
    begin(); /* q k^T with k transposed before, the result after */
    esp_tensor_id_t w = gb_parameter(&gb, "w", "5 8");
    esp_tensor_id_t k = gb_transpose(&gb, gb_einsum(&gb, "bsh,kh->bsk", x, w), "0 2 1");
    esp_tensor_id_t s = gb_einsum(&gb, "bst,btk->bsk", gb_transpose(&gb, k, "0 2 1"), k);
    s = gb_transpose(&gb, s, "2 0 1");
    esp_graph_t *after = expect(gb_transpose(&gb, s, "0 2 1"), 2, ESP_KIND_CONTRACT);
    assert_int_equal(gb_count(after, ESP_KIND_TRANSPOSE), 0);
    gb_assert_batch(after, after->output[0], 36, 4, 1);
    esp_graph_destroy(after);
    begin(); /* another reader of the product: it stays as it was */
    w = gb_parameter(&gb, "w", "5 8");
    s = gb_einsum(&gb, "bsh,kh->bsk", x, w);
    gb_output(&gb, s);
    esp_graph_destroy(expect(gb_transpose(&gb, s, "2 0 1"), 2, ESP_KIND_TRANSPOSE));
}

static esp_tensor_id_t slice_first(esp_tensor_id_t of, int64_t at)
{
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    const esp_i_shape_t *shape = &gb.builder->tensors.data[of].shape;
    for (int32_t i = 0; i < shape->rank; i++) {
        attr.slice.step[i] = 1;
        attr.slice.count[i] = i == 0 ? 1 : shape->dims[i];
    }
    attr.slice.start[0] = at;
    return gb_op(&gb, ESP_KIND_SLICE, &attr, 1, &of);
}

static void test_transposes_that_move_nothing(void **state)
{
    (void)state;
    begin();
    esp_tensor_id_t y = gb_transpose(&gb, gb_reshape(&gb, x, "1 4 6 1 8"), "1 3 2 0 4");
    esp_graph_t *after = expect(y, 1, ESP_KIND_RESHAPE);
    esp_graph_destroy(after);
    begin(); /* [b, s, 3 heads d] -> [3, b, s, ..] -> one of three */
    y = gb_transpose(&gb, gb_reshape(&gb, x, "4 6 2 4"), "2 0 1 3");
    after = expect(gb_unary(&gb, ESP_ELT_RELU, slice_first(y, 1)), 4, ESP_KIND_ELTWISE);
    assert_int_equal(gb_count(after, ESP_KIND_TRANSPOSE), 0);
    esp_graph_destroy(after);
    begin(); /* the same with axes of extent 1 on the way */
    y = gb_transpose(&gb, gb_reshape(&gb, x, "1 4 6 2 4"), "3 1 2 0 4");
    y = slice_first(gb_reshape(&gb, y, "2 4 6 4"), 1);
    after = expect(gb_unary(&gb, ESP_ELT_RELU, y), 4, ESP_KIND_ELTWISE);
    assert_int_equal(gb_count(after, ESP_KIND_TRANSPOSE), 0);
    esp_graph_destroy(after);
    begin(); /* [b, ..] in front of a slice that leaves axes in another order */
    y = slice_first(gb_transpose(&gb, x, "1 2 0"), 2);
    after = expect(y, 2, ESP_KIND_SLICE);
    esp_graph_destroy(after);
}

static void test_heads(void **state)
{
    (void)state;
    begin(); /* [b, s, h d] -> [s, b, h d] -> [s, b, h, d] -> products over d */
    esp_tensor_id_t w = gb_parameter(&gb, "w", "3 2");
    esp_tensor_id_t y = gb_reshape(&gb, gb_transpose(&gb, x, "1 0 2"), "6 1 4 4 2");
    y = gb_einsum(&gb, "sobhd,kd->bohsk", y, w);
    esp_graph_t *after = expect(y, 2, ESP_KIND_CONTRACT);
    gb_assert_batch(after, after->output[0], 1, 4, 72);
    esp_graph_destroy(after);
    begin(); /* a factor in between */
    w = gb_parameter(&gb, "w", "3 2");
    y = gb_reshape(&gb, gb_transpose(&gb, x, "1 0 2"), "6 4 4 2");
    y = gb_einsum(&gb, "sbhd,kd->bhsk", gb_affine(&gb, y, 0.5, 0), w);
    esp_graph_destroy(expect(y, 3, ESP_KIND_CONTRACT));
    begin(); /* merging axes that were apart needs the copy */
    w = gb_parameter(&gb, "w", "24 2");
    y = gb_einsum(&gb, "kr,ro->ko", gb_reshape(&gb, gb_transpose(&gb, x, "2 1 0"), "8 24"), w);
    esp_graph_destroy(expect(y, 3, ESP_KIND_CONTRACT));
}

/* ---- activations -------------------------------------------------------------------------- */

static void test_silu(void **state)
{
    (void)state;
    begin();
    esp_tensor_id_t s = gb_unary(&gb, ESP_ELT_SIGMOID, x);
    expect_elt(gb_binary(&gb, ESP_ELT_MUL, s, x), 1, ESP_ELT_SILU);
    begin(); /* the sigmoid is wanted too */
    s = gb_unary(&gb, ESP_ELT_SIGMOID, x);
    gb_output(&gb, s);
    expect_elt(gb_binary(&gb, ESP_ELT_MUL, x, s), 2, ESP_ELT_MUL);
}

static esp_tensor_id_t scaled(esp_tensor_id_t of, double by)
{
    return gb_binary(&gb, ESP_ELT_MUL, of, gb_literal(&gb, by));
}

static void test_gelu(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        begin();
        esp_tensor_id_t h = gb_unary(&gb, ESP_ELT_TANH, x);
        esp_tensor_id_t u = form == 0 ? gb_binary(&gb, ESP_ELT_DIV, h, gb_literal(&gb, sqrt(2.0)))
                                      : scaled(h, 0.70710678);
        esp_tensor_id_t gate =
            gb_binary(&gb, ESP_ELT_ADD, gb_unary(&gb, ESP_ELT_ERF, u), gb_literal(&gb, 1));
        esp_tensor_id_t y = ESP_NONE;
        if (form <= 1) /* (x gate) / 2 */
            y = scaled(gb_binary(&gb, ESP_ELT_MUL, h, gate), 0.5);
        else if (form == 2) /* (x / 2) gate */
            y = gb_binary(&gb, ESP_ELT_MUL, scaled(h, 0.5), gate);
        else /* x (gate / 2) */
            y = gb_binary(&gb, ESP_ELT_MUL, scaled(gate, 0.5), h);
        expect_elt(y, 2, ESP_ELT_GELU);
    }
    begin(); /* another factor is another function */
    esp_tensor_id_t gate =
        gb_affine(&gb, gb_unary(&gb, ESP_ELT_ERF, gb_affine(&gb, x, 0.70710678, 0)), 1, 1);
    expect_elt(gb_binary(&gb, ESP_ELT_MUL, x, gate), 4, ESP_ELT_MUL);
}

static void test_gelu_tanh(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        begin();
        esp_tensor_id_t h = gb_unary(&gb, ESP_ELT_TANH, x), cubic = ESP_NONE;
        if (form == 0)
            cubic = gb_binary(&gb, ESP_ELT_ADD, h, scaled(gb_powc(&gb, h, 3), 0.044715));
        else if (form == 1)
            cubic = gb_binary(
                &gb, ESP_ELT_ADD,
                scaled(gb_binary(&gb, ESP_ELT_MUL, h, gb_binary(&gb, ESP_ELT_MUL, h, h)), 0.044715),
                h);
        else
            cubic = gb_binary(&gb, ESP_ELT_MUL, h,
                              gb_binary(&gb, ESP_ELT_ADD, gb_literal(&gb, 1),
                                        scaled(gb_binary(&gb, ESP_ELT_MUL, h, h), 0.044715)));
        esp_tensor_id_t t = gb_unary(&gb, ESP_ELT_TANH, scaled(cubic, 0.7978845608));
        esp_tensor_id_t gate = gb_binary(&gb, ESP_ELT_ADD, gb_literal(&gb, 1), t);
        expect_elt(gb_binary(&gb, ESP_ELT_MUL, scaled(h, 0.5), gate), 2, ESP_ELT_GELU_TANH);
    }
}

/* ---- softmax ------------------------------------------------------------------------------ */

static void test_softmax(void **state)
{
    (void)state;
    begin();
    esp_tensor_id_t y = gb_unary(&gb, ESP_ELT_LOG, gb_softmax(&gb, x, 1, false));
    esp_graph_t *after = expect(y, 1, ESP_KIND_SOFTMAX);
    assert_int_equal(after->op_attr[0].axis.log, 1);
    assert_int_equal(after->op_attr[0].axis.axis, 1);
    esp_graph_destroy(after);
    begin(); /* negative log likelihood of a log-softmax */
    esp_tensor_id_t in[2] = {gb_softmax(&gb, x, 2, true),
                             gb_tensor(&gb, "labels", ESP_ROLE_INPUT, ESP_DTYPE_I64, "4 6")};
    esp_attr_t attr = {.xent = {.ignore = 2}};
    esp_graph_destroy(expect(gb_op(&gb, ESP_KIND_XENT, &attr, 2, in), 1, ESP_KIND_XENT));
}

/* ---- normalisation ------------------------------------------------------------------------ */

static esp_tensor_id_t mean(esp_tensor_id_t of, const char *axes, double n)
{
    return gb_affine(&gb, gb_sum(&gb, of, axes, true), 1 / n, 0);
}

static void test_layernorm(void **state)
{
    (void)state;
    for (int form = 0; form < 6; form++) {
        begin();
        const bool two = form == 5; /* over two axes */
        const char *axes = two ? "1 2" : "2", *row = two ? "6 8" : "8";
        const double n = two ? 48 : 8;
        esp_tensor_id_t d = gb_binary(&gb, ESP_ELT_SUB, x, mean(x, axes, n));
        esp_tensor_id_t square =
            form % 2 == 0 ? gb_powc(&gb, d, 2) : gb_binary(&gb, ESP_ELT_MUL, d, d);
        esp_tensor_id_t v =
            gb_binary(&gb, ESP_ELT_ADD, mean(square, axes, n), gb_literal(&gb, 1e-3));
        esp_tensor_id_t y;
        if (form == 0)
            y = gb_binary(&gb, ESP_ELT_DIV, d, gb_unary(&gb, ESP_ELT_SQRT, v));
        else if (form == 1)
            y = gb_binary(&gb, ESP_ELT_DIV, d, gb_powc(&gb, v, 0.5));
        else if (form == 2)
            y = gb_binary(&gb, ESP_ELT_MUL, d, gb_unary(&gb, ESP_ELT_RSQRT, v));
        else if (form == 3)
            y = gb_binary(&gb, ESP_ELT_MUL,
                          gb_unary(&gb, ESP_ELT_RECIPROCAL, gb_unary(&gb, ESP_ELT_SQRT, v)), d);
        else
            y = gb_binary(&gb, ESP_ELT_MUL, gb_powc(&gb, v, -0.5), d);
        y = gb_binary(&gb, ESP_ELT_MUL, gb_parameter(&gb, "gamma", row), y);
        if (form != 4)
            y = gb_binary(&gb, ESP_ELT_ADD, y, gb_parameter(&gb, "beta", row));
        esp_graph_t *after = expect(y, 1, ESP_KIND_LAYERNORM);
        assert_int_equal(after->op_attr[0].norm.axis, two ? 1 : 2);
        assert_int_equal(after->op_attr[0].norm.rms, 0);
        assert_int_equal(after->input_offset[1], form == 4 ? 2 : 3);
        gb_assert_batch(after, after->output[0], 1, 4, 48);
        esp_graph_destroy(after);
    }
}

static void test_rms_norm(void **state)
{
    (void)state;
    begin();
    esp_tensor_id_t v = gb_affine(&gb, mean(gb_powc(&gb, x, 2), "2", 8), 1, 1e-3);
    esp_tensor_id_t y = gb_binary(&gb, ESP_ELT_MUL, x, gb_unary(&gb, ESP_ELT_RSQRT, v));
    y = gb_binary(&gb, ESP_ELT_MUL, gb_parameter(&gb, "gamma", "8"), y);
    esp_graph_t *after = expect(y, 1, ESP_KIND_LAYERNORM);
    assert_int_equal(after->op_attr[0].norm.rms, 1);
    esp_graph_destroy(after);
}

static void test_what_is_no_layernorm(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        begin();
        /* over a middle axis; with a divisor that is no mean; with the deviation read elsewhere */
        const char *axes = form == 0 ? "1" : "2";
        const double n = form == 0 ? 6 : form == 1 ? 7 : 8;
        esp_tensor_id_t d = gb_binary(&gb, ESP_ELT_SUB, x, mean(x, axes, n));
        esp_tensor_id_t v = gb_affine(&gb, mean(gb_powc(&gb, d, 2), axes, n), 1, 1e-3);
        esp_tensor_id_t s = gb_unary(&gb, ESP_ELT_SQRT, v);
        esp_tensor_id_t y = gb_binary(&gb, ESP_ELT_DIV, d, s);
        y = gb_binary(&gb, ESP_ELT_MUL, y, gb_parameter(&gb, "gamma", form == 0 ? "6 8" : "8"));
        if (form == 2)
            gb_output(&gb, s);
        gb_output(&gb, y);
        esp_graph_t *before = gb_freeze(&gb), *after = canonical(before);
        check_values(before, after);
        assert_int_equal(gb_count(after, ESP_KIND_LAYERNORM), 0);
        esp_graph_destroy(before);
        esp_graph_destroy(after);
    }
}

/* ---- whole steps -------------------------------------------------------------------------- */

static void test_training_graph(void **state)
{
    (void)state;
    begin();
    esp_tensor_id_t w = gb_parameter(&gb, "w", "8 8"), v = gb_parameter(&gb, "v", "5 8");
    esp_tensor_id_t h = gb_einsum(&gb, "bsh,hk->bsk", x, w);
    (void)gb_unary(&gb, ESP_ELT_EXP, h); /* reaches nothing */
    h = gb_affine(&gb, gb_unary(&gb, ESP_ELT_GELU, h), 1, 0);
    gb_output(&gb, gb_einsum(&gb, "bsh,hv->bsv", h, gb_transpose(&gb, v, "1 0")));
    esp_graph_t *model = gb_freeze(&gb), *before = NULL;
    esp_diag_t diag = {0};
    esp_training_opts_t opts = esp_training_opts_default();
    opts.optimizer = ESP_OPTIMIZER_ADAM;
    opts.clip_norm = 1;
    test_assert_ok(esp_training_graph(model, &opts, NULL, &before, &diag), &diag);
    esp_graph_t *after = canonical(before);
    check_values(before, after);
    assert_true(after->n_ops < before->n_ops);
    assert_int_equal(after->n_parameters, 2);
    for (int32_t i = 0; i < 2; i++) {
        assert_string_equal(after->tensor_name[after->gradient[i]],
                            before->tensor_name[before->gradient[i]]);
        assert_int_not_equal(after->update[i], ESP_NONE);
    }
    assert_int_equal(gb_count(after, ESP_KIND_TRANSPOSE), 0);
    esp_graph_destroy(after);
    esp_graph_destroy(before);
    esp_graph_destroy(model);
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    esp_status_t status = esp_graph_canonicalise(context, alloc, &graph, &diag);
    assert_int_equal(diag.status, status);
    if (status == ESP_OK)
        esp_graph_destroy(graph);
    return status;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    begin();
    gb_output(&gb,
              scaled(gb_affine(&gb, gb_reshape(&gb, gb_reshape(&gb, x, "24 8"), "192"), 1, 0), 2));
    esp_graph_t *graph = gb_freeze(&gb);
    test_sweep_allocations(attempt, graph, 1);
    esp_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identities),
        cmocka_unit_test(test_dead_ops),
        cmocka_unit_test(test_views_of_views),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_transposes_go_into_labels),
        cmocka_unit_test(test_transposes_that_move_nothing),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_silu),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_gelu_tanh),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_what_is_no_layernorm),
        cmocka_unit_test(test_training_graph),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
