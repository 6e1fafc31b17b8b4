/* Every element-wise code: value, dtypes, split, linear sets, gradient. */
#include "kind_harness.h"
#include "support.h"

#include <math.h>

/* What is known of one code. The value is that of particular inputs, worked out by hand. */
typedef struct code_case {
    const char *name;
    esp_eltwise_t code;
    int32_t n_in;
    double x[3], alpha, beta, value;
    double lo, hi;    /* inputs for the gradient, away from kinks and poles; both 0: [-1, 1) */
    uint32_t linear;  /* the inputs that must be in a linear set */
    bool no_gradient; /* refuses to be differentiated */
} code_case_t;

#define CASE(c, n, ...)                                                                            \
    {                                                                                              \
        .name = #c, .code = ESP_ELT_##c, .n_in = n, __VA_ARGS__                                    \
    }

static const code_case_t cases[] = {
    CASE(ADD, 3, .x = {1, 2, 4}, .value = 7, .linear = 7),
    CASE(SUB, 2, .x = {1, 4}, .value = -3, .linear = 3),
    CASE(MUL, 2, .x = {3, -4}, .value = -12, .linear = 3),
    CASE(DIV, 2, .x = {3, -4}, .value = -0.75, .lo = 1, .hi = 2, .linear = 1),
    CASE(DIV_NO_NAN, 2, .x = {3, 0}, .value = 0, .lo = 1, .hi = 2, .linear = 1),
    CASE(DIV_NO_NAN, 2, .x = {3, 2}, .value = 1.5, .lo = 1, .hi = 2, .linear = 1),
    CASE(AFFINE, 1, .x = {3}, .alpha = 2, .beta = 0.5, .value = 6.5),
    CASE(AFFINE, 1, .x = {3}, .alpha = 2, .value = 6, .linear = 1),
    CASE(POW, 2, .x = {2, 3}, .value = 8, .lo = 0.5, .hi = 2),
    CASE(POWC, 1, .x = {4}, .alpha = 1.5, .value = 8, .lo = 0.5, .hi = 2),
    CASE(POWC, 1, .x = {-3}, .alpha = 2, .value = 9),
    CASE(POWC, 1, .x = {-3}, .alpha = 1, .value = -3),
    CASE(POWC, 1, .x = {-3}, .alpha = 0, .value = 1),
    CASE(MAX, 2, .x = {-3, 2}, .value = 2),
    CASE(MIN, 2, .x = {-3, 2}, .value = -3),
    CASE(MOD, 2, .x = {-7, 4}, .alpha = 1, .value = -3, .lo = 1, .hi = 2),
    CASE(MOD, 2, .x = {-7, 4}, .value = 1, .lo = 1, .hi = 2),
    CASE(MOD, 2, .x = {7, -4}, .value = -1, .lo = 1, .hi = 2),
    CASE(NEG, 1, .x = {2}, .value = -2, .linear = 1),
    CASE(ABS, 1, .x = {-2}, .value = 2),
    CASE(SIGN, 1, .x = {-2}, .value = -1),
    CASE(SIGN, 1, .x = {0}, .value = 0),
    CASE(EXP, 1, .x = {1}, .value = 2.718281828459045),
    CASE(LOG, 1, .x = {2}, .value = 0.6931471805599453, .lo = 1, .hi = 2),
    CASE(SQRT, 1, .x = {9}, .value = 3, .lo = 1, .hi = 2),
    CASE(RSQRT, 1, .x = {4}, .value = 0.5, .lo = 1, .hi = 2),
    CASE(RECIPROCAL, 1, .x = {4}, .value = 0.25, .lo = 1, .hi = 2),
    CASE(ERF, 1, .x = {0.5}, .value = 0.5204998778130465),
    CASE(SIN, 1, .x = {1}, .value = 0.8414709848078965),
    CASE(COS, 1, .x = {1}, .value = 0.5403023058681398),
    CASE(FLOOR, 1, .x = {-1.5}, .value = -2, .lo = 0.1, .hi = 0.9),
    CASE(CEIL, 1, .x = {-1.5}, .value = -1, .lo = 0.1, .hi = 0.9),
    CASE(ROUND, 1, .x = {2.5}, .value = 2, .lo = 0.1, .hi = 0.4),
    CASE(RELU, 1, .x = {-2}, .value = 0),
    CASE(RELU, 1, .x = {2}, .value = 2),
    CASE(RELU_GRAD, 2, .x = {0, 5}, .value = 0, .linear = 2),
    CASE(RELU_GRAD, 2, .x = {0.1, 5}, .value = 5, .linear = 2),
    CASE(LEAKY_RELU, 1, .x = {-2}, .alpha = 0.1, .value = -0.2),
    CASE(LEAKY_RELU_GRAD, 2, .x = {-2, 3}, .alpha = 0.1, .value = 0.3, .linear = 2),
    CASE(CLIP, 1, .x = {2}, .alpha = -0.5, .beta = 0.6, .value = 0.6),
    CASE(CLIP, 1, .x = {-2}, .alpha = -0.5, .beta = 0.6, .value = -0.5),
    CASE(CLIP_GRAD, 2, .x = {2, 3}, .alpha = -0.5, .beta = 0.6, .value = 0, .linear = 2),
    CASE(CLIP_GRAD, 2, .x = {0.2, 3}, .alpha = -0.5, .beta = 0.6, .value = 3, .linear = 2),
    CASE(SIGMOID, 1, .x = {1}, .value = 0.7310585786300049),
    CASE(SIGMOID, 1, .x = {-1000}, .value = 0),
    CASE(SIGMOID_GRAD, 2, .x = {0.25, 2}, .value = 0.375, .linear = 2, .no_gradient = true),
    CASE(TANH, 1, .x = {1}, .value = 0.7615941559557649),
    CASE(TANH_GRAD, 2, .x = {0.5, 2}, .value = 1.5, .linear = 2, .no_gradient = true),
    CASE(SILU, 1, .x = {1}, .value = 0.7310585786300049),
    CASE(SILU_GRAD, 2, .x = {1, 1}, .value = 0.9276705118714869, .linear = 2, .no_gradient = true),
    CASE(GELU, 1, .x = {1}, .value = 0.8413447460685429),
    CASE(GELU_GRAD, 2, .x = {1, 1}, .value = 1.083315470587687, .linear = 2, .no_gradient = true),
    CASE(GELU_TANH, 1, .x = {1}, .value = 0.8411919906082768),
    CASE(GELU_TANH_GRAD, 2, .x = {0, 3}, .value = 1.5, .linear = 2, .no_gradient = true),
    CASE(HARD_SIGMOID, 1, .x = {1}, .alpha = 0.2, .beta = 0.5, .value = 0.7),
    CASE(HARD_SIGMOID, 1, .x = {9}, .alpha = 0.2, .beta = 0.5, .value = 1),
    CASE(HARD_SIGMOID_GRAD, 2, .x = {1, 2}, .alpha = 0.2, .beta = 0.5, .value = 0.4, .linear = 2),
    CASE(HARD_SIGMOID_GRAD, 2, .x = {9, 2}, .alpha = 0.2, .beta = 0.5, .value = 0, .linear = 2),
    CASE(HARD_SWISH, 1, .x = {1.5}, .value = 1.125, .lo = -2, .hi = 2),
    CASE(HARD_SWISH, 1, .x = {5}, .value = 5, .lo = 3.5, .hi = 4),
    CASE(HARD_SWISH_GRAD, 2, .x = {1.5, 2}, .value = 2, .linear = 2, .no_gradient = true),
    CASE(SOFTPLUS, 1, .x = {0}, .value = 0.6931471805599453),
    CASE(SOFTPLUS, 1, .x = {1000}, .value = 1000),
    CASE(ELU, 1, .x = {-1}, .alpha = 2, .value = -1.264241117657115),
    CASE(ELU_GRAD, 2, .x = {-1, 3}, .alpha = 2, .value = 2.207276647028654, .linear = 2,
         .no_gradient = true),
    CASE(EQUAL, 2, .x = {2, 2}, .value = 1),
    CASE(NOT_EQUAL, 2, .x = {2, 2}, .value = 0),
    CASE(LESS, 2, .x = {2, 2}, .value = 0),
    CASE(LESS_EQUAL, 2, .x = {2, 2}, .value = 1),
    CASE(GREATER, 2, .x = {3, 2}, .value = 1),
    CASE(GREATER_EQUAL, 2, .x = {1, 2}, .value = 0),
    CASE(AND, 2, .x = {1, 0}, .value = 0),
    CASE(OR, 2, .x = {1, 0}, .value = 1),
    CASE(XOR, 2, .x = {1, 1}, .value = 0),
    CASE(NOT, 1, .x = {1}, .value = 0),
    CASE(WHERE, 3, .x = {1, 5, 6}, .value = 5, .linear = 6),
    CASE(WHERE, 3, .x = {0, 5, 6}, .value = 6, .linear = 6),
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static bool is_logic(esp_eltwise_t code)
{
    return code == ESP_ELT_AND || code == ESP_ELT_OR || code == ESP_ELT_XOR || code == ESP_ELT_NOT;
}

/* An op of this code on inputs of shape [2,3]. */
static kind_example_t example_of(const code_case_t *c)
{
    kind_example_t example = {.name = c->name,
                              .kind = ESP_KIND_ELTWISE,
                              .attr.eltwise = {.code = c->code, .alpha = c->alpha, .beta = c->beta},
                              .n_in = c->n_in,
                              .extents = {6}};
    for (int32_t i = 0; i < c->n_in; i++) {
        bool logic = is_logic(c->code) || (c->code == ESP_ELT_WHERE && i == 0);
        example.in[i] = (kind_input_t){
            .dtype = logic ? ESP_DTYPE_BOOL : ESP_DTYPE_F64, .rank = 2, .dims = {2, 3}};
        if (!logic) {
            example.in[i].lo = c->lo;
            example.in[i].hi = c->hi;
        }
    }
    return example;
}

static void test_every_code_has_a_case(void **state)
{
    (void)state;
    for (int32_t code = 0; code < ESP_ELT_COUNT; code++) {
        bool found = false;
        for (int32_t i = 0; i < N_CASES; i++)
            found = found || (int32_t)cases[i].code == code;
        assert_true(found);
    }
}

static void test_values(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_CASES; i++) {
        kind_example_t example = example_of(&cases[i]);
        double value;
        for (int32_t j = 0; j < example.n_in; j++) {
            example.in[j].rank = 0;
            example.in[j].values = &cases[i].x[j];
        }
        kind_compute(&example, 0, 0, &value, 1);
        if (!(fabs(value - cases[i].value) <= 1e-12))
            fail_msg("%s (case %d) is %.17g, expected %.17g", cases[i].name, (int)i, value,
                     cases[i].value);
    }
}

