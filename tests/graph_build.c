#include "graph_build.h"

#include "support.h"

#include <stdlib.h>
#include <string.h>

void gb_init(gb_t *gb)
{
    memset(gb, 0, sizeof *gb);
    assert_int_equal(esp_builder_create("test", NULL, &gb->builder), ESP_OK);
}

void gb_fini(gb_t *gb)
{
    esp_builder_destroy(gb->builder);
    gb->builder = NULL;
}

esp_graph_t *gb_freeze(gb_t *gb)
{
    esp_graph_t *graph = NULL;
    test_assert_ok(esp_builder_freeze(gb->builder, &graph, &gb->diag), &gb->diag);
    test_assert_ok(esp_graph_check(graph, &gb->diag), &gb->diag);
    gb_fini(gb);
    return graph;
}

int32_t gb_numbers(const char *text, int64_t out[ESP_MAX_RANK])
{
    int32_t n = 0;
    char *rest;
    for (;; text = rest) {
        long long value = strtoll(text, &rest, 10);
        if (rest == text)
            return n;
        assert_true(n < ESP_MAX_RANK);
        out[n++] = value;
    }
}

esp_tensor_id_t gb_tensor(gb_t *gb, const char *name, esp_role_t role, esp_dtype_t dtype,
                          const char *shape)
{
    int64_t dims[ESP_MAX_RANK];
    int32_t rank = gb_numbers(shape, dims);
    esp_tensor_id_t tensor;
    test_assert_ok(
        esp_builder_tensor(gb->builder, name, role, dtype, rank, dims, NULL, &tensor, &gb->diag),
        &gb->diag);
    return tensor;
}

esp_tensor_id_t gb_input(gb_t *gb, const char *name, const char *shape, int32_t batch_axis)
{
    esp_tensor_id_t tensor = gb_tensor(gb, name, ESP_ROLE_INPUT, ESP_DTYPE_F32, shape);
    const esp_i_shape_t *of = &gb->builder->tensors.data[tensor].shape;
    if (batch_axis >= 0) {
        esp_view_t view = {esp_i_shape_product(of, 0, batch_axis), of->dims[batch_axis],
                           esp_i_shape_product(of, batch_axis + 1, of->rank)};
        test_assert_ok(esp_builder_batch(gb->builder, tensor, view, &gb->diag), &gb->diag);
    }
    return tensor;
}

esp_tensor_id_t gb_parameter(gb_t *gb, const char *name, const char *shape)
{
    return gb_tensor(gb, name, ESP_ROLE_PARAMETER, ESP_DTYPE_F32, shape);
}

esp_tensor_id_t gb_literal(gb_t *gb, double value)
{
    float number = (float)value;
    esp_tensor_id_t tensor;
    test_assert_ok(esp_builder_tensor(gb->builder, "literal", ESP_ROLE_CONSTANT, ESP_DTYPE_F32, 0,
                                      NULL, &number, &tensor, &gb->diag),
                   &gb->diag);
    return tensor;
}

esp_tensor_id_t gb_op(gb_t *gb, esp_op_kind_t kind, const esp_attr_t *attr, int32_t n,
                      const esp_tensor_id_t *inputs)
{
    esp_tensor_id_t out[ESP_I_MAX_OUT];
    test_assert_ok(
        esp_builder_op(gb->builder, kind, attr, n, inputs, esp_kind_name(kind), out, &gb->diag),
        &gb->diag);
    return out[0];
}

static esp_tensor_id_t eltwise(gb_t *gb, esp_eltwise_t code, double alpha, double beta, int32_t n,
                               const esp_tensor_id_t *inputs)
{
    esp_attr_t attr = {.eltwise = {.code = code, .alpha = alpha, .beta = beta}};
    return gb_op(gb, ESP_KIND_ELTWISE, &attr, n, inputs);
}

esp_tensor_id_t gb_unary(gb_t *gb, esp_eltwise_t code, esp_tensor_id_t x)
{
    return eltwise(gb, code, 0, 0, 1, &x);
}

esp_tensor_id_t gb_binary(gb_t *gb, esp_eltwise_t code, esp_tensor_id_t x, esp_tensor_id_t y)
{
    esp_tensor_id_t inputs[2] = {x, y};
    return eltwise(gb, code, 0, 0, 2, inputs);
}

esp_tensor_id_t gb_affine(gb_t *gb, esp_tensor_id_t x, double alpha, double beta)
{
    return eltwise(gb, ESP_ELT_AFFINE, alpha, beta, 1, &x);
}

