/*
 * espalier/cluster.h: devices, links, routes and device groups of the machines that train.
 *
 * A cluster is a directed multigraph. Its vertices are devices, switches, host bridges and NICs,
 * its edges are links with a bandwidth and a latency. It comes from a YAML file (docs/clusters.md),
 * from a builder or from the generator of random clusters, and never changes afterwards: every
 * array below is read-only and lives until esp_cluster_destroy.
 *
 * Conventions: ids are dense and start at 0; time is in nanoseconds, sizes in bytes, bandwidths in
 * bytes per second (whole numbers, held as doubles so that they divide well), speeds in FLOP/s (one
 * multiply-add is two). Texts are NUL-terminated, never NULL; names are unique among their kind and
 * consist of the bytes [A-Za-z0-9_.+:#<>/-], at most ESP_CLUSTER_MAX_NAME of them (links and
 * groups: ESP_CLUSTER_MAX_LONG_NAME).
 *
 * Reading a file, and asking for a route:
 *
 *     esp_cluster_t *cluster;
 *     esp_diag_t diag = {0};
 *     if (esp_cluster_load("lab.yaml", NULL, &cluster, &diag) != ESP_OK)
 *         ... esp_diag_format(&diag, ...) says "lab.yaml:7:31: nodes[0].intra.bandwidth: ..."
 *     double bytes_per_s = esp_cluster_route_bytes_per_s(cluster, 0, 1);
 *     esp_cluster_destroy(cluster);
 *
 * Threads: a cluster may be read by any number of threads; a builder belongs to one at a time.
 * There is no hidden state: equal inputs give equal clusters, on every machine and in every locale.
 *
 * Errors: every function with a status writes its outputs on success only, and fills `diag` (which
 * may be NULL) on failure. ESP_ERR_NOMEM may come from each of them and is not repeated below.
 */
#ifndef ESPALIER_CLUSTER_H
#define ESPALIER_CLUSTER_H

#include "espalier/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- limits: exceeding one is ESP_ERR_LIMIT -------------------------------------------------- */

enum {
    ESP_CLUSTER_MAX_DEVICES = 1024,
    ESP_CLUSTER_MAX_VERTICES = 8192, /* devices included */
    ESP_CLUSTER_MAX_LINKS = 65536,   /* directed: a cable is two */
    ESP_CLUSTER_MAX_TYPES = 256,     /* the catalogue's types that are not used do not count */
    ESP_CLUSTER_MAX_HOPS = 32,       /* links in one route */
    ESP_CLUSTER_MAX_NAME = 95,       /* bytes of a name */
    ESP_CLUSTER_MAX_LONG_NAME = 319, /* of a link or a group: they contain other names */
    ESP_CLUSTER_DEFAULT_MAX_GROUPS = 8
};
#define ESP_CLUSTER_MAX_FILE_BYTES   (INT64_C(16) << 20)    /* of a YAML file */
#define ESP_CLUSTER_MAX_BYTES_PER_S  1e15                   /* of a link; at least 1 */
#define ESP_CLUSTER_MAX_LATENCY_NS   INT64_C(1000000000000) /* of a link; at least 0 */
#define ESP_CLUSTER_MAX_MEMORY_BYTES (INT64_C(1) << 50)
/* Memory that a GPU keeps for its driver unless the file says otherwise: this, or an eighth of its
 * memory if that is less. Nothing is reserved on a CPU. */
#define ESP_CLUSTER_DEFAULT_RESERVE_BYTES (INT64_C(1) << 30)

/* ---- device types -------------------------------------------------------------------------- */

/* Arithmetic in which a device multiplies. The text is the key of YAML files and of JSON output. */
#define ESP_PRECISION_MAP(X)                                                                       \
    X(ESP_PRECISION_FP32, "fp32") /* IEEE single, without tensor cores */                          \
    X(ESP_PRECISION_TF32, "tf32") /* single inputs rounded to 10 mantissa bits */                  \
    X(ESP_PRECISION_FP16, "fp16") /* half inputs, single sums */                                   \
    X(ESP_PRECISION_BF16, "bf16") /* bfloat16 inputs, single sums */

typedef enum esp_precision {
#define ESP_PRECISION_ENUM(name, text) name,
    ESP_PRECISION_MAP(ESP_PRECISION_ENUM)
#undef ESP_PRECISION_ENUM
        ESP_PRECISION_COUNT
} esp_precision_t;

/* "fp32" ...; "?" for a value that is no precision. Never NULL, static. */
ESP_PUBLIC const char *esp_precision_name(esp_precision_t precision);

