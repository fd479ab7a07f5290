/* The agreements that the ranks of DDP make outside of steps. These functions are collective: all
 * ranks call the same ones in the same order. */
#ifndef DDP_SETUP_H
#define DDP_SETUP_H

#include "comm/comm.h"
#include "nn/param.h"

/* Checks that all ranks have the same number of parameters, with the shapes of rank 0. ERR_FAILED
 * with PyTorch's words: another number fails on every rank, another shape on the one with it. */
int ddp_check_shapes(struct comm *comm, const struct param_set *params);

/* The values of every rank become rank 0's, to the bit. Waits for it. Shapes must agree. The bytes
 * are counted as traffic from the device of rank 0. */
int ddp_broadcast_values(struct comm *comm, struct param_set *params);

/* order[0 .. count) becomes rank 0's on every rank. */
int ddp_broadcast_order(struct comm *comm, int *order, int count);

#endif
