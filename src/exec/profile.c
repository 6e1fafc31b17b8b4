/* Profiling: options, tables, ranks. */
#include "exec/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

esp_profile_opts_t esp_profile_opts_default(void)
{
    return (esp_profile_opts_t){
        .struct_size = sizeof(esp_profile_opts_t), .seconds = 1, .runs = 5, .shares = 5};
}

static esp_status_t check_opts(const esp_profile_opts_t *opts, esp_diag_t *diag)
{
    if (opts->struct_size != sizeof *opts)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "options of another version of the library");
    if (opts->backend && !esp_i_kernels_find(opts->backend))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "no kernel backend is called %s", opts->backend);
    if (!(opts->seconds >= 0 && opts->seconds <= 3600))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "seconds is %g; it must be in [0, 3600]",
                          opts->seconds);
    if (opts->runs < 1 || opts->runs > 1000000)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "runs is %d; it must be in [1, 1000000]",
                          opts->runs);
    if (opts->shares < 1 || opts->shares > 8)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "shares is %d; it must be in [1, 8]",
                          opts->shares);
    return ESP_OK;
}

static esp_status_t check_graph(const esp_graph_t *graph, esp_diag_t *diag)
{
    if (graph && graph->batch < 1)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "the graph has no batch");
    return ESP_OK;
}

/* ---- what was measured ------------------------------------------------------------------------
 */

void esp_i_profile_init(esp_i_profile_t *p, const esp_profile_opts_t *opts,
                        const esp_allocator_t *alloc, esp_diag_t *diag)
{
    *p = (esp_i_profile_t){.alloc = *alloc,
                           .opts = opts,
                           .launch_ns = -1,
                           .copy_ns_per_byte = -1,
                           .comm_compute_s_per_byte = -1,
                           .diag = diag};
    esp_i_arena_init(&p->memory, alloc);
}

void esp_i_profile_fini(esp_i_profile_t *p)
{
    esp_vec_free(&p->alloc, &p->curves);
    esp_vec_free(&p->alloc, &p->links);
    esp_vec_free(&p->alloc, &p->collectives);
    esp_i_arena_fini(&p->memory);
}

esp_status_t esp_i_profile_go_on(esp_i_profile_t *p, double part, const char *what)
{
    p->done += part;
    double fraction = p->all > 0 ? fmin(p->done / p->all, 1) : 0;
    if (!p->silent && p->opts->progress &&
        p->opts->progress(p->opts->progress_context, fraction, what))
        return esp_i_fail(p->diag, ESP_STOPPED, "stopped");
    return ESP_OK;
}

esp_cost_point_t esp_i_times_point(const esp_i_times_t *times, double units)
{
    const double n = times->n > 0 ? (double)times->n : 1, mean = times->sum / n;
    return (esp_cost_point_t){.units = units,
                              .ns = mean,
                              .spread_ns = sqrt(fmax(times->square / n - mean * mean, 0)),
                              .runs = times->n > 0 ? times->n : 1};
}

static int compare_curves(const void *a, const void *b)
{
    const esp_cost_curve_t *x = a, *y = b;
    int order = strcmp(x->op, y->op);
    return order != 0 ? order
                      : (x->point->units > y->point->units) - (x->point->units < y->point->units);
}

/* Ops that are alike and did as many units: one point of all their runs. Returns how many are left.
 */
static int32_t join_alike(esp_cost_curve_t *curve, int32_t n)
{
    int32_t kept = 0;
    for (int32_t i = 0, next; i < n; i = next) {
        esp_i_times_t sum = {0};
        for (next = i; next < n && compare_curves(&curve[i], &curve[next]) == 0; next++) {
            const esp_cost_point_t *point = curve[next].point;
            const double runs = (double)point->runs;
            sum.sum += runs * point->ns;
            sum.square += runs * (point->ns * point->ns + point->spread_ns * point->spread_ns);
            sum.n += point->runs;
        }
        *(esp_cost_point_t *)(uintptr_t)curve[i].point =
            esp_i_times_point(&sum, curve[i].point->units);
        curve[kept++] = curve[i];
    }
    return kept;
}

