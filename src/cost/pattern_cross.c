/*
 * Movements between device sets: reduce, broadcast, gather, and the pieces of exchange, scatter and
 * all-to-all. Towards every destination node each byte crosses the boundary once: one device of the
 * node takes it in and passes it on.
 */
#include "cost/pattern.h"

#include <math.h>

/* ---- pieces: every source sends each destination its own part ------------------------------- */

/* Rows [a, b) of the source and [c, d) of the destination, as fractions of the tensor. */
static double overlap(double a, double b, double c, double d)
{
    double both = fmin(b, d) - fmax(a, c);
    return both > 1e-12 ? both : 0; /* what is left of rounding is no message */
}

static void exchange(esp_i_find_t *find)
{
    double source_end = 0, first_start = 0;
    int32_t first = 0;
    for (int32_t k = 0; k < find->from->n; ++k) {
        double source = source_end;
        source_end += esp_i_place_fraction(find->from, k);
        double start = first_start;
        for (int32_t l = first; l < find->to->n && start < source_end; ++l) {
            double end = start + esp_i_place_fraction(find->to, l);
            esp_i_ledger_hop(&find->ledger, find->from->device[k], find->to->device[l],
                             overlap(source, source_end, start, end));
            if (end <= source_end) { /* no later source has anything for it */
                first = l + 1;
                first_start = end;
            }
            start = end;
        }
    }
}

static void all_to_all(esp_i_find_t *find)
{
    for (int32_t k = 0; k < find->from->n; ++k)
        for (int32_t l = 0; l < find->to->n; ++l)
            esp_i_ledger_hop(&find->ledger, find->from->device[k], find->to->device[l],
                             esp_i_place_fraction(find->from, k) *
                                 esp_i_place_fraction(find->to, l));
    for (int32_t l = 0; l < find->to->n; ++l) /* pieces are strided: packed, then unpacked */
        find->ledger.staging = fmax(find->ledger.staging, esp_i_place_fraction(find->to, l));
}

static esp_status_t scatter(esp_i_find_t *find)
{
    const esp_place_t *from = find->from, *to = find->to;
    int32_t *uses = esp_i_alloc_array(&find->ledger.alloc, from->n, sizeof *uses);
    if (!uses)
        return ESP_ERR_NOMEM;
    for (int32_t l = 0; l < to->n; ++l) {
        if (esp_i_place_find(from, to->device[l]) >= 0)
            continue;
        int32_t k = esp_i_place_source(find->ledger.cluster, from, uses, to->device[l]);
        uses[k]++;
        esp_i_ledger_hop(&find->ledger, from->device[k], to->device[l],
                         esp_i_place_fraction(to, l));
    }
    esp_i_free(&find->ledger.alloc, uses);
    return ESP_OK;
}

esp_status_t esp_i_find_pieces(esp_i_find_t *find)
{
    if (find->comm == ESP_COMM_EXCHANGE)
        exchange(find);
    else if (find->comm == ESP_COMM_ALL_TO_ALL)
        all_to_all(find);
    else
        ESP_TRY(scatter(find));
    esp_i_ledger_stage(&find->ledger, 1, 0);
    return esp_i_find_add(find, ESP_ALGORITHM_DIRECT);
}

/* ---- reduce ------------------------------------------------------------------------------- */

/* Adding `incoming` addends (and one's own) into one: each is read, the sum written once. */
static double add_ns_per_byte(const esp_cluster_t *cluster, int32_t device, int32_t incoming,
                              bool own)
{
    int32_t addends = incoming + (own ? 1 : 0);
    if (addends < 2)
        return 0; /* received in place */
    const esp_device_type_t *type = &cluster->types[cluster->device_type[device]];
    const double efficiency = 0.75; /* as other memory-bound work, docs/cost.md */
    return (addends + 1) * 1e9 / (type->memory_bytes_per_s * efficiency);
}

