/* Carrying out one movement. */
#include "movement.h"
#include "stored.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILLER = 0xa5 };

/* ---- data --------------------------------------------------------------------------------------
 */

static double number(draw_t *draw)
{
    return draw->wide ? esp_i_rng_unit(&draw->rng) - 0.5 : (double)esp_i_rng_below(&draw->rng, 100);
}

void movement_data(movement_t *f, draw_t *draw)
{
    for (int32_t p = 0; p < f->n_pairs; p++) {
        const int64_t n = f->graph.tensor_elements[p];
        f->whole[p] = movement_memory(f, n, sizeof(double));
        for (int64_t i = 0; i < n && !movement_adds(draw->kind); i++)
            f->whole[p][i] = number(draw);
        for (int32_t k = 0; k < f->side[0].n && movement_adds(draw->kind); k++) {
            f->addend[p][k] = movement_memory(f, n, sizeof(double));
            for (int64_t i = 0; i < n; i++)
                f->whole[p][i] += f->addend[p][k][i] = number(draw);
        }
    }
}

static void mark(movement_t *f, int32_t device, int64_t place, int64_t bytes)
{
    for (int64_t i = place; i < place + bytes; i++)
        f->mine[device][i] = true;
}

static void memories_fill(movement_t *f, const draw_t *draw, int64_t scratch)
{
    for (int32_t device = 0; device < f->cluster->n_devices; device++) {
        const int64_t bytes = (f->arena_bytes[device] + 64 + scratch + 64) * (draw->wide ? 2 : 1);
        f->memory[device] = movement_memory(f, bytes, 1);
        f->before[device] = movement_memory(f, bytes, 1);
        f->mine[device] = movement_memory(f, bytes, sizeof(bool));
        memset(f->memory[device], FILLER, (size_t)bytes);
    }
    for (int32_t b = 0; b < f->d.n_buffers; b++) {
        const int32_t v = f->d.buffer_value[b], device = f->d.buffer_class[b];
        if (v % 2)
            continue;
        const esp_i_local_t local = esp_i_local_of(&f->d, b, device, draw->wide);
        const esp_i_buffer_t at = stored_buffer(&local);
        const double *from = movement_adds(draw->kind) ? f->addend[v / 2][b - f->d.value_buffer[v]]
                                                       : f->whole[v / 2];
        for (int64_t i = 0; i < local.elements; i++)
            stored_put(local.dtype, f->memory[device] + local.place, i,
                       from[esp_i_buffer_global_index(&at, i)]);
    }
}

/* Which memory may change: results, receive buffers, sources of a reduce-scatter of its own. */
static void memories_mark(movement_t *f, const draw_t *draw, int64_t scratch)
{
    const int64_t scale = draw->wide ? 2 : 1;
    for (int32_t b = 0; b < f->d.n_buffers; b++) {
        const esp_i_local_t local = esp_i_local_of(&f->d, b, f->d.buffer_class[b], draw->wide);
        if (f->d.buffer_value[b] % 2 || (draw->kind == ESP_COMM_REDUCE_SCATTER && !draw->shared))
            mark(f, f->d.buffer_class[b], local.place,
                 local.elements * esp_dtype_bytes(local.dtype));
    }
    for (int32_t device = 0; device < f->cluster->n_devices; device++) {
        const int64_t bytes = (f->arena_bytes[device] + 64 + scratch + 64) * scale;
        mark(f, device, (f->arena_bytes[device] + 64) * scale, scratch * scale);
        memcpy(f->before[device], f->memory[device], (size_t)bytes);
    }
}

static void check_rest(const movement_t *f, const draw_t *draw, int64_t scratch)
{
    for (int32_t device = 0; device < f->cluster->n_devices; device++) {
        const int64_t bytes = (f->arena_bytes[device] + 64 + scratch + 64) * (draw->wide ? 2 : 1);
        for (int64_t i = 0; i < bytes; i++)
            if (!f->mine[device][i] && f->memory[device][i] != f->before[device][i])
                fail_msg("device %d: byte %lld is overwritten", device, (long long)i);
    }
}

