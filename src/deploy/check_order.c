/*
 * Order: the global order, the dependencies it must respect, and which tasks are certain to follow
 * which. A task follows what it depends on; tasks of one compute stream, and movements in one
 * collective stream, follow each other in the global order, step after step.
 */
#include "deploy/check.h"

/* ---- dependencies -------------------------------------------------------------------------- */

static bool reads_of(const esp_deployment_t *d, int32_t task, int32_t producer)
{
    for (int32_t r = d->read_offset[task]; r < d->read_offset[task + 1]; r++)
        if (d->read_buffer[r] != ESP_NONE && d->buffer_producer[d->read_buffer[r]] == producer)
            return true;
    return false;
}

/* Dependencies are what the reads imply and the extra ones, as often as they are implied. */
static esp_status_t check_successors(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    const int32_t n = d->n_tasks;
    int32_t *need = esp_i_arena_alloc(&check->arena, n, sizeof *need);
    int32_t *have = esp_i_arena_alloc(&check->arena, n, sizeof *have);
    int32_t *into = esp_i_arena_alloc(&check->arena, n, sizeof *into);
    if (!need || !have || !into)
        return esp_i_nomem(check->diag);
    for (int32_t t = 0; t < n; t++)
        for (int32_t r = d->read_offset[t]; r < d->read_offset[t + 1]; r++) {
            int32_t b = d->read_buffer[r], made = b == ESP_NONE ? b : d->buffer_producer[b];
            if (made != ESP_NONE && made != t)
                need[made]++, into[t]++;
        }
    for (int32_t e = 0; e < d->n_extra; e++)
        need[d->extra_before[e]]++, into[d->extra_after[e]]++;
    for (int32_t t = 0; t < n; t++) {
        have[t] = d->successor_offset[t + 1] - d->successor_offset[t];
        if (have[t] != need[t] || into[t] != d->n_predecessors[t])
            return esp_i_check_task_fail(check, t,
                                         "has %d successors and %d predecessors listed, and %d and "
                                         "%d in fact",
                                         have[t], d->n_predecessors[t], need[t], into[t]);
    }
    return ESP_OK;
}

/* Every successor is one by a read or by an extra dependency; with the counts this is equality. */
static esp_status_t check_edges(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    int32_t *extra = esp_i_arena_alloc(&check->arena, d->n_extra, sizeof *extra);
    int32_t *first = esp_i_arena_alloc(&check->arena, (int64_t)d->n_tasks + 2, sizeof *first);
    if (!extra || !first)
        return esp_i_nomem(check->diag);
    for (int32_t e = 0; e < d->n_extra; e++)
        first[d->extra_before[e] + 2]++;
    for (int32_t t = 0; t < d->n_tasks; t++)
        first[t + 2] += first[t + 1];
    for (int32_t e = 0; e < d->n_extra; e++)
        extra[first[d->extra_before[e] + 1]++] = d->extra_after[e];
    for (int32_t t = 0; t < d->n_tasks; t++)
        for (int32_t s = d->successor_offset[t]; s < d->successor_offset[t + 1]; s++) {
            int32_t after = d->successor[s], e = first[t];
            if (d->position[t] >= d->position[after])
                return esp_i_check_task_fail(check, after,
                                             "is at position %d, but depends on task %d at %d",
                                             d->position[after], t, d->position[t]);
            if (reads_of(d, after, t))
                continue;
            while (e < first[t + 1] && extra[e] != after)
                e++;
            if (e == first[t + 1])
                return esp_i_check_task_fail(check, after,
                                             "does not depend on task %d, but is its "
                                             "successor",
                                             t);
        }
    return ESP_OK;
}

static esp_status_t check_permutation(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    for (int32_t p = 0; p < d->n_tasks; p++)
        if (d->position[d->order[p]] != p)
            return esp_i_check_task_fail(check, d->order[p],
                                         "is at %d in the global order, its position says %d", p,
                                         d->position[d->order[p]]);
    return ESP_OK;
}

/* ---- streams ------------------------------------------------------------------------------- */

