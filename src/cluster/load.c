/* Cluster files: reads the tree, recognises the form, builds and freezes. */
#include "cluster/read.h"

static esp_status_t add_type(void *context, const esp_device_type_t *type)
{
    esp_i_reader_t *r = context;
    int32_t id;
    return esp_cluster_builder_add_type(r->builder, type, &id, r->yaml.diag);
}

/* What does not depend on the form. */
static esp_status_t read_header(esp_i_reader_t *r)
{
    const esp_i_yaml_t *yaml = &r->yaml;
    const esp_i_yaml_node_t *node;
    const char *name;
    ESP_TRY(esp_i_read_name(yaml, yaml->root, &name));
    ESP_TRY(
        esp_i_yaml_at(yaml, esp_i_yaml_get(yaml->root, "name"),
                      esp_cluster_builder_create(name, &r->arena.alloc, &r->builder, yaml->diag)));
    node = esp_i_yaml_get(yaml->root, "reserve");
    r->reserve_bytes = -1;
    if (node != NULL)
        ESP_TRY(esp_i_read_size(yaml, node, 0, &r->reserve_bytes));
    node = esp_i_yaml_get(yaml->root, "max_groups");
    if (node != NULL)
        ESP_TRY(esp_i_yaml_int(yaml, node, 1, ESP_CLUSTER_MAX_DEVICES, &r->max_groups));
    node = esp_i_yaml_get(yaml->root, "types");
    return node != NULL ? esp_i_read_types(yaml, node, add_type, r) : ESP_OK;
}

static esp_status_t read_nodes_form(esp_i_reader_t *r, const esp_i_yaml_node_t *nodes)
{
    static const char *const keys[] = {"name",    "nodes",      "network", "links", "switches",
                                       "reserve", "max_groups", "types",   NULL};
    const esp_i_yaml_node_t *root = r->yaml.root, *node;
    ESP_TRY(esp_i_yaml_keys(&r->yaml, root, keys));
    r->has_links = esp_i_yaml_get(root, "links") != NULL;
    ESP_TRY(esp_i_read_nodes(r, nodes));
    if ((node = esp_i_yaml_get(root, "network")) != NULL)
        ESP_TRY(esp_i_read_network(r, node));
    if ((node = esp_i_yaml_get(root, "switches")) != NULL)
        ESP_TRY(esp_i_read_switches(r, node));
    node = esp_i_yaml_get(root, "links");
    return node != NULL ? esp_i_read_links(r, node) : ESP_OK;
}

/* Reads the devices and links; *form_out is where to point if they do not make a whole. */
static esp_status_t read_form(esp_i_reader_t *r, const esp_i_yaml_node_t **form_out)
{
    static const char *const matrix_keys[] = {"name", "groups", "inter", "reserve", "types", NULL};
    static const char *const graph_keys[] = {"name", "graph", "max_groups", "types", NULL};
    const esp_i_yaml_node_t *root = r->yaml.root;
    const esp_i_yaml_node_t *nodes = esp_i_yaml_get(root, "nodes");
    const esp_i_yaml_node_t *groups = esp_i_yaml_get(root, "groups");
    const esp_i_yaml_node_t *graph = esp_i_yaml_get(root, "graph");
    *form_out = nodes != NULL ? nodes : (groups != NULL ? groups : graph);
    if (nodes != NULL)
        return read_nodes_form(r, nodes);
    if (groups != NULL) {
        ESP_TRY(esp_i_yaml_keys(&r->yaml, root, matrix_keys));
        return esp_i_read_matrix(r, groups, esp_i_yaml_get(root, "inter"));
    }
    if (graph != NULL) {
        ESP_TRY(esp_i_yaml_keys(&r->yaml, root, graph_keys));
        return esp_i_read_graph(r, graph);
    }
    return esp_i_yaml_fail(&r->yaml, root, ESP_ERR_INVALID,
                           "the file describes no devices: one of the keys 'nodes', 'groups' and "
                           "'graph' is needed");
}

/* Every key that some form has, so that a slip of the pen is found before it changes the form. */
static esp_status_t check_top_keys(const esp_i_yaml_t *yaml)
{
    static const char *const keys[] = {"name",    "nodes",    "groups",     "graph",
                                       "types",   "inter",    "network",    "links",
                                       "reserve", "switches", "max_groups", NULL};
    return esp_i_yaml_keys(yaml, yaml->root, keys);
}

static esp_status_t read_cluster(esp_i_reader_t *r, const char *text, size_t length,
                                 esp_cluster_t **cluster_out)
{
    const esp_i_yaml_node_t *form;
    if (length > (size_t)ESP_CLUSTER_MAX_FILE_BYTES) {
        if (r->yaml.file != NULL)
            esp_i_diag_file(r->yaml.diag, r->yaml.file);
        return esp_i_fail(r->yaml.diag, ESP_ERR_LIMIT, "more than 16 MiB of text");
    }
    ESP_TRY(esp_i_yaml_read(&r->yaml, text, length));
    ESP_TRY(check_top_keys(&r->yaml));
    ESP_TRY(read_header(r));
    ESP_TRY(read_form(r, &form));
    esp_diag_t inner = {0};
    esp_status_t status =
        esp_cluster_builder_freeze(r->builder, r->max_groups, cluster_out, &inner);
    if (status == ESP_OK)
        return ESP_OK;
    if (status == ESP_ERR_NOMEM)
        return esp_i_nomem(r->yaml.diag);
    return esp_i_yaml_fail(&r->yaml, form, status, "%s", inner.text);
}

esp_status_t esp_cluster_parse(const char *text, size_t length, const char *file_name,
                               const esp_allocator_t *allocator, esp_cluster_t **cluster_out,
                               esp_diag_t *diag)
{
    esp_i_reader_t r = {0};
    esp_i_arena_init(&r.arena, allocator);
    r.yaml = (esp_i_yaml_t){.arena = &r.arena, .file = file_name, .diag = diag};
    esp_status_t status = read_cluster(&r, text, length, cluster_out);
    esp_vec_free(&r.arena.alloc, &r.machines);
    esp_cluster_builder_destroy(r.builder);
    esp_i_arena_fini(&r.arena);
    return status;
}

esp_status_t esp_cluster_load(const char *path, const esp_allocator_t *allocator,
                              esp_cluster_t **cluster_out, esp_diag_t *diag)
{
    esp_allocator_t alloc = esp_i_allocator(allocator);
    char *text;
    int64_t length;
    ESP_TRY(esp_i_file_read(&alloc, path, ESP_CLUSTER_MAX_FILE_BYTES, &text, &length, diag));
    esp_status_t status = esp_cluster_parse(text, (size_t)length, path, &alloc, cluster_out, diag);
    esp_i_free(&alloc, text);
    return status;
}