esp_status_t esp_i_profile_table(const esp_i_profile_t *p, const char *type,
                                 esp_costs_t **costs_out)
{
    int32_t n = p->curves.count;
    if (n > 1)
        qsort(p->curves.data, (size_t)n, sizeof *p->curves.data, compare_curves);
    n = join_alike(p->curves.data, n);
    const esp_costs_type_t measured = {.name = type,
                                       .launch_ns = p->launch_ns,
                                       .copy_ns_per_byte = p->copy_ns_per_byte,
                                       .comm_compute_s_per_byte = p->comm_compute_s_per_byte,
                                       .n_curves = n,
                                       .curve = p->curves.data};
    const esp_costs_t table = {.version = esp_version(),
                               .precision = ESP_PRECISION_FP32,
                               .n_types = 1,
                               .type = &measured,
                               .n_links = p->links.count,
                               .link = p->links.data,
                               .n_collectives = p->collectives.count,
                               .collective = p->collectives.data};
    const esp_costs_t nothing = {.version = esp_version(), .precision = ESP_PRECISION_FP32};
    return esp_costs_merge(&nothing, &table, &p->alloc, costs_out, p->diag);
}

/* ---- one machine ------------------------------------------------------------------------------
 */

esp_status_t esp_profile_ops(const esp_graph_t *graph, const char *type,
                             const esp_profile_opts_t *opts, const esp_allocator_t *alloc,
                             esp_costs_t **costs_out, esp_diag_t *diag)
{
    const esp_allocator_t from = esp_i_allocator(alloc);
    const esp_profile_opts_t standard = esp_profile_opts_default();
    esp_i_profile_t p;
    opts = opts ? opts : &standard;
    ESP_TRY(check_opts(opts, diag));
    ESP_TRY(check_graph(graph, diag));
    esp_i_profile_init(&p, opts, &from, diag);
    p.all = opts->shares;
    esp_status_t status = esp_i_profile_ops(&p, graph);
    if (status == ESP_OK)
        status = esp_i_profile_table(&p, type, costs_out);
    esp_i_profile_fini(&p);
    return status;
}

/* ---- a cluster --------------------------------------------------------------------------------
 */

/* What the ranks of one profile share. */
typedef struct job {
    const esp_graph_t *graph;
    const esp_cluster_t *cluster;
    const esp_profile_opts_t *opts;
    esp_allocator_t alloc;
    bool links;
    char *data;          /* ESP_I_PROFILE_BYTES for each rank of this process */
    esp_i_comm_t **comm; /* of the ranks of this process */
    esp_costs_t **costs; /* what each of them measured */
    esp_status_t *status;
    esp_diag_t *diag;
} job_t;

static bool first_of_type(const esp_cluster_t *cluster, int32_t device)
{
    for (int32_t d = 0; d < device; d++)
        if (cluster->device_type[d] == cluster->device_type[device])
            return false;
    return true;
}

/* All ranks measure at the same time, as they would compute; of each type one counts. */
static esp_status_t measure_rank(const job_t *job, esp_i_comm_t *comm, bool ops, char *data,
                                 esp_costs_t **costs_out, esp_diag_t *diag)
{
    const esp_cluster_t *cluster = job->cluster;
    const int32_t r = comm->rank;
    esp_i_profile_t p;
    esp_i_profile_init(&p, job->opts, &job->alloc, diag);
    p.all = (ops ? job->opts->shares : 0) +
            (job->links ? (double)comm->n_ranks * (comm->n_ranks - 1) + 1 : 0);
    p.silent = r != 0;
    esp_status_t status = ops ? esp_i_profile_ops(&p, job->graph) : ESP_OK;
    if (status == ESP_OK)
        status = esp_i_comm_barrier(comm, diag);
    if (status == ESP_OK && !first_of_type(cluster, r)) {
        p.curves.count = 0;
        p.launch_ns = p.copy_ns_per_byte = -1;
    }
    if (status == ESP_OK && job->links)
        status = esp_i_profile_links(&p, comm, cluster->vertex_name, data);
    if (status == ESP_OK && !first_of_type(cluster, r))
        p.comm_compute_s_per_byte = -1;
    if (status == ESP_OK)
        status = esp_i_profile_table(&p, cluster->types[cluster->device_type[r]].name, costs_out);
    esp_i_profile_fini(&p);
    return status;
}

static esp_status_t merge_into(esp_costs_t **sum, const esp_costs_t *more,
                               const esp_allocator_t *alloc, esp_diag_t *diag)
{
    esp_costs_t *both;
    ESP_TRY(esp_costs_merge(*sum, more, alloc, &both, diag));
    esp_costs_destroy(*sum);
    *sum = both;
    return ESP_OK;
}

/* ---- as threads -------------------------------------------------------------------------------
 */

