/* Measurements as trace files, both ways. */
#include "sim/measured.h"
#include "sim/trace.h"

#include <math.h>
#include <string.h>

enum { FORMAT = 1 };

/* ---- writing ------------------------------------------------------------------------------- */

/* What a reader needs beside the events. */
static void put_facts(esp_i_json_out_t *out, const esp_measured_t *m, const char *graph_sha256)
{
    const esp_deployment_t *d = m->deployment;
    esp_i_json_open_object(out, "espalier");
    esp_i_json_put_string(out, "format", "espalier-trace");
    esp_i_json_put_int(out, "format_version", FORMAT);
    esp_i_json_put_string(out, "graph_sha256", graph_sha256);
    esp_i_json_put_int(out, "tasks", d->n_tasks);
    esp_i_json_next_flat(out);
    esp_i_json_open_array(out, "devices");
    for (int32_t r = 0; r < m->n_ranks; r++)
        esp_i_json_put_string(out, NULL, d->cluster->vertex_name[m->device[r]]);
    esp_i_json_close(out);
    esp_i_json_put_bool(out, "isolated", m->isolated != 0);
    esp_i_json_put_int(out, "periods", m->periods);
    esp_i_json_put_real(out, "mean_step_ns", m->mean_step_ns);
    esp_i_json_put_real(out, "spread_ns", m->spread_ns);
    esp_i_json_put_real(out, "median_step_ns", m->median_step_ns);
    esp_i_json_next_flat(out);
    esp_i_json_open_array(out, "step_ns");
    for (int32_t s = 0; s < m->n_steps; s++)
        esp_i_json_put_int(out, NULL, m->step_ns[s]);
    esp_i_json_close(out);
    esp_i_json_close(out);
}

static int64_t last_end(const esp_i_trace_t *trace)
{
    int64_t last = 0, n = (int64_t)trace->n_rows * trace->d->n_tasks;
    for (int64_t i = 0; i < n; i++)
        last = esp_i_max_i64(last, trace->end[i]);
    return last;
}

esp_status_t esp_measured_trace(const esp_measured_t *measured, const esp_allocator_t *alloc,
                                char **text_out, esp_diag_t *diag)
{
    const esp_deployment_t *d = measured->deployment;
    char graph_sha256[65];
    esp_i_trace_t t = {.d = d,
                       .alloc = esp_i_allocator(alloc),
                       .n_rows = measured->n_ranks,
                       .row_device = measured->device,
                       .by_row = true};
    if (esp_graph_hash(d->graph, graph_sha256) != ESP_OK)
        return esp_i_nomem(diag);
    int32_t *class_ = esp_i_alloc_array(&t.alloc, t.n_rows, sizeof *class_);
    if (!class_)
        return esp_i_nomem(diag);
    for (int32_t r = 0; r < t.n_rows; r++)
        class_[r] = d->device_class[measured->device[r]];
    t.row_class = class_;
    esp_i_trace_begin(&t);
    bool ok = true;
    for (t.step = 0; ok && t.step < measured->n_steps; t.step++) {
        int64_t from = (int64_t)t.step * t.n_rows * d->n_tasks;
        t.start = measured->start_ns + from;
        t.end = measured->end_ns + from;
        ok = esp_i_trace_step(&t);
        t.shift_ns += last_end(&t);
    }
    esp_i_trace_end_events(&t);
    put_facts(&t.out, measured, graph_sha256);
    esp_i_free(&t.alloc, class_);
    return esp_i_trace_finish(&t, ok, text_out, diag);
}

/* ---- reading ------------------------------------------------------------------------------- */

typedef struct reader {
    const esp_deployment_t *d;
    esp_allocator_t alloc;
    esp_i_json_t root, facts;
    int32_t n_ranks, n_steps;
    int32_t *device;
    int64_t *start, *end; /* [step][rank][task] */
    esp_i_measured_t *m;
    esp_diag_t *diag;
} reader_t;

static esp_status_t read_identity(reader_t *r)
{
    const char *text;
    char hash[65];
    int64_t number;
    ESP_TRY(esp_i_json_expect(r->root, ESP_I_JSON_OBJECT, r->diag));
    if (!esp_i_json_find(r->root, "espalier", &r->facts))
        return esp_i_json_fail(r->root, r->diag, ESP_ERR_INVALID,
                               "this is no measured trace: \"espalier\" is missing");
    ESP_TRY(esp_i_json_get_string(r->facts, "format", &text, r->diag));
    ESP_TRY(esp_i_json_get_int(r->facts, "format_version", 1, INT32_MAX, &number, r->diag));
    if (strcmp(text, "espalier-trace") != 0 || number != FORMAT)
        return esp_i_json_fail(r->facts, r->diag, ESP_ERR_UNSUPPORTED,
                               "format %s, version %lld; known is espalier-trace, version %d", text,
                               (long long)number, FORMAT);
    ESP_TRY(esp_i_json_get_string(r->facts, "graph_sha256", &text, r->diag));
    if (esp_graph_hash(r->d->graph, hash) != ESP_OK)
        return esp_i_nomem(r->diag);
    ESP_TRY(esp_i_json_get_int(r->facts, "tasks", 0, INT32_MAX, &number, r->diag));
    if (strcmp(text, hash) != 0 || number != r->d->n_tasks)
        return esp_i_json_fail(r->facts, r->diag, ESP_ERR_INVALID,
                               "the trace is of another deployment: %lld tasks, graph %.12s..; "
                               "expected %d tasks, graph %.12s..",
                               (long long)number, text, r->d->n_tasks, hash);
    return ESP_OK;
}

