/*
 * espalier/graph.h: computation graphs, op kinds, factors and the training graph.
 *
 * A graph is built (esp_builder_t), then frozen (esp_graph_t). A frozen graph is immutable and
 * transparent: struct-of-arrays over dense ids, CSR both ways. Op ids are a topological order.
 * Passes make new graphs. All memory of a frozen graph lives in one arena; pointers are valid until
 * esp_graph_destroy.
 *
 * A model of one product, built by hand (statuses are left out):
 *
 *     esp_builder_t *builder;
 *     esp_graph_t *graph;
 *     esp_tensor_id_t x[2], y;
 *     esp_attr_t attr = {.contract = {.a = "nk", .b = "km", .y = "nm"}};
 *     esp_builder_create("dense", NULL, &builder);
 *     esp_builder_tensor(builder, "x", ESP_ROLE_INPUT, ESP_DTYPE_F32, 2, (int64_t[]){32, 8}, NULL,
 *                        &x[0], &diag);
 *     esp_builder_tensor(builder, "w", ESP_ROLE_PARAMETER, ESP_DTYPE_F32, 2, (int64_t[]){8, 4},
 *                        NULL, &x[1], &diag);
 *     esp_builder_batch(builder, x[0], (esp_view_t){1, 32, 8}, &diag);
 *     esp_builder_op(builder, ESP_KIND_CONTRACT, &attr, 2, x, "dense", &y, &diag);
 *     esp_builder_output(builder, y);
 *     esp_builder_freeze(builder, &graph, &diag);
 *
 * Threads: a frozen graph may be read by any number of threads; a builder belongs to one at a time.
 *
 * Errors: every function with a status writes its outputs on success only, and fills `diag` (which
 * may be NULL) on failure. ESP_ERR_NOMEM may come from each of them and is not repeated below.
 */
#ifndef ESPALIER_GRAPH_H
#define ESPALIER_GRAPH_H

#include "espalier/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ESP_MAX_RANK     8                  /* axes of a tensor; ONNX files with more are refused */
#define ESP_MAX_LABELS   12                 /* labels of one contraction */
#define ESP_MAX_SPATIAL  3                  /* spatial dimensions of convolution and pooling */
#define ESP_MAX_ELEMENTS ((int64_t)1 << 46) /* of one tensor */

/* Ids are dense, start at 0 and belong to one graph. */
typedef int32_t esp_tensor_id_t;
typedef int32_t esp_op_id_t;
#define ESP_NONE (-1) /* no op, tensor, dimension: in id fields only */

/* ---- vocabulary ------------------------------------------------------------------------------ */

/* Element types, with their names in text forms. X(NAME, "name", bytes per element) */
#define ESP_DTYPE_MAP(X)                                                                           \
    X(F32, "float32", 4)                                                                           \
    X(F64, "float64", 8)                                                                           \
    X(F16, "float16", 2)                                                                           \
    X(BF16, "bfloat16", 2)                                                                         \
    X(I8, "int8", 1)                                                                               \
    X(U8, "uint8", 1)                                                                              \
    X(I16, "int16", 2)                                                                             \
    X(I32, "int32", 4)                                                                             \
    X(I64, "int64", 8)                                                                             \
    X(BOOL, "bool", 1)
typedef enum esp_dtype {
#define ESP_DTYPE_ENUM(name, text, size) ESP_DTYPE_##name,
    ESP_DTYPE_MAP(ESP_DTYPE_ENUM)
#undef ESP_DTYPE_ENUM
        ESP_DTYPE_COUNT
} esp_dtype_t;
/* Never NULL, static; "unknown" for a value that is no dtype. */
ESP_PUBLIC const char *esp_dtype_name(esp_dtype_t dtype);
/* Bytes of one element; 0 for a value that is no dtype. */
ESP_PUBLIC int64_t esp_dtype_bytes(esp_dtype_t dtype);
/* 1 for the float types, else 0. */
ESP_PUBLIC int esp_dtype_is_float(esp_dtype_t dtype);

