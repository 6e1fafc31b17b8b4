/*
 * CONV, CONV_DX, CONV_DW. Windows of one element are matrix products; where there is scratch oneDNN
 * computes in its own layouts; what remains is computed directly, row by row.
 */
#include "exec/cpu/conv.h"

#include <string.h>

enum { X = ESP_I_CONV_X, W, Y };

/* The tensor that each operand is. */
static const int32_t conv_operands[3] = {X, W, Y}, conv_dx_operands[3] = {Y, W, X},
                     conv_dw_operands[3] = {X, Y, W};

/* False: some extent is 0. */
static bool measure(const esp_i_cpu_kernel_t *kernel, const int32_t operands[3], esp_i_conv_t *conv)
{
    const esp_window_t *window = &kernel->call->attr->conv.window;
    const esp_i_local_t *tensor[3];
    *conv = (esp_i_conv_t){.result = operands[2], .spatial = window->rank};
    for (int32_t o = 0; o < 3; o++) {
        tensor[operands[o]] = &kernel->call->operand[o];
        conv->data[operands[o]] = esp_i_cpu_data(kernel, o);
    }
    for (int32_t t = X; t <= Y; t++)
        if (tensor[t]->elements == 0)
            return false;
    conv->n = tensor[X]->dims[0];
    conv->c = tensor[W]->dims[1];
    conv->g = tensor[X]->dims[1] / conv->c;
    conv->k = tensor[Y]->dims[1] / conv->g;
    esp_i_geometry(window, tensor[X]->rank, tensor[X]->dims, tensor[Y]->dims, &conv->space);
    for (int32_t d = 0; d < window->rank; d++)
        conv->pad_hi[ESP_MAX_SPATIAL - window->rank + d] = window->pad_hi[d];
    conv->image[X] = tensor[X]->elements / conv->n;
    conv->image[W] = tensor[W]->elements;
    conv->image[Y] = tensor[Y]->elements / conv->n;
    return true;
}

static void clear(const esp_i_cpu_kernel_t *kernel)
{
    const esp_i_local_t *result = esp_i_cpu_out(kernel, 0);
    if (result->elements > 0)
        memset(esp_i_cpu_data(kernel, 2), 0, (size_t)result->elements * sizeof(float));
}

static void run_empty(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    clear(kernel);
}

/* ---- windows of one element -------------------------------------------------------------- */

/* Elements of x and y are one to one: y = w x per image and group. */
static bool pointwise(const esp_i_conv_t *conv)
{
    const esp_i_geometry_t *space = &conv->space;
    bool one = space->large_elements == space->small_elements && space->kernel_elements == 1;
    for (int32_t d = 0; d < ESP_MAX_SPATIAL; d++)
        one = one && space->stride[d] == 1 && space->pad_lo[d] == 0;
    return one;
}

static void run_pointwise(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const esp_i_conv_t *conv = kernel->state;
    const int64_t k = conv->k, c = conv->c, area = conv->space.small_elements;
    for (int64_t n = 0; n < conv->n; n++) {
        for (int64_t g = 0; g < conv->g; g++) {
            float *x = conv->data[X] + (n * conv->g + g) * c * area;
            float *w = conv->data[W] + g * k * c;
            float *y = conv->data[Y] + (n * conv->g + g) * k * area;
            if (conv->result == Y)
                esp_i_cpu_gemm(false, false, k, area, c, 1, w, c, x, area, 0, y, area);
            else if (conv->result == X)
                esp_i_cpu_gemm(true, false, c, area, k, 1, w, c, y, area, 0, x, area);
            else
                esp_i_cpu_gemm(false, true, k, c, area, 1, y, area, x, area, n > 0, w, c);
        }
    }
}

/* ---- directly ---------------------------------------------------------------------------- */

enum { LANES = 16, LAST = ESP_MAX_SPATIAL - 1 };

/* y[i] += w x[i step] */
ESP_I_VECTOR static void row_y(int64_t n, const float *x, int64_t step, float w, float *y)
{
    if (step == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] += w * x[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] += w * x[i * step];
}

/* x[i step] += w y[i] */
ESP_I_VECTOR static void row_x(int64_t n, float *x, int64_t step, float w, const float *y)
{
    if (step == 1)
        for (int64_t i = 0; i < n; i++)
            x[i] += w * y[i];
    else
        for (int64_t i = 0; i < n; i++)
            x[i * step] += w * y[i];
}

