/*
 * ATTENTION: per head and tile of queries, one pass over the tiles of keys. The largest score and
 * the sum of a row run along: what was added up before is scaled down when a larger score appears.
 */
#include "exec/cpu/attention.h"
#include "exec/cpu/functions.h"
#include "exec/vector.h"

#include <math.h>
#include <string.h>

enum { V = ESP_I_ATT_V, Y = ESP_I_ATT_Y, ROW = ESP_I_ATT_ROW };
enum { QUERY = ESP_I_ATT_QUERY, KEY, DEPTH, WIDTH };
enum { OUT_Y, OUT_TOP, OUT_SUM, OUTPUTS };
enum { TILE_Q = ESP_I_ATT_TILE_Q, TILE_K = ESP_I_ATT_TILE_K, TILE_D = ESP_I_ATT_TILE_D };
enum { LANES = ESP_I_LANES };

typedef struct room {
    float scores[TILE_Q * TILE_K], y[TILE_Q * TILE_D], packed[2 * TILE_K * TILE_D];
    float top[TILE_Q], sum[TILE_Q];
} room_t;

/* ---- rows -------------------------------------------------------------------------------- */

ESP_I_VECTOR static float largest(int64_t n, const float *x)
{
    float lane[LANES], top = -INFINITY;
    int64_t i = 0;
    for (int32_t l = 0; l < LANES; l++)
        lane[l] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int32_t l = 0; l < LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (; i < n; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int32_t l = 0; l < LANES; l++)
        top = lane[l] > top ? lane[l] : top;
    return top;
}

ESP_I_VECTOR static void exponentials(int64_t n, float top, float *x)
{
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        x[i] = esp_i_exp_below(x[i] - top);
}

ESP_I_VECTOR static float total(int64_t n, const float *x)
{
    float lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int32_t l = 0; l < LANES; l++)
            lane[l] += x[i + l];
    for (; i < n; i++)
        lane[0] += x[i];
    for (int32_t l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

ESP_I_VECTOR static void multiply(int64_t n, const float *factor, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor[i];
}

ESP_I_VECTOR static void scale(int64_t n, float factor, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* ---- tiles ------------------------------------------------------------------------------- */

/* Scores become weights (before they are divided by the sum); y, top and sum follow. */
static void soften(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, int64_t width,
                   room_t *room)
{
    float factor[TILE_K];
    for (int64_t row = 0; row < tile->n_queries; row++) {
        float *scores = room->scores + row * TILE_K;
        const float before = room->top[row];
        const float top = fmaxf(before, largest(tile->n_keys, scores));
        const float from = top > -INFINITY ? top : 0; /* all hidden so far: nothing to add */
        const float shrink = esp_i_exp_below(before - from);
        exponentials(tile->n_keys, from, scores);
        room->top[row] = top;
        room->sum[row] = room->sum[row] * shrink + total(tile->n_keys, scores);
        if (shrink != 1)
            scale(width, shrink, room->y + row * width);
        if (head->kernel->call->attr->attention.p == 0)
            continue;
        esp_i_att_kept(head, tile, row, factor);
        multiply(tile->n_keys, factor, scores);
    }
}

static void write_rows(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, int64_t first,
                       int64_t width, const room_t *room)
{
    const esp_i_att_t *att = &head->state->att;
    const int32_t n_in = head->kernel->call->n_in;
    float *y = esp_i_cpu_data(head->kernel, n_in + OUT_Y);
    float *top = esp_i_cpu_data(head->kernel, n_in + OUT_TOP);
    float *sum = esp_i_cpu_data(head->kernel, n_in + OUT_SUM);
    const int64_t step = att->stride[WIDTH][Y];
    for (int64_t row = 0; row < tile->n_queries; row++) {
        const int64_t query = tile->query + row,
                      at = head->at[ROW] + query * att->stride[QUERY][ROW];
        float *to = y + head->at[Y] + query * att->stride[QUERY][Y] + first * step;
        const float *from = room->y + row * width, whole = room->sum[row];
        for (int64_t e = 0; e < width; e++)
            to[e * step] = from[e] / whole;
        top[at] = room->top[row];
        sum[at] = whole;
    }
}

/* Columns [first, first + width) of y of a tile of queries. */
static void attend(const esp_i_att_head_t *head, esp_i_att_tile_t tile, int64_t first,
                   int64_t width, room_t *room)
{
    const int64_t keys = head->state->att.extent[KEY];
    memset(room->y, 0, sizeof room->y);
    for (int64_t row = 0; row < tile.n_queries; row++) {
        room->top[row] = -INFINITY;
        room->sum[row] = 0;
    }
    for (tile.key = 0; tile.key < keys; tile.key += TILE_K) {
        tile.n_keys = esp_i_min_i64(TILE_K, keys - tile.key);
        esp_i_att_scores(head, &tile, room->scores, room->packed);
        soften(head, &tile, width, room);
        const esp_i_matrix_t v = esp_i_att_matrix(head, V, V, KEY, tile.key, tile.n_keys, WIDTH,
                                                  first, width, room->packed);
        esp_i_cpu_gemm(false, false, tile.n_queries, width, tile.n_keys, 1, room->scores, TILE_K,
                       v.data, v.lead, 1, room->y, width);
    }
    write_rows(head, &tile, first, width, room);
}

static void run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const esp_i_att_state_t *state = kernel->state;
    const int64_t heads = esp_i_att_heads(&state->att), queries = state->att.extent[QUERY],
                  width = state->att.extent[WIDTH];
    room_t room;
    for (int64_t h = 0; h < heads; h++) {
        const esp_i_att_head_t head = esp_i_att_head(kernel, moment, h);
        for (int64_t query = 0; query < queries; query += TILE_Q) {
            const esp_i_att_tile_t tile = {.query = query,
                                           .n_queries = esp_i_min_i64(TILE_Q, queries - query)};
            for (int64_t e = 0; e == 0 || e < width; e += TILE_D)
                attend(&head, tile, e, esp_i_min_i64(TILE_D, width - e), &room);
        }
    }
}

esp_status_t esp_i_cpu_ATTENTION(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    kernel->run = run;
    return esp_i_att_prepare(cpu, kernel, ESP_I_ATT_MASK_IN, kernel->call->n_in + OUT_TOP, diag);
}
