/*
 * Integer tensors that are affine in their position, of any size: the index arithmetic of slice
 * assignments (ranges that are reshaped, stretched over the batch, added and joined). They are
 * never written out unless an op really reads them.
 */
#include "import/import.h"

#include <math.h>
#include <string.h>

static bool is_index(esp_dtype_t dtype)
{
    return dtype == ESP_DTYPE_I64 || dtype == ESP_DTYPE_I32;
}

static esp_status_t grid_new(esp_i_import_t *im, int32_t n, esp_i_grid_t **out)
{
    *out = esp_i_arena_alloc(&im->arena, 1, sizeof **out + (size_t)n * sizeof(esp_i_affine_t));
    if (*out == NULL)
        return esp_i_nomem(im->diag);
    (*out)->n = n;
    return ESP_OK;
}

/*
 * The affine form of elements first, first + every, .. of a known constant, which have the shape
 * dims[0..rank); false: there is none.
 */
static bool fit(const esp_i_konst_t *k, int64_t first, int64_t every, int32_t rank,
                esp_i_affine_t *a)
{
    int64_t stride = every, count = 1;
    *a = (esp_i_affine_t){.base = k->count > 0 ? k->i[first] : 0};
    for (int32_t d = rank - 1; d >= 0; d--) {
        if (k->count > 0 && k->dims[d] > 1)
            a->step[d] = (int64_t)((uint64_t)k->i[first + stride] - (uint64_t)a->base);
        if (a->step[d] > INT32_MAX || a->step[d] < INT32_MIN)
            return false;
        stride *= k->dims[d];
        count *= k->dims[d];
    }
    if (a->base > INT32_MAX || a->base < INT32_MIN)
        return false;
    for (int64_t e = 0; e < count; e++) {
        int64_t rest = e, value = a->base;
        for (int32_t d = rank - 1; d >= 0; d--) {
            value += a->step[d] * (rest % k->dims[d]);
            rest /= k->dims[d];
        }
        if (value != k->i[first + e * every])
            return false;
    }
    return true;
}

/* Indices [.., m] as m formulas over the axes before; *out is NULL if they are not affine. */
esp_status_t esp_i_im_grid_rows(esp_i_import_t *im, esp_i_value_t *v, const esp_i_grid_t **out)
{
    const esp_i_konst_t *k;
    esp_i_grid_t *grid;
    *out = NULL;
    if (v->rank < 1 || !is_index(v->dtype))
        return ESP_OK;
    int64_t m = v->dims[v->rank - 1];
    if (v->grid != NULL && v->grid->n == m) {
        *out = v->grid;
        return ESP_OK;
    }
    ESP_TRY(esp_i_im_known(im, v, &k));
    if (k == NULL || m < 1 || m > ESP_MAX_RANK)
        return ESP_OK;
    ESP_TRY(grid_new(im, (int32_t)m, &grid));
    for (int32_t p = 0; p < m; p++)
        if (!fit(k, p, m, v->rank - 1, &grid->part[p]))
            return ESP_OK;
    *out = grid;
    return ESP_OK;
}

esp_status_t esp_i_im_grid_of(esp_i_import_t *im, esp_i_value_t *v, const esp_i_grid_t **out)
{
    *out = v->grid;
    if (v->grid != NULL || !is_index(v->dtype) || v->role != ESP_ROLE_CONSTANT)
        return ESP_OK;
    const esp_i_konst_t *k;
    esp_i_grid_t *grid;
    ESP_TRY(esp_i_im_known(im, v, &k));
    if (k == NULL)
        return ESP_OK;
    ESP_TRY(grid_new(im, 1, &grid));
    if (fit(k, 0, 1, k->rank, &grid->part[0]))
        *out = grid;
    return ESP_OK;
}

/* ---- through core kinds ---------------------------------------------------------------------- */

