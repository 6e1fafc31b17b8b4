/* What a run says of each step: the log, and progress on a terminal. */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int run_log_open(run_t *run)
{
    if (run->args->log == NULL || !run->first)
        return CLI_DONE;
    /* A run that goes on goes on with its log. */
    run->log = fopen(run->args->log, run->args->resume != NULL ? "a" : "w");
    if (run->log != NULL)
        return CLI_DONE;
    cli_error("%s: cannot write: %s", run->args->log, strerror(errno));
    return CLI_BAD_INPUT;
}

int run_log_close(run_t *run)
{
    if (run->log == NULL)
        return CLI_DONE;
    errno = 0;
    if (fclose(run->log) != 0 && run->log_error == 0)
        run->log_error = errno != 0 ? errno : EIO;
    run->log = NULL;
    if (run->log_error == 0)
        return CLI_DONE;
    cli_error("%s: cannot write: %s", run->args->log, strerror(run->log_error));
    return CLI_BAD_INPUT;
}

/* As many digits as it takes to read the same number. JSON has no infinities and no NaN. */
static void put_number(FILE *file, const char *key, double value)
{
    char text[32];
    int digits = 6;
    do
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
    while (strtod(text, NULL) != value && ++digits <= 17);
    (void)fprintf(file, ", \"%s\": %s", key, isfinite(value) ? text : "null");
}

static void log_step(run_t *run, const esp_train_step_t *step)
{
    FILE *file = run->log;
    errno = 0;
    (void)fprintf(file, "{\"step\": %" PRIu64, step->step);
    put_number(file, "loss", step->loss);
    put_number(file, "rate", run->plan.plan->training.rate * step->factor);
    if (run->args->log_times)
        put_number(file, "samples_per_s", step->samples_per_s);
    if (step->evaluation != NULL) {
        put_number(file, "eval_loss", step->evaluation->loss);
        if (step->evaluation->accuracy >= 0)
            put_number(file, "eval_accuracy", step->evaluation->accuracy);
    }
    (void)fputs("}\n", file);
    if ((ferror(file) != 0 || (step->evaluation != NULL && fflush(file) != 0)) &&
        run->log_error == 0)
        run->log_error = errno != 0 ? errno : EIO;
}

void run_step(void *context, const esp_train_step_t *step)
{
    run_t *run = context;
    char what[96];
    double done = (double)(step->step + 1) / (double)run->until;
    (void)snprintf(what, sizeof what, "step %" PRIu64 " of %" PRId64 "  loss %.5g  %.4g samples/s",
                   step->step + 1, run->until, step->loss, step->samples_per_s);
    (void)cli_progress_update(&run->progress, done, what);
    if (run->log != NULL)
        log_step(run, step);
}

/* Ctrl-C, or a full disk. */
int run_stop(void *context)
{
    const run_t *run = context;
    return cli_interrupted() || run->log_error != 0;
}
