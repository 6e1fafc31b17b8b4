/*
 * Under MPI every process sets up for itself. Before the first step rank 0 hears how far each came
 * and what it is about to run, and tells all the result.
 */
#include "exec/session.h"

#include <string.h>

/* What a rank says; of one size in all versions of the library. */
typedef struct report {
    int32_t status;
    char version[28];
    char print[96]; /* fingerprint of plan and options */
    char place[128];
    char text[512];
} report_t;

static void add(esp_i_text_t *text, const void *data, int64_t n, size_t size)
{
    const uint64_t bytes = (uint64_t)n * size;
    esp_i_text_add_bytes(text, (const char *)&bytes, sizeof bytes);
    if (data && bytes > 0)
        esp_i_text_add_bytes(text, data, bytes);
}

static void add_deployment(esp_i_text_t *text, const esp_deployment_t *d)
{
    const int32_t meshes = d->n_meshes, tasks = d->n_tasks;
    const int32_t reads = d->read_offset[tasks], writes = d->write_offset[tasks];
    const int32_t pairs = d->comm_pair_offset[d->n_comms];
    add(text, d->mesh_offset, meshes + 1, sizeof *d->mesh_offset);
    add(text, d->mesh_device, d->mesh_offset[meshes], sizeof *d->mesh_device);
    add(text, d->mesh_units, d->mesh_offset[meshes], sizeof *d->mesh_units);
    add(text, d->device_class, d->cluster->n_devices, sizeof *d->device_class);
    add(text, d->value_tensor, d->n_values, sizeof *d->value_tensor);
    add(text, d->value_mesh, d->n_values, sizeof *d->value_mesh);
    add(text, d->value_form, d->n_values, sizeof *d->value_form);
    add(text, d->value_micro, d->n_values, sizeof *d->value_micro);
    add(text, d->buffer_offset, d->n_buffers, sizeof *d->buffer_offset);
    add(text, d->task_kind, tasks, sizeof *d->task_kind);
    add(text, d->task_mode, tasks, sizeof *d->task_mode);
    add(text, d->task_class, tasks, sizeof *d->task_class);
    add(text, d->task_op, tasks, sizeof *d->task_op);
    add(text, d->read_buffer, reads, sizeof *d->read_buffer);
    add(text, d->write_buffer, writes, sizeof *d->write_buffer);
    add(text, d->comm_kind, d->n_comms, sizeof *d->comm_kind);
    add(text, d->comm_src, pairs, sizeof *d->comm_src);
    add(text, d->comm_dst, pairs, sizeof *d->comm_dst);
    add(text, d->order, tasks, sizeof *d->order);
    add(text, d->class_arena_bytes, d->n_classes, sizeof *d->class_arena_bytes);
}

static void add_graph(esp_i_text_t *text, const esp_graph_t *g)
{
    for (esp_op_id_t op = 0; op < g->n_ops; op++)
        esp_i_text_addf(text, "%s %d\n", g->op_name[op], g->op_kind[op]);
    add(text, g->tensor_elements, g->n_tensors, sizeof *g->tensor_elements);
    add(text, g->tensor_dtype, g->n_tensors, sizeof *g->tensor_dtype);
}

static void add_costs(esp_i_text_t *text, const esp_costs_t *costs)
{
    for (int32_t i = 0; i < costs->n_collectives; i++) {
        const esp_costs_collective_t *c = &costs->collective[i];
        esp_i_text_addf(text, "%d %s %d %lld %.17g\n", c->kind, c->algorithm, c->ranks,
                        (long long)c->bytes, c->ns);
    }
}

