/* The execution matrix: strategies. */
#include "matrix.h"
#include "deploy_builder.h"
#include "espalier/sim.h"
#include "strategies.h"

#include <stdio.h>
#include <string.h>

static const double uneven[STRATEGY_MAX_DEVICES] = {3, 1, 2, 1, 2, 3, 1, 1};
static const int32_t first_devices[STRATEGY_MAX_DEVICES] = {0, 1, 2, 3, 4, 5, 6, 7};

/* ---- kinds of strategies ----------------------------------------------------------------- */

typedef void (*apply_fn)(strategy_t *strategy, const esp_graph_t *graph, int32_t n);

static void equal(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_data_parallel(strategy, graph, n, NULL);
}

static void unequal(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_data_parallel(strategy, graph, n, uneven);
}

/* The last device only updates. */
static void server(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_parameter_server(strategy, graph, n - 1, uneven, n - 1);
}

static void server_among(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_parameter_server(strategy, graph, n, NULL, 1);
}

static void sharded(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_sharded(strategy, graph, n, uneven);
}

static void mixed(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_mixed(strategy, graph, n, uneven);
}

static void duplicate(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_init(strategy, graph);
    const int32_t all = strategy_mesh(strategy, n, first_devices, NULL);
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        strategy_op(strategy, op, all, ESP_MODE_WHOLE);
}

/* Every second layer is done by all devices, the others are split. */
static void half_duplicate(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_data_parallel(strategy, graph, n, uneven);
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        if (graph->op_origin[op] % 4 >= 2)
            strategy_op(strategy, op, 0, ESP_MODE_WHOLE);
}

/* One device after the other. */
static void stages(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    int32_t mesh[STRATEGY_MAX_DEVICES];
    strategy_init(strategy, graph);
    for (int32_t k = 0; k < n; k++)
        mesh[k] = strategy_mesh(strategy, 1, &first_devices[k], NULL);
    strategy_stages(strategy, n, mesh, ESP_MODE_BATCH);
}

/* Ops in turn, with their gradients. */
static void per_op(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_init(strategy, graph);
    for (int32_t k = 0; k < n; k++)
        (void)strategy_mesh(strategy, 1, &first_devices[k], NULL);
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        strategy_op(strategy, op, (graph->op_origin[op] < 0 ? op : graph->op_origin[op]) % n,
                    ESP_MODE_BATCH);
}

/* The first half of the model on some devices, the second on others, of which one is in both. */
static void overlapping(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_init(strategy, graph);
    const int32_t half = n / 2;
    const int32_t mesh[] = {strategy_mesh(strategy, half + 1, first_devices, uneven),
                            strategy_mesh(strategy, n - half, first_devices + half, NULL)};
    strategy_stages(strategy, 2, mesh, ESP_MODE_BATCH);
}

/* Two replicated stages, the second sharding its updates. */
static void pipeline(strategy_t *strategy, const esp_graph_t *graph, int32_t n)
{
    strategy_init(strategy, graph);
    const int32_t half = n / 2;
    const int32_t mesh[] = {strategy_mesh(strategy, half, first_devices, NULL),
                            strategy_mesh(strategy, n - half, first_devices + half, NULL)};
    strategy_stages(strategy, 2, mesh, ESP_MODE_BATCH);
    for (esp_op_id_t op = 0; op < graph->n_ops; op++)
        if (graph->op_phase[op] == ESP_PHASE_UPDATE && strategy->op_mesh[op] == mesh[1])
            strategy_op(strategy, op, mesh[1], ESP_MODE_SHARD);
}

/* ---- plans ------------------------------------------------------------------------------- */

/* Links that keep up with these little ops, as they would with real ones. */
static const lab_link_t fast = {1e12, 100}, slow = {1e11, 500};

static esp_cluster_t *one_node(int32_t n)
{
    return lab_cluster(1, n, NULL, fast, fast);
}

