/* Elements of every dtype as the host stores them, and random bits. */
#ifndef ESP_EXEC_VALUES_H
#define ESP_EXEC_VALUES_H

#include "base/base.h"
#include "espalier/graph.h"

/* values_out[i] = element i; 64-bit integers are rounded. */
void esp_i_values_load(esp_dtype_t dtype, int64_t n, const void *data, double *values_out);
/*
 * Element i = values[i]: floats are rounded to even, integers truncated and reduced to their width
 * as arithmetic in it would (beyond 64 bits: to the nearest there is; NaN: 0), bool: not 0.
 */
void esp_i_values_store(esp_dtype_t dtype, int64_t n, const double *values, void *data_out);
/* bits_out[i] = esp_i_philox(seed, step, stream, first + i), many at a time. */
void esp_i_draw(uint64_t seed, uint64_t step, uint64_t stream, int64_t first, int64_t n,
                uint32_t *bits_out);
/* The integers of a tensor index rows of others, or name classes: valid ones are in [0, bound);
 * INT64_MAX: any. (initial.c) */
int64_t esp_i_index_bound(const esp_graph_t *graph, esp_tensor_id_t tensor);

#endif
