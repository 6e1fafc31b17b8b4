/*
 * The JSON reader: jansson parses, and its tree is copied into a flat one that knows the parents of
 * its values (for paths), keeps the order of the text and comes from the caller's allocator. This
 * is the only user of jansson.
 */
#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct node {
    esp_i_json_kind_t kind;
    int32_t parent;       /* -1: the root */
    int32_t first, count; /* children are nodes first .. first + count - 1 */
    const char *key;      /* in an object; NULL in an array */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const char *string;
    } as;
} node_t;

struct esp_i_json_doc {
    esp_i_arena_t arena; /* strings */
    const char *file;
    ESP_VEC(node_t) nodes;
};

/* ---- parsing ------------------------------------------------------------------------------ */

/* Line and column of a byte, both from 1; a character counts once, as jansson does. */
static void locate(const char *text, const char *at, esp_diag_t *diag)
{
    int64_t line = 1, column = 1;
    for (const char *c = text; c < at; c++) {
        column += ((unsigned char)*c & 0xc0) != 0x80;
        if (*c == '\n') {
            line++;
            column = 1;
        }
    }
    esp_i_diag_line(diag, line, column);
}

/* jansson recurses up to a depth of its own choice: ours is checked before it begins. */
static esp_status_t check_depth(const char *text, int64_t length, esp_diag_t *diag)
{
    int32_t depth = 0;
    bool in_string = false;
    for (int64_t i = 0; i < length; i++) {
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                in_string = false;
        } else if (text[i] == '"') {
            in_string = true;
        } else if (text[i] == '[' || text[i] == '{') {
            if (++depth > ESP_I_JSON_MAX_DEPTH) {
                locate(text, text + i, diag);
                return esp_i_fail(diag, ESP_ERR_LIMIT, "nested deeper than %d levels",
                                  ESP_I_JSON_MAX_DEPTH);
            }
        } else if (text[i] == ']' || text[i] == '}') {
            depth--;
        }
    }
    return ESP_OK;
}

static esp_status_t fail_syntax(const json_error_t *error, esp_diag_t *diag)
{
    enum json_error_code code = json_error_code(error);
    if (code == json_error_out_of_memory)
        return esp_i_nomem(diag);
    esp_i_diag_line(diag, error->line > 0 ? error->line : 1, error->column > 0 ? error->column : 1);
    return esp_i_fail(diag, ESP_ERR_SYNTAX, "%s", error->text);
}

/* Copies a scalar, or the kind and size of a container. */
static bool copy_value(esp_i_json_doc_t *doc, const json_t *from, node_t *to)
{
    switch (json_typeof(from)) {
    case JSON_NULL:
        to->kind = ESP_I_JSON_NULL;
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        to->kind = ESP_I_JSON_BOOL;
        to->as.boolean = json_is_true(from);
        break;
    case JSON_INTEGER:
        to->kind = ESP_I_JSON_INT;
        to->as.integer = json_integer_value(from);
        break;
    case JSON_REAL:
        to->kind = ESP_I_JSON_REAL;
        to->as.real = json_real_value(from);
        break;
    case JSON_STRING:
        to->kind = ESP_I_JSON_STRING;
        to->as.string =
            esp_i_arena_strndup(&doc->arena, json_string_value(from), json_string_length(from));
        return to->as.string != NULL;
    case JSON_ARRAY:
        to->kind = ESP_I_JSON_ARRAY;
        to->count = (int32_t)json_array_size(from);
        break;
    case JSON_OBJECT:
        to->kind = ESP_I_JSON_OBJECT;
        to->count = (int32_t)json_object_size(from);
        break;
    }
    return true;
}

static bool copy_tree(esp_i_json_doc_t *doc, json_t *from, int32_t id);

static bool copy_child(esp_i_json_doc_t *doc, json_t *from, int32_t parent, int32_t id,
                       const char *key)
{
    node_t *node = &doc->nodes.data[id];
    *node = (node_t){.parent = parent};
    if (key != NULL) {
        node->key = esp_i_arena_strdup(&doc->arena, key);
        if (node->key == NULL)
            return false;
    }
    return copy_tree(doc, from, id);
}

