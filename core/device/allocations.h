/* The live allocations of one device, sorted by address. A new one goes into the first gap between
 * them that is large enough (first fit). device_free looks up the size here, and operand checks ask
 * whether a range of memory is inside an allocation of this device. The table is outside that
 * memory, so it serves an emulated device and a GPU's slab, which the CPU cannot write. It is not
 * thread-safe: device->lock guards it. */
#ifndef DEVICE_ALLOCATIONS_H
#define DEVICE_ALLOCATIONS_H

#include <stddef.h>

#include "trace/ledger.h"

struct allocation {
    char *address;
    size_t bytes; /* occupied bytes: a multiple of 256 */
    enum mem_cause cause;
};

struct allocations {
    struct allocation *items; /* owned */
    size_t count;
    int capacity;
};

/* The first gap of `bytes` bytes in base[0..size), which holds all allocations. NULL: there is
 * none, and *largest is the size of the largest gap. */
void *allocations_gap(const struct allocations *all, char *base, size_t size, size_t bytes,
                      size_t *largest);

/* Adds an allocation. ERR_MEMORY: the host has no memory for the table. */
int allocations_add(struct allocations *all, void *address, size_t bytes, enum mem_cause cause);

/* Removes the allocation that begins at `address` and copies it to *removed; 0 if none does. */
int allocations_remove(struct allocations *all, const void *address, struct allocation *removed);

/* The allocation that contains address .. address + bytes, or NULL. The table still owns it. */
const struct allocation *allocations_find(const struct allocations *all, const void *address,
                                          size_t bytes);

/* Frees the table, not the allocations in it; zeroed is fine. */
void allocations_free(struct allocations *all);

#endif
