/* First fit (device/arena.h). A device makes about a hundred allocations at set-up and none in a
 * steady step, so walking a list is fast enough, and simple. */
#include "device/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int arena_init(struct arena *arena, void *base, size_t bytes) {
    memset(arena, 0, sizeof *arena);
    arena->base = base;
    arena->bytes = bytes;
    arena->free_capacity = 16;
    arena->free = malloc(arena->free_capacity * sizeof *arena->free);
    if (!arena->free) return fail(ERR_MEMORY, "out of host memory: the list of free device memory");
    arena->free[0] = (struct free_range){0, bytes};
    arena->free_count = 1;
    return OK;
}

void arena_release(struct arena *arena) {
    free(arena->free);
    memset(arena, 0, sizeof *arena);
}

static void remove_range(struct arena *arena, size_t i) {
    memmove(&arena->free[i], &arena->free[i + 1],
            (arena->free_count - i - 1) * sizeof *arena->free);
    arena->free_count--;
}

/* Live allocations separate the free ranges, so there is at most one range more than there are
 * allocations. alloc keeps room for that many, so that arena_free cannot fail. */
static int reserve_range(struct arena *arena) {
    if (arena->live + 2 <= arena->free_capacity) return 1;
    struct free_range *ranges = realloc(arena->free, 2 * arena->free_capacity * sizeof *ranges);
    if (!ranges) return 0;
    arena->free = ranges;
    arena->free_capacity *= 2;
    return 1;
}

void *arena_alloc(struct arena *arena, size_t bytes) {
    if (!reserve_range(arena)) return NULL;
    for (size_t i = 0; i < arena->free_count; i++) {
        struct free_range *r = &arena->free[i];
        if (r->bytes < bytes) continue;
        void *memory = arena->base + r->offset;
        r->offset += bytes;
        r->bytes -= bytes;
        if (r->bytes == 0) remove_range(arena, i);
        arena->live++;
        return memory;
    }
    return NULL;
}

void arena_free(struct arena *arena, void *memory, size_t bytes) {
    arena->live--;
    size_t offset = (size_t)((char *)memory - arena->base), i = 0;
    while (i < arena->free_count && arena->free[i].offset < offset)
        i++;
    struct free_range *before = i > 0 ? &arena->free[i - 1] : NULL;
    struct free_range *after = i < arena->free_count ? &arena->free[i] : NULL;
    int joins_before = before && before->offset + before->bytes == offset;
    int joins_after = after && offset + bytes == after->offset;

    if (joins_before && joins_after) {
        before->bytes += bytes + after->bytes;
        remove_range(arena, i);
    } else if (joins_before) {
        before->bytes += bytes;
    } else if (joins_after) {
        after->offset = offset;
        after->bytes += bytes;
    } else {
        memmove(&arena->free[i + 1], &arena->free[i],
                (arena->free_count - i) * sizeof *arena->free);
        arena->free[i] = (struct free_range){offset, bytes};
        arena->free_count++;
    }
}

size_t arena_largest(const struct arena *arena) {
    size_t largest = 0;
    for (size_t i = 0; i < arena->free_count; i++)
        if (arena->free[i].bytes > largest) largest = arena->free[i].bytes;
    return largest;
}
