/*
 * Files of numbers: memory maps, conversion between dtypes, and .npy files (one array), of which
 * opening looks at the header only, whatever the size of the data.
 */
#ifndef ESP_EXEC_FILES_H
#define ESP_EXEC_FILES_H

#include "base/base.h"
#include "espalier/graph.h"

/* ---- maps (map.c) ---------------------------------------------------------------------------- */

/* A whole regular file, read only. Zero-initialised: none. */
typedef struct esp_i_map {
    const uint8_t *data;
    int64_t bytes;
} esp_i_map_t;
/* Errors: ESP_ERR_IO (with the file). */
esp_status_t esp_i_map_open(const char *path, esp_i_map_t *map, esp_diag_t *diag);
void esp_i_map_close(esp_i_map_t *map);

/* ---- conversion (convert.c) ------------------------------------------------------------------ */

/*
 * n elements of one dtype as another. Any number becomes a float (two-byte floats can only be
 * read); integers become integers if they fit; floats never become integers. False: a conversion
 * that is not offered, or, with *bad_out >= 0, an element that does not fit. Unaligned sources are
 * fine.
 */
bool esp_i_convert(esp_dtype_t to, void *dst, esp_dtype_t from, const void *src, int64_t n,
                   int64_t *bad_out);
bool esp_i_converts(esp_dtype_t to, esp_dtype_t from);

/* ---- .npy (npy.c) ---------------------------------------------------------------------------- */

#define ESP_I_NPY_MAX_HEADER 65536

typedef struct esp_i_npy {
    esp_i_map_t map;
    esp_dtype_t dtype;
    int32_t rank;
    int64_t dims[ESP_MAX_RANK];
    int64_t elements;
    const uint8_t *data; /* row-major, little endian */
} esp_i_npy_t;
/*
 * Versions 1 to 3, C order, little endian, float32/64, int8 .. int64, uint8, bool. Errors:
 * ESP_ERR_IO, ESP_ERR_SYNTAX (no such file, truncated), ESP_ERR_UNSUPPORTED (order, dtype,
 * version), ESP_ERR_LIMIT.
 */
esp_status_t esp_i_npy_open(const char *path, esp_i_npy_t *npy, esp_diag_t *diag);
void esp_i_npy_close(esp_i_npy_t *npy);
/* The header and the place of the data of a file in memory. */
esp_status_t esp_i_npy_parse(const void *bytes, int64_t length, esp_i_npy_t *npy, esp_diag_t *diag);
/* Writes version 1, atomically. Errors: ESP_ERR_IO, ESP_ERR_UNSUPPORTED (two-byte floats). */
esp_status_t esp_i_npy_write(const char *path, esp_dtype_t dtype, int32_t rank, const int64_t *dims,
                             const void *data, esp_diag_t *diag);

#endif
