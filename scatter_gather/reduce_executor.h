/* The contract between the two halves of a reduce-add. reduce_add.c has the part that all kinds of
 * device share. The executor does the additions, in a function on the stream or in a kernel on the
 * root. Private to this folder.
 *
 * A build with CUDA links cuda/reduce.c; one without it links cuda/absent.c. */
#ifndef SCATTER_GATHER_REDUCE_EXECUTOR_H
#define SCATTER_GATHER_REDUCE_EXECUTOR_H

#include "scatter_gather/scatter_gather.h"

struct reduce_executor {
    /* Prepares the plan, such as its staging memory, which reduce_plan_free frees, also after a
     * failure. NULL: nothing to prepare. */
    int (*open)(struct reduce_plan *plan);

    /* Enqueues one piece on the root's compute stream, and charges the bytes that cross devices:
     * piece->count floats for each r -> root. Called with count > 0, n > 1. */
    int (*add)(const struct reduce_plan *plan, const struct sum_piece *piece);
};

extern const struct reduce_executor host_reduce_executor;
extern const struct reduce_executor *const cuda_reduce_executor; /* NULL without CUDA */

#endif
