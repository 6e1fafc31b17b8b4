/*
 * A kernel of the CPU backend against the reference kernel of its kind: on a whole op and on shares
 * of it, with exactly the memory that it may touch.
 */
#ifndef ESP_TESTS_FAST_HARNESS_H
#define ESP_TESTS_FAST_HARNESS_H

#include "exec/cpu/cpu.h"
#include "kind_harness.h"

/* How much scratch the kernel is given. */
typedef enum fast_scratch {
    FAST_SCRATCH_NONE,
    FAST_SCRATCH_PLANNED, /* what the cost model plans for the op */
    FAST_SCRATCH_AMPLE
} fast_scratch_t;

/*
 * Every output is within `tolerance` of the reference, relative to its norm; nothing but outputs
 * and scratch changes, whatever they held before; two runs agree to the bit.
 */
void fast_check(const kind_example_t *example, esp_i_cpu_prepare_fn *prepare,
                fast_scratch_t scratch, double tolerance);
/* The same for shares of every part of every loop dimension. */
void fast_check_split(const kind_example_t *example, esp_i_cpu_prepare_fn *prepare,
                      fast_scratch_t scratch, double tolerance);

#endif
