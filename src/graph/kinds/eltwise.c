/*
 * ELTWISE: one kind for all element-wise expressions, with broadcasting.
 *
 * Adjacent axes that every input has, or every input broadcasts, are one dimension; without
 * broadcasting that is a single dimension of all elements.
 */
#include "graph/kinds/eltwise.h"

typedef struct code_info {
    const char *name;
    int32_t arity; /* 0: one or more */
    int32_t flop;  /* per element */
} code_info_t;

static const code_info_t code_infos[ESP_ELT_COUNT] = {
#define ESP_ELT(name, text, arity, flop) [ESP_ELT_##name] = {text, arity, flop},
#include "espalier/eltwise.def"
#undef ESP_ELT
};

/* Which dtypes a code takes and gives; codes not listed take numbers and give the same. */
typedef enum code_class { NUMBER, FLOAT, EQUALITY, ORDER, LOGIC, SELECT } code_class_t;

static const uint8_t code_classes[ESP_ELT_COUNT] = {
    [ESP_ELT_POWC] = FLOAT,
    [ESP_ELT_EXP] = FLOAT,
    [ESP_ELT_LOG] = FLOAT,
    [ESP_ELT_SQRT] = FLOAT,
    [ESP_ELT_RSQRT] = FLOAT,
    [ESP_ELT_RECIPROCAL] = FLOAT,
    [ESP_ELT_ERF] = FLOAT,
    [ESP_ELT_SIN] = FLOAT,
    [ESP_ELT_COS] = FLOAT,
    [ESP_ELT_LEAKY_RELU] = FLOAT,
    [ESP_ELT_LEAKY_RELU_GRAD] = FLOAT,
    [ESP_ELT_SIGMOID] = FLOAT,
    [ESP_ELT_SIGMOID_GRAD] = FLOAT,
    [ESP_ELT_TANH] = FLOAT,
    [ESP_ELT_TANH_GRAD] = FLOAT,
    [ESP_ELT_SILU] = FLOAT,
    [ESP_ELT_SILU_GRAD] = FLOAT,
    [ESP_ELT_GELU] = FLOAT,
    [ESP_ELT_GELU_GRAD] = FLOAT,
    [ESP_ELT_GELU_TANH] = FLOAT,
    [ESP_ELT_GELU_TANH_GRAD] = FLOAT,
    [ESP_ELT_HARD_SIGMOID] = FLOAT,
    [ESP_ELT_HARD_SIGMOID_GRAD] = FLOAT,
    [ESP_ELT_HARD_SWISH] = FLOAT,
    [ESP_ELT_HARD_SWISH_GRAD] = FLOAT,
    [ESP_ELT_SOFTPLUS] = FLOAT,
    [ESP_ELT_ELU] = FLOAT,
    [ESP_ELT_ELU_GRAD] = FLOAT,
    [ESP_ELT_EQUAL] = EQUALITY,
    [ESP_ELT_NOT_EQUAL] = EQUALITY,
    [ESP_ELT_LESS] = ORDER,
    [ESP_ELT_LESS_EQUAL] = ORDER,
    [ESP_ELT_GREATER] = ORDER,
    [ESP_ELT_GREATER_EQUAL] = ORDER,
    [ESP_ELT_AND] = LOGIC,
    [ESP_ELT_OR] = LOGIC,
    [ESP_ELT_XOR] = LOGIC,
    [ESP_ELT_NOT] = LOGIC,
    [ESP_ELT_WHERE] = SELECT,
};

/* ---- shapes ------------------------------------------------------------------------------------
 */

static esp_status_t check_bool(const esp_i_op_t *op, int32_t input, esp_diag_t *diag)
{
    if (op->in[input].dtype != ESP_DTYPE_BOOL)
        return esp_i_fail(diag, ESP_ERR_INVALID, "input %d is %s where bool is expected",
                          (int)input, esp_dtype_name(op->in[input].dtype));
    return ESP_OK;
}

static esp_status_t infer_dtype(const esp_i_op_t *op, esp_diag_t *diag)
{
    code_class_t class = (code_class_t)code_classes[op->attr->eltwise.code];
    int32_t first = class == SELECT ? 1 : 0;
    ESP_TRY(esp_i_check_dtypes(op, first, op->n_in, diag));
    op->out[0].dtype = op->in[first].dtype;
    switch (class) {
    case NUMBER:
        return esp_i_check_number(op, 0, diag);
    case FLOAT:
        return esp_i_operand_float(op, 0, "input 0", diag);
    case ORDER:
        ESP_TRY(esp_i_check_number(op, 0, diag));
        op->out[0].dtype = ESP_DTYPE_BOOL;
        return ESP_OK;
    case EQUALITY:
        op->out[0].dtype = ESP_DTYPE_BOOL;
        return ESP_OK;
    case LOGIC:
    case SELECT:
        return check_bool(op, 0, diag);
    }
    return ESP_OK;
}

