/* Tiles of attention scores. */
#include "exec/cpu/attention.h"
#include "exec/values.h"
#include "exec/vector.h"

#include <string.h>

enum { Q = ESP_I_ATT_Q, K, V, MASK, Y, ROW };
enum { QUERY = ESP_I_ATT_QUERY, KEY, DEPTH, WIDTH, RUNS };
enum { TILE_K = ESP_I_ATT_TILE_K, TILE_D = ESP_I_ATT_TILE_D };

esp_status_t esp_i_att_prepare(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, int32_t mask,
                               int32_t saved, esp_diag_t *diag)
{
    const esp_i_call_t *call = kernel->call;
    esp_i_buffer_t in[8];
    ESP_TRY(esp_i_cpu_float32(kernel, 1u << mask, diag));
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(esp_i_att_state_t), diag));
    for (int32_t i = 0; i < call->n_in; i++)
        in[i] = esp_i_cpu_buffer(kernel, i);
    const esp_i_kernel_t local = {.attr = call->attr, .n_in = call->n_in, .in = in};
    const bool masked = mask < call->n_in && in[mask].data != NULL;
    *(esp_i_att_state_t *)kernel->state =
        (esp_i_att_state_t){.att = esp_i_att_of(&local, mask),
                            .saved = esp_i_cpu_buffer(kernel, saved),
                            .mask = masked ? mask : -1,
                            .boolean = masked && call->operand[mask].dtype == ESP_DTYPE_BOOL,
                            .dmask = call->attr->attention.dmask != 0,
                            .scale = (float)call->attr->attention.scale,
                            .fill = (float)call->attr->attention.fill};
    return ESP_OK;
}

esp_i_att_head_t esp_i_att_head(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment,
                                int64_t head)
{
    esp_i_att_head_t out = {.kernel = kernel, .state = kernel->state, .moment = moment};
    const esp_i_att_t *att = &out.state->att;
    for (int32_t run = att->n - 1; run >= RUNS; run--) {
        for (int32_t layout = Q; layout <= ROW; layout++)
            out.at[layout] += head % att->extent[run] * att->stride[run][layout];
        head /= att->extent[run];
    }
    return out;
}

esp_i_matrix_t esp_i_att_matrix(const esp_i_att_head_t *head, int32_t operand, int32_t layout,
                                int32_t axis, int64_t row, int64_t rows, int32_t other,
                                int64_t first, int64_t columns, float *room)
{
    const esp_i_att_t *att = &head->state->att;
    const int64_t step = att->stride[axis][layout], along = att->stride[other][layout];
    const float *data = esp_i_cpu_data(head->kernel, operand);
    esp_assert(data); /* no optional operand */
    data += head->at[layout] + row * step + first * along;
    if (along == 1 && (step >= columns || rows == 1))
        return (esp_i_matrix_t){data, esp_i_max_i64(step, columns)};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            room[i * columns + j] = data[i * step + j * along];
    return (esp_i_matrix_t){room, columns};
}

/* ---- the mask ---------------------------------------------------------------------------- */

int64_t esp_i_att_mask_at(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, int64_t row,
                          int64_t *step_out)
{
    const esp_i_att_t *att = &head->state->att;
    *step_out = att->stride[KEY][MASK];
    return head->at[MASK] + (tile->query + row) * att->stride[QUERY][MASK] + tile->key * *step_out;
}

ESP_I_VECTOR static void add_mask(int64_t n, const float *mask, int64_t step, float *scores)
{
    for (int64_t i = 0; i < n; i++)
        scores[i] += mask[i * step];
}

ESP_I_VECTOR static void hide(int64_t n, const uint8_t *mask, int64_t step, bool hidden, float fill,
                              float *scores)
{
    for (int64_t i = 0; i < n; i++)
        scores[i] = (mask[i * step] != 0) == hidden ? fill : scores[i];
}

static void apply_mask(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, float *scores)
{
    const esp_i_att_state_t *state = head->state;
    const bool hidden = head->kernel->call->attr->attention.hidden != 0;
    const void *mask = esp_i_cpu_data(head->kernel, state->mask);
    for (int64_t row = 0; row < tile->n_queries; row++, scores += TILE_K) {
        int64_t step;
        const int64_t at = esp_i_att_mask_at(head, tile, row, &step);
        if (state->boolean)
            hide(tile->n_keys, (const uint8_t *)mask + at, step, hidden, state->fill, scores);
        else
            add_mask(tile->n_keys, (const float *)mask + at, step, scores);
    }
}

void esp_i_att_scores(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, float *scores,
                      float *room)
{
    const esp_i_att_state_t *state = head->state;
    const int64_t depth = state->att.extent[DEPTH];
    for (int64_t d = 0; d == 0 || d < depth; d += TILE_D) {
        const int64_t n = esp_i_min_i64(TILE_D, depth - d);
        const esp_i_matrix_t q =
            esp_i_att_matrix(head, Q, Q, QUERY, tile->query, tile->n_queries, DEPTH, d, n, room);
        const esp_i_matrix_t k = esp_i_att_matrix(head, K, K, KEY, tile->key, tile->n_keys, DEPTH,
                                                  d, n, room + TILE_K * TILE_D);
        esp_i_cpu_gemm(false, true, tile->n_queries, tile->n_keys, n, state->scale, q.data, q.lead,
                       k.data, k.lead, d > 0, scores, TILE_K);
    }
    if (state->mask >= 0)
        apply_mask(head, tile, scores);
}

/* ---- dropout ----------------------------------------------------------------------------- */

ESP_I_VECTOR static void keep(int64_t n, const uint32_t *bits, double p, float factor, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = bits[i] * 0x1p-32 >= p ? factor : 0;
}

void esp_i_att_kept(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, int64_t row,
                    float *factor_out)
{
    const esp_i_att_t *att = &head->state->att;
    const esp_attr_t *attr = head->kernel->call->attr;
    const int64_t at = head->at[ROW] + (tile->query + row) * att->stride[QUERY][ROW];
    const int64_t first =
        esp_i_buffer_global_index(&head->state->saved, at) * att->extent[KEY] + tile->key;
    uint32_t bits[TILE_K];
    esp_i_draw(head->moment->seed, head->moment->step, (uint64_t)attr->attention.stream, first,
               tile->n_keys, bits);
    keep(tile->n_keys, bits, attr->attention.p, (float)(1 / (1 - attr->attention.p)), factor_out);
}
