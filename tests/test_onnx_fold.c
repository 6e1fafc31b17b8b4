/*
 * What computes shapes is evaluated: a reshape to [v, -1] whose v comes out of ops on constants.
 */
#include "onnx_writer.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

/* Integers "3 5", or floats "f 2.5": one operand each, of shape [1]. Logic chooses 8 or else 5. */
typedef struct fold {
    const char *type, *operands, *attributes;
    int64_t value;
} fold_t;

static const fold_t folds[] = {
    {"Add", "3 5", "", 8},
    {"Sub", "9 4", "", 5},
    {"Mul", "2 3", "", 6},
    {"Div", "13 4", "", 3},
    {"Div", "9 -3", "", -3},
    {"Mod", "13 5", "", 3},
    {"Mod", "-3 8", "", 5},
    {"Mod", "-13 -5", "fmod=1", -3},
    {"Max", "2 6", "", 6},
    {"Max", "2 6 10", "", 10},
    {"Min", "6 2 3", "", 2},
    {"Sum", "1 2 3", "", 6},
    {"Neg", "-4", "", 4},
    {"Abs", "-6", "", 6},
    {"Add", "f 2.5 5.5", "", 8},
    {"Sub", "f 7.5 2.5", "", 5},
    {"Mul", "f 2.5 4.0", "", 10},
    {"Div", "f 9.0 1.5", "", 6},
    {"Pow", "f 2.0 3.0", "", 8},
    {"Mod", "f -13.0 5.0", "fmod=1", -3},
    {"Max", "f 2.0 6.0", "", 6},
    {"Min", "f 2.0 6.0", "", 2},
    {"Neg", "f -4.0", "", 4},
    {"Abs", "f -6.0", "", 6},
    {"Sqrt", "f 16.0", "", 4},
    {"Reciprocal", "f 0.25", "", 4},
    {"Floor", "f 4.75", "", 4},
    {"Ceil", "f 4.25", "", 5},
    {"Round", "f 4.5", "", 4},
    {"Relu", "f 4.5", "", 4},
    {"Exp", "f 0.0", "", 1},
    {"Less", "1 2", "", 8},
    {"Less", "2 1", "", 5},
    {"LessOrEqual", "2 2", "", 8},
    {"Greater", "f 2.0 1.0", "", 8},
    {"GreaterOrEqual", "f 1.0 2.0", "", 5},
    {"Equal", "3 3", "", 8},
    {"Equal", "f 3.0 2.0", "", 5},
};

static bool is_logic(const char *type)
{
    return strncmp(type, "Less", 4) == 0 || strncmp(type, "Greater", 7) == 0 ||
           strcmp(type, "Equal") == 0;
}

/* Adds the operands; returns their names in `names`. */
static void add_operands(onnx_model_t *m, const char *operands, char names[16])
{
    bool real = operands[0] == 'f';
    char text[64], *rest = text;
    int32_t n = 0;
    snprintf(text, sizeof text, "%s", real ? operands + 2 : operands);
    for (const char *number; (number = strtok_r(rest, " ", &rest)) != NULL; n++) {
        const char name[2] = {(char)('a' + n), '\0'};
        if (real)
            om_floats(m, name, "1", number);
        else
            om_ints(m, name, "1", number);
        names[2 * n] = name[0];
        names[2 * n + 1] = ' ';
    }
    names[2 * n - 1] = '\0';
}

/* |v| and -1 are the target of x[24, 5]; a negative v is negated first. */
static esp_graph_t *folded(const fold_t *fold)
{
    onnx_model_t m;
    char names[16] = "";
    om_init(&m, 14);
    om_input(&m, "x", OM_FLOAT, "24 5");
    om_ints(&m, "eight", "1", "8");
    om_ints(&m, "five", "1", "5");
    om_ints(&m, "rest", "1", "-1");
    add_operands(&m, fold->operands, names);
    om_node(&m, fold->type, names, "r", fold->attributes);
    if (is_logic(fold->type))
        om_node(&m, "Where", "r eight five", "v", "");
    else
        om_node(&m, "Cast", "r", "v", "to=7");
    om_node(&m, fold->value < 0 ? "Neg" : "Abs", "v", "w", "");
    om_node(&m, "Concat", "w rest", "target", "axis=0");
    om_node(&m, "Reshape", "x target", "y", "");
    om_node(&m, "Relu", "y", "z", "");
    om_output(&m, "z");
    return om_graph(&m, NULL);
}

static void test_folds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof folds / sizeof *folds; i++) {
        esp_graph_t *graph = folded(&folds[i]);
        int64_t want = folds[i].value < 0 ? -folds[i].value : folds[i].value;
        int64_t got = graph->tensor_dims[graph->output[0]][0];
        if (got != want)
            fail_msg("%s of %s is %lld instead of %lld", folds[i].type, folds[i].operands,
                     (long long)got, (long long)want);
        esp_graph_destroy(graph);
    }
}

/* And, Or, Xor and Not of comparisons. */
static void test_logic(void **state)
{
    static const struct {
        const char *type, *inputs;
        int64_t value;
    } cases[] = {
        {"And", "yes no", 5}, {"And", "yes yes", 8}, {"Or", "no yes", 8},
        {"Xor", "yes no", 8}, {"Xor", "no no", 5},   {"Not", "no", 8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_model_t m;
        om_init(&m, 14);
        om_input(&m, "x", OM_FLOAT, "24 5");
        om_ints(&m, "eight", "1", "8");
        om_ints(&m, "five", "1", "5");
        om_ints(&m, "rest", "1", "-1");
        om_node(&m, "Less", "five eight", "yes", "");
        om_node(&m, "Less", "eight five", "no", "");
        om_node(&m, cases[i].type, cases[i].inputs, "r", "");
        om_node(&m, "Where", "r eight five", "v", "");
        om_node(&m, "Concat", "v rest", "target", "axis=0");
        om_node(&m, "Reshape", "x target", "y", "");
        om_node(&m, "Relu", "y", "z", "");
        om_output(&m, "z");
        esp_graph_t *graph = om_graph(&m, NULL);
        assert_int_equal(graph->tensor_dims[graph->output[0]][0], cases[i].value);
        esp_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folds),
        cmocka_unit_test(test_logic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
