/*
 * Times of all-reduces over all ranks: as the executor carries out a ring, and as the communication
 * library does it.
 */
#include "exec/engine.h"
#include "exec/profile.h"

#include <math.h>
#include <string.h>

enum { TAG_RING = 8, SIZES = 5, MOST_RUNS = 2000 };
static const int32_t sizes[SIZES] = {1 << 10, 1 << 14, 1 << 18, 1 << 20, ESP_I_PROFILE_BYTES};

/* ---- all-reduces ---------------------------------------------------------------------------- */

/* Floats before piece k: pieces are as even as possible. */
static int64_t begin_of(const esp_i_allreduce_t *a, int32_t k)
{
    const int64_t rest = a->n % a->comm->n_ranks;
    return a->n / a->comm->n_ranks * k + (k < rest ? k : rest);
}

static esp_i_piece_t piece_of(const esp_i_allreduce_t *a, int32_t k, float *at)
{
    const int64_t begin = begin_of(a, k), n = begin_of(a, k + 1) - begin;
    return (esp_i_piece_t){(char *)(at ? at : a->data + begin), n * (int64_t)sizeof(float)};
}

/* Step t of the 2 (n - 1): the piece that goes, and the one that comes. */
static void step_of(const esp_i_allreduce_t *a, int32_t t, int32_t *goes, int32_t *comes)
{
    const int32_t n = a->comm->n_ranks;
    *goes = (2 * n + a->comm->rank - t) % n;
    *comes = (*goes + n - 1) % n;
}

/* First each rank passes on sums, until it has one that is complete; then complete pieces. */
static esp_status_t ring_init(esp_i_allreduce_t *a, esp_diag_t *diag)
{
    esp_i_comm_t *comm = a->comm;
    const int32_t n = comm->n_ranks, next = (comm->rank + 1) % n, last = (comm->rank + n - 1) % n;
    a->staging = esp_i_alloc_array(&a->alloc, a->n / n + 1, sizeof *a->staging);
    if (!a->staging)
        return esp_i_nomem(diag);
    for (int32_t t = 0, goes, comes; t < 2 * (n - 1); t++) {
        step_of(a, t, &goes, &comes);
        const esp_i_piece_t in = piece_of(a, comes, t < n - 1 ? a->staging : NULL);
        const esp_i_piece_t out = piece_of(a, goes, NULL);
        ESP_TRY(comm->type->prepare(comm, false, last, TAG_RING, 1, &in, &a->message[a->n_messages],
                                    diag));
        a->n_messages++;
        ESP_TRY(comm->type->prepare(comm, true, next, TAG_RING, 1, &out, &a->message[a->n_messages],
                                    diag));
        a->n_messages++;
    }
    return ESP_OK;
}

static esp_status_t library_init(esp_i_allreduce_t *a, esp_diag_t *diag)
{
    int32_t *member = esp_i_alloc_array(&a->alloc, a->comm->n_ranks, sizeof *member);
    if (!member)
        return esp_i_nomem(diag);
    for (int32_t r = 0; r < a->comm->n_ranks; r++)
        member[r] = r;
    const esp_i_collective_t what = {.kind = ESP_COMM_ALLREDUCE,
                                     .dtype = ESP_DTYPE_F32,
                                     .n = a->comm->n_ranks,
                                     .member = member,
                                     .count = &a->n,
                                     .data = (char *)a->data};
    const esp_status_t status = a->comm->type->collective(a->comm, &what, &a->message[0], diag);
    a->n_messages = status == ESP_OK;
    esp_i_free(&a->alloc, member);
    return status;
}

esp_status_t esp_i_allreduce_init(esp_i_allreduce_t *a, esp_i_comm_t *comm, bool library, int32_t n,
                                  float *data, const esp_allocator_t *alloc, esp_diag_t *diag)
{
    *a = (esp_i_allreduce_t){.comm = comm, .alloc = *alloc, .n = n, .data = data};
    a->message = esp_i_alloc_array(alloc, 4 * (int64_t)comm->n_ranks, sizeof(void *));
    esp_status_t status = ESP_ERR_NOMEM;
    if (a->message)
        status = library ? library_init(a, diag) : ring_init(a, diag);
    else
        (void)esp_i_nomem(diag);
    if (status != ESP_OK)
        esp_i_allreduce_fini(a);
    return status;
}

