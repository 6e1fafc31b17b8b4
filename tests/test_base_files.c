/* Whole files, and the thread pool. */
#include "support.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

/* ---- reading ------------------------------------------------------------------------------ */

static esp_status_t read_named(const esp_allocator_t *alloc, void *context)
{
    char *data;
    int64_t length;
    esp_diag_t diag = {0};
    ESP_TRY(esp_i_file_read(alloc, context, 100000, &data, &length, &diag));
    assert_int_equal(data[length], '\0');
    esp_i_free(alloc, data);
    return ESP_OK;
}

static void test_read(void **state)
{
    (void)state;
    test_dir_t dir;
    char path[TEST_PATH_MAX], *data;
    int64_t length;
    esp_diag_t diag = {0};
    test_dir_make(&dir);
    test_dir_file(&dir, "data", path);
    test_write_file(path, "a\0b\n", 4);
    test_assert_ok(esp_i_file_read(NULL, path, 4, &data, &length, &diag), &diag);
    assert_int_equal(length, 4);
    assert_memory_equal(data, "a\0b\n\0", 5);
    esp_i_free(NULL, data);
    test_sweep_allocations(read_named, path, 1);

    data = NULL;
    test_assert_fails(esp_i_file_read(NULL, path, 3, &data, &length, &diag), &diag, ESP_ERR_LIMIT,
                      "data: larger than the limit of 3 B");
    assert_null(data);
    test_write_file(path, "", 0);
    test_assert_ok(esp_i_file_read(NULL, path, 0, &data, &length, &diag), &diag);
    assert_int_equal(length, 0);
    assert_string_equal(data, "");
    esp_i_free(NULL, data);
    test_dir_remove(&dir);
}

static void test_read_refuses(void **state)
{
    (void)state;
    test_dir_t dir;
    char path[TEST_PATH_MAX], *data = NULL;
    int64_t length;
    esp_diag_t diag = {0};
    test_dir_make(&dir);
    test_assert_fails(esp_i_file_read(NULL, dir.path, 10, &data, &length, &diag), &diag, ESP_ERR_IO,
                      "cannot read: it is a directory");
    test_assert_fails(esp_i_file_read(NULL, "/dev/zero", 10, &data, &length, &diag), &diag,
                      ESP_ERR_IO, "/dev/zero: cannot read: it is a device");
    test_assert_fails(
        esp_i_file_read(NULL, test_dir_file(&dir, "none", path), 10, &data, &length, &diag), &diag,
        ESP_ERR_IO, "none: cannot open: No such file or directory");
    test_write_file(path, "x", 1);
    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() != 0) /* root may read anything */
        test_assert_fails(esp_i_file_read(NULL, path, 10, &data, &length, &diag), &diag, ESP_ERR_IO,
                          "Permission denied");
    assert_null(data);
    assert_int_equal(esp_i_file_read(NULL, dir.path, 10, &data, &length, NULL), ESP_ERR_IO);
    test_dir_remove(&dir);
}

/* Files of /proc say that they are empty; a pipe says nothing. Both grow while they are read. */
static void test_read_unknown_sizes(void **state)
{
    (void)state;
    char *data;
    int64_t length;
    esp_diag_t diag = {0};
    test_assert_ok(esp_i_file_read(NULL, "/proc/self/status", 1 << 20, &data, &length, &diag),
                   &diag);
    assert_memory_equal(data, "Name:", 5);
    esp_i_free(NULL, data);

    int ends[2];
    char path[64], block[8192];
    memset(block, 'x', sizeof block);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], block, sizeof block), sizeof block);
    assert_int_equal(close(ends[1]), 0);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    test_assert_fails(esp_i_file_read(NULL, path, 100, &data, &length, &diag), &diag, ESP_ERR_LIMIT,
                      "larger than the limit");
    (void)close(ends[0]);
}

static void *feed_pipe(void *context)
{
    char block[100000];
    memset(block, 'y', sizeof block);
    int descriptor = *(int *)context;
    for (int i = 0; i < 10; i++)
        for (size_t sent = 0; sent < sizeof block;) {
            ssize_t count = write(descriptor, block + sent, sizeof block - sent);
            assert_true(count > 0);
            sent += (size_t)count;
        }
    (void)close(descriptor);
    return NULL;
}

/* More than a pipe holds: the buffer grows several times. */
static void test_read_long_pipe(void **state)
{
    (void)state;
    int ends[2];
    char path[64], *data;
    int64_t length;
    pthread_t thread;
    esp_diag_t diag = {0};
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pthread_create(&thread, NULL, feed_pipe, &ends[1]), 0);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    test_assert_ok(esp_i_file_read(NULL, path, 1000000, &data, &length, &diag), &diag);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(length, 1000000);
    for (int64_t i = 0; i < length; i++)
        if (data[i] != 'y')
            fail_msg("byte %lld is wrong", (long long)i);
    esp_i_free(NULL, data);
    (void)close(ends[0]);
}

/* ---- writing ------------------------------------------------------------------------------ */

static void check_content(const char *path, const char *expected)
{
    char *data = test_read_file(path, NULL);
    assert_string_equal(data, expected);
    free(data);
}

