/* The only user of METIS. */
#include "deploy/partition.h"

#include <math.h>
#include <metis.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* METIS uses the C library's rand and installs signal handlers: one caller at a time in the
 * process. */
static pthread_mutex_t metis_mutex = PTHREAD_MUTEX_INITIALIZER;

typedef struct csr {
    idx_t *offset, *adjacent, *weight, *vertex;
} csr_t;

static void csr_free(const esp_allocator_t *alloc, csr_t *csr)
{
    esp_i_free(alloc, csr->offset);
    esp_i_free(alloc, csr->adjacent);
    esp_i_free(alloc, csr->weight);
    esp_i_free(alloc, csr->vertex);
}

/* METIS weights are 32-bit integers: scaled so that their sum stays below 2^28, at least 1. */
static idx_t scaled(double weight, double total)
{
    return total > 0 ? 1 + (idx_t)floor(weight / total * (1 << 27)) : 1;
}

static int compare_edges(const void *left, const void *right)
{
    const esp_i_edge_t *x = left, *y = right;
    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return x->b < y->b ? -1 : x->b > y->b;
}

/* Orients edges a < b, sorts, merges equal ones, drops loops. Returns how many remain. */
static int32_t edges_merge(int32_t n, esp_i_edge_t *edges, double *total_out)
{
    for (int32_t e = 0; e < n; e++)
        if (edges[e].a > edges[e].b) {
            int32_t a = edges[e].a;
            edges[e].a = edges[e].b;
            edges[e].b = a;
        }
    if (n > 1)
        qsort(edges, (size_t)n, sizeof *edges, compare_edges);
    int32_t kept = 0;
    *total_out = 0;
    for (int32_t e = 0; e < n; e++) {
        if (edges[e].a == edges[e].b)
            continue;
        *total_out += edges[e].weight;
        if (kept && compare_edges(&edges[kept - 1], &edges[e]) == 0)
            edges[kept - 1].weight += edges[e].weight;
        else
            edges[kept++] = edges[e];
    }
    return kept;
}

static bool csr_make(const esp_allocator_t *alloc, int32_t n, const double *vertex_weight,
                     int32_t n_edges, const esp_i_edge_t *edges, double edge_total, csr_t *csr)
{
    double total = 0;
    csr->offset = esp_i_alloc_array(alloc, n + 1, sizeof(idx_t));
    csr->adjacent = esp_i_alloc_array(alloc, 2 * (int64_t)n_edges + 1, sizeof(idx_t));
    csr->weight = esp_i_alloc_array(alloc, 2 * (int64_t)n_edges + 1, sizeof(idx_t));
    csr->vertex = esp_i_alloc_array(alloc, n, sizeof(idx_t));
    if (!csr->offset || !csr->adjacent || !csr->weight || !csr->vertex)
        return false;
    for (int32_t v = 0; v < n; v++)
        total += vertex_weight[v];
    for (int32_t v = 0; v < n; v++)
        csr->vertex[v] = scaled(vertex_weight[v], total);
    for (int32_t e = 0; e < n_edges; e++) {
        csr->offset[edges[e].a + 1]++;
        csr->offset[edges[e].b + 1]++;
    }
    for (int32_t v = 0; v < n; v++)
        csr->offset[v + 1] += csr->offset[v];
    for (int32_t e = 0; e < n_edges; e++) {
        int32_t ends[2] = {edges[e].a, edges[e].b};
        for (int32_t side = 0; side < 2; side++) {
            idx_t at = csr->offset[ends[side]]++;
            csr->adjacent[at] = ends[1 - side];
            csr->weight[at] = scaled(edges[e].weight, edge_total);
        }
    }
    for (int32_t v = n; v > 0; v--)
        csr->offset[v] = csr->offset[v - 1];
    csr->offset[0] = 0;
    return true;
}

/* Part numbers without gaps, in order of first appearance. */
static esp_status_t parts_renumber(const esp_allocator_t *alloc, int32_t n, int32_t parts,
                                   int32_t *part)
{
    int32_t *name = esp_i_alloc_array(alloc, parts, sizeof *name), next = 0;
    if (!name)
        return ESP_ERR_NOMEM;
    for (int32_t v = 0; v < n; v++) {
        if (!name[part[v]])
            name[part[v]] = ++next;
        part[v] = name[part[v]] - 1;
    }
    esp_i_free(alloc, name);
    return ESP_OK;
}

/*
 * Recursive bisection, one METIS call per cut. METIS's own k-way driver prints to the terminal when
 * a heavy vertex leaves one side without any; here a side with no more vertices than parts is done.
 */
typedef struct bisection {
    const esp_allocator_t *alloc;
    const esp_i_partition_t *problem;
    const csr_t *csr;
    const double
        *part_weight; /* cumulative: part_weight[p + 1] - part_weight[p] is the size of p */
    int32_t *vertex;  /* permuted so that every subset is a range */
    int32_t *number;  /* vertex -> index in the subset at hand, or -1 */
    int32_t *part_out;
} bisection_t;

