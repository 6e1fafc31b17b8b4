/* Ranks of an MPI job, by persistent requests on a communicator of our own. */
#include "exec/comm.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { PART_BYTES = 1 << 30, TAGS = 1 << 30 };

/* A collective as MPI wants it. */
typedef struct collective {
    esp_comm_t kind;
    MPI_Comm members;
    MPI_Datatype type;
    char *data, *own;
    int *count, *start; /* per member; all-reduce: one count */
} collective_t;

typedef struct message {
    int32_t n, active; /* parts, and those that are under way */
    bool reported;
    MPI_Request *part;        /* persistent; of a collective: one, while it is under way */
    collective_t *collective; /* NULL: a message */
} message_t;

/* Ranks that have collectives together, with their communicator. */
typedef struct group {
    int n;
    int *member;
    MPI_Comm comm;
} group_t;

typedef struct mpi {
    esp_i_comm_t base;
    esp_allocator_t alloc;
    MPI_Comm world;
    bool owns_mpi; /* this object initialised MPI, and finalises it */
    bool failed;
    esp_diag_t why;
    ESP_VEC(group_t) group;
    /* Scratch of `test`, one per part that was ever prepared at the same time. */
    int32_t n_parts, capacity;
    MPI_Request *request;
    MPI_Status *status;
    int *index;
    struct {
        int32_t message, part;
    } * source;
} mpi_t;

