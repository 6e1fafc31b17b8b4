/*
 * The checker of frozen graphs. It computes from the arrays what freeze had to make of them, by
 * other means where there are any.
 */
#include "graph/build.h"

#include <string.h>

#define BAD(diag, ...) esp_i_fail((diag), ESP_ERR_INTERNAL, __VA_ARGS__)

static bool is_id(int32_t id, int32_t n)
{
    return id >= 0 && id < n;
}

static bool is_offsets(const int32_t *offset, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (offset[i] > offset[i + 1])
            return false;
    return offset[0] == 0;
}

/* ---- tensors ------------------------------------------------------------------------------ */

static bool makes(const esp_graph_t *graph, esp_op_id_t op, esp_tensor_id_t tensor)
{
    for (int32_t i = graph->output_offset[op]; i < graph->output_offset[op + 1]; i++)
        if (graph->output_tensor[i] == tensor)
            return true;
    return false;
}

static esp_status_t check_size(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_diag_t *diag)
{
    int64_t elements = 1;
    if (graph->tensor_rank[tensor] < 0 || graph->tensor_rank[tensor] > ESP_MAX_RANK ||
        graph->tensor_dtype[tensor] >= ESP_DTYPE_COUNT ||
        graph->tensor_role[tensor] >= ESP_ROLE_COUNT)
        return BAD(diag, "rank, dtype or role out of range");
    for (int32_t i = 0; i < graph->tensor_rank[tensor]; i++)
        if (graph->tensor_dims[tensor][i] < 0 ||
            !esp_i_mul_i64(elements, graph->tensor_dims[tensor][i], &elements))
            return BAD(diag, "extent of axis %d out of range", (int)i);
    if (elements != graph->tensor_elements[tensor] ||
        graph->tensor_bytes[tensor] !=
            elements * esp_dtype_bytes((esp_dtype_t)graph->tensor_dtype[tensor]))
        return BAD(diag, "elements or bytes are not those of the shape");
    esp_view_t batch = graph->tensor_batch[tensor];
    if (batch.extent != 0 && (!esp_i_view_fits(batch, elements) || batch.extent != graph->batch))
        return BAD(diag, "the batch view does not fit");
    return ESP_OK;
}

static esp_status_t check_relations(const esp_graph_t *graph, esp_tensor_id_t tensor,
                                    esp_diag_t *diag)
{
    esp_op_id_t producer = graph->tensor_producer[tensor];
    esp_tensor_id_t next = graph->tensor_next[tensor], root = graph->tensor_root[tensor];
    esp_role_t role = (esp_role_t)graph->tensor_role[tensor];
    bool made = role == ESP_ROLE_ACTIVATION || role == ESP_ROLE_GRADIENT || role == ESP_ROLE_LOSS;
    if (made != (producer != ESP_NONE) ||
        (made && (!is_id(producer, graph->n_ops) || !makes(graph, producer, tensor))))
        return BAD(diag, "the producer does not fit role %s", esp_role_name(role));
    if (made && graph->tensor_data[tensor] != NULL)
        return BAD(diag, "a result of an op has a literal value");
    if (!is_id(root, graph->n_tensors) || graph->tensor_root[root] != root ||
        graph->tensor_elements[root] != graph->tensor_elements[tensor])
        return BAD(diag, "the root is not the tensor of the same buffer");
    if (next != ESP_NONE &&
        (!is_id(next, graph->n_tensors) || graph->tensor_producer[next] == ESP_NONE ||
         (role != ESP_ROLE_PARAMETER && role != ESP_ROLE_STATE && role != ESP_ROLE_STATISTIC)))
        return BAD(diag, "the next version is not one");
    return ESP_OK;
}

static esp_status_t check_tensors(const esp_graph_t *graph, esp_diag_t *diag)
{
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++) {
        esp_status_t status = check_size(graph, i, diag);
        if (status == ESP_OK)
            status = check_relations(graph, i, diag);
        if (status != ESP_OK) {
            esp_i_diag_place(diag, "tensor %s", graph->tensor_name[i]);
            return status;
        }
    }
    return ESP_OK;
}

/* ---- ops ---------------------------------------------------------------------------------- */

