/* The executor: ranks, their creation, runs. */
#include "exec/session.h"

#include <string.h>

esp_exec_opts_t esp_exec_opts_default(void)
{
    return (esp_exec_opts_t){.struct_size = sizeof(esp_exec_opts_t)};
}

/* ---- creation ---------------------------------------------------------------------------- */

static esp_status_t check_opts(const esp_exec_opts_t *opts, esp_diag_t *diag)
{
    if (opts->struct_size != sizeof *opts)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "options of another version of the library");
    if (opts->backend && !esp_i_kernels_find(opts->backend))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "no kernel backend is called %s", opts->backend);
    if (opts->collectives < ESP_COLLECTIVES_OWN || opts->collectives > ESP_COLLECTIVES_AUTO)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "no kind of collectives has number %d",
                          opts->collectives);
    if (opts->collectives == ESP_COLLECTIVES_MPI && !opts->mpi)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "ranks in one process have no collectives of MPI: run under mpirun");
    if (opts->collectives == ESP_COLLECTIVES_AUTO &&
        (!opts->costs || opts->costs->n_collectives == 0))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "there are no measured collectives to choose by: espalier profile "
                          "--links measures them under mpirun");
    return ESP_OK;
}

static int32_t count_devices(const esp_deployment_t *d)
{
    int32_t n = 0;
    for (int32_t device = 0; device < d->cluster->n_devices; device++)
        n += d->device_class[device] != ESP_NONE;
    return n;
}

/* Every device in use has one rank. */
static esp_status_t take_map(esp_exec_t *exec, const esp_exec_opts_t *opts, esp_diag_t *diag)
{
    const esp_deployment_t *d = exec->deployment;
    const int32_t n = count_devices(d);
    int32_t next = 0;
    exec->n_ranks = n;
    exec->device = esp_i_alloc_array(&exec->alloc, n, sizeof *exec->device);
    exec->rank_of = esp_i_alloc_array(&exec->alloc, d->cluster->n_devices, sizeof *exec->rank_of);
    if (!exec->device || !exec->rank_of)
        return esp_i_nomem(diag);
    if (opts->map && opts->n_map != n)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "the map has %d devices, the plan uses %d",
                          opts->n_map, n);
    for (int32_t device = 0; device < d->cluster->n_devices; device++) {
        exec->rank_of[device] = ESP_NONE;
        if (!opts->map && d->device_class[device] != ESP_NONE)
            exec->device[next++] = device;
    }
    for (int32_t r = 0; r < n; r++) {
        const int32_t device = opts->map ? opts->map[r] : exec->device[r];
        if (device < 0 || device >= d->cluster->n_devices || d->device_class[device] == ESP_NONE)
            return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                              "the map gives rank %d device %d, which the plan does not use", r,
                              device);
        if (exec->rank_of[device] != ESP_NONE)
            return esp_i_fail(diag, ESP_ERR_ARGUMENT, "the map gives %s to ranks %d and %d",
                              esp_i_device_name(d, device), exec->rank_of[device], r);
        exec->device[r] = device;
        exec->rank_of[device] = r;
    }
    return ESP_OK;
}

static esp_status_t create_local_ranks(esp_exec_t *exec, esp_diag_t *diag)
{
    const int32_t n = exec->n_ranks;
    esp_i_comm_t **comm = esp_i_alloc_array(&exec->alloc, n, sizeof(void *));
    exec->rank = esp_i_alloc_array(&exec->alloc, n, sizeof *exec->rank);
    esp_status_t status = ESP_ERR_NOMEM;
    if (comm && exec->rank)
        status = esp_i_comm_local_create(&exec->alloc, n, comm);
    for (int32_t r = 0; r < n && status == ESP_OK; r++)
        exec->rank[r].comm = comm[r];
    esp_i_free(&exec->alloc, comm);
    if (status == ESP_OK)
        exec->n_here = n;
    if (status == ESP_OK)
        status = esp_i_pool_create(&exec->alloc, n, &exec->pool);
    return status == ESP_OK ? ESP_OK : esp_i_fail(diag, status, "no memory for %d ranks", n);
}

