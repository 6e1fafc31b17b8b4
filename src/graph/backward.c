/*
 * The backward pass: one reverse sweep over the ops between a trainable parameter and the loss.
 *
 * Every tensor on the way collects the gradients that its readers contribute; when its producer's
 * turn comes all are there, and are added by one op.
 */
#include "graph/training.h"

#include <string.h>

typedef struct contribution {
    esp_tensor_id_t gradient;
    int32_t next; /* -1: last */
} contribution_t;

typedef struct sweep {
    esp_i_training_t *training;
    int32_t n_tensors, n_ops; /* when the sweep starts: model and loss */
    bool *needed;             /* per tensor: depends on a trainable parameter */
    int32_t *first, *last;    /* per tensor: its contributions, oldest first; -1 */
    ESP_VEC(contribution_t) contributions;
    /* the op at hand, copied: the builder's arrays move while the rule appends */
    ESP_VEC(esp_i_shape_t) shapes;
    ESP_VEC(esp_tensor_id_t) operands; /* inputs, outputs, dy, dx */
    ESP_VEC(bool) need;
} sweep_t;

static void sweep_fini(sweep_t *sweep)
{
    const esp_allocator_t *alloc = sweep->training->alloc;
    esp_i_free(alloc, sweep->needed);
    esp_i_free(alloc, sweep->first);
    esp_i_free(alloc, sweep->last);
    esp_vec_free(alloc, &sweep->contributions);
    esp_vec_free(alloc, &sweep->shapes);
    esp_vec_free(alloc, &sweep->operands);
    esp_vec_free(alloc, &sweep->need);
}

static bool sweep_init(sweep_t *sweep, esp_i_training_t *training)
{
    int32_t n = training->builder->tensors.count;
    *sweep = (sweep_t){.training = training,
                       .n_tensors = n,
                       .n_ops = training->builder->ops.count,
                       .needed = esp_i_alloc_array(training->alloc, n, sizeof(bool)),
                       .first = esp_i_alloc_array(training->alloc, n, sizeof(int32_t)),
                       .last = esp_i_alloc_array(training->alloc, n, sizeof(int32_t))};
    if (sweep->needed == NULL || sweep->first == NULL || sweep->last == NULL)
        return false;
    for (int32_t i = 0; i < n; i++)
        sweep->first[i] = sweep->last[i] = -1;
    return true;
}

/* ---- what depends on a parameter ---------------------------------------------------------- */

static void mark_needed(sweep_t *sweep)
{
    const esp_builder_t *builder = sweep->training->builder;
    for (int32_t i = 0; i < sweep->training->model->n_tensors; i++)
        sweep->needed[i] = sweep->training->trainable[i];
    for (esp_op_id_t i = 0; i < sweep->n_ops; i++) {
        const esp_i_built_op_t *op = &builder->ops.data[i];
        bool any = false;
        if (op->phase == ESP_PHASE_UPDATE)
            continue;
        for (int32_t j = 0; j < op->n_in; j++) {
            esp_tensor_id_t tensor = builder->operands.data[op->first_in + j];
            any = any || (tensor != ESP_NONE && sweep->needed[tensor]);
        }
        for (int32_t j = 0; any && j < op->n_out; j++) {
            esp_tensor_id_t tensor = builder->operands.data[op->first_out + j];
            sweep->needed[tensor] = esp_dtype_is_float(builder->tensors.data[tensor].shape.dtype);
        }
    }
}

/* ---- contributions ------------------------------------------------------------------------ */

static esp_status_t contribute(sweep_t *sweep, esp_tensor_id_t tensor, esp_tensor_id_t gradient)
{
    contribution_t contribution = {gradient, -1};
    if (!esp_vec_push(sweep->training->alloc, &sweep->contributions, contribution))
        return ESP_ERR_NOMEM;
    int32_t id = sweep->contributions.count - 1;
    if (sweep->first[tensor] < 0)
        sweep->first[tensor] = id;
    else
        sweep->contributions.data[sweep->last[tensor]].next = id;
    sweep->last[tensor] = id;
    return ESP_OK;
}

