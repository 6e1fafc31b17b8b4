/* Building, freezing, factors and where the batch is. */
#include "graph_build.h"
#include "support.h"

#include <string.h>

/* ---- building and freezing ---------------------------------------------------------------- */

static void test_empty_graph(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_graph_t *graph = gb_freeze(&gb);
    assert_int_equal(graph->n_tensors, 0);
    assert_int_equal(graph->n_ops, 0);
    assert_int_equal(graph->loss, ESP_NONE);
    esp_graph_destroy(graph);
    esp_graph_destroy(NULL);
    esp_builder_destroy(NULL);
}

static void test_tables(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "4 3", 0), w = gb_parameter(&gb, "w", "3 5");
    esp_tensor_id_t y = gb_einsum(&gb, "bi,ij->bj", x, w);
    esp_tensor_id_t z = gb_binary(&gb, ESP_ELT_MUL, y, y);
    gb_output(&gb, z);
    esp_graph_t *graph = gb_freeze(&gb);
    assert_int_equal(graph->n_tensors, 4);
    assert_int_equal(graph->n_ops, 2);
    assert_int_equal(graph->tensor_elements[y], 20);
    assert_int_equal(graph->tensor_bytes[y], 80);
    assert_int_equal(graph->tensor_producer[y], 0);
    assert_int_equal(graph->consumer_offset[y + 1] - graph->consumer_offset[y], 2);
    assert_int_equal(graph->consumer_op[graph->consumer_offset[y]], 1);
    assert_int_equal(graph->n_inputs, 1);
    assert_int_equal(graph->input[0], x);
    assert_int_equal(graph->n_parameters, 1);
    assert_int_equal(graph->parameter[0], w);
    assert_int_equal(graph->gradient[0], ESP_NONE);
    assert_int_equal(graph->output[0], z);
    assert_int_equal(graph->op_family[0], ESP_FAMILY_CONTRACT);
    assert_true(graph->op_flops[0] == 2.0 * 4 * 3 * 5);
    assert_int_equal(graph->batch, 4);
    assert_int_equal(graph->op_origin[1], 1);
    esp_graph_destroy(graph);
}

static void test_names_are_unique(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    (void)gb_parameter(&gb, "w_1", "1");
    (void)gb_parameter(&gb, "w", "1");
    (void)gb_parameter(&gb, "w", "1");
    esp_tensor_id_t last = gb_parameter(&gb, "w", "1");
    assert_int_equal(esp_builder_rename(gb.builder, last, "w_1"), ESP_OK);
    esp_graph_t *graph = gb_freeze(&gb);
    assert_string_equal(graph->tensor_name[0], "w_1");
    assert_string_equal(graph->tensor_name[1], "w");
    assert_string_equal(graph->tensor_name[2], "w_2");
    assert_string_equal(graph->tensor_name[3], "w_1_1");
    esp_graph_destroy(graph);
}

static void test_aliases_have_a_root(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "4 6", 0);
    esp_tensor_id_t y = gb_reshape(&gb, gb_reshape(&gb, x, "2 12"), "24");
    esp_tensor_id_t z = gb_unary(&gb, ESP_ELT_RELU, y);
    esp_graph_t *graph = gb_freeze(&gb);
    assert_int_equal(graph->tensor_root[y], x);
    assert_int_equal(graph->tensor_root[z], z);
    esp_graph_destroy(graph);
}

