/* The engine: set-up, threads, failures. */
#include "exec/engine.h"

#include <stdio.h>
#include <string.h>

const char *esp_i_device_name(const esp_deployment_t *deployment, int32_t device)
{
    return deployment->cluster->vertex_name[device];
}

const char *esp_i_task_name(const esp_deployment_t *d, int32_t task)
{
    return d->task_op[task] == ESP_NONE ? "?" : d->graph->op_name[d->task_op[task]];
}

/* ---- failures and signals ---------------------------------------------------------------- */

void esp_i_engine_tell_moves(esp_i_engine_t *engine)
{
    pthread_mutex_lock(&engine->mutex);
    engine->events++;
    pthread_cond_signal(&engine->for_moves);
    pthread_mutex_unlock(&engine->mutex);
}

void esp_i_engine_tell_compute(esp_i_engine_t *engine)
{
    pthread_mutex_lock(&engine->mutex);
    pthread_cond_signal(&engine->for_compute);
    pthread_mutex_unlock(&engine->mutex);
}

static void wake(void *context)
{
    esp_i_engine_tell_moves(context);
}

void esp_i_engine_fail(esp_i_engine_t *engine, esp_status_t status, const esp_diag_t *why)
{
    pthread_mutex_lock(&engine->mutex);
    if (!atomic_load(&engine->failed)) {
        engine->status = status;
        engine->why = *why;
        engine->why.status = status;
        atomic_store(&engine->failed, true);
    }
    engine->events++;
    pthread_cond_signal(&engine->for_moves);
    pthread_cond_signal(&engine->for_compute);
    pthread_mutex_unlock(&engine->mutex);
}

void esp_i_engine_blame(const esp_i_engine_t *engine, int64_t step, const char *what,
                        const char *name, esp_diag_t *diag)
{
    const esp_i_program_t *p = engine->program;
    const esp_diag_t cause = *diag;
    const uint64_t number = engine->run.first + (uint64_t)(step - engine->base);
    (void)esp_i_fail(diag, cause.status, "step %llu, %s %s: %s%s%s", (unsigned long long)number,
                     what, name, cause.place, cause.place[0] ? ": " : "", cause.text);
    esp_i_diag_place(diag, "rank %d (%s)", engine->spec.comm->rank,
                     esp_i_device_name(p->deployment, p->device));
}

/* ---- what both streams do ---------------------------------------------------------------- */

void esp_i_engine_work(esp_i_engine_t *engine, int32_t first, int32_t n)
{
    const esp_i_program_t *p = engine->program;
    esp_i_kernels_t *kernels = engine->spec.kernels;
    for (int32_t i = first; i < first + n; i++) {
        const esp_i_work_t *work = &p->work[i];
        const int64_t *src = p->work_src + work->first_src;
        if (work->add)
            kernels->type->add(kernels, work->dtype, work->n, work->dst, work->n_src, src);
        else
            kernels->type->copy(kernels, work->n, work->dst, src[0]);
    }
}

void esp_i_engine_loss(esp_i_engine_t *engine, int32_t instr, int64_t step)
{
    const esp_i_program_t *p = engine->program;
    const esp_graph_t *g = p->deployment->graph;
    if (p->loss_place < 0 || p->loss_instr != instr || !engine->run.loss)
        return;
    esp_i_kernels_t *kernels = engine->spec.kernels;
    double wide = 0;
    float narrow = 0;
    const bool is_wide =
        esp_i_stored_dtype((esp_dtype_t)g->tensor_dtype[g->loss], p->wide) == ESP_DTYPE_F64;
    if (is_wide)
        kernels->type->read(kernels, sizeof wide, &wide, p->loss_place);
    else
        kernels->type->read(kernels, sizeof narrow, &narrow, p->loss_place);
    engine->run.loss[step - engine->base] = is_wide ? wide : (double)narrow;
}

/* ---- set-up ------------------------------------------------------------------------------ */

static int32_t count_transfers(const esp_i_program_t *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++)
        for (int32_t s = 0; p->instr[i].kind == ESP_TASK_COMM && s < p->instr[i].n; s++) {
            const esp_i_stage_t *stage = &p->stage[p->instr[i].first + s];
            const int32_t end = stage->first_transfer + stage->n_transfers;
            n = end > n ? end : n;
        }
    return n;
}

static void *take(esp_i_engine_t *engine, int64_t n, size_t size, bool *fine)
{
    void *memory = esp_i_arena_alloc(&engine->memory, n, size);
    *fine &= memory != NULL;
    return memory;
}

