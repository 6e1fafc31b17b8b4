#include "deploy_builder.h"

#include "espalier/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- clusters -------------------------------------------------------------------------------- */

static const esp_device_type_t lab_type = {
    .name = "lab",
    .kind = "gpu",
    .peak_flops = {1e13, 0, 4e13, 0},
    .memory_bytes = INT64_C(16) << 30,
    .memory_bytes_per_s = 1e12,
    .launch_ns = 5000,
    .source = "",
};

static int32_t add_vertex(esp_cluster_builder_t *b, esp_vertex_kind_t kind, const char *name,
                          int32_t node)
{
    int32_t vertex = -1;
    assert_int_equal(esp_cluster_builder_add_vertex(b, kind, name, node, &vertex, NULL), ESP_OK);
    return vertex;
}

static void add_cable(esp_cluster_builder_t *b, int32_t src, int32_t dst, lab_link_t link)
{
    esp_cluster_link_t cable = {NULL, src, dst, link.bytes_per_s, link.latency_ns};
    assert_int_equal(esp_cluster_builder_add_cable(b, &cable, NULL), ESP_OK);
}

static void add_node(esp_cluster_builder_t *b, int32_t number, int32_t devices, int32_t type,
                     int32_t hub, lab_link_t inside, lab_link_t between)
{
    char name[64];
    int32_t node, vertex;
    (void)snprintf(name, sizeof name, "n%d", number);
    assert_int_equal(esp_cluster_builder_add_node(b, name, &node, NULL), ESP_OK);
    (void)snprintf(name, sizeof name, "n%d/host", number);
    int32_t host = add_vertex(b, ESP_VERTEX_HOST, name, node);
    for (int32_t i = 0; i < devices; ++i) {
        (void)snprintf(name, sizeof name, "n%d/gpu%d", number, i);
        esp_cluster_device_t device = {name, type, node, INT64_C(1) << 34, -1, 0};
        assert_int_equal(esp_cluster_builder_add_device(b, &device, &vertex, NULL), ESP_OK);
        add_cable(b, vertex, host, inside);
    }
    if (hub >= 0)
        add_cable(b, host, hub, between);
}

esp_cluster_t *lab_cluster(int32_t nodes, int32_t per_node, const int32_t *counts,
                           lab_link_t inside, lab_link_t between)
{
    esp_cluster_builder_t *b;
    esp_cluster_t *cluster;
    esp_diag_t diag = {0};
    int32_t type;
    assert_int_equal(esp_cluster_builder_create("lab", NULL, &b, NULL), ESP_OK);
    assert_int_equal(esp_cluster_builder_add_type(b, &lab_type, &type, NULL), ESP_OK);
    int32_t hub = nodes > 1 ? add_vertex(b, ESP_VERTEX_SWITCH, "switch", -1) : -1;
    for (int32_t k = 0; k < nodes; ++k)
        add_node(b, k, counts ? counts[k] : per_node, type, hub, inside, between);
    test_assert_ok(esp_cluster_builder_freeze(b, 0, &cluster, &diag), &diag);
    esp_cluster_builder_destroy(b);
    return cluster;
}

esp_cluster_t *lab_random_cluster(esp_i_rng_t *rng, int32_t max_nodes, int32_t max_per_node)
{
    int32_t counts[16];
    int32_t nodes = 1 + (int32_t)esp_i_rng_below(rng, max_nodes);
    for (int32_t k = 0; k < nodes; ++k)
        counts[k] = 1 + (int32_t)esp_i_rng_below(rng, max_per_node);
    lab_link_t inside = {1e9 * (double)(1 + esp_i_rng_below(rng, 20)), esp_i_rng_below(rng, 2000)};
    lab_link_t between = {1e8 * (double)(1 + esp_i_rng_below(rng, 50)), esp_i_rng_below(rng, 9000)};
    return lab_cluster(nodes, 0, counts, inside, between);
}

/* ---- growing ----------------------------------------------------------------------------------
 */

typedef ESP_VEC(int32_t) ints_t;
typedef ESP_VEC(int64_t) longs_t;
typedef struct pair {
    int32_t first, second;
} pair_t;
typedef ESP_VEC(pair_t) pairs_t;