/* What a tensor is. GRADIENT: of a parameter, as the update reads it. */
#define ESP_ROLE_MAP(X)                                                                            \
    X(INPUT, "input")           /* of the step: data, labels, masks: present anywhere, free */     \
    X(PARAMETER, "parameter")   /* trainable weight */                                             \
    X(FROZEN, "frozen")         /* float weight that is not trained */                             \
    X(STATE, "state")           /* optimizer state */                                              \
    X(STATISTIC, "statistic")   /* running mean and variance */                                    \
    X(CONSTANT, "constant")     /* literal in the graph */                                         \
    X(ACTIVATION, "activation") /* any value in between, forward or backward */                    \
    X(GRADIENT, "gradient")                                                                        \
    X(LOSS, "loss")
typedef enum esp_role {
#define ESP_ROLE_ENUM(name, text) ESP_ROLE_##name,
    ESP_ROLE_MAP(ESP_ROLE_ENUM)
#undef ESP_ROLE_ENUM
        ESP_ROLE_COUNT
} esp_role_t;
/* Never NULL, static; "unknown" for a value that is no role. */
ESP_PUBLIC const char *esp_role_name(esp_role_t role);

/* The part of a step to which an op belongs. A model graph is all FORWARD, but for the updates of
 * running statistics. */
typedef enum esp_phase { ESP_PHASE_FORWARD, ESP_PHASE_BACKWARD, ESP_PHASE_UPDATE } esp_phase_t;

/* What an op computes: the core kinds, each with its operands in espalier/kinds.def. */
typedef enum esp_op_kind {
#define ESP_KIND(name, text, help) ESP_KIND_##name,
#include "espalier/kinds.def"
#undef ESP_KIND
    ESP_KIND_COUNT
} esp_op_kind_t;
/* Never NULL, static; "unknown" and "" for a value that is no kind. The help states operands. */
ESP_PUBLIC const char *esp_kind_name(esp_op_kind_t kind);
ESP_PUBLIC const char *esp_kind_help(esp_op_kind_t kind);

/* The function of an ELTWISE op, with its arity and meaning in espalier/eltwise.def. */
typedef enum esp_eltwise {
#define ESP_ELT(name, text, arity, flop) ESP_ELT_##name,
#include "espalier/eltwise.def"
#undef ESP_ELT
    ESP_ELT_COUNT
} esp_eltwise_t;

/* What REDUCE makes of the elements along its axes. SUM and SUMSQ can be split along them. */
typedef enum esp_reduce {
    ESP_REDUCE_SUM,
    ESP_REDUCE_MAX,
    ESP_REDUCE_MIN,
    ESP_REDUCE_PROD,
    ESP_REDUCE_SUMSQ
} esp_reduce_t;

/* The rule of an UPDATE op. STATISTIC is no optimizer: w' = (1 - momentum) * w + momentum * g. */
typedef enum esp_optimizer {
    ESP_OPTIMIZER_SGD,
    ESP_OPTIMIZER_MOMENTUM,
    ESP_OPTIMIZER_ADAM,
    ESP_OPTIMIZER_ADAMW,
    ESP_OPTIMIZER_STATISTIC
} esp_optimizer_t;

/* The law of a RANDOM op; its parameters are in esp_attr_t.shape. */
typedef enum esp_random {
    ESP_RANDOM_UNIFORM,
    ESP_RANDOM_NORMAL,
    ESP_RANDOM_BERNOULLI
} esp_random_t;

/*
 * Sliding window of convolution and pooling, spatial dimensions in order. Pads are the elements
 * that are added before (lo) and after (hi) the dimension.
 */
typedef struct esp_window {
    int32_t rank;
    int64_t kernel[ESP_MAX_SPATIAL], stride[ESP_MAX_SPATIAL], dilation[ESP_MAX_SPATIAL];
    int64_t pad_lo[ESP_MAX_SPATIAL], pad_hi[ESP_MAX_SPATIAL];
} esp_window_t;

