/* Internal services of every module: errors, memory, arithmetic, rng, text, files, threads. */
#ifndef ESP_BASE_INTERNAL_H
#define ESP_BASE_INTERNAL_H

#include "espalier/base.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- errors ------------------------------------------------------------------------------ */

/* Only where nothing is owned; otherwise `goto fail_...`. */
#define ESP_TRY(call)                                                                              \
    do {                                                                                           \
        esp_status_t esp_try_status_ = (call);                                                     \
        if (esp_try_status_ != ESP_OK)                                                             \
            return esp_try_status_;                                                                \
    } while (0)

/* Fills text and status (keeps file, place, line, column if set before) and returns `status`. */
esp_status_t esp_i_fail(esp_diag_t *diag, esp_status_t status, const char *format, ...)
    ESP_PRINTF(3, 4);
esp_status_t esp_i_nomem(esp_diag_t *diag);
#ifdef __clang_analyzer__ /* shows the analyzer that these never return ESP_OK */
#define esp_i_fail(diag, status, ...) ((void)esp_i_fail(diag, status, __VA_ARGS__), (status))
#define esp_i_nomem(diag)             ((void)esp_i_nomem(diag), ESP_ERR_NOMEM)
#endif
/* Where; each only sets its own field and accepts a NULL diag. Long names are cut in the middle. */
void esp_i_diag_file(esp_diag_t *diag, const char *file);
void esp_i_diag_place(esp_diag_t *diag, const char *format, ...) ESP_PRINTF(2, 3);
void esp_i_diag_line(esp_diag_t *diag, int64_t line, int64_t column);
void esp_i_diag_byte(esp_diag_t *diag, int64_t byte);

/* Always on, cheap; never judges user input. esp_dcheck: debug builds only. */
__attribute__((noreturn)) void esp_i_assert_failed(const char *expression, const char *file,
                                                   int line);
#define esp_assert(x) ((x) ? (void)0 : esp_i_assert_failed(#x, __FILE__, __LINE__))
#ifdef ESP_DEBUG
#define esp_dcheck(x) esp_assert(x)
#else
#define esp_dcheck(x) ((void)sizeof(x))
#endif

/* ---- memory ------------------------------------------------------------------------------ */

extern const esp_allocator_t esp_i_malloc; /* malloc and free: the default */
esp_allocator_t esp_i_allocator(const esp_allocator_t *alloc_or_null);
void *esp_i_alloc(const esp_allocator_t *alloc, size_t bytes);                 /* not zeroed */
void *esp_i_alloc_array(const esp_allocator_t *alloc, int64_t n, size_t size); /* zeroed, checked */
void esp_i_free(const esp_allocator_t *alloc, void *memory);

/*
 * Grows the array behind the pointer at `data` (of type T **, elements of `size` bytes) so that it
 * holds at least `need`; doubles. False: no memory, or more than INT32_MAX; then nothing changes.
 */
bool esp_i_grow(const esp_allocator_t *alloc, void *data, int32_t *capacity, int64_t need,
                size_t size);

/* A typed growable array: ESP_VEC(int32_t) v = {0}; zero-initialised is empty. */
#define ESP_VEC(T)                                                                                 \
    struct {                                                                                       \
        T *data;                                                                                   \
        int32_t count, capacity;                                                                   \
    }
/* Makes room for one more and counts it; the new element is v.data[v.count - 1], uninitialised. */
#define esp_vec_extend(alloc, v, n)                                                                \
    (((int64_t)(v)->count + (n) <= (v)->capacity ||                                                \
      esp_i_grow((alloc), &(v)->data, &(v)->capacity, (int64_t)(v)->count + (n),                   \
                 sizeof *(v)->data)) &&                                                            \
     (((v)->count += (int32_t)(n)), true))
/* Appends a value; evaluates to false when memory is out. */
#define esp_vec_push(alloc, v, value)                                                              \
    (esp_vec_extend(alloc, v, 1) && (((v)->data[(v)->count - 1] = (value)), true))
#define esp_vec_free(alloc, v)                                                                     \
    (esp_i_free((alloc), (v)->data), (v)->data = NULL, (v)->count = (v)->capacity = 0)

/* Bump allocation; everything goes at once. Zero-initialised plus an allocator is ready to use. */
typedef struct esp_i_arena {
    esp_allocator_t alloc;
    struct esp_i_arena_block *head;
    size_t used, total;
} esp_i_arena_t;
void esp_i_arena_init(esp_i_arena_t *arena, const esp_allocator_t *alloc_or_null);
void esp_i_arena_fini(esp_i_arena_t *arena);
void *esp_i_arena_alloc(esp_i_arena_t *arena, int64_t n, size_t size); /* zeroed; NULL: no memory */
char *esp_i_arena_strdup(esp_i_arena_t *arena, const char *text);
char *esp_i_arena_strndup(esp_i_arena_t *arena, const char *text, size_t length);
char *esp_i_arena_printf(esp_i_arena_t *arena, const char *format, ...) ESP_PRINTF(2, 3);

/* ---- arithmetic: false on overflow ------------------------------------------------------- */

static inline bool esp_i_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool esp_i_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline int64_t esp_i_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t esp_i_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/* a >= 0, b > 0 */
static inline int64_t esp_i_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

/*
 * Shares of `total` units in proportion to weights[0..n) (>= 0, not all 0), each a multiple of
 * `granule` (which divides total), by largest remainder, ties to the lower index. O(n log n).
 */
void esp_i_apportion(int64_t total, int64_t granule, int32_t n, const double *weights,
                     int64_t *shares_out);

/* ---- random numbers: the state is always an argument ------------------------------------- */