/* The subgraph of vertex[first, end). */
static bool subgraph_make(const bisection_t *b, int32_t first, int32_t end, csr_t *sub)
{
    const csr_t *csr = b->csr;
    int64_t edges = 0;
    for (int32_t i = first; i < end; i++) {
        b->number[b->vertex[i]] = i - first;
        edges += csr->offset[b->vertex[i] + 1] - csr->offset[b->vertex[i]];
    }
    sub->offset = esp_i_alloc_array(b->alloc, end - first + 1, sizeof(idx_t));
    sub->adjacent = esp_i_alloc_array(b->alloc, edges + 1, sizeof(idx_t));
    sub->weight = esp_i_alloc_array(b->alloc, edges + 1, sizeof(idx_t));
    sub->vertex = esp_i_alloc_array(b->alloc, end - first, sizeof(idx_t));
    bool fine = sub->offset && sub->adjacent && sub->weight && sub->vertex;
    for (int32_t i = first; fine && i < end; i++) {
        int32_t v = b->vertex[i];
        idx_t at = sub->offset[i - first];
        sub->vertex[i - first] = csr->vertex[v];
        for (idx_t e = csr->offset[v]; e < csr->offset[v + 1]; e++)
            if (b->number[csr->adjacent[e]] >= 0) {
                sub->adjacent[at] = b->number[csr->adjacent[e]];
                sub->weight[at++] = csr->weight[e];
            }
        sub->offset[i - first + 1] = at;
    }
    for (int32_t i = first; i < end; i++)
        b->number[b->vertex[i]] = -1;
    return fine;
}

static esp_status_t run_metis(const bisection_t *b, csr_t *sub, int32_t n, double left,
                              idx_t *side_out)
{
    idx_t vertices = n, constraints = 1, parts = 2, cut, options[METIS_NOPTIONS];
    real_t size[2] = {(real_t)left, (real_t)(1.0 - left)}, balance = 1.2f;
    METIS_SetDefaultOptions(options);
    options[METIS_OPTION_SEED] = (idx_t)(b->problem->seed % 1000003);
    options[METIS_OPTION_NUMBERING] = 0;
    pthread_mutex_lock(&metis_mutex);
    int result = METIS_PartGraphRecursive(&vertices, &constraints, sub->offset, sub->adjacent,
                                          sub->vertex, NULL, sub->weight, &parts, size, &balance,
                                          options, &cut, side_out);
    pthread_mutex_unlock(&metis_mutex);
    if (result == METIS_ERROR_MEMORY)
        return ESP_ERR_NOMEM;
    return result == METIS_OK ? ESP_OK : ESP_ERR_INTERNAL;
}

/* Puts the left side first, both in their old order; returns where the right side begins. */
static int32_t side_split(const bisection_t *b, int32_t first, int32_t end, const idx_t *side,
                          int32_t *scratch)
{
    int32_t left = first, right = 0;
    for (int32_t i = first; i < end; i++)
        if (side[i - first] == 0)
            b->vertex[left++] = b->vertex[i];
        else
            scratch[right++] = b->vertex[i];
    memcpy(b->vertex + left, scratch, (size_t)right * sizeof *scratch);
    return left;
}

/* Depth is at most the number of parts, and about its logarithm. */
static esp_status_t bisect(const bisection_t *b, int32_t first, int32_t end, int32_t part_first,
                           int32_t part_end)
{
    int32_t n = end - first, parts = part_end - part_first, half = part_first + parts / 2;
    if (n <= parts || parts == 1) {
        for (int32_t i = first; i < end; i++)
            b->part_out[b->vertex[i]] = parts == 1 ? part_first : part_first + i - first;
        return ESP_OK;
    }
    csr_t sub = {0};
    const double *w = b->part_weight;
    double left = (w[half] - w[part_first]) / (w[part_end] - w[part_first]);
    idx_t *side = esp_i_alloc_array(b->alloc, n, sizeof *side);
    int32_t *scratch = esp_i_alloc_array(b->alloc, n, sizeof *scratch), middle = first;
    esp_status_t status = side && scratch && subgraph_make(b, first, end, &sub)
                              ? run_metis(b, &sub, n, left, side)
                              : ESP_ERR_NOMEM;
    if (status == ESP_OK)
        middle = side_split(b, first, end, side, scratch);
    csr_free(b->alloc, &sub);
    esp_i_free(b->alloc, side);
    esp_i_free(b->alloc, scratch);
    if (status == ESP_OK)
        status = bisect(b, first, middle, part_first, half);
    return status == ESP_OK ? bisect(b, middle, end, half, part_end) : status;
}

/* Cumulative sizes of the parts; equal where none are wanted. */
static double *part_sizes(const esp_allocator_t *alloc, const esp_i_partition_t *p)
{
    double *sum = esp_i_alloc_array(alloc, (int64_t)p->parts + 1, sizeof *sum);
    for (int32_t i = 0; sum && i < p->parts; i++)
        sum[i + 1] = sum[i] + (p->part_weight ? p->part_weight[i] : 1.0);
    return sum;
}

esp_status_t esp_i_partition(const esp_allocator_t *alloc, const esp_i_partition_t *p,
                             int32_t *part_out)
{
    csr_t csr = {0};
    double edge_total;
    int32_t kept = edges_merge(p->n_edges, p->edges, &edge_total);
    double *sizes = part_sizes(alloc, p);
    int32_t *vertex = esp_i_alloc_array(alloc, p->n, sizeof *vertex);
    int32_t *number = esp_i_alloc_array(alloc, p->n, sizeof *number);
    esp_status_t status = ESP_ERR_NOMEM;
    for (int32_t v = 0; vertex && number && v < p->n; v++) {
        vertex[v] = v;
        number[v] = -1;
    }
    if (sizes && vertex && number &&
        csr_make(alloc, p->n, p->vertex_weight, kept, p->edges, edge_total, &csr))
        status = bisect(&(bisection_t){alloc, p, &csr, sizes, vertex, number, part_out}, 0, p->n, 0,
                        p->parts);
    csr_free(alloc, &csr);
    esp_i_free(alloc, sizes);
    esp_i_free(alloc, vertex);
    esp_i_free(alloc, number);
    if (status != ESP_OK || p->part_weight)
        return status;
    return parts_renumber(alloc, p->n, p->parts, part_out);
}
