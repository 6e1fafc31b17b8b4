/* What the bench programs share: giving up, the clock, a model of any size. */
#ifndef ESP_BENCH_COMMON_H
#define ESP_BENCH_COMMON_H

#include "espalier/graph.h"

/* Unless status is ESP_OK, ends the program with the text of `diag`. */
void bench_check(esp_status_t status, const esp_diag_t *diag);

/* A monotonic clock. */
double bench_seconds(void);

/*
 * A deep perceptron of that many layers of `width` x `width`: nine ops a layer in the training
 * graph, and one or two for the loss. The caller's; ends the program on failure.
 */
esp_graph_t *bench_perceptron(int32_t layers, int64_t batch, int64_t width);

#endif