static esp_status_t mpi_fail(esp_diag_t *diag, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    return esp_i_fail(diag, ESP_ERR_IO, "%s: %s", what, text);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* The next `want` bytes of a list of pieces, as blocks. */
typedef struct cutter {
    const esp_i_piece_t *piece;
    int32_t n, at;
    int64_t used; /* of piece `at` */
} cutter_t;

static int32_t cut(cutter_t *cutter, int64_t want, int *length, MPI_Aint *place)
{
    int32_t blocks = 0;
    while (cutter->at < cutter->n) {
        const esp_i_piece_t *piece = &cutter->piece[cutter->at];
        const int64_t n = esp_i_min_i64(want, piece->bytes - cutter->used);
        if (n > 0) {
            (void)MPI_Get_address(piece->data + cutter->used, &place[blocks]);
            length[blocks++] = (int)n;
        }
        want -= n;
        cutter->used += n;
        if (cutter->used < piece->bytes)
            break;
        cutter->used = 0;
        cutter->at++;
    }
    return blocks;
}

static int init_request(const mpi_t *mpi, bool send, int peer, int tag, const void *data, int n,
                        MPI_Datatype type, MPI_Request *request)
{
    return send ? MPI_Send_init(data, n, type, peer, tag, mpi->world, request)
                : MPI_Recv_init((void *)(uintptr_t)data, n, type, peer, tag, mpi->world, request);
}

/* One part: bytes in one place, or an indexed type over absolute addresses. */
static int init_part(const mpi_t *mpi, bool send, int peer, int tag, int32_t blocks,
                     const int *length, const MPI_Aint *place, MPI_Request *request)
{
    MPI_Datatype type;
    if (blocks == 0)
        return init_request(mpi, send, peer, tag, NULL, 0, MPI_BYTE, request);
    if (blocks == 1)
        return init_request(mpi, send, peer, tag, (const void *)place[0], length[0], MPI_BYTE,
                            request);
    int code = MPI_Type_create_hindexed(blocks, length, place, MPI_BYTE, &type);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Type_commit(&type);
    if (code == MPI_SUCCESS)
        code = init_request(mpi, send, peer, tag, MPI_BOTTOM, 1, type, request);
    (void)MPI_Type_free(&type); /* the request keeps it */
    return code;
}

static void message_free(mpi_t *mpi, message_t *message)
{
    for (int32_t i = 0; i < message->n && !message->collective; i++)
        (void)MPI_Request_free(&message->part[i]);
    mpi->n_parts -= message->n;
    if (message->collective) {
        esp_i_free(&mpi->alloc, message->collective->count);
        esp_i_free(&mpi->alloc, message->collective->start);
        esp_i_free(&mpi->alloc, message->collective);
    }
    esp_i_free(&mpi->alloc, message->part);
    esp_i_free(&mpi->alloc, message);
}

/* Room for `n` more requests in the scratch of `test`. */
static bool reserve(mpi_t *mpi, int32_t n)
{
    const int64_t need = (int64_t)mpi->n_parts + n;
    int32_t a = mpi->capacity, b = a, c = a, d = a;
    if (need <= mpi->capacity)
        return true;
    if (!esp_i_grow(&mpi->alloc, &mpi->request, &a, need, sizeof *mpi->request) ||
        !esp_i_grow(&mpi->alloc, &mpi->status, &b, need, sizeof *mpi->status) ||
        !esp_i_grow(&mpi->alloc, &mpi->index, &c, need, sizeof *mpi->index) ||
        !esp_i_grow(&mpi->alloc, &mpi->source, &d, need, sizeof *mpi->source))
        return false;
    mpi->capacity = a;
    return true;
}

static esp_status_t init_parts(mpi_t *mpi, message_t *message, bool send, int32_t peer, int32_t tag,
                               cutter_t *cutter, int32_t parts, esp_diag_t *diag)
{
    esp_status_t status = ESP_OK;
    int *length = esp_i_alloc_array(&mpi->alloc, cutter->n + 1, sizeof *length);
    MPI_Aint *place = esp_i_alloc_array(&mpi->alloc, cutter->n + 1, sizeof *place);
    if (!length || !place)
        status = esp_i_nomem(diag);
    for (int32_t i = 0; i < parts && status == ESP_OK; i++) {
        const int32_t blocks = cut(cutter, mpi->base.part_bytes, length, place);
        const int code = init_part(mpi, send, peer, tag, blocks, length, place, &message->part[i]);
        if (code != MPI_SUCCESS) {
            status = mpi_fail(diag, send ? "MPI_Send_init" : "MPI_Recv_init", code);
            break;
        }
        message->n++;
        mpi->n_parts++;
    }
    esp_i_free(&mpi->alloc, length);
    esp_i_free(&mpi->alloc, place);
    return status;
}

static esp_status_t prepare(esp_i_comm_t *self, bool send, int32_t peer, int32_t tag, int32_t n,
                            const esp_i_piece_t *piece, esp_i_message_t **out, esp_diag_t *diag)
{
    mpi_t *mpi = (mpi_t *)self;
    cutter_t cutter = {.piece = piece, .n = n};
    int64_t bytes = 0;
    for (int32_t i = 0; i < n; i++)
        bytes += piece[i].bytes;
    const int32_t parts = (int32_t)esp_i_max_i64(1, esp_i_ceil_div(bytes, self->part_bytes));
    message_t *message = esp_i_alloc_array(&mpi->alloc, 1, sizeof *message);
    if (!message)
        return esp_i_nomem(diag);
    message->part = esp_i_alloc_array(&mpi->alloc, parts, sizeof(MPI_Request));
    esp_status_t status = ESP_OK;
    if (!message->part || !reserve(mpi, parts))
        status = esp_i_nomem(diag);
    else
        status = init_parts(mpi, message, send, peer, tag, &cutter, parts, diag);
    if (status != ESP_OK) {
        message_free(mpi, message);
        return status;
    }
    *out = (esp_i_message_t *)message;
    return ESP_OK;
}

/* ---- collectives -------------------------------------------------------------------------- */

static int group_open(const mpi_t *mpi, group_t *group)
{
    MPI_Group all, some;
    int code = MPI_Comm_group(mpi->world, &all);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Group_incl(all, group->n, group->member, &some);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_create_group(mpi->world, some, 0, &group->comm);
        (void)MPI_Group_free(&some);
    }
    (void)MPI_Group_free(&all);
    return code == MPI_SUCCESS ? MPI_Comm_set_errhandler(group->comm, MPI_ERRORS_RETURN) : code;
}

