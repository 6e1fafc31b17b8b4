/*
 * One optimizer step of one parameter: w, g, [step], [m], [v], [scale] -> w', [m'], [v'], element
 * by element. The gradient is h = g * scale (scale: a scalar, 1 if absent; norm clipping gives it).
 *
 *   sgd        w' = w - rate (h + decay w)
 *   momentum   m' = momentum m + h + decay w;  w' = w - rate m'
 *   adam       h += decay w;  m' = beta1 m + (1 - beta1) h;  v' = beta2 v + (1 - beta2) h^2
 *              w' = w - rate (m' / (1 - beta1^t)) / (sqrt(v' / (1 - beta2^t)) + epsilon)
 *   adamw      as adam, but the decay goes past the moments: w' -= rate decay w
 *   statistic  w' = (1 - momentum) w + momentum g
 *
 * t is the input step, which counts from 1: the step that is being taken. Outputs that an optimizer
 * does not keep do not exist: the kind's `outputs` says how many there are.
 */
#include "graph/kinds/operand.h"

#include <math.h>

enum { W, G, STEP, M, V, SCALE, INPUTS };

static const char *const operand_name[INPUTS] = {"w", "g", "step", "m", "v", "scale"};

/* Bits of the optional inputs that the optimizer needs; scale may come with all but statistic. */
static uint32_t needs(esp_optimizer_t optimizer)
{
    switch (optimizer) {
    case ESP_OPTIMIZER_SGD:
    case ESP_OPTIMIZER_STATISTIC:
        return 0;
    case ESP_OPTIMIZER_MOMENTUM:
        return 1u << M;
    case ESP_OPTIMIZER_ADAM:
    case ESP_OPTIMIZER_ADAMW:
        return 1u << STEP | 1u << M | 1u << V;
    }
    return 0;
}

static int32_t update_outputs(const esp_attr_t *attr)
{
    const uint32_t need = needs(attr->update.optimizer);
    return 1 + (int32_t)(need >> M & 1) + (int32_t)(need >> V & 1);
}

static esp_status_t update_infer(const esp_i_op_t *op, esp_diag_t *diag)
{
    const esp_optimizer_t optimizer = op->attr->update.optimizer;
    if ((int)optimizer < 0 || optimizer > ESP_OPTIMIZER_STATISTIC)
        return esp_i_fail(diag, ESP_ERR_INVALID, "optimizer %d does not exist", (int)optimizer);
    const uint32_t need = needs(optimizer) | 1u << W | 1u << G;
    const uint32_t may = need | (optimizer == ESP_OPTIMIZER_STATISTIC ? 0 : 1u << SCALE);
    for (int32_t i = 0; i < INPUTS; i++) {
        const bool has = esp_i_op_has(op, i), scalar = i == STEP || i == SCALE;
        if (!has && (need >> i & 1))
            return esp_i_fail(diag, ESP_ERR_INVALID, "this optimizer needs input %s",
                              operand_name[i]);
        if (has && !(may >> i & 1))
            return esp_i_fail(diag, ESP_ERR_INVALID, "this optimizer has no input %s",
                              operand_name[i]);
        if (!has)
            continue;
        if (i != STEP)
            ESP_TRY(esp_i_operand_float(op, i, operand_name[i], diag));
        const int32_t rank = scalar ? 0 : op->in[W].rank;
        ESP_TRY(esp_i_operand_shape(op, i, operand_name[i], rank, op->in[W].dims, diag));
    }
    op->out[0] = op->in[W];
    if (op->n_out > 1)
        op->out[1] = op->in[M];
    if (op->n_out > 2)
        op->out[2] = op->in[V];
    return ESP_OK;
}

static void update_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    esp_i_dims_open(dims, esp_i_shape_elements(&op->in[W]), 1);
    for (int32_t i = 0; i < op->n_in + op->n_out; i++) {
        if (i >= op->n_in || (i != STEP && i != SCALE && esp_i_op_has(op, i)))
            esp_i_dims_bind(dims, i, ESP_BIND_CARRY, 1, 1);
    }
}

static double update_flops(const esp_i_op_t *op)
{
    static const double per_element[] = {[ESP_OPTIMIZER_SGD] = 4,
                                         [ESP_OPTIMIZER_MOMENTUM] = 6,
                                         [ESP_OPTIMIZER_ADAM] = 20,
                                         [ESP_OPTIMIZER_ADAMW] = 20,
                                         [ESP_OPTIMIZER_STATISTIC] = 3};
    return per_element[op->attr->update.optimizer] * (double)esp_i_shape_elements(&op->in[W]);
}

static void adam_element(const esp_i_kernel_t *kernel, int64_t i, double h)
{
    const bool decoupled = kernel->attr->update.optimizer == ESP_OPTIMIZER_ADAMW;
    const double beta1 = kernel->attr->update.beta1, beta2 = kernel->attr->update.beta2;
    const double decay = kernel->attr->update.decay, w = kernel->in[W].data[i];
    const double t = kernel->in[STEP].data[0];
    if (!decoupled)
        h += decay * w;
    const double m = beta1 * kernel->in[M].data[i] + (1 - beta1) * h;
    const double v = beta2 * kernel->in[V].data[i] + (1 - beta2) * h * h;
    const double corrected = sqrt(v / (1 - pow(beta2, t))) + kernel->attr->update.epsilon;
    const double direction = m / (1 - pow(beta1, t)) / corrected + (decoupled ? decay * w : 0);
    kernel->out[0].data[i] = w - kernel->attr->update.rate * direction;
    kernel->out[1].data[i] = m;
    kernel->out[2].data[i] = v;
}

static void update_kernel(const esp_i_kernel_t *kernel)
{
    const double rate = kernel->attr->update.rate, momentum = kernel->attr->update.momentum;
    const double decay = kernel->attr->update.decay;
    const bool scaled = kernel->n_in > SCALE && kernel->in[SCALE].data;
    const int64_t n = esp_i_buffer_elements(&kernel->in[W]);
    for (int64_t i = 0; i < n; i++) {
        const double w = kernel->in[W].data[i], g = kernel->in[G].data[i];
        const double h = scaled ? g * kernel->in[SCALE].data[0] : g;
        switch (kernel->attr->update.optimizer) {
        case ESP_OPTIMIZER_SGD:
            kernel->out[0].data[i] = w - rate * (h + decay * w);
            break;
        case ESP_OPTIMIZER_MOMENTUM:
            kernel->out[1].data[i] = momentum * kernel->in[M].data[i] + h + decay * w;
            kernel->out[0].data[i] = w - rate * kernel->out[1].data[i];
            break;
        case ESP_OPTIMIZER_ADAM:
        case ESP_OPTIMIZER_ADAMW:
            adam_element(kernel, i, h);
            break;
        case ESP_OPTIMIZER_STATISTIC:
            kernel->out[0].data[i] = (1 - momentum) * w + momentum * g;
            break;
        }
    }
}

const esp_i_kind_t esp_i_kind_UPDATE = {
    .name = "update",
    .min_in = 2,
    .max_in = INPUTS,
    .n_out = 3,
    .outputs = update_outputs,
    .family = ESP_FAMILY_MEMORY,
    .infer = update_infer,
    .dims = update_dims,
    .flops = update_flops,
    .kernel = update_kernel,
};