struct deploy {
    esp_deployment_t d;
    esp_graph_t graph;
    esp_cost_t cost;
    esp_i_arena_t arena;
    ints_t buffer_class, buffer_root, buffer_role, task_class, task_comm;
    longs_t buffer_bytes, task_ns, comm_bytes;
    ESP_VEC(bool) buffer_resident;
    ESP_VEC(double) workspace, workspace_whole;
    ESP_VEC(esp_pattern_t *) pattern;
    ints_t comm_collective, comm_class_offset, comm_class;
    pairs_t read, write, edge, cross; /* (task, buffer); (before, after) */
};

#define PUSH(vec, value) assert_true(esp_vec_push(&esp_i_malloc, (vec), (value)))

static void *room(deploy_t *deploy, int64_t n, size_t size)
{
    void *memory = esp_i_arena_alloc(&deploy->arena, n + 1, size);
    assert_non_null(memory);
    return memory;
}

deploy_t *deploy_new(const esp_cluster_t *cluster, int32_t n_classes)
{
    deploy_t *deploy = calloc(1, sizeof *deploy);
    assert_non_null(deploy);
    assert_true(n_classes <= cluster->n_devices);
    esp_i_arena_init(&deploy->arena, NULL);
    deploy->d.cluster = cluster;
    deploy->d.n_classes = n_classes;
    deploy->cost.cluster = cluster;
    PUSH(&deploy->comm_class_offset, 0);
    return deploy;
}

void deploy_free(deploy_t *deploy)
{
    esp_vec_free(&esp_i_malloc, &deploy->buffer_class);
    esp_vec_free(&esp_i_malloc, &deploy->buffer_root);
    esp_vec_free(&esp_i_malloc, &deploy->buffer_role);
    esp_vec_free(&esp_i_malloc, &deploy->buffer_bytes);
    esp_vec_free(&esp_i_malloc, &deploy->buffer_resident);
    esp_vec_free(&esp_i_malloc, &deploy->task_class);
    esp_vec_free(&esp_i_malloc, &deploy->task_comm);
    esp_vec_free(&esp_i_malloc, &deploy->task_ns);
    esp_vec_free(&esp_i_malloc, &deploy->workspace);
    esp_vec_free(&esp_i_malloc, &deploy->workspace_whole);
    esp_vec_free(&esp_i_malloc, &deploy->comm_bytes);
    esp_vec_free(&esp_i_malloc, &deploy->pattern);
    esp_vec_free(&esp_i_malloc, &deploy->comm_collective);
    esp_vec_free(&esp_i_malloc, &deploy->comm_class_offset);
    esp_vec_free(&esp_i_malloc, &deploy->comm_class);
    esp_vec_free(&esp_i_malloc, &deploy->read);
    esp_vec_free(&esp_i_malloc, &deploy->write);
    esp_vec_free(&esp_i_malloc, &deploy->edge);
    esp_vec_free(&esp_i_malloc, &deploy->cross);
    esp_i_arena_fini(&deploy->arena);
    free(deploy);
}

int32_t deploy_buffer(deploy_t *deploy, int32_t owner, int64_t bytes, bool resident,
                      esp_role_t role)
{
    PUSH(&deploy->buffer_class, owner);
    PUSH(&deploy->buffer_root, deploy->buffer_class.count - 1);
    PUSH(&deploy->buffer_role, (int32_t)role);
    PUSH(&deploy->buffer_bytes, bytes);
    PUSH(&deploy->buffer_resident, resident);
    return deploy->buffer_class.count - 1;
}

int32_t deploy_alias(deploy_t *deploy, int32_t root)
{
    int32_t alias = deploy_buffer(
        deploy, deploy->buffer_class.data[root], deploy->buffer_bytes.data[root],
        deploy->buffer_resident.data[root], (esp_role_t)deploy->buffer_role.data[root]);
    deploy->buffer_root.data[alias] = deploy->buffer_root.data[root];
    return alias;
}

