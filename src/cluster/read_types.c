/* Device types: the `types:` mapping of cluster files and of the catalogue. */
#include "cluster/read.h"

#include <string.h>

/* What a type has that does not say otherwise; figures for planning before anything is measured. */
static const int64_t default_launch_ns[] = {5000, 1000}; /* gpu, cpu */
/* A processor moves what it sends with its own cores: about one copy at 10 GB/s. */
static const int64_t default_comm_as_per_byte[] = {0, 100000000}; /* gpu, cpu */

/* An optional quantity: `value` stays as it is if the key is missing. */
static esp_status_t optional(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *map,
                             const char *key, esp_i_quantity_t quantity, int64_t high,
                             int64_t *value)
{
    const esp_i_yaml_node_t *node = esp_i_yaml_get(map, key);
    return node == NULL ? ESP_OK : esp_i_yaml_quantity(yaml, node, quantity, 0, high, value);
}

static esp_status_t read_peaks(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                               esp_device_type_t *type)
{
    for (int32_t p = 0; p < ESP_PRECISION_COUNT; p++) {
        const char *key = esp_precision_name((esp_precision_t)p);
        const esp_i_yaml_node_t *peak = esp_i_yaml_get(node, key);
        int64_t flops = 0;
        if (p == ESP_PRECISION_FP32)
            ESP_TRY(esp_i_yaml_need(yaml, node, key, &peak));
        if (peak != NULL)
            ESP_TRY(esp_i_yaml_quantity(yaml, peak, ESP_I_SPEED, p == ESP_PRECISION_FP32 ? 1 : 0,
                                        INT64_C(1000000000000000000), &flops));
        type->peak_flops[p] = (double)flops;
    }
    return ESP_OK;
}

static esp_status_t read_type(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                              esp_device_type_t *type)
{
    static const char *const keys[] = {
        "kind",   "fp32",         "tf32",   "fp16", "bf16", "memory", "memory_bandwidth",
        "launch", "comm_compute", "source", NULL};
    static const char *const kinds[] = {"gpu", "cpu"};
    ESP_TRY(esp_i_yaml_keys(yaml, node, keys));
    *type = (esp_device_type_t){.name = node->key, .source = ""};
    const esp_i_yaml_node_t *value = esp_i_yaml_get(node, "kind");
    int32_t kind = 0;
    if (value != NULL)
        ESP_TRY(esp_i_yaml_word(yaml, value, kinds, 2, &kind));
    type->kind = kinds[kind];
    ESP_TRY(read_peaks(yaml, node, type));
    ESP_TRY(esp_i_yaml_need(yaml, node, "memory", &value));
    ESP_TRY(esp_i_read_size(yaml, value, 1, &type->memory_bytes));
    int64_t bandwidth, comm = default_comm_as_per_byte[kind];
    ESP_TRY(esp_i_yaml_need(yaml, node, "memory_bandwidth", &value));
    ESP_TRY(esp_i_read_bandwidth(yaml, value, &bandwidth));
    type->memory_bytes_per_s = (double)bandwidth;
    type->launch_ns = default_launch_ns[kind];
    ESP_TRY(
        optional(yaml, node, "launch", ESP_I_TIME, ESP_CLUSTER_MAX_LATENCY_NS, &type->launch_ns));
    ESP_TRY(optional(yaml, node, "comm_compute", ESP_I_TIME_PER_BYTE, INT64_C(1000000000000000000),
                     &comm));
    type->comm_compute_s_per_byte = (double)comm / 1e18;
    value = esp_i_yaml_get(node, "source");
    if (value != NULL && value->kind == ESP_I_YAML_SCALAR && value->text[0] == '\0')
        return ESP_OK; /* no source is a source that is not known */
    return value == NULL ? ESP_OK : esp_i_yaml_text(yaml, value, &type->source);
}

esp_status_t esp_i_read_types(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *types,
                              esp_i_type_fn fn, void *context)
{
    if (types->kind != ESP_I_YAML_MAP)
        return esp_i_yaml_fail(yaml, types, ESP_ERR_INVALID,
                               "a mapping from names of device types is needed here");
    for (const esp_i_yaml_node_t *node = types->first; node != NULL; node = node->next) {
        esp_device_type_t type;
        ESP_TRY(read_type(yaml, node, &type));
        ESP_TRY(esp_i_yaml_at(yaml, node, fn(context, &type)));
    }
    return ESP_OK;
}
