/*
 * Device groups. A *cell* is what the devices of one type and usable memory in one node make; cells
 * are the finest groups. Too many of them merge, like with like, until they are few enough.
 */
#include "cluster/cluster.h"

#include <stdio.h>

typedef struct cell {
    int32_t node, type, count;
    int64_t memory_bytes;
    int32_t position; /* cells with equal positions hang on the same switches */
    int32_t kin;      /* index of the first cell of its kind */
    int32_t rank;     /* among its kin */
    int32_t siblings; /* cells of its node, itself included */
} cell_t;

typedef struct grouper {
    esp_i_cluster_t *cluster;
    int32_t *cell_of; /* per device */
    ESP_VEC(cell_t) cells;
    int32_t *kin_size; /* per cell that is the first of its kind */
    int32_t *group_of; /* per device: a dense id in order of the first device */
    esp_i_arena_t scratch;
} grouper_t;

/* How much like each other cells must be to merge; each step asks for less. */
typedef enum likeness {
    SAME_SWITCHES, /* type, memory, number of devices, and the switches of their nodes */
    SAME_SIZE,
    SAME_DEVICE,
    LIKENESS_COUNT
} likeness_t;

/* ---- cells --------------------------------------------------------------------------------- */

static bool find_cells(grouper_t *g)
{
    const esp_cluster_t *c = &g->cluster->pub;
    for (int32_t d = 0; d < c->n_devices; d++) {
        int32_t k = 0;
        for (; k < g->cells.count; k++)
            if (g->cells.data[k].node == c->device_node[d] &&
                g->cells.data[k].type == c->device_type[d] &&
                g->cells.data[k].memory_bytes == c->device_memory_bytes[d])
                break;
        cell_t fresh = {.node = c->device_node[d],
                        .type = c->device_type[d],
                        .memory_bytes = c->device_memory_bytes[d]};
        if (k == g->cells.count && !esp_vec_push(&g->scratch.alloc, &g->cells, fresh))
            return false;
        g->cells.data[k].count++;
        g->cell_of[d] = k;
    }
    for (int32_t k = 0; k < g->cells.count; k++)
        for (int32_t j = 0; j < g->cells.count; j++)
            g->cells.data[k].siblings += g->cells.data[j].node == g->cells.data[k].node;
    return true;
}

/* The vertices outside all nodes to which node links, in ascending order, as one text. */
static bool describe_position(const esp_cluster_t *c, int32_t node, uint8_t *seen,
                              esp_i_text_t *text)
{
    for (int32_t v = 0; v < c->n_vertices; v++)
        seen[v] = 0;
    for (int32_t l = 0; l < c->n_links; l++)
        if (c->vertex_node[c->link_src[l]] == node && c->vertex_node[c->link_dst[l]] < 0)
            seen[c->link_dst[l]] = 1;
    text->length = 0;
    for (int32_t v = 0; v < c->n_vertices; v++)
        if (seen[v])
            esp_i_text_addf(text, "%d ", (int)v);
    return !text->failed;
}

static bool find_positions(grouper_t *g)
{
    const esp_cluster_t *c = &g->cluster->pub;
    uint8_t *seen = esp_i_arena_alloc(&g->scratch, c->n_vertices, 1);
    esp_i_names_t positions;
    esp_i_text_t text;
    esp_i_names_init(&positions, &g->scratch);
    esp_i_text_init(&text, &g->scratch.alloc);
    bool done = seen != NULL;
    for (int32_t k = 0; done && k < g->cells.count; k++) {
        done = describe_position(c, g->cells.data[k].node, seen, &text);
        if (done)
            g->cells.data[k].position =
                esp_i_names_add(&positions, text.length > 0 ? text.data : "", text.length);
        done = done && g->cells.data[k].position >= 0;
    }
    esp_i_text_fini(&text);
    esp_i_names_fini(&positions);
    return done;
}

/* ---- merging ------------------------------------------------------------------------------- */