static bool allocate(esp_i_engine_t *engine)
{
    const esp_i_program_t *p = engine->program;
    const int32_t n = p->n_instrs, transfers = count_transfers(p);
    bool fine = true;
    engine->kernel = take(engine, p->n_calls, sizeof *engine->kernel, &fine);
    engine->message = take(engine, transfers, sizeof *engine->message, &fine);
    engine->compute = take(engine, n, sizeof *engine->compute, &fine);
    engine->tells = take(engine, n, sizeof *engine->tells, &fine);
    engine->input = take(engine, p->n_residents, sizeof *engine->input, &fine);
    engine->input_tensor = take(engine, p->n_residents, sizeof *engine->input_tensor, &fine);
    engine->done = take(engine, n, sizeof *engine->done, &fine);
    engine->move = take(engine, n, sizeof *engine->move, &fine);
    engine->collectives = take(engine, n, sizeof(void *), &fine);
    engine->watchers = take(engine, n, sizeof(void *), &fine);
    engine->ready = take(engine, n, sizeof(void *), &fine);
    engine->through = take(engine, n, sizeof(void *), &fine);
    engine->under_way = take(engine, transfers, sizeof(void *), &fine);
    engine->mover = take(engine, transfers, sizeof(void *), &fine);
    engine->ended = take(engine, transfers, sizeof *engine->ended, &fine);
    if (engine->spec.timeline) {
        engine->start_ns = take(engine, n, sizeof *engine->start_ns, &fine);
        engine->end_ns = take(engine, n, sizeof *engine->end_ns, &fine);
    }
    return fine;
}

/* Which instruction is of which stream. */
static void sort_instrs(esp_i_engine_t *engine)
{
    const esp_i_program_t *p = engine->program;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const esp_i_instr_t *in = &p->instr[i];
        if (in->kind != ESP_TASK_COMM) {
            engine->compute[engine->n_compute++] = i;
            continue;
        }
        esp_i_movement_t *move = &engine->move[engine->n_moves++];
        *move = (esp_i_movement_t){.instr = i, .collective = ESP_NONE};
        if (in->collective) {
            move->collective = engine->n_collectives;
            engine->collectives[engine->n_collectives++] = move;
        }
        for (int32_t w = 0; w < in->n_wait; w++)
            engine->tells[p->waits[in->wait + w]] = true;
        for (int32_t w = 0; w < in->n_previous; w++)
            engine->tells[p->waits[in->previous + w]] = true;
    }
    for (int32_t s = 0; s < ESP_I_WINDOW; s++)
        engine->left[s] = engine->n_moves;
}

static bool find_inputs(esp_i_engine_t *engine)
{
    const esp_i_program_t *p = engine->program;
    const esp_graph_t *g = p->deployment->graph;
    int64_t bytes = 0;
    bool fine = true;
    for (int32_t i = 0; i < p->n_residents; i++) {
        const esp_tensor_id_t t = p->resident[i].tensor;
        if (g->tensor_role[t] != ESP_ROLE_INPUT)
            continue;
        engine->input_tensor[engine->n_inputs] = t;
        engine->input[engine->n_inputs++] = &p->resident[i].local;
        bytes = esp_i_max_i64(bytes,
                              g->tensor_elements[t] * esp_dtype_bytes(p->resident[i].local.dtype));
    }
    engine->whole = take(engine, bytes, 1, &fine);
    return fine;
}

static esp_status_t prepare_kernels(esp_i_engine_t *engine, esp_diag_t *diag)
{
    const esp_i_program_t *p = engine->program;
    esp_i_kernels_t *kernels = engine->spec.kernels;
    char *memory;
    if (kernels->type->arena(kernels, p->arena_bytes, &memory) != ESP_OK)
        return esp_i_fail(diag, ESP_ERR_NOMEM, "no memory for the arena of %s (%lld bytes)",
                          esp_i_device_name(p->deployment, p->device), (long long)p->arena_bytes);
    for (int32_t i = 0; i < p->n_calls; i++)
        ESP_TRY(kernels->type->prepare(kernels, &p->call[i], &engine->kernel[i], diag));
    return ESP_OK;
}

