/* Agreements between the ranks of DDP outside of steps. These functions are collective: all ranks
 * call the same ones in the same order. */
#ifndef DDP_SETUP_H
#define DDP_SETUP_H

#include "allreduce/allreduce.h"
#include "comm/comm.h"
#include "nn/params/params.h"

/* Checks that all ranks have as many parameters as rank 0, of the same shapes. ERR_FAILED in
 * PyTorch's words: a wrong number fails on all ranks, a wrong shape on its own. */
int ddp_check_shapes(struct comm *comm, const struct param_set *params);

/* Checks that numeric options, given with names, agree on all ranks. ERR_USAGE: one differs. */
enum { DDP_MOST_OPTIONS = 4 };
int ddp_check_options(struct comm *comm, const char *who, const char *const *names,
                      const double *mine, int count);

/* ERR_USAGE: the group does not have all ranks. */
int ddp_check_group(const char *who, const duet_group *group, const duet_params *params);

/* Copies rank 0's values to every rank, bit for bit, and waits for that. Shapes must agree. The
 * bytes are counted as traffic from rank 0's device. */
int ddp_broadcast_values(struct comm *comm, struct param_set *params);

/* Shares device memory with all ranks, for broadcasts on one stream. `group` is comm_call.group.
 * The caller frees *out, also after a failure. */
int ddp_share(struct allreduce **out, struct comm *comm, struct announcer *group,
              struct device *device, float *data, size_t count);

/* Copies rank 0's order[0 .. count) to every rank. */
int ddp_broadcast_order(struct comm *comm, int *order, int count);

#endif
