/*
 * A file with one line per rank: what it computes, for those who look from outside, also after the
 * process is gone. It is mapped into memory and written in place.
 */
#ifndef ESP_EXEC_STATUS_H
#define ESP_EXEC_STATUS_H

#include "base/base.h"

enum { ESP_I_STATUS_WIDTH = 160 }; /* of a line, with its end */

typedef struct esp_i_status_file esp_i_status_file_t;

/* n_ranks lines; those of others stay as they are. Errors: ESP_ERR_IO, ESP_ERR_NOMEM. */
esp_status_t esp_i_status_create(const esp_allocator_t *alloc, const char *path, int32_t n_ranks,
                                 esp_i_status_file_t **status_out, esp_diag_t *diag);
void esp_i_status_destroy(esp_i_status_file_t *status);
/* "rank 2 node1/gpu0 idle" */
void esp_i_status_idle(esp_i_status_file_t *status, int32_t rank, const char *device);
/* "rank 2 node1/gpu0 step 12 task 345 compute conv1/dw"; cut at the width. */
void esp_i_status_task(esp_i_status_file_t *status, int32_t rank, const char *device, uint64_t step,
                       int32_t task, const char *what, const char *op);

#endif
