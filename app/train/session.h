/* A session: everything that is open in one process while it trains. Three files work on it besides
 * the trainer: session.c opens and closes it, measure.c measures, step_log.c reads the logs. */
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "comm/comm.h"
#include "data/loader.h"
#include "ddp/sums.h"
#include "base/files/safetensors.h"
#include "models/replica.h"
#include "trace/record.h"
#include "trace/step_times.h"
#include "train/run.h"

/* Passes whose losses and hashes stay in device memory before the host reads them, unless a step
 * has more. */
enum { LOG_ROWS = 64 };

struct session;

/* What differs between the modes. Work is enqueued; the trainer waits for it. */
struct strategy {
    int (*open)(struct session *s); /* sets s->state and s->replicas */
    /* one pass of a step, with the update unless step->more_passes */
    int (*step)(struct session *s, const struct step_block *step, const struct batch *batch);
    int (*evaluate)(struct session *s, const struct step_block *step, const struct batch *batch);
    /* hashes the values of every device as they are now */
    int (*hash_values)(struct session *s, const struct step_block *step);
    /* at the end: adds what only this mode records; NULL: nothing */
    void (*describe)(struct session *s);
    /* returns 1; 0: a thread is lost and may still use the session at any time */
    int (*close)(struct session *s);
    /* the spans in which device 0's thread waited for the other threads; NULL: there are none */
    struct span_log *(*waits)(struct session *s);
};
extern const struct strategy strategy_single, strategy_dp, strategy_ddp, strategy_fsdp;

struct session {
    const struct run_config *config;
    struct comm *comm;   /* NULL: this process is alone */
    int rank, ranks;     /* this process, and how many the job has */
    int devices;         /* W, of the whole run */
    int virtual_devices; /* V, of the whole run; 0: off */
    int gpus;            /* physical GPUs that the devices share; 0: emulated devices */

    struct model model;
    float **values;          /* initial parameters, in host memory; NULL: those of `file` */
    struct safetensors file; /* of weights, or a checkpoint; open while the session is opened */
    const char *halves;      /* "F16" or "BF16", if the file has them; else NULL */
    int first_step;          /* the first step: 0, or that of a checkpoint */
    int *ready_order;        /* of a checkpoint, owned; NULL: it has none */

    struct dataset train_set, test_set;
    struct split split;                        /* how training batches are cut */
    struct loader *train_loader, *test_loader; /* test_loader NULL: no evaluation */
    int largest_batch; /* samples of the largest global batch, over both loaders */

    struct device *device[MAX_DEVICES]; /* [device_count], those of this process */
    int first_device, device_count;     /* device[i] is device first_device + i of the run */
    int segments_per_device;            /* columns of the loss log for each device */

    const struct strategy *strategy;
    void *state;                           /* the strategy's own */
    struct replica *replicas[MAX_DEVICES]; /* [device_count]; [0] updates the parameters */
    int output_device; /* replicas[output_device] has the logs of losses and hits */
    struct sums sums;  /* zeroed: gradients are added in the fold order, or by DDP */
    struct run_record *record;
    int step;              /* the pass being worked on, as its spans number it */
    struct span_log loads; /* the spans of waiting for the loader (LANE_HOST) */

    /* Bytes that this process moved over each link: in training so far, and in all at the last mark
     * (measure.c). */
    struct traffic moved, mark;
    int steps_kept; /* the number of steps whose spans the record keeps, if any */
    struct step_times step_times[MAX_DEVICES]; /* of this process's devices, by device of the run */
};

/* Opens data, model, devices and strategy. *s must be zeroed. session_close takes half-built
 * sessions. It returns 1; or 0 if the strategy has lost a thread: then nothing more is freed, and s
 * itself and comm must stay until the process ends. */
int session_open(struct session *s, const struct run_config *config, struct comm *comm,
                 struct run_record *record);
int session_close(struct session *s);

/* The settings that determine buckets. And for the strategies single and dp, around replicas[0]:
 * s->sums, in whose order they add; nothing if that is the fold order. */
struct ddp_config session_ddp_config(const struct session *s);
int session_open_sums(struct session *s);

/* Called after a failure. 1: a trial of P2P hangs (device_is_stuck), or this process is alone and
 * one of its GPUs does not finish its work. Freeing memory of any device on that GPU would wait for
 * it without a deadline, so everything stays until the process ends. Keeps the error's text. In a
 * job of ranks the collectives are released first, and each rank's GPU memory belongs to its own
 * process. */
int session_is_stuck(struct session *s);

/* 1 in the process that prints, saves and records. */
static inline int session_leads(const struct session *s) {
    return s->rank == 0;
}

/* Steps of an epoch: each takes update.passes batches, the last one the rest. */
static inline int session_steps(const struct session *s) {
    int batches = loader_steps(s->train_loader), passes = s->config->update.passes;
    return batches / passes + (batches % passes != 0);
}

/* Rows of the logs of losses, hits and hashes: one for each pass. */
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

/* The configuration of a replica that computes losses and updates its parameters. capacity: samples
 * of its input buffers. */
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
                                   .blocking_copies = s->config->data.blocking_copies};
}

/* ---- measure.c: the record of each device ---- */

/* Bytes moved between mark and count belong to training. */
void measure_mark(struct session *s);
void measure_count(struct session *s);
/* Adds the spans since the last call to the sums of the record and empties the logs of spans;
 * into_record 0: the spans of set-up, which belong to no step, are dropped. Streams must be
 * idle. */
void measure_spans(struct session *s, int into_record);
/* Adds one span to what its device did. */
void measure_add_span(struct device_record *device, const struct span *span);
/* How long the communication lane of a device was busy while its compute lane was not: what overlap
 * has not hidden. Both logs may be the same, and may have spans of other devices and lanes; those
 * of a lane are in order of time. step -1: of all steps. */
int64_t measure_exposed(const struct span_log *comm, const struct span_log *compute, int device,
                        int32_t step);
/* At the end: completes record->device[] on rank 0. Collective. */
int measure_finish(struct session *s);

#endif
