/*
 * Many random bits at a time: the counters of base/philox.c side by side, so that the rounds of
 * Philox4x32-10 run over vectors.
 */
#include "exec/values.h"
#include "exec/vector.h"

enum { LANES = 64 };

typedef struct block {
    uint32_t word[4][LANES];
} block_t;

/* Ten rounds; the key of each is the one before plus the Weyl constants. */
ESP_I_VECTOR static void rounds(block_t *block, int32_t lanes, uint32_t key0, uint32_t key1)
{
    uint32_t *w0 = block->word[0], *w1 = block->word[1];
    uint32_t *w2 = block->word[2], *w3 = block->word[3];
    for (int32_t r = 0; r < 10; r++) {
        for (int32_t l = 0; l < lanes; l++) {
            const uint64_t p = (uint64_t)w0[l] * UINT32_C(0xd2511f53);
            const uint64_t q = (uint64_t)w2[l] * UINT32_C(0xcd9e8d57);
            w0[l] = (uint32_t)(q >> 32) ^ w1[l] ^ key0;
            w2[l] = (uint32_t)(p >> 32) ^ w3[l] ^ key1;
            w1[l] = (uint32_t)q;
            w3[l] = (uint32_t)p;
        }
        key0 += UINT32_C(0x9e3779b9);
        key1 += UINT32_C(0xbb67ae85);
    }
}

/* m elements from number `skip`: the words of a lane are next to each other. */
ESP_I_VECTOR static void emit(const block_t *block, int64_t skip, int64_t m, uint32_t *bits_out)
{
    if (m < 4 * LANES) {
        for (int64_t i = 0; i < m; i++)
            bits_out[i] = block->word[(skip + i) & 3][(skip + i) >> 2];
        return;
    }
    for (int32_t l = 0; l < LANES; l++)
        for (int32_t w = 0; w < 4; w++)
            bits_out[4 * l + w] = block->word[w][l];
}

void esp_i_draw(uint64_t seed, uint64_t step, uint64_t stream, int64_t first, int64_t n,
                uint32_t *bits_out)
{
    const uint64_t high = step >> 32 ^ (stream >> 32) << 32; /* as esp_i_philox folds it */
    const uint64_t key = seed ^ high * UINT64_C(0x9e3779b97f4a7c15);
    block_t block;
    for (int64_t done = 0; done < n;) {
        const uint64_t element = (uint64_t)(first + done), counter = element >> 2;
        const int64_t skip = (int64_t)(element & 3), m = esp_i_min_i64(n - done, 4 * LANES - skip);
        const int32_t lanes = m > LANES / 2 ? LANES : LANES / 4; /* enough for 4 * lanes - 3 */
        for (int32_t l = 0; l < lanes; l++) {
            block.word[0][l] = (uint32_t)(counter + (uint64_t)l);
            block.word[1][l] = (uint32_t)((counter + (uint64_t)l) >> 32);
            block.word[2][l] = (uint32_t)step;
            block.word[3][l] = (uint32_t)stream;
        }
        rounds(&block, lanes, (uint32_t)key, (uint32_t)(key >> 32));
        emit(&block, skip, m, bits_out + done);
        done += m;
    }
}
