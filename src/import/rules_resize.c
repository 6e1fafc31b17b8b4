/* Resize and Upsample: a linear map per axis. */
#include "import/rules.h"

#include <math.h>
#include <string.h>

typedef enum resize_mode { NEAREST, LINEAR, CUBIC } resize_mode_t;

typedef struct resize {
    resize_mode_t mode;
    esp_i_str_t coordinates, rounding;
    double cubic_a;
    double scale[ESP_MAX_RANK];
    int64_t extent[ESP_MAX_RANK]; /* of the result */
} resize_t;

/* Where element `to` of the result lies on the axis of the input. */
static double source_of(const resize_t *r, int32_t axis, int64_t from_extent, int64_t to)
{
    double scale = r->scale[axis], at = (double)to, n = scale * (double)from_extent;
    if (esp_i_str_is(r->coordinates, "asymmetric"))
        return at / scale;
    if (esp_i_str_is(r->coordinates, "align_corners"))
        return n > 1 ? at * (double)(from_extent - 1) / (n - 1) : 0;
    if (esp_i_str_is(r->coordinates, "pytorch_half_pixel") && n <= 1)
        return 0;
    return (at + 0.5) / scale - 0.5;
}

static int64_t nearest(const resize_t *r, double x)
{
    if (esp_i_str_is(r->rounding, "floor"))
        return (int64_t)floor(x);
    if (esp_i_str_is(r->rounding, "ceil"))
        return (int64_t)ceil(x);
    if (esp_i_str_is(r->rounding, "round_prefer_ceil"))
        return (int64_t)floor(x + 0.5);
    return (int64_t)ceil(x - 0.5);
}

static double cubic_weight(double a, double t)
{
    t = fabs(t);
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/* Row of the interpolation matrix; positions outside count for the border. */
static void fill_row(const resize_t *r, double x, int64_t n, double *row)
{
    int64_t first = (int64_t)floor(x) - (r->mode == CUBIC), taps = r->mode == CUBIC ? 4 : 2;
    for (int64_t k = first; k < first + taps; k++) {
        double distance = x - (double)k;
        double weight = r->mode == CUBIC ? cubic_weight(r->cubic_a, distance) : 1 - fabs(distance);
        row[esp_i_max_i64(0, esp_i_min_i64(k, n - 1))] +=
            weight > 0 || r->mode == CUBIC ? weight : 0;
    }
}

/* Bilinear and bicubic: a constant matrix along the axis. */
static esp_status_t resize_by_matrix(esp_i_node_t *node, const resize_t *r, int32_t axis,
                                     esp_i_value_t **x)
{
    int64_t n = (*x)->dims[axis];
    const int64_t dims[2] = {r->extent[axis], n};
    esp_i_konst_t *k;
    esp_i_value_t *matrix;
    ESP_TRY(esp_i_im_konst_new(node->im, (*x)->dtype, 2, dims, &k));
    if (k == NULL || k->f == NULL)
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                          "axis %d from %lld to %lld elements of %s", axis, (long long)n,
                          (long long)r->extent[axis], esp_dtype_name((*x)->dtype));
    for (int64_t to = 0; to < r->extent[axis]; to++) {
        double at = source_of(r, axis, n, to);
        if (r->mode == LINEAR)
            at = fmax(0, fmin(at, (double)(n - 1)));
        fill_row(r, at, n, k->f + to * n);
    }
    for (int64_t e = 0; e < k->count; e++)
        esp_i_im_konst_set(k, e, k->f[e]);
    ESP_TRY(esp_i_im_value_known(node, k, &matrix));
    return esp_i_im_apply_matrix(node, *x, axis, matrix, x);
}

/* Every row repeated the same number of times: a broadcast. */
static esp_status_t resize_by_expand(esp_i_node_t *node, int32_t axis, int64_t repeats,
                                     esp_i_value_t **x)
{
    int64_t dims[ESP_MAX_RANK];
    int32_t rank = (*x)->rank;
    memcpy(dims, (*x)->dims, sizeof dims);
    dims[axis] *= repeats;
    int64_t split[3] = {esp_i_im_extent(*x, 0, axis + 1), 1, esp_i_im_extent(*x, axis + 1, rank)};
    ESP_TRY(esp_i_im_reshape(node, *x, 3, split, x));
    split[1] = repeats;
    ESP_TRY(esp_i_im_expand(node, *x, 3, split, x));
    return esp_i_im_reshape(node, *x, rank, dims, x);
}

