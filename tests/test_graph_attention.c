/*
 * Attention is recognised as exporters write it, and only where it is that: the loss and all
 * gradients are the same before and after.
 */
#include "graph_build.h"
#include "interp.h"
#include "support.h"

#include <math.h>
#include <string.h>

/* Two samples, two heads, 4 queries and keys, depth 3. */
static gb_t gb;
static esp_tensor_id_t x, q, k, v; /* q, k, v: [2, 2, 4, 3] */

/* A projection of x, as heads. */
static esp_tensor_id_t heads(const char *weight)
{
    esp_tensor_id_t w = gb_parameter(&gb, weight, "6 6");
    esp_tensor_id_t y = gb_reshape(&gb, gb_einsum(&gb, "bsh,hk->bsk", x, w), "2 4 2 3");
    return gb_transpose(&gb, y, "0 2 1 3");
}

static void begin(void)
{
    gb_init(&gb);
    x = gb_input(&gb, "x", "2 4 6", 0);
    q = heads("wq");
    k = heads("wk");
    v = heads("wv");
}

static esp_tensor_id_t dropout(esp_tensor_id_t of)
{
    const esp_attr_t attr = {.dropout = {.p = 0.3, .stream = 17}};
    return gb_op(&gb, ESP_KIND_DROPOUT, &attr, 1, &of);
}

static esp_tensor_id_t where(esp_tensor_id_t condition, esp_tensor_id_t yes, esp_tensor_id_t no)
{
    const esp_attr_t attr = {.eltwise = {.code = ESP_ELT_WHERE}};
    const esp_tensor_id_t inputs[3] = {condition, yes, no};
    return gb_op(&gb, ESP_KIND_ELTWISE, &attr, 3, inputs);
}

static esp_tensor_id_t product(esp_tensor_id_t a, esp_tensor_id_t b)
{
    return gb_einsum(&gb, "bhid,bhjd->bhij", a, b);
}

static esp_tensor_id_t apply(esp_tensor_id_t scores)
{
    return gb_einsum(&gb, "bhij,bhje->bhie", gb_softmax(&gb, scores, 3, false), v);
}

/* ---- comparing ----------------------------------------------------------------------------- */

static esp_graph_t *train(const esp_graph_t *model)
{
    esp_diag_t diag = {0};
    esp_graph_t *graph = NULL;
    esp_training_opts_t opts = esp_training_opts_default();
    opts.loss = ESP_LOSS_OUTPUT;
    test_assert_ok(esp_training_graph(model, &opts, NULL, &graph, &diag), &diag);
    test_assert_ok(esp_graph_check(graph, &diag), &diag);
    return graph;
}

static void check_tensor(const interp_t *first, const esp_graph_t *before, esp_tensor_id_t a,
                         const interp_t *second, const esp_graph_t *after, esp_tensor_id_t b)
{
    double largest = 1e-3;
    assert_int_equal(before->tensor_elements[a], after->tensor_elements[b]);
    for (int64_t i = 0; i < before->tensor_elements[a]; i++)
        largest = fmax(largest, fabs(interp_get(first, a)[i]));
    for (int64_t i = 0; i < before->tensor_elements[a]; i++) {
        const double old = interp_get(first, a)[i], new = interp_get(second, b)[i];
        if (!(fabs(old - new) <= 1e-10 * largest))
            fail_msg("%s[%d]: %.15g before, %.15g after", before->tensor_name[a], (int)i, old, new);
    }
}

/* One step of both from the same numbers: the loss and the gradient of every parameter. */
static void check_steps(const esp_graph_t *before, const esp_graph_t *after)
{
    interp_t *first = interp_new(before, 11), *second = interp_new(after, 11);
    interp_run(first);
    for (esp_tensor_id_t i = 0; i < after->n_tensors; i++)
        if (after->tensor_producer[i] == ESP_NONE)
            interp_set(second, i, interp_get(first, gb_find(before, after->tensor_name[i])));
    interp_run(second);
    check_tensor(first, before, before->loss, second, after, after->loss);
    assert_int_equal(before->n_parameters, after->n_parameters);
    for (int32_t i = 0; i < before->n_parameters; i++)
        check_tensor(first, before, before->gradient[i], second, after, after->gradient[i]);
    interp_free(first);
    interp_free(second);
}