/* Ends the stage in which `root` and others sum up; the slowest adder counts. */
static void end_reduce(esp_i_ledger_t *ledger, double add_ns, int32_t most_incoming)
{
    esp_i_ledger_stage(ledger, 1, 0);
    ledger->ns_per_byte += add_ns;
    ledger->staging = fmax(ledger->staging, most_incoming - 1);
}

static esp_status_t add_direct_reduce(esp_i_find_t *find, int32_t root)
{
    int32_t incoming = 0;
    for (int32_t k = 0; k < find->from->n; ++k) {
        esp_i_ledger_hop(&find->ledger, find->from->device[k], root, 1);
        incoming += find->from->device[k] != root;
    }
    end_reduce(&find->ledger,
               add_ns_per_byte(find->ledger.cluster, root, incoming, incoming < find->from->n),
               incoming);
    return esp_i_find_add(find, ESP_ALGORITHM_DIRECT);
}

/* Of the devices [from, to) of the ring, the one with the best route to the root. */
static int32_t leader_of(const esp_cluster_t *cluster, const esp_i_ring_t *ring, int32_t node,
                         int32_t root)
{
    int32_t best = ring->offset[node];
    for (int32_t i = best + 1; i < ring->offset[node + 1]; ++i) {
        double width = esp_cluster_route_bytes_per_s(cluster, ring->device[i], root);
        double best_width = esp_cluster_route_bytes_per_s(cluster, ring->device[best], root);
        if (width > best_width)
            best = i;
    }
    return ring->device[best];
}

/* Members to the leader of their node; leaders, and members of the root's node, to the root. */
static esp_status_t add_leader_reduce(esp_i_find_t *find, const esp_i_ring_t *ring, int32_t root)
{
    esp_i_ledger_t *ledger = &find->ledger;
    const esp_cluster_t *cluster = ledger->cluster;
    double slowest = 0;
    int32_t most = 0, incoming = 0;
    for (int32_t node = 0; node < ring->n_nodes; ++node) {
        if (cluster->device_node[ring->device[ring->offset[node]]] == cluster->device_node[root])
            continue;
        int32_t leader = leader_of(cluster, ring, node, root);
        int32_t members = ring->offset[node + 1] - ring->offset[node] - 1;
        for (int32_t i = ring->offset[node]; i < ring->offset[node + 1]; ++i)
            esp_i_ledger_hop(ledger, ring->device[i], leader, 1);
        slowest = fmax(slowest, add_ns_per_byte(cluster, leader, members, true));
        most = members > most ? members : most;
    }
    end_reduce(ledger, slowest, most + 1); /* a leader's sum is staging too */
    for (int32_t node = 0; node < ring->n_nodes; ++node) {
        bool local =
            cluster->device_node[ring->device[ring->offset[node]]] == cluster->device_node[root];
        for (int32_t i = ring->offset[node]; local && i < ring->offset[node + 1]; ++i) {
            esp_i_ledger_hop(ledger, ring->device[i], root, 1);
            incoming += ring->device[i] != root;
        }
        if (!local) {
            esp_i_ledger_hop(ledger, leader_of(cluster, ring, node, root), root, 1);
            incoming++;
        }
    }
    bool own = esp_i_place_find(find->from, root) >= 0;
    end_reduce(ledger, add_ns_per_byte(cluster, root, incoming, own), incoming);
    return esp_i_find_add(find, ESP_ALGORITHM_TWO_LEVEL);
}

/* Whether a node other than the root's has several addends. */
static bool has_remote_pair(const esp_cluster_t *cluster, const esp_i_ring_t *ring, int32_t root)
{
    for (int32_t node = 0; node < ring->n_nodes; ++node) {
        int32_t first = ring->offset[node];
        if (ring->offset[node + 1] - first > 1 &&
            cluster->device_node[ring->device[first]] != cluster->device_node[root])
            return true;
    }
    return false;
}

