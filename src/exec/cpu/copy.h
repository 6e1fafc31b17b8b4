/* Copies of elements from one dense buffer to another, in loops with any strides. */
#ifndef ESP_EXEC_CPU_COPY_H
#define ESP_EXEC_CPU_COPY_H

#include "exec/cpu/fast.h"
#include "graph/kinds/nest.h"

/* How the two innermost levels are run. */
typedef enum esp_i_cpu_copy_mode {
    ESP_I_CPU_COPY_ROWS,     /* the innermost is dense on both sides */
    ESP_I_CPU_COPY_REPEAT,   /* the innermost is one element on the source's side */
    ESP_I_CPU_COPY_TURN,     /* the innermost is dense in dst, the one before it in src */
    ESP_I_CPU_COPY_ELEMENTS, /* anything */
} esp_i_cpu_copy_mode_t;

/* Places and strides in elements of `size` bytes. */
typedef struct esp_i_cpu_copy {
    esp_i_cpu_copy_mode_t mode;
    int32_t n;
    int64_t extent[ESP_I_WALK_LEVELS], src[ESP_I_WALK_LEVELS], dst[ESP_I_WALK_LEVELS];
    int64_t src_start, dst_start, size;
    bool empty;
} esp_i_cpu_copy_t;

/* The copy that a walk makes from its operand `from` to its operand `to`. */
void esp_i_cpu_copy_plan(const esp_i_walk_t *walk, int32_t from, int32_t to, esp_dtype_t dtype,
                         esp_i_cpu_copy_t *copy_out);
void esp_i_cpu_copy_run(const esp_i_cpu_copy_t *copy, const void *src, void *dst);

/* n elements of `value`. */
void esp_i_cpu_fill(esp_dtype_t dtype, int64_t n, double value, void *out);

#endif