static esp_status_t index_streams(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    esp_i_arena_t *arena = &check->arena;
    check->compute_next = esp_i_arena_alloc(arena, d->n_tasks, sizeof(int32_t));
    check->compute_first = esp_i_arena_alloc(arena, d->n_classes, sizeof(int32_t));
    check->collective_next =
        esp_i_arena_alloc(arena, d->comm_class_offset[d->n_comms], sizeof(int32_t));
    check->collective_first = esp_i_arena_alloc(arena, d->n_classes, sizeof(int32_t));
    if (!check->compute_next || !check->compute_first || !check->collective_next ||
        !check->collective_first)
        return esp_i_nomem(check->diag);
    for (int32_t c = 0; c < d->n_classes; c++)
        check->compute_first[c] = check->collective_first[c] = ESP_NONE;
    for (int32_t p = d->n_tasks - 1; p >= 0; p--) {
        int32_t t = d->order[p], comm = d->task_comm[t], class_ = d->task_class[t];
        if (comm == ESP_NONE) {
            check->compute_next[t] = check->compute_first[class_];
            check->compute_first[class_] = t;
            continue;
        }
        for (int32_t i = d->comm_class_offset[comm];
             d->comm_collective[comm] && i < d->comm_class_offset[comm + 1]; i++) {
            check->collective_next[i] = check->collective_first[d->comm_class[i]];
            check->collective_first[d->comm_class[i]] = t;
        }
    }
    return ESP_OK;
}

static bool same_stream(const esp_deployment_t *d, int32_t a, int32_t b)
{
    int32_t x = d->task_comm[a], y = d->task_comm[b];
    if (x == ESP_NONE || y == ESP_NONE)
        return x == y && d->task_class[a] == d->task_class[b];
    if (!d->comm_collective[x] || !d->comm_collective[y])
        return false;
    for (int32_t i = d->comm_class_offset[x]; i < d->comm_class_offset[x + 1]; i++)
        for (int32_t j = d->comm_class_offset[y]; j < d->comm_class_offset[y + 1]; j++)
            if (d->comm_class[i] == d->comm_class[j])
                return true;
    return false;
}

/* ---- paths --------------------------------------------------------------------------------- */

typedef struct search {
    esp_i_check_t *check;
    int32_t steps, limit; /* nodes of the last step beyond this position lead nowhere */
    int32_t tail;
} search_t;

static void visit(search_t *search, int32_t step, int32_t task)
{
    esp_i_check_t *check = search->check;
    int32_t node = step * check->d->n_tasks + task;
    if (step >= search->steps || check->mark[node] == check->stamp ||
        (step == search->steps - 1 && check->d->position[task] > search->limit))
        return;
    check->mark[node] = check->stamp;
    check->queue[search->tail++] = node;
}

/* The next in a stream: the first of the next step after the last one. */
static void visit_next(search_t *search, int32_t step, int32_t next, int32_t first)
{
    visit(search, next == ESP_NONE ? step + 1 : step, next == ESP_NONE ? first : next);
}

static void visit_all(search_t *search, int32_t step, int32_t task)
{
    const esp_i_check_t *check = search->check;
    const esp_deployment_t *d = check->d;
    int32_t comm = d->task_comm[task];
    for (int32_t s = d->successor_offset[task]; s < d->successor_offset[task + 1]; s++)
        visit(search, step, d->successor[s]);
    for (int32_t e = check->cross_offset[task]; e < check->cross_offset[task + 1]; e++)
        visit(search, step + 1, check->cross[e]);
    if (comm == ESP_NONE)
        visit_next(search, step, check->compute_next[task],
                   check->compute_first[d->task_class[task]]);
    else if (d->comm_collective[comm])
        for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; i++)
            visit_next(search, step, check->collective_next[i],
                       check->collective_first[d->comm_class[i]]);
}

/* Whether a path leads from task a of step 0 to task b of step steps - 1. */
static bool reaches(esp_i_check_t *check, int32_t a, int32_t b, int32_t steps)
{
    search_t search = {check, steps, check->d->position[b], 0};
    const int32_t n = check->d->n_tasks, goal = (steps - 1) * n + b;
    check->stamp++;
    visit_all(&search, 0, a);
    for (int32_t head = 0; head < search.tail; head++) {
        if (check->queue[head] == goal)
            return true;
        visit_all(&search, check->queue[head] / n, check->queue[head] % n);
    }
    return false;
}

/* ---- tables that answer most questions at once ---------------------------------------------- */

#define REACH_MAX ((int64_t)1 << 25) /* entries */

static void reach_join(esp_i_check_t *check, int32_t task, int32_t after)
{
    const esp_deployment_t *d = check->d;
    int32_t *to = check->reach + (int64_t)task * d->n_classes, class_ = d->task_class[after];
    const int32_t *from = check->reach + (int64_t)after * d->n_classes;
    for (int32_t c = 0; c < d->n_classes; c++)
        to[c] = from[c] < to[c] ? from[c] : to[c];
    if (class_ != ESP_NONE && d->position[after] < to[class_])
        to[class_] = d->position[after];
}

