/* Spans of elements, and the stages, messages and work that carry them. */
#include "exec/schedule.h"

#include <string.h>

void *esp_i_move_alloc(esp_i_move_t *m, int64_t n, size_t size)
{
    void *memory = esp_i_arena_alloc(&m->arena, esp_i_max_i64(n, 1), size);
    m->lists->fine = m->lists->fine && memory;
    return memory;
}

/* ---- rows ---------------------------------------------------------------------------------- */

const esp_i_rows_t *esp_i_rows_on(esp_i_move_t *m, const int32_t *values, int32_t k)
{
    esp_i_rows_t *rows = esp_i_move_alloc(m, m->n_pairs, sizeof *rows);
    for (int32_t p = 0; rows && p < m->n_pairs; p++)
        rows[p] = esp_i_rows_of(m->d, values[p], k);
    return rows;
}

/* Elements [begin, result) are all in the rows, or all not. */
static int64_t part_end(const esp_i_rows_t *rows, int64_t begin, int64_t end, bool *inside_out)
{
    const esp_view_t *view = &rows->view;
    *inside_out = true;
    if (view->extent == 0 || rows->share == view->extent)
        return end;
    const int64_t stride = view->extent * view->inner, start = begin / stride * stride;
    const int64_t low = start + rows->offset * view->inner, high = low + rows->share * view->inner;
    *inside_out = begin >= low && begin < high;
    if (*inside_out)
        return esp_i_min_i64(end, high);
    return esp_i_min_i64(end, begin < low ? low : low + stride);
}

/* Place of an element that the rows have. */
static int64_t place_at(const esp_i_rows_t *rows, int64_t element, int64_t size)
{
    const esp_view_t *view = &rows->view;
    if (view->extent) {
        const int64_t stride = view->extent * view->inner, outer = element / stride;
        element += outer * (rows->share * view->inner - stride) - rows->offset * view->inner;
    }
    return rows->place + element * size;
}

/* ---- spans --------------------------------------------------------------------------------- */

static void span_push(esp_i_move_t *m, int32_t pair, int64_t begin, int64_t end)
{
    const int32_t n = m->run.count;
    if (begin >= end)
        return;
    if (n > 0 && m->run.data[n - 1].pair == pair && m->run.data[n - 1].end == begin)
        m->run.data[n - 1].end = end;
    else if (!esp_vec_push(&m->lists->alloc, &m->run, ((esp_i_run_t){pair, begin, end})))
        m->lists->fine = false;
}

/* What was pushed since the last span. */
static esp_i_span_t span_finish(esp_i_move_t *m)
{
    esp_i_span_t span = {.n = m->run.count};
    esp_i_run_t *run = esp_i_move_alloc(m, span.n, sizeof *run);
    m->run.count = 0;
    if (!run || !m->lists->fine)
        return (esp_i_span_t){0};
    for (int32_t i = 0; i < span.n; i++) {
        run[i] = m->run.data[i];
        span.elements += run[i].end - run[i].begin;
    }
    span.run = run;
    return span;
}

esp_i_span_t esp_i_span_of(esp_i_move_t *m, const esp_i_rows_t *rows)
{
    for (int32_t p = 0; rows && p < m->n_pairs; p++) {
        const esp_view_t view = rows[p].view;
        if (view.extent == 0)
            span_push(m, p, 0, rows[p].elements);
        for (int64_t o = 0; o < view.outer && view.extent; o++) {
            const int64_t begin = (o * view.extent + rows[p].offset) * view.inner;
            span_push(m, p, begin, begin + rows[p].share * view.inner);
        }
    }
    return span_finish(m);
}

esp_i_span_t esp_i_span_sift(esp_i_move_t *m, esp_i_span_t span, const esp_i_rows_t *rows,
                             bool inside)
{
    for (int32_t i = 0; rows && i < span.n; i++) {
        const esp_i_run_t *run = &span.run[i];
        for (int64_t at = run->begin; at < run->end;) {
            bool is_inside;
            const int64_t end = part_end(&rows[run->pair], at, run->end, &is_inside);
            if (is_inside == inside)
                span_push(m, run->pair, at, end);
            at = end;
        }
    }
    return span_finish(m);
}

