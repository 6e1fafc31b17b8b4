/*
 * Random clusters for training a policy: groups of GPUs in the matrix form. The distribution is the
 * published one of the TAG system's training topologies; docs/clusters.md states it.
 */
#include "cluster/cluster.h"

#include <inttypes.h>
#include <stdio.h>

enum { MOST_GROUPS = 64, MOST_PER_GROUP_EXACT = 4 };

static const struct {
    const char *type;
    int64_t usable_gib;
} gpus[] = {{"p100-pcie-12", 10}, {"gtx1080ti", 9}, {"v100-sxm-16", 14}};
static const int32_t counts[] = {2, 3, 4, 6, 8};
static const int64_t intra_bytes_per_s[] = {INT64_C(8000000000), INT64_C(20000000000)};
static const int64_t same_rack_bytes_per_s = INT64_C(5000000000);
static const int64_t other_rack_bytes_per_s = INT64_C(2810000000);
static const int64_t latency_ns = 12000;

#define N_OF(array) ((int32_t)(sizeof(array) / sizeof(array)[0]))

typedef struct random_group {
    int32_t gpu, count, rack;
    int64_t intra_bytes_per_s;
    int32_t hub;
} random_group_t;

typedef struct plan {
    int32_t n;
    random_group_t group[MOST_GROUPS];
    bool one_inter; /* all pairs of groups alike */
    int64_t inter_bytes_per_s;
} plan_t;

esp_cluster_random_opts_t esp_cluster_random_opts_default(void)
{
    return (esp_cluster_random_opts_t){
        .struct_size = sizeof(esp_cluster_random_opts_t), .max_groups = 4, .stop_devices = 16};
}

static esp_status_t check_opts(const esp_cluster_random_opts_t *o, esp_diag_t *diag)
{
    if (o->struct_size != sizeof *o)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "struct_size is not set: start from esp_cluster_random_opts_default");
    if (o->model_bytes < 0)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "model_bytes is negative");
    if (o->max_groups < 1 || o->max_groups > MOST_GROUPS)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "max_groups is not from 1 to %d",
                          (int)MOST_GROUPS);
    if (o->stop_devices < 1)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "stop_devices is less than 1");
    if (o->exact_devices < 0 || o->exact_devices > MOST_PER_GROUP_EXACT * o->max_groups)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "exact_devices is not from 0 to %d * max_groups",
                          (int)MOST_PER_GROUP_EXACT);
    return ESP_OK;
}

static int64_t pick_intra(esp_i_rng_t *rng)
{
    return intra_bytes_per_s[esp_i_rng_below(rng, N_OF(intra_bytes_per_s))];
}

/* Groups until there are enough devices, or memory for two models and a coin says so. */
static void draw_training(const esp_cluster_random_opts_t *o, esp_i_rng_t *rng, plan_t *plan)
{
    int64_t memory_gib = 0;
    int32_t devices = 0;
    while (plan->n < o->max_groups && devices < o->stop_devices) {
        bool enough = (memory_gib << 30) / 2 > o->model_bytes;
        if (plan->n >= 2 && enough && esp_i_rng_below(rng, 2) == 0)
            break;
        random_group_t *group = &plan->group[plan->n++];
        group->gpu = (int32_t)esp_i_rng_below(rng, N_OF(gpus));
        group->count = counts[esp_i_rng_below(rng, N_OF(counts))];
        group->intra_bytes_per_s = pick_intra(rng);
        devices += group->count;
        memory_gib += group->count * gpus[group->gpu].usable_gib;
    }
    for (int32_t i = 0; i < plan->n; i++)
        plan->group[i].rack = (int32_t)esp_i_rng_below(rng, plan->n);
}

