/*
 * Movements as stages of messages: each kind by each algorithm, between random devices of random
 * clusters, carried out by all devices in step, without buffers between them. What arrives is what
 * a naive movement makes, memory that is nobody's business stays as it is, and links carry what
 * their pattern says.
 */
#include "movement.h"

/* Whether every node has equally many of the sources. */
static bool nodes_even(const movement_t *f)
{
    const side_t *side = &f->side[0];
    int32_t count[MOVEMENT_DEVICES] = {0}, most = 0, nodes = 0;
    for (int32_t k = 0; k < side->n; k++) {
        int32_t *n = &count[f->cluster->device_node[side->device[k]]];
        nodes += *n == 0;
        most = ++*n > most ? *n : most;
    }
    return most * nodes == side->n;
}

/* done: per kind and algorithm; 4: two-level on nodes of unequal size. */
static void all_algorithms(draw_t *draw, int32_t done[ESP_COMM_COUNT][5])
{
    movement_t f;
    esp_pattern_t pattern[ESP_PATTERN_MAX];
    int32_t count;
    movement_make(&f, draw);
    movement_data(&f, draw);
    const esp_place_t from = movement_place(&f, 0), to = movement_place(&f, 1);
    assert_int_equal(esp_pattern_find(f.cluster, draw->kind, &from, &to, NULL, pattern, &count),
                     ESP_OK);
    for (int32_t i = 0; i < count; i++) {
        movement_run(&f, draw, &pattern[i]);
        const bool two_level = pattern[i].algorithm == ESP_ALGORITHM_TWO_LEVEL;
        done[draw->kind][two_level && !nodes_even(&f) ? 4 : pattern[i].algorithm]++;
        esp_pattern_release(&pattern[i], NULL);
    }
    movement_free(&f);
}

static void check_kinds(draw_t draw, uint64_t seed, int32_t trials)
{
    /* algorithms that must occur: direct, ring, tree, two-level, the same on unequal nodes */
    static const uint8_t known[ESP_COMM_COUNT] = {
        [ESP_COMM_ALLREDUCE] = 30, [ESP_COMM_REDUCE_SCATTER] = 10, [ESP_COMM_ALL_GATHER] = 10,
        [ESP_COMM_REDUCE] = 9,     [ESP_COMM_BROADCAST] = 7,       [ESP_COMM_EXCHANGE] = 1,
        [ESP_COMM_GATHER] = 9,     [ESP_COMM_SCATTER] = 1,         [ESP_COMM_ALL_TO_ALL] = 1};
    int32_t done[ESP_COMM_COUNT][5] = {{0}};
    for (int32_t kind = 0; kind < ESP_COMM_COUNT; kind++) {
        for (int32_t i = 0; i < trials; i++) {
            draw.kind = (esp_comm_t)kind;
            esp_i_rng_seed(&draw.rng, seed + (uint64_t)i);
            all_algorithms(&draw, done);
        }
        for (int32_t a = 0; a < 5; a++)
            if (done[kind][a] == 0 && known[kind] >> a & 1)
                fail_msg("no %s by algorithm %d", esp_comm_name((esp_comm_t)kind), a);
    }
}

enum { TRIALS = 50, EXACT_TRIALS = 24 };

static void test_wide(void **state)
{
    (void)state;
    check_kinds((draw_t){.wide = true}, 1, TRIALS);
}

static void test_narrow(void **state)
{
    (void)state;
    check_kinds((draw_t){.wide = false}, 1001, TRIALS);
}

static void test_shared(void **state)
{
    (void)state;
    check_kinds((draw_t){.wide = true, .shared = true}, 2001, TRIALS);
}

static void test_loads(void **state)
{
    (void)state;
    check_kinds((draw_t){.wide = true, .exact = true}, 3001, EXACT_TRIALS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_loads),
    };
    return cmocka_run_group_tests_name("exec_schedule", tests, NULL, NULL);
}
