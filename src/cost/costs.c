/* Cost tables in memory: rules, lookups, curves. */
#include "cost/costs.h"

#include <math.h>
#include <string.h>

#define NS_MAX    1e15
#define UNITS_MAX 1e15

/* ---- rules --------------------------------------------------------------------------------- */

typedef struct validation {
    bool sorted;
    esp_status_t status;
    esp_diag_t *diag;
} validation_t;

#define FAULT(v, text, ...)                                                                        \
    (esp_i_diag_place((v)->diag, __VA_ARGS__), esp_i_fail((v)->diag, (v)->status, "%s", text))

static bool is_name(const char *text)
{
    size_t left = text ? strlen(text) : 0;
    if (left == 0)
        return false;
    for (int32_t size; left > 0; text += size, left -= (size_t)size)
        if ((size = esp_i_utf8_length(text, left)) == 0)
            return false;
    return true;
}

static bool within(double value, double low, double high)
{
    return value >= low && value <= high; /* false for NaN */
}

static esp_status_t check_curve(const validation_t *v, const esp_costs_type_t *type, int32_t t,
                                int32_t c)
{
    const esp_cost_curve_t *curve = &type->curve[c];
    if (!is_name(curve->op))
        return FAULT(v, "must be a text that is not empty", "$.types[%d].ops[%d].op", t, c);
    if (v->sorted && c > 0 && strcmp(type->curve[c - 1].op, curve->op) >= 0)
        return FAULT(v, "ops must ascend, each once", "$.types[%d].ops[%d].op", t, c);
    if (curve->n < 1 || !curve->point)
        return FAULT(v, "there must be a point", "$.types[%d].ops[%d].points", t, c);
    for (int32_t i = 0; i < curve->n; i++) {
        const esp_cost_point_t *p = &curve->point[i];
        if (!within(p->units, 1e-9, UNITS_MAX) || !within(p->ns, 0, NS_MAX) ||
            !within(p->spread_ns, 0, NS_MAX) || p->runs < 1)
            return FAULT(v, "must be units > 0, ns >= 0, spread >= 0, runs >= 1",
                         "$.types[%d].ops[%d].points[%d]", t, c, i);
        if (v->sorted && i > 0 && p[-1].units >= p->units)
            return FAULT(v, "units must ascend", "$.types[%d].ops[%d].points[%d]", t, c, i);
    }
    return ESP_OK;
}

static esp_status_t check_type(const validation_t *v, const esp_costs_t *costs, int32_t t)
{
    const esp_costs_type_t *type = &costs->type[t];
    if (!is_name(type->name))
        return FAULT(v, "must be a text that is not empty", "$.types[%d].name", t);
    if (v->sorted && t > 0 && strcmp(type[-1].name, type->name) >= 0)
        return FAULT(v, "types must ascend by name, each once", "$.types[%d].name", t);
    if (!(type->launch_ns <= 1e12))
        return FAULT(v, "must be a time", "$.types[%d].launch_ns", t);
    if (!(type->copy_ns_per_byte <= 1e9))
        return FAULT(v, "must be a time per byte", "$.types[%d].copy_ns_per_byte", t);
    if (!(type->comm_compute_s_per_byte <= 1))
        return FAULT(v, "must be a time per byte", "$.types[%d].comm_compute_s_per_byte", t);
    for (int32_t c = 0; c < type->n_curves; c++)
        ESP_TRY(check_curve(v, type, t, c));
    return ESP_OK;
}

static int compare_links(const esp_costs_link_t *a, const esp_costs_link_t *b)
{
    int order = strcmp(a->src, b->src);
    return order != 0 ? order : strcmp(a->dst, b->dst);
}

static esp_status_t check_link(const validation_t *v, const esp_costs_t *costs, int32_t i)
{
    const esp_costs_link_t *link = &costs->link[i];
    if (!is_name(link->src) || !is_name(link->dst) || strcmp(link->src, link->dst) == 0)
        return FAULT(v, "must be between two devices", "$.links[%d]", i);
    if (v->sorted && i > 0 && compare_links(link - 1, link) >= 0)
        return FAULT(v, "links must ascend by their ends, each once", "$.links[%d]", i);
    if (!within(link->latency_ns, 0, (double)ESP_CLUSTER_MAX_LATENCY_NS))
        return FAULT(v, "must be a time", "$.links[%d].latency_ns", i);
    if (!within(link->bytes_per_s, 1, ESP_CLUSTER_MAX_BYTES_PER_S))
        return FAULT(v, "must be a speed of at least 1 byte/s", "$.links[%d].bytes_per_s", i);
    return ESP_OK;
}