/* The loss is the sum of squares of y. Returns the canonical model. */
static esp_graph_t *finish(esp_tensor_id_t y, int32_t n_attention)
{
    esp_diag_t diag = {0};
    esp_graph_t *after = NULL;
    const esp_attr_t attr = {.reduce = {.code = ESP_REDUCE_SUMSQ, .axes = 15}};
    esp_tensor_id_t rows = gb_reshape(&gb, y, "2 2 4 3");
    gb_output(&gb, gb_op(&gb, ESP_KIND_REDUCE, &attr, 1, &rows));
    esp_graph_t *before = gb_freeze(&gb);
    test_assert_ok(esp_graph_canonicalise(before, NULL, &after, &diag), &diag);
    test_assert_ok(esp_graph_check(after, &diag), &diag);
    assert_int_equal(gb_count(after, ESP_KIND_ATTENTION), n_attention);
    esp_graph_t *step_before = train(before), *step_after = train(after);
    assert_int_equal(gb_count(step_after, ESP_KIND_ATTENTION_GRAD), n_attention);
    check_steps(step_before, step_after);
    esp_graph_destroy(step_after);
    esp_graph_destroy(step_before);
    esp_graph_destroy(before);
    return after;
}

/* Nothing but the three projections, their reshapes, attention and the loss is left. */
static void finish_whole(esp_tensor_id_t y, esp_attr_t *attr_out)
{
    esp_graph_t *after = finish(y, 1);
    assert_int_equal(gb_count(after, ESP_KIND_CONTRACT), 3);
    assert_int_equal(gb_count(after, ESP_KIND_ELTWISE), 0);
    assert_int_equal(gb_count(after, ESP_KIND_TRANSPOSE), 0);
    assert_int_equal(gb_count(after, ESP_KIND_DROPOUT), 0);
    for (esp_op_id_t op = 0; op < after->n_ops; op++)
        if (after->op_kind[op] == ESP_KIND_ATTENTION)
            *attr_out = after->op_attr[op];
    esp_graph_destroy(after);
}

static void assert_scale(const esp_attr_t *attr, double scale)
{
    assert_true(fabs(attr->attention.scale - scale) <= 1e-6);
}

/* ---- recognised ---------------------------------------------------------------------------- */

static void test_divided_scores(void **state)
{
    (void)state;
    esp_attr_t attr;
    begin();
    esp_tensor_id_t scores = product(q, k);
    scores = gb_binary(&gb, ESP_ELT_DIV, scores, gb_literal(&gb, 2));
    scores = gb_binary(&gb, ESP_ELT_ADD, scores,
                       gb_tensor(&gb, "mask", ESP_ROLE_INPUT, ESP_DTYPE_F32, "2 1 1 4"));
    esp_tensor_id_t weights = dropout(gb_softmax(&gb, scores, 3, false));
    finish_whole(gb_einsum(&gb, "bhij,bhje->bhie", weights, v), &attr);
    assert_scale(&attr, 0.5);
    assert_true(attr.attention.p == 0.3);
    assert_int_equal(attr.attention.stream, 17);
}

/* Factors on both operands, before and after the heads are split; v first; result transposed. */
static void test_scaled_operands(void **state)
{
    (void)state;
    esp_attr_t attr;
    begin();
    esp_tensor_id_t scores = product(gb_affine(&gb, q, 0.8, 0), gb_affine(&gb, k, 0.5, 0));
    esp_tensor_id_t weights = gb_softmax(&gb, scores, 3, false);
    esp_tensor_id_t y = gb_einsum(&gb, "bhje,bhij->bhie", v, weights);
    finish_whole(gb_transpose(&gb, y, "0 2 1 3"), &attr);
    assert_scale(&attr, 0.4);
}

static void test_heads_as_samples(void **state)
{
    (void)state;
    begin();
    q = gb_affine(&gb, gb_reshape(&gb, q, "4 4 3"), 0.7, 0);
    k = gb_reshape(&gb, k, "4 4 3");
    v = gb_reshape(&gb, v, "4 4 3");
    esp_tensor_id_t scores = gb_einsum(&gb, "aid,adj->aij", q, gb_transpose(&gb, k, "0 2 1"));
    esp_tensor_id_t weights = dropout(gb_softmax(&gb, scores, 2, false));
    esp_graph_t *after = finish(gb_einsum(&gb, "aij,aje->aie", weights, v), 1);
    esp_graph_destroy(after);
}

