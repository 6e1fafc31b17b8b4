/*
 * Attention tile by tile: what the forward pass (attention.c) and the gradient (attention_grad.c)
 * share. No more than a tile of the scores exists at a time; tiles are on the stack, about 1 MiB.
 */
#ifndef ESP_EXEC_CPU_ATTENTION_H
#define ESP_EXEC_CPU_ATTENTION_H

#include "exec/cpu/fast.h"
#include "graph/kinds/attention.h"

/* Rows and columns of a tile of scores; as many of a depth or width are packed at a time. */
enum { ESP_I_ATT_TILE_Q = 64, ESP_I_ATT_TILE_K = 256, ESP_I_ATT_TILE_D = 256, ESP_I_LANES = 16 };

typedef struct esp_i_att_state {
    esp_i_att_t att;
    esp_i_buffer_t saved; /* `top`: its rows count as those of the scores */
    int32_t mask;         /* operand; -1: none */
    bool boolean, dmask;
    float scale, fill;
} esp_i_att_state_t;

/* One head, and where it starts in each layout. */
typedef struct esp_i_att_head {
    const esp_i_cpu_kernel_t *kernel;
    const esp_i_att_state_t *state;
    const esp_i_moment_t *moment;
    int64_t at[ESP_I_ATT_LAYOUTS];
} esp_i_att_head_t;

/* Queries and keys of a tile of scores, row-major with ESP_I_ATT_TILE_K columns. */
typedef struct esp_i_att_tile {
    int64_t query, n_queries, key, n_keys;
} esp_i_att_tile_t;

/* Fills kernel->state. `mask` is that input if it is there; `saved` the operand that is `top`. */
esp_status_t esp_i_att_prepare(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, int32_t mask,
                               int32_t saved, esp_diag_t *diag);
esp_i_att_head_t esp_i_att_head(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment,
                                int64_t head);

/* A matrix whose columns lie side by side. */
typedef struct esp_i_matrix {
    const float *data;
    int64_t lead;
} esp_i_matrix_t;
/* Rows along axis `axis` and columns along `other` from `first` on of an operand in that layout, in
 * place, or packed into `room` (ESP_I_ATT_TILE_K x ESP_I_ATT_TILE_D). */
esp_i_matrix_t esp_i_att_matrix(const esp_i_att_head_t *head, int32_t operand, int32_t layout,
                                int32_t axis, int64_t row, int64_t rows, int32_t other,
                                int64_t first, int64_t columns, float *room);

/* Scores of a tile, with the mask. room: two of esp_i_att_matrix. */
void esp_i_att_scores(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, float *scores,
                      float *room);
/* The mask's element of a row at the first key of the tile; *step_out: from key to key. */
int64_t esp_i_att_mask_at(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, int64_t row,
                          int64_t *step_out);
/* factor_out[i]: what dropout multiplies the weight of key i of that row of the tile with. */
void esp_i_att_kept(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, int64_t row,
                    float *factor_out);

#endif