esp_i_span_t esp_i_span_join(esp_i_move_t *m, int32_t n, const esp_i_span_t *span, int32_t stride)
{
    for (int32_t k = 0; k < n; k++)
        for (int32_t i = 0; i < span[k * stride].n; i++) {
            const esp_i_run_t *run = &span[k * stride].run[i];
            span_push(m, run->pair, run->begin, run->end);
        }
    return span_finish(m);
}

esp_i_span_t esp_i_take(esp_i_move_t *m, esp_i_cursor_t *cursor, int64_t elements)
{
    while (elements > 0 && cursor->run < cursor->span.n) {
        const esp_i_run_t *run = &cursor->span.run[cursor->run];
        const int64_t begin = run->begin + cursor->done;
        const int64_t n = esp_i_min_i64(elements, run->end - begin);
        span_push(m, run->pair, begin, begin + n);
        elements -= n;
        cursor->done += n;
        if (begin + n == run->end) {
            cursor->run++;
            cursor->done = 0;
        }
    }
    return span_finish(m);
}

void esp_i_span_cut(esp_i_move_t *m, esp_i_span_t span, int32_t n, esp_i_span_t *part_out)
{
    esp_i_cursor_t cursor = {.span = span};
    const int64_t whole = span.elements / n, rest = span.elements % n;
    for (int32_t k = 0; k < n; k++)
        part_out[k] = esp_i_take(m, &cursor, whole + (k < rest));
}

/* ---- stages and messages ------------------------------------------------------------------- */

void esp_i_stage_begin(esp_i_move_t *m)
{
    esp_i_lists_t *lists = m->lists;
    const esp_i_stage_t stage = {.first_transfer = lists->transfer.count,
                                 .first_work = lists->work.count};
    if (!esp_vec_push(&lists->alloc, &lists->stage, stage))
        lists->fine = false;
}

void esp_i_stage_end(esp_i_move_t *m)
{
    esp_i_lists_t *lists = m->lists;
    if (!lists->fine)
        return;
    esp_i_stage_t *stage = &lists->stage.data[lists->stage.count - 1];
    stage->n_transfers = lists->transfer.count - stage->first_transfer;
    stage->n_work = lists->work.count - stage->first_work;
    if (stage->n_transfers == 0 && stage->n_work == 0)
        lists->stage.count--;
}

static void extent_push(esp_i_move_t *m, int64_t place, int64_t bytes)
{
    esp_i_lists_t *lists = m->lists;
    const int32_t n = lists->extent.count;
    esp_dcheck(n <= m->first_extent || lists->extent.data != NULL);
    esp_i_extent_t *last = n > m->first_extent ? &lists->extent.data[n - 1] : NULL;
    if (last && last->place + last->bytes == place)
        last->bytes += bytes;
    else if (!esp_vec_push(&lists->alloc, &lists->extent, ((esp_i_extent_t){place, bytes})))
        lists->fine = false;
}

static void transfer_push(esp_i_move_t *m, int32_t peer, bool send)
{
    esp_i_lists_t *lists = m->lists;
    const esp_i_transfer_t transfer = {.peer = peer,
                                       .send = send,
                                       .first = m->first_extent,
                                       .n = lists->extent.count - m->first_extent,
                                       .mesh = ESP_NONE};
    esp_dcheck(peer != m->me);
    if (transfer.n > 0 && !esp_vec_push(&lists->alloc, &lists->transfer, transfer))
        lists->fine = false;
}

static void transfer(esp_i_move_t *m, int32_t peer, bool send, esp_i_span_t span,
                     const esp_i_rows_t *rows)
{
    m->first_extent = m->lists->extent.count;
    for (int32_t i = 0; i < span.n; i++) {
        const esp_i_run_t *run = &span.run[i];
        for (int64_t at = run->begin; at < run->end;) {
            bool inside;
            const int64_t end = part_end(&rows[run->pair], at, run->end, &inside);
            esp_assert(inside);
            extent_push(m, place_at(&rows[run->pair], at, m->size), (end - at) * m->size);
            at = end;
        }
    }
    transfer_push(m, peer, send);
}