/* Attributes; which member is meant follows from the kind. All values are of the *global* op. */
typedef union esp_attr {
    /*
     * CONTRACT: label of each axis, > 0 ('a' will do); 0 ends a list: that is the rank of y. Every
     * label is in two or three of a, b, y, or in one of a, b and then summed; in one list it is
     * once. Extents of equal labels are equal.
     */
    struct {
        int8_t a[ESP_MAX_RANK], b[ESP_MAX_RANK], y[ESP_MAX_RANK];
    } contract;
    /* CONV, CONV_DX, CONV_DW: axes are samples, channels, then the spatial ones. */
    struct {
        esp_window_t window;
        int64_t groups;
        int64_t target[ESP_MAX_SPATIAL]; /* CONV_DX: spatial extents of dx */
    } conv;
    /* POOL, POOL_GRAD: of the same axes. */
    struct {
        esp_window_t window;
        int32_t is_max;                  /* 0: average */
        int32_t count_padding;           /* average: pads count in the number that is divided by */
        int64_t target[ESP_MAX_SPATIAL]; /* POOL_GRAD of average: spatial extents of dx */
    } pool;
    /* ELTWISE: alpha and beta where espalier/eltwise.def mentions them. Inputs broadcast. */
    struct {
        esp_eltwise_t code;
        double alpha, beta;
    } eltwise;
    /* REDUCE */
    struct {
        esp_reduce_t code;
        uint32_t axes; /* bit per axis of x */
        int32_t keep;  /* reduced axes stay with extent 1 */
    } reduce;
    /* RESHAPE, EXPAND, FILL, RANGE, RANDOM: the shape of y, and what fills it. */
    struct {
        int32_t rank;
        int64_t dims[ESP_MAX_RANK];
        esp_dtype_t dtype;  /* FILL, RANGE, RANDOM */
        double value, step; /* FILL: value; RANGE: start and step */
        int32_t axis;       /* RANGE */
        /* RANDOM: uniform [value, value + step), normal (mean, sd), Bernoulli (p) */
        esp_random_t law;
        int64_t stream; /* RANDOM: the Philox stream: the op id in the model graph */
    } shape;
    /* TRANSPOSE: axis i of y is axis perm[i] of x. */
    struct {
        int32_t perm[ESP_MAX_RANK];
    } transpose;
    /* SLICE: along each axis, element i of y is element start + i * step of x, i < count. */
    struct {
        int64_t start[ESP_MAX_RANK], step[ESP_MAX_RANK], count[ESP_MAX_RANK];
    } slice;
    /* PAD: how many elements of `value` come before (lo), after (hi) and between those of x, along
     * each axis. */
    struct {
        int64_t lo[ESP_MAX_RANK], hi[ESP_MAX_RANK], between[ESP_MAX_RANK]; /* >= 0 */
        double value;
    } pad;
    /* CONCAT, GATHER, SCATTER_ADD, SOFTMAX, SOFTMAX_GRAD: the axis along which. */
    struct {
        int32_t axis;
        int32_t log;    /* SOFTMAX, SOFTMAX_GRAD: of the logarithm */
        int64_t extent; /* SCATTER_ADD: of dx along the axis */
    } axis;
    /* CAST: the dtype of y. */
    struct {
        esp_dtype_t dtype;
    } cast;
    /* DROPOUT: the probability that an element is dropped, and the Philox stream of the mask. */
    struct {
        double p;
        int64_t stream;
    } dropout;
    /* LAYERNORM, BN_* and their gradients; epsilon is added to the variance. */
    struct {
        double epsilon;
        int32_t axis;  /* LAYERNORM: first normalised axis */
        int32_t rms;   /* LAYERNORM: no mean, no beta */
        int64_t count; /* BN_*: elements per channel of the whole batch: n * spatial */
    } norm;
    /* XENT, XENT_GRAD */
    struct {
        int64_t ignore; /* label that is left out; INT64_MIN: none */
        double smoothing;
    } xent;
    /* UPDATE: what the rule uses; STATISTIC: momentum is the weight of g. */
    struct {
        esp_optimizer_t optimizer;
        double rate, momentum, beta1, beta2, epsilon, decay;
    } update;
    /*
     * ATTENTION, ATTENTION_GRAD: label of each axis, as in CONTRACT. The last label of the scores s
     * is the key; the query is in q, y and s, the key in k, v and s; all other labels of s are in
     * q, k, v and y. One more label is in q and k (summed), one in v and y. The mask broadcasts to
     * s.
     */
    struct {
        int8_t q[ESP_MAX_RANK], k[ESP_MAX_RANK], v[ESP_MAX_RANK], y[ESP_MAX_RANK], s[ESP_MAX_RANK];
        double scale;   /* of q k */
        double fill;    /* boolean mask: the score where it hides */
        int32_t hidden; /* boolean mask: hides where it is this, 0 or 1 */
        int32_t dmask;  /* ATTENTION_GRAD: there is the output dmask */
        double p;       /* dropout of the weights; 0: none */
        int64_t stream; /* of the dropout; elements count as in s */
    } attention;
    /* LSTM, GRU, RNN and their gradients */
    struct {
        int32_t reverse;             /* from the last element of the sequence to the first */
        int32_t linear_before_reset; /* GRU: the reset gate acts on R h + b, not on h */
        int32_t relu;                /* RNN: relu instead of tanh */
    } recurrent;
} esp_attr_t;

