/* Handing out one large piece of memory in small ones: first fit over a sorted list of free
 * ranges. The list lies outside of the memory, so the same allocator serves a host arena and a
 * slab on a GPU, which the CPU cannot write. Neighbours that become free grow together: after
 * all is freed one range is left. Not thread-safe: device->lock guards it. */
#ifndef DEVICE_ARENA_H
#define DEVICE_ARENA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct free_range {
    size_t offset, bytes;
};
struct arena {
    char *base; /* not owned */
    size_t bytes;
    struct free_range *free; /* sorted by offset, never touching each other */
    size_t free_count, free_capacity;
    size_t live; /* allocations */
};

/* init: all of base[0..bytes) is free. release gives back the list, not the memory; zeroed is
 * fine. */
int arena_init(struct arena *arena, void *base, size_t bytes);
void arena_release(struct arena *arena);

/* alloc: NULL when no free range holds `bytes` (or the list cannot grow). free: exactly what
 * alloc gave. */
void *arena_alloc(struct arena *arena, size_t bytes);
void arena_free(struct arena *arena, void *memory, size_t bytes);
size_t arena_largest(const struct arena *arena);

#ifdef __cplusplus
}
#endif
#endif