static void test_builder_errors(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_builder_t *b = gb.builder;
    const int64_t dims[2] = {4, 3}, huge[2] = {(int64_t)1 << 30, (int64_t)1 << 30}, less[1] = {-1};
    esp_tensor_id_t x = gb_input(&gb, "x", "4 3", 0), w = gb_parameter(&gb, "w", "2 5"), out[4];
    esp_tensor_id_t in[2] = {x, w};
    esp_diag_t diag = {0};
    esp_attr_t attr = {.contract = {.a = "bi", .b = "ij", .y = "bj"}};
    test_assert_fails(esp_builder_op(b, ESP_KIND_CONTRACT, &attr, 2, in, "product", out, &diag),
                      &diag, ESP_ERR_INVALID, "op product (contract)");
    test_assert_fails(esp_builder_op(b, ESP_KIND_CONTRACT, &attr, 1, in, "product", out, &diag),
                      &diag, ESP_ERR_INVALID, "1 inputs");
    in[1] = 99;
    test_assert_fails(esp_builder_op(b, ESP_KIND_CONTRACT, &attr, 2, in, "product", out, &diag),
                      &diag, ESP_ERR_INVALID, "input 1 is not a tensor");
    attr.eltwise.code = ESP_ELT_COUNT;
    test_assert_fails(esp_builder_op(b, ESP_KIND_ELTWISE, &attr, 1, in, "strange", out, &diag),
                      &diag, ESP_ERR_INVALID, "code");
    test_assert_fails(esp_builder_op(b, ESP_KIND_COUNT, &attr, 1, in, "strange", out, &diag), &diag,
                      ESP_ERR_ARGUMENT, "kind");
    test_assert_fails(
        esp_builder_tensor(b, "t", ESP_ROLE_LOSS, ESP_DTYPE_F32, 2, dims, NULL, out, &diag), &diag,
        ESP_ERR_ARGUMENT, "role loss");
    test_assert_fails(
        esp_builder_tensor(b, "t", ESP_ROLE_INPUT, ESP_DTYPE_F32, 2, huge, NULL, out, &diag), &diag,
        ESP_ERR_LIMIT, "2^46");
    test_assert_fails(
        esp_builder_tensor(b, "t", ESP_ROLE_INPUT, ESP_DTYPE_F32, 9, huge, NULL, out, &diag), &diag,
        ESP_ERR_LIMIT, "rank 9");
    test_assert_fails(
        esp_builder_tensor(b, "t", ESP_ROLE_INPUT, ESP_DTYPE_F32, 1, less, NULL, out, &diag), &diag,
        ESP_ERR_INVALID, "extent -1");
    test_assert_fails(esp_builder_batch(b, x, (esp_view_t){1, 5, 3}, &diag), &diag, ESP_ERR_INVALID,
                      "tensor x");
    test_assert_fails(esp_builder_batch(b, x, (esp_view_t){4, 3, 1}, &diag), &diag, ESP_ERR_INVALID,
                      "batch of 3");
    test_assert_fails(esp_builder_next(b, x, w, &diag), &diag, ESP_ERR_INVALID, "tensor x");
    assert_int_equal(esp_builder_output(b, 99), ESP_ERR_ARGUMENT);
    assert_int_equal(esp_builder_role(b, x, ESP_ROLE_LOSS), ESP_ERR_ARGUMENT);
    gb_fini(&gb);
}

/* ---- views -------------------------------------------------------------------------------- */

static void check_local(const char *shape, esp_view_t view, int64_t share, const char *expected)
{
    int64_t dims[ESP_MAX_RANK], want[ESP_MAX_RANK], local[ESP_MAX_RANK];
    int32_t rank = gb_numbers(shape, dims), want_rank = gb_numbers(expected, want);
    assert_int_equal(esp_view_local_dims(rank, dims, view, share, local), want_rank);
    for (int32_t i = 0; i < want_rank; i++)
        assert_int_equal(local[i], want[i]);
}

static void test_local_dims(void **state)
{
    (void)state;
    check_local("8 16 4", (esp_view_t){1, 8, 64}, 3, "3 16 4");
    check_local("8 16 4", (esp_view_t){8, 16, 4}, 5, "8 5 4");
    check_local("8 16 4", (esp_view_t){128, 4, 1}, 1, "8 16 1");
    /* part of an axis: heads within [s, h * d] */
    check_local("8 32", (esp_view_t){8, 4, 8}, 1, "8 8");
    check_local("24 32", (esp_view_t){3, 8, 32}, 2, "6 32");
    /* axes that the view merges become one */
    check_local("8 16 4", (esp_view_t){1, 128, 4}, 10, "10 4");
    check_local("8 16 4", (esp_view_t){1, 2, 256}, 1, "4 16 4");
    check_local("4 6 5", (esp_view_t){2, 4, 15}, 3, "18 5");
    check_local("1 8 3", (esp_view_t){1, 8, 3}, 2, "1 2 3");
    check_local("", (esp_view_t){1, 1, 1}, 1, "");
    check_local("4 4", (esp_view_t){0, 0, 0}, 9, "4 4");
}

