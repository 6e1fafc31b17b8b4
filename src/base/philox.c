/* Philox4x32-10: the only user of Random123. */
#include "base/base.h"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wconversion"
#else
#pragma GCC diagnostic ignored "-Wconversion"
#endif
#include <Random123/philox.h>

void esp_i_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    philox4x32_ctr_t c = {{counter[0], counter[1], counter[2], counter[3]}};
    philox4x32_key_t k = {{key[0], key[1]}};
    philox4x32_ctr_t r = philox4x32_R(10, c, k);
    for (int i = 0; i < 4; i++)
        out[i] = r.v[i];
}

/*
 * Key: the seed. Counter: element / 4 in two words, step, stream; the element takes word
 * element % 4 of the result. Steps and streams of more than 32 bits do not fit the counter: their
 * high halves are folded into the key, where they can only meet another seed.
 */
uint32_t esp_i_philox(uint64_t seed, uint64_t step, uint64_t stream, uint64_t element)
{
    uint64_t high = step >> 32 ^ (stream >> 32) << 32;
    uint64_t folded = seed ^ high * UINT64_C(0x9e3779b97f4a7c15);
    const uint32_t counter[4] = {(uint32_t)(element >> 2), (uint32_t)(element >> 34),
                                 (uint32_t)step, (uint32_t)stream};
    const uint32_t key[2] = {(uint32_t)folded, (uint32_t)(folded >> 32)};
    uint32_t out[4];
    esp_i_philox4x32(counter, key, out);
    return out[element & 3];
}
