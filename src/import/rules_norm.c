/* Normalisations, softmax, and the losses. */
#include "import/rules.h"

#include <string.h>

/* ---- batch normalisation --------------------------------------------------------------------- */

/* running' = momentum * running + (1 - momentum) * of this batch: the update of the step. */
static esp_status_t fold_statistic(esp_i_node_t *node, esp_i_value_t *running, esp_i_value_t *fresh,
                                   double weight, esp_i_value_t **out)
{
    esp_i_import_t *im = node->im;
    esp_attr_t attr = {0};
    esp_tensor_id_t in[2], after;
    if (running->tensor == ESP_NONE)
        running->role = ESP_ROLE_STATISTIC;
    ESP_TRY(esp_i_im_tensor(im, running, &in[0]));
    ESP_TRY(esp_i_im_tensor(im, fresh, &in[1]));
    if (running->role != ESP_ROLE_STATISTIC)
        return ESP_OK; /* computed, or used as something else: nothing to keep */
    attr.update.optimizer = ESP_OPTIMIZER_STATISTIC;
    attr.update.momentum = weight;
    esp_builder_phase(im->builder, ESP_PHASE_UPDATE, (esp_op_id_t)(im->n_ops - 1));
    esp_status_t status =
        esp_builder_op(im->builder, ESP_KIND_UPDATE, &attr, 2, in, node->name, &after, im->diag);
    esp_builder_phase(im->builder, ESP_PHASE_FORWARD, ESP_NONE);
    ESP_TRY(status);
    im->n_ops++;
    ESP_TRY(esp_builder_next(im->builder, in[0], after, im->diag));
    running->role = ESP_ROLE_ACTIVATION; /* folded once: a layer used twice keeps the first */
    *out = esp_i_im_value_new(im, node->name);
    if (*out == NULL)
        return esp_i_nomem(im->diag);
    (*out)->tensor = after;
    (*out)->role = ESP_ROLE_ACTIVATION;
    esp_builder_shape(im->builder, after, &(*out)->dtype, &(*out)->rank, (*out)->dims);
    return ESP_OK;
}

/* x, gamma, beta and running statistics as they are: an affine map per channel. */
static esp_status_t frozen_batchnorm(esp_i_node_t *node, double epsilon)
{
    esp_i_value_t *per[5], *scale, *y;
    for (int32_t k = 1; k < 5; k++) {
        if (k > 2)
            esp_i_im_not_trained(node->in[k]);
        ESP_TRY(esp_i_im_per_channel(node, node->in[k], node->in[0]->rank, &per[k]));
    }
    ESP_TRY(esp_i_im_affine(node, per[4], 1, epsilon, &scale));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_RSQRT, scale, &scale));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_MUL, scale, per[1], &scale));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_SUB, node->in[0], per[3], &y));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_MUL, y, scale, &y));
    return esp_i_im_binary(node, ESP_ELT_ADD, y, per[2], &node->out[0]);
}

/* Before opset 14 nothing tells training from inference: it is taken for training. */
esp_status_t esp_i_rule_batchnorm(esp_i_node_t *node)
{
    esp_attr_t attr = {0};
    double epsilon, momentum;
    int64_t training;
    esp_i_value_t *sums[2], *y[3];
    ESP_TRY(esp_i_im_need_inputs(node, 5, 5));
    ESP_TRY(esp_i_im_attr_float(node, "epsilon", 1e-5, &epsilon));
    ESP_TRY(esp_i_im_attr_float(node, "momentum", 0.9, &momentum));
    ESP_TRY(esp_i_im_attr_int(node, "training_mode", node->opset < 14, &training));
    esp_i_value_t *x = node->in[0];
    if (x->rank < 2)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "an input of %d axes", x->rank);
    if (training == 0)
        return frozen_batchnorm(node, epsilon);
    attr.norm.epsilon = epsilon;
    attr.norm.count = x->dims[1] > 0 ? esp_i_im_extent(x, 0, x->rank) / x->dims[1] : 0;
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_BN_STATS, &attr, 1, &x, sums));
    esp_i_value_t *in[5] = {x, sums[0], sums[1], node->in[1], node->in[2]};
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_BN_NORM, &attr, 5, in, y));
    for (int32_t k = 0; k < 2; k++) { /* outputs 1 and 2: the running statistics after the step */
        esp_i_value_t *after = NULL;
        ESP_TRY(fold_statistic(node, node->in[3 + k], y[1 + k], 1 - momentum, &after));
        if (1 + k < node->n_out)
            node->out[1 + k] = after;
    }
    node->out[0] = y[0];
    return ESP_OK;
}