static int32_t add_task(deploy_t *deploy, int32_t owner, int32_t comm, int64_t ns)
{
    PUSH(&deploy->task_class, owner);
    PUSH(&deploy->task_comm, comm);
    PUSH(&deploy->task_ns, ns);
    PUSH(&deploy->workspace, 0);
    PUSH(&deploy->workspace_whole, 0);
    return deploy->task_class.count - 1;
}

int32_t deploy_compute(deploy_t *deploy, int32_t owner, int64_t ns)
{
    return add_task(deploy, owner, ESP_NONE, ns);
}

static bool same_pattern(const esp_pattern_t *a, const esp_pattern_t *b)
{
    size_t n = (size_t)a->n_links;
    return a->n_links == b->n_links && a->latency_ns == b->latency_ns &&
           fabs(a->ns_per_byte - b->ns_per_byte) <= 0 && fabs(a->staging - b->staging) <= 0 &&
           (n == 0 || (memcmp(a->link, b->link, n * sizeof *a->link) == 0 &&
                       memcmp(a->load, b->load, n * sizeof *a->load) == 0));
}

/* Equal patterns are one object, as lowering has them. */
static esp_pattern_t *keep_pattern(deploy_t *deploy, const esp_pattern_t *pattern)
{
    for (int32_t i = 0; i < deploy->pattern.count; ++i)
        if (same_pattern(deploy->pattern.data[i], pattern))
            return deploy->pattern.data[i];
    esp_pattern_t *copy = room(deploy, 1, sizeof *copy);
    double *load = room(deploy, pattern->n_links, sizeof *load);
    int32_t *link = room(deploy, pattern->n_links, sizeof *link);
    for (int32_t i = 0; i < pattern->n_links; ++i) {
        load[i] = pattern->load[i];
        link[i] = pattern->link[i];
    }
    *copy = *pattern;
    copy->load = load;
    copy->link = link;
    return copy;
}

int32_t deploy_comm(deploy_t *deploy, const esp_pattern_t *pattern, int64_t bytes, bool collective,
                    int32_t n, const int32_t *classes)
{
    esp_pattern_t *kept = keep_pattern(deploy, pattern);
    PUSH(&deploy->pattern, kept);
    PUSH(&deploy->comm_bytes, bytes);
    PUSH(&deploy->comm_collective, collective);
    for (int32_t i = 0; i < n; ++i)
        PUSH(&deploy->comm_class, classes[i]);
    PUSH(&deploy->comm_class_offset, deploy->comm_class.count);
    int64_t ns = pattern->latency_ns + (int64_t)ceil((double)bytes * pattern->ns_per_byte);
    return add_task(deploy, ESP_NONE, deploy->pattern.count - 1, ns);
}

int32_t deploy_transfer(deploy_t *deploy, int32_t from, int32_t to, int64_t bytes)
{
    esp_pattern_t pattern[ESP_PATTERN_MAX];
    int32_t count, classes[2] = {from, to};
    esp_place_t src = {1, &from, NULL}, dst = {1, &to, NULL};
    assert_int_equal(
        esp_pattern_find(deploy->d.cluster, ESP_COMM_BROADCAST, &src, &dst, NULL, pattern, &count),
        ESP_OK);
    int32_t task = deploy_comm(deploy, &pattern[0], bytes, false, 2, classes);
    for (int32_t i = 0; i < count; ++i)
        esp_pattern_release(&pattern[i], NULL);
    return task;
}

void deploy_set_ns(deploy_t *deploy, int32_t task, int64_t ns)
{
    deploy->task_ns.data[task] = ns;
}

void deploy_set_workspace(deploy_t *deploy, int32_t task, double bytes, double whole)
{
    deploy->workspace.data[task] = bytes;
    deploy->workspace_whole.data[task] = whole;
}

void deploy_read(deploy_t *deploy, int32_t task, int32_t buffer)
{
    PUSH(&deploy->read, ((pair_t){task, buffer}));
}

void deploy_write(deploy_t *deploy, int32_t task, int32_t buffer)
{
    PUSH(&deploy->write, ((pair_t){task, buffer}));
}

void deploy_edge(deploy_t *deploy, int32_t before, int32_t after)
{
    PUSH(&deploy->edge, ((pair_t){before, after}));
}

