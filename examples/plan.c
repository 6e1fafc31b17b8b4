/*
 * Plans a model for a cluster with the library: what `espalier plan` does, in one function.
 *
 *     cc -std=c11 plan.c $(pkg-config --cflags --libs libespalier) -o plan
 *     ./plan model.onnx cluster.yaml plan.json
 */
#include <espalier/onnx.h>
#include <espalier/plan.h>
#include <espalier/report.h>

#include <stdio.h>
#include <stdlib.h>

/* Everything that is made on the way; each destroy function accepts NULL. */
typedef struct session {
    esp_graph_t *imported, *model, *step;
    esp_cluster_t *cluster;
    esp_cost_t *cost;
    esp_search_result_t *result;
    esp_plan_t *plan;
    char *text;
} session_t;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        esp_status_t status_ = (call);                                                             \
        if (status_ != ESP_OK)                                                                     \
            return status_;                                                                        \
    } while (0)

static esp_status_t plan(session_t *s, char **argv, esp_diag_t *diag)
{
    esp_onnx_opts_t import = esp_onnx_opts_default();
    esp_training_opts_t training = esp_training_opts_default();
    esp_search_opts_t search = esp_search_opts_default();
    esp_report_opts_t report = esp_report_opts_default();
    import.batch = 64;
    training.optimizer = ESP_OPTIMIZER_ADAM;
    search.evaluations = 200;

    /* The graph of one training step: forward, backward, update. */
    TRY(esp_onnx_load(argv[1], &import, NULL, &s->imported, diag));
    TRY(esp_graph_canonicalise(s->imported, NULL, &s->model, diag));
    TRY(esp_training_graph(s->model, &training, NULL, &s->step, diag));

    /* What each of its ops costs on each device of the cluster. */
    TRY(esp_cluster_load(argv[2], NULL, &s->cluster, diag));
    TRY(esp_cost_create(s->step, s->cluster, ESP_PRECISION_FP32, NULL, &s->cost, diag));

    /* The best deployment, as a report and as a file. */
    TRY(esp_search(s->cost, &search, NULL, &s->result, diag));
    esp_report_search_args_t found = {argv[1], s->cost, &search, s->result};
    TRY(esp_report_plan(&found, &report, NULL, &s->text, diag));
    (void)fputs(s->text, stdout);
    esp_plan_source_t source = {
        .model_path = argv[1],
        .cluster_path = argv[2],
        .training = &training,
        .cost = s->cost,
        .opts = &search,
        .result = s->result,
    };
    TRY(esp_plan_create(&source, NULL, &s->plan, diag));
    return esp_plan_write(s->plan, argv[3], diag);
}

int main(int argc, char **argv)
{
    session_t session = {0};
    esp_diag_t diag = {0};
    char text[1024];
    if (argc != 4) {
        (void)fprintf(stderr, "usage: plan MODEL CLUSTER PLAN\n");
        return 2;
    }
    esp_status_t status = plan(&session, argv, &diag);
    if (status != ESP_OK) {
        (void)esp_diag_format(&diag, text, sizeof text);
        (void)fprintf(stderr, "%s: %s\n", esp_status_text(status), text);
    }
    free(session.text);
    esp_plan_destroy(session.plan);
    esp_search_result_destroy(session.result);
    esp_cost_destroy(session.cost);
    esp_cluster_destroy(session.cluster);
    esp_graph_destroy(session.step);
    esp_graph_destroy(session.model);
    esp_graph_destroy(session.imported);
    return status == ESP_OK ? 0 : 1;
}
