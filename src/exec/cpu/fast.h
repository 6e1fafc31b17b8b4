/* What the kernels of contractions, windows, attention and recurrent layers share. */
#ifndef ESP_EXEC_CPU_FAST_H
#define ESP_EXEC_CPU_FAST_H

#include "exec/cpu/cpu.h"
#include "graph/kind.h"

/* An operand as the registry's helpers take it; the data is NULL where the operand is absent, else
 * of no use. */
esp_i_buffer_t esp_i_cpu_buffer(const esp_i_cpu_kernel_t *kernel, int32_t operand);
/* ESP_ERR_UNSUPPORTED unless operands 0 to n - 1 that are there are float32 (bool: `or_bool`, a bit
 * per operand). */
esp_status_t esp_i_cpu_float32(const esp_i_cpu_kernel_t *kernel, uint32_t or_bool,
                               esp_diag_t *diag);
/* Zeroed state of a kernel in kernel->state. */
esp_status_t esp_i_cpu_state(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, size_t bytes,
                             esp_diag_t *diag);

/* dnnl.c: esp_i_cpu_gemm for products that are not small. False: oneDNN has no memory; nothing is
 * done. */
bool esp_i_cpu_dnnl_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                         float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                         float beta, float *c, int64_t ldc);

#endif