static void test_factor_of_a_part(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "6 4", 0);
    esp_tensor_id_t y = gb_transpose(&gb, x, "1 0");
    esp_graph_t *graph = gb_freeze(&gb);
    esp_op_id_t op = graph->tensor_producer[y];
    esp_factor_t factor;
    esp_view_t view;
    /* axis 0 of x as 2 * 3: the factor runs over the 2 */
    assert_int_equal(esp_graph_factor(graph, op, 0, (esp_view_t){1, 2, 12}, &factor), 1);
    assert_int_equal(factor.a, 1);
    assert_int_equal(factor.b, 2);
    assert_int_equal(factor.c, 3);
    assert_int_equal(esp_graph_bind(graph, op, factor, 1, &view), ESP_BIND_CARRY);
    assert_true(esp_i_view_equal(view, (esp_view_t){4, 2, 3}));
    /* the same part seen from the output */
    assert_int_equal(esp_graph_factor(graph, op, 1, (esp_view_t){4, 2, 3}, &factor), 1);
    assert_int_equal(factor.c, 3);
    /* across both axes there is none, nor one with another number of elements */
    assert_int_equal(esp_graph_factor(graph, op, 0, (esp_view_t){3, 4, 2}, &factor), 0);
    assert_int_equal(esp_graph_factor(graph, op, 0, (esp_view_t){1, 5, 4}, &factor), 0);
    assert_int_equal(esp_graph_factor(graph, op, 0, (esp_view_t){0, 0, 0}, &factor), 0);
    esp_graph_destroy(graph);
}

/* ---- batch -------------------------------------------------------------------------------- */

static void test_batch_through_reshapes(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    /* [b, s, h] -> [b * s, h] -> product -> [b, s, k] */
    esp_tensor_id_t x = gb_input(&gb, "x", "4 7 10", 0), w = gb_parameter(&gb, "w", "10 3");
    esp_tensor_id_t rows = gb_reshape(&gb, x, "28 10");
    esp_tensor_id_t y = gb_einsum(&gb, "ri,ij->rj", rows, w);
    esp_tensor_id_t z = gb_reshape(&gb, y, "4 7 3");
    esp_tensor_id_t sum = gb_sum(&gb, z, "0 1 2", false);
    esp_graph_t *graph = gb_freeze(&gb);
    gb_assert_batch(graph, rows, 1, 4, 70);
    gb_assert_batch(graph, y, 1, 4, 21);
    gb_assert_batch(graph, z, 1, 4, 21);
    gb_assert_batch(graph, sum, 0, 0, 0);
    assert_true(gb_is_split(graph, sum));
    esp_graph_destroy(graph);
}

static void test_batch_second(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    /* [s, b, h] -> [s * b, h], s == b: extents say nothing */
    esp_tensor_id_t x = gb_input(&gb, "x", "5 5 10", 1), w = gb_parameter(&gb, "w", "10 3");
    esp_tensor_id_t rows = gb_reshape(&gb, x, "25 10");
    esp_tensor_id_t y = gb_einsum(&gb, "ri,ij->rj", rows, w);
    esp_tensor_id_t first = gb_sum(&gb, gb_reshape(&gb, y, "5 5 3"), "0", false);
    esp_graph_t *graph = gb_freeze(&gb);
    gb_assert_batch(graph, rows, 5, 5, 10);
    gb_assert_batch(graph, y, 5, 5, 3);
    gb_assert_batch(graph, first, 1, 5, 3);
    esp_graph_destroy(graph);
}

