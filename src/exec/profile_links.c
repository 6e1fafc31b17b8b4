/*
 * Times of messages. One pair of ranks at a time exchanges messages of several sizes; a line is
 * laid through their times. Then all ranks compute while messages come and go, and the compute time
 * that is lost tells what a byte takes of it.
 */
#include "exec/engine.h"
#include "exec/profile.h"

#include <math.h>

enum { TAG_PING = 1, TAG_PONG, TAG_COUNT, TAG_FLOOD, SIZES = 6, MOST_RUNS = 2000 };
static const int64_t sizes[SIZES] = {16, 4096, 65536, 262144, 1 << 20, ESP_I_PROFILE_BYTES};

/* ---- messages -------------------------------------------------------------------------------- */

static esp_status_t prepare(esp_i_comm_t *comm, bool send, int32_t peer, int32_t tag, char *data,
                            int64_t bytes, esp_i_message_t **out, esp_diag_t *diag)
{
    const esp_i_piece_t piece = {data, bytes};
    return comm->type->prepare(comm, send, peer, tag, 1, &piece, out, diag);
}

/* ---- one pair -------------------------------------------------------------------------------- */

/* There with `bytes`, back with one: what the sender sees. */
typedef struct ping {
    esp_i_comm_t *comm;
    int32_t src, dst;
    esp_i_message_t *message[2]; /* to be received, to be sent */
    char *data, back;
} ping_t;

static esp_status_t ping_prepare(ping_t *ping, int64_t bytes, esp_diag_t *diag)
{
    esp_i_comm_t *comm = ping->comm;
    const bool sends = comm->rank == ping->src;
    const int32_t peer = sends ? ping->dst : ping->src;
    ESP_TRY(prepare(comm, sends, peer, TAG_PING, ping->data, bytes, &ping->message[sends], diag));
    const esp_status_t status =
        prepare(comm, !sends, peer, TAG_PONG, &ping->back, 1, &ping->message[!sends], diag);
    if (status != ESP_OK)
        comm->type->release(comm, ping->message[sends]);
    return status;
}

/* The destination answers after it has received, so it cannot start both at once. */
static esp_status_t ping_once(ping_t *ping, esp_diag_t *diag)
{
    esp_i_comm_t *comm = ping->comm;
    if (comm->rank == ping->src)
        return esp_i_comm_exchange(comm, 2, ping->message, diag);
    for (int32_t i = 0; i < 2; i++)
        ESP_TRY(esp_i_comm_exchange(comm, 1, &ping->message[i], diag));
    return ESP_OK;
}

static esp_status_t ping_times(ping_t *ping, int32_t runs, double *ns_out, esp_diag_t *diag)
{
    const int64_t start = esp_i_now_ns();
    for (int32_t i = 0; i < runs; i++)
        ESP_TRY(ping_once(ping, diag));
    *ns_out = (double)(esp_i_now_ns() - start) / runs;
    return ESP_OK;
}

/* The mean of as many runs as fit `seconds`: the source decides. */
static esp_status_t ping_mean(ping_t *ping, double seconds, double *ns_out, esp_diag_t *diag)
{
    esp_i_comm_t *comm = ping->comm;
    int32_t runs = 0;
    double ns;
    ESP_TRY(ping_times(ping, 2, &ns, diag));
    ESP_TRY(ping_times(ping, 2, &ns, diag));
    if (comm->rank == ping->src) {
        runs = (int32_t)fmin(fmax(seconds * 1e9 / fmax(ns, 1), 4), MOST_RUNS);
        ESP_TRY(esp_i_comm_send(comm, ping->dst, TAG_COUNT, &runs, sizeof runs, diag));
    } else {
        ESP_TRY(esp_i_comm_receive(comm, ping->src, TAG_COUNT, &runs, sizeof runs, diag));
    }
    return ping_times(ping, runs, ns_out, diag);
}

/*
 * The line t = a + b S with the least sum of squared relative errors: small messages tell the
 * latency, large ones the speed. Both at least 0; a is of both ways.
 */
