#include "program_run.h"
#include "interp.h"
#include "stored.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A movement under way, or none; and how often each instruction has ended. */
typedef struct progress {
    int64_t done;  /* steps in which it has ended */
    int32_t stage; /* COMM under way: of the instruction; ESP_NONE: not under way */
    int32_t open;  /* messages of the stage that have not moved */
} progress_t;

typedef struct rank {
    esp_i_program_t *program;
    char *memory;
    progress_t *progress; /* per instruction */
    int32_t compute;      /* the next of the compute stream, from 0 */
    int64_t step;         /* of it */
    double loss;
} rank_t;

/* One end of a message that has started and not moved. */
typedef struct end {
    int32_t from, to, tag;
    int32_t rank, instr;
    const esp_i_transfer_t *transfer;
} end_t;

struct program_run {
    const esp_deployment_t *d;
    uint64_t seed;
    int64_t until; /* steps */
    esp_i_rng_t rng;
    int32_t n;
    rank_t *rank; /* per device */
    end_t *end;
    int32_t n_ends, ends_capacity;
};

static void *allocate(int64_t n, size_t size)
{
    void *memory = calloc(n > 0 ? (size_t)n : 1, size);
    assert_non_null(memory);
    return memory;
}

/* ---- memory as stored ---------------------------------------------------------------------- */

/* Copies a local buffer out of memory as doubles, or back. */
static double *local_load(const rank_t *rank, const esp_i_local_t *local)
{
    double *data = allocate(local->elements, sizeof *data);
    for (int64_t i = 0; i < local->elements; i++)
        data[i] = stored_get(local->dtype, rank->memory + local->place, i);
    return data;
}

static void local_store(const rank_t *rank, const esp_i_local_t *local, const double *data)
{
    assert_true(local->place >= 0 &&
                local->place + local->elements * esp_dtype_bytes(local->dtype) <=
                    rank->program->arena_bytes);
    for (int64_t i = 0; i < local->elements; i++)
        stored_put(local->dtype, rank->memory + local->place, i, data[i]);
}

static void resident_fill(const program_run_t *run, const rank_t *rank, const esp_i_resident_t *r,
                          uint64_t step)
{
    double *whole = allocate(run->d->graph->tensor_elements[r->tensor], sizeof *whole);
    esp_i_buffer_t at = stored_buffer(&r->local);
    at.data = buffer_alloc(&at);
    interp_default(run->d->graph, r->tensor, run->seed, step, whole);
    buffer_take(&at, whole);
    local_store(rank, &r->local, at.data);
    free(at.data);
    free(whole);
}

/* ---- set-up ------------------------------------------------------------------------------------
 */

static void rank_init(program_run_t *run, int32_t device)
{
    rank_t *rank = &run->rank[device];
    esp_diag_t diag = {0};
    test_assert_ok(esp_i_program_create(run->d, device, true, (esp_i_library_t){0}, NULL,
                                        &rank->program, &diag),
                   &diag);
    rank->memory = malloc((size_t)rank->program->arena_bytes + 1);
    assert_non_null(rank->memory);
    memset(rank->memory, 0xff, (size_t)rank->program->arena_bytes + 1); /* NaN */
    rank->progress = allocate(rank->program->n_instrs, sizeof *rank->progress);
    for (int32_t i = 0; i < rank->program->n_instrs; i++)
        rank->progress[i].stage = ESP_NONE;
    for (int32_t i = 0; i < rank->program->n_residents; i++)
        resident_fill(run, rank, &rank->program->resident[i], 0);
}

program_run_t *program_run_new(const esp_deployment_t *d, uint64_t seed)
{
    program_run_t *run = allocate(1, sizeof *run);
    *run = (program_run_t){.d = d, .seed = seed, .n = d->cluster->n_devices};
    esp_i_rng_seed(&run->rng, seed);
    run->rank = allocate(run->n, sizeof *run->rank);
    for (int32_t device = 0; device < run->n; device++)
        rank_init(run, device);
    return run;
}

void program_run_free(program_run_t *run)
{
    if (!run)
        return;
    for (int32_t device = 0; device < run->n; device++) {
        esp_i_program_destroy(run->rank[device].program);
        free(run->rank[device].memory);
        free(run->rank[device].progress);
    }
    free(run->rank);
    free(run->end);
    free(run);
}

