/*
 * Dependencies for memory that changes hands: the first task of the new owner waits for every task
 * of the old one, in this step and, between the last owners of a step and the first of the next,
 * across its end. What the compute stream of the class, or its collective stream, orders anyway
 * needs none.
 */
#include "deploy/pack.h"

#include <string.h>

/* ---- what is in order anyway ----------------------------------------------------------------- */

/*
 * What is known of a movement and the compute stream of a class: from which position on the class
 * follows it, in its step and in the next, and up to which it follows the class, in its step and in
 * the one before. `none` and `all` are beyond every position.
 */
enum { none_before = -1, none_after = INT32_MAX, all_before = INT32_MAX - 1, all_after = 0 };

static void movement_look(esp_lowerer_t *lw, int32_t task, int32_t class_)
{
    const esp_deployment_t *d = &lw->d;
    esp_i_known_t *known = &lw->pack->known[task];
    if (known->class_ == class_)
        return;
    *known = (esp_i_known_t){class_, none_after, none_after, none_before, none_before};
    for (int32_t s = d->successor_offset[task]; s < d->successor_offset[task + 1]; s++) {
        int32_t after = d->successor[s];
        if (d->task_class[after] == class_ && d->position[after] < known->settled)
            known->settled = d->position[after];
    }
    for (int32_t r = d->read_offset[task]; r < d->read_offset[task + 1]; r++) {
        int32_t made =
            d->read_buffer[r] == ESP_NONE ? ESP_NONE : d->buffer_producer[d->read_buffer[r]];
        if (made != ESP_NONE && d->task_class[made] == class_ && d->position[made] > known->entered)
            known->entered = d->position[made];
    }
    if (known->settled != none_after)
        known->settled_next = all_after;
    if (known->entered != none_before)
        known->entered_last = all_before;
}

static bool is_collective(const esp_deployment_t *d, int32_t task)
{
    return d->task_comm[task] != ESP_NONE && d->comm_collective[d->task_comm[task]];
}

/* The new owner's task, or that of the next step, follows that of the old one anyway. Both touch
 * memory of the class. */
static bool ordered(esp_lowerer_t *lw, int32_t class_, bool next, int32_t old, int32_t fresh)
{
    const esp_deployment_t *d = &lw->d;
    bool old_moves = d->task_comm[old] != ESP_NONE, fresh_moves = d->task_comm[fresh] != ESP_NONE;
    if ((is_collective(d, old) && is_collective(d, fresh)) || (!old_moves && !fresh_moves))
        return true;
    if (old_moves)
        movement_look(lw, old, class_);
    if (fresh_moves)
        movement_look(lw, fresh, class_);
    const esp_i_known_t *from = &lw->pack->known[old], *to = &lw->pack->known[fresh];
    int32_t settled = old_moves ? from->settled : d->position[old];
    int32_t entered = fresh_moves ? to->entered : d->position[fresh];
    if (!next)
        return settled <= entered;
    return settled <= (fresh_moves ? to->entered_last : all_before) ||
           (old_moves ? from->settled_next : all_after) <= entered;
}

/* ---- edges ----------------------------------------------------------------------------------- */

/* From now on the compute stream carries this order further. */
static void note(esp_lowerer_t *lw, bool next, int32_t old, int32_t fresh)
{
    const esp_deployment_t *d = &lw->d;
    esp_i_known_t *from = &lw->pack->known[old], *to = &lw->pack->known[fresh];
    if (d->task_comm[fresh] == ESP_NONE) {
        int32_t *settled = next ? &from->settled_next : &from->settled;
        *settled = d->position[fresh] < *settled ? d->position[fresh] : *settled;
    } else if (d->task_comm[old] == ESP_NONE) {
        int32_t *entered = next ? &to->entered_last : &to->entered;
        *entered = d->position[old] > *entered ? d->position[old] : *entered;
    }
}

