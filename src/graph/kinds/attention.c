/*
 * Attention: y = dropout(softmax(scale q k + mask)) v, row by row of the scores, which are never
 * held as a whole. q, k, v and y lie as an einsum says: [batch, heads, length, depth] and
 * [length, batch, heads, depth] are the same op with other labels, no copy between.
 *
 * Saved for the gradient: the largest score of each row, and the sum of exp(score - largest). With
 * them a weight is computed again from its score alone. They are two numbers, not the logarithm of
 * the sum added to the largest, because that loses the sum where all of a row is hidden by -1e38.
 *
 * Samples and heads, whatever is in q, k, v and y, are loop dimensions. Queries would be, but are
 * not offered: the gradient would have to gather what each device adds to dk and dv.
 */
#include "graph/kinds/attention.h"
#include "graph/kinds/nest.h"

#include <math.h>
#include <string.h>

enum { Q = ESP_I_ATT_Q, K, V, MASK, Y, ROW, LAYOUTS };
enum { QUERY = ESP_I_ATT_QUERY, KEY, DEPTH, WIDTH, RUNS };
enum { MASK_IN = ESP_I_ATT_MASK_IN };
enum { G_Y = ESP_I_ATT_G_Y, G_TOP, G_SUM, G_DY, G_MASK };

static const int8_t layout_of_input[] = {Q, K, V, MASK};
static const int8_t layout_of_output[] = {Y, ROW, ROW};
static const int8_t layout_of_grad_input[] = {Q, K, V, Y, ROW, ROW, Y, MASK};
static const int8_t layout_of_grad_output[] = {Q, K, V, MASK};

/* ---- axes -------------------------------------------------------------------------------- */

static int32_t length(const int8_t *list)
{
    int32_t n = 0;
    while (n < ESP_MAX_RANK && list[n] > 0)
        n++;
    return n;
}

static int32_t find(const int8_t *list, int32_t n, int8_t label)
{
    for (int32_t i = 0; i < n; i++)
        if (list[i] == label)
            return i;
    return -1;
}

static const int8_t *list_of(const esp_attr_t *attr, int32_t layout)
{
    return layout == Q   ? attr->attention.q
           : layout == K ? attr->attention.k
           : layout == V ? attr->attention.v
           : layout == Y ? attr->attention.y
                         : attr->attention.s;
}

/* The one label of `list` that `other` lacks; 0: there is none, or several. */
static int8_t lacking(const int8_t *list, int32_t n, const int8_t *other)
{
    int8_t label = 0;
    for (int32_t i = 0; i < n; i++) {
        if (find(other, length(other), list[i]) >= 0)
            continue;
        if (label != 0)
            return 0;
        label = list[i];
    }
    return label;
}

/* The list is the batch labels and these two, in any order. */
static bool is_layout(const esp_i_att_t *att, const int8_t *list, int32_t role0, int32_t role1)
{
    const int32_t n = length(list);
    for (int32_t i = RUNS; i < att->n; i++)
        if (find(list, n, att->label[i]) < 0)
            return false;
    return n == att->n - RUNS + 2 && find(list, n, att->label[role0]) >= 0 &&
           find(list, n, att->label[role1]) >= 0;
}

/* Which label is what. */
static bool find_labels(const esp_attr_t *attr, esp_i_att_t *att)
{
    const int8_t *s = attr->attention.s, *k = attr->attention.k;
    const int32_t n = length(s);
    if (n < 2)
        return false;
    *att = (esp_i_att_t){.n = RUNS};
    att->label[KEY] = s[n - 1];
    att->label[QUERY] = lacking(s, n - 1, k);
    att->label[DEPTH] = lacking(attr->attention.q, length(attr->attention.q), s);
    att->label[WIDTH] = lacking(attr->attention.v, length(attr->attention.v), s);
    for (int32_t i = 0; i < n - 1; i++)
        if (s[i] != att->label[QUERY])
            att->label[att->n++] = s[i];
    for (int32_t i = 0; i < att->n; i++)
        if (att->label[i] == 0 || find(att->label, i, att->label[i]) >= 0)
            return false;
    return is_layout(att, attr->attention.q, QUERY, DEPTH) && is_layout(att, k, KEY, DEPTH) &&
           is_layout(att, attr->attention.v, KEY, WIDTH) &&
           is_layout(att, attr->attention.y, QUERY, WIDTH);
}

