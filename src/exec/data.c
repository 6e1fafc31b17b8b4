/* Rows of .npy files for the inputs of a graph. */
#include "espalier/train.h"
#include "exec/files.h"
#include "exec/kernels.h"
#include "exec/shuffle.h"
#include "exec/values.h"

#include <stdio.h>
#include <string.h>

typedef struct column {
    const char *path;
    esp_i_npy_t npy;
    esp_dtype_t dtype; /* as the executor stores it */
    esp_view_t batch;  /* extent 0: the whole tensor in each step */
    int64_t bound;     /* integers are in [0, bound); INT64_MAX: any */
    int64_t ignored;   /* but for this label; INT64_MIN: none */
} column_t;

struct esp_data {
    esp_i_arena_t arena;
    esp_data_opts_t opts;
    const esp_graph_t *graph;
    column_t *column; /* per input of the graph; path NULL: not given yet */
    int64_t rows, epoch_steps;
};

esp_data_opts_t esp_data_opts_default(void)
{
    return (esp_data_opts_t){.struct_size = sizeof(esp_data_opts_t), .shuffle = 1};
}

/* ---- opening --------------------------------------------------------------------------------- */

static void format_dims(int32_t rank, const int64_t *dims, char out[160])
{
    size_t length = 0;
    out[0] = '\0';
    for (int32_t d = 0; d < rank && length < 140; d++)
        length += (size_t)snprintf(out + length, 160 - length, "%s%lld", d > 0 ? ", " : "",
                                   (long long)dims[d]);
}

/* The extents that matter: not 1, and not that of axis `without`. */
static int32_t squeeze(int32_t rank, const int64_t *dims, int32_t without, int64_t *out)
{
    int32_t n = 0;
    for (int32_t d = 0; d < rank; d++)
        if (d != without && dims[d] != 1)
            out[n++] = dims[d];
    return n;
}

/* The axis that is the batch; ESP_NONE: it is merged with others. */
static int32_t batch_axis(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    esp_view_t view = graph->tensor_batch[tensor];
    int64_t outer = 1;
    for (int32_t d = 0; d < graph->tensor_rank[tensor]; d++) {
        if (outer == view.outer && graph->tensor_dims[tensor][d] == view.extent)
            return d;
        outer *= graph->tensor_dims[tensor][d];
    }
    return ESP_NONE;
}

/*
 * In a batch of one, ops may be left that do not know the batch, and behind them labels without
 * it. An array of other than the shape of such an input has rows for it.
 */
static bool is_row(const esp_graph_t *graph, esp_tensor_id_t tensor, const esp_i_npy_t *npy)
{
    int64_t have[ESP_MAX_RANK], want[ESP_MAX_RANK];
    if (graph->batch != 1 || graph->tensor_batch[tensor].extent > 0 || npy->rank == 0 ||
        graph->tensor_rank[tensor] == 0 || graph->tensor_dims[tensor][0] != 1)
        return false;
    int32_t n = squeeze(npy->rank, npy->dims, 0, have);
    int32_t m = squeeze(graph->tensor_rank[tensor], graph->tensor_dims[tensor], ESP_NONE, want);
    return n == m && memcmp(have, want, (size_t)n * sizeof *have) == 0;
}

static bool shape_fits(const esp_graph_t *graph, esp_tensor_id_t tensor, const esp_i_npy_t *npy)
{
    int64_t have[ESP_MAX_RANK], want[ESP_MAX_RANK];
    bool batched = graph->tensor_batch[tensor].extent > 0;
    int32_t axis = batched ? batch_axis(graph, tensor) : ESP_NONE;
    if (batched && (npy->rank == 0 || npy->dims[0] == 0))
        return npy->rank > 0;
    if (batched && axis == ESP_NONE)
        return npy->elements / npy->dims[0] ==
               graph->tensor_elements[tensor] / graph->tensor_batch[tensor].extent;
    int32_t n = squeeze(npy->rank, npy->dims, batched ? 0 : ESP_NONE, have);
    int32_t m = squeeze(graph->tensor_rank[tensor], graph->tensor_dims[tensor], axis, want);
    return n == m && memcmp(have, want, (size_t)n * sizeof *have) == 0;
}