/*
 * A view: the row-major buffer of a tensor seen as [outer][extent][inner]; outer * extent * inner
 * is the number of elements. Device k of a split holds rows [o_k, o_k + w_k) of the middle
 * dimension as a dense [outer][w_k][inner] buffer. extent == 0: no view.
 */
typedef struct esp_view {
    int64_t outer, extent, inner;
} esp_view_t;

/*
 * How one operand of an op relates to one of the op's factors (TAG's batch flag made exact).
 *
 * Inputs:
 * - CARRY: split with the factor;
 * - ABSENT: needed whole;
 * - LOCAL: needs the addend of its own device (in BatchNorm that is synchronised, the whole).
 *
 * Outputs:
 * - CARRY: split with the factor;
 * - SUM: each device computes an addend;
 * - ABSENT: independent of the factor, every device computes it.
 */
typedef enum esp_bind { ESP_BIND_ABSENT, ESP_BIND_CARRY, ESP_BIND_SUM, ESP_BIND_LOCAL } esp_bind_t;
typedef struct esp_binding {
    int64_t outer, inner; /* CARRY: the view is (outer, extent of the factor, inner) */
    int32_t bind;         /* esp_bind_t */
} esp_binding_t;

/*
 * A factor of an op: part (a, b, c) of loop dimension `dim`: its extent is a * b * c and the factor
 * runs over b. A whole dimension has a = c = 1. dim == ESP_NONE: no factor.
 */
typedef struct esp_factor {
    int32_t dim; /* 0-based within the op */
    int64_t a, b, c;
} esp_factor_t;

/* ---- the graph ------------------------------------------------------------------------------- */

/*
 * A frozen graph. Read only. An array by tensor has n_tensors elements, one by op has n_ops. A CSR
 * pair holds the list of element i in [offset[i], offset[i + 1]):
 *
 *     for (int32_t i = graph->input_offset[op]; i < graph->input_offset[op + 1]; i++)
 *         ... graph->input_tensor[i] ...
 */
