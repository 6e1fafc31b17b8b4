/* The registry: every kind is complete and has an example that the harness checks. */
#include "kind_harness.h"
#include "support.h"

static void test_registry(void **state)
{
    (void)state;
    const kind_examples_t lists[] = {kind_examples_a(), kind_examples_b(), kind_examples_c()};
    kind_check_registry(lists, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_registry)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
