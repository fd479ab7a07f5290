/* The executor of emulated devices: runs one rank's plan with plain loads and stores on memory
 * that all ranks map.
 *
 * Two fences are enough, and comm/flag.c has both. A post is a release, so it follows all writes of
 * the step. A wait is an acquire, so later reads see those writes. A rank that waits sleeps, and
 * still checks the deadline and the abort word. */
#ifndef ALLREDUCE_HOST_EXECUTOR_H
#define ALLREDUCE_HOST_EXECUTOR_H

#include "allreduce/executor.h"

/* One rank's view of all ranks, as in executor.h, with the flags in their real type. */
struct host_ranks {
    struct executor_ranks all;
    struct comm_flag *flags[MAX_DEVICES]; /* rank r's flags: [kind * n + writer] */

    /* In plans of eager calls (group/plans/slots.c) scratch[r] begins with the first of rank r's
     * slots, `half` is the distance between slots, and executor_call.half is the number of the
     * slot. The SHOWN flags are in the slots. A flag is posted once, however many ranks read it.
     *
     * `differs` returns the error when a call with another signature has shown a slot. */
    int (*differs)(void *context, int peer);

    /* For messages to one rank: the value last read from its TAKEN flag. Reading fetches the flag
     * from the other rank's core, so the code reads it only when all slots are full. NULL: it is
     * read each time. */
    uint64_t *taken;

    /* Moves elements of any type with any operation, for process groups (group/typed.h). It runs
     * the step to `count` destinations, from one source or, for a sum, from all ranks' n sources;
     * `own` is this rank's destination. NULL: all calls sum floats. */
    void (*move)(struct arithmetic how, const struct plan_step *step, void *const *dest, int count,
                 const void *const *sources, int n, const void *own, double source_scale,
                 double own_scale);

    /* Waits for a flag; NULL: comm_wait_flag. Tests that run ranks as threads of one process,
     * without a comm, set it. */
    int (*wait)(void *context, struct comm_flag *flag, uint64_t epoch,
                const struct comm_wait_reason *reason);
    void *wait_context;
};

/* The header of a slot, or of a piece of a message, in the cache line in which its elements begin:
 * the flag SHOWN or SENT, and data from the call that posted it. */
struct host_slot {
    uint64_t epoch; /* both as in struct comm_flag */
    uint32_t sleepers, pad;
    uint64_t signature, more; /* from the call that posted the flag */
};

/* Bytes of one rank's flags. */
size_t host_flags_bytes(int n);
int host_clear(struct device *device, void *flags, size_t bytes);

/* Runs the plan to its end, or to the first wait that fails. It then returns that wait's error and
 * leaves the buffers half done. */
int host_execute(const struct host_ranks *ranks, const struct executor_call *call);

/* The three moves, whose elements have the bits of the tests' reference_step:
 *
 *     copy     every dest = source * scale
 *     reduce   every dest = own * own_scale + source * source_scale
 *     fold     every dest = the n sources, each * scale, added in fold order; n 1 .. MAX_DEVICES
 *
 * All arrays have `length` elements. A dest may be one of the sources; two ranges never overlap
 * in part. */
void move_copy(float *const *dest, int dests, const float *source, float scale, size_t length);
void move_reduce(float *const *dest, int dests, const float *own, float own_scale,
                 const float *source, float source_scale, size_t length);
void move_fold(float *const *dest, int dests, const float *const *source, int n, float scale,
               size_t length);

/* On a dry device with a schedule: marks the call as a collective (scheduled.c). */
void host_schedule(const struct executor_ranks *ranks, const struct executor_call *call);

/* memcpy with stores that bypass the caches. The stores are complete when it returns, so a post, or
 * the end of the call, may follow as after any other move. */
void move_past_caches(void *to, const void *from, size_t bytes);

/* The sums above for each set of vector instructions that this processor has, the simplest first.
 * The moves use the last. All sets give the same bits. */
struct move_set {
    const char *name; /* "generic", "avx2", "avx512" */
    void (*scale_copy)(float *const *dest, int dests, const float *source, float scale,
                       size_t length);
    void (*reduce)(float *const *dest, int dests, const float *own, float own_scale,
                   const float *source, float source_scale, size_t length);
    void (*fold)(float *const *dest, int dests, const float *const *source, int n, float scale,
                 size_t length);
};
int move_set_count(void);
const struct move_set *move_set(int i); /* i < move_set_count() */

#endif
