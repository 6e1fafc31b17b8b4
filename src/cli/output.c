/* Everything that the command says: errors, standard output, progress. */
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- errors ------------------------------------------------------------------------------- */

static bool in_colour(void)
{
    const char *terminal = getenv("TERM");
    const char *no_colour = getenv("NO_COLOR");
    return isatty(STDERR_FILENO) && (no_colour == NULL || no_colour[0] == '\0') &&
           terminal != NULL && strcmp(terminal, "dumb") != 0;
}

static bool errors_off;

void cli_errors_off(bool off)
{
    errors_off = off;
}

void cli_error(const char *format, ...)
{
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (errors_off)
        return;
    for (char *c = line; *c != '\0'; c++) /* one line, and no escape sequences from input files */
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    (void)fprintf(stderr, in_colour() ? "\033[1;31mespalier:\033[0m %s\n" : "espalier: %s\n", line);
}

int cli_fail(esp_status_t status, const esp_diag_t *diag)
{
    char text[1024];
    if (diag->status != ESP_OK)
        (void)esp_diag_format(diag, text, sizeof text);
    else
        (void)snprintf(text, sizeof text, "%s", esp_status_text(status));
    cli_error("%s", text);
    switch (status) {
    case ESP_OK:
    case ESP_STOPPED:
    case ESP_ERR_NOMEM:
    case ESP_ERR_INTERNAL:
        return CLI_FAULT;
    case ESP_ERR_ARGUMENT:
        return CLI_USAGE;
    case ESP_ERR_INFEASIBLE:
        return CLI_NO_PLAN;
    case ESP_ERR_IO:
    case ESP_ERR_SYNTAX:
    case ESP_ERR_INVALID:
    case ESP_ERR_UNSUPPORTED:
    case ESP_ERR_LIMIT:
        return CLI_BAD_INPUT;
    }
    return CLI_FAULT;
}

int cli_fail_in(const char *file, esp_status_t status, esp_diag_t *diag)
{
    if (diag->file[0] == '\0' && status != ESP_ERR_NOMEM)
        (void)snprintf(diag->file, sizeof diag->file, "%s", file);
    if (diag->text[0] == '\0') {
        diag->status = status;
        (void)snprintf(diag->text, sizeof diag->text, "%s", esp_status_text(status));
    }
    return cli_fail(status, diag);
}

/* ---- standard output ---------------------------------------------------------------------- */

int cli_print(const char *text)
{
    errno = 0;
    if (fputs(text, stdout) >= 0 && fflush(stdout) == 0)
        return CLI_DONE;
    cli_error("standard output: %s", strerror(errno));
    return CLI_BAD_INPUT;
}

int cli_print_report(esp_status_t status, char *text, const esp_diag_t *diag)
{
    if (status != ESP_OK)
        return cli_fail(status, diag);
    int result = cli_print(text);
    free(text);
    return result;
}

esp_report_opts_t cli_report_opts(const cli_args_t *args)
{
    esp_report_opts_t opts = esp_report_opts_default();
    opts.form = args->json ? ESP_REPORT_JSON : ESP_REPORT_TEXT;
    opts.verbose = args->verbose;
    return opts;
}

/* ---- progress and interruption ------------------------------------------------------------ */

static volatile sig_atomic_t interrupted;

/* The first Ctrl-C asks for the best result so far, the second one ends the program. */
static void interrupt(int number)
{
    interrupted = 1;
    (void)signal(number, SIG_DFL);
}

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void cli_progress_init(cli_progress_t *progress, const cli_args_t *args)
{
    *progress = (cli_progress_t){.shown = !args->quiet && isatty(STDERR_FILENO)};
    (void)signal(SIGINT, interrupt);
}

void cli_catch_signals(void)
{
    (void)signal(SIGTERM, interrupt);
    (void)signal(SIGUSR1, interrupt);
}

int cli_progress_update(void *context, double fraction, const char *what)
{
    cli_progress_t *progress = context;
    int64_t now = progress->shown ? now_ns() : 0;
    if (progress->shown && now >= progress->next_ns) {
        (void)fprintf(stderr, "\r%3.0f %%  %.70s\033[K", 100 * fraction, what != NULL ? what : "");
        progress->next_ns = now + 100000000;
    }
    return interrupted;
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

void cli_progress_fini(cli_progress_t *progress)
{
    if (progress->shown && progress->next_ns > 0)
        (void)fputs("\r\033[K", stderr);
}
