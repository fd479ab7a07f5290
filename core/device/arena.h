/* An allocator that divides one large piece of memory, with first fit over a sorted list of free
 * ranges. The list is outside that memory, so the same allocator serves an arena of the host and a
 * slab on a GPU, which the CPU cannot write. Adjacent free ranges are joined, so one range is left
 * when everything is freed. It is not thread-safe: device->lock guards it. */
#ifndef DEVICE_ARENA_H
#define DEVICE_ARENA_H

#include <stddef.h>

struct free_range {
    size_t offset, bytes;
};
struct arena {
    char *base;              /* the memory; not owned */
    size_t bytes;            /* size of the memory */
    struct free_range *free; /* sorted by offset, never touching each other */
    size_t free_count, free_capacity;
    size_t live; /* number of live allocations */
};

/* arena_init makes all of base[0..bytes) free. arena_release frees the list, not the memory; a
 * zeroed arena is fine. */
int arena_init(struct arena *arena, void *base, size_t bytes);
void arena_release(struct arena *arena);

/* arena_alloc returns NULL if no free range is large enough or the list cannot grow. arena_free
 * takes an address from arena_alloc and its size. arena_largest: the largest free size. */
void *arena_alloc(struct arena *arena, size_t bytes);
void arena_free(struct arena *arena, void *memory, size_t bytes);
size_t arena_largest(const struct arena *arena);

#endif
