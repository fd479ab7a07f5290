/* What the public calls of process groups (duet/distributed.h) have in common. */
#ifndef GROUP_CALLS_H
#define GROUP_CALLS_H

#include "base/error.h"
#include "duet.h"
#include "group/group.h"
#include "nn/tensor.h"

struct group *group_of(const duet_group *group);

/* Sets what every call has: its group, its handle, and the tensor that says type and count. */
int group_call_begin(const char *name, const duet_group *group, const duet_tensor *tensor,
                     duet_work **work, struct group_call *call);

int group_call_op(const char *name, enum duet_reduction op, struct group_call *call);

/* gather, all_gather, scatter, reduce_scatter, where this rank has both tensors: checks them and,
 * if `sizes` are given, sets the lengths of the blocks, which are kept in lengths[n]. */
int group_call_blocks(const char *name, const duet_group *group, struct group_call *call,
                      const duet_tensor *output, const duet_tensor *input, const int *sizes,
                      size_t *lengths);

/* all_to_all: the same, with out[n] and in[n] for lengths. */
int group_call_exchange(const duet_group *group, struct group_call *call, const duet_tensor *output,
                        const duet_tensor *input, const int *output_sizes, const int *input_sizes,
                        size_t *out, size_t *in);

int group_call_on_gpu(const duet_tensor *t);

/* Makes the call with the elements of these tensors, in host memory where they are a GPU's. */
int group_call_run(duet_group *group, struct group_call *call, duet_tensor *output,
                   const duet_tensor *input, int *source, duet_work **out);

#endif
