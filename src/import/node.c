/* One node: finding its rule, or inlining the function or branch it stands for. */
#include "import/scope.h"

#include <string.h>

enum { MAX_OPSETS = 256 };

static bool is_default_domain(esp_i_str_t domain)
{
    return domain.length == 0 || esp_i_str_is(domain, "ai.onnx");
}

/* Version of a domain in the scope; 0: not imported. */
static esp_status_t opset_of(const esp_i_scope_t *scope, esp_i_str_t domain, int64_t *version_out)
{
    esp_diag_t *diag = scope->im->diag;
    esp_i_wire_t message = scope->opsets_of, item;
    esp_i_pb_opset_t opset;
    int32_t count = 0;
    *version_out = 0;
    if (is_default_domain(domain) && scope->opset > 0) {
        *version_out = scope->opset;
        return ESP_OK;
    }
    while (esp_i_pb_each(&message, scope->opsets_number, &item, diag)) {
        ESP_TRY(esp_i_pb_opset(item, &opset, diag));
        if (++count > MAX_OPSETS)
            return esp_i_fail(diag, ESP_ERR_LIMIT, "more than %d opset imports", MAX_OPSETS);
        if (esp_i_str_equal(opset.domain, domain) ||
            (is_default_domain(opset.domain) && is_default_domain(domain)))
            *version_out = opset.version;
    }
    return message.status;
}

esp_status_t esp_i_im_scope_opsets(esp_i_scope_t *scope, esp_i_wire_t message, uint32_t number)
{
    esp_i_str_t standard = {"", 0};
    scope->opsets_of = message;
    scope->opsets_number = number;
    int64_t version = 0;
    ESP_TRY(opset_of(scope, standard, &version));
    if (version != 0 && (version < ESP_ONNX_MIN_OPSET || version > ESP_ONNX_MAX_OPSET))
        return esp_i_fail(scope->im->diag, ESP_ERR_UNSUPPORTED,
                          "opset %lld is not supported (%d to %d are)", (long long)version,
                          ESP_ONNX_MIN_OPSET, ESP_ONNX_MAX_OPSET);
    scope->opset = version;
    return ESP_OK;
}

/* ---- functions and branches ------------------------------------------------------------------ */

static esp_status_t enter(esp_i_node_t *node)
{
    if (node->im->depth == ESP_ONNX_MAX_DEPTH)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT,
                          "functions or branches are nested more than %d deep", ESP_ONNX_MAX_DEPTH);
    node->im->depth++;
    return ESP_OK;
}

/* Reads the names of a string list (functions) or of value infos (graphs) as ids. */
static esp_status_t read_names(esp_i_scope_t *scope, esp_i_wire_t message, uint32_t number,
                               bool infos, int32_t capacity, int32_t *ids, int32_t *count_out)
{
    esp_diag_t *diag = scope->im->diag;
    esp_i_wire_t item;
    int32_t count = 0;
    while (esp_i_pb_each(&message, number, &item, diag)) {
        esp_i_pb_value_info_t info = {.name = esp_i_wire_str(&item)};
        if (infos)
            ESP_TRY(esp_i_pb_value_info(item, &info, diag));
        if (count == capacity)
            return esp_i_fail(diag, ESP_ERR_INVALID, "has more outputs inside than outside");
        ESP_TRY(esp_i_im_scope_name(scope, info.name, &ids[count++]));
    }
    *count_out = count;
    return message.status;
}

/* Imports what the outputs need and hands their values to the node. */
static esp_status_t run_body(esp_i_node_t *node, esp_i_scope_t *scope, esp_i_wire_t message,
                             uint32_t number, bool infos)
{
    int32_t *ids = esp_i_alloc_array(&node->im->alloc, node->n_out, sizeof *ids);
    int32_t count = 0;
    if (ids == NULL)
        return esp_i_nomem(node->diag);
    esp_status_t status = read_names(scope, message, number, infos, node->n_out, ids, &count);
    if (status == ESP_OK)
        status = esp_i_im_scope_run(scope, count, ids);
    for (int32_t k = 0; status == ESP_OK && k < count; k++)
        status = esp_i_im_scope_find(scope, scope->names.names[ids[k]], &node->out[k]);
    esp_i_free(&node->im->alloc, ids);
    return status;
}