esp_status_t esp_i_find_reduce(esp_i_find_t *find)
{
    const esp_allocator_t *alloc = &find->ledger.alloc;
    int32_t root = find->to->device[0];
    esp_i_ring_t ring;
    ESP_TRY(esp_i_ring_init(&ring, find->ledger.cluster, find->from->n, find->from->device, NULL,
                            alloc));
    esp_status_t status = add_direct_reduce(find, root);
    if (status == ESP_OK && has_remote_pair(find->ledger.cluster, &ring, root))
        status = add_leader_reduce(find, &ring, root);
    esp_i_ring_fini(&ring, alloc);
    return status;
}

/* ---- broadcast ---------------------------------------------------------------------------- */

/*
 * What a broadcast has to do. `missing` are the devices that lack the tensor, in ring order;
 * head[node] is the device that hands it out inside the node, which got it from feed[node] (equal:
 * a holder).
 */
typedef struct broadcast {
    esp_i_ring_t missing;
    int32_t *head, *feed;
} broadcast_t;

static void broadcast_fini(broadcast_t *b, const esp_allocator_t *alloc)
{
    esp_i_ring_fini(&b->missing, alloc);
    esp_i_free(alloc, b->head);
    esp_i_free(alloc, b->feed);
}

/* The devices of `to` that are not in `from`: *list_out is the caller's; *n_out may be 0. */
static esp_status_t difference(const esp_i_find_t *find, int32_t **list_out, int32_t *n_out)
{
    int32_t *list = esp_i_alloc_array(&find->ledger.alloc, find->to->n, sizeof *list);
    if (!list)
        return ESP_ERR_NOMEM;
    int32_t n = 0;
    for (int32_t l = 0; l < find->to->n; ++l)
        if (esp_i_place_find(find->from, find->to->device[l]) < 0)
            list[n++] = find->to->device[l];
    *list_out = list;
    *n_out = n;
    return ESP_OK;
}

/* A node's first missing device is its entry, unless a holder is in the node. */
static void choose_heads(const esp_i_find_t *find, broadcast_t *b, int32_t *uses)
{
    const esp_cluster_t *cluster = find->ledger.cluster;
    for (int32_t node = 0; node < b->missing.n_nodes; ++node) {
        int32_t entry = b->missing.device[b->missing.offset[node]];
        int32_t holder = -1;
        for (int32_t k = 0; k < find->from->n && holder < 0; ++k)
            if (cluster->device_node[find->from->device[k]] == cluster->device_node[entry])
                holder = find->from->device[k];
        if (holder >= 0) {
            b->head[node] = b->feed[node] = holder;
            continue;
        }
        int32_t k = esp_i_place_source(cluster, find->from, uses, entry);
        uses[k]++;
        b->head[node] = entry;
        b->feed[node] = find->from->device[k];
    }
}

static esp_status_t broadcast_init(broadcast_t *b, const esp_i_find_t *find, const int32_t *list,
                                   int32_t n)
{
    const esp_allocator_t *alloc = &find->ledger.alloc;
    *b = (broadcast_t){0};
    ESP_TRY(esp_i_ring_init(&b->missing, find->ledger.cluster, n, list, NULL, alloc));
    b->head = esp_i_alloc_array(alloc, n, sizeof *b->head);
    b->feed = esp_i_alloc_array(alloc, n, sizeof *b->feed);
    int32_t *uses = esp_i_alloc_array(alloc, find->from->n, sizeof *uses);
    bool ok = b->head && b->feed && uses;
    if (ok)
        choose_heads(find, b, uses);
    else
        broadcast_fini(b, alloc);
    esp_i_free(alloc, uses);
    return ok ? ESP_OK : ESP_ERR_NOMEM;
}

