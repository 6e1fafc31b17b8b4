/*
 * Ranks in one process. Whichever side of a message starts second copies from the pieces of the
 * sender to those of the receiver; the side that starts first waits in the mailbox of the receiver.
 */
#include "exec/comm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

typedef struct endpoint endpoint_t;

typedef struct message {
    endpoint_t *owner;
    bool send, waiting;     /* waiting: in a mailbox, under its mutex */
    bool started, reported; /* reported by test; both of the owner's thread */
    atomic_bool done;
    int32_t peer, tag, n;
    esp_i_piece_t *piece;
    int64_t bytes;
    struct message *next;
} message_t;

/* What one receiver waits for and what waits for it, in the order of starting. */
typedef struct mailbox {
    pthread_mutex_t mutex;
    message_t *first;
} mailbox_t;

struct endpoint {
    esp_i_comm_t base;
    struct hub *hub;
    mailbox_t mailbox;
};

typedef struct hub {
    esp_allocator_t alloc;
    int32_t n;
    atomic_int users; /* endpoints that are not destroyed */
    atomic_bool failed;
    pthread_mutex_t mutex; /* of why */
    esp_diag_t why;
    endpoint_t *endpoint;
} hub_t;

static esp_status_t relay(hub_t *hub, esp_diag_t *diag)
{
    pthread_mutex_lock(&hub->mutex);
    if (diag)
        *diag = hub->why;
    pthread_mutex_unlock(&hub->mutex);
    return ESP_ERR_IO;
}

static esp_status_t prepare(esp_i_comm_t *self, bool send, int32_t peer, int32_t tag, int32_t n,
                            const esp_i_piece_t *piece, esp_i_message_t **out, esp_diag_t *diag)
{
    endpoint_t *owner = (endpoint_t *)self;
    const esp_allocator_t *alloc = &owner->hub->alloc;
    message_t *message = esp_i_alloc_array(alloc, 1, sizeof *message);
    esp_i_piece_t *copy = esp_i_alloc_array(alloc, n, sizeof *copy);
    if (!message || !copy) {
        esp_i_free(alloc, message);
        esp_i_free(alloc, copy);
        return esp_i_nomem(diag);
    }
    *message =
        (message_t){.owner = owner, .send = send, .peer = peer, .tag = tag, .n = n, .piece = copy};
    for (int32_t i = 0; i < n; i++) {
        copy[i] = piece[i];
        message->bytes += piece[i].bytes;
    }
    *out = (esp_i_message_t *)message;
    return ESP_OK;
}

static mailbox_t *mailbox_of(const message_t *message)
{
    const endpoint_t *owner = message->owner;
    const int32_t receiver = message->send ? message->peer : owner->base.rank;
    return &owner->hub->endpoint[receiver].mailbox;
}

static bool matches(const message_t *a, const message_t *b)
{
    return a->send != b->send && a->tag == b->tag && a->peer == b->owner->base.rank &&
           b->peer == a->owner->base.rank;
}

/*
 * The other side, if it waits; otherwise the message waits for it. One of another size stays where
 * it is: *bytes_out is that size.
 */
static message_t *meet(mailbox_t *box, message_t *message, int64_t *bytes_out)
{
    pthread_mutex_lock(&box->mutex);
    message_t **at = &box->first;
    while (*at && !matches(*at, message))
        at = &(*at)->next;
    message_t *other = *at;
    *bytes_out = other ? other->bytes : message->bytes;
    if (!other) {
        message->next = NULL;
        message->waiting = true;
        *at = message;
    } else if (other->bytes == message->bytes) {
        *at = other->next;
        other->waiting = false;
    }
    pthread_mutex_unlock(&box->mutex);
    return other;
}

static void copy_pieces(const message_t *to, const message_t *from)
{
    int64_t read = 0, written = 0; /* in the pieces at hand */
    for (int32_t i = 0, k = 0; i < to->n && k < from->n;) {
        const int64_t n = esp_i_min_i64(to->piece[i].bytes - written, from->piece[k].bytes - read);
        if (n > 0)
            memcpy(to->piece[i].data + written, from->piece[k].data + read, (size_t)n);
        written += n;
        read += n;
        if (written == to->piece[i].bytes) {
            written = 0;
            i++;
        }
        if (k < from->n && read == from->piece[k].bytes) {
            read = 0;
            k++;
        }
    }
}

/* The other side's owner may release it as soon as it is done. */
static void finish(message_t *message)
{
    const esp_i_comm_t *owner = &message->owner->base;
    void (*wake)(void *) = owner->wake;
    void *context = owner->wake_context;
    atomic_store_explicit(&message->done, true, memory_order_release);
    if (wake)
        wake(context);
}

