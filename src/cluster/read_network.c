/* Between nodes: `network:` (a switch or a fat tree), `switches:` and `links:`. */
#include "cluster/read.h"

#include <string.h>

typedef struct network {
    const esp_i_yaml_node_t *node;
    const char *name;
    bool has_port; /* the speed of a node's port where the node has no NIC */
    esp_i_speed_t port;
    ESP_VEC(int32_t) members; /* indices of machines */
} network_t;

static esp_status_t add_switch(esp_i_reader_t *r, const esp_i_yaml_node_t *where, const char *name,
                               int32_t *vertex_out)
{
    if (name == NULL)
        return esp_i_nomem(r->yaml.diag);
    return esp_i_yaml_at(&r->yaml, where,
                         esp_cluster_builder_add_vertex(r->builder, ESP_VERTEX_SWITCH, name, -1,
                                                        vertex_out, r->yaml.diag));
}

/* ---- members --------------------------------------------------------------------------------- */

/* Adds the machines that a name means: one, or all replicas of a description. */
static esp_status_t add_members(esp_i_reader_t *r, network_t *net, const esp_i_yaml_node_t *node)
{
    const char *name;
    int32_t found = 0;
    ESP_TRY(esp_i_yaml_text(&r->yaml, node, &name));
    for (int32_t i = 0; i < r->machines.count; i++) {
        const esp_i_machine_t *m = &r->machines.data[i];
        if (strcmp(m->name, name) != 0 && strcmp(m->family, name) != 0)
            continue;
        found++;
        for (int32_t k = 0; k < net->members.count; k++)
            if (net->members.data[k] == i)
                return esp_i_yaml_fail(&r->yaml, node, ESP_ERR_INVALID,
                                       "the node '%s' is twice in the network", m->name);
        if (!esp_vec_push(&r->arena.alloc, &net->members, i))
            return esp_i_nomem(r->yaml.diag);
    }
    if (found == 0)
        return esp_i_yaml_fail(&r->yaml, node, ESP_ERR_INVALID, "there is no node '%.95s'", name);
    return ESP_OK;
}

static esp_status_t read_members(esp_i_reader_t *r, network_t *net)
{
    const esp_i_yaml_node_t *list = esp_i_yaml_get(net->node, "nodes");
    if (list != NULL) {
        ESP_TRY(esp_i_yaml_list(&r->yaml, list, "nodes"));
        for (const esp_i_yaml_node_t *node = list->first; node != NULL; node = node->next)
            ESP_TRY(add_members(r, net, node));
        return ESP_OK;
    }
    for (int32_t i = 0; i < r->machines.count; i++)
        if (!esp_vec_push(&r->arena.alloc, &net->members, i))
            return esp_i_nomem(r->yaml.diag);
    return ESP_OK;
}

/* Connects port k of a machine to a switch; a machine without NICs has one port, its host. */
static esp_status_t attach(esp_i_reader_t *r, const network_t *net, esp_i_machine_t *m, int32_t k,
                           int32_t to, int64_t *bytes_per_s_out)
{
    esp_i_speed_t speed = {m->nic_bytes_per_s, m->nic_latency_ns};
    int32_t from = m->first_nic + k;
    /* Without a cable of the user's own, devices reach what is at the host only by `host:`. */
    if (!m->reaches_host && !m->nics_at_device && !r->has_links)
        return esp_i_yaml_fail(&r->yaml, m->entry, ESP_ERR_INVALID,
                               "nothing says how the devices of '%s' reach the network: add "
                               "'host' with a bandwidth and a latency",
                               m->name);
    if (m->n_nics == 0) {
        if (!net->has_port)
            return esp_i_yaml_fail(&r->yaml, net->node, ESP_ERR_INVALID,
                                   "the node '%s' has no NICs; add 'nics' to it, or 'bandwidth' "
                                   "and 'latency' to the network",
                                   m->name);
        ESP_TRY(esp_i_read_ensure_host(r, m));
        speed = net->port;
        from = m->host;
    }
    *bytes_per_s_out = speed.bytes_per_s;
    return esp_i_read_cable(r, net->node, from, to, speed);
}

static int32_t port_count(const esp_i_machine_t *m)
{
    return m->n_nics > 0 ? m->n_nics : 1;
}

/* ---- one switch ------------------------------------------------------------------------------ */

