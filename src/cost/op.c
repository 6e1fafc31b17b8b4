/*
 * Op times: measured ones where a table has them, else the roofline of docs/cost.md.
 *
 * Everything that does not depend on the share is worked out once per op (flops, bytes that scale
 * with the batch, bytes that do not) and once per (device type, family) (ns per flop, ns per byte,
 * constant), so that the price of a task is a handful of multiplications.
 */
#include "cost/model.h"

#include <math.h>
#include <string.h>

/* Launches that follow each other still leave the device idle while the first blocks of work spread
 * over it and the last ones drain. It also makes small ops inefficient: an op is at half its
 * asymptotic speed where its work takes as long as this plus the launch. */
#define GPU_RAMP_NS 2500
#define CPU_RAMP_NS 500

/* A convolution with fewer channels per group than this cannot feed the multiply units. */
#define GROUP_CHANNELS_MIN 16

/* Winograd's transformation does the arithmetic of a 3x3 convolution with about half the
 * multiplications where GPUs compute in FP32; tensor units and CPU libraries compute it directly.
 */
#define WINOGRAD_FACTOR       0.5
#define WINOGRAD_CHANNELS_MIN 64

/* A convolution converts its operands to other layouts; strided ones also pick what they need. */
#define CONV_WORKSPACE_MAX_BYTES ((double)(64 << 20))
#define CONV_WORKSPACE_FACTOR    1.25 /* of operands that are split */
#define CONV_WORKSPACE_ROUNDING  4096

/* Share of the peak that kernels of a family reach on large operands. */
typedef struct efficiency {
    double fp32;   /* of FP32 peak */
    double tensor; /* of TF32, FP16, BF16 peak where the type states one */
    double memory; /* of memory bandwidth */
} efficiency_t;

static const efficiency_t gpu_efficiency[ESP_FAMILY_COUNT] = {
    [ESP_FAMILY_CONTRACT] = {0.85, 0.60, 0.75},  [ESP_FAMILY_CONV] = {0.65, 0.40, 0.70},
    [ESP_FAMILY_MEMORY] = {0.50, 0.50, 0.75},    [ESP_FAMILY_GATHER] = {0.25, 0.25, 0.40},
    [ESP_FAMILY_RECURRENT] = {0.35, 0.20, 0.60}, [ESP_FAMILY_FREE] = {1.0, 1.0, 1.0},
};

static const efficiency_t cpu_efficiency[ESP_FAMILY_COUNT] = {
    [ESP_FAMILY_CONTRACT] = {0.85, 0.70, 0.70},  [ESP_FAMILY_CONV] = {0.70, 0.50, 0.60},
    [ESP_FAMILY_MEMORY] = {0.25, 0.25, 0.60},    [ESP_FAMILY_GATHER] = {0.10, 0.10, 0.30},
    [ESP_FAMILY_RECURRENT] = {0.50, 0.40, 0.60}, [ESP_FAMILY_FREE] = {1.0, 1.0, 1.0},
};

static bool is_half(esp_precision_t precision)
{
    return precision == ESP_PRECISION_FP16 || precision == ESP_PRECISION_BF16;
}

/* ---- tensors ----------------------------------------------------------------------------- */

static double stored_bytes(const esp_graph_t *graph, esp_tensor_id_t t, esp_precision_t precision)
{
    double whole = (double)graph->tensor_bytes[t];
    if (!is_half(precision) || graph->tensor_dtype[t] != ESP_DTYPE_F32)
        return whole;
    switch ((esp_role_t)graph->tensor_role[t]) {
    case ESP_ROLE_PARAMETER:
    case ESP_ROLE_STATE:
    case ESP_ROLE_STATISTIC:
    case ESP_ROLE_GRADIENT:
    case ESP_ROLE_LOSS:
        return whole;
    case ESP_ROLE_INPUT:
    case ESP_ROLE_FROZEN:
    case ESP_ROLE_CONSTANT:
    case ESP_ROLE_ACTIVATION:
    case ESP_ROLE_COUNT:
        break;
    }
    return whole / 2;
}