void deploy_cross(deploy_t *deploy, int32_t before, int32_t after)
{
    PUSH(&deploy->cross, ((pair_t){before, after}));
}

/* ---- finishing --------------------------------------------------------------------------------
 */

/* CSR of pairs by first, in the order given. */
static void make_csr(deploy_t *deploy, int32_t n, const pairs_t *pairs, const int32_t **offset_out,
                     const int32_t **item_out)
{
    int32_t *offset = room(deploy, (int64_t)n + 1, sizeof *offset);
    int32_t *item = room(deploy, pairs->count, sizeof *item);
    for (int32_t i = 0; i < pairs->count; ++i)
        offset[pairs->data[i].first + 1]++;
    for (int32_t i = 0; i < n; ++i)
        offset[i + 1] += offset[i];
    int32_t *next = room(deploy, n, sizeof *next);
    for (int32_t i = 0; i < n; ++i)
        next[i] = offset[i];
    for (int32_t i = 0; i < pairs->count; ++i)
        item[next[pairs->data[i].first]++] = pairs->data[i].second;
    *offset_out = offset;
    *item_out = item;
}

static void finish_buffers(deploy_t *deploy)
{
    esp_deployment_t *d = &deploy->d;
    int32_t n = deploy->buffer_class.count;
    int32_t *value = room(deploy, n, sizeof *value);
    uint8_t *resident = room(deploy, n, sizeof *resident), *role = room(deploy, n, sizeof *role);
    int64_t *held = room(deploy, d->n_classes, sizeof *held);
    for (int32_t b = 0; b < n; ++b) {
        value[b] = b;
        resident[b] = deploy->buffer_resident.data[b];
        role[b] = (uint8_t)deploy->buffer_role.data[b];
        if (resident[b] && deploy->buffer_root.data[b] == b)
            held[deploy->buffer_class.data[b]] += deploy->buffer_bytes.data[b];
    }
    d->n_buffers = d->n_values = n;
    d->buffer_value = d->value_tensor = value;
    d->buffer_class = deploy->buffer_class.data;
    d->buffer_bytes = deploy->buffer_bytes.data;
    d->buffer_root = deploy->buffer_root.data;
    d->buffer_resident = resident;
    d->class_resident_bytes = held;
    deploy->graph.tensor_role = role;
    deploy->graph.n_tensors = n;
    d->graph = &deploy->graph;
    d->cost = &deploy->cost;
}

static void finish_tasks(deploy_t *deploy)
{
    esp_deployment_t *d = &deploy->d;
    int32_t n = deploy->task_class.count;
    uint8_t *kind = room(deploy, n, sizeof *kind), *mode = room(deploy, n, sizeof *mode);
    int32_t *op = room(deploy, n, sizeof *op);
    for (int32_t t = 0; t < n; ++t) {
        kind[t] = deploy->task_comm.data[t] >= 0 ? ESP_TASK_COMM : ESP_TASK_COMPUTE;
        mode[t] = ESP_MODE_WHOLE;
        op[t] = t; /* op t of the graph is task t */
    }
    deploy->graph.n_ops = n;
    d->n_tasks = n;
    d->task_kind = kind;
    d->task_mode = mode;
    d->task_op = op;
    d->task_class = deploy->task_class.data;
    d->task_comm = deploy->task_comm.data;
    d->task_ns = deploy->task_ns.data;
    d->micro_batches = 1;
    deploy->cost.op_workspace_bytes = deploy->workspace.data;
    deploy->cost.op_workspace_whole_bytes = deploy->workspace_whole.data;
    make_csr(deploy, n, &deploy->read, &d->read_offset, &d->read_buffer);
    make_csr(deploy, n, &deploy->write, &d->write_offset, &d->write_buffer);
}

static void finish_comms(deploy_t *deploy)
{
    esp_deployment_t *d = &deploy->d;
    int32_t n = deploy->pattern.count;
    uint8_t *collective = room(deploy, n, sizeof *collective);
    const esp_pattern_t **pattern = room(deploy, n, sizeof *pattern);
    for (int32_t c = 0; c < n; ++c) {
        collective[c] = (uint8_t)deploy->comm_collective.data[c];
        pattern[c] = deploy->pattern.data[c];
    }
    d->n_comms = n;
    d->comm_pattern = pattern;
    d->comm_collective = collective;
    d->comm_bytes = deploy->comm_bytes.data;
    d->comm_class_offset = deploy->comm_class_offset.data;
    d->comm_class = deploy->comm_class.data;
}

