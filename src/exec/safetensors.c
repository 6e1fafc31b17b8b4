/* Reading safetensors: eight bytes of header length, a JSON object, the data. */
#include "base/json.h"
#include "exec/safetensors.h"

#include <stdlib.h>
#include <string.h>

const char *const esp_i_st_types[ESP_DTYPE_COUNT] = {
    [ESP_DTYPE_F32] = "F32",   [ESP_DTYPE_F64] = "F64", [ESP_DTYPE_F16] = "F16",
    [ESP_DTYPE_BF16] = "BF16", [ESP_DTYPE_I8] = "I8",   [ESP_DTYPE_U8] = "U8",
    [ESP_DTYPE_I16] = "I16",   [ESP_DTYPE_I32] = "I32", [ESP_DTYPE_I64] = "I64",
    [ESP_DTYPE_BOOL] = "BOOL",
};

static esp_status_t read_dtype(esp_i_json_t entry, esp_dtype_t *out, esp_diag_t *diag)
{
    const char *text;
    esp_i_json_t value;
    ESP_TRY(esp_i_json_get(entry, "dtype", ESP_I_JSON_STRING, &value, diag));
    ESP_TRY(esp_i_json_as_string(value, &text, diag));
    for (int32_t i = 0; i < ESP_DTYPE_COUNT; i++)
        if (strcmp(text, esp_i_st_types[i]) == 0) {
            *out = (esp_dtype_t)i;
            return ESP_OK;
        }
    return esp_i_json_fail(value, diag, ESP_ERR_UNSUPPORTED, "dtype \"%s\" is not supported", text);
}

static esp_status_t read_shape(esp_i_json_t entry, esp_i_st_tensor_t *tensor, esp_diag_t *diag)
{
    esp_i_json_t shape;
    ESP_TRY(esp_i_json_get(entry, "shape", ESP_I_JSON_ARRAY, &shape, diag));
    if (esp_i_json_count(shape) > ESP_MAX_RANK)
        return esp_i_json_fail(shape, diag, ESP_ERR_LIMIT, "more than %d axes", ESP_MAX_RANK);
    tensor->rank = esp_i_json_count(shape);
    tensor->elements = 1;
    for (int32_t d = 0; d < tensor->rank; d++) {
        esp_i_json_t extent = esp_i_json_item(shape, d);
        ESP_TRY(esp_i_json_as_int(extent, 0, ESP_MAX_ELEMENTS, &tensor->dims[d], diag));
        if (!esp_i_mul_i64(tensor->elements, tensor->dims[d], &tensor->elements) ||
            tensor->elements > ESP_MAX_ELEMENTS)
            return esp_i_json_fail(shape, diag, ESP_ERR_LIMIT, "too many elements");
    }
    tensor->bytes = tensor->elements * esp_dtype_bytes(tensor->dtype);
    return ESP_OK;
}

static esp_status_t read_entry(esp_i_st_t *st, esp_i_json_t entry, esp_i_st_tensor_t *tensor,
                               esp_diag_t *diag)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    esp_i_json_t offsets;
    int64_t end;
    ESP_TRY(esp_i_json_expect(entry, ESP_I_JSON_OBJECT, diag));
    ESP_TRY(esp_i_json_check_keys(entry, keys, 3, diag));
    ESP_TRY(read_dtype(entry, &tensor->dtype, diag));
    ESP_TRY(read_shape(entry, tensor, diag));
    ESP_TRY(esp_i_json_get(entry, "data_offsets", ESP_I_JSON_ARRAY, &offsets, diag));
    if (esp_i_json_count(offsets) != 2)
        return esp_i_json_fail(offsets, diag, ESP_ERR_INVALID, "must be two numbers");
    ESP_TRY(esp_i_json_as_int(esp_i_json_item(offsets, 0), 0, INT64_MAX, &tensor->offset, diag));
    ESP_TRY(esp_i_json_as_int(esp_i_json_item(offsets, 1), tensor->offset, INT64_MAX, &end, diag));
    if (end - tensor->offset != tensor->bytes)
        return esp_i_json_fail(offsets, diag, ESP_ERR_INVALID,
                               "%lld bytes, and the shape needs %lld",
                               (long long)(end - tensor->offset), (long long)tensor->bytes);
    tensor->name = esp_i_arena_strdup(&st->arena, esp_i_json_key(entry));
    return tensor->name != NULL ? ESP_OK : esp_i_nomem(diag);
}

static esp_status_t read_metadata(esp_i_st_t *st, esp_i_json_t meta, esp_diag_t *diag)
{
    ESP_TRY(esp_i_json_expect(meta, ESP_I_JSON_OBJECT, diag));
    int32_t n = esp_i_json_count(meta);
    const char **key = esp_i_arena_alloc(&st->arena, n, sizeof *key);
    const char **value = esp_i_arena_alloc(&st->arena, n, sizeof *value);
    if (key == NULL || value == NULL)
        return esp_i_nomem(diag);
    for (int32_t i = 0; i < n; i++) {
        const char *text;
        ESP_TRY(esp_i_json_as_string(esp_i_json_item(meta, i), &text, diag));
        key[i] = esp_i_arena_strdup(&st->arena, esp_i_json_key(esp_i_json_item(meta, i)));
        value[i] = esp_i_arena_strdup(&st->arena, text);
        if (key[i] == NULL || value[i] == NULL)
            return esp_i_nomem(diag);
    }
    st->n_meta = n;
    st->meta_key = key;
    st->meta_value = value;
    return ESP_OK;
}

