/* The builder: tensors and ops appended one by one, every shape known as soon as its op is there.
 */
#include "graph/attr.h"
#include "graph/build.h"

#include <string.h>

esp_status_t esp_builder_create(const char *name, const esp_allocator_t *alloc,
                                esp_builder_t **builder_out)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    esp_builder_t *builder = esp_i_alloc_array(&from, 1, sizeof *builder);
    if (builder == NULL)
        return ESP_ERR_NOMEM;
    esp_i_arena_init(&builder->arena, &from);
    esp_i_names_init(&builder->tensor_names.names, &builder->arena);
    esp_i_names_init(&builder->op_names.names, &builder->arena);
    builder->phase = ESP_PHASE_FORWARD;
    builder->origin = ESP_NONE;
    builder->name = esp_i_arena_strdup(&builder->arena, name != NULL ? name : "");
    if (builder->name == NULL) {
        esp_builder_destroy(builder);
        return ESP_ERR_NOMEM;
    }
    *builder_out = builder;
    return ESP_OK;
}

static void unique_fini(esp_i_unique_t *unique, const esp_allocator_t *alloc)
{
    esp_i_names_fini(&unique->names);
    esp_vec_free(alloc, &unique->suffix);
}

void esp_builder_destroy(esp_builder_t *builder)
{
    if (builder == NULL)
        return;
    esp_allocator_t alloc = builder->arena.alloc;
    unique_fini(&builder->tensor_names, &alloc);
    unique_fini(&builder->op_names, &alloc);
    esp_vec_free(&alloc, &builder->tensors);
    esp_vec_free(&alloc, &builder->ops);
    esp_vec_free(&alloc, &builder->operands);
    esp_vec_free(&alloc, &builder->outputs);
    esp_vec_free(&alloc, &builder->scratch);
    esp_i_arena_fini(&builder->arena);
    esp_i_free(&alloc, builder);
}

/* ---- names -------------------------------------------------------------------------------- */

/* Adds a name that is not there yet and returns its one copy; NULL: no memory. */
static const char *unique_add(esp_i_unique_t *unique, const esp_allocator_t *alloc,
                              const char *text)
{
    if (!esp_vec_push(alloc, &unique->suffix, 0))
        return NULL;
    int32_t id = esp_i_names_add(&unique->names, text, strlen(text));
    if (id < 0) {
        unique->suffix.count--;
        return NULL;
    }
    return unique->names.names[id];
}

/* `text`, or `text` with a suffix if that is taken. */
static const char *unique_name(esp_builder_t *builder, esp_i_unique_t *unique, const char *text)
{
    const esp_allocator_t *alloc = &builder->arena.alloc;
    int32_t taken = esp_i_names_find(&unique->names, text, strlen(text));
    if (taken < 0)
        return unique_add(unique, alloc, text);
    for (;;) {
        /* The count is kept per name, so that n equal names cost n trials and not n^2. */
        const char *next =
            esp_i_arena_printf(&builder->arena, "%s_%d", text, ++unique->suffix.data[taken]);
        if (next == NULL)
            return NULL;
        if (esp_i_names_find(&unique->names, next, strlen(next)) < 0)
            return unique_add(unique, alloc, next);
    }
}

/* ---- tensors ------------------------------------------------------------------------------ */

/* Every product of dims fits int64_t afterwards, also where one of them is 0. */
static esp_status_t check_shape(const esp_i_shape_t *shape, esp_diag_t *diag)
{
    int64_t elements = 1;
    if (shape->dtype < 0 || shape->dtype >= ESP_DTYPE_COUNT)
        return esp_i_fail(diag, ESP_ERR_INVALID, "unknown dtype %d", (int)shape->dtype);
    if (shape->rank < 0 || shape->rank > ESP_MAX_RANK)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "rank %d; at most %d axes are supported",
                          (int)shape->rank, ESP_MAX_RANK);
    for (int32_t i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dims[i];
        if (dim < 0)
            return esp_i_fail(diag, ESP_ERR_INVALID, "axis %d has extent %lld", (int)i,
                              (long long)dim);
        if (!esp_i_mul_i64(elements, esp_i_max_i64(dim, 1), &elements) ||
            elements > ESP_MAX_ELEMENTS)
            return esp_i_fail(diag, ESP_ERR_LIMIT, "more than 2^46 elements");
    }
    return ESP_OK;
}

