/* The run record holds everything that a finished run reports. The trainer fills it in, a job sends
 * it to its launcher as bytes (record_bytes.h), and the reports and the verdict read it. The files
 * of --json have it without the proof (docs/json.md). */
#ifndef TRACE_RECORD_H
#define TRACE_RECORD_H

#include <stdio.h>

#include "base/text/json.h"
#include "trace/ledger.h"
#include "trace/mode.h"
#include "trace/span.h"

/* One device of the run, measured over the training steps. Memory includes evaluation and set-up;
 * bytes and times do not. */
struct device_record {
    int device;
    struct ledger memory;
    uint64_t bytes_in, bytes_out; /* moved over links in all training steps */
    /* Compute lane: busy time of each phase (span_busy_ns), or for a phase of the host
     * (phase_is_of_host) the time that its thread took or waited. */
    int64_t phase_ns[PHASE_COUNT];
    /* From the start of a step to the start of the next. The spread is half the range of the middle
     * 68 % (step_times.h). */
    int64_t step_median_ns, step_spread_ns;
    int64_t busy_ns; /* compute lane: busy in training phases */
    /* Compute lane, training and proof: wall time of its spans minus their busy time. That is how
     * long an emulated device's thread waited for a core. */
    int64_t no_core_ns;
    int64_t kernels; /* compute lane, training: spans that moved nothing over a link */
    /* Moved over links by this device's own streams in each phase. Other devices' moves to or from
     * it are in their counts. */
    uint64_t phase_bytes[PHASE_COUNT];
    int64_t comm_ns;            /* communication lane: busy */
    int64_t exposed_ns;         /* the part of comm_ns in which the compute lane was not busy */
    int64_t copy_ns;            /* copy lane: batches copied while kernels run */
    int64_t host_ns, pinned_ns; /* the loader's stages (data/prepare.h), in its own threads */
    /* Time that the compute lane waits for the communication lane or the copy lane. On device 0 of
     * DP it includes its thread's waits for the other threads. */
    int64_t wait_ns;
    double flops; /* floating point operations of the training phases */
    /* The largest error of its spans' times relative to the host's clock, which all processes
     * share; 0 if they come from that clock. */
    int64_t clock_error_ns;
};

/* The steps whose spans are kept for --trace. A step of LeNet has about 45 spans, so 1000 steps
 * take 3 MiB per device and give a trace file of 7 MB. */
enum { TRACE_STEPS = 1000 };
enum { REPORT_STEPS = 100 }; /* for --report and --pictures, which show few steps */
enum { SUM_ORDER_BYTES = 96 };

struct run_record {
    /* ---- what ran ---- */
    enum run_mode mode;
    char model[64], dataset[64];
    char kind[16];      /* kind of the devices: "cpu" or "cuda" */
    char algorithm[16]; /* DDP: --allreduce as requested */
    int gpus;           /* physical GPUs that the devices share; 0: emulated devices */
    int cores;          /* cores that the process may use */
    /* 1: spans were recorded. 0: times by phase and flops are 0 and are not in the JSON. */
    int timed;
    /* 1: nothing ran. `duet estimate` counted memory, bytes, kernels and flops without devices and
     * data; the record has no times and no losses. */
    int computed;
    /* "4 x v100, pc-pcie3, ...": the modelled clock predicted all times for this hardware
     * (train/estimate/retime.h). "": they were measured. */
    char modelled[112];
    double data_seconds; /* disk stage: reading the data sets, once for all jobs of a command */
    int pinned;          /* 1: batches are prepared in pinned memory */
    int devices;         /* W */
    int virtual_devices; /* V; 0: off */
    int bits_promised;   /* 1: the rules of docs/design.md section 2 promise equal bits */
    char why_not[160];   /* the reason if bits_promised is 0 */
    char sum_order[SUM_ORDER_BYTES]; /* the order of adding gradients; "": the fold order */
    int batch_size;                  /* the global batch of one pass */
    int passes;                      /* batches per update (--no-sync-steps); usually 1 */
    int epochs;                      /* as requested; epoch_count is the number that ran */
    int parameters;                  /* parameter tensors, the length of `names` */
    size_t parameter_count;          /* elements of all parameters together */
    size_t trainable_count;          /* elements of those that are not frozen */
    char optimizer[16];
    double lr, momentum, weight_decay;
    uint64_t seed;
    int duplicates; /* samples used twice in an epoch because its order is padded */
    int train_samples, test_samples;
    int channels, height, width; /* shape of each sample */
    int classes;                 /* classes of the model, or numbers per target */
    char loss[16];               /* "cross-entropy" or "mse" */
    int loss_in_forward;
    int output_device;     /* DP: the device that computes the loss; else 0 */
    char dp_reduce[16];    /* DP: "first" or "sharded"; else "" */
    int bucket_count;      /* DDP: buckets of gradients */
    int64_t *bucket_bytes; /* [bucket_count] their sizes, in the order in which they fill */
    char choice[256];      /* DDP: the algorithm chosen and why */
    char unreduced[256];   /* DDP: lacked a gradient in the last step: "rank 1: a, b" */
    int bucket_algorithm_count;
    char **bucket_algorithms; /* DDP: [bucket_algorithm_count] the algorithm of each bucket */
    char **names;             /* [parameters] PyTorch's names; record_free frees each */
    int buffers;              /* buffers, the length of buffer_names */
    char **buffer_names;      /* [buffers] likewise */
    int machine_count;
    char **machines; /* [machine_count] each device's machine; 0: all are on one */