static bool wait_for(esp_lowerer_t *lw, int32_t class_, bool next, int32_t old, int32_t fresh)
{
    if (ordered(lw, class_, next, old, fresh))
        return true;
    esp_i_ids_t *before = next ? &lw->cross_before : &lw->extra_before;
    esp_i_ids_t *after = next ? &lw->cross_after : &lw->extra_after;
    note(lw, next, old, fresh);
    return esp_i_pair_push(lw, before, after, old, fresh);
}

/* The last compute task of an item; ESP_NONE: movements only. */
static int32_t last_compute(const esp_lowerer_t *lw, int32_t item)
{
    const esp_i_item_t *of = &lw->pack->items.data[item];
    if (of->buffer != ESP_NONE)
        return lw->pack->last_compute[of->buffer];
    return of->slot == ESP_NONE ? of->task : ESP_NONE;
}

/*
 * The first task of item `fresh` waits for all tasks of the owners in parts [at, end): of their
 * compute tasks, which follow each other, for the last.
 */
static bool take_over(esp_lowerer_t *lw, int32_t class_, bool next, int32_t at, int32_t end,
                      int32_t fresh)
{
    const esp_i_pack_t *p = lw->pack;
    int32_t task = p->items.data[fresh].task, last = ESP_NONE;
    for (int32_t i = at; i < end; i++) {
        int32_t compute = last_compute(lw, p->map.data[i].item);
        if (p->map.data[i].item != fresh && compute != ESP_NONE &&
            (last == ESP_NONE || lw->d.position[compute] > lw->d.position[last]))
            last = compute;
    }
    if (last != ESP_NONE && !wait_for(lw, class_, next, last, task))
        return false;
    for (int32_t i = at; i < end; i++) {
        const esp_i_item_t *old = &p->items.data[p->map.data[i].item];
        if (p->map.data[i].item == fresh)
            continue;
        if (old->slot != ESP_NONE && !wait_for(lw, class_, next, old->task, task))
            return false;
        for (int32_t k = old->buffer == ESP_NONE ? 0 : p->moved_offset[old->buffer];
             old->buffer != ESP_NONE && k < p->moved_offset[old->buffer + 1]; k++)
            if (!wait_for(lw, class_, next, p->moved.data[k], task))
                return false;
    }
    return true;
}

/* ---- who had which part last -------------------------------------------------------------------
 */

