/* The run record: everything that a finished run has to report, as data. The trainer fills it in, a
 * job hands it to its launcher as bytes (record_bytes.h), and the reports and the verdict read it.
 * The files of --json hold it without the proof (docs/json.md). */
#ifndef TRACE_RECORD_H
#define TRACE_RECORD_H

#include <stdio.h>

#include "base/text/json.h"
#include "trace/ledger.h"
#include "trace/mode.h"
#include "trace/span.h"

/* One device of the run, measured over the training steps. Evaluation and set-up are left out of
 * bytes and times, but not of memory. */
struct device_record {
    int device;
    struct ledger memory;
    uint64_t bytes_in, bytes_out; /* moved over links in all training steps */
    /* Compute lane: busy time of each phase (span_busy_ns); for a phase of the host
     * (phase_is_of_host) the time that its thread took or waited; its median over the steps, and
     * its spread: half the range of the middle 68 % (step_times.h). */
    int64_t phase_ns[PHASE_COUNT], phase_median_ns[PHASE_COUNT], phase_spread_ns[PHASE_COUNT];
    /* from the start of a step to the start of the next */
    int64_t step_median_ns, step_spread_ns;
    int64_t busy_ns; /* compute lane: busy in training phases */
    /* Compute lane, training and proof: wall time of its spans beyond their busy time. The thread
     * of an emulated device had no core then. */
    int64_t no_core_ns;
    int64_t kernels; /* compute lane, training: spans that moved nothing over a link */
    /* Moved over links by this device's own streams in each phase; moves by other devices to or
     * from it are in theirs. */
    uint64_t phase_bytes[PHASE_COUNT];
    int64_t comm_ns;            /* communication lane: busy */
    int64_t exposed_ns;         /* the part of comm_ns in which the compute lane was not busy */
    int64_t copy_ns;            /* copy lane: batches copied during the kernels */
    int64_t host_ns, pinned_ns; /* the loader's stages (data/prepare.h), in its own threads */
    /* The compute lane waits for the communication lane or the copy lane. In DP, device 0 only: its
     * thread waits for the other threads, too. */
    int64_t wait_ns;
    double flops; /* floating point operations of the training phases */
    /* The largest error of its spans' times against the host's clock, which all processes share; 0:
     * they were taken from that clock. */
    int64_t clock_error_ns;
};

/* The steps whose spans are kept for --trace. A step of LeNet has about 45 spans, so 1000 steps
 * take 3 MiB per device and give a trace file of 7 MB. */
enum { TRACE_STEPS = 1000 };
enum { REPORT_STEPS = 100 }; /* for --report and --pictures, which show only a few */
enum { SUM_ORDER_BYTES = 96 };

struct run_record {
    /* ---- what ran ---- */
    enum run_mode mode;
    char model[64], dataset[64];
    char kind[16];      /* of the devices: "cpu" or "cuda" */
    char algorithm[16]; /* DDP: --allreduce as it was given */
    int gpus;           /* physical GPUs that the devices share; 0: the devices are emulated */
    int cores;          /* cores that the process may use */
    /* 1: spans were recorded. 0: times by phase and flops are 0 and not written to JSON. */
    int timed;
    /* 1: nothing ran. Memory, bytes, kernels and flops were counted without devices and data
     * (`duet estimate`); there are no times and no losses. */
    int computed;
    /* "4 x v100, pc-pcie3, ...": all times are those of the modelled clock on such hardware
     * (train/estimate/retime.h); "": they were measured. */
    char modelled[112];
    double data_seconds; /* the disk stage: to read the data sets, once for all jobs of a command */
    int pinned;          /* 1: batches are prepared in pinned memory */
    int blocking_copies; /* 1: no batch is copied during the kernels */
    int devices;         /* W */
    int virtual_devices; /* V; 0: off */
    int bits_promised;   /* 1: the rules of docs/design.md section 2 promise equal bits */
    char why_not[160];   /* where bits_promised is 0: the reason */
    char sum_order[SUM_ORDER_BYTES]; /* the order of adding gradients; "": the fold order */
    int batch_size;                  /* the global batch of one pass */
    int passes;             /* batches that make one update (--no-sync-steps); 1 as a rule */
    int epochs;             /* as requested; epoch_count has those that ran */
    int parameters;         /* parameter tensors, the length of names */
    size_t parameter_count; /* elements of all parameters together */
    size_t trainable_count; /* of those that are not frozen */
    char optimizer[16];
    double lr, momentum, weight_decay;
    uint64_t seed;
    int duplicates; /* samples used twice in an epoch because its order is padded */
    int train_samples, test_samples;
    int channels, height, width; /* of each sample */
    int classes;                 /* of the model, or numbers of a target */
    char loss[16];               /* "cross-entropy" or "mse" */
    int loss_in_forward;
    int output_device;     /* DP: the device that computes the loss; else 0 */
    char dp_reduce[16];    /* DP: "first" or "sharded"; else "" */
    int bucket_count;      /* DDP: buckets of gradients */
    int64_t *bucket_bytes; /* [bucket_count] their sizes, in the order in which they fill */
    char choice[256];      /* DDP: the algorithm chosen and why */
    char unreduced[256];   /* DDP: "rank 1: a, b": the last step gave them no gradient there */
    int bucket_algorithm_count;
    char **bucket_algorithms; /* DDP: [bucket_algorithm_count] the algorithm of each bucket */
    char **names;             /* [parameters] PyTorch's names; record_free frees each */
    int buffers;              /* buffers, the length of buffer_names */
    char **buffer_names;      /* [buffers] likewise */
    int machine_count;
    char **machines; /* [machine_count] that of each device; 0: all are on one */