static void run_thread(void *context, int32_t index, int32_t worker)
{
    job_t *job = context;
    (void)worker;
    job->status[index] =
        measure_rank(job, job->comm[index], false, job->data + (int64_t)index * ESP_I_PROFILE_BYTES,
                     &job->costs[index], &job->diag[index]);
    if (job->status[index] != ESP_OK && job->status[index] != ESP_STOPPED) /* all stop */
        job->comm[index]->type->abort(job->comm[index], &job->diag[index]);
}

/* The links of n threads; ops are timed once, alone, for all types. */
static esp_status_t run_threads(job_t *job, esp_costs_t **sum, esp_diag_t *diag)
{
    const int32_t n = job->cluster->n_devices;
    esp_i_pool_t *pool;
    esp_status_t status = esp_i_pool_create(&job->alloc, n, &pool);
    if (status != ESP_OK)
        return esp_i_nomem(diag);
    status = esp_i_comm_local_create(&job->alloc, n, job->comm);
    if (status == ESP_OK) {
        esp_i_pool_run(pool, n, run_thread, job);
        for (int32_t i = 0; i < n; i++)
            job->comm[i]->type->destroy(job->comm[i]);
    } else {
        status = esp_i_nomem(diag);
    }
    esp_i_pool_destroy(pool);
    for (int32_t i = 0; i < n && status == ESP_OK; i++) {
        status = job->status[i];
        if (status != ESP_OK && diag)
            *diag = job->diag[i];
        else if (status == ESP_OK)
            status = merge_into(sum, job->costs[i], &job->alloc, diag);
    }
    for (int32_t i = 0; i < n; i++)
        esp_costs_destroy(job->costs[i]);
    return status;
}

static esp_status_t ops_of_all_types(const job_t *job, esp_costs_t **sum, esp_diag_t *diag)
{
    const esp_cluster_t *cluster = job->cluster;
    esp_costs_t *one;
    ESP_TRY(
        esp_profile_ops(job->graph, cluster->types[0].name, job->opts, &job->alloc, &one, diag));
    esp_status_t status = ESP_OK;
    for (int32_t t = 0; t < cluster->n_types && status == ESP_OK; t++) {
        esp_costs_type_t type = one->type[0];
        esp_costs_t named = *one;
        type.name = cluster->types[t].name;
        named.type = &type;
        status = merge_into(sum, &named, &job->alloc, diag);
    }
    esp_costs_destroy(one);
    return status;
}

static esp_status_t profile_here(job_t *job, esp_costs_t **sum, esp_diag_t *diag)
{
    const int64_t n = job->cluster->n_devices;
    if (job->graph)
        ESP_TRY(ops_of_all_types(job, sum, diag));
    if (!job->links || n < 2)
        return ESP_OK;
    job->comm = esp_i_alloc_array(&job->alloc, n, sizeof(void *));
    job->costs = esp_i_alloc_array(&job->alloc, n, sizeof(void *));
    job->status = esp_i_alloc_array(&job->alloc, n, sizeof *job->status);
    job->diag = esp_i_alloc_array(&job->alloc, n, sizeof *job->diag);
    job->data = esp_i_alloc_array(&job->alloc, n, ESP_I_PROFILE_BYTES);
    esp_status_t status = job->comm && job->costs && job->status && job->diag && job->data
                              ? run_threads(job, sum, diag)
                              : esp_i_nomem(diag);
    esp_i_free(&job->alloc, job->data);
    esp_i_free(&job->alloc, job->comm);
    esp_i_free(&job->alloc, job->costs);
    esp_i_free(&job->alloc, job->status);
    esp_i_free(&job->alloc, job->diag);
    return status;
}

/* ---- as processes -----------------------------------------------------------------------------
 */

enum { TAG_TABLE = 64 };

/* A table to another rank, as text. */
static esp_status_t send_table(esp_i_comm_t *comm, int32_t peer, const esp_costs_t *costs,
                               const esp_allocator_t *alloc, esp_diag_t *diag)
{
    char *text;
    ESP_TRY(esp_costs_to_json(costs, alloc, &text, diag));
    int64_t bytes = (int64_t)strlen(text);
    esp_status_t status = esp_i_comm_send(comm, peer, TAG_TABLE, &bytes, sizeof bytes, diag);
    if (status == ESP_OK)
        status = esp_i_comm_send(comm, peer, TAG_TABLE, text, bytes, diag);
    esp_i_free(alloc, text);
    return status;
}