/* Extents of q, k or v: the same for the same label. */
static esp_status_t find_extents(const esp_attr_t *attr, const esp_i_att_shapes_t *shapes,
                                 int32_t layout, esp_i_att_t *att, esp_diag_t *diag)
{
    static const char *const names[3] = {"q", "k", "v"};
    const int8_t *list = list_of(attr, layout);
    if (shapes->rank[layout] != length(list))
        return esp_i_fail(diag, ESP_ERR_INVALID, "%s has %d axes and %d labels", names[layout],
                          (int)shapes->rank[layout], (int)length(list));
    for (int32_t a = 0; a < shapes->rank[layout]; a++) {
        int64_t *extent = &att->extent[find(att->label, att->n, list[a])];
        const int64_t given = shapes->dims[layout][a];
        if (*extent >= 0 && *extent != given)
            return esp_i_fail(diag, ESP_ERR_INVALID, "axis %d of %s has %lld where %lld is needed",
                              (int)a, names[layout], (long long)given, (long long)*extent);
        *extent = given;
    }
    return ESP_OK;
}

static esp_status_t check_mask(const esp_attr_t *attr, const esp_i_att_shapes_t *shapes,
                               const esp_i_att_t *att, esp_diag_t *diag)
{
    const int32_t rank = shapes->rank[MASK], lead = length(attr->attention.s) - rank;
    if (lead < 0)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the mask has %d axes, the scores have %d",
                          (int)rank, (int)length(attr->attention.s));
    for (int32_t a = 0; a < rank; a++) {
        const int8_t label = attr->attention.s[lead + a];
        const int64_t given = shapes->dims[MASK][a],
                      extent = att->extent[find(att->label, att->n, label)];
        if (given != 1 && given != extent)
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              "axis %d of the mask has %lld where 1 or %lld is needed", (int)a,
                              (long long)given, (long long)extent);
    }
    return ESP_OK;
}

esp_status_t esp_i_att_axes(const esp_attr_t *attr, const esp_i_att_shapes_t *shapes,
                            esp_i_att_t *att_out, esp_diag_t *diag)
{
    if (!find_labels(attr, att_out))
        return esp_i_fail(diag, ESP_ERR_INVALID, "the labels of q, k, v, y and s are no attention");
    for (int32_t i = 0; i < att_out->n; i++)
        att_out->extent[i] = -1;
    for (int32_t layout = Q; layout <= V; layout++)
        ESP_TRY(find_extents(attr, shapes, layout, att_out, diag));
    if (att_out->extent[KEY] < 1)
        return esp_i_fail(diag, ESP_ERR_INVALID, "there are no keys");
    return shapes->rank[MASK] < 0 ? ESP_OK : check_mask(attr, shapes, att_out, diag);
}

/* Strides of one layout, from its last axis on. `dims`: extents where they may be 1 instead. */
static void set_strides(esp_i_att_t *att, int32_t layout, const int8_t *list, int32_t n,
                        const int64_t *dims)
{
    int64_t stride = 1;
    for (int32_t a = n - 1; a >= 0; a--) {
        const int32_t axis = find(att->label, att->n, list[a]);
        const bool broadcast = dims && dims[a] != att->extent[axis];
        att->stride[axis][layout] = broadcast ? 0 : stride;
        stride *= broadcast ? 1 : att->extent[axis];
    }
}

/* Axis `outer` goes on where axis `inner` ends, in every layout. */
static bool side_by_side(const esp_i_att_t *att, int32_t outer, int32_t inner)
{
    for (int32_t layout = 0; layout < LAYOUTS; layout++)
        if (att->stride[outer][layout] != att->extent[inner] * att->stride[inner][layout])
            return false;
    return true;
}

void esp_i_att_runs(const esp_attr_t *attr, const esp_i_att_shapes_t *shapes, esp_i_att_t *att)
{
    const int32_t n = length(attr->attention.s), lead = n - shapes->rank[MASK];
    static const int8_t layouts[] = {Q, K, V, Y};
    for (int32_t i = 0; i < 4; i++)
        set_strides(att, layouts[i], list_of(attr, layouts[i]), length(list_of(attr, layouts[i])),
                    NULL);
    set_strides(att, ROW, attr->attention.s, n - 1, NULL);
    if (shapes->rank[MASK] >= 0)
        set_strides(att, MASK, attr->attention.s + lead, shapes->rank[MASK], shapes->dims[MASK]);
    int32_t used = RUNS;
    for (int32_t i = RUNS; i < att->n; i++) {
        if (att->extent[i] == 1)
            continue;
        const bool merged = used > RUNS && side_by_side(att, used - 1, i);
        const int32_t to = merged ? used - 1 : used++;
        att->extent[to] = att->extent[i] * (merged ? att->extent[to] : 1);
        memcpy(att->stride[to], att->stride[i], sizeof att->stride[i]);
    }
    att->n = used;
}

int64_t esp_i_att_elements(const esp_i_att_t *att, int32_t layout)
{
    int64_t elements = 1;
    for (int32_t i = 0; i < att->n; i++)
        elements *= att->stride[i][layout] > 0 ? att->extent[i] : 1;
    return elements;
}

