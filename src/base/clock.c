/* Clocks, for durations: never part of a result. */
#include "base/base.h"

#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec time;
    (void)clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t esp_i_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t esp_i_thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

int64_t esp_i_process_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}