static void fit(const double ns[SIZES], double *a_out, double *b_out)
{
    double w = 0, ws = 0, wss = 0, wt = 0, wst = 0;
    for (int32_t i = 0; i < SIZES; i++) {
        const double s = (double)sizes[i], weight = 1 / fmax(ns[i] * ns[i], 1);
        w += weight;
        ws += weight * s;
        wss += weight * s * s;
        wt += weight * ns[i];
        wst += weight * s * ns[i];
    }
    const double b = (w * wst - ws * wt) / (w * wss - ws * ws);
    *b_out = fmax(b, 1e-6);
    *a_out = fmax((wt - *b_out * ws) / w, 0);
}

static esp_status_t measure_pair(esp_i_profile_t *p, ping_t *ping, const char *const *device)
{
    esp_i_comm_t *comm = ping->comm;
    double ns[SIZES], a, b;
    for (int32_t i = 0; i < SIZES; i++) {
        ESP_TRY(ping_prepare(ping, sizes[i], p->diag));
        /* on an error the messages may be under way: they stay with the communicator */
        ESP_TRY(ping_mean(ping, p->opts->seconds / 8, &ns[i], p->diag));
        comm->type->release(comm, ping->message[0]);
        comm->type->release(comm, ping->message[1]);
    }
    if (comm->rank != ping->src)
        return ESP_OK;
    fit(ns, &a, &b);
    const esp_costs_link_t link = {device[ping->src], device[ping->dst], a / 2, 1e9 / b};
    return esp_vec_push(&p->alloc, &p->links, link) ? ESP_OK : esp_i_nomem(p->diag);
}

/* All ranks go on, or none. */
static esp_status_t go_on(esp_i_profile_t *p, esp_i_comm_t *comm)
{
    char stopped = esp_i_profile_go_on(p, 1, "links") != ESP_OK;
    ESP_TRY(esp_i_comm_broadcast(comm, &stopped, 1, p->diag));
    return stopped ? esp_i_fail(p->diag, ESP_STOPPED, "stopped") : ESP_OK;
}

static esp_status_t measure_pairs(esp_i_profile_t *p, esp_i_comm_t *comm, const char *const *device,
                                  char *data)
{
    for (int32_t src = 0; src < comm->n_ranks; src++)
        for (int32_t dst = 0; dst < comm->n_ranks; dst++) {
            ping_t ping = {.comm = comm, .src = src, .dst = dst, .data = data};
            if (src == dst)
                continue;
            ESP_TRY(go_on(p, comm));
            if (comm->rank == src || comm->rank == dst)
                ESP_TRY(measure_pair(p, &ping, device));
            ESP_TRY(esp_i_comm_barrier(comm, p->diag));
        }
    return ESP_OK;
}

/* ---- compute beside traffic ------------------------------------------------------------------ */

/* A thread that computes the same product again and again. */
typedef struct worker {
    esp_i_kernels_t *kernels;
    void *kernel;
    pthread_t thread;
    atomic_bool stop;
    atomic_int_fast64_t n;
} worker_t;

static void *compute(void *context)
{
    worker_t *w = context;
    const esp_i_moment_t moment = {0};
    (void)esp_i_denormals_off();
    while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
        if (w->kernels->type->run(w->kernels, w->kernel, &moment, NULL) != ESP_OK)
            break;
        atomic_fetch_add_explicit(&w->n, 1, memory_order_relaxed);
    }
    return NULL;
}

enum { N = 128 }; /* of the product of two matrices */

static esp_i_local_t matrix(int64_t place)
{
    return (esp_i_local_t){.dtype = ESP_DTYPE_F32,
                           .rank = 2,
                           .global_rank = 2,
                           .dims = {N, N},
                           .global = {N, N},
                           .elements = (int64_t)N * N,
                           .place = place};
}

