/* What LSTM, GRU and plain recurrent layers share. */
#include "graph/kinds/recurrent.h"

#include <math.h>
#include <string.h>

enum { X = ESP_I_REC_X, W, R, BIAS, H0, C0 };

/* ---- inference and factors --------------------------------------------------------------- */

static esp_status_t check(const esp_i_op_t *op, int32_t input, const char *what, int32_t rank,
                          const int64_t *dims, esp_diag_t *diag)
{
    ESP_TRY(esp_i_operand_shape(op, input, what, rank, dims, diag));
    if (op->in[input].dtype == op->in[0].dtype)
        return ESP_OK;
    return esp_i_fail(diag, ESP_ERR_INVALID, "%s is of type %s among others of type %s", what,
                      esp_dtype_name(op->in[input].dtype), esp_dtype_name(op->in[0].dtype));
}

static esp_status_t check_sequence(const esp_i_op_t *op, int32_t input, const char *what,
                                   esp_diag_t *diag)
{
    const esp_i_shape_t *x = &op->in[input];
    if (x->rank != 3)
        return esp_i_fail(diag, ESP_ERR_INVALID, "%s has %d axes where a sequence of samples has 3",
                          what, (int)x->rank);
    if (x->dims[0] < 1 || x->dims[2] < 1)
        return esp_i_fail(diag, ESP_ERR_INVALID, "%s is a sequence of %lld elements of %lld", what,
                          (long long)x->dims[0], (long long)x->dims[2]);
    return ESP_OK;
}

/* h, where r is [gates h, h] */
static esp_status_t hidden_of(const esp_i_op_t *op, int32_t input, int64_t gates,
                              int64_t *hidden_out, esp_diag_t *diag)
{
    const esp_i_shape_t *r = &op->in[input];
    const bool fits = r->rank == 2 && r->dims[1] >= 1 && r->dims[0] % gates == 0 &&
                      r->dims[0] / gates == r->dims[1];
    char text[96];
    esp_i_operand_text(r, text);
    if (!fits)
        return esp_i_fail(diag, ESP_ERR_INVALID,
                          "r has shape %s where [%lld h, h] for h hidden units is needed", text,
                          (long long)gates);
    *hidden_out = r->dims[1];
    return ESP_OK;
}

esp_i_shape_t esp_i_rec_sequence(const esp_i_shape_t *state, int64_t steps, int64_t units)
{
    return (esp_i_shape_t){
        .dtype = state->dtype, .rank = 3, .dims = {steps, state->dims[0], units * state->dims[1]}};
}

esp_status_t esp_i_rec_infer(const esp_i_op_t *op, int32_t gates, esp_diag_t *diag)
{
    static const char *const state_name[2] = {"h0", "c0"};
    const esp_i_shape_t *x = &op->in[X];
    int64_t hidden;
    ESP_TRY(esp_i_operand_float(op, X, "x", diag));
    ESP_TRY(check_sequence(op, X, "x", diag));
    ESP_TRY(hidden_of(op, R, gates, &hidden, diag));
    const int64_t w[2] = {gates * hidden, x->dims[2]}, bias = 2 * gates * hidden;
    const int64_t state[2] = {x->dims[1], hidden};
    ESP_TRY(check(op, W, "w", 2, w, diag));
    ESP_TRY(check(op, R, "r", 2, op->in[R].dims, diag));
    if (esp_i_op_has(op, BIAS))
        ESP_TRY(check(op, BIAS, "the bias", 1, &bias, diag));
    for (int32_t i = H0; i <= C0; i++)
        if (esp_i_op_has(op, i))
            ESP_TRY(check(op, i, state_name[i - H0], 2, state, diag));
    op->out[1] = (esp_i_shape_t){.dtype = x->dtype, .rank = 2, .dims = {state[0], state[1]}};
    op->out[0] = esp_i_rec_sequence(&op->out[1], x->dims[0], 1);
    return ESP_OK;
}

esp_status_t esp_i_rec_optional(const esp_i_op_t *op, int32_t input, const char *what,
                                const esp_i_shape_t *shape, esp_diag_t *diag)
{
    return esp_i_op_has(op, input) ? check(op, input, what, shape->rank, shape->dims, diag)
                                   : ESP_OK;
}

esp_status_t esp_i_rec_infer_grad(const esp_i_op_t *op, int32_t gates, int32_t units,
                                  const char *what, esp_i_shape_t *state_out, esp_diag_t *diag)
{
    int64_t hidden;
    ESP_TRY(esp_i_operand_float(op, 0, "r", diag));
    ESP_TRY(hidden_of(op, 0, gates, &hidden, diag));
    ESP_TRY(check_sequence(op, 1, what, diag));
    const int64_t dims[3] = {op->in[1].dims[0], op->in[1].dims[1], units * hidden};
    ESP_TRY(check(op, 1, what, 3, dims, diag));
    *state_out = (esp_i_shape_t){.dtype = op->in[0].dtype, .rank = 2, .dims = {dims[1], hidden}};
    return ESP_OK;
}