static esp_status_t create_mpi_rank(esp_exec_t *exec, esp_diag_t *diag)
{
    exec->rank = esp_i_alloc_array(&exec->alloc, 1, sizeof *exec->rank);
    if (!exec->rank)
        return esp_i_nomem(diag);
    ESP_TRY(esp_i_comm_mpi_create(&exec->alloc, &exec->rank[0].comm, diag));
    exec->first = exec->rank[0].comm->rank;
    exec->n_here = 1;
    return ESP_OK;
}

static esp_status_t create_engine(esp_exec_t *exec, int32_t r, esp_diag_t *diag)
{
    esp_i_rank_t *rank = esp_i_rank_here(exec, r);
    const int32_t device = exec->device[r];
    ESP_TRY(esp_i_program_create(exec->deployment, device, exec->wide, exec->library, &exec->alloc,
                                 &rank->program, diag));
    ESP_TRY(exec->backend->create(&exec->alloc, exec->wide, &rank->kernels, diag));
    if (exec->status)
        esp_i_status_idle(exec->status, r, esp_i_device_name(exec->deployment, device));
    const esp_i_engine_spec_t spec = {.program = rank->program,
                                      .kernels = rank->kernels,
                                      .comm = rank->comm,
                                      .rank_of = exec->rank_of,
                                      .seed = exec->seed,
                                      .timeline = exec->timeline,
                                      .status = exec->status};
    return esp_i_engine_create(&spec, &exec->alloc, &rank->engine, diag);
}

/* What this process can do without the others. */
static esp_status_t set_up(esp_exec_t *exec, const esp_exec_opts_t *opts, esp_diag_t *diag)
{
    if (exec->mpi && exec->rank[0].comm->n_ranks != exec->n_ranks)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "the plan uses %d devices, but the job has %d processes", exec->n_ranks,
                          exec->rank[0].comm->n_ranks);
    if (opts->status_path)
        ESP_TRY(esp_i_status_create(&exec->alloc, opts->status_path, exec->n_ranks, &exec->status,
                                    diag));
    for (int32_t i = 0; i < exec->n_here; i++)
        ESP_TRY(create_engine(exec, exec->first + i, diag));
    return esp_i_exec_fill(exec, diag);
}

static esp_status_t create(esp_exec_t *exec, const esp_exec_opts_t *opts, esp_diag_t *diag)
{
    if (!exec->mpi) {
        ESP_TRY(take_map(exec, opts, diag));
        ESP_TRY(create_local_ranks(exec, diag));
        return set_up(exec, opts, diag);
    }
    ESP_TRY(create_mpi_rank(exec, diag));
    esp_diag_t mine = {0};
    esp_status_t status = take_map(exec, opts, &mine);
    if (status == ESP_OK)
        status = set_up(exec, opts, &mine);
    if (diag && status != ESP_OK)
        *diag = mine;
    ESP_TRY(esp_i_exec_agree(exec, opts, status, diag));
    mine = (esp_diag_t){0};
    return esp_i_exec_settle(exec, esp_i_engine_join(exec->rank[0].engine, &mine), &mine, diag);
}

esp_status_t esp_exec_create(const esp_deployment_t *deployment, const esp_exec_opts_t *opts,
                             const esp_allocator_t *alloc, esp_exec_t **exec_out, esp_diag_t *diag)
{
    const esp_exec_opts_t standard = esp_exec_opts_default();
    if (!opts)
        opts = &standard;
    ESP_TRY(check_opts(opts, diag));
    esp_exec_t *exec = esp_i_alloc_array(alloc, 1, sizeof *exec);
    if (!exec)
        return esp_i_nomem(diag);
    exec->alloc = esp_i_allocator(alloc);
    exec->deployment = deployment;
    exec->backend = opts->backend ? esp_i_kernels_find(opts->backend) : esp_i_kernels_types[0];
    exec->wide = opts->wide != 0;
    exec->mpi = opts->mpi != 0;
    exec->timeline = opts->timeline != 0;
    exec->library.used = exec->mpi && opts->collectives != ESP_COLLECTIVES_OWN;
    exec->library.costs = opts->collectives == ESP_COLLECTIVES_AUTO ? opts->costs : NULL;
    exec->seed = opts->seed;
    const esp_status_t status = create(exec, opts, diag);
    if (status != ESP_OK) {
        esp_exec_destroy(exec);
        return status;
    }
    *exec_out = exec;
    return ESP_OK;
}

