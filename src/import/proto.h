/*
 * The messages of an ONNX file as spans: reading one walks its fields once and notes where the
 * parts lie. Lists (dims, inputs, attributes, data) are walked again by whoever needs them. Nothing
 * is allocated; a message that appears twice where one is expected: the last one counts.
 */
#ifndef ESP_IMPORT_PROTO_H
#define ESP_IMPORT_PROTO_H

#include "espalier/graph.h"
#include "import/wire.h"

/* Field numbers of lists that are walked by esp_i_pb_each and esp_i_wire_numbers. */
enum {
    ESP_I_MODEL_OPSETS = 8,
    ESP_I_MODEL_FUNCTIONS = 25,
    ESP_I_GRAPH_NODES = 1,
    ESP_I_GRAPH_INITIALIZERS = 5,
    ESP_I_GRAPH_INPUTS = 11,
    ESP_I_GRAPH_OUTPUTS = 12,
    ESP_I_GRAPH_SPARSE = 15,
    ESP_I_NODE_INPUTS = 1,
    ESP_I_NODE_OUTPUTS = 2,
    ESP_I_NODE_ATTRIBUTES = 5,
    ESP_I_FUNCTION_INPUTS = 4,
    ESP_I_FUNCTION_OUTPUTS = 5,
    ESP_I_FUNCTION_NODES = 7,
    ESP_I_FUNCTION_OPSETS = 9,
    ESP_I_FUNCTION_DEFAULTS = 11,
    ESP_I_ATTRIBUTE_FLOATS = 7,
    ESP_I_ATTRIBUTE_INTS = 8,
    ESP_I_ATTRIBUTE_STRINGS = 9,
    ESP_I_SHAPE_DIMS = 1,
};

/* AttributeProto.type */
typedef enum esp_i_pb_attribute_type {
    ESP_I_PB_NONE = 0,
    ESP_I_PB_FLOAT = 1,
    ESP_I_PB_INT = 2,
    ESP_I_PB_STRING = 3,
    ESP_I_PB_TENSOR = 4,
    ESP_I_PB_GRAPH = 5,
    ESP_I_PB_FLOATS = 6,
    ESP_I_PB_INTS = 7,
    ESP_I_PB_STRINGS = 8,
} esp_i_pb_attribute_type_t;

typedef struct esp_i_pb_model {
    esp_i_wire_t body;
    int64_t ir_version;
    esp_i_str_t producer;
    esp_i_wire_t graph;
    bool has_graph;
} esp_i_pb_model_t;

typedef struct esp_i_pb_opset {
    esp_i_str_t domain;
    int64_t version;
} esp_i_pb_opset_t;

typedef struct esp_i_pb_node {
    esp_i_wire_t body;
    esp_i_str_t name, op_type, domain, overload;
    int32_t n_inputs, n_outputs, n_attributes;
} esp_i_pb_node_t;

typedef struct esp_i_pb_attribute {
    esp_i_wire_t body;
    esp_i_str_t name, reference, s;
    int64_t type; /* as written; esp_i_pb_attribute_type_t where it is one of those */
    float f;
    int64_t i;
    esp_i_wire_t t, g;
} esp_i_pb_attribute_t;

typedef struct esp_i_pb_tensor {
    esp_i_wire_t body;
    esp_i_str_t name;
    int64_t data_type;          /* TensorProto.DataType */
    int32_t rank;               /* as written: may exceed ESP_MAX_RANK */
    int64_t dims[ESP_MAX_RANK]; /* the first ESP_MAX_RANK */
    bool has_raw, external, segmented;
    esp_i_wire_t raw;
    esp_i_str_t location;   /* external data */
    int64_t offset, length; /* external data; length -1: to the end */
} esp_i_pb_tensor_t;

typedef struct esp_i_pb_dim {
    int64_t value; /* -1: not given */
    esp_i_str_t param;
} esp_i_pb_dim_t;

typedef struct esp_i_pb_value_info {
    esp_i_str_t name;
    bool is_tensor, has_shape;
    int64_t elem_type;
    esp_i_wire_t shape; /* TensorShapeProto */
} esp_i_pb_value_info_t;

typedef struct esp_i_pb_function {
    esp_i_wire_t body;
    esp_i_str_t name, domain, overload;
} esp_i_pb_function_t;

esp_status_t esp_i_pb_model(esp_i_wire_t body, esp_i_pb_model_t *out, esp_diag_t *diag);
esp_status_t esp_i_pb_opset(esp_i_wire_t body, esp_i_pb_opset_t *out, esp_diag_t *diag);
esp_status_t esp_i_pb_node(esp_i_wire_t body, esp_i_pb_node_t *out, esp_diag_t *diag);
esp_status_t esp_i_pb_attribute(esp_i_wire_t body, esp_i_pb_attribute_t *out, esp_diag_t *diag);
esp_status_t esp_i_pb_tensor(esp_i_wire_t body, esp_i_pb_tensor_t *out, esp_diag_t *diag);
esp_status_t esp_i_pb_dim(esp_i_wire_t body, esp_i_pb_dim_t *out, esp_diag_t *diag);
esp_status_t esp_i_pb_value_info(esp_i_wire_t body, esp_i_pb_value_info_t *out, esp_diag_t *diag);
esp_status_t esp_i_pb_function(esp_i_wire_t body, esp_i_pb_function_t *out, esp_diag_t *diag);

/* The next sub-message (or string) with field number `number` in `message`, which advances. False
 * at the end and on an error (message->status). */
bool esp_i_pb_each(esp_i_wire_t *message, uint32_t number, esp_i_wire_t *item_out,
                   esp_diag_t *diag);

/* The dtype of an ONNX element type; unsigned integers become signed ones of the same size. */
bool esp_i_pb_dtype(int64_t elem_type, esp_dtype_t *dtype_out);
/* "uint8": the ONNX name of an element type, for messages. */
const char *esp_i_pb_type_name(int64_t elem_type);

#endif
