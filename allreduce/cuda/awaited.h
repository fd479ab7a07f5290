/* Finds out on the host which peer's flag a call waits for. It reads this rank's own flags from
 * device memory and compares them with the waits of the call's plan. Executors whose flags have the
 * layout of step.h use it. */
#ifndef ALLREDUCE_CUDA_AWAITED_H
#define ALLREDUCE_CUDA_AWAITED_H

#include "allreduce/cuda/under_way.h"
#include "allreduce/cuda/step.h"

/* Rank r's flags. */
static inline struct cuda_flag *cuda_flags_of(const struct cuda_calls *calls, int rank) {
    return (struct cuda_flag *)calls->ranks->flags[rank];
}

/* Takes pinned memory for one reading, calls->seen. */
int cuda_seen_alloc(struct cuda_calls *calls);

/* Implements cuda_calls_ops.awaited. Channel 0 of the spin kernel stands for all channels. */
enum cuda_awaits cuda_awaited_flag(struct cuda_calls *calls, const struct cuda_call *call,
                                   struct cuda_awaited *out);

#endif