typedef struct esp_graph {
    const char *name;

    /* tensors */
    int32_t n_tensors;
    const char *const *tensor_name; /* never NULL; unique */
    const uint8_t *tensor_dtype;    /* esp_dtype_t */
    const uint8_t *tensor_role;     /* esp_role_t */
    const int8_t *tensor_rank;
    const int64_t (*tensor_dims)[ESP_MAX_RANK];
    const int64_t *tensor_elements;
    const int64_t *tensor_bytes;
    const esp_op_id_t *tensor_producer; /* ESP_NONE: input, parameter, state, constant */
    /* through RESHAPE: the tensor whose buffer this is; self otherwise */
    const esp_tensor_id_t *tensor_root;
    /* parameter, state, statistic: its version after the update; ESP_NONE */
    const esp_tensor_id_t *tensor_next;
    const void *const *tensor_data; /* literal value (row-major, of its dtype), or NULL */
    const int32_t *consumer_offset; /* CSR over tensors */
    /* in op order; an op that reads a tensor twice is there twice */
    const esp_op_id_t *consumer_op;

    /* ops, in topological order */
    int32_t n_ops;
    const char *const *op_name;
    const uint8_t *op_kind;       /* esp_op_kind_t */
    const uint8_t *op_phase;      /* esp_phase_t */
    const esp_op_id_t *op_origin; /* model-graph op this one belongs to (a gradient's forward op;
                                     self in a model graph) */
    const esp_attr_t *op_attr;
    const int32_t *input_offset;         /* CSR over ops */
    const esp_tensor_id_t *input_tensor; /* ESP_NONE: an optional input that is absent */
    const int32_t *output_offset;
    const esp_tensor_id_t *output_tensor;

    /* factors: dimensions of op o are [dim_offset[o], dim_offset[o + 1]); the bindings of dimension
     * d of op o start at binding_offset[d]: inputs in order, then outputs */
    const int32_t *dim_offset;
    const int64_t *dim_extent;
    const int64_t *dim_granule;
    const int32_t *binding_offset;
    const esp_binding_t *binding;
    /* linear sets of op o: [linear_offset[o], linear_offset[o + 1]); bit i of a mask is input i;
     * inputs beyond 63 are covered only by the mask with all bits set */
    const int32_t *linear_offset;
    const uint64_t *linear_mask;

    /* cost, for the whole op; for a split over b units of which w are taken, all scale by w / b
     * except the bytes of operands that do not carry the factor */
    const double *op_flops;
    const uint8_t *op_family; /* esp_family_t */

    /* the step */
    int64_t batch;                  /* samples; 0: unknown */
    const esp_view_t *tensor_batch; /* where the batch is; extent 0: nowhere */
    const esp_factor_t *op_batch;   /* the factor that carries the batch; dim ESP_NONE: not split */
    int32_t n_inputs;
    const esp_tensor_id_t *input; /* role INPUT, in file order */
    int32_t n_outputs;
    const esp_tensor_id_t *output;
    esp_tensor_id_t loss; /* ESP_NONE in a model graph */
    int32_t n_parameters; /* trained ones, with what belongs to them */
    const esp_tensor_id_t *parameter;
    const esp_tensor_id_t *gradient; /* ESP_NONE in a model graph */
    const esp_op_id_t *update;
} esp_graph_t;

/*
 * Efficiency families of the roofline: ops whose distance from the peak is alike (docs/cost.md).
 * Ops of the family FREE take no time: they only say something of a buffer.
 */
typedef enum esp_family {
    ESP_FAMILY_CONTRACT,
    ESP_FAMILY_CONV,
    ESP_FAMILY_MEMORY,
    ESP_FAMILY_GATHER,
    ESP_FAMILY_RECURRENT,
    ESP_FAMILY_FREE,
    ESP_FAMILY_COUNT
} esp_family_t;

/* What the registry says of a kind. Flags are 0 or 1. */
typedef struct esp_kind_facts {
    esp_family_t family;
    int32_t min_inputs, max_inputs; /* max INT32_MAX: any number */
    int32_t outputs;                /* at most */
    int32_t has_factors;            /* 0: opaque: runs on one device */
    int32_t is_linear;              /* in some of its inputs */
    int32_t has_gradient;
    int32_t is_view; /* its output is its input's buffer */
    int32_t is_random;
} esp_kind_facts_t;
/* The facts of a kind; `kind` must be one. O(1). */
ESP_PUBLIC esp_kind_facts_t esp_kind_facts(esp_op_kind_t kind);

/* ---- building ------------------------------------------------------------------------------- */

/*
 * A graph under construction: every shape is known as soon as its op is there. Names are copied.
 * After ESP_ERR_NOMEM a builder is good for esp_builder_destroy only; after any other error nothing
 * was added.
 */
typedef struct esp_builder esp_builder_t;

/* An empty builder. `name` (NULL: "") will be that of the graph. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_create(const char *name,
                                                         const esp_allocator_t *alloc,
                                                         esp_builder_t **builder_out);
/* Accepts NULL. Graphs that were frozen from it live on. */
ESP_PUBLIC void esp_builder_destroy(esp_builder_t *builder);

