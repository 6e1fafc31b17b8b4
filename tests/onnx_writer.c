/* Tiny ONNX files: wire format, then the messages of a model. */
#include "onnx_writer.h"
#include "support.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- wire format ----------------------------------------------------------------------------- */

void message_free(message_t *message)
{
    free(message->data);
    *message = (message_t){0};
}

void message_raw(message_t *message, const void *bytes, size_t length)
{
    if (message->length + length > message->capacity) {
        message->capacity = 2 * message->capacity + length + 64;
        message->data = realloc(message->data, message->capacity);
        assert_non_null(message->data);
    }
    if (length > 0)
        memcpy(message->data + message->length, bytes, length);
    message->length += length;
}

static void put_varint(message_t *message, uint64_t value)
{
    uint8_t byte;
    do {
        byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        message_raw(message, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

void message_varint(message_t *message, uint32_t field, uint64_t value)
{
    put_varint(message, (uint64_t)field << 3);
    put_varint(message, value);
}

static void put_fixed32(message_t *message, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int32_t k = 0; k < 4; k++) {
        uint8_t byte = (uint8_t)(bits >> (8 * k));
        message_raw(message, &byte, 1);
    }
}

void message_float(message_t *message, uint32_t field, float value)
{
    put_varint(message, (uint64_t)field << 3 | 5);
    put_fixed32(message, value);
}

void message_bytes(message_t *message, uint32_t field, const void *bytes, size_t length)
{
    put_varint(message, (uint64_t)field << 3 | 2);
    put_varint(message, length);
    message_raw(message, bytes, length);
}

void message_text(message_t *message, uint32_t field, const char *text)
{
    message_bytes(message, field, text, strlen(text));
}

void message_part(message_t *message, uint32_t field, message_t *part)
{
    message_bytes(message, field, part->data, part->length);
    message_free(part);
}

/* ---- lists in texts -------------------------------------------------------------------------- */

enum { WORD_MAX = 256 };

/* The next word of a list; false at the end. */
static bool next_word(const char **text, char word[WORD_MAX])
{
    while (**text == ' ')
        (*text)++;
    size_t length = strcspn(*text, " ");
    assert_true(length < WORD_MAX);
    memcpy(word, *text, length);
    word[length] = '\0';
    *text += length;
    return length > 0;
}

/* ---- tensors and types ----------------------------------------------------------------------- */

message_t om_tensor(const char *name, int32_t type, const char *dims, const char *numbers)
{
    message_t tensor = {0};
    char word[WORD_MAX];
    while (next_word(&dims, word))
        message_varint(&tensor, 1, (uint64_t)strtoll(word, NULL, 10));
    message_varint(&tensor, 2, (uint64_t)type);
    while (numbers != NULL && next_word(&numbers, word)) {
        if (type == OM_FLOAT)
            message_float(&tensor, 4, strtof(word, NULL));
        else
            message_varint(&tensor, type == OM_INT64 ? 7 : 5, (uint64_t)strtoll(word, NULL, 10));
    }
    message_text(&tensor, 8, name);
    return tensor;
}

void om_ints(onnx_model_t *model, const char *name, const char *dims, const char *numbers)
{
    message_t tensor = om_tensor(name, OM_INT64, dims, numbers);
    message_part(&model->graph, 5, &tensor);
}

void om_floats(onnx_model_t *model, const char *name, const char *dims, const char *numbers)
{
    message_t tensor = om_tensor(name, OM_FLOAT, dims, numbers);
    message_part(&model->graph, 5, &tensor);
}

void om_weight(onnx_model_t *model, const char *name, const char *dims)
{
    message_t tensor = om_tensor(name, OM_FLOAT, dims, NULL), entry = {0};
    message_text(&entry, 1, "location");
    message_text(&entry, 2, "weights.bin");
    message_part(&tensor, 13, &entry);
    message_varint(&tensor, 14, 1);
    message_part(&model->graph, 5, &tensor);
}

message_t om_value_info(const char *name, int32_t type, const char *dims)
{
    message_t info = {0}, shape = {0}, tensor = {0}, outer = {0};
    char word[WORD_MAX];
    while (dims != NULL && next_word(&dims, word)) {
        message_t dim = {0};
        if (isdigit((unsigned char)word[0]) || word[0] == '-')
            message_varint(&dim, 1, (uint64_t)strtoll(word, NULL, 10));
        else if (word[0] != '?')
            message_text(&dim, 2, word);
        message_part(&shape, 1, &dim);
    }
    message_varint(&tensor, 1, (uint64_t)type);
    if (dims != NULL)
        message_part(&tensor, 2, &shape);
    message_part(&outer, 1, &tensor);
    message_text(&info, 1, name);
    message_part(&info, 2, &outer);
    return info;
}

void om_input(onnx_model_t *model, const char *name, int32_t type, const char *dims)
{
    message_t info = om_value_info(name, type, dims);
    message_part(&model->graph, 11, &info);
}

void om_output(onnx_model_t *model, const char *name)
{
    message_t info = {0};
    message_text(&info, 1, name);
    message_part(&model->graph, 12, &info);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool is_number(const char *text)
{
    char *end;
    (void)strtod(text, &end);
    return end != text && *end == '\0';
}

/* "[1,2]", "[0.5,1]" or "[Tanh,Relu]" */
static void put_list(message_t *attribute, char *list)
{
    bool real = strchr(list, '.') != NULL, text = isalpha((unsigned char)list[1]) != 0;
    for (char *item = strtok(list, "[,]"); item != NULL; item = strtok(NULL, "[,]")) {
        if (text)
            message_text(attribute, 9, item);
        else if (real)
            message_float(attribute, 7, strtof(item, NULL));
        else
            message_varint(attribute, 8, (uint64_t)strtoll(item, NULL, 10));
    }
    message_varint(attribute, 20, text ? 8 : real ? 6 : 7);
}

static message_t attribute_of(char *word)
{
    message_t attribute = {0};
    char *value = strchr(word, '=');
    assert_non_null(value);
    *value++ = '\0';
    message_text(&attribute, 1, word);
    if (value[0] == '[') {
        put_list(&attribute, value);
    } else if (!is_number(value)) {
        message_text(&attribute, 4, value);
        message_varint(&attribute, 20, 3);
    } else if (strpbrk(value, ".e") != NULL) {
        message_float(&attribute, 2, strtof(value, NULL));
        message_varint(&attribute, 20, 1);
    } else {
        message_varint(&attribute, 3, (uint64_t)strtoll(value, NULL, 10));
        message_varint(&attribute, 20, 2);
    }
    return attribute;
}

message_t om_node_message(const char *type, const char *inputs, const char *outputs,
                          const char *attributes)
{
    message_t node = {0};
    char word[WORD_MAX];
    while (next_word(&inputs, word))
        message_text(&node, 1, strcmp(word, "_") == 0 ? "" : word);
    while (next_word(&outputs, word))
        message_text(&node, 2, strcmp(word, "_") == 0 ? "" : word);
    message_text(&node, 4, type);
    while (next_word(&attributes, word)) {
        message_t attribute = attribute_of(word);
        message_part(&node, 5, &attribute);
    }
    return node;
}

void om_node(onnx_model_t *model, const char *type, const char *inputs, const char *outputs,
             const char *attributes)
{
    message_t node = om_node_message(type, inputs, outputs, attributes);
    message_part(&model->graph, 1, &node);
}

/* ---- models ---------------------------------------------------------------------------------- */

void om_init(onnx_model_t *model, int64_t opset)
{
    *model = (onnx_model_t){.opset = opset};
}

void om_free(onnx_model_t *model)
{
    message_free(&model->graph);
    message_free(&model->functions);
}

message_t om_finish(const onnx_model_t *model)
{
    message_t file = {0}, opset = {0};
    message_varint(&file, 1, 8);
    message_bytes(&file, 7, model->graph.data, model->graph.length);
    message_text(&opset, 1, "");
    message_varint(&opset, 2, (uint64_t)model->opset);
    message_part(&file, 8, &opset);
    message_raw(&file, model->functions.data, model->functions.length);
    return file;
}

esp_status_t om_parse(onnx_model_t *model, const esp_onnx_opts_t *opts, esp_graph_t **graph_out,
                      esp_diag_t *diag)
{
    message_t file = om_finish(model);
    /* an exact block, so that reading past the end is seen */
    uint8_t *exact = malloc(file.length);
    assert_non_null(exact);
    memcpy(exact, file.data, file.length);
    esp_status_t status = esp_onnx_parse(exact, file.length, opts, NULL, graph_out, diag);
    free(exact);
    message_free(&file);
    om_free(model);
    return status;
}

esp_graph_t *om_graph(onnx_model_t *model, const esp_onnx_opts_t *opts)
{
    esp_graph_t *graph = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(om_parse(model, opts, &graph, &diag), &diag);
    test_assert_ok(esp_graph_check(graph, &diag), &diag);
    return graph;
}
