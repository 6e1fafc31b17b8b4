/* JSON -> plan. Types, keys and ranges are checked here, how values fit together in validate.c. */
#include "plan/plan.h"

#include <string.h>

typedef struct reader {
    esp_plan_t *plan;
    esp_i_arena_t *arena;
    esp_i_names_t devices;
    const char *file; /* NULL: paths are kept */
    esp_diag_t *diag;
} reader_t;

/* ---- values -------------------------------------------------------------------------------- */

static esp_status_t copy_text(reader_t *r, const char *text, const char **out)
{
    *out = esp_i_arena_strdup(r->arena, text);
    return *out ? ESP_OK : esp_i_nomem(r->diag);
}

static esp_status_t get_path(reader_t *r, esp_i_json_t object, const char *key, const char **out)
{
    const char *text;
    ESP_TRY(esp_i_json_get_string(object, key, &text, r->diag));
    *out =
        r->file ? esp_i_plan_path_in(r->arena, r->file, text) : esp_i_arena_strdup(r->arena, text);
    return *out ? ESP_OK : esp_i_nomem(r->diag);
}

/* A member that must be there and may be null. */
static esp_status_t get_nullable(reader_t *r, esp_i_json_t object, const char *key,
                                 esp_i_json_t *member_out, bool *is_null_out)
{
    if (!esp_i_json_find(object, key, member_out))
        return esp_i_json_fail(object, r->diag, ESP_ERR_INVALID, "\"%s\" is missing", key);
    *is_null_out = esp_i_json_kind(*member_out) == ESP_I_JSON_NULL;
    return ESP_OK;
}

static esp_status_t get_nullable_text(reader_t *r, esp_i_json_t object, const char *key,
                                      const char **out)
{
    esp_i_json_t member;
    bool is_null;
    const char *text;
    *out = NULL;
    ESP_TRY(get_nullable(r, object, key, &member, &is_null));
    if (is_null)
        return ESP_OK;
    ESP_TRY(esp_i_json_as_string(member, &text, r->diag));
    return copy_text(r, text, out);
}

/* An index in [0, n), or null for ESP_NONE. */
static esp_status_t get_index(reader_t *r, esp_i_json_t object, const char *key, int32_t n,
                              int32_t *out)
{
    esp_i_json_t member;
    bool is_null;
    int64_t index;
    *out = ESP_NONE;
    ESP_TRY(get_nullable(r, object, key, &member, &is_null));
    if (is_null)
        return ESP_OK;
    if (n == 0)
        return esp_i_json_fail(member, r->diag, ESP_ERR_INVALID, "must be null: there are none");
    ESP_TRY(esp_i_json_as_int(member, 0, n - 1, &index, r->diag));
    *out = (int32_t)index;
    return ESP_OK;
}

static esp_status_t as_choice(reader_t *r, esp_i_json_t value, esp_i_plan_names_t names,
                              int32_t *out)
{
    const char *text;
    ESP_TRY(esp_i_json_as_string(value, &text, r->diag));
    for (*out = 0; *out < names.n; ++*out)
        if (strcmp(names.name[*out], text) == 0)
            return ESP_OK;
    return esp_i_json_fail(value, r->diag, ESP_ERR_INVALID, "\"%s\" is not one of \"%s\" .. \"%s\"",
                           text, names.name[0], names.name[names.n - 1]);
}

static esp_status_t get_choice(reader_t *r, esp_i_json_t object, const char *key,
                               esp_i_plan_names_t names, int32_t *out)
{
    esp_i_json_t member;
    ESP_TRY(esp_i_json_get(object, key, ESP_I_JSON_STRING, &member, r->diag));
    return as_choice(r, member, names, out);
}

static esp_status_t get_amount(reader_t *r, esp_i_json_t object, const char *key, int64_t *out)
{
    return esp_i_json_get_int(object, key, 0, INT64_MAX, out, r->diag);
}

