/*
 * Runs the built command without a shell, in the source tree, and keeps what it says.
 *
 *     cli_result_t result;
 *     cli_run(&result, "cluster clusters/lab.yaml --json");
 *     cli_expect(&result, 0);
 *     cli_result_free(&result);
 */
#ifndef ESP_TESTS_CLI_RUN_H
#define ESP_TESTS_CLI_RUN_H

#include "support.h"

typedef struct cli_result {
    int status; /* exit status; 128 + signal for a violent end */
    char *out, *err;
} cli_result_t;

/* Arguments are split at blanks; a word '' is an empty argument. Standard input is /dev/null. */
void cli_run(cli_result_t *result, const char *format, ...) ESP_PRINTF(2, 3);
/* The same with standard output going to a file; "|" is a pipe that nobody reads. */
void cli_run_to(cli_result_t *result, const char *out_path, const char *format, ...)
    ESP_PRINTF(3, 4);
void cli_result_free(cli_result_t *result);

/* The exit status is `status`, or the test fails with what the command said. */
void cli_expect(const cli_result_t *result, int status);
/* Status, nothing on stdout, exactly one line on stderr, with `part` in it. */
void cli_expect_error(const cli_result_t *result, int status, const char *part);
/* stdout is one JSON document and nothing else. */
void cli_expect_json(const cli_result_t *result);
/* No line of stdout has more than 100 columns or a blank at its end. */
void cli_expect_narrow(const cli_result_t *result);
/* stdout is tests/golden/<name>, numbers aside where `masked`. */
void cli_golden(const cli_result_t *result, const char *name, bool masked);

#endif
