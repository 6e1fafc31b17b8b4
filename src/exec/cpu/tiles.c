/* Matrix products of operands that no matrix layout fits: tile by tile, packed on the stack. */
#include "exec/cpu/contract.h"

#include <string.h>

enum { A, B, Y };
enum { ROWS = ESP_I_TILE_ROWS, COLUMNS = ESP_I_TILE_COLUMNS, SUMS = ESP_I_TILE_SUMS };
enum { LONGEST = ROWS > COLUMNS ? (ROWS > SUMS ? ROWS : SUMS) : (COLUMNS > SUMS ? COLUMNS : SUMS) };

/* Consecutive rounds of a walk: how many, and where each is in two operands. */
typedef struct part {
    int64_t n, at[2][LONGEST];
    bool dense[2]; /* at[i] counts up by one */
} part_t;

/* The next rounds, at most `most`; `more` is whether there are any. */
static bool next_part(esp_i_walk_t *walk, int64_t most, int32_t first, int32_t second,
                      part_t *part_out)
{
    bool more = true;
    part_out->n = 0;
    part_out->dense[0] = part_out->dense[1] = true;
    while (more && part_out->n < most) {
        const int64_t i = part_out->n++;
        part_out->at[0][i] = walk->offset[first];
        part_out->at[1][i] = walk->offset[second];
        for (int32_t o = 0; o < 2; o++)
            part_out->dense[o] = part_out->dense[o] && part_out->at[o][i] == part_out->at[o][0] + i;
        more = esp_i_walk_next(walk);
    }
    return more;
}

/* x at [outer][inner] goes to out[outer][inner], dense. */
static void pack(const float *x, int64_t n_outer, const int64_t *outer, int64_t n_inner,
                 const int64_t *inner, bool dense, float *out)
{
    for (int64_t i = 0; i < n_outer; i++, out += n_inner) {
        const float *from = x + outer[i];
        if (dense)
            memcpy(out, from + inner[0], (size_t)n_inner * sizeof *out);
        for (int64_t j = 0; j < n_inner && !dense; j++)
            out[j] = from[inner[j]];
    }
}

static void scatter(const part_t *rows, const part_t *columns, const float *tile, float *y)
{
    for (int64_t i = 0; i < rows->n; i++, tile += columns->n) {
        float *to = y + rows->at[1][i];
        for (int64_t j = 0; j < columns->n; j++)
            to[columns->at[1][j]] = tile[j];
    }
}

/* One tile of y. */
static void tile(const esp_i_tiles_t *tiles, const part_t *rows, const part_t *columns,
                 const float *a, const float *b, float *y)
{
    float left[ROWS * SUMS], right[SUMS * COLUMNS], product[ROWS * COLUMNS];
    esp_i_walk_t walk = tiles->sums;
    part_t sums;
    float beta = 0;
    bool more = esp_i_walk_begin(&walk);
    esp_assert(more); /* an empty sum is no product */
    do {
        more = next_part(&walk, SUMS, A, B, &sums);
        const bool flip_a = rows->dense[0] && !sums.dense[0];
        const bool flip_b = sums.dense[1] && !columns->dense[0];
        const part_t *outer = flip_a ? &sums : rows, *inner = flip_a ? rows : &sums;
        pack(a, outer->n, outer->at[0], inner->n, inner->at[0], inner->dense[0], left);
        if (flip_b)
            pack(b, columns->n, columns->at[0], sums.n, sums.at[1], true, right);
        else
            pack(b, sums.n, sums.at[1], columns->n, columns->at[0], columns->dense[0], right);
        esp_i_cpu_gemm(flip_a, flip_b, rows->n, columns->n, sums.n, 1, left, inner->n, right,
                       flip_b ? sums.n : columns->n, beta, product, columns->n);
        beta = 1;
    } while (more);
    scatter(rows, columns, product, y);
}

void esp_i_cpu_tiles(const esp_i_tiles_t *tiles, const float *a, const float *b, float *y)
{
    esp_i_walk_t row_walk = tiles->rows;
    part_t rows, columns;
    for (bool more_rows = esp_i_walk_begin(&row_walk); more_rows;) {
        more_rows = next_part(&row_walk, ROWS, A, Y, &rows);
        esp_i_walk_t column_walk = tiles->columns;
        for (bool more = esp_i_walk_begin(&column_walk); more;) {
            more = next_part(&column_walk, COLUMNS, B, Y, &columns);
            tile(tiles, &rows, &columns, a, b, y);
        }
    }
}
