/* Inside of packing: lifetimes in the global order, places in the arena, anti-dependencies. */
#ifndef ESP_DEPLOY_PACK_H
#define ESP_DEPLOY_PACK_H

#include "deploy/lowerer.h"

#define ESP_I_PACK_ALIGN 64 /* a cache line: every offset and size is a multiple */

/* What takes transient memory of one class: a root buffer, or the scratch memory of a task. */
typedef struct esp_i_item {
    int64_t bytes, offset;
    int32_t first, last; /* positions in the global order, both included */
    int32_t buffer;      /* root; ESP_NONE: scratch */
    int32_t task;        /* the first to write it; of scratch, the only one */
    int32_t slot;        /* scratch of a movement: index into comm_class; else ESP_NONE */
} esp_i_item_t;

/* Part of the arena and the item that had it last. */
typedef struct esp_i_owned {
    int64_t low, high;
    int32_t item;
} esp_i_owned_t;

/* Of a movement: its order with the compute stream of a class (pack_order.c), as positions. */
typedef struct esp_i_known {
    int32_t class_;
    int32_t settled, settled_next; /* from there on the class follows it, in this step, the next */
    int32_t entered, entered_last; /* up to there it follows the class, in this step, the last */
} esp_i_known_t;

/* Scratch memory of packing, kept between calls. Indices are items of one class. */
typedef struct esp_i_pack {
    int32_t task_capacity, buffer_capacity, slot_capacity;
    int64_t *ready_ns;  /* per task: estimated start */
    int64_t *latest_ns; /* per position: latest start of one class up to there */
    int32_t
        *release; /* parallel to comm_class: last position at which the movement may still run */
    int64_t *task_scratch;
    int64_t *comm_scratch;       /* parallel to comm_class */
    int32_t *first, *last;       /* per root */
    int32_t *last_compute;       /* per root: task; ESP_NONE */
    int32_t *moved_offset;       /* CSR per root: movements that read or write it */
    ESP_VEC(int32_t) moved;      /* ... */
    esp_i_known_t *known;        /* per task */
    int32_t *fresh;              /* per task: new dependencies that start there */
    ESP_VEC(esp_i_item_t) items; /* of the class in question */
    ESP_VEC(int32_t) by, heap;   /* item indices */
    ESP_VEC(esp_i_owned_t) map, begin;
    ESP_VEC(int64_t) trial; /* offsets */
} esp_i_pack_t;

/* pack_place.c: offsets for pack->items, and pack->by in the order in which they begin; *top_out:
 * bytes of arena they take. */
esp_status_t esp_i_pack_place(esp_lowerer_t *lw, int64_t resident, int64_t *top_out);
/* pack_order.c: dependencies for memory that changes hands among pack->items, of `class_`. */
esp_status_t esp_i_pack_order(esp_lowerer_t *lw, int32_t class_);
/* The dependencies from lw->extra number `old` on are added to the successors. */
esp_status_t esp_i_pack_merge(esp_lowerer_t *lw, int32_t old);
/* The deployment shows the dependencies where they are now: they move as they grow. */
void esp_i_pack_publish(esp_lowerer_t *lw);

#endif
