/*
 * Local search around the best point: batches of random moves, the best of a batch is taken if it
 * is better. Moves that lately led to improvements are tried more often.
 */
#include "search/search.h"

#include <string.h>

typedef enum move {
    MOVE_GROUP, /* one group takes another action; expensive groups more often */
    MOVE_COPY,  /* one group takes the action of another */
    MOVE_BLOCK, /* all groups with one action take another */
    MOVE_RUN,   /* groups that follow one another in the graph take one action */
    MOVE_PLAN,  /* micro-batches or bucket */
    MOVE_PAIR,  /* two groups change at once */
    MOVE_COUNT
} move_t;

typedef struct polish {
    esp_i_evaluator_t *e;
    esp_i_rng_t rng;
    int32_t *current;
    esp_outcome_t outcome;
    int32_t *by_position; /* groups in the order of their first op */
    double credit[MOVE_COUNT];
    double *group_weight; /* cumulative: by time */
} polish_t;

static int32_t random_group(polish_t *p)
{
    int32_t n = p->e->space->n_groups;
    if (esp_i_rng_below(&p->rng, 2))
        return (int32_t)esp_i_rng_below(&p->rng, n);
    double at = esp_i_rng_unit(&p->rng) * p->group_weight[n - 1];
    int32_t g = 0;
    while (g + 1 < n && p->group_weight[g] <= at)
        g++;
    return g;
}

static int32_t random_action(polish_t *p)
{
    return (int32_t)esp_i_rng_below(&p->rng, p->e->space->n_actions);
}

static void move_run(polish_t *p, int32_t *choice)
{
    int32_t n = p->e->space->n_groups, action = random_action(p);
    int32_t first = (int32_t)esp_i_rng_below(&p->rng, n);
    int32_t length = 1 + (int32_t)esp_i_rng_below(&p->rng, n);
    if (esp_i_rng_below(&p->rng, 2))
        action = choice[p->by_position[esp_i_rng_below(&p->rng, n)]];
    for (int32_t i = first; i < n && i < first + length; i++)
        choice[p->by_position[i]] = action;
}

static void move_plan(polish_t *p, int32_t *choice)
{
    int32_t n = p->e->space->n_groups;
    int32_t micro = (int32_t)esp_i_rng_below(&p->rng, ESP_I_MICRO_CHOICES);
    if (esp_i_rng_below(&p->rng, 2) && esp_i_micro_allowed(p->e, micro))
        choice[n] = micro;
    else
        choice[n + 1] = (int32_t)esp_i_rng_below(&p->rng, ESP_I_BUCKET_CHOICES);
}

static move_t random_move(polish_t *p)
{
    double total = 0;
    for (int32_t m = 0; m < MOVE_COUNT; m++)
        total += p->credit[m];
    double at = esp_i_rng_unit(&p->rng) * total;
    int32_t m = 0;
    for (; m + 1 < MOVE_COUNT && at >= p->credit[m]; m++)
        at -= p->credit[m];
    return (move_t)m;
}

static void propose(polish_t *p, move_t move, int32_t *choice)
{
    int32_t n = p->e->space->n_groups, g = random_group(p);
    memcpy(choice, p->current, (size_t)p->e->n_choices * sizeof *choice);
    switch (move) {
    case MOVE_PAIR:
        choice[random_group(p)] = random_action(p);
        choice[g] = random_action(p);
        break;
    case MOVE_COPY:
        choice[g] = choice[esp_i_rng_below(&p->rng, n)];
        break;
    case MOVE_BLOCK: {
        int32_t from = choice[g], to = random_action(p);
        for (int32_t i = 0; i < n; i++)
            choice[i] = choice[i] == from ? to : choice[i];
        break;
    }
    case MOVE_RUN:
        move_run(p, choice);
        break;
    case MOVE_PLAN:
        move_plan(p, choice);
        break;
    case MOVE_GROUP:
    case MOVE_COUNT:
        choice[g] = random_action(p);
        break;
    }
}

