/* The most memory that is in use at one time, from the simulated timeline. */
#ifndef ESP_TESTS_LIVE_PEAK_H
#define ESP_TESTS_LIVE_PEAK_H

#include "espalier/sim.h"

/*
 * Per class, while steps follow each other. Memory of a buffer is in use from when the first task
 * that touches it starts to when the last has ended, scratch memory while its task runs; what is
 * still in use when its class begins the next step is so for the whole step (docs/deploy.md).
 * Everything takes whole lines of memory, as in arenas. `sim`: a run with a timeline.
 */
void live_peaks(const esp_deployment_t *deployment, const esp_sim_result_t *sim, int64_t *peak_out);

#endif
