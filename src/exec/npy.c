/* The .npy format: a magic number, a Python dictionary as text, the data. */
#include "exec/files.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *descr;
    esp_dtype_t dtype;
} types[] = {
    {"<f4", ESP_DTYPE_F32}, {"<f8", ESP_DTYPE_F64}, {"<i8", ESP_DTYPE_I64}, {"<i4", ESP_DTYPE_I32},
    {"<i2", ESP_DTYPE_I16}, {"|i1", ESP_DTYPE_I8},  {"|u1", ESP_DTYPE_U8},  {"|b1", ESP_DTYPE_BOOL},
};
enum { N_TYPES = sizeof types / sizeof *types };

/* ---- the dictionary -------------------------------------------------------------------------- */

typedef struct scan {
    const char *at, *end;
    esp_diag_t *diag;
} scan_t;

static esp_status_t malformed(const scan_t *scan, const char *what)
{
    return esp_i_fail(scan->diag, ESP_ERR_SYNTAX, "not a .npy file: %s", what);
}

static void skip_blanks(scan_t *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t'))
        scan->at++;
}

static bool accept(scan_t *scan, const char *word)
{
    size_t length = strlen(word);
    skip_blanks(scan);
    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0)
        return false;
    scan->at += length;
    return true;
}

/* 'text' or "text", of fewer than 16 bytes. */
static esp_status_t read_string(scan_t *scan, char out[16])
{
    char quote[2] = {accept(scan, "'") ? '\'' : '"', '\0'};
    size_t n = 0;
    if (quote[0] == '"' && !accept(scan, "\""))
        return malformed(scan, "a string is missing in its header");
    while (scan->at < scan->end && *scan->at != quote[0] && n < 15)
        out[n++] = *scan->at++;
    out[n] = '\0';
    return accept(scan, quote) ? ESP_OK
                               : esp_i_fail(scan->diag, ESP_ERR_UNSUPPORTED,
                                            "a dtype or key of its header is not understood");
}

static esp_status_t read_number(scan_t *scan, int64_t *out)
{
    int64_t value = 0;
    skip_blanks(scan);
    const char *first = scan->at;
    for (; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++)
        if (!esp_i_mul_i64(value, 10, &value) || !esp_i_add_i64(value, *scan->at - '0', &value))
            return esp_i_fail(scan->diag, ESP_ERR_LIMIT, "an extent of its shape is too large");
    *out = value;
    return scan->at > first ? ESP_OK : malformed(scan, "a number is missing in its shape");
}

static esp_status_t read_shape(scan_t *scan, esp_i_npy_t *npy)
{
    npy->rank = 0;
    if (!accept(scan, "("))
        return malformed(scan, "its shape is no tuple");
    while (!accept(scan, ")")) {
        if (npy->rank == ESP_MAX_RANK)
            return esp_i_fail(scan->diag, ESP_ERR_LIMIT, "more than %d axes", ESP_MAX_RANK);
        ESP_TRY(read_number(scan, &npy->dims[npy->rank++]));
        if (!accept(scan, ",")) {
            if (npy->rank < 2 || !accept(scan, ")"))
                return malformed(scan, "its shape is no tuple");
            break;
        }
    }
    return ESP_OK;
}

static esp_status_t read_dtype(scan_t *scan, esp_dtype_t *dtype_out)
{
    char descr[16];
    skip_blanks(scan);
    if (scan->at < scan->end && *scan->at == '[')
        return esp_i_fail(scan->diag, ESP_ERR_UNSUPPORTED, "its elements are records");
    ESP_TRY(read_string(scan, descr));
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(descr, types[i].descr) == 0) {
            *dtype_out = types[i].dtype;
            return ESP_OK;
        }
    return esp_i_fail(scan->diag, ESP_ERR_UNSUPPORTED,
                      "its dtype is '%s'; float32/64, int8 to int64, uint8 and bool are read, "
                      "little endian",
                      descr);
}

static esp_status_t read_order(const scan_t *outer, scan_t *scan)
{
    if (accept(scan, "False"))
        return ESP_OK;
    if (accept(scan, "True"))
        return esp_i_fail(outer->diag, ESP_ERR_UNSUPPORTED,
                          "it is in Fortran order; save numpy.ascontiguousarray of it");
    return malformed(scan, "fortran_order is neither True nor False");
}

static esp_status_t read_dictionary(scan_t *scan, esp_i_npy_t *npy)
{
    static const char *const keys[3] = {"descr", "fortran_order", "shape"};
    unsigned seen = 0;
    if (!accept(scan, "{"))
        return malformed(scan, "its header is no dictionary");
    while (!accept(scan, "}")) {
        char key[16];
        unsigned k = 0;
        ESP_TRY(read_string(scan, key));
        while (k < 3 && strcmp(key, keys[k]) != 0)
            k++;
        if (k == 3 || (seen & 1U << k) != 0 || !accept(scan, ":"))
            return malformed(scan, "its header has an unexpected key");
        seen |= 1U << k;
        ESP_TRY(k == 0   ? read_dtype(scan, &npy->dtype)
                : k == 1 ? read_order(scan, scan)
                         : read_shape(scan, npy));
        if (!accept(scan, ",") && scan->at < scan->end && *scan->at != '}')
            return malformed(scan, "its header is no dictionary");
    }
    skip_blanks(scan);
    return seen == 7 && scan->at == scan->end ? ESP_OK
                                              : malformed(scan, "its header is incomplete");
}