static esp_status_t build_switch(esp_i_reader_t *r, const network_t *net)
{
    static const char *const keys[] = {"kind", "name", "nodes", "bandwidth", "latency", NULL};
    int32_t vertex;
    int64_t ignored;
    ESP_TRY(esp_i_yaml_keys(&r->yaml, net->node, keys));
    ESP_TRY(add_switch(r, net->node, net->name, &vertex));
    for (int32_t i = 0; i < net->members.count; i++) {
        esp_i_machine_t *m = &r->machines.data[net->members.data[i]];
        for (int32_t k = 0; k < port_count(m); k++)
            ESP_TRY(attach(r, net, m, k, vertex, &ignored));
    }
    return ESP_OK;
}

/* ---- fat tree -------------------------------------------------------------------------------- */

/*
 * Nodes are attached to leaves, leaves to one spine vertex. The spine stands for all spine switches
 * at once: traffic spreads over them in reality, which one route through one of them would not
 * show.
 */
typedef struct fat_tree {
    int32_t nodes_per_leaf;
    bool rails; /* NIC k of the nodes of a pod goes to leaf k of the pod */
    int32_t spines;
    int64_t uplink_bytes_per_s; /* to one spine; 0: by oversubscription */
    int64_t oversubscription_thousandths;
    int64_t uplink_latency_ns;
    int32_t leaves_per_pod;
} fat_tree_t;

static esp_status_t read_uplink(esp_i_reader_t *r, const network_t *net, fat_tree_t *tree)
{
    static const char *const keys[] = {"bandwidth", "latency", "oversubscription", NULL};
    const esp_i_yaml_t *yaml = &r->yaml;
    const esp_i_yaml_node_t *uplink, *latency;
    ESP_TRY(esp_i_yaml_need(yaml, net->node, "uplink", &uplink));
    ESP_TRY(esp_i_yaml_keys(yaml, uplink, keys));
    ESP_TRY(esp_i_yaml_need(yaml, uplink, "latency", &latency));
    ESP_TRY(esp_i_read_latency(yaml, latency, &tree->uplink_latency_ns));
    const esp_i_yaml_node_t *bandwidth = esp_i_yaml_get(uplink, "bandwidth");
    const esp_i_yaml_node_t *ratio = esp_i_yaml_get(uplink, "oversubscription");
    if ((bandwidth == NULL) == (ratio == NULL))
        return esp_i_yaml_fail(yaml, uplink, ESP_ERR_INVALID,
                               "either 'bandwidth' or 'oversubscription' is needed, not both");
    if (bandwidth != NULL)
        return esp_i_read_bandwidth(yaml, bandwidth, &tree->uplink_bytes_per_s);
    return esp_i_yaml_ratio(yaml, ratio, 1000, 1000000, &tree->oversubscription_thousandths);
}

static esp_status_t read_fat_tree(esp_i_reader_t *r, const network_t *net, fat_tree_t *tree)
{
    static const char *const keys[] = {"kind",           "name",  "nodes",  "bandwidth", "latency",
                                       "nodes_per_leaf", "rails", "spines", "uplink",    NULL};
    const esp_i_yaml_t *yaml = &r->yaml;
    const esp_i_yaml_node_t *node;
    *tree = (fat_tree_t){.spines = 1};
    esp_assert(net->members.count > 0);
    ESP_TRY(esp_i_yaml_keys(yaml, net->node, keys));
    ESP_TRY(esp_i_yaml_need(yaml, net->node, "nodes_per_leaf", &node));
    ESP_TRY(esp_i_yaml_int(yaml, node, 1, ESP_CLUSTER_MAX_DEVICES, &tree->nodes_per_leaf));
    node = esp_i_yaml_get(net->node, "rails");
    if (node != NULL)
        ESP_TRY(esp_i_yaml_bool(yaml, node, &tree->rails));
    node = esp_i_yaml_get(net->node, "spines");
    if (node != NULL)
        ESP_TRY(esp_i_yaml_int(yaml, node, 1, ESP_CLUSTER_MAX_DEVICES, &tree->spines));
    tree->leaves_per_pod = tree->rails ? port_count(&r->machines.data[net->members.data[0]]) : 1;
    for (int32_t i = 0; tree->rails && i < net->members.count; i++) {
        const esp_i_machine_t *m = &r->machines.data[net->members.data[i]];
        if (port_count(m) != tree->leaves_per_pod)
            return esp_i_yaml_fail(yaml, net->node, ESP_ERR_INVALID,
                                   "rails need nodes with equally many NICs, but '%s' has %d and "
                                   "'%s' has %d",
                                   r->machines.data[net->members.data[0]].name,
                                   (int)tree->leaves_per_pod, m->name, (int)port_count(m));
    }
    return read_uplink(r, net, tree);
}

