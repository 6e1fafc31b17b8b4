/*
 * Places in the arena. First a walk through time with a free list, best fit: O(n log n), and good
 * for training steps, whose activations come and go like a stack. If that leaves more than a
 * sixteenth of the arena unused, the largest first into the smallest gap that is free during their
 * life: O(n^2), for as many items as that is cheap for. The smaller arena is taken.
 */
#include "deploy/pack.h"

#define BY_SIZE_MAX 4000

/* ---- sorting: bottom-up merge, stable ---------------------------------------------------------
 */

typedef bool (*before_fn)(const esp_i_item_t *a, const esp_i_item_t *b);

static bool starts_before(const esp_i_item_t *a, const esp_i_item_t *b)
{
    return a->first < b->first || (a->first == b->first && a->bytes > b->bytes);
}

static bool larger(const esp_i_item_t *a, const esp_i_item_t *b)
{
    return a->bytes > b->bytes || (a->bytes == b->bytes && a->first < b->first);
}

static void merge(const esp_i_item_t *items, const int32_t *from, int32_t *to, int32_t n,
                  int32_t width, before_fn before)
{
    for (int32_t low = 0; low < n; low += 2 * width) {
        int32_t middle = low + width < n ? low + width : n;
        int32_t high = middle + width < n ? middle + width : n, i = low, j = middle;
        for (int32_t k = low; k < high; k++)
            to[k] = j == high || (i < middle && !before(&items[from[j]], &items[from[i]]))
                        ? from[i++]
                        : from[j++];
    }
}

/* Fills pack->by with item indices in that order. Both vectors have room for all items. */
static void sort_items(esp_i_pack_t *p, before_fn before)
{
    int32_t n = p->items.count;
    for (int32_t i = 0; i < n; i++)
        p->by.data[i] = i;
    for (int32_t width = 1; width < n; width *= 2) {
        merge(p->items.data, p->by.data, p->heap.data, n, width, before);
        int32_t *swap = p->by.data;
        p->by.data = p->heap.data;
        p->heap.data = swap;
        int32_t capacity = p->by.capacity;
        p->by.capacity = p->heap.capacity;
        p->heap.capacity = capacity;
    }
}

/* ---- a heap of living items, the first to die on top --------------------------------------------
 */

static void heap_push(esp_i_pack_t *p, int32_t *count, int32_t item)
{
    const esp_i_item_t *items = p->items.data;
    int32_t at = (*count)++;
    for (; at > 0 && items[p->heap.data[(at - 1) / 2]].last > items[item].last; at = (at - 1) / 2)
        p->heap.data[at] = p->heap.data[(at - 1) / 2];
    p->heap.data[at] = item;
}

