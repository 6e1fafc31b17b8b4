/* Times of ops: the compute stream of one device, step after step, for several shares. */
#include "exec/engine.h"
#include "exec/profile.h"

#include <math.h>
#include <string.h>

/* One share under measurement. */
typedef struct bench {
    esp_i_profile_t *p;
    esp_i_profile_share_t share;
    esp_i_kernels_t *kernels;
    void **kernel;          /* per call */
    esp_i_times_t *times;   /* per call, of processor time */
    double wall_ns, cpu_ns; /* of all that was timed */
} bench_t;

/* ---- set-up ---------------------------------------------------------------------------------- */

static esp_status_t fill_one(bench_t *b, const esp_i_resident_t *resident)
{
    const esp_graph_t *g = b->share.deployment->graph;
    const esp_i_local_t *local = &resident->local;
    const esp_allocator_t *alloc = &b->p->alloc;
    const int64_t size = esp_dtype_bytes(local->dtype);
    char *whole = esp_i_alloc(alloc, (size_t)(g->tensor_elements[resident->tensor] * size));
    char *rows = esp_i_alloc(alloc, (size_t)(local->elements * size));
    const bool fine = whole && rows;
    if (fine) {
        esp_exec_initial(g, resident->tensor, b->p->opts->seed, 0, 0, whole);
        esp_i_rows_take(local, whole, rows);
        b->kernels->type->write(b->kernels, local->elements * size, local->place, rows);
    }
    esp_i_free(alloc, whole);
    esp_i_free(alloc, rows);
    return fine ? ESP_OK : esp_i_nomem(b->p->diag);
}

/*
 * What would come from other devices is not there: memory is zero at first, or holds what was there
 * before. For times that is as good, unless something is an index into memory.
 */
static esp_status_t check_moves(const bench_t *b)
{
    const esp_deployment_t *d = b->share.deployment;
    for (int32_t c = 0; c < d->n_comms; c++)
        for (int32_t i = d->comm_pair_offset[c]; i < d->comm_pair_offset[c + 1]; i++) {
            esp_tensor_id_t t = d->value_tensor[d->comm_src[i]];
            if (!esp_dtype_is_float((esp_dtype_t)d->graph->tensor_dtype[t]))
                return ESP_ERR_UNSUPPORTED;
        }
    return ESP_OK;
}

static esp_status_t bench_prepare(bench_t *b)
{
    const esp_i_program_t *program = b->share.program;
    char *memory;
    const char *name = b->p->opts->backend;
    const esp_i_kernels_type_t *type = name ? esp_i_kernels_find(name) : esp_i_kernels_types[0];
    ESP_TRY(type->create(&b->p->alloc, false, &b->kernels, b->p->diag));
    b->kernel = esp_i_alloc_array(&b->p->alloc, program->n_calls, sizeof *b->kernel);
    b->times = esp_i_alloc_array(&b->p->alloc, program->n_calls, sizeof *b->times);
    if (!b->kernel || !b->times ||
        b->kernels->type->arena(b->kernels, program->arena_bytes, &memory) != ESP_OK)
        return esp_i_nomem(b->p->diag);
    for (int32_t i = 0; i < program->n_calls; i++)
        ESP_TRY(
            b->kernels->type->prepare(b->kernels, &program->call[i], &b->kernel[i], b->p->diag));
    for (int32_t i = 0; i < program->n_residents; i++)
        ESP_TRY(fill_one(b, &program->resident[i]));
    return ESP_OK;
}

static void bench_fini(bench_t *b)
{
    if (b->kernels)
        b->kernels->type->destroy(b->kernels);
    esp_i_free(&b->p->alloc, b->kernel);
    esp_i_free(&b->p->alloc, b->times);
    esp_i_profile_share_fini(&b->share);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/*
 * One step. From the end of an op to the end of the next: what lies between them counts, too.
 * Processor time: where a process is stopped now and then (a quota, other processes), the op that
 * it happens to be in took no longer for that; all ops together did.
 */
static esp_status_t run_step(bench_t *b, uint64_t step, bool counts)
{
    const esp_i_program_t *program = b->share.program;
    const esp_i_moment_t moment = {.seed = b->p->opts->seed, .step = step, .rate = 0};
    const int64_t start = esp_i_now_ns();
    const double first = (double)esp_i_thread_ns();
    double before = first;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const int32_t call = program->instr[i].call;
        if (program->instr[i].kind != ESP_TASK_COMPUTE)
            continue;
        ESP_TRY(b->kernels->type->run(b->kernels, b->kernel[call], &moment, b->p->diag));
        const double now = (double)esp_i_thread_ns();
        if (counts)
            esp_i_times_add(&b->times[call], now - before);
        before = now;
    }
    if (counts) {
        b->wall_ns += (double)(esp_i_now_ns() - start);
        b->cpu_ns += before - first;
    }
    return ESP_OK;
}

static esp_status_t run_steps(bench_t *b)
{
    const esp_profile_opts_t *opts = b->p->opts;
    const uint64_t before = esp_i_denormals_off(); /* as the engine does */
    esp_status_t status = run_step(b, 0, false);
    const int64_t start = esp_i_now_ns();
    for (int32_t k = 1; status == ESP_OK &&
                        (k <= opts->runs || (double)(esp_i_now_ns() - start) < opts->seconds * 1e9);
         k++)
        status = run_step(b, (uint64_t)k, true);
    esp_i_denormals_back(before);
    return status;
}

