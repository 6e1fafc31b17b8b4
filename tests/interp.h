/*
 * The reference interpreter: runs a frozen graph, undistributed, in double, with the kernels of the
 * registry. It is the judge of what a deployment computes.
 *
 * Values are row-major doubles, integers and booleans too. Everything that is not set has a default
 * value, a pure function of (seed, name of the tensor, element), for inputs also of the step: two
 * interpreters of two graphs that share names start from the same numbers.
 *
 * The second half is for others that run kernels, whole or on a share: interpreters of deployments
 * and the harness of the kinds.
 */
#ifndef ESP_TESTS_INTERP_H
#define ESP_TESTS_INTERP_H

#include "graph/kind.h"

typedef struct interp interp_t;

/* The graph must outlive the interpreter. The step counter starts at 0. */
interp_t *interp_new(const esp_graph_t *graph, uint64_t seed);
void interp_free(interp_t *interp); /* accepts NULL */

/* The elements of a tensor; of an activation: as the last run left them. */
const double *interp_get(const interp_t *interp, esp_tensor_id_t tensor);
/* Copies the elements of a tensor that no op produces; an input keeps them in all steps to come. */
void interp_set(interp_t *interp, esp_tensor_id_t tensor, const double *values);

/* Draws the inputs that were not set, and runs all ops in order. */
void interp_run(interp_t *interp);
/* interp_run, then every new version moves into its parameter, state or statistic; counts the step.
 */
void interp_step(interp_t *interp);

/* ---- values ------------------------------------------------------------------------------ */

/*
 * The value that a tensor without producer starts with: its literal if it has one; else weights by
 * their fan-in (scales of normalisations near 1), states 0, statistics positive, inputs by dtype.
 */
void interp_default(const esp_graph_t *graph, esp_tensor_id_t tensor, uint64_t seed, uint64_t step,
                    double *values_out);
/* Integer elements are drawn from [0, bound): rows of what they index, classes; 2 if nobody says.
 */
int64_t interp_bound(const esp_graph_t *graph, esp_tensor_id_t tensor);

/* ---- running one op on a share ------------------------------------------------------------- */

/*
 * A kernel's arguments. The arrays are owned; data pointers are NULL until the caller sets them
 * through `operand` (inputs in order, then outputs). An absent input has rank -1 and stays NULL.
 */
typedef struct kernel_call {
    esp_i_kernel_t kernel;
    esp_i_buffer_t *operand;
    esp_dtype_t *dtype;
    int32_t n_operands;
} kernel_call_t;

/*
 * The call that computes `share` units from `offset` of `factor` of an op; dim ESP_NONE: all of it.
 * Operands that carry the factor get their local shape, all others the global one: that is the
 * addend of a SUM output, and for a LOCAL input the addend or the sum, as the caller likes.
 * The caller may set seed, step and local_batchnorm (0 here).
 */
void kernel_local(const esp_graph_t *graph, esp_op_id_t op, esp_factor_t factor, int64_t offset,
                  int64_t share, kernel_call_t *call_out);
void kernel_call_run(const esp_graph_t *graph, esp_op_id_t op, const kernel_call_t *call);
void kernel_call_fini(kernel_call_t *call); /* not the data */

/* A buffer without data for rows [offset, offset + share) of a view of a tensor; extent 0: all. */
esp_i_buffer_t buffer_of(const esp_graph_t *graph, esp_tensor_id_t tensor, esp_view_t view,
                         int64_t offset, int64_t share);
/* Room for the elements of a local buffer, exactly; free(). */
double *buffer_alloc(const esp_i_buffer_t *buffer);
/* Between a local buffer and the whole tensor: out of it, into it, added to it. */
void buffer_take(const esp_i_buffer_t *local, const double *whole);
void buffer_put(const esp_i_buffer_t *local, double *whole);
void buffer_add(const esp_i_buffer_t *local, double *whole);

#endif
