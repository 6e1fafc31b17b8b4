/*
 * Tiny training graphs, built with the public builder and esp_training_graph. All dimensions are
 * small, and different where that can show a mistake.
 */
#ifndef ESP_TESTS_MODELS_H
#define ESP_TESTS_MODELS_H

#include "espalier/graph.h"

#include <stdbool.h>

/* ---- building ---------------------------------------------------------------------------- */

typedef struct net {
    esp_builder_t *builder;
    esp_diag_t diag;
} net_t;

#define NET_DIMS(...) ((const int64_t[]){__VA_ARGS__})

void net_init(net_t *net, const char *name);
/* batch_axis -1: the input has no batch. */
esp_tensor_id_t net_input(net_t *net, const char *name, esp_dtype_t dtype, int32_t rank,
                          const int64_t *dims, int32_t batch_axis);
esp_tensor_id_t net_param(net_t *net, const char *name, int32_t rank, const int64_t *dims);
/* All outputs of an op, or the first. */
void net_outputs(net_t *net, const char *name, esp_op_kind_t kind, const esp_attr_t *attr,
                 int32_t n, const esp_tensor_id_t *inputs, esp_tensor_id_t *outputs);
esp_tensor_id_t net_op(net_t *net, const char *name, esp_op_kind_t kind, const esp_attr_t *attr,
                       int32_t n, const esp_tensor_id_t *inputs);
esp_tensor_id_t net_einsum(net_t *net, const char *name, const char *labels, esp_tensor_id_t x,
                           esp_tensor_id_t y);
esp_tensor_id_t net_unary(net_t *net, esp_eltwise_t code, esp_tensor_id_t x);
esp_tensor_id_t net_binary(net_t *net, esp_eltwise_t code, esp_tensor_id_t x, esp_tensor_id_t y);
esp_tensor_id_t net_reshape(net_t *net, esp_tensor_id_t x, int32_t rank, const int64_t *dims);
esp_tensor_id_t net_transpose(net_t *net, esp_tensor_id_t x, int32_t rank, const int64_t *perm);
esp_tensor_id_t net_reduce(net_t *net, esp_reduce_t code, esp_tensor_id_t x, uint32_t axes);
esp_tensor_id_t net_dropout(net_t *net, esp_tensor_id_t x, double p, int64_t stream);
esp_tensor_id_t net_layernorm(net_t *net, const char *name, esp_tensor_id_t x);
/* Batch normalisation with running statistics; ghosts > 0: of that many slices of axis 0. */
esp_tensor_id_t net_batchnorm(net_t *net, const char *name, esp_tensor_id_t x, int32_t ghosts,
                              const int64_t *share);
/* x w + b on the last axis, w named `name`/w. */
esp_tensor_id_t net_dense(net_t *net, const char *name, esp_tensor_id_t x, int64_t out);
/* The training graph of a net with this output; the builder is gone. */
esp_graph_t *net_train(net_t *net, esp_tensor_id_t output, const esp_training_opts_t *opts);

/* ---- models ------------------------------------------------------------------------------ */

/* Options by loss and optimizer, with a rate that moves the weights and an epsilon far from 0. */
esp_training_opts_t train_with(esp_loss_t loss, esp_optimizer_t optimizer);

/* x[b, 6] -> 7 -> (dropout) -> 5 classes. */
esp_graph_t *model_mlp(int64_t batch, double dropout, const esp_training_opts_t *opts);
/* ids[b, 3] -> embedding[11, 4] -> dense -> logits by the embedding. */
esp_graph_t *model_tied(int64_t batch, const esp_training_opts_t *opts);
/* Two branches, "left" and "right", that share w, and their sum. */
esp_graph_t *model_branches(int64_t batch, const esp_training_opts_t *opts);
/* Two parameters of one shape that are added, so that they have one gradient; one is used again. */
esp_graph_t *model_sum_of_weights(int64_t batch, const esp_training_opts_t *opts);
/* x[3, b, 4] or x[b, 3, 4], merged with the positions for a product, then a mean over positions. */
esp_graph_t *model_sequence(int64_t batch, bool sequence_first, const esp_training_opts_t *opts);
/* Two convolutions with batch normalisation and a residual; ghosts as in net_batchnorm. */
esp_graph_t *model_convnet(int64_t batch, int32_t ghosts, const int64_t *share,
                           const esp_training_opts_t *opts);
/* Decoder with tied embedding: `layers` blocks of attention and a feed-forward part. */
esp_graph_t *model_transformer(int64_t batch, int32_t layers, double dropout,
                               const esp_training_opts_t *opts);
/* The loss is a scalar of the model's own: mean square plus 0.1 times the squared norm of w. */
esp_graph_t *model_penalty(int64_t batch, const esp_training_opts_t *opts);
/* Parameters with an axis as long as the batch, which ops on samples split: p[b, 1], and c[b, b] by
 * rows and by columns. */
esp_graph_t *model_per_sample(int64_t batch, const esp_training_opts_t *opts);
/* A loss to which the largest element of an input is added: no op splits that. */
esp_graph_t *model_offset(int64_t batch, const esp_training_opts_t *opts);
/* Dense layers, activations, normalisations, sums and uses of the same weight, drawn by seed. */
esp_graph_t *model_random(uint64_t seed, int64_t batch, const esp_training_opts_t *opts);

#endif