/* Recursion is bounded by check_depth. */
static bool copy_tree(esp_i_json_doc_t *doc, json_t *from, int32_t id)
{
    if (!copy_value(doc, from, &doc->nodes.data[id]))
        return false;
    int32_t count = doc->nodes.data[id].count, first = doc->nodes.count;
    if (!esp_vec_extend(&doc->arena.alloc, &doc->nodes, count))
        return false;
    doc->nodes.data[id].first = first;
    if (json_is_array(from)) {
        for (int32_t i = 0; i < count; i++)
            if (!copy_child(doc, json_array_get(from, (size_t)i), id, first + i, NULL))
                return false;
        return true;
    }
    int32_t i = 0;
    const char *key;
    json_t *member;
    json_object_foreach(from, key, member) /* in the order of the text */
        if (!copy_child(doc, member, id, first + i++, key)) return false;
    return true;
}

/* Consumes `tree`. */
static esp_status_t make_doc(const esp_allocator_t *alloc, json_t *tree, const char *file,
                             esp_i_json_doc_t **doc_out, esp_diag_t *diag)
{
    esp_i_json_doc_t *doc = esp_i_alloc_array(alloc, 1, sizeof *doc);
    if (doc == NULL)
        goto fail_tree;
    esp_i_arena_init(&doc->arena, alloc);
    doc->file = esp_i_arena_strdup(&doc->arena, file != NULL ? file : "");
    if (doc->file == NULL || !esp_vec_extend(alloc, &doc->nodes, 1) ||
        !copy_child(doc, tree, -1, 0, NULL))
        goto fail_doc;
    json_decref(tree);
    *doc_out = doc;
    return ESP_OK;
fail_doc:
    esp_i_json_destroy(doc);
fail_tree:
    json_decref(tree);
    return esp_i_nomem(diag);
}

static esp_status_t parse(const esp_allocator_t *alloc, const char *text, int64_t length,
                          const char *file, esp_i_json_doc_t **doc_out, esp_diag_t *diag)
{
    if (length > ESP_I_JSON_MAX_BYTES)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "larger than the limit of %lld bytes",
                          (long long)ESP_I_JSON_MAX_BYTES);
    ESP_TRY(check_depth(text, length, diag));
    json_error_t error;
    json_t *tree = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (tree == NULL)
        return fail_syntax(&error, diag);
    return make_doc(alloc, tree, file, doc_out, diag);
}

esp_status_t esp_i_json_parse(const esp_allocator_t *alloc, const char *text, int64_t length,
                              const char *file, esp_i_json_doc_t **doc_out, esp_diag_t *diag)
{
    esp_status_t status = parse(alloc, text, length, file, doc_out, diag);
    if (status != ESP_OK && file != NULL)
        esp_i_diag_file(diag, file);
    return status;
}

esp_status_t esp_i_json_read(const esp_allocator_t *alloc, const char *path,
                             esp_i_json_doc_t **doc_out, esp_diag_t *diag)
{
    char *text;
    int64_t length;
    ESP_TRY(esp_i_file_read(alloc, path, ESP_I_JSON_MAX_BYTES, &text, &length, diag));
    esp_status_t status = esp_i_json_parse(alloc, text, length, path, doc_out, diag);
    esp_i_free(alloc, text);
    return status;
}

void esp_i_json_destroy(esp_i_json_doc_t *doc)
{
    if (doc == NULL)
        return;
    esp_allocator_t alloc = doc->arena.alloc;
    esp_vec_free(&alloc, &doc->nodes);
    esp_i_arena_fini(&doc->arena);
    esp_i_free(&alloc, doc);
}

/* ---- navigation --------------------------------------------------------------------------- */

static const node_t *node_of(esp_i_json_t value)
{
    return &value.doc->nodes.data[value.id];
}

