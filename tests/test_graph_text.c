/* The text form: round trips, and errors with their line. */
#include "graph_build.h"
#include "support.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

static esp_graph_t *parse(const char *text)
{
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(esp_graph_parse(text, strlen(text), "test.graph", NULL, &graph, &diag), &diag);
    test_assert_ok(esp_graph_check(graph, &diag), &diag);
    return graph;
}

static char *dump(const esp_graph_t *graph)
{
    char *text = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(esp_graph_dump(graph, NULL, &text, &diag), &diag);
    return text;
}

/* The graph, its text, the graph of the text, the text of that: all the same. */
static void check_round_trip(const esp_graph_t *graph)
{
    char hash[2][65];
    char *text = dump(graph);
    esp_graph_t *again = parse(text);
    char *same = dump(again);
    assert_string_equal(text, same);
    assert_int_equal(graph->n_ops, again->n_ops);
    assert_int_equal(graph->n_tensors, again->n_tensors);
    for (esp_op_id_t op = 0; op < graph->n_ops; op++) {
        assert_int_equal(graph->op_batch[op].dim, again->op_batch[op].dim);
        assert_memory_equal(&graph->op_attr[op], &again->op_attr[op], sizeof *graph->op_attr);
    }
    for (int32_t i = 0; i < graph->n_parameters; i++)
        assert_int_equal(graph->gradient[i], again->gradient[i]);
    assert_int_equal(esp_graph_hash(graph, hash[0]), ESP_OK);
    assert_int_equal(esp_graph_hash(again, hash[1]), ESP_OK);
    assert_string_equal(hash[0], hash[1]);
    assert_int_equal(strlen(hash[0]), 64);
    esp_graph_destroy(again);
    free(same);
    free(text);
}

static esp_graph_t *training(void)
{
    gb_t gb;
    gb_init(&gb);
    esp_tensor_id_t x = gb_input(&gb, "x \"quoted\"\\ \n\x01 \xc3\xa9", "2 3 8 8", 0);
    esp_tensor_id_t h = gb_conv(&gb, x, gb_parameter(&gb, "w", "4 3 3 3"));
    h = gb_transpose(&gb, gb_unary(&gb, ESP_ELT_GELU, h), "0 2 3 1");
    h = gb_binary(&gb, ESP_ELT_MUL, h, gb_literal(&gb, 0.1));
    esp_attr_t clip = {.eltwise = {.code = ESP_ELT_CLIP, .alpha = -0.0, .beta = 1e300 * 1e300}};
    h = gb_op(&gb, ESP_KIND_ELTWISE, &clip, 1, &h);
    h = gb_affine(&gb, h, 1.0 / 3, 5e-324);
    gb_output(&gb, gb_einsum(&gb, "bi,iv->bv", gb_reshape(&gb, h, "2 256"),
                             gb_parameter(&gb, "v", "256 5")));
    esp_graph_t *model = gb_freeze(&gb), *graph = NULL;
    esp_training_opts_t opts = esp_training_opts_default();
    esp_diag_t diag = {0};
    opts.optimizer = ESP_OPTIMIZER_ADAMW;
    opts.clip_norm = 0.7;
    opts.ignore_label = -100;
    test_assert_ok(esp_training_graph(model, &opts, NULL, &graph, &diag), &diag);
    esp_graph_destroy(model);
    return graph;
}

static void test_round_trip(void **state)
{
    (void)state;
    esp_graph_t *graph = training();
    check_round_trip(graph);
    esp_graph_destroy(graph);
}

static void test_locale_does_not_matter(void **state)
{
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL)
        skip();
    esp_graph_t *graph = training();
    check_round_trip(graph);
    esp_graph_destroy(graph);
    setlocale(LC_NUMERIC, "C");
}

