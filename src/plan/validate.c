/* What a plan must hold, whoever made it. Faults are named by their JSON path. */
#include "plan/plan.h"

#include <string.h>

typedef struct validation {
    const esp_plan_t *plan;
    esp_status_t status;
    esp_i_arena_t arena;
    esp_diag_t *diag;
} validation_t;

#define FAULT(v, text, ...)                                                                        \
    (esp_i_diag_place((v)->diag, __VA_ARGS__), esp_i_fail((v)->diag, (v)->status, "%s", text))

static bool is_text(const char *text)
{
    if (!text)
        return false;
    size_t left = strlen(text);
    for (int32_t size; left > 0; text += size, left -= (size_t)size)
        if ((size = esp_i_utf8_length(text, left)) == 0)
            return false;
    return true;
}

static bool is_name(const char *text)
{
    return is_text(text) && text[0] != '\0';
}

static bool is_hash(const char *text)
{
    return text && strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static bool is_real(double value, double low, double high)
{
    return value >= low && value <= high; /* false for NaN */
}

/* ---- provenance and step --------------------------------------------------------------------- */

static esp_status_t provenance(validation_t *v)
{
    const esp_plan_t *p = v->plan;
    const struct {
        const char *path, *text;
    } names[] = {{"$.espalier", p->version},
                 {"$.model.path", p->model_path},
                 {"$.cluster.text", p->cluster_text}},
      texts[] = {{"$.model.batch_dim", p->batch_dim},
                 {"$.model.dims", p->dims},
                 {"$.cluster.path", p->cluster_path}},
      hashes[] = {{"$.model.sha256", p->model_sha256},
                  {"$.cluster.sha256", p->cluster_sha256},
                  {"$.graph.sha256", p->graph_sha256}};
    for (int32_t i = 0; i < 3; i++) {
        if (!is_name(names[i].text))
            return FAULT(v, "must be a text that is not empty", "%s", names[i].path);
        if (!is_text(texts[i].text))
            return FAULT(v, "must be a text in UTF-8", "%s", texts[i].path);
        if (!is_hash(hashes[i].text))
            return FAULT(v, "must be 64 lower-case hexadecimal digits", "%s", hashes[i].path);
    }
    bool costs = p->costs_path && p->costs_path[0] != '\0';
    if (costs && !is_text(p->costs_path))
        return FAULT(v, "must be a text in UTF-8", "$.costs.path");
    if (costs && !is_hash(p->costs_sha256))
        return FAULT(v, "must be 64 lower-case hexadecimal digits", "$.costs.sha256");
    return ESP_OK;
}

static esp_status_t step(validation_t *v)
{
    const esp_plan_t *p = v->plan;
    const esp_training_opts_t *t = &p->training;
    const struct {
        const char *key;
        double value;
    } reals[] = {{"rate", t->rate},          {"momentum", t->momentum}, {"beta1", t->beta1},
                 {"beta2", t->beta2},        {"epsilon", t->epsilon},   {"decay", t->decay},
                 {"clip_norm", t->clip_norm}};
    if (p->batch < 0)
        return FAULT(v, "must not be negative", "$.step.batch");
    if ((int32_t)p->precision < 0 || (int32_t)p->precision >= esp_i_plan_precisions.n)
        return FAULT(v, "is no precision", "$.step.precision");
    if ((int32_t)t->loss < 0 || (int32_t)t->loss >= esp_i_plan_losses.n)
        return FAULT(v, "is no loss", "$.step.loss");
    if ((int32_t)t->optimizer < 0 || (int32_t)t->optimizer >= esp_i_plan_optimizers.n)
        return FAULT(v, "is no optimizer", "$.step.optimizer");
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!is_real(reals[i].value, -1e300, 1e300))
            return FAULT(v, "must be a finite number", "$.step.%s", reals[i].key);
    if (t->train_regex && !is_text(t->train_regex))
        return FAULT(v, "must be a text in UTF-8", "$.step.train_regex");
    if (t->freeze_regex && !is_text(t->freeze_regex))
        return FAULT(v, "must be a text in UTF-8", "$.step.freeze_regex");
    if (t->no_decay_regex && !is_text(t->no_decay_regex))
        return FAULT(v, "must be a text in UTF-8", "$.step.no_decay_regex");
    return ESP_OK;
}

