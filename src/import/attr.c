/* Attributes and parameter inputs of a node, with their defaults and their errors. */
#include "import/import.h"
#include "import/scope.h"

#include <string.h>

/* ---- attributes ------------------------------------------------------------------------------ */

static esp_status_t find_in(esp_i_wire_t message, uint32_t number, esp_i_str_t name,
                            esp_i_pb_attribute_t *out, bool *found_out, esp_diag_t *diag)
{
    esp_i_wire_t item;
    *found_out = false;
    while (!*found_out && esp_i_pb_each(&message, number, &item, diag)) {
        ESP_TRY(esp_i_pb_attribute(item, out, diag));
        *found_out = esp_i_str_equal(out->name, name);
    }
    return message.status;
}

/* An attribute of a function's body may stand for one of the call, or for the function's default.
 */
static esp_status_t resolve(esp_i_node_t *node, esp_i_pb_attribute_t *attr, bool *found)
{
    const esp_i_scope_t *scope = node->scope;
    for (int32_t depth = 0; *found && attr->reference.length > 0; depth++) {
        while (scope != NULL && scope->function == NULL) /* a branch sees the function around it */
            scope = scope->parent;
        if (scope == NULL || depth > ESP_ONNX_MAX_DEPTH)
            return esp_i_fail(node->diag, ESP_ERR_INVALID,
                              "an attribute refers to one of a function, outside of a function");
        esp_i_str_t name = attr->reference;
        ESP_TRY(
            find_in(scope->call->pb.body, ESP_I_NODE_ATTRIBUTES, name, attr, found, node->diag));
        if (!*found)
            ESP_TRY(find_in(scope->function->body, ESP_I_FUNCTION_DEFAULTS, name, attr, found,
                            node->diag));
        scope = scope->call->scope;
    }
    return ESP_OK;
}

esp_status_t esp_i_im_attr_find(esp_i_node_t *node, const char *name,
                                esp_i_pb_attribute_type_t type, esp_i_pb_attribute_t *out,
                                bool *found_out)
{
    esp_i_str_t text = {name, (int64_t)strlen(name)};
    ESP_TRY(find_in(node->pb.body, ESP_I_NODE_ATTRIBUTES, text, out, found_out, node->diag));
    ESP_TRY(resolve(node, out, found_out));
    if (*found_out && out->type != (int64_t)type) {
        esp_i_diag_byte(node->diag, esp_i_wire_offset(&out->body, out->body.at));
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "attribute %s has type %lld instead of %d",
                          name, (long long)out->type, (int)type);
    }
    return ESP_OK;
}

esp_status_t esp_i_im_attr_int(esp_i_node_t *node, const char *name, int64_t absent, int64_t *out)
{
    esp_i_pb_attribute_t attr;
    bool found;
    ESP_TRY(esp_i_im_attr_find(node, name, ESP_I_PB_INT, &attr, &found));
    *out = found ? attr.i : absent;
    return ESP_OK;
}

esp_status_t esp_i_im_attr_float(esp_i_node_t *node, const char *name, double absent, double *out)
{
    esp_i_pb_attribute_t attr;
    bool found;
    ESP_TRY(esp_i_im_attr_find(node, name, ESP_I_PB_FLOAT, &attr, &found));
    *out = found ? (double)attr.f : absent;
    return ESP_OK;
}

esp_status_t esp_i_im_attr_text(esp_i_node_t *node, const char *name, const char *absent,
                                esp_i_str_t *out)
{
    esp_i_pb_attribute_t attr;
    bool found;
    ESP_TRY(esp_i_im_attr_find(node, name, ESP_I_PB_STRING, &attr, &found));
    absent = absent != NULL ? absent : "";
    *out = found ? attr.s : (esp_i_str_t){absent, (int64_t)strlen(absent)};
    return ESP_OK;
}

static esp_status_t too_many(esp_i_node_t *node, const char *what, int32_t capacity)
{
    return esp_i_fail(node->diag, ESP_ERR_LIMIT, "%s has more than %d elements", what, capacity);
}

esp_status_t esp_i_im_attr_ints(esp_i_node_t *node, const char *name, int32_t capacity,
                                int64_t *out, int32_t *count_out)
{
    esp_i_pb_attribute_t attr;
    bool found;
    uint64_t value;
    *count_out = -1;
    ESP_TRY(esp_i_im_attr_find(node, name, ESP_I_PB_INTS, &attr, &found));
    if (!found)
        return ESP_OK;
    esp_i_wire_numbers_t list =
        esp_i_wire_numbers(attr.body, ESP_I_ATTRIBUTE_INTS, ESP_I_WIRE_VARINT);
    int32_t count = 0;
    while (esp_i_wire_number(&list, &value, node->diag)) {
        if (count == capacity)
            return too_many(node, name, capacity);
        out[count++] = (int64_t)value;
    }
    *count_out = count;
    return list.wire.status;
}

