/* Initial weights from safetensors and ONNX files. */
#include "espalier/onnx.h"
#include "exec/safetensors.h"
#include "exec/tensors.h"

#include <string.h>

esp_weights_opts_t esp_weights_opts_default(void)
{
    return (esp_weights_opts_t){.struct_size = sizeof(esp_weights_opts_t)};
}

/* Named tensors of either kind of file, on rank 0. */
typedef struct source {
    bool is_onnx;
    esp_i_st_t st;
    esp_onnx_weights_t *onnx;
    int32_t n;
    esp_i_arena_t arena; /* of names */
    esp_i_names_t names; /* id -> number + 1 of the tensor, in index */
    ESP_VEC(int32_t) index;
    bool *used; /* per tensor */
} source_t;

static void source_close(source_t *source)
{
    esp_vec_free(&source->arena.alloc, &source->index);
    esp_i_free(&source->arena.alloc, source->used);
    esp_i_names_fini(&source->names);
    esp_i_arena_fini(&source->arena);
    esp_onnx_weights_close(source->onnx);
    if (!source->is_onnx)
        esp_i_st_close(&source->st);
}

static const char *name_at(const source_t *source, int32_t i)
{
    return source->is_onnx ? source->onnx->weight[i].name : source->st.tensor[i].name;
}

static bool there(const source_t *source, int32_t i)
{
    return !source->is_onnx || source->onnx->weight[i].there != 0;
}

/* Names are interned, and the ids count up: the first tensor of a name counts. */
static esp_status_t index_names(source_t *source, esp_diag_t *diag)
{
    source->used = esp_i_alloc_array(&source->arena.alloc, source->n, sizeof *source->used);
    if (source->used == NULL)
        return esp_i_nomem(diag);
    for (int32_t i = 0; i < source->n; i++) {
        const char *name = name_at(source, i);
        int32_t id = esp_i_names_add(&source->names, name, strlen(name));
        if (id < 0 ||
            (id == source->index.count && !esp_vec_push(&source->arena.alloc, &source->index, i)))
            return esp_i_nomem(diag);
    }
    return ESP_OK;
}

static esp_status_t source_open(source_t *source, const char *path, esp_diag_t *diag)
{
    size_t length = strlen(path);
    *source = (source_t){.is_onnx = length >= 5 && strcmp(path + length - 5, ".onnx") == 0};
    esp_i_arena_init(&source->arena, NULL);
    esp_i_names_init(&source->names, &source->arena);
    if (source->is_onnx)
        ESP_TRY(esp_onnx_weights_open(path, NULL, &source->onnx, diag));
    else
        ESP_TRY(esp_i_st_open(path, NULL, &source->st, diag));
    source->n = source->is_onnx ? source->onnx->n : source->st.n_tensors;
    return index_names(source, diag);
}

/* Number of the tensor of that name; ESP_NONE: none. */
static int32_t find(source_t *source, const char *name)
{
    int32_t id = esp_i_names_find(&source->names, name, strlen(name));
    if (id < 0)
        return ESP_NONE;
    esp_dcheck(source->index.data != NULL && source->used != NULL);
    source->used[source->index.data[id]] = true;
    return source->index.data[id];
}

/* The values of tensor i of the file as the executor takes those of `tensor`. */
static esp_status_t convert(const esp_train_job_t *job, const source_t *source, int32_t i,
                            esp_tensor_id_t tensor, void *values, esp_diag_t *diag)
{
    esp_dtype_t to = esp_i_outside_dtype(job, tensor), from;
    int64_t n = job->graph->tensor_elements[tensor], bad;
    const void *data;
    void *owned = NULL;
    from = source->is_onnx ? source->onnx->weight[i].dtype : source->st.tensor[i].dtype;
    if (!esp_i_converts(to, from))
        return esp_i_fail(diag, ESP_ERR_INVALID, "it is of %s in the file and of %s in the graph",
                          esp_dtype_name(from), esp_dtype_name(to));
    if (source->is_onnx) {
        data = owned = esp_i_alloc(&esp_i_malloc, (size_t)(n * esp_dtype_bytes(from)) + 1);
        if (owned == NULL)
            return esp_i_nomem(diag);
        esp_status_t status = esp_onnx_weights_read(source->onnx, i, owned, diag);
        if (status != ESP_OK) {
            esp_i_free(&esp_i_malloc, owned);
            return status;
        }
    } else {
        data = source->st.data + source->st.tensor[i].offset;
    }
    bool fine = esp_i_convert(to, values, from, data, n, &bad);
    esp_i_free(&esp_i_malloc, owned);
    return fine ? ESP_OK
                : esp_i_fail(diag, ESP_ERR_INVALID, "element %lld does not fit %s", (long long)bad,
                             esp_dtype_name(to));
}