/* ---- devices ------------------------------------------------------------------------------- */

static esp_status_t one_device(validation_t *v, esp_i_names_t *names, int32_t i)
{
    const esp_plan_device_t *d = &v->plan->device[i];
    if (!is_name(d->name))
        return FAULT(v, "must be a text that is not empty", "$.devices[%d].name", i);
    int32_t id = esp_i_names_add(names, d->name, strlen(d->name));
    if (id < 0)
        return esp_i_nomem(v->diag);
    if (id != i)
        return FAULT(v, "another device has this name", "$.devices[%d].name", i);
    if (d->peak_bytes < 0 || d->arena_bytes < 0 || d->capacity_bytes < 0 || d->busy_ns < 0)
        return FAULT(v, "an amount is negative", "$.devices[%d]", i);
    return ESP_OK;
}

static esp_status_t devices(validation_t *v)
{
    const esp_plan_t *p = v->plan;
    esp_i_names_t names;
    esp_status_t status = ESP_OK;
    if (p->n_devices < 1 || p->n_devices > ESP_CLUSTER_MAX_DEVICES || !p->device)
        return FAULT(v, "must be 1 to 1024 devices", "$.devices");
    esp_i_names_init(&names, &v->arena);
    for (int32_t i = 0; i < p->n_devices && status == ESP_OK; i++)
        status = one_device(v, &names, i);
    esp_i_names_fini(&names);
    return status;
}

/* ---- strategy ------------------------------------------------------------------------------ */

static esp_status_t one_mesh(validation_t *v, int32_t m)
{
    const esp_plan_t *p = v->plan;
    const esp_mesh_spec_t *mesh = &p->strategy.mesh[m];
    if (mesh->n < 1 || mesh->n > p->n_devices)
        return FAULT(v, "has no devices, or more than there are", "$.strategy.meshes[%d].devices",
                     m);
    for (int32_t k = 0; k < mesh->n; k++) {
        if (mesh->device[k] < 0 || mesh->device[k] >= p->n_devices)
            return FAULT(v, "is no device of the plan", "$.strategy.meshes[%d].devices[%d]", m, k);
        if (k > 0 && mesh->device[k] <= mesh->device[k - 1])
            return FAULT(v, "devices must be in the order of the cluster",
                         "$.strategy.meshes[%d].devices[%d]", m, k);
        if (!(mesh->weight[k] > 0) || !is_real(mesh->weight[k], 0, 1e300))
            return FAULT(v, "must be a positive number", "$.strategy.meshes[%d].weights[%d]", m, k);
    }
    return ESP_OK;
}

static esp_status_t one_group(validation_t *v, int32_t i)
{
    const esp_plan_group_t *group = &v->plan->group[i];
    if (!is_name(group->name))
        return FAULT(v, "must be a text that is not empty", "$.strategy.groups[%d].name", i);
    if (group->mesh < ESP_NONE || group->mesh >= v->plan->strategy.n_meshes)
        return FAULT(v, "is no mesh", "$.strategy.groups[%d].mesh", i);
    if ((int32_t)group->sync < 0 || group->sync >= ESP_SYNC_COUNT)
        return FAULT(v, "is no synchronisation", "$.strategy.groups[%d].sync", i);
    if ((int32_t)group->shares < 0 || (int32_t)group->shares >= esp_i_plan_shares.n)
        return FAULT(v, "is no kind of shares", "$.strategy.groups[%d].shares", i);
    return ESP_OK;
}

static esp_status_t one_op(validation_t *v, esp_i_names_t *names, int32_t i)
{
    const esp_plan_t *p = v->plan;
    const esp_strategy_t *s = &p->strategy;
    if (!is_name(p->op_name[i]))
        return FAULT(v, "must be a text that is not empty", "$.strategy.ops[%d].name", i);
    int32_t id = esp_i_names_add(names, p->op_name[i], strlen(p->op_name[i]));
    if (id < 0)
        return esp_i_nomem(v->diag);
    if (id != i)
        return FAULT(v, "another op has this name", "$.strategy.ops[%d].name", i);
    if (s->op_mode[i] > ESP_MODE_SHARD)
        return FAULT(v, "is no mode", "$.strategy.ops[%d].modes[0]", i);
    if (s->op_mesh[i] < ESP_NONE || s->op_mesh[i] >= s->n_meshes)
        return FAULT(v, "is no mesh", "$.strategy.ops[%d].mesh", i);
    if (s->op_mesh[i] == ESP_NONE && s->op_mode[i] != ESP_MODE_WHOLE)
        return FAULT(v, "only a whole op may be without", "$.strategy.ops[%d].mesh", i);
    if (p->op_group[i] < ESP_NONE || p->op_group[i] >= p->n_groups)
        return FAULT(v, "is no group", "$.strategy.ops[%d].group", i);
    return ESP_OK;
}

