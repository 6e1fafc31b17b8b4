/* Events of libyaml into a bounded tree. The only file that knows libyaml. */
#include "cluster/yaml.h"

#include <string.h>
#include <yaml.h>

typedef struct loader {
    esp_i_yaml_t *yaml;
    yaml_parser_t parser;
    esp_i_yaml_node_t *open[ESP_I_YAML_MAX_DEPTH]; /* collections being read */
    const char *key[ESP_I_YAML_MAX_DEPTH];         /* pending key of each open mapping */
    yaml_mark_t key_mark[ESP_I_YAML_MAX_DEPTH];
    esp_i_yaml_node_t *root;
    int32_t depth, n_nodes;
} loader_t;

static esp_status_t fail_at(const loader_t *l, yaml_mark_t mark, esp_status_t status,
                            const char *text)
{
    esp_diag_t *diag = l->yaml->diag;
    if (l->yaml->file != NULL)
        esp_i_diag_file(diag, l->yaml->file);
    esp_i_diag_line(diag, (int64_t)mark.line + 1, (int64_t)mark.column + 1);
    return esp_i_fail(diag, status, "%s", text);
}
#ifdef __clang_analyzer__ /* as esp_i_fail */
#define fail_at(l, mark, status, text) ((void)fail_at(l, mark, status, text), (status))
#endif

/* What libyaml did not like. Its texts lack our article, so they follow a colon. */
static esp_status_t parser_error(const loader_t *l)
{
    const yaml_parser_t *p = &l->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return esp_i_nomem(l->yaml->diag);
    char text[256];
    const char *problem = p->problem != NULL ? p->problem : "cannot be read";
    if (strstr(problem, "cannot start any token") != NULL) /* which is what it says of tabs */
        problem = "this character cannot start a value (a tab? indent with blanks)";
    size_t n = strlen(problem) < sizeof text - 16 ? strlen(problem) : sizeof text - 16;
    memcpy(text, "not YAML: ", 10);
    memcpy(text + 10, problem, n);
    text[10 + n] = '\0';
    if (p->error == YAML_READER_ERROR) { /* bytes that are no text: only their offset is known */
        esp_i_diag_byte(l->yaml->diag, (int64_t)p->problem_offset);
        if (l->yaml->file != NULL)
            esp_i_diag_file(l->yaml->diag, l->yaml->file);
        return esp_i_fail(l->yaml->diag, ESP_ERR_SYNTAX, "%s", text);
    }
    return fail_at(l, p->problem_mark, ESP_ERR_SYNTAX, text);
}

/* A copy of a scalar's text, checked. */
static esp_status_t take_text(const loader_t *l, const yaml_event_t *event, const char **text_out)
{
    const char *value = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    if (length > ESP_I_YAML_MAX_TEXT)
        return fail_at(l, event->start_mark, ESP_ERR_LIMIT, "a text of more than 4096 bytes");
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
            return fail_at(l, event->start_mark, ESP_ERR_INVALID,
                           "a text with a control character or line break in it");
    *text_out = esp_i_arena_strndup(l->yaml->arena, value, length);
    return *text_out != NULL ? ESP_OK : esp_i_nomem(l->yaml->diag);
}

/* Enters the pending key; duplicates are refused. */
static esp_status_t take_key(loader_t *l, const yaml_event_t *event)
{
    const esp_i_yaml_node_t *map = l->open[l->depth - 1];
    const char *key;
    if (event->type != YAML_SCALAR_EVENT)
        return fail_at(l, event->start_mark, ESP_ERR_INVALID, "a key must be a plain text");
    ESP_TRY(take_text(l, event, &key));
    if (esp_i_yaml_get(map, key) != NULL) {
        (void)fail_at(l, event->start_mark, ESP_ERR_INVALID, "");
        return esp_i_fail(l->yaml->diag, ESP_ERR_INVALID, "the key '%.64s' is given twice", key);
    }
    if (map->n_children >= ESP_I_YAML_MAX_KEYS)
        return fail_at(l, event->start_mark, ESP_ERR_LIMIT, "a mapping of more than 512 keys");
    l->key[l->depth - 1] = key;
    l->key_mark[l->depth - 1] = event->start_mark;
    return ESP_OK;
}

