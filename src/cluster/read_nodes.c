/* The `nodes:` form: machines, what is in them and how it is connected inside. */
#include "cluster/read.h"

#include <string.h>

/* How the devices of a node are connected. */
typedef enum shape {
    SHAPE_MESH,   /* a link for every pair of devices */
    SHAPE_SWITCH, /* through a switch of the node's own */
    SHAPE_HOST    /* through the host */
} shape_t;

static const char *const intra_words[] = {"nvlink", "xgmi", "mesh",   "nvswitch",
                                          "switch", "pcie", "memory", "host"};
static const shape_t intra_shapes[] = {SHAPE_MESH,   SHAPE_MESH, SHAPE_MESH, SHAPE_SWITCH,
                                       SHAPE_SWITCH, SHAPE_HOST, SHAPE_HOST, SHAPE_HOST};
enum { N_INTRA = sizeof intra_words / sizeof intra_words[0] };
_Static_assert(sizeof intra_shapes / sizeof intra_shapes[0] == N_INTRA, "one shape per word");

/* The devices of a machine are vertices first .. first + n - 1 of the builder. */
typedef struct span {
    int32_t first, n;
} span_t;

static esp_status_t add_vertex(esp_i_reader_t *r, const esp_i_machine_t *m, esp_vertex_kind_t kind,
                               const char *suffix, int32_t *vertex_out)
{
    const char *name = esp_i_arena_printf(&r->arena, "%s/%s", m->name, suffix);
    if (name == NULL)
        return esp_i_nomem(r->yaml.diag);
    return esp_i_yaml_at(
        &r->yaml, m->entry,
        esp_cluster_builder_add_vertex(r->builder, kind, name, m->node, vertex_out, r->yaml.diag));
}

esp_status_t esp_i_read_ensure_host(esp_i_reader_t *r, esp_i_machine_t *m)
{
    return m->host >= 0 ? ESP_OK : add_vertex(r, m, ESP_VERTEX_HOST, "host", &m->host);
}

/* ---- devices --------------------------------------------------------------------------------- */

static esp_status_t read_device_entry(esp_i_reader_t *r, const esp_i_machine_t *m,
                                      const esp_i_yaml_node_t *entry, int64_t reserve,
                                      int32_t next_index[2], span_t *devices)
{
    static const char *const keys[] = {"type", "count", "memory", "reserve", "forward", NULL};
    const esp_i_yaml_t *yaml = &r->yaml;
    esp_cluster_device_t device;
    int32_t count = 1;
    bool forward = false;
    ESP_TRY(esp_i_yaml_keys(yaml, entry, keys));
    ESP_TRY(esp_i_read_device(r, entry, reserve, &device));
    const esp_i_yaml_node_t *node = esp_i_yaml_get(entry, "count");
    if (node != NULL)
        ESP_TRY(esp_i_yaml_int(yaml, node, 1, ESP_CLUSTER_MAX_DEVICES, &count));
    node = esp_i_yaml_get(entry, "forward");
    if (node != NULL)
        ESP_TRY(esp_i_yaml_bool(yaml, node, &forward));
    device.node = m->node;
    device.forwards = forward;
    int32_t *index = &next_index[strcmp(r->builder->types.data[device.type].kind, "cpu") == 0];
    for (int32_t i = 0; i < count; i++) {
        int32_t vertex;
        ESP_TRY(esp_i_read_add_device(r, entry, m->name, (*index)++, &device, &vertex));
        if (devices->n++ == 0)
            devices->first = vertex;
    }
    return ESP_OK;
}

static esp_status_t read_devices(esp_i_reader_t *r, const esp_i_machine_t *m, span_t *devices)
{
    const esp_i_yaml_node_t *list, *node = esp_i_yaml_get(m->entry, "reserve");
    int64_t reserve = r->reserve_bytes;
    int32_t next_index[2] = {0, 0};
    *devices = (span_t){0, 0};
    if (node != NULL)
        ESP_TRY(esp_i_read_size(&r->yaml, node, 0, &reserve));
    ESP_TRY(esp_i_yaml_need(&r->yaml, m->entry, "devices", &list));
    ESP_TRY(esp_i_yaml_list(&r->yaml, list, "devices"));
    for (const esp_i_yaml_node_t *entry = list->first; entry != NULL; entry = entry->next)
        ESP_TRY(read_device_entry(r, m, entry, reserve, next_index, devices));
    return ESP_OK;
}

/* ---- inside ---------------------------------------------------------------------------------- */

/* A cable from every device to one vertex. */
static esp_status_t connect_star(esp_i_reader_t *r, const esp_i_yaml_node_t *where, span_t devices,
                                 int32_t centre, esp_i_speed_t speed)
{
    for (int32_t i = 0; i < devices.n; i++)
        ESP_TRY(esp_i_read_cable(r, where, devices.first + i, centre, speed));
    return ESP_OK;
}

