/*
 * The values that tensors without producer have at first. What a weight is for follows from the ops
 * that read it in the forward pass, through those that only move its elements; so does which
 * indices an integer input may hold.
 */
#include "espalier/exec.h"
#include "exec/kernels.h"
#include "exec/values.h"

#include <math.h>
#include <string.h>

enum { MOST_USES = 1000 }; /* that are looked at; graphs that branch on and on end, too */

/* ---- uses ---------------------------------------------------------------------------------- */

/* One operand of one op. */
typedef struct use {
    const esp_graph_t *graph;
    esp_op_id_t op;
    int32_t input;
} use_t;

static const esp_tensor_id_t *inputs_of(const use_t *use)
{
    return use->graph->input_tensor + use->graph->input_offset[use->op];
}

static bool moves_elements(esp_op_kind_t kind)
{
    return kind == ESP_KIND_RESHAPE || kind == ESP_KIND_TRANSPOSE || kind == ESP_KIND_SLICE ||
           kind == ESP_KIND_CONCAT || kind == ESP_KIND_EXPAND || kind == ESP_KIND_CAST ||
           kind == ESP_KIND_PAD;
}

/*
 * Calls `visit` for each use of the elements of a tensor by an op of a phase up to `last` that does
 * more than move them. `left`: of MOST_USES.
 */
static void visit_uses(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_phase_t last,
                       int32_t *left, void (*visit)(void *context, const use_t *use), void *context)
{
    for (int32_t i = graph->consumer_offset[tensor]; i < graph->consumer_offset[tensor + 1]; i++) {
        const use_t first = {graph, graph->consumer_op[i], 0};
        const bool again = i > graph->consumer_offset[tensor] &&
                           graph->consumer_op[i - 1] == graph->consumer_op[i];
        if (again || graph->op_phase[first.op] > last || --*left < 0)
            continue;
        const esp_op_kind_t kind = (esp_op_kind_t)graph->op_kind[first.op];
        const int32_t n = graph->input_offset[first.op + 1] - graph->input_offset[first.op];
        if (moves_elements(kind)) {
            visit_uses(graph, graph->output_tensor[graph->output_offset[first.op]], last, left,
                       visit, context);
            continue;
        }
        for (int32_t j = 0; j < n; j++)
            if (inputs_of(&first)[j] == tensor)
                visit(context, &(use_t){graph, first.op, j});
    }
}

/* ---- weights ------------------------------------------------------------------------------- */

/* What a weight is for; where it is used in several ways, the last of these holds. */
typedef enum purpose { NOTHING, SHIFT, FACTOR, TABLE, SCALE } purpose_t;

typedef struct weight {
    purpose_t purpose;
    int64_t fan_in; /* FACTOR: the largest */
} weight_t;

static bool is_vector(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    int32_t axes = 0;
    for (int32_t a = 0; a < graph->tensor_rank[tensor]; a++)
        axes += graph->tensor_dims[tensor][a] != 1;
    return axes <= 1;
}

static bool in_labels(const int8_t *labels, int8_t label)
{
    for (int32_t a = 0; a < ESP_MAX_RANK && labels[a] != 0; a++)
        if (labels[a] == label)
            return true;
    return false;
}

/* The product of the extents that a contraction sums over, of those that the operand has. */
static int64_t contract_fan_in(const use_t *use)
{
    const esp_attr_t *attr = &use->graph->op_attr[use->op];
    const int8_t *own = use->input == 0 ? attr->contract.a : attr->contract.b;
    const esp_tensor_id_t tensor = inputs_of(use)[use->input];
    int64_t product = 1;
    for (int32_t a = 0; a < use->graph->tensor_rank[tensor]; a++)
        if (!in_labels(attr->contract.y, own[a]))
            product *= use->graph->tensor_dims[tensor][a];
    return product;
}

/* What input `use->input` is to its op; the fan-in where it is a factor of products that are
 * summed. */
