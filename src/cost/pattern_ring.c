/*
 * Collectives inside one device set: ring, two-level and binomial tree.
 *
 * Ring: devices in the order that leaves each node once; device k passes on what it got a step
 * before. Two-level: rings inside the nodes, then one ring across the nodes per local rank. Tree:
 * pairs at distance 1, 2, 4, ...: few steps, whole tensors; for small ones.
 */
#include "cost/pattern.h"

#include <math.h>
#include <stdlib.h>

/* ---- ring order -------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Keys (node, number in the list) in ring order; the caller's scratch memory. */
static void order_keys(const esp_cluster_t *cluster, int32_t n, const int32_t *device, int64_t *key)
{
    for (int32_t k = 0; k < n; ++k)
        key[k] = (int64_t)cluster->device_node[device[k]] << 32 | k;
    qsort(key, (size_t)n, sizeof *key, compare_keys);
}

static void fill_ring(esp_i_ring_t *ring, const int32_t *device, const double *fraction,
                      const int64_t *key)
{
    for (int32_t k = 0; k < ring->n; ++k) {
        int32_t number = (int32_t)(key[k] & INT32_MAX);
        ring->device[k] = device[number];
        ring->piece[k] = fraction ? fraction[number] : 1.0 / ring->n;
        if (k == 0 || key[k] >> 32 != key[k - 1] >> 32)
            ring->offset[ring->n_nodes++] = k;
    }
    ring->offset[ring->n_nodes] = ring->n;
    ring->even = ring->n % ring->n_nodes == 0;
    for (int32_t k = 0; k < ring->n_nodes && ring->even; ++k)
        ring->even = ring->offset[k + 1] - ring->offset[k] == ring->n / ring->n_nodes;
}

esp_status_t esp_i_ring_init(esp_i_ring_t *ring, const esp_cluster_t *cluster, int32_t n,
                             const int32_t *device, const double *fraction,
                             const esp_allocator_t *alloc)
{
    esp_assert(n > 0);
    *ring = (esp_i_ring_t){.n = n};
    int64_t *key = esp_i_alloc_array(alloc, n, sizeof *key);
    ring->device = esp_i_alloc_array(alloc, n, sizeof *ring->device);
    ring->offset = esp_i_alloc_array(alloc, (int64_t)n + 1, sizeof *ring->offset);
    ring->piece = esp_i_alloc_array(alloc, n, sizeof *ring->piece);
    bool ok = key && ring->device && ring->offset && ring->piece;
    if (ok) {
        order_keys(cluster, n, device, key);
        fill_ring(ring, device, fraction, key);
    } else {
        esp_i_ring_fini(ring, alloc);
    }
    esp_i_free(alloc, key);
    return ok ? ESP_OK : ESP_ERR_NOMEM;
}

void esp_i_ring_fini(esp_i_ring_t *ring, const esp_allocator_t *alloc)
{
    esp_i_free(alloc, ring->device);
    esp_i_free(alloc, ring->offset);
    esp_i_free(alloc, ring->piece);
    *ring = (esp_i_ring_t){0};
}

/* ---- the steps of a ring ----------------------------------------------------------------- */

static bool pieces_are_equal(int32_t n, const double *piece)
{
    for (int32_t k = 1; k < n; ++k)
        if (fabs(piece[k] - piece[0]) > 1e-12)
            return false;
    return true;
}

/* Adds (sign 1) or clears (sign 0) what each hop carries in step t. */
static double ring_step(esp_i_ledger_t *ledger, int32_t n, const int32_t *device,
                        const double *piece, int32_t first, bool clear)
{
    const esp_cluster_t *cluster = ledger->cluster;
    double slowest = 0;
    for (int32_t k = 0; k < n; ++k) {
        const int32_t *route;
        int32_t hops = esp_cluster_route(cluster, device[k], device[(k + 1) % n], &route);
        double bytes = piece[(k + first) % n];
        for (int32_t i = 0; i < hops; ++i) {
            double *load = &ledger->step[route[i]];
            *load = clear ? 0 : *load + bytes;
            slowest = fmax(slowest, *load * 1e9 / cluster->link_bytes_per_s[route[i]]);
        }
    }
    return slowest;
}

/* A step lasts as long as the busiest link in it; uneven pieces move around the ring. */
static double ring_steps_ns_per_byte(esp_i_ledger_t *ledger, int32_t n, const int32_t *device,
                                     const double *piece, bool scatter)
{
    double total = 0;
    for (int32_t t = 0; t < n - 1; ++t) {
        int32_t first = 2 * n - t - (scatter ? 1 : 0); /* device k sends piece k + first mod n */
        total += ring_step(ledger, n, device, piece, first, false);
        (void)ring_step(ledger, n, device, piece, first, true);
    }
    return total;
}

