#include "exec_traffic.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 60, ROUNDS = 3, PIECES = 4, TAGS = 3, LONGEST = 5000 };

typedef struct item {
    int32_t from, to, tag;
    int64_t bytes;
    esp_i_message_t *message; /* NULL: not of this rank */
    char *data;               /* with gaps between the pieces */
    int32_t n;
    esp_i_piece_t piece[PIECES];
} item_t;

static void draw(item_t *item, int32_t n_ranks, esp_i_rng_t *rng)
{
    item->from = (int32_t)esp_i_rng_below(rng, n_ranks);
    item->to = (int32_t)((item->from + 1 + esp_i_rng_below(rng, n_ranks - 1)) % n_ranks);
    item->tag = (int32_t)esp_i_rng_below(rng, TAGS);
    item->bytes = esp_i_rng_below(rng, 6) == 0 ? 0 : esp_i_rng_below(rng, LONGEST);
}

/* Any pieces, with a guard byte after each. */
static void cut(item_t *item, esp_i_rng_t *rng)
{
    int64_t left = item->bytes, at = 0;
    item->n = 1 + (int32_t)esp_i_rng_below(rng, PIECES);
    item->data = calloc((size_t)item->bytes + PIECES, 1);
    for (int32_t i = 0; i < item->n; i++) {
        const int64_t bytes = i + 1 == item->n ? left : esp_i_rng_below(rng, left + 1);
        item->piece[i] = (esp_i_piece_t){item->data + at, bytes};
        at += bytes + 1;
        left -= bytes;
    }
}

static char byte_of(int32_t index, int32_t round, int64_t at)
{
    return (char)(index * 7 + round * 31 + at * 13 + at / 256);
}

static void fill(item_t *item, int32_t index, int32_t round, bool clear)
{
    int64_t at = 0;
    for (int32_t i = 0; i < item->n; i++)
        for (int64_t k = 0; k < item->piece[i].bytes; k++, at++)
            item->piece[i].data[k] = clear ? (char)0x55 : byte_of(index, round, at);
}

static bool check(const item_t *item, int32_t index, int32_t round)
{
    int64_t at = 0;
    for (int32_t i = 0; i < item->n; i++) {
        for (int64_t k = 0; k < item->piece[i].bytes; k++, at++)
            if (item->piece[i].data[k] != byte_of(index, round, at))
                return false;
        if (item->piece[i].data[item->piece[i].bytes] != 0)
            return false;
    }
    return true;
}

/* Starts mine[0..n) in order and polls until all have ended. */
static esp_status_t batch(esp_i_comm_t *comm, int32_t n, item_t *const *mine, esp_diag_t *diag)
{
    esp_i_message_t *message[MESSAGES];
    bool done[MESSAGES], progress;
    esp_i_idle_t idle = {0};
    int32_t ended = 0;
    for (int32_t i = 0; i < n; i++) {
        message[i] = mine[i]->message;
        ESP_TRY(comm->type->start(comm, message[i], diag));
    }
    while (ended < n) {
        const int32_t before = ended;
        ESP_TRY(comm->type->test(comm, n, message, done, &progress, diag));
        ended = 0;
        for (int32_t i = 0; i < n; i++)
            ended += done[i];
        if (ended < before || (ended > before) != progress)
            return esp_i_fail(diag, ESP_ERR_INTERNAL, "progress is not what has ended");
        esp_i_comm_pause(&idle);
    }
    return ESP_OK;
}

static esp_status_t play(esp_i_comm_t *comm, item_t *item, int32_t round, esp_i_rng_t *rng,
                         esp_diag_t *diag)
{
    item_t *mine[MESSAGES];
    int32_t n = 0;
    for (int32_t i = 0; i < MESSAGES; i++)
        if (item[i].message) {
            fill(&item[i], i, round, item[i].to == comm->rank);
            mine[n++] = &item[i];
        }
    for (int32_t at = 0; at < n;) {
        const int32_t some = (int32_t)esp_i_min_i64(n - at, 1 + esp_i_rng_below(rng, 9));
        ESP_TRY(batch(comm, some, mine + at, diag));
        at += some;
    }
    for (int32_t i = 0; i < MESSAGES; i++)
        if (item[i].message && item[i].to == comm->rank && !check(&item[i], i, round))
            return esp_i_fail(diag, ESP_ERR_INTERNAL, "message %d of round %d is garbled", i,
                              round);
    return ESP_OK;
}

bool traffic_messages(esp_i_comm_t *comm, uint64_t seed, esp_diag_t *diag)
{
    esp_i_rng_t common, own;
    item_t item[MESSAGES];
    esp_status_t status = ESP_OK;
    memset(item, 0, sizeof item);
    esp_i_rng_seed(&common, seed);
    esp_i_rng_seed(&own, seed * 100 + (uint64_t)comm->rank);
    for (int32_t i = 0; i < MESSAGES; i++) {
        draw(&item[i], comm->n_ranks, &common);
        const bool send = item[i].from == comm->rank;
        if (status != ESP_OK || (!send && item[i].to != comm->rank))
            continue;
        cut(&item[i], &own);
        status = comm->type->prepare(comm, send, send ? item[i].to : item[i].from, item[i].tag,
                                     item[i].n, item[i].piece, &item[i].message, diag);
    }
    for (int32_t round = 0; round < ROUNDS && status == ESP_OK; round++)
        status = play(comm, item, round, &own, diag);
    for (int32_t i = 0; i < MESSAGES; i++) {
        if (item[i].message)
            comm->type->release(comm, item[i].message);
        free(item[i].data);
    }
    return status == ESP_OK;
}

bool traffic_collective(esp_i_comm_t *comm, uint64_t seed, esp_diag_t *diag)
{
    int64_t sum = 0, told = 0;
    for (int32_t r = 0; r < comm->n_ranks; r++)
        sum += r * (int64_t)seed;
    if (comm->rank == 0) {
        for (int32_t r = 1; r < comm->n_ranks; r++) {
            int64_t one = 0;
            if (esp_i_comm_receive(comm, r, 3, &one, sizeof one, diag) != ESP_OK)
                return false;
            told += one;
        }
    } else {
        const int64_t one = comm->rank * (int64_t)seed;
        if (esp_i_comm_send(comm, 0, 3, &one, sizeof one, diag) != ESP_OK)
            return false;
    }
    if (esp_i_comm_barrier(comm, diag) != ESP_OK ||
        esp_i_comm_broadcast(comm, &told, sizeof told, diag) != ESP_OK)
        return false;
    if (told != sum)
        (void)esp_i_fail(diag, ESP_ERR_INTERNAL, "the sum is %lld, not %lld", (long long)told,
                         (long long)sum);
    return told == sum;
}
