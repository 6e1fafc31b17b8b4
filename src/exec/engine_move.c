/*
 * The movement stream: collectives one after the other, other movements whenever they are ready.
 *
 * A movement that is not ready waits in the list of the first instruction that stands in its way,
 * and is looked at again when that has completed a step: what happens costs as much as what it
 * concerns, not as much as there are movements.
 */
#include "exec/engine.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

enum { LONG_CALL_NS = 20000, IDLE_NS = 1000000 };

/* ---- what may start ---------------------------------------------------------------------- */

static bool later(const esp_i_movement_t *a, const esp_i_movement_t *b)
{
    return a->step != b->step ? a->step > b->step : a->instr > b->instr;
}

static void make_ready(esp_i_engine_t *engine, esp_i_movement_t *move)
{
    int32_t at = engine->n_ready++;
    for (; at > 0 && later(move, engine->ready[at - 1]); at--)
        engine->ready[at] = engine->ready[at - 1];
    engine->ready[at] = move;
}

/* `move` has nothing under way and waits nowhere: where does it go? */
static void consider(esp_i_engine_t *engine, esp_i_movement_t *move)
{
    if (move->step >= engine->end)
        return;
    if (move->collective != ESP_NONE && move->collective != engine->collective)
        return; /* the one before will */
    esp_i_movement_t **list = &engine->far;
    if (move->step - atomic_load_explicit(&engine->finished, memory_order_relaxed) < ESP_I_WINDOW) {
        const int32_t obstacle = esp_i_engine_obstacle(engine, move->instr, move->step);
        if (obstacle == ESP_NONE) {
            make_ready(engine, move);
            return;
        }
        list = &engine->watchers[obstacle];
    }
    move->watch = *list;
    *list = move;
}

static void consider_list(esp_i_engine_t *engine, esp_i_movement_t **list)
{
    esp_i_movement_t *move = *list;
    *list = NULL;
    while (move) {
        esp_i_movement_t *next = move->watch;
        consider(engine, move);
        move = next;
    }
}

/* What the compute stream has completed since the last look. */
static void look_at_compute(esp_i_engine_t *engine)
{
    const int64_t n = atomic_load_explicit(&engine->n_computed, memory_order_acquire);
    for (; engine->seen < n; engine->seen++)
        consider_list(engine, &engine->watchers[engine->compute[engine->seen % engine->n_compute]]);
}

/* Steps of which everything is done. */
static void look_at_steps(esp_i_engine_t *engine)
{
    int64_t finished = atomic_load_explicit(&engine->finished, memory_order_relaxed);
    const int64_t before = finished;
    while (finished < engine->end && engine->left[finished % ESP_I_WINDOW] == 0 &&
           atomic_load_explicit(&engine->computed_steps, memory_order_acquire) > finished) {
        engine->left[finished % ESP_I_WINDOW] = engine->n_moves;
        if (engine->run.step_end_ns)
            engine->run.step_end_ns[finished - engine->base] = esp_i_now_ns();
        atomic_store_explicit(&engine->finished, ++finished, memory_order_release);
    }
    if (finished == before)
        return;
    consider_list(engine, &engine->far);
    esp_i_engine_tell_compute(engine);
}

/* ---- carrying out ------------------------------------------------------------------------ */

static void complete(esp_i_engine_t *engine, esp_i_movement_t *move)
{
    const int32_t instr = move->instr;
    if (engine->end_ns && move->step + 1 == engine->end)
        engine->end_ns[instr] = esp_i_now_ns();
    esp_i_engine_loss(engine, instr, move->step);
    engine->left[move->step % ESP_I_WINDOW]--;
    move->step++;
    move->stage = 0;
    atomic_store_explicit(&engine->done[instr], move->step, memory_order_release);
    esp_i_engine_tell_compute(engine);
    if (move->collective != ESP_NONE) {
        engine->collective = (engine->collective + 1) % engine->n_collectives;
        consider(engine, engine->collectives[engine->collective]);
    } else {
        consider(engine, move);
    }
    consider_list(engine, &engine->watchers[instr]);
}

