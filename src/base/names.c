/* Interned names: an open-addressing table over dense ids. */
#include "base/base.h"

#include <string.h>

void esp_i_names_init(esp_i_names_t *names, esp_i_arena_t *arena)
{
    *names = (esp_i_names_t){.arena = arena};
}

void esp_i_names_fini(esp_i_names_t *names)
{
    esp_i_free(&names->arena->alloc, names->slots);
    esp_i_free(&names->arena->alloc, names->names);
    *names = (esp_i_names_t){.arena = names->arena};
}

/* The slot that holds the text, or the empty one where it would go. The table is never full. */
static int32_t find_slot(const esp_i_names_t *names, uint64_t hash, const char *text, size_t length)
{
    uint64_t mask = (uint64_t)names->slot_count - 1;
    uint64_t slot = hash & mask;
    for (; names->slots[slot].id >= 0; slot = (slot + 1) & mask) {
        if (names->slots[slot].hash != hash)
            continue;
        const char *name = names->names[names->slots[slot].id];
        if (strlen(name) == length && memcmp(name, text, length) == 0)
            break;
    }
    return (int32_t)slot;
}

/* Doubles the table so that it is at most half full after one more name. */
static bool grow_slots(esp_i_names_t *names)
{
    if (2 * ((int64_t)names->count + 1) <= names->slot_count)
        return true;
    int64_t larger = names->slot_count > 0 ? 2 * (int64_t)names->slot_count : 16;
    if (larger > INT32_MAX)
        return false;
    struct esp_i_name_slot *slots =
        esp_i_alloc_array(&names->arena->alloc, larger, sizeof *names->slots);
    if (slots == NULL)
        return false;
    for (int64_t i = 0; i < larger; i++)
        slots[i].id = -1;
    uint64_t mask = (uint64_t)larger - 1;
    for (int32_t i = 0; i < names->slot_count; i++) {
        if (names->slots[i].id < 0)
            continue;
        uint64_t slot = names->slots[i].hash & mask;
        while (slots[slot].id >= 0)
            slot = (slot + 1) & mask;
        slots[slot] = names->slots[i];
    }
    esp_i_free(&names->arena->alloc, names->slots);
    names->slots = slots;
    names->slot_count = (int32_t)larger;
    return true;
}

int32_t esp_i_names_add(esp_i_names_t *names, const char *text, size_t length)
{
    if (!grow_slots(names))
        return -1;
    length = strnlen(text, length);
    uint64_t hash = esp_i_hash_bytes(0, text, length);
    int32_t slot = find_slot(names, hash, text, length);
    if (names->slots[slot].id >= 0)
        return names->slots[slot].id;
    if (!esp_i_grow(&names->arena->alloc, &names->names, &names->capacity,
                    (int64_t)names->count + 1, sizeof *names->names))
        return -1;
    const char *copy = esp_i_arena_strndup(names->arena, text, length);
    if (copy == NULL)
        return -1;
    names->names[names->count] = copy;
    names->slots[slot].hash = hash;
    names->slots[slot].id = names->count;
    return names->count++;
}

int32_t esp_i_names_find(const esp_i_names_t *names, const char *text, size_t length)
{
    if (names->count == 0)
        return -1;
    length = strnlen(text, length);
    return names->slots[find_slot(names, esp_i_hash_bytes(0, text, length), text, length)].id;
}
