/* The seam between the order of a reduce-add (reduce_add.c, the same for every kind) and who
 * adds: the host in a function on the stream, or a kernel of device 0. Private to this folder.
 *
 * A build without CUDA links cuda_absent.c, which says NULL; one with CUDA links cuda/reduce.c. */
#ifndef SCATTER_GATHER_REDUCE_EXECUTOR_H
#define SCATTER_GATHER_REDUCE_EXECUTOR_H

#include "scatter_gather/scatter_gather.h"

#ifdef __cplusplus
extern "C" {
#endif

struct reduce_executor {
    /* NULL: nothing to open. What a failed one has left, reduce_plan_free takes */
    int (*open)(struct reduce_plan *plan);
    /* Enqueues one range on group->stream and charges what crosses devices: r -> 0, range.count
     * floats each. The caller has entered the group and leaves it. range.count > 0, n > 1. */
    int (*add)(const struct reduce_plan *plan, struct param_range range);
};

extern const struct reduce_executor host_reduce_executor;
extern const struct reduce_executor *const cuda_reduce_executor;

#ifdef __cplusplus
}
#endif
#endif
