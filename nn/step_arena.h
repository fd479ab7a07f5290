/* The step arena: device memory for everything that one step makes, given out piece by piece and
 * taken back all at once.
 *
 *     first step    | x | y0 | y1 | ... |     a block for each piece, allocated when asked for
 *     later         | x   y0   y1   ... |     one block, as large as the most ever in use at a time
 *
 * So a steady step allocates nothing, and the ledger shows what a step really needs. Pieces that
 * are needed for a short time (the buffers of a fold) are given back to a mark, as on a stack. */
#ifndef NN_STEP_ARENA_H
#define NN_STEP_ARENA_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct step_arena_block {
    char *memory; /* device memory */
    size_t bytes;
};

/* How much is given out. */
struct step_arena_mark {
    int block;     /* the block in use */
    size_t offset; /* bytes used in it */
    size_t in_use; /* bytes used in all blocks */
};

/* Zeroed but for device and cause is an empty arena. */
struct step_arena {
    struct device *device;
    enum mem_cause cause;            /* what the memory is charged to */
    struct step_arena_block *blocks; /* [block_count], owned */
    int block_count;
    struct step_arena_mark mark;
    size_t high_water; /* the most bytes in use so far */
    uint64_t version;  /* grows with every change of the blocks */
};

/* *out becomes `bytes` of device memory, 256-byte aligned; 0 bytes have an address too. ERR_MEMORY:
 * the device has no room. */
int step_arena_alloc(struct step_arena *a, size_t bytes, void **out);

/* Gives back what was given out since the mark was taken (`mark = a->mark`). Work that is enqueued
 * may still use it: the order of the stream protects it. */
static inline void step_arena_release(struct step_arena *a, struct step_arena_mark mark) {
    a->mark = mark;
}

/* Gives back everything and makes the blocks one; where the blocks change it waits for the compute
 * stream first. ran_out: the step before ran out of memory; then no block is kept. */
int step_arena_restart(struct step_arena *a, int ran_out);

/* Frees the memory; the stream must be done with it. */
void step_arena_free(struct step_arena *a);

#ifdef __cplusplus
}
#endif
#endif
