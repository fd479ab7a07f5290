/* DistributedDataParallel of the command: the ddp of ddp/ddp.h around a replica, whose forward and
 * backward it runs. Every function is of the one thread that uses the replica. A failure of any of
 * them aborts the job, as in ddp.h. */
#ifndef DDP_TRAINER_H
#define DDP_TRAINER_H

#include "ddp/ddp.h"
#include "models/replica.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_trainer {
    struct duet_ddp *ddp;    /* owned; NULL: none, and the two functions for its end do nothing */
    struct replica *replica; /* borrowed: it must outlive the trainer */
};

/* Collective: ddp_init around the replica's parameters, and its backward then counts gradients. On
 * failure nothing is left. */
int ddp_trainer_init(struct ddp_trainer *t, struct comm *comm, struct replica *replica,
                     const struct ddp_config *config);
/* As duet_ddp_free; the replica is then one that trains alone. */
void ddp_trainer_free(struct ddp_trainer *t);

/* One whole training step of this rank, whose share of the global batch is `batch`; a share of 0
 * samples is legal. The batch's memory must stay until an event recorded afterwards is done.
 * step->weight is 1/B of the GLOBAL batch.
 *
 * Of a step of several passes (step->more_passes, step->add_grads) it is one pass. All but the last
 * only accumulate gradients on this rank, as PyTorch's no_sync does: no byte travels. The last
 * sums the accumulated gradients over the ranks and updates. B counts the samples of all passes. */
int ddp_trainer_step(struct ddp_trainer *t, const struct step_block *step,
                     const struct batch *batch);

/* In place of ddp_trainer_step on a rank that has no more input, where config.join is not off: the
 * rank shadows one step of the others, with zeros, and updates as they do. The same step block as
 * theirs, but for the weight. *active: ranks that had input; 0: none had, nothing was done, and the
 * loop of this rank ends. With join every step has a meeting of all ranks on the host. Buffers are
 * rank 0's also where rank 0 is a shadow. A model that waits for other ranks inside its forward
 * (SyncBatchNorm) cannot be shadowed. */
int ddp_trainer_shadow(struct ddp_trainer *t, const struct step_block *step, int *active);

#ifdef __cplusplus
}
#endif
#endif