static int32_t heap_pop(esp_i_pack_t *p, int32_t *count)
{
    const esp_i_item_t *items = p->items.data;
    int32_t *heap = p->heap.data, top = heap[0], last = heap[--*count], at = 0;
    for (int32_t child; (child = 2 * at + 1) < *count; at = child) {
        if (child + 1 < *count && items[heap[child + 1]].last < items[heap[child]].last)
            child++;
        if (items[heap[child]].last >= items[last].last)
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

/* ---- through time ---------------------------------------------------------------------------- */

/* Free parts of the arena below `top`, ascending, never adjacent. */
typedef struct space {
    esp_i_owned_t *part;
    int32_t n;
    int64_t top;
} space_t;

static void part_remove(space_t *space, int32_t at)
{
    space->n--;
    for (int32_t i = at; i < space->n; i++)
        space->part[i] = space->part[i + 1];
}

static void space_free(space_t *space, int64_t low, int64_t high)
{
    int32_t at = 0, end = space->n;
    while (at < end) { /* the first part above `low` */
        int32_t middle = at + (end - at) / 2;
        if (space->part[middle].low < low)
            at = middle + 1;
        else
            end = middle;
    }
    bool joins_below = at > 0 && space->part[at - 1].high == low;
    bool joins_above = at < space->n && space->part[at].low == high;
    if (joins_below && joins_above) {
        space->part[at - 1].high = space->part[at].high;
        part_remove(space, at);
    } else if (joins_below) {
        space->part[at - 1].high = high;
    } else if (joins_above) {
        space->part[at].low = low;
    } else {
        for (int32_t i = space->n++; i > at; i--)
            space->part[i] = space->part[i - 1];
        space->part[at] = (esp_i_owned_t){low, high, ESP_NONE};
    }
}

/* The smallest part that fits; else the arena grows, from its last part if that is at the top. */
static int64_t space_take(space_t *space, int64_t bytes)
{
    int32_t best = ESP_NONE;
    for (int32_t i = 0; i < space->n; i++) {
        int64_t size = space->part[i].high - space->part[i].low;
        if (size >= bytes &&
            (best == ESP_NONE || size < space->part[best].high - space->part[best].low))
            best = i;
    }
    if (best == ESP_NONE) {
        bool at_top = space->n > 0 && space->part[space->n - 1].high == space->top;
        int64_t offset = at_top ? space->part[--space->n].low : space->top;
        space->top = offset + bytes;
        return offset;
    }
    int64_t offset = space->part[best].low;
    space->part[best].low += bytes;
    if (space->part[best].low == space->part[best].high)
        part_remove(space, best);
    return offset;
}

/* *peak_out: most bytes alive at one position, which no packing can do without. */
static int64_t place_in_time(esp_i_pack_t *p, int64_t *peak_out)
{
    esp_i_item_t *items = p->items.data;
    space_t space = {p->map.data, 0, 0};
    int64_t live = 0;
    int32_t alive = 0;
    *peak_out = 0;
    sort_items(p, starts_before);
    for (int32_t i = 0; i < p->items.count; i++) {
        esp_i_item_t *item = &items[p->by.data[i]];
        while (alive > 0 && items[p->heap.data[0]].last < item->first) {
            const esp_i_item_t *dead = &items[heap_pop(p, &alive)];
            space_free(&space, dead->offset, dead->offset + dead->bytes);
            live -= dead->bytes;
        }
        item->offset = space_take(&space, item->bytes);
        live += item->bytes;
        *peak_out = esp_i_max_i64(*peak_out, live);
        heap_push(p, &alive, p->by.data[i]);
    }
    return space.top;
}

/* ---- by size --------------------------------------------------------------------------------- */

/* Offset of the smallest gap that is free while `item` lives; heap: items placed, by offset. */
static int64_t gap_find(const esp_i_pack_t *p, const int64_t *offset, int32_t placed,
                        const esp_i_item_t *item)
{
    int64_t end = 0, best = ESP_NONE, best_size = INT64_MAX;
    for (int32_t i = 0; i < placed; i++) {
        int32_t other = p->heap.data[i];
        const esp_i_item_t *o = &p->items.data[other];
        if (o->last < item->first || o->first > item->last)
            continue;
        int64_t size = offset[other] - end;
        if (size >= item->bytes && size < best_size) {
            best = end;
            best_size = size;
        }
        end = esp_i_max_i64(end, offset[other] + o->bytes);
    }
    return best == ESP_NONE ? end : best;
}

static int64_t place_by_size(esp_i_pack_t *p, int64_t *offset)
{
    int64_t top = 0;
    sort_items(p, larger);
    for (int32_t i = 0; i < p->items.count; i++) {
        int32_t item = p->by.data[i], at = i;
        offset[item] = gap_find(p, offset, i, &p->items.data[item]);
        for (; at > 0 && offset[p->heap.data[at - 1]] > offset[item]; at--)
            p->heap.data[at] = p->heap.data[at - 1];
        p->heap.data[at] = item;
        top = esp_i_max_i64(top, offset[item] + p->items.data[item].bytes);
    }
    return top;
}

/* Leaves pack->by in the order in which the items begin. */
esp_status_t esp_i_pack_place(esp_lowerer_t *lw, int64_t resident, int64_t *top_out)
{
    esp_i_pack_t *p = lw->pack;
    int32_t n = p->items.count;
    int64_t peak;
    p->by.count = p->heap.count = p->map.count = p->trial.count = 0;
    if (!esp_vec_extend(&lw->alloc, &p->by, n + 1) ||
        !esp_vec_extend(&lw->alloc, &p->heap, n + 1) ||
        !esp_vec_extend(&lw->alloc, &p->map, n + 1) ||
        !esp_vec_extend(&lw->alloc, &p->trial, n + 1))
        return ESP_ERR_NOMEM;
    *top_out = place_in_time(p, &peak);
    if (n > BY_SIZE_MAX || *top_out - peak <= (resident + peak) / 16)
        return ESP_OK;
    int64_t top = place_by_size(p, p->trial.data);
    sort_items(p, starts_before);
    if (top >= *top_out)
        return ESP_OK;
    *top_out = top;
    for (int32_t i = 0; i < n; i++)
        p->items.data[i].offset = p->trial.data[i];
    return ESP_OK;
}