/* The communicator of some ranks, which is made when they are first named. */
static esp_status_t group_find(mpi_t *mpi, int32_t n, const int32_t *member, MPI_Comm *comm_out,
                               esp_diag_t *diag)
{
    group_t group = {.n = n, .comm = MPI_COMM_NULL};
    for (int32_t i = 0; i < mpi->group.count; i++) {
        const group_t *old = &mpi->group.data[i];
        int32_t same = 0;
        while (old->n == n && same < n && old->member[same] == member[same])
            same++;
        *comm_out = old->comm;
        if (same == n)
            return ESP_OK;
    }
    group.member = esp_i_alloc_array(&mpi->alloc, n, sizeof *group.member);
    if (!group.member || !esp_vec_push(&mpi->alloc, &mpi->group, group)) {
        esp_i_free(&mpi->alloc, group.member);
        return esp_i_nomem(diag);
    }
    for (int32_t k = 0; k < n; k++)
        group.member[k] = member[k];
    const int code = group_open(mpi, &mpi->group.data[mpi->group.count - 1]);
    *comm_out = mpi->group.data[mpi->group.count - 1].comm;
    return code == MPI_SUCCESS ? ESP_OK : mpi_fail(diag, "MPI_Comm_create_group", code);
}

static void groups_close(mpi_t *mpi)
{
    for (int32_t i = 0; i < mpi->group.count; i++) {
        if (mpi->group.data[i].comm != MPI_COMM_NULL)
            (void)MPI_Comm_free(&mpi->group.data[i].comm);
        esp_i_free(&mpi->alloc, mpi->group.data[i].member);
    }
    esp_vec_free(&mpi->alloc, &mpi->group);
}

static bool collective_fill(const mpi_t *mpi, const esp_i_collective_t *what, collective_t *c)
{
    const int32_t n = what->kind == ESP_COMM_ALLREDUCE ? 1 : what->n;
    c->kind = what->kind;
    c->type = what->dtype == ESP_DTYPE_F64 ? MPI_DOUBLE : MPI_FLOAT;
    c->data = what->data;
    c->own = what->own;
    c->count = esp_i_alloc_array(&mpi->alloc, n, sizeof *c->count);
    c->start = esp_i_alloc_array(&mpi->alloc, n, sizeof *c->start);
    for (int32_t k = 0, at = 0; c->count && c->start && k < n; at += what->count[k++]) {
        c->count[k] = what->count[k];
        c->start[k] = at;
    }
    return c->count && c->start;
}

static esp_status_t prepare_collective(esp_i_comm_t *self, const esp_i_collective_t *what,
                                       esp_i_message_t **out, esp_diag_t *diag)
{
    mpi_t *mpi = (mpi_t *)self;
    message_t *message = esp_i_alloc_array(&mpi->alloc, 1, sizeof *message);
    if (!message)
        return esp_i_nomem(diag);
    message->part = esp_i_alloc_array(&mpi->alloc, 1, sizeof(MPI_Request));
    message->collective = esp_i_alloc_array(&mpi->alloc, 1, sizeof *message->collective);
    const bool fine = message->part && message->collective && reserve(mpi, 1) &&
                      collective_fill(mpi, what, message->collective);
    const esp_status_t status =
        fine ? group_find(mpi, what->n, what->member, &message->collective->members, diag)
             : esp_i_nomem(diag);
    if (status != ESP_OK) {
        message_free(mpi, message);
        return status;
    }
    message->part[0] = MPI_REQUEST_NULL;
    message->n = 1;
    mpi->n_parts++;
    *out = (esp_i_message_t *)message;
    return ESP_OK;
}

