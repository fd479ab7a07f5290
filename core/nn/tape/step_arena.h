/* The step arena is device memory for everything that one step makes. A piece gets the first gap
 * that it fits into, and returns to the arena when its last holder drops it:
 *
 *     forward     | x | y0 | y1 | y2 |
 *     backward    | x | y0 | y1 | dy1|        y2 and its gradient are returned
 *     backward    | x | y0 | dy0|    |
 *
 * A plan without memory determines the offsets. They depend only on the order of the calls, so
 * equal steps have equal addresses. The plan is laid out in one block. A piece beyond its end, such
 * as every piece of the first step, is allocated separately, and the next step has a larger block.
 * So a steady step allocates nothing, and the ledger shows what a step really needs.
 *
 * Enqueued work may still use a returned piece, because the order of the stream protects it. So all
 * work on pieces must be on the device's compute stream, or be ordered before the stream's next
 * work. If operands are checked and no spans are recorded (device_config), a piece is filled with
 * NaN when the stream reaches the point of its return. */
#ifndef NN_STEP_ARENA_H
#define NN_STEP_ARENA_H

#include "device/device.h"

struct step_arena_piece {
    size_t offset, bytes; /* in the plan */
    char *memory;         /* in the block, or allocated separately */
    int number;           /* numbered in the order of calls */
    int holders;
};

/* An empty arena is zeroed except for device and cause. */
struct step_arena {
    struct device *device;
    enum mem_cause cause; /* the cause that the memory is charged to */
    char *block;          /* device memory; NULL: none */
    size_t block_bytes;
    struct step_arena_piece *pieces; /* [count] pieces in use, sorted by offset; owned */
    int count, capacity;
    int number;   /* number of the next piece, from 0 in each step */
    int outside;  /* pieces outside of the block */
    void **ended; /* [ended_count] pieces that were returned but are still allocated; owned */
    int ended_count, ended_capacity;
    size_t extent; /* bytes of the largest plan so far */
};

/* Sets *out to `bytes` of device memory, 256-byte aligned; even 0 bytes have an address. Nobody
 * holds the piece yet. ERR_MEMORY: the device has no room. */
int step_arena_alloc(struct step_arena *a, size_t bytes, void **out);

/* Adds or drops a holder of the piece that `memory` is in; after the last one it is returned. Other
 * memory, and NULL, are fine. */
void step_arena_hold(struct step_arena *a, const void *memory);
int step_arena_drop(struct step_arena *a, const void *memory);

/* The number of holders of the piece that `memory` is in; 0 for memory outside this arena, too. */
int step_arena_holders(const struct step_arena *a, const void *memory);

/* Returns to the arena those of the pieces first .. end-1 that nothing holds: `int first =
 * a->number; ... step_arena_release(a, first, a->number)`. */
int step_arena_release(struct step_arena *a, int first, int end);

/* Returns all pieces. If the plan has outgrown the block, it waits for the compute stream and makes
 * a larger one. With ran_out 1, the previous step ran out of memory, and no memory is kept. */
int step_arena_restart(struct step_arena *a, int ran_out);

/* Frees the memory; the stream must be done with it. */
void step_arena_free(struct step_arena *a);

#endif
