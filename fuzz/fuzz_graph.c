/*
 * Graphs from text: whatever parses passes the checker, comes back from its own text as the same
 * text, and goes through the training graph and canonicalise without a fault.
 */
#include "espalier/graph.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The checker passes; the text of the graph. */
static char *checked(const esp_graph_t *graph)
{
    char *text = NULL;
    if (esp_graph_check(graph, NULL) != ESP_OK ||
        esp_graph_dump(graph, NULL, &text, NULL) != ESP_OK)
        abort();
    return text;
}

static void round_trip(const esp_graph_t *graph)
{
    esp_graph_t *again = NULL;
    char *text = checked(graph);
    if (esp_graph_parse(text, strlen(text), NULL, NULL, &again, NULL) != ESP_OK)
        abort();
    char *same = checked(again);
    if (strcmp(text, same) != 0)
        abort();
    esp_graph_destroy(again);
    free(same);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    esp_graph_t *graph = NULL, *other = NULL;
    esp_diag_t diag = {0};
    if (esp_graph_parse((const char *)data, size, "fuzz", NULL, &graph, &diag) != ESP_OK)
        return 0;
    round_trip(graph);
    if (esp_training_graph(graph, NULL, NULL, &other, &diag) == ESP_OK) {
        round_trip(other);
        esp_graph_destroy(other);
    } else if (diag.status == ESP_ERR_INTERNAL) {
        abort();
    }
    if (esp_graph_canonicalise(graph, NULL, &other, &diag) != ESP_OK)
        abort();
    round_trip(other);
    esp_graph_destroy(other);
    esp_graph_destroy(graph);
    return 0;
}
