/*
 * Movements as stages of messages: each kind by each algorithm, between random devices of random
 * clusters, carried out by all devices in step, without buffers between them. What arrives is what
 * a naive movement makes, memory that is nobody's business stays as it is, and links carry what
 * their pattern says.
 */
#include "deploy_builder.h"
#include "program_run.h"

#include "graph/kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a deployment of one movement -------------------------------------------------------------
 */

enum { MAX_PAIRS = 4, MAX_DEVICES = 16, FILLER = 0xa5 };

typedef struct side {
    int32_t n;
    int32_t device[MAX_DEVICES];
    double fraction[MAX_DEVICES];
    int64_t units[MAX_DEVICES];
} side_t;

/* What is drawn. */
typedef struct draw {
    esp_i_rng_t rng;
    bool exact;  /* sizes that divide: links carry exactly what the pattern says */
    bool wide;   /* doubles; else float32 and integers, of whole numbers */
    bool shared; /* others read the sources, too */
    esp_comm_t kind;
} draw_t;

typedef struct fake {
    esp_deployment_t d;
    esp_graph_t graph;
    esp_cost_t cost;
    esp_i_arena_t arena;
    esp_cluster_t *cluster;
    side_t side[2];
    int32_t n_pairs;
    int64_t arena_bytes[MAX_DEVICES];
    double *whole[MAX_PAIRS];               /* what is moved, or the sum of: */
    double *addend[MAX_PAIRS][MAX_DEVICES]; /* by number in the source */
    char *memory[MAX_DEVICES], *before[MAX_DEVICES];
    bool *mine[MAX_DEVICES]; /* bytes that the movement may write */
    esp_i_lists_t lists[MAX_DEVICES];
    double *carried; /* bytes, per link */
} fake_t;

static void *take(fake_t *f, int64_t n, size_t size)
{
    void *memory = esp_i_arena_alloc(&f->arena, n > 0 ? n : 1, size);
    assert_non_null(memory);
    return memory;
}

static int32_t below(draw_t *draw, int64_t n)
{
    return (int32_t)esp_i_rng_below(&draw->rng, n);
}

static bool is_reduction(esp_comm_t kind)
{
    return kind == ESP_COMM_ALLREDUCE || kind == ESP_COMM_REDUCE_SCATTER || kind == ESP_COMM_REDUCE;
}

static bool stays(esp_comm_t kind)
{
    return kind == ESP_COMM_ALLREDUCE || kind == ESP_COMM_REDUCE_SCATTER ||
           kind == ESP_COMM_ALL_GATHER || kind == ESP_COMM_ALL_TO_ALL;
}

static esp_form_t form_of(esp_comm_t kind, int32_t side)
{
    static const esp_form_t form[ESP_COMM_COUNT][2] = {
        [ESP_COMM_ALLREDUCE] = {ESP_FORM_PARTIAL, ESP_FORM_REPLICATED},
        [ESP_COMM_REDUCE_SCATTER] = {ESP_FORM_PARTIAL, ESP_FORM_SPLIT},
        [ESP_COMM_ALL_GATHER] = {ESP_FORM_SPLIT, ESP_FORM_REPLICATED},
        [ESP_COMM_REDUCE] = {ESP_FORM_PARTIAL, ESP_FORM_REPLICATED},
        [ESP_COMM_BROADCAST] = {ESP_FORM_REPLICATED, ESP_FORM_REPLICATED},
        [ESP_COMM_EXCHANGE] = {ESP_FORM_SPLIT, ESP_FORM_SPLIT},
        [ESP_COMM_GATHER] = {ESP_FORM_SPLIT, ESP_FORM_REPLICATED},
        [ESP_COMM_SCATTER] = {ESP_FORM_REPLICATED, ESP_FORM_SPLIT},
        [ESP_COMM_ALL_TO_ALL] = {ESP_FORM_SPLIT, ESP_FORM_SPLIT},
    };
    return form[kind][side];
}

