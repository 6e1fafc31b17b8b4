/* Checkpoints: what lives from step to step, and where the run is. */
#include "exec/safetensors.h"
#include "exec/tensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char format[] = "espalier-checkpoint-1";

/* The metadata, as text. */
typedef struct facts {
    char graph[65], step[24], seed[24], rows[24];
    const char *floats;
} facts_t;
enum { N_FACTS = 6 };

/* No run gets there: a nanosecond a step for 100 days. Sums with other numbers of steps fit. */
#define MOST_STEPS ((uint64_t)9000000000000000)

static esp_status_t state_facts(const esp_train_job_t *job, const esp_data_t *data, facts_t *facts,
                                esp_diag_t *diag)
{
    esp_status_t status = esp_graph_hash(job->graph, facts->graph);
    if (status != ESP_OK)
        return esp_i_nomem(diag);
    (void)snprintf(facts->step, sizeof facts->step, "%" PRIu64, esp_exec_step(job->exec));
    (void)snprintf(facts->seed, sizeof facts->seed, "%" PRIu64, job->seed);
    (void)snprintf(facts->rows, sizeof facts->rows, "%" PRId64,
                   data != NULL ? esp_data_rows(data) : 0);
    facts->floats = job->wide != 0 ? "float64" : "float32";
    return ESP_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int32_t list_kept(const esp_train_job_t *job, esp_tensor_id_t *list)
{
    int32_t n = 0;
    for (esp_tensor_id_t i = 0; i < job->graph->n_tensors; i++)
        if (esp_i_is_kept(job->graph, i)) {
            if (list != NULL)
                list[n] = i;
            n++;
        }
    return n;
}

static esp_status_t begin(const esp_train_job_t *job, const facts_t *facts, int32_t n,
                          const esp_tensor_id_t *kept, const char *path, esp_i_file_out_t *file,
                          esp_diag_t *diag)
{
    const esp_graph_t *graph = job->graph;
    const char *const meta[N_FACTS][2] = {
        {"format", format},    {"graph_sha256", facts->graph}, {"step", facts->step},
        {"seed", facts->seed}, {"data_rows", facts->rows},     {"floats", facts->floats},
    };
    esp_i_st_tensor_t *tensor = esp_i_alloc_array(&esp_i_malloc, n, sizeof *tensor);
    if (tensor == NULL)
        return esp_i_nomem(diag);
    for (int32_t i = 0; i < n; i++) {
        tensor[i].name = graph->tensor_name[kept[i]];
        tensor[i].dtype = esp_i_outside_dtype(job, kept[i]);
        tensor[i].rank = graph->tensor_rank[kept[i]];
        memcpy(tensor[i].dims, graph->tensor_dims[kept[i]], sizeof tensor[i].dims);
    }
    esp_status_t status = esp_i_st_begin(path, NULL, N_FACTS, meta, n, tensor, file, diag);
    esp_i_free(&esp_i_malloc, tensor);
    return status;
}

/* All ranks read every tensor, whether rank 0 can still write or not. */
static esp_status_t write_all(const esp_train_job_t *job, int32_t n, const esp_tensor_id_t *kept,
                              void *values, esp_i_file_out_t *file, esp_diag_t *diag)
{
    esp_status_t written = ESP_OK;
    bool writes = esp_launch_rank(job->launch) == 0;
    esp_dcheck(kept != NULL);
    for (int32_t i = 0; i < n; i++) {
        ESP_TRY(esp_exec_get(job->exec, kept[i], values, diag));
        if (writes && written == ESP_OK)
            written =
                esp_i_file_append(file, values, (size_t)esp_i_outside_bytes(job, kept[i]), diag);
    }
    if (writes && written == ESP_OK)
        written = esp_i_file_commit(file, diag);
    return esp_i_share_status(job->launch, written, diag);
}

static esp_status_t save(const esp_train_job_t *job, const facts_t *facts, int32_t n,
                         esp_tensor_id_t *kept, void *values, const char *path, esp_diag_t *diag)
{
    esp_i_file_out_t file = {.descriptor = -1};
    bool writes = esp_launch_rank(job->launch) == 0;
    esp_status_t status = kept != NULL && values != NULL ? ESP_OK : esp_i_nomem(diag);
    if (status == ESP_OK)
        list_kept(job, kept);
    if (writes && status == ESP_OK)
        status = begin(job, facts, n, kept, path, &file, diag);
    status = esp_launch_agree(job->launch, status, diag);
    if (status == ESP_OK)
        status = write_all(job, n, kept, values, &file, diag);
    if (status != ESP_OK)
        esp_i_file_abandon(&file);
    return status;
}

esp_status_t esp_checkpoint_save(const esp_train_job_t *job, const esp_data_t *data,
                                 const char *path, esp_diag_t *diag)
{
    facts_t facts;
    ESP_TRY(state_facts(job, data, &facts, diag));
    int32_t n = list_kept(job, NULL);
    esp_tensor_id_t *kept = esp_i_alloc_array(&esp_i_malloc, n, sizeof *kept);
    void *values = esp_i_staging(job);
    esp_status_t status = save(job, &facts, n, kept, values, path, diag);
    esp_i_free(&esp_i_malloc, kept);
    esp_i_free(&esp_i_malloc, values);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The metadata `key` is `expected`, or the checkpoint is of another run. */
static esp_status_t expect(const esp_i_st_t *st, const char *key, const char *expected,
                           const char *what, esp_diag_t *diag)
{
    const char *value = esp_i_st_meta(st, key);
    if (value != NULL && strcmp(value, expected) == 0)
        return ESP_OK;
    return esp_i_fail(diag, ESP_ERR_INVALID, "the checkpoint is of another %s: %.70s, not %s", what,
                      value != NULL ? value : "none", expected);
}

static esp_status_t check_facts(const esp_train_job_t *job, const esp_data_t *data,
                                const esp_i_st_t *st, uint64_t *step_out, esp_diag_t *diag)
{
    facts_t facts;
    char *end;
    const char *step = esp_i_st_meta(st, "step"), *made = esp_i_st_meta(st, "format");
    ESP_TRY(state_facts(job, data, &facts, diag));
    if (made == NULL || strcmp(made, format) != 0)
        return esp_i_fail(diag, ESP_ERR_INVALID, "this is no checkpoint of this version");
    ESP_TRY(expect(st, "graph_sha256", facts.graph,
                   "training graph (model, batch, loss or optimizer)", diag));
    ESP_TRY(expect(st, "seed", facts.seed, "seed", diag));
    ESP_TRY(expect(st, "floats", facts.floats, "kind of floats", diag));
    ESP_TRY(expect(st, "data_rows", facts.rows, "number of rows of data", diag));
    errno = 0;
    *step_out = step != NULL && step[0] >= '0' && step[0] <= '9' ? strtoull(step, &end, 10) : 0;
    if (step == NULL || step[0] < '0' || step[0] > '9' || *end != '\0' || errno != 0 ||
        *step_out > MOST_STEPS)
        return esp_i_fail(diag, ESP_ERR_INVALID, "its metadata has no step");
    return ESP_OK;
}

static bool same_shape(const esp_graph_t *graph, esp_tensor_id_t tensor,
                       const esp_i_st_tensor_t *found)
{
    bool same = found->rank == graph->tensor_rank[tensor];
    for (int32_t d = 0; d < found->rank && same; d++)
        same = found->dims[d] == graph->tensor_dims[tensor][d];
    return same;
}

/* On rank 0: tensor `at` of the file is `tensor` of the graph. Files are in the order of graphs. */
static esp_status_t read_one(const esp_train_job_t *job, const esp_i_st_t *st, int32_t at,
                             esp_tensor_id_t tensor, void *values, esp_diag_t *diag)
{
    const char *name = job->graph->tensor_name[tensor];
    int64_t bytes = esp_i_outside_bytes(job, tensor);
    for (int32_t k = 0; k < st->n_tensors; k++) {
        const esp_i_st_tensor_t *found = &st->tensor[(at + k) % st->n_tensors];
        if (strcmp(found->name, name) != 0)
            continue;
        if (found->dtype != esp_i_outside_dtype(job, tensor) || found->bytes != bytes ||
            !same_shape(job->graph, tensor, found))
            break;
        if (bytes > 0)
            memcpy(values, st->data + found->offset, (size_t)bytes);
        return ESP_OK;
    }
    return esp_i_fail(diag, ESP_ERR_INVALID, "tensor %s is missing or of another shape", name);
}

static esp_status_t read_all(const esp_train_job_t *job, const esp_i_st_t *st, const char *path,
                             void *values, esp_diag_t *diag)
{
    bool reads = esp_launch_rank(job->launch) == 0;
    for (esp_tensor_id_t i = 0, at = 0; i < job->graph->n_tensors; i++) {
        if (!esp_i_is_kept(job->graph, i))
            continue;
        esp_status_t status = reads ? read_one(job, st, at++, i, values, diag) : ESP_OK;
        if (status != ESP_OK)
            esp_i_diag_file(diag, path);
        ESP_TRY(esp_i_share_status(job->launch, status, diag));
        ESP_TRY(esp_launch_share(job->launch, values, esp_i_outside_bytes(job, i), diag));
        ESP_TRY(esp_exec_set(job->exec, i, values, diag));
    }
    return ESP_OK;
}

static esp_status_t open_checkpoint(const esp_train_job_t *job, const esp_data_t *data,
                                    const char *path, esp_i_st_t *st, uint64_t *step,
                                    esp_diag_t *diag)
{
    ESP_TRY(esp_i_st_open(path, NULL, st, diag));
    esp_status_t status = check_facts(job, data, st, step, diag);
    if (status != ESP_OK)
        esp_i_diag_file(diag, path);
    return status;
}

esp_status_t esp_checkpoint_load(const esp_train_job_t *job, const esp_data_t *data,
                                 const char *path, esp_diag_t *diag)
{
    esp_i_st_t st = {0};
    uint64_t step = 0;
    void *values = esp_i_staging(job);
    esp_status_t status = values != NULL ? ESP_OK : esp_i_nomem(diag);
    if (status == ESP_OK && esp_launch_rank(job->launch) == 0)
        status = open_checkpoint(job, data, path, &st, &step, diag);
    status = esp_launch_agree(job->launch, status, diag);
    if (status == ESP_OK)
        status = esp_launch_share(job->launch, &step, sizeof step, diag);
    if (status == ESP_OK)
        status = read_all(job, &st, path, values, diag);
    if (status == ESP_OK)
        esp_exec_set_step(job->exec, step);
    if (st.tensor != NULL || st.map.data != NULL)
        esp_i_st_close(&st);
    esp_i_free(&esp_i_malloc, values);
    return status;
}
