/* What decides how long an op takes, as text: for tables of measured times. */
#include "graph/attr.h"

#include <string.h>

esp_factor_t esp_op_unit_factor(const esp_graph_t *graph, esp_op_id_t op)
{
    esp_factor_t factor = graph->op_batch[op];
    if (factor.dim != ESP_NONE || graph->input_offset[op] == graph->input_offset[op + 1])
        return factor;
    esp_tensor_id_t first = graph->input_tensor[graph->input_offset[op]];
    if (first == ESP_NONE || graph->tensor_elements[first] < 1 ||
        !esp_graph_factor(graph, op, 0, (esp_view_t){1, graph->tensor_elements[first], 1}, &factor))
        factor = (esp_factor_t){.dim = ESP_NONE};
    return factor;
}

/* Attributes that follow from the shapes, or that no kernel is slower for. */
static bool counts(const esp_i_field_t *field)
{
    static const char *const ignored[] = {"dims", "count", "stream", "ignore"};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (strcmp(field->name, ignored[i]) == 0)
            return false;
    return true;
}

/* Of real attributes it only matters whether they are there; fields that are 0 are left out. */
static void put_field(esp_i_text_t *text, const esp_i_field_t *field, const esp_attr_t *attr)
{
    int32_t n = field->count;
    if (field->type == ESP_I_FIELD_F64) {
        if (esp_i_field_get_real(field, attr, 0) != 0)
            esp_i_text_addf(text, " %s", field->name);
        return;
    }
    if (field->type == ESP_I_FIELD_ENUM) {
        esp_i_text_addf(text, " %s", field->names[esp_i_field_get(field, attr, 0)]);
        return;
    }
    while (n > 0 && esp_i_field_get(field, attr, n - 1) == 0)
        n--;
    if (n > 0)
        esp_i_text_addf(text, " %s=", field->name);
    for (int32_t i = 0; i < n; i++) {
        int64_t value = esp_i_field_get(field, attr, i);
        if (field->type == ESP_I_FIELD_LABELS && value > ' ' && value < 127)
            esp_i_text_addf(text, "%c", (char)value);
        else
            esp_i_text_addf(text, "%s%lld", i > 0 ? "," : "", (long long)value);
    }
}

/* "~float32[1,64,56,56]": ~ carries the factor, shown with one unit of it; + is an addend. */
static void put_operand(esp_i_text_t *text, const esp_graph_t *graph, esp_op_id_t op,
                        esp_factor_t factor, int32_t operand, esp_tensor_id_t tensor)
{
    int64_t dims[ESP_MAX_RANK];
    esp_view_t view;
    if (tensor == ESP_NONE) {
        esp_i_text_add(text, " -");
        return;
    }
    int32_t rank = graph->tensor_rank[tensor];
    memcpy(dims, graph->tensor_dims[tensor], sizeof dims);
    esp_bind_t bind = factor.dim == ESP_NONE ? ESP_BIND_ABSENT
                                             : esp_graph_bind(graph, op, factor, operand, &view);
    if (bind == ESP_BIND_CARRY)
        rank = esp_view_local_dims(rank, graph->tensor_dims[tensor], view, 1, dims);
    esp_i_text_addf(text, " %s%s[",
                    bind == ESP_BIND_CARRY    ? "~"
                    : bind == ESP_BIND_ABSENT ? ""
                                              : "+",
                    esp_dtype_name((esp_dtype_t)graph->tensor_dtype[tensor]));
    for (int32_t axis = 0; axis < rank; axis++)
        esp_i_text_addf(text, "%s%lld", axis > 0 ? "," : "", (long long)dims[axis]);
    esp_i_text_add(text, "]");
}

esp_status_t esp_op_signature(const esp_graph_t *graph, esp_op_id_t op,
                              const esp_allocator_t *alloc, char **text_out)
{
    esp_op_kind_t kind = (esp_op_kind_t)graph->op_kind[op];
    esp_factor_t factor = esp_op_unit_factor(graph, op);
    int32_t n_fields, first = graph->input_offset[op], out = graph->output_offset[op];
    const esp_i_field_t *fields = esp_i_attr_fields(kind, &n_fields);
    int32_t n_in = graph->input_offset[op + 1] - first;
    esp_i_text_t text;
    esp_i_text_init(&text, alloc);
    esp_i_text_add(&text, esp_kind_name(kind));
    for (int32_t f = 0; f < n_fields; f++)
        if (counts(&fields[f]))
            put_field(&text, &fields[f], &graph->op_attr[op]);
    esp_i_text_add(&text, " :");
    for (int32_t i = 0; i < n_in; i++)
        put_operand(&text, graph, op, factor, i, graph->input_tensor[first + i]);
    esp_i_text_add(&text, " ->");
    for (int32_t i = out; i < graph->output_offset[op + 1]; i++)
        put_operand(&text, graph, op, factor, n_in + i - out, graph->output_tensor[i]);
    if (text.failed) {
        esp_i_text_fini(&text);
        return ESP_ERR_NOMEM;
    }
    *text_out = text.data;
    return ESP_OK;
}
