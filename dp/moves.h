/* The pieces of a DataParallel step (dp.c). Parts run on every device, each on its own thread.
 * Moves run on device 0's stream. They know parameters and streams, but neither tapes nor forward
 * functions. */
#ifndef DP_MOVES_H
#define DP_MOVES_H

#include "dp/worker.h"
#include "nn/params/params.h"
#include "scatter_gather/shards.h"
#include "trace/span.h"

enum { DP_TIMEOUT_S = 300 };

struct dp_config {
    int devices;                   /* W */
    struct device *const *device;  /* borrowed; device[0] leads; DP runs on their compute streams */
    duet_params *const *params;    /* [W], borrowed; device 0's values count */
    int output_device;             /* PyTorch's output_device: gathers the outputs; 0 .. W-1 */
    int sharded_reduce;            /* 1: device d adds up shard d of the gradients (shards.h) */
    const struct sum_pieces *sums; /* borrowed: as in struct reduce_plan */
    void *context;                 /* argument of the tasks */
    double timeout_s;              /* how long a replica may take; 0: DP_TIMEOUT_S */
    int spans;                     /* 1: the waits of device 0's thread are logged */
};

struct dp {
    int count; /* W */
    int output_device;
    struct device_group group;
    struct workers *workers;
    duet_params *params[MAX_DEVICES];
    uint64_t layout_version; /* the layout_version of params[0] at the start */
    size_t buffer_bytes;     /* size of its buffers at the start */
    /* Ranges of the parameter arena, at most 10 MiB each. replicate and reduce move one at a
     * time. */
    struct param_range *groups, *grad_groups; /* of the values, and of the gradients; owned */
    int group_count, grad_group_count;
    int sharded; /* 1: `shards` sums the gradients, not `reduce` */
    struct reduce_plan reduce;
    struct sharded_reduce shards;
    void *context;

    /* The current step. */
    int32_t step;      /* for spans */
    int training;      /* 0: all phases are PHASE_EVALUATE */
    worker_task *part; /* what the threads run now */
    enum phase phase;  /* phase of that part */

    struct span_log waits; /* thread 0's waits for the other threads (LANE_HOST) */
};

/* Starts the threads and prepares the moves. The caller's thread becomes device 0's, and only it
 * may call the functions below. On failure everything is freed. dp_free returns 1, also for a
 * zeroed struct; the devices stay open. It returns 0 if a thread was lost (ERR_TIMEOUT). That
 * thread may continue at any time, so nothing is freed, and everything passed to dp_init must stay
 * until the process ends. */
int dp_init(struct dp *dp, const struct dp_config *config);
int dp_free(struct dp *dp);

/* The first call of a step, before anything is touched. It fails if a thread is lost or, in
 * PyTorch's words, if the parameters have left device 0 since. */
int dp_begin(struct dp *dp, int32_t step, int training);

/* A scattered tensor: the whole on the leading device, and the destination of the rows on each
 * device. */
struct dp_rows {
    struct tensor whole;
    const int *sizes; /* rows of each device */
    void *parts[MAX_DEVICES];
};

/* The moves of a step. Everything is enqueued. The spans carry `phase`. */
int dp_scatter(struct dp *dp, enum phase phase, const struct dp_rows *rows, int count);
int dp_gather(struct dp *dp, const struct tensor *parts, const int *sizes, const struct tensor *to);
/* Copies device 0's parameters and buffers to all others. */
int dp_replicate(struct dp *dp, enum phase phase);
int dp_reduce(struct dp *dp); /* puts the sums into device 0's gradients */

/* Runs a part on all devices, each on its own thread and in order with the moves. If replicas fail,
 * all threads finish the part. It then returns the code of the lowest failing replica, with "Caught
 * <what> in replica <i> on device <d>. " before its message. */
int dp_on_all_devices(struct dp *dp, enum phase phase, worker_task *part);

/* Runs `work` while the output device leads: gather goes to it, and scatter starts from it. Then
 * device 0 leads again, after all of that work, even after a failure, whose message stays. With
 * NULL, device 0 only waits for the output device's enqueued work. */
int dp_at_output(struct dp *dp, int (*work)(void *context), void *context);

/* ERR_USAGE: not 1 to MAX_DEVICES devices, or the output device is not one of them. */
int dp_check_devices(int devices, int output_device);

/* ERR_USAGE, in PyTorch's words: the parameters are not on the first device, or they have a ddp
 * or a SyncBatchNorm. */
int dp_check_module(const duet_params *params, const struct device *first);

#endif