static esp_status_t append_tensor(esp_builder_t *builder, const char *name,
                                  const esp_i_built_tensor_t *tensor, esp_tensor_id_t *tensor_out,
                                  esp_diag_t *diag)
{
    const esp_allocator_t *alloc = &builder->arena.alloc;
    const char *unique = unique_name(builder, &builder->tensor_names, name);
    if (unique == NULL || !esp_vec_push(alloc, &builder->tensors, *tensor))
        return esp_i_nomem(diag);
    builder->tensors.data[builder->tensors.count - 1].name = unique;
    *tensor_out = builder->tensors.count - 1;
    return ESP_OK;
}

static bool role_stands_alone(esp_role_t role)
{
    return role == ESP_ROLE_INPUT || role == ESP_ROLE_PARAMETER || role == ESP_ROLE_FROZEN ||
           role == ESP_ROLE_STATE || role == ESP_ROLE_STATISTIC || role == ESP_ROLE_CONSTANT;
}

static esp_status_t add_tensor(esp_builder_t *builder, const char *name, const void *data,
                               esp_i_built_tensor_t *tensor, esp_tensor_id_t *tensor_out,
                               esp_diag_t *diag)
{
    if (!role_stands_alone(tensor->role))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "role %s needs an op that makes the tensor",
                          esp_role_name(tensor->role));
    ESP_TRY(check_shape(&tensor->shape, diag));
    if (data != NULL) {
        int64_t bytes = esp_i_shape_elements(&tensor->shape) * esp_dtype_bytes(tensor->shape.dtype);
        void *copy = esp_i_arena_alloc(&builder->arena, esp_i_max_i64(bytes, 1), 1);
        if (copy == NULL)
            return esp_i_nomem(diag);
        memcpy(copy, data, (size_t)bytes);
        tensor->data = copy;
    }
    return append_tensor(builder, name, tensor, tensor_out, diag);
}

esp_status_t esp_builder_tensor(esp_builder_t *builder, const char *name, esp_role_t role,
                                esp_dtype_t dtype, int32_t rank, const int64_t *dims,
                                const void *data, esp_tensor_id_t *tensor_out, esp_diag_t *diag)
{
    esp_i_built_tensor_t tensor = {
        .role = role,
        .shape = {.dtype = dtype, .rank = rank},
        .producer = ESP_NONE,
        .next = ESP_NONE,
    };
    for (int32_t i = 0; rank <= ESP_MAX_RANK && i < rank; i++)
        tensor.shape.dims[i] = dims[i];
    esp_status_t status = add_tensor(builder, name, data, &tensor, tensor_out, diag);
    if (status != ESP_OK)
        esp_i_diag_place(diag, "tensor %s", name);
    return status;
}

static bool is_tensor(const esp_builder_t *builder, esp_tensor_id_t tensor)
{
    return tensor >= 0 && tensor < builder->tensors.count;
}

void esp_builder_shape(const esp_builder_t *builder, esp_tensor_id_t tensor, esp_dtype_t *dtype_out,
                       int32_t *rank_out, int64_t *dims_out)
{
    esp_assert(is_tensor(builder, tensor));
    const esp_i_shape_t *shape = &builder->tensors.data[tensor].shape;
    *dtype_out = shape->dtype;
    *rank_out = shape->rank;
    memcpy(dims_out, shape->dims, sizeof shape->dims);
}

esp_status_t esp_builder_rename(esp_builder_t *builder, esp_tensor_id_t tensor, const char *name)
{
    if (!is_tensor(builder, tensor))
        return ESP_ERR_ARGUMENT;
    esp_i_built_tensor_t *built = &builder->tensors.data[tensor];
    if (strcmp(built->name, name) == 0)
        return ESP_OK;
    const char *unique = unique_name(builder, &builder->tensor_names, name);
    if (unique == NULL)
        return ESP_ERR_NOMEM;
    built->name = unique;
    return ESP_OK;
}