static void price_tensors(esp_i_model_t *cost, double *stored, double *working)
{
    const esp_graph_t *graph = cost->pub.graph;
    for (esp_tensor_id_t t = 0; t < graph->n_tensors; ++t) {
        stored[t] = stored_bytes(graph, t, cost->pub.precision);
        bool copied = is_half(cost->pub.precision) && graph->tensor_dtype[t] == ESP_DTYPE_F32 &&
                      graph->tensor_role[t] == ESP_ROLE_PARAMETER;
        working[t] = copied ? stored[t] / 2 : 0;
    }
}

/* ---- ops --------------------------------------------------------------------------------- */

/* Where an op's operands are: inputs first, then outputs, as bindings count them. */
typedef struct operands {
    const esp_tensor_id_t *in, *out;
    int32_t n_in, n_out;
} operands_t;

static operands_t operands_of(const esp_graph_t *graph, esp_op_id_t op)
{
    operands_t o = {
        .in = graph->input_tensor + graph->input_offset[op],
        .out = graph->output_tensor + graph->output_offset[op],
        .n_in = graph->input_offset[op + 1] - graph->input_offset[op],
        .n_out = graph->output_offset[op + 1] - graph->output_offset[op],
    };
    return o;
}

static bool read_before(const operands_t *o, int32_t input)
{
    int32_t from = input > 8 ? input - 8 : 0; /* wide ops (concat) do not repeat themselves */
    for (int32_t i = from; i < input; ++i)
        if (o->in[i] == o->in[input])
            return true;
    return false;
}

/* Bytes that the kernel moves for one operand. */
static double moved_bytes(const esp_i_model_t *cost, esp_op_id_t op, const operands_t *o,
                          int32_t operand)
{
    const esp_graph_t *graph = cost->pub.graph;
    bool is_input = operand < o->n_in;
    esp_tensor_id_t t = is_input ? o->in[operand] : o->out[operand - o->n_in];
    double bytes = cost->pub.tensor_bytes[t];
    esp_op_kind_t kind = (esp_op_kind_t)graph->op_kind[op];
    if (is_input && (kind == ESP_KIND_GATHER || kind == ESP_KIND_SLICE) && operand == 0)
        return fmin(bytes, cost->pub.tensor_bytes[o->out[0]]); /* only the rows it touches */
    if (is_input && kind != ESP_KIND_UPDATE && graph->tensor_role[t] == ESP_ROLE_PARAMETER &&
        is_half(cost->pub.precision) && graph->tensor_dtype[t] == ESP_DTYPE_F32)
        return bytes / 2; /* reads the working copy */
    return bytes;
}

/* Whether the bytes of an operand shrink with the share. */
static bool scales(const esp_graph_t *graph, esp_op_id_t op, const operands_t *o, int32_t operand)
{
    esp_factor_t factor = graph->op_batch[op];
    if (factor.dim == ESP_NONE)
        return false;
    if (graph->op_kind[op] == ESP_KIND_GATHER && operand == 0)
        operand = o->n_in; /* rows touched in the table: as many as are written */
    esp_view_t view;
    return esp_graph_bind(graph, op, factor, operand, &view) == ESP_BIND_CARRY;
}

static void price_bytes(const esp_i_model_t *cost, esp_op_id_t op, double *split_out,
                        double *whole_out)
{
    const esp_graph_t *graph = cost->pub.graph;
    operands_t o = operands_of(graph, op);
    double split = 0, whole = 0;
    for (int32_t k = 0; k < o.n_in + o.n_out; ++k) {
        if (k < o.n_in && (o.in[k] == ESP_NONE || read_before(&o, k)))
            continue;
        double bytes = moved_bytes(cost, op, &o, k);
        if (scales(graph, op, &o, k))
            split += bytes;
        else
            whole += bytes;
    }
    if (graph->op_kind[op] == ESP_KIND_SCATTER_ADD) { /* rows are read, added to and written */
        double rows = cost->pub.tensor_bytes[o.in[0]];
        if (scales(graph, op, &o, 0))
            split += rows;
        else
            whole += rows;
    }
    *split_out = split;
    *whole_out = whole;
}

