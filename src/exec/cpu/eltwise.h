/* What the files of element-wise expressions share: one tile of elements. */
#ifndef ESP_EXEC_CPU_ELTWISE_H
#define ESP_EXEC_CPU_ELTWISE_H

#include "exec/cpu/fast.h"

/* n elements of each input, and where those of the result go; all dense. */
typedef struct esp_i_cpu_elt_tile {
    const void *x[3];
    void *y;
    double alpha, beta;
    /* for the function that takes any code and any dtype */
    esp_eltwise_t code;
    int32_t n_in;
    esp_dtype_t dtype[3], y_dtype;
} esp_i_cpu_elt_tile_t;

typedef void esp_i_cpu_elt_fn(int64_t n, const esp_i_cpu_elt_tile_t *tile);

/* The loop of a code over float32 (and bool, where the code takes or gives it); NULL: none. `n_in`
 * for ADD: 1 to 3. */
esp_i_cpu_elt_fn *esp_i_cpu_elt_float(esp_eltwise_t code, int32_t n_in, double alpha);

#endif
