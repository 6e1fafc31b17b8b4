/*
 * The builder from inside: what freeze, the training graph, canonicalise and the text form share.
 */
#ifndef ESP_GRAPH_BUILD_H
#define ESP_GRAPH_BUILD_H

#include "graph/kind.h"

/* Loop dimensions of one op, as the `dims` callback of its kind gives them. */
struct esp_i_dims {
    const esp_allocator_t *alloc;
    int32_t operands; /* bindings per dimension */
    ESP_VEC(int64_t) extent;
    ESP_VEC(int64_t) granule;
    ESP_VEC(esp_binding_t) binding; /* operands per dimension */
    bool failed;                    /* memory ran out: sticky */
};
void esp_i_dims_init(esp_i_dims_t *dims, const esp_allocator_t *alloc);
void esp_i_dims_reset(esp_i_dims_t *dims, int32_t operands);
void esp_i_dims_fini(esp_i_dims_t *dims);

typedef struct esp_i_built_tensor {
    const char *name;
    esp_role_t role;
    esp_i_shape_t shape;
    esp_op_id_t producer;
    esp_tensor_id_t next;
    const void *data;
    esp_view_t batch; /* given, for tensors without producer; extent 0: not given */
} esp_i_built_tensor_t;

typedef struct esp_i_built_op {
    const char *name;
    esp_op_kind_t kind;
    esp_phase_t phase;
    esp_op_id_t origin;
    esp_attr_t attr;
    int32_t first_in, n_in;   /* into the builder's operand list */
    int32_t first_out, n_out; /* likewise */
} esp_i_built_op_t;

/* Unique names: a taken name gets the next free suffix _1, _2, ... */
typedef struct esp_i_unique {
    esp_i_names_t names;
    ESP_VEC(int32_t) suffix; /* per name: the last suffix that was tried */
} esp_i_unique_t;

struct esp_builder {
    esp_i_arena_t arena; /* names and literal values */
    const char *name;
    esp_i_unique_t tensor_names, op_names;
    ESP_VEC(esp_i_built_tensor_t) tensors;
    ESP_VEC(esp_i_built_op_t) ops;
    ESP_VEC(esp_tensor_id_t) operands;
    ESP_VEC(esp_tensor_id_t) outputs;
    ESP_VEC(esp_i_shape_t) scratch; /* input shapes of the op at hand */
    int64_t batch;
    esp_phase_t phase;
    esp_op_id_t origin;
};

/* Most outputs that a kind has. */
#define ESP_I_MAX_OUT 5

/*
 * esp_builder_op with the name of each output tensor (NULL: derived from the op's).
 */
esp_status_t esp_i_builder_op(esp_builder_t *builder, esp_op_kind_t kind, const esp_attr_t *attr,
                              int32_t n_inputs, const esp_tensor_id_t *inputs, const char *name,
                              const char *const *output_names, esp_tensor_id_t *outputs_out,
                              esp_diag_t *diag);

/*
 * Appends the whole of `graph` to an empty builder: tensor and op ids stay what they are, because
 * ids count up in the order of the calls that made them.
 */
esp_status_t esp_i_builder_copy(esp_builder_t *builder, const esp_graph_t *graph, esp_diag_t *diag);

/* Adds a copy of a tensor that no op makes. */
esp_status_t esp_i_builder_copy_tensor(esp_builder_t *builder, const esp_graph_t *graph,
                                       esp_tensor_id_t tensor, esp_tensor_id_t *made_out,
                                       esp_diag_t *diag);

/* Shape of a tensor of a frozen graph. */
esp_i_shape_t esp_i_graph_shape(const esp_graph_t *graph, esp_tensor_id_t tensor);

/* Where the batch lies, forward and then backward over the ops: fills the batch arrays. */
void esp_i_batch_propagate(const esp_graph_t *graph, esp_view_t *tensor_batch,
                           esp_factor_t *op_batch);

/* Whether outer * extent * inner is `elements` and all are positive. */
bool esp_i_view_fits(esp_view_t view, int64_t elements);
static inline bool esp_i_view_equal(esp_view_t x, esp_view_t y)
{
    return x.outer == y.outer && x.extent == y.extent && x.inner == y.inner;
}

#endif
