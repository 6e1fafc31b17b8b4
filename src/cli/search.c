/* From a model and a cluster to the result of a search: what plan and compare share. */
#include "cli.h"

static esp_search_opts_t search_opts(const cli_args_t *args, cli_progress_t *progress)
{
    esp_search_opts_t opts = esp_search_opts_default();
    opts.seed = (uint64_t)args->seed;
    opts.evaluations = (int32_t)args->evaluations;
    opts.time_s = args->time_s;
    opts.threads = (int32_t)args->threads;
    opts.max_groups = (int32_t)args->groups;
    opts.links = (esp_link_mode_t)args->links;
    opts.sync_batchnorm = args->batchnorm != 0;
    opts.barrier = args->barrier;
    opts.baseline = (int32_t)args->strategy - 1; /* 0: the search */
    opts.progress = cli_progress_update;
    opts.progress_context = progress;
    return opts;
}

int cli_search_run(const cli_args_t *args, cli_search_t *search)
{
    cli_progress_t progress;
    esp_diag_t diag = {0};
    *search = (cli_search_t){0};
    int result = cli_model_load(args, false, &search->model);
    if (result != CLI_DONE)
        return result;
    esp_status_t status = esp_cluster_load(args->cluster, NULL, &search->cluster, &diag);
    if (status != ESP_OK)
        return cli_fail(status, &diag);
    result =
        cli_cost_create((cli_file_t){.path = args->costs}, search->model.step,
                        (esp_precision_t)args->precision, &search->cluster, &search->cost, NULL);
    if (result != CLI_DONE)
        return result;
    cli_progress_init(&progress, args);
    search->opts = search_opts(args, &progress);
    status = esp_search(search->cost, &search->opts, NULL, &search->result, &diag);
    cli_progress_fini(&progress);
    search->opts.progress_context = NULL; /* it was on this stack */
    if (status == ESP_STOPPED && cli_interrupted())
        cli_error("interrupted; what follows is the best so far");
    return status == ESP_OK || status == ESP_STOPPED ? CLI_DONE : cli_fail(status, &diag);
}

void cli_search_fini(cli_search_t *search)
{
    esp_search_result_destroy(search->result);
    esp_cost_destroy(search->cost);
    esp_cluster_destroy(search->cluster);
    cli_model_fini(&search->model);
}

int cli_search_verdict(const cli_search_t *search)
{
    esp_report_search_args_t subject = {NULL, search->cost, &search->opts, search->result};
    char text[1024];
    if (search->result->best.outcome.feasible)
        return CLI_DONE;
    esp_report_infeasible(&subject, text, sizeof text);
    cli_error("%s", text);
    return CLI_NO_PLAN;
}