esp_i_json_t esp_i_json_root(const esp_i_json_doc_t *doc)
{
    return (esp_i_json_t){doc, 0};
}

esp_i_json_kind_t esp_i_json_kind(esp_i_json_t value)
{
    return node_of(value)->kind;
}

int32_t esp_i_json_count(esp_i_json_t value)
{
    return node_of(value)->count;
}

esp_i_json_t esp_i_json_item(esp_i_json_t value, int32_t index)
{
    const node_t *node = node_of(value);
    esp_assert(index >= 0 && index < node->count);
    return (esp_i_json_t){value.doc, node->first + index};
}

const char *esp_i_json_key(esp_i_json_t value)
{
    return node_of(value)->key;
}

bool esp_i_json_find(esp_i_json_t value, const char *key, esp_i_json_t *member_out)
{
    if (esp_i_json_kind(value) != ESP_I_JSON_OBJECT)
        return false;
    for (int32_t i = 0; i < esp_i_json_count(value); i++) {
        esp_i_json_t member = esp_i_json_item(value, i);
        if (strcmp(esp_i_json_key(member), key) == 0) {
            *member_out = member;
            return true;
        }
    }
    return false;
}

void esp_i_json_put_value(esp_i_json_out_t *out, const char *key, esp_i_json_t value)
{
    const node_t *node = node_of(value);
    switch (node->kind) {
    case ESP_I_JSON_NULL:
        esp_i_json_put_null(out, key);
        return;
    case ESP_I_JSON_BOOL:
        esp_i_json_put_bool(out, key, node->as.boolean);
        return;
    case ESP_I_JSON_INT:
        esp_i_json_put_int(out, key, node->as.integer);
        return;
    case ESP_I_JSON_REAL:
        esp_i_json_put_real(out, key, node->as.real);
        return;
    case ESP_I_JSON_STRING:
        esp_i_json_put_string(out, key, node->as.string);
        return;
    case ESP_I_JSON_ARRAY:
        esp_i_json_open_array(out, key);
        break;
    case ESP_I_JSON_OBJECT:
        esp_i_json_open_object(out, key);
        break;
    }
    for (int32_t i = 0; i < node->count; i++) {
        esp_i_json_t item = esp_i_json_item(value, i);
        esp_i_json_put_value(out, esp_i_json_key(item), item);
    }
    esp_i_json_close(out);
}

/* ---- errors ------------------------------------------------------------------------------- */

static void add_key(esp_i_text_t *path, const char *key)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-0123456789";
    if (key[0] != '\0' && key[strspn(key, plain)] == '\0')
        esp_i_text_addf(path, ".%s", key);
    else
        esp_i_text_addf(path, "[\"%s\"]", key);
}

static void add_path(esp_i_text_t *path, esp_i_json_t value)
{
    int32_t chain[ESP_I_JSON_MAX_DEPTH + 1];
    int32_t depth = 0;
    for (int32_t id = value.id; id > 0; id = value.doc->nodes.data[id].parent)
        chain[depth++] = id;
    esp_i_text_add(path, "$");
    while (depth-- > 0) {
        const node_t *node = &value.doc->nodes.data[chain[depth]];
        if (node->key != NULL)
            add_key(path, node->key);
        else
            esp_i_text_addf(path, "[%d]",
                            (int)(chain[depth] - value.doc->nodes.data[node->parent].first));
    }
}

/* The place is the value, or the member `key` that it lacks. */
static void set_place(esp_i_json_t value, const char *key, esp_diag_t *diag)
{
    if (diag == NULL)
        return;
    esp_i_text_t path;
    esp_i_text_init(&path, NULL);
    add_path(&path, value);
    if (key != NULL)
        add_key(&path, key);
    esp_i_diag_file(diag, value.doc->file);
    esp_i_diag_place(diag, "%s", path.failed ? "" : path.data);
    esp_i_text_fini(&path);
}

