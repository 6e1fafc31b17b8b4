/* Losses: a sum over samples and a normaliser, so that a split of the batch stays exact. */
#include "graph/training.h"

typedef struct head {
    esp_i_training_t *training;
    esp_tensor_id_t output; /* of the model */
    esp_i_shape_t shape;
    esp_view_t batch; /* of output */
} head_t;

static esp_status_t add_labels(const head_t *head, esp_dtype_t dtype, const esp_i_shape_t *shape,
                               esp_view_t batch, esp_tensor_id_t *labels_out)
{
    esp_i_training_t *training = head->training;
    ESP_TRY(esp_builder_tensor(training->builder, "labels", ESP_ROLE_INPUT, dtype, shape->rank,
                               shape->dims, NULL, labels_out, training->diag));
    if (batch.extent == 0)
        return ESP_OK;
    return esp_builder_batch(training->builder, *labels_out, batch, training->diag);
}

static uint32_t all_axes(int32_t rank)
{
    return (1U << rank) - 1;
}

/* Sum of all elements; SUMSQ likewise. */
static esp_status_t total(const head_t *head, esp_reduce_t code, esp_tensor_id_t x,
                          const char *name, esp_tensor_id_t *y)
{
    esp_builder_t *builder = head->training->builder;
    esp_dtype_t dtype;
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    esp_builder_shape(builder, x, &dtype, &rank, dims);
    if (rank == 0 && code == ESP_REDUCE_SUM) {
        *y = x;
        return ESP_OK;
    }
    return esp_i_make_reduce(builder, code, x, all_axes(rank), false, name, y,
                             head->training->diag);
}

static double reciprocal_of(int64_t n)
{
    return 1.0 / (double)esp_i_max_i64(n, 1);
}

/* ---- mean squared error ------------------------------------------------------------------- */

static esp_status_t add_mse(const head_t *head, esp_tensor_id_t *loss_out)
{
    esp_i_training_t *training = head->training;
    esp_builder_t *builder = training->builder;
    esp_tensor_id_t labels, difference, sum;
    ESP_TRY(add_labels(head, head->shape.dtype, &head->shape, head->batch, &labels));
    ESP_TRY(esp_i_make_binary(builder, ESP_ELT_SUB, head->output, labels, "loss/difference",
                              &difference, training->diag));
    ESP_TRY(total(head, ESP_REDUCE_SUMSQ, difference, "loss/sum", &sum));
    return esp_i_make_affine(builder, sum, reciprocal_of(esp_i_shape_elements(&head->shape)), 0.0,
                             "loss", loss_out, training->diag);
}

/* ---- softmax cross-entropy ---------------------------------------------------------------- */

/* Images are [n, classes, h, w], with or without depth; all else has its classes last. */
static int32_t class_axis(int32_t rank)
{
    return rank == 4 || rank == 5 ? 1 : rank - 1;
}

/* The batch of the labels: the view of the logits without the class axis, which has to lie wholly
 * in its inner or its outer part. */
static esp_view_t labels_batch(const head_t *head, int32_t axis)
{
    const esp_i_shape_t *shape = &head->shape;
    int64_t classes = shape->dims[axis];
    int64_t inner = esp_i_shape_product(shape, axis, shape->rank);
    int64_t outer = esp_i_shape_product(shape, 0, axis + 1);
    esp_view_t batch = head->batch;
    if (batch.extent == 0)
        return batch;
    if (batch.inner % inner == 0)
        return (esp_view_t){batch.outer, batch.extent, batch.inner / classes};
    if (batch.outer % outer == 0)
        return (esp_view_t){batch.outer / classes, batch.extent, batch.inner};
    return (esp_view_t){0, 0, 0};
}

/* Moves the class axis to the end. */
static esp_status_t classes_last(const head_t *head, int32_t axis, esp_tensor_id_t *logits_out)
{
    esp_attr_t attr = {0};
    int32_t rank = head->shape.rank;
    *logits_out = head->output;
    if (axis == rank - 1)
        return ESP_OK;
    for (int32_t i = 0, from = 0; i < rank; i++, from++) {
        if (from == axis)
            from++;
        attr.transpose.perm[i] = i == rank - 1 ? axis : from;
    }
    return esp_i_make(head->training->builder, ESP_KIND_TRANSPOSE, &attr, 1, &head->output,
                      "loss/logits", logits_out, head->training->diag);
}

/* How many labels count: a scalar of the loss's dtype. */
static esp_status_t count_labels(const head_t *head, esp_tensor_id_t labels, esp_dtype_t dtype,
                                 esp_tensor_id_t *count_out)
{
    esp_i_training_t *training = head->training;
    esp_builder_t *builder = training->builder;
    esp_attr_t attr = {.cast = {.dtype = dtype}};
    int64_t ignore = training->opts->ignore_label;
    esp_tensor_id_t literal, counts, number;
    ESP_TRY(esp_builder_tensor(builder, "loss/ignore", ESP_ROLE_CONSTANT, ESP_DTYPE_I64, 0, NULL,
                               &ignore, &literal, training->diag));
    ESP_TRY(esp_i_make_binary(builder, ESP_ELT_NOT_EQUAL, labels, literal, "loss/counts", &counts,
                              training->diag));
    ESP_TRY(esp_i_make(builder, ESP_KIND_CAST, &attr, 1, &counts, "loss/weights", &number,
                       training->diag));
    return total(head, ESP_REDUCE_SUM, number, "loss/count", count_out);
}

