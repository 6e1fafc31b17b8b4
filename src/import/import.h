/*
 * How an ONNX graph becomes a graph of core kinds.
 *
 * Every name of the file is a *value*: known on the host, a literal of the file, or a tensor of the
 * builder. A rule takes the values a node reads and composes core kinds over them (compose.h style
 * calls below: esp_i_emit and friends). Where all operands of a core kind are known and small it is
 * evaluated on the spot (host.c) instead of being appended; that is the whole of constant folding,
 * so a rule is written once for shape arithmetic and for data.
 *
 * Every known value also remembers what it would be at another batch (`baked`), and each tensor
 * where its batch dimension lies (track.c). So it is clear what depends on the batch; and where a
 * fixed batch is replaced, a reshape whose target was frozen at export is rebound by position,
 * never by extent.
 */
#ifndef ESP_IMPORT_IMPORT_H
#define ESP_IMPORT_IMPORT_H

#include "espalier/onnx.h"
#include "import/proto.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* A constant on the host. Exactly one of i (integers, booleans) and f (floats) is set. */
typedef struct esp_i_konst {
    esp_dtype_t dtype;
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    int64_t count;
    int64_t *i;
    double *f;
} esp_i_konst_t;

/* base + sum of step[d] * position on axis d */
typedef struct esp_i_affine {
    int64_t base, step[ESP_MAX_RANK];
} esp_i_affine_t;

/* An integer tensor that is affine in its position, n = 1; or n of them along the last axis. */
typedef struct esp_i_grid {
    int32_t n;
    esp_i_affine_t part[];
} esp_i_grid_t;

/* There are as many of these as names in the file, so they are kept small. */
typedef struct esp_i_value {
    esp_dtype_t dtype;
    esp_role_t role; /* that it gets when it is put into the builder */
    int32_t rank;
    int32_t log_axis;           /* with log_of */
    bool external, initializer; /* of the literal: its data is elsewhere; it has a name */
    uint8_t stretched;          /* bit per axis that an Expand made out of 1 */
    esp_tensor_id_t tensor;     /* in the builder; ESP_NONE until something reads it */
    int64_t dims[ESP_MAX_RANK];
    const char *name;           /* in the file, or derived from it */
    const esp_i_konst_t *known; /* NULL: not known on the host */
    const esp_i_konst_t *baked; /* at the other batch; NULL: cannot be told */
    const uint8_t *literal;     /* TensorProto of the file, up to literal_end; NULL: none */
    const uint8_t *literal_end;
    const esp_i_grid_t *grid;   /* known by formula (grid.c); NULL: not */
    struct esp_i_value *log_of; /* this is log softmax of log_of over axis log_axis; or NULL */
} esp_i_value_t;

/* Where a tensor carries the batch: axis `axis` has extent before * batch * after. */
typedef struct esp_i_track {
    int32_t axis; /* ESP_NONE: nowhere */
    int64_t before, after;
} esp_i_track_t;

/* ---- state of one import --------------------------------------------------------------------- */

typedef struct esp_i_scope esp_i_scope_t;

typedef struct esp_i_import {
    esp_allocator_t alloc;
    esp_i_arena_t arena; /* everything that lives as long as the import */
    const esp_onnx_opts_t *opts;
    const uint8_t *bytes; /* of the file */
    esp_diag_t *diag;
    esp_builder_t *builder;
    int64_t opset;      /* of the default domain */
    int64_t batch;      /* samples; 0: no input has a batch */
    int64_t file_batch; /* a fixed batch that is being rebound to `batch`; 0: none */
    int64_t
        other_batch; /* `baked` values are at this batch: file_batch, or any other than `batch` */
    int64_t n_ops;   /* appended to the builder: the id of the next one */
    int64_t nodes_left, fold_left;
    int32_t depth;
    bool located;          /* an error has been given its node */
    esp_i_value_t *absent; /* stands for an optional input that a function's caller leaves out */
    ESP_VEC(esp_i_track_t) tracks; /* by tensor id */
    ESP_VEC(esp_i_pb_function_t) functions;
    esp_i_names_t function_names; /* "domain name overload" -> index */
} esp_i_import_t;

/* ---- nodes and rules ------------------------------------------------------------------------- */

typedef struct esp_i_node esp_i_node_t;
typedef esp_status_t (*esp_i_rule_fn)(esp_i_node_t *node);

/* One row of the op table. `code` parametrises rules that serve several ops. */
typedef struct esp_i_onnx_op {
    const char *domain, *name;
    int32_t since, until;
    esp_i_rule_fn rule;
    int32_t code;
    const char *becomes;
} esp_i_onnx_op_t;