static bool is_conv(esp_op_kind_t kind)
{
    return kind == ESP_KIND_CONV || kind == ESP_KIND_CONV_DX || kind == ESP_KIND_CONV_DW;
}

/* Depthwise and narrow grouped convolutions run as if they were element-wise. */
static esp_family_t priced_family(const esp_graph_t *graph, esp_op_id_t op)
{
    esp_op_kind_t kind = (esp_op_kind_t)graph->op_kind[op];
    if (is_conv(kind) && graph->op_attr[op].conv.groups > 1) {
        operands_t o = operands_of(graph, op);
        esp_tensor_id_t weight = kind == ESP_KIND_CONV_DW ? o.out[0] : o.in[1];
        if (graph->tensor_dims[weight][1] < GROUP_CHANNELS_MIN)
            return ESP_FAMILY_MEMORY;
    }
    return (esp_family_t)graph->op_family[op];
}

/* Dense 3x3 with stride 1 and enough channels to make up for transforming them. */
static bool suits_winograd(const esp_graph_t *graph, esp_op_id_t op)
{
    esp_op_kind_t kind = (esp_op_kind_t)graph->op_kind[op];
    if (!is_conv(kind))
        return false;
    operands_t o = operands_of(graph, op);
    const esp_window_t *window = &graph->op_attr[op].conv.window;
    esp_tensor_id_t weight = kind == ESP_KIND_CONV_DW ? o.out[0] : o.in[1];
    bool fits = window->rank == 2 && graph->op_attr[op].conv.groups == 1 &&
                graph->tensor_dims[weight][0] >= WINOGRAD_CHANNELS_MIN &&
                graph->tensor_dims[weight][1] >= WINOGRAD_CHANNELS_MIN;
    for (int32_t i = 0; i < window->rank && fits; ++i)
        fits = window->kernel[i] == 3 && window->stride[i] == 1 && window->dilation[i] == 1;
    return fits;
}

static void price_workspace(double split, double whole, double *workspace, double *workspace_whole)
{
    *workspace = fmin(CONV_WORKSPACE_MAX_BYTES, CONV_WORKSPACE_FACTOR * split);
    *workspace_whole = fmin(CONV_WORKSPACE_MAX_BYTES, whole + CONV_WORKSPACE_ROUNDING);
}

static void price_ops(esp_i_model_t *cost, double *flops, double *split, double *whole,
                      double *workspace, double *workspace_whole)
{
    const esp_graph_t *graph = cost->pub.graph;
    for (esp_op_id_t op = 0; op < graph->n_ops; ++op) {
        cost->family[op] = (uint8_t)priced_family(graph, op);
        cost->winograd[op] = suits_winograd(graph, op);
        if (cost->family[op] == ESP_FAMILY_FREE)
            continue; /* no task: all zero */
        flops[op] = graph->op_flops[op];
        price_bytes(cost, op, &split[op], &whole[op]);
        if (is_conv((esp_op_kind_t)graph->op_kind[op]))
            price_workspace(split[op], whole[op], &workspace[op], &workspace_whole[op]);
    }
}

/* ---- device types ------------------------------------------------------------------------ */

/* Whether a family computes in tensor units of the type. */
static bool uses_tensor_units(const esp_cost_t *cost, int32_t type, esp_family_t family)
{
    bool dense = family == ESP_FAMILY_CONTRACT || family == ESP_FAMILY_CONV ||
                 family == ESP_FAMILY_RECURRENT;
    return dense && cost->precision != ESP_PRECISION_FP32 &&
           cost->cluster->types[type].peak_flops[cost->precision] > 0;
}

