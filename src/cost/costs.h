/* Inside of cost tables. */
#ifndef ESP_COST_COSTS_H
#define ESP_COST_COSTS_H

#include "base/base.h"
#include "espalier/costs.h"

/* A table that was read or merged; its handle is the address of the first member. */
typedef struct esp_i_costs {
    esp_costs_t pub;
    esp_i_arena_t arena;
} esp_i_costs_t;

/* An empty table. NULL: no memory. */
esp_i_costs_t *esp_i_costs_new(const esp_allocator_t *alloc);

/*
 * Verifies what a table must hold, whoever made it; diag->place is the JSON path of the first
 * fault, and `status` what is returned for it. `sorted`: also the order.
 */
esp_status_t esp_i_costs_validate(const esp_costs_t *costs, bool sorted, esp_status_t status,
                                  esp_diag_t *diag);

/* By kind, algorithm, ranks, bytes. */
int esp_i_costs_compare_collectives(const esp_costs_collective_t *a,
                                    const esp_costs_collective_t *b);

/* Where the line of a curve begins, at no units. */
double esp_i_curve_origin_ns(const esp_cost_curve_t *curve, double launch_ns);

#endif
