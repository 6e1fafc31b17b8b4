/*
 * espalier/base.h: status codes, diagnostics, allocators, version.
 *
 * Every other public header includes this one. All functions are thread-safe unless a comment
 * says otherwise: the library has no mutable global state.
 *
 * What holds for every call of the library, unless its comment says otherwise:
 * - outputs (parameters that end in _out) are written on success only, inputs never change;
 * - what a call returns through a pointer to a pointer is the caller's, for the destroy function
 *   of its type, and destroy functions accept NULL;
 * - objects keep pointers to the objects that they were made from (a cost model to its graph and
 *   cluster, a deployment to its cost model): those must live at least as long;
 * - texts that are passed in are copied, texts inside an object live as long as the object.
 */
#ifndef ESPALIER_BASE_H
#define ESPALIER_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers; semantic versioning. esp_version() is that of the library. */
#define ESP_VERSION_MAJOR 0
#define ESP_VERSION_MINOR 1
#define ESP_VERSION_PATCH 0

/* For the declarations below. A status that is ignored is a warning of the compiler. */
#if defined(__GNUC__)
#define ESP_NODISCARD          __attribute__((warn_unused_result))
#define ESP_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define ESP_NODISCARD
#define ESP_PRINTF(fmt, first)
#endif
#define ESP_PUBLIC __attribute__((visibility("default")))

/*
 * What a function returns: ESP_OK, or why it could not do its work. A function returns a status
 * *or* a value, never a mixture. Errors are negative.
 */
#define ESP_STATUS_MAP(X)                                                                          \
    X(ESP_OK, 0, "ok")                                                                             \
    X(ESP_STOPPED, 1, "stopped by the caller; the best result so far is returned")                 \
    X(ESP_ERR_NOMEM, -1, "out of memory")                                                          \
    X(ESP_ERR_IO, -2, "input or output failed")                                                    \
    X(ESP_ERR_SYNTAX, -3, "the input is not well formed")                                          \
    X(ESP_ERR_INVALID, -4, "the input is well formed but makes no sense")                          \
    X(ESP_ERR_UNSUPPORTED, -5, "the input asks for something that is not supported")               \
    X(ESP_ERR_LIMIT, -6, "a documented limit is exceeded")                                         \
    X(ESP_ERR_ARGUMENT, -7, "an argument of the call is out of range")                             \
    X(ESP_ERR_INFEASIBLE, -8, "nothing satisfies the constraints")                                 \
    X(ESP_ERR_INTERNAL, -9, "internal fault")

typedef enum esp_status {
#define ESP_STATUS_ENUM(name, value, text) name = (value),
    ESP_STATUS_MAP(ESP_STATUS_ENUM)
#undef ESP_STATUS_ENUM
} esp_status_t;

/* The one-line English text of a status; never NULL. */
ESP_PUBLIC const char *esp_status_text(esp_status_t status);

/* "0.1.0", the version of the library that runs. */
ESP_PUBLIC const char *esp_version(void);

/*
 * Why a call failed and where in its input. Owned by the caller, passed as last argument, may be
 * NULL everywhere. A failing call fills it once, at the place that decided the error; a successful
 * call leaves it alone. Fields that do not apply are empty strings, or 0 for numbers.
 */
typedef struct esp_diag {
    esp_status_t status;
    char text[512];  /* the cause, one line, no trailing full stop */
    char file[256];  /* the file that was read or written */
    char place[128]; /* node, link, JSON path, ... inside it */
    int64_t line;    /* 1-based; 0 where the format has no lines */
    int64_t column;  /* 1-based */
    int64_t byte;    /* offset in a binary file; meaningful if line == 0 and has_byte */
    int32_t has_byte;
} esp_diag_t;

/*
 * Writes "file:line:column: place: text" (parts that are empty are left out) into buffer, always
 * terminated, cut at capacity. Returns the length that the whole text has.
 */
ESP_PUBLIC size_t esp_diag_format(const esp_diag_t *diag, char *buffer, size_t capacity);

/*
 * Writes a file atomically: a temporary file beside it, then a rename. On failure nothing is left
 * and an old file is untouched. What is no regular file (/dev/stdout, a pipe) is appended to.
 * Errors: ESP_ERR_IO, with the file in diag; ESP_ERR_NOMEM.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_file_write(const char *path, const void *data,
                                                     size_t length, esp_diag_t *diag);

/*
 * Where memory comes from. `alloc` returns NULL on failure; memory is aligned for max_align_t.
 * `release` accepts NULL. The vtable is copied; `context` must outlive what was made with it.
 * Every function that takes an allocator accepts NULL for malloc and free.
 */
typedef struct esp_allocator {
    void *context;
    void *(*alloc)(void *context, size_t bytes);
    void (*release)(void *context, void *memory);
} esp_allocator_t;

/*
 * Progress of a long call: `fraction` in [0, 1]. Returns 0 to go on; anything else stops the call,
 * which then returns ESP_STOPPED with its best result so far.
 */
typedef int (*esp_progress_fn)(void *context, double fraction, const char *what);

#ifdef __cplusplus
}
#endif
#endif
