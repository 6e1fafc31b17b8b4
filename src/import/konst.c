/* Constants on the host: making, decoding from the file, encoding for the builder. */
#include "import/import.h"

#include <math.h>
#include <string.h>

esp_status_t esp_i_im_konst_new(esp_i_import_t *im, esp_dtype_t dtype, int32_t rank,
                                const int64_t *dims, esp_i_konst_t **out)
{
    *out = NULL;
    int64_t count = 1;
    for (int32_t d = 0; d < rank; d++)
        if (!esp_i_mul_i64(count, dims[d], &count))
            return ESP_OK;
    if (count > ESP_ONNX_MAX_FOLD || count > im->fold_left)
        return ESP_OK;
    esp_i_konst_t *k = esp_i_arena_alloc(&im->arena, 1, sizeof *k);
    void *data = esp_i_arena_alloc(&im->arena, count, sizeof(int64_t));
    if (k == NULL || data == NULL)
        return esp_i_nomem(im->diag);
    im->fold_left -= count + 16;
    *k = (esp_i_konst_t){.dtype = dtype, .rank = rank, .count = count};
    if (rank > 0)
        memcpy(k->dims, dims, (size_t)rank * sizeof *dims);
    if (esp_dtype_is_float(dtype))
        k->f = data;
    else
        k->i = data;
    *out = k;
    return ESP_OK;
}

/* ---- 16-bit floats --------------------------------------------------------------------------- */

static double half_to_double(uint16_t bits)
{
    int32_t exponent = (bits >> 10) & 31;
    double fraction = bits & 1023;
    double value = exponent == 31  ? (fraction > 0 ? (double)NAN : (double)INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -value : value;
}

static uint16_t double_to_half(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    if (isnan(value))
        return 0x7e00;
    if (size >= 65520) /* rounds to more than the largest, 65504 */
        return (uint16_t)(sign | 0x7c00);
    if (size < ldexp(1, -14))
        return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(size, 24)));
    int exponent;
    double fraction = frexp(size, &exponent);         /* in [1/2, 1) */
    double mantissa = nearbyint(ldexp(fraction, 11)); /* [1024, 2048]: a carry moves the exponent */
    return (uint16_t)(sign | (uint16_t)(((exponent + 13) << 10) + (int)mantissa));
}

static double bfloat_to_double(uint16_t bits)
{
    return (double)esp_i_wire_float((uint64_t)bits << 16);
}

static uint16_t double_to_bfloat(double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    if (isnan(single))
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16); /* ties to even */
}

/* ---- setting --------------------------------------------------------------------------------- */

static int64_t to_int(double value)
{
    if (isnan(value))
        return 0;
    if (value >= 9223372036854775807.0)
        return INT64_MAX;
    return value <= -9223372036854775808.0 ? INT64_MIN : (int64_t)value;
}

/* Keeps the low bits, as a cast between integers does. */
static int64_t wrap(esp_dtype_t dtype, int64_t value)
{
    if (dtype == ESP_DTYPE_BOOL)
        return value != 0;
    if (dtype == ESP_DTYPE_U8)
        return value & 0xff;
    int32_t shift = 64 - 8 * (int32_t)esp_dtype_bytes(dtype);
    return (int64_t)((uint64_t)value << shift) >> shift;
}

void esp_i_im_konst_set(esp_i_konst_t *k, int64_t index, double value)
{
    if (k->i != NULL)
        k->i[index] = k->dtype == ESP_DTYPE_BOOL ? value != 0 : wrap(k->dtype, to_int(value));
    else if (k->dtype == ESP_DTYPE_F64)
        k->f[index] = value;
    else if (k->dtype == ESP_DTYPE_F16)
        k->f[index] = half_to_double(double_to_half(value));
    else if (k->dtype == ESP_DTYPE_BF16)
        k->f[index] = bfloat_to_double(double_to_bfloat(value));
    else
        k->f[index] = (double)(float)value;
}

void esp_i_im_konst_set_int(esp_i_konst_t *k, int64_t index, int64_t value)
{
    if (k->i != NULL)
        k->i[index] = wrap(k->dtype, value);
    else
        esp_i_im_konst_set(k, index, (double)value);
}

void esp_i_im_konst_copy(esp_i_konst_t *y, int64_t to, const esp_i_konst_t *x, int64_t from)
{
    if (y->i != NULL)
        y->i[to] = x->i[from];
    else
        y->f[to] = x->f[from];
}