struct esp_i_node {
    esp_i_import_t *im;
    esp_i_scope_t *scope;
    const esp_i_onnx_op_t *op;
    esp_i_pb_node_t pb;
    int64_t opset;
    const char *name; /* of the ops it becomes */
    int32_t n_in, n_out;
    esp_i_value_t **in;  /* NULL: absent */
    esp_i_value_t **out; /* the rule sets those it can give */
    bool batch_ints;     /* a parameter of the rule came from a value that depends on the batch */
    esp_diag_t *diag;
};

/* The row for an op at an opset; NULL: none. *other_out: a row with that name at other opsets. */
const esp_i_onnx_op_t *esp_i_onnx_find(esp_i_str_t domain, esp_i_str_t name, int64_t opset,
                                       const esp_i_onnx_op_t **other_out);

/* Imports a subgraph of `node` in place and gives its outputs to the node. (node.c) */
esp_status_t esp_i_im_inline_branch(esp_i_node_t *node, esp_i_wire_t graph);

/* ---- reading attributes and parameters of a node (attr.c) ------------------------------------ */

esp_status_t esp_i_im_attr_find(esp_i_node_t *node, const char *name,
                                esp_i_pb_attribute_type_t type, esp_i_pb_attribute_t *out,
                                bool *found_out);
esp_status_t esp_i_im_attr_int(esp_i_node_t *node, const char *name, int64_t absent, int64_t *out);
esp_status_t esp_i_im_attr_float(esp_i_node_t *node, const char *name, double absent, double *out);
/* absent: the default, "" if NULL */
esp_status_t esp_i_im_attr_text(esp_i_node_t *node, const char *name, const char *absent,
                                esp_i_str_t *out);
/* *count_out = -1: absent. More than `capacity` is an error. */
esp_status_t esp_i_im_attr_ints(esp_i_node_t *node, const char *name, int32_t capacity,
                                int64_t *out, int32_t *count_out);
esp_status_t esp_i_im_attr_floats(esp_i_node_t *node, const char *name, int32_t capacity,
                                  double *out, int32_t *count_out);

/* Values of input `index`, which must be known; *count_out = -1: absent. */
esp_status_t esp_i_im_input_ints(esp_i_node_t *node, int32_t index, int32_t capacity, int64_t *out,
                                 int32_t *count_out);
esp_status_t esp_i_im_input_floats(esp_i_node_t *node, int32_t index, int32_t capacity, double *out,
                                   int32_t *count_out);
/* Input `index` if the node has one, else attribute `name`: parameters that moved between opsets.
 */
esp_status_t esp_i_im_param_ints(esp_i_node_t *node, const char *name, int32_t index,
                                 int32_t capacity, int64_t *out, int32_t *count_out);
/* An axis in [-rank, rank) -> [0, rank). */
esp_status_t esp_i_im_axis(esp_i_node_t *node, int64_t axis, int32_t rank, int32_t *axis_out);
esp_status_t esp_i_im_attr_axis(esp_i_node_t *node, int64_t absent, int32_t rank,
                                int32_t *axis_out);
/* Axes as a bit mask; *given_out: whether there are any. */
esp_status_t esp_i_im_param_axes(esp_i_node_t *node, const char *name, int32_t index, int32_t rank,
                                 uint32_t *mask_out, bool *given_out);
/* Fails unless inputs [0, n) are present; n_max < 0: no upper bound. */
esp_status_t esp_i_im_need_inputs(esp_i_node_t *node, int32_t n, int32_t n_max);
static inline esp_i_value_t *esp_i_im_in(const esp_i_node_t *node, int32_t index)
{
    return index < node->n_in ? node->in[index] : NULL;
}

/* ---- constants (konst.c) --------------------------------------------------------------------- */

/* Zeroed, in the arena. *out is NULL where it is larger than what is evaluated on the host, or the
 * import has used up its budget. */
esp_status_t esp_i_im_konst_new(esp_i_import_t *im, esp_dtype_t dtype, int32_t rank,
                                const int64_t *dims, esp_i_konst_t **out);
static inline double esp_i_im_konst_at(const esp_i_konst_t *k, int64_t index)
{
    esp_dcheck(k->f != NULL || k->i != NULL);
    return k->f != NULL ? k->f[index] : (double)k->i[index];
}
/* Rounds to what the dtype of `k` can hold. */
void esp_i_im_konst_set(esp_i_konst_t *k, int64_t index, double value);
/* The same for an integer, exactly. */
void esp_i_im_konst_set_int(esp_i_konst_t *k, int64_t index, int64_t value);
/* The same shape and the same bits. */
bool esp_i_im_konst_equal(const esp_i_konst_t *a, const esp_i_konst_t *b);
/* One element from x to y, which have the same dtype. */
void esp_i_im_konst_copy(esp_i_konst_t *y, int64_t to, const esp_i_konst_t *x, int64_t from);
esp_status_t esp_i_im_konst_decode(esp_i_import_t *im, const esp_i_pb_tensor_t *tensor,
                                   const esp_i_konst_t **out);