/*
 * Many exported classifiers end in a softmax. The loss contains it: it reads what the softmax
 * reads, and the model's own stays without a reader.
 */
static head_t before_softmax(const head_t *head)
{
    const esp_graph_t *model = head->training->model;
    esp_op_id_t op = model->tensor_producer[head->output];
    head_t before = *head;
    if (model->op_kind[op] != ESP_KIND_SOFTMAX ||
        model->op_attr[op].axis.axis != class_axis(head->shape.rank))
        return before;
    before.output = model->input_tensor[model->input_offset[op]];
    before.batch = model->tensor_batch[before.output];
    return before;
}

static esp_status_t add_xent(const head_t *head, esp_tensor_id_t *loss_out)
{
    esp_i_training_t *training = head->training;
    esp_builder_t *builder = training->builder;
    esp_attr_t attr = {.xent = {.ignore = training->opts->ignore_label}};
    esp_i_shape_t labels_shape = head->shape;
    esp_tensor_id_t inputs[2], rows, sum, count;
    if (head->shape.rank == 0)
        return esp_i_fail(training->diag, ESP_ERR_INVALID,
                          "a scalar output has no classes for a cross-entropy");
    int32_t axis = class_axis(head->shape.rank);
    for (int32_t i = axis; i + 1 < head->shape.rank; i++)
        labels_shape.dims[i] = head->shape.dims[i + 1];
    labels_shape.rank--;
    ESP_TRY(add_labels(head, ESP_DTYPE_I64, &labels_shape, labels_batch(head, axis), &inputs[1]));
    ESP_TRY(classes_last(head, axis, &inputs[0]));
    ESP_TRY(
        esp_i_make(builder, ESP_KIND_XENT, &attr, 2, inputs, "loss/rows", &rows, training->diag));
    ESP_TRY(total(head, ESP_REDUCE_SUM, rows, "loss/sum", &sum));
    if (training->evaluation) {
        *loss_out = sum;
        return esp_i_evaluation_counts(training, inputs[0], inputs[1]);
    }
    if (training->opts->ignore_label == INT64_MIN)
        return esp_i_make_affine(builder, sum, reciprocal_of(esp_i_shape_elements(&labels_shape)),
                                 0.0, "loss", loss_out, training->diag);
    ESP_TRY(count_labels(head, inputs[1], builder->tensors.data[rows].shape.dtype, &count));
    return esp_i_make_binary(builder, ESP_ELT_DIV_NO_NAN, sum, count, "loss", loss_out,
                             training->diag);
}

/* ---- the model's own ---------------------------------------------------------------------- */

static esp_status_t add_own(const head_t *head, esp_tensor_id_t *loss_out)
{
    esp_i_training_t *training = head->training;
    if (esp_i_shape_elements(&head->shape) != 1)
        return esp_i_fail(training->diag, ESP_ERR_INVALID,
                          "output %s is not a scalar and cannot be the loss",
                          training->model->tensor_name[head->output]);
    if (head->shape.rank > 0)
        return esp_i_make_reshape(training->builder, head->output, 0, NULL, "loss", loss_out,
                                  training->diag);
    *loss_out = head->output;
    return ESP_OK;
}

/* ---- the choice --------------------------------------------------------------------------- */

static esp_loss_t resolve(const head_t *head)
{
    esp_loss_t loss = head->training->opts->loss;
    if (loss != ESP_LOSS_AUTO)
        return loss;
    return esp_i_shape_elements(&head->shape) == 1 ? ESP_LOSS_OUTPUT : ESP_LOSS_XENT;
}

esp_status_t esp_i_training_loss(esp_i_training_t *training)
{
    const esp_graph_t *model = training->model;
    esp_tensor_id_t output = model->output[0];
    head_t head = {training, output, esp_i_graph_shape(model, output), model->tensor_batch[output]};
    esp_status_t status = ESP_OK;
    if (model->tensor_producer[output] == ESP_NONE)
        return esp_i_fail(training->diag, ESP_ERR_INVALID,
                          "no loss: the first output, %s, is computed by no op",
                          model->tensor_name[output]);
    if (!esp_dtype_is_float(head.shape.dtype))
        return esp_i_fail(training->diag, ESP_ERR_INVALID,
                          "no loss: the first output, %s, is of type %s, not of a float type",
                          model->tensor_name[output], esp_dtype_name(head.shape.dtype));
    switch (resolve(&head)) {
    case ESP_LOSS_MSE:
        status = add_mse(&head, &training->loss);
        break;
    case ESP_LOSS_OUTPUT:
        status = add_own(&head, &training->loss);
        break;
    case ESP_LOSS_AUTO:
    case ESP_LOSS_XENT:
        head = before_softmax(&head);
        status = add_xent(&head, &training->loss);
        break;
    }
    ESP_TRY(status);
    return esp_builder_role(training->builder, training->loss, ESP_ROLE_LOSS);
}
