/* The kinds that are plain loop nests: the harness on all examples.
 */
#include "kind_harness.h"
#include "support.h"

static void test_examples_infer(void **state)
{
    (void)state;
    kind_examples_t examples = kind_examples_a();
    for (int32_t i = 0; i < examples.count; i++)
        kind_check_infer(&examples.data[i]);
}

static void test_examples_split(void **state)
{
    (void)state;
    kind_examples_t examples = kind_examples_a();
    for (int32_t i = 0; i < examples.count; i++)
        kind_check_split(&examples.data[i]);
}

static void test_examples_linear(void **state)
{
    (void)state;
    kind_examples_t examples = kind_examples_a();
    for (int32_t i = 0; i < examples.count; i++)
        kind_check_linear(&examples.data[i]);
}

static void test_examples_gradient(void **state)
{
    (void)state;
    kind_examples_t examples = kind_examples_a();
    for (int32_t i = 0; i < examples.count; i++)
        kind_check_gradient(&examples.data[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples_infer),
        cmocka_unit_test(test_examples_split),
        cmocka_unit_test(test_examples_linear),
        cmocka_unit_test(test_examples_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