int esp_i_costs_compare_collectives(const esp_costs_collective_t *a,
                                    const esp_costs_collective_t *b)
{
    int order = (a->kind > b->kind) - (a->kind < b->kind);
    order = order != 0 ? order : strcmp(a->algorithm, b->algorithm);
    order = order != 0 ? order : (a->ranks > b->ranks) - (a->ranks < b->ranks);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static esp_status_t check_collective(const validation_t *v, const esp_costs_t *costs, int32_t i)
{
    const esp_costs_collective_t *c = &costs->collective[i];
    if (c->kind != ESP_COMM_ALLREDUCE && c->kind != ESP_COMM_REDUCE_SCATTER &&
        c->kind != ESP_COMM_ALL_GATHER)
        return FAULT(v, "is no collective", "$.collectives[%d].kind", i);
    if (!is_name(c->algorithm))
        return FAULT(v, "must be a text that is not empty", "$.collectives[%d].algorithm", i);
    if (c->ranks < 2 || c->bytes < 1 || !within(c->ns, 0, NS_MAX))
        return FAULT(v, "must be ranks >= 2, bytes >= 1, ns >= 0", "$.collectives[%d]", i);
    if (v->sorted && i > 0 && esp_i_costs_compare_collectives(c - 1, c) >= 0)
        return FAULT(v, "collectives must ascend by kind, algorithm, ranks and bytes, each once",
                     "$.collectives[%d]", i);
    return ESP_OK;
}

esp_status_t esp_i_costs_validate(const esp_costs_t *costs, bool sorted, esp_status_t status,
                                  esp_diag_t *diag)
{
    validation_t v = {sorted, status, diag};
    if (!is_name(costs->version))
        return FAULT(&v, "must be a text that is not empty", "$.espalier");
    if ((uint32_t)costs->precision >= ESP_PRECISION_COUNT)
        return FAULT(&v, "is no precision", "$.precision");
    for (int32_t t = 0; t < costs->n_types; t++)
        ESP_TRY(check_type(&v, costs, t));
    for (int32_t i = 0; i < costs->n_links; i++)
        ESP_TRY(check_link(&v, costs, i));
    for (int32_t i = 0; i < costs->n_collectives; i++)
        ESP_TRY(check_collective(&v, costs, i));
    return ESP_OK;
}

/* ---- life cycle and lookups ------------------------------------------------------------------ */

esp_i_costs_t *esp_i_costs_new(const esp_allocator_t *alloc)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    esp_i_costs_t *costs = esp_i_alloc_array(&from, 1, sizeof *costs);
    if (costs)
        esp_i_arena_init(&costs->arena, &from);
    return costs;
}

void esp_costs_destroy(esp_costs_t *costs)
{
    if (!costs)
        return;
    esp_i_costs_t *owned = (esp_i_costs_t *)(void *)costs;
    esp_allocator_t alloc = owned->arena.alloc;
    esp_i_arena_fini(&owned->arena);
    esp_i_free(&alloc, owned);
}

const esp_costs_type_t *esp_costs_find_type(const esp_costs_t *costs, const char *name)
{
    int32_t low = 0, high = costs->n_types;
    while (low < high) {
        int32_t mid = low + (high - low) / 2, order = strcmp(costs->type[mid].name, name);
        if (order == 0)
            return &costs->type[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

const esp_cost_curve_t *esp_costs_find_curve(const esp_costs_type_t *type, const char *op)
{
    int32_t low = 0, high = type->n_curves;
    while (low < high) {
        int32_t mid = low + (high - low) / 2, order = strcmp(type->curve[mid].op, op);
        if (order == 0)
            return &type->curve[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

double esp_costs_collective_ns(const esp_costs_t *costs, esp_comm_t kind, const char *algorithm,
                               int32_t ranks, int64_t bytes)
{
    const esp_costs_collective_t *low = NULL, *high = NULL; /* the two that the line goes through */
    for (int32_t i = 0; i < costs->n_collectives; i++) {
        const esp_costs_collective_t *c = &costs->collective[i];
        if (c->kind != kind || c->ranks != ranks || strcmp(c->algorithm, algorithm) != 0)
            continue;
        low = high;
        high = c;
        if (c->bytes >= bytes)
            break;
    }
    if (!high)
        return -1;
    if (!low)
        return high->bytes >= bytes ? high->ns : high->ns * (double)bytes / (double)high->bytes;
    double slope = (high->ns - low->ns) / (double)(high->bytes - low->bytes);
    if (bytes > high->bytes)
        slope = fmax(slope, 0);
    return high->ns + slope * (double)(bytes - high->bytes);
}

/* ---- curves ------------------------------------------------------------------------------------
 */

double esp_i_curve_origin_ns(const esp_cost_curve_t *curve, double launch_ns)
{
    const esp_cost_point_t *p = curve->point;
    double origin = fmax(launch_ns, 0);
    if (curve->n > 1) {
        double slope = fmax((p[1].ns - p[0].ns) / (p[1].units - p[0].units), 0);
        origin = fmax(origin, p[0].ns - slope * p[0].units);
    }
    for (int32_t i = 0; i < curve->n; i++)
        origin = fmin(origin, p[i].ns);
    return origin;
}

double esp_cost_curve_ns(const esp_cost_curve_t *curve, double launch_ns, double units)
{
    const esp_cost_point_t *p = curve->point;
    int32_t low = 0, high = curve->n; /* the first point beyond `units` */
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (p[mid].units <= units)
            low = mid + 1;
        else
            high = mid;
    }
    double u0 = 0, ns0 = low < 2 ? esp_i_curve_origin_ns(curve, launch_ns) : 0;
    if (low == 0)
        return ns0 + (p[0].ns - ns0) * (units / p[0].units);
    if (low == curve->n) { /* as between the last two, of which the first may be the origin */
        if (curve->n > 1) {
            u0 = p[low - 2].units;
            ns0 = p[low - 2].ns;
        }
        const esp_cost_point_t *last = &p[low - 1];
        return last->ns + fmax((last->ns - ns0) / (last->units - u0), 0) * (units - last->units);
    }
    double share = (units - p[low - 1].units) / (p[low].units - p[low - 1].units);
    return p[low - 1].ns + (p[low].ns - p[low - 1].ns) * share;
}
