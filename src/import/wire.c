/* The protobuf wire format: varints, fixed words, length-delimited spans. */
#include "import/wire.h"

#include <string.h>

esp_i_wire_t esp_i_wire_open(const void *bytes, int64_t length)
{
    const uint8_t *first = bytes;
    return (esp_i_wire_t){first, first, first + length, ESP_OK};
}

int64_t esp_i_wire_offset(const esp_i_wire_t *wire, const uint8_t *at)
{
    return at - wire->file;
}

static bool fail(esp_i_wire_t *wire, const uint8_t *at, const char *text, esp_diag_t *diag)
{
    esp_i_diag_byte(diag, esp_i_wire_offset(wire, at));
    wire->status = esp_i_fail(diag, ESP_ERR_SYNTAX, "%s", text);
    return false;
}

static bool read_varint(esp_i_wire_t *wire, uint64_t *value_out, esp_diag_t *diag)
{
    const uint8_t *start = wire->at;
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64; shift += 7) {
        if (wire->at == wire->end)
            return fail(wire, start, "the file ends inside a number", diag);
        uint8_t byte = *wire->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value_out = value;
            return true;
        }
    }
    return fail(wire, start, "a number has more than ten bytes", diag);
}

/* Little-endian, whatever the host is. */
static bool read_fixed(esp_i_wire_t *wire, int32_t size, uint64_t *value_out, esp_diag_t *diag)
{
    if (wire->end - wire->at < size)
        return fail(wire, wire->at, "the file ends inside a number", diag);
    uint64_t value = 0;
    for (int32_t i = 0; i < size; i++)
        value |= (uint64_t)wire->at[i] << (8 * i);
    wire->at += size;
    *value_out = value;
    return true;
}

static bool read_span(esp_i_wire_t *wire, esp_i_wire_t *span_out, esp_diag_t *diag)
{
    const uint8_t *start = wire->at;
    uint64_t length;
    if (!read_varint(wire, &length, diag))
        return false;
    if (length > (uint64_t)(wire->end - wire->at))
        return fail(wire, start, "a length reaches past the end of what holds it", diag);
    *span_out = (esp_i_wire_t){wire->file, wire->at, wire->at + length, ESP_OK};
    wire->at += length;
    return true;
}

bool esp_i_wire_next(esp_i_wire_t *wire, esp_i_field_t *field_out, esp_diag_t *diag)
{
    if (wire->status != ESP_OK || wire->at == wire->end)
        return false;
    esp_i_field_t field = {.at = wire->at};
    uint64_t key;
    if (!read_varint(wire, &key, diag))
        return false;
    if (key >> 3 == 0 || key >> 3 > 0x1fffffff)
        return fail(wire, field.at, "a field has an impossible number", diag);
    field.number = (uint32_t)(key >> 3);
    field.type = (esp_i_wire_type_t)(key & 7);
    bool read = false;
    if (field.type == ESP_I_WIRE_VARINT)
        read = read_varint(wire, &field.value, diag);
    else if (field.type == ESP_I_WIRE_FIXED64)
        read = read_fixed(wire, 8, &field.value, diag);
    else if (field.type == ESP_I_WIRE_FIXED32)
        read = read_fixed(wire, 4, &field.value, diag);
    else if (field.type == ESP_I_WIRE_BYTES)
        read = read_span(wire, &field.bytes, diag);
    else
        return fail(wire, field.at, "a field has an unknown wire type", diag);
    if (read)
        *field_out = field;
    return read;
}

esp_status_t esp_i_wire_mismatch(const esp_i_wire_t *wire, const esp_i_field_t *field,
                                 const char *what, esp_diag_t *diag)
{
    esp_i_diag_byte(diag, esp_i_wire_offset(wire, field->at));
    return esp_i_fail(diag, ESP_ERR_SYNTAX, "field %u of %s has wire type %d, which it cannot have",
                      field->number, what, (int)field->type);
}

esp_i_wire_numbers_t esp_i_wire_numbers(esp_i_wire_t message, uint32_t number,
                                        esp_i_wire_type_t kind)
{
    esp_i_wire_t nothing = {message.file, message.end, message.end, ESP_OK};
    return (esp_i_wire_numbers_t){message, nothing, number, kind};
}

static bool next_packed(esp_i_wire_numbers_t *numbers, uint64_t *value_out, esp_diag_t *diag)
{
    bool read = numbers->kind == ESP_I_WIRE_VARINT
                    ? read_varint(&numbers->packed, value_out, diag)
                    : read_fixed(&numbers->packed, numbers->kind == ESP_I_WIRE_FIXED32 ? 4 : 8,
                                 value_out, diag);
    if (!read)
        numbers->wire.status = numbers->packed.status;
    return read;
}

bool esp_i_wire_number(esp_i_wire_numbers_t *numbers, uint64_t *value_out, esp_diag_t *diag)
{
    esp_i_field_t field;
    while (numbers->packed.at == numbers->packed.end) {
        if (!esp_i_wire_next(&numbers->wire, &field, diag))
            return false;
        if (field.number != numbers->number)
            continue;
        if (field.type == ESP_I_WIRE_BYTES) {
            numbers->packed = field.bytes;
        } else if (field.type == numbers->kind) {
            *value_out = field.value;
            return true;
        } else {
            numbers->wire.status =
                esp_i_wire_mismatch(&numbers->wire, &field, "a list of numbers", diag);
            return false;
        }
    }
    return next_packed(numbers, value_out, diag);
}

bool esp_i_str_is(esp_i_str_t text, const char *other)
{
    return text.length == (int64_t)strlen(other) &&
           (text.length == 0 || memcmp(text.data, other, (size_t)text.length) == 0);
}

bool esp_i_str_equal(esp_i_str_t a, esp_i_str_t b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, (size_t)a.length) == 0);
}

float esp_i_wire_float(uint64_t fixed32)
{
    uint32_t bits = (uint32_t)fixed32;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double esp_i_wire_double(uint64_t fixed64)
{
    double value;
    memcpy(&value, &fixed64, sizeof value);
    return value;
}
