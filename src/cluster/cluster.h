/* Internal to the module: the builder and the parts that make a frozen cluster from it. */
#ifndef ESP_CLUSTER_INTERNAL_H
#define ESP_CLUSTER_INTERNAL_H

#include "espalier/cluster.h"
#include "base/base.h"

/* The file clusters/devices.yaml, compiled in (cmake/embed.cmake). */
extern const unsigned char esp_i_devices_yaml[];
extern const size_t esp_i_devices_yaml_length;

typedef struct esp_i_vertex {
    const char *name;
    esp_vertex_kind_t kind;
    int32_t node; /* -1: none */
    bool forwards;
    int32_t type;  /* the rest is for devices */
    int32_t hub;   /* vertex of the builder, or -1 */
    int32_t group; /* declared group, or -1 */
    int64_t memory_bytes;
} esp_i_vertex_t;

typedef struct esp_i_link {
    const char *name;
    int32_t src, dst; /* vertices of the builder */
    int64_t bytes_per_s;
    int64_t latency_ns;
} esp_i_link_t;

struct esp_cluster_builder {
    esp_i_arena_t arena; /* all texts */
    const char *name;
    esp_catalogue_t *catalogue; /* made when a type is first looked up there */
    esp_i_names_t type_names, node_names, vertex_names, link_names, group_names;
    esp_i_names_t pair_names; /* "src->dst" of the links without a name of their own */
    ESP_VEC(esp_device_type_t) types;
    ESP_VEC(esp_i_vertex_t) vertices;
    ESP_VEC(esp_i_link_t) links;
    ESP_VEC(int32_t) pair_count; /* links per pair name */
    int32_t n_devices;
};

/* A frozen cluster as it is allocated: `pub` is what the world sees. */
typedef struct esp_i_cluster {
    esp_cluster_t pub;
    esp_i_arena_t arena; /* every array and text */
} esp_i_cluster_t;

/* ---- rules (rules.c) ----------------------------------------------------------------------- */

/* Whether text is a name of at most `limit` bytes of the permitted set. */
bool esp_i_name_valid(const char *text, int32_t limit);
/* The same as an error that shows the text and says what is permitted. `what`: "node", ... */
esp_status_t esp_i_name_check(const char *what, const char *text, int32_t limit, esp_diag_t *diag);
esp_status_t esp_i_device_type_check(const esp_device_type_t *type, esp_diag_t *diag);
/* Devices and hubs pass nothing on of their own accord; all else does. */
bool esp_i_vertex_kind_forwards(esp_vertex_kind_t kind);
/* The candidate that differs least from text, if it is near enough to be meant; else NULL. */
const char *esp_i_nearest(const char *text, const char *const *candidates, int32_t n);

/* ---- freezing ------------------------------------------------------------------------------ */

/* Fills route_offset and route_link; all but routes and groups is in place (route.c). */
esp_status_t esp_i_cluster_route_all(esp_i_cluster_t *cluster, esp_diag_t *diag);
/* Fills device_group and the groups: the declared ones if declared[device] >= 0 (names by declared
 * index), else automatic ones (group.c). */
esp_status_t esp_i_cluster_group_all(esp_i_cluster_t *cluster, const int32_t *declared,
                                     const char *const *declared_names, int32_t max_groups,
                                     esp_diag_t *diag);

/* What the text of a cluster contains besides the facts (dump.c). */
void esp_i_cluster_write(const esp_cluster_t *cluster, bool with_sources, esp_i_text_t *text);

#endif