/* Keys after the query are hidden; by the lowest number or minus infinity, chosen either way. */
static void test_boolean_masks(void **state)
{
    (void)state;
    static const uint8_t before_query[16] = {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1};
    static const uint8_t after_query[16] = {0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0};
    static const int64_t dims[4] = {1, 1, 4, 4};
    for (int32_t hidden = 0; hidden < 2; hidden++) {
        esp_attr_t attr;
        esp_tensor_id_t mask;
        begin();
        test_assert_ok(esp_builder_tensor(gb.builder, "mask", ESP_ROLE_CONSTANT, ESP_DTYPE_BOOL, 4,
                                          dims, hidden ? after_query : before_query, &mask,
                                          &gb.diag),
                       &gb.diag);
        esp_tensor_id_t scores = gb_affine(&gb, product(q, k), 0.5, 0);
        esp_tensor_id_t fill = gb_literal(&gb, hidden ? -INFINITY : -3.4e38);
        scores = hidden ? where(mask, fill, scores) : where(mask, scores, fill);
        finish_whole(apply(scores), &attr);
        assert_int_equal(attr.attention.hidden, hidden);
        assert_true(hidden ? isinf(attr.attention.fill) : attr.attention.fill < -3e38);
    }
}

/* A row that hides all its keys by a finite number attends to all of them alike. */
static void test_all_hidden(void **state)
{
    (void)state;
    static const uint8_t none[4] = {0};
    static const int64_t keys = 4;
    esp_attr_t attr;
    esp_tensor_id_t mask;
    begin();
    test_assert_ok(esp_builder_tensor(gb.builder, "mask", ESP_ROLE_CONSTANT, ESP_DTYPE_BOOL, 1,
                                      &keys, none, &mask, &gb.diag),
                   &gb.diag);
    finish_whole(apply(where(mask, product(q, k), gb_literal(&gb, -3.4e38))), &attr);
}

/* A bias that is learned: a table of one row per head, for all samples. */
static void test_learned_bias(void **state)
{
    (void)state;
    esp_attr_t attr;
    begin();
    esp_tensor_id_t bias = gb_parameter(&gb, "bias", "2 4 4");
    finish_whole(apply(gb_binary(&gb, ESP_ELT_ADD, bias, product(q, k))), &attr);
    assert_scale(&attr, 1);
}

/* A factor that someone else reads stays; attention is recognised around it. */
static void test_shared_factor(void **state)
{
    (void)state;
    begin();
    esp_tensor_id_t scaled = gb_affine(&gb, q, 0.5, 0);
    esp_tensor_id_t y = apply(product(scaled, k));
    esp_graph_t *after = finish(gb_binary(&gb, ESP_ELT_ADD, y, scaled), 1);
    esp_graph_destroy(after);
}

/* ---- not recognised ------------------------------------------------------------------------ */

static void test_what_is_no_attention(void **state)
{
    (void)state;
    begin(); /* the softmax runs over queries */
    esp_tensor_id_t weights = gb_softmax(&gb, product(q, k), 2, false);
    esp_graph_destroy(finish(gb_einsum(&gb, "bhij,bhje->bhie", weights, v), 0));

    begin(); /* somebody else reads the weights */
    weights = gb_softmax(&gb, product(q, k), 3, false);
    esp_tensor_id_t y = gb_einsum(&gb, "bhij,bhje->bhie", weights, v);
    y = gb_binary(&gb, ESP_ELT_ADD, y, gb_sum(&gb, weights, "3", true));
    esp_graph_destroy(finish(y, 0));

    begin(); /* queries are summed over, not keys */
    weights = gb_softmax(&gb, product(q, k), 3, false);
    esp_graph_destroy(finish(gb_einsum(&gb, "bhij,bhie->bhje", weights, v), 0));

    begin(); /* the logarithm */
    weights = gb_softmax(&gb, product(q, k), 3, true);
    esp_graph_destroy(finish(gb_einsum(&gb, "bhij,bhje->bhie", weights, v), 0));

    begin(); /* a mask that multiplies */
    esp_tensor_id_t mask = gb_tensor(&gb, "mask", ESP_ROLE_INPUT, ESP_DTYPE_F32, "4 4");
    esp_graph_destroy(finish(apply(gb_binary(&gb, ESP_ELT_MUL, product(q, k), mask)), 0));

    begin(); /* scores go through a function */
    esp_tensor_id_t scores = gb_unary(&gb, ESP_ELT_TANH, product(q, k));
    esp_graph_destroy(finish(apply(scores), 0));

    begin(); /* all heads share the keys of one */
    k = gb_sum(&gb, k, "1", false);
    scores = gb_einsum(&gb, "bhid,bjd->bhij", q, k);
    esp_graph_destroy(finish(apply(scores), 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divided_scores),   cmocka_unit_test(test_scaled_operands),
        cmocka_unit_test(test_heads_as_samples), cmocka_unit_test(test_boolean_masks),
        cmocka_unit_test(test_all_hidden),       cmocka_unit_test(test_learned_bias),
        cmocka_unit_test(test_shared_factor),    cmocka_unit_test(test_what_is_no_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
