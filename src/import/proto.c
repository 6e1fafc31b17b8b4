/* ONNX messages over the wire reader: which field number means what. */
#include "import/proto.h"

#include <stdlib.h>
#include <string.h>

/* How a known field is stored. */
typedef enum slot_type { SLOT_INT, SLOT_FLOAT, SLOT_STRING, SLOT_SPAN } slot_type_t;

typedef struct slot {
    uint32_t number;
    slot_type_t type;
    size_t offset; /* of the member: int64_t, float, esp_i_str_t, esp_i_wire_t */
} slot_t;

/* Stores `field` where `slots` say; fields without a slot are skipped. */
static esp_status_t store(const esp_i_wire_t *wire, const esp_i_field_t *field, const slot_t *slots,
                          int32_t n_slots, const char *what, void *record, esp_diag_t *diag)
{
    static const esp_i_wire_type_t wanted[] = {ESP_I_WIRE_VARINT, ESP_I_WIRE_FIXED32,
                                               ESP_I_WIRE_BYTES, ESP_I_WIRE_BYTES};
    for (int32_t s = 0; s < n_slots; s++) {
        if (slots[s].number != field->number)
            continue;
        if (field->type != wanted[slots[s].type])
            return esp_i_wire_mismatch(wire, field, what, diag);
        char *member = (char *)record + slots[s].offset;
        if (slots[s].type == SLOT_INT)
            *(int64_t *)(void *)member = (int64_t)field->value;
        else if (slots[s].type == SLOT_FLOAT)
            *(float *)(void *)member = esp_i_wire_float(field->value);
        else if (slots[s].type == SLOT_STRING)
            *(esp_i_str_t *)(void *)member = esp_i_wire_str(&field->bytes);
        else
            *(esp_i_wire_t *)(void *)member = field->bytes;
    }
    return ESP_OK;
}

/* Reads all slots of a message. */
static esp_status_t read_slots(esp_i_wire_t wire, const slot_t *slots, int32_t n_slots,
                               const char *what, void *record, esp_diag_t *diag)
{
    esp_i_field_t field;
    while (esp_i_wire_next(&wire, &field, diag))
        ESP_TRY(store(&wire, &field, slots, n_slots, what, record, diag));
    return wire.status;
}

#define SLOTS(table) (table), (int32_t)(sizeof(table) / sizeof *(table))

/* Counts one of a list of strings or sub-messages. */
static esp_status_t count(const esp_i_wire_t *wire, const esp_i_field_t *field, const char *what,
                          int32_t *counter, esp_diag_t *diag)
{
    if (field->type != ESP_I_WIRE_BYTES)
        return esp_i_wire_mismatch(wire, field, what, diag);
    if (*counter == INT32_MAX)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "%s has too many parts", what);
    (*counter)++;
    return ESP_OK;
}

esp_status_t esp_i_pb_model(esp_i_wire_t body, esp_i_pb_model_t *out, esp_diag_t *diag)
{
    static const slot_t slots[] = {
        {1, SLOT_INT, offsetof(esp_i_pb_model_t, ir_version)},
        {2, SLOT_STRING, offsetof(esp_i_pb_model_t, producer)},
    };
    *out = (esp_i_pb_model_t){.body = body};
    esp_i_field_t field;
    while (esp_i_wire_next(&body, &field, diag)) {
        ESP_TRY(store(&body, &field, SLOTS(slots), "ModelProto", out, diag));
        if (field.number != 7)
            continue;
        if (field.type != ESP_I_WIRE_BYTES)
            return esp_i_wire_mismatch(&body, &field, "ModelProto", diag);
        out->graph = field.bytes;
        out->has_graph = true;
    }
    return body.status;
}