static esp_status_t receive_table(esp_i_comm_t *comm, int32_t peer, const esp_allocator_t *alloc,
                                  esp_costs_t **costs_out, esp_diag_t *diag)
{
    int64_t bytes;
    ESP_TRY(esp_i_comm_receive(comm, peer, TAG_TABLE, &bytes, sizeof bytes, diag));
    char *text = esp_i_alloc(alloc, (size_t)bytes);
    if (!text)
        return esp_i_nomem(diag);
    esp_status_t status = esp_i_comm_receive(comm, peer, TAG_TABLE, text, bytes, diag);
    if (status == ESP_OK)
        status = esp_costs_parse(text, (size_t)bytes, NULL, alloc, costs_out, diag);
    esp_i_free(alloc, text);
    return status;
}

/* Rank 0 collects and hands out. */
static esp_status_t share_tables(esp_i_comm_t *comm, const esp_allocator_t *alloc,
                                 const esp_costs_t *mine, esp_costs_t **sum, esp_diag_t *diag)
{
    if (comm->rank > 0) {
        ESP_TRY(send_table(comm, 0, mine, alloc, diag));
        esp_costs_destroy(*sum);
        *sum = NULL;
        return receive_table(comm, 0, alloc, sum, diag);
    }
    ESP_TRY(merge_into(sum, mine, alloc, diag));
    for (int32_t r = 1; r < comm->n_ranks; r++) {
        esp_costs_t *theirs;
        ESP_TRY(receive_table(comm, r, alloc, &theirs, diag));
        esp_status_t status = merge_into(sum, theirs, alloc, diag);
        esp_costs_destroy(theirs);
        ESP_TRY(status);
    }
    for (int32_t r = 1; r < comm->n_ranks; r++)
        ESP_TRY(send_table(comm, r, *sum, alloc, diag));
    return ESP_OK;
}

static esp_status_t profile_job(job_t *job, esp_costs_t **sum, int32_t *rank_out, esp_diag_t *diag)
{
    esp_i_comm_t *comm;
    esp_costs_t *mine = NULL;
    ESP_TRY(esp_i_comm_mpi_create(&job->alloc, &comm, diag));
    *rank_out = comm->rank;
    if (comm->n_ranks != job->cluster->n_devices) {
        const int32_t n = comm->n_ranks;
        comm->type->destroy(comm);
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "the cluster has %d devices, but the job has %d processes",
                          job->cluster->n_devices, n);
    }
    esp_diag_t why = {0};
    job->data = esp_i_alloc_array(&job->alloc, 1, ESP_I_PROFILE_BYTES);
    esp_status_t status = job->data
                              ? measure_rank(job, comm, job->graph != NULL, job->data, &mine, &why)
                              : esp_i_nomem(&why);
    if (status == ESP_OK)
        status = share_tables(comm, &job->alloc, mine, sum, &why);
    esp_costs_destroy(mine);
    if (status != ESP_OK) { /* the others would wait */
        if (diag)
            *diag = why;
        comm->type->abort(comm, &why);
    }
    comm->type->destroy(comm);
    esp_i_free(&job->alloc, job->data);
    return status;
}

esp_status_t esp_profile_cluster(const esp_graph_t *graph, const esp_cluster_t *cluster,
                                 int32_t links, const esp_profile_opts_t *opts,
                                 const esp_allocator_t *alloc, esp_costs_t **costs_out,
                                 int32_t *rank_out, esp_diag_t *diag)
{
    const esp_profile_opts_t standard = esp_profile_opts_default();
    const esp_costs_t nothing = {.version = esp_version(), .precision = ESP_PRECISION_FP32};
    job_t job = {.graph = graph,
                 .cluster = cluster,
                 .opts = opts ? opts : &standard,
                 .alloc = esp_i_allocator(alloc),
                 .links = links != 0};
    esp_costs_t *sum;
    int32_t rank = 0;
    ESP_TRY(check_opts(job.opts, diag));
    ESP_TRY(check_graph(graph, diag));
    ESP_TRY(esp_costs_merge(&nothing, &nothing, &job.alloc, &sum, diag));
    esp_status_t status = esp_i_comm_mpi_started() ? profile_job(&job, &sum, &rank, diag)
                                                   : profile_here(&job, &sum, diag);
    if (status != ESP_OK) {
        esp_costs_destroy(sum);
        return status;
    }
    *costs_out = sum;
    if (rank_out)
        *rank_out = rank;
    return ESP_OK;
}