/* What one kind of accelerator or processor can do, from its public data sheet. */
typedef struct esp_device_type {
    const char *name; /* "a100-sxm-80" */
    const char *kind; /* "gpu" or "cpu" */
    /* Dense peak in FLOP/s (no sparsity). 0: no unit of its own; esp_device_type_flops says which
     * peak stands in. FP32 is always > 0. */
    double peak_flops[ESP_PRECISION_COUNT];
    int64_t memory_bytes;           /* as built, before any reserve; > 0 */
    double memory_bytes_per_s;      /* peak of the device's own memory; > 0 */
    int64_t launch_ns;              /* from the submission of a kernel to its start; >= 0 */
    double comm_compute_s_per_byte; /* compute time that one transferred byte takes at each end of
                                     * tasks that run meanwhile; 0 where transfers need no cores
                                     * (GPUs); >= 0 */
    const char *source;             /* where the figures come from; may be "" */
} esp_device_type_t;

/*
 * Peak FLOP/s of `type` in `precision`; where the type states none, that of the arithmetic which
 * would be used instead: TF32, FP16 and BF16 fall back to FP32. Always > 0. O(1).
 */
ESP_PUBLIC double esp_device_type_flops(const esp_device_type_t *type, esp_precision_t precision);

/* The device types that the library knows; see clusters/devices.yaml. */
typedef struct esp_catalogue {
    int32_t n_types;
    const esp_device_type_t *types; /* in the order of the file */
} esp_catalogue_t;

/*
 * Makes the catalogue that is compiled into the library. On success *catalogue_out is the caller's,
 * for esp_catalogue_destroy. Errors: ESP_ERR_NOMEM. O(size of the file), about a millisecond.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_catalogue_create(const esp_allocator_t *allocator,
                                                           esp_catalogue_t **catalogue_out,
                                                           esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_catalogue_destroy(esp_catalogue_t *catalogue);
/* The type of that name, or NULL; it lives as long as the catalogue. O(n_types). */
ESP_PUBLIC const esp_device_type_t *esp_catalogue_find(const esp_catalogue_t *catalogue,
                                                       const char *name);

/* ---- the cluster --------------------------------------------------------------------------- */

/* What a vertex is. The text is the key of YAML files and of JSON output. */
#define ESP_VERTEX_MAP(X)                                                                          \
    X(ESP_VERTEX_DEVICE, "device")                                                                 \
    X(ESP_VERTEX_HOST, "host")     /* PCIe root complex and memory of a node */                    \
    X(ESP_VERTEX_NIC, "nic")       /* network adapter of a node */                                 \
    X(ESP_VERTEX_SWITCH, "switch") /* inside a node (NVSwitch) or between nodes */                 \
    X(ESP_VERTEX_HUB, "hub")       /* stands for all its devices at once, see device_hub */

typedef enum esp_vertex_kind {
#define ESP_VERTEX_ENUM(name, text) name,
    ESP_VERTEX_MAP(ESP_VERTEX_ENUM)
#undef ESP_VERTEX_ENUM
        ESP_VERTEX_KIND_COUNT
} esp_vertex_kind_t;

/* "device" ...; "?" for a value that is no kind. Never NULL, static. */
ESP_PUBLIC const char *esp_vertex_kind_name(esp_vertex_kind_t kind);

/*
 * The frozen cluster: struct-of-arrays over dense ids. `vertex_` arrays have n_vertices elements,
 * `device_` arrays n_devices, and so on; `_offset` arrays have one more than what they index (CSR).
 */
