/* Strided copies: levels are put in the order of the destination, merged, and run. */
#include "exec/cpu/copy.h"
#include "exec/values.h"

#include <stdlib.h>
#include <string.h>

/* ---- plan ---------------------------------------------------------------------------------- */

static void swap_levels(esp_i_cpu_copy_t *copy, int32_t a, int32_t b)
{
    int64_t *const arrays[] = {copy->extent, copy->src, copy->dst};
    for (int32_t i = 0; i < 3; i++) {
        const int64_t kept = arrays[i][a];
        arrays[i][a] = arrays[i][b];
        arrays[i][b] = kept;
    }
}

static void remove_level(esp_i_cpu_copy_t *copy, int32_t level)
{
    for (int32_t l = level; l + 1 < copy->n; l++)
        swap_levels(copy, l, l + 1);
    copy->n--;
}

/* The largest steps of the destination outside; levels that go on where the inner one ends join it.
 */
static void arrange(esp_i_cpu_copy_t *copy)
{
    for (int32_t l = copy->n - 1; l >= 0; l--)
        if (copy->extent[l] == 1)
            remove_level(copy, l);
    for (int32_t l = 1; l < copy->n; l++)
        for (int32_t k = l; k > 0 && llabs(copy->dst[k - 1]) < llabs(copy->dst[k]); k--)
            swap_levels(copy, k - 1, k);
    for (int32_t l = copy->n - 2; l >= 0; l--) {
        const int64_t inner = copy->extent[l + 1];
        if (copy->src[l] != copy->src[l + 1] * inner || copy->dst[l] != copy->dst[l + 1] * inner)
            continue;
        copy->extent[l + 1] *= copy->extent[l];
        remove_level(copy, l);
    }
}

static void choose(esp_i_cpu_copy_t *copy)
{
    const int32_t last = copy->n - 1;
    copy->mode = ESP_I_CPU_COPY_ELEMENTS;
    if (copy->n == 0 || copy->dst[last] != 1)
        return;
    if (copy->src[last] == 1)
        copy->mode = ESP_I_CPU_COPY_ROWS;
    else if (copy->src[last] == 0)
        copy->mode = ESP_I_CPU_COPY_REPEAT;
    for (int32_t l = last - 1; copy->mode == ESP_I_CPU_COPY_ELEMENTS && l >= 0; l--) {
        if (copy->src[l] != 1)
            continue;
        for (; l < last - 1; l++)
            swap_levels(copy, l, l + 1);
        copy->mode = ESP_I_CPU_COPY_TURN;
    }
}

void esp_i_cpu_copy_plan(const esp_i_walk_t *walk, int32_t from, int32_t to, esp_dtype_t dtype,
                         esp_i_cpu_copy_t *copy_out)
{
    *copy_out = (esp_i_cpu_copy_t){.n = walk->n,
                                   .src_start = walk->offset[from],
                                   .dst_start = walk->offset[to],
                                   .size = esp_dtype_bytes(dtype)};
    for (int32_t l = 0; l < walk->n; l++) {
        copy_out->extent[l] = walk->extent[l];
        copy_out->src[l] = walk->stride[l][from];
        copy_out->dst[l] = walk->stride[l][to];
        copy_out->empty = copy_out->empty || walk->extent[l] <= 0;
    }
    if (copy_out->empty)
        return;
    arrange(copy_out);
    choose(copy_out);
}

/* ---- run ----------------------------------------------------------------------------------- */

enum { BLOCK = 16 };

/* dst[r * dst_step + c] = src[r + c * src_step], block by block, so that lines of the cache are
 * used whole. */
#define TURN(name, type)                                                                           \
    ESP_I_VECTOR static void name##_block(const type *src, int64_t src_step, type *dst,            \
                                          int64_t dst_step)                                        \
    {                                                                                              \
        type tile[BLOCK][BLOCK]; /* lines of src and dst may get into each other's way */          \
        for (int64_t c = 0; c < BLOCK; c++)                                                        \
            memcpy(tile[c], src + c * src_step, sizeof tile[c]);                                   \
        for (int64_t r = 0; r < BLOCK; r++)                                                        \
            for (int64_t c = 0; c < BLOCK; c++)                                                    \
                dst[r * dst_step + c] = tile[c][r];                                                \
    }                                                                                              \
    static void name(int64_t rows, int64_t columns, const type *src, int64_t src_step, type *dst,  \
                     int64_t dst_step)                                                             \
    {                                                                                              \
        for (int64_t c = 0; c < columns; c += BLOCK) {                                             \
            for (int64_t r = 0; r < rows; r += BLOCK) {                                            \
                const int64_t m = esp_i_min_i64(rows - r, BLOCK);                                  \
                const int64_t n = esp_i_min_i64(columns - c, BLOCK);                               \
                const type *from = src + r + c * src_step;                                         \
                type *to = dst + r * dst_step + c;                                                 \
                if (m == BLOCK && n == BLOCK) {                                                    \
                    name##_block(from, src_step, to, dst_step);                                    \
                    continue;                                                                      \
                }                                                                                  \
                for (int64_t i = 0; i < m; i++)                                                    \
                    for (int64_t j = 0; j < n; j++)                                                \
                        to[i * dst_step + j] = from[i + j * src_step];                             \
            }                                                                                      \
        }                                                                                          \
    }