/* The gradient of a tensor, all contributions added by one op; ESP_NONE if nothing flows. */
static esp_status_t collect(sweep_t *sweep, esp_tensor_id_t tensor, const char *name,
                            const char *suffix, esp_tensor_id_t *gradient_out)
{
    esp_i_training_t *training = sweep->training;
    ESP_VEC(esp_tensor_id_t) terms = {0};
    esp_status_t status = ESP_OK;
    *gradient_out = ESP_NONE;
    for (int32_t i = sweep->first[tensor]; i >= 0; i = sweep->contributions.data[i].next)
        if (!esp_vec_push(training->alloc, &terms, sweep->contributions.data[i].gradient))
            status = ESP_ERR_NOMEM;
    if (status == ESP_OK && terms.count == 1)
        *gradient_out = terms.data[0];
    if (status == ESP_OK && terms.count > 1) {
        const char *sum = esp_i_training_name(training, name, suffix);
        status = sum == NULL ? ESP_ERR_NOMEM
                             : esp_i_make_elt(training->builder, ESP_ELT_ADD, 0.0, 0.0, terms.count,
                                              terms.data, sum, gradient_out, training->diag);
    }
    esp_vec_free(training->alloc, &terms);
    return status;
}

/* ---- one op ------------------------------------------------------------------------------- */

/* Copies operands and shapes of the op; dy and dx follow, all ESP_NONE. */
static bool load(sweep_t *sweep, const esp_i_built_op_t *op)
{
    const esp_builder_t *builder = sweep->training->builder;
    const esp_allocator_t *alloc = sweep->training->alloc;
    int32_t n = op->n_in + op->n_out;
    sweep->shapes.count = sweep->operands.count = sweep->need.count = 0;
    if (!esp_vec_extend(alloc, &sweep->shapes, n) ||
        !esp_vec_extend(alloc, &sweep->operands, 2 * n) ||
        !esp_vec_extend(alloc, &sweep->need, op->n_in))
        return false;
    for (int32_t i = 0; i < n; i++) {
        esp_tensor_id_t tensor = builder->operands.data[op->first_in + i];
        sweep->operands.data[i] = tensor;
        sweep->operands.data[n + i] = ESP_NONE;
        sweep->shapes.data[i] =
            tensor != ESP_NONE ? builder->tensors.data[tensor].shape : (esp_i_shape_t){.rank = -1};
        if (i < op->n_in)
            sweep->need.data[i] = tensor != ESP_NONE && sweep->needed[tensor];
    }
    return true;
}

/* Fills dy; false if no input wants a gradient or nothing flows into the op. */
static esp_status_t flows(sweep_t *sweep, const esp_i_built_op_t *op, bool *flows_out)
{
    bool wanted = false;
    *flows_out = false;
    for (int32_t i = 0; i < op->n_in; i++)
        wanted = wanted || sweep->need.data[i];
    for (int32_t i = 0; wanted && i < op->n_out; i++) {
        esp_tensor_id_t *dy = &sweep->operands.data[op->n_in + op->n_out + i];
        ESP_TRY(collect(sweep, sweep->operands.data[op->n_in + i], op->name, "/grad_sum", dy));
        *flows_out = *flows_out || *dy != ESP_NONE;
    }
    return ESP_OK;
}

static bool shape_equal(const esp_i_shape_t *x, const esp_i_shape_t *y)
{
    return x->dtype == y->dtype && x->rank == y->rank &&
           memcmp(x->dims, y->dims, (size_t)x->rank * sizeof *x->dims) == 0;
}

static esp_status_t take_gradients(sweep_t *sweep, const esp_i_built_op_t *op)
{
    const esp_builder_t *builder = sweep->training->builder;
    const esp_tensor_id_t *dx = sweep->operands.data + op->n_in + 2 * op->n_out;
    for (int32_t i = 0; i < op->n_in; i++) {
        if (!sweep->need.data[i] || dx[i] == ESP_NONE)
            continue;
        if (!shape_equal(&builder->tensors.data[dx[i]].shape, &sweep->shapes.data[i]))
            return esp_i_fail(sweep->training->diag, ESP_ERR_INTERNAL,
                              "op %s (%s): the gradient of input %d has another shape or type",
                              op->name, esp_kind_name(op->kind), (int)i);
        ESP_TRY(contribute(sweep, sweep->operands.data[i], dx[i]));
    }
    return ESP_OK;
}

