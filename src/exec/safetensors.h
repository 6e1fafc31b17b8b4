/*
 * safetensors files: named tensors, read through a memory map; opening looks at the header only.
 */
#ifndef ESP_EXEC_SAFETENSORS_H
#define ESP_EXEC_SAFETENSORS_H

#include "exec/files.h"

typedef struct esp_i_st_tensor {
    const char *name;
    esp_dtype_t dtype;
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    int64_t elements, bytes, offset; /* offset: in the data section */
} esp_i_st_tensor_t;

typedef struct esp_i_st {
    esp_i_map_t map;
    esp_i_arena_t arena;
    int32_t n_tensors;
    const esp_i_st_tensor_t *tensor; /* in the order of their data */
    int32_t n_meta;
    const char *const *meta_key, *const *meta_value;
    const uint8_t *data; /* the data section */
} esp_i_st_t;
/*
 * Everything in the header is checked: dtypes, shapes, and that the data of the tensors fills the
 * rest of the file without gaps or overlaps. Errors: ESP_ERR_IO, ESP_ERR_SYNTAX, ESP_ERR_INVALID,
 * ESP_ERR_UNSUPPORTED (a dtype that graphs do not have), ESP_ERR_LIMIT.
 */
esp_status_t esp_i_st_open(const char *path, const esp_allocator_t *alloc, esp_i_st_t *st,
                           esp_diag_t *diag);
esp_status_t esp_i_st_parse(const void *bytes, int64_t length, const char *file,
                            const esp_allocator_t *alloc, esp_i_st_t *st, esp_diag_t *diag);
void esp_i_st_close(esp_i_st_t *st);
const char *esp_i_st_meta(const esp_i_st_t *st, const char *key); /* NULL: none */

/* The format's name of each dtype. */
extern const char *const esp_i_st_types[ESP_DTYPE_COUNT];

/*
 * Writes the header: metadata (pairs of key and value) and tensors by name, dtype, rank and dims,
 * whose other members are filled in. The data of each tensor, in that order, is then appended to
 * the file, and the file committed. Errors: ESP_ERR_IO, ESP_ERR_NOMEM; nothing is left then.
 */
esp_status_t esp_i_st_begin(const char *path, const esp_allocator_t *alloc, int32_t n_meta,
                            const char *const (*meta)[2], int32_t n_tensors,
                            esp_i_st_tensor_t *tensor, esp_i_file_out_t *out, esp_diag_t *diag);

#endif
