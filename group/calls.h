/* What the public calls of process groups (duet/distributed.h) have in common. */
#ifndef GROUP_CALLS_H
#define GROUP_CALLS_H

#include "base/error.h"
#include "duet.h"
#include "group/group.h"
#include "nn/tensor.h"

struct group *group_of(const duet_group *group);

/* gather, all_gather, scatter, reduce_scatter on a rank with both tensors: checks them and, if
 * `sizes` are given, sets the blocks' lengths, stored in lengths[n]. */
int group_call_blocks(const char *name, const duet_group *group, struct group_call *call,
                      const duet_tensor *output, const duet_tensor *input, const int *sizes,
                      size_t *lengths);

/* all_to_all: the same, with out[n] and in[n] for lengths. */
int group_call_exchange(const duet_group *group, struct group_call *call, const duet_tensor *output,
                        const duet_tensor *input, const int *output_sizes, const int *input_sizes,
                        size_t *out, size_t *in);

int group_call_on_gpu(const duet_tensor *t);

#endif
