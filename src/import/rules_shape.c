/* Shapes as data, constants, branches: what exists on the host only. */
#include "import/rules.h"

#include <math.h>
#include <string.h>

/* ---- Shape, Size ----------------------------------------------------------------------------- */

/* An int64 value with another content at the batch of the file. */
static esp_status_t two_sided(esp_i_node_t *node, int64_t n, int32_t rank, const int64_t *now,
                              const int64_t *file)
{
    esp_i_konst_t *k[2];
    for (int32_t side = 0; side < 2; side++) {
        ESP_TRY(esp_i_im_konst_new(node->im, ESP_DTYPE_I64, rank, &n, &k[side]));
        if (k[side] == NULL)
            return esp_i_fail(node->diag, ESP_ERR_LIMIT, "too many constants");
        memcpy(k[side]->i, side == 0 ? now : file, (size_t)n * sizeof *now);
    }
    ESP_TRY(esp_i_im_value_known(node, k[0], &node->out[0]));
    if (memcmp(now, file, (size_t)n * sizeof *now) != 0)
        node->out[0]->baked = k[1];
    return ESP_OK;
}

esp_status_t esp_i_rule_shape(esp_i_node_t *node)
{
    int64_t start, end, file_dims[ESP_MAX_RANK];
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    const esp_i_value_t *x = node->in[0];
    ESP_TRY(esp_i_im_attr_int(node, "start", 0, &start));
    ESP_TRY(esp_i_im_attr_int(node, "end", x->rank, &end));
    esp_i_im_track_file_dims(node->im, x, file_dims);
    start = esp_i_max_i64(0, esp_i_min_i64(start < 0 ? start + x->rank : start, x->rank));
    end = esp_i_max_i64(start, esp_i_min_i64(end < 0 ? end + x->rank : end, x->rank));
    return two_sided(node, end - start, 1, x->dims + start, file_dims + start);
}

esp_status_t esp_i_rule_size(esp_i_node_t *node)
{
    int64_t file_dims[ESP_MAX_RANK], now, file = 1;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    const esp_i_value_t *x = node->in[0];
    esp_i_im_track_file_dims(node->im, x, file_dims);
    now = esp_i_im_extent(x, 0, x->rank);
    for (int32_t d = 0; d < x->rank; d++)
        file *= file_dims[d];
    return two_sided(node, 1, 0, &now, &file);
}

/* ---- constants ------------------------------------------------------------------------------- */

/* The scalar and list forms: value_int, value_ints, value_float, value_floats. */
static esp_status_t constant_of_numbers(esp_i_node_t *node)
{
    enum { MAX_LIST = 1024 };
    static const char *const scalars[2] = {"value_int", "value_float"};
    static const char *const lists[2] = {"value_ints", "value_floats"};
    esp_i_pb_attribute_t attr;
    bool found;
    for (int32_t f = 0; f < 2; f++) {
        ESP_TRY(
            esp_i_im_attr_find(node, scalars[f], f ? ESP_I_PB_FLOAT : ESP_I_PB_INT, &attr, &found));
        if (found && f == 0)
            return two_sided(node, 1, 0, &attr.i, &attr.i);
        if (found)
            return esp_i_im_scalar(node, ESP_DTYPE_F32, (double)attr.f, &node->out[0]);
        ESP_TRY(
            esp_i_im_attr_find(node, lists[f], f ? ESP_I_PB_FLOATS : ESP_I_PB_INTS, &attr, &found));
        if (!found)
            continue;
        int64_t numbers[MAX_LIST], n;
        double reals[MAX_LIST];
        int32_t count;
        if (f == 0)
            ESP_TRY(esp_i_im_attr_ints(node, lists[f], MAX_LIST, numbers, &count));
        else
            ESP_TRY(esp_i_im_attr_floats(node, lists[f], MAX_LIST, reals, &count));
        esp_i_konst_t *k;
        n = count;
        ESP_TRY(esp_i_im_konst_new(node->im, f == 0 ? ESP_DTYPE_I64 : ESP_DTYPE_F32, 1, &n, &k));
        if (k == NULL)
            return esp_i_fail(node->diag, ESP_ERR_LIMIT, "too many constants");
        if (f == 0)
            memcpy(k->i, numbers, (size_t)n * sizeof *numbers);
        else
            memcpy(k->f, reals, (size_t)n * sizeof *reals);
        return esp_i_im_value_known(node, k, &node->out[0]);
    }
    return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                      "a constant that is neither a tensor nor numbers");
}

esp_status_t esp_i_rule_constant(esp_i_node_t *node)
{
    esp_i_pb_attribute_t attr;
    bool found;
    ESP_TRY(esp_i_im_attr_find(node, "value", ESP_I_PB_TENSOR, &attr, &found));
    if (!found)
        return constant_of_numbers(node);
    esp_i_str_t name;
    ESP_TRY(esp_i_im_literal_value(node->im, attr.t, false, &name, &node->out[0]));
    node->out[0]->name = node->name;
    return ESP_OK;
}

/* The fill of a ConstantOfShape: float 0 unless the node says otherwise. */
static esp_status_t read_fill(esp_i_node_t *node, esp_dtype_t *dtype, double *value)
{
    esp_i_pb_attribute_t attr;
    bool found;
    const esp_i_konst_t *k;
    esp_i_value_t *literal;
    esp_i_str_t name;
    *dtype = ESP_DTYPE_F32;
    *value = 0;
    ESP_TRY(esp_i_im_attr_find(node, "value", ESP_I_PB_TENSOR, &attr, &found));
    if (!found)
        return ESP_OK;
    ESP_TRY(esp_i_im_literal_value(node->im, attr.t, false, &name, &literal));
    ESP_TRY(esp_i_im_known(node->im, literal, &k));
    if (k == NULL || k->count != 1)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "the value is not one number");
    *dtype = k->dtype;
    *value = esp_i_im_konst_at(k, 0);
    return ESP_OK;
}