static esp_status_t worker_prepare(worker_t *w, const esp_i_call_t *call, const esp_i_profile_t *p)
{
    const char *name = p->opts->backend;
    const esp_i_kernels_type_t *type = name ? esp_i_kernels_find(name) : esp_i_kernels_types[0];
    char *memory;
    ESP_TRY(type->create(&p->alloc, false, &w->kernels, p->diag));
    if (type->arena(w->kernels, 3 * (int64_t)sizeof(float) * N * N, &memory) != ESP_OK)
        return esp_i_nomem(p->diag);
    return type->prepare(w->kernels, call, &w->kernel, p->diag);
}

/* What was seen while something went on, in all rounds together. */
typedef struct phase {
    double products, ns;
    double carrier_ns; /* processor time of the thread that carries messages */
    double process_ns; /* of both threads */
} phase_t;

typedef esp_status_t (*during_fn)(void *context, esp_i_profile_t *p);

static esp_status_t observe(worker_t *w, esp_i_profile_t *p, during_fn during, void *context,
                            phase_t *phase)
{
    const int64_t start = esp_i_now_ns(), first = atomic_load(&w->n);
    const int64_t carrier = esp_i_thread_ns(), process = esp_i_process_ns();
    ESP_TRY(during(context, p));
    phase->carrier_ns += (double)(esp_i_thread_ns() - carrier);
    phase->process_ns += (double)(esp_i_process_ns() - process);
    phase->ns += (double)(esp_i_now_ns() - start);
    phase->products += (double)(atomic_load(&w->n) - first);
    return ESP_OK;
}

/* The two take turns: whatever else the machine does is in both. */
enum { ROUNDS = 8 };

static double window_ns(const esp_i_profile_t *p)
{
    return p->opts->seconds * 2e9 / ROUNDS;
}

/* Looks for messages as when some are awaited, but none come. */
static esp_status_t rest(void *context, esp_i_profile_t *p)
{
    esp_i_comm_t *comm = context;
    const int64_t start = esp_i_now_ns();
    esp_i_idle_t idle = {0};
    bool progress;
    while ((double)(esp_i_now_ns() - start) < window_ns(p)) {
        ESP_TRY(comm->type->test(comm, 0, NULL, NULL, &progress, p->diag));
        esp_i_comm_pause(&idle);
    }
    return ESP_OK;
}

enum { FLOOD_BYTES = 1 << 18, PIECES = ESP_I_PROFILE_BYTES / 2 / FLOOD_BYTES };

typedef struct flood {
    esp_i_comm_t *comm;
    esp_i_message_t *message[PIECES][2]; /* to be received, to be sent */
    char *data; /* pieces in turn, as no cache holds them: all in, all out */
    bool leads;
    double bytes; /* both ways */
} flood_t;

/* The first byte of a message tells whether there is a next. */
static char *piece_in(const flood_t *f, int32_t i)
{
    return f->data + (int64_t)i * FLOOD_BYTES;
}

static char *piece_out(const flood_t *f, int32_t i)
{
    return piece_in(f, PIECES + i);
}

static esp_status_t flood(void *context, esp_i_profile_t *p)
{
    flood_t *f = context;
    const int64_t start = esp_i_now_ns();
    bool more = true;
    for (int32_t i = 0; more; i = (i + 1) % PIECES) {
        more = (double)(esp_i_now_ns() - start) < window_ns(p);
        *piece_out(f, i) = more;
        ESP_TRY(esp_i_comm_exchange(f->comm, 2, f->message[i], p->diag));
        f->bytes += 2.0 * FLOOD_BYTES;
        if (!f->leads)
            more = *piece_in(f, i) != 0;
    }
    return ESP_OK;
}

/*
 * Compute time that traffic takes: what the pace of computing tells. Paces vary for other reasons,
 * too, hence limits. Under a quota that both threads share it is no less than what the thread that
 * carries messages uses, times the wait until the quota has given as much again, and it may be
 * more, since caches get cold and the kernel moves messages at the expense of whom it interrupts.
 * Where that thread has a processor to itself, it is anything from nothing to the time that it
 * uses.
 */
