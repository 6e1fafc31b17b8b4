/* The plan file of a search: strategy, prediction, provenance. */
#include "cli.h"

int cli_plan_write(const cli_args_t *args, const cli_search_t *search)
{
    (void)args;
    (void)search;
    cli_error("not yet");
    return CLI_FAULT;
}
