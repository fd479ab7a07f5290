/* Inside api/: what the calls of process groups have in common. */
#ifndef API_GROUP_CALL_H
#define API_GROUP_CALL_H

#include "api/api.h"
#include "group/group.h"

struct group *group_of(const duet_group *group);

/* Sets what every call has: its group, its handle, and the tensor that says type and count. */
int group_call_begin(const char *name, const duet_group *group, const duet_tensor *tensor,
                     duet_work **work, struct group_call *call);

int group_call_op(const char *name, enum duet_reduction op, struct group_call *call);

/* `other` must be a tensor of the same type and kind of device as `one`, and share no memory with
 * it; but `one` may be all of it, or part number `own` of it (-1: no part). `which` of the two it
 * is, for the message where it is NULL. */
int group_call_memory(const char *name, const char *which, const duet_tensor *other,
                      const duet_tensor *one, int own);

/* Makes the call with the elements of these tensors, in host memory where they are a GPU's. */
int group_call_run(duet_group *group, struct group_call *call, duet_tensor *output,
                   const duet_tensor *input, int *source, duet_work **out);

#endif
