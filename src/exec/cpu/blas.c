/*
 * Matrix products. oneDNN, which looks at what the processor can do, computes those that are not
 * small; OpenBLAS, of which this is the only user (the serial one), has less overhead, but goes by
 * model names and is slow on processors that are newer than itself.
 */
#include "exec/cpu/fast.h"

#include <cblas.h>
#include <pthread.h>
#include <string.h>

/* Multiplications from which on a product is not small. */
#define SMALL 4096

/* The serial OpenBLAS hands out its packing buffers without a lock: two threads would get the same
 * one. */
static pthread_mutex_t blas_mutex = PTHREAD_MUTEX_INITIALIZER;

/* y[rows] += alpha x(A) x where A is [rows, columns], or [columns, rows] if transposed. */
static void product_vector(bool transpose, int64_t rows, int64_t columns, float alpha,
                           const float *a, int64_t lda, const float *x, int64_t x_step, float *y,
                           int64_t y_step)
{
    int64_t m = transpose ? columns : rows, n = transpose ? rows : columns;
    pthread_mutex_lock(&blas_mutex);
    cblas_sgemv(CblasRowMajor, transpose ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n, alpha,
                a, (blasint)lda, x, (blasint)x_step, 1, y, (blasint)y_step);
    pthread_mutex_unlock(&blas_mutex);
}

/* C = beta C; 0 clears, whatever is there. */
static void scale(int64_t m, int64_t n, float beta, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < m && beta != 1; i++) {
        if (beta == 0)
            memset(c + i * ldc, 0, (size_t)n * sizeof *c);
        for (int64_t j = 0; j < n && beta != 0; j++)
            c[i * ldc + j] *= beta;
    }
}

void esp_i_cpu_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                    float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                    float beta, float *c, int64_t ldc)
{
    esp_assert(m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX && lda <= INT32_MAX &&
               ldb <= INT32_MAX && ldc <= INT32_MAX);
    if (m == 0 || n == 0)
        return;
    if (k > 0 && m > 1 && n > 1 && m * n >= esp_i_ceil_div(SMALL, k) &&
        esp_i_cpu_dnnl_gemm(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
        return;
    if (k > 0 && m > 1 && n > 1) {
        pthread_mutex_lock(&blas_mutex);
        cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                    transpose_b ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n, (blasint)k,
                    alpha, a, (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
        pthread_mutex_unlock(&blas_mutex);
        return;
    }
    scale(m, n, beta, c, ldc);
    if (k == 0)
        return;
    if (n == 1)
        product_vector(transpose_a, m, k, alpha, a, lda, b, transpose_b ? 1 : ldb, c, ldc);
    else
        product_vector(!transpose_b, n, k, alpha, b, ldb, a, transpose_a ? lda : 1, c, 1);
}
