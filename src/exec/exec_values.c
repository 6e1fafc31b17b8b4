/* Values that live between steps: at first, set, and read. */
#include "exec/session.h"

#include <string.h>

static int64_t whole_bytes(const esp_exec_t *exec, esp_tensor_id_t tensor)
{
    const esp_graph_t *g = exec->deployment->graph;
    const esp_dtype_t dtype = esp_i_stored_dtype((esp_dtype_t)g->tensor_dtype[tensor], exec->wide);
    return g->tensor_elements[tensor] * esp_dtype_bytes(dtype);
}

/* ---- writing ----------------------------------------------------------------------------- */

static int64_t local_bytes(const esp_i_local_t *local)
{
    return local->elements * esp_dtype_bytes(local->dtype);
}

/* The rows that the ranks of this process hold; `rows` has room for the whole. */
static void write_here(esp_exec_t *exec, esp_tensor_id_t tensor, const char *whole, char *rows)
{
    for (int32_t i = 0; i < exec->n_here; i++) {
        const esp_i_program_t *p = exec->rank[i].program;
        esp_i_kernels_t *kernels = exec->rank[i].kernels;
        for (int32_t r = 0; r < p->n_residents; r++) {
            const esp_i_local_t *local = &p->resident[r].local;
            if (p->resident[r].tensor != tensor)
                continue;
            esp_i_rows_take(local, whole, rows);
            kernels->type->write(kernels, local_bytes(local), local->place, rows);
        }
    }
}

/* Whether a rank of this process holds the tensor between steps. */
static void mark_here(const esp_exec_t *exec, bool *held)
{
    for (int32_t i = 0; i < exec->n_here; i++)
        for (int32_t r = 0; r < exec->rank[i].program->n_residents; r++)
            held[exec->rank[i].program->resident[r].tensor] = true;
}

static esp_status_t fill_one(esp_exec_t *exec, esp_tensor_id_t tensor, esp_diag_t *diag)
{
    const int64_t bytes = whole_bytes(exec, tensor);
    char *whole = esp_i_alloc(&exec->alloc, (size_t)bytes);
    char *rows = esp_i_alloc(&exec->alloc, (size_t)bytes);
    if (whole && rows) {
        esp_exec_initial(exec->deployment->graph, tensor, exec->seed, 0, exec->wide, whole);
        write_here(exec, tensor, whole, rows);
    }
    const bool fine = whole && rows;
    esp_i_free(&exec->alloc, whole);
    esp_i_free(&exec->alloc, rows);
    return fine ? ESP_OK : esp_i_nomem(diag);
}

esp_status_t esp_i_exec_fill(esp_exec_t *exec, esp_diag_t *diag)
{
    const esp_graph_t *g = exec->deployment->graph;
    bool *held = esp_i_alloc_array(&exec->alloc, g->n_tensors, sizeof *held);
    if (!held)
        return esp_i_nomem(diag);
    mark_here(exec, held);
    esp_status_t status = ESP_OK;
    for (esp_tensor_id_t t = 0; t < g->n_tensors && status == ESP_OK; t++)
        if (held[t] && g->tensor_role[t] != ESP_ROLE_INPUT)
            status = fill_one(exec, t, diag);
    esp_i_free(&exec->alloc, held);
    return status;
}

/* ---- the home of a tensor ---------------------------------------------------------------- */

/* The first value of the tensor that lives between steps; ESP_NONE. */
static int32_t home_of(const esp_deployment_t *d, esp_tensor_id_t tensor)
{
    for (int32_t v = 0; v < d->n_values; v++)
        if (d->value_tensor[v] == tensor && d->buffer_resident[d->value_buffer[v]])
            return v;
    return ESP_NONE;
}

static esp_status_t find_home(const esp_exec_t *exec, esp_tensor_id_t *tensor, int32_t *value_out,
                              esp_diag_t *diag)
{
    const esp_graph_t *g = exec->deployment->graph;
    if (*tensor < 0 || *tensor >= g->n_tensors)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "there is no tensor %d", *tensor);
    const esp_tensor_id_t root = g->tensor_root[*tensor];
    const int32_t value = home_of(exec->deployment, root);
    if (g->tensor_role[root] == ESP_ROLE_INPUT || value == ESP_NONE)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "%s does not live between steps",
                          g->tensor_name[*tensor]);
    *tensor = root;
    *value_out = value;
    return ESP_OK;
}