esp_tensor_id_t gb_powc(gb_t *gb, esp_tensor_id_t x, double exponent)
{
    return eltwise(gb, ESP_ELT_POWC, exponent, 0, 1, &x);
}

esp_tensor_id_t gb_einsum(gb_t *gb, const char *labels, esp_tensor_id_t x, esp_tensor_id_t y)
{
    esp_tensor_id_t out;
    test_assert_ok(esp_i_make_einsum(gb->builder, labels, x, y, "contract", &out, &gb->diag),
                   &gb->diag);
    return out;
}

static esp_attr_t shape_attr(const char *shape)
{
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.rank = gb_numbers(shape, attr.shape.dims);
    return attr;
}

esp_tensor_id_t gb_reshape(gb_t *gb, esp_tensor_id_t x, const char *shape)
{
    esp_attr_t attr = shape_attr(shape);
    return gb_op(gb, ESP_KIND_RESHAPE, &attr, 1, &x);
}

esp_tensor_id_t gb_expand(gb_t *gb, esp_tensor_id_t x, const char *shape)
{
    esp_attr_t attr = shape_attr(shape);
    return gb_op(gb, ESP_KIND_EXPAND, &attr, 1, &x);
}

esp_tensor_id_t gb_transpose(gb_t *gb, esp_tensor_id_t x, const char *perm)
{
    int64_t axes[ESP_MAX_RANK];
    int32_t n = gb_numbers(perm, axes);
    esp_attr_t attr = {0};
    for (int32_t i = 0; i < n; i++)
        attr.transpose.perm[i] = (int32_t)axes[i];
    return gb_op(gb, ESP_KIND_TRANSPOSE, &attr, 1, &x);
}

esp_tensor_id_t gb_sum(gb_t *gb, esp_tensor_id_t x, const char *axes, bool keep)
{
    int64_t list[ESP_MAX_RANK];
    int32_t n = gb_numbers(axes, list);
    esp_attr_t attr = {.reduce = {.code = ESP_REDUCE_SUM, .keep = keep}};
    for (int32_t i = 0; i < n; i++)
        attr.reduce.axes |= 1U << list[i];
    return gb_op(gb, ESP_KIND_REDUCE, &attr, 1, &x);
}

esp_tensor_id_t gb_softmax(gb_t *gb, esp_tensor_id_t x, int32_t axis, bool logarithm)
{
    esp_attr_t attr = {.axis = {.axis = axis, .log = logarithm}};
    return gb_op(gb, ESP_KIND_SOFTMAX, &attr, 1, &x);
}

esp_tensor_id_t gb_conv(gb_t *gb, esp_tensor_id_t x, esp_tensor_id_t w)
{
    const int64_t *kernel = gb->builder->tensors.data[w].shape.dims + 2;
    esp_attr_t attr = {.conv = {.window = {.rank = 2,
                                           .kernel = {kernel[0], kernel[1]},
                                           .stride = {1, 1},
                                           .dilation = {1, 1},
                                           .pad_lo = {kernel[0] / 2, kernel[1] / 2},
                                           .pad_hi = {kernel[0] / 2, kernel[1] / 2}},
                                .groups = 1}};
    esp_tensor_id_t inputs[2] = {x, w};
    return gb_op(gb, ESP_KIND_CONV, &attr, 2, inputs);
}

void gb_output(gb_t *gb, esp_tensor_id_t tensor)
{
    assert_int_equal(esp_builder_output(gb->builder, tensor), ESP_OK);
}

esp_tensor_id_t gb_find(const esp_graph_t *graph, const char *tensor)
{
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++)
        if (strcmp(graph->tensor_name[i], tensor) == 0)
            return i;
    fail_msg("there is no tensor %s", tensor);
    return ESP_NONE;
}

int32_t gb_count(const esp_graph_t *graph, esp_op_kind_t kind)
{
    int32_t n = 0;
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        n += graph->op_kind[op] == kind;
    return n;
}

void gb_assert_batch(const esp_graph_t *graph, esp_tensor_id_t tensor, int64_t outer,
                     int64_t extent, int64_t inner)
{
    esp_view_t view = graph->tensor_batch[tensor];
    if (view.outer != outer || view.extent != extent || view.inner != inner)
        fail_msg("the batch of %s is (%lld, %lld, %lld), not (%lld, %lld, %lld)",
                 graph->tensor_name[tensor], (long long)view.outer, (long long)view.extent,
                 (long long)view.inner, (long long)outer, (long long)extent, (long long)inner);
}

bool gb_is_split(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    return graph->op_batch[graph->tensor_producer[tensor]].dim != ESP_NONE;
}
