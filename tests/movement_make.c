/* Making a deployment of one movement. */
#include "movement.h"
#include "deploy_builder.h"

#include <string.h>

void *movement_memory(movement_t *f, int64_t n, size_t size)
{
    void *memory = esp_i_arena_alloc(&f->arena, n > 0 ? n : 1, size);
    assert_non_null(memory);
    return memory;
}

static int32_t below(draw_t *draw, int64_t n)
{
    return (int32_t)esp_i_rng_below(&draw->rng, n);
}

bool movement_adds(esp_comm_t kind)
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
    double weight[MOVEMENT_DEVICES];
    for (int32_t k = 0; k < n; k++)
        weight[k] = 0.2 + esp_i_rng_unit(&draw->rng);
    esp_i_apportion(total - n, 1, n, weight, side->units);
    for (int32_t k = 0; k < n; k++)
        side->units[k]++;
}

static void sides_draw(movement_t *f, draw_t *draw, int64_t total)
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
static void meshes_make(movement_t *f)
{
    esp_deployment_t *d = &f->d;
    const int32_t n = f->cluster->n_devices;
    int32_t *device_class = movement_memory(f, n, sizeof *device_class),
            *offset = movement_memory(f, 3, sizeof *offset);
    int32_t *device = movement_memory(f, 2 * MOVEMENT_DEVICES, sizeof *device);
    int64_t *units = movement_memory(f, 2 * MOVEMENT_DEVICES, sizeof *units);
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
static void tensors_make(movement_t *f, draw_t *draw, int64_t rows)
{
    static const esp_dtype_t dtypes[] = {ESP_DTYPE_F32, ESP_DTYPE_F32, ESP_DTYPE_I64,
                                         ESP_DTYPE_I32};
    esp_graph_t *g = &f->graph;
    const int32_t micro = draw->exact ? 1 : 1 + below(draw, 2);
    g->n_tensors = f->n_pairs;
    g->batch = rows * micro;
    g->loss = ESP_NONE;
    f->d.micro_batches = micro;
    uint8_t *dtype = movement_memory(f, f->n_pairs, 1);
    int64_t *elements = movement_memory(f, f->n_pairs, sizeof *elements);
    esp_view_t *batch = movement_memory(f, f->n_pairs, sizeof *batch);
    int64_t(*dims)[ESP_MAX_RANK] = movement_memory(f, f->n_pairs, sizeof *dims);
    int8_t *rank = movement_memory(f, f->n_pairs, sizeof *rank);
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

static bool same_memory(const draw_t *draw, const movement_t *f, bool in_place, int32_t device)
{
    if (draw->kind == ESP_COMM_ALLREDUCE)
        return in_place;
    bool holds = false;
    for (int32_t k = 0; k < f->side[0].n; k++)
        holds = holds || f->side[0].device[k] == device;
    return draw->kind == ESP_COMM_BROADCAST && holds;
}

/* Values 2p and 2p + 1 are the ends of pair p; a buffer per value and device. */
static void values_make(movement_t *f, draw_t *draw)
{
    esp_deployment_t *d = &f->d;
    const int32_t n = 2 * f->n_pairs;
    esp_tensor_id_t *tensor = movement_memory(f, n, sizeof *tensor);
    int32_t *mesh = movement_memory(f, n, sizeof *mesh),
            *buffer = movement_memory(f, n, sizeof *buffer);
    uint8_t *form = movement_memory(f, n, 1), *share = movement_memory(f, n, 1);
    esp_view_t *view = movement_memory(f, n, sizeof *view);
    int16_t *micro = movement_memory(f, n, sizeof *micro);
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

/* Between the buffers lie 64 bytes of nobody. */
static void buffers_make(movement_t *f, draw_t *draw)
{
    esp_deployment_t *d = &f->d;
    int32_t *value = movement_memory(f, d->n_buffers, sizeof *value),
            *owner = movement_memory(f, d->n_buffers, sizeof *owner);
    int32_t *root = movement_memory(f, d->n_buffers, sizeof *root),
            *made = movement_memory(f, d->n_buffers, sizeof *made);
    int64_t *offset = movement_memory(f, d->n_buffers, sizeof *offset);
    uint8_t *resident = movement_memory(f, d->n_buffers, 1);
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
                f->arena_bytes[device] = offset[b] + movement_align(n * 8);
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

static void comm_make(movement_t *f, draw_t *draw)
{
    esp_deployment_t *d = &f->d;
    uint8_t *kind = movement_memory(f, 1, 1), *task_kind = movement_memory(f, 1, 1);
    int32_t *pairs = movement_memory(f, 2, sizeof *pairs),
            *src = movement_memory(f, f->n_pairs, sizeof *src);
    int32_t *dst = movement_memory(f, f->n_pairs, sizeof *dst),
            *zero = movement_memory(f, 2, sizeof *zero);
    int64_t *bytes = movement_memory(f, 1, sizeof *bytes);
    const esp_pattern_t **pattern = movement_memory(f, 1, sizeof *pattern);
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

void movement_make(movement_t *f, draw_t *draw)
{
    memset(f, 0, sizeof *f);
    esp_i_arena_init(&f->arena, NULL);
    do {
        esp_cluster_destroy(f->cluster);
        f->cluster = lab_random_cluster(&draw->rng, 3, 3);
    } while (f->cluster->n_devices < 2);
    assert_true(f->cluster->n_devices <= MOVEMENT_DEVICES);
    const int64_t rows = draw->exact ? 2520 : f->cluster->n_devices + below(draw, 9);
    f->n_pairs = 1 + below(draw, draw->exact ? 2 : MOVEMENT_PAIRS);
    f->cost = (esp_cost_t){.graph = &f->graph, .cluster = f->cluster};
    f->d = (esp_deployment_t){.graph = &f->graph, .cluster = f->cluster, .cost = &f->cost};
    f->carried = movement_memory(f, f->cluster->n_links, sizeof *f->carried);
    sides_draw(f, draw, rows);
    meshes_make(f);
    tensors_make(f, draw, rows);
    values_make(f, draw);
    buffers_make(f, draw);
    comm_make(f, draw);
}

void movement_free(movement_t *f)
{
    esp_cluster_destroy(f->cluster);
    esp_i_arena_fini(&f->arena);
}

esp_place_t movement_place(movement_t *f, int32_t s)
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