static int32_t map_find(const esp_i_pack_t *p, int64_t low) /* first part that ends above low */
{
    int32_t at = 0, end = p->map.count;
    while (at < end) {
        int32_t middle = at + (end - at) / 2;
        if (p->map.data[middle].high <= low)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

/* Replaces parts [at, end) by n others. */
static bool map_splice(esp_lowerer_t *lw, int32_t at, int32_t end, const esp_i_owned_t *part,
                       int32_t n)
{
    esp_i_pack_t *p = lw->pack;
    int32_t tail = p->map.count - end;
    if (n > end - at && !esp_vec_extend(&lw->alloc, &p->map, n - (end - at)))
        return false;
    memmove(p->map.data + at + n, p->map.data + end, (size_t)tail * sizeof *p->map.data);
    memcpy(p->map.data + at, part, (size_t)n * sizeof *part);
    p->map.count = at + n + tail;
    return true;
}

static bool begin_push(esp_lowerer_t *lw, int64_t low, int64_t high, int32_t item)
{
    return low >= high ||
           esp_vec_push(&lw->alloc, &lw->pack->begin, ((esp_i_owned_t){low, high, item}));
}

/* An item takes its part over from those that had it; what nobody had, it is the first to have. */
static bool item_enter(esp_lowerer_t *lw, int32_t class_, int32_t index)
{
    esp_i_pack_t *p = lw->pack;
    const esp_i_item_t *item = &p->items.data[index];
    int64_t low = item->offset, high = low + item->bytes, unowned = low;
    int32_t at = map_find(p, low), end = at, n = 0;
    esp_i_owned_t part[3];
    for (; end < p->map.count && p->map.data[end].low < high; end++) {
        if (!begin_push(lw, unowned, p->map.data[end].low, index))
            return false;
        unowned = p->map.data[end].high;
    }
    if (!take_over(lw, class_, false, at, end, index))
        return false;
    if (!begin_push(lw, unowned, high, index))
        return false;
    if (end > at && p->map.data[at].low < low)
        part[n++] = (esp_i_owned_t){p->map.data[at].low, low, p->map.data[at].item};
    part[n++] = (esp_i_owned_t){low, high, index};
    if (end > at && p->map.data[end - 1].high > high)
        part[n++] = (esp_i_owned_t){high, p->map.data[end - 1].high, p->map.data[end - 1].item};
    return map_splice(lw, at, end, part, n);
}

/* The first owners of the next step take over from the last of this one. */
static bool step_turn(esp_lowerer_t *lw, int32_t class_)
{
    esp_i_pack_t *p = lw->pack;
    for (int32_t i = 0; i < p->begin.count; i++) {
        esp_i_owned_t first = p->begin.data[i];
        int32_t at = map_find(p, first.low), end = at;
        while (end < p->map.count && p->map.data[end].low < first.high)
            end++;
        if (!take_over(lw, class_, true, at, end, first.item))
            return false;
    }
    return true;
}

esp_status_t esp_i_pack_order(esp_lowerer_t *lw, int32_t class_)
{
    esp_i_pack_t *p = lw->pack;
    p->map.count = p->begin.count = 0;
    for (int32_t i = 0; i < p->items.count; i++)
        if (!item_enter(lw, class_, p->by.data[i]))
            return ESP_ERR_NOMEM;
    return step_turn(lw, class_) ? ESP_OK : ESP_ERR_NOMEM;
}

/* ---- successors ------------------------------------------------------------------------------ */

void esp_i_pack_publish(esp_lowerer_t *lw)
{
    lw->d.n_extra = lw->extra_before.count;
    lw->d.extra_before = lw->extra_before.data;
    lw->d.extra_after = lw->extra_after.data;
    lw->d.n_cross = lw->cross_before.count;
    lw->d.cross_before = lw->cross_before.data;
    lw->d.cross_after = lw->cross_after.data;
    lw->d.successor = lw->successor;
}

esp_status_t esp_i_pack_merge(esp_lowerer_t *lw, int32_t old)
{
    const int32_t n = lw->d.n_tasks, count = lw->extra_before.count;
    int32_t *offset = lw->successor_offset, *fresh = lw->pack->fresh;
    int64_t edges = (int64_t)offset[n] + count - old;
    if (edges > INT32_MAX)
        return ESP_ERR_NOMEM;
    if (edges > lw->successor_capacity) {
        if (!esp_i_resize(&lw->alloc, &lw->successor, offset[n], 2 * edges, sizeof(int32_t)))
            return ESP_ERR_NOMEM;
        lw->successor_capacity = (int32_t)esp_i_min_i64(2 * edges, INT32_MAX);
    }
    memset(fresh, 0, (size_t)n * sizeof *fresh);
    for (int32_t e = old; e < count; e++) {
        fresh[lw->extra_before.data[e]]++;
        lw->n_predecessors[lw->extra_after.data[e]]++;
    }
    int32_t shift = count - old, last = offset[n];
    for (int32_t t = n - 1; t >= 0; t--) { /* lists move up, each making room behind itself */
        offset[t + 1] = last + shift;
        shift -= fresh[t];
        int32_t first = offset[t];
        memmove(lw->successor + first + shift, lw->successor + first,
                (size_t)(last - first) * sizeof *lw->successor);
        fresh[t] = last + shift;
        last = first;
    }
    for (int32_t e = old; e < count; e++)
        lw->successor[fresh[lw->extra_before.data[e]]++] = lw->extra_after.data[e];
    esp_i_pack_publish(lw);
    return ESP_OK;
}
