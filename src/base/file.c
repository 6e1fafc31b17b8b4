/* Files: reading whole ones with a limit, writing atomically. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "cannot read: No such file or directory", with the path as the file. */
static esp_status_t fail_errno(esp_diag_t *diag, const char *verb, const char *path, int error)
{
    char text[128];
    if (strerror_r(error, text, sizeof text) != 0)
        (void)snprintf(text, sizeof text, "error %d", error);
    esp_i_diag_file(diag, path);
    return esp_i_fail(diag, ESP_ERR_IO, "cannot %s: %s", verb, text);
}

/* ---- reading ------------------------------------------------------------------------------ */

typedef struct input {
    const esp_allocator_t *alloc;
    const char *path;
    int descriptor;
    int64_t limit;
    char *data;
    int64_t length, capacity; /* capacity without the NUL */
} input_t;

static esp_status_t fail_too_large(const input_t *in, esp_diag_t *diag)
{
    char text[32];
    esp_i_format_bytes(in->limit, text);
    esp_i_diag_file(diag, in->path);
    return esp_i_fail(diag, ESP_ERR_LIMIT, "larger than the limit of %s", text);
}

/* Only what ends: a device may go on for ever. The expected size goes to `capacity`. */
static esp_status_t check_kind(input_t *in, esp_diag_t *diag)
{
    struct stat st;
    if (fstat(in->descriptor, &st) != 0)
        return fail_errno(diag, "read", in->path, errno);
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode)) {
        esp_i_diag_file(diag, in->path);
        return esp_i_fail(diag, ESP_ERR_IO, "cannot read: %s",
                          S_ISDIR(st.st_mode) ? "it is a directory" : "it is a device");
    }
    if (S_ISREG(st.st_mode) && st.st_size > in->limit)
        return fail_too_large(in, diag);
    /* One byte more, so that the read that finds the end needs no larger buffer. */
    in->capacity = (S_ISREG(st.st_mode) && st.st_size > 0 ? (int64_t)st.st_size : 65535) + 1;
    return ESP_OK;
}

static esp_status_t enlarge(input_t *in, esp_diag_t *diag)
{
    int64_t capacity = esp_i_min_i64(2 * in->capacity, in->limit + 1);
    char *data = esp_i_alloc(in->alloc, (size_t)capacity + 1);
    if (data == NULL) {
        esp_i_diag_file(diag, in->path);
        return esp_i_nomem(diag);
    }
    memcpy(data, in->data, (size_t)in->length);
    esp_i_free(in->alloc, in->data);
    in->data = data;
    in->capacity = capacity;
    return ESP_OK;
}

/* Reads to the end. A file that grows or shrinks meanwhile is read as it is found. */
static esp_status_t read_all(input_t *in, esp_diag_t *diag)
{
    for (;;) {
        if (in->length > in->limit)
            return fail_too_large(in, diag);
        if (in->length == in->capacity)
            ESP_TRY(enlarge(in, diag));
        ssize_t count =
            read(in->descriptor, in->data + in->length, (size_t)(in->capacity - in->length));
        if (count < 0 && errno != EINTR)
            return fail_errno(diag, "read", in->path, errno);
        if (count == 0)
            return ESP_OK;
        if (count > 0)
            in->length += count;
    }
}

esp_status_t esp_i_file_read(const esp_allocator_t *alloc, const char *path, int64_t limit,
                             char **data_out, int64_t *length_out, esp_diag_t *diag)
{
    esp_assert(limit >= 0 && limit < INT64_MAX / 4);
    input_t in = {.alloc = alloc, .path = path, .limit = limit};
    in.descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (in.descriptor < 0)
        return fail_errno(diag, "open", path, errno);
    esp_status_t status = check_kind(&in, diag);
    if (status != ESP_OK)
        goto done;
    in.data = esp_i_alloc(alloc, (size_t)in.capacity + 1);
    if (in.data == NULL) {
        esp_i_diag_file(diag, path);
        status = esp_i_nomem(diag);
        goto done;
    }
    status = read_all(&in, diag);
    if (status == ESP_OK) {
        in.data[in.length] = '\0';
        *data_out = in.data;
        *length_out = in.length;
        in.data = NULL;
    }
done:
    esp_i_free(alloc, in.data);
    (void)close(in.descriptor);
    return status;
}

/* ---- writing ------------------------------------------------------------------------------ */