static bool alike(const cell_t *a, const cell_t *b, likeness_t likeness)
{
    return a->type == b->type && a->memory_bytes == b->memory_bytes &&
           (likeness >= SAME_DEVICE || a->count == b->count) &&
           (likeness >= SAME_SIZE || a->position == b->position);
}

/* Numbers the cells within their kind; returns the number of kinds. */
static int32_t find_kin(grouper_t *g, likeness_t likeness)
{
    int32_t kinds = 0;
    for (int32_t k = 0; k < g->cells.count; k++) {
        int32_t first = 0;
        while (first < k && (g->cells.data[first].kin != first ||
                             !alike(&g->cells.data[first], &g->cells.data[k], likeness)))
            first++;
        kinds += first == k;
        g->kin_size[k] = 0;
        g->cells.data[k].kin = first;
        g->cells.data[k].rank = g->kin_size[first]++;
    }
    return kinds;
}

/* How many groups remain if up to `merge` cells of a kind become one. */
static int32_t groups_left(const grouper_t *g, int32_t merge)
{
    int32_t sum = 0;
    for (int32_t k = 0; k < g->cells.count; k++)
        if (g->cells.data[k].kin == k)
            sum += (g->kin_size[k] + merge - 1) / merge;
    return sum;
}

/* The least number of cells to merge for at most max_groups; leaves the kin of the likeness used.
 */
static int32_t choose_merge(grouper_t *g, int32_t max_groups)
{
    for (int32_t likeness = 0; likeness < LIKENESS_COUNT; likeness++) {
        if (find_kin(g, (likeness_t)likeness) > max_groups && likeness + 1 < LIKENESS_COUNT)
            continue;
        for (int32_t merge = 1; merge < g->cells.count; merge++)
            if (groups_left(g, merge) <= max_groups)
                return merge;
        break;
    }
    return g->cells.count;
}

/* The piece of its kind that a cell falls into: neighbours together, pieces of even size. */
static int32_t piece_of(const grouper_t *g, int32_t cell, int32_t merge)
{
    int32_t size = g->kin_size[g->cells.data[cell].kin];
    esp_dcheck(merge >= 1 && g->cells.data[cell].rank < size);
    int32_t pieces = (size + merge - 1) / merge;
    return (int32_t)((int64_t)g->cells.data[cell].rank * pieces / size);
}

/* Numbers the groups in order of their first device; returns how many there are. */
static int32_t number_groups(grouper_t *g, int32_t merge)
{
    const esp_cluster_t *c = &g->cluster->pub;
    int32_t n = 0;
    for (int32_t d = 0; d < c->n_devices; d++) {
        int32_t cell = g->cell_of[d], e = 0;
        for (; e < d; e++)
            if (g->cells.data[g->cell_of[e]].kin == g->cells.data[cell].kin &&
                piece_of(g, g->cell_of[e], merge) == piece_of(g, cell, merge))
                break;
        g->group_of[d] = e < d ? g->group_of[e] : n++;
    }
    return n;
}

/* ---- the arrays ---------------------------------------------------------------------------- */

/* Fills offsets and members from group_of. */
static bool fill_members(grouper_t *g, int32_t n)
{
    esp_cluster_t *c = &g->cluster->pub;
    int32_t *offset = esp_i_arena_alloc(&g->cluster->arena, n + 1, sizeof *offset);
    int32_t *member = esp_i_arena_alloc(&g->cluster->arena, c->n_devices, sizeof *member);
    if (offset == NULL || member == NULL)
        return false;
    for (int32_t d = 0; d < c->n_devices; d++)
        offset[g->group_of[d]]++;
    for (int32_t i = 1; i <= n; i++)
        offset[i] += offset[i - 1];
    for (int32_t d = c->n_devices - 1; d >= 0; d--)
        member[--offset[g->group_of[d]]] = d;
    c->device_group = g->group_of;
    c->group_offset = offset;
    c->group_device = member;
    c->n_groups = n;
    return true;
}

/* "dgx0", "dgx0..dgx3", with "/type" where a node has several groups, "#2" where all that is taken.
 */
