/* Cost tables as JSON, both ways. docs/cost.md describes the file. */
#include "base/json.h"
#include "cost/costs.h"

#include <string.h>

/* ---- writing ------------------------------------------------------------------------------- */

static void put_curve(esp_i_json_out_t *out, const esp_cost_curve_t *curve)
{
    esp_i_json_next_flat(out);
    esp_i_json_open_object(out, NULL);
    esp_i_json_put_string(out, "op", curve->op);
    esp_i_json_open_array(out, "points");
    for (int32_t i = 0; i < curve->n; i++) {
        esp_i_json_open_array(out, NULL);
        esp_i_json_put_real(out, NULL, curve->point[i].units);
        esp_i_json_put_real(out, NULL, curve->point[i].ns);
        esp_i_json_put_real(out, NULL, curve->point[i].spread_ns);
        esp_i_json_put_int(out, NULL, curve->point[i].runs);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
    esp_i_json_close(out);
}

static void put_measured(esp_i_json_out_t *out, const char *key, double value)
{
    if (value >= 0)
        esp_i_json_put_real(out, key, value);
}

static void put_types(esp_i_json_out_t *out, const esp_costs_t *costs)
{
    esp_i_json_open_array(out, "types");
    for (int32_t t = 0; t < costs->n_types; t++) {
        const esp_costs_type_t *type = &costs->type[t];
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", type->name);
        put_measured(out, "launch_ns", type->launch_ns);
        put_measured(out, "copy_ns_per_byte", type->copy_ns_per_byte);
        put_measured(out, "comm_compute_s_per_byte", type->comm_compute_s_per_byte);
        esp_i_json_open_array(out, "ops");
        for (int32_t c = 0; c < type->n_curves; c++)
            put_curve(out, &type->curve[c]);
        esp_i_json_close(out);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_links(esp_i_json_out_t *out, const esp_costs_t *costs)
{
    esp_i_json_open_array(out, "links");
    for (int32_t i = 0; i < costs->n_links; i++) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "from", costs->link[i].src);
        esp_i_json_put_string(out, "to", costs->link[i].dst);
        esp_i_json_put_real(out, "latency_ns", costs->link[i].latency_ns);
        esp_i_json_put_real(out, "bytes_per_s", costs->link[i].bytes_per_s);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_collectives(esp_i_json_out_t *out, const esp_costs_t *costs)
{
    if (costs->n_collectives == 0)
        return;
    esp_i_json_open_array(out, "collectives");
    for (int32_t i = 0; i < costs->n_collectives; i++) {
        const esp_costs_collective_t *c = &costs->collective[i];
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "kind", esp_comm_name(c->kind));
        esp_i_json_put_string(out, "algorithm", c->algorithm);
        esp_i_json_put_int(out, "ranks", c->ranks);
        esp_i_json_put_int(out, "bytes", c->bytes);
        esp_i_json_put_real(out, "ns", c->ns);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

esp_status_t esp_costs_to_json(const esp_costs_t *costs, const esp_allocator_t *alloc,
                               char **text_out, esp_diag_t *diag)
{
    esp_i_text_t text;
    esp_i_json_out_t out;
    ESP_TRY(esp_i_costs_validate(costs, true, ESP_ERR_ARGUMENT, diag));
    esp_i_text_init(&text, alloc);
    esp_i_json_out_init(&out, &text);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_put_string(&out, "format", "espalier-costs");
    esp_i_json_put_int(&out, "format_version", ESP_COSTS_FORMAT);
    esp_i_json_put_string(&out, "espalier", costs->version);
    esp_i_json_put_string(&out, "precision", esp_precision_name(costs->precision));
    put_types(&out, costs);
    put_links(&out, costs);
    put_collectives(&out, costs);
    esp_i_json_close(&out);
    if (text.failed) {
        esp_i_text_fini(&text);
        return esp_i_nomem(diag);
    }
    *text_out = text.data;
    return ESP_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

typedef struct reader {
    esp_costs_t *costs;
    esp_i_arena_t *arena;
    esp_diag_t *diag;
} reader_t;

/* A figure that may not have been measured. */
static esp_status_t get_measured(reader_t *r, esp_i_json_t object, const char *key, double *out)
{
    esp_i_json_t member;
    *out = -1;
    if (!esp_i_json_find(object, key, &member))
        return ESP_OK;
    return esp_i_json_as_real(member, 0, 1e15, out, r->diag);
}

static esp_status_t read_point(reader_t *r, esp_i_json_t item, esp_cost_point_t *point)
{
    double *const reals[] = {&point->units, &point->ns, &point->spread_ns};
    ESP_TRY(esp_i_json_expect(item, ESP_I_JSON_ARRAY, r->diag));
    if (esp_i_json_count(item) != 4)
        return esp_i_json_fail(item, r->diag, ESP_ERR_INVALID,
                               "must be [units, ns, spread_ns, runs]");
    for (int32_t i = 0; i < 3; i++)
        ESP_TRY(esp_i_json_as_real(esp_i_json_item(item, i), 0, 1e15, reals[i], r->diag));
    return esp_i_json_as_int(esp_i_json_item(item, 3), 1, INT64_MAX, &point->runs, r->diag);
}

static esp_status_t read_curve(reader_t *r, esp_i_json_t item, esp_cost_curve_t *curve)
{
    esp_i_json_t array;
    esp_cost_point_t *point;
    ESP_TRY(ESP_I_JSON_KEYS(item, r->diag, "op", "points"));
    ESP_TRY(esp_i_json_get_text(item, "op", r->arena, &curve->op, r->diag));
    ESP_TRY(esp_i_json_get_array(item, "points", r->arena, sizeof *point, &array, &point, r->diag));
    curve->n = esp_i_json_count(array);
    curve->point = point;
    for (int32_t i = 0; i < curve->n; i++)
        ESP_TRY(read_point(r, esp_i_json_item(array, i), &point[i]));
    return ESP_OK;
}

static esp_status_t read_type(reader_t *r, esp_i_json_t item, esp_costs_type_t *type)
{
    esp_i_json_t array;
    esp_cost_curve_t *curve;
    ESP_TRY(ESP_I_JSON_KEYS(item, r->diag, "name", "launch_ns", "copy_ns_per_byte",
                            "comm_compute_s_per_byte", "ops"));
    ESP_TRY(esp_i_json_get_text(item, "name", r->arena, &type->name, r->diag));
    ESP_TRY(get_measured(r, item, "launch_ns", &type->launch_ns));
    ESP_TRY(get_measured(r, item, "copy_ns_per_byte", &type->copy_ns_per_byte));
    ESP_TRY(get_measured(r, item, "comm_compute_s_per_byte", &type->comm_compute_s_per_byte));
    ESP_TRY(esp_i_json_get_array(item, "ops", r->arena, sizeof *curve, &array, &curve, r->diag));
    type->n_curves = esp_i_json_count(array);
    type->curve = curve;
    for (int32_t c = 0; c < type->n_curves; c++)
        ESP_TRY(read_curve(r, esp_i_json_item(array, c), &curve[c]));
    return ESP_OK;
}

static esp_status_t read_types(reader_t *r, esp_i_json_t root)
{
    esp_i_json_t array;
    esp_costs_type_t *type;
    ESP_TRY(esp_i_json_get_array(root, "types", r->arena, sizeof *type, &array, &type, r->diag));
    r->costs->n_types = esp_i_json_count(array);
    r->costs->type = type;
    for (int32_t t = 0; t < r->costs->n_types; t++)
        ESP_TRY(read_type(r, esp_i_json_item(array, t), &type[t]));
    return ESP_OK;
}

static esp_status_t read_links(reader_t *r, esp_i_json_t root)
{
    esp_i_json_t array;
    esp_costs_link_t *link;
    ESP_TRY(esp_i_json_get_array(root, "links", r->arena, sizeof *link, &array, &link, r->diag));
    r->costs->n_links = esp_i_json_count(array);
    r->costs->link = link;
    for (int32_t i = 0; i < r->costs->n_links; i++) {
        esp_i_json_t item = esp_i_json_item(array, i);
        ESP_TRY(ESP_I_JSON_KEYS(item, r->diag, "from", "to", "latency_ns", "bytes_per_s"));
        ESP_TRY(esp_i_json_get_text(item, "from", r->arena, &link[i].src, r->diag));
        ESP_TRY(esp_i_json_get_text(item, "to", r->arena, &link[i].dst, r->diag));
        ESP_TRY(esp_i_json_get_real(item, "latency_ns", 0, 1e15, &link[i].latency_ns, r->diag));
        ESP_TRY(esp_i_json_get_real(item, "bytes_per_s", 0, 1e15, &link[i].bytes_per_s, r->diag));
    }
    return ESP_OK;
}

static esp_status_t read_collective(reader_t *r, esp_i_json_t item, esp_costs_collective_t *c)
{
    const char *kind;
    int64_t ranks;
    int32_t comm = 0;
    ESP_TRY(ESP_I_JSON_KEYS(item, r->diag, "kind", "algorithm", "ranks", "bytes", "ns"));
    ESP_TRY(esp_i_json_get_string(item, "kind", &kind, r->diag));
    while (comm < ESP_COMM_COUNT && strcmp(esp_comm_name((esp_comm_t)comm), kind) != 0)
        comm++;
    c->kind = (esp_comm_t)comm; /* or none, which is found later */
    ESP_TRY(esp_i_json_get_text(item, "algorithm", r->arena, &c->algorithm, r->diag));
    ESP_TRY(esp_i_json_get_int(item, "ranks", 2, INT32_MAX, &ranks, r->diag));
    c->ranks = (int32_t)ranks;
    ESP_TRY(esp_i_json_get_int(item, "bytes", 1, INT64_MAX, &c->bytes, r->diag));
    return esp_i_json_get_real(item, "ns", 0, 1e15, &c->ns, r->diag);
}

/* Not in every file. */
static esp_status_t read_collectives(reader_t *r, esp_i_json_t root)
{
    esp_i_json_t array;
    esp_costs_collective_t *collective;
    if (!esp_i_json_find(root, "collectives", &array))
        return ESP_OK;
    ESP_TRY(esp_i_json_get_array(root, "collectives", r->arena, sizeof *collective, &array,
                                 &collective, r->diag));
    r->costs->n_collectives = esp_i_json_count(array);
    r->costs->collective = collective;
    for (int32_t i = 0; i < r->costs->n_collectives; i++)
        ESP_TRY(read_collective(r, esp_i_json_item(array, i), &collective[i]));
    return ESP_OK;
}

static esp_status_t read_header(reader_t *r, esp_i_json_t root)
{
    const char *text;
    int32_t p = 0;
    ESP_TRY(esp_i_json_expect(root, ESP_I_JSON_OBJECT, r->diag));
    ESP_TRY(esp_i_json_check_format(root, "espalier-costs", ESP_COSTS_FORMAT,
                                    "these are no costs: their", r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(root, r->diag, "format", "format_version", "espalier", "precision",
                            "types", "links", "collectives"));
    ESP_TRY(esp_i_json_get_string(root, "precision", &text, r->diag));
    while (p < ESP_PRECISION_COUNT && strcmp(esp_precision_name((esp_precision_t)p), text) != 0)
        p++;
    if (p == ESP_PRECISION_COUNT)
        return esp_i_json_fail(root, r->diag, ESP_ERR_INVALID, "\"%s\" is no precision", text);
    r->costs->precision = (esp_precision_t)p;
    return esp_i_json_get_text(root, "espalier", r->arena, &r->costs->version, r->diag);
}

static esp_status_t fill(esp_i_costs_t *owned, const esp_i_json_doc_t *doc, const char *file,
                         esp_diag_t *diag)
{
    reader_t r = {&owned->pub, &owned->arena, diag};
    esp_i_json_t root = esp_i_json_root(doc);
    ESP_TRY(read_header(&r, root));
    ESP_TRY(read_types(&r, root));
    ESP_TRY(read_links(&r, root));
    ESP_TRY(read_collectives(&r, root));
    esp_status_t status = esp_i_costs_validate(&owned->pub, true, ESP_ERR_INVALID, diag);
    if (status != ESP_OK)
        esp_i_diag_file(diag, file);
    return status;
}

/* Consumes the document. */
static esp_status_t costs_from(esp_i_json_doc_t *doc, const char *file,
                               const esp_allocator_t *alloc, esp_costs_t **costs_out,
                               esp_diag_t *diag)
{
    esp_i_costs_t *owned = esp_i_costs_new(alloc);
    esp_status_t status = owned ? fill(owned, doc, file, diag) : esp_i_nomem(diag);
    esp_i_json_destroy(doc);
    if (status == ESP_OK)
        *costs_out = &owned->pub;
    else if (owned)
        esp_costs_destroy(&owned->pub);
    return status;
}

esp_status_t esp_costs_parse(const char *text, size_t length, const char *file,
                             const esp_allocator_t *alloc, esp_costs_t **costs_out,
                             esp_diag_t *diag)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    const char *shown = file ? file : "costs";
    esp_i_json_doc_t *doc;
    ESP_TRY(esp_i_json_parse(&from, text, (int64_t)length, shown, &doc, diag));
    return costs_from(doc, shown, &from, costs_out, diag);
}

esp_status_t esp_costs_read(const char *path, const esp_allocator_t *alloc, esp_costs_t **costs_out,
                            esp_diag_t *diag)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    esp_i_json_doc_t *doc;
    ESP_TRY(esp_i_json_read(&from, path, &doc, diag));
    return costs_from(doc, path, &from, costs_out, diag);
}