TURN(turn_1, uint8_t)
TURN(turn_2, uint16_t)
TURN(turn_4, uint32_t)
TURN(turn_8, uint64_t)

#define ELEMENTS(name, type)                                                                       \
    static void name(int64_t n, const type *src, int64_t src_step, type *dst, int64_t dst_step)    \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            dst[i * dst_step] = src[i * src_step];                                                 \
    }
ELEMENTS(elements_1, uint8_t)
ELEMENTS(elements_2, uint16_t)
ELEMENTS(elements_4, uint32_t)
ELEMENTS(elements_8, uint64_t)

static void run_elements(const esp_i_cpu_copy_t *copy, const void *src, void *dst)
{
    const int32_t last = copy->n - 1;
    const int64_t n = last < 0 ? 1 : copy->extent[last], from = last < 0 ? 0 : copy->src[last];
    const int64_t to = last < 0 ? 0 : copy->dst[last];
    if (copy->size == 1)
        elements_1(n, src, from, dst, to);
    else if (copy->size == 2)
        elements_2(n, src, from, dst, to);
    else if (copy->size == 4)
        elements_4(n, src, from, dst, to);
    else
        elements_8(n, src, from, dst, to);
}

static void run_turn(const esp_i_cpu_copy_t *copy, const void *src, void *dst)
{
    const int32_t c = copy->n - 1, r = copy->n - 2;
    const int64_t rows = copy->extent[r], columns = copy->extent[c];
    if (copy->size == 1)
        turn_1(rows, columns, src, copy->src[c], dst, copy->dst[r]);
    else if (copy->size == 2)
        turn_2(rows, columns, src, copy->src[c], dst, copy->dst[r]);
    else if (copy->size == 4)
        turn_4(rows, columns, src, copy->src[c], dst, copy->dst[r]);
    else
        turn_8(rows, columns, src, copy->src[c], dst, copy->dst[r]);
}

static void run_inner(const esp_i_cpu_copy_t *copy, const char *src, char *dst)
{
    switch (copy->mode) {
    case ESP_I_CPU_COPY_ROWS:
        memcpy(dst, src, (size_t)(copy->extent[copy->n - 1] * copy->size));
        return;
    case ESP_I_CPU_COPY_TURN:
        run_turn(copy, src, dst);
        return;
    case ESP_I_CPU_COPY_REPEAT:
    case ESP_I_CPU_COPY_ELEMENTS:
        run_elements(copy, src, dst);
        return;
    }
}

void esp_i_cpu_copy_run(const esp_i_cpu_copy_t *copy, const void *src, void *dst)
{
    const int32_t outer = copy->mode == ESP_I_CPU_COPY_TURN ? copy->n - 2
                          : copy->n > 0                     ? copy->n - 1
                                                            : 0;
    int64_t index[ESP_I_WALK_LEVELS] = {0};
    const char *from = (const char *)src + copy->src_start * copy->size;
    char *to = (char *)dst + copy->dst_start * copy->size;
    if (copy->empty)
        return;
    for (int32_t l = outer; l >= 0;) {
        run_inner(copy, from, to);
        for (l = outer - 1; l >= 0; l--) {
            const bool more = ++index[l] < copy->extent[l];
            const int64_t steps = more ? 1 : 1 - copy->extent[l];
            from += steps * copy->src[l] * copy->size;
            to += steps * copy->dst[l] * copy->size;
            if (more)
                break;
            index[l] = 0;
        }
    }
}

void esp_i_cpu_fill(esp_dtype_t dtype, int64_t n, double value, void *out)
{
    char element[8];
    esp_i_values_store(dtype, 1, &value, element);
    const esp_i_cpu_copy_t copy = {.mode = ESP_I_CPU_COPY_REPEAT,
                                   .n = 1,
                                   .extent = {n},
                                   .dst = {1},
                                   .size = esp_dtype_bytes(dtype),
                                   .empty = n <= 0};
    esp_i_cpu_copy_run(&copy, element, out);
}