/* Every operand but the inputs in the bit set `whole`. */
static void open_samples(const esp_i_op_t *op, int64_t samples, uint32_t whole, esp_i_dims_t *dims)
{
    esp_i_dims_open(dims, samples, 1);
    for (int32_t i = 0; i < op->n_in + op->n_out; i++) {
        const esp_i_shape_t *shape = i < op->n_in ? &op->in[i] : &op->out[i - op->n_in];
        const bool weight = i < op->n_in && (whole >> i & 1);
        if (shape->rank >= 2 && !weight)
            esp_i_dims_bind_axis(dims, op, i, shape->rank - 2);
    }
}

void esp_i_rec_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    open_samples(op, op->in[X].dims[1], 1u << W | 1u << R | 1u << BIAS, dims);
}

void esp_i_rec_grad_dims(const esp_i_op_t *op, esp_i_dims_t *dims)
{
    open_samples(op, op->in[1].dims[1], 1, dims);
}

int32_t esp_i_rec_grad_linear(const esp_i_op_t *op, int32_t first, uint64_t masks_out[4])
{
    masks_out[0] = 0;
    for (int32_t i = first; i < op->n_in; i++)
        masks_out[0] |= esp_i_op_has(op, i) ? (uint64_t)1 << i : 0;
    return masks_out[0] != 0;
}

double esp_i_rec_matrix_flops(const esp_i_shape_t *gates, int64_t columns)
{
    return 2 * (double)esp_i_shape_elements(gates) * (double)columns;
}

/* ---- gradients --------------------------------------------------------------------------- */

esp_status_t esp_i_rec_grad_needed(const esp_i_grad_t *grad, int32_t saved, bool *needed_out)
{
    bool flows = false, wanted = false;
    for (int32_t i = 0; i < grad->op->n_out; i++) {
        if (i >= saved && grad->dy[i] != ESP_NONE)
            return esp_i_fail(grad->diag, ESP_ERR_UNSUPPORTED,
                              "the loss depends on the saved gates of a recurrent layer");
        flows = flows || grad->dy[i] != ESP_NONE;
    }
    for (int32_t i = 0; i < grad->op->n_in; i++)
        wanted = wanted || (esp_i_op_has(grad->op, i) && grad->need[i]);
    *needed_out = flows && wanted;
    return ESP_OK;
}

/* h0 as a sequence of one; zeros without it. */
static esp_status_t first_state(const esp_i_grad_t *grad, esp_tensor_id_t *out)
{
    const esp_i_shape_t *y = &grad->op->out[0];
    const int64_t dims[3] = {1, y->dims[1], y->dims[2]};
    if (esp_i_op_has(grad->op, H0))
        return esp_i_make_reshape(grad->builder, grad->in[H0], 3, dims, grad->name, out,
                                  grad->diag);
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.rank = 3;
    memcpy(attr.shape.dims, dims, sizeof dims);
    attr.shape.dtype = y->dtype;
    return esp_i_make(grad->builder, ESP_KIND_FILL, &attr, 0, NULL, grad->name, out, grad->diag);
}

esp_status_t esp_i_rec_before(const esp_i_grad_t *grad, esp_tensor_id_t *out)
{
    const esp_i_shape_t *y = &grad->op->out[0];
    const int64_t steps = y->dims[0];
    const bool reverse = grad->op->attr->recurrent.reverse != 0;
    esp_tensor_id_t part[2], swap;
    ESP_TRY(first_state(grad, &part[0]));
    *out = part[0];
    if (steps == 1)
        return ESP_OK;
    esp_attr_t attr;
    memset(&attr, 0, sizeof attr);
    for (int32_t i = 0; i < 3; i++) {
        attr.slice.step[i] = 1;
        attr.slice.count[i] = y->dims[i];
    }
    attr.slice.start[0] = reverse ? 1 : 0;
    attr.slice.count[0] = steps - 1;
    ESP_TRY(esp_i_make(grad->builder, ESP_KIND_SLICE, &attr, 1, &grad->out[0], grad->name, &part[1],
                       grad->diag));
    if (reverse) {
        swap = part[0];
        part[0] = part[1];
        part[1] = swap;
    }
    memset(&attr, 0, sizeof attr);
    return esp_i_make(grad->builder, ESP_KIND_CONCAT, &attr, 2, part, grad->name, out, grad->diag);
}

