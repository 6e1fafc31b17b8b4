/*
 * Pipelines of replicated stages: the op groups, in the order of the graph, are divided over sets
 * of devices in turn, by time in proportion to the speed of each set, with several micro-batches.
 * Random moves would hardly find one: every group has to move, and micro-batches with them.
 */
#include "search/search.h"

enum { STAGES_MAX = 4, SEQUENCES_MAX = 48 };

typedef struct stages {
    esp_i_evaluator_t *e;
    int64_t budget;
    bool *stopped;
    esp_diag_t *diag;
    int32_t *points, n;   /* a batch */
    int32_t *by_position; /* op groups in the order of their first op */
    int32_t set[64],
        n_sets; /* all-reduce actions with equal or proportional shares, single devices */
    int32_t sequence[STAGES_MAX], length;
    int32_t n_sequences;
} stages_t;

esp_status_t esp_i_groups_by_position(const esp_space_t *space, const esp_allocator_t *alloc,
                                      int32_t *order_out)
{
    int32_t found = 0, n = space->n_groups;
    uint8_t *seen = esp_i_alloc_array(alloc, n, 1);
    if (!seen)
        return ESP_ERR_NOMEM;
    for (esp_op_id_t op = 0; op < space->cost->graph->n_ops && found < n; op++) {
        int32_t g = space->op_group[op];
        if (g == ESP_NONE || seen[g])
            continue;
        seen[g] = 1;
        order_out[found++] = g;
    }
    esp_i_free(alloc, seen);
    return ESP_OK;
}

static double speed_of(const esp_space_t *space, int32_t action)
{
    const esp_mesh_spec_t *mesh = &space->mesh[space->action[action].mesh];
    double speed = 0;
    for (int32_t k = 0; k < mesh->n; k++)
        speed += 1.0 / space->device_ns[mesh->device[k]];
    return speed;
}

static bool disjoint(const esp_space_t *space, int32_t a, int32_t b)
{
    const esp_mesh_spec_t *x = &space->mesh[space->action[a].mesh];
    const esp_mesh_spec_t *y = &space->mesh[space->action[b].mesh];
    for (int32_t i = 0, j = 0; i < x->n && j < y->n;) {
        if (x->device[i] == y->device[j])
            return false;
        if (x->device[i] < y->device[j])
            i++;
        else
            j++;
    }
    return true;
}

/* ---- one pipeline
 * ---------------------------------------------------------------------------------- */

/* Each group goes to the stage in whose share of the time its middle lies. */
static void point_fill(const stages_t *s, int32_t micro, int32_t *point)
{
    const esp_space_t *space = s->e->space;
    double total_ns = 0, total_speed = 0, done = 0, reached = 0;
    for (int32_t g = 0; g < space->n_groups; g++)
        total_ns += space->group_ns[g];
    for (int32_t i = 0; i < s->length; i++)
        total_speed += speed_of(space, s->sequence[i]);
    int32_t stage = 0;
    reached = speed_of(space, s->sequence[0]) / total_speed;
    for (int32_t i = 0; i < space->n_groups; i++) {
        int32_t g = s->by_position[i];
        double middle = (done + space->group_ns[g] / 2) / total_ns;
        done += space->group_ns[g];
        while (stage + 1 < s->length && middle >= reached)
            reached += speed_of(space, s->sequence[++stage]) / total_speed;
        point[g] = s->sequence[stage];
    }
    point[space->n_groups] = micro;
    point[space->n_groups + 1] = 0;
}

static esp_status_t flush(stages_t *s)
{
    esp_outcome_t outcome[ESP_I_BATCH];
    int32_t n = s->n;
    s->n = 0;
    return n ? esp_i_evaluate(s->e, n, s->points, outcome, s->diag) : ESP_OK;
}

static esp_status_t sequence_try(stages_t *s)
{
    for (int32_t micro = 0; micro < ESP_I_MICRO_CHOICES; micro++) {
        if (!esp_i_micro_allowed(s->e, micro))
            continue;
        if (s->n == 0 && !esp_i_evaluator_go_on(s->e, s->budget, "pipelines", s->stopped))
            return ESP_OK;
        point_fill(s, micro, s->points + (int64_t)s->n * s->e->n_choices);
        if (++s->n == ESP_I_BATCH)
            ESP_TRY(flush(s));
    }
    return ESP_OK;
}

/* All sequences of sets without a common device, in the order of the sets; up to SEQUENCES_MAX. */
static esp_status_t sequences_try(stages_t *s)
{
    if (s->length >= 2 && s->n_sequences++ < SEQUENCES_MAX)
        ESP_TRY(sequence_try(s));
    if (s->length == STAGES_MAX)
        return ESP_OK;
    for (int32_t i = 0; i < s->n_sets && s->n_sequences < SEQUENCES_MAX; i++) {
        bool fits = true;
        for (int32_t k = 0; k < s->length; k++)
            fits = fits && disjoint(s->e->space, s->sequence[k], s->set[i]);
        if (!fits)
            continue;
        s->sequence[s->length++] = s->set[i];
        esp_status_t status = sequences_try(s);
        s->length--;
        if (status != ESP_OK)
            return status;
    }
    return ESP_OK;
}

/* ---- the sets
 * ------------------------------------------------------------------------------------------ */

/* Replicated sets with the shares that suit them (an action with equal shares is left out if there
 * is one with proportional shares), and single devices that are a device group of their own. */
static bool is_set(const esp_space_t *space, int32_t a)
{
    const esp_action_t *action = &space->action[a];
    const esp_cluster_t *cluster = space->cost->cluster;
    if (action->device != ESP_NONE) {
        int32_t group = cluster->device_group[action->device];
        return cluster->group_offset[group + 1] - cluster->group_offset[group] == 1;
    }
    if (action->sync != ESP_SYNC_ALLREDUCE)
        return false;
    return action->shares == ESP_SHARES_PROPORTIONAL ||
           esp_space_find_action(space, action->groups, ESP_NONE, ESP_SHARES_PROPORTIONAL,
                                 ESP_SYNC_ALLREDUCE) == ESP_NONE;
}

esp_status_t esp_i_stages(esp_i_evaluator_t *e, int64_t budget, bool *stopped, esp_diag_t *diag)
{
    const esp_space_t *space = e->space;
    stages_t s = {.e = e, .budget = budget, .stopped = stopped, .diag = diag};
    for (int32_t a = 0; a < space->n_actions && s.n_sets < 64; a++)
        if (is_set(space, a))
            s.set[s.n_sets++] = a;
    s.points = esp_i_alloc_array(&e->alloc, (int64_t)ESP_I_BATCH * e->n_choices, sizeof *s.points);
    s.by_position = esp_i_alloc_array(&e->alloc, space->n_groups, sizeof *s.by_position);
    esp_status_t status = ESP_ERR_NOMEM;
    if (s.points && s.by_position)
        status = esp_i_groups_by_position(space, &e->alloc, s.by_position);
    if (status == ESP_OK) {
        status = sequences_try(&s);
        if (status == ESP_OK)
            status = flush(&s);
    } else {
        status = esp_i_nomem(diag);
    }
    esp_i_free(&e->alloc, s.points);
    esp_i_free(&e->alloc, s.by_position);
    return status;
}