static weight_t weight_of(const use_t *use)
{
    const esp_graph_t *graph = use->graph;
    const esp_tensor_id_t tensor = inputs_of(use)[use->input];
    const int64_t *dims = graph->tensor_dims[tensor], n = graph->tensor_elements[tensor];
    const int32_t rank = graph->tensor_rank[tensor];
    const int64_t rows = rank > 0 && n > 0 ? n / dims[0] : 1; /* elements for each along axis 0 */
    switch ((int)graph->op_kind[use->op]) {
    case ESP_KIND_CONTRACT:
        return (weight_t){FACTOR, contract_fan_in(use)};
    case ESP_KIND_CONV:
        return (weight_t){FACTOR, rows};
    case ESP_KIND_CONV_DX: /* w[k, c/g, ..] makes the sum over k */
        return (weight_t){FACTOR, rows / esp_i_max_i64(rank > 1 ? dims[1] : 1, 1) *
                                      (rank > 0 ? dims[0] : 1) /
                                      esp_i_max_i64(graph->op_attr[use->op].conv.groups, 1)};
    case ESP_KIND_LSTM:
    case ESP_KIND_GRU:
    case ESP_KIND_RNN:
        return use->input == 1 || use->input == 2 ? (weight_t){FACTOR, rows}
                                                  : (weight_t){.purpose = SHIFT};
    case ESP_KIND_GATHER:
        return (weight_t){.purpose = TABLE};
    case ESP_KIND_LAYERNORM:
        return (weight_t){.purpose = use->input == 1 ? SCALE : SHIFT};
    case ESP_KIND_BN_NORM:
        return (weight_t){.purpose = use->input == 3 ? SCALE : SHIFT};
    default:
        break;
    }
    const bool elementwise = graph->op_kind[use->op] == ESP_KIND_ELTWISE;
    const esp_eltwise_t code = graph->op_attr[use->op].eltwise.code;
    if (!is_vector(graph, tensor))
        return elementwise ? (weight_t){.purpose = TABLE} : (weight_t){FACTOR, rows};
    if (elementwise && (code == ESP_ELT_MUL || code == ESP_ELT_DIV))
        return (weight_t){.purpose = SCALE};
    return (weight_t){.purpose = SHIFT};
}

static void see_weight(void *context, const use_t *use)
{
    weight_t *weight = context;
    const weight_t seen = weight_of(use);
    weight->purpose = seen.purpose > weight->purpose ? seen.purpose : weight->purpose;
    weight->fan_in = esp_i_max_i64(weight->fan_in, seen.fan_in);
}

/* Weights are uniform in middle +- width. */
static void weight_range(const esp_graph_t *graph, esp_tensor_id_t tensor, double *middle_out,
                         double *width_out)
{
    weight_t weight = {NOTHING, 1};
    int32_t left = MOST_USES;
    visit_uses(graph, tensor, ESP_PHASE_FORWARD, &left, see_weight, &weight);
    *middle_out = *width_out = 0;
    switch (weight.purpose) {
    case NOTHING:
    case SHIFT:
        return;
    case FACTOR: /* variance 1 / fan-in */
        *width_out = sqrt(3.0 / (double)weight.fan_in);
        return;
    case TABLE: /* standard deviation 0.02 */
        *width_out = 0.02 * sqrt(3.0);
        return;
    case SCALE:
        *middle_out = 1;
        return;
    }
}

/* ---- statistics ---------------------------------------------------------------------------- */

/* A running variance moves towards output 2 of BN_NORM. */
static void see_statistic(void *context, const use_t *use)
{
    const esp_graph_t *graph = use->graph;
    if (graph->op_kind[use->op] != ESP_KIND_UPDATE || use->input != 0)
        return;
    const esp_tensor_id_t value = inputs_of(use)[1];
    const esp_op_id_t from = graph->tensor_producer[value];
    if (from != ESP_NONE && graph->op_kind[from] == ESP_KIND_BN_NORM &&
        graph->output_tensor[graph->output_offset[from] + 2] == value)
        *(double *)context = 1;
}

/* ---- inputs -------------------------------------------------------------------------------- */

/* Integers are drawn from [0, bound). */
static void see_bound(void *context, const use_t *use)
{
    int64_t *bound = context;
    const esp_graph_t *graph = use->graph;
    const esp_attr_t *attr = &graph->op_attr[use->op];
    const esp_tensor_id_t x = inputs_of(use)[0];
    if (use->input != 1)
        return;
    switch ((int)graph->op_kind[use->op]) {
    case ESP_KIND_GATHER:
        *bound = esp_i_min_i64(*bound, graph->tensor_dims[x][attr->axis.axis]);
        return;
    case ESP_KIND_SCATTER_ADD:
        *bound = esp_i_min_i64(*bound, attr->axis.extent);
        return;
    case ESP_KIND_XENT:
    case ESP_KIND_XENT_GRAD:
        *bound = esp_i_min_i64(*bound, graph->tensor_dims[x][graph->tensor_rank[x] - 1]);
        return;
    default:
        return;
    }
}

