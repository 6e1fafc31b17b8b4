/* ONNX file -> model graph: the steps, in order. */
#include "import/scope.h"

#include <string.h>

esp_onnx_opts_t esp_onnx_opts_default(void)
{
    return (esp_onnx_opts_t){.struct_size = sizeof(esp_onnx_opts_t)};
}

/* ---- functions of the model ------------------------------------------------------------------ */

static esp_status_t add_function(esp_i_import_t *im, esp_i_wire_t body)
{
    esp_i_pb_function_t f;
    ESP_TRY(esp_i_pb_function(body, &f, im->diag));
    int64_t length = f.domain.length + f.name.length + f.overload.length + 3;
    if (f.name.length == 0 || length > 512) /* a node that calls it has a key of 512 */
        return esp_i_fail(im->diag, ESP_ERR_INVALID, "a function has no name or a long one");
    char *key = esp_i_arena_printf(&im->arena, "%.*s\n%.*s\n%.*s\n", (int)f.domain.length,
                                   f.domain.length > 0 ? f.domain.data : "", (int)f.name.length,
                                   f.name.data, (int)f.overload.length,
                                   f.overload.length > 0 ? f.overload.data : "");
    if (key == NULL)
        return esp_i_nomem(im->diag);
    int32_t id = esp_i_names_add(&im->function_names, key, strlen(key));
    if (id < 0)
        return esp_i_nomem(im->diag);
    if (id < im->functions.count)
        return esp_i_fail(im->diag, ESP_ERR_INVALID, "function '%.*s' is defined twice",
                          (int)f.name.length, f.name.data);
    return esp_vec_push(&im->alloc, &im->functions, f) ? ESP_OK : esp_i_nomem(im->diag);
}

static esp_status_t read_functions(esp_i_import_t *im, esp_i_wire_t model)
{
    esp_i_wire_t item;
    while (esp_i_pb_each(&model, ESP_I_MODEL_FUNCTIONS, &item, im->diag)) {
        esp_status_t status = add_function(im, item);
        if (status == ESP_ERR_INVALID)
            esp_i_diag_byte(im->diag, esp_i_wire_offset(&item, item.at));
        ESP_TRY(status);
    }
    return model.status;
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Ids of the graph's outputs. */
static esp_status_t read_outputs(esp_i_scope_t *scope, esp_i_wire_t graph, int32_t **ids_out,
                                 int32_t *count_out)
{
    esp_i_import_t *im = scope->im;
    esp_i_wire_t item;
    ESP_VEC(int32_t) ids = {0};
    esp_status_t status = ESP_OK;
    while (status == ESP_OK && esp_i_pb_each(&graph, ESP_I_GRAPH_OUTPUTS, &item, im->diag)) {
        esp_i_pb_value_info_t info;
        int32_t id = -1;
        status = esp_i_pb_value_info(item, &info, im->diag);
        if (status == ESP_OK)
            status = esp_i_im_scope_name(scope, info.name, &id);
        if (status == ESP_OK && !esp_vec_push(&im->alloc, &ids, id))
            status = esp_i_nomem(im->diag);
    }
    if (status == ESP_OK)
        status = graph.status;
    if (status == ESP_OK && ids.count == 0)
        status = esp_i_fail(im->diag, ESP_ERR_INVALID, "the graph has no outputs");
    if (status != ESP_OK)
        esp_vec_free(&im->alloc, &ids);
    *ids_out = ids.data;
    *count_out = ids.count;
    return status;
}

static esp_status_t mark_outputs(esp_i_scope_t *scope, int32_t n, const int32_t *ids)
{
    esp_i_import_t *im = scope->im;
    for (int32_t k = 0; k < n; k++) {
        esp_i_value_t *v = scope->values.data[ids[k]];
        esp_tensor_id_t tensor = ESP_NONE;
        esp_i_diag_place(im->diag, "output '%s'", scope->names.names[ids[k]]);
        if (v == NULL)
            return esp_i_fail(
                im->diag, scope->producer.data[ids[k]] >= 0 ? ESP_ERR_UNSUPPORTED : ESP_ERR_INVALID,
                "nothing computes it");
        ESP_TRY(esp_i_im_tensor(im, v, &tensor));
        ESP_TRY(esp_builder_output(im->builder, tensor));
    }
    im->diag->place[0] = '\0';
    return ESP_OK;
}

/* What an op makes is named after the op; results of the model keep the name that the file gives
 * them. The first name counts if there are several. */
static esp_status_t name_outputs(esp_i_scope_t *scope, int32_t n, const int32_t *ids)
{
    for (int32_t k = n - 1; k >= 0; k--) {
        const esp_i_value_t *v = scope->values.data[ids[k]];
        if (v->role == ESP_ROLE_ACTIVATION)
            ESP_TRY(esp_builder_rename(scope->im->builder, v->tensor, scope->names.names[ids[k]]));
    }
    return ESP_OK;
}

/* ---- the import ------------------------------------------------------------------------------ */

static esp_status_t import_graph(esp_i_scope_t *scope, const esp_i_pb_model_t *model)
{
    esp_i_import_t *im = scope->im;
    int32_t *outputs = NULL, n_outputs = 0;
    ESP_TRY(esp_i_im_scope_opsets(scope, model->body, ESP_I_MODEL_OPSETS));
    ESP_TRY(read_functions(im, model->body));
    ESP_TRY(esp_i_im_scope_initializers(scope, model->graph));
    ESP_TRY(esp_i_im_import_inputs(im, scope, model->graph));
    ESP_TRY(esp_i_im_scope_nodes(scope, model->graph, ESP_I_GRAPH_NODES));
    if (scope->nodes.count == 0)
        return esp_i_fail(im->diag, ESP_ERR_INVALID, "the graph has no nodes");
    esp_i_im_scope_numbers(scope);
    ESP_TRY(read_outputs(scope, model->graph, &outputs, &n_outputs));
    esp_status_t status = esp_i_im_scope_run(scope, n_outputs, outputs);
    if (status == ESP_OK)
        status = mark_outputs(scope, n_outputs, outputs);
    if (status == ESP_OK)
        status = name_outputs(scope, n_outputs, outputs);
    esp_i_free(&im->alloc, outputs);
    return status;
}

static esp_status_t import_model(esp_i_import_t *im, const void *bytes, int64_t length,
                                 esp_graph_t **model_out)
{
    esp_i_pb_model_t model;
    esp_i_scope_t scope;
    esp_status_t read = esp_i_pb_model(esp_i_wire_open(bytes, length), &model, im->diag);
    if (read != ESP_OK) {
        esp_diag_t cause = *im->diag;
        return esp_i_fail(im->diag, read, "this is not an ONNX model: %s", cause.text);
    }
    if (!model.has_graph)
        return esp_i_fail(im->diag, ESP_ERR_SYNTAX, "this is not an ONNX model: it has no graph");
    ESP_TRY(esp_builder_create("model", &im->alloc, &im->builder));
    im->bytes = bytes;
    im->absent = esp_i_im_value_new(im, "");
    if (im->absent == NULL)
        return esp_i_nomem(im->diag);
    esp_i_im_scope_init(&scope, im);
    esp_status_t status = import_graph(&scope, &model);
    esp_i_im_scope_fini(&scope);
    return status == ESP_OK ? esp_builder_freeze(im->builder, model_out, im->diag) : status;
}

static esp_status_t check_opts(const esp_onnx_opts_t *opts, esp_diag_t *diag)
{
    if (opts->struct_size != sizeof *opts)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "the options are not those of esp_onnx_opts_default");
    if (opts->batch < 0 || opts->batch > ESP_MAX_ELEMENTS)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "a batch of %lld", (long long)opts->batch);
    return ESP_OK;
}

