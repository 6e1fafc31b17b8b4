/*
 * A Feistel network over the smallest even number of bits that holds n, which is a permutation
 * whatever its round function; what it sends beyond n is sent on until it falls within.
 */
#include "exec/shuffle.h"

enum { ROUNDS = 7 };
static const uint64_t stream = UINT64_C(0x73687566) << 32; /* of no op */

int64_t esp_i_shuffle(uint64_t seed, uint64_t epoch, int64_t n, int64_t index)
{
    int half = 1;
    while (half < 23 && INT64_C(1) << 2 * half < n)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1, x = (uint64_t)index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t mixed = left ^ (esp_i_philox(seed, epoch, stream + round, right) & mask);
            left = right;
            right = mixed;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}
