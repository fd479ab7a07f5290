/* What DDP settles with its peers outside of steps. Small, slow, and collective: all ranks call
 * the same ones in the same order. */
#ifndef DDP_SETUP_H
#define DDP_SETUP_H

#include "comm/comm.h"
#include "nn/param.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Same number of parameters everywhere, and every shape as on rank 0? ERR_FAILED with PyTorch's
 * words: a different number fails on every rank, a different shape on the rank that differs from
 * rank 0. */
int ddp_check_shapes(struct comm *comm, const struct param_set *params);

/* Every rank's values become rank 0's, to the bit. Synchronous. Shapes must agree. Charges the
 * link from the device of rank 0. */
int ddp_broadcast_values(struct comm *comm, struct param_set *params);

/* order[0 .. count) becomes rank 0's on every rank. */
int ddp_broadcast_order(struct comm *comm, int *order, int count);

#ifdef __cplusplus
}
#endif
#endif
