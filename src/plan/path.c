/* Paths in plan files: relative to the file where that is possible. */
#include "plan/plan.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

const char *esp_i_plan_directory(esp_i_arena_t *arena, const char *file)
{
    const char *slash = strrchr(file, '/');
    if (!slash)
        return esp_i_arena_strdup(arena, ".");
    return esp_i_arena_strndup(arena, file, slash == file ? 1 : (size_t)(slash - file));
}

const char *esp_i_plan_path_in(esp_i_arena_t *arena, const char *file, const char *path)
{
    const char *slash = strrchr(file, '/');
    if (!slash || path[0] == '/' || path[0] == '\0')
        return esp_i_arena_strdup(arena, path);
    return esp_i_arena_printf(arena, "%.*s%s", (int)(slash - file + 1), file, path);
}

/* Takes empty names, "." and ".." out of an absolute path, by its letters alone. In place. */
static void normalise(char *path)
{
    char *out = path;
    for (const char *in = path; *in != '\0';) {
        const char *start = ++in; /* behind a slash */
        while (*in != '\0' && *in != '/')
            in++;
        size_t length = (size_t)(in - start);
        if (length == 0 || (length == 1 && start[0] == '.'))
            continue;
        if (length == 2 && start[0] == '.' && start[1] == '.') {
            while (out > path && *--out != '/')
                ;
            continue;
        }
        *out++ = '/';
        memmove(out, start, length);
        out += length;
    }
    if (out == path)
        *out++ = '/';
    *out = '\0';
}

static esp_status_t absolute(esp_i_arena_t *arena, const char *path, char **out, esp_diag_t *diag)
{
    char working[4096] = "";
    if (path[0] != '/' && !getcwd(working, sizeof working))
        return esp_i_fail(diag, ESP_ERR_IO, "the working directory has no name: %s",
                          strerror(errno));
    *out = esp_i_arena_printf(arena, "%s/%s", working, path);
    if (!*out)
        return esp_i_nomem(diag);
    normalise(*out);
    return ESP_OK;
}

esp_status_t esp_i_plan_path_out(esp_i_arena_t *arena, const char *directory, const char *path,
                                 const char **out, esp_diag_t *diag)
{
    char *whole, *base;
    *out = path;
    if (!directory || path[0] == '\0')
        return ESP_OK;
    ESP_TRY(absolute(arena, path, &whole, diag));
    ESP_TRY(absolute(arena, directory, &base, diag));
    size_t length = strcmp(base, "/") == 0 ? 0 : strlen(base);
    bool inside =
        strncmp(whole, base, length) == 0 && whole[length] == '/' && whole[length + 1] != '\0';
    *out = inside ? whole + length + 1 : whole;
    return ESP_OK;
}
