/* From builder to frozen graph: struct-of-arrays in one arena, factors, costs, batch. */
#include "graph/build.h"

#include <stddef.h>
#include <string.h>

/* The public part comes first, so that the one pointer is the other. */
typedef struct frozen {
    esp_graph_t graph;
    esp_i_arena_t arena;
} frozen_t;

/* The arrays of a graph are const for everyone but this file; it writes them through this. */
#define MUTABLE(array) ((void *)(uintptr_t)(array))

static void *array(frozen_t *frozen, int64_t n, size_t size, bool *failed)
{
    void *memory = esp_i_arena_alloc(&frozen->arena, n > 0 ? n : 1, size);
    *failed = *failed || memory == NULL;
    return memory;
}
/* Gives `member` of the graph room for n elements. */
#define RESERVE(frozen, member, n, failed)                                                         \
    ((frozen)->graph.member = array((frozen), (n), sizeof *(frozen)->graph.member, (failed)))

static bool reserve(frozen_t *frozen, const esp_builder_t *builder)
{
    bool failed = false;
    int32_t tensors = builder->tensors.count, ops = builder->ops.count;
    RESERVE(frozen, tensor_name, tensors, &failed);
    RESERVE(frozen, tensor_dtype, tensors, &failed);
    RESERVE(frozen, tensor_role, tensors, &failed);
    RESERVE(frozen, tensor_rank, tensors, &failed);
    RESERVE(frozen, tensor_dims, tensors, &failed);
    RESERVE(frozen, tensor_elements, tensors, &failed);
    RESERVE(frozen, tensor_bytes, tensors, &failed);
    RESERVE(frozen, tensor_producer, tensors, &failed);
    RESERVE(frozen, tensor_root, tensors, &failed);
    RESERVE(frozen, tensor_next, tensors, &failed);
    RESERVE(frozen, tensor_data, tensors, &failed);
    RESERVE(frozen, tensor_batch, tensors, &failed);
    RESERVE(frozen, consumer_offset, (int64_t)tensors + 1, &failed);
    RESERVE(frozen, op_name, ops, &failed);
    RESERVE(frozen, op_kind, ops, &failed);
    RESERVE(frozen, op_phase, ops, &failed);
    RESERVE(frozen, op_origin, ops, &failed);
    RESERVE(frozen, op_attr, ops, &failed);
    RESERVE(frozen, op_flops, ops, &failed);
    RESERVE(frozen, op_family, ops, &failed);
    RESERVE(frozen, op_batch, ops, &failed);
    RESERVE(frozen, input_offset, (int64_t)ops + 1, &failed);
    RESERVE(frozen, output_offset, (int64_t)ops + 1, &failed);
    RESERVE(frozen, dim_offset, (int64_t)ops + 1, &failed);
    RESERVE(frozen, linear_offset, (int64_t)ops + 1, &failed);
    RESERVE(frozen, consumer_op, builder->operands.count, &failed);
    RESERVE(frozen, input_tensor, builder->operands.count, &failed);
    RESERVE(frozen, output_tensor, builder->operands.count, &failed);
    return !failed;
}

/* ---- tensors ------------------------------------------------------------------------------ */

