/* What PyTorch would hold on each device for the run of a configuration: nn.DataParallel,
 * DistributedDataParallel, fully_shard (as_fsdp.h) or one device, in eager mode, with the defaults
 * of PyTorch 2 and the loop
 *
 *     optimizer.zero_grad(); output = net(x); loss = criterion(output, y)
 *     loss.backward(); optimizer.step()
 *
 * PyTorch differs from Duet in these points:
 *
 *     batch         DataParallel's scatter copies each device's chunk directly from host memory;
 *                   the next batch is not copied ahead
 *     activations   what autograd saves (nn/autograd_memory.h), freed during backward
 *     parameters    replicate's copies are freed when backward no longer needs them
 *     gradients     none before backward (zero_grad sets them to None). DataParallel's device 0 has
 *                   its own replica's and the sums: reduce_add_coalesced makes a new set
 *     DDP           buckets in addition to .grad (gradient_as_bucket_view=False)
 *
 * The rules are for single ops. If PyTorch has one kernel for several ops, as for an LSTM, it saves
 * less. A graph states the bytes that autograd saves. If the rules give another number, or if
 * numbers describe the model, all saved bytes count until the last gradient is made, and the
 * gradients of activations do not count. */
#ifndef TRAIN_ESTIMATE_AS_PYTORCH_H
#define TRAIN_ESTIMATE_AS_PYTORCH_H

#include "trace/ledger.h"
#include "train/run.h"

struct as_pytorch {
    int devices;
    struct ledger device[MAX_DEVICES]; /* by Duet's causes; MEM_COMM: DDP's buckets, and tensors
                                        * that reduce_add_coalesced joins */
    uint64_t saved[MAX_DEVICES];       /* activations that autograd saves in forward */
};

/* Counts with a dry run of one forward pass for each batch size; nothing is computed. `config` must
 * be one that can be estimated (estimate.h, need.h). */
int as_pytorch(const struct run_config *config, struct as_pytorch *out);

#endif