static esp_status_t differentiate(sweep_t *sweep, esp_op_id_t id)
{
    esp_i_training_t *training = sweep->training;
    const esp_i_built_op_t op = training->builder->ops.data[id];
    bool flowing;
    if (op.phase == ESP_PHASE_UPDATE)
        return ESP_OK;
    if (!load(sweep, &op))
        return ESP_ERR_NOMEM;
    esp_builder_phase(training->builder, ESP_PHASE_BACKWARD, op.origin);
    ESP_TRY(flows(sweep, &op, &flowing));
    if (!flowing)
        return ESP_OK;
    if (esp_i_kind(op.kind)->gradient == NULL)
        return esp_i_fail(training->diag, ESP_ERR_UNSUPPORTED,
                          "op %s (%s) has no gradient and lies between a trainable parameter and "
                          "the loss",
                          op.name, esp_kind_name(op.kind));
    const char *name = esp_i_training_name(training, op.name, "/grad");
    if (name == NULL)
        return ESP_ERR_NOMEM;
    const esp_i_op_t shapes = {.kind = op.kind,
                               .attr = &op.attr,
                               .n_in = op.n_in,
                               .n_out = op.n_out,
                               .in = sweep->shapes.data,
                               .out = sweep->shapes.data + op.n_in};
    const esp_i_grad_t grad = {.builder = training->builder,
                               .op = &shapes,
                               .in = sweep->operands.data,
                               .out = sweep->operands.data + op.n_in,
                               .dy = sweep->operands.data + op.n_in + op.n_out,
                               .dx = sweep->operands.data + op.n_in + 2 * op.n_out,
                               .need = sweep->need.data,
                               .name = name,
                               .diag = training->diag};
    ESP_TRY(esp_i_kind(op.kind)->gradient(&grad));
    return take_gradients(sweep, &op);
}

/* ---- the sweep ---------------------------------------------------------------------------- */

static esp_status_t seed(sweep_t *sweep)
{
    esp_i_training_t *training = sweep->training;
    const esp_i_built_tensor_t *loss = &training->builder->tensors.data[training->loss];
    esp_attr_t attr = {.shape = {.dtype = loss->shape.dtype, .value = 1.0}};
    esp_tensor_id_t one;
    esp_builder_phase(training->builder, ESP_PHASE_BACKWARD,
                      training->builder->ops.data[loss->producer].origin);
    ESP_TRY(esp_i_make(training->builder, ESP_KIND_FILL, &attr, 0, NULL, "loss/grad", &one,
                       training->diag));
    return contribute(sweep, training->loss, one);
}

/*
 * The gradient as the update reads it: a tensor of its own, named after the parameter. Where two
 * parameters share one (the addends of a sum), the second gets a copy.
 */
static esp_status_t finish(sweep_t *sweep, esp_tensor_id_t parameter)
{
    esp_i_training_t *training = sweep->training;
    esp_builder_t *builder = training->builder;
    const char *parameter_name = training->model->tensor_name[parameter];
    esp_op_id_t user = training->first_user[parameter];
    esp_tensor_id_t gradient;
    esp_builder_phase(builder, ESP_PHASE_BACKWARD, builder->ops.data[user].origin);
    ESP_TRY(collect(sweep, parameter, parameter_name, "/grad", &gradient));
    if (gradient == ESP_NONE)
        return ESP_OK;
    const char *name = esp_i_training_name(training, parameter_name, "/grad");
    if (name == NULL)
        return ESP_ERR_NOMEM;
    if (builder->tensors.data[gradient].role != ESP_ROLE_ACTIVATION)
        ESP_TRY(esp_i_make_affine(builder, gradient, 1.0, 0.0, name, &gradient, training->diag));
    ESP_TRY(esp_builder_role(builder, gradient, ESP_ROLE_GRADIENT));
    training->gradient[parameter] = gradient;
    return esp_builder_rename(builder, gradient, name);
}

static esp_status_t run(sweep_t *sweep)
{
    const esp_graph_t *model = sweep->training->model;
    mark_needed(sweep);
    if (!sweep->needed[sweep->training->loss])
        return ESP_OK;
    ESP_TRY(seed(sweep));
    for (esp_op_id_t op = sweep->n_ops - 1; op >= 0; op--)
        ESP_TRY(differentiate(sweep, op));
    for (int32_t i = 0; i < model->n_parameters; i++)
        if (sweep->training->trainable[model->parameter[i]] &&
            sweep->first[model->parameter[i]] >= 0)
            ESP_TRY(finish(sweep, model->parameter[i]));
    return ESP_OK;
}

esp_status_t esp_i_training_backward(esp_i_training_t *training)
{
    sweep_t sweep;
    esp_status_t status = sweep_init(&sweep, training) ? run(&sweep) : ESP_ERR_NOMEM;
    sweep_fini(&sweep);
    return status;
}