/* ---- layer normalisation --------------------------------------------------------------------- */

/* Scale or bias in the shape that is normalised. */
static esp_status_t to_rows(esp_i_node_t *node, esp_i_value_t *x, int32_t axis, esp_i_value_t *p,
                            esp_i_value_t **out)
{
    *out = NULL;
    if (p == NULL)
        return ESP_OK;
    while (p->rank > x->rank - axis && p->dims[0] == 1)
        ESP_TRY(esp_i_im_reshape(node, p, p->rank - 1, p->dims + 1, &p));
    return esp_i_im_expand(node, p, x->rank - axis, x->dims + axis, out);
}

/* code: 1 for RMS normalisation */
esp_status_t esp_i_rule_layernorm(esp_i_node_t *node)
{
    esp_attr_t attr = {0};
    esp_i_value_t *out[3], *in[3];
    ESP_TRY(esp_i_im_need_inputs(node, 2, 3));
    esp_i_value_t *x = node->in[0];
    ESP_TRY(esp_i_im_attr_axis(node, -1, x->rank, &attr.norm.axis));
    ESP_TRY(esp_i_im_attr_float(node, "epsilon", 1e-5, &attr.norm.epsilon));
    attr.norm.rms = node->op->code;
    in[0] = x;
    ESP_TRY(to_rows(node, x, attr.norm.axis, node->in[1], &in[1]));
    ESP_TRY(to_rows(node, x, attr.norm.axis, esp_i_im_in(node, 2), &in[2]));
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_LAYERNORM, &attr, in[2] != NULL ? 3 : 2, in, out));
    node->out[0] = out[0];
    for (int32_t k = 1; k < node->n_out && k < 3; k++) { /* these keep the reduced axes in ONNX */
        int64_t dims[ESP_MAX_RANK];
        for (int32_t d = 0; d < x->rank; d++)
            dims[d] = d < attr.norm.axis ? x->dims[d] : 1;
        ESP_TRY(esp_i_im_reshape(node, out[k], x->rank, dims, &node->out[k]));
    }
    return ESP_OK;
}

/* ---- instance and group normalisation -------------------------------------------------------- */

/* (x - mean) / sqrt(variance + epsilon) over `axes` */
static esp_status_t standardise(esp_i_node_t *node, esp_i_value_t *x, uint32_t axes, double epsilon,
                                esp_i_value_t **out)
{
    esp_i_value_t *mean, *centred, *variance;
    int64_t n = 1;
    for (int32_t d = 0; d < x->rank; d++)
        n *= axes >> d & 1 ? x->dims[d] : 1;
    ESP_TRY(esp_i_im_mean(node, x, axes, true, &mean));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_SUB, x, mean, &centred));
    ESP_TRY(esp_i_im_reduce(node, ESP_REDUCE_SUMSQ, centred, axes, true, &variance));
    ESP_TRY(esp_i_im_affine(node, variance, 1 / (double)n, epsilon, &variance));
    ESP_TRY(esp_i_im_unary(node, ESP_ELT_RSQRT, variance, &variance));
    return esp_i_im_binary(node, ESP_ELT_MUL, centred, variance, out);
}

static esp_status_t scale_and_shift(esp_i_node_t *node, esp_i_value_t *y, esp_i_value_t *scale,
                                    esp_i_value_t *bias)
{
    ESP_TRY(esp_i_im_per_channel(node, scale, y->rank, &scale));
    ESP_TRY(esp_i_im_per_channel(node, bias, y->rank, &bias));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_MUL, y, scale, &y));
    return esp_i_im_binary(node, ESP_ELT_ADD, y, bias, &node->out[0]);
}

