/*
 * The import rules, by family. A rule reads the attributes and values of one node and sets the
 * outputs it can give; node->op->code tells apart ops that share a rule.
 */
#ifndef ESP_IMPORT_RULES_H
#define ESP_IMPORT_RULES_H

#include "import/import.h"

/* rules_conv.c */
esp_status_t esp_i_rule_conv(esp_i_node_t *node);
esp_status_t esp_i_rule_conv_transpose(esp_i_node_t *node);
esp_status_t esp_i_rule_pool(esp_i_node_t *node);
esp_status_t esp_i_rule_global_pool(esp_i_node_t *node);
esp_status_t esp_i_rule_lrn(esp_i_node_t *node);

/* rules_elementwise.c */
esp_status_t esp_i_rule_binary(esp_i_node_t *node);
esp_status_t esp_i_rule_mod(esp_i_node_t *node);
esp_status_t esp_i_rule_variadic(esp_i_node_t *node);
esp_status_t esp_i_rule_unary(esp_i_node_t *node);
esp_status_t esp_i_rule_alpha(esp_i_node_t *node);
esp_status_t esp_i_rule_gelu(esp_i_node_t *node);
esp_status_t esp_i_rule_swish(esp_i_node_t *node);
esp_status_t esp_i_rule_mish(esp_i_node_t *node);
esp_status_t esp_i_rule_selu(esp_i_node_t *node);
esp_status_t esp_i_rule_celu(esp_i_node_t *node);
esp_status_t esp_i_rule_softsign(esp_i_node_t *node);
esp_status_t esp_i_rule_tan(esp_i_node_t *node);
esp_status_t esp_i_rule_prelu(esp_i_node_t *node);
esp_status_t esp_i_rule_thresholded_relu(esp_i_node_t *node);
esp_status_t esp_i_rule_clip(esp_i_node_t *node);
esp_status_t esp_i_rule_compare(esp_i_node_t *node);
esp_status_t esp_i_rule_where(esp_i_node_t *node);
esp_status_t esp_i_rule_is_nan(esp_i_node_t *node);
esp_status_t esp_i_rule_is_inf(esp_i_node_t *node);
esp_status_t esp_i_rule_cast(esp_i_node_t *node);
esp_status_t esp_i_rule_cast_like(esp_i_node_t *node);
esp_status_t esp_i_rule_identity(esp_i_node_t *node);

/* rules_gather.c */
esp_status_t esp_i_rule_gather(esp_i_node_t *node);
esp_status_t esp_i_rule_gather_elements(esp_i_node_t *node);
esp_status_t esp_i_rule_gather_nd(esp_i_node_t *node);
esp_status_t esp_i_rule_one_hot(esp_i_node_t *node);
esp_status_t esp_i_rule_trilu(esp_i_node_t *node);
esp_status_t esp_i_rule_eye_like(esp_i_node_t *node);

/* rules_matmul.c */
esp_status_t esp_i_rule_matmul(esp_i_node_t *node);
esp_status_t esp_i_rule_gemm(esp_i_node_t *node);
esp_status_t esp_i_rule_einsum(esp_i_node_t *node);

/* rules_norm.c */
esp_status_t esp_i_rule_batchnorm(esp_i_node_t *node);
esp_status_t esp_i_rule_layernorm(esp_i_node_t *node);
esp_status_t esp_i_rule_instancenorm(esp_i_node_t *node);
esp_status_t esp_i_rule_groupnorm(esp_i_node_t *node);
esp_status_t esp_i_rule_mean_variance(esp_i_node_t *node);
esp_status_t esp_i_rule_lp_normalization(esp_i_node_t *node);
esp_status_t esp_i_rule_softmax(esp_i_node_t *node);
esp_status_t esp_i_rule_cross_entropy(esp_i_node_t *node);
esp_status_t esp_i_rule_nll(esp_i_node_t *node);

/* rules_random.c */
esp_status_t esp_i_rule_dropout(esp_i_node_t *node);
esp_status_t esp_i_rule_random_like(esp_i_node_t *node);
esp_status_t esp_i_rule_random(esp_i_node_t *node);
esp_status_t esp_i_rule_bernoulli(esp_i_node_t *node);

/* rules_reduce.c */
esp_status_t esp_i_rule_reduce(esp_i_node_t *node);
esp_status_t esp_i_rule_reduce_mean(esp_i_node_t *node);
esp_status_t esp_i_rule_reduce_norm(esp_i_node_t *node);
esp_status_t esp_i_rule_reduce_log_sum_exp(esp_i_node_t *node);
esp_status_t esp_i_rule_cumsum(esp_i_node_t *node);

/* rules_resize.c */
esp_status_t esp_i_rule_resize(esp_i_node_t *node);

/* rules_rnn.c */
esp_status_t esp_i_rule_recurrent(esp_i_node_t *node);

/* rules_scatter.c */
esp_status_t esp_i_rule_scatter_nd(esp_i_node_t *node);

/* rules_shape.c */
esp_status_t esp_i_rule_shape(esp_i_node_t *node);
esp_status_t esp_i_rule_size(esp_i_node_t *node);
esp_status_t esp_i_rule_constant(esp_i_node_t *node);
esp_status_t esp_i_rule_constant_of_shape(esp_i_node_t *node);
esp_status_t esp_i_rule_range(esp_i_node_t *node);
esp_status_t esp_i_rule_non_zero(esp_i_node_t *node);
esp_status_t esp_i_rule_if(esp_i_node_t *node);
esp_status_t esp_i_rule_refuse(esp_i_node_t *node);

/* rules_view.c */
esp_status_t esp_i_rule_reshape(esp_i_node_t *node);
esp_status_t esp_i_rule_flatten(esp_i_node_t *node);
esp_status_t esp_i_rule_squeeze(esp_i_node_t *node);
esp_status_t esp_i_rule_unsqueeze(esp_i_node_t *node);
esp_status_t esp_i_rule_transpose(esp_i_node_t *node);
esp_status_t esp_i_rule_expand(esp_i_node_t *node);
esp_status_t esp_i_rule_tile(esp_i_node_t *node);
esp_status_t esp_i_rule_concat(esp_i_node_t *node);
esp_status_t esp_i_rule_split(esp_i_node_t *node);
esp_status_t esp_i_rule_slice(esp_i_node_t *node);
esp_status_t esp_i_rule_pad(esp_i_node_t *node);
esp_status_t esp_i_rule_depth_space(esp_i_node_t *node);
/* a[.., i, k] b[.., k, j] with broadcasting. (rules_matmul.c) */
esp_status_t esp_i_im_matmul(esp_i_node_t *node, esp_i_value_t *a, esp_i_value_t *b,
                             esp_i_value_t **out);

#endif