static esp_status_t start_collective(const collective_t *c, MPI_Request *request, esp_diag_t *diag)
{
    int code;
    if (c->kind == ESP_COMM_ALLREDUCE)
        code = MPI_Iallreduce(MPI_IN_PLACE, c->data, c->count[0], c->type, MPI_SUM, c->members,
                              request);
    else if (c->kind == ESP_COMM_REDUCE_SCATTER)
        code =
            MPI_Ireduce_scatter(c->data, c->own, c->count, c->type, MPI_SUM, c->members, request);
    else
        code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, c->data, c->count, c->start,
                               c->type, c->members, request);
    return code == MPI_SUCCESS ? ESP_OK : mpi_fail(diag, "a collective", code);
}

/* ---- progress ----------------------------------------------------------------------------- */

static esp_status_t relay(const mpi_t *mpi, esp_diag_t *diag)
{
    if (diag)
        *diag = mpi->why;
    return ESP_ERR_IO;
}

static esp_status_t start(esp_i_comm_t *self, esp_i_message_t *handle, esp_diag_t *diag)
{
    mpi_t *mpi = (mpi_t *)self;
    message_t *message = (message_t *)handle;
    if (mpi->failed)
        return relay(mpi, diag);
    message->reported = false;
    message->active = message->n;
    if (message->collective)
        return start_collective(message->collective, message->part, diag);
    for (int32_t i = 0; i < message->n; i++) {
        const int code = MPI_Start(&message->part[i]);
        if (code != MPI_SUCCESS)
            return mpi_fail(diag, "MPI_Start", code);
    }
    return ESP_OK;
}

static int32_t collect(mpi_t *mpi, int32_t n, esp_i_message_t *const *handle)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        const message_t *message = (const message_t *)handle[i];
        for (int32_t k = 0; message->active > 0 && k < message->n; k++) {
            mpi->source[count].message = i;
            mpi->source[count].part = k;
            mpi->request[count++] = message->part[k];
        }
    }
    return count;
}

/* MPI makes progress in any call. */
static esp_status_t idle_progress(const mpi_t *mpi, esp_diag_t *diag)
{
    int there;
    const int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->world, &there, MPI_STATUS_IGNORE);
    return code == MPI_SUCCESS ? ESP_OK : mpi_fail(diag, "MPI_Iprobe", code);
}

static int first_error(const mpi_t *mpi, int n, int code)
{
    for (int i = 0; code == MPI_ERR_IN_STATUS && i < n; i++)
        if (mpi->status[i].MPI_ERROR != MPI_SUCCESS)
            return mpi->status[i].MPI_ERROR;
    return code;
}

static esp_status_t test(esp_i_comm_t *self, int32_t n, esp_i_message_t *const *handle, bool *done,
                         bool *progress_out, esp_diag_t *diag)
{
    mpi_t *mpi = (mpi_t *)self;
    int ended = 0;
    bool progress = false;
    if (mpi->failed)
        return relay(mpi, diag);
    const int32_t count = collect(mpi, n, handle);
    if (count == 0)
        ESP_TRY(idle_progress(mpi, diag));
    if (count > 0) {
        const int code = MPI_Testsome(count, mpi->request, &ended, mpi->index, mpi->status);
        if (code != MPI_SUCCESS)
            return mpi_fail(diag, "MPI_Testsome", first_error(mpi, ended, code));
    }
    for (int i = 0; ended != MPI_UNDEFINED && i < ended; i++) {
        const int at = mpi->index[i];
        message_t *message = (message_t *)handle[mpi->source[at].message];
        message->part[mpi->source[at].part] = mpi->request[at]; /* a collective's is gone */
        message->active--;
    }
    for (int32_t i = 0; i < n; i++) {
        message_t *message = (message_t *)handle[i];
        done[i] = message->active == 0;
        progress |= done[i] && !message->reported;
        message->reported |= done[i];
    }
    *progress_out = progress;
    return ESP_OK;
}

static void release(esp_i_comm_t *self, esp_i_message_t *handle)
{
    message_t *message = (message_t *)handle;
    if (message->active == 0) /* otherwise MPI may still write there: it goes with the process */
        message_free((mpi_t *)self, message);
}

/* ---- the job ----------------------------------------------------------------------------- */

