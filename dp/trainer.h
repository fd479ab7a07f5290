/* DataParallel of the command: a replica on each device, batches cut into segments, and the loss on
 * the output device. dp.c has the step.
 *
 * Bits. A batch is cut into S segments (base/segment.h), k = S / W for each of the W devices,
 * device 0's first. The segments are the V virtual devices; with --virtual-devices off there is one
 * for each device. Gradients, losses and values are bit for bit those of one device that holds all
 * S segments, wherever fold_fits(S, W) holds (base/fold.h).
 *
 * Logs of losses and hits are on the output device: dp_trainer_replica(dp, output_device),
 * replica_read_logs. Row step->row, column c is segment c of the batch, that is virtual device
 * v = c / k + (c % k) * W. To fold the loss in the order of the virtual devices, put column c at
 * place v first. Hashes are on every replica: values on all, gradients on device 0. */
#ifndef DP_TRAINER_H
#define DP_TRAINER_H

#include "models/replica.h"
#include "trace/span.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dp_trainer;

struct dp_trainer_config {
    int devices;                  /* W */
    struct device *const *device; /* borrowed; device[0] leads; DP uses their compute streams */
    const struct model *model;    /* borrowed */
    float *const *values;         /* initial parameters of device 0; the others get copies */
    int max_samples;              /* the largest global batch, of training or evaluation */
    int segments;                 /* S, a multiple of W: V, or W */
    int loss_in_forward;          /* 1: each device computes its own loss; loss sums are gathered */
    int output_device;            /* PyTorch's: gathers outputs and computes the loss; 0 .. W-1 */
    int sharded_reduce;           /* 1: device d adds up shard d of the gradients (shards.h) */
    struct optimizer_config update; /* of device 0 */
    int hashes;                     /* as replica_config.hashes */
    int blocking_copies;            /* as replica_config.blocking_copies */
    int graph;                      /* as replica_config.graph */
    int log_rows;                   /* at least 1 */
    int passes;                     /* as replica_config.passes */
    double timeout_s;               /* for a replica to come back; 0: 300 */
};

/* Makes replicas and threads; what dp_init says of threads and of freeing holds here, too.
 * ERR_USAGE: numbers that do not fit; ERR_MEMORY names the device. dp_trainer_free takes NULL. */
int dp_trainer_init(struct dp_trainer **out, const struct dp_trainer_config *config);
int dp_trainer_free(struct dp_trainer *trainer);

/* One training step, or one pass of it (step->add_grads, step->more_passes), and a forward pass
 * whose losses and hits are logged. `batch` is the global batch in S segments; segments of 0
 * samples, and devices without samples, are legal. Asynchronous: the batch's memory must stay until
 * an event recorded on device 0's compute stream after the call is done. Where replicas fail, all
 * threads come to the end of the phase; then the code of the lowest failing replica is returned,
 * with "Caught <what> in replica <i> on device <d>. " before its text. Before
 * the reduce a step has written work buffers alone, so the parameters are still those of before. */
int dp_trainer_step(struct dp_trainer *trainer, const struct step_block *step,
                    const struct batch *batch);
int dp_trainer_evaluate(struct dp_trainer *trainer, const struct step_block *step,
                        const struct batch *batch);

/* Replicates the parameters and hashes them once more on every device, into row step->row: the end
 * of the proof. */
int dp_trainer_hash_values(struct dp_trainer *trainer, const struct step_block *step);

struct replica *dp_trainer_replica(struct dp_trainer *trainer,
                                   int index); /* for logs, parameters, ledgers */

/* The spans in which device 0's thread waited for the other threads (LANE_HOST). The functions
 * above add to the log; the reader empties it. */
struct span_log *dp_trainer_waits(struct dp_trainer *trainer);

#ifdef __cplusplus
}
#endif
#endif
