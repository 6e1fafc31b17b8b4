/* Allocators, growable arrays, arenas. */
#include "base/base.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *malloc_alloc(void *context, size_t bytes)
{
    (void)context;
    return malloc(bytes);
}

static void malloc_release(void *context, void *memory)
{
    (void)context;
    free(memory);
}

const esp_allocator_t esp_i_malloc = {NULL, malloc_alloc, malloc_release};

esp_allocator_t esp_i_allocator(const esp_allocator_t *alloc_or_null)
{
    return alloc_or_null != NULL ? *alloc_or_null : esp_i_malloc;
}

void *esp_i_alloc(const esp_allocator_t *alloc, size_t bytes)
{
    if (alloc == NULL)
        alloc = &esp_i_malloc;
    return alloc->alloc(alloc->context, bytes > 0 ? bytes : 1);
}

/* n * size, where n elements fit into an object (PTRDIFF_MAX, so that pointers can be compared). */
static bool array_bytes(int64_t n, size_t size, size_t *bytes_out)
{
    size_t bytes;
    if (n < 0 || __builtin_mul_overflow((uint64_t)n, size, &bytes) || bytes > PTRDIFF_MAX)
        return false;
    *bytes_out = bytes;
    return true;
}

void *esp_i_alloc_array(const esp_allocator_t *alloc, int64_t n, size_t size)
{
    size_t bytes;
    if (!array_bytes(n, size, &bytes))
        return NULL;
    void *memory = esp_i_alloc(alloc, bytes);
    if (memory != NULL)
        memset(memory, 0, bytes);
    return memory;
}

void esp_i_free(const esp_allocator_t *alloc, void *memory)
{
    if (alloc == NULL)
        alloc = &esp_i_malloc;
    alloc->release(alloc->context, memory);
}

bool esp_i_grow(const esp_allocator_t *alloc, void *data, int32_t *capacity, int64_t need,
                size_t size)
{
    if (need <= *capacity)
        return true;
    if (need > INT32_MAX)
        return false;
    int64_t larger = esp_i_max_i64(need, 2 * (int64_t)*capacity);
    larger = esp_i_min_i64(esp_i_max_i64(larger, 8), INT32_MAX);
    size_t bytes;
    if (!array_bytes(larger, size, &bytes))
        return false;
    void *fresh = esp_i_alloc(alloc, bytes);
    if (fresh == NULL)
        return false;
    /* The pointer to grow is a T *, which must not be accessed as a void *: its bytes are copied.
     */
    void *old;
    memcpy(&old, data, sizeof old);
    if (old != NULL)
        memcpy(fresh, old, (size_t)*capacity * size);
    esp_i_free(alloc, old);
    memcpy(data, &fresh, sizeof fresh);
    *capacity = (int32_t)larger;
    return true;
}

/* ---- arena -------------------------------------------------------------------------------- */

#define ARENA_FIRST_BLOCK  ((size_t)4096)
#define ARENA_LARGEST_STEP ((size_t)1 << 20)

typedef struct esp_i_arena_block {
    struct esp_i_arena_block *next;
    size_t capacity, used;
    max_align_t data[];
} arena_block_t;

void esp_i_arena_init(esp_i_arena_t *arena, const esp_allocator_t *alloc_or_null)
{
    *arena = (esp_i_arena_t){.alloc = esp_i_allocator(alloc_or_null)};
}

void esp_i_arena_fini(esp_i_arena_t *arena)
{
    for (arena_block_t *block = arena->head; block != NULL;) {
        arena_block_t *next = block->next;
        esp_i_free(&arena->alloc, block);
        block = next;
    }
    arena->head = NULL;
    arena->used = arena->total = 0;
}

/* A new block at the head, twice as large as the last one up to a step, or as large as needed. */
static arena_block_t *arena_add_block(esp_i_arena_t *arena, size_t bytes)
{
    size_t capacity = arena->head != NULL ? 2 * arena->head->capacity : ARENA_FIRST_BLOCK;
    if (capacity > ARENA_LARGEST_STEP)
        capacity = ARENA_LARGEST_STEP;
    if (capacity < bytes)
        capacity = bytes;
    if (capacity > PTRDIFF_MAX - sizeof(arena_block_t))
        return NULL;
    arena_block_t *block = esp_i_alloc(&arena->alloc, sizeof *block + capacity);
    if (block == NULL)
        return NULL;
    *block = (arena_block_t){.next = arena->head, .capacity = capacity};
    arena->head = block;
    arena->total += capacity;
    return block;
}

void *esp_i_arena_alloc(esp_i_arena_t *arena, int64_t n, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    size_t bytes;
    if (!array_bytes(n, size, &bytes))
        return NULL;
    bytes = bytes > 0 ? (bytes + align - 1) / align * align : align;
    arena_block_t *block = arena->head;
    if (block == NULL || block->capacity - block->used < bytes)
        block = arena_add_block(arena, bytes);
    if (block == NULL)
        return NULL;
    void *memory = (char *)block->data + block->used;
    block->used += bytes;
    arena->used += bytes;
    return memset(memory, 0, bytes);
}

char *esp_i_arena_strdup(esp_i_arena_t *arena, const char *text)
{
    return esp_i_arena_strndup(arena, text, strlen(text));
}

char *esp_i_arena_strndup(esp_i_arena_t *arena, const char *text, size_t length)
{
    if (length >= PTRDIFF_MAX)
        return NULL;
    char *copy = esp_i_arena_alloc(arena, (int64_t)length + 1, 1);
    if (copy != NULL && length > 0)
        memcpy(copy, text, length);
    return copy;
}

char *esp_i_arena_printf(esp_i_arena_t *arena, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? NULL : esp_i_arena_alloc(arena, (int64_t)length + 1, 1);
    if (text != NULL) {
        va_start(arguments, format);
        (void)vsnprintf(text, (size_t)length + 1, format, arguments);
        va_end(arguments);
    }
    return text;
}
