/* Plan -> JSON. The keys are documented in docs/plan.md; read.c is the other direction. */
#include "plan/plan.h"

#include <string.h>

static const char *text_of(esp_i_plan_names_t names, int32_t value)
{
    return names.name[value];
}

/* An index, or null for ESP_NONE. */
static void put_index(esp_i_json_out_t *out, const char *key, int32_t index)
{
    if (index == ESP_NONE)
        esp_i_json_put_null(out, key);
    else
        esp_i_json_put_int(out, key, index);
}

/* `paths`: of model, cluster and costs, as the file names them. */
static void put_provenance(esp_i_json_out_t *out, const esp_plan_t *p, const char *const paths[3])
{
    esp_i_json_put_string(out, "format", "espalier-plan");
    esp_i_json_put_int(out, "format_version", ESP_PLAN_FORMAT);
    esp_i_json_put_string(out, "espalier", p->version);
    esp_i_json_open_object(out, "model");
    esp_i_json_put_string(out, "path", paths[0]);
    esp_i_json_put_string(out, "sha256", p->model_sha256);
    esp_i_json_put_string(out, "batch_dim", p->batch_dim);
    esp_i_json_put_string(out, "dims", p->dims);
    esp_i_json_close(out);
    esp_i_json_open_object(out, "cluster");
    esp_i_json_put_string(out, "path", paths[1]);
    esp_i_json_put_string(out, "sha256", p->cluster_sha256);
    esp_i_json_put_string(out, "text", p->cluster_text);
    esp_i_json_close(out);
    esp_i_json_open_object(out, "graph");
    esp_i_json_put_string(out, "sha256", p->graph_sha256);
    esp_i_json_close(out);
    if (paths[2] == NULL)
        return;
    esp_i_json_open_object(out, "costs");
    esp_i_json_put_string(out, "path", paths[2]);
    esp_i_json_put_string(out, "sha256", p->costs_sha256);
    esp_i_json_close(out);
}

static void put_step(esp_i_json_out_t *out, const esp_plan_t *p)
{
    const esp_training_opts_t *t = &p->training;
    esp_i_json_open_object(out, "step");
    esp_i_json_put_int(out, "batch", p->batch);
    esp_i_json_put_string(out, "precision", text_of(esp_i_plan_precisions, (int32_t)p->precision));
    esp_i_json_put_string(out, "loss", text_of(esp_i_plan_losses, (int32_t)t->loss));
    if (t->ignore_label == INT64_MIN)
        esp_i_json_put_null(out, "ignore_label");
    else
        esp_i_json_put_int(out, "ignore_label", t->ignore_label);
    esp_i_json_put_string(out, "optimizer", text_of(esp_i_plan_optimizers, (int32_t)t->optimizer));
    esp_i_json_put_real(out, "rate", t->rate);
    esp_i_json_put_real(out, "momentum", t->momentum);
    esp_i_json_put_real(out, "beta1", t->beta1);
    esp_i_json_put_real(out, "beta2", t->beta2);
    esp_i_json_put_real(out, "epsilon", t->epsilon);
    esp_i_json_put_real(out, "decay", t->decay);
    esp_i_json_put_real(out, "clip_norm", t->clip_norm);
    esp_i_json_put_string(out, "train_regex", t->train_regex);
    esp_i_json_put_string(out, "freeze_regex", t->freeze_regex);
    if (t->no_decay_regex != NULL)
        esp_i_json_put_string(out, "no_decay_regex", t->no_decay_regex);
    esp_i_json_close(out);
}

