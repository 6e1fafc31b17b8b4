/*
 * Builds a cluster in code: two workstations on one switch, and asks for the routes between their
 * devices. Prints the canonical YAML, which `espalier plan -c` reads.
 */
#include <espalier/cluster.h>

#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        esp_status_t status_ = (call);                                                             \
        if (status_ != ESP_OK)                                                                     \
            return status_;                                                                        \
    } while (0)

/* A workstation: one GPU and its host, which is cabled to the switch. */
static esp_status_t add_node(esp_cluster_builder_t *builder, const char *name, const char *type,
                             int32_t lan, esp_diag_t *diag)
{
    char device_name[64], host_name[64];
    int32_t node, type_id, device, host;
    (void)snprintf(device_name, sizeof device_name, "%s/gpu0", name);
    (void)snprintf(host_name, sizeof host_name, "%s/host", name);
    TRY(esp_cluster_builder_add_node(builder, name, &node, diag));
    TRY(esp_cluster_builder_use_type(builder, type, &type_id, diag));
    esp_cluster_device_t gpu = {
        .name = device_name,
        .type = type_id,
        .node = node,
        .memory_bytes = INT64_C(9) << 30,
        .hub = -1,
    };
    TRY(esp_cluster_builder_add_device(builder, &gpu, &device, diag));
    TRY(esp_cluster_builder_add_vertex(builder, ESP_VERTEX_HOST, host_name, node, &host, diag));
    esp_cluster_link_t pcie = {NULL, device, host, 12e9, 5000};
    esp_cluster_link_t ethernet = {NULL, host, lan, 125e6, 25000};
    TRY(esp_cluster_builder_add_cable(builder, &pcie, diag));
    return esp_cluster_builder_add_cable(builder, &ethernet, diag);
}

static esp_status_t build(esp_cluster_builder_t **builder, esp_cluster_t **cluster,
                          esp_diag_t *diag)
{
    int32_t lan;
    TRY(esp_cluster_builder_create("pair", NULL, builder, diag));
    TRY(esp_cluster_builder_add_vertex(*builder, ESP_VERTEX_SWITCH, "lan", -1, &lan, diag));
    TRY(add_node(*builder, "left", "gtx1080ti", lan, diag));
    TRY(add_node(*builder, "right", "rtx2080ti", lan, diag));
    return esp_cluster_builder_freeze(*builder, 0, cluster, diag);
}

int main(void)
{
    esp_cluster_builder_t *builder = NULL;
    esp_cluster_t *cluster = NULL;
    esp_diag_t diag = {0};
    char *yaml = NULL, text[1024];
    esp_status_t status = build(&builder, &cluster, &diag);
    if (status == ESP_OK)
        status = esp_cluster_dump(cluster, NULL, &yaml, &diag);
    if (status == ESP_OK) {
        (void)printf("# %s to %s: %.0f MB/s, %lld us\n%s", cluster->vertex_name[0],
                     cluster->vertex_name[1], esp_cluster_route_bytes_per_s(cluster, 0, 1) / 1e6,
                     (long long)esp_cluster_route_latency_ns(cluster, 0, 1) / 1000, yaml);
    } else {
        (void)esp_diag_format(&diag, text, sizeof text);
        (void)fprintf(stderr, "%s\n", text);
    }
    free(yaml);
    esp_cluster_destroy(cluster);
    esp_cluster_builder_destroy(builder);
    return status == ESP_OK ? 0 : 1;
}