static esp_status_t start(esp_i_comm_t *self, esp_i_message_t *handle, esp_diag_t *diag)
{
    hub_t *hub = ((endpoint_t *)self)->hub;
    message_t *message = (message_t *)handle;
    if (atomic_load_explicit(&hub->failed, memory_order_acquire))
        return relay(hub, diag);
    int64_t bytes;
    message->started = message->reported = false;
    atomic_store_explicit(&message->done, false, memory_order_relaxed);
    message_t *other = meet(mailbox_of(message), message, &bytes);
    if (bytes != message->bytes)
        return esp_i_fail(diag, ESP_ERR_IO,
                          "a message of tag %d has %lld bytes here and %lld on rank %d",
                          message->tag, (long long)message->bytes, (long long)bytes, message->peer);
    message->started = true;
    if (!other)
        return ESP_OK;
    copy_pieces(message->send ? other : message, message->send ? message : other);
    atomic_store_explicit(&message->done, true, memory_order_relaxed);
    finish(other);
    return ESP_OK;
}

static esp_status_t test(esp_i_comm_t *self, int32_t n, esp_i_message_t *const *handle, bool *done,
                         bool *progress_out, esp_diag_t *diag)
{
    hub_t *hub = ((endpoint_t *)self)->hub;
    bool progress = false;
    if (atomic_load_explicit(&hub->failed, memory_order_acquire))
        return relay(hub, diag);
    for (int32_t i = 0; i < n; i++) {
        message_t *message = (message_t *)handle[i];
        done[i] = atomic_load_explicit(&message->done, memory_order_acquire);
        progress |= done[i] && !message->reported;
        message->reported |= done[i];
    }
    *progress_out = progress;
    return ESP_OK;
}

static void release(esp_i_comm_t *self, esp_i_message_t *handle)
{
    const esp_allocator_t *alloc = &((endpoint_t *)self)->hub->alloc;
    message_t *message = (message_t *)handle;
    mailbox_t *box = mailbox_of(message);
    pthread_mutex_lock(&box->mutex);
    const bool waiting = message->waiting;
    message_t **at = &box->first;
    while (waiting && *at != message)
        at = &(*at)->next;
    if (waiting)
        *at = message->next;
    pthread_mutex_unlock(&box->mutex);
    /* otherwise the other side may be copying */
    esp_i_idle_t idle = {0};
    while (message->started && !waiting &&
           !atomic_load_explicit(&message->done, memory_order_acquire))
        esp_i_comm_pause(&idle);
    esp_i_free(alloc, message->piece);
    esp_i_free(alloc, message);
}

static void fail_all(esp_i_comm_t *self, const esp_diag_t *why)
{
    hub_t *hub = ((endpoint_t *)self)->hub;
    pthread_mutex_lock(&hub->mutex);
    if (!atomic_load_explicit(&hub->failed, memory_order_relaxed))
        hub->why = *why;
    atomic_store_explicit(&hub->failed, true, memory_order_release);
    pthread_mutex_unlock(&hub->mutex);
    for (int32_t r = 0; r < hub->n; r++)
        if (hub->endpoint[r].base.wake)
            hub->endpoint[r].base.wake(hub->endpoint[r].base.wake_context);
}

static void hub_free(hub_t *hub)
{
    const esp_allocator_t alloc = hub->alloc;
    for (int32_t r = 0; r < hub->n; r++)
        pthread_mutex_destroy(&hub->endpoint[r].mailbox.mutex);
    pthread_mutex_destroy(&hub->mutex);
    esp_i_free(&alloc, hub->endpoint);
    esp_i_free(&alloc, hub);
}

static void destroy(esp_i_comm_t *self)
{
    hub_t *hub = ((endpoint_t *)self)->hub;
    if (atomic_fetch_sub(&hub->users, 1) == 1)
        hub_free(hub);
}

static const esp_i_comm_type_t local_type = {
    .name = "local",
    .prepare = prepare,
    .start = start,
    .test = test,
    .release = release,
    .abort = fail_all,
    .destroy = destroy,
};

esp_status_t esp_i_comm_local_create(const esp_allocator_t *alloc, int32_t n,
                                     esp_i_comm_t **comm_out)
{
    hub_t *hub = esp_i_alloc_array(alloc, 1, sizeof *hub);
    endpoint_t *endpoint = esp_i_alloc_array(alloc, n, sizeof *endpoint);
    if (!hub || !endpoint) {
        esp_i_free(alloc, hub);
        esp_i_free(alloc, endpoint);
        return ESP_ERR_NOMEM;
    }
    *hub = (hub_t){.alloc = esp_i_allocator(alloc), .n = n, .endpoint = endpoint};
    atomic_init(&hub->users, n);
    pthread_mutex_init(&hub->mutex, NULL);
    for (int32_t r = 0; r < n; r++) {
        endpoint[r].base =
            (esp_i_comm_t){.type = &local_type, .rank = r, .n_ranks = n, .wakes = true};
        endpoint[r].hub = hub;
        pthread_mutex_init(&endpoint[r].mailbox.mutex, NULL);
        comm_out[r] = &endpoint[r].base;
    }
    return ESP_OK;
}