static bool fill_tensors(frozen_t *frozen, const esp_builder_t *builder)
{
    esp_graph_t *graph = &frozen->graph;
    const char **name = MUTABLE(graph->tensor_name);
    uint8_t *dtype = MUTABLE(graph->tensor_dtype), *role = MUTABLE(graph->tensor_role);
    int8_t *rank = MUTABLE(graph->tensor_rank);
    int64_t(*dims)[ESP_MAX_RANK] = MUTABLE(graph->tensor_dims);
    int64_t *elements = MUTABLE(graph->tensor_elements), *bytes = MUTABLE(graph->tensor_bytes);
    esp_op_id_t *producer = MUTABLE(graph->tensor_producer);
    esp_tensor_id_t *root = MUTABLE(graph->tensor_root), *next = MUTABLE(graph->tensor_next);
    const void **data = MUTABLE(graph->tensor_data);
    esp_view_t *batch = MUTABLE(graph->tensor_batch);
    for (int32_t i = 0; i < builder->tensors.count; i++) {
        const esp_i_built_tensor_t *tensor = &builder->tensors.data[i];
        name[i] = esp_i_arena_strdup(&frozen->arena, tensor->name);
        dtype[i] = (uint8_t)tensor->shape.dtype;
        role[i] = (uint8_t)tensor->role;
        rank[i] = (int8_t)tensor->shape.rank;
        memcpy(dims[i], tensor->shape.dims, sizeof dims[i]);
        for (int32_t axis = tensor->shape.rank; axis < ESP_MAX_RANK; axis++)
            dims[i][axis] = 0;
        elements[i] = esp_i_shape_elements(&tensor->shape);
        bytes[i] = elements[i] * esp_dtype_bytes(tensor->shape.dtype);
        producer[i] = tensor->producer;
        root[i] = i;
        next[i] = tensor->next;
        batch[i] = tensor->batch;
        if (tensor->data != NULL) {
            void *copy = esp_i_arena_alloc(&frozen->arena, esp_i_max_i64(bytes[i], 1), 1);
            if (copy == NULL)
                return false;
            memcpy(copy, tensor->data, (size_t)bytes[i]);
            data[i] = copy;
        }
        if (name[i] == NULL)
            return false;
    }
    graph->n_tensors = builder->tensors.count;
    return true;
}

/* ---- ops ---------------------------------------------------------------------------------- */

static bool fill_ops(frozen_t *frozen, const esp_builder_t *builder)
{
    esp_graph_t *graph = &frozen->graph;
    const char **name = MUTABLE(graph->op_name);
    uint8_t *kind = MUTABLE(graph->op_kind), *phase = MUTABLE(graph->op_phase);
    esp_op_id_t *origin = MUTABLE(graph->op_origin);
    esp_attr_t *attr = MUTABLE(graph->op_attr);
    int32_t *in_offset = MUTABLE(graph->input_offset), *out_offset = MUTABLE(graph->output_offset);
    esp_tensor_id_t *in = MUTABLE(graph->input_tensor), *out = MUTABLE(graph->output_tensor);
    esp_tensor_id_t *root = MUTABLE(graph->tensor_root);
    for (int32_t i = 0; i < builder->ops.count; i++) {
        const esp_i_built_op_t *op = &builder->ops.data[i];
        const esp_tensor_id_t *operands = builder->operands.data + op->first_in;
        name[i] = esp_i_arena_strdup(&frozen->arena, op->name);
        if (name[i] == NULL)
            return false;
        kind[i] = (uint8_t)op->kind;
        phase[i] = (uint8_t)op->phase;
        origin[i] = op->origin;
        attr[i] = op->attr;
        for (int32_t j = 0; j < op->n_in; j++)
            in[in_offset[i] + j] = operands[j];
        for (int32_t j = 0; j < op->n_out; j++)
            out[out_offset[i] + j] = operands[op->n_in + j];
        in_offset[i + 1] = in_offset[i] + op->n_in;
        out_offset[i + 1] = out_offset[i] + op->n_out;
        if ((esp_i_kind(op->kind)->flags & ESP_I_KIND_ALIAS) != 0)
            root[operands[op->n_in]] = root[operands[0]];
    }
    graph->n_ops = builder->ops.count;
    return true;
}

/* Readers of every tensor, in op order: counting sort of the inputs. */
static void fill_consumers(frozen_t *frozen)
{
    esp_graph_t *graph = &frozen->graph;
    int32_t *offset = MUTABLE(graph->consumer_offset);
    esp_op_id_t *consumer = MUTABLE(graph->consumer_op);
    int32_t n = graph->input_offset[graph->n_ops];
    for (int32_t i = 0; i < n; i++)
        if (graph->input_tensor[i] != ESP_NONE)
            offset[graph->input_tensor[i] + 1]++;
    for (int32_t i = 0; i < graph->n_tensors; i++)
        offset[i + 1] += offset[i];
    /* offset[t] runs through the slots of t and ends where t + 1 starts; then all move back by one.
     */
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        for (int32_t i = graph->input_offset[op]; i < graph->input_offset[op + 1]; i++)
            if (graph->input_tensor[i] != ESP_NONE)
                consumer[offset[graph->input_tensor[i]]++] = op;
    for (int32_t i = graph->n_tensors; i > 0; i--)
        offset[i] = offset[i - 1];
    offset[0] = 0;
}

