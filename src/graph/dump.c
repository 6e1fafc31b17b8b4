/*
 * The text form of a graph, and its hash.
 *
 *   espalier-graph 1 "name"
 *   tensor %0 "x" input float32 [8, 16] batch (1, 8, 16)
 *   tensor %1 "two" constant float32 [] = [2]
 *   op !0 "double" eltwise (%0, %1) {code mul} -> %2 "double" float32 [8, 16]
 *   next %1 %7
 *   output %2
 *
 * One line per tensor and op, in the order of ids, which counts tensors that no op makes and
 * results of ops together. Fields that are 0, the phase forward, an op's own origin and the role
 * activation are left out. Small literals are lists of numbers, others hex bytes: x"00000040".
 */
#include "graph/attr.h"
#include "graph/build.h"
#include "graph/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers and strings ------------------------------------------------------------------ */

/* The shortest text that reads as the same double; inf, -inf and nan for what has no digits. */
static void put_real(esp_i_text_t *text, double value)
{
    char out[40];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(out, sizeof out, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    /* The host program may have set a locale with another decimal point. */
    if (isfinite(value))
        for (char *at = out; *at != '\0'; at++)
            if (strchr("-+0123456789e", *at) == NULL)
                *at = '.';
    esp_i_text_add(text, out);
}

static void put_string(esp_i_text_t *text, const char *string)
{
    esp_i_text_add(text, "\"");
    for (const unsigned char *at = (const unsigned char *)string; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\')
            esp_i_text_addf(text, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            esp_i_text_addf(text, "\\x%02x", *at);
        else
            esp_i_text_add_bytes(text, (const char *)at, 1);
    }
    esp_i_text_add(text, "\"");
}

/* ---- literals ----------------------------------------------------------------------------- */

#define LISTED_ELEMENTS 16

static bool is_listed(esp_dtype_t dtype, int64_t elements, const void *data)
{
    if (elements > LISTED_ELEMENTS || dtype == ESP_DTYPE_F16 || dtype == ESP_DTYPE_BF16)
        return false;
    for (int64_t i = 0; i < elements; i++) {
        double value = esp_i_literal_real(dtype, data, i);
        if (!isfinite(value) || (dtype == ESP_DTYPE_BOOL && value > 1))
            return false;
    }
    return true;
}

static void put_literal(esp_i_text_t *text, const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    esp_dtype_t dtype = (esp_dtype_t)graph->tensor_dtype[tensor];
    const unsigned char *data = graph->tensor_data[tensor];
    int64_t elements = graph->tensor_elements[tensor];
    if (!is_listed(dtype, elements, data)) {
        esp_i_text_add(text, " = x\"");
        for (int64_t i = 0; i < graph->tensor_bytes[tensor]; i++)
            esp_i_text_addf(text, "%02x", data[i]);
        esp_i_text_add(text, "\"");
        return;
    }
    esp_i_text_add(text, " = [");
    for (int64_t i = 0; i < elements; i++) {
        esp_i_text_add(text, i > 0 ? ", " : "");
        if (esp_dtype_is_float(dtype))
            put_real(text, esp_i_literal_real(dtype, data, i));
        else
            esp_i_text_addf(text, "%lld", (long long)esp_i_literal_int(dtype, data, i));
    }
    esp_i_text_add(text, "]");
}

/* ---- attributes --------------------------------------------------------------------------- */

static bool labels_are_letters(const esp_i_field_t *field, const esp_attr_t *attr, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int64_t label = esp_i_field_get(field, attr, i);
        if (!((label >= 'a' && label <= 'z') || (label >= 'A' && label <= 'Z')))
            return false;
    }
    return true;
}

static void put_field(esp_i_text_t *text, const esp_i_field_t *field, const esp_attr_t *attr)
{
    int32_t n = field->count;
    while (n > 0 && esp_i_field_get(field, attr, n - 1) == 0)
        n--;
    esp_i_text_addf(text, "%s ", field->name);
    if (field->type == ESP_I_FIELD_ENUM) {
        esp_i_text_add(text, field->names[esp_i_field_get(field, attr, 0)]);
    } else if (field->type == ESP_I_FIELD_F64) {
        put_real(text, esp_i_field_get_real(field, attr, 0));
    } else if (field->count == 1) {
        esp_i_text_addf(text, "%lld", (long long)esp_i_field_get(field, attr, 0));
    } else if (field->type == ESP_I_FIELD_LABELS && labels_are_letters(field, attr, n)) {
        for (int32_t i = 0; i < n; i++)
            esp_i_text_addf(text, "%c", (char)esp_i_field_get(field, attr, i));
    } else {
        for (int32_t i = 0; i < n; i++)
            esp_i_text_addf(text, "%s%lld", i > 0 ? ", " : "[",
                            (long long)esp_i_field_get(field, attr, i));
        esp_i_text_add(text, "]");
    }
}

static bool is_default(const esp_i_field_t *field, const esp_attr_t *attr)
{
    if (field->type == ESP_I_FIELD_ENUM)
        return false;
    for (int32_t i = 0; i < field->count; i++)
        if (esp_i_field_get(field, attr, i) != 0) /* -0.0 has bits set: it is not left out */
            return false;
    return true;
}

static void put_attr(esp_i_text_t *text, esp_op_kind_t kind, const esp_attr_t *attr)
{
    int32_t n;
    const esp_i_field_t *fields = esp_i_attr_fields(kind, &n);
    const char *before = " {";
    for (int32_t i = 0; i < n; i++) {
        if (is_default(&fields[i], attr))
            continue;
        esp_i_text_add(text, before);
        put_field(text, &fields[i], attr);
        before = ", ";
    }
    if (before[0] == ',')
        esp_i_text_add(text, "}");
}

/* ---- lines -------------------------------------------------------------------------------- */

static void put_shape(esp_i_text_t *text, const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    esp_i_text_addf(text, " %s [", esp_dtype_name((esp_dtype_t)graph->tensor_dtype[tensor]));
    for (int32_t i = 0; i < graph->tensor_rank[tensor]; i++)
        esp_i_text_addf(text, "%s%lld", i > 0 ? ", " : "",
                        (long long)graph->tensor_dims[tensor][i]);
    esp_i_text_add(text, "]");
}

static void put_tensor(esp_i_text_t *text, const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    esp_view_t batch = graph->tensor_batch[tensor];
    esp_i_text_addf(text, "tensor %%%d ", (int)tensor);
    put_string(text, graph->tensor_name[tensor]);
    esp_i_text_addf(text, " %s", esp_role_name((esp_role_t)graph->tensor_role[tensor]));
    put_shape(text, graph, tensor);
    if (batch.extent > 0)
        esp_i_text_addf(text, " batch (%lld, %lld, %lld)", (long long)batch.outer,
                        (long long)batch.extent, (long long)batch.inner);
    if (graph->tensor_data[tensor] != NULL)
        put_literal(text, graph, tensor);
    esp_i_text_add(text, "\n");
}

static void put_op(esp_i_text_t *text, const esp_graph_t *graph, esp_op_id_t op)
{
    esp_op_kind_t kind = (esp_op_kind_t)graph->op_kind[op];
    int32_t first = graph->input_offset[op];
    esp_i_text_addf(text, "op !%d ", (int)op);
    put_string(text, graph->op_name[op]);
    if (graph->op_phase[op] != ESP_PHASE_FORWARD)
        esp_i_text_addf(text, " %s",
                        graph->op_phase[op] == ESP_PHASE_UPDATE ? "update" : "backward");
    if (graph->op_origin[op] != op)
        esp_i_text_addf(text, " of !%d", (int)graph->op_origin[op]);
    esp_i_text_addf(text, " %s (", esp_kind_name(kind));
    for (int32_t i = first; i < graph->input_offset[op + 1]; i++) {
        esp_i_text_add(text, i > first ? ", " : "");
        if (graph->input_tensor[i] == ESP_NONE)
            esp_i_text_add(text, "-");
        else
            esp_i_text_addf(text, "%%%d", (int)graph->input_tensor[i]);
    }
    esp_i_text_add(text, ")");
    put_attr(text, kind, &graph->op_attr[op]);
    first = graph->output_offset[op];
    for (int32_t i = first; i < graph->output_offset[op + 1]; i++) {
        esp_tensor_id_t tensor = graph->output_tensor[i];
        esp_i_text_addf(text, "%s %%%d ", i > first ? "," : " ->", (int)tensor);
        put_string(text, graph->tensor_name[tensor]);
        if (graph->tensor_role[tensor] != ESP_ROLE_ACTIVATION)
            esp_i_text_addf(text, " %s", esp_role_name((esp_role_t)graph->tensor_role[tensor]));
        put_shape(text, graph, tensor);
    }
    esp_i_text_add(text, "\n");
}

static void put_graph(esp_i_text_t *text, const esp_graph_t *graph)
{
    esp_i_text_add(text, "espalier-graph 1 ");
    put_string(text, graph->name);
    esp_i_text_add(text, "\n");
    for (esp_tensor_id_t tensor = 0; tensor < graph->n_tensors; tensor++) {
        esp_op_id_t op = graph->tensor_producer[tensor];
        if (op == ESP_NONE)
            put_tensor(text, graph, tensor);
        else if (graph->output_tensor[graph->output_offset[op]] == tensor)
            put_op(text, graph, op);
    }
    for (esp_tensor_id_t tensor = 0; tensor < graph->n_tensors; tensor++)
        if (graph->tensor_next[tensor] != ESP_NONE)
            esp_i_text_addf(text, "next %%%d %%%d\n", (int)tensor, (int)graph->tensor_next[tensor]);
    for (int32_t i = 0; i < graph->n_outputs; i++)
        esp_i_text_addf(text, "output %%%d\n", (int)graph->output[i]);
}

esp_status_t esp_graph_dump(const esp_graph_t *graph, const esp_allocator_t *alloc, char **text_out,
                            esp_diag_t *diag)
{
    esp_i_text_t text;
    esp_i_text_init(&text, alloc);
    put_graph(&text, graph);
    if (text.failed) {
        esp_i_text_fini(&text);
        return esp_i_nomem(diag);
    }
    *text_out = text.data;
    return ESP_OK;
}

esp_status_t esp_graph_hash(const esp_graph_t *graph, char hex_out[65])
{
    esp_i_text_t text;
    esp_i_text_init(&text, NULL);
    put_graph(&text, graph);
    esp_status_t status = text.failed ? ESP_ERR_NOMEM : ESP_OK;
    if (status == ESP_OK)
        esp_i_sha256(text.data, text.length, hex_out);
    esp_i_text_fini(&text);
    return status;
}
