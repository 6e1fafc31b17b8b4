/* Checked arithmetic, apportionment, random numbers. */
#include "support.h"

#include <math.h>
#include <string.h>

/* ---- arithmetic --------------------------------------------------------------------------- */

static void test_checked_arithmetic(void **state)
{
    (void)state;
    int64_t out = 5;
    assert_true(esp_i_add_i64(INT64_MAX - 1, 1, &out));
    assert_true(out == INT64_MAX);
    assert_false(esp_i_add_i64(INT64_MAX, 1, &out));
    assert_false(esp_i_add_i64(INT64_MIN, -1, &out));
    assert_true(esp_i_mul_i64(INT64_C(1) << 31, INT64_C(1) << 31, &out));
    assert_true(out == INT64_C(1) << 62);
    assert_false(esp_i_mul_i64(INT64_C(1) << 32, INT64_C(1) << 31, &out));
    assert_int_equal(esp_i_min_i64(-1, 2), -1);
    assert_int_equal(esp_i_max_i64(-1, 2), 2);
    assert_int_equal(esp_i_ceil_div(7, 3), 3);
    assert_int_equal(esp_i_ceil_div(6, 3), 2);
    assert_int_equal(esp_i_ceil_div(0, 3), 0);
    assert_true(esp_i_ceil_div(INT64_MAX, 2) == INT64_C(1) << 62);
    assert_true(esp_i_ceil_div(INT64_MAX, INT64_MAX) == 1);
}

/*
 * The naive twin: gives out the spare units one by one, each time to the largest remainder not yet
 * served, the first of equals. Integer weights keep it exact.
 */
static void apportion_naively(int64_t total, int64_t granule, int32_t n, const int64_t *weights,
                              int64_t *shares)
{
    int64_t units = total / granule, sum = 0, spare = units;
    for (int32_t i = 0; i < n; i++)
        sum += weights[i];
    int64_t rest[64];
    for (int32_t i = 0; i < n; i++) {
        shares[i] = units * weights[i] / sum;
        rest[i] = units * weights[i] % sum;
        spare -= shares[i];
    }
    for (; spare > 0; spare--) {
        int32_t best = 0;
        for (int32_t i = 1; i < n; i++)
            if (rest[i] > rest[best])
                best = i;
        shares[best]++;
        rest[best] = -1;
    }
    for (int32_t i = 0; i < n; i++)
        shares[i] *= granule;
}

static void test_apportion_against_twin(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 1);
    for (int round = 0; round < 20000; round++) {
        int64_t weights[64], expected[64], shares[64], sum = 0;
        double real[64];
        int32_t n = (int32_t)esp_i_rng_below(&rng, 64) + 1;
        int64_t granule = esp_i_rng_below(&rng, 5) + 1;
        int64_t total = granule * esp_i_rng_below(&rng, round % 2 != 0 ? 20 : 100000);
        int64_t range = round % 3 != 0 ? 4 : 1000000; /* small ranges have many ties and zeros */
        for (int32_t i = 0; i < n; i++)
            weights[i] = esp_i_rng_below(&rng, range);
        weights[esp_i_rng_below(&rng, n)]++;
        double scale = ldexp(1, (int)esp_i_rng_below(&rng, 200) - 100);
        for (int32_t i = 0; i < n; i++)
            real[i] = (double)weights[i] * scale;
        apportion_naively(total, granule, n, weights, expected);
        esp_i_apportion(total, granule, n, real, shares);
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(shares[i], expected[i]);
            assert_true(weights[i] > 0 || shares[i] == 0);
            sum += shares[i];
        }
        assert_int_equal(sum, total);
    }
}