/* ---- what the kinds say ------------------------------------------------------------------- */

typedef struct analysis {
    const esp_allocator_t *alloc;
    ESP_VEC(esp_i_shape_t) shapes; /* of the op at hand, inputs then outputs */
    esp_i_dims_t dims;
    ESP_VEC(int64_t) extent;
    ESP_VEC(int64_t) granule;
    ESP_VEC(int32_t) binding_offset;
    ESP_VEC(esp_binding_t) binding;
    ESP_VEC(uint64_t) linear;
} analysis_t;

static void analysis_fini(analysis_t *analysis)
{
    esp_vec_free(analysis->alloc, &analysis->shapes);
    esp_i_dims_fini(&analysis->dims);
    esp_vec_free(analysis->alloc, &analysis->extent);
    esp_vec_free(analysis->alloc, &analysis->granule);
    esp_vec_free(analysis->alloc, &analysis->binding_offset);
    esp_vec_free(analysis->alloc, &analysis->binding);
    esp_vec_free(analysis->alloc, &analysis->linear);
}

static bool op_shapes(analysis_t *analysis, const esp_graph_t *graph, esp_op_id_t op,
                      esp_i_op_t *op_out)
{
    int32_t n_in = graph->input_offset[op + 1] - graph->input_offset[op];
    int32_t n_out = graph->output_offset[op + 1] - graph->output_offset[op];
    analysis->shapes.count = 0;
    if (!esp_vec_extend(analysis->alloc, &analysis->shapes, n_in + n_out))
        return false;
    for (int32_t i = 0; i < n_in + n_out; i++) {
        esp_tensor_id_t tensor = i < n_in
                                     ? graph->input_tensor[graph->input_offset[op] + i]
                                     : graph->output_tensor[graph->output_offset[op] + i - n_in];
        analysis->shapes.data[i] =
            tensor != ESP_NONE ? esp_i_graph_shape(graph, tensor) : (esp_i_shape_t){.rank = -1};
    }
    *op_out = (esp_i_op_t){.kind = (esp_op_kind_t)graph->op_kind[op],
                           .attr = &graph->op_attr[op],
                           .n_in = n_in,
                           .n_out = n_out,
                           .in = analysis->shapes.data,
                           .out = analysis->shapes.data + n_in};
    return true;
}

/* A dimension is kept if every operand that carries it is present and has its view. A tensor
 * without elements has no views, so dimensions that touch one go. */
typedef enum verdict { KEEP, DROP, WRONG } verdict_t;
static verdict_t judge_dim(const esp_i_op_t *op, int64_t extent, const esp_binding_t *binding)
{
    verdict_t verdict = extent > 0 ? KEEP : DROP;
    for (int32_t i = 0; i < op->n_in + op->n_out; i++) {
        const esp_i_shape_t *shape = i < op->n_in ? &op->in[i] : &op->out[i - op->n_in];
        if (binding[i].bind != ESP_BIND_CARRY)
            continue;
        if (shape->rank < 0)
            return WRONG;
        int64_t elements = esp_i_shape_elements(shape);
        if (elements == 0)
            verdict = DROP;
        else if (verdict == KEEP &&
                 !esp_i_view_fits((esp_view_t){binding[i].outer, extent, binding[i].inner},
                                  elements))
            return WRONG;
    }
    return verdict;
}

