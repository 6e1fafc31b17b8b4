/* espalier compare: every baseline and the search side by side. */
#include "cli.h"

static int run(const cli_args_t *args)
{
    esp_report_opts_t opts = cli_report_opts(args);
    esp_diag_t diag = {0};
    cli_search_t search;
    char *text = NULL;
    int result = cli_search_run(args, &search);
    if (result == CLI_DONE && (args->json || !args->quiet)) {
        esp_report_search_args_t subject = {args->operand, search.cost, &search.opts,
                                            search.result};
        esp_status_t status = esp_report_compare(&subject, &opts, NULL, &text, &diag);
        result = cli_print_report(status, text, &diag);
    }
    if (result == CLI_DONE)
        result = cli_search_verdict(&search);
    cli_search_fini(&search);
    return result;
}

const cli_command_t cli_compare = {
    .name = "compare",
    .bit = CLI_COMPARE,
    .operand = "MODEL",
    .help = "every baseline and the search side by side",
    .about = "Predicts step time and memory of every baseline (one device, data parallelism with\n"
             "all-reduce or parameter servers, model parallelism, pipelining) and of the search.",
    .example = "espalier compare models/vgg19.onnx -c clusters/testbed.yaml --batch 96",
    .run = run,
};
