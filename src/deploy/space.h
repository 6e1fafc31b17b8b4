/* Inside of the decision space: what strategy.h shows, and the base groups behind it. */
#ifndef ESP_DEPLOY_SPACE_H
#define ESP_DEPLOY_SPACE_H

#include "base/base.h"
#include "espalier/strategy.h"

typedef struct esp_i_space {
    esp_space_t space; /* first: a space is an esp_i_space */
    esp_allocator_t alloc;
    esp_i_arena_t arena;
    int32_t *base_group; /* op group of each base group */
} esp_i_space_t;

/* Bytes between base groups; NULL: no memory. Release with esp_i_free. */
struct esp_i_edge *esp_i_base_edges(const esp_i_space_t *s, int32_t *n_out);
esp_status_t esp_i_groups_find(esp_i_space_t *s, const esp_space_opts_t *opts, esp_diag_t *diag);
esp_status_t esp_i_actions_make(esp_i_space_t *s, esp_diag_t *diag);

#endif
