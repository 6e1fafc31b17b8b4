/* Runs the built command without a shell. */
#include "cli_run.h"

#include "base/json.h"

#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 64 };

#ifndef ESP_CLI
#define ESP_CLI "espalier"
#endif

/* ---- the process -------------------------------------------------------------------------- */

static void split(char *line, char *argv[WORDS])
{
    int n = 0;
    static char program[] = ESP_CLI;
    argv[n++] = program;
    for (char *word = strtok(line, " "); word != NULL && n < WORDS - 1; word = strtok(NULL, " ")) {
        if (strcmp(word, "''") == 0)
            word[0] = '\0';
        argv[n++] = word;
    }
    argv[n] = NULL;
}

static void open_output(const char *path, int pipe_end)
{
    int ends[2], out = pipe_end;
    if (path != NULL && strcmp(path, "|") == 0 && pipe(ends) == 0) {
        (void)close(ends[0]);
        out = ends[1];
    } else if (path != NULL) {
        out = open(path, O_WRONLY);
    }
    (void)dup2(out, STDOUT_FILENO);
}

static void run_child(char *argv[WORDS], const char *out_path, const int out[2], const int err[2])
{
    int input = open("/dev/null", O_RDONLY);
    (void)dup2(input, STDIN_FILENO);
    open_output(out_path, out[1]);
    (void)dup2(err[1], STDERR_FILENO);
    for (int fd = 3; fd < 32; fd++)
        (void)close(fd);
    if (chdir(ESP_SOURCE_DIR) == 0)
        (void)execv(argv[0], argv);
    _exit(127);
}

/* Reads both pipes to their ends, whichever is ready. */
static void read_both(int fd[2], char *text[2])
{
    size_t length[2] = {0, 0};
    struct pollfd polls[2] = {{fd[0], POLLIN, 0}, {fd[1], POLLIN, 0}};
    for (int open_ends = 2; open_ends > 0;) {
        assert_true(poll(polls, 2, 100000) > 0);
        for (int i = 0; i < 2; i++) {
            if (polls[i].fd < 0 || polls[i].revents == 0)
                continue;
            text[i] = realloc(text[i], length[i] + 65537);
            assert_non_null(text[i]);
            ssize_t got = read(polls[i].fd, text[i] + length[i], 65536);
            if (got <= 0) {
                polls[i].fd = -1;
                open_ends--;
            }
            length[i] += got > 0 ? (size_t)got : 0;
            text[i][length[i]] = '\0';
        }
    }
}

static void run(cli_result_t *result, const char *out_path, char *line)
{
    char *argv[WORDS], *text[2] = {NULL, NULL};
    int out[2], err[2], status;
    split(line, argv);
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        run_child(argv, out_path, out, err);
    (void)close(out[1]);
    (void)close(err[1]);
    read_both((int[2]){out[0], err[0]}, text);
    (void)close(out[0]);
    (void)close(err[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    result->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result->out = text[0];
    result->err = text[1];
}

void cli_run(cli_result_t *result, const char *format, ...)
{
    char line[4 * TEST_PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    run(result, NULL, line);
}

void cli_run_to(cli_result_t *result, const char *out_path, const char *format, ...)
{
    char line[4 * TEST_PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    run(result, out_path, line);
}

void cli_result_free(cli_result_t *result)
{
    free(result->out);
    free(result->err);
    *result = (cli_result_t){0};
}

/* ---- expectations ------------------------------------------------------------------------- */

void cli_expect(const cli_result_t *result, int status)
{
    if (result->status != status)
        fail_msg("exit status %d instead of %d\nstdout: %s\nstderr: %s", result->status, status,
                 result->out, result->err);
}

void cli_expect_error(const cli_result_t *result, int status, const char *part)
{
    cli_expect(result, status);
    if (result->out[0] != '\0')
        fail_msg("stdout is not empty: %.200s", result->out);
    size_t line = strcspn(result->err, "\n");
    if (strncmp(result->err, "espalier: ", 10) != 0 || strcmp(result->err + line, "\n") != 0)
        fail_msg("not one line that begins with espalier: %s", result->err);
    if (strstr(result->err, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, result->err);
}

void cli_expect_json(const cli_result_t *result)
{
    esp_i_json_doc_t *doc;
    esp_diag_t diag = {0};
    test_assert_ok(
        esp_i_json_parse(NULL, result->out, (int64_t)strlen(result->out), "stdout", &doc, &diag),
        &diag);
    esp_i_json_destroy(doc);
}

void cli_expect_narrow(const cli_result_t *result)
{
    for (const char *line = result->out; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (length > 100 || (length > 0 && line[length - 1] == ' '))
            fail_msg("too wide, or a blank at the end: \"%.*s\"", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

/* Every number becomes #, with its unit; then every run of blanks becomes one. */
static void mask(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        bool begins = from == text || (!isalnum((unsigned char)from[-1]) && from[-1] != '_');
        if (begins && isdigit((unsigned char)*from)) {
            from += strspn(from, "0123456789.");
            static const char *const units[] = {"ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB"};
            for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
                size_t n = strlen(units[i]);
                if (from[0] == ' ' && strncmp(from + 1, units[i], n) == 0 &&
                    !isalpha((unsigned char)from[1 + n])) {
                    from += 1 + n;
                    break;
                }
            }
            *to++ = '#';
        } else if (*from == ' ' && to > text && to[-1] == ' ') {
            from++;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

void cli_golden(const cli_result_t *result, const char *name, bool masked)
{
    char *copy = strdup(result->out);
    assert_non_null(copy);
    if (masked)
        mask(copy);
    test_golden(name, copy);
    free(copy);
}