/* Random devices; their units of the batch add up to `total`. */
static void side_draw(draw_t *draw, const esp_cluster_t *cluster, side_t *side, int32_t n,
                      int64_t total)
{
    side->n = 0;
    for (int32_t k = 0; k < cluster->n_devices && side->n < n; k++)
        if (esp_i_rng_below(&draw->rng, cluster->n_devices - k) < n - side->n)
            side->device[side->n++] = k;
    double weight[MAX_DEVICES];
    for (int32_t k = 0; k < n; k++)
        weight[k] = 0.2 + esp_i_rng_unit(&draw->rng);
    esp_i_apportion(total - n, 1, n, weight, side->units);
    for (int32_t k = 0; k < n; k++)
        side->units[k]++;
}

static void sides_draw(fake_t *f, draw_t *draw, int64_t total)
{
    const int32_t all = f->cluster->n_devices;
    int32_t n = 1 + below(draw, all);
    if (draw->exact && draw->kind == ESP_COMM_ALL_TO_ALL) /* divides 12 */
        n = n < 5 ? n : 4;
    side_draw(draw, f->cluster, &f->side[0], n, total);
    if (stays(draw->kind) || (draw->kind == ESP_COMM_EXCHANGE && below(draw, 2)))
        f->side[1] = f->side[0];
    else
        side_draw(draw, f->cluster, &f->side[1],
                  draw->kind == ESP_COMM_REDUCE ? 1 : 1 + below(draw, all), total);
}

/* Meshes 0 and 1; each device is a class. */
static void meshes_make(fake_t *f)
{
    esp_deployment_t *d = &f->d;
    const int32_t n = f->cluster->n_devices;
    int32_t *device_class = take(f, n, sizeof *device_class), *offset = take(f, 3, sizeof *offset);
    int32_t *device = take(f, 2 * MAX_DEVICES, sizeof *device);
    int64_t *units = take(f, 2 * MAX_DEVICES, sizeof *units);
    for (int32_t k = 0; k < n; k++)
        device_class[k] = k;
    for (int32_t s = 0; s < 2; s++) {
        offset[s + 1] = offset[s] + f->side[s].n;
        for (int32_t k = 0; k < f->side[s].n; k++) {
            device[offset[s] + k] = f->side[s].device[k];
            units[offset[s] + k] = f->side[s].units[k];
        }
    }
    d->n_classes = n;
    d->device_class = device_class;
    d->n_meshes = 2;
    d->mesh_offset = d->mesh_class_offset = offset;
    d->mesh_device = d->mesh_class = device;
    d->mesh_units = d->mesh_class_units = units;
}

/* Tensors [a, batch, c]. */
static void tensors_make(fake_t *f, draw_t *draw, int64_t rows)
{
    static const esp_dtype_t dtypes[] = {ESP_DTYPE_F32, ESP_DTYPE_F32, ESP_DTYPE_I64,
                                         ESP_DTYPE_I32};
    esp_graph_t *g = &f->graph;
    const int32_t micro = draw->exact ? 1 : 1 + below(draw, 2);
    g->n_tensors = f->n_pairs;
    g->batch = rows * micro;
    g->loss = ESP_NONE;
    f->d.micro_batches = micro;
    uint8_t *dtype = take(f, f->n_pairs, 1);
    int64_t *elements = take(f, f->n_pairs, sizeof *elements);
    esp_view_t *batch = take(f, f->n_pairs, sizeof *batch);
    int64_t(*dims)[ESP_MAX_RANK] = take(f, f->n_pairs, sizeof *dims);
    int8_t *rank = take(f, f->n_pairs, sizeof *rank);
    for (int32_t p = 0; p < f->n_pairs; p++) {
        const int64_t a = draw->exact ? 1 : 1 + below(draw, 5);
        const int64_t c = draw->exact ? 12 : 1 + below(draw, 7);
        dtype[p] = (uint8_t)(draw->wide ? ESP_DTYPE_F32 : dtypes[below(draw, 4)]);
        if (draw->exact && p > 0)
            dtype[p] = dtype[0];
        batch[p] = (esp_view_t){a, g->batch, c};
        dims[p][0] = a;
        dims[p][1] = g->batch;
        dims[p][2] = c;
        rank[p] = 3;
        elements[p] = a * g->batch * c;
    }
    g->tensor_dtype = dtype;
    g->tensor_elements = elements;
    g->tensor_batch = batch;
    g->tensor_dims = (const int64_t(*)[ESP_MAX_RANK])dims;
    g->tensor_rank = rank;
}

