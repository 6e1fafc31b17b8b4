/* A measurement with its memory, for those who fill it. */
#ifndef ESP_SIM_MEASURED_H
#define ESP_SIM_MEASURED_H

#include "base/base.h"
#include "espalier/measured.h"

typedef struct esp_i_measured {
    esp_measured_t pub; /* first: the handle is its address */
    esp_allocator_t alloc;
    int32_t *device;
    ESP_VEC(int64_t) start;
    ESP_VEC(int64_t) end;
    ESP_VEC(int64_t) step_ns;
    double sum_ns, sum_square; /* of periods */
    ESP_VEC(int64_t) sorted;   /* the first of them */
} esp_i_measured_t;

static inline esp_i_measured_t *esp_i_measured(esp_measured_t *measured)
{
    return (esp_i_measured_t *)(void *)measured;
}

/* Times of one recorded step; ESP_ERR_ARGUMENT as esp_measured_add. */
esp_status_t esp_i_measured_step(esp_i_measured_t *m, const int64_t *start_ns,
                                 const int64_t *end_ns, int64_t step_ns, esp_diag_t *diag);

#endif
