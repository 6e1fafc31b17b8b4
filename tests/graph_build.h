/*
 * Graphs for tests in few words: every call adds an op or fails the running test. Names count up
 * where they do not matter.
 */
#ifndef ESP_TESTS_GRAPH_BUILD_H
#define ESP_TESTS_GRAPH_BUILD_H

#include "graph/build.h"

typedef struct gb {
    esp_builder_t *builder;
    esp_diag_t diag;
} gb_t;

void gb_init(gb_t *gb);
void gb_fini(gb_t *gb);
/* Freezes, checks the graph and destroys the builder. */
esp_graph_t *gb_freeze(gb_t *gb);

/* shape: "8 16", "" for a scalar. */
esp_tensor_id_t gb_tensor(gb_t *gb, const char *name, esp_role_t role, esp_dtype_t dtype,
                          const char *shape);
/* A float32 input whose axis `batch_axis` is the batch; -1: no batch. */
esp_tensor_id_t gb_input(gb_t *gb, const char *name, const char *shape, int32_t batch_axis);
esp_tensor_id_t gb_parameter(gb_t *gb, const char *name, const char *shape);
esp_tensor_id_t gb_literal(gb_t *gb, double value);

esp_tensor_id_t gb_op(gb_t *gb, esp_op_kind_t kind, const esp_attr_t *attr, int32_t n,
                      const esp_tensor_id_t *inputs);
esp_tensor_id_t gb_unary(gb_t *gb, esp_eltwise_t code, esp_tensor_id_t x);
esp_tensor_id_t gb_binary(gb_t *gb, esp_eltwise_t code, esp_tensor_id_t x, esp_tensor_id_t y);
esp_tensor_id_t gb_affine(gb_t *gb, esp_tensor_id_t x, double alpha, double beta);
esp_tensor_id_t gb_powc(gb_t *gb, esp_tensor_id_t x, double exponent);
esp_tensor_id_t gb_einsum(gb_t *gb, const char *labels, esp_tensor_id_t x, esp_tensor_id_t y);
esp_tensor_id_t gb_reshape(gb_t *gb, esp_tensor_id_t x, const char *shape);
esp_tensor_id_t gb_expand(gb_t *gb, esp_tensor_id_t x, const char *shape);
esp_tensor_id_t gb_transpose(gb_t *gb, esp_tensor_id_t x, const char *perm);
/* Sum over the axes; they stay with extent 1 if `keep`. */
esp_tensor_id_t gb_sum(gb_t *gb, esp_tensor_id_t x, const char *axes, bool keep);
esp_tensor_id_t gb_softmax(gb_t *gb, esp_tensor_id_t x, int32_t axis, bool logarithm);
/* 2-d convolution with stride 1 and "same" padding. */
esp_tensor_id_t gb_conv(gb_t *gb, esp_tensor_id_t x, esp_tensor_id_t w);
void gb_output(gb_t *gb, esp_tensor_id_t tensor);

/* Numbers of a text; returns how many. */
int32_t gb_numbers(const char *text, int64_t out[ESP_MAX_RANK]);
esp_tensor_id_t gb_find(const esp_graph_t *graph, const char *tensor);
int32_t gb_count(const esp_graph_t *graph, esp_op_kind_t kind);
/* Fails the test unless the batch view of a tensor is this one; 0 0 0: none. */
void gb_assert_batch(const esp_graph_t *graph, esp_tensor_id_t tensor, int64_t outer,
                     int64_t extent, int64_t inner);
/* The op that makes a tensor carries the batch. */
bool gb_is_split(const esp_graph_t *graph, esp_tensor_id_t tensor);

#endif
