/* How REDUCE combines: shared by the reference kernel and those that are faster. */
#ifndef ESP_GRAPH_KINDS_REDUCE_H
#define ESP_GRAPH_KINDS_REDUCE_H

#include "espalier/graph.h"

#include <math.h>

/* The result of no elements. */
static inline double esp_i_reduce_start(esp_reduce_t code)
{
    switch (code) {
    case ESP_REDUCE_SUM:
    case ESP_REDUCE_SUMSQ:
        return 0;
    case ESP_REDUCE_MAX:
        return -(double)INFINITY;
    case ESP_REDUCE_MIN:
        return (double)INFINITY;
    case ESP_REDUCE_PROD:
        return 1;
    }
    return 0;
}

/* y combined with one more element; a sum of squares squares it. */
static inline double esp_i_reduce_step(esp_reduce_t code, double y, double x)
{
    switch (code) {
    case ESP_REDUCE_SUM:
        return y + x;
    case ESP_REDUCE_MAX:
        return x > y || isnan(x) ? x : y;
    case ESP_REDUCE_MIN:
        return x < y || isnan(x) ? x : y;
    case ESP_REDUCE_PROD:
        return y * x;
    case ESP_REDUCE_SUMSQ:
        return y + x * x;
    }
    return y;
}

#endif
