/* CONTRACT: einsum of two operands. Every label is a loop. */
#include "graph/kinds/contract.h"

/* The labels of an op, numbered in order of first appearance in a, b, y. */
typedef struct labels {
    int32_t n;
    int8_t name[3 * ESP_MAX_RANK];
    int64_t extent[3 * ESP_MAX_RANK];
    bool in[3 * ESP_MAX_RANK][3]; /* whether a, b, y have it */
} labels_t;

static const int8_t *label_list(const esp_attr_t *attr, int32_t operand)
{
    return operand == 0 ? attr->contract.a : operand == 1 ? attr->contract.b : attr->contract.y;
}

static int32_t label_find(const labels_t *labels, int8_t name)
{
    for (int32_t l = 0; l < labels->n; l++)
        if (labels->name[l] == name)
            return l;
    return -1;
}

/* Collects the labels of one operand; dims is NULL for y, whose extents follow. */
static void labels_add(labels_t *labels, int32_t operand, const int8_t *list, int32_t rank,
                       const int64_t *dims)
{
    for (int32_t a = 0; a < rank; a++) {
        int32_t l = label_find(labels, list[a]);
        if (l < 0) {
            l = labels->n++;
            labels->name[l] = list[a];
            labels->extent[l] = dims ? dims[a] : 0;
        }
        labels->in[l][operand] = true;
    }
}

static esp_status_t check_operand(labels_t *labels, const esp_i_op_t *op, int32_t operand,
                                  esp_diag_t *diag)
{
    const int8_t *list = label_list(op->attr, operand);
    const esp_i_shape_t *shape = &op->in[operand];
    for (int32_t a = 0; a < shape->rank; a++) {
        for (int32_t before = 0; before < a; before++)
            if (list[before] == list[a])
                return esp_i_fail(diag, ESP_ERR_UNSUPPORTED,
                                  "axes %d and %d of input %d have the same label", (int)before,
                                  (int)a, (int)operand);
        int32_t l = label_find(labels, list[a]);
        if (l >= 0 && labels->extent[l] != shape->dims[a]) {
            int32_t axis = 0; /* only input 0 came before */
            while (op->attr->contract.a[axis] != list[a])
                axis++;
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "axis %d has %lld in input 0 and axis %d has %lld in input 1",
                              (int)axis, (long long)labels->extent[l], (int)a,
                              (long long)shape->dims[a]);
        }
    }
    labels_add(labels, operand, list, shape->rank, shape->dims);
    return ESP_OK;
}

static int32_t output_rank(const esp_attr_t *attr)
{
    int32_t rank = 0;
    while (rank < ESP_MAX_RANK && attr->contract.y[rank] > 0)
        rank++;
    return rank;
}

static esp_status_t check_labels(const esp_i_op_t *op, esp_diag_t *diag)
{
    for (int32_t i = 0; i < 2; i++) {
        const int8_t *list = label_list(op->attr, i);
        int32_t rank = 0;
        while (rank < ESP_MAX_RANK && list[rank] > 0)
            rank++;
        if (rank != op->in[i].rank)
            return esp_i_fail(diag, ESP_ERR_INVALID, "input %d has %d axes and %d labels", (int)i,
                              (int)op->in[i].rank, (int)rank);
    }
    return ESP_OK;
}

static esp_status_t contract_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    labels_t labels = {0};
    ESP_TRY(check_labels(op, diag));
    ESP_TRY(esp_i_check_dtypes(op, 0, 2, diag));
    ESP_TRY(esp_i_check_number(op, 0, diag));
    ESP_TRY(check_operand(&labels, op, 0, diag));
    ESP_TRY(check_operand(&labels, op, 1, diag));
    if (labels.n > ESP_MAX_LABELS)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "%d labels where %d are the limit", (int)labels.n,
                          ESP_MAX_LABELS);
    const int8_t *list = op->attr->contract.y;
    esp_i_shape_t *y = &op->out[0];
    y->dtype = op->in[0].dtype;
    y->rank = output_rank(op->attr);
    for (int32_t a = 0; a < y->rank; a++) {
        int32_t l = label_find(&labels, list[a]);
        if (l < 0)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "axis %d of the output has a label that no "
                              "input has",
                              (int)a);
        if (labels.in[l][2])
            return esp_i_fail(diag, ESP_ERR_UNSUPPORTED, "axis %d of the output repeats a label",
                              (int)a);
        labels.in[l][2] = true;
        y->dims[a] = labels.extent[l];
    }
    return esp_i_check_shape(y, diag);
}

/* The merged nest; operands a, b, y. Global shapes of a and b come as ranks and dims. */
static void contract_nest(const esp_attr_t *attr, const int32_t rank[2],
                          const int64_t *const dims[2], esp_i_nest_t *nest_out)
{
    labels_t labels = {0};
    labels_add(&labels, 2, attr->contract.y, output_rank(attr), NULL); /* loops of y come first */
    for (int32_t i = 0; i < 2; i++) {
        const int8_t *list = label_list(attr, i);
        labels_add(&labels, i, list, rank[i], dims[i]);
        for (int32_t a = 0; a < rank[i]; a++)
            labels.extent[label_find(&labels, list[a])] = dims[i][a];
    }
    *nest_out = (esp_i_nest_t){.n_operands = 3};
    for (int32_t l = 0; l < labels.n; l++)
        (void)esp_i_nest_loop(nest_out, labels.extent[l]);
    for (int32_t o = 0; o < 3; o++) {
        const int8_t *list = label_list(attr, o);
        int32_t n = o < 2 ? rank[o] : output_rank(attr);
        for (int32_t a = 0; a < n; a++)
            esp_i_nest_axis(nest_out, o, label_find(&labels, list[a]));
    }
    esp_i_nest_merge(nest_out);
}

