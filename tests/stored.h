/* Memory as programs store it, and doubles. */
#ifndef ESP_TESTS_STORED_H
#define ESP_TESTS_STORED_H

#include "exec/program.h"
#include "graph/kind.h"

double stored_get(esp_dtype_t dtype, const char *memory, int64_t i);
void stored_put(esp_dtype_t dtype, char *memory, int64_t i, double value);
/* Shape and rows, without data. */
esp_i_buffer_t stored_buffer(const esp_i_local_t *local);
/* Local work of a program; src: its work_src. */
void run_work(char *memory, const esp_i_work_t *work, const int64_t *src);

#endif