static void test_literals(void **state)
{
    (void)state;
    gb_t gb;
    gb_init(&gb);
    const int64_t three[1] = {3}, none[1] = {0}, many[2] = {5, 7};
    const float f[3] = {0.1f, -1e-45f, 3.4e38f}, inf[3] = {1.0f / 0.0f, 0, -0.0f};
    const double d[3] = {0.1, 1e-308, -0.0};
    const int64_t l[3] = {INT64_MIN, 0, INT64_MAX};
    const int8_t c[3] = {-128, 0, 127};
    const uint8_t u[3] = {255, 0, 1}, t[3] = {1, 0, 1}, strange[3] = {2, 0, 1};
    const uint16_t h[3] = {0x3c00, 0xfe01, 1};
    float wide[35];
    for (int i = 0; i < 35; i++)
        wide[i] = (float)i / 3;
    const struct {
        esp_dtype_t dtype;
        int32_t rank;
        const int64_t *dims;
        const void *data;
    } cases[] = {
        {ESP_DTYPE_F32, 1, three, f},    {ESP_DTYPE_F32, 1, three, inf},
        {ESP_DTYPE_F64, 1, three, d},    {ESP_DTYPE_I64, 1, three, l},
        {ESP_DTYPE_I8, 1, three, c},     {ESP_DTYPE_U8, 1, three, u},
        {ESP_DTYPE_BOOL, 1, three, t},   {ESP_DTYPE_BOOL, 1, three, strange},
        {ESP_DTYPE_F16, 1, three, h},    {ESP_DTYPE_BF16, 1, three, h},
        {ESP_DTYPE_F32, 2, many, wide},  {ESP_DTYPE_F32, 1, none, wide},
        {ESP_DTYPE_I32, 0, NULL, &l[2]}, {ESP_DTYPE_I16, 1, three, h},
    };
    const size_t n = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < n; i++) {
        esp_tensor_id_t tensor;
        test_assert_ok(esp_builder_tensor(gb.builder, "c", ESP_ROLE_CONSTANT, cases[i].dtype,
                                          cases[i].rank, cases[i].dims, cases[i].data, &tensor,
                                          &gb.diag),
                       &gb.diag);
    }
    esp_graph_t *graph = gb_freeze(&gb);
    check_round_trip(graph);
    char *text = dump(graph);
    esp_graph_t *again = parse(text);
    for (size_t i = 0; i < n; i++)
        assert_memory_equal(again->tensor_data[i], cases[i].data, (size_t)graph->tensor_bytes[i]);
    free(text);
    esp_graph_destroy(again);
    esp_graph_destroy(graph);
}

static void test_edited_text(void **state)
{
    (void)state;
    /* labels are free, blanks and comments too; a result of an update op named like a phase */
    esp_graph_t *graph = parse("# a comment\n"
                               "espalier-graph 1 \"edited\"  # here too\r\n"
                               "\n"
                               "tensor %70 \"x\" input float32 [2,3] batch (1,2,3)\n"
                               "tensor %7 \"w\" parameter float32 [ 2 , 3 ]\n"
                               "op !9 \"y\" eltwise (%70, %7) {code mul}->%8 \"y\" float32 [2,3]\n"
                               "op !10 \"u\" update of !9 update(%7,%8) {optimizer sgd, rate "
                               "0.5} -> %1 \"u\" float32 [2, 3]\n"
                               "next %7 %1\n"
                               "output %8");
    assert_int_equal(graph->n_ops, 2);
    assert_int_equal(graph->op_phase[1], ESP_PHASE_UPDATE);
    assert_int_equal(graph->op_origin[1], 0);
    assert_int_equal(graph->update[0], 1);
    assert_int_equal(graph->gradient[0], 2);
    check_round_trip(graph);
    esp_graph_destroy(graph);
}