/* Row-major data of the dtype; bytes = count * size of the dtype. */
void esp_i_im_konst_encode(const esp_i_konst_t *k, void *bytes);
/* Known value of `v`, decoding a literal if it is small; NULL: not known. */
esp_status_t esp_i_im_known(esp_i_import_t *im, esp_i_value_t *v, const esp_i_konst_t **out);
/* Checks dims and type of a tensor of the file. */
esp_status_t esp_i_im_literal_shape(esp_i_import_t *im, const esp_i_pb_tensor_t *tensor,
                                    esp_dtype_t *dtype_out, int64_t *count_out);
/* The list of a TensorProto that holds its data if it is not raw: field, wire type of an element.
 */
void esp_i_im_typed_field(int64_t data_type, uint32_t *number_out, esp_i_wire_type_t *type_out);

/* A TensorProto of the file as a value, named `name`. An initializer of more than one float is
 * taken for a parameter; for that of one see esp_i_im_scope_numbers. */
esp_status_t esp_i_im_literal_value(esp_i_import_t *im, esp_i_wire_t body, bool initializer,
                                    esp_i_str_t *name_out, esp_i_value_t **out);
esp_status_t esp_i_im_literal_read(const esp_i_import_t *im, const esp_i_value_t *v,
                                   esp_i_pb_tensor_t *out);

/* Evaluates one core op; *out stays NULL if the kind is not evaluated on the host. (host.c) */
esp_status_t esp_i_im_host_eval(esp_i_import_t *im, esp_op_kind_t kind, const esp_attr_t *attr,
                                int32_t n, const esp_i_konst_t *const *in,
                                const esp_i_konst_t **out);

/* ---- index arithmetic of any size (grid.c) --------------------------------------------------- */

/* The formula of an integer value; *out is NULL if it has none. */
esp_status_t esp_i_im_grid_of(esp_i_import_t *im, esp_i_value_t *v, const esp_i_grid_t **out);
/* Indices [.., m] as m formulas over the axes before; *out is NULL if they are not affine. */
esp_status_t esp_i_im_grid_rows(esp_i_import_t *im, esp_i_value_t *v, const esp_i_grid_t **out);
/* One core op on formulas; *out stays NULL if the result has none. */
esp_status_t esp_i_im_grid_eval(esp_i_node_t *node, esp_op_kind_t kind, const esp_attr_t *attr,
                                int32_t n, esp_i_value_t *const *in, esp_i_value_t **out);
esp_status_t esp_i_im_grid_known(esp_i_import_t *im, const esp_i_value_t *v,
                                 const esp_i_konst_t **out);
/* Puts ranges, sums and a broadcast into the builder. */
esp_status_t esp_i_im_grid_put(esp_i_import_t *im, esp_i_value_t *v);
/*
 * Whether indices [.., m] run over the box [start[p], start[p] + count[p]) of the m axes they
 * index, row by row.
 */
bool esp_i_im_grid_box(const esp_i_value_t *indices, const esp_i_grid_t *grid, int64_t *start,
                       int64_t *count);

/* ---- the batch (track.c) --------------------------------------------------------------------- */

esp_i_track_t esp_i_im_track_of(const esp_i_import_t *im, const esp_i_value_t *v);
/* Where output 0 carries the batch, given the inputs. */
esp_i_track_t esp_i_im_track_op(const esp_i_import_t *im, esp_op_kind_t kind,
                                const esp_attr_t *attr, int32_t n, esp_i_value_t *const *in,
                                const esp_i_value_t *out);
esp_status_t esp_i_im_track_set(esp_i_import_t *im, esp_tensor_id_t tensor, esp_i_track_t track);
/* dims of v at the other batch. */
void esp_i_im_track_file_dims(const esp_i_import_t *im, const esp_i_value_t *v, int64_t *dims_out);
/*
 * `target` is a shape of v at the batch of the file. Multiplies the axis that takes the batch and
 * says where it is then; false: the batch does not lie within one axis.
 */
bool esp_i_im_track_rebind(const esp_i_import_t *im, const esp_i_value_t *v, int32_t rank,
                           int64_t *target, esp_i_track_t *track_out);

/* ---- composing core kinds (compose.c) -------------------------------------------------------- */

esp_i_value_t *esp_i_im_value_new(esp_i_import_t *im, const char *name);
esp_status_t esp_i_im_value_known(esp_i_node_t *node, const esp_i_konst_t *k, esp_i_value_t **out);
esp_status_t esp_i_im_scalar(esp_i_node_t *node, esp_dtype_t dtype, double value,
                             esp_i_value_t **out);
/* A list of integers as a known vector of int64. */
esp_status_t esp_i_im_int_vector(esp_i_node_t *node, int64_t n, const int64_t *ints,
                                 esp_i_value_t **out);

