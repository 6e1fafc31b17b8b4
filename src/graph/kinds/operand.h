/*
 * What several kinds ask of an operand: checks of infer with their messages, and the local extents
 * of a kernel's buffer. `what` is the operand's name in messages.
 */
#ifndef ESP_GRAPH_KINDS_OPERAND_H
#define ESP_GRAPH_KINDS_OPERAND_H

#include "graph/kind.h"

/* "[2, 3]"; long shapes are cut. */
void esp_i_operand_text(const esp_i_shape_t *shape, char out[96]);

esp_status_t esp_i_operand_float(const esp_i_op_t *op, int32_t input, const char *what,
                                 esp_diag_t *diag);
/* Signed or unsigned, not boolean. */
esp_status_t esp_i_operand_integer(const esp_i_op_t *op, int32_t input, const char *what,
                                   esp_diag_t *diag);
/* The shape is dims[0, rank). */
esp_status_t esp_i_operand_shape(const esp_i_op_t *op, int32_t input, const char *what,
                                 int32_t rank, const int64_t *dims, esp_diag_t *diag);
/* `axis` is one of x's rank axes, or also rank itself if `or_end`. */
esp_status_t esp_i_operand_axis(const esp_i_shape_t *x, int32_t axis, bool or_end,
                                esp_diag_t *diag);

/* Output 0 takes shape and dtype of attr.shape: the kinds that make a tensor from nothing. */
esp_status_t esp_i_operand_attr_shape(const esp_i_op_t *op, esp_diag_t *diag);
/* One loop dimension: all elements, carried by every operand. */
void esp_i_operand_all(const esp_i_op_t *op, esp_i_dims_t *dims);
/* One linear set: input 0. */
int32_t esp_i_operand_linear_first(const esp_i_op_t *op, uint64_t masks_out[4]);

/* Statistics and sums of half-precision values are kept in float32; others in their own dtype. */
esp_dtype_t esp_i_operand_sum_dtype(esp_dtype_t dtype);

/*
 * Elements of the local buffer in the span of the *global* axes [from, to): their product, or their
 * part of it if the buffer is split there. The local dims would not do: they merge axes.
 */
int64_t esp_i_operand_span(const esp_i_buffer_t *buffer, int32_t from, int32_t to);

#endif