static double taken_ns(const phase_t *alone, const phase_t *beside)
{
    const double expected = alone->products * beside->ns / fmax(alone->ns, 1);
    const double lost = expected > 0 ? (1 - beside->products / expected) * beside->ns : 0;
    const double stretch = beside->ns / fmax(beside->process_ns, 1);
    const double used = beside->carrier_ns * fmax(stretch, 1);
    return stretch > 1 ? fmin(fmax(lost, used), 2 * used) : fmin(fmax(lost, 0), used);
}

static esp_status_t flood_prepare(flood_t *f, int32_t peer, esp_diag_t *diag)
{
    for (int32_t i = 0; i < PIECES; i++)
        for (int32_t sends = 0; sends < 2; sends++)
            ESP_TRY(prepare(f->comm, sends, peer, TAG_FLOOD,
                            sends ? piece_out(f, i) : piece_in(f, i), FLOOD_BYTES,
                            &f->message[i][sends], diag));
    return ESP_OK;
}

static void flood_release(flood_t *f)
{
    for (int32_t i = 0; i < PIECES; i++)
        for (int32_t sends = 0; sends < 2; sends++)
            if (f->message[i][sends])
                f->comm->type->release(f->comm, f->message[i][sends]);
}

static esp_status_t flood_rounds(esp_i_profile_t *p, worker_t *w, flood_t *f, bool paired)
{
    phase_t alone = {0}, beside = {0};
    for (int32_t i = 0; i < ROUNDS; i++) {
        ESP_TRY(esp_i_comm_barrier(f->comm, p->diag));
        ESP_TRY(observe(w, p, rest, f->comm, &alone));
        ESP_TRY(esp_i_comm_barrier(f->comm, p->diag));
        if (paired)
            ESP_TRY(observe(w, p, flood, f, &beside));
    }
    if (paired)
        p->comm_compute_s_per_byte = taken_ns(&alone, &beside) / 1e9 / f->bytes;
    return ESP_OK;
}

/* In pairs; if they do not come out even, the last rank computes alone. */
static esp_status_t flood_measure(esp_i_profile_t *p, worker_t *w, flood_t *f)
{
    const int32_t peer = f->comm->rank ^ 1;
    const bool paired = peer < f->comm->n_ranks;
    f->leads = f->comm->rank < peer;
    esp_status_t status = paired ? flood_prepare(f, peer, p->diag) : ESP_OK;
    if (status == ESP_OK)
        status = flood_rounds(p, w, f, paired);
    flood_release(f);
    return status;
}

static esp_status_t measure_slowdown(esp_i_profile_t *p, esp_i_comm_t *comm, char *data)
{
    const int64_t bytes = (int64_t)sizeof(float) * N * N;
    const esp_i_local_t operand[3] = {matrix(0), matrix(bytes), matrix(2 * bytes)};
    const esp_attr_t attr = {.contract = {.a = "nk", .b = "km", .y = "nm"}};
    const esp_i_call_t call = {.name = "profile",
                               .kind = ESP_KIND_CONTRACT,
                               .attr = &attr,
                               .n_in = 2,
                               .n_out = 1,
                               .operand = operand};
    worker_t w = {0};
    flood_t f = {.comm = comm, .data = data};
    esp_status_t status = worker_prepare(&w, &call, p);
    bool started = false;
    if (status == ESP_OK) {
        started = pthread_create(&w.thread, NULL, compute, &w) == 0;
        status = started ? flood_measure(p, &w, &f) : esp_i_nomem(p->diag);
    }
    atomic_store(&w.stop, true);
    if (started)
        (void)pthread_join(w.thread, NULL);
    if (w.kernels)
        w.kernels->type->destroy(w.kernels);
    return status;
}

esp_status_t esp_i_profile_links(esp_i_profile_t *p, esp_i_comm_t *comm, const char *const *device,
                                 char *data)
{
    if (comm->n_ranks < 2)
        return ESP_OK;
    ESP_TRY(measure_pairs(p, comm, device, data));
    ESP_TRY(measure_slowdown(p, comm, data));
    ESP_TRY(esp_i_profile_collectives(p, comm, data));
    return go_on(p, comm);
}
