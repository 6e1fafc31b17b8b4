/*
 * JSON: a writer whose output depends on nothing but the calls, and a reader whose errors say
 * where.
 */
#ifndef ESP_BASE_JSON_H
#define ESP_BASE_JSON_H

#include "base/base.h"

#define ESP_I_JSON_MAX_DEPTH 64
#define ESP_I_JSON_MAX_BYTES (INT64_C(64) << 20)

/* ---- writing ----------------------------------------------------------------------------- */

/*
 * Appends one document to a text, in the order of the calls:
 *
 *     esp_i_json_out_t out;
 *     esp_i_json_out_init(&out, &text);
 *     esp_i_json_open_object(&out, NULL);
 *     esp_i_json_put_int(&out, "devices", 4);
 *     esp_i_json_next_flat(&out);
 *     esp_i_json_open_array(&out, "shares");
 *     esp_i_json_put_int(&out, NULL, 3);
 *     esp_i_json_close(&out);
 *     esp_i_json_close(&out);          the outermost close also ends the line
 *
 * `key` is given inside objects and NULL elsewhere. Memory: text->failed, once at the end.
 */
typedef struct esp_i_json_out {
    esp_i_text_t *text;
    uint64_t is_array; /* one bit for each level */
    int32_t depth;
    int32_t flat_depth; /* from this level on all is on one line; 0: nowhere */
    bool next_flat, empty;
} esp_i_json_out_t;

void esp_i_json_out_init(esp_i_json_out_t *out, esp_i_text_t *text);
void esp_i_json_open_object(esp_i_json_out_t *out, const char *key);
void esp_i_json_open_array(esp_i_json_out_t *out, const char *key);
void esp_i_json_close(esp_i_json_out_t *out);
/* The container opened next, with all that is in it, goes on one line. */
void esp_i_json_next_flat(esp_i_json_out_t *out);
/* A NULL value is written as null. Bytes that are not UTF-8 become U+FFFD. */
void esp_i_json_put_string(esp_i_json_out_t *out, const char *key, const char *value);
void esp_i_json_put_int(esp_i_json_out_t *out, const char *key, int64_t value);
/* The shortest text that reads as the same double, always with a point or an exponent. JSON has no
 * infinities and no NaN: null. */
void esp_i_json_put_real(esp_i_json_out_t *out, const char *key, double value);
void esp_i_json_put_bool(esp_i_json_out_t *out, const char *key, bool value);
void esp_i_json_put_null(esp_i_json_out_t *out, const char *key);

/* ---- reading ------------------------------------------------------------------------------- */

/* A parsed document: immutable, owns its values and their strings. */
typedef struct esp_i_json_doc esp_i_json_doc_t;

/* A value in a document: a reference, passed by value, valid as long as the document. */
typedef struct esp_i_json {
    const esp_i_json_doc_t *doc;
    int32_t id;
} esp_i_json_t;

typedef enum esp_i_json_kind {
    ESP_I_JSON_NULL,
    ESP_I_JSON_BOOL,
    ESP_I_JSON_INT,
    ESP_I_JSON_REAL,
    ESP_I_JSON_STRING,
    ESP_I_JSON_ARRAY,
    ESP_I_JSON_OBJECT,
} esp_i_json_kind_t;

/*
 * Parses an object or array in UTF-8. `file` is for messages; it is copied. ESP_ERR_SYNTAX with
 * line and column (a key given twice is an error too), ESP_ERR_LIMIT beyond the limits above. An
 * integer that does not fit 64 bits is an error.
 */
esp_status_t esp_i_json_parse(const esp_allocator_t *alloc, const char *text, int64_t length,
                              const char *file, esp_i_json_doc_t **doc_out, esp_diag_t *diag);
/* The same for a file. */
esp_status_t esp_i_json_read(const esp_allocator_t *alloc, const char *path,
                             esp_i_json_doc_t **doc_out, esp_diag_t *diag);
void esp_i_json_destroy(esp_i_json_doc_t *doc);

