/*
 * The fast kernels of the CPU backend against the reference kernels, in double: contraction.
 * Errors are relative to the norm of an output: 1e-5 (sums of up to some thousand terms).
 */
#include "fast_harness.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

#define TOLERANCE 1e-5

static void test_examples(void **state)
{
    (void)state;
    const kind_examples_t list = kind_examples_a();
    for (int32_t i = 0; i < list.count; i++) {
        if (list.data[i].kind != ESP_KIND_CONTRACT)
            continue;
        fast_check(&list.data[i], esp_i_cpu_CONTRACT, FAST_SCRATCH_NONE, TOLERANCE);
        fast_check_split(&list.data[i], esp_i_cpu_CONTRACT, FAST_SCRATCH_NONE, TOLERANCE);
    }
}

/* Draws an einsum: every label in a set of operands that a contraction may have, in any order. */
static void draw_contract(esp_i_rng_t *rng, int32_t labels, int64_t most, kind_example_t *example)
{
    static const int32_t sets[7] = {5, 6, 3, 7, 1, 2, 5}; /* bits: a, b, y */
    int8_t *list[3] = {example->attr.contract.a, example->attr.contract.b,
                       example->attr.contract.y};
    int64_t extent[32];
    int32_t n[3] = {0};
    for (int32_t l = 0; l < labels; l++) {
        const int32_t set = sets[esp_i_rng_below(rng, 7)];
        extent[l] = 1 + esp_i_rng_below(rng, most);
        for (int32_t o = 0; o < 3; o++) {
            if (!(set >> o & 1))
                continue;
            const int64_t at = esp_i_rng_below(rng, n[o] + 1);
            memmove(list[o] + at + 1, list[o] + at, (size_t)(n[o]++ - at));
            list[o][at] = (int8_t)('a' + l);
        }
    }
    example->n_in = 2;
    for (int32_t o = 0; o < 2; o++) {
        example->in[o].rank = n[o];
        example->in[o].lo = -0.5; /* a sum of very many does not cancel */
        example->in[o].hi = 1;
        for (int32_t a = 0; a < n[o]; a++)
            example->in[o].dims[a] = extent[list[o][a] - 'a'];
    }
}

static void test_random_contract(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 1);
    for (int32_t round = 0; round < 400; round++) {
        kind_example_t example = {.name = "random contraction", .kind = ESP_KIND_CONTRACT};
        const int32_t labels = 1 + (int32_t)esp_i_rng_below(&rng, 6);
        draw_contract(&rng, labels, labels <= 3 ? 40 : 6, &example);
        if (example.in[0].rank > ESP_MAX_RANK - 1 || example.in[1].rank > ESP_MAX_RANK - 1)
            continue;
        fast_check(&example, esp_i_cpu_CONTRACT, FAST_SCRATCH_NONE, TOLERANCE);
        if (round % 8 == 0 && labels > 3)
            fast_check_split(&example, esp_i_cpu_CONTRACT, FAST_SCRATCH_NONE, TOLERANCE);
    }
}

/* More rows, columns and sums than a tile has, with neighbours in memory nowhere in common. */
static void test_tiles(void **state)
{
    (void)state;
    const kind_example_t example = {
        .name = "tiles",
        .kind = ESP_KIND_CONTRACT,
        .attr.contract = {.a = "mxk", .b = "nky", .y = "ynxm"},
        .n_in = 2,
        .in = {{.rank = 3, .dims = {20, 9, 300}}, {.rank = 3, .dims = {30, 300, 11}}}};
    fast_check(&example, esp_i_cpu_CONTRACT, FAST_SCRATCH_NONE, TOLERANCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_examples),
                                       cmocka_unit_test(test_random_contract),
                                       cmocka_unit_test(test_tiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