static esp_status_t resize_nearest(esp_i_node_t *node, const resize_t *r, int32_t axis,
                                   esp_i_value_t **x)
{
    int64_t n = (*x)->dims[axis], repeats = r->extent[axis] / n;
    esp_i_konst_t *k;
    esp_i_value_t *indices;
    bool even = r->extent[axis] % n == 0;
    ESP_TRY(esp_i_im_konst_new(node->im, ESP_DTYPE_I64, 1, &r->extent[axis], &k));
    if (k == NULL)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "axis %d is too long", axis);
    for (int64_t to = 0; to < r->extent[axis]; to++) {
        int64_t from = nearest(r, source_of(r, axis, n, to));
        k->i[to] = esp_i_max_i64(0, esp_i_min_i64(from, n - 1));
        even = even && k->i[to] == to / repeats;
    }
    if (even)
        return resize_by_expand(node, axis, repeats, x);
    ESP_TRY(esp_i_im_value_known(node, k, &indices));
    return esp_i_im_gather(node, *x, indices, axis, x);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static esp_status_t read_mode(esp_i_node_t *node, resize_t *r)
{
    esp_i_str_t mode;
    int64_t antialias, outside;
    bool upsample = node->op->code == 1;
    ESP_TRY(esp_i_im_attr_text(node, "mode", "nearest", &mode));
    ESP_TRY(esp_i_im_attr_text(node, "coordinate_transformation_mode",
                               upsample || node->opset < 11 ? "asymmetric" : "half_pixel",
                               &r->coordinates));
    ESP_TRY(esp_i_im_attr_text(node, "nearest_mode",
                               upsample || node->opset < 11 ? "floor" : "round_prefer_floor",
                               &r->rounding));
    ESP_TRY(esp_i_im_attr_float(node, "cubic_coeff_a", -0.75, &r->cubic_a));
    ESP_TRY(esp_i_im_attr_int(node, "antialias", 0, &antialias));
    ESP_TRY(esp_i_im_attr_int(node, "exclude_outside", 0, &outside));
    r->mode = esp_i_str_is(mode, "nearest") ? NEAREST
              : esp_i_str_is(mode, "cubic") ? CUBIC
                                            : LINEAR;
    static const char *const known[] = {"asymmetric", "align_corners", "pytorch_half_pixel",
                                        "half_pixel"};
    bool found = false;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        found = found || esp_i_str_is(r->coordinates, known[k]);
    if (!found || antialias != 0 || outside != 0)
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                          "coordinates '%.*s', antialias %lld, exclude_outside %lld",
                          (int)esp_i_min_i64(r->coordinates.length, 40), r->coordinates.data,
                          (long long)antialias, (long long)outside);
    return ESP_OK;
}

/* keep_aspect_ratio_policy: -1 not larger than the sizes, 1 not smaller, 0 each axis by itself. */
static esp_status_t read_policy(esp_i_node_t *node, int32_t *out)
{
    esp_i_str_t policy;
    ESP_TRY(esp_i_im_attr_text(node, "keep_aspect_ratio_policy", "stretch", &policy));
    *out = esp_i_str_is(policy, "not_larger") ? -1 : esp_i_str_is(policy, "not_smaller") ? 1 : 0;
    return ESP_OK;
}

/* Scales or sizes, of all axes or (opset 18) of those listed. */
static esp_status_t read_extents(esp_i_node_t *node, resize_t *r)
{
    const esp_i_value_t *x = node->in[0];
    double scales[ESP_MAX_RANK];
    int64_t sizes[ESP_MAX_RANK], axes[ESP_MAX_RANK];
    int32_t n_scales = -1, n_sizes = -1, n_axes;
    bool upsample = node->op->code == 1, old = upsample || node->opset < 11;
    if (esp_i_im_in(node, old ? 1 : 2) != NULL)
        ESP_TRY(esp_i_im_input_floats(node, old ? 1 : 2, ESP_MAX_RANK, scales, &n_scales));
    else
        ESP_TRY(esp_i_im_attr_floats(node, "scales", ESP_MAX_RANK, scales, &n_scales));
    if (!old)
        ESP_TRY(esp_i_im_input_ints(node, 3, ESP_MAX_RANK, sizes, &n_sizes));
    ESP_TRY(esp_i_im_attr_ints(node, "axes", ESP_MAX_RANK, axes, &n_axes));
    int32_t n = n_axes >= 0 ? n_axes : x->rank;
    if ((n_scales > 0 ? n_scales : n_sizes) != n)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%d scales, %d sizes for %d axes", n_scales,
                          n_sizes, n);
    for (int32_t d = 0; d < x->rank; d++) {
        r->scale[d] = 1;
        r->extent[d] = x->dims[d];
    }
    int32_t policy;
    double common = 1;
    ESP_TRY(read_policy(node, &policy));
    for (int32_t k = 0; k < n && n_scales <= 0; k++) {
        int32_t axis;
        ESP_TRY(esp_i_im_axis(node, n_axes >= 0 ? axes[k] : k, x->rank, &axis));
        double scale = (double)sizes[k] / (double)esp_i_max_i64(x->dims[axis], 1);
        common = k == 0 ? scale : policy < 0 ? fmin(common, scale) : fmax(common, scale);
    }
    for (int32_t k = 0; k < n; k++) {
        int32_t axis;
        ESP_TRY(esp_i_im_axis(node, n_axes >= 0 ? axes[k] : k, x->rank, &axis));
        double extent = n_scales > 0 ? floor((double)x->dims[axis] * scales[k]) : (double)sizes[k];
        if (n_scales <= 0 && policy != 0)
            extent = floor((double)x->dims[axis] * common + 0.5);
        if (axis == esp_i_im_track_of(node->im, x).axis && node->im->file_batch > 0)
            extent = (double)x->dims[axis]; /* the batch is never resized */
        if (!(extent >= 1 && extent <= (double)ESP_MAX_ELEMENTS) || x->dims[axis] < 1)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d from %lld to %g elements", axis,
                              (long long)x->dims[axis], extent);
        r->extent[axis] = (int64_t)extent;
        r->scale[axis] = n_scales > 0 ? scales[k] : extent / (double)x->dims[axis];
    }
    return ESP_OK;
}

/* code: 1 for Upsample */
esp_status_t esp_i_rule_resize(esp_i_node_t *node)
{
    resize_t r;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 4));
    ESP_TRY(read_mode(node, &r));
    ESP_TRY(read_extents(node, &r));
    esp_i_value_t *x = node->in[0];
    node->batch_ints = false;
    for (int32_t d = 0; d < node->in[0]->rank; d++) {
        if (r.extent[d] == x->dims[d])
            continue;
        ESP_TRY(r.mode == NEAREST ? resize_nearest(node, &r, d, &x)
                                  : resize_by_matrix(node, &r, d, &x));
    }
    node->out[0] = x;
    return ESP_OK;
}