static const char *automatic_name(const grouper_t *g, int32_t group, const esp_i_names_t *taken)
{
    const esp_cluster_t *c = &g->cluster->pub;
    const int32_t *member = &c->group_device[c->group_offset[group]];
    int32_t last = c->group_offset[group + 1] - c->group_offset[group] - 1;
    int32_t node = c->device_node[member[0]], last_node = c->device_node[member[last]];
    bool several = g->cells.data[g->cell_of[member[0]]].siblings > 1;
    char name[ESP_CLUSTER_MAX_LONG_NAME + 1];
    for (int32_t k = 1;; k++) {
        char suffix[16] = "";
        if (k > 1)
            (void)snprintf(suffix, sizeof suffix, "#%d", (int)k);
        int length = snprintf(name, sizeof name, "%s%s%s%s%s%s", c->node_name[node],
                              last_node != node ? ".." : "",
                              last_node != node ? c->node_name[last_node] : "", several ? "/" : "",
                              several ? c->types[c->device_type[member[0]]].name : "", suffix);
        if (esp_i_names_find(taken, name, (size_t)length) < 0)
            break;
    }
    return esp_i_arena_strdup(&g->cluster->arena, name);
}

static bool fill_names(grouper_t *g, const int32_t *declared, const char *const *declared_names)
{
    esp_cluster_t *c = &g->cluster->pub;
    const char **names = esp_i_arena_alloc(&g->cluster->arena, c->n_groups, sizeof *names);
    esp_i_names_t taken;
    esp_i_names_init(&taken, &g->scratch);
    bool done = names != NULL;
    for (int32_t i = 0; done && i < c->n_groups; i++) {
        int32_t own = declared[c->group_device[c->group_offset[i]]];
        names[i] = own >= 0 ? esp_i_arena_strdup(&g->cluster->arena, declared_names[own])
                            : automatic_name(g, i, &taken);
        done = names[i] != NULL && esp_i_names_add(&taken, names[i], SIZE_MAX) >= 0;
    }
    c->group_name = names;
    esp_i_names_fini(&taken);
    return done;
}

/* Declared groups, renumbered in order of their first device. */
static int32_t number_declared(grouper_t *g, const int32_t *declared)
{
    int32_t n = 0;
    for (int32_t d = 0; d < g->cluster->pub.n_devices; d++) {
        int32_t e = 0;
        while (e < d && declared[e] != declared[d])
            e++;
        g->group_of[d] = e < d ? g->group_of[e] : n++;
    }
    return n;
}

static bool group_all(grouper_t *g, const int32_t *declared, const char *const *declared_names,
                      int32_t max_groups)
{
    int32_t n = g->cluster->pub.n_devices, n_groups = 0;
    g->cell_of = esp_i_arena_alloc(&g->scratch, n, sizeof *g->cell_of);
    g->kin_size = esp_i_arena_alloc(&g->scratch, n, sizeof *g->kin_size);
    g->group_of = esp_i_arena_alloc(&g->cluster->arena, n, sizeof *g->group_of);
    if (g->cell_of == NULL || g->kin_size == NULL || g->group_of == NULL)
        return false;
    if (declared[0] >= 0) {
        n_groups = number_declared(g, declared);
    } else {
        if (!find_cells(g) || (g->cells.count > max_groups && !find_positions(g)))
            return false;
        n_groups = number_groups(g, choose_merge(g, max_groups));
    }
    return fill_members(g, n_groups) && fill_names(g, declared, declared_names);
}

esp_status_t esp_i_cluster_group_all(esp_i_cluster_t *cluster, const int32_t *declared,
                                     const char *const *declared_names, int32_t max_groups,
                                     esp_diag_t *diag)
{
    grouper_t g = {.cluster = cluster};
    esp_i_arena_init(&g.scratch, &cluster->arena.alloc);
    bool done = group_all(&g, declared, declared_names, max_groups);
    esp_vec_free(&g.scratch.alloc, &g.cells);
    esp_i_arena_fini(&g.scratch);
    return done ? ESP_OK : esp_i_nomem(diag);
}