static void transfer_at(esp_i_move_t *m, int32_t peer, bool send, int64_t elements, int64_t place)
{
    m->first_extent = m->lists->extent.count;
    if (elements > 0)
        extent_push(m, place, elements * m->size);
    transfer_push(m, peer, send);
}

void esp_i_send(esp_i_move_t *m, int32_t peer, esp_i_span_t span, const esp_i_rows_t *rows)
{
    transfer(m, peer, true, span, rows);
}

void esp_i_receive(esp_i_move_t *m, int32_t peer, esp_i_span_t span, const esp_i_rows_t *rows)
{
    transfer(m, peer, false, span, rows);
}

void esp_i_send_at(esp_i_move_t *m, int32_t peer, int64_t elements, int64_t place)
{
    transfer_at(m, peer, true, elements, place);
}

void esp_i_receive_at(esp_i_move_t *m, int32_t peer, int64_t elements, int64_t place)
{
    transfer_at(m, peer, false, elements, place);
}

/* ---- work ---------------------------------------------------------------------------------- */

bool esp_i_work_push(esp_i_lists_t *lists, esp_i_work_t work, int32_t n_src, const int64_t *src)
{
    work.first_src = lists->work_src.count;
    work.n_src = n_src;
    for (int32_t i = 0; i < n_src; i++)
        if (!esp_vec_push(&lists->alloc, &lists->work_src, src[i]))
            return false;
    return esp_vec_push(&lists->alloc, &lists->work, work);
}

/* Bytes that follow the last copy of the list, which begins with work `first`, extend it. */
static void copy_push(esp_i_lists_t *lists, int32_t first, int64_t dst, int64_t src, int64_t bytes)
{
    const int32_t n = lists->work.count;
    esp_i_work_t *last =
        n > first && !lists->work.data[n - 1].add ? &lists->work.data[n - 1] : NULL;
    if (dst == src)
        return;
    if (last && last->dst + last->n == dst &&
        lists->work_src.data[last->first_src] + last->n == src)
        last->n += bytes;
    else if (!esp_i_work_push(lists, (esp_i_work_t){.n = bytes, .dst = dst}, 1, &src))
        lists->fine = false;
}

void esp_i_copy_run(esp_i_lists_t *lists, int32_t first, const esp_i_rows_t *src,
                    const esp_i_rows_t *dst, int64_t begin, int64_t end, int64_t size)
{
    while (begin < end && lists->fine) {
        bool inside, both;
        int64_t to = part_end(src, begin, end, &inside);
        to = part_end(dst, begin, to, &both);
        esp_assert(inside && both);
        copy_push(lists, first, place_at(dst, begin, size), place_at(src, begin, size),
                  (to - begin) * size);
        begin = to;
    }
}

void esp_i_copy(esp_i_move_t *m, esp_i_span_t span, const esp_i_rows_t *src,
                const esp_i_rows_t *dst)
{
    const int32_t first = m->lists->work.count;
    for (int32_t i = 0; i < span.n; i++) {
        const esp_i_run_t *run = &span.run[i];
        esp_i_copy_run(m->lists, first, &src[run->pair], &dst[run->pair], run->begin, run->end,
                       m->size);
    }
}

void esp_i_sum(esp_i_move_t *m, int64_t elements, int64_t dst, int32_t n_src, const int64_t *src)
{
    const esp_i_work_t work = {.add = true, .dtype = m->dtype, .n = elements, .dst = dst};
    if (elements > 0 && !esp_i_work_push(m->lists, work, n_src, src))
        m->lists->fine = false;
}

void esp_i_accumulate(esp_i_move_t *m, esp_i_span_t span, const esp_i_rows_t *rows, int64_t place)
{
    for (int32_t i = 0; i < span.n; i++) {
        const esp_i_run_t *run = &span.run[i];
        for (int64_t at = run->begin; at < run->end;) {
            bool inside;
            const int64_t end = part_end(&rows[run->pair], at, run->end, &inside);
            esp_assert(inside);
            const int64_t dst = place_at(&rows[run->pair], at, m->size);
            esp_i_sum(m, end - at, dst, 2, (int64_t[]){dst, place});
            place += (end - at) * m->size;
            at = end;
        }
    }
}
