/*
 * The first look at the space: every action for all groups alike; then the fastest of them, whether
 * they fit or not, with more micro-batches, which need less memory; then two actions at once.
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

/* ---- two actions --------------------------------------------------------------------------------
 */

/*
 * Few groups hold most of the parameters (the fully connected layers of a convolutional network, an
 * embedding) and others most of the work. So: one action for the groups with the most parameter
 * bytes per time, another for the rest, for several places of the cut.
 */
enum { HEAVY_MAX = 5, LIGHT_MAX = 8 };

typedef struct hybrid {
    int32_t heavy[HEAVY_MAX], light[LIGHT_MAX];
    int32_t n_heavy, n_light;
    int32_t *by_weight; /* op groups, most parameter bytes per time first */
} hybrid_t;

static void action_add(int32_t *list, int32_t *n, int32_t max, int32_t action)
{
    for (int32_t i = 0; i < *n; i++)
        if (list[i] == action)
            return;
    if (action != ESP_NONE && *n < max)
        list[(*n)++] = action;
}

/* The action of the fastest device; of all devices with proportional shares and `sync`. */
static int32_t fastest_device_action(const esp_space_t *space)
{
    int32_t best = ESP_NONE;
    for (int32_t a = 0; a < space->n_actions; a++) {
        int32_t device = space->action[a].device;
        if (device != ESP_NONE &&
            (best == ESP_NONE ||
             space->device_ns[device] < space->device_ns[space->action[best].device]))
            best = a;
    }
    return best;
}

static int32_t widest_action(const esp_space_t *space, esp_sync_t sync)
{
    int32_t best = ESP_NONE, n_best = 0;
    for (int32_t a = 0; a < space->n_actions; a++) {
        const esp_action_t *action = &space->action[a];
        int32_t n = space->mesh[action->mesh].n;
        bool wider = n > n_best || (n == n_best && action->shares == ESP_SHARES_PROPORTIONAL);
        if (action->device == ESP_NONE && action->sync == sync && wider) {
            best = a;
            n_best = n;
        }
    }
    return best;
}

static esp_status_t weights_sort(const esp_space_t *space, const esp_allocator_t *alloc,
                                 int32_t *order)
{
    const esp_graph_t *g = space->cost->graph;
    double *ratio = esp_i_alloc_array(alloc, space->n_groups, sizeof *ratio);
    if (!ratio)
        return ESP_ERR_NOMEM;
    for (int32_t p = 0; p < g->n_parameters; p++)
        ratio[space->op_group[g->update[p]]] += space->cost->tensor_bytes[g->parameter[p]];
    for (int32_t i = 0; i < space->n_groups; i++)
        ratio[i] /= space->group_ns[i] + 1;
    for (int32_t i = 0; i < space->n_groups; i++) {
        int32_t at = i;
        for (; at > 0 && ratio[order[at - 1]] < ratio[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    esp_i_free(alloc, ratio);
    return ESP_OK;
}

static esp_status_t hybrid_collect(sweep_t *s, const hybrid_t *h, int32_t heavy, int32_t light,
                                   int32_t cut, bool *stopped, esp_diag_t *diag)
{
    int32_t n_groups = s->e->space->n_groups;
    int32_t *point = s->points + (int64_t)s->n * s->e->n_choices;
    if (s->n == 0 && !esp_i_evaluator_go_on(s->e, s->budget, "sweep", stopped))
        return ESP_OK;
    for (int32_t i = 0; i < n_groups; i++)
        point[h->by_weight[i]] = i < cut ? heavy : light;
    point[n_groups] = point[n_groups + 1] = 0;
    return ++s->n == ESP_I_BATCH ? flush(s, false, diag) : ESP_OK;
}

static esp_status_t hybrid_run(sweep_t *s, bool *stopped, esp_diag_t *diag)
{
    const esp_space_t *space = s->e->space;
    hybrid_t h = {.n_heavy = 0};
    h.by_weight = esp_i_alloc_array(&s->e->alloc, space->n_groups, sizeof *h.by_weight);
    if (!h.by_weight || weights_sort(space, &s->e->alloc, h.by_weight) != ESP_OK) {
        esp_i_free(&s->e->alloc, h.by_weight);
        return esp_i_nomem(diag);
    }
    action_add(h.heavy, &h.n_heavy, HEAVY_MAX, fastest_device_action(space));
    for (int32_t sync = 0; sync <= ESP_SYNC_SHARDED; sync++)
        action_add(h.light, &h.n_light, LIGHT_MAX, widest_action(space, (esp_sync_t)sync));
    for (int32_t i = 0; i < s->n_fastest; i++) {
        action_add(h.heavy, &h.n_heavy, HEAVY_MAX, s->fastest[i].action);
        action_add(h.light, &h.n_light, LIGHT_MAX, s->fastest[i].action);
    }
    esp_status_t status = ESP_OK;
    for (int32_t cut = 1; cut < space->n_groups && status == ESP_OK; cut += 1 + cut / 2)
        for (int32_t a = 0; a < h.n_heavy && status == ESP_OK; a++)
            for (int32_t b = 0; b < h.n_light && status == ESP_OK; b++)
                if (h.heavy[a] != h.light[b])
                    status = hybrid_collect(s, &h, h.heavy[a], h.light[b], cut, stopped, diag);
    if (status == ESP_OK)
        status = flush(s, false, diag);
    esp_i_free(&s->e->alloc, h.by_weight);
    return status;
}

esp_status_t esp_i_sweep(esp_i_evaluator_t *e, int64_t budget, bool *stopped, esp_diag_t *diag)
{
    sweep_t s = {.e = e, .budget = budget};
    s.points = esp_i_alloc_array(&e->alloc, (int64_t)ESP_I_BATCH * e->n_choices, sizeof *s.points);
    if (!s.points)
        return esp_i_nomem(diag);
    esp_status_t status = sweep_run(&s, stopped, diag);
    if (status == ESP_OK)
        status = hybrid_run(&s, stopped, diag);
    esp_i_free(&e->alloc, s.points);
    return status;
}