static int write_all(int descriptor, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t count = write(descriptor, data, length < (1 << 30) ? length : (1 << 30));
        if (count < 0 && errno != EINTR)
            return errno;
        if (count > 0) {
            data += count;
            length -= (size_t)count;
        }
    }
    return 0;
}

/* Creates a file beside `path` under a name that nobody has; its descriptor, or -1 and errno. */
static int create_beside(const char *path, mode_t mode, char temporary_out[PATH_MAX])
{
    for (int attempt = 0; attempt < 1000; attempt++) {
        int length =
            snprintf(temporary_out, PATH_MAX, "%s.%ld-%d.tmp", path, (long)getpid(), attempt);
        if (length < 0 || length >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int descriptor = open(temporary_out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (descriptor >= 0 || errno != EEXIST)
            return descriptor;
    }
    return -1;
}

/* The new name must survive a crash too. Some file systems cannot do this: no error. */
static void sync_directory_of(const char *path)
{
    char directory[PATH_MAX];
    (void)snprintf(directory, sizeof directory, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash == NULL)
        (void)snprintf(directory, sizeof directory, ".");
    else
        slash[slash == directory] = '\0';
    int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)fsync(descriptor);
        (void)close(descriptor);
    }
}

/* Says why, and leaves nothing behind. */
static esp_status_t give_up(esp_i_file_out_t *out, int error, esp_diag_t *diag)
{
    esp_status_t status = fail_errno(diag, "write", out->path, error);
    esp_i_file_abandon(out);
    return status;
}

esp_status_t esp_i_file_begin(const char *path, esp_i_file_out_t *out, esp_diag_t *diag)
{
    struct stat st;
    bool exists = stat(path, &st) == 0;
    *out = (esp_i_file_out_t){.descriptor = -1};
    if (!exists && errno != ENOENT)
        return fail_errno(diag, "write", path, errno);
    if (exists && S_ISDIR(st.st_mode))
        return fail_errno(diag, "write", path, EISDIR);
    if (strlen(path) >= sizeof out->path)
        return fail_errno(diag, "write", path, ENAMETOOLONG);
    /* A symbolic link stays, and the file that it names is replaced. */
    if (!exists || realpath(path, out->path) == NULL)
        memcpy(out->path, path, strlen(path) + 1);
    /* What cannot be replaced (a device, a pipe) is appended to. Under /dev a name like stdout may
     * stand for a regular file that others hold open. */
    if (exists && (!S_ISREG(st.st_mode) || strncmp(path, "/dev/", 5) == 0))
        out->descriptor = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    else
        out->descriptor = create_beside(out->path, 0666, out->temporary);
    if (out->descriptor < 0)
        return fail_errno(diag, "write", path, errno);
    if (exists && out->temporary[0] != '\0')
        (void)fchmod(out->descriptor, st.st_mode & 07777); /* some file systems have no modes */
    return ESP_OK;
}

esp_status_t esp_i_file_append(esp_i_file_out_t *out, const void *data, size_t length,
                               esp_diag_t *diag)
{
    int error = write_all(out->descriptor, data, length);
    return error != 0 ? give_up(out, error, diag) : ESP_OK;
}

esp_status_t esp_i_file_commit(esp_i_file_out_t *out, esp_diag_t *diag)
{
    bool replaces = out->temporary[0] != '\0';
    int error = replaces && fsync(out->descriptor) != 0 ? errno : 0;
    if (close(out->descriptor) != 0 && error == 0)
        error = errno;
    out->descriptor = -1;
    if (error == 0 && replaces && rename(out->temporary, out->path) != 0)
        error = errno;
    if (error != 0)
        return give_up(out, error, diag);
    if (replaces)
        sync_directory_of(out->path);
    out->temporary[0] = '\0';
    return ESP_OK;
}

void esp_i_file_abandon(esp_i_file_out_t *out)
{
    if (out->descriptor >= 0)
        (void)close(out->descriptor);
    if (out->temporary[0] != '\0')
        (void)unlink(out->temporary);
    out->descriptor = -1;
    out->temporary[0] = '\0';
}

esp_status_t esp_i_file_write(const char *path, const void *data, size_t length, esp_diag_t *diag)
{
    esp_i_file_out_t out;
    ESP_TRY(esp_i_file_begin(path, &out, diag));
    ESP_TRY(esp_i_file_append(&out, data, length, diag));
    return esp_i_file_commit(&out, diag);
}

esp_status_t esp_file_write(const char *path, const void *data, size_t length, esp_diag_t *diag)
{
    return esp_i_file_write(path, data, length, diag);
}
