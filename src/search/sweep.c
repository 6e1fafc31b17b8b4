/*
 * The first look at the space: every action for all groups alike; then the fastest of them, whether
 * they fit or not, with more micro-batches, which need less memory.
 */
#include "search/search.h"

#include <string.h>

enum { FASTEST = 12 };

typedef struct sweep {
    esp_i_evaluator_t *e;
    int32_t *points; /* a batch */
    int32_t n;
    int64_t budget;
    struct {
        int32_t action;
        int64_t ns;
    } fastest[FASTEST];
    int32_t n_fastest;
} sweep_t;

static void fastest_insert(sweep_t *s, int32_t action, int64_t ns)
{
    int32_t at = s->n_fastest < FASTEST ? s->n_fastest++ : FASTEST;
    for (; at > 0 && s->fastest[at - 1].ns > ns; at--)
        if (at < FASTEST)
            s->fastest[at] = s->fastest[at - 1];
    if (at < FASTEST) {
        s->fastest[at].action = action;
        s->fastest[at].ns = ns;
    }
}

/* Evaluates what was collected; remembers the fastest if there is one micro-batch. */
static esp_status_t flush(sweep_t *s, bool remember, esp_diag_t *diag)
{
    esp_outcome_t outcome[ESP_I_BATCH];
    ESP_TRY(esp_i_evaluate(s->e, s->n, s->points, outcome, diag));
    for (int32_t i = 0; i < s->n && remember; i++)
        fastest_insert(s, s->points[(int64_t)i * s->e->n_choices], outcome[i].step_time_ns);
    s->n = 0;
    return ESP_OK;
}

static esp_status_t collect(sweep_t *s, int32_t action, int32_t micro, bool *stopped,
                            esp_diag_t *diag)
{
    int32_t n_groups = s->e->space->n_groups;
    int32_t *point = s->points + (int64_t)s->n * s->e->n_choices;
    if (s->n == 0 && !esp_i_evaluator_go_on(s->e, s->budget, "sweep", stopped))
        return ESP_OK;
    for (int32_t g = 0; g < n_groups; g++)
        point[g] = action;
    point[n_groups] = micro;
    point[n_groups + 1] = 0;
    return ++s->n == ESP_I_BATCH ? flush(s, micro == 0, diag) : ESP_OK;
}

static esp_status_t sweep_run(sweep_t *s, bool *stopped, esp_diag_t *diag)
{
    for (int32_t a = 0; a < s->e->space->n_actions; a++)
        ESP_TRY(collect(s, a, 0, stopped, diag));
    ESP_TRY(flush(s, true, diag));
    for (int32_t micro = 1; micro < ESP_I_MICRO_CHOICES; micro++) {
        for (int32_t i = 0; i < s->n_fastest && esp_i_micro_allowed(s->e, micro); i++)
            ESP_TRY(collect(s, s->fastest[i].action, micro, stopped, diag));
        ESP_TRY(flush(s, false, diag));
    }
    return ESP_OK;
}

esp_status_t esp_i_sweep(esp_i_evaluator_t *e, int64_t budget, bool *stopped, esp_diag_t *diag)
{
    sweep_t s = {.e = e, .budget = budget};
    s.points = esp_i_alloc_array(&e->alloc, (int64_t)ESP_I_BATCH * e->n_choices, sizeof *s.points);
    if (!s.points)
        return esp_i_nomem(diag);
    esp_status_t status = sweep_run(&s, stopped, diag);
    esp_i_free(&e->alloc, s.points);
    return status;
}
