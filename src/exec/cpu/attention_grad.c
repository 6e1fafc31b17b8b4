/*
 * ATTENTION_GRAD: per head and pair of tiles of queries and keys, the weights again from the
 * scores, and what they add to dq, dk and dv. With weights w, kept factors f and da = dy v:
 *
 *   dv += (w f) dy,   dscore = w (f da - dy y),   dq += scale dscore k,   dk += scale dscore q
 */
#include "exec/cpu/attention.h"
#include "exec/cpu/functions.h"
#include "exec/vector.h"

#include <string.h>

enum { Q = ESP_I_ATT_Q, K, V, MASK, Y, ROW };
enum { QUERY = ESP_I_ATT_QUERY, KEY, DEPTH, WIDTH };
enum { G_Y = ESP_I_ATT_G_Y, G_TOP, G_SUM, G_DY, G_MASK };
enum { TILE_Q = ESP_I_ATT_TILE_Q, TILE_K = ESP_I_ATT_TILE_K, TILE_D = ESP_I_ATT_TILE_D };

typedef struct room {
    float weights[TILE_Q * TILE_K], dscores[TILE_Q * TILE_K];
    float packed[2 * TILE_K * TILE_D], part[TILE_K * TILE_D];
    float inside[TILE_Q], top[TILE_Q], sum[TILE_Q];
} room_t;

/* ---- what a tile of scores gives --------------------------------------------------------- */

/* dy y, top and sum of each query of the tile. */
static void read_rows(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, room_t *room)
{
    const esp_i_att_t *att = &head->state->att;
    const float *y = esp_i_cpu_data(head->kernel, G_Y), *dy = esp_i_cpu_data(head->kernel, G_DY);
    const float *top = esp_i_cpu_data(head->kernel, G_TOP);
    const float *sum = esp_i_cpu_data(head->kernel, G_SUM);
    const int64_t step = att->stride[WIDTH][Y];
    for (int64_t row = 0; row < tile->n_queries; row++) {
        const int64_t query = tile->query + row;
        const int64_t at = head->at[Y] + query * att->stride[QUERY][Y],
                      saved = head->at[ROW] + query * att->stride[QUERY][ROW];
        double inside = 0;
        for (int64_t e = 0; e < att->extent[WIDTH]; e++)
            inside += (double)(y[at + e * step] * dy[at + e * step]);
        room->inside[row] = (float)inside;
        room->top[row] = top[saved];
        room->sum[row] = sum[saved];
    }
}

/* da in `dscores` */
static void product_with_v(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, room_t *room)
{
    const int64_t width = head->state->att.extent[WIDTH];
    for (int64_t e = 0; e == 0 || e < width; e += TILE_D) {
        const int64_t n = esp_i_min_i64(TILE_D, width - e);
        const esp_i_matrix_t dy = esp_i_att_matrix(head, G_DY, Y, QUERY, tile->query,
                                                   tile->n_queries, WIDTH, e, n, room->packed);
        const esp_i_matrix_t v = esp_i_att_matrix(head, V, V, KEY, tile->key, tile->n_keys, WIDTH,
                                                  e, n, room->packed + TILE_K * TILE_D);
        esp_i_cpu_gemm(false, true, tile->n_queries, tile->n_keys, n, 1, dy.data, dy.lead, v.data,
                       v.lead, e > 0, room->dscores, TILE_K);
    }
}

typedef struct row {
    float top, whole, inside; /* whole: the sum */
    const float *factor;      /* NULL: 1 */
} row_t;

/* Scores become w f, da becomes dscore. */
ESP_I_VECTOR static void differentiate(int64_t n, const row_t *row, float *scores, float *dscores)
{
    const float top = row->top, whole = row->whole, inside = row->inside;
    ESP_I_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        const float weight = esp_i_exp(scores[i] - top) / whole;
        const float factor = row->factor ? row->factor[i] : 1;
        dscores[i] = weight * (factor * dscores[i] - inside);
        scores[i] = weight * factor;
    }
}

/* A hidden score is a constant. */
static void clear_hidden(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, int64_t row,
                         float *dscores)
{
    int64_t step;
    const int64_t at = esp_i_att_mask_at(head, tile, row, &step);
    const uint8_t *mask = esp_i_cpu_data(head->kernel, G_MASK);
    const bool hidden = head->kernel->call->attr->attention.hidden != 0;
    for (int64_t i = 0; i < tile->n_keys; i++)
        if ((mask[at + i * step] != 0) == hidden)
            dscores[i] = 0;
}

static void add_dmask(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, int64_t row,
                      const float *dscores)
{
    int64_t step;
    const int64_t at = esp_i_att_mask_at(head, tile, row, &step);
    float *dmask = esp_i_cpu_data(head->kernel, head->kernel->call->n_in + MASK);
    for (int64_t i = 0; i < tile->n_keys; i++)
        dmask[at + i * step] += dscores[i];
}