static esp_status_t index_reach(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    int64_t entries = (int64_t)d->n_tasks * d->n_classes;
    if (entries > REACH_MAX)
        return ESP_OK;
    check->reach = esp_i_arena_alloc(&check->arena, entries, sizeof(int32_t));
    if (!check->reach)
        return esp_i_nomem(check->diag);
    for (int64_t i = 0; i < entries; i++)
        check->reach[i] = INT32_MAX;
    for (int32_t p = d->n_tasks - 1; p >= 0; p--) {
        int32_t t = d->order[p], comm = d->task_comm[t];
        for (int32_t s = d->successor_offset[t]; s < d->successor_offset[t + 1]; s++)
            reach_join(check, t, d->successor[s]);
        if (comm == ESP_NONE && check->compute_next[t] != ESP_NONE)
            reach_join(check, t, check->compute_next[t]);
        for (int32_t i = comm == ESP_NONE ? 0 : d->comm_class_offset[comm];
             comm != ESP_NONE && i < d->comm_class_offset[comm + 1]; i++)
            if (d->comm_collective[comm] && check->collective_next[i] != ESP_NONE)
                reach_join(check, t, check->collective_next[i]);
    }
    return ESP_OK;
}

static esp_status_t index_before(esp_i_check_t *check)
{
    const esp_deployment_t *d = check->d;
    const int32_t n = d->n_tasks;
    check->before_offset = esp_i_arena_alloc(&check->arena, (int64_t)n + 2, sizeof(int32_t));
    check->before = esp_i_arena_alloc(&check->arena, d->successor_offset[n], sizeof(int32_t));
    if (!check->before_offset || !check->before)
        return esp_i_nomem(check->diag);
    for (int32_t t = 0; t < n; t++)
        check->before_offset[t + 1] = check->before_offset[t] + d->n_predecessors[t];
    for (int32_t t = 0; t < n; t++)
        for (int32_t s = d->successor_offset[t]; s < d->successor_offset[t + 1]; s++)
            check->before[check->before_offset[d->successor[s]]++] = t;
    for (int32_t t = n; t > 0; t--)
        check->before_offset[t] = check->before_offset[t - 1];
    check->before_offset[0] = 0;
    return ESP_OK;
}

/* A compute task that `a` is, or that follows it, is at most at this position of its class. */
static int32_t reached(const esp_i_check_t *check, int32_t a, int32_t class_)
{
    if (check->d->task_class[a] == class_)
        return check->d->position[a];
    return check->reach[(int64_t)a * check->d->n_classes + class_];
}

/* Whether the table knows that compute task p is a, or follows it in the same step. */
static bool passes(const esp_i_check_t *check, int32_t a, int32_t p)
{
    int32_t class_ = check->d->task_class[p];
    return class_ != ESP_NONE && reached(check, a, class_) <= check->d->position[p];
}

/*
 * Whether the table knows that b follows a, or of the next step: then the class of b, or of what b
 * depends on, has only to be reached anywhere in the first one, or what b waits for of that step.
 */
static bool known(const esp_i_check_t *check, int32_t a, int32_t b, bool next)
{
    const esp_deployment_t *d = check->d;
    if (!check->reach)
        return false;
    if (d->task_class[b] != ESP_NONE)
        return reached(check, a, d->task_class[b]) <= (next ? INT32_MAX - 1 : d->position[b]);
    for (int32_t i = check->before_offset[b]; i < check->before_offset[b + 1]; i++) {
        int32_t p = check->before[i];
        if (d->task_class[p] != ESP_NONE &&
            reached(check, a, d->task_class[p]) <= (next ? INT32_MAX - 1 : d->position[p]))
            return true;
    }
    for (int32_t i = check->back_offset[b]; next && i < check->back_offset[b + 1]; i++)
        if (passes(check, a, check->back[i]))
            return true;
    return false;
}

bool esp_i_check_before(esp_i_check_t *check, int32_t a, int32_t b)
{
    const esp_deployment_t *d = check->d;
    if (d->position[a] >= d->position[b])
        return false;
    if (same_stream(d, a, b) || known(check, a, b, false))
        return true;
    for (int32_t s = d->successor_offset[a]; s < d->successor_offset[a + 1]; s++)
        if (d->successor[s] == b)
            return true;
    return reaches(check, a, b, 1);
}

bool esp_i_check_before_next(esp_i_check_t *check, int32_t a, int32_t b)
{
    if (same_stream(check->d, a, b) || known(check, a, b, true))
        return true;
    for (int32_t e = check->cross_offset[a]; e < check->cross_offset[a + 1]; e++)
        if (check->cross[e] == b)
            return true;
    return reaches(check, a, b, 2);
}

esp_status_t esp_i_check_order(esp_i_check_t *check)
{
    ESP_TRY(check_permutation(check));
    ESP_TRY(check_successors(check));
    ESP_TRY(check_edges(check));
    ESP_TRY(index_streams(check));
    ESP_TRY(index_before(check));
    return index_reach(check);
}
