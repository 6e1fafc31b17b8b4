/*
 * Our reader of ONNX files against protobuf-c, on all shipped models, the fuzz seeds, and public
 * models if they are there: every message that the importer reads has the same content.
 */
#include "import/proto.h"
#include "support.h"

#ifdef ESP_ONNX_ORACLE
#include "onnx.pb-c.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static esp_diag_t diag;

static void same_text(esp_i_str_t ours, const char *theirs)
{
    theirs = theirs != NULL ? theirs : "";
    assert_int_equal(ours.length, strlen(theirs));
    if (ours.length > 0)
        assert_memory_equal(ours.data, theirs, (size_t)ours.length);
}

static esp_i_wire_t next(esp_i_wire_t *message, uint32_t number)
{
    esp_i_wire_t item;
    assert_true(esp_i_pb_each(message, number, &item, &diag));
    return item;
}

static void at_end(esp_i_wire_t *message, uint32_t number)
{
    esp_i_wire_t item;
    assert_false(esp_i_pb_each(message, number, &item, &diag));
    assert_int_equal(message->status, ESP_OK);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static uint64_t number(esp_i_wire_numbers_t *numbers)
{
    uint64_t value;
    assert_true(esp_i_wire_number(numbers, &value, &diag));
    return value;
}

static void numbers_end(esp_i_wire_numbers_t *numbers)
{
    uint64_t value;
    assert_false(esp_i_wire_number(numbers, &value, &diag));
    assert_int_equal(numbers->wire.status, ESP_OK);
}

static void same_data(esp_i_wire_t body, const Onnx__TensorProto *theirs)
{
    esp_i_wire_numbers_t floats = esp_i_wire_numbers(body, 4, ESP_I_WIRE_FIXED32);
    for (size_t k = 0; k < theirs->n_float_data; k++)
        assert_true(esp_i_wire_float(number(&floats)) == theirs->float_data[k]);
    numbers_end(&floats);
    esp_i_wire_numbers_t small = esp_i_wire_numbers(body, 5, ESP_I_WIRE_VARINT);
    for (size_t k = 0; k < theirs->n_int32_data; k++)
        assert_int_equal((int32_t)number(&small), theirs->int32_data[k]);
    numbers_end(&small);
    esp_i_wire_numbers_t large = esp_i_wire_numbers(body, 7, ESP_I_WIRE_VARINT);
    for (size_t k = 0; k < theirs->n_int64_data; k++)
        assert_int_equal((int64_t)number(&large), theirs->int64_data[k]);
    numbers_end(&large);
}

static void same_tensor(esp_i_wire_t body, const Onnx__TensorProto *theirs)
{
    esp_i_pb_tensor_t ours;
    test_assert_ok(esp_i_pb_tensor(body, &ours, &diag), &diag);
    same_text(ours.name, theirs->name);
    assert_int_equal(ours.data_type, theirs->data_type);
    assert_int_equal(ours.rank, theirs->n_dims);
    for (size_t d = 0; d < theirs->n_dims && d < ESP_MAX_RANK; d++)
        assert_int_equal(ours.dims[d], theirs->dims[d]);
    assert_int_equal(ours.has_raw, theirs->has_raw_data);
    if (ours.has_raw) {
        assert_int_equal(ours.raw.end - ours.raw.at, theirs->raw_data.len);
        assert_memory_equal(ours.raw.at, theirs->raw_data.data, theirs->raw_data.len);
    }
    assert_int_equal(ours.external, theirs->has_data_location && theirs->data_location == 1);
    for (size_t k = 0; k < theirs->n_external_data; k++)
        if (strcmp(theirs->external_data[k]->key, "location") == 0)
            same_text(ours.location, theirs->external_data[k]->value);
    same_data(body, theirs);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void same_graph(esp_i_wire_t body, const Onnx__GraphProto *theirs);

static void same_attribute(esp_i_wire_t body, const Onnx__AttributeProto *theirs)
{
    esp_i_pb_attribute_t ours;
    test_assert_ok(esp_i_pb_attribute(body, &ours, &diag), &diag);
    same_text(ours.name, theirs->name);
    same_text(ours.reference, theirs->ref_attr_name);
    assert_int_equal(ours.type, theirs->type);
    assert_true(ours.f == theirs->f);
    assert_int_equal(ours.i, theirs->i);
    assert_int_equal(ours.s.length, theirs->s.len);
    esp_i_wire_numbers_t ints = esp_i_wire_numbers(body, ESP_I_ATTRIBUTE_INTS, ESP_I_WIRE_VARINT);
    for (size_t k = 0; k < theirs->n_ints; k++)
        assert_int_equal((int64_t)number(&ints), theirs->ints[k]);
    numbers_end(&ints);
    esp_i_wire_numbers_t floats =
        esp_i_wire_numbers(body, ESP_I_ATTRIBUTE_FLOATS, ESP_I_WIRE_FIXED32);
    for (size_t k = 0; k < theirs->n_floats; k++)
        assert_true(esp_i_wire_float(number(&floats)) == theirs->floats[k]);
    numbers_end(&floats);
    assert_int_equal(ours.t.at != NULL, theirs->t != NULL);
    assert_int_equal(ours.g.at != NULL, theirs->g != NULL);
    if (theirs->t != NULL)
        same_tensor(ours.t, theirs->t);
    if (theirs->g != NULL)
        same_graph(ours.g, theirs->g);
}

static void same_strings(esp_i_wire_t body, uint32_t field, size_t n, char **theirs)
{
    for (size_t k = 0; k < n; k++) {
        esp_i_wire_t item = next(&body, field);
        same_text(esp_i_wire_str(&item), theirs[k]);
    }
    at_end(&body, field);
}

static void same_node(esp_i_wire_t body, const Onnx__NodeProto *theirs)
{
    esp_i_pb_node_t ours;
    test_assert_ok(esp_i_pb_node(body, &ours, &diag), &diag);
    same_text(ours.name, theirs->name);
    same_text(ours.op_type, theirs->op_type);
    same_text(ours.domain, theirs->domain);
    assert_int_equal(ours.n_inputs, theirs->n_input);
    assert_int_equal(ours.n_outputs, theirs->n_output);
    assert_int_equal(ours.n_attributes, theirs->n_attribute);
    same_strings(body, ESP_I_NODE_INPUTS, theirs->n_input, theirs->input);
    same_strings(body, ESP_I_NODE_OUTPUTS, theirs->n_output, theirs->output);
    for (size_t k = 0; k < theirs->n_attribute; k++)
        same_attribute(next(&body, ESP_I_NODE_ATTRIBUTES), theirs->attribute[k]);
    at_end(&body, ESP_I_NODE_ATTRIBUTES);
}

static void same_value_info(esp_i_wire_t body, const Onnx__ValueInfoProto *theirs)
{
    esp_i_pb_value_info_t ours;
    test_assert_ok(esp_i_pb_value_info(body, &ours, &diag), &diag);
    same_text(ours.name, theirs->name);
    bool is_tensor =
        theirs->type != NULL && theirs->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    assert_int_equal(ours.is_tensor, is_tensor);
    if (!is_tensor)
        return;
    const Onnx__TypeProto__Tensor *type = theirs->type->tensor_type;
    assert_int_equal(ours.elem_type, type->elem_type);
    assert_int_equal(ours.has_shape, type->shape != NULL);
    for (size_t d = 0; type->shape != NULL && d < type->shape->n_dim; d++) {
        const Onnx__TensorShapeProto__Dimension *dim = type->shape->dim[d];
        esp_i_pb_dim_t read;
        test_assert_ok(esp_i_pb_dim(next(&ours.shape, ESP_I_SHAPE_DIMS), &read, &diag), &diag);
        bool known = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        bool named = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        assert_int_equal(read.value, known ? dim->dim_value : -1);
        same_text(read.param, named ? dim->dim_param : "");
    }
}

static void same_graph(esp_i_wire_t body, const Onnx__GraphProto *theirs)
{
    esp_i_wire_t nodes = body, tensors = body, inputs = body, outputs = body;
    for (size_t k = 0; k < theirs->n_node; k++)
        same_node(next(&nodes, ESP_I_GRAPH_NODES), theirs->node[k]);
    at_end(&nodes, ESP_I_GRAPH_NODES);
    for (size_t k = 0; k < theirs->n_initializer; k++)
        same_tensor(next(&tensors, ESP_I_GRAPH_INITIALIZERS), theirs->initializer[k]);
    at_end(&tensors, ESP_I_GRAPH_INITIALIZERS);
    for (size_t k = 0; k < theirs->n_input; k++)
        same_value_info(next(&inputs, ESP_I_GRAPH_INPUTS), theirs->input[k]);
    at_end(&inputs, ESP_I_GRAPH_INPUTS);
    for (size_t k = 0; k < theirs->n_output; k++)
        same_value_info(next(&outputs, ESP_I_GRAPH_OUTPUTS), theirs->output[k]);
    at_end(&outputs, ESP_I_GRAPH_OUTPUTS);
}

static void same_function(esp_i_wire_t body, const Onnx__FunctionProto *theirs)
{
    esp_i_pb_function_t ours;
    test_assert_ok(esp_i_pb_function(body, &ours, &diag), &diag);
    same_text(ours.name, theirs->name);
    same_text(ours.domain, theirs->domain);
    same_strings(body, ESP_I_FUNCTION_INPUTS, theirs->n_input, theirs->input);
    same_strings(body, ESP_I_FUNCTION_OUTPUTS, theirs->n_output, theirs->output);
    for (size_t k = 0; k < theirs->n_node; k++)
        same_node(next(&body, ESP_I_FUNCTION_NODES), theirs->node[k]);
    at_end(&body, ESP_I_FUNCTION_NODES);
}

static void same_model(esp_i_wire_t body, const Onnx__ModelProto *theirs)
{
    esp_i_pb_model_t ours;
    esp_i_wire_t opsets = body, functions = body;
    test_assert_ok(esp_i_pb_model(body, &ours, &diag), &diag);
    assert_int_equal(ours.ir_version, theirs->ir_version);
    same_text(ours.producer, theirs->producer_name);
    assert_int_equal(ours.has_graph, theirs->graph != NULL);
    for (size_t k = 0; k < theirs->n_opset_import; k++) {
        esp_i_pb_opset_t opset;
        test_assert_ok(esp_i_pb_opset(next(&opsets, ESP_I_MODEL_OPSETS), &opset, &diag), &diag);
        same_text(opset.domain, theirs->opset_import[k]->domain);
        assert_int_equal(opset.version, theirs->opset_import[k]->version);
    }
    at_end(&opsets, ESP_I_MODEL_OPSETS);
    for (size_t k = 0; k < theirs->n_functions; k++)
        same_function(next(&functions, ESP_I_MODEL_FUNCTIONS), theirs->functions[k]);
    at_end(&functions, ESP_I_MODEL_FUNCTIONS);
    same_graph(ours.graph, theirs->graph);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Files of other names are what fuzzing made: no valid models, which the two readers may mend
 * differently. */
static void compare_directory(const char *path, int32_t *count)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char name[TEST_PATH_MAX + 256];
        size_t length;
        if (strstr(entry->d_name, ".onnx") == NULL)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        char *bytes = test_read_file(name, &length);
        Onnx__ModelProto *theirs = onnx__model_proto__unpack(NULL, length, (const uint8_t *)bytes);
        assert_non_null(theirs);
        same_model(esp_i_wire_open(bytes, (int64_t)length), theirs);
        onnx__model_proto__free_unpacked(theirs, NULL);
        free(bytes);
        (*count)++;
    }
    if (directory != NULL)
        closedir(directory);
}

static void test_files(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    int32_t count = 0;
    compare_directory(test_source_path("models", path), &count);
    compare_directory(test_source_path("fuzz/corpus/onnx", path), &count);
    assert_true(count >= 10);
}

static void test_public_files(void **state)
{
    (void)state;
    char path[TEST_PATH_MAX];
    int32_t count = 0;
    compare_directory(test_shared_path("data/onnx-light", path), &count);
    assert_true(count > 0);
}

#else

static void test_files(void **state)
{
    (void)state;
    print_message("skipped: needs protoc-c, protobuf-c and the system's onnx.proto\n");
    skip();
}

static void test_public_files(void **state)
{
    test_files(state);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_public_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
