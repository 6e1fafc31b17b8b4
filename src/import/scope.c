/* Names and order of the nodes of one graph. */
#include "import/scope.h"

#include <string.h>

void esp_i_im_scope_init(esp_i_scope_t *scope, esp_i_import_t *im)
{
    *scope = (esp_i_scope_t){.im = im, .prefix = ""};
    esp_i_names_init(&scope->names, &im->arena);
}

void esp_i_im_scope_fini(esp_i_scope_t *scope)
{
    const esp_allocator_t *alloc = &scope->im->alloc;
    esp_i_names_fini(&scope->names);
    esp_vec_free(alloc, &scope->values);
    esp_vec_free(alloc, &scope->producer);
    esp_vec_free(alloc, &scope->nodes);
    esp_vec_free(alloc, &scope->operands);
}

/* ---- names ----------------------------------------------------------------------------------- */

esp_status_t esp_i_im_scope_name(esp_i_scope_t *scope, esp_i_str_t name, int32_t *id_out)
{
    esp_i_import_t *im = scope->im;
    if (name.length > INT32_MAX ||
        (name.length > 0 && memchr(name.data, 0, (size_t)name.length) != NULL))
        return esp_i_fail(im->diag, ESP_ERR_INVALID, "a name contains a zero byte or is too long");
    int32_t id =
        esp_i_names_add(&scope->names, name.length > 0 ? name.data : "", (size_t)name.length);
    if (id < 0)
        return esp_i_nomem(im->diag);
    if (id == scope->values.count && (!esp_vec_push(&im->alloc, &scope->values, NULL) ||
                                      !esp_vec_push(&im->alloc, &scope->producer, -1)))
        return esp_i_nomem(im->diag);
    *id_out = id;
    return ESP_OK;
}

static esp_status_t taken(esp_i_scope_t *scope, int32_t id)
{
    return esp_i_fail(scope->im->diag, ESP_ERR_INVALID, "two values are named '%s'",
                      scope->names.names[id]);
}

