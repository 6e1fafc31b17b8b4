/* Inside of the search: the evaluator, and what the parts of a search share. */
#ifndef ESP_SEARCH_INTERNAL_H
#define ESP_SEARCH_INTERNAL_H

#include "base/base.h"
#include "espalier/search.h"

/* Strategies are evaluated in batches of this many, whatever the number of threads. */
enum { ESP_I_BATCH = 16, ESP_I_MICRO_CHOICES = 4, ESP_I_BUCKET_CHOICES = 4 };
extern const int32_t esp_i_micro_choice[ESP_I_MICRO_CHOICES];
extern const int64_t esp_i_bucket_choice[ESP_I_BUCKET_CHOICES];

/*
 * A point of the search is an array of n_groups + 2 numbers: one action per op group, then the
 * choices of the whole plan as indices into the two tables above. It is also the key of the cache.
 */

typedef struct esp_i_worker {
    esp_lowerer_t *lowerer;
    esp_sim_t *sim;
    int32_t *op_mesh;
    uint8_t *op_mode;
    esp_status_t status;
    esp_diag_t diag;
} esp_i_worker_t;

typedef struct esp_i_cached {
    uint64_t hash;
    int32_t *choice; /* NULL: empty slot */
    esp_outcome_t outcome;
    bool measured; /* by packed arenas, not by the live peak */
} esp_i_cached_t;

typedef struct esp_i_evaluator {
    esp_allocator_t alloc;
    const esp_space_t *space;
    const esp_search_opts_t *opts;
    esp_i_pool_t *pool;
    int32_t n_workers;
    esp_i_worker_t *worker;
    esp_i_arena_t keys;
    esp_i_cached_t *cache;
    int32_t cache_slots, cache_count;
    int64_t evaluations;
    double started_s;

    int32_t n_choices;    /* n_groups + 2 */
    int32_t *best_choice; /* of the best feasible point; if none, of the least excess */
    esp_outcome_t best;
    bool has_best;
} esp_i_evaluator_t;

double esp_i_now_s(void);
esp_status_t esp_i_evaluator_init(esp_i_evaluator_t *e, const esp_space_t *space,
                                  const esp_search_opts_t *opts, const esp_allocator_t *alloc,
                                  esp_diag_t *diag);
void esp_i_evaluator_fini(esp_i_evaluator_t *e);

/* Whether another batch may be evaluated; asks the progress callback. */
bool esp_i_evaluator_go_on(esp_i_evaluator_t *e, int64_t budget, const char *what, bool *stopped);
/*
 * Evaluates `n` points (rows of n_choices numbers); those in the cache, and repetitions inside the
 * batch, cost nothing. Keeps the best point ever seen, ties to the first in order.
 */
esp_status_t esp_i_evaluate(esp_i_evaluator_t *e, int32_t n, const int32_t *choices,
                            esp_outcome_t *outcomes_out, esp_diag_t *diag);
/* One strategy outside the space of points, on worker 0; counts as an evaluation. */
esp_status_t esp_i_evaluate_strategy(esp_i_evaluator_t *e, const esp_strategy_t *strategy,
                                     esp_outcome_t *outcome_out, esp_diag_t *diag);
/* Point -> strategy in the memory of the worker. */
esp_status_t esp_i_point_strategy(esp_i_evaluator_t *e, esp_i_worker_t *w, const int32_t *choice,
                                  esp_strategy_t *strategy_out);
/* a before b: feasible first, then step time, then excess. */
bool esp_i_outcome_better(const esp_outcome_t *a, const esp_outcome_t *b);
/* TAG's reward (spec: MCTS): base / t - 1, compressed above 1; -1 and below where memory lacks. */
double esp_i_reward(const esp_outcome_t *outcome, int64_t base_ns);

/*
 * The fastest point that fits, of all or of those that were measured with packed arenas; ties to
 * the lexicographically first, since the table itself has no order. NULL: none.
 */
esp_i_cached_t *esp_i_best_cached(esp_i_evaluator_t *e, bool measured);
/* Whether choice `micro` (index) is exact and divides the batch. */
bool esp_i_micro_allowed(const esp_i_evaluator_t *e, int32_t micro);

esp_status_t esp_i_baselines(esp_i_evaluator_t *e, esp_search_result_t *result, int32_t *starts,
                             int32_t *n_starts, esp_diag_t *diag);
/* How many points there are; at most INT64_MAX. */
int64_t esp_i_point_count(const esp_i_evaluator_t *e);
/* Evaluates all of them. */
esp_status_t esp_i_enumerate(esp_i_evaluator_t *e, int64_t budget, bool *stopped, esp_diag_t *diag);
esp_status_t esp_i_sweep(esp_i_evaluator_t *e, int64_t budget, bool *stopped, esp_diag_t *diag);
esp_status_t esp_i_stages(esp_i_evaluator_t *e, int64_t budget, bool *stopped, esp_diag_t *diag);
/* Op groups in the order of their first op; order_out: n_groups entries. */
esp_status_t esp_i_groups_by_position(const esp_space_t *space, const esp_allocator_t *alloc,
                                      int32_t *order_out);
esp_status_t esp_i_mcts(esp_i_evaluator_t *e, int64_t budget, int64_t base_ns, bool *stopped,
                        esp_diag_t *diag);
esp_status_t esp_i_polish(esp_i_evaluator_t *e, int64_t budget, bool *stopped, esp_diag_t *diag);

#endif
