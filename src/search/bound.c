/* A lower bound on the step time of any deployment. */
#include "base/base.h"
#include "espalier/search.h"

#include <math.h>

/*
 * Relaxation: ops may be divided at will, nothing is sent, launches cost nothing (until below).
 * With x[o][k] the part of op o on the devices of type k (n_k devices together), the least T with
 * sum_o x[o][k] t[o][k] <= n_k T is, in the dual, max over weights y >= 0 with sum_k n_k y_k = 1 of
 * sum_o min_k y_k t[o][k]. Every y is a bound, so subgradient ascent may stop anywhere.
 */
typedef struct relaxed {
    int32_t n_types;
    double count[256], weight[256], best[256]; /* per type; ESP_CLUSTER_MAX_TYPES */
} relaxed_t;

/* A sum of addends that lie on different devices is never made where they are summed later. */
static bool may_vanish(const esp_graph_t *g, esp_op_id_t op)
{
    return g->op_family[op] == ESP_FAMILY_FREE ||
           (g->op_kind[op] == ESP_KIND_ELTWISE && g->op_attr[op].eltwise.code == ESP_ELT_ADD &&
            g->op_batch[op].dim == ESP_NONE);
}

static double dual_value(const esp_cost_t *cost, const relaxed_t *r, double *load)
{
    double value = 0;
    esp_assert(r->n_types > 0);
    for (int32_t k = 0; k < r->n_types; k++)
        load[k] = 0;
    for (esp_op_id_t op = 0; op < cost->graph->n_ops; op++) {
        int32_t least = 0;
        double least_ns = INFINITY, own = 0;
        if (may_vanish(cost->graph, op))
            continue;
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

/* The greatest bound that was met, and its weights. */
static double relaxed_solve(const esp_cost_t *cost, relaxed_t *best_out)
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
    *best_out = r;
    for (int32_t i = 0; i < 200; i++) {
        double value = dual_value(cost, &r, load);
        if (value > best) {
            best = value;
            *best_out = r;
        }
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

/* ---- micro-batches ------------------------------------------------------------------------ */

/*
 * With M micro-batches an op of the body is launched M times, each for an M-th of its work, and the
 * path of one micro-batch may pass while others work. So the path gets shorter with M and the work
 * longer, by launches; the bound is the least over M of the larger of the two.
 */
typedef struct bound {
    const esp_cost_t *cost;
    double work_ns;              /* without launches */
    double once_ns, repeated_ns; /* of launches, per step and per micro-batch */
    double *finish;              /* scratch, per op */
} bound_t;

/* What one task of an op takes beside its share of the work: the time of next to none, which is
 * rounded up. */
static double constant_ns(const esp_cost_t *cost, esp_op_id_t op, int32_t type)
{
    return fmax(0, (double)esp_cost_op_ns(cost, op, type, 1e-12, 1) - 1);
}

/* What depends on the batch and on a parameter is launched for every micro-batch. */
static void launches_find(bound_t *b, const relaxed_t *r)
{
    const esp_graph_t *g = b->cost->graph;
    for (esp_op_id_t op = 0; op < g->n_ops; op++) {
        bool reached = false;
        for (int32_t i = g->input_offset[op]; i < g->input_offset[op + 1]; i++) {
            esp_tensor_id_t t = g->input_tensor[i];
            esp_op_id_t from = t == ESP_NONE ? ESP_NONE : g->tensor_producer[t];
            reached = reached || (t != ESP_NONE && g->tensor_next[g->tensor_root[t]] != ESP_NONE) ||
                      (from != ESP_NONE && b->finish[from] > 0);
        }
        b->finish[op] = reached;
        if (may_vanish(g, op))
            continue;
        double least = INFINITY; /* the share of the time of all devices that a launch takes */
        for (int32_t k = 0; k < r->n_types; k++)
            if (r->count[k] > 0)
                least = fmin(least, r->weight[k] * constant_ns(b->cost, op, k));
        if (reached && g->op_phase[op] != ESP_PHASE_UPDATE && g->op_batch[op].dim != ESP_NONE)
            b->repeated_ns += least;
        else
            b->once_ns += least;
    }
}

static void work_find(bound_t *b)
{
    relaxed_t r;
    b->work_ns = relaxed_solve(b->cost, &r);
    launches_find(b, &r);
}

/* An op as fast as it can be: spread over all devices as if all were the fastest, for one launch.
 */
static double fastest_ns(const esp_cost_t *cost, esp_op_id_t op, int64_t micro)
{
    const esp_cluster_t *cluster = cost->cluster;
    double least = INFINITY, parts = cluster->n_devices;
    if (may_vanish(cost->graph, op))
        return 0;
    if (cost->graph->op_phase[op] != ESP_PHASE_UPDATE)
        parts *= (double)micro;
    for (int32_t k = 0; k < cluster->n_types; k++) {
        double ns = esp_cost_divisible_ns(cost, op, k) / parts + constant_ns(cost, op, k);
        least = ns < least ? ns : least;
    }
    return least;
}

/* Longest path from the readers of a parameter to its update; finish: -1 where not reached. */
static double cycle_ns(const bound_t *b, int32_t parameter, int64_t micro)
{
    const esp_graph_t *g = b->cost->graph;
    double *finish = b->finish;
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
        finish[op] = start < 0 ? -1 : start + fastest_ns(b->cost, op, micro);
    }
    return finish[g->update[parameter]];
}

/* The parameters whose first reader comes first have the longest cycles: a few of them suffice. */
enum { CYCLES_MAX = 16 };

static double path_bound(const bound_t *b, int64_t micro)
{
    double longest = 0;
    for (int32_t p = 0; p < b->cost->graph->n_parameters && p < CYCLES_MAX; p++) {
        double ns = cycle_ns(b, p, micro);
        longest = ns > longest ? ns : longest;
    }
    return longest;
}

esp_status_t esp_lower_bound(const esp_cost_t *cost, const esp_allocator_t *alloc_or_null,
                             int64_t *bound_ns_out)
{
    esp_allocator_t alloc = esp_i_allocator(alloc_or_null);
    bound_t b = {.cost = cost};
    b.finish = esp_i_alloc_array(&alloc, cost->graph->n_ops, sizeof *b.finish);
    if (!b.finish)
        return ESP_ERR_NOMEM;
    work_find(&b);
    double least = INFINITY, work = 0, path = INFINITY;
    for (int64_t micro = 1; micro == 1 || (work < path && micro <= cost->graph->batch); micro++) {
        if (micro > 1 && cost->graph->batch % micro != 0)
            continue;
        work = b.work_ns + b.once_ns + b.repeated_ns * (double)micro;
        path = path_bound(&b, micro);
        least = fmin(least, fmax(work, path));
    }
    esp_i_free(&alloc, b.finish);
    *bound_ns_out = (int64_t)floor(least);
    return ESP_OK;
}