static void contract_op_nest(const esp_i_op_t *op, esp_i_nest_t *nest_out)
{
    const int32_t rank[2] = {op->in[0].rank, op->in[1].rank};
    const int64_t *const dims[2] = {op->in[0].dims, op->in[1].dims};
    contract_nest(op->attr, rank, dims, nest_out);
}

static void contract_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    esp_i_nest_t nest;
    if (esp_i_op_empty(op))
        return;
    contract_op_nest(op, &nest);
    esp_i_nest_dims(&nest, 2, true, dims);
}

static int32_t contract_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    (void)op;
    masks_out[0] = 1;
    masks_out[1] = 2;
    return 2;
}

static double contract_flops(const esp_i_op_t *op)
{
    esp_i_nest_t nest;
    contract_op_nest(op, &nest);
    double flops = 2;
    for (int32_t l = 0; l < nest.n_loops; l++)
        flops *= (double)nest.extent[l];
    return flops;
}

/* ---- gradient
 * ------------------------------------------------------------------------------------ */

static bool list_has(const int8_t *list, int8_t name)
{
    for (int32_t a = 0; a < ESP_MAX_RANK && list[a] > 0; a++)
        if (list[a] == name)
            return true;
    return false;
}

/* Stretches `part`, which lacks the axes of x that y and the other input lack, to the shape of x.
 */
static esp_status_t stretch(const esp_i_grad_t *grad, int32_t input, const int8_t *kept,
                            esp_tensor_id_t part)
{
    const esp_i_shape_t *x = &grad->op->in[input];
    const int8_t *list = label_list(grad->op->attr, input);
    esp_attr_t attr = {0};
    int64_t dims[ESP_MAX_RANK] = {0};
    esp_tensor_id_t with_ones;
    for (int32_t a = 0; a < x->rank; a++) {
        attr.shape.dims[a] = x->dims[a];
        dims[a] = list_has(kept, list[a]) ? x->dims[a] : 1;
    }
    attr.shape.rank = x->rank;
    ESP_TRY(
        esp_i_make_reshape(grad->builder, part, x->rank, dims, grad->name, &with_ones, grad->diag));
    return esp_i_make(grad->builder, ESP_KIND_EXPAND, &attr, 1, &with_ones, grad->name,
                      &grad->dx[input], grad->diag);
}

/* The gradient of an input contracts dy with the other input to the labels of that input. */
static esp_status_t input_gradient(const esp_i_grad_t *grad, int32_t input)
{
    const esp_attr_t *forward = grad->op->attr;
    const int8_t *own = label_list(forward, input), *other = label_list(forward, 1 - input);
    esp_attr_t attr = {0};
    int32_t rank = 0;
    for (int32_t a = 0; a < ESP_MAX_RANK; a++) {
        attr.contract.a[a] = input == 0 ? forward->contract.y[a] : other[a];
        attr.contract.b[a] = input == 0 ? other[a] : forward->contract.y[a];
    }
    for (int32_t a = 0; a < grad->op->in[input].rank; a++)
        if (list_has(forward->contract.y, own[a]) || list_has(other, own[a]))
            attr.contract.y[rank++] = own[a];
    const esp_tensor_id_t inputs[2] = {input == 0 ? grad->dy[0] : grad->in[0],
                                       input == 0 ? grad->in[1] : grad->dy[0]};
    esp_tensor_id_t part;
    ESP_TRY(esp_i_make(grad->builder, ESP_KIND_CONTRACT, &attr, 2, inputs, grad->name, &part,
                       grad->diag));
    if (rank < grad->op->in[input].rank)
        return stretch(grad, input, attr.contract.y, part);
    grad->dx[input] = part;
    return ESP_OK;
}

static esp_status_t contract_gradient(const esp_i_grad_t *grad)
{
    for (int32_t i = 0; i < 2; i++)
        if (grad->need[i])
            ESP_TRY(input_gradient(grad, i));
    return ESP_OK;
}

/* ---- kernel
 * -------------------------------------------------------------------------------------- */

void esp_i_contract_walk(const esp_attr_t *attr, const esp_i_buffer_t *a, const esp_i_buffer_t *b,
                         esp_i_walk_t *walk_out)
{
    const int32_t rank[2] = {a->global_rank, b->global_rank};
    const int64_t *const dims[2] = {a->global, b->global};
    esp_i_nest_t nest;
    contract_nest(attr, rank, dims, &nest);
    esp_i_nest_split(&nest, 0, a);
    esp_i_nest_split(&nest, 1, b);
    esp_i_nest_walk(&nest, walk_out);
}

static void contract_kernel(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *a = &kernel->in[0], *b = &kernel->in[1], *y = &kernel->out[0];
    esp_i_walk_t walk;
    esp_i_contract_walk(kernel->attr, a, b, &walk);
    esp_i_zero(y);
    for (bool more = esp_i_walk_begin(&walk); more; more = esp_i_walk_next(&walk))
        y->data[walk.offset[2]] += a->data[walk.offset[0]] * b->data[walk.offset[1]];
}

const esp_i_kind_t esp_i_kind_CONTRACT = {
    .name = "contract",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .family = ESP_FAMILY_CONTRACT,
    .infer = contract_infer,
    .dims = contract_dims,
    .linear = contract_linear,
    .flops = contract_flops,
    .gradient = contract_gradient,
    .kernel = contract_kernel,
};
