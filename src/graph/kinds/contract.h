/* The loops of a contraction, for whoever computes one. */
#ifndef ESP_GRAPH_KINDS_CONTRACT_H
#define ESP_GRAPH_KINDS_CONTRACT_H

#include "graph/kinds/nest.h"

/*
 * The walk over a, b and y (operands 0, 1, 2) as this share holds them: loops that every operand
 * treats alike are one; a loop that an operand lacks has stride 0 there. Data pointers are not
 * used.
 */
void esp_i_contract_walk(const esp_attr_t *attr, const esp_i_buffer_t *a, const esp_i_buffer_t *b,
                         esp_i_walk_t *walk_out);

#endif