static esp_status_t find_device(reader_t *r, esp_i_json_t item, int32_t *out)
{
    const char *name;
    ESP_TRY(esp_i_json_as_string(item, &name, r->diag));
    *out = esp_cluster_find_vertex(r->d->cluster, name);
    if (*out < 0 || *out >= r->d->cluster->n_devices || r->d->device_class[*out] == ESP_NONE)
        return esp_i_json_fail(item, r->diag, ESP_ERR_INVALID, "%s is no device of the deployment",
                               name);
    return ESP_OK;
}

static esp_status_t read_devices(reader_t *r)
{
    esp_i_json_t devices;
    ESP_TRY(esp_i_json_get(r->facts, "devices", ESP_I_JSON_ARRAY, &devices, r->diag));
    r->n_ranks = esp_i_json_count(devices);
    if (r->n_ranks < 1 || r->n_ranks > r->d->cluster->n_devices)
        return esp_i_json_fail(devices, r->diag, ESP_ERR_INVALID, "%d devices; the cluster has %d",
                               r->n_ranks, r->d->cluster->n_devices);
    r->device = esp_i_alloc_array(&r->alloc, r->n_ranks, sizeof *r->device);
    if (!r->device)
        return esp_i_nomem(r->diag);
    for (int32_t k = 0; k < r->n_ranks; k++) {
        esp_i_json_t item = esp_i_json_item(devices, k);
        ESP_TRY(find_device(r, item, &r->device[k]));
        for (int32_t j = 0; j < k; j++)
            if (r->device[j] == r->device[k])
                return esp_i_json_fail(item, r->diag, ESP_ERR_INVALID,
                                       "this device is there twice");
    }
    esp_measured_t *m;
    ESP_TRY(esp_measured_create(r->d, r->n_ranks, r->device, &r->alloc, &m, r->diag));
    r->m = esp_i_measured(m);
    return ESP_OK;
}

static esp_status_t read_summary(reader_t *r, esp_i_json_t *step_ns_out)
{
    esp_measured_t *m = &r->m->pub;
    bool isolated;
    ESP_TRY(esp_i_json_get_bool(r->facts, "isolated", &isolated, r->diag));
    ESP_TRY(esp_i_json_get_int(r->facts, "periods", 0, INT64_MAX, &m->periods, r->diag));
    ESP_TRY(esp_i_json_get_real(r->facts, "mean_step_ns", 0, 1e18, &m->mean_step_ns, r->diag));
    ESP_TRY(esp_i_json_get_real(r->facts, "spread_ns", 0, 1e18, &m->spread_ns, r->diag));
    ESP_TRY(esp_i_json_get_real(r->facts, "median_step_ns", 0, 1e18, &m->median_step_ns, r->diag));
    ESP_TRY(esp_i_json_get(r->facts, "step_ns", ESP_I_JSON_ARRAY, step_ns_out, r->diag));
    m->isolated = isolated;
    r->n_steps = esp_i_json_count(*step_ns_out);
    if (r->n_steps > ESP_MEASURED_MAX_STEPS)
        return esp_i_json_fail(*step_ns_out, r->diag, ESP_ERR_LIMIT, "more than %d recorded steps",
                               ESP_MEASURED_MAX_STEPS);
    int64_t n = (int64_t)r->n_steps * r->n_ranks * r->d->n_tasks;
    r->start = esp_i_alloc_array(&r->alloc, n, sizeof *r->start);
    r->end = esp_i_alloc_array(&r->alloc, n, sizeof *r->end);
    if (!r->start || !r->end)
        return esp_i_nomem(r->diag);
    for (int64_t i = 0; i < n; i++)
        r->start[i] = r->end[i] = -1;
    return ESP_OK;
}

static esp_status_t read_time(reader_t *r, esp_i_json_t event, const char *key, int64_t *ns_out)
{
    double us;
    ESP_TRY(esp_i_json_get_real(event, key, 0, 1e15, &us, r->diag));
    *ns_out = llround(us * 1000);
    return ESP_OK;
}