/* sum of x[i step] y[i] */
ESP_I_VECTOR static float row_w(int64_t n, const float *x, int64_t step, const float *y)
{
    float lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int32_t l = 0; l < LANES; l++)
            lane[l] += x[(i + l) * step] * y[i + l];
    for (; i < n; i++)
        lane[i % LANES] += x[i * step] * y[i];
    for (int32_t l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

/* Positions [from, to) of the window along dimension d for which tap `tap` is not in the padding.
 */
static void inside(const esp_i_geometry_t *space, int32_t d, int64_t tap, int64_t *from_out,
                   int64_t *to_out)
{
    const int64_t shift = tap * space->dilation[d] - space->pad_lo[d], stride = space->stride[d];
    *from_out = shift >= 0 ? 0 : esp_i_ceil_div(-shift, stride);
    *to_out = shift >= space->large[d]
                  ? 0
                  : esp_i_min_i64(space->small[d], (space->large[d] - 1 - shift) / stride + 1);
}

/* One tap of one plane of x, of w and of y. */
static void direct_tap(const esp_i_conv_t *conv, const int64_t tap[ESP_MAX_SPATIAL], float *x,
                       float *w, float *y)
{
    const esp_i_geometry_t *space = &conv->space;
    int64_t from[ESP_MAX_SPATIAL], to[ESP_MAX_SPATIAL], shift[ESP_MAX_SPATIAL];
    for (int32_t d = 0; d < ESP_MAX_SPATIAL; d++) {
        inside(space, d, tap[d], &from[d], &to[d]);
        shift[d] = tap[d] * space->dilation[d] - space->pad_lo[d];
    }
    const int64_t n = to[LAST] - from[LAST], step = space->stride[LAST];
    for (int64_t i = from[0]; i < to[0] && n > 0; i++) {
        for (int64_t j = from[1]; j < to[1]; j++) {
            float *row_of_y = y + (i * space->small[1] + j) * space->small[LAST] + from[LAST];
            const int64_t at = (i * space->stride[0] + shift[0]) * space->large[1] +
                               j * space->stride[1] + shift[1];
            float *row_of_x = x + at * space->large[LAST] + from[LAST] * step + shift[LAST];
            if (conv->result == Y)
                row_y(n, row_of_x, step, *w, row_of_y);
            else if (conv->result == X)
                row_x(n, row_of_x, step, *w, row_of_y);
            else
                *w += row_w(n, row_of_x, step, row_of_y);
        }
    }
}

static void direct_plane(const esp_i_conv_t *conv, float *x, float *w, float *y)
{
    const int64_t *kernel = conv->space.kernel;
    int64_t tap[ESP_MAX_SPATIAL];
    for (tap[0] = 0; tap[0] < kernel[0]; tap[0]++)
        for (tap[1] = 0; tap[1] < kernel[1]; tap[1]++)
            for (tap[2] = 0; tap[2] < kernel[2]; tap[2]++)
                direct_tap(conv, tap, x, w++, y);
}

static void run_direct(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    (void)moment;
    const esp_i_conv_t *conv = kernel->state;
    const esp_i_geometry_t *space = &conv->space;
    clear(kernel);
    for (int64_t n = 0; n < conv->n; n++)
        for (int64_t k = 0; k < conv->g * conv->k; k++)
            for (int64_t c = 0; c < conv->c; c++) {
                const int64_t plane = (n * conv->g + k / conv->k) * conv->c + c;
                direct_plane(conv, conv->data[X] + plane * space->large_elements,
                             conv->data[W] + (k * conv->c + c) * space->kernel_elements,
                             conv->data[Y] + (n * conv->g * conv->k + k) * space->small_elements);
            }
}

/* ---- preparing --------------------------------------------------------------------------- */

static esp_status_t prepare(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, const int32_t operands[3],
                            esp_diag_t *diag)
{
    esp_i_conv_t conv;
    bool taken = false;
    ESP_TRY(esp_i_cpu_float32(kernel, 0, diag));
    kernel->run = run_empty;
    if (!measure(kernel, operands, &conv))
        return ESP_OK;
    const bool one = pointwise(&conv);
    if (!one)
        ESP_TRY(esp_i_cpu_dnnl(cpu, kernel, &conv, &taken, diag));
    if (taken)
        return ESP_OK;
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof conv, diag));
    memcpy(kernel->state, &conv, sizeof conv);
    kernel->run = one ? run_pointwise : run_direct;
    return ESP_OK;
}

esp_status_t esp_i_cpu_CONV(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    return prepare(cpu, kernel, conv_operands, diag);
}

esp_status_t esp_i_cpu_CONV_DX(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    return prepare(cpu, kernel, conv_dx_operands, diag);
}

esp_status_t esp_i_cpu_CONV_DW(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    return prepare(cpu, kernel, conv_dw_operands, diag);
}