/* In parentheses: the analyzer has a macro of this name. */
esp_status_t(esp_i_json_fail)(esp_i_json_t value, esp_diag_t *diag, esp_status_t status,
                              const char *format, ...)
{
    char text[sizeof diag->text];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) < 0)
        text[0] = '\0';
    va_end(arguments);
    set_place(value, NULL, diag);
    return esp_i_fail(diag, status, "%s", text);
}

static const char *kind_name(esp_i_json_kind_t kind)
{
    static const char *const names[] = {
        [ESP_I_JSON_NULL] = "null",       [ESP_I_JSON_BOOL] = "a boolean",
        [ESP_I_JSON_INT] = "an integer",  [ESP_I_JSON_REAL] = "a number",
        [ESP_I_JSON_STRING] = "a string", [ESP_I_JSON_ARRAY] = "an array",
        [ESP_I_JSON_OBJECT] = "an object"};
    return names[kind];
}

esp_status_t esp_i_json_expect(esp_i_json_t value, esp_i_json_kind_t kind, esp_diag_t *diag)
{
    esp_i_json_kind_t found = esp_i_json_kind(value);
    if (found == kind || (kind == ESP_I_JSON_REAL && found == ESP_I_JSON_INT))
        return ESP_OK;
    return esp_i_json_fail(value, diag, ESP_ERR_INVALID, "expected %s, found %s", kind_name(kind),
                           kind_name(found));
}

esp_status_t esp_i_json_check_keys(esp_i_json_t value, const char *const *known, int32_t n,
                                   esp_diag_t *diag)
{
    ESP_TRY(esp_i_json_expect(value, ESP_I_JSON_OBJECT, diag));
    for (int32_t i = 0; i < esp_i_json_count(value); i++) {
        esp_i_json_t member = esp_i_json_item(value, i);
        bool found = false;
        for (int32_t k = 0; k < n && !found; k++)
            found = strcmp(esp_i_json_key(member), known[k]) == 0;
        if (found)
            continue;
        char list[300] = "";
        for (int32_t k = 0; k < n && strlen(list) + strlen(known[k]) + 3 < sizeof list; k++) {
            (void)strncat(list, k > 0 ? ", " : "", sizeof list - strlen(list) - 1);
            (void)strncat(list, known[k], sizeof list - strlen(list) - 1);
        }
        return esp_i_json_fail(member, diag, ESP_ERR_INVALID, "unknown key; known here: %s", list);
    }
    return ESP_OK;
}

/* ---- values ------------------------------------------------------------------------------- */

esp_status_t esp_i_json_as_int(esp_i_json_t value, int64_t min, int64_t max, int64_t *out,
                               esp_diag_t *diag)
{
    ESP_TRY(esp_i_json_expect(value, ESP_I_JSON_INT, diag));
    int64_t integer = node_of(value)->as.integer;
    if (integer < min || integer > max)
        return esp_i_json_fail(value, diag, ESP_ERR_INVALID, "%lld is not from %lld to %lld",
                               (long long)integer, (long long)min, (long long)max);
    *out = integer;
    return ESP_OK;
}

esp_status_t esp_i_json_as_real(esp_i_json_t value, double min, double max, double *out,
                                esp_diag_t *diag)
{
    ESP_TRY(esp_i_json_expect(value, ESP_I_JSON_REAL, diag));
    const node_t *node = node_of(value);
    double real = node->kind == ESP_I_JSON_INT ? (double)node->as.integer : node->as.real;
    if (real < min || real > max)
        return esp_i_json_fail(value, diag, ESP_ERR_INVALID, "%g is not from %g to %g", real, min,
                               max);
    *out = real;
    return ESP_OK;
}

esp_status_t esp_i_json_as_string(esp_i_json_t value, const char **out, esp_diag_t *diag)
{
    ESP_TRY(esp_i_json_expect(value, ESP_I_JSON_STRING, diag));
    *out = node_of(value)->as.string;
    return ESP_OK;
}