/* Every target holds its rows of the whole; replicas are the same bit for bit. */
static void check_results(const movement_t *f, const draw_t *draw)
{
    for (int32_t b = 0; b < f->d.n_buffers; b++) {
        const int32_t v = f->d.buffer_value[b], device = f->d.buffer_class[b];
        if (v % 2 == 0)
            continue;
        const esp_i_local_t local = esp_i_local_of(&f->d, b, device, draw->wide);
        const esp_i_buffer_t at = stored_buffer(&local);
        for (int64_t i = 0; i < local.elements; i++) {
            const double is = stored_get(local.dtype, f->memory[device] + local.place, i);
            const double should = f->whole[v / 2][esp_i_buffer_global_index(&at, i)];
            if (!(fabs(is - should) <= (draw->wide ? 1e-12 : 0)))
                fail_msg("pair %d, device %d, element %lld: %g, not %g", v / 2, device,
                         (long long)i, is, should);
        }
        const int32_t first = f->d.value_buffer[v];
        const esp_i_local_t other =
            esp_i_local_of(&f->d, first, f->d.buffer_class[first], draw->wide);
        if (f->d.value_form[v] == ESP_FORM_REPLICATED)
            assert_memory_equal(f->memory[device] + local.place,
                                f->memory[f->d.buffer_class[first]] + other.place,
                                (size_t)(local.elements * esp_dtype_bytes(local.dtype)));
    }
}

/* ---- all devices in step
 * -------------------------------------------------------------------------- */

typedef struct at {
    int32_t stage;
    bool *moved; /* per transfer */
} at_t;

/* The first message of the stage that has not moved, between a device and a peer. */
static int32_t pending(const esp_i_lists_t *lists, const at_t *at, int32_t peer, bool send)
{
    if (at->stage == lists->stage.count)
        return ESP_NONE;
    const esp_i_stage_t *stage = &lists->stage.data[at->stage];
    for (int32_t i = 0; i < stage->n_transfers; i++) {
        const int32_t t = stage->first_transfer + i;
        if (!at->moved[t] && lists->transfer.data[t].peer == peer &&
            lists->transfer.data[t].send == send)
            return t;
    }
    return ESP_NONE;
}

static int64_t transfer_bytes(const esp_i_lists_t *lists, int32_t t)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < lists->transfer.data[t].n; i++)
        bytes += lists->extent.data[lists->transfer.data[t].first + i].bytes;
    return bytes;
}

static void message_move(movement_t *f, int32_t from, int32_t to, int32_t send, int32_t receive)
{
    const esp_i_lists_t *a = &f->lists[from], *b = &f->lists[to];
    const int64_t bytes = transfer_bytes(a, send);
    assert_true(bytes > 0);
    assert_int_equal(bytes, transfer_bytes(b, receive));
    char *wire = malloc((size_t)bytes);
    assert_non_null(wire);
    int64_t at = 0;
    for (int32_t i = 0; i < a->transfer.data[send].n; i++) {
        const esp_i_extent_t e = a->extent.data[a->transfer.data[send].first + i];
        memcpy(wire + at, f->memory[from] + e.place, (size_t)e.bytes);
        at += e.bytes;
    }
    at = 0;
    for (int32_t i = 0; i < b->transfer.data[receive].n; i++) {
        const esp_i_extent_t e = b->extent.data[b->transfer.data[receive].first + i];
        memcpy(f->memory[to] + e.place, wire + at, (size_t)e.bytes);
        at += e.bytes;
    }
    free(wire);
    const int32_t *route;
    const int32_t hops = esp_cluster_route(f->cluster, from, to, &route);
    for (int32_t i = 0; i < hops; i++)
        f->carried[route[i]] += (double)bytes;
}

static bool stage_ended(const esp_i_lists_t *lists, const at_t *at)
{
    const esp_i_stage_t *stage = &lists->stage.data[at->stage];
    for (int32_t i = 0; i < stage->n_transfers; i++)
        if (!at->moved[stage->first_transfer + i])
            return false;
    return true;
}