esp_status_t esp_i_rule_instancenorm(esp_i_node_t *node)
{
    double epsilon;
    esp_i_value_t *y;
    ESP_TRY(esp_i_im_need_inputs(node, 3, 3));
    ESP_TRY(esp_i_im_attr_float(node, "epsilon", 1e-5, &epsilon));
    esp_i_value_t *x = node->in[0];
    if (x->rank < 3)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "an input of %d axes", x->rank);
    ESP_TRY(standardise(node, x, ((1u << x->rank) - 1) & ~3u, epsilon, &y));
    return scale_and_shift(node, y, node->in[1], node->in[2]);
}

/* Scale and bias per channel (opset 21) or per group (18). */
esp_status_t esp_i_rule_groupnorm(esp_i_node_t *node)
{
    double epsilon;
    int64_t groups;
    esp_i_value_t *y;
    ESP_TRY(esp_i_im_need_inputs(node, 3, 3));
    ESP_TRY(esp_i_im_attr_float(node, "epsilon", 1e-5, &epsilon));
    ESP_TRY(esp_i_im_attr_int(node, "num_groups", 0, &groups));
    esp_i_value_t *x = node->in[0];
    if (x->rank < 2 || groups < 1 || x->dims[1] % groups != 0)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%lld groups over the given channels",
                          (long long)groups);
    const int64_t dims[3] = {x->dims[0], groups,
                             x->dims[1] / groups * esp_i_im_extent(x, 2, x->rank)};
    ESP_TRY(esp_i_im_reshape(node, x, 3, dims, &y));
    ESP_TRY(standardise(node, y, 4, epsilon, &y));
    bool per_group = node->in[1]->rank == 1 && node->in[1]->dims[0] == groups;
    if (per_group && groups != x->dims[1]) {
        ESP_TRY(scale_and_shift(node, y, node->in[1], node->in[2]));
        return esp_i_im_reshape(node, node->out[0], x->rank, x->dims, &node->out[0]);
    }
    ESP_TRY(esp_i_im_reshape(node, y, x->rank, x->dims, &y));
    return scale_and_shift(node, y, node->in[1], node->in[2]);
}

/* (x - mean) / sqrt(variance) over axes, default all but the channels */
esp_status_t esp_i_rule_mean_variance(esp_i_node_t *node)
{
    uint32_t axes;
    bool given;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    ESP_TRY(esp_i_im_param_axes(node, "axes", 1, node->in[0]->rank, &axes, &given));
    if (!given)
        axes = ((1u << node->in[0]->rank) - 1) & ~2u;
    return standardise(node, node->in[0], axes, 1e-9, &node->out[0]);
}

/* x / (norm of x along an axis) */
esp_status_t esp_i_rule_lp_normalization(esp_i_node_t *node)
{
    int64_t p;
    int32_t axis;
    esp_i_value_t *norm;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    esp_i_value_t *x = node->in[0];
    ESP_TRY(esp_i_im_attr_axis(node, -1, x->rank, &axis));
    ESP_TRY(esp_i_im_attr_int(node, "p", 2, &p));
    if (p == 1) {
        ESP_TRY(esp_i_im_unary(node, ESP_ELT_ABS, x, &norm));
        ESP_TRY(esp_i_im_reduce(node, ESP_REDUCE_SUM, norm, 1u << axis, true, &norm));
    } else {
        ESP_TRY(esp_i_im_reduce(node, ESP_REDUCE_SUMSQ, x, 1u << axis, true, &norm));
        ESP_TRY(esp_i_im_unary(node, ESP_ELT_SQRT, norm, &norm));
    }
    return esp_i_im_binary(node, ESP_ELT_DIV_NO_NAN, x, norm, &node->out[0]);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* code: 1 for the logarithm. Before opset 13 all axes from `axis` on are normalised together. */
esp_status_t esp_i_rule_softmax(esp_i_node_t *node)
{
    esp_attr_t attr = {0};
    int32_t axis;
    ESP_TRY(esp_i_im_need_inputs(node, 1, 1));
    esp_i_value_t *x = node->in[0], *y = x;
    bool together = node->opset < 13;
    ESP_TRY(esp_i_im_attr_axis(node, together ? 1 : -1, x->rank, &axis));
    together = together && esp_i_im_extent(x, axis, x->rank) != x->dims[axis];
    attr.axis.axis = axis;
    attr.axis.log = node->op->code;
    if (together) {
        int64_t dims[ESP_MAX_RANK];
        memcpy(dims, x->dims, sizeof dims);
        dims[axis] = esp_i_im_extent(x, axis, x->rank);
        ESP_TRY(esp_i_im_reshape(node, x, axis + 1, dims, &y));
    }
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_SOFTMAX, &attr, 1, &y, &y));
    ESP_TRY(esp_i_im_reshape(node, y, x->rank, x->dims, &node->out[0]));
    if (attr.axis.log != 0 && !together) {
        node->out[0]->log_of = x;
        node->out[0]->log_axis = axis;
    }
    return ESP_OK;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* x [n, c, d..] -> [n, d.., c] */