/* Hangs a fresh node under the innermost open collection, or makes it the root. */
static esp_status_t add_node(loader_t *l, esp_i_yaml_kind_t kind, yaml_mark_t mark,
                             esp_i_yaml_node_t **node_out)
{
    if (l->n_nodes++ >= ESP_I_YAML_MAX_NODES)
        return fail_at(l, mark, ESP_ERR_LIMIT, "more than 1048576 values");
    esp_i_yaml_node_t *node = esp_i_arena_alloc(l->yaml->arena, 1, sizeof *node);
    if (node == NULL)
        return esp_i_nomem(l->yaml->diag);
    node->kind = kind;
    node->line = (int32_t)mark.line + 1;
    node->column = (int32_t)mark.column + 1;
    *node_out = node;
    if (l->depth == 0) {
        l->root = node;
        return ESP_OK;
    }
    int32_t top = l->depth - 1;
    esp_i_yaml_node_t *parent = l->open[top];
    node->parent = parent;
    node->index = parent->n_children++;
    if (parent->kind == ESP_I_YAML_MAP) {
        node->key = l->key[top];
        node->key_line = (int32_t)l->key_mark[top].line + 1;
        node->key_column = (int32_t)l->key_mark[top].column + 1;
        l->key[top] = NULL;
    }
    if (parent->last != NULL)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
    return ESP_OK;
}

static esp_status_t open_collection(loader_t *l, esp_i_yaml_kind_t kind, const yaml_event_t *event)
{
    esp_i_yaml_node_t *node;
    if (l->depth >= ESP_I_YAML_MAX_DEPTH)
        return fail_at(l, event->start_mark, ESP_ERR_LIMIT, "nested more than 16 deep");
    ESP_TRY(add_node(l, kind, event->start_mark, &node));
    l->open[l->depth] = node;
    l->key[l->depth++] = NULL;
    return ESP_OK;
}

/* What the dialect leaves out. */
static esp_status_t refuse(const loader_t *l, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (anchor != NULL || event->type == YAML_ALIAS_EVENT)
        return fail_at(l, event->start_mark, ESP_ERR_UNSUPPORTED,
                       "anchors and aliases (& and *) are not supported; write the value out");
    if (tag != NULL)
        return fail_at(l, event->start_mark, ESP_ERR_UNSUPPORTED, "tags (!) are not supported");
    if (event->type == YAML_DOCUMENT_START_EVENT && l->root != NULL)
        return fail_at(l, event->start_mark, ESP_ERR_UNSUPPORTED,
                       "a second document; a file describes one cluster");
    return ESP_OK;
}

static esp_status_t take_event(loader_t *l, const yaml_event_t *event)
{
    ESP_TRY(refuse(l, event));
    bool value = event->type == YAML_SCALAR_EVENT || event->type == YAML_SEQUENCE_START_EVENT ||
                 event->type == YAML_MAPPING_START_EVENT;
    if (value && l->depth > 0 && l->open[l->depth - 1]->kind == ESP_I_YAML_MAP &&
        l->key[l->depth - 1] == NULL)
        return take_key(l, event);
    if (event->type == YAML_SEQUENCE_START_EVENT)
        return open_collection(l, ESP_I_YAML_LIST, event);
    if (event->type == YAML_MAPPING_START_EVENT)
        return open_collection(l, ESP_I_YAML_MAP, event);
    if (event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT) {
        esp_assert(l->depth > 0); /* libyaml pairs them */
        l->depth--;
    }
    if (event->type == YAML_SCALAR_EVENT) {
        esp_i_yaml_node_t *node;
        const char *text;
        ESP_TRY(take_text(l, event, &text));
        ESP_TRY(add_node(l, ESP_I_YAML_SCALAR, event->start_mark, &node));
        node->text = text;
    }
    return ESP_OK;
}

static esp_status_t take_events(loader_t *l)
{
    for (bool ended = false; !ended;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&l->parser, &event))
            return parser_error(l);
        ended = event.type == YAML_STREAM_END_EVENT;
        esp_status_t status = take_event(l, &event);
        yaml_event_delete(&event);
        ESP_TRY(status);
    }
    yaml_mark_t start = {0};
    if (l->root == NULL)
        return fail_at(l, start, ESP_ERR_INVALID, "the file is empty");
    if (l->root->kind != ESP_I_YAML_MAP)
        return fail_at(l, start, ESP_ERR_INVALID, "the file must be a mapping: 'key: value' lines");
    l->yaml->root = l->root;
    return ESP_OK;
}

esp_status_t esp_i_yaml_read(esp_i_yaml_t *yaml, const char *text, size_t length)
{
    loader_t l = {.yaml = yaml};
    if (!yaml_parser_initialize(&l.parser))
        return esp_i_nomem(yaml->diag);
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* editors write this mark */
        text += 3;
        length -= 3;
    }
    yaml_parser_set_encoding(&l.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&l.parser, (const unsigned char *)text, length);
    esp_status_t status = take_events(&l);
    yaml_parser_delete(&l.parser);
    return status;
}
