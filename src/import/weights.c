/* The data of initialisers: in the model file, as raw bytes or typed lists, or in files beside it.
 */
#include "import/import.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct weights {
    esp_onnx_weights_t pub; /* first: the handle is its address */
    esp_i_arena_t arena;
    char *bytes; /* of the file */
    const char *path;
    esp_i_pb_tensor_t *tensor;
} weights_t;

/* ---- external data --------------------------------------------------------------------------- */

/* A path below the directory of the model: relative, and never upwards. */
static bool stays_below(esp_i_str_t location)
{
    int64_t at = 0;
    if (location.length == 0 || location.data[0] == '/' ||
        memchr(location.data, '\0', (size_t)location.length) != NULL)
        return false;
    while (at < location.length) {
        int64_t end = at;
        while (end < location.length && location.data[end] != '/')
            end++;
        if (end - at == 2 && memcmp(location.data + at, "..", 2) == 0)
            return false;
        at = end + 1;
    }
    return true;
}

/* Opens the file that holds the data; -1 and errno. */
static int open_external(const weights_t *w, const esp_i_pb_tensor_t *tensor)
{
    char path[4096];
    const char *slash = strrchr(w->path, '/');
    int length =
        snprintf(path, sizeof path, "%.*s%.*s", slash != NULL ? (int)(slash + 1 - w->path) : 0,
                 w->path, (int)tensor->location.length, tensor->location.data);
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static bool external_there(const weights_t *w, const esp_i_pb_tensor_t *tensor)
{
    struct stat st;
    int file = stays_below(tensor->location) ? open_external(w, tensor) : -1;
    bool there = file >= 0 && fstat(file, &st) == 0 && S_ISREG(st.st_mode);
    if (file >= 0)
        (void)close(file);
    return there;
}

static esp_status_t read_external(const weights_t *w, const esp_i_pb_tensor_t *tensor, char *out,
                                  int64_t bytes, esp_diag_t *diag)
{
    int64_t done = 0;
    int file = open_external(w, tensor);
    if (file < 0)
        return esp_i_fail(diag, ESP_ERR_IO, "cannot open its external data: %s",
                          errno == ENOENT ? "no such file" : "not readable");
    while (done < bytes) {
        ssize_t count = pread(file, out + done, (size_t)(bytes - done), tensor->offset + done);
        if (count <= 0 && !(count < 0 && errno == EINTR))
            break;
        done += count > 0 ? count : 0;
    }
    (void)close(file);
    return done == bytes
               ? ESP_OK
               : esp_i_fail(diag, ESP_ERR_INVALID, "its external data has %lld bytes, not %lld",
                            (long long)done, (long long)bytes);
}

/* ---- data in the file ------------------------------------------------------------------------ */

static bool typed_there(const esp_i_pb_tensor_t *tensor)
{
    uint32_t number;
    esp_i_wire_type_t type;
    uint64_t bits;
    esp_i_im_typed_field(tensor->data_type, &number, &type);
    esp_i_wire_numbers_t numbers = esp_i_wire_numbers(tensor->body, number, type);
    return esp_i_wire_number(&numbers, &bits, NULL);
}

/* Whatever the list: the low bytes of an entry are the element. */
static esp_status_t read_typed(const esp_i_pb_tensor_t *tensor, const esp_onnx_weight_t *weight,
                               char *out, esp_diag_t *diag)
{
    uint32_t number;
    esp_i_wire_type_t type;
    uint64_t bits;
    int64_t n = 0, size = esp_dtype_bytes(weight->dtype);
    esp_i_im_typed_field(tensor->data_type, &number, &type);
    esp_i_wire_numbers_t numbers = esp_i_wire_numbers(tensor->body, number, type);
    while (esp_i_wire_number(&numbers, &bits, diag)) {
        if (n < weight->elements)
            memcpy(out + n * size, &bits, (size_t)size);
        n++;
    }
    if (numbers.wire.status != ESP_OK)
        return numbers.wire.status;
    return n == weight->elements
               ? ESP_OK
               : esp_i_fail(diag, ESP_ERR_INVALID, "it has %lld elements of data, not %lld",
                            (long long)n, (long long)weight->elements);
}

esp_status_t esp_onnx_weights_read(const esp_onnx_weights_t *weights, int32_t index, void *data_out,
                                   esp_diag_t *diag)
{
    const weights_t *w = (const weights_t *)weights;
    const esp_onnx_weight_t *weight = &weights->weight[index];
    const esp_i_pb_tensor_t *tensor = &w->tensor[index];
    int64_t bytes = weight->elements * esp_dtype_bytes(weight->dtype);
    esp_i_diag_file(diag, w->path);
    esp_i_diag_place(diag, "initializer '%s'", weight->name);
    if (tensor->external && !stays_below(tensor->location))
        return esp_i_fail(diag, ESP_ERR_UNSUPPORTED,
                          "its external data is not below the directory of the model");
    if (tensor->external)
        return read_external(w, tensor, data_out, bytes, diag);
    if (!tensor->has_raw)
        return read_typed(tensor, weight, data_out, diag);
    if (tensor->raw.end - tensor->raw.at != bytes)
        return esp_i_fail(diag, ESP_ERR_INVALID, "it has %lld bytes of data, not %lld",
                          (long long)(tensor->raw.end - tensor->raw.at), (long long)bytes);
    if (bytes > 0)
        memcpy(data_out, tensor->raw.at, (size_t)bytes);
    return ESP_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool data_there(const weights_t *w, const esp_i_pb_tensor_t *tensor, int64_t elements)
{
    if (tensor->external)
        return external_there(w, tensor);
    return elements == 0 || tensor->has_raw || typed_there(tensor);
}

/* One initialiser; those that no graph can have are left out. */
static esp_status_t add(weights_t *w, esp_i_wire_t body, esp_onnx_weight_t *weight, int32_t *n,
                        esp_diag_t *diag)
{
    esp_i_pb_tensor_t *tensor = &w->tensor[*n];
    ESP_TRY(esp_i_pb_tensor(body, tensor, diag));
    esp_onnx_weight_t *out = &weight[*n];
    if (!esp_i_pb_dtype(tensor->data_type, &out->dtype) || tensor->rank > ESP_MAX_RANK ||
        tensor->segmented || tensor->name.length > INT32_MAX)
        return ESP_OK;
    out->elements = 1;
    out->rank = tensor->rank;
    for (int32_t d = 0; d < out->rank; d++) {
        out->dims[d] = tensor->dims[d];
        if (out->dims[d] < 0 || !esp_i_mul_i64(out->elements, out->dims[d], &out->elements) ||
            out->elements > ESP_MAX_ELEMENTS)
            return ESP_OK;
    }
    out->name = esp_i_arena_strndup(&w->arena, tensor->name.length > 0 ? tensor->name.data : "",
                                    (size_t)tensor->name.length);
    if (out->name == NULL)
        return esp_i_nomem(diag);
    out->there = data_there(w, tensor, out->elements);
    ++*n;
    return ESP_OK;
}

static esp_status_t read_all(weights_t *w, int64_t length, esp_diag_t *diag)
{
    esp_i_pb_model_t model;
    esp_i_wire_t item;
    int32_t most = 0;
    ESP_TRY(esp_i_pb_model(esp_i_wire_open(w->bytes, length), &model, diag));
    if (!model.has_graph)
        return esp_i_fail(diag, ESP_ERR_SYNTAX, "this is not an ONNX model: it has no graph");
    esp_i_wire_t graph = model.graph;
    while (esp_i_pb_each(&graph, ESP_I_GRAPH_INITIALIZERS, &item, diag) && most < INT32_MAX)
        most++;
    ESP_TRY(graph.status);
    esp_onnx_weight_t *weight = esp_i_arena_alloc(&w->arena, most, sizeof *weight);
    w->tensor = esp_i_arena_alloc(&w->arena, most, sizeof *w->tensor);
    if (weight == NULL || w->tensor == NULL)
        return esp_i_nomem(diag);
    w->pub.weight = weight;
    graph = model.graph;
    while (esp_i_pb_each(&graph, ESP_I_GRAPH_INITIALIZERS, &item, diag))
        ESP_TRY(add(w, item, weight, &w->pub.n, diag));
    return graph.status;
}

esp_status_t esp_onnx_weights_open(const char *path, const esp_allocator_t *alloc,
                                   esp_onnx_weights_t **weights_out, esp_diag_t *diag)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    weights_t *w = esp_i_alloc_array(&from, 1, sizeof *w);
    int64_t length = 0;
    if (w == NULL)
        return esp_i_nomem(diag);
    esp_i_arena_init(&w->arena, &from);
    w->path = esp_i_arena_strdup(&w->arena, path);
    esp_status_t status = w->path != NULL ? ESP_OK : esp_i_nomem(diag);
    if (status == ESP_OK)
        status = esp_i_file_read(&from, path, ESP_ONNX_MAX_FILE_BYTES, &w->bytes, &length, diag);
    if (status == ESP_OK)
        status = read_all(w, length, diag);
    if (status != ESP_OK) {
        esp_i_diag_file(diag, path);
        esp_onnx_weights_close(&w->pub);
        return status;
    }
    *weights_out = &w->pub;
    return ESP_OK;
}

void esp_onnx_weights_close(esp_onnx_weights_t *weights)
{
    weights_t *w = (weights_t *)weights;
    if (w == NULL)
        return;
    esp_allocator_t alloc = w->arena.alloc;
    esp_i_free(&alloc, w->bytes);
    esp_i_arena_fini(&w->arena);
    esp_i_free(&alloc, w);
}
