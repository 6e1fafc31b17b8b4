/* A lower bound on the step time of any deployment. */
#include "base/base.h"
#include "espalier/search.h"

#include <math.h>

/*
 * Relaxation: ops may be divided at will, nothing is sent, launches cost nothing. With x[o][k] the
 * part of op o on the devices of type k (n_k devices together), the least T with sum_o x[o][k]
 * t[o][k] <= n_k T is, in the dual, max over weights y >= 0 with sum_k n_k y_k = 1 of sum_o min_k
 * y_k t[o][k]. Every y is a bound, so subgradient ascent may stop anywhere.
 */
typedef struct relaxed {
    int32_t n_types;
    double count[256], weight[256], best[256]; /* per type; ESP_CLUSTER_MAX_TYPES */
} relaxed_t;

static double dual_value(const esp_cost_t *cost, const relaxed_t *r, double *load)
{
    double value = 0;
    esp_assert(r->n_types > 0);
    for (int32_t k = 0; k < r->n_types; k++)
        load[k] = 0;
    for (esp_op_id_t op = 0; op < cost->graph->n_ops; op++) {
        int32_t least = 0;
        double least_ns = INFINITY, own = 0;
        for (int32_t k = 0; k < r->n_types; k++) {
            double ns = esp_cost_divisible_ns(cost, op, k);
            if (r->count[k] > 0 && r->weight[k] * ns < least_ns) {
                least_ns = r->weight[k] * ns;
                least = k;
                own = ns;
            }
        }
        value += isfinite(least_ns) ? least_ns : 0;
        load[least] += own;
    }
    return value;
}

static void weights_normalise(relaxed_t *r)
{
    double sum = 0;
    for (int32_t k = 0; k < r->n_types; k++)
        sum += r->count[k] * r->weight[k];
    for (int32_t k = 0; k < r->n_types; k++)
        r->weight[k] /= sum;
}

static double work_bound(const esp_cost_t *cost)
{
    const esp_cluster_t *cluster = cost->cluster;
    relaxed_t r = {.n_types = cluster->n_types};
    double load[256], best = 0;
    for (int32_t d = 0; d < cluster->n_devices; d++)
        r.count[cluster->device_type[d]]++;
    for (int32_t k = 0; k < r.n_types; k++) {
        double total = 1;
        for (esp_op_id_t op = 0; op < cost->graph->n_ops; op++)
            total += esp_cost_divisible_ns(cost, op, k);
        r.weight[k] = 1.0 / total;
    }
    weights_normalise(&r);
    for (int32_t i = 0; i < 200; i++) {
        double value = dual_value(cost, &r, load);
        best = value > best ? value : best;
        double mean = 0, n = 0;
        for (int32_t k = 0; k < r.n_types; k++) {
            mean += load[k];
            n += r.count[k];
        }
        /* multiplicative: a type with more load per device than the mean gets dearer */
        for (int32_t k = 0; k < r.n_types && mean > 0; k++)
            if (r.count[k] > 0)
                r.weight[k] *= exp((load[k] / r.count[k] / (mean / n) - 1.0) * 0.5 / (i + 2));
        weights_normalise(&r);
    }
    return best;
}

/* An op as fast as it can be: spread over all devices as if all were the fastest, for one launch.
 */
static double fastest_ns(const esp_cost_t *cost, esp_op_id_t op)
{
    const esp_cluster_t *cluster = cost->cluster;
    double least = INFINITY;
    if (cost->graph->op_family[op] == ESP_FAMILY_FREE ||
        cost->graph->op_kind[op] == ESP_KIND_ELTWISE) /* a sum may become an alias */
        return 0;
    for (int32_t k = 0; k < cluster->n_types; k++) {
        double ns = esp_cost_divisible_ns(cost, op, k) / cluster->n_devices +
                    (double)cluster->types[k].launch_ns;
        least = ns < least ? ns : least;
    }
    return least;
}

/* Longest path from the readers of a parameter to its update; finish: scratch, -1 where not
 * reached. */
static double cycle_ns(const esp_cost_t *cost, int32_t parameter, double *finish)
{
    const esp_graph_t *g = cost->graph;
    esp_tensor_id_t w = g->parameter[parameter];
    for (esp_op_id_t op = 0; op <= g->update[parameter]; op++) {
        double start = -1;
        for (int32_t i = g->input_offset[op]; i < g->input_offset[op + 1]; i++) {
            esp_tensor_id_t t = g->input_tensor[i];
            esp_op_id_t from = t == ESP_NONE ? ESP_NONE : g->tensor_producer[t];
            if (t != ESP_NONE && g->tensor_root[t] == w && start < 0)
                start = 0;
            if (from != ESP_NONE && finish[from] > start)
                start = finish[from];
        }
        finish[op] = start < 0 ? -1 : start + fastest_ns(cost, op);
    }
    return finish[g->update[parameter]];
}

/* The parameters whose first reader comes first have the longest cycles: a few of them suffice. */
enum { CYCLES_MAX = 16 };

static double path_bound(const esp_cost_t *cost, double *finish)
{
    double longest = 0;
    for (int32_t p = 0; p < cost->graph->n_parameters && p < CYCLES_MAX; p++) {
        double ns = cycle_ns(cost, p, finish);
        longest = ns > longest ? ns : longest;
    }
    return longest;
}

esp_status_t esp_lower_bound(const esp_cost_t *cost, const esp_allocator_t *alloc_or_null,
                             int64_t *bound_ns_out)
{
    esp_allocator_t alloc = esp_i_allocator(alloc_or_null);
    double *finish = esp_i_alloc_array(&alloc, cost->graph->n_ops, sizeof *finish);
    if (!finish)
        return ESP_ERR_NOMEM;
    double work = work_bound(cost), path = path_bound(cost, finish);
    esp_i_free(&alloc, finish);
    *bound_ns_out = (int64_t)floor(work > path ? work : path);
    return ESP_OK;
}
