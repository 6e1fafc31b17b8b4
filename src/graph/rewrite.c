/* What patterns match and make ops with. */
#include "graph/rewrite.h"
#include "graph/text.h"

#include <math.h>
#include <string.h>

/* ---- matching ----------------------------------------------------------------------------- */

esp_op_id_t esp_i_rewrite_made_by(const esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                                  esp_op_kind_t kind)
{
    const esp_graph_t *graph = rewrite->graph;
    if (tensor == ESP_NONE || graph->tensor_producer[tensor] == ESP_NONE)
        return ESP_NONE;
    esp_op_id_t op = graph->tensor_producer[tensor];
    return graph->op_kind[op] == kind ? op : ESP_NONE;
}

bool esp_i_rewrite_is_elt(const esp_i_rewrite_t *rewrite, esp_op_id_t op, esp_eltwise_t code)
{
    return op != ESP_NONE && rewrite->graph->op_kind[op] == ESP_KIND_ELTWISE &&
           rewrite->graph->op_attr[op].eltwise.code == code;
}

esp_op_id_t esp_i_rewrite_made_by_elt(const esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                                      esp_eltwise_t code)
{
    esp_op_id_t op = esp_i_rewrite_made_by(rewrite, tensor, ESP_KIND_ELTWISE);
    return esp_i_rewrite_is_elt(rewrite, op, code) ? op : ESP_NONE;
}

esp_tensor_id_t esp_i_rewrite_input(const esp_i_rewrite_t *rewrite, esp_op_id_t op, int32_t i)
{
    return rewrite->graph->input_tensor[rewrite->graph->input_offset[op] + i];
}

int32_t esp_i_rewrite_n_inputs(const esp_i_rewrite_t *rewrite, esp_op_id_t op)
{
    return rewrite->graph->input_offset[op + 1] - rewrite->graph->input_offset[op];
}

esp_tensor_id_t esp_i_rewrite_output(const esp_i_rewrite_t *rewrite, esp_op_id_t op)
{
    return rewrite->graph->output_tensor[rewrite->graph->output_offset[op]];
}

bool esp_i_rewrite_same_shape(const esp_i_rewrite_t *rewrite, esp_tensor_id_t x, esp_tensor_id_t y)
{
    const esp_graph_t *graph = rewrite->graph;
    return graph->tensor_dtype[x] == graph->tensor_dtype[y] &&
           graph->tensor_rank[x] == graph->tensor_rank[y] &&
           memcmp(graph->tensor_dims[x], graph->tensor_dims[y], sizeof *graph->tensor_dims) == 0;
}

bool esp_i_rewrite_read_by(const esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                           esp_op_kind_t kind)
{
    const esp_graph_t *graph = rewrite->graph;
    int32_t first = graph->consumer_offset[tensor], end = graph->consumer_offset[tensor + 1];
    for (int32_t i = first; i < end; i++)
        if (graph->op_kind[graph->consumer_op[i]] != kind)
            return false;
    return first < end && !rewrite->kept[tensor];
}

#define LOOKED_AT 64 /* elements of a literal; longer ones are taken for data */

static bool literal_scalar(const esp_graph_t *graph, esp_tensor_id_t tensor, double *value)
{
    esp_dtype_t dtype = (esp_dtype_t)graph->tensor_dtype[tensor];
    const void *data = graph->tensor_data[tensor];
    int64_t n = graph->tensor_elements[tensor];
    if (graph->tensor_role[tensor] != ESP_ROLE_CONSTANT || data == NULL || n < 1 || n > LOOKED_AT)
        return false;
    *value = esp_i_literal_real(dtype, data, 0);
    for (int64_t i = 1; i < n; i++)
        if (esp_i_literal_real(dtype, data, i) != *value)
            return false;
    return !isnan(*value);
}

bool esp_i_rewrite_scalar(const esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor, double *value)
{
    const esp_graph_t *graph = rewrite->graph;
    for (;;) {
        esp_op_id_t op = graph->tensor_producer[tensor];
        if (op == ESP_NONE)
            return literal_scalar(graph, tensor, value);
        if (graph->op_kind[op] == ESP_KIND_FILL) {
            *value = graph->op_attr[op].shape.value;
            return true;
        }
        if (graph->op_kind[op] != ESP_KIND_RESHAPE && graph->op_kind[op] != ESP_KIND_EXPAND)
            return false;
        tensor = esp_i_rewrite_input(rewrite, op, 0);
    }
}

esp_tensor_id_t esp_i_rewrite_unscale(esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                                      double *scale)
{
    *scale = 1;
    for (;;) {
        esp_op_id_t op = esp_i_rewrite_made_by_elt(rewrite, tensor, ESP_ELT_AFFINE);
        if (op == ESP_NONE || rewrite->graph->op_attr[op].eltwise.beta != 0)
            return tensor;
        *scale *= rewrite->graph->op_attr[op].eltwise.alpha;
        esp_i_rewrite_inside(rewrite, op);
        tensor = esp_i_rewrite_input(rewrite, op, 0);
    }
}

bool esp_i_rewrite_near(double x, double y)
{
    return fabs(x - y) <= 1e-4 * fabs(y);
}

void esp_i_rewrite_inside(esp_i_rewrite_t *rewrite, esp_op_id_t op)
{
    /* One too many: counted, so that `closed` fails. */
    if (rewrite->n_inside < ESP_I_MAX_INSIDE)
        rewrite->inside[rewrite->n_inside] = op;
    rewrite->n_inside++;
}

static bool is_matched(const esp_i_rewrite_t *rewrite, esp_op_id_t op)
{
    for (int32_t i = 0; i < rewrite->n_inside; i++)
        if (rewrite->inside[i] == op)
            return true;
    return op == rewrite->root;
}