static esp_status_t prepare_message(esp_i_engine_t *engine, int32_t transfer, int32_t tag,
                                    esp_i_piece_t *piece, esp_diag_t *diag)
{
    const esp_i_program_t *p = engine->program;
    esp_i_comm_t *comm = engine->spec.comm;
    const esp_i_transfer_t *t = &p->transfer[transfer];
    for (int32_t i = 0; i < t->n; i++) {
        const esp_i_extent_t *extent = &p->extent[t->first + i];
        piece[i] = (esp_i_piece_t){esp_i_at(engine->spec.kernels, extent->place), extent->bytes};
    }
    return comm->type->prepare(comm, t->send, engine->spec.rank_of[t->peer], tag, t->n, piece,
                               &engine->message[transfer], diag);
}

static esp_status_t prepare_messages(esp_i_engine_t *engine, esp_diag_t *diag)
{
    const esp_i_program_t *p = engine->program;
    esp_status_t status = ESP_OK;
    ESP_VEC(esp_i_piece_t) piece = {0};
    for (int32_t m = 0; m < engine->n_moves; m++) {
        const esp_i_instr_t *in = &p->instr[engine->move[m].instr];
        for (int32_t s = in->first; s < in->first + in->n; s++) {
            const esp_i_stage_t *stage = &p->stage[s];
            for (int32_t t = stage->first_transfer;
                 t < stage->first_transfer + stage->n_transfers && status == ESP_OK; t++) {
                if (p->transfer[t].mesh != ESP_NONE)
                    continue; /* esp_i_engine_join */
                piece.count = 0;
                status = esp_vec_extend(&engine->alloc, &piece, p->transfer[t].n)
                             ? prepare_message(engine, t, in->comm, piece.data, diag)
                             : esp_i_nomem(diag);
            }
        }
    }
    esp_vec_free(&engine->alloc, &piece);
    return status;
}

/* member, count: room for the devices of its mesh. */
static esp_status_t prepare_collective(esp_i_engine_t *engine, int32_t transfer, int32_t *member,
                                       int32_t *count, esp_diag_t *diag)
{
    const esp_i_program_t *p = engine->program;
    const esp_deployment_t *d = p->deployment;
    esp_i_comm_t *comm = engine->spec.comm;
    const esp_i_transfer_t *t = &p->transfer[transfer];
    const esp_i_extent_t *extent = &p->extent[t->first];
    const int32_t first = d->mesh_offset[t->mesh], n = d->mesh_offset[t->mesh + 1] - first;
    if (!comm->type->collective)
        return esp_i_fail(diag, ESP_ERR_UNSUPPORTED, "ranks of kind %s have no collectives",
                          comm->type->name);
    for (int32_t k = 0; k < n; k++)
        member[k] = engine->spec.rank_of[d->mesh_device[first + k]];
    for (int32_t k = 0; k < n && k < t->n; k++)
        count[k] = (int32_t)(extent[k].bytes / esp_dtype_bytes(t->dtype));
    const esp_i_collective_t what = {
        .kind = t->kind,
        .dtype = t->dtype,
        .n = n,
        .member = member,
        .count = count,
        .data = esp_i_at(engine->spec.kernels, extent[0].place),
        .own = esp_i_at(engine->spec.kernels, extent[t->n - 1].place),
    };
    return comm->type->collective(comm, &what, &engine->message[transfer], diag);
}

esp_status_t esp_i_engine_join(esp_i_engine_t *engine, esp_diag_t *diag)
{
    const esp_i_program_t *p = engine->program;
    const int32_t n = p->deployment->cluster->n_devices;
    esp_status_t status = ESP_OK;
    int32_t *room = esp_i_alloc_array(&engine->alloc, 2 * (int64_t)n, sizeof *room);
    if (!room)
        return esp_i_nomem(diag);
    for (int32_t t = 0, end = count_transfers(p); t < end && status == ESP_OK; t++)
        if (p->transfer[t].mesh != ESP_NONE)
            status = prepare_collective(engine, t, room, room + n, diag);
    esp_i_free(&engine->alloc, room);
    return status;
}

/* ---- the thread -------------------------------------------------------------------------- */

static void *compute_thread(void *argument)
{
    esp_i_engine_t *engine = argument;
    (void)esp_i_denormals_off();
    pthread_mutex_lock(&engine->mutex);
    for (;;) {
        while (!engine->computing && !engine->quit)
            pthread_cond_wait(&engine->for_compute, &engine->mutex);
        if (engine->quit)
            break;
        pthread_mutex_unlock(&engine->mutex);
        esp_i_engine_compute(engine);
        pthread_mutex_lock(&engine->mutex);
        engine->computing = false;
        pthread_cond_broadcast(&engine->for_moves);
    }
    pthread_mutex_unlock(&engine->mutex);
    return NULL;
}