/* Hops of a ring: each piece passes every hop but one. */
static void ring_hops(esp_i_ledger_t *ledger, int32_t n, const int32_t *device, const double *piece,
                      bool scatter)
{
    double whole = 0;
    for (int32_t k = 0; k < n; ++k)
        whole += piece[k];
    for (int32_t k = 0; k < n && n > 1; ++k) {
        double absent = piece[scatter ? k : (k + 1) % n];
        esp_i_ledger_hop(ledger, device[k], device[(k + 1) % n], whole - absent);
    }
}

void esp_i_ring_gather(esp_i_ledger_t *ledger, int32_t n, const int32_t *device,
                       const double *piece, bool scatter)
{
    double floor_ns =
        pieces_are_equal(n, piece) ? 0 : ring_steps_ns_per_byte(ledger, n, device, piece, scatter);
    ring_hops(ledger, n, device, piece, scatter);
    esp_i_ledger_stage(ledger, n - 1, floor_ns);
}

/* ---- ring -------------------------------------------------------------------------------- */

static esp_status_t add_ring(esp_i_find_t *find, const esp_i_ring_t *ring)
{
    double largest = 0;
    for (int32_t k = 0; k < ring->n; ++k)
        largest = fmax(largest, ring->piece[k]);
    if (find->comm != ESP_COMM_ALL_GATHER) {
        esp_i_ring_gather(&find->ledger, ring->n, ring->device, ring->piece, true);
        find->ledger.staging = largest; /* the piece that comes in, before it is added */
    }
    if (find->comm != ESP_COMM_REDUCE_SCATTER)
        esp_i_ring_gather(&find->ledger, ring->n, ring->device, ring->piece, false);
    return esp_i_find_add(find, ESP_ALGORITHM_RING);
}

/* ---- two-level, equal nodes --------------------------------------------------------------- */

/* Scratch: for local rank j, the fractions of rank j on every node, and their sum. */
typedef struct levels {
    int32_t nodes, ranks;
    int32_t *across; /* devices of one local rank */
    double *piece;   /* their fractions */
    double *sum;     /* per local rank */
} levels_t;

/* All nodes at once, in one stage. */
static void inside(esp_i_find_t *find, const esp_i_ring_t *ring, const levels_t *levels,
                   bool scatter)
{
    bool equal = pieces_are_equal(levels->ranks, levels->sum);
    double floor_ns = 0;
    for (int32_t k = 0; k < levels->nodes; ++k) {
        const int32_t *device = ring->device + k * levels->ranks;
        if (!equal)
            floor_ns = fmax(floor_ns, ring_steps_ns_per_byte(&find->ledger, levels->ranks, device,
                                                             levels->sum, scatter));
    }
    for (int32_t k = 0; k < levels->nodes; ++k)
        ring_hops(&find->ledger, levels->ranks, ring->device + k * levels->ranks, levels->sum,
                  scatter);
    esp_i_ledger_stage(&find->ledger, levels->ranks - 1, floor_ns);
}

/* One ring per local rank, all at once. */
static void across(esp_i_find_t *find, const esp_i_ring_t *ring, const levels_t *levels,
                   bool scatter)
{
    double floor_ns = 0;
    for (int32_t j = 0; j < levels->ranks; ++j) {
        for (int32_t k = 0; k < levels->nodes; ++k) {
            levels->across[k] = ring->device[k * levels->ranks + j];
            levels->piece[k] = ring->piece[k * levels->ranks + j];
        }
        if (!pieces_are_equal(levels->nodes, levels->piece))
            floor_ns =
                fmax(floor_ns, ring_steps_ns_per_byte(&find->ledger, levels->nodes, levels->across,
                                                      levels->piece, scatter));
        ring_hops(&find->ledger, levels->nodes, levels->across, levels->piece, scatter);
    }
    esp_i_ledger_stage(&find->ledger, levels->nodes - 1, floor_ns);
}