static esp_status_t start_stage(esp_i_engine_t *engine, esp_i_movement_t *move,
                                const esp_i_stage_t *stage, esp_diag_t *diag)
{
    esp_i_comm_t *comm = engine->spec.comm;
    for (int32_t t = stage->first_transfer; t < stage->first_transfer + stage->n_transfers; t++) {
        ESP_TRY(comm->type->start(comm, engine->message[t], diag));
        engine->under_way[engine->n_under_way] = engine->message[t];
        engine->mover[engine->n_under_way++] = move;
        move->left++;
    }
    return ESP_OK;
}

/* Starts stages until one has messages under way, or all are done. */
static esp_status_t advance(esp_i_engine_t *engine, esp_i_movement_t *move, esp_diag_t *diag)
{
    const esp_i_program_t *p = engine->program;
    const esp_i_instr_t *in = &p->instr[move->instr];
    for (; move->stage < in->n; move->stage++) {
        const esp_i_stage_t *stage = &p->stage[in->first + move->stage];
        ESP_TRY(start_stage(engine, move, stage, diag));
        if (move->left > 0)
            return ESP_OK;
        esp_i_engine_work(engine, stage->first_work, stage->n_work);
    }
    complete(engine, move);
    return ESP_OK;
}

static esp_status_t start_ready(esp_i_engine_t *engine, esp_i_movement_t **guilty, esp_diag_t *diag)
{
    while (engine->n_ready > 0) {
        esp_i_movement_t *move = engine->ready[--engine->n_ready];
        if (engine->start_ns && move->step + 1 == engine->end)
            engine->start_ns[move->instr] = esp_i_now_ns();
        *guilty = move;
        ESP_TRY(advance(engine, move, diag));
    }
    return ESP_OK;
}

/* Takes out the messages that have ended; movements without any are through with their stage. */
static int32_t take_ended(esp_i_engine_t *engine)
{
    int32_t kept = 0, n_through = 0;
    for (int32_t i = 0; i < engine->n_under_way; i++) {
        esp_i_movement_t *move = engine->mover[i];
        if (engine->ended[i]) {
            if (--move->left == 0)
                engine->through[n_through++] = move;
        } else {
            engine->under_way[kept] = engine->under_way[i];
            engine->mover[kept++] = move;
        }
    }
    engine->n_under_way = kept;
    return n_through;
}

/* Progress of the messages under way. */
static esp_status_t poll(esp_i_engine_t *engine, bool *progress_out, esp_i_movement_t **guilty,
                         esp_diag_t *diag)
{
    const esp_i_program_t *p = engine->program;
    esp_i_comm_t *comm = engine->spec.comm;
    const int64_t before = comm->wakes ? 0 : esp_i_thread_ns();
    *guilty = engine->n_under_way > 0 ? engine->mover[0] : NULL;
    ESP_TRY(comm->type->test(comm, engine->n_under_way, engine->under_way, engine->ended,
                             progress_out, diag));
    if (*progress_out) {
        const int32_t n_through = take_ended(engine);
        for (int32_t i = 0; i < n_through; i++) {
            esp_i_movement_t *move = engine->through[i];
            const esp_i_instr_t *in = &p->instr[move->instr];
            const esp_i_stage_t *stage = &p->stage[in->first + move->stage++];
            esp_i_engine_work(engine, stage->first_work, stage->n_work);
            *guilty = move;
            ESP_TRY(advance(engine, move, diag));
        }
    } else if (!comm->wakes) { /* a long call moved data */
        *progress_out = esp_i_thread_ns() - before > LONG_CALL_NS;
    }
    return ESP_OK;
}

/* ---- waiting ----------------------------------------------------------------------------- */

