/* Sharded data parallel, PyTorch's FSDP: a process per device as in ddp/, but no rank holds the
 * whole model. Each rank keeps a shard, 1/W of the model, and updates only that.
 *
 *     units.h        the units of parameters, and their cut into shards
 *     fsdp.c         gathers a unit before its use, and sums its gradients after it
 *     layout.c       device memory: shards, and slots that hold whole units for a while
 *     init.c         makes and frees the object
 *     state.c        whole values and whole optimizer state, for files and programs
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
 * rank gets the sum of its shard of the gradients. Between them the optimizer updates the shards.
 * It updates each element independently, so the result equals an update of the whole. A
 * reduce-scatter followed by an all-gather is an allreduce, so the bits are those of DDP, of
 * DataParallel and of one device.
 *
 * `shard` selects what is split, as in ZeRO:
 *
 *                       values              gradients           optimizer    bytes/step, per rank
 *     OPTIMIZER   (1)   whole               whole               a W-th       2 (W-1)/W S
 *     GRADIENTS   (2)   whole               a W-th, 2 slots     a W-th       2 (W-1)/W S
 *     PARAMETERS  (3)   a W-th, 2 slots     a W-th, 2 slots     a W-th       3 (W-1)/W S
 *
 * A slot holds a whole unit while it is used. Unit u always uses slot u mod 2 (there are prefetch +
 * 1 slots), so its addresses do not change, and pointers that forward saved are valid again in
 * backward. A slot is as large as the largest of its units.
 *
 * The first forward pass shows the order in which the units are used. From then on the next one is
 * gathered while this one computes. A unit that is used again after others (tied weights, the
 * parameters that --units does not name) gets its own slot and stays there during the pass. So does
 * the bias of an op whose weight is in another unit. Units that are still in a slot when backward
 * begins are not gathered again.
 *
 * Everything is enqueued; only init and the first two steps wait, because they allocate slots. Only
 * the thread of the compute stream may call these functions. A failure aborts the job. */
#ifndef FSDP_FSDP_H
#define FSDP_FSDP_H

#include "comm/comm.h"
#include "duet/distributed.h"
#include "nn/params/params.h"

/* What is split: the named part, and everything listed before it. */
enum fsdp_shard { FSDP_OPTIMIZER, FSDP_GRADIENTS, FSDP_PARAMETERS };

enum { FSDP_MOST_PREFETCH = 4 };

struct fsdp_config {
    enum fsdp_shard shard;
    const char *units; /* see units.h; only init reads it */
    int prefetch;      /* units gathered ahead: 0 to FSDP_MOST_PREFETCH */
    int keep;          /* 1: gathered units stay from forward to the end of their backward */
    int own_buffers;   /* 1: rank 0's buffers are not broadcast before each pass */
    int divide;        /* 1: gradients are averaged over the ranks; 0: summed */
    int nccl;          /* 1: NCCL's collectives, which add in their own order */
    int segments;      /* segments whose gradients accumulate over passes; 0: none */
};

struct fsdp;

/* Collective. Shards the parameters and takes part in each pass (struct grad_reducer).
 * values[count] are the initial values in host memory. `params` are whole parameters, whose memory
 * is freed, or parameters without memory, and have no optimizer yet. comm, params and group are
 * borrowed and must outlive the fsdp. ERR_FAILED with PyTorch's words if the models of the ranks
 * differ; ERR_USAGE if their units differ. On failure *out is NULL. */
int fsdp_init(struct fsdp **out, struct comm *comm, duet_params *params, duet_group *group,
              float *const *values, const struct fsdp_config *config);

/* Collective, unless the job has failed. The parameters are unusable afterwards. NULL is fine. */
void fsdp_free(void *fsdp);

/* Collective: copies rank 0's buffers to all ranks. */
int fsdp_broadcast_buffers(struct fsdp *f, int32_t step);

/* Writes the bytes of each unit to `bytes`, which has one element per parameter. Returns the number
 * of units. */
int fsdp_unit_bytes(const struct fsdp *f, int64_t *bytes);

#endif
