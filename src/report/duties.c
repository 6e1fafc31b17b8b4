/* What each device group does in a plan, in a sentence. */
#include "report/run.h"

#include <stdio.h>
#include <string.h>

/* ---- work --------------------------------------------------------------------------------- */

/* The mesh on which a compute task runs: that of its first result. */
static int32_t task_mesh(const esp_deployment_t *d, int32_t task)
{
    for (int32_t i = d->write_offset[task]; i < d->write_offset[task + 1]; i++)
        if (d->write_buffer[i] != ESP_NONE)
            return d->value_mesh[d->buffer_value[d->write_buffer[i]]];
    return ESP_NONE;
}

/* What part of its op a task does on each device of its class: units of all units. */
static void task_part(const esp_deployment_t *d, int32_t task, int64_t *units_out, int64_t *all_out)
{
    int32_t mesh = task_mesh(d, task);
    *units_out = *all_out = 1;
    if (mesh == ESP_NONE || d->task_mode[task] == ESP_MODE_WHOLE)
        return;
    int32_t begin = d->mesh_offset[mesh], end = d->mesh_offset[mesh + 1];
    if (d->task_mode[task] == ESP_MODE_SHARD) {
        *all_out = end - begin;
        return;
    }
    *all_out = 0;
    for (int32_t i = begin; i < end; i++) {
        *all_out += d->mesh_units[i];
        if (d->device_class[d->mesh_device[i]] == d->task_class[task])
            *units_out = d->mesh_units[i];
    }
}

/* Of the batch: its units are those of a micro-batch, so they divide it. No product overflows. */
static int64_t samples_of(int64_t batch, int64_t units, int64_t all)
{
    return batch / all * units + (int64_t)((double)(batch % all) * (double)units / (double)all);
}

static void count_task(const esp_deployment_t *d, int32_t task, double *total, esp_i_duty_t *duty)
{
    const esp_graph_t *graph = d->graph;
    esp_op_id_t op = d->task_op[task];
    int32_t class = d->task_class[task];
    int64_t units, all;
    task_part(d, task, &units, &all);
    bool split = d->task_mode[task] == ESP_MODE_BATCH && all > units;
    double flop = graph->op_flops[op] * (double)units / (double)all / d->micro_batches;
    uint64_t seen = 0; /* groups beyond 63 are counted once per device: a count of ops, no more */
    for (int32_t i = d->class_offset[class]; i < d->class_offset[class + 1]; i++) {
        int32_t group = d->cluster->device_group[d->class_device[i]];
        esp_i_duty_t *g = &duty[group];
        g->work += flop;
        *total += flop;
        if (group < 64 && (seen >> group & 1) != 0)
            continue;
        seen |= group < 64 ? (uint64_t)1 << group : 0;
        if (graph->op_phase[op] == ESP_PHASE_UPDATE || d->task_micro[task] > 0 ||
            graph->op_flops[op] <= 0)
            continue;
        g->split_ops += split;
        g->whole_ops += !split;
        if (!split)
            continue;
        int64_t samples =
            samples_of(graph->batch > 0 ? graph->batch : graph->op_batch[op].b, units, all);
        g->units_min = g->units_min == 0 ? samples : esp_i_min_i64(g->units_min, samples);
        g->units_max = esp_i_max_i64(g->units_max, samples);
    }
}

/* ---- parameters --------------------------------------------------------------------------- */

static int32_t mesh_size(const esp_strategy_t *s, esp_op_id_t op)
{
    return op == ESP_NONE || s->op_mesh[op] == ESP_NONE ? 0 : s->mesh[s->op_mesh[op]].n;
}

static esp_i_home_t home_of(const esp_graph_t *graph, const esp_strategy_t *s, int32_t parameter)
{
    esp_op_id_t update = graph->update[parameter];
    esp_tensor_id_t gradient = graph->gradient[parameter];
    esp_op_id_t producer = gradient == ESP_NONE ? ESP_NONE : graph->tensor_producer[gradient];
    int32_t replicas = mesh_size(s, producer);
    if (mesh_size(s, update) == 1)
        return replicas > 1 ? ESP_I_HOME_SERVED : ESP_I_HOME_ALONE;
    if (s->op_mode[update] == ESP_MODE_SHARD)
        return ESP_I_HOME_SHARDED;
    return producer != ESP_NONE && replicas > 0 && s->op_mode[producer] == ESP_MODE_WHOLE
               ? ESP_I_HOME_DUPLICATED
               : ESP_I_HOME_ALLREDUCED;
}

static void count_parameters(const esp_graph_t *graph, const esp_cluster_t *cluster,
                             const esp_strategy_t *s, esp_i_duty_t *duty)
{
    for (int32_t p = 0; p < graph->n_parameters; p++) {
        int32_t mesh = s->op_mesh[graph->update[p]];
        int32_t before = ESP_NONE;
        if (mesh == ESP_NONE)
            continue;
        for (int32_t i = 0; i < s->mesh[mesh].n; i++) {
            int32_t group = cluster->device_group[s->mesh[mesh].device[i]];
            if (group != before) /* devices of a group are neighbours in a mesh, as a rule */
                duty[group].home_bytes[home_of(graph, s, p)] +=
                    graph->tensor_bytes[graph->parameter[p]];
            before = group;
        }
    }
}