static bool same_memory(const draw_t *draw, const fake_t *f, bool in_place, int32_t device)
{
    if (draw->kind == ESP_COMM_ALLREDUCE)
        return in_place;
    bool holds = false;
    for (int32_t k = 0; k < f->side[0].n; k++)
        holds = holds || f->side[0].device[k] == device;
    return draw->kind == ESP_COMM_BROADCAST && holds;
}

/* Values 2p and 2p + 1 are the ends of pair p; a buffer per value and device. */
static void values_make(fake_t *f, draw_t *draw)
{
    esp_deployment_t *d = &f->d;
    const int32_t n = 2 * f->n_pairs;
    esp_tensor_id_t *tensor = take(f, n, sizeof *tensor);
    int32_t *mesh = take(f, n, sizeof *mesh), *buffer = take(f, n, sizeof *buffer);
    uint8_t *form = take(f, n, 1), *share = take(f, n, 1);
    esp_view_t *view = take(f, n, sizeof *view);
    int16_t *micro = take(f, n, sizeof *micro);
    const bool even = draw->kind == ESP_COMM_ALL_TO_ALL || below(draw, 2);
    const int16_t one = (int16_t)(even ? ESP_NONE : below(draw, d->micro_batches + 1) - 1);
    const int32_t which = below(draw, 3);
    for (int32_t v = 0; v < n; v++) {
        const esp_view_t batch = f->graph.tensor_batch[v / 2];
        const int64_t elements = f->graph.tensor_elements[v / 2];
        tensor[v] = v / 2;
        mesh[v] = v % 2;
        form[v] = (uint8_t)form_of(draw->kind, v % 2);
        share[v] = (uint8_t)(even ? ESP_SHARE_EVEN : ESP_SHARE_BATCH);
        micro[v] = one;
        view[v] = batch;
        if (even && which == 1)
            view[v] = (esp_view_t){1, elements, 1};
        if (draw->kind == ESP_COMM_ALL_TO_ALL && v % 2 == 1)
            view[v] = (esp_view_t){batch.outer * batch.extent, batch.inner, 1};
        buffer[v] = d->n_buffers;
        d->n_buffers += f->side[v % 2].n;
    }
    if (stays(draw->kind)) /* as one mesh */
        for (int32_t v = 0; v < n; v++)
            mesh[v] = 0;
    d->n_values = n;
    d->value_tensor = tensor;
    d->value_mesh = mesh;
    d->value_form = form;
    d->value_share = share;
    d->value_view = view;
    d->value_micro = micro;
    d->value_buffer = buffer;
}

