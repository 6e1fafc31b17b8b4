/*
 * The models of the execution matrix: small training graphs that use every op kind, with all
 * optimizers and losses.
 */
#ifndef ESP_TESTS_MATRIX_MODELS_H
#define ESP_TESTS_MATRIX_MODELS_H

#include "models.h"

enum { MATRIX_BATCH = 12 };

typedef struct matrix_model {
    const char *name;
    esp_loss_t loss;
    esp_optimizer_t optimizer;
    double clip_norm;
    int64_t ignore; /* a label; INT64_MIN: none */
    /*
     * Batch normalisation over `ghosts` slices of the batch, of these shares, where the model has
     * it; 0: over the batch.
     */
    esp_graph_t *(*make)(const esp_training_opts_t *opts, int32_t ghosts, const int64_t *share);
    bool has_batchnorm;
    bool couples; /* an op mixes samples: no micro-batches */
} matrix_model_t;

extern const matrix_model_t matrix_models[];
extern const int32_t matrix_n_models;

/* The training graph of a model. */
esp_graph_t *matrix_graph(const matrix_model_t *model, int32_t ghosts, const int64_t *share);

#endif
