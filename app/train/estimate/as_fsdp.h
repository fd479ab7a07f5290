/* What PyTorch's sharded data parallel adds to the memory of a rank (as_pytorch.h). It is
 * fully_shard of FSDP2 around modules that hold the parameters of Duet's units (fsdp/units.h). For
 * --shard optimizer it is DDP with a ZeroRedundancyOptimizer.
 *
 * fully_shard cuts each parameter by its rows and pads the last shards, so a whole unit is W times
 * a rank's share of it. On the way back (torch/distributed/fsdp/_fully_shard of PyTorch 2.15):
 *
 *     unshard         a flat buffer comes by all-gather, the unit is copied out of it, and it goes
 *     prefetch        the flat buffer of the next unit comes while this one computes
 *     post_backward   the unit goes. The buffer of the reduce-scatter before goes; the gradients
 *                     are copied into one of their own, and go; the shard of their sum stays
 *
 * With reshard_after_forward=False, which is --shard gradients, the parameters that forward has
 * gathered stay. */
#ifndef TRAIN_ESTIMATE_AS_FSDP_H
#define TRAIN_ESTIMATE_AS_FSDP_H

#include "nn/autograd_memory.h"
#include "trace/ledger.h"
#include "train/run.h"

struct as_fsdp;

/* Collective calls are counted in the ledger, which must outlive it. */
int as_fsdp_new(struct as_fsdp **out, const struct run_config *config, const struct param_set *set,
                struct ledger *ledger);
void as_fsdp_free(struct as_fsdp *f); /* NULL is fine */

/* Bytes of the parameters that a rank keeps. */
uint64_t as_fsdp_params(const struct as_fsdp *f);

/* An op uses parameters, either of which may be NULL: struct autograd_config. */
void as_fsdp_use(void *as_fsdp, const struct param *w, const struct param *b,
                 enum autograd_moment moment);

/* bytes[ranks]: of the parameters that each rank updates, with fully_shard or, `whole`, with
 * ZeroRedundancyOptimizer, which gives each rank whole parameters: the largest first, each to the
 * rank that has the least. */
void as_fsdp_updated(const struct param_set *set, int ranks, int whole, uint64_t *bytes);

#endif
