/*
 * The CPU backend: one thread, operands in host memory, float32 and the integer types.
 *
 * Each core kind has a prepare function of the name esp_i_cpu_KIND (kinds.def), in a file per
 * family. It looks at the call once, chooses how to run it, and fills `kernel`; state that it needs
 * comes from cpu->memory and lives as long as the backend. `run` gets the kernel back.
 */
#ifndef ESP_EXEC_CPU_H
#define ESP_EXEC_CPU_H

#include "exec/kernels.h"
#include "exec/vector.h"

typedef struct esp_i_cpu {
    esp_i_kernels_t base;
    esp_i_arena_t state; /* of kernels */
    ESP_VEC(struct esp_i_cpu_kernel *) kernels;
} esp_i_cpu_t;

typedef struct esp_i_cpu_kernel {
    void (*run)(const struct esp_i_cpu_kernel *kernel, const esp_i_moment_t *moment);
    void (*fini)(struct esp_i_cpu_kernel *kernel); /* NULL: nothing beyond cpu->state */
    const esp_i_call_t *call;
    char *memory; /* the arena of the device */
    void *state;
} esp_i_cpu_kernel_t;

/* Errors: ESP_ERR_UNSUPPORTED (says what), ESP_ERR_NOMEM. */
typedef esp_status_t esp_i_cpu_prepare_fn(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel,
                                          esp_diag_t *diag);

#define ESP_KIND(name, text, help) extern esp_i_cpu_prepare_fn esp_i_cpu_##name;
#include "espalier/kinds.def"
#undef ESP_KIND

esp_i_cpu_prepare_fn *esp_i_cpu_prepare(esp_op_kind_t kind); /* table.c */

/* Operand i (inputs first, then outputs) of a call; NULL where absent. */
static inline void *esp_i_cpu_data(const esp_i_cpu_kernel_t *kernel, int32_t operand)
{
    int64_t place = kernel->call->operand[operand].place;
    return place < 0 ? NULL : kernel->memory + place;
}
static inline const esp_i_local_t *esp_i_cpu_in(const esp_i_cpu_kernel_t *kernel, int32_t i)
{
    return &kernel->call->operand[i];
}
static inline const esp_i_local_t *esp_i_cpu_out(const esp_i_cpu_kernel_t *kernel, int32_t i)
{
    return &kernel->call->operand[kernel->call->n_in + i];
}

/* blas.c: the one user of OpenBLAS. Row-major C[m,n] = alpha op(A) op(B) + beta C. */
void esp_i_cpu_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                    float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                    float beta, float *c, int64_t ldc);

#endif
