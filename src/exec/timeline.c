/* Measured times of the ranks, on one clock: that of rank 0, from the start of the run. */
#include "exec/session.h"

#include <string.h>

enum { ROUNDS = 25 };

/*
 * How far the clock of rank r is ahead of that of rank 0: r answers with its time, which is taken
 * for the middle of the fastest round trip. On both ranks; the result on rank 0.
 */
static esp_status_t measure_offset(esp_i_comm_t *comm, int32_t r, int64_t *offset_out,
                                   esp_diag_t *diag)
{
    int64_t fastest = INT64_MAX, theirs = 0;
    char ask = 0;
    for (int32_t i = 0; i < ROUNDS; i++) {
        if (comm->rank == r) {
            ESP_TRY(esp_i_comm_receive(comm, 0, ESP_I_TAG_CLOCK, &ask, 1, diag));
            theirs = esp_i_now_ns();
            ESP_TRY(esp_i_comm_send(comm, 0, ESP_I_TAG_CLOCK, &theirs, sizeof theirs, diag));
            continue;
        }
        const int64_t before = esp_i_now_ns();
        ESP_TRY(esp_i_comm_send(comm, r, ESP_I_TAG_CLOCK, &ask, 1, diag));
        ESP_TRY(esp_i_comm_receive(comm, r, ESP_I_TAG_CLOCK, &theirs, sizeof theirs, diag));
        const int64_t after = esp_i_now_ns();
        if (after - before < fastest) {
            fastest = after - before;
            *offset_out = theirs - (before + after) / 2;
        }
    }
    return ESP_OK;
}

static void shift(int64_t *times, int64_t n, int64_t by)
{
    for (int64_t i = 0; i < n; i++)
        if (times[i] >= 0)
            times[i] -= by;
}

/* The times of one rank: starts and ends by task. */
static void own_times(const esp_exec_t *exec, int32_t i, int64_t *start, int64_t *end)
{
    const esp_i_engine_t *engine = exec->rank[i].engine;
    for (int32_t k = 0; k < engine->program->n_instrs; k++) {
        start[engine->program->instr[k].task] = engine->start_ns[k];
        end[engine->program->instr[k].task] = engine->end_ns[k];
    }
}

/* Times of other processes, put on the clock of rank 0, for all. */
static esp_status_t gather(esp_exec_t *exec, int64_t *start, int64_t *end, esp_diag_t *diag)
{
    const int64_t n = exec->deployment->n_tasks, bytes = n * (int64_t)sizeof *start;
    esp_i_comm_t *comm = exec->rank[0].comm;
    for (int32_t r = 1; r < exec->n_ranks; r++) {
        int64_t offset = 0;
        if (comm->rank != 0 && comm->rank != r)
            continue;
        ESP_TRY(measure_offset(comm, r, &offset, diag));
        for (int32_t k = 0; k < 2; k++) {
            int64_t *times = (k == 0 ? start : end) + r * n;
            if (comm->rank == r) {
                ESP_TRY(esp_i_comm_send(comm, 0, ESP_I_TAG_TIMES, times, bytes, diag));
            } else {
                ESP_TRY(esp_i_comm_receive(comm, r, ESP_I_TAG_TIMES, times, bytes, diag));
                shift(times, n, offset);
            }
        }
    }
    return ESP_OK;
}

static esp_status_t share(esp_exec_t *exec, int64_t *start, int64_t *end, esp_diag_t *diag)
{
    const int64_t n = (int64_t)exec->n_ranks * exec->deployment->n_tasks;
    esp_i_comm_t *comm = exec->rank[0].comm;
    if (exec->mpi)
        ESP_TRY(gather(exec, start, end, diag));
    if (comm->rank == 0) {
        shift(start, n, exec->start_ns);
        shift(end, n, exec->start_ns);
    }
    if (!exec->mpi)
        return ESP_OK;
    const int64_t size = sizeof(int64_t);
    ESP_TRY(esp_i_comm_broadcast(comm, start, n * size, diag));
    ESP_TRY(esp_i_comm_broadcast(comm, end, n * size, diag));
    return esp_i_comm_broadcast(comm, exec->timeline_step_ns, exec->steps * size, diag);
}

static bool make_room(esp_exec_t *exec)
{
    const int64_t n = 2 * (int64_t)exec->n_ranks * exec->deployment->n_tasks;
    esp_i_free(&exec->alloc, exec->timeline_ns);
    esp_i_free(&exec->alloc, exec->timeline_step_ns);
    exec->timeline_ns = esp_i_alloc_array(&exec->alloc, n, sizeof(int64_t));
    exec->timeline_step_ns = esp_i_alloc_array(&exec->alloc, exec->steps, sizeof(int64_t));
    for (int64_t i = 0; exec->timeline_ns && i < n; i++)
        exec->timeline_ns[i] = -1;
    return exec->timeline_ns && exec->timeline_step_ns;
}

esp_status_t esp_exec_timeline(esp_exec_t *exec, esp_exec_timeline_t *timeline_out,
                               esp_diag_t *diag)
{
    const int64_t n = exec->deployment->n_tasks, all = exec->n_ranks * n;
    esp_diag_t why = {0};
    if (!exec->timeline)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "the executor was made without timeline");
    if (!make_room(exec))
        return esp_i_exec_settle(exec, esp_i_nomem(&why), &why, diag);
    int64_t *start = exec->timeline_ns, *end = start + all;
    for (int32_t i = 0; i < exec->n_here; i++)
        own_times(exec, i, start + (exec->first + i) * n, end + (exec->first + i) * n);
    for (int64_t s = 0; s < exec->steps && exec->first == 0; s++)
        exec->timeline_step_ns[s] = exec->step_end_ns[s] - exec->start_ns;
    ESP_TRY(esp_i_exec_settle(exec, share(exec, start, end, &why), &why, diag));
    *timeline_out = (esp_exec_timeline_t){.n_ranks = exec->n_ranks,
                                          .n_tasks = exec->deployment->n_tasks,
                                          .device = exec->device,
                                          .start_ns = start,
                                          .end_ns = end,
                                          .steps = exec->steps,
                                          .step_end_ns = exec->timeline_step_ns};
    return ESP_OK;
}