void esp_exec_destroy(esp_exec_t *exec)
{
    if (!exec)
        return;
    const esp_allocator_t alloc = exec->alloc;
    if (exec->broken) /* first: messages may be under way into the arena */
        exec->rank[0].comm->type->destroy(exec->rank[0].comm);
    esp_i_pool_destroy(exec->pool);
    for (int32_t i = 0; i < exec->n_here; i++)
        esp_i_engine_destroy(exec->rank[i].engine);
    for (int32_t i = 0; i < exec->n_here; i++) {
        esp_i_rank_t *rank = &exec->rank[i];
        if (rank->kernels)
            rank->kernels->type->destroy(rank->kernels);
        if (rank->program)
            esp_i_program_destroy(rank->program);
        rank->comm->type->destroy(rank->comm);
    }
    esp_i_status_destroy(exec->status);
    esp_i_free(&alloc, exec->rank);
    esp_i_free(&alloc, exec->device);
    esp_i_free(&alloc, exec->rank_of);
    esp_i_free(&alloc, exec->step_end_ns);
    esp_i_free(&alloc, exec->timeline_ns);
    esp_i_free(&alloc, exec->timeline_step_ns);
    esp_i_free(&alloc, exec);
}

/* ---- facts ------------------------------------------------------------------------------- */

int esp_exec_broken(const esp_exec_t *exec)
{
    return exec->broken;
}

int32_t esp_exec_rank(const esp_exec_t *exec)
{
    return exec->first;
}

int32_t esp_exec_ranks(const esp_exec_t *exec)
{
    return exec->n_ranks;
}

int64_t esp_exec_arena_bytes(const esp_exec_t *exec, int32_t rank)
{
    const esp_i_rank_t *here = esp_i_rank_here(exec, rank);
    return here ? here->program->arena_bytes : 0;
}

uint64_t esp_exec_step(const esp_exec_t *exec)
{
    return exec->step;
}

void esp_exec_set_step(esp_exec_t *exec, uint64_t step)
{
    exec->step = step;
}

/* ---- runs -------------------------------------------------------------------------------- */

typedef struct job {
    esp_exec_t *exec;
    const esp_exec_feed_t *feed;
} job_t;

static void run_rank(void *context, int32_t index, int32_t worker)
{
    const job_t *job = context;
    esp_exec_t *exec = job->exec;
    esp_i_rank_t *rank = &exec->rank[index];
    (void)worker;
    const esp_i_engine_run_t run = {.first = exec->step,
                                    .steps = exec->steps,
                                    .feed = job->feed,
                                    .loss = rank->loss,
                                    .step_end_ns =
                                        exec->first + index == 0 ? exec->step_end_ns : NULL};
    rank->status = esp_i_engine_run(rank->engine, &run, &rank->diag);
}

static esp_status_t run_ranks(esp_exec_t *exec, const esp_exec_feed_t *feed, esp_diag_t *diag)
{
    job_t job = {exec, feed};
    if (exec->pool) /* all at once: as many workers as ranks */
        esp_i_pool_run(exec->pool, exec->n_here, run_rank, &job);
    else
        run_rank(&job, 0, 0);
    for (int32_t i = 0; i < exec->n_here; i++)
        if (exec->rank[i].status != ESP_OK) {
            *diag = exec->rank[i].diag;
            return exec->rank[i].status;
        }
    return ESP_OK;
}