int64_t esp_i_index_bound(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    int64_t bound = INT64_MAX;
    int32_t left = MOST_USES;
    visit_uses(graph, tensor, ESP_PHASE_UPDATE, &left, see_bound, &bound);
    return bound;
}

/* What nobody indexes with, or compares with classes: 0 or 1. */
static int64_t sane_bound(int64_t bound)
{
    return bound == INT64_MAX ? 2 : esp_i_max_i64(bound, 1);
}

/* ---- values -------------------------------------------------------------------------------- */

typedef struct source {
    uint64_t seed, step, stream;
    esp_dtype_t dtype; /* as stored */
    int64_t n;
    double middle, width; /* middle + width * [-1, 1) in steps of 2^-23: exact as float32 */
    int64_t bound;        /* > 0: integers below it instead */
} source_t;

static void fill(const source_t *source, char *out)
{
    enum { TILE = 1024 };
    uint32_t bits[TILE] = {0};
    double value[TILE];
    const bool drawn = source->width != 0 || source->bound > 0;
    const int64_t size = esp_dtype_bytes(source->dtype);
    for (int64_t at = 0; at < source->n; at += TILE) {
        const int64_t m = esp_i_min_i64(source->n - at, TILE);
        if (drawn)
            esp_i_draw(source->seed, source->step, source->stream, at, m, bits);
        for (int64_t i = 0; i < m; i++)
            value[i] = source->middle +
                       source->width * ((double)((int32_t)(bits[i] >> 8) - (1 << 23)) * 0x1p-23);
        for (int64_t i = 0; i < m && source->bound > 0; i++)
            value[i] = floor((double)source->bound * (double)bits[i] * 0x1p-32);
        esp_i_values_store(source->dtype, m, value, out + at * size);
    }
}

static void literal(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_dtype_t stored, void *out)
{
    const esp_dtype_t dtype = (esp_dtype_t)graph->tensor_dtype[tensor];
    const int64_t n = graph->tensor_elements[tensor];
    if (stored == dtype)
        memcpy(out, graph->tensor_data[tensor], (size_t)(n * esp_dtype_bytes(dtype)));
    else
        esp_i_values_load(dtype, n, graph->tensor_data[tensor], out);
}

/* FNV-1a: the stream that a tensor draws from. */
static uint64_t stream_of(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

void esp_exec_initial(const esp_graph_t *graph, esp_tensor_id_t tensor, uint64_t seed,
                      uint64_t step, int32_t wide, void *values_out)
{
    const esp_dtype_t dtype = (esp_dtype_t)graph->tensor_dtype[tensor];
    const esp_role_t role = (esp_role_t)graph->tensor_role[tensor];
    source_t source = {.seed = seed,
                       .step = role == ESP_ROLE_INPUT ? step : 0,
                       .stream = stream_of(graph->tensor_name[tensor]),
                       .dtype = esp_i_stored_dtype(dtype, wide != 0),
                       .n = graph->tensor_elements[tensor]};
    int32_t left = MOST_USES;
    if (graph->tensor_data[tensor] != NULL) {
        literal(graph, tensor, source.dtype, values_out);
        return;
    }
    if (role == ESP_ROLE_INPUT && esp_dtype_is_float(dtype))
        source.width = 1;
    else if (role == ESP_ROLE_INPUT)
        source.bound = dtype == ESP_DTYPE_BOOL ? 2 : sane_bound(esp_i_index_bound(graph, tensor));
    else if (role == ESP_ROLE_STATISTIC)
        visit_uses(graph, tensor, ESP_PHASE_UPDATE, &left, see_statistic, &source.middle);
    else if (role != ESP_ROLE_STATE && esp_dtype_is_float(dtype))
        weight_range(graph, tensor, &source.middle, &source.width);
    fill(&source, values_out);
}