static esp_status_t connect_mesh(esp_i_reader_t *r, const esp_i_yaml_node_t *where, span_t devices,
                                 esp_i_speed_t speed)
{
    for (int32_t i = 0; i < devices.n; i++)
        for (int32_t j = i + 1; j < devices.n; j++)
            ESP_TRY(esp_i_read_cable(r, where, devices.first + i, devices.first + j, speed));
    return ESP_OK;
}

static esp_status_t connect_host(esp_i_reader_t *r, esp_i_machine_t *m,
                                 const esp_i_yaml_node_t *where, span_t devices,
                                 esp_i_speed_t speed)
{
    ESP_TRY(esp_i_read_ensure_host(r, m));
    m->reaches_host = true;
    m->bus_bytes_per_s = speed.bytes_per_s;
    m->bus_latency_ns = speed.latency_ns;
    return connect_star(r, where, devices, m->host, speed);
}

static esp_status_t read_intra(esp_i_reader_t *r, esp_i_machine_t *m, span_t devices)
{
    static const char *const keys[] = {"kind", "bandwidth", "latency", NULL};
    const esp_i_yaml_node_t *kind, *intra = esp_i_yaml_get(m->entry, "intra");
    esp_i_speed_t speed;
    int32_t word, centre;
    if (intra == NULL)
        return ESP_OK;
    ESP_TRY(esp_i_yaml_keys(&r->yaml, intra, keys));
    ESP_TRY(esp_i_yaml_need(&r->yaml, intra, "kind", &kind));
    ESP_TRY(esp_i_yaml_word(&r->yaml, kind, intra_words, N_INTRA, &word));
    ESP_TRY(esp_i_read_speed(&r->yaml, intra, &speed));
    switch (intra_shapes[word]) {
    case SHAPE_MESH:
        return connect_mesh(r, intra, devices, speed);
    case SHAPE_SWITCH:
        ESP_TRY(add_vertex(r, m, ESP_VERTEX_SWITCH, intra_words[word], &centre));
        return connect_star(r, intra, devices, centre, speed);
    case SHAPE_HOST:
        return connect_host(r, m, intra, devices, speed);
    }
    return ESP_OK;
}

static esp_status_t read_host(esp_i_reader_t *r, esp_i_machine_t *m, span_t devices)
{
    static const char *const keys[] = {"bandwidth", "latency", NULL};
    const esp_i_yaml_node_t *host = esp_i_yaml_get(m->entry, "host");
    esp_i_speed_t speed;
    if (host == NULL)
        return ESP_OK;
    ESP_TRY(esp_i_yaml_keys(&r->yaml, host, keys));
    if (m->reaches_host)
        return esp_i_yaml_fail(&r->yaml, host, ESP_ERR_INVALID,
                               "'intra' of this kind connects the devices to the host already");
    ESP_TRY(esp_i_read_speed(&r->yaml, host, &speed));
    return connect_host(r, m, host, devices, speed);
}

/* ---- NICs ------------------------------------------------------------------------------------ */

typedef struct nics {
    const esp_i_yaml_node_t *node;
    int32_t count;
    bool at_device;
    esp_i_speed_t port; /* of one NIC */
    bool has_bus;
    esp_i_speed_t bus;
} nics_t;

static esp_status_t read_nic_keys(esp_i_reader_t *r, const esp_i_machine_t *m, nics_t *nics)
{
    static const char *const keys[] = {"count", "bandwidth", "latency", "at", "bus", NULL};
    static const char *const bus_keys[] = {"bandwidth", "latency", NULL};
    static const char *const places[] = {"host", "device"};
    const esp_i_yaml_t *yaml = &r->yaml;
    int32_t place;
    ESP_TRY(esp_i_yaml_keys(yaml, nics->node, keys));
    nics->count = 1;
    const esp_i_yaml_node_t *node = esp_i_yaml_get(nics->node, "count");
    if (node != NULL)
        ESP_TRY(esp_i_yaml_int(yaml, node, 1, ESP_CLUSTER_MAX_DEVICES, &nics->count));
    ESP_TRY(esp_i_read_speed(yaml, nics->node, &nics->port));
    place = nics->count > 1;
    node = esp_i_yaml_get(nics->node, "at");
    if (node != NULL)
        ESP_TRY(esp_i_yaml_word(yaml, node, places, 2, &place));
    nics->at_device = place == 1;
    node = esp_i_yaml_get(nics->node, "bus");
    nics->has_bus = node != NULL;
    if (node != NULL) {
        ESP_TRY(esp_i_yaml_keys(yaml, node, bus_keys));
        ESP_TRY(esp_i_read_speed(yaml, node, &nics->bus));
    } else if (nics->at_device && m->bus_bytes_per_s > 0) {
        nics->has_bus = true;
        nics->bus = (esp_i_speed_t){m->bus_bytes_per_s, m->bus_latency_ns};
    }
    return ESP_OK;
}