static bool fingerprint(const esp_exec_t *exec, const esp_exec_opts_t *opts, char *print_out)
{
    esp_i_text_t text;
    esp_i_text_init(&text, &exec->alloc);
    esp_i_text_addf(&text, "%s %d %d %d %llu %d %d\n", exec->backend->name, exec->wide,
                    exec->timeline, opts->collectives, (unsigned long long)exec->seed,
                    exec->n_ranks, exec->deployment->micro_batches);
    add(&text, opts->map, opts->n_map, sizeof *opts->map);
    if (exec->library.costs)
        add_costs(&text, exec->library.costs);
    add_graph(&text, exec->deployment->graph);
    add_deployment(&text, exec->deployment);
    const bool fine = !text.failed;
    if (fine)
        esp_i_sha256(text.data, text.length, print_out);
    esp_i_text_fini(&text);
    return fine;
}

static void copy_text(char *out, size_t capacity, const char *text)
{
    const size_t n = strlen(text) < capacity ? strlen(text) : capacity - 1;
    memcpy(out, text, n);
    out[n] = '\0';
}

static const char *name_of(const esp_exec_t *exec, int32_t rank)
{
    return rank < exec->n_ranks ? esp_i_device_name(exec->deployment, exec->device[rank]) : "?";
}

static void judge(const esp_exec_t *exec, int32_t rank, const report_t *first, report_t *other)
{
    esp_diag_t diag = {0};
    if (other->status != ESP_OK && other->place[0] == '\0')
        esp_i_diag_place(&diag, "rank %d (%s)", rank, name_of(exec, rank));
    if (other->status == ESP_OK && strcmp(first->version, other->version) != 0)
        other->status = esp_i_fail(&diag, ESP_ERR_ARGUMENT,
                                   "rank %d (%s) runs version %s of the library, rank 0 %s", rank,
                                   name_of(exec, rank), other->version, first->version);
    else if (other->status == ESP_OK && strcmp(first->print, other->print) != 0)
        other->status = esp_i_fail(&diag, ESP_ERR_ARGUMENT,
                                   "rank %d (%s) has another plan or other options than rank 0",
                                   rank, name_of(exec, rank));
    if (diag.text[0])
        copy_text(other->text, sizeof other->text, diag.text);
    if (diag.place[0])
        copy_text(other->place, sizeof other->place, diag.place);
}

/* On rank 0: the first report that is bad, or its own. */
static esp_status_t hear_all(const esp_exec_t *exec, report_t *mine, esp_diag_t *diag)
{
    esp_i_comm_t *comm = exec->rank[0].comm;
    report_t verdict = *mine;
    judge(exec, 0, mine, &verdict);
    for (int32_t r = 1; r < comm->n_ranks; r++) {
        report_t other;
        ESP_TRY(esp_i_comm_receive(comm, r, ESP_I_TAG_AGREE, &other, sizeof other, diag));
        if (verdict.status != ESP_OK)
            continue;
        judge(exec, r, mine, &other);
        if (other.status != ESP_OK)
            verdict = other;
    }
    *mine = verdict;
    return ESP_OK;
}

esp_status_t esp_i_exec_agree(esp_exec_t *exec, const esp_exec_opts_t *opts, esp_status_t mine,
                              esp_diag_t *diag)
{
    esp_i_comm_t *comm = exec->rank[0].comm;
    report_t report = {.status = mine};
    copy_text(report.version, sizeof report.version, esp_version());
    if (mine == ESP_OK && !fingerprint(exec, opts, report.print))
        report.status = esp_i_nomem(diag);
    if (report.status != ESP_OK && diag) {
        copy_text(report.text, sizeof report.text, diag->text);
        copy_text(report.place, sizeof report.place, diag->place);
    }
    if (comm->rank > 0)
        ESP_TRY(esp_i_comm_send(comm, 0, ESP_I_TAG_AGREE, &report, sizeof report, diag));
    else
        ESP_TRY(hear_all(exec, &report, diag));
    ESP_TRY(esp_i_comm_broadcast(comm, &report, sizeof report, diag));
    if (report.status == ESP_OK)
        return ESP_OK;
    esp_i_diag_place(diag, "%s", report.place);
    return esp_i_fail(diag, (esp_status_t)report.status, "%s", report.text);
}
