/* Measurements in memory: collected run by run, and as durations for a replay. */
#include "sim/measured.h"
#include "sim/trace.h"

#include <math.h>
#include <string.h>

/* ---- life cycle --------------------------------------------------------------------------- */

static esp_status_t check_devices(const esp_deployment_t *d, int32_t n, const int32_t *device,
                                  esp_diag_t *diag)
{
    if (n < 1 || n > d->cluster->n_devices)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "a measurement of %d ranks", n);
    for (int32_t r = 0; r < n; r++) {
        bool known = device[r] >= 0 && device[r] < d->cluster->n_devices;
        if (!known || d->device_class[device[r]] == ESP_NONE)
            return esp_i_fail(diag, ESP_ERR_ARGUMENT, "rank %d is no device of the deployment", r);
        for (int32_t q = 0; q < r; q++)
            if (device[q] == device[r])
                return esp_i_fail(diag, ESP_ERR_ARGUMENT, "ranks %d and %d are the same device", q,
                                  r);
    }
    return ESP_OK;
}

esp_status_t esp_measured_create(const esp_deployment_t *deployment, int32_t n_ranks,
                                 const int32_t *device, const esp_allocator_t *alloc,
                                 esp_measured_t **measured_out, esp_diag_t *diag)
{
    esp_allocator_t own = esp_i_allocator(alloc);
    ESP_TRY(check_devices(deployment, n_ranks, device, diag));
    esp_i_measured_t *m = esp_i_alloc_array(&own, 1, sizeof *m);
    if (!m)
        return esp_i_nomem(diag);
    m->alloc = own;
    m->pub = (esp_measured_t){.deployment = deployment, .n_ranks = n_ranks};
    m->device = esp_i_alloc_array(&own, n_ranks, sizeof *m->device);
    if (!m->device) {
        esp_measured_destroy(&m->pub);
        return esp_i_nomem(diag);
    }
    memcpy(m->device, device, (size_t)n_ranks * sizeof *device);
    m->pub.device = m->device;
    *measured_out = &m->pub;
    return ESP_OK;
}

void esp_measured_destroy(esp_measured_t *measured)
{
    if (!measured)
        return;
    esp_i_measured_t *m = esp_i_measured(measured);
    esp_allocator_t alloc = m->alloc;
    esp_i_free(&alloc, m->device);
    esp_vec_free(&alloc, &m->start);
    esp_vec_free(&alloc, &m->end);
    esp_vec_free(&alloc, &m->step_ns);
    esp_vec_free(&alloc, &m->sorted);
    esp_i_free(&alloc, m);
}

/* ---- one recorded step --------------------------------------------------------------------- */

static esp_status_t check_times(const esp_measured_t *m, const int64_t *start, const int64_t *end,
                                esp_diag_t *diag)
{
    const esp_deployment_t *d = m->deployment;
    for (int32_t r = 0; r < m->n_ranks; r++)
        for (int32_t t = 0; t < d->n_tasks; t++) {
            int64_t at = (int64_t)r * d->n_tasks + t;
            bool part = esp_i_takes_part(d, d->device_class[m->device[r]], t);
            if (part ? start[at] < 0 || end[at] < start[at] : start[at] >= 0)
                return esp_i_fail(diag, ESP_ERR_ARGUMENT, "times of task %d on rank %d: %lld, %lld",
                                  t, r, (long long)start[at], (long long)end[at]);
        }
    return ESP_OK;
}

esp_status_t esp_i_measured_step(esp_i_measured_t *m, const int64_t *start_ns,
                                 const int64_t *end_ns, int64_t step_ns, esp_diag_t *diag)
{
    int64_t n = (int64_t)m->pub.n_ranks * m->pub.deployment->n_tasks, first = INT64_MAX;
    if (m->pub.n_steps == ESP_MEASURED_MAX_STEPS)
        return esp_i_fail(diag, ESP_ERR_LIMIT, "more than %d recorded steps",
                          ESP_MEASURED_MAX_STEPS);
    ESP_TRY(check_times(&m->pub, start_ns, end_ns, diag));
    int32_t from = m->start.count;
    if (!esp_vec_extend(&m->alloc, &m->start, n))
        return esp_i_nomem(diag);
    if (!esp_vec_extend(&m->alloc, &m->end, n) || !esp_vec_push(&m->alloc, &m->step_ns, step_ns)) {
        m->end.count = m->start.count = from;
        return esp_i_nomem(diag);
    }
    for (int64_t i = 0; i < n; i++)
        if (start_ns[i] >= 0)
            first = esp_i_min_i64(first, start_ns[i]);
    for (int64_t i = 0; i < n; i++) {
        m->start.data[from + i] = start_ns[i] < 0 ? -1 : start_ns[i] - first;
        m->end.data[from + i] = start_ns[i] < 0 ? -1 : end_ns[i] - first;
    }
    m->pub.start_ns = m->start.data;
    m->pub.end_ns = m->end.data;
    m->pub.step_ns = m->step_ns.data;
    m->pub.n_steps++;
    return ESP_OK;
}