/* A label that a cross-entropy leaves out may be any number. */
static int64_t ignored_label(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    for (int32_t i = graph->consumer_offset[tensor]; i < graph->consumer_offset[tensor + 1]; i++) {
        esp_op_id_t op = graph->consumer_op[i];
        if (graph->op_kind[op] == ESP_KIND_XENT &&
            graph->input_tensor[graph->input_offset[op] + 1] == tensor)
            return graph->op_attr[op].xent.ignore;
    }
    return INT64_MIN;
}

static esp_status_t check_column(const esp_data_t *data, esp_tensor_id_t tensor, column_t *column,
                                 esp_diag_t *diag)
{
    const esp_graph_t *graph = data->graph;
    const char *name = graph->tensor_name[tensor];
    esp_dtype_t dtype = (esp_dtype_t)graph->tensor_dtype[tensor];
    char have[160], want[160];
    column->dtype = esp_i_stored_dtype(dtype, data->opts.wide != 0);
    column->batch = graph->tensor_batch[tensor];
    column->bound = esp_dtype_is_float(dtype) ? INT64_MAX : esp_i_index_bound(graph, tensor);
    column->ignored = ignored_label(graph, tensor);
    if (!esp_i_converts(column->dtype, column->npy.dtype))
        return esp_i_fail(diag, ESP_ERR_INVALID, "input %s is of %s, and the array of %s", name,
                          esp_dtype_name(dtype), esp_dtype_name(column->npy.dtype));
    if (shape_fits(graph, tensor, &column->npy))
        return ESP_OK;
    if (is_row(graph, tensor, &column->npy)) {
        column->batch = (esp_view_t){1, 1, graph->tensor_elements[tensor]};
        return ESP_OK;
    }
    format_dims(column->npy.rank, column->npy.dims, have);
    format_dims(graph->tensor_rank[tensor], graph->tensor_dims[tensor], want);
    return esp_i_fail(
        diag, ESP_ERR_INVALID, "its shape [%s] does not fit input %s [%s], %s", have, name, want,
        column->batch.extent > 0 ? "whose batch it has rows for" : "which has no batch");
}

static esp_status_t unknown_input(esp_data_t *data, const char *name, int length, esp_diag_t *diag)
{
    const esp_graph_t *graph = data->graph;
    const char *list = "";
    for (int32_t i = 0; i < graph->n_inputs && list != NULL; i++)
        list = esp_i_arena_printf(&data->arena, "%s%s%s", list, i > 0 ? ", " : "",
                                  graph->tensor_name[graph->input[i]]);
    return list == NULL ? esp_i_nomem(diag)
                        : esp_i_fail(diag, ESP_ERR_ARGUMENT,
                                     "data for \"%.*s\", which is no input; those are %s", length,
                                     name, list);
}

/* One "NAME=FILE" of the spec. */
static esp_status_t open_column(esp_data_t *data, const char *entry, size_t length,
                                esp_diag_t *diag)
{
    const esp_graph_t *graph = data->graph;
    const char *equals = memchr(entry, '=', length);
    if (equals == NULL || equals == entry || equals == entry + length - 1)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "data \"%.*s\" is not NAME=FILE.npy", (int)length,
                          entry);
    size_t name_length = (size_t)(equals - entry);
    int32_t i = 0;
    while (i < graph->n_inputs &&
           (strlen(graph->tensor_name[graph->input[i]]) != name_length ||
            memcmp(graph->tensor_name[graph->input[i]], entry, name_length) != 0))
        i++;
    if (i == graph->n_inputs)
        return unknown_input(data, entry, (int)name_length, diag);
    column_t *column = &data->column[i];
    if (column->path != NULL)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "two files for input %.*s", (int)name_length,
                          entry);
    column->path = esp_i_arena_strndup(&data->arena, equals + 1, length - name_length - 1);
    if (column->path == NULL)
        return esp_i_nomem(diag);
    ESP_TRY(esp_i_npy_open(column->path, &column->npy, diag));
    esp_status_t status = check_column(data, graph->input[i], column, diag);
    if (status != ESP_OK)
        esp_i_diag_file(diag, column->path);
    return status;
}