esp_status_t esp_i_exec_settle(esp_exec_t *exec, esp_status_t status, const esp_diag_t *why,
                               esp_diag_t *diag)
{
    if (status == ESP_OK)
        return ESP_OK;
    esp_diag_t cause = *why;
    cause.status = status;
    if (exec->mpi) {
        if (cause.place[0] == '\0')
            esp_i_diag_place(&cause, "rank %d (%s)", exec->first,
                             esp_i_device_name(exec->deployment, exec->device[exec->first]));
        exec->rank[0].comm->type->abort(exec->rank[0].comm, &cause);
        exec->broken = true;
    }
    if (diag)
        *diag = cause;
    return status;
}

static void add_losses(const esp_i_rank_t *rank, int64_t steps, double *sum)
{
    for (int64_t s = 0; s < steps && rank->program->loss_counts; s++)
        sum[s] += rank->loss[s];
}

/* The losses of other processes, added up by rank 0, for all. */
static esp_status_t add_remote_losses(esp_exec_t *exec, double *sum, esp_diag_t *diag)
{
    const int64_t bytes = exec->steps * (int64_t)sizeof *sum;
    esp_i_comm_t *comm = exec->rank[0].comm;
    double *other = exec->rank[0].loss; /* not needed any more */
    if (exec->first > 0)
        ESP_TRY(esp_i_comm_send(comm, 0, ESP_I_TAG_LOSS, sum, bytes, diag));
    for (int32_t r = 1; exec->first == 0 && r < exec->n_ranks; r++) {
        ESP_TRY(esp_i_comm_receive(comm, r, ESP_I_TAG_LOSS, other, bytes, diag));
        for (int64_t s = 0; s < exec->steps; s++)
            sum[s] += other[s];
    }
    return esp_i_comm_broadcast(comm, sum, bytes, diag);
}

static esp_status_t sum_losses(esp_exec_t *exec, double *sum, esp_diag_t *diag)
{
    for (int64_t s = 0; s < exec->steps; s++)
        sum[s] = 0;
    for (int32_t i = 0; i < exec->n_here; i++)
        add_losses(&exec->rank[i], exec->steps, sum);
    return exec->mpi && exec->steps > 0 ? add_remote_losses(exec, sum, diag) : ESP_OK;
}

static void release_losses(esp_exec_t *exec)
{
    for (int32_t i = 0; i < exec->n_here; i++) {
        esp_i_free(&exec->alloc, exec->rank[i].loss);
        exec->rank[i].loss = NULL;
    }
}

static bool make_room(esp_exec_t *exec, int64_t steps)
{
    bool fine = true;
    esp_i_free(&exec->alloc, exec->step_end_ns);
    exec->step_end_ns = esp_i_alloc_array(&exec->alloc, steps, sizeof *exec->step_end_ns);
    for (int32_t i = 0; i < exec->n_here; i++) {
        exec->rank[i].loss = esp_i_alloc_array(&exec->alloc, steps, sizeof(double));
        fine &= exec->rank[i].loss != NULL;
    }
    exec->steps = exec->step_end_ns ? steps : 0;
    return fine && exec->step_end_ns;
}

esp_status_t esp_exec_run(esp_exec_t *exec, int64_t steps, const esp_exec_feed_t *feed,
                          double *losses_out, esp_diag_t *diag)
{
    if (steps < 0)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "%lld steps", (long long)steps);
    esp_diag_t why = {0};
    double *sum = esp_i_alloc_array(&exec->alloc, steps, sizeof *sum);
    esp_status_t status = make_room(exec, steps) && sum ? ESP_OK : esp_i_nomem(&why);
    exec->start_ns = esp_i_now_ns();
    if (status == ESP_OK)
        status = run_ranks(exec, feed, &why);
    if (status == ESP_OK)
        status = sum_losses(exec, sum, &why);
    if (status == ESP_OK) {
        exec->step += (uint64_t)steps;
        if (losses_out && steps > 0)
            memcpy(losses_out, sum, (size_t)steps * sizeof *sum);
    }
    release_losses(exec);
    esp_i_free(&exec->alloc, sum);
    return esp_i_exec_settle(exec, status, &why, diag);
}