static esp_status_t check_shape(const esp_graph_t *graph, esp_tensor_id_t tensor,
                                const source_t *source, int32_t i, esp_diag_t *diag)
{
    int32_t rank = source->is_onnx ? source->onnx->weight[i].rank : source->st.tensor[i].rank;
    const int64_t *dims =
        source->is_onnx ? source->onnx->weight[i].dims : source->st.tensor[i].dims;
    bool same = rank == graph->tensor_rank[tensor];
    for (int32_t d = 0; same && d < rank; d++)
        same = dims[d] == graph->tensor_dims[tensor][d];
    return same ? ESP_OK
                : esp_i_fail(diag, ESP_ERR_INVALID,
                             "its shape in the file is not that in the graph (%d axes, first %lld; "
                             "graph: %d, %lld)",
                             (int)rank, (long long)(rank > 0 ? dims[0] : 1),
                             (int)graph->tensor_rank[tensor],
                             (long long)(graph->tensor_rank[tensor] > 0
                                             ? graph->tensor_dims[tensor][0]
                                             : 1));
}

/* On rank 0. *found_out: 0 if the file does not have it. */
static esp_status_t read_one(const esp_train_job_t *job, source_t *source, esp_tensor_id_t tensor,
                             void *values, int32_t *found_out, esp_diag_t *diag)
{
    int32_t i = find(source, job->graph->tensor_name[tensor]);
    *found_out = i != ESP_NONE && there(source, i);
    if (*found_out == 0)
        return ESP_OK;
    esp_i_diag_place(diag, "tensor '%s'", job->graph->tensor_name[tensor]);
    ESP_TRY(check_shape(job->graph, tensor, source, i, diag));
    ESP_TRY(convert(job, source, i, tensor, values, diag));
    if (diag != NULL)
        *diag = (esp_diag_t){0};
    return ESP_OK;
}

static bool is_weight(const esp_graph_t *graph, esp_tensor_id_t tensor)
{
    return esp_i_is_kept(graph, tensor) && graph->tensor_role[tensor] != ESP_ROLE_STATE;
}

static esp_status_t load_all(const esp_train_job_t *job, source_t *source, const char *path,
                             const esp_weights_opts_t *opts, void *values,
                             esp_weights_result_t *result, esp_diag_t *diag)
{
    bool reads = esp_launch_rank(job->launch) == 0;
    for (esp_tensor_id_t i = 0; i < job->graph->n_tensors; i++) {
        int32_t found = 0;
        if (!is_weight(job->graph, i))
            continue;
        esp_status_t status = reads ? read_one(job, source, i, values, &found, diag) : ESP_OK;
        if (status != ESP_OK)
            esp_i_diag_file(diag, path);
        ESP_TRY(esp_i_share_status(job->launch, status, diag));
        ESP_TRY(esp_launch_share(job->launch, &found, sizeof found, diag));
        if (found == 0) {
            result->missing++;
            if (reads && opts->unmatched != NULL)
                opts->unmatched(opts->context, job->graph->tensor_name[i], 0);
            continue;
        }
        result->loaded++;
        ESP_TRY(esp_launch_share(job->launch, values, esp_i_outside_bytes(job, i), diag));
        ESP_TRY(esp_exec_set(job->exec, i, values, diag));
    }
    return ESP_OK;
}

/* Integers of an ONNX file are shapes and indices, which import has used up. */
static void report_unused(const source_t *source, const esp_weights_opts_t *opts,
                          esp_weights_result_t *result)
{
    for (int32_t i = 0; i < source->n; i++) {
        if (source->used[i] || !there(source, i) ||
            (source->is_onnx && (esp_dtype_is_float(source->onnx->weight[i].dtype) == 0 ||
                                 source->onnx->weight[i].elements == 1)))
            continue;
        result->unused++;
        if (opts->unmatched != NULL)
            opts->unmatched(opts->context, name_at(source, i), 1);
    }
}

esp_status_t esp_weights_load(const esp_train_job_t *job, const char *path,
                              const esp_weights_opts_t *opts, esp_weights_result_t *result_out,
                              esp_diag_t *diag)
{
    const esp_weights_opts_t defaults = esp_weights_opts_default();
    esp_weights_result_t result = {0};
    source_t source = {0};
    bool reads = esp_launch_rank(job->launch) == 0;
    void *values = esp_i_staging(job);
    esp_status_t status = values != NULL ? ESP_OK : esp_i_nomem(diag);
    if (reads && status == ESP_OK)
        status = source_open(&source, path, diag);
    opts = opts != NULL ? opts : &defaults;
    status = esp_launch_agree(job->launch, status, diag);
    if (status == ESP_OK)
        status = load_all(job, &source, path, opts, values, &result, diag);
    if (status == ESP_OK && result.loaded == 0) {
        esp_i_diag_file(diag, path);
        status = esp_i_fail(diag, ESP_ERR_INVALID, "it has data for no weight of the graph");
    }
    if (status == ESP_OK && reads)
        report_unused(&source, opts, &result);
    if (reads)
        source_close(&source);
    esp_i_free(&esp_i_malloc, values);
    if (status == ESP_OK)
        status = esp_launch_share(job->launch, &result, sizeof result, diag);
    if (status == ESP_OK && result_out != NULL)
        *result_out = result;
    return status;
}
