/* An allocator that divides one large piece of memory: first fit over a sorted list of free ranges.
 * The list is outside that memory, so the same allocator serves an arena of the host and a slab on
 * a GPU, which the CPU cannot write. Adjacent free ranges are joined, so one range is left when
 * everything is freed. Not thread-safe: device->lock guards it. */
#ifndef DEVICE_ARENA_H
#define DEVICE_ARENA_H

#include <stddef.h>

struct free_range {
    size_t offset, bytes;
};
struct arena {
    char *base;              /* the memory; not owned */
    size_t bytes;            /* of the memory */
    struct free_range *free; /* sorted by offset, never touching each other */
    size_t free_count, free_capacity;
    size_t live; /* number of live allocations */
};

/* init: all of base[0..bytes) is free. release frees the list, not the memory; a zeroed arena is
 * fine. */
int arena_init(struct arena *arena, void *base, size_t bytes);
void arena_release(struct arena *arena);

/* alloc: NULL if no free range has `bytes` bytes, or if the list cannot grow. free takes exactly an
 * address from alloc and its bytes. largest: bytes of the largest free range. */
void *arena_alloc(struct arena *arena, size_t bytes);
void arena_free(struct arena *arena, void *memory, size_t bytes);
size_t arena_largest(const struct arena *arena);

#endif
