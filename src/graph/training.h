/* The training graph from inside: loss, backward pass and update are appended one after another. */
#ifndef ESP_GRAPH_TRAINING_H
#define ESP_GRAPH_TRAINING_H

#include "graph/build.h"

typedef struct esp_i_training {
    const esp_graph_t *model;
    const esp_training_opts_t *opts;
    esp_builder_t *builder; /* holds the model graph under its own ids, then what is appended */
    const esp_allocator_t *alloc;
    esp_diag_t *diag;

    bool evaluation; /* XENT: the sum instead of the mean, and counts */

    bool *trainable;           /* per model tensor */
    bool *decays;              /* per model tensor: weight decay applies */
    esp_op_id_t *first_user;   /* per model tensor: the first op that reads it, ESP_NONE */
    esp_tensor_id_t loss;      /* scalar */
    esp_tensor_id_t *gradient; /* per model tensor: of a trainable parameter, ESP_NONE */
} esp_i_training_t;

/* Appends the loss: sets training->loss. */
esp_status_t esp_i_training_loss(esp_i_training_t *training);
/* Of an evaluation: appends the states that count labels, of logits with the classes last. */
esp_status_t esp_i_evaluation_counts(esp_i_training_t *training, esp_tensor_id_t logits,
                                     esp_tensor_id_t labels);
/* ESP_ERR_ARGUMENT: out of range, or not those of esp_training_opts_default. */
esp_status_t esp_i_training_check(const esp_graph_t *model, const esp_training_opts_t *opts,
                                  esp_diag_t *diag);
/* Appends the gradients of all trainable parameters that the loss depends on. */
esp_status_t esp_i_training_backward(esp_i_training_t *training);
/* Appends clipping, optimizer state and updates. */
esp_status_t esp_i_training_update(esp_i_training_t *training);

/* "<name><suffix>" in the builder's arena; NULL: no memory. */
const char *esp_i_training_name(esp_i_training_t *training, const char *name, const char *suffix);

#endif