esp_status_t esp_i_pb_opset(esp_i_wire_t body, esp_i_pb_opset_t *out, esp_diag_t *diag)
{
    static const slot_t slots[] = {
        {1, SLOT_STRING, offsetof(esp_i_pb_opset_t, domain)},
        {2, SLOT_INT, offsetof(esp_i_pb_opset_t, version)},
    };
    *out = (esp_i_pb_opset_t){0};
    return read_slots(body, SLOTS(slots), "OperatorSetIdProto", out, diag);
}

esp_status_t esp_i_pb_node(esp_i_wire_t body, esp_i_pb_node_t *out, esp_diag_t *diag)
{
    static const slot_t slots[] = {
        {3, SLOT_STRING, offsetof(esp_i_pb_node_t, name)},
        {4, SLOT_STRING, offsetof(esp_i_pb_node_t, op_type)},
        {7, SLOT_STRING, offsetof(esp_i_pb_node_t, domain)},
        {8, SLOT_STRING, offsetof(esp_i_pb_node_t, overload)},
    };
    *out = (esp_i_pb_node_t){.body = body};
    esp_i_field_t field;
    while (esp_i_wire_next(&body, &field, diag)) {
        ESP_TRY(store(&body, &field, SLOTS(slots), "NodeProto", out, diag));
        int32_t *counter = field.number == ESP_I_NODE_INPUTS       ? &out->n_inputs
                           : field.number == ESP_I_NODE_OUTPUTS    ? &out->n_outputs
                           : field.number == ESP_I_NODE_ATTRIBUTES ? &out->n_attributes
                                                                   : NULL;
        if (counter != NULL)
            ESP_TRY(count(&body, &field, "NodeProto", counter, diag));
    }
    return body.status;
}

/* Files of the first IR versions leave the type out: it is that of the member that is there. */
static int64_t implied_type(uint32_t number)
{
    static const esp_i_pb_attribute_type_t types[] = {
        [2] = ESP_I_PB_FLOAT, [3] = ESP_I_PB_INT,    [4] = ESP_I_PB_STRING, [5] = ESP_I_PB_TENSOR,
        [6] = ESP_I_PB_GRAPH, [7] = ESP_I_PB_FLOATS, [8] = ESP_I_PB_INTS,   [9] = ESP_I_PB_STRINGS};
    return number < sizeof types / sizeof *types ? (int64_t)types[number] : ESP_I_PB_NONE;
}

esp_status_t esp_i_pb_attribute(esp_i_wire_t body, esp_i_pb_attribute_t *out, esp_diag_t *diag)
{
    static const slot_t slots[] = {
        {1, SLOT_STRING, offsetof(esp_i_pb_attribute_t, name)},
        {2, SLOT_FLOAT, offsetof(esp_i_pb_attribute_t, f)},
        {3, SLOT_INT, offsetof(esp_i_pb_attribute_t, i)},
        {4, SLOT_STRING, offsetof(esp_i_pb_attribute_t, s)},
        {5, SLOT_SPAN, offsetof(esp_i_pb_attribute_t, t)},
        {6, SLOT_SPAN, offsetof(esp_i_pb_attribute_t, g)},
        {20, SLOT_INT, offsetof(esp_i_pb_attribute_t, type)},
        {21, SLOT_STRING, offsetof(esp_i_pb_attribute_t, reference)},
    };
    *out = (esp_i_pb_attribute_t){.body = body};
    int64_t implied = ESP_I_PB_NONE;
    esp_i_field_t field;
    while (esp_i_wire_next(&body, &field, diag)) {
        ESP_TRY(store(&body, &field, SLOTS(slots), "AttributeProto", out, diag));
        if (implied == ESP_I_PB_NONE)
            implied = implied_type(field.number);
    }
    if (out->type == ESP_I_PB_NONE)
        out->type = implied;
    return body.status;
}

/* Decimal digits only; the values come from key-value strings. */
static bool parse_i64(esp_i_str_t text, int64_t *out)
{
    int64_t value = 0;
    for (int64_t i = 0; i < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || !esp_i_mul_i64(value, 10, &value) ||
            !esp_i_add_i64(value, text.data[i] - '0', &value))
            return false;
    }
    *out = value;
    return text.length > 0;
}

