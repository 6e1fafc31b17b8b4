#include "stored.h"
#include "support.h"

#include <string.h>

#define STORED(X)                                                                                  \
    X(F32, float)                                                                                  \
    X(F64, double)                                                                                 \
    X(I8, int8_t) X(U8, uint8_t) X(I16, int16_t) X(I32, int32_t) X(I64, int64_t) X(BOOL, uint8_t)

double stored_get(esp_dtype_t dtype, const char *memory, int64_t i)
{
    switch ((int)dtype) {
#define GET(name, type)                                                                            \
    case ESP_DTYPE_##name: {                                                                       \
        type value;                                                                                \
        memcpy(&value, memory + i * (int64_t)sizeof value, sizeof value);                          \
        return (double)value;                                                                      \
    }
        STORED(GET)
#undef GET
    default:
        fail_msg("dtype %d", (int)dtype);
        return 0;
    }
}

void stored_put(esp_dtype_t dtype, char *memory, int64_t i, double number)
{
    switch ((int)dtype) {
#define PUT(name, type)                                                                            \
    case ESP_DTYPE_##name: {                                                                       \
        const type value = (type)number;                                                           \
        memcpy(memory + i * (int64_t)sizeof value, &value, sizeof value);                          \
        return;                                                                                    \
    }
        STORED(PUT)
#undef PUT
    default:
        fail_msg("dtype %d", (int)dtype);
    }
}

void run_work(char *memory, const esp_i_work_t *work, const int64_t *src)
{
    src += work->first_src;
    if (!work->add) {
        assert_int_equal(work->n_src, 1);
        memmove(memory + work->dst, memory + src[0], (size_t)work->n);
        return;
    }
    for (int64_t i = 0; i < work->n; i++) {
        double sum = 0;
        for (int32_t s = 0; s < work->n_src; s++)
            sum = s == 0 ? stored_get(work->dtype, memory + src[s], i)
                         : sum + stored_get(work->dtype, memory + src[s], i);
        stored_put(work->dtype, memory + work->dst, i, sum);
    }
}

esp_i_buffer_t stored_buffer(const esp_i_local_t *local)
{
    esp_i_buffer_t buffer = {.rank = local->rank,
                             .global_rank = local->global_rank,
                             .view = local->view,
                             .offset = local->offset,
                             .share = local->share};
    memcpy(buffer.dims, local->dims, sizeof buffer.dims);
    memcpy(buffer.global, local->global, sizeof buffer.global);
    return buffer;
}