/* Only axes of extent 1 come and go. */
static bool through_reshape(const esp_i_value_t *x, const esp_i_affine_t *from,
                            const esp_attr_t *attr, esp_i_affine_t *to)
{
    int32_t d = 0;
    to->base = from->base;
    for (int32_t y = 0; y < attr->shape.rank; y++) {
        if (attr->shape.dims[y] == 1)
            continue;
        while (d < x->rank && x->dims[d] == 1)
            d++;
        if (d == x->rank || x->dims[d] != attr->shape.dims[y])
            return false;
        to->step[y] = from->step[d++];
    }
    while (d < x->rank && x->dims[d] == 1)
        d++;
    return d == x->rank;
}

/* Adds x, aligned at the right, to a tensor of rank `rank`. */
static void add_aligned(const esp_i_value_t *x, const esp_i_affine_t *from, int32_t rank,
                        esp_i_affine_t *to)
{
    to->base += from->base;
    for (int32_t d = 0; d < x->rank; d++)
        if (x->dims[d] != 1)
            to->step[d + rank - x->rank] += from->step[d];
}

static bool through_add(int32_t n, esp_i_value_t *const *in, const esp_i_grid_t *const *grids,
                        esp_i_value_t *y, esp_i_affine_t *to)
{
    for (int32_t k = 0; k < n; k++)
        y->rank = in[k]->rank > y->rank ? in[k]->rank : y->rank;
    for (int32_t d = 0; d < y->rank; d++)
        y->dims[d] = 1;
    for (int32_t k = 0; k < n; k++) {
        if (in[k]->dtype != y->dtype)
            return false;
        for (int32_t d = 0; d < in[k]->rank; d++) {
            int64_t *extent = &y->dims[d + y->rank - in[k]->rank];
            if (*extent != 1 && in[k]->dims[d] != 1 && *extent != in[k]->dims[d])
                return false;
            *extent = *extent == 1 ? in[k]->dims[d] : *extent;
        }
        add_aligned(in[k], &grids[k]->part[0], y->rank, to);
    }
    return true;
}

static bool through_view(esp_op_kind_t kind, const esp_attr_t *attr, const esp_i_value_t *x,
                         const esp_i_affine_t *from, esp_i_value_t *y, esp_i_affine_t *to)
{
    *to = *from;
    memcpy(y->dims, x->dims, sizeof y->dims);
    y->rank = x->rank;
    if (kind == ESP_KIND_CAST) {
        y->dtype = attr->cast.dtype;
    } else if (kind == ESP_KIND_TRANSPOSE) {
        for (int32_t d = 0; d < x->rank; d++) {
            y->dims[d] = x->dims[attr->transpose.perm[d]];
            to->step[d] = from->step[attr->transpose.perm[d]];
        }
    } else if (kind == ESP_KIND_SLICE) {
        for (int32_t d = 0; d < x->rank; d++) {
            y->dims[d] = attr->slice.count[d];
            to->base += from->step[d] * attr->slice.start[d];
            to->step[d] *= attr->slice.step[d];
        }
    } else { /* RESHAPE, EXPAND */
        y->rank = attr->shape.rank;
        memcpy(y->dims, attr->shape.dims, sizeof y->dims);
        *to = (esp_i_affine_t){0};
        if (kind == ESP_KIND_RESHAPE)
            return through_reshape(x, from, attr, to);
        add_aligned(x, from, y->rank, to);
    }
    return is_index(y->dtype);
}

/* Parts of extent 1 joined along the last axis: a vector of affine forms per position. */
static bool through_concat(const esp_attr_t *attr, int32_t n, esp_i_value_t *const *in,
                           const esp_i_grid_t *const *grids, esp_i_value_t *y, esp_i_grid_t *to)
{
    int32_t last = in[0]->rank - 1;
    if (attr->axis.axis != last)
        return false;
    for (int32_t k = 0; k < n; k++) {
        if (in[k]->rank != last + 1 || in[k]->dims[last] != 1 || in[k]->dtype != y->dtype ||
            memcmp(in[k]->dims, in[0]->dims, (size_t)last * sizeof *in[k]->dims) != 0)
            return false;
        to->part[k] = grids[k]->part[0];
    }
    y->rank = last + 1;
    memcpy(y->dims, in[0]->dims, sizeof y->dims);
    y->dims[last] = n;
    return true;
}

