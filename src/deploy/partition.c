/* The only user of METIS. */
#include "deploy/partition.h"

#include <math.h>
#include <metis.h>
#include <pthread.h>
#include <stdlib.h>

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

static esp_status_t run_metis(const esp_i_partition_t *p, csr_t *csr, real_t *part_weight,
                              int32_t *part_out)
{
    idx_t vertices = p->n, constraints = 1, count = p->parts, cut, options[METIS_NOPTIONS];
    real_t balance = p->part_weight ? 1.1f : 1.5f;
    METIS_SetDefaultOptions(options);
    options[METIS_OPTION_SEED] = (idx_t)(p->seed % 1000003);
    options[METIS_OPTION_NUMBERING] = 0;
    pthread_mutex_lock(&metis_mutex);
    int result =
        METIS_PartGraphKway(&vertices, &constraints, csr->offset, csr->adjacent, csr->vertex, NULL,
                            csr->weight, &count, part_weight, &balance, options, &cut, part_out);
    pthread_mutex_unlock(&metis_mutex);
    if (result == METIS_ERROR_MEMORY)
        return ESP_ERR_NOMEM;
    return result == METIS_OK ? ESP_OK : ESP_ERR_INTERNAL;
}

/* Wanted sizes as fractions; NULL on the way in stays NULL. False: no memory. */
static bool part_weights(const esp_allocator_t *alloc, const esp_i_partition_t *p, real_t **out)
{
    double sum = 0;
    *out = NULL;
    if (!p->part_weight)
        return true;
    if (!(*out = esp_i_alloc_array(alloc, p->parts, sizeof **out)))
        return false;
    for (int32_t i = 0; i < p->parts; i++)
        sum += p->part_weight[i];
    for (int32_t i = 0; i < p->parts; i++)
        (*out)[i] = (real_t)(p->part_weight[i] / sum);
    return true;
}

esp_status_t esp_i_partition(const esp_allocator_t *alloc, const esp_i_partition_t *p,
                             int32_t *part_out)
{
    if (p->n <= p->parts || p->parts < 2) {
        for (int32_t v = 0; v < p->n; v++)
            part_out[v] = p->parts < 2 ? 0 : v;
        return ESP_OK;
    }
    csr_t csr = {0};
    double edge_total;
    real_t *part_weight;
    int32_t kept = edges_merge(p->n_edges, p->edges, &edge_total);
    esp_status_t status = ESP_ERR_NOMEM;
    if (part_weights(alloc, p, &part_weight) &&
        csr_make(alloc, p->n, p->vertex_weight, kept, p->edges, edge_total, &csr))
        status = run_metis(p, &csr, part_weight, part_out);
    csr_free(alloc, &csr);
    esp_i_free(alloc, part_weight);
    if (status != ESP_OK || p->part_weight)
        return status;
    return parts_renumber(alloc, p->n, p->parts, part_out);
}
