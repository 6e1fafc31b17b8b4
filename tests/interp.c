/* The reference interpreter. */
#include "interp.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct interp {
    const esp_graph_t *graph;
    uint64_t seed, step;
    double **value; /* per tensor; NULL where the buffer is that of its root */
    bool *is_set;
};

static void *allocate(int64_t n, size_t size)
{
    void *memory = calloc(n > 0 ? (size_t)n : 1, size);
    assert_non_null(memory);
    return memory;
}

/* ---- default values ---------------------------------------------------------------------- */

static uint64_t name_hash(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

typedef struct drawer {
    uint64_t seed, step, stream;
} drawer_t;

static double draw(const drawer_t *drawer, int64_t element)
{
    return (esp_i_philox(drawer->seed, drawer->step, drawer->stream, (uint64_t)element) + 0.5) *
           0x1p-32;
}

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static double bfloat_value(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

static double literal_value(const void *data, esp_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case ESP_DTYPE_F32:
        return (double)((const float *)data)[i];
    case ESP_DTYPE_F64:
        return ((const double *)data)[i];
    case ESP_DTYPE_F16:
        return half_value(((const uint16_t *)data)[i]);
    case ESP_DTYPE_BF16:
        return bfloat_value(((const uint16_t *)data)[i]);
    case ESP_DTYPE_I8:
        return ((const int8_t *)data)[i];
    case ESP_DTYPE_U8:
    case ESP_DTYPE_BOOL:
        return ((const uint8_t *)data)[i];
    case ESP_DTYPE_I16:
        return ((const int16_t *)data)[i];
    case ESP_DTYPE_I32:
        return ((const int32_t *)data)[i];
    case ESP_DTYPE_I64:
        return (double)((const int64_t *)data)[i];
    case ESP_DTYPE_COUNT:
        break;
    }
    fail_msg("dtype %d has no literals", (int)dtype);
    return 0;
}

/* Whether a normalisation scales by this tensor: then it should be near 1, not near 0. */
static bool is_scale(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    for (int32_t i = graph->consumer_offset[tensor]; i < graph->consumer_offset[tensor + 1]; i++) {
        const esp_op_id_t op = graph->consumer_op[i];
        const esp_tensor_id_t *in = graph->input_tensor + graph->input_offset[op];
        if ((graph->op_kind[op] == ESP_KIND_LAYERNORM && in[1] == tensor) ||
            (graph->op_kind[op] == ESP_KIND_BN_NORM && in[3] == tensor))
            return true;
    }
    return false;
}

static void default_weight(const esp_graph_t *graph, esp_tensor_id_t tensor, drawer_t drawer,
                           double *out)
{
    const int64_t n = graph->tensor_elements[tensor];
    double middle = 0, width = 0.5;
    if (is_scale(graph, tensor)) {
        middle = 1;
    } else if (graph->tensor_rank[tensor] >= 2 && n > 0) {
        const int64_t first = graph->tensor_dims[tensor][0];
        width = sqrt(3 / (double)esp_i_max_i64(first, n / first));
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = middle + width * (2 * draw(&drawer, i) - 1);
}

/* Bounds that one consumer of a tensor sets; recurses through ops that move elements. */
static int64_t bound_at(const esp_graph_t *graph, esp_op_id_t op, esp_tensor_id_t tensor);

static int64_t bound_through(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    int64_t bound = INT64_MAX;
    for (int32_t i = graph->consumer_offset[tensor]; i < graph->consumer_offset[tensor + 1]; i++)
        bound = esp_i_min_i64(bound, bound_at(graph, graph->consumer_op[i], tensor));
    return bound;
}

static int64_t bound_at(const esp_graph_t *graph, esp_op_id_t op, esp_tensor_id_t tensor)
{
    const esp_tensor_id_t *in = graph->input_tensor + graph->input_offset[op];
    const esp_attr_t *attr = &graph->op_attr[op];
    const esp_op_kind_t kind = (esp_op_kind_t)graph->op_kind[op];
    const bool second =
        graph->input_offset[op + 1] - graph->input_offset[op] > 1 && in[1] == tensor;
    if (kind == ESP_KIND_GATHER && second)
        return graph->tensor_dims[in[0]][attr->axis.axis];
    if (kind == ESP_KIND_SCATTER_ADD && second)
        return attr->axis.extent;
    if ((kind == ESP_KIND_XENT || kind == ESP_KIND_XENT_GRAD) && second)
        return graph->tensor_dims[in[0]][graph->tensor_rank[in[0]] - 1];
    if (kind == ESP_KIND_RESHAPE || kind == ESP_KIND_TRANSPOSE || kind == ESP_KIND_SLICE ||
        kind == ESP_KIND_CONCAT || kind == ESP_KIND_EXPAND || kind == ESP_KIND_CAST ||
        kind == ESP_KIND_GATHER)
        return bound_through(graph, graph->output_tensor[graph->output_offset[op]]);
    return INT64_MAX;
}

int64_t interp_bound(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    const int64_t bound = bound_through(graph, tensor);
    return bound == INT64_MAX ? 2 : esp_i_max_i64(bound, 1);
}

static void default_input(const esp_graph_t *graph, esp_tensor_id_t tensor, drawer_t drawer,
                          double *out)
{
    const int64_t n = graph->tensor_elements[tensor];
    const esp_dtype_t dtype = (esp_dtype_t)graph->tensor_dtype[tensor];
    const bool is_float = esp_dtype_is_float(dtype) != 0;
    double bound = dtype == ESP_DTYPE_BOOL || is_float ? 2 : (double)interp_bound(graph, tensor);
    for (int64_t i = 0; i < n; i++) {
        const double value = bound * draw(&drawer, i);
        out[i] = is_float ? value - 1 : floor(value);
    }
}

void interp_default(const esp_graph_t *graph, esp_tensor_id_t tensor, uint64_t seed, uint64_t step,
                    double *values_out)
{
    const int64_t n = graph->tensor_elements[tensor];
    const esp_dtype_t dtype = (esp_dtype_t)graph->tensor_dtype[tensor];
    const esp_role_t role = (esp_role_t)graph->tensor_role[tensor];
    drawer_t drawer = {seed, role == ESP_ROLE_INPUT ? step : 0,
                       name_hash(graph->tensor_name[tensor])};
    if (graph->tensor_data[tensor]) {
        for (int64_t i = 0; i < n; i++)
            values_out[i] = literal_value(graph->tensor_data[tensor], dtype, i);
    } else if (role == ESP_ROLE_INPUT) {
        default_input(graph, tensor, drawer, values_out);
    } else if (role == ESP_ROLE_STATE || !esp_dtype_is_float(dtype)) {
        memset(values_out, 0, (size_t)n * sizeof *values_out);
    } else if (role == ESP_ROLE_STATISTIC) {
        for (int64_t i = 0; i < n; i++)
            values_out[i] = 0.5 + draw(&drawer, i);
    } else {
        default_weight(graph, tensor, drawer, values_out);
    }
}

/* ---- the interpreter --------------------------------------------------------------------- */

interp_t *interp_new(const esp_graph_t *graph, uint64_t seed)
{
    interp_t *interp = allocate(1, sizeof *interp);
    interp->graph = graph;
    interp->seed = seed;
    interp->value = allocate(graph->n_tensors, sizeof *interp->value);
    interp->is_set = allocate(graph->n_tensors, sizeof *interp->is_set);
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensor_root[t] != t)
            continue;
        interp->value[t] = allocate(graph->tensor_elements[t], sizeof **interp->value);
        if (graph->tensor_producer[t] == ESP_NONE)
            interp_default(graph, t, seed, 0, interp->value[t]);
    }
    return interp;
}