static esp_cluster_t *two_nodes(int32_t n)
{
    return lab_cluster(2, n / 2, NULL, fast, slow);
}

/* Four devices. */
static esp_cluster_t *two_types(int32_t n)
{
    assert_in_range(n, 1, 4);
    return cluster_mixed();
}

/* Nodes of two, one and the other devices. */
static esp_cluster_t *unequal_nodes(int32_t n)
{
    const int32_t counts[] = {2, 1, n - 3};
    return lab_cluster(3, 0, counts, fast, slow);
}

/* What belongs to the plan of that index; a NULL: random. */
static const struct {
    esp_cluster_t *(*cluster)(int32_t n);
    apply_fn apply;
} how[] = {
    {one_node, equal},           {two_nodes, equal},
    {two_nodes, unequal},        {unequal_nodes, unequal},
    {two_nodes, server},         {one_node, server_among},
    {one_node, sharded},         {unequal_nodes, sharded},
    {two_nodes, mixed},          {one_node, duplicate},
    {two_nodes, half_duplicate}, {one_node, stages},
    {two_nodes, per_op},         {unequal_nodes, overlapping},
    {one_node, equal},           {two_nodes, sharded},
    {one_node, pipeline},        {two_nodes, pipeline},
    {one_node, equal},           {two_types, unequal},
    {one_node, server_among},    {one_node, sharded},
    {one_node, equal},           {one_node, NULL},
    {two_nodes, NULL},           {unequal_nodes, NULL},
    {two_types, NULL},           {unequal_nodes, NULL},
    {two_nodes, NULL},
};
const matrix_plan_t matrix_plans[] = {
    {"equal shares", 4, 1, false, 0},
    {"equal shares, two nodes", 6, 1, false, 0},
    {"unequal shares", 4, 1, false, 0},
    {"unequal shares, nodes", 8, 1, false, 0},
    {"server", 4, 1, false, 0},
    {"server among", 3, 1, false, 0},
    {"sharded", 3, 1, false, 0},
    {"sharded, nodes", 6, 1, false, 0},
    {"updates mixed", 4, 1, false, 0},
    {"duplicate", 3, 1, false, 0},
    {"half duplicate", 4, 1, false, 0},
    {"stages", 3, 1, false, 0},
    {"ops in turn", 4, 1, false, 0},
    {"overlapping meshes", 5, 1, false, 0},
    {"2 micro-batches", 3, 2, false, 0},
    {"4 micro-batches, sharded", 2, 4, false, 0},
    {"pipeline, 2", 4, 2, false, 0},
    {"pipeline, 4", 4, 4, false, 0},
    {"local", 4, 1, true, 0},
    {"local, unequal", 4, 1, true, 0},
    {"local, server, 2", 3, 2, true, 0},
    {"local, sharded, 2", 2, 2, true, 0},
    {"local, 4", 1, 4, true, 0},
    {"random", 4, 0, false, 1},
    {"random", 8, 0, false, 2},
    {"random", 6, 0, false, 3},
    {"random", 4, 0, false, 4},
    {"random", 8, 0, false, 5},
    {"random", 4, 0, false, 6},
};
const int32_t matrix_n_plans = sizeof matrix_plans / sizeof *matrix_plans;
_Static_assert(sizeof how / sizeof *how == sizeof matrix_plans / sizeof *matrix_plans, "plans");

bool matrix_fits(const matrix_plan_t *plan, const matrix_model_t *model)
{
    if (plan->local_batchnorm)
        return model->has_batchnorm;
    return plan->micro <= 1 || !(model->has_batchnorm || model->couples);
}

/* ---- cases ------------------------------------------------------------------------------- */

