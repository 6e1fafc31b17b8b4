/* Whether the files that a command is to write can be written: asked before the work, not after. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot(const char *path, const char *why)
{
    cli_error("%s: cannot write: %s", path, why);
    return CLI_BAD_INPUT;
}

/* A file is written beside its old version, which it then replaces: its directory counts. */
static int check_directory(const char *path)
{
    struct stat info;
    const char *slash = strrchr(path, '/');
    char *directory = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    int result = CLI_DONE;
    if (directory == NULL) {
        cli_error("out of memory");
        return CLI_FAULT;
    }
    if (stat(directory, &info) != 0 || !S_ISDIR(info.st_mode))
        result = cannot(path, "its directory does not exist");
    else if (access(directory, W_OK | X_OK) != 0)
        result = cannot(path, strerror(errno));
    free(directory);
    return result;
}

static int check_output(const char *path)
{
    struct stat info;
    if (path == NULL)
        return CLI_DONE;
    if (stat(path, &info) != 0)
        return check_directory(path);
    if (S_ISDIR(info.st_mode))
        return cannot(path, "it is a directory");
    if (!S_ISREG(info.st_mode) || strncmp(path, "/dev/", 5) == 0)
        return CLI_DONE; /* a device, a pipe, what standard output goes to */
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        return CLI_DONE; /* what it names is replaced, wherever that is */
    return check_directory(path);
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    if (a == NULL || b == NULL)
        return false;
    if (strcmp(a, b) == 0)
        return stat(a, &x) != 0 || S_ISREG(x.st_mode);
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* Whether `path` is a file of a list of NAME=FILE. */
static bool is_listed(const char *list, const char *path)
{
    bool same = false;
    while (list != NULL && *list != '\0' && !same) {
        size_t length = strcspn(list, ",");
        const char *equals = memchr(list, '=', length);
        char *file =
            equals != NULL ? strndup(equals + 1, length - (size_t)(equals + 1 - list)) : NULL;
        same = same_file(path, file);
        free(file);
        list += length + (list[length] == ',');
    }
    return same;
}

static bool is_standard_output(const char *path)
{
    struct stat x, y;
    return stat(path, &x) == 0 && fstat(STDOUT_FILENO, &y) == 0 && !S_ISCHR(x.st_mode) &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

typedef struct output {
    const char *option, *path;
} output_t;
enum { OUTPUTS = 5 };

static void list_outputs(const cli_args_t *args, output_t out[OUTPUTS])
{
    out[0] = (output_t){"checkpoint", args->checkpoint};
    out[1] = (output_t){"log", args->log};
    out[2] = (output_t){"status", args->status_file};
    out[3] = (output_t){"output", args->output};
    out[4] = (output_t){"trace", args->trace};
}

static int clash(const output_t *output)
{
    cli_error("--%s %s would overwrite the input of that name", output->option, output->path);
    return CLI_USAGE;
}

/* A result must not take the place of what it is made of; but a run goes on with its checkpoint. */
static int check_inputs(const cli_args_t *args, const output_t *output)
{
    const char *const inputs[] = {args->operand, args->cluster,  args->costs,
                                  args->weights, args->measured, args->resume};
    int n = sizeof inputs / sizeof *inputs - (output->path == args->checkpoint ? 1 : 0);
    for (int i = 0; i < n; i++)
        if (same_file(output->path, inputs[i]))
            return clash(output);
    return is_listed(args->data, output->path) || is_listed(args->eval_data, output->path)
               ? clash(output)
               : CLI_DONE;
}

int cli_check_outputs_beside(const cli_args_t *args, const char *input)
{
    output_t outputs[OUTPUTS];
    list_outputs(args, outputs);
    for (int i = 0; i < OUTPUTS; i++)
        if (same_file(outputs[i].path, input))
            return clash(&outputs[i]);
    return CLI_DONE;
}

/* Nor may it take the place of another result. */
static int check_others(const cli_args_t *args, const output_t *outputs, int at)
{
    const output_t *output = &outputs[at];
    for (int i = 0; i < at; i++)
        if (same_file(output->path, outputs[i].path)) {
            cli_error("--%s and --%s name the same file: %s", output->option, outputs[i].option,
                      output->path);
            return CLI_USAGE;
        }
    if (args->json && output->path != NULL && is_standard_output(output->path)) {
        cli_error("--%s %s is standard output, which --json has for itself", output->option,
                  output->path);
        return CLI_USAGE;
    }
    return CLI_DONE;
}

int cli_check_outputs(const cli_args_t *args)
{
    output_t outputs[OUTPUTS];
    int result = CLI_DONE;
    list_outputs(args, outputs);
    for (int i = 0; i < OUTPUTS && result == CLI_DONE; i++) {
        result = check_inputs(args, &outputs[i]);
        if (result == CLI_DONE)
            result = check_others(args, outputs, i);
    }
    for (int i = 0; i < OUTPUTS && result == CLI_DONE; i++)
        result = check_output(outputs[i].path);
    return result;
}