static esp_status_t ops(validation_t *v)
{
    const esp_plan_t *p = v->plan;
    const esp_strategy_t *s = &p->strategy;
    esp_i_names_t names;
    esp_status_t status = ESP_OK;
    if (p->n_ops < 0 ||
        (p->n_ops > 0 && (!p->op_name || !p->op_group || !s->op_mesh || !s->op_mode)))
        return FAULT(v, "are missing", "$.strategy.ops");
    esp_i_names_init(&names, &v->arena);
    for (int32_t i = 0; i < p->n_ops && status == ESP_OK; i++)
        status = one_op(v, &names, i);
    esp_i_names_fini(&names);
    return status;
}

static esp_status_t strategy(validation_t *v)
{
    const esp_plan_t *p = v->plan;
    const esp_strategy_t *s = &p->strategy;
    if (s->micro_batches < 1 || s->micro_batches > INT16_MAX || p->batch % s->micro_batches != 0)
        return FAULT(v, "must divide the batch", "$.strategy.micro_batches");
    if (s->bucket_bytes < 0)
        return FAULT(v, "must not be negative", "$.strategy.bucket_bytes");
    if (s->sync_batchnorm != 0 && s->sync_batchnorm != 1)
        return FAULT(v, "must be true or false", "$.strategy.sync_batchnorm");
    if (s->n_meshes < 1 || !s->mesh)
        return FAULT(v, "must not be empty", "$.strategy.meshes");
    for (int32_t m = 0; m < s->n_meshes; m++)
        ESP_TRY(one_mesh(v, m));
    if (p->n_groups < 0 || (p->n_groups > 0 && !p->group))
        return FAULT(v, "are missing", "$.strategy.groups");
    for (int32_t i = 0; i < p->n_groups; i++)
        ESP_TRY(one_group(v, i));
    return ops(v);
}

/* ---- prediction and search ------------------------------------------------------------------- */

static esp_status_t outcome(validation_t *v)
{
    const esp_plan_t *p = v->plan;
    if ((int32_t)p->links < 0 || (int32_t)p->links >= esp_i_plan_links.n)
        return FAULT(v, "is no mode of links", "$.prediction.links");
    if (p->barrier != 0 && p->barrier != 1)
        return FAULT(v, "must be true or false", "$.prediction.barrier");
    if (p->step_time_ns < 0 || p->makespan_ns < 0 || p->lower_bound_ns < 0)
        return FAULT(v, "a time is negative", "$.prediction");
    if (p->seed < 0 || p->evaluations < 0)
        return FAULT(v, "a number is negative", "$.search");
    if (p->n_baselines < 0 || (p->n_baselines > 0 && !p->baseline))
        return FAULT(v, "are missing", "$.search.baselines");
    for (int32_t i = 0; i < p->n_baselines; i++)
        if (!is_name(p->baseline[i].name) || p->baseline[i].step_time_ns < 0 ||
            p->baseline[i].fits < 0 || p->baseline[i].fits > 1)
            return FAULT(v, "has no name, or a value out of range", "$.search.baselines[%d]", i);
    return ESP_OK;
}

esp_status_t esp_i_plan_validate(const esp_plan_t *plan, esp_status_t status,
                                 const esp_allocator_t *alloc, esp_diag_t *diag)
{
    static esp_status_t (*const sections[])(validation_t *) = {provenance, step, devices, strategy,
                                                               outcome};
    validation_t v = {.plan = plan, .status = status, .diag = diag};
    esp_status_t result = ESP_OK;
    esp_i_arena_init(&v.arena, alloc);
    for (size_t i = 0; i < sizeof sections / sizeof *sections && result == ESP_OK; i++)
        result = sections[i](&v);
    esp_i_arena_fini(&v.arena);
    return result;
}
