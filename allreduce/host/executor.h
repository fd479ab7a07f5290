/* The executor of emulated devices: runs one rank's plan with plain loads and stores on memory
 * that all ranks map.
 *
 * A flag is posted after everything the step wrote (release) and what follows a wait sees all of
 * it (acquire), both in comm/flag.c: no other fence is needed. A rank that waits sleeps; the
 * deadline and the abort word are watched there. */
#ifndef ALLREDUCE_HOST_EXECUTOR_H
#define ALLREDUCE_HOST_EXECUTOR_H

#include "allreduce/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one rank sees of all ranks, as executor.h has it, with the flags in their true shape. */
struct host_ranks {
    struct executor_ranks all;
    struct comm_flag *flags[MAX_DEVICES]; /* rank r's flags: [kind * n + writer] */

    /* How to wait; NULL: comm_wait_flag. (Tests run ranks as threads of one process, without a
     * comm.) */
    int (*wait)(void *context, struct comm_flag *flag, uint64_t epoch,
                const struct comm_wait_reason *reason);
    void *wait_context;
};

/* Flags of a rank in bytes. */
size_t host_flags_bytes(int n);

/* Runs the plan to its end. The error of a wait, with which nothing is undone. */
int host_execute(const struct host_ranks *ranks, const struct executor_call *call);

/* The three moves, element by element the same bits as reference_step. Ranges are equal or
 * apart, never shifted.
 *     copy:    every dest = source * scale
 *     reduce:  every dest = own * own_scale + source * source_scale
 *     sum:     every dest = the n sources, each * scale, in fold order                  n 1 .. MAX_DEVICES */
void move_copy(float *const *dest, int dests, const float *source, float scale, size_t length);
void move_reduce(float *const *dest, int dests, const float *own, float own_scale,
                 const float *source, float source_scale, size_t length);
void move_sum(float *const *dest, int dests, const float *const *source, int n, float scale,
              size_t length);

/* The same for each set of vector instructions this processor has, plainest first: the moves
 * above take the last. All give the same bits. */
struct move_set {
    const char *name; /* "generic", "avx2", "avx512" */
    void (*scale_copy)(float *const *dest, int dests, const float *source, float scale,
                       size_t length);
    void (*reduce)(float *const *dest, int dests, const float *own, float own_scale,
                   const float *source, float source_scale, size_t length);
    void (*sum)(float *const *dest, int dests, const float *const *source, int n, float scale,
                size_t length);
};
int move_set_count(void);
const struct move_set *move_set(int i); /* i < move_set_count() */

#ifdef __cplusplus
}
#endif
#endif
