/*
 * What every test shares: cmocka with its headers, an allocator that fails on demand and counts
 * what lives, temporary directories, golden files, paths, and checks of diagnostics.
 *
 * Helpers fail the running test by themselves; none returns an error.
 */
#ifndef ESP_TESTS_SUPPORT_H
#define ESP_TESTS_SUPPORT_H

#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define TEST_PATH_MAX 4096

/* ---- memory: leaks and double frees are failures ------------------------------------------ */

typedef struct test_memory {
    esp_allocator_t alloc; /* hand &memory.alloc to what is tested */
    _Atomic int64_t calls; /* allocations asked for since the last test_memory_fail */
    _Atomic int64_t live;  /* blocks not yet released */
    int64_t fail_at;       /* this call fails (the first is 1); 0: none */
    bool persistent;       /* and all calls after it */
} test_memory_t;

/* The struct is its own context: it must not be copied or moved after this. */
void test_memory_init(test_memory_t *memory);
/* From now on the kth call fails, once or with all that follow. */
void test_memory_fail(test_memory_t *memory, int64_t kth, bool persistent);
/* Fails the test if anything is alive. */
void test_memory_check(const test_memory_t *memory);

/* Does something with `alloc` and releases all of it, whether it succeeded or not. */
typedef esp_status_t (*test_attempt_fn)(const esp_allocator_t *alloc, void *context);
/*
 * Fails allocation 1, 2, 3, ... of the attempt until it succeeds, once transiently and once
 * persistently. Each failure must be ESP_ERR_NOMEM and leave nothing alive. Wide attempts: `stride`
 * > 1 tries only every stride-th allocation.
 */
void test_sweep_allocations(test_attempt_fn attempt, void *context, int64_t stride);

/* ---- files -------------------------------------------------------------------------------- */

typedef struct test_dir {
    char path[TEST_PATH_MAX];
} test_dir_t;

void test_dir_make(test_dir_t *dir);
/* "<dir>/<name>", in a buffer of the caller. */
const char *test_dir_file(const test_dir_t *dir, const char *name, char out[TEST_PATH_MAX]);
/* Entries in it: shows what a failed write left behind. */
int32_t test_dir_count(const test_dir_t *dir);
void test_dir_remove(const test_dir_t *dir); /* with all that is in it */

void test_write_file(const char *path, const void *data, size_t length);
/* The whole file, NUL-terminated; release with free(). length_out may be NULL. */
char *test_read_file(const char *path, size_t *length_out);

/* A file of the source tree: test_source_path("models/x.onnx", path). */
const char *test_source_path(const char *name, char out[TEST_PATH_MAX]);
/*
 * Public data that is not part of the source tree: $ESP_SHARED/<name>, or ../shared/<name> beside
 * the source tree. Skips the running test, saying so, where it is absent.
 */
const char *test_shared_path(const char *name, char out[TEST_PATH_MAX]);

/*
 * Compares text with tests/golden/<name>. With ESP_REFRESH=1 in the environment the golden file is
 * rewritten instead; look at the difference before you commit it.
 */
void test_golden(const char *name, const char *text);

/* ---- errors and commands ------------------------------------------------------------------ */

/* The status is `status`, the diagnostic holds it too, and its formatted text contains `part`. */
#define test_assert_fails(call, diag, status, part)                                                \
    test_check_failure_((call), (diag), (status), (part), __FILE__, __LINE__)
void test_check_failure_(esp_status_t actual, const esp_diag_t *diag, esp_status_t expected,
                         const char *part, const char *file, int line);

/* Success, or the test fails with the text of the diagnostic. */
#define test_assert_ok(call, diag) test_check_success_((call), (diag), __FILE__, __LINE__)
void test_check_success_(esp_status_t actual, const esp_diag_t *diag, const char *file, int line);

/*
 * Runs a shell command; its exit status. Its standard output goes to *output_out (release with
 * free(); NULL: dropped); write 2>&1 to have the errors too. ESP_CLI is the path of the command.
 */
int test_command(char **output_out, const char *format, ...) ESP_PRINTF(2, 3);

#endif