/* All inputs are there, and their numbers of rows agree. */
static esp_status_t count_rows(esp_data_t *data, esp_diag_t *diag)
{
    const esp_graph_t *graph = data->graph;
    const char *first = NULL;
    for (int32_t i = 0; i < graph->n_inputs; i++) {
        const column_t *column = &data->column[i];
        if (column->path == NULL)
            return esp_i_fail(diag, ESP_ERR_ARGUMENT, "no data for input %s",
                              graph->tensor_name[graph->input[i]]);
        if (column->batch.extent == 0)
            continue;
        if (first != NULL && column->npy.dims[0] != data->rows) {
            esp_i_diag_file(diag, column->path);
            return esp_i_fail(diag, ESP_ERR_INVALID, "it has %lld rows, and %s has %lld",
                              (long long)column->npy.dims[0], first, (long long)data->rows);
        }
        first = column->path;
        data->rows = column->npy.dims[0];
    }
    if (first == NULL)
        return esp_i_fail(diag, ESP_ERR_INVALID, "no input of the graph has a batch");
    if (data->rows < graph->batch) {
        esp_i_diag_file(diag, first);
        return esp_i_fail(diag, ESP_ERR_INVALID, "%lld rows are fewer than one batch of %lld",
                          (long long)data->rows, (long long)graph->batch);
    }
    data->epoch_steps = data->rows / graph->batch;
    return ESP_OK;
}

static esp_status_t open_all(esp_data_t *data, const char *spec, esp_diag_t *diag)
{
    data->column = esp_i_arena_alloc(&data->arena, data->graph->n_inputs, sizeof *data->column);
    if (data->column == NULL)
        return esp_i_nomem(diag);
    while (*spec != '\0') {
        size_t length = strcspn(spec, ",");
        ESP_TRY(open_column(data, spec, length, diag));
        spec += length + (spec[length] == ',');
    }
    return count_rows(data, diag);
}

esp_status_t esp_data_open(const esp_graph_t *graph, const char *spec, const esp_data_opts_t *opts,
                           const esp_allocator_t *alloc, esp_data_t **data_out, esp_diag_t *diag)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    esp_data_t *data = esp_i_alloc_array(&from, 1, sizeof *data);
    if (data == NULL)
        return esp_i_nomem(diag);
    esp_i_arena_init(&data->arena, &from);
    data->opts = opts != NULL ? *opts : esp_data_opts_default();
    data->graph = graph;
    esp_status_t status = data->opts.struct_size == sizeof data->opts
                              ? open_all(data, spec, diag)
                              : esp_i_fail(diag, ESP_ERR_ARGUMENT, "options of an unknown version");
    if (status == ESP_OK)
        *data_out = data;
    else
        esp_data_close(data);
    return status;
}

void esp_data_close(esp_data_t *data)
{
    if (data == NULL)
        return;
    esp_allocator_t alloc = data->arena.alloc;
    for (int32_t i = 0; data->column != NULL && i < data->graph->n_inputs; i++)
        esp_i_npy_close(&data->column[i].npy);
    esp_i_arena_fini(&data->arena);
    esp_i_free(&alloc, data);
}

/* ---- order ----------------------------------------------------------------------------------- */

int64_t esp_data_rows(const esp_data_t *data)
{
    return data->rows;
}

