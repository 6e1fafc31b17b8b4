/* Two cost tables in one: everything is listed, sorted, and of equals the last is kept. */
#include "cost/costs.h"

#include <stdlib.h>
#include <string.h>

typedef struct point_of {
    const char *type, *op;
    esp_cost_point_t point;
    int32_t turn;
} point_of_t;
typedef struct type_of {
    esp_costs_type_t type; /* without its curves */
    int32_t turn;
} type_of_t;
typedef struct link_of {
    esp_costs_link_t link;
    int32_t turn;
} link_of_t;

typedef struct collective_of {
    esp_costs_collective_t collective;
    int32_t turn;
} collective_of_t;

typedef struct merge {
    esp_i_arena_t *arena; /* of the result */
    esp_allocator_t alloc;
    ESP_VEC(point_of_t) points;
    ESP_VEC(type_of_t) types;
    ESP_VEC(link_of_t) links;
    ESP_VEC(collective_of_t) collectives;
} merge_t;

/* ---- listing ----------------------------------------------------------------------------------
 */

static bool list_type(merge_t *m, const esp_costs_type_t *type)
{
    type_of_t of = {*type, m->types.count};
    of.type.n_curves = 0;
    of.type.curve = NULL;
    if (!esp_vec_push(&m->alloc, &m->types, of))
        return false;
    for (int32_t c = 0; c < type->n_curves; c++)
        for (int32_t i = 0; i < type->curve[c].n; i++) {
            point_of_t p = {type->name, type->curve[c].op, type->curve[c].point[i],
                            m->points.count};
            if (!esp_vec_push(&m->alloc, &m->points, p))
                return false;
        }
    return true;
}

static bool list_all(merge_t *m, const esp_costs_t *costs)
{
    for (int32_t t = 0; t < costs->n_types; t++)
        if (!list_type(m, &costs->type[t]))
            return false;
    for (int32_t i = 0; i < costs->n_links; i++)
        if (!esp_vec_push(&m->alloc, &m->links, ((link_of_t){costs->link[i], m->links.count})))
            return false;
    for (int32_t i = 0; i < costs->n_collectives; i++) {
        collective_of_t of = {costs->collective[i], m->collectives.count};
        if (!esp_vec_push(&m->alloc, &m->collectives, of))
            return false;
    }
    return true;
}

/* ---- sorting ----------------------------------------------------------------------------------
 */

static int compare_points(const void *a, const void *b)
{
    const point_of_t *x = a, *y = b;
    int order = strcmp(x->type, y->type);
    order = order != 0 ? order : strcmp(x->op, y->op);
    if (order == 0)
        order = (x->point.units > y->point.units) - (x->point.units < y->point.units);
    return order != 0 ? order : (x->turn > y->turn) - (x->turn < y->turn);
}

static int compare_types(const void *a, const void *b)
{
    const type_of_t *x = a, *y = b;
    int order = strcmp(x->type.name, y->type.name);
    return order != 0 ? order : (x->turn > y->turn) - (x->turn < y->turn);
}

static int compare_links(const void *a, const void *b)
{
    const link_of_t *x = a, *y = b;
    int order = strcmp(x->link.src, y->link.src);
    order = order != 0 ? order : strcmp(x->link.dst, y->link.dst);
    return order != 0 ? order : (x->turn > y->turn) - (x->turn < y->turn);
}

static int compare_collectives(const void *a, const void *b)
{
    const collective_of_t *x = a, *y = b;
    int order = esp_i_costs_compare_collectives(&x->collective, &y->collective);
    return order != 0 ? order : (x->turn > y->turn) - (x->turn < y->turn);
}

static void sort(void *data, int32_t n, size_t size, int (*compare)(const void *, const void *))
{
    if (n > 1)
        qsort(data, (size_t)n, size, compare);
}

/* ---- the result -------------------------------------------------------------------------------
 */

static bool own(merge_t *m, const char **text)
{
    *text = esp_i_arena_strdup(m->arena, *text);
    return *text != NULL;
}

/* One curve from the points [from, end), which are of one op. */
static bool make_curve(merge_t *m, int32_t from, int32_t end, esp_cost_curve_t *curve)
{
    const point_of_t *p = m->points.data;
    esp_cost_point_t *point = esp_i_arena_alloc(m->arena, end - from, sizeof *point);
    *curve = (esp_cost_curve_t){p[from].op, 0, point};
    if (!point || !own(m, &curve->op))
        return false;
    for (int32_t i = from; i < end; i++) {
        bool same = curve->n > 0 && point[curve->n - 1].units == p[i].point.units;
        point[same ? curve->n - 1 : curve->n++] = p[i].point;
    }
    return true;
}

/* The curves of the type from its points, which begin at *next. */
static bool make_curves(merge_t *m, int32_t *next, esp_costs_type_t *type)
{
    const point_of_t *p = m->points.data;
    int32_t end = *next;
    while (end < m->points.count && strcmp(p[end].type, type->name) == 0)
        end++;
    esp_cost_curve_t *curve = esp_i_arena_alloc(m->arena, end - *next, sizeof *curve);
    type->curve = curve;
    if (!curve)
        return false;
    while (*next < end) {
        int32_t last = *next;
        while (last < end && strcmp(p[last].op, p[*next].op) == 0)
            last++;
        if (!make_curve(m, *next, last, &curve[type->n_curves++]))
            return false;
        *next = last;
    }
    return true;
}