esp_status_t esp_i_json_as_bool(esp_i_json_t value, bool *out, esp_diag_t *diag)
{
    ESP_TRY(esp_i_json_expect(value, ESP_I_JSON_BOOL, diag));
    *out = node_of(value)->as.boolean;
    return ESP_OK;
}

static esp_status_t get_member(esp_i_json_t object, const char *key, esp_i_json_t *out,
                               esp_diag_t *diag)
{
    ESP_TRY(esp_i_json_expect(object, ESP_I_JSON_OBJECT, diag));
    if (esp_i_json_find(object, key, out))
        return ESP_OK;
    set_place(object, key, diag);
    return esp_i_fail(diag, ESP_ERR_INVALID, "this key is missing");
}

esp_status_t esp_i_json_get(esp_i_json_t object, const char *key, esp_i_json_kind_t kind,
                            esp_i_json_t *out, esp_diag_t *diag)
{
    esp_i_json_t member;
    ESP_TRY(get_member(object, key, &member, diag));
    ESP_TRY(esp_i_json_expect(member, kind, diag));
    *out = member;
    return ESP_OK;
}

esp_status_t esp_i_json_get_int(esp_i_json_t object, const char *key, int64_t min, int64_t max,
                                int64_t *out, esp_diag_t *diag)
{
    esp_i_json_t member;
    ESP_TRY(get_member(object, key, &member, diag));
    return esp_i_json_as_int(member, min, max, out, diag);
}

esp_status_t esp_i_json_get_real(esp_i_json_t object, const char *key, double min, double max,
                                 double *out, esp_diag_t *diag)
{
    esp_i_json_t member;
    ESP_TRY(get_member(object, key, &member, diag));
    return esp_i_json_as_real(member, min, max, out, diag);
}

esp_status_t esp_i_json_get_string(esp_i_json_t object, const char *key, const char **out,
                                   esp_diag_t *diag)
{
    esp_i_json_t member;
    ESP_TRY(get_member(object, key, &member, diag));
    return esp_i_json_as_string(member, out, diag);
}

esp_status_t esp_i_json_get_bool(esp_i_json_t object, const char *key, bool *out, esp_diag_t *diag)
{
    esp_i_json_t member;
    ESP_TRY(get_member(object, key, &member, diag));
    return esp_i_json_as_bool(member, out, diag);
}

esp_status_t esp_i_json_get_text(esp_i_json_t object, const char *key, esp_i_arena_t *arena,
                                 const char **out, esp_diag_t *diag)
{
    const char *text;
    ESP_TRY(esp_i_json_get_string(object, key, &text, diag));
    *out = esp_i_arena_strdup(arena, text);
    return *out ? ESP_OK : esp_i_nomem(diag);
}

esp_status_t esp_i_json_get_array(esp_i_json_t object, const char *key, esp_i_arena_t *arena,
                                  size_t size, esp_i_json_t *array_out, void *memory_out,
                                  esp_diag_t *diag)
{
    ESP_TRY(esp_i_json_get(object, key, ESP_I_JSON_ARRAY, array_out, diag));
    void *memory = esp_i_arena_alloc(arena, esp_i_json_count(*array_out), size);
    memcpy(memory_out, &memory, sizeof memory);
    return memory ? ESP_OK : esp_i_nomem(diag);
}

esp_status_t esp_i_json_check_format(esp_i_json_t root, const char *format, int32_t version,
                                     const char *otherwise, esp_diag_t *diag)
{
    const char *found;
    int64_t number;
    ESP_TRY(esp_i_json_get_string(root, "format", &found, diag));
    if (strcmp(found, format) != 0)
        return esp_i_json_fail(root, diag, ESP_ERR_INVALID, "%s \"format\" is \"%s\"", otherwise,
                               found);
    ESP_TRY(esp_i_json_get_int(root, "format_version", 1, INT32_MAX, &number, diag));
    if (number != version)
        return esp_i_json_fail(root, diag, ESP_ERR_UNSUPPORTED,
                               "format version %lld is not %d, the one that is supported",
                               (long long)number, version);
    return ESP_OK;
}
