/* The most memory that is in use at one time. */
#include "live_peak.h"
#include "support.h"

#include <stdlib.h>

enum { LINE = 64 };

/* Memory of a class begins (bytes > 0) or ends to be in use. */
typedef struct change {
    int32_t class_;
    int64_t ns, bytes;
} change_t;

typedef struct life {
    int64_t from, to; /* from > to: never */
} life_t;

typedef struct lives {
    const esp_deployment_t *d;
    const esp_sim_result_t *sim;
    int64_t *begins; /* per class: when its first compute task starts */
    life_t *root;    /* per buffer */
    change_t *change;
    int32_t n;
    int64_t *whole; /* per class: bytes in use for the whole step */
} lives_t;

static void *allocate(int64_t n, size_t size)
{
    void *memory = calloc((size_t)n + 1, size);
    assert_non_null(memory);
    return memory;
}

static int by_time(const void *a, const void *b)
{
    const change_t *x = a, *y = b;
    if (x->class_ != y->class_)
        return x->class_ < y->class_ ? -1 : 1;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* what ends goes first */
}

/* Counts it in two steps. */
static void live(lives_t *lives, int32_t class_, life_t life, int64_t bytes)
{
    const int64_t period = lives->sim->step_time_ns;
    bytes = (bytes + LINE - 1) / LINE * LINE;
    if (life.from > life.to)
        return;
    if (life.to > esp_i_min_i64(life.from, lives->begins[class_]) + period) {
        lives->whole[class_] += bytes;
        return;
    }
    for (int64_t step = 0; step < 2; step++) {
        lives->change[lives->n++] = (change_t){class_, life.from + step * period, bytes};
        lives->change[lives->n++] = (change_t){class_, life.to + step * period, -bytes};
    }
}

static void live_scratch(lives_t *lives, int32_t task)
{
    const esp_deployment_t *d = lives->d;
    const int32_t comm = d->task_comm[task];
    const life_t life = {lives->sim->start_ns[task], lives->sim->end_ns[task]};
    const int64_t bytes = esp_deployment_scratch_bytes(d, task);
    if (bytes > 0 && comm == ESP_NONE)
        live(lives, d->task_class[task], life, bytes);
    if (bytes == 0 || comm == ESP_NONE)
        return;
    for (int32_t i = d->comm_class_offset[comm]; i < d->comm_class_offset[comm + 1]; i++)
        live(lives, d->comm_class[i], life, bytes);
}

static void touch(const lives_t *lives, int32_t task, int32_t n, const int32_t *buffer)
{
    for (int32_t i = 0; i < n; i++) {
        if (buffer[i] == ESP_NONE)
            continue;
        life_t *life = &lives->root[lives->d->buffer_root[buffer[i]]];
        life->from = esp_i_min_i64(life->from, lives->sim->start_ns[task]);
        life->to = esp_i_max_i64(life->to, lives->sim->end_ns[task]);
    }
}

static void find_lives(lives_t *lives)
{
    const esp_deployment_t *d = lives->d;
    for (int32_t b = 0; b < d->n_buffers; b++)
        lives->root[b] = (life_t){INT64_MAX, -1};
    for (int32_t k = 0; k < d->n_classes; k++)
        lives->begins[k] = INT64_MAX / 2;
    for (int32_t t = 0; t < d->n_tasks; t++) {
        const int32_t r = d->read_offset[t], w = d->write_offset[t], class_ = d->task_class[t];
        touch(lives, t, d->read_offset[t + 1] - r, d->read_buffer + r);
        touch(lives, t, d->write_offset[t + 1] - w, d->write_buffer + w);
        if (class_ != ESP_NONE)
            lives->begins[class_] = esp_i_min_i64(lives->begins[class_], lives->sim->start_ns[t]);
    }
}

static void find_changes(lives_t *lives)
{
    const esp_deployment_t *d = lives->d;
    for (int32_t b = 0; b < d->n_buffers; b++) {
        const life_t always = {0, INT64_MAX};
        if (d->buffer_root[b] == b)
            live(lives, d->buffer_class[b], d->buffer_resident[b] ? always : lives->root[b],
                 d->buffer_bytes[b]);
    }
    for (int32_t t = 0; t < d->n_tasks; t++)
        live_scratch(lives, t);
    qsort(lives->change, (size_t)lives->n, sizeof *lives->change, by_time);
}

void live_peaks(const esp_deployment_t *d, const esp_sim_result_t *sim, int64_t *peak_out)
{
    const int64_t pieces = d->n_buffers + d->n_tasks + d->comm_class_offset[d->n_comms];
    lives_t lives = {.d = d,
                     .sim = sim,
                     .begins = allocate(d->n_classes, sizeof *lives.begins),
                     .root = allocate(d->n_buffers, sizeof *lives.root),
                     .change = allocate(4 * pieces, sizeof *lives.change),
                     .whole = allocate(d->n_classes, sizeof *lives.whole)};
    find_lives(&lives);
    find_changes(&lives);
    for (int32_t k = 0, i = 0; k < d->n_classes; k++) {
        int64_t now = lives.whole[k];
        for (peak_out[k] = now; i < lives.n && lives.change[i].class_ == k; i++) {
            now += lives.change[i].bytes;
            peak_out[k] = esp_i_max_i64(peak_out[k], now);
        }
    }
    free(lives.begins);
    free(lives.root);
    free(lives.change);
    free(lives.whole);
}
