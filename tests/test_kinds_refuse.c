/* What the loop-nest kinds refuse, and what they say. */
#include "kind_harness.h"
#include "support.h"

#define BIG ((int64_t)1 << 40)
#define IN(r, ...)                                                                                 \
    {                                                                                              \
        .rank = r, .dims = { __VA_ARGS__ }                                                         \
    }
#define TYPED(d, r, ...)                                                                           \
    {                                                                                              \
        .dtype = ESP_DTYPE_##d, .rank = r, .dims = { __VA_ARGS__ }                                 \
    }
#define ONE(...) .n_in = 1, .in = {__VA_ARGS__}

typedef struct refusal {
    esp_status_t status;
    const char *text;
    kind_example_t example;
} refusal_t;

static void check_refusals(const refusal_t *refusals, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        kind_example_t example = refusals[i].example;
        example.name = refusals[i].text;
        kind_check_refused(&example, refusals[i].status, refusals[i].text);
    }
}
#define CHECK_REFUSALS(list) check_refusals(list, sizeof list / sizeof list[0])

static void test_contract(void **state)
{
#define CONTRACT(la, lb, ly, ...)                                                                  \
    {                                                                                              \
        .kind = ESP_KIND_CONTRACT, .attr.contract = {.a = la, .b = lb, .y = ly}, .n_in = 2,        \
        .in = {                                                                                    \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
    static const refusal_t refusals[] = {
        {ESP_ERR_INVALID, "axis 1 has 64 in input 0 and axis 0 has 32 in input 1",
         CONTRACT("mk", "kn", "mn", IN(2, 3, 64), IN(2, 32, 5))},
        {ESP_ERR_INVALID, "input 1 has 3 axes and 2 labels",
         CONTRACT("mk", "kn", "mn", IN(2, 3, 4), IN(3, 4, 5, 6))},
        {ESP_ERR_INVALID, "input 0 is float32 and input 1 is float64",
         CONTRACT("mk", "kn", "mn", IN(2, 3, 4), TYPED(F64, 2, 4, 5))},
        {ESP_ERR_UNSUPPORTED, "axes 0 and 1 of input 0 have the same label",
         CONTRACT("mm", "mn", "mn", IN(2, 3, 3), IN(2, 3, 5))},
        {ESP_ERR_INVALID, "axis 1 of the output has a label that no input has",
         CONTRACT("mk", "kn", "mz", IN(2, 3, 4), IN(2, 4, 5))},
        {ESP_ERR_UNSUPPORTED, "axis 1 of the output repeats a label",
         CONTRACT("mk", "kn", "mm", IN(2, 3, 4), IN(2, 4, 5))},
        {ESP_ERR_LIMIT, "14 labels where 12 are the limit",
         CONTRACT("abcdefg", "hijklmn", "a", IN(7, 1, 1, 1, 1, 1, 1, 1),
                  IN(7, 1, 1, 1, 1, 1, 1, 1))},
        {ESP_ERR_LIMIT, "has too many elements",
         CONTRACT("mk", "kn", "mn", IN(2, BIG, 1), IN(2, 1, BIG))},
        {ESP_ERR_INVALID, "input 0 is bool where a number is expected",
         CONTRACT("m", "m", "m", TYPED(BOOL, 1, 1), TYPED(BOOL, 1, 1))},
    };
    (void)state;
    CHECK_REFUSALS(refusals);
}

#define WINDOW(k, s, d, lo, hi)                                                                    \
    {                                                                                              \
        .rank = 1, .kernel = {k}, .stride = {s}, .dilation = {d}, .pad_lo = {lo}, .pad_hi = { hi } \
    }
#define PLAIN WINDOW(3, 1, 1, 0, 0)

#define CONV(suffix, win, g, t, ...)                                                               \
    {                                                                                              \
        .kind = ESP_KIND_CONV##suffix, .attr.conv = {.window = win, .groups = g, .target = {t}},   \
        .n_in = 2, .in = {                                                                         \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static void test_conv(void **state)
{
    static const refusal_t refusals[] = {
        {ESP_ERR_INVALID, "input 0 has 4 channels in 1 groups and the weight has 3 per group",
         CONV(, PLAIN, 1, 0, IN(3, 2, 4, 8), IN(3, 5, 3, 3))},
        {ESP_ERR_INVALID, "4 input channels in 3 groups",
         CONV(, PLAIN, 3, 0, IN(3, 2, 4, 8), IN(3, 6, 2, 3))},
        {ESP_ERR_INVALID, "5 output channels in 2 groups",
         CONV(, PLAIN, 2, 0, IN(3, 2, 4, 8), IN(3, 5, 2, 3))},
        {ESP_ERR_INVALID, "0 groups", CONV(, PLAIN, 0, 0, IN(3, 2, 4, 8), IN(3, 5, 4, 3))},
        {ESP_ERR_INVALID, "axis 2 of the weight has 2 where the kernel has 3",
         CONV(, PLAIN, 1, 0, IN(3, 2, 4, 8), IN(3, 5, 4, 2))},
        {ESP_ERR_INVALID, "kernel 3 with dilation 4 does not fit in dimension 0 of extent 8",
         CONV(, WINDOW(3, 1, 4, 0, 0), 1, 0, IN(3, 2, 4, 8), IN(3, 5, 4, 3))},
        {ESP_ERR_INVALID, "each must be at least 1",
         CONV(, WINDOW(3, 0, 1, 0, 0), 1, 0, IN(3, 2, 4, 8), IN(3, 5, 4, 3))},
        {ESP_ERR_UNSUPPORTED, "negative padding in dimension 0",
         CONV(, WINDOW(3, 1, 1, 0, -1), 1, 0, IN(3, 2, 4, 8), IN(3, 5, 4, 3))},
        {ESP_ERR_LIMIT, "the window of dimension 0 is too large",
         CONV(, WINDOW(3, 1, 1, 0, INT64_MAX), 1, 0, IN(3, 2, 4, 8), IN(3, 5, 4, 3))},
        {ESP_ERR_INVALID, "needs inputs of 3 axes, not 4",
         CONV(, PLAIN, 1, 0, IN(4, 2, 4, 8, 8), IN(4, 5, 4, 3, 3))},
        {ESP_ERR_INVALID, "input 0 has 3 axes and input 1 has 2",
         CONV(, PLAIN, 1, 0, IN(3, 2, 4, 8), IN(2, 5, 4))},
        {ESP_ERR_LIMIT, "0 spatial dimensions where 1 to 3 are possible",
         CONV(, {.rank = 0}, 1, 0, IN(2, 2, 4), IN(2, 5, 4))},
    };
    (void)state;
    CHECK_REFUSALS(refusals);
}

static void test_conv_gradients(void **state)
{
    static const refusal_t refusals[] = {
        {ESP_ERR_INVALID, "axis 1 has 4 in input 0 and axis 0 has 5 in input 1",
         CONV(_DX, PLAIN, 1, 8, IN(3, 2, 4, 6), IN(3, 5, 4, 3))},
        {ESP_ERR_INVALID, "axis 2 of input 0 has 6 where the window has 7 positions",
         CONV(_DX, PLAIN, 1, 9, IN(3, 2, 5, 6), IN(3, 5, 4, 3))},
        {ESP_ERR_INVALID, "negative target extent in dimension 0",
         CONV(_DX, PLAIN, 1, -9, IN(3, 2, 5, 6), IN(3, 5, 4, 3))},
        {ESP_ERR_LIMIT, "groups are too many",
         CONV(_DX, PLAIN, INT64_MAX, 8, IN(3, 2, 0, 6), IN(3, 0, 4, 3))},
        {ESP_ERR_INVALID, "axis 0 has 2 in input 0 and 3 in input 1",
         CONV(_DW, PLAIN, 1, 0, IN(3, 2, 4, 8), IN(3, 3, 5, 6))},
        {ESP_ERR_INVALID, "axis 2 of input 1 has 5 where the window has 6 positions",
         CONV(_DW, PLAIN, 1, 0, IN(3, 2, 4, 8), IN(3, 2, 5, 5))},
    };
    (void)state;
    CHECK_REFUSALS(refusals);
}

static void test_pool(void **state)
{
#define POOL(k, win, max, t, n, ...)                                                               \
    {                                                                                              \
        .kind = ESP_KIND_##k, .attr.pool = {.window = win, .is_max = max, .target = {t}},          \
        .n_in = n, .in = {                                                                         \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
    static const refusal_t refusals[] = {
        {ESP_ERR_INVALID, "does not fit", POOL(POOL, PLAIN, 1, 0, 1, IN(3, 2, 4, 2))},
        {ESP_ERR_INVALID, "nothing but padding: no maximum",
         POOL(POOL, WINDOW(3, 1, 1, 3, 0), 1, 0, 1, IN(3, 2, 4, 8))},
        {ESP_ERR_INVALID, "1 inputs where 3 are expected",
         POOL(POOL_GRAD, PLAIN, 1, 0, 1, IN(3, 2, 4, 6))},
        {ESP_ERR_INVALID, "3 inputs where 1 are expected",
         POOL(POOL_GRAD, PLAIN, 0, 8, 3, IN(3, 2, 4, 8), IN(3, 2, 4, 6), IN(3, 2, 4, 6))},
        {ESP_ERR_INVALID, "input 1 is [2, 4, 6] and input 2 is [2, 4, 5]",
         POOL(POOL_GRAD, PLAIN, 1, 0, 3, IN(3, 2, 4, 8), IN(3, 2, 4, 6), IN(3, 2, 4, 5))},
        {ESP_ERR_INVALID, "input 0 is [2, 3, 8] and input 2 is [2, 4, 6]",
         POOL(POOL_GRAD, PLAIN, 1, 0, 3, IN(3, 2, 3, 8), IN(3, 2, 4, 6), IN(3, 2, 4, 6))},
        {ESP_ERR_INVALID, "axis 2 of dy has 6 where the window has 7 positions",
         POOL(POOL_GRAD, PLAIN, 0, 9, 1, IN(3, 2, 4, 6))},
        {ESP_ERR_INVALID, "negative target", POOL(POOL_GRAD, PLAIN, 0, -1, 1, IN(3, 2, 4, 6))},
    };
    (void)state;
    CHECK_REFUSALS(refusals);
}

static void test_eltwise(void **state)
{
#define ELT(c, n, ...)                                                                             \
    {                                                                                              \
        .kind = ESP_KIND_ELTWISE, .attr.eltwise = {.code = c}, .n_in = n, .in = { __VA_ARGS__ }    \
    }
    static const refusal_t refusals[] = {
        {ESP_ERR_INVALID, "axis 1 has 64 in input 0 and axis 0 has 32 in input 1",
         ELT(ESP_ELT_ADD, 2, IN(2, 2, 64), IN(1, 32))},
        {ESP_ERR_INVALID, "axis 0 has 3 in input 1 and axis 0 has 2 in input 2",
         ELT(ESP_ELT_ADD, 3, IN(2, 1, 4), IN(2, 3, 4), IN(2, 2, 1))},
        {ESP_ERR_INVALID, "sub has 1 inputs where 2 are expected",
         ELT(ESP_ELT_SUB, 1, IN(2, 2, 64))},
        {ESP_ERR_INVALID, "add has 0 inputs where 1 are expected", ELT(ESP_ELT_ADD, 0, IN(0, 0))},
        {ESP_ERR_INVALID, "no element-wise code", ELT(ESP_ELT_COUNT, 1, IN(0, 0))},
        {ESP_ERR_INVALID, "input 0 is float32 and input 1 is int64",
         ELT(ESP_ELT_MUL, 2, IN(1, 3), TYPED(I64, 1, 3))},
        {ESP_ERR_INVALID, "input 0 is of type int32 where a float type is needed",
         ELT(ESP_ELT_EXP, 1, TYPED(I32, 1, 3))},
        {ESP_ERR_INVALID, "input 0 is bool where a number is expected",
         ELT(ESP_ELT_LESS, 2, TYPED(BOOL, 1, 3), TYPED(BOOL, 1, 3))},
        {ESP_ERR_INVALID, "input 0 is float32 where bool is expected",
         ELT(ESP_ELT_WHERE, 3, IN(1, 3), IN(1, 3), IN(1, 3))},
        {ESP_ERR_INVALID, "input 1 is float32 and input 2 is float64",
         ELT(ESP_ELT_WHERE, 3, TYPED(BOOL, 1, 3), IN(1, 3), TYPED(F64, 1, 3))},
        {ESP_ERR_LIMIT, "a tensor of shape [1099511627776, 1099511627776] has too many elements",
         ELT(ESP_ELT_ADD, 2, IN(2, BIG, 1), IN(1, BIG))},
    };
    (void)state;
    CHECK_REFUSALS(refusals);
}

static void test_views(void **state)
{
#define SHAPE(k, r, ...) .kind = ESP_KIND_##k, .attr.shape = {.rank = r, .dims = {__VA_ARGS__} }
#define REDUCE(c, a)     .kind = ESP_KIND_REDUCE, .attr.reduce = {.code = c, .axes = a}
    static const refusal_t refusals[] = {
        {ESP_ERR_INVALID,
         "[2, 3] has 6 elements and [4, 2] has 8",
         {SHAPE(RESHAPE, 2, 4, 2), ONE(IN(2, 2, 3))}},
        {ESP_ERR_INVALID, "axis 0 has extent -1", {SHAPE(RESHAPE, 1, -1), ONE(IN(2, 2, 3))}},
        {ESP_ERR_LIMIT, "rank 9 is not in [0, 8]", {SHAPE(RESHAPE, 9, 1), ONE(IN(2, 2, 3))}},
        {ESP_ERR_LIMIT, "has too many elements", {SHAPE(EXPAND, 3, BIG, BIG, 3), ONE(IN(1, 3))}},
        {ESP_ERR_LIMIT, "has too many elements", {SHAPE(RESHAPE, 3, BIG, BIG, 0), ONE(IN(1, 0))}},
        {ESP_ERR_INVALID,
         "[2, 3] does not stretch to [2, 4]",
         {SHAPE(EXPAND, 2, 2, 4), ONE(IN(2, 2, 3))}},
        {ESP_ERR_INVALID,
         "[2, 1] does not stretch to [2]",
         {SHAPE(EXPAND, 1, 2), ONE(IN(2, 2, 1))}},
        {ESP_ERR_INVALID,
         "axis 1 of the output is axis 0 of the input: not a permutation",
         {.kind = ESP_KIND_TRANSPOSE, .attr.transpose = {.perm = {0, 0}}, ONE(IN(2, 2, 3))}},
        {ESP_ERR_INVALID,
         "axes 0x4 of a tensor of 2 axes",
         {REDUCE(ESP_REDUCE_SUM, 4), ONE(IN(2, 2, 3))}},
        {ESP_ERR_INVALID,
         "axis 1 is empty: nothing to choose from",
         {REDUCE(ESP_REDUCE_MAX, 2), ONE(IN(2, 2, 0))}},
        {ESP_ERR_INVALID, "no reduction 99", {REDUCE((esp_reduce_t)99, 2), ONE(IN(2, 2, 3))}},
    };
    (void)state;
    CHECK_REFUSALS(refusals);
}

static void test_pieces(void **state)
{
#define SLICE(s, st, c)                                                                            \
    .kind = ESP_KIND_SLICE, .attr.slice = {.start = {s}, .step = {st}, .count = {c} }
#define PAD(l, h, b) .kind = ESP_KIND_PAD, .attr.pad = {.lo = {l}, .hi = {h}, .between = {b}}
#define CONCAT(a, n) .kind = ESP_KIND_CONCAT, .attr.axis = {.axis = a}, .n_in = n
    static const refusal_t refusals[] = {
        {ESP_ERR_INVALID,
         "3 elements from 2 with step 2 are not in axis 0 of extent 6",
         {SLICE(2, 2, 3), ONE(IN(1, 6))}},
        {ESP_ERR_INVALID,
         "3 elements from 1 with step -1 are not",
         {SLICE(1, -1, 3), ONE(IN(1, 6))}},
        {ESP_ERR_INVALID, "1 elements from -1 with step 1", {SLICE(-1, 1, 1), ONE(IN(1, 6))}},
        {ESP_ERR_INVALID, "-1 elements from 0", {SLICE(0, 1, -1), ONE(IN(1, 6))}},
        {ESP_ERR_INVALID, "2 elements from 0 with step 0", {SLICE(0, 0, 2), ONE(IN(1, 6))}},
        {ESP_ERR_INVALID, "are not in axis 0", {SLICE(0, INT64_MAX, 3), ONE(IN(1, 6))}},
        {ESP_ERR_INVALID,
         "negative padding of axis 0: -1 before, 0 after, 0 between",
         {PAD(-1, 0, 0), ONE(IN(1, 6))}},
        {ESP_ERR_LIMIT,
         "the padding of axis 0 is too large",
         {PAD(0, 0, INT64_MAX), ONE(IN(1, 6))}},
        {ESP_ERR_LIMIT, "has too many elements", {PAD(BIG, BIG * 64, 0), ONE(IN(1, 6))}},
        {ESP_ERR_INVALID,
         "axis 2 of a tensor of rank 2",
         {CONCAT(2, 2), .in = {IN(2, 2, 3), IN(2, 2, 3)}}},
        {ESP_ERR_INVALID,
         "input 0 has 2 axes and input 1 has 1",
         {CONCAT(0, 2), .in = {IN(2, 2, 3), IN(1, 3)}}},
        {ESP_ERR_INVALID,
         "axis 1 has 3 in input 0 and 4 in input 1",
         {CONCAT(0, 2), .in = {IN(2, 2, 3), IN(2, 2, 4)}}},
        {ESP_ERR_INVALID,
         "input 0 is float32 and input 1 is int8",
         {CONCAT(0, 2), .in = {IN(2, 2, 3), TYPED(I8, 2, 2, 3)}}},
    };
    (void)state;
    CHECK_REFUSALS(refusals);
}

/* Rules that refuse say so before they make anything. */
static void check_no_gradient(const kind_example_t *example, int32_t input, const char *part)
{
    const bool need[KIND_MAX_IN] = {[0] = input == 0, [1] = input == 1, [2] = input == 2};
    const esp_tensor_id_t ids[KIND_MAX_IN] = {0};
    esp_tensor_id_t dx[KIND_MAX_IN] = {0};
    esp_i_shape_t shapes[KIND_MAX_IN] = {{.rank = 0}};
    esp_diag_t diag = {0};
    const esp_i_op_t op = {.kind = example->kind,
                           .attr = &example->attr,
                           .n_in = example->n_in,
                           .n_out = 1,
                           .in = shapes,
                           .out = shapes};
    const esp_i_grad_t grad = {.op = &op,
                               .in = ids,
                               .out = ids,
                               .dy = ids,
                               .need = need,
                               .dx = dx,
                               .name = "refused",
                               .diag = &diag};
    test_assert_fails(esp_i_kind(example->kind)->gradient(&grad), &diag, ESP_ERR_UNSUPPORTED, part);
}

static void test_gradients(void **state)
{
    const kind_example_t product = {REDUCE(ESP_REDUCE_PROD, 1), .n_in = 1};
    const kind_example_t curve = ELT(ESP_ELT_TANH_GRAD, 2, IN(0, 0));
    const kind_example_t maximum = POOL(POOL_GRAD, PLAIN, 1, 0, 3, IN(3, 2, 3, 8));
    (void)state;
    check_no_gradient(&product, 0, "product over axes");
    check_no_gradient(&curve, 0, "second derivatives");
    check_no_gradient(&maximum, 2, "maximum pool");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contract),       cmocka_unit_test(test_conv),
        cmocka_unit_test(test_conv_gradients), cmocka_unit_test(test_pool),
        cmocka_unit_test(test_eltwise),        cmocka_unit_test(test_views),
        cmocka_unit_test(test_pieces),         cmocka_unit_test(test_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