/* Broadcasting: shapes are aligned at their last axis; extent 1 stretches. */
static esp_status_t broadcast(const esp_i_op_t *op, int32_t input, int32_t first[ESP_MAX_RANK],
                              esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[input];
    esp_i_shape_t *y = &op->out[0];
    for (int32_t a = 0; a < x->rank; a++) {
        int32_t axis = a + y->rank - x->rank;
        int64_t extent = x->dims[a];
        if (extent == 1 || extent == y->dims[axis])
            continue;
        if (first[axis] >= 0) {
            int32_t other = first[axis];
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "axis %d has %lld in input %d and axis %d has %lld in input %d",
                              (int)(axis - y->rank + op->in[other].rank), (long long)y->dims[axis],
                              (int)other, (int)a, (long long)extent, (int)input);
        }
        y->dims[axis] = extent;
        first[axis] = input;
    }
    return ESP_OK;
}

static esp_status_t eltwise_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    int64_t code = (int64_t)op->attr->eltwise.code;
    if (code < 0 || code >= ESP_ELT_COUNT)
        return esp_i_fail(diag, ESP_ERR_INVALID, "no element-wise code %lld", (long long)code);
    const code_info_t *info = &code_infos[code];
    if (op->n_in < 1 || (info->arity > 0 && op->n_in != info->arity))
        return esp_i_fail(diag, ESP_ERR_INVALID, "%s has %d inputs where %d are expected",
                          info->name, (int)op->n_in, (int)esp_i_max_i64(info->arity, 1));
    ESP_TRY(infer_dtype(op, diag));
    esp_i_shape_t *y = &op->out[0];
    int32_t first[ESP_MAX_RANK]; /* the input that fixed the extent of an axis */
    y->rank = 0;
    for (int32_t i = 0; i < op->n_in; i++)
        y->rank = op->in[i].rank > y->rank ? op->in[i].rank : y->rank;
    for (int32_t a = 0; a < y->rank; a++) {
        y->dims[a] = 1;
        first[a] = -1;
    }
    for (int32_t i = 0; i < op->n_in; i++)
        ESP_TRY(broadcast(op, i, first, diag));
    return esp_i_check_shape(y, diag);
}

/* ---- factors, linear sets, cost
 * ------------------------------------------------------------------ */

/* Whether an input of this shape has axis `axis` of y, rather than stretching over it. */
static bool has_axis(int32_t rank, const int64_t *dims, int32_t y_rank, const int64_t *y_dims,
                     int32_t axis)
{
    int32_t own = axis - y_rank + rank;
    return own >= 0 && dims[own] == y_dims[axis] && dims[own] != 1;
}

static bool input_has(const esp_i_op_t *op, int32_t input, int32_t axis)
{
    return has_axis(op->in[input].rank, op->in[input].dims, op->out[0].rank, op->out[0].dims, axis);
}

static bool alike(const esp_i_op_t *op, int32_t axis, int32_t other)
{
    for (int32_t i = 0; i < op->n_in; i++)
        if (input_has(op, i, axis) != input_has(op, i, other))
            return false;
    return true;
}

/* Declares axes [from, to) of y, which every input treats alike. */
static void declare(const esp_i_op_t *op, int32_t from, int32_t to, esp_i_dims_t *dims)
{
    const esp_i_shape_t *y = &op->out[0];
    int64_t extent = esp_i_shape_product(y, from, to);
    if (extent <= 1)
        return;
    esp_i_dims_open(dims, extent, 1);
    for (int32_t i = 0; i < op->n_in; i++) {
        const esp_i_shape_t *x = &op->in[i];
        int32_t shift = x->rank - y->rank; /* below 0: x begins at a later axis of y */
        if (input_has(op, i, from))
            esp_i_dims_bind(dims, i, ESP_BIND_CARRY,
                            esp_i_shape_product(x, 0, from + shift < 0 ? 0 : from + shift),
                            esp_i_shape_product(x, to + shift, x->rank));
    }
    esp_i_dims_bind(dims, op->n_in, ESP_BIND_CARRY, esp_i_shape_product(y, 0, from),
                    esp_i_shape_product(y, to, y->rank));
}

static void eltwise_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    const esp_i_shape_t *y = &op->out[0];
    int32_t from = -1, last = -1; /* the run in hand; axes of extent 1 do not interrupt it */
    if (esp_i_op_empty(op))
        return;
    for (int32_t axis = 0; axis < y->rank; axis++) {
        if (y->dims[axis] == 1)
            continue;
        if (from >= 0 && !alike(op, last, axis)) {
            declare(op, from, last + 1, dims);
            from = -1;
        }
        from = from < 0 ? axis : from;
        last = axis;
    }
    if (from >= 0)
        declare(op, from, last + 1, dims);
}

