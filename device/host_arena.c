/* The emulated GPU's memory: one file without a name (memfd), mapped once and shared.
 *
 * A file, because another process can map it: that is what CUDA IPC gives on a GPU. Without a name, because
 * nothing is then left behind, whoever is killed. Pages are committed by the first touch, so a device of
 * 16 GiB costs what is used of it. The size is sealed: nobody who got the descriptor can cut the memory off
 * under its users.
 *
 * The allocator is first fit over a sorted list of free ranges that lies outside of the arena; neighbours
 * that become free grow together, so after all is freed one range is left. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "device/host.h"

static int open_memory(struct arena *arena) {
    char size[32];
    format_bytes(arena->bytes, size, sizeof size);
    arena->fd = memfd_create("duet-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0) return fail_errno(ERR_MEMORY, errno, "device memory: %s: memfd", size);
    if (ftruncate(arena->fd, (off_t)arena->bytes))
        return fail_errno(ERR_MEMORY, errno, "device memory: %s: give a smaller --device-memory", size);
    if (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return fail_errno(ERR_MEMORY, errno, "device memory: %s: sealing", size);
    void *base = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena->fd, 0);
    if (base == MAP_FAILED)
        return fail_errno(ERR_MEMORY, errno, "device memory: %s: map it: give a smaller --device-memory",
                          size);
    arena->base = base;
    madvise(base, arena->bytes, MADV_HUGEPAGE); /* a wish: fewer page faults where the kernel grants it */
    return OK;
}

int arena_init(struct arena *arena, size_t bytes) {
    memset(arena, 0, sizeof *arena);
    arena->fd = -1;
    arena->bytes = bytes;
    CHECK(open_memory(arena));
    arena->free_capacity = 16;
    arena->free = malloc(arena->free_capacity * sizeof *arena->free);
    if (!arena->free) return fail(ERR_MEMORY, "out of host memory: the list of free device memory");
    arena->free[0] = (struct range){0, bytes};
    arena->free_count = 1;
    return OK;
}

void arena_release(struct arena *arena) {
    if (arena->base) munmap(arena->base, arena->bytes);
    if (arena->fd >= 0) close(arena->fd);
    free(arena->free);
    memset(arena, 0, sizeof *arena);
    arena->fd = -1;
}

static void remove_range(struct arena *arena, size_t i) {
    memmove(&arena->free[i], &arena->free[i + 1], (arena->free_count - i - 1) * sizeof *arena->free);
    arena->free_count--;
}

/* Live allocations part the free ranges: there is at most one range more than allocations. Room for that many
 * is kept, so that arena_free cannot fail. */
static int reserve_range(struct arena *arena) {
    if (arena->live + 2 <= arena->free_capacity) return 1;
    struct range *ranges = realloc(arena->free, 2 * arena->free_capacity * sizeof *ranges);
    if (!ranges) return 0;
    arena->free = ranges;
    arena->free_capacity *= 2;
    return 1;
}

void *arena_alloc(struct arena *arena, size_t bytes) {
    if (!reserve_range(arena)) return NULL;
    for (size_t i = 0; i < arena->free_count; i++) {
        struct range *r = &arena->free[i];
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
    struct range *before = i > 0 ? &arena->free[i - 1] : NULL;
    struct range *after = i < arena->free_count ? &arena->free[i] : NULL;
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
        memmove(&arena->free[i + 1], &arena->free[i], (arena->free_count - i) * sizeof *arena->free);
        arena->free[i] = (struct range){offset, bytes};
        arena->free_count++;
    }
}

size_t arena_largest(const struct arena *arena) {
    size_t largest = 0;
    for (size_t i = 0; i < arena->free_count; i++)
        if (arena->free[i].bytes > largest) largest = arena->free[i].bytes;
    return largest;
}