typedef struct esp_i_rng {
    uint64_t s[4];
} esp_i_rng_t; /* xoshiro256** */
void esp_i_rng_seed(esp_i_rng_t *rng, uint64_t seed);
uint64_t esp_i_rng_u64(esp_i_rng_t *rng);
double esp_i_rng_unit(esp_i_rng_t *rng);              /* [0, 1) */
int64_t esp_i_rng_below(esp_i_rng_t *rng, int64_t n); /* [0, n), unbiased */
/* Philox4x32-10 (Random123): four words of 32 random bits for a counter and a key. */
void esp_i_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* 32 random bits for one element, a pure function of its arguments; philox.c says how. */
uint32_t esp_i_philox(uint64_t seed, uint64_t step, uint64_t stream, uint64_t element);

/* ---- text -------------------------------------------------------------------------------- */

typedef struct esp_i_text {
    esp_allocator_t alloc;
    char *data; /* always terminated once anything was added */
    size_t length, capacity;
    bool failed; /* memory ran out: sticky, later additions do nothing */
} esp_i_text_t;
void esp_i_text_init(esp_i_text_t *text, const esp_allocator_t *alloc_or_null);
void esp_i_text_fini(esp_i_text_t *text);
void esp_i_text_add(esp_i_text_t *text, const char *bytes);
void esp_i_text_add_bytes(esp_i_text_t *text, const char *bytes, size_t length);
void esp_i_text_addf(esp_i_text_t *text, const char *format, ...) ESP_PRINTF(2, 3);

/* How many bytes the first character takes if it is well-formed UTF-8 (RFC 3629), otherwise 0. */
int32_t esp_i_utf8_length(const char *bytes, size_t length);

/* "1.50 GiB", "12.3 ms": for people, three significant digits. */
void esp_i_format_bytes(int64_t bytes, char out[32]);
void esp_i_format_ns(int64_t ns, char out[32]);

/*
 * Interned names: equal strings get equal ids, ids count up from 0 in order of first appearance.
 * A name ends at its first NUL, if one comes before its length.
 */
typedef struct esp_i_names {
    esp_i_arena_t *arena; /* owns the strings */
    struct esp_i_name_slot {
        uint64_t hash;
        int32_t id; /* -1: empty */
    } * slots;
    const char **names;
    int32_t count, capacity, slot_count;
} esp_i_names_t;
void esp_i_names_init(esp_i_names_t *names, esp_i_arena_t *arena);
void esp_i_names_fini(esp_i_names_t *names); /* the table, not the strings */
int32_t esp_i_names_add(esp_i_names_t *names, const char *text, size_t length); /* -1: no memory */
int32_t esp_i_names_find(const esp_i_names_t *names, const char *text,
                         size_t length); /* -1: none */

/* FNV-1a, for tables only: never an order, never in a result. */
uint64_t esp_i_hash_bytes(uint64_t seed, const void *bytes, size_t length);
/* SHA-256 in lower-case hex (libmd). */
void esp_i_sha256(const void *bytes, size_t length, char hex_out[65]);

/* ---- files ------------------------------------------------------------------------------- */

/*
 * Reads a whole regular file or pipe (limit in bytes; a directory, a device or a larger file is an
 * error). The data is followed by a NUL that length does not count. Release with esp_i_free.
 */
esp_status_t esp_i_file_read(const esp_allocator_t *alloc, const char *path, int64_t limit,
                             char **data_out, int64_t *length_out, esp_diag_t *diag);
/*
 * Writes path atomically: temporary file beside it, fsync, rename. On failure nothing is left and
 * an old file is untouched. What is not a regular file (/dev/stdout, a pipe) is appended to.
 */
esp_status_t esp_i_file_write(const char *path, const void *data, size_t length, esp_diag_t *diag);

/*
 * The same in pieces: begin, append.., commit. A call that fails has abandoned the file; abandon
 * may be called at any time after begin, and does nothing after commit.
 */
typedef struct esp_i_file_out {
    int descriptor;
    char path[4096], temporary[4096]; /* temporary "": appends to what cannot be replaced */
} esp_i_file_out_t;
esp_status_t esp_i_file_begin(const char *path, esp_i_file_out_t *out, esp_diag_t *diag);
esp_status_t esp_i_file_append(esp_i_file_out_t *out, const void *data, size_t length,
                               esp_diag_t *diag);
esp_status_t esp_i_file_commit(esp_i_file_out_t *out, esp_diag_t *diag);
void esp_i_file_abandon(esp_i_file_out_t *out);

/* ---- clocks: for durations, never in a result ---------------------------------------------- */

int64_t esp_i_now_ns(void);     /* monotonic */
int64_t esp_i_thread_ns(void);  /* processor time of this thread */
int64_t esp_i_process_ns(void); /* of all threads of the process */

/* ---- threads ----------------------------------------------------------------------------- */

/*
 * n workers (the caller is one of them; n = 1 makes no thread; at most 1024). esp_i_pool_run runs
 * fn(context, index, worker) for index in [0, count) and returns when all are done; indices are
 * handed out in order, worker is in [0, n). One run at a time, and none from inside fn.
 */
typedef struct esp_i_pool esp_i_pool_t;
esp_status_t esp_i_pool_create(const esp_allocator_t *alloc, int32_t n, esp_i_pool_t **pool_out);
void esp_i_pool_destroy(esp_i_pool_t *pool);
int32_t esp_i_pool_size(const esp_i_pool_t *pool);
void esp_i_pool_run(esp_i_pool_t *pool, int32_t count,
                    void (*fn)(void *context, int32_t index, int32_t worker), void *context);

#endif
