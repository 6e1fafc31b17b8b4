/* What every backend in the memory of the host does with its arena. */
#include "exec/kernels.h"
#include "exec/values.h"
#include "exec/vector.h"

#include <string.h>

enum { ALIGN = 64 };

esp_status_t esp_i_host_arena(esp_i_kernels_t *self, int64_t bytes, char **arena_out)
{
    int64_t room;
    esp_assert(self->block == NULL);
    if (!esp_i_add_i64(bytes, ALIGN, &room))
        return ESP_ERR_NOMEM;
    self->block = esp_i_alloc_array(&self->alloc, room, 1);
    if (self->block == NULL)
        return ESP_ERR_NOMEM;
    self->memory = (char *)self->block + (ALIGN - (uintptr_t)self->block % ALIGN) % ALIGN;
    self->bytes = bytes;
    *arena_out = self->memory;
    return ESP_OK;
}

/* ---- sums ---------------------------------------------------------------------------------- */

enum { TILE = 1024 }; /* elements that stay near while the sources are added */

/* All sources of a tile are read before it is written, as the result may be one of them. */
#define ADD_LOOP(name, type)                                                                       \
    ESP_I_VECTOR static void name(char *memory, int64_t n, int64_t dst, int32_t n_src,             \
                                  const int64_t *src)                                              \
    {                                                                                              \
        type tile[TILE];                                                                           \
        for (int64_t at = 0; at < n; at += TILE) {                                                 \
            const int64_t m = n - at < TILE ? n - at : TILE;                                       \
            memcpy(tile, (const type *)(memory + src[0]) + at, (size_t)m * sizeof(type));          \
            for (int32_t s = 1; s < n_src; s++) {                                                  \
                const type *from = (const type *)(memory + src[s]) + at;                           \
                for (int64_t i = 0; i < m; i++)                                                    \
                    tile[i] = (type)(tile[i] + from[i]);                                           \
            }                                                                                      \
            memcpy((type *)(memory + dst) + at, tile, (size_t)m * sizeof(type));                   \
        }                                                                                          \
    }

ADD_LOOP(add_float, float)
ADD_LOOP(add_double, double)
ADD_LOOP(add_byte, uint8_t) /* integers wrap, signed or not */
ADD_LOOP(add_two, uint16_t)
ADD_LOOP(add_four, uint32_t)
ADD_LOOP(add_eight, uint64_t)

/* Any dtype, in double. */
static void add_any(esp_dtype_t dtype, char *memory, int64_t n, int64_t dst, int32_t n_src,
                    const int64_t *src)
{
    double sum[256], part[256];
    const int64_t size = esp_dtype_bytes(dtype);
    for (int64_t at = 0; at < n; at += 256) {
        const int64_t m = esp_i_min_i64(n - at, 256);
        esp_i_values_load(dtype, m, memory + src[0] + at * size, sum);
        for (int32_t s = 1; s < n_src; s++) {
            esp_i_values_load(dtype, m, memory + src[s] + at * size, part);
            for (int64_t i = 0; i < m; i++)
                sum[i] += part[i];
        }
        esp_i_values_store(dtype, m, sum, memory + dst + at * size);
    }
}

void esp_i_host_add(esp_i_kernels_t *self, esp_dtype_t dtype, int64_t n, int64_t dst, int32_t n_src,
                    const int64_t *src)
{
    esp_assert(n_src > 0);
    switch (dtype) {
    case ESP_DTYPE_F32:
        add_float(self->memory, n, dst, n_src, src);
        return;
    case ESP_DTYPE_F64:
        add_double(self->memory, n, dst, n_src, src);
        return;
    case ESP_DTYPE_I8:
    case ESP_DTYPE_U8:
        add_byte(self->memory, n, dst, n_src, src);
        return;
    case ESP_DTYPE_I16:
        add_two(self->memory, n, dst, n_src, src);
        return;
    case ESP_DTYPE_I32:
        add_four(self->memory, n, dst, n_src, src);
        return;
    case ESP_DTYPE_I64:
        add_eight(self->memory, n, dst, n_src, src);
        return;
    case ESP_DTYPE_F16:
    case ESP_DTYPE_BF16:
    case ESP_DTYPE_BOOL:
    case ESP_DTYPE_COUNT:
        break;
    }
    add_any(dtype, self->memory, n, dst, n_src, src);
}

void esp_i_host_copy(esp_i_kernels_t *self, int64_t bytes, int64_t dst, int64_t src)
{
    memmove(esp_i_at(self, dst), esp_i_at(self, src), (size_t)bytes);
}

void esp_i_host_write(esp_i_kernels_t *self, int64_t bytes, int64_t dst, const void *src)
{
    memcpy(esp_i_at(self, dst), src, (size_t)bytes);
}

void esp_i_host_read(esp_i_kernels_t *self, int64_t bytes, void *dst, int64_t src)
{
    memcpy(dst, esp_i_at(self, src), (size_t)bytes);
}