static esp_status_t bind_inputs(esp_i_node_t *node, esp_i_scope_t *scope)
{
    esp_i_wire_t message = scope->function->body, item;
    int32_t k = 0;
    while (esp_i_pb_each(&message, ESP_I_FUNCTION_INPUTS, &item, node->diag)) {
        int32_t id = -1;
        esp_i_value_t *v = esp_i_im_in(node, k++);
        ESP_TRY(esp_i_im_scope_name(scope, esp_i_wire_str(&item), &id));
        if (scope->values.data[id] != NULL)
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "a function has two inputs '%s'",
                              scope->names.names[id]);
        scope->values.data[id] = v != NULL ? v : node->im->absent;
    }
    if (message.status == ESP_OK && node->n_in > k)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%d inputs for a function of %d", node->n_in,
                          k);
    return message.status;
}

static esp_status_t inline_function(esp_i_node_t *node, const esp_i_pb_function_t *function)
{
    esp_i_scope_t scope;
    ESP_TRY(enter(node));
    esp_i_im_scope_init(&scope, node->im);
    scope.function = function;
    scope.call = node;
    scope.prefix = esp_i_arena_printf(&node->im->arena, "%s/", node->name);
    esp_status_t status = scope.prefix == NULL ? esp_i_nomem(node->diag) : ESP_OK;
    if (status == ESP_OK)
        status = esp_i_im_scope_opsets(&scope, function->body, ESP_I_FUNCTION_OPSETS);
    if (status == ESP_OK)
        status = bind_inputs(node, &scope);
    if (status == ESP_OK)
        status = esp_i_im_scope_nodes(&scope, function->body, ESP_I_FUNCTION_NODES);
    if (status == ESP_OK)
        status = run_body(node, &scope, function->body, ESP_I_FUNCTION_OUTPUTS, false);
    esp_i_im_scope_fini(&scope);
    node->im->depth--;
    return status;
}

esp_status_t esp_i_im_inline_branch(esp_i_node_t *node, esp_i_wire_t graph)
{
    esp_i_scope_t scope;
    ESP_TRY(enter(node));
    esp_i_im_scope_init(&scope, node->im);
    scope.parent = node->scope;
    scope.opset = node->scope->opset;
    scope.opsets_of = node->scope->opsets_of;
    scope.opsets_number = node->scope->opsets_number;
    scope.prefix = node->scope->prefix;
    esp_status_t status = esp_i_im_scope_initializers(&scope, graph);
    if (status == ESP_OK)
        status = esp_i_im_scope_nodes(&scope, graph, ESP_I_GRAPH_NODES);
    if (status == ESP_OK)
        status = run_body(node, &scope, graph, ESP_I_GRAPH_OUTPUTS, true);
    esp_i_im_scope_fini(&scope);
    node->im->depth--;
    return status;
}

static const esp_i_pb_function_t *find_function(const esp_i_import_t *im,
                                                const esp_i_pb_node_t *node)
{
    char key[512];
    int64_t at = 0;
    const esp_i_str_t parts[3] = {node->domain, node->op_type, node->overload};
    if (im->functions.count == 0)
        return NULL;
    for (int32_t p = 0; p < 3; p++) {
        if (parts[p].length + at + 2 > (int64_t)sizeof key)
            return NULL;
        if (parts[p].length > 0)
            memcpy(key + at, parts[p].data, (size_t)parts[p].length);
        at += parts[p].length;
        key[at++] = '\n';
    }
    int32_t id = esp_i_names_find(&im->function_names, key, (size_t)at);
    return id < 0 ? NULL : &im->functions.data[id];
}

/* ---- running a rule -------------------------------------------------------------------------- */

static esp_status_t unsupported(esp_i_node_t *node, const esp_i_onnx_op_t *other)
{
    esp_i_str_t domain = node->pb.domain;
    if (node->opset == 0)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "the file imports no opset of domain '%.*s'",
                          (int)esp_i_min_i64(domain.length, 80),
                          domain.length > 0 ? domain.data : "");
    if (other != NULL)
        return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                          "this op is not supported at opset %lld (%d to %d are)",
                          (long long)node->opset, other->since, other->until);
    return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                      "this op is not supported (domain '%.*s', opset %lld)",
                      (int)esp_i_min_i64(domain.length, 80), domain.length > 0 ? domain.data : "",
                      (long long)node->opset);
}