int64_t esp_data_epoch_steps(const esp_data_t *data)
{
    return data->epoch_steps;
}

int64_t esp_data_row(const esp_data_t *data, uint64_t step, int64_t position)
{
    uint64_t epoch = step / (uint64_t)data->epoch_steps;
    int64_t index = (int64_t)(step % (uint64_t)data->epoch_steps) * data->graph->batch + position;
    return data->opts.shuffle != 0 ? esp_i_shuffle(data->opts.seed, epoch, data->rows, index)
                                   : index;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int64_t integer_at(esp_dtype_t dtype, const void *values, int64_t i)
{
    double value;
    if (dtype == ESP_DTYPE_I64)
        return ((const int64_t *)values)[i];
    esp_i_values_load(dtype, 1, (const char *)values + i * esp_dtype_bytes(dtype), &value);
    return (int64_t)value;
}

/* n elements of a file from `first`; `row` is for messages. */
static esp_status_t read_elements(const column_t *column, int64_t first, int64_t n, int64_t row,
                                  char *out, esp_diag_t *diag)
{
    int64_t bad;
    const uint8_t *source = column->npy.data + first * esp_dtype_bytes(column->npy.dtype);
    if (!esp_i_convert(column->dtype, out, column->npy.dtype, source, n, &bad)) {
        esp_i_diag_file(diag, column->path);
        return esp_i_fail(diag, ESP_ERR_INVALID, "row %lld: a number that does not fit %s",
                          (long long)row, esp_dtype_name(column->dtype));
    }
    for (int64_t i = 0; column->bound < INT64_MAX && i < n; i++) {
        int64_t value = integer_at(column->dtype, out, i);
        bool ignored = value == column->ignored && value != INT64_MIN;
        if ((value < 0 || value >= column->bound) && !ignored) {
            esp_i_diag_file(diag, column->path);
            return esp_i_fail(diag, ESP_ERR_INVALID, "row %lld: %lld is not in [0, %lld)",
                              (long long)row, (long long)value, (long long)column->bound);
        }
    }
    return ESP_OK;
}

/* Elements [first, first + n) of the tensor in a step. */
static esp_status_t read_run(const esp_data_t *data, const column_t *column, uint64_t step,
                             int64_t first, int64_t n, char *out, esp_diag_t *diag)
{
    esp_view_t batch = column->batch;
    if (batch.extent == 0)
        return read_elements(column, first, n, 0, out, diag);
    while (n > 0) {
        int64_t i = first % batch.inner, sample = first / batch.inner % batch.extent;
        int64_t outer = first / batch.inner / batch.extent, m = esp_i_min_i64(n, batch.inner - i);
        int64_t row = esp_data_row(data, step, sample);
        ESP_TRY(read_elements(column, (row * batch.outer + outer) * batch.inner + i, m, row, out,
                              diag));
        out += m * esp_dtype_bytes(column->dtype);
        first += m;
        n -= m;
    }
    return ESP_OK;
}

esp_status_t esp_data_read(void *context, uint64_t step, esp_tensor_id_t tensor, esp_view_t view,
                           int64_t offset, int64_t share, void *values_out, esp_diag_t *diag)
{
    const esp_data_t *data = context;
    const esp_graph_t *graph = data->graph;
    char *out = values_out;
    int32_t i = 0;
    while (i < graph->n_inputs && graph->input[i] != tensor)
        i++;
    if (i == graph->n_inputs)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "tensor %s is no input",
                          graph->tensor_name[tensor]);
    const column_t *column = &data->column[i];
    if (view.extent == 0)
        return read_run(data, column, step, 0, graph->tensor_elements[tensor], out, diag);
    for (int64_t o = 0; o < view.outer; o++) {
        ESP_TRY(read_run(data, column, step, (o * view.extent + offset) * view.inner,
                         share * view.inner, out, diag));
        out += share * view.inner * esp_dtype_bytes(column->dtype);
    }
    return ESP_OK;
}