static void test_integers(void **state)
{
    static const struct {
        esp_eltwise_t code;
        double a, b, value;
    } rows[] = {
        {ESP_ELT_DIV, 7, 2, 3},        {ESP_ELT_DIV, -7, 2, -3},   {ESP_ELT_DIV, 7, 0, 0},
        {ESP_ELT_DIV_NO_NAN, 7, 2, 3}, {ESP_ELT_POW, 2, 10, 1024}, {ESP_ELT_MOD, -7, 2, 1},
        {ESP_ELT_ADD, 7, 2, 9},        {ESP_ELT_MAX, 7, 2, 7},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kind_example_t example = {.name = "integers",
                                  .kind = ESP_KIND_ELTWISE,
                                  .attr.eltwise = {.code = rows[i].code},
                                  .n_in = 2,
                                  .in = {{.dtype = ESP_DTYPE_I64, .values = &rows[i].a},
                                         {.dtype = ESP_DTYPE_I64, .values = &rows[i].b}}};
        double value;
        kind_compute(&example, 0, 0, &value, 1);
        assert_true(value == rows[i].value);
    }
}

/* Infer, split and linear sets; the union of the declared sets is what the case says. */
static void test_split_and_linear(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_CASES; i++) {
        kind_example_t example = example_of(&cases[i]);
        esp_i_shape_t in[3], out[1] = {{.dtype = ESP_DTYPE_F64, .rank = 2, .dims = {2, 3}}};
        esp_i_op_t op = {
            .attr = &example.attr, .n_in = example.n_in, .n_out = 1, .in = in, .out = out};
        uint64_t masks[4], all = 0;
        for (int32_t j = 0; j < example.n_in; j++)
            in[j] = out[0];
        int32_t n = esp_i_kind(ESP_KIND_ELTWISE)->linear(&op, masks);
        for (int32_t j = 0; j < n; j++)
            all |= masks[j];
        if (all != cases[i].linear)
            fail_msg("%s is linear in %#x", cases[i].name, (unsigned)all);
        kind_check_infer(&example);
        kind_check_split(&example);
        kind_check_linear(&example);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_CASES; i++) {
        kind_example_t example = example_of(&cases[i]);
        if (!cases[i].no_gradient)
            kind_check_gradient(&example);
    }
}

/* Broadcasting to both sides: every gradient is summed to the shape of its input. */
static void test_broadcast_gradients(void **state)
{
    static const esp_eltwise_t codes[] = {ESP_ELT_SUB, ESP_ELT_MUL, ESP_ELT_DIV,       ESP_ELT_POW,
                                          ESP_ELT_MAX, ESP_ELT_MIN, ESP_ELT_DIV_NO_NAN};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        const kind_example_t example = {.name = "broadcast",
                                        .kind = ESP_KIND_ELTWISE,
                                        .attr.eltwise = {.code = codes[i]},
                                        .n_in = 2,
                                        .in = {{.rank = 3, .dims = {2, 1, 3}, .lo = 0.5, .hi = 2},
                                               {.rank = 2, .dims = {4, 1}, .lo = 0.5, .hi = 2}},
                                        .extents = {2, 4, 3}};
        kind_check(&example);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_has_a_case),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_split_and_linear),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_broadcast_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