/* A reader waits for the writers before it (by id) of the same memory. */
static void edges_of_buffers(deploy_t *deploy, pairs_t *edges)
{
    const int32_t *root = deploy->buffer_root.data, *offset, *writer;
    pairs_t by_root = {0};
    for (int32_t w = 0; w < deploy->write.count; ++w)
        PUSH(&by_root, ((pair_t){root[deploy->write.data[w].second], deploy->write.data[w].first}));
    make_csr(deploy, deploy->buffer_class.count, &by_root, &offset, &writer);
    for (int32_t i = 0; i < deploy->edge.count; ++i)
        PUSH(edges, deploy->edge.data[i]);
    for (int32_t r = 0; r < deploy->read.count; ++r) {
        pair_t read = deploy->read.data[r];
        for (int32_t i = offset[root[read.second]]; i < offset[root[read.second] + 1]; ++i)
            if (writer[i] < read.first)
                PUSH(edges, ((pair_t){writer[i], read.first}));
    }
    esp_vec_free(&esp_i_malloc, &by_root);
}

static void finish_order(deploy_t *deploy, const int32_t *order)
{
    esp_deployment_t *d = &deploy->d;
    pairs_t edges = {0};
    edges_of_buffers(deploy, &edges);
    make_csr(deploy, d->n_tasks, &edges, &d->successor_offset, &d->successor);
    int32_t *waits = room(deploy, d->n_tasks, sizeof *waits);
    for (int32_t i = 0; i < edges.count; ++i)
        waits[edges.data[i].second]++;
    esp_vec_free(&esp_i_malloc, &edges);
    int32_t *copy = room(deploy, d->n_tasks, sizeof *copy);
    int32_t *position = room(deploy, d->n_tasks, sizeof *position);
    for (int32_t p = 0; p < d->n_tasks; ++p) {
        copy[p] = order ? order[p] : p;
        position[copy[p]] = p;
    }
    int32_t *before = room(deploy, deploy->cross.count, sizeof *before);
    int32_t *after = room(deploy, deploy->cross.count, sizeof *after);
    for (int32_t i = 0; i < deploy->cross.count; ++i) {
        before[i] = deploy->cross.data[i].first;
        after[i] = deploy->cross.data[i].second;
    }
    d->n_predecessors = waits;
    d->order = copy;
    d->position = position;
    d->n_cross = deploy->cross.count;
    d->cross_before = before;
    d->cross_after = after;
}

const esp_deployment_t *deploy_get(deploy_t *deploy, const int32_t *order)
{
    int32_t n = deploy->d.n_classes;
    int32_t *offset = room(deploy, (int64_t)n + 1, sizeof *offset);
    int32_t *device = room(deploy, n, sizeof *device);
    for (int32_t k = 0; k <= n; ++k) {
        offset[k] = k;
        device[k] = k;
    }
    deploy->d.class_offset = offset;
    deploy->d.class_device = device;
    finish_buffers(deploy);
    finish_tasks(deploy);
    finish_comms(deploy);
    finish_order(deploy, order);
    return &deploy->d;
}

/* ---- random -------------------------------------------------------------------------------------
 */

static int32_t below(esp_i_rng_t *rng, int64_t n)
{
    return (int32_t)esp_i_rng_below(rng, n);
}