bool esp_i_rewrite_closed(const esp_i_rewrite_t *rewrite)
{
    const esp_graph_t *graph = rewrite->graph;
    if (rewrite->n_inside > ESP_I_MAX_INSIDE)
        return false;
    for (int32_t i = 0; i < rewrite->n_inside; i++) {
        esp_op_id_t op = rewrite->inside[i];
        for (int32_t j = graph->output_offset[op]; j < graph->output_offset[op + 1]; j++) {
            esp_tensor_id_t tensor = graph->output_tensor[j];
            if (rewrite->kept[tensor] || rewrite->reread[tensor])
                return false;
            for (int32_t k = graph->consumer_offset[tensor]; k < graph->consumer_offset[tensor + 1];
                 k++)
                if (!is_matched(rewrite, graph->consumer_op[k]))
                    return false;
        }
    }
    return true;
}

/* ---- making ------------------------------------------------------------------------------- */

/* A tensor that goes because it is inside another match is not there to be read. */
static bool is_there(const esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor)
{
    esp_op_id_t producer = tensor != ESP_NONE ? rewrite->graph->tensor_producer[tensor] : ESP_NONE;
    return producer == ESP_NONE || !rewrite->gone[producer];
}

/* The match is final: it reads `inputs`, and what is inside goes. */
static void settle(esp_i_rewrite_t *rewrite, int32_t n, const esp_tensor_id_t *inputs)
{
    for (int32_t i = 0; i < n; i++)
        if (inputs[i] != ESP_NONE)
            rewrite->reread[inputs[i]] = true;
    for (int32_t i = 0; i < rewrite->n_inside; i++)
        rewrite->gone[rewrite->inside[i]] = true;
}

/* An input of a new op in the builder, in the shape of `like`. */
static esp_status_t put_input(esp_i_rewrite_t *rewrite, esp_tensor_id_t input, esp_tensor_id_t like,
                              esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    *out = input != ESP_NONE ? rewrite->map[input] : ESP_NONE;
    if (input == like || esp_i_rewrite_same_shape(rewrite, input, like))
        return ESP_OK;
    const char *name =
        esp_i_arena_printf(&rewrite->builder->arena, "%s/inner", graph->op_name[rewrite->root]);
    if (name == NULL)
        return esp_i_nomem(rewrite->diag);
    return esp_i_make_reshape(rewrite->builder, *out, graph->tensor_rank[like],
                              graph->tensor_dims[like], name, out, rewrite->diag);
}

esp_status_t esp_i_rewrite_emit_as(esp_i_rewrite_t *rewrite, esp_op_kind_t kind,
                                   const esp_attr_t *attr, int32_t n, const esp_tensor_id_t *inputs,
                                   const esp_tensor_id_t *like, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    const char *names[ESP_I_MAX_OUT] = {
        graph->tensor_name[esp_i_rewrite_output(rewrite, rewrite->root)]};
    esp_tensor_id_t mapped[4], made[ESP_I_MAX_OUT];
    esp_assert(n <= 4);
    for (int32_t i = 0; i < n; i++)
        if (!is_there(rewrite, inputs[i]))
            return ESP_OK; /* the next round sees it as it is then */
    for (int32_t i = 0; i < n; i++)
        ESP_TRY(put_input(rewrite, inputs[i], like[i], &mapped[i]));
    ESP_TRY(esp_i_builder_op(rewrite->builder, kind, attr, n, mapped, graph->op_name[rewrite->root],
                             names, made, rewrite->diag));
    settle(rewrite, n, inputs);
    *out = made[0];
    return ESP_OK;
}

esp_status_t esp_i_rewrite_emit(esp_i_rewrite_t *rewrite, esp_op_kind_t kind,
                                const esp_attr_t *attr, int32_t n, const esp_tensor_id_t *inputs,
                                esp_tensor_id_t *out)
{
    return esp_i_rewrite_emit_as(rewrite, kind, attr, n, inputs, inputs, out);
}

esp_status_t esp_i_rewrite_emit_chain(esp_i_rewrite_t *rewrite, esp_tensor_id_t x, int32_t n,
                                      const esp_i_step_t *steps, esp_tensor_id_t *out)
{
    const esp_graph_t *graph = rewrite->graph;
    const char *names[ESP_I_MAX_OUT] = {
        graph->tensor_name[esp_i_rewrite_output(rewrite, rewrite->root)]};
    const char *name = graph->op_name[rewrite->root];
    const char *inner = esp_i_arena_printf(&rewrite->builder->arena, "%s/inner", name);
    esp_tensor_id_t made[ESP_I_MAX_OUT] = {rewrite->map[x]};
    if (inner == NULL)
        return esp_i_nomem(rewrite->diag);
    if (!is_there(rewrite, x))
        return ESP_OK;
    for (int32_t i = 0; i < n; i++) {
        bool last = i == n - 1;
        ESP_TRY(esp_i_builder_op(rewrite->builder, steps[i].kind, &steps[i].attr, 1, made,
                                 last ? name : inner, last ? names : NULL, made, rewrite->diag));
    }
    settle(rewrite, 1, &x);
    *out = made[0];
    return ESP_OK;
}

esp_status_t esp_i_rewrite_alias(esp_i_rewrite_t *rewrite, esp_tensor_id_t tensor,
                                 esp_tensor_id_t *out)
{
    if (rewrite->kept[esp_i_rewrite_output(rewrite, rewrite->root)] || !is_there(rewrite, tensor))
        return ESP_OK;
    settle(rewrite, 1, &tensor);
    *out = rewrite->map[tensor];
    return ESP_OK;
}
