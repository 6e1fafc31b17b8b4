/* Ready lists: what waits behind the few tasks that come next. Mostly that is updates of parameters
 * of a few sizes, which have become ready in order: tasks of one rank in a row are one entry. */
#include "deploy/order.h"

static int32_t task_of(esp_i_order_ready_t ready)
{
    return (int32_t) ~(uint32_t)ready;
}

/* The last task of a row, by rank; 0: none, or the row is through. */
static esp_i_order_ready_t *tail_of(esp_i_ready_list_t *list, esp_i_order_ready_t ready)
{
    uint64_t rank = (uint64_t)(ready >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return &list->tail[rank >> (64 - ESP_I_TAIL_BITS)];
}

static void heap_push(esp_i_ready_list_t *list, esp_i_order_ready_t ready)
{
    esp_i_order_ready_t *heap = list->heap;
    size_t at = (size_t)list->n++;
    for (; at > 0 && ready > heap[(at - 1) / 2]; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = ready;
    list->near[0] = heap[0];
}

/* Instead of the most urgent entry. */
static void heap_replace(esp_i_ready_list_t *list, esp_i_order_ready_t ready)
{
    esp_i_order_ready_t *heap = list->heap;
    size_t at = 0, n = (size_t)list->n;
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] > heap[child];
        if (ready > heap[child])
            break;
        heap[at] = heap[child];
    }
    heap[at] = ready;
    list->near[0] = heap[0];
}

void esp_i_ready_push_far(esp_i_ready_list_t *list, esp_i_order_ready_t ready)
{
    esp_i_order_ready_t *tail = tail_of(list, ready), last = *tail;
    *tail = ready;
    list->after[task_of(ready)] = ESP_NONE;
    if (last > ready && last >> 32 == ready >> 32)
        list->after[task_of(last)] = task_of(ready);
    else
        heap_push(list, ready);
}

void esp_i_ready_spill(esp_i_ready_list_t *list)
{
    esp_i_ready_push_far(list, list->near[1]);
    memmove(list->near + 1, list->near + 2, (size_t)--list->n_near * sizeof *list->near);
}

int32_t esp_i_ready_pop_far(esp_i_ready_list_t *list)
{
    if (list->n == 0)
        return ESP_NONE;
    esp_i_order_ready_t top = list->heap[0], *tail = tail_of(list, top);
    int32_t task = task_of(top), after = list->after[task];
    if (after != ESP_NONE) {
        heap_replace(list, top + (uint32_t)task - (uint32_t)after);
        return task;
    }
    if (*tail == top)
        *tail = 0;
    if (--list->n > 0)
        heap_replace(list, list->heap[list->n]);
    else
        list->near[0] = 0;
    return task;
}