/* A span of a rank; other events, and those of the links, say nothing new. */
static esp_status_t read_event(reader_t *r, esp_i_json_t event)
{
    const char *phase;
    int64_t pid, task, step, start, duration;
    esp_i_json_t args;
    ESP_TRY(esp_i_json_get_string(event, "ph", &phase, r->diag));
    if (strcmp(phase, "X") != 0)
        return ESP_OK;
    ESP_TRY(esp_i_json_get_int(event, "pid", 1, (int64_t)r->n_ranks + 1, &pid, r->diag));
    if (pid > r->n_ranks)
        return ESP_OK;
    ESP_TRY(esp_i_json_get(event, "args", ESP_I_JSON_OBJECT, &args, r->diag));
    ESP_TRY(esp_i_json_get_int(args, "task", 0, (int64_t)r->d->n_tasks - 1, &task, r->diag));
    ESP_TRY(esp_i_json_get_int(args, "step", 0, (int64_t)r->n_steps - 1, &step, r->diag));
    ESP_TRY(read_time(r, event, "ts", &start));
    ESP_TRY(read_time(r, event, "dur", &duration));
    int64_t at = (step * r->n_ranks + pid - 1) * r->d->n_tasks + task;
    if (!esp_i_takes_part(r->d, r->d->device_class[r->device[pid - 1]], (int32_t)task))
        return esp_i_json_fail(event, r->diag, ESP_ERR_INVALID,
                               "rank %lld has no part in task %lld", (long long)pid - 1,
                               (long long)task);
    if (r->start[at] >= 0)
        return esp_i_json_fail(event, r->diag, ESP_ERR_INVALID,
                               "task %lld of rank %lld is there twice", (long long)task,
                               (long long)pid - 1);
    r->start[at] = start;
    r->end[at] = start + duration;
    return ESP_OK;
}

static esp_status_t read_steps(reader_t *r, esp_i_json_t step_ns, esp_i_json_t events)
{
    int64_t n = (int64_t)r->n_ranks * r->d->n_tasks;
    for (int32_t i = 0; i < esp_i_json_count(events); i++)
        ESP_TRY(read_event(r, esp_i_json_item(events, i)));
    for (int32_t s = 0; s < r->n_steps; s++) {
        int64_t ns;
        ESP_TRY(esp_i_json_as_int(esp_i_json_item(step_ns, s), 0, INT64_MAX / 4, &ns, r->diag));
        esp_status_t status =
            esp_i_measured_step(r->m, r->start + s * n, r->end + s * n, ns, r->diag);
        if (status == ESP_ERR_ARGUMENT)
            return esp_i_json_fail(events, r->diag, ESP_ERR_INVALID, "step %d lacks tasks", s);
        ESP_TRY(status);
    }
    return ESP_OK;
}

static esp_status_t read_all(reader_t *r)
{
    esp_i_json_t step_ns, events;
    ESP_TRY(read_identity(r));
    ESP_TRY(read_devices(r));
    ESP_TRY(read_summary(r, &step_ns));
    ESP_TRY(esp_i_json_get(r->root, "traceEvents", ESP_I_JSON_ARRAY, &events, r->diag));
    return read_steps(r, step_ns, events);
}

/* Consumes the document. */
static esp_status_t read_doc(const esp_deployment_t *d, const esp_allocator_t *alloc,
                             esp_i_json_doc_t *doc, esp_measured_t **measured_out, esp_diag_t *diag)
{
    reader_t r = {.d = d, .alloc = *alloc, .root = esp_i_json_root(doc), .diag = diag};
    esp_status_t status = read_all(&r);
    esp_i_free(alloc, r.device);
    esp_i_free(alloc, r.start);
    esp_i_free(alloc, r.end);
    esp_i_json_destroy(doc);
    if (status == ESP_OK)
        *measured_out = &r.m->pub;
    else if (r.m)
        esp_measured_destroy(&r.m->pub);
    return status;
}

esp_status_t esp_measured_parse(const char *text, size_t length, const char *file,
                                const esp_deployment_t *deployment, const esp_allocator_t *alloc,
                                esp_measured_t **measured_out, esp_diag_t *diag)
{
    esp_allocator_t own = esp_i_allocator(alloc);
    esp_i_json_doc_t *doc;
    ESP_TRY(esp_i_json_parse(&own, text, (int64_t)length, file, &doc, diag));
    return read_doc(deployment, &own, doc, measured_out, diag);
}

esp_status_t esp_measured_read(const char *path, const esp_deployment_t *deployment,
                               const esp_allocator_t *alloc, esp_measured_t **measured_out,
                               esp_diag_t *diag)
{
    esp_allocator_t own = esp_i_allocator(alloc);
    esp_i_json_doc_t *doc;
    ESP_TRY(esp_i_json_read(&own, path, &doc, diag));
    return read_doc(deployment, &own, doc, measured_out, diag);
}