const esp_i_program_t *program_run_of(const program_run_t *run, int32_t device)
{
    return run->rank[device].program;
}

/* ---- what may start -----------------------------------------------------------------------------
 */

static bool ready(const rank_t *rank, int32_t i, int64_t step)
{
    const esp_i_program_t *program = rank->program;
    const esp_i_instr_t *instr = &program->instr[i];
    for (int32_t w = 0; w < instr->n_wait; w++)
        if (rank->progress[program->waits[instr->wait + w]].done <= step)
            return false;
    for (int32_t w = 0; w < instr->n_previous; w++)
        if (rank->progress[program->waits[instr->previous + w]].done < step)
            return false;
    return true;
}

/* Collectives start in order. */
static bool comm_may_start(const program_run_t *run, const rank_t *rank, int32_t i)
{
    const progress_t *p = &rank->progress[i];
    if (p->stage != ESP_NONE || p->done >= run->until || !ready(rank, i, p->done))
        return false;
    for (int32_t k = 0; k < i && rank->program->instr[i].collective; k++)
        if (rank->program->instr[k].collective && rank->progress[k].done <= p->done &&
            rank->progress[k].stage == ESP_NONE)
            return false;
    return true;
}

/* ---- messages -----------------------------------------------------------------------------------
 */

static void message_move(program_run_t *run, const end_t *send, const end_t *receive)
{
    const esp_i_program_t *from = run->rank[send->rank].program;
    const esp_i_program_t *to = run->rank[receive->rank].program;
    const esp_i_extent_t *a = from->extent + send->transfer->first;
    const esp_i_extent_t *b = to->extent + receive->transfer->first;
    int64_t a_done = 0, b_done = 0;
    int32_t i = 0, k = 0;
    while (i < send->transfer->n && k < receive->transfer->n) {
        const int64_t left = a[i].bytes - a_done, room = b[k].bytes - b_done;
        const int64_t n = left < room ? left : room;
        assert_true(n > 0);
        assert_true(a[i].place >= 0 && a[i].place + a[i].bytes <= from->arena_bytes);
        assert_true(b[k].place >= 0 && b[k].place + b[k].bytes <= to->arena_bytes);
        memcpy(run->rank[receive->rank].memory + b[k].place + b_done,
               run->rank[send->rank].memory + a[i].place + a_done, (size_t)n);
        a_done += n;
        b_done += n;
        if (a_done == a[i].bytes) {
            i++;
            a_done = 0;
        }
        if (b_done == b[k].bytes) {
            k++;
            b_done = 0;
        }
    }
    if (i < send->transfer->n || k < receive->transfer->n)
        fail_msg("movement %d from %d to %d: the ends differ in bytes", send->tag, send->from,
                 send->to);
}

static void stage_go_on(program_run_t *run, int32_t rank, int32_t instr);

static void end_moved(program_run_t *run, const end_t *end)
{
    progress_t *p = &run->rank[end->rank].progress[end->instr];
    if (--p->open == 0)
        stage_go_on(run, end->rank, end->instr);
}

/* Messages of one sender, receiver and tag match in the order in which they were started. */
static void message_start(program_run_t *run, end_t end)
{
    for (int32_t i = 0; i < run->n_ends; i++) {
        const end_t other = run->end[i];
        if (other.from != end.from || other.to != end.to || other.tag != end.tag ||
            other.transfer->send == end.transfer->send)
            continue;
        memmove(run->end + i, run->end + i + 1, (size_t)(run->n_ends - i - 1) * sizeof *run->end);
        run->n_ends--;
        message_move(run, end.transfer->send ? &end : &other, end.transfer->send ? &other : &end);
        end_moved(run, &other);
        end_moved(run, &end);
        return;
    }
    if (run->n_ends == run->ends_capacity) {
        run->ends_capacity = 2 * run->ends_capacity + 16;
        run->end = realloc(run->end, (size_t)run->ends_capacity * sizeof *run->end);
        assert_non_null(run->end);
    }
    run->end[run->n_ends++] = end;
}