/* A graph has one loss, and it is a scalar. */
static bool can_be_loss(const esp_builder_t *builder, esp_tensor_id_t tensor)
{
    for (esp_tensor_id_t i = 0; i < builder->tensors.count; i++)
        if (i != tensor && builder->tensors.data[i].role == ESP_ROLE_LOSS)
            return false;
    return esp_i_shape_elements(&builder->tensors.data[tensor].shape) == 1;
}

esp_status_t esp_builder_role(esp_builder_t *builder, esp_tensor_id_t tensor, esp_role_t role)
{
    if (!is_tensor(builder, tensor) || role < 0 || role >= ESP_ROLE_COUNT)
        return ESP_ERR_ARGUMENT;
    esp_i_built_tensor_t *built = &builder->tensors.data[tensor];
    if (role_stands_alone(role) != (built->producer == ESP_NONE))
        return ESP_ERR_ARGUMENT;
    if (role == ESP_ROLE_LOSS && !can_be_loss(builder, tensor))
        return ESP_ERR_ARGUMENT;
    built->role = role;
    return ESP_OK;
}

/* ---- ops ---------------------------------------------------------------------------------- */

static esp_status_t check_inputs(const esp_builder_t *builder, const esp_i_kind_t *kind, int32_t n,
                                 const esp_tensor_id_t *inputs, esp_diag_t *diag)
{
    if (kind->infer == NULL)
        return esp_i_fail(diag, ESP_ERR_UNSUPPORTED, "this kind of op is not implemented");
    if (n < kind->min_in || n > kind->max_in)
        return esp_i_fail(diag, ESP_ERR_INVALID, "%d inputs where %d to %d are expected", (int)n,
                          (int)kind->min_in, (int)kind->max_in);
    for (int32_t i = 0; i < n; i++)
        if (!is_tensor(builder, inputs[i]) && !(inputs[i] == ESP_NONE && i >= kind->min_in))
            return esp_i_fail(diag, ESP_ERR_INVALID, "input %d is not a tensor", (int)i);
    return ESP_OK;
}

/* Shapes of the inputs, and of the outputs as the kind infers them. */
static esp_status_t infer(esp_builder_t *builder, const esp_i_kind_t *kind, esp_i_op_t *op,
                          const esp_tensor_id_t *inputs, esp_diag_t *diag)
{
    builder->scratch.count = 0;
    if (!esp_vec_extend(&builder->arena.alloc, &builder->scratch, op->n_in))
        return esp_i_nomem(diag);
    for (int32_t i = 0; i < op->n_in; i++)
        builder->scratch.data[i] = inputs[i] != ESP_NONE ? builder->tensors.data[inputs[i]].shape
                                                         : (esp_i_shape_t){.rank = -1};
    op->in = builder->scratch.data;
    for (int32_t i = 0; i < op->n_out; i++)
        op->out[i] = (esp_i_shape_t){.rank = -1};
    ESP_TRY(kind->infer(op, diag));
    for (int32_t i = 0; i < op->n_out; i++)
        ESP_TRY(check_shape(&op->out[i], diag));
    return ESP_OK;
}

/* The name of output i where the caller gives none: the op's, further ones numbered. */
static const char *output_name(esp_builder_t *builder, const char *op_name,
                               const char *const *output_names, int32_t i)
{
    if (output_names != NULL && output_names[i] != NULL)
        return output_names[i];
    return i == 0 ? op_name : esp_i_arena_printf(&builder->arena, "%s.%d", op_name, (int)i);
}

static esp_status_t append_outputs(esp_builder_t *builder, const esp_i_op_t *op,
                                   const char *op_name, const char *const *output_names,
                                   esp_tensor_id_t *outputs_out, esp_diag_t *diag)
{
    for (int32_t i = 0; i < op->n_out; i++) {
        esp_i_built_tensor_t tensor = {.role = ESP_ROLE_ACTIVATION,
                                       .shape = op->out[i],
                                       .producer = builder->ops.count,
                                       .next = ESP_NONE};
        const char *name = output_name(builder, op_name, output_names, i);
        if (name == NULL)
            return esp_i_nomem(diag);
        ESP_TRY(append_tensor(builder, name, &tensor, &outputs_out[i], diag));
    }
    return ESP_OK;
}

