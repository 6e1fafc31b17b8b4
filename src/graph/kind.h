/*
 * The registry of core op kinds: one const descriptor per kind, families side by side in kinds/.
 *
 * A descriptor says everything the rest of the house needs to know of a kind: shapes, factors,
 * linear sets, cost, gradient, reference kernel. Nothing else anywhere switches on the kind of an
 * op, with the exception of import rules and canonicalise, which make ops.
 */
#ifndef ESP_GRAPH_KIND_H
#define ESP_GRAPH_KIND_H

#include "base/base.h"
#include "espalier/graph.h"

/* ---- an op as a descriptor sees it: kind, attributes, and the global shape of each operand
 * ------- */

typedef struct esp_i_shape {
    esp_dtype_t dtype;
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
} esp_i_shape_t;

typedef struct esp_i_op {
    esp_op_kind_t kind;
    const esp_attr_t *attr;
    int32_t n_in, n_out;
    const esp_i_shape_t *in; /* an absent optional input has rank -1 */
    esp_i_shape_t *out;      /* infer fills it; const for every other callback */
} esp_i_op_t;

int64_t esp_i_shape_elements(const esp_i_shape_t *shape);
/* product of dims[from, to) */
int64_t esp_i_shape_product(const esp_i_shape_t *shape, int32_t from, int32_t to);
static inline bool esp_i_op_has(const esp_i_op_t *op, int32_t input)
{
    return input < op->n_in && op->in[input].rank >= 0;
}

/* ---- factors
 * ---------------------------------------------------------------------------------------- */

/*
 * Collects the loop dimensions of one op. `dims` callbacks use the two calls below: open a
 * dimension, then bind each operand that carries it or sums over it; operands not named are ABSENT.
 * A dimension of extent <= 1 may be given or left out. Dimensions are declared as large as
 * possible: adjacent axes that every operand treats alike are one dimension (element-wise without
 * broadcast: one dimension of all elements), because a factor may be any part (a, b, c) of a
 * dimension but never of two.
 */
typedef struct esp_i_dims esp_i_dims_t;
void esp_i_dims_open(esp_i_dims_t *dims, int64_t extent, int64_t granule);
/* operand: inputs first, then outputs. outer and inner: of the view, for CARRY only. */
void esp_i_dims_bind(esp_i_dims_t *dims, int32_t operand, esp_bind_t bind, int64_t outer,
                     int64_t inner);
/* The frequent case: the dimension is axis `axis` of that operand. */
void esp_i_dims_bind_axis(esp_i_dims_t *dims, const esp_i_op_t *op, int32_t operand, int32_t axis);

/* ---- gradients
 * --------------------------------------------------------------------------------------- */

/*
 * Reverse-mode rule of one op, as a composition of core kinds appended to `builder`.
 * dy[j]: gradient of output j, ESP_NONE where nothing flows. need[i]: whether the gradient of input
 * i is wanted. The rule writes dx[i] (preset to ESP_NONE). in/out: tensor ids of the op's operands.
 */
typedef struct esp_i_grad {
    esp_builder_t *builder;
    const esp_i_op_t *op;
    const esp_tensor_id_t *in, *out, *dy;
    const bool *need;
    esp_tensor_id_t *dx;
    const char *name; /* for the ops that are appended: "<forward op>/grad" */
    esp_diag_t *diag;
} esp_i_grad_t;

/* ---- the reference kernel
 * ------------------------------------------------------------------------------- */

/*
 * One operand of a kernel: a dense row-major buffer of doubles (integers and booleans too) of local
 * shape `dims`, which is rows [offset, offset + share) of `view` of the global tensor `global`; not
 * split: view.extent == 0 and dims == global.
 */
typedef struct esp_i_buffer {
    double *data; /* NULL: an absent optional input */
    int32_t rank, global_rank;
    int64_t dims[ESP_MAX_RANK], global[ESP_MAX_RANK];
    esp_view_t view;
    int64_t offset, share;
} esp_i_buffer_t;
int64_t esp_i_buffer_elements(const esp_i_buffer_t *buffer);
/* Index in the global tensor of element i of the local buffer. */
int64_t esp_i_buffer_global_index(const esp_i_buffer_t *buffer, int64_t i);

typedef struct esp_i_kernel {
    const esp_attr_t *attr;
    int32_t n_in, n_out;
    const esp_i_buffer_t *in, *out;
    const esp_dtype_t *in_dtype, *out_dtype;
    uint64_t seed, step;  /* for random ops */
    bool local_batchnorm; /* LOCAL inputs hold this device's addend: count local elements */
} esp_i_kernel_t;

/* ---- the descriptor
 * ----------------------------------------------------------------------------------------- */