static void wait_ns(esp_i_engine_t *engine, int64_t ns)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t at = until.tv_nsec + ns;
    until.tv_sec += (time_t)(at / 1000000000);
    until.tv_nsec = (long)(at % 1000000000);
    (void)pthread_cond_timedwait(&engine->for_moves, &engine->mutex, &until);
}

/*
 * Until something has happened since `events` was `seen`. A backend that does not wake is polled,
 * more seldom where nothing is under way: what was sent may still be in its buffers.
 */
static void rest(esp_i_engine_t *engine, uint64_t seen, esp_i_idle_t *idle)
{
    const bool polls = !engine->spec.comm->wakes;
    int64_t ns = polls ? esp_i_comm_pause_ns(idle) : 0;
    if (polls && ns == 0 && engine->n_under_way > 0) {
        (void)sched_yield();
        return;
    }
    if (engine->n_under_way == 0)
        ns = IDLE_NS;
    pthread_mutex_lock(&engine->mutex);
    if (polls && engine->events == seen)
        wait_ns(engine, ns);
    while (!polls && engine->events == seen)
        pthread_cond_wait(&engine->for_moves, &engine->mutex);
    pthread_mutex_unlock(&engine->mutex);
}

static uint64_t events_now(esp_i_engine_t *engine)
{
    pthread_mutex_lock(&engine->mutex);
    const uint64_t events = engine->events;
    pthread_mutex_unlock(&engine->mutex);
    return events;
}

/* ---- the run ----------------------------------------------------------------------------- */

static void blame_move(esp_i_engine_t *engine, const esp_i_movement_t *guilty, esp_diag_t *diag)
{
    const esp_i_program_t *p = engine->program;
    if (diag->place[0]) /* another rank's failure */
        return;
    diag->status = ESP_ERR_IO;
    if (guilty)
        esp_i_engine_blame(engine, guilty->step, "movement for op",
                           esp_i_task_name(p->deployment, p->instr[guilty->instr].task), diag);
    else
        esp_i_engine_blame(engine, atomic_load(&engine->finished), "movements", "under way", diag);
}

/* One round: looks, starts, polls. */
static esp_status_t round_of(esp_i_engine_t *engine, bool *progress_out, esp_i_movement_t **guilty,
                             esp_diag_t *diag)
{
    look_at_compute(engine);
    look_at_steps(engine);
    *progress_out = engine->n_ready > 0;
    ESP_TRY(start_ready(engine, guilty, diag));
    bool moved = false;
    ESP_TRY(poll(engine, &moved, guilty, diag));
    *progress_out |= moved;
    return ESP_OK;
}

static void start_run(esp_i_engine_t *engine)
{
    for (int32_t i = 0; i < engine->n_moves; i++)
        if (engine->move[i].collective == ESP_NONE)
            consider(engine, &engine->move[i]);
    if (engine->n_collectives > 0)
        consider(engine, engine->collectives[engine->collective]);
}

void esp_i_engine_move(esp_i_engine_t *engine)
{
    esp_i_idle_t idle = {0};
    start_run(engine);
    for (;;) {
        const uint64_t seen = events_now(engine); /* first: a failure after it is an event */
        if (atomic_load(&engine->failed))
            break;
        bool progress = false;
        esp_i_movement_t *guilty = NULL;
        esp_diag_t diag = {0};
        const esp_status_t status = round_of(engine, &progress, &guilty, &diag);
        if (status != ESP_OK) {
            blame_move(engine, guilty, &diag);
            esp_i_engine_fail(engine, diag.status, &diag);
            break;
        }
        if (atomic_load_explicit(&engine->finished, memory_order_relaxed) == engine->end)
            return;
        if (progress)
            idle = (esp_i_idle_t){0};
        else
            rest(engine, seen, &idle);
    }
    engine->spec.comm->type->abort(engine->spec.comm, &engine->why);
}