/*
 * Adds a tensor that no op produces. `data` (NULL: none) is copied. Dims are >= 0 (0: empty
 * tensor). A name that is taken gets a suffix. Errors: ESP_ERR_ARGUMENT (a role that only results
 * of ops have), ESP_ERR_INVALID (dtype, a negative extent), ESP_ERR_LIMIT (more than ESP_MAX_RANK
 * axes or ESP_MAX_ELEMENTS elements); the diag names the tensor.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_tensor(
    esp_builder_t *builder, const char *name, esp_role_t role, esp_dtype_t dtype, int32_t rank,
    const int64_t *dims, const void *data, esp_tensor_id_t *tensor_out, esp_diag_t *diag);

/*
 * Appends an op: infers dtypes and shapes of its outputs, writes their ids to outputs_out (as many
 * as the kind has with these attributes; UPDATE: w', MOMENTUM also m', ADAM and ADAMW also m', v').
 * `attr` NULL: all zero; members that the kind does not use are ignored. An optional input that is
 * absent is ESP_NONE. Errors: ESP_ERR_INVALID (number, dtypes or shapes of the inputs, attributes),
 * ESP_ERR_LIMIT (the shape of an output), ESP_ERR_ARGUMENT (no such kind), ESP_ERR_UNSUPPORTED;
 * the diag names the op and what does not fit.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_op(esp_builder_t *builder, esp_op_kind_t kind,
                                                     const esp_attr_t *attr, int32_t n_inputs,
                                                     const esp_tensor_id_t *inputs,
                                                     const char *name, esp_tensor_id_t *outputs_out,
                                                     esp_diag_t *diag);

/* Another name for a tensor, made unique. Errors: ESP_ERR_ARGUMENT (no such tensor). */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_rename(esp_builder_t *builder,
                                                         esp_tensor_id_t tensor, const char *name);
/*
 * Another role for a tensor. A role of something that an op makes (activation, gradient, loss) is
 * for results of ops, the others for tensors without producer; only one scalar is the loss. Errors:
 * ESP_ERR_ARGUMENT (no such tensor, or no role for it).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_role(esp_builder_t *builder,
                                                       esp_tensor_id_t tensor, esp_role_t role);

/* Phase and origin of the ops that follow. A new builder starts at FORWARD and ESP_NONE: each op is
 * its own origin. */
ESP_PUBLIC void esp_builder_phase(esp_builder_t *builder, esp_phase_t phase, esp_op_id_t origin);

/*
 * Where the batch lies in a tensor without producer; freezing finds where it lies in the others.
 * All views given must agree in their extent. Errors: ESP_ERR_ARGUMENT (not such a tensor),
 * ESP_ERR_INVALID (no view of its shape, another extent).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_batch(esp_builder_t *builder,
                                                        esp_tensor_id_t tensor, esp_view_t view,
                                                        esp_diag_t *diag);
/* Appends to the results of the graph. Errors: ESP_ERR_ARGUMENT (no such tensor). */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_output(esp_builder_t *builder,
                                                         esp_tensor_id_t tensor);
/*
 * `after` is the version of parameter, state or statistic `before` once the step is done. Errors:
 * ESP_ERR_ARGUMENT (no such tensor), ESP_ERR_INVALID (another shape or dtype, a second next
 * version, no result of an op).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_next(esp_builder_t *builder,
                                                       esp_tensor_id_t before,
                                                       esp_tensor_id_t after, esp_diag_t *diag);

/*
 * A running statistic (role STATISTIC): appends, in the update phase, the op that makes its next
 * version, (1 - momentum) * running + momentum * value. `value` is output 1 (mean) or 2 (variance)
 * of BN_NORM, the origin of the op. esp_training_graph keeps such ops. Errors: as esp_builder_op
 * and esp_builder_next; the op may have been added.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_statistic(esp_builder_t *builder,
                                                            esp_tensor_id_t running,
                                                            esp_tensor_id_t value, double momentum,
                                                            esp_diag_t *diag);

/* Type and shape of a tensor of the builder. dims_out has ESP_MAX_RANK elements. O(1). */
ESP_PUBLIC void esp_builder_shape(const esp_builder_t *builder, esp_tensor_id_t tensor,
                                  esp_dtype_t *dtype_out, int32_t *rank_out, int64_t *dims_out);

