/*
 * The protobuf wire format, read in place: no copies, no allocation, no recursion.
 *
 * A wire is a span of the bytes of one file and the position in it. Every length is checked against
 * the span that holds it, so nothing read from a wire can lie outside the file. Errors cite the
 * byte offset in the file.
 */
#ifndef ESP_IMPORT_WIRE_H
#define ESP_IMPORT_WIRE_H

#include "base/base.h"

typedef struct esp_i_wire {
    const uint8_t *file; /* first byte of the file: offsets in messages count from here */
    const uint8_t *at, *end;
    esp_status_t status; /* why esp_i_wire_next returned false; ESP_OK: the end */
} esp_i_wire_t;

typedef enum esp_i_wire_type {
    ESP_I_WIRE_VARINT = 0,
    ESP_I_WIRE_FIXED64 = 1,
    ESP_I_WIRE_BYTES = 2,
    ESP_I_WIRE_FIXED32 = 5
} esp_i_wire_type_t;

typedef struct esp_i_field {
    uint32_t number;
    esp_i_wire_type_t type;
    uint64_t value;     /* VARINT, FIXED64, FIXED32 */
    esp_i_wire_t bytes; /* BYTES: what is inside */
    const uint8_t *at;  /* where the field starts */
} esp_i_field_t;

/* A string inside the file: not terminated, not checked for UTF-8. */
typedef struct esp_i_str {
    const char *data;
    int64_t length;
} esp_i_str_t;

esp_i_wire_t esp_i_wire_open(const void *bytes, int64_t length);
int64_t esp_i_wire_offset(const esp_i_wire_t *wire, const uint8_t *at);

/* The next field; false at the end and on an error (wire->status). O(1). */
bool esp_i_wire_next(esp_i_wire_t *wire, esp_i_field_t *field_out, esp_diag_t *diag);

/* Fails with the offset of `field`, which does not have the wire type that its number asks for. */
esp_status_t esp_i_wire_mismatch(const esp_i_wire_t *wire, const esp_i_field_t *field,
                                 const char *what, esp_diag_t *diag);

/*
 * One element of a repeated numeric field, packed or not: call until false. `kind` is the wire type
 * of one element. State is in `cursor`, which starts zeroed; after false, wire->status tells.
 */
typedef struct esp_i_wire_numbers {
    esp_i_wire_t wire;   /* the message that holds the field */
    esp_i_wire_t packed; /* rest of the packed block being read */
    uint32_t number;
    esp_i_wire_type_t kind;
} esp_i_wire_numbers_t;
esp_i_wire_numbers_t esp_i_wire_numbers(esp_i_wire_t message, uint32_t number,
                                        esp_i_wire_type_t kind);
bool esp_i_wire_number(esp_i_wire_numbers_t *numbers, uint64_t *value_out, esp_diag_t *diag);

static inline esp_i_str_t esp_i_wire_str(const esp_i_wire_t *wire)
{
    return (esp_i_str_t){(const char *)wire->at, wire->end - wire->at};
}
bool esp_i_str_is(esp_i_str_t text, const char *other);
bool esp_i_str_equal(esp_i_str_t a, esp_i_str_t b);
float esp_i_wire_float(uint64_t fixed32);
double esp_i_wire_double(uint64_t fixed64);

#endif
