/* Between a whole tensor, row-major, and the rows that a device holds. */
#include "exec/engine.h"

#include <string.h>

/* Outer blocks of `rows` bytes in the local buffer, every `stride` bytes of the whole. */
typedef struct blocks {
    size_t n, bytes, stride, first;
} blocks_t;

static blocks_t blocks_of(const esp_i_local_t *local)
{
    const size_t size = (size_t)esp_dtype_bytes(local->dtype);
    if (local->view.extent == 0)
        return (blocks_t){1, (size_t)local->elements * size, 0, 0};
    const size_t row = (size_t)local->view.inner * size;
    return (blocks_t){(size_t)local->view.outer, (size_t)local->share * row,
                      (size_t)local->view.extent * row, (size_t)local->offset * row};
}

void esp_i_rows_take(const esp_i_local_t *local, const char *whole, char *rows_out)
{
    const blocks_t b = blocks_of(local);
    for (size_t i = 0; i < b.n; i++)
        memcpy(rows_out + i * b.bytes, whole + b.first + i * b.stride, b.bytes);
}

void esp_i_rows_put(const esp_i_local_t *local, const char *rows, char *whole_out)
{
    const blocks_t b = blocks_of(local);
    for (size_t i = 0; i < b.n; i++)
        memcpy(whole_out + b.first + i * b.stride, rows + i * b.bytes, b.bytes);
}
