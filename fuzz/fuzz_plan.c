/* Plan files: whatever is read is valid, can be copied, and writes and reads as the same again. */
#include "base/base.h"
#include "espalier/plan.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    esp_plan_t *plan, *again, *clone;
    char *first, *second;
    esp_diag_t diag = {0};
    esp_status_t status = esp_plan_parse((const char *)data, size, NULL, NULL, &plan, &diag);
    if (status != ESP_OK) {
        esp_assert(diag.status == status && diag.text[0] != '\0');
        esp_assert(diag.line > 0 || diag.place[0] != '\0');
        return 0;
    }
    esp_assert(esp_plan_to_json(plan, NULL, NULL, &first, &diag) == ESP_OK);
    esp_assert(esp_plan_parse(first, strlen(first), NULL, NULL, &again, &diag) == ESP_OK);
    esp_assert(esp_plan_clone(again, NULL, &clone, &diag) == ESP_OK);
    esp_assert(esp_plan_to_json(clone, NULL, NULL, &second, &diag) == ESP_OK);
    esp_assert(strcmp(first, second) == 0);
    esp_i_free(&esp_i_malloc, first);
    esp_i_free(&esp_i_malloc, second);
    esp_plan_destroy(plan);
    esp_plan_destroy(again);
    esp_plan_destroy(clone);
    return 0;
}
