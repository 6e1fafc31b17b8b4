/*
 * espalier/onnx.h: ONNX files -> model graphs.
 *
 * A model graph made here contains core kinds only and no shape operands: everything that computes
 * shapes has been evaluated. For that, weights are not read: dims suffice, so weightless files
 * (external data whose file is absent) load like any other. Memory is proportional to the file,
 * whatever the file claims.
 */
#ifndef ESPALIER_ONNX_H
#define ESPALIER_ONNX_H

#include "espalier/base.h"
#include "espalier/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ESP_ONNX_DEFAULT_BATCH  32                 /* samples, where the file leaves it open */
#define ESP_ONNX_MAX_FILE_BYTES ((int64_t)1 << 31) /* of the model file, external data aside */
#define ESP_ONNX_MAX_FOLD       ((int64_t)1 << 18) /* elements of a constant that is evaluated */
#define ESP_ONNX_MAX_LITERAL    ((int64_t)1 << 22) /* elements of a constant that keeps its data */
#define ESP_ONNX_MAX_NODES      ((int64_t)1 << 20) /* after inlining of functions and branches */
#define ESP_ONNX_MAX_DEPTH      16                 /* functions and branches inside each other */
#define ESP_ONNX_MIN_OPSET      7
#define ESP_ONNX_MAX_OPSET      25

typedef struct esp_onnx_opts {
    size_t struct_size;
    /*
     * Samples of one step. 0: as in the file, or ESP_ONNX_DEFAULT_BATCH where the file leaves it
     * open. On a model with a fixed batch the batch dimension is rebound and shapes inferred anew.
     */
    int64_t batch;
    /*
     * "NAME=AXIS[,NAME=AXIS..]": where inputs carry the batch; AXIS "none": not at all. NULL: the
     * symbolic dimension that most inputs share, else axis 0 of every input that has the extent
     * of axis 0 of the first.
     */
    const char *batch_dim;
    /* "NAME=VALUE[,..]" for other symbolic dimensions; NAME is the symbol, or INPUT.AXIS where the
     * dimension has none. NULL: none. */
    const char *dims;
    const char *file; /* esp_onnx_parse: the name in error messages; NULL: "onnx" */
} esp_onnx_opts_t;
ESP_PUBLIC esp_onnx_opts_t esp_onnx_opts_default(void);

/*
 * Reads a model file. opts and alloc may be NULL. On failure diag names the file and the byte or
 * the node (with its op type); nothing is returned. Errors: ESP_ERR_IO; SYNTAX: not ONNX,
 * truncated; INVALID: contradictory (cycles, shapes that do not fit, names used twice);
 * UNSUPPORTED: an op, a type, an opset, a shape that depends on data; LIMIT; ARGUMENT: a bad
 * option. The graph belongs to the caller (esp_graph_destroy). O(file + ops).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_onnx_load(const char *path, const esp_onnx_opts_t *opts,
                                                    const esp_allocator_t *alloc,
                                                    esp_graph_t **model_out, esp_diag_t *diag);

/* The same for a file in memory, which must stay until the call returns. */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_onnx_parse(const void *bytes, size_t length,
                                                     const esp_onnx_opts_t *opts,
                                                     const esp_allocator_t *alloc,
                                                     esp_graph_t **model_out, esp_diag_t *diag);

/* ---- weights --------------------------------------------------------------------------------- */

/*
 * The initialisers of a model file, by name: what the parameters of its graph are called, which
 * import neither renames nor changes. Those whose data the file does not carry, or that lies in
 * another file that is not there, are listed as not there.
 */
typedef struct esp_onnx_weight {
    const char *name;
    esp_dtype_t dtype;
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    int64_t elements;
    int32_t there; /* 1: esp_onnx_weights_read gives its data */
} esp_onnx_weight_t;
typedef struct esp_onnx_weights {
    int32_t n;
    const esp_onnx_weight_t *weight; /* in file order */
} esp_onnx_weights_t;
/*
 * Errors: as esp_onnx_load, as far as they concern initialisers. *weights_out is the caller's; it
 * holds the file in memory.
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_onnx_weights_open(const char *path,
                                                            const esp_allocator_t *alloc,
                                                            esp_onnx_weights_t **weights_out,
                                                            esp_diag_t *diag);
/*
 * The elements of one that is there: row-major, of its dtype. Errors: ESP_ERR_IO (external data),
 * ESP_ERR_INVALID (as much data as its shape needs is not there), ESP_ERR_UNSUPPORTED (external
 * data outside of the directory of the model).
 */
ESP_PUBLIC ESP_NODISCARD esp_status_t esp_onnx_weights_read(const esp_onnx_weights_t *weights,
                                                            int32_t index, void *data_out,
                                                            esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_onnx_weights_close(esp_onnx_weights_t *weights);

/* One import rule. */
typedef struct esp_onnx_op {
    const char *domain; /* "": ai.onnx */
    const char *name;
    int32_t since, until; /* opset versions, both included */
    const char *becomes;  /* the core kinds it is composed of, for people */
} esp_onnx_op_t;
/* The rule at `index` (0, 1, ..), in alphabetical order; returns 0 past the last. */
ESP_PUBLIC int esp_onnx_op_at(int32_t index, esp_onnx_op_t *op_out);

#ifdef __cplusplus
}
#endif
#endif