/*
 * Freezes: drops nothing, computes factors, batch propagation, consumers and costs. The builder is
 * left as it was and may go on. The graph is the caller's, for esp_graph_destroy. O(ops +
 * operands).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_builder_freeze(const esp_builder_t *builder,
                                                         esp_graph_t **graph_out, esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_graph_destroy(esp_graph_t *graph);
/*
 * Verifies every invariant stated in this header. Errors: ESP_ERR_INTERNAL, with the first
 * violation in the diag. O(size of the graph).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_graph_check(const esp_graph_t *graph, esp_diag_t *diag);

/* ---- factors --------------------------------------------------------------------------------- */

/*
 * The factor of `op` that views operand `operand` (inputs first, then outputs) as `view`: what the
 * op must be split by to read or make the operand in that split. Returns 1, or 0 if the op offers
 * none. O(dimensions of the op).
 */
ESP_PUBLIC int esp_graph_factor(const esp_graph_t *graph, esp_op_id_t op, int32_t operand,
                                esp_view_t view, esp_factor_t *factor_out);
/* How `operand` relates to `factor`; *view_out is set for ESP_BIND_CARRY. O(1). */
ESP_PUBLIC esp_bind_t esp_graph_bind(const esp_graph_t *graph, esp_op_id_t op, esp_factor_t factor,
                                     int32_t operand, esp_view_t *view_out);
/*
 * The shape of the local buffer of a tensor of shape dims[0..rank) when `share` units of `view` are
 * held: the axis that holds the view shrinks; axes that the view merges become one. Returns the
 * local rank; local_out has ESP_MAX_RANK elements.
 */
ESP_PUBLIC int32_t esp_view_local_dims(int32_t rank, const int64_t *dims, esp_view_t view,
                                       int64_t share, int64_t *local_out);

/* ---- the training graph ---------------------------------------------------------------------- */

/*
 * What is minimised, of the first output of the model. XENT: the mean cross-entropy with integer
 * labels; MSE: the mean square of the difference from labels of its shape; OUTPUT: the output
 * itself, a scalar.
 */
typedef enum esp_loss { ESP_LOSS_AUTO, ESP_LOSS_XENT, ESP_LOSS_MSE, ESP_LOSS_OUTPUT } esp_loss_t;

/*
 * How a model is trained. Start from esp_training_opts_default: struct_size tells later versions
 * apart. Numbers are >= 0; momentum, beta1 and beta2 are < 1, whether the optimizer uses them or
 * not.
 */
typedef struct esp_training_opts {
    size_t struct_size;
    esp_loss_t loss;           /* AUTO: OUTPUT if the first output is a scalar, else XENT */
    int64_t ignore_label;      /* XENT: labels left out of loss and mean; INT64_MIN: none */
    esp_optimizer_t optimizer; /* SGD, MOMENTUM, ADAM, ADAMW */
    double rate;               /* default 0.01 */
    double momentum;           /* of MOMENTUM; default 0.9 */
    double beta1, beta2;       /* of ADAM and ADAMW; default 0.9 and 0.999 */
    double epsilon;            /* of ADAM and ADAMW; default 1e-8 */
    double decay;              /* of the weights; default 0 */
    double clip_norm;          /* > 0: clip gradients to this global norm */
    const char *train_regex;   /* POSIX extended; NULL: all; of parameter names */
    const char *freeze_regex;  /* NULL: none */
    /* Parameters that decay leaves alone (biases and scales of normalisations, usually); NULL:
     * none. */
    const char *no_decay_regex;
} esp_training_opts_t;
/* AUTO, SGD, every parameter, no clipping, no label left out, and the numbers above. */
ESP_PUBLIC esp_training_opts_t esp_training_opts_default(void);

