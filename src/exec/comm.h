/*
 * Communication backends: how messages travel between the ranks of a run.
 *
 * A message is prepared once and then started any number of times. It lists pieces of memory of the
 * sender or the receiver; both sides list equally many bytes in all, cut as they like. Messages
 * between two ranks with the same tag arrive in the order in which they were started. Starting
 * never blocks; `test` makes progress. One thread per rank calls all of these.
 *
 * What is not here (broadcasts of a plan, barriers, gathering a tensor) is made of messages, in
 * message.c.
 */
#ifndef ESP_EXEC_COMM_H
#define ESP_EXEC_COMM_H

#include "base/base.h"
#include "espalier/deploy.h"

typedef struct esp_i_piece {
    char *data;
    int64_t bytes;
} esp_i_piece_t;

typedef struct esp_i_comm esp_i_comm_t; /* begins with its type */
typedef struct esp_i_message esp_i_message_t;

/*
 * A collective of floats among some ranks, on one of them. Every member lists the same kind, dtype,
 * members and counts.
 */
typedef struct esp_i_collective {
    esp_comm_t kind;       /* ALLREDUCE, REDUCE_SCATTER, ALL_GATHER */
    esp_dtype_t dtype;     /* F32, F64 */
    int32_t n;             /* members, at least 2 */
    const int32_t *member; /* their ranks, in the order of the pieces */
    const int32_t *count;  /* elements of each one's piece; all-reduce: of the whole, one number */
    /* all-reduce: addend and sum; reduce-scatter: addend, which stays; all-gather: the whole, with
     * the own piece in place */
    char *data;
    char *own; /* reduce-scatter: where this rank's piece of the sum goes */
} esp_i_collective_t;

typedef struct esp_i_comm_type {
    const char *name;
    /* `tag` is in [0, 2^30). The pieces are copied. Errors: ESP_ERR_NOMEM, ESP_ERR_IO. */
    esp_status_t (*prepare)(esp_i_comm_t *self, bool send, int32_t peer, int32_t tag, int32_t n,
                            const esp_i_piece_t *piece, esp_i_message_t **out, esp_diag_t *diag);
    /*
     * Prepares a collective, which is then started, tested and released as a message is. NULL: the
     * backend has none. Collective: blocks until all members have prepared theirs; any two ranks
     * prepare and start those that they have in common in the same order. Arrays are copied.
     */
    esp_status_t (*collective)(esp_i_comm_t *self, const esp_i_collective_t *collective,
                               esp_i_message_t **out, esp_diag_t *diag);
    esp_status_t (*start)(esp_i_comm_t *self, esp_i_message_t *message, esp_diag_t *diag);
    /*
     * Progress: of n messages that were started, sets done[i] where it has ended (or had before);
     * true sets *progress_out if any did just now. ESP_ERR_IO once any rank has failed.
     */
    esp_status_t (*test)(esp_i_comm_t *self, int32_t n, esp_i_message_t *const *message, bool *done,
                         bool *progress_out, esp_diag_t *diag);
    /* One that is under way only after a failure: nobody touches its memory after this, or, MPI,
     * the process is about to end. */
    void (*release)(esp_i_comm_t *self, esp_i_message_t *message);
    /*
     * Ends the whole job. Ranks in one process: every rank's next call fails with `why`, from now
     * on. MPI: the calls of this rank fail, and `destroy` ends all processes, so that the caller
     * can say why before.
     */
    void (*abort)(esp_i_comm_t *self, const esp_diag_t *why);
    void (*destroy)(esp_i_comm_t *self);
} esp_i_comm_type_t;

struct esp_i_comm {
    const esp_i_comm_type_t *type;
    int32_t rank, n_ranks;
    int64_t part_bytes; /* MPI: longer messages travel in parts; the same on every rank */
    /*
     * `wakes`: `wake` is called, by any thread, whenever a message of this rank has ended or the
     * job has failed; otherwise only `test` tells. Set before the first message, valid until the
     * threads of all ranks have returned.
     */
    bool wakes;
    void (*wake)(void *context);
    void *wake_context;
};

/* n ranks in this process, for n threads: comm_out[0..n). */
esp_status_t esp_i_comm_local_create(const esp_allocator_t *alloc, int32_t n,
                                     esp_i_comm_t **comm_out);
/*
 * This process as one rank of an MPI job (MPI_COMM_WORLD), initialising MPI if nobody has; the
 * caller's thread is the one that calls. Errors: ESP_ERR_UNSUPPORTED (built without MPI),
 * ESP_ERR_IO.
 */
esp_status_t esp_i_comm_mpi_create(const esp_allocator_t *alloc, esp_i_comm_t **comm_out,
                                   esp_diag_t *diag);
/* Whether this process is one of several that mpirun or the like started; calls no MPI. */
bool esp_i_comm_mpi_started(void);

/* message.c: collective calls made of messages, for the set-up and for reading results. They poll
 * until done. */
esp_status_t esp_i_comm_send(esp_i_comm_t *comm, int32_t peer, int32_t tag, const void *data,
                             int64_t bytes, esp_diag_t *diag);
esp_status_t esp_i_comm_receive(esp_i_comm_t *comm, int32_t peer, int32_t tag, void *data,
                                int64_t bytes, esp_diag_t *diag);
esp_status_t esp_i_comm_barrier(esp_i_comm_t *comm, esp_diag_t *diag);
/* From rank 0 to all. */
esp_status_t esp_i_comm_broadcast(esp_i_comm_t *comm, void *data, int64_t bytes, esp_diag_t *diag);
/* Starts n messages, at most 2, and waits for all, as movements are waited for. */
esp_status_t esp_i_comm_exchange(esp_i_comm_t *comm, int32_t n, esp_i_message_t *const *message,
                                 esp_diag_t *diag);

/* Since when nothing has happened, and how long the last sleep was. Begins with zeros. */
typedef struct esp_i_idle {
    int64_t since_ns, sleep_ns;
} esp_i_idle_t;

/*
 * Between two polls: yields for 20 us, then sleeps 5 us longer each time: a tenth of what it has
 * waited after 1 ms, a fiftieth after 25 ms, and no longer from there on. By time, not by polls:
 * those take from below one to ten microseconds, of a processor that may be the compute thread's.
 */
void esp_i_comm_pause(esp_i_idle_t *idle);
/* How long it would sleep now; 0: yield. */
int64_t esp_i_comm_pause_ns(esp_i_idle_t *idle);

/* Tags: the movements of a deployment use their index; these are for the calls above. */
enum { ESP_I_TAG_CONTROL = 1 << 29 };

#endif