esp_status_t esp_onnx_parse(const void *bytes, size_t length, const esp_onnx_opts_t *opts,
                            const esp_allocator_t *alloc, esp_graph_t **model_out, esp_diag_t *diag)
{
    esp_onnx_opts_t defaults = esp_onnx_opts_default();
    esp_diag_t local = {0}; /* the caller's is touched on failure only */
    esp_i_import_t im = {.alloc = esp_i_allocator(alloc),
                         .opts = opts != NULL ? opts : &defaults,
                         .diag = &local,
                         .nodes_left = ESP_ONNX_MAX_NODES,
                         .fold_left = 32 * ESP_ONNX_MAX_FOLD};
    esp_i_arena_init(&im.arena, &im.alloc);
    esp_i_names_init(&im.function_names, &im.arena);
    esp_i_diag_file(&local, im.opts->file != NULL ? im.opts->file : "onnx");
    esp_status_t status = check_opts(im.opts, &local);
    if (status == ESP_OK && length > (size_t)ESP_ONNX_MAX_FILE_BYTES)
        status = esp_i_fail(&local, ESP_ERR_LIMIT, "the file is larger than 2 GiB");
    if (status == ESP_OK)
        status = import_model(&im, bytes, (int64_t)length, model_out);
    esp_builder_destroy(im.builder);
    esp_vec_free(&im.alloc, &im.tracks);
    esp_vec_free(&im.alloc, &im.functions);
    esp_i_names_fini(&im.function_names);
    esp_i_arena_fini(&im.arena);
    if (status != ESP_OK && diag != NULL)
        *diag = local;
    return status;
}

esp_status_t esp_onnx_load(const char *path, const esp_onnx_opts_t *opts,
                           const esp_allocator_t *alloc, esp_graph_t **model_out, esp_diag_t *diag)
{
    esp_onnx_opts_t own = opts != NULL ? *opts : esp_onnx_opts_default();
    esp_allocator_t allocator = esp_i_allocator(alloc);
    char *data;
    int64_t length;
    ESP_TRY(esp_i_file_read(&allocator, path, ESP_ONNX_MAX_FILE_BYTES, &data, &length, diag));
    own.file = path;
    esp_status_t status = esp_onnx_parse(data, (size_t)length, &own, &allocator, model_out, diag);
    esp_i_free(&allocator, data);
    return status;
}
