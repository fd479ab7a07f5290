/* Functions that the public calls of process groups (duet/distributed.h) share. */
#ifndef GROUP_CALLS_H
#define GROUP_CALLS_H

#include "base/error.h"
#include "duet.h"
#include "group/group.h"
#include "nn/tensor.h"

static inline struct group *group_of(const duet_group *group) {
    return (struct group *)group;
}

static inline int is_on_gpu(const duet_tensor *t) {
    return t && device_config(t->device)->kind == DEVICE_CUDA;
}

/* For gather, all_gather, scatter and reduce_scatter on a rank with both tensors: checks the
 * tensors and, if `sizes` are given, stores the blocks' lengths in lengths[n]. */
int group_call_blocks(const char *name, const duet_group *group, struct group_call *call,
                      const duet_tensor *output, const duet_tensor *input, const int *sizes,
                      size_t *lengths);

/* The same for all_to_all, with the lengths in out[n] and in[n]. */
int group_call_exchange(const duet_group *group, struct group_call *call, const duet_tensor *output,
                        const duet_tensor *input, const int *output_sizes, const int *input_sizes,
                        size_t *out, size_t *in);

#endif
