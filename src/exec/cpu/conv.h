/* Convolutions: what conv.c finds out about a call, for those that compute it. */
#ifndef ESP_EXEC_CPU_CONV_H
#define ESP_EXEC_CPU_CONV_H

#include "exec/cpu/fast.h"
#include "graph/kinds/window.h"

/* The tensors of a convolution x[n, g c, ..], w[g k, c, ..], y[n, g k, ..], one of which is the
 * result. */
enum { ESP_I_CONV_X, ESP_I_CONV_W, ESP_I_CONV_Y };

typedef struct esp_i_conv {
    int32_t result;
    int64_t n, g, k, c; /* of this share; k and c: of one group; none is 0 */
    int32_t spatial;    /* dimensions, the last entries of those of `space` */
    esp_i_geometry_t space;
    int64_t pad_hi[ESP_MAX_SPATIAL]; /* as in space */
    float *data[3];
    int64_t image[3]; /* elements of one image of x and y; all of w */
} esp_i_conv_t;

/*
 * dnnl.c: takes the call (sets run, fini, state) if oneDNN can do it with the scratch there is;
 * *taken_out says whether. Errors: ESP_ERR_NOMEM.
 */
esp_status_t esp_i_cpu_dnnl(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, const esp_i_conv_t *conv,
                            bool *taken_out, esp_diag_t *diag);

#endif
