/*
 * What every op kind must hold, checked from one example op:
 *
 *   split     for every loop dimension and every part (a, b, c) of it: the kernel runs on unequal
 *             shares, a share of 0 among them; joining the results as the bindings say gives the
 *             whole result
 *   linear    f(p X + q Z) = p f(X) + q f(Z) for every linear set, the other inputs fixed
 *   gradient  the rule, built and interpreted, equals central differences of the kernel
 *   infer     wrong shapes and types are refused with a message, or give a valid result
 *
 * Examples of all kinds are in tests/kind_examples_*.c; kind_check_registry wants one for each
 * kind.
 */
#ifndef ESP_TESTS_KIND_HARNESS_H
#define ESP_TESTS_KIND_HARNESS_H

#include "graph/kind.h"

enum { KIND_MAX_IN = 8 };

typedef struct kind_input {
    esp_dtype_t dtype; /* ESP_DTYPE_F32 if left out */
    int32_t rank;      /* -1: an optional input that is absent */
    int64_t dims[ESP_MAX_RANK];
    double lo, hi;        /* drawn from [lo, hi); both 0: [-1, 1), integers and booleans [0, 2) */
    const double *values; /* these instead */
} kind_input_t;

typedef struct kind_example {
    const char *name; /* in messages */
    esp_op_kind_t kind;
    esp_attr_t attr;
    int32_t n_in;
    kind_input_t in[KIND_MAX_IN];
    /* Expected extents > 1 of the loop dimensions, in any order, up to a 0; {0}: not checked. */
    int64_t extents[6];
    /* The gradient check leaves out inputs and outputs with their bit here. */
    uint32_t constant_in, constant_out;
    /*
     * For ops whose rule is not their own derivative: appends what the gradient check
     * differentiates instead; writes the result. `attr` is the example's.
     */
    esp_status_t (*build)(esp_builder_t *builder, const esp_attr_t *attr, const esp_tensor_id_t *in,
                          esp_tensor_id_t *y_out, esp_diag_t *diag);
} kind_example_t;

/* All checks. Each fails the running test with the name of the example. */
void kind_check(const kind_example_t *example);
void kind_check_split(const kind_example_t *example);
void kind_check_linear(const kind_example_t *example);
void kind_check_gradient(const kind_example_t *example);
void kind_check_infer(const kind_example_t *example);

/* Infer refuses this op with this status and a text that contains `part`. */
void kind_check_refused(const kind_example_t *example, esp_status_t status, const char *part);

/*
 * Computes the whole op: outputs one after the other in *values_out (as many as fit in `capacity`).
 * For tests of particular numbers.
 */
void kind_compute(const kind_example_t *example, uint64_t seed, uint64_t step, double *values_out,
                  int64_t capacity);

/* Every kind has name, help, shapes, dimensions and kernel, and one example among these. */
typedef struct kind_examples {
    const kind_example_t *data;
    int32_t count;
} kind_examples_t;
void kind_check_registry(const kind_examples_t *lists, int32_t n);

kind_examples_t kind_examples_a(void); /* contraction, convolution, element-wise, reduce, views */
kind_examples_t kind_examples_b(void); /* gather, random, normalisations, losses, update */
kind_examples_t kind_examples_c(void); /* attention, recurrent layers */

#endif
