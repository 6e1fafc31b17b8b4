/* What the files of the element-wise kind share: the value and the gradient of each code. */
#ifndef ESP_GRAPH_KINDS_ELTWISE_H
#define ESP_GRAPH_KINDS_ELTWISE_H

#include "graph/kinds/nest.h"

/* What a code computes from one element of each input. ADD is a running sum: value(x[0] + x[1]). */
typedef struct esp_i_elt_args {
    double x[3];
    double alpha, beta;
    bool whole; /* the inputs are integers: division rounds toward zero */
} esp_i_elt_args_t;
double esp_i_elt_value(esp_eltwise_t code, const esp_i_elt_args_t *args);

esp_status_t esp_i_elt_gradient(const esp_i_grad_t *grad);

#endif
