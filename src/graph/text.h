/* Elements of literals, for the text form and for the passes that read constants. */
#ifndef ESP_GRAPH_TEXT_H
#define ESP_GRAPH_TEXT_H

#include "graph/kind.h"

/* Element i of a literal; half-precision is not looked into and gives NaN. */
double esp_i_literal_real(esp_dtype_t dtype, const void *data, int64_t i);
/* The same, exactly, of an integer or bool literal. */
int64_t esp_i_literal_int(esp_dtype_t dtype, const void *data, int64_t i);
/* Stores element i; false if the value is out of the range of the type. */
bool esp_i_literal_set_int(esp_dtype_t dtype, void *data, int64_t i, int64_t value);
bool esp_i_literal_set_real(esp_dtype_t dtype, void *data, int64_t i, double value);

#endif