/* Appends an op to the builder, and counts it. */
esp_status_t esp_i_im_append(esp_i_import_t *im, esp_op_kind_t kind, const esp_attr_t *attr,
                             int32_t n, const esp_tensor_id_t *inputs, const char *name,
                             esp_tensor_id_t *outputs);
/* The tensor of a value, put into the builder if it is not there yet. */
esp_status_t esp_i_im_tensor(esp_i_import_t *im, esp_i_value_t *v, esp_tensor_id_t *out);
/* A float initializer that is data, not a weight: a constant if its data is in the file, else a
 * frozen weight. No effect once it is in the builder. */
void esp_i_im_not_trained(esp_i_value_t *v);

/* One core op; `out` has as many places as the kind has outputs. */
esp_status_t esp_i_im_emit(esp_i_node_t *node, esp_op_kind_t kind, const esp_attr_t *attr,
                           int32_t n, esp_i_value_t *const *in, esp_i_value_t **out);
esp_status_t esp_i_im_elt(esp_i_node_t *node, esp_eltwise_t code, double alpha, double beta,
                          int32_t n, esp_i_value_t *const *in, esp_i_value_t **out);
esp_status_t esp_i_im_unary(esp_i_node_t *node, esp_eltwise_t code, esp_i_value_t *x,
                            esp_i_value_t **out);
esp_status_t esp_i_im_binary(esp_i_node_t *node, esp_eltwise_t code, esp_i_value_t *a,
                             esp_i_value_t *b, esp_i_value_t **out);
/* alpha * x + beta; x itself where that is x */
esp_status_t esp_i_im_affine(esp_i_node_t *node, esp_i_value_t *x, double alpha, double beta,
                             esp_i_value_t **out);
esp_status_t esp_i_im_reshape(esp_i_node_t *node, esp_i_value_t *x, int32_t rank,
                              const int64_t *dims, esp_i_value_t **out);
esp_status_t esp_i_im_transpose(esp_i_node_t *node, esp_i_value_t *x, const int32_t *perm,
                                esp_i_value_t **out);
/* Broadcast to a shape of at least the rank of x. */
esp_status_t esp_i_im_expand(esp_i_node_t *node, esp_i_value_t *x, int32_t rank,
                             const int64_t *dims, esp_i_value_t **out);
/* y has `count` elements along `axis`, from `start` with `step`. */
esp_status_t esp_i_im_slice(esp_i_node_t *node, esp_i_value_t *x, int32_t axis, int64_t start,
                            int64_t step, int64_t count, esp_i_value_t **out);
esp_status_t esp_i_im_cast(esp_i_node_t *node, esp_i_value_t *x, esp_dtype_t dtype,
                           esp_i_value_t **out);
esp_status_t esp_i_im_reduce(esp_i_node_t *node, esp_reduce_t code, esp_i_value_t *x, uint32_t axes,
                             bool keep, esp_i_value_t **out);
esp_status_t esp_i_im_mean(esp_i_node_t *node, esp_i_value_t *x, uint32_t axes, bool keep,
                           esp_i_value_t **out);
esp_status_t esp_i_im_gather(esp_i_node_t *node, esp_i_value_t *x, esp_i_value_t *indices,
                             int32_t axis, esp_i_value_t **out);
esp_status_t esp_i_im_concat(esp_i_node_t *node, int32_t n, esp_i_value_t *const *in, int32_t axis,
                             esp_i_value_t **out);
/* einsum; labels are small numbers from 0 on. */
esp_status_t esp_i_im_contract(esp_i_node_t *node, esp_i_value_t *a, const int8_t *a_labels,
                               esp_i_value_t *b, const int8_t *b_labels, int32_t y_rank,
                               const int8_t *y_labels, esp_i_value_t **out);
/* matrix[o, i] applied along `axis`: y[.., o, ..] = sum_i matrix[o, i] x[.., i, ..] */
esp_status_t esp_i_im_apply_matrix(esp_i_node_t *node, esp_i_value_t *x, int32_t axis,
                                   esp_i_value_t *matrix, esp_i_value_t **out);
/* A vector [c] as [c, 1, .., 1], to broadcast along axis 1 of a tensor of rank `rank`. */
esp_status_t esp_i_im_per_channel(esp_i_node_t *node, esp_i_value_t *v, int32_t rank,
                                  esp_i_value_t **out);

/* Product of dims[from, to). */
int64_t esp_i_im_extent(const esp_i_value_t *v, int32_t from, int32_t to);

/* ---- the driver ------------------------------------------------------------------------------ */

/* Reads the inputs of the main graph and finds the batch. (inputs.c) */
esp_status_t esp_i_im_import_inputs(esp_i_import_t *im, esp_i_scope_t *scope, esp_i_wire_t graph);

#endif