static esp_status_t run_rule(esp_i_node_t *node)
{
    const esp_i_onnx_op_t *other = NULL;
    const esp_i_pb_function_t *function = find_function(node->im, &node->pb);
    if (function != NULL)
        return inline_function(node, function);
    ESP_TRY(opset_of(node->scope, node->pb.domain, &node->opset));
    node->op = esp_i_onnx_find(node->pb.domain, node->pb.op_type, node->opset, &other);
    if (node->op == NULL)
        return unsupported(node, other);
    return node->op->rule(node);
}

/* Values of the inputs; the names that are missing here are looked up around. */
static esp_status_t read_inputs(esp_i_scope_t *scope, const esp_i_stub_t *stub, esp_i_node_t *node)
{
    for (int32_t k = 0; k < stub->n_in; k++) {
        int32_t id = scope->operands.data[stub->first_in + k];
        if (id < 0)
            continue;
        esp_i_value_t *v = scope->values.data[id];
        bool made_here = scope->producer.data[id] >= 0;
        if (v == NULL && !made_here)
            ESP_TRY(esp_i_im_scope_find(scope->parent, scope->names.names[id], &v));
        if (v == NULL)
            return esp_i_fail(node->diag, made_here ? ESP_ERR_UNSUPPORTED : ESP_ERR_INVALID,
                              made_here ? "input %d is '%s', an output that is not supported"
                                        : "input %d is '%s', which nothing defines",
                              k, scope->names.names[id]);
        node->in[k] = v == node->im->absent ? NULL : v;
    }
    return ESP_OK;
}

static esp_status_t name_node(esp_i_scope_t *scope, const esp_i_stub_t *stub, esp_i_node_t *node)
{
    esp_i_str_t name = node->pb.name;
    for (int32_t k = 0; k < stub->n_out && name.length == 0; k++) {
        int32_t id = scope->operands.data[stub->first_in + stub->n_in + k];
        if (id >= 0)
            name = (esp_i_str_t){scope->names.names[id], (int64_t)strlen(scope->names.names[id])};
    }
    if (name.length == 0)
        name = node->pb.op_type;
    node->name = esp_i_arena_printf(&scope->im->arena, "%s%.*s", scope->prefix,
                                    (int)esp_i_min_i64(name.length, 4096), name.data);
    return node->name == NULL ? esp_i_nomem(scope->im->diag) : ESP_OK;
}

/* Says where an error happened: the innermost node does. */
static void locate(const esp_i_node_t *node)
{
    esp_i_str_t type = node->pb.op_type;
    if (node->im->located)
        return;
    esp_i_diag_place(node->diag, "%s (%.*s)", node->name, (int)esp_i_min_i64(type.length, 60),
                     type.data);
    node->im->located = true;
}

static esp_status_t keep_outputs(esp_i_scope_t *scope, const esp_i_stub_t *stub,
                                 const esp_i_node_t *node)
{
    for (int32_t k = 0; k < stub->n_out; k++) {
        int32_t id = scope->operands.data[stub->first_in + stub->n_in + k];
        if (id < 0 || node->out[k] == NULL)
            continue;
        scope->values.data[id] = node->out[k];
    }
    return ESP_OK;
}

esp_status_t esp_i_im_node_import(esp_i_scope_t *scope, esp_i_stub_t stub)
{
    esp_i_import_t *im = scope->im;
    esp_i_node_t node = {
        .im = im, .scope = scope, .n_in = stub.n_in, .n_out = stub.n_out, .diag = im->diag};
    if (--im->nodes_left < 0)
        return esp_i_fail(im->diag, ESP_ERR_LIMIT, "more than %lld nodes",
                          (long long)ESP_ONNX_MAX_NODES);
    ESP_TRY(esp_i_pb_node(stub.body, &node.pb, im->diag));
    ESP_TRY(name_node(scope, &stub, &node));
    node.in = esp_i_arena_alloc(&im->arena, (int64_t)stub.n_in + stub.n_out, sizeof *node.in);
    if (node.in == NULL)
        return esp_i_nomem(im->diag);
    node.out = node.in + stub.n_in;
    esp_status_t status = read_inputs(scope, &stub, &node);
    if (status == ESP_OK)
        status = run_rule(&node);
    if (status != ESP_OK) {
        locate(&node);
        return status;
    }
    return keep_outputs(scope, &stub, &node);
}