/* As plans are packed: by the simulated timeline. */
static void pack(const matrix_case_t *c)
{
    esp_sim_opts_t opts = esp_sim_opts_default();
    esp_sim_t *sim;
    esp_sim_result_t result;
    esp_diag_t diag = {0};
    opts.timeline = 1;
    test_assert_ok(esp_sim_create(NULL, &sim), NULL);
    test_assert_ok(esp_sim_run(sim, c->deployment, &opts, &result, &diag), &diag);
    test_assert_ok(esp_deployment_pack_timed(c->bench.lowerer, result.start_ns, result.end_ns,
                                             result.step_time_ns, &diag),
                   &diag);
    esp_sim_destroy(sim);
}

static void lower(matrix_case_t *c, const esp_strategy_t *strategy)
{
    esp_diag_t diag = {0};
    if (esp_lower(c->bench.lowerer, strategy, &c->deployment, &diag) != ESP_OK)
        fail_msg("%s: %s", c->what, diag.text);
    pack(c);
    c->ranks = 0;
    for (int32_t i = 0; i < c->bench.cluster->n_devices; i++)
        c->ranks += c->deployment->device_class[i] != ESP_NONE;
}

static void lower_random(matrix_case_t *c)
{
    esp_i_rng_t rng;
    plan_of_t plan;
    esp_i_rng_seed(&rng, c->plan->seed * 1000 + (uint64_t)(c->model - matrix_models));
    plan_random(&plan, &c->bench, &rng);
    plan.strategy.sync_batchnorm = 1;
    if (c->model->has_batchnorm)
        plan.strategy.micro_batches = 1;
    lower(c, &plan.strategy);
    plan_fini(&plan);
}

void matrix_open(matrix_case_t *c, const matrix_model_t *model, const matrix_plan_t *plan)
{
    const int64_t i = plan - matrix_plans;
    *c = (matrix_case_t){.model = model, .plan = plan};
    (void)snprintf(c->what, sizeof c->what, "%s, %s %d", model->name, plan->name, (int)plan->seed);
    bench_init(&c->bench, matrix_graph(model, 0, NULL), how[i].cluster(plan->devices));
    if (!how[i].apply) {
        lower_random(c);
        return;
    }
    strategy_t strategy;
    how[i].apply(&strategy, c->bench.graph, plan->devices);
    strategy.strategy.micro_batches = plan->micro;
    strategy.strategy.sync_batchnorm = !plan->local_batchnorm;
    lower(c, &strategy.strategy);
    strategy_fini(&strategy);
}

void matrix_open_single(matrix_case_t *c, const matrix_model_t *model, int32_t ghosts,
                        const int64_t *share)
{
    strategy_t strategy;
    *c = (matrix_case_t){.model = model};
    (void)snprintf(c->what, sizeof c->what, "%s, one device", model->name);
    bench_init(&c->bench, matrix_graph(model, ghosts, share), cluster_uniform(1));
    strategy_single(&strategy, c->bench.graph, 0);
    lower(c, &strategy.strategy);
    strategy_fini(&strategy);
}

void matrix_close(matrix_case_t *c)
{
    bench_fini(&c->bench);
}

/* Where the statistics of the batch are made. */
static int32_t mesh_of_statistics(const esp_deployment_t *d)
{
    for (int32_t t = 0; t < d->n_tasks; t++)
        if (d->task_kind[t] == ESP_TASK_COMPUTE &&
            d->graph->op_kind[d->task_op[t]] == ESP_KIND_BN_STATS)
            return d->value_mesh[d->buffer_value[d->write_buffer[d->write_offset[t]]]];
    fail_msg("%s normalises nothing", d->graph->name);
    return ESP_NONE;
}

int32_t matrix_ghosts(const matrix_case_t *c, int64_t share[MATRIX_BATCH])
{
    const esp_deployment_t *d = c->deployment;
    const int32_t mesh = mesh_of_statistics(d);
    int32_t n = 0;
    for (int32_t micro = 0; micro < d->micro_batches; micro++)
        for (int32_t k = d->mesh_offset[mesh]; k < d->mesh_offset[mesh + 1]; k++)
            share[n++] = d->mesh_units[k];
    return n;
}
