/*
 * Runs the programs of all devices of a deployment in one process, in double: a memory per device,
 * exactly as large as the arena, and one event at a time, drawn at random among those that the
 * contract of programs (exec/program.h) allows. A message moves when both ends have started it:
 * nothing is buffered. Kernels are those of the registry.
 */
#ifndef ESP_TESTS_PROGRAM_RUN_H
#define ESP_TESTS_PROGRAM_RUN_H

#include "exec/program.h"

typedef struct program_run program_run_t;

/* Default values are those of interp.h for `seed`. The deployment must outlive it. */
program_run_t *program_run_new(const esp_deployment_t *deployment, uint64_t seed);
void program_run_free(program_run_t *run); /* accepts NULL */
const esp_i_program_t *program_run_of(const program_run_t *run, int32_t device);
/* All steps, overlapping as they may; fails the test when nothing can go on. */
void program_run_steps(program_run_t *run, int64_t steps);
/* A parameter, state or statistic from its home; replicas must be equal bit for bit. */
void program_run_read(const program_run_t *run, esp_tensor_id_t tensor, double *values_out);
/* The loss of the last step, added up over the devices where it counts. */
double program_run_loss(const program_run_t *run);

#endif
