/* Communication between ranks of one process; under MPI by tests/test_exec_mpi.sh. */
#include "exec_traffic.h"
#include "support.h"

#include <pthread.h>
#include <stdlib.h>

enum { MOST_RANKS = 8 };

typedef struct rank {
    esp_i_comm_t *comm;
    uint64_t seed;
    bool fine;
    esp_diag_t diag;
    pthread_t thread;
} rank_t;

static void run_ranks(int32_t n, uint64_t seed, void *(*fn)(void *), rank_t *rank)
{
    esp_i_comm_t *comm[MOST_RANKS];
    test_memory_t memory;
    test_memory_init(&memory);
    assert_int_equal(esp_i_comm_local_create(&memory.alloc, n, comm), ESP_OK);
    for (int32_t r = 0; r < n; r++) {
        rank[r] = (rank_t){.comm = comm[r], .seed = seed};
        assert_int_equal(comm[r]->rank, r);
        assert_int_equal(comm[r]->n_ranks, n);
        assert_int_equal(pthread_create(&rank[r].thread, NULL, fn, &rank[r]), 0);
    }
    for (int32_t r = 0; r < n; r++)
        pthread_join(rank[r].thread, NULL);
    for (int32_t r = 0; r < n; r++)
        comm[r]->type->destroy(comm[r]);
    test_memory_check(&memory);
}

static void *traffic(void *argument)
{
    rank_t *rank = argument;
    rank->fine = traffic_messages(rank->comm, rank->seed, &rank->diag) &&
                 traffic_collective(rank->comm, rank->seed, &rank->diag);
    return NULL;
}

static void test_traffic(void **state)
{
    (void)state;
    const int32_t seeds = getenv("ESP_FULL") ? 200 : 25;
    for (int32_t seed = 0; seed < seeds; seed++) {
        rank_t rank[MOST_RANKS];
        const int32_t n = 2 + seed % (MOST_RANKS - 1);
        run_ranks(n, (uint64_t)seed, traffic, rank);
        for (int32_t r = 0; r < n; r++)
            if (!rank[r].fine)
                fail_msg("seed %d, rank %d of %d: %s", seed, r, n, rank[r].diag.text);
    }
}

static void test_alone(void **state)
{
    (void)state;
    esp_i_comm_t *comm;
    esp_diag_t diag = {0};
    int32_t value = 5;
    assert_int_equal(esp_i_comm_local_create(NULL, 1, &comm), ESP_OK);
    test_assert_ok(esp_i_comm_barrier(comm, &diag), &diag);
    test_assert_ok(esp_i_comm_broadcast(comm, &value, sizeof value, &diag), &diag);
    assert_int_equal(value, 5);
    comm->type->destroy(comm);
}

/* Rank 1 gives up; the others wait for what never comes. */
static void *give_up(void *argument)
{
    rank_t *rank = argument;
    char data = 0;
    if (rank->comm->rank == 1) {
        esp_diag_t why = {.status = ESP_ERR_IO};
        (void)esp_i_fail(&why, ESP_ERR_IO, "step 3, op gelu: no more");
        esp_i_diag_place(&why, "rank 1 (n/gpu1)");
        rank->comm->type->abort(rank->comm, &why);
    }
    rank->fine = esp_i_comm_receive(rank->comm, (rank->comm->rank + 1) % 3, 7, &data, 1,
                                    &rank->diag) == ESP_ERR_IO;
    return NULL;
}

static void test_abort(void **state)
{
    (void)state;
    rank_t rank[MOST_RANKS];
    esp_i_comm_t *comm[3];
    assert_int_equal(esp_i_comm_local_create(NULL, 3, comm), ESP_OK);
    for (int32_t r = 0; r < 3; r++) {
        rank[r] = (rank_t){.comm = comm[r]};
        assert_int_equal(pthread_create(&rank[r].thread, NULL, give_up, &rank[r]), 0);
    }
    for (int32_t r = 0; r < 3; r++) {
        pthread_join(rank[r].thread, NULL);
        assert_true(rank[r].fine);
        assert_string_equal(rank[r].diag.text, "step 3, op gelu: no more");
        assert_string_equal(rank[r].diag.place, "rank 1 (n/gpu1)");
    }
    for (int32_t r = 0; r < 3; r++)
        comm[r]->type->destroy(comm[r]);
}

static void test_sizes_differ(void **state)
{
    (void)state;
    esp_i_comm_t *comm[2];
    esp_i_message_t *message[2];
    char data[8] = {0};
    esp_diag_t diag = {0};
    assert_int_equal(esp_i_comm_local_create(NULL, 2, comm), ESP_OK);
    for (int32_t r = 0; r < 2; r++) {
        const esp_i_piece_t piece = {data + 4 * r, 3 + r};
        test_assert_ok(
            comm[r]->type->prepare(comm[r], r == 0, 1 - r, 0, 1, &piece, &message[r], &diag),
            &diag);
    }
    test_assert_ok(comm[0]->type->start(comm[0], message[0], &diag), &diag);
    test_assert_fails(comm[1]->type->start(comm[1], message[1], &diag), &diag, ESP_ERR_IO,
                      "4 bytes here and 3 on rank 0");
    for (int32_t r = 0; r < 2; r++) {
        comm[r]->type->release(comm[r], message[r]);
        comm[r]->type->destroy(comm[r]);
    }
}

static void count_wakes(void *context)
{
    ++*(_Atomic int32_t *)context;
}

/* The side that waited is told; also when the job fails. */
static void test_wakes(void **state)
{
    (void)state;
    esp_i_comm_t *comm[2];
    esp_i_message_t *message[2];
    char data[2] = {1, 2};
    _Atomic int32_t wakes = 0;
    bool done = false, progress = false;
    assert_int_equal(esp_i_comm_local_create(NULL, 2, comm), ESP_OK);
    comm[0]->wake_context = &wakes;
    comm[0]->wake = count_wakes;
    for (int32_t r = 0; r < 2; r++) {
        const esp_i_piece_t piece = {data + r, 1};
        assert_int_equal(
            comm[r]->type->prepare(comm[r], r == 1, 1 - r, 0, 1, &piece, &message[r], NULL),
            ESP_OK);
        assert_int_equal(comm[r]->type->start(comm[r], message[r], NULL), ESP_OK);
        assert_int_equal(wakes, r);
    }
    assert_int_equal(data[0], 2);
    assert_int_equal(comm[0]->type->test(comm[0], 1, message, &done, &progress, NULL), ESP_OK);
    assert_true(done && progress);
    assert_int_equal(comm[0]->type->test(comm[0], 1, message, &done, &progress, NULL), ESP_OK);
    assert_true(done && !progress);
    comm[1]->type->abort(comm[1], &(esp_diag_t){.text = "end"});
    assert_int_equal(wakes, 2);
    for (int32_t r = 0; r < 2; r++) {
        comm[r]->type->release(comm[r], message[r]);
        comm[r]->type->destroy(comm[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traffic), cmocka_unit_test(test_alone),
        cmocka_unit_test(test_abort),   cmocka_unit_test(test_sizes_differ),
        cmocka_unit_test(test_wakes),
    };
    return cmocka_run_group_tests_name("exec_comm", tests, NULL, NULL);
}