static esp_status_t classes_last(esp_i_node_t *node, esp_i_value_t *x, esp_i_value_t **out)
{
    int32_t perm[ESP_MAX_RANK];
    for (int32_t d = 0; d < x->rank; d++)
        perm[d] = d == 0 ? 0 : d == x->rank - 1 ? 1 : d + 1;
    return esp_i_im_transpose(node, x, perm, out);
}

/* 1 where a label counts, as numbers like x; NULL where all do. */
static esp_status_t counted(esp_i_node_t *node, esp_i_value_t *x, esp_i_value_t *labels,
                            int64_t ignore, esp_i_value_t *weights, esp_i_value_t **out)
{
    esp_i_value_t *mask = NULL, *limit;
    if (ignore != INT64_MIN) {
        ESP_TRY(esp_i_im_scalar(node, labels->dtype, (double)ignore, &limit));
        ESP_TRY(esp_i_im_binary(node, ESP_ELT_NOT_EQUAL, labels, limit, &mask));
        ESP_TRY(esp_i_im_cast(node, mask, x->dtype, &mask));
    }
    if (weights != NULL) {
        esp_i_value_t *weight, *row = labels;
        esp_i_im_not_trained(weights);
        if (mask != NULL) { /* an ignored label may lie outside the table: it reads row 0 */
            esp_i_value_t *whole;
            ESP_TRY(esp_i_im_cast(node, mask, labels->dtype, &whole));
            ESP_TRY(esp_i_im_binary(node, ESP_ELT_MUL, labels, whole, &row));
        }
        ESP_TRY(esp_i_im_gather(node, weights, row, 0, &weight));
        if (mask != NULL)
            ESP_TRY(esp_i_im_binary(node, ESP_ELT_MUL, weight, mask, &weight));
        mask = weight;
    }
    *out = mask;
    return ESP_OK;
}

/* reduction: none, sum, or mean = sum / (sum of what counts) */
static esp_status_t reduce_loss(esp_i_node_t *node, esp_i_value_t *loss, esp_i_value_t *mask)
{
    esp_i_str_t reduction;
    ESP_TRY(esp_i_im_attr_text(node, "reduction", "mean", &reduction));
    uint32_t all = (1u << loss->rank) - 1;
    if (mask != NULL)
        ESP_TRY(esp_i_im_binary(node, ESP_ELT_MUL, loss, mask, &loss));
    if (esp_i_str_is(reduction, "none")) {
        node->out[0] = loss;
        return ESP_OK;
    }
    int64_t rows = esp_i_im_extent(loss, 0, loss->rank);
    ESP_TRY(esp_i_im_reduce(node, ESP_REDUCE_SUM, loss, all, false, &loss));
    if (!esp_i_str_is(reduction, "mean")) {
        node->out[0] = loss;
        return ESP_OK;
    }
    if (mask == NULL)
        return esp_i_im_affine(node, loss, 1 / (double)esp_i_max_i64(rows, 1), 0, &node->out[0]);
    ESP_TRY(esp_i_im_reduce(node, ESP_REDUCE_SUM, mask, all, false, &mask));
    return esp_i_im_binary(node, ESP_ELT_DIV_NO_NAN, loss, mask, &node->out[0]);
}

