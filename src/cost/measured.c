/* Measured op times of a cost model. */
#include "cost/model.h"

#include <math.h>
#include <string.h>

static bool measured_alloc(esp_i_model_t *cost)
{
    esp_i_arena_t *arena = &cost->arena;
    int64_t types = cost->pub.cluster->n_types, ops = cost->pub.graph->n_ops;
    cost->measured = esp_i_arena_alloc(arena, types * ops + 1, sizeof *cost->measured);
    cost->op_units = esp_i_arena_alloc(arena, ops + 1, sizeof *cost->op_units);
    cost->type_launch_ns = esp_i_arena_alloc(arena, types, sizeof *cost->type_launch_ns);
    cost->type_copy_ns_per_byte =
        esp_i_arena_alloc(arena, types, sizeof *cost->type_copy_ns_per_byte);
    return cost->measured && cost->op_units && cost->type_launch_ns && cost->type_copy_ns_per_byte;
}

/*
 * The most that the time of a share w of b units exceeds the time of none by, at least, in
 * proportion: a line from the origin below the curve. It touches it at a point, or at the end.
 */
static double divisible_of(const esp_cost_curve_t *curve, double launch_ns, double units)
{
    double origin = esp_i_curve_origin_ns(curve, launch_ns);
    double least = (esp_cost_curve_ns(curve, launch_ns, units) - origin) / units;
    for (int32_t i = 0; i < curve->n && curve->point[i].units < units; i++)
        least = fmin(least, (curve->point[i].ns - origin) / curve->point[i].units);
    return fmax(least * units, 0);
}

static bool measure_op(esp_i_model_t *cost, const esp_costs_type_t *type, const char *signature,
                       esp_i_measured_op_t *out, double units)
{
    const esp_cost_curve_t *curve = esp_costs_find_curve(type, signature);
    if (!curve)
        return true;
    esp_cost_point_t *point = esp_i_arena_alloc(&cost->arena, curve->n, sizeof *point);
    if (!point)
        return false;
    memcpy(point, curve->point, (size_t)curve->n * sizeof *point);
    out->curve = (esp_cost_curve_t){NULL, curve->n, point};
    out->divisible_ns = divisible_of(curve, type->launch_ns, units);
    return true;
}

static bool measure_ops(esp_i_model_t *cost, const esp_costs_t *costs)
{
    const esp_graph_t *graph = cost->pub.graph;
    for (esp_op_id_t op = 0; op < graph->n_ops; ++op) {
        esp_factor_t factor = esp_op_unit_factor(graph, op);
        bool ok = true;
        char *signature;
        cost->op_units[op] = factor.dim == ESP_NONE ? 1 : (double)factor.b;
        if (cost->family[op] == ESP_FAMILY_FREE)
            continue;
        if (esp_op_signature(graph, op, &cost->arena.alloc, &signature) != ESP_OK)
            return false;
        for (int32_t t = 0; ok && t < cost->pub.cluster->n_types; ++t) {
            const esp_costs_type_t *type =
                esp_costs_find_type(costs, cost->pub.cluster->types[t].name);
            if (type)
                ok =
                    measure_op(cost, type, signature,
                               &cost->measured[(int64_t)t * graph->n_ops + op], cost->op_units[op]);
        }
        esp_i_free(&cost->arena.alloc, signature);
        if (!ok)
            return false;
    }
    return true;
}

bool esp_i_model_measure(esp_i_model_t *cost, const esp_costs_t *costs)
{
    if (!measured_alloc(cost))
        return false;
    for (int32_t t = 0; t < cost->pub.cluster->n_types; ++t) {
        const esp_costs_type_t *type = esp_costs_find_type(costs, cost->pub.cluster->types[t].name);
        cost->type_launch_ns[t] = type ? type->launch_ns : -1;
        cost->type_copy_ns_per_byte[t] = type ? type->copy_ns_per_byte : -1;
    }
    return measure_ops(cost, costs);
}

int esp_cost_measured(const esp_cost_t *handle, esp_op_id_t op, int32_t type)
{
    return esp_i_model_measured((const esp_i_model_t *)(const void *)handle, op, type) != NULL;
}