static esp_i_local_t held_by(const esp_exec_t *exec, int32_t value, int32_t device)
{
    const esp_deployment_t *d = exec->deployment;
    const int32_t first = d->mesh_class_offset[d->value_mesh[value]];
    int32_t slot = 0;
    while (d->mesh_class[first + slot] != d->device_class[device])
        slot++;
    return esp_i_local_of(d, d->value_buffer[value] + slot, device, exec->wide);
}

esp_status_t esp_exec_set(esp_exec_t *exec, esp_tensor_id_t tensor, const void *values,
                          esp_diag_t *diag)
{
    int32_t value;
    ESP_TRY(find_home(exec, &tensor, &value, diag));
    esp_diag_t why = {0};
    char *rows = esp_i_alloc(&exec->alloc, (size_t)whole_bytes(exec, tensor));
    if (rows)
        write_here(exec, tensor, values, rows);
    const esp_status_t status = rows ? ESP_OK : esp_i_nomem(&why);
    esp_i_free(&exec->alloc, rows);
    return esp_i_exec_settle(exec, status, &why, diag);
}

/* ---- reading ----------------------------------------------------------------------------- */

/* What a device holds comes to rank 0, or stays where all ranks are in this process. */
static esp_status_t fetch(esp_exec_t *exec, int32_t rank, const esp_i_local_t *local, char *rows,
                          esp_diag_t *diag)
{
    const int64_t bytes = local_bytes(local);
    const esp_i_rank_t *here = esp_i_rank_here(exec, rank);
    esp_i_comm_t *comm = exec->rank[0].comm;
    if (here)
        here->kernels->type->read(here->kernels, bytes, rows, local->place);
    if (!exec->mpi || rank == 0)
        return ESP_OK;
    if (here)
        return esp_i_comm_send(comm, 0, ESP_I_TAG_VALUE, rows, bytes, diag);
    if (exec->first == 0)
        return esp_i_comm_receive(comm, rank, ESP_I_TAG_VALUE, rows, bytes, diag);
    return ESP_OK;
}

/* In debug builds: what this device has of a replicated value is what the first one has. */
static esp_status_t check_replica(const esp_exec_t *exec, int32_t rank, const esp_i_local_t *local,
                                  const char *whole, char *rows, esp_diag_t *diag)
{
#ifdef ESP_DEBUG
    const esp_i_rank_t *here = exec->mpi ? NULL : esp_i_rank_here(exec, rank);
    if (!here)
        return ESP_OK;
    here->kernels->type->read(here->kernels, local_bytes(local), rows, local->place);
    if (memcmp(rows, whole, (size_t)local_bytes(local)) != 0)
        return esp_i_fail(diag, ESP_ERR_INTERNAL, "rank %d holds another value than rank %d", rank,
                          exec->first);
#else
    (void)exec, (void)rank, (void)local, (void)whole, (void)rows, (void)diag;
#endif
    return ESP_OK;
}

static esp_status_t join(esp_exec_t *exec, int32_t value, char *rows, char *whole, esp_diag_t *diag)
{
    const esp_deployment_t *d = exec->deployment;
    const int32_t mesh = d->value_mesh[value];
    for (int32_t k = d->mesh_offset[mesh]; k < d->mesh_offset[mesh + 1]; k++) {
        const int32_t device = d->mesh_device[k], rank = exec->rank_of[device];
        const esp_i_local_t local = held_by(exec, value, device);
        if (d->value_form[value] != ESP_FORM_SPLIT && k > d->mesh_offset[mesh]) {
            ESP_TRY(check_replica(exec, rank, &local, whole, rows, diag));
            continue;
        }
        ESP_TRY(fetch(exec, rank, &local, rows, diag));
        if (!exec->mpi || exec->first == 0)
            esp_i_rows_put(&local, rows, whole);
    }
    return ESP_OK;
}

esp_status_t esp_exec_get(esp_exec_t *exec, esp_tensor_id_t tensor, void *values_out,
                          esp_diag_t *diag)
{
    int32_t value;
    ESP_TRY(find_home(exec, &tensor, &value, diag));
    const int64_t bytes = whole_bytes(exec, tensor);
    esp_diag_t why = {0};
    char *rows = esp_i_alloc(&exec->alloc, (size_t)bytes);
    esp_status_t status = rows ? join(exec, value, rows, values_out, &why) : esp_i_nomem(&why);
    if (status == ESP_OK && exec->mpi)
        status = esp_i_comm_broadcast(exec->rank[0].comm, values_out, bytes, &why);
    esp_i_free(&exec->alloc, rows);
    return esp_i_exec_settle(exec, status, &why, diag);
}
