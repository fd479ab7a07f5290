/* The table is a sorted array with a binary search. A device makes about a hundred allocations at
 * set-up (parameters, gradients, a step arena, staging) and none in a steady step. So walking over
 * the gaps, and moving the rest of the array at each insert, is fast enough, and simple. */
#include "device/allocations.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"

/* The number of allocations that begin at or before `address`. */
static size_t count_up_to(const struct allocations *all, const void *address) {
    size_t low = 0, high = all->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)all->items[middle].address <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void *allocations_gap(const struct allocations *all, char *base, size_t size, size_t bytes,
                      size_t *largest) {
    size_t begin = 0;
    *largest = 0;
    for (size_t i = 0; i <= all->count; i++) {
        size_t end = i < all->count ? (size_t)(all->items[i].address - base) : size;
        if (end - begin >= bytes) return base + begin;
        if (end - begin > *largest) *largest = end - begin;
        if (i < all->count) begin = end + all->items[i].bytes;
    }
    return NULL;
}

int allocations_add(struct allocations *all, void *address, size_t bytes, enum mem_cause cause) {
    CHECK(list_grow("out of host memory: the table of allocations", &all->items, (int)all->count,
                    &all->capacity, sizeof *all->items));
    size_t at = count_up_to(all, address);
    memmove(&all->items[at + 1], &all->items[at], (all->count - at) * sizeof *all->items);
    struct allocation item = {(char *)address, bytes, cause};
    all->items[at] = item;
    all->count++;
    return OK;
}

int allocations_remove(struct allocations *all, const void *address, struct allocation *removed) {
    size_t at = count_up_to(all, address);
    if (at == 0 || all->items[at - 1].address != (const char *)address) return 0;
    *removed = all->items[at - 1];
    memmove(&all->items[at - 1], &all->items[at], (all->count - at) * sizeof *all->items);
    all->count--;
    return 1;
}

const struct allocation *allocations_find(const struct allocations *all, const void *address,
                                          size_t bytes) {
    size_t at = count_up_to(all, address);
    if (at == 0) return NULL;
    const struct allocation *a = &all->items[at - 1];
    size_t offset = (uintptr_t)address - (uintptr_t)a->address;
    return offset <= a->bytes && bytes <= a->bytes - offset ? a : NULL;
}

void allocations_free(struct allocations *all) {
    free(all->items);
    memset(all, 0, sizeof *all);
}
