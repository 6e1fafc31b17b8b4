/*
 * Interpreter of deployments: every device with memory of its own, in one process, in double.
 *
 * Tasks run in the global order. What a device computes comes from esp_deployment_share and the
 * factor of the op; movements are carried out naively from the forms of the two values: sum the
 * addends in the order of devices or join the pieces, then take what each device is to hold. Memory
 * that does not live between steps is poisoned (NaN) before each step, so that what is read before
 * it was made shows. Default values are those of interp.h.
 */
#ifndef ESP_TESTS_DEPLOY_INTERP_H
#define ESP_TESTS_DEPLOY_INTERP_H

#include "espalier/deploy.h"
#include "interp.h"

typedef struct deploy_interp deploy_interp_t;

/* The deployment must outlive the interpreter. Parameters and state are at home; step 0. */
deploy_interp_t *deploy_interp_new(const esp_deployment_t *deployment, uint64_t seed);
void deploy_interp_free(deploy_interp_t *interp); /* accepts NULL */

/* An input keeps these values in all steps to come. */
void deploy_interp_set(deploy_interp_t *interp, esp_tensor_id_t tensor, const double *values);
/* One step: from every parameter at home to the same after the update. */
void deploy_interp_step(deploy_interp_t *interp);

/*
 * The whole of a parameter, state or statistic, from its home. All replicas must be equal bit for
 * bit.
 */
void deploy_interp_read(const deploy_interp_t *interp, esp_tensor_id_t tensor, double *values_out);
/* The loss of the last step, wherever it is: the sum of its addends if it is partial. */
double deploy_interp_loss(const deploy_interp_t *interp);

/* The call of a compute task on a device of its class, without data: shapes and shares from the
 * task's mode and the factor of its op. For kernel_call_fini. */
void deploy_interp_call(const esp_deployment_t *deployment, int32_t task, int32_t device,
                        kernel_call_t *call_out);

#endif