static void price_types(const esp_i_model_t *cost, double *per_flop, double *per_byte,
                        double *constant)
{
    const esp_cost_t *pub = &cost->pub;
    for (int32_t type = 0; type < pub->cluster->n_types; ++type) {
        const esp_device_type_t *t = &pub->cluster->types[type];
        bool gpu = strcmp(t->kind, "gpu") == 0;
        for (int32_t f = 0; f < ESP_FAMILY_COUNT; ++f) {
            const efficiency_t *e = gpu ? &gpu_efficiency[f] : &cpu_efficiency[f];
            double peak = uses_tensor_units(pub, type, (esp_family_t)f)
                              ? t->peak_flops[pub->precision] * e->tensor
                              : t->peak_flops[ESP_PRECISION_FP32] * e->fp32;
            int32_t at = type * ESP_FAMILY_COUNT + f;
            per_flop[at] = 1e9 / peak;
            per_byte[at] = 1e9 / (t->memory_bytes_per_s * e->memory);
            constant[at] = (double)(t->launch_ns + (gpu ? GPU_RAMP_NS : CPU_RAMP_NS));
        }
        bool direct = !gpu || uses_tensor_units(pub, type, ESP_FAMILY_CONV);
        cost->type_winograd[type] = direct ? 1.0 : WINOGRAD_FACTOR;
    }
}

/* ---- life cycle -------------------------------------------------------------------------- */

static bool build(esp_i_model_t *cost)
{
    esp_i_arena_t *arena = &cost->arena;
    int64_t ops = cost->pub.graph->n_ops, tensors = cost->pub.graph->n_tensors;
    int64_t types = (int64_t)cost->pub.cluster->n_types * ESP_FAMILY_COUNT;
    double *per_op = esp_i_arena_alloc(arena, 5 * ops + 1, sizeof *per_op);
    double *per_tensor = esp_i_arena_alloc(arena, 2 * tensors + 1, sizeof *per_tensor);
    double *per_type = esp_i_arena_alloc(arena, 3 * types + 1, sizeof *per_type);
    cost->family = esp_i_arena_alloc(arena, ops + 1, sizeof *cost->family);
    cost->winograd = esp_i_arena_alloc(arena, ops + 1, sizeof *cost->winograd);
    cost->type_winograd = esp_i_arena_alloc(arena, types + 1, sizeof *cost->type_winograd);
    if (!per_op || !per_tensor || !per_type || !cost->family || !cost->winograd ||
        !cost->type_winograd)
        return false;
    price_tensors(cost, per_tensor, per_tensor + tensors);
    cost->pub.tensor_bytes = per_tensor;
    cost->pub.tensor_working_bytes = per_tensor + tensors;
    price_ops(cost, per_op, per_op + ops, per_op + 2 * ops, per_op + 3 * ops, per_op + 4 * ops);
    cost->pub.op_flops = per_op;
    cost->pub.op_split_bytes = per_op + ops;
    cost->pub.op_whole_bytes = per_op + 2 * ops;
    cost->pub.op_workspace_bytes = per_op + 3 * ops;
    cost->pub.op_workspace_whole_bytes = per_op + 4 * ops;
    price_types(cost, per_type, per_type + types, per_type + 2 * types);
    cost->pub.ns_per_flop = per_type;
    cost->pub.ns_per_byte = per_type + types;
    cost->pub.constant_ns = per_type + 2 * types;
    return true;
}

esp_status_t esp_cost_create(const esp_graph_t *graph, const esp_cluster_t *cluster,
                             esp_precision_t precision, const esp_allocator_t *alloc,
                             esp_cost_t **cost_out, esp_diag_t *diag)
{
    return esp_cost_create_measured(graph, cluster, precision, NULL, alloc, cost_out, diag);
}