static void test_write(void **state)
{
    (void)state;
    test_dir_t dir;
    char path[TEST_PATH_MAX], link[TEST_PATH_MAX];
    struct stat st;
    esp_diag_t diag = {0};
    test_dir_make(&dir);
    test_dir_file(&dir, "plan.json", path);
    test_assert_ok(esp_i_file_write(path, "first", 5, &diag), &diag);
    check_content(path, "first");
    assert_int_equal(chmod(path, 0640), 0);
    test_assert_ok(esp_i_file_write(path, "second one", 10, &diag), &diag);
    check_content(path, "second one");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    test_assert_ok(esp_i_file_write(path, "", 0, &diag), &diag);
    check_content(path, "");
    /* A symbolic link stays one. */
    assert_int_equal(symlink("plan.json", test_dir_file(&dir, "link", link)), 0);
    test_assert_ok(esp_i_file_write(link, "third", 5, &diag), &diag);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    check_content(path, "third");
    assert_int_equal(test_dir_count(&dir), 2);
    test_dir_remove(&dir);
}

static void test_write_refuses(void **state)
{
    (void)state;
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    test_dir_make(&dir);
    test_assert_fails(esp_i_file_write(dir.path, "x", 1, &diag), &diag, ESP_ERR_IO,
                      "cannot write: Is a directory");
    test_assert_fails(esp_i_file_write(test_dir_file(&dir, "no/where", path), "x", 1, &diag), &diag,
                      ESP_ERR_IO, "No such file or directory");
    test_assert_fails(esp_i_file_write("/dev/full", "x", 1, &diag), &diag, ESP_ERR_IO,
                      "/dev/full: cannot write: No space left on device");
    test_assert_fails(esp_i_file_write("", "x", 1, &diag), &diag, ESP_ERR_IO,
                      "No such file or directory");
    char longer[5000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    test_assert_fails(esp_i_file_write(longer, "x", 1, &diag), &diag, ESP_ERR_IO,
                      "File name too long");
    assert_int_equal(test_dir_count(&dir), 0);
    test_dir_remove(&dir);
}

/* A full disk, by the limit on the size of a file: the old file stays, nothing else does. */
static void test_write_full_disk(void **state)
{
    (void)state;
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    struct rlimit old, small;
    esp_diag_t diag = {0};
    char *block = calloc(1, 200000);
    assert_non_null(block);
    test_dir_make(&dir);
    test_write_file(test_dir_file(&dir, "old", path), "old", 3);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 100000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    esp_status_t status = esp_i_file_write(path, block, 200000, &diag);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, handler);
    test_assert_fails(status, &diag, ESP_ERR_IO, "File too large");
    assert_int_equal(test_dir_count(&dir), 1);
    check_content(path, "old");
    free(block);
    test_dir_remove(&dir);
}

/* /dev/stdout may be a file that the shell holds open: it is appended to, not replaced. */
static void test_write_standard_output(void **state)
{
    (void)state;
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    test_dir_make(&dir);
    test_dir_file(&dir, "out", path);
    test_write_file(path, "begin ", 6);
    int descriptor = open(path, O_WRONLY | O_APPEND);
    int saved = dup(STDOUT_FILENO);
    assert_true(descriptor >= 0 && saved >= 0);
    (void)fflush(stdout);
    (void)dup2(descriptor, STDOUT_FILENO);
    esp_status_t status = esp_i_file_write("/dev/stdout", "end", 3, &diag);
    (void)dup2(saved, STDOUT_FILENO);
    (void)close(saved);
    (void)close(descriptor);
    test_assert_ok(status, &diag);
    check_content(path, "begin end");
    assert_int_equal(test_dir_count(&dir), 1);
    test_dir_remove(&dir);
}

/* ---- threads ------------------------------------------------------------------------------ */

typedef struct counts {
    _Atomic int32_t done[1000], workers[8];
    _Atomic int32_t total;
} counts_t;

static void count(void *context, int32_t index, int32_t worker)
{
    counts_t *counts = context;
    counts->done[index]++;
    counts->workers[worker]++;
    counts->total++;
}

static void test_pool(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 8; n++) {
        esp_i_pool_t *pool;
        counts_t *counts = calloc(1, sizeof *counts);
        assert_non_null(counts);
        assert_int_equal(esp_i_pool_create(NULL, n, &pool), ESP_OK);
        assert_int_equal(esp_i_pool_size(pool), n);
        esp_i_pool_run(pool, 0, count, counts);
        assert_int_equal(counts->total, 0);
        for (int round = 0; round < 50; round++)
            esp_i_pool_run(pool, 20 * round, count, counts);
        assert_int_equal(counts->total, 20 * 49 * 50 / 2);
        for (int32_t i = 0; i < 1000; i++)
            assert_int_equal(counts->done[i], 49 - i / 20);
        for (int32_t worker = n; worker < 8; worker++)
            assert_int_equal(counts->workers[worker], 0);
        esp_i_pool_destroy(pool);
        free(counts);
    }
    esp_i_pool_t *none = NULL;
    assert_int_equal(esp_i_pool_create(NULL, 0, &none), ESP_ERR_ARGUMENT);
    assert_int_equal(esp_i_pool_create(NULL, 1025, &none), ESP_ERR_ARGUMENT);
    assert_null(none);
    esp_i_pool_destroy(NULL);
}

static esp_status_t make_pool(const esp_allocator_t *alloc, void *context)
{
    (void)context;
    esp_i_pool_t *pool;
    ESP_TRY(esp_i_pool_create(alloc, 2, &pool));
    esp_i_pool_destroy(pool);
    return ESP_OK;
}

static void test_pool_out_of_memory(void **state)
{
    (void)state;
    test_sweep_allocations(make_pool, NULL, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_read_refuses),
        cmocka_unit_test(test_read_unknown_sizes),
        cmocka_unit_test(test_read_long_pipe),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_write_refuses),
        cmocka_unit_test(test_write_full_disk),
        cmocka_unit_test(test_write_standard_output),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
