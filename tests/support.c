/* The helpers of support.h. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- memory ------------------------------------------------------------------------------- */

static void *counted_alloc(void *context, size_t bytes)
{
    test_memory_t *memory = context;
    int64_t call = ++memory->calls;
    if (memory->fail_at > 0 &&
        (call == memory->fail_at || (memory->persistent && call > memory->fail_at)))
        return NULL;
    void *block = malloc(bytes);
    if (block != NULL)
        memory->live++;
    return block;
}

static void counted_release(void *context, void *block)
{
    test_memory_t *memory = context;
    if (block != NULL)
        memory->live--;
    free(block);
}

void test_memory_init(test_memory_t *memory)
{
    memset(memory, 0, sizeof *memory);
    memory->alloc = (esp_allocator_t){memory, counted_alloc, counted_release};
}

void test_memory_fail(test_memory_t *memory, int64_t kth, bool persistent)
{
    memory->calls = 0;
    memory->fail_at = kth;
    memory->persistent = persistent;
}

void test_memory_check(const test_memory_t *memory)
{
    if (memory->live != 0)
        fail_msg("%lld blocks leaked", (long long)memory->live);
}

static void sweep(test_attempt_fn attempt, void *context, int64_t stride, bool persistent)
{
    for (int64_t kth = 1;; kth += stride) {
        test_memory_t memory;
        test_memory_init(&memory);
        test_memory_fail(&memory, kth, persistent);
        esp_status_t status = attempt(&memory.alloc, context);
        if (memory.live != 0)
            fail_msg("allocation %lld fails: %lld blocks leaked", (long long)kth,
                     (long long)memory.live);
        if (memory.calls < kth) { /* nothing failed: the sweep is over */
            if (status != ESP_OK)
                fail_msg("without a failure: %s", esp_status_text(status));
            return;
        }
        /* A transient failure may be survived, for example by a smaller buffer. */
        if (status != ESP_ERR_NOMEM && (persistent || status != ESP_OK))
            fail_msg("allocation %lld fails: %s", (long long)kth, esp_status_text(status));
    }
}

void test_sweep_allocations(test_attempt_fn attempt, void *context, int64_t stride)
{
    sweep(attempt, context, stride, false);
    sweep(attempt, context, stride, true);
}

/* ---- files -------------------------------------------------------------------------------- */

static const char *join(char out[TEST_PATH_MAX], const char *directory, const char *name)
{
    int length = snprintf(out, TEST_PATH_MAX, "%s/%s", directory, name);
    assert_in_range(length, 1, TEST_PATH_MAX - 1);
    return out;
}

void test_dir_make(test_dir_t *dir)
{
    const char *root = getenv("TMPDIR");
    join(dir->path, root != NULL && root[0] != '\0' ? root : "/tmp", "espalier-test-XXXXXX");
    assert_non_null(mkdtemp(dir->path));
}

const char *test_dir_file(const test_dir_t *dir, const char *name, char out[TEST_PATH_MAX])
{
    return join(out, dir->path, name);
}

int32_t test_dir_count(const test_dir_t *dir)
{
    DIR *directory = opendir(dir->path);
    assert_non_null(directory);
    int32_t count = -2; /* "." and ".." */
    while (readdir(directory) != NULL)
        count++;
    (void)closedir(directory);
    return count;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void test_dir_remove(const test_dir_t *dir)
{
    assert_int_equal(nftw(dir->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void test_write_file(const char *path, const void *data, size_t length)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        fail_msg("cannot write %s: %s", path, strerror(errno));
    assert_int_equal(fwrite(data, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* All of a stream, NUL-terminated. */
static char *read_stream(FILE *file, size_t *length_out)
{
    size_t capacity = 4096, length = 0;
    char *data = malloc(capacity);
    assert_non_null(data);
    for (size_t count; (count = fread(data + length, 1, capacity - length - 1, file)) > 0;) {
        length += count;
        if (length + 1 == capacity) {
            data = realloc(data, capacity *= 2);
            assert_non_null(data);
        }
    }
    data[length] = '\0';
    if (length_out != NULL)
        *length_out = length;
    return data;
}

char *test_read_file(const char *path, size_t *length_out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("cannot read %s: %s", path, strerror(errno));
    char *data = read_stream(file, length_out);
    (void)fclose(file);
    return data;
}

const char *test_source_path(const char *name, char out[TEST_PATH_MAX])
{
    return join(out, ESP_SOURCE_DIR, name);
}

const char *test_shared_path(const char *name, char out[TEST_PATH_MAX])
{
    const char *root = getenv("ESP_SHARED");
    join(out, root != NULL && root[0] != '\0' ? root : ESP_SOURCE_DIR "/../shared", name);
    if (access(out, R_OK) != 0) {
        print_message("skipped: %s is absent; ESP_SHARED names the directory of public data\n",
                      out);
        skip();
    }
    return out;
}

/* Where two texts part, for a message that can be read. */
static void fail_difference(const char *path, const char *golden, const char *text)
{
    int line = 1;
    size_t begin = 0, i = 0;
    for (; golden[i] == text[i] && golden[i] != '\0'; i++)
        if (golden[i] == '\n') {
            line++;
            begin = i + 1;
        }
    fail_msg("differs from %s at line %d:\n- %.*s\n+ %.*s\nESP_REFRESH=1 accepts it", path, line,
             (int)strcspn(golden + begin, "\n"), golden + begin, (int)strcspn(text + begin, "\n"),
             text + begin);
}

void test_golden(const char *name, const char *text)
{
    char path[TEST_PATH_MAX], directory[TEST_PATH_MAX];
    join(path, ESP_SOURCE_DIR "/tests/golden", name);
    const char *refresh = getenv("ESP_REFRESH");
    if (refresh != NULL && strcmp(refresh, "1") == 0) {
        for (const char *slash = path; (slash = strchr(slash + 1, '/')) != NULL;) {
            (void)snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path);
            (void)mkdir(directory, 0777);
        }
        test_write_file(path, text, strlen(text));
        return;
    }
    char *golden = test_read_file(path, NULL);
    if (strcmp(golden, text) != 0)
        fail_difference(path, golden, text);
    free(golden);
}

/* ---- errors and commands ------------------------------------------------------------------ */

void test_check_failure_(esp_status_t actual, const esp_diag_t *diag, esp_status_t expected,
                         const char *part, const char *file, int line)
{
    char text[1024];
    (void)esp_diag_format(diag, text, sizeof text);
    if (actual != expected || diag->status != expected || strstr(text, part) == NULL) {
        print_error("%s:%d: expected '%s' with '%s'\n", file, line, esp_status_text(expected),
                    part);
        print_error("got '%s', diagnostic '%s': %s\n", esp_status_text(actual),
                    esp_status_text(diag->status), text);
        _fail(file, line);
    }
}

void test_check_success_(esp_status_t actual, const esp_diag_t *diag, const char *file, int line)
{
    if (actual == ESP_OK)
        return;
    char text[1024] = "";
    if (diag != NULL && diag->status == actual)
        (void)esp_diag_format(diag, text, sizeof text);
    print_error("%s:%d: %s: %s\n", file, line, esp_status_text(actual), text);
    _fail(file, line);
}

int test_command(char **output_out, const char *format, ...)
{
    char command[4 * TEST_PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    assert_in_range(length, 1, sizeof command - 1);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char *output = read_stream(pipe, NULL);
    int status = pclose(pipe);
    if (output_out != NULL)
        *output_out = output;
    else
        free(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