static esp_status_t add_levels(esp_i_find_t *find, const esp_i_ring_t *ring)
{
    const esp_allocator_t *alloc = &find->ledger.alloc;
    levels_t levels = {.nodes = ring->n_nodes, .ranks = ring->n / ring->n_nodes};
    levels.across = esp_i_alloc_array(alloc, levels.nodes, sizeof *levels.across);
    levels.piece = esp_i_alloc_array(alloc, levels.nodes, sizeof *levels.piece);
    levels.sum = esp_i_alloc_array(alloc, levels.ranks, sizeof *levels.sum);
    esp_status_t status = ESP_ERR_NOMEM;
    if (levels.across && levels.piece && levels.sum) {
        double largest = 0;
        for (int32_t k = 0; k < ring->n; ++k)
            levels.sum[k % levels.ranks] += ring->piece[k];
        for (int32_t j = 0; j < levels.ranks; ++j)
            largest = fmax(largest, levels.sum[j]);
        if (find->comm != ESP_COMM_ALL_GATHER) {
            inside(find, ring, &levels, true);
            across(find, ring, &levels, true);
            find->ledger.staging = largest;
        }
        if (find->comm != ESP_COMM_REDUCE_SCATTER) {
            across(find, ring, &levels, false);
            inside(find, ring, &levels, false);
        }
        status = esp_i_find_add(find, ESP_ALGORITHM_TWO_LEVEL);
    }
    esp_i_free(alloc, levels.across);
    esp_i_free(alloc, levels.piece);
    esp_i_free(alloc, levels.sum);
    return status;
}

/* ---- two-level all-reduce, unequal nodes --------------------------------------------------- */

/* A pipelined chain through each node: towards its first device, or away from it. */
static void chains(esp_i_ledger_t *ledger, const esp_i_ring_t *ring, bool towards)
{
    int32_t steps = 0;
    for (int32_t k = 0; k < ring->n_nodes; ++k) {
        for (int32_t i = ring->offset[k]; i + 1 < ring->offset[k + 1]; ++i)
            esp_i_ledger_hop(ledger, ring->device[i + (towards ? 1 : 0)],
                             ring->device[i + (towards ? 0 : 1)], 1);
        int32_t length = ring->offset[k + 1] - ring->offset[k] - 1;
        steps = length > steps ? length : steps;
    }
    esp_i_ledger_stage(ledger, steps, 0);
}

static esp_status_t add_leaders(esp_i_find_t *find, const esp_i_ring_t *ring)
{
    esp_i_ledger_t *ledger = &find->ledger;
    double piece = 2.0 * (ring->n_nodes - 1) / ring->n_nodes;
    chains(ledger, ring, true);
    for (int32_t k = 0; k < ring->n_nodes; ++k)
        esp_i_ledger_hop(ledger, ring->device[ring->offset[k]],
                         ring->device[ring->offset[(k + 1) % ring->n_nodes]], piece);
    esp_i_ledger_stage(ledger, 2 * (ring->n_nodes - 1), 0);
    chains(ledger, ring, false);
    ledger->staging = 1.0 / ring->n_nodes;
    return esp_i_find_add(find, ESP_ALGORITHM_TWO_LEVEL);
}

/* ---- tree ---------------------------------------------------------------------------------- */

static void tree_round(esp_i_ledger_t *ledger, const esp_i_ring_t *ring, int32_t distance, bool up)
{
    for (int32_t k = distance; k < ring->n; k += 2 * distance)
        esp_i_ledger_hop(ledger, ring->device[up ? k : k - distance],
                         ring->device[up ? k - distance : k], 1);
    esp_i_ledger_stage(ledger, 1, 0);
}

static esp_status_t add_tree(esp_i_find_t *find, const esp_i_ring_t *ring)
{
    int32_t distance = 1;
    for (; distance < ring->n; distance *= 2)
        tree_round(&find->ledger, ring, distance, true);
    for (distance /= 2; distance >= 1; distance /= 2)
        tree_round(&find->ledger, ring, distance, false);
    find->ledger.staging = 1;
    return esp_i_find_add(find, ESP_ALGORITHM_TREE);
}

/* ---- entry --------------------------------------------------------------------------------- */

static esp_status_t add_all(esp_i_find_t *find, const esp_i_ring_t *ring)
{
    ESP_TRY(add_ring(find, ring));
    if (ring->n_nodes > 1 && ring->n > ring->n_nodes) {
        if (ring->even)
            ESP_TRY(add_levels(find, ring));
        else if (find->comm == ESP_COMM_ALLREDUCE)
            ESP_TRY(add_leaders(find, ring));
    }
    if (find->comm == ESP_COMM_ALLREDUCE && ring->n > 2)
        ESP_TRY(add_tree(find, ring));
    return ESP_OK;
}

esp_status_t esp_i_find_collective(esp_i_find_t *find)
{
    const esp_place_t *split = find->comm == ESP_COMM_REDUCE_SCATTER ? find->to : find->from;
    const double *fraction = find->comm == ESP_COMM_ALLREDUCE ? NULL : split->fraction;
    esp_i_ring_t ring;
    ESP_TRY(esp_i_ring_init(&ring, find->ledger.cluster, split->n, split->device, fraction,
                            &find->ledger.alloc));
    esp_status_t status = add_all(find, &ring);
    esp_i_ring_fini(&ring, &find->ledger.alloc);
    return status;
}
