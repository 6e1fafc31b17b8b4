/*
 * Random traffic between ranks, for tests of communication backends. Every rank draws the same
 * list of messages and carries out its part, in batches of its own; what arrives is checked.
 */
#ifndef ESP_TESTS_EXEC_TRAFFIC_H
#define ESP_TESTS_EXEC_TRAFFIC_H

#include "exec/comm.h"

/* False: what went wrong is in the diag. Collective. */
bool traffic_messages(esp_i_comm_t *comm, uint64_t seed, esp_diag_t *diag);
/* Send, receive, barrier, broadcast. */
bool traffic_collective(esp_i_comm_t *comm, uint64_t seed, esp_diag_t *diag);

#endif