static esp_tensor_id_t operand(const esp_graph_t *graph, esp_op_id_t op, int32_t i)
{
    int32_t n_in = graph->input_offset[op + 1] - graph->input_offset[op];
    return i < n_in ? graph->input_tensor[graph->input_offset[op] + i]
                    : graph->output_tensor[graph->output_offset[op] + i - n_in];
}

static int32_t n_operands(const esp_graph_t *graph, esp_op_id_t op)
{
    return graph->input_offset[op + 1] - graph->input_offset[op] + graph->output_offset[op + 1] -
           graph->output_offset[op];
}

static bool reads(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_op_id_t op)
{
    for (int32_t i = graph->consumer_offset[tensor]; i < graph->consumer_offset[tensor + 1]; i++)
        if (graph->consumer_op[i] == op)
            return true;
    return false;
}

static esp_status_t check_operands(const esp_graph_t *graph, esp_op_id_t op, esp_diag_t *diag)
{
    for (int32_t i = graph->input_offset[op]; i < graph->input_offset[op + 1]; i++) {
        esp_tensor_id_t tensor = graph->input_tensor[i];
        if (tensor == ESP_NONE)
            continue;
        if (!is_id(tensor, graph->n_tensors) || graph->tensor_producer[tensor] >= op)
            return BAD(diag, "an input is made by a later op");
        if (!reads(graph, tensor, op))
            return BAD(diag, "an input does not know its reader");
    }
    for (int32_t i = graph->output_offset[op]; i < graph->output_offset[op + 1]; i++)
        if (!is_id(graph->output_tensor[i], graph->n_tensors) ||
            graph->tensor_producer[graph->output_tensor[i]] != op)
            return BAD(diag, "an output is made by another op");
    if (!is_id(graph->op_origin[op], op + 1))
        return BAD(diag, "the origin comes later");
    return ESP_OK;
}

/* Views of operands, and that part (1, E, 1) of a dimension is what the operand shows of it. */
static esp_status_t check_factors(const esp_graph_t *graph, esp_op_id_t op, esp_diag_t *diag)
{
    int32_t n_in = graph->input_offset[op + 1] - graph->input_offset[op];
    for (int32_t d = graph->dim_offset[op]; d < graph->dim_offset[op + 1]; d++) {
        int64_t extent = graph->dim_extent[d], granule = graph->dim_granule[d];
        if (extent < 1 || granule < 1 || extent % granule != 0)
            return BAD(diag, "the granule of a dimension does not divide it");
        for (int32_t i = 0; i < n_operands(graph, op); i++) {
            const esp_binding_t *binding = &graph->binding[graph->binding_offset[d] + i];
            esp_tensor_id_t tensor = operand(graph, op, i);
            esp_bind_t wrong = i < n_in ? ESP_BIND_SUM : ESP_BIND_LOCAL;
            if (binding->bind < ESP_BIND_ABSENT || binding->bind > ESP_BIND_LOCAL ||
                binding->bind == (int32_t)wrong)
                return BAD(diag, "operand %d relates to a dimension in a way it cannot", (int)i);
            if (binding->bind == ESP_BIND_CARRY &&
                (tensor == ESP_NONE ||
                 !esp_i_view_fits((esp_view_t){binding->outer, extent, binding->inner},
                                  graph->tensor_elements[tensor])))
                return BAD(diag, "operand %d does not have the view of a dimension", (int)i);
        }
    }
    return ESP_OK;
}

static esp_status_t check_op_batch(const esp_graph_t *graph, esp_op_id_t op, esp_diag_t *diag)
{
    esp_factor_t factor = graph->op_batch[op];
    int32_t n_in = graph->input_offset[op + 1] - graph->input_offset[op], product_ok;
    int64_t product;
    if (factor.dim == ESP_NONE)
        return ESP_OK;
    if (!is_id(factor.dim, graph->dim_offset[op + 1] - graph->dim_offset[op]))
        return BAD(diag, "the batch factor is not a dimension of the op");
    product_ok = esp_i_mul_i64(factor.a, factor.b, &product) &&
                 esp_i_mul_i64(product, factor.c, &product) &&
                 product == graph->dim_extent[graph->dim_offset[op] + factor.dim];
    if (!product_ok || factor.b != graph->batch)
        return BAD(diag, "the batch factor is not a part of its dimension");
    for (int32_t i = 0; i < n_operands(graph, op); i++) {
        esp_tensor_id_t tensor = operand(graph, op, i);
        esp_view_t view = {0, 0, 0};
        bool carries = esp_graph_bind(graph, op, factor, i, &view) == ESP_BIND_CARRY;
        if (tensor == ESP_NONE)
            continue;
        bool has = graph->tensor_batch[tensor].extent > 0;
        bool equal = esp_i_view_equal(view, graph->tensor_batch[tensor]);
        if (has ? !(carries && equal) : (carries && i >= n_in))
            return BAD(diag, "operand %d has another batch than the op", (int)i);
    }
    return ESP_OK;
}

