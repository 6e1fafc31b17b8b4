/* The compute stream: instructions in order. */
#include "exec/engine.h"

#include <string.h>

/* Waits until the instruction may start; false: somebody failed. */
static bool await(esp_i_engine_t *engine, int32_t instr, int64_t step)
{
    if (esp_i_engine_obstacle(engine, instr, step) == ESP_NONE)
        return !atomic_load(&engine->failed);
    pthread_mutex_lock(&engine->mutex);
    while (!atomic_load(&engine->failed) && esp_i_engine_obstacle(engine, instr, step) != ESP_NONE)
        pthread_cond_wait(&engine->for_compute, &engine->mutex);
    pthread_mutex_unlock(&engine->mutex);
    return !atomic_load(&engine->failed);
}

static bool await_window(esp_i_engine_t *engine, int64_t step)
{
    pthread_mutex_lock(&engine->mutex);
    while (!atomic_load(&engine->failed) && step - atomic_load(&engine->finished) >= ESP_I_WINDOW)
        pthread_cond_wait(&engine->for_compute, &engine->mutex);
    pthread_mutex_unlock(&engine->mutex);
    return !atomic_load(&engine->failed);
}

/* ---- inputs ------------------------------------------------------------------------------ */

static esp_status_t fill_input(esp_i_engine_t *engine, int32_t i, uint64_t number, esp_diag_t *diag)
{
    const esp_exec_feed_t *feed = engine->run.feed;
    const esp_i_local_t *local = engine->input[i];
    const esp_tensor_id_t tensor = engine->input_tensor[i];
    char *rows = esp_i_at(engine->spec.kernels, local->place);
    if (feed && feed->input)
        return feed->input(feed->context, number, tensor, local->view, local->offset, local->share,
                           rows, diag);
    esp_exec_initial(engine->program->deployment->graph, tensor, engine->spec.seed, number,
                     engine->program->wide, engine->whole);
    esp_i_rows_take(local, engine->whole, rows);
    return ESP_OK;
}

static bool fill_inputs(esp_i_engine_t *engine, int64_t step, uint64_t number)
{
    const esp_graph_t *g = engine->program->deployment->graph;
    for (int32_t i = 0; i < engine->n_inputs; i++) {
        esp_diag_t diag = {0};
        const esp_status_t status = fill_input(engine, i, number, &diag);
        if (status == ESP_OK)
            continue;
        esp_i_engine_blame(engine, step, "input", g->tensor_name[engine->input_tensor[i]], &diag);
        esp_i_engine_fail(engine, status, &diag);
        return false;
    }
    return true;
}

/* ---- instructions ------------------------------------------------------------------------ */

static const char *what(esp_task_kind_t kind)
{
    return kind == ESP_TASK_COMPUTE ? "compute" : kind == ESP_TASK_ADD ? "add" : "slice";
}

static bool carry_out(esp_i_engine_t *engine, const esp_i_instr_t *in, int64_t step,
                      const esp_i_moment_t *moment)
{
    esp_i_kernels_t *kernels = engine->spec.kernels;
    if (in->kind != ESP_TASK_COMPUTE) {
        esp_i_engine_work(engine, in->first, in->n);
        return true;
    }
    esp_diag_t diag = {0};
    if (kernels->type->run(kernels, engine->kernel[in->call], moment, &diag) == ESP_OK)
        return true;
    esp_i_engine_blame(engine, step, "op", engine->program->call[in->call].name, &diag);
    esp_i_engine_fail(engine, ESP_ERR_IO, &diag);
    return false;
}

static bool one_instr(esp_i_engine_t *engine, int32_t instr, int64_t step,
                      const esp_i_moment_t *moment)
{
    const esp_i_program_t *p = engine->program;
    const esp_i_instr_t *in = &p->instr[instr];
    const bool timed = engine->start_ns && step + 1 == engine->end;
    if (!await(engine, instr, step))
        return false;
    if (engine->spec.status)
        esp_i_status_task(engine->spec.status, engine->spec.comm->rank,
                          esp_i_device_name(p->deployment, p->device), moment->step, in->task,
                          what(in->kind), esp_i_task_name(p->deployment, in->task));
    if (timed)
        engine->start_ns[instr] = esp_i_now_ns();
    if (!carry_out(engine, in, step, moment))
        return false;
    if (timed)
        engine->end_ns[instr] = esp_i_now_ns();
    esp_i_engine_loss(engine, instr, step);
    atomic_store_explicit(&engine->done[instr], step + 1, memory_order_release);
    atomic_fetch_add_explicit(&engine->n_computed, 1, memory_order_release);
    if (engine->tells[instr])
        esp_i_engine_tell_moves(engine);
    return true;
}

static bool one_step(esp_i_engine_t *engine, int64_t step)
{
    const esp_exec_feed_t *feed = engine->run.feed;
    esp_i_moment_t moment = {.seed = engine->spec.seed,
                             .step = engine->run.first + (uint64_t)(step - engine->base),
                             .rate = 1};
    if (feed && feed->rate)
        moment.rate = feed->rate(feed->context, moment.step);
    if (!await_window(engine, step) || !fill_inputs(engine, step, moment.step))
        return false;
    esp_i_engine_loss(engine, ESP_NONE, step);
    for (int32_t i = 0; i < engine->n_compute; i++)
        if (!one_instr(engine, engine->compute[i], step, &moment))
            return false;
    atomic_store_explicit(&engine->computed_steps, step + 1, memory_order_release);
    esp_i_engine_tell_moves(engine);
    return true;
}

void esp_i_engine_compute(esp_i_engine_t *engine)
{
    int64_t step = engine->base;
    while (step < engine->end && one_step(engine, step))
        step++;
}