esp_status_t esp_i_im_attr_floats(esp_i_node_t *node, const char *name, int32_t capacity,
                                  double *out, int32_t *count_out)
{
    esp_i_pb_attribute_t attr;
    bool found;
    uint64_t value;
    *count_out = -1;
    ESP_TRY(esp_i_im_attr_find(node, name, ESP_I_PB_FLOATS, &attr, &found));
    if (!found)
        return ESP_OK;
    esp_i_wire_numbers_t list =
        esp_i_wire_numbers(attr.body, ESP_I_ATTRIBUTE_FLOATS, ESP_I_WIRE_FIXED32);
    int32_t count = 0;
    while (esp_i_wire_number(&list, &value, node->diag)) {
        if (count == capacity)
            return too_many(node, name, capacity);
        out[count++] = (double)esp_i_wire_float(value);
    }
    *count_out = count;
    return list.wire.status;
}

/* ---- inputs that are parameters -------------------------------------------------------------- */

/* The constant behind an input; *out is NULL where the input is absent. */
static esp_status_t input_known(esp_i_node_t *node, int32_t index, int32_t capacity,
                                const esp_i_konst_t **out)
{
    esp_i_value_t *v = esp_i_im_in(node, index);
    *out = NULL;
    if (v == NULL)
        return ESP_OK;
    ESP_TRY(esp_i_im_known(node->im, v, out));
    if (*out == NULL)
        return esp_i_fail(
            node->diag, ESP_ERR_UNSUPPORTED,
            "input %d ('%s') must be known when the file is read, but depends on data", index,
            v->name);
    if ((*out)->count > capacity)
        return too_many(node, v->name, capacity);
    node->batch_ints = node->batch_ints || v->baked != v->known;
    return ESP_OK;
}

esp_status_t esp_i_im_input_ints(esp_i_node_t *node, int32_t index, int32_t capacity, int64_t *out,
                                 int32_t *count_out)
{
    const esp_i_konst_t *k;
    *count_out = -1;
    ESP_TRY(input_known(node, index, capacity, &k));
    if (k == NULL)
        return ESP_OK;
    if (k->i == NULL)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "input %d must hold integers, not %s", index,
                          esp_dtype_name(k->dtype));
    memcpy(out, k->i, (size_t)k->count * sizeof *out);
    *count_out = (int32_t)k->count;
    return ESP_OK;
}

esp_status_t esp_i_im_input_floats(esp_i_node_t *node, int32_t index, int32_t capacity, double *out,
                                   int32_t *count_out)
{
    const esp_i_konst_t *k;
    *count_out = -1;
    ESP_TRY(input_known(node, index, capacity, &k));
    if (k == NULL)
        return ESP_OK;
    for (int64_t e = 0; e < k->count; e++)
        out[e] = esp_i_im_konst_at(k, e);
    *count_out = (int32_t)k->count;
    return ESP_OK;
}

esp_status_t esp_i_im_param_ints(esp_i_node_t *node, const char *name, int32_t index,
                                 int32_t capacity, int64_t *out, int32_t *count_out)
{
    if (esp_i_im_in(node, index) != NULL)
        return esp_i_im_input_ints(node, index, capacity, out, count_out);
    return esp_i_im_attr_ints(node, name, capacity, out, count_out);
}

/* ---- axes ------------------------------------------------------------------------------------ */

esp_status_t esp_i_im_axis(esp_i_node_t *node, int64_t axis, int32_t rank, int32_t *axis_out)
{
    if (axis < -rank || axis >= rank)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %lld of a tensor of %d axes",
                          (long long)axis, rank);
    *axis_out = (int32_t)(axis < 0 ? axis + rank : axis);
    return ESP_OK;
}

esp_status_t esp_i_im_attr_axis(esp_i_node_t *node, int64_t absent, int32_t rank, int32_t *axis_out)
{
    int64_t axis;
    ESP_TRY(esp_i_im_attr_int(node, "axis", absent, &axis));
    return esp_i_im_axis(node, axis, rank, axis_out);
}

esp_status_t esp_i_im_param_axes(esp_i_node_t *node, const char *name, int32_t index, int32_t rank,
                                 uint32_t *mask_out, bool *given_out)
{
    int64_t axes[ESP_MAX_RANK];
    int32_t count;
    uint32_t mask = 0;
    ESP_TRY(esp_i_im_param_ints(node, name, index, ESP_MAX_RANK, axes, &count));
    for (int32_t k = 0; k < count; k++) {
        int32_t axis = 0;
        ESP_TRY(esp_i_im_axis(node, axes[k], rank, &axis));
        if (mask >> axis & 1)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis %d is given twice", axis);
        mask |= 1u << axis;
    }
    *mask_out = mask;
    *given_out = count >= 0;
    return ESP_OK;
}

esp_status_t esp_i_im_need_inputs(esp_i_node_t *node, int32_t n, int32_t n_max)
{
    for (int32_t k = 0; k < n; k++)
        if (esp_i_im_in(node, k) == NULL)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "input %d is missing", k);
    if (n_max >= 0 && node->n_in > n_max)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%d inputs where at most %d are expected",
                          node->n_in, n_max);
    if (node->n_out < 1)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "no output");
    return ESP_OK;
}
