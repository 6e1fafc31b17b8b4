/*
 * Tiny ONNX files for tests, written in few words. A message is a growing buffer of protobuf wire
 * format; a model collects the parts of a ModelProto.
 *
 * Lists are texts with blanks: om_node(&m, "Gemm", "x w b", "y", "transB=1 alpha=0.5"). A name "_"
 * is an absent operand. Attribute values: 3 an integer, 0.5 a float, [1,2] integers, [0.5] floats,
 * [Tanh] strings, anything else a string.
 */
#ifndef ESP_TESTS_ONNX_WRITER_H
#define ESP_TESTS_ONNX_WRITER_H

#include "espalier/onnx.h"

#include <stdbool.h>

/* ---- wire format ----------------------------------------------------------------------------- */

typedef struct message {
    uint8_t *data;
    size_t length, capacity;
} message_t;

void message_free(message_t *message);
void message_raw(message_t *message, const void *bytes, size_t length);
void message_varint(message_t *message, uint32_t field, uint64_t value);
void message_float(message_t *message, uint32_t field, float value);
void message_bytes(message_t *message, uint32_t field, const void *bytes, size_t length);
void message_text(message_t *message, uint32_t field, const char *text);
/* Appends `part` as a sub-message and frees it. */
void message_part(message_t *message, uint32_t field, message_t *part);

/* ---- parts of a model ------------------------------------------------------------------------ */

enum {
    OM_FLOAT = 1,
    OM_UINT8 = 2,
    OM_INT32 = 6,
    OM_INT64 = 7,
    OM_STRING = 8,
    OM_BOOL = 9,
    OM_HALF = 10,
    OM_DOUBLE = 11
};

typedef struct onnx_model {
    message_t graph, functions;
    int64_t opset;
} onnx_model_t;

void om_init(onnx_model_t *model, int64_t opset);
void om_free(onnx_model_t *model);
/* dims: numbers, symbols, or ? for an extent that is left open. */
void om_input(onnx_model_t *model, const char *name, int32_t type, const char *dims);
void om_output(onnx_model_t *model, const char *name);
/* A float initializer without data. */
void om_weight(onnx_model_t *model, const char *name, const char *dims);
/* Initializers with data: of int64 "1 -2" (one number and dims "" is a scalar), of float. */
void om_ints(onnx_model_t *model, const char *name, const char *dims, const char *numbers);
void om_floats(onnx_model_t *model, const char *name, const char *dims, const char *numbers);
void om_node(onnx_model_t *model, const char *type, const char *inputs, const char *outputs,
             const char *attributes);

/* The same as messages, for what the calls above do not cover. */
message_t om_tensor(const char *name, int32_t type, const char *dims, const char *numbers);
message_t om_node_message(const char *type, const char *inputs, const char *outputs,
                          const char *attributes);
message_t om_value_info(const char *name, int32_t type, const char *dims);

/* The ModelProto; the model stays as it is. Free with message_free. */
message_t om_finish(const onnx_model_t *model);

/* Finishes, parses and frees the model. */
esp_status_t om_parse(onnx_model_t *model, const esp_onnx_opts_t *opts, esp_graph_t **graph_out,
                      esp_diag_t *diag);
/* The same where it must succeed and the graph be valid. opts may be NULL. */
esp_graph_t *om_graph(onnx_model_t *model, const esp_onnx_opts_t *opts);

#endif
