/*
 * Core kinds evaluated on the host, for the shape arithmetic and the masks of a file. Integers are
 * exact (64 bits, wrapping like a cast); floats are rounded to their dtype after every operation.
 */
#include "import/import.h"

#include <math.h>
#include <string.h>

/* ---- multi-indices --------------------------------------------------------------------------- */

/* Row-major strides of k; 0 along axes of extent 1, so that they broadcast. */
static void strides_of(const esp_i_konst_t *k, int64_t *strides)
{
    int64_t step = 1;
    for (int32_t d = k->rank - 1; d >= 0; d--) {
        strides[d] = k->dims[d] == 1 ? 0 : step;
        step *= k->dims[d];
    }
}

/* Index of element e of a tensor with `dims`, axis by axis. */
static void unravel(int64_t e, int32_t rank, const int64_t *dims, int64_t *index)
{
    esp_dcheck(rank >= 0 && rank <= ESP_MAX_RANK);
    for (int32_t d = rank - 1; d >= 0; d--) {
        index[d] = e % dims[d];
        e /= dims[d];
    }
}

/* ---- element-wise ---------------------------------------------------------------------------- */

static int64_t floor_mod(int64_t a, int64_t b)
{
    int64_t r = b == -1 ? 0 : a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Comparisons and logic, whatever the operands are. False: not one of them. */
static bool eval_logic(esp_eltwise_t code, double a, double b, double *out)
{
    switch ((int)code) {
    case ESP_ELT_EQUAL:
        return *out = a == b, true;
    case ESP_ELT_NOT_EQUAL:
        return *out = a != b, true;
    case ESP_ELT_LESS:
        return *out = a < b, true;
    case ESP_ELT_LESS_EQUAL:
        return *out = a <= b, true;
    case ESP_ELT_GREATER:
        return *out = a > b, true;
    case ESP_ELT_GREATER_EQUAL:
        return *out = a >= b, true;
    case ESP_ELT_AND:
        return *out = a != 0 && b != 0, true;
    case ESP_ELT_OR:
        return *out = a != 0 || b != 0, true;
    case ESP_ELT_XOR:
        return *out = (a != 0) != (b != 0), true;
    case ESP_ELT_NOT:
        return *out = a == 0, true;
    default:
        return false;
    }
}

/* 64-bit integers: false where the code is not one for integers, or divides by zero. */
static bool eval_int(esp_eltwise_t code, const esp_attr_t *attr, int64_t a, int64_t b, int64_t *out)
{
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    switch ((int)code) {
    case ESP_ELT_ADD:
        return *out = (int64_t)(ua + ub), true;
    case ESP_ELT_SUB:
        return *out = (int64_t)(ua - ub), true;
    case ESP_ELT_MUL:
        return *out = (int64_t)(ua * ub), true;
    case ESP_ELT_DIV:
        if (b == 0)
            return false;
        return *out = b == -1 ? (int64_t)(0 - ua) : a / b, true;
    case ESP_ELT_MOD:
        if (b == 0)
            return false;
        return *out = attr->eltwise.alpha != 0 ? (b == -1 ? 0 : a % b) : floor_mod(a, b), true;
    case ESP_ELT_MAX:
        return *out = a > b ? a : b, true;
    case ESP_ELT_MIN:
        return *out = a < b ? a : b, true;
    case ESP_ELT_NEG:
        return *out = (int64_t)(0 - ua), true;
    case ESP_ELT_ABS:
        return *out = a < 0 ? (int64_t)(0 - ua) : a, true;
    case ESP_ELT_SIGN:
        return *out = (a > 0) - (a < 0), true;
    case ESP_ELT_EQUAL:
        return *out = a == b, true;
    case ESP_ELT_NOT_EQUAL:
        return *out = a != b, true;
    default:
        return false;
    }
}

static bool eval_float_binary(esp_eltwise_t code, const esp_attr_t *attr, double a, double b,
                              double *out)
{
    switch ((int)code) {
    case ESP_ELT_ADD:
        return *out = a + b, true;
    case ESP_ELT_SUB:
        return *out = a - b, true;
    case ESP_ELT_MUL:
        return *out = a * b, true;
    case ESP_ELT_DIV:
        return *out = a / b, true;
    case ESP_ELT_DIV_NO_NAN:
        return *out = b == 0 ? 0 : a / b, true;
    case ESP_ELT_POW:
        return *out = pow(a, b), true;
    case ESP_ELT_MAX:
        return *out = a > b ? a : b, true;
    case ESP_ELT_MIN:
        return *out = a < b ? a : b, true;
    case ESP_ELT_MOD:
        *out = fmod(a, b);
        if (attr->eltwise.alpha == 0 && *out != 0 && (*out < 0) != (b < 0))
            *out += b;
        return true;
    default:
        return false;
    }
}

static bool eval_float_unary(esp_eltwise_t code, const esp_attr_t *attr, double x, double *out)
{
    double alpha = attr->eltwise.alpha, beta = attr->eltwise.beta;
    switch ((int)code) {
    case ESP_ELT_AFFINE:
        return *out = alpha * x + beta, true;
    case ESP_ELT_POWC:
        return *out = pow(x, alpha), true;
    case ESP_ELT_NEG:
        return *out = -x, true;
    case ESP_ELT_ABS:
        return *out = fabs(x), true;
    case ESP_ELT_SIGN:
        return *out = (x > 0) - (x < 0), true;
    case ESP_ELT_EXP:
        return *out = exp(x), true;
    case ESP_ELT_LOG:
        return *out = log(x), true;
    case ESP_ELT_SQRT:
        return *out = sqrt(x), true;
    case ESP_ELT_RSQRT:
        return *out = 1 / sqrt(x), true;
    case ESP_ELT_RECIPROCAL:
        return *out = 1 / x, true;
    case ESP_ELT_SIN:
        return *out = sin(x), true;
    case ESP_ELT_COS:
        return *out = cos(x), true;
    case ESP_ELT_FLOOR:
        return *out = floor(x), true;
    case ESP_ELT_CEIL:
        return *out = ceil(x), true;
    case ESP_ELT_ROUND:
        return *out = nearbyint(x), true;
    case ESP_ELT_RELU:
        return *out = x > 0 ? x : 0, true;
    case ESP_ELT_CLIP:
        return *out = x < alpha ? alpha : x > beta ? beta : x, true;
    case ESP_ELT_TANH:
        return *out = tanh(x), true;
    case ESP_ELT_ERF:
        return *out = erf(x), true;
    case ESP_ELT_SIGMOID:
        return *out = 1 / (1 + exp(-x)), true;
    default:
        return false;
    }
}

/* Folds y[e] = code(y[e], operand) over the inputs. */
static bool eval_element(esp_eltwise_t code, const esp_attr_t *attr, int32_t n,
                         const esp_i_konst_t *const *in, const int64_t *at, esp_i_konst_t *y,
                         int64_t e)
{
    esp_dcheck(n > 0);
    if (code == ESP_ELT_WHERE) {
        esp_dcheck(n == 3);
        int32_t pick = esp_i_im_konst_at(in[0], at[0]) != 0 ? 1 : 2;
        esp_i_im_konst_copy(y, e, in[pick], at[pick]);
        return true;
    }
    double logic;
    double b = n > 1 ? esp_i_im_konst_at(in[1], at[1]) : 0;
    bool exact = in[0]->i != NULL && (n < 2 || in[1]->i != NULL);
    int64_t b_int = exact && n > 1 ? in[1]->i[at[1]] : 0;
    if (exact) {
        int64_t value = in[0]->i[at[0]];
        if (n == 1 && code == ESP_ELT_ADD)
            return y->i[e] = value, true;
        if (eval_int(code, attr, value, b_int, &value)) {
            for (int32_t k = 2; k < n; k++)
                if (!eval_int(code, attr, value, in[k]->i[at[k]], &value))
                    return false;
            esp_i_im_konst_set_int(y, e, value);
            return true;
        }
    }
    double value = esp_i_im_konst_at(in[0], at[0]);
    if (eval_logic(code, value, b, &logic))
        return esp_i_im_konst_set(y, e, logic), true;
    if (in[0]->f == NULL)
        return false;
    if (n == 1 && eval_float_unary(code, attr, value, &value))
        return esp_i_im_konst_set(y, e, value), true;
    for (int32_t k = 1; k < n; k++)
        if (!eval_float_binary(code, attr, value, esp_i_im_konst_at(in[k], at[k]), &value))
            return false;
    esp_i_im_konst_set(y, e, value);
    return n > 1;
}

static bool broadcast_dims(int32_t n, const esp_i_konst_t *const *in, int32_t *rank_out,
                           int64_t *dims)
{
    int32_t rank = 0;
    for (int32_t k = 0; k < n; k++)
        rank = in[k]->rank > rank ? in[k]->rank : rank;
    for (int32_t d = 0; d < rank; d++)
        dims[d] = 1;
    for (int32_t k = 0; k < n; k++) {
        for (int32_t d = 0; d < in[k]->rank; d++) {
            int64_t *extent = &dims[d + rank - in[k]->rank];
            if (*extent != in[k]->dims[d] && *extent != 1 && in[k]->dims[d] != 1)
                return false;
            if (in[k]->dims[d] != 1)
                *extent = in[k]->dims[d];
        }
    }
    *rank_out = rank;
    return true;
}

static bool gives_bool(esp_eltwise_t code)
{
    double unused;
    return eval_logic(code, 0, 0, &unused);
}

enum { MAX_HOST_INPUTS = 64 };

static esp_status_t host_eltwise(esp_i_import_t *im, const esp_attr_t *attr, int32_t n,
                                 const esp_i_konst_t *const *in, const esp_i_konst_t **out)
{
    esp_eltwise_t code = attr->eltwise.code;
    int32_t rank;
    int64_t dims[ESP_MAX_RANK], strides[MAX_HOST_INPUTS][ESP_MAX_RANK], index[ESP_MAX_RANK];
    int64_t at[MAX_HOST_INPUTS];
    if (n > MAX_HOST_INPUTS || !broadcast_dims(n, in, &rank, dims))
        return ESP_OK;
    esp_dtype_t dtype = in[code == ESP_ELT_WHERE ? 1 : 0]->dtype;
    for (int32_t k = code == ESP_ELT_WHERE ? 1 : 0; k < n; k++)
        if (in[k]->dtype != dtype) /* the builder says what is wrong with it */
            return ESP_OK;
    esp_i_konst_t *y;
    ESP_TRY(esp_i_im_konst_new(im, gives_bool(code) ? ESP_DTYPE_BOOL : dtype, rank, dims, &y));
    if (y == NULL)
        return ESP_OK;
    for (int32_t k = 0; k < n; k++)
        strides_of(in[k], strides[k]);
    for (int64_t e = 0; e < y->count; e++) {
        unravel(e, rank, dims, index);
        for (int32_t k = 0; k < n; k++) {
            at[k] = 0;
            for (int32_t d = 0; d < in[k]->rank; d++)
                at[k] += index[d + rank - in[k]->rank] * strides[k][d];
        }
        if (!eval_element(code, attr, n, in, at, y, e))
            return ESP_OK;
    }
    *out = y;
    return ESP_OK;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* y[index] = x[origin + sum_d index[d] * step[d]], all in elements of x. */
static esp_status_t host_strided(esp_i_import_t *im, const esp_i_konst_t *x, int32_t rank,
                                 const int64_t *dims, int64_t origin, const int64_t *step,
                                 const esp_i_konst_t **out)
{
    esp_i_konst_t *y;
    int64_t index[ESP_MAX_RANK];
    ESP_TRY(esp_i_im_konst_new(im, x->dtype, rank, dims, &y));
    if (y == NULL)
        return ESP_OK;
    for (int64_t e = 0; e < y->count; e++) {
        unravel(e, rank, dims, index);
        int64_t from = origin;
        for (int32_t d = 0; d < rank; d++)
            from += index[d] * step[d];
        esp_i_im_konst_copy(y, e, x, from);
    }
    *out = y;
    return ESP_OK;
}

static esp_status_t host_view(esp_i_import_t *im, esp_op_kind_t kind, const esp_attr_t *attr,
                              const esp_i_konst_t *x, const esp_i_konst_t **out)
{
    int64_t strides[ESP_MAX_RANK] = {0}, step[ESP_MAX_RANK] = {0}, dims[ESP_MAX_RANK], origin = 0;
    int32_t rank = x->rank;
    strides_of(x, strides);
    if (kind == ESP_KIND_TRANSPOSE) {
        for (int32_t d = 0; d < rank; d++) {
            dims[d] = x->dims[attr->transpose.perm[d]];
            step[d] = strides[attr->transpose.perm[d]];
        }
    } else if (kind == ESP_KIND_SLICE) {
        for (int32_t d = 0; d < rank; d++) {
            dims[d] = attr->slice.count[d];
            step[d] = strides[d] * attr->slice.step[d];
            if (dims[d] > 0)
                origin += strides[d] * attr->slice.start[d];
        }
    } else { /* EXPAND */
        rank = attr->shape.rank;
        for (int32_t d = 0; d < rank; d++) {
            dims[d] = attr->shape.dims[d];
            step[d] = d < rank - x->rank ? 0 : strides[d - (rank - x->rank)];
        }
    }
    return host_strided(im, x, rank, dims, origin, step, out);
}

static esp_status_t host_reshape(esp_i_import_t *im, const esp_attr_t *attr, const esp_i_konst_t *x,
                                 const esp_i_konst_t **out)
{
    esp_i_konst_t *y = esp_i_arena_alloc(&im->arena, 1, sizeof *y);
    if (y == NULL)
        return esp_i_nomem(im->diag);
    *y = *x; /* shares the data */
    y->rank = attr->shape.rank;
    int64_t count = 1;
    for (int32_t d = 0; d < y->rank; d++) {
        y->dims[d] = attr->shape.dims[d];
        if (!esp_i_mul_i64(count, y->dims[d], &count))
            return ESP_OK;
    }
    *out = count == x->count ? y : NULL;
    return ESP_OK;
}

static esp_status_t host_concat(esp_i_import_t *im, int32_t axis, int32_t n,
                                const esp_i_konst_t *const *in, const esp_i_konst_t **out)
{
    int64_t dims[ESP_MAX_RANK], inner = 1, outer = 1;
    memcpy(dims, in[0]->dims, sizeof dims);
    dims[axis] = 0;
    for (int32_t k = 0; k < n; k++) {
        if (in[k]->rank != in[0]->rank || in[k]->dtype != in[0]->dtype)
            return ESP_OK;
        for (int32_t d = 0; d < in[k]->rank; d++)
            if (d != axis && in[k]->dims[d] != dims[d])
                return ESP_OK;
        dims[axis] += in[k]->dims[axis];
    }
    for (int32_t d = 0; d < in[0]->rank; d++)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : dims[d];
    esp_i_konst_t *y;
    ESP_TRY(esp_i_im_konst_new(im, in[0]->dtype, in[0]->rank, dims, &y));
    if (y == NULL)
        return ESP_OK;
    int64_t to = 0;
    for (int64_t o = 0; o < outer; o++)
        for (int32_t k = 0; k < n; k++)
            for (int64_t e = 0; e < in[k]->dims[axis] * inner; e++)
                esp_i_im_konst_copy(y, to++, in[k], o * in[k]->dims[axis] * inner + e);
    *out = y;
    return ESP_OK;
}

static esp_status_t host_gather(esp_i_import_t *im, int32_t axis, const esp_i_konst_t *x,
                                const esp_i_konst_t *indices, const esp_i_konst_t **out)
{
    int64_t dims[ESP_MAX_RANK], inner = 1, outer = 1;
    int32_t rank = 0;
    if (x->rank + indices->rank - 1 > ESP_MAX_RANK || indices->i == NULL)
        return ESP_OK;
    for (int32_t d = 0; d < axis; d++)
        outer *= dims[rank++] = x->dims[d];
    for (int32_t d = 0; d < indices->rank; d++)
        dims[rank++] = indices->dims[d];
    for (int32_t d = axis + 1; d < x->rank; d++)
        inner *= dims[rank++] = x->dims[d];
    esp_i_konst_t *y;
    ESP_TRY(esp_i_im_konst_new(im, x->dtype, rank, dims, &y));
    if (y == NULL)
        return ESP_OK;
    int64_t to = 0, extent = x->dims[axis];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < indices->count; k++) {
            int64_t row = indices->i[k];
            if (row < 0 || row >= extent)
                return esp_i_fail(im->diag, ESP_ERR_INVALID,
                                  "index %lld is outside an axis of extent %lld", (long long)row,
                                  (long long)extent);
            for (int64_t e = 0; e < inner; e++)
                esp_i_im_konst_copy(y, to++, x, (o * extent + row) * inner + e);
        }
    *out = y;
    return ESP_OK;
}

static esp_status_t host_cast(esp_i_import_t *im, esp_dtype_t dtype, const esp_i_konst_t *x,
                              const esp_i_konst_t **out)
{
    esp_i_konst_t *y;
    ESP_TRY(esp_i_im_konst_new(im, dtype, x->rank, x->dims, &y));
    for (int64_t e = 0; y != NULL && e < y->count; e++) {
        if (x->i != NULL)
            esp_i_im_konst_set_int(y, e, x->i[e]);
        else
            esp_i_im_konst_set(y, e, x->f[e]);
    }
    *out = y;
    return ESP_OK;
}

/* acc = acc (op) value; the first value is taken as it is, squared for SUMSQ. */
static double reduce_step(esp_reduce_t code, double acc, double value, bool first)
{
    if (code == ESP_REDUCE_SUMSQ)
        return (first ? 0 : acc) + value * value;
    if (first)
        return value;
    if (code == ESP_REDUCE_SUM)
        return acc + value;
    if (code == ESP_REDUCE_PROD)
        return acc * value;
    return (code == ESP_REDUCE_MAX) == (value > acc) ? value : acc;
}

/* In double: exact for the integers of shapes. Empty sums are not evaluated. */
static esp_status_t host_reduce(esp_i_import_t *im, const esp_attr_t *attr, const esp_i_konst_t *x,
                                const esp_i_konst_t **out)
{
    int64_t dims[ESP_MAX_RANK], step[ESP_MAX_RANK] = {0}, index[ESP_MAX_RANK], stride = 1;
    int32_t rank = 0;
    if (x->count == 0)
        return ESP_OK;
    for (int32_t d = 0; d < x->rank; d++) {
        bool reduced = attr->reduce.axes >> d & 1;
        if (!reduced || attr->reduce.keep)
            dims[rank++] = reduced ? 1 : x->dims[d];
    }
    esp_i_konst_t *y;
    ESP_TRY(esp_i_im_konst_new(im, x->dtype, rank, dims, &y));
    if (y == NULL)
        return ESP_OK;
    for (int32_t d = x->rank - 1; d >= 0; d--) {
        if (attr->reduce.axes >> d & 1)
            continue;
        step[d] = stride;
        stride *= x->dims[d];
    }
    for (int64_t e = 0; e < x->count; e++) {
        unravel(e, x->rank, x->dims, index);
        int64_t to = 0;
        bool first = true; /* of its group: all reduced axes at 0 */
        for (int32_t d = 0; d < x->rank; d++) {
            to += index[d] * step[d];
            first = first && (index[d] == 0 || !(attr->reduce.axes >> d & 1));
        }
        esp_i_im_konst_set(y, to,
                           reduce_step(attr->reduce.code, esp_i_im_konst_at(y, to),
                                       esp_i_im_konst_at(x, e), first));
    }
    *out = y;
    return ESP_OK;
}

static esp_status_t host_source(esp_i_import_t *im, esp_op_kind_t kind, const esp_attr_t *attr,
                                const esp_i_konst_t **out)
{
    esp_i_konst_t *y;
    int64_t index[ESP_MAX_RANK];
    int32_t rank = attr->shape.rank;
    ESP_TRY(esp_i_im_konst_new(im, attr->shape.dtype, rank, attr->shape.dims, &y));
    for (int64_t e = 0; y != NULL && e < y->count; e++) {
        unravel(e, rank, attr->shape.dims, index);
        double position = kind == ESP_KIND_RANGE ? (double)index[attr->shape.axis] : 0;
        esp_i_im_konst_set(y, e, attr->shape.value + position * attr->shape.step);
    }
    *out = y;
    return ESP_OK;
}

esp_status_t esp_i_im_host_eval(esp_i_import_t *im, esp_op_kind_t kind, const esp_attr_t *attr,
                                int32_t n, const esp_i_konst_t *const *in,
                                const esp_i_konst_t **out)
{
    *out = NULL;
    switch ((int)kind) {
    case ESP_KIND_ELTWISE:
        return host_eltwise(im, attr, n, in, out);
    case ESP_KIND_RESHAPE:
        return host_reshape(im, attr, in[0], out);
    case ESP_KIND_TRANSPOSE:
    case ESP_KIND_SLICE:
        return host_view(im, kind, attr, in[0], out);
    case ESP_KIND_EXPAND:
        return host_view(im, kind, attr, in[0], out);
    case ESP_KIND_CONCAT:
        return host_concat(im, attr->axis.axis, n, in, out);
    case ESP_KIND_GATHER:
        return host_gather(im, attr->axis.axis, in[0], in[1], out);
    case ESP_KIND_CAST:
        return host_cast(im, attr->cast.dtype, in[0], out);
    case ESP_KIND_REDUCE:
        return host_reduce(im, attr, in[0], out);
    case ESP_KIND_FILL:
    case ESP_KIND_RANGE:
        return host_source(im, kind, attr, out);
    default:
        return ESP_OK;
    }
}
