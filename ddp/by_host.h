/* Sends rank 0's values to all ranks through host memory, for GPUs that cannot reach rank 0's. */
#ifndef DDP_BY_HOST_H
#define DDP_BY_HOST_H

#include "comm/comm.h"
#include "nn/param.h"

/* Collective and synchronous: rank 0 copies its value arena to host memory that all ranks map; the
 * ranks with `wants` copy it into their own. Shapes must agree. ERR_MEMORY: the host has not enough
 * for one arena. */
int ddp_values_by_host(struct comm *comm, struct param_set *params, int wants);

#endif