static void test_apportion_edges(void **state)
{
    (void)state;
    int64_t shares[4];
    esp_i_apportion(7, 1, 1, (const double[]){3}, shares);
    assert_int_equal(shares[0], 7);
    esp_i_apportion(0, 3, 2, (const double[]){1, 2}, shares);
    assert_int_equal(shares[0] + shares[1], 0);
    /* Equal weights: the lower indices get the spare units. */
    esp_i_apportion(7, 1, 4, (const double[]){0.1, 0.1, 0.1, 0.1}, shares);
    assert_memory_equal(shares, ((const int64_t[]){2, 2, 2, 1}), sizeof shares);
    /* Tenths are not exact in binary; whole quotas must still come out whole. */
    esp_i_apportion(10, 1, 4, (const double[]){0.1, 0.2, 0.3, 0.4}, shares);
    assert_memory_equal(shares, ((const int64_t[]){1, 2, 3, 4}), sizeof shares);
    esp_i_apportion(INT64_MAX, 1, 4, (const double[]){1, 0, 1e-300, 1}, shares);
    assert_memory_equal(shares, ((const int64_t[]){INT64_MAX / 2 + 1, 0, 0, INT64_MAX / 2}),
                        sizeof shares);
    esp_i_apportion(8, 4, 3, (const double[]){1e300, 5e-324, 1e300}, shares);
    assert_memory_equal(shares, ((const int64_t[]){4, 0, 4}), 3 * sizeof shares[0]);
    esp_i_apportion(4, 2, 2, (const double[]){5e-324, 5e-324}, shares);
    assert_memory_equal(shares, ((const int64_t[]){2, 2}), 2 * sizeof shares[0]);
}

/* ---- random numbers ----------------------------------------------------------------------- */

static void test_rng_is_xoshiro(void **state)
{
    (void)state;
    /* The first outputs of the authors' xoshiro256starstar.c from the state 1, 2, 3, 4. */
    static const uint64_t expected[] = {UINT64_C(11520), UINT64_C(0), UINT64_C(1509978240),
                                        UINT64_C(1215971899390074240),
                                        UINT64_C(1216172134540287360)};
    esp_i_rng_t rng = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_true(esp_i_rng_u64(&rng) == expected[i]);
    /* splitmix64 from 0 begins with this word. */
    esp_i_rng_seed(&rng, 0);
    assert_true(rng.s[0] == UINT64_C(0xe220a8397b1dcdaf));
}

static void test_rng_ranges(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 7);
    int32_t counts[3] = {0};
    double sum = 0;
    for (int i = 0; i < 30000; i++) {
        counts[esp_i_rng_below(&rng, 3)]++;
        double unit = esp_i_rng_unit(&rng);
        assert_true(unit >= 0 && unit < 1);
        sum += unit;
    }
    for (int i = 0; i < 3; i++)
        assert_in_range(counts[i], 9700, 10300);
    assert_true(fabs(sum / 30000 - 0.5) < 0.01);
    assert_int_equal(esp_i_rng_below(&rng, 1), 0);
    for (int i = 0; i < 1000; i++)
        assert_true(esp_i_rng_below(&rng, INT64_MAX) >= 0);
}

/* The known answers of Random123 for philox4x32 with 10 rounds. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } answers[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        uint32_t out[4];
        esp_i_philox4x32(answers[i].counter, answers[i].key, out);
        assert_memory_equal(out, answers[i].out, sizeof out);
    }
}

static void test_philox_elements(void **state)
{
    (void)state;
    /* seed 0, step 0, stream 0: the words of the first known answer, in order. */
    static const uint32_t first[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(esp_i_philox(0, 0, 0, i), first[i]);
    /* The third known answer through the arguments: word 1 of this element's counter. */
    uint64_t element = (UINT64_C(0x05a308d3) << 32 | UINT64_C(0x243f6a88)) << 2 | 1;
    uint32_t out[4];
    esp_i_philox4x32((const uint32_t[]){0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344},
                     (const uint32_t[]){0xa4093822, 0x299f31d0}, out);
    assert_int_equal(esp_i_philox(UINT64_C(0x299f31d0a4093822), 0x13198a2e, 0x03707344, element),
                     out[1]);
    /* Every argument matters, also its high half. */
    const uint64_t high = UINT64_C(1) << 40;
    uint32_t base = esp_i_philox(5, 6, 7, 8);
    assert_int_not_equal(base, esp_i_philox(4, 6, 7, 8));
    assert_int_not_equal(base, esp_i_philox(5 + high, 6, 7, 8));
    assert_int_not_equal(base, esp_i_philox(5, 6 + high, 7, 8));
    assert_int_not_equal(base, esp_i_philox(5, 6, 7 + high, 8));
    assert_int_not_equal(esp_i_philox(5, 6 + high, 7, 8), esp_i_philox(5, 6, 7 + high, 8));
    assert_int_not_equal(base, esp_i_philox(5, 6, 7, 8 + high));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked_arithmetic), cmocka_unit_test(test_apportion_against_twin),
        cmocka_unit_test(test_apportion_edges),    cmocka_unit_test(test_rng_is_xoshiro),
        cmocka_unit_test(test_rng_ranges),         cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_philox_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