/* NIC k serves the k-th of equal blocks of devices and is reached from them alone. */
static esp_status_t add_device_nics(esp_i_reader_t *r, esp_i_machine_t *m, const nics_t *nics,
                                    span_t devices)
{
    if (!nics->has_bus)
        return esp_i_yaml_fail(&r->yaml, nics->node, ESP_ERR_INVALID,
                               "the NICs are at the devices, but nothing says how fast a device "
                               "reaches its NIC: add 'bus', or 'host' to the node");
    if (nics->count > devices.n)
        return esp_i_yaml_fail(&r->yaml, nics->node, ESP_ERR_INVALID,
                               "%d NICs at %d devices: at most one NIC per device",
                               (int)nics->count, (int)devices.n);
    m->n_nics = nics->count;
    m->nics_at_device = true;
    m->nic_bytes_per_s = nics->port.bytes_per_s;
    for (int32_t k = 0; k < nics->count; k++) {
        int32_t vertex;
        const char *name = esp_i_arena_printf(&r->arena, "nic%d", (int)k);
        if (name == NULL)
            return esp_i_nomem(r->yaml.diag);
        ESP_TRY(add_vertex(r, m, ESP_VERTEX_NIC, name, &vertex));
        if (k == 0)
            m->first_nic = vertex;
    }
    for (int32_t d = 0; d < devices.n; d++) {
        int32_t nic = m->first_nic + (int32_t)((int64_t)d * nics->count / devices.n);
        ESP_TRY(esp_i_read_cable(r, nics->node, devices.first + d, nic, nics->bus));
    }
    return ESP_OK;
}

/* All NICs of a host act as one of their joint bandwidth. */
static esp_status_t add_host_nic(esp_i_reader_t *r, esp_i_machine_t *m, const nics_t *nics)
{
    int64_t joint;
    if (!esp_i_mul_i64(nics->port.bytes_per_s, nics->count, &joint) ||
        joint > (int64_t)ESP_CLUSTER_MAX_BYTES_PER_S)
        return esp_i_yaml_fail(&r->yaml, nics->node, ESP_ERR_INVALID,
                               "the joint bandwidth of the NICs is out of range");
    esp_i_speed_t bus = nics->has_bus ? nics->bus : (esp_i_speed_t){joint, 0};
    ESP_TRY(esp_i_read_ensure_host(r, m));
    ESP_TRY(add_vertex(r, m, ESP_VERTEX_NIC, "nic0", &m->first_nic));
    m->n_nics = 1;
    m->nic_bytes_per_s = joint;
    return esp_i_read_cable(r, nics->node, m->host, m->first_nic, bus);
}

static esp_status_t read_nics(esp_i_reader_t *r, esp_i_machine_t *m, span_t devices)
{
    nics_t nics = {.node = esp_i_yaml_get(m->entry, "nics")};
    if (nics.node == NULL)
        return ESP_OK;
    ESP_TRY(read_nic_keys(r, m, &nics));
    m->nic_latency_ns = nics.port.latency_ns;
    return nics.at_device ? add_device_nics(r, m, &nics, devices) : add_host_nic(r, m, &nics);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static esp_status_t read_machine(esp_i_reader_t *r, const esp_i_yaml_node_t *entry,
                                 const char *family, const char *name)
{
    esp_i_machine_t m = {.entry = entry, .family = family, .name = name, .host = -1};
    span_t devices;
    ESP_TRY(esp_i_yaml_at(&r->yaml, entry,
                          esp_cluster_builder_add_node(r->builder, name, &m.node, r->yaml.diag)));
    ESP_TRY(read_devices(r, &m, &devices));
    ESP_TRY(read_intra(r, &m, devices));
    ESP_TRY(read_host(r, &m, devices));
    ESP_TRY(read_nics(r, &m, devices));
    if (!esp_vec_push(&r->arena.alloc, &r->machines, m))
        return esp_i_nomem(r->yaml.diag);
    return ESP_OK;
}

static esp_status_t read_entry(esp_i_reader_t *r, const esp_i_yaml_node_t *entry)
{
    static const char *const keys[] = {"name",  "count", "devices", "reserve",
                                       "intra", "host",  "nics",    NULL};
    const char *family;
    int32_t count;
    ESP_TRY(esp_i_yaml_keys(&r->yaml, entry, keys));
    ESP_TRY(esp_i_read_name(&r->yaml, entry, &family));
    const esp_i_yaml_node_t *node = esp_i_yaml_get(entry, "count");
    if (node == NULL)
        return read_machine(r, entry, family, family);
    ESP_TRY(esp_i_yaml_int(&r->yaml, node, 1, ESP_CLUSTER_MAX_DEVICES, &count));
    for (int32_t i = 0; i < count; i++) {
        const char *name = esp_i_arena_printf(&r->arena, "%s%d", family, (int)i);
        if (name == NULL)
            return esp_i_nomem(r->yaml.diag);
        ESP_TRY(read_machine(r, entry, family, name));
    }
    return ESP_OK;
}

esp_status_t esp_i_read_nodes(esp_i_reader_t *r, const esp_i_yaml_node_t *node)
{
    ESP_TRY(esp_i_yaml_list(&r->yaml, node, "nodes"));
    for (const esp_i_yaml_node_t *entry = node->first; entry != NULL; entry = entry->next)
        ESP_TRY(read_entry(r, entry));
    return ESP_OK;
}