static esp_status_t polish_batch(polish_t *p, int32_t *points, esp_diag_t *diag)
{
    esp_outcome_t outcome[ESP_I_BATCH];
    move_t move[ESP_I_BATCH];
    int32_t best = ESP_NONE;
    for (int32_t i = 0; i < ESP_I_BATCH; i++) {
        move[i] = random_move(p);
        propose(p, move[i], points + (int64_t)i * p->e->n_choices);
    }
    ESP_TRY(esp_i_evaluate(p->e, ESP_I_BATCH, points, outcome, diag));
    for (int32_t i = 0; i < ESP_I_BATCH; i++)
        if (esp_i_outcome_better(&outcome[i], best == ESP_NONE ? &p->outcome : &outcome[best]))
            best = i;
    for (int32_t m = 0; m < MOVE_COUNT; m++)
        p->credit[m] = 0.98 * p->credit[m] + 0.02 * 0.5;
    if (best == ESP_NONE)
        return ESP_OK;
    p->credit[move[best]] += 0.5;
    p->outcome = outcome[best];
    memcpy(p->current, points + (int64_t)best * p->e->n_choices,
           (size_t)p->e->n_choices * sizeof *points);
    return ESP_OK;
}

/* Groups by their first op; cumulative times. */
static esp_status_t polish_index(polish_t *p)
{
    const esp_space_t *space = p->e->space;
    for (int32_t g = 0; g < space->n_groups; g++)
        p->group_weight[g] = (g ? p->group_weight[g - 1] : 0) + space->group_ns[g] + 1;
    return esp_i_groups_by_position(space, &p->e->alloc, p->by_position);
}

/*
 * All that is near has been seen: start again from a few random moves away from the best, from
 * where every step is an improvement.
 */
static void polish_restart(polish_t *p, int32_t *scratch)
{
    size_t bytes = (size_t)p->e->n_choices * sizeof *scratch;
    memcpy(p->current, p->e->best_choice, bytes);
    for (int64_t moves = 2 + esp_i_rng_below(&p->rng, 3); moves > 0; moves--) {
        propose(p, (move_t)esp_i_rng_below(&p->rng, MOVE_COUNT), scratch);
        memcpy(p->current, scratch, bytes);
    }
    p->outcome = (esp_outcome_t){.slack_bytes = INT64_MIN};
}

enum { IDLE_BATCHES_MAX = 256, IDLE_BATCHES_RESTART = 8 };

esp_status_t esp_i_polish(esp_i_evaluator_t *e, int64_t budget, bool *stopped, esp_diag_t *diag)
{
    int32_t n = e->space->n_groups;
    polish_t p = {.e = e, .outcome = e->best};
    esp_i_rng_seed(&p.rng, e->opts->seed ^ 0x9e3779b97f4a7c15u);
    int32_t *memory =
        esp_i_alloc_array(&e->alloc, (int64_t)(ESP_I_BATCH + 1) * e->n_choices + n, sizeof *memory);
    p.group_weight = esp_i_alloc_array(&e->alloc, n, sizeof *p.group_weight);
    esp_status_t status = memory && p.group_weight ? ESP_OK : esp_i_nomem(diag);
    if (status == ESP_OK) {
        p.current = memory + (int64_t)ESP_I_BATCH * e->n_choices;
        p.by_position = p.current + e->n_choices;
        memcpy(p.current, e->best_choice, (size_t)e->n_choices * sizeof *p.current);
        for (int32_t m = 0; m < MOVE_COUNT; m++)
            p.credit[m] = m == MOVE_PLAN ? 0.2 : 0.5;
        if (polish_index(&p) != ESP_OK)
            status = esp_i_nomem(diag);
    }
    for (int32_t idle = 0; status == ESP_OK && idle < IDLE_BATCHES_MAX &&
                           esp_i_evaluator_go_on(e, budget, "polishing", stopped);) {
        int64_t before = e->evaluations;
        status = polish_batch(&p, memory, diag);
        idle = e->evaluations == before ? idle + 1 : 0;
        if (idle % IDLE_BATCHES_RESTART == IDLE_BATCHES_RESTART - 1)
            polish_restart(&p, memory);
    }
    esp_i_free(&e->alloc, memory);
    esp_i_free(&e->alloc, p.group_weight);
    return status;
}
