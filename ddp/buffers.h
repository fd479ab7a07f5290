/* Buffers under DDP: before every forward, in training and in evaluation, all ranks get rank 0's
 * buffers, as with PyTorch's broadcast_buffers. So a rank may change its buffers during a step, as
 * BatchNorm does with the statistics of its own samples, and all ranks still start each step with
 * equal ones. */
#ifndef DDP_BUFFERS_H
#define DDP_BUFFERS_H

#include "comm/comm.h"
#include "nn/buffer.h"

struct ddp_buffers;

/* Collective. Shares the arena of `set` with all ranks. *out is NULL if the model has no buffers.
 * `group` is comm_call.group. All arguments are borrowed and must outlive the object. ERR_FAILED:
 * the number or total size of buffers on a rank differs from this rank's. */
int ddp_buffers_init(struct ddp_buffers **out, struct comm *comm, struct announcer *group,
                     struct buffer_set *set);

/* Collective. Runs on the compute stream, in phase replicate. Later work reads rank 0's buffers.
 * NULL does nothing. */
int ddp_buffers_broadcast(struct ddp_buffers *buffers, int32_t step);

/* Collective, unless the job has failed. NULL is fine. */
void ddp_buffers_free(struct ddp_buffers *buffers);

#endif
