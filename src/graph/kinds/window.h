/* Sliding windows: what convolution and pooling share. */
#ifndef ESP_GRAPH_KINDS_WINDOW_H
#define ESP_GRAPH_KINDS_WINDOW_H

#include "graph/kinds/nest.h"

/* Spatial extents padded to ESP_MAX_SPATIAL dimensions with leading ones, for one loop nest. */
typedef struct esp_i_geometry {
    int64_t kernel[ESP_MAX_SPATIAL], stride[ESP_MAX_SPATIAL], dilation[ESP_MAX_SPATIAL];
    int64_t pad_lo[ESP_MAX_SPATIAL];
    int64_t large[ESP_MAX_SPATIAL]; /* the side the window slides over */
    int64_t small[ESP_MAX_SPATIAL]; /* one element per position of the window */
    int64_t large_elements, small_elements, kernel_elements;
} esp_i_geometry_t;
/* large and small: the last window->rank entries of a shape of that rank. */
void esp_i_geometry(const esp_window_t *window, int32_t rank, const int64_t *large,
                    const int64_t *small, esp_i_geometry_t *geometry_out);
/*
 * The element of the large side that tap `tap` (row-major in the kernel) of the window at position
 * `at` (row-major in the small side) falls on; -1: padding.
 */
int64_t esp_i_geometry_tap(const esp_i_geometry_t *geometry, int64_t at, int64_t tap);

/* Rank and values of the window; `rank` is that of the tensor [n, c, spatial..]. */
esp_status_t esp_i_window_check(const esp_window_t *window, int32_t rank, esp_diag_t *diag);
/* Positions of the window along a spatial dimension of extent `large`. */
esp_status_t esp_i_window_extent(const esp_window_t *window, int32_t dimension, int64_t large,
                                 int64_t *small_out, esp_diag_t *diag);
/* Fills the spatial extents of the small side from those of the large side. */
esp_status_t esp_i_window_small(const esp_window_t *window, const esp_i_shape_t *large,
                                esp_i_shape_t *small, esp_diag_t *diag);
/* The small side is what the window gives on the large side. `name` is the small side's. */
esp_status_t esp_i_window_fits(const esp_window_t *window, const esp_i_shape_t *large,
                               const esp_i_shape_t *small, const char *name, esp_diag_t *diag);
/* The number of taps of a window. */
double esp_i_window_taps(const esp_window_t *window);

#endif