/*
 * Weightless files write their weights as constants of a shape that is an initializer: these are
 * parameters. Any other one is a constant.
 */
esp_status_t esp_i_rule_constant_of_shape(esp_i_node_t *node)
{
    esp_attr_t attr = {0};
    int32_t rank;
    int64_t count = 1;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_input_ints(node, 0, ESP_MAX_RANK, attr.shape.dims, &rank));
    ESP_TRY(read_fill(node, &attr.shape.dtype, &attr.shape.value));
    attr.shape.rank = rank;
    for (int32_t d = 0; d < rank; d++)
        if (attr.shape.dims[d] < 0 || !esp_i_mul_i64(count, attr.shape.dims[d], &count) ||
            count > ESP_MAX_ELEMENTS)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "a shape with extent %lld",
                              (long long)attr.shape.dims[d]);
    bool from_file = node->in[0]->initializer;
    if (from_file && esp_dtype_is_float(attr.shape.dtype) && count > 1) {
        esp_i_value_t *v = esp_i_im_value_new(node->im, node->name);
        if (v == NULL)
            return esp_i_nomem(node->diag);
        v->role = ESP_ROLE_PARAMETER;
        v->dtype = attr.shape.dtype;
        v->rank = rank;
        memcpy(v->dims, attr.shape.dims, sizeof v->dims);
        node->out[0] = v;
        return ESP_OK;
    }
    return esp_i_im_emit(node, ESP_KIND_FILL, &attr, 0, NULL, &node->out[0]);
}

/* start, limit, delta: known scalars. */
esp_status_t esp_i_rule_range(esp_i_node_t *node)
{
    double number[3];
    int32_t count;
    esp_attr_t attr = {0};
    ESP_TRY(esp_i_im_need_inputs(node, 3, 3));
    for (int32_t k = 0; k < 3; k++) {
        ESP_TRY(esp_i_im_input_floats(node, k, 1, &number[k], &count));
        if (count != 1 || !isfinite(number[k]))
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "input %d is not one number", k);
    }
    double n = number[2] == 0 ? -1 : ceil((number[1] - number[0]) / number[2]);
    if (number[2] == 0 || n > (double)ESP_MAX_ELEMENTS)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "from %g to %g by %g", number[0], number[1],
                          number[2]);
    attr.shape.rank = 1;
    attr.shape.dims[0] = n > 0 ? (int64_t)n : 0;
    attr.shape.dtype = node->in[0]->dtype;
    attr.shape.value = number[0];
    attr.shape.step = number[2];
    return esp_i_im_emit(node, ESP_KIND_RANGE, &attr, 0, NULL, &node->out[0]);
}

/* ---- on known data only ---------------------------------------------------------------------- */

static esp_status_t must_know(esp_i_node_t *node, int32_t index, const esp_i_konst_t **out)
{
    ESP_TRY(esp_i_im_known(node->im, node->in[index], out));
    if (*out == NULL)
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                          "input %d ('%s') depends on data: its result has no known shape", index,
                          node->in[index]->name);
    node->batch_ints = node->batch_ints || node->in[index]->baked != node->in[index]->known;
    return ESP_OK;
}

/* Positions of the non-zero elements, [rank, count]. */
esp_status_t esp_i_rule_non_zero(esp_i_node_t *node)
{
    const esp_i_konst_t *x;
    esp_i_konst_t *y;
    int64_t found = 0, at = 0;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(must_know(node, 0, &x));
    for (int64_t e = 0; e < x->count; e++)
        found += esp_i_im_konst_at(x, e) != 0;
    const int64_t dims[2] = {x->rank, found};
    ESP_TRY(esp_i_im_konst_new(node->im, ESP_DTYPE_I64, 2, dims, &y));
    if (y == NULL)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "too many elements");
    for (int64_t e = 0; e < x->count; e++) {
        int64_t rest = e;
        if (esp_i_im_konst_at(x, e) == 0)
            continue;
        for (int32_t d = x->rank - 1; d >= 0; d--) {
            y->i[d * found + at] = rest % x->dims[d];
            rest /= x->dims[d];
        }
        at++;
    }
    return esp_i_im_value_known(node, y, &node->out[0]);
}

/* ---- control flow ---------------------------------------------------------------------------- */

esp_status_t esp_i_rule_if(esp_i_node_t *node)
{
    const esp_i_konst_t *condition;
    esp_i_pb_attribute_t attr;
    bool found;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_known(node->im, node->in[0], &condition));
    if (condition == NULL || condition->count != 1)
        return esp_i_fail(
            node->diag, ESP_ERR_UNSUPPORTED,
            "the condition '%s' depends on data: only constant branches are supported",
            node->in[0]->name);
    bool taken = esp_i_im_konst_at(condition, 0) != 0;
    ESP_TRY(esp_i_im_attr_find(node, taken ? "then_branch" : "else_branch", ESP_I_PB_GRAPH, &attr,
                               &found));
    if (!found)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "a branch is missing");
    return esp_i_im_inline_branch(node, attr.g);
}

/* Ops that are known and refused, with the reason. code: index of the reason */
esp_status_t esp_i_rule_refuse(esp_i_node_t *node)
{
    static const char *const reasons[] = {
        "loops are not supported: export with the loop unrolled",
        "sequences and optional values are not supported",
    };
    return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED, "%s (opset %lld)", reasons[node->op->code],
                      (long long)node->opset);
}