static esp_status_t check_ops(const esp_graph_t *graph, esp_diag_t *diag)
{
    if (!is_offsets(graph->input_offset, graph->n_ops) ||
        !is_offsets(graph->output_offset, graph->n_ops) ||
        !is_offsets(graph->dim_offset, graph->n_ops) ||
        !is_offsets(graph->linear_offset, graph->n_ops) ||
        !is_offsets(graph->consumer_offset, graph->n_tensors))
        return BAD(diag, "offsets that do not ascend");
    for (esp_op_id_t op = 0; op < graph->n_ops; op++) {
        esp_status_t status =
            graph->op_kind[op] < ESP_KIND_COUNT && graph->op_phase[op] <= ESP_PHASE_UPDATE
                ? check_operands(graph, op, diag)
                : BAD(diag, "kind or phase out of range");
        if (status == ESP_OK)
            status = check_factors(graph, op, diag);
        if (status == ESP_OK)
            status = check_op_batch(graph, op, diag);
        if (status == ESP_OK && !(graph->op_flops[op] >= 0))
            status = BAD(diag, "negative cost");
        if (status != ESP_OK) {
            esp_i_diag_place(diag, "op %s", graph->op_name[op]);
            return status;
        }
    }
    return ESP_OK;
}

/* ---- the step ----------------------------------------------------------------------------- */

static esp_status_t check_step(const esp_graph_t *graph, esp_diag_t *diag)
{
    int32_t inputs = 0, parameters = 0;
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++) {
        if (graph->tensor_role[i] == ESP_ROLE_INPUT &&
            (inputs == graph->n_inputs || graph->input[inputs++] != i))
            return BAD(diag, "the list of inputs is not complete");
        if (graph->tensor_role[i] == ESP_ROLE_PARAMETER &&
            (parameters == graph->n_parameters || graph->parameter[parameters++] != i))
            return BAD(diag, "the list of parameters is not complete");
    }
    if (inputs != graph->n_inputs || parameters != graph->n_parameters)
        return BAD(diag, "a list holds what is no input or parameter");
    for (int32_t i = 0; i < graph->n_outputs; i++)
        if (!is_id(graph->output[i], graph->n_tensors))
            return BAD(diag, "an output is not a tensor");
    for (int32_t i = 0; i < graph->n_parameters; i++) {
        esp_op_id_t update = graph->update[i];
        esp_tensor_id_t gradient = graph->gradient[i];
        if ((update == ESP_NONE) != (gradient == ESP_NONE))
            return BAD(diag, "parameter %s has an update or a gradient only",
                       graph->tensor_name[graph->parameter[i]]);
        if (update != ESP_NONE &&
            (!is_id(update, graph->n_ops) || operand(graph, update, 0) != graph->parameter[i] ||
             operand(graph, update, 1) != gradient))
            return BAD(diag, "the update of parameter %s is not one",
                       graph->tensor_name[graph->parameter[i]]);
    }
    if (graph->loss != ESP_NONE &&
        (!is_id(graph->loss, graph->n_tensors) || graph->tensor_elements[graph->loss] != 1))
        return BAD(diag, "the loss is not a scalar");
    return ESP_OK;
}

esp_status_t esp_graph_check(const esp_graph_t *graph, esp_diag_t *diag)
{
    ESP_TRY(check_ops(graph, diag));
    ESP_TRY(check_tensors(graph, diag));
    return check_step(graph, diag);
}
