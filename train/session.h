/* A session: everything that is open in one process while it trains. */
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "comm/comm.h"
#include "data/loader.h"
#include "models/replica.h"
#include "trace/record.h"
#include "train/run.h"

/* steps that lie in device memory before the host reads losses and hashes */
enum { LOG_ROWS = 64 };

struct session;

/* What differs between the modes. Work is enqueued; the trainer waits for it. */
struct strategy {
    int (*open)(struct session *s); /* sets s->state and s->replicas */
    int (*step)(struct session *s, const struct step_block *step, const struct batch *batch);
    int (*evaluate)(struct session *s, const struct step_block *step, const struct batch *batch);
    /* hashes the values of every device as they are now */
    int (*hash_values)(struct session *s, const struct step_block *step);
    /* at the end: adds to the record what concerns this mode alone; NULL: nothing */
    void (*describe)(struct session *s);
    /* returns 1; 0: a thread is lost and may go on using the session at any time */
    int (*close)(struct session *s);
    /* the spans in which device 0's thread waited for the other threads; NULL: there are none */
    struct span_log *(*waits)(struct session *s);
};
extern const struct strategy strategy_single, strategy_dp, strategy_ddp;

struct session {
    const struct run_config *config;
    struct comm *comm;            /* NULL: alone */
    int rank, ranks;              /* processes of the job */
    int devices, virtual_devices; /* W, and V (0: off) of the whole run */
    int gpus;                     /* that the devices share; 0: emulated devices */
    struct model model;
    float **values; /* initial parameters, host */
    struct dataset train_set, test_set;
    int data_on_device;                          /* batches are made there: */
    struct device_dataset train_data, test_data; /* on device[0] */
    struct split split;
    struct loader *train_loader, *test_loader;
    struct device *device[MAX_DEVICES]; /* of this process: first_device, first_device + 1, ... */
    int first_device, device_count;
    int segments_per_device; /* columns of the loss log a device */
    const struct strategy *strategy;
    void *state; /* the strategy's */
    /* one a device of this process; replicas[0] computes losses and updates */
    struct replica *replicas[MAX_DEVICES];
    struct run_record *record;

    /* Measurement (measure.c) */
    /* training only, moved by this process */
    uint64_t bytes_in[MAX_DEVICES], bytes_out[MAX_DEVICES];
    uint64_t mark_in[MAX_DEVICES], mark_out[MAX_DEVICES];
};

/* Opens data, model, devices and strategy. s zeroed before; session_close takes half-built ones.
 * It returns 1; 0 where the strategy has lost a thread: then nothing more is given back, and s
 * itself and comm must stay until the process ends. */
int session_open(struct session *s, const struct run_config *config, struct comm *comm,
                 const float *initial, size_t initial_count, struct run_record *record);
int session_close(struct session *s);

/* After a failure on GPUs, of a process alone: 1 if a device does not end its work. Giving back
 * memory of any that shares its GPU would wait for it without a deadline, so all is left to the
 * process's end. Keeps the error's text. In a job of ranks the collectives' release comes first,
 * and each rank's GPU memory is its own process's. */
int session_is_stuck(struct session *s);

/* 1 in the process that prints, saves and records. */
static inline int session_leads(const struct session *s) {
    return s->rank == 0;
}

/* The configuration of a replica that computes losses and updates; capacity: samples of its
 * input buffers. */
struct replica_config session_replica_config(const struct session *s, int capacity);

/* ---- measure.c: what the record says of each device ---- */

/* Between mark and count: bytes moved belong to training. */
void measure_mark(struct session *s);
void measure_count(struct session *s);
/* Forgets the spans of set-up. Streams must be idle. */
void measure_start(struct session *s);
/* Adds the spans recorded since the last call to the record's sums and forgets them. Streams
 * must be idle. */
void measure_spans(struct session *s);
/* At the end, collective: completes record->device[] on rank 0. */
int measure_finish(struct session *s);

#endif