void interp_free(interp_t *interp)
{
    if (!interp)
        return;
    for (esp_tensor_id_t t = 0; t < interp->graph->n_tensors; t++)
        free(interp->value[t]);
    free(interp->value);
    free(interp->is_set);
    free(interp);
}

static double *value_of(const interp_t *interp, esp_tensor_id_t tensor)
{
    assert_in_range(tensor, 0, interp->graph->n_tensors - 1);
    return interp->value[interp->graph->tensor_root[tensor]];
}

const double *interp_get(const interp_t *interp, esp_tensor_id_t tensor)
{
    return value_of(interp, tensor);
}

void interp_set(interp_t *interp, esp_tensor_id_t tensor, const double *values)
{
    assert_int_equal(interp->graph->tensor_producer[tensor], ESP_NONE);
    interp->is_set[tensor] = true;
    memcpy(value_of(interp, tensor), values,
           (size_t)interp->graph->tensor_elements[tensor] * sizeof *values);
}

static void run_op(const interp_t *interp, esp_op_id_t op)
{
    const esp_graph_t *graph = interp->graph;
    const esp_factor_t none = {.dim = ESP_NONE};
    if (esp_i_kind((esp_op_kind_t)graph->op_kind[op])->flags & ESP_I_KIND_ALIAS)
        return;
    kernel_call_t call;
    kernel_local(graph, op, none, 0, 0, &call);
    call.kernel.seed = interp->seed;
    call.kernel.step = interp->step;
    const esp_tensor_id_t *in = graph->input_tensor + graph->input_offset[op];
    const esp_tensor_id_t *out = graph->output_tensor + graph->output_offset[op];
    for (int32_t i = 0; i < call.kernel.n_in; i++) {
        if (in[i] != ESP_NONE)
            call.operand[i].data = value_of(interp, in[i]);
    }
    for (int32_t i = 0; i < call.kernel.n_out; i++)
        call.operand[call.kernel.n_in + i].data = value_of(interp, out[i]);
    kernel_call_run(graph, op, &call);
    kernel_call_fini(&call);
}