esp_i_json_t esp_i_json_root(const esp_i_json_doc_t *doc);
esp_i_json_kind_t esp_i_json_kind(esp_i_json_t value);
/* Items of an array, members of an object, 0 for others. Both keep the order of the text. */
int32_t esp_i_json_count(esp_i_json_t value);
esp_i_json_t esp_i_json_item(esp_i_json_t value, int32_t index); /* 0 <= index < count */
const char *esp_i_json_key(esp_i_json_t value);                  /* of a member; NULL for others */
/* The member of that name, if value is an object that has it. O(members). */
bool esp_i_json_find(esp_i_json_t value, const char *key, esp_i_json_t *member_out);

/*
 * Fills file, JSON path ("$.groups[3].devices") and text, and returns status: for what the caller
 * finds wrong with a value.
 */
esp_status_t esp_i_json_fail(esp_i_json_t value, esp_diag_t *diag, esp_status_t status,
                             const char *format, ...) ESP_PRINTF(4, 5);
#ifdef __clang_analyzer__ /* as esp_i_fail */
#define esp_i_json_fail(value, diag, status, ...)                                                  \
    ((void)esp_i_json_fail(value, diag, status, __VA_ARGS__), (status))
#endif
/* ESP_ERR_INVALID unless value is an object whose keys are all in known[0..n). */
esp_status_t esp_i_json_check_keys(esp_i_json_t value, const char *const *known, int32_t n,
                                   esp_diag_t *diag);
/* The same with the keys as arguments. */
#define ESP_I_JSON_KEYS(value, diag, ...)                                                          \
    esp_i_json_check_keys(                                                                         \
        (value), (const char *const[]){__VA_ARGS__},                                               \
        (int32_t)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)), (diag))
/*
 * The start of a file of ours: ESP_ERR_INVALID unless member "format" of the object is `format`
 * (the message: otherwise, then what it is), ESP_ERR_UNSUPPORTED unless "format_version" is
 * `version`.
 */
esp_status_t esp_i_json_check_format(esp_i_json_t root, const char *format, int32_t version,
                                     const char *otherwise, esp_diag_t *diag);
/* ESP_ERR_INVALID unless value is of that kind. An integer is a real too. */
esp_status_t esp_i_json_expect(esp_i_json_t value, esp_i_json_kind_t kind, esp_diag_t *diag);

/*
 * The value as a C value, or ESP_ERR_INVALID. Bounds are inclusive. Integers pass as reals. Strings
 * belong to the document.
 */
esp_status_t esp_i_json_as_int(esp_i_json_t value, int64_t min, int64_t max, int64_t *out,
                               esp_diag_t *diag);
esp_status_t esp_i_json_as_real(esp_i_json_t value, double min, double max, double *out,
                                esp_diag_t *diag);
esp_status_t esp_i_json_as_string(esp_i_json_t value, const char **out, esp_diag_t *diag);
esp_status_t esp_i_json_as_bool(esp_i_json_t value, bool *out, esp_diag_t *diag);

/* The same for a member, which must be there. */
esp_status_t esp_i_json_get(esp_i_json_t object, const char *key, esp_i_json_kind_t kind,
                            esp_i_json_t *out, esp_diag_t *diag);
esp_status_t esp_i_json_get_int(esp_i_json_t object, const char *key, int64_t min, int64_t max,
                                int64_t *out, esp_diag_t *diag);
esp_status_t esp_i_json_get_real(esp_i_json_t object, const char *key, double min, double max,
                                 double *out, esp_diag_t *diag);
esp_status_t esp_i_json_get_string(esp_i_json_t object, const char *key, const char **out,
                                   esp_diag_t *diag);
esp_status_t esp_i_json_get_bool(esp_i_json_t object, const char *key, bool *out, esp_diag_t *diag);
/* A string that the arena keeps. */
esp_status_t esp_i_json_get_text(esp_i_json_t object, const char *key, esp_i_arena_t *arena,
                                 const char **out, esp_diag_t *diag);
/* An array, and as many zeroed elements of `size` bytes: memory_out is the address of a pointer. */
esp_status_t esp_i_json_get_array(esp_i_json_t object, const char *key, esp_i_arena_t *arena,
                                  size_t size, esp_i_json_t *array_out, void *memory_out,
                                  esp_diag_t *diag);

/* Writes a value that was read, with all that is in it, at the depth where `out` is. */
void esp_i_json_put_value(esp_i_json_out_t *out, const char *key, esp_i_json_t value);

#endif