/* The speed between a leaf whose ports sum to `down` and the spine. */
static esp_status_t connect_spine(esp_i_reader_t *r, const network_t *net, const fat_tree_t *tree,
                                  int32_t leaf, int32_t spine, int64_t down)
{
    double up = (double)tree->uplink_bytes_per_s * tree->spines;
    if (tree->uplink_bytes_per_s == 0)
        up = (double)down * 1000 / (double)tree->oversubscription_thousandths;
    if (!(up >= 1 && up <= ESP_CLUSTER_MAX_BYTES_PER_S))
        return esp_i_yaml_fail(&r->yaml, net->node, ESP_ERR_INVALID,
                               "the bandwidth of the uplinks is out of range");
    esp_i_speed_t speed = {(int64_t)up, tree->uplink_latency_ns};
    return esp_i_read_cable(r, net->node, leaf, spine, speed);
}

/* Attaches the nodes [begin, end) of the members to the leaf of one rail; sums the ports. */
static esp_status_t fill_leaf(esp_i_reader_t *r, const network_t *net, const fat_tree_t *tree,
                              int32_t begin, int32_t end, int32_t rail, int32_t leaf,
                              int64_t *down_out)
{
    *down_out = 0;
    esp_assert(end <= net->members.count);
    for (int32_t i = begin; i < end; i++) {
        esp_i_machine_t *m = &r->machines.data[net->members.data[i]];
        for (int32_t k = 0; k < port_count(m); k++) {
            int64_t port;
            if (tree->rails && k != rail)
                continue;
            ESP_TRY(attach(r, net, m, k, leaf, &port));
            *down_out += port; /* at most 8192 vertices of 1e15 */
        }
    }
    return ESP_OK;
}

static esp_status_t build_fat_tree(esp_i_reader_t *r, const network_t *net)
{
    fat_tree_t tree;
    ESP_TRY(read_fat_tree(r, net, &tree));
    int32_t n = net->members.count, per_leaf = tree.nodes_per_leaf;
    int32_t pods = (n + per_leaf - 1) / per_leaf, spine = -1;
    if (pods * tree.leaves_per_pod > 1)
        ESP_TRY(
            add_switch(r, net->node, esp_i_arena_printf(&r->arena, "%s/spine", net->name), &spine));
    for (int32_t leaf = 0; leaf < pods * tree.leaves_per_pod; leaf++) {
        int32_t pod = leaf / tree.leaves_per_pod, vertex;
        int32_t end = (pod + 1) * per_leaf < n ? (pod + 1) * per_leaf : n;
        int64_t down;
        ESP_TRY(add_switch(r, net->node,
                           esp_i_arena_printf(&r->arena, "%s/leaf%d", net->name, (int)leaf),
                           &vertex));
        ESP_TRY(fill_leaf(r, net, &tree, pod * per_leaf, end, leaf % tree.leaves_per_pod, vertex,
                          &down));
        if (spine >= 0)
            ESP_TRY(connect_spine(r, net, &tree, vertex, spine, down));
    }
    return ESP_OK;
}

/* ---- networks -------------------------------------------------------------------------------- */

static esp_status_t read_port(esp_i_reader_t *r, network_t *net)
{
    const esp_i_yaml_node_t *bandwidth = esp_i_yaml_get(net->node, "bandwidth");
    const esp_i_yaml_node_t *latency = esp_i_yaml_get(net->node, "latency");
    net->has_port = bandwidth != NULL || latency != NULL;
    return net->has_port ? esp_i_read_speed(&r->yaml, net->node, &net->port) : ESP_OK;
}

static esp_status_t read_one(esp_i_reader_t *r, network_t *net)
{
    static const char *const kinds[] = {"switch", "fat_tree"};
    const esp_i_yaml_node_t *kind, *name;
    int32_t index;
    if (net->node->kind != ESP_I_YAML_MAP)
        return esp_i_yaml_fail(&r->yaml, net->node, ESP_ERR_INVALID,
                               "a network is a mapping: 'kind: switch' and so on");
    ESP_TRY(esp_i_yaml_need(&r->yaml, net->node, "kind", &kind));
    ESP_TRY(esp_i_yaml_word(&r->yaml, kind, kinds, 2, &index));
    net->name = "net";
    name = esp_i_yaml_get(net->node, "name");
    if (name != NULL)
        ESP_TRY(esp_i_yaml_text(&r->yaml, name, &net->name));
    ESP_TRY(read_port(r, net));
    ESP_TRY(read_members(r, net));
    return index == 0 ? build_switch(r, net) : build_fat_tree(r, net);
}