esp_status_t esp_i_im_scope_define(esp_i_scope_t *scope, esp_i_str_t name, esp_i_value_t *v)
{
    int32_t id;
    ESP_TRY(esp_i_im_scope_name(scope, name, &id));
    if (scope->values.data[id] != NULL || scope->producer.data[id] >= 0)
        return taken(scope, id);
    v->name = scope->names.names[id];
    scope->values.data[id] = v;
    return ESP_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static esp_status_t add_operands(esp_i_scope_t *scope, esp_i_wire_t node, uint32_t number,
                                 int32_t producer)
{
    esp_i_import_t *im = scope->im;
    esp_i_wire_t item;
    while (esp_i_pb_each(&node, number, &item, im->diag)) {
        int32_t id = -1;
        if (item.at != item.end)
            ESP_TRY(esp_i_im_scope_name(scope, esp_i_wire_str(&item), &id));
        if (id >= 0 && producer >= 0) {
            if (scope->producer.data[id] >= 0 || scope->values.data[id] != NULL) {
                esp_i_diag_byte(im->diag, esp_i_wire_offset(&item, item.at));
                return taken(scope, id);
            }
            scope->producer.data[id] = producer;
        }
        if (!esp_vec_push(&im->alloc, &scope->operands, id))
            return esp_i_nomem(im->diag);
    }
    return node.status;
}

static esp_status_t add_node(esp_i_scope_t *scope, esp_i_wire_t body)
{
    esp_i_import_t *im = scope->im;
    esp_i_pb_node_t node;
    ESP_TRY(esp_i_pb_node(body, &node, im->diag));
    if (node.op_type.length == 0 || node.n_outputs == 0) {
        esp_i_diag_byte(im->diag, esp_i_wire_offset(&body, body.at));
        return esp_i_fail(im->diag, ESP_ERR_INVALID, "a node without %s",
                          node.op_type.length == 0 ? "op type" : "outputs");
    }
    esp_i_stub_t stub = {.body = body,
                         .op = node.op_type,
                         .first_in = scope->operands.count,
                         .n_in = node.n_inputs,
                         .n_out = node.n_outputs};
    ESP_TRY(add_operands(scope, body, ESP_I_NODE_INPUTS, -1));
    ESP_TRY(add_operands(scope, body, ESP_I_NODE_OUTPUTS, scope->nodes.count));
    return esp_vec_push(&im->alloc, &scope->nodes, stub) ? ESP_OK : esp_i_nomem(im->diag);
}

esp_status_t esp_i_im_scope_nodes(esp_i_scope_t *scope, esp_i_wire_t message, uint32_t number)
{
    esp_i_wire_t item;
    while (esp_i_pb_each(&message, number, &item, scope->im->diag))
        ESP_TRY(add_node(scope, item));
    return message.status;
}

esp_status_t esp_i_im_literal_read(const esp_i_import_t *im, const esp_i_value_t *v,
                                   esp_i_pb_tensor_t *out)
{
    esp_i_wire_t body = {im->bytes, v->literal, v->literal_end, ESP_OK};
    return esp_i_pb_tensor(body, out, im->diag);
}

esp_status_t esp_i_im_literal_value(esp_i_import_t *im, esp_i_wire_t body, bool initializer,
                                    esp_i_str_t *name_out, esp_i_value_t **out)
{
    esp_i_pb_tensor_t tensor;
    esp_dtype_t dtype = ESP_DTYPE_F32;
    int64_t count = 0;
    ESP_TRY(esp_i_pb_tensor(body, &tensor, im->diag));
    ESP_TRY(esp_i_im_literal_shape(im, &tensor, &dtype, &count));
    esp_i_value_t *v = esp_i_im_value_new(im, "constant");
    if (v == NULL)
        return esp_i_nomem(im->diag);
    v->dtype = dtype;
    v->rank = tensor.rank;
    memcpy(v->dims, tensor.dims, sizeof v->dims);
    v->literal = body.at;
    v->literal_end = body.end;
    v->external = tensor.external;
    v->initializer = initializer;
    if (initializer && esp_dtype_is_float(dtype) && count > 1)
        v->role = ESP_ROLE_PARAMETER;
    *name_out = tensor.name;
    *out = v;
    return ESP_OK;
}

esp_status_t esp_i_im_scope_initializers(esp_i_scope_t *scope, esp_i_wire_t graph)
{
    esp_i_import_t *im = scope->im;
    esp_i_wire_t item, sparse = graph;
    esp_i_str_t name;
    esp_i_value_t *v;
    while (esp_i_pb_each(&graph, ESP_I_GRAPH_INITIALIZERS, &item, im->diag)) {
        ESP_TRY(esp_i_im_literal_value(im, item, true, &name, &v));
        ESP_TRY(esp_i_im_scope_define(scope, name, v));
    }
    if (graph.status == ESP_OK && esp_i_pb_each(&sparse, ESP_I_GRAPH_SPARSE, &item, im->diag)) {
        esp_i_diag_byte(im->diag, esp_i_wire_offset(&item, item.at));
        return esp_i_fail(im->diag, ESP_ERR_UNSUPPORTED, "sparse initializers are not supported");
    }
    return graph.status != ESP_OK ? graph.status : sparse.status;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* The node that must be imported before operand `id` can be read; -1: none. */
static int32_t pending(const esp_i_scope_t *scope, int32_t id)
{
    bool here = id < 0 || scope->values.data[id] != NULL || scope->producer.data[id] < 0;
    return here || scope->nodes.data[scope->producer.data[id]].done ? -1 : scope->producer.data[id];
}

typedef ESP_VEC(int32_t) worklist_t;

static esp_status_t push(esp_i_scope_t *scope, worklist_t *stack, int32_t node)
{
    esp_i_import_t *im = scope->im;
    esp_i_stub_t *stub = &scope->nodes.data[node];
    if (stub->open) {
        esp_i_diag_byte(im->diag, esp_i_wire_offset(&stub->body, stub->body.at));
        return esp_i_fail(im->diag, ESP_ERR_INVALID, "the graph has a cycle through this node");
    }
    stub->open = true;
    return esp_vec_push(&im->alloc, stack, node) ? ESP_OK : esp_i_nomem(im->diag);
}

/* One step of the depth-first walk: looks at the next input of the top node, or imports it. */
static esp_status_t step(esp_i_scope_t *scope, worklist_t *stack)
{
    int32_t top = stack->data[stack->count - 1];
    esp_i_stub_t *stub = &scope->nodes.data[top];
    if (stub->next_in < stub->n_in) {
        int32_t before = pending(scope, scope->operands.data[stub->first_in + stub->next_in++]);
        return before < 0 ? ESP_OK : push(scope, stack, before);
    }
    ESP_TRY(esp_i_im_node_import(scope, *stub));
    stub->open = false;
    stub->done = true;
    stack->count--;
    return ESP_OK;
}

/* Imports a node after everything it needs. */
static esp_status_t visit(esp_i_scope_t *scope, int32_t node)
{
    worklist_t stack = {0};
    esp_status_t status = push(scope, &stack, node);
    while (status == ESP_OK && stack.count > 0)
        status = step(scope, &stack);
    esp_vec_free(&scope->im->alloc, &stack);
    return status;
}

static esp_status_t mark_needed(esp_i_scope_t *scope, int32_t n_wanted, const int32_t *wanted)
{
    worklist_t stack = {0};
    bool room = true;
    for (int32_t k = 0; k < n_wanted && room; k++)
        if (pending(scope, wanted[k]) >= 0)
            room = esp_vec_push(&scope->im->alloc, &stack, pending(scope, wanted[k]));
    while (room && stack.count > 0) {
        esp_i_stub_t *stub = &scope->nodes.data[stack.data[--stack.count]];
        if (stub->needed)
            continue;
        stub->needed = true;
        for (int32_t k = 0; k < stub->n_in && room; k++) {
            int32_t before = pending(scope, scope->operands.data[stub->first_in + k]);
            if (before >= 0 && !scope->nodes.data[before].needed)
                room = esp_vec_push(&scope->im->alloc, &stack, before);
        }
    }
    esp_vec_free(&scope->im->alloc, &stack);
    return room ? ESP_OK : esp_i_nomem(scope->im->diag);
}

esp_status_t esp_i_im_scope_run(esp_i_scope_t *scope, int32_t n_wanted, const int32_t *wanted)
{
    ESP_TRY(mark_needed(scope, n_wanted, wanted));
    for (int32_t k = 0; k < scope->nodes.count; k++)
        if (scope->nodes.data[k].needed && !scope->nodes.data[k].done)
            ESP_TRY(visit(scope, k));
    return ESP_OK;
}

esp_status_t esp_i_im_scope_find(esp_i_scope_t *scope, const char *name, esp_i_value_t **out)
{
    *out = NULL;
    for (; scope != NULL; scope = scope->parent) {
        int32_t id = esp_i_names_find(&scope->names, name, strlen(name));
        if (id < 0)
            continue;
        if (pending(scope, id) >= 0)
            ESP_TRY(visit(scope, pending(scope, id)));
        *out = scope->values.data[id];
        if (*out != NULL || scope->producer.data[id] >= 0)
            return ESP_OK;
    }
    return ESP_OK;
}