static bool append_operands(esp_builder_t *builder, int32_t n, const esp_tensor_id_t *tensors)
{
    if (!esp_vec_extend(&builder->arena.alloc, &builder->operands, n))
        return false;
    if (n > 0)
        memcpy(builder->operands.data + builder->operands.count - n, tensors,
               (size_t)n * sizeof *tensors);
    return true;
}

/* Checks the op and infers its outputs into op->out; appends nothing. */
static esp_status_t examine(esp_builder_t *builder, esp_i_op_t *op, const esp_tensor_id_t *inputs,
                            esp_diag_t *diag)
{
    const esp_i_kind_t *kind = esp_i_kind(op->kind);
    ESP_TRY(check_inputs(builder, kind, op->n_in, inputs, diag));
    ESP_TRY(esp_i_attr_check(op->kind, op->attr, diag));
    op->n_out = esp_i_kind_outputs(kind, op->attr);
    esp_assert(op->n_out >= 1 && op->n_out <= ESP_I_MAX_OUT);
    return infer(builder, kind, op, inputs, diag);
}

/*
 * Only memory can fail here; the builder then holds tensors that no op makes, and is good for
 * nothing but to be destroyed.
 */
static esp_status_t append_op(esp_builder_t *builder, esp_i_built_op_t *built, const esp_i_op_t *op,
                              const esp_tensor_id_t *inputs, const char *name,
                              const char *const *output_names, esp_tensor_id_t *outputs_out,
                              esp_diag_t *diag)
{
    esp_tensor_id_t made[ESP_I_MAX_OUT];
    if (built->origin == ESP_NONE)
        built->origin = builder->ops.count;
    built->n_in = op->n_in;
    built->n_out = op->n_out;
    built->first_in = builder->operands.count;
    built->first_out = built->first_in + op->n_in;
    built->name = unique_name(builder, &builder->op_names, name);
    if (built->name == NULL || !append_operands(builder, op->n_in, inputs))
        return esp_i_nomem(diag);
    ESP_TRY(append_outputs(builder, op, built->name, output_names, made, diag));
    if (!append_operands(builder, op->n_out, made) ||
        !esp_vec_push(&builder->arena.alloc, &builder->ops, *built))
        return esp_i_nomem(diag);
    memcpy(outputs_out, made, (size_t)op->n_out * sizeof *made);
    return ESP_OK;
}

esp_status_t esp_i_builder_op(esp_builder_t *builder, esp_op_kind_t kind, const esp_attr_t *attr,
                              int32_t n_inputs, const esp_tensor_id_t *inputs, const char *name,
                              const char *const *output_names, esp_tensor_id_t *outputs_out,
                              esp_diag_t *diag)
{
    static const esp_attr_t nothing = {0};
    esp_assert(kind >= 0 && kind < ESP_KIND_COUNT);
    /* Unused bytes of the union are whatever the caller's initialiser left: they must not reach
     * comparison or text. */
    esp_i_built_op_t built = {.kind = kind,
                              .phase = builder->phase,
                              .origin = builder->origin,
                              .attr = esp_i_attr_clean(kind, attr != NULL ? attr : &nothing)};
    esp_i_shape_t out[ESP_I_MAX_OUT];
    esp_i_op_t op = {.kind = kind, .attr = &built.attr, .n_in = n_inputs, .out = out};
    esp_status_t status = examine(builder, &op, inputs, diag);
    if (status == ESP_OK)
        status = append_op(builder, &built, &op, inputs, name, output_names, outputs_out, diag);
    if (status != ESP_OK)
        esp_i_diag_place(diag, "op %s (%s)", name, esp_kind_name(kind));
    return status;
}

