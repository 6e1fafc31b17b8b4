/* Memory maps of whole files. */
#include "exec/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static esp_status_t cannot_open(const char *path, int error, esp_diag_t *diag)
{
    char text[128];
    if (strerror_r(error, text, sizeof text) != 0)
        (void)snprintf(text, sizeof text, "error %d", error);
    esp_i_diag_file(diag, path);
    return esp_i_fail(diag, ESP_ERR_IO, "cannot open: %s", text);
}

esp_status_t esp_i_map_open(const char *path, esp_i_map_t *map, esp_diag_t *diag)
{
    struct stat st;
    int error = 0;
    void *data = NULL;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (descriptor < 0)
        return cannot_open(path, errno, diag);
    if (fstat(descriptor, &st) != 0)
        error = errno;
    else if (!S_ISREG(st.st_mode))
        error = S_ISDIR(st.st_mode) ? EISDIR : ENODEV;
    else if (st.st_size > 0) {
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        error = data == MAP_FAILED ? errno : 0;
    }
    (void)close(descriptor);
    if (error != 0)
        return cannot_open(path, error, diag);
    *map = (esp_i_map_t){data, (int64_t)st.st_size};
    return ESP_OK;
}

void esp_i_map_close(esp_i_map_t *map)
{
    if (map->data != NULL)
        (void)munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    *map = (esp_i_map_t){0};
}