/* Groups of one to four devices that sum to the number asked for. */
static void draw_exact(const esp_cluster_random_opts_t *o, esp_i_rng_t *rng, plan_t *plan)
{
    int64_t intra = pick_intra(rng);
    plan->one_inter = true;
    plan->inter_bytes_per_s =
        esp_i_rng_below(rng, 2) == 0 ? same_rack_bytes_per_s : other_rack_bytes_per_s;
    for (int32_t left = o->exact_devices; left > 0;) {
        /* No fewer than what the groups to come could not hold. */
        int64_t later = (int64_t)MOST_PER_GROUP_EXACT * (o->max_groups - plan->n - 1);
        int64_t low = esp_i_max_i64(1, left - later);
        int64_t high = esp_i_min_i64(left, MOST_PER_GROUP_EXACT);
        random_group_t *group = &plan->group[plan->n++];
        group->gpu = (int32_t)esp_i_rng_below(rng, N_OF(gpus));
        group->count = (int32_t)(low + esp_i_rng_below(rng, high - low + 1));
        group->intra_bytes_per_s = intra;
        left -= group->count;
    }
}

static esp_status_t add_cable(esp_cluster_builder_t *builder, int32_t a, int32_t b,
                              int64_t bytes_per_s, esp_diag_t *diag)
{
    esp_cluster_link_t link = {
        .src = a, .dst = b, .bytes_per_s = (double)bytes_per_s, .latency_ns = latency_ns};
    return esp_cluster_builder_add_cable(builder, &link, diag);
}

static esp_status_t build_group(esp_cluster_builder_t *builder, int32_t index,
                                random_group_t *group, esp_diag_t *diag)
{
    char name[32], part[48];
    int32_t device[8];
    esp_cluster_device_t d = {.memory_bytes = gpus[group->gpu].usable_gib << 30};
    (void)snprintf(name, sizeof name, "group%d", (int)index);
    (void)snprintf(part, sizeof part, "%s/hub", name);
    ESP_TRY(esp_cluster_builder_use_type(builder, gpus[group->gpu].type, &d.type, diag));
    ESP_TRY(esp_cluster_builder_add_node(builder, name, &d.node, diag));
    ESP_TRY(
        esp_cluster_builder_add_vertex(builder, ESP_VERTEX_HUB, part, d.node, &group->hub, diag));
    d.hub = group->hub;
    d.name = part;
    for (int32_t i = 0; i < group->count; i++) {
        (void)snprintf(part, sizeof part, "%s/gpu%d", name, (int)i);
        ESP_TRY(esp_cluster_builder_add_device(builder, &d, &device[i], diag));
    }
    for (int32_t i = 0; i < group->count; i++)
        for (int32_t j = i + 1; j < group->count; j++)
            ESP_TRY(add_cable(builder, device[i], device[j], group->intra_bytes_per_s, diag));
    return esp_cluster_builder_add_group(builder, name, group->count, device, diag);
}

static esp_status_t build(esp_cluster_builder_t *builder, plan_t *plan, esp_diag_t *diag)
{
    for (int32_t i = 0; i < plan->n; i++)
        ESP_TRY(build_group(builder, i, &plan->group[i], diag));
    for (int32_t i = 0; i < plan->n; i++)
        for (int32_t j = i + 1; j < plan->n; j++) {
            bool near = plan->group[i].rack == plan->group[j].rack;
            int64_t inter = near ? same_rack_bytes_per_s : other_rack_bytes_per_s;
            if (plan->one_inter)
                inter = plan->inter_bytes_per_s;
            ESP_TRY(add_cable(builder, plan->group[i].hub, plan->group[j].hub, inter, diag));
        }
    return ESP_OK;
}

esp_status_t esp_cluster_random(const esp_cluster_random_opts_t *opts,
                                const esp_allocator_t *allocator, esp_cluster_t **cluster_out,
                                esp_diag_t *diag)
{
    ESP_TRY(check_opts(opts, diag));
    esp_i_rng_t rng;
    plan_t plan = {0};
    esp_i_rng_seed(&rng, opts->seed);
    if (opts->exact_devices > 0)
        draw_exact(opts, &rng, &plan);
    else
        draw_training(opts, &rng, &plan);
    char name[48];
    esp_cluster_builder_t *builder;
    (void)snprintf(name, sizeof name, "random-%" PRIu64, opts->seed);
    ESP_TRY(esp_cluster_builder_create(name, allocator, &builder, diag));
    esp_status_t status = build(builder, &plan, diag);
    if (status == ESP_OK)
        status = esp_cluster_builder_freeze(builder, 0, cluster_out, diag);
    esp_cluster_builder_destroy(builder);
    return status;
}
