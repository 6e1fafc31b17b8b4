/* Where a step goes on each device: compute, exposed communication, idle. */
#include "report/run.h"

#include <stdlib.h>

enum { LINES = 8 }; /* device classes; where there are more, device groups are shown */

/* ---- folding ------------------------------------------------------------------------------ */

typedef enum what { COMPUTE, MOVE } what_t;

/* From `ns` on there is one more (change 1) or one less (-1) task of that sort. */
typedef struct edge {
    int64_t ns;
    int32_t change;
    what_t what;
} edge_t;
typedef ESP_VEC(edge_t) edges_t;

static bool add_part(edges_t *edges, what_t what, int64_t begin, int64_t end,
                     const esp_allocator_t *alloc)
{
    return esp_vec_push(alloc, edges, ((edge_t){begin, 1, what})) &&
           esp_vec_push(alloc, edges, ((edge_t){end, -1, what}));
}

/* Adds [start, end) modulo the period: what the steps before and after are doing meanwhile. */
static bool add_task(edges_t *edges, what_t what, int64_t start, int64_t end, int64_t period,
                     const esp_allocator_t *alloc)
{
    int64_t length = end - start;
    if (length <= 0 || period <= 0)
        return true;
    if (length >= period)
        return add_part(edges, what, 0, period, alloc);
    int64_t begin = start % period;
    if (begin + length <= period)
        return add_part(edges, what, begin, begin + length, alloc);
    return add_part(edges, what, begin, period, alloc) &&
           add_part(edges, what, 0, begin + length - period, alloc);
}

static int compare_edges(const void *a, const void *b)
{
    const edge_t *x = a, *y = b;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

static esp_i_usage_t sweep(edges_t *edges, int64_t period)
{
    esp_i_usage_t usage = {0};
    int32_t open[2] = {0, 0};
    if (edges->count > 0)
        qsort(edges->data, (size_t)edges->count, sizeof *edges->data, compare_edges);
    for (int32_t i = 0; i < edges->count; i++) {
        const edge_t *edge = &edges->data[i];
        int64_t until = i + 1 < edges->count ? edges->data[i + 1].ns : edge->ns;
        open[edge->what] += edge->change;
        if (open[COMPUTE] > 0)
            usage.compute_ns += until - edge->ns;
        else if (open[MOVE] > 0)
            usage.exposed_ns += until - edge->ns;
    }
    usage.idle_ns = period - usage.compute_ns - usage.exposed_ns;
    return usage;
}

/* ---- classes ------------------------------------------------------------------------------ */

static bool takes_part(const esp_deployment_t *d, int32_t comm, int32_t class)
{
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; i++)
        if (d->comm_class[i] == class)
            return true;
    return false;
}

static bool collect(const esp_deployment_t *d, const esp_sim_result_t *sim, int32_t class,
                    const esp_allocator_t *alloc, edges_t *edges)
{
    edges->count = 0;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        bool move = d->task_kind[t] == ESP_TASK_COMM;
        if (move ? !takes_part(d, d->task_comm[t], class) : d->task_class[t] != class)
            continue;
        if (!add_task(edges, move ? MOVE : COMPUTE, sim->start_ns[t], sim->end_ns[t],
                      sim->step_time_ns, alloc))
            return false;
    }
    return true;
}

esp_status_t esp_i_usage(const esp_deployment_t *deployment, const esp_sim_result_t *sim,
                         const esp_allocator_t *alloc, esp_i_usage_t *usage_out, esp_diag_t *diag)
{
    edges_t edges = {0};
    for (int32_t class = 0; class < deployment->n_classes; class ++) {
        if (!collect(deployment, sim, class, alloc, &edges)) {
            esp_vec_free(alloc, &edges);
            return esp_i_nomem(diag);
        }
        usage_out[class] = sweep(&edges, sim->step_time_ns);
    }
    esp_vec_free(alloc, &edges);
    return ESP_OK;
}