    /* ---- how it went ---- */
    int steps_per_epoch;
    int first_step;        /* 0, or the step at which lock step or a resumed run began */
    int resumed_from_step; /* step of the checkpoint; 0: the run was not resumed */
    int steps;             /* steps run; losses[i] belongs to step first_step + i */
    double *losses;        /* [steps] mean over the global batch */
    int epoch_count;       /* epochs timed */
    double *epoch_seconds; /* [epoch_count] training only; --steps may have cut the last one */
    double *accuracy;      /* [epoch_count] on the test set; -1: not evaluated */
    double *valid_loss;    /* [epoch_count] mean over the test set; NaN: not evaluated */
    double *epoch_lr;      /* [epoch_count] the learning rate of that epoch's steps */
    double training_seconds;
    /* From the command's start to the end of the first step, with processes, devices and data.
     */
    double first_step_seconds;
    int64_t samples; /* samples trained on, duplicates included */
    struct device_record device[MAX_DEVICES];
    struct traffic *traffic; /* bytes over each link in all training steps; NULL: not counted */

    /* The spans of the first TRACE_STEPS steps (REPORT_STEPS without a trace), device by device, if
     * a trace, a report or pictures were requested. They are not in the JSON; a job sends them to
     * its launcher separately. */
    struct span_log kept;
    /* Spans of all ranks that were lost because host memory ran out. If above 0, times and trace
     * have gaps. */
    int64_t spans_lost;

    /* ---- the proof, which only the verdict reads ---- */

    /* Per device [steps][2 * parameters + buffers]: the hash of each parameter's value in the
     * step's forward, of each reduced gradient, then of each buffer in that forward. NULL: not
     * hashed. */
    uint64_t *hashes[MAX_DEVICES];
    /* per device [parameters + buffers]: values and buffers after the last step */
    uint64_t *final_hashes[MAX_DEVICES];

    /* Lock step: all gradients after the last step's reduction, [parameter_count], with tensors in
     * registration order, row-major. NULL: not requested. */
    float *grads;
};

/* Makes an empty record on the heap, as its 70 KiB may exceed a stack. ERR_MEMORY. */
int record_new(struct run_record **record);
/* record_free, and then frees the record itself. */
void record_delete(struct run_record *record);

/* Frees what the record owns and zeroes it. NULL, zeroed and half-read records are fine. */
void record_free(struct run_record *record);

/* 1 if gradients of this device are hashed. With DP only device 0's are. */
int record_has_grads(const struct run_record *record, int device);

/* Seconds of training per epoch, and samples per second. They use the median step if steps were
 * timed, so that disturbed steps do not count, and otherwise the whole time. If the run ended
 * within an epoch, the seconds are extrapolated, and record_extrapolated returns 1. */
double record_seconds_per_epoch(const struct run_record *record);
int record_extrapolated(const struct run_record *record);
/* The mean per step of a total over the run's steps; 0 for a run without steps. */
double record_per_step(const struct run_record *record, double total);
double record_samples_per_second(const struct run_record *record);
/* The digits after the point with which a rate is shown: 21808, 9.4, 0.36. */
int rate_digits(double per_second);
/* The same for seconds, which have three digits: 131, 13.1, 4.64, 0.202. */
int seconds_digits(double seconds);
/* The rest of a device's training time, in ns, without its phases, waits, proof and waiting for a
 * core. In DP the other devices sleep until device 0 needs them. */
double record_idle_ns(const struct run_record *record, int device);
/* The largest fraction of the training time in which an emulated device waited for a core although
 * the machine has one for each device, so other programs used it. 0 on GPUs, and if devices share
 * cores, because they then cause the waits themselves. */
double record_busy_machine(const struct run_record *record);
/* The GPUs or cores that the devices share; 0: each has its own, or times are modelled. */
int record_shared(const struct run_record *record);
/* The first step, counted over the whole run, whose loss is not finite; -1: none. *count, which may
 * be NULL, gets the number of such steps. */
int record_not_finite(const struct run_record *record, int *count);
/* Advice if `step` was the first such step. Step 0 precedes the first update. */
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
