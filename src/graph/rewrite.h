/*
 * Canonicalise from inside: patterns, and what they match and make ops with.
 *
 * A pattern looks at one op of a frozen graph, the root, and at what leads to it. If it recognises
 * the value of the root's output 0, it makes an op that computes the same from tensors further up
 * (or names a tensor that is the same). All other matched ops are inside: nobody but the pattern
 * may read them, for they go.
 */
#ifndef ESP_GRAPH_REWRITE_H
#define ESP_GRAPH_REWRITE_H

#include "graph/build.h"

#define ESP_I_MAX_INSIDE 24

typedef struct esp_i_rewrite {
    const esp_graph_t *graph; /* what is matched */
    esp_builder_t *builder;   /* what is made */
    esp_tensor_id_t *map;     /* tensor of graph -> tensor of builder; ESP_NONE: not yet, or gone */
    bool *kept;               /* tensors of graph that have to stay by themselves */
    bool *gone;               /* ops of graph that were inside a match of this round */
    bool *reread;             /* tensors of graph that a match of this round made someone read */
    esp_op_id_t root;
    int32_t n_inside;
    esp_op_id_t inside[ESP_I_MAX_INSIDE];
    esp_diag_t *diag;
} esp_i_rewrite_t;

/* Writes the tensor of the builder that replaces output 0 of the root; ESP_NONE: no match. */
typedef esp_status_t (*esp_i_pattern_fn)(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);

/* ---- matching: tensors and ops of rewrite->graph ------------------------------------------- */

/* The op that makes a tensor if it is of that kind, ESP_NONE otherwise. */
esp_op_id_t esp_i_rewrite_made_by(const esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                                  esp_op_kind_t kind);
/* Likewise for an element-wise op with that code. */
esp_op_id_t esp_i_rewrite_made_by_elt(const esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                                      esp_eltwise_t code);
bool esp_i_rewrite_is_elt(const esp_i_rewrite_t *rewrite, esp_op_id_t op, esp_eltwise_t code);
esp_tensor_id_t esp_i_rewrite_input(const esp_i_rewrite_t *rewrite, esp_op_id_t op, int32_t i);
int32_t esp_i_rewrite_n_inputs(const esp_i_rewrite_t *rewrite, esp_op_id_t op);
esp_tensor_id_t esp_i_rewrite_output(const esp_i_rewrite_t *rewrite, esp_op_id_t op);
bool esp_i_rewrite_same_shape(const esp_i_rewrite_t *rewrite, esp_tensor_id_t x, esp_tensor_id_t y);
/* All who read the tensor are ops of that kind, and there are some. */
bool esp_i_rewrite_read_by(const esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                           esp_op_kind_t kind);
/* Whether all elements are one number that the graph knows. */
bool esp_i_rewrite_scalar(const esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor, double *value);
/* Removes factors: tensor = scale * the result. Notes the ops it goes through as inside. */
esp_tensor_id_t esp_i_rewrite_unscale(esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                                      double *scale);
/* Equal up to what a literal in float32, or one of four digits, loses. */
bool esp_i_rewrite_near(double x, double y);

/* Notes a matched op besides the root. */
void esp_i_rewrite_inside(esp_i_rewrite_t *rewrite, esp_op_id_t op);
/* Nothing but the root and ops inside reads what is inside. */
bool esp_i_rewrite_closed(const esp_i_rewrite_t *rewrite);

/* ---- making -------------------------------------------------------------------------------- */

/* One op on tensors of rewrite->graph that takes the names of the root. */
esp_status_t esp_i_rewrite_emit(esp_i_rewrite_t *rewrite, esp_op_kind_t kind,
                                const esp_attr_t *attr, int32_t n, const esp_tensor_id_t *inputs,
                                esp_tensor_id_t *out);
/* The same; input i is first given the shape of like[i], which has as many elements. */
esp_status_t esp_i_rewrite_emit_as(esp_i_rewrite_t *rewrite, esp_op_kind_t kind,
                                   const esp_attr_t *attr, int32_t n, const esp_tensor_id_t *inputs,
                                   const esp_tensor_id_t *like, esp_tensor_id_t *out);
/* Ops of one input, each on the one before. */
typedef struct esp_i_step {
    esp_op_kind_t kind;
    esp_attr_t attr;
} esp_i_step_t;
esp_status_t esp_i_rewrite_emit_chain(esp_i_rewrite_t *rewrite, esp_tensor_id_t x, int32_t n,
                                      const esp_i_step_t *steps, esp_tensor_id_t *out);
/* The root's output is that tensor; not if it has to stay by itself. */
esp_status_t esp_i_rewrite_alias(esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                                 esp_tensor_id_t *out);

/* ---- the patterns, in the order in which they are tried ------------------------------------ */

esp_status_t esp_i_pattern_identity(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_view_of_view(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_transpose_of_ones(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_transpose_with_ones(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_unary_of_view(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_slice_of_transpose(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_split_of_transpose(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_scalar_operand(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_affine_chain(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_contract_of_transpose(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_transpose_of_contract(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_silu(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_gelu(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_gelu_tanh(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_log_softmax(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_xent(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
esp_status_t esp_i_pattern_layernorm(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);
/* Once none of the others finds anything. */
esp_status_t esp_i_pattern_attention(esp_i_rewrite_t *rewrite, esp_tensor_id_t *out);

#endif