esp_status_t esp_builder_op(esp_builder_t *builder, esp_op_kind_t kind, const esp_attr_t *attr,
                            int32_t n_inputs, const esp_tensor_id_t *inputs, const char *name,
                            esp_tensor_id_t *outputs_out, esp_diag_t *diag)
{
    if (kind < 0 || kind >= ESP_KIND_COUNT)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "unknown kind %d", (int)kind);
    return esp_i_builder_op(builder, kind, attr, n_inputs, inputs, name, NULL, outputs_out, diag);
}

void esp_builder_phase(esp_builder_t *builder, esp_phase_t phase, esp_op_id_t origin)
{
    builder->phase = phase;
    builder->origin = origin;
}

/* ---- what the step needs to know ---------------------------------------------------------- */

esp_status_t esp_builder_batch(esp_builder_t *builder, esp_tensor_id_t tensor, esp_view_t view,
                               esp_diag_t *diag)
{
    if (!is_tensor(builder, tensor) || builder->tensors.data[tensor].producer != ESP_NONE)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "the batch is given for input tensors only");
    esp_i_built_tensor_t *built = &builder->tensors.data[tensor];
    if (!esp_i_view_fits(view, esp_i_shape_elements(&built->shape)))
        return esp_i_fail(
            diag, ESP_ERR_INVALID, "view (%lld, %lld, %lld) is not the shape of tensor %s",
            (long long)view.outer, (long long)view.extent, (long long)view.inner, built->name);
    if (builder->batch != 0 && builder->batch != view.extent)
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "tensor %s has a batch of %lld; other inputs have %lld", built->name,
                          (long long)view.extent, (long long)builder->batch);
    builder->batch = view.extent;
    built->batch = view;
    return ESP_OK;
}

esp_status_t esp_builder_output(esp_builder_t *builder, esp_tensor_id_t tensor)
{
    if (!is_tensor(builder, tensor))
        return ESP_ERR_ARGUMENT;
    return esp_vec_push(&builder->arena.alloc, &builder->outputs, tensor) ? ESP_OK : ESP_ERR_NOMEM;
}

static bool has_versions(esp_role_t role)
{
    return role == ESP_ROLE_PARAMETER || role == ESP_ROLE_STATE || role == ESP_ROLE_STATISTIC;
}

esp_status_t esp_builder_next(esp_builder_t *builder, esp_tensor_id_t before, esp_tensor_id_t after,
                              esp_diag_t *diag)
{
    if (!is_tensor(builder, before) || !is_tensor(builder, after))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "not a tensor");
    esp_i_built_tensor_t *from = &builder->tensors.data[before];
    const esp_i_built_tensor_t *to = &builder->tensors.data[after];
    if (!has_versions(from->role) || from->next != ESP_NONE || to->producer == ESP_NONE)
        return esp_i_fail(diag, ESP_ERR_INVALID, "tensor %s cannot have tensor %s as next version",
                          from->name, to->name);
    bool same = from->shape.dtype == to->shape.dtype && from->shape.rank == to->shape.rank;
    for (int32_t i = 0; same && i < from->shape.rank; i++)
        same = from->shape.dims[i] == to->shape.dims[i];
    if (!same)
        return esp_i_fail(diag, ESP_ERR_INVALID, "the next version of tensor %s has another shape",
                          from->name);
    from->next = after;
    return ESP_OK;
}

static esp_status_t append_statistic(esp_builder_t *builder, esp_tensor_id_t running,
                                     esp_tensor_id_t value, double momentum, esp_diag_t *diag)
{
    esp_attr_t attr = {.update = {.optimizer = ESP_OPTIMIZER_STATISTIC, .momentum = momentum}};
    esp_tensor_id_t inputs[2] = {running, value}, next[ESP_I_MAX_OUT];
    const char *name =
        esp_i_arena_printf(&builder->arena, "%s/update", builder->tensors.data[running].name);
    if (name == NULL)
        return esp_i_nomem(diag);
    ESP_TRY(esp_builder_op(builder, ESP_KIND_UPDATE, &attr, 2, inputs, name, next, diag));
    return esp_builder_next(builder, running, next[0], diag);
}

