/* The cost model behind esp_cost_t. */
#ifndef ESP_COST_MODEL_H
#define ESP_COST_MODEL_H

#include "cost/costs.h"

/* The measured times of an op on a device type; n 0: there are none. */
typedef struct esp_i_measured_op {
    esp_cost_curve_t curve;
    double divisible_ns; /* see esp_cost_divisible_ns */
} esp_i_measured_op_t;

/* The public struct and what only this module reads. */
typedef struct esp_i_model {
    esp_cost_t pub; /* first: the handle is its address */
    esp_i_arena_t arena;
    uint8_t *family;       /* esp_family_t as priced: a depthwise convolution counts as MEMORY */
    uint8_t *winograd;     /* the op may use it */
    double *type_winograd; /* factor of its arithmetic per device type */

    /* From a table; NULL without one. */
    esp_i_measured_op_t *measured; /* [type][op] */
    double *op_units;              /* of the whole op */
    double *type_launch_ns;        /* negative: not measured */
    double *type_copy_ns_per_byte;
} esp_i_model_t;

/* Looks all ops up in a table. False: no memory. */
bool esp_i_model_measure(esp_i_model_t *model, const esp_costs_t *costs);
/* The measured times of an op, or NULL. */
static inline const esp_i_measured_op_t *esp_i_model_measured(const esp_i_model_t *model,
                                                              esp_op_id_t op, int32_t type)
{
    int64_t at = (int64_t)type * model->pub.graph->n_ops + op;
    return model->measured && model->measured[at].curve.n > 0 ? &model->measured[at] : NULL;
}

#endif