static void stage_start(program_run_t *run, int32_t device, int32_t i)
{
    const rank_t *rank = &run->rank[device];
    const esp_i_program_t *program = rank->program;
    const esp_i_instr_t *instr = &program->instr[i];
    const esp_i_stage_t *stage = &program->stage[instr->first + rank->progress[i].stage];
    rank->progress[i].open = stage->n_transfers + 1; /* does not end while it starts */
    for (int32_t t = 0; t < stage->n_transfers; t++) {
        const esp_i_transfer_t *transfer = &program->transfer[stage->first_transfer + t];
        message_start(run, (end_t){.from = transfer->send ? device : transfer->peer,
                                   .to = transfer->send ? transfer->peer : device,
                                   .tag = instr->comm,
                                   .rank = device,
                                   .instr = i,
                                   .transfer = transfer});
    }
    end_moved(run, &(end_t){.rank = device, .instr = i});
}

static void instr_end(rank_t *rank, int32_t i)
{
    const esp_i_program_t *program = rank->program;
    rank->progress[i].done++;
    rank->progress[i].stage = ESP_NONE;
    if (i == program->loss_instr)
        rank->loss = stored_get(ESP_DTYPE_F64, rank->memory + program->loss_place, 0);
}

/* The messages of the stage have moved: its work, then the next stage. */
static void stage_go_on(program_run_t *run, int32_t device, int32_t i)
{
    rank_t *rank = &run->rank[device];
    const esp_i_instr_t *instr = &rank->program->instr[i];
    progress_t *p = &rank->progress[i];
    const esp_i_stage_t *stage = &rank->program->stage[instr->first + p->stage];
    for (int32_t w = 0; w < stage->n_work; w++)
        run_work(rank->memory, &rank->program->work[stage->first_work + w],
                 rank->program->work_src);
    if (++p->stage == instr->n)
        instr_end(rank, i);
    else
        stage_start(run, device, i);
}

static void comm_start(program_run_t *run, int32_t device, int32_t i)
{
    rank_t *rank = &run->rank[device];
    rank->progress[i].stage = 0;
    if (rank->program->instr[i].n == 0)
        instr_end(rank, i);
    else
        stage_start(run, device, i);
}

/* ---- compute ------------------------------------------------------------------------------------
 */

static void call_run(const program_run_t *run, const rank_t *rank, const esp_i_call_t *call)
{
    const int32_t n = call->n_in + call->n_out;
    esp_i_buffer_t *operand = allocate(n, sizeof *operand);
    esp_dtype_t *dtype = allocate(n, sizeof *dtype);
    for (int32_t i = 0; i < n; i++) {
        operand[i] = stored_buffer(&call->operand[i]);
        dtype[i] = call->operand[i].dtype;
        if (call->operand[i].place >= 0)
            operand[i].data = local_load(rank, &call->operand[i]);
    }
    const kernel_call_t kernel = {.kernel = {.attr = call->attr,
                                             .n_in = call->n_in,
                                             .n_out = call->n_out,
                                             .in = operand,
                                             .out = operand + call->n_in,
                                             .in_dtype = dtype,
                                             .out_dtype = dtype + call->n_in,
                                             .seed = run->seed,
                                             .step = (uint64_t)rank->step,
                                             .local_batchnorm = call->local_batchnorm},
                                  .operand = operand,
                                  .dtype = dtype,
                                  .n_operands = n};
    kernel_call_run(run->d->graph, call->op, &kernel);
    for (int32_t i = call->n_in; i < n; i++)
        local_store(rank, &call->operand[i], operand[i].data);
    for (int32_t i = 0; i < n; i++)
        free(operand[i].data);
    free(operand);
    free(dtype);
}

static int32_t next_compute(const rank_t *rank)
{
    int32_t i = rank->compute;
    while (i < rank->program->n_instrs && rank->program->instr[i].kind == ESP_TASK_COMM)
        i++;
    return i;
}

static void step_begin(const program_run_t *run, const rank_t *rank)
{
    for (int32_t i = 0; i < rank->program->n_residents; i++) {
        const esp_i_resident_t *r = &rank->program->resident[i];
        if (run->d->graph->tensor_role[r->tensor] == ESP_ROLE_INPUT)
            resident_fill(run, rank, r, (uint64_t)rank->step);
    }
}

/* One instruction of the compute stream, if it may start. */
static bool compute_go_on(program_run_t *run, rank_t *rank)
{
    const int32_t i = next_compute(rank);
    if (rank->step >= run->until)
        return false;
    if (i == rank->program->n_instrs) {
        rank->step++;
        rank->compute = 0;
        return true;
    }
    if (!ready(rank, i, rank->step))
        return false;
    const esp_i_instr_t *instr = &rank->program->instr[i];
    if (rank->compute == 0)
        step_begin(run, rank);
    rank->compute = i + 1;
    if (instr->kind == ESP_TASK_COMPUTE)
        call_run(run, rank, &rank->program->call[instr->call]);
    for (int32_t w = 0; w < instr->n && instr->kind != ESP_TASK_COMPUTE; w++)
        run_work(rank->memory, &rank->program->work[instr->first + w], rank->program->work_src);
    instr_end(rank, i);
    return true;
}