void esp_i_duties(const esp_deployment_t *deployment, const esp_strategy_t *strategy,
                  esp_i_duty_t *duty_out)
{
    double total = 0;
    memset(duty_out, 0, (size_t)deployment->cluster->n_groups * sizeof *duty_out);
    for (int32_t t = 0; t < deployment->n_tasks; t++)
        if (deployment->task_kind[t] == ESP_TASK_COMPUTE)
            count_task(deployment, t, &total, duty_out);
    for (int32_t group = 0; group < deployment->cluster->n_groups; group++)
        duty_out[group].work = total > 0 ? duty_out[group].work / total : 0;
    count_parameters(deployment->graph, deployment->cluster, strategy, duty_out);
}

int32_t esp_i_ghost_ops(const esp_graph_t *graph, const esp_strategy_t *strategy)
{
    int32_t count = 0;
    for (esp_op_id_t op = 0; op < graph->n_ops && !strategy->sync_batchnorm; op++)
        if (graph->op_kind[op] == ESP_KIND_BN_STATS)
            count += strategy->micro_batches > 1 ||
                     (mesh_size(strategy, op) > 1 && strategy->op_mode[op] == ESP_MODE_BATCH);
    return count;
}

/* ---- sentences ---------------------------------------------------------------------------- */

static void add(char *line, size_t capacity, const char *format, const char *a, const char *b)
{
    size_t length = strlen(line);
    (void)snprintf(line + length, capacity - length, format, a, b);
}

static void add_split(const esp_i_duty_t *duty, int64_t batch, char *line, size_t capacity)
{
    char samples[64], of[32];
    if (duty->split_ops == 0)
        return;
    if (duty->units_min == duty->units_max)
        (void)snprintf(samples, sizeof samples, "%lld", (long long)duty->units_min);
    else
        (void)snprintf(samples, sizeof samples, "%lld to %lld", (long long)duty->units_min,
                       (long long)duty->units_max);
    (void)snprintf(of, sizeof of, "%lld", (long long)batch);
    add(line, capacity, "; %s of %s samples on each device", samples, of);
}

static void add_homes(const esp_i_duty_t *duty, char *line, size_t capacity)
{
    static const char *const texts[ESP_I_HOME_COUNT] = {
        [ESP_I_HOME_ALONE] = "; parameters at home on one device without synchronisation: %s%s",
        [ESP_I_HOME_ALLREDUCED] = "; gradients all-reduced for parameters of %s%s",
        [ESP_I_HOME_SERVED] = "; parameter server for %s%s",
        [ESP_I_HOME_SHARDED] = "; sharded with their optimizer state: parameters of %s%s",
        [ESP_I_HOME_DUPLICATED] = "; gradients computed on every device for parameters of %s%s",
    };
    for (int32_t home = 0; home < ESP_I_HOME_COUNT; home++) {
        char bytes[32];
        esp_i_format_bytes(duty->home_bytes[home], bytes);
        if (duty->home_bytes[home] > 0)
            add(line, capacity, texts[home], bytes, "");
    }
}

/* What a group does, in words that are equal for groups that do the same. */
static void describe(const esp_deployment_t *d, const esp_i_duty_t *duty, char *line,
                     size_t capacity)
{
    char number[32];
    line[0] = '\0';
    if (duty->split_ops + duty->whole_ops == 0 && !(duty->work > 0)) {
        add(line, capacity, "not used%s%s", "", "");
        return;
    }
    esp_i_report_percent(duty->work, number);
    add(line, capacity, "%s of the work%s", number, "");
    add_split(duty, d->graph->batch, line, capacity);
    (void)snprintf(number, sizeof number, "%d", (int)duty->whole_ops);
    if (duty->whole_ops > 0)
        add(line, capacity, "; %s ops undivided%s", number, "");
    add_homes(duty, line, capacity);
}

static int32_t group_size(const esp_cluster_t *cluster, int32_t group)
{
    return cluster->group_offset[group + 1] - cluster->group_offset[group];
}

static int32_t group_type(const esp_cluster_t *cluster, int32_t group)
{
    return cluster->device_type[cluster->group_device[cluster->group_offset[group]]];
}

void esp_i_put_duties(const esp_deployment_t *deployment, const esp_i_duty_t *duty,
                      esp_i_text_t *text)
{
    const esp_cluster_t *cluster = deployment->cluster;
    for (int32_t group = 0, end; group < cluster->n_groups; group = end) {
        char body[1024], other[1024], line[1536];
        int32_t n = group_size(cluster, group), type = group_type(cluster, group);
        describe(deployment, &duty[group], body, sizeof body);
        for (end = group + 1; end < cluster->n_groups && n == group_size(cluster, end) &&
                              type == group_type(cluster, end);
             end++) {
            describe(deployment, &duty[end], other, sizeof other);
            if (strcmp(body, other) != 0)
                break;
        }
        if (end == group + 1)
            (void)snprintf(line, sizeof line, "%s (%d x %s): %s.", cluster->group_name[group],
                           (int)n, cluster->types[type].name, body);
        else
            (void)snprintf(line, sizeof line, "%s to %s (%d x %s each), each: %s.",
                           cluster->group_name[group], cluster->group_name[end - 1], (int)n,
                           cluster->types[type].name, body);
        esp_i_report_wrap(text, 2, line);
    }
}
