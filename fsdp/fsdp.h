/* Sharded data parallel, PyTorch's FSDP: a process per device as in ddp/, but no rank holds the
 * model. Each keeps a W-th of it, a shard, and updates that alone.
 *
 *     units.h        which parameters are gathered together; how a unit is cut into shards
 *     fsdp.c         gathers a unit before it is used, sums its gradients behind it
 *     layout.c       device memory: shards, and slots in which whole units lie for a while
 *     init.c         its beginning and its end
 *     state.c        whole values and whole optimizer state, for who reads or writes them
 *     program.c      the call of duet.h
 *     allreduce/     the all-gather and the reduce-scatter, on the communication stream
 *
 * A step of one rank with units u0, u1, u2; time runs to the right:
 *
 *     compute   |wait| u0    | u1    | u2 . loss . u2    | u1    | u0    |wait| optimizer (shard)
 *     comm      [G u0][G u1]  [G u2]                [G u1]  [G u0]
 *                                                         [RS u2] [RS u1] [RS u0]
 *
 * G is an all-gather: W shards become the whole unit. RS is a reduce-scatter in fold order: each
 * rank gets the sum of its shard of the gradients. Between them the optimizer, which treats each
 * element by itself, does to the shards what it would do to the whole. An all-gather behind a
 * reduce-scatter is an allreduce, so the bits are those of DDP, of DataParallel and of one device.
 *
 * What is cut is said by `shard`, as in ZeRO:
 *
 *                       values              gradients           optimizer    bytes a step and rank
 *     OPTIMIZER   (1)   whole               whole               a W-th       2 (W-1)/W S
 *     GRADIENTS   (2)   whole               a W-th, 2 slots     a W-th       2 (W-1)/W S
 *     PARAMETERS  (3)   a W-th, 2 slots     a W-th, 2 slots     a W-th       3 (W-1)/W S
 *
 * A slot holds a whole unit while it is used. Unit u always takes slot u mod 2 (prefetch + 1 of
 * them), so its addresses stay, and what backward has saved of them is good when the unit has come
 * back. The slot is as large as the largest of its units.
 *
 * The first forward pass shows in which order the units are used. From then on the next one is
 * gathered while this one computes. A unit that is used again after others (tied weights, the
 * parameters that --units leaves over) gets a slot of its own, and stays there through the pass.
 * What still lies in a slot at the turn from forward to backward is not gathered again.
 *
 * Everything is enqueued. Init alone waits, and so do the first two steps, which make slots. Every
 * function belongs to the thread of the compute stream. A failure aborts the job. */
#ifndef FSDP_FSDP_H
#define FSDP_FSDP_H

#include "comm/comm.h"
#include "duet/distributed.h"
#include "nn/params/params.h"

/* What is cut: that, and all that stands before it. */
enum fsdp_shard { FSDP_OPTIMIZER, FSDP_GRADIENTS, FSDP_PARAMETERS };

enum { FSDP_MOST_PREFETCH = 4 };

struct fsdp_config {
    enum fsdp_shard shard;
    const char *units; /* units.h; read by init alone */
    int prefetch;      /* units that are gathered ahead: 0 to FSDP_MOST_PREFETCH */
    int keep;          /* 1: what forward has gathered stays until backward is done with it */
    int own_buffers;   /* 1: rank 0's buffers are not broadcast before each pass */
    int divide;        /* 1: gradients are averaged over the ranks; 0: summed */
    int segments;      /* of batches whose gradients are added up over passes; 0: they are not */
};

struct fsdp;

/* Collective. Shards the parameters and puts itself between them and each pass (struct
 * grad_reducer). values[count]: host arrays with what the parameters begin with. params: whole, and
 * then taken apart, or made without memory; no optimizer has been made of them. What is borrowed
 * must outlive the fsdp: comm, params, group. ERR_FAILED with PyTorch's words where the models of
 * the ranks differ; ERR_USAGE where their units do. On failure *out is NULL. */
int fsdp_init(struct fsdp **out, struct comm *comm, duet_params *params, duet_group *group,
              float *const *values, const struct fsdp_config *config);

/* Collective, unless the job has failed. The parameters are of no use behind it. NULL is fine. */
void fsdp_free(void *fsdp);

/* Collective: rank 0's buffers go to all ranks. */
int fsdp_broadcast_buffers(struct fsdp *f, int32_t step);

/* The bytes of each unit in `bytes` (room for the parameters of the set). Returns how many. */
int fsdp_unit_bytes(const struct fsdp *f, int64_t *bytes);

#endif