enum {
    ESP_I_KIND_ALIAS = 1,  /* output 0 is input 0's buffer: no task, no memory */
    ESP_I_KIND_RANDOM = 2, /* draws from its stream */
};

typedef struct esp_i_kind {
    const char *name;
    int32_t min_in, max_in; /* max_in == INT32_MAX: any number */
    int32_t n_out;          /* at most: see outputs */
    uint32_t flags;
    esp_family_t family;
    /* How many of the n_out outputs an op with these attributes has. NULL: all. */
    int32_t (*outputs)(const esp_attr_t *attr);
    /* Checks attributes and inputs, fills op->out. Errors say what does not fit (the caller names
     * the op). */
    esp_status_t (*infer)(const esp_i_op_t *op, esp_diag_t *diag);
    /* Declares loop dimensions. NULL: opaque. */
    void (*dims)(const esp_i_op_t *op, esp_i_dims_t *dims);
    /* Writes up to 4 masks, returns how many. NULL: not linear in anything. */
    int32_t (*linear)(const esp_i_op_t *op, uint64_t masks_out[4]);
    /* Floating-point operations of the whole op (a multiply-add is 2). NULL: 0. */
    double (*flops)(const esp_i_op_t *op);
    /* NULL: has no gradient (an error on the way from a parameter to the loss). */
    esp_status_t (*gradient)(const esp_i_grad_t *grad);
    /* Naive and obviously right; in double. May allocate nothing; returns nothing. */
    void (*kernel)(const esp_i_kernel_t *kernel);
} esp_i_kind_t;

static inline int32_t esp_i_kind_outputs(const esp_i_kind_t *kind, const esp_attr_t *attr)
{
    return kind->outputs ? kind->outputs(attr) : kind->n_out;
}

/* Never NULL. */
const esp_i_kind_t *esp_i_kind(esp_op_kind_t kind);

#define ESP_KIND(name, text, help) extern const esp_i_kind_t esp_i_kind_##name;
#include "espalier/kinds.def"
#undef ESP_KIND

/* ---- composing ops (gradient rules, import rules, training graph)
 * --------------------------------------------- */

/*
 * Each appends one op with one output, or several, and returns a status; the result goes to *y.
 * Inputs of ESP_NONE are an internal error. Names derive from `name`.
 */
esp_status_t esp_i_make(esp_builder_t *b, esp_op_kind_t kind, const esp_attr_t *attr, int32_t n,
                        const esp_tensor_id_t *inputs, const char *name, esp_tensor_id_t *y,
                        esp_diag_t *diag);
esp_status_t esp_i_make_elt(esp_builder_t *b, esp_eltwise_t code, double alpha, double beta,
                            int32_t n, const esp_tensor_id_t *inputs, const char *name,
                            esp_tensor_id_t *y, esp_diag_t *diag);
esp_status_t esp_i_make_unary(esp_builder_t *b, esp_eltwise_t code, esp_tensor_id_t x,
                              const char *name, esp_tensor_id_t *y, esp_diag_t *diag);
esp_status_t esp_i_make_binary(esp_builder_t *b, esp_eltwise_t code, esp_tensor_id_t x0,
                               esp_tensor_id_t x1, const char *name, esp_tensor_id_t *y,
                               esp_diag_t *diag);
/* alpha * x + beta */
esp_status_t esp_i_make_affine(esp_builder_t *b, esp_tensor_id_t x, double alpha, double beta,
                               const char *name, esp_tensor_id_t *y, esp_diag_t *diag);
esp_status_t esp_i_make_reshape(esp_builder_t *b, esp_tensor_id_t x, int32_t rank,
                                const int64_t *dims, const char *name, esp_tensor_id_t *y,
                                esp_diag_t *diag);
esp_status_t esp_i_make_reduce(esp_builder_t *b, esp_reduce_t code, esp_tensor_id_t x,
                               uint32_t axes, bool keep, const char *name, esp_tensor_id_t *y,
                               esp_diag_t *diag);
/* Sums x down to a shape it was broadcast from (reduce + reshape; nothing if equal: *y = x). */
esp_status_t esp_i_make_sum_to(esp_builder_t *b, esp_tensor_id_t x, int32_t rank,
                               const int64_t *dims, const char *name, esp_tensor_id_t *y,
                               esp_diag_t *diag);
/* einsum("ab,bc->ac"): labels as letters, up to 3 comma/arrow separated groups. */
esp_status_t esp_i_make_einsum(esp_builder_t *b, const char *labels, esp_tensor_id_t x0,
                               esp_tensor_id_t x1, const char *name, esp_tensor_id_t *y,
                               esp_diag_t *diag);

#endif
