/* A session is everything that is open in one process while it trains. Besides the trainer,
 * session.c opens and closes it, measure.c measures, and step_log.c reads the logs. */
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "comm/comm.h"
#include "data/loader.h"
#include "ddp/sums.h"
#include "base/files/safetensors.h"
#include "models/replica.h"
#include "trace/record.h"
#include "trace/step_times.h"
#include "train/compare/bits.h"
#include "train/run.h"

/* The number of passes whose losses and hashes stay in device memory until the host reads them,
 * unless a step has more. */
enum { LOG_ROWS = 64 };

struct session;

/* The functions that differ between the modes. They enqueue work; the trainer waits for it. */
struct strategy {
    int (*open)(struct session *s); /* sets s->state and s->replicas */
    /* one pass of a step, with the update unless step->more_passes */
    int (*step)(struct session *s, const struct step_block *step, const struct batch *batch);
    int (*evaluate)(struct session *s, const struct step_block *step, const struct batch *batch);
    /* hashes the current values of every device */
    int (*hash_values)(struct session *s, const struct step_block *step);
    /* at the end: adds what only this mode records; NULL: nothing */
    void (*describe)(struct session *s);
    /* returns 1, or 0 if a thread is lost and may still use the session at any time */
    int (*close)(struct session *s);
    /* the spans in which device 0's thread waited for the other threads; NULL: none */
    struct span_log *(*waits)(struct session *s);
};
extern const struct strategy strategy_single, strategy_dp, strategy_ddp, strategy_fsdp;

struct session {
    const struct run_config *config;
    struct comm *comm;   /* NULL: this is the only process */
    int rank, ranks;     /* rank of this process, and number of ranks in the job */
    int devices;         /* W of the whole run */
    int virtual_devices; /* V of the whole run; 0: off */
    int gpus;            /* physical GPUs that the devices share; 0: emulated devices */

    struct model model;
    float **values;          /* initial parameters, in host memory; NULL: use the file's */
    struct safetensors file; /* weights or a checkpoint; open only while the session opens */
    const char *halves;      /* "F16" or "BF16" if the file has such tensors; else NULL */
    int first_step;          /* the first step: 0, or the checkpoint's */
    int *ready_order;        /* from a checkpoint, owned; or NULL */

    struct dataset train_set, test_set;
    struct split split;                        /* how training batches are split */
    struct loader *train_loader, *test_loader; /* test_loader NULL: no evaluation */
    int largest_batch; /* samples in the largest global batch of both loaders */

    struct device *device[MAX_DEVICES]; /* [device_count], the devices of this process */
    int first_device, device_count;     /* device[i] is device first_device + i of the run */
    int segments_per_device;            /* columns of the loss log for each device */

    const struct strategy *strategy;
    void *state;                           /* owned by the strategy */
    struct replica *replicas[MAX_DEVICES]; /* [device_count]; [0] updates the parameters */
    int output_device; /* replicas[output_device] has the logs of losses and hits */
    struct sums sums;  /* zeroed: gradients are added in the fold order, or DDP adds them */
    struct run_record *record;
    int step;              /* the pass being worked on, as its spans number it */
    struct span_log loads; /* spans of waits for the loader (LANE_HOST) */

    /* Bytes that this process moved over each link: in training so far, and in total up to the last
     * mark (measure.c). */
    struct traffic moved, mark;
    int steps_kept; /* number of steps whose spans the record keeps, if any */
    struct step_times step_times[MAX_DEVICES]; /* of this process; index: device of the run */
};

/* Opens data, model, devices and strategy. *s must be zeroed. session_close takes half-built
 * sessions. It returns 1, or 0 if the strategy has lost a thread. Then nothing more is freed, and s
 * itself and comm must stay until the process ends. */
int session_open(struct session *s, const struct run_config *config, struct comm *comm,
                 struct run_record *record);
int session_close(struct session *s);

/* Called after a failure. Returns 1 if a trial of P2P hangs (device_is_stuck), or if this process
 * is alone and one of its GPUs does not finish its work. Freeing memory on that GPU would wait
 * without a deadline, so everything stays until the process ends. Keeps the error. In a job of
 * ranks the collectives are released first, and each rank's GPU memory belongs to its own
 * process. */
int session_is_stuck(struct session *s);

/* Returns 1 in the process that prints, saves and records. */
static inline int session_leads(const struct session *s) {
    return s->rank == 0;
}

/* Steps in an epoch: each takes update.passes batches, and the last one the rest. */
static inline int session_steps(const struct session *s) {
    int batches = loader_steps(s->train_loader), passes = s->config->update.passes;
    return batches / passes + (batches % passes != 0);
}

/* Rows in the logs of losses, hits and hashes: one for each pass. */
static inline int session_log_rows(const struct session *s) {
    return s->config->update.passes > LOG_ROWS ? s->config->update.passes : LOG_ROWS;
}

/* A step of a strategy with one replica. */
static inline int session_step(struct session *s, const struct step_block *step,
                               const struct batch *batch) {
    return replica_step(s->replicas[0], step, batch);
}
static inline int session_evaluate(struct session *s, const struct step_block *step,
                                   const struct batch *batch) {
    return replica_evaluate(s->replicas[0], step, batch);
}

/* The configuration of a replica that computes losses and updates its parameters. capacity is the
 * number of samples in its input buffers. */
static inline struct replica_config session_replica_config(const struct session *s, int capacity) {
    int here = s->config->mode == MODE_DP ? s->devices : 1;
    return (struct replica_config){.max_samples = capacity,
                                   .log_rows = session_log_rows(s),
                                   .passes = s->config->update.passes,
                                   .pass_segments = s->segments_per_device,
                                   .log_segments = here * s->segments_per_device,
                                   .hashes = s->config->hashes,
                                   .optimizer = 1,
                                   .update = run_optimizer(s->config),
                                   .blocking_copies = s->config->data.no_pin_memory};
}

/* The settings that determine buckets. */
static inline struct ddp_config session_ddp_config(const struct session *s) {
    struct ddp_config ddp = ddp_config_default();
    ddp.bucket_cap_mb = s->config->ddp.bucket_cap_mb;
    ddp.find_unused = s->config->ddp.find_unused;
    ddp.order = s->ready_order;
    return ddp;
}

/* Makes s->sums around replicas[0], unless single and dp add in the fold order. */
static inline int session_open_sums(struct session *s) {
    struct ddp_config ddp = session_ddp_config(s);
    ddp.algorithm = bits_order(s->config);
    if (ddp.algorithm == ALLREDUCE_AUTO) return OK;
    return sums_init(&s->sums, &ddp, s->config->devices, s->replicas[0]->params,
                     s->replicas[0]->tape);
}

/* ---- measure.c: the record of each device ---- */

/* Bytes moved between measure_mark and measure_count belong to training. */
void measure_mark(struct session *s);
void measure_count(struct session *s);
/* Adds the spans since the last call to the sums in the record and empties the logs of spans.
 * into_record 0 drops them: they are from set-up and belong to no step. Streams must be idle. */
void measure_spans(struct session *s, int into_record);
/* Adds one span to its device's sums. */
void measure_add_span(struct device_record *device, const struct span *span);
/* The exposed time: how long a device's communication lane was busy while its compute lane was not.
 * Both logs may be the same, and may have spans of other devices and lanes; the spans of a lane are
 * in order of time. step -1: all steps. */
int64_t measure_exposed(const struct span_log *comm, const struct span_log *compute, int device,
                        int32_t step);
/* Completes record->device[] on rank 0 at the end. Collective. */
int measure_finish(struct session *s);

#endif
