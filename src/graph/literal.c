/* Elements of literals by dtype. */
#include "graph/text.h"

#include <math.h>
#include <string.h>

/* Copies element i of type T out of data. */
#define LOAD(T, data, i, out)                                                                      \
    do {                                                                                           \
        T value_;                                                                                  \
        memcpy(&value_, (const char *)(data) + (size_t)(i) * sizeof(T), sizeof(T));                \
        *(out) = value_;                                                                           \
    } while (0)
#define STORE(T, data, i, value)                                                                   \
    do {                                                                                           \
        T value_ = (T)(value);                                                                     \
        memcpy((char *)(data) + (size_t)(i) * sizeof(T), &value_, sizeof(T));                      \
    } while (0)

int64_t esp_i_literal_int(esp_dtype_t dtype, const void *data, int64_t i)
{
    int64_t value = 0;
    switch (dtype) {
    case ESP_DTYPE_I8:
        LOAD(int8_t, data, i, &value);
        break;
    case ESP_DTYPE_U8:
    case ESP_DTYPE_BOOL:
        LOAD(uint8_t, data, i, &value);
        break;
    case ESP_DTYPE_I16:
        LOAD(int16_t, data, i, &value);
        break;
    case ESP_DTYPE_I32:
        LOAD(int32_t, data, i, &value);
        break;
    case ESP_DTYPE_I64:
        LOAD(int64_t, data, i, &value);
        break;
    case ESP_DTYPE_F32:
    case ESP_DTYPE_F64:
    case ESP_DTYPE_F16:
    case ESP_DTYPE_BF16:
    case ESP_DTYPE_COUNT:
        break;
    }
    return value;
}

double esp_i_literal_real(esp_dtype_t dtype, const void *data, int64_t i)
{
    double value = NAN;
    if (dtype == ESP_DTYPE_F32)
        LOAD(float, data, i, &value);
    else if (dtype == ESP_DTYPE_F64)
        LOAD(double, data, i, &value);
    else if (!esp_dtype_is_float(dtype))
        value = (double)esp_i_literal_int(dtype, data, i);
    return value;
}

bool esp_i_literal_set_int(esp_dtype_t dtype, void *data, int64_t i, int64_t value)
{
    switch (dtype) {
    case ESP_DTYPE_I8:
        STORE(int8_t, data, i, value);
        break;
    case ESP_DTYPE_U8:
        STORE(uint8_t, data, i, value);
        break;
    case ESP_DTYPE_BOOL:
        STORE(uint8_t, data, i, value);
        return value == 0 || value == 1;
    case ESP_DTYPE_I16:
        STORE(int16_t, data, i, value);
        break;
    case ESP_DTYPE_I32:
        STORE(int32_t, data, i, value);
        break;
    case ESP_DTYPE_I64:
        STORE(int64_t, data, i, value);
        break;
    case ESP_DTYPE_F32:
    case ESP_DTYPE_F64:
    case ESP_DTYPE_F16:
    case ESP_DTYPE_BF16:
    case ESP_DTYPE_COUNT:
        return false;
    }
    return esp_i_literal_int(dtype, data, i) == value;
}

bool esp_i_literal_set_real(esp_dtype_t dtype, void *data, int64_t i, double value)
{
    if (dtype == ESP_DTYPE_F64) {
        STORE(double, data, i, value);
        return true;
    }
    if (dtype != ESP_DTYPE_F32 || fabs(value) > 3.4028234663852886e38)
        return false;
    STORE(float, data, i, value);
    return true;
}