typedef struct esp_cluster {
    const char *name;

    int32_t n_types; /* only types that are used */
    const esp_device_type_t *types;

    /* Vertices [0, n_devices) are the devices; the others follow. */
    int32_t n_vertices;
    const char *const *vertex_name; /* "dgx0/gpu3", "dgx0/host", "dgx0/nic0", "net/leaf1" */
    const esp_vertex_kind_t *vertex_kind;
    const int32_t *vertex_node;     /* node id; -1: outside all nodes */
    const uint8_t *vertex_forwards; /* 1: other devices' traffic may pass through. Switches,
                                     * hosts and NICs forward; devices and hubs do not unless
                                     * the file says so */

    int32_t n_devices;          /* 1 .. ESP_CLUSTER_MAX_DEVICES */
    const int32_t *device_type; /* index into types */
    const int32_t *device_group;
    const int32_t *device_node;         /* >= 0; the head of vertex_node */
    const int64_t *device_memory_bytes; /* usable: after the reserve; > 0 */
    /* A vertex from whose links this device's transfers may start and at whose links they may end,
     * at no cost; -1: none. The matrix form uses it: the one link between two groups is shared by
     * all pairs of their devices and a route consists of that link alone. */
    const int32_t *device_hub;

    int32_t n_nodes; /* machines; in the matrix form, groups */
    const char *const *node_name;

    int32_t n_links;                    /* directed */
    const int32_t *link_src, *link_dst; /* vertices; never equal */
    const double *link_bytes_per_s;     /* a whole number in [1, ESP_CLUSTER_MAX_BYTES_PER_S] */
    const int64_t *link_latency_ns;     /* in [0, ESP_CLUSTER_MAX_LATENCY_NS] */
    const char *const *link_name;       /* "pc0/host->switch" unless named in the file */

    /* The route from device s to device d is route_link[route_offset[s * n_devices + d] ..
     * route_offset[s * n_devices + d + 1]): links in travel order, empty for s == d only. It has
     * the fewest links; among those the widest bottleneck; among those the lowest id as last link,
     * and so on towards s: each route extends the route to the vertex before its last link. */
    const int32_t *route_offset, *route_link;

    /* Device groups: every device is in exactly one. group_device[group_offset[g] ..
     * group_offset[g + 1]) are its devices, ascending; groups are ordered by their first device.
     * Devices of a group have the same type and usable memory. */
    int32_t n_groups;
    const int32_t *group_offset, *group_device;
    const char *const *group_name;
} esp_cluster_t;

/*
 * Reads a YAML file (docs/clusters.md). On success *cluster_out is the caller's, for
 * esp_cluster_destroy. Errors: ESP_ERR_IO (cannot be read), ESP_ERR_SYNTAX (no YAML, or anchors,
 * aliases, tags, several documents), ESP_ERR_INVALID (unknown or missing keys, wrong or missing
 * units, unknown device types, disconnected devices, ...), ESP_ERR_UNSUPPORTED, ESP_ERR_LIMIT,
 * ESP_ERR_NOMEM. `diag` gets the file, line, column and the path of keys
 * ("nodes[1].intra.bandwidth"). O(file + n_devices * (n_vertices + n_links)).
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_load(const char *path,
                                                       const esp_allocator_t *allocator,
                                                       esp_cluster_t **cluster_out,
                                                       esp_diag_t *diag);

/*
 * The same for a text in memory of `length` bytes (no NUL needed, not kept). `file_name` is for
 * messages only, may be NULL.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_parse(const char *text, size_t length,
                                                        const char *file_name,
                                                        const esp_allocator_t *allocator,
                                                        esp_cluster_t **cluster_out,
                                                        esp_diag_t *diag);

/* Accepts NULL. */
ESP_PUBLIC void esp_cluster_destroy(esp_cluster_t *cluster);

/*
 * Verifies every invariant stated above: ranges, names, CSR arrays, groups, and that each route is
 * a path along its links which no forbidden vertex forwards. Every constructor has called it in
 * debug builds; for a cluster that some other code put together. Errors: ESP_ERR_INVALID with the
 * first violation in `diag`. O(size of the cluster), allocates nothing.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_check(const esp_cluster_t *cluster,
                                                        esp_diag_t *diag);

/* ---- texts --------------------------------------------------------------------------------- */

/*
 * Writes the cluster as canonical YAML (the `graph:` form): every vertex, link and group, all
 * numbers in base units. Loading it gives a cluster that is equal in every field, and dumps to the
 * same bytes. *text_out is NUL-terminated and the caller's: released with the allocator's
 * `release`, or free() if it is NULL. Errors: ESP_ERR_NOMEM.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_dump(const esp_cluster_t *cluster,
                                                       const esp_allocator_t *allocator,
                                                       char **text_out, esp_diag_t *diag);

/*
 * SHA-256 (64 hex digits and a NUL) of what decides a plan: the canonical YAML without the sources
 * of the figures. Equal clusters hash alike however they were written down. Errors: ESP_ERR_NOMEM.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_hash(const esp_cluster_t *cluster,
                                                       const esp_allocator_t *allocator,
                                                       char hex_out[65], esp_diag_t *diag);

/*
 * Writes a Graphviz digraph: one cluster box per node, an edge per link; pairs of equal opposite
 * links are one edge with two heads. Ownership and errors as esp_cluster_dump.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_dot(const esp_cluster_t *cluster,
                                                      const esp_allocator_t *allocator,
                                                      char **text_out, esp_diag_t *diag);

/* ---- routes -------------------------------------------------------------------------------- */