esp_status_t esp_i_allreduce_run(esp_i_allreduce_t *a, esp_diag_t *diag)
{
    if (!a->staging)
        return esp_i_comm_exchange(a->comm, 1, a->message, diag);
    for (int32_t t = 0, goes, comes; t < a->n_messages / 2; t++) {
        ESP_TRY(esp_i_comm_exchange(a->comm, 2, a->message + (int64_t)2 * t, diag));
        step_of(a, t, &goes, &comes);
        const int64_t begin = begin_of(a, comes), n = begin_of(a, comes + 1) - begin;
        for (int64_t i = 0; i < n && t < a->comm->n_ranks - 1; i++)
            a->data[begin + i] += a->staging[i];
    }
    return ESP_OK;
}

void esp_i_allreduce_fini(esp_i_allreduce_t *a)
{
    for (int32_t i = 0; i < a->n_messages; i++)
        a->comm->type->release(a->comm, a->message[i]);
    esp_i_free(&a->alloc, a->message);
    esp_i_free(&a->alloc, a->staging);
}

/* ---- times ---------------------------------------------------------------------------------- */

static esp_status_t time_runs(esp_i_allreduce_t *a, int32_t runs, double *ns_out, esp_diag_t *diag)
{
    ESP_TRY(esp_i_comm_barrier(a->comm, diag));
    const int64_t start = esp_i_now_ns();
    for (int32_t i = 0; i < runs; i++)
        ESP_TRY(esp_i_allreduce_run(a, diag));
    *ns_out = (double)(esp_i_now_ns() - start) / runs;
    return ESP_OK;
}

/* The mean of as many runs as fit `seconds`: rank 0 decides. */
static esp_status_t time_mean(esp_i_allreduce_t *a, double seconds, double *ns_out,
                              esp_diag_t *diag)
{
    double ns;
    ESP_TRY(time_runs(a, 2, &ns, diag));
    ESP_TRY(time_runs(a, 2, &ns, diag));
    int32_t runs = (int32_t)fmin(fmax(seconds * 1e9 / fmax(ns, 1), 4), MOST_RUNS);
    ESP_TRY(esp_i_comm_broadcast(a->comm, &runs, sizeof runs, diag));
    return time_runs(a, runs, ns_out, diag);
}

static esp_status_t measure(esp_i_profile_t *p, esp_i_comm_t *comm, bool library, int32_t bytes,
                            char *data)
{
    esp_i_allreduce_t a;
    esp_costs_collective_t c = {.kind = ESP_COMM_ALLREDUCE,
                                .algorithm = library ? comm->type->name : "own",
                                .ranks = comm->n_ranks,
                                .bytes = bytes};
    ESP_TRY(esp_i_allreduce_init(&a, comm, library, bytes / (int32_t)sizeof(float),
                                 (float *)(void *)data, &p->alloc, p->diag));
    const esp_status_t status = time_mean(&a, p->opts->seconds / 8, &c.ns, p->diag);
    esp_i_allreduce_fini(&a);
    ESP_TRY(status);
    if (comm->rank != 0)
        return ESP_OK;
    return esp_vec_push(&p->alloc, &p->collectives, c) ? ESP_OK : esp_i_nomem(p->diag);
}

esp_status_t esp_i_profile_collectives(esp_i_profile_t *p, esp_i_comm_t *comm, char *data)
{
    if (comm->n_ranks < 2 || !comm->type->collective)
        return ESP_OK;
    memset(data, 0, ESP_I_PROFILE_BYTES);
    for (int32_t i = 0; i < SIZES; i++)
        for (int32_t library = 0; library < 2; library++)
            ESP_TRY(measure(p, comm, library != 0, sizes[i], data));
    return ESP_OK;
}
