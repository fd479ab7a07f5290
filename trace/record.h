/* The run record: everything a finished run has to say, as data. The trainer fills it in, a job
 * hands it to its launcher as JSON, reports and the verdict read it. `duet train --json FILE`
 * writes this very form. */
#ifndef TRACE_RECORD_H
#define TRACE_RECORD_H

#include <stdio.h>

#include "base/json.h"
#include "trace/ledger.h"
#include "trace/mode.h"
#include "trace/span.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One device of the run, measured over its training steps (evaluation and set-up left out, but for
 * memory). */
struct device_record {
    int device;
    struct ledger memory;
    uint64_t bytes_in, bytes_out;  /* over links, all training steps */
    int64_t phase_ns[PHASE_COUNT]; /* compute lane, busy */
    int64_t comm_ns, busy_ns;      /* communication lane busy; compute lane busy */
    /* compute lane waiting for communication; DP, device 0: its thread, for the other threads */
    int64_t wait_ns;
    double flops;
};

/* The steps whose spans are kept for --trace. A step of LeNet has about 45 spans, so 1000 steps
 * take 3 MiB per device and give a trace file of 7 MB. */
enum { TRACE_STEPS = 1000 };
enum { MAX_SNAPSHOTS = 8 }; /* of all parameters, in one run */

struct run_record {
    enum run_mode mode;
    char model[16], dataset[16], kind[16], algorithm[16];
    int gpus; /* physical ones that the devices share; 0: emulated devices */
    /* times by phase and flops were measured; else they are 0, and not in the JSON form */
    int timed;
    int graph;                    /* steps are recorded once and replayed */
    int data_on_device;           /* the data set lies there, batches are made of it by index */
    int devices, virtual_devices; /* W; V, 0 for off */
    int bits_promised;            /* the rules of equal bits cover this run */
    char why_not[160];            /* else the reason */
    int batch_size, epochs, parameters;
    size_t parameter_count;
    char optimizer[16];
    double lr, momentum, weight_decay;
    uint64_t seed;
    int duplicates; /* samples repeated to pad an epoch */
    int train_samples, test_samples;
    int loss_in_forward;
    char buckets[1024]; /* DDP: sizes in bytes, "4052088, 1204000" */
    char choice[256];   /* DDP: the algorithm chosen and why */

    int steps_per_epoch;
    int first_step, steps; /* steps done; losses[i] belongs to step first_step + i */
    double *losses;        /* [steps] mean over the global batch */
    int epoch_count;       /* epochs timed */
    double *epoch_seconds; /* [epoch_count] training only; --steps may have cut the last */
    double *accuracy;      /* [epoch_count] on the test set; -1: not evaluated */
    double training_seconds;
    /* from the launch to the end of the first step: processes, devices, data, parameters */
    double first_step_seconds;
    int64_t images; /* trained on, duplicates included */

    struct device_record device[MAX_DEVICES];
    struct span_log
        kept; /* on, where a trace is wanted: spans of the first TRACE_STEPS steps, device by device. Not in the
                           * JSON form: a job hands them over beside it */
    /* for want of host memory, of all ranks: 0, or times and trace have holes */
    int64_t spans_lost;

    char **names; /* [parameters] */
    uint64_t *hashes
        /* per device: [steps][2 * parameters], values then gradients; NULL: not hashed */
        [MAX_DEVICES];
    uint64_t *final_hashes[MAX_DEVICES]; /* [parameters] after the last step */

    /* Lock step. snapshots[k]: all parameters before step snapshot_step[k]; grads: after the
     * last step's reduction. Row-major, registration order, one after another, parameter_count
     * floats each. */
    int snapshot_count, snapshot_step[MAX_SNAPSHOTS];
    float *snapshots[MAX_SNAPSHOTS];
    float *grads;
};

void record_free(struct run_record *record); /* zeroed is fine; zeroes it */

/* 1 if gradients of device d are hashed (DP reduces to device 0 alone). */
int record_has_grads(const struct run_record *record, int device);

/* Of a run that ended with an epoch the mean; else scaled from the pictures done, and then
 * record_extrapolated is 1. */
double record_seconds_per_epoch(const struct run_record *record);
int record_extrapolated(const struct run_record *record);
double record_images_per_second(const struct run_record *record);
double record_last_accuracy(const struct run_record *record); /* -1: none */

/* As an object under `key` (NULL: outermost). hashes 1: with hashes, snapshots and gradients,
 * for the verdict. */
void record_write(const struct run_record *record, struct json_writer *w, const char *key,
                  int hashes);
int record_read(struct run_record *record, const struct json *object);

#ifdef __cplusplus
}
#endif
#endif