/* ---- reading ------------------------------------------------------------------------------ */

static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* The extent of the header's text. */
static esp_status_t find_header(const uint8_t *bytes, int64_t length, int64_t *first_out,
                                int64_t *end_out, esp_diag_t *diag)
{
    if (length < 10 || memcmp(bytes, magic, sizeof magic) != 0)
        return esp_i_fail(diag, ESP_ERR_SYNTAX, "not a .npy file");
    if (bytes[6] < 1 || bytes[6] > 3)
        return esp_i_fail(diag, ESP_ERR_UNSUPPORTED, "version %d of the .npy format", bytes[6]);
    int64_t first = bytes[6] == 1 ? 10 : 12, size = 0;
    for (int64_t i = first - 1; i >= 8 && first <= length; i--)
        size = size << 8 | bytes[i];
    if (size > ESP_I_NPY_MAX_HEADER)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "its header is longer than %d bytes",
                          ESP_I_NPY_MAX_HEADER);
    if (first > length || size > length - first)
        return esp_i_fail(diag, ESP_ERR_SYNTAX, "not a .npy file: it ends in its header");
    *first_out = first;
    *end_out = first + size;
    return ESP_OK;
}

esp_status_t esp_i_npy_parse(const void *bytes, int64_t length, esp_i_npy_t *npy, esp_diag_t *diag)
{
    const char *text = bytes;
    int64_t first, end, size;
    esp_i_npy_t found = {0};
    ESP_TRY(find_header(bytes, length, &first, &end, diag));
    scan_t scan = {text + first, text + end, diag};
    ESP_TRY(read_dictionary(&scan, &found));
    found.elements = 1;
    for (int32_t d = 0; d < found.rank; d++)
        if (!esp_i_mul_i64(found.elements, found.dims[d], &found.elements) ||
            found.elements > ESP_MAX_ELEMENTS)
            return esp_i_fail(diag, ESP_ERR_LIMIT, "it has too many elements");
    size = found.elements * esp_dtype_bytes(found.dtype);
    if (length - end != size)
        return esp_i_fail(diag, ESP_ERR_SYNTAX,
                          "its shape needs %lld bytes of data, and it has %lld", (long long)size,
                          (long long)(length - end));
    found.data = (const uint8_t *)bytes + end;
    *npy = found;
    return ESP_OK;
}

esp_status_t esp_i_npy_open(const char *path, esp_i_npy_t *npy, esp_diag_t *diag)
{
    esp_i_map_t map;
    ESP_TRY(esp_i_map_open(path, &map, diag));
    esp_status_t status = esp_i_npy_parse(map.data, map.bytes, npy, diag);
    if (status == ESP_OK) {
        npy->map = map;
        return ESP_OK;
    }
    esp_i_diag_file(diag, path);
    esp_i_map_close(&map);
    return status;
}

void esp_i_npy_close(esp_i_npy_t *npy)
{
    esp_i_map_close(&npy->map);
    *npy = (esp_i_npy_t){0};
}

/* ---- writing ------------------------------------------------------------------------------ */

esp_status_t esp_i_npy_write(const char *path, esp_dtype_t dtype, int32_t rank, const int64_t *dims,
                             const void *data, esp_diag_t *diag)
{
    char shape[256] = "", header[512];
    size_t length = 0;
    int64_t bytes = esp_dtype_bytes(dtype);
    const char *descr = NULL;
    esp_i_file_out_t out;
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == dtype)
            descr = types[i].descr;
    if (descr == NULL)
        return esp_i_fail(diag, ESP_ERR_UNSUPPORTED, "a .npy file of %s", esp_dtype_name(dtype));
    for (int32_t d = 0; d < rank; d++) {
        length += (size_t)snprintf(shape + length, sizeof shape - length, "%lld,%s",
                                   (long long)dims[d], d < rank - 1 ? " " : "");
        bytes *= dims[d];
    }
    /* The data begins at a multiple of 64. */
    int n = snprintf(header + 10, sizeof header - 10,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    int total = (10 + n + 1 + 63) / 64 * 64;
    memcpy(header, magic, sizeof magic);
    header[6] = 1; /* version 1.0 */
    header[7] = 0;
    header[8] = (char)((total - 10) & 255);
    header[9] = (char)((total - 10) >> 8);
    memset(header + 10 + n, ' ', (size_t)(total - 11 - n));
    header[total - 1] = '\n';
    ESP_TRY(esp_i_file_begin(path, &out, diag));
    ESP_TRY(esp_i_file_append(&out, header, (size_t)total, diag));
    ESP_TRY(esp_i_file_append(&out, data, (size_t)bytes, diag));
    return esp_i_file_commit(&out, diag);
}