bool esp_i_im_konst_equal(const esp_i_konst_t *a, const esp_i_konst_t *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank || a->count != b->count ||
        memcmp(a->dims, b->dims, sizeof a->dims) != 0)
        return false;
    const void *a_data = a->i != NULL ? (const void *)a->i : (const void *)a->f;
    const void *b_data = b->i != NULL ? (const void *)b->i : (const void *)b->f;
    return memcmp(a_data, b_data, (size_t)a->count * sizeof *a->i) == 0;
}

/* ---- decoding -------------------------------------------------------------------------------- */

static esp_status_t fail_at(esp_i_import_t *im, const esp_i_pb_tensor_t *tensor,
                            esp_status_t status, const char *text)
{
    esp_i_diag_byte(im->diag, esp_i_wire_offset(&tensor->body, tensor->body.at));
    esp_i_str_t name = tensor->name;
    return esp_i_fail(im->diag, status, "tensor '%.*s' %s", (int)esp_i_min_i64(name.length, 80),
                      name.length > 0 ? name.data : "", text);
}

esp_status_t esp_i_im_literal_shape(esp_i_import_t *im, const esp_i_pb_tensor_t *tensor,
                                    esp_dtype_t *dtype_out, int64_t *count_out)
{
    if (!esp_i_pb_dtype(tensor->data_type, dtype_out)) {
        esp_i_diag_byte(im->diag, esp_i_wire_offset(&tensor->body, tensor->body.at));
        return esp_i_fail(im->diag, ESP_ERR_UNSUPPORTED,
                          "tensor '%.*s' has elements of type %s (%lld)",
                          (int)esp_i_min_i64(tensor->name.length, 80),
                          tensor->name.length > 0 ? tensor->name.data : "",
                          esp_i_pb_type_name(tensor->data_type), (long long)tensor->data_type);
    }
    if (tensor->rank > ESP_MAX_RANK)
        return fail_at(im, tensor, ESP_ERR_LIMIT, "has more than 8 axes");
    if (tensor->segmented)
        return fail_at(im, tensor, ESP_ERR_UNSUPPORTED, "is stored in segments");
    int64_t count = 1;
    for (int32_t d = 0; d < tensor->rank; d++) {
        if (tensor->dims[d] < 0)
            return fail_at(im, tensor, ESP_ERR_INVALID, "has a negative extent");
        if (!esp_i_mul_i64(count, tensor->dims[d], &count) || count > ESP_MAX_ELEMENTS)
            return fail_at(im, tensor, ESP_ERR_LIMIT, "has too many elements");
    }
    *count_out = count;
    return ESP_OK;
}

static double raw_float(esp_dtype_t dtype, const uint8_t *bytes)
{
    uint64_t bits = 0;
    int64_t size = esp_dtype_bytes(dtype);
    for (int64_t b = 0; b < size; b++)
        bits |= (uint64_t)bytes[b] << (8 * b);
    if (dtype == ESP_DTYPE_F64)
        return esp_i_wire_double(bits);
    if (dtype == ESP_DTYPE_F32)
        return (double)esp_i_wire_float(bits);
    return dtype == ESP_DTYPE_F16 ? half_to_double((uint16_t)bits)
                                  : bfloat_to_double((uint16_t)bits);
}

static int64_t raw_int(esp_dtype_t dtype, const uint8_t *bytes)
{
    uint64_t bits = 0;
    int64_t size = esp_dtype_bytes(dtype);
    for (int64_t b = 0; b < size; b++)
        bits |= (uint64_t)bytes[b] << (8 * b);
    return wrap(dtype, (int64_t)bits);
}

static esp_status_t decode_raw(esp_i_import_t *im, const esp_i_pb_tensor_t *tensor,
                               esp_i_konst_t *k)
{
    int64_t size = esp_dtype_bytes(k->dtype);
    if (tensor->raw.end - tensor->raw.at != k->count * size)
        return fail_at(im, tensor, ESP_ERR_INVALID, "has data of another size than its shape");
    for (int64_t e = 0; e < k->count; e++) {
        const uint8_t *at = tensor->raw.at + e * size;
        if (k->f != NULL)
            k->f[e] = raw_float(k->dtype, at);
        else
            k->i[e] = raw_int(k->dtype, at);
    }
    return ESP_OK;
}