/* ---- inference --------------------------------------------------------------------------- */

static esp_i_att_shapes_t shapes_of(const esp_i_op_t *op, int32_t mask)
{
    const bool masked = esp_i_op_has(op, mask);
    esp_i_att_shapes_t shapes = {.rank[MASK] = masked ? op->in[mask].rank : -1,
                                 .dims[MASK] = masked ? op->in[mask].dims : NULL};
    for (int32_t i = Q; i <= V; i++) {
        shapes.rank[i] = op->in[i].rank;
        shapes.dims[i] = op->in[i].dims;
    }
    return shapes;
}

static esp_i_shape_t shape_of(const esp_attr_t *attr, const esp_i_att_t *att, int32_t layout,
                              esp_dtype_t dtype)
{
    const int8_t *list = list_of(attr, layout);
    esp_i_shape_t shape = {.dtype = dtype, .rank = length(list) - (layout == ROW)};
    for (int32_t a = 0; a < shape.rank; a++)
        shape.dims[a] = att->extent[find(att->label, att->n, list[a])];
    return shape;
}

/* All that the two kinds have in common. */
static esp_status_t check(const esp_i_op_t *op, int32_t mask, esp_i_att_t *att, esp_diag_t *diag)
{
    static const char *const names[3] = {"q", "k", "v"};
    const esp_dtype_t dtype = op->in[Q].dtype;
    const esp_i_att_shapes_t shapes = shapes_of(op, mask);
    for (int32_t i = Q; i <= V; i++) {
        ESP_TRY(esp_i_operand_float(op, i, names[i], diag));
        if (op->in[i].dtype != dtype)
            return esp_i_fail(diag, ESP_ERR_INVALID, "%s is of type %s and q of type %s", names[i],
                              esp_dtype_name(op->in[i].dtype), esp_dtype_name(dtype));
    }
    if (esp_i_op_has(op, mask) && op->in[mask].dtype != dtype &&
        op->in[mask].dtype != ESP_DTYPE_BOOL)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the mask is of type %s, neither bool nor %s",
                          esp_dtype_name(op->in[mask].dtype), esp_dtype_name(dtype));
    if (!(op->attr->attention.p >= 0 && op->attr->attention.p < 1))
        return esp_i_fail(diag, ESP_ERR_INVALID, "dropout probability %g is not in [0, 1)",
                          op->attr->attention.p);
    return esp_i_att_axes(op->attr, &shapes, att, diag);
}

static esp_status_t attention_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    esp_i_att_t att;
    ESP_TRY(check(op, MASK_IN, &att, diag));
    op->out[0] = shape_of(op->attr, &att, Y, op->in[Q].dtype);
    op->out[1] = shape_of(op->attr, &att, ROW, esp_i_operand_sum_dtype(op->in[Q].dtype));
    op->out[2] = op->out[1];
    return ESP_OK;
}

static int32_t grad_outputs(const esp_attr_t *attr)
{
    return attr->attention.dmask ? 4 : 3;
}

static esp_status_t grad_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    static const char *const names[] = {"q", "k", "v", "y", "top", "sum", "dy"};
    esp_i_att_t att;
    ESP_TRY(check(op, G_MASK, &att, diag));
    for (int32_t i = G_Y; i <= G_DY; i++) {
        const esp_i_shape_t shape =
            shape_of(op->attr, &att, layout_of_grad_input[i], op->in[Q].dtype);
        ESP_TRY(esp_i_operand_float(op, i, names[i], diag));
        ESP_TRY(esp_i_operand_shape(op, i, names[i], shape.rank, shape.dims, diag));
    }
    for (int32_t i = Q; i <= V; i++)
        op->out[i] = op->in[i];
    if (!op->attr->attention.dmask)
        return ESP_OK;
    if (!esp_i_op_has(op, G_MASK) || op->in[G_MASK].dtype == ESP_DTYPE_BOOL)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the gradient of a mask that is not added");
    op->out[3] = op->in[G_MASK];
    return ESP_OK;
}

/* ---- factors and cost -------------------------------------------------------------------- */