static bool through_source(const esp_attr_t *attr, esp_i_value_t *y, esp_i_affine_t *to)
{
    y->rank = attr->shape.rank;
    y->dtype = attr->shape.dtype;
    memcpy(y->dims, attr->shape.dims, sizeof y->dims);
    if (!(fabs(attr->shape.value) <= INT32_MAX && fabs(attr->shape.step) <= INT32_MAX))
        return false;
    to->base = (int64_t)attr->shape.value;
    if (attr->shape.rank > 0)
        to->step[attr->shape.axis] = (int64_t)attr->shape.step;
    return is_index(y->dtype);
}

static bool apply(esp_op_kind_t kind, const esp_attr_t *attr, int32_t n, esp_i_value_t *const *in,
                  const esp_i_grid_t *const *grids, esp_i_value_t *y, esp_i_grid_t *to)
{
    if (n > 0)
        y->dtype = in[0]->dtype;
    if (kind == ESP_KIND_RANGE || kind == ESP_KIND_FILL)
        return through_source(attr, y, &to->part[0]);
    if (kind == ESP_KIND_ELTWISE)
        return attr->eltwise.code == ESP_ELT_ADD && through_add(n, in, grids, y, &to->part[0]);
    if (kind == ESP_KIND_CONCAT)
        return through_concat(attr, n, in, grids, y, to);
    bool view = kind == ESP_KIND_CAST || kind == ESP_KIND_TRANSPOSE || kind == ESP_KIND_SLICE ||
                kind == ESP_KIND_RESHAPE || kind == ESP_KIND_EXPAND;
    return view && n > 0 && through_view(kind, attr, in[0], &grids[0]->part[0], y, &to->part[0]);
}

/* Below the overflow of the sums above; a shape of any size times a step of 32 bits. */
static bool is_bounded(const esp_i_value_t *y, const esp_i_grid_t *grid)
{
    for (int32_t p = 0; p < grid->n; p++) {
        bool small = grid->part[p].base >= INT32_MIN && grid->part[p].base <= INT32_MAX;
        for (int32_t d = 0; d < y->rank; d++)
            small = small && grid->part[p].step[d] >= INT32_MIN &&
                    grid->part[p].step[d] <= INT32_MAX && y->dims[d] <= INT32_MAX;
        if (!small)
            return false;
    }
    return true;
}

enum { MAX_PARTS = ESP_MAX_RANK };

esp_status_t esp_i_im_grid_eval(esp_i_node_t *node, esp_op_kind_t kind, const esp_attr_t *attr,
                                int32_t n, esp_i_value_t *const *in, esp_i_value_t **out)
{
    const esp_i_grid_t *grids[MAX_PARTS];
    esp_i_grid_t *to;
    *out = NULL;
    if (n > MAX_PARTS)
        return ESP_OK;
    for (int32_t k = 0; k < n; k++) {
        if (in[k] == NULL)
            return ESP_OK;
        ESP_TRY(esp_i_im_grid_of(node->im, in[k], &grids[k]));
        if (grids[k] == NULL || grids[k]->n != 1)
            return ESP_OK;
    }
    esp_i_value_t *y = esp_i_im_value_new(node->im, node->name);
    if (y == NULL)
        return esp_i_nomem(node->diag);
    ESP_TRY(grid_new(node->im, kind == ESP_KIND_CONCAT ? n : 1, &to));
    if (!apply(kind, attr, n, in, grids, y, to) || !is_bounded(y, to))
        return ESP_OK;
    y->grid = to;
    *out = y;
    return ESP_OK;
}

/* ---- writing out ----------------------------------------------------------------------------- */

/* Small enough to be a constant after all; *out stays NULL if not. */
esp_status_t esp_i_im_grid_known(esp_i_import_t *im, const esp_i_value_t *v,
                                 const esp_i_konst_t **out)
{
    esp_i_konst_t *k;
    ESP_TRY(esp_i_im_konst_new(im, v->dtype, v->rank, v->dims, &k));
    int32_t n = v->grid->n, axes = n > 1 ? v->rank - 1 : v->rank;
    for (int64_t e = 0; k != NULL && e < k->count; e++) {
        int64_t rest = n > 1 ? e / n : e;
        const esp_i_affine_t *a = &v->grid->part[n > 1 ? e % n : 0];
        int64_t value = a->base;
        for (int32_t d = axes - 1; d >= 0; d--) {
            value += a->step[d] * (rest % v->dims[d]);
            rest /= v->dims[d];
        }
        k->i[e] = value;
    }
    *out = k;
    return ESP_OK;
}

