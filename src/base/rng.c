/* xoshiro256** (Blackman and Vigna), seeded by splitmix64. */
#include "base/base.h"

static uint64_t rotate_left(uint64_t x, int count)
{
    return x << count | x >> (64 - count);
}

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void esp_i_rng_seed(esp_i_rng_t *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        rng->s[i] = splitmix(&seed);
}

uint64_t esp_i_rng_u64(esp_i_rng_t *rng)
{
    uint64_t *s = rng->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double esp_i_rng_unit(esp_i_rng_t *rng)
{
    return (double)(esp_i_rng_u64(rng) >> 11) * 0x1p-53;
}

/* Lemire's method: the high half of a product, with the few values that would bias it rejected. */
int64_t esp_i_rng_below(esp_i_rng_t *rng, int64_t n)
{
    esp_assert(n > 0);
    uint64_t bound = (uint64_t)n, reject = (0 - bound) % bound;
    unsigned __int128 product;
    do
        product = (unsigned __int128)esp_i_rng_u64(rng) * bound;
    while ((uint64_t)product < reject);
    return (int64_t)(product >> 64);
}
