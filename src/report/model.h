/* What a model report states: collected first, then written as text or as JSON. */
#ifndef ESP_REPORT_MODEL_H
#define ESP_REPORT_MODEL_H

#include "report/report.h"

enum { ESP_I_PHASES = 3 };

typedef struct esp_i_weights {
    int32_t count;
    int64_t elements, bytes;
} esp_i_weights_t;

typedef struct esp_i_model_facts {
    const esp_graph_t *graph;                  /* the step, or the model if there is none */
    int32_t ops[ESP_KIND_COUNT][ESP_I_PHASES]; /* by kind and phase */
    double flop[ESP_KIND_COUNT][ESP_I_PHASES];
    int32_t phase_ops[ESP_I_PHASES];
    double phase_flop[ESP_I_PHASES];
    double split_flop, unsplit_flop; /* forward and backward, with and without a batch factor */
    esp_i_weights_t trained, frozen, state, statistic, gradient;
    int64_t kept_bytes; /* activations that the forward pass leaves for the backward pass */
    ESP_VEC(esp_op_id_t) unsplit; /* read samples, but the batch does not split them */
    ESP_VEC(esp_op_id_t) opaque;  /* have no factor at all */
} esp_i_model_facts_t;

esp_status_t esp_i_model_facts(const esp_report_model_args_t *subject, const esp_allocator_t *alloc,
                               esp_i_model_facts_t *facts_out, esp_diag_t *diag);
void esp_i_model_facts_fini(esp_i_model_facts_t *facts, const esp_allocator_t *alloc);

/* The axis of a tensor that is its batch, whole; ESP_NONE: none, or only a part of an axis. */
int32_t esp_i_batch_axis(const esp_graph_t *graph, esp_tensor_id_t tensor);
/* Of parameters, frozen weights and statistics: the trained ones count as trained. */
bool esp_i_is_weight(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_role_t role);

void esp_i_model_json(const esp_report_model_args_t *subject, const esp_i_model_facts_t *facts,
                      const esp_i_coverage_t *coverage, bool verbose, esp_i_text_t *text);

#endif