/* A range per axis that matters, added up and stretched to the shape. */
static esp_status_t put_part(esp_i_import_t *im, const esp_i_value_t *v, const int64_t *dims,
                             const esp_i_affine_t *a, esp_tensor_id_t *out)
{
    esp_tensor_id_t terms[ESP_MAX_RANK + 1], sum;
    int32_t n = 0;
    esp_attr_t attr = {0}, add = {0}, whole = {0};
    whole.shape.rank = v->rank;
    memcpy(whole.shape.dims, dims, sizeof v->dims);
    for (int32_t d = 0; d < v->rank; d++) {
        if (a->step[d] == 0 || dims[d] == 1)
            continue;
        attr = (esp_attr_t){0};
        attr.shape.rank = v->rank;
        attr.shape.dtype = v->dtype;
        for (int32_t e = 0; e < v->rank; e++)
            attr.shape.dims[e] = e == d ? dims[d] : 1;
        attr.shape.axis = d;
        attr.shape.step = (double)a->step[d];
        attr.shape.value = n == 0 ? (double)a->base : 0;
        ESP_TRY(esp_i_im_append(im, ESP_KIND_RANGE, &attr, 0, NULL, v->name, &terms[n++]));
    }
    if (n == 0) {
        whole.shape.dtype = v->dtype;
        whole.shape.value = (double)a->base;
        return esp_i_im_append(im, ESP_KIND_FILL, &whole, 0, NULL, v->name, out);
    }
    add.eltwise.code = ESP_ELT_ADD;
    sum = terms[0];
    if (n > 1)
        ESP_TRY(esp_i_im_append(im, ESP_KIND_ELTWISE, &add, n, terms, v->name, &sum));
    return esp_i_im_append(im, ESP_KIND_EXPAND, &whole, 1, &sum, v->name, out);
}

esp_status_t esp_i_im_grid_put(esp_i_import_t *im, esp_i_value_t *v)
{
    esp_tensor_id_t parts[MAX_PARTS];
    int64_t dims[ESP_MAX_RANK];
    int32_t n = v->grid->n;
    memcpy(dims, v->dims, sizeof dims);
    if (n == 1)
        return put_part(im, v, dims, &v->grid->part[0], &v->tensor);
    dims[v->rank - 1] = 1;
    for (int32_t p = 0; p < n; p++)
        ESP_TRY(put_part(im, v, dims, &v->grid->part[p], &parts[p]));
    esp_attr_t attr = {0};
    attr.axis.axis = v->rank - 1;
    return esp_i_im_append(im, ESP_KIND_CONCAT, &attr, n, parts, v->name, &v->tensor);
}

/* ---- boxes ----------------------------------------------------------------------------------- */

bool esp_i_im_grid_box(const esp_i_value_t *indices, const esp_i_grid_t *grid, int64_t *start,
                       int64_t *count)
{
    int32_t axes = indices->rank - 1, next = 0;
    for (int32_t p = 0; p < grid->n; p++) {
        const esp_i_affine_t *a = &grid->part[p];
        start[p] = a->base;
        count[p] = 1;
        for (int32_t d = 0; d < axes; d++) {
            if (indices->dims[d] == 1 || a->step[d] == 0)
                continue;
            if (a->step[d] != 1 || d < next || count[p] != 1)
                return false; /* every axis of the indices runs over one axis of the box, in order
                               */
            for (int32_t skipped = next; skipped < d; skipped++)
                if (indices->dims[skipped] != 1)
                    return false;
            count[p] = indices->dims[d];
            next = d + 1;
        }
    }
    for (int32_t d = next; d < axes; d++)
        if (indices->dims[d] != 1)
            return false;
    return true;
}
