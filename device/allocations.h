/* The live allocations of one device, sorted by address: what free() needs to know, and what an
 * operand check asks ("does this range lie inside something this device handed out?"). Not
 * thread-safe: device->lock. */
#ifndef DEVICE_ALLOCATIONS_H
#define DEVICE_ALLOCATIONS_H

#include <stddef.h>

#include "trace/ledger.h"

#ifdef __cplusplus
extern "C" {
#endif

struct allocation {
    char *address;
    size_t bytes; /* what it occupies: a multiple of 256 */
    enum mem_cause cause;
};

struct allocations {
    struct allocation *items; /* owned */
    size_t count, capacity;
};

/* ERR_MEMORY: the host has no memory for the table. */
int allocations_add(struct allocations *all, void *address, size_t bytes, enum mem_cause cause);

/* Takes out the allocation that begins at `address` into *removed; 0 if there is none. */
int allocations_remove(struct allocations *all, const void *address, struct allocation *removed);

/* The allocation that holds address .. address + bytes, or NULL. */
const struct allocation *allocations_find(const struct allocations *all, const void *address,
                                          size_t bytes);

void allocations_free(struct allocations *all);

#ifdef __cplusplus
}
#endif
#endif