#define HEAD "espalier-graph 1 \"g\"\ntensor %0 \"x\" input float32 [2, 3]\n"

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        esp_status_t status;
        int64_t line, column;
        const char *part;
    } cases[] = {
        {"", ESP_ERR_SYNTAX, 1, 1, "no graph"},
        {"graph", ESP_ERR_SYNTAX, 1, 1, "not a graph"},
        {"\nespalier-graph 2 \"g\"", ESP_ERR_UNSUPPORTED, 2, 0, "format 2"},
        {"espalier-graph 1 g", ESP_ERR_SYNTAX, 1, 18, "'\"' expected"},
        {"espalier-graph 1 \"g", ESP_ERR_SYNTAX, 1, 0, "not closed"},
        {"espalier-graph 1 \"\\x0g\"", ESP_ERR_SYNTAX, 1, 0, "hexadecimal"},
        {"espalier-graph 1 \"\\x00\"", ESP_ERR_SYNTAX, 1, 0, "NUL"},
        {"espalier-graph 1 \"g\" more", ESP_ERR_SYNTAX, 1, 22, "end of line"},
        {HEAD "node", ESP_ERR_SYNTAX, 3, 1, "tensor, op, next or output"},
        {HEAD "tensor 1", ESP_ERR_SYNTAX, 3, 8, "'%' expected"},
        {HEAD "tensor %0 \"y\" input float32 []", ESP_ERR_SYNTAX, 3, 0, "second time"},
        {HEAD "tensor %1 \"y\" guest float32 []", ESP_ERR_SYNTAX, 3, 15, "role"},
        {HEAD "tensor %1 \"y\" loss float32 []", ESP_ERR_ARGUMENT, 3, 0, "role loss"},
        {HEAD "tensor %1 \"y\" input float31 []", ESP_ERR_SYNTAX, 3, 21, "dtype"},
        {HEAD "tensor %1 \"y\" input float32 [1 2]", ESP_ERR_SYNTAX, 3, 0, "',' expected"},
        {HEAD "tensor %1 \"y\" input float32 [a]", ESP_ERR_SYNTAX, 3, 30, "integer"},
        {HEAD "tensor %1 \"y\" input float32 [-1]", ESP_ERR_INVALID, 3, 0, "extent -1"},
        {HEAD "tensor %1 \"y\" input float32 [9223372036854775808]", ESP_ERR_SYNTAX, 3, 0,
         "64 bits"},
        {HEAD "tensor %1 \"y\" input float32 [1,1,1,1,1,1,1,1,1]", ESP_ERR_SYNTAX, 3, 0, "axes"},
        {HEAD "tensor %1 \"y\" input float32 [2] batch (1, 3, 1)", ESP_ERR_INVALID, 3, 0, "view"},
        {HEAD "tensor %1 \"y\" constant int8 [2] = [1, 128]", ESP_ERR_SYNTAX, 3, 0, "int8"},
        {HEAD "tensor %1 \"y\" constant int8 [2] = x\"0\"", ESP_ERR_SYNTAX, 3, 0, "2 bytes"},
        {HEAD "tensor %1 \"y\" constant int8 [999999999] = []", ESP_ERR_SYNTAX, 3, 0, "fewer"},
        {HEAD "tensor %1 \"y\" constant float32 [] = [nan]", ESP_ERR_SYNTAX, 3, 0, "number"},
        {HEAD "op !0 \"r\" eltwise (%1) {code relu} -> %2 \"r\" float32 [2, 3]", ESP_ERR_SYNTAX, 3,
         0, "%1 is not defined"},
        {HEAD "op !0 \"r\" of !1 eltwise (%0) {code relu} -> %2 \"r\" float32 [2, 3]",
         ESP_ERR_SYNTAX, 3, 0, "!1 is not defined"},
        {HEAD "op !0 \"r\" elt (%0) {code relu} -> %2 \"r\" float32 [2, 3]", ESP_ERR_SYNTAX, 3, 0,
         "kind"},
        {HEAD "op !0 \"r\" eltwise (%0) {code rely} -> %2 \"r\" float32 [2, 3]", ESP_ERR_SYNTAX, 3,
         0, "value of code"},
        {HEAD "op !0 \"r\" eltwise (%0) {gamma 1} -> %2 \"r\" float32 [2, 3]", ESP_ERR_SYNTAX, 3, 0,
         "no such attribute"},
        {HEAD "op !0 \"r\" eltwise (%0) {code relu} -> %2 \"r\" float32 [3, 2]", ESP_ERR_INVALID, 3,
         0, "another shape"},
        {HEAD "op !0 \"r\" eltwise (%0) {code relu} -> %2 \"r\" input float32 [2, 3]",
         ESP_ERR_SYNTAX, 3, 0, "role input"},
        {HEAD "op !0 \"r\" eltwise (%0) {code relu} -> %2 \"r\" loss float32 [2, 3]",
         ESP_ERR_SYNTAX, 3, 0, "role loss"},
        {HEAD "op !0 \"r\" eltwise (%0) {code relu} -> %2 \"r\" float32 [2, 3], %3 \"s\" "
              "float32 []",
         ESP_ERR_INVALID, 3, 0, "has 1 results"},
        {HEAD "op !0 \"r\" reduce (%0) {code sum, axes 4294967297} -> %2 \"r\" float32 []",
         ESP_ERR_SYNTAX, 3, 0, "out of range"},
        {HEAD "op !0 \"t\" transpose (%0) {perm 1} -> %2 \"r\" float32 []", ESP_ERR_SYNTAX, 3, 0,
         "list"},
        {HEAD "next %0 %0", ESP_ERR_INVALID, 3, 0, "tensor x"},
        {HEAD "output %5", ESP_ERR_SYNTAX, 3, 0, "%5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        esp_diag_t diag = {0};
        esp_graph_t *graph = NULL;
        esp_status_t status = esp_graph_parse(cases[i].text, strlen(cases[i].text), "file.graph",
                                              NULL, &graph, &diag);
        test_assert_fails(status, &diag, cases[i].status, cases[i].part);
        assert_string_equal(diag.file, "file.graph");
        if (diag.line != cases[i].line)
            fail_msg("case %zu: line %d", i, (int)diag.line);
        if (cases[i].column > 0 && diag.column != cases[i].column)
            fail_msg("case %zu: column %d", i, (int)diag.column);
        assert_null(graph);
    }
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    esp_graph_t *graph = NULL;
    char *text = NULL;
    esp_diag_t diag = {0};
    esp_status_t status = esp_graph_parse(context, strlen(context), NULL, alloc, &graph, &diag);
    if (status == ESP_OK)
        status = esp_graph_dump(graph, alloc, &text, &diag);
    if (text != NULL)
        alloc->release(alloc->context, text);
    esp_graph_destroy(graph);
    return status;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    esp_graph_t *graph = training();
    char *text = dump(graph);
    test_sweep_allocations(attempt, text, 1);
    free(text);
    esp_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_locale_does_not_matter),
        cmocka_unit_test(test_literals),   cmocka_unit_test(test_edited_text),
        cmocka_unit_test(test_errors),     cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