static void test_batch_in_merged_heads(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    /* [s, b, h * d] -> [s, b * h, d] -> scores [b * h, s, s] -> back: the batch is part of b * h */
    esp_tensor_id_t x = gb_input(&gb, "x", "6 4 15", 1);
    esp_tensor_id_t heads = gb_reshape(&gb, x, "6 12 5");
    esp_tensor_id_t scores = gb_einsum(&gb, "snd,tnd->nst", heads, heads);
    esp_tensor_id_t p = gb_softmax(&gb, scores, 2, false);
    esp_tensor_id_t out = gb_einsum(&gb, "nst,tnd->snd", p, heads);
    esp_tensor_id_t y = gb_reshape(&gb, out, "6 4 15");
    esp_graph_t *graph = gb_freeze(&gb);
    gb_assert_batch(graph, heads, 6, 4, 15);
    gb_assert_batch(graph, scores, 1, 4, 3 * 36);
    gb_assert_batch(graph, p, 1, 4, 3 * 36);
    gb_assert_batch(graph, y, 6, 4, 15);
    esp_graph_destroy(graph);
}

static void test_batch_with_fused_qkv(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    /* x [b, s, h] times w [h, 3 * heads * d], then [b, s, 3, heads, d] -> slices -> attention */
    esp_tensor_id_t x = gb_input(&gb, "x", "2 6 8", 0), w = gb_parameter(&gb, "w", "8 24");
    esp_tensor_id_t qkv = gb_reshape(&gb, gb_einsum(&gb, "bsh,hk->bsk", x, w), "2 6 3 4 2");
    esp_tensor_id_t turned = gb_transpose(&gb, qkv, "2 0 3 1 4"); /* [3, b, heads, s, d] */
    esp_attr_t slice;
    memset(&slice, 0, sizeof slice);
    const int64_t counts[5] = {1, 2, 4, 6, 2};
    for (int32_t i = 0; i < 5; i++) {
        slice.slice.count[i] = counts[i];
        slice.slice.step[i] = 1;
    }
    esp_tensor_id_t q = gb_reshape(&gb, gb_op(&gb, ESP_KIND_SLICE, &slice, 1, &turned), "8 6 2");
    slice.slice.start[0] = 1;
    esp_tensor_id_t k = gb_reshape(&gb, gb_op(&gb, ESP_KIND_SLICE, &slice, 1, &turned), "8 6 2");
    esp_tensor_id_t scores = gb_einsum(&gb, "nsd,ntd->nst", q, k);
    esp_graph_t *graph = gb_freeze(&gb);
    gb_assert_batch(graph, turned, 3, 2, 48);
    gb_assert_batch(graph, q, 1, 2, 48);
    gb_assert_batch(graph, scores, 1, 2, 144);
    esp_graph_destroy(graph);
}

static void test_batch_twice_is_not_split(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    /* x x^T over samples; and x^T x, where the batch is contracted */
    esp_tensor_id_t x = gb_input(&gb, "x", "4 4", 0);
    esp_tensor_id_t gram = gb_einsum(&gb, "bi,ci->bc", x, x);
    esp_tensor_id_t cov = gb_einsum(&gb, "bi,bj->ij", x, x);
    esp_tensor_id_t after = gb_unary(&gb, ESP_ELT_RELU, gram);
    esp_graph_t *graph = gb_freeze(&gb);
    assert_false(gb_is_split(graph, gram));
    gb_assert_batch(graph, gram, 0, 0, 0);
    assert_false(gb_is_split(graph, after));
    assert_true(gb_is_split(graph, cov));
    gb_assert_batch(graph, cov, 0, 0, 0);
    esp_graph_destroy(graph);
}