    /* ---- how it went ---- */
    int steps_per_epoch;
    int first_step;        /* 0, or where lock step or a resumed run began */
    int resumed_from_step; /* of the checkpoint; 0: the run was not resumed */
    int steps;             /* steps done; losses[i] belongs to step first_step + i */
    double *losses;        /* [steps] mean over the global batch */
    int epoch_count;       /* epochs timed */
    double *epoch_seconds; /* [epoch_count] training only; --steps may have cut the last one */
    double *accuracy;      /* [epoch_count] on the test set; -1: not evaluated */
    double *valid_loss;    /* [epoch_count] mean over the test set; NaN: not evaluated */
    double *epoch_lr;      /* [epoch_count] the learning rate of its steps */
    double training_seconds;
    /* From the command's start to the end of the first step: processes, devices, data, parameters.
     */
    double first_step_seconds;
    int64_t samples; /* samples trained on, duplicates included */
    struct device_record device[MAX_DEVICES];
    struct traffic *traffic; /* over each link, in all training steps together; NULL: not counted */

    /* The spans of the first TRACE_STEPS steps (REPORT_STEPS without a trace), device by device, if
     * a trace, a report or pictures were requested. They are not in the JSON: a job hands them to
     * its launcher separately. */
    struct span_log kept;
    /* Spans of all ranks that were lost for lack of host memory. Above 0, times and trace have
     * gaps. */
    int64_t spans_lost;

    /* ---- the proof, which only the verdict reads ---- */

    /* Per device [steps][2 * parameters + buffers]: the hash of each parameter's value as the
     * step's forward saw it, of each reduced gradient, then of each buffer as that forward saw it.
     * NULL: not hashed. */
    uint64_t *hashes[MAX_DEVICES];
    /* per device [parameters + buffers]: values and buffers after the last step */
    uint64_t *final_hashes[MAX_DEVICES];

    /* Lock step: all gradients after the last step's reduction, [parameter_count]: the tensors in
     * registration order, row-major; NULL: not requested. */
    float *grads;
};

/* An empty record on the heap: it has some 70 KiB, too much for a small stack. ERR_MEMORY. */
int record_new(struct run_record **record);
/* record_free, and the record itself. */
void record_delete(struct run_record *record);

/* Frees what the record owns and zeroes it. NULL, zeroed and half-read records are fine. */
void record_free(struct run_record *record);

/* 1 if gradients of this device are hashed: DP reduces them to device 0 only. */
int record_has_grads(const struct run_record *record, int device);

/* Seconds of training per epoch, and samples per second: by the median step if steps were timed, so
 * that a step which other work disturbed does not count; else by the whole time. If the run ended
 * within an epoch, the seconds are extrapolated, and record_extrapolated returns 1. */
double record_seconds_per_epoch(const struct run_record *record);
int record_extrapolated(const struct run_record *record);
/* A total over the run's steps as a mean per step; 0 for a run without steps. */
double record_per_step(const struct run_record *record, double total);
double record_samples_per_second(const struct run_record *record);
/* The digits after the point with which a rate is shown: 21808, 9.4, 0.36. */
int rate_digits(double per_second);
/* The same for seconds, which are shown with three digits: 131, 13.1, 4.64, 0.202. */
int seconds_digits(double seconds);
/* The training time of a device without its phases, waits, proof and waiting for a core, in ns. In
 * DP the others sleep until device 0 needs them. */
double record_idle_ns(const struct run_record *record, int device);
/* The largest part of the training time in which an emulated device had no core although there were
 * as many as devices: the machine was busy with something else. 0 if devices share cores, because
 * then they cause it themselves, or on GPUs. */
double record_busy_machine(const struct run_record *record);
/* How many GPUs or cores the devices share; 0: each has its own, or the times are modelled. */
int record_shared(const struct run_record *record);
/* The first step, counted over the whole run, whose loss is not finite; -1: none. *count (NULL: not
 * wanted) is the number of such steps. */
int record_not_finite(const struct run_record *record, int *count);
/* Advice if `step` was the first. Step 0 has taken no update yet. */
const char *not_finite_advice(int step);
/* The largest peak of the devices from `first` to `last`, in bytes. */
uint64_t record_peak(const struct run_record *record, int first, int last);
double record_last_accuracy(const struct run_record *record);   /* -1: never evaluated */
double record_last_valid_loss(const struct run_record *record); /* NaN: likewise */

/* Writes every field of docs/json.md into the object that is open. */
void record_write_fields(const struct run_record *record, struct json_writer *w);
/* Writes the bytes of each cause, [MEM_CAUSE_COUNT], as an object under `key`, like records. */
void record_write_causes(struct json_writer *w, const char *key, const uint64_t *bytes);

#endif