static esp_status_t read_external(esp_i_wire_t body, esp_i_pb_tensor_t *out, esp_diag_t *diag)
{
    struct {
        esp_i_str_t key, value;
    } entry = {0};
    const slot_t slots[] = {{1, SLOT_STRING, 0}, {2, SLOT_STRING, sizeof(esp_i_str_t)}};
    esp_i_wire_t start = body;
    ESP_TRY(read_slots(body, SLOTS(slots), "StringStringEntryProto", &entry, diag));
    bool valid = true;
    if (esp_i_str_is(entry.key, "location"))
        out->location = entry.value;
    else if (esp_i_str_is(entry.key, "offset"))
        valid = parse_i64(entry.value, &out->offset);
    else if (esp_i_str_is(entry.key, "length"))
        valid = parse_i64(entry.value, &out->length);
    if (valid)
        return ESP_OK;
    esp_i_diag_byte(diag, esp_i_wire_offset(&start, start.at));
    return esp_i_fail(diag, ESP_ERR_INVALID, "external data has a bad offset or length");
}

static esp_status_t read_dims(esp_i_wire_t body, uint32_t number, esp_i_pb_tensor_t *out,
                              esp_diag_t *diag)
{
    esp_i_wire_numbers_t numbers = esp_i_wire_numbers(body, number, ESP_I_WIRE_VARINT);
    uint64_t value;
    while (esp_i_wire_number(&numbers, &value, diag)) {
        if (out->rank < ESP_MAX_RANK)
            out->dims[out->rank] = (int64_t)value;
        if (out->rank < INT32_MAX)
            out->rank++;
    }
    return numbers.wire.status;
}

esp_status_t esp_i_pb_tensor(esp_i_wire_t body, esp_i_pb_tensor_t *out, esp_diag_t *diag)
{
    static const slot_t slots[] = {
        {2, SLOT_INT, offsetof(esp_i_pb_tensor_t, data_type)},
        {8, SLOT_STRING, offsetof(esp_i_pb_tensor_t, name)},
        {9, SLOT_SPAN, offsetof(esp_i_pb_tensor_t, raw)},
    };
    *out = (esp_i_pb_tensor_t){.body = body, .length = -1};
    ESP_TRY(read_dims(body, 1, out, diag));
    esp_i_field_t field;
    while (esp_i_wire_next(&body, &field, diag)) {
        ESP_TRY(store(&body, &field, SLOTS(slots), "TensorProto", out, diag));
        if (field.number == 3)
            out->segmented = true;
        if (field.number == 9)
            out->has_raw = true;
        if (field.number == 14 && field.type == ESP_I_WIRE_VARINT)
            out->external = field.value == 1;
        if (field.number == 13 && field.type == ESP_I_WIRE_BYTES)
            ESP_TRY(read_external(field.bytes, out, diag));
    }
    return body.status;
}

esp_status_t esp_i_pb_dim(esp_i_wire_t body, esp_i_pb_dim_t *out, esp_diag_t *diag)
{
    static const slot_t slots[] = {
        {1, SLOT_INT, offsetof(esp_i_pb_dim_t, value)},
        {2, SLOT_STRING, offsetof(esp_i_pb_dim_t, param)},
    };
    *out = (esp_i_pb_dim_t){.value = -1};
    return read_slots(body, SLOTS(slots), "TensorShapeProto.Dimension", out, diag);
}

static esp_status_t read_tensor_type(esp_i_wire_t body, esp_i_pb_value_info_t *out,
                                     esp_diag_t *diag)
{
    static const slot_t slots[] = {
        {1, SLOT_INT, offsetof(esp_i_pb_value_info_t, elem_type)},
        {2, SLOT_SPAN, offsetof(esp_i_pb_value_info_t, shape)},
    };
    out->is_tensor = true;
    ESP_TRY(read_slots(body, SLOTS(slots), "TypeProto.Tensor", out, diag));
    out->has_shape = out->shape.at != NULL;
    return ESP_OK;
}