void interp_run(interp_t *interp)
{
    const esp_graph_t *graph = interp->graph;
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensor_role[t] == ESP_ROLE_INPUT && graph->tensor_producer[t] == ESP_NONE &&
            !interp->is_set[t])
            interp_default(graph, t, interp->seed, interp->step, interp->value[t]);
    }
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        run_op(interp, op);
}

void interp_step(interp_t *interp)
{
    const esp_graph_t *graph = interp->graph;
    interp_run(interp);
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; t++) {
        const esp_tensor_id_t next = graph->tensor_next[t];
        if (next == ESP_NONE)
            continue;
        /* A version that some op made: no order of the copies can matter. */
        assert_int_not_equal(graph->tensor_producer[graph->tensor_root[next]], ESP_NONE);
        assert_int_equal(graph->tensor_elements[next], graph->tensor_elements[t]);
        memcpy(value_of(interp, t), value_of(interp, next),
               (size_t)graph->tensor_elements[t] * sizeof(double));
    }
    interp->step++;
}

/* ---- running one op on a share ----------------------------------------------------------- */

esp_i_buffer_t buffer_of(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_view_t view,
                         int64_t offset, int64_t share)
{
    esp_i_buffer_t buffer = {.global_rank = graph->tensor_rank[tensor]};
    buffer.rank = buffer.global_rank;
    memcpy(buffer.global, graph->tensor_dims[tensor], sizeof buffer.global);
    memcpy(buffer.dims, buffer.global, sizeof buffer.dims);
    if (view.extent == 0)
        return buffer;
    assert_int_equal(view.outer * view.extent * view.inner, graph->tensor_elements[tensor]);
    assert_true(offset >= 0 && share >= 0 && offset + share <= view.extent);
    buffer.view = view;
    buffer.offset = offset;
    buffer.share = share;
    buffer.rank = esp_view_local_dims(buffer.global_rank, buffer.global, view, share, buffer.dims);
    assert_int_equal(esp_i_buffer_elements(&buffer), view.outer * share * view.inner);
    return buffer;
}