/*
 * Appends loss, backward pass and update to a model graph: one training step, pruned to what the
 * trainable parameters need. XENT and MSE add a "labels" input: for logits [.., v] integer labels
 * [..]; the batch of the labels is that of the logits. Logits of rank 4 or 5 are images: their
 * classes are axis 1. Where the output is a softmax over the classes, XENT takes its operand. A
 * mean loss is a sum and a normaliser. The loss is the one output; the ops of the model keep their
 * ids. opts NULL: the defaults. Errors: ESP_ERR_ARGUMENT (an option out of range, a regular
 * expression, a graph with a loss), ESP_ERR_INVALID (no output that can be trained, no parameter to
 * train), ESP_ERR_UNSUPPORTED (an op without gradient on the way from a parameter to the loss,
 * which the diag names). *graph_out is the caller's; it does not need the model.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_training_graph(const esp_graph_t *model,
                                                         const esp_training_opts_t *opts,
                                                         const esp_allocator_t *alloc,
                                                         esp_graph_t **graph_out, esp_diag_t *diag);

/*
 * The graph that evaluates a model on one batch: the forward pass without dropout and with the
 * running statistics of batch normalisations (where it has none, with those of the batch), then the
 * loss of `opts`. Parameters and statistics keep their names; all are FROZEN.
 *
 * XENT: the loss is the sum over the labels, not their mean, and two states of one float32 each,
 * "eval/correct" and "eval/counted", grow by the number of labels that the largest logit finds (of
 * equal ones the first counts), and of those that are not ignored. Losses and states add up over
 * batches. Other losses are as in training. Errors and ownership as esp_training_graph.
 */
#define ESP_EVAL_CORRECT "eval/correct"
#define ESP_EVAL_COUNTED "eval/counted"
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_evaluation_graph(const esp_graph_t *model,
                                                           const esp_training_opts_t *opts,
                                                           const esp_allocator_t *alloc,
                                                           esp_graph_t **graph_out,
                                                           esp_diag_t *diag);

/*
 * Recognises exported decompositions (LayerNorm, RMSNorm, GELU, SiLU, softmax cross-entropy,
 * attention) as the fused kinds, folds transposes into contractions, drops identities and ops that
 * reach no output. For model graphs, before esp_training_graph. *graph_out is the caller's; it does
 * not need the other.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_graph_canonicalise(const esp_graph_t *graph,
                                                             const esp_allocator_t *alloc,
                                                             esp_graph_t **graph_out,
                                                             esp_diag_t *diag);

/* ---- text ------------------------------------------------------------------------------------ */

/*
 * Text form (docs/graph.md): one line per tensor and op; parses back to the same graph. *text_out
 * is NUL-terminated and the caller's: released with the allocator's release (NULL: free).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_graph_dump(const esp_graph_t *graph,
                                                     const esp_allocator_t *alloc, char **text_out,
                                                     esp_diag_t *diag);
/*
 * Reads a text of `length` bytes (no NUL needed, not kept); `file` is for messages, may be NULL.
 * Errors, with line and column in the diag: ESP_ERR_SYNTAX, ESP_ERR_UNSUPPORTED (another version of
 * the form), and those of the builder. *graph_out is the caller's.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_graph_parse(const char *text, size_t length,
                                                      const char *file,
                                                      const esp_allocator_t *alloc,
                                                      esp_graph_t **graph_out, esp_diag_t *diag);
/* SHA-256 of the dump: 64 lower-case hex digits and a NUL. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_graph_hash(const esp_graph_t *graph, char hex_out[65]);

/*
 * The factor by whose units the time of an op is measured: that of the batch; without it, for an op
 * that treats all elements of its first input alike, the elements. dim ESP_NONE: the op is one
 * unit.
 */
ESP_PUBLIC esp_factor_t esp_op_unit_factor(const esp_graph_t *graph, esp_op_id_t op);
/*
 * What decides how long an op takes, as text: kind, attributes, dtypes and shapes of its operands,
 * each with one unit of the factor above. Ops of the same text take the same time for as many
 * units, whatever the batch and whatever the graph. *text_out: as esp_graph_dump.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_op_signature(const esp_graph_t *graph, esp_op_id_t op,
                                                       const esp_allocator_t *alloc,
                                                       char **text_out);

#ifdef __cplusplus
}
#endif
#endif