/* Star: feeds to heads, then heads to the rest of their nodes. */
static esp_status_t add_star(esp_i_find_t *find, const broadcast_t *b)
{
    for (int32_t node = 0; node < b->missing.n_nodes; ++node)
        esp_i_ledger_hop(&find->ledger, b->feed[node], b->head[node], 1);
    esp_i_ledger_stage(&find->ledger, 1, 0);
    for (int32_t node = 0; node < b->missing.n_nodes; ++node)
        for (int32_t i = b->missing.offset[node]; i < b->missing.offset[node + 1]; ++i)
            esp_i_ledger_hop(&find->ledger, b->head[node], b->missing.device[i], 1);
    esp_i_ledger_stage(&find->ledger, 1, 0);
    return esp_i_find_add(find, ESP_ALGORITHM_DIRECT);
}

/* Pipelined chains: through each node that has a holder; through all other nodes, one after the
 * other, from one holder. */
static esp_status_t add_chain(esp_i_find_t *find, const broadcast_t *b)
{
    int32_t longest = 0, remote = 0, tail = -1;
    for (int32_t node = 0; node < b->missing.n_nodes; ++node) {
        bool local = b->feed[node] == b->head[node];
        int32_t last = local || tail < 0 ? b->feed[node] : tail, length = 0;
        for (int32_t i = b->missing.offset[node]; i < b->missing.offset[node + 1]; ++i) {
            esp_i_ledger_hop(&find->ledger, last, b->missing.device[i], 1);
            last = b->missing.device[i];
            length++;
        }
        if (!local) {
            tail = last;
            remote += length;
            length = remote;
        }
        longest = length > longest ? length : longest;
    }
    esp_i_ledger_stage(&find->ledger, longest, 0);
    return esp_i_find_add(find, ESP_ALGORITHM_RING);
}

/* One round of a binomial tree over (root, list[0], list[1], ...). */
static void tree_round(esp_i_ledger_t *ledger, int32_t root, int32_t n, const int32_t *list,
                       int32_t distance)
{
    for (int32_t k = 0; k < distance && k + distance <= n; ++k)
        esp_i_ledger_hop(ledger, k == 0 ? root : list[k - 1], list[k + distance - 1], 1);
}

/* Binomial trees: over the heads of nodes without holder, then inside all nodes at once. */
static esp_status_t add_tree(esp_i_find_t *find, const broadcast_t *b, int32_t *entries)
{
    const esp_i_ring_t *missing = &b->missing;
    int32_t n = 0, root = -1, most = 0;
    for (int32_t node = 0; node < missing->n_nodes; ++node) {
        int32_t inside = missing->offset[node + 1] - missing->offset[node];
        if (b->feed[node] != b->head[node]) {
            root = root < 0 ? b->feed[node] : root;
            entries[n++] = b->head[node];
            inside--;
        }
        most = inside > most ? inside : most;
    }
    for (int32_t distance = 1; distance <= n; distance *= 2) {
        tree_round(&find->ledger, root, n, entries, distance);
        esp_i_ledger_stage(&find->ledger, 1, 0);
    }
    for (int32_t distance = 1; distance <= most; distance *= 2) {
        for (int32_t node = 0; node < missing->n_nodes; ++node) {
            int32_t from = missing->offset[node] + (b->feed[node] != b->head[node]);
            tree_round(&find->ledger, b->head[node], missing->offset[node + 1] - from,
                       missing->device + from, distance);
        }
        esp_i_ledger_stage(&find->ledger, 1, 0);
    }
    return esp_i_find_add(find, ESP_ALGORITHM_TREE);
}

static esp_status_t add_broadcasts(esp_i_find_t *find, const broadcast_t *b)
{
    ESP_TRY(add_star(find, b));
    if (b->missing.n == 1)
        return ESP_OK;
    ESP_TRY(add_chain(find, b));
    const esp_allocator_t *alloc = &find->ledger.alloc;
    int32_t *entries = esp_i_alloc_array(alloc, b->missing.n_nodes, sizeof *entries);
    if (!entries)
        return ESP_ERR_NOMEM;
    esp_status_t status = add_tree(find, b, entries);
    esp_i_free(alloc, entries);
    return status;
}