static void weigh(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, room_t *room)
{
    const bool drops = head->kernel->call->attr->attention.p != 0;
    float factor[TILE_K];
    for (int64_t r = 0; r < tile->n_queries; r++) {
        const row_t row = {room->top[r], room->sum[r], room->inside[r], drops ? factor : NULL};
        if (drops)
            esp_i_att_kept(head, tile, r, factor);
        float *dscores = room->dscores + r * TILE_K;
        differentiate(tile->n_keys, &row, room->weights + r * TILE_K, dscores);
        if (head->state->boolean)
            clear_hidden(head, tile, r, dscores);
        if (head->state->dmask)
            add_dmask(head, tile, r, dscores);
    }
}

/* ---- what it adds ------------------------------------------------------------------------ */

/* One of the three products: output += factor scores x, of which x and the output are [along axes,
 * other axis]. */
typedef struct addition {
    int32_t output, layout, axis; /* and layout and row axis of the output */
    int32_t operand, x_layout, x_axis;
    int32_t other; /* column axis of both */
    const float *scores;
    bool transposed; /* the output's rows are keys */
    float factor;
} addition_t;

static void add_part(int64_t rows, int64_t step, int64_t columns, int64_t along, const float *part,
                     float *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[i * step + j * along] += part[i * columns + j];
}

static void add(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, const addition_t *sum,
                room_t *room)
{
    const esp_i_att_t *att = &head->state->att;
    const int64_t rows = sum->transposed ? tile->n_keys : tile->n_queries,
                  row = sum->transposed ? tile->key : tile->query,
                  x_rows = sum->transposed ? tile->n_queries : tile->n_keys,
                  x_row = sum->transposed ? tile->query : tile->key;
    const int64_t step = att->stride[sum->axis][sum->layout],
                  along = att->stride[sum->other][sum->layout], extent = att->extent[sum->other];
    float *out = esp_i_cpu_data(head->kernel, head->kernel->call->n_in + sum->output);
    out += head->at[sum->layout] + row * step;
    for (int64_t e = 0; e < extent; e += TILE_D) {
        const int64_t n = esp_i_min_i64(TILE_D, extent - e);
        const esp_i_matrix_t x = esp_i_att_matrix(head, sum->operand, sum->x_layout, sum->x_axis,
                                                  x_row, x_rows, sum->other, e, n, room->packed);
        const bool in_place = along == 1 && step >= n;
        esp_i_cpu_gemm(sum->transposed, false, rows, n, x_rows, sum->factor, sum->scores, TILE_K,
                       x.data, x.lead, in_place, in_place ? out + e : room->part,
                       in_place ? step : n);
        if (!in_place)
            add_part(rows, step, n, along, room->part, out + e * along);
    }
}

static void attend_back(const esp_i_att_head_t *head, const esp_i_att_tile_t *tile, room_t *room)
{
    const float scale = head->state->scale;
    const addition_t sums[3] = {
        {V, V, KEY, G_DY, Y, QUERY, WIDTH, room->weights, true, 1},
        {Q, Q, QUERY, K, K, KEY, DEPTH, room->dscores, false, scale},
        {K, K, KEY, Q, Q, QUERY, DEPTH, room->dscores, true, scale},
    };
    esp_i_att_scores(head, tile, room->weights, room->packed);
    product_with_v(head, tile, room);
    weigh(head, tile, room);
    for (int32_t i = 0; i < 3; i++)
        add(head, tile, &sums[i], room);
}

static void run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const esp_i_att_state_t *state = kernel->state;
    const int64_t heads = esp_i_att_heads(&state->att), queries = state->att.extent[QUERY],
                  keys = state->att.extent[KEY];
    room_t room;
    for (int32_t i = 0; i < kernel->call->n_out; i++)
        memset(esp_i_cpu_data(kernel, kernel->call->n_in + i), 0,
               (size_t)esp_i_cpu_out(kernel, i)->elements * sizeof(float));
    for (int64_t h = 0; h < heads; h++) {
        const esp_i_att_head_t head = esp_i_att_head(kernel, moment, h);
        for (int64_t query = 0; query < queries; query += TILE_Q) {
            esp_i_att_tile_t tile = {.query = query,
                                     .n_queries = esp_i_min_i64(TILE_Q, queries - query)};
            read_rows(&head, &tile, &room);
            for (tile.key = 0; tile.key < keys; tile.key += TILE_K) {
                tile.n_keys = esp_i_min_i64(TILE_K, keys - tile.key);
                attend_back(&head, &tile, &room);
            }
        }
    }
}

esp_status_t esp_i_cpu_ATTENTION_GRAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel,
                                      esp_diag_t *diag)
{
    kernel->run = run;
    return esp_i_att_prepare(cpu, kernel, G_MASK, G_TOP, diag);
}