esp_status_t esp_builder_statistic(esp_builder_t *builder, esp_tensor_id_t running,
                                   esp_tensor_id_t value, double momentum, esp_diag_t *diag)
{
    if (!is_tensor(builder, running) || !is_tensor(builder, value))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "not a tensor");
    esp_phase_t phase = builder->phase;
    esp_op_id_t origin = builder->origin;
    esp_builder_phase(builder, ESP_PHASE_UPDATE, builder->tensors.data[value].producer);
    esp_status_t status = append_statistic(builder, running, value, momentum, diag);
    esp_builder_phase(builder, phase, origin);
    return status;
}

/* ---- a whole graph ------------------------------------------------------------------------- */

esp_i_shape_t esp_i_graph_shape(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    esp_i_shape_t shape = {.dtype = (esp_dtype_t)graph->tensor_dtype[tensor],
                           .rank = graph->tensor_rank[tensor]};
    memcpy(shape.dims, graph->tensor_dims[tensor], sizeof shape.dims);
    return shape;
}

esp_status_t esp_i_builder_copy_tensor(esp_builder_t *builder, const esp_graph_t *graph,
                                       esp_tensor_id_t tensor, esp_tensor_id_t *made_out,
                                       esp_diag_t *diag)
{
    ESP_TRY(esp_builder_tensor(
        builder, graph->tensor_name[tensor], (esp_role_t)graph->tensor_role[tensor],
        (esp_dtype_t)graph->tensor_dtype[tensor], graph->tensor_rank[tensor],
        graph->tensor_dims[tensor], graph->tensor_data[tensor], made_out, diag));
    if (graph->tensor_batch[tensor].extent == 0)
        return ESP_OK;
    return esp_builder_batch(builder, *made_out, graph->tensor_batch[tensor], diag);
}

static esp_status_t copy_op(esp_builder_t *builder, const esp_graph_t *graph, esp_op_id_t op,
                            esp_diag_t *diag)
{
    const esp_tensor_id_t *outputs = graph->output_tensor + graph->output_offset[op];
    int32_t n_out = graph->output_offset[op + 1] - graph->output_offset[op];
    const char *names[ESP_I_MAX_OUT] = {NULL};
    esp_tensor_id_t made[ESP_I_MAX_OUT];
    for (int32_t i = 0; i < n_out; i++)
        names[i] = graph->tensor_name[outputs[i]];
    esp_builder_phase(builder, (esp_phase_t)graph->op_phase[op], graph->op_origin[op]);
    ESP_TRY(esp_i_builder_op(builder, (esp_op_kind_t)graph->op_kind[op], &graph->op_attr[op],
                             graph->input_offset[op + 1] - graph->input_offset[op],
                             graph->input_tensor + graph->input_offset[op], graph->op_name[op],
                             names, made, diag));
    for (int32_t i = 0; i < n_out; i++) {
        esp_assert(made[i] == outputs[i]);
        builder->tensors.data[made[i]].role = (esp_role_t)graph->tensor_role[made[i]];
    }
    return ESP_OK;
}

esp_status_t esp_i_builder_copy(esp_builder_t *builder, const esp_graph_t *graph, esp_diag_t *diag)
{
    esp_assert(builder->tensors.count == 0 && builder->ops.count == 0);
    for (esp_op_id_t tensor = 0, op = 0; tensor < graph->n_tensors;) {
        if (graph->tensor_producer[tensor] == ESP_NONE) {
            esp_tensor_id_t made;
            ESP_TRY(esp_i_builder_copy_tensor(builder, graph, tensor, &made, diag));
            esp_assert(made == tensor);
        } else {
            ESP_TRY(copy_op(builder, graph, op++, diag));
        }
        tensor = builder->tensors.count;
    }
    esp_builder_phase(builder, ESP_PHASE_FORWARD, ESP_NONE);
    for (esp_tensor_id_t tensor = 0; tensor < graph->n_tensors; tensor++)
        builder->tensors.data[tensor].next = graph->tensor_next[tensor];
    for (int32_t i = 0; i < graph->n_outputs; i++)
        if (esp_builder_output(builder, graph->output[i]) != ESP_OK)
            return esp_i_nomem(diag);
    return ESP_OK;
}