static bool go_on(movement_t *f, at_t *at)
{
    const int32_t n = f->cluster->n_devices;
    bool any = false;
    for (int32_t from = 0; from < n; from++)
        for (int32_t to = 0; to < n; to++) {
            const int32_t send = pending(&f->lists[from], &at[from], to, true);
            const int32_t receive = pending(&f->lists[to], &at[to], from, false);
            if (send == ESP_NONE || receive == ESP_NONE)
                continue;
            message_move(f, from, to, send, receive);
            at[from].moved[send] = at[to].moved[receive] = any = true;
        }
    for (int32_t device = 0; device < n; device++) {
        const esp_i_lists_t *lists = &f->lists[device];
        if (at[device].stage == lists->stage.count || !stage_ended(lists, &at[device]))
            continue;
        const esp_i_stage_t *stage = &lists->stage.data[at[device].stage++];
        for (int32_t w = 0; w < stage->n_work; w++)
            run_work(f->memory[device], &lists->work.data[stage->first_work + w],
                     lists->work_src.data);
        any = true;
    }
    return any;
}

static void carry_out(movement_t *f)
{
    at_t at[MOVEMENT_DEVICES];
    for (int32_t device = 0; device < f->cluster->n_devices; device++)
        at[device] = (at_t){0, movement_memory(f, f->lists[device].transfer.count, sizeof(bool))};
    while (go_on(f, at))
        ;
    for (int32_t device = 0; device < f->cluster->n_devices; device++)
        if (at[device].stage != f->lists[device].stage.count)
            fail_msg("device %d is stuck in stage %d of %d", device, at[device].stage,
                     f->lists[device].stage.count);
}

static void lists_make(movement_t *f, const draw_t *draw, const int32_t *readers)
{
    for (int32_t device = 0; device < f->cluster->n_devices; device++) {
        f->lists[device] = (esp_i_lists_t){.deployment = &f->d,
                                           .device = device,
                                           .wide = draw->wide,
                                           .fine = true,
                                           .alloc = esp_i_malloc,
                                           .last_reader = draw->shared ? readers : NULL,
                                           .other_reader = draw->shared ? readers : NULL};
        esp_i_schedule(&f->lists[device], 0, (f->arena_bytes[device] + 64) * (draw->wide ? 2 : 1));
        assert_true(f->lists[device].fine);
    }
}

static void lists_free(movement_t *f)
{
    for (int32_t device = 0; device < f->cluster->n_devices; device++) {
        esp_i_lists_t *lists = &f->lists[device];
        esp_vec_free(&lists->alloc, &lists->stage);
        esp_vec_free(&lists->alloc, &lists->transfer);
        esp_vec_free(&lists->alloc, &lists->extent);
        esp_vec_free(&lists->alloc, &lists->work);
        esp_vec_free(&lists->alloc, &lists->work_src);
    }
}

static void check_loads(const movement_t *f, const draw_t *draw, const esp_pattern_t *pattern)
{
    const double bytes = (double)f->d.comm_bytes[0] * (draw->wide ? 2 : 1);
    double *load = calloc((size_t)f->cluster->n_links + 1, sizeof *load);
    assert_non_null(load);
    for (int32_t i = 0; i < pattern->n_links; i++)
        load[pattern->link[i]] = pattern->load[i] * bytes;
    for (int32_t link = 0; link < f->cluster->n_links; link++)
        if (fabs(f->carried[link] - load[link]) > 1e-6 * bytes)
            fail_msg("link %d carries %g bytes, not %g, of %g", link, f->carried[link], load[link],
                     bytes);
    free(load);
}

void movement_run(movement_t *f, draw_t *draw, const esp_pattern_t *pattern)
{
    *(const esp_pattern_t **)(uintptr_t)f->d.comm_pattern = pattern;
    const int64_t scratch = movement_align(esp_deployment_scratch_bytes(&f->d, 0));
    int32_t *readers = movement_memory(f, f->d.n_buffers, sizeof *readers);
    memset(f->carried, 0, (size_t)f->cluster->n_links * sizeof *f->carried);
    memories_fill(f, draw, scratch);
    memories_mark(f, draw, scratch);
    lists_make(f, draw, readers);
    carry_out(f);
    check_results(f, draw);
    check_rest(f, draw, scratch);
    if (draw->exact && !draw->shared)
        check_loads(f, draw, pattern);
    lists_free(f);
}
