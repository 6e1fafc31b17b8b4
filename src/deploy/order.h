/* Inside of the global order: the schedule (order.c), its ready lists, and the order of its starts
 * (order_sort.c). */
#ifndef ESP_DEPLOY_ORDER_H
#define ESP_DEPLOY_ORDER_H

#include "deploy/lowerer.h"

#include <string.h>

#define ESP_I_NEVER INT64_MAX

/* ---- ready lists -------------------------------------------------------------------------------
 */

/* A task that is ready, on the list of its class: by level, then by rank, then by id. The more
 * urgent of two is the greater. */
__extension__ typedef unsigned __int128 esp_i_order_ready_t;

static inline esp_i_order_ready_t esp_i_ready_of(int64_t level, int64_t rank, int32_t task)
{
    return (esp_i_order_ready_t)level << 96 | (esp_i_order_ready_t)(uint64_t)rank << 32 |
           ~(uint32_t)task;
}

/* Ready tasks of a class. While backward runs, hundreds of updates wait: the few tasks that come
 * next are kept apart from them (order_ready.c). */
enum { ESP_I_NEAR = 8, ESP_I_TAIL_BITS = 3 };
typedef struct esp_i_ready_list {
    esp_i_order_ready_t *heap; /* the first of each row, the most urgent on top */
    int32_t *after;            /* per task: the next in its row; ESP_NONE */
    int32_t n, n_near;
    esp_i_order_ready_t near[1 + ESP_I_NEAR]; /* from 1: more urgent than the heap, the most urgent
                                           last; 0: heap[0], or 0 */
    esp_i_order_ready_t tail[1 << ESP_I_TAIL_BITS];
} esp_i_ready_list_t;

/* Less urgent than all near ones; the least urgent of the near ones; when none is near. */
void esp_i_ready_push_far(esp_i_ready_list_t *list, esp_i_order_ready_t ready);
void esp_i_ready_spill(esp_i_ready_list_t *list);
int32_t esp_i_ready_pop_far(esp_i_ready_list_t *list);

static inline void esp_i_ready_push(esp_i_ready_list_t *list, esp_i_order_ready_t ready)
{
    if (list->n_near == ESP_I_NEAR)
        esp_i_ready_spill(list);
    if (list->near[0] > ready) {
        esp_i_ready_push_far(list, ready);
        return;
    }
    esp_i_order_ready_t *at = list->near + ++list->n_near;
    for (; at[-1] > ready; at--)
        *at = at[-1];
    *at = ready;
}

/* The most urgent task; ESP_NONE: none is ready. */
static inline int32_t esp_i_ready_pop(esp_i_ready_list_t *list)
{
    return list->n_near ? (int32_t) ~(uint32_t)list->near[list->n_near--]
                        : esp_i_ready_pop_far(list);
}

/* ---- the schedule ------------------------------------------------------------------------------
 */

/* Something that happens to a movement; of two at one time, that with the lesser `at` is first. */
typedef struct esp_i_order_event {
    int64_t time;
    uint64_t at;
    int32_t task;
} esp_i_order_event_t;

/* Min-heap. */
typedef struct esp_i_order_events {
    esp_i_order_event_t *event;
    int32_t n;
} esp_i_order_events_t;

/* A task starts. */
typedef struct esp_i_order_start {
    uint64_t key; /* twice the time since `base`, and 1 for compute tasks: movements come first */
    int32_t round, task;
} esp_i_order_start_t;

/* What a compute stream runs, and the time and round of its end; idle: ESP_I_NEVER. */
typedef struct esp_i_order_stream {
    int64_t end;
    int32_t round, task;
} esp_i_order_stream_t;

enum {
    ESP_I_MANY = 2048,     /* that many starts are brought in order together */
    ESP_I_DIGIT_BITS = 11, /* at most: `count` has room for all values */
};

struct esp_i_order {
    /* per task */
    int64_t *rank;    /* longest remaining path, ns; of leaves that are ready: what they follow */
    int64_t *follows; /* NO_LEAF, UPDATE, or least rank that remains after a predecessor */
    int32_t *waiting; /* predecessors left; of movements: MOVES more */
    esp_i_order_ready_t *heap; /* of all lists: room for as many tasks as the class has */
    int32_t *after;            /* of all lists */
    int32_t capacity;
    /* per movement */
    esp_i_order_event_t *latest;  /* the last end of a predecessor so far */
    esp_i_order_events_t pending; /* ready: at: round * 2^32 + the edge that it waited for last */
    esp_i_order_events_t moving;  /* on their way, until they end: at: the task */
    int32_t move_capacity, n_moves;
    /* per class */
    esp_i_ready_list_t *list;
    esp_i_order_stream_t *stream;
    int64_t *collective_free;
    int32_t *due; /* what ends now, the least task last */
    int32_t n_due;
    int64_t next;  /* when the first of the streams ends what it runs */
    int64_t least; /* what the shortest movement takes, ns */
    int64_t time;  /* of the last round that was run as one, and its number */
    int32_t round;
    /* starts that have no position yet, none before `base` */
    esp_i_order_start_t *start, *spare; /* room for all tasks, and to sort them */
    int32_t *count;
    int32_t n_starts, n_settled; /* settled: with positions */
    int64_t base;
    uint64_t keys; /* bits of the keys, and of the rounds */
    int32_t rounds;
};

/* order_sort.c: the next positions are those of o->start, by (time, round), movements before
 * compute tasks, then as they lie. */
void esp_i_order_settle(esp_lowerer_t *lw);

#endif
