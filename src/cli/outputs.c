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

/* A result must not take the place of what it is made of, nor of another result. */
static int check_clash(const cli_args_t *args, const char *option, const char *path)
{
    const char *other = same_file(path, args->operand)   ? args->operand
                        : same_file(path, args->cluster) ? args->cluster
                        : same_file(path, args->costs)   ? args->costs
                                                         : NULL;
    if (other == NULL)
        return CLI_DONE;
    cli_error("--%s %s would overwrite the input %s", option, path, other);
    return CLI_USAGE;
}

int cli_check_outputs(const cli_args_t *args)
{
    int result = check_clash(args, "output", args->output);
    if (result == CLI_DONE)
        result = check_clash(args, "trace", args->trace);
    if (result == CLI_DONE && same_file(args->output, args->trace)) {
        cli_error("--output and --trace name the same file: %s", args->output);
        result = CLI_USAGE;
    }
    if (result == CLI_DONE)
        result = check_clash(args, "checkpoint", args->checkpoint);
    if (result == CLI_DONE)
        result = check_clash(args, "log", args->log);
    if (result == CLI_DONE && same_file(args->log, args->checkpoint)) {
        cli_error("--log and --checkpoint name the same file: %s", args->log);
        result = CLI_USAGE;
    }
    if (result == CLI_DONE)
        result = check_output(args->checkpoint);
    if (result == CLI_DONE)
        result = check_output(args->log);
    if (result == CLI_DONE)
        result = check_output(args->output);
    return result == CLI_DONE ? check_output(args->trace) : result;
}