static esp_status_t add_dims(analysis_t *analysis, const esp_i_op_t *op, const char *name,
                             esp_diag_t *diag)
{
    const esp_i_kind_t *kind = esp_i_kind(op->kind);
    esp_i_dims_t *dims = &analysis->dims;
    int32_t operands = op->n_in + op->n_out;
    if (kind->dims == NULL)
        return ESP_OK;
    esp_i_dims_reset(dims, operands);
    kind->dims(op, dims);
    if (dims->failed)
        return esp_i_nomem(diag);
    for (int32_t d = 0; d < dims->extent.count; d++) {
        const esp_binding_t *binding = dims->binding.data + (int64_t)d * operands;
        verdict_t verdict = judge_dim(op, dims->extent.data[d], binding);
        if (verdict == WRONG)
            return esp_i_fail(diag, ESP_ERR_INTERNAL,
                              "op %s (%s): loop dimension %d does not fit its operands", name,
                              esp_kind_name(op->kind), (int)d);
        if (verdict == DROP)
            continue;
        if (!esp_vec_push(analysis->alloc, &analysis->extent, dims->extent.data[d]) ||
            !esp_vec_push(analysis->alloc, &analysis->granule, dims->granule.data[d]) ||
            !esp_vec_push(analysis->alloc, &analysis->binding_offset, analysis->binding.count) ||
            !esp_vec_extend(analysis->alloc, &analysis->binding, operands))
            return esp_i_nomem(diag);
        memcpy(analysis->binding.data + analysis->binding.count - operands, binding,
               (size_t)operands * sizeof *binding);
    }
    return ESP_OK;
}

static esp_status_t add_linear(analysis_t *analysis, const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_i_kind_t *kind = esp_i_kind(op->kind);
    uint64_t masks[4] = {0};
    int32_t n = kind->linear != NULL ? kind->linear(op, masks) : 0;
    esp_assert(n >= 0 && n <= 4);
    for (int32_t i = 0; i < n; i++)
        if (!esp_vec_push(analysis->alloc, &analysis->linear, masks[i]))
            return esp_i_nomem(diag);
    return ESP_OK;
}

static esp_status_t analyse_ops(frozen_t *frozen, analysis_t *analysis, esp_diag_t *diag)
{
    esp_graph_t *graph = &frozen->graph;
    int32_t *dim_offset = MUTABLE(graph->dim_offset);
    int32_t *linear_offset = MUTABLE(graph->linear_offset);
    double *flops = MUTABLE(graph->op_flops);
    uint8_t *family = MUTABLE(graph->op_family);
    for (esp_op_id_t i = 0; i < graph->n_ops; i++) {
        const esp_i_kind_t *kind = esp_i_kind((esp_op_kind_t)graph->op_kind[i]);
        esp_i_op_t op;
        if (!op_shapes(analysis, graph, i, &op))
            return esp_i_nomem(diag);
        ESP_TRY(add_dims(analysis, &op, graph->op_name[i], diag));
        ESP_TRY(add_linear(analysis, &op, diag));
        dim_offset[i + 1] = analysis->extent.count;
        linear_offset[i + 1] = analysis->linear.count;
        flops[i] = kind->flops != NULL ? kind->flops(&op) : 0.0;
        family[i] = (uint8_t)kind->family;
    }
    return ESP_OK;
}

static void *keep(frozen_t *frozen, const void *data, int32_t count, size_t size, bool *failed)
{
    void *copy = array(frozen, count, size, failed);
    if (copy != NULL && count > 0)
        memcpy(copy, data, (size_t)count * size);
    return copy;
}

static esp_status_t analyse(frozen_t *frozen, esp_diag_t *diag)
{
    analysis_t analysis = {.alloc = &frozen->arena.alloc};
    bool failed = false;
    esp_graph_t *graph = &frozen->graph;
    esp_i_dims_init(&analysis.dims, analysis.alloc);
    esp_status_t status = analyse_ops(frozen, &analysis, diag);
    if (status == ESP_OK) {
        int32_t dims = analysis.extent.count;
        graph->dim_extent = keep(frozen, analysis.extent.data, dims, sizeof(int64_t), &failed);
        graph->dim_granule = keep(frozen, analysis.granule.data, dims, sizeof(int64_t), &failed);
        graph->binding_offset =
            keep(frozen, analysis.binding_offset.data, dims, sizeof(int32_t), &failed);
        graph->binding = keep(frozen, analysis.binding.data, analysis.binding.count,
                              sizeof(esp_binding_t), &failed);
        graph->linear_mask =
            keep(frozen, analysis.linear.data, analysis.linear.count, sizeof(uint64_t), &failed);
        if (failed)
            status = esp_i_nomem(diag);
    }
    analysis_fini(&analysis);
    return status;
}

