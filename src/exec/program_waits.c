/*
 * What each instruction of a program waits for.
 *
 * Dependencies between tasks that both take part here, less what the stream order gives: compute
 * instructions run one after the other, so a movement waits for the last of those it depends on,
 * and of those that depend on a movement the first one waits. The other way round, a collective
 * waits for the one before it: packing counts on their order.
 */
#include "exec/schedule.h"

typedef struct edge {
    int32_t before, after;
} edge_t;

typedef ESP_VEC(edge_t) edges_t;

typedef struct waits {
    esp_i_program_t *program;
    const int32_t *instr_of;
    edges_t within, between;
    edges_t *edges; /* one of the two: that which grows */
    int32_t *last;  /* per instruction: the last compute that it depends on; ESP_NONE */
    int32_t *first; /* per instruction: the first compute that depends on it; ESP_NONE */
} waits_t;

static bool moves(const waits_t *w, int32_t instr)
{
    return w->program->instr[instr].kind == ESP_TASK_COMM;
}

static bool edge_add(waits_t *w, int32_t before, int32_t after)
{
    return esp_vec_push(&w->program->alloc, w->edges, ((edge_t){before, after}));
}

static bool depend(waits_t *w, int32_t before, int32_t after)
{
    if (before == ESP_NONE || after == ESP_NONE)
        return true;
    if (moves(w, before) && moves(w, after))
        return edge_add(w, before, after);
    if (moves(w, before) && (w->first[before] == ESP_NONE || after < w->first[before]))
        w->first[before] = after;
    if (moves(w, after) && before > w->last[after])
        w->last[after] = before;
    return true;
}

static void stream_begin(waits_t *w, edges_t *edges)
{
    w->edges = edges;
    for (int32_t i = 0; i < w->program->n_instrs; i++)
        w->first[i] = w->last[i] = ESP_NONE;
}

/* Adds what is left of the dependencies between movements and the compute stream. */
static bool stream_end(waits_t *w)
{
    for (int32_t i = 0; i < w->program->n_instrs; i++)
        if ((w->first[i] != ESP_NONE && !edge_add(w, i, w->first[i])) ||
            (w->last[i] != ESP_NONE && !edge_add(w, w->last[i], i)))
            return false;
    return true;
}

static bool within_step(waits_t *w)
{
    const esp_deployment_t *d = w->program->deployment;
    stream_begin(w, &w->within);
    for (int32_t i = 0; i < w->program->n_instrs; i++) {
        const int32_t task = w->program->instr[i].task;
        for (int32_t s = d->successor_offset[task]; s < d->successor_offset[task + 1]; s++)
            if (!depend(w, i, w->instr_of[d->successor[s]]))
                return false;
    }
    return stream_end(w);
}

static bool between_steps(waits_t *w)
{
    const esp_deployment_t *d = w->program->deployment;
    stream_begin(w, &w->between);
    for (int32_t e = 0; e < d->n_cross; e++)
        if (!depend(w, w->instr_of[d->cross_before[e]], w->instr_of[d->cross_after[e]]))
            return false;
    return stream_end(w);
}

static bool collectives(waits_t *w)
{
    int32_t first = ESP_NONE, last = ESP_NONE;
    w->edges = &w->within;
    for (int32_t i = 0; i < w->program->n_instrs; i++) {
        if (!w->program->instr[i].collective)
            continue;
        if (last != ESP_NONE && !edge_add(w, last, i))
            return false;
        first = first == ESP_NONE ? i : first;
        last = i;
    }
    w->edges = &w->between;
    return first == ESP_NONE || edge_add(w, last, first);
}

/* ---- lists ------------------------------------------------------------------------------------
 */

/* Sorts edges by `after`: the list of instruction i is [begin[i], begin[i] + n[i]) of waits. */
static int32_t edges_sort(waits_t *w, const edges_t *edges, int32_t at, int32_t *begin, int32_t *n)
{
    const int32_t n_instrs = w->program->n_instrs;
    int32_t *waits = w->program->waits;
    for (int32_t i = 0; i < n_instrs; i++)
        n[i] = 0;
    for (int32_t e = 0; e < edges->count; e++)
        n[edges->data[e].after]++;
    for (int32_t i = 0; i < n_instrs; i++) {
        begin[i] = at;
        at += n[i];
        n[i] = 0;
    }
    for (int32_t e = 0; e < edges->count; e++) {
        const edge_t edge = edges->data[e];
        int32_t *list = waits + begin[edge.after], *count = &n[edge.after];
        if (*count == 0 || list[*count - 1] != edge.before) /* several buffers, one task */
            list[(*count)++] = edge.before;
    }
    return at;
}

static bool lists_make(waits_t *w)
{
    esp_i_program_t *program = w->program;
    const int64_t total = (int64_t)w->within.count + w->between.count;
    program->waits = esp_i_arena_alloc(&program->memory, total, sizeof *program->waits);
    if (!program->waits || total > INT32_MAX)
        return false;
    const int32_t at = edges_sort(w, &w->within, 0, w->first, w->last);
    for (int32_t i = 0; i < program->n_instrs; i++) {
        program->instr[i].wait = w->first[i];
        program->instr[i].n_wait = w->last[i];
    }
    (void)edges_sort(w, &w->between, at, w->first, w->last);
    for (int32_t i = 0; i < program->n_instrs; i++) {
        program->instr[i].previous = w->first[i];
        program->instr[i].n_previous = w->last[i];
    }
    return true;
}

bool esp_i_waits_find(esp_i_program_t *program, const int32_t *instr_of)
{
    const esp_allocator_t *alloc = &program->alloc;
    const int64_t n = (int64_t)program->n_instrs + 1;
    waits_t w = {.program = program, .instr_of = instr_of};
    w.first = esp_i_alloc_array(alloc, n, sizeof *w.first);
    w.last = esp_i_alloc_array(alloc, n, sizeof *w.last);
    const bool fine = w.first && w.last && within_step(&w) && between_steps(&w) &&
                      collectives(&w) && lists_make(&w);
    esp_vec_free(alloc, &w.within);
    esp_vec_free(alloc, &w.between);
    esp_i_free(alloc, w.first);
    esp_i_free(alloc, w.last);
    return fine;
}