/*
 * The route from device `src` to device `dst`: *links_out points at `returned` link ids inside the
 * cluster (nothing to release). 0 if and only if src == dst. Both must be in [0, n_devices).
 */
ESP_PUBLIC int32_t esp_cluster_route(const esp_cluster_t *cluster, int32_t src, int32_t dst,
                                     const int32_t **links_out);
/* Bytes per second of the narrowest link of the route; infinity for src == dst. O(hops). */
ESP_PUBLIC double esp_cluster_route_bytes_per_s(const esp_cluster_t *cluster, int32_t src,
                                                int32_t dst);
/* Sum of the latencies along the route; 0 for src == dst. O(hops). */
ESP_PUBLIC int64_t esp_cluster_route_latency_ns(const esp_cluster_t *cluster, int32_t src,
                                                int32_t dst);

/* The id of the vertex (devices included) of that name, or -1. O(n_vertices). */
ESP_PUBLIC int32_t esp_cluster_find_vertex(const esp_cluster_t *cluster, const char *name);

/* ---- building ------------------------------------------------------------------------------ */

/*
 * A cluster under construction: add nodes, types, devices, other vertices, links and, if the
 * automatic ones do not suit, groups; then freeze. All texts are copied. Ids that the add functions
 * return are the builder's: types, nodes, links and groups keep them, vertices are renumbered by
 * freeze (devices first, each kind in the order of addition). After an error the builder can still
 * be destroyed, and nothing was added.
 */
typedef struct esp_cluster_builder esp_cluster_builder_t;

/* A device, for the builder. */
typedef struct esp_cluster_device {
    const char *name;
    int32_t type;         /* from esp_cluster_builder_add_type or _use_type */
    int32_t node;         /* from esp_cluster_builder_add_node */
    int64_t memory_bytes; /* usable; in [1, ESP_CLUSTER_MAX_MEMORY_BYTES] */
    int32_t hub;          /* a vertex of kind ESP_VERTEX_HUB, or -1 */
    int32_t forwards;     /* not 0: other devices' traffic may pass through */
} esp_cluster_device_t;

/* One direction of a link, for the builder. */
typedef struct esp_cluster_link {
    const char *name; /* NULL: "src->dst", with "#2", "#3", ... for parallel links */
    int32_t src, dst; /* vertices, devices included; not equal */
    double bytes_per_s;
    int64_t latency_ns;
} esp_cluster_link_t;

/* An empty builder. Errors: ESP_ERR_NOMEM, ESP_ERR_INVALID (the name). */
ESP_NODISCARD ESP_PUBLIC esp_status_t
esp_cluster_builder_create(const char *name, const esp_allocator_t *allocator,
                           esp_cluster_builder_t **builder_out, esp_diag_t *diag);
/* Accepts NULL. */
ESP_PUBLIC void esp_cluster_builder_destroy(esp_cluster_builder_t *builder);

