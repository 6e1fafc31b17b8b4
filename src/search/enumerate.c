/* Small spaces, seen whole: every point, when there are no more of them than evaluations. */
#include "search/search.h"

#include <string.h>

int64_t esp_i_point_count(const esp_i_evaluator_t *e)
{
    int64_t n = 0;
    for (int32_t micro = 0; micro < ESP_I_MICRO_CHOICES; micro++)
        n += esp_i_micro_allowed(e, micro) ? ESP_I_BUCKET_CHOICES : 0;
    for (int32_t g = 0; g < e->space->n_groups; g++) {
        if (n > INT64_MAX / e->space->n_actions)
            return INT64_MAX;
        n *= e->space->n_actions;
    }
    return n;
}

/* The next point: buckets fastest, then micro-batches, then actions. False after the last. */
static bool point_next(const esp_i_evaluator_t *e, int32_t *choice)
{
    int32_t n = e->space->n_groups;
    if (++choice[n + 1] < ESP_I_BUCKET_CHOICES)
        return true;
    choice[n + 1] = 0;
    while (++choice[n] < ESP_I_MICRO_CHOICES)
        if (esp_i_micro_allowed(e, choice[n]))
            return true;
    choice[n] = 0; /* one micro-batch is always allowed */
    for (int32_t g = 0; g < n; g++) {
        if (++choice[g] < e->space->n_actions)
            return true;
        choice[g] = 0;
    }
    return false;
}

esp_status_t esp_i_enumerate(esp_i_evaluator_t *e, int64_t budget, bool *stopped, esp_diag_t *diag)
{
    size_t bytes = (size_t)e->n_choices * sizeof(int32_t);
    int32_t *points =
        esp_i_alloc_array(&e->alloc, (int64_t)(ESP_I_BATCH + 1) * e->n_choices, sizeof *points);
    if (!points)
        return esp_i_nomem(diag);
    int32_t *next = points + (int64_t)ESP_I_BATCH * e->n_choices;
    esp_outcome_t outcome[ESP_I_BATCH];
    esp_status_t status = ESP_OK;
    for (bool more = true; more && status == ESP_OK;) {
        int32_t n = 0;
        if (!esp_i_evaluator_go_on(e, budget, "enumeration", stopped))
            break;
        for (; more && n < ESP_I_BATCH; n++) {
            memcpy(points + (int64_t)n * e->n_choices, next, bytes);
            more = point_next(e, next);
        }
        status = esp_i_evaluate(e, n, points, outcome, diag);
    }
    esp_i_free(&e->alloc, points);
    return status;
}