esp_status_t esp_i_read_network(esp_i_reader_t *r, const esp_i_yaml_node_t *node)
{
    bool many = node->kind == ESP_I_YAML_LIST;
    for (const esp_i_yaml_node_t *one = many ? node->first : node; one != NULL;
         one = many ? one->next : NULL) {
        network_t net = {.node = one};
        esp_status_t status = read_one(r, &net);
        esp_vec_free(&r->arena.alloc, &net.members);
        ESP_TRY(status);
    }
    return ESP_OK;
}

/* ---- switches and links ---------------------------------------------------------------------- */

esp_status_t esp_i_read_switches(esp_i_reader_t *r, const esp_i_yaml_node_t *node)
{
    ESP_TRY(esp_i_yaml_list(&r->yaml, node, "names of switches"));
    for (const esp_i_yaml_node_t *one = node->first; one != NULL; one = one->next) {
        const char *name;
        int32_t vertex;
        ESP_TRY(esp_i_yaml_text(&r->yaml, one, &name));
        ESP_TRY(add_switch(r, one, name, &vertex));
    }
    return ESP_OK;
}

/* A vertex by its name, or the host of a node by the node's. */
static esp_status_t find_end(esp_i_reader_t *r, const esp_i_yaml_node_t *map, const char *key,
                             int32_t *vertex_out)
{
    const esp_i_yaml_node_t *node;
    const char *name;
    ESP_TRY(esp_i_yaml_need(&r->yaml, map, key, &node));
    ESP_TRY(esp_i_yaml_text(&r->yaml, node, &name));
    *vertex_out = esp_i_names_find(&r->builder->vertex_names, name, strlen(name));
    if (*vertex_out >= 0)
        return ESP_OK;
    for (int32_t i = 0; i < r->machines.count; i++) {
        esp_i_machine_t *m = &r->machines.data[i];
        if (strcmp(m->name, name) != 0)
            continue;
        ESP_TRY(esp_i_read_ensure_host(r, m));
        *vertex_out = m->host;
        return ESP_OK;
    }
    const char *nearest =
        esp_i_nearest(name, r->builder->vertex_names.names, r->builder->vertex_names.count);
    if (nearest == NULL)
        return esp_i_yaml_fail(&r->yaml, node, ESP_ERR_INVALID, "there is no '%.95s'", name);
    return esp_i_yaml_fail(&r->yaml, node, ESP_ERR_INVALID, "there is no '%.95s'; is '%s' meant?",
                           name, nearest);
}

static esp_status_t read_link(esp_i_reader_t *r, const esp_i_yaml_node_t *node)
{
    static const char *const keys[] = {"from", "to",     "bandwidth", "latency",
                                       "name", "oneway", NULL};
    const esp_i_yaml_t *yaml = &r->yaml;
    esp_cluster_link_t link = {0};
    esp_i_speed_t speed;
    bool oneway = false;
    ESP_TRY(esp_i_yaml_keys(yaml, node, keys));
    ESP_TRY(find_end(r, node, "from", &link.src));
    ESP_TRY(find_end(r, node, "to", &link.dst));
    ESP_TRY(esp_i_read_speed(yaml, node, &speed));
    link.bytes_per_s = (double)speed.bytes_per_s;
    link.latency_ns = speed.latency_ns;
    const esp_i_yaml_node_t *value = esp_i_yaml_get(node, "name");
    if (value != NULL)
        ESP_TRY(esp_i_yaml_text(yaml, value, &link.name));
    value = esp_i_yaml_get(node, "oneway");
    if (value != NULL)
        ESP_TRY(esp_i_yaml_bool(yaml, value, &oneway));
    esp_status_t status = oneway ? esp_cluster_builder_add_link(r->builder, &link, NULL, yaml->diag)
                                 : esp_cluster_builder_add_cable(r->builder, &link, yaml->diag);
    return esp_i_yaml_at(yaml, node, status);
}

esp_status_t esp_i_read_links(esp_i_reader_t *r, const esp_i_yaml_node_t *node)
{
    ESP_TRY(esp_i_yaml_list(&r->yaml, node, "links"));
    for (const esp_i_yaml_node_t *one = node->first; one != NULL; one = one->next)
        ESP_TRY(read_link(r, one));
    return ESP_OK;
}
