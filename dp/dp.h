/* DataParallel: one process, one thread per device, everything through device 0. dp.c tells the
 * story of a step.
 *
 * Bits. A batch is cut into S segments (base/segment.h), k = S / W of them on each device,
 * device 0's first: the V virtual devices, or with --virtual-devices off one share a device.
 * Gradients, losses and values are bit for bit those of one device that holds all S segments,
 * wherever fold_fits(S, W) (base/fold.h).
 *
 * Logs stand on device 0 (dp_replica(dp, 0), replica_read_logs): row step->slot, column c =
 * segment c of the batch, which is virtual device dp_column_v(dp, c) = c / k + (c % k) * W. To
 * fold the loss in order of v, put column c at place v first. Hashes stand on every replica:
 * values on all, gradients on device 0. */
#ifndef DP_DP_H
#define DP_DP_H

#include "models/replica.h"
#include "trace/span.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dp;

struct dp_config {
    int devices; /* W */
    /* borrowed, device[0] leads; their compute streams are DP's from now on */
    struct device *const *device;
    const struct model *model; /* borrowed */
    /* initial parameters, for device 0; the others get them by replicate */
    float *const *values;
    int max_samples; /* the largest global batch, of training or evaluation */
    int segments;    /* S, a multiple of W: V, or W */
    /* 1: each device computes its own loss, nothing is gathered but loss sums */
    int loss_in_forward;
    struct optimizer_config update; /* of device 0 */
    int hashes;
    int graph;        /* as replica_config.graph */
    int log_rows;     /* at least 1 */
    double timeout_s; /* for a replica to come back; 0: 300 */
};

/* A global batch in host memory, device 0's segments first, then device 1's ... The pictures
 * stay until an event that is recorded on device 0's compute stream after the call is done. */
struct dp_batch {
    const float *pixels;   /* (segments->n, C, H, W) */
    const int32_t *labels; /* (segments->n) */
    /* S of them; segments of 0 samples, and devices of 0, are legal */
    const struct segments *segments;
    /* In place of pixels and labels, where the data set lies on device 0: the numbers of the
     * samples. */
    const struct device_dataset *from;
    const int32_t *samples; /* (segments->n) */
};

/* Makes replicas and threads. The caller's thread becomes device 0's: it alone may call what
 * follows. ERR_USAGE: numbers that do not fit; ERR_MEMORY names the device. dp_free: 1, also for
 * NULL; the devices stay open. 0: a thread was lost (ERR_TIMEOUT) and may go on at any time.
 * Nothing is freed then, and what dp_init was given, devices, model and what they refer to, must
 * stay as well until the process ends. */
int dp_init(struct dp **out, const struct dp_config *config);
int dp_free(struct dp *dp);

/* One training step, or a forward pass whose losses and hits are logged. Asynchronous, like
 * everything on streams. A failing replica: all threads come to the end of the phase, then the
 * lowest replica's code is returned, with "Caught <what> in replica <i> on device <d>. " before
 * its text. Until the reduce nothing has changed but work buffers: the parameters are those of
 * before the step. */
int dp_step(struct dp *dp, const struct dp_batch *batch, const struct step_block *step);
int dp_evaluate(struct dp *dp, const struct dp_batch *batch, const struct step_block *step);

/* Replicates and hashes the parameters once more on every device, into row step->slot: the end
 * of the proof. */
int dp_hash_values(struct dp *dp, const struct step_block *step);

struct replica *dp_replica(struct dp *dp, int index); /* for logs, parameters, ledgers */
int dp_column_v(const struct dp *dp, int column);

/* Where device 0's thread waited for the other threads (LANE_HOST); written by the functions
 * above, emptied by the reader. */
struct span_log *dp_waits(struct dp *dp);

#ifdef __cplusplus
}
#endif
#endif