static int64_t align(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Between the buffers lie 64 bytes of nobody. */
static void buffers_make(fake_t *f, draw_t *draw)
{
    esp_deployment_t *d = &f->d;
    int32_t *value = take(f, d->n_buffers, sizeof *value),
            *owner = take(f, d->n_buffers, sizeof *owner);
    int32_t *root = take(f, d->n_buffers, sizeof *root),
            *made = take(f, d->n_buffers, sizeof *made);
    int64_t *offset = take(f, d->n_buffers, sizeof *offset);
    uint8_t *resident = take(f, d->n_buffers, 1);
    const bool in_place = below(draw, 2);
    for (int32_t v = 0; v < d->n_values; v++)
        for (int32_t k = 0; k < f->side[v % 2].n; k++) {
            const int32_t b = d->value_buffer[v] + k, device = f->side[v % 2].device[k];
            value[b] = v;
            owner[b] = device;
            root[b] = b;
            made[b] = ESP_NONE;
            offset[b] = f->arena_bytes[device] + 64;
            esp_view_t view;
            int64_t first, share;
            esp_deployment_share(d, v, k, &view, &first, &share);
            const int64_t n =
                view.extent ? view.outer * share * view.inner : f->graph.tensor_elements[v / 2];
            const bool same = v % 2 && same_memory(draw, f, in_place, device);
            if (!same)
                f->arena_bytes[device] = offset[b] + align(n * 8);
            for (int32_t s = 0; s < f->side[0].n && same; s++)
                if (f->side[0].device[s] == device)
                    root[b] = d->value_buffer[v - 1] + s;
        }
    d->buffer_value = value;
    d->buffer_class = owner;
    d->buffer_root = root;
    d->buffer_producer = made;
    d->buffer_resident = resident;
    d->buffer_offset = offset;
}

static void comm_make(fake_t *f, draw_t *draw)
{
    esp_deployment_t *d = &f->d;
    uint8_t *kind = take(f, 1, 1), *task_kind = take(f, 1, 1);
    int32_t *pairs = take(f, 2, sizeof *pairs), *src = take(f, f->n_pairs, sizeof *src);
    int32_t *dst = take(f, f->n_pairs, sizeof *dst), *zero = take(f, 2, sizeof *zero);
    int64_t *bytes = take(f, 1, sizeof *bytes);
    const esp_pattern_t **pattern = take(f, 1, sizeof *pattern);
    kind[0] = (uint8_t)draw->kind;
    task_kind[0] = ESP_TASK_COMM;
    pairs[1] = f->n_pairs;
    for (int32_t p = 0; p < f->n_pairs; p++) {
        src[p] = 2 * p;
        dst[p] = 2 * p + 1;
        bytes[0] += f->graph.tensor_elements[p] *
                    esp_dtype_bytes((esp_dtype_t)f->graph.tensor_dtype[p]) /
                    (d->value_micro[0] == ESP_NONE ? 1 : d->micro_batches);
    }
    d->n_tasks = d->n_comms = 1;
    d->task_kind = task_kind;
    d->task_comm = d->order = d->position = zero;
    d->comm_kind = kind;
    d->comm_pattern = pattern;
    d->comm_bytes = bytes;
    d->comm_pair_offset = pairs;
    d->comm_src = src;
    d->comm_dst = dst;
}

static void fake_make(fake_t *f, draw_t *draw)
{
    memset(f, 0, sizeof *f);
    esp_i_arena_init(&f->arena, NULL);
    do {
        esp_cluster_destroy(f->cluster);
        f->cluster = lab_random_cluster(&draw->rng, 3, 3);
    } while (f->cluster->n_devices < 2);
    assert_true(f->cluster->n_devices <= MAX_DEVICES);
    const int64_t rows = draw->exact ? 2520 : f->cluster->n_devices + below(draw, 9);
    f->n_pairs = 1 + below(draw, draw->exact ? 2 : MAX_PAIRS);
    f->cost = (esp_cost_t){.graph = &f->graph, .cluster = f->cluster};
    f->d = (esp_deployment_t){.graph = &f->graph, .cluster = f->cluster, .cost = &f->cost};
    f->carried = take(f, f->cluster->n_links, sizeof *f->carried);
    sides_draw(f, draw, rows);
    meshes_make(f);
    tensors_make(f, draw, rows);
    values_make(f, draw);
    buffers_make(f, draw);
    comm_make(f, draw);
}

static void fake_free(fake_t *f)
{
    esp_cluster_destroy(f->cluster);
    esp_i_arena_fini(&f->arena);
}

/* ---- data --------------------------------------------------------------------------------------
 */

static esp_i_buffer_t buffer_at(const esp_i_local_t *local)
{
    esp_i_buffer_t buffer = {.rank = local->rank,
                             .global_rank = local->global_rank,
                             .view = local->view,
                             .offset = local->offset,
                             .share = local->share};
    memcpy(buffer.dims, local->dims, sizeof buffer.dims);
    memcpy(buffer.global, local->global, sizeof buffer.global);
    return buffer;
}

static double number(draw_t *draw)
{
    return draw->wide ? esp_i_rng_unit(&draw->rng) - 0.5 : (double)below(draw, 100);
}

static void wholes_draw(fake_t *f, draw_t *draw)
{
    for (int32_t p = 0; p < f->n_pairs; p++) {
        const int64_t n = f->graph.tensor_elements[p];
        f->whole[p] = take(f, n, sizeof(double));
        for (int64_t i = 0; i < n && !is_reduction(draw->kind); i++)
            f->whole[p][i] = number(draw);
        for (int32_t k = 0; k < f->side[0].n && is_reduction(draw->kind); k++) {
            f->addend[p][k] = take(f, n, sizeof(double));
            for (int64_t i = 0; i < n; i++)
                f->whole[p][i] += f->addend[p][k][i] = number(draw);
        }
    }
}

static void mark(fake_t *f, int32_t device, int64_t place, int64_t bytes)
{
    for (int64_t i = place; i < place + bytes; i++)
        f->mine[device][i] = true;
}

static void memories_fill(fake_t *f, const draw_t *draw, int64_t scratch)
{
    for (int32_t device = 0; device < f->cluster->n_devices; device++) {
        const int64_t bytes = (f->arena_bytes[device] + 64 + scratch + 64) * (draw->wide ? 2 : 1);
        f->memory[device] = take(f, bytes, 1);
        f->before[device] = take(f, bytes, 1);
        f->mine[device] = take(f, bytes, sizeof(bool));
        memset(f->memory[device], FILLER, (size_t)bytes);
    }
    for (int32_t b = 0; b < f->d.n_buffers; b++) {
        const int32_t v = f->d.buffer_value[b], device = f->d.buffer_class[b];
        if (v % 2)
            continue;
        const esp_i_local_t local = esp_i_local_of(&f->d, b, device, draw->wide);
        const esp_i_buffer_t at = buffer_at(&local);
        const double *from =
            is_reduction(draw->kind) ? f->addend[v / 2][b - f->d.value_buffer[v]] : f->whole[v / 2];
        for (int64_t i = 0; i < local.elements; i++)
            stored_put(local.dtype, f->memory[device] + local.place, i,
                       from[esp_i_buffer_global_index(&at, i)]);
    }
}

/* Which memory may change: results, receive buffers, sources of a reduce-scatter of its own. */
static void memories_mark(fake_t *f, const draw_t *draw, int64_t scratch)
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

static void check_rest(const fake_t *f, const draw_t *draw, int64_t scratch)
{
    for (int32_t device = 0; device < f->cluster->n_devices; device++) {
        const int64_t bytes = (f->arena_bytes[device] + 64 + scratch + 64) * (draw->wide ? 2 : 1);
        for (int64_t i = 0; i < bytes; i++)
            if (!f->mine[device][i] && f->memory[device][i] != f->before[device][i])
                fail_msg("device %d: byte %lld is overwritten", device, (long long)i);
    }
}

/* Every target holds its rows of the whole; replicas are the same bit for bit. */
static void check_results(const fake_t *f, const draw_t *draw)
{
    for (int32_t b = 0; b < f->d.n_buffers; b++) {
        const int32_t v = f->d.buffer_value[b], device = f->d.buffer_class[b];
        if (v % 2 == 0)
            continue;
        const esp_i_local_t local = esp_i_local_of(&f->d, b, device, draw->wide);
        const esp_i_buffer_t at = buffer_at(&local);
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

static void message_move(fake_t *f, int32_t from, int32_t to, int32_t send, int32_t receive)
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

static bool go_on(fake_t *f, at_t *at)
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

static void carry_out(fake_t *f)
{
    at_t at[MAX_DEVICES];
    for (int32_t device = 0; device < f->cluster->n_devices; device++)
        at[device] = (at_t){0, take(f, f->lists[device].transfer.count, sizeof(bool))};
    while (go_on(f, at))
        ;
    for (int32_t device = 0; device < f->cluster->n_devices; device++)
        if (at[device].stage != f->lists[device].stage.count)
            fail_msg("device %d is stuck in stage %d of %d", device, at[device].stage,
                     f->lists[device].stage.count);
}

static void lists_make(fake_t *f, const draw_t *draw, const int32_t *readers)
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

static void lists_free(fake_t *f)
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

static void check_loads(const fake_t *f, const draw_t *draw, const esp_pattern_t *pattern)
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

static void one(fake_t *f, draw_t *draw, const esp_pattern_t *pattern)
{
    *(const esp_pattern_t **)(uintptr_t)f->d.comm_pattern = pattern;
    const int64_t scratch = align(esp_deployment_scratch_bytes(&f->d, 0));
    int32_t *readers = take(f, f->d.n_buffers, sizeof *readers);
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

static esp_place_t place_of(fake_t *f, int32_t s)
{
    side_t *side = &f->side[s];
    int64_t total = 0;
    for (int32_t k = 0; k < side->n; k++)
        total += side->units[k];
    for (int32_t k = 0; k < side->n; k++)
        side->fraction[k] = f->d.value_share[s] == ESP_SHARE_EVEN
                                ? 1.0 / side->n
                                : (double)side->units[k] / (double)total;
    return (esp_place_t){side->n, side->device, side->fraction};
}

/* Whether every node has equally many of the sources. */
static bool nodes_even(const fake_t *f)
{
    const side_t *side = &f->side[0];
    int32_t count[MAX_DEVICES] = {0}, most = 0, nodes = 0;
    for (int32_t k = 0; k < side->n; k++) {
        int32_t *n = &count[f->cluster->device_node[side->device[k]]];
        nodes += *n == 0;
        most = ++*n > most ? *n : most;
    }
    return most * nodes == side->n;
}

/* done: per kind and algorithm; 4: two-level on nodes of unequal size. */
static void all_algorithms(draw_t *draw, int32_t done[ESP_COMM_COUNT][5])
{
    fake_t f;
    esp_pattern_t pattern[ESP_PATTERN_MAX];
    int32_t count;
    fake_make(&f, draw);
    wholes_draw(&f, draw);
    const esp_place_t from = place_of(&f, 0), to = place_of(&f, 1);
    assert_int_equal(esp_pattern_find(f.cluster, draw->kind, &from, &to, NULL, pattern, &count),
                     ESP_OK);
    for (int32_t i = 0; i < count; i++) {
        one(&f, draw, &pattern[i]);
        const bool two_level = pattern[i].algorithm == ESP_ALGORITHM_TWO_LEVEL;
        done[draw->kind][two_level && !nodes_even(&f) ? 4 : pattern[i].algorithm]++;
        esp_pattern_release(&pattern[i], NULL);
    }
    fake_free(&f);
}

static void check_kinds(draw_t draw, uint64_t seed, int32_t trials)
{
    /* algorithms that must occur: direct, ring, tree, two-level, the same on unequal nodes */
    static const uint8_t known[ESP_COMM_COUNT] = {
        [ESP_COMM_ALLREDUCE] = 30, [ESP_COMM_REDUCE_SCATTER] = 10, [ESP_COMM_ALL_GATHER] = 10,
        [ESP_COMM_REDUCE] = 9,     [ESP_COMM_BROADCAST] = 7,       [ESP_COMM_EXCHANGE] = 1,
        [ESP_COMM_GATHER] = 9,     [ESP_COMM_SCATTER] = 1,         [ESP_COMM_ALL_TO_ALL] = 1};
    int32_t done[ESP_COMM_COUNT][5] = {{0}};
    for (int32_t kind = 0; kind < ESP_COMM_COUNT; kind++) {
        for (int32_t i = 0; i < trials; i++) {
            draw.kind = (esp_comm_t)kind;
            esp_i_rng_seed(&draw.rng, seed + (uint64_t)i);
            all_algorithms(&draw, done);
        }
        for (int32_t a = 0; a < 5; a++)
            if (done[kind][a] == 0 && known[kind] >> a & 1)
                fail_msg("no %s by algorithm %d", esp_comm_name((esp_comm_t)kind), a);
    }
}

enum { TRIALS = 50, EXACT_TRIALS = 24 };

static void test_wide(void **state)
{
    (void)state;
    check_kinds((draw_t){.wide = true}, 1, TRIALS);
}

static void test_narrow(void **state)
{
    (void)state;
    check_kinds((draw_t){.wide = false}, 1001, TRIALS);
}

static void test_shared(void **state)
{
    (void)state;
    check_kinds((draw_t){.wide = true, .shared = true}, 2001, TRIALS);
}

static void test_loads(void **state)
{
    (void)state;
    check_kinds((draw_t){.wide = true, .exact = true}, 3001, EXACT_TRIALS);
    check_kinds((draw_t){.wide = false, .exact = true}, 4001, EXACT_TRIALS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_loads),
    };
    return cmocka_run_group_tests_name("exec_schedule", tests, NULL, NULL);
}
