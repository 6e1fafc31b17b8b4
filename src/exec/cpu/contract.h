/* Matrix products of operands that no matrix layout fits (tiles.c), for contract.c. */
#ifndef ESP_EXEC_CPU_CONTRACT_H
#define ESP_EXEC_CPU_CONTRACT_H

#include "exec/cpu/fast.h"
#include "graph/kinds/contract.h"

enum { ESP_I_TILE_ROWS = 128, ESP_I_TILE_COLUMNS = 256, ESP_I_TILE_SUMS = 256 };

/* Loops of a and y, of b and y, and of all that are summed; operands a, b, y are 0, 1, 2. */
typedef struct esp_i_tiles {
    esp_i_walk_t rows, columns, sums;
} esp_i_tiles_t;

/* y = sum of a b. Half a MiB of stack. */
void esp_i_cpu_tiles(const esp_i_tiles_t *tiles, const float *a, const float *b, float *y);

#endif
