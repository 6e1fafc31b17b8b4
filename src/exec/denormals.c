/*
 * Numbers below the smallest normal one are zero while the engine runs: on most processors each
 * takes a hundred cycles or more, so that a step would be longer the smaller some gradients get.
 */
#include "exec/engine.h"

#if defined(__SSE2__)
#include <immintrin.h>

enum { FLUSH_RESULTS = 0x8000, ZERO_OPERANDS = 0x0040 };

uint64_t esp_i_denormals_off(void)
{
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(before | FLUSH_RESULTS | ZERO_OPERANDS);
    return before;
}

void esp_i_denormals_back(uint64_t before)
{
    _mm_setcsr((uint32_t)before);
}

#elif defined(__aarch64__)

enum { FLUSH_BOTH = 1 << 24 };

uint64_t esp_i_denormals_off(void)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | FLUSH_BOTH));
    return before;
}

void esp_i_denormals_back(uint64_t before)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
}

#else /* as they come */

uint64_t esp_i_denormals_off(void)
{
    return 0;
}

void esp_i_denormals_back(uint64_t before)
{
    (void)before;
}

#endif