static int32_t eltwise_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    /* one set per code; MUL alone has two */
    static const uint8_t sets[ESP_ELT_COUNT] = {
        [ESP_ELT_SUB] = 3,
        [ESP_ELT_MUL] = 1,
        [ESP_ELT_DIV] = 1,
        [ESP_ELT_DIV_NO_NAN] = 1,
        [ESP_ELT_NEG] = 1,
        [ESP_ELT_RELU_GRAD] = 2,
        [ESP_ELT_LEAKY_RELU_GRAD] = 2,
        [ESP_ELT_CLIP_GRAD] = 2,
        [ESP_ELT_SIGMOID_GRAD] = 2,
        [ESP_ELT_TANH_GRAD] = 2,
        [ESP_ELT_SILU_GRAD] = 2,
        [ESP_ELT_GELU_GRAD] = 2,
        [ESP_ELT_GELU_TANH_GRAD] = 2,
        [ESP_ELT_HARD_SIGMOID_GRAD] = 2,
        [ESP_ELT_HARD_SWISH_GRAD] = 2,
        [ESP_ELT_ELU_GRAD] = 2,
        [ESP_ELT_WHERE] = 6,
    };
    esp_eltwise_t code = op->attr->eltwise.code;
    if (!esp_dtype_is_float(op->out[0].dtype))
        return 0; /* integers are R or S: a sum of addends may wrap, division rounds */
    masks_out[0] = sets[code];
    masks_out[1] = 2;
    if (code == ESP_ELT_ADD)
        masks_out[0] = op->n_in >= 64 ? UINT64_MAX : ((uint64_t)1 << op->n_in) - 1;
    if (code == ESP_ELT_AFFINE)
        masks_out[0] = op->attr->eltwise.beta == 0;
    return masks_out[0] == 0 ? 0 : code == ESP_ELT_MUL ? 2 : 1;
}

static double eltwise_flops(const esp_i_op_t *op)
{
    esp_eltwise_t code = op->attr->eltwise.code;
    double per_element = code_infos[code].flop;
    if (code == ESP_ELT_ADD)
        per_element *= op->n_in - 1;
    return per_element * (double)esp_i_shape_elements(&op->out[0]);
}

/* ---- kernel
 * --------------------------------------------------------------------------------------- */

/* y is the last operand; the inputs given share its nest, with the split of y applied. */
static void make_walk(const esp_i_buffer_t *const *inputs, int32_t n, const esp_i_buffer_t *y,
                      esp_i_walk_t *walk_out)
{
    esp_i_nest_t nest = {.n_operands = n + 1};
    for (int32_t axis = 0; axis < y->global_rank; axis++) {
        int32_t loop = esp_i_nest_loop(&nest, y->global[axis]);
        for (int32_t i = 0; i < n; i++)
            if (has_axis(inputs[i]->global_rank, inputs[i]->global, y->global_rank, y->global,
                         axis))
                esp_i_nest_axis(&nest, i, loop);
        esp_i_nest_axis(&nest, n, loop);
    }
    esp_i_nest_merge(&nest);
    esp_i_nest_split(&nest, n, y);
    esp_i_nest_walk(&nest, walk_out);
}

static void add_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *y = &kernel->out[0];
    esp_i_walk_t walk;
    esp_i_zero(y);
    for (int32_t i = 0; i < kernel->n_in; i++) {
        const esp_i_buffer_t *x = &kernel->in[i];
        make_walk(&x, 1, y, &walk);
        for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk))
            y->data[walk.offset[1]] += x->data[walk.offset[0]];
    }
}

static void eltwise_kernel(const esp_i_kernel_t *kernel)
{
    if (kernel->attr->eltwise.code == ESP_ELT_ADD) {
        add_kernel(kernel);
        return;
    }
    const esp_i_buffer_t *y = &kernel->out[0], *inputs[3];
    int32_t n = kernel->n_in;
    for (int32_t i = 0; i < n; i++)
        inputs[i] = &kernel->in[i];
    esp_i_elt_args_t args = {.alpha = kernel->attr->eltwise.alpha,
                             .beta = kernel->attr->eltwise.beta,
                             .whole = !esp_dtype_is_float(kernel->out_dtype[0])};
    esp_i_walk_t walk;
    make_walk(inputs, n, y, &walk);
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk)) {
        for (int32_t i = 0; i < n; i++)
            args.x[i] = inputs[i]->data[walk.offset[i]];
        y->data[walk.offset[n]] = esp_i_elt_value(kernel->attr->eltwise.code, &args);
    }
}

const esp_i_kind_t esp_i_kind_ELTWISE = {
    .name = "eltwise",
    .min_in = 1,
    .max_in = INT32_MAX,
    .n_out = 1,
    .family = ESP_FAMILY_MEMORY,
    .infer = eltwise_infer,
    .dims = eltwise_dims,
    .linear = eltwise_linear,
    .flops = eltwise_flops,
    .gradient = esp_i_elt_gradient,
    .kernel = eltwise_kernel,
};