/*
 * Adds a type of the caller's. comm_compute_s_per_byte is rounded to 1e-18. A type that no device
 * uses is left out when the builder is frozen. *id_out is for esp_cluster_device_t. Errors:
 * ESP_ERR_INVALID (a field out of range, a name that is taken), ESP_ERR_LIMIT.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_builder_add_type(esp_cluster_builder_t *builder,
                                                                   const esp_device_type_t *type,
                                                                   int32_t *id_out,
                                                                   esp_diag_t *diag);
/*
 * The type of that name: one added before, else the catalogue's, which is then added. The first
 * look into the catalogue reads it, about a millisecond. Errors: ESP_ERR_INVALID (no such type;
 * `diag` names the nearest), ESP_ERR_LIMIT.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_builder_use_type(esp_cluster_builder_t *builder,
                                                                   const char *name,
                                                                   int32_t *id_out,
                                                                   esp_diag_t *diag);
/*
 * Adds a node: a machine, to which devices, hosts, NICs and inner switches belong. Errors:
 * ESP_ERR_INVALID (the name), ESP_ERR_LIMIT.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_builder_add_node(esp_cluster_builder_t *builder,
                                                                   const char *name,
                                                                   int32_t *id_out,
                                                                   esp_diag_t *diag);
/*
 * Adds a device. *vertex_out is its vertex, for links and groups; device ids count up in the order
 * of addition. Errors: ESP_ERR_INVALID (a field out of range, a name that is taken, a GPU with more
 * usable memory than its type has), ESP_ERR_LIMIT.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t
esp_cluster_builder_add_device(esp_cluster_builder_t *builder, const esp_cluster_device_t *device,
                               int32_t *vertex_out, esp_diag_t *diag);
/*
 * Adds a vertex of any kind but ESP_VERTEX_DEVICE. `node` is the node it belongs to, or -1 for what
 * is between nodes: that decides which nodes count as attached to the same switches when groups
 * merge. Errors: ESP_ERR_INVALID, ESP_ERR_LIMIT.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_builder_add_vertex(esp_cluster_builder_t *builder,
                                                                     esp_vertex_kind_t kind,
                                                                     const char *name, int32_t node,
                                                                     int32_t *vertex_out,
                                                                     esp_diag_t *diag);
/*
 * Adds one directed link; parallel links are fine. `id_out` may be NULL. The ids are those of the
 * frozen cluster. Errors: ESP_ERR_INVALID (an end that does not exist, a number out of range, a
 * name that is taken), ESP_ERR_LIMIT.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_builder_add_link(esp_cluster_builder_t *builder,
                                                                   const esp_cluster_link_t *link,
                                                                   int32_t *id_out,
                                                                   esp_diag_t *diag);
/* Two opposite links of the same bandwidth and latency; a given name gets the suffixes ">" and "<".
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_builder_add_cable(esp_cluster_builder_t *builder,
                                                                    const esp_cluster_link_t *link,
                                                                    esp_diag_t *diag);
/*
 * Declares a group of `n` devices (vertices of the builder; the array is copied). Either every
 * device is in exactly one declared group, or none is declared and freeze finds them. Errors:
 * ESP_ERR_INVALID (no members, not a device, twice or in another group, unlike in type or usable
 * memory, the name). O(n^2).
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_builder_add_group(esp_cluster_builder_t *builder,
                                                                    const char *name, int32_t n,
                                                                    const int32_t *devices,
                                                                    esp_diag_t *diag);

/*
 * Computes routes and groups and returns the immutable cluster; the builder remains the caller's
 * and stays as it is. Errors: ESP_ERR_INVALID (no device; two devices without a route, named in
 * `diag->place`; a bad group), ESP_ERR_LIMIT (a route of more than ESP_CLUSTER_MAX_HOPS links),
 * ESP_ERR_NOMEM.
 *
 * Automatic groups: the like devices (same type and usable memory) of a node are a group. If that
 * makes more than max_groups, groups of equal size whose nodes are alike merge, neighbours first,
 * by the least number that suffices: first nodes attached to the same switches, then wherever they
 * are attached, then of any size. Devices that differ in type or memory never share a group, so
 * there may be more than max_groups in the end. max_groups: >= 1, or 0 for
 * ESP_CLUSTER_DEFAULT_MAX_GROUPS.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t
esp_cluster_builder_freeze(const esp_cluster_builder_t *builder, int32_t max_groups,
                           esp_cluster_t **cluster_out, esp_diag_t *diag);

/* ---- random clusters ----------------------------------------------------------------------- */

/*
 * What esp_cluster_random draws: up to max_groups device groups of P100, 1080 Ti or V100 GPUs in
 * the matrix form. A group has one of several sizes and is connected inside by PCIe or NVLink; it
 * stands in a random rack, and two groups of the same rack have the faster link.
 */
typedef struct esp_cluster_random_opts {
    size_t struct_size; /* set by esp_cluster_random_opts_default */
    uint64_t seed;      /* default 0 */
    /* Bytes of a model with its optimizer state: with two groups or more, the drawing stops with
     * probability 1/2 once the memory exceeds twice this. >= 0; default 0: always exceeded. */
    int64_t model_bytes;
    int32_t max_groups;   /* 1 .. 64; default 4 */
    int32_t stop_devices; /* no further group once there are that many devices; >= 1; default 16 */
    /* 0 (default): as above. n >= 1: clusters of exactly n devices for tests of generalisation, in
     * groups of 1 to 4, all with one random bandwidth inside and one between groups. At most 64. */
    int32_t exact_devices;
} esp_cluster_random_opts_t;

/* The defaults that the fields state. Start from these: struct_size tells later versions apart. */
ESP_PUBLIC esp_cluster_random_opts_t esp_cluster_random_opts_default(void);

/*
 * Draws a cluster. The same options give the same cluster on every machine; its name states the
 * seed. Errors: ESP_ERR_ARGUMENT (an option out of range, named), ESP_ERR_NOMEM.
 */
ESP_NODISCARD ESP_PUBLIC esp_status_t esp_cluster_random(const esp_cluster_random_opts_t *opts,
                                                         const esp_allocator_t *allocator,
                                                         esp_cluster_t **cluster_out,
                                                         esp_diag_t *diag);

#ifdef __cplusplus
}
#endif
#endif