static esp_status_t grad_bias(const esp_i_grad_t *grad, esp_tensor_id_t dgates,
                              esp_tensor_id_t drecurrent)
{
    esp_attr_t attr;
    esp_tensor_id_t half[2];
    ESP_TRY(esp_i_make_reduce(grad->builder, ESP_REDUCE_SUM, dgates, 3, false, grad->name, &half[0],
                              grad->diag));
    half[1] = half[0];
    if (drecurrent != dgates)
        ESP_TRY(esp_i_make_reduce(grad->builder, ESP_REDUCE_SUM, drecurrent, 3, false, grad->name,
                                  &half[1], grad->diag));
    memset(&attr, 0, sizeof attr);
    return esp_i_make(grad->builder, ESP_KIND_CONCAT, &attr, 2, half, grad->name, &grad->dx[BIAS],
                      grad->diag);
}

esp_status_t esp_i_rec_grad_inputs(const esp_i_grad_t *grad, esp_tensor_id_t dgates,
                                   esp_tensor_id_t drecurrent)
{
    if (grad->need[X])
        ESP_TRY(esp_i_make_einsum(grad->builder, "tbg,gi->tbi", dgates, grad->in[W], grad->name,
                                  &grad->dx[X], grad->diag));
    if (grad->need[W])
        ESP_TRY(esp_i_make_einsum(grad->builder, "tbg,tbi->gi", dgates, grad->in[X], grad->name,
                                  &grad->dx[W], grad->diag));
    if (esp_i_op_has(grad->op, BIAS) && grad->need[BIAS])
        ESP_TRY(grad_bias(grad, dgates, drecurrent));
    return ESP_OK;
}

esp_status_t esp_i_rec_grad_r(const esp_i_grad_t *grad, esp_tensor_id_t dgates,
                              esp_tensor_id_t before, esp_tensor_id_t *dr_out)
{
    return esp_i_make_einsum(grad->builder, "tbg,tbh->gh", dgates, before, grad->name, dr_out,
                             grad->diag);
}

/* ---- kernels ----------------------------------------------------------------------------- */

esp_i_rec_t esp_i_rec_of(const esp_i_kernel_t *kernel)
{
    const esp_i_buffer_t *in = kernel->in;
    return (esp_i_rec_t){.steps = in[X].global[0],
                         .batch = esp_i_operand_span(&in[X], 1, 2),
                         .inputs = in[X].global[2],
                         .hidden = in[R].global[1],
                         .reverse = kernel->attr->recurrent.reverse != 0,
                         .x = in[X].data,
                         .w = in[W].data,
                         .r = in[R].data,
                         .bias = kernel->n_in > BIAS ? in[BIAS].data : NULL,
                         .h0 = kernel->n_in > H0 ? in[H0].data : NULL,
                         .y = kernel->out[0].data};
}

esp_i_rec_t esp_i_rec_grad_of(const esp_i_kernel_t *kernel, int32_t sequence, int64_t units)
{
    const esp_i_buffer_t *in = kernel->in;
    return (esp_i_rec_t){.steps = in[sequence].global[0],
                         .batch = esp_i_operand_span(&in[sequence], 1, 2),
                         .hidden = in[sequence].global[2] / units,
                         .reverse = kernel->attr->recurrent.reverse != 0,
                         .r = in[0].data};
}

const double *esp_i_rec_previous(const esp_i_rec_t *rec, const double *sequence,
                                 const double *initial, int64_t step, int64_t sample)
{
    if (step > 0)
        return sequence + (esp_i_rec_time(rec, step - 1) * rec->batch + sample) * rec->hidden;
    return initial ? initial + sample * rec->hidden : NULL;
}

double esp_i_rec_from_x(const esp_i_rec_t *rec, int64_t unit, int64_t time, int64_t sample)
{
    const double *x = rec->x + (time * rec->batch + sample) * rec->inputs;
    double sum = rec->bias ? rec->bias[unit] : 0;
    for (int64_t i = 0; i < rec->inputs; i++)
        sum += rec->w[unit * rec->inputs + i] * x[i];
    return sum;
}

double esp_i_rec_from_h(const esp_i_rec_t *rec, int64_t units, int64_t unit, const double *h)
{
    double sum = rec->bias ? rec->bias[units + unit] : 0;
    for (int64_t i = 0; h && i < rec->hidden; i++)
        sum += rec->r[unit * rec->hidden + i] * h[i];
    return sum;
}

void esp_i_rec_last(const esp_i_rec_t *rec, const double *sequence, double *state)
{
    const int64_t n = rec->batch * rec->hidden;
    for (int64_t i = 0; i < n; i++)
        state[i] = sequence[esp_i_rec_time(rec, rec->steps - 1) * n + i];
}

void esp_i_rec_grad_start(const esp_i_rec_t *rec, const double *last, double *running)
{
    for (int64_t i = 0; i < rec->batch * rec->hidden; i++)
        running[i] = last ? last[i] : 0;
}

double esp_i_rec_back(const esp_i_rec_t *rec, const double *d, int64_t units, int64_t column)
{
    double sum = 0;
    for (int64_t unit = 0; unit < units; unit++)
        sum += d[unit] * rec->r[unit * rec->hidden + column];
    return sum;
}

double esp_i_rec_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