static double newest(double older, double newer)
{
    return newer >= 0 ? newer : older;
}

static bool make_types(merge_t *m, esp_costs_t *costs)
{
    int32_t next = 0;
    esp_costs_type_t *type = esp_i_arena_alloc(m->arena, m->types.count, sizeof *type);
    costs->type = type;
    if (!type)
        return false;
    for (int32_t i = 0; i < m->types.count; i++) {
        const esp_costs_type_t *from = &m->types.data[i].type;
        esp_costs_type_t *last = &type[costs->n_types - 1];
        if (costs->n_types == 0 || strcmp(last->name, from->name) != 0) {
            type[costs->n_types] = *from;
            if (!own(m, &type[costs->n_types++].name))
                return false;
            continue;
        }
        last->launch_ns = newest(last->launch_ns, from->launch_ns);
        last->copy_ns_per_byte = newest(last->copy_ns_per_byte, from->copy_ns_per_byte);
        last->comm_compute_s_per_byte =
            newest(last->comm_compute_s_per_byte, from->comm_compute_s_per_byte);
    }
    for (int32_t t = 0; t < costs->n_types; t++)
        if (!make_curves(m, &next, &type[t]))
            return false;
    return true;
}

static bool make_links(merge_t *m, esp_costs_t *costs)
{
    esp_costs_link_t *link = esp_i_arena_alloc(m->arena, m->links.count, sizeof *link);
    costs->link = link;
    if (!link)
        return false;
    for (int32_t i = 0; i < m->links.count; i++) {
        const esp_costs_link_t *from = &m->links.data[i].link, *last = &link[costs->n_links - 1];
        bool same = costs->n_links > 0 && strcmp(last->src, from->src) == 0 &&
                    strcmp(last->dst, from->dst) == 0;
        esp_costs_link_t *to = &link[same ? costs->n_links - 1 : costs->n_links++];
        *to = *from;
        if (!own(m, &to->src) || !own(m, &to->dst))
            return false;
    }
    return true;
}

static bool make_collectives(merge_t *m, esp_costs_t *costs)
{
    esp_costs_collective_t *c = esp_i_arena_alloc(m->arena, m->collectives.count, sizeof *c);
    costs->collective = c;
    if (!c)
        return false;
    for (int32_t i = 0; i < m->collectives.count; i++) {
        const esp_costs_collective_t *from = &m->collectives.data[i].collective;
        const int32_t n = costs->n_collectives;
        bool same = n > 0 && esp_i_costs_compare_collectives(&c[n - 1], from) == 0;
        esp_costs_collective_t *to = &c[same ? n - 1 : costs->n_collectives++];
        *to = *from;
        if (!own(m, &to->algorithm))
            return false;
    }
    return true;
}

static bool merge(merge_t *m, const esp_costs_t *older, const esp_costs_t *newer,
                  esp_costs_t *costs)
{
    if (!list_all(m, older) || !list_all(m, newer))
        return false;
    sort(m->points.data, m->points.count, sizeof *m->points.data, compare_points);
    sort(m->types.data, m->types.count, sizeof *m->types.data, compare_types);
    sort(m->links.data, m->links.count, sizeof *m->links.data, compare_links);
    sort(m->collectives.data, m->collectives.count, sizeof *m->collectives.data,
         compare_collectives);
    costs->precision = newer->precision;
    costs->version = newer->version;
    return own(m, &costs->version) && make_types(m, costs) && make_links(m, costs) &&
           make_collectives(m, costs);
}

esp_status_t esp_costs_merge(const esp_costs_t *older, const esp_costs_t *newer,
                             const esp_allocator_t *alloc, esp_costs_t **costs_out,
                             esp_diag_t *diag)
{
    ESP_TRY(esp_i_costs_validate(older, false, ESP_ERR_ARGUMENT, diag));
    ESP_TRY(esp_i_costs_validate(newer, false, ESP_ERR_ARGUMENT, diag));
    if (older->precision != newer->precision)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "costs of %s and of %s do not mix",
                          esp_precision_name(older->precision),
                          esp_precision_name(newer->precision));
    esp_i_costs_t *owned = esp_i_costs_new(alloc);
    if (!owned)
        return esp_i_nomem(diag);
    merge_t m = {.arena = &owned->arena, .alloc = owned->arena.alloc};
    bool ok = merge(&m, older, newer, &owned->pub);
    esp_vec_free(&m.alloc, &m.points);
    esp_vec_free(&m.alloc, &m.types);
    esp_vec_free(&m.alloc, &m.links);
    esp_vec_free(&m.alloc, &m.collectives);
    if (!ok) {
        esp_costs_destroy(&owned->pub);
        return esp_i_nomem(diag);
    }
    *costs_out = &owned->pub;
    return ESP_OK;
}