void kernel_local(const esp_graph_t *graph, esp_op_id_t op, esp_factor_t factor, int64_t offset,
                  int64_t share, kernel_call_t *call_out)
{
    const esp_tensor_id_t *in = graph->input_tensor + graph->input_offset[op];
    const esp_tensor_id_t *out = graph->output_tensor + graph->output_offset[op];
    const int32_t n_in = graph->input_offset[op + 1] - graph->input_offset[op];
    const int32_t n_out = graph->output_offset[op + 1] - graph->output_offset[op];
    *call_out = (kernel_call_t){.n_operands = n_in + n_out};
    call_out->operand = allocate(n_in + n_out, sizeof *call_out->operand);
    call_out->dtype = allocate(n_in + n_out, sizeof *call_out->dtype);
    for (int32_t i = 0; i < n_in + n_out; i++) {
        const esp_tensor_id_t tensor = i < n_in ? in[i] : out[i - n_in];
        call_out->operand[i].rank = call_out->operand[i].global_rank = -1;
        if (tensor == ESP_NONE)
            continue;
        esp_view_t view = {0, 0, 0}, bound;
        if (factor.dim != ESP_NONE &&
            esp_graph_bind(graph, op, factor, i, &bound) == ESP_BIND_CARRY)
            view = bound;
        call_out->dtype[i] = (esp_dtype_t)graph->tensor_dtype[tensor];
        call_out->operand[i] = buffer_of(graph, tensor, view, offset, share);
    }
    call_out->kernel = (esp_i_kernel_t){.attr = &graph->op_attr[op],
                                        .n_in = n_in,
                                        .n_out = n_out,
                                        .in = call_out->operand,
                                        .out = call_out->operand + n_in,
                                        .in_dtype = call_out->dtype,
                                        .out_dtype = call_out->dtype + n_in};
}

void kernel_call_run(const esp_graph_t *graph, esp_op_id_t op, const kernel_call_t *call)
{
    const esp_i_kind_t *kind = esp_i_kind((esp_op_kind_t)graph->op_kind[op]);
    if (!kind->kernel)
        fail_msg("op %s: kind %s has no kernel", graph->op_name[op],
                 esp_kind_name((esp_op_kind_t)graph->op_kind[op]));
    kind->kernel(&call->kernel);
}

void kernel_call_fini(kernel_call_t *call)
{
    free(call->operand);
    free(call->dtype);
    *call = (kernel_call_t){0};
}

double *buffer_alloc(const esp_i_buffer_t *buffer)
{
    return allocate(esp_i_buffer_elements(buffer), sizeof(double));
}

/* Outer stride of the whole, of the local buffer, and where in the whole the local rows start. */
typedef struct strides {
    int64_t outer, whole, local, start;
} strides_t;

static strides_t strides_of(const esp_i_buffer_t *local)
{
    const esp_view_t *view = &local->view;
    if (view->extent == 0)
        return (strides_t){1, 0, esp_i_buffer_elements(local), 0};
    return (strides_t){view->outer, view->extent * view->inner, local->share * view->inner,
                       local->offset * view->inner};
}

void buffer_take(const esp_i_buffer_t *local, const double *whole)
{
    const strides_t s = strides_of(local);
    for (int64_t o = 0; o < s.outer; o++)
        memcpy(local->data + o * s.local, whole + o * s.whole + s.start,
               (size_t)s.local * sizeof *whole);
}

void buffer_put(const esp_i_buffer_t *local, double *whole)
{
    const strides_t s = strides_of(local);
    for (int64_t o = 0; o < s.outer; o++)
        memcpy(whole + o * s.whole + s.start, local->data + o * s.local,
               (size_t)s.local * sizeof *whole);
}

void buffer_add(const esp_i_buffer_t *local, double *whole)
{
    const strides_t s = strides_of(local);
    for (int64_t o = 0; o < s.outer; o++) {
        for (int64_t i = 0; i < s.local; i++)
            whole[o * s.whole + s.start + i] += local->data[o * s.local + i];
    }
}
