/*
 * Cost files: whatever is read writes and reads as the same again, merges with itself to itself,
 * and has curves of finite times that start no higher than any of their points.
 */
#include "base/base.h"
#include "espalier/costs.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_curves(const esp_costs_t *costs)
{
    for (int32_t t = 0; t < costs->n_types; t++) {
        const esp_costs_type_t *type = &costs->type[t];
        esp_assert(esp_costs_find_type(costs, type->name) == type);
        for (int32_t c = 0; c < type->n_curves; c++) {
            const esp_cost_curve_t *curve = &type->curve[c];
            double origin = esp_cost_curve_ns(curve, type->launch_ns, 0);
            esp_assert(esp_costs_find_curve(type, curve->op) == curve);
            for (int32_t i = 0; i < curve->n; i++) {
                double at = esp_cost_curve_ns(curve, type->launch_ns, curve->point[i].units);
                esp_assert(origin >= 0 && origin <= curve->point[i].ns);
                esp_assert(fabs(at - curve->point[i].ns) <= 1e-9 * (1 + at));
                esp_assert(
                    isfinite(esp_cost_curve_ns(curve, type->launch_ns, 2 * curve->point[i].units)));
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    esp_costs_t *costs, *again, *both;
    char *first, *second;
    esp_diag_t diag = {0};
    esp_status_t status = esp_costs_parse((const char *)data, size, NULL, NULL, &costs, &diag);
    if (status != ESP_OK) {
        esp_assert(diag.status == status && diag.text[0] != '\0');
        esp_assert(diag.line > 0 || diag.place[0] != '\0');
        return 0;
    }
    check_curves(costs);
    esp_assert(esp_costs_to_json(costs, NULL, &first, &diag) == ESP_OK);
    esp_assert(esp_costs_parse(first, strlen(first), NULL, NULL, &again, &diag) == ESP_OK);
    esp_assert(esp_costs_merge(costs, again, NULL, &both, &diag) == ESP_OK);
    esp_assert(esp_costs_to_json(both, NULL, &second, &diag) == ESP_OK);
    esp_assert(strcmp(first, second) == 0);
    esp_i_free(&esp_i_malloc, first);
    esp_i_free(&esp_i_malloc, second);
    esp_costs_destroy(costs);
    esp_costs_destroy(again);
    esp_costs_destroy(both);
    return 0;
}