/* Units of the op's factor that the task does on device 0. */
static double units_of(const esp_deployment_t *d, int32_t task, int64_t share, int32_t shards)
{
    const esp_graph_t *g = d->graph;
    const esp_op_id_t op = d->task_op[task];
    const esp_factor_t factor = esp_op_unit_factor(g, op);
    if (factor.dim == ESP_NONE)
        return 1;
    if (d->task_mode[task] == ESP_MODE_SHARD) {
        const int64_t whole = factor.b / shards;
        return (double)whole;
    }
    if (d->task_mode[task] == ESP_MODE_BATCH && g->op_batch[op].dim != ESP_NONE)
        return (double)factor.b * (double)share / (double)g->batch;
    return (double)factor.b;
}

static esp_status_t keep_times(bench_t *b, int64_t share, int32_t shards)
{
    esp_i_profile_t *p = b->p;
    const esp_deployment_t *d = b->share.deployment;
    const esp_i_program_t *program = b->share.program;
    const double stretch = b->cpu_ns > 0 ? b->wall_ns / b->cpu_ns : 1;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const esp_i_instr_t *instr = &program->instr[i];
        if (instr->kind != ESP_TASK_COMPUTE)
            continue;
        const double units = units_of(d, instr->task, share, shards);
        char *signature;
        if (!(units > 0))
            continue;
        if (esp_op_signature(d->graph, d->task_op[instr->task], &p->alloc, &signature) != ESP_OK)
            return esp_i_nomem(p->diag);
        esp_cost_point_t *point = esp_i_arena_alloc(&p->memory, 1, sizeof *point);
        const esp_cost_curve_t curve = {esp_i_arena_strdup(&p->memory, signature), 1, point};
        esp_i_free(&p->alloc, signature);
        if (!point || !curve.op || !esp_vec_push(&p->alloc, &p->curves, curve))
            return esp_i_nomem(p->diag);
        *point = esp_i_times_point(&b->times[instr->call], units);
        point->ns *= stretch;
        point->spread_ns *= stretch;
    }
    return ESP_OK;
}

static esp_status_t measure_share(esp_i_profile_t *p, const esp_graph_t *graph, int64_t share,
                                  int32_t shards)
{
    bench_t b = {.p = p};
    ESP_TRY(esp_i_profile_share_create(graph, share, shards, &p->alloc, &b.share, p->diag));
    esp_status_t status = check_moves(&b);
    if (status == ESP_ERR_UNSUPPORTED) { /* this share is left out */
        bench_fini(&b);
        return ESP_OK;
    }
    status = bench_prepare(&b);
    if (status == ESP_OK)
        status = run_steps(&b);
    if (status == ESP_OK)
        status = keep_times(&b, share, shards);
    bench_fini(&b);
    return status;
}

/* ---- local steps ----------------------------------------------------------------------------- */

/* Sums of two buffers; time per byte that is read or written. */
static esp_status_t measure_sums(esp_i_profile_t *p)
{
    enum { N = 1 << 18 };
    const int64_t bytes = N * (int64_t)sizeof(float), src[2] = {0, bytes};
    const char *name = p->opts->backend;
    const esp_i_kernels_type_t *type = name ? esp_i_kernels_find(name) : esp_i_kernels_types[0];
    esp_i_kernels_t *kernels;
    char *memory;
    ESP_TRY(type->create(&p->alloc, false, &kernels, p->diag));
    esp_status_t status = ESP_OK;
    if (type->arena(kernels, 3 * bytes, &memory) != ESP_OK)
        status = esp_i_nomem(p->diag);
    if (status == ESP_OK) {
        type->add(kernels, ESP_DTYPE_F32, N, 2 * bytes, 2, src);
        int64_t start = esp_i_now_ns(), end = start, n = 0;
        for (; n < 20 || (double)(end - start) < p->opts->seconds * 2.5e8; n++) {
            type->add(kernels, ESP_DTYPE_F32, N, 2 * bytes, 2, src);
            end = esp_i_now_ns();
        }
        p->copy_ns_per_byte = (double)(end - start) / (double)n / (3.0 * (double)bytes);
    }
    type->destroy(kernels);
    return status;
}

/* The least that any op took. */
static void find_launch(esp_i_profile_t *p)
{
    for (int32_t i = 0; i < p->curves.count; i++) {
        const double ns = p->curves.data[i].point->ns;
        if (p->launch_ns < 0 || ns < p->launch_ns)
            p->launch_ns = ns;
    }
}

esp_status_t esp_i_profile_ops(esp_i_profile_t *p, const esp_graph_t *graph)
{
    int64_t before = 0;
    for (int32_t k = 0; k < p->opts->shares; k++) {
        const int64_t share = graph->batch >> k;
        ESP_TRY(esp_i_profile_go_on(p, k > 0, "ops"));
        if (share < 1 || share == before)
            continue;
        before = share;
        ESP_TRY(measure_share(p, graph, share, k < 4 ? 1 << k : ESP_I_PROFILE_SHARDS));
    }
    ESP_TRY(measure_sums(p));
    find_launch(p);
    return esp_i_profile_go_on(p, 1, "ops");
}