/* The typed list that holds the data: field number, wire type of an element. */
void esp_i_im_typed_field(int64_t data_type, uint32_t *number_out, esp_i_wire_type_t *type_out)
{
    enum { FLOAT = 1, INT64 = 7, DOUBLE = 11, UINT32 = 12, UINT64 = 13 };
    *type_out = ESP_I_WIRE_VARINT;
    *number_out = 5; /* int32_data: all smaller integers, bool, 16-bit floats as bits */
    if (data_type == FLOAT) {
        *number_out = 4;
        *type_out = ESP_I_WIRE_FIXED32;
    } else if (data_type == INT64) {
        *number_out = 7;
    } else if (data_type == DOUBLE) {
        *number_out = 10;
        *type_out = ESP_I_WIRE_FIXED64;
    } else if (data_type == UINT32 || data_type == UINT64) {
        *number_out = 11;
    }
}

static void set_typed(esp_i_konst_t *k, int64_t e, uint64_t bits)
{
    if (k->i != NULL)
        k->i[e] = wrap(k->dtype, (int64_t)bits);
    else if (k->dtype == ESP_DTYPE_F32)
        k->f[e] = (double)esp_i_wire_float(bits);
    else if (k->dtype == ESP_DTYPE_F64)
        k->f[e] = esp_i_wire_double(bits);
    else
        k->f[e] = k->dtype == ESP_DTYPE_F16 ? half_to_double((uint16_t)bits)
                                            : bfloat_to_double((uint16_t)bits);
}

static esp_status_t decode_typed(esp_i_import_t *im, const esp_i_pb_tensor_t *tensor,
                                 esp_i_konst_t *k)
{
    uint32_t number;
    esp_i_wire_type_t type;
    esp_i_im_typed_field(tensor->data_type, &number, &type);
    esp_i_wire_numbers_t numbers = esp_i_wire_numbers(tensor->body, number, type);
    int64_t e = 0;
    uint64_t bits;
    while (esp_i_wire_number(&numbers, &bits, im->diag)) {
        if (e < k->count)
            set_typed(k, e, bits);
        e++;
    }
    if (numbers.wire.status != ESP_OK)
        return numbers.wire.status;
    if (e != k->count)
        return fail_at(im, tensor, ESP_ERR_INVALID, "has data of another size than its shape");
    return ESP_OK;
}

esp_status_t esp_i_im_konst_decode(esp_i_import_t *im, const esp_i_pb_tensor_t *tensor,
                                   const esp_i_konst_t **out)
{
    *out = NULL;
    esp_dtype_t dtype;
    int64_t count;
    ESP_TRY(esp_i_im_literal_shape(im, tensor, &dtype, &count));
    if (tensor->external)
        return ESP_OK; /* data outside the file is never read */
    esp_i_konst_t *k;
    ESP_TRY(esp_i_im_konst_new(im, dtype, tensor->rank, tensor->dims, &k));
    if (k == NULL)
        return ESP_OK;
    ESP_TRY(tensor->has_raw ? decode_raw(im, tensor, k) : decode_typed(im, tensor, k));
    *out = k;
    return ESP_OK;
}

esp_status_t esp_i_im_known(esp_i_import_t *im, esp_i_value_t *v, const esp_i_konst_t **out)
{
    if (v->known == NULL && v->literal != NULL) {
        esp_i_pb_tensor_t tensor;
        ESP_TRY(esp_i_im_literal_read(im, v, &tensor));
        ESP_TRY(esp_i_im_konst_decode(im, &tensor, &v->known));
        v->baked = v->known;
    } else if (v->known == NULL && v->grid != NULL) {
        ESP_TRY(esp_i_im_grid_known(im, v, &v->known));
    }
    *out = v->known;
    return ESP_OK;
}

/* ---- encoding -------------------------------------------------------------------------------- */

void esp_i_im_konst_encode(const esp_i_konst_t *k, void *bytes)
{
    uint8_t *at = bytes;
    size_t size = (size_t)esp_dtype_bytes(k->dtype);
    for (int64_t e = 0; e < k->count; e++, at += size) {
        if (k->i != NULL) { /* two's complement, so the low bytes are the value */
            int64_t value = k->i[e];
            int32_t word = (int32_t)value;
            int16_t half = (int16_t)value;
            int8_t byte = (int8_t)value;
            const void *source = size == 8   ? (const void *)&value
                                 : size == 4 ? (const void *)&word
                                 : size == 2 ? (const void *)&half
                                             : (const void *)&byte;
            memcpy(at, source, size);
        } else if (size == 8) {
            memcpy(at, &k->f[e], size);
        } else if (size == 4) {
            float single = (float)k->f[e];
            memcpy(at, &single, size);
        } else {
            uint16_t bits =
                k->dtype == ESP_DTYPE_F16 ? double_to_half(k->f[e]) : double_to_bfloat(k->f[e]);
            memcpy(at, &bits, size);
        }
    }
}
