/* ONNX files: whatever loads satisfies the checker; whatever does not says why and where. */
#include "espalier/onnx.h"
#include "base/base.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The file as it is, then with another batch. */
static void load(const uint8_t *data, size_t size, int64_t batch)
{
    esp_onnx_opts_t opts = esp_onnx_opts_default();
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    opts.batch = batch;
    opts.file = "fuzz";
    opts.dims = "T=3,S=5";
    esp_status_t status = esp_onnx_parse(data, size, &opts, NULL, &graph, &diag);
    if (status != ESP_OK) {
        esp_assert(graph == NULL && diag.status == status);
        esp_assert(diag.text[0] != '\0' && strcmp(diag.file, "fuzz") == 0);
        return;
    }
    if (esp_graph_check(graph, &diag) != ESP_OK) {
        char text[1024];
        (void)esp_diag_format(&diag, text, sizeof text);
        (void)fprintf(stderr, "%s\n", text);
        esp_assert(false);
    }
    esp_graph_destroy(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    load(data, size, 0);
    load(data, size, 3);
    return 0;
}
