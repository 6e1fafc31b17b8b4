/* Typed access to a YAML tree. Every error names the place, the cause and what would be right. */
#include "cluster/yaml.h"
#include "cluster/cluster.h"

#include <stdio.h>
#include <string.h>

/* ---- errors -------------------------------------------------------------------------------- */

/* "nodes[1].intra.bandwidth" into the end of path[0 .. *begin). What does not fit is cut in front.
 */
static void write_path(const esp_i_yaml_node_t *node, char *path, size_t *begin)
{
    for (; node->parent != NULL; node = node->parent) {
        char step[96];
        bool outermost = node->parent->parent == NULL;
        int n = node->key != NULL
                    ? snprintf(step, sizeof step, "%s%.80s", outermost ? "" : ".", node->key)
                    : snprintf(step, sizeof step, "[%d]", (int)node->index);
        if (n < 0 || (size_t)n > *begin)
            return;
        *begin -= (size_t)n;
        memcpy(path + *begin, step, (size_t)n);
    }
}

static void set_place(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node)
{
    char path[128];
    size_t begin = sizeof path - 1;
    path[begin] = '\0';
    write_path(node, path, &begin);
    if (yaml->file != NULL)
        esp_i_diag_file(yaml->diag, yaml->file);
    esp_i_diag_place(yaml->diag, "%s", path + begin);
    esp_i_diag_line(yaml->diag, node->line, node->column);
}

/* In parentheses: the analyzer has a macro of this name. */
esp_status_t(esp_i_yaml_fail)(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                              esp_status_t status, const char *format, ...)
{
    char text[sizeof yaml->diag->text];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) < 0)
        text[0] = '\0';
    va_end(arguments);
    set_place(yaml, node);
    return esp_i_fail(yaml->diag, status, "%s", text);
}

esp_status_t esp_i_yaml_at(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                           esp_status_t status)
{
    if (status < 0 && status != ESP_ERR_NOMEM)
        set_place(yaml, node);
    return status;
}

/* ---- mappings and lists -------------------------------------------------------------------- */

static const char *kind_text(const esp_i_yaml_node_t *node)
{
    if (node->kind == ESP_I_YAML_MAP)
        return "a mapping";
    return node->kind == ESP_I_YAML_LIST ? "a list" : "a single value";
}

esp_status_t esp_i_yaml_keys(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             const char *const *keys)
{
    if (node->kind != ESP_I_YAML_MAP)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID,
                               "%s, but a mapping ('%s: ...') is needed here", kind_text(node),
                               keys[0]);
    int32_t n = 0;
    while (keys[n] != NULL)
        n++;
    for (const esp_i_yaml_node_t *child = node->first; child != NULL; child = child->next) {
        int32_t k = 0;
        while (k < n && strcmp(keys[k], child->key) != 0)
            k++;
        if (k < n)
            continue;
        const char *nearest = esp_i_nearest(child->key, keys, n);
        esp_i_yaml_node_t at_key = *child;
        at_key.line = child->key_line;
        at_key.column = child->key_column;
        if (nearest != NULL)
            return esp_i_yaml_fail(yaml, &at_key, ESP_ERR_INVALID,
                                   "the key '%.64s' is not known here; is '%s' meant?", child->key,
                                   nearest);
        return esp_i_yaml_fail(yaml, &at_key, ESP_ERR_INVALID,
                               "the key '%.64s' is not known here; '%s' is, for example",
                               child->key, keys[0]);
    }
    return ESP_OK;
}

const esp_i_yaml_node_t *esp_i_yaml_get(const esp_i_yaml_node_t *map, const char *key)
{
    esp_assert(map->kind == ESP_I_YAML_MAP); /* the caller has looked */
    const esp_i_yaml_node_t *child = map->first;
    while (child != NULL && strcmp(child->key, key) != 0)
        child = child->next;
    return child;
}

esp_status_t esp_i_yaml_need(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *map,
                             const char *key, const esp_i_yaml_node_t **node_out)
{
    *node_out = esp_i_yaml_get(map, key);
    if (*node_out == NULL)
        return esp_i_yaml_fail(yaml, map, ESP_ERR_INVALID, "the key '%s' is missing", key);
    return ESP_OK;
}

esp_status_t esp_i_yaml_list(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             const char *of)
{
    if (node->kind != ESP_I_YAML_LIST)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID, "%s, but a list of %s is needed here",
                               kind_text(node), of);
    if (node->n_children == 0)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID, "the list of %s is empty", of);
    return ESP_OK;
}

/* ---- scalars ------------------------------------------------------------------------------- */

esp_status_t esp_i_yaml_text(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             const char **text_out)
{
    if (node->kind != ESP_I_YAML_SCALAR)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID, "%s, but a single value is needed here",
                               kind_text(node));
    if (node->text[0] == '\0')
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID, "the value is empty");
    *text_out = node->text;
    return ESP_OK;
}

esp_status_t esp_i_yaml_int(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node, int32_t low,
                            int32_t high, int32_t *value_out)
{
    const char *text;
    ESP_TRY(esp_i_yaml_text(yaml, node, &text));
    int64_t value = 0;
    size_t n = 0;
    for (; text[n] >= '0' && text[n] <= '9' && n < 10; n++)
        value = 10 * value + (text[n] - '0');
    if (n == 0 || text[n] != '\0' || value < low || value > high)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID,
                               "'%.40s' is not a whole number from %d to %d", text, (int)low,
                               (int)high);
    *value_out = (int32_t)value;
    return ESP_OK;
}

esp_status_t esp_i_yaml_bool(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             bool *value_out)
{
    static const char *const words[] = {"false", "true"};
    int32_t index;
    ESP_TRY(esp_i_yaml_word(yaml, node, words, 2, &index));
    *value_out = index == 1;
    return ESP_OK;
}

esp_status_t esp_i_yaml_word(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             const char *const *words, int32_t n, int32_t *index_out)
{
    const char *text;
    ESP_TRY(esp_i_yaml_text(yaml, node, &text));
    char all[160] = "";
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0) {
            *index_out = i;
            return ESP_OK;
        }
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof all - used, "%s%s",
                       i == 0 ? "" : (i + 1 < n ? ", " : " or "), words[i]);
    }
    return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID, "'%.40s' is none of %s", text, all);
}