/* ---- all together -------------------------------------------------------------------------------
 */

/* Starts one movement of the device that may start; the first from a random place on. */
static bool movements_go_on(program_run_t *run, int32_t device)
{
    const rank_t *rank = &run->rank[device];
    const int32_t n = rank->program->n_instrs;
    const int32_t from = n > 0 ? (int32_t)esp_i_rng_below(&run->rng, n) : 0;
    for (int32_t k = 0; k < n; k++) {
        const int32_t i = (from + k) % n;
        if (rank->program->instr[i].kind == ESP_TASK_COMM && comm_may_start(run, rank, i)) {
            comm_start(run, device, i);
            return true;
        }
    }
    return false;
}

static bool device_go_on(program_run_t *run, int32_t device)
{
    if (esp_i_rng_below(&run->rng, 2) == 0)
        return compute_go_on(run, &run->rank[device]) || movements_go_on(run, device);
    return movements_go_on(run, device) || compute_go_on(run, &run->rank[device]);
}

void program_run_steps(program_run_t *run, int64_t steps)
{
    run->until += steps;
    for (bool any = true; any;) {
        any = false;
        const int32_t first = (int32_t)esp_i_rng_below(&run->rng, run->n);
        for (int32_t k = 0; k < run->n && !any; k++)
            any = device_go_on(run, (first + k) % run->n);
    }
    assert_int_equal(run->n_ends, 0);
    for (int32_t device = 0; device < run->n; device++) {
        const rank_t *rank = &run->rank[device];
        for (int32_t i = 0; i < rank->program->n_instrs; i++)
            if (rank->progress[i].done != run->until)
                fail_msg("device %d is stuck at instruction %d", device, i);
        assert_int_equal((unsigned char)rank->memory[rank->program->arena_bytes], 0xff);
    }
}

/* ---- results ------------------------------------------------------------------------------------
 */

static void home_read(const program_run_t *run, int32_t value, int32_t k, double *whole,
                      const double *expected)
{
    const esp_deployment_t *d = run->d;
    const int32_t mesh = d->value_mesh[value], device = d->mesh_device[d->mesh_offset[mesh] + k];
    const rank_t *rank = &run->rank[device];
    const esp_i_resident_t *r = NULL;
    for (int32_t i = 0; i < rank->program->n_residents && !r; i++)
        if (rank->program->resident[i].value == value)
            r = &rank->program->resident[i];
    assert_non_null(r);
    esp_i_buffer_t at = stored_buffer(&r->local);
    at.data = local_load(rank, &r->local);
    if (expected) {
        double *same = buffer_alloc(&at);
        esp_i_buffer_t copy = at;
        copy.data = same;
        buffer_take(&copy, expected);
        assert_memory_equal(same, at.data, (size_t)r->local.elements * sizeof *same);
        free(same);
    } else {
        buffer_put(&at, whole);
    }
    free(at.data);
}

void program_run_read(const program_run_t *run, esp_tensor_id_t tensor, double *values_out)
{
    const esp_deployment_t *d = run->d;
    int32_t home = 0;
    while (home < d->n_values && d->value_tensor[home] != tensor)
        home++;
    assert_true(home < d->n_values);
    const int32_t mesh = d->value_mesh[home];
    const bool split = d->value_form[home] == ESP_FORM_SPLIT;
    for (int32_t k = 0; k < d->mesh_offset[mesh + 1] - d->mesh_offset[mesh]; k++)
        home_read(run, home, k, values_out, split || k == 0 ? NULL : values_out);
}

double program_run_loss(const program_run_t *run)
{
    double loss = 0;
    int32_t counted = 0;
    for (int32_t device = 0; device < run->n; device++) {
        const esp_i_program_t *program = run->rank[device].program;
        if (program->loss_place < 0 || !program->loss_counts)
            continue;
        loss += run->rank[device].loss;
        counted++;
    }
    assert_true(counted > 0);
    return loss;
}