enum { MOST_SORTED = 10000 };

/* Room for n more periods that are kept in order. */
static bool sorted_grow(esp_i_measured_t *m, int64_t n)
{
    int32_t count = m->sorted.count;
    bool fine = esp_vec_extend(&m->alloc, &m->sorted, esp_i_min_i64(n, MOST_SORTED - count));
    m->sorted.count = count;
    return fine;
}

static void sorted_add(esp_i_measured_t *m, int64_t ns)
{
    int32_t at = m->sorted.count;
    if (at >= MOST_SORTED)
        return;
    for (; at > 0 && m->sorted.data[at - 1] > ns; at--)
        m->sorted.data[at] = m->sorted.data[at - 1];
    m->sorted.data[at] = ns;
    int32_t low = m->sorted.count++ / 2, high = m->sorted.count / 2;
    m->pub.median_step_ns = ((double)m->sorted.data[low] + (double)m->sorted.data[high]) / 2;
}

static void add_period(esp_i_measured_t *m, int64_t ns)
{
    sorted_add(m, ns);
    m->sum_ns += (double)ns;
    m->sum_square += (double)ns * (double)ns;
    m->pub.periods++;
    double n = (double)m->pub.periods, mean = m->sum_ns / n;
    m->pub.mean_step_ns = mean;
    m->pub.spread_ns = sqrt(fmax(m->sum_square / n - mean * mean, 0));
}

esp_status_t esp_measured_add(esp_measured_t *measured, const int64_t *start_ns,
                              const int64_t *end_ns, int64_t steps, const int64_t *step_end_ns,
                              esp_diag_t *diag)
{
    esp_i_measured_t *m = esp_i_measured(measured);
    if (steps < 1 || step_end_ns[0] < 0)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "a run of no step");
    for (int64_t i = 1; i < steps; i++)
        if (step_end_ns[i] < step_end_ns[i - 1])
            return esp_i_fail(diag, ESP_ERR_ARGUMENT, "step %lld ends before the one before it",
                              (long long)i);
    if (m->pub.periods > 0 && m->pub.isolated != (steps == 1))
        return esp_i_fail(diag, ESP_ERR_ARGUMENT, "runs of one step among longer ones");
    if (!sorted_grow(m, steps))
        return esp_i_nomem(diag);
    int64_t last = step_end_ns[steps - 1] - (steps > 1 ? step_end_ns[steps - 2] : 0);
    if (start_ns)
        ESP_TRY(esp_i_measured_step(m, start_ns, end_ns, last, diag));
    m->pub.isolated = steps == 1;
    if (steps == 1)
        add_period(m, last);
    for (int64_t i = 1; i < steps; i++)
        add_period(m, step_end_ns[i] - step_end_ns[i - 1]);
    return ESP_OK;
}

/* ---- durations ----------------------------------------------------------------------------- */

void esp_measured_durations(const esp_measured_t *measured, int32_t step, int64_t *ns_out)
{
    const esp_deployment_t *d = measured->deployment;
    int64_t from = (int64_t)step * measured->n_ranks * d->n_tasks;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        int64_t sum = 0, n = 0, start = 0, end = 0;
        for (int32_t r = 0; r < measured->n_ranks; r++) {
            int64_t at = from + (int64_t)r * d->n_tasks + t;
            if (measured->start_ns[at] < 0)
                continue;
            sum += measured->end_ns[at] - measured->start_ns[at];
            start = esp_i_max_i64(start, measured->start_ns[at]);
            end = esp_i_max_i64(end, measured->end_ns[at]);
            n++;
        }
        ns_out[t] = d->task_comm[t] >= 0 ? end - start : n > 0 ? (sum + n / 2) / n : 0;
    }
}