/* ---- the step ----------------------------------------------------------------------------- */

/* The optimizer op that makes the next version of a parameter. */
static esp_op_id_t update_of(const esp_graph_t *graph, esp_tensor_id_t parameter)
{
    esp_tensor_id_t next = graph->tensor_next[parameter];
    if (next == ESP_NONE)
        return ESP_NONE;
    esp_op_id_t op = graph->tensor_producer[next];
    bool updates = graph->op_kind[op] == ESP_KIND_UPDATE &&
                   graph->input_tensor[graph->input_offset[op]] == parameter;
    return updates ? op : ESP_NONE;
}

static bool fill_step(frozen_t *frozen, const esp_builder_t *builder)
{
    esp_graph_t *graph = &frozen->graph;
    bool failed = false;
    int64_t n = graph->n_tensors;
    esp_tensor_id_t *input = array(frozen, n, sizeof *input, &failed);
    esp_tensor_id_t *parameter = array(frozen, n, sizeof *parameter, &failed);
    esp_tensor_id_t *gradient = array(frozen, n, sizeof *gradient, &failed);
    esp_op_id_t *update = array(frozen, n, sizeof *update, &failed);
    graph->output =
        keep(frozen, builder->outputs.data, builder->outputs.count, sizeof *graph->output, &failed);
    if (failed)
        return false;
    graph->loss = ESP_NONE;
    for (esp_tensor_id_t i = 0; i < graph->n_tensors; i++) {
        if (graph->tensor_role[i] == ESP_ROLE_INPUT)
            input[graph->n_inputs++] = i;
        if (graph->tensor_role[i] == ESP_ROLE_LOSS)
            graph->loss = i;
        if (graph->tensor_role[i] != ESP_ROLE_PARAMETER)
            continue;
        esp_op_id_t op = update_of(graph, i);
        update[graph->n_parameters] = op;
        gradient[graph->n_parameters] =
            op != ESP_NONE ? graph->input_tensor[graph->input_offset[op] + 1] : ESP_NONE;
        parameter[graph->n_parameters++] = i;
    }
    graph->input = input;
    graph->parameter = parameter;
    graph->gradient = gradient;
    graph->update = update;
    graph->n_outputs = builder->outputs.count;
    graph->batch = builder->batch;
    return true;
}

static esp_status_t fill(frozen_t *frozen, const esp_builder_t *builder, esp_diag_t *diag)
{
    esp_graph_t *graph = &frozen->graph;
    graph->name = esp_i_arena_strdup(&frozen->arena, builder->name);
    if (graph->name == NULL || !reserve(frozen, builder) || !fill_tensors(frozen, builder) ||
        !fill_ops(frozen, builder))
        return esp_i_nomem(diag);
    fill_consumers(frozen);
    ESP_TRY(analyse(frozen, diag));
    if (!fill_step(frozen, builder))
        return esp_i_nomem(diag);
    esp_i_batch_propagate(graph, MUTABLE(graph->tensor_batch), MUTABLE(graph->op_batch));
    return ESP_OK;
}

esp_status_t esp_builder_freeze(const esp_builder_t *builder, esp_graph_t **graph_out,
                                esp_diag_t *diag)
{
    frozen_t *frozen = esp_i_alloc_array(&builder->arena.alloc, 1, sizeof *frozen);
    if (frozen == NULL)
        return esp_i_nomem(diag);
    esp_i_arena_init(&frozen->arena, &builder->arena.alloc);
    esp_status_t status = fill(frozen, builder, diag);
    if (status != ESP_OK) {
        esp_graph_destroy(&frozen->graph);
        return status;
    }
    *graph_out = &frozen->graph;
    return ESP_OK;
}

void esp_graph_destroy(esp_graph_t *graph)
{
    if (graph == NULL)
        return;
    frozen_t *frozen = (frozen_t *)((char *)graph - offsetof(frozen_t, graph));
    esp_allocator_t alloc = frozen->arena.alloc;
    esp_i_arena_fini(&frozen->arena);
    esp_i_free(&alloc, frozen);
}