static esp_status_t check_labels(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 2, 3));
    const esp_i_value_t *x = node->in[0], *labels = node->in[1];
    if (x->rank < 2 || labels->rank != x->rank - 1 || esp_dtype_is_float(labels->dtype))
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "labels of %d axes (%s) for scores of %d",
                          labels->rank, esp_dtype_name(labels->dtype), x->rank);
    return ESP_OK;
}

static esp_status_t ignored_label(esp_i_node_t *node, int64_t *out)
{
    return esp_i_im_attr_int(node, "ignore_index", INT64_MIN, out);
}

esp_status_t esp_i_rule_cross_entropy(esp_i_node_t *node)
{
    esp_attr_t attr = {0};
    esp_i_value_t *in[2], *loss, *mask;
    ESP_TRY(check_labels(node));
    ESP_TRY(ignored_label(node, &attr.xent.ignore));
    ESP_TRY(classes_last(node, node->in[0], &in[0]));
    in[1] = node->in[1];
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_XENT, &attr, 2, in, &loss));
    ESP_TRY(counted(node, loss, in[1], attr.xent.ignore, esp_i_im_in(node, 2), &mask));
    ESP_TRY(reduce_loss(node, loss, mask));
    if (node->n_out > 1) { /* the log probabilities */
        esp_attr_t log_attr = {0};
        log_attr.axis.axis = 1;
        log_attr.axis.log = 1;
        ESP_TRY(esp_i_im_emit(node, ESP_KIND_SOFTMAX, &log_attr, 1, node->in, &node->out[1]));
    }
    return ESP_OK;
}

/* -x[label]: x where the class is the label, else 0, summed over the classes. */
static esp_status_t pick_label(esp_i_node_t *node, esp_i_value_t *x, esp_i_value_t *labels,
                               esp_i_value_t **out)
{
    esp_attr_t attr = {0};
    int64_t dims[ESP_MAX_RANK];
    esp_i_value_t *classes, *hit, *zero;
    memcpy(dims, labels->dims, sizeof dims);
    dims[labels->rank] = 1;
    attr.shape.rank = 1;
    attr.shape.dims[0] = x->dims[x->rank - 1];
    attr.shape.dtype = labels->dtype;
    attr.shape.step = 1;
    ESP_TRY(esp_i_im_emit(node, ESP_KIND_RANGE, &attr, 0, NULL, &classes));
    ESP_TRY(esp_i_im_reshape(node, labels, x->rank, dims, &labels));
    ESP_TRY(esp_i_im_binary(node, ESP_ELT_EQUAL, labels, classes, &hit));
    ESP_TRY(esp_i_im_scalar(node, x->dtype, 0, &zero));
    esp_i_value_t *in[3] = {hit, x, zero};
    ESP_TRY(esp_i_im_elt(node, ESP_ELT_WHERE, 0, 0, 3, in, out));
    ESP_TRY(esp_i_im_reduce(node, ESP_REDUCE_SUM, *out, 1u << (x->rank - 1), false, out));
    return esp_i_im_unary(node, ESP_ELT_NEG, *out, out);
}

/* Of a log softmax over the classes it is the cross-entropy of what went in there. */
esp_status_t esp_i_rule_nll(esp_i_node_t *node)
{
    esp_attr_t attr = {0};
    esp_i_value_t *in[2], *loss, *mask;
    ESP_TRY(check_labels(node));
    ESP_TRY(ignored_label(node, &attr.xent.ignore));
    esp_i_value_t *x = node->in[0];
    bool fused = x->log_of != NULL && x->log_axis == 1;
    ESP_TRY(classes_last(node, fused ? x->log_of : x, &in[0]));
    in[1] = node->in[1];
    if (fused)
        ESP_TRY(esp_i_im_emit(node, ESP_KIND_XENT, &attr, 2, in, &loss));
    else
        ESP_TRY(pick_label(node, in[0], in[1], &loss));
    ESP_TRY(counted(node, loss, in[1], attr.xent.ignore, esp_i_im_in(node, 2), &mask));
    return reduce_loss(node, loss, mask);
}
