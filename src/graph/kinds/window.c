/* Sliding windows: extents, checks, and which element a tap falls on. */
#include "graph/kinds/window.h"

static int64_t product(const int64_t *extent)
{
    int64_t elements = 1;
    for (int32_t d = 0; d < ESP_MAX_SPATIAL; d++)
        elements *= extent[d];
    return elements;
}

void esp_i_geometry(const esp_window_t *window, int32_t rank, const int64_t *large,
                    const int64_t *small, esp_i_geometry_t *geometry_out)
{
    esp_i_geometry_t *g = geometry_out;
    int32_t lead = ESP_MAX_SPATIAL - window->rank, skip = rank - window->rank;
    for (int32_t d = 0; d < ESP_MAX_SPATIAL; d++) {
        int32_t s = d - lead;
        g->kernel[d] = s < 0 ? 1 : window->kernel[s];
        g->stride[d] = s < 0 ? 1 : window->stride[s];
        g->dilation[d] = s < 0 ? 1 : window->dilation[s];
        g->pad_lo[d] = s < 0 ? 0 : window->pad_lo[s];
        g->large[d] = s < 0 ? 1 : large[skip + s];
        g->small[d] = s < 0 ? 1 : small[skip + s];
    }
    g->large_elements = product(g->large);
    g->small_elements = product(g->small);
    g->kernel_elements = product(g->kernel);
}

int64_t esp_i_geometry_tap(const esp_i_geometry_t *geometry, int64_t at, int64_t tap)
{
    const esp_i_geometry_t *g = geometry;
    int64_t element = 0, scale = 1;
    for (int32_t d = ESP_MAX_SPATIAL - 1; d >= 0; d--) {
        int64_t i =
            at % g->small[d] * g->stride[d] + tap % g->kernel[d] * g->dilation[d] - g->pad_lo[d];
        if (i < 0 || i >= g->large[d])
            return -1;
        element += i * scale;
        scale *= g->large[d];
        at /= g->small[d];
        tap /= g->kernel[d];
    }
    return element;
}

esp_status_t esp_i_window_check(const esp_window_t *window, int32_t rank, esp_diag_t *diag)
{
    if (window->rank < 1 || window->rank > ESP_MAX_SPATIAL)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "%d spatial dimensions where 1 to %d are possible",
                          (int)window->rank, ESP_MAX_SPATIAL);
    if (rank != window->rank + 2)
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "a window of %d dimensions needs inputs of %d axes, not %d",
                          (int)window->rank, (int)window->rank + 2, (int)rank);
    for (int32_t d = 0; d < window->rank; d++) {
        if (window->kernel[d] < 1 || window->stride[d] < 1 || window->dilation[d] < 1)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "kernel %lld, stride %lld, dilation %lld in dimension %d: each must "
                              "be at least 1",
                              (long long)window->kernel[d], (long long)window->stride[d],
                              (long long)window->dilation[d], (int)d);
        if (window->pad_lo[d] < 0 || window->pad_hi[d] < 0)
            return esp_i_fail(diag, ESP_ERR_UNSUPPORTED, "negative padding in dimension %d",
                              (int)d);
        if (window->kernel[d] > ESP_MAX_ELEMENTS || window->stride[d] > ESP_MAX_ELEMENTS ||
            window->pad_lo[d] > ESP_MAX_ELEMENTS || window->pad_hi[d] > ESP_MAX_ELEMENTS)
            return esp_i_fail(diag, ESP_ERR_LIMIT, "the window of dimension %d is too large",
                              (int)d);
    }
    return ESP_OK;
}

esp_status_t esp_i_window_extent(const esp_window_t *window, int32_t dimension, int64_t large,
                                 int64_t *small_out, esp_diag_t *diag)
{
    int64_t reach, padded = large + window->pad_lo[dimension] + window->pad_hi[dimension];
    if (!esp_i_mul_i64(window->kernel[dimension] - 1, window->dilation[dimension], &reach) ||
        reach >= padded)
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "kernel %lld with dilation %lld does not fit in dimension %d of extent "
                          "%lld (%lld with padding)",
                          (long long)window->kernel[dimension],
                          (long long)window->dilation[dimension], (int)dimension, (long long)large,
                          (long long)padded);
    *small_out = (padded - reach - 1) / window->stride[dimension] + 1;
    return ESP_OK;
}

esp_status_t esp_i_window_small(const esp_window_t *window, const esp_i_shape_t *large,
                                esp_i_shape_t *small, esp_diag_t *diag)
{
    for (int32_t d = 0; d < window->rank; d++)
        ESP_TRY(esp_i_window_extent(window, d, large->dims[d + 2], &small->dims[d + 2], diag));
    return ESP_OK;
}

esp_status_t esp_i_window_fits(const esp_window_t *window, const esp_i_shape_t *large,
                               const esp_i_shape_t *small, const char *name, esp_diag_t *diag)
{
    for (int32_t d = 0; d < window->rank; d++) {
        int64_t extent = 0;
        ESP_TRY(esp_i_window_extent(window, d, large->dims[d + 2], &extent, diag));
        if (small->dims[d + 2] != extent)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "axis %d of %s has %lld where the window has %lld positions",
                              (int)d + 2, name, (long long)small->dims[d + 2], (long long)extent);
    }
    return ESP_OK;
}

double esp_i_window_taps(const esp_window_t *window)
{
    double taps = 1;
    for (int32_t d = 0; d < window->rank; d++)
        taps *= (double)window->kernel[d];
    return taps;
}