/* One dimension per run. `in` and `out`: the layouts of the operands. */
static void declare(const esp_i_op_t *op, int32_t mask, const int8_t *in, const int8_t *out,
                    esp_i_dims_t *dims)
{
    esp_i_att_t att;
    const esp_i_att_shapes_t shapes = shapes_of(op, mask);
    if (esp_i_op_empty(op) || esp_i_att_axes(op->attr, &shapes, &att, NULL) != ESP_OK)
        return; /* nothing to split; the latter infer refuses */
    esp_i_att_runs(op->attr, &shapes, &att);
    for (int32_t run = RUNS; run < att.n; run++) {
        const int64_t extent = att.extent[run];
        esp_i_dims_open(dims, extent, 1);
        for (int32_t i = 0; i < op->n_in + op->n_out; i++) {
            const int32_t layout = i < op->n_in ? in[i] : out[i - op->n_in];
            const int64_t inner = att.stride[run][layout];
            const int64_t elements = esp_i_att_elements(&att, layout);
            if (inner > 0)
                esp_i_dims_bind(dims, i, ESP_BIND_CARRY, elements / (extent * inner), inner);
            else if (i >= op->n_in)
                esp_i_dims_bind(dims, i, ESP_BIND_SUM, 1, 1);
        }
    }
}

static void attention_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(op, MASK_IN, layout_of_input, layout_of_output, dims);
}

static void grad_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    declare(op, G_MASK, layout_of_grad_input, layout_of_grad_output, dims);
}

/* Attention is not linear in v: what it saves of a row does not depend on v. */
static int32_t grad_linear(const esp_i_op_t *op, uint64_t masks_out[4])
{
    (void)op;
    masks_out[0] = 1u << G_DY;
    return 1;
}

/* `depths` contractions over the depth of q and k and `widths` over that of v, per score. */
static double flops(const esp_i_op_t *op, int32_t mask, double depths, double widths, double rest)
{
    esp_i_att_t att;
    const esp_i_att_shapes_t shapes = shapes_of(op, mask);
    if (esp_i_att_axes(op->attr, &shapes, &att, NULL) != ESP_OK)
        return 0;
    double scores = (double)att.extent[QUERY] * (double)att.extent[KEY];
    for (int32_t i = RUNS; i < att.n; i++)
        scores *= (double)att.extent[i];
    return scores *
           (2 * depths * (double)att.extent[DEPTH] + 2 * widths * (double)att.extent[WIDTH] + rest);
}

static double attention_flops(const esp_i_op_t *op)
{
    return flops(op, MASK_IN, 1, 1, 14);
}

/* The scores again, dq and dk; the gradient of the weights and dv. */
static double grad_flops(const esp_i_op_t *op)
{
    return flops(op, G_MASK, 3, 2, 16);
}

/* ---- gradient ---------------------------------------------------------------------------- */

static esp_status_t attention_gradient(const esp_i_grad_t *grad)
{
    const esp_i_op_t *op = grad->op;
    const bool masked = esp_i_op_has(op, MASK_IN);
    const bool dmask = masked && grad->need[MASK_IN] && op->in[MASK_IN].dtype != ESP_DTYPE_BOOL;
    if (grad->dy[1] != ESP_NONE || grad->dy[2] != ESP_NONE)
        return esp_i_fail(grad->diag, ESP_ERR_UNSUPPORTED,
                          "the loss depends on what attention saves of its scores");
    if (grad->dy[0] == ESP_NONE || !(grad->need[Q] || grad->need[K] || grad->need[V] || dmask))
        return ESP_OK;
    esp_attr_t attr = *op->attr;
    attr.attention.dmask = dmask;
    const esp_tensor_id_t inputs[8] = {
        grad->in[Q],  grad->in[K],  grad->in[V], grad->out[0],
        grad->out[1], grad->out[2], grad->dy[0], masked ? grad->in[MASK_IN] : ESP_NONE};
    esp_tensor_id_t d[4] = {ESP_NONE, ESP_NONE, ESP_NONE, ESP_NONE};
    ESP_TRY(esp_i_make(grad->builder, ESP_KIND_ATTENTION_GRAD, &attr, 8, inputs, grad->name, d,
                       grad->diag));
    for (int32_t i = Q; i <= V; i++)
        if (grad->need[i])
            grad->dx[i] = d[i];
    if (dmask)
        grad->dx[MASK_IN] = d[3];
    return ESP_OK;
}

const esp_i_kind_t esp_i_kind_ATTENTION = {
    .name = "attention",
    .min_in = 3,
    .max_in = 4,
    .n_out = 3,
    .flags = ESP_I_KIND_RANDOM,
    .family = ESP_FAMILY_CONTRACT,
    .infer = attention_infer,
    .dims = attention_dims,
    .flops = attention_flops,
    .gradient = attention_gradient,
    .kernel = esp_i_att_kernel,
};

const esp_i_kind_t esp_i_kind_ATTENTION_GRAD = {
    .name = "attention_grad",
    .min_in = 7,
    .max_in = 8,
    .n_out = 4,
    .flags = ESP_I_KIND_RANDOM,
    .family = ESP_FAMILY_CONTRACT,
    .outputs = grad_outputs,
    .infer = grad_infer,
    .dims = grad_dims,
    .linear = grad_linear,
    .flops = grad_flops,
    .kernel = esp_i_att_grad_kernel,
};