static int by_offset(const void *a, const void *b)
{
    const esp_i_st_tensor_t *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* Each tensor begins where the one before ends, and the last ends with the file. */
static esp_status_t check_cover(const esp_i_st_t *st, int64_t bytes, esp_diag_t *diag)
{
    int64_t at = 0;
    for (int32_t i = 0; i < st->n_tensors; i++) {
        if (st->tensor[i].offset != at || st->tensor[i].bytes > bytes - at) {
            esp_i_diag_place(diag, "tensor '%s'", st->tensor[i].name);
            return esp_i_fail(diag, ESP_ERR_INVALID,
                              st->tensor[i].offset != at
                                  ? "its data does not follow that of the tensor before"
                                  : "its data ends after the file");
        }
        at += st->tensor[i].bytes;
    }
    return at == bytes ? ESP_OK
                       : esp_i_fail(diag, ESP_ERR_INVALID, "%lld bytes of data belong to no tensor",
                                    (long long)(bytes - at));
}

static esp_status_t read_header(esp_i_st_t *st, esp_i_json_t root, esp_diag_t *diag)
{
    ESP_TRY(esp_i_json_expect(root, ESP_I_JSON_OBJECT, diag));
    int32_t n = esp_i_json_count(root);
    esp_i_st_tensor_t *tensor = esp_i_arena_alloc(&st->arena, n, sizeof *tensor);
    if (tensor == NULL)
        return esp_i_nomem(diag);
    for (int32_t i = 0; i < n; i++) {
        esp_i_json_t entry = esp_i_json_item(root, i);
        if (strcmp(esp_i_json_key(entry), "__metadata__") == 0)
            ESP_TRY(read_metadata(st, entry, diag));
        else
            ESP_TRY(read_entry(st, entry, &tensor[st->n_tensors++], diag));
    }
    if (st->n_tensors > 0)
        qsort(tensor, (size_t)st->n_tensors, sizeof *tensor, by_offset);
    st->tensor = tensor;
    return ESP_OK;
}

static esp_status_t parse(const uint8_t *bytes, int64_t length, const char *file, esp_i_st_t *st,
                          esp_diag_t *diag)
{
    esp_i_json_doc_t *doc;
    uint64_t size = 0;
    if (length < 8)
        return esp_i_fail(diag, ESP_ERR_SYNTAX, "not a safetensors file: too short");
    for (int i = 7; i >= 0; i--)
        size = size << 8 | bytes[i];
    if (size > (uint64_t)(length - 8))
        return esp_i_fail(diag, ESP_ERR_SYNTAX,
                          "not a safetensors file, or one that was cut short: its header should "
                          "have %llu bytes",
                          (unsigned long long)size);
    ESP_TRY(esp_i_json_parse(&st->arena.alloc, (const char *)bytes + 8, (int64_t)size, file, &doc,
                             diag));
    esp_status_t status = read_header(st, esp_i_json_root(doc), diag);
    esp_i_json_destroy(doc);
    ESP_TRY(status);
    st->data = bytes + 8 + size;
    return check_cover(st, length - 8 - (int64_t)size, diag);
}

esp_status_t esp_i_st_parse(const void *bytes, int64_t length, const char *file,
                            const esp_allocator_t *alloc, esp_i_st_t *st, esp_diag_t *diag)
{
    *st = (esp_i_st_t){0};
    esp_i_arena_init(&st->arena, alloc);
    esp_status_t status = parse(bytes, length, file, st, diag);
    if (status != ESP_OK) {
        esp_i_diag_file(diag, file);
        esp_i_st_close(st);
    }
    return status;
}

esp_status_t esp_i_st_open(const char *path, const esp_allocator_t *alloc, esp_i_st_t *st,
                           esp_diag_t *diag)
{
    esp_i_map_t map;
    ESP_TRY(esp_i_map_open(path, &map, diag));
    esp_status_t status = esp_i_st_parse(map.data, map.bytes, path, alloc, st, diag);
    if (status == ESP_OK)
        st->map = map;
    else
        esp_i_map_close(&map);
    return status;
}

void esp_i_st_close(esp_i_st_t *st)
{
    esp_i_arena_fini(&st->arena);
    esp_i_map_close(&st->map);
    *st = (esp_i_st_t){0};
}

const char *esp_i_st_meta(const esp_i_st_t *st, const char *key)
{
    for (int32_t i = 0; i < st->n_meta; i++)
        if (strcmp(st->meta_key[i], key) == 0)
            return st->meta_value[i];
    return NULL;
}
