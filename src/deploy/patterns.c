/* The cheapest way to carry out a movement, remembered per (kind, meshes, shares). */
#include "deploy/lowerer.h"

#include <math.h>
#include <string.h>

int64_t esp_i_pattern_ns(const esp_pattern_t *pattern, int64_t bytes)
{
    return pattern->latency_ns + (int64_t)ceil((double)bytes * pattern->ns_per_byte);
}

static uint64_t key_hash(const uint64_t key[2])
{
    return esp_i_hash_bytes(1469598103934665603u, key, 2 * sizeof key[0]);
}

static bool patterns_grow(esp_lowerer_t *lw)
{
    if (2 * (lw->pattern_count + 1) <= lw->pattern_slots)
        return true;
    int32_t slots = lw->pattern_slots ? 2 * lw->pattern_slots : 128;
    esp_i_pattern_entry_t **table = esp_i_alloc_array(&lw->alloc, slots, sizeof *table);
    if (!table)
        return false;
    for (int32_t i = 0; i < lw->pattern_slots; i++) {
        if (!lw->patterns[i])
            continue;
        uint64_t at = key_hash(lw->patterns[i]->key) & (uint64_t)(slots - 1);
        while (table[at])
            at = (at + 1) & (uint64_t)(slots - 1);
        table[at] = lw->patterns[i];
    }
    esp_i_free(&lw->alloc, lw->patterns);
    lw->patterns = table;
    lw->pattern_slots = slots;
    return true;
}

static esp_place_t place_of(const esp_lowerer_t *lw, int32_t local, esp_share_t share)
{
    const esp_i_mesh_t *mesh = esp_i_mesh_of(lw, local);
    return (esp_place_t){.n = mesh->n,
                         .device = mesh->device,
                         .fraction =
                             share == ESP_SHARE_EVEN ? mesh->even_fraction : mesh->batch_fraction};
}

static esp_i_pattern_entry_t *entry_make(esp_lowerer_t *lw, const uint64_t key[2], esp_comm_t comm,
                                         const esp_place_t *from, const esp_place_t *to)
{
    esp_i_pattern_entry_t *entry = esp_i_alloc_array(&lw->alloc, 1, sizeof *entry);
    if (!entry)
        return NULL;
    memcpy(entry->key, key, sizeof entry->key);
    if (esp_pattern_find(lw->cluster, comm, from, to, &lw->alloc, entry->pattern, &entry->count) !=
        ESP_OK) {
        esp_i_free(&lw->alloc, entry);
        return NULL;
    }
    return entry;
}

const esp_pattern_t *esp_i_pattern_for(esp_lowerer_t *lw, esp_comm_t comm, int32_t from, int32_t to,
                                       esp_share_t from_share, esp_share_t to_share, int64_t bytes)
{
    uint64_t key[2] = {(uint64_t)comm << 2 | (uint64_t)from_share << 1 | (uint64_t)to_share,
                       (uint64_t)(uint32_t)lw->local.data[from].mesh << 32 |
                           (uint32_t)lw->local.data[to].mesh};
    if (!patterns_grow(lw))
        return NULL;
    uint64_t at = key_hash(key) & (uint64_t)(lw->pattern_slots - 1);
    while (lw->patterns[at] && memcmp(lw->patterns[at]->key, key, sizeof key) != 0)
        at = (at + 1) & (uint64_t)(lw->pattern_slots - 1);
    if (!lw->patterns[at]) {
        esp_place_t source = place_of(lw, from, from_share), target = place_of(lw, to, to_share);
        if (!(lw->patterns[at] = entry_make(lw, key, comm, &source, &target)))
            return NULL;
        lw->pattern_count++;
    }
    const esp_i_pattern_entry_t *entry = lw->patterns[at];
    const esp_pattern_t *best = &entry->pattern[0];
    for (int32_t i = 1; i < entry->count; i++)
        if (esp_i_pattern_ns(&entry->pattern[i], bytes) < esp_i_pattern_ns(best, bytes))
            best = &entry->pattern[i];
    return best;
}