static esp_status_t get_flag(reader_t *r, esp_i_json_t object, const char *key, int32_t *out)
{
    bool flag;
    ESP_TRY(esp_i_json_get_bool(object, key, &flag, r->diag));
    *out = flag;
    return ESP_OK;
}

/* ---- provenance and step --------------------------------------------------------------------- */

static esp_status_t read_header(reader_t *r, esp_i_json_t root)
{
    ESP_TRY(esp_i_json_check_format(root, "espalier-plan", ESP_PLAN_FORMAT, "this is no plan: its",
                                    r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(root, r->diag, "format", "format_version", "espalier", "model",
                            "cluster", "graph", "costs", "step", "devices", "strategy",
                            "prediction", "search"));
    return esp_i_json_get_text(root, "espalier", r->arena, &r->plan->version, r->diag);
}

/* A plan that was made without measured costs has no such member. */
static esp_status_t read_costs(reader_t *r, esp_i_json_t root)
{
    esp_plan_t *p = r->plan;
    esp_i_json_t costs;
    p->costs_path = p->costs_sha256 = "";
    if (!esp_i_json_find(root, "costs", &costs))
        return ESP_OK;
    ESP_TRY(ESP_I_JSON_KEYS(costs, r->diag, "path", "sha256"));
    ESP_TRY(get_path(r, costs, "path", &p->costs_path));
    ESP_TRY(esp_i_json_get_text(costs, "sha256", r->arena, &p->costs_sha256, r->diag));
    if (p->costs_path[0] == '\0')
        return esp_i_json_fail(costs, r->diag, ESP_ERR_INVALID, "\"path\" must not be empty");
    return ESP_OK;
}

static esp_status_t read_provenance(reader_t *r, esp_i_json_t root)
{
    esp_plan_t *p = r->plan;
    esp_i_json_t model, cluster, graph;
    ESP_TRY(esp_i_json_get(root, "model", ESP_I_JSON_OBJECT, &model, r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(model, r->diag, "path", "sha256", "batch_dim", "dims"));
    ESP_TRY(get_path(r, model, "path", &p->model_path));
    ESP_TRY(esp_i_json_get_text(model, "sha256", r->arena, &p->model_sha256, r->diag));
    ESP_TRY(esp_i_json_get_text(model, "batch_dim", r->arena, &p->batch_dim, r->diag));
    ESP_TRY(esp_i_json_get_text(model, "dims", r->arena, &p->dims, r->diag));
    ESP_TRY(esp_i_json_get(root, "cluster", ESP_I_JSON_OBJECT, &cluster, r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(cluster, r->diag, "path", "sha256", "text"));
    ESP_TRY(get_path(r, cluster, "path", &p->cluster_path));
    ESP_TRY(esp_i_json_get_text(cluster, "sha256", r->arena, &p->cluster_sha256, r->diag));
    ESP_TRY(esp_i_json_get_text(cluster, "text", r->arena, &p->cluster_text, r->diag));
    ESP_TRY(esp_i_json_get(root, "graph", ESP_I_JSON_OBJECT, &graph, r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(graph, r->diag, "sha256"));
    ESP_TRY(esp_i_json_get_text(graph, "sha256", r->arena, &p->graph_sha256, r->diag));
    return read_costs(r, root);
}

static esp_status_t read_optimizer(reader_t *r, esp_i_json_t step)
{
    esp_training_opts_t *t = &r->plan->training;
    const struct {
        const char *key;
        double *value;
    } reals[] = {{"rate", &t->rate},          {"momentum", &t->momentum}, {"beta1", &t->beta1},
                 {"beta2", &t->beta2},        {"epsilon", &t->epsilon},   {"decay", &t->decay},
                 {"clip_norm", &t->clip_norm}};
    int32_t optimizer;
    ESP_TRY(get_choice(r, step, "optimizer", esp_i_plan_optimizers, &optimizer));
    t->optimizer = (esp_optimizer_t)optimizer;
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        ESP_TRY(esp_i_json_get_real(step, reals[i].key, -1e300, 1e300, reals[i].value, r->diag));
    ESP_TRY(get_nullable_text(r, step, "train_regex", &t->train_regex));
    ESP_TRY(get_nullable_text(r, step, "freeze_regex", &t->freeze_regex));
    esp_i_json_t absent;
    return esp_i_json_find(step, "no_decay_regex", &absent)
               ? get_nullable_text(r, step, "no_decay_regex", &t->no_decay_regex)
               : ESP_OK;
}

static esp_status_t read_step(reader_t *r, esp_i_json_t root)
{
    esp_plan_t *p = r->plan;
    esp_i_json_t step, ignore;
    bool is_null;
    int32_t precision, loss;
    ESP_TRY(esp_i_json_get(root, "step", ESP_I_JSON_OBJECT, &step, r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(step, r->diag, "batch", "precision", "loss", "ignore_label",
                            "optimizer", "rate", "momentum", "beta1", "beta2", "epsilon", "decay",
                            "clip_norm", "train_regex", "freeze_regex", "no_decay_regex"));
    p->training = esp_training_opts_default();
    ESP_TRY(esp_i_json_get_int(step, "batch", 0, INT64_MAX, &p->batch, r->diag));
    ESP_TRY(get_choice(r, step, "precision", esp_i_plan_precisions, &precision));
    p->precision = (esp_precision_t)precision;
    ESP_TRY(get_choice(r, step, "loss", esp_i_plan_losses, &loss));
    p->training.loss = (esp_loss_t)loss;
    p->training.ignore_label = INT64_MIN;
    ESP_TRY(get_nullable(r, step, "ignore_label", &ignore, &is_null));
    if (!is_null)
        ESP_TRY(esp_i_json_as_int(ignore, INT64_MIN + 1, INT64_MAX, &p->training.ignore_label,
                                  r->diag));
    return read_optimizer(r, step);
}

/* ---- devices and strategy -------------------------------------------------------------------- */

static esp_status_t read_devices(reader_t *r, esp_i_json_t root)
{
    esp_plan_t *p = r->plan;
    esp_i_json_t array;
    esp_plan_device_t *device;
    ESP_TRY(
        esp_i_json_get_array(root, "devices", r->arena, sizeof *device, &array, &device, r->diag));
    p->device = device;
    for (p->n_devices = 0; p->n_devices < esp_i_json_count(array); p->n_devices++, device++) {
        esp_i_json_t item = esp_i_json_item(array, p->n_devices);
        ESP_TRY(esp_i_json_expect(item, ESP_I_JSON_OBJECT, r->diag));
        ESP_TRY(ESP_I_JSON_KEYS(item, r->diag, "name", "peak_bytes", "arena_bytes",
                                "capacity_bytes", "busy_ns"));
        ESP_TRY(esp_i_json_get_text(item, "name", r->arena, &device->name, r->diag));
        ESP_TRY(get_amount(r, item, "peak_bytes", &device->peak_bytes));
        ESP_TRY(get_amount(r, item, "arena_bytes", &device->arena_bytes));
        ESP_TRY(get_amount(r, item, "capacity_bytes", &device->capacity_bytes));
        ESP_TRY(get_amount(r, item, "busy_ns", &device->busy_ns));
        int32_t id = esp_i_names_add(&r->devices, device->name, strlen(device->name));
        if (id < 0)
            return esp_i_nomem(r->diag);
        if (id != p->n_devices) /* ids are indices from here on */
            return esp_i_json_fail(item, r->diag, ESP_ERR_INVALID, "device %s is there twice",
                                   device->name);
    }
    return ESP_OK;
}

static esp_status_t read_mesh(reader_t *r, esp_i_json_t item, esp_mesh_spec_t *mesh)
{
    esp_i_json_t devices, weights;
    int32_t *device;
    double *weight;
    ESP_TRY(esp_i_json_expect(item, ESP_I_JSON_OBJECT, r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(item, r->diag, "devices", "weights"));
    ESP_TRY(esp_i_json_get_array(item, "devices", r->arena, sizeof *device, &devices, &device,
                                 r->diag));
    ESP_TRY(esp_i_json_get_array(item, "weights", r->arena, sizeof *weight, &weights, &weight,
                                 r->diag));
    *mesh = (esp_mesh_spec_t){esp_i_json_count(devices), device, weight};
    if (esp_i_json_count(weights) != mesh->n)
        return esp_i_json_fail(weights, r->diag, ESP_ERR_INVALID, "must have %d numbers, not %d",
                               mesh->n, esp_i_json_count(weights));
    for (int32_t k = 0; k < mesh->n; k++) {
        const char *name;
        ESP_TRY(esp_i_json_as_string(esp_i_json_item(devices, k), &name, r->diag));
        device[k] = esp_i_names_find(&r->devices, name, strlen(name));
        if (device[k] < 0)
            return esp_i_json_fail(esp_i_json_item(devices, k), r->diag, ESP_ERR_INVALID,
                                   "\"%s\" is no device of the plan", name);
        ESP_TRY(esp_i_json_as_real(esp_i_json_item(weights, k), 0, 1e300, &weight[k], r->diag));
    }
    return ESP_OK;
}

static esp_status_t read_groups(reader_t *r, esp_i_json_t strategy)
{
    esp_plan_t *p = r->plan;
    esp_i_json_t array;
    esp_plan_group_t *group;
    ESP_TRY(
        esp_i_json_get_array(strategy, "groups", r->arena, sizeof *group, &array, &group, r->diag));
    p->group = group;
    for (p->n_groups = 0; p->n_groups < esp_i_json_count(array); p->n_groups++, group++) {
        esp_i_json_t item = esp_i_json_item(array, p->n_groups);
        int32_t sync, shares;
        ESP_TRY(esp_i_json_expect(item, ESP_I_JSON_OBJECT, r->diag));
        ESP_TRY(ESP_I_JSON_KEYS(item, r->diag, "name", "mesh", "sync", "shares"));
        ESP_TRY(esp_i_json_get_text(item, "name", r->arena, &group->name, r->diag));
        ESP_TRY(get_index(r, item, "mesh", p->strategy.n_meshes, &group->mesh));
        ESP_TRY(get_choice(r, item, "sync", esp_i_plan_syncs, &sync));
        ESP_TRY(get_choice(r, item, "shares", esp_i_plan_shares, &shares));
        group->sync = (esp_sync_t)sync;
        group->shares = (esp_shares_t)shares;
    }
    return ESP_OK;
}

static esp_status_t read_op(reader_t *r, esp_i_json_t item, int32_t *group, int32_t *mesh,
                            uint8_t *mode)
{
    esp_i_json_t modes;
    int32_t choice;
    ESP_TRY(ESP_I_JSON_KEYS(item, r->diag, "name", "group", "mesh", "modes"));
    ESP_TRY(get_index(r, item, "group", r->plan->n_groups, group));
    ESP_TRY(get_index(r, item, "mesh", r->plan->strategy.n_meshes, mesh));
    ESP_TRY(esp_i_json_get(item, "modes", ESP_I_JSON_ARRAY, &modes, r->diag));
    if (esp_i_json_count(modes) != 1)
        return esp_i_json_fail(modes, r->diag, ESP_ERR_UNSUPPORTED,
                               "must have one mode: meshes have one level");
    ESP_TRY(as_choice(r, esp_i_json_item(modes, 0), esp_i_plan_modes, &choice));
    *mode = (uint8_t)choice;
    return ESP_OK;
}

static esp_status_t read_ops(reader_t *r, esp_i_json_t strategy)
{
    esp_plan_t *p = r->plan;
    esp_i_json_t array;
    const char **name;
    ESP_TRY(esp_i_json_get_array(strategy, "ops", r->arena, sizeof *name, &array, &name, r->diag));
    int32_t n = esp_i_json_count(array);
    int32_t *group = esp_i_arena_alloc(r->arena, n, sizeof *group);
    int32_t *mesh = esp_i_arena_alloc(r->arena, n, sizeof *mesh);
    uint8_t *mode = esp_i_arena_alloc(r->arena, n, sizeof *mode);
    if (!group || !mesh || !mode)
        return esp_i_nomem(r->diag);
    p->n_ops = n;
    p->op_name = name;
    p->op_group = group;
    p->strategy.op_mesh = mesh;
    p->strategy.op_mode = mode;
    for (int32_t i = 0; i < n; i++) {
        esp_i_json_t item = esp_i_json_item(array, i);
        ESP_TRY(esp_i_json_expect(item, ESP_I_JSON_OBJECT, r->diag));
        ESP_TRY(esp_i_json_get_text(item, "name", r->arena, &name[i], r->diag));
        ESP_TRY(read_op(r, item, &group[i], &mesh[i], &mode[i]));
    }
    return ESP_OK;
}

static esp_status_t read_strategy(reader_t *r, esp_i_json_t root)
{
    esp_strategy_t *s = &r->plan->strategy;
    esp_i_json_t strategy, array;
    esp_mesh_spec_t *mesh;
    int64_t micro;
    ESP_TRY(esp_i_json_get(root, "strategy", ESP_I_JSON_OBJECT, &strategy, r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(strategy, r->diag, "micro_batches", "bucket_bytes", "sync_batchnorm",
                            "meshes", "groups", "ops"));
    ESP_TRY(esp_i_json_get_int(strategy, "micro_batches", 1, INT16_MAX, &micro, r->diag));
    s->micro_batches = (int32_t)micro;
    ESP_TRY(get_amount(r, strategy, "bucket_bytes", &s->bucket_bytes));
    ESP_TRY(get_flag(r, strategy, "sync_batchnorm", &s->sync_batchnorm));
    ESP_TRY(
        esp_i_json_get_array(strategy, "meshes", r->arena, sizeof *mesh, &array, &mesh, r->diag));
    s->n_meshes = esp_i_json_count(array);
    s->mesh = mesh;
    for (int32_t m = 0; m < s->n_meshes; m++)
        ESP_TRY(read_mesh(r, esp_i_json_item(array, m), &mesh[m]));
    ESP_TRY(read_groups(r, strategy));
    return read_ops(r, strategy);
}

/* ---- prediction and search ------------------------------------------------------------------- */

static esp_status_t read_baselines(reader_t *r, esp_i_json_t search)
{
    esp_plan_t *p = r->plan;
    esp_i_json_t array;
    esp_plan_baseline_t *baseline;
    ESP_TRY(esp_i_json_get_array(search, "baselines", r->arena, sizeof *baseline, &array, &baseline,
                                 r->diag));
    p->n_baselines = esp_i_json_count(array);
    p->baseline = baseline;
    for (int32_t i = 0; i < p->n_baselines; i++) {
        esp_i_json_t item = esp_i_json_item(array, i);
        ESP_TRY(esp_i_json_expect(item, ESP_I_JSON_OBJECT, r->diag));
        ESP_TRY(ESP_I_JSON_KEYS(item, r->diag, "name", "step_time_ns", "fits"));
        ESP_TRY(esp_i_json_get_text(item, "name", r->arena, &baseline[i].name, r->diag));
        ESP_TRY(get_amount(r, item, "step_time_ns", &baseline[i].step_time_ns));
        ESP_TRY(get_flag(r, item, "fits", &baseline[i].fits));
    }
    return ESP_OK;
}

static esp_status_t read_outcome(reader_t *r, esp_i_json_t root)
{
    esp_plan_t *p = r->plan;
    esp_i_json_t prediction, search;
    int32_t links;
    ESP_TRY(esp_i_json_get(root, "prediction", ESP_I_JSON_OBJECT, &prediction, r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(prediction, r->diag, "links", "barrier", "step_time_ns", "makespan_ns",
                            "lower_bound_ns"));
    ESP_TRY(get_choice(r, prediction, "links", esp_i_plan_links, &links));
    p->links = (esp_link_mode_t)links;
    ESP_TRY(get_flag(r, prediction, "barrier", &p->barrier));
    ESP_TRY(get_amount(r, prediction, "step_time_ns", &p->step_time_ns));
    ESP_TRY(get_amount(r, prediction, "makespan_ns", &p->makespan_ns));
    ESP_TRY(get_amount(r, prediction, "lower_bound_ns", &p->lower_bound_ns));
    ESP_TRY(esp_i_json_get(root, "search", ESP_I_JSON_OBJECT, &search, r->diag));
    ESP_TRY(ESP_I_JSON_KEYS(search, r->diag, "seed", "evaluations", "baselines"));
    ESP_TRY(get_amount(r, search, "seed", &p->seed));
    ESP_TRY(get_amount(r, search, "evaluations", &p->evaluations));
    return read_baselines(r, search);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static esp_status_t read_document(reader_t *r, const esp_i_json_doc_t *doc)
{
    static esp_status_t (*const sections[])(reader_t *, esp_i_json_t) = {
        read_header, read_provenance, read_step, read_devices, read_strategy, read_outcome};
    esp_i_json_t root = esp_i_json_root(doc);
    ESP_TRY(esp_i_json_expect(root, ESP_I_JSON_OBJECT, r->diag));
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        ESP_TRY(sections[i](r, root));
    return ESP_OK;
}

/* Reads into *owned, which is empty; `shown` names the file in messages. */
static esp_status_t fill(esp_i_plan_t *owned, const esp_i_json_doc_t *doc, const char *file,
                         const char *shown, esp_diag_t *diag)
{
    reader_t r = {.plan = &owned->pub, .arena = &owned->arena, .file = file, .diag = diag};
    esp_i_names_init(&r.devices, &owned->arena);
    esp_status_t status = read_document(&r, doc);
    esp_i_names_fini(&r.devices);
    if (status != ESP_OK)
        return status;
    status = esp_i_plan_validate(&owned->pub, ESP_ERR_INVALID, &owned->arena.alloc, diag);
    if (status != ESP_OK)
        esp_i_diag_file(diag, shown);
    return status;
}

/* Takes the document. */
static esp_status_t plan_from(esp_i_json_doc_t *doc, const char *file, const char *shown,
                              const esp_allocator_t *alloc, esp_plan_t **plan_out, esp_diag_t *diag)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    esp_i_plan_t *owned = esp_i_alloc_array(&from, 1, sizeof *owned);
    esp_status_t status = owned ? ESP_OK : esp_i_nomem(diag);
    if (owned) {
        esp_i_arena_init(&owned->arena, &from);
        status = fill(owned, doc, file, shown, diag);
    }
    esp_i_json_destroy(doc);
    if (status == ESP_OK)
        *plan_out = &owned->pub;
    else if (owned)
        esp_plan_destroy(&owned->pub);
    return status;
}

esp_status_t esp_plan_parse(const char *text, size_t length, const char *file,
                            const esp_allocator_t *alloc, esp_plan_t **plan_out, esp_diag_t *diag)
{
    esp_i_json_doc_t *doc;
    const char *shown = file ? file : "plan";
    if (length > (size_t)ESP_PLAN_MAX_BYTES)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "a plan of more than %lld bytes",
                          (long long)ESP_PLAN_MAX_BYTES);
    ESP_TRY(esp_i_json_parse(alloc, text, (int64_t)length, shown, &doc, diag));
    return plan_from(doc, file, shown, alloc, plan_out, diag);
}

esp_status_t esp_plan_read(const char *path, const esp_allocator_t *alloc, esp_plan_t **plan_out,
                           esp_diag_t *diag)
{
    esp_i_json_doc_t *doc;
    ESP_TRY(esp_i_json_read(alloc, path, &doc, diag));
    return plan_from(doc, path, path, alloc, plan_out, diag);
}