static int32_t random_move(esp_i_rng_t *rng, deploy_t *deploy)
{
    const esp_cluster_t *cluster = deploy->d.cluster;
    int32_t member[64], n = 0;
    esp_pattern_t pattern[ESP_PATTERN_MAX];
    int32_t count;
    for (int32_t k = 0; k < deploy->d.n_classes && n < 64; ++k)
        if (below(rng, 2))
            member[n++] = k;
    if (n < 2)
        return deploy_transfer(deploy, below(rng, deploy->d.n_classes),
                               below(rng, deploy->d.n_classes), 1 + below(rng, 1000000));
    esp_comm_t comm = below(rng, 2) ? ESP_COMM_ALLREDUCE : ESP_COMM_ALL_GATHER;
    esp_place_t place = {n, member, NULL};
    assert_int_equal(esp_pattern_find(cluster, comm, &place, &place, NULL, pattern, &count),
                     ESP_OK);
    int32_t task =
        deploy_comm(deploy, &pattern[below(rng, count)], 1 + below(rng, 1000000), true, n, member);
    for (int32_t i = 0; i < count; ++i)
        esp_pattern_release(&pattern[i], NULL);
    return task;
}

static bool takes_part(const deploy_t *deploy, int32_t task, int32_t class_)
{
    int32_t comm = deploy->task_comm.data[task];
    if (comm < 0)
        return deploy->task_class.data[task] == class_;
    for (int32_t i = deploy->comm_class_offset.data[comm];
         i < deploy->comm_class_offset.data[comm + 1]; ++i)
        if (deploy->comm_class.data[i] == class_)
            return true;
    return false;
}

/* A buffer on a class that takes part in the task, or ESP_NONE. */
static int32_t random_known(esp_i_rng_t *rng, const deploy_t *deploy, int32_t task)
{
    int32_t n = deploy->buffer_class.count, first = n > 0 ? below(rng, n) : 0;
    for (int32_t i = 0; i < n; ++i) {
        int32_t b = (first + i) % n;
        if (takes_part(deploy, task, deploy->buffer_class.data[b]))
            return b;
    }
    return ESP_NONE;
}

static int32_t random_result(esp_i_rng_t *rng, deploy_t *deploy, int32_t task)
{
    int32_t root = below(rng, 6) == 0 ? random_known(rng, deploy, task) : ESP_NONE;
    if (root != ESP_NONE)
        return deploy_alias(deploy, root);
    int32_t owner = below(rng, deploy->d.n_classes);
    while (!takes_part(deploy, task, owner))
        owner = (owner + 1) % deploy->d.n_classes;
    int64_t bytes = below(rng, 10) ? 1 + below(rng, 1000) : 0;
    return deploy_buffer(deploy, owner, bytes, below(rng, 10) == 0, ESP_ROLE_ACTIVATION);
}

deploy_t *deploy_random(esp_i_rng_t *rng, const esp_cluster_t *cluster, int32_t n_tasks,
                        bool coarse)
{
    deploy_t *deploy = deploy_new(cluster, 1 + below(rng, cluster->n_devices));
    for (int32_t t = 0; t < n_tasks; ++t) {
        if (below(rng, 8) == 0) /* nothing writes it, or an alias of it later */
            (void)deploy_buffer(deploy, below(rng, deploy->d.n_classes), 1 + below(rng, 1000), 0,
                                ESP_ROLE_ACTIVATION);
        if (deploy->d.n_classes > 1 && below(rng, 3) == 0) {
            int32_t move = random_move(rng, deploy);
            if (coarse)
                deploy_set_ns(deploy, move, 1000 * (1 + below(rng, 4)));
        } else {
            int64_t ns = coarse ? 1000 * below(rng, 4) : below(rng, 1000000);
            (void)deploy_compute(deploy, below(rng, deploy->d.n_classes), below(rng, 8) ? ns : 0);
        }
        if (deploy->task_comm.data[t] < 0 && below(rng, 3) == 0)
            deploy_set_workspace(deploy, t, below(rng, 500), below(rng, 300));
        for (int32_t i = below(rng, 3), b; i > 0; --i)
            if ((b = random_known(rng, deploy, t)) != ESP_NONE)
                deploy_read(deploy, t, b);
        for (int32_t i = below(rng, 3); i > 0; --i)
            deploy_write(deploy, t, random_result(rng, deploy, t));
        for (int32_t i = below(rng, 3); i > 0 && t > 0; --i)
            deploy_edge(deploy, below(rng, t), t);
        if (below(rng, 3) == 0)
            deploy_cross(deploy, below(rng, n_tasks), t);
    }
    return deploy;
}