esp_i_usage_t esp_i_device_usage(const esp_deployment_t *deployment, const esp_i_usage_t *usage,
                                 int64_t step_ns, int32_t device)
{
    int32_t class = deployment->device_class[device];
    return class == ESP_NONE ? (esp_i_usage_t){.idle_ns = step_ns} : usage[class];
}

/* ---- text --------------------------------------------------------------------------------- */

static void put_share(int64_t ns, int64_t step_ns, esp_i_table_t *table)
{
    char time[32], share[32];
    esp_i_format_ns(ns, time);
    esp_i_report_percent(step_ns > 0 ? (double)ns / (double)step_ns : 0, share);
    esp_i_table_cell(table, "%s", ns > 0 ? time : "-");
    esp_i_table_cell(table, "%s", ns > 0 ? share : "");
}

/* A line of the table: devices that are shown together, with the mean of their times. */
typedef struct line {
    int32_t first, count; /* device; how many */
    int64_t compute_ns, exposed_ns, idle_ns, arena_bytes;
} line_t;

static void put_line(const esp_cluster_t *cluster, const char *name, const line_t *line,
                     int64_t step_ns, esp_i_table_t *table)
{
    char peak[32], usable[32];
    esp_i_format_bytes(line->arena_bytes, peak);
    esp_i_format_bytes(cluster->device_memory_bytes[line->first], usable);
    esp_i_table_cell(table, "%s", name);
    esp_i_table_cell(table, "x %d", (int)line->count);
    put_share(line->compute_ns / line->count, step_ns, table);
    put_share(line->exposed_ns / line->count, step_ns, table);
    put_share(line->idle_ns / line->count, step_ns, table);
    esp_i_table_cell(table, "%s", line->arena_bytes > 0 ? peak : "-");
    esp_i_table_cell(table, "%s", usable);
}

/* Adds devices[0..n), which are of one class each. */
static line_t sum_devices(const esp_deployment_t *d, const esp_i_usage_t *usage, int64_t step_ns,
                          int32_t n, const int32_t *devices)
{
    line_t line = {.first = devices[0], .count = n};
    for (int32_t i = 0; i < n; i++) {
        int32_t class = d->device_class[devices[i]];
        esp_i_usage_t use = esp_i_device_usage(d, usage, step_ns, devices[i]);
        line.compute_ns += use.compute_ns;
        line.exposed_ns += use.exposed_ns;
        line.idle_ns += use.idle_ns;
        if (class != ESP_NONE)
            line.arena_bytes = esp_i_max_i64(line.arena_bytes, d->class_arena_bytes[class]);
    }
    return line;
}

void esp_i_put_usage(const esp_deployment_t *deployment, const esp_sim_result_t *sim,
                     const esp_i_usage_t *usage, bool verbose, const esp_allocator_t *alloc,
                     esp_i_text_t *text)
{
    bool by_group = deployment->n_classes > LINES && !verbose;
    const esp_i_column_t columns[] = {{by_group ? "group means" : "devices", ESP_I_LEFT},
                                      {"", ESP_I_RIGHT},
                                      {"compute", ESP_I_RIGHT},
                                      {"", ESP_I_RIGHT},
                                      {"exposed", ESP_I_RIGHT},
                                      {"", ESP_I_RIGHT},
                                      {"idle", ESP_I_RIGHT},
                                      {"", ESP_I_RIGHT},
                                      {"memory", ESP_I_RIGHT},
                                      {"usable", ESP_I_RIGHT}};
    const esp_deployment_t *d = deployment;
    const esp_cluster_t *cluster = d->cluster;
    int32_t n = by_group ? cluster->n_groups : d->n_classes;
    const int32_t *offset = by_group ? cluster->group_offset : d->class_offset;
    const int32_t *device = by_group ? cluster->group_device : d->class_device;
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 10, columns);
    for (int32_t i = 0; i < n; i++) {
        line_t line =
            sum_devices(d, usage, sim->step_time_ns, offset[i + 1] - offset[i], device + offset[i]);
        put_line(cluster, by_group ? cluster->group_name[i] : cluster->vertex_name[line.first],
                 &line, sim->step_time_ns, &table);
    }
    esp_i_table_print(&table, 0, text);
}
