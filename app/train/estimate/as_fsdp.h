/* Counts what PyTorch's sharded data parallel adds to the memory of a rank (as_pytorch.h). The
 * model is FSDP2's fully_shard around modules that hold the parameters of Duet's units
 * (fsdp/units.h). For --shard optimizer it is DDP with a ZeroRedundancyOptimizer.
 *
 * fully_shard splits each parameter by rows and pads the last shards, so a whole unit is W times a
 * rank's share of it. In backward (torch/distributed/fsdp/_fully_shard of PyTorch 2.15):
 *
 *     unshard         all-gather fills a flat buffer; the unit is copied out; the buffer is freed
 *     prefetch        the next unit's flat buffer is filled while this unit computes
 *     post_backward   frees the unit and the previous reduce-scatter's buffer, copies the gradients
 *                     into a new buffer, frees them, and keeps the shard of their sum
 *
 * With reshard_after_forward=False (--shard gradients) the parameters gathered by forward stay. */
#ifndef TRAIN_ESTIMATE_AS_FSDP_H
#define TRAIN_ESTIMATE_AS_FSDP_H

#include "nn/autograd_memory.h"
#include "trace/ledger.h"
#include "train/run.h"

struct as_fsdp;

/* Counts collective calls in the ledger, which must outlive *out. */
int as_fsdp_new(struct as_fsdp **out, const struct run_config *config, const struct param_set *set,
                struct ledger *ledger);
void as_fsdp_free(struct as_fsdp *f); /* NULL is fine */

/* Bytes of the parameters that a rank keeps in memory. */
uint64_t as_fsdp_params(const struct as_fsdp *f);

/* Called when an op uses parameters, either of which may be NULL: struct autograd_config. */
void as_fsdp_use(void *as_fsdp, const struct param *w, const struct param *b,
                 enum autograd_moment moment);

/* bytes[ranks] becomes the bytes of the parameters that each rank updates with fully_shard. `whole`
 * stands for ZeroRedundancyOptimizer, which gives each rank whole parameters: the largest first,
 * each to the rank that has the least so far. */
void as_fsdp_updated(const struct param_set *set, int ranks, int whole, uint64_t *bytes);

#endif
