/* espalier cluster: what a cluster file means. */
#include "cli.h"

static int run(const cli_args_t *args)
{
    esp_report_opts_t opts = cli_report_opts(args);
    esp_cluster_t *cluster;
    esp_diag_t diag = {0};
    char *text = NULL;
    if (args->dot + args->dump + args->json > 1) {
        cli_error("--dot, --dump and --json exclude each other");
        return CLI_USAGE;
    }
    esp_status_t status = esp_cluster_load(args->operand, NULL, &cluster, &diag);
    if (status != ESP_OK)
        return cli_fail(status, &diag);
    if (args->quiet && !args->dot && !args->dump && !args->json) {
        esp_cluster_destroy(cluster);
        return CLI_DONE;
    }
    if (args->dot)
        status = esp_cluster_dot(cluster, NULL, &text, &diag);
    else if (args->dump)
        status = esp_cluster_dump(cluster, NULL, &text, &diag);
    else
        status = esp_report_cluster(cluster, &opts, NULL, &text, &diag);
    esp_cluster_destroy(cluster);
    return cli_print_report(status, text, &diag);
}

const cli_command_t cli_cluster = {
    .name = "cluster",
    .bit = CLI_CLUSTER,
    .operand = "FILE",
    .help = "what is in a cluster: devices, links, routes, groups",
    .about =
        "Reads a cluster file (docs/clusters.md) and says what it means: device groups, kinds\n"
        "of links, and the narrowest route between any two groups.",
    .example = "espalier cluster clusters/lab.yaml --dot | dot -Tsvg > lab.svg",
    .run = run,
};