esp_status_t esp_i_find_broadcast(esp_i_find_t *find)
{
    const esp_allocator_t *alloc = &find->ledger.alloc;
    int32_t *list, n;
    ESP_TRY(difference(find, &list, &n));
    broadcast_t b = {0};
    esp_status_t status = ESP_OK;
    if (n == 0) {
        status = esp_i_find_add(find, ESP_ALGORITHM_DIRECT); /* all have it */
    } else {
        status = broadcast_init(&b, find, list, n);
        if (status == ESP_OK) {
            status = add_broadcasts(find, &b);
            broadcast_fini(&b, alloc);
        }
    }
    esp_i_free(alloc, list);
    return status;
}

/* ---- gather ------------------------------------------------------------------------------- */

/* All pieces to one entry device per node, which passes them on along a chain. */
static esp_status_t add_entry_gather(esp_i_find_t *find, const esp_i_ring_t *to)
{
    esp_i_ledger_t *ledger = &find->ledger;
    int32_t longest = 0;
    for (int32_t node = 0; node < to->n_nodes; ++node)
        for (int32_t k = 0; k < find->from->n; ++k)
            esp_i_ledger_hop(ledger, find->from->device[k], to->device[to->offset[node]],
                             esp_i_place_fraction(find->from, k));
    esp_i_ledger_stage(ledger, 1, 0);
    for (int32_t node = 0; node < to->n_nodes; ++node) {
        for (int32_t i = to->offset[node] + 1; i < to->offset[node + 1]; ++i) {
            int32_t own = esp_i_place_find(find->from, to->device[i]);
            double held = own < 0 ? 0 : esp_i_place_fraction(find->from, own);
            esp_i_ledger_hop(ledger, to->device[i - 1], to->device[i], 1 - held);
        }
        int32_t length = to->offset[node + 1] - to->offset[node] - 1;
        longest = length > longest ? length : longest;
    }
    esp_i_ledger_stage(ledger, longest, 0);
    return esp_i_find_add(find, ESP_ALGORITHM_DIRECT);
}

/* Every piece is dealt out evenly over a node's devices, then they gather among themselves. */
static esp_status_t add_dealt_gather(esp_i_find_t *find, const esp_i_ring_t *to)
{
    esp_i_ledger_t *ledger = &find->ledger;
    int32_t longest = 0;
    for (int32_t i = 0, node = 0; i < to->n; ++i) {
        node += i == to->offset[node + 1];
        int32_t ranks = to->offset[node + 1] - to->offset[node];
        for (int32_t k = 0; k < find->from->n; ++k)
            esp_i_ledger_hop(ledger, find->from->device[k], to->device[i],
                             esp_i_place_fraction(find->from, k) / ranks);
    }
    esp_i_ledger_stage(ledger, 1, 0);
    for (int32_t node = 0; node < to->n_nodes; ++node) {
        int32_t ranks = to->offset[node + 1] - to->offset[node];
        const int32_t *device = to->device + to->offset[node];
        for (int32_t i = 0; i < ranks && ranks > 1; ++i)
            esp_i_ledger_hop(ledger, device[i], device[(i + 1) % ranks], (ranks - 1.0) / ranks);
        longest = ranks - 1 > longest ? ranks - 1 : longest;
    }
    esp_i_ledger_stage(ledger, longest, 0);
    return esp_i_find_add(find, ESP_ALGORITHM_TWO_LEVEL);
}

esp_status_t esp_i_find_gather(esp_i_find_t *find)
{
    const esp_allocator_t *alloc = &find->ledger.alloc;
    esp_i_ring_t to;
    ESP_TRY(esp_i_ring_init(&to, find->ledger.cluster, find->to->n, find->to->device, NULL, alloc));
    esp_status_t status = add_entry_gather(find, &to);
    if (status == ESP_OK && to.n > to.n_nodes)
        status = add_dealt_gather(find, &to);
    esp_i_ring_fini(&to, alloc);
    return status;
}