static void test_batch_is_lost_where_it_matters(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    /* a softmax over samples needs all of them; two inputs with the batch at different places */
    esp_tensor_id_t x = gb_input(&gb, "x", "4 4", 0), y = gb_input(&gb, "y", "4 4", 1);
    esp_tensor_id_t p = gb_softmax(&gb, x, 0, false), sum = gb_binary(&gb, ESP_ELT_ADD, x, y);
    esp_graph_t *graph = gb_freeze(&gb);
    assert_false(gb_is_split(graph, p));
    assert_false(gb_is_split(graph, sum));
    esp_graph_destroy(graph);
}

static void test_batch_goes_back_to_sources(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x", "4 6", 0), p = gb_parameter(&gb, "p", "6");
    /* read by one op as the batch: split; by two in different ways: whole */
    esp_tensor_id_t wide = gb_expand(&gb, p, "4 6");
    esp_tensor_id_t y = gb_binary(&gb, ESP_ELT_ADD, x, wide);
    esp_attr_t fill = {.shape = {.rank = 2, .dims = {4, 6}, .dtype = ESP_DTYPE_F32, .value = 1}};
    esp_tensor_id_t ones = gb_op(&gb, ESP_KIND_FILL, &fill, 0, NULL);
    esp_tensor_id_t used = gb_unary(&gb, ESP_ELT_EXP, ones);
    esp_tensor_id_t z = gb_binary(&gb, ESP_ELT_MUL, y, used);
    esp_tensor_id_t both = gb_expand(&gb, p, "4 6");
    (void)gb_binary(&gb, ESP_ELT_ADD, x, both);
    (void)gb_sum(&gb, both, "1", false);
    esp_graph_t *graph = gb_freeze(&gb);
    assert_true(gb_is_split(graph, wide));
    gb_assert_batch(graph, wide, 1, 4, 6);
    assert_true(gb_is_split(graph, ones)); /* through the exponential */
    gb_assert_batch(graph, ones, 1, 4, 6);
    gb_assert_batch(graph, z, 1, 4, 6);
    assert_false(gb_is_split(graph, both));
    gb_assert_batch(graph, p, 0, 0, 0);
    esp_graph_destroy(graph);
}

/* ---- memory ------------------------------------------------------------------------------- */

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    (void)context;
    esp_builder_t *b;
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    const int64_t dims[2] = {4, 3};
    esp_tensor_id_t x, w, y, z;
    esp_status_t status = esp_builder_create("sweep", alloc, &b);
    if (status != ESP_OK)
        return status;
    status = esp_builder_tensor(b, "x", ESP_ROLE_INPUT, ESP_DTYPE_F32, 2, dims, NULL, &x, &diag);
    if (status == ESP_OK)
        status =
            esp_builder_tensor(b, "x", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 2, dims, NULL, &w, &diag);
    if (status == ESP_OK)
        status = esp_builder_batch(b, x, (esp_view_t){1, 4, 3}, &diag);
    if (status == ESP_OK)
        status = esp_i_make_einsum(b, "bi,ji->bj", x, w, "y", &y, &diag);
    if (status == ESP_OK)
        status = esp_i_make_unary(b, ESP_ELT_RELU, y, "y", &z, &diag);
    if (status == ESP_OK)
        status = esp_builder_output(b, z);
    if (status == ESP_OK)
        status = esp_builder_freeze(b, &graph, &diag);
    esp_graph_destroy(graph);
    esp_builder_destroy(b);
    return status;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    test_sweep_allocations(attempt, NULL, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_graph),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_aliases_have_a_root),
        cmocka_unit_test(test_builder_errors),
        cmocka_unit_test(test_local_dims),
        cmocka_unit_test(test_factor_of_a_part),
        cmocka_unit_test(test_batch_through_reshapes),
        cmocka_unit_test(test_batch_second),
        cmocka_unit_test(test_batch_in_merged_heads),
        cmocka_unit_test(test_batch_with_fused_qkv),
        cmocka_unit_test(test_batch_twice_is_not_split),
        cmocka_unit_test(test_batch_is_lost_where_it_matters),
        cmocka_unit_test(test_batch_goes_back_to_sources),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