static void fail_all(esp_i_comm_t *self, const esp_diag_t *why)
{
    mpi_t *mpi = (mpi_t *)self;
    if (!mpi->failed)
        mpi->why = *why;
    mpi->failed = true;
}

static void destroy(esp_i_comm_t *self)
{
    mpi_t *mpi = (mpi_t *)self;
    const esp_allocator_t alloc = mpi->alloc;
    if (mpi->failed)
        (void)MPI_Abort(mpi->world, EXIT_FAILURE);
    groups_close(mpi);
    if (mpi->world != MPI_COMM_NULL)
        (void)MPI_Comm_free(&mpi->world);
    if (mpi->owns_mpi)
        (void)MPI_Finalize();
    esp_i_free(&alloc, mpi->request);
    esp_i_free(&alloc, mpi->status);
    esp_i_free(&alloc, mpi->index);
    esp_i_free(&alloc, mpi->source);
    esp_i_free(&alloc, mpi);
}

static const esp_i_comm_type_t mpi_type = {
    .name = "mpi",
    .prepare = prepare,
    .collective = prepare_collective,
    .start = start,
    .test = test,
    .release = release,
    .abort = fail_all,
    .destroy = destroy,
};

static esp_status_t initialise(mpi_t *mpi, esp_diag_t *diag)
{
    int before = 0, after = 0, level = 0, code = MPI_SUCCESS;
    (void)MPI_Finalized(&after);
    if (after)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "MPI was finalised in this process before");
    (void)MPI_Initialized(&before);
    if (before)
        code = MPI_Query_thread(&level);
    else
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS)
        return mpi_fail(diag, "MPI_Init_thread", code);
    mpi->owns_mpi = !before;
    if (level < MPI_THREAD_FUNNELED)
        return esp_i_fail(diag, ESP_ERR_UNSUPPORTED,
                          "MPI allows no other threads (MPI_THREAD_FUNNELED is needed)");
    return ESP_OK;
}

static esp_status_t open_world(mpi_t *mpi, esp_diag_t *diag)
{
    void *highest = NULL;
    int found = 0, rank = 0, size = 0;
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi->world);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(mpi->world, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(mpi->world, &rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(mpi->world, &size);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest, &found);
    if (code != MPI_SUCCESS)
        return mpi_fail(diag, "MPI_Comm_dup", code);
    if (!found || *(const int *)highest < TAGS - 1)
        return esp_i_fail(diag, ESP_ERR_UNSUPPORTED, "this MPI has tags up to %d only",
                          found ? *(const int *)highest : 0);
    mpi->base =
        (esp_i_comm_t){.type = &mpi_type, .rank = rank, .n_ranks = size, .part_bytes = PART_BYTES};
    return ESP_OK;
}

esp_status_t esp_i_comm_mpi_create(const esp_allocator_t *alloc, esp_i_comm_t **comm_out,
                                   esp_diag_t *diag)
{
    mpi_t *mpi = esp_i_alloc_array(alloc, 1, sizeof *mpi);
    if (!mpi)
        return esp_i_nomem(diag);
    mpi->alloc = esp_i_allocator(alloc);
    mpi->world = MPI_COMM_NULL;
    esp_status_t status = initialise(mpi, diag);
    if (status == ESP_OK)
        status = open_world(mpi, diag);
    if (status != ESP_OK) {
        destroy(&mpi->base);
        return status;
    }
    *comm_out = &mpi->base;
    return ESP_OK;
}

bool esp_i_comm_mpi_started(void)
{
    /* How many processes: OpenMPI, MPICH and its relatives, MVAPICH. */
    static const char *const sizes[] = {
        "OMPI_COMM_WORLD_SIZE=", "PMI_SIZE=", "MV2_COMM_WORLD_SIZE="};
    extern char **environ;
    for (char **entry = environ; entry && *entry; entry++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            if (strncmp(*entry, sizes[i], strlen(sizes[i])) == 0 &&
                strtol(*entry + strlen(sizes[i]), NULL, 10) > 1)
                return true;
    return false;
}
