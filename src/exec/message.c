/* Collective calls made of messages: to set up a run and to read its results. */
#include "exec/comm.h"

#include <sched.h>
#include <time.h>

enum {
    TAG_DATA = ESP_I_TAG_CONTROL, /* plus the tag of the caller */
    TAG_BARRIER = ESP_I_TAG_CONTROL + (1 << 20),
    TAG_BROADCAST,
    SPIN_NS = 20000, /* less than it takes to fall asleep and wake */
    SLEEP_NS = 5000,
    LONGEST_SLEEP_NS = 500000
};

int64_t esp_i_comm_pause_ns(esp_i_idle_t *idle)
{
    const int64_t now = esp_i_now_ns();
    if (idle->since_ns == 0)
        idle->since_ns = now;
    if (now - idle->since_ns < SPIN_NS)
        return 0;
    idle->sleep_ns = esp_i_min_i64(idle->sleep_ns + SLEEP_NS, LONGEST_SLEEP_NS);
    return idle->sleep_ns;
}

void esp_i_comm_pause(esp_i_idle_t *idle)
{
    const struct timespec sleep = {.tv_nsec = (long)esp_i_comm_pause_ns(idle)};
    if (sleep.tv_nsec == 0)
        (void)sched_yield();
    else
        (void)nanosleep(&sleep, NULL);
}

esp_status_t esp_i_comm_exchange(esp_i_comm_t *comm, int32_t n, esp_i_message_t *const *message,
                                 esp_diag_t *diag)
{
    bool done[2] = {false, n < 2}, progress;
    esp_i_idle_t idle = {0};
    for (int32_t i = 0; i < n; i++)
        ESP_TRY(comm->type->start(comm, message[i], diag));
    for (;;) {
        ESP_TRY(comm->type->test(comm, n, message, done, &progress, diag));
        if (done[0] && done[1])
            return ESP_OK;
        if (progress)
            idle = (esp_i_idle_t){0};
        esp_i_comm_pause(&idle);
    }
}

static esp_status_t one_message(esp_i_comm_t *comm, bool send, int32_t peer, int32_t tag,
                                char *data, int64_t bytes, esp_diag_t *diag)
{
    const esp_i_piece_t piece = {data, bytes};
    esp_i_message_t *message;
    ESP_TRY(comm->type->prepare(comm, send, peer, tag, 1, &piece, &message, diag));
    const esp_status_t status = esp_i_comm_exchange(comm, 1, &message, diag);
    comm->type->release(comm, message);
    return status;
}

esp_status_t esp_i_comm_send(esp_i_comm_t *comm, int32_t peer, int32_t tag, const void *data,
                             int64_t bytes, esp_diag_t *diag)
{
    return one_message(comm, true, peer, TAG_DATA + tag, (char *)data, bytes, diag);
}

esp_status_t esp_i_comm_receive(esp_i_comm_t *comm, int32_t peer, int32_t tag, void *data,
                                int64_t bytes, esp_diag_t *diag)
{
    return one_message(comm, false, peer, TAG_DATA + tag, data, bytes, diag);
}

/* One round: tells the rank `distance` ahead, hears of the one as far behind. */
static esp_status_t barrier_round(esp_i_comm_t *comm, int32_t distance, esp_diag_t *diag)
{
    const int32_t n = comm->n_ranks;
    const int32_t ahead = (comm->rank + distance) % n, behind = (comm->rank + n - distance) % n;
    char out = 0, in = 0;
    const esp_i_piece_t piece[2] = {{&out, 1}, {&in, 1}};
    esp_i_message_t *message[2];
    ESP_TRY(comm->type->prepare(comm, true, ahead, TAG_BARRIER, 1, &piece[0], &message[0], diag));
    esp_status_t status =
        comm->type->prepare(comm, false, behind, TAG_BARRIER, 1, &piece[1], &message[1], diag);
    if (status != ESP_OK) {
        comm->type->release(comm, message[0]);
        return status;
    }
    status = esp_i_comm_exchange(comm, 2, message, diag);
    for (int32_t i = 0; i < 2; i++)
        comm->type->release(comm, message[i]);
    return status;
}

esp_status_t esp_i_comm_barrier(esp_i_comm_t *comm, esp_diag_t *diag)
{
    for (int32_t distance = 1; distance < comm->n_ranks; distance *= 2)
        ESP_TRY(barrier_round(comm, distance, diag));
    return ESP_OK;
}

/* Along a binomial tree: rank r hears from r less its lowest bit. */
esp_status_t esp_i_comm_broadcast(esp_i_comm_t *comm, void *data, int64_t bytes, esp_diag_t *diag)
{
    int32_t bit = 1;
    while (bit < comm->n_ranks && !(comm->rank & bit))
        bit *= 2;
    if (comm->rank > 0)
        ESP_TRY(one_message(comm, false, comm->rank - bit, TAG_BROADCAST, data, bytes, diag));
    for (bit /= 2; bit > 0; bit /= 2)
        if (comm->rank + bit < comm->n_ranks)
            ESP_TRY(one_message(comm, true, comm->rank + bit, TAG_BROADCAST, data, bytes, diag));
    return ESP_OK;
}
