/* Reading cluster files: one source file per form. What the forms share is here. */
#ifndef ESP_CLUSTER_READ_H
#define ESP_CLUSTER_READ_H

#include "cluster/cluster.h"
#include "cluster/yaml.h"

/* A node of the `nodes:` form, one per replica. */
typedef struct esp_i_machine {
    const esp_i_yaml_node_t *entry; /* its description */
    const char *family;             /* the name in the description, shared by all replicas */
    const char *name;
    int32_t node;
    int32_t host;      /* vertex; -1: has none */
    bool reaches_host; /* its devices have links to the host */
    int32_t first_nic; /* vertices first_nic .. first_nic + n_nics - 1 */
    int32_t n_nics;
    bool nics_at_device;     /* not at the host */
    int64_t nic_bytes_per_s; /* of one NIC vertex */
    int64_t nic_latency_ns;
    /* How a device that needs a PCIe link gets it (host: or intra: of kind pcie); 0: not stated. */
    int64_t bus_bytes_per_s, bus_latency_ns;
} esp_i_machine_t;

typedef struct esp_i_reader {
    esp_i_yaml_t yaml;
    esp_i_arena_t arena; /* the tree and names under construction */
    esp_cluster_builder_t *builder;
    int64_t reserve_bytes; /* of the file; -1: the default */
    int32_t max_groups;    /* 0: the default */
    bool has_links;        /* the file has `links:` */
    ESP_VEC(esp_i_machine_t) machines;
} esp_i_reader_t;

/* A bandwidth and a latency, as `intra:`, `host:`, `uplink:` and others state them. */
typedef struct esp_i_speed {
    int64_t bytes_per_s, latency_ns;
} esp_i_speed_t;

/* read_types.c. All device types of a `types:` mapping, passed on one by one. */
typedef esp_status_t (*esp_i_type_fn)(void *context, const esp_device_type_t *type);
esp_status_t esp_i_read_types(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *types,
                              esp_i_type_fn fn, void *context);

/* read_common.c */
esp_status_t esp_i_read_bandwidth(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                                  int64_t *bytes_per_s_out);
esp_status_t esp_i_read_latency(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                                int64_t *latency_ns_out);
/* The keys bandwidth and latency of a mapping; both must be there. */
esp_status_t esp_i_read_speed(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *map,
                              esp_i_speed_t *speed_out);
esp_status_t esp_i_read_size(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node, int64_t low,
                             int64_t *bytes_out);
/* The key `name` of a mapping. */
esp_status_t esp_i_read_name(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *map,
                             const char **name_out);
/* The type named by the key `type` and the usable memory by `memory` or `reserve` of an entry, else
 * by `reserve` (-1: the default) bytes less than the type has. */
esp_status_t esp_i_read_device(esp_i_reader_t *r, const esp_i_yaml_node_t *entry, int64_t reserve,
                               esp_cluster_device_t *device_out);
/* Adds "<owner>/<kind><index>". */
esp_status_t esp_i_read_add_device(esp_i_reader_t *r, const esp_i_yaml_node_t *entry,
                                   const char *owner, int32_t index, esp_cluster_device_t *device,
                                   int32_t *vertex_out);
/* Two opposite links, errors at `where`. */
esp_status_t esp_i_read_cable(esp_i_reader_t *r, const esp_i_yaml_node_t *where, int32_t a,
                              int32_t b, esp_i_speed_t speed);

/* Makes the host vertex of a machine unless it has one. */
esp_status_t esp_i_read_ensure_host(esp_i_reader_t *r, esp_i_machine_t *m);

/* The forms. `root` is the whole file, `node` the value of their key. */
esp_status_t esp_i_read_nodes(esp_i_reader_t *r, const esp_i_yaml_node_t *node);
esp_status_t esp_i_read_network(esp_i_reader_t *r, const esp_i_yaml_node_t *node);
esp_status_t esp_i_read_switches(esp_i_reader_t *r, const esp_i_yaml_node_t *node);
esp_status_t esp_i_read_links(esp_i_reader_t *r, const esp_i_yaml_node_t *node);
esp_status_t esp_i_read_matrix(esp_i_reader_t *r, const esp_i_yaml_node_t *groups,
                               const esp_i_yaml_node_t *inter);
esp_status_t esp_i_read_graph(esp_i_reader_t *r, const esp_i_yaml_node_t *node);

#endif
