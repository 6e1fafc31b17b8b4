/* The status file. */
#include "exec/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct esp_i_status_file {
    esp_allocator_t alloc;
    char *line;
    size_t bytes;
};

static esp_status_t io_fail(esp_diag_t *diag, const char *path, const char *what)
{
    esp_i_diag_file(diag, path);
    return esp_i_fail(diag, ESP_ERR_IO, "cannot %s the status file: %s", what, strerror(errno));
}

static esp_status_t map(esp_i_status_file_t *status, const char *path, esp_diag_t *diag)
{
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return io_fail(diag, path, "open");
    /* With its blocks: on a full disk a store to memory that has none would be a fault. */
    int error = ftruncate(file, (off_t)status->bytes) != 0 ? errno : 0;
    if (error == 0)
        error = posix_fallocate(file, 0, (off_t)status->bytes);
    if (error != 0) {
        errno = error;
        (void)io_fail(diag, path, "size");
        (void)close(file);
        return ESP_ERR_IO;
    }
    void *memory = mmap(NULL, status->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    if (memory == MAP_FAILED)
        return io_fail(diag, path, "map");
    status->line = memory;
    return ESP_OK;
}

esp_status_t esp_i_status_create(const esp_allocator_t *alloc, const char *path, int32_t n_ranks,
                                 esp_i_status_file_t **status_out, esp_diag_t *diag)
{
    esp_i_status_file_t *status = esp_i_alloc_array(alloc, 1, sizeof *status);
    if (!status)
        return esp_i_nomem(diag);
    status->alloc = esp_i_allocator(alloc);
    status->bytes = (size_t)n_ranks * ESP_I_STATUS_WIDTH;
    const esp_status_t result = map(status, path, diag);
    if (result != ESP_OK) {
        esp_i_status_destroy(status);
        return result;
    }
    *status_out = status;
    return ESP_OK;
}

void esp_i_status_destroy(esp_i_status_file_t *status)
{
    if (!status)
        return;
    const esp_allocator_t alloc = status->alloc;
    if (status->line)
        (void)munmap(status->line, status->bytes);
    esp_i_free(&alloc, status);
}

/* A line being written; plain stores, no formatting: this is done for every task. */
typedef struct pen {
    char *at, *end;
} pen_t;

static void word(pen_t *pen, const char *text)
{
    while (*text && pen->at < pen->end)
        *pen->at++ = *text++;
    if (pen->at < pen->end)
        *pen->at++ = ' ';
}

static void number(pen_t *pen, uint64_t value)
{
    char digits[24];
    char *at = digits + sizeof digits;
    *--at = '\0';
    do
        *--at = (char)('0' + value % 10);
    while (value /= 10);
    word(pen, at);
}

static pen_t begin(const esp_i_status_file_t *status, int32_t rank, const char *device)
{
    char *line = status->line + (size_t)rank * ESP_I_STATUS_WIDTH;
    pen_t pen = {line, line + ESP_I_STATUS_WIDTH - 1};
    word(&pen, "rank");
    number(&pen, (uint64_t)rank);
    word(&pen, device);
    return pen;
}

static void finish(const pen_t *pen)
{
    memset(pen->at, ' ', (size_t)(pen->end - pen->at));
    *pen->end = '\n';
}

void esp_i_status_idle(esp_i_status_file_t *status, int32_t rank, const char *device)
{
    pen_t pen = begin(status, rank, device);
    word(&pen, "idle");
    finish(&pen);
}

void esp_i_status_task(esp_i_status_file_t *status, int32_t rank, const char *device, uint64_t step,
                       int32_t task, const char *what, const char *op)
{
    pen_t pen = begin(status, rank, device);
    word(&pen, "step");
    number(&pen, step);
    word(&pen, "task");
    number(&pen, (uint64_t)task);
    word(&pen, what);
    word(&pen, op);
    finish(&pen);
}