esp_status_t esp_i_pb_value_info(esp_i_wire_t body, esp_i_pb_value_info_t *out, esp_diag_t *diag)
{
    struct {
        esp_i_str_t name;
        esp_i_wire_t type, tensor;
    } parts = {0};
    const slot_t slots[] = {
        {1, SLOT_STRING, 0},
        {2, SLOT_SPAN, (size_t)((char *)&parts.type - (char *)&parts)},
    };
    const slot_t type_slots[] = {{1, SLOT_SPAN, (size_t)((char *)&parts.tensor - (char *)&parts)}};
    ESP_TRY(read_slots(body, SLOTS(slots), "ValueInfoProto", &parts, diag));
    *out = (esp_i_pb_value_info_t){.name = parts.name};
    if (parts.type.at == NULL)
        return ESP_OK;
    ESP_TRY(read_slots(parts.type, SLOTS(type_slots), "TypeProto", &parts, diag));
    return parts.tensor.at == NULL ? ESP_OK : read_tensor_type(parts.tensor, out, diag);
}

esp_status_t esp_i_pb_function(esp_i_wire_t body, esp_i_pb_function_t *out, esp_diag_t *diag)
{
    static const slot_t slots[] = {
        {1, SLOT_STRING, offsetof(esp_i_pb_function_t, name)},
        {10, SLOT_STRING, offsetof(esp_i_pb_function_t, domain)},
        {13, SLOT_STRING, offsetof(esp_i_pb_function_t, overload)},
    };
    *out = (esp_i_pb_function_t){.body = body};
    return read_slots(body, SLOTS(slots), "FunctionProto", out, diag);
}

bool esp_i_pb_each(esp_i_wire_t *message, uint32_t number, esp_i_wire_t *item_out, esp_diag_t *diag)
{
    esp_i_field_t field;
    while (esp_i_wire_next(message, &field, diag)) {
        if (field.number != number)
            continue;
        if (field.type != ESP_I_WIRE_BYTES) {
            message->status = esp_i_wire_mismatch(message, &field, "a message", diag);
            return false;
        }
        *item_out = field.bytes;
        return true;
    }
    return false;
}

/* ONNX element types in order of TensorProto.DataType; COUNT: no dtype of ours. */
static const struct {
    const char *name;
    esp_dtype_t dtype;
} element_types[] = {
    {"undefined", ESP_DTYPE_COUNT},  {"float", ESP_DTYPE_F32},     {"uint8", ESP_DTYPE_U8},
    {"int8", ESP_DTYPE_I8},          {"uint16", ESP_DTYPE_I16},    {"int16", ESP_DTYPE_I16},
    {"int32", ESP_DTYPE_I32},        {"int64", ESP_DTYPE_I64},     {"string", ESP_DTYPE_COUNT},
    {"bool", ESP_DTYPE_BOOL},        {"float16", ESP_DTYPE_F16},   {"double", ESP_DTYPE_F64},
    {"uint32", ESP_DTYPE_I32},       {"uint64", ESP_DTYPE_I64},    {"complex64", ESP_DTYPE_COUNT},
    {"complex128", ESP_DTYPE_COUNT}, {"bfloat16", ESP_DTYPE_BF16},
};
enum { N_ELEMENT_TYPES = sizeof element_types / sizeof *element_types };

bool esp_i_pb_dtype(int64_t elem_type, esp_dtype_t *dtype_out)
{
    if (elem_type < 0 || elem_type >= N_ELEMENT_TYPES ||
        element_types[elem_type].dtype == ESP_DTYPE_COUNT)
        return false;
    *dtype_out = element_types[elem_type].dtype;
    return true;
}

const char *esp_i_pb_type_name(int64_t elem_type)
{
    return elem_type >= 0 && elem_type < N_ELEMENT_TYPES ? element_types[elem_type].name
                                                         : "unknown";
}