static esp_status_t start_thread(esp_i_engine_t *engine, esp_diag_t *diag)
{
    const int code = pthread_create(&engine->thread, NULL, compute_thread, engine);
    if (code != 0)
        return esp_i_fail(diag, ESP_ERR_NOMEM, "cannot start a thread: %s", strerror(code));
    engine->has_thread = true;
    return ESP_OK;
}

static void init_locks(esp_i_engine_t *engine)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&engine->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->for_compute, NULL);
    pthread_cond_init(&engine->for_moves, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

esp_status_t esp_i_engine_create(const esp_i_engine_spec_t *spec, const esp_allocator_t *alloc,
                                 esp_i_engine_t **engine_out, esp_diag_t *diag)
{
    esp_i_engine_t *engine = esp_i_alloc_array(alloc, 1, sizeof *engine);
    if (!engine)
        return esp_i_nomem(diag);
    engine->spec = *spec;
    engine->program = spec->program;
    engine->alloc = esp_i_allocator(alloc);
    esp_i_arena_init(&engine->memory, alloc);
    init_locks(engine);
    esp_status_t status = allocate(engine) ? ESP_OK : esp_i_nomem(diag);
    if (status == ESP_OK) {
        sort_instrs(engine);
        status = find_inputs(engine) ? prepare_kernels(engine, diag) : esp_i_nomem(diag);
    }
    if (status == ESP_OK)
        status = prepare_messages(engine, diag);
    if (status == ESP_OK) {
        spec->comm->wake_context = engine;
        spec->comm->wake = wake;
        status = start_thread(engine, diag);
    }
    if (status != ESP_OK) {
        esp_i_engine_destroy(engine);
        return status;
    }
    *engine_out = engine;
    return ESP_OK;
}

void esp_i_engine_destroy(esp_i_engine_t *engine)
{
    if (!engine)
        return;
    esp_i_comm_t *comm = engine->spec.comm;
    pthread_mutex_lock(&engine->mutex);
    engine->quit = true;
    pthread_cond_broadcast(&engine->for_compute);
    pthread_mutex_unlock(&engine->mutex);
    if (engine->has_thread)
        pthread_join(engine->thread, NULL);
    comm->wake = NULL;
    for (int32_t t = 0, n = count_transfers(engine->program); engine->message && t < n; t++)
        if (engine->message[t])
            comm->type->release(comm, engine->message[t]);
    pthread_cond_destroy(&engine->for_compute);
    pthread_cond_destroy(&engine->for_moves);
    pthread_mutex_destroy(&engine->mutex);
    esp_i_arena_fini(&engine->memory);
    const esp_allocator_t alloc = engine->alloc;
    esp_i_free(&alloc, engine);
}

/* ---- running ----------------------------------------------------------------------------- */

static void forget_times(esp_i_engine_t *engine)
{
    for (int32_t i = 0; engine->start_ns && i < engine->program->n_instrs; i++)
        engine->start_ns[i] = engine->end_ns[i] = -1;
}

esp_status_t esp_i_engine_run(esp_i_engine_t *engine, const esp_i_engine_run_t *run,
                              esp_diag_t *diag)
{
    if (!atomic_load(&engine->failed) && run->steps > 0) {
        forget_times(engine);
        pthread_mutex_lock(&engine->mutex);
        engine->run = *run;
        engine->base = engine->end;
        engine->end = engine->base + run->steps;
        engine->computing = true;
        pthread_cond_signal(&engine->for_compute);
        pthread_mutex_unlock(&engine->mutex);
        const uint64_t before = esp_i_denormals_off(); /* it adds, too */
        esp_i_engine_move(engine);
        esp_i_denormals_back(before);
        pthread_mutex_lock(&engine->mutex);
        while (engine->computing)
            pthread_cond_wait(&engine->for_moves, &engine->mutex);
        pthread_mutex_unlock(&engine->mutex);
        if (engine->spec.status)
            esp_i_status_idle(
                engine->spec.status, engine->spec.comm->rank,
                esp_i_device_name(engine->program->deployment, engine->program->device));
    }
    if (!atomic_load(&engine->failed))
        return ESP_OK;
    if (diag)
        *diag = engine->why;
    return engine->status;
}