static void put_devices(esp_i_json_out_t *out, const esp_plan_t *p)
{
    esp_i_json_open_array(out, "devices");
    for (int32_t i = 0; i < p->n_devices; i++) {
        const esp_plan_device_t *d = &p->device[i];
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", d->name);
        esp_i_json_put_int(out, "peak_bytes", d->peak_bytes);
        esp_i_json_put_int(out, "arena_bytes", d->arena_bytes);
        esp_i_json_put_int(out, "capacity_bytes", d->capacity_bytes);
        esp_i_json_put_int(out, "busy_ns", d->busy_ns);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_meshes(esp_i_json_out_t *out, const esp_plan_t *p)
{
    esp_i_json_open_array(out, "meshes");
    for (int32_t m = 0; m < p->strategy.n_meshes; m++) {
        const esp_mesh_spec_t *mesh = &p->strategy.mesh[m];
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_open_array(out, "devices");
        for (int32_t k = 0; k < mesh->n; k++)
            esp_i_json_put_string(out, NULL, p->device[mesh->device[k]].name);
        esp_i_json_close(out);
        esp_i_json_open_array(out, "weights");
        for (int32_t k = 0; k < mesh->n; k++)
            esp_i_json_put_real(out, NULL, mesh->weight[k]);
        esp_i_json_close(out);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_groups(esp_i_json_out_t *out, const esp_plan_t *p)
{
    esp_i_json_open_array(out, "groups");
    for (int32_t i = 0; i < p->n_groups; i++) {
        const esp_plan_group_t *group = &p->group[i];
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", group->name);
        put_index(out, "mesh", group->mesh);
        esp_i_json_put_string(out, "sync", text_of(esp_i_plan_syncs, (int32_t)group->sync));
        esp_i_json_put_string(out, "shares", text_of(esp_i_plan_shares, (int32_t)group->shares));
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

/* "modes" is a list over the levels of a mesh, of which there is one. */
static void put_ops(esp_i_json_out_t *out, const esp_plan_t *p)
{
    esp_i_json_open_array(out, "ops");
    for (int32_t i = 0; i < p->n_ops; i++) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", p->op_name[i]);
        put_index(out, "group", p->op_group[i]);
        put_index(out, "mesh", p->strategy.op_mesh[i]);
        esp_i_json_open_array(out, "modes");
        esp_i_json_put_string(out, NULL, text_of(esp_i_plan_modes, p->strategy.op_mode[i]));
        esp_i_json_close(out);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void put_strategy(esp_i_json_out_t *out, const esp_plan_t *p)
{
    esp_i_json_open_object(out, "strategy");
    esp_i_json_put_int(out, "micro_batches", p->strategy.micro_batches);
    esp_i_json_put_int(out, "bucket_bytes", p->strategy.bucket_bytes);
    esp_i_json_put_bool(out, "sync_batchnorm", p->strategy.sync_batchnorm != 0);
    put_meshes(out, p);
    put_groups(out, p);
    put_ops(out, p);
    esp_i_json_close(out);
}

static void put_outcome(esp_i_json_out_t *out, const esp_plan_t *p)
{
    esp_i_json_open_object(out, "prediction");
    esp_i_json_put_string(out, "links", text_of(esp_i_plan_links, (int32_t)p->links));
    esp_i_json_put_bool(out, "barrier", p->barrier != 0);
    esp_i_json_put_int(out, "step_time_ns", p->step_time_ns);
    esp_i_json_put_int(out, "makespan_ns", p->makespan_ns);
    esp_i_json_put_int(out, "lower_bound_ns", p->lower_bound_ns);
    esp_i_json_close(out);
    esp_i_json_open_object(out, "search");
    esp_i_json_put_int(out, "seed", p->seed);
    esp_i_json_put_int(out, "evaluations", p->evaluations);
    esp_i_json_open_array(out, "baselines");
    for (int32_t i = 0; i < p->n_baselines; i++) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "name", p->baseline[i].name);
        esp_i_json_put_int(out, "step_time_ns", p->baseline[i].step_time_ns);
        esp_i_json_put_bool(out, "fits", p->baseline[i].fits != 0);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
    esp_i_json_close(out);
}

static void put_plan(esp_i_text_t *text, const esp_plan_t *plan, const char *const paths[3])
{
    esp_i_json_out_t out;
    esp_i_json_out_init(&out, text);
    esp_i_json_open_object(&out, NULL);
    put_provenance(&out, plan, paths);
    put_step(&out, plan);
    put_devices(&out, plan);
    put_strategy(&out, plan);
    put_outcome(&out, plan);
    esp_i_json_close(&out);
}

esp_status_t esp_plan_to_json(const esp_plan_t *plan, const char *directory,
                              const esp_allocator_t *alloc, char **text_out, esp_diag_t *diag)
{
    ESP_TRY(esp_i_plan_validate(plan, ESP_ERR_ARGUMENT, alloc, diag));
    const char *paths[3] = {NULL};
    esp_i_arena_t arena;
    esp_i_text_t text;
    esp_i_arena_init(&arena, alloc);
    esp_i_text_init(&text, alloc);
    esp_status_t status = esp_i_plan_path_out(&arena, directory, plan->model_path, &paths[0], diag);
    if (status == ESP_OK)
        status = esp_i_plan_path_out(&arena, directory, plan->cluster_path, &paths[1], diag);
    if (status == ESP_OK && plan->costs_path && plan->costs_path[0] != '\0')
        status = esp_i_plan_path_out(&arena, directory, plan->costs_path, &paths[2], diag);
    if (status == ESP_OK)
        put_plan(&text, plan, paths);
    if (status == ESP_OK && text.failed)
        status = esp_i_nomem(diag);
    esp_i_arena_fini(&arena);
    if (status == ESP_OK)
        *text_out = text.data;
    else
        esp_i_text_fini(&text);
    return status;
}

esp_status_t esp_plan_write(const esp_plan_t *plan, const char *path, esp_diag_t *diag)
{
    esp_i_arena_t arena;
    char *text = NULL;
    esp_i_arena_init(&arena, NULL);
    const char *directory = esp_i_plan_directory(&arena, path);
    esp_status_t status =
        directory ? esp_plan_to_json(plan, directory, NULL, &text, diag) : esp_i_nomem(diag);
    if (status == ESP_OK)
        status = esp_i_file_write(path, text, strlen(text), diag);
    esp_i_free(&esp_i_malloc, text);
    esp_i_arena_fini(&arena);
    return status;
}
