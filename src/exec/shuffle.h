/* Orders of rows: a permutation for each epoch, element by element. */
#ifndef ESP_EXEC_SHUFFLE_H
#define ESP_EXEC_SHUFFLE_H

#include "base/base.h"

/* Image of `index` under the permutation of [0, n) that (seed, epoch) names; n <= 2^46. O(1). */
int64_t esp_i_shuffle(uint64_t seed, uint64_t epoch, int64_t n, int64_t index);

#endif
