/*
 * The execution matrix: every model of matrix_models.h under every kind of strategy, on one to
 * eight devices of several clusters.
 */
#ifndef ESP_TESTS_MATRIX_H
#define ESP_TESTS_MATRIX_H

#include "deployments.h"
#include "matrix_models.h"

/* A kind of strategy. */
typedef struct matrix_plan {
    const char *name;
    int32_t devices; /* of its cluster */
    int32_t micro;   /* micro-batches */
    /* BatchNorm is normalised per device and micro-batch; the only kind of plan with micro-batches
     * for models that have it, and not for others. */
    bool local_batchnorm;
    uint64_t seed; /* of random ones */
} matrix_plan_t;

extern const matrix_plan_t matrix_plans[];
extern const int32_t matrix_n_plans;

/* Whether a plan says something of its own for that model. */
bool matrix_fits(const matrix_plan_t *plan, const matrix_model_t *model);

/* A packed deployment with all that it needs. Must not be copied. */
typedef struct matrix_case {
    const matrix_model_t *model;
    const matrix_plan_t *plan;
    bench_t bench;
    const esp_deployment_t *deployment;
    int32_t ranks; /* devices that have something to do */
    char what[96]; /* in messages */
} matrix_case_t;
void matrix_open(matrix_case_t *c, const matrix_model_t *model, const matrix_plan_t *plan);
void matrix_close(matrix_case_t *c);
/* The same model on one device; plan NULL. `ghosts` as in matrix_model_t. */
void matrix_open_single(matrix_case_t *c, const matrix_model_t *model, int32_t ghosts,
                        const int64_t *share);
/* The slices of the batch over which a case with local BatchNorm normalises: their number. */
int32_t matrix_ghosts(const matrix_case_t *c, int64_t share[MATRIX_BATCH]);

#endif