esp_status_t esp_cost_create_measured(const esp_graph_t *graph, const esp_cluster_t *cluster,
                                      esp_precision_t precision, const esp_costs_t *costs,
                                      const esp_allocator_t *alloc, esp_cost_t **cost_out,
                                      esp_diag_t *diag)
{
    if (!graph || !cluster || (uint32_t)precision >= ESP_PRECISION_COUNT)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "cost model: no graph, cluster or precision");
    if (costs && costs->precision != precision)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "measured costs of %s do not tell those of %s",
                          esp_precision_name(costs->precision), esp_precision_name(precision));
    esp_allocator_t from = esp_i_allocator(alloc);
    esp_i_model_t *cost = esp_i_alloc_array(&from, 1, sizeof *cost);
    if (!cost)
        return esp_i_nomem(diag);
    esp_i_arena_init(&cost->arena, &from);
    cost->pub.graph = graph;
    cost->pub.cluster = cluster;
    cost->pub.precision = precision;
    if (!build(cost) || (costs && !esp_i_model_measure(cost, costs))) {
        esp_cost_destroy(&cost->pub);
        return esp_i_nomem(diag);
    }
    *cost_out = &cost->pub;
    return ESP_OK;
}

void esp_cost_destroy(esp_cost_t *handle)
{
    if (!handle)
        return;
    esp_i_model_t *cost = (esp_i_model_t *)(void *)handle;
    esp_allocator_t alloc = cost->arena.alloc;
    esp_i_arena_fini(&cost->arena);
    esp_i_free(&alloc, cost);
}

/* ---- prices ------------------------------------------------------------------------------ */

/* At least one, rounded up. ceil and fmax are calls; these are not. */
static int64_t whole_ns(double ns)
{
    int64_t whole = ns <= 1 ? 1 : (int64_t)ns;
    return whole + ((double)whole < ns);
}

int64_t esp_cost_op_ns(const esp_cost_t *handle, esp_op_id_t op, int32_t type, double part,
                       int whole_split)
{
    const esp_i_model_t *cost = (const esp_i_model_t *)(const void *)handle;
    if (cost->family[op] == ESP_FAMILY_FREE)
        return 0;
    const esp_i_measured_op_t *measured = esp_i_model_measured(cost, op, type);
    if (measured)
        return whole_ns(esp_cost_curve_ns(&measured->curve, cost->type_launch_ns[type],
                                          part * cost->op_units[op]));
    int32_t at = type * ESP_FAMILY_COUNT + cost->family[op];
    double bytes =
        handle->op_split_bytes[op] * part + handle->op_whole_bytes[op] * (whole_split ? part : 1.0);
    double arithmetic_ns = handle->op_flops[op] * part * handle->ns_per_flop[at];
    if (cost->winograd[op])
        arithmetic_ns *= cost->type_winograd[type];
    double memory_ns = bytes * handle->ns_per_byte[at];
    return whole_ns(handle->constant_ns[at] +
                    (arithmetic_ns > memory_ns ? arithmetic_ns : memory_ns));
}

double esp_cost_divisible_ns(const esp_cost_t *handle, esp_op_id_t op, int32_t type)
{
    const esp_i_model_t *cost = (const esp_i_model_t *)(const void *)handle;
    if (cost->family[op] == ESP_FAMILY_FREE)
        return 0;
    const esp_i_measured_op_t *measured = esp_i_model_measured(cost, op, type);
    if (measured)
        return measured->divisible_ns;
    int32_t at = type * ESP_FAMILY_COUNT + cost->family[op];
    double bytes = handle->op_split_bytes[op] + handle->op_whole_bytes[op];
    double arithmetic_ns = handle->op_flops[op] * handle->ns_per_flop[at];
    if (cost->winograd[op])
        arithmetic_ns *= cost->type_winograd[type];
    return fmax(arithmetic_ns, bytes * handle->ns_per_byte[at]);
}

int64_t esp_cost_copy_ns(const esp_cost_t *handle, int32_t type, double bytes)
{
    const esp_i_model_t *cost = (const esp_i_model_t *)(const void *)handle;
    int32_t at = type * ESP_FAMILY_COUNT + ESP_FAMILY_MEMORY;
    double constant = handle->constant_ns[at], per_byte = handle->ns_per_byte[at];
    if (cost->measured && cost->type_launch_ns[type] >= 0)
        constant = cost->type_launch_ns[type];
    if (cost->measured && cost->type_copy_ns_per_byte[type] >= 0)
        per_byte = cost->type_copy_ns_per_byte[type];
    return whole_ns(constant + bytes * per_byte);
}
